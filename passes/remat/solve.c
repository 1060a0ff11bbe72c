/* solve.c -- the search as a whole: trivial answers, bound, rounds of annealing, threads,
 * limits.
 *
 * Start: three orders, each as it is, and with evictions at the budget; where that fails,
 * with evictions at the least limit they meet, unless that is expensive. While nothing fits the
 * budget, short rounds lower the limit towards it step by step, then longer ones. From then on
 * a round is one annealing run of a fixed number of moves from the best schedule; rounds grow
 * slowly, so that restarts are frequent at first and thorough later. With several threads each
 * runs the round with its own random numbers, and the best result (the lowest thread among
 * equals) starts the next.  Nothing but the moment of stopping depends on time. */
#include "ir/mem.h"
#include "solve.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- results ------------------------------------------------------------------------- */

void remat_raise_bound(RematResult *r, int64_t lower_bound)
{
    if (r->lower_bound < lower_bound)
        r->lower_bound = lower_bound;
    r->proved_optimal =
        r->feasible && (double)(r->cost - r->lower_bound) <= REMAT_OPTIMAL * (double)r->lower_bound;
}

void remat_result_free(RematResult *r)
{
    MEM_FREE(r->seq, r->alt, r->history);
    *r = (RematResult){0};
}

RematOptions remat_defaults(int64_t budget)
{
    return (RematOptions){.budget = budget, .time_limit_s = 10, .seed = 1, .threads = 1};
}

bool result_offer(RematResult *r, const Problem *p, const Seq *s, int64_t budget)
{
    uint8_t *alt = RM_NEW(uint8_t, s->n);
    int64_t cost, peak;
    if (!seq_account(p, s, budget, alt, &cost, &peak)) {
        free(alt);
        return false;
    }
    bool fits = peak <= budget;
    bool cheaper = cost < r->cost || (cost == r->cost && s->n < r->n);
    bool better = fits != r->feasible ? fits : fits ? cheaper : peak < r->peak;
    better |= r->n == 0;
    if (r->min_budget == 0 || peak < r->min_budget)
        r->min_budget = peak;
    if (better) {
        r->seq = mem_grow(r->seq, (size_t)s->n, sizeof *r->seq);
        r->alt = mem_grow(r->alt, (size_t)s->n, 1);
        r->n = s->n;
        if (s->n) {
            memcpy(r->seq, s->op, sizeof *s->op * (size_t)s->n);
            memcpy(r->alt, alt, (size_t)s->n);
        }
        r->cost = cost;
        r->peak = peak;
        r->feasible = fits;
    }
    free(alt);
    return better;
}

/* ---- the solver's state -------------------------------------------------------------- */

typedef struct {
    const Problem *p;
    const RematOptions *options;
    RematResult *r;
    double start, deadline; /* monotonic seconds; deadline 0 = none */
    Search *worker;
    int nworkers;
    Seq best;      /* the schedule in the result */
    Seq input;     /* the input order */
    int64_t budget; /* bytes, of the current search: the options' budget, except in improve_at() */
    int64_t spent;  /* moves of finished rounds */
} Solver;

static bool out_of_time(const Solver *s)
{
    const RematOptions *o = s->options;
    return (s->deadline > 0 && clock_seconds() >= s->deadline) ||
           (o->max_moves > 0 && s->spent >= o->max_moves);
}

static void tick(const Solver *s)
{
    const RematOptions *o = s->options;
    double t = clock_seconds();
    double done = o->max_moves > 0 ? (double)s->spent / (double)o->max_moves
                                   : (t - s->start) / (s->deadline - s->start);
    RematPoint best = {t - s->start, s->spent, s->r->feasible ? s->r->cost : 0, s->r->peak};
    if (o->tick)
        o->tick(o->user, &best, s->r->lower_bound, done < 1 ? done : 1);
}

static int64_t moves_left(const Solver *s)
{
    const RematOptions *o = s->options;
    return o->max_moves > 0 ? o->max_moves - s->spent : INT64_MAX;
}

/* Costs up to this are close enough to the bound; REMAT_OPTIMAL is what the linear
 * programs' arithmetic can show. */
