/* test_remat_brute.c -- the solver and its bounds against brute force, on all graphs of up to 6 operators. */
#include "remat_cases.h"
#include "tests.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NODES = 6 };

typedef struct {
    int n;
    int64_t cost[MAX_NODES], bytes[MAX_NODES], ws[MAX_NODES];
    int64_t dear[MAX_NODES]; /* cost of a second kernel, without workspace; 0: none */
    uint32_t in[MAX_NODES]; /* the nodes that each one reads, as bits */
    int inplace[MAX_NODES]; /* input whose buffer may be taken over, -1 = none */
    bool keep[MAX_NODES];
    bool once[MAX_NODES], fetched[MAX_NODES]; /* once: not to run again; fetched: may be, at cost fetch[] */
    int64_t fetch[MAX_NODES], link, link_of[MAX_NODES], host;
} Dag;

static int64_t bytes_of(const Dag *d, uint32_t set)
{
    int64_t sum = 0;
    for (int i = 0; i < d->n; i++)
        sum += set >> i & 1 ? d->bytes[i] : 0;
    return sum;
}

/* ---- Dijkstra over (resident values, operators that have run), costs in buckets. */

enum { STATES = 1 << (2 * MAX_NODES), MAX_COST = 256, PUSHES = STATES * (3 * MAX_NODES + 1) };

typedef struct {
    int32_t dist[STATES], head[MAX_COST + 1]; /* heads of lists of entries, -1 = end */
    struct {
        uint32_t state;
        int32_t next;
    } entry[PUSHES];
    int32_t n;
} Frontier;

static void reach(Frontier *f, uint32_t state, int64_t cost)
{
    if (cost > MAX_COST || cost >= f->dist[state])
        return;
    f->dist[state] = (int32_t)cost;
    f->entry[f->n].state = state;
    f->entry[f->n].next = f->head[cost];
    f->head[cost] = f->n++;
}

/* Reaches the states after op i by one of its kernels, if the budget has room: with its own buffer, and in
 * place if allowed. */
static void run_kernel(Frontier *f, const Dag *d, const int64_t *bytes, int i, uint32_t state, int64_t budget,
                       int64_t kernel_cost, int64_t ws)
{
    uint32_t all = (1u << d->n) - 1, resident = state & all, after = resident | 1u << i;
    if ((resident & d->in[i]) != d->in[i] || (d->once[i] && state >> (d->n + i) & 1))
        return;
    uint32_t next = after | ((state >> d->n) | 1u << i) << d->n;
    int64_t need = bytes[after] + ws, cost = f->dist[state] + kernel_cost;
    if (need <= budget)
        reach(f, next, cost);
    int j = d->inplace[i];
    if (j < 0 || resident >> i & 1)
        return;
    need -= d->bytes[j] < d->bytes[i] ? d->bytes[j] : d->bytes[i];
    if (need <= budget)
        reach(f, next & ~(1u << j), cost);
}

static void run_op(Frontier *f, const Dag *d, const int64_t *bytes, int i, uint32_t state, int64_t budget)
{
    run_kernel(f, d, bytes, i, state, budget, d->cost[i], d->ws[i]);
    if (d->dear[i] > 0)
        run_kernel(f, d, bytes, i, state, budget, d->dear[i], 0);
}

/* Reaches the state after a fetch of what op i has made before, if the budget has room. */
static void run_fetch(Frontier *f, const Dag *d, const int64_t *bytes, int i, uint32_t state, int64_t budget)
{
    uint32_t after = (state & ((1u << d->n) - 1)) | 1u << i;
    if (d->fetched[i] && state >> (d->n + i) & 1 && bytes[after] <= budget)
        reach(f, state | 1u << i, f->dist[state] + d->fetch[i]);
}

/* Returns the least cost of all schedules within the budget, with no limit on the link or the host's bytes;
 * -1: there is none. */
static int64_t cheapest(const Dag *d, int64_t budget)
{
    static Frontier f;
    int64_t bytes[1 << MAX_NODES];
    uint32_t all = (1u << d->n) - 1, states = 1u << (2 * d->n), keep = 0;
    for (int i = 0; i < d->n; i++)
        keep |= d->keep[i] ? 1u << i : 0;
    for (uint32_t set = 0; set <= all; set++)
        bytes[set] = bytes_of(d, set);
    for (uint32_t s = 0; s < states; s++)
        f.dist[s] = INT32_MAX;
    memset(f.head, -1, sizeof f.head);
    f.n = 0;
    reach(&f, 0, 0);
    for (int32_t cost = 0; cost <= MAX_COST; cost++)
        while (f.head[cost] >= 0) {
            int32_t at = f.head[cost];
            uint32_t state = f.entry[at].state;
            f.head[cost] = f.entry[at].next;
            if (f.dist[state] < cost)
                continue;
            if (state >> d->n == all && (state & keep) == keep)
                return cost;
            for (int i = 0; i < d->n; i++) {
                if (state >> i & 1)
                    reach(&f, state & ~(1u << i), cost);
                run_op(&f, d, bytes, i, state, budget);
                run_fetch(&f, d, bytes, i, state, budget);
            }
        }
    return -1;
}

