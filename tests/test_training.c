/* test_training.c -- what a training run consists of besides its steps: epochs and the order of their rows,
 * validation, learning rates that change, parameters without decay. */
#include "tests.h"
#include "command.h"
#include "onnx_builder.h"
#include "runtime/runtime_int.h"
#include "step.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODEL "'" CKC_SOURCE_DIR "/examples/mlp/model.onnx' "
#define MLP MODEL "--bind batch=4 --threads 1 -o p "

/* ---- the order of rows ------------------------------------------------------------------------------- */

START_TEST(shuffled_is_a_permutation)
{
    static const int64_t size[] = {1, 2, 3, 7, 64, 1000, 4097};
    for (size_t k = 0; k < sizeof size / sizeof *size; k++) {
        bool seen[5000] = {0};
        for (int64_t i = 0; i < size[k]; i++) {
            int64_t v = shuffled(1, 0, size[k], i);
            ck_assert(v >= 0 && v < size[k] && !seen[v]);
            seen[v] = true;
        }
    }
    int same_epoch = 0, same_seed = 0, fixed = 0;
    for (int64_t i = 0; i < 1000; i++) {
        same_epoch += shuffled(1, 0, 1000, i) == shuffled(1, 1, 1000, i);
        same_seed += shuffled(1, 0, 1000, i) == shuffled(2, 0, 1000, i);
        fixed += shuffled(1, 0, 1000, i) == i;
    }
    ck_assert(same_epoch < 10 && same_seed < 10 && fixed < 10); /* each is 1 on average */
    ck_assert_int_lt(shuffled(1, 5, (int64_t)1 << 40, 12345), (int64_t)1 << 40);
}
END_TEST

/* Three numbers are shuffled to all six orders, each about as often as the others. */
START_TEST(all_orders)
{
    enum { EPOCHS = 6000 };
    int count[27] = {0};
    for (int64_t e = 0; e < EPOCHS; e++)
        count[9 * shuffled(3, e, 3, 0) + 3 * shuffled(3, e, 3, 1) + shuffled(3, e, 3, 2)]++;
    int orders = 0;
    for (int i = 0; i < 27; i++) {
        orders += count[i] > 0;
        ck_assert(count[i] == 0 || abs(count[i] - EPOCHS / 6) < 150);
    }
    ck_assert_int_eq(orders, 6);
}
END_TEST

static const char *const network = "graph {\n"
                                   "  input %x: f32[2,3]\n"
                                   "  param %w: f32[3,1] = {1, 2, 3}\n"
                                   "  %y: f32[2,1] = matmul %x, %w\n"
                                   "  %loss: f32[] = reduce_sum %y {axes=[0,1], keepdims=0}\n"
                                   "  output %loss\n"
                                   "}\n";

static DataFile *rows_of(int64_t n)
{
    float rows[16][3];
    Diag d = {0};
    for (int i = 0; i < 16 * 3; i++)
        rows[i / 3][i % 3] = (float)(i / 3);
    NamedTensor v = {"x", {type_make(DT_F32, 2, (int64_t[]){n, 3}), rows}};
    ck_assert_msg(npz_write("d.npz", 1, &v, &d), "%s", d.msg);
    DataFile *f = data_open("d.npz", &d);
    ck_assert_msg(f != NULL, "%s", d.msg);
    return f;
}

/* If five rows are shuffled into micro-batches of two, each epoch has every row once, even where a
 * micro-batch has rows of two epochs. */
