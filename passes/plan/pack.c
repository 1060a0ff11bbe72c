/* pack.c -- static memory allocation: the portfolio.
 *
 * Bytes are turned into units (the greatest common divisor of the rounded sizes and fixed
 * places: a bottom-up solution never needs a finer grid), then greedy lanes and the exact
 * search take turns on the same target until it is reached or the effort is spent:
 *
 *   round r:  every lane runs a few passes;
 *             the search runs on every form of blocks with every priority,
 *             limited to steps that double from round to round.
 *
 * Searches that end without a solution on unmerged blocks prove the target infeasible and
 * raise the lower bound. The target is the capacity, or without one the bound itself, and a
 * place between that and the best arena in turn. */
#include "pack_internal.h"
#include "ir/integer.h"
#include "ir/mem.h"
#include "ir/progress.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEFAULT_MEGASTEPS = 4000,
    PASSES_PER_ROUND = 8,
    CLOCK_STEPS = 1 << 20,
    FIRST_LIMIT = 1 << 20, /* most steps of a search in the first round */
    MAX_ROUNDS = 32,
    MERGE_STEPS = 256,     /* steps that making blocks takes, per buffer */
    RESTARTS = 8,          /* searches in a turn, if each spends its limit */
    GOOD_ENOUGH = 200, /* within 1/200 of the bound only a small part of the */
    GOOD_EFFORT = 32,  /* effort, 1/32, is spent on getting closer */
};

/* ---- effort ------------------------------------------------------------------------ */

bool pack_spend(PackBudget *b, int64_t steps)
{
    b->steps += steps;
    if (b->deadline > 0 && b->steps >= b->next_look) {
        b->next_look = b->steps + CLOCK_STEPS;
        b->out_of_time = b->out_of_time || clock_seconds() >= b->deadline;
    }
    return b->steps < b->max_steps && !b->out_of_time;
}

uint64_t pack_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* ---- the problem ------------------------------------------------------------------- */

typedef struct Problem {
    const PackBuffer *buffers; /* the caller's */
    int32_t n;
    int64_t unit, align, capacity;
    bool on_grid;     /* fixed buffers start and end on multiples of the alignment */
    PackBuffer *item; /* in units, without the empty buffers */
    int32_t *buffer;  /* per item: its index in buffers */
    int32_t items;
    int64_t bound;       /* lower bound of the arena in units */
    int64_t bound_bytes; /* lower bound of the arena in bytes */

    int64_t *trial, *best; /* offsets of the items, units */
    int64_t arena;         /* bytes of best's arena; INT64_MAX = none yet */
    PackBudget budget;
    int64_t close_steps; /* limit on steps once the arena is close to the bound */
} Problem;

static bool fail(char *err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(err, PACK_ERR_SIZE, format, args);
    va_end(args);
    return false;
}

/* Checks that sums of rounded sizes stay within int64_t. */
static bool check_sizes(const PackBuffer *buffers, int32_t n, int64_t align, char *err)
{
    int64_t room = INT64_MAX / 4;
    for (int32_t i = 0; i < n; i++) {
        const PackBuffer *b = &buffers[i];
        if (b->size < 0)
            return fail(err, "buffer %" PRId32 ": size %" PRId64 " is negative", i, b->size);
        if (b->lower >= b->upper)
            return fail(err, "buffer %" PRId32 ": empty lifetime [%" PRId32 ", %" PRId32 ")", i, b->lower,
                        b->upper);
        if (b->offset < -1)
            return fail(err, "buffer %" PRId32 ": offset %" PRId64 " is negative", i, b->offset);
        if (b->offset > INT64_MAX / 4 || align > room || b->size > room - align)
            return fail(err, "buffer %" PRId32 ": the sizes add up to too many bytes", i);
        room -= b->size + align;
    }
    return true;
}

/* Checks that fixed buffers do not overlap. */
static bool check_fixed(const PackBuffer *buffers, int32_t n, char *err)
{
    PackBuffer *fixed = mem_new((size_t)n + 1, sizeof *fixed);
    for (int32_t i = 0; i < n; i++) {
        const PackBuffer *b = &buffers[i];
        fixed[i] = b->offset >= 0 ? *b : (PackBuffer){0, b->lower, b->upper, 0};
    }
    char why[PACK_ERR_SIZE];
    bool ok = pack_verify(fixed, n, INT64_MAX, why);
    free(fixed);
    return ok || fail(err, "fixed %.200s", why);
}

