/* test_fake.c -- plans on the fake device (runtime/fake/): the same bits at every budget, with copies in
 * lanes of their own and in any order that waits allow; mutated plans are found; and what the search moves
 * over a link to the host's memory.
 *
 * CKC_LONG=1 adds the networks that take minutes under sanitizers. */
#include "tests.h"
#include "ir/program.h"
#include "networks.h"
#include "passes/instance.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- lanes -------------------------------------------------------------------------------------------- */

static uint64_t random_state;
static uint32_t below(uint32_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % n;
}

/* The lifetime of a value. */
typedef struct {
    uint32_t made, last; /* numbers of the groups that compute it and that read it last */
    bool moves;          /* it may lie in the host's memory in between */
} Use;

/* The number of each node's group in the order; a node without a group counts as one. */
static uint32_t *number_groups(const Graph *g, Arena *a)
{
    uint32_t *group = NEW(a, uint32_t, g->norder + 1);
    for (uint32_t k = 1; k < g->norder; k++) {
        const Node *n = &g->nodes[g->order[k].i], *before = &g->nodes[g->order[k - 1].i];
        group[k] = group[k - 1] + !(n->group && n->group == before->group);
    }
    return group;
}

static Use *find_uses(const Graph *g, const uint32_t *group, Arena *a)
{
    Use *use = NEW(a, Use, g->nvals);
    for (uint32_t k = 0; k < g->norder; k++) {
        const Node *n = &g->nodes[g->order[k].i];
        bool view = (node_def(n)->traits & OPT_VIEW) != 0;
        for (int i = 0; i < n->nout; i++)
            use[n->out[i].i] = (Use){group[k], group[k], !view};
        for (int i = 0; i < n->nin; i++) {
            use[n->in[i].i].last = group[k];
            use[n->in[i].i].moves &= !view;
        }
    }
    for (uint32_t i = 0; i < g->nout; i++)
        use[g->out[i].i].moves = false;
    for (uint32_t i = 0; i < g->nupdate; i++)
        use[g->update[i].value.i].moves = false;
    return use;
}

/* Offloads half of the values that no node reads for a while; the group that reads one last reads a fetched
 * copy.  Returns their number. */
static int offload_some(Graph *g, Arena *a)
{
    enum { AWHILE = 3 };
    uint32_t n = g->norder, nvals = g->nvals, at = 0;
    const uint32_t *group = number_groups(g, a);
    const Use *use = find_uses(g, group, a);
    NodeId *order = NEW(a, NodeId, 3 * n + 1), *old = NEW(a, NodeId, n + 1);
    Val *host = NEW(a, Val, nvals), *back = NEW(a, Val, nvals);
    int moved = 0;
    memcpy(old, g->order, n * sizeof *old);
    for (uint32_t k = 0; k < n; k++) {
        bool first = k == 0 || group[k] != group[k - 1], end = k + 1 == n || group[k] != group[k + 1];
        for (uint32_t v = 1; v < nvals && first; v++)
            if (host[v].i && use[v].last == group[k]) {
                back[v] = build1(g, OP_fetch, host[v]);
                order[at++] = g->order[g->norder - 1];
            }
        order[at++] = old[k];
        Node *node = &g->nodes[old[k].i];
        for (int i = 0; i < node->nin; i++)
            if (node->in[i].i < nvals && back[node->in[i].i].i && use[node->in[i].i].last == group[k])
                node->in[i] = back[node->in[i].i];
        for (uint32_t v = 1; v < nvals && end; v++)
            if (g->vals[v].kind == VAL_TEMP && use[v].moves && use[v].made == group[k] &&
                use[v].last > use[v].made + AWHILE && below(2)) {
                host[v] = build1(g, OP_offload, (Val){v});
                order[at++] = g->order[g->norder - 1];
                moved++;
            }
    }
    ck_assert_uint_eq(at, g->norder);
    memcpy(g->order, order, at * sizeof *order);
    return moved;
}

