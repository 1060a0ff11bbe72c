/* test_train.c -- whole training steps: PyTorch's numbers, and the same bits at every budget. */
#include "tests.h"
#include "step.h"
#include <dirent.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* ---- the oracle: loss, gradients, five steps of three optimizers ------------------------------ */

static const char *const oracle[] = {
    "conv_bn_pool", "gpt_tiny_tied", "llama_tiny_gqa", "lstm_bidi", "mlp_ln_gelu",
    "odds_broadcast", "tv_mobilenet_v2_x0_1", "tv_vit_tiny", "unet_tiny",
};
enum { NORACLE = sizeof oracle / sizeof *oracle, STEPS = 5 };

typedef struct {
    char dir[4096];
    json_t *meta;
    DataFile *data;
    double tolerance; /* of gradients, relative to the global norm */
} Oracle;

static bool oracle_open(Oracle *o, const char *name)
{
    char rel[256], path[4200];
    Diag d = {0};
    snprintf(rel, sizeof rel, "fixtures/torch-oracle/%s", name);
    const char *dir = shared_path(rel);
    if (!dir)
        return false;
    snprintf(o->dir, sizeof o->dir, "%s", dir);
    snprintf(path, sizeof path, "%s/meta.json", o->dir);
    o->meta = json_load_file(path, 0, NULL);
    snprintf(path, sizeof path, "%s/oracle.npz", o->dir);
    o->data = data_open(path, &d);
    ck_assert_msg(o->meta && o->data, "%s: %s", path, d.msg);
    double own = json_number_value(json_object_get(o->meta, "grad_f32_vs_f64_err_over_global_grad_norm"));
    o->tolerance = own > 1e-4 ? 1e-2 : 1e-5;
    return true;
}

static void oracle_close(Oracle *o)
{
    json_decref(o->meta);
    data_close(o->data);
}

static void oracle_compile(const Oracle *o, TestStep *s, const char *file)
{
    char path[4200];
    const char *loss = json_string_value(json_object_get(o->meta, "loss"));
    snprintf(path, sizeof path, "%s/%s", o->dir, file);
    if (strncmp(loss, "mean squared", 12) == 0)
        s->opt.loss = LOSS_MSE;
    s->opt.import.unbiased_var = true; /* as PyTorch keeps it */
    ck_assert_msg(step_compile(s, path, NULL), "%s: %s", path, s->diag.msg);
}

/* || got - want || and || want ||, squared, added up */
static void add_error(const Tensor *got, const Tensor *want, double *err, double *norm)
{
    ck_assert_int_eq(type_count(&got->type), type_count(&want->type));
    for (int64_t i = 0; i < type_count(&want->type); i++) {
        double w = tensor_f(want, i), e = tensor_f(got, i) - w;
        *err += e * e;
        *norm += w * w;
    }
}

static bool is_zero_grad(const Oracle *o, const char *name)
{
    size_t i;
    json_t *v;
    json_array_foreach(json_object_get(o->meta, "zero_grad_params"), i, v)
        if (strcmp(json_string_value(v), name) == 0)
            return true;
    return false;
}

START_TEST(oracle_gradients)
{
    Oracle o;
    if (!oracle_open(&o, oracle[_i]))
        return;
    TestStep s;
    Tensor want;
    char key[512];
    double loss, err = 0, norm = 0;
    step_init(&s);
    s.opt.keep_grads = true;
    s.opt.optim = OPTIM_NONE;
    oracle_compile(&o, &s, "model_static.onnx");
    step_run(&s, o.data, 1, &loss);
    ck_assert_double_eq_tol(loss, json_number_value(json_object_get(o.meta, "loss_f64")),
                            2e-4 * fabs(loss));
    ck_assert_uint_eq(s.info.ntrained, json_array_size(json_object_get(o.meta, "trainable")));
    for (uint32_t i = 0; i < s.info.ntrained; i++) {
        const Trained *t = &s.info.trained[i];
        snprintf(key, sizeof key, "grad_f64/%s", s.g.vals[t->param.i].name);
        ck_assert_msg(data_get(o.data, key, &want, &s.diag), "%s", s.diag.msg);
        Tensor got = exec_tensor(s.exec, graph_root(&s.g, s.g.out[s.g.nout - s.info.ntrained + i]));
        add_error(&got, &want, &err, &norm);
    }
    printf("%-22s loss %.7f  gradient error %.2e of the norm\n", oracle[_i], loss, sqrt(err / norm));
    ck_assert_double_lt(sqrt(err / norm), o.tolerance);
    step_free(&s);
    oracle_close(&o);
}
END_TEST

