/* test_timeline.c -- the bytes of a plan over its step add up to the plan's, and no two values share one. */
#include "tests.h"
#include "command.h"
#include "step.h"
#include <stdlib.h>
#include <string.h>

static int by_place(const void *a, const void *b)
{
    const Life *x = a, *y = b;
    return x->at != y->at ? (x->at < y->at ? -1 : 1) : (x->first > y->first) - (x->first < y->first);
}

/* Checks that what is held at step s overlaps in no memory and lies inside it. */
static void check_places(const Plan *p, const Life *life, uint32_t n, uint32_t s)
{
    Life *here = malloc((n + 1) * sizeof *here);
    for (int space = 0; space < SPACES; space++) {
        uint32_t k = 0;
        int64_t end = 0;
        for (uint32_t i = 0; i < n; i++)
            if (life[i].space == (Space)space && life[i].first <= s && s < life[i].end && life[i].bytes)
                here[k++] = life[i];
        qsort(here, k, sizeof *here, by_place);
        for (uint32_t i = 0; i < k; i++) {
            ck_assert_msg(here[i].at >= end, "step %u: %%%s lies on another", s,
                          p->g->vals[here[i].val.i].name);
            end = here[i].at + here[i].bytes;
        }
        ck_assert_int_le(end, space == SPACE_HOST ? p->host_bytes : p->arena_bytes);
    }
    free(here);
}

static void check_times(const Plan *p, const MemCurve *c)
{
    ck_assert_int_eq(c->ns[0], 0);
    for (uint32_t s = 0; s < c->n; s++)
        ck_assert_int_le(c->ns[s], c->ns[s + 1]);
    if (p->host_bytes == 0 && plan_times(p, 0) == 1)
        ck_assert_int_eq(c->ns[c->n], p->predicted_ns);
}

static void check_timeline(const TestStep *s)
{
    Arena a = {0};
    uint32_t n;
    const Plan *p = &s->info.plan;
    const Life *life = plan_lives(p, &s->info, &n, &a);
    MemCurve c = plan_curve(p, &s->info, &a);
    ck_assert_uint_eq(c.n, p->nstep);
    ck_assert_uint_eq(curve_peak(&c), p->peak_step);
    ck_assert_int_eq(mem_sum(c.held[p->peak_step]), p->live_bytes);
    ck_assert_mem_eq(c.held[p->peak_step], p->mem, sizeof p->mem);
    for (uint32_t k = 0; k < p->nstep; k += 1 + p->nstep / 40)
        check_places(p, life, n, k);
    check_places(p, life, n, p->peak_step);
    check_times(p, &c);
    const MemCurve *all = &s->info.keep_all;
    ck_assert_mem_eq(all->held[curve_peak(all)], p->keep_all_mem, sizeof p->keep_all_mem);
    if (plan_times(p, 0) == 1)
        ck_assert_int_eq(all->ns[all->n], p->base_ns);
    arena_free(&a);
}

/* Checks that nothing reads the original of an offloaded value once that has been fetched. */
static void check_fetched(const Graph *g)
{
    bool *gone = calloc(g->nvals, sizeof *gone);
    for (uint32_t k = 0; k < g->norder; k++) {
        const Node *n = &g->nodes[g->order[k].i];
        for (int i = 0; i < n->nin; i++)
            ck_assert_msg(!gone[graph_root(g, n->in[i]).i], "%s reads what was fetched",
                          op_table[n->op]->name);
        NodeId offload = g->vals[n->in[0].i].def;
        if (n->op == OP_fetch && offload.i)
            gone[graph_root(g, g->nodes[offload.i].in[0]).i] = true;
    }
    free(gone);
}

typedef struct {
    const char *model, *device; /* NULL: this processor */
    OnnxBind bind[2];
    int nbind;
    double fraction; /* the budget, as a fraction of the bytes with everything stored; 0: none */
    int64_t accumulate;
    OffloadKind offload;
    PrecisionKind precision;
} Planned;

static const Planned planned[] = {
    {"examples/mlp", NULL, {{"batch", 64}}, 1, 0, 0, OFFLOAD_NO, PRECISION_F32},
    {"examples/mlp", NULL, {{"batch", 64}}, 1, 0.85, 0, OFFLOAD_NO, PRECISION_F32},
    {"examples/mlp", NULL, {{"batch", 64}}, 1, 0.87, 4, OFFLOAD_NO, PRECISION_F32},
    {"examples/decoder", "h200", {{"batch", 8}, {"seq", 64}}, 2, 0.94, 0, OFFLOAD_NO, PRECISION_F32},
    {"examples/decoder", "h200", {{"batch", 4}, {"seq", 64}}, 2, 0.8, 0, OFFLOAD_ONLY, PRECISION_F32},
    {"examples/decoder", "h200", {{"batch", 8}, {"seq", 64}}, 2, 0.8, 0, OFFLOAD_ONLY, PRECISION_BF16},
    {"tests/data/zoo/sdpa_gpt_dynamo", "h200", {{"batch", 64}}, 1, 0.85, 0, OFFLOAD_ONLY, PRECISION_F32},
};
enum { PLANNED = sizeof planned / sizeof *planned };

START_TEST(bytes_add_up)
{
    const Planned *p = &planned[_i];
    static const Init init = {INIT_NORMAL, 0.02};
    TestStep s;
    DeviceInfo device;
    step_init(&s);
    s.opt.import = (OnnxOptions){.bind = p->bind, .nbind = p->nbind, .init = true};
    s.opt.budget_fraction = p->fraction;
    s.opt.accumulate = p->accumulate;
    s.opt.offload = p->offload;
    s.opt.precision = p->precision;
    s.opt.max_moves = 5000;
    if (p->device)
        ck_assert(device_find(&device, p->device, &s.arena, &s.diag));
    s.opt.device = p->device ? &device : NULL;
    ck_assert_msg(step_plan(&s, format(CKC_SOURCE_DIR "/%s/model.onnx", p->model), &init), "%s", s.diag.msg);
    check_timeline(&s);
    check_fetched(&s.g);
    ck_assert((p->fraction > 0 && p->offload == OFFLOAD_NO) == (s.info.nrecomputed > 0));
    ck_assert((p->offload == OFFLOAD_ONLY) == (s.info.plan.host_bytes > 0));
    if (p->fraction > 0)
        ck_assert_int_lt(s.info.plan.live_bytes, s.info.plan.keep_all_bytes);
    step_free(&s);
}
END_TEST

Suite *suite_timeline(void)
{
    Suite *s = suite_create("timeline");
    TCase *t = tcase_create("timeline");
    tcase_set_timeout(t, 0);
    tcase_add_loop_test(t, bytes_add_up, 0, PLANNED);
    suite_add_tcase(s, t);
    return s;
}
