/* anneal.c -- simulated annealing over sequences of executions in any order.
 *
 * State: a schedule (state.c). Energy: cost + weight * excess, the excess being the bytes above the
 * budget summed over all steps, so that every overfull step pulls, not just the highest
 * one. The weight follows the search: it rises while steps are overfull and falls while
 * none is, which keeps the search on the border of the budget.
 *
 * Moves: shift an execution within the window its readers and inputs leave; add a
 * recomputation in front of a reader (with those of its inputs that would be dead there);
 * remove a recomputation with everything that only it needed; exchange: remove one, then
 * evict something from an overfull step; change a kernel; replace a recomputation by a fetch,
 * or the other way round. A run that is added or shifted takes the cheapest kernel that fits there, as
 * kernels may differ in cost by more than any temperature allows. A move that only adds cost is first
 * compared with the threshold drawn for it, before any memory is touched. */
#include "anneal.h"

#include <math.h>
#include <stdlib.h>

/* ---- parts of moves ------------------------------------------------------------------ */

/* Removes the run at slot, and then runs that nothing reads any more. */
static bool remove_cascade(State *st, int32_t slot, int32_t depth)
{
    const Problem *p = st->p;
    int32_t op = st->op[slot];
    if (!state_remove(st, slot))
        return false;
    if (depth > 64)
        return true;
    for (int32_t k = p->in.first[op]; k < p->in.first[op + 1]; k++) {
        int32_t v = p->in.at[k], start = state_copy_start(st, v, slot);
        if (start >= 0 && state_unread(st, start))
            remove_cascade(st, start, depth + 1);
    }
    return true;
}

/* When the copy of v that `reader` reads was last used before: by another reader, or when
 * it was made. */
static int32_t last_use_before(const State *st, int32_t v, int32_t reader)
{
    int32_t start = state_copy_start(st, v, reader);
    const Slots *reads = &st->reads[v];
    int32_t i = slots_lower(reads, reader);
    return i > 0 && reads->at[i - 1] > start ? reads->at[i - 1] : start;
}

/* Adds a run of op somewhere in (lo, reader). */
static int32_t add_before(Search *s, int32_t op, int32_t lo, int32_t reader)
{
    State *st = &s->state;
    int32_t gap = reader - lo - 1, slot = -1;
    if (gap > 0)
        slot = state_free_slot(st, lo, reader,
                               rng_below(&s->rng, 3) ? reader - 1 : lo + 1 + rng_below(&s->rng, gap));
    if (slot < 0 && state_open(st, reader - 1))
        slot = reader - 1;
    if (slot < 0 || !state_add(st, op, st->p->cheapest[op], slot))
        return -1;
    state_fit_kernel(st, slot);
    return slot;
}

/* Can the outputs of op be fetched once more? */
static bool can_fetch(const State *st, int32_t op)
{
    return st->p->fetch[op] >= 0 && state_fetch_fits(st, st->p->fetch[op]);
}

/* The cost of making the outputs of op once more, if its inputs are resident. */
static int64_t cost_again(const State *st, int32_t op)
{
    return can_fetch(st, op) ? st->p->redo[op] : st->p->cost[op];
}

/* The run at slot keeps its input v, idle since `idle`, resident. Recompute it instead? Always
 * when it is in the way at the held slot; else at random, or when what it adds to the excess
 * outweighs its cost, and now and then. */
static bool prefer_recompute(Search *s, int32_t v, int32_t idle, int32_t slot)
{
    const State *st = &s->state;
    if (slot - idle <= 3)
        return false;
    if (idle < st->held[0] && st->held[0] < slot)
        return true;
    if (s->coin_flips)
        return rng_next(&s->rng) & 1;
    int64_t relief = levels_relief(&st->levels, idle + 1, slot, st->bytes[v]);
    double price = (double)cost_again(st, st->p->producer[v]) * 2 * rng_unit(&s->rng);
    return relief > 0 ? s->weight * (double)relief > price : rng_below(&s->rng, 8) == 0;
}

/* May op run once more, without that alone making the current move too expensive? */
static bool affordable(const Search *s, int32_t op)
{
    const State *st = &s->state;
    bool may = !st->p->inst->ops[op].once || can_fetch(st, op);
    return may && (double)(st->cost + cost_again(st, op)) <= s->cap;
}

/* Chooses what makes the outputs of op once more: op, or mostly its fetch where possible, which needs no
 * inputs. */
static int32_t choose_way(Search *s, int32_t op)
{
    const Problem *p = s->state.p;
    bool fetch = can_fetch(&s->state, op) && (p->inst->ops[op].once || rng_below(&s->rng, 4));
    return fetch ? p->fetch[op] : op;
}

