/* zeros.c -- sets gradients to zero that are zero by algebra: of a bias of keys, as softmax ignores what all
 * scores of a row have in common, and of a bias in front of a norm, which subtracts the mean.  Computed,
 * they are rounding errors, and an optimizer that divides them by their size (Adam) moves such a bias
 * by a whole step, in another direction on every device.  Operators know which sums of their results are
 * zero (OpDef.zero_sums); here these are followed to gradients of parameters. */
#include "../ir/attrs.h"
#include "rewrite.h"
#include <string.h>

enum { BIAS = 1 << 16, SUMS = 1 << 20, VISITS = 64 }; /* most elements, sums and operators that are visited */

typedef struct {
    const Graph *g;
    Arena *tmp;
    int visits;
    bool found; /* an operator with zero_sums was found */
} Walk;

/* The number of elements left when the dimensions in `axes` are summed up. */
static int64_t left_of(const Type *t, uint32_t axes)
{
    int64_t n = 1;
    for (int d = 0; d < t->rank; d++)
        n *= axes >> d & 1 ? 1 : t->dim[d];
    return n;
}

static bool *all_set(const Walk *w, int64_t n)
{
    bool *set = NEW(w->tmp, bool, n);
    memset(set, true, (size_t)n * sizeof *set);
    return set;
}

/* The dimensions of x that a reshape to y turns into those in `axes`; *mixed: those in `axes` that it mixes
 * with others. */
static uint32_t unshaped(const Type *x, const Type *y, uint32_t axes, uint32_t *mixed)
{
    uint32_t to = *mixed = 0;
    for (int i = 0, j = 0; i < x->rank || j < y->rank;) {
        int64_t nx = 1, ny = 1, summed = 1; /* elements of dimensions that together are the same in both */
        uint32_t in = 0, out = 0;
        do {
            if (i < x->rank && (nx < ny || (nx == ny && in == 0))) {
                in |= 1u << i;
                nx *= x->dim[i++];
            } else {
                out |= 1u << j;
                summed *= axes >> j & 1 ? y->dim[j] : 1;
                ny *= y->dim[j++];
            }
        } while (nx != ny);
        to |= summed > 1 && summed == ny ? in : 0;
        *mixed |= summed > 1 && summed != ny ? axes & out : 0;
    }
    return to;
}

/* *to: the operand's dimensions that a transpose to y turns into those in `axes`; false: the others change
 * their order. */
static bool untransposed(const Type *y, const TransposeAttrs *at, uint32_t axes, uint32_t *to)
{
    int64_t last = -1;
    *to = 0;
    for (int d = 0; d < y->rank; d++)
        if (axes >> d & 1) {
            *to |= 1u << at->perm.v[d];
        } else if (y->dim[d] > 1) {
            if (at->perm.v[d] < last)
                return false;
            last = at->perm.v[d];
        }
    return true;
}

/* The dimensions of a reduction's operand x that are summed up: `axes` of the result, and its own axes. */
static uint32_t unreduced(const Type *x, const ReduceAttrs *at, uint32_t axes)
{
    uint32_t summed = axes_mask(&at->axes), to = summed;
    for (int d = 0, k = 0; d < x->rank; d++) {
        to |= (axes >> k & 1) << d;
        k += at->keepdims || !(summed >> d & 1);
    }
    return to;
}

/* Is v one number along each of these dimensions of y? */
static bool is_same_along(const Graph *g, Val v, const Type *y, uint32_t axes)
{
    const Type *t = val_type(g, v);
    for (int d = 0; d < t->rank; d++)
        if (t->dim[d] > 1 && axes >> (y->rank - t->rank + d) & 1)
            return false;
    return true;
}

/* OpDef.zero_sums for any value instead of an operator's result; false: no sum is known to be zero. */
static bool zero_sums(Walk *w, Val v, uint32_t axes, bool *zero);

/* Clears zero[] where sums over the axes without `others` are not zero for every index of the others; false:
 * none is left. */
static bool zero_without(Walk *w, Val v, uint32_t axes, uint32_t others, bool *zero)
{
    const Type *t = val_type(w->g, v);
    uint32_t fewer = axes & ~others;
    int64_t count = left_of(t, fewer);
    if (fewer == 0 || count > SUMS)
        return false;
    bool *part = all_set(w, count), any = false;
    TRY(zero_sums(w, v, fewer, part));
    for (int64_t i = 0; i < count; i++) {
        int64_t at = 0, step = 1, rest = i;
        for (int d = t->rank - 1; d >= 0; d--) {
            int64_t k = fewer >> d & 1 ? 0 : rest % t->dim[d];
            rest /= fewer >> d & 1 ? 1 : t->dim[d];
            at += axes >> d & 1 ? 0 : k * step;
            step *= axes >> d & 1 ? 1 : t->dim[d];
        }
        zero[at] &= part[i];
    }
    for (int64_t i = 0; i < left_of(t, axes); i++)
        any |= zero[i];
    return any;
}