/* Plans a planned step anew, with some values moved to the host's memory and back; returns their number. */
static int plan_with_copies(TestStep *s)
{
    PassCtx cx = {.diag = &s->diag, .tmp = &s->tmp, .opt = &s->opt, .info = &s->info};
    uint32_t n = s->g.nnodes;
    int moved = offload_some(&s->g, &s->arena);
    StepCost *cost = NEW(&s->arena, StepCost, s->g.nnodes);
    for (uint32_t k = 0; k < s->g.norder; k++) {
        uint32_t i = graph_original(&s->g, s->g.order[k]).i;
        cost[i] = i < n ? s->info.cost[i] : (StepCost){.n = 1, .same = 1};
    }
    s->info.cost = cost;
    s->info.plan.budget = 0;
    ck_assert_msg(passes_run(&s->g, &cx, &(PassRun){.only = "plan"}), "%s", s->diag.msg);
    return moved;
}

/* Checks a plan with copies on this processor, which has no lanes, and on the fake device with two orders of
 * lanes.  want: the digests of the processor and of the fake device. */
static void check_lanes(const Network *m, const char *path, int64_t budget, const uint64_t want[2])
{
    TestStep s;
    double loss;
    ck_assert_msg(network_plan(&s, m, path, budget), "%s: %s", path, s.diag.msg);
    uint32_t again = s.info.nrecomputed;
    int moved = plan_with_copies(&s);
    ck_assert_int_gt(moved, 0);
    for (int order = 0; order < 3; order++) {
        const DeviceOps *device = order ? &fake_device : NULL;
        s.exec = exec_open(&s.info.plan, &(ExecOptions){.device = device, .seed = 1, .check = true,
                           .init = m->shared ? NULL : &network_init, .lane_order = order}, &s.diag);
        ck_assert_msg(s.exec != NULL, "%s: %s", path, s.diag.msg);
        step_run(&s, NULL, 1, &loss);
        ck_assert_msg(step_digest(&s) == want[order > 0], "%s: other bits in order %d", path, order);
        exec_close(s.exec);
    }
    s.exec = NULL;
    printf("%-60s %u recomputed, %d values moved, same bits\n", path, again, moved);
    step_free(&s);
}

START_TEST(lanes_give_the_same_bits)
{
    static const double fraction[] = {0.75, 0.5};
    const Network *m = &networks[_i];
    char path[4200];
    TestStep s;
    double loss;
    if (m->slow && !getenv("CKC_LONG")) {
        skipped("it takes minutes to interpret under sanitizers: CKC_LONG=1");
        return;
    }
    if (!network_path(m, path))
        return;
    random_state = (uint64_t)_i + 1;
    ck_assert_msg(network_plan(&s, m, path, 0), "%s: %s", path, s.diag.msg);
    uint64_t want[2];
    for (int fake = 0; fake < 2; fake++) {
        s.device = fake ? &fake_device : NULL;
        ck_assert_msg(step_open(&s, m->shared ? NULL : &network_init), "%s", s.diag.msg);
        step_run(&s, NULL, 1, &loss);
        want[fake] = step_digest(&s);
        exec_close(s.exec);
        s.exec = NULL;
    }
    int64_t keep = s.info.plan.arena_bytes, last = 0;
    step_free(&s);
    check_lanes(m, path, 0, want);
    ck_assert(!network_plan(&s, m, path, 1)); /* the refusal names the least budget */
    int64_t least = s.info.plan.min_feasible_bytes;
    step_free(&s);
    for (int i = 0; i < 2 && last != least; i++) {
        last = (int64_t)(fraction[i] * (double)keep);
        last = last > least ? last : least;
        check_lanes(m, path, last, want);
    }
}
END_TEST

/* ---- mutants ------------------------------------------------------------------------------------------- */

/* Lays a value over another one of the same step, up to n times, and checks that plan_verify() finds it;
 * returns how often. */