static void choose_unit(Problem *p)
{
    p->on_grid = true;
    p->unit = 0;
    for (int32_t i = 0; i < p->n; i++) {
        const PackBuffer *b = &p->buffers[i];
        p->unit = gcd(p->unit, round_up(b->size, p->align));
        if (b->offset >= 0) {
            p->unit = gcd(p->unit, round_up(b->offset, p->align));
            if (b->offset % p->align || b->size % p->align)
                p->on_grid = false;
        }
    }
    if (p->unit == 0 || !p->on_grid)
        p->unit = p->align;
}

/* Fills the items, in units; a fixed buffer off the grid blocks every unit it touches. */
static void fill_items(Problem *p)
{
    for (int32_t i = 0; i < p->n; i++) {
        const PackBuffer *b = &p->buffers[i];
        if (b->size == 0)
            continue;
        int64_t from = b->offset < 0 ? -1 : b->offset / p->unit;
        int64_t to = round_up(b->offset < 0 ? b->size : b->offset + b->size, p->unit);
        p->item[p->items] = (PackBuffer){to / p->unit - (from < 0 ? 0 : from), b->lower, b->upper, from};
        p->buffer[p->items++] = i;
    }
}

/* Finds a lower bound of the arena by counting units that live buffers own alone: a fixed buffer
 * off the grid owns those it fills, a free one all it touches. If at some step K units have an
 * owner, the highest of them holds a byte at (K - 1) * unit or above. */
static void find_bound(Problem *p)
{
    PackBuffer *owned = mem_new((size_t)p->items + 1, sizeof *owned);
    int64_t load = pack_max_load(p->buffers, p->n), fixed_end = 0;
    for (int32_t i = 0; i < p->items; i++) {
        const PackBuffer *b = &p->buffers[p->buffer[i]];
        owned[i] = p->item[i];
        if (b->offset >= 0) {
            int64_t from = round_up(b->offset, p->unit), end = b->offset + b->size;
            owned[i].size = end > from ? (end - from) / p->unit : 0;
            fixed_end = end > fixed_end ? end : fixed_end;
        }
    }
    int64_t units = pack_max_load(owned, p->items);
    free(owned);
    p->bound =
        units > round_up(fixed_end, p->unit) / p->unit ? units : round_up(fixed_end, p->unit) / p->unit;
    p->bound_bytes = load > fixed_end ? load : fixed_end;
    if (units > 0 && (units - 1) * p->unit + 1 > p->bound_bytes)
        p->bound_bytes = (units - 1) * p->unit + 1;
}

static void set_up(Problem *p)
{
    size_t room = (size_t)p->n + 1;
    p->item = mem_new(room, sizeof *p->item);
    p->buffer = mem_new(room, sizeof *p->buffer);
    p->trial = mem_new(room, sizeof *p->trial);
    p->best = mem_new(room, sizeof *p->best);
    choose_unit(p);
    fill_items(p);
    p->arena = INT64_MAX;
    find_bound(p);
}

static void tear_down(Problem *p) { MEM_FREE(p->item, p->buffer, p->trial, p->best); }

/* ---- the incumbent ----------------------------------------------------------------- */

static int64_t offset_in_bytes(const Problem *p, int32_t item, const int64_t *offset)
{
    const PackBuffer *b = &p->buffers[p->buffer[item]];
    return b->offset >= 0 ? b->offset : offset[item] * p->unit;
}

/* Keeps the trial where it is better than the best. */
static void keep_better(Problem *p)
{
    int64_t arena = 0;
    for (int32_t i = 0; i < p->items; i++) {
        int64_t end = offset_in_bytes(p, i, p->trial) + p->buffers[p->buffer[i]].size;
        arena = end > arena ? end : arena;
    }
    if (arena < p->arena) {
        p->arena = arena;
        int64_t *swap = p->best;
        p->best = p->trial;
        p->trial = swap;
    }
}

/* The capacity in bytes while it is not known to be too small; 0: minimise. */
static int64_t wanted(const Problem *p) { return p->capacity >= p->bound_bytes ? p->capacity : 0; }

static bool close_to_bound(const Problem *p)
{
    return !wanted(p) && p->arena < INT64_MAX && p->arena - p->bound_bytes <= p->bound_bytes / GOOD_ENOUGH;
}

/* Steps that may still be spent. */
static int64_t steps_left(const Problem *p)
{
    return (close_to_bound(p) ? p->close_steps : p->budget.max_steps) - p->budget.steps;
}

/* Is nothing left to do, or no effort left? A last unit that is only partly filled is not worth a
 * search. */
static bool finished(Problem *p)
{
    int64_t goal = wanted(p) ? wanted(p) : p->bound * p->unit;
    return p->arena <= goal || steps_left(p) <= 0 || !pack_spend(&p->budget, 0);
}

/* The target that lanes and search aim at first, in units. */
static int64_t first_target(const Problem *p)
{
    int64_t capacity = wanted(p) / p->unit;
    return capacity > p->bound ? capacity : p->bound;
}

