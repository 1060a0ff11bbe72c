/* simplify_slices.c -- slices and concatenations: what is read is the part, and is copied once.
 *
 * A slice is read from what its operand is made of; gradients of slices that do not overlap are parts of a
 * concatenation. */
#include "../ir/attrs.h"
#include "simplify.h"
#include <stdlib.h>
#include <string.h>

/* ---- slices -------------------------------------------------------------------------------- */

/* Do slices alone read v?  Sets *elements to how many elements they have. */
static bool only_sliced(const Rewrite *rw, Val v, int64_t *elements)
{
    const Node *reader;
    uint32_t n = 0;
    for (*elements = 0; (reader = rewrite_reader(rw, v, n)) != NULL && reader->op == OP_slice; n++)
        *elements += type_count(val_type(rw->g, reader->out[0]));
    return n == rewrite_uses(rw, v);
}

/* The concatenation of the parts that a slice of a concatenation consists of; {0}: some have to be cut, and
 * it is made anyway, or read several times. */
static Val slice_parts(Rewrite *rw, const Node *slice, const Node *concat)
{
    Graph *g = rw->g;
    SliceAttrs at = *(const SliceAttrs *)slice->attr;
    const Type *x = val_type(g, slice->in[0]);
    int axis = (int)((const AxisAttrs *)concat->attr)->axis, n = 0;
    int64_t elements;
    bool apart = only_sliced(rw, slice->in[0], &elements) && elements <= type_count(x), whole = true;
    int64_t first = at.start.v[axis], behind = first + at.size.v[axis], before = 0;
    for (int d = 0; d < x->rank; d++)
        whole &= at.step.v[d] == 1 && (d == axis || at.size.v[d] == x->dim[d]);
    if (at.step.v[axis] != 1)
        return none();
    Val *part = NEW(g->arena, Val, concat->nin);
    for (int i = 0; i < concat->nin && before < behind; i++) {
        int64_t len = val_type(g, concat->in[i])->dim[axis];
        int64_t from = first > before ? first - before : 0,
                to = behind - before < len ? behind - before : len;
        before += len;
        if (from >= to)
            continue;
        bool all = whole && from == 0 && to == len;
        if (!all && !apart)
            return none();
        at.start.v[axis] = from;
        at.size.v[axis] = to - from;
        part[n++] = all ? concat->in[i] : build(g, OP_slice, slice->name, 1, &concat->in[i], &at);
    }
    return build_concat(g, n, part, axis);
}

static Val slice_transposed(Graph *g, const Node *slice, const Node *p)
{
    const SliceAttrs *of = slice->attr;
    const TransposeAttrs *perm = p->attr;
    SliceAttrs at = *of;
    for (int i = 0; i < at.start.n; i++) {
        int64_t d = perm->perm.v[i];
        at.start.v[d] = of->start.v[i];
        at.step.v[d] = of->step.v[i];
        at.size.v[d] = of->size.v[i];
    }
    Val v = build(g, OP_slice, slice->name, 1, p->in, &at);
    return build(g, OP_transpose, p->name, 1, &v, perm);
}

/* Makes a slice of a slice, or the gradient of one, a slice of the outer one's operand; false: its steps
 * would be too large. */
static bool slice_within(SliceAttrs *inner, const SliceAttrs *outer)
{
    for (int d = 0; d < inner->start.n; d++) {
        inner->start.v[d] = outer->start.v[d] + inner->start.v[d] * outer->step.v[d];
        inner->step.v[d] *= outer->step.v[d];
        if (inner->step.v[d] < -INT32_MAX || inner->step.v[d] > INT32_MAX)
            return false;
    }
    return true;
}

/* The convolution that computes just the positions that a slice has, such as a causal one that is padded at
 * both ends: with other pads.  {0}: it would have to skip some of its image. */
static Val slice_convolved(Graph *g, const Node *slice, const Node *conv)
{
    const SliceAttrs *of = slice->attr;
    ConvAttrs at = *(const ConvAttrs *)conv->attr;
    const Type *x = val_type(g, conv->in[0]), *w = val_type(g, conv->in[1]), *y = val_type(g, slice->in[0]);
    int rank = at.strides.n, first = at.channels_last ? 1 : 2;
    for (int d = 0; d < y->rank; d++) {
        int s = d - first;
        bool place = s >= 0 && s < rank;
        if (of->step.v[d] != 1 || (!place && of->size.v[d] != y->dim[d]))
            return none();
        if (!place || of->size.v[d] == y->dim[d])
            continue;
        int64_t by = at.strides.v[s], before = at.pads.v[s] - of->start.v[d] * by;
        int64_t window = (w->dim[2 + s] - 1) * at.dilations.v[s] + 1;
        int64_t behind = (of->size.v[d] - 1) * by + window - x->dim[d] - before;
        if (before < 0 || behind <= -by)
            return none();
        at.pads.v[s] = before;
        at.pads.v[rank + s] = behind > 0 ? behind : 0;
    }
    return build(g, OP_conv, conv->name, conv->nin, conv->in, &at);
}

