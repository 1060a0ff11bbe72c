/* policy.c -- the policies that frameworks and papers offer, on the same instances:
 * baselines to compare with.
 *
 * The forward pass is everything up to the loss (given, or the step of the input order
 * after which most bytes are alive); its blocks are given or lie between articulation
 * values (one value carries nearly everything across). Most policies choose which forward values
 * to keep for the backward pass; replay() runs the input order, makes a dropped value
 * again, with what it needs, before its first backward reader, and keeps it to its last
 * reader. Revolve also chooses anew while it runs, and DTR is the eviction sweep with its
 * own rule.
 *
 * Chen et al. 2016 (sqrt and greedy), Griewank and Walther 2000 (revolve), Kirisame et al.
 * 2021 (DTR), PyTorch's activation_memory_budget (knapsack), Korthikanti et al. 2022
 * (selective). */
#include "solve.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const remat_policies[] = {"keep-all",  "recompute-all", "every-2",   "every-4",
                                      "chen-sqrt", "chen-greedy",   "selective", "revolve",
                                      "dtr",       "knapsack",      NULL};

typedef struct {
    const Problem *p;
    int64_t budget;
    RematResult *result; /* the best schedule so far */
    int32_t loss;
    int32_t *block; /* per forward op */
    int32_t nblocks;
    bool *again; /* per op: may run in the backward pass */
    bool *saved; /* per value: read by the backward pass */
    bool *keep;  /* per value */
    /* replay */
    bool *held;   /* per value: the newest copy may still be read */
    bool *wanted; /* per op */
    int32_t *closure, nclosure;
    Seq out;
} Policy;

/* ---- the forward pass and its blocks ------------------------------------------------- */

/* The step of the input order after which most bytes are alive. */
static int32_t find_loss(const Problem *p)
{
    int64_t *change = RM_NEW(int64_t, p->nops + 1), level = 0, most = -1;
    int32_t loss = -1; /* none without operators */
    for (int32_t v = 0; v < p->nvals; v++) {
        int32_t last = p->producer[v];
        for (int32_t k = p->readers.first[v]; k < p->readers.first[v + 1]; k++)
            last = p->readers.at[k] > last ? p->readers.at[k] : last;
        change[p->producer[v]] += p->bytes[v];
        change[last] -= p->bytes[v];
    }
    for (int32_t i = 0; i < p->nops; i++) {
        level += change[i];
        if (level > most) {
            most = level;
            loss = i;
        }
    }
    free(change);
    return loss;
}

/* Last forward reader of a value, or its producer. */
static int32_t last_forward(const Policy *y, int32_t v)
{
    const Problem *p = y->p;
    int32_t last = p->producer[v];
    for (int32_t k = p->readers.first[v]; k < p->readers.first[v + 1]; k++)
        if (p->readers.at[k] <= y->loss && p->readers.at[k] > last)
            last = p->readers.at[k];
    return last;
}

/* A block ends behind op i where one value carries everything across: the others made so far
 * that have a forward reader behind i (masks, positions) are at most a quarter of its bytes. */
static void find_blocks(Policy *y)
{
    const Problem *p = y->p;
    int64_t *open = RM_NEW(int64_t, y->loss + 2), *largest = RM_NEW(int64_t, y->loss + 2);
    int32_t block = 0;
    for (int32_t v = 0; v < p->nvals; v++)
        for (int32_t i = p->producer[v]; i <= y->loss && i < last_forward(y, v); i++) {
            open[i] += p->bytes[v];
            largest[i] = p->bytes[v] > largest[i] ? p->bytes[v] : largest[i];
        }
    for (int32_t i = 0; i <= y->loss; i++) {
        y->block[i] = p->inst->block ? p->inst->block[i] : block;
        block += open[i] - largest[i] <= largest[i] / 4;
        y->nblocks = y->block[i] >= y->nblocks ? y->block[i] + 1 : y->nblocks;
    }
    free(open);
    free(largest);
}

/* Which forward operators may run again in the backward pass: not those that may be needed, for
 * a backward reader of their values or of values made from them, only behind their barrier. */