START_TEST(an_epoch_has_every_row)
{
    enum { ROWS = 5, EPOCHS = 4, STEPS = ROWS * EPOCHS / 4 };
    TestStep s;
    step_init(&s);
    s.opt.optim = OPTIM_SGD;
    ck_assert_msg(step_compile_text(&s, network, NULL), "%s", s.diag.msg);
    DataFile *data = rows_of(ROWS);
    StepInputs own = step_inputs(&s.g);
    Feed *f = feed_open(&s.g, &own, data, FEED_SHUFFLED, 4, &s.diag);
    ck_assert_msg(f != NULL, "%s", s.diag.msg);
    Tensor x = exec_tensor(s.exec, graph_find(&s.g, "x"));
    int64_t rows, batch, seen[ROWS * EPOCHS];
    feed_size(f, &rows, &batch);
    ck_assert(rows == ROWS && batch == 2);
    for (int k = 0, n = 0; k < STEPS; k++)
        for (int micro = 0; micro < 2; micro++) {
            ck_assert(feed_micro(f, s.exec, k + 1, micro, 2, &s.diag));
            seen[n++] = tensor_i(&x, 0);
            seen[n++] = tensor_i(&x, 3);
        }
    int moved = 0;
    for (int e = 0; e < EPOCHS; e++) {
        int sum = 0;
        for (int i = 0; i < ROWS; i++) {
            sum |= 1 << seen[e * ROWS + i];
            moved += seen[e * ROWS + i] != i;
        }
        ck_assert_int_eq(sum, (1 << ROWS) - 1);
    }
    ck_assert_int_gt(moved, ROWS);
    feed_close(f);
    data_close(data);
    step_free(&s);
}
END_TEST

/* FEED_ONCE feeds every row once: feed_count() rows of each batch, which are whole batches, then numbers that
 * divide a batch and are repeated to fill it. */
START_TEST(every_row_once)
{
    static const int64_t count[] = {2, 2, 1, 0, 0};
    TestStep s;
    step_init(&s);
    s.opt.optim = OPTIM_SGD;
    ck_assert_msg(step_compile_text(&s, network, NULL), "%s", s.diag.msg);
    DataFile *data = rows_of(5);
    StepInputs own = step_inputs(&s.g);
    Feed *f = feed_open(&s.g, &own, data, FEED_ONCE, 4, &s.diag);
    ck_assert_msg(f != NULL, "%s", s.diag.msg);
    Tensor x = exec_tensor(s.exec, graph_find(&s.g, "x"));
    for (int64_t i = 0; i < 5; i++)
        ck_assert_int_eq(feed_count(f, i + 1), count[i]);
    for (int64_t i = 0; i < 3; i++) {
        ck_assert(feed_step(f, s.exec, i + 1, &s.diag));
        ck_assert_int_eq(tensor_i(&x, 0), 2 * i);
        ck_assert_int_eq(tensor_i(&x, 3), i < 2 ? 2 * i + 1 : 4);
    }
    feed_close(f);
    data_close(data);
    step_free(&s);
}
END_TEST

/* ---- the learning rate --------------------------------------------------------------------------------- */

START_TEST(learning_rates)
{
    LrSchedule none = {.steps = 10}, cosine = {LR_COSINE, 4, 12, 0.1}, linear = {LR_LINEAR, 0, 4, 0};
    ck_assert_double_eq(learning_rate(0.5, &none, 1), 0.5);
    ck_assert_double_eq(learning_rate(0.5, &none, 99), 0.5);
    ck_assert_double_eq(learning_rate(1, &cosine, 1), 0.25);
    ck_assert_double_eq(learning_rate(1, &cosine, 4), 1);
    ck_assert_double_eq(learning_rate(1, &cosine, 5), 1);
    ck_assert_double_eq_tol(learning_rate(1, &cosine, 9), 0.55, 1e-15);
    ck_assert_double_eq_tol(learning_rate(1, &cosine, 12), 0.1 + 0.45 * (1 + cos(M_PI * 7 / 8)), 1e-15);
    ck_assert_double_eq(learning_rate(1, &cosine, 13), 0.1);
    for (int i = 1; i <= 4; i++)
        ck_assert_double_eq(learning_rate(8, &linear, i), 8 - 2 * (i - 1));
}
END_TEST

/* ---- as users run it ----------------------------------------------------------------------------------- */

