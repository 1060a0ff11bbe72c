/* test_trains.c -- what an imported model trains: the rule for its weights, ties, and how batch
 * normalization and dropout are brought to training form. */
#include "tests.h"

#include <math.h>
#include <string.h>

#include "command.h"
#include "imported.h"
#include "onnx_builder.h"
#include "runtime/runtime.h"

enum { INT64 = 7 };

/* ---- roles -------------------------------------------------------------- */

START_TEST(values_decide_what_trains)
{
    static float mask[64], wave[64], ladder[8], frequency[8], ones[8], zeros[8], nearly[8],
        one[1] = {2};
    Arena a = {0};
    Builder b;
    for (int i = 0; i < 64; i++) {
        mask[i] = i % 8 > i / 8 ? -INFINITY : 0;
        wave[i] = cosf((float)(i / 8) / (float)(1 + i % 8));
    }
    for (int i = 0; i < 8; i++) {
        ladder[i] = (float)i;
        frequency[i] = powf(1e4f, -(float)i / 8);
        ones[i] = 1;
        nearly[i] = 0.99f + 1e-6f * (float)(i * i % 5); /* a norm's scale after a step: no progression */
    }
    start(&b, 13);
    add_value(&b, &a, "x", FLOAT, "88", true);
    add_value(&b, &a, "y", FLOAT, "88", false);
    static const char *const names[] = {"mask",      "wave", "ladder",
                                        "frequency", "ones", "zeros", "nearly"};
    float *data[] = {mask, wave, ladder, frequency, ones, zeros, nearly};
    const char *before = "x";
    for (int i = 0; i < 7; i++) {
        add_tensor(&b, names[i], i < 2 ? 2 : 1, (int64_t[]){8, 8}, data[i]);
        const char *next = i == 6 ? "h" : arena_printf(&a, "h%d", i);
        add_node(&b, &a, "Add", arena_printf(&a, "%s %s", before, names[i]), next);
        before = next;
    }
    add_tensor(&b, "scalar", 1, (int64_t[]){1}, one);
    add_node(&b, &a, "Mul", "h scalar", "y");
    Imported r = import_file(save(&b, &a, "roles.onnx"));
    const char *train[] = {"mas?"};
    ck_assert_msg(build_graph(&r, &(OnnxOptions){0}), "%s", r.d.msg);
    static const ValKind want[] = {VAL_CONST, VAL_CONST, VAL_CONST,
                                   VAL_CONST, VAL_PARAM, VAL_PARAM, VAL_PARAM};
    for (int i = 0; i < 7; i++)
        ck_assert_msg(kind_of(&r.g, names[i]) == want[i], "%s", names[i]);
    ck_assert_int_eq(kind_of(&r.g, "scalar"), VAL_CONST);
    ck_assert(noted(r.m, ONNX_FROZEN, "mask", "mask") &&
              noted(r.m, ONNX_FROZEN, "wave", "sinusoid"));
    arena_free(&r.arena);
    ck_assert(build_graph(&r, &(OnnxOptions){.train = train, .ntrain = 1}));
    ck_assert_int_eq(kind_of(&r.g, "mask"), VAL_PARAM);
    release(&r);
    arena_free(&a);
}
END_TEST

/* If nothing is chosen to train, a model with adapters gets a note on what PyTorch trains of it. */
START_TEST(adapters_are_told)
{
    static float low[16], base[64];
    static const char *const chosen[] = {"*lora_*"};
    Arena a = {0};
    Builder b;
    for (int i = 0; i < 64; i++)
        base[i] = low[i % 16] = sinf((float)(i * i));
    start(&b, 13);
    add_value(&b, &a, "x", FLOAT, "88", true);
    add_value(&b, &a, "y", FLOAT, "88", false);
    add_tensor(&b, "q.base_layer.weight", 2, (int64_t[]){8, 8}, base);
    add_tensor(&b, "q.lora_A.default.weight", 2, (int64_t[]){8, 2}, low);
    add_tensor(&b, "q.lora_B.default.weight", 2, (int64_t[]){2, 8}, low);
    add_node(&b, &a, "MatMul", "x q.base_layer.weight", "h");
    add_node(&b, &a, "MatMul", "x q.lora_A.default.weight", "k");
    add_node(&b, &a, "MatMul", "k q.lora_B.default.weight", "l");
    add_node(&b, &a, "Add", "h l", "y");
    Imported r = import_file(save(&b, &a, "adapter.onnx"));
    for (int n = 0; n < 2; n++) {
        arena_free(&r.arena);
        ck_assert_msg(build_graph(&r, &(OnnxOptions){.train = chosen, .ntrain = n}), "%s", r.d.msg);
        ck_assert(noted(r.m, ONNX_REMARK, "q.lora_A.default.weight", "--train '*lora_*'") == (n == 0));
    }
    release(&r);
    arena_free(&a);
}
END_TEST

/* A bias trains: a recurrent network's of zeros and ones, the values of a mask, and one of a single element
 * that is added behind a transpose. */