static int move_values(Plan *p, Arena *a, int n)
{
    Diag d = {0};
    const Command *c = plan_commands(p, a, &d);
    int moved = 0;
    for (int tries = 0; moved < n && tries < 100 * n; tries++) {
        const Command *of = &c[below(p->nstep)];
        Val x = of->vals[below((uint32_t)of->nread)], y = of->vals[below((uint32_t)of->nread)];
        bool both = x.i && y.i && p->g->vals[x.i].kind == VAL_TEMP && p->offset[x.i] != p->offset[y.i] &&
                    val_space(p->g, x) == val_space(p->g, y) && type_count(val_type(p->g, x)) &&
                    type_count(val_type(p->g, y));
        if (!both)
            continue;
        Diag why = {0};
        int64_t was = p->offset[x.i];
        p->offset[x.i] = p->offset[y.i];
        ck_assert_msg(!plan_verify(p, &why), "%%%s over %%%s", p->g->vals[x.i].name, p->g->vals[y.i].name);
        p->offset[x.i] = was;
        moved++;
    }
    return moved;
}

/* Removes each wait in turn and checks that program_verify() finds it; returns their number. */
static int remove_waits(Program *pr)
{
    int removed = 0;
    for (uint32_t i = 0; i < pr->l.n; i++)
        for (int w = 0; w < pr->l.launch[i].nwait; w++) {
            Launch *l = &pr->l.launch[i], was = *l;
            Diag why = {0};
            l->wait[w] = l->wait[--l->nwait];
            ck_assert_msg(!program_verify(pr, &why), "launch %u, wait %d", i, w);
            *l = was;
            removed++;
        }
    return removed;
}

/* Shortens each copy in turn by 4 bytes and checks that program_verify() finds it; returns their number. */
static int shorten_copies(Program *pr)
{
    int n = 0;
    for (uint32_t i = 0; i < pr->l.n; i++)
        for (int k = 0; k < pr->l.launch[i].ncopy; k++) {
            CopyRows *c = (CopyRows *)(uintptr_t)&pr->l.launch[i].copy[k];
            Diag why = {0};
            c->bytes -= 4;
            ck_assert_msg(!program_verify(pr, &why), "launch %u, copy %d", i, k);
            c->bytes += 4;
            n++;
        }
    return n;
}

/* Moves the last operand of n launches past the end of its memory, to a misaligned address or before the
 * start, and checks that program_verify() finds it; returns n. */
static int move_operands(Program *pr, int n)
{
    for (int i = 0; i < n; i++) {
        Launch *l;
        do
            l = &pr->l.launch[below(pr->l.n)];
        while (l->copy || l->op[l->nop - 1].bytes == 0);
        Slice *s = (Slice *)(uintptr_t)&l->op[l->nop - 1], was = *s;
        Diag why = {0};
        s->at = i % 3 == 0 ? pr->bytes[s->base] - s->bytes + 4 : i % 3 == 1 ? s->at + 1 : -4;
        ck_assert(!program_verify(pr, &why));
        *s = was;
    }
    return n;
}

/* Shrinks the workspaces of up to `most` steps by 64 bytes and checks that the plan does not open; returns
 * their number. */
static int shrink_workspaces(TestStep *s, int most)
{
    Plan *p = &s->info.plan;
    int n = 0;
    for (uint32_t i = 0; i < p->nstep && n < most; i++) {
        Diag why = {0};
        if (!p->step[i].scratch)
            continue;
        p->step[i].scratch -= 64;
        ck_assert_ptr_null(exec_open(p, &(ExecOptions){.seed = 1}, &why));
        ck_assert_str_eq(why.msg, strstr(why.msg, "plan: "));
        p->step[i].scratch += 64;
        n++;
    }
    return n;
}

/* Checks that the plan, printed and read again, has the same text and the same launches. */
static void check_text(const Plan *p, const Program *pr, Arena *a)
{
    Diag d = {0};
    Graph g;
    Plan again = {.g = &g};
    Program launches;
    graph_init(&g, a, &d);
    char *text = plan_text(p);
    ck_assert_msg(plan_parse(&again, text, &d), "%s", d.msg);
    char *printed = plan_text(&again);
    ck_assert_str_eq(text, printed);
    ck_assert_msg(plan_verify(&again, &d) && program_make(&launches, &again, a, &d), "%s", d.msg);
    ck_assert_uint_eq(launches.l.n, pr->l.n);
    for (uint32_t i = 0; i < pr->l.n; i++)
        ck_assert_mem_eq(launches.l.launch[i].wait, pr->l.launch[i].wait, sizeof pr->l.launch[i].wait);
    free(text);
    free(printed);
}

