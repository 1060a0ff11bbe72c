/* anneal.c -- simulated annealing over sequences of executions, order free.
 *
 * State: a board. Energy: cost + weight * excess, the excess being the bytes above the
 * budget summed over all steps, so that every overfull step pulls, not just the highest
 * one. The weight follows the search: it rises while the board is overfull and falls while
 * it is not, which keeps the search on the border of the budget.
 *
 * Moves: shift an execution within the window its readers and inputs leave; add a
 * recomputation in front of a reader (with those of its inputs that would be dead there);
 * remove a recomputation with everything that only it needed; exchange: remove one, then
 * evict something from an overfull step; change a kernel. A move that only costs is first
 * held against the threshold drawn for it, before any memory is touched. */
#include "anneal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- pieces of moves ----------------------------------------------------------------- */

/* Removes the run at slot, and then runs that nothing reads any more. */
static bool remove_cascade(Board *b, int32_t slot, int32_t depth)
{
    const Problem *p = b->p;
    int32_t op = b->op[slot];
    if (!board_remove(b, slot))
        return false;
    if (depth > 64)
        return true;
    for (int32_t k = p->in.first[op]; k < p->in.first[op + 1]; k++) {
        int32_t v = p->in.at[k], start = board_copy_start(b, v, slot);
        if (start >= 0 && board_unread(b, start))
            remove_cascade(b, start, depth + 1);
    }
    return true;
}

/* When the copy of v that `reader` reads was last used before: by another reader, or when
 * it was made. */
static int32_t last_use_before(const Board *b, int32_t v, int32_t reader)
{
    int32_t start = board_copy_start(b, v, reader);
    const Slots *reads = &b->reads[v];
    int32_t i = slots_lower(reads, reader);
    return i > 0 && reads->at[i - 1] > start ? reads->at[i - 1] : start;
}

/* Adds a run of op somewhere in (lo, reader). */
static int32_t add_before(Search *s, int32_t op, int32_t lo, int32_t reader)
{
    Board *b = &s->board;
    int32_t gap = reader - lo - 1, slot = -1;
    if (gap > 0)
        slot = board_free_slot(
            b, lo, reader,
            rng_below(&s->rng, 3) ? reader - 1 : lo + 1 + rng_below(&s->rng, gap));
    if (slot < 0 && board_open(b, reader - 1))
        slot = reader - 1;
    return slot >= 0 && board_add(b, op, b->p->cheapest[op], slot) ? slot : -1;
}

/* The run at slot keeps its input v, idle since `idle`, resident. Rather make it again? Always
 * when it is in the way at the held slot; else by a coin, or when what it adds to the excess
 * outweighs it, and now and then. */
static bool rather_again(Search *s, int32_t v, int32_t idle, int32_t slot)
{
    const Board *b = &s->board;
    if (slot - idle <= 3)
        return false;
    if (idle < b->held[0] && b->held[0] < slot)
        return true;
    if (s->tosses)
        return rng_next(&s->rng) & 1;
    int64_t relief = levels_relief(&b->levels, idle + 1, slot, b->bytes[v]);
    double price = (double)b->p->cost[b->p->producer[v]] * 2 * rng_unit(&s->rng);
    return relief > 0 ? s->weight * (double)relief > price : rng_below(&s->rng, 8) == 0;
}

/* May op run once more, and would the move at hand not cost too much by that alone? */
static bool affordable(const Search *s, int32_t op)
{
    const Board *b = &s->board;
    return !b->p->inst->ops[op].once && (double)(b->cost + b->p->cost[op]) <= s->cap;
}

/* Adds a run of op somewhere in (lo, reader), and of the inputs it finds dead that are rather
 * made again than kept. */
static bool add_closure(Search *s, int32_t op, int32_t lo, int32_t reader)
{
    Board *b = &s->board;
    const Problem *p = b->p;
    if (!affordable(s, op) || b->nevents * 3 > b->T * 2 || --s->left < 0)
        return false;
    int32_t slot = add_before(s, op, lo, reader);
    if (slot < 0)
        return false;
    for (int32_t k = p->in.first[op]; k < p->in.first[op + 1]; k++) {
        int32_t v = p->in.at[k], start = board_copy_start(b, v, slot);
        int32_t idle = last_use_before(b, v, slot), full = b->held[0];
        if (board_last_read(b, v, start) == slot && rather_again(s, v, idle, slot) &&
            !add_closure(s, p->producer[v], idle < full && full < slot ? full : idle, slot))
            return false;
    }
    return true;
}

