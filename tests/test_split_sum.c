/* test_split_sum.c -- factors of weight gradients recomputed in blocks: the same training as with stored
 * ones, in less memory. */
#include "tests.h"
#include "step.h"
#include <string.h>

enum { STORED = INT32_MAX, STEPS = 3 };

typedef struct {
    const char *text;
    int factors;       /* number of factors that are recomputed in blocks */
    int64_t one, many; /* factor_bytes with which factors are one block, or several blocks */
} Case;

static const Case cases[] = {
    /* a residual block and a strided 1x1 window: batch norm, relu, sum, concatenation and the choice of every
     * other position are recomputed */
    {"graph {\n"
     "  input %x: f32[7,3,8,8]\n"
     "  param %w1: f32[4,3,3,3]\n  param %s1: f32[4]\n  param %b1: f32[4]\n"
     "  param %w2: f32[4,4,3,3]\n  param %s2: f32[4]\n  param %b2: f32[4]\n"
     "  param %w3: f32[8,4,1,1]\n  param %w4: f32[8,4,2,2]\n  param %w5: f32[2,8,3,3]\n"
     "  param %w6: f32[8,4,1,1]\n"
     "  %c1: f32[7,4,8,8] = conv %x, %w1 {strides=[1,1], pads=[1,1,1,1], dilations=[1,1]}\n"
     "  %n1: f32[7,4,8,8], %m1: f32[4], %v1: f32[4], %r1: f32[4] = batch_norm %c1, %s1, %b1\n"
     "  %y1: f32[7,4,8,8] = relu %n1\n"
     "  %c2: f32[7,4,8,8] = conv %y1, %w2 {strides=[1,1], pads=[1,1,1,1], dilations=[1,1]}\n"
     "  %n2: f32[7,4,8,8], %m2: f32[4], %v2: f32[4], %r2: f32[4] = batch_norm %c2, %s2, %b2\n"
     "  %a2: f32[7,4,8,8] = add %n2, %c1\n"
     "  %y2: f32[7,4,8,8] = relu %a2\n"
     "  %p: f32[7,4,4,4], %pi: u8[7,4,4,4] = max_pool %y1 {kernel=[2,2], strides=[2,2],"
     " pads=[0,0,0,0], dilations=[1,1], out=[4,4]}\n"
     "  %d: f32[7,8,4,4] = conv %p, %w3 {strides=[1,1], pads=[0,0,0,0], dilations=[1,1]}\n"
     "  %e: f32[7,8,4,4] = conv %y2, %w6 {strides=[2,2], pads=[0,0,0,0], dilations=[1,1]}\n"
     "  %f: f32[7,8,4,4] = add %d, %e\n"
     "  %u: f32[7,4,8,8] = conv_bwd_data %f, %w4 {strides=[2,2], pads=[0,0,0,0], dilations=[1,1],"
     " shape=[7,4,8,8]}\n"
     "  %k: f32[7,8,8,8] = concat %y2, %u {axis=1}\n"
     "  %c5: f32[7,2,8,8] = conv %k, %w5 {strides=[1,1], pads=[1,1,1,1], dilations=[1,1]}\n"
     "  %q: f32[7,2,8,8] = square %c5\n"
     "  %l: f32[] = reduce_sum %q {axes=[0,1,2,3], keepdims=0}\n"
     "  output %l\n}\n", 3, 2304, 512},
    /* a transformer's MLP: layer norm and GELU are recomputed, by rows */
    {"graph {\n"
     "  input %x: f32[5,9,8]\n"
     "  param %w0: f32[8,8]\n  param %s: f32[8]\n  param %b: f32[8]\n"
     "  param %w1: f32[8,24]\n  param %b1: f32[24]\n  param %w2: f32[24,8]\n"
     "  %h: f32[5,9,8] = matmul %x, %w0\n"
     "  %n: f32[5,9,8], %m: f32[5,9,1], %r: f32[5,9,1] = layer_norm %h, %s, %b {axis=2}\n"
     "  %f: f32[5,9,24] = matmul %n, %w1\n"
     "  %a: f32[5,9,24] = add %f, %b1\n"
     "  %g: f32[5,9,24] = gelu %a\n"
     "  %o: f32[5,9,8] = matmul %g, %w2\n"
     "  %e: f32[5,9,8] = add %o, %h\n"
     "  %q: f32[5,9,8] = square %e\n"
     "  %l: f32[] = reduce_sum %q {axes=[0,1,2], keepdims=0}\n"
     "  output %l\n}\n", 2, 1440, 256},
};

