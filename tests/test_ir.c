/* test_ir.c -- graphs: text form, verifier, groups of nodes merged into one kernel, constant folding; and
 * rounding to 16 bits. */
#include "tests.h"
#include "golden.h"
#include "ir/attrs.h"
#include "ir/kernel.h"
#include <stdlib.h>
#include <string.h>

static const char *const sample =
    "graph {\n"
    "  input %x: f32[4,8]\n"
    "  param %w: f32[2,8]\n"
    "  const %c: f32[2] = {0.5, -1}\n"
    "  %h: f32[4,2] = matmul %x, %w {tb=1}\n"
    "  %b: f32[4,2] = add %h, %c #1\n"
    "  %y: f32[4,2] = softmax %b {axis=1} #1 \"node 1\"\n"
    "  output %y\n"
    "}\n";

START_TEST(round_trip)
{
    Arena a = {0};
    Diag d = {0};
    Graph g;
    graph_init(&g, &a, &d);
    ck_assert_msg(graph_parse(&g, sample, &d), "%s", d.msg);
    ck_assert_msg(graph_verify(&g, &d), "%s", d.msg);
    char *s = graph_text(&g);
    ck_assert_str_eq(s, sample);
    free(s);
    arena_free(&a);
}
END_TEST

START_TEST(parse_errors)
{
    static const char *const cases[][2] = {
        {"graph {", "line 1: expected"},
        {"graph {\n %y: f32[2] = relu %x\n}", "line 2: %x is used before it is defined"},
        {"graph {\n input %x: f32[2]\n %y: f32[2] = nonsense %x\n}", "unknown operator 'nonsense'"},
        {"graph {\n input %x: f32[-2]\n}", "line 2: expected a shape"},
        {"graph {\n input %x: f32[2]\n input %x: f32[2]\n}", "defined twice"},
        {"graph {\n param %x: f32[2] as \"a\" transposed\n}", "%x is no matrix that is held transposed"},
        {"graph {\n param %x: f32[2] as \"a\" module shape f32[3]\n}", "another number of elements"},
        {"graph {\n param %x: f32[6] as \"a\" shape f32[4] blocks [0, 3]\n}", "%x has no such blocks"},
        {"graph {\n param %x: f32[6] as \"a\" shape f32[4] blocks [0, 1, 2]\n}", "%x has no such blocks"},
        {"graph {\n input %x: f32[2]\n %y: f32[2] = relu %x, %x\n}", "given 2 operands"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Arena a = {0};
        Diag d = {0};
        Graph g;
        graph_init(&g, &a, &d);
        ck_assert(!graph_parse(&g, cases[i][0], &d));
        ck_assert_msg(strstr(d.msg, cases[i][1]) != NULL, "'%s' lacks '%s'", d.msg, cases[i][1]);
        arena_free(&a);
    }
}
END_TEST

START_TEST(verify_rejects)
{
    static const char *const cases[][2] = {
        {"graph {\n input %x: f32[2]\n %y: f32[3] = relu %x\n}", "%y has the wrong type"},
        {"graph {\n state %s: f32[2]\n %y: f32[2] = relu %s\n %z: f32[2] = neg %s\n"
         " update %s = %y\n update %s = %z\n}",
         "%s is updated twice"},
        {"graph {\n param %w: f32[2]\n input %g: f32[2]\n input %lr: f32[]\n"
         " %v: f32[1,2] = reshape %w {shape=[1,2]}\n %n: f32[2] = sgd %w, %g, %lr\n %y: f32[1,2] = relu %v\n"
         " update %w = %n\n output %y\n}",
         "relu reads %w after its update"},
        {"graph {\n param %w: f32[2]\n input %g: f32[2]\n input %lr: f32[]\n"
         " %v: f32[1,2] = reshape %w {shape=[1,2]}\n %n: f32[2] = sgd %w, %g, %lr\n"
         " update %w = %n\n output %v\n}",
         "output %v shows %w after its update"},
        {"graph {\n input %x: f32[2]\n param %h: f16[2] cast %x\n}", "%h cannot be a cast of %x"},
        {"graph {\n param %w: f32[2]\n param %h: f16[3] cast %w\n}", "%h cannot be a cast of %w"},
        {"graph {\n param %h: f16[3] cast %h\n}", "%h cannot be a cast of %h"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Arena a = {0};
        Diag d = {0};
        Graph g;
        graph_init(&g, &a, &d);
        ck_assert_msg(graph_parse(&g, cases[i][0], &d), "%s", d.msg);
        ck_assert(!graph_verify(&g, &d));
        ck_assert_msg(strstr(d.msg, cases[i][1]) != NULL, "'%s' lacks '%s'", d.msg, cases[i][1]);
        arena_free(&a);
    }
}
END_TEST

/* Checks that the graph's nodes, merged into one kernel, give the values of the reference evaluation, and
 * that the kernel stores nwrite values. */
static void check_group(const char *text, int nwrite)
{
    Arena a = {0};
    Diag d = {0};
    Graph g;
    graph_init(&g, &a, &d);
    ck_assert_msg(graph_parse(&g, text, &d) && graph_verify(&g, &d), "%s", d.msg);
    void **data = NEW(&a, void *, g.nvals);
    for (uint32_t i = 1; i < g.nvals; i++)
        if (g.vals[i].kind == VAL_INPUT) {
            Tensor t = {g.vals[i].type, NEW(&a, char, type_bytes(&g.vals[i].type) + 1)};
            for (int64_t j = 0; j < type_count(&t.type); j++)
                tensor_set_f(&t, j, (double)((j * 7 + i * 3) % 11) / 4 - 1);
            data[i] = t.data;
        }
    ck_assert_msg(graph_eval(&g, data, &a, &d), "%s", d.msg);
    bool *live = NEW(&a, bool, g.nvals);
    for (uint32_t i = 0; i < g.nout; i++)
        live[g.out[i].i] = true;
    Command c;
    ck_assert_msg(lower(&c, &a, &g, g.order, (int)g.norder, live, &d), "%s", d.msg);
    ck_assert_int_eq(c.nwrite, nwrite);
    Tensor t[64];
    for (int i = 0; i < c.nread + c.nwrite; i++) {
        Type type = g.vals[c.vals[i].i].type;
        t[i] = (Tensor){type, i < c.nread ? data[c.vals[i].i] : NEW(&a, char, type_bytes(&type) + 1)};
    }
    command_interpret(&c, t);
    for (int i = c.nread; i < c.nread + c.nwrite; i++) {
        Tensor want = {t[i].type, data[c.vals[i].i]};
        for (int64_t j = 0; j < type_count(&want.type); j++)
            ck_assert_double_eq_tol(tensor_f(&t[i], j), tensor_f(&want, j), 1e-5);
    }
    arena_free(&a);
}

START_TEST(merge_groups)
{
    check_group("graph {\n input %x: f32[4,6]\n input %b: f32[6]\n %a: f32[4,6] = add %x, %b\n"
                " %r: f32[4,6] = relu %a\n output %r\n}", 1);
    check_group("graph {\n input %x: f32[4,6]\n input %b: f32[6]\n %a: f32[4,6] = add %x, %b\n"
                " %s: f32[4,6] = softmax %a {axis=1}\n %r: f32[4,6] = mul %s, %x\n output %r\n}", 1);
    /* through a reshape, with the space split */
    check_group("graph {\n input %x: f32[4,6]\n input %b: f32[6]\n %a: f32[4,6] = add %x, %b\n"
                " %v: f32[2,2,6] = reshape %a {shape=[2,2,6]}\n %r: f32[2,2,6] = tanh %v\n"
                " output %r\n}", 1);
    /* a pointwise node over the rows of a reduction */
    check_group("graph {\n input %x: f32[4,6]\n %s: f32[4,1] = reduce_sum %x {axes=[1]}\n"
                " %q: f32[4,1] = square %s\n %r: f32[4,6] = mul %x, %q\n output %r\n}", 1);
    /* if only sums of columns are wanted, what they read waits for sums of rows and is stored as well */
    check_group("graph {\n input %x: f32[4,6]\n %s: f32[4,6] = softmax %x {axis=1}\n"
                " %r: f32[1,6] = reduce_sum %s {axes=[0]}\n output %r\n}", 2);
    /* ... but what another sum of columns reads is not stored if it waits for no sum of rows */
    check_group("graph {\n input %x: f32[4,6]\n %q: f32[4,6] = square %x\n"
                " %s: f32[4,6] = softmax %x {axis=1}\n"
                " %t: f32[1,6] = reduce_sum %q {axes=[0]}\n %r: f32[1,6] = reduce_sum %s {axes=[0]}\n"
                " output %r\n output %t\n}", 3);
}
END_TEST

START_TEST(folding)
{
    Arena a = {0};
    Diag d = {0};
    Graph g;
    graph_init(&g, &a, &d);
    Val v = build2(&g, OP_add, build_ints(&g, (int64_t[]){1, 2, 3}, 3), build_ints(&g, (int64_t[]){5}, 1));
    ck_assert(!d.failed && graph_is_const(&g, v) && g.norder == 0);
    Tensor t = graph_tensor(&g, v);
    ck_assert_int_eq(tensor_i(&t, 2), 8);
    arena_free(&a);
}
END_TEST

/* A causal mask for a batch, as exporters compute it, folds to the mask of one sample, repeated: its 1 M
 * elements are a constant, the batch's 32 M would be too many. */
START_TEST(folding_of_what_repeats)
{
    enum { BATCH = 32, LENGTH = 1024 };
    Arena a = {0};
    Diag d = {0};
    Graph g;
    graph_init(&g, &a, &d);
    int64_t *at = NEW(&a, int64_t, BATCH *LENGTH), zero = 0;
    for (int64_t i = 0; i < BATCH * LENGTH; i++)
        at[i] = i % LENGTH;
    Val column = graph_const(&g, "column", type_make(DT_I64, 4, (int64_t[]){BATCH, 1, 1, LENGTH}), at);
    Val row = graph_const(&g, "row", type_make(DT_I64, 4, (int64_t[]){BATCH, 1, LENGTH, 1}), at);
    Val same = build_expand(&g, graph_const(&g, "same", type_scalar(DT_I64), &zero), 4,
                            (int64_t[]){BATCH, 1, 1, LENGTH});
    Val seen = build2(&g, OP_and, build2(&g, OP_less_equal, column, row), build2(&g, OP_equal, same, row));
    ck_assert(!d.failed);
    const Node *n = graph_def(&g, seen);
    ck_assert_int_eq(n->op, OP_expand);
    ck_assert_int_eq(val_type(&g, seen)->dim[0], BATCH);
    ck_assert(graph_is_const(&g, n->in[0]));
    Tensor t = graph_tensor(&g, n->in[0]);
    ck_assert_int_eq(type_count(&t.type), LENGTH * LENGTH);
    for (int64_t i = 0; i < LENGTH * LENGTH; i += 97)
        ck_assert_int_eq(tensor_i(&t, i), i % LENGTH <= i / LENGTH && i / LENGTH == 0);
    at[LENGTH] = 5; /* the second sample differs from the first: nothing is folded */
    column = graph_const(&g, "column", type_make(DT_I64, 4, (int64_t[]){BATCH, 1, 1, LENGTH}), at);
    n = graph_def(&g, build2(&g, OP_less_equal, column, row));
    ck_assert_int_eq(n->op, OP_less_equal);
    arena_free(&a);
}
END_TEST

START_TEST(half_precision)
{
    for (uint32_t h = 0; h < 65536; h++) {
        float f = f16_to_f32((uint16_t)h), b = bf16_to_f32((uint16_t)h);
        if (f == f)
            ck_assert_uint_eq(f32_to_f16(f), h);
        if (b == b)
            ck_assert_uint_eq(f32_to_bf16(b), h);
    }
}
END_TEST

/* A double is rounded to 16 bits once: just beside the middle of two neighbours it goes to the nearer one,
 * where a float in between would lie in the middle. */
START_TEST(half_precision_is_rounded_once)
{
    static const struct {
        DType dt;
        double v;
        uint16_t bits;
    } c[] = {
        {DT_BF16, 1 + 0x1p-8 + 0x1p-40, 0x3f81}, {DT_BF16, 1 + 0x3p-8 - 0x1p-40, 0x3f81},
        {DT_BF16, -1 - 0x1p-8 - 0x1p-40, 0xbf81}, {DT_BF16, 1 + 0x1p-8, 0x3f80},
        {DT_BF16, 0x1p-150, 0}, {DT_BF16, 0x1.fp127 * 16, 0x7f80},
        {DT_F16, 1 + 0x1p-11 + 0x1p-40, 0x3c01}, {DT_F16, 1 + 0x3p-11 - 0x1p-40, 0x3c01},
        {DT_F16, 0x1p-25 + 0x1p-60, 1}, {DT_F16, 0x1p-25, 0}, {DT_F16, -65520 + 0x1p-20, 0xfbff},
        {DT_F16, 65520, 0x7c00},
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        uint16_t bits;
        Tensor t = {.type = type_make(c[i].dt, 0, NULL), .data = &bits};
        tensor_set_f(&t, 0, c[i].v);
        ck_assert_uint_eq(bits, c[i].bits);
    }
}
END_TEST

Suite *suite_ir(void)
{
    Suite *s = suite_create("ir");
    TCase *c = tcase_create("ir");
    tcase_add_test(c, round_trip);
    tcase_add_test(c, parse_errors);
    tcase_add_test(c, verify_rejects);
    tcase_add_test(c, merge_groups);
    tcase_add_test(c, folding);
    tcase_add_test(c, folding_of_what_repeats);
    tcase_add_test(c, half_precision);
    tcase_add_test(c, half_precision_is_rounded_once);
    suite_add_tcase(s, c);
    return s;
}
