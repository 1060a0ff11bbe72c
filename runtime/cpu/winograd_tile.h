/* winograd_tile.h -- tiles of images, and transforms of eight at a time, for winograd.c and
 * winograd_weights.c.  Elements are widened as vectors are loaded; functions with an argument DType are
 * compiled for each type. */
#ifndef CKC_WINOGRAD_TILE_H
#define CKC_WINOGRAD_TILE_H

#include "element.h"
#include "pack.h"
#include "winograd.h"
#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

enum {
    SIDE = 6, /* rows and columns of an input tile */
    PLACES = SIDE * SIDE,
    TILE = 4, /* rows and columns of an output tile */
    WINDOW_SIDE = 3,
    LANES = 8,
    LINE_FLOATS = 16 /* floats in a cache line */
};

/* Distance in floats from one of the 36 places to the next, each of which has n floats: an odd number of
 * cache lines, so that the places do not all map to a few sets of the cache. */
static inline int64_t place_floats(int64_t n)
{
    return round_up(n, 2 * LINE_FLOATS) + LINE_FLOATS;
}

#ifdef __x86_64__
#define ISA __attribute__((target("avx2,fma"), no_sanitize("address", "undefined")))
#else
#define ISA __attribute__((no_sanitize("address", "undefined")))
#endif
#define ALWAYS __attribute__((always_inline))

typedef float V __attribute__((vector_size(4 * LANES), aligned(4)));
typedef float Four __attribute__((vector_size(16), aligned(4)));
typedef uint32_t Words __attribute__((vector_size(16), aligned(4)));
typedef uint16_t Halves __attribute__((vector_size(8), aligned(2)));

/* Calls the function with dt as a last, constant argument, so that it is compiled for each type. */
#define FOR_TYPE(dt, function, ...)                                                                          \
    ((dt) == DT_F32    ? function(__VA_ARGS__, DT_F32)                                                       \
     : (dt) == DT_BF16 ? function(__VA_ARGS__, DT_BF16)                                                      \
                       : function(__VA_ARGS__, DT_F16))

/* Defines the one-dimensional transforms for vectors of type V: to the six places from a row of an input tile
 * (of_tile), of an output tile (of_result) and of a window (of_window); and back to an output tile
 * (to_result) and to a window (to_window). */
#define TRANSFORMS(V, ISA, of_tile, of_result, of_window, to_result, to_window)                              \
    ISA static inline void of_tile(V o[SIDE], const V *x)                                                    \
    {                                                                                                        \
        const V a = x[4] - 4 * x[2], b = x[3] - 4 * x[1], c = x[4] - x[2], d = 2 * (x[3] - x[1]);            \
        o[0] = 4 * x[0] - 5 * x[2] + x[4];                                                                   \
        o[1] = a + b;                                                                                        \
        o[2] = a - b;                                                                                        \
        o[3] = c + d;                                                                                        \
        o[4] = c - d;                                                                                        \
        o[5] = 4 * x[1] - 5 * x[3] + x[5];                                                                   \
    }                                                                                                        \
    ISA static inline void of_result(V o[SIDE], const V *y)                                                  \
    {                                                                                                        \
        const V a = y[0] + y[2], b = y[1] + y[3], c = y[0] + 4 * y[2], d = 2 * y[1] + 8 * y[3];              \
        o[0] = y[0];                                                                                         \
        o[1] = a + b;                                                                                        \
        o[2] = a - b;                                                                                        \
        o[3] = c + d;                                                                                        \
        o[4] = c - d;                                                                                        \
        o[5] = y[3];                                                                                         \
    }                                                                                                        \
    ISA static inline void of_window(V o[SIDE], const V *g)                                                  \
    {                                                                                                        \
        const V a = (g[0] + g[2]) * (-1.f / 6), b = g[1] * (1.f / 6);                                        \
        const V c = g[0] * (1.f / 24) + g[2] * (1.f / 6), d = g[1] * (1.f / 12);                             \
        o[0] = g[0] * 0.25f;                                                                                 \
        o[1] = a - b;                                                                                        \
        o[2] = a + b;                                                                                        \
        o[3] = c + d;                                                                                        \
        o[4] = c - d;                                                                                        \
        o[5] = g[2];                                                                                         \
    }                                                                                                        \
    ISA static inline void to_result(V o[TILE], const V *m)                                                  \
    {                                                                                                        \
        const V a = m[1] + m[2], b = m[1] - m[2], c = m[3] + m[4], d = m[3] - m[4];                          \
        o[0] = m[0] + a + c;                                                                                 \
        o[1] = b + 2 * d;                                                                                    \
        o[2] = a + 4 * c;                                                                                    \
        o[3] = b + 8 * d + m[5];                                                                             \
    }                                                                                                        \
    ISA static inline void to_window(V o[WINDOW_SIDE], const V *m)                                           \
    {                                                                                                        \
        const V a = (m[1] + m[2]) * (1.f / 6), b = m[2] - m[1], c = m[3] + m[4], d = m[3] - m[4];            \
        o[0] = m[0] * 0.25f - a + c * (1.f / 24);                                                            \
        o[1] = b * (1.f / 6) + d * (1.f / 12);                                                               \
        o[2] = c * (1.f / 6) - a + m[5];                                                                     \
    }

