/* cuda_shim.h -- the CUDA C that ckc prints, for a C compiler: threads are fibers (fiber.c).
 *
 * Included by the generated text where __CUDACC__ is not defined.  A block's threads run one at a
 * time in random order between barriers and shuffles, so a missing barrier shows as a wrong
 * result, and a barrier that not all threads reach as a failed launch. */
#ifndef CKC_CUDA_SHIM_H
#define CKC_CUDA_SHIM_H
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define UNROLL
#define ROLLED

#define FN static inline __attribute__((unused))
#define GLOBAL
#define OPERANDS(n, name) void *const *name /* the fake driver copies what lies there */
#define OPERAND(name, i) name[i]
#define __shared__ static __attribute__((section("shared_variables"))) /* blocks run one at a time */
#define __launch_bounds__(...)
#define ALIGNED_16 __attribute__((aligned(16)))
#define SHARED_BYTES(name, align) unsigned char *const name = shim->shared

#define bf16_of_chunk(u, e) LD_bf16(u, e)
FN float fma_to_one(float x, float y, float z) { return fminf(fmaxf(fmaf(x, y, z), 0), 1); }
FN float exp2_fast(float x)
{
    float y = exp2f(x);
    return y < 1.17549435e-38f ? 0 : y;
}

typedef struct {
    unsigned x;
} ShimIndex;

/* What the lanes of a warp do together, each with an operand of its own: WARP_SHUFFLE has a WarpShuffle, and
 * gets the value of another lane; WARP_SYNC has none, and only waits for the others; ldmatrix has an address
 * in shared memory; mma has fragments, a WarpMma (prelude/tensor.h). */
typedef enum {
    WARP_SHUFFLE,
    WARP_SYNC,
    WARP_LDMATRIX,
    WARP_LDMATRIX_TRANS,
    WARP_MMA_BF16,
    WARP_MMA_F16,
    WARP_WGMMA, /* a WarpWgmma; this and all below are in wgmma.c */
    WARP_WGMMA_FENCE,
    WARP_WGMMA_COMMIT,
    WARP_WGMMA_WAIT
} WarpOp;
typedef struct {
    uint64_t value;
    unsigned from; /* the lane whose value is wanted */
} WarpShuffle;
typedef struct {
    uint32_t a[4], b[2];
    float c[4];
} WarpMma;

/* A lane's operand of a warpgroup's product 64 x n, of which its warp makes 16 rows.  c: n / 2 elements of
 * the result; adds: the product is added to them; left: the left factor if it is in_registers, else
 * descriptor a tells where it is, as b does of the right one; turned: a is transposed, and b is not.  Of a
 * wait, n is the number of groups that may be left. */
typedef struct {
    float *c;
    int n;
    bool f16, adds, in_registers, turned;
    uint32_t left[4];
    uint64_t a, b;
} WarpWgmma;

/* Where an object of generated text lies, and in it its __shared__ variables; shared NULL: it has none. */
typedef struct {
    const char *image, *image_end, *shared, *shared_end;
} ShimMemory;

typedef struct {
    ShimIndex thread, block, block_dim, grid_dim;
    void (*barrier)(void);
    int (*any)(int mine); /* a barrier; has any thread come with a `mine` that is not 0? */
    void (*warp)(WarpOp op, const void *in, size_t bytes, void *out, size_t out_bytes);
    void (*copy)(void *to, const void *from, int bytes, int from_bytes); /* cp.async */
    void (*copy_commit)(void);
    void (*copy_wait)(int groups);
    void (*fence)(void); /* fence.proxy.async */
    void (*access)(const void *at, size_t bytes, bool write); /* shadow_hooks.h; 0 bytes: not aligned */
    bool (*present)(int barrier); /* is this barrier made?  test_cuda.c numbers them */
    int capability; /* of the GPU whose tensor cores these are, 80 or 90 */
    char error[160]; /* the first fault of a launch; "": it has none */
    bool (*launch)(const void *kernel, void **arg, unsigned grid, unsigned block, unsigned shared);
    unsigned char *shared; /* dynamic shared memory of the block, aligned to 1024 */
} ShimState;
extern ShimState *shim; /* set by the loader of the object */
#define threadIdx (shim->thread)
#define blockIdx (shim->block)
#define blockDim (shim->block_dim)
#define gridDim (shim->grid_dim)
#define __syncthreads() shim->barrier()
#define __syncthreads_or(x) shim->any(x)

#define __syncwarp() shim->warp(WARP_SYNC, NULL, 0, NULL, 0)

#define SHUFFLE(T)                                                                           \
    FN T shuffle_##T(T v, unsigned lane)                                                     \
    {                                                                                        \
        WarpShuffle in = {0, lane & 31};                                                     \
        memcpy(&in.value, &v, sizeof v);                                                     \
        shim->warp(WARP_SHUFFLE, &in, sizeof in, &v, sizeof v);                              \
        return v;                                                                            \
    }
SHUFFLE(float)
SHUFFLE(double)
SHUFFLE(uint32_t)
SHUFFLE(int64_t)
#define __shfl_sync(all, v, lane)                                                            \
    _Generic((v), float: shuffle_float, double: shuffle_double, uint32_t: shuffle_uint32_t,  \
             default: shuffle_int64_t)(v, (unsigned)(lane))
#define __shfl_xor_sync(all, v, mask) __shfl_sync(all, v, (threadIdx.x ^ (unsigned)(mask)))

/* Copies so many bytes in one access; both addresses are aligned to as many. */
#define COPY(bytes)                                                                          \
    typedef char Shim##bytes __attribute__((vector_size(bytes), may_alias));                 \
    FN void copy_##bytes(void *to, const void *from)                                         \
    {                                                                                        \
        *(Shim##bytes *)to = *(const Shim##bytes *)from;                                     \
    }
COPY(4)
COPY(8)
COPY(16)

FN uint32_t shim_ballot(bool on)
{
    uint32_t lanes = 0;
    for (unsigned l = 0; l < 32; l++)
        lanes |= shuffle_uint32_t(on, l) << l;
    return lanes;
}
#define __ballot_sync(all, on) shim_ballot(on)
FN uint32_t shim_match(int v)
{
    uint32_t lanes = 0;
    for (unsigned l = 0; l < 32; l++)
        lanes |= (uint32_t)(shuffle_uint32_t((uint32_t)v, l) == (uint32_t)v) << l;
    return lanes;
}
#define __match_any_sync(all, v) shim_match(v)
FN int __ffs(int v) { return __builtin_ffs(v); }
FN int __popc(uint32_t v) { return __builtin_popcount(v); }

#define PICK(c, x, y) ((c) ? (x) : (y))
#define BY_TYPE(name, x, y)                                                                  \
    _Generic((x) + (y), float: name##float, double: name##double, default: name##int)(x, y)
#define INT_OF(x)                                                                            \
    _Generic((x), float: int_of_float, double: int_of_double, default: int_of_int)(x)

FN uint32_t bits_of_float(float f) { union { float f; uint32_t u; } x = {f}; return x.u; }
FN float float_of_bits(uint32_t u) { union { uint32_t u; float f; } x = {u}; return x.f; }
FN uint64_t bits_of_double(double f) { union { double f; uint64_t u; } x = {f}; return x.u; }
FN double double_of_bits(uint64_t u) { union { uint64_t u; double f; } x = {u}; return x.f; }
#endif
