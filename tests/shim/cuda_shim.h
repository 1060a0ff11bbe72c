/* cuda_shim.h -- the CUDA C that ckc prints, for a C compiler: threads are fibers (fiber.c).
 *
 * Included by the generated text where __CUDACC__ is not defined.  A block's threads run one at a
 * time in random order between barriers and shuffles, so a missing barrier shows as a wrong
 * result, and a barrier that not all threads reach as a failed launch. */
#ifndef CKC_CUDA_SHIM_H
#define CKC_CUDA_SHIM_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FN static inline __attribute__((unused))
#define GLOBAL
#define __shared__ static /* one block at a time */
#define __launch_bounds__(n)
#define SHARED_BYTES(name) unsigned char *const name = shim->shared

typedef struct {
    unsigned x;
} ShimIndex;
typedef struct {
    ShimIndex thread, block, block_dim, grid_dim;
    void (*barrier)(void);
    void (*exchange)(void *value, size_t size, int mask);
    bool (*launch)(const void *kernel, void **arg, unsigned grid, unsigned block, unsigned shared);
    unsigned char *shared; /* dynamic shared memory of the block, aligned to 1024 */
} ShimState;
extern ShimState *shim; /* set by the loader of the object */
#define threadIdx (shim->thread)
#define blockIdx (shim->block)
#define blockDim (shim->block_dim)
#define gridDim (shim->grid_dim)
#define __syncthreads() shim->barrier()

#define SHUFFLE(T)                                                                           \
    FN T shuffle_##T(T v, int mask)                                                          \
    {                                                                                        \
        shim->exchange(&v, sizeof v, mask);                                                  \
        return v;                                                                            \
    }
SHUFFLE(float)
SHUFFLE(double)
SHUFFLE(int64_t)
#define __shfl_xor_sync(all, v, mask)                                                        \
    _Generic((v), float: shuffle_float, double: shuffle_double, default: shuffle_int64_t)(v, mask)

#define BY_TYPE(name, x, y)                                                                  \
    _Generic((x) + (y), float: name##float, double: name##double, default: name##int)(x, y)
#define INT_OF(x)                                                                            \
    _Generic((x), float: int_of_float, double: int_of_double, default: int_of_int)(x)

FN uint32_t bits_of_float(float f) { union { float f; uint32_t u; } x = {f}; return x.u; }
FN float float_of_bits(uint32_t u) { union { uint32_t u; float f; } x = {u}; return x.f; }
FN uint64_t bits_of_double(double f) { union { double f; uint64_t u; } x = {f}; return x.u; }
FN double double_of_bits(uint64_t u) { union { uint64_t u; double f; } x = {u}; return x.f; }
#endif
