/* test_module.c -- modules are recognised by paths in exporters' names and records, and --emit torch writes a
 * policy that names them. */
#include "tests.h"
#include "command.h"
#include "ir/module.h"
#include <stdlib.h>
#include <string.h>

START_TEST(paths_in_names)
{
    static const char *const path[][4] = {
        {"h.3.attn.c_proj.weight", "h.3.attn.c_proj", "h.3.attn", "h.3"},
        {"/h/h.3/attn/MatMul", "h.3.attn", "h.3.attn", "h.3"},
        {"/layer1/layer1.0/conv1/Conv", "layer1.0.conv1", "layer1.0.conv1", "layer1.0"},
        {"/model/model/layers.0/mlp/Mul", "model.model.layers.0.mlp", "model.model.layers.0.mlp",
         "model.model.layers.0"},
        {"model.model.layers.11.mlp.act/node_mul_7", "model.model.layers.11.mlp.act",
         "model.model.layers.11.mlp", "model.model.layers.11"},
        {"fc/node_linear.1", "fc", "fc", ""},
        {"node_linear", "", "", ""},
        {"", "", "", ""},
    };
    Arena a = {0};
    for (size_t i = 0; i < sizeof path / sizeof *path; i++) {
        ck_assert_str_eq(module_path(path[i][0], false, &a), path[i][1]);
        ck_assert_str_eq(module_path(path[i][0], true, &a), path[i][2]);
        ck_assert_str_eq(module_block(path[i][1], &a), path[i][3]);
    }
    arena_free(&a);
}
END_TEST

#define BLOCKS                                                                                               \
    CKC_SOURCE_DIR "/tests/data/blocks.onnx --device fake --offload no --moves 20000 --optimizer sgd "

/* Activations of a model of torch.export, whose names have no paths, get modules from records of nodes. */
START_TEST(activations_have_modules)
{
    ckc_accepts("plan " BLOCKS "--json -o o");
    json_t *report = read_json("out");
    json_t *layers = json_object_get(json_object_get(report, "peak"), "layers"), *layer;
    size_t i;
    int64_t with = 0, without = 0;
    json_array_foreach(layers, i, layer)
    {
        int64_t bytes = json_integer_value(json_object_get(layer, "activations"));
        *(*json_string_value(json_object_get(layer, "layer")) ? &with : &without) += bytes;
    }
    ck_assert_int_gt(with, 4 * without);
    json_decref(report);
}
END_TEST

START_TEST(policy_names_blocks)
{
    ckc_fails("", "plan " BLOCKS "--budget 1kB -o o", 3, "feasible");
    int64_t least = ckc_least_budget();
    ckc_accepts(format("plan " BLOCKS "--budget %lld --quiet --emit torch -o o", (long long)least));
    char *text = read_text("o/policy.py");
    char *blocks = strstr(text, "BLOCKS = ["), *saved = strstr(text, "SAVE = {");
    ck_assert(blocks && saved && strstr(text, "def apply(model)"));
    ck_assert_msg(strstr(blocks, "layers.1\",\n") && strstr(blocks, "layers.1\",\n") < saved, "%s", text);
    free(text);
}
END_TEST

Suite *suite_module(void)
{
    Suite *s = suite_create("module");
    TCase *t = command_case(s, "module");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, paths_in_names);
    tcase_add_test(t, activations_have_modules);
    tcase_add_test(t, policy_names_blocks);
    return s;
}
