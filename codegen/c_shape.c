/* c_shape.c -- how the loops of a C kernel are cut: items, blocks, lanes, chunks.
 *
 * Everything here follows from the shape alone, so that results do not depend on the machine.  The order of
 * sums does not depend on a kernel's other results either: when it is run again it may make fewer. */
#include "c_int.h"

enum {
    ROW_LANES = 64,      /* accumulators along a row */
    COLUMNS = 256,       /* least columns of a block */
    MOST_COLUMNS = 1024, /* most columns of a block; longer stretches of memory are read faster */
    LEAST_ITEMS = 8,     /* items that must remain for the threads when blocks are widened */
    FLAT_BLOCK = 4096,   /* elements of a pointwise item */
    TILE_BLOCK = 64,     /* elements along the vector dimension of a pointwise item that has a tile */
    FEW_ITEMS = 32,      /* with fewer rows than this the reduced range is cut into chunks */
    CHUNK_ROW = 8192,    /* least reduced points of a chunk of a row */
    CHUNK_COLUMN = 256,  /* least reduced points of a chunk of columns */
    MAX_CHUNKS = 64,
    SCRATCH = 32768, /* most partial results of a reduction */
    LEAST_BLOCK = 32, /* least values added one after the other where there are more */
    HEAVY = 16,      /* cost of a function like exp, in simple operations */
};

static bool reduces(const Sched *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (s->live[i] && k_reduces(&s->ins[i]))
            return true;
    return false;
}

/* Simple operations per point of the space. */
static int64_t work_per_point(const Sched *s)
{
    int64_t n = 0;
    for (uint32_t i = 0; i < s->n; i++)
        n += !s->live[i] ? 0 : sched_is_heavy(&s->ins[i]) ? HEAVY : 1;
    return n;
}

static void choose_chunks(Printer *pr)
{
    const Sched *s = pr->s;
    bool row = s->kind == SCHED_ROW;
    int64_t results = s->nitem * (row ? 1 : s->extent[s->vec]);
    pr->cut = 0;
    while (!(s->red >> pr->cut & 1))
        pr->cut++;
    if (!reduces(s) || results == 0 || (row && results >= FEW_ITEMS))
        return;
    int64_t n = s->nred / (row ? CHUNK_ROW : CHUNK_COLUMN);
    int64_t room = SCRATCH / results;
    n = n < MAX_CHUNKS ? n : MAX_CHUNKS;
    n = n < room ? n : room;
    int64_t unit = row && pr->cut == s->vec ? pr->lanes : 1;
    int64_t steps = ceil_div(s->extent[pr->cut], unit);
    n = n < steps ? n : steps;
    if (n < 2)
        return;
    pr->chunk = ceil_div(steps, n) * unit;
    pr->chunks = ceil_div(s->extent[pr->cut], pr->chunk);
}

/* Iterations of the loop over a reduced dimension. */
static int64_t iterations(const Printer *pr, int d)
{
    int64_t n = pr->chunks && d == pr->cut ? pr->chunk : pr->s->extent[d];
    return d == pr->s->vec ? n / pr->lanes : n;
}

/* Cuts the innermost loop that is long enough into blocks, which are summed each for itself, of about the
 * square root of all values that an accumulator sums: the error grows with the length of a block and the
 * number of blocks, not with their product (N. Higham, Accuracy and Stability of Numerical Algorithms,
 * 4.2). */
static void choose_step(Printer *pr)
{
    const Sched *s = pr->s;
    int64_t block = LEAST_BLOCK, inner = 1, all = 1;
    for (int d = 0; d < s->rank; d++)
        if (s->red >> d & 1)
            all *= iterations(pr, d);
    while (block * block < all)
        block *= 2;
    for (int d = s->rank; d-- > 0 && reduces(s) && pr->summed < 0;) {
        if (!(s->red >> d & 1))
            continue;
        if (inner * iterations(pr, d) >= 2 * block) {
            pr->summed = d;
            pr->step = ceil_div(block, inner);
        }
        inner *= iterations(pr, d);
    }
}

static void set_width(Printer *pr, int64_t width)
{
    const Sched *s = pr->s;
    int64_t n = s->extent[s->vec];
    pr->width = n < width ? n > 0 ? n : 1 : width;
    pr->blocks = ceil_div(n, pr->width);
    pr->items = s->nitem * pr->blocks;
}

/* Doubles the columns of a block while enough items remain; the order of sums does not depend on it. */
static void widen_columns(Printer *pr)
{
    int64_t chunks = pr->chunks ? pr->chunks : 1;
    while (pr->width < MOST_COLUMNS && pr->blocks > 1 && pr->items * chunks >= 2 * LEAST_ITEMS)
        set_width(pr, 2 * pr->width);
}

void c_choose_loops(Printer *pr)
{
    const Sched *s = pr->s;
    int64_t n = s->extent[s->vec], points = s->nitem * s->nred;
    pr->blocks = pr->width = pr->tiles = 1;
    pr->items = s->nitem;
    if (s->kind == SCHED_ROW) {
        for (pr->lanes = ROW_LANES; pr->lanes > n && pr->lanes > 1;)
            pr->lanes /= 2;
    } else {
        set_width(pr, s->kind == SCHED_COLUMN ? COLUMNS : s->tile >= 0 ? TILE_BLOCK : FLAT_BLOCK);
        points *= n;
    }
    if (s->tile >= 0) {
        pr->tiles = ceil_div(s->extent[s->tile], TILE);
        pr->items = pr->items / s->extent[s->tile] * pr->tiles;
    }
    pr->parallel = points * work_per_point(s) >= PARALLEL_WORK;
    pr->summed = -1;
    if (s->red) {
        choose_chunks(pr);
        choose_step(pr);
    }
    if (s->kind == SCHED_COLUMN && s->tile < 0)
        widen_columns(pr);
}
