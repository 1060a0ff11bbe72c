/* test_results.c -- ckc.h: outputs and gradients of a step, and the function that is told of every step. */
#include "tests.h"
#include "command.h"
#include "onnx_builder.h"
#include "session.h"
#include "runtime/data.h"
#include <locale.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

typedef int Describe(const ckc_session *s, int k, ckc_tensor *t);
typedef int Read(ckc_session *s, const char *name, void *to, size_t bytes, ckc_error *e);

/* Checks that all results of a kind have the bits of the file's arrays; returns how many there are. */
static int same_arrays(ckc_session *s, Describe *describe, Read *read, const char *file)
{
    Diag d = {0};
    Tensor t;
    ckc_tensor own;
    int n = 0;
    DataFile *f = data_open(file, &d);
    ck_assert_msg(f != NULL, "%s", d.msg);
    for (; describe(s, n, &own); n++) {
        size_t bytes = ckc_tensor_bytes(&own);
        char *room = malloc(bytes);
        OK(read(s, own.name, room, bytes, &e_));
        ck_assert_msg(data_get(f, own.name, &t, &d), "%s", d.msg);
        ck_assert_int_eq(own.rank, t.type.rank);
        ck_assert_uint_eq(bytes, (size_t)type_bytes(&t.type));
        ck_assert_msg(memcmp(room, t.data, bytes) == 0, "%s is not the file's", own.name);
        free(room);
    }
    ck_assert_int_eq(describe(s, -1, &own), 0);
    data_close(f);
    return n;
}

static const char *const ways[] = {"", "policy=recompute-all", "accumulate=2 clip-norm=0.1", "precision=fp16",
                                   "optimizer=none"};

/* The outputs and gradients that a session returns are those that --grads writes, whatever the options. */
START_TEST(results_of_the_command)
{
    ckc_accepts(format(TRAIN "--steps 3 --data d.npz --grads g.npz %s", command_line(ways[_i])));
    ckc_session *s = plan(format("grads %s", ways[_i]));
    OK(ckc_train(s, 3, data, 2, NULL, &e_));
    ck_assert_int_eq(same_arrays(s, ckc_output, ckc_read_output, "g.npz"), 1);
    ck_assert_int_eq(same_arrays(s, ckc_gradient, ckc_read_gradient, "g.npz"), 10);
    ckc_free(s);
}
END_TEST

/* A step of SGD moves weights by the gradient that is read, times the learning rate. */
START_TEST(gradients_move_weights)
{
    float before[10], gradient[10], after[10];
    ckc_session *s = plan("grads optimizer=sgd lr=0.5");
    OK(ckc_read(s, "8.bias", before, sizeof before, &e_));
    OK(ckc_train(s, 1, batch, 2, NULL, &e_));
    OK(ckc_read_gradient(s, "8.bias", gradient, sizeof gradient, &e_));
    OK(ckc_read(s, "8.bias", after, sizeof after, &e_));
    for (int i = 0; i < 10; i++)
        ck_assert_float_eq_tol(after[i], before[i] - 0.5F * gradient[i], 1e-7F);
    ck_assert_float_ne(before[3], after[3]);
    ckc_free(s);
}
END_TEST

