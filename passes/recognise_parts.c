/* recognise_parts.c -- what is computed on consecutive rows, one after the other, is computed at once.
 *
 *   concat(f(x[0:k]), f(x[k:2k]), ...) along the first dimension is f of x viewed as [n, k, ...]
 *
 * torch.export writes torch.nn.EmbeddingBag as a loop over bags: unrolled, that is a few kernels for each. */
#include "recognise.h"
#include <string.h>

/* The operators of parts that are alike: parts differ in operands alone. */
static const Node *alike(const Rewrite *rw, const Val *part, int n)
{
    const Node *first = graph_def(rw->g, part[0]);
    for (int i = 1; first && i < n; i++) {
        const Node *p = graph_def(rw->g, part[i]);
        if (!p || p->op != first->op || p->nin != first->nin || p->out[0].i != part[i].i ||
            !type_equal(val_type(rw->g, part[i]), val_type(rw->g, part[0])) ||
            (p->op != OP_slice &&
             (!rewrite_once(rw, part[i]) || memcmp(p->attr, first->attr, node_def(p)->attr_size) != 0)))
            return NULL;
    }
    return first && first->out[0].i == part[0].i ? first : NULL;
}

/* Operand k of p; of a sum or product the other one where that is what `first` has in its place. */
static Val operand_like(const Node *p, const Node *first, int k)
{
    bool either = p->op == OP_add || p->op == OP_mul;
    bool turned = either && (p->in[0].i == first->in[1].i || p->in[1].i == first->in[0].i);
    return p->in[turned ? 1 - k : k];
}

/* v viewed as n parts of type t, the first dimension their number. */
static Val as_parts(Graph *g, Val v, int n, const Type *t)
{
    int64_t dim[MAX_RANK] = {n};
    memcpy(dim + 1, t->dim, (size_t)t->rank * sizeof *dim);
    return build_reshape(g, v, t->rank + 1, dim);
}

/* Slices of k rows that follow each other: all these rows. */
static Val rows_of_slices(Rewrite *rw, const Val *part, int n)
{
    Graph *g = rw->g;
    const Node *first = graph_def(g, part[0]);
    SliceAttrs all = *(const SliceAttrs *)first->attr;
    const Type *t = val_type(g, part[0]), *x = val_type(g, first->in[0]);
    int64_t k = t->rank ? t->dim[0] : 0;
    if (k == 0)
        return none();
    for (int i = 0; i < n; i++) {
        const Node *p = graph_def(g, part[i]);
        SliceAttrs at = *(const SliceAttrs *)p->attr;
        at.start.v[0] -= i * k;
        if (p->in[0].i != first->in[0].i || at.step.v[0] != 1 || memcmp(&at, first->attr, sizeof at) != 0)
            return none();
    }
    all.size.v[0] = n * k;
    bool whole = true;
    for (int d = 0; d < x->rank; d++)
        whole &= all.size.v[d] == x->dim[d] && all.step.v[d] == 1;
    return as_parts(g, whole ? first->in[0] : build(g, OP_slice, first->name, 1, first->in, &all), n, t);
}

/* A value of one more dimension, the first, whose rows are the parts; {0}: they are not computed alike. */
static Val at_once(Rewrite *rw, const Val *part, int n, int depth)
{
    Graph *g = rw->g;
    const Node *first = depth < FORM_DEPTH ? alike(rw, part, n) : NULL;
    const Type *y = val_type(g, part[0]);
    if (!first || y->rank == MAX_RANK)
        return none();
    if (first->op == OP_slice)
        return rows_of_slices(rw, part, n);
    bool pointwise = (node_def(first)->traits & (OPT_POINTWISE | OPT_RANDOM)) == OPT_POINTWISE;
    bool reduces = first->op == OP_reduce_sum || first->op == OP_reduce_max || first->op == OP_reduce_min;
    if (!pointwise && !reduces && first->op != OP_reshape)
        return none();
    Val in[3] = {{0}}, *operand = NEW(g->arena, Val, n);
    bool differs = false;
    for (int k = 0; k < first->nin; k++) {
        bool same = true;
        for (int i = 0; i < n; i++) {
            operand[i] = operand_like(graph_def(g, part[i]), first, k);
            same &= operand[i].i == operand[0].i;
        }
        bool spread = pointwise && val_type(g, operand[0])->rank < y->rank;
        in[k] = same ? operand[0] : spread ? none() : at_once(rw, operand, n, depth + 1);
        if (!in[k].i)
            return none();
        differs |= !same;
    }
    if (!differs)
        return none();
    if (first->op == OP_reshape)
        return as_parts(g, in[0], n, y);
    if (pointwise)
        return build(g, first->op, first->name, first->nin, in, first->attr);
    ReduceAttrs at = *(const ReduceAttrs *)first->attr;
    for (int i = 0; i < at.axes.n; i++)
        at.axes.v[i]++;
    return build(g, first->op, first->name, 1, in, &at);
}

/* The operator of a part. */
static Op made_by(const Graph *g, Val v)
{
    const Node *n = graph_def(g, v);
    return n ? n->op : OP_NONE;
}

/* Runs of parts that are alike become one part each; the last bag is often written in another way. */
Val rule_parts_alike(Rewrite *rw, const Node *n)
{
    Graph *g = rw->g;
    if (n->op != OP_concat || ((const AxisAttrs *)n->attr)->axis != 0)
        return none();
    Val *part = NEW(g->arena, Val, n->nin);
    int parts = 0;
    for (int i = 0, end; i < n->nin; i = end) {
        end = i + 1;
        while (end < n->nin && made_by(g, n->in[end]) == made_by(g, n->in[i]))
            end++;
        Val run = end - i > 1 ? at_once(rw, n->in + i, end - i, 0) : none();
        Type t = *val_type(g, n->in[i]);
        t.dim[0] *= end - i;
        if (run.i)
            part[parts++] = build_reshape(g, run, t.rank, t.dim);
        for (int k = i; !run.i && k < end; k++)
            part[parts++] = n->in[k];
    }
    return parts < n->nin ? build_concat(g, parts, part, 0) : none();
}
