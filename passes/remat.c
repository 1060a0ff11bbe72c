/* remat.c -- chooses order and recomputation so that the arena fits the budget.
 * The solver (passes/remat/) counts live bytes; the budget limits the packed arena.  If the arena of
 * a schedule is larger than the budget, the solver is asked again for that many bytes less. */
#include "instance.h"
#include "ir/file.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Operators from which on the least peak is wanted to 1 % only; and from which on a new try would not get as
 * far again: it starts from the last schedule; moves of the search per operator. */
enum { MANY = 1000, LARGE = 5000, MOVES_EACH = 300 };
/* Bytes above the live bytes from which on the longest search for a packing takes a second. */
enum { MUCH = 25000, TRIES = 8, REPACKS = 4, LONGER = 4, EXCHANGES = 1000000, LEAST_MOVES = 1000000 };

typedef struct {
    Graph *g;
    PassCtx *cx;
    Instance in;
    ArenaSize size;     /* of the schedule tried last */
    Schedule chosen;    /* the schedule for the graph; no operators: the graph stays as it is */
    double time_share; /* fraction of --time for the current search */
    int64_t bound;    /* lower bound on the cost of schedules within the budget tried last */
    int64_t peak;     /* the least peak that the last search found */
    int64_t staying;  /* bytes of states that could be in the host's memory as well */
    int64_t limit_ns; /* a step that takes no longer is good enough; 0: the cheapest is wanted */
    bool brief; /* spend no time on the smallest arena or the text of a refusal */
    bool rough; /* do not search longest for a packing */
} Remat;

/* Reports the progress of a search. */
static void tell(void *user, const RematPoint *best, int64_t bound, double done)
{
    const Remat *r = user;
    const Progress *p = &r->cx->opt->progress;
    double base = (double)r->cx->info->plan.base_ns;
    double left = done > 0 ? ceil(best->seconds / done - best->seconds) : 0;
    if (base <= 0 || best->cost <= 0)
        progress(p, "search: no schedule within the budget yet, at most %.0f s left", left);
    else
        progress(p, "search: +%.1f %%, bound +%.1f %%, at most %.0f s left",
                 100 * ((double)step_ns(&r->in, best->cost) / base - 1),
                 100 * ((double)step_ns(&r->in, bound) / base - 1), left);
}

static RematOptions options(const Remat *r, int64_t budget)
{
    const StepOptions *o = r->cx->opt;
    RematOptions opt = remat_defaults(budget);
    opt.enough = r->limit_ns ? micro_ns(&r->in, r->limit_ns) : 0;
    opt.time_limit_s = o->time_limit;
    double moves = fmax(LEAST_MOVES, (double)MOVES_EACH * r->in.inst.nops);
    opt.max_moves = o->max_moves ? o->max_moves : o->time_limit > 0 ? 0 : (int64_t)moves;
    opt.seed = 1; /* the plan does not depend on --seed, which is for the model's randomness */
    opt.gap = o->gap;
    opt.tick = tell;
    opt.user = (void *)(uintptr_t)r;
    return opt;
}

static bool tight(ArenaSize size) { return size.arena - size.live <= size.live / 200; }

static bool packed(ArenaSize size, int64_t budget)
{
    return tight(size) && (budget <= 0 || size.arena <= budget);
}

static Schedule schedule_of(const RematResult *s) { return (Schedule){s->seq, s->alt, s->n}; }

/* Packs a schedule: sets r->size. */
static bool try_schedule(Remat *r, const RematResult *s, int64_t budget, PackEffort effort)
{
    Arena tmp = {0};
    Sequence q;
    bool ok = instance_sequence(&r->in, schedule_of(s), &q, &tmp, r->cx->diag) &&
              sequence_place(&q, r->cx->info, budget, effort, &r->size, &tmp, r->cx->diag);
    arena_free(&tmp);
    return ok;
}

static bool remat_failed(Remat *r, const char *err)
{
    return fail(r->cx->diag, "rematerialization: %s", err);
}

