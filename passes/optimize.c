/* optimize.c -- appends the optimizer, each update right behind its gradient.
 *
 * An update overwrites its parameter, so it stands behind the last reader of the parameter and
 * of its gradient: there the gradient dies, which no module-level checkpointing can do.
 *
 * With micro-batches a gradient is added to its accumulator, a state; the first one overwrites it.
 * Updates come after the last micro-batch.  A limit on the global norm of the gradients keeps all
 * of them until it is known (torch.nn.utils.clip_grad_norm_: R. Pascanu et al., ICML 2013).
 *
 * If the loss is scaled (fp16) so are the gradients.  If one of them is not finite the step changes
 * nothing but the scale, which halves; after a number of steps without overflow it doubles. */
#include "update.h"
#include <string.h>

static Val scalar_input(Graph *g, const char *name, DType dt)
{
    Val v = graph_find(g, name);
    return v.i ? v : graph_value(g, name, type_scalar(dt), VAL_INPUT);
}

/* ---- micro-batches ------------------------------------------------------------------------ */

static void replace_out(Graph *g, Val old, Val now)
{
    for (uint32_t i = 1; i < g->nout; i++) /* the first is the loss */
        if (g->out[i].i == old.i)
            g->out[i] = now;
}

/* Replaces the gradient by its sum over the micro-batches. */
static bool accumulate(Graph *g, Trained *t, Val first)
{
    Val sum = update_state(g, t->param, "grad", val_type(g, t->param));
    Val next = build3(g, OP_where, first, t->grad, build2(g, OP_add, sum, t->grad));
    TRY(next.i);
    graph_add_update(g, sum, next);
    Val whole = build1(g, OP_accumulated, next);
    replace_out(g, t->grad, whole);
    t->grad = whole;
    return true;
}

/* ---- limit on the norm ---------------------------------------------------------------------- */

/* The sum of the squares of all gradients, in double precision. */
static Val all_squares(Graph *g, const StepInfo *info)
{
    Val sum = {0};
    for (uint32_t i = 0; i < info->ntrained; i++) {
        Val s = build_cast(g, update_squares(g, info->trained[i].grad), DT_F64);
        sum = sum.i ? build2(g, OP_add, sum, s) : s;
    }
    return sum;
}

/* scale * min(1, limit / (scale * norm + 1e-6)); scale {0}: 1 */
static Val clip_scale(Graph *g, Val squares, Val scale, double limit)
{
    Val norm = build1(g, OP_sqrt, squares);
    norm = scale.i ? build2(g, OP_mul, norm, scale) : norm;
    norm = build2(g, OP_add, norm, build_scalar(g, DT_F64, 1e-6));
    Val clip = build2(g, OP_div, build_scalar(g, DT_F64, limit), norm);
    clip = build2(g, OP_min, clip, build_scalar(g, DT_F64, 1));
    return scale.i ? build2(g, OP_mul, scale, clip) : clip;
}

/* ---- the loss scale ------------------------------------------------------------------------- */

static Val counter(Graph *g, const char *name)
{
    return graph_value(g, name, type_scalar(DT_I64), VAL_STATE);
}

/* Appends the updates of the loss scale, of the number of updates, and of that at the present scale. */
static void follow_scale(Graph *g, PassCtx *cx, UpdateCommon *c)
{
    enum { STEPS = 2000 };
    int64_t steps = cx->opt->scale_steps > 0 ? cx->opt->scale_steps : STEPS;
    Val scale = cx->info->scale, made = counter(g, "updates"), same = counter(g, "updates_at_scale");
    Val one = build_scalar(g, DT_I64, 1), zero = build_scalar(g, DT_I64, 0);
    c->step = build2(g, OP_add, made, one);
    Val next = build2(g, OP_add, same, one);
    Val enough = build2(g, OP_equal, next, build_scalar(g, DT_I64, (double)steps));
    Val twice = build2(g, OP_mul, scale, build_scalar(g, DT_F32, 2));
    Val half = build2(g, OP_mul, scale, build_scalar(g, DT_F32, 0.5));
    twice = build3(g, OP_where, enough, twice, scale);
    next = build3(g, OP_where, enough, zero, next);
    graph_add_update(g, scale, build3(g, OP_where, c->apply, twice, half));
    graph_add_update(g, made, build3(g, OP_where, c->apply, c->step, made));
    graph_add_update(g, same, build3(g, OP_where, c->apply, next, zero));
}

/* Divides the gradients that the user sees by the loss scale. */
static void unscale_outputs(Graph *g, const StepInfo *info, Val unscale)
{
    for (uint32_t i = 0; i < info->ntrained; i++) {
        Val grad = info->trained[i].grad;
        replace_out(g, grad, build2(g, OP_mul, grad, build_cast(g, unscale, val_type(g, grad)->dt)));
    }
}

