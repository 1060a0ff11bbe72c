/* optimize.c -- appends the optimizer, each update right behind its gradient.
 *
 * An update overwrites its parameter, so it stands behind the last reader of the parameter and
 * of its gradient: there the gradient dies, which no module-level checkpointing can do.
 *
 * With micro-batches a gradient is added to its accumulator, a state; the first one overwrites it.
 * Updates come after the last micro-batch.  A limit on the global norm of the gradients keeps all
 * of them until it is known (torch.nn.utils.clip_grad_norm_: R. Pascanu et al., ICML 2013). */
#include "../ir/attrs.h"
#include "passes.h"
#include <math.h>

const char *const optim_name[] = {"adamw", "adam", "sgd", "momentum", "none", NULL};

static double or_default(double v, double dflt) { return isnan(v) ? dflt : v; }

static Val scalar_input(Graph *g, const char *name, DType dt)
{
    Val v = graph_find(g, name);
    return v.i ? v : graph_value(g, name, type_scalar(dt), VAL_INPUT);
}

/* 1 - beta^step, in double, rounded to the parameter's arithmetic */
static Val bias_correction(Graph *g, Val step, double beta, DType dt)
{
    Val t = build_cast(g, step, DT_F64);
    Val power = build2(g, OP_pow, build_scalar(g, DT_F64, beta), t);
    return build_cast(g, build2(g, OP_sub, build_scalar(g, DT_F64, 1), power), dt);
}

static Val new_state(Graph *g, Val param, const char *suffix)
{
    const char *name = arena_printf(g->arena, "%s.%s", g->vals[param.i].name, suffix);
    return graph_value(g, name, *val_type(g, param), VAL_STATE);
}

typedef struct {
    Val lr, bias1, bias2, first, clip; /* scalars of one element type */
} Scalars;

static Scalars scalars_for(Graph *g, PassCtx *cx, DType dt)
{
    const StepOptions *o = cx->opt;
    Scalars s = {.lr = build_cast(g, cx->info->lr, dt)};
    if (o->optim == OPTIM_MOMENTUM)
        s.first = build2(g, OP_equal, cx->info->step, build_scalar(g, DT_I64, 1));
    if (o->optim == OPTIM_ADAMW || o->optim == OPTIM_ADAM) {
        s.bias1 = bias_correction(g, cx->info->step, or_default(o->beta1, 0.9), dt);
        s.bias2 = bias_correction(g, cx->info->step, or_default(o->beta2, 0.999), dt);
    }
    return s;
}

static bool update_adam(Graph *g, const StepOptions *o, Trained *t, const Scalars *s)
{
    AdamAttrs at = {or_default(o->beta1, 0.9), or_default(o->beta2, 0.999),
                    or_default(o->eps, 1e-8),
                    or_default(o->weight_decay, o->optim == OPTIM_ADAMW ? 0.01 : 0)};
    Val grad = t->grad, scale = s->clip, out[3];
    if (o->optim == OPTIM_ADAM && at.weight_decay != 0) { /* L2 form: decay through the gradient */
        Val wd = build_scalar(g, val_type(g, t->param)->dt, at.weight_decay);
        if (scale.i)
            grad = build2(g, OP_mul, grad, scale);
        scale.i = 0;
        grad = build2(g, OP_add, grad, build2(g, OP_mul, t->param, wd));
        at.weight_decay = 0;
    }
    t->state[0] = new_state(g, t->param, "m");
    t->state[1] = new_state(g, t->param, "v");
    Val in[] = {t->param, grad, t->state[0], t->state[1], s->lr, s->bias1, s->bias2, scale};
    TRY(build_n(g, OP_adamw, NULL, scale.i ? 8 : 7, in, &at, 3, out));
    graph_add_update(g, t->param, out[0]);
    graph_add_update(g, t->state[0], out[1]);
    graph_add_update(g, t->state[1], out[2]);
    return true;
}

static bool update_sgd(Graph *g, const StepOptions *o, Trained *t, const Scalars *s)
{
    SgdAttrs at = {.momentum = or_default(o->momentum, 0.9), .nesterov = o->nesterov,
                   .weight_decay = or_default(o->weight_decay, 0)};
    Val out[2];
    if (o->optim == OPTIM_SGD) {
        Val in[] = {t->param, t->grad, s->lr, s->clip};
        TRY(build_n(g, OP_sgd, NULL, s->clip.i ? 4 : 3, in, &at, 1, out));
    } else {
        t->state[0] = new_state(g, t->param, "momentum");
        Val in[] = {t->param, t->grad, t->state[0], s->lr, s->first, s->clip};
        TRY(build_n(g, OP_momentum, NULL, s->clip.i ? 6 : 5, in, &at, 2, out));
        graph_add_update(g, t->state[0], out[1]);
    }
    graph_add_update(g, t->param, out[0]);
    return true;
}

