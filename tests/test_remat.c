/* test_remat.c -- the rematerialization solver: evaluation against numbers found by hand, closed forms on
 * chains, valid schedules of larger random graphs, policies, determinism, bad input. */
#include "remat_cases.h"
#include "tests.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- evaluation ---------------------------------------------------------------------- */

static void check_schedule(const char *text, const int32_t *seq, int32_t n, int64_t cost,
                           int64_t peak)
{
    RematInstance inst = parse(text);
    int64_t c, p;
    ck_assert_msg(remat_evaluate(&inst, seq, n, NULL, &c, &p, err), "%s", err);
    ck_assert_int_eq(c, cost);
    ck_assert_int_eq(p, peak);
    remat_free(&inst);
}

START_TEST(evaluates_by_hand)
{
    const char *chain = "0 1 10\n1 2 20 0\n2 3 30 1\n3 4 5 0 2\n";
    check_schedule(chain, (int32_t[]){0, 1, 2, 3}, 4, 10, 60);
    check_schedule(chain, (int32_t[]){0, 1, 2, 0, 3}, 5, 11,
                   50); /* 0 runs again, so that its value is not held over 2's step */
    check_schedule("persistent 100\n0 1 10\n", (int32_t[]){0}, 1, 1, 110);
    check_schedule("0 1 10 ; ws=7\n1 1 10 0\n", (int32_t[]){0, 1}, 2, 2, 20);
    check_schedule("0 1 10 ; ws=17\n1 1 10 0\n", (int32_t[]){0, 1}, 2, 2, 27);
    check_schedule("0 1 10 ; keep\n1 1 20\n2 1 1 1\n", (int32_t[]){0, 1, 2}, 3, 3, 31);
    check_schedule("0 1 10 ; keep\n1 1 20\n2 1 1 1\n", (int32_t[]){0, 1, 0, 2}, 4, 4, 31);
}
END_TEST

START_TEST(evaluates_in_place)
{
    check_schedule("0 1 10\n1 1 8 0 ; inplace=0\n", (int32_t[]){0, 1}, 2, 2, 10);
    check_schedule("0 1 8\n1 1 10 0 ; inplace=0\n", (int32_t[]){0, 1}, 2, 2, 10);
    /* not in place when the input is read later */
    check_schedule("0 1 10\n1 1 8 0 ; inplace=0\n2 1 1 0 1\n", (int32_t[]){0, 1, 2}, 3, 3, 19);
    /* an output takes over one buffer; the second permission serves where the first cannot */
    check_schedule("0 1 10\n1 1 9\n2 1 8 0 1 ; inplace=0 inplace=1\n", (int32_t[]){0, 1, 2},
                   3, 3, 19);
    check_schedule("0 1 10\n1 1 9\n2 1 8 0 1 ; inplace=0 inplace=1\n3 1 1 0\n",
                   (int32_t[]){0, 1, 2, 3}, 4, 4, 19);
}
END_TEST

START_TEST(evaluates_several_outputs)
{
    /* 0 makes values of 10 and 5 bytes; running it again replaces both copies */
    const char *text = "0 1 10 ; out=5\n1 1 1 0\n2 1 1 0.1\n3 1 1 0 0.1\n";
    check_schedule(text, (int32_t[]){0, 1, 2, 3}, 4, 4, 16);
    check_schedule(text, (int32_t[]){0, 1, 2, 0, 3}, 5, 5, 16);
}
END_TEST

static void check_refused(const char *text, const int32_t *seq, int32_t n,
                          const char *reason)
{
    RematInstance inst = parse(text);
    int64_t c, p;
    ck_assert(!remat_evaluate(&inst, seq, n, NULL, &c, &p, err));
    ck_assert_msg(strstr(err, reason) != NULL, "'%s' instead of '%s'", err, reason);
    remat_free(&inst);
}

START_TEST(refuses_what_is_no_schedule)
{
    const char *text = "0 1 1 ; once\n1 1 1 0\n2 1 0 1 ; before=1\n";
    check_refused(text, (int32_t[]){1, 0, 2}, 3, "not there");
    check_refused(text, (int32_t[]){0, 1}, 2, "never runs");
    check_refused(text, (int32_t[]){0, 1, 7}, 3, "unknown");
    check_refused(text, (int32_t[]){0, 1, 0, 2}, 4, "must not run again");
    check_refused(text, (int32_t[]){0, 1, 2, 1}, 4, "behind its barrier");
}
END_TEST