START_TEST(biases_train)
{
    static float w[64] = {1, 2, 3}, b[16] = {0, 0, 0, 0, 1, 1}, one = 2;
    Arena a = {0};
    Builder m;
    start(&m, 14);
    add_value(&m, &a, "x", FLOAT, "2312", true);
    add_value(&m, &a, "s", FLOAT, "312", true);
    add_value(&m, &a, "y", FLOAT, "2112", false);
    add_value(&m, &a, "h", FLOAT, "3112", false);
    add_tensor(&m, "filter", 4, (int64_t[]){1, 3, 1, 1}, w);
    add_tensor(&m, "bias", 1, (int64_t[]){1}, &one);
    add_tensor(&m, "W", 3, (int64_t[]){1, 8, 2}, w);
    add_tensor(&m, "R", 3, (int64_t[]){1, 8, 2}, w);
    add_tensor(&m, "B", 2, (int64_t[]){1, 16}, b);
    add_node(&m, &a, "Conv", "x filter", "c");
    add_node(&m, &a, "Transpose", "c", "t");
    add_node(&m, &a, "Add", "t bias", "y");
    add_int(&m, add_node(&m, &a, "LSTM", "s W R B", "h"), "hidden_size", 2);
    Imported r = import_file(save(&m, &a, "biases.onnx"));
    ck_assert_msg(build_graph(&r, &(OnnxOptions){0}), "%s", r.d.msg);
    ck_assert_int_eq(kind_of(&r.g, "bias"), VAL_PARAM);
    ck_assert_int_eq(kind_of(&r.g, "B"), VAL_PARAM);
    release(&r);
    arena_free(&a);
}
END_TEST

/* Weights of classes are frozen: PyTorch computes no gradient of them, and TorchScript's exporter does not
 * say that they are a buffer. */
START_TEST(weights_of_classes_do_not_train)
{
    static const char *const losses[] = {"NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"};
    static float w[4] = {1, 2, 3, 5}, classes[4] = {0.5F, 0.2F, 0.7F, 0.1F};
    for (int i = 0; i < 2; i++) {
        Arena a = {0};
        Builder m;
        start(&m, 13);
        add_value(&m, &a, "x", FLOAT, "31", true);
        add_value(&m, &a, "t", INT64, "3", true);
        add_value(&m, &a, "y", FLOAT, "", false);
        add_tensor(&m, "w", 2, (int64_t[]){1, 4}, w);
        add_tensor(&m, "classes", 1, (int64_t[]){4}, classes);
        add_node(&m, &a, "MatMul", "x w", "h");
        add_node(&m, &a, losses[i], "h t classes", "y");
        Imported r = import_file(save(&m, &a, "classes.onnx"));
        ck_assert_msg(build_graph(&r, &(OnnxOptions){0}), "%s", r.d.msg);
        ck_assert_int_eq(kind_of(&r.g, "w"), VAL_PARAM);
        ck_assert_int_eq(kind_of(&r.g, "classes"), VAL_CONST);
        ck_assert(noted(r.m, ONNX_FROZEN, "classes", losses[i]));
        release(&r);
        arena_free(&a);
    }
}
END_TEST

/* Random targets for a network that ends in a Sigmoid are 0 or 1: with others, the loss of such large logits
 * would be below zero for some seeds. */
START_TEST(random_targets_are_binary)
{
    static float w[2] = {3e3f, -3e3f};
    Arena a = {0};
    Builder b;
    start(&b, 13);
    add_value(&b, &a, "x", FLOAT, "N2", true);
    add_value(&b, &a, "y", FLOAT, "N1", false);
    add_tensor(&b, "w", 2, (int64_t[]){2, 1}, w);
    add_node(&b, &a, "MatMul", "x w", "h");
    add_node(&b, &a, "Sigmoid", "h", "y");
    save(&b, &a, "s.onnx");
    for (int seed = 1; seed < 9; seed++) {
        ckc_accepts(format("s.onnx --bind batch=2 --optimizer none --grads g.npz -q --seed %d", seed));
        Diag d = {0};
        Tensor loss;
        DataFile *f = data_open("g.npz", &d);
        ck_assert_msg(f && data_get(f, "loss", &loss, &d), "%s", d.msg);
        ck_assert_double_ge(tensor_f(&loss, 0), 0);
        data_close(f);
    }
    arena_free(&a);
}
END_TEST

/* What trains of a ramp, a table, a scalar and a scalar with a name that PyTorch's exporter makes up follows
 * from the producer and, if there is one, the graph signature in the metadata. */
