/* wgmma.h -- products of a warpgroup, four warps, on tensor cores of compute capability 9.0 (sm_90a); pasted
 * behind tensor.h.  All 128 threads must take part.  Warp w has rows 16 w to 16 w + 15 of the 64 of a
 * result, in the layout of mma's C, and the same rows of a left factor in registers.
 *
 * A factor in shared memory is a sequence of panels of 64 columns, aligned to 1024 bytes.  A row of a panel
 * is 128 bytes, and chunk j of 16 bytes of row r is at j ^ (r % 8), against bank conflicts (PTX ISA,
 * "Asynchronous Warpgroup Level Matrix Shared Memory Layout", 128-byte swizzle).
 *
 * Products are asynchronous: until they are waited for they read their factors, and threads must not access
 * their results.  They read shared memory through a proxy of their own. */
#ifdef __CUDACC__

/* Makes what this thread and its copies wrote to shared memory visible to products after a barrier. */
FN void fence_async(void) { asm volatile("fence.proxy.async.shared::cta;" : : : "memory"); }

/* Makes registers that threads wrote visible to the products that follow. */
FN void wgmma_fence(void) { asm volatile("wgmma.fence.sync.aligned;" : : : "memory"); }

/* Makes the products since the last commit a group. */
FN void wgmma_commit(void) { asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory"); }

/* Waits until all groups but the last n, a literal, are done. */
#define wgmma_wait(n) asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(n) : "memory")

/* Keeps the compiler from moving accesses to these registers across this place. */
FN void wgmma_hold(float *c, int n)
{
    UNROLL
    for (int i = 0; i < n; i++)
        asm volatile("" : "+f"(c[i]) : : "memory");
}

FN void wgmma_hold_left(uint32_t *a, int n)
{
    UNROLL
    for (int i = 0; i < n; i++)
        asm volatile("" : "+r"(a[i]) : : "memory");
}

/* c = a b or c += a b, 64 x n.  _bf16_n64: both factors by descriptors, b transposed; _turned_bf16_n64: both
 * by descriptors, a transposed and b not; _left_bf16_n64: a in registers, b by a descriptor and not
 * transposed. */
#define W4(c, i) "+f"((c)[i]), "+f"((c)[(i) + 1]), "+f"((c)[(i) + 2]), "+f"((c)[(i) + 3])
#define W16(c, i) W4(c, i), W4(c, (i) + 4), W4(c, (i) + 8), W4(c, (i) + 12)
#define W32(c) W16(c, 0), W16(c, 16)
#define W64(c) W32(c), W16(c, 32), W16(c, 48)
#define W32_LIST                                                                             \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                                \
    "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}"
#define W64_LIST                                                                             \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                                \
    "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"                       \
    "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"                       \
    "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}"
#define WGMMA_SHARED(NAME, T, N, C, I0, I1, I2, TURNED)                                      \
    FN void NAME(float *c, uint64_t a, uint64_t b, int adds)                                 \
    {                                                                                        \
        asm volatile("{.reg .pred p; setp.ne.b32 p, " I2 ", 0; "                             \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #T "." #T " "         \
                     C##_LIST ", " I0 ", " I1 ", p, 1, 1, " TURNED ";}"                      \
                     : C(c) : "l"(a), "l"(b), "r"(adds) : "memory");                         \
    }
#define WGMMA(T, N, C, I0, I1, I2, I3, I4, I5)                                               \
    WGMMA_SHARED(wgmma_##T##_n##N, T, N, C, I0, I1, I2, "0, 0")                              \
    WGMMA_SHARED(wgmma_turned_##T##_n##N, T, N, C, I0, I1, I2, "1, 1")                       \
    FN void wgmma_left_##T##_n##N(float *c, const uint32_t a[4], uint64_t b)                 \
    {                                                                                        \
        asm volatile("{.reg .pred p; setp.ne.b32 p, " I5 ", 0; "                             \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #T "." #T " "         \
                     C##_LIST ", {" I0 "," I1 "," I2 "," I3 "}, " I4 ", p, 1, 1, 1;}"        \
                     : C(c)                                                                  \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1)            \
                     : "memory");                                                            \
    }
#define WGMMA_n64(T) WGMMA(T, 64, W32, "%32", "%33", "%34", "%35", "%36", "%37")
#define WGMMA_n128(T) WGMMA(T, 128, W64, "%64", "%65", "%66", "%67", "%68", "%69")
WGMMA_n64(bf16)
WGMMA_n64(f16)
WGMMA_n128(bf16)
WGMMA_n128(f16)
#else
#include "wgmma_shim.h"
#endif

/* The descriptor of a factor of so many rows.  In units of 16 bytes: its address, the distance of panels, the
 * distance of groups of 8 rows. */
FN uint64_t wgmma_matrix(const void *p, int rows)
{
    const uint64_t panel = (uint64_t)(rows * 128 / 16), eight = 1024 / 16, swizzle = 1;
    return (uint64_t)(shared_at(p) >> 4) | panel << 16 | eight << 32 | swizzle << 62;
}
