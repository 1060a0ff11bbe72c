/* test_onnx_models.c -- the import of whole models: PyTorch's networks, zoo files, ONNX's operator tests.
 * All but the examples lie in ../shared.  Pools over a batch; biases of one element. */
#include "tests.h"

#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "imported.h"
#include "onnx_builder.h"
#include "runtime/data.h"

static void compare_with_meta(const Imported *r, const char *path)
{
    json_error_t e;
    json_t *meta = json_load_file(path, 0, &e);
    ck_assert_msg(meta != NULL, "%s: %s", path, e.text);
    json_t *list = json_object_get(meta, "trainable");
    size_t params = 0;
    for (uint32_t i = 1; i < r->g.nvals; i++)
        params += r->g.vals[i].kind == VAL_PARAM;
    ck_assert_msg(params == json_array_size(list), "%s: %zu parameters, %zu expected", path,
                  params, json_array_size(list));
    for (size_t i = 0; i < json_array_size(list); i++)
        ck_assert_int_eq(kind_of(&r->g, json_string_value(json_array_get(list, i))),
                         VAL_PARAM);
    json_decref(meta);
}

static const char *const networks[] = {
    "conv_bn_pool",   "gpt_tiny_tied",        "llama_tiny_gqa", "lstm_bidi", "mlp_ln_gelu",
    "odds_broadcast", "tv_mobilenet_v2_x0_1", "tv_vit_tiny",    "unet_tiny"};

/* Returns the folder of network i in the arena.  NULL: it is not there, and the arena is freed. */
static const char *network_folder(Arena *a, int i)
{
    const char *dir = shared(a, arena_printf(a, "fixtures/torch-oracle/%s", networks[i]));
    if (!dir)
        arena_free(a);
    return dir;
}

START_TEST(networks_train_what_pytorch_trains)
{
    Arena a = {0};
    const char *dir = network_folder(&a, _i);
    if (!dir)
        return;
    OnnxBind bind = {"batch", 4};
    Imported r = import_file(arena_printf(&a, "%s/model.onnx", dir));
    ck_assert_msg(build_graph(&r, &(OnnxOptions){.bind = &bind, .nbind = 1}), "%s",
                  r.d.msg);
    compare_with_meta(&r, arena_printf(&a, "%s/meta.json", dir));
    release(&r);
    arena_free(&a);
}
END_TEST

/* The reference evaluator's output of each network is PyTorch's, within 5e-4 of its largest element. */
START_TEST(networks_compute_what_pytorch_computes)
{
    Arena a = {0};
    const char *dir = network_folder(&a, _i);
    if (!dir)
        return;
    Diag d = {0};
    DataFile *data = data_open(arena_printf(&a, "%s/oracle.npz", dir), &d);
    ck_assert_msg(data != NULL, "%s", d.msg);
    OnnxFeed feed = {.name = "x0"};
    Tensor want;
    ck_assert_msg(data_get(data, "input/x0", &feed.t, &d), "%s", d.msg);
    ck_assert_msg(data_get(data, "output/y", &want, &d), "%s", d.msg);
    Imported r = import_file(arena_printf(&a, "%s/model.onnx", dir));
    ck_assert_msg(
        build_graph(&r, &(OnnxOptions){.feed = &feed, .nfeed = 1, .forward_only = true}),
        "%s", r.d.msg);
    void **bytes = NEW(&a, void *, r.g.nvals);
    ck_assert_msg(graph_eval(&r.g, bytes, &a, &r.d), "%s", r.d.msg);
    Tensor got = {*val_type(&r.g, r.g.out[0]), bytes[r.g.out[0].i]};
    ck_assert(type_equal(&got.type, &want.type));
    double worst = 0, size = 0;
    for (int64_t i = 0; i < type_count(&want.type); i++) {
        worst = fmax(worst, fabs(tensor_f(&got, i) - tensor_f(&want, i)));
        size = fmax(size, fabs(tensor_f(&want, i)));
    }
    ck_assert_msg(worst <= 5e-4 * size, "%s: off by %g of %g", networks[_i], worst, size);
    data_close(data);
    release(&r);
    arena_free(&a);
}
END_TEST

