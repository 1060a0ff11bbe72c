/* shadow.c -- keeps a cell for every 2 bytes: who wrote them last and who read them, and when.  Time goes on
 * at every barrier, block, launch and piece of work.  Accesses to single bytes are not checked for races. */
#include "shadow.h"
#include "warp.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Values of a cell's reader and writer: threads of SEVERAL warps; a flag, MATES: other threads of the
 * thread's warp as well; PENDING: a copy that has not landed. */
enum { SEVERAL = 0xFFFF, MATES = 0x4000, PENDING = 0xFFFE };
enum { MOST = 1024, GRAIN = 2, WARPS = 32, LANES = 32 };

typedef struct {
    uint32_t written, read; /* the last times; 0: never */
    uint32_t read_before;   /* the last time that another block read it */
    uint32_t
        read_beside; /* the last read, by work of another stream, that did not come before the next read */
    uint16_t writer, reader; /* a thread, or SEVERAL ... */
    uint16_t writer_syncs, reader_syncs; /* how often its warp had met by then */
    uint16_t held;      /* number of products of warpgroups that have still to read it */
    uint32_t fences;    /* number of fences there had been when it was written */
} Cell;

typedef struct {
    const char *at;
    size_t bytes;
    ShadowKind kind;
    Cell *cell; /* mapped, and zero where nobody looked; NULL: SHADOW_IGNORED */
} Range;

static Range range[MOST];
static unsigned nrange, last;
static const char *stack;
static size_t stack_bytes;
static uint32_t now = 1, block_start, launch_start;
static uint16_t syncs[WARPS];
/* How many fences (fence.proxy.async) there were, and per thread the number of its last one. */
static uint32_t fences, fenced[LANES * WARPS];

static size_t cell_bytes(size_t bytes) { return (bytes / GRAIN + 1) * sizeof(Cell); }

