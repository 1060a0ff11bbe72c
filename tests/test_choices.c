/* test_choices.c -- kernels with less workspace as choices under a budget: those that give the same bits may
 * always be chosen, others only with --choices budget. */
#include "tests.h"
#include "passes/instance.h"
#include "step.h"
#include <stdlib.h>
#include <string.h>

enum { WORKSPACE = 1 << 20 };
static const char first[] = "first", smaller[] = "smaller";

static const char text[] =
    "graph {\n  input %x: f32[64,64]\n  param %w1: f32[64,64]\n  param %w2: f32[64,64]\n"
    "  %h: f32[64,64] = matmul %x, %w1\n  %r: f32[64,64] = relu %h\n"
    "  %y: f32[64,64] = matmul %r, %w2\n"
    "  %loss: f32[] = reduce_sum %y {axes=[0,1], keepdims=0}\n  output %loss\n}\n";

/* The cost function of a device whose matrix products have a second, slower kernel without workspace.  user:
 * how many of the two give the bits of the first, 1 or 2. */
static bool costs(void *user, const Command *c, uint32_t n, StepCost *out, Diag *d)
{
    (void)d;
    for (uint32_t s = 0; s < n; s++) {
        bool product = c[s].k.lib == LIB_MATMUL;
        out[s] = (StepCost){.c = {{NULL, command_workspace_bytes(&c[s]), 1000}}, .n = 1, .same = 1};
        if (product)
            out[s] = (StepCost){.c = {{first, WORKSPACE, 1000}, {smaller, 0, 1500}},
                                .n = 2,
                                .same = *(const int *)user};
    }
    return true;
}

static bool plan_graph(TestStep *s, const char *graph, int same, bool any_bits, int64_t budget)
{
    step_init(s);
    s->opt.optim = OPTIM_SGD;
    s->opt.cost = costs;
    s->opt.cost_user = &same;
    s->opt.any_bits = any_bits;
    s->opt.budget = budget;
    graph_init(&s->g, &s->arena, &s->diag);
    PassCtx cx = {.diag = &s->diag, .tmp = &s->tmp, .opt = &s->opt, .info = &s->info};
    return graph_parse(&s->g, graph, &s->diag) &&
           passes_run(&s->g, &cx, &(PassRun){.disable = "bind"});
}

static bool plan_within(TestStep *s, int same, bool any_bits, int64_t budget)
{
    return plan_graph(s, text, same, any_bits, budget);
}

static bool chooses(const Step *s, const char *choice)
{
    return s->choice && strcmp(s->choice, choice) == 0;
}

/* The number of steps of the plan with that choice. */
static int count(const TestStep *s, const char *choice)
{
    int n = 0;
    for (uint32_t i = 0; i < s->info.plan.nstep; i++)
        n += chooses(&s->info.plan.step[i], choice);
    return n;
}

/* The arena's bytes of a step that keeps everything. */
static int64_t whole_bytes(bool any_bits)
{
    TestStep s;
    ck_assert_msg(plan_within(&s, 1, any_bits, 0), "%s", s.diag.msg);
    ck_assert_int_eq(count(&s, first), 5); /* two products, three for their gradients */
    ck_assert_int_eq(count(&s, smaller), 0);
    int64_t bytes = s.info.plan.arena_bytes;
    step_free(&s);
    return bytes;
}

START_TEST(same_bits_at_any_budget)
{
    TestStep s;
    int64_t budget = whole_bytes(false) - WORKSPACE / 2;
    ck_assert_msg(plan_within(&s, 2, false, budget), "%s", s.diag.msg);
    ck_assert_int_le(s.info.plan.arena_bytes, budget);
    ck_assert_int_gt(count(&s, smaller), 0);
    step_free(&s);
}
END_TEST

/* A budget that only kernels with other bits can meet is refused; the message names the bytes that --choices
 * budget needs, and with that option they are enough. */
