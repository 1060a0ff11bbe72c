/* test_weights.c -- --weights: training starts from a file's weights as from a model that holds them; names,
 * types and shapes that do not match are refused, with the name that was probably meant. */
#include "tests.h"
#include "command.h"
#include "ir/ir.h"
#include "onnx_builder.h"
#include "runtime/weights.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODEL "'" CKC_SOURCE_DIR "/examples/mlp/model.onnx' "
#define MLP MODEL "--bind batch=4 --threads 1 --quiet -o p "

START_TEST(as_from_the_model)
{
    ckc_accepts(MLP "--steps 3 --save a.safetensors --save a.onnx");
    ckc_accepts("a.onnx --bind batch=4 --threads 1 --quiet -o q --steps 3 --save b.safetensors");
    ckc_accepts(MLP "--weights a.safetensors --steps 3 --save c.safetensors");
    same_file("b.safetensors", "c.safetensors");
    ckc_accepts("run p/step.ckp --quiet --steps 3 --save d.safetensors"); /* the schedule names the file */
    same_file("b.safetensors", "d.safetensors");
    ckc_accepts("run q/step.ckp --quiet --weights a.safetensors --steps 3 --save d.safetensors");
    same_file("b.safetensors", "d.safetensors");
    ckc_accepts("eval a.onnx --bind batch=4");
    char *want = read_text("out");
    ckc_prints("eval " MODEL "--bind batch=4 --weights a.safetensors", want);
    free(want);
    ck_assert_int_eq(shell("mv p/../a.safetensors x.safetensors"), 0);
    ckc_fails("", "run p/step.ckp --quiet", 1, "a.safetensors: No such file");
}
END_TEST

/* A schedule finds its model if the name of its own folder is the beginning of the model's, and if the model
 * lies in that folder. */
START_TEST(from_folders_named_alike)
{
    ck_assert_int_eq(shell("cp " MODEL "running.onnx; mkdir run"), 0);
    ckc_accepts("running.onnx --bind batch=4 --threads 1 --quiet -o run/x");
    ckc_accepts("run run/x/step.ckp --quiet");
    ckc_accepts("running.onnx --bind batch=4 --threads 1 --quiet -o ./run");
    ckc_accepts("run run/step.ckp --quiet");
    ck_assert_int_eq(shell("mv running.onnx run"), 0);
    ckc_accepts("run/running.onnx --bind batch=4 --threads 1 --quiet -o run");
    ckc_accepts("run run/step.ckp --quiet");
}
END_TEST

/* A schedule belongs to the weights that were read: it is refused once their file has been saved over. */
START_TEST(saved_over)
{
    ckc_accepts(MLP "--save a.safetensors");
    ckc_accepts(MLP "--weights a.safetensors --save a.safetensors");
    ckc_fails("", "run p/step.ckp --quiet", 1, "a.safetensors: is not the file the schedule was made with");
}
END_TEST

/* --save-trained saves what trains without the rest, and training goes on from such a file. */
START_TEST(without_what_is_frozen)
{
    const char *args = MLP "--train '0.*' --save-trained --steps 3 ";
    Diag d = {0};
    ckc_accepts(format("%s --save a.safetensors --save a.onnx", args));
    DataFile *f = data_open("a.safetensors", &d);
    ck_assert_msg(f && data_count(f) == 2, "%s", d.msg);
    ck_assert(data_find(f, "0.weight") >= 0 && data_find(f, "0.bias") >= 0);
    data_close(f);
    ckc_accepts("a.onnx --bind batch=4 --threads 1 --quiet -o q --train '0.*' --save-trained --steps 3 "
                "--save b.safetensors");
    ckc_accepts(format("%s --weights a.safetensors --save c.safetensors", args));
    same_file("b.safetensors", "c.safetensors");
    ckc_accepts("run p/step.ckp --quiet --weights a.safetensors --save-trained --steps 3 "
                "--save d.safetensors");
    same_file("b.safetensors", "d.safetensors");
    ckc_fails("", MLP "--weights a.safetensors", 1, "has no '1.weight'");
}
END_TEST

enum { TENSORS = 20 };

/* Writes a.safetensors to path with tensor `at` in type dt and under this name; more: as one more tensor. */
static void write_changed(const char *path, int at, DType dt, const char *name, bool more)
{
    NamedTensor v[TENSORS];
    Diag d = {0};
    DataFile *f = data_open("a.safetensors", &d);
    ck_assert_msg(f != NULL, "%s", d.msg);
    int n = data_count(f);
    ck_assert_int_lt(n, TENSORS);
    for (int k = 0; k < n; k++) {
        v[k].name = data_name(f, k);
        ck_assert(data_tensor(f, k, &v[k].tensor, &d));
    }
    Tensor t = v[at].tensor, to = {type_with(t.type, dt), calloc((size_t)type_count(&t.type), 8)};
    for (int64_t i = 0; i < type_count(&t.type); i++)
        tensor_set_f(&to, i, tensor_f(&t, i));
    v[more ? n : at] = (NamedTensor){name, to};
    ck_assert_msg(safetensors_write(path, NULL, n + more, v, &d), "%s", d.msg);
    free(to.data);
    data_close(f);
}

