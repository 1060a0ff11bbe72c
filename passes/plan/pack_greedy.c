/* pack_greedy.c -- greedy orders with feedback: first and best fit, squeaky wheel.
 *
 * A pass places the buffers in some order, each into the first or the tightest gap between
 * the buffers already placed that it meets in time. A lane is a base order and a fit that
 * is run again and again: buffers that ended above the target are blamed, and the next
 * pass places all blamed buffers first, large ones foremost (Joslin and Clements, Squeaky
 * Wheel Optimization, 1999).
 *
 * Placed buffers are kept in one array sorted by offset. An order that follows time needs
 * only the live ones: the others are dropped as it goes on, which makes a pass O(n * live)
 * there, O(n^2) simple comparisons in the other orders. */
#include "pack_internal.h"
#include "ir/mem.h"

#include <stdlib.h>
#include <string.h>

typedef enum Order { BY_START, BY_END, BY_SIZE, BY_AREA, ORDERS } Order;

typedef struct Lane {
    Order order;
    bool best_fit;
} Lane;

/* The lanes, good and cheap ones first. */
static const Lane lanes[PACK_LANES] = {
    {BY_START, true}, {BY_START, false}, {BY_SIZE, true}, {BY_SIZE, false},
    {BY_END, true},   {BY_END, false},   {BY_AREA, true}, {BY_AREA, false},
};

typedef struct Placed {
    int64_t from, to;
    int32_t lower, upper;
} Placed;

struct PackGreedy {
    const PackBuffer *buffers;
    int32_t n;
    int32_t *order[ORDERS];
    bool *blamed[PACK_LANES];
    bool done[PACK_LANES];
    Placed *placed;
    int32_t count; /* number of placed buffers */
};

/* ---- orders ------------------------------------------------------------------------ */

typedef struct Key {
    double first, second; /* descending */
    int32_t index;
} Key;

static int compare_keys(const void *pa, const void *pb)
{
    const Key *a = pa, *b = pb;
    if (a->first != b->first)
        return a->first > b->first ? -1 : 1;
    if (a->second != b->second)
        return a->second > b->second ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index);
}

static Key key_of(const PackBuffer *b, int32_t i, Order order)
{
    double size = (double)b->size, lower = b->lower, upper = b->upper;
    switch (order) {
    case BY_START:
        return (Key){-lower, upper, i};
    case BY_END:
        return (Key){upper, -lower, i};
    case BY_SIZE:
        return (Key){size, -lower, i};
    default:
        return (Key){size * (upper - lower), -lower, i};
    }
}

static void sort_order(PackGreedy *g, Order order, Key *key)
{
    for (int32_t i = 0; i < g->n; i++)
        key[i] = key_of(&g->buffers[i], i, order);
    qsort(key, (size_t)g->n, sizeof *key, compare_keys);
    for (int32_t i = 0; i < g->n; i++)
        g->order[order][i] = key[i].index;
}

PackGreedy *pack_greedy_new(const PackBuffer *buffers, int32_t n)
{
    PackGreedy *g = mem_new(1, sizeof *g);
    Key *key = mem_new((size_t)n + 1, sizeof *key);
    g->buffers = buffers;
    g->n = n;
    g->placed = mem_new((size_t)n + 1, sizeof *g->placed);
    for (int o = 0; o < ORDERS; o++) {
        g->order[o] = mem_new((size_t)n + 1, sizeof *g->order[o]);
        sort_order(g, (Order)o, key);
    }
    for (int l = 0; l < PACK_LANES; l++)
        g->blamed[l] = mem_new((size_t)n + 1, sizeof *g->blamed[l]);
    free(key);
    return g;
}

void pack_greedy_free(PackGreedy *g)
{
    for (int o = 0; o < ORDERS; o++)
        free(g->order[o]);
    for (int l = 0; l < PACK_LANES; l++)
        free(g->blamed[l]);
    free(g->placed);
    free(g);
}

/* ---- placing ----------------------------------------------------------------------- */