START_TEST(exporters_say_what_trains)
{
    static const char *const names[] = {"m.ramp", "m.table", "m.gain", "onnx::Mul_3"};
    static float ramp[8] = {1, 2, 3, 4, 5, 6, 7, 8}, table[8] = {3, 1, 4, 1, 5, 9, 2, 6}, one = 2;
    static const char closed_over[] =
        "p_m_other: PARAMETER target='m.other'\n"
        "c_m_ramp: CONSTANT_TENSOR target='m.ramp'\nc_m_table: CONSTANT_TENSOR target='m.table'\n";
    static const char constant[] =
        "p_m_gain: PARAMETER target='m.gain'\nc_m_table: CONSTANT_TENSOR target='m.table'\n";
    static const struct {
        const char *producer, *signature;
        ValKind want[4];
    } cases[] = {
        {"tf2onnx", NULL, {VAL_CONST, VAL_PARAM, VAL_CONST, VAL_CONST}},
        {"pytorch", NULL, {VAL_CONST, VAL_PARAM, VAL_PARAM, VAL_CONST}},
        {"pytorch", closed_over, {VAL_CONST, VAL_PARAM, VAL_CONST, VAL_CONST}},
        {"pytorch", constant, {VAL_CONST, VAL_CONST, VAL_PARAM, VAL_CONST}},
        {"pytorch",
         "\n# inputs\np_m_ramp: PARAMETER target='m.ramp'\n"
         "b_m_table: BUFFER target='m.table' persistent=True\n"
         "p_m_gain: PARAMETER target='m.gain'\n"
         "b_bn_mean: BUFFER target='bn.running_mean'\nx: USER_INPUT\n\n# outputs\n"
         "getitem: BUFFER_MUTATION target='bn.running_mean'\n"
         "div: PARAMETER_MUTATION target='m.gain'\ny: USER_OUTPUT\n",
         {VAL_PARAM, VAL_CONST, VAL_PARAM, VAL_CONST}},
    };
    Arena a = {0};
    Builder b;
    start(&b, 13);
    add_value(&b, &a, "x", FLOAT, "8", true);
    add_value(&b, &a, "y", FLOAT, "8", false);
    float *data[] = {ramp, table, &one, &one};
    for (int i = 0; i < 4; i++) {
        add_tensor(&b, names[i], i < 2, (int64_t[]){8}, data[i]);
        const char *before = i ? arena_printf(&a, "h%d", i - 1) : "x";
        const char *in = arena_printf(&a, "%s %s", before, names[i]);
        add_node(&b, &a, i < 2 ? "Add" : "Mul", in, i == 3 ? "y" : arena_printf(&a, "h%d", i));
    }
    b.model.producer_name = (char *)(uintptr_t)cases[_i].producer;
    if (cases[_i].signature)
        add_metadata(&b, &a, "pkg.torch.export.ExportedProgram.graph_signature",
                     cases[_i].signature);
    Imported r = import_file(save(&b, &a, "declared.onnx"));
    ck_assert_msg(build_graph(&r, &(OnnxOptions){0}), "%s", r.d.msg);
    for (int i = 0; i < 4; i++)
        ck_assert_msg(kind_of(&r.g, names[i]) == cases[_i].want[i], "%s", names[i]);
    ck_assert(noted(r.m, ONNX_FROZEN, "m.table", "buffer") == (_i >= 3));
    ck_assert(noted(r.m, ONNX_REMARK, "Conv", "1 BatchNormalizations are folded") == (_i == 4));
    release(&r);
    arena_free(&a);
}
END_TEST

/* In a file of torch.export's whose signature a simplifier has dropped, a scalar trains only if its name is a
 * module's path with a dot; in one of TorchScript's exporter, every scalar with a name
 * of a module's trains. */
START_TEST(scalars_without_a_signature)
{
    static const char *const nodes[] = {"node_mul", "/m/Mul"};
    static float two[] = {2};
    for (int i = 0; i < 2; i++) {
        Arena a = {0};
        Builder b;
        start(&b, 13);
        add_value(&b, &a, "x", FLOAT, "8", true);
        add_value(&b, &a, "y", FLOAT, "8", false);
        add_tensor(&b, "m.gain", 0, NULL, two);
        add_tensor(&b, "scalar_tensor_default", 0, NULL, two);
        add_node(&b, &a, "Mul", "x m.gain", "h")->name = (char *)(uintptr_t)nodes[i];
        add_node(&b, &a, "Add", "h scalar_tensor_default", "y");
        b.model.producer_name = (char *)(uintptr_t) "pytorch";
        Imported r = import_file(save(&b, &a, "scalars.onnx"));
        ck_assert_msg(build_graph(&r, &(OnnxOptions){0}), "%s", r.d.msg);
        ck_assert_int_eq(kind_of(&r.g, "m.gain"), VAL_PARAM);
        ck_assert_int_eq(kind_of(&r.g, "scalar_tensor_default"), i ? VAL_PARAM : VAL_CONST);
        release(&r);
        arena_free(&a);
    }
}
END_TEST

/* A ConstantOfShape in the place of a bias trains in a model that was stripped of its weights (_i = 0); in
 * one of PyTorch's, it is zeros that the network itself makes. */
