/* update.c -- the update of one parameter by each optimizer.
 *
 * What an optimizer's moments and the parameter become in one step is one operator (ir/ops/optim.c), which
 * overwrites them.  Adafactor's moments are means along rows and columns of the squares of the gradient, so
 * that several kernels read it before its operator does. */
#include "update.h"
#include <float.h>
#include <math.h>

const char *const optim_name[] = {"adamw", "adam", "lion", "adafactor", "sgd", "momentum", "none", NULL};

/* Lion's numbers are from its paper, the others PyTorch's defaults. */
const OptimNumbers optim_default[] = {
    [OPTIM_ADAMW] = {{1e-3, NAN, 0.9, 0.999, 1e-8, 0.01}},
    [OPTIM_ADAM] = {{1e-3, NAN, 0.9, 0.999, 1e-8, 0}},
    [OPTIM_LION] = {{1e-4, NAN, 0.9, 0.99, NAN, 0}},
    [OPTIM_ADAFACTOR] = {{1e-2, NAN, NAN, NAN, NAN, 0}},
    [OPTIM_SGD] = {{1e-2, NAN, NAN, NAN, NAN, 0}},
    [OPTIM_MOMENTUM] = {{1e-2, 0.9, NAN, NAN, NAN, 0}},
    [OPTIM_NONE] = {{0, NAN, NAN, NAN, NAN, NAN}},
};
const int optim_moments[] = {[OPTIM_ADAMW] = 2, [OPTIM_ADAM] = 2, [OPTIM_LION] = 1, [OPTIM_MOMENTUM] = 1,
                             [OPTIM_NONE] = 0};
const OptimNumbers optim_unsaid = {{NAN, NAN, NAN, NAN, NAN, NAN}};

OptimNumbers optim_numbers(const StepOptions *o)
{
    const OptimNumbers *given = &o->number, *dflt = &optim_default[o->optim];
    OptimNumbers n;
    for (int i = 0; i < OPTIM_NUMBERS; i++)
        n.v[i] = isnan(given->v[i]) ? dflt->v[i] : given->v[i];
    return n;
}

/* ---- what updates read ------------------------------------------------------------------------- */

static Val scalar(Graph *g, double v) { return build_scalar(g, DT_F64, v); }

/* 1 - beta^step, in double, rounded to the arithmetic of the update */
static Val bias_correction(Graph *g, Val step, double beta, DType dt)
{
    Val power = build2(g, OP_pow, scalar(g, beta), build_cast(g, step, DT_F64));
    return build_cast(g, build2(g, OP_sub, scalar(g, 1), power), dt);
}

UpdateScalars update_scalars(Graph *g, const PassCtx *cx, const UpdateCommon *c, DType dt)
{
    const StepOptions *o = cx->opt;
    OptimNumbers n = optim_numbers(o);
    Val lr = cx->info->lr;
    UpdateScalars s = {.lr = build_cast(g, lr, dt), .scale = build_cast(g, c->scale, dt), .apply = c->apply};
    if (o->optim == OPTIM_MOMENTUM)
        s.first = build2(g, OP_equal, c->step, build_scalar(g, DT_I64, 1));
    if (o->optim == OPTIM_ADAMW || o->optim == OPTIM_ADAM) {
        s.bias1 = bias_correction(g, c->step, n.beta1, dt);
        s.bias2 = bias_correction(g, c->step, n.beta2, dt);
    }
    if (o->optim == OPTIM_ADAFACTOR) {
        Val step = build_cast(g, c->step, DT_F64);
        s.mix = build_cast(g, build2(g, OP_pow, step, scalar(g, -0.8)), dt);
        s.rate = build2(g, OP_min, lr, build1(g, OP_reciprocal, build1(g, OP_sqrt, step)));
    }
    return s;
}

Val update_state(Graph *g, Val param, const char *suffix, const Type *t)
{
    const char *name = arena_printf(g->arena, "%s.%s", g->vals[param.i].name, suffix);
    return graph_value(g, name, type_with(*t, dtype_sum(t->dt)), VAL_STATE);
}