/* Adds a run of op somewhere in (lo, reader), and of those of its dead inputs that
 * prefer_recompute() chooses. */
static bool add_closure(Search *s, int32_t op, int32_t lo, int32_t reader)
{
    State *st = &s->state;
    const Problem *p = st->p;
    if (!affordable(s, op) || st->nevents * 3 > st->T * 2 || --s->left < 0)
        return false;
    op = choose_way(s, op);
    int32_t slot = add_before(s, op, lo, reader);
    if (slot < 0)
        return false;
    for (int32_t k = p->in.first[op]; k < p->in.first[op + 1]; k++) {
        int32_t v = p->in.at[k], start = state_copy_start(st, v, slot);
        int32_t idle = last_use_before(st, v, slot), full = st->held[0];
        if (state_last_read(st, v, start) == slot && prefer_recompute(s, v, idle, slot) &&
            !add_closure(s, p->producer[v], idle < full && full < slot ? full : idle, slot))
            return false;
    }
    return true;
}

/* Evicts value v, read at `reader`, over the gap before that read, or over the part of it up
 * to slot `full`. */
static bool evict(Search *s, int32_t v, int32_t full, int32_t reader)
{
    State *st = &s->state;
    int32_t start = state_copy_start(st, v, reader);
    int32_t lo = full < 0 ? last_use_before(st, v, reader) : full;
    st->held[0] = full;
    st->held[1] = start;
    s->left = s->coin_flips ? 64 : 8 << rng_below(&s->rng, 3);
    if (start < 0 || !add_closure(s, st->p->producer[v], lo, reader))
        return false;
    start = st->held[1];
    if (st->op[start] >= 0 && state_unread(st, start))
        remove_cascade(st, start, 0);
    return true;
}

/* An overfull occupied slot, -1 = none. */
static int32_t overfull_slot(Search *s)
{
    const Levels *l = &s->state.levels;
    int32_t blocks = l->n / LEVEL_BLOCK, at = rng_below(&s->rng, blocks);
    for (int32_t k = 0; k < blocks && l->excess > 0; k++, at = at + 1 < blocks ? at + 1 : 0) {
        if (l->max[at] + l->lazy[at] <= l->limit)
            continue;
        int32_t t = rng_below(&s->rng, LEVEL_BLOCK);
        while (levels_at(l, at * LEVEL_BLOCK + t) <= l->limit)
            t = (t + 1) % LEVEL_BLOCK;
        return at * LEVEL_BLOCK + t;
    }
    return -1;
}

/* ---- moves: each returns whether it changed the state --------------------------------- */

/* A slot in (lo, hi): at either end, anywhere, or not far from `from`. */
static int32_t choose_slot(Search *s, int32_t lo, int32_t hi, int32_t from)
{
    switch (rng_below(&s->rng, 4)) {
    case 0: return lo + 1;
    case 1: return hi - 1;
    case 2: return lo + 1 + rng_below(&s->rng, hi - lo - 1);
    default: break;
    }
    int32_t by = 1 + rng_below(&s->rng, (hi - lo) / 8 + 2);
    int32_t near = rng_next(&s->rng) & 1 ? from + by : from - by;
    return near <= lo ? lo + 1 : near >= hi ? hi - 1 : near;
}

/* The window that a run may move in without passing the copies it reads or its readers; when
 * wide, it may read other copies instead. */
static void find_window(const State *st, int32_t from, bool wide, int32_t *lo, int32_t *hi)
{
    const Problem *p = st->p;
    int32_t op = st->op[from];
    const Slots *runs = &st->runs[p->origin[op]];
    int32_t k = slots_lower(runs, from);
    *lo = k > 0 ? runs->at[k - 1] : -1;
    *hi = wide && k > 0 ? st->T : state_first_reader(st, from);
    if (k + 1 < runs->n && runs->at[k + 1] < *hi)
        *hi = runs->at[k + 1];
    for (int32_t i = p->in.first[op]; i < p->in.first[op + 1]; i++) {
        int32_t v = p->in.at[i];
        int32_t start = wide ? st->runs[p->producer[v]].at[0] : state_copy_start(st, v, from);
        *lo = start > *lo ? start : *lo;
    }
}