START_TEST(fills_stand_for_stripped_weights)
{
    static float shape[] = {1}, w[] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3};
    static int64_t eight = 8;
    static const char fill[] = "/m/ConstantOfShape_output_0";
    Arena a = {0};
    Builder b;
    start(&b, 13);
    add_value(&b, &a, "x", FLOAT, "82", true);
    add_value(&b, &a, "y", FLOAT, "88", false);
    add_tensor(&b, "w", 2, (int64_t[]){2, 8}, w);
    Onnx__TensorProto *t = add_tensor(&b, "shape", 1, (int64_t[]){1}, shape);
    t->data_type = ONNX__TENSOR_PROTO__DATA_TYPE__INT64;
    t->n_float_data = 0;
    t->int64_data = &eight;
    t->n_int64_data = 1;
    add_node(&b, &a, "ConstantOfShape", "shape", fill);
    add_node(&b, &a, "MatMul", "x w", "h");
    add_node(&b, &a, "Add", arena_printf(&a, "h %s", fill), "y");
    b.model.producer_name = (char *)(uintptr_t)(_i ? "pytorch" : "backend-test");
    Imported r = import_file(save(&b, &a, "fill.onnx"));
    ck_assert_msg(build_graph(&r, &(OnnxOptions){0}), "%s", r.d.msg);
    bool trains = graph_find(&r.g, fill).i && kind_of(&r.g, fill) == VAL_PARAM;
    ck_assert(trains == (_i == 0));
    release(&r);
    arena_free(&a);
}
END_TEST

START_TEST(shapes_and_dead_ends_freeze)
{
    static float scales[] = {1, 1, 2.5f, 3}, w[] = {3, 1, 4, 1, 5, 9};
    Arena a = {0};
    Builder b;
    start(&b, 13);
    add_value(&b, &a, "x", FLOAT, "1122", true);
    add_value(&b, &a, "y", FLOAT, "1156", false);
    add_tensor(&b, "scales", 1, (int64_t[]){4}, scales);
    add_tensor(&b, "w", 1, (int64_t[]){6}, w);
    add_node(&b, &a, "Resize", "x _ scales", "r");
    add_node(&b, &a, "Floor", "w", "f");
    add_node(&b, &a, "Add", "r f", "y");
    Imported r = import_file(save(&b, &a, "freeze.onnx"));
    ck_assert_msg(build_graph(&r, &(OnnxOptions){0}), "%s", r.d.msg);
    ck_assert(noted(r.m, ONNX_FROZEN, "scales", "shapes depend on it"));
    ck_assert(noted(r.m, ONNX_FROZEN, "w", "no gradient"));
    ck_assert_int_eq(kind_of(&r.g, "w"), VAL_CONST);
    release(&r);
    arena_free(&a);
}
END_TEST

/* ---- ties --------------------------------------------------------------- */

/* Makes a model with products by w[2,3], by v[3,2], which has the values of w transposed, and by u, an
 * Identity of w. */
static Imported tied_model(Builder *b, Arena *a)
{
    static float w[] = {1, 2, 3, 4, 5, 6}, v[] = {1, 4, 2, 5, 3, 6};
    start(b, 13);
    add_value(b, a, "x", FLOAT, "42", true);
    add_value(b, a, "y", FLOAT, "43", false);
    add_tensor(b, "w", 2, (int64_t[]){2, 3}, w);
    add_tensor(b, "v", 2, (int64_t[]){3, 2}, v);
    add_node(b, a, "MatMul", "x w", "h");
    add_node(b, a, "MatMul", "h v", "k");
    add_node(b, a, "Identity", "w", "u");
    add_node(b, a, "MatMul", "k u", "y");
    return import_file(save(b, a, "tied.onnx"));
}

START_TEST(ties_are_reported_restored_and_cut)
{
    Arena a = {0};
    Builder b;
    OnnxTie tie = {"w", "v"}, wrong = {"w", "nothing"};
    Imported r = tied_model(&b, &a);
    ck_assert_msg(build_graph(&r, &(OnnxOptions){0}), "%s", r.d.msg);
    ck_assert_int_eq(params_of(&r.g), 2);
    ck_assert(noted(r.m, ONNX_REMARK, "v", "has the transposed values of 'w'"));
    ck_assert(noted(r.m, ONNX_REMARK, "w", "'u' is tied to it by an Identity"));
    arena_free(&r.arena);
    ck_assert_msg(build_graph(&r, &(OnnxOptions){.tie = &tie, .nties = 1}), "%s", r.d.msg);
    ck_assert_int_eq(params_of(&r.g), 1);
    arena_free(&r.arena);
    ck_assert_msg(build_graph(&r, &(OnnxOptions){.untie = true}), "%s", r.d.msg);
    ck_assert_int_eq(params_of(&r.g), 3);
    arena_free(&r.arena);
    ck_assert(!build_graph(&r, &(OnnxOptions){.tie = &wrong, .nties = 1}));
    ck_assert_ptr_nonnull(strstr(r.d.msg, "--tie w=nothing: no such weights"));
    release(&r);
    arena_free(&a);
}
END_TEST

