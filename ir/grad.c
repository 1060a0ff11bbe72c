/* grad.c -- reverse-mode differentiation: the driver and its interface to operators' hooks.
 *
 * A value is wanted if one of the variables lies behind it; one sweep over the schedule finds
 * them, one sweep back calls the operators' gradient hooks.  Only wanted values get cotangents,
 * so frozen subgraphs cost nothing.
 *
 * Contributions to one cotangent are added in the order in which they arrive, so the additions
 * have a fixed order and recomputation keeps every bit. */
#include "ir.h"
#include <string.h>

Val grad_out(const Grad *gr, const Node *n, int k)
{
    return n->out[k].i < gr->nadj ? gr->adj[n->out[k].i] : (Val){0};
}

bool grad_wants(const Grad *gr, const Node *n, int k)
{
    return k < n->nin && n->in[k].i && n->in[k].i < gr->nadj && gr->wanted[n->in[k].i];
}

/* Is it x times a number, in a type in which sums are made? */
static bool is_multiple(const Graph *g, const Node *n)
{
    DType dt = val_type(g, n->out[0])->dt;
    return n->op == OP_mul && type_count(val_type(g, n->in[1])) == 1 && dtype_sum(dt) == dt;
}

DType grad_type(const Graph *g, Val v)
{
    DType dt = val_type(g, v)->dt;
    const Node *n = graph_def(g, v);
    while (n && (n->op == OP_cast || n->op == OP_reshape || n->op == OP_transpose || is_multiple(g, n))) {
        v = n->in[0];
        n = graph_def(g, v);
    }
    return g->vals[v.i].kind == VAL_PARAM ? dtype_sum(dt) : dt;
}

void grad_add(Grad *gr, Val input, Val cotangent)
{
    Graph *g = gr->g;
    if (!input.i || input.i >= gr->nadj || !gr->wanted[input.i] || !cotangent.i)
        return;
    const Type *t = val_type(g, input);
    DType dt = grad_type(g, input);
    if (dtype_size[val_type(g, cotangent)->dt] < dtype_size[dt])
        cotangent = build_cast(g, cotangent, dt);
    Val c = build_cast(g, build_sum_to(g, cotangent, t), dt);
    if (c.i && !type_same_shape(val_type(g, c), t))
        c = build_expand(g, c, t->rank, t->dim);
    Val *adj = &gr->adj[input.i];
    *adj = adj->i ? build2(g, OP_add, *adj, c) : c;
}

Val grad_take(Grad *gr, Val input, DType dt)
{
    Val taken = input.i < gr->nadj ? gr->adj[input.i] : (Val){0};
    if (!taken.i || val_type(gr->g, taken)->dt != dt)
        return (Val){0};
    gr->adj[input.i] = (Val){0};
    return taken;
}

/* ---- the driver -------------------------------------------------------------------- */

static bool *find_wanted(const Graph *g, const Val *params, uint32_t n)
{
    bool *wanted = NEW(g->arena, bool, g->nvals);
    for (uint32_t i = 0; i < n; i++)
        wanted[params[i].i] = true;
    for (uint32_t k = 0; k < g->norder; k++) {
        const Node *node = &g->nodes[g->order[k].i];
        bool any = false;
        if (node_def(node)->traits & (OPT_ZEROGRAD | OPT_NOGRAD))
            continue;
        for (int i = 0; i < node->nin; i++)
            any |= wanted[node->in[i].i];
        for (int i = 0; i < node->nout; i++)
            wanted[node->out[i].i] = any && dtype_is_float(val_type(g, node->out[i])->dt);
    }
    return wanted;
}

static bool has_cotangent(const Grad *gr, const Node *n)
{
    for (int i = 0; i < n->nout; i++)
        if (grad_out(gr, n, i).i)
            return true;
    return false;
}

static bool wants_any(const Grad *gr, const Node *n)
{
    for (int i = 0; i < n->nin; i++)
        if (grad_wants(gr, n, i))
            return true;
    return false;
}

bool autodiff(Graph *g, Val of, const Val *params, uint32_t n, Val *grad)
{
    Grad gr = {.g = g, .nadj = g->nvals, .adj = NEW(g->arena, Val, g->nvals),
               .wanted = find_wanted(g, params, n)};
    memset(grad, 0, n * sizeof *grad);
    if (!gr.wanted[of.i])
        return true;
    uint32_t norder = g->norder;
    gr.adj[of.i] = build_scalar(g, val_type(g, of)->dt, 1);
    gr.adj[of.i] = build_expand(g, gr.adj[of.i], val_type(g, of)->rank, val_type(g, of)->dim);
    for (uint32_t k = norder; k-- > 0 && !g->diag->failed;) {
        Node node = g->nodes[g->order[k].i];
        if (!has_cotangent(&gr, &node) || !wants_any(&gr, &node))
            continue;
        if (!node_def(&node)->grad)
            return fail_status(g->diag, EXIT_UNSUPPORTED,
                               "node '%s': operator %s has no gradient, but a trainable "
                               "parameter lies behind it; freeze it with --freeze",
                               node.name ? node.name : g->vals[node.out[0].i].name, node_def(&node)->name);
        uint32_t first = g->nnodes;
        TRY(node_def(&node)->grad(&gr, &node));
        for (uint32_t i = first; i < g->nnodes; i++) /* where they come from, for reports */
            g->nodes[i].name = g->nodes[i].name ? g->nodes[i].name : node.name;
    }
    for (uint32_t i = 0; i < n; i++)
        grad[i] = gr.adj[params[i].i];
    return !g->diag->failed;
}
