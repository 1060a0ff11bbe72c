/* recognise_product.c -- scaled dot-product attention: matmul, scale, mask, softmax, dropout, matmul.
 *
 *   softmax(scale * q k^T [+ mask | where mask]) [dropped] v   becomes one attention operator
 *
 * The rule looks at the second product and walks up.  q, k and v are followed through views and
 * transposes to where their elements lie: if that is one of the operator's layouts, the copy is not
 * made; a transpose behind the operator likewise becomes a layout of its result.  A constant mask
 * that hides everything right of a diagonal becomes the attribute.  Masks that are learnt stay as
 * they are: the operator has no gradient for them. */
#include "recognise.h"

static Val none(void) { return (Val){0}; }

/* ---- views: where the elements of a reshaped and transposed value lie --------------------- */

typedef struct {
    Val root; /* dense */
    Type shape;
    int64_t stride[MAX_RANK]; /* in elements of the root; any where the extent is 1 */
} View;

/* Strides of `to` over the same elements as `from` with `stride`; false: there are none. */
static bool restride(const Type *from, const int64_t *stride, const Type *to, int64_t *out)
{
    int i = from->rank - 1;      /* dimensions of `from` behind it are used up, */
    int64_t inner = 1, step = 0; /* but for this extent and its stride */
    for (int k = to->rank - 1; k >= 0; k--) {
        out[k] = 0;
        if (to->dim[k] == 1)
            continue;
        if (inner == 1) {
            while (i >= 0 && from->dim[i] == 1)
                i--;
            if (i < 0)
                return false;
            inner = from->dim[i];
            step = stride[i--];
        }
        while (inner < to->dim[k] && i >= 0) { /* join with the next, if it continues */
            if (from->dim[i] != 1 && stride[i] != inner * step)
                return false;
            inner *= from->dim[i--];
        }
        if (inner % to->dim[k])
            return false;
        out[k] = step;
        step *= to->dim[k];
        inner /= to->dim[k];
    }
    return true;
}

static View dense(const Rewrite *rw, Val v)
{
    View w = {.root = v, .shape = *val_type(rw->g, v)};
    type_strides(&w.shape, w.stride);
    return w;
}

static View view_of(const Rewrite *rw, Val v, int depth)
{
    const Node *t = rewrite_def(rw, v, OP_transpose), *r = rewrite_def(rw, v, OP_reshape);
    View w = depth < FORM_DEPTH && (t || r) ? view_of(rw, (t ? t : r)->in[0], depth + 1)
                                            : dense(rw, v);
    if (w.root.i == v.i)
        return w;
    View y = {.root = w.root, .shape = *val_type(rw->g, v)};
    for (int i = 0; t && i < y.shape.rank; i++)
        y.stride[i] = w.stride[((const TransposeAttrs *)t->attr)->perm.v[i]];
    return t || restride(&w.shape, w.stride, &y.shape, y.stride) ? y : dense(rw, v);
}

/* The view under another shape; root {0}: the elements do not lie so. */
static View view_as(View w, const Type *shape)
{
    View y = {.root = w.root, .shape = *shape};
    return restride(&w.shape, w.stride, shape, y.stride) ? y : (View){0};
}

static void swap_last(View *w)
{
    int n = w->shape.rank;
    int64_t d = w->shape.dim[n - 1], s = w->stride[n - 1];
    w->shape.dim[n - 1] = w->shape.dim[n - 2];
    w->stride[n - 1] = w->stride[n - 2];
    w->shape.dim[n - 2] = d;
    w->stride[n - 2] = s;
}

static bool same_strides(const Type *shape, const int64_t *a, const int64_t *b)
{
    for (int i = 0; i < shape->rank; i++)
        if (shape->dim[i] != 1 && a[i] != b[i])
            return false;
    return true;
}

/* ---- layouts (attrs.h) ---------------------------------------------------------------------- */

/* [batch, heads, rows, size] as it lies in a layout, with the strides of those four. */
static Type layout_type(const Type *logical, int layout, int64_t stride[4])
{
    Type t = *logical;
    int64_t own[MAX_RANK];
    for (int i = 0; i < 4; i++)
        t.dim[attention_place[layout][i]] = logical->dim[i];
    type_strides(&t, own);
    for (int i = 0; i < 4; i++)
        stride[i] = own[attention_place[layout][i]];
    return t;
}