/* Checks that values in the host's memory are not listed as held at the arena's peak. */
static void check_peak(TestStep *s)
{
    uint32_t n;
    const PeakHeld *held = plan_peak(&s->info.plan, &s->info, &n, &s->arena);
    ck_assert_uint_gt(n, 0);
    for (uint32_t i = 0; i < n; i++)
        ck_assert(val_space(&s->g, held[i].val) == SPACE_DEVICE);
}

START_TEST(mutants_are_found)
{
    TestStep s;
    char path[4200];
    Diag d = {0};
    Program pr;
    random_state = 1;
    network_path(&networks[1], path);
    ck_assert_msg(network_plan(&s, &networks[1], path, 0), "%s", s.diag.msg);
    plan_with_copies(&s);
    ck_assert(program_make(&pr, &s.info.plan, &s.arena, &d) && program_verify(&pr, &d));
    check_text(&s.info.plan, &pr, &s.arena);
    check_peak(&s);
    int moved = move_values(&s.info.plan, &s.arena, 60), waits = remove_waits(&pr),
        copies = shorten_copies(&pr), operands = move_operands(&pr, 60), work = shrink_workspaces(&s, 4);
    printf("%d offsets, %d waits, %d copies, %d operands, %d workspaces: all found\n", moved, waits, copies,
           operands, work);
    ck_assert_int_ge(moved + waits + copies + operands + work, 200);
    ck_assert(waits > 0 && copies > 0);
    step_free(&s);
}
END_TEST

/* ---- a device with a link to the host ------------------------------------------------------------------ */

static const char near_host[] = "device near \"little memory, and the host is not far\"\n"
                                "memory 1 GB\nmemory_bandwidth 100 GB/s\n"
                                "launch 100 ns\nvector f32 1 GFLOP/s\n";

static int64_t micro_batches;

/* Plans the network for the device near_host; false: s->diag says why not.  bandwidth: the link's, in GB/s;
 * 0: nothing is offloaded. */
static bool try_near_host(TestStep *s, DeviceInfo *device, const Network *m, int64_t budget, double bandwidth)
{
    static OnnxBind bind[2];
    char path[4200];
    memcpy(bind, m->bind, sizeof bind);
    bind[0].value *= 4; /* activations take more than parameters */
    network_path(m, path);
    step_init(s);
    s->opt.import = (OnnxOptions){.bind = bind, .nbind = m->nbind, .init = true};
    s->opt.budget = budget;
    s->opt.offload = bandwidth == 0 ? OFFLOAD_NO : OFFLOAD_AUTO;
    s->opt.max_moves = 30000;
    s->opt.accumulate = micro_batches;
    s->opt.device = device;
    graph_init(&s->g, &s->arena, &s->diag);
    ck_assert(device_parse(device, near_host, &s->arena, &s->diag));
    device->host_link = bandwidth;
    s->opt.model = s->model = onnx_open(path, &s->diag);
    PassCtx cx = {.diag = &s->diag, .tmp = &s->tmp, .opt = &s->opt, .info = &s->info};
    return s->model && passes_run(&s->g, &cx, &(PassRun){0});
}

static void plan_near_host(TestStep *s, DeviceInfo *device, const Network *m, int64_t budget,
                           double bandwidth)
{
    ck_assert_msg(try_near_host(s, device, m, budget, bandwidth), "%s", s->diag.msg);
}

static int count_nodes(const Graph *g, Op op)
{
    int n = 0;
    for (uint32_t k = 0; k < g->norder; k++)
        n += g->nodes[g->order[k].i].op == op;
    return n;
}

static uint64_t run_on_fake(TestStep *s, int order, int steps, double *loss)
{
    s->exec = exec_open(&s->info.plan, &(ExecOptions){.device = &fake_device, .seed = 1, .check = true,
                        .init = &network_init, .lane_order = order}, &s->diag);
    ck_assert_msg(s->exec != NULL, "%s", s->diag.msg);
    step_run(s, NULL, steps, loss);
    uint64_t digest = step_digest(s);
    exec_close(s->exec);
    s->exec = NULL;
    return digest;
}

/* Checks that the plan gives the same weights and losses in three orders of lanes, that its program verifies,
 * and that it survives as text. */
