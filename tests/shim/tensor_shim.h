/* tensor_shim.h -- codegen/prelude/tensor.h for a C compiler: what a warp does together is in warp.c, copies
 * are in fiber.c. */
#ifndef CKC_TENSOR_SHIM_H
#define CKC_TENSOR_SHIM_H
#include "cuda_shim.h"

/* An address of shared memory counts from the start of dynamic shared memory; the shim has no others. */
FN uint32_t shared_at(const void *p) { return (uint32_t)((const unsigned char *)p - shim->shared); }

FN void ldmatrix(uint32_t r[4], uint32_t at) { shim->warp(WARP_LDMATRIX, &at, sizeof at, r, 16); }
FN void ldmatrix_trans(uint32_t r[4], uint32_t at)
{
    shim->warp(WARP_LDMATRIX_TRANS, &at, sizeof at, r, 16);
}

#define MMA(T, OP)                                                                           \
    FN void mma_##T(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)               \
    {                                                                                        \
        WarpMma in = {{a[0], a[1], a[2], a[3]}, {b0, b1}, {c[0], c[1], c[2], c[3]}};         \
        shim->warp(OP, &in, sizeof in, c, 16);                                               \
    }
MMA(bf16, WARP_MMA_BF16)
MMA(f16, WARP_MMA_F16)

FN void copy_async_16(void *to, const void *from, int bytes) { shim->copy(to, from, 16, bytes); }
FN void copy_async_8(void *to, const void *from, int bytes) { shim->copy(to, from, 8, bytes); }
FN void copy_async_4(void *to, const void *from, int bytes) { shim->copy(to, from, 4, bytes); }
FN void copy_commit(void) { shim->copy_commit(); }
FN void copy_wait(int n) { shim->copy_wait(n); }

#define PACK(T)                                                                              \
    FN uint32_t pack_##T(float low, float high)                                              \
    {                                                                                        \
        return T##_store(low) | (uint32_t)T##_store(high) << 16;                             \
    }
PACK(bf16)
PACK(f16)
#endif
