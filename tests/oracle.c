/* oracle.c -- compares training steps with PyTorch's. */
#include "tests.h"
#include "oracle.h"
#include <stdlib.h>
#include <string.h>

enum { STEPS = 5 };

static const struct {
    const char *key;
    OptimKind kind;
    double lr;
} optims[NOPTIMS] = {
    {"sgd_lr0.1", OPTIM_SGD, 0.1},
    {"sgd_lr0.05_mom0.9", OPTIM_MOMENTUM, 0.05},
    {"adamw_lr1e-3_b0.9_0.999_eps1e-8_wd0.01", OPTIM_ADAMW, 1e-3},
};

static const json_t *meta(const Oracle *o, const char *key) { return json_object_get(o->meta, key); }

static double meta_number(const Oracle *o, const char *key) { return json_number_value(meta(o, key)); }

static void find_ties(Oracle *o)
{
    const char *copy;
    json_t *kept;
    json_object_foreach(json_object_get(o->meta, "cut_ties"), copy, kept) {
        ck_assert_int_lt(o->import.nties, MAX_TIES);
        o->tie[o->import.nties++] = (OnnxTie){json_string_value(kept), copy};
    }
    o->import.tie = o->tie;
}

static void find_frozen(Oracle *o)
{
    size_t i;
    json_t *name;
    json_array_foreach(json_object_get(o->meta, "non_trainable_initializers"), i, name) {
        ck_assert_int_lt(o->nfreeze, MAX_FROZEN);
        o->freeze[o->nfreeze++] = json_string_value(name);
    }
}

void oracle_open(Oracle *o, const char *dir)
{
    char path[4200];
    Diag d = {0};
    Tensor x;
    memset(o, 0, sizeof *o);
    snprintf(o->dir, sizeof o->dir, "%s", dir);
    snprintf(path, sizeof path, "%s/meta.json", dir);
    o->meta = json_load_file(path, 0, NULL);
    o->judged = meta(o, "trainable") != NULL;
    o->half = json_is_true(meta(o, "half"));
    snprintf(path, sizeof path, "%s/%s.npz", dir, o->judged ? "oracle" : "data");
    o->data = data_open(path, &d);
    ck_assert_msg(o->meta && o->data, "%s: %s", path, d.msg);
    o->single_error = meta_number(o, "grad_f32_vs_f64_err_over_global_grad_norm");
    o->chaotic = o->single_error > 1e-4;
    o->import.unbiased_var = true; /* PyTorch keeps the unbiased variance */
    o->import.untie = json_is_true(meta(o, "untie"));
    find_ties(o);
    find_frozen(o);
    if (json_is_true(meta(o, "symbolic_batch"))) {
        ck_assert_msg(data_get(o->data, "input/x0", &x, &d), "%s", d.msg);
        o->batch = (OnnxBind){"batch", x.type.dim[0]};
        o->import.bind = &o->batch;
        o->import.nbind = 1;
    }
}

void oracle_close(Oracle *o)
{
    json_decref(o->meta);
    data_close(o->data);
}

void oracle_options(const Oracle *o, const char *file, StepOptions *opt, char path[4200])
{
    snprintf(path, 4200, "%s/%s", o->dir, file);
    bool ends_in_loss = strstr(file, "with_loss") != NULL;
    if (!ends_in_loss && strncmp(json_string_value(meta(o, "loss")), "mean squared", 12) == 0)
        opt->loss = LOSS_MSE;
    opt->import = o->import;
    opt->freeze = o->freeze;
    opt->nfreeze = o->nfreeze;
}

static void compile(const Oracle *o, TestStep *s, const char *file)
{
    char path[4200];
    oracle_options(o, file, &s->opt, path);
    ck_assert_msg(step_compile(s, path, NULL), "%s: %s", path, s->diag.msg);
}

static bool in_list(const Oracle *o, const char *list, const char *name)
{
    size_t i;
    json_t *v;
    json_array_foreach(json_object_get(o->meta, list), i, v)
        if (strcmp(json_string_value(v), name) == 0)
            return true;
    return false;
}

/* ---- gradients ---------------------------------------------------------------------------------- */

