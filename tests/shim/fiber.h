/* fiber.h -- runs a CUDA launch on the CPU, one fiber per thread of a block. */
#ifndef CKC_FIBER_H
#define CKC_FIBER_H
#include "cuda_shim.h"
#undef FN

/* Run body(arg) for every thread of `grid` blocks of `block` threads (a multiple of 32, at most
 * 1024), with `shared` bytes of dynamic shared memory, scheduling at random from seed.  The kernel's `shim`
 * points to *state, whose capability the caller has set.
 * False: the launch is too large, or state->error says what went wrong, for instance that some threads wait
 * for others that never come. */
bool fiber_launch(ShimState *state, void (*body)(void *const *arg), void *const *arg,
                  unsigned grid, unsigned block, unsigned shared, uint64_t seed);
/* The same for a kernel with pointer operands; operand has FIBER_ARGS elements. */
enum { FIBER_ARGS = 64 };
bool fiber_launch_kernel(ShimState *state, const void *kernel, void *const *operand,
                          unsigned grid, unsigned block, unsigned shared, uint64_t seed);
/* The same and faster, for a kernel whose threads do not wait for each other; block is a power of 2. */
bool thread_launch_kernel(ShimState *state, const void *kernel, void *const *operand,
                          unsigned grid, unsigned block, uint64_t seed);
#endif
