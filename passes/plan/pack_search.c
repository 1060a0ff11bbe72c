/* pack_search.c -- exact search for offsets within a capacity.
 *
 * Lifetimes are reduced to sections: the steps whose live sets are maximal. Buffers overlap
 * exactly if they share a section. The search places buffers bottom up, every one at the
 * lowest offset that the buffers below it allow, in order of rising offsets (a canonical
 * solution; any solution can be pushed down into one). After Moffitt, MiniMalloc: A
 * Lightweight Memory Allocator for Hardware-Accelerated Machine Learning (ASPLOS 2023).
 *
 * State: lowest[i], the least offset left to an unplaced buffer i, and rest[s], the bytes
 * of unplaced buffers in section s. The next buffer of section s starts no lower than
 *     floor(s) = min lowest[i] over the unplaced i in s,  floor(s) + rest(s) <= capacity
 * must hold, and a buffer that starts too high to be next in a section (lowest[i] + rest(s)
 * > capacity) lies on another one there: lowest[i] >= min (lowest[j] + size[j]) over the j
 * in s. Sections whose buffers moved are looked at again.
 *
 * Branching is binary: the buffer that can lie lowest does lie there, or it does not, and
 * then it rests on an unplaced neighbour, which raises its lowest[] and often refutes the
 * node at once. The lowest goes first, so whatever fits below another is placed below it
 * (dominance). Unplaced buffers that fall into groups sharing no section are solved one
 * group after the other, and failure of one group fails all.
 *
 * Fixed buffers start with lowest[] at their place and fail when it rises above.
 * A node costs O(unplaced buffers + members of the sections looked at). */
#include "pack_internal.h"
#include "ir/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { LOOKS_PER_SECTION = 4 };

typedef struct Item {
    int64_t size, lowest;
    int32_t first, last; /* sections that it is live in */
    int32_t rank;        /* among equals the smallest goes first */
    bool fixed, placed;
} Item;

typedef struct Change {
    int32_t item;
    int64_t lowest; /* its value before the change */
} Change;

struct PackSearch {
    int32_t n, sections;
    Item *item;
    int64_t *place;    /* per item: its fixed place, or 0 */
    int32_t *by_first; /* items sorted by first section */
    int32_t *open;     /* the unplaced ones of by_first, groups side by side */
    int64_t *load;     /* per section: bytes of all its items */
    int64_t *rest;     /* per section: bytes still to be placed */
    int32_t *member;   /* items of section c: member[start[c]] .. member[start[c+1]-1] */
    int32_t *start;
    int32_t *queue; /* sections still to check, a stack */
    bool *queued;
    int32_t waiting;   /* sections in the queue */
    bool conflict;     /* a fixed buffer has been lifted */
    double *weight[3]; /* per item, by which priorities sort: load, area, lifetime */
    struct Key *key;
    Change *trail;
    size_t changes, room;

    int64_t capacity, steps, step_limit;
    int64_t *offset;
    PackBudget *budget;
    bool stopped;
};

/* ---- building ---------------------------------------------------------------------- */

typedef struct Event {
    int32_t step, item;
    bool start;
} Event;

static int compare_events(const void *pa, const void *pb)
{
    const Event *a = pa, *b = pb;
    if (a->step != b->step)
        return a->step < b->step ? -1 : 1;
    if (a->start != b->start)
        return a->start ? 1 : -1;
    return (a->item > b->item) - (a->item < b->item);
}

/* Finds the sections: a live set is maximal where an end follows a start. */
static void find_sections(PackSearch *s, const PackBuffer *buffers)
{
    Event *events = mem_new(2 * (size_t)s->n + 1, sizeof *events);
    for (int32_t i = 0; i < s->n; i++) {
        events[2 * i] = (Event){buffers[i].lower, i, true};
        events[2 * i + 1] = (Event){buffers[i].upper, i, false};
    }
    qsort(events, 2 * (size_t)s->n, sizeof *events, compare_events);
    int32_t count = 0, opened = 0;
    bool grew = false;
    for (int32_t k = 0; k < 2 * s->n; k++) {
        Item *item = &s->item[events[k].item];
        if (events[k].start) {
            item->first = count;
            s->by_first[opened++] = events[k].item;
            grew = true;
        } else {
            count += grew;
            item->last = count - 1;
            grew = false;
        }
    }
    s->sections = count;
    free(events);
}