/* Evicts value v, read at `reader`, over the gap before that read, or over the part of it up
 * to slot `full`. */
static bool evict(Search *s, int32_t v, int32_t full, int32_t reader)
{
    Board *b = &s->board;
    int32_t start = board_copy_start(b, v, reader);
    int32_t lo = full < 0 ? last_use_before(b, v, reader) : full;
    b->held[0] = full;
    b->held[1] = start;
    s->left = s->tosses ? 64 : 8 << rng_below(&s->rng, 3);
    if (start < 0 || !add_closure(s, b->p->producer[v], lo, reader))
        return false;
    start = b->held[1];
    if (b->op[start] >= 0 && board_unread(b, start))
        remove_cascade(b, start, 0);
    return true;
}

/* An overfull occupied slot, -1 = none. */
static int32_t overfull_slot(Search *s)
{
    const Levels *l = &s->board.levels;
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

/* ---- moves: each returns whether it changed the board -------------------------------- */

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

/* The window that the copies read and the readers leave; when wide, other copies may be
 * read instead. */
static void find_window(const Board *b, int32_t from, bool wide, int32_t *lo, int32_t *hi)
{
    const Problem *p = b->p;
    int32_t op = b->op[from];
    const Slots *runs = &b->runs[op];
    int32_t k = slots_lower(runs, from);
    *lo = k > 0 ? runs->at[k - 1] : -1;
    *hi = wide && k > 0 ? b->T : board_first_reader(b, from);
    if (k + 1 < runs->n && runs->at[k + 1] < *hi)
        *hi = runs->at[k + 1];
    for (int32_t i = p->in.first[op]; i < p->in.first[op + 1]; i++) {
        int32_t v = p->in.at[i];
        int32_t start = wide ? b->runs[p->producer[v]].at[0] : board_copy_start(b, v, from);
        *lo = start > *lo ? start : *lo;
    }
}

static bool move_shift(Search *s)
{
    Board *b = &s->board;
    const Problem *p = b->p;
    int32_t from = b->event[rng_below(&s->rng, b->nevents)], op = b->op[from], lo, hi;
    bool wide = b->nmulti > 0 && rng_below(&s->rng, 4) == 0;
    find_window(b, from, wide, &lo, &hi);
    if (hi - lo < 3)
        return false;
    int32_t to = board_free_slot(b, lo, hi, choose_slot(s, lo, hi, from));
    if (to < 0 || to == from || !board_move(b, from, to))
        return false;
    for (int32_t i = p->in.first[op]; wide && i < p->in.first[op + 1]; i++) {
        int32_t start = board_copy_start(b, p->in.at[i], from);
        if (start >= 0 && board_unread(b, start))
            remove_cascade(b, start, 0);
    }
    return true;
}

/* Moves the run at slot behind `bound`, and its readers that would be in the way behind it.
 */
static bool push(Search *s, int32_t slot, int32_t bound, int32_t *left)
{
    Board *b = &s->board;
    int32_t op = b->op[slot], to = board_free_slot(b, bound, b->T, bound + 1);
    if (to < 0 || --*left < 0)
        return false;
    const Slots *runs = &b->runs[op];
    int32_t k = slots_lower(runs, slot + 1);
    if (k < runs->n && runs->at[k] <= to)
        return false;
    for (int32_t r = board_first_reader(b, slot); r <= to && r < b->T;
         r = board_first_reader(b, slot))
        if (!push(s, r, to, left))
            return false;
    return board_move(b, slot, to);
}

/* Moves the run at slot before `bound`, and the runs it reads from that would be in the way
 * before it. */
static bool pull(Search *s, int32_t slot, int32_t bound, int32_t *left)
{
    Board *b = &s->board;
    const Problem *p = b->p;
    int32_t op = b->op[slot], to = board_free_slot(b, -1, bound, bound - 1);
    if (to < 0 || --*left < 0)
        return false;
    const Slots *runs = &b->runs[op];
    int32_t k = slots_lower(runs, slot);
    if (k > 0 && runs->at[k - 1] >= to)
        return false;
    for (int32_t i = p->in.first[op]; i < p->in.first[op + 1]; i++) {
        int32_t start = board_copy_start(b, p->in.at[i], slot);
        if (start >= to && !pull(s, start, to, left))
            return false;
    }
    return board_move(b, slot, to);
}

/* Moves a run out of its window, together with what stands in its way. */
static bool move_chain(Search *s)
{
    Board *b = &s->board;
    int32_t from = b->event[rng_below(&s->rng, b->nevents)], left = 12;
    int32_t reach = (b->T >> (2 + 2 * rng_below(&s->rng, 4))) + 4,
            by = 1 + rng_below(&s->rng, reach);
    if (rng_next(&s->rng) & 1)
        return from + by < b->T - 1 && push(s, from, from + by, &left);
    return from - by > 0 && pull(s, from, from - by, &left);
}

/* A random read: of an input, or of a kept value by the end of the schedule. */
static bool choose_read(Search *s, int32_t *value, int32_t *reader)
{
    Board *b = &s->board;
    const Problem *p = b->p;
    int32_t r = rng_below(&s->rng, b->nevents + s->nkept);
    if (r >= b->nevents) {
        *value = s->kept[r - b->nevents];
        *reader = b->T;
        return true;
    }
    *reader = b->event[r];
    int32_t op = b->op[*reader], n = p->in.first[op + 1] - p->in.first[op];
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
    Board *b = &s->board;
    if (b->nmulti == 0)
        return false;
    const Slots *runs = &b->runs[b->multi[rng_below(&s->rng, b->nmulti)]];
    return remove_cascade(b, runs->at[rng_below(&s->rng, runs->n)], 0);
}

/* The reader for which value v idles over the slot, -1 = none. */
static int32_t idles_over(const Board *b, int32_t v, int32_t slot)
{
    const Slots *reads = &b->reads[v], *runs = &b->runs[b->p->producer[v]];
    int32_t i = slots_lower(reads, slot), k = slots_lower(runs, slot);
    if (b->bytes[v] == 0 || k == 0 || i == reads->n || reads->at[i] == slot ||
        (k < runs->n && runs->at[k] < reads->at[i]))
        return -1;
    return reads->at[i];
}

/* Evicts something that idles over an overfull step; half of the time so that nothing else
 * idles over it instead. When sparing, only what is not too dear to make again: random graphs gain
 * by that, networks get stuck by it. */
static bool relieve(Search *s)
{
    Board *b = &s->board;
    int32_t n = b->p->nvals, most = n < 256 ? n : 256;
    int32_t full = overfull_slot(s), v = rng_below(&s->rng, n);
    for (int32_t tries = 0; tries < most && full >= 0; tries++) {
        int32_t reader = idles_over(b, v, full);
        if (reader >= 0 && (!s->sparing || affordable(s, b->p->producer[v])))
            return evict(s, v, rng_next(&s->rng) & 1 ? full : -1, reader);
        v = v + 1 < n ? v + 1 : 0;
    }
    return false;
}

static bool move_exchange(Search *s)
{
    if (!move_remove(s))
        return false;
    for (int32_t k = 0; k < 3 && s->board.levels.excess > 0; k++)
        if (!relieve(s))
            return false;
    return true;
}

static bool move_kernel(Search *s)
{
    Board *b = &s->board;
    int32_t slot = b->event[rng_below(&s->rng, b->nevents)], op = b->op[slot];
    int32_t n = b->p->inst->ops[op].nalt;
    if (n == 0)
        return false;
    int32_t k = rng_below(&s->rng, n);
    board_set_kernel(b, slot, k >= b->kernel[slot] ? k + 1 : k);
    return true;
}

static bool try_move(Search *s)
{
    uint32_t r = (uint32_t)(rng_next(&s->rng) & 15);
    if (r < 3)
        return move_chain(s);
    if (r < 7)
        return s->board.p->any_alt && r == 3 ? move_kernel(s) : move_shift(s);
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
    board_init(&s->board, p, budget);
    for (int32_t i = 0; i < p->nops; i++)
        paying += p->cost[i] > 0;
    s->kept = RM_NEW(int32_t, p->nvals);
    for (int32_t v = 0; v < p->nvals; v++)
        if (p->inst->values[v].keep_to_end)
            s->kept[s->nkept++] = v;
    s->unit = paying ? (double)p->base_cost / paying : 1;
}

void search_free(Search *s)
{
    board_free(&s->board);
    seq_free(&s->best);
    free(s->kept);
}

static void store_best(Search *s)
{
    board_store(&s->board, &s->best);
    s->pending = false;
    s->stored = true;
}

static void note_best(Search *s)
{
    if (s->board.levels.excess == 0 && s->board.cost < s->best_cost) {
        s->best_cost = s->board.cost;
        s->pending = true;
    }
}

void search_load(Search *s, const Seq *from, const uint8_t *kernels)
{
    board_load(&s->board, from, kernels);
    note_best(s);
    if (s->pending)
        store_best(s);
}

static double energy(const Search *s)
{
    return (double)s->board.cost + s->weight * (double)s->board.levels.excess;
}

static void step(Search *s)
{
    Board *b = &s->board;
    double before = energy(s),
           most = -s->temperature * s->unit * log(rng_unit(&s->rng) + 1e-300);
    board_begin(b);
    s->moves++;
    s->cap = before + most;
    if (!try_move(s)) {
        board_undo(b);
        return;
    }
    bool accept = energy(s) - before <= most;
    if (accept && s->pending && !(b->levels.excess == 0 && b->cost <= s->best_cost)) {
        board_undo(b);
        store_best(s);
        return;
    }
    if (accept)
        note_best(s);
    else
        board_undo(b);
}

/* Cost per unit of excess, in units of cost for a hundredth of the limit in one step. */
static double scaled(const Search *s, double weight)
{
    const Board *b = &s->board;
    return 100 * weight * s->unit / ((double)b->levels.limit / (1 << b->levels.shift) + 1);
}

/* Between two looks at the temperature, the weight and the clock. */
static int64_t period_of(int64_t moves)
{
    return moves < 64 * 64 ? 64 : moves > 64 * 1024 ? 1024 : moves / 64;
}

bool search_run(Search *s, int64_t moves, Cooling c, int64_t target, double deadline)
{
    Board *b = &s->board;
    bool full = true;
    int64_t period = period_of(moves), spread = 0;
    double rate = fmin(1.1, exp(10 * (double)period / (double)moves));
    s->weight = scaled(s, c.weight);
    s->tosses = c.tosses;
    s->sparing = !c.tosses;
    for (int64_t done = 0; done < moves && full; done += period) {
        int64_t overfull = 0;
        s->temperature = c.hot * pow(c.cold / c.hot, (double)done / (double)moves);
        for (int64_t i = 0; i < period; i++) {
            step(s);
            overfull += b->levels.excess > 0;
        }
        if (s->stored && s->improved)
            s->improved(s->user, s);
        s->stored = false;
        double share = (double)overfull / (double)period;
        s->weight *= share > 0.6 ? rate : share < 0.4 ? 1 / rate : 1;
        if (b->nevents * 3 > b->T * 2 - 192 || done >= spread) {
            if (s->pending)
                store_best(s);
            board_respread(b);
            spread = done + 65536;
        }
        full = s->best_cost > target && (deadline == 0 || clock_seconds() < deadline);
    }
    if (s->pending)
        store_best(s);
    return full;
}

/* A little below the largest step, which fits. */
static void lower_limit(Search *s, int32_t floor, double weight)
{
    Board *b = &s->board;
    int32_t peak = levels_peak(&b->levels), limit = peak - peak / 512 - 1;
    if (peak < s->least) {
        s->least = peak;
        board_store(b, &s->best);
    }
    levels_set_limit(&b->levels, limit > floor ? limit : floor);
    s->weight = scaled(s, weight);
}

bool search_reach(Search *s, int64_t moves, int64_t patience, Cooling c, double deadline)
{
    Board *b = &s->board;
    int32_t floor = b->levels.limit, period = 1 + b->T / 4096;
    int64_t idle = 0; /* moves since the peak fell */
    s->temperature = c.hot;
    s->tosses = c.tosses;
    s->sparing = false; /* cost is no matter */
    s->least = INT32_MAX;
    s->best_cost = INT64_MIN;
    levels_set_limit(&b->levels, levels_peak(&b->levels));
    for (int64_t done = 0; done < moves && idle < patience; done += period, idle += period) {
        if (b->levels.excess == 0) {
            lower_limit(s, floor, c.weight);
            idle = 0;
        }
        if (s->least <= floor)
            break;
        for (int32_t i = 0; i < period; i++)
            step(s);
        if (b->nevents * 3 > b->T * 2 - 192 || s->moves % 65536 < period)
            board_respread(b);
        if (s->moves % 1024 < period && deadline > 0 && clock_seconds() >= deadline)
            break;
    }
    s->pending = false;
    return s->least <= floor;
}
