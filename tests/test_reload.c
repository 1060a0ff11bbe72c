/* test_reload.c -- a printed plan, whatever its schedule, is read back as the same plan and gives the same
 * bits.  tests/reload.sh tests this with whole networks, as users run them. */
#include "tests.h"
#include "step.h"
#include "passes/instance.h"
#include "remat_cases.h"
#include <stdlib.h>
#include <string.h>

/* ---- text ------------------------------------------------------------------------------------ */

static void same_graph_text(const char *text)
{
    Arena a = {0};
    Diag d = {0};
    Graph g;
    graph_init(&g, &a, &d);
    ck_assert_msg(graph_parse(&g, text, &d) && graph_verify(&g, &d), "%s", d.msg);
    char *again = graph_text(&g);
    ck_assert_str_eq(text, again);
    free(again);
    arena_free(&a);
}

/* A node may be labelled as a recomputation of a node that is no longer in the graph's text. */
START_TEST(recomputation_is_a_label)
{
    same_graph_text("graph {\n"
                    "  input %x: f32[2]\n"
                    "  %a.remat: f32[2] = relu %x remat %a\n"
                    "  %b: f32[2] = relu %a.remat\n"
                    "  %a.remat.1: f32[2] = relu %x remat %a\n"
                    "  %c: f32[2] = add %b, %a.remat.1\n"
                    "  output %c\n"
                    "}\n");
}
END_TEST

START_TEST(odd_text)
{
    same_graph_text("graph {\n"
                    "  input %x: f32[2] as \"a \\\"quoted\\\" \\\\ name, {of} %x\\x0a@ #1\"\n"
                    "  param %as: f32[2,2] as \"w\", \"lm head\" transposed file, \"v\", "
                    "\"fc.w\" transposed module\n"
                    "  param %transposed: f32[2] as \"\" @\"dir/a \\\"b\\\".onnx\" 12\n"
                    "  state %s: f32[4] as \"s\" = {inf, -inf, nan, -nan}\n"
                    "  const %unread: f32[2] as \"mask\" = {0, -0}\n"
                    "  const %i: i64[2] = {-9223372036854775808, 9223372036854775807}\n"
                    "  const %d: f64[2] = {4.9406564584124654e-324, 1.7976931348623157e+308}\n"
                    "  const %h: f16[1] = {65504}\n"
                    "  const %e: i64[0] = {}\n"
                    "  %\xc3\xa9:y/0.1: f32[2] = relu %x \"a \\\"node\\\" \\\\x41 \\x01\"\n"
                    "  %z: f32[2] = powc %\xc3\xa9:y/0.1 {al=-inf, be=nan} \"\"\n"
                    "  %k: i64[2] = add %i, %i\n"
                    "  %q: f64[2] = add %d, %d\n"
                    "  %r: f16[1] = relu %h\n"
                    "  %t: i64[0] = add %e, %e\n"
                    "  output %z\n  output %k\n  output %q\n  output %r\n  output %t\n"
                    "}\n");
}
END_TEST

/* ---- plans ----------------------------------------------------------------------------------- */

/* Copies the data of constants that are in no file: the text of a plan does not contain it. */
static void give_constants(TestStep *to, const TestStep *from)
{
    for (uint32_t i = 1; i < to->g.nvals; i++) {
        Value *v = &to->g.vals[i];
        if (!v->data && !v->file && v->kind != VAL_TEMP)
            v->data = from->g.vals[graph_find(&from->g, v->name).i].data;
    }
}

/* Checks that the plan of s, printed and read back, is printed as the same text, and that two steps of it
 * give the digest `want`. */
static void reloads(TestStep *s, const Init *init, uint64_t want, const char *name)
{
    TestStep t;
    double loss[2];
    step_init(&t);
    graph_init(&t.g, &t.arena, &t.diag);
    t.info.plan.g = &t.g;
    char *text = plan_text(&s->info.plan);
    ck_assert_msg(plan_parse(&t.info.plan, text, &t.diag), "%s: %s", name, t.diag.msg);
    char *again = plan_text(&t.info.plan);
    ck_assert_msg(strcmp(text, again) == 0, "%s: printed otherwise", name);
    free(text);
    free(again);
    give_constants(&t, s);
    ck_assert_msg(step_open(&t, init), "%s: %s", name, t.diag.msg);
    step_run(&t, NULL, 2, loss);
    ck_assert_msg(step_digest(&t) == want, "%s: other bits", name);
    step_free(&t);
}

