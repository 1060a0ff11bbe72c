/* levels.c -- levels under a limit.
 *
 * The slots are cut into blocks of 64 with a lazy addend and a maximum: a range addition
 * touches two blocks in part, and the others in O(1) unless they are near the limit. From
 * levels_reset to levels_sum the slots hold differences, of which an addition changes two. */
#include "levels.h"
#include "remat_int.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* The search spends its time in the loops over a block: they are compiled for wider registers as
 * well, and under gcc's sanitizers without checks, which would take most of the time of a search.
 * fuzz_solve, built by clang, has the checks. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__SANITIZE_ADDRESS__)
#define UNCHECKED __attribute__((no_sanitize("address", "undefined")))
#else
#define UNCHECKED
#endif
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) &&                     \
    !defined(__SANITIZE_ADDRESS__)
#define WIDE __attribute__((target_clones("avx2", "default")))
#else
#define WIDE UNCHECKED
#endif

/* Excess in units of 2^shift quanta, rounded up. */
UNCHECKED static inline int32_t over(int32_t m, int32_t limit, int32_t shift)
{
    int32_t excess = m - limit > 0 ? m - limit : 0;
    return (excess + ((1 << shift) - 1)) >> shift;
}

/* Adds x to m[lo..hi) of one block; returns the change of excess and updates the maximum. */
WIDE static int32_t add_part(int32_t *restrict m, int32_t lo, int32_t hi, int32_t x,
                             int32_t limit, int32_t shift, int32_t *max)
{
    int32_t delta = 0, most = INT_MIN;
    for (int32_t i = 0; i < LEVEL_BLOCK; i++) {
        int32_t was = m[i];
        int32_t is = was + (((i >= lo) & (i < hi)) ? x : 0);
        m[i] = is;
        delta += over(is, limit, shift) - over(was, limit, shift);
        most = is > most ? is : most;
    }
    *max = most;
    return delta;
}

/* The same for a block that is within the limit before and after. */
WIDE static void add_low(int32_t *restrict m, int32_t lo, int32_t hi, int32_t x, int32_t *max)
{
    int32_t most = INT_MIN;
    for (int32_t i = 0; i < LEVEL_BLOCK; i++) {
        int32_t is = m[i] + (((i >= lo) & (i < hi)) ? x : 0);
        m[i] = is;
        most = is > most ? is : most;
    }
    *max = most;
}

WIDE static int32_t shift_limit(const int32_t *restrict m, int32_t was, int32_t is, int32_t shift)
{
    int32_t delta = 0;
    for (int32_t i = 0; i < LEVEL_BLOCK; i++)
        delta += over(m[i], is, shift) - over(m[i], was, shift);
    return delta;
}

static void add_block(Levels *l, int32_t k, int32_t lo, int32_t hi, int32_t x)
{
    int32_t *m = l->at + (size_t)k * LEVEL_BLOCK;
    int32_t limit = l->limit - l->lazy[k];
    bool low = l->max[k] + (x > 0 ? x : 0) <= limit;
    if (lo == 0 && hi == LEVEL_BLOCK) {
        if (!low)
            l->excess += shift_limit(m, limit, limit - x, l->shift);
        l->lazy[k] += x;
    } else if (low) {
        add_low(m, lo, hi, x, &l->max[k]);
    } else {
        l->excess += add_part(m, lo, hi, x, limit, l->shift, &l->max[k]);
    }
}

void levels_add(Levels *l, int32_t lo, int32_t hi, int32_t x)
{
    if (lo >= hi || x == 0)
        return;
    if (l->differences) {
        l->at[lo] += x;
        if (hi < l->n)
            l->at[hi] -= x;
        return;
    }
    int32_t first = lo / LEVEL_BLOCK, last = (hi - 1) / LEVEL_BLOCK;
    for (int32_t k = first; k <= last; k++)
        add_block(l, k, k == first ? lo % LEVEL_BLOCK : 0,
                  k == last ? (hi - 1) % LEVEL_BLOCK + 1 : LEVEL_BLOCK, x);
}

int64_t levels_relief(const Levels *l, int32_t lo, int32_t hi, int32_t x)
{
    int64_t sum = 0;
    for (int32_t k = lo / LEVEL_BLOCK; k * LEVEL_BLOCK < hi; k++) {
        int32_t limit = l->limit - l->lazy[k];
        if (l->max[k] <= limit)
            continue;
        int32_t from = lo > k * LEVEL_BLOCK ? lo : k * LEVEL_BLOCK;
        int32_t to = hi < (k + 1) * LEVEL_BLOCK ? hi : (k + 1) * LEVEL_BLOCK;
        for (int32_t t = from; t < to; t++)
            sum += over(l->at[t], limit, l->shift) - over(l->at[t], limit + x, l->shift);
    }
    return sum;
}

int32_t levels_peak(const Levels *l)
{
    int32_t peak = 0;
    for (int32_t k = 0; k < l->n / LEVEL_BLOCK; k++)
        if (l->max[k] + l->lazy[k] > peak)
            peak = l->max[k] + l->lazy[k];
    return peak;
}

void levels_set_limit(Levels *l, int32_t limit)
{
    l->limit = limit;
    l->excess = levels_relief(l, 0, l->n, LEVEL_TOP);
}

void levels_update_max(Levels *l, int32_t lo, int32_t hi)
{
    for (int32_t k = lo / LEVEL_BLOCK; k <= hi / LEVEL_BLOCK; k++) {
        int32_t most = INT_MIN;
        for (int32_t i = 0; i < LEVEL_BLOCK; i++)
            most = l->at[k * LEVEL_BLOCK + i] > most ? l->at[k * LEVEL_BLOCK + i] : most;
        l->max[k] = most;
    }
}

void levels_reset(Levels *l, int32_t n, int32_t level)
{
    size_t blocks = (size_t)n / LEVEL_BLOCK;
    if (n != l->n) {
        l->n = n;
        l->at = mem_grow(l->at, (size_t)n, sizeof *l->at);
        l->lazy = mem_grow(l->lazy, blocks, sizeof *l->lazy);
        l->max = mem_grow(l->max, blocks, sizeof *l->max);
    }
    memset(l->at, 0, (size_t)n * sizeof *l->at);
    memset(l->lazy, 0, blocks * sizeof *l->lazy);
    l->at[0] = level;
    l->differences = true;
}

void levels_sum(Levels *l)
{
    for (int32_t t = 1; t < l->n; t++)
        l->at[t] += l->at[t - 1];
    l->differences = false;
    levels_update_max(l, 0, l->n - 1);
    levels_set_limit(l, l->limit);
}

void levels_free(Levels *l)
{
    MEM_FREE(l->at, l->lazy, l->max);
    *l = (Levels){0};
}
