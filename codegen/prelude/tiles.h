/* tiles.h -- products of bf16 in a processor's tiles (AMX), for generated kernels and for the products of
 * runtime/cpu/panel.c and tiled_weights.c.  A tile has 16 rows of 64 bytes: 16 f32, or 16 pairs of bf16. */
#ifndef CKC_TILES_H
#define CKC_TILES_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#define TILE_SIDE 16
#define TILES_ISA __attribute__((target("avx512f,amx-tile,amx-bf16")))
#define TILES TILES_ISA static inline __attribute__((always_inline, unused))

/* Configures a thread's tiles; to be called before it multiplies. */
TILES void tiles_begin(void)
{
    static const struct {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } shape = {
        .palette = 1, .bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    _tile_loadconfig(&shape);
}

TILES void tiles_end(void) { _tile_release(); }

/* c = (add ? c : 0) + a b, with one or two tiles of rows and of columns.  pairs: a multiple of TILE_SIDE.
 * Distances in bytes: *_row: of a tile's rows; a_next: of a's tiles along pairs; a_low: of a's two tiles of
 * rows.  GCC 12's intrinsics do not tell that they read memory, so a barrier makes it written before. */
TILES void tiles_multiply(int64_t pairs, const void *a, int64_t a_row, int64_t a_next, int64_t a_low,
                          const void *b, int64_t b_row, float *c, int64_t c_row, bool add, bool two_rows,
                          bool two_columns)
{
    const char *x = (const char *)a, *y = (const char *)b;
    char *const high = (char *)c, *const low = high + TILE_SIDE * c_row;
    __asm__ volatile("" ::: "memory");
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (add) {
        _tile_loadd(0, high, c_row);
        if (two_columns)
            _tile_loadd(1, high + 64, c_row);
        if (two_rows)
            _tile_loadd(2, low, c_row);
        if (two_rows && two_columns)
            _tile_loadd(3, low + 64, c_row);
    }
    for (int64_t k = 0; k < pairs; k += TILE_SIDE, x += a_next, y += TILE_SIDE * b_row) {
        _tile_loadd(4, x, a_row);
        _tile_loadd(6, y, b_row);
        _tile_dpbf16ps(0, 4, 6);
        if (two_columns) {
            _tile_loadd(7, y + 64, b_row);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (two_rows) {
            _tile_loadd(5, x + a_low, a_row);
            _tile_dpbf16ps(2, 5, 6);
        }
        if (two_rows && two_columns)
            _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, high, c_row);
    if (two_columns)
        _tile_stored(1, high + 64, c_row);
    if (two_rows)
        _tile_stored(2, low, c_row);
    if (two_rows && two_columns)
        _tile_stored(3, low + 64, c_row);
    __asm__ volatile("" ::: "memory");
}

/* The same with two tiles of columns and factors that are f32 in three parts of bf16, the largest first: each
 * part of TILE_SIDE pairs is a tile, in a two, of the rows and of those below.  pairs: of all parts.  The
 * sums are added to c in vectors: rows of c that are pages apart would not stay in the cache as tiles. */
TILES void tiles_multiply_split(int64_t pairs, const void *a, const void *b, int64_t b_row, float *c,
                                int64_t c_row, bool add, bool two_rows)
{
    enum { PART = 2 * TILE_SIDE * 64, ROW = 2 * TILE_SIDE };
    const char *x = (const char *)a, *y = (const char *)b;
    const int64_t part = TILE_SIDE * b_row, rows = two_rows ? 2 * TILE_SIDE : TILE_SIDE;
    float sum[2 * TILE_SIDE][ROW] __attribute__((aligned(64)));
    for (int64_t i = 0; i < rows; i++) {
        __builtin_prefetch((char *)c + i * c_row, 1, 2);
        __builtin_prefetch((char *)c + i * c_row + 64, 1, 2);
    }
    __asm__ volatile("" ::: "memory");
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
#define LOAD_A(i)                                                                                            \
    do {                                                                                                     \
        _tile_loadd(4, x + i * PART, 64);                                                                    \
        if (two_rows)                                                                                        \
            _tile_loadd(5, x + i * PART + PART / 2, 64);                                                     \
    } while (0)
#define LOAD_B(i)                                                                                            \
    do {                                                                                                     \
        _tile_loadd(6, y + i * part, b_row);                                                                 \
        _tile_loadd(7, y + i * part + 64, b_row);                                                            \
    } while (0)
#define MULTIPLY()                                                                                           \
    do {                                                                                                     \
        _tile_dpbf16ps(0, 4, 6);                                                                             \
        _tile_dpbf16ps(1, 4, 7);                                                                             \
        if (two_rows) {                                                                                      \
            _tile_dpbf16ps(2, 5, 6);                                                                         \
            _tile_dpbf16ps(3, 5, 7);                                                                         \
        }                                                                                                    \
    } while (0)
    for (int64_t k = 0; k < pairs; k += 3 * TILE_SIDE, x += 3 * PART, y += 3 * part) {
        LOAD_A(0);
        LOAD_B(2);
        MULTIPLY();
        LOAD_B(1);
        MULTIPLY();
        LOAD_A(1);
        MULTIPLY();
        LOAD_B(0);
        MULTIPLY();
        LOAD_A(2);
        MULTIPLY();
        LOAD_A(0);
        MULTIPLY();
    }
#undef LOAD_A
#undef LOAD_B
#undef MULTIPLY
    _tile_stored(0, sum[0], sizeof sum[0]);
    _tile_stored(1, sum[0] + TILE_SIDE, sizeof sum[0]);
    if (two_rows) {
        _tile_stored(2, sum[TILE_SIDE], sizeof sum[0]);
        _tile_stored(3, sum[TILE_SIDE] + TILE_SIDE, sizeof sum[0]);
    }
    __asm__ volatile("" ::: "memory");
    for (int64_t i = 0; i < rows; i++)
        for (int j = 0; j < ROW; j += TILE_SIDE) {
            float *to = (float *)(void *)((char *)c + i * c_row) + j;
            __m512 of = _mm512_load_ps(sum[i] + j);
            _mm512_storeu_ps(to, add ? _mm512_add_ps(_mm512_loadu_ps(to), of) : of);
        }
}
#endif