static bool move_shift(Search *s)
{
    State *st = &s->state;
    const Problem *p = st->p;
    int32_t from = st->event[rng_below(&s->rng, st->nevents)], op = st->op[from], lo, hi;
    bool wide = st->nmulti > 0 && rng_below(&s->rng, 4) == 0;
    find_window(st, from, wide, &lo, &hi);
    if (hi - lo < 3)
        return false;
    int32_t to = state_free_slot(st, lo, hi, choose_slot(s, lo, hi, from));
    if (to < 0 || to == from || !state_move(st, from, to))
        return false;
    state_fit_kernel(st, to);
    for (int32_t i = p->in.first[op]; wide && i < p->in.first[op + 1]; i++) {
        int32_t start = state_copy_start(st, p->in.at[i], from);
        if (start >= 0 && state_unread(st, start))
            remove_cascade(st, start, 0);
    }
    return true;
}

/* Moves the run at slot behind `bound`, and its readers that would be in the way behind it. */
static bool push(Search *s, int32_t slot, int32_t bound, int32_t *left)
{
    State *st = &s->state;
    int32_t op = st->op[slot], to = state_free_slot(st, bound, st->T, bound + 1);
    if (to < 0 || --*left < 0)
        return false;
    const Slots *runs = &st->runs[st->p->origin[op]];
    int32_t k = slots_lower(runs, slot + 1);
    if (k < runs->n && runs->at[k] <= to)
        return false;
    for (int32_t r = state_first_reader(st, slot); r <= to && r < st->T; r = state_first_reader(st, slot))
        if (!push(s, r, to, left))
            return false;
    return state_move(st, slot, to);
}

/* Moves the run at slot before `bound`, and the runs it reads from that would be in the way
 * before it. */
static bool pull(Search *s, int32_t slot, int32_t bound, int32_t *left)
{
    State *st = &s->state;
    const Problem *p = st->p;
    int32_t op = st->op[slot], to = state_free_slot(st, -1, bound, bound - 1);
    if (to < 0 || --*left < 0)
        return false;
    const Slots *runs = &st->runs[p->origin[op]];
    int32_t k = slots_lower(runs, slot);
    if (k > 0 && runs->at[k - 1] >= to)
        return false;
    for (int32_t i = p->in.first[op]; i < p->in.first[op + 1]; i++) {
        int32_t start = state_copy_start(st, p->in.at[i], slot);
        if (start >= to && !pull(s, start, to, left))
            return false;
    }
    return state_move(st, slot, to);
}

/* Moves a run out of its window, together with what stands in its way. */
static bool move_chain(Search *s)
{
    State *st = &s->state;
    int32_t from = st->event[rng_below(&s->rng, st->nevents)], left = 12;
    int32_t reach = (st->T >> (2 + 2 * rng_below(&s->rng, 4))) + 4, by = 1 + rng_below(&s->rng, reach);
    if (rng_next(&s->rng) & 1)
        return from + by < st->T - 1 && push(s, from, from + by, &left);
    return from - by > 0 && pull(s, from, from - by, &left);
}

/* A random read: of an input, or of a live-out value by the end of the schedule. */
static bool choose_read(Search *s, int32_t *value, int32_t *reader)
{
    State *st = &s->state;
    const Problem *p = st->p;
    int32_t r = rng_below(&s->rng, st->nevents + s->nlive_out);
    if (r >= st->nevents) {
        *value = s->live_out[r - st->nevents];
        *reader = st->T;
        return true;
    }
    *reader = st->event[r];
    int32_t op = st->op[*reader], n = p->in.first[op + 1] - p->in.first[op];
    if (n > 0)
        *value = p->in.at[p->in.first[op] + rng_below(&s->rng, n)];
    return n > 0;
}

static bool move_add(Search *s)
{
    int32_t value, reader;
    return choose_read(s, &value, &reader) && evict(s, value, -1, reader);
}

static bool move_remove(Search *s)
{
    State *st = &s->state;
    if (st->nmulti == 0)
        return false;
    const Slots *runs = &st->runs[st->multi[rng_below(&s->rng, st->nmulti)]];
    return remove_cascade(st, runs->at[rng_below(&s->rng, runs->n)], 0);
}

/* The reader for which value v idles over the slot, -1 = none. */
static int32_t idles_over(const State *st, int32_t v, int32_t slot)
{
    const Slots *reads = &st->reads[v], *runs = &st->runs[st->p->producer[v]];
    int32_t i = slots_lower(reads, slot), k = slots_lower(runs, slot);
    if (st->bytes[v] == 0 || k == 0 || i == reads->n || reads->at[i] == slot ||
        (k < runs->n && runs->at[k] < reads->at[i]))
        return -1;
    return reads->at[i];
}

