/* tensor.h -- products of a warp on tensor cores, and asynchronous copies; pasted in front of kernels that
 * need them.  All 32 lanes of a warp must execute ldmatrix and mma.  Fragments of lane 4 g + t (PTX ISA,
 * "Matrix fragments for mma.m16n8k16"), with two 16-bit elements in a register, the lower one first:
 *
 *   A  16 x 16  a0 row g, columns 2t, 2t + 1   a1 row g + 8   a2, a3 the same, columns + 8
 *   B  16 x 8   b0 rows 2t, 2t + 1, column g   b1 rows + 8
 *   C  16 x 8   c0, c1 row g, columns 2t, 2t + 1   c2, c3 row g + 8 */
#ifdef __CUDACC__

/* The address of p within shared memory. */
FN uint32_t shared_at(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

/* Loads four 8 x 8 matrices of 16-bit elements: lane l gives the address of row l % 8 of matrix l / 8, a
 * multiple of 16, and gets row g, columns 2t and 2t + 1 of matrix m as r[m]; _trans: of m transposed. */
FN void ldmatrix(uint32_t r[4], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}

FN void ldmatrix_trans(uint32_t r[4], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}

/* c += a b, in f32 */
#define MMA(T)                                                                               \
    FN void mma_##T(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)               \
    {                                                                                        \
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." #T "." #T ".f32 "              \
                     "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                 \
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                        \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));        \
    }
MMA(bf16)
MMA(f16)

/* Begin to copy 16, 8 or 4 bytes to shared memory: the first `bytes` from global memory, then zeros. */
FN void copy_async_16(void *to, const void *from, int bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 : : "r"(shared_at(to)), "l"(from), "r"(bytes) : "memory");
}

FN void copy_async_8(void *to, const void *from, int bytes)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;"
                 : : "r"(shared_at(to)), "l"(from), "r"(bytes) : "memory");
}

FN void copy_async_4(void *to, const void *from, int bytes)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 : : "r"(shared_at(to)), "l"(from), "r"(bytes) : "memory");
}

/* Makes this thread's copies since the last commit a group. */
FN void copy_commit(void) { asm volatile("cp.async.commit_group;" : : : "memory"); }

/* Waits until all groups of copies of this thread but the last n, a literal, are done. */
#define copy_wait(n) asm volatile("cp.async.wait_group %0;" : : "n"(n) : "memory")

/* Rounds two floats to a register of two 16-bit elements. */
#define PACK(T, x2)                                                                          \
    FN uint32_t pack_##T(float low, float high)                                              \
    {                                                                                        \
        uint32_t r;                                                                          \
        asm("cvt.rn." #x2 ".f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));               \
        return r;                                                                            \
    }
PACK(bf16, bf16x2)
PACK(f16, f16x2)
#else
#include "tensor_shim.h"
#endif