/* A weight that is tied to a transposed copy of another one is one more name of that one, not transposed. */
START_TEST(ties_through_a_transposed_copy)
{
    static float w[] = {1, 2, 3, 4, 5, 6}, v[] = {1, 4, 2, 5, 3, 6};
    const OnnxTie tie[] = {{"w", "v"}, {"v", "z"}};
    Arena a = {0};
    Builder b;
    start(&b, 13);
    add_value(&b, &a, "x", FLOAT, "42", true);
    add_value(&b, &a, "y", FLOAT, "43", false);
    add_tensor(&b, "w", 2, (int64_t[]){2, 3}, w);
    add_tensor(&b, "v", 2, (int64_t[]){3, 2}, v);
    add_tensor(&b, "z", 2, (int64_t[]){2, 3}, w);
    add_node(&b, &a, "MatMul", "x w", "h");
    add_node(&b, &a, "MatMul", "h v", "k");
    add_node(&b, &a, "MatMul", "k z", "y");
    Imported r = import_file(save(&b, &a, "tied.onnx"));
    ck_assert_msg(build_graph(&r, &(OnnxOptions){.tie = tie, .nties = 2}), "%s", r.d.msg);
    ck_assert_int_eq(params_of(&r.g), 1);
    int names = 0;
    for (uint32_t i = 1; i < r.g.nvals; i++)
        for (const ModelName *n = r.g.vals[i].in_model; n && r.g.vals[i].kind == VAL_PARAM; n = n->next) {
            ck_assert_int_eq(n->transposed, strcmp(n->name, "v") == 0);
            names++;
        }
    ck_assert_int_eq(names, 3);
    release(&r);
    arena_free(&a);
}
END_TEST

/* ---- batch normalization and dropout ------------------------------------ */

static Imported batch_norm_model(Builder *b, Arena *a, int opset, bool many)
{
    static float v[4][3] = {{2, 3, 4}, {5, 6, 7}, {1, 2, 3}, {4, 5, 6}};
    static const char *const names[] = {"scale", "bias", "mean", "var"};
    start(b, opset);
    add_value(b, a, "x", FLOAT, "43", true);
    add_value(b, a, "y", FLOAT, "43", false);
    for (int i = 0; i < 4; i++)
        add_tensor(b, names[i], 1, (int64_t[]){3}, v[i]);
    Onnx__NodeProto *n =
        add_node(b, a, "BatchNormalization", "x scale bias mean var", many ? "y m v" : "y");
    if (many && opset >= 14) {
        add_int(b, n, "training_mode", 1);
    }
    return import_file(save(b, a, "bn.onnx"));
}

START_TEST(batch_norm_is_brought_to_training_form)
{
    static const struct {
        int opset;
        bool many, forward_only, keep;
        uint32_t updates;
    } cases[] = {{13, false, false, false, 2}, {14, true, false, false, 2},
                 {9, true, false, true, 2},    {13, false, false, true, 0},
                 {14, true, true, false, 0},   {13, false, true, false, 0}};
    Arena a = {0};
    Builder b;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        OnnxOptions opt = {.forward_only = cases[i].forward_only,
                           .keep_batch_norm = cases[i].keep};
        Imported r = batch_norm_model(&b, &a, cases[i].opset, cases[i].many);
        ck_assert_msg(build_graph(&r, &opt), "%s", r.d.msg);
        ck_assert_msg(r.g.nupdate == cases[i].updates, "case %zu: %u", i, r.g.nupdate);
        if (r.g.nupdate)
            ck_assert_int_eq(kind_of(&r.g, "mean"), VAL_STATE);
        ck_assert_int_eq(noted(r.m, ONNX_REMARK, "node0", "trains"),
                         !cases[i].many && !cases[i].keep && !cases[i].forward_only);
        release(&r);
    }
    arena_free(&a);
}
END_TEST

/* A model without weights, trained or evaluated: they are parameters, and the variance starts at 1. */
START_TEST(weights_without_values)
{
    Arena a = {0};
    Builder b;
    const char *const data[] = {"x"};
    const OnnxOptions form[] = {{.init = false},
                                {.keep_batch_norm = true},
                                {.forward_only = true, .inference = true, .init = true},
                                {.forward_only = true, .inference = true, .weights = true}};
    for (size_t i = 0; i < sizeof form / sizeof *form; i++) {
        OnnxOptions opt = form[i];
        opt.data = data;
        opt.ndata = 1;
        start(&b, 15);
        add_value(&b, &a, "x", FLOAT, "43", true);
        add_value(&b, &a, "y", FLOAT, "43", false);
        for (const char *const *name = (const char *const[]){"scale", "bias", "mean", "var", NULL}; *name;
             name++)
            add_value(&b, &a, *name, FLOAT, "3", true);
        add_node(&b, &a, "BatchNormalization", "x scale bias mean var", "y");
        Imported r = import_file(save(&b, &a, "bn.onnx"));
        ck_assert_msg(build_graph(&r, &opt), "%s", r.d.msg);
        const float *var = r.g.vals[graph_find(&r.g, "var").i].data;
        ck_assert_int_eq(kind_of(&r.g, "scale"), VAL_PARAM);
        ck_assert(var && var[0] == 1 && var[2] == 1);
        release(&r);
    }
    arena_free(&a);
}
END_TEST