/* Returns the same with the limit on the host's bytes, by trying all sets of fetched values that fit it. */
static int64_t brute_force(const Dag *d, int64_t budget)
{
    int64_t best = -1;
    for (uint32_t set = d->host ? 0 : (1u << d->n) - 1; set < 1u << d->n; set++) {
        Dag some = *d;
        int64_t bytes = 0;
        for (int i = 0; i < d->n; i++) {
            some.fetched[i] = d->fetched[i] && set >> i & 1;
            bytes += some.fetched[i] ? d->bytes[i] : 0;
        }
        int64_t cost = d->host == 0 || bytes <= d->host ? cheapest(&some, budget) : -1;
        best = cost >= 0 && (best < 0 || cost < best) ? cost : best;
    }
    return best;
}

static RematInstance instance_of(const Dag *d)
{
    char text[4096];
    int at = 0;
    for (int i = 0; i < d->n; i++) {
        at += sprintf(text + at, "%d %d %d", i, (int)d->cost[i], (int)d->bytes[i]);
        for (int j = 0; j < i; j++)
            at += d->in[i] >> j & 1 ? sprintf(text + at, " %d", j) : 0;
        at += sprintf(text + at, " ; ws=%d%s", (int)d->ws[i], d->keep[i] ? " keep" : "");
        at += d->dear[i] > 0 ? sprintf(text + at, " alt=%d,0", (int)d->dear[i]) : 0;
        at += d->once[i] ? sprintf(text + at, " once") : 0;
        at += d->inplace[i] >= 0 ? sprintf(text + at, " inplace=%d", d->inplace[i]) : 0;
        at += sprintf(text + at, "\n");
    }
    at += d->host > 0 ? sprintf(text + at, "host %d\n", (int)d->host) : 0;
    at += d->link > 0 ? sprintf(text + at, "link %d\n", (int)d->link) : 0;
    for (int i = 0; i < d->n; i++)
        if (d->fetched[i])
            at += sprintf(text + at, "fetch %d %d %d\n", i, (int)d->fetch[i], (int)d->link_of[i]);
    return parse(text);
}

/* Makes the DAG whose edges are the bits of `edges`, with random costs and bytes; extras: also with
 * workspaces, kept values and operators that may work in place. */
static Dag dag_of(int n, uint32_t edges, bool extras)
{
    Dag d = {.n = n};
    for (int i = 0; i < n; i++) {
        d.cost[i] = below(8);
        d.bytes[i] = 1 + below(8);
        d.ws[i] = extras ? below(3) : 0;
        d.keep[i] = extras && below(6) == 0;
        d.inplace[i] = -1;
        for (int j = 0; j < i; j++, edges >>= 1)
            d.in[i] |= (edges & 1) << j;
        for (int j = 0; j < i && extras; j++)
            if (d.in[i] >> j & 1 && below(2))
                d.inplace[i] = j;
    }
    return d;
}

static int64_t least_budget(const Dag *d, int64_t high)
{
    int64_t low = 0;
    while (low + 1 < high) {
        int64_t mid = (low + high) / 2;
        if (brute_force(d, mid) >= 0)
            high = mid;
        else
            low = mid;
    }
    return high;
}

/* Checks the bound and the solver's result at a budget against brute force.  thorough: also the bound by
 * integer programming, and with a first search that does not stop at the true optimum. */
static void compare(const Dag *d, const RematInstance *inst, int64_t budget, bool thorough)
{
    int64_t truth = brute_force(d, budget);
    RematBound bound;
    ck_assert(remat_bound(inst, budget, thorough, &bound, err));
    if (truth >= 0) {
        ck_assert(!bound.infeasible);
        ck_assert_int_le(bound.cost, truth);
    }
    RematResult r = solve_to(inst, budget, 3000, 1, thorough ? 0 : truth);
    for (uint64_t seed = 2; seed < 12 && truth >= 0 && !(r.feasible && r.cost == truth);
         seed++) {
        remat_result_free(&r);
        r = solve_to(inst, budget, 50000, seed, truth);
    }
    check_result(inst, &r);
    ck_assert_int_eq(r.feasible, truth >= 0);
    if (truth >= 0)
        ck_assert_int_eq(r.cost, truth);
    else
        ck_assert_int_lt(budget, r.min_budget);
    remat_result_free(&r);
}

/* Checks that the bound on the least peak is at most the true one; exact: that it is the true one, as it is
 * where only the order and recomputations matter. */