/* v, whose last two dimensions are swapped if asked, as an operand of shape `logical`. */
static Val operand(Rewrite *rw, Val v, bool swapped, const Type *logical, int64_t *layout)
{
    Graph *g = rw->g;
    View w = view_of(rw, v, 0);
    if (swapped)
        swap_last(&w);
    w = view_as(w, logical);
    for (int i = 0; w.root.i && i < ATTENTION_LAYOUTS; i++) {
        int64_t stride[4];
        Type t = layout_type(logical, i, stride);
        *layout = i;
        if (same_strides(logical, stride, w.stride))
            return build_reshape(g, w.root, t.rank, t.dim);
    }
    *layout = 0;
    const Type *t = val_type(g, v);
    int perm[MAX_RANK];
    for (int i = 0; i < t->rank; i++)
        perm[i] = !swapped || i < t->rank - 2 ? i : 2 * t->rank - 3 - i;
    return build_reshape(g, swapped ? build_transpose(g, v, perm) : v, 4, logical->dim);
}

/* ---- the form -------------------------------------------------------------------------------- */

typedef struct {
    const Node *scores; /* the first product */
    Type shape;         /* of the scores: batch, heads, rows, columns */
    Val mask, rng;
    double outer; /* scale found before the mask */
    AttentionAttrs at;
} Form;

/* t with leading extents of 1 up to rank 4; rank 0 if it has more. */
static Type padded(const Type *t)
{
    Type p = {.dt = t->dt, .rank = t->rank > 4 ? 0 : 4};
    for (int i = 0; i < 4 && t->rank <= 4; i++)
        p.dim[i] = i < 4 - t->rank ? 1 : t->dim[i - (4 - t->rank)];
    return p;
}

/* The value behind views that nothing else reads. */
static Val behind_views(const Rewrite *rw, Val v)
{
    const Node *n;
    while (rewrite_once(rw, v) && (n = rewrite_def(rw, v, OP_reshape)) != NULL)
        v = n->in[0];
    return v;
}

/* Does a parameter lie behind v? */
static bool learnt(const Graph *g, Val v)
{
    bool *seen = NEW(g->arena, bool, g->nvals);
    Val *todo = NEW(g->arena, Val, g->nvals);
    uint32_t n = 0;
    seen[v.i] = true;
    todo[n++] = v;
    while (n > 0) {
        Val x = todo[--n];
        const Node *d = graph_def(g, x);
        if (g->vals[x.i].kind == VAL_PARAM)
            return true;
        for (int i = 0; d && i < d->nin; i++)
            if (!seen[d->in[i].i]) {
                seen[d->in[i].i] = true;
                todo[n++] = d->in[i];
            }
    }
    return false;
}

static const double hides = -1e30; /* what is added or filled where nothing may be seen */

/* A constant that hides, in each row, all columns right of a diagonal: `diagonal`.  A bool mask
 * hides where it is `hidden`, others where they are very negative and must be 0 elsewhere. */
static bool is_causal(const Rewrite *rw, const Form *f, Val mask, bool hidden, int64_t *diagonal)
{
    const int64_t rows = f->shape.dim[2], cols = f->shape.dim[3];
    if (!graph_is_const(rw->g, mask) || type_count(val_type(rw->g, mask)) != rows * cols ||
        rows < 2)
        return false;
    Tensor t = graph_tensor(rw->g, mask);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            double x = tensor_f(&t, r * cols + c);
            bool off = t.type.dt == DT_BOOL ? (x != 0) == hidden : x <= hides;
            if (t.type.dt != DT_BOOL && !off && x != 0)
                return false;
            if (r == 0 && !off)
                *diagonal = c;
            if (r > 0 || c > *diagonal)
                if (off != (c > r + *diagonal))
                    return false;
            if (r == 0 && c == 0 && off)
                return false;
        }
    return *diagonal < cols - 1;
}