static bool find_bound(Remat *r, int64_t budget, RematBound *b)
{
    char err[REMAT_ERR];
    return remat_bound(&r->in.inst, budget, 0, b, err) || remat_failed(r, err);
}

static bool solve(Remat *r, const RematOptions *opt, RematResult *res)
{
    char err[REMAT_ERR];
    if (!remat_solve(&r->in.inst, opt, res, err))
        return remat_failed(r, err);
    r->cx->info->solve_seconds += res->seconds;
    return true;
}

static void copy_schedule(RematResult *to, const RematResult *from)
{
    memcpy(to->seq, from->seq, (size_t)from->n * sizeof *to->seq);
    memcpy(to->alt, from->alt, (size_t)from->n * sizeof *to->alt);
}

/* While the arena is above the live bytes or the budget (0: none), tries the same executions in orders that
 * are easier to pack, other ones for PACK_LONGEST.  The best replaces the schedule. */
static bool repack(Remat *r, RematResult *s, int64_t budget, PackEffort effort)
{
    int64_t least = r->size.arena;
    uint64_t seed = effort == PACK_LONGEST ? REPACKS : 0;
    bool ok = true, current = true; /* the last one tried is the best */
    for (int i = 0; ok && i < REPACKS && !packed(r->size, budget); i++) {
        RematResult other = *s;
        other.seq = NEW(r->cx->tmp, int32_t, s->n);
        other.alt = NEW(r->cx->tmp, uint8_t, s->n);
        copy_schedule(&other, s);
        remat_repack_order(&r->in.inst, other.seq, other.alt, s->n, ++seed, EXCHANGES);
        ok = try_schedule(r, &other, budget, effort);
        current = r->size.arena < least;
        if (ok && current) {
            least = r->size.arena;
            copy_schedule(s, &other);
        } else if (effort == PACK_LONGEST && least - r->size.live > MUCH) {
            break; /* if one order fails, most do */
        }
    }
    return ok && (current || try_schedule(r, s, budget, effort));
}

/* Packs a schedule that is to be used, with more effort than one that is only tried. */
static bool commit(Remat *r, RematResult *s, int64_t budget)
{
    return try_schedule(r, s, budget, PACK_LONG) &&
           (r->cx->opt->compared || r->rough || repack(r, s, budget, PACK_LONGEST));
}

static void choose(Remat *r, const RematResult *s)
{
    RematResult copy = {.seq = NEW(r->cx->tmp, int32_t, s->n + 1), .alt = NEW(r->cx->tmp, uint8_t, s->n + 1),
                        .n = s->n};
    copy_schedule(&copy, s);
    r->chosen = schedule_of(&copy);
}

/* Chooses a schedule that runs every operator once, in an order that packs well. */
static bool repack_whole(Remat *r, int64_t budget)
{
    RematResult all = {.n = r->in.inst.nops, .seq = NEW(r->cx->tmp, int32_t, r->in.inst.nops + 1),
                       .alt = NEW(r->cx->tmp, uint8_t, r->in.inst.nops + 1)};
    for (int32_t i = 0; i < all.n; i++)
        all.seq[i] = i;
    bool ok = try_schedule(r, &all, budget, PACK_LONG) && repack(r, &all, budget, PACK_LONG) &&
              commit(r, &all, budget);
    choose(r, &all);
    return ok;
}

/* Chooses this schedule for the graph, and puts its numbers into the report. */
static void record(Remat *r, const RematResult *res)
{
    StepInfo *info = r->cx->info;
    info->plan.bound_ns = step_ns(&r->in, res->lower_bound);
    info->nrecomputed = (uint32_t)(res->n - r->in.inst.nops);
    info->nfetched = 0;
    for (int32_t k = 0; k < res->n; k++)
        info->nfetched += res->seq[k] >= r->in.inst.nops;
    info->nrecomputed -= info->nfetched;
    info->gap = res->cost > 0 ? (double)(res->cost - res->lower_bound) / (double)res->cost : 0;
    choose(r, res);
}

/* Searches once for a schedule of at most `live` bytes, from `start`, which may be NULL; res->feasible: one
 * was found.  Each try takes half as long as the one before, so that all take twice the first. */