static void compare_least(const RematInstance *inst, int64_t least, bool exact)
{
    RematBound bound;
    ck_assert(remat_bound(inst, least, 1, &bound, err));
    ck_assert_int_le(bound.min_budget, least);
    ck_assert(!exact || bound.min_budget == least);
}

/* Compares at the least budget and half-way from it to the peak; thorough: also the least budget's bound. */
static void compare_dag(const Dag *d, bool thorough)
{
    RematInstance inst = instance_of(d);
    int64_t peak = remat_input_peak(&inst), least = least_budget(d, peak);
    bool exact = d->link == 0;
    for (int i = 0; i < d->n; i++)
        exact &= !d->keep[i] && !d->once[i] && d->inplace[i] < 0;
    ck_assert_int_ge(brute_force(d, least), 0);
    if (thorough)
        compare_least(&inst, least, exact);
    compare(d, &inst, least, thorough);
    compare(d, &inst, (least + peak) / 2, thorough);
    remat_free(&inst);
}

/* Compares every stride-th DAG of n numbered nodes. */
static void compare_all(int n, uint32_t stride, bool extras)
{
    uint32_t count = 1u << (n * (n - 1) / 2);
    random_state = (uint64_t)n;
    for (uint32_t edges = 0; edges < count; edges += stride) {
        Dag d = dag_of(n, edges, extras);
        compare_dag(&d, edges % (8 * stride) == 0);
    }
}

/* ---- one DAG of each isomorphism class */

/* Writes the same edges, with node i called name[i], to *renamed; false: that is no topological numbering. */
static bool rename_nodes(int n, uint32_t edges, const int *name, uint32_t *renamed)
{
    *renamed = 0;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++, edges >>= 1) {
            if (!(edges & 1))
                continue;
            if (name[j] > name[i])
                return false;
            *renamed |= 1u << (name[i] * (name[i] - 1) / 2 + name[j]);
        }
    return true;
}

/* Marks all renamings of edges; name[0 .. at) is decided. */
static void mark_class(int n, uint32_t edges, int *name, int at, bool *seen)
{
    uint32_t renamed;
    if (at == n) {
        if (rename_nodes(n, edges, name, &renamed))
            seen[renamed] = true;
        return;
    }
    for (int x = 0; x < n; x++) {
        bool used = false;
        for (int i = 0; i < at; i++)
            used |= name[i] == x;
        name[at] = x;
        if (!used)
            mark_class(n, edges, name, at + 1, seen);
    }
}

static int compare_classes(int n)
{
    static bool seen[1 << (MAX_NODES * (MAX_NODES - 1) / 2)];
    uint32_t count = 1u << (n * (n - 1) / 2);
    int name[MAX_NODES], classes = 0;
    memset(seen, 0, sizeof seen);
    random_state = (uint64_t)n;
    for (uint32_t edges = 0; edges < count; edges++) {
        if (seen[edges])
            continue;
        mark_class(n, edges, name, 0, seen);
        Dag d = dag_of(n, edges, classes % 2 == 1);
        compare_dag(&d, classes % 16 == 0);
        classes++;
    }
    return classes;
}

START_TEST(equals_brute_force_up_to_4_nodes)
{
    for (int n = 1; n <= 4; n++)
        compare_all(n, 1, false);
}
END_TEST

START_TEST(equals_brute_force_on_5_nodes)
{
    compare_all(5, 1, false);
}
END_TEST

START_TEST(equals_brute_force_on_6_nodes)
{
    ck_assert_int_eq(compare_classes(6), 5984); /* OEIS A003087 */
}
END_TEST

START_TEST(equals_brute_force_with_workspace_in_place_and_kept_values)
{
    compare_all(4, 1, true);
    compare_all(5, 7, true);
    compare_all(6, 331, true);
}
END_TEST

static void add_fetches(Dag *d, int64_t link)
{
    d->link = link;
    for (int i = 0; i < d->n; i++) {
        d->fetched[i] = below(2);
        d->fetch[i] = below(4);
        d->link_of[i] = d->bytes[i];
        d->once[i] = below(5) == 0;
    }
}

START_TEST(equals_brute_force_with_fetches)
{
    random_state = 9;
    for (int k = 0; k < 300; k++) {
        Dag d = dag_of(4 + k % 3, (uint32_t)below(1 << 15), k % 2);
        add_fetches(&d, 1 << 20);
        compare_dag(&d, k % 2 == 0);
    }
}
END_TEST

START_TEST(equals_brute_force_with_a_host_of_few_bytes)
{
    random_state = 10;
    for (int k = 0; k < 80; k++) {
        Dag d = dag_of(4 + k % 2, (uint32_t)below(1 << 10), k % 2);
        add_fetches(&d, 1 << 20);
        d.host = 1 + below(12);
        compare_dag(&d, false);
    }
}
END_TEST