/* Returns the text of the case's graph, in f64 if asked for; it lies in the step's arena. */
static const char *text_of(TestStep *s, const Case *c, bool f64)
{
    char *text = arena_strndup(&s->arena, c->text, strlen(c->text));
    for (char *t = text; f64 && (t = strstr(t, "f32[")); t++)
        memcpy(t, "f64", 3);
    return text;
}

static void compile(TestStep *s, const Case *c, bool f64, int64_t bytes, int64_t budget)
{
    bool possible = budget != 1;
    static const Init init = {INIT_NORMAL, 0.2};
    step_init(s);
    s->opt.optim = OPTIM_MOMENTUM;
    s->opt.number.lr = 1e-4;
    s->opt.factor_bytes = f64 && bytes < STORED ? 2 * bytes : bytes;
    s->opt.budget = budget;
    ck_assert_msg(step_compile_text(s, text_of(s, c, f64), &init) == possible, "%s", s->diag.msg);
}

/* Returns how many split products have nodes in front of them in their group, which make their factors. */
static int count_made(const Graph *g)
{
    int n = 0;
    for (uint32_t k = 1; k < g->norder; k++) {
        const Node *node = &g->nodes[g->order[k].i];
        n += node_is_split(node) && node->group &&
             g->nodes[g->order[k - 1].i].group == node->group;
    }
    return n;
}

/* Checks that both have the same losses of some steps, within a relative tolerance; 0: the same bits of
 * losses, parameters and state.  Frees both. */
static void check_same(TestStep *a, TestStep *b, double tolerance)
{
    double want[STEPS], got[STEPS];
    step_run(a, NULL, STEPS, want);
    step_run(b, NULL, STEPS, got);
    for (int i = 0; i < STEPS && tolerance > 0; i++)
        ck_assert_double_eq_tol(got[i], want[i], fabs(want[i]) * tolerance);
    if (tolerance == 0) {
        ck_assert_mem_eq(got, want, sizeof want);
        ck_assert_uint_eq(step_digest(b), step_digest(a));
    }
    step_free(a);
    step_free(b);
}

/* Factors recomputed in several blocks, summed in another order, give the same losses in less memory. */
START_TEST(same_training)
{
    const Case *c = &cases[_i / 2];
    bool f64 = _i % 2;
    TestStep stored, blocks;
    compile(&stored, c, f64, STORED, 0);
    compile(&blocks, c, f64, c->many, 0);
    ck_assert_int_eq(count_made(&stored.g), 0);
    ck_assert_int_eq(count_made(&blocks.g), c->factors);
    ck_assert_int_lt(blocks.info.plan.arena_bytes, stored.info.plan.arena_bytes);
    ck_assert_int_gt(blocks.info.plan.keep_all_bytes, blocks.info.plan.arena_bytes);
    check_same(&stored, &blocks, f64 ? 1e-12 : 1e-5);
}
END_TEST

/* A factor recomputed in one block has the bits of the stored one, and so has all that follows. */
START_TEST(same_bits_in_one_block)
{
    const Case *c = &cases[_i];
    TestStep stored, block;
    compile(&stored, c, false, STORED, 0);
    compile(&block, c, false, c->one, 0);
    ck_assert_int_gt(count_made(&block.g), 0);
    check_same(&stored, &block, 0);
}
END_TEST

/* A concatenation of unequal parts is copied whole: it stays in memory. */
static const Case unequal = {
    "graph {\n"
    "  input %x: f32[7,3,8,8]\n"
    "  param %w1: f32[4,3,3,3]\n  param %w2: f32[6,3,3,3]\n  param %w3: f32[2,10,3,3]\n"
    "  %c1: f32[7,4,8,8] = conv %x, %w1 {strides=[1,1], pads=[1,1,1,1], dilations=[1,1]}\n"
    "  %c2: f32[7,6,8,8] = conv %x, %w2 {strides=[1,1], pads=[1,1,1,1], dilations=[1,1]}\n"
    "  %y1: f32[7,4,8,8] = relu %c1\n  %y2: f32[7,6,8,8] = relu %c2\n"
    "  %k: f32[7,10,8,8] = concat %y1, %y2 {axis=1}\n"
    "  %c3: f32[7,2,8,8] = conv %k, %w3 {strides=[1,1], pads=[1,1,1,1], dilations=[1,1]}\n"
    "  %q: f32[7,2,8,8] = square %c3\n"
    "  %l: f32[] = reduce_sum %q {axes=[0,1,2,3], keepdims=0}\n"
    "  output %l\n}\n", 0, 8000, 512};

