/* remat.c -- order and recomputation until the arena fits the budget.
 *
 * The solver (passes/remat/) counts live bytes; the budget is a promise about the arena.  If the
 * packed arena of its schedule is larger than the budget, it is asked again for that much less. */
#include "instance.h"
#include <string.h>

enum { TRIES = 8, DEFAULT_MOVES = 1000000 };

typedef struct {
    Graph *g;
    PassCtx *cx;
    Instance in;
    Snapshot snap;
    Plan plan; /* of the schedule tried last */
} Remat;

static RematOptions options(const Remat *r, int64_t budget)
{
    const StepOptions *o = r->cx->opt;
    RematOptions opt = remat_defaults(budget);
    opt.time_limit_s = o->time_limit;
    opt.max_moves = o->max_moves ? o->max_moves : o->time_limit > 0 ? 0 : DEFAULT_MOVES;
    opt.seed = 1; /* --seed is for the model's randomness: the plan does not depend on it */
    opt.gap = o->gap;
    return opt;
}

/* Arena bytes of a schedule; the graph keeps it. */
static bool try_schedule(Remat *r, const RematResult *s, int64_t budget, bool last)
{
    Arena tmp = {0};
    graph_restore(r->g, &r->snap);
    instance_apply(r->g, &r->in, s->seq, s->n, &tmp);
    bool ok = plan_place(r->g, r->cx->info, budget, last, &r->plan, &tmp, r->cx->diag);
    arena_free(&tmp);
    return ok;
}

static bool remat_failed(Remat *r, const char *err)
{
    return fail(r->cx->diag, "rematerialization: %s", err);
}

/* Nanoseconds of a step whose micro-batches take this many each. */
static int64_t step_ns(const Remat *r, int64_t micro)
{
    int64_t times = r->cx->info->accumulate > 1 ? r->cx->info->accumulate : 1;
    return micro * times + r->in.tail_ns;
}

static void record(Remat *r, const RematResult *res)
{
    StepInfo *info = r->cx->info;
    info->plan.bound_ns = step_ns(r, res->lower_bound);
    info->nrecomputed = (uint32_t)(res->n - r->in.inst.nops);
    info->gap = res->cost > 0 ? (double)(res->cost - res->lower_bound) / (double)res->cost : 0;
}

/* Try one budget of live bytes; res->feasible: a schedule was found, and the graph keeps it. */
static bool attempt(Remat *r, int64_t live, int64_t budget, RematResult *res)
{
    char err[REMAT_ERR];
    RematOptions opt = options(r, live);
    if (!remat_solve(&r->in.inst, &opt, res, err))
        return remat_failed(r, err);
    r->cx->info->solve_seconds += res->seconds;
    return !res->feasible || try_schedule(r, res, budget, false);
}

/* The least arena that is known to work: what the solver's own search for the minimum finds, then
 * lower budgets as long as it meets them.  The schedule stays in the graph. */
static bool try_minimum(Remat *r, int64_t budget)
{
    char err[REMAT_ERR];
    RematOptions opt = options(r, budget);
    RematResult res = {0}, best;
    if (!remat_min_budget(&r->in.inst, &opt, &res, err))
        return remat_failed(r, err);
    r->cx->info->min_budget_bound = res.min_budget_bound;
    r->cx->info->solve_seconds += res.seconds;
    int64_t low = res.min_budget_bound, high = res.peak;
    best = res;
    for (int i = 0; i < TRIES && high - low > high / 100; i++) {
        int64_t mid = low + (high - low) / 2;
        RematOptions lower = options(r, mid);
        RematResult next = {0};
        if (!remat_solve(&r->in.inst, &lower, &next, err)) {
            remat_result_free(&best);
            return remat_failed(r, err);
        }
        r->cx->info->solve_seconds += next.seconds;
        if (next.feasible && next.peak < high) {
            remat_result_free(&best);
            best = next;
            high = next.peak;
        } else {
            remat_result_free(&next);
            low = mid;
        }
    }
    bool ok = try_schedule(r, &best, budget, true);
    record(r, &best);
    r->cx->info->plan.min_feasible_bytes = r->plan.arena_bytes;
    remat_result_free(&best);
    return ok;
}