/* With a short link, schedules are valid and cost no less than their bound, nor than with an ample link. */
START_TEST(fetches_stay_within_the_link)
{
    random_state = 11;
    int fetches = 0;
    for (int k = 0; k < 200; k++) {
        Dag d = dag_of(4 + k % 3, (uint32_t)below(1 << 15), k % 2);
        add_fetches(&d, 1 + below(30));
        RematInstance inst = instance_of(&d);
        int64_t budget = (least_budget(&d, remat_input_peak(&inst)) + remat_input_peak(&inst)) / 2;
        RematResult r = solve(&inst, budget, 3000);
        check_result(&inst, &r);
        ck_assert(!r.feasible || r.cost >= brute_force(&d, budget));
        for (int32_t i = 0; i < r.n; i++)
            fetches += r.seq[i] >= inst.nops;
        remat_result_free(&r);
        remat_free(&inst);
    }
    ck_assert_int_gt(fetches, 20);
}
END_TEST

START_TEST(infeasible_budgets_are_not_met)
{
    int64_t moves = 0, near = 0;
    random_state = 5;
    for (int k = 0; k < 20; k++) {
        Dag d = dag_of(5, (uint32_t)below(1024), true);
        RematInstance inst = instance_of(&d);
        int64_t least = least_budget(&d, remat_input_peak(&inst));
        RematResult r = solve(&inst, least - 1, 3000);
        ck_assert(!r.feasible);
        check_result(&inst, &r);
        remat_result_free(&r);
        RematOptions o = remat_defaults(0);
        o.time_limit_s = 0;
        o.max_moves = 20000;
        ck_assert(remat_min_budget(&inst, &o, &r, err));
        ck_assert_int_eq(r.min_budget, least);
        ck_assert_int_eq(r.peak, least);
        check_result(&inst, &r);
        moves += r.moves;
        remat_result_free(&r);
        o.gap = 0.5;
        ck_assert(remat_min_budget(&inst, &o, &r, err));
        ck_assert(r.peak == least || r.peak <= r.min_budget_bound + r.min_budget_bound / 2);
        near += r.moves;
        remat_result_free(&r);
        remat_free(&inst);
    }
    ck_assert_int_lt(near, moves / 2);
}
END_TEST

/* Least budgets are those of kernels without workspace, whatever these cost. */
START_TEST(equals_brute_force_with_kernels)
{
    random_state = 12;
    for (int k = 0; k < 300; k++) {
        Dag d = dag_of(2 + k % 5, (uint32_t)below(1 << 15), k % 2);
        for (int i = 0; i < d.n; i++) {
            d.ws[i] = below(2) ? below(12) : d.ws[i];
            d.dear[i] = below(2) ? 1 + below(120) : 0;
        }
        compare_dag(&d, k % 4 == 0);
    }
}
END_TEST

/* Operator 4 is cheap if 1 is not resident beside it, and 1 returns only by a kernel that is not its
 * cheapest: a search that adds it by that one is stuck at a cost of 402408. */
START_TEST(kernels_fit_where_runs_are_added)
{
    RematInstance inst = parse("0 400002 2 ; ws=6 alt=500000,3 alt=4,16 alt=700,5\n"
                               "1 5001 6 0 ; ws=8 alt=40,15 alt=40000,26 alt=2,29\n"
                               "2 800000 3 0 1 ; ws=5 alt=200,25 alt=700000,20\n"
                               "3 200 19 0 1 2 ; ws=22\n"
                               "4 400001 18 0 2 3 ; alt=5001,29 alt=801,5\n"
                               "5 2001 13 0 1 4 ; ws=11 alt=3001,1\n");
    for (uint64_t seed = 1; seed <= 4; seed++) {
        RematResult r = solve_seed(&inst, 52, 30000, seed);
        check_result(&inst, &r);
        ck_assert_int_eq(r.cost, 3248);
        remat_result_free(&r);
    }
    remat_free(&inst);
}
END_TEST

Suite *suite_remat_brute(void)
{
    Suite *s = suite_create("remat brute");
    TCase *t = tcase_create("brute force");
    tcase_add_test(t, equals_brute_force_up_to_4_nodes);
    tcase_add_test(t, equals_brute_force_on_5_nodes);
    tcase_add_test(t, equals_brute_force_on_6_nodes);
    tcase_add_test(t, equals_brute_force_with_workspace_in_place_and_kept_values);
    tcase_add_test(t, equals_brute_force_with_fetches);
    tcase_add_test(t, equals_brute_force_with_a_host_of_few_bytes);
    tcase_add_test(t, equals_brute_force_with_kernels);
    tcase_add_test(t, kernels_fit_where_runs_are_added);
    tcase_add_test(t, fetches_stay_within_the_link);
    tcase_add_test(t, infeasible_budgets_are_not_met);
    suite_add_tcase(s, t);
    return s;
}