/* ---- reading ------------------------------------------------------------------------- */

static const struct {
    const char *text, *message;
} bad_text[] = {
    {"0 1 1 1\n1 1 1 0\n", "line 1: operator 0 is part of a cycle"},
    {"0 1 1\n1 1 1 5\n", "line 2: input 5 is unknown"},
    {"0 1 1\n0 1 1\n", "line 2: id 0 is used twice"},
    {"0 -1 1\n", "line 1: cost is negative"},
    {"# comment\n0 1 -1\n", "line 2: bytes is negative"},
    {"0 1\n", "line 1: bytes is missing"},
    {"0 1 x\n", "line 1: bytes: 'x' is no number"},
    {"0 99999999999999999999 1\n", "line 1: cost does not fit 64 bits"},
    {"0 4000000000000000 1\n1 1 1 ; alt=4000000000000000,0\n",
     "line 2: the sum of the costs does not fit 52 bits"},
    {"0 1 4000000000000000000\n1 1 4000000000000000000\n",
     "line 2: the sum of the bytes does not fit 62 bits"},
    {"0 1 1\n1 1 1 0 0\n", "line 2: input 0 is listed twice"},
    {"0 1 1\n1 1 1 0.1\n", "line 2: input 0.1 is unknown"},
    {"0 1 1\n1 1 1 0 ; inplace=1\n", "line 2: in-place over 1, which is no input"},
    {"0 1 1 ; colour=3\n", "line 1: unknown field 'colour'"},
    {"0 1 1 ; alt=3\n", "line 1: a kernel choice is alt=COST,WORKSPACE"},
    {"0 1 1\n1 1 1 0 ; before=2\n2 1 1 1\n", "cycle"},
    {"0 1 1 ; keep=1\n", "line 1: output number 1 is unknown"},
    {"0 1 1\n1 1 1 0 ; inplace=0:1\n", "line 2: output number 1 is unknown"},
    {"0 1 1\nloss 4\n", "line 2: loss 4 is unknown"},
    {"persistent 3 4\n", "line 1: text behind the persistent bytes"},
    {"persistent 3\npersistent 3\n", "line 2: persistent bytes: given twice"},
    {"0 1 1\nloss 0\nloss 0\n", "line 3: loss: given twice"},
    {"0 1 1 ; ws=1 ws=2\n", "line 1: workspace: given twice"},
    {"0 1 1 ; layer=1 ; layer=1\n", "line 1: layer: given twice"},
    {"0 1\f\n2\n", "line 1: bytes is missing"},
    {"persistent3\n", "line 1: id: 'persistent3' is no number"},
    {"0 1+2 3\n", "line 1: cost: '1+2' is no number"},
    {"0 1 1 ; keeponce\n", "line 1: unknown field 'keeponce'"},
};

START_TEST(bad_instances_name_line_and_reason)
{
    RematInstance inst;
    ck_assert(!remat_parse(bad_text[_i].text, &inst, NULL, err));
    ck_assert_msg(strstr(err, bad_text[_i].message), "'%s' instead of '%s'", err, bad_text[_i].message);
}
END_TEST

START_TEST(reads_any_ids_in_any_order)
{
    const int64_t *ids;
    RematInstance inst;
    ck_assert(remat_parse("", &inst, NULL, err)); /* an empty instance is fine */
    ck_assert_int_eq(inst.nops, 0);
    for (int i = 0; remat_policies[i]; i++) {
        RematResult r;
        ck_assert(remat_named_policy(&inst, remat_policies[i], 0, &r, err));
        remat_result_free(&r);
    }
    remat_free(&inst);
    ck_assert(remat_parse("30 1 1 10 20\n10 2 2\n20 3 3 10\n", &inst, &ids, err));
    ck_assert_int_eq(inst.nops, 3);
    ck_assert_int_eq(ids[0], 10);
    ck_assert_int_eq(ids[2], 30);
    ck_assert_int_eq(inst.ops[2].nin, 2);
    remat_free(&inst);
    inst = parse("\xEF\xBB\xBF"
                 "0\f1 1\v\n1 1 1 0 ; \fws=4\n");
    ck_assert_int_eq(inst.ops[1].workspace, 4);
    remat_free(&inst);
    ck_assert(!remat_read("/nonexistent.dag", &inst, NULL, err));
    ck_assert(strstr(err, "nonexistent") != NULL);
}
END_TEST