static int64_t target_cost(const Solver *s)
{
    double gap = s->options->gap > REMAT_OPTIMAL ? s->options->gap : REMAT_OPTIMAL;
    double extra = (double)s->r->lower_bound * gap;
    int64_t target = extra < 2e18 ? s->r->lower_bound + (int64_t)extra : INT64_MAX;
    return target > s->options->enough ? target : s->options->enough;
}

static bool good_enough(const Solver *s) { return s->r->feasible && s->r->cost <= target_cost(s); }

static void record(Solver *s, int64_t moves)
{
    RematResult *r = s->r;
    r->history = rm_append(r->history, &r->nhistory, sizeof *r->history);
    r->history[r->nhistory - 1] = (RematPoint){clock_seconds() - s->start, moves, r->cost, r->peak};
    if (s->options->progress)
        s->options->progress(s->options->user, &r->history[r->nhistory - 1]);
}

static bool offer(Solver *s, const Seq *seq, int64_t moves)
{
    if (!result_offer(s->r, s->p, seq, s->budget))
        return false;
    seq_copy(&s->best, seq);
    if (s->r->feasible && s->budget == s->options->budget)
        record(s, moves);
    return true;
}

/* Called by worker 0 while a round runs, so that the history is fine-grained. */
static void on_improvement(void *user, Search *search)
{
    Solver *s = user;
    offer(s, &search->best, s->spent + search->moves);
}

/* ---- rounds -------------------------------------------------------------------------- */

typedef struct {
    Solver *s;
    Search *search;
    int64_t moves, target;
    Cooling cooling;
    bool restart; /* from the input order instead of the best schedule */
    int64_t patience; /* when not 0: the budget is to be met, whatever the cost */
    bool no_memory;   /* the worker ended as it got no memory */
} Round;

static void run_round(void *arg)
{
    Round *r = arg;
    if (r->patience > 0)
        search_reach(r->search, r->moves, r->patience, r->cooling, r->s->deadline);
    else
        search_run(r->search, r->moves, r->cooling, r->target, r->s->deadline);
}

/* Runs a worker's round, on any thread; lack of memory is reported when all threads have ended. */
static void *run_worker(void *arg)
{
    Round *r = arg;
    r->no_memory = !mem_try(run_round, r);
    return NULL;
}

/* Loads a schedule for a search within a limit on bytes; lean: for one that does not choose kernels. */
static void load(Search *w, int64_t limit, bool lean, const Seq *from, const uint8_t *kernels)
{
    state_set_budget(&w->state, limit);
    w->state.lean = lean;
    w->best_cost = INT64_MAX;
    search_load(w, from, kernels);
}

/* Runs one round on all workers under the same limit.  Allocations that may not return are made before the
 * first thread starts. */
static void run_workers(Solver *s, int64_t limit, Round round)
{
    pthread_t thread[REMAT_MAX_THREADS];
    Round each[REMAT_MAX_THREADS];
    bool started[REMAT_MAX_THREADS] = {false};
    for (int i = 0; i < s->nworkers; i++) {
        Search *w = &s->worker[i];
        w->moves = 0;
        if (round.restart)
            load(w, limit, round.patience > 0, &s->input, NULL);
        else
            load(w, limit, false, &s->best, s->r->alt);
        each[i] = round;
        each[i].s = s;
        each[i].search = w;
    }
    for (int i = 1; i < s->nworkers; i++)
        started[i] = pthread_create(&thread[i], NULL, run_worker, &each[i]) == 0;
    for (int i = 0; i < s->nworkers; i++)
        if (!started[i])
            run_worker(&each[i]);
    for (int i = 1; i < s->nworkers; i++)
        if (started[i])
            pthread_join(thread[i], NULL);
    for (int i = 0; i < s->nworkers; i++) {
        if (each[i].no_memory)
            out_of_memory(0);
        s->spent += s->worker[i].moves;
    }
}

typedef struct {
    Cooling cooling;
    int64_t part; /* the round has 1 / part of the full length */
    bool restart;
    int rest, wait;
} Kind;

/* Cool enough to stay near the schedule it starts from. */
static const Cooling descent = {0.02, 0.002, 1, false};

