/* test_split_head.c -- logits in blocks of rows: the same training as with whole logits, in less memory. */
#include "tests.h"
#include "step.h"

enum { WHOLE = INT32_MAX, STEPS = 3 };

static void compile(TestStep *s, bool f64, bool frozen, int64_t rows, int64_t budget)
{
    static const char *const head[] = {"wte.weight"};
    static const OnnxBind bind[] = {{"batch", 2}, {"seq", 50}};
    static const Init init = {INIT_NORMAL, 0.02};
    step_init(s);
    s->opt.f64 = f64;
    s->opt.head_rows = rows;
    s->opt.freeze = head;
    s->opt.nfreeze = frozen ? 1 : 0;
    s->opt.budget = budget;
    s->opt.import.bind = bind;
    s->opt.import.nbind = 2;
    ck_assert_msg(step_compile(s, CKC_SOURCE_DIR "/examples/decoder/model.onnx", &init), "%s",
                  s->diag.msg);
}

/* Returns how many nodes of the cross-entropy's group are split. */
static int count_split(const Graph *g)
{
    uint32_t group = 0;
    int n = 0;
    for (uint32_t k = 0; k < g->norder; k++)
        if (g->nodes[g->order[k].i].op == OP_cross_entropy)
            group = g->nodes[g->order[k].i].group;
    for (uint32_t k = 0; k < g->norder; k++) {
        const Node *node = &g->nodes[g->order[k].i];
        n += node_is_split(node) && group && node->group == group;
    }
    return n;
}

/* Blocks give the losses that whole logits give: in f32, in f64, and with the head's weights frozen, as when
 * adapters train. */
START_TEST(same_training)
{
    double want[STEPS], got[STEPS];
    TestStep whole, blocks;
    bool f64 = _i == 1, frozen = _i == 2;
    compile(&whole, f64, frozen, WHOLE, 0);
    compile(&blocks, f64, frozen, 32, 0);
    ck_assert_int_eq(count_split(&whole.g), 0);
    ck_assert_int_eq(count_split(&blocks.g), frozen ? 2 : 3); /* logits, and the products of both gradients */
    step_run(&whole, NULL, STEPS, want);
    step_run(&blocks, NULL, STEPS, got);
    for (int i = 0; i < STEPS; i++)
        ck_assert_double_eq_tol(got[i], want[i], f64 ? 1e-10 : 1e-5);
    step_free(&whole);
    step_free(&blocks);
}
END_TEST

/* They take no more memory.  (With more workspace than AVX2 needs the peak is elsewhere.) */
START_TEST(no_more_memory)
{
    TestStep whole, blocks;
    if (!use_isa(1))
        return;
    compile(&whole, _i == 1, _i == 2, WHOLE, 0);
    compile(&blocks, _i == 1, _i == 2, 32, 0);
    ck_assert_int_le(blocks.info.plan.arena_bytes, whole.info.plan.arena_bytes);
    step_free(&whole);
    step_free(&blocks);
}
END_TEST

/* A bias, and a cap on the logits, may stand between the head's product and the cross-entropy: four nodes are
 * split, the product and those of three gradients, and the losses are those of whole logits. */
START_TEST(what_stands_between)
{
    static const char text[] =
        "graph {\n  input %x: f32[96,8]\n  input %t: i64[2,48] as \"target\"\n  param %v: f32[8,8]\n"
        "  param %w: f32[50,8]\n  param %b: f32[50]\n  const %cap: f32[] = {3}\n"
        "  %a: f32[96,8] = matmul %x, %v\n  %p: f32[96,50] = matmul %a, %w {tb=1}\n"
        "  %r: f32[2,48,50] = reshape %p {shape=[2,48,50]}\n  %q: f32[2,48,50] = add %r, %b\n"
        "  %u: f32[2,48,50] = div %q, %cap\n  %z: f32[2,48,50] = tanh %u\n  %y: f32[2,48,50] = mul %z, %cap\n"
        "  %l: f32[2,48], %top: f32[2,48], %e: f32[2,48] = cross_entropy %y, %t {axis=2}\n"
        "  %s: f32[] = reduce_sum %l {axes=[0,1], keepdims=0}\n  output %s\n}\n";
    double loss[2][STEPS];
    for (int i = 0; i < 2; i++) {
        TestStep s;
        step_init(&s);
        s.opt.head_rows = i ? 32 : WHOLE;
        s.opt.precision = _i ? PRECISION_BF16 : PRECISION_F32;
        ck_assert_msg(step_compile_text(&s, text, &(Init){INIT_NORMAL, 0.5}), "%s", s.diag.msg);
        ck_assert_int_eq(count_split(&s.g), 4 * i);
        step_run(&s, NULL, STEPS, loss[i]);
        step_free(&s);
    }
    for (int i = 0; i < STEPS; i++)
        ck_assert_double_eq_tol(loss[0][i], loss[1][i], (_i ? 1e-4 : 1e-6) * loss[0][i]);
}
END_TEST

/* As many rows as segmented images have pixels: their blocks grow, so that the loop stays within its most
 * launches. */
START_TEST(many_rows)
{
    static const char text[] =
        "graph {\n  input %x: f32[8388608,8]\n  input %t: i64[8388608] as \"target\"\n  param %v: f32[8,8]\n"
        "  param %w: f32[8,8]\n  %a: f32[8388608,8] = matmul %x, %v\n"
        "  %z: f32[8388608,8] = matmul %a, %w {tb=1}\n"
        "  %l: f32[8388608], %top: f32[8388608], %e: f32[8388608] = cross_entropy %z, %t {axis=1}\n"
        "  %s: f32[] = reduce_sum %l {axes=[0], keepdims=0}\n  output %s\n}\n";
    TestStep s;
    step_init(&s);
    ck_assert_msg(step_compile_text(&s, text, &(Init){INIT_NORMAL, 0.5}), "%s", s.diag.msg);
    ck_assert_int_eq(count_split(&s.g), 3);
    step_free(&s);
}
END_TEST

START_TEST(same_bits_at_a_budget)
{
    double want[STEPS], got[STEPS];
    TestStep all, less;
    compile(&all, false, false, 32, 0);
    compile(&less, false, false, 32, all.info.plan.arena_bytes - (4 << 20));
    step_run(&all, NULL, STEPS, want);
    step_run(&less, NULL, STEPS, got);
    ck_assert_mem_eq(got, want, sizeof want);
    ck_assert_uint_eq(step_digest(&all), step_digest(&less));
    step_free(&all);
    step_free(&less);
}
END_TEST

Suite *suite_split_head(void)
{
    Suite *s = suite_create("split_head");
    TCase *c = tcase_create("training");
    tcase_add_loop_test(c, same_training, 0, 3);
    tcase_add_loop_test(c, no_more_memory, 0, 3);
    tcase_add_loop_test(c, what_stands_between, 0, 2);
    tcase_add_test(c, many_rows);
    tcase_add_test(c, same_bits_at_a_budget);
    suite_add_tcase(s, c);
    return s;
}
