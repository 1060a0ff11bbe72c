/* rows.c -- rows that no slice reads are not computed.
 *
 * A loss on all tokens but the last (z[:, :-1]) and a classifier on the first read some rows of a product.
 * Products, norms and pointwise operators make each row of their operands' same row: the slice is taken of
 * the operands instead, as far back as that makes fewer bytes, and what lies between has these rows alone, as
 * its gradients have.
 *
 * Rows are the positions in a value's first dimensions, of which the slice cuts the last.  A value has them
 * as these dimensions, or joined in one. */
#include "../ir/attrs.h"
#include "rewrite.h"
#include <string.h>

enum { DEPTH = 64 }; /* most operators between a slice and where it is taken */
typedef struct {
    Rewrite *rw;
    Type whole; /* the rows' dimensions */
    SliceAttrs at;
    int64_t all, some; /* how many there are, and how many of them are read */
} Rows;

/* In how many dimensions t has the rows; 0: it has others. */
static int row_dims(const Rows *r, const Type *t)
{
    if (t->rank > 0 && t->dim[0] == r->all)
        return 1;
    for (int d = 0; d < r->whole.rank; d++)
        if (d >= t->rank || t->dim[d] != r->whole.dim[d])
            return 0;
    return r->whole.rank;
}

/* Has an operand of a pointwise operator one row for all, if it has not theirs? */
static bool one_row(const Type *t, const Type *y, int rows)
{
    for (int i = 0; i < t->rank; i++)
        if (i + y->rank - t->rank < rows && t->dim[i] != 1)
            return false;
    return true;
}

static bool pointwise_rows(const Rows *r, const Node *n, const Type *y, int rows)
{
    for (int i = 0; i < n->nin; i++) {
        const Type *t = val_type(r->rw->g, n->in[i]);
        if (!(t->rank == y->rank && row_dims(r, t) == rows) && !one_row(t, y, rows))
            return false;
    }
    return true;
}

/* The node that makes v, for v's rows alone, of rows of its operands; NULL: there is none. */
static const Node *made_by_rows(const Rows *r, Val v, int depth)
{
    const Graph *g = r->rw->g;
    const Node *n = graph_def(g, v);
    const Type *y = val_type(g, v);
    int rows = row_dims(r, y);
    if (!n || depth == DEPTH || !rewrite_once(r->rw, v) || node_def(n)->traits & (OPT_ONCE | OPT_RANDOM))
        return NULL;
    for (int i = 0; i < n->nout; i++)
        if (n->out[i].i != v.i && rewrite_uses(r->rw, n->out[i]) > 0)
            return NULL;
    if (node_def(n)->traits & OPT_POINTWISE)
        return pointwise_rows(r, n, y, rows) ? n : NULL;
    const Type *x = n->nin > 0 ? val_type(g, n->in[0]) : NULL;
    switch (n->op) {
    case OP_reshape:
        return row_dims(r, x) > 0 ? n : NULL;
    case OP_matmul:
        return val_type(g, n->in[1])->rank == 2 && !((const MatmulAttrs *)n->attr)->ta && rows < y->rank &&
                       x->rank == y->rank && row_dims(r, x) == rows ? n : NULL;
    case OP_layer_norm:
    case OP_rms_norm:
        return ((const NormAttrs *)n->attr)->axis >= rows ? n : NULL;
    default:
        return NULL;
    }
}

static int64_t bytes_read(const Rows *r, Val v)
{
    return type_bytes(val_type(r->rw->g, v)) / r->all * r->some;
}

/* Is operand i of a node that makes y one that has the rows, of which it takes those that are read? */
static bool has_rows(const Rows *r, const Node *n, int i, Val y)
{
    const Graph *g = r->rw->g;
    if (!(node_def(n)->traits & OPT_POINTWISE))
        return i == 0;
    const Type *t = val_type(g, n->in[i]), *whole = val_type(g, y);
    return t->rank == whole->rank && row_dims(r, t) == row_dims(r, whole);
}

static int64_t bytes_made(const Rows *r, Val v, int depth);

