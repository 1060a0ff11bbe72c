/* recognise_writes.c -- assigned slices, x[:, 1:] = u, as concatenations.
 *
 * PyTorch's exporters write them as scatters whose numbers are known and name a box (recognise_box.c).  A
 * slice of a concatenation is read from the part that it lies in, and the gradient of a part is a slice. */
#include "recognise.h"

typedef struct {
    Val *v;
    uint32_t n, room;
} Parts;

/* Where n cuts dimension `axis` alone, without steps: the first row that it leaves, else -1. */
static int64_t rows_cut(const Graph *g, const Node *n, int axis)
{
    const SliceAttrs *at = n->attr;
    const Type *x = val_type(g, n->in[0]);
    bool fits = ints_are(&at->step, 1);
    for (int d = 0; fits && d < x->rank; d++)
        fits = d == axis || at->size.v[d] == x->dim[d];
    return fits ? at->start.v[axis] : -1;
}

/* Appends what rows [from, to) of x consist of. */
static void append_rows(Graph *g, Parts *p, Val x, int axis, int64_t from, int64_t to)
{
    if (from >= to)
        return;
    const Node *n = graph_def(g, x);
    if (n && n->op == OP_concat && ((const AxisAttrs *)n->attr)->axis == axis) {
        for (int i = 0; i < n->nin && to > 0; i++) {
            int64_t rows = val_type(g, n->in[i])->dim[axis];
            append_rows(g, p, n->in[i], axis, from > 0 ? from : 0, to < rows ? to : rows);
            from -= rows;
            to -= rows;
        }
        return;
    }
    int64_t cut = n && n->op == OP_slice ? rows_cut(g, n, axis) : -1;
    if (cut >= 0) {
        append_rows(g, p, n->in[0], axis, from + cut, to + cut);
        return;
    }
    p->v = arena_grow(g->arena, p->v, p->n, &p->room, sizeof *p->v);
    p->v[p->n++] = build_slice(g, x, axis, from, to - from);
}

/* The last dimension up to `axis` in which u is smaller than x, else -1. */
static int cut_axis(const Graph *g, Val x, Val u, int axis)
{
    while (axis >= 0 && val_type(g, u)->dim[axis] == val_type(g, x)->dim[axis])
        axis--;
    return axis;
}

/* u in place of the box of x that begins at `first`: parts along the last dimension that it cuts, up to
 * `axis`, one of which is u in place of a box of x's rows there. */
static Val written(Graph *g, Val x, Val u, int axis, const int64_t *first)
{
    axis = cut_axis(g, x, u, axis);
    if (axis < 0)
        return u;
    int64_t from = first[axis], to = from + val_type(g, u)->dim[axis];
    Parts rows = {0}, p = {0};
    if (cut_axis(g, x, u, axis - 1) >= 0) {
        append_rows(g, &rows, x, axis, from, to);
        u = written(g, build_concat_many(g, (int)rows.n, rows.v, axis), u, axis - 1, first);
    }
    append_rows(g, &p, x, axis, 0, from);
    append_rows(g, &p, u, axis, 0, to - from);
    append_rows(g, &p, x, axis, to, val_type(g, x)->dim[axis]);
    return build_concat_many(g, (int)p.n, p.v, axis);
}

/* ---- rows are written to a transpose, which is transposed back ------------------------------------- */

/* What v is a transpose of; v's dimension i is its dimension perm[i]. */
static Val untransposed(const Rewrite *rw, Val v, int *perm)
{
    int rank = val_type(rw->g, v)->rank;
    for (int i = 0; i < rank; i++)
        perm[i] = i;
    for (const Node *n; (n = rewrite_def(rw, v, OP_transpose)) != NULL; v = n->in[0])
        for (int i = 0; i < rank; i++)
            perm[i] = (int)((const TransposeAttrs *)n->attr)->perm.v[perm[i]];
    return v;
}

/* The value whose transpose by `perm` is v's by v_perm. */
static Val transposed_to(Graph *g, Val v, const int *v_perm, const int *perm)
{
    int rank = val_type(g, v)->rank, by[MAX_RANK];
    for (int i = 0; i < rank; i++)
        by[perm[i]] = v_perm[i];
    return build_transpose(g, v, by);
}

Val rule_box_written(Rewrite *rw, const Node *n)
{
    Graph *g = rw->g;
    const ScatterAttrs *at = n->attr;
    SliceAttrs box;
    if ((n->op != OP_scatter_nd && n->op != OP_scatter_elements) || at->reduction != SCATTER_SET ||
        !form_box(rw, n, &box) || !ints_are(&box.step, 1))
        return none();
    int x_perm[MAX_RANK], u_perm[MAX_RANK];
    int64_t first[MAX_RANK];
    Val to = untransposed(rw, n->in[0], x_perm);
    Val u = untransposed(rw, build_reshape(g, n->in[2], box.size.n, box.size.v), u_perm);
    const int *perm = to.i != n->in[0].i ? x_perm : u_perm;
    for (int i = 0; i < box.start.n; i++)
        first[perm[i]] = box.start.v[i];
    to = transposed_to(g, to, x_perm, perm);
    u = transposed_to(g, u, u_perm, perm);
    return build_transpose(g, written(g, to, u, box.start.n - 1, first), perm);
}
