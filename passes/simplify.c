/* simplify.c -- algebra on single nodes and their producers, common subexpressions, dead code elimination.
 *
 * One function per rule.  A rule keeps every bit of the result, or replaces memory traffic by
 * views and flags; it never reorders floating-point additions.  But x + 0 is x, which leaves a zero its sign.
 */
#include "../ir/attrs.h"
#include "simplify.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static Val rule_copy(Rewrite *rw, const Node *n)
{
    (void)rw;
    if (n->op == OP_copy)
        return n->in[0];
    if (n->op == OP_dropout && ((const DropoutAttrs *)n->attr)->p <= 0)
        return n->in[0];
    return none();
}

/* x * 1, x / 1, x + 0, x - 0 */
static Val rule_neutral(Rewrite *rw, const Node *n)
{
    double c;
    bool mul = n->op == OP_mul, add = n->op == OP_add;
    if (!mul && !add && n->op != OP_div && n->op != OP_sub)
        return none();
    double neutral = mul || n->op == OP_div ? 1 : 0;
    if (rewrite_scalar(rw, n->in[1], &c) && c == neutral)
        return n->in[0]; /* the sweep refuses a result of another shape */
    if ((mul || add) && rewrite_scalar(rw, n->in[0], &c) && c == neutral)
        return n->in[1];
    return none();
}

/* v, or the value that it is a reshape of */
static Val unviewed(Rewrite *rw, Val v)
{
    const Node *view = rewrite_def(rw, v, OP_reshape);
    return view ? view->in[0] : v;
}

/* v cast and reshaped to type t */
static Val cast_as(Rewrite *rw, Val v, const Type *t)
{
    Type as = *t;
    return build_reshape(rw->g, build_cast(rw->g, v, as.dt), as.rank, as.dim);
}

/* a cast to the operand's own type, or of a cast that keeps every value */
static Val rule_cast(Rewrite *rw, const Node *n)
{
    if (n->op != OP_cast)
        return none();
    const Type *t = val_type(rw->g, n->out[0]);
    if (val_type(rw->g, n->in[0])->dt == t->dt)
        return n->in[0];
    const Node *p = rewrite_def(rw, unviewed(rw, n->in[0]), OP_cast);
    return p && node_widens(rw->g, p) ? cast_as(rw, p->in[0], t) : none();
}

/* The operand of the cast that v is, if nothing else reads v and it has type dt, else {0}. */
static Val cast_once(Rewrite *rw, Val v, DType dt)
{
    Val of = unviewed(rw, v);
    const Node *n = rewrite_once(rw, v) && rewrite_once(rw, of) ? rewrite_def(rw, of, OP_cast) : NULL;
    return n && val_type(rw->g, n->in[0])->dt == dt ? n->in[0] : none();
}

/* a sum of two 16-bit values in f32, rounded to 16 bits: a 16-bit addition computes the same */
static Val rule_sum_rounded(Rewrite *rw, const Node *n)
{
    if (n->op != OP_cast || val_type(rw->g, n->in[0])->dt != DT_F32)
        return none();
    Type t = *val_type(rw->g, n->out[0]);
    Val sum = unviewed(rw, n->in[0]);
    const Node *p = rewrite_def(rw, sum, OP_add);
    if (!p || !dtype_is_half(t.dt) || !rewrite_once(rw, sum) || !rewrite_once(rw, n->in[0]) ||
        !type_equal(val_type(rw->g, p->in[0]), val_type(rw->g, p->in[1])))
        return none();
    Val a = cast_once(rw, p->in[0], t.dt), b = cast_once(rw, p->in[1], t.dt);
    if (!a.i || !b.i)
        return none();
    return build2(rw->g, OP_add, cast_as(rw, a, &t), cast_as(rw, b, &t));
}

/* a sum by index of 16-bit values in f32: reads them in 16 bits */
static Val rule_sum_widened(Rewrite *rw, const Node *n)
{
    if (n->op != OP_gather_bwd && n->op != OP_gather_elements_bwd)
        return none();
    Type t = *val_type(rw->g, n->in[0]);
    const Node *p = rewrite_def(rw, unviewed(rw, n->in[0]), OP_cast);
    DType half = p ? val_type(rw->g, p->in[0])->dt : DT_NONE;
    if (!p || !dtype_is_half(half) || t.dt != dtype_sum(half))
        return none();
    Val in[] = {build_reshape(rw->g, p->in[0], t.rank, t.dim), n->in[1]};
    return build(rw->g, n->op, n->name, 2, in, n->attr);
}

