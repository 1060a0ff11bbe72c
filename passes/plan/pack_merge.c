/* pack_merge.c -- blocks: buffers that are placed as one.
 *
 * Two rules, applied until neither applies any more:
 *
 *   parallel  buffers with one lifetime are stacked and become one buffer of their sum;
 *   series    a buffer that starts where another of the same size ends takes its place,
 *             and the two become one buffer with the joined lifetime.
 *
 * Regions that are cut up, reused and put together again (a nested structure, as tiling
 * compilers produce it) fold back into single rectangles, and the search has a problem a
 * tenth of the size. Both rules are exact where the arena is full before and after the
 * step and one buffer ends or starts; elsewhere they may lose solutions, which is why the
 * search also runs without them. The balanced form joins in series only at steps where as
 * many bytes start as end.
 *
 * A join tree remembers the parts: nodes 0 .. leaves-1 are the buffers (and dummies), later
 * nodes join two earlier ones. Fixed buffers are left alone. O(n log n) a pass; a chain of
 * n buffers takes log n passes. */
#include "pack_internal.h"
#include "ir/mem.h"

#include <stdlib.h>
#include <string.h>

enum { ALONE = 32 }; /* with a seed, one buffer in ALONE or a multiple of it joins no other */

struct PackJoin {
    int32_t a, b;
    bool stacked; /* b lies on a; otherwise both lie at the same offset */
    int64_t a_size;
};

typedef struct Block {
    PackBuffer buffer;
    int32_t node;
    uint32_t tie;       /* decides among equals */
    bool alone;         /* it joins no other block */
    struct Block *next; /* takes over where this one ends */
    bool preceded;      /* it is the next of another block */
} Block;

typedef struct Merge {
    Block *block;
    Block **by_start, **by_end;
    int32_t n, leaves, nodes;
    struct PackJoin *join;
    uint64_t seed;
} Merge;

static int compare_i32(int32_t a, int32_t b) { return (a > b) - (a < b); }

static int compare_i64(int64_t a, int64_t b) { return (a > b) - (a < b); }

static int by_lifetime(const void *pa, const void *pb)
{
    const Block *a = pa, *b = pb;
    int c = compare_i32(a->buffer.lower, b->buffer.lower);
    c = c ? c : compare_i32(a->buffer.upper, b->buffer.upper);
    return c ? c : compare_i32(a->node, b->node);
}

static int by_start_and_size(const void *pa, const void *pb)
{
    const Block *a = *(Block *const *)pa, *b = *(Block *const *)pb;
    int c = compare_i32(a->buffer.lower, b->buffer.lower);
    c = c ? c : compare_i64(a->buffer.size, b->buffer.size);
    c = c ? c : (a->tie > b->tie) - (a->tie < b->tie);
    return c ? c : compare_i32(a->node, b->node);
}

static int by_end_and_size(const void *pa, const void *pb)
{
    const Block *a = *(Block *const *)pa, *b = *(Block *const *)pb;
    int c = compare_i32(a->buffer.upper, b->buffer.upper);
    c = c ? c : compare_i64(a->buffer.size, b->buffer.size);
    c = c ? c : (a->tie > b->tie) - (a->tie < b->tie);
    return c ? c : compare_i32(a->node, b->node);
}

static bool is_free(const Block *b) { return b->buffer.offset < 0 && !b->alone; }

/* A random number that decides among equals; 0 without a seed: equals go in their order. */
static uint32_t draw_tie(Merge *m) { return m->seed ? (uint32_t)(pack_random(&m->seed) >> 32) : 0; }

static void join(Merge *m, Block *into, const Block *other, bool stacked)
{
    m->join[m->nodes - m->leaves] = (struct PackJoin){into->node, other->node, stacked, into->buffer.size};
    into->node = m->nodes++;
    into->tie = draw_tie(m);
    if (stacked)
        into->buffer.size += other->buffer.size;
    else
        into->buffer.upper = other->buffer.upper;
}

static bool merge_parallel(Merge *m)
{
    qsort(m->block, (size_t)m->n, sizeof *m->block, by_lifetime);
    int32_t kept = 0;
    Block *stack = NULL; /* the free block of the current lifetime */
    for (int32_t i = 0; i < m->n; i++) {
        Block *b = &m->block[i];
        if (stack && is_free(b) && stack->buffer.lower == b->buffer.lower &&
            stack->buffer.upper == b->buffer.upper) {
            join(m, stack, b, true);
            continue;
        }
        m->block[kept] = *b;
        stack = is_free(b) ? &m->block[kept] : stack;
        kept++;
    }
    bool changed = kept < m->n;
    m->n = kept;
    return changed;
}

/* Pairs matching sizes among the blocks that end and the blocks that start at one step. */
static bool match_sizes(Block **end, int32_t ends, Block **start, int32_t starts)
{
    bool found = false;
    for (int32_t i = 0, j = 0; i < ends && j < starts;) {
        if (!is_free(end[i]) || end[i]->buffer.size < start[j]->buffer.size) {
            i++;
        } else if (!is_free(start[j]) || start[j]->buffer.size < end[i]->buffer.size) {
            j++;
        } else {
            end[i]->next = start[j];
            start[j]->preceded = true;
            found = true;
            i++;
            j++;
        }
    }
    return found;
}

