/* panel.c -- see panel.h. */
#include "panel.h"
#include "pack.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

/* Compiled with -ffp-contract=fast (CMakeLists.txt), and without checks, which take longer.  The result is
 * fetched from memory meanwhile. */
#define PANEL(name, isa, lanes, WIDTH, ROWS, VECTORS, ADD_PRODUCT)                                           \
    typedef float name##_v __attribute__((vector_size(4 * lanes), aligned(4)));                              \
    __attribute__((no_sanitize("address", "undefined"))) isa static void name(                               \
        int64_t terms, const float *a, const float *b, int64_t every, float *c, int64_t stride, bool add)    \
    {                                                                                                        \
        name##_v sum[ROWS][VECTORS] = {{{0}}};                                                               \
        for (int i = 0; i < ROWS; i++)                                                                       \
            for (int v = 0; v < VECTORS; v++)                                                                \
                __builtin_prefetch(c + i * stride + v * lanes, 1);                                           \
        for (int64_t k = 0; k < terms; k++, a += WIDTH, b += every)                                          \
            UNROLL for (int i = 0; i < ROWS; i++) UNROLL for (int v = 0; v < VECTORS; v++)                   \
                ADD_PRODUCT(sum[i][v], a[i], ((const name##_v *)(const void *)b)[v]);                        \
        UNROLL for (int i = 0; i < ROWS; i++) UNROLL for (int v = 0; v < VECTORS; v++)                       \
        {                                                                                                    \
            name##_v *at = (name##_v *)(void *)(c + i * stride) + v;                                         \
            *at = add ? *at + sum[i][v] : sum[i][v];                                                         \
        }                                                                                                    \
    }

#define ADD_PRODUCT(sum, a, b) (sum) += (a) * (b)
#define ADD_PAIRS(sum, a, b)                                                                                 \
    (sum) = (panel_pairs_v)_mm512_dpbf16_ps((__m512)(sum), (__m512bh)_mm512_set1_ps(a), (__m512bh)(b))

#define PANELS(name, isa, lanes, WIDTH, ADD_PRODUCT)                                                         \
    PANEL(name, isa, lanes, WIDTH, WIDTH, 2, ADD_PRODUCT)                                                    \
    PANEL(name##_few, isa, lanes, WIDTH, FEW_PANEL_ROWS, 2, ADD_PRODUCT)                                     \
    static const Panel name##s = {name, name##_few, WIDTH, 2 * lanes};

PANELS(panel_16, , 4, 6, ADD_PRODUCT)
#ifdef __x86_64__
PANELS(panel_32, __attribute__((target("avx2,fma"))), 8, 6, ADD_PRODUCT)
PANELS(panel_64, __attribute__((target("avx512f"))), 16, 12, ADD_PRODUCT)
PANELS(panel_pairs, __attribute__((target("avx512f,avx512bf16"))), 16, 12, ADD_PAIRS)
#else
#define panel_32s panel_16s
#define panel_64s panel_16s
#define panel_pairss panel_16s
#endif

Panel panel_of(int vector, bool pairs)
{
    return pairs ? panel_pairss : vector == 64 ? panel_64s : vector == 32 ? panel_32s : panel_16s;
}
