/* test_train.c -- whole training steps give PyTorch's numbers, and the same bits at every budget. */
#include "tests.h"
#include "oracle.h"
#include <stdlib.h>
#include <string.h>

/* ---- the oracle: loss, gradients, five steps of three optimizers ------------------------------ */

static const char *const oracle[] = {
    "conv_bn_pool", "gpt_tiny_tied", "llama_tiny_gqa", "lstm_bidi", "mlp_ln_gelu",
    "odds_broadcast", "tv_mobilenet_v2_x0_1", "tv_vit_tiny", "unet_tiny",
};
enum { NORACLE = sizeof oracle / sizeof *oracle };

static bool network(Oracle *o, int i)
{
    char rel[256];
    snprintf(rel, sizeof rel, "fixtures/torch-oracle/%s", oracle[i]);
    const char *dir = shared_path(rel);
    if (dir)
        oracle_open(o, dir);
    return dir != NULL;
}

START_TEST(oracle_gradients)
{
    Oracle o;
    if (!network(&o, _i / 2))
        return;
    oracle_check_gradients(&o, "model_static.onnx", _i & 1);
    oracle_close(&o);
}
END_TEST

START_TEST(oracle_training)
{
    Oracle o;
    if (!network(&o, _i / 2 % NORACLE))
        return;
    oracle_check_training(&o, "model_static.onnx", _i / 2 / NORACLE, _i & 1);
    oracle_close(&o);
}
END_TEST

/* ---- any budget, same bits ---------------------------------------------------------------------- */

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
enum { NMODELS = sizeof models / sizeof *models, NHALF = 10 }; /* so many of them also in 16 bits */

/* Is the model left out in 16 bits?  Those that take longest under sanitizers are, unless CKC_LONG is set. */
static bool is_left_out(const Model *m, PrecisionKind precision)
{
    static const char *const name[] = {"llama", "lstm", "mobilenet", "vit", "unet"};
    bool slow = precision == PRECISION_FP16 && strstr(m->path, "gpt");
    for (size_t k = 0; k < sizeof name / sizeof *name && precision != PRECISION_F32; k++)
        slow |= strstr(m->path, name[k]) != NULL;
    return slow && !getenv("CKC_LONG");
}

START_TEST(any_budget_same_bits)
{
    const Model *m = &models[_i < NMODELS ? _i : (_i - NMODELS) % NHALF];
    static const Init init = {INIT_NORMAL, 0.02};
    static const PrecisionKind halves[] = {PRECISION_BF16, PRECISION_FP16};
    PrecisionKind precision = _i < NMODELS ? PRECISION_F32 : halves[(_i - NMODELS) / NHALF];
    char path[4200];
    const char *p = m->shared ? shared_path(m->path) : NULL;
    if (m->shared && !p)
        return;
    if (is_left_out(m, precision)) {
        skipped("16 bits, which takes minutes under sanitizers: CKC_LONG=1");
        return;
    }
    snprintf(path, sizeof path, "%s%s%s", p ? p : CKC_SOURCE_DIR, p ? "" : "/", p ? "" : m->path);
    check_budgets(path, &(OnnxOptions){.bind = m->bind, .nbind = m->nbind}, m->init ? &init : NULL,
                  precision);
}
END_TEST

Suite *suite_train(void)
{
    Suite *s = suite_create("train");
    TCase *c = tcase_create("oracle");
    tcase_add_loop_test(c, oracle_gradients, 0, 2 * NORACLE);
    tcase_add_loop_test(c, oracle_training, 0, 2 * NOPTIMS * NORACLE);
    suite_add_tcase(s, c);
    c = tcase_create("budgets");
    tcase_add_loop_test(c, any_budget_same_bits, 0, NMODELS + 2 * NHALF);
    suite_add_tcase(s, c);
    return s;
}