/* Outputs that are a weight, or a view of it, have values from before the update and their own names. */
START_TEST(outputs_before_the_update)
{
    static const char *const name[] = {"same", "flat"};
    float w[4] = {1, 2, 3, 4}, ones[6] = {1, 1, 1, 1, 1, 1}, got[4];
    const ckc_tensor in = {"x", CKC_F32, 2, {3, 2}, ones};
    Arena a = {0};
    Builder b;
    ckc_error e;
    start(&b, 13);
    add_value(&b, &a, "x", FLOAT, "32", true);
    add_value(&b, &a, "loss", FLOAT, "11", false);
    add_value(&b, &a, "same", FLOAT, "221", false);
    add_value(&b, &a, "flat", FLOAT, "22", false);
    add_tensor(&b, "w", 3, (int64_t[]){2, 2, 1}, w);
    add_node(&b, &a, "Flatten", "w", "flat");
    add_node(&b, &a, "MatMul", "x flat", "y");
    add_node(&b, &a, "ReduceSum", "y", "loss");
    add_node(&b, &a, "Identity", "w", "same");
    ckc_session *s = ckc_plan(save(&b, &a, "w.onnx"), (const char *[]){"grads", "optimizer=sgd", NULL}, &e);
    ck_assert_msg(s != NULL, "%s", e.message);
    OK(ckc_train(s, 1, &in, 1, NULL, &e_));
    for (int i = 0; i < 2; i++) {
        OK(ckc_read_output(s, name[i], got, sizeof got, &e_));
        ck_assert_mem_eq(got, w, sizeof w);
    }
    OK(ckc_read(s, "w", got, sizeof got, &e_));
    ck_assert_float_lt(got[0], w[0]);
    ckc_free(s);
    arena_free(&a);
}
END_TEST

/* A loss that is a weight, or a view of it, has the value from before the update. */
START_TEST(loss_before_the_update)
{
    float w = 5, x1 = 1;
    double loss;
    const ckc_tensor in = {"x", CKC_F32, 1, {1}, &x1};
    Arena a = {0};
    Builder b;
    ckc_error e;
    start(&b, 13);
    add_value(&b, &a, "x", FLOAT, "1", true);
    add_value(&b, &a, _i ? "w" : "loss", FLOAT, "1", false);
    add_value(&b, &a, "y", FLOAT, "1", false);
    add_tensor(&b, "w", 1, (int64_t[]){1}, &w);
    add_node(&b, &a, "Mul", "x w", "y");
    if (_i == 0)
        add_node(&b, &a, "Identity", "w", "loss");
    ckc_session *s = ckc_plan(save(&b, &a, "w.onnx"),
                              (const char *[]){"train=w", "optimizer=sgd", "lr=1", NULL}, &e);
    ck_assert_msg(s != NULL, "%s", e.message);
    OK(ckc_train(s, 1, &in, 1, &loss, &e_));
    ck_assert_double_eq(loss, 5);
    ckc_free(s);
    arena_free(&a);
}
END_TEST

static Tensor array_of(DataFile *f, const char *name)
{
    Tensor t = {0};
    Diag d = {0};
    ck_assert_msg(data_get(f, name, &t, &d), "%s", d.msg);
    return t;
}

/* --grads writes an output that is the weight w as output/w, beside w's gradient as w; of two outputs that
 * are numbers, it writes the loss as `loss` and the other under its own name. */
START_TEST(names_of_results)
{
    float w[4] = {1, 2, 3, 4}, ones[6] = {1, 1, 1, 1, 1, 1};
    const NamedTensor in = {"x", {type_make(DT_F32, 2, (int64_t[]){3, 2}), ones}};
    Arena a = {0};
    Builder b;
    Diag d = {0};
    start(&b, 13);
    add_value(&b, &a, "x", FLOAT, "32", true);
    add_value(&b, &a, "sum", FLOAT, "11", false);
    add_value(&b, &a, "mean", FLOAT, "11", false);
    add_value(&b, &a, "w", FLOAT, "22", false);
    add_tensor(&b, "w", 2, (int64_t[]){2, 2}, w);
    add_node(&b, &a, "MatMul", "x w", "y");
    add_node(&b, &a, "ReduceSum", "y", "sum");
    add_node(&b, &a, "ReduceMean", "y", "mean");
    ck_assert(npz_write("x.npz", 1, &in, &d));
    ckc_accepts(format("%s --data x.npz --loss-output mean --grads g.npz --device cpu --quiet",
                       save(&b, &a, "w.onnx")));
    DataFile *f = data_open("g.npz", &d);
    ck_assert_msg(f != NULL, "%s", d.msg);
    ck_assert_int_eq(data_count(f), 4);
    static const struct {
        const char *name;
        double first;
    } want[] = {{"loss", 5}, {"sum", 30}, {"w", 0.5}, {"output/w", 1}};
    for (int i = 0; i < 4; i++) {
        Tensor t = array_of(f, want[i].name);
        ck_assert_double_eq(tensor_f(&t, 0), want[i].first);
    }
    data_close(f);
    arena_free(&a);
}
END_TEST

