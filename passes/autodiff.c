/* autodiff.c -- appends the backward graph of the loss for the parameters that train; the
 * differentiation itself is ir/grad.c. */
#include "passes.h"
#include <fnmatch.h>

bool glob_any(const char *const *globs, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (fnmatch(globs[i], name, 0) == 0)
            return true;
    return false;
}

/* Trainable: every parameter the importer found, less --freeze; --train names exceptions to it. */
static bool is_trained(const StepOptions *o, const char *name)
{
    if (glob_any(o->freeze, o->nfreeze, name))
        return false;
    return o->ntrain == 0 || glob_any(o->train, o->ntrain, name);
}

/* The part of a step's loss that one micro-batch has: the mean of them is the loss. */
static Val mean_loss(Graph *g, const StepOptions *o, Val loss)
{
    if (o->accumulate <= 1)
        return loss;
    Val share = build_scalar(g, val_type(g, loss)->dt, 1.0 / (double)o->accumulate);
    return build2(g, OP_mul, loss, share);
}

/* Globs that name nothing are slips of the pen: training goes on, but not in silence. */
static void note_unknown(const Graph *g, PassCtx *cx, const char *option,
                         const char *const *globs, int n)
{
    for (int k = 0; k < n; k++) {
        bool known = false;
        for (uint32_t i = 1; i < g->nvals && !known; i++)
            known = g->vals[i].kind != VAL_TEMP && glob_any(&globs[k], 1, g->vals[i].name);
        if (!known && cx->note)
            cx->note(cx->user, arena_printf(g->arena, "%s %s: no parameter has such a name",
                                            option, globs[k]));
    }
}

bool pass_autodiff(Graph *g, PassCtx *cx)
{
    StepInfo *info = cx->info;
    if (!info->loss.i)
        return true;
    Val *params = NEW(cx->tmp, Val, g->nvals), *grad = NEW(cx->tmp, Val, g->nvals);
    uint32_t n = 0;
    note_unknown(g, cx, "--train", cx->opt->train, cx->opt->ntrain);
    note_unknown(g, cx, "--freeze", cx->opt->freeze, cx->opt->nfreeze);
    for (uint32_t i = 1; i < g->nvals; i++)
        if (g->vals[i].kind == VAL_PARAM && dtype_is_float(g->vals[i].type.dt) &&
            is_trained(cx->opt, g->vals[i].name))
            params[n++].i = i;
    TRY(autodiff(g, mean_loss(g, cx->opt, info->loss), params, n, grad));
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
        return fail(cx->diag, "no parameter to train: the loss depends on none that --train and --freeze leave");
    return true;
}
