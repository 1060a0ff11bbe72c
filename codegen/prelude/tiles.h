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
#endif