/* A trained network predicts: a plan without loss and its written schedule give the same outputs, bit for
 * bit, and `ckc eval` computes them from the saved model. */
START_TEST(predictions)
{
    ckc_error e;
    float logits[2][4][10];
    ckc_session *s = plan("lr=0.1");
    OK(ckc_train(s, 5, data, 2, NULL, &e_));
    OK(ckc_save(s, "a.safetensors", &e_));
    OK(ckc_save(s, "a.onnx", &e_));
    ckc_free(s);
    s = plan("optimizer=none loss=none weights=a.safetensors");
    OK(ckc_write_schedule(s, "q", &e_));
    for (int opened = 0; opened < 2; opened++) {
        ckc_tensor t;
        ck_assert_int_eq(ckc_output(s, 0, &t), 1);
        ck_assert_str_eq(t.name, "logits");
        ck_assert_int_eq(ckc_output(s, 1, &t), 0);
        ck_assert_int_eq(ckc_gradient(s, 0, &t), 0);
        OK(ckc_train(s, 1, batch, 1, NULL, &e_));
        OK(ckc_read_output(s, "logits", logits[opened], sizeof *logits, &e_));
        ckc_free(s);
        s = opened ? NULL : ckc_open("q/step.ckp", NULL, &e);
        ck_assert_msg(opened || s, "%s", e.message);
    }
    ck_assert_mem_eq(logits[0], logits[1], sizeof *logits);
    Diag d = {0};
    NamedTensor in = {"x", {type_make(DT_F32, 2, batch[0].dim), x}};
    NamedTensor out = {"logits", {type_make(DT_F32, 2, (int64_t[]){4, 10}), logits}};
    ck_assert(npz_write("in.npz", 1, &in, &d) && npz_write("out.npz", 1, &out, &d));
    ckc_accepts("eval a.onnx --bind batch=4 --data in.npz --expect out.npz");
    logits[0][2][7] += 1;
    ck_assert(npz_write("out.npz", 1, &out, &d));
    ckc_fails("", "eval a.onnx --bind batch=4 --data in.npz --expect out.npz", 1, "");
}
END_TEST

/* Integers are padded with a number that a float cannot hold, exactly. */
START_TEST(padding_of_integers)
{
    enum { INT32 = 6 };
    int32_t element[] = {1}, padded[] = {(1 << 24) + 1, 1};
    int64_t before[] = {1, 0};
    Arena a = {0};
    Builder b;
    Diag d = {0};
    start(&b, 17);
    add_value(&b, &a, "x", INT32, "1", true);
    add_value(&b, &a, "y", INT32, "2", false);
    add_node(&b, &a, "Pad", "x before value", "y");
    Onnx__TensorProto *t = add_tensor(&b, "before", 1, (int64_t[]){2}, NULL);
    t->data_type = INT64;
    t->int64_data = before;
    t->n_int64_data = 2;
    t = add_tensor(&b, "value", 0, NULL, NULL);
    t->data_type = INT32;
    t->int32_data = padded;
    t->n_int32_data = 1;
    save(&b, &a, "pad.onnx");
    NamedTensor in = {"x", {type_make(DT_I32, 1, (int64_t[]){1}), element}};
    NamedTensor out = {"y", {type_make(DT_I32, 1, (int64_t[]){2}), padded}};
    ck_assert(npz_write("in.npz", 1, &in, &d) && npz_write("out.npz", 1, &out, &d));
    ckc_accepts("eval pad.onnx --data in.npz --expect out.npz --rtol 0 --atol 0");
    arena_free(&a);
}
END_TEST

static void refuses(ckc_session *s, Read *read, const char *name, size_t bytes, const char *says)
{
    ckc_error e;
    float room[40];
    ck_assert_int_eq(read(s, name, room, bytes, &e), CKC_BAD_INPUT);
    is_error(&e, CKC_BAD_INPUT, says);
}

