/* panel.c -- see panel.h. */
#include "panel.h"
#include "pack.h"

#ifdef __x86_64__
#include "codegen/prelude/tiles.h"
#include <immintrin.h>
#endif

enum {
    VECTORS = 2, /* vectors of a row */
    FEW_ROWS = 4,
};

/* Defines a function that multiplies two panels; compiled with -ffp-contract=fast (CMakeLists.txt), and
 * without sanitizers, which are too slow.  The result is prefetched during the sums.  STORE stores a vector
 * of a row's sums, plus what is to be added to them. */
#define PANEL(name, isa, lanes, WIDTH, ROWS, ADD_PRODUCT, ELEMENT, ADDED, STORE)                             \
    __attribute__((no_sanitize("address", "undefined"))) isa static void name(                               \
        int64_t terms, const float *a, const float *b, int64_t every, ELEMENT *c, int64_t stride, ADDED add) \
    {                                                                                                        \
        Floats##lanes sum[ROWS][VECTORS] = {{{0}}};                                                          \
        for (int i = 0; i < ROWS; i++)                                                                       \
            for (int v = 0; v < VECTORS; v++)                                                                \
                __builtin_prefetch(c + i * stride + v * lanes, 1);                                           \
        for (int64_t k = 0; k < terms; k++, a += WIDTH, b += every)                                          \
            UNROLL for (int i = 0; i < ROWS; i++) UNROLL for (int v = 0; v < VECTORS; v++)                   \
                ADD_PRODUCT(sum[i][v], a[i], ((const Floats##lanes *)(const void *)b)[v]);                   \
        UNROLL for (int i = 0; i < ROWS; i++) UNROLL for (int v = 0; v < VECTORS; v++)                       \
            STORE(c + i * stride + v * lanes, sum[i][v], add, i, lanes);                                     \
    }

#define VECTORS_OF(lanes)                                                                                    \
    typedef float Floats##lanes __attribute__((vector_size(4 * lanes), aligned(4)));                         \
    typedef uint32_t Words##lanes __attribute__((vector_size(4 * lanes)));                                   \
    typedef uint16_t Halves##lanes __attribute__((vector_size(2 * lanes), aligned(2)));
VECTORS_OF(4)
VECTORS_OF(8)
VECTORS_OF(16)

#define ADD_PRODUCT(sum, a, b) (sum) += (a) * (b)
#define ADD_PAIRS(sum, a, b)                                                                                 \
    (sum) = (Floats16)_mm512_dpbf16_ps((__m512)(sum), (__m512bh)_mm512_set1_ps(a), (__m512bh)(b))

#define STORE_FLOATS(to, sum, add, row, lanes)                                                               \
    do {                                                                                                     \
        Floats##lanes *at_ = (Floats##lanes *)(void *)(to);                                                  \
        *at_ = (add) ? *at_ + (sum) : (sum);                                                                 \
    } while (0)
#define STORE_BF16(to, sum, add, row, lanes)                                                                 \
    do {                                                                                                     \
        const Floats##lanes all_ = (add) ? (add)[row] + (sum) : (sum);                                       \
        *(Halves##lanes *)(void *)(to) =                                                                     \
            __builtin_convertvector(BF16_WORDS(Words##lanes, all_), Halves##lanes);                          \
    } while (0)

#define PANELS(name, isa, lanes, WIDTH, ADD_PRODUCT)                                                         \
    PANEL(name, isa, lanes, WIDTH, WIDTH, ADD_PRODUCT, float, bool, STORE_FLOATS)                            \
    PANEL(name##_few, isa, lanes, WIDTH, FEW_ROWS, ADD_PRODUCT, float, bool, STORE_FLOATS)                   \
    PANEL(name##_bf16, isa, lanes, WIDTH, WIDTH, ADD_PRODUCT, uint16_t, const float *, STORE_BF16)           \
    PANEL(name##_few_bf16, isa, lanes, WIDTH, FEW_ROWS, ADD_PRODUCT, uint16_t, const float *, STORE_BF16)    \
    static const Panel name##s = {name,  name##_few, name##_bf16,     name##_few_bf16,                       \
                                  WIDTH, FEW_ROWS,   VECTORS * lanes, PANEL_FLOATS};

PANELS(panel_16, , 4, 6, ADD_PRODUCT)
#ifdef __x86_64__
PANELS(panel_32, __attribute__((target("avx2,fma"))), 8, 6, ADD_PRODUCT)
PANELS(panel_64, __attribute__((target("avx512f"))), 16, 12, ADD_PRODUCT)
PANELS(panel_pairs, __attribute__((target("avx512f,avx512bf16"))), 16, 12, ADD_PAIRS)

/* ---- tiles (AMX) --------------------------------------------------------------------------------- */

TILES_ISA static void begin_tiles(void) { tiles_begin(); }

TILES_ISA static void end_tiles(void) { tiles_end(); }

/* Panel a has two consecutive tiles of rows for each TILE_PAIRS pairs. */
TILES void multiply_tiles(int64_t pairs, const float *a, const float *b, int64_t every, float *c,
                          int64_t stride, bool add, bool two)
{
    const int64_t tile = TILE_SIDE * 64, word = sizeof *c;
    tiles_multiply(pairs, a, 64, 2 * tile, tile, b, every * word, c, stride * word, add, two, true);
}

#define TILE_PANEL(name, two)                                                                                \
    TILES_ISA static void name(int64_t terms, const float *a, const float *b, int64_t every, float *c,       \
                               int64_t stride, bool add)                                                     \
    {                                                                                                        \
        multiply_tiles(terms, a, b, every, c, stride, add, two);                                             \
    }                                                                                                        \
    __attribute__((no_sanitize("address", "undefined")))                                                     \
    TILES_ISA static void name##_bf16(int64_t terms, const float *a, const float *b, int64_t every,          \
                                      uint16_t *c, int64_t stride, const float *bias)                        \
    {                                                                                                        \
        float sum[PANEL_ROWS][2 * TILE_SIDE];                                                                \
        multiply_tiles(terms, a, b, every, sum[0], 2 * TILE_SIDE, false, two);                               \
        for (int i = 0; i < (two ? 2 * TILE_SIDE : TILE_SIDE); i++)                                          \
            for (int v = 0; v < VECTORS; v++)                                                                \
                STORE_BF16(c + i * stride + v * 16, *(const Floats16 *)(const void *)(sum[i] + v * 16),      \
                           bias, i, 16);                                                                     \
    }
TILE_PANEL(panel_tiles, true)
TILE_PANEL(panel_tiles_few, false)

static const Panel tiles = {panel_tiles,   panel_tiles_few, panel_tiles_bf16, panel_tiles_few_bf16,
                            2 * TILE_SIDE, TILE_SIDE,       2 * TILE_SIDE,    PANEL_TILES};

/* Multiplies panels of floats in parts: a part of both panels is two tiles, of rows one below the other, of
 * columns side by side.  The sums are added to c in vectors: rows of c that are pages apart would not stay in
 * the cache as tiles. */
TILES void multiply_split(int64_t pairs, const float *a, const float *b, int64_t every, float *c,
                          int64_t stride, bool add, bool two)
{
    enum { TILE = TILE_SIDE * TILE_SIDE, WIDTH = 2 * TILE_SIDE };
    const int64_t row = every * (int64_t)sizeof *b, rows = two ? 2 * TILE_SIDE : TILE_SIDE;
    float sum[2 * TILE_SIDE][WIDTH] __attribute__((aligned(64)));
    for (int64_t i = 0; i < rows; i++) {
        __builtin_prefetch(c + i * stride, 1, 2);
        __builtin_prefetch(c + i * stride + TILE_SIDE, 1, 2);
    }
    __asm__ volatile("" ::: "memory");
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
#define LOAD_A(part)                                                                                         \
    do {                                                                                                     \
        _tile_loadd(4, a + 2 * (part)*TILE, 64);                                                             \
        if (two)                                                                                             \
            _tile_loadd(5, a + (2 * (part) + 1) * TILE, 64);                                                 \
    } while (0)
#define LOAD_B(part)                                                                                         \
    do {                                                                                                     \
        _tile_loadd(6, b + (part)*TILE_SIDE * every, row);                                                   \
        _tile_loadd(7, b + (part)*TILE_SIDE * every + TILE_SIDE, row);                                       \
    } while (0)
#define MULTIPLY()                                                                                           \
    do {                                                                                                     \
        _tile_dpbf16ps(0, 4, 6);                                                                             \
        _tile_dpbf16ps(1, 4, 7);                                                                             \
        if (two) {                                                                                           \
            _tile_dpbf16ps(2, 5, 6);                                                                         \
            _tile_dpbf16ps(3, 5, 7);                                                                         \
        }                                                                                                    \
    } while (0)
    for (int64_t k = 0; k < pairs; k += SPLIT_PARTS * TILE_SIDE) {
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
        a += SPLIT_PARTS * 2 * TILE;
        b += SPLIT_PARTS * TILE_SIDE * every;
    }
#undef LOAD_A
#undef LOAD_B
#undef MULTIPLY
    _tile_stored(0, sum[0], sizeof sum[0]);
    _tile_stored(1, sum[0] + TILE_SIDE, sizeof sum[0]);
    if (two) {
        _tile_stored(2, sum[TILE_SIDE], sizeof sum[0]);
        _tile_stored(3, sum[TILE_SIDE] + TILE_SIDE, sizeof sum[0]);
    }
    __asm__ volatile("" ::: "memory");
    for (int64_t i = 0; i < rows; i++)
        for (int v = 0; v < VECTORS; v++)
            STORE_FLOATS(c + i * stride + v * 16, *(const Floats16 *)(const void *)(sum[i] + v * 16), add, i,
                         16);
}

#define SPLIT_PANEL(name, two)                                                                               \
    TILES_ISA static void name(int64_t terms, const float *a, const float *b, int64_t every, float *c,       \
                               int64_t stride, bool add)                                                     \
    {                                                                                                        \
        multiply_split(terms, a, b, every, c, stride, add, two);                                             \
    }
SPLIT_PANEL(panel_split, true)
SPLIT_PANEL(panel_split_few, false)

static const Panel split = {panel_split,   panel_split_few, NULL,          NULL,
                            2 * TILE_SIDE, TILE_SIDE,       2 * TILE_SIDE, PANEL_SPLIT};
#else
#define panel_32s panel_16s
#define panel_64s panel_16s
#define panel_pairss panel_16s
#define tiles panel_16s
#define split panel_16s
static void begin_tiles(void) {}
static void end_tiles(void) {}
#endif

Panel panel_of(int vector, PanelKind kind)
{
    Panel p = kind == PANEL_SPLIT   ? split
              : kind == PANEL_TILES ? tiles
              : kind == PANEL_PAIRS ? panel_pairss
              : vector == 64        ? panel_64s
              : vector == 32        ? panel_32s
                                    : panel_16s;
    p.kind = kind;
    return p;
}

void panel_begin(const Panel *p)
{
    if (p->kind >= PANEL_TILES)
        begin_tiles();
}

void panel_end(const Panel *p)
{
    if (p->kind >= PANEL_TILES)
        end_tiles();
}