/* running' = 0.9 running + 0.1 batch, with the population variance or the unbiased one. */
START_TEST(running_statistics)
{
    Arena a = {0};
    Builder b;
    float x[12] = {1, 0, 0, 2, 0, 0, 3, 0, 0, 6, 0, 0};
    OnnxFeed feed = {"x", {type_make(DT_F32, 2, (int64_t[]){4, 3}), x}};
    for (int unbiased = 0; unbiased < 2; unbiased++) {
        OnnxOptions opt = {.feed = &feed, .nfeed = 1, .unbiased_var = unbiased};
        Imported r = batch_norm_model(&b, &a, 15, false);
        ck_assert_msg(build_graph(&r, &opt), "%s", r.d.msg);
        void **data = NEW(&a, void *, r.g.nvals);
        ck_assert_msg(graph_eval(&r.g, data, &a, &r.d), "%s", r.d.msg);
        double var = unbiased ? 14.0 / 3 : 3.5;
        for (int k = 0; k < 2; k++) {
            Val v = r.g.update[k].value;
            Tensor t = {*val_type(&r.g, v), data[v.i]};
            double want = k ? 0.9 * 4 + 0.1 * var : 0.9 * 1 + 0.1 * 3;
            ck_assert_double_eq_tol(tensor_f(&t, 0), want, 1e-6);
        }
        release(&r);
    }
    arena_free(&a);
}
END_TEST

/* Adds a batch norm for inference in elementary operators, channels last.  form: 0: with a reciprocal; 1:
 * divided by the root; 2: likewise, with scale and bias as first operands. */
static void add_written_norm(Builder *b, Arena *a, int form)
{
    add_node(b, a, "Sub", "x mean", "c");
    add_node(b, a, "Add", "var eps", "v");
    add_node(b, a, "Sqrt", "v", "d");
    if (form == 0) {
        add_node(b, a, "Reciprocal", "d", "r");
        add_node(b, a, "Mul", "r scale", "k");
        add_node(b, a, "Mul", "c k", "z");
    } else {
        add_node(b, a, "Div", "c d", "r");
        add_node(b, a, "Mul", form == 1 ? "r scale" : "scale r", "z");
    }
    add_node(b, a, "Add", form == 2 ? "bias z" : "z bias", "y");
}

/* Imports and evaluates a batch norm for training: *y is its output, *var the updated running variance. */
static void trained_norm(Imported *r, Arena *a, const OnnxOptions *opt, Tensor *y, Tensor *var)
{
    ck_assert_msg(build_graph(r, opt), "%s", r->d.msg);
    ck_assert_int_eq(r->g.nupdate, 2);
    void **data = NEW(a, void *, r->g.nvals);
    ck_assert_msg(graph_eval(&r->g, data, a, &r->d), "%s", r->d.msg);
    *y = (Tensor){*val_type(&r->g, r->g.out[0]), data[r->g.out[0].i]};
    Val v = r->g.update[1].value;
    *var = (Tensor){*val_type(&r->g, v), data[v.i]};
}

/* A norm that is not read counts as folded if its neighbour is read; that of a module that does not run (u)
 * does not count. */
START_TEST(folded_norms_are_counted)
{
    static const char signature[] =
        "p_a: PARAMETER target='m.a.0.weight'\nb_a: BUFFER target='m.a.1.running_mean'\n"
        "p_b: PARAMETER target='m.a.1.weight'\np_u: PARAMETER target='m.u.0.weight'\n"
        "b_u: BUFFER target='m.u.1.running_mean'\np_c: PARAMETER target='m.u.1.weight'\n";
    static float w[6] = {1, 2, 3, 4, 5, 7};
    Arena a = {0};
    Builder b;
    start(&b, 17);
    add_value(&b, &a, "x", FLOAT, "23", true);
    add_value(&b, &a, "y", FLOAT, "22", false);
    add_tensor(&b, "m.a.0.weight", 2, (int64_t[]){3, 2}, w);
    add_node(&b, &a, "MatMul", "x m.a.0.weight", "y");
    add_metadata(&b, &a, "pkg.torch.export.ExportedProgram.graph_signature", signature);
    Imported r = import_file(save(&b, &a, "folded.onnx"));
    ck_assert_msg(build_graph(&r, &(OnnxOptions){0}), "%s", r.d.msg);
    ck_assert(noted(r.m, ONNX_REMARK, "Conv", "1 BatchNormalizations are folded away"));
    release(&r);
    arena_free(&a);
}
END_TEST

