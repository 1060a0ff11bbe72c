/* pack_internal.h -- declarations shared by the files of the static memory allocator.
 *
 * Inside the allocator a problem is an array of PackBuffer whose sizes and offsets are
 * counted in units (the alignment, or a larger common divisor); no size is zero. An answer
 * is a separate array of offsets. Effort is counted in steps: one step is one look at one
 * buffer or one section, about a nanosecond, so that a limit in steps is both deterministic
 * and fair to problems of every size. */
#ifndef CKC_PASSES_PLAN_PACK_INTERNAL_H
#define CKC_PASSES_PLAN_PACK_INTERNAL_H

#include "pack.h"

/* ---- effort ------------------------------------------------------------------------ */

typedef struct PackBudget {
    int64_t steps, max_steps;
    double deadline;   /* in clock_seconds(); 0 = none */
    int64_t next_look; /* steps at which the clock is read again */
    bool out_of_time;
} PackBudget;

/* Spends `steps`; false when the budget is used up. */
bool pack_spend(PackBudget *budget, int64_t steps);

uint64_t pack_random(uint64_t *state); /* splitmix64 */

/* ---- greedy orders with feedback (pack_greedy.c) ----------------------------------- */

typedef struct PackGreedy PackGreedy;

enum { PACK_LANES = 8 };

/* Keeps pointers to `buffers`. */
PackGreedy *pack_greedy_new(const PackBuffer *buffers, int32_t n);
void pack_greedy_free(PackGreedy *greedy);

/* One pass of one lane (an order and a fit): places every buffer, fills `offset`, returns
 * the arena in units. Buffers that end above `target` go to the front of the lane's order
 * for its next pass. Spends the work from `budget` but always finishes the pass. */
int64_t pack_greedy_pass(PackGreedy *greedy, int lane, int64_t target, int64_t *offset,
                         PackBudget *budget);

/* Would the next pass of this lane repeat the last one? */
bool pack_greedy_done(const PackGreedy *greedy, int lane);

/* ---- blocks (pack_merge.c) --------------------------------------------------------- */

typedef enum PackMergeKind {
    PACK_MERGE_BALANCED, /* a successor takes over where the load does not change */
    PACK_MERGE_FILLED,   /* the same, with dummies that fill up the load to the maximum */
    PACK_MERGE_EAGER,    /* a successor takes over wherever sizes match */
    PACK_MERGE_NONE,     /* every buffer its own block: loses no solution */
    PACK_MERGE_KINDS
} PackMergeKind;

typedef struct PackBlocks {
    PackBuffer *block; /* the blocks */
    int32_t n;
    struct PackJoin *join; /* how blocks decompose, see pack_merge.c */
    int32_t *node;         /* node[i]: the join tree's node of block i */
    int64_t *place;        /* offset of every node; filled by pack_unmerge() */
    int32_t buffers;       /* number of the caller's buffers */
    int32_t leaves, nodes; /* leaves: buffers and dummies */
} PackBlocks;

/* Joins buffers into blocks. Which of several equal buffers are joined is a guess that
 * depends on the seed. */
void pack_merge(const PackBuffer *buffers, int32_t n, PackMergeKind kind, uint64_t seed,
                PackBlocks *blocks);
void pack_unmerge(const PackBlocks *blocks, const int64_t *block_offset, int64_t *offset);
void pack_blocks_free(PackBlocks *blocks);

/* The buffers followed by dummies that fill up the load, `count` in all; the caller frees
 * them. (pack_fill.c) */
PackBuffer *pack_fill(const PackBuffer *buffers, int32_t n, uint64_t seed, int32_t *count);

/* ---- exact search (pack_search.c) -------------------------------------------------- */

typedef struct PackSearch PackSearch;

typedef enum PackVerdict {
    PACK_FOUND,   /* offsets within the capacity */
    PACK_NONE,    /* there are none */
    PACK_UNKNOWN, /* limit reached */
} PackVerdict;

enum { PACK_PRIORITIES = 6, PACK_SEARCH_MAX = 4096 /* buffers: recursion depth */ };

/* `buffers` are copied. */
PackSearch *pack_search_new(const PackBuffer *buffers, int32_t n);
void pack_search_free(PackSearch *search); /* search may be NULL */

/* Steps that a search without backtracking takes to a solution: the least limit worth
 * trying. */
int64_t pack_search_dive(const PackSearch *search);

/* Looks for offsets within `capacity` units. Ties between buffers are broken by `priority`
 * (0 .. PACK_PRIORITIES-1), disturbed by up to `jitter` places drawn from `seed`. */
PackVerdict pack_search_run(PackSearch *search, int64_t capacity, int priority,
                            int32_t jitter, uint64_t seed, int64_t step_limit,
                            int64_t *offset, PackBudget *budget);

#endif