/* One mask of the form; bool ones hide where they are `hidden`. */
static bool add_mask(Rewrite *rw, Form *f, Val mask, bool hidden, double fill)
{
    Graph *g = rw->g;
    int64_t diagonal = 0;
    bool set = val_type(g, mask)->dt == DT_BOOL;
    Type wide = f->shape;
    if (!type_broadcast(&wide, val_type(g, mask)) || !type_same_shape(&wide, &f->shape))
        return false;
    if (!f->at.causal && (!set || fill <= hides) &&
        is_causal(rw, f, mask, hidden, &diagonal)) {
        f->at.causal = 1;
        f->at.diagonal = diagonal;
        return true;
    }
    if (f->mask.i || learnt(g, mask))
        return false;
    f->mask = set && !hidden ? build1(g, OP_not, mask) : mask;
    f->at.fill = fill;
    return true;
}

/* Its scores are the operand that is not the mask: it has all elements and is computed. */
static bool walk_add(Rewrite *rw, Form *f, const Node *n, Val *next)
{
    for (int i = 0; i < 2; i++) {
        Type t = padded(val_type(rw->g, n->in[i]));
        const Node *d = graph_def(rw->g, n->in[i]);
        bool product = d && (d->op == OP_matmul || d->op == OP_mul || d->op == OP_div ||
                             d->op == OP_where || d->op == OP_add || d->op == OP_reshape);
        if (f->outer == 1 && product && type_same_shape(&t, &f->shape) &&
            rewrite_once(rw, n->in[i]) && add_mask(rw, f, n->in[1 - i], true, 0)) {
            *next = n->in[i];
            return true;
        }
    }
    return false;
}

static bool walk_where(Rewrite *rw, Form *f, const Node *n, Val *next)
{
    for (int i = 1; i < 3; i++) {
        double fill;
        Type t = padded(val_type(rw->g, n->in[3 - i]));
        if (rewrite_scalar(rw, n->in[i], &fill) && type_same_shape(&t, &f->shape)) {
            *next = n->in[3 - i];
            return add_mask(rw, f, n->in[0], i == 1, fill * f->outer);
        }
    }
    return false;
}

/* From the operand of softmax up to the first product. */
static bool walk_scores(Rewrite *rw, Form *f, Val v)
{
    f->outer = f->at.scale = 1;
    for (int depth = 0; depth < FORM_DEPTH && rewrite_once(rw, v); depth++) {
        const Node *n = graph_def(rw->g, v);
        Type t = padded(val_type(rw->g, v));
        double c = 1;
        Val x = n ? form_scaled(rw, v, &c) : none();
        if (!n || n->op == OP_matmul) {
            f->scores = n;
            return n != NULL;
        }
        if (n->op == OP_reshape) {
            v = n->in[0];
        } else if (x.i) {
            f->at.scale *= c;
            f->outer *= c;
            v = x;
        } else if (!type_same_shape(&t, &f->shape) ||
                   !(n->op == OP_add     ? walk_add(rw, f, n, &v)
                     : n->op == OP_where ? walk_where(rw, f, n, &v)
                                         : false)) {
            return false;
        }
    }
    return false;
}

/* Batch and heads of keys and values: k's matrix is [cols, size], in that order unless swapped. */
static bool group_type(const Graph *g, const Form *f, Val k, bool swapped, Type *out)
{
    *out = padded(val_type(g, k));
    if (out->rank == 0)
        return false;
    if (swapped) {
        int64_t d = out->dim[2];
        out->dim[2] = out->dim[3];
        out->dim[3] = d;
    }
    return out->dim[0] == f->shape.dim[0] && out->dim[1] > 0 &&
           f->shape.dim[1] % out->dim[1] == 0 && out->dim[2] == f->shape.dim[3] &&
           out->dim[3] <= ATTENTION_SIZE;
}

/* Are the rows of a product [batch, groups, heads / groups * rows, ..]: no broadcast? */
static bool rows_fit(const Graph *g, const Form *f, Val a, bool swapped, const Type *k)
{
    Type t = padded(val_type(g, a));
    return t.rank && t.dim[0] == k->dim[0] && t.dim[1] == k->dim[1] &&
           t.dim[swapped ? 3 : 2] * k->dim[1] == f->shape.dim[1] * f->shape.dim[2];
}

