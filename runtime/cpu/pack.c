/* pack.c -- packs factors into panels, for each type of element and each width of vectors.  Elements are only
 * moved and widened, so all widths give the same bits. */
#include "pack.h"
#include "panel.h"
#include "codegen/prelude/c.h"
#include "ir/philox.h"
#include "codegen/prelude/math.h"

#include <string.h>

enum { LINE = 64 /* bytes of a cache line */, AHEAD = 16 /* terms */, DENSE_LANES = 48, PAIR_LANES = 128 };

typedef struct {
    int64_t digit[DIGITS];
} Count;

static Count count_from(int64_t i, const int64_t extent[DIGITS])
{
    Count c;
    for (int d = DIGITS - 1; d >= 0; d--) {
        c.digit[d] = i % extent[d];
        i /= extent[d];
    }
    return c;
}

static void count_on(Count *c, const int64_t extent[DIGITS], int64_t by)
{
    c->digit[DIGITS - 1] += by;
    for (int d = DIGITS - 1; d > 0 && c->digit[d] >= extent[d]; d--) {
        c->digit[d] -= extent[d];
        c->digit[d - 1]++;
    }
}

static int64_t dot(const Count *c, const int64_t stride[DIGITS])
{
    int64_t sum = 0;
    for (int d = 0; d < DIGITS; d++)
        sum += c->digit[d] * stride[d];
    return sum;
}

/* How many of n lanes, from the first on, are adjacent in memory. */
static int64_t dense_lanes(const Factor *f, int64_t lane, int64_t n)
{
    const int last = DIGITS - 1;
    return !f->window && f->lane[last] == 1 ? least(n, f->lanes[last] - lane % f->lanes[last]) : 0;
}

static void clear_rest(float *to, int n, int width, int64_t terms)
{
    for (int64_t t = 0; n < width && t < terms; t++)
        memset(to + t * width + n, 0, (size_t)(width - n) * sizeof *to);
}

/* A run of n elements of a factor with a window, along the last digit of lanes or terms, whichever is longer:
 * positions advance by `by`, elements are `every` apart in the panel. */
typedef struct {
    int64_t n, by;
    int every;
} Run;

/* ---- for each type and width ---- */

static float as_is(float x) { return x; }

#define ISA
#define LANES 4
#define ALL_LANES ALL_4
#define NAMED(name, type) name##_##type##_16
#include "pack_types.h"

#ifdef __x86_64__
#define ISA __attribute__((target("avx2")))
#define LANES 8
#define ALL_LANES ALL_8
#define NAMED(name, type) name##_##type##_32
#include "pack_types.h"
#define ISA __attribute__((target("avx512f")))
#define LANES 16
#define ALL_LANES ALL_16
#define NAMED(name, type) name##_##type##_64
#include "pack_types.h"
#endif