static void find_again(Policy *y)
{
    const Problem *p = y->p;
    int32_t *needed = RM_NEW(int32_t, y->loss + 1); /* per op: until when */
    for (int32_t u = y->loss; u >= 0; u--) {
        int32_t barrier = p->nops;
        for (int32_t k = p->out.first[u]; k < p->out.first[u + 1]; k++) {
            int32_t v = p->out.at[k];
            for (int32_t j = p->readers.first[v]; j < p->readers.first[v + 1]; j++) {
                int32_t r = p->readers.at[j], at = r > y->loss ? r : needed[r];
                needed[u] = at > needed[u] ? at : needed[u];
            }
        }
        for (int32_t k = p->barred_by.first[u]; k < p->barred_by.first[u + 1]; k++)
            barrier = p->barred_by.at[k] < barrier ? p->barred_by.at[k] : barrier;
        y->again[u] = !p->inst->ops[u].once && needed[u] < barrier;
    }
    free(needed);
}

static void policy_init(Policy *y, const Problem *p, int64_t budget)
{
    bool given = p->inst->loss >= 0 && p->inst->loss < p->nops;
    *y = (Policy){.p = p, .budget = budget, .loss = given ? p->inst->loss : find_loss(p)};
    y->block = RM_NEW(int32_t, p->nops);
    y->again = RM_NEW(bool, p->nops);
    y->saved = RM_NEW(bool, p->nvals);
    y->keep = RM_NEW(bool, p->nvals);
    y->held = RM_NEW(bool, p->nvals);
    y->wanted = RM_NEW(bool, p->nops);
    y->closure = RM_NEW(int32_t, p->nops);
    for (int32_t v = 0; v < p->nvals; v++) {
        bool forward = p->producer[v] <= y->loss;
        y->keep[v] = true;
        for (int32_t k = p->readers.first[v]; k < p->readers.first[v + 1]; k++)
            y->saved[v] |= forward && p->readers.at[k] > y->loss;
    }
    find_blocks(y);
    find_again(y);
}

