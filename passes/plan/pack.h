/* pack.h -- static memory allocation: one offset in one arena for every buffer.
 *
 * A buffer is `size` bytes, live in the half-open step range [lower, upper). Two buffers
 * whose ranges meet must not share a byte. pack_solve() chooses offsets so that the arena
 * (the highest end of any buffer) is small. No arena is smaller than the maximum load, the
 * largest sum of sizes live at one step; choosing offsets that reach it is NP-hard.
 *
 * The allocator stands alone: it knows bytes and steps, not graphs. Aliases are the
 * caller's: pass one buffer for all values that share a place. */
#ifndef CKC_PASSES_PLAN_PACK_H
#define CKC_PASSES_PLAN_PACK_H

#include <stdbool.h>
#include <stdint.h>

enum { PACK_ERR_SIZE = 256 };

typedef struct PackBuffer {
    int64_t size;         /* bytes, >= 0 */
    int32_t lower, upper; /* live in [lower, upper), lower < upper */
    int64_t offset;       /* in: >= 0 fixed at this byte, -1 free; out: where it lies */
} PackBuffer;

typedef struct PackOptions {
    int64_t align;       /* offsets of free buffers are multiples of this; 0 = 1 */
    int64_t capacity;    /* bytes; 0 = minimise the arena; else stop when it fits */
    double time_limit_s; /* wall clock; 0 = none, max_steps alone decides */
    int64_t max_steps;   /* 0 = as many as the time limit allows; without one, a default
                            worth some seconds */
    uint64_t seed;       /* same seed and max_steps, no time limit hit: same offsets */
} PackOptions;

typedef struct PackResult {
    int64_t arena;    /* bytes: max(offset + size) */
    int64_t max_load; /* bytes: largest sum of sizes live at one step */
    int64_t bound;    /* bytes: no arena is smaller, with alignment and fixed places */
    int64_t steps;    /* steps spent, about a nanosecond each */
    double seconds;   /* wall clock */
    bool fits;        /* arena <= capacity; true where no capacity was given */
} PackResult;

/* Assigns an offset to every buffer. `opt` may be NULL (align 1, minimise). Offsets are
 * valid, and result->arena set, even when the capacity is missed (result->fits false).
 * Returns false with a line in `err`, the buffers untouched, when the input is invalid
 * (negative size, empty lifetime, fixed buffers that overlap). */
bool pack_solve(PackBuffer *buffers, int32_t n, const PackOptions *opt, PackResult *result,
                char err[PACK_ERR_SIZE]);

/* Independent check of offsets, by a sweep over the steps: no two live buffers share a
 * byte, every buffer lies in [0, arena). Zero-size buffers may lie anywhere. Returns false
 * with the first offence in `err`. O(n log n). */
bool pack_verify(const PackBuffer *buffers, int32_t n, int64_t arena,
                 char err[PACK_ERR_SIZE]);

/* Largest sum of sizes live at one step, in bytes. O(n log n). */
int64_t pack_max_load(const PackBuffer *buffers, int32_t n);

#endif