/* A modest target in units: below the best arena by half of its distance to the first target, by a
 * quarter after one miss, and so on. */
static int64_t next_target(const Problem *p, int misses)
{
    int64_t best = round_up(p->arena, p->unit) / p->unit;
    int64_t gain = (best - first_target(p)) >> (misses + 1);
    return gain > 0 ? best - gain : best - 1;
}

/* ---- the portfolio ----------------------------------------------------------------- */

static void run_lanes(Problem *p, PackGreedy *greedy)
{
    for (int lane = 0; lane < PACK_LANES; lane++) {
        for (int k = 0; k < PASSES_PER_ROUND; k++) {
            bool started = p->arena < INT64_MAX;
            if (pack_greedy_done(greedy, lane) || (started && finished(p)))
                break;
            pack_greedy_pass(greedy, lane, first_target(p), p->trial, &p->budget);
            keep_better(p);
        }
    }
}

typedef struct Forms {
    PackBlocks blocks[PACK_MERGE_KINDS];
    PackSearch *search[PACK_MERGE_KINDS]; /* NULL: not worth running */
    int64_t *offset;                      /* offsets of the blocks */
} Forms;

static bool same_blocks(const PackBlocks *a, const PackBlocks *b)
{
    return a->n == b->n && memcmp(a->block, b->block, (size_t)a->n * sizeof *a->block) == 0;
}

/* Is a form worth searching? Unmerged blocks can always prove something; other forms only if they
 * differ from the earlier ones. */
static bool worth_searching(const Forms *f, int kind)
{
    for (int k = 0; k < kind && kind != PACK_MERGE_NONE; k++)
        if (same_blocks(&f->blocks[k], &f->blocks[kind]))
            return false;
    return f->blocks[kind].n <= PACK_SEARCH_MAX;
}

static void make_forms(Forms *f, const Problem *p)
{
    f->offset = mem_new(PACK_SEARCH_MAX + 1, sizeof *f->offset);
    for (int kind = 0; kind < PACK_MERGE_KINDS; kind++) {
        PackBlocks *b = &f->blocks[kind];
        pack_merge(p->item, p->items, (PackMergeKind)kind, 0, b);
        if (worth_searching(f, kind))
            f->search[kind] = pack_search_new(b->block, b->n);
        if (f->search[kind] && pack_search_dive(f->search[kind]) > p->budget.max_steps) {
            pack_search_free(f->search[kind]);
            f->search[kind] = NULL;
        }
    }
}

static void free_forms(Forms *f)
{
    for (int kind = 0; kind < PACK_MERGE_KINDS; kind++) {
        pack_search_free(f->search[kind]);
        pack_blocks_free(&f->blocks[kind]);
    }
    free(f->offset);
}

/* Raises the bound, as the target has no solution; that may refute the capacity. */
static void raise_bound(Problem *p, int64_t target)
{
    p->bound = target + 1;
    if (p->on_grid && p->bound_bytes < target * p->unit + 1)
        p->bound_bytes = target * p->unit + 1;
}

/* Makes other blocks of the same kind, with equals joined differently. False when there are too many. */
static bool renew_form(Problem *p, Forms *f, int kind, uint64_t seed)
{
    PackBlocks blocks;
    pack_merge(p->item, p->items, (PackMergeKind)kind, seed, &blocks);
    if (blocks.n > PACK_SEARCH_MAX) {
        pack_blocks_free(&blocks);
        return false;
    }
    pack_search_free(f->search[kind]);
    pack_blocks_free(&f->blocks[kind]);
    f->search[kind] = pack_search_new(blocks.block, blocks.n);
    f->blocks[kind] = blocks;
    pack_spend(&p->budget, (int64_t)p->items * MERGE_STEPS);
    return true;
}

/* Runs one search of at most `limit` steps. */
static PackVerdict run_search(Problem *p, Forms *f, int kind, int priority, int32_t jitter,
                              uint64_t seed, int64_t limit, int64_t target)
{
    PackVerdict verdict = pack_search_run(f->search[kind], target, priority, jitter, seed, limit,
                                          f->offset, &p->budget);
    if (verdict == PACK_FOUND) {
        pack_unmerge(&f->blocks[kind], f->offset, p->trial);
        keep_better(p);
    }
    return verdict;
}

/* Runs the turn of a form. A search on blocks depends on which equals were joined, and on luck: half
 * of the turn is for one search, the rest for short ones on other blocks. The first turns on a target
 * are one search each, so that what can be proved is proved soon. False when further turns of the form
 * on this target are useless. */