/* Adds || got - want ||^2 to *err and || want ||^2 to *norm.  If grad is not NULL, elements whose gradient is
 * nearly zero are left out: Adam turns the rounding noise of a gradient that is zero (a bias before a
 * normalization, the key bias of attention) into full steps, in PyTorch as here. */
static void add_error(const Tensor *got, const Tensor *want, const Tensor *grad, double *err,
                      double *norm)
{
    ck_assert_int_eq(type_count(&got->type), type_count(&want->type));
    for (int64_t i = 0; i < type_count(&want->type); i++) {
        if (grad && fabs(tensor_f(grad, i)) < 1e-6)
            continue;
        double w = tensor_f(want, i), e = tensor_f(got, i) - w;
        *err += e * e;
        *norm += w * w;
    }
}

static Tensor gradient_of(const TestStep *s, uint32_t trained)
{
    Diag d = {0};
    Val v = graph_root(&s->g, s->g.out[s->g.nout - s->info.ntrained + trained]);
    ck_assert_msg(exec_read(s->exec, v, &d), "%s", d.msg);
    return exec_tensor(s->exec, v);
}

/* Checks that the parameters that train are PyTorch's, but for those that the exporter has folded away. */
static void check_trained(const Oracle *o, const TestStep *s)
{
    size_t want = json_array_size(meta(o, "trainable")) -
                  json_array_size(meta(o, "trainable_missing_from_initializers"));
    for (uint32_t i = 0; i < s->info.ntrained; i++) {
        const char *name = graph_model_name(&s->g, s->info.trained[i].param);
        ck_assert_msg(in_list(o, "trainable", name), "%s: %s trains", o->dir, name);
    }
    ck_assert_msg(s->info.ntrained == want, "%s: %u train, in PyTorch %zu", o->dir,
                  s->info.ntrained, want);
}

/* Checks that every attention of the network is one operator, if the oracle tells how many there are. */
static void check_attentions(const Oracle *o, const TestStep *s)
{
    int64_t found = 0;
    for (uint32_t i = 0; i < s->g.norder; i++)
        found += s->g.nodes[s->g.order[i].i].op == OP_attention;
    if (meta(o, "attentions"))
        ck_assert_msg(found == json_integer_value(meta(o, "attentions")),
                      "%s: %lld attentions, in PyTorch %lld", o->dir, (long long)found,
                      (long long)json_integer_value(meta(o, "attentions")));
}

static double gradient_tol(const Oracle *o)
{
    return o->half ? 2e-2 : o->chaotic ? 1e-2 : 1e-4;
}

/* The gradients' tolerance in double precision.  Constants of the file are single still; an ill-conditioned
 * network, which PyTorch's own error in single precision reveals, enlarges their error. */
static double double_tol(const Oracle *o) { return o->single_error > 1e-6 ? 1e-6 : 1e-7; }

static void move_parameters(const TestStep *s, const double *along, double by)
{
    for (uint32_t i = 0; i < s->info.ntrained; i++) {
        Tensor p = exec_tensor(s->exec, s->info.trained[i].param);
        for (int64_t k = 0; k < type_count(&p.type); k++)
            tensor_set_f(&p, k, tensor_f(&p, k) + by * *along++);
    }
}

/* Checks gradients without PyTorch's numbers, which a network with dropout lacks: along the gradient, the
 * loss changes at the rate of the gradient's norm.  Each step is the first: the same elements drop. */
static void check_along_gradient(const Oracle *o, TestStep *s, const char *file)
{
    const double by = 1e-5;
    double loss[2], norm = 0, *grad = NULL;
    size_t n = 0;
    for (uint32_t i = 0; i < s->info.ntrained; i++) {
        Tensor g = gradient_of(s, i);
        grad = realloc(grad, (n + (size_t)type_count(&g.type)) * sizeof *grad);
        for (int64_t k = 0; k < type_count(&g.type); k++)
            grad[n++] = tensor_f(&g, k);
    }
    for (size_t i = 0; i < n; i++)
        norm += grad[i] * grad[i];
    norm = sqrt(norm);
    for (int side = 0; side < 2; side++) {
        move_parameters(s, grad, (side ? -2 : 1) * by / norm);
        s->steps = 0;
        step_run(s, o->data, 1, &loss[side]);
    }
    free(grad);
    double change = (loss[0] - loss[1]) / (2 * by);
    printf("%s/%s f64: gradient's norm %.7f, by differences %.7f\n", strrchr(o->dir, '/') + 1, file,
           norm, change);
    ck_assert_double_gt(norm, 0);
    ck_assert_double_eq_tol(change, norm, 1e-6 * norm);
}

