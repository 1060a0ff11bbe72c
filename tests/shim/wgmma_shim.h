/* wgmma_shim.h -- codegen/prelude/wgmma.h for a C compiler; what warpgroups do is in wgmma.c. */
#ifndef CKC_WGMMA_SHIM_H
#define CKC_WGMMA_SHIM_H
#include "tensor_shim.h"

FN void fence_async(void) { shim->fence(); }
FN void wgmma_fence(void) { shim->warp(WARP_WGMMA_FENCE, NULL, 0, NULL, 0); }
FN void wgmma_commit(void) { shim->warp(WARP_WGMMA_COMMIT, NULL, 0, NULL, 0); }
FN void wgmma_wait(int n)
{
    WarpWgmma in = {.n = n};
    shim->warp(WARP_WGMMA_WAIT, &in, sizeof in, NULL, 0);
}
FN void wgmma_hold(float *c, int n) { (void)c, (void)n; }
FN void wgmma_hold_left(uint32_t *a, int n) { (void)a, (void)n; }

#define WGMMA_SHARED(NAME, N, F16, TURNED)                                                   \
    FN void NAME(float *c, uint64_t a, uint64_t b, int adds)                                 \
    {                                                                                        \
        WarpWgmma in = {.c = c, .n = N, .f16 = F16, .adds = adds != 0, .turned = TURNED,     \
                        .a = a, .b = b};                                                     \
        shim->warp(WARP_WGMMA, &in, sizeof in, NULL, 0);                                     \
    }
#define WGMMA(T, N, F16)                                                                     \
    WGMMA_SHARED(wgmma_##T##_n##N, N, F16, false)                                            \
    WGMMA_SHARED(wgmma_turned_##T##_n##N, N, F16, true)                                      \
    FN void wgmma_left_##T##_n##N(float *c, const uint32_t a[4], uint64_t b)                 \
    {                                                                                        \
        WarpWgmma in = {.c = c, .n = N, .f16 = F16, .adds = true, .in_registers = true,      \
                        .left = {a[0], a[1], a[2], a[3]}, .b = b};                           \
        shim->warp(WARP_WGMMA, &in, sizeof in, NULL, 0);                                     \
    }
WGMMA(bf16, 64, false)
WGMMA(f16, 64, true)
WGMMA(bf16, 128, false)
WGMMA(f16, 128, true)
#endif