START_TEST(written_out_batch_norm)
{
    static float x[24], scale[3] = {1, 2, 3}, bias[3] = {0.5f, 0, 1}, mean[3] = {1, 1, 1}, var[3] = {4, 4, 4},
                        eps = 1e-5f;
    static const char signature[] = "b_var: BUFFER target='var'\np_mean: PARAMETER target='mean'\n"
                                    "p_scale: PARAMETER target='scale'\np_bias: PARAMETER target='bias'\n";
    int form = _i % 3, rank = _i == 4 ? 4 : 1;
    bool given = _i == 3, buffer = _i == 5;
    Arena a = {0};
    Builder b;
    Tensor y, v;
    for (int i = 0; i < 24; i++)
        x[i] = (float)(i * i % 7);
    OnnxFeed feed = {"x", {type_make(DT_F32, 4, (int64_t[]){2, 2, 2, 3}), x}};
    OnnxOptions opt = {.feed = &feed, .nfeed = 1, .keep_batch_norm = given};
    start(&b, 15);
    add_value(&b, &a, "x", FLOAT, "2223", true);
    add_value(&b, &a, "y", FLOAT, "2223", false);
    float *data[] = {scale, bias, mean, var, &eps};
    static const char *const names[] = {"scale", "bias", "mean", "var", "eps"};
    for (int i = 0; i < 5; i++)
        add_tensor(&b, names[i], i < 4 ? rank : 0, (int64_t[]){rank == 1 ? 3 : 1, 1, 1, 3}, data[i]);
    add_written_norm(&b, &a, form);
    if (buffer)
        add_metadata(&b, &a, "pkg.torch.export.ExportedProgram.graph_signature", signature);
    Imported r = import_file(save(&b, &a, "written.onnx"));
    if (given || buffer) {
        ck_assert_msg(build_graph(&r, &opt), "%s", r.d.msg);
        ck_assert_int_eq(r.g.nupdate, 0);
    } else {
        trained_norm(&r, &a, &opt, &y, &v);
        ck_assert_int_eq(kind_of(&r.g, "mean"), VAL_STATE);
        ck_assert(noted(r.m, ONNX_REMARK, _i % 3 == 0 ? "node6" : "node5", "trains"));
        for (int c = 0; c < 3; c++) {
            double sum = 0, squares = 0;
            for (int i = c; i < 24; i += 3) {
                sum += x[i] / 8;
                squares += x[i] * x[i] / 8;
            }
            double batch = squares - sum * sum;
            for (int i = c; i < 24; i += 3)
                ck_assert_double_eq_tol(tensor_f(&y, i),
                                        (x[i] - sum) / sqrt(batch + eps) * scale[c] + bias[c], 1e-5);
            ck_assert_double_eq_tol(tensor_f(&v, c), 0.99 * 4 + 0.01 * batch, 1e-5);
        }
    }
    release(&r);
    arena_free(&a);
}
END_TEST

START_TEST(folded_batch_norm_is_noted)
{
    static float w[9] = {1}, v[3] = {1};
    static const char *const names[][2] = {{"onnx::Conv_%d", "onnx::Conv_b%d"},
                                           {"c%d.weight", "c%d.weight_bias"},
                                           {"c%d.weight", "c%d.bias"}};
    Arena a = {0};
    Builder b;
    for (int form = 0; form < 3; form++) {
        start(&b, 13);
        add_value(&b, &a, "h0", FLOAT, "1355", true);
        add_value(&b, &a, "h4", FLOAT, "1355", false);
        for (int i = 0; i < 4; i++) {
            char weight[32], bias[32];
            snprintf(weight, sizeof weight, names[form][0], i);
            snprintf(bias, sizeof bias, names[form][1], i);
            add_tensor(&b, arena_printf(&a, "%s", weight), 4, (int64_t[]){3, 3, 1, 1}, w);
            add_tensor(&b, arena_printf(&a, "%s", bias), 1, (int64_t[]){3}, v);
            add_node(&b, &a, "Conv", arena_printf(&a, "h%d %s %s", i, weight, bias),
                     arena_printf(&a, "h%d", i + 1));
        }
        Imported r = import_file(save(&b, &a, "folded.onnx"));
        ck_assert_msg(build_graph(&r, &(OnnxOptions){0}), "%s", r.d.msg);
        ck_assert_int_eq(noted(r.m, ONNX_REMARK, "Conv", "folded"), form < 2);
        release(&r);
    }
    arena_free(&a);
}
END_TEST

/* The ratio of a Dropout is an attribute or an operand, by default 0.5.  Whether it drops is decided by the
 * operand training_mode or, where that is absent, by whether the model is imported for training. */