static void list_members(PackSearch *s)
{
    s->start = mem_new((size_t)s->sections + 2, sizeof *s->start);
    for (int32_t i = 0; i < s->n; i++) {
        for (int32_t c = s->item[i].first; c <= s->item[i].last; c++) {
            s->start[c + 2]++;
            s->load[c] += s->item[i].size;
        }
    }
    for (int32_t c = 0; c < s->sections; c++)
        s->start[c + 2] += s->start[c + 1];
    s->member = mem_new((size_t)s->start[s->sections + 1] + 1, sizeof *s->member);
    for (int32_t i = 0; i < s->n; i++)
        for (int32_t c = s->item[i].first; c <= s->item[i].last; c++)
            s->member[s->start[c + 1]++] = i;
}

static void weigh(PackSearch *s, const PackBuffer *buffers)
{
    for (int32_t i = 0; i < s->n; i++) {
        int64_t load = 0;
        for (int32_t c = s->item[i].first; c <= s->item[i].last; c++)
            load = s->load[c] > load ? s->load[c] : load;
        double lifetime = (double)buffers[i].upper - (double)buffers[i].lower;
        s->weight[0][i] = (double)load;
        s->weight[1][i] = (double)buffers[i].size * lifetime;
        s->weight[2][i] = lifetime;
    }
}

typedef struct Key {
    double weight[3];
    int32_t item;
    int32_t place; /* in the order, later disturbed by the jitter */
} Key;

static void build(PackSearch *s, const PackBuffer *buffers)
{
    size_t n = (size_t)s->n + 1;
    s->item = mem_new(n, sizeof *s->item);
    s->place = mem_new(n, sizeof *s->place);
    s->by_first = mem_new(n, sizeof *s->by_first);
    s->open = mem_new(n, sizeof *s->open);
    s->key = mem_new(n, sizeof *s->key);
    for (int w = 0; w < 3; w++)
        s->weight[w] = mem_new(n, sizeof *s->weight[w]);
    for (int32_t i = 0; i < s->n; i++) {
        s->item[i].size = buffers[i].size;
        s->item[i].fixed = buffers[i].offset >= 0;
        s->place[i] = s->item[i].fixed ? buffers[i].offset : 0;
    }
    find_sections(s, buffers);
    size_t sections = (size_t)s->sections + 1;
    s->load = mem_new(sections, sizeof *s->load);
    s->rest = mem_new(sections, sizeof *s->rest);
    s->queue = mem_new(sections, sizeof *s->queue);
    s->queued = mem_new(sections, sizeof *s->queued);
    list_members(s);
    weigh(s, buffers);
}

PackSearch *pack_search_new(const PackBuffer *buffers, int32_t n)
{
    assert(n <= PACK_SEARCH_MAX);
    PackSearch *s = mem_new(1, sizeof *s);
    s->n = n;
    build(s, buffers);
    return s;
}

void pack_search_free(PackSearch *s)
{
    if (!s)
        return;
    MEM_FREE(s->item, s->place, s->by_first, s->open, s->key, s->weight[0], s->weight[1], s->weight[2],
             s->load, s->rest, s->member, s->start, s->queue, s->queued, s->trail, s);
}

int64_t pack_search_dive(const PackSearch *s)
{
    int64_t node = 0;
    for (int32_t i = 0; i < s->n; i++)
        node += 1 + s->item[i].last - s->item[i].first + 1;
    return node / 2 * s->n;
}

/* ---- priorities -------------------------------------------------------------------- */

/* Per priority: the weights that decide first, second and third. */
static const int priority_order[PACK_PRIORITIES][3] = {
    {2, 1, 0}, {0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1},
};

static int compare_keys(const void *pa, const void *pb)
{
    const Key *a = pa, *b = pb;
    for (int w = 0; w < 3; w++)
        if (a->weight[w] != b->weight[w])
            return a->weight[w] > b->weight[w] ? -1 : 1;
    return (a->item > b->item) - (a->item < b->item);
}

static int compare_places(const void *pa, const void *pb)
{
    const Key *a = pa, *b = pb;
    int c = (a->place > b->place) - (a->place < b->place);
    return c ? c : (a->item > b->item) - (a->item < b->item);
}

