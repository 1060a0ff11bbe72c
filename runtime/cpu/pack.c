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
#define PAIRS_ISA __attribute__((target("avx512f,avx512bw")))
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

/* ---- floats in three parts ----------------------------------------------------------------------- */

enum { PARTS = SPLIT_PARTS, LANES_AHEAD = 4, TERMS_AHEAD = 8, LARGE_BITS = 0x7f000000 /* 2^127 and above */ };

typedef float Floats16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint16_t Halves32 __attribute__((vector_size(64), aligned(4), may_alias));

#define ODD_4(i) (i) + 1, (i) + 3, (i) + 5, (i) + 7
#define ALL_ODD ODD_4(0), ODD_4(8), ODD_4(16), ODD_4(24), ODD_4(32), ODD_4(40), ODD_4(48), ODD_4(56)

/* Splits floats into parts, each in the high half of a word: the nearest bf16 of what the former leave. */
PAIRS_ISA static inline void split(Floats16 x, Words16 part[PARTS])
{
    UNROLL for (int i = 0; i < PARTS; i++)
    {
        part[i] = ((Words16)x + 0x8000) & 0xffff0000;
        x -= (Floats16)part[i];
    }
}

/* All bits of a lane if its float is not finite or so large that the nearest bf16 might be infinite. */
PAIRS_ISA static inline Words16 is_large(Floats16 x)
{
    return (Words16)(((Words16)x & LARGE_BITS) == LARGE_BITS);
}

/* Where a pair of terms of a panel lies, in pairs of a lane. */
static int64_t split_place(int64_t pair)
{
    return pair / TILE_PAIRS * PARTS * TILE_PAIRS + pair % TILE_PAIRS;
}

/* Splits PANEL_ROWS lanes of a term and of the one after it (NULL: zeros); returns which lanes of the vectors
 * have large elements. */
PAIRS_ISA static inline Words16 split_pair(const float *even, const float *odd, float *to)
{
    Words16 any = {0};
    UNROLL for (int lane = 0; lane < PANEL_ROWS; lane += TILE_PAIRS)
    {
        const Floats16 none = {0}, x = *(const Floats16 *)(const void *)(even + lane);
        const Floats16 y = odd ? *(const Floats16 *)(const void *)(odd + lane) : none;
        Words16 low[PARTS], high[PARTS];
        any |= is_large(x) | is_large(y);
        split(x, low);
        split(y, high);
        UNROLL for (int i = 0; i < PARTS; i++) * (Words16 *)(void *)(to + i * PANEL_TILE + lane) =
            low[i] >> 16 | high[i];
    }
    return any;
}

/* Splits PANEL_ROWS lanes of terms that are `step` apart. */
PAIRS_ISA static Words16 split_terms(const float *from, int64_t step, int64_t terms, float *to)
{
    Words16 any = {0};
    for (int64_t k = 0; k < terms; k += 2, from += 2 * step) {
        for (int i = 0; i < PANEL_ROWS; i += TILE_PAIRS) {
            __builtin_prefetch(from + TERMS_AHEAD * step + i);
            __builtin_prefetch(from + (TERMS_AHEAD + 1) * step + i);
        }
        any |= split_pair(from, k + 1 < terms ? from + step : NULL, to + split_place(k / 2) * PANEL_ROWS);
    }
    return any;
}

/* Splits 2 * TILE_PAIRS adjacent terms of a lane, to a row of tiles. */
PAIRS_ISA static inline Words16 split_run(const float *from, float *to)
{
    const Floats16 x = *(const Floats16 *)(const void *)from;
    const Floats16 y = *(const Floats16 *)(const void *)(from + TILE_PAIRS);
    Words16 first[PARTS], second[PARTS];
    split(x, first);
    split(y, second);
    UNROLL for (int i = 0; i < PARTS; i++) * (Halves32 *)(void *)(to + i * PANEL_TILE) =
        __builtin_shufflevector((Halves32)first[i], (Halves32)second[i], ALL_ODD);
    return is_large(x) | is_large(y);
}

/* Splits lanes that are `step` apart and whose terms are adjacent, to the rows of tiles. */
PAIRS_ISA static Words16 split_lanes(const float *from, int64_t step, int64_t lanes, int64_t terms, float *to)
{
    enum { RUN = 2 * TILE_PAIRS };
    Words16 any = {0};
    for (int64_t i = 0; i < lanes; i++, from += step, to += TILE_PAIRS) {
        float *at = to;
        int64_t k = 0;
        for (; k + RUN <= terms; k += RUN, at += PARTS * PANEL_TILE) {
            __builtin_prefetch(from + k + LANES_AHEAD * step);
            __builtin_prefetch(from + k + LANES_AHEAD * step + TILE_PAIRS);
            any |= split_run(from + k, at);
        }
        if (k < terms) {
            float rest[RUN] = {0};
            memcpy(rest, from + k, (size_t)(terms - k) * sizeof *rest);
            any |= split_run(rest, at);
        }
    }
    for (int64_t i = lanes; i < PANEL_ROWS; i++, to += TILE_PAIRS)
        for (int64_t k = 0; k < ceil_div(terms, RUN) * PARTS; k++)
            memset(to + k * PANEL_TILE, 0, TILE_PAIRS * sizeof *to);
    return any;
}

/* Address of the first of these lanes and terms if both are evenly spaced; else NULL. */
static const float *evenly(const Factor *f, const float *from, int64_t lane, int64_t lanes, int64_t first,
                           int64_t terms)
{
    const int last = DIGITS - 1;
    if (f->window || lane % f->lanes[last] + lanes > f->lanes[last] ||
        first % f->terms[last] + terms > f->terms[last])
        return NULL;
    Count l = count_from(lane, f->lanes), c = count_from(first, f->terms);
    return from + dot(&l, f->lane) + dot(&c, f->term);
}

PAIRS_ISA bool pack_split(const Factor *f, bool of_b, const void *at, int64_t lane, int64_t n, int64_t first,
                          int64_t terms, float *to, float *room)
{
    PackFn *pack = pack_function(DT_F32, 64);
    const int64_t groups = ceil_div(terms, 2 * TILE_PAIRS), size = groups * PARTS * PANEL_TILE;
    const int64_t between_lanes = f->lane[DIGITS - 1], between_terms = f->term[DIGITS - 1];
    float *widened = room + size;
    Words16 any = {0};
    for (int64_t i = 0; i < n; i += PANEL_ROWS, to += size) {
        const int64_t lanes = least(PANEL_ROWS, n - i);
        const float *start = evenly(f, at, lane + i, lanes, first, terms);
        if (start && !of_b && between_terms == 1) {
            any |= split_lanes(start, between_lanes, lanes, terms, to);
            continue;
        }
        float *pairs = of_b ? to : room;
        bool dense = start && between_lanes == 1 && lanes == PANEL_ROWS;
        if (!dense)
            pack(f, at, lane + i, lanes, PANEL_ROWS, first, terms, widened);
        if (terms % (2 * TILE_PAIRS))
            memset(pairs + size - PARTS * PANEL_TILE, 0, PARTS * PANEL_TILE * sizeof *to);
        any |= split_terms(dense ? start : widened, dense ? between_terms : PANEL_ROWS, terms, pairs);
        if (!of_b)
            tile_columns(room, size / PANEL_ROWS, to);
    }
    bool large = false;
    for (int i = 0; i < TILE_PAIRS; i++)
        large |= any[i] != 0;
    return !large;
}