/* Evicts a value that idles over an overfull step; half of the time so that nothing else
 * idles over it instead. When sparing, only values that are not too expensive to recompute: that
 * helps on random graphs, but networks get stuck. */
static bool relieve(Search *s)
{
    State *st = &s->state;
    int32_t n = st->p->nvals, most = n < 256 ? n : 256;
    int32_t full = overfull_slot(s), v = rng_below(&s->rng, n);
    for (int32_t tries = 0; tries < most && full >= 0; tries++) {
        int32_t reader = idles_over(st, v, full);
        if (reader >= 0 && (!s->sparing || affordable(s, st->p->producer[v])))
            return evict(s, v, rng_next(&s->rng) & 1 ? full : -1, reader);
        v = v + 1 < n ? v + 1 : 0;
    }
    return false;
}

static bool move_exchange(Search *s)
{
    if (!move_remove(s))
        return false;
    for (int32_t k = 0; k < 3 && s->state.levels.excess > 0; k++)
        if (!relieve(s))
            return false;
    return true;
}

static bool move_kernel(Search *s)
{
    State *st = &s->state;
    int32_t slot = st->event[rng_below(&s->rng, st->nevents)], op = st->op[slot];
    int32_t n = st->p->inst->ops[op].nalt;
    if (n == 0)
        return false;
    int32_t k = rng_below(&s->rng, n);
    state_set_kernel(st, slot, k >= st->kernel[slot] ? k + 1 : k);
    return true;
}

/* Replaces the recomputation at a slot, with runs that only it needed, by a fetch; or a fetch by a
 * recomputation. */
static bool move_way(Search *s)
{
    State *st = &s->state;
    const Problem *p = st->p;
    if (st->nmulti == 0)
        return false;
    int32_t of = st->multi[rng_below(&s->rng, st->nmulti)];
    const Slots *runs = &st->runs[of];
    int32_t slot = runs->at[1 + rng_below(&s->rng, runs->n - 1)];
    int32_t other = st->op[slot] == of ? p->fetch[of] : of;
    return other >= 0 && remove_cascade(st, slot, 0) && state_add(st, other, p->cheapest[other], slot);
}

static bool try_move(Search *s)
{
    uint32_t r = (uint32_t)(rng_next(&s->rng) & 15);
    if (s->state.p->inst->link > 0 && r == 4)
        return move_way(s);
    if (r < 3)
        return move_chain(s);
    if (r < 7)
        return s->state.p->any_alt && r == 3 ? move_kernel(s) : move_shift(s);
    if (r < 10)
        return move_add(s);
    if (r < 12)
        return move_remove(s);
    if (r < 13)
        return relieve(s);
    return move_exchange(s);
}

/* ---- annealing ----------------------------------------------------------------------- */

void search_init(Search *s, const Problem *p, int64_t budget, uint64_t seed)
{
    int32_t paying = 0;
    *s = (Search){.rng = {seed}, .best_cost = INT64_MAX};
    state_init(&s->state, p, budget);
    for (int32_t i = 0; i < p->nops; i++)
        paying += p->cost[i] > 0;
    s->live_out = RM_NEW(int32_t, p->nvals);
    for (int32_t v = 0; v < p->nvals; v++)
        if (p->inst->values[v].keep_to_end)
            s->live_out[s->nlive_out++] = v;
    s->unit = paying ? (double)p->base_cost / paying : 1;
}

void search_free(Search *s)
{
    state_free(&s->state);
    seq_free(&s->best);
    free(s->live_out);
}

static void store_best(Search *s)
{
    state_store(&s->state, &s->best);
    s->pending = false;
    s->stored = true;
}

static void note_best(Search *s)
{
    if (s->state.levels.excess == 0 && s->state.cost < s->best_cost) {
        s->best_cost = s->state.cost;
        s->pending = true;
    }
}

void search_load(Search *s, const Seq *from, const uint8_t *kernels)
{
    state_load(&s->state, from, kernels);
    note_best(s);
    if (s->pending)
        store_best(s);
}

static double energy(const Search *s)
{
    return (double)s->state.cost + s->weight * (double)s->state.levels.excess;
}

static void step(Search *s)
{
    State *st = &s->state;
    double before = energy(s), most = -s->temperature * s->unit * log(rng_unit(&s->rng) + 1e-300);
    state_begin(st);
    s->moves++;
    s->cap = before + most;
    if (!try_move(s)) {
        state_undo(st);
        return;
    }
    bool accept = energy(s) - before <= most && st->cost <= RM_SUM;
    if (accept && s->pending && !(st->levels.excess == 0 && st->cost <= s->best_cost)) {
        state_undo(st);
        store_best(s);
        return;
    }
    if (accept)
        note_best(s);
    else
        state_undo(st);
}

