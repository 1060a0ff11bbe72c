/* panel.c -- see panel.h. */
#include "panel.h"
#include "pack.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

/* Compiled with -ffp-contract=fast (CMakeLists.txt), and without checks, which take longer.  The result is
 * fetched from memory meanwhile. */
#define PANEL(name, isa, lanes, ROWS, VECTORS, ADD_PRODUCT)                                                  \
    typedef float name##_v __attribute__((vector_size(4 * lanes), aligned(4)));                              \
    __attribute__((no_sanitize("address", "undefined"))) isa static void name(                               \
        int64_t terms, const float *a, const float *b, int64_t every, float *c, int64_t stride, bool add)    \
    {                                                                                                        \
        name##_v sum[ROWS][VECTORS] = {{{0}}};                                                               \
        for (int i = 0; i < ROWS; i++)                                                                       \
            for (int v = 0; v < VECTORS; v++)                                                                \
                __builtin_prefetch(c + i * stride + v * lanes, 1);                                           \
        for (int64_t k = 0; k < terms; k++, a += ROWS, b += every)                                           \
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

PANEL(panel_16, , 4, 6, 2, ADD_PRODUCT)
#ifdef __x86_64__
PANEL(panel_32, __attribute__((target("avx2,fma"))), 8, 6, 2, ADD_PRODUCT)
PANEL(panel_64, __attribute__((target("avx512f"))), 16, 12, 2, ADD_PRODUCT)
PANEL(panel_pairs, __attribute__((target("avx512f,avx512bf16"))), 16, 12, 2, ADD_PAIRS)
#else
#define panel_32 panel_16
#define panel_64 panel_16
#define panel_pairs panel_16
#endif

Panel panel_of(int vector, bool pairs)
{
    if (pairs)
        return (Panel){panel_pairs, 12, 32};
    return vector == 64   ? (Panel){panel_64, 12, 32}
           : vector == 32 ? (Panel){panel_32, 6, 16}
                          : (Panel){panel_16, 6, 8};
}