static bool improve_by(Solver *s, Kind *k, int64_t moves)
{
    int64_t before = s->r->cost;
    int64_t left = moves_left(s);
    Round r = {
        .moves = moves / k->part, .target = target_cost(s), .cooling = k->cooling, .restart = k->restart};
    r.moves = r.moves < left ? r.moves : left;
    tick(s);
    s->worker[0].improved = on_improvement;
    s->worker[0].user = s;
    run_workers(s, s->budget, r);
    s->worker[0].improved = NULL;
    bool fits = false;
    for (int i = 0; i < s->nworkers; i++)
        if (s->worker[i].best_cost < INT64_MAX) {
            offer(s, &s->worker[i].best, s->spent);
            fits = true;
        }
    k->restart &= fits;
    return s->r->cost < before;
}

/* Improves the best schedule for a budget of its own. */
static void improve_at(Solver *s, int64_t budget, Cooling cooling, int64_t moves)
{
    s->budget = budget;
    s->r->feasible = s->r->peak <= budget;
    improve_by(s, &(Kind){.cooling = cooling, .part = 1}, moves);
    s->budget = s->options->budget;
    s->r->feasible = s->r->peak <= s->budget;
}

/* Makes the best schedule cheap and brings it nearer to the budget in small steps, each made cheap before
 * the next: a search that is far from its budget pays for evictions that later ones make needless.  All steps
 * together have half of the moves; one that fails is followed by shorter ones of more moves. */
static void squeeze(Solver *s)
{
    enum { STEP = 128, MOVES = 20, FAILURES = 3 }; /* 1 / STEP of the bytes; moves per operator */
    RematResult *r = s->r;
    int64_t most = MOVES * (int64_t)s->p->nops + 1000, least = 0;
    int64_t whole = 1 + (r->peak - s->p->inst->persistent) / STEP, step = whole;
    if (!r->feasible && r->n > s->p->nops && !out_of_time(s))
        improve_at(s, r->peak, descent, most);
    int64_t rest = moves_left(s) / 2;
    for (int failures = 0; failures < FAILURES && !r->feasible && !out_of_time(s) && moves_left(s) > rest;) {
        int64_t peak = r->peak, moves = (moves_left(s) - rest) / (1 + (peak - s->budget) / step);
        moves = moves < least ? least : moves;
        moves = moves < most ? moves : most;
        improve_at(s, peak - step > s->budget ? peak - step : s->budget, descent, moves);
        failures = r->peak < peak ? 0 : failures + 1;
        step = failures ? step / 2 + 1 : 2 * step < whole ? 2 * step : whole;
        least = failures ? 2 * moves : moves / 2;
    }
}

/* Bisects the least limit that eviction sweeps over this order meet at no more than this cost; offers their
 * schedules. */
static void sweep_down(Solver *s, const int32_t *order, int64_t most_cost)
{
    int64_t low = s->options->budget, high = s->r->peak;
    Seq q = {0};
    while (!s->r->feasible && high - low > 1 + high / 512 && !out_of_time(s)) {
        int64_t middle = low + (high - low) / 2;
        bool fits = evict_sweep(s->p, order, middle, most_cost, EVICT_NEXT_USE, &q);
        s->spent += s->p->nops;
        if (fits) {
            offer(s, &q, s->spent);
            high = middle;
        } else {
            low = middle;
        }
    }
    seq_free(&q);
}

/* Offers the order as it is, and with evictions at the budget if that costs no more than most_cost. */
static void offer_order(Solver *s, const int32_t *order, int64_t most_cost)
{
    Seq q = {0};
    for (int32_t i = 0; i < s->p->nops; i++)
        seq_push(&q, order[i]);
    offer(s, &q, 0);
    if (evict_sweep(s->p, order, s->budget, most_cost, EVICT_NEXT_USE, &q))
        offer(s, &q, 0);
    seq_free(&q);
}

/* Offers schedules by eviction sweeps over the input order and two others, each of at most this cost. */
static void sweep_orders(Solver *s, int64_t most_cost)
{
    int32_t n = s->p->nops, *order = RM_NEW(int32_t, n);
    void (*const make[])(const Problem *, int32_t *) = {order_greedy, order_depth_first};
    offer_order(s, s->input.op, most_cost);
    for (int k = 0; k < 2 && !s->r->feasible; k++) {
        make[k](s->p, order);
        offer_order(s, order, most_cost);
        sweep_down(s, order, most_cost);
    }
    sweep_down(s, s->input.op, most_cost);
    free(order);
}