TRANSFORMS(V, ISA ALWAYS, of_tile, of_result, of_window, to_result, to_window)

/* A tile: its offset in the first channel in memory, in elements; the rows [top, bottom) and columns [left,
 * right) of it that are inside the image; whole: all of them are. */
typedef struct {
    int64_t at;
    int top, bottom, left, right;
    bool whole;
} Tile;

static inline int between(int64_t n, int most) { return n < 0 ? 0 : n > most ? most : (int)n; }

/* Finds tile t, of `side` rows and columns; tiles behind the last one are empty. */
static inline Tile find_tile(const Winograd *w, const Images *of, int side, int64_t t)
{
    int64_t image = t / (w->down * w->across), y = t / w->across % w->down * TILE - of->pad_y,
            x = t % w->across * TILE - of->pad_x;
    Tile tile = {.at = image * of->stride[0] + y * of->stride[2] + x * of->stride[3],
                 .top = between(-y, side),
                 .bottom = t < w->tiles ? between(of->height - y, side) : 0,
                 .left = between(-x, side),
                 .right = between(of->width - x, side)};
    tile.whole = tile.top == 0 && tile.bottom == side && tile.left == 0 && tile.right == side;
    return tile;
}

/* Address of a tile of a channel; a tile that reaches over the edge of its image is a copy with zeros. */
typedef struct {
    const char *at;
    int64_t pitch; /* elements from row to row */
    float edge[SIDE * LANES];
} Source;

/* Copies a row, of which the columns [left, right) are in the image and the others become 0. */
ISA ALWAYS static inline void copy_row(const char *from, int left, int right, float *to, DType dt)
{
#ifdef __x86_64__
    static const int32_t ones[3 * LANES] = {[LANES] = -1, -1, -1, -1, -1, -1, -1, -1};
    if (dt == DT_F32) {
        const __m256i behind = _mm256_loadu_si256((const __m256i *)(const void *)(ones + LANES - left)),
                      before = _mm256_loadu_si256((const __m256i *)(const void *)(ones + 2 * LANES - right));
        const __m256 row =
            _mm256_maskload_ps((const float *)(const void *)from, _mm256_and_si256(behind, before));
        _mm256_storeu_ps(to, row);
        return;
    }
#endif
    const size_t size = dt == DT_F32 ? sizeof(float) : sizeof(uint16_t);
    *(V *)(void *)to = (V){0};
    for (int j = left; j < right; j++)
        memcpy((char *)to + (size_t)j * size, from + (size_t)j * size, size);
}