static Val rule_neg(Rewrite *rw, const Node *n)
{
    const Node *p = n->op == OP_neg ? rewrite_def(rw, n->in[0], OP_neg) : NULL;
    return p ? p->in[0] : none();
}

/* reshape of a reshape; reshape to the same shape */
static Val rule_reshape(Rewrite *rw, const Node *n)
{
    if (n->op != OP_reshape)
        return none();
    const Type *t = val_type(rw->g, n->out[0]);
    if (type_equal(t, val_type(rw->g, n->in[0])))
        return n->in[0];
    const Node *p = rewrite_def(rw, n->in[0], OP_reshape);
    return p ? build_reshape(rw->g, p->in[0], t->rank, t->dim) : none();
}

static Val rule_transpose(Rewrite *rw, const Node *n)
{
    const Node *p = n->op == OP_transpose ? rewrite_def(rw, n->in[0], OP_transpose) : NULL;
    if (!p)
        return none();
    const TransposeAttrs *outer = n->attr, *inner = p->attr;
    int perm[MAX_RANK];
    for (int i = 0; i < outer->perm.n; i++)
        perm[i] = (int)inner->perm.v[outer->perm.v[i]];
    return build_transpose(rw->g, p->in[0], perm);
}

/* A transpose of an expanded value: what is expanded is transposed. */
static Val rule_transpose_expanded(Rewrite *rw, const Node *n)
{
    const Node *p = n->op == OP_transpose ? rewrite_def(rw, n->in[0], OP_expand) : NULL;
    if (!p)
        return none();
    const Type y = *val_type(rw->g, n->out[0]), x = *val_type(rw->g, p->in[0]);
    int64_t full[MAX_RANK];
    int perm[MAX_RANK], added = y.rank - x.rank;
    for (int i = 0; i < y.rank; i++) {
        perm[i] = (int)((const TransposeAttrs *)n->attr)->perm.v[i];
        full[i] = i < added ? 1 : x.dim[i - added];
    }
    Val v = build_transpose(rw->g, build_reshape(rw->g, p->in[0], y.rank, full), perm);
    return build_expand(rw->g, v, y.rank, y.dim);
}

/* A transpose that moves only extents of 1 is a view. */
static Val rule_transpose_view(Rewrite *rw, const Node *n)
{
    if (n->op != OP_transpose)
        return none();
    const Type *x = val_type(rw->g, n->in[0]);
    int64_t last = -1;
    const TransposeAttrs *at = n->attr;
    for (int i = 0; i < at->perm.n; i++) {
        if (x->dim[at->perm.v[i]] == 1)
            continue;
        if (at->perm.v[i] < last)
            return none();
        last = at->perm.v[i];
    }
    const Type *t = val_type(rw->g, n->out[0]);
    return build_reshape(rw->g, n->in[0], t->rank, t->dim);
}

/* The operand of a transpose of the last two dimensions, seen through a view that regroups the
 * dimensions before them. */
static Val swapped(Rewrite *rw, Val v)
{
    Type t = *val_type(rw->g, v);
    const Node *view = rewrite_def(rw, v, OP_reshape);
    const Node *p = rewrite_def(rw, view ? view->in[0] : v, OP_transpose);
    if (!p || t.rank < 2)
        return none();
    const Ints *perm = &((const TransposeAttrs *)p->attr)->perm;
    const Type *x = val_type(rw->g, p->in[0]);
    int64_t *rows = &t.dim[t.rank - 2], *columns = &t.dim[t.rank - 1];
    for (int i = 0; i < perm->n - 2; i++)
        if (perm->v[i] != i)
            return none();
    if (perm->n < 2 || perm->v[perm->n - 1] != perm->n - 2 || x->dim[perm->n - 2] != *columns ||
        x->dim[perm->n - 1] != *rows)
        return none();
    *columns = *rows;
    *rows = x->dim[perm->n - 2];
    return build_reshape(rw->g, p->in[0], t.rank, t.dim);
}

/* The product n with each operand for which other() finds a value replaced by that and a flag. */
static Val transposed_operands(Rewrite *rw, const Node *n, Val (*other)(Rewrite *, Val))
{
    if (n->op != OP_matmul)
        return none();
    MatmulAttrs at = *(const MatmulAttrs *)n->attr;
    Val a = other(rw, n->in[0]), b = other(rw, n->in[1]);
    if (!a.i && !b.i)
        return none();
    at.ta ^= a.i != 0;
    at.tb ^= b.i != 0;
    Val in[] = {a.i ? a : n->in[0], b.i ? b : n->in[1]};
    return build(rw->g, OP_matmul, n->name, 2, in, &at);
}