static bool attempt(Remat *r, int64_t live, int nth, const RematResult *start, int64_t budget,
                    RematResult *res)
{
    RematOptions opt = options(r, live);
    opt.max_moves = opt.max_moves >> nth > 0 ? opt.max_moves >> nth : opt.max_moves;
    opt.time_limit_s *= r->time_share / (1 << nth);
    opt.rough_bound = live < budget; /* the bound would not be valid for the budget */
    opt.start = start ? start->seq : NULL;
    opt.nstart = start ? start->n : 0;
    opt.repair = nth > 0 && r->in.inst.nops >= LARGE;
    TRY(solve(r, &opt, res));
    r->bound = live < budget ? r->bound : res->lower_bound;
    r->peak = res->peak;
    res->lower_bound = r->bound;
    return !res->feasible ||
           (try_schedule(r, res, budget, PACK_QUICK) && repack(r, res, budget, PACK_LONG));
}

/* Records the schedule of a named policy for this many live bytes. */
static bool attempt_policy(Remat *r, int64_t live, int64_t budget)
{
    char err[REMAT_ERR];
    RematResult res = {0};
    if (!remat_named_policy(&r->in.inst, r->cx->opt->policy, live, &res, err))
        return remat_failed(r, err);
    bool ok = try_schedule(r, &res, budget, PACK_LONG);
    record(r, &res);
    remat_result_free(&res);
    return ok;
}

/* Finds the schedule of least peak, going on from best if that has one, then those of lower peaks that the
 * search for cost meets, so that no budget it meets is refused. *found: the peak fell. */
static bool find_least(Remat *r, RematResult *best, bool *found)
{
    char err[REMAT_ERR];
    RematResult from = *best;
    RematOptions opt = options(r, 0);
    opt.gap = from.n == 0 && r->in.inst.nops >= MANY ? 0.01 : 0; /* the rest takes long */
    if (from.n > 0) {
        opt.start = from.seq;
        opt.nstart = from.n;
        opt.seed++;
        opt.max_moves *= LONGER;
    }
    bool ok = remat_min_budget(&r->in.inst, &opt, best, err);
    *found = from.n == 0 || best->peak < from.peak;
    remat_result_free(&from);
    if (!ok)
        return remat_failed(r, err);
    r->cx->info->min_budget_bound = best->min_budget_bound;
    r->cx->info->solve_seconds += best->seconds;
    for (int i = 0; i < TRIES && *found; i++) {
        RematOptions lower = options(r, best->peak - best->peak / 100);
        RematResult next = {0};
        lower.gap = INFINITY; /* any schedule that fits is enough */
        lower.max_moves = 1;  /* the search ends with its first schedules */
        TRY(solve(r, &lower, &next));
        next.lower_bound = best->lower_bound; /* that one is valid for more bytes, too */
        remat_result_free(next.feasible ? best : &next);
        if (!next.feasible)
            break;
        *best = next;
    }
    return true;
}

/* Live bytes to ask for next, between *low, which is too few, and *high, which is too many: less by the
 * arena's excess, or half way.  peak: the least peak of a search that found nothing; *low becomes it. */
static int64_t next_ask(int64_t ask, int64_t excess, bool found, int64_t peak, int64_t *low, int64_t *high)
{
    *low = found ? *low : peak;
    *high = found ? ask : *high;
    int64_t next = found ? ask - excess : 0;
    return next > *low ? next : *low + (*high - *low) / 2;
}

/* Tries limits of live bytes between ever closer ends; keeps the cheapest schedule whose arena fits in best.
 * After one that fits with room to spare, more bytes are tried.  start: a schedule to begin with, or NULL. */
