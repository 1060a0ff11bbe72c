/* pareto.c -- the frontier of budget against cost.
 *
 * Budgets fall; each solution starts from its richer neighbour's schedule. A sweep back
 * hands cheaper schedules from poorer budgets to richer ones, where they fit as well, so
 * the curve is monotone by construction. */
#include "remat_int.h"

#include <stdlib.h>
#include <string.h>

static void *copy(const void *from, size_t bytes)
{
    void *to = mem_new(bytes, 1);
    if (bytes)
        memcpy(to, from, bytes);
    return to;
}

/* Replaces the result of a larger budget by a smaller budget's schedule. */
static void adopt(RematResult *to, const RematResult *from)
{
    free(to->seq);
    free(to->alt);
    to->n = from->n;
    to->seq = copy(from->seq, sizeof *from->seq * (size_t)from->n);
    to->alt = copy(from->alt, (size_t)from->n);
    to->cost = from->cost;
    to->peak = from->peak;
    to->feasible = from->feasible;
    remat_raise_bound(to, to->lower_bound);
}

static void make_monotone(RematResult *results, int32_t count)
{
    for (int32_t i = count - 1; i > 0; i--) {
        RematResult *rich = &results[i - 1], *poor = &results[i];
        if (poor->feasible && (!rich->feasible || poor->cost < rich->cost))
            adopt(rich, poor);
    }
    for (int32_t i = 1; i < count; i++)
        remat_raise_bound(&results[i], results[i - 1].lower_bound);
}

/* Chooses budgets, evenly spaced from the top down to the least budget found in a part of the time; *least is
 * its schedule. */
static bool choose_budgets(const RematInstance *inst, const RematOptions *options, int64_t *budgets,
                           int32_t count, RematResult *least, char err[REMAT_ERR])
{
    RematOptions o = *options;
    int64_t top = options->budget > 0 ? options->budget : remat_input_peak(inst);
    o.time_limit_s *= 0.2;
    o.max_moves /= 5;
    o.progress = NULL;
    if (!remat_min_budget(inst, &o, least, err))
        return false;
    int64_t bottom = least->peak < top ? least->peak : top;
    for (int32_t i = 0; i < count; i++)
        budgets[i] = count > 1 ? top - (top - bottom) / (count - 1) * i : top;
    if (count > 1)
        budgets[count - 1] = bottom;
    return true;
}

/* least: a schedule of the last budget. */
static bool solve_all(const RematInstance *inst, const RematOptions *options, const int64_t *budgets,
                      int32_t count, const RematResult *least, RematResult *results, char err[REMAT_ERR])
{
    double start = clock_seconds(), limit = options->time_limit_s;
    for (int32_t i = 0; i < count; i++) {
        RematOptions o = *options;
        o.budget = budgets[i];
        if (limit > 0) {
            double left = start + limit - clock_seconds();
            o.time_limit_s = left > 0.001 ? left / (count - i) : 0.001;
        }
        o.max_moves = options->max_moves > count ? options->max_moves / count : options->max_moves;
        bool last = i > 0 && i == count - 1, follows = i > 0 && results[i - 1].feasible;
        const RematResult *from = last ? least : follows ? &results[i - 1] : NULL;
        if (from) {
            o.start = from->seq;
            o.nstart = from->n;
        }
        if (!remat_solve(inst, &o, &results[i], err))
            return false;
    }
    return true;
}

bool remat_pareto(const RematInstance *inst, const RematOptions *options, int32_t count,
                  RematResult *results, char err[REMAT_ERR])
{
    RematOptions o = *options;
    RematResult least = {0};
    int64_t *budgets = RM_NEW(int64_t, count);
    memset(results, 0, sizeof *results * (size_t)count);
    o.time_limit_s *= 0.8;
    o.max_moves -= o.max_moves / 5;
    bool ok = choose_budgets(inst, options, budgets, count, &least, err) &&
              solve_all(inst, &o, budgets, count, &least, results, err);
    if (ok)
        make_monotone(results, count);
    remat_result_free(&least);
    free(budgets);
    return ok;
}