START_TEST(names_and_types)
{
    ckc_accepts(MLP "--steps 1 --save a.safetensors");
    write_changed("x.safetensors", 1, DT_F32, "0.biass", false);
    ckc_fails("", MLP "--weights x.safetensors", 1, "has no '0.bias'; did you mean '0.biass'?");
    write_changed("x.safetensors", 1, DT_F32, "0.biass", true);
    ckc_fails("", MLP "--weights x.safetensors", 1, "the model has no '0.biass'; did you mean '0.bias'?");
    write_changed("x.safetensors", 1, DT_F64, "0.bias", false);
    ckc_fails("", MLP "--weights x.safetensors", 1, "'0.bias' is f64[48], in the model f32[48]");
    write_changed("x.safetensors", 1, DT_F32, "0.weight", false);
    ckc_fails("", MLP "--weights x.safetensors", 1, "'0.weight' is f32[48], in the model f32[48,16]");
    write_changed("x.safetensors", 1, DT_I64, "counter", true); /* integers are ignored */
    ckc_accepts(MLP "--weights x.safetensors");
    ckc_fails("", MLP "--weights none.safetensors", 1, "none.safetensors: No such file");
    ckc_fails("", "run p/step.ckp --weights p/step.ckp", 1, "");
}
END_TEST

/* A weight in bfloat16 becomes the f32 of the same value. */
START_TEST(half_is_widened)
{
    ckc_accepts(MLP "--steps 1 --save a.safetensors");
    write_changed("h.safetensors", 0, DT_BF16, "0.weight", false);
    ckc_accepts(MLP "--weights h.safetensors --lr 0 --weight-decay 0 --save b.safetensors");
    Diag d = {0};
    DataFile *a = data_open("a.safetensors", &d), *b = data_open("b.safetensors", &d);
    Tensor x, y;
    ck_assert(data_get(a, "0.weight", &x, &d) && data_get(b, "0.weight", &y, &d));
    ck_assert_int_eq(y.type.dt, DT_F32);
    for (int64_t i = 0; i < type_count(&x.type); i++)
        ck_assert_float_eq((float)tensor_f(&y, i), bf16_to_f32(f32_to_bf16((float)tensor_f(&x, i))));
    data_close(a);
    data_close(b);
}
END_TEST

/* A model that was exported within a wrapper takes the weights of what it wraps. */
START_TEST(names_within_a_wrapper)
{
    float w[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    Tensor weight = {type_make(DT_F32, 2, (int64_t[]){3, 4}), w};
    Tensor bias = {type_make(DT_F32, 1, (int64_t[]){4}), w + 2};
    Arena a = {0};
    Builder b;
    Diag d = {0};
    start(&b, 17);
    add_value(&b, &a, "x", FLOAT, "23", true);
    add_value(&b, &a, "y", FLOAT, "24", false);
    add_tensor(&b, "a.net.fc.weight", 2, weight.type.dim, (float[]){3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8});
    add_tensor(&b, "a.net.bias", 1, bias.type.dim, (float[]){2, 7, 1, 8});
    add_node(&b, &a, "MatMul", "x a.net.fc.weight", "xw");
    add_node(&b, &a, "Add", "xw a.net.bias", "y");
    save(&b, &a, "wrapped.onnx");
    ck_assert(safetensors_write("whole.safetensors", NULL, 2,
                                (NamedTensor[]){{"a.net.bias", bias}, {"a.net.fc.weight", weight}}, &d));
    ck_assert(safetensors_write("inner.safetensors", NULL, 2,
                                (NamedTensor[]){{"bias", bias}, {"fc.weight", weight}}, &d));
    ck_assert(safetensors_write("other.safetensors", NULL, 2,
                                (NamedTensor[]){{"net.bias", bias}, {"fc.weight", weight}}, &d));
    ckc_accepts("wrapped.onnx --threads 1 -q -o p --weights whole.safetensors --save x.safetensors");
    ckc_accepts("wrapped.onnx --threads 1 -q -o q --weights inner.safetensors --save y.safetensors");
    same_file("x.safetensors", "y.safetensors");
    ckc_accepts("run q/step.ckp -q --save y.safetensors");
    same_file("x.safetensors", "y.safetensors");
    ckc_fails("", "wrapped.onnx -q -o p --weights other.safetensors", 1, "; did you mean '");
    arena_free(&a);
}
END_TEST

Suite *suite_weights(void)
{
    Suite *s = suite_create("weights");
    TCase *c = command_case(s, "weights");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, as_from_the_model);
    tcase_add_test(c, from_folders_named_alike);
    tcase_add_test(c, saved_over);
    tcase_add_test(c, without_what_is_frozen);
    tcase_add_test(c, names_and_types);
    tcase_add_test(c, half_is_widened);
    tcase_add_test(c, names_within_a_wrapper);
    return s;
}