/* ---- uniform chains: revolve --------------------------------------------------------- */

static int64_t binomial(int n, int k)
{
    int64_t x = 1;
    for (int i = 1; i <= k; i++)
        x = x * (n - k + i) / i;
    return x;
}

/* Returns the least number of forward steps that reverse `length` steps with s snapshots, by the formula of
 * Griewank and Walther. */
static int64_t revolve_steps(int length, int s)
{
    int r = 0;
    while (binomial(s + r, s) < length)
        r++;
    return r > 0 ? (int64_t)r * length - binomial(s + r, r - 1) : 0;
}

/* Makes a chain of `length` steps: state x_0 stays; f_i: x_(i-1) -> x_i may work in place; b_i reads x_(i-1)
 * and costs nothing.  Snapshots are the states besides the one that is being advanced. */
static RematInstance chain(int length)
{
    char text[4096];
    int at = sprintf(text, "0 0 1 ; keep once\n");
    for (int i = 1; i < length; i++)
        at += sprintf(text + at, "%d 1 1 %d ; inplace=%d\n", i, i - 1, i - 1);
    for (int i = length; i >= 1; i--) {
        int id = 2 * length - i;
        at += sprintf(text + at, "%d 0 0 %d", id, i - 1);
        at += i < length ? sprintf(text + at, " %d\n", id - 1) : sprintf(text + at, "\n");
    }
    return parse(text);
}

START_TEST(uniform_chains_equal_revolve)
{
    for (int length = 2; length <= 12; length++) {
        RematInstance inst = chain(length);
        for (int s = 1; s <= 4 && s < length; s++) {
            RematResult r = solve(&inst, s + 1, 20000);
            for (uint64_t seed = 2; seed < 8 && r.cost != revolve_steps(length, s);
                 seed++) {
                remat_result_free(&r);
                r = solve_seed(&inst, s + 1, 200000, seed);
            }
            check_result(&inst, &r);
            ck_assert(r.feasible);
            ck_assert_msg(r.cost == revolve_steps(length, s),
                          "length %d snapshots %d: %d, revolve %d", length, s, (int)r.cost,
                          (int)revolve_steps(length, s));
            remat_result_free(&r);
        }
        remat_free(&inst);
    }
}
END_TEST

/* ---- larger random graphs with everything -------------------------------------------- */

/* Makes a random forward and backward pass over n layers with skips.  Each layer's weight is updated behind
 * its gradient, and no reader of the weight may run after the update. */
static RematInstance training_graph(int n, uint64_t seed)
{
    char *text = malloc((size_t)n * 1000 + 1000);
    int at = 0, nops = 0, *skip = calloc((size_t)n, sizeof *skip);
    random_state = seed;
    for (int i = 0; i < n; i++) { /* forward: ids 0 .. n - 1 */
        at += sprintf(text + at, "%d %d %d", nops++, 10 + below(90), 10 + below(50));
        at += i > 0 ? sprintf(text + at, " %d", i - 1) : 0;
        skip[i] = i > 2 && below(3) == 0 ? below(i - 1) : -1;
        at += skip[i] >= 0 ? sprintf(text + at, " %d", skip[i]) : 0;
        at +=
            sprintf(text + at, " ; out=%d ws=%d alt=%d,%d%s", 1 + below(9), 20 + below(30),
                    100 + below(20), below(10), below(12) == 0 ? " once" : "");
        at += i > 0 && below(2) ? sprintf(text + at, " inplace=%d", i - 1) : 0;
        at += sprintf(text + at, "\n");
    }
    for (int i = n - 1; i >= 0; i--) { /* backward and update: ids n + 2 (n - 1 - i), + 1 */
        int grad = n + 2 * (n - 1 - i);
        at += sprintf(text + at, "%d %d %d %d %d.1", grad, 20 + below(90), 10 + below(50),
                      i, i);
        at += i < n - 1 ? sprintf(text + at, " %d", grad - 2) : 0;
        at += sprintf(text + at, " ; out=%d ws=%d\n", 5 + below(9), below(9));
        at += sprintf(text + at, "%d 3 0 %d.1 ; once before=%d before=%d\n", grad + 1, grad,
                      i, grad);
    }
    RematInstance inst = parse(text);
    free(text);
    free(skip);
    return inst;
}

