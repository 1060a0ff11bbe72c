/* networks.c -- see networks.h. */
#include "tests.h"
#include "networks.h"
#include <stdlib.h>
#include <string.h>

#define ORACLE(name, batch)                                                                                  \
    {                                                                                                        \
        "fixtures/torch-oracle/" name "/model.onnx", true, {{"x0.0", batch}}, 1, false                       \
    }
#define SLOW(name, batch)                                                                                    \
    {                                                                                                        \
        "fixtures/torch-oracle/" name "/model.onnx", true, {{"x0.0", batch}}, 1, true                        \
    }
const Network networks[NETWORKS] = {
    {"examples/mlp/model.onnx", false, {{"batch", 8}}, 1, false},
    {"examples/decoder/model.onnx", false, {{"batch", 1}, {"seq", 16}}, 2, true},
    ORACLE("conv_bn_pool", 4),
    ORACLE("gpt_tiny_tied", 2),
    ORACLE("llama_tiny_gqa", 2),
    SLOW("lstm_bidi", 2),
    ORACLE("mlp_ln_gelu", 8),
    {"fixtures/torch-oracle/odds_broadcast/model_static.onnx", true, {{0}}, 0, false},
    SLOW("tv_mobilenet_v2_x0_1", 2),
    SLOW("tv_vit_tiny", 2),
    SLOW("unet_tiny", 1),
    {"tests/data/zoo/sdpa_gpt_dynamo/model.onnx",
     false,
     {{"batch", 2}},
     1,
     false}, /* a decoder that is not slow */
};

const Init network_init = {INIT_NORMAL, 0.02};

bool network_path(const Network *m, char path[4200])
{
    const char *p = m->shared ? shared_path(m->path) : CKC_SOURCE_DIR;
    if (p)
        snprintf(path, 4200, "%s%s%s", p, m->shared ? "" : "/", m->shared ? "" : m->path);
    return p != NULL;
}

void network_options(TestStep *s, const Network *m, int64_t budget)
{
    static OnnxBind bind[2];
    memcpy(bind, m->bind, sizeof bind);
    bind[0].value *= getenv("CKC_LONG") ? 8 : 1;
    step_init(s);
    s->opt.import = (OnnxOptions){.bind = bind, .nbind = m->nbind};
    s->opt.budget = budget;
}

bool network_plan(TestStep *s, const Network *m, const char *path, int64_t budget)
{
    network_options(s, m, budget);
    return step_plan(s, path, m->shared ? NULL : &network_init);
}
