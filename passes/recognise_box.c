/* recognise_box.c -- tuples of indices that are known when compiling and name a box: a slice is read or
 * written.
 *
 * TorchScript's exporter writes x[:, 1:, :3] with a tuple for every element, joined of ranges that are
 * expanded to all of them.  Large ones are not folded into constants; what they are made of is. */
#include "recognise.h"

/* Numbers that count: at i they are first + the sum of step[d] i[d]. */
typedef struct {
    int64_t first, step[MAX_RANK];
} Counts;

static bool is_index(int64_t v) { return v >= -MAX_ELEMENTS && v <= MAX_ELEMENTS; }

/* Reads component k of a constant's last dimension, or all of it (k < 0), once. */
static bool constant_counts(const Tensor *t, int64_t k, Counts *c)
{
    const int64_t *dim = t->type.dim;
    int rank = t->type.rank - (k >= 0);
    int64_t each = k >= 0 ? dim[rank] : 1, from = k >= 0 ? k : 0, count = type_count(&t->type);
    if (count == 0 || !is_index(c->first = tensor_i(t, from)))
        return false;
    for (int64_t d = rank - 1, stride = each; d >= 0; stride *= dim[d--]) {
        int64_t second = dim[d] > 1 ? tensor_i(t, from + stride) : c->first;
        if (!is_index(second))
            return false;
        c->step[d] = second - c->first;
    }
    int64_t at[MAX_RANK] = {0}, want = c->first;
    for (int64_t i = from; i < count; i += each) {
        if (!is_index(want) || tensor_i(t, i) != want)
            return false;
        for (int d = rank - 1; d >= 0; d--) {
            want += c->step[d];
            if (++at[d] < dim[d])
                break;
            want -= c->step[d] * dim[d];
            at[d] = 0;
        }
    }
    return true;
}

static bool counts(const Rewrite *rw, Val v, int64_t k, int depth, Counts *c);

static bool expand_counts(const Rewrite *rw, const Node *n, int64_t k, int depth, Counts *c)
{
    const Type *t = val_type(rw->g, n->out[0]), *x = val_type(rw->g, n->in[0]);
    int added = t->rank - x->rank, last = x->rank - 1;
    Counts of = {0};
    if (k >= 0 && (last < 0 || x->dim[last] == 1))
        k = last < 0 ? -1 : 0;
    TRY(counts(rw, n->in[0], k, depth, &of));
    c->first = of.first;
    for (int d = 0; d <= last - (k >= 0); d++)
        c->step[added + d] = of.step[d];
    return true;
}

/* A view that only adds or drops extents of 1. */
static bool view_counts(const Rewrite *rw, const Node *n, int64_t k, int depth, Counts *c)
{
    const Type *t = val_type(rw->g, n->out[0]), *x = val_type(rw->g, n->in[0]);
    int rank = t->rank - (k >= 0), from = x->rank, i = 0;
    if (k >= 0 && t->dim[rank] == 1)
        k = -1; /* the tuples' dimension was added */
    else if (k >= 0 && (from == 0 || x->dim[--from] != t->dim[rank]))
        return false;
    Counts of = {0};
    TRY(counts(rw, n->in[0], k, depth, &of));
    c->first = of.first;
    for (int d = 0; d < rank; d++) {
        while (i < from && x->dim[i] == 1)
            i++;
        if (t->dim[d] == 1)
            continue;
        if (i == from || x->dim[i] != t->dim[d])
            return false;
        c->step[d] = of.step[i++];
    }
    return true;
}

/* Does component k of v's last dimension count along the others; if k < 0: does v count along all of its
 * dimensions?  c is zeroed. */