/* Is the budget below what every schedule needs? */
static bool prove_infeasible(Solver *s)
{
    RematResult *r = s->r;
    int64_t bound = bound_peak(s->p, r->peak);
    r->min_budget_bound = bound > r->min_budget_bound ? bound : r->min_budget_bound;
    r->proved_infeasible |= s->options->budget < r->min_budget_bound;
    return r->proved_infeasible;
}

/* Looks for a cheaper schedule of the same peak: needless recomputations are in the way of a lower peak. */
static void thin_out(Solver *s, int64_t moves)
{
    improve_at(s, s->r->peak, (Cooling){0.2, 0.01, 1, false}, moves);
}

/* Runs rounds until a schedule fits. In each the limit follows the peak down: from the best schedule, thinned
 * out, as long as the peak falls, otherwise from a restart; when a round gets little nearer for the first
 * time, or nothing else is left, sweeps at any cost follow. Restarts do not choose kernels, as a kernel of
 * little workspace may cost more than any temperature allows. Round times have a heavy tail, so rounds are
 * short and grow slowly; the first, shorter still, tests whether the sweeps' schedule is a good start. Rounds
 * depend on the budget only in when those sweeps come, so that the search for the least budget seldom misses
 * one that a search for cost meets. */
static void reach_budget(Solver *s)
{
    enum { FIRST = 8, THIN = 12, LITTLE = 8 }; /* divisors: of the patience (FIRST, THIN), of the way left */
    static const Cooling from_best = {.hot = 1, .weight = 8};
    static const Cooling restarts[] = {
        {.hot = 1, .weight = 16}, {.hot = 1.7, .weight = 8}, {.hot = 16, .weight = 1}};
    int64_t patience = 400 * (int64_t)s->p->nops + 1000;
    bool lower = true; /* did the last round lower the peak? */
    bool swept = false;
    for (int32_t k = 0, nth = 0; !s->r->feasible && !out_of_time(s); k++) {
        int64_t peak = s->r->peak;
        if (k == 1 && !s->options->rough_bound && prove_infeasible(s))
            return;
        if (k > 0 && lower)
            thin_out(s, patience / THIN);
        if (out_of_time(s))
            break;
        Round r = {.moves = moves_left(s),
                   .cooling = lower ? from_best : restarts[nth++ % 3],
                   .patience = k > 0 ? patience : patience / FIRST,
                   .restart = !lower};
        tick(s);
        run_workers(s, s->budget, r);
        for (int i = 0; i < s->nworkers; i++)
            offer(s, &s->worker[i].best, s->spent);
        bool far = peak - s->r->peak < (peak - s->budget) / LITTLE;
        if (!swept && far)
            sweep_orders(s, INT64_MAX);
        swept |= far;
        lower = k == 0 || s->r->peak < peak;
        patience += patience / 8;
    }
    if (!swept && !s->r->feasible)
        sweep_orders(s, INT64_MAX);
}

/* Work on the bound (pivots times rows) in the time of one move (0.6 us), and the work that lets small
 * instances finish. */
static const double MOVE_WORK = 40, LEAST_WORK = 6e6;

/* Spends a part of the time left on a better bound, more if that may finish the search.  Without a time limit
 * it runs last, so that it cannot decide when the search stops, and takes about as long as the search. */
static void raise_bound(Solver *s)
{
    const RematOptions *o = s->options;
    RematResult *r = s->r;
    bool near = (double)(r->cost - r->lower_bound) < 0.02 * (double)r->lower_bound;
    double now = clock_seconds(), deadline = INFINITY, work = INFINITY;
    if (s->deadline > 0)
        deadline = now + (s->deadline - now) / (near ? 4 : 12);
    else
        work = fmax(MOVE_WORK * (double)s->spent, LEAST_WORK);
    RematBound bound = {.cost = r->lower_bound, .node = -1};
    if (!o->rough_bound)
        bound_stages(s->p, o->budget, deadline, work, r->cost, &bound);
    r->lower_bound = bound.cost < r->cost ? bound.cost : r->cost;
}