START_TEST(schedules_of_training_graphs_are_valid)
{
    for (uint64_t seed = 1; seed <= 6; seed++) {
        RematInstance inst = training_graph(30, seed);
        int64_t peak = remat_input_peak(&inst);
        for (int percent = 90; percent >= 40; percent -= 10) {
            RematResult r = solve(&inst, peak * percent / 100, 5000);
            check_result(&inst, &r);
            remat_result_free(&r);
        }
        remat_free(&inst);
    }
}
END_TEST

/* Returns the sum over all steps of (bytes of the step / peak)^8. */
static double fullness(const RematInstance *inst, const int32_t *seq, const uint8_t *alt, int32_t n,
                       int64_t peak)
{
    int64_t *bytes = calloc((size_t)n, sizeof *bytes);
    double sum = 0;
    ck_assert_msg(remat_profile(inst, seq, n, alt, bytes, err), "%s", err);
    for (int32_t k = 0; k < n; k++)
        sum += pow((double)bytes[k] / (double)peak, 8);
    free(bytes);
    return sum;
}

START_TEST(repacked_schedules_are_valid_and_less_full)
{
    double before = 0, after = 0;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        RematInstance inst = training_graph(30, seed);
        RematResult r = solve(&inst, remat_input_peak(&inst) * 7 / 10, 5000);
        int64_t cost, peak, c, p;
        int32_t *again = malloc((size_t)r.n * sizeof *again);
        uint8_t *alt = malloc((size_t)r.n);
        memcpy(again, r.seq, (size_t)r.n * sizeof *again);
        memcpy(alt, r.alt, (size_t)r.n);
        ck_assert_msg(remat_evaluate(&inst, r.seq, r.n, r.alt, &cost, &peak, err), "%s", err);
        before += fullness(&inst, r.seq, r.alt, r.n, peak);
        remat_repack_order(&inst, r.seq, r.alt, r.n, seed, 50000);
        ck_assert_msg(remat_evaluate(&inst, r.seq, r.n, r.alt, &c, &p, err), "%s", err);
        ck_assert_int_eq(c, cost);
        ck_assert_int_le(p, peak);
        after += fullness(&inst, r.seq, r.alt, r.n, peak);
        remat_repack_order(&inst, again, alt, r.n, seed, 50000);
        ck_assert_mem_eq(again, r.seq, (size_t)r.n * sizeof *again);
        ck_assert_mem_eq(alt, r.alt, (size_t)r.n);
        free(again);
        free(alt);
        remat_result_free(&r);
        remat_free(&inst);
    }
    ck_assert_msg(after < 0.8 * before, "fullness %g, was %g", after, before);
}
END_TEST

/* A short search from a cheap schedule of a few bytes too many: if it may repair that, the result costs
 * little more; if not, it finds only expensive schedules. */
START_TEST(cheap_starts_are_repaired)
{
    double scratch = 0, repaired = 0, cheap = 0;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        RematInstance inst = training_graph(200, seed);
        RematResult from = solve(&inst, remat_input_peak(&inst) * 7 / 10, 200000), r;
        RematOptions o = remat_defaults(from.peak - from.peak / 200);
        o.time_limit_s = 0;
        o.max_moves = 10000;
        o.start = from.seq;
        o.nstart = from.n;
        for (int k = 0; k < 2; k++) {
            o.repair = k == 1;
            ck_assert_msg(remat_solve(&inst, &o, &r, err), "%s", err);
            check_result(&inst, &r);
            ck_assert(r.feasible);
            *(k ? &repaired : &scratch) += (double)(r.cost - remat_base_cost(&inst));
            remat_result_free(&r);
        }
        cheap += (double)(from.cost - remat_base_cost(&inst));
        remat_result_free(&from);
        remat_free(&inst);
    }
    ck_assert_msg(repaired < 1.2 * cheap && repaired < scratch, "%g repaired, %g from scratch, %g before",
                  repaired, scratch, cheap);
}
END_TEST

