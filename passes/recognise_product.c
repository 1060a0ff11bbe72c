/* recognise_product.c -- scaled dot-product attention: matmul, scores, softmax, dropout, matmul.
 *
 *   softmax(scores of q k^T) [dropped] v   becomes one attention operator
 *
 * The rule looks at the second product and walks up (attention_scores.c).  q, k and v are followed
 * to where their elements lie (attention_view.c): if that is one of the operator's layouts, the
 * copy is not made; a transpose behind the operator likewise becomes a layout of its result.
 * q, k and v stay in half precision if they have it; scores and their addends are in single. */
#include "attention_form.h"
#include <math.h>
#include <string.h>

/* ---- operands ------------------------------------------------------------------------------- */

typedef struct {
    View view;
    Val v;            /* the factor's value, used if the view has none of the layouts */
    bool swapped;     /* the last two dimensions of v are swapped */
    int64_t dim[4];   /* batch, heads, rows, size; heads as the view has them */
    int layout;       /* -1: none */
} Factor;

static int64_t lead_count(const Type *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank - 2; i++)
        n *= t->dim[i];
    return n;
}

/* Views a factor of a product whose result has the leading extents `lead` as batch, heads, rows, size.
 * Extents of 1 behind those that are equal mean that one head serves several. */
static bool open_factor(const Rewrite *rw, Factor *f, Val v, bool swapped, const Type *lead,
                        const Form *form, bool shared)
{
    Type t = *val_type(rw->g, v);
    int n = t.rank - 2, same = 0, more = lead->rank - t.rank;
    if (n < 0 || more < 0)
        return false;
    while (more == 0 && same < n && t.dim[same] == lead->dim[same])
        same++;
    for (int i = same; i < n; i++)
        if (t.dim[i] != 1)
            return false;
    int64_t count = lead_count(&t), batch = form->shape.dim[0];
    if (count % batch || (!shared && count != lead_count(lead)))
        return false;
    *f = (Factor){view_of(rw, v), v, swapped, {batch, count / batch, t.dim[n], t.dim[n + 1]}, -1};
    if (swapped) {
        int perm[MAX_RANK];
        for (int i = 0; i < t.rank; i++)
            perm[i] = i < n ? i : 2 * n + 1 - i;
        f->view = view_transposed(&f->view, perm);
        f->dim[2] = t.dim[n + 1];
        f->dim[3] = t.dim[n];
    }
    return true;
}

/* Finds the layout of a factor; queries are seen as rows of all their heads. */
static void find_layout(Factor *f, bool shared)
{
    Type t = type_make(f->view.shape.dt, 4, f->dim);
    int64_t heads = f->dim[1];
    View w = view_as(&f->view, &t);
    f->layout = w.root.i ? view_layout(&w, f->dim, shared) : -1;
    if (f->layout < 0)
        f->dim[1] = heads;
}

static Val factor_value(Rewrite *rw, const Factor *f, DType dt, double *scale)
{
    Graph *g = rw->g;
    int64_t dim[4];
    int perm[MAX_RANK], rank = val_type(g, f->v)->rank;
    if (f->layout >= 0) {
        for (int i = 0; i < 4; i++)
            dim[attention_place[f->layout][i]] = f->dim[i];
        *scale *= f->view.scale;
        return build_reshape(g, build_cast(g, f->view.root, dt), 4, dim);
    }
    for (int i = 0; i < rank; i++)
        perm[i] = !f->swapped || i < rank - 2 ? i : 2 * rank - 3 - i;
    Val v = f->swapped ? build_transpose(g, f->v, perm) : f->v;
    return build_reshape(g, build_cast(g, v, dt), 4, f->dim);
}

/* ---- the form -------------------------------------------------------------------------------- */

/* Opens queries, keys and values.  Queries have all rows of f->shape, however they are grouped.
 * shared[i]: factor i is taken with the heads that it had before they were repeated. */
static bool open_factors(const Rewrite *rw, const Form *f, const Node *n, Factor x[3], const bool shared[3])
{
    const Graph *g = rw->g;
    const MatmulAttrs *first = f->product->attr, *second = n->attr;
    const Type *scores = val_type(g, f->product->out[0]), *y = val_type(g, n->out[0]);
    if (!open_factor(rw, &x[0], f->product->in[0], first->ta, scores, f, false) ||
        !open_factor(rw, &x[1], f->product->in[1], !first->tb, scores, f, true) ||
        !open_factor(rw, &x[2], n->in[1], second->tb, y, f, true))
        return false;
    int64_t heads = f->shape.dim[1], rows = f->shape.dim[2], cols = f->shape.dim[3];
    if (x[0].dim[1] * x[0].dim[2] != heads * rows || x[0].dim[1] > heads || heads % x[0].dim[1])
        return false;
    x[0].dim[1] = heads;
    x[0].dim[2] = rows;
    if (x[1].dim[2] != cols || x[2].dim[2] != cols || x[0].dim[3] != x[1].dim[3] ||
        x[1].dim[3] > ATTENTION_SIZE || x[2].dim[3] > ATTENTION_SIZE || x[1].dim[3] == 0 || x[2].dim[3] == 0)
        return false;
    for (int i = 0; i < 3; i++)
        find_layout(&x[i], shared[i]);
    return x[1].dim[1] == x[2].dim[1] && x[1].dim[1] <= heads && heads % x[1].dim[1] == 0;
}

/* Opens the factors with as few heads of keys and values as both have. */
static bool find_factors(const Rewrite *rw, const Form *f, const Node *n, Factor x[3])
{
    for (int i = 3; i >= 0; i--)
        if (open_factors(rw, f, n, x, (bool[]){false, i & 1, i & 2}))
            return true;
    return false;
}