static bool infeasible(Remat *r, int64_t budget)
{
    return fail_status(r->cx->diag, EXIT_INFEASIBLE,
                       "budget of %lld bytes cannot be met: the smallest known to be feasible is "
                       "%lld bytes: %s",
                       (long long)budget, (long long)r->cx->info->plan.min_feasible_bytes,
                       plan_describe_peak(&r->plan, r->cx->info, r->cx->tmp));
}

/* Live bytes to ask for next, after `ask` of them: less by what the arena was too large, or half way
 * back to what was too large if that is known to be too little. */
static int64_t next_ask(int64_t ask, int64_t excess, bool fits, int64_t *low, int64_t *high)
{
    *low = fits ? *low : ask;
    *high = fits ? ask : *high;
    int64_t next = fits ? ask - excess : 0;
    return next > *low ? next : *low + (*high - *low) / 2;
}

/* Schedules of ever closer live bytes; the cheapest whose arena fits is kept in best.  One that
 * fits with room to spare is followed by one that may use the room. */
static bool try_budgets(Remat *r, int64_t budget, RematResult *best)
{
    int64_t ask = budget, low = 0, high = budget;
    bool current = false; /* the graph has the best */
    for (int i = 0; i < TRIES && ask > low; i++) {
        RematResult res = {0};
        bool ok = attempt(r, ask, budget, &res);
        bool found = res.feasible, fits = ok && found && r->plan.arena_bytes <= budget;
        bool tight = fits && r->plan.arena_bytes - r->plan.live_bytes <= r->plan.live_bytes / 200;
        bool better = fits && (!best->feasible || res.cost < best->cost);
        remat_result_free(better ? best : &res);
        if (better)
            *best = res;
        current = found ? better : current;
        TRY(ok);
        if (tight || (fits && r->plan.live_bytes >= budget - budget / 50) ||
            (!found && ask == budget))
            break;
        if (fits)
            ask = (low = ask) + (high - ask) / 2;
        else
            ask = next_ask(ask, r->plan.arena_bytes - budget, found, &low, &high);
    }
    return current || !best->feasible || try_schedule(r, best, budget, false);
}

static bool search(Remat *r, int64_t budget)
{
    RematResult best = {0};
    bool ok = try_budgets(r, budget, &best), found = best.feasible;
    if (found)
        record(r, &best);
    remat_result_free(&best);
    TRY(ok);
    if (found)
        return true;
    TRY(try_minimum(r, budget));
    return r->plan.arena_bytes <= budget || infeasible(r, budget);
}

/* The step that keeps everything has its gradients whole. */
static bool place_whole(Graph *g, const StepInfo *info, Plan *p, PassCtx *cx)
{
    Snapshot tiled = graph_snapshot(g, cx->tmp);
    StepInfo whole = *info;
    if (info->cost) {
        whole.cost = NEW(cx->tmp, StepCost, g->nnodes);
        memcpy(whole.cost, info->cost, g->nnodes * sizeof *whole.cost);
    }
    graph_untile(g, whole.cost);
    bool ok = plan_place(g, &whole, 0, true, p, cx->tmp, cx->diag);
    graph_restore(g, &tiled);
    return ok;
}

bool pass_remat(Graph *g, PassCtx *cx)
{
    StepInfo *info = cx->info;
    const StepOptions *o = cx->opt;
    Remat r = {.g = g, .cx = cx};
    Plan whole;
    TRY(place_whole(g, info, &whole, cx) &&
        plan_place(g, info, 0, true, &r.plan, cx->tmp, cx->diag));
    info->plan.keep_all_bytes = whole.arena_bytes;
    memcpy(info->plan.keep_all_mem, whole.mem, sizeof whole.mem);
    info->plan.base_ns = r.plan.predicted_ns;
    info->plan.bound_ns = r.plan.predicted_ns;
    int64_t budget = o->budget;
    if (o->budget_fraction > 0)
        budget = (int64_t)(o->budget_fraction * (double)whole.arena_bytes);
    info->plan.budget = budget;
    if (budget <= 0 || r.plan.arena_bytes <= budget)
        return true;
    TRY(instance_make(g, info, cx->tmp, &r.in, cx->diag));
    r.snap = graph_snapshot(g, cx->tmp);
    cx->changed = true;
    return search(&r, budget);
}