static void policy_free(Policy *y)
{
    void *all[] = {y->block, y->again,  y->saved,   y->keep,
                   y->held,  y->wanted, y->closure, y->out.op};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static bool can_drop(const Policy *y, int32_t v)
{
    return y->again[y->p->producer[v]];
}

/* ---- replay -------------------------------------------------------------------------- */

static void want(Policy *y, int32_t op)
{
    const Problem *p = y->p;
    for (int32_t k = p->in.first[op]; k < p->in.first[op + 1]; k++) {
        int32_t v = p->in.at[k], u = p->producer[v];
        if (!y->held[v] && !y->wanted[u]) {
            y->wanted[u] = true;
            y->closure[y->nclosure++] = u;
        }
    }
}

static int by_number(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Runs op after everything it misses. */
static void run_with_missing(Policy *y, int32_t op)
{
    const Problem *p = y->p;
    y->nclosure = 0;
    want(y, op);
    for (int32_t i = 0; i < y->nclosure; i++)
        want(y, y->closure[i]);
    qsort(y->closure, (size_t)y->nclosure, sizeof *y->closure, by_number);
    for (int32_t i = 0; i < y->nclosure; i++) {
        int32_t u = y->closure[i];
        y->wanted[u] = false;
        seq_push(&y->out, u);
        for (int32_t k = p->out.first[u]; k < p->out.first[u + 1]; k++)
            y->held[p->out.at[k]] = true;
    }
    seq_push(&y->out, op);
    for (int32_t k = p->out.first[op]; k < p->out.first[op + 1]; k++)
        y->held[p->out.at[k]] = true;
}

static void hold_kept(Policy *y)
{
    for (int32_t v = 0; v < y->p->nvals; v++)
        y->held[v] = y->held[v] && (y->keep[v] || !can_drop(y, v));
}

static void offer(const Policy *y)
{
    result_offer(y->result, y->p, &y->out, y->budget);
}

/* Makes the schedule that keeps y->keep, and offers it. */
static void replay(Policy *y)
{
    const Problem *p = y->p;
    y->out.n = 0;
    memset(y->held, 0, sizeof *y->held * (size_t)p->nvals);
    for (int32_t i = 0; i < p->nops; i++) {
        run_with_missing(y, i);
        if (i == y->loss)
            hold_kept(y);
    }
    offer(y);
}

/* ---- checkpoints at block borders ---------------------------------------------------- */

/* Keeps the values that cross from a block into the next one after blocks marked as
 * borders. */
static void keep_borders(Policy *y, const bool *border)
{
    const Problem *p = y->p;
    for (int32_t v = 0; v < p->nvals; v++) {
        int32_t op = p->producer[v];
        if (op > y->loss)
            continue;
        y->keep[v] = false;
        for (int32_t b = y->block[op], to = y->block[last_forward(y, v)]; b < to; b++)
            y->keep[v] |= border[b];
    }
}

/* Every `every`-th block ends with a checkpoint. */
static void checkpoint_every(Policy *y, int32_t every)
{
    bool *border = RM_NEW(bool, y->nblocks);
    for (int32_t b = every - 1; b < y->nblocks; b += every)
        border[b] = true;
    keep_borders(y, border);
    free(border);
}

static void policy_keep_all(Policy *y)
{
    replay(y);
}

static void policy_recompute_all(Policy *y)
{
    checkpoint_every(y, 1);
    replay(y);
}

static void policy_every_2(Policy *y)
{
    checkpoint_every(y, 2);
    replay(y);
}

static void policy_every_4(Policy *y)
{
    checkpoint_every(y, 4);
    replay(y);
}

static void policy_chen_sqrt(Policy *y)
{
    int32_t every = (int32_t)lround(sqrt(y->nblocks));
    checkpoint_every(y, every > 0 ? every : 1);
    replay(y);
}

/* Chen's algorithm 3: a checkpoint wherever the bytes since the last one exceed `most`. */
static void checkpoint_greedy(Policy *y, int64_t most)
{
    const Problem *p = y->p;
    bool *border = RM_NEW(bool, y->nblocks);
    int64_t sum = 0;
    for (int32_t i = 0; i <= y->loss; i++) {
        for (int32_t k = p->out.first[i]; k < p->out.first[i + 1]; k++)
            sum += p->bytes[p->out.at[k]];
        if (sum > most && (i == y->loss || y->block[i + 1] != y->block[i])) {
            border[y->block[i]] = true;
            sum = 0;
        }
    }
    keep_borders(y, border);
    free(border);
}

/* The largest segment size of a geometric series that fits the budget, or the one of the
 * least peak. */
static void policy_chen_greedy(Policy *y)
{
    int64_t total = 0;
    for (int32_t v = 0; v < y->p->nvals; v++)
        total += y->p->producer[v] <= y->loss ? y->p->bytes[v] : 0;
    double most = (double)total;
    do {
        checkpoint_greedy(y, (int64_t)most);
        replay(y);
    } while ((most /= 1.25) > (double)total / 2048);
}

/* ---- choosing among the saved values ------------------------------------------------- */

typedef struct {
    double rate;
    int32_t value;
} Rated;

static int by_rate(const void *a, const void *b)
{
    const Rated *x = a, *y = b;
    if (x->rate != y->rate)
        return x->rate > y->rate ? -1 : 1;
    return (x->value > y->value) - (x->value < y->value);
}

/* The saved values that can be dropped, most bytes per cost first. */
static int32_t rate_saved(const Policy *y, Rated *list)
{
    const Problem *p = y->p;
    int32_t n = 0;
    for (int32_t v = 0; v < p->nvals; v++)
        if (y->saved[v] && can_drop(y, v))
            list[n++] = (Rated){
                (double)p->bytes[v] / ((double)p->cost[p->producer[v]] + 1e-6), v};
    qsort(list, (size_t)n, sizeof *list, by_rate);
    return n;
}

/* Drops the first `count` of the list and everything that is not saved. */
static void drop_first(Policy *y, const Rated *list, int32_t n, int32_t count)
{
    for (int32_t v = 0; v < y->p->nvals; v++)
        y->keep[v] = y->p->producer[v] > y->loss || y->saved[v];
    for (int32_t i = 0; i < n && i < count; i++)
        y->keep[list[i].value] = false;
}

/* Drops by bytes per second of recomputation until the schedule fits; the peak is not
 * monotone, so all prefixes of a grid are tried and the first that fits is taken. */
static void policy_selective(Policy *y)
{
    Rated *list = RM_NEW(Rated, y->p->nvals);
    int32_t n = rate_saved(y, list), stride = n / 256 + 1;
    for (int32_t count = 0; count <= n && !y->result->feasible; count += stride) {
        drop_first(y, list, n, count);
        replay(y);
    }
    free(list);
}

enum { KNAPSACK_UNITS = 1000 };

/* Which values to keep so that at most `units` thousandths of the saved bytes remain and
 * the cost of the dropped is least. */
static void knapsack(Policy *y, const Rated *list, int32_t n, int32_t units)
{
    const Problem *p = y->p;
    double total = 1, *best = RM_NEW(double, KNAPSACK_UNITS + 1);
    bool *taken = RM_NEW(bool, (size_t)n *(KNAPSACK_UNITS + 1));
    for (int32_t i = 0; i < n; i++)
        total += (double)p->bytes[list[i].value];
    for (int32_t i = 0; i < n; i++) {
        int32_t weight =
            (int32_t)ceil((double)p->bytes[list[i].value] / total * KNAPSACK_UNITS);
        double gain = (double)p->cost[p->producer[list[i].value]];
        for (int32_t u = units; u >= weight; u--)
            if (best[u - weight] + gain > best[u]) {
                best[u] = best[u - weight] + gain;
                taken[(size_t)i * (KNAPSACK_UNITS + 1) + (size_t)u] = true;
            }
    }
    drop_first(y, list, n, n);
    for (int32_t i = n - 1, u = units; i >= 0; i--)
        if (taken[(size_t)i * (KNAPSACK_UNITS + 1) + (size_t)u]) {
            y->keep[list[i].value] = true;
            u -= (int32_t)ceil((double)p->bytes[list[i].value] / total * KNAPSACK_UNITS);
        }
    free(best);
    free(taken);
}

/* PyTorch's ratio, from 1 downwards until the schedule fits. */
static void policy_knapsack(Policy *y)
{
    Rated *list = RM_NEW(Rated, y->p->nvals);
    int32_t n = rate_saved(y, list);
    for (int32_t units = KNAPSACK_UNITS; units >= 0 && !y->result->feasible;
         units -= KNAPSACK_UNITS / 20) {
        knapsack(y, list, n, units);
        replay(y);
    }
    free(list);
}

/* ---- revolve ------------------------------------------------------------------------- */

/* (n over k), capped. */
static int64_t binomial(int32_t n, int32_t k)
{
    double x = 1;
    for (int32_t i = 1; i <= k; i++)
        x = x * (n - k + i) / i;
    return x < 1e15 ? (int64_t)llround(x) : (int64_t)1000000000000000;
}

/* How far to advance before the next checkpoint when `length` blocks are to be reversed
 * with `slots` checkpoints, the one at the start among them: with r the least number such
 * that binomial(slots + r, slots) >= length. */
static int32_t revolve_hop(int32_t length, int32_t slots)
{
    int32_t r = 1;
    while (binomial(slots + r, slots) < length)
        r++;
    int64_t hop = binomial(slots + r - 1, slots),
            other = length - binomial(slots + r - 2, slots - 1);
    hop = hop < other ? hop : other;
    return hop < 1 ? 1 : hop < length ? (int32_t)hop : length - 1;
}

/* The backward pass reads block k: hold checkpoints on the way from the nearest one.
 * stored[b]: the border behind block b is held. */
static void revolve_plan(Policy *y, bool *stored, int32_t k, int32_t slots)
{
    int32_t at = k - 1, used = 0;
    for (int32_t b = 0; b < k; b++)
        used += stored[b];
    while (at >= 0 && !stored[at])
        at--;
    for (int32_t b = k; b < y->nblocks; b++)
        stored[b] = false;
    while (k - at > 1 && used < slots) {
        at += revolve_hop(k - at, slots - used + 1);
        if (at >= k)
            break;
        stored[at] = true;
        used++;
    }
}

/* Only what crosses a stored border, or belongs to block k, may still be read. */
static void revolve_hold(Policy *y, const bool *stored, int32_t k)
{
    const Problem *p = y->p;
    for (int32_t v = 0; v < p->nvals; v++) {
        int32_t op = p->producer[v];
        if (!y->held[v] || !can_drop(y, v) || y->block[op] == k)
            continue;
        bool held = false;
        for (int32_t b = y->block[op], to = y->block[last_forward(y, v)]; b < to && !held;
             b++)
            held = stored[b];
        y->held[v] = held;
    }
}

/* The last block whose values op reads, -1 = none. */
static int32_t block_read(const Policy *y, int32_t op)
{
    const Problem *p = y->p;
    int32_t last = -1;
    for (int32_t k = p->in.first[op]; k < p->in.first[op + 1]; k++) {
        int32_t u = p->producer[p->in.at[k]];
        if (u <= y->loss && y->block[u] > last)
            last = y->block[u];
    }
    return last;
}

static void revolve(Policy *y, int32_t slots)
{
    const Problem *p = y->p;
    bool *stored = RM_NEW(bool, y->nblocks + 1);
    int32_t current = y->nblocks;
    y->out.n = 0;
    memset(y->held, 0, sizeof *y->held * (size_t)p->nvals);
    revolve_plan(y, stored, y->nblocks - 1, slots);
    for (int32_t i = 0; i < p->nops; i++) {
        int32_t k = i > y->loss ? block_read(y, i) : -1;
        if (k >= 0 && k < current) {
            current = k;
            revolve_plan(y, stored, k, slots);
        }
        run_with_missing(y, i);
        if (i >= y->loss)
            revolve_hold(y, stored, current < y->nblocks ? current : y->nblocks - 1);
    }
    offer(y);
    free(stored);
}

/* As many checkpoints as fit. */
static void policy_revolve(Policy *y)
{
    for (int32_t slots = y->nblocks; slots >= 1;
         slots = slots > 32 ? slots * 3 / 4 : slots - 1)
        revolve(y, slots);
}

/* ---- DTR ----------------------------------------------------------------------------- */

static void policy_dtr(Policy *y)
{
    int32_t *order = RM_NEW(int32_t, y->p->nops);
    for (int32_t i = 0; i < y->p->nops; i++)
        order[i] = i;
    if (evict_sweep(y->p, order, y->budget, EVICT_DTR, &y->out))
        offer(y);
    else
        replay(y); /* out of memory: show what keeping everything needs */
    free(order);
}

bool remat_named_policy(const RematInstance *inst, const char *name, int64_t budget,
                        RematResult *result, char err[REMAT_ERR])
{
    static void (*const run[])(Policy *) = {
        policy_keep_all,  policy_recompute_all, policy_every_2,   policy_every_4,
        policy_chen_sqrt, policy_chen_greedy,   policy_selective, policy_revolve,
        policy_dtr,       policy_knapsack};
    Problem p;
    Policy y;
    *result = (RematResult){.budget = budget};
    int32_t i = 0;
    while (remat_policies[i] && strcmp(remat_policies[i], name))
        i++;
    if (!remat_policies[i])
        return rm_fail(err, "no policy is called '%.100s'", name);
    if (!problem_init(&p, inst, err))
        return false;
    double start = clock_seconds();
    policy_init(&y, &p, budget);
    y.result = result;
    run[i](&y);
    result->lower_bound = p.base_cost;
    result->min_budget_bound = bound_least_budget(&p);
    result->seconds = clock_seconds() - start;
    policy_free(&y);
    problem_free(&p);
    return true;
}