/* The norm of the error of all gradients, over the norm of PyTorch's in double precision. */
static double gradient_error(const Oracle *o, TestStep *s)
{
    Tensor want;
    char key[512];
    double err = 0, norm = 0;
    for (uint32_t i = 0; i < s->info.ntrained; i++) {
        snprintf(key, sizeof key, "grad_f64/%s", graph_model_name(&s->g, s->info.trained[i].param));
        ck_assert_msg(data_get(o->data, key, &want, &s->diag), "%s", s->diag.msg);
        Tensor got = gradient_of(s, i);
        add_error(&got, &want, NULL, &err, &norm);
    }
    return sqrt(err / norm);
}

void oracle_check_gradients(const Oracle *o, const char *file, bool f64)
{
    TestStep s;
    double loss;
    step_init(&s);
    s.opt.keep_grads = true;
    s.opt.optim = OPTIM_NONE;
    s.opt.f64 = f64;
    compile(o, &s, file);
    step_run(&s, o->data, 1, &loss);
    check_attentions(o, &s);
    if (!o->judged) {
        if (f64)
            check_along_gradient(o, &s, file);
        step_free(&s);
        return;
    }
    check_trained(o, &s);
    double error = gradient_error(o, &s);
    printf("%s/%s %s: loss %.7f, gradient error %.2e of the norm\n", strrchr(o->dir, '/') + 1, file,
           f64 ? "f64" : "f32", loss, error);
    bool exact = f64 && !o->half; /* constants of a file in 16 bits are rounded to 16 bits */
    double loss_tol = exact ? 1e-6 : o->half ? 2e-3 : 2e-4;
    ck_assert_double_eq_tol(loss, meta_number(o, "loss_f64"), loss_tol * fabs(loss));
    ck_assert_double_lt(error, exact ? double_tol(o) : gradient_tol(o));
    step_free(&s);
}

double oracle_gradient_error(const Oracle *o, const char *file, PrecisionKind precision,
                             const DeviceOps *device)
{
    TestStep s;
    double loss;
    step_init(&s);
    s.opt.keep_grads = true;
    s.opt.optim = OPTIM_SGD; /* fp16 scales the loss for an optimizer only */
    s.opt.precision = precision;
    s.device = device;
    compile(o, &s, file);
    step_run(&s, o->data, 1, &loss);
    double error = gradient_error(o, &s);
    step_free(&s);
    return error;
}

/* ---- five steps --------------------------------------------------------------------------------- */

/* Compares the parameters after five steps, where the oracle has them, relative to their norm. */
static void check_params(const Oracle *o, const TestStep *s, int optim)
{
    double err = 0, norm = 0;
    for (uint32_t i = 0; i < s->info.ntrained; i++) {
        char key[600];
        Tensor want;
        const char *name = graph_model_name(&s->g, s->info.trained[i].param);
        snprintf(key, sizeof key, "param_f64_after5/%s/%s", optims[optim].key, name);
        if (data_find(o->data, key) < 0 || in_list(o, "zero_grad_params", name))
            continue;
        Diag d = {0};
        Tensor grad, got = exec_tensor(s->exec, s->info.trained[i].param);
        ck_assert(data_get(o->data, key, &want, &d));
        snprintf(key, sizeof key, "grad_f64/%s", name);
        ck_assert(data_get(o->data, key, &grad, &d));
        add_error(&got, &want, optims[optim].kind == OPTIM_ADAMW ? &grad : NULL, &err, &norm);
    }
    ck_assert(optims[optim].kind != OPTIM_ADAMW || norm > 0);
    if (norm > 0)
        ck_assert_msg(sqrt(err / norm) < 1e-6, "%s %s: parameters differ by %.2e", o->dir,
                      optims[optim].key, sqrt(err / norm));
}

