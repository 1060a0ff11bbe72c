/* autodiff.c -- appends the backward graph of the loss for the parameters that train; the
 * differentiation itself is ir/grad.c. */
#include "passes.h"
#include <fnmatch.h>

bool glob_any(const char *const *globs, int n, const Value *v)
{
    bool any = false;
    for (int i = 0; i < n && !any; i++) {
        any = fnmatch(globs[i], v->name, 0) == 0;
        for (const ModelName *m = v->in_model; m && !any; m = m->next)
            any = fnmatch(globs[i], m->name, 0) == 0;
    }
    return any;
}

/* Is a parameter trained?  All that the importer found are, less --freeze; --train names exceptions to it. */
static bool is_trained(const StepOptions *o, const Value *v)
{
    if (glob_any(o->freeze, o->nfreeze, v))
        return false;
    return o->ntrain == 0 || glob_any(o->train, o->ntrain, v);
}

/* A micro-batch's part of the step's loss, which is their mean. */
static Val mean_loss(Graph *g, const StepOptions *o, Val loss)
{
    if (o->accumulate <= 1)
        return loss;
    Val share = build_scalar(g, val_type(g, loss)->dt, 1.0 / (double)o->accumulate);
    return build2(g, OP_mul, loss, share);
}

/* In fp16 the loss is scaled, so that small gradients are not zero (P. Micikevicius et al., Mixed Precision
 * Training, ICLR 2018); the optimizer takes the scale back. */
static Val scaled_loss(Graph *g, PassCtx *cx, Val loss)
{
    enum { INITIAL = 65536 };
    double first = cx->opt->loss_scale > 0 ? cx->opt->loss_scale : INITIAL;
    if (precision_half(cx->opt->precision) != DT_F16 || cx->opt->optim == OPTIM_NONE)
        return loss;
    Val start = build_scalar(g, DT_F32, first);
    cx->info->scale = graph_value(g, "loss_scale", type_scalar(DT_F32), VAL_STATE);
    g->vals[cx->info->scale.i].data = g->vals[start.i].data;
    return build2(g, OP_mul, loss, build_cast(g, cx->info->scale, val_type(g, loss)->dt));
}

/* Fails if a glob matches no parameter, which is taken for a typing error. */
static bool check_globs(const Graph *g, PassCtx *cx, const char *option, const char *const *globs, int n)
{
    for (int k = 0; k < n; k++) {
        char hint[NEAREST_HINT];
        bool known = false;
        Nearest near;
        nearest_init(&near, globs[k]);
        for (uint32_t i = 1; i < g->nvals; i++) {
            const Value *v = &g->vals[i]; /* a weight may have become a constant or a state */
            known |= v->name && v->kind != VAL_TEMP && v->kind != VAL_INPUT && glob_any(&globs[k], 1, v);
            if (v->name && v->kind == VAL_PARAM)
                nearest_try(&near, v->name);
        }
        nearest_hint(&near, hint);
        if (!known)
            return fail(cx->diag, "%s %s: no parameter has such a name%s", option, globs[k], hint);
    }
    return true;
}

bool pass_autodiff(Graph *g, PassCtx *cx)
{
    StepInfo *info = cx->info;
    if (!info->loss.i)
        return true;
    Val *params = NEW(cx->tmp, Val, g->nvals), *grad = NEW(cx->tmp, Val, g->nvals);
    uint32_t n = 0;
    TRY(check_globs(g, cx, "--train", cx->opt->train, cx->opt->ntrain) &&
        check_globs(g, cx, "--freeze", cx->opt->freeze, cx->opt->nfreeze) &&
        check_globs(g, cx, "--no-decay", cx->opt->no_decay, cx->opt->nno_decay));
    for (uint32_t i = 1; i < g->nvals; i++)
        if (g->vals[i].kind == VAL_PARAM && dtype_is_float(g->vals[i].type.dt) &&
            is_trained(cx->opt, &g->vals[i]))
            params[n++].i = i;
    Val loss = scaled_loss(g, cx, mean_loss(g, cx->opt, info->loss));
    TRY(autodiff(g, loss, params, n, grad));
    info->trained = NEW(g->arena, Trained, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        if (!grad[i].i)
            continue;
        info->trained[info->ntrained++] = (Trained){params[i], grad[i], {{0}, {0}}};
        if (cx->opt->keep_grads)
            graph_add_out(g, grad[i]);
    }
    cx->changed = true;
    if (!info->ntrained)
        return fail(cx->diag, "no parameter to train: the loss depends on none that %s",
                    cx->opt->ntrain || cx->opt->nfreeze
                        ? "--train and --freeze leave"
                        : "is of floats; of a quantized model train the one that it was made from");
    return true;
}
