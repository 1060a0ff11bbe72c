/* fiber.h -- runs a CUDA launch on the CPU, one fiber per thread of a block. */
#ifndef CKC_FIBER_H
#define CKC_FIBER_H
#include "cuda_shim.h"
#undef FN

/* Run body(arg) for every thread of `grid` blocks of `block` threads (a multiple of 32, at most
 * 1024), with `shared` bytes of dynamic shared memory, scheduling at random from seed.  *state is what the
 * kernel's `shim` must point to; its capability is set.
 * False: state->error says what went wrong, for instance that some threads wait for others that never
 * come. */
bool fiber_launch(ShimState *state, void (*body)(void *const *arg), void *const *arg,
                  unsigned grid, unsigned block, unsigned shared, uint64_t seed);
/* The same for a kernel with pointer operands, of which there is room for FIBER_ARGS. */
enum { FIBER_ARGS = 64 };
bool fiber_launch_kernel(ShimState *state, const void *kernel, void *const *operand,
                          unsigned grid, unsigned block, unsigned shared, uint64_t seed);
/* Likewise, faster, of a kernel whose threads do not wait for each other; block is a power of 2. */
bool thread_launch_kernel(ShimState *state, const void *kernel, void *const *operand,
                          unsigned grid, unsigned block, uint64_t seed);
#endif
