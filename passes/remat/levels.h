/* levels.h -- the level of every slot in a row of slots, and how much of it is above a limit,
 * under additions to ranges of slots. */
#ifndef CKC_REMAT_LEVELS_H
#define CKC_REMAT_LEVELS_H
#include <stdbool.h>
#include <stdint.h>

enum { LEVEL_BLOCK = 64, LEVEL_TOP = 1 << 29 };

typedef struct {
    int32_t n;      /* slots, a multiple of LEVEL_BLOCK */
    int32_t limit;  /* below LEVEL_TOP; negative: nothing fits */
    int32_t shift;  /* excess is counted in units of 2^shift, each slot's rounded up, so that
                     * the sum over a block fits int32 */
    int64_t excess; /* above the limit, summed over all slots */
    int32_t *at;    /* per slot, within LEVEL_TOP of 0, without the block's lazy part */
    int32_t *lazy, *max; /* per block; max excludes lazy */
    bool differences;    /* at: to the slot before; nothing else is known */
} Levels;

void levels_add(Levels *l, int32_t lo, int32_t hi, int32_t x); /* adds x to the slots [lo, hi) */
/* By how much the excess falls when x is taken from the slots [lo, hi). */
int64_t levels_relief(const Levels *l, int32_t lo, int32_t hi, int32_t x);
int32_t levels_peak(const Levels *l);
void levels_set_limit(Levels *l, int32_t limit);
/* n slots (n > 0), each at this level; only levels_add may be called before levels_sum. Each addition takes
 * O(1) until then, and levels_sum O(n). */
void levels_reset(Levels *l, int32_t n, int32_t level);
void levels_sum(Levels *l);
void levels_free(Levels *l);

static inline int32_t levels_at(const Levels *l, int32_t slot)
{
    return l->at[slot] + l->lazy[slot / LEVEL_BLOCK];
}

/* Sets a slot's level, only to permute levels so that the total excess stays the same;
 * levels_update_max must follow for the slots [lo, hi] that were permuted. */
static inline void levels_put(Levels *l, int32_t slot, int32_t level)
{
    l->at[slot] = level - l->lazy[slot / LEVEL_BLOCK];
}
void levels_update_max(Levels *l, int32_t lo, int32_t hi);

#endif
