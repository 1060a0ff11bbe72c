/* policy.c -- the policies that frameworks and papers offer, on the same instances:
 * baselines to compare with.
 *
 * The forward pass is everything up to the loss (given, or the step of the input order
 * after which most bytes are alive); its blocks are given or lie between articulation
 * values (one value carries nearly everything across). Most policies choose which forward values
 * to keep for the backward pass, some by segments of blocks; replay() runs the input order, makes a dropped
 * value again, with the values that it needs, before its first backward reader, and keeps it to its last
 * reader. Revolve also chooses anew while it runs, and DTR is the eviction sweep with its own rule.
 *
 * Chen et al. 2016 (sqrt and greedy), Griewank and Walther 2000 (revolve), Kirisame et al.
 * 2021 (DTR), PyTorch's activation_memory_budget (knapsack), Korthikanti et al. 2022 and PyTorch's
 * policies that save products (selective). */
#include "policy.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const remat_policies[] = {"keep-all",  "recompute-all", "every-2",   "every-4", "ratio=0.25",
                                      "chen-sqrt", "chen-greedy",   "selective", "greedy",  "knapsack",
                                      "revolve",   "dtr",           NULL};

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
int32_t policy_last_forward(const Policy *y, int32_t v)
{
    const Problem *p = y->p;
    int32_t last = p->producer[v];
    for (int32_t k = p->readers.first[v]; k < p->readers.first[v + 1]; k++)
        if (p->readers.at[k] <= y->loss && p->readers.at[k] > last)
            last = p->readers.at[k];
    return last;
}

/* Makes blocks of the layers that the instance gives; false: it gives none.  Operators between layers are
 * blocks, too. */
static bool take_layers(Policy *y)
{
    int32_t last = 0;
    for (int32_t i = 0; i <= y->loss; i++) {
        int32_t now = y->p->inst->ops[i].layer;
        if (i == 0 || now != last) {
            y->layer[y->nblocks] = now > 0 ? y->nlayers : -1;
            y->nlayers += now > 0;
            y->nblocks++;
        }
        last = now;
        y->block[i] = y->nblocks - 1;
    }
    return y->nlayers > 0;
}

/* A block ends behind op i where one value carries everything across: the others made so far
 * that have a forward reader behind i (masks, positions) are at most a quarter of its bytes. */
static void find_blocks(Policy *y)
{
    const Problem *p = y->p;
    int64_t *open = RM_NEW(int64_t, y->loss + 2), *largest = RM_NEW(int64_t, y->loss + 2);
    int32_t block = 0;
    for (int32_t v = 0; v < p->nvals; v++)
        for (int32_t i = p->producer[v]; i <= y->loss && i < policy_last_forward(y, v); i++) {
            open[i] += p->bytes[v];
            largest[i] = p->bytes[v] > largest[i] ? p->bytes[v] : largest[i];
        }
    for (int32_t i = 0; i <= y->loss; i++) {
        y->block[i] = block;
        block += open[i] - largest[i] <= largest[i] / 4;
        y->nblocks = y->block[i] + 1;
        y->layer[y->block[i]] = y->block[i];
    }
    y->nlayers = y->nblocks;
    free(open);
    free(largest);
}

static bool drops(const Policy *y, int32_t op)
{
    bool any = false;
    for (int32_t k = y->p->out.first[op]; k < y->p->out.first[op + 1]; k++)
        any |= !y->keep[y->p->out.at[k]];
    return any;
}

/* Finds the forward operators that may run again in the backward pass: not those that may be needed only
 * behind their barrier, by a backward reader of their values or of values recomputed from them. */