static void write_rows(const char *path, int64_t rows, float x[][16], int64_t *target)
{
    NamedTensor v[] = {{"x", {type_make(DT_F32, 2, (int64_t[]){rows, 16}), x}},
                       {"target", {type_make(DT_I64, 1, &rows), target}}};
    Diag d = {0};
    ck_assert_msg(npz_write(path, 2, v, &d), "%s", d.msg);
}

static void write_data(const char *path, int64_t rows, int salt)
{
    float x[40][16];
    int64_t target[40];
    for (int i = 0; i < 40 * 16; i++)
        x[i / 16][i % 16] = (float)((i * 37 + salt) % 23) / 23;
    for (int i = 0; i < 40; i++)
        target[i] = (i * 7 + salt) % 10;
    write_rows(path, rows, x, target);
}

static json_t *member(const char *key)
{
    json_t *all = read_json("out"), *v = json_incref(json_object_get(all, key));
    json_decref(all);
    return v;
}

static double last_loss(json_t *report)
{
    json_t *all = json_object_get(report, "losses");
    return json_number_value(json_array_get(all, json_array_size(all) - 1));
}

/* A weight may have the name of one of the step's own inputs: it trains and is saved as any other. */
START_TEST(names_of_the_step_are_free)
{
    static const char *const name[] = {"w", "lr", "step", "rng", "micro_batch", "loss_scale"};
    static float w[16];
    double first = 0;
    for (int i = 0; i < 16; i++)
        w[i] = 0.1f * (float)(i % 5) - 0.2f;
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        Arena a = {0};
        Builder b;
        start(&b, 13);
        add_value(&b, &a, "x", FLOAT, "84", true);
        add_value(&b, &a, "y", FLOAT, "84", false);
        add_tensor(&b, name[i], 2, (int64_t[]){4, 4}, w);
        add_node(&b, &a, "MatMul", arena_printf(&a, "x %s", name[i]), "h");
        add_node(&b, &a, "Dropout", "h", "y");
        save(&b, &a, "names.onnx");
        ckc_accepts(
            "names.onnx --loss mse --optimizer adam --lr 0.1 --steps 3 --json -o o --save o.safetensors");
        json_t *j = read_json("out");
        double loss = last_loss(j);
        ck_assert(loss > 0 && (!i || loss == first));
        first = loss;
        json_decref(j);
        ck_assert_int_eq(shell(arena_printf(&a, "grep -q '\"%s\"' o.safetensors", name[i])), 0);
        arena_free(&a);
    }
}
END_TEST

/* An output that has one element only because a micro-batch has one row is not taken for the loss: the
 * micro-batches have the loss of the whole batch. */
START_TEST(one_row_is_no_loss)
{
    static float p[4][9];
    Arena a = {0};
    Builder b;
    start(&b, 13);
    add_value(&b, &a, "x", FLOAT, "N199", true);
    add_value(&b, &a, "y", FLOAT, "N111", false);
    const char *last = "x";
    for (int i = 0; i < 4; i++) {
        const char *tanh = arena_printf(&a, "t%d", i), *mul = arena_printf(&a, "m%d", i);
        for (int k = 0; k < 9; k++)
            p[i][k] = 0.5f + 0.1f * (float)((k * k + 3 * i) % 7);
        add_tensor(&b, arena_printf(&a, "p%d", i), 1, (int64_t[]){9}, p[i]);
        add_node(&b, &a, "Mul", arena_printf(&a, "%s p%d", last, i), mul);
        add_node(&b, &a, "Tanh", mul, tanh);
        last = tanh;
    }
    add_node(&b, &a, "GlobalAveragePool", last, "y");
    save(&b, &a, "row.onnx");
    ckc_accepts("row.onnx --bind N=4 --optimizer sgd --steps 1 --json -o o");
    json_t *whole = read_json("out");
    ckc_accepts("row.onnx --bind N=4 --optimizer sgd --steps 1 --json -o o --budget 30% --accumulate auto");
    json_t *parts = read_json("out");
    ck_assert_int_eq(json_integer_value(json_object_get(parts, "accumulate")), 4);
    ck_assert_double_eq_tol(last_loss(parts), last_loss(whole), 1e-6);
    json_decref(whole);
    json_decref(parts);
    arena_free(&a);
}
END_TEST

