/* test_tile.c -- weight gradients in tiles: the same training as with whole ones, in less memory. */
#include "tests.h"
#include "step.h"
#include <string.h>

enum { WHOLE = INT32_MAX, SMALL = 2048 };

static bool compile(TestStep *s, OptimKind optim, bool f64, int64_t tile, int64_t budget)
{
    static const OnnxBind bind[] = {{"batch", 24}};
    step_init(s);
    s->opt.optim = optim;
    s->opt.weight_decay = optim == OPTIM_ADAM ? 0.01 : NAN;
    s->opt.f64 = f64;
    s->opt.tile_bytes = tile;
    s->opt.budget = budget;
    s->opt.import.bind = bind;
    s->opt.import.nbind = 1;
    return step_compile(s, CKC_SOURCE_DIR "/examples/mlp/model.onnx", NULL);
}

static int count_tiled(const Graph *g)
{
    int n = 0;
    for (uint32_t k = 0; k < g->norder; k++) {
        const Node *node = &g->nodes[g->order[k].i];
        n += node->op == OP_matmul && node->group;
    }
    return n;
}

/* Every optimizer, both precisions: bit for bit. */
START_TEST(same_training)
{
    OptimKind optim = (OptimKind)(_i / 2);
    double want[3], got[3];
    TestStep whole, tiled;
    ck_assert_msg(compile(&whole, optim, _i % 2, WHOLE, 0), "%s", whole.diag.msg);
    ck_assert_msg(compile(&tiled, optim, _i % 2, SMALL, 0), "%s", tiled.diag.msg);
    ck_assert_int_eq(count_tiled(&whole.g), 0);
    ck_assert_int_ge(count_tiled(&tiled.g), 2);
    double kept = (double)tiled.info.plan.keep_all_bytes; /* workspaces differ a little */
    ck_assert_double_eq_tol(kept, (double)whole.info.plan.arena_bytes, 0.01 * kept);
    step_run(&whole, NULL, 3, want);
    step_run(&tiled, NULL, 3, got);
    for (int i = 0; i < 3; i++)
        ck_assert_double_eq(got[i], want[i]);
    ck_assert_uint_eq(step_digest(&tiled), step_digest(&whole));
    step_free(&whole);
    step_free(&tiled);
}
END_TEST

Suite *suite_tile(void)
{
    Suite *s = suite_create("tile");
    TCase *c = tcase_create("training");
    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, same_training, 0, 2 * OPTIM_NONE);
    suite_add_tcase(s, c);
    return s;
}