/* Makes a recurrent layer of n time steps with four gates and a carried state, forward and backward, and the
 * gradient of its one weight, which is summed at the end. */
static RematInstance recurrent_graph(int n)
{
    char *text = malloc((size_t)n * 1000 + 1000);
    int loss = 2 + 7 * n, at = sprintf(text, "0 1 32\n1 500 1024\nloss %d\n", loss);
    for (int t = 0; t < n; t++) { /* ids of a step: the product, the gates, what is carried, the output */
        int pre = 2 + 7 * t, c = pre + 5, before = t > 0 ? c - 7 : 0;
        at += sprintf(text + at, "%d 200 128 %d 1\n", pre, t > 0 ? pre - 1 : 0);
        for (int g = 1; g <= 4; g++)
            at += sprintf(text + at, "%d 3 32 %d\n", pre + g, pre);
        at += sprintf(text + at, "%d 3 32 %d %d %d %d\n", c, pre + 1, pre + 2, pre + 3, before);
        at += sprintf(text + at, "%d 3 32 %d %d\n", c + 1, c, pre + 4);
    }
    at += sprintf(text + at, "%d 1 32 %d\n", loss, loss - 1);
    for (int k = 0; k < n; k++) {
        int pre = 2 + 7 * (n - 1 - k), c = pre + 5, grad = loss + 2 * k + 1;
        at += sprintf(text + at, "%d 10 128 %d %d %d %d %d %d %d\n%d 220 32 %d 1\n", grad, pre + 1, pre + 2,
                      pre + 3, pre + 4, k < n - 1 ? c - 7 : 0, c, grad - 1, grad + 1, grad);
    }
    for (int k = 0; k < n; k++) {
        int sum = loss + 2 * n + 1 + k, h = k < n - 1 ? 1 + 7 * (n - 1 - k) : 0;
        at += sprintf(text + at, "%d 30 512 %d %d", sum, loss + 2 * k + 1, h);
        at += k > 0 ? sprintf(text + at, " %d ; inplace=%d\n", sum - 1, sum - 1) : sprintf(text + at, "\n");
    }
    sprintf(text + at, "%d 5 0 %d ; keep\n", loss + 3 * n + 1, loss + 3 * n);
    RematInstance inst = parse(text);
    free(text);
    return inst;
}

/* A budget is met by recomputing what is cheap only as a group before anything that is expensive. */
START_TEST(recurrent_graphs_are_squeezed)
{
    RematInstance inst = recurrent_graph(24);
    RematResult r = solve(&inst, remat_input_peak(&inst) * 8 / 10, 200000);
    check_result(&inst, &r);
    ck_assert(r.feasible);
    ck_assert_int_lt(r.cost, remat_base_cost(&inst) * 107 / 100);
    remat_result_free(&r);
    remat_free(&inst);
}
END_TEST

static void nap(void *user, const RematPoint *best, int64_t bound, double done)
{
    (void)user, (void)best, (void)bound, (void)done;
    nanosleep(&(struct timespec){.tv_nsec = 50 * 1000 * 1000}, NULL);
}

/* With a limit on moves alone, the same seed and number of threads give the same schedule and bound, however
 * fast the machine is: here the second search is slowed down. */
START_TEST(same_seed_same_schedule_and_bound)
{
    RematInstance inst = training_graph(40, 3);
    for (int threads = 1; threads <= 2; threads++) {
        RematResult r[2];
        for (int k = 0; k < 2; k++) {
            RematOptions o = remat_defaults(remat_input_peak(&inst) / 2);
            o.time_limit_s = 0;
            o.max_moves = 30000;
            o.threads = threads;
            o.seed = 7;
            o.tick = k ? nap : NULL;
            ck_assert(remat_solve(&inst, &o, &r[k], err));
            check_result(&inst, &r[k]);
        }
        ck_assert_int_eq(r[0].n, r[1].n);
        ck_assert_mem_eq(r[0].seq, r[1].seq, sizeof *r[0].seq * (size_t)r[0].n);
        ck_assert_mem_eq(r[0].alt, r[1].alt, (size_t)r[0].n);
        ck_assert_int_eq(r[0].lower_bound, r[1].lower_bound);
        remat_result_free(&r[0]);
        remat_result_free(&r[1]);
    }
    remat_free(&inst);
}
END_TEST

