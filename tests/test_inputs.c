/* test_inputs.c -- what --bind and --data give the inputs of a model, and what is no value of theirs. */
#include "tests.h"
#include "command.h"
#include "onnx_builder.h"
#include "runtime/runtime.h"
#include <stdlib.h>
#include <string.h>

#define MLP CKC_SOURCE_DIR "/examples/mlp/model.onnx"

/* y = x w c + z w, of inputs x [N,3], z [N,3] and c, an unsigned byte. */
static void make_model(void)
{
    float w[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    Arena a = {0};
    Builder b;
    start(&b, 17);
    add_value(&b, &a, "x", FLOAT, "N3", true);
    add_value(&b, &a, "z", FLOAT, "N3", true);
    add_value(&b, &a, "c", ONNX__TENSOR_PROTO__DATA_TYPE__UINT8, "1", true);
    add_value(&b, &a, "y", FLOAT, "N4", false);
    add_tensor(&b, "w", 2, (int64_t[]){3, 4}, w);
    add_int(&b, add_node(&b, &a, "Cast", "c", "f"), "to", FLOAT);
    add_node(&b, &a, "MatMul", "x w", "xw");
    add_node(&b, &a, "MatMul", "z w", "zw");
    add_node(&b, &a, "Mul", "xw f", "xwf");
    add_node(&b, &a, "Add", "xwf zw", "y");
    save(&b, &a, "m.onnx");
    arena_free(&a);
}

static void write_data(int64_t x, int64_t z)
{
    static float rows[24];
    int64_t one = 1;
    uint8_t c = 2;
    Diag d = {0};
    NamedTensor v[] = {{"x", {type_make(DT_F32, 2, (int64_t[]){x, 3}), rows}},
                       {"z", {type_make(DT_F32, 2, (int64_t[]){z, 3}), rows}},
                       {"c", {type_make(DT_U8, 1, &one), &c}},
                       {"w", {type_make(DT_F32, 2, (int64_t[]){2, 4}), rows}}};
    ck_assert_msg(npz_write("d.npz", 4, v, &d), "%s", d.msg);
}

START_TEST(an_integer_of_its_type)
{
    make_model();
    ckc_accepts("plan m.onnx --bind N=4,c=255 -o o -q");
    ckc_refuses("plan m.onnx --bind N=4,c=300 -o p", 1, "--bind c=300: input 'c' is u8[1]");
    ckc_refuses("plan m.onnx --bind N=4,c=-1 -o p", 1, "--bind c=-1: input 'c' is u8[1]");
}
END_TEST

START_TEST(a_symbol_has_one_size)
{
    make_model();
    write_data(4, 4);
    ckc_accepts("eval m.onnx --data d.npz");
    write_data(4, 1);
    ckc_refuses("eval m.onnx --data d.npz", 1, "'z' has N = 1 in the data, and input 'x' has 4");
    ckc_accepts("eval m.onnx --data d.npz --bind z.0=1"); /* said to be another size */
}
END_TEST

START_TEST(of_no_rows)
{
    make_model();
    write_data(0, 0);
    ckc_prints("eval m.onnx --data d.npz", "f32[0,4]       no elements\n");
}
END_TEST

/* One position attends itself alone where the past has none; what it leaves to the next one is written. */
START_TEST(an_empty_past)
{
    static float w[3] = {1, 2, 3};
    float x[] = {5};
    Arena a = {0};
    Builder b;
    Diag d = {0};
    start(&b, 18);
    add_value(&b, &a, "x", FLOAT, "111", true);
    add_value(&b, &a, "past", FLOAT, _i ? "11P1" : "211P1", true);
    add_value(&b, &a, _i ? "v2" : "present", FLOAT, "", false);
    add_tensor(&b, "w", 2, (int64_t[]){1, 3}, w);
    add_node(&b, &a, "MatMul", "x w", "qkv");
    add_int(&b, add_node(&b, &a, "Split", "qkv", "q k v"), "axis", 2);
    Onnx__NodeProto *n = _i ? add_node(&b, &a, "MultiHeadAttention", "q k v _ _ _ past past", "h k2 v2 qk")
                            : add_node(&b, &a, "Attention", "x w _ _ past", "h present");
    n->domain = (char *)"com.microsoft";
    add_int(&b, n, "num_heads", 1);
    save(&b, &a, "a.onnx");
    NamedTensor v = {"x", {type_make(DT_F32, 3, (int64_t[]){1, 1, 1}), x}};
    ck_assert_msg(npz_write("a.npz", 1, &v, &d), "%s", d.msg);
    ckc_prints("eval a.onnx --data a.npz --bind P=0", _i ? "15" : "10");
    arena_free(&a);
}
END_TEST

START_TEST(a_weight_is_no_input)
{
    make_model();
    write_data(4, 4);
    ckc_prints("eval m.onnx --data d.npz", "note: d.npz: 'w' is not read: it is a weight");
}
END_TEST

/* A file of another kind than an option takes is called so. */
START_TEST(of_another_kind)
{
    make_model();
    write_data(4, 4);
    ckc_refuses("plan d.npz", 1, "d.npz: not an ONNX model but a zip archive");
    ckc_refuses("m.onnx --bind N=4,c=1 --weights m.onnx -o p", 1,
                "m.onnx: --weights takes .safetensors or .npz");
}
END_TEST

/* An extent of 1 at the end of rows may be there or not; other shapes and the other kind of number may not.
 */
START_TEST(rows_of_one_value)
{
    static const struct {
        DType dt;
        int rank;
        int64_t dim[2];
        const char *why; /* NULL: it is taken */
    } targets[] = {
        {DT_I64, 1, {32}, NULL},
        {DT_I64, 2, {32, 1}, NULL},
        {DT_I64, 2, {32, 3}, "target: the data is i64[32,3], the model wants i64[16]"},
        {DT_F32, 1, {32}, "the model wants i64[16]: its elements have to be whole numbers"},
    };
    static float x[32 * 16];
    static int64_t t[32 * 3];
    const char *run = MLP " --bind batch=16 --device fake --data t.npz --epochs 1 -o o -q";
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        Diag d = {0};
        NamedTensor v[] = {{"x", {type_make(DT_F32, 2, (int64_t[]){32, 16}), x}},
                           {"target", {type_make(targets[i].dt, targets[i].rank, targets[i].dim), t}}};
        ck_assert_msg(npz_write("t.npz", 2, v, &d), "%s", d.msg);
        if (targets[i].why)
            ckc_refuses(run, 1, targets[i].why);
        else
            ckc_accepts(run);
    }
}
END_TEST

Suite *suite_inputs(void)
{
    Suite *s = suite_create("inputs");
    TCase *t = command_case(s, "inputs");
    tcase_add_test(t, an_integer_of_its_type);
    tcase_add_test(t, a_symbol_has_one_size);
    tcase_add_test(t, of_no_rows);
    tcase_add_loop_test(t, an_empty_past, 0, 2);
    tcase_add_test(t, a_weight_is_no_input);
    tcase_add_test(t, of_another_kind);
    tcase_add_test(t, rows_of_one_value);
    return s;
}