/* ---- micro-batches ------------------------------------------------------------------------ */

static void replace_out(Graph *g, Val old, Val now)
{
    for (uint32_t i = 1; i < g->nout; i++) /* the first is the loss */
        if (g->out[i].i == old.i)
            g->out[i] = now;
}

/* The gradient becomes the sum over the micro-batches. */
static bool accumulate(Graph *g, Trained *t, Val first)
{
    Val sum = new_state(g, t->param, "grad");
    Val next = build3(g, OP_where, first, t->grad, build2(g, OP_add, sum, t->grad));
    TRY(next.i);
    graph_add_update(g, sum, next);
    Val whole = build1(g, OP_accumulated, next);
    replace_out(g, t->grad, whole);
    t->grad = whole;
    return true;
}

/* ---- limit on the norm ---------------------------------------------------------------------- */

/* Sum of squares, in single precision at least; rows first, which threads share. */
static Val sum_squares(Graph *g, Val grad)
{
    const Type *t = val_type(g, grad);
    Val x = build_cast(g, grad, t->dt == DT_F64 ? DT_F64 : DT_F32);
    int rank = t->rank;
    x = build2(g, OP_mul, x, x);
    if (rank > 1)
        x = build_reduce(g, OP_reduce_sum, x, (1u << rank) - 2, false);
    return rank ? build_reduce(g, OP_reduce_sum, x, 1, false) : x;
}

/* min(1, limit / (norm + 1e-6)), in double precision. */
static Val clip_scale(Graph *g, const StepInfo *info, double limit)
{
    Val sum = {0};
    for (uint32_t i = 0; i < info->ntrained; i++) {
        Val s = build_cast(g, sum_squares(g, info->trained[i].grad), DT_F64);
        sum = sum.i ? build2(g, OP_add, sum, s) : s;
    }
    Val norm = build2(g, OP_add, build1(g, OP_sqrt, sum), build_scalar(g, DT_F64, 1e-6));
    Val scale = build2(g, OP_div, build_scalar(g, DT_F64, limit), norm);
    return build2(g, OP_min, scale, build_scalar(g, DT_F64, 1));
}

static void note_kept(Graph *g, PassCtx *cx)
{
    int64_t bytes = 0;
    for (uint32_t i = 0; i < cx->info->ntrained; i++)
        bytes += type_bytes(val_type(g, cx->info->trained[i].grad));
    if (cx->note)
        cx->note(cx->user, arena_printf(g->arena, "--clip-norm keeps all gradients until their "
                                        "norm is known: %.4g MB", 1e-6 * (double)bytes));
}

/* ---- places ---------------------------------------------------------------------------------- */

/* Stable: nodes keep their order, but those from `first` on move up to right behind the last node
 * that makes one of their operands or reads something they overwrite; what waits for all
 * micro-batches, to the end. */
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
                ready[n->in[i].i] = k;
        }
        for (int i = 0; i < n->nout; i++)
            made[n->out[i].i] = after[k];
    }
    NodeId *order = NEW(tmp, NodeId, g->norder + 1);
    uint32_t *start = NEW(tmp, uint32_t, g->norder + 2), n = 0;
    for (uint32_t k = 0; k < g->norder; k++) /* counting sort by position */
        start[after[k] + 1]++;
    for (uint32_t k = 0; k < g->norder; k++)
        start[k + 1] += start[k];
    for (uint32_t k = 0; k < g->norder; k++)
        order[start[after[k]]++] = g->order[k], n++;
    for (uint32_t k = 0; k < n; k++)
        g->order[k] = order[k];
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
    Scalars by_type[DT_COUNT] = {{{0}, {0}, {0}, {0}, {0}}};
    TRY(accumulate_all(g, cx));
    Val clip = cx->opt->clip_norm > 0 ? clip_scale(g, info, cx->opt->clip_norm) : (Val){0};
    if (clip.i && cx->opt->accumulate <= 1)
        note_kept(g, cx);
    for (uint32_t i = 0; i < info->ntrained; i++) {
        Trained *t = &info->trained[i];
        DType dt = val_type(g, t->param)->dt;
        if (!by_type[dt].lr.i) {
            by_type[dt] = scalars_for(g, cx, dt);
            by_type[dt].clip = clip.i ? build_cast(g, clip, dt) : clip;
        }
        bool adam = cx->opt->optim == OPTIM_ADAMW || cx->opt->optim == OPTIM_ADAM;
        TRY(adam ? update_adam(g, cx->opt, t, &by_type[dt])
                 : update_sgd(g, cx->opt, t, &by_type[dt]));
    }
    place_updates(g, cx->tmp, first);
    cx->changed = true;
    return !g->diag->failed;
}
