/* stack.c -- sums of products as one product of stacked factors: A1' B1 + A2' B2 + ... = [A1; A2; ...]' [B1;
 * B2; ...].
 *
 * A weight that is read in every time step has such a gradient.  Its terms are small products, each of which
 * reads and writes the whole sum; stacked they are one large product that writes it once.  The factors then
 * live until the last of them is there.  Where some are stacked already, such as the gradients of a recurrent
 * layer's gates for the gradient of what it read, that stack is the factor. */
#include "../ir/attrs.h"
#include "rewrite.h"
#include <string.h>

enum { LEAST = 4 }; /* terms that are worth it */

typedef struct {
    const Graph *g;
    const uint32_t *uses; /* per value */
    Val *open;            /* still to be looked at, the next one last */
    Val *left, *right;    /* factors, in order */
    Val *rest;            /* terms that are no such products */
    uint32_t n, nrest;
    uint32_t nvals;       /* of what follows */
    NodeId *stack;        /* per value: a concatenation of rows that reads it in some shape, {0} = none */
    uint32_t *place;      /* and its place there */
    uint32_t *from;       /* per place: the term */
    Val *arranged;
} Terms;

static bool is_sum(const Terms *t, Val v)
{
    const Node *n = graph_def(t->g, v);
    return n && n->op == OP_add && t->uses[v.i] == 1 &&
           type_equal(val_type(t->g, n->in[0]), val_type(t->g, n->in[1]));
}

/* A' B, where stacking moves fewer elements than adding up does. */
static bool is_product(const Terms *t, Val v)
{
    const Node *n = graph_def(t->g, v);
    if (!n || n->op != OP_matmul || t->uses[v.i] != 1)
        return false;
    const MatmulAttrs *at = n->attr;
    const Type *a = val_type(t->g, n->in[0]), *b = val_type(t->g, n->in[1]);
    return at->ta && !at->tb && !at->out && !at->tf32 && a->rank == 2 && b->rank == 2 &&
           a->dim[1] * b->dim[1] > 2 * a->dim[0] * (a->dim[1] + b->dim[1]);
}

/* The terms of the sum that the node ends, in order. */
static void collect(Terms *t, const Node *end)
{
    uint32_t n = 0;
    t->n = t->nrest = 0;
    t->open[n++] = end->in[1];
    t->open[n++] = end->in[0];
    while (n > 0) {
        Val v = t->open[--n];
        const Node *def = graph_def(t->g, v);
        if (is_sum(t, v)) {
            t->open[n++] = def->in[1];
            t->open[n++] = def->in[0];
        } else if (is_product(t, v)) {
            t->left[t->n] = def->in[0];
            t->right[t->n++] = def->in[1];
        } else {
            t->rest[t->nrest++] = v;
        }
    }
}

/* ---- stacks that are there ------------------------------------------------------------------- */

/* What has the same elements in the shape in which they were made; {0}: in this pass. */
static Val unshaped(const Terms *t, Val v)
{
    for (const Node *n = graph_def(t->g, v); n && n->op == OP_reshape; n = graph_def(t->g, v))
        v = n->in[0];
    return v.i < t->nvals ? v : none();
}

/* Do the elements of its operands lie one behind the other in its result? */
static bool stacks_rows(const Graph *g, const Node *n)
{
    bool is = n->op == OP_concat;
    for (int i = 0; is && i < ((const AxisAttrs *)n->attr)->axis; i++)
        is = val_type(g, n->out[0])->dim[i] == 1;
    return is;
}

static void note_stack(Terms *t, NodeId id)
{
    const Node *n = &t->g->nodes[id.i];
    for (int i = 0; stacks_rows(t->g, n) && i < n->nin; i++) {
        Val v = unshaped(t, n->in[i]);
        t->stack[v.i] = id;
        t->place[v.i] = (uint32_t)i;
    }
    t->stack[0].i = 0;
}

static void arrange(const Terms *t, Val *factor)
{
    for (uint32_t i = 0; i < t->n; i++)
        t->arranged[i] = factor[t->from[i]];
    memcpy(factor, t->arranged, t->n * sizeof *factor);
}

