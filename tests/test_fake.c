/* test_fake.c -- plans on the device that is not there (runtime/fake.c): the same bits at every budget and no
 * broken rule; what is wrong with a plan is found. */
#include "tests.h"
#include "command.h"
#include "step.h"
#include <stdio.h>
#include <stdlib.h>

/* Interpreted: batches are small. */
typedef struct {
    const char *path;
    bool shared;
    OnnxBind bind[2];
    int nbind;
} Model;

#define ORACLE(name, batch) {"fixtures/torch-oracle/" name "/model.onnx", true, {{"x0.0", batch}}, 1}
static const Model models[] = {
    {"examples/mlp/model.onnx", false, {{"batch", 8}}, 1},
    {"examples/decoder/model.onnx", false, {{"batch", 1}, {"seq", 16}}, 2},
    ORACLE("conv_bn_pool", 4),
    ORACLE("gpt_tiny_tied", 4),
    ORACLE("llama_tiny_gqa", 4),
    ORACLE("lstm_bidi", 4),
    ORACLE("mlp_ln_gelu", 8),
    {"fixtures/torch-oracle/odds_broadcast/model_static.onnx", true, {{0}}, 0},
    ORACLE("tv_mobilenet_v2_x0_1", 4),
    ORACLE("tv_vit_tiny", 4),
    ORACLE("unet_tiny", 2),
};
enum { NMODELS = sizeof models / sizeof *models };

START_TEST(budgets_give_the_same_bits)
{
    static const Init init = {INIT_NORMAL, 0.02};
    const Model *m = &models[_i];
    const char *p = m->shared ? shared_path(m->path) : CKC_SOURCE_DIR;
    char path[4200];
    if (!p)
        return;
    snprintf(path, sizeof path, "%s%s%s", p, m->shared ? "" : "/", m->shared ? "" : m->path);
    check_budgets(&fake_device, path, &(OnnxOptions){.bind = m->bind, .nbind = m->nbind}, m->shared ? NULL : &init);
}
END_TEST

Suite *suite_fake(void)
{
    Suite *s = suite_create("fake");
    TCase *c = tcase_create("fake");
    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, budgets_give_the_same_bits, 0, NMODELS);
    suite_add_tcase(s, c);
    return s;
}