static UpdateCommon common(Graph *g, PassCtx *cx)
{
    UpdateCommon c = {.step = cx->info->step};
    Val scale = cx->info->scale, squares = {0};
    double limit = cx->opt->clip_norm;
    if (scale.i || limit > 0)
        squares = all_squares(g, cx->info);
    if (scale.i) {
        c.scale = build1(g, OP_reciprocal, build_cast(g, scale, DT_F64));
        Val none = build2(g, OP_sub, squares, squares); /* NaN unless they are finite */
        c.apply = build2(g, OP_equal, none, build_scalar(g, DT_F64, 0));
        follow_scale(g, cx, &c);
        if (cx->opt->keep_grads)
            unscale_outputs(g, cx->info, c.scale);
    }
    if (limit > 0)
        c.scale = clip_scale(g, squares, c.scale, limit);
    return c;
}

static void note_kept(Graph *g, PassCtx *cx)
{
    int64_t bytes = 0;
    for (uint32_t i = 0; i < cx->info->ntrained; i++)
        bytes += type_bytes(val_type(g, cx->info->trained[i].grad));
    if (cx->note)
        cx->note(cx->user, arena_printf(g->arena, "%s known: %.4g MB",
                                        cx->info->scale.i
                                            ? "fp16 keeps all gradients until their overflow is"
                                            : "--clip-norm keeps all gradients until their norm is",
                                        1e-6 * (double)bytes));
}

/* ---- places ---------------------------------------------------------------------------------- */

/* Moves the nodes from `first` on up to right behind the last node that makes one of their operands or
 * reads a parameter they overwrite, be it through a view; nodes that wait for all micro-batches go to the
 * end.  All others keep their order. */
static void place_updates(Graph *g, Arena *tmp, uint32_t first)
{
    uint32_t *ready = NEW(tmp, uint32_t, g->nvals); /* 1 + position of the definition or last read */
    uint32_t *after = NEW(tmp, uint32_t, g->norder + 1), *made = NEW(tmp, uint32_t, g->nvals);
    for (uint32_t k = 0; k < g->norder; k++) {
        const Node *n = &g->nodes[g->order[k].i];
        bool update = k >= first && (node_def(n)->traits & OPT_ONCE);
        after[k] = k;
        if (k >= first) {
            after[k] = 0;
            for (int i = 0; i < n->nin; i++) {
                uint32_t m = made[n->in[i].i];
                if (update && g->vals[n->in[i].i].kind == VAL_PARAM)
                    m = ready[n->in[i].i];
                after[k] = m > after[k] ? m : after[k];
            }
            if (n->op == OP_accumulated)
                after[k] = g->norder - 1;
        } else {
            for (int i = 0; i < n->nin; i++)
                ready[graph_root(g, n->in[i]).i] = k;
        }
        for (int i = 0; i < n->nout; i++)
            made[n->out[i].i] = after[k];
    }
    NodeId *order = NEW(tmp, NodeId, g->norder + 1);
    uint32_t *start = NEW(tmp, uint32_t, g->norder + 2);
    for (uint32_t k = 0; k < g->norder; k++) /* counting sort by position */
        start[after[k] + 1]++;
    for (uint32_t k = 0; k < g->norder; k++)
        start[k + 1] += start[k];
    for (uint32_t k = 0; k < g->norder; k++)
        order[start[after[k]]++] = g->order[k];
    memcpy(g->order, order, g->norder * sizeof *order);
}

static bool accumulate_all(Graph *g, PassCtx *cx)
{
    StepInfo *info = cx->info;
    if (cx->opt->accumulate <= 1)
        return true;
    info->accumulate = cx->opt->accumulate;
    Val micro = scalar_input(g, "micro_batch", DT_I64);
    Val first = build2(g, OP_equal, micro, build_scalar(g, DT_I64, 0));
    for (uint32_t i = 0; i < info->ntrained; i++)
        TRY(accumulate(g, &info->trained[i], first));
    return true;
}

bool pass_optimize(Graph *g, PassCtx *cx)
{
    StepInfo *info = cx->info;
    if (!info->ntrained || cx->opt->optim == OPTIM_NONE)
        return true;
    uint32_t first = g->norder;
    info->lr = scalar_input(g, "lr", DT_F64);
    info->step = scalar_input(g, "step", DT_I64);
    UpdateScalars by_type[DT_COUNT] = {{.lr = {0}}};
    TRY(accumulate_all(g, cx));
    UpdateCommon all = common(g, cx);
    if (all.scale.i && cx->opt->accumulate <= 1)
        note_kept(g, cx);
    for (uint32_t i = 0; i < info->ntrained; i++) {
        Trained *t = &info->trained[i];
        DType dt = val_type(g, t->grad)->dt;
        if (!by_type[dt].lr.i)
            by_type[dt] = update_scalars(g, cx, &all, dt);
        TRY(update_build(g, cx->opt, t, &by_type[dt]));
    }
    place_updates(g, cx->tmp, first);
    cx->changed = true;
    return !g->diag->failed;
}