static void set_ranks(PackSearch *s, int priority, int32_t jitter, uint64_t seed)
{
    for (int32_t i = 0; i < s->n; i++) {
        s->key[i].item = i;
        for (int w = 0; w < 3; w++)
            s->key[i].weight[w] = s->weight[priority_order[priority][w]][i];
    }
    qsort(s->key, (size_t)s->n, sizeof *s->key, compare_keys);
    for (int32_t k = 0; k < s->n; k++) {
        uint64_t shift = pack_random(&seed) % ((uint64_t)jitter + 1);
        s->key[k].place = k + (int32_t)shift;
    }
    qsort(s->key, (size_t)s->n, sizeof *s->key, compare_places);
    for (int32_t k = 0; k < s->n; k++)
        s->item[s->key[k].item].rank = k;
}

/* ---- propagation ------------------------------------------------------------------- */

static void enqueue(PackSearch *s, const Item *it)
{
    bool *queued = s->queued;
    int32_t *queue = s->queue, waiting = s->waiting;
    for (int32_t c = it->first, last = it->last; c <= last; c++) {
        if (!queued[c]) {
            queued[c] = true;
            queue[waiting++] = c;
        }
    }
    s->waiting = waiting;
}

/* Raises lowest[i], to be undone by rewind_to(), and queues its sections. */
static void raise_lowest(PackSearch *s, int32_t i, int64_t lowest)
{
    if (s->changes == s->room) {
        size_t room = s->room ? 2 * s->room : 1024;
        s->trail = mem_grow(s->trail, room, sizeof *s->trail);
        s->room = room;
    }
    Item *it = &s->item[i];
    s->trail[s->changes++] = (Change){i, it->lowest};
    it->lowest = lowest;
    s->conflict = s->conflict || (it->fixed && lowest > s->place[i]);
    enqueue(s, it);
}

static void rewind_to(PackSearch *s, size_t mark)
{
    while (s->changes > mark) {
        const Change *c = &s->trail[--s->changes];
        s->item[c->item].lowest = c->lowest;
    }
}

static void take_steps(PackSearch *s, int64_t steps)
{
    s->steps += steps;
    if (!pack_spend(s->budget, steps) || s->steps > s->step_limit)
        s->stopped = true;
}

/* Checks section c: false when it cannot hold its unplaced bytes. Lifts buffers that cannot
 * be next there onto one that can, if `lifting`. */
static bool look_at(PackSearch *s, int32_t c, bool lifting)
{
    const int32_t *members = s->member + s->start[c];
    const Item *item = s->item;
    int32_t n = s->start[c + 1] - s->start[c];
    int64_t floor = INT64_MAX, next = INT64_MAX, highest = s->capacity - s->rest[c], top = INT64_MIN;
    for (int32_t k = 0; k < n; k++) {
        const Item *it = item + members[k];
        if (!it->placed) {
            int64_t lowest = it->lowest, end = lowest + it->size;
            floor = lowest < floor ? lowest : floor;
            top = lowest > top ? lowest : top;
            next = end < next ? end : next;
        }
    }
    if (s->rest[c] && floor > highest)
        return false;
    bool lift = lifting && top > highest;
    for (int32_t k = 0; lift && k < n; k++) {
        const Item *it = item + members[k];
        if (!it->placed && it->lowest > highest && it->lowest < next)
            raise_lowest(s, members[k], next);
    }
    return true;
}

/* Works the queue off; false when the unplaced buffers have no solution. Two sections can
 * lift each other by small amounts for long, so lifting ends after some looks. */
static bool propagate(PackSearch *s)
{
    int64_t steps = 0, looks = 0, most_looks = LOOKS_PER_SECTION * (int64_t)s->sections;
    bool ok = true;
    while (ok && s->waiting > 0 && !s->conflict) {
        int32_t c = s->queue[--s->waiting];
        s->queued[c] = false;
        ok = look_at(s, c, looks++ < most_looks);
        steps += 2 * (s->start[c + 1] - s->start[c]);
    }
    ok = ok && !s->conflict;
    while (s->waiting > 0)
        s->queued[s->queue[--s->waiting]] = false;
    s->conflict = false;
    take_steps(s, steps);
    return ok && !s->stopped;
}