START_TEST(dropout_by_attribute_or_operand)
{
    static float quarter[1] = {0.25f};
    static const struct {
        int opset;
        bool attribute, forward_only;
        const char *operands;
        double ratio; /* 0: nothing drops */
    } cases[] = {{7, true, false, "x", 0.25},      {7, false, false, "x", 0.5},
                 {7, true, true, "x", 0},          {13, false, false, "x quarter", 0.25},
                 {13, false, false, "x", 0.5},     {13, false, false, "x quarter yes", 0.25},
                 {13, false, true, "x quarter yes", 0.25}, {13, false, false, "x quarter no", 0}};
    Arena a = {0};
    Builder b;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        start(&b, cases[i].opset);
        add_value(&b, &a, "x", FLOAT, "88", true);
        add_value(&b, &a, "y", FLOAT, "88", false);
        add_tensor(&b, "quarter", 0, NULL, quarter);
        add_bool(&b, "yes", true);
        add_bool(&b, "no", false);
        Onnx__NodeProto *n = add_node(&b, &a, "Dropout", cases[i].operands, "y");
        if (cases[i].attribute) {
            Onnx__AttributeProto *t = add_attr(&b, n, "ratio");
            t->has_type = t->has_f = true;
            t->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT;
            t->f = 0.25f;
        }
        Imported r = import_file(save(&b, &a, "dropout.onnx"));
        OnnxOptions opt = {.forward_only = cases[i].forward_only};
        ck_assert_msg(build_graph(&r, &opt), "%s", r.d.msg);
        ck_assert_uint_eq(r.g.norder, 1);
        const Node *d = &r.g.nodes[r.g.order[0].i]; /* y is a copy of x where nothing drops */
        ck_assert_msg(d->op == (cases[i].ratio > 0 ? OP_dropout : OP_copy), "case %zu", i);
        if (d->op == OP_dropout)
            ck_assert_double_eq(((const DropoutAttrs *)d->attr)->p, cases[i].ratio);
        release(&r);
    }
    arena_free(&a);
}
END_TEST

/* The mask says what the dropout kept, and no constant of its size is made. */
START_TEST(dropout_mask_is_the_draw)
{
    Arena a = {0};
    Builder b;
    start(&b, 7);
    add_value(&b, &a, "x", FLOAT, "88", true);
    add_value(&b, &a, "y", FLOAT, "88", false);
    add_value(&b, &a, "m", FLOAT, "88", false);
    add_node(&b, &a, "Dropout", "x", "y m");
    Imported r = import_file(save(&b, &a, "mask.onnx"));
    OnnxOptions opt = {0};
    ck_assert_msg(build_graph(&r, &opt), "%s", r.d.msg);
    void **data = NEW(&a, void *, r.g.nvals);
    float x[64];
    int64_t rng[2] = {7, 1};
    for (int i = 0; i < 64; i++)
        x[i] = 1;
    data[graph_find(&r.g, "x").i] = x;
    for (uint32_t v = 1; v < r.g.nvals; v++) {
        ck_assert(!graph_is_const(&r.g, (Val){v}) || type_count(val_type(&r.g, (Val){v})) < 64);
        if (r.g.vals[v].kind == VAL_INPUT && r.g.vals[v].type.dt == DT_I64)
            data[v] = rng;
    }
    ck_assert_msg(graph_eval(&r.g, data, &a, &r.d), "%s", r.d.msg);
    const float *y = data[graph_find(&r.g, "y").i], *m = data[graph_find(&r.g, "m").i];
    int kept = 0;
    for (int i = 0; i < 64; i++) {
        ck_assert_double_eq(y[i], 2 * m[i]);
        kept += m[i] == 1;
    }
    ck_assert_int_gt(kept, 16);
    ck_assert_int_lt(kept, 48);
    release(&r);
    arena_free(&a);
}
END_TEST

Suite *suite_trains(void)
{
    Suite *s = suite_create("trains");
    TCase *t = tcase_create("import");
    tcase_add_checked_fixture(t, make_folder, remove_folder);
    tcase_add_test(t, values_decide_what_trains);
    tcase_add_loop_test(t, exporters_say_what_trains, 0, 5);
    tcase_add_test(t, scalars_without_a_signature);
    tcase_add_test(t, adapters_are_told);
    tcase_add_test(t, biases_train);
    tcase_add_test(t, weights_of_classes_do_not_train);
    tcase_add_test(t, random_targets_are_binary);
    tcase_add_loop_test(t, fills_stand_for_stripped_weights, 0, 2);
    tcase_add_test(t, shapes_and_dead_ends_freeze);
    tcase_add_test(t, ties_are_reported_restored_and_cut);
    tcase_add_test(t, ties_through_a_transposed_copy);
    tcase_add_test(t, batch_norm_is_brought_to_training_form);
    tcase_add_test(t, weights_without_values);
    tcase_add_test(t, running_statistics);
    tcase_add_loop_test(t, written_out_batch_norm, 0, 6);
    tcase_add_test(t, folded_norms_are_counted);
    tcase_add_test(t, folded_batch_norm_is_noted);
    tcase_add_test(t, dropout_by_attribute_or_operand);
    tcase_add_test(t, dropout_mask_is_the_draw);
    suite_add_tcase(s, t);
    return s;
}