START_TEST(unequal_parts)
{
    TestStep stored, blocks;
    compile(&stored, &unequal, false, STORED, 0);
    compile(&blocks, &unequal, false, unequal.one, 0);
    ck_assert_int_eq(count_made(&blocks.g), unequal.factors);
    check_same(&stored, &blocks, 0);
    compile(&stored, &unequal, false, STORED, 0);
    compile(&blocks, &unequal, false, unequal.many, 0);
    check_same(&stored, &blocks, 1e-5);
}
END_TEST

/* With one image, the concatenation is recomputed in front of the gradient that reads it, in its group. */
static const Case one_image = {
    "graph {\n"
    "  input %x: f32[1,3,8,8]\n"
    "  param %w1: f32[4,3,3,3]\n  param %w2: f32[4,3,3,3]\n  param %w3: f32[2,8,3,3]\n"
    "  %c1: f32[1,4,8,8] = conv %x, %w1 {strides=[1,1], pads=[1,1,1,1], dilations=[1,1]}\n"
    "  %c2: f32[1,4,8,8] = conv %x, %w2 {strides=[1,1], pads=[1,1,1,1], dilations=[1,1]}\n"
    "  %y1: f32[1,4,8,8] = relu %c1\n  %y2: f32[1,4,8,8] = relu %c2\n"
    "  %k: f32[1,8,8,8] = concat %y1, %y2 {axis=1}\n"
    "  %c3: f32[1,2,8,8] = conv %k, %w3 {strides=[1,1], pads=[1,1,1,1], dilations=[1,1]}\n"
    "  %p: f32[1,8,4,4], %pi: u8[1,8,4,4] = max_pool %k {kernel=[2,2], strides=[2,2],"
    " pads=[0,0,0,0], dilations=[1,1], out=[4,4]}\n"
    "  %q: f32[1,2,8,8] = square %c3\n  %r: f32[1,8,4,4] = square %p\n"
    "  %m: f32[] = reduce_sum %q {axes=[0,1,2,3], keepdims=0}\n"
    "  %n: f32[] = reduce_sum %r {axes=[0,1,2,3], keepdims=0}\n"
    "  %l: f32[] = add %m, %n\n"
    "  output %l\n}\n", 1, 1024, 1024};

START_TEST(one_image_whole)
{
    TestStep stored, blocks;
    compile(&stored, &one_image, false, STORED, 0);
    compile(&blocks, &one_image, false, one_image.one, 0);
    ck_assert_int_eq(count_made(&stored.g), 0);
    ck_assert_int_eq(count_made(&blocks.g), one_image.factors);
    check_same(&stored, &blocks, 0);
}
END_TEST

START_TEST(same_bits_at_a_budget)
{
    const Case *c = &cases[_i];
    TestStep all, less, none;
    compile(&none, c, false, c->many, 1);
    compile(&all, c, false, c->many, 0);
    compile(&less, c, false, c->many, none.info.plan.min_feasible_bytes);
    ck_assert_int_lt(less.info.plan.arena_bytes, all.info.plan.arena_bytes);
    check_same(&all, &less, 0);
    step_free(&none);
}
END_TEST

Suite *suite_split_sum(void)
{
    enum { CASES = sizeof cases / sizeof *cases };
    Suite *s = suite_create("split_sum");
    TCase *c = tcase_create("training");
    tcase_add_loop_test(c, same_training, 0, 2 * CASES);
    tcase_add_loop_test(c, same_bits_in_one_block, 0, CASES);
    tcase_add_test(c, unequal_parts);
    tcase_add_test(c, one_image_whole);
    tcase_add_loop_test(c, same_bits_at_a_budget, 0, CASES);
    suite_add_tcase(s, c);
    return s;
}
