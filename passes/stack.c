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
    Val *left, *right, *rest;
    int n, nrest;
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

static int count_products(const Terms *t, Val v)
{
    const Node *n = graph_def(t->g, v);
    return is_sum(t, v) ? count_products(t, n->in[0]) + count_products(t, n->in[1]) : is_product(t, v);
}

/* The terms of v, in order; nrest counts those that are no such products. */
static void collect(Terms *t, Val v)
{
    const Node *n = graph_def(t->g, v);
    if (is_sum(t, v)) {
        collect(t, n->in[0]);
        collect(t, n->in[1]);
    } else if (is_product(t, v)) {
        t->left[t->n] = n->in[0];
        t->right[t->n++] = n->in[1];
    } else {
        t->rest[t->nrest++] = v;
    }
}

static int count_terms(const Terms *t, Val v)
{
    const Node *n = graph_def(t->g, v);
    return is_sum(t, v) ? count_terms(t, n->in[0]) + count_terms(t, n->in[1]) : 1;
}

/* In the place of the sum that the node ends. */
static Val stacked(Graph *g, Terms t, const Node *n, Arena *tmp)
{
    int terms = count_terms(&t, n->in[0]) + count_terms(&t, n->in[1]);
    t.left = NEW(tmp, Val, terms);
    t.right = NEW(tmp, Val, terms);
    t.rest = NEW(tmp, Val, terms);
    collect(&t, n->in[0]);
    collect(&t, n->in[1]);
    Val sum = build_matmul(g, build_concat_many(g, t.n, t.left, 0), build_concat_many(g, t.n, t.right, 0),
                           true, false);
    for (int i = 0; i < t.nrest; i++)
        sum = build(g, OP_add, NULL, 2, (Val[]){sum, t.rest[i]}, NULL);
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

static bool ends_sum(const Terms *t, const bool *inner, const Node *n)
{
    return n->op == OP_add && !inner[n->out[0].i] &&
           type_equal(val_type(t->g, n->in[0]), val_type(t->g, n->in[1])) &&
           count_products(t, n->in[0]) + count_products(t, n->in[1]) >= LEAST;
}

bool pass_stack(Graph *g, PassCtx *cx)
{
    uint32_t n = g->norder, nvals = g->nvals;
    NodeId *old = memcpy(NEW(cx->tmp, NodeId, n + 1), g->order, n * sizeof *old);
    Terms t = {.g = g, .uses = graph_uses(g, cx->tmp)};
    const bool *inner = find_inner(g, &t, cx->tmp);
    Val *as = NEW(cx->tmp, Val, nvals);
    g->norder = 0;
    for (uint32_t k = 0; k < n && !g->diag->failed; k++) {
        Node *node = &g->nodes[old[k].i];
        for (int i = 0; i < node->nin; i++)
            node->in[i] = as[node->in[i].i].i ? as[node->in[i].i] : node->in[i];
        if (ends_sum(&t, inner, node)) {
            Val out = node->out[0];
            as[out.i] = stacked(g, t, node, cx->tmp);
            rewrite_name(g, out, as[out.i]);
            cx->changed = true;
        } else {
            g->order = arena_grow(g->arena, g->order, g->norder, &g->corder, sizeof *g->order);
            g->order[g->norder++] = old[k];
        }
    }
    for (uint32_t i = 0; i < g->nout; i++)
        g->out[i] = as[g->out[i].i].i ? as[g->out[i].i] : g->out[i];
    for (uint32_t i = 0; i < g->nupdate; i++)
        g->update[i].value = as[g->update[i].value.i].i ? as[g->update[i].value.i] : g->update[i].value;
    graph_dce(g, cx->tmp);
    return !g->diag->failed;
}