START_TEST(other_bits_where_allowed)
{
    static const char said[] = ", with --choices budget ";
    TestStep s;
    int64_t budget = whole_bytes(true) - WORKSPACE / 2;
    ck_assert(!plan_within(&s, 1, false, budget));
    ck_assert_int_eq(s.diag.status, EXIT_INFEASIBLE);
    const char *least = strstr(s.diag.msg, said);
    ck_assert_msg(least != NULL, "%s", s.diag.msg);
    int64_t met = strtoll(least + strlen(said), NULL, 10);
    ck_assert_int_gt(met, 0);
    ck_assert_int_le(met, budget);
    step_free(&s);
    ck_assert_msg(plan_within(&s, 1, true, met), "%s", s.diag.msg);
    ck_assert_int_le(s.info.plan.arena_bytes, met);
    ck_assert_int_gt(count(&s, smaller), 0);
    for (uint32_t i = 0; i < s.info.plan.nstep; i++)
        ck_assert(!chooses(&s.info.plan.step[i], smaller) || s.info.plan.step[i].scratch == 0);
    step_free(&s);
}
END_TEST

static bool reads(const RematOp *o, int32_t value)
{
    for (int i = 0; i < o->nin; i++)
        if (o->in[i] == value)
            return true;
    return false;
}

/* A schedule in which the first operator is recomputed for its last reader, by its second kernel. */
static Schedule run_again(const RematInstance *inst, Arena *a)
{
    int32_t *seq = NEW(a, int32_t, inst->nops + 1), last = 0, n = 0;
    uint8_t *alt = NEW(a, uint8_t, inst->nops + 1);
    for (int32_t i = 0; i < inst->nops; i++)
        last = reads(&inst->ops[i], inst->ops[0].out[0]) ? i : last;
    for (int32_t i = 0; i < inst->nops; i++) {
        alt[n] = i == last;
        if (i == last)
            seq[n++] = 0;
        seq[n++] = i;
    }
    return (Schedule){seq, alt, n};
}

/* If a recomputation of a product uses a kernel with other bits than the first run's, both runs use it. */
START_TEST(one_result)
{
    static const char twice[] =
        "graph {\n  input %x: f32[64,64]\n  param %w: f32[64,64]\n  %h: f32[64,64] = matmul %x, %w\n"
        "  %r: f32[64,64] = relu %h\n  %y: f32[64,64] = mul %r, %h\n"
        "  %loss: f32[] = reduce_sum %y {axes=[0,1], keepdims=0}\n  output %loss\n}\n";
    TestStep s;
    Instance in;
    Sequence q;
    ck_assert_msg(plan_graph(&s, twice, 1, true, 0), "%s", s.diag.msg);
    ck_assert_msg(instance_make(&s.g, &s.info, true, &s.tmp, &in, &s.diag), "%s", s.diag.msg);
    Schedule again = run_again(&in.inst, &s.tmp);
    StepCost *cost = &s.info.cost[s.g.order[in.cut.step[0].first].i];
    for (cost->same = 1; cost->same <= 2; cost->same++) {
        int runs = 0;
        ck_assert(instance_sequence(&in, again, &q, &s.tmp, &s.diag));
        for (uint32_t k = 0; k < q.n; k++)
            if (q.run[k].how >= cost->c && q.run[k].how < cost->c + cost->n)
                ck_assert_str_eq(q.run[k].how->choice, runs++ || cost->same == 1 ? smaller : first);
        ck_assert_int_eq(runs, 2);
    }
    step_free(&s);
}
END_TEST

Suite *suite_choices(void)
{
    Suite *s = suite_create("choices");
    TCase *c = tcase_create("choices");
    tcase_add_test(c, same_bits_at_any_budget);
    tcase_add_test(c, other_bits_where_allowed);
    tcase_add_test(c, one_result);
    suite_add_tcase(s, c);
    return s;
}