/* ---- search ------------------------------------------------------------------------ */

/* The position in `group` of the buffer to branch on. */
static int32_t choose(const PackSearch *s, const int32_t *group, int32_t n)
{
    int32_t best = 0;
    for (int32_t k = 1; k < n; k++) {
        const Item *a = &s->item[group[k]], *b = &s->item[group[best]];
        if (a->lowest < b->lowest || (a->lowest == b->lowest && a->rank < b->rank))
            best = k;
    }
    return best;
}

/* Lifts the buffers that overlap `i`, placed at its lowest; returns the least offset at which
 * i could have rested on one of these instead, INT64_MAX where there is none. */
static int64_t put_below(PackSearch *s, const int32_t *group, int32_t n, int32_t i)
{
    const Item *it = &s->item[i];
    int64_t top = it->lowest + it->size, alternative = INT64_MAX;
    for (int32_t k = 0; k < n; k++) {
        const Item *other = &s->item[group[k]];
        if (other->first <= it->last && it->first <= other->last) {
            int64_t end = other->lowest + other->size;
            alternative = end < alternative ? end : alternative;
            if (other->lowest < top)
                raise_lowest(s, group[k], top);
        }
    }
    return alternative;
}

static void set_placed(PackSearch *s, Item *it, bool placed)
{
    it->placed = placed;
    for (int32_t c = it->first; c <= it->last; c++)
        s->rest[c] += placed ? -it->size : it->size;
}

static bool solve_group(PackSearch *s, int32_t *group, int32_t n);

/* Solves the groups of `open`, sorted by first section, that share no section. */
static bool solve_groups(PackSearch *s, int32_t *open, int32_t n)
{
    for (int32_t from = 0, to; from < n; from = to) {
        int32_t reach = s->item[open[from]].last;
        for (to = from + 1; to < n && s->item[open[to]].first <= reach; to++) {
            int32_t l = s->item[open[to]].last;
            reach = l > reach ? l : reach;
        }
        if (!solve_group(s, open + from, to - from))
            return false;
    }
    return true;
}

/* Solves one group. When it is called everything is propagated; when it returns, `group` is
 * as before. */
static bool solve_group(PackSearch *s, int32_t *group, int32_t n)
{
    size_t mark = s->changes;
    bool possible = true;
    while (possible) {
        int32_t k = choose(s, group, n);
        int32_t i = group[k];
        Item *it = &s->item[i];
        s->offset[i] = it->lowest;
        if (n == 1)
            return true;
        take_steps(s, n);
        size_t before = s->changes;
        memmove(group + k, group + k + 1, (size_t)(n - 1 - k) * sizeof *group);
        set_placed(s, it, true);
        int64_t alternative = put_below(s, group, n - 1, i);
        enqueue(s, it);
        bool solved = propagate(s) && solve_groups(s, group, n - 1);
        set_placed(s, it, false);
        memmove(group + k + 1, group + k, (size_t)(n - 1 - k) * sizeof *group);
        group[k] = i;
        if (solved)
            return true;
        rewind_to(s, before);
        if (s->stopped || alternative == INT64_MAX)
            break; /* nothing lies above it: another place for it would not have helped */
        raise_lowest(s, i, alternative);
        possible = propagate(s);
    }
    rewind_to(s, mark);
    return false;
}

PackVerdict pack_search_run(PackSearch *s, int64_t capacity, int priority, int32_t jitter, uint64_t seed,
                            int64_t step_limit, int64_t *offset, PackBudget *budget)
{
    set_ranks(s, priority, jitter, seed);
    for (int32_t i = 0; i < s->n; i++) {
        s->item[i].lowest = s->place[i];
        enqueue(s, &s->item[i]);
    }
    memcpy(s->open, s->by_first, (size_t)s->n * sizeof *s->open);
    memcpy(s->rest, s->load, (size_t)s->sections * sizeof *s->rest);
    s->capacity = capacity;
    s->conflict = false;
    s->steps = 0;
    s->step_limit = step_limit;
    s->offset = offset;
    s->budget = budget;
    s->changes = 0;
    s->stopped = false;
    bool found = propagate(s) && solve_groups(s, s->open, s->n);
    return found ? PACK_FOUND : s->stopped ? PACK_UNKNOWN : PACK_NONE;
}