/* What the loss is does not depend on the number of rows: one number a row is an output, also of one row. */
START_TEST(one_number_a_row)
{
    static const struct {
        const char *x, *y, *bind, *loss;
    } of[] = {{"N3", "N1", "--bind N=1", "mse"},
              {"N3", "N1", "--bind N=4", "mse"},
              {"N3", "N", "--bind N=1", "mse"},
              {"N3", "N", "--bind N=4", "mse"},
              {"43", "4", "", "mse"},
              {"13", "11", "", "of the model"}};
    float w[3] = {1, 2, 3};
    Arena a = {0};
    Builder b;
    start(&b, 13);
    add_value(&b, &a, "x", FLOAT, of[_i].x, true);
    add_value(&b, &a, "y", FLOAT, of[_i].y, false);
    add_tensor(&b, "w", (int)strlen(of[_i].y), (int64_t[]){3, 1}, w);
    add_node(&b, &a, "MatMul", "x w", "y");
    save(&b, &a, "m.onnx");
    ckc_accepts(format("plan m.onnx -o p --json --threads 1 %s", of[_i].bind));
    json_t *o = read_json("out");
    ck_assert_str_eq(json_string_value(json_object_get(o, "loss")), of[_i].loss);
    char *out = read_text("out");
    ck_assert(!strstr(out, "has one element") == (strcmp(of[_i].loss, "mse") == 0)); /* a note */
    free(out);
    if (!of[_i].y[1])
        ckc_refuses(format("plan m.onnx -o q --loss ce %s", of[_i].bind), 1, "one number a row");
    json_decref(o);
    arena_free(&a);
}
END_TEST

/* Data that is not finite, as a mask may be, is named where the loss is not. */
START_TEST(infinite_data_is_told)
{
    float x[8 * 16] = {0};
    int64_t target[8];
    Diag d = {0};
    Tensor data = {type_make(DT_F32, 2, (int64_t[]){8, 16}), x};
    x[5 * 16 + 3] = -INFINITY;
    NamedTensor v[] = {{"x", data}, {"target", rows_of_class(8, target, 1)}};
    ck_assert(npz_write("d.npz", 2, v, &d));
    ckc_fails("", MLP "--data d.npz --steps 2 -q", 4, "x[5] of the data is not finite; try");
    ckc_fails("", MLP "--data d.npz --accumulate 2 --shuffle -q", 4, "x[5] of the data is");
    for (int i = 0; i < 16; i++)
        x[5 * 16 + i] = FLT_MAX;
    ck_assert(npz_write("d.npz", 2, v, &d));
    ckc_fails("", MLP "--data d.npz --steps 2 -q", 4, "is written; try a smaller --lr");
}
END_TEST

/* Cross-entropy of what are probabilities already is what was asked for, and said. */
START_TEST(probabilities_as_logits_are_told)
{
    Arena a = {0};
    Builder b;
    start(&b, 13);
    add_value(&b, &a, "x", FLOAT, "43", true);
    add_value(&b, &a, "y", FLOAT, "43", false);
    add_tensor(&b, "w", 2, (int64_t[]){3, 3}, (float[]){1, 2, 3, 4, 5, 6, 7, 8, 9});
    add_node(&b, &a, "MatMul", "x w", "h");
    add_node(&b, &a, "Sigmoid", "h", "y");
    save(&b, &a, "m.onnx");
    ckc_prints("plan m.onnx -o p --loss ce", "output 'y' is made of the probabilities of 'node1'");
    arena_free(&a);
}
END_TEST