static Val build_attention(Rewrite *rw, const Node *n, Form *f)
{
    Graph *g = rw->g;
    const MatmulAttrs *first = f->scores->attr, *second = n->attr;
    Val q = f->scores->in[0], k = f->scores->in[1], v = n->in[1], in[5], out[2] = {{0}};
    Type kt, vt;
    if (!group_type(g, f, k, !first->tb, &kt) || !group_type(g, f, v, second->tb, &vt) ||
        !type_equal(&kt, &vt) || !rows_fit(g, f, q, first->ta, &kt) ||
        !rows_fit(g, f, n->in[0], false, &kt))
        return none();
    Type qt = f->shape, y = *val_type(g, n->out[0]);
    qt.dim[3] = kt.dim[3];
    f->at.layout.n = 4;
    in[0] = operand(rw, q, first->ta, &qt, &f->at.layout.v[0]);
    in[1] = operand(rw, k, !first->tb, &kt, &f->at.layout.v[1]);
    in[2] = operand(rw, v, second->tb, &vt, &f->at.layout.v[2]);
    in[3] = f->mask;
    in[4] = f->rng;
    build_n(g, OP_attention, n->name, 5, in, &f->at, 2, out);
    return build_reshape(g, out[0], y.rank, y.dim);
}

Val rule_attention(Rewrite *rw, const Node *n)
{
    DType dt = n->nout ? val_type(rw->g, n->out[0])->dt : DT_NONE;
    if (n->op != OP_matmul || ((const MatmulAttrs *)n->attr)->ta || (dt != DT_F32 && dt != DT_F64))
        return none();
    Form f = {.at.scale = 1};
    Val p = behind_views(rw, n->in[0]);
    const Node *drop = rewrite_def(rw, p, OP_dropout);
    if (drop && rewrite_once(rw, p)) {
        f.rng = drop->in[1];
        f.at.p = ((const DropoutAttrs *)drop->attr)->p;
        f.at.key = ((const DropoutAttrs *)drop->attr)->key;
        p = behind_views(rw, drop->in[0]);
    }
    const Node *s = rewrite_def(rw, p, OP_softmax);
    if (!s || !rewrite_once(rw, p) ||
        ((const AxisAttrs *)s->attr)->axis != val_type(rw->g, p)->rank - 1)
        return none();
    f.shape = padded(val_type(rw->g, p));
    if (f.shape.rank == 0 || type_count(&f.shape) == 0 || !walk_scores(rw, &f, s->in[0]))
        return none();
    return build_attention(rw, n, &f);
}

/* A transpose of the result is another layout of it. */
Val rule_attention_layout(Rewrite *rw, const Node *n)
{
    Graph *g = rw->g;
    if (n->op != OP_transpose)
        return none();
    View w = view_of(rw, n->in[0], 0);
    const Node *a = rewrite_def(rw, w.root, OP_attention);
    if (!a || a->out[0].i != w.root.i || rewrite_uses(rw, a->out[1]) ||
        behind_views(rw, n->in[0]).i != w.root.i || !rewrite_once(rw, w.root))
        return none();
    AttentionAttrs at = *(const AttentionAttrs *)a->attr;
    Type y = *val_type(g, n->out[0]), o = *val_type(g, a->out[0]);
    View t = {.root = w.root, .shape = y};
    for (int i = 0; i < y.rank; i++)
        t.stride[i] = w.stride[((const TransposeAttrs *)n->attr)->perm.v[i]];
    for (int i = 1; at.layout.v[3] == 0 && i < ATTENTION_LAYOUTS; i++) {
        View in_layout = {.root = w.root, .shape = o}, seen;
        int64_t now[MAX_RANK];
        type_strides(&o, now);
        for (int d = 0; d < 4; d++) {
            in_layout.shape.dim[attention_place[i][d]] = o.dim[d];
            in_layout.stride[attention_place[i][d]] = now[d];
        }
        seen = view_as(in_layout, &y);
        if (!seen.root.i || !same_strides(&y, seen.stride, t.stride))
            continue;
        Val out[2] = {{0}};
        at.layout.v[3] = i;
        build_n(g, OP_attention, a->name, a->nin, a->in, &at, 2, out);
        return build_reshape(g, out[0], y.rank, y.dim);
    }
    return none();
}