static uint64_t digest(TestStep *s, const Init *init)
{
    double loss[2];
    ck_assert_msg(step_open(s, init), "%s", s->diag.msg);
    step_run(s, NULL, 2, loss);
    uint64_t h = step_digest(s);
    exec_close(s->exec); /* the plan may change now */
    s->exec = NULL;
    return h;
}

static const Init normal = {INIT_NORMAL, 0.1};
static const OnnxBind batch[] = {{"batch", 16}};
static const struct {
    const char *path;
    const Init *init;
} models[] = {
    {CKC_SOURCE_DIR "/examples/mlp/model.onnx", &normal},
    {CKC_SOURCE_DIR "/tests/data/zoo/autoencoder_1d_legacy/model.onnx", NULL},
    {CKC_SOURCE_DIR "/tests/data/zoo/sdpa_gpt_dynamo/model.onnx", NULL},
};
enum { NMODELS = sizeof models / sizeof *models };

static bool plan_model(TestStep *s, int i, PrecisionKind precision, double fraction)
{
    step_init(s);
    s->opt.precision = precision;
    s->opt.import.bind = batch;
    s->opt.import.nbind = 1;
    s->opt.budget_fraction = fraction;
    s->opt.max_moves = 2000;
    return step_plan(s, models[i].path, models[i].init);
}

/* A constant that nothing reads is not printed with the graph, so a plan that has a place for it must be
 * printed without that place, or it could not be read back. */
START_TEST(unread_constant)
{
    Arena a = {0};
    Diag d = {0};
    char *text = NULL;
    for (int i = 0; i < 2; i++) {
        Graph g;
        Plan p = {.g = &g};
        graph_init(&g, &a, &d);
        ck_assert_msg(plan_parse(&p,
                                 i ? text
                                   : "plan 6 {\n  arena 192\n}\n"
                                     "graph {\n  input %x: f32[2]\n  const %c: f32[2] = {1, 2}\n"
                                     "  %y: f32[2] = relu %x\n  output %y\n}\n"
                                     "steps {\n  place %c@128+8\n"
                                     "  step choice=- scratch=0 scratch_at=0 ns=1 : %x@0+8 -> %y@64+8\n"
                                     "}\n",
                                 &d),
                      "%s", d.msg);
        free(text);
        text = plan_text(&p);
    }
    free(text);
    arena_free(&a);
}
END_TEST

START_TEST(budgets)
{
    static const double fractions[] = {0, 0.97, 0.8, 0.6};
    static const PrecisionKind precision[] = {PRECISION_F32, PRECISION_BF16, PRECISION_FP16};
    uint64_t want = 0;
    int met = 0, m = _i % NMODELS;
    for (int i = 0; i < 4; i++) {
        TestStep s;
        bool ok = plan_model(&s, m, precision[_i / NMODELS], fractions[i]);
        ck_assert_msg(ok || s.diag.status == EXIT_INFEASIBLE, "%s", s.diag.msg);
        if (i == 0)
            want = digest(&s, models[m].init);
        if (ok)
            reloads(&s, models[m].init, want, models[m].path);
        met += ok;
        step_free(&s);
    }
    ck_assert_int_gt(met, 1);
}
END_TEST

/* Writes a random legal schedule to seq and alt: every operator once, and before some of them earlier ones
 * again, each with any of its kernel choices.  Returns its length. */
static int32_t random_schedule(const Instance *in, int32_t *seq, uint8_t *alt)
{
    int32_t n = 0;
    bool *barred = calloc((size_t)in->inst.nops + 1, 1);
    ck_assert_ptr_nonnull(barred);
    for (int32_t k = 0; k < in->inst.nops; k++) {
        for (int32_t again = k > 0 ? below(4) : 0; again > 0; again--) {
            int32_t earlier = k - 1 - below(k < 6 ? k : 6);
            if (!in->inst.ops[earlier].once && !barred[earlier])
                seq[n++] = earlier;
        }
        seq[n++] = k;
        for (int32_t i = 0; i < in->inst.ops[k].nbarrier; i++)
            barred[in->inst.ops[k].barrier[i]] = true;
    }
    for (int32_t i = 0; i < n; i++)
        alt[i] = (uint8_t)below(in->inst.ops[seq[i]].nalt + 1);
    free(barred);
    return n;
}

/* Applies a random schedule to the graph, and checks that its plan has the arena, times and workspaces that
 * were predicted before the graph was changed. */