/* Cost per unit of excess for a weight in units of cost for a hundredth of the limit in one step. */
static double scaled(const Search *s, double weight)
{
    const State *st = &s->state;
    return 100 * weight * s->unit / ((double)st->levels.limit / (1 << st->levels.shift) + 1);
}

/* Moves between two updates of the temperature and the weight, with a look at the clock. */
static int64_t period_of(int64_t moves)
{
    return moves < 64 * 64 ? 64 : moves > 64 * 1024 ? 1024 : moves / 64;
}

bool search_run(Search *s, int64_t moves, Cooling c, int64_t target, double deadline)
{
    State *st = &s->state;
    bool full = true;
    int64_t period = period_of(moves), spread = 0;
    double rate = fmin(1.1, exp(10 * (double)period / (double)moves));
    s->weight = scaled(s, c.weight);
    s->coin_flips = c.coin_flips;
    s->sparing = !c.coin_flips;
    for (int64_t done = 0; done < moves && full; done += period) {
        int64_t overfull = 0;
        s->temperature = c.hot * pow(c.cold / c.hot, (double)done / (double)moves);
        for (int64_t i = 0; i < period; i++) {
            step(s);
            overfull += st->levels.excess > 0;
        }
        if (s->stored && s->improved)
            s->improved(s->user, s);
        s->stored = false;
        double share = (double)overfull / (double)period;
        s->weight *= share > 0.6 ? rate : share < 0.4 ? 1 / rate : 1;
        if (st->nevents * 3 > st->T * 2 - 192 || done >= spread) {
            if (s->pending)
                store_best(s);
            state_respread(st);
            spread = done + 65536;
        }
        full = s->best_cost > target && (deadline == 0 || clock_seconds() < deadline);
    }
    if (s->pending)
        store_best(s);
    return full;
}

/* Lowers the limit to a little below the peak, which fits. */
static void lower_limit(Search *s, int32_t floor, double weight)
{
    State *st = &s->state;
    int32_t peak = levels_peak(&st->levels), limit = peak - peak / 512 - 1;
    if (peak < s->least) {
        s->least = peak;
        state_store(st, &s->best);
    }
    levels_set_limit(&st->levels, limit > floor ? limit : floor);
    s->weight = scaled(s, weight);
}

/* Are free slots few, or far from where runs are added? Then most of a move's time goes to making room. */
static bool crowded(const State *st)
{
    enum { SHIFTED = 32 }; /* times the slots: several times the work of spreading the runs */
    return st->nevents * 3 > st->T * 2 - 192 || st->shifted > SHIFTED * (int64_t)st->T;
}

bool search_reach(Search *s, int64_t moves, int64_t patience, Cooling c, double deadline)
{
    State *st = &s->state;
    int32_t floor = st->levels.limit, period = 1 + st->T / 4096;
    int64_t idle = 0; /* moves since the peak fell */
    s->temperature = c.hot;
    s->coin_flips = c.coin_flips;
    s->sparing = false; /* cost does not matter */
    s->least = INT32_MAX;
    s->best_cost = INT64_MIN;
    levels_set_limit(&st->levels, levels_peak(&st->levels));
    for (int64_t done = 0; done < moves && idle < patience; done += period, idle += period) {
        if (st->levels.excess == 0) {
            lower_limit(s, floor, c.weight);
            idle = 0;
        }
        if (s->least <= floor)
            break;
        for (int32_t i = 0; i < period; i++)
            step(s);
        if (crowded(st) || s->moves % 65536 < period)
            state_respread(st);
        if (s->moves % 1024 < period && deadline > 0 && clock_seconds() >= deadline)
            break;
    }
    s->pending = false;
    return s->least <= floor;
}

/* Tries to remove every execution; returns whether one more pass may remove others. */
static bool polish_once(Search *s, double deadline)
{
    State *st = &s->state;
    bool again = false;
    for (int32_t slot = st->T; slot-- > 0;) {
        int64_t before = st->cost;
        if (st->op[slot] < 0)
            continue;
        if (deadline > 0 && clock_seconds() >= deadline)
            return false;
        state_begin(st);
        if (remove_cascade(st, slot, 0) && st->levels.excess == 0 && st->cost <= before)
            again = true;
        else
            state_undo(st);
    }
    return again;
}

void search_polish(Search *s, double deadline)
{
    while (polish_once(s, deadline))
        ;
    s->best_cost = s->state.cost;
    store_best(s);
}
