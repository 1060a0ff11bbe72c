/* recognise_writes.c -- assigned slices, x[:, 1:] = u, as concatenations.
 *
 * PyTorch's exporter writes them as scatters of rows whose numbers are known.  A slice of a concatenation is
 * read from the part that it lies in, and the gradient of a part is a slice. */
#include "recognise.h"

typedef struct {
    Val *v; /* NULL: parts are only counted */
    int n;
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
    if (p->v)
        p->v[p->n] = build_slice(g, x, axis, from, to - from);
    p->n++;
}

/* Appends what x consists of when u takes the place of its rows from `first` on. */
static void append_written(Graph *g, Parts *p, Val x, Val u, int axis, int64_t first)
{
    int64_t rows = val_type(g, u)->dim[axis];
    append_rows(g, p, x, axis, 0, first);
    append_rows(g, p, u, axis, 0, rows);
    append_rows(g, p, x, axis, first + rows, val_type(g, x)->dim[axis]);
}

static Val written(Graph *g, Val x, Val u, int axis, int64_t first)
{
    Parts p = {0};
    append_written(g, &p, x, u, axis, first);
    p = (Parts){.v = NEW(g->arena, Val, p.n)};
    append_written(g, &p, x, u, axis, first);
    return build_concat_many(g, p.n, p.v, axis);
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

/* Are these the numbers first, first + 1, ... of `rows` rows, the same in every batch? */
static bool are_consecutive(const Rewrite *rw, Val index, int64_t rows, int64_t *first)
{
    double one;
    if (rows == 1 && rewrite_scalar(rw, index, &one)) {
        *first = (int64_t)one;
        return true;
    }
    if (rows < 1 || !graph_is_const(rw->g, index))
        return false;
    Tensor t = graph_tensor(rw->g, index);
    int64_t count = type_count(&t.type);
    *first = count ? tensor_i(&t, 0) : 0;
    bool fits = count > 0;
    for (int64_t k = 0; fits && k < count; k++)
        fits = tensor_i(&t, k) == *first + k % rows;
    return fits;
}

Val rule_rows_written(Rewrite *rw, const Node *n)
{
    Graph *g = rw->g;
    const ScatterAttrs *at = n->attr;
    if (n->op != OP_scatter_nd || at->reduction != SCATTER_SET)
        return none();
    const Type *x = val_type(g, n->in[0]), *index = val_type(g, n->in[1]);
    int axis = (int)at->axis;
    int64_t first, rows = index->dim[axis];
    if (index->rank != axis + 2 || index->dim[axis + 1] != 1 || !are_consecutive(rw, n->in[1], rows, &first))
        return none();
    first += first < 0 ? x->dim[axis] : 0;
    if (first < 0 || first + rows > x->dim[axis])
        return none();
    int x_perm[MAX_RANK], u_perm[MAX_RANK];
    Val to = untransposed(rw, n->in[0], x_perm), u = untransposed(rw, n->in[2], u_perm);
    const int *perm = to.i != n->in[0].i ? x_perm : u_perm;
    to = transposed_to(g, to, x_perm, perm);
    u = transposed_to(g, u, u_perm, perm);
    return build_transpose(g, written(g, to, u, perm[axis], first), perm);
}