/* ---- whole models ------------------------------------------------------- */

static const struct {
    const char *path;
    const char *symbol[2];
    int64_t value[2];
    int params; /* number of the network's parameters; -1: not checked */
} models[] = {
    {"fixtures/models/light_bvlc_alexnet.onnx", {0}, {0}, 16},
    {"fixtures/models/light_inception_v1.onnx", {0}, {0}, 116},
    {"fixtures/models/light_resnet50.onnx", {0}, {0}, 161},
    {"fixtures/models/light_squeezenet.onnx", {0}, {0}, 52},
    {"fixtures/models/light_vgg19.onnx", {0}, {0}, 38},
    {"fixtures/models/gpt2_past.onnx", {"batch_size", "seq_len"}, {2, 3}, 148},
    {"fixtures/models/cnn_mnist_pytorch.onnx", {0}, {0}, 8},
    {"fixtures/models/mnist_cntk.onnx", {0}, {0}, -1},
    {"fixtures/models/super_resolution_10/model.onnx", {"batch_size"}, {2}, 8},
    {"examples/decoder/model.onnx", {"batch", "seq"}, {2, 16}, 76},
    {"examples/resnet18/model.onnx", {"batch"}, {2}, 62},
    {"examples/mlp/model.onnx", {"batch"}, {2}, 10},
};

START_TEST(models_import)
{
    Arena a = {0};
    const char *path = strncmp(models[_i].path, "examples/", 9) == 0
                           ? arena_printf(&a, "%s/%s", CKC_SOURCE_DIR, models[_i].path)
                           : shared(&a, models[_i].path);
    if (!path) /* the arena has nothing to free */
        return;
    OnnxBind bind[2];
    OnnxOptions opt = {.bind = bind};
    for (; opt.nbind < 2 && models[_i].symbol[opt.nbind]; opt.nbind++)
        bind[opt.nbind] =
            (OnnxBind){models[_i].symbol[opt.nbind], models[_i].value[opt.nbind]};
    Imported r = import_file(path);
    ck_assert_msg(build_graph(&r, &opt), "%s", r.d.msg);
    int params = 0;
    for (uint32_t i = 1; i < r.g.nvals; i++)
        params += r.g.vals[i].kind == VAL_PARAM;
    if (models[_i].params >= 0)
        ck_assert_msg(params == models[_i].params, "%s: %d parameters", path, params);
    release(&r);
    arena_free(&a);
}
END_TEST

/* The generated kernels compute the answer that is recorded with a network of the zoo. */
START_TEST(recorded_answer)
{
    Arena a = {0};
    const char *dir = shared(&a, "fixtures/models/super_resolution_10");
    if (dir)
        ckc_accepts(format("eval '%s/model.onnx' --data '%s/test_data_set_0' --expect '%s/test_data_set_0'",
                           dir, dir, dir));
    arena_free(&a);
}
END_TEST

/* In data, input_K is the model's input K, even if --bind gives an earlier input its value or shapes depend
 * on an earlier one. */
START_TEST(inputs_by_number)
{
    static float w[6] = {1, 2, 3, 4, 5, 6}, x[8] = {1}, target[12];
    int64_t k = 4, shape[2] = {4, 2};
    Arena a = {0};
    Builder b;
    Diag d = {0};
    start(&b, 17);
    add_value(&b, &a, "k", INT64, "", true);
    add_value(&b, &a, "shape", INT64, "2", true);
    add_value(&b, &a, "x", FLOAT, "42", true);
    add_value(&b, &a, "y", FLOAT, "PQ", false);
    add_tensor(&b, "w", 2, (int64_t[]){2, 3}, w);
    add_node(&b, &a, "Reshape", "x shape", "rows");
    add_node(&b, &a, "MatMul", "rows w", "y");
    save(&b, &a, "shape.onnx");
    NamedTensor data[] = {{"input_0", {type_scalar(DT_I64), &k}},
                          {"input_1", {type_make(DT_I64, 1, (int64_t[]){2}), shape}},
                          {"input_2", {type_make(DT_F32, 2, (int64_t[]){4, 2}), x}},
                          {"input_3", {type_make(DT_F32, 2, (int64_t[]){4, 3}), target}}};
    ck_assert_msg(npz_write("d.npz", 4, data, &d), "%s", d.msg);
    ckc_accepts("eval shape.onnx --data d.npz");
    b.node[0].op_type = (char[]){"Identity"};
    b.node[0].n_input = 1;
    save(&b, &a, "bound.onnx");
    ckc_accepts("bound.onnx --bind k=4 --loss mse --data d.npz -o p --quiet --save a.safetensors");
    ckc_accepts("run p/step.ckp --data d.npz --quiet --save b.safetensors");
    same_file("a.safetensors", "b.safetensors");
    arena_free(&a);
}
END_TEST