static bool try_budgets(Remat *r, int64_t budget, const RematResult *start, RematResult *best)
{
    int64_t ask = budget, low = start ? start->peak : 0, high = budget;
    RematResult tried = {0}; /* the last schedule found, unless it is the best */
    bool ok = true;
    for (int i = 0; ok && i < TRIES && (i == 0 || high - low > budget / 200); i++) {
        RematResult res = {0};
        const RematResult *last = tried.n > 0 ? &tried : best->n > 0 ? best : NULL;
        ok = attempt(r, ask, i, last && r->in.inst.nops >= LARGE ? last : start, budget, &res);
        int64_t peak = res.peak;
        bool found = ok && res.feasible, fits = found && r->size.arena <= budget;
        bool better = fits && (!best->feasible || res.cost < best->cost);
        RematResult *keeps = better ? best : found ? &tried : &res;
        remat_result_free(keeps);
        if (found)
            *keeps = res;
        if (better)
            remat_result_free(&tried);
        bool enough = fits && step_ns(&r->in, best->cost) <= r->limit_ns;
        bool full = r->size.live >= budget - budget / 50;
        if (enough || (fits && (full || tight(r->size))) || (!found && ask == budget))
            break;
        if (fits)
            ask = (low = ask) + (high - ask) / 2;
        else
            ask = next_ask(ask, r->size.arena - budget, found, peak, &low, &high);
    }
    remat_result_free(&tried);
    return ok && (!best->feasible || try_schedule(r, best, budget, PACK_LONG));
}

/* Finds the least arena; least: its schedule, at first one to go on from.  goal: bytes that are small enough;
 * a schedule of more live bytes is not packed; 0: none. */
static bool least_arena(Remat *r, int64_t goal, RematResult *least)
{
    bool found;
    TRY(find_least(r, least, &found));
    if (goal && least->peak > goal) {
        r->size = (ArenaSize){.arena = least->peak, .live = least->peak};
        return true;
    }
    if (!found)
        return true;
    TRY(try_schedule(r, least, goal, PACK_QUICK) && repack(r, least, goal, PACK_LONG) &&
        commit(r, least, goal));
    r->cx->info->plan.min_feasible_bytes = r->size.arena;
    return true;
}

/* Has a step candidates with other bits that are no kernel choices yet? */
static bool has_other_bits(const Remat *r)
{
    const StepCost *cost = r->cx->info->cost;
    for (uint32_t s = 0; cost && !r->in.any_bits && s < r->in.cut.nstep; s++) {
        const StepCost *c = &cost[r->g->order[r->in.cut.step[s].first].i];
        if (c->n > c->same)
            return true;
    }
    return false;
}

/* Text for a message: bytes that --choices budget meets, "" if they are not fewer. A plan for them may take
 * less, as it searches longest for a packing. */
static const char *other_choices(Remat *r)
{
    Remat any = *r;
    StepInfo *info = r->cx->info, given = *info;
    RematResult least = {0};
    if (!has_other_bits(r))
        return "";
    any.rough = true;
    bool ok =
        instance_make(r->g, info, true, r->cx->tmp, &any.in, r->cx->diag) && least_arena(&any, 0, &least);
    remat_result_free(&least);
    *info = given;
    return ok && any.size.arena < given.plan.min_feasible_bytes
               ? arena_printf(r->cx->tmp, ", with --choices budget %lld bytes",
                              (long long)(any.size.arena + step_outside(r->cx->opt)))
               : "";
}

/* Reports that the budget cannot be met.  least: the schedule with the smallest arena. */
static bool infeasible(Remat *r, const RematResult *least, int64_t budget)
{
    Plan p;
    StepInfo *info = r->cx->info;
    int64_t outside = step_outside(r->cx->opt);
    if (r->brief)
        return fail_status(r->cx->diag, EXIT_INFEASIBLE, "the budget cannot be met");
    const char *choices = other_choices(r);
    instance_apply(r->g, &r->in, schedule_of(least), r->cx->tmp);
    TRY(plan_place(r->g, info, 0, PACK_QUICK, &p, r->cx->tmp, r->cx->diag));
    return fail_status(r->cx->diag, EXIT_INFEASIBLE,
                       "budget of %lld bytes cannot be met: the smallest known to be feasible is "
                       "%lld bytes%s%s:\t%s",
                       (long long)(budget + outside), (long long)(info->plan.min_feasible_bytes + outside),
                       choices, budget == r->cx->opt->memory ? " (ckc oom finds what fits)" : "",
                       plan_describe_peak(&p, info, r->cx->tmp));
}

