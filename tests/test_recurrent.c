/* test_recurrent.c -- recurrent layers: products over all time steps are computed in segments of time, and
 * weights whose gates are in PyTorch's order are not copied. */
#include "tests.h"
#include "command.h"
#include "imported.h"
#include "onnx_builder.h"
#include "runtime/data.h"
#include "step.h"
#include <string.h>

enum { STEPS = 256, BATCH = 4, HIDDEN = 16, GATES = 4, SEGMENTS = 4 };

static float w[GATES * HIDDEN * HIDDEN], w_moved[GATES * HIDDEN * HIDDEN], b[2 * GATES * HIDDEN],
    b_moved[2 * GATES * HIDDEN];

/* Copies gates of `each` elements from PyTorch's order i, f, g, o to ONNX's i, o, f, g. */
static void move_gates(float *to, const float *from, int each)
{
    static const int moved[GATES] = {0, 3, 1, 2};
    for (int i = 0; i < GATES; i++)
        memcpy(to + i * each, from + moved[i] * each, (size_t)each * sizeof *to);
}

static void fill(void)
{
    for (int i = 0; i < GATES * HIDDEN * HIDDEN; i++)
        w[i] = (float)(i * 7 % 23 - 11) / 30;
    for (int i = 0; i < 2 * GATES * HIDDEN; i++)
        b[i] = (float)(i * 5 % 17 - 8) / 9;
    move_gates(w_moved, w, HIDDEN * HIDDEN);
    for (int i = 0; i < 2; i++)
        move_gates(b_moved + i * GATES * HIDDEN, b + i * GATES * HIDDEN, HIDDEN);
}

static void start_lstm(Builder *m, Arena *a)
{
    fill();
    start(m, 11);
    add_value(m, a, "x", FLOAT, "TNI", true);
    add_value(m, a, "h", FLOAT, "1NI", false);
}

static void end_lstm(Builder *m, Arena *a, const char *path)
{
    add_int(m, add_node(m, a, "LSTM", "x W R B", "_ h"), "hidden_size", HIDDEN);
    save(m, a, path);
}

static void plain_lstm(Builder *m, Arena *a, const char *path)
{
    start_lstm(m, a);
    add_tensor(m, "W", 3, (int64_t[]){1, GATES * HIDDEN, HIDDEN}, w_moved);
    add_tensor(m, "R", 3, (int64_t[]){1, GATES * HIDDEN, HIDDEN}, w_moved);
    add_tensor(m, "B", 2, (int64_t[]){1, 2 * GATES * HIDDEN}, b_moved);
    end_lstm(m, a, path);
}

static void add_unsqueeze(Builder *m, Arena *a, const char *in, const char *out)
{
    static int64_t first = 0;
    Onnx__AttributeProto *at = add_attr(m, add_node(m, a, "Unsqueeze", in, out), "axes");
    at->has_type = true;
    at->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS;
    at->n_ints = 1;
    at->ints = &first;
}

/* Writes the model of plain_lstm() as PyTorch's exporter does, with nodes that reorder the gates. */
static void exported_lstm(Builder *m, Arena *a, const char *path)
{
    static const char *const of[] = {"w", "r", "bw", "br"};
    start_lstm(m, a);
    for (int i = 0; i < 4; i++) {
        const char *n = of[i];
        int64_t dim[] = {GATES * HIDDEN, HIDDEN};
        add_tensor(m, n, i < 2 ? 2 : 1, dim, i < 2 ? w : b + (i - 2) * GATES * HIDDEN);
        add_node(m, a, "Split", n, arena_printf(a, "%si %sf %sg %so", n, n, n, n));
        add_int(m,
                add_node(m, a, "Concat", arena_printf(a, "%si %so %sf %sg", n, n, n, n),
                         arena_printf(a, "%s_moved", n)),
                "axis", 0);
    }
    add_int(m, add_node(m, a, "Concat", "bw_moved br_moved", "biases"), "axis", 0);
    add_unsqueeze(m, a, "w_moved", "W");
    add_unsqueeze(m, a, "r_moved", "R");
    add_unsqueeze(m, a, "biases", "B");
    end_lstm(m, a, path);
}

/* No value of the step, forward or backward, is larger than the gates of a segment of time; products that sum
 * over all time steps add up the segments in one place. */
START_TEST(time_in_segments)
{
    enum { SEGMENT = STEPS * BATCH * GATES * HIDDEN / SEGMENTS };
    Arena a = {0};
    Builder m;
    plain_lstm(&m, &a, "lstm.onnx");
    TestStep s;
    step_init(&s);
    OnnxBind bind[] = {{"T", STEPS}, {"N", BATCH}, {"I", HIDDEN}};
    s.opt.import.bind = bind;
    s.opt.import.nbind = 3;
    ck_assert_msg(step_plan(&s, "lstm.onnx", NULL), "%s", s.diag.msg);
    int64_t largest = 0, sums = 0;
    for (uint32_t k = 0; k < s.g.norder; k++) {
        const Node *n = &s.g.nodes[s.g.order[k].i];
        int64_t size = type_count(val_type(&s.g, n->out[0]));
        largest = size > largest ? size : largest;
        sums += n->op == OP_matmul_add;
    }
    ck_assert_int_eq(largest, SEGMENT);
    ck_assert_int_eq(sums, SEGMENTS - 1);
    step_free(&s);
    arena_free(&a);
}
END_TEST

static double loss_of(const char *path)
{
    ckc_accepts(format("%s --bind T=9,N=2,I=%d --optimizer none --grads g.npz -q", path, HIDDEN));
    Diag d = {0};
    Tensor loss;
    DataFile *f = data_open("g.npz", &d);
    ck_assert_msg(f && data_get(f, "loss", &loss, &d), "%s", d.msg);
    double x = tensor_f(&loss, 0);
    data_close(f);
    return x;
}

START_TEST(gates_where_they_lie)
{
    Arena a = {0};
    Builder m;
    exported_lstm(&m, &a, "exported.onnx");
    Imported r = import_file("exported.onnx");
    OnnxBind bind[] = {{"T", 9}, {"N", 2}, {"I", HIDDEN}};
    ck_assert_msg(build_graph(&r, &(OnnxOptions){.bind = bind, .nbind = 3}), "%s", r.d.msg);
    graph_dce(&r.g, &a);
    for (uint32_t k = 0; k < r.g.norder; k++) {
        const Node *n = &r.g.nodes[r.g.order[k].i];
        ck_assert_msg(n->op != OP_concat, "weights are copied into another order");
    }
    release(&r);
    plain_lstm(&m, &a, "plain.onnx");
    ck_assert_double_eq_tol(loss_of("exported.onnx"), loss_of("plain.onnx"), 1e-6);
    arena_free(&a);
}
END_TEST

Suite *suite_recurrent(void)
{
    Suite *s = suite_create("recurrent");
    TCase *t = tcase_create("recurrent");
    tcase_add_checked_fixture(t, make_folder, remove_folder);
    tcase_add_test(t, time_in_segments);
    tcase_add_test(t, gates_where_they_lie);
    suite_add_tcase(s, t);
    return s;
}