/* zero_sums of an addition: zero where the sums of both operands are. */
static bool sum_zero(Walk *w, const Node *n, const Type *t, uint32_t axes, bool *zero)
{
    int64_t count = left_of(t, axes);
    bool *other = all_set(w, count), any = false;
    for (int i = 0; i < 2; i++)
        if (!type_same_shape(val_type(w->g, n->in[i]), t) ||
            !zero_sums(w, n->in[i], axes, i == 0 ? zero : other))
            return false;
    for (int64_t i = 0; i < count; i++)
        any |= zero[i] &= other[i];
    return any;
}

/* zero_sums of a slice's gradient, which is zero outside the slice. */
static bool slice_zero(Walk *w, const Node *n, const Type *t, uint32_t axes, bool *zero)
{
    const SliceAttrs *at = n->attr;
    const Type *x = val_type(w->g, n->in[0]);
    int axis = 0;
    while (axis < t->rank - 1 && x->dim[axis] == t->dim[axis])
        axis++;
    for (int d = 0; d < t->rank; d++)
        if (at->step.v[d] != 1 || (d != axis && x->dim[d] != t->dim[d]))
            return false;
    if (axes >> axis & 1)
        return zero_sums(w, n->in[0], axes, zero);
    bool *part = all_set(w, left_of(x, axes)), any = zero_sums(w, n->in[0], axes, part);
    int64_t inner = 1, size = x->dim[axis];
    for (int d = axis + 1; d < t->rank; d++)
        inner *= axes >> d & 1 ? 1 : t->dim[d];
    for (int64_t i = 0; i < left_of(t, axes); i++) {
        int64_t row = i / inner, at_part = row % t->dim[axis] - at->start.v[axis];
        if (at_part >= 0 && at_part < size)
            zero[i] &= any && part[(row / t->dim[axis] * size + at_part) * inner + i % inner];
    }
    return true;
}

static bool zero_sums(Walk *w, Val v, uint32_t axes, bool *zero)
{
    const Graph *g = w->g;
    const Node *n = graph_def(g, v);
    const Type *t = val_type(g, v);
    if (!n || n->nin == 0 || type_count(t) == 0 || w->visits++ > VISITS)
        return false;
    for (int k = 0; node_def(n)->zero_sums && k < n->nout; k++)
        if (n->out[k].i == v.i) {
            bool any = node_def(n)->zero_sums(g, n, k, axes, zero);
            w->found |= any;
            return any;
        }
    const Type *x = val_type(g, n->in[0]);
    switch (n->op) {
    case OP_cast:
    case OP_neg:
        break;
    case OP_reshape: {
        uint32_t mixed, to = unshaped(x, t, axes, &mixed);
        if (mixed)
            return zero_without(w, v, axes, mixed, zero);
        axes = to;
        break;
    }
    case OP_transpose:
        TRY(untransposed(t, n->attr, axes, &axes));
        break;
    case OP_reduce_sum:
        axes = unreduced(x, n->attr, axes);
        break;
    case OP_mul:
        if (!type_same_shape(x, t) || !is_same_along(g, n->in[1], t, axes))
            return false;
        break;
    case OP_add:
        return sum_zero(w, n, t, axes, zero);
    case OP_slice_bwd:
        return slice_zero(w, n, t, axes, zero);
    default:
        return false;
    }
    return zero_sums(w, n->in[0], axes, zero);
}

/* The gradient with constant zeros where it is zero by algebra; {0}: it is nowhere. */
static Val with_zeros(Graph *g, Arena *tmp, Val v)
{
    const Type *t = val_type(g, v);
    int64_t n = type_count(t), shape[MAX_RANK];
    if (n <= 0 || n > BIAS)
        return none();
    Walk w = {.g = g, .tmp = tmp};
    bool *zero = all_set(&w, n);
    if (!zero_sums(&w, v, 0, zero) || !w.found)
        return none();
    Val *part = NEW(tmp, Val, n), flat = build_reshape(g, v, 1, &n), no = build_scalar(g, t->dt, 0);
    int nparts = 0, rank = t->rank;
    memcpy(shape, t->dim, sizeof shape);
    for (int64_t lo = 0, hi; lo < n; lo = hi) {
        for (hi = lo + 1; hi < n && zero[hi] == zero[lo];)
            hi++;
        int64_t size = hi - lo;
        part[nparts++] = zero[lo] ? build_expand(g, no, 1, &size) : build_slice(g, flat, 0, lo, size);
    }
    return build_reshape(g, build_concat_many(g, nparts, part, 0), rank, shape);
}

bool pass_zeros(Graph *g, PassCtx *cx)
{
    Val *as = NEW(cx->tmp, Val, g->nvals);
    for (uint32_t i = 0; i < cx->info->ntrained; i++) {
        Val *grad = &cx->info->trained[i].grad;
        as[grad->i] = with_zeros(g, cx->tmp, *grad);
        cx->changed |= as[grad->i].i != 0;
        *grad = rewrite_as(as, *grad);
    }
    rewrite_ends(g, as);
    return true;
}