static bool counts(const Rewrite *rw, Val v, int64_t k, int depth, Counts *c)
{
    const Graph *g = rw->g;
    const Node *n = graph_def(g, v);
    if (graph_is_const(g, v)) {
        Tensor t = graph_tensor(g, v);
        return constant_counts(&t, k, c);
    }
    if (!n || depth++ == FORM_DEPTH)
        return false;
    if (n->op == OP_expand)
        return expand_counts(rw, n, k, depth, c);
    if (n->op == OP_reshape)
        return view_counts(rw, n, k, depth, c);
    if (n->op == OP_cast)
        return dtype_size[val_type(g, n->in[0])->dt] <= dtype_size[val_type(g, v)->dt] &&
               !dtype_is_float(val_type(g, n->in[0])->dt) && counts(rw, n->in[0], k, depth, c);
    if (n->op != OP_concat || k < 0 || ((const AxisAttrs *)n->attr)->axis != val_type(g, v)->rank - 1)
        return false;
    for (int i = 0; i < n->nin; i++) {
        const Type *t = val_type(g, n->in[i]);
        if (k < t->dim[t->rank - 1])
            return counts(rw, n->in[i], k, depth, c);
        k -= t->dim[t->rank - 1];
    }
    return false;
}

/* Makes *box run through n numbers from `first` on along dimension d of x. */
static bool box_runs(SliceAttrs *box, const Type *x, int d, int64_t first, int64_t step, int64_t n)
{
    int64_t last = first + (n - 1) * step, behind = first < 0 && last < 0 ? x->dim[d] : 0; /* from the end */
    if (step == 0)
        return false; /* one place, again and again */
    box->start.v[d] = first + behind;
    box->step.v[d] = step;
    box->size.v[d] = n;
    return first + behind >= 0 && last + behind >= 0 && first + behind < x->dim[d] &&
           last + behind < x->dim[d];
}

/* The tuples' components run along axes of the index in order, each along one at most. */
static bool tuples_name(const Rewrite *rw, Val index, const Type *x, int batch, SliceAttrs *box)
{
    const Type *t = val_type(rw->g, index);
    int axes = t->rank - 1, next = batch; /* the axis that the next component may run along */
    for (int k = 0; k < t->dim[axes]; k++) {
        Counts c = {0};
        TRY(counts(rw, index, k, 0, &c));
        while (next < axes && t->dim[next] == 1)
            next++;
        bool runs = next < axes && c.step[next] != 0;
        for (int i = 0; i < axes; i++)
            TRY(c.step[i] == 0 || (runs && i == next));
        TRY(box_runs(box, x, batch + k, c.first, runs ? c.step[next] : 1, runs ? t->dim[next] : 1));
        next += runs;
    }
    for (; next < axes; next++)
        TRY(t->dim[next] == 1);
    return true;
}

/* The number of an element along `axis` depends on its place there alone. */
static bool elements_name(const Rewrite *rw, Val index, const Type *x, int axis, SliceAttrs *box)
{
    Counts c = {0};
    TRY(counts(rw, index, -1, 0, &c));
    for (int d = 0; d < x->rank; d++)
        TRY(c.step[d] == 0 || d == axis);
    int64_t n = box->size.v[axis];
    return box_runs(box, x, axis, c.first, n > 1 ? c.step[axis] : 1, n);
}

bool form_box(const Rewrite *rw, const Node *n, SliceAttrs *box)
{
    const Graph *g = rw->g;
    const Type *x = val_type(g, n->in[0]);
    *box = slice_all(x);
    switch (n->op) {
    case OP_gather_nd:
        return tuples_name(rw, n->in[1], x, (int)((const AxisAttrs *)n->attr)->axis, box);
    case OP_scatter_nd:
        return tuples_name(rw, n->in[1], x, (int)((const ScatterAttrs *)n->attr)->axis, box);
    case OP_gather_elements:
        box->size = ints_of(val_type(g, n->out[0]));
        return elements_name(rw, n->in[1], x, (int)((const ElementsAttrs *)n->attr)->axis, box);
    case OP_scatter_elements:
        box->size = ints_of(val_type(g, n->in[2]));
        return elements_name(rw, n->in[1], x, (int)((const ScatterAttrs *)n->attr)->axis, box);
    default:
        return false;
    }
}

Val rule_box_read(Rewrite *rw, const Node *n)
{
    SliceAttrs box;
    if ((n->op != OP_gather_nd && n->op != OP_gather_elements) || !form_box(rw, n, &box))
        return none();
    Type y = *val_type(rw->g, n->out[0]);
    Val v = build(rw->g, OP_slice, n->name, 1, n->in, &box);
    return build_reshape(rw->g, v, y.rank, y.dim);
}