/* ---- ONNX's own operator tests ------------------------------------------ */

/* Reciprocals of the relative and absolute tolerance that ONNX's runner compares with. */
enum { RTOL = 1000, ATOL = 10000000 };

/* Returns the tier of a test by the text of INDEX.tsv ("name<TAB>tier<TAB>..."); 0 if it is not listed. */
static int tier_of(const char *index, const char *name)
{
    size_t n = strlen(name);
    for (const char *line = index; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, n) == 0 && line[n] == '\t')
            return atoi(line + n + 1);
    }
    return 0;
}

START_TEST(operator_tests_of_the_standard)
{
    Arena a = {0};
    const char *tar = shared(&a, "fixtures/onnx-node-tests.tar.gz");
    if (!tar)
        return;
    ck_assert_int_eq(shell(format("tar xzf '%s'", tar)), 0);
    char *index = read_text("onnx-node-tests/INDEX.tsv");
    DIR *dir = opendir("onnx-node-tests");
    ck_assert_ptr_nonnull(dir);
    int count[4][3] = {{0}};
    for (struct dirent *e; (e = readdir(dir));) {
        const char *path = arena_printf(&a, "onnx-node-tests/%s", e->d_name);
        if (access(arena_printf(&a, "%s/model.onnx", path), F_OK) != 0)
            continue;
        Diag why = {0};
        OnnxVerdict v = onnx_check_folder(path, 1.0 / RTOL, 1.0 / ATOL, &why);
        count[tier_of(index, e->d_name) & 3][v]++;
        if (v == ONNX_FAILED)
            printf("failed: %s\n", why.msg);
    }
    closedir(dir);
    free(index);
    for (int t = 1; t <= 3; t++)
        printf("ONNX operator tests, tier %d: %d passed, %d refused, %d failed\n", t,
               count[t][ONNX_PASSED], count[t][ONNX_REFUSED], count[t][ONNX_FAILED]);
    /* In tier 3 the expected noise of an inverse Fourier transform is above the
     * tolerance. */
    for (int t = 0; t <= 2; t++)
        ck_assert_int_eq(count[t][ONNX_FAILED], 0);
    ck_assert_int_le(count[3][ONNX_FAILED], 2);
    ck_assert_int_gt(count[1][ONNX_PASSED], 20 * count[1][ONNX_REFUSED]);
    arena_free(&a);
}
END_TEST

static void add_list(Builder *b, Onnx__NodeProto *n, const char *name, size_t count, const int64_t *v)
{
    Onnx__AttributeProto *list = add_attr(b, n, name);
    list->n_ints = count;
    list->ints = (int64_t *)(uintptr_t)v;
}

static void add_shape(Builder *b, const char *name, int64_t rank, const int64_t *v)
{
    Onnx__TensorProto *t = add_tensor(b, name, 1, &rank, NULL);
    t->data_type = INT64;
    t->n_int64_data = (size_t)rank;
    t->int64_data = (int64_t *)(uintptr_t)v;
}