/* Outputs have the file's names, though the graph's text form cannot print them. */
START_TEST(loss_output_is_named_as_in_the_file)
{
    Arena a = {0};
    Builder b;
    start(&b, 13);
    add_value(&b, &a, "x", FLOAT, "43", true);
    add_value(&b, &a, "y", FLOAT, "43", false);
    add_value(&b, &a, "z,(1)", FLOAT, "43", false);
    add_tensor(&b, "w", 2, (int64_t[]){3, 3}, (float[]){1, 2, 3, 4, 5, 6, 7, 8, 9});
    add_node(&b, &a, "MatMul", "x w", "y");
    add_node(&b, &a, "Sigmoid", "y", "z,(1)");
    save(&b, &a, "m.onnx");
    ckc_prints("plan m.onnx -o p --loss-output 'z,(1)'", "loss bce");
    arena_free(&a);
}
END_TEST

START_TEST(grads_have_the_loss_of_the_step)
{
    Diag d = {0};
    Tensor loss;
    write_data("a.npz", 8, 1);
    ckc_accepts(MLP "--data a.npz --accumulate 2 --grads g.npz --json");
    json_t *losses = member("losses");
    DataFile *f = data_open("g.npz", &d);
    ck_assert_msg(f && data_get(f, "loss", &loss, &d), "%s", d.msg);
    ck_assert_double_eq_tol(tensor_f(&loss, 0), json_real_value(json_array_get(losses, 0)), 1e-6);
    data_close(f);
    json_decref(losses);
}
END_TEST

#define RUN                                                                                                  \
    MLP "--data a.npz --shuffle --epochs 2 --lr 0.01 --schedule cosine --warmup 3 --min-lr 0.001 "           \
        "--no-decay auto "

/* The validation loss is the mean over all rows of the losses that the saved model has, and training has the
 * same bits with and without validation. */
START_TEST(validation)
{
    write_data("a.npz", 20, 1);
    write_data("b.npz", 11, 2); /* two batches of four, two rows and one */
    ckc_accepts(RUN "--val b.npz --budget 1MB --json --save w.onnx --save w.safetensors");
    json_t *val = member("val_losses"), *losses;
    ck_assert_uint_eq(json_array_size(val), 2);
    ck_assert_int_eq(json_integer_value(json_object_get(json_array_get(val, 0), "step")), 5);
    ck_assert_int_eq(json_integer_value(json_object_get(json_array_get(val, 1), "step")), 10);
    double got = json_real_value(json_object_get(json_array_get(val, 1), "loss"));
    ck_assert_int_lt(json_number("out", "budget_bytes"), 1000000); /* less what validation takes */
    ckc_accepts("w.onnx --bind batch=1 --threads 1 -o q --data b.npz --optimizer none --steps 11 --json");
    losses = member("losses");
    double want = 0;
    for (size_t i = 0; i < 11; i++)
        want += json_real_value(json_array_get(losses, i)) / 11;
    ck_assert_double_eq_tol(got, want, 1e-6 * want);
    ckc_accepts(RUN "--quiet --save v.safetensors");
    same_file("w.safetensors", "v.safetensors");
    ckc_accepts("run p/step.ckp --quiet --epochs 2 --save v.safetensors"); /* the rest is in the schedule */
    same_file("w.safetensors", "v.safetensors");
    ckc_prints(RUN "--val b.npz --val-every 4", "step 8      val loss");
    write_data("b.npz", 3, 2); /* two rows and one */
    ckc_prints(RUN "--val b.npz", "step 10     val loss");
    json_decref(val);
    json_decref(losses);
}
END_TEST