/* The kinds of rounds: cool enough to stay in the basin of the best schedule, hot enough
 * to leave it, or a restart from the input order, as the best schedule may lie in a poor
 * basin; a light weight explores outside the budget; chains gain by recomputation at random,
 * random graphs by weighing it. A restart that meets no schedule at all starts from the
 * best one from then on. A kind that improved nothing rests for a cycle, then for two, then
 * for four, but for the one that finds other basins. */
enum { KINDS = 7, OTHER_BASINS = 1 };

/* One round of each kind that does not rest. */
static void run_cycle(Solver *s, Kind *kinds, int64_t moves)
{
    for (int i = 0; i < KINDS && !out_of_time(s) && !good_enough(s); i++) {
        Kind *k = &kinds[i];
        if (k->rest > 0) {
            k->rest--;
            continue;
        }
        bool better = improve_by(s, k, moves);
        bool rests = !better && i != OTHER_BASINS;
        k->wait = !rests ? 0 : k->wait == 0 ? 1 : k->wait < 4 ? 2 * k->wait : k->wait;
        k->rest = k->wait;
    }
}

/* Removes needless executions of little cost: no temperature of the search is low enough for them. */
static void polish(Solver *s)
{
    Search *w = &s->worker[0];
    load(w, s->budget, false, &s->best, s->r->alt);
    if (w->state.levels.excess > 0) /* in quanta */
        return;
    search_polish(w, s->deadline);
    offer(s, &w->best, s->spent);
}

static void improve(Solver *s)
{
    Kind quick = {.cooling = descent, .part = 2};
    Kind kinds[KINDS] = {{.cooling = {0.2, 0.01, 1, false}, .part = 1},
                         {.cooling = {4, 0.02, 8, false}, .part = 1, .restart = true},
                         {.cooling = {1, 0.02, 1, true}, .part = 1},
                         {.cooling = {1, 0.02, 1, false}, .part = 1},
                         {.cooling = {0.2, 0.01, 1, true}, .part = 1},
                         {.cooling = {1, 0.02, 0.1, true}, .part = 1, .restart = true},
                         {.cooling = {8, 0.02, 0.125, true}, .part = 4, .restart = true}};
    int64_t moves = 200 * (int64_t)s->p->nops + 5000;
    if (!out_of_time(s) && !good_enough(s))
        improve_by(s, &quick, moves); /* quick gains for short time limits */
    for (int cycle = 0; !out_of_time(s) && !good_enough(s); cycle++) {
        int64_t spent = s->spent;
        run_cycle(s, kinds, moves);
        if (cycle == 1 && s->deadline > 0 && !good_enough(s))
            raise_bound(s);
        if (s->spent > spent && moves < 20000 * (int64_t)s->p->nops)
            moves += moves / 2;
    }
    if (s->r->feasible)
        polish(s);
}

/* ---- the whole ----------------------------------------------------------------------- */

static void offer_start(Solver *s)
{
    Seq q = {0};
    for (int32_t i = 0; i < s->options->nstart; i++)
        seq_push(&q, s->options->start[i]);
    if (q.n > 0)
        offer(s, &q, 0);
    seq_free(&q);
}

static void start_schedules(Solver *s, int64_t most_cost)
{
    int32_t n = s->p->nops;
    offer_start(s);
    if (s->options->repair && s->best.n > 0 && !s->r->feasible)
        improve_by(s, &(Kind){.cooling = descent, .part = 1}, 200 * (int64_t)n + 5000);
    for (int32_t i = 0; i < n; i++)
        seq_push(&s->input, i);
    sweep_orders(s, most_cost);
}

static void find_bound(Solver *s)
{
    RematResult *r = s->r;
    RematBound bound;
    double now = clock_seconds();
    bound_problem(s->p, s->options->budget, s->deadline > 0 ? now + (s->deadline - now) / 4 : 0, &bound);
    r->lower_bound = bound.cost;
    r->min_budget_bound = bound.min_budget;
    r->proved_infeasible |= bound.infeasible;
    r->price = bound.price;
}

/* Expensive schedules are poor starts, unless bytes alone count. */
static const double CHEAP = 1.0 / 16, DEAR = 0.5;