typedef struct {
    const char *key;
    OptimKind kind;
    double lr;
} OracleOptim;
static const OracleOptim optims[] = {
    {"sgd_lr0.1", OPTIM_SGD, 0.1},
    {"sgd_lr0.05_mom0.9", OPTIM_MOMENTUM, 0.05},
    {"adamw_lr1e-3_b0.9_0.999_eps1e-8_wd0.01", OPTIM_ADAMW, 1e-3},
};

/* Parameters after five steps, where the oracle has them: relative to their norm.  Adam turns
 * the rounding noise of a gradient that is zero (a bias before a normalization, the key bias of
 * attention) into full steps, in PyTorch as here: such elements are left out. */
static void check_params(const Oracle *o, const TestStep *s, const OracleOptim *opt, double tol)
{
    double err = 0, norm = 0;
    uint32_t compared = 0;
    for (uint32_t i = 0; i < s->info.ntrained; i++) {
        char key[600];
        Tensor want;
        const char *name = s->g.vals[s->info.trained[i].param.i].name;
        snprintf(key, sizeof key, "param_f64_after5/%s/%s", opt->key, name);
        if (data_find(o->data, key) < 0 || is_zero_grad(o, name))
            continue;
        Diag d = {0};
        Tensor grad, got = exec_tensor(s->exec, s->info.trained[i].param);
        ck_assert(data_get(o->data, key, &want, &d));
        snprintf(key, sizeof key, "grad_f64/%s", name);
        ck_assert(data_get(o->data, key, &grad, &d));
        for (int64_t k = 0; k < type_count(&want.type); k++) {
            if (opt->kind == OPTIM_ADAMW && fabs(tensor_f(&grad, k)) < 1e-6)
                continue;
            double w = tensor_f(&want, k), e = tensor_f(&got, k) - w;
            err += e * e;
            norm += w * w;
        }
        compared++;
    }
    ck_assert(opt->kind != OPTIM_ADAMW || compared > 0);
    if (norm > 0)
        ck_assert_double_lt(sqrt(err / norm), tol);
}

/* The file was exported after its first step, whose running statistics the oracle holds: they
 * are 0.9 * (0 or 1) + 0.1 * batch.  Ours start from the file's. */
static void check_buffers(const Oracle *o, const TestStep *s)
{
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
            double batch = tensor_f(&want, k) - 0.9 * start;
            double e = tensor_f(&got, k) - (0.9 * tensor_f(&first, k) + batch);
            err += e * e;
            norm += batch * batch;
        }
        ck_assert_msg(sqrt(err / norm) < 1e-3, "%s: %g", key, sqrt(err / norm));
    }
}

/* In single precision within its rounding, in double precision to 1e-6.  MobileNet on batches of
 * four is chaotic (PyTorch's own single precision is 0.5 % off in the first gradient): its curve
 * is compared in double precision only, and as far as that goes: three steps. */
START_TEST(oracle_training)
{
    Oracle o;
    const OracleOptim *opt = &optims[_i / 2 / NORACLE];
    bool f64 = _i & 1;
    if (!oracle_open(&o, oracle[_i / 2 % NORACLE]))
        return;
    TestStep s;
    double loss[STEPS], tol = f64 ? 1e-6 : 1e-4;
    step_init(&s);
    s.opt.optim = opt->kind;
    s.opt.lr = opt->lr;
    s.opt.f64 = f64;
    oracle_compile(&o, &s, "model_static.onnx");
    step_run(&s, o.data, 1, loss);
    check_buffers(&o, &s);
    step_free(&s);
    if (!f64 && o.tolerance > 1e-3) {
        oracle_close(&o);
        return;
    }
    step_init(&s);
    s.opt.optim = opt->kind;
    s.opt.lr = opt->lr;
    s.opt.f64 = f64;
    oracle_compile(&o, &s, "model_static.onnx");
    step_run(&s, o.data, STEPS, loss);
    json_t *curve = json_object_get(json_object_get(o.meta, "loss_curve_5_steps_f64"), opt->key);
    bool chaotic = o.tolerance > 1e-3;
    for (size_t i = 0; i < (chaotic ? 3 : STEPS); i++) {
        double want = json_number_value(json_array_get(curve, i));
        ck_assert_msg(fabs(loss[i] - want) <= tol * (1 + fabs(want)),
                      "%s %s step %zu: %.8f, PyTorch %.8f", o.dir, opt->key, i + 1, loss[i], want);
    }
    if (!chaotic)
        check_params(&o, &s, opt, tol);
    step_free(&s);
    oracle_close(&o);
}
END_TEST