/* Rows with ignored targets do not count in the validation loss, be they part of a batch or all of it. */
START_TEST(validation_without_ignored_targets)
{
    enum { ROWS = 12 };
    float x[ROWS][16], kept_x[ROWS][16];
    int64_t target[ROWS], kept_target[ROWS];
    double loss[2];
    int n = 0;
    for (int i = 0; i < ROWS; i++) {
        for (int k = 0; k < 16; k++)
            x[i][k] = (float)((i * 16 + k) * 37 % 23) / 23;
        target[i] = i > 0 && i < 8 ? -100 : i * 7 % 10; /* three, four and none of the rows of a batch */
        if (target[i] < 0)
            continue;
        memcpy(kept_x[n], x[i], sizeof *x);
        kept_target[n++] = target[i];
    }
    write_data("a.npz", 4, 1);
    write_rows("0.npz", ROWS, x, target);
    write_rows("1.npz", n, kept_x, kept_target);
    for (int i = 0; i < 2; i++) {
        ckc_accepts(format(MLP "--data a.npz --steps 1 --val %d.npz --json", i));
        json_t *val = member("val_losses");
        loss[i] = real_of(json_array_get(val, 0), "loss");
        json_decref(val);
    }
    ck_assert_double_eq_tol(loss[0], loss[1], 1e-6);
}
END_TEST

/* Validation of a network with batch norms uses the running statistics of the training: the saved model, and
 * the original with the saved weights, have the same loss. */
START_TEST(validation_of_batch_norms)
{
    static float x[4][3][6][6];
    int64_t target[4] = {1, 4, 0, 2};
    for (int i = 0; i < 4 * 3 * 36; i++)
        x[i / 108][i / 36 % 3][i / 6 % 6][i % 6] = (float)(i * 37 % 101) / 25;
    NamedTensor v[] = {{"x", {type_make(DT_F32, 4, (int64_t[]){4, 3, 6, 6}), x}},
                       {"target", {type_make(DT_I64, 1, (int64_t[]){4}), target}}};
    Diag d = {0};
    ck_assert_msg(npz_write("a.npz", 2, v, &d), "%s", d.msg);
#define CONV "'" CKC_SOURCE_DIR "/tests/data/inference/conv_dynamo.onnx' --threads 1 "
    ckc_accepts(CONV "-o p --data a.npz --val a.npz --steps 8 --lr 0.01 --save w.onnx --save w.safetensors "
                     "--json");
    json_t *val = member("val_losses");
    double got = json_real_value(json_object_get(json_array_get(val, json_array_size(val) - 1), "loss"));
    json_decref(val);
    static const char *const same[] = {"w.onnx --threads 1 ", CONV "--weights w.safetensors "};
    for (int i = 0; i < 2; i++) {
        ckc_accepts(format("%s -o q --data a.npz --optimizer none --steps 1 --json", same[i]));
        json_t *losses = member("losses");
        ck_assert_double_eq_tol(got, json_real_value(json_array_get(losses, 0)), 1e-6);
        json_decref(losses);
    }
}
END_TEST

static double number(const char *line, const char *key)
{
    json_t *o = json_loads(line, 0, NULL);
    double v = json_number_value(json_object_get(o, key));
    json_decref(o);
    return v;
}

START_TEST(metrics)
{
    char line[300];
    write_data("a.npz", 20, 1);
    ckc_accepts(RUN "--quiet --val a.npz --metrics m.jsonl");
    FILE *f = fopen("m.jsonl", "r");
    for (int i = 1; i <= 10; i++) {
        LrSchedule s = {LR_COSINE, 3, 10, 0.001};
        ck_assert_ptr_nonnull(fgets(line, sizeof line, f));
        ck_assert_double_eq(number(line, "step"), i);
        ck_assert_double_eq(number(line, "lr"), learning_rate(0.01, &s, i));
        ck_assert(number(line, "loss") > 0 && number(line, "samples_per_second") > 0);
        if (i % 5)
            continue;
        ck_assert_ptr_nonnull(fgets(line, sizeof line, f));
        ck_assert_double_eq(number(line, "step"), i);
        ck_assert(number(line, "val_loss") > 0);
    }
    ck_assert_ptr_null(fgets(line, sizeof line, f));
    fclose(f);
    ckc_fails("", MLP "--quiet --steps 2 --save w.safetensors --metrics /dev/full", 4,
              "/dev/full: No space left");
    ck_assert_int_eq(access("w.safetensors", R_OK), 0); /* the weights are saved nevertheless */
    write_text("log", "old\n");
    ckc_accepts(MLP "--quiet --steps 1 --checkpoint c --metrics /dev/stdout >>log");
    ckc_accepts(MLP "--quiet --steps 2 --checkpoint c --resume --metrics /dev/stdout >>log");
    char *log = read_text("log");
    ck_assert_msg(strncmp(log, "old\n{\"step\":1,", 14) == 0 && strstr(log, "\n{\"step\":2,"), "%s", log);
    free(log);
    ckc_fails("", MLP "--quiet --metrics /proc/m.jsonl", 1, "/proc/m.jsonl");
    ckc_fails("", MLP "--quiet --steps 0 --metrics m.jsonl", 1, "need a step to run");
}
END_TEST