static void check_orders(TestStep *s, uint64_t digest, int steps, const double *want)
{
    double loss[2];
    Program pr;
    Diag d = {0};
    for (int order = 0; order < 3; order++) {
        ck_assert(run_on_fake(s, order, steps, loss) == digest);
        ck_assert_mem_eq(loss, want, (size_t)steps * sizeof *loss);
    }
    ck_assert(program_make(&pr, &s->info.plan, &s->arena, &d) && program_verify(&pr, &d));
    check_text(&s->info.plan, &pr, &s->arena);
}

/* The search fetches values where that is cheaper than recomputation; the plan is within the budget and has
 * the same bits in any order of lanes. */
START_TEST(values_are_fetched_instead_of_recomputed)
{
    const Network *m = &networks[0];
    DeviceInfo device;
    TestStep s;
    double want;
    plan_near_host(&s, &device, m, 0, 20);
    uint64_t digest = run_on_fake(&s, 0, 1, &want);
    ck_assert_int_eq(count_nodes(&s.g, OP_fetch), 0);
    int64_t keep = s.info.plan.arena_bytes, activations = s.info.plan.mem[MEM_ACTIVATION];
    step_free(&s);
    plan_near_host(&s, &device, m, keep - activations / 3, 0);
    ck_assert_int_eq(count_nodes(&s.g, OP_fetch), 0);
    step_free(&s);
    plan_near_host(&s, &device, m, keep - activations / 3, 20);
    int fetched = count_nodes(&s.g, OP_fetch);
    ck_assert_int_gt(fetched, 0);
    ck_assert_int_gt(count_nodes(&s.g, OP_offload), 0);
    ck_assert_uint_gt(s.info.nfetched, 0);
    ck_assert_int_le(s.info.plan.arena_bytes, s.info.plan.budget);
    ck_assert_int_lt(s.info.plan.arena_bytes, keep);
    ck_assert_int_ge(s.info.plan.predicted_ns, s.info.plan.base_ns);
    check_orders(&s, digest, 1, &want);
    printf("%-30s %u recomputed, %d values fetched, same bits\n", m->path, s.info.nrecomputed, fetched);
    step_free(&s);
}
END_TEST

static int states_in_host_memory(const Graph *g)
{
    int n = 0;
    for (uint32_t v = 1; v < g->nvals; v++)
        n += g->vals[v].kind == VAL_STATE && g->vals[v].space == SPACE_HOST;
    return n;
}

/* If recomputing everything is not enough, optimizer states lie in the host's memory; bits after two steps
 * are the same in any order of lanes, with and without micro-batches. */
START_TEST(states_are_in_host_memory_where_nothing_else_fits)
{
    const Network *m = &networks[0];
    DeviceInfo device;
    TestStep s;
    Diag d = {0};
    Program pr;
    double want[2];
    micro_batches = _i ? 3 : 0;
    plan_near_host(&s, &device, m, 0, 1);
    ck_assert_int_eq(states_in_host_memory(&s.g), 0);
    uint64_t digest = run_on_fake(&s, 0, 2, want);
    int64_t optimizer = s.info.plan.mem[MEM_OPTIMIZER];
    step_free(&s);
    ck_assert(!try_near_host(&s, &device, m, 1, 0)); /* the refusal names the least budget without a link */
    int64_t budget = s.info.plan.min_feasible_bytes - optimizer / 8;
    step_free(&s);
    plan_near_host(&s, &device, m, budget, 1);
    int states = states_in_host_memory(&s.g);
    ck_assert_int_gt(states, 0);
    ck_assert_int_le(s.info.plan.arena_bytes, budget);
    ck_assert_int_le(s.info.plan.mem[MEM_OPTIMIZER], optimizer * 3 / 4);
    check_orders(&s, digest, 2, want);
    for (uint32_t i = 0; i < s.g.nupdate; i++) /* a state updated elsewhere than it is read is refused */
        if (val_space(&s.g, s.g.update[i].state) == SPACE_HOST)
            s.info.plan.offset[s.g.update[i].state.i] += s.info.plan.align;
    ck_assert(!program_make(&pr, &s.info.plan, &s.arena, &d));
    printf("%-30s %d states in the host's memory, same bits\n", m->path, states);
    step_free(&s);
}
END_TEST

