/* test_trains.c -- what an imported model trains: the rule for its weights, and ties. */
#include "tests.h"

#include <math.h>
#include <string.h>

#include "command.h"
#include "imported.h"
#include "onnx_builder.h"
#include "runtime/runtime.h"

enum { STRING = 8 };

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

/* A weight may begin as an identity, which holds zeros and ones as masks do: TorchScript's names tell. */
START_TEST(identities_are_weights)
{
    static const char *const names[] = {"m.v.weight", "m.mask"}, *const producers[] = {"pytorch", "tf2onnx"};
    static float identity[64];
    Arena a = {0};
    Builder b;
    for (int i = 0; i < 64; i++)
        identity[i] = i % 9 == 0;
    start(&b, 13);
    b.model.producer_name = (char *)(uintptr_t)producers[_i];
    add_value(&b, &a, "x", FLOAT, "88", true);
    add_value(&b, &a, "y", FLOAT, "88", false);
    for (int i = 0; i < 2; i++)
        add_tensor(&b, names[i], 2, (int64_t[]){8, 8}, identity);
    add_node(&b, &a, "Transpose", "m.v.weight", "t");
    add_node(&b, &a, "MatMul", "x t", "h");
    add_node(&b, &a, "MatMul", "h m.mask", "y");
    Imported r = import_file(save(&b, &a, "identity.onnx"));
    ck_assert_msg(build_graph(&r, &(OnnxOptions){0}), "%s", r.d.msg);
    ck_assert_int_eq(kind_of(&r.g, "m.v.weight"), _i ? VAL_CONST : VAL_PARAM);
    ck_assert_int_eq(kind_of(&r.g, "m.mask"), VAL_CONST);
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

/* Has a value this name to be saved under? */
static bool is_named(const Graph *g, const char *name)
{
    for (uint32_t i = 1; i < g->nvals; i++)
        for (const ModelName *m = g->vals[i].in_model; m; m = m->next)
            if (strcmp(m->name, name) == 0)
                return true;
    return false;
}

/* What trains of a ramp, a table, a scalar and a scalar with a name that PyTorch's exporter makes up follows
 * from the producer and, if there is one, the graph signature in the metadata, as does what is saved. */
START_TEST(exporters_say_what_trains)
{
    static const char *const names[] = {"m.ramp", "m.table", "m.gain", "onnx::Mul_3"};
    static float ramp[8] = {1, 2, 3, 4, 5, 6, 7, 8}, table[8] = {3, 1, 4, 1, 5, 9, 2, 6}, one = 2;
    static const char closed_over[] =
        "p_m_other: PARAMETER target='m.other'\n"
        "c_m_ramp: CONSTANT_TENSOR target='m.ramp'\nc_m_table: CONSTANT_TENSOR target='m.table'\n";
    static const char constant[] =
        "p_m_gain: PARAMETER target='m.gain'\nc_m_table: CONSTANT_TENSOR target='m.table'\n";
    static const char transient[] = "p_m_gain: PARAMETER target='m.gain'\n"
                                    "b_m_ramp: BUFFER target='m.ramp' persistent=True\n"
                                    "b_m_table: BUFFER target='m.table' persistent=False\n";
    static const struct {
        const char *producer, *signature;
        ValKind want[4];
    } cases[] = {
        {"tf2onnx", NULL, {VAL_CONST, VAL_PARAM, VAL_CONST, VAL_CONST}},
        {"pytorch", NULL, {VAL_CONST, VAL_PARAM, VAL_PARAM, VAL_CONST}},
        {"pytorch", closed_over, {VAL_CONST, VAL_PARAM, VAL_CONST, VAL_CONST}},
        {"pytorch", constant, {VAL_CONST, VAL_CONST, VAL_PARAM, VAL_CONST}},
        {"pytorch", transient, {VAL_CONST, VAL_CONST, VAL_PARAM, VAL_CONST}},
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
    ck_assert(is_named(&r.g, "m.table") == (_i != 3 && _i != 4));
    ck_assert(is_named(&r.g, "m.ramp") == (_i != 3));
    ck_assert(noted(r.m, ONNX_REMARK, "Conv", "1 BatchNormalizations are folded") == (_i == 5));
    release(&r);
    arena_free(&a);
}
END_TEST

/* In a file of torch.export's whose signature a simplifier has dropped, a scalar trains only if its name is a
 * module's path with a dot; in one of TorchScript's exporter, every scalar with a name
 * of a module's trains; in one of tf2onnx, what a variable was read for. */
START_TEST(scalars_without_a_signature)
{
    static const char *const nodes[] = {"node_mul", "/m/Mul", "m/mul"};
    static const char *const gains[] = {"m.gain", "m.gain", "m/Mul/ReadVariableOp:0"};
    static float two[] = {2};
    for (int i = 0; i < 3; i++) {
        Arena a = {0};
        Builder b;
        start(&b, 13);
        add_value(&b, &a, "x", FLOAT, "8", true);
        add_value(&b, &a, "y", FLOAT, "8", false);
        add_tensor(&b, gains[i], 0, NULL, two);
        add_tensor(&b, "scalar_tensor_default", 0, NULL, two);
        add_node(&b, &a, "Mul", arena_printf(&a, "x %s", gains[i]), "h")->name = (char *)(uintptr_t)nodes[i];
        add_node(&b, &a, "Add", "h scalar_tensor_default", "y");
        b.model.producer_name = (char *)(uintptr_t)(i < 2 ? "pytorch" : "tf2onnx");
        Imported r = import_file(save(&b, &a, "scalars.onnx"));
        ck_assert_msg(build_graph(&r, &(OnnxOptions){0}), "%s", r.d.msg);
        ck_assert_int_eq(kind_of(&r.g, gains[i]), VAL_PARAM);
        ck_assert_int_eq(kind_of(&r.g, "scalar_tensor_default"), i == 1 ? VAL_PARAM : VAL_CONST);
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
    ck_assert(noted(r.m, ONNX_FROZEN, "scales", "an operand of Resize"));
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

/* The zeros that an LSTM begins with, an initializer by torch.export's defaults, do not train. */
START_TEST(zeros_of_a_recurrent_network)
{
    enum { GATES = 8, HIDDEN = 2 };
    static float w[GATES * HIDDEN], zeros[HIDDEN];
    for (int i = 0; i < GATES * HIDDEN; i++)
        w[i] = (float)(i * 7 % 11 - 5);
    Arena a = {0};
    Builder b;
    start(&b, 14);
    add_value(&b, &a, "x", FLOAT, "312", true);
    add_value(&b, &a, "y", FLOAT, "112", false);
    add_tensor(&b, "val_40", 3, (int64_t[]){1, GATES, HIDDEN}, w);
    add_tensor(&b, "val_15", 3, (int64_t[]){1, 1, HIDDEN}, zeros);
    add_int(&b, add_node(&b, &a, "LSTM", "x val_40 val_40 _ _ val_15 val_15", "_ y"), "hidden_size", HIDDEN);
    Imported r = import_file(save(&b, &a, "lstm.onnx"));
    ck_assert_msg(build_graph(&r, &(OnnxOptions){0}), "%s", r.d.msg);
    ck_assert_int_eq(params_of(&r.g), 1);
    ck_assert(noted(r.m, ONNX_FROZEN, "val_15", "zeros that a recurrent network begins with"));
    release(&r);
    arena_free(&a);
}
END_TEST

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

/* Three weights, one of them transposed, are one parameter with three names, in whatever order they are
 * tied. */
START_TEST(ties_of_three)
{
    static const OnnxTie ties[][2] = {{{"w", "v"}, {"v", "z"}}, {{"w", "v"}, {"z", "v"}},
                                      {{"v", "w"}, {"z", "w"}}, {{"w", "z"}, {"v", "w"}},
                                      {{"w", "v"}, {"z", "w"}}, {{"w", "z"}, {"v", "z"}}};
    static float w[] = {1, 2, 3, 4, 5, 6}, v[] = {1, 4, 2, 5, 3, 6};
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
    ck_assert_msg(build_graph(&r, &(OnnxOptions){.tie = ties[_i], .nties = 2}), "%s", r.d.msg);
    ck_assert_int_eq(params_of(&r.g), 1);
    int names = 0;
    for (uint32_t i = 1; i < r.g.nvals; i++)
        for (const ModelName *n = r.g.vals[i].in_model; n && r.g.vals[i].kind == VAL_PARAM; n = n->next) {
            bool other = (strcmp(n->name, "v") == 0) != (strcmp(r.g.vals[i].name, "v") == 0);
            ck_assert_msg(n->transposed == other, "%s", n->name);
            names++;
        }
    for (uint32_t k = 0; k < r.g.norder; k++) {
        const Node *n = &r.g.nodes[r.g.order[k].i], *turn = graph_def(&r.g, n->in[1]);
        if (n->op == OP_matmul)
            ck_assert_int_eq(r.g.vals[turn ? turn->in[0].i : n->in[1].i].kind, VAL_PARAM);
    }
    ck_assert_int_eq(names, 3);
    release(&r);
    arena_free(&a);
}
END_TEST

/* ---- quantization while training ------------------------------------------ */

static void add_bytes(Builder *b, const char *name, int rank, const int64_t *dim, int32_t *v, size_t n)
{
    Onnx__TensorProto *t = add_tensor(b, name, rank, dim, NULL);
    t->data_type = ONNX__TENSOR_PROTO__DATA_TYPE__UINT8;
    t->int32_data = v;
    t->n_int32_data = n;
}

/* z = x * w, a scale s of 0.5 and a zero point ten; the output y. */
static void start_quantized(Builder *b, Arena *a)
{
    static float x[] = {1, 2, 3, 4}, w[] = {1.1f, 2.3f, -9, 40}, half[] = {0.5f};
    static int32_t ten[] = {10};
    start(b, 13);
    add_value(b, a, "y", FLOAT, "", false);
    add_tensor(b, "x", 1, (int64_t[]){4}, x);
    add_tensor(b, "w", 1, (int64_t[]){4}, w);
    add_tensor(b, "s", 0, NULL, half);
    add_bytes(b, "ten", 0, NULL, ten, 1);
    add_node(b, a, "Mul", "x w", "z");
}

/* Rounding has the gradient 1 between QuantizeLinear and DequantizeLinear where the type has the number, else
 * 0: what is in front of it trains, and the scale does not. */
START_TEST(quantized_values_pass_gradients)
{
    static const float loss[] = {123, 133};
    Arena a = {0};
    Diag d = {0};
    Builder b;
    start_quantized(&b, &a);
    add_node(&b, &a, "QuantizeLinear", _i ? "z s" : "z s ten", "q");
    add_node(&b, &a, "DequantizeLinear", _i ? "q s" : "q s ten", "r");
    add_int(&b, add_node(&b, &a, "ReduceSum", "r", "y"), "keepdims", 0);
    save(&b, &a, "quantized.onnx");
    ckc_accepts("quantized.onnx -o p --freeze x --optimizer none --grads g.npz -q");
    DataFile *f = data_open("g.npz", &d);
    ck_assert_msg(f, "%s", d.msg);
    ck_assert_float_eq((float)tensor_f((Tensor[]){array_of(f, "loss")}, 0), loss[_i]);
    for (int i = 0; i < 4; i++)
        ck_assert_float_eq((float)tensor_f((Tensor[]){array_of(f, "w")}, i), i < 2 ? (float)(i + 1) : 0);
    data_close(f);
    arena_free(&a);
}
END_TEST

/* So it has where quantized values are moved in between, and where a product reads them as they are, whose
 * scale follows from the data and has no gradient. */
START_TEST(quantized_values_pass_gradients_on)
{
    static const float want[2][4] = {{0, 2, 0, 0}, {1, 4, 9, 16}};
    static int32_t b4[] = {1, 2, 3, 4};
    static int64_t shape[] = {1, 1, 4}, two = 2;
    Arena a = {0};
    Diag d = {0};
    Builder b;
    start_quantized(&b, &a);
    add_bytes(&b, "b", 2, (int64_t[]){4, 1}, b4, 4);
    Onnx__TensorProto *t = add_tensor(&b, "shape", 1, (int64_t[]){3}, NULL);
    t->data_type = INT64;
    t->int64_data = shape;
    t->n_int64_data = 3;
    if (_i == 0) {
        add_node(&b, &a, "QuantizeLinear", "z s ten", "q");
        add_node(&b, &a, "Reshape", "q shape", "line");
        Onnx__NodeProto *pool = add_node(&b, &a, "MaxPool", "line", "most");
        for (int i = 0; i < 2; i++) {
            Onnx__AttributeProto *size = add_attr(&b, pool, i ? "strides" : "kernel_shape");
            size->n_ints = 1;
            size->ints = &two;
        }
        add_node(&b, &a, "Transpose", "most", "turned");
        add_node(&b, &a, "DequantizeLinear", "turned s ten", "r");
        add_int(&b, add_node(&b, &a, "ReduceSum", "r", "y"), "keepdims", 0);
    } else {
        add_node(&b, &a, "Reshape", "z shape", "line");
        add_node(&b, &a, "DynamicQuantizeLinear", "line", "q scale zero");
        add_node(&b, &a, "MatMulInteger", "q b zero", "i");
        add_int(&b, add_node(&b, &a, "Cast", "i", "f"), "to", FLOAT);
        add_node(&b, &a, "Mul", "f scale", "r");
        add_int(&b, add_node(&b, &a, "ReduceSum", "r", "y"), "keepdims", 0);
    }
    save(&b, &a, "quantized.onnx");
    ckc_accepts("quantized.onnx -o p --train w --optimizer none --grads g.npz -q");
    DataFile *f = data_open("g.npz", &d);
    ck_assert_msg(f, "%s", d.msg);
    for (int i = 0; i < 4; i++)
        ck_assert_double_eq_tol(tensor_f((Tensor[]){array_of(f, "w")}, i), want[_i][i], 1e-5);
    data_close(f);
    arena_free(&a);
}
END_TEST

/* Weights of classes train if that is asked for: the gradient of one is how much the losses of its class
 * exceed the weighted mean, over the sum of weights. */
START_TEST(weights_of_classes_train_if_asked)
{
    static float x[] = {1, 2, 0, 0, 3, 1, 2, 2, 1}, w[] = {0.5f, 1, 2};
    static const int64_t target[] = {1, 2, 1};
    double each[3], mean = 0, sum = 0;
    Arena a = {0};
    Diag d = {0};
    Builder b;
    start(&b, 13);
    add_value(&b, &a, "loss", FLOAT, "", false);
    add_tensor(&b, "x", 2, (int64_t[]){3, 3}, x);
    add_tensor(&b, "w", 1, (int64_t[]){3}, w);
    Onnx__TensorProto *t = add_tensor(&b, "t", 1, (int64_t[]){3}, NULL);
    t->data_type = INT64;
    t->int64_data = (int64_t *)target;
    t->n_int64_data = 3;
    add_node(&b, &a, "SoftmaxCrossEntropyLoss", "x t w", "loss");
    save(&b, &a, "weighted.onnx");
    ckc_accepts("weighted.onnx -o p --train w --optimizer none --grads g.npz -q");
    DataFile *f = data_open("g.npz", &d);
    ck_assert_msg(f, "%s", d.msg);
    for (int i = 0; i < 3; i++) {
        each[i] = log(exp(x[3 * i]) + exp(x[3 * i + 1]) + exp(x[3 * i + 2])) - x[3 * i + target[i]];
        mean += w[target[i]] * each[i];
        sum += w[target[i]];
    }
    mean /= sum;
    double want[] = {0, (each[0] + each[2] - 2 * mean) / sum, (each[1] - mean) / sum};
    for (int i = 0; i < 3; i++)
        ck_assert_double_eq_tol(tensor_f((Tensor[]){array_of(f, "w")}, i), want[i], 1e-6);
    data_close(f);
    arena_free(&a);
}
END_TEST

/* ---- outputs that have no loss ------------------------------------------- */

/* A classifier as skl2onnx writes it, with labels beside its probabilities: numbers or texts (strings). */
static Imported classifier(Builder *b, Arena *a, bool strings, bool zipped)
{
    static float w[6] = {1, 2, 3, 4, 5, 6}, classes[3] = {7, 8, 9};
    start(b, 13);
    add_value(b, a, "x", FLOAT, "42", true);
    add_value(b, a, "label", strings ? STRING : INT64, "4", false);
    add_value(b, a, "p", FLOAT, "43", false);
    if (zipped)
        b->type[b->nvalue - 1].value_case = ONNX__TYPE_PROTO__VALUE__NOT_SET;
    add_tensor(b, "w", 2, (int64_t[]){2, 3}, w);
    add_tensor(b, "classes", 1, (int64_t[]){3}, classes)->data_type = strings ? STRING : FLOAT;
    add_node(b, a, "MatMul", "x w", "z");
    add_node(b, a, "Softmax", "z", zipped ? "s" : "p");
    add_int(b, add_node(b, a, "ArgMax", zipped ? "s" : "p", "k"), "axis", 1);
    add_node(b, a, "ArrayFeatureExtractor", "classes k", "c")->domain = "ai.onnx.ml";
    add_int(b, add_node(b, a, "Cast", "c", "label"), "to", strings ? STRING : INT64);
    if (zipped)
        add_node(b, a, "ZipMap", "s", "p")->domain = "ai.onnx.ml";
    return import_file(save(b, a, "classes.onnx"));
}

/* What only labels need may be unsupported: they are left out, and the probabilities train. */
START_TEST(labels_are_left_out)
{
    Arena a = {0};
    Builder b;
    bool strings = _i & 1;
    Imported r = classifier(&b, &a, strings, _i & 2);
    ck_assert_msg(build_graph(&r, &(OnnxOptions){0}), "%s", r.d.msg);
    ck_assert_uint_eq(r.g.nout, 1);
    ck_assert_str_eq(onnx_output_name(r.m, 0), "p");
    ck_assert_uint_eq(onnx_output_index(r.m, 0), 1);
    ck_assert_int_eq(kind_of(&r.g, "w"), VAL_PARAM);
    ck_assert(noted(r.m, ONNX_REMARK, "label", strings ? "element type string" : "ArrayFeatureExtractor"));
    release(&r);
    arena_free(&a);
}
END_TEST

/* What an output with a loss needs is refused; so are outputs of which none has one. */
START_TEST(what_is_needed_is_refused)
{
    Arena a = {0};
    Builder b;
    start(&b, 13);
    add_value(&b, &a, "x", FLOAT, "4", true);
    add_value(&b, &a, "label", INT64, "4", false);
    if (_i)
        add_value(&b, &a, "y", FLOAT, "4", false);
    add_node(&b, &a, "Odd", "x", "h");
    add_node(&b, &a, "Relu", "h", "y");
    add_int(&b, add_node(&b, &a, "Cast", "h", "label"), "to", INT64);
    Imported r = import_file(save(&b, &a, "needed.onnx"));
    ck_assert(!build_graph(&r, &(OnnxOptions){0}));
    ck_assert_int_eq(r.d.status, EXIT_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(r.d.msg, "(Odd, opset 13): no importer"));
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
    tcase_add_loop_test(t, exporters_say_what_trains, 0, 6);
    tcase_add_test(t, scalars_without_a_signature);
    tcase_add_loop_test(t, identities_are_weights, 0, 2);
    tcase_add_test(t, adapters_are_told);
    tcase_add_test(t, biases_train);
    tcase_add_test(t, weights_of_classes_do_not_train);
    tcase_add_test(t, random_targets_are_binary);
    tcase_add_loop_test(t, fills_stand_for_stripped_weights, 0, 2);
    tcase_add_test(t, shapes_and_dead_ends_freeze);
    tcase_add_test(t, zeros_of_a_recurrent_network);
    tcase_add_test(t, ties_are_reported_restored_and_cut);
    tcase_add_loop_test(t, ties_of_three, 0, 6);
    tcase_add_loop_test(t, quantized_values_pass_gradients, 0, 2);
    tcase_add_loop_test(t, quantized_values_pass_gradients_on, 0, 2);
    tcase_add_test(t, weights_of_classes_train_if_asked);
    tcase_add_loop_test(t, labels_are_left_out, 0, 4);
    tcase_add_loop_test(t, what_is_needed_is_refused, 0, 2);
    suite_add_tcase(s, t);
    return s;
}