/* matmul of a transposed operand: a flag instead of a copy */
static Val rule_matmul_transpose(Rewrite *rw, const Node *n) { return transposed_operands(rw, n, swapped); }

/* If v transposes x's last dimension to the last but one: a transpose of x that keeps it last, so that
 * rows are copied whole; a flag does the rest. */
static Val rows_whole(Rewrite *rw, Val v)
{
    const Node *p = rewrite_def(rw, v, OP_transpose);
    if (!p || !rewrite_once(rw, v))
        return none();
    const Ints *perm = &((const TransposeAttrs *)p->attr)->perm;
    int last = perm->n - 1, order[MAX_RANK];
    if (last < 1 || perm->v[last - 1] != last)
        return none();
    for (int i = 0; i <= last; i++)
        order[i] = (int)perm->v[i];
    order[last] = last;
    order[last - 1] = (int)perm->v[last];
    return build_transpose(rw->g, p->in[0], order);
}

static Val rule_matmul_rows(Rewrite *rw, const Node *n) { return transposed_operands(rw, n, rows_whole); }

/* [.., m, k] x [k, n]: one product of all rows */
static Val rule_matmul_flatten(Rewrite *rw, const Node *n)
{
    if (n->op != OP_matmul)
        return none();
    Graph *g = rw->g;
    const MatmulAttrs *at = n->attr;
    const Type *a = val_type(g, n->in[0]), *b = val_type(g, n->in[1]);
    Type y = *val_type(g, n->out[0]);
    if (a->rank <= 2 || b->rank != 2 || at->ta)
        return none();
    int64_t k = a->dim[a->rank - 1], rows = 1;
    for (int i = 0; i + 1 < a->rank; i++)
        rows *= a->dim[i];
    Val flat = build_reshape(g, n->in[0], 2, (int64_t[]){rows, k});
    Val r = build(g, OP_matmul, n->name, 2, (Val[]){flat, n->in[1]}, at);
    return build_reshape(g, r, y.rank, y.dim);
}

/* Is v one power of two everywhere, of moderate size? */
static bool is_power_of_two(const Rewrite *rw, Val v, double *c)
{
    enum { POWER = 16 };
    int power;
    return rewrite_scalar(rw, v, c) && fabs(frexp(*c, &power)) == 0.5 && abs(power) <= POWER;
}

/* (a b) c, where c is a power of two: multiplies a factor of far fewer elements than the result instead,
 * which changes no bit either; not in f16, which could overflow, nor a parameter whose gradient would be
 * rounded. */
static Val rule_product_scaled(Rewrite *rw, const Node *n)
{
    enum { FEWER = 8 };
    Graph *g = rw->g;
    double c;
    if (n->op != OP_mul)
        return none();
    Val scaled = is_power_of_two(rw, n->in[1], &c) ? n->in[0] : n->in[1];
    const Node *p = rewrite_def(rw, unviewed(rw, scaled), OP_matmul);
    if (!p || !rewrite_once(rw, scaled) || !rewrite_once(rw, p->out[0]) ||
        (scaled.i == n->in[1].i && !is_power_of_two(rw, n->in[0], &c)))
        return none();
    Type y = *val_type(g, n->out[0]);
    if (type_count(val_type(g, p->out[0])) != type_count(&y))
        return none(); /* the constant broadcasts the product */
    Val in[] = {p->in[0], p->in[1]}, *factor = NULL;
    int64_t least = type_count(&y) / FEWER;
    for (int i = 0; i < 2; i++) {
        const Type *t = val_type(g, in[i]);
        if (type_count(t) > least || t->dt == DT_F16 || grad_type(g, in[i]) != t->dt)
            continue;
        least = type_count(t);
        factor = &in[i];
    }
    if (!factor)
        return none();
    *factor = build2(g, OP_mul, *factor, build_scalar(g, val_type(g, *factor)->dt, c));
    return build_reshape(g, build(g, OP_matmul, p->name, 2, in, p->attr), y.rank, y.dim);
}