START_TEST(results_that_are_not_there)
{
    ckc_error e;
    ckc_session *s = plan("");
    OK(ckc_train(s, 1, data, 2, NULL, &e_));
    refuses(s, ckc_read_output, "logits", 160, "keeps no output: it was planned without the option grads");
    refuses(s, ckc_read_gradient, "8.bias", 40, "keeps no gradient");
    OK(ckc_write_schedule(s, "q", &e_));
    ckc_free(s);
    s = plan("grads");
    refuses(s, ckc_read_output, "logits", 160, "logits: no step has been made");
    OK(ckc_train(s, 0, NULL, 0, NULL, &e_));
    refuses(s, ckc_read_gradient, "8.bias", 40, "8.bias: no step has been made");
    refuses(s, ckc_read_gradient, "8.bais", 40, "the step has no gradient '8.bais'; did you mean '8.bias'?");
    refuses(s, ckc_read_output, "8.bias", 40, "the step has no output '8.bias'");
    refuses(s, ckc_read_gradient, "8.bias", 44, "8.bias has 40 bytes, the caller says 44");
    ckc_free(s);
    ck_assert_ptr_null(ckc_plan(MODEL, options("grads loss=none optimizer=none"), &e));
    is_error(&e, CKC_BAD_INPUT, "--grads needs a loss");
    ck_assert_ptr_null(ckc_open("q/step.ckp", (const char *[]){"grads", NULL}, &e));
    is_error(&e, CKC_BAD_INPUT, "ckc_open has no option 'grads'");
}
END_TEST

/* ---- who is told -------------------------------------------------------------------------------------- */

typedef struct {
    int64_t last, end; /* the step told of last; the step at which the run is to end */
    double loss[5];
} Told;

static int tell(void *user, int64_t step, double loss, double seconds)
{
    Told *t = user;
    ck_assert_int_eq(step, ++t->last);
    ck_assert(seconds > 0);
    ck_assert(has_denormals());
    ck_assert_int_eq(omp_get_max_threads(), 3);
    ck_assert(uselocale((locale_t)0) == LC_GLOBAL_LOCALE);
    t->loss[step - 1] = loss;
    return step == t->end;
}

/* The function is told of every step, in the caller's own floating-point mode, threads and locale, and may
 * end the run; a further call goes on with the bits of a run that was not ended. */
START_TEST(steps_are_told)
{
    double loss[5];
    Told t = {.end = 3};
    ckc_accepts(TRAIN "--steps 5 --data d.npz --save a.safetensors");
    omp_set_num_threads(3);
    ckc_session *s = plan("");
    ckc_on_step(s, tell, &t);
    OK(ckc_train(s, 5, data, 2, loss, &e_));
    ck_assert_int_eq(ckc_steps(s), 3);
    ck_assert_int_eq(t.last, 3);
    OK(ckc_train(s, 1, data, 2, loss + 3, &e_));
    ck_assert_int_eq(t.last, 4);
    ck_assert_mem_eq(loss, t.loss, 4 * sizeof *loss);
    ckc_on_step(s, NULL, NULL);
    OK(ckc_train(s, 1, data, 2, NULL, &e_));
    ck_assert_int_eq(t.last, 4);
    OK(ckc_save(s, "b.safetensors", &e_));
    ckc_free(s);
    same_file("a.safetensors", "b.safetensors");
}
END_TEST

Suite *suite_results(void)
{
    Suite *s = suite_create("results");
    TCase *c = command_case(s, "results");
    tcase_add_checked_fixture(c, make_data, NULL);
    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, results_of_the_command, 0, sizeof ways / sizeof *ways);
    tcase_add_test(c, gradients_move_weights);
    tcase_add_test(c, outputs_before_the_update);
    tcase_add_test(c, names_of_results);
    tcase_add_loop_test(c, loss_before_the_update, 0, 2);
    tcase_add_test(c, predictions);
    tcase_add_test(c, padding_of_integers);
    tcase_add_test(c, results_that_are_not_there);
    tcase_add_test(c, steps_are_told);
    return s;
}