/* Are keys and values weight matrices, so that this is two layers with a softmax between them? */
static bool is_two_layers(const Graph *g, const Node *n, const Factor x[3])
{
    return val_type(g, n->in[1])->rank == 2 && g->vals[x[1].view.root.i].kind == VAL_PARAM &&
           g->vals[x[2].view.root.i].kind == VAL_PARAM;
}

/* The type of q, k and v: half precision if they and the result have it, even if widened on the way. */
static DType factor_type(const Graph *g, const Form *f, const Factor x[3], DType result)
{
    bool half = dtype_is_half(result) && !f->row_scale.i;
    for (int i = 0; i < 3; i++)
        half &= val_type(g, x[i].view.root)->dt == result;
    return half ? result : f->shape.dt;
}

static Val build_attention(Rewrite *rw, const Node *n, Form *f)
{
    Graph *g = rw->g;
    Factor x[3];
    Val in[7] = {[3] = f->mask, f->bias, f->sink, f->rng}, out[3] = {{0}};
    double scale[3] = {1, 1, 1};
    Type y = *val_type(g, n->out[0]);
    if (!find_factors(rw, f, n, x) || is_two_layers(g, n, x))
        return none();
    if (f->row_scale.i)
        x[0].layout = -1;
    DType dt = factor_type(g, f, x, y.dt);
    f->at.layout.n = 4;
    for (int i = 0; i < 3; i++) {
        in[i] = factor_value(rw, &x[i], dt, &scale[i]);
        f->at.layout.v[i] = x[i].layout < 0 ? 0 : x[i].layout;
    }
    if (f->row_scale.i)
        in[0] = build2(g, OP_mul, in[0], build_cast(g, f->row_scale, dt));
    f->at.scale *= scale[0] * scale[1];
    build_n(g, OP_attention, n->name, 7, in, &f->at, 3, out);
    Val o = build_cast(g, out[0], y.dt);
    o = scale[2] == 1 ? o : form_folded(rw, n->name, OP_mul, o, scale[2]);
    return build_reshape(g, o, y.rank, y.dim);
}

/* Heads joined with the batch: scores [batch * heads, rows, columns].  Where the values lie says how many. */
static void part_heads(const Rewrite *rw, Form *f, Val values)
{
    const View w = view_of(rw, values);
    if (w.shape.rank != 3 || w.first[1] != 2 || f->shape.dim[0] != 1 || f->shape.dim[1] != w.shape.dim[0])
        return;
    f->shape.dim[0] = w.atom[0].extent;
    f->shape.dim[1] = w.atom[1].extent;
}

Val rule_attention(Rewrite *rw, const Node *n)
{
    if (n->op != OP_matmul || ((const MatmulAttrs *)n->attr)->ta)
        return none();
    Form f = {.at.scale = 1, .at.fill = -INFINITY, .least = -INFINITY};
    Val s = form_weights(rw, &f, n->in[0]);
    DType dt = val_type(rw->g, n->out[0])->dt;
    if (!s.i || f.shape.rank == 0 || type_count(&f.shape) == 0 || !dtype_is_float(dt))
        return none();
    f.shape.dt = dt == DT_F64 ? DT_F64 : DT_F32;
    part_heads(rw, &f, n->in[1]);
    return form_scores(rw, &f, s) ? build_attention(rw, n, &f) : none();
}

static bool same_places(const View *a, const View *b)
{
    int rank = a->shape.rank;
    if (memcmp(a->first, b->first, (size_t)(rank + 1) * sizeof *a->first) != 0)
        return false;
    for (int i = 0; i < a->first[rank]; i++)
        if (a->atom[i].extent != b->atom[i].extent || a->atom[i].stride != b->atom[i].stride)
            return false;
    return true;
}

/* A view of o, a result in a layout of attention, as `shape`. */
static View in_layout(Val o, const Type *type, int layout, const Type *shape)
{
    View w = {.root = o, .scale = 1, .shape = *type, .first = {0, 1, 2, 3, 4}};
    int64_t stride[MAX_RANK];
    type_strides(type, stride);
    for (int d = 0; d < 4; d++) {
        w.shape.dim[attention_place[layout][d]] = type->dim[d];
        w.atom[attention_place[layout][d]] = (Atom){type->dim[d], stride[d]};
    }
    return view_as(&w, shape);
}

/* A transpose behind attention becomes another layout of its result. */
Val rule_attention_layout(Rewrite *rw, const Node *n)
{
    Graph *g = rw->g;
    if (n->op != OP_transpose)
        return none();
    View t = view_of(rw, n->out[0]);
    const Node *a = rewrite_def(rw, t.root, OP_attention);
    if (!a || a->out[0].i != t.root.i || rewrite_uses(rw, a->out[1]) || rewrite_uses(rw, a->out[2]) ||
        t.scale != 1 || form_behind(rw, n->in[0]).i != t.root.i || !rewrite_once(rw, t.root))
        return none();
    AttentionAttrs at = *(const AttentionAttrs *)a->attr;
    Type y = *val_type(g, n->out[0]), o = *val_type(g, t.root);
    View seen = view_as(&t, &y);
    for (int i = 1; at.layout.v[3] == 0 && i < ATTENTION_LAYOUTS; i++) {
        View w = in_layout(t.root, &o, i, &y);
        if (!w.root.i || !same_places(&w, &seen))
            continue;
        Val out[3] = {{0}};
        at.layout.v[3] = i;
        build_n(g, OP_attention, a->name, a->nin, a->in, &at, 3, out);
        return build_reshape(g, out[0], y.rank, y.dim);
    }
    return none();
}
