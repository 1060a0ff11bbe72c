/* optimize.c -- appends the optimizer, each update right behind its gradient.
 *
 * An update overwrites its parameter, so it stands behind the last reader of the parameter and
 * of its gradient: there the gradient dies, which no module-level checkpointing can do. */
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
    Val lr, bias1, bias2, first; /* scalars of one element type */
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
    Val grad = t->grad, out[3];
    if (o->optim == OPTIM_ADAM && at.weight_decay != 0) { /* L2 form: decay through the gradient */
        Val wd = build_scalar(g, val_type(g, t->param)->dt, at.weight_decay);
        grad = build2(g, OP_add, grad, build2(g, OP_mul, t->param, wd));
        at.weight_decay = 0;
    }
    t->state[0] = new_state(g, t->param, "m");
    t->state[1] = new_state(g, t->param, "v");
    Val in[] = {t->param, grad, t->state[0], t->state[1], s->lr, s->bias1, s->bias2};
    TRY(build_n(g, OP_adamw, NULL, 7, in, &at, 3, out));
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
        TRY(build_n(g, OP_sgd, NULL, 3, (Val[]){t->param, t->grad, s->lr}, &at, 1, out));
    } else {
        t->state[0] = new_state(g, t->param, "momentum");
        Val in[] = {t->param, t->grad, t->state[0], s->lr, s->first};
        TRY(build_n(g, OP_momentum, NULL, 5, in, &at, 2, out));
        graph_add_update(g, t->state[0], out[1]);
    }
    graph_add_update(g, t->param, out[0]);
    return true;
}

/* Stable: nodes keep their order, but those from `first` on move up to right behind the last node
 * that makes one of their operands or reads something they overwrite. */
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

bool pass_optimize(Graph *g, PassCtx *cx)
{
    StepInfo *info = cx->info;
    if (!info->ntrained || cx->opt->optim == OPTIM_NONE)
        return true;
    uint32_t first = g->norder;
    info->lr = scalar_input(g, "lr", DT_F64);
    info->step = scalar_input(g, "step", DT_I64);
    Scalars by_type[DT_COUNT] = {{{0}, {0}, {0}, {0}}};
    for (uint32_t i = 0; i < info->ntrained; i++) {
        Trained *t = &info->trained[i];
        DType dt = val_type(g, t->param)->dt;
        if (!by_type[dt].lr.i)
            by_type[dt] = scalars_for(g, cx, dt);
        bool adam = cx->opt->optim == OPTIM_ADAMW || cx->opt->optim == OPTIM_ADAM;
        TRY(adam ? update_adam(g, cx->opt, t, &by_type[dt])
                 : update_sgd(g, cx->opt, t, &by_type[dt]));
    }
    place_updates(g, cx->tmp, first);
    cx->changed = true;
    return !g->diag->failed;
}