Val update_squares(Graph *g, Val v)
{
    const Type *t = val_type(g, v);
    Val x = build_cast(g, v, t->dt == DT_F64 ? DT_F64 : DT_F32);
    int rank = t->rank;
    x = build2(g, OP_mul, x, x);
    if (rank > 1)
        x = build_reduce(g, OP_reduce_sum, x, (1u << rank) - 2, false);
    return rank ? build_reduce(g, OP_reduce_sum, x, 1, false) : x;
}

/* The number of operands, without absent ones at the end. */
static int count(const Val *in, int n) { return in[n - 1].i ? n : count(in, n - 1); }

/* Weight decay of a parameter. */
static double decay_of(const Graph *g, const StepOptions *o, Val param)
{
    const Value *v = &g->vals[param.i];
    const ModelName *module = graph_module_name(g, param);
    int rank = module && module->shape ? module->shape->rank : v->type.rank;
    bool none = (o->no_decay_auto && rank < 2) || glob_any(o->no_decay, o->nno_decay, v);
    return none ? 0 : optim_numbers(o).weight_decay;
}

/* ---- optimizers ---------------------------------------------------------------------------------- */

static bool update_adam(Graph *g, const StepOptions *o, Trained *t, const UpdateScalars *s)
{
    OptimNumbers n = optim_numbers(o);
    AdamAttrs at = {n.beta1, n.beta2, n.eps, decay_of(g, o, t->param)};
    Val grad = t->grad, scale = s->scale, out[3];
    if (o->optim == OPTIM_ADAM && at.weight_decay != 0) { /* L2 form: decay through the gradient */
        Val wd = build_scalar(g, val_type(g, grad)->dt, at.weight_decay);
        if (scale.i)
            grad = build2(g, OP_mul, grad, scale);
        scale.i = 0;
        Val p = build_cast(g, t->param, val_type(g, grad)->dt);
        grad = build2(g, OP_add, grad, build2(g, OP_mul, p, wd));
        at.weight_decay = 0;
    }
    t->state[0] = update_state(g, t->param, "m", val_type(g, t->param));
    t->state[1] = update_state(g, t->param, "v", val_type(g, t->param));
    Val in[] = {t->param, grad, t->state[0], t->state[1], s->lr, s->bias1, s->bias2, scale, s->apply};
    TRY(build_n(g, OP_adamw, NULL, count(in, 9), in, &at, 3, out));
    graph_add_update(g, t->param, out[0]);
    graph_add_update(g, t->state[0], out[1]);
    graph_add_update(g, t->state[1], out[2]);
    return true;
}

static bool update_lion(Graph *g, const StepOptions *o, Trained *t, const UpdateScalars *s)
{
    OptimNumbers n = optim_numbers(o);
    LionAttrs at = {n.beta1, n.beta2, decay_of(g, o, t->param)};
    Val out[2];
    t->state[0] = update_state(g, t->param, "m", val_type(g, t->param));
    Val in[] = {t->param, t->grad, t->state[0], s->lr, s->scale, s->apply};
    TRY(build_n(g, OP_lion, NULL, count(in, 6), in, &at, 2, out));
    graph_add_update(g, t->param, out[0]);
    graph_add_update(g, t->state[0], out[1]);
    return true;
}

static bool update_sgd(Graph *g, const StepOptions *o, Trained *t, const UpdateScalars *s)
{
    OptimNumbers n = optim_numbers(o);
    SgdAttrs at = {.nesterov = o->nesterov, .weight_decay = decay_of(g, o, t->param)};
    Val out[2];
    if (o->optim == OPTIM_SGD) {
        Val in[] = {t->param, t->grad, s->lr, s->scale, s->apply};
        TRY(build_n(g, OP_sgd, NULL, count(in, 5), in, &at, 1, out));
    } else {
        at.momentum = n.momentum;
        t->state[0] = update_state(g, t->param, "momentum", val_type(g, t->param));
        Val in[] = {t->param, t->grad, t->state[0], s->lr, s->first, s->scale, s->apply};
        TRY(build_n(g, OP_momentum, NULL, count(in, 7), in, &at, 2, out));
        graph_add_update(g, t->state[0], out[1]);
    }
    graph_add_update(g, t->param, out[0]);
    return true;
}

/* ---- Adafactor ------------------------------------------------------------------------------------ */