/* extra: the part of the cost without recomputation by which a schedule to start from may be dearer. */
static bool solver_init(Solver *s, Problem *p, const RematInstance *inst, const RematOptions *o, double extra,
                        RematResult *result, char err[REMAT_ERR])
{
    int64_t cost, peak;
    *result = (RematResult){.budget = o->budget};
    if (o->time_limit_s <= 0 && o->max_moves <= 0)
        return rm_fail(err, "neither a time limit nor a limit of moves is set");
    if (o->threads > REMAT_MAX_THREADS)
        return rm_fail(err, "at most %d threads", REMAT_MAX_THREADS);
    if (!problem_init(p, inst, err))
        return false;
    if (o->nstart > 0 && !remat_evaluate(inst, o->start, o->nstart, NULL, &cost, &peak, err)) {
        problem_free(p);
        return false;
    }
    *s = (Solver){.p = p,
                  .options = o,
                  .budget = o->budget,
                  .r = result,
                  .start = clock_seconds(),
                  .nworkers = o->threads > 1 ? o->threads : 1};
    s->deadline = o->time_limit_s > 0 ? s->start + o->time_limit_s : 0;
    result->lower_bound = p->base_cost;
    result->min_budget_bound = bound_least_budget(p);
    result->proved_infeasible = o->budget < result->min_budget_bound;
    s->worker = RM_NEW(Search, s->nworkers);
    for (int i = 0; i < s->nworkers; i++)
        search_init(&s->worker[i], p, o->budget, o->seed * 1000003 + (uint64_t)i);
    start_schedules(s, p->base_cost + (int64_t)(extra * (double)p->base_cost));
    return true;
}

static void solver_finish(Solver *s)
{
    RematResult *r = s->r;
    remat_raise_bound(r, r->lower_bound);
    r->moves = s->spent;
    r->seconds = clock_seconds() - s->start;
    for (int i = 0; i < s->nworkers; i++)
        search_free(&s->worker[i]);
    free(s->worker);
    seq_free(&s->best);
    seq_free(&s->input);
}

bool remat_solve(const RematInstance *inst, const RematOptions *options,
                 RematResult *result, char err[REMAT_ERR])
{
    Problem p;
    Solver s;
    if (!solver_init(&s, &p, inst, options, CHEAP, result, err))
        return false;
    if (!good_enough(&s) && !result->proved_infeasible)
        find_bound(&s);
    if (!result->proved_infeasible) {
        squeeze(&s);
        reach_budget(&s);
    }
    if (result->proved_infeasible) {
        sweep_orders(&s, INT64_MAX); /* what is known of less bytes */
    } else {
        improve(&s);
        if (s.deadline == 0 && result->feasible && !good_enough(&s))
            raise_bound(&s);
    }
    solver_finish(&s);
    problem_free(&p);
    return true;
}

bool remat_min_budget(const RematInstance *inst, const RematOptions *options,
                      RematResult *result, char err[REMAT_ERR])
{
    enum { NEAR = 1 << 14 }; /* 1 / NEAR of the bound is not worth a search */
    enum { LAST = 8 };       /* with a gap, at most 1 / LAST of the moves follow */
    Problem p;
    Solver s;
    RematOptions o = *options;
    if (!problem_init(&p, inst, err))
        return false;
    int64_t bound = bound_peak(&p, INT64_MAX);
    problem_free(&p);
    o.budget = bound + (int64_t)(fmax(1.0 / NEAR, o.gap) * (double)bound);
    o.gap = 0;
    o.rough_bound = true; /* the better bound is known */
    if (!solver_init(&s, &p, inst, &o, DEAR, result, err))
        return false;
    reach_budget(&s);
    o.max_moves += o.max_moves / 2;
    squeeze(&s);
    int64_t last = 200 * (int64_t)p.nops + 5000; /* makes the schedule cheaper and easier to pack */
    if (options->gap > 0 && o.max_moves > 0 && last > o.max_moves / LAST)
        last = o.max_moves / LAST;
    o.max_moves += o.max_moves > 0 ? last : 0;
    thin_out(&s, last);
    result->feasible = true;
    result->min_budget = result->budget = result->peak;
    result->min_budget_bound = bound;
    solver_finish(&s);
    problem_free(&p);
    return true;
}
