/* element.h -- loads and stores elements of 16 and 32 bits, with which we compute in f32. */
#ifndef CKC_ELEMENT_H
#define CKC_ELEMENT_H

#include "ir/ir.h"
#include "codegen/prelude/c.h"
#include "ir/philox.h"
#include "codegen/prelude/math.h"

#include <string.h>

/* Element i of an array of f32, bf16 or f16. */
static inline float element_load(DType dt, const void *at, int64_t i)
{
    return dt == DT_F32    ? ((const float *)at)[i]
           : dt == DT_BF16 ? bf16_load(((const uint16_t *)at)[i])
                           : f16_load(((const uint16_t *)at)[i]);
}

static inline void element_store(DType dt, void *at, int64_t i, float x)
{
    if (dt == DT_F32)
        ((float *)at)[i] = x;
    else
        ((uint16_t *)at)[i] = dt == DT_BF16 ? bf16_store(x) : f16_store(x);
}

/* Loads n elements that are `every` apart in memory, beginning with element `from`. */
static inline void elements_load(DType dt, const void *at, int64_t from, int64_t every, int64_t n, float *to)
{
    const float *f = (const float *)at + from;
    const uint16_t *h = (const uint16_t *)at + from;
    if (dt == DT_F32 && every == 1)
        memcpy(to, f, (size_t)n * sizeof *to);
    else if (dt == DT_F32)
        for (int64_t i = 0; i < n; i++)
            to[i] = f[i * every];
    else if (dt == DT_BF16)
        for (int64_t i = 0; i < n; i++)
            to[i] = bf16_load(h[i * every]);
    else
        for (int64_t i = 0; i < n; i++)
            to[i] = f16_load(h[i * every]);
}

static inline void elements_store(DType dt, void *at, int64_t to, int64_t every, int64_t n, const float *x)
{
    float *f = (float *)at + to;
    uint16_t *h = (uint16_t *)at + to;
    if (dt == DT_F32 && every == 1)
        memcpy(f, x, (size_t)n * sizeof *f);
    else if (dt == DT_F32)
        for (int64_t i = 0; i < n; i++)
            f[i * every] = x[i];
    else if (dt == DT_BF16)
        for (int64_t i = 0; i < n; i++)
            h[i * every] = bf16_store(x[i]);
    else
        for (int64_t i = 0; i < n; i++)
            h[i * every] = f16_store(x[i]);
}

#endif