ISA ALWAYS static inline void find_source(const Images *of, const Tile *tile, const char *channel, Source *s,
                                          DType dt)
{
    const size_t size = dt == DT_F32 ? sizeof(float) : sizeof(uint16_t);
    const char *from = channel + tile->at * (int64_t)size;
    s->at = tile->whole ? from : (const char *)s->edge;
    s->pitch = tile->whole ? of->stride[2] : LANES * (int64_t)(sizeof(float) / size);
    if (tile->whole)
        return;
    for (int i = 0; i < SIDE; i++) {
        float *to = s->edge + i * LANES;
        if (i >= tile->top && i < tile->bottom)
            copy_row(from + i * of->stride[2] * (int64_t)size, tile->left, tile->right, to, dt);
        else
            *(V *)(void *)to = (V){0};
    }
}

/* Loads four adjacent elements as floats. */
ISA ALWAYS static inline Four load(const char *at, DType dt)
{
    if (dt == DT_F32)
        return *(const Four *)(const void *)at;
    if (dt == DT_BF16)
        return (Four)(__builtin_convertvector(*(const Halves *)(const void *)at, Words) << 16);
    const uint16_t *h = (const uint16_t *)(const void *)at;
    return (Four){f16_load(h[0]), f16_load(h[1]), f16_load(h[2]), f16_load(h[3])};
}

/* Stores the first n of four floats as elements. */
ISA ALWAYS static inline void store(char *at, Four x, int64_t n, DType dt)
{
    if (dt == DT_F32) {
        memcpy(at, &x, (size_t)n * sizeof(float));
        return;
    }
    Halves half;
    if (dt == DT_BF16) {
        half = __builtin_convertvector(BF16_WORDS(Words, x), Halves);
    } else {
        half = (Halves){f16_store(x[0]), f16_store(x[1]), f16_store(x[2]), f16_store(x[3])};
    }
    memcpy(at, &half, (size_t)n * sizeof(uint16_t));
}

ISA static inline void transpose(Four r[4])
{
    const Four a = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5),
               b = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5),
               c = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7),
               d = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
    r[0] = __builtin_shufflevector(a, b, 0, 1, 4, 5);
    r[1] = __builtin_shufflevector(a, b, 2, 3, 6, 7);
    r[2] = __builtin_shufflevector(c, d, 0, 1, 4, 5);
    r[3] = __builtin_shufflevector(c, d, 2, 3, 6, 7);
}

ISA static inline V both(Four low, Four high)
{
    return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
}

/* Loads four columns of a row of eight tiles, from `column` on: d[j] has column j of all tiles. */
ISA ALWAYS static inline void load_four(const Source tile[LANES], int row, int column, V d[4], DType dt)
{
    const int64_t size = dt == DT_F32 ? sizeof(float) : sizeof(uint16_t);
    Four r[LANES];
    UNROLL for (int t = 0; t < LANES; t++) r[t] =
        load(tile[t].at + (row * tile[t].pitch + column) * size, dt);
    transpose(r);
    transpose(r + 4);
    UNROLL for (int j = 0; j < 4; j++) d[j] = both(r[j], r[4 + j]);
}

/* Loads all columns of a row of eight tiles. */
ISA ALWAYS static inline void load_row(const Source tile[LANES], int row, V d[SIDE], DType dt)
{
    V right[4];
    load_four(tile, row, 0, d, dt);
    load_four(tile, row, SIDE - 4, right, dt);
    d[4] = right[2];
    d[5] = right[3];
}

/* Applies the one-dimensional transform to the columns of n rows that have been transformed already. */
ISA ALWAYS static inline void transform_columns(void of(V o[SIDE], const V *d), int n, V half[][SIDE],
                                                V v[SIDE][SIDE])
{
    for (int x = 0; x < SIDE; x++) {
        V column[SIDE], o[SIDE];
        UNROLL for (int i = 0; i < n; i++) column[i] = half[i][x];
        of(o, column);
        UNROLL for (int i = 0; i < SIDE; i++) v[i][x] = o[i];
    }
}

/* Transforms eight tiles; v has a vector for each of the 36 places. */
ISA ALWAYS static inline void transform_tile(const Source tile[LANES], V v[SIDE][SIDE], DType dt)
{
    V half[SIDE][SIDE];
    for (int i = 0; i < SIDE; i++) {
        V d[SIDE];
        load_row(tile, i, d, dt);
        of_tile(half[i], d);
    }
    transform_columns(of_tile, SIDE, half, v);
}

#endif
