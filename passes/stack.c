/* stack.c -- sums of products as one product of stacked factors: A1' B1 + A2' B2 + ... = [A1; A2; ...]' [B1;
 * B2; ...].
 *
 * A weight that is read in every time step has such a gradient.  Its terms are small products, each of which
 * reads and writes the whole sum; stacked they are one large product that writes it once.  The factors then
 * live until the last of them is there. */
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

/* In the place of that sum. */
static Val stacked(Graph *g, const Terms *t)
{
    Val sum = build_matmul(g, build_concat_many(g, (int)t->n, t->left, 0),
                           build_concat_many(g, (int)t->n, t->right, 0), true, false);
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
        }
    }
    rewrite_ends(g, as);
    graph_dce(g, cx->tmp);
    return !g->diag->failed;
}