static bool take_turn(Problem *p, Forms *f, int kind, int priority, int round, uint64_t seed, int64_t target)
{
    bool renews = kind != PACK_MERGE_NONE && priority > 0;
    int32_t jitter = f->blocks[kind].n * round / 16;
    int64_t dive = pack_search_dive(f->search[kind]), left = steps_left(p);
    int64_t limit = FIRST_LIMIT > 2 * dive ? FIRST_LIMIT : 2 * dive;
    limit = limit < left >> round ? limit << round : left;
    int64_t end = p->budget.steps + limit, first = renews ? limit / 2 : limit;
    PackVerdict verdict = run_search(p, f, kind, priority, jitter, seed, first, target);
    if (verdict == PACK_NONE && kind == PACK_MERGE_NONE) {
        raise_bound(p, target);
        return false;
    }
    while (renews && verdict != PACK_FOUND && p->budget.steps < end && !finished(p) &&
           renew_form(p, f, kind, ++seed))
        verdict = run_search(p, f, kind, priority, jitter, seed, limit / RESTARTS, target);
    return true;
}

/* Runs all forms and priorities on one target; false: no form can be searched. */
static bool run_searches(Problem *p, Forms *f, int round, uint64_t seed, int64_t target)
{
    bool useful = false;
    bool open[PACK_MERGE_KINDS];
    for (int kind = 0; kind < PACK_MERGE_KINDS; kind++) {
        open[kind] = f->search[kind];
        useful = useful || open[kind];
    }
    int64_t bound = p->bound, arena = p->arena;
    for (int priority = 0; priority < PACK_PRIORITIES; priority++) {
        for (int kind = 0; kind < PACK_MERGE_KINDS; kind++) {
            if (finished(p) || p->bound != bound || p->arena != arena)
                return useful;
            if (open[kind]) {
                uint64_t mixed = seed * 1000003 + (uint64_t)round * 31 + (uint64_t)priority;
                pack_random(&mixed);
                open[kind] = take_turn(p, f, kind, priority, round, mixed, target);
            }
        }
    }
    return useful;
}

/* Runs rounds of searches and lanes until nothing is left to do. */
static void search(Problem *p, PackGreedy *greedy, uint64_t seed)
{
    Forms forms = {0};
    make_forms(&forms, p);
    bool useful = true;
    int misses = 0;
    for (int round = 0; useful && round < MAX_ROUNDS && !finished(p); round++) {
        useful = run_searches(p, &forms, round, seed, first_target(p));
        if (!finished(p)) {
            int64_t arena = p->arena;
            run_searches(p, &forms, round, seed, next_target(p, misses));
            misses = p->arena < arena ? 0 : misses + 1;
        }
        run_lanes(p, greedy);
    }
    free_forms(&forms);
}

static void solve(Problem *p, uint64_t seed)
{
    PackGreedy *greedy = pack_greedy_new(p->item, p->items);
    run_lanes(p, greedy);
    if (!finished(p))
        search(p, greedy, seed);
    pack_greedy_free(greedy);
}

static void write_offsets(const Problem *p, PackBuffer *buffers)
{
    for (int32_t i = 0; i < p->n; i++)
        if (buffers[i].size == 0 && buffers[i].offset < 0)
            buffers[i].offset = 0;
    for (int32_t i = 0; i < p->items; i++)
        buffers[p->buffer[i]].offset = offset_in_bytes(p, i, p->best);
}

bool pack_solve(PackBuffer *buffers, int32_t n, const PackOptions *opt, PackResult *result,
                char err[PACK_ERR_SIZE])
{
    static const PackOptions none;
    const PackOptions *o = opt ? opt : &none;
    double start = clock_seconds();
    int64_t steps = o->max_steps > 0 ? o->max_steps : INT64_C(1000000) * DEFAULT_MEGASTEPS;
    bool timed = o->time_limit_s > 0;
    Problem p = {.buffers = buffers,
                 .n = n,
                 .align = o->align > 0 ? o->align : 1,
                 .capacity = o->capacity,
                 .close_steps = steps / GOOD_EFFORT,
                 .budget = {.max_steps = timed && o->max_steps <= 0 ? INT64_MAX / 4 : steps,
                            .deadline = timed ? start + o->time_limit_s : 0}};
    *result = (PackResult){0};
    if (!check_sizes(buffers, n, p.align, err) || !check_fixed(buffers, n, err))
        return false;
    set_up(&p);
    solve(&p, o->seed);
    result->max_load = pack_max_load(buffers, n);
    result->bound = p.bound_bytes;
    result->steps = p.budget.steps;
    result->arena = p.arena;
    result->fits = o->capacity <= 0 || p.arena <= o->capacity;
    write_offsets(&p, buffers);
    result->seconds = clock_seconds() - start;
    tear_down(&p);
    return true;
}