/* With slow links, too, no plan takes longer than one that only recomputes, and some plans do both. */
START_TEST(no_link_is_worse_than_none)
{
    const Network *m = &networks[1];
    DeviceInfo device;
    TestStep s;
    int both = 0;
    plan_near_host(&s, &device, m, 0, 0);
    int64_t budget = s.info.plan.arena_bytes - s.info.plan.mem[MEM_ACTIVATION] / 2;
    step_free(&s);
    plan_near_host(&s, &device, m, budget, 0);
    int64_t alone = s.info.plan.predicted_ns;
    step_free(&s);
    for (double bandwidth = 0.1; bandwidth > 5e-4; bandwidth /= 10) {
        plan_near_host(&s, &device, m, budget, bandwidth);
        ck_assert_int_le(s.info.plan.predicted_ns, alone);
        ck_assert_int_le(s.info.plan.arena_bytes, budget);
        both += s.info.nrecomputed && s.info.nfetched;
        printf("%6.4f GB/s: %u recomputed, %u fetched, %.2f of recomputation alone\n", bandwidth,
               s.info.nrecomputed, s.info.nfetched, (double)s.info.plan.predicted_ns / (double)alone);
        step_free(&s);
    }
    ck_assert_int_gt(both, 0);
}
END_TEST

/* The bytes of states (of 16) that the search decides to keep in the host's memory, -1 if it finds no plan; a
 * plan with m of them takes times[m] ns, and there is none with fewer than `least`.  fits: all may stay on
 * the device; moved, ns: the first bytes to try and their predicted time; *plans: how many were tried. */
static int64_t settled(bool fits, int64_t moved, int64_t ns, const int64_t *times, int64_t least, int *plans)
{
    StatesAway a = {.moved = moved, .ns = ns, .all = 16, .part = 1, .fits = fits, .best_ns = INT64_MAX,
                    .least = INT64_MAX, .none = -1};
    int64_t best = -1;
    *plans = 0;
    for (int64_t m = fits ? 0 : moved; m >= 0; ++*plans) {
        int64_t took = m < least ? INT64_MAX : times[m];
        best = took < a.best_ns ? m : best;
        m = next_states_away(&a, m, took, false);
    }
    return best;
}

START_TEST(states_away_settle)
{
    static const int64_t hilly[17] = {163, 163, 163, 204, 208, 167, 173, 172, 172,
                                      180, 193, 236, 247, 260, 254, 292, 275};
    int plans;
    ck_assert_int_eq(settled(false, 4, 160, hilly, 3, &plans), 5); /* takes far longer than predicted */
    ck_assert_int_eq(plans, 2);
    ck_assert_int_eq(settled(false, 7, 180, hilly, 10, &plans), 10); /* no plan, all, plan, no plan, plan */
    ck_assert_int_eq(plans, 5);
    ck_assert_int_eq(settled(true, 2, 160, hilly, 0, &plans), 0);
    ck_assert_int_eq(plans, 2);
    ck_assert_int_eq(settled(true, 0, 160, hilly, 0, &plans), 0);
    ck_assert_int_eq(plans, 1);
    ck_assert_int_eq(settled(false, 15, 100, hilly, 17, &plans), -1); /* there is no plan */
    ck_assert_int_eq(plans, 2);
}
END_TEST

Suite *suite_fake(void)
{
    Suite *s = suite_create("fake");
    TCase *c = tcase_create("fake");
    tcase_set_timeout(c, 600);
    tcase_add_loop_test(c, lanes_give_the_same_bits, 0, NETWORKS);
    tcase_add_test(c, mutants_are_found);
    suite_add_tcase(s, c);
    c = tcase_create("host link");
    tcase_add_test(c, values_are_fetched_instead_of_recomputed);
    tcase_add_loop_test(c, states_are_in_host_memory_where_nothing_else_fits, 0, 2);
    tcase_add_test(c, no_link_is_worse_than_none);
    tcase_add_test(c, states_away_settle);
    suite_add_tcase(s, c);
    return s;
}
