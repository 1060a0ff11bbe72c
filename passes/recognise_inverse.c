/* recognise_inverse.c -- inverses of triangular matrices, written as forward substitution.
 *
 * Gated delta nets (Qwen3-Next, Kimi Linear) export, for strictly lower triangular matrices x,
 *     for i in 1 .. n-1:  x[i, :i] += x[i, :i] @ x[:i, :i]
 * which ends with (I - x)^-1 - I.  Each step would save its operands, a third of n^3 numbers in all. */
#include "recognise.h"

static int64_t dim_from_end(const Type *t, int k) { return t->dim[t->rank - k]; }

/* Is b's shape a's without one dimension, which is 1: the last but one? */
static bool drops_row(const Type *a, const Type *b)
{
    bool fits = a->rank == b->rank + 1 && dim_from_end(a, 2) == 1 && dim_from_end(a, 1) == dim_from_end(b, 1);
    for (int i = 0; fits && i < b->rank - 1; i++)
        fits = a->dim[i] == b->dim[i];
    return fits;
}

/* Is n a slice of the last two dimensions, or without `rows` of the last one?  Adds where it begins to *row
 * and *column. */
static bool slices_ends(const Node *n, const Type *x, bool rows, int64_t *row, int64_t *column)
{
    const SliceAttrs *at = n->attr;
    bool fits = ints_are(&at->step, 1);
    for (int i = 0; fits && i < x->rank - (rows ? 2 : 1); i++)
        fits = at->size.v[i] == x->dim[i];
    *column += at->start.v[x->rank - 1];
    *row += rows ? at->start.v[x->rank - 2] : 0;
    return fits;
}

/* Is v a window of the matrices m that begins at (row, 0)? */
static bool is_window(const Rewrite *rw, Val v, Val m, int64_t row)
{
    const Graph *g = rw->g;
    int rank = val_type(g, m)->rank;
    int64_t r = 0, c = 0;
    for (const Node *n; v.i != m.i; v = n->in[0]) {
        n = graph_def(g, v);
        const Type *t = val_type(g, v), *x = n ? val_type(g, n->in[0]) : NULL;
        bool view = n && n->op == OP_reshape && (drops_row(x, t) || drops_row(t, x));
        bool slice = n && n->op == OP_slice && (x->rank == rank || x->rank == rank - 1);
        if (!view && !(slice && slices_ends(n, x, x->rank == rank, &r, &c)))
            return false;
    }
    return r == row && c == 0;
}

/* v with its first and last dimensions exchanged, if that is no new node: the operand of a transpose, or v
 * itself if all elements stay in their places. */
static Val exchanged(const Rewrite *rw, Val v)
{
    const Type *t = val_type(rw->g, v);
    const Node *n = rewrite_def(rw, v, OP_transpose);
    if (t->rank < 2 || (!n && (t->dim[0] != 1 || dim_from_end(t, 1) != 1)))
        return none();
    const Ints *perm = n ? &((const TransposeAttrs *)n->attr)->perm : NULL;
    bool fits = !n || (perm->v[0] == t->rank - 1 && perm->v[t->rank - 1] == 0);
    for (int i = 1; n && fits && i < t->rank - 1; i++)
        fits = perm->v[i] == i;
    return !fits ? none() : n ? n->in[0] : v;
}

/* The scatter if v = x with rows, or columns, overwritten at constant indices first, first + step, ... */
static const Node *overwritten(const Rewrite *rw, Val v, int axis, int64_t first, int64_t step)
{
    const Node *n = rewrite_def(rw, v, OP_scatter_nd);
    const ScatterAttrs *at = n ? n->attr : NULL;
    bool fits = n && at->axis == axis && at->reduction == SCATTER_SET &&
                dim_from_end(val_type(rw->g, n->in[1]), 1) == 1 && form_counts(rw, n->in[1], first, step);
    return fits ? n : NULL;
}

/* Is v = row @ sub, with sub columns [0, i) of as many rows of m, written as the sum of a product? */
static bool is_row_product(const Rewrite *rw, Val v, Val row, Val m, int64_t i)
{
    const Graph *g = rw->g;
    const Node *s = rewrite_def(rw, v, OP_reduce_sum), *p = s ? rewrite_def(rw, s->in[0], OP_mul) : NULL;
    int rank = val_type(g, m)->rank;
    if (!p || val_type(g, s->in[0])->rank != rank ||
        axes_mask(&((const ReduceAttrs *)s->attr)->axes) != 1u << (rank - 2))
        return false;
    for (int k = 0; k < 2; k++) {
        const Node *u = rewrite_def(rw, p->in[k], OP_reshape);
        const Type *t = val_type(g, p->in[k]), *sub = val_type(g, p->in[1 - k]);
        bool column = u && u->in[0].i == row.i && t->rank == rank && dim_from_end(t, 1) == 1;
        bool square = sub->rank == rank && dim_from_end(sub, 1) == i && dim_from_end(sub, 2) == i;
        if (column && square && dim_from_end(t, 2) == i && is_window(rw, p->in[1 - k], m, 0))
            return true;
    }
    return false;
}