/* Finds the least arena without regard to the budget, so that the size a refusal names is met when it is
 * asked for.  Before a budget near it that may be possible is refused, searches longer, which has not been
 * seen to find 2 % less, and packs for the budget if the live bytes are within it.  If it is met, chooses the
 * cheapest schedule found from there, or else that of the least arena itself. */
static bool try_minimum(Remat *r, int64_t budget)
{
    RematResult least = {0}, best = {0};
    int64_t goal = r->brief ? budget : 0;
    bool ok = least_arena(r, goal, &least);
    bool near = budget >= r->size.arena - r->size.arena / 16;
    if (ok && r->size.arena > budget && near && budget >= least.min_budget_bound && !goal)
        ok = least_arena(r, goal, &least);
    if (ok && r->size.arena > budget && r->size.live <= budget)
        ok = commit(r, &least, budget);
    int64_t arena = r->size.arena;
    if (ok && arena <= budget) {
        r->cx->info->plan.min_feasible_bytes = arena;
        ok = try_budgets(r, budget, &least, &best) &&
             (!best.feasible || commit(r, &best, budget));
    }
    if (ok)
        record(r, best.feasible ? &best : &least);
    ok = ok && (arena <= budget || infeasible(r, &least, budget));
    remat_result_free(&least);
    remat_result_free(&best);
    return ok;
}

/* ns that the operators of a schedule wait for its copies. */
static int64_t waits(Remat *r, const RematResult *s)
{
    int32_t *seq = NEW(r->cx->tmp, int32_t, s->n + 1), *offload = NEW(r->cx->tmp, int32_t, s->n + 1);
    uint8_t *alt = NEW(r->cx->tmp, uint8_t, s->n + 1);
    memcpy(seq, s->seq, (size_t)s->n * sizeof *seq);
    memcpy(alt, s->alt, (size_t)s->n);
    return r->in.copies ? remat_overlap(&r->in.inst, seq, alt, s->n, r->in.room, offload) : 0;
}

/* Has a schedule fetches, and is it so far from the bound that one without fetches could be better? */
static bool unsure(const Remat *r, const RematResult *s)
{
    bool fetches = false;
    for (int32_t k = 0; k < s->n && !fetches; k++)
        fetches = s->seq[k] >= r->in.inst.nops;
    return fetches && s->cost - s->lower_bound > s->cost / 100;
}

/* Tries schedules with fewer copies if operators would wait for copies. */
static bool try_fewer_fetches(Remat *r, int64_t budget, RematResult *best)
{
    int64_t late = best->feasible ? waits(r, best) : 0, least = best->cost + late, bound = r->bound;
    int64_t link = r->in.inst.link;
    int32_t all = r->in.inst.nfetch;
    bool ok = true, again = best->feasible && (late > 0 || unsure(r, best)), other = again;
    r->time_share = 0.5 / FETCH_FEWER;
    for (int i = 1; ok && again && i <= FETCH_FEWER; i++) {
        RematResult fewer = {0};
        i = late > 0 ? i : FETCH_FEWER;
        fetch_fewer(&r->in, i, all, link);
        ok = try_budgets(r, budget, NULL, &fewer);
        late = fewer.feasible ? waits(r, &fewer) : 1;
        bool better = fewer.feasible && fewer.cost + late < least;
        least = better ? fewer.cost + late : least;
        r->bound = fewer.lower_bound = bound; /* the bound with all fetches */
        remat_result_free(better ? best : &fewer);
        if (better)
            *best = fewer;
        again = late > 0 || unsure(r, best);
    }
    r->in.inst.nfetch = all;
    r->in.inst.link = link;
    return ok && (!other || try_schedule(r, best, budget, PACK_LONG));
}

/* May there be a schedule within the budget, and within limit_ns, by the lower bound?  Asked only for one of
 * several plans. */