/* The moving mean of the state and `now`; it becomes the state if the step is made. */
static Val moving_mean(Graph *g, Val state, Val now, const UpdateScalars *s)
{
    Val next = build2(g, OP_add, state, build2(g, OP_mul, build2(g, OP_sub, now, state), s->mix));
    graph_add_update(g, state, s->apply.i ? build3(g, OP_where, s->apply, next, state) : next);
    return next;
}

static Val over(Graph *g, Val v, double n)
{
    return build2(g, OP_div, v, build_scalar(g, val_type(g, v)->dt, n));
}

/* The moving mean of the squares along one axis, which stays with extent 1: state k of t. */
static Val moving_squares(Graph *g, Trained *t, int k, Val squares, int axis, const UpdateScalars *s)
{
    Type shape = *val_type(g, t->param);
    Val sum = build_reduce(g, OP_reduce_sum, squares, 1u << axis, true);
    Val mean = over(g, sum, (double)shape.dim[axis]);
    shape.dim[axis] = 1;
    t->state[k] = update_state(g, t->param, k ? "columns" : "rows", &shape);
    return moving_mean(g, t->state[k], mean, s);
}

/* sqrt(squares / elements of v), in double precision */
static Val root_mean(Graph *g, Val squares, Val v)
{
    return build1(g, OP_sqrt, over(g, build_cast(g, squares, DT_F64), (double)type_count(val_type(g, v))));
}

/* torch.optim.Adafactor with its defaults: N. Shazeer, M. Stern, ICML 2018, algorithms 4 and 5. */
static bool update_adafactor(Graph *g, const StepOptions *o, Trained *t, const UpdateScalars *s)
{
    const Type type = *val_type(g, t->grad);
    int rank = type.rank;
    double eps = type.dt == DT_F64 ? DBL_EPSILON : FLT_EPSILON;
    AdafactorAttrs at = {eps * eps, decay_of(g, o, t->param)};
    Val grad = s->scale.i ? build2(g, OP_mul, t->grad, s->scale) : t->grad;
    Val squares = build2(g, OP_mul, grad, grad), rows, columns = {0}, mean;
    if (rank > 1) {
        columns = moving_squares(g, t, 1, squares, rank - 2, s);
        rows = moving_squares(g, t, 0, squares, rank - 1, s);
        mean = build_reduce(g, OP_reduce_sum, rows, 1u << (rank - 2), true);
        mean = over(g, mean, (double)type.dim[rank - 2]);
        rows = build2(g, OP_div, rows, build2(g, OP_max, mean, build_scalar(g, type.dt, eps)));
        mean = build2(g, OP_mul, rows, columns);
    } else {
        t->state[0] = update_state(g, t->param, "v", val_type(g, t->param));
        mean = rows = moving_mean(g, t->state[0], squares, s);
    }
    Val root = build1(g, OP_sqrt, build2(g, OP_max, mean, build_scalar(g, type.dt, at.least)));
    Val length = root_mean(g, update_squares(g, build2(g, OP_div, grad, root)), grad);
    Val rate = root_mean(g, update_squares(g, t->param), t->param);
    rate = build2(g, OP_mul, build2(g, OP_max, rate, scalar(g, 1e-3)), s->rate);
    rate = build2(g, OP_div, rate, build2(g, OP_max, length, scalar(g, 1)));
    Val out,
        in[] = {t->param, t->grad, rows, build_cast(g, rate, type.dt), s->lr, columns, s->scale, s->apply};
    TRY(build_n(g, OP_adafactor, NULL, count(in, 8), in, &at, 1, &out));
    graph_add_update(g, t->param, out);
    return true;
}

bool update_build(Graph *g, const StepOptions *o, Trained *t, const UpdateScalars *s)
{
    static bool (*const by[])(Graph *, const StepOptions *, Trained *, const UpdateScalars *) = {
        [OPTIM_ADAMW] = update_adam,          [OPTIM_ADAM] = update_adam, [OPTIM_LION] = update_lion,
        [OPTIM_ADAFACTOR] = update_adafactor, [OPTIM_SGD] = update_sgd,   [OPTIM_MOMENTUM] = update_sgd};
    return by[o->optim](g, o, t, s);
}