/* ---- any budget, same bits -------------------------------------------------------------------------
 * Compared are losses, parameters, running statistics and optimizer state after two steps; AdamW's
 * first moment after a step is a tenth of the gradient, so gradients are compared with it. */

typedef struct {
    const char *path;
    bool shared, init;
    OnnxBind bind[3];
    int nbind;
} Model;

#define ORACLE(name, batch) \
    {"fixtures/torch-oracle/" name "/model.onnx", true, false, {{"x0.0", batch}}, 1}
static const Model models[] = {
    ORACLE("conv_bn_pool", 16),
    ORACLE("gpt_tiny_tied", 16),
    ORACLE("llama_tiny_gqa", 16),
    ORACLE("lstm_bidi", 32),
    ORACLE("mlp_ln_gelu", 256),
    {"fixtures/torch-oracle/odds_broadcast/model_static.onnx", true, false, {{0}}, 0},
    ORACLE("tv_mobilenet_v2_x0_1", 8),
    ORACLE("tv_vit_tiny", 32),
    ORACLE("unet_tiny", 8),
    {"examples/mlp/model.onnx", false, false, {{"batch", 256}}, 1},
    {"examples/resnet18/model.onnx", false, true, {{"batch", 32}}, 1},
    {"examples/decoder/model.onnx", false, true, {{"batch", 8}, {"seq", 64}}, 2},
};
#undef ORACLE
enum { NMODELS = sizeof models / sizeof *models };

static bool model_compile(const Model *m, TestStep *s, double fraction, int64_t budget)
{
    char path[4200];
    static const Init init = {INIT_NORMAL, 0.02};
    const char *p = m->shared ? shared_path(m->path) : NULL;
    snprintf(path, sizeof path, "%s%s%s", p ? p : CKC_SOURCE_DIR, p ? "" : "/", p ? "" : m->path);
    step_init(s);
    s->opt.budget_fraction = fraction;
    s->opt.budget = budget;
    s->opt.import.bind = m->bind;
    s->opt.import.nbind = m->nbind;
    return step_compile(s, path, m->init ? &init : NULL);
}

START_TEST(any_budget_same_bits)
{
    const Model *m = &models[_i];
    static const double fractions[] = {0.75, 0.6, 0.5};
    double base[2], loss[2];
    TestStep s;
    if (m->shared && !shared_path(m->path))
        return;
    ck_assert_msg(model_compile(m, &s, 0, 0), "%s: %s", m->path, s.diag.msg);
    step_run(&s, NULL, 2, base);
    uint64_t want = step_digest(&s);
    int64_t keep = s.info.plan.arena_bytes;
    ck_assert_int_eq(exec_arena_bytes(s.exec), keep);
    step_free(&s);
    ck_assert(!model_compile(m, &s, 0, 1)); /* one byte: what is the least? */
    ck_assert_int_eq(s.diag.status, EXIT_INFEASIBLE);
    int64_t least = s.info.plan.min_feasible_bytes;
    step_free(&s);
    for (int i = 0; i < 4; i++) {
        int64_t budget = i == 3 ? least : (int64_t)(fractions[i] * (double)keep);
        bool ok = model_compile(m, &s, 0, budget);
        ck_assert_msg(ok == (budget >= least) || ok, "%s at %lld: %s", m->path, (long long)budget, s.diag.msg);
        if (ok) {
            ck_assert_int_le(s.info.plan.arena_bytes, budget);
            ck_assert_int_eq(exec_arena_bytes(s.exec), s.info.plan.arena_bytes);
            step_run(&s, NULL, 2, loss);
            ck_assert_msg(step_digest(&s) == want && memcmp(base, loss, sizeof base) == 0,
                          "%s at %lld of %lld bytes: other bits (loss %.9g %.9g, was %.9g %.9g)", m->path,
                          (long long)budget, (long long)keep, loss[0], loss[1], base[0], base[1]);
        }
        printf("%-60s %5.1f %% %s, %u recomputed\n", m->path, 100.0 * (double)budget / (double)keep,
               ok ? "same bits" : "infeasible", ok ? s.info.nrecomputed : 0);
        step_free(&s);
    }
}
END_TEST

Suite *suite_train(void)
{
    Suite *s = suite_create("train");
    TCase *c = tcase_create("oracle");
    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, oracle_gradients, 0, NORACLE);
    tcase_add_loop_test(c, oracle_training, 0, 6 * NORACLE);
    suite_add_tcase(s, c);
    c = tcase_create("budgets");
    tcase_set_timeout(c, 300);
    tcase_add_loop_test(c, any_budget_same_bits, 0, NMODELS);
    suite_add_tcase(s, c);
    return s;
}