static bool worth_searching(Remat *r, int64_t budget)
{
    RematBound b;
    const StepOptions *o = r->cx->opt;
    if (!o->compared && !o->limit_ns)
        return true;
    TRY(find_bound(r, budget, &b));
    if (b.infeasible)
        return fail_status(r->cx->diag, EXIT_INFEASIBLE, "no schedule is within the budget");
    return !o->limit_ns || step_ns(&r->in, b.cost) < o->limit_ns ||
           fail_status(r->cx->diag, EXIT_INFEASIBLE, "within the budget it takes longer");
}

static bool search(Remat *r, int64_t budget)
{
    RematResult best = {0};
    TRY(worth_searching(r, budget));
    r->time_share = r->in.inst.nfetch ? 0.5 : 1; /* the rest is for fewer fetches */
    bool ok = try_budgets(r, budget, NULL, &best) && try_fewer_fetches(r, budget, &best);
    r->time_share = 1;
    bool found = best.feasible;
    if (ok && !found && r->brief && r->peak > budget + budget / 20)
        return fail_status(r->cx->diag, EXIT_INFEASIBLE, "no schedule was found near the budget");
    ok = ok && (!found || commit(r, &best, budget));
    if (found)
        record(r, &best);
    remat_result_free(&best);
    if (ok && !found && r->cx->opt->limit_ns > 0)
        return fail_status(r->cx->diag, EXIT_INFEASIBLE, "no schedule was found within the budget");
    return ok && (found || try_minimum(r, budget));
}

/* ---- the smallest arena for a limit on time --------------------------------------------------- */

/* Finds the smallest budget whose lower bound on time is within the limit, to half a percent: no schedule
 * below it can be. */
static bool bound_budget(Remat *r, int64_t limit, int64_t top, int64_t *least)
{
    int64_t low = 0, high = top;
    while (high - low > top / 200) {
        int64_t budget = low + (high - low) / 2;
        RematBound b;
        TRY(find_bound(r, budget, &b));
        *(b.infeasible || b.cost > limit ? &low : &high) = budget;
    }
    *least = low;
    return true;
}

/* Searches for a schedule within the limit on time and this many live bytes, for a share of the time of a
 * search for a budget; spent: the share it took; found: there is one. */
static bool probe(Remat *r, int64_t live, double share, RematResult *res, double *spent, bool *found)
{
    RematOptions opt = options(r, live);
    double moves = (double)opt.max_moves, seconds = opt.time_limit_s;
    opt.max_moves = (int64_t)ceil(moves * share);
    opt.time_limit_s *= share;
    opt.rough_bound = true;
    TRY(solve(r, &opt, res));
    *spent = fmin(share, moves > 0 ? (double)res->moves / moves : res->seconds / seconds);
    *found = res->feasible && step_ns(&r->in, res->cost) <= r->limit_ns;
    return true;
}

/* Finds the fewest live bytes of a schedule within the limit on time, between `low`, which are too few, and
 * `high`, by bisection until they are 1 % apart.  As a short search can miss a schedule, the bisection is
 * repeated with longer ones.  All of them take about as long as the search for a budget. */
static bool search_live(Remat *r, int64_t low, int64_t high, RematResult *best)
{
    double left = 1.25, spent;
    for (double share = 0.25; left > 0 && high - low > high / 100; share *= 2) {
        for (int64_t none = low; left > 0 && high - none > high / 100; left -= spent) {
            int64_t live = none + (high - none) / 2;
            RematResult res = {0};
            bool found;
            TRY(probe(r, live, fmin(share, left), &res, &spent, &found));
            remat_result_free(found ? best : &res);
            if (found)
                *best = res;
            *(found ? &high : &none) = found ? res.peak : live;
        }
    }
    return true;
}

/* Chooses the schedule of the smallest arena within the limit on time, and packs it. */
static bool search_overhead(Remat *r, double overhead)
{
    int64_t whole = r->size.arena, low = 0;
    RematResult best = {0};
    r->limit_ns = (int64_t)((1 + overhead) * (double)r->cx->info->plan.base_ns);
    int64_t limit = micro_ns(&r->in, r->limit_ns);
    bool ok = bound_budget(r, limit, whole, &low) && search_live(r, low, whole, &best);
    ok = ok && (!best.feasible || commit(r, &best, 0));
    bool less = ok && best.feasible && r->size.arena < whole; /* else no schedule is known to take less */
    r->cx->info->plan.budget = less ? r->size.arena : whole;
    if (less)
        record(r, &best);
    remat_result_free(&best);
    return ok;
}