/* Where these factors are stacked already, in whatever order, the terms follow it: then this is the stack. */
static Val follow_stack(const Terms *t, const Val *factor)
{
    enum { NOBODY = UINT32_MAX };
    NodeId id = t->stack[unshaped(t, factor[0]).i];
    const Node *n = &t->g->nodes[id.i];
    if (!id.i || n->nin != (int)t->n)
        return none();
    for (uint32_t i = 0; i < t->n; i++)
        t->from[i] = NOBODY;
    for (uint32_t i = 0; i < t->n; i++) {
        Val v = unshaped(t, factor[i]);
        if (t->stack[v.i].i != id.i || t->from[t->place[v.i]] != NOBODY)
            return none();
        t->from[t->place[v.i]] = i;
    }
    arrange(t, t->left);
    arrange(t, t->right);
    return n->out[0];
}

/* ---- the rewrite ------------------------------------------------------------------------------- */

static Val stack_rows(Graph *g, const Terms *t, const Val *factor, Val stack)
{
    int64_t cols = val_type(g, factor[0])->dim[1];
    return stack.i ? build_reshape(g, stack, 2, (int64_t[]){type_count(val_type(g, stack)) / cols, cols})
                   : build_concat_many(g, (int)t->n, factor, 0);
}

/* In the place of that sum. */
static Val stacked(Graph *g, const Terms *t)
{
    Val left = follow_stack(t, t->left), right = left.i ? none() : follow_stack(t, t->right);
    right = stack_rows(g, t, t->right, right);
    Val sum = build_matmul(g, stack_rows(g, t, t->left, left), right, true, false);
    for (uint32_t i = 0; i < t->nrest; i++)
        sum = build(g, OP_add, NULL, 2, (Val[]){sum, t->rest[i]}, NULL);
    return sum;
}

/* Per value: does one addition read it, and is it a term there? */
static bool *find_inner(const Graph *g, const Terms *t, Arena *tmp)
{
    bool *inner = NEW(tmp, bool, g->nvals);
    for (uint32_t k = 0; k < g->norder; k++) {
        const Node *n = &g->nodes[g->order[k].i];
        bool alike = n->op == OP_add && type_equal(val_type(g, n->in[0]), val_type(g, n->in[1]));
        for (int i = 0; i < n->nin && alike; i++)
            inner[n->in[i].i] = is_sum(t, n->in[i]);
    }
    return inner;
}

/* Then its terms are in t. */
static bool ends_sum(Terms *t, const bool *inner, const Node *n)
{
    if (n->op != OP_add || inner[n->out[0].i] ||
        !type_equal(val_type(t->g, n->in[0]), val_type(t->g, n->in[1])))
        return false;
    collect(t, n);
    return t->n >= LEAST;
}

bool pass_stack(Graph *g, PassCtx *cx)
{
    uint32_t n = g->norder, nvals = g->nvals;
    Terms t = {.g = g, .uses = graph_uses(g, cx->tmp)};
    t.open = NEW(cx->tmp, Val, n + 2);
    t.left = NEW(cx->tmp, Val, n + 2);
    t.right = NEW(cx->tmp, Val, n + 2);
    t.rest = NEW(cx->tmp, Val, n + 2);
    t.nvals = nvals;
    t.stack = NEW(cx->tmp, NodeId, nvals);
    t.place = NEW(cx->tmp, uint32_t, nvals);
    t.from = NEW(cx->tmp, uint32_t, n + 2);
    t.arranged = NEW(cx->tmp, Val, n + 2);
    const bool *inner = find_inner(g, &t, cx->tmp);
    Val *as = NEW(cx->tmp, Val, nvals);
    const NodeId *old = graph_take_order(g, cx->tmp);
    for (uint32_t k = 0; k < n && !g->diag->failed; k++) {
        Node *node = &g->nodes[old[k].i];
        for (int i = 0; i < node->nin; i++)
            node->in[i] = rewrite_as(as, node->in[i]);
        if (ends_sum(&t, inner, node)) {
            Val out = node->out[0];
            as[out.i] = stacked(g, &t);
            rewrite_name(g, out, as[out.i]);
            cx->changed = true;
        } else {
            graph_schedule(g, old[k]);
            note_stack(&t, old[k]);
        }
    }
    rewrite_ends(g, as);
    graph_dce(g, cx->tmp);
    return !g->diag->failed;
}