/* Elements of which a slice along the indexed axis is all that is read: those alone, by a slice of the
 * indices. */
static Val slice_gathered(Graph *g, const Node *slice, const Node *p)
{
    const SliceAttrs *of = slice->attr;
    const Type *y = val_type(g, slice->in[0]);
    for (int d = 0; d < y->rank; d++)
        if (d != ((const ElementsAttrs *)p->attr)->axis && (of->step.v[d] != 1 || of->size.v[d] != y->dim[d]))
            return none();
    Val in[] = {p->in[0], build_slice_like(g, p->in[1], y, of)};
    return build(g, OP_gather_elements, p->name, 2, in, p->attr);
}

/* Where slices read the first of the elements in order alone, such as neighbours of all points that are
 * sorted, no more of them are found. */
static Val slice_ordered(Rewrite *rw, const Node *slice, const Node *p)
{
    Graph *g = rw->g;
    TopkAttrs at = *(const TopkAttrs *)p->attr;
    const Node *reader;
    int64_t elements, most = 0;
    if (!only_sliced(rw, slice->in[0], &elements))
        return none();
    for (uint32_t i = 0; (reader = rewrite_reader(rw, slice->in[0], i)) != NULL; i++) {
        const SliceAttrs *of = reader->attr;
        int64_t end = of->step.v[at.axis] > 0
                          ? 1 + of->start.v[at.axis] + (of->size.v[at.axis] - 1) * of->step.v[at.axis]
                          : at.k;
        most = end > most ? end : most;
    }
    if (most >= at.k)
        return none();
    at.k = most;
    return build(g, OP_slice, slice->name, 1, (Val[]){build(g, OP_topk, p->name, 1, p->in, &at)},
                 slice->attr);
}

/* A slice of everything; within one part of a concatenation, such as of a complex number's parts, or of
 * several whole parts; of an expanded value; of a slice or of elements in order that only slices read; of a
 * concatenation that only slices read, once; of a transpose, a convolution or elements read by index that
 * nothing else reads. */
Val rule_slice(Rewrite *rw, const Node *n)
{
    if (n->op != OP_slice)
        return none();
    Graph *g = rw->g;
    SliceAttrs at = *(const SliceAttrs *)n->attr;
    const Type y = *val_type(g, n->out[0]), x = *val_type(g, n->in[0]);
    if (type_equal(&y, &x) && ints_are(&at.step, 1))
        return n->in[0];
    int64_t elements;
    const Node *p = graph_def(g, n->in[0]);
    if (!p || type_count(&y) == 0)
        return none();
    if (p->op == OP_expand)
        return build_expand(g, build_slice_like(g, p->in[0], &x, &at), y.rank, y.dim);
    if (p->op == OP_transpose && rewrite_once(rw, n->in[0]))
        return slice_transposed(g, n, p);
    if (p->op == OP_conv && rewrite_once(rw, n->in[0]))
        return slice_convolved(g, n, p);
    if (p->op == OP_gather_elements && rewrite_once(rw, n->in[0]))
        return slice_gathered(g, n, p);
    if (p->op == OP_topk)
        return slice_ordered(rw, n, p);
    if (p->op == OP_slice && only_sliced(rw, n->in[0], &elements) && slice_within(&at, p->attr))
        return build(g, OP_slice, n->name, 1, p->in, &at);
    if (p->op != OP_concat)
        return none();
    int64_t axis = ((const AxisAttrs *)p->attr)->axis, *first = &at.start.v[axis];
    int64_t last = *first + (y.dim[axis] - 1) * at.step.v[axis];
    for (int i = 0; i < p->nin && *first >= 0 && last >= 0; i++) {
        int64_t len = val_type(g, p->in[i])->dim[axis];
        if (*first < len && last < len)
            return build(g, OP_slice, n->name, 1, &p->in[i], &at);
        *first -= len;
        last -= len;
    }
    return slice_parts(rw, n, p);
}

/* Fits the slice of a view of type `to`, which adds or drops dimensions of 1, to the viewed type `of`; false:
 * the view does more than that. */
static bool slice_through(SliceAttrs *at, const Type *to, const Type *of)
{
    SliceAttrs fit = {.start = ints_of(of), .step = ints_of(of), .size = ints_of(of)};
    int d = 0;
    for (int i = 0; i < of->rank; i++) {
        bool one = of->dim[i] == 1;
        while (!one && d < to->rank && to->dim[d] == 1)
            d++;
        if (!one && (d == to->rank || to->dim[d] != of->dim[i]))
            return false;
        fit.start.v[i] = one ? 0 : at->start.v[d];
        fit.step.v[i] = one ? 1 : at->step.v[d];
        fit.size.v[i] = one ? 1 : at->size.v[d];
        d += !one;
    }
    while (d < to->rank && to->dim[d] == 1)
        d++;
    *at = fit;
    return d == to->rank;
}