/* Bytes made more where the slice is taken of the operands of n, which makes v. */
static int64_t bytes_before(const Rows *r, const Node *n, Val v, int depth)
{
    int64_t sum = n->op == OP_reshape ? 0 : bytes_read(r, v) - type_bytes(val_type(r->rw->g, v));
    for (int i = 0; i < n->nin; i++)
        sum += has_rows(r, n, i, v) ? bytes_made(r, n->in[i], depth + 1) : 0;
    return sum;
}

/* The least bytes made more to have the rows of v that are read. */
static int64_t bytes_made(const Rows *r, Val v, int depth)
{
    const Node *n = made_by_rows(r, v, depth);
    int64_t here = bytes_read(r, v), before = n ? bytes_before(r, n, v, depth) : here;
    return before < here ? before : here;
}

/* v with n dimensions of rows in place of its own. */
static Val with_rows(Graph *g, Val v, int rows, int n, const int64_t *dim)
{
    const Type t = *val_type(g, v);
    int64_t all[MAX_RANK];
    memcpy(all, dim, (size_t)n * sizeof *dim);
    memcpy(all + n, t.dim + rows, (size_t)(t.rank - rows) * sizeof *dim);
    return build_reshape(g, v, n + t.rank - rows, all);
}

static Val slice_rows(const Rows *r, Val v, int rows)
{
    Graph *g = r->rw->g;
    v = with_rows(g, v, rows, r->whole.rank, r->whole.dim);
    SliceAttrs at = slice_all(val_type(g, v));
    for (int d = 0; d < r->whole.rank; d++) {
        at.start.v[d] = r->at.start.v[d];
        at.step.v[d] = r->at.step.v[d];
        at.size.v[d] = r->at.size.v[d];
    }
    v = build(g, OP_slice, NULL, 1, &v, &at);
    return rows == r->whole.rank ? v : with_rows(g, v, r->whole.rank, 1, &r->some);
}

/* The rows of v that are read. */
static Val read_rows(const Rows *r, Val v, int depth)
{
    Graph *g = r->rw->g;
    const Node *n = made_by_rows(r, v, depth);
    const Type y = *val_type(g, v);
    int rows = row_dims(r, &y);
    if (!n || bytes_before(r, n, v, depth) >= bytes_read(r, v))
        return slice_rows(r, v, rows);
    Val *in = NEW(g->arena, Val, n->nin);
    for (int i = 0; i < n->nin; i++)
        in[i] = has_rows(r, n, i, v) ? read_rows(r, n->in[i], depth + 1) : n->in[i];
    if (n->op != OP_reshape)
        return build(g, n->op, n->name, n->nin, in, n->attr);
    Type t = y;
    memcpy(t.dim, rows == r->whole.rank ? r->at.size.v : &r->some, (size_t)rows * sizeof *t.dim);
    return build_reshape(g, in[0], t.rank, t.dim);
}

static Val rule_rows(Rewrite *rw, const Node *n)
{
    if (n->op != OP_slice)
        return none();
    const Type *x = val_type(rw->g, n->in[0]), *y = val_type(rw->g, n->out[0]);
    Rows r = {.rw = rw, .whole = *x, .at = *(const SliceAttrs *)n->attr, .all = 1, .some = 1};
    r.whole.rank = 0;
    for (int d = 0; d < x->rank; d++)
        if (y->dim[d] != x->dim[d])
            r.whole.rank = d + 1;
    for (int d = 0; d < r.whole.rank; d++) {
        r.all *= x->dim[d];
        r.some *= y->dim[d];
    }
    if (r.whole.rank == 0 || type_count(y) == 0 || bytes_made(&r, n->in[0], 0) >= bytes_read(&r, n->in[0]))
        return none();
    return read_rows(&r, n->in[0], 0);
}

bool pass_rows(Graph *g, PassCtx *cx)
{
    static Rule *const rules[] = {rule_rows, NULL};
    return rewrite_run(g, cx->tmp, rules, true, &cx->changed);
}