/* An operand of a product as a matrix whose rows are the summed dimension of all batches. */
static Val batch_rows(Graph *g, Val v, bool rows_last)
{
    int perm[MAX_RANK];
    int64_t rows = 1;
    Type t = *val_type(g, v);
    for (int i = 0; i < t.rank; i++)
        perm[i] = !rows_last || i < t.rank - 2 ? i : 2 * t.rank - 3 - i;
    for (int i = 0; i < t.rank - 1; i++)
        rows *= t.dim[perm[i]];
    v = rows_last ? build_transpose(g, v, perm) : v;
    return build_reshape(g, v, 2, (int64_t[]){rows, t.dim[perm[t.rank - 1]]});
}

/* The sum over the batch of a[.., k, m]^T b[.., k, n]: one product over all rows (weight gradients).
 * Operands in another order are transposed if the summed products have at least twice as many elements. */
static Val rule_matmul_batch_sum(Rewrite *rw, const Node *n)
{
    if (n->op != OP_reduce_sum)
        return none();
    Graph *g = rw->g;
    const Node *m = rewrite_def(rw, n->in[0], OP_matmul);
    if (!m || !rewrite_once(rw, n->in[0]))
        return none();
    MatmulAttrs at = *(const MatmulAttrs *)m->attr;
    const ReduceAttrs *red = n->attr;
    Type a = *val_type(g, m->in[0]), b = *val_type(g, m->in[1]), y = *val_type(g, n->in[0]);
    int64_t moved = (at.ta ? 0 : type_count(&a)) + (at.tb ? type_count(&b) : 0);
    if (a.rank != y.rank || b.rank != y.rank || red->axes.n != y.rank - 2 || type_count(&y) < 2 * moved)
        return none();
    for (int i = 0; i < y.rank - 2; i++)
        if (red->axes.v[i] != i || a.dim[i] != y.dim[i] || b.dim[i] != y.dim[i])
            return none();
    Val in[] = {batch_rows(g, m->in[0], !at.ta), batch_rows(g, m->in[1], at.tb)};
    Type t = *val_type(g, n->out[0]);
    at.ta = 1;
    at.tb = 0;
    return build_reshape(g, build(g, OP_matmul, NULL, 2, in, &at), t.rank, t.dim);
}

/* A 1x1 convolution with strides reads only some positions: sliced to these it is a product, without
 * the workspace of a convolution of the whole.  Its gradients are then products, too, and
 * convolutions that read the same positions share the slice. */
static Val rule_conv_positions(Rewrite *rw, const Node *n)
{
    if (n->op != OP_conv)
        return none();
    Graph *g = rw->g;
    ConvAttrs at = *(const ConvAttrs *)n->attr;
    const Type *x = val_type(g, n->in[0]), *w = val_type(g, n->in[1]), *y = val_type(g, n->out[0]);
    SliceAttrs some = {.start.n = x->rank, .step.n = x->rank, .size.n = x->rank};
    for (int i = 0; i < x->rank; i++) {
        int s = i - (at.channels_last ? 1 : 2); /* the spatial dimension that i is */
        bool place = s >= 0 && s < at.strides.n;
        if (place && w->dim[2 + s] != 1)
            return none();
        some.step.v[i] = place ? at.strides.v[s] : 1;
        some.size.v[i] = place ? y->dim[i] : x->dim[i];
    }
    if (ints_are(&some.step, 1) || !ints_are(&at.pads, 0))
        return none();
    for (int i = 0; i < at.strides.n; i++)
        at.strides.v[i] = 1;
    Val in[] = {build(g, OP_slice, NULL, 1, n->in, &some), n->in[1], n->nin > 2 ? n->in[2] : none()};
    return build(g, OP_conv, n->name, n->nin, in, &at);
}

/* A convolution of patches that do not overlap, whose images were transposed for it alone: a product of
 * patches, into which they are transposed instead.  Images with channels last are left to layout.c. */