START_TEST(history_falls_and_progress_is_called)
{
    RematInstance inst = training_graph(40, 5);
    RematResult r = solve(&inst, remat_input_peak(&inst) * 7 / 10, 30000);
    ck_assert(r.feasible);
    ck_assert_int_gt(r.nhistory, 0);
    for (int32_t i = 1; i < r.nhistory; i++)
        ck_assert_int_lt(r.history[i].cost, r.history[i - 1].cost);
    ck_assert_int_eq(r.history[r.nhistory - 1].cost, r.cost);
    remat_result_free(&r);
    remat_free(&inst);
}
END_TEST

START_TEST(pareto_curve_is_monotone)
{
    enum { COUNT = 12 };
    RematInstance inst = training_graph(40, 9);
    RematOptions o = remat_defaults(0);
    RematResult r[COUNT];
    o.time_limit_s = 0;
    o.max_moves = 60000;
    ck_assert_msg(remat_pareto(&inst, &o, COUNT, r, err), "%s", err);
    for (int i = 0; i < COUNT; i++) {
        check_result(&inst, &r[i]);
        ck_assert(r[i].feasible);
        ck_assert(i == 0 || r[i].cost >= r[i - 1].cost);
        ck_assert(i == 0 || r[i].budget <= r[i - 1].budget);
    }
    for (int i = 0; i < COUNT; i++)
        remat_result_free(&r[i]);
    remat_free(&inst);
}
END_TEST

/* Every named policy makes a valid schedule, of a training graph and of a graph whose values have no bytes;
 * an unknown name is refused. */
START_TEST(policies_make_valid_schedules)
{
    RematInstance inst[2] = {training_graph(30, 11)};
    ck_assert(remat_parse("0 1 0\n1 1 0 0\n2 1 0 1\n", &inst[1], NULL, err));
    RematResult r;
    for (int k = 0; k < 2; k++) {
        int64_t peak = remat_input_peak(&inst[k]);
        for (int i = 0; remat_policies[i]; i++) {
            ck_assert_msg(
                remat_named_policy(&inst[k], remat_policies[i], peak * 8 / 10, &r, err), "%s", err);
            check_result(&inst[k], &r);
            remat_result_free(&r);
        }
        ck_assert(!remat_named_policy(&inst[k], "none such", peak, &r, err));
        remat_free(&inst[k]);
    }
}
END_TEST

/* What is written reads back as the same instance. */
START_TEST(instances_are_written_as_they_are_read)
{
    char path[] = "/tmp/ckc_remat_XXXXXX";
    FILE *f = fdopen(mkstemp(path), "w");
    ck_assert_ptr_nonnull(f);
    RematInstance inst = training_graph(30, 17), back;
    inst.loss = 29;
    inst.persistent = 12345;
    remat_write(&inst, f);
    ck_assert_int_eq(fclose(f), 0);
    ck_assert_msg(remat_read(path, &back, NULL, err), "%s", err);
    ck_assert_int_eq(back.loss, 29);
    ck_assert_int_eq(back.nops, inst.nops);
    RematResult r = solve(&inst, remat_input_peak(&inst) * 7 / 10, 5000);
    int64_t cost, peak;
    ck_assert_msg(remat_evaluate(&back, r.seq, r.n, r.alt, &cost, &peak, err), "%s", err);
    ck_assert_int_eq(cost, r.cost);
    ck_assert_int_eq(peak, r.peak);
    remat_result_free(&r);
    remat_free(&inst);
    remat_free(&back);
    unlink(path);
    ck_assert(remat_parse("0 1 1\n1 1 2 0 ; out=3 keep=1 inplace=0:1\nloss 0\n", &inst, NULL, err));
    ck_assert(inst.values[inst.ops[1].out[1]].keep_to_end);
    ck_assert_int_eq(inst.ops[1].inplace[0].out, 1);
    ck_assert_int_eq(inst.loss, 0);
    remat_free(&inst);
}
END_TEST