/* ---- the pass ----------------------------------------------------------------------------------- */

/* Asks the policy for fewer bytes while its arena is too large and still shrinks; uses the last answer. */
static bool follow_policy(Remat *r, int64_t budget)
{
    int64_t ask = budget > 0 ? budget : INT64_MAX, least = INT64_MAX;
    for (int i = 0; i < TRIES; i++) {
        TRY(attempt_policy(r, ask, budget));
        if (budget <= 0 || r->size.arena <= budget)
            return true;
        if (r->size.arena >= least)
            break;
        least = r->size.arena;
        ask -= least - budget;
    }
    least = r->size.arena < least ? r->size.arena : least;
    int64_t outside = step_outside(r->cx->opt);
    return r->cx->opt->policy_anyway ||
           fail_status(r->cx->diag, EXIT_INFEASIBLE,
                       "budget of %lld bytes cannot be met by policy %s: it takes %lld bytes",
                       (long long)(budget + outside), r->cx->opt->policy, (long long)(least + outside));
}

static bool write_instance(const Remat *r)
{
    NewFile f;
    TRY(file_create(&f, r->cx->opt->instance, r->cx->diag));
    remat_write(&r->in.inst, f.f);
    return file_commit(&f, r->cx->diag);
}

static bool find_schedule(Remat *r, int64_t budget, bool fits)
{
    const StepOptions *o = r->cx->opt;
    return o->policy        ? follow_policy(r, budget)
           : fits           ? repack_whole(r, budget)
           : o->least_bytes ? search_overhead(r, o->overhead)
                            : search(r, budget);
}

static bool budget_exceeds_reserved(const StepOptions *o, Diag *d)
{
    const DeviceInfo *device = step_device(o);
    return o->budget == 0 || step_budget(o) > 0 ||
           fail_status(d, EXIT_INFEASIBLE,
                       "budget of %lld bytes cannot be met: driver, context and libraries of %s%s take %lld",
                       (long long)o->budget, device->title, o->beside ? ", and validation," : "",
                       (long long)step_outside(o));
}

/* ---- states in the host's memory ------------------------------------------------------------------ */

/* Lowers the bound to hold for plans with any part of the states moved, as if these took no bytes. */
static bool relax_bound(Remat *r, int64_t budget)
{
    RematBound b;
    Plan *p = &r->cx->info->plan;
    if (r->staying == 0)
        return true;
    TRY(find_bound(r, budget + r->staying + r->in.room, &b));
    p->bound_ns = step_ns(&r->in, b.cost) < p->bound_ns ? step_ns(&r->in, b.cost) : p->bound_ns;
    return true;
}

/* Chooses and applies a schedule with `moved` bytes of states in the host's memory. */
static bool schedule_with(Remat *r, const Plan *whole, int64_t budget, bool fits, int64_t moved)
{
    PassCtx *cx = r->cx;
    const StepOptions *o = cx->opt;
    Staging s = {0};
    if (moved > 0)
        s = graph_offload_states(r->g, cx->info, moved, cx->tmp);
    TRY(instance_make(r->g, cx->info, o->any_bits, cx->tmp, &r->in, cx->diag));
    r->in.room = s.room;
    if (r->in.inst.host > 0) /* 0 would mean no limit */
        r->in.inst.host = r->in.inst.host > s.bytes ? r->in.inst.host - s.bytes : 1;
    r->in.inst.persistent += s.room;
    r->in.inst.whole = whole->arena_bytes;
    if (o->instance)
        TRY(write_instance(r));
    if (fits && tight(r->size) && !o->policy)
        return true;
    TRY(find_schedule(r, budget, fits) && relax_bound(r, budget));
    if (r->chosen.n)
        instance_apply(r->g, &r->in, r->chosen, cx->tmp);
    cx->changed = r->chosen.n > 0;
    return true;
}