/* A slice of a view of a slice, such as a gate's part of a time step, if only slices read that: of what the
 * outer one reads.  Behind autodiff, where gradients of the parts already are one concatenation. */
Val rule_slice_viewed(Rewrite *rw, const Node *n)
{
    Graph *g = rw->g;
    int64_t elements;
    const Node *view = n->op == OP_slice ? rewrite_def(rw, n->in[0], OP_reshape) : NULL;
    const Node *outer = view ? rewrite_def(rw, view->in[0], OP_slice) : NULL;
    if (!outer || !rewrite_once(rw, view->in[0]) || !only_sliced(rw, n->in[0], &elements))
        return none();
    SliceAttrs at = *(const SliceAttrs *)n->attr;
    const Type y = *val_type(g, n->out[0]);
    if (type_count(&y) == 0 ||
        !slice_through(&at, val_type(g, n->in[0]), val_type(g, view->in[0])) ||
        !slice_within(&at, outer->attr))
        return none();
    return build_reshape(g, build(g, OP_slice, n->name, 1, outer->in, &at), y.rank, y.dim);
}

/* The gradient of a slice of a slice. */
Val rule_slice_bwd(Rewrite *rw, const Node *n)
{
    const Node *p =
        n->op == OP_slice_bwd && rewrite_once(rw, n->in[0]) ? rewrite_def(rw, n->in[0], OP_slice_bwd) : NULL;
    if (!p)
        return none();
    SliceAttrs at = *(const SliceAttrs *)p->attr;
    at.size = ((const SliceAttrs *)n->attr)->size;
    return slice_within(&at, n->attr) ? build(rw->g, OP_slice_bwd, n->name, 1, p->in, &at) : none();
}

/* ---- concatenations -------------------------------------------------------------------------- */

/* A part that is a concatenation along the same axis, and that nothing else reads: its parts. */
Val rule_concat(Rewrite *rw, const Node *n)
{
    enum { PARTS = 32 }; /* kernels take a limited number of operands */
    if (n->op != OP_concat)
        return none();
    int64_t axis = ((const AxisAttrs *)n->attr)->axis;
    Val part[PARTS];
    int nparts = 0;
    for (int i = 0; i < n->nin; i++) {
        const Node *p = rewrite_once(rw, n->in[i]) ? rewrite_def(rw, n->in[i], OP_concat) : NULL;
        bool inner = p && ((const AxisAttrs *)p->attr)->axis == axis;
        for (int k = 0; k < (inner ? p->nin : 1); k++) {
            if (nparts == PARTS)
                return none();
            part[nparts++] = inner ? p->in[k] : n->in[i];
        }
    }
    return nparts > n->nin ? build_concat(rw->g, nparts, part, (int)axis) : none();
}

/* A transpose of a concatenation that nothing else reads: of its parts, which are transposed, or expanded,
 * anyway. */
Val rule_transpose_parts(Rewrite *rw, const Node *n)
{
    const Node *p =
        n->op == OP_transpose && rewrite_once(rw, n->in[0]) ? rewrite_def(rw, n->in[0], OP_concat) : NULL;
    if (!p)
        return none();
    int axis = 0, perm[MAX_RANK];
    const Ints *by = &((const TransposeAttrs *)n->attr)->perm;
    for (int i = 0; i < by->n; i++) {
        perm[i] = (int)by->v[i];
        axis = by->v[i] == ((const AxisAttrs *)p->attr)->axis ? i : axis;
    }
    Val *part = NEW(rw->g->arena, Val, p->nin);
    for (int i = 0; i < p->nin; i++)
        if (!rewrite_def(rw, p->in[i], OP_transpose) && !rewrite_def(rw, p->in[i], OP_expand))
            return none();
    for (int i = 0; i < p->nin; i++)
        part[i] = build_transpose(rw->g, p->in[i], perm);
    return build_concat(rw->g, p->nin, part, axis);
}

/* ---- sums of slice gradients that do not overlap: a concatenation ------------------------------ */

enum { SUMS_MAX = 4096 }; /* most additions in a chain, which has as many as a recurrence has steps */
typedef struct {
    Val part;
    const int64_t *start, *size;
    int64_t at; /* where it begins along the axis that is looked at */
} Box;
typedef struct {
    Box *box; /* NULL: boxes are only counted */
    int n, sums;
    int64_t elements;
    Val other; /* the one further term of the sum; each element has at most one of a box besides */
} Boxes;