void shadow_add(const void *at, size_t bytes, ShadowKind kind)
{
    Range r = {at, bytes, kind, NULL};
    if (bytes == 0 || getenv("FAKE_CUDA_FAST"))
        return;
    if (kind != SHADOW_IGNORED)
        r.cell = mmap(NULL, cell_bytes(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (nrange == MOST || r.cell == MAP_FAILED)
        abort();
    range[nrange++] = r;
}

void shadow_remove(const void *at)
{
    for (unsigned i = nrange; i-- > 0;) {
        if (range[i].at != at)
            continue;
        if (range[i].cell)
            munmap(range[i].cell, cell_bytes(range[i].bytes));
        range[i] = range[--nrange];
    }
    last = 0;
}

bool shadow_used(void) { return nrange > 0; }

void shadow_add_object(const ShimMemory *m)
{
    if (!m)
        return; /* compiled without hooks */
    const char *hole = m->shared ? m->shared : m->image_end, *end = m->shared ? m->shared_end : m->image_end;
    shadow_add(m->image, (size_t)(hole - m->image), SHADOW_IGNORED);
    shadow_add(hole, (size_t)(end - hole), SHADOW_SHARED);
    shadow_add(end, (size_t)(m->image_end - end), SHADOW_IGNORED);
}

void shadow_remove_object(const ShimMemory *m)
{
    if (!m)
        return;
    shadow_remove(m->image);
    shadow_remove(m->shared);
    shadow_remove(m->shared_end);
}

/* ---- time --------------------------------------------------------------------------------------- */

void shadow_launch(const void *stacks, size_t bytes)
{
    stack = stacks;
    stack_bytes = bytes;
    launch_start = ++now;
}

void shadow_block(void) { block_start = ++now; }
void shadow_barrier(void) { now++; }
void shadow_warp(unsigned warp) { syncs[warp]++; }
void shadow_fence(unsigned thread) { fenced[thread] = ++fences; }

/* ---- work of streams ---------------------------------------------------------------------------- */

/* A piece of work: it lasts from `start` to the next one's, and is the number-th of its stream. */
typedef struct {
    uint32_t start, number;
    unsigned stream;
} Piece;

static Piece *piece; /* all pieces, in the order in which they ran */
static size_t npiece, room;
static const uint32_t *clock_now; /* the present piece's clock */
/* The last pieces that came_before() was asked for, and what it said: cells side by side were mostly used by
 * the same ones. */
typedef enum { WRITTEN, READ, READ_BESIDE, TIMES } Time;
static struct {
    const Piece *piece;
    bool before;
} asked[TIMES];

void shadow_work(unsigned stream, const uint32_t *clock)
{
    if (npiece == room) {
        room = 2 * room + 1024;
        piece = realloc(piece, room * sizeof *piece);
    }
    launch_start = block_start = ++now;
    piece[npiece++] = (Piece){now, clock[stream], stream};
    clock_now = clock;
    memset(asked, 0, sizeof asked);
}

void shadow_forget_work(void)
{
    free(piece);
    piece = NULL;
    npiece = room = 0;
    clock_now = NULL;
    memset(asked, 0, sizeof asked);
}

/* Did the piece of work at time `when`, which is such a time of a cell, end before the present one began? */
static bool came_before(uint32_t when, Time of)
{
    if (npiece == 0 || when < piece[0].start || when >= piece[npiece - 1].start)
        return true;
    const Piece *p = asked[of].piece;
    if (!p || when < p->start || when >= p[1].start) {
        size_t low = 0, high = npiece - 1;
        while (high - low > 1) {
            size_t mid = (low + high) / 2;
            *(when < piece[mid].start ? &high : &low) = mid;
        }
        p = asked[of].piece = &piece[low];
        asked[of].before = p->number <= clock_now[p->stream];
    }
    return asked[of].before;
}

/* ---- accesses ----------------------------------------------------------------------------------- */

static const Range *range_of(const char *p)
{
    if (last < nrange && (size_t)(p - range[last].at) < range[last].bytes)
        return &range[last];
    for (last = 0; last < nrange; last++)
        if ((size_t)(p - range[last].at) < range[last].bytes)
            return &range[last];
    return NULL;
}

/* May an access that `who` made at that time, when its warp had met so often, be simultaneous with one that
 * `thread` makes now? */
static bool unordered(uint32_t when, uint16_t who, uint16_t meetings, unsigned thread)
{
    if (when != now || who == thread)
        return false;
    return who == SEVERAL || (who & ~MATES) / 32 != (int)thread / 32 || meetings == syncs[thread / 32];
}

/* Does an access to global memory race with work of another stream? */
static bool streams_race(const Cell *c, bool write)
{
    return !came_before(c->written, WRITTEN) ||
           (write && (!came_before(c->read, READ) || !came_before(c->read_beside, READ_BESIDE)));
}

static bool races(const Cell *c, bool write, unsigned thread, bool shared)
{
    if (c->writer == PENDING && c->written >= block_start)
        return true;
    if (!shared && c->written >= launch_start && c->written < block_start)
        return true;
    if (unordered(c->written, c->writer, c->writer_syncs, thread))
        return true;
    if (!write)
        return false;
    if (c->held)
        return true;
    if (!shared && (c->read_before >= launch_start || (c->read >= launch_start && c->read < block_start)))
        return true;
    return unordered(c->read, c->reader, c->reader_syncs, thread);
}

static void note(Cell *c, bool write, unsigned thread)
{
    const uint16_t t = (uint16_t)thread, s = syncs[thread / 32];
    if (write) {
        c->written = now;
        c->fences = fences;
        c->writer = t;
        c->writer_syncs = s;
        return;
    }
    if (c->read >= launch_start && c->read < block_start)
        c->read_before = c->read;
    if (!came_before(c->read, READ))
        c->read_beside = c->read;
    if (c->read != now)
        c->reader = t;
    else if (c->reader == SEVERAL || (c->reader & ~MATES) / 32 != t / 32)
        c->reader = SEVERAL;
    else if (c->reader != t)
        c->reader = c->reader_syncs == s ? t | MATES : t;
    c->read = now;
    c->reader_syncs = s;
}

void shadow_access(const void *at, size_t bytes, bool write, unsigned thread, unsigned block)
{
    const char *p = at;
    if (nrange == 0 || (size_t)(p - stack) < stack_bytes)
        return;
    const Range *r = range_of(p);
    if (bytes == 0) {
        fiber_fault("thread %u of block %u: an access is not aligned", thread, block);
        return;
    }
    if (!r || r->kind == SHADOW_HOST || (size_t)(p - r->at) + bytes > r->bytes) {
        fiber_fault("thread %u of block %u: %s outside of memory", thread, block, write ? "written" : "read");
        return;
    }
    if (!r->cell || bytes < GRAIN)
        return;
    for (size_t i = (size_t)(p - r->at) / GRAIN; i < ((size_t)(p - r->at) + bytes) / GRAIN; i++) {
        Cell *c = &r->cell[i];
        if (r->kind != SHADOW_SHARED && streams_race(c, write))
            fiber_fault("thread %u of block %u: a race for global memory with work of another stream", thread,
                        block);
        if (races(c, write, thread, r->kind == SHADOW_SHARED))
            fiber_fault("thread %u of block %u: a race for %s memory with %s", thread, block,
                        r->kind == SHADOW_SHARED ? "shared" : "global",
                        c->writer == PENDING ? "a copy" : c->held ? "a product" : "another thread");
        note(c, write, thread);
    }
}

bool shadow_touch(const void *at, size_t bytes, bool write)
{
    const Range *r = nrange ? range_of(at) : NULL;
    if (!r || !r->cell)
        return true;
    size_t from = (size_t)((const char *)at - r->at);
    Cell was, is; /* the last cell before and after: cells side by side are mostly equal */
    for (size_t first = from / GRAIN, i = first; i < (from + bytes + GRAIN - 1) / GRAIN; i++) {
        Cell *c = &r->cell[i];
        if (i > first && memcmp(c, &was, sizeof was) == 0) {
            *c = is;
            continue;
        }
        was = *c;
        if (streams_race(c, write))
            return false;
        note(c, write, 0);
        is = *c;
    }
    return true;
}

static Cell *cell_at(const void *at)
{
    const Range *r = nrange ? range_of(at) : NULL;
    return r && r->cell ? &r->cell[(size_t)((const char *)at - r->at) / GRAIN] : NULL;
}

void shadow_product(const void *at, size_t bytes, unsigned thread, unsigned block, int hold)
{
    Cell *c = cell_at(at);
    shadow_access(at, bytes, false, thread, block);
    for (size_t i = 0; c && i < bytes / GRAIN; i++) {
        if (c[i].written >= block_start && c[i].writer < LANES * WARPS &&
            fenced[c[i].writer] <= c[i].fences)
            fiber_fault("thread %u of block %u: a product reads what no fence shows it", thread, block);
        c[i].held = (uint16_t)(c[i].held + hold);
    }
}

void shadow_pending(const void *at, size_t bytes)
{
    Cell *c = cell_at(at);
    for (size_t i = 0; c && i < bytes / GRAIN; i++)
        c[i].writer = PENDING;
}

void shadow_landed(const void *at, size_t bytes, unsigned thread)
{
    Cell *c = cell_at(at);
    for (size_t i = 0; c && i < bytes / GRAIN; i++)
        if (c[i].writer == PENDING)
            c[i].writer = (uint16_t)thread;
}