void policy_find_again(Policy *y)
{
    const Problem *p = y->p;
    int32_t *needed = RM_NEW(int32_t, y->loss + 1); /* per op: the last position that may need it again */
    for (int32_t u = y->loss; u >= 0; u--) {
        int32_t barrier = p->nops;
        for (int32_t k = p->out.first[u]; k < p->out.first[u + 1]; k++) {
            int32_t v = p->out.at[k];
            for (int32_t j = p->readers.first[v]; j < p->readers.first[v + 1]; j++) {
                int32_t r = p->readers.at[j];
                int32_t at = r > y->loss ? r : y->again[r] && drops(y, r) ? needed[r] : 0;
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
    y->layer = RM_NEW(int32_t, p->nops);
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
    if (!take_layers(y))
        find_blocks(y);
    policy_find_again(y);
}

static void policy_free(Policy *y)
{
    MEM_FREE(y->layer, y->block, y->again, y->saved, y->keep, y->held, y->wanted, y->closure, y->out.op);
}

bool policy_can_drop(const Policy *y, int32_t v) { return y->again[y->p->producer[v]]; }

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

/* Appends op to the schedule, behind the producers of all inputs that are not held, and of theirs. */
void policy_run(Policy *y, int32_t op)
{
    const Problem *p = y->p;
    y->nclosure = 0;
    want(y, op);
    for (int32_t i = 0; i < y->nclosure; i++)
        want(y, y->closure[i]);
    qsort(y->closure, (size_t)y->nclosure, sizeof *y->closure, rm_by_number);
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
        y->held[v] = y->held[v] && (y->keep[v] || !policy_can_drop(y, v));
}

void policy_offer(const Policy *y) { result_offer(y->result, y->p, &y->out, y->budget); }

/* Makes the schedule that keeps y->keep, and offers it. */
static void replay(Policy *y)
{
    const Problem *p = y->p;
    y->out.n = 0;
    policy_find_again(y);
    memset(y->held, 0, sizeof *y->held * (size_t)p->nvals);
    for (int32_t i = 0; i < p->nops; i++) {
        policy_run(y, i);
        if (i == y->loss)
            hold_kept(y);
    }
    policy_offer(y);
}

/* ---- segments of layers, each recomputed as a whole ----------------------------------- */

enum { STORED = -1 }; /* in no segment */

static int32_t segment_of(const Policy *y, const int32_t *segment, int32_t op)
{
    int32_t layer = y->layer[y->block[op]];
    return layer < 0 ? STORED : segment[layer];
}

/* Keeps only values that leave their segment, and all values outside segments.  segment: per layer, its
 * segment or STORED; rising. */
static void keep_segments(Policy *y, const int32_t *segment)
{
    const Problem *p = y->p;
    for (int32_t v = 0; v < p->nvals; v++) {
        int32_t op = p->producer[v];
        if (op > y->loss)
            continue;
        int32_t in = segment_of(y, segment, op);
        y->keep[v] = in == STORED || segment_of(y, segment, policy_last_forward(y, v)) != in;
    }
}

static void segments_of(Policy *y, int32_t every)
{
    int32_t *segment = RM_NEW(int32_t, y->nlayers + 1);
    for (int32_t b = 0; b < y->nlayers; b++)
        segment[b] = b / every;
    keep_segments(y, segment);
    free(segment);
    replay(y);
}

static bool policy_keep_all(Policy *y, const char *rest)
{
    replay(y);
    return !*rest;
}

static bool policy_recompute_all(Policy *y, const char *rest)
{
    segments_of(y, 1);
    return !*rest;
}

/* A number from 1 on at *text, which is moved behind it; 0: there is none. */
static int32_t read_number(const char **text)
{
    char *end;
    long n = **text >= '0' && **text <= '9' ? strtol(*text, &end, 10) : 0;
    if (n < 1 || n > INT32_MAX)
        return 0;
    *text = end;
    return (int32_t)n;
}

static bool policy_every(Policy *y, const char *rest)
{
    int32_t every = read_number(&rest);
    if (!every || *rest)
        return false;
    segments_of(y, every);
    return true;
}

/* "1-2,4": blocks from 1 on, rising; the others are stored. */
static bool policy_segments(Policy *y, const char *rest)
{
    int32_t *segment = RM_NEW(int32_t, y->nlayers + 1), last = 0;
    bool ok = true, more = true;
    for (int32_t b = 0; b < y->nlayers; b++)
        segment[b] = STORED;
    for (int32_t n = 0; ok && more; n++) {
        int32_t from = read_number(&rest), to = *rest == '-' ? (rest++, read_number(&rest)) : from;
        ok = from > last && to >= from && to <= y->nlayers;
        for (int32_t b = from; ok && b <= to; b++)
            segment[b - 1] = n;
        last = to;
        more = *rest == ',';
        rest += more;
    }
    ok = ok && !*rest;
    if (ok) {
        keep_segments(y, segment);
        replay(y);
    }
    free(segment);
    return ok;
}

/* A share of the blocks, evenly spread, each by itself: the first of every four at 0.25. */
static bool policy_ratio(Policy *y, const char *rest)
{
    char *end;
    double ratio = strtod(rest, &end);
    if (end == rest || *end || !(ratio >= 0 && ratio <= 1))
        return false;
    int32_t *segment = RM_NEW(int32_t, y->nlayers + 1);
    for (int32_t b = 0; b < y->nlayers; b++) {
        bool wrapped = b == 0 ? ratio > 0 : floor(b * ratio) > floor((b - 1) * ratio);
        segment[b] = wrapped ? b : STORED;
    }
    keep_segments(y, segment);
    free(segment);
    replay(y);
    return true;
}

static bool policy_chen_sqrt(Policy *y, const char *rest)
{
    int32_t every = (int32_t)lround(sqrt(y->nlayers));
    segments_of(y, every > 0 ? every : 1);
    return !*rest;
}

/* Chen's algorithm 3: a checkpoint wherever the bytes since the last one exceed `most`. */
static void checkpoint_greedy(Policy *y, int64_t most)
{
    const Problem *p = y->p;
    int32_t *segment = RM_NEW(int32_t, y->nlayers + 1), n = 0;
    int64_t sum = 0;
    for (int32_t i = 0; i <= y->loss; i++) {
        if (y->layer[y->block[i]] >= 0)
            segment[y->layer[y->block[i]]] = n;
        for (int32_t k = p->out.first[i]; k < p->out.first[i + 1]; k++)
            sum += p->bytes[p->out.at[k]];
        if (sum > most && (i == y->loss || y->block[i + 1] != y->block[i])) {
            n++;
            sum = 0;
        }
    }
    keep_segments(y, segment);
    free(segment);
}

/* Tries a geometric series of segment sizes; result_offer keeps the cheapest schedule that fits,
 * or else the one of the least peak. */
static bool policy_chen_greedy(Policy *y, const char *rest)
{
    int64_t total = 0;
    for (int32_t v = 0; v < y->p->nvals; v++)
        total += y->p->producer[v] <= y->loss ? y->p->bytes[v] : 0;
    double most = (double)total;
    do {
        checkpoint_greedy(y, (int64_t)most);
        replay(y);
    } while ((most /= 1.25) > (double)total / 2048);
    return !*rest;
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
        if (y->saved[v] && policy_can_drop(y, v))
            list[n++] = (Rated){(double)p->bytes[v] / ((double)p->cost[p->producer[v]] + 1e-6), v};
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
static bool policy_greedy(Policy *y, const char *rest)
{
    Rated *list = RM_NEW(Rated, y->p->nvals);
    int32_t n = rate_saved(y, list), stride = n / 256 + 1;
    for (int32_t count = 0; count <= n && !y->result->feasible; count += stride) {
        drop_first(y, list, n, count);
        replay(y);
    }
    free(list);
    return !*rest;
}

/* Keeps values that are expensive to make again, read by the backward pass or not: those with fewer bytes per
 * cost than the forward pass on average, such as results of products.  Norms, activations, dropout and
 * attention's scores run again. */
static bool policy_selective(Policy *y, const char *rest)
{
    const Problem *p = y->p;
    double bytes = 0, cost = 0;
    for (int32_t i = 0; i <= y->loss; i++) {
        cost += (double)p->cost[i];
        for (int32_t k = p->out.first[i]; k < p->out.first[i + 1]; k++)
            bytes += (double)p->bytes[p->out.at[k]];
    }
    for (int32_t v = 0; v < p->nvals; v++) {
        int32_t op = p->producer[v];
        y->keep[v] = op > y->loss || (double)p->bytes[v] * cost <= bytes * (double)p->cost[op];
    }
    replay(y);
    return !*rest;
}

enum { KNAPSACK_UNITS = 1000 };

/* Chooses the values to keep so that at most `units` thousandths of the saved bytes remain and
 * the cost of the dropped ones is least. */
static void knapsack(Policy *y, const Rated *list, int32_t n, int32_t units)
{
    const Problem *p = y->p;
    double total = 1, *best = RM_NEW(double, KNAPSACK_UNITS + 1);
    bool *taken = RM_NEW(bool, (size_t)n *(KNAPSACK_UNITS + 1));
    for (int32_t i = 0; i < n; i++)
        total += (double)p->bytes[list[i].value];
    for (int32_t i = 0; i < n; i++) {
        int32_t weight = (int32_t)ceil((double)p->bytes[list[i].value] / total * KNAPSACK_UNITS);
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
static bool policy_knapsack(Policy *y, const char *rest)
{
    Rated *list = RM_NEW(Rated, y->p->nvals);
    int32_t n = rate_saved(y, list);
    for (int32_t units = KNAPSACK_UNITS; units >= 0 && !y->result->feasible; units -= KNAPSACK_UNITS / 20) {
        knapsack(y, list, n, units);
        replay(y);
    }
    free(list);
    return !*rest;
}

/* ---- DTR ----------------------------------------------------------------------------- */

static bool policy_dtr(Policy *y, const char *rest)
{
    int32_t *order = RM_NEW(int32_t, y->p->nops);
    for (int32_t i = 0; i < y->p->nops; i++)
        order[i] = i;
    if (evict_sweep(y->p, order, y->budget, INT64_MAX, EVICT_DTR, &y->out))
        policy_offer(y);
    else
        replay(y); /* out of memory: show what keeping everything needs */
    free(order);
    return !*rest;
}

/* ---- by name ------------------------------------------------------------------------- */

/* The policies by name; `rest` is the text behind the name. run returns false if that is malformed. */
static const struct {
    const char *name;
    bool (*run)(Policy *y, const char *rest);
} policies[] = {
    {"keep-all", policy_keep_all},
    {"recompute-all", policy_recompute_all},
    {"every-", policy_every},
    {"segments=", policy_segments},
    {"ratio=", policy_ratio},
    {"chen-sqrt", policy_chen_sqrt},
    {"chen-greedy", policy_chen_greedy},
    {"selective", policy_selective},
    {"greedy", policy_greedy},
    {"knapsack", policy_knapsack},
    {"revolve", policy_revolve},
    {"dtr", policy_dtr},
};
enum { NPOLICIES = sizeof policies / sizeof *policies };

/* The policy's index in policies; NPOLICIES: there is none. */
static size_t find_policy(const char *name, const char **rest)
{
    for (size_t i = 0; i < NPOLICIES; i++) {
        size_t n = strlen(policies[i].name);
        *rest = name + n;
        bool open = strchr("-=", policies[i].name[n - 1]) != NULL;
        if (open ? strncmp(name, policies[i].name, n) == 0 && **rest : strcmp(name, policies[i].name) == 0)
            return i;
    }
    return NPOLICIES;
}

bool remat_is_policy(const char *name)
{
    const char *rest;
    return find_policy(name, &rest) < NPOLICIES;
}

bool remat_named_policy(const RematInstance *inst, const char *name, int64_t budget,
                        RematResult *result, char err[REMAT_ERR])
{
    Problem p;
    Policy y;
    const char *rest;
    size_t i = find_policy(name, &rest);
    *result = (RematResult){.budget = budget};
    if (i == NPOLICIES)
        return rm_fail(err, "no policy is called '%.100s'", name);
    if (!problem_init(&p, inst, err))
        return false;
    double start = clock_seconds();
    policy_init(&y, &p, budget);
    y.result = result;
    bool ok = policies[i].run(&y, rest);
    result->lower_bound = p.base_cost;
    result->min_budget_bound = bound_least_budget(&p);
    result->seconds = clock_seconds() - start;
    ok = ok ||
         rm_fail(err, "policy '%.100s' does not suit %d layers: every-2, ratio=0.25 or segments=1-2,4 do",
                 name, y.nlayers);
    policy_free(&y);
    problem_free(&p);
    return ok;
}