static double first_loss(void)
{
    json_t *losses = member("losses");
    double loss = json_real_value(json_array_get(losses, 0));
    json_decref(losses);
    return loss;
}

/* The batch is the first dimension that has a symbol, not that of the first input. */
START_TEST(batch_of_a_later_input)
{
    static float w[4] = {1, 2, 3, 4}, s[1] = {1}, x[16], target[16];
    Arena a = {0};
    Builder b;
    Diag d = {0};
    start(&b, 17);
    add_value(&b, &a, "s", FLOAT, "1", true);
    add_value(&b, &a, "x", FLOAT, "N2", true);
    add_value(&b, &a, "y", FLOAT, "N2", false);
    add_tensor(&b, "w", 2, (int64_t[]){2, 2}, w);
    add_node(&b, &a, "Mul", "x s", "scaled");
    add_node(&b, &a, "MatMul", "scaled w", "y");
    save(&b, &a, "s.onnx");
    for (int i = 0; i < 16; i++)
        x[i] = (float)i / 16;
    NamedTensor v[] = {{"s", {type_make(DT_F32, 1, (int64_t[]){1}), s}},
                       {"x", {type_make(DT_F32, 2, (int64_t[]){8, 2}), x}},
                       {"target", {type_make(DT_F32, 2, (int64_t[]){8, 2}), target}}};
    ck_assert_msg(npz_write("d.npz", 3, v, &d), "%s", d.msg);
#define OF_S "s.onnx --loss mse --data d.npz --quiet -o p --checkpoint c "
    ckc_accepts(OF_S "--bind N=4 --steps 2 --metrics m.jsonl");
    char *m = read_text("m.jsonl");
    *strchr(m, '\n') = 0;
    ck_assert_double_eq_tol(number(m, "samples_per_second") * number(m, "seconds"), 4, 1e-6);
    free(m);
    ckc_refuses(OF_S "--bind N=2 --steps 3 --resume", 1, "with batch f32[4,2], this run has f32[2,2]");
    ckc_accepts(OF_S "--bind N=2 --accumulate 2 --steps 3 --resume");
    ckc_accepts("run p/step.ckp --steps 4 --quiet --checkpoint c --resume");
    /* The random rows of two micro-batches are those of the batch. */
    ckc_accepts("s.onnx --loss mse --bind N=4 --json");
    double whole = first_loss();
    ckc_accepts("s.onnx --loss mse --bind N=2 --accumulate 2 --json");
    ck_assert_double_eq_tol(first_loss(), whole, 1e-5 * whole);
    arena_free(&a);
}
END_TEST

START_TEST(no_decay)
{
    ckc_accepts(MLP "--quiet --no-decay auto"); /* four biases, three of them of norms, and three scales */
    ck_assert_int_eq(shell("test $(grep -c '= adamw.*{weight_decay=0}' p/step.ckp) = 7"), 0);
    ckc_accepts(MLP "--quiet --optimizer sgd --weight-decay 0.5 --no-decay '*.weight'");
    ck_assert_int_eq(shell("test $(grep -c '= sgd.*weight_decay=0.5}' p/step.ckp) = 5"), 0);
    ckc_refuses(MLP "--no-decay '*.wight'", 1, "did you mean");
    ckc_refuses(MLP "--no-decay auto --optimizer sgd", 1, "--weight-decay");
    ckc_refuses(MLP "--no-decay auto --weight-decay 0", 1, "--weight-decay");
}
END_TEST

