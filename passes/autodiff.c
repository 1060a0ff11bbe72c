/* autodiff.c -- reverse-mode differentiation: appends the backward graph.
 *
 * A value is wanted if a trainable parameter lies behind it; one sweep over the schedule finds
 * them, one sweep back calls the operators' gradient hooks.  Only wanted values get cotangents,
 * so frozen subgraphs cost nothing. */
#include "passes.h"
#include <fnmatch.h>
#include <string.h>

bool glob_any(const char *const *globs, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (fnmatch(globs[i], name, 0) == 0)
            return true;
    return false;
}

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
                               node.name ? node.name : g->vals[node.out[0].i].name,
                               node_def(&node)->name);
        TRY(node_def(&node)->grad(&gr, &node));
    }
    for (uint32_t i = 0; i < n; i++)
        grad[i] = gr.adj[params[i].i];
    return !g->diag->failed;
}

/* Trainable: every parameter the importer found, less --freeze; --train names exceptions to it. */
static bool is_trained(const StepOptions *o, const char *name)
{
    if (glob_any(o->freeze, o->nfreeze, name))
        return false;
    return o->ntrain == 0 || glob_any(o->train, o->ntrain, name);
}

bool pass_autodiff(Graph *g, PassCtx *cx)
{
    StepInfo *info = cx->info;
    if (!info->loss.i)
        return true;
    Val *params = NEW(cx->tmp, Val, g->nvals), *grad = NEW(cx->tmp, Val, g->nvals);
    uint32_t n = 0;
    for (uint32_t i = 1; i < g->nvals; i++)
        if (g->vals[i].kind == VAL_PARAM && dtype_is_float(g->vals[i].type.dt) &&
            is_trained(cx->opt, g->vals[i].name))
            params[n++].i = i;
    TRY(autodiff(g, info->loss, params, n, grad));
    for (uint32_t i = 0; i < n; i++) {
        if (!grad[i].i)
            continue;
        info->trained = arena_grow(g->arena, info->trained, info->ntrained, &info->ctrained,
                                   sizeof *info->trained);
        info->trained[info->ntrained++] = (Trained){params[i], grad[i], {{0}, {0}}};
        if (cx->opt->keep_grads)
            graph_add_out(g, grad[i]);
    }
    cx->changed = true;
    if (!info->ntrained)
        return fail(cx->diag, "no parameter to train: the loss depends on none (see --train)");
    return true;
}