/* Compares the running statistics after a step, (1 - m) * start + m * batch.  The oracle's start at 0 or 1,
 * ours with the file's values, which some exporters write after a step of their own. */
static void check_buffers(const Oracle *o, const TestStep *s)
{
    double momentum = meta_number(o, "batch_norm_momentum");
    double keep = 1 - (momentum > 0 ? momentum : 0.1);
    for (uint32_t v = 1; v < s->g.nvals; v++) {
        char key[512];
        Tensor want, got = exec_tensor(s->exec, (Val){v});
        double err = 0, norm = 0;
        snprintf(key, sizeof key, "buffer_after/%s", s->g.vals[v].name);
        if (s->g.vals[v].kind != VAL_STATE || data_find(o->data, key) < 0)
            continue;
        Diag d = {0};
        ck_assert(data_get(o->data, key, &want, &d));
        Tensor first = graph_tensor(&s->g, (Val){v});
        double start = strstr(key, "running_var") ? 1 : 0;
        for (int64_t k = 0; k < type_count(&want.type); k++) {
            double w = tensor_f(&want, k) + keep * (tensor_f(&first, k) - start);
            double e = tensor_f(&got, k) - w;
            err += e * e;
            norm += w * w;
        }
        ck_assert_msg(sqrt(err / norm) < 1e-4, "%s %s: %g", o->dir, key, sqrt(err / norm));
    }
}

static void training_init(TestStep *s, int optim, bool f64)
{
    step_init(s);
    s->opt.optim = optims[optim].kind;
    s->opt.number.lr = optims[optim].lr;
    s->opt.f64 = f64;
}

/* Compares five steps in double precision with PyTorch's.  A chaotic network (MobileNetV2 on a batch of four)
 * goes its own way after three steps, so only these are compared. */
static void check_double(const Oracle *o, const char *file, int optim)
{
    TestStep s;
    double loss[STEPS];
    size_t compared = o->chaotic ? 3 : STEPS;
    training_init(&s, optim, true);
    compile(o, &s, file);
    step_run(&s, o->data, 1, loss);
    check_buffers(o, &s);
    step_run(&s, o->data, STEPS - 1, loss + 1);
    const json_t *curve = json_object_get(meta(o, "loss_curve_5_steps_f64"), optims[optim].key);
    for (size_t i = 0; i < compared; i++) {
        double want = json_number_value(json_array_get(curve, i));
        ck_assert_msg(fabs(loss[i] - want) <= 1e-6 * (1 + fabs(want)),
                      "%s %s step %zu: %.8f, PyTorch %.8f", o->dir, optims[optim].key, i + 1,
                      loss[i], want);
    }
    if (!o->chaotic)
        check_params(o, &s, optim);
    step_free(&s);
}

static bool is_weight(const Value *v) { return v->kind == VAL_PARAM || v->kind == VAL_STATE; }

/* Reads parameters, running statistics and optimizer state, in the order of values; the caller frees them. */
static double *read_weights(const TestStep *s)
{
    double *w = NULL;
    size_t n = 0;
    for (uint32_t v = 1; v < s->g.nvals; v++) {
        Tensor t = exec_tensor(s->exec, (Val){v});
        if (!is_weight(&s->g.vals[v]))
            continue;
        w = realloc(w, (n + (size_t)type_count(&t.type)) * sizeof *w);
        for (int64_t k = 0; k < type_count(&t.type); k++)
            w[n++] = tensor_f(&t, k);
    }
    return w;
}

/* Writes weights into another step of the same network.  If seed is not 0, each gets a random error of up to
 * 2^-24 of it, which rounding to single precision may cause as well. */
static void write_weights(const TestStep *s, const double *w, uint32_t seed)
{
    uint32_t random = seed;
    for (uint32_t v = 1; v < s->g.nvals; v++) {
        Tensor t = exec_tensor(s->exec, (Val){v});
        for (int64_t k = 0; is_weight(&s->g.vals[v]) && k < type_count(&t.type); k++) {
            random = 1664525 * random + 1013904223;
            double wrong = seed ? ldexp((double)(random >> 8) - 0x1p23, -47) : 0;
            tensor_set_f(&t, k, *w++ * (1 + wrong));
        }
    }
}