static void insert(PackGreedy *g, const PackBuffer *b, int64_t offset)
{
    int32_t low = 0, high = g->count;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (g->placed[middle].from < offset)
            low = middle + 1;
        else
            high = middle;
    }
    Placed *at = &g->placed[low];
    memmove(at + 1, at, (size_t)(g->count - low) * sizeof *at);
    *at = (Placed){offset, offset + b->size, b->lower, b->upper};
    g->count++;
}

/* An offset for `b`: the first gap that holds it, or the tightest one; the space between
 * the highest buffer and the target counts as a gap. */
static int64_t find_gap(const PackGreedy *g, const PackBuffer *b, bool best_fit,
                        int64_t target, PackBudget *budget)
{
    int64_t top = 0, offset = -1, tightest = INT64_MAX;
    int32_t k;
    for (k = 0; k < g->count; k++) {
        const Placed *p = &g->placed[k];
        if (p->lower >= b->upper || p->upper <= b->lower)
            continue;
        int64_t gap = p->from - top;
        if (gap >= b->size && gap < tightest) {
            tightest = gap;
            offset = top;
            if (gap == b->size || !best_fit)
                break;
        }
        top = p->to > top ? p->to : top;
    }
    pack_spend(budget, k);
    if (offset < 0 || (k == g->count && target - top >= b->size && target - top < tightest))
        offset = top;
    return offset;
}

/* Forgets placed buffers that cannot meet those that start at `step` or later (BY_START), or
 * end at `step` or earlier (BY_END). */
static void drop_dead(PackGreedy *g, Order order, int32_t step)
{
    int32_t kept = 0;
    for (int32_t k = 0; k < g->count; k++) {
        const Placed *p = &g->placed[k];
        if (order == BY_START ? p->upper > step : p->lower < step)
            g->placed[kept++] = *p;
    }
    g->count = kept;
}

typedef struct Pass {
    Lane lane;
    int64_t target, arena;
    int64_t *offset;
    PackBudget *budget;
} Pass;

static void place(PackGreedy *g, Pass *pass, int32_t i)
{
    const PackBuffer *b = &g->buffers[i];
    int64_t offset = b->offset;
    if (offset < 0)
        offset = find_gap(g, b, pass->lane.best_fit, pass->target, pass->budget);
    insert(g, b, offset);
    pass->offset[i] = offset;
    pass->arena = offset + b->size > pass->arena ? offset + b->size : pass->arena;
}

/* Places the fixed buffers, then the blamed ones by size. */
static void place_first(PackGreedy *g, Pass *pass, const bool *blamed)
{
    for (int32_t i = 0; i < g->n; i++)
        if (g->buffers[i].offset >= 0)
            place(g, pass, i);
    for (int32_t k = 0; k < g->n; k++) {
        int32_t i = g->order[BY_SIZE][k];
        if (blamed[i])
            place(g, pass, i);
    }
}

static void place_others(PackGreedy *g, Pass *pass, const bool *blamed)
{
    Order order = pass->lane.order;
    bool follows_time = order == BY_START || order == BY_END;
    int32_t crowded = 64;
    for (int32_t k = 0; k < g->n; k++) {
        int32_t i = g->order[order][k];
        if (blamed[i] || g->buffers[i].offset >= 0)
            continue;
        if (follows_time && g->count >= crowded) {
            drop_dead(g, order, order == BY_START ? g->buffers[i].lower : g->buffers[i].upper);
            crowded = g->count + g->count / 4 + 64;
        }
        place(g, pass, i);
    }
}

int64_t pack_greedy_pass(PackGreedy *g, int lane, int64_t target, int64_t *offset, PackBudget *budget)
{
    bool *blamed = g->blamed[lane];
    Pass pass = {lanes[lane], target, 0, offset, budget};
    g->count = 0;
    place_first(g, &pass, blamed);
    place_others(g, &pass, blamed);
    g->done[lane] = true;
    for (int32_t i = 0; i < g->n; i++) {
        if (offset[i] + g->buffers[i].size > target && g->buffers[i].offset < 0 && !blamed[i]) {
            blamed[i] = true;
            g->done[lane] = false;
        }
    }
    return pass.arena;
}

bool pack_greedy_done(const PackGreedy *g, int lane) { return g->done[lane]; }