/* The matrices before step i if v is the matrices after it; {0}: it is no such step. */
static Val before_step(const Rewrite *rw, Val v, int64_t i)
{
    const Graph *g = rw->g;
    int rank = val_type(g, v)->rank;
    const Node *w = overwritten(rw, v, rank - 2, i, 0);
    const Node *view = w ? rewrite_def(rw, w->in[2], OP_reshape) : NULL;
    if (!view || !drops_row(val_type(g, w->in[2]), val_type(g, view->in[0])))
        return none();
    Val m = w->in[0], columns = exchanged(rw, view->in[0]); /* row i is written as rows of the transpose */
    const Node *c = columns.i ? overwritten(rw, columns, 0, 0, 1) : NULL;
    Val old = c ? exchanged(rw, c->in[0]) : none(), new = c ? exchanged(rw, c->in[2]) : none();
    const Node *sum = new.i ? rewrite_def(rw, new, OP_add) : NULL;
    bool fits = sum && old.i && dim_from_end(val_type(g, new), 1) == i && is_window(rw, old, m, i);
    for (int k = 0; fits && k < 2; k++)
        if (is_window(rw, sum->in[k], m, i) && is_row_product(rw, sum->in[1 - k], sum->in[k], m, i))
            return m;
    return none();
}

/* Is v 0 on and above the diagonal? */
static bool is_strictly_lower(const Rewrite *rw, Val v)
{
    const Node *t = rewrite_def(rw, v, OP_trilu), *n = rewrite_def(rw, v, OP_neg);
    const Node *w = rewrite_def(rw, v, OP_where);
    if (t)
        return !((const TriluAttrs *)t->attr)->upper && ((const TriluAttrs *)t->attr)->k <= -1;
    if (n || !w)
        return n && is_strictly_lower(rw, n->in[0]);
    double zero;
    const Type *mask = val_type(rw->g, w->in[0]);
    int64_t side = dim_from_end(val_type(rw->g, v), 1);
    bool hides = rewrite_scalar(rw, w->in[1], &zero) && zero == 0 && graph_is_const(rw->g, w->in[0]) &&
                 type_count(mask) == side * side && mask->rank > 1 && dim_from_end(mask, 2) == side;
    for (int64_t k = 0; hides && k < side * side; k++) {
        Tensor values = graph_tensor(rw->g, w->in[0]);
        hides = k / side > k % side || tensor_f(&values, k) != 0;
    }
    return hides;
}

static Val identity(Graph *g, DType dt, int64_t side)
{
    double *one = NEW(g->arena, double, side * side);
    for (int64_t i = 0; i < side; i++)
        one[i * (side + 1)] = 1;
    Val v = graph_const(g, "identity", type_make(DT_F64, 2, (int64_t[]){side, side}), one);
    return build_cast(g, v, dt);
}

Val rule_substitution(Rewrite *rw, const Node *n)
{
    const Type *t = val_type(rw->g, n->out[0]);
    if (n->op != OP_scatter_nd || t->rank < 3 || dim_from_end(t, 1) != dim_from_end(t, 2))
        return none();
    int64_t side = dim_from_end(t, 1);
    Val m = n->out[0];
    for (int64_t i = side - 1; i > 0 && m.i; i--)
        m = before_step(rw, m, i);
    if (!m.i || side < 2 || !is_strictly_lower(rw, m))
        return none();
    Val y = build1(rw->g, OP_unit_lower_inverse, m);
    return build2(rw->g, OP_sub, y, identity(rw->g, t->dt, side));
}

/* (y - c) + c = y for such an inverse y, whose diagonal is exactly 1, and the identity c */
Val rule_unit_diagonal(Rewrite *rw, const Node *n)
{
    for (int k = 0; n->op == OP_add && k < 2; k++) {
        const Node *s = rewrite_def(rw, n->in[k], OP_sub);
        Val c = s && rewrite_def(rw, s->in[0], OP_unit_lower_inverse) ? s->in[1] : none();
        if (!c.i || !graph_is_const(rw->g, n->in[1 - k]) ||
            !type_equal(val_type(rw->g, c), val_type(rw->g, n->in[1 - k])))
            continue;
        Tensor a = graph_tensor(rw->g, c), b = graph_tensor(rw->g, n->in[1 - k]);
        bool same = true;
        for (int64_t i = 0; same && i < type_count(&a.type); i++)
            same = tensor_f(&a, i) == tensor_f(&b, i);
        if (same)
            return s->in[0];
    }
    return none();
}