/* Without any one of its executions, a solved schedule is invalid or exceeds the budget. */
START_TEST(nothing_runs_needlessly)
{
    for (uint64_t seed = 1; seed <= 6; seed++) {
        RematInstance inst = training_graph(60, seed);
        for (int32_t i = 0; i < inst.nops; i++) {
            inst.ops[i].cost = i % 3 ? inst.ops[i].cost : 0;
            inst.ops[i].nalt = 0;
        }
        int64_t budget = remat_input_peak(&inst) * 7 / 10, cost, peak;
        RematResult r = solve(&inst, budget, 30000);
        int32_t *seq = calloc((size_t)r.n, sizeof *seq);
        for (int32_t k = 0; k < r.n; k++) {
            memcpy(seq, r.seq, (size_t)k * sizeof *seq);
            memcpy(seq + k, r.seq + k + 1, (size_t)(r.n - k - 1) * sizeof *seq);
            bool fits = remat_evaluate(&inst, seq, r.n - 1, NULL, &cost, &peak, err) && peak <= budget;
            ck_assert_msg(!fits, "seed %d: operator %d at %d", (int)seed, r.seq[k], k);
        }
        free(seq);
        remat_result_free(&r);
        remat_free(&inst);
    }
}
END_TEST

/* The solver meets the least budget that remat_min_budget() found, if it starts from that schedule, and does
 * not meet a budget that is a tenth lower. */
START_TEST(least_budget_is_met)
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        RematInstance inst = training_graph(40, 20 + seed);
        RematOptions o = remat_defaults(0);
        RematResult least, r;
        o.time_limit_s = 0;
        o.max_moves = 100000;
        ck_assert_msg(remat_min_budget(&inst, &o, &least, err), "%s", err);
        check_result(&inst, &least);
        o.budget = least.peak;
        o.start = least.seq;
        o.nstart = least.n;
        ck_assert(remat_solve(&inst, &o, &r, err));
        ck_assert(r.feasible);
        ck_assert_int_le(r.cost, least.cost);
        remat_result_free(&r);
        r = solve(&inst, least.peak - least.peak / 10, 100000);
        ck_assert(!r.feasible);
        remat_result_free(&r);
        remat_result_free(&least);
        remat_free(&inst);
    }
}
END_TEST

/* Within 18 bytes 1 must run first, and 0 by its kernel of less workspace, whatever that costs. */
START_TEST(dear_kernels_meet_budgets)
{
    RematInstance inst = parse("0 1 4 ; ws=11 alt=1000000000,3 keep\n1 1 7 ; ws=11 keep\n");
    RematOptions o = {.max_moves = 5000, .seed = 1};
    RematResult r;
    ck_assert_msg(remat_min_budget(&inst, &o, &r, err), "%s", err);
    check_result(&inst, &r);
    ck_assert_int_eq(r.peak, 18);
    remat_result_free(&r);
    for (int64_t budget = 18; budget <= 22; budget += 4) {
        r = solve(&inst, budget, 5000);
        check_result(&inst, &r);
        ck_assert(r.feasible);
        ck_assert_int_eq(r.cost, budget < 22 ? 1000000001 : 2);
        remat_result_free(&r);
    }
    remat_free(&inst);
}
END_TEST

/* Operator 0 of this cost, which must run again in front of each of its readers within 8 bytes. */
static RematInstance rerun_graph(int readers, int64_t cost)
{
    char *text = malloc((size_t)(readers + 1) * 64), *at = text;
    at += sprintf(at, "0 %lld 4\n1 1 0\n", (long long)cost);
    for (int i = 2; i <= 2 * readers; i += 2)
        at += sprintf(at, "%d 1 0 0 %d\n%d 1 0 %d ; ws=8\n", i, i - 1, i + 1, i);
    RematInstance inst = parse(text);
    free(text);
    return inst;
}

START_TEST(costs_of_schedules_do_not_overflow)
{
    RematInstance inst = rerun_graph(4000, 4503599627300000);
    RematResult r = solve(&inst, 8, 1000);
    check_result(&inst, &r);
    ck_assert(!r.feasible && !r.proved_infeasible);
    ck_assert_int_eq(r.cost, remat_base_cost(&inst));
    remat_result_free(&r);
    remat_free(&inst);
}
END_TEST

START_TEST(sweeps_are_tried_whatever_the_moves)
{
    RematInstance inst = rerun_graph(40, 1000);
    RematResult r = solve(&inst, 8, 1);
    check_result(&inst, &r);
    ck_assert(r.feasible);
    ck_assert_int_eq(r.cost, remat_base_cost(&inst) + 39 * 1000);
    remat_result_free(&r);
    remat_free(&inst);
}
END_TEST