static void apply_random(TestStep *s, Arena *a)
{
    Instance in;
    Sequence q;
    ArenaSize size = {0};
    ck_assert_msg(instance_make(&s->g, &s->info, false, a, &in, &s->diag), "%s", s->diag.msg);
    int32_t *seq = NEW(a, int32_t, 4 * in.inst.nops + 1);
    uint8_t *alt = NEW(a, uint8_t, 4 * in.inst.nops + 1);
    Schedule of = {seq, alt, random_schedule(&in, seq, alt)};
    uint32_t nnodes = s->g.nnodes, norder = s->g.norder;
    for (int i = 0; i < 2; i++) /* a prediction changes nothing */
        ck_assert_msg(instance_sequence(&in, of, &q, a, &s->diag) &&
                          sequence_place(&q, &s->info, 0, PACK_QUICK, &size, a, &s->diag),
                      "%s", s->diag.msg);
    ck_assert_uint_eq(s->g.nnodes, nnodes);
    ck_assert_uint_eq(s->g.norder, norder);
    instance_apply(&s->g, &in, of, &s->tmp);
    Plan *p = &s->info.plan;
    ck_assert_msg(plan_place(&s->g, &s->info, 0, PACK_QUICK, p, &s->tmp, &s->diag), "%s", s->diag.msg);
    ck_assert_uint_eq(q.n, p->nstep);
    ck_assert_uint_eq(q.nmicro, p->nmicro);
    ck_assert_int_eq(size.live, p->live_bytes);
    ck_assert_int_eq(size.arena, p->arena_bytes);
    for (uint32_t k = 0; k < q.n; k++) {
        const Candidate known = *q.run[k].how;
        ck_assert_int_eq(p->step[k].cost_ns, known.ns);
        ck_assert_int_eq(p->step[k].scratch, known.scratch);
    }
}

START_TEST(random_plans)
{
    uint32_t unscheduled = 0;
    random_state = (uint64_t)_i + 1;
    for (int i = 0; i < 3; i++) {
        TestStep s;
        ck_assert_msg(plan_model(&s, _i, PRECISION_F32, 0), "%s", s.diag.msg);
        uint64_t want = digest(&s, models[_i].init);
        apply_random(&s, &s.arena);
        bool *scheduled = NEW(&s.arena, bool, s.g.nnodes);
        for (uint32_t k = 0; k < s.g.norder; k++)
            scheduled[s.g.order[k].i] = true;
        for (uint32_t k = 0; k < s.g.norder; k++)
            unscheduled += !scheduled[graph_original(&s.g, s.g.order[k]).i];
        reloads(&s, models[_i].init, want, models[_i].path);
        step_free(&s);
    }
    ck_assert_uint_gt(unscheduled, 0);
}
END_TEST

/* Does a node before the k-th recompute the same node? */
static bool again(const Graph *g, uint32_t k)
{
    const char *label = g->nodes[g->order[k].i].remat;
    for (uint32_t i = 0; i < k; i++) {
        const char *other = g->nodes[g->order[i].i].remat;
        if (other && strcmp(other, label) == 0)
            return true;
    }
    return false;
}

/* The graph has one clone for each recomputation of the final schedule, whatever else the search has tried;
 * names are numbered from a node's second clone on. */
START_TEST(one_clone_per_recomputation)
{
    TestStep s;
    ck_assert_msg(plan_model(&s, NMODELS - 1, PRECISION_F32, 0), "%s", s.diag.msg);
    uint32_t kept = s.g.nnodes, clones = 0;
    step_free(&s);
    ck_assert_msg(plan_model(&s, NMODELS - 1, PRECISION_F32, 0.8), "%s", s.diag.msg);
    for (uint32_t k = 0; k < s.g.norder; k++) {
        const Node *n = &s.g.nodes[s.g.order[k].i];
        if (!n->remat)
            continue;
        clones++;
        const char *end = strrchr(s.g.vals[n->out[0].i].name, '.');
        ck_assert_int_eq(strcmp(end, ".remat") != 0, again(&s.g, k));
    }
    ck_assert_uint_gt(clones, 0);
    ck_assert_uint_eq(s.g.nnodes, kept + clones);
    step_free(&s);
}
END_TEST

Suite *suite_reload(void)
{
    Suite *s = suite_create("reload");
    TCase *tc = tcase_create("text");
    tcase_add_test(tc, recomputation_is_a_label);
    tcase_add_test(tc, odd_text);
    tcase_add_test(tc, unread_constant);
    suite_add_tcase(s, tc);
    tc = tcase_create("plans");
    tcase_set_timeout(tc, 300);
    tcase_add_loop_test(tc, budgets, 0, 3 * NMODELS);
    tcase_add_loop_test(tc, random_plans, 0, NMODELS);
    tcase_add_test(tc, one_clone_per_recomputation);
    suite_add_tcase(s, tc);
    return s;
}