/* jax2onnx pools channels last with a window that counts the batch and the channels among its dimensions. */
START_TEST(pools_over_the_batch)
{
    static const int64_t shape[] = {1, 1, 2, 4, 1, 2}, window[] = {1, 3, 1, 1}, strides[] = {1, 2, 1, 1};
    static const int64_t pads[] = {0, 1, 0, 0, 0, 0, 0, 0};
    static float x[] = {1, -2, 3, 4, -5, 6, 7, 8, 8, 7, 6, -5, 4, 3, -2, 1};
    static const float want[2][8] = {{3, 4, 7, 8, 8, 7, 6, 3}, {2, 1, 5 / 3.f, 6, 7, 1, 8 / 3.f, -1 / 3.f}};
    Arena a = {0};
    Builder b;
    start(&b, 13);
    add_value(&b, &a, "x", FLOAT, "242", true);
    add_value(&b, &a, "y", FLOAT, "222", false);
    add_shape(&b, "shape", 6, shape);
    add_node(&b, &a, "Reshape", "x shape", "h");
    Onnx__NodeProto *n = add_node(&b, &a, _i ? "AveragePool" : "MaxPool", "h", "p");
    add_list(&b, n, "kernel_shape", 4, window);
    add_list(&b, n, "strides", 4, strides);
    add_list(&b, n, "pads", 8, pads);
    add_node(&b, &a, "Squeeze", "p", "y");
    Imported r = import_file(save(&b, &a, "pool.onnx"));
    ck_assert_msg(build_graph(&r, &(OnnxOptions){0}), "%s", r.d.msg);
    const float *y = output_of(&r, &a, 1, &(Fed){"x", x});
    for (int i = 0; i < 8; i++)
        ck_assert_float_eq_tol(y[i], want[_i][i], 1e-6f);
    release(&r);
    arena_free(&a);
}
END_TEST

/* A bias of one element trains behind a product that exporters of Keras have cast or reshaped, and what is
 * added to anything else does not. */
START_TEST(biases_of_one_element)
{
    static const char *const between[] = {"Cast", "Reshape", "Transpose", "Relu"};
    static float w[] = {3, 1}, one[] = {0.5f};
    static const int64_t shape[] = {1, 2};
    Arena a = {0};
    Builder b;
    start(&b, 13);
    add_value(&b, &a, "x", FLOAT, "22", true);
    add_value(&b, &a, "y", FLOAT, "??", false);
    add_tensor(&b, "w", 2, (int64_t[]){2, 1}, w);
    add_tensor(&b, "b", 1, (int64_t[]){1}, one);
    add_shape(&b, "shape", 2, shape);
    add_node(&b, &a, "MatMul", "x w", "h");
    Onnx__NodeProto *n = add_node(&b, &a, between[_i], _i == 1 ? "h shape" : "h", "k");
    if (_i == 0)
        add_int(&b, n, "to", FLOAT);
    add_node(&b, &a, "Add", "k b", "y");
    Imported r = import_file(save(&b, &a, "bias.onnx"));
    ck_assert_msg(build_graph(&r, &(OnnxOptions){0}), "%s", r.d.msg);
    ck_assert_int_eq(kind_of(&r.g, "b"), _i < 3 ? VAL_PARAM : VAL_CONST);
    release(&r);
    arena_free(&a);
}
END_TEST

Suite *suite_onnx_models(void)
{
    Suite *s = suite_create("onnx_models");
    TCase *t = tcase_create("models");
    tcase_add_checked_fixture(t, make_folder, remove_folder);
    int n = (int)(sizeof networks / sizeof networks[0]);
    tcase_add_loop_test(t, networks_train_what_pytorch_trains, 0, n);
    tcase_add_loop_test(t, networks_compute_what_pytorch_computes, 0, n);
    tcase_add_loop_test(t, models_import, 0, (int)(sizeof models / sizeof models[0]));
    tcase_add_test(t, recorded_answer);
    tcase_add_test(t, inputs_by_number);
    tcase_add_test(t, operator_tests_of_the_standard);
    tcase_add_loop_test(t, pools_over_the_batch, 0, 2);
    tcase_add_loop_test(t, biases_of_one_element, 0, 4);
    suite_add_tcase(s, t);
    return s;
}