typedef struct {
    double loss, gradient, params;  /* errors over 1 + |loss|, the gradients' norm, the parameters' norm */
    double step;                    /* the error params would have if the gradient's were 1; Adam: 0 */
} StepError;

/* The errors of the last step of `single`, measured by the judge's; loss: of `single` and of the judge. */
static StepError step_error(const TestStep *single, const TestStep *judge, const double loss[2],
                            int optim)
{
    bool adam = optims[optim].kind == OPTIM_ADAMW;
    double grad_err = 0, grad_norm = 0, err = 0, norm = 0;
    for (uint32_t i = 0; i < single->info.ntrained; i++) {
        Tensor got = gradient_of(single, i), want = gradient_of(judge, i);
        add_error(&got, &want, NULL, &grad_err, &grad_norm);
        Tensor after = exec_tensor(single->exec, single->info.trained[i].param),
               judged = exec_tensor(judge->exec, judge->info.trained[i].param);
        add_error(&after, &judged, adam ? &want : NULL, &err, &norm);
    }
    return (StepError){fabs(loss[0] - loss[1]) / (1 + fabs(loss[1])), sqrt(grad_err / grad_norm),
                       sqrt(err / norm), adam ? 0 : optims[optim].lr * sqrt(grad_norm / norm)};
}

static bool is_right(const Oracle *o, const StepError *e)
{
    double tol = gradient_tol(o);
    return e->loss < 1e-4 && e->gradient < tol &&
           (o->chaotic || e->params < 1e-6 + tol * e->step);
}

/* Makes a step of both from the same weights; checks the loss, the gradients, and the parameters afterwards.
 * If they differ, the judge tries again from weights that are rounded otherwise. */
static void check_step(const Oracle *o, TestStep *single, TestStep *judge, int optim, int step)
{
    enum { JUDGES = 16 };
    double loss[2], *before = read_weights(single);
    StepError e = {0};
    uint32_t seed = 0;
    step_run(single, o->data, 1, &loss[0]);
    do {
        write_weights(judge, before, seed);
        judge->steps = single->steps - 1;
        step_run(judge, o->data, 1, &loss[1]);
        e = step_error(single, judge, loss, optim);
    } while (!is_right(o, &e) && ++seed < JUDGES);
    printf("%s %s step %d: loss %.7f, gradient error %.2e of the norm, parameters %.2e%s\n",
           strrchr(o->dir, '/') + 1, optims[optim].key, step, loss[0], e.gradient, e.params,
           seed ? ", from weights rounded otherwise" : "");
    ck_assert_msg(is_right(o, &e), "%s %s step %d: errors %.2e of the loss, %.2e of the gradient, "
                  "%.2e of the parameters", o->dir, optims[optim].key, step, e.loss, e.gradient,
                  e.params);
    free(before);
}

/* Checks five steps in single precision, of a chaotic network one, each by a step in double precision (the
 * judge) from the same weights: a gradient jumps where a ReLU or a maximum changes over, and weights that
 * differ in the last bit may lie on both sides.  So may the same weights in two precisions: then a judge
 * whose weights are rounded otherwise has to come to the same gradient. */
static void check_single(const Oracle *o, const char *file, int optim)
{
    TestStep single, judge;
    training_init(&single, optim, false);
    training_init(&judge, optim, true);
    single.opt.keep_grads = judge.opt.keep_grads = true;
    compile(o, &single, file);
    compile(o, &judge, file);
    for (int i = 0; i < (o->chaotic ? 1 : STEPS); i++) {
        check_step(o, &single, &judge, optim, i + 1);
        if (i == 0)
            check_buffers(o, &single);
    }
    step_free(&single);
    step_free(&judge);
}

void oracle_check_training(const Oracle *o, const char *file, int optim, bool f64)
{
    (f64 ? check_double : check_single)(o, file, optim);
}