START_TEST(what_would_do_nothing)
{
    write_data("a.npz", 20, 1);
    write_data("one.npz", 4, 1);
    write_text("t.txt", "text");
    ckc_fails("", MLP "--epochs 2", 1, "--epochs needs --data");
    ckc_fails("", MLP "--shuffle", 1, "--shuffle needs --data");
    ckc_fails("", MLP "--data a.npz --epochs 2 --steps 3", 1, "--steps");
    ckc_fails("", MLP "--data one.npz --shuffle", 1, "no more data than one batch");
    ckc_fails("", MLP "--min-lr 1e-5", 1, "--schedule");
    ckc_fails("", MLP "--schedule cosine --lr 1e-5 --min-lr 1e-3", 1, "above");
    ckc_fails("", MLP "--schedule cosin", 1, "cosine");
    ckc_fails("", MLP "--optimizer none --lr 1", 1, "need an optimizer");
    ckc_fails("", MLP "--loss-scale 8", 1, "--precision fp16");
    ckc_fails("", MLP "--policy keep-all --moves 5", 1, "--policy takes the place of");
    ckc_fails("", MLP "--training --save a.safetensors", 1, "--training belongs to");
    ckc_fails("", MLP "--checkpoint no/c", 1, "no/c: the folder it would lie in is not there");
    ckc_fails("", MLP "--metrics no/c", 1, "no/c: the folder it would lie in is not there");
    ckc_fails("", MLP "--save-trained --save a.onnx", 1, ".safetensors");
    ckc_fails("", MLP "--steps 0 --profile", 1, "--profile");
    ckc_fails("", MLP "--val-every 3", 1, "--val");
    ckc_fails("", MLP "--val a.npz --optimizer none", 1, "--val");
    ckc_fails("", MLP "--val none.npz", 1, "none.npz: No such file");
    ckc_fails("", MLP "--val a.npz --budget 1kB", 3, "--val: the forward pass alone takes");
    ckc_fails("", MLP "--val a.npz --budget 40kB --policy keep-all", 3,
              "budget of 40000 bytes cannot be met by");
    ckc_fails("", MLP "--val a.npz --budget 40kB", 3, "budget of 40000 bytes cannot be met");
    int64_t least = ckc_least_budget();
    ckc_accepts(format(MLP "--quiet --data a.npz --val a.npz --budget %lldB", (long long)least));
    ckc_fails("", format(MLP "--val a.npz --budget %lldB", (long long)least - 1), 3, "cannot be met");
    ckc_accepts(MLP "--quiet");
    ckc_fails("", "run p/step.ckp --epochs 2", 1, "--epochs needs --data");
}
END_TEST

Suite *suite_training(void)
{
    Suite *s = suite_create("training");
    TCase *c = command_case(s, "training");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, shuffled_is_a_permutation);
    tcase_add_test(c, all_orders);
    tcase_add_test(c, an_epoch_has_every_row);
    tcase_add_test(c, every_row_once);
    tcase_add_test(c, learning_rates);
    tcase_add_test(c, names_of_the_step_are_free);
    tcase_add_test(c, one_row_is_no_loss);
    tcase_add_loop_test(c, one_number_a_row, 0, 6);
    tcase_add_test(c, infinite_data_is_told);
    tcase_add_test(c, probabilities_as_logits_are_told);
    tcase_add_test(c, loss_output_is_named_as_in_the_file);
    tcase_add_test(c, grads_have_the_loss_of_the_step);
    tcase_add_test(c, validation);
    tcase_add_test(c, validation_without_ignored_targets);
    tcase_add_test(c, validation_of_batch_norms);
    tcase_add_test(c, metrics);
    tcase_add_test(c, batch_of_a_later_input);
    tcase_add_test(c, no_decay);
    tcase_add_test(c, what_would_do_nothing);
    return s;
}
