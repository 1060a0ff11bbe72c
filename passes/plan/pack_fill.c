/* pack_fill.c -- dummies that fill the arena up to the maximum load at every step.
 *
 * With them an instance has no slack and any answer is a tiling of a rectangle. That helps
 * blocks (pack_merge.c) across the steps where the load changes: what stays free after a
 * buffer has gone is one dummy, which ends when as many bytes start again, and which takes
 * part in merging like any buffer. Which free bytes a newcomer takes is a guess (a dummy of
 * just its size, else the youngest; with a seed, any), so answers may be lost; answers found
 * are valid.
 *
 * O(n log n + n * open dummies). */
#include "pack_internal.h"
#include "ir/mem.h"

#include <stdlib.h>
#include <string.h>

typedef struct Event {
    int32_t step;
    int64_t change; /* change of the load */
} Event;

typedef struct Fill {
    PackBuffer *dummy; /* the closed dummies */
    PackBuffer *open;
    int32_t dummies, opened;
    uint64_t seed;
} Fill;

static int compare_events(const void *pa, const void *pb)
{
    const Event *a = pa, *b = pb;
    return (a->step > b->step) - (a->step < b->step);
}

static void open_dummy(Fill *f, int64_t size, int32_t step)
{
    f->open[f->opened++] = (PackBuffer){size, step, step, -1};
}

/* Closes the open dummy k at `step`; one that never lived is dropped. */
static PackBuffer close_dummy(Fill *f, int32_t k, int32_t step)
{
    PackBuffer d = f->open[k];
    f->opened--;
    memmove(f->open + k, f->open + k + 1, (size_t)(f->opened - k) * sizeof *f->open);
    d.upper = step;
    if (d.lower < step)
        f->dummy[f->dummies++] = d;
    return d;
}

/* The open dummy to give back for `bytes`: one of just its size, else the youngest; with a seed,
 * any. */
static int32_t choose_dummy(Fill *f, int64_t bytes)
{
    int32_t first = f->opened - 1;
    if (f->seed)
        first = (int32_t)(pack_random(&f->seed) % (uint64_t)f->opened);
    for (int32_t i = 0; i < f->opened; i++) {
        int32_t k = first >= i ? first - i : first - i + f->opened;
        if (f->open[k].size == bytes)
            return k;
    }
    return first;
}

/* Gives `bytes` of the open dummies back to the buffers that start at `step`. */
static void give_back(Fill *f, int64_t bytes, int32_t step)
{
    while (bytes > 0) {
        int32_t k = choose_dummy(f, bytes);
        PackBuffer d = close_dummy(f, k, step);
        if (d.size > bytes)
            open_dummy(f, d.size - bytes, step);
        bytes -= d.size < bytes ? d.size : bytes;
    }
}

static void sweep(Fill *f, const Event *event, int32_t events, int64_t max_load)
{
    open_dummy(f, max_load, event[0].step);
    for (int32_t k = 0; k < events;) {
        int32_t step = event[k].step;
        int64_t change = 0;
        for (; k < events && event[k].step == step; k++)
            change += event[k].change;
        if (k == events) { /* the end of the last buffer: nothing is left to fill */
            while (f->opened > 0)
                close_dummy(f, f->opened - 1, step);
        } else if (change > 0) {
            give_back(f, change, step);
        } else if (change < 0) {
            open_dummy(f, -change, step);
        }
    }
}

PackBuffer *pack_fill(const PackBuffer *buffers, int32_t n, uint64_t seed, int32_t *count)
{
    /* a step opens one dummy, and another where it closes a larger one */
    size_t room = 5 * (size_t)n + 1;
    PackBuffer *filled = mem_new(room, sizeof *filled);
    PackBuffer *open = mem_new(room, sizeof *open);
    Event *event = mem_new(2 * (size_t)n + 1, sizeof *event);
    int64_t max_load = pack_max_load(buffers, n);
    *count = n;
    if (n > 0) {
        memcpy(filled, buffers, (size_t)n * sizeof *filled);
        for (int32_t i = 0; i < n; i++) {
            event[2 * i] = (Event){buffers[i].lower, buffers[i].size};
            event[2 * i + 1] = (Event){buffers[i].upper, -buffers[i].size};
        }
        qsort(event, 2 * (size_t)n, sizeof *event, compare_events);
        Fill fill = {.dummy = filled + n, .open = open, .seed = seed};
        sweep(&fill, event, 2 * n, max_load);
        *count = n + fill.dummies;
    }
    free(open);
    free(event);
    return filled;
}