/* A plan with some of the states in the host's memory. */
typedef struct {
    Graph g;
    StepInfo info;
    Diag diag;
    int64_t ns; /* predicted time with all waits; INT64_MAX: there is no plan */
} Moved;

static bool try_moved(const Remat *given, const Plan *whole, int64_t budget, int64_t moved, int64_t all,
                      Moved *m)
{
    PassCtx cx = *given->cx;
    Remat r = *given;
    Plan p;
    *m = (Moved){.g = graph_copy(given->g, given->g->arena), .info = *cx.info, .ns = INT64_MAX};
    cx.info = &m->info;
    cx.diag = m->g.diag = &m->diag;
    r.g = &m->g;
    r.cx = &cx;
    r.staying = all - moved;
    r.brief |= moved < all; /* moving more may give a schedule */
    if (!schedule_with(&r, whole, budget, false, moved) ||
        !plan_place(&m->g, &m->info, 0, PACK_QUICK, &p, cx.tmp, cx.diag))
        return m->diag.status == EXIT_INFEASIBLE;
    m->ns = p.predicted_ns;
    return true;
}

static bool schedule_moving(const Remat *given, const Plan *whole, int64_t budget)
{
    StatesAway away;
    Moved best = {.ns = INT64_MAX}, tried;
    bool ok = true;
    TRY(choose_states_away(given->g, given->cx, budget, &away));
    for (int64_t moved = away.fits ? 0 : away.moved; ok && moved >= 0;) {
        ok = try_moved(given, whole, budget, moved, away.all, &tried);
        bool better = !ok || best.ns == INT64_MAX || tried.ns < best.ns;
        best = better ? tried : best;
        moved = next_states_away(&away, moved, tried.ns, given->cx->opt->compared);
    }
    *given->cx->diag = best.diag;
    *given->cx->info = best.info;
    *given->g = best.g;
    given->g->diag = given->cx->diag;
    given->cx->changed = true;
    return ok && best.ns < INT64_MAX;
}

bool pass_remat(Graph *g, PassCtx *cx)
{
    StepInfo *info = cx->info;
    const StepOptions *o = cx->opt;
    Remat r = {.g = g, .cx = cx, .time_share = 1, .brief = o->compared};
    Plan kept, whole;
    if (!o->least_bytes) /* that search limits the time, and does not count waits for copies */
        info->link = step_link(o);
    TRY(plan_place(g, info, 0, PACK_LONG, &kept, cx->tmp, cx->diag) &&
        plan_place_whole(g, info, &kept, &whole, cx));
    r.size = (ArenaSize){.arena = kept.arena_bytes, .live = kept.live_bytes};
    info->pack_share = o->max_moves ? fmin(1, fmax(0.1, (double)o->max_moves / LEAST_MOVES)) : 1;
    info->plan.keep_all_bytes = whole.arena_bytes;
    memcpy(info->plan.keep_all_mem, whole.mem, sizeof whole.mem);
    info->plan.base_ns = kept.predicted_ns;
    info->plan.bound_ns = kept.predicted_ns;
    int64_t budget =
        o->budget ? budget_within_memory(cx, step_budget(o)) : memory_as_budget(cx, kept.arena_bytes);
    TRY(budget_exceeds_reserved(o, cx->diag));
    if (o->budget_fraction > 0)
        budget = (int64_t)fmax(1, o->budget_fraction * (double)whole.arena_bytes); /* 0: none */
    info->plan.budget = budget;
    bool fits = !o->least_bytes && (budget <= 0 || r.size.arena <= budget);
    if (fits && tight(r.size) && !o->policy && !o->instance)
        return true;
    if (!fits && o->limit_ns > 0 && info->plan.base_ns >= o->limit_ns)
        return fail_status(cx->diag, EXIT_INFEASIBLE, "without recomputation it takes longer already");
    if (fits || o->policy || o->least_bytes || o->limit_ns > 0 || info->link.bandwidth <= 0)
        return schedule_with(&r, &whole, budget, fits, 0);
    return schedule_moving(&r, &whole, budget);
}