static bool add_box(const Rewrite *rw, Boxes *b, const Node *n)
{
    const SliceAttrs *at = n->attr;
    const Type *t = val_type(rw->g, n->in[0]);
    if (b->box) {
        Type *own = NEW(rw->g->arena, Type, 1);
        *own = *t;
        b->box[b->n] = (Box){.part = n->in[0], .start = at->start.v, .size = own->dim};
    }
    b->elements += type_count(t);
    b->n++;
    return ints_are(&at->step, 1) && type_count(t) > 0;
}

static bool collect_boxes(const Rewrite *rw, Boxes *b, const Node *sum)
{
    bool ok = b->sums++ < SUMS_MAX;            /* longer chains stay */
    for (int deeper = 0; deeper < 2; deeper++) /* both operands are checked before the walk descends */
        for (int i = 0; ok && i < 2; i++) {
            bool own = rewrite_once(rw, sum->in[i]) &&
                       type_equal(val_type(rw->g, sum->in[i]), val_type(rw->g, sum->out[0]));
            const Node *n = own ? graph_def(rw->g, sum->in[i]) : NULL;
            bool further = n && n->op == OP_add;
            if (deeper && further) {
                ok = collect_boxes(rw, b, n);
            } else if (!deeper && n && n->op == OP_slice_bwd) {
                ok = add_box(rw, b, n);
            } else if (!deeper && !further) {
                ok = !b->other.i;
                b->other = sum->in[i];
            }
        }
    return ok;
}

/* Is the sum an operand of one that may add further boxes? */
static bool waits(const Rewrite *rw, const Node *sum)
{
    const Node *next = rewrite_once(rw, sum->out[0]) ? rewrite_reader(rw, sum->out[0], 0) : NULL;
    for (int i = 0; next && next->op == OP_add && i < 2; i++) {
        const Node *n = graph_def(rw->g, next->in[i]);
        if (next->in[i].i != sum->out[0].i && n && (n->op == OP_slice_bwd || n->op == OP_add))
            return true;
    }
    return false;
}

static int by_place(const void *a, const void *b)
{
    const Box *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

/* How many of the boxes, from the first, end before all others begin, and where. */
static int apart(const Box *box, int n, int axis, int64_t *end)
{
    *end = box[0].at + box[0].size[axis];
    int k = 1;
    for (; k < n && box[k].at < *end; k++)
        if (box[k].at + box[k].size[axis] > *end)
            *end = box[k].at + box[k].size[axis];
    return k;
}

/* The region of the sum that begins at `from` and has type t, in which all boxes lie; {0}: they overlap, or
 * no cut separates them. */
static Val joined(Graph *g, Box *box, int n, const int64_t *from, Type t)
{
    if (n == 0)
        return build_expand(g, build_scalar(g, t.dt, 0), t.rank, t.dim);
    if (n == 1) {
        SliceAttrs at = slice_all(&t);
        for (int d = 0; d < t.rank; d++)
            at.start.v[d] = box->start[d] - from[d];
        return type_equal(&t, val_type(g, box->part)) ? box->part
                                                      : build(g, OP_slice_bwd, NULL, 1, &box->part, &at);
    }
    for (int axis = 0; axis < t.rank; axis++) {
        for (int i = 0; i < n; i++)
            box[i].at = box[i].start[axis];
        qsort(box, (size_t)n, sizeof *box, by_place);
        int64_t end, own[MAX_RANK], last = from[axis] + t.dim[axis];
        if (apart(box, n, axis, &end) == n)
            continue;
        Val *part = NEW(g->arena, Val, 2 * n + 1);
        int nparts = 0;
        memcpy(own, from, sizeof own);
        for (int i = 0, k; own[axis] < last; own[axis] = end, i += k) {
            bool gap = i == n || box[i].at > own[axis];
            k = gap ? 0 : apart(box + i, n - i, axis, &end);
            end = gap ? i == n ? last : box[i].at : end;
            t.dim[axis] = end - own[axis];
            part[nparts] = joined(g, box + i, k, own, t);
            if (!part[nparts++].i)
                return none();
        }
        return build_concat(g, nparts, part, axis);
    }
    return none();
}

Val rule_boxes(Rewrite *rw, const Node *n)
{
    Graph *g = rw->g;
    Boxes b = {.n = 0};
    const Type y = *val_type(g, n->out[0]);
    const int64_t from[MAX_RANK] = {0};
    if (n->op != OP_add || !collect_boxes(rw, &b, n) || b.n < 2 || b.elements > type_count(&y) ||
        (b.elements < type_count(&y) && waits(rw, n)))
        return none();
    b = (Boxes){.box = NEW(g->arena, Box, b.n)};
    collect_boxes(rw, &b, n);
    Val v = joined(g, b.box, b.n, from, y);
    return b.other.i && v.i ? build2(g, OP_add, b.other, v) : v;
}
