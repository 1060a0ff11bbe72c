/* test_eval.c -- ckc eval: the forward pass of a model as it is, on data, and compared with results. */
#include "tests.h"
#include "command.h"
#include "onnx_builder.h"
#include "runtime/data.h"

#define MLP CKC_SOURCE_DIR "/examples/mlp/model.onnx"

/* Networks exported in training form compute PyTorch's eval() as they are and after being saved, unless
 * --training asks for their training form (tests/torch/inference_golden.py). */
#define GOLDEN " --data g.npz --expect g.npz --rtol 1e-5 --atol 1e-5 --quiet"

START_TEST(inference)
{
    static const char *const names[] = {"conv_script", "conv_dynamo", "conv_optimized", "tied_script",
                                        "tied_dynamo", "tied_optimized"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ck_assert_int_eq(
            shell(format("cp " CKC_SOURCE_DIR "/tests/data/inference/%s.onnx m.onnx && cp " CKC_SOURCE_DIR
                         "/tests/data/inference/%s.npz g.npz",
                         names[i], names[i])),
            0);
        ckc_accepts("eval m.onnx" GOLDEN);
        ckc_refuses("eval m.onnx --training" GOLDEN, 1, "elements differ");
        ckc_accepts("m.onnx --optimizer none --loss none --steps 1 --output v.ckc --quiet --save s.onnx");
        ckc_accepts("eval s.onnx --training" GOLDEN); /* it is saved in inference form */
        ckc_accepts(
            "m.onnx --optimizer none --loss none --steps 1 --output v.ckc --quiet --training --save t.onnx");
        ckc_refuses("eval t.onnx --training" GOLDEN, 1, "elements differ");
    }
}
END_TEST

/* --bind may repeat a symbol's value that follows from the data, but not give another. */
START_TEST(data_binds)
{
    int64_t t[8];
    write_equal_rows("d.npz", 4, 16, 0.5f, rows_of_class(4, t, 3));
    ckc_accepts("eval " MLP " --data d.npz --bind batch=4");
    ckc_refuses("eval " MLP " --data d.npz --bind batch=8", 1, "batch = 4 in the data, and --bind says 8");
}
END_TEST

START_TEST(forward)
{
    int64_t t[8];
    write_equal_rows("d.npz", 4, 16, 0.5f, rows_of_class(4, t, 3));
    ckc_accepts("eval " MLP " --data d.npz");
    ckc_accepts("eval " MLP " --data d.npz --reference --json");
    json_t *j = read_json("out");
    ck_assert_uint_eq(json_array_size(json_object_get(j, "outputs")), 1);
    json_decref(j);
    ckc_refuses("eval " MLP " --data d.npz --expect d.npz", 1, "logits");
    ckc_refuses("eval " MLP " --data d.npz --rtol 1", 1, "need --expect");
}
END_TEST

/* ckc eval prints an output that equals an input of the model, without any node that reads it. */
START_TEST(forward_of_nothing)
{
    Arena a = {0};
    Builder b;
    start(&b, 17);
    add_value(&b, &a, "x", FLOAT, "48", true);
    add_value(&b, &a, "y", FLOAT, "48", false);
    add_node(&b, &a, "Identity", "x", "y");
    save(&b, &a, "same.onnx");
    write_equal_rows("d.npz", 4, 8, 0.5f, (Tensor){.data = NULL});
    ckc_prints("eval same.onnx --data d.npz --json", "\"min\": 0.5");
    arena_free(&a);
}
END_TEST

/* What has random values is said: without data the inputs, weights of which the model has no values among
 * them. */
START_TEST(random_values)
{
    ckc_prints("eval " MLP " --bind batch=2", "note: x: random inputs in valid ranges");
    ckc_prints(
        "eval " CKC_SOURCE_DIR "/examples/decoder/model.onnx --bind batch=1,seq=8",
        "note: idx, wte.weight, wpe.weight and 74 more: random inputs in valid ranges; --data FILE gives "
        "others, --weights FILE or --init those of weights");
}
END_TEST

/* An output that the file names twice is one, and one of integers that are not supported is left out; those
 * behind them keep their names and places. */
START_TEST(outputs_that_are_fewer)
{
    Arena a = {0};
    Builder b;
    start(&b, 17);
    add_value(&b, &a, "x", FLOAT, "48", true);
    add_value(&b, &a, "y", FLOAT, "48", false);
    add_value(&b, &a, "y", FLOAT, "48", false);
    add_value(&b, &a, "k", INT64, "4", false);
    add_value(&b, &a, "z", FLOAT, "48", false);
    add_node(&b, &a, "Relu", "x", "y");
    add_node(&b, &a, "Odd", "x", "k");
    add_node(&b, &a, "Neg", "x", "z");
    save(&b, &a, "twice.onnx");
    write_equal_rows("d.npz", 4, 8, 0.5f, (Tensor){.data = NULL});
    ckc_prints("eval twice.onnx --data d.npz", "note: k: this output is left out: ");
    ckc_prints("eval twice.onnx --data d.npz", "z                  f32[4,8]       min -0.5");
    float y[32], z[32];
    Type t = type_make(DT_F32, 2, (int64_t[]){4, 8});
    for (int i = 0; i < 32; i++)
        z[i] = -(y[i] = 0.5f);
    Diag d = {0};
    ck_assert(npz_write("e.npz", 2, (NamedTensor[]){{"output_0", {t, y}}, {"output_3", {t, z}}}, &d));
    ckc_prints("eval twice.onnx --data d.npz --expect e.npz", "as expected");
    arena_free(&a);
}
END_TEST

Suite *suite_eval(void)
{
    Suite *s = suite_create("eval");
    TCase *c = command_case(s, "commands");
    tcase_add_test(c, inference);
    tcase_add_test(c, data_binds);
    tcase_add_test(c, forward);
    tcase_add_test(c, forward_of_nothing);
    tcase_add_test(c, outputs_that_are_fewer);
    tcase_add_test(c, random_values);
    return s;
}