static Val rule_conv_patches(Rewrite *rw, const Node *n)
{
    const Node *p =
        n->op == OP_conv && rewrite_once(rw, n->in[0]) ? rewrite_def(rw, n->in[0], OP_transpose) : NULL;
    if (!p)
        return none();
    Graph *g = rw->g;
    const ConvAttrs *at = n->attr;
    const Ints *by = &((const TransposeAttrs *)p->attr)->perm;
    const Type x = *val_type(g, p->in[0]), w = *val_type(g, n->in[1]), y = *val_type(g, n->out[0]);
    int rank = x.rank, m = 2 * (rank - 2), at_dim[MAX_RANK] = {0}, perm[MAX_RANK];
    bool fits = at->group == 1 && w.dim[0] > 0 && !at->channels_last && at->out == DT_NONE &&
                ints_are(&at->pads, 0) && ints_are(&at->dilations, 1) && by->v[1] != rank - 1 &&
                m + 2 <= MAX_RANK;
    for (int s = 2; s < rank; s++)
        fits = fits && at->strides.v[s - 2] == w.dim[s] && y.dim[s] * w.dim[s] == x.dim[by->v[s]];
    if (!fits)
        return none();
    int64_t cut[MAX_RANK], patches = 1, each = type_count(&w) / w.dim[0];
    for (int d = 0, k = 0; d < rank; d++) { /* images and channels stay, the others are cut into patches */
        int s = 0;
        while (by->v[s] != d)
            s++;
        at_dim[s] = k;
        cut[k++] = s < 2 ? x.dim[d] : y.dim[s];
        if (s >= 2)
            cut[k++] = w.dim[s];
    }
    perm[0] = at_dim[0];
    perm[rank - 1] = at_dim[1];
    for (int s = 2; s < rank; s++) {
        perm[s - 1] = at_dim[s];
        perm[rank + s - 2] = at_dim[s] + 1;
        patches *= y.dim[s];
    }
    Val v = build_transpose(g, build_reshape(g, p->in[0], m + 2, cut), perm);
    v = build_reshape(g, v, 2, (int64_t[]){y.dim[0] * patches, each});
    MatmulAttrs product = {.tb = 1, .tf32 = at->tf32};
    Val weights = build_reshape(g, n->in[1], 2, (int64_t[]){w.dim[0], each});
    v = build(g, OP_matmul, n->name, 2, (Val[]){v, weights}, &product);
    v = n->nin > 2 ? build2(g, OP_add, v, n->in[2]) : v;
    v = build_reshape(g, v, 3, (int64_t[]){y.dim[0], patches, y.dim[1]});
    return build_reshape(g, build_transpose(g, v, (int[]){0, 2, 1}), y.rank, y.dim);
}

/* Removes an expand in front of a pointwise operator, which broadcasts by itself. */
static Val rule_expand_operand(Rewrite *rw, const Node *n)
{
    if (!(node_def(n)->traits & OPT_POINTWISE) || n->nin < 2 || n->nin > 3)
        return none();
    Graph *g = rw->g;
    for (int i = 0; i < n->nin; i++) {
        const Node *e = rewrite_def(rw, n->in[i], OP_expand);
        if (!e)
            continue;
        Val in[3];
        memcpy(in, n->in, (size_t)n->nin * sizeof *in);
        in[i] = e->in[0];
        Type t = *val_type(g, in[0]);
        bool ok = true;
        for (int j = 1; j < n->nin; j++)
            ok = ok && type_broadcast(&t, val_type(g, in[j]));
        if (ok && type_same_shape(&t, val_type(g, n->out[0])))
            return build(g, n->op, n->name, n->nin, in, n->attr);
    }
    return none();
}

/* Reading by index of a value that is expanded along dimensions beside the one that is indexed, as neighbours
 * of points are read: of the value itself, by the indices of all those dimensions.  gather_nd reads whole
 * dimensions behind it. */
static Val rule_gather_expanded(Rewrite *rw, const Node *n)
{
    bool nd = n->op == OP_gather_nd;
    const Node *p = nd || n->op == OP_gather_elements ? rewrite_def(rw, n->in[0], OP_expand) : NULL;
    if (!p || val_type(rw->g, p->in[0])->rank != val_type(rw->g, n->in[0])->rank)
        return none();
    Graph *g = rw->g;
    const Type x = *val_type(g, p->in[0]), full = *val_type(g, n->in[0]), y = *val_type(g, n->out[0]);
    Type index = *val_type(g, n->in[1]);
    ElementsAttrs at = {nd ? ((const AxisAttrs *)n->attr)->axis : ((const ElementsAttrs *)n->attr)->axis,
                        nd ? 0 : ((const ElementsAttrs *)n->attr)->batch};
    int first = (int)at.axis, end = first + 1; /* dimensions that become the one that is indexed */
    while (first > at.batch && x.dim[first - 1] < full.dim[first - 1])
        first--;
    while (!nd && end < x.rank && x.dim[end] < full.dim[end])
        end++;
    if (first == at.axis && end == at.axis + 1)
        return none();
    int64_t own[MAX_RANK], kept[MAX_RANK], by[MAX_RANK], indices = 1;
    int rank = 0;
    for (int i = first; i < end; i++)
        indices *= index.dim[i];
    for (int i = 0; i < x.rank; i++) {
        if (i >= first && i < end && i != at.axis)
            continue;
        own[rank] = x.dim[i];
        by[rank] = i == at.axis ? indices : index.dim[i];
        kept[rank++] = full.dim[i];
    }
    Val of = build_expand(g, build_reshape(g, p->in[0], rank, own), rank, kept);
    at.axis = first;
    if (nd)
        return build(g, n->op, n->name, 2, (Val[]){of, n->in[1]}, &(AxisAttrs){first});
    Val in[] = {of, build_reshape(g, n->in[1], rank, by)};
    return build_reshape(g, build(g, n->op, n->name, 2, in, &at), y.rank, y.dim);
}