#define OF_TYPE(name, bytes)                                                                                 \
    (dt == DT_F32 ? name##_f32_##bytes : dt == DT_BF16 ? name##_bf16_##bytes : name##_f16_##bytes)
#ifdef __x86_64__
#define OF_WIDTH(name)                                                                                       \
    (vector == 64 ? OF_TYPE(name, 64) : vector == 32 ? OF_TYPE(name, 32) : OF_TYPE(name, 16))
#else
#define OF_WIDTH(name) ((void)vector, OF_TYPE(name, 16))
#endif

PackFn *pack_function(DType dt, int vector) { return OF_WIDTH(pack); }

NarrowFn *narrow_function(DType dt, int vector) { return OF_WIDTH(narrow); }

/* ---- pairs of bf16 ------------------------------------------------------------------------------ */

bool pack_joins(const Factor *f, Factor *joined)
{
    const int last = DIGITS - 1;
    if (f->window || f->term[last] != 1 || f->terms[last] % 2)
        return false;
    *joined = *f;
    joined->terms[last] /= 2;
    for (int d = 0; d < DIGITS; d++) {
        if (f->lane[d] % 2 || (d < last && f->term[d] % 2))
            return false;
        joined->lane[d] /= 2;
        joined->term[d] = d < last ? f->term[d] / 2 : 1;
    }
    return true;
}

#ifdef __x86_64__
#define PAIRS_ISA __attribute__((target("avx512f")))
#else
#define PAIRS_ISA
#endif
/* join4 and join16 pack n lanes of an even term with those of the odd term after it (NULL: zeros). */
#define JOIN(n)                                                                                              \
    typedef uint32_t Words##n __attribute__((vector_size(4 * n), aligned(4), may_alias));                    \
    typedef uint16_t Halves##n __attribute__((vector_size(2 * n), aligned(2), may_alias));                   \
    PAIRS_ISA static inline void join##n(const uint16_t *even, const uint16_t *odd, void *to)                \
    {                                                                                                        \
        Words##n pair = __builtin_convertvector(*(const Halves##n *)(const void *)even, Words##n);           \
        if (odd)                                                                                             \
            pair |= __builtin_convertvector(*(const Halves##n *)(const void *)odd, Words##n) << 16;          \
        *(Words##n *)to = pair;                                                                              \
    }
JOIN(4)
JOIN(16)

/* Packs pairs from a panel of bf16 that has been widened to floats. */
PAIRS_ISA static void pair_widened(const float *panel, int width, int64_t terms, float *to)
{
    int64_t row = width / 4;
    const Words4 *from = (const Words4 *)(const void *)panel;
    Words4 *pair = (Words4 *)(void *)to;
    for (int64_t k = 0; k + 1 < terms; k += 2, from += 2 * row, pair += row)
        for (int64_t i = 0; i < row; i++)
            pair[i] = from[i] >> 16 | (from[row + i] & 0xffff0000);
    for (int64_t i = 0; i < row && terms % 2; i++)
        pair[i] = from[i] >> 16;
}

/* Packs an even term and the odd one after it (NULL: zeros), for several panels of adjacent lanes. */
PAIRS_ISA static inline void pair_row(const uint16_t *even, const uint16_t *odd, int64_t panels, int width,
                                      float *to, int64_t next)
{
    for (int64_t p = 0; p < panels; p++, even += width, odd += odd ? width : 0, to += next) {
        int i = 0;
        for (; i + 16 <= width; i += 16)
            join16(even + i, odd ? odd + i : NULL, to + i);
        for (; i < width; i += 4)
            join4(even + i, odd ? odd + i : NULL, to + i);
    }
}

PAIRS_ISA static void pair_dense(const Factor *f, const uint16_t *from, int64_t lane, int64_t panels,
                                 int width, int64_t first, int64_t terms, float *to, int64_t next)
{
    const int last = DIGITS - 1;
    const int64_t step = f->term[last], line = LINE / (int64_t)sizeof *from;
    Count l = count_from(lane, f->lanes), c = count_from(first, f->terms);
    from += dot(&l, f->lane);
    for (int64_t k = 0; k < terms;) {
        const uint16_t *at = from + dot(&c, f->term), *odd = NULL;
        int64_t t = 0, run = least(terms - k, f->terms[last] - c.digit[last]);
        for (; t + 2 <= run; t += 2, at += 2 * step, to += width) {
            for (int64_t i = 0; i < panels * width; i += line) {
                __builtin_prefetch(at + AHEAD * step + i);
                __builtin_prefetch(at + (AHEAD + 1) * step + i);
            }
            pair_row(at, at + step, panels, width, to, next);
        }
        k += run;
        count_on(&c, f->terms, run);
        if (t == run)
            continue;
        if (k < terms) { /* the last term of this run makes a pair with the first of the next */
            odd = from + dot(&c, f->term);
            count_on(&c, f->terms, 1);
            k++;
        }
        pair_row(at, odd, panels, width, to, next);
        to += width;
    }
}

void pack_pairs(const Factor *f, const void *at, int64_t lane, int64_t n, int width, int64_t first,
                int64_t terms, int64_t depth, float *to, float *widened)
{
    PackFn *pack = pack_function(DT_BF16, 64);
    int64_t pairs = (terms + 1) / 2, next = width * depth;
    for (int64_t i = 0, panels; i < n; i += panels * width, to += panels * next) {
        panels = dense_lanes(f, lane + i, least(n - i, PAIR_LANES)) / width;
        if (panels > 0) {
            pair_dense(f, at, lane + i, panels, width, first, terms, to, next);
        } else {
            panels = 1;
            pack(f, at, lane + i, least(width, n - i), width, first, terms, widened);
            pair_widened(widened, width, terms, to);
        }
        for (int64_t p = 0; p < panels; p++)
            memset(to + p * next + width * pairs, 0, (size_t)(width * (depth - pairs)) * sizeof *to);
    }
}

/* ---- tiles of pairs ----------------------------------------------------------------------------- */

enum { PANEL_TILE = PANEL_ROWS * TILE_PAIRS };

/* Copies n lanes, whose pairs are adjacent in memory, to the rows of tiles. */
static void tile_rows(const Factor *f, const uint32_t *from, int64_t lane, int64_t n, int64_t first,
                      int64_t pairs, uint32_t *to)
{
    const int last = DIGITS - 1;
    for (int64_t i = 0; i < n; i++, to += TILE_PAIRS) {
        Count l = count_from(lane + i, f->lanes), c = count_from(first, f->terms);
        const uint32_t *row = from + dot(&l, f->lane);
        for (int64_t k = 0, run; k < pairs; k += run, count_on(&c, f->terms, run)) {
            run = least(f->terms[last] - c.digit[last], least(pairs - k, TILE_PAIRS - k % TILE_PAIRS));
            memcpy(to + k / TILE_PAIRS * PANEL_TILE + k % TILE_PAIRS, row + dot(&c, f->term),
                   (size_t)run * sizeof *to);
        }
    }
}

/* Transposes pairs, which have PANEL_ROWS lanes each, to the rows of tiles, which have TILE_PAIRS pairs of a
 * lane each. */
PAIRS_ISA static void tile_columns(const float *from, int64_t pairs, float *to)
{
    for (int64_t k = 0; k < pairs; k += TILE_PAIRS)
        for (int64_t lane = 0; lane < PANEL_ROWS; lane += TILE_PAIRS) {
            Words16 r[TILE_PAIRS];
            UNROLL for (int t = 0; t < TILE_PAIRS; t++) r[t] =
                *(const Words16 *)(const void *)(from + (k + t) * PANEL_ROWS + lane);
            TRANSPOSE(Words16, r, TILE_PAIRS, ALL_16)
            UNROLL for (int t = 0; t < TILE_PAIRS; t++) *
                (Words16 *)(void *)(to + k * PANEL_ROWS + (lane + t) * TILE_PAIRS) = r[t];
        }
}

void pack_tiles(const Factor *f, const Factor *joined, const void *at, int64_t lane, int64_t n, int64_t first,
                int64_t terms, float *to, float *room, float *widened)
{
    int64_t pairs = (terms + 1) / 2, whole = round_up(pairs, TILE_PAIRS);
    for (int64_t i = 0; i < n; i += PANEL_ROWS, to += PANEL_ROWS * whole) {
        int64_t lanes = least(PANEL_ROWS, n - i);
        if (joined) {
            if (lanes < PANEL_ROWS || pairs < whole)
                memset(to, 0, (size_t)(PANEL_ROWS * whole) * sizeof *to);
            tile_rows(joined, at, lane + i, lanes, first / 2, pairs, (uint32_t *)(void *)to);
        } else {
            pack_pairs(f, at, lane + i, lanes, PANEL_ROWS, first, terms, whole, room, widened);
            tile_columns(room, whole, to);
        }
    }
}
