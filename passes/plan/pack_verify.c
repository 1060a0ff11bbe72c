/* pack_verify.c -- referee of the static memory allocator: maximum load and overlap check.
 *
 * Shares no code with the allocator. A sweep over the steps keeps the live buffers sorted
 * by offset; while no two of them overlap, a newcomer needs to be compared with its two
 * neighbours only. The live set is a treap over the buffer indices with priorities hashed
 * from the index: O(n log n) expected, no allocation per buffer. */
#include "pack.h"
#include "ir/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct Event {
    int32_t step;
    int32_t buffer;
    bool start;
} Event;

/* Ends before starts: lifetimes are half open. */
static int compare_events(const void *pa, const void *pb)
{
    const Event *a = pa, *b = pb;
    if (a->step != b->step)
        return a->step < b->step ? -1 : 1;
    if (a->start != b->start)
        return a->start ? 1 : -1;
    return (a->buffer > b->buffer) - (a->buffer < b->buffer);
}

/* The start and end events of every buffer that is not empty, in time order. */
static Event *sorted_events(const PackBuffer *buffers, int32_t n, int32_t *count)
{
    Event *events = mem_new(2 * (size_t)n + 1, sizeof *events);
    int32_t m = 0;
    for (int32_t i = 0; i < n; i++) {
        if (buffers[i].size > 0 && buffers[i].lower < buffers[i].upper) {
            events[m++] = (Event){buffers[i].lower, i, true};
            events[m++] = (Event){buffers[i].upper, i, false};
        }
    }
    qsort(events, (size_t)m, sizeof *events, compare_events);
    *count = m;
    return events;
}

int64_t pack_max_load(const PackBuffer *buffers, int32_t n)
{
    int32_t count;
    Event *events = sorted_events(buffers, n, &count);
    int64_t load = 0, max = 0;
    for (int32_t k = 0; k < count; k++) {
        int64_t size = buffers[events[k].buffer].size;
        load += events[k].start ? size : -size;
        max = load > max ? load : max;
    }
    free(events);
    return max;
}

/* ---- the live set ------------------------------------------------------------------ */

typedef struct Treap {
    const PackBuffer *buffers;
    int32_t *left, *right; /* -1 = none */
    int32_t root;
} Treap;

static uint32_t priority(int32_t i)
{
    uint64_t h = ((uint64_t)(uint32_t)i + 1) * UINT64_C(0x9E3779B97F4A7C15);
    return (uint32_t)(h >> 32);
}

static int64_t offset_of(const Treap *t, int32_t i) { return t->buffers[i].offset; }

/* Splits the subtree `i` into offsets below `key` and the rest. */
static void split(Treap *t, int32_t i, int64_t key, int32_t *low, int32_t *high)
{
    while (i >= 0) {
        if (offset_of(t, i) < key) {
            *low = i;
            low = &t->right[i];
            i = *low;
        } else {
            *high = i;
            high = &t->left[i];
            i = *high;
        }
    }
    *low = *high = -1;
}

static void insert(Treap *t, int32_t i)
{
    int32_t *link = &t->root;
    while (*link >= 0 && priority(*link) >= priority(i))
        link = offset_of(t, *link) < offset_of(t, i) ? &t->right[*link] : &t->left[*link];
    split(t, *link, offset_of(t, i), &t->left[i], &t->right[i]);
    *link = i;
}

/* Removes buffer i, found by its offset: those of live buffers differ as long as none overlap. */
static void erase(Treap *t, int32_t i)
{
    int32_t *link = &t->root;
    while (*link != i)
        link = offset_of(t, *link) < offset_of(t, i) ? &t->right[*link] : &t->left[*link];
    int32_t a = t->left[i], b = t->right[i];
    while (a >= 0 && b >= 0) {
        if (priority(a) > priority(b)) {
            *link = a;
            link = &t->right[a];
            a = *link;
        } else {
            *link = b;
            link = &t->left[b];
            b = *link;
        }
    }
    *link = a >= 0 ? a : b;
}

/* A live buffer sharing a byte with `i`, or -1. */
static int32_t find_overlap(const Treap *t, int32_t i)
{
    int64_t from = offset_of(t, i), to = from + t->buffers[i].size;
    for (int32_t j = t->root; j >= 0;) {
        if (offset_of(t, j) >= to)
            j = t->left[j];
        else if (offset_of(t, j) + t->buffers[j].size <= from)
            j = t->right[j];
        else
            return j;
    }
    return -1;
}

/* ---- the check --------------------------------------------------------------------- */

static bool inside_arena(const PackBuffer *buffers, int32_t n, int64_t arena, char *err)
{
    for (int32_t i = 0; i < n; i++) {
        const PackBuffer *b = &buffers[i];
        if (b->size == 0)
            continue;
        if (b->size < 0 || b->offset < 0 || b->offset > arena || b->size > arena - b->offset) {
            snprintf(err, PACK_ERR_SIZE,
                     "buffer %" PRId32 ": %" PRId64 " bytes at %" PRId64
                     " are outside the arena of %" PRId64 " bytes",
                     i, b->size, b->offset, arena);
            return false;
        }
    }
    return true;
}

static bool sweep(const PackBuffer *buffers, const Event *events, int32_t count, Treap *live, char *err)
{
    for (int32_t k = 0; k < count; k++) {
        int32_t i = events[k].buffer;
        if (!events[k].start) {
            erase(live, i);
            continue;
        }
        int32_t j = find_overlap(live, i);
        if (j >= 0) {
            snprintf(err, PACK_ERR_SIZE,
                     "buffers %" PRId32 " [%" PRId64 ", %" PRId64 ") and %" PRId32 " [%" PRId64 ", %" PRId64
                     ") share bytes at step %" PRId32,
                     j, buffers[j].offset, buffers[j].offset + buffers[j].size, i, buffers[i].offset,
                     buffers[i].offset + buffers[i].size, events[k].step);
            return false;
        }
        insert(live, i);
    }
    return true;
}

bool pack_verify(const PackBuffer *buffers, int32_t n, int64_t arena, char err[PACK_ERR_SIZE])
{
    if (!inside_arena(buffers, n, arena, err))
        return false;
    int32_t count = 0;
    Event *events = sorted_events(buffers, n, &count);
    int32_t *links = mem_new(2 * (size_t)n + 1, sizeof *links);
    Treap live = {buffers, links, links + n, -1};
    bool ok = sweep(buffers, events, count, &live, err);
    free(events);
    free(links);
    return ok;
}