/* A large constant that has the same bits everywhere is expanded where it is used: it needs no memory
 * for the whole step, and none at all inside a kernel. */
static Val rule_uniform(Rewrite *rw, const Node *n)
{
    enum { SMALL = 64 };
    Graph *g = rw->g;
    if (n->nout != 1 || node_def(n)->traits & (OPT_ONCE | OPT_RANDOM))
        return none();
    for (int i = 0; i < n->nin; i++) {
        if (!graph_is_const(g, n->in[i]))
            continue;
        Type t = *val_type(g, n->in[i]);
        const char *data = graph_tensor(g, n->in[i]).data;
        size_t each = (size_t)dtype_size[t.dt];
        if (type_count(&t) <= SMALL || memcmp(data, data + each, (size_t)type_bytes(&t) - each) != 0)
            continue;
        Val *in = NEW(g->arena, Val, n->nin), scalar = graph_const(g, "c", type_scalar(t.dt), data);
        memcpy(in, n->in, (size_t)n->nin * sizeof *in);
        in[i] = graph_value(g, g->vals[n->in[i].i].name, t, VAL_TEMP);
        Node *e = graph_node(g, OP_expand, 1, &scalar, 1, &in[i]); /* build() would fold it */
        ((ShapeAttrs *)e->attr)->shape = ints_of(&t);
        return build(g, n->op, n->name, n->nin, in, n->attr);
    }
    return none();
}

/* max_pool(relu(x)) = relu(max_pool(x)): the gradient then needs only the smaller result.  Behind a norm it
 * does not need the ReLU's result anyway (inline.c), which is made with the norm's. */
static Val rule_relu_pooled(Rewrite *rw, const Node *n)
{
    const Node *relu = n->op == OP_max_pool ? rewrite_def(rw, n->in[0], OP_relu) : NULL;
    if (!relu || !rewrite_once(rw, n->in[0]) || rewrite_uses(rw, n->out[1]) > 0 ||
        rewrite_def(rw, relu->in[0], OP_batch_norm))
        return none();
    return build1(rw->g, OP_relu, build(rw->g, OP_max_pool, NULL, 1, &relu->in[0], n->attr));
}

static Rule *const rules[] = {
    rule_product_scaled, /* must be first: pass_canonicalize leaves it out for fp16 */
    rule_copy, rule_neutral, rule_cast, rule_sum_rounded, rule_sum_widened, rule_neg, rule_reshape,
    rule_transpose, rule_transpose_expanded, rule_transpose_view, rule_matmul_transpose, rule_matmul_rows,
    rule_matmul_flatten, rule_matmul_batch_sum, rule_slice, rule_slice_bwd, rule_concat,
    rule_transpose_parts, rule_boxes, rule_conv_positions, rule_conv_patches, rule_expand_operand,
    rule_gather_expanded, rule_uniform, rule_relu_pooled, NULL,
};

static Rule *const behind_autodiff[] = {rule_slice_viewed, NULL};

/* For fp16 without rule_product_scaled, as values that are f32 now may become f16. */
bool pass_canonicalize(Graph *g, PassCtx *cx)
{
    bool fp16 = precision_half(cx->opt->precision) == DT_F16;
    return rewrite_run(g, cx->tmp, fp16 ? rules + 1 : rules, true, &cx->changed);
}

bool pass_simplify(Graph *g, PassCtx *cx)
{
    return pass_canonicalize(g, cx) && rewrite_run(g, cx->tmp, behind_autodiff, true, &cx->changed);
}