/* Policy revolve costs at most one run per step more than the closed form: it runs a block again right before
 * the block's backward step. */
START_TEST(revolve_policy_is_near_the_closed_form)
{
    for (int s = 2; s <= 3; s++) {
        RematInstance inst = chain(12);
        inst.loss = 11;
        RematResult r;
        ck_assert(remat_named_policy(&inst, "revolve", s + 1, &r, err));
        check_result(&inst, &r);
        ck_assert(r.feasible);
        ck_assert_int_ge(r.cost, revolve_steps(12, s));
        ck_assert_int_le(r.cost, revolve_steps(12, s) + 12);
        remat_result_free(&r);
        remat_free(&inst);
    }
}
END_TEST

/* ---- the benchmark instances --------------------------------------------------------- */

START_TEST(training_graphs_are_solved_to_the_optimum)
{
    const char *path = shared_path("bench/remat/mobilenet.dag");
    RematInstance inst;
    if (!path)
        return;
    ck_assert_msg(remat_read(path, &inst, NULL, err), "%s", err);
    RematResult r = solve(&inst, remat_input_peak(&inst) * 8 / 10, 300000);
    check_result(&inst, &r);
    ck_assert(r.feasible);
    ck_assert_int_le(r.cost, 162680);
    remat_result_free(&r);
    remat_free(&inst);
}
END_TEST

/* Operator 1 reads 0, which must not run once the update 4 has run.  Where the values of 1 and 2 are both
 * unused during the large 5, that of 2 is evicted, though 1 would be cheaper to run again. */
START_TEST(evicts_what_can_come_back)
{
    RematInstance inst = parse("0 1 1\n1 1 10 0\n2 4 10\n3 1 1 1 2\n4 1 0 3 ; once before=0\n"
                               "5 1 20 3 4\n6 1 1 5\n7 1 1 6 1 2\n");
    RematOptions opt = {.budget = 31, .max_moves = 1, .seed = 1, .threads = 1};
    RematResult r;
    ck_assert_msg(remat_solve(&inst, &opt, &r, err), "%s", err);
    ck_assert(r.feasible);
    ck_assert_int_eq(r.cost, 11 + 4);
    remat_result_free(&r);
    remat_free(&inst);
}
END_TEST

Suite *suite_remat(void)
{
    Suite *s = suite_create("remat");
    TCase *t = tcase_create("evaluate");
    tcase_add_test(t, evaluates_by_hand);
    tcase_add_test(t, evaluates_in_place);
    tcase_add_test(t, evaluates_several_outputs);
    tcase_add_test(t, refuses_what_is_no_schedule);
    suite_add_tcase(s, t);
    t = tcase_create("read");
    tcase_add_loop_test(t, bad_instances_name_line_and_reason, 0, sizeof bad_text / sizeof *bad_text);
    tcase_add_test(t, reads_any_ids_in_any_order);
    suite_add_tcase(s, t);
    t = tcase_create("solve");
    tcase_add_test(t, uniform_chains_equal_revolve);
    tcase_add_test(t, schedules_of_training_graphs_are_valid);
    tcase_add_test(t, repacked_schedules_are_valid_and_less_full);
    tcase_add_test(t, cheap_starts_are_repaired);
    tcase_add_test(t, recurrent_graphs_are_squeezed);
    tcase_add_test(t, same_seed_same_schedule_and_bound);
    tcase_add_test(t, history_falls_and_progress_is_called);
    tcase_add_test(t, pareto_curve_is_monotone);
    tcase_add_test(t, policies_make_valid_schedules);
    tcase_add_test(t, instances_are_written_as_they_are_read);
    tcase_add_test(t, nothing_runs_needlessly);
    tcase_add_test(t, evicts_what_can_come_back);
    tcase_add_test(t, least_budget_is_met);
    tcase_add_test(t, dear_kernels_meet_budgets);
    tcase_add_test(t, costs_of_schedules_do_not_overflow);
    tcase_add_test(t, sweeps_are_tried_whatever_the_moves);
    tcase_add_test(t, revolve_policy_is_near_the_closed_form);
    tcase_add_test(t, training_graphs_are_solved_to_the_optimum);
    suite_add_tcase(s, t);
    return s;
}