static int64_t total_size(Block **block, int32_t n)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += block[i]->buffer.size;
    return sum;
}

/* Finds the successors of one pass: next and preceded of every block. */
static bool match_steps(Merge *m, bool balanced)
{
    int32_t n = m->n;
    for (int32_t i = 0; i < n; i++) {
        m->block[i].next = NULL;
        m->block[i].preceded = false;
        m->by_start[i] = m->by_end[i] = &m->block[i];
    }
    qsort(m->by_start, (size_t)n, sizeof *m->by_start, by_start_and_size);
    qsort(m->by_end, (size_t)n, sizeof *m->by_end, by_end_and_size);
    bool found = false;
    for (int32_t e = 0, s = 0; e < n;) {
        int32_t step = m->by_end[e]->buffer.upper;
        int32_t ends = 0, starts = 0;
        while (e + ends < n && m->by_end[e + ends]->buffer.upper == step)
            ends++;
        while (s < n && m->by_start[s]->buffer.lower < step)
            s++;
        while (s + starts < n && m->by_start[s + starts]->buffer.lower == step)
            starts++;
        Block **end = m->by_end + e, **start = m->by_start + s;
        if (!balanced || total_size(end, ends) == total_size(start, starts))
            found |= match_sizes(end, ends, start, starts);
        e += ends;
    }
    return found;
}

/* Joins every chain of successors into its first block. */
static bool merge_series(Merge *m, bool balanced)
{
    if (!match_steps(m, balanced))
        return false;
    for (int32_t i = 0; i < m->n; i++) {
        Block *head = &m->block[i];
        if (!head->preceded)
            for (const Block *b = head->next; b; b = b->next)
                join(m, head, b, false);
    }
    int32_t kept = 0;
    for (int32_t i = 0; i < m->n; i++)
        if (!m->block[i].preceded)
            m->block[kept++] = m->block[i];
    m->n = kept;
    return true;
}

static void give_blocks(Merge *m, PackBlocks *out)
{
    out->block = mem_new((size_t)m->n + 1, sizeof *out->block);
    out->node = mem_new((size_t)m->n + 1, sizeof *out->node);
    out->place = mem_new((size_t)m->nodes + 1, sizeof *out->place);
    for (int32_t i = 0; i < m->n; i++) {
        out->block[i] = m->block[i].buffer;
        out->node[i] = m->block[i].node;
    }
    out->n = m->n;
    out->join = m->join;
    out->leaves = m->leaves;
    out->nodes = m->nodes;
}

static void merge(const PackBuffer *leaf, int32_t n, PackMergeKind kind, uint64_t seed, PackBlocks *blocks)
{
    size_t room = (size_t)n + 1;
    Merge m = {.block = mem_new(room, sizeof *m.block),
               .by_start = mem_new(room, sizeof *m.by_start),
               .by_end = mem_new(room, sizeof *m.by_end),
               .join = mem_new(room, sizeof *m.join),
               .n = n,
               .leaves = n,
               .nodes = n,
               .seed = seed};
    uint64_t alone = seed ? (uint64_t)ALONE << pack_random(&m.seed) % 5 : 1;
    for (int32_t i = 0; i < n; i++) {
        m.block[i] = (Block){.buffer = leaf[i], .node = i};
        m.block[i].tie = draw_tie(&m);
        m.block[i].alone = seed && pack_random(&m.seed) % alone == 0;
    }
    bool changed = kind != PACK_MERGE_NONE;
    while (changed) {
        changed = merge_parallel(&m);
        changed |= merge_series(&m, kind != PACK_MERGE_EAGER);
    }
    give_blocks(&m, blocks);
    MEM_FREE(m.block, m.by_start, m.by_end);
}

void pack_merge(const PackBuffer *buffers, int32_t n, PackMergeKind kind, uint64_t seed, PackBlocks *blocks)
{
    blocks->buffers = n;
    if (kind != PACK_MERGE_FILLED) {
        merge(buffers, n, kind, seed, blocks);
        return;
    }
    int32_t leaves;
    PackBuffer *filled = pack_fill(buffers, n, seed, &leaves);
    merge(filled, leaves, kind, seed, blocks);
    free(filled);
}

/* Offsets travel down the join tree; a join's node comes after those of its parts. */
void pack_unmerge(const PackBlocks *blocks, const int64_t *block_offset, int64_t *offset)
{
    int64_t *at = blocks->place;
    for (int32_t i = 0; i < blocks->n; i++)
        at[blocks->node[i]] = block_offset[i];
    for (int32_t v = blocks->nodes - 1; v >= blocks->leaves; v--) {
        const struct PackJoin *j = &blocks->join[v - blocks->leaves];
        at[j->a] = at[v];
        at[j->b] = j->stacked ? at[v] + j->a_size : at[v];
    }
    memcpy(offset, at, (size_t)blocks->buffers * sizeof *offset);
}

void pack_blocks_free(PackBlocks *blocks)
{
    MEM_FREE(blocks->block, blocks->join, blocks->node, blocks->place);
    memset(blocks, 0, sizeof *blocks);
}
