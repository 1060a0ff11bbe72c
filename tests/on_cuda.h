/* on_cuda.h -- a network's step on the CUDA device, which in tests is fake_cuda/. */
#ifndef CKC_TESTS_ON_CUDA_H
#define CKC_TESTS_ON_CUDA_H
#include "step.h"

/* Gradients of a step as the processor's from the same weights and data; then the same bits after three steps
 * at 100, 75 and 50 % of the memory (or what is the least), in five orders of streams.
 *
 * The device's libraries are those of CKC_CUDA_PATH.  opt: import, loss and what does not train; init: of
 * weights that the file does not have, or NULL; data: as of step_run(); tolerance: of all gradients, over
 * their norm, and of each element, over 1 + its size. */
void check_on_cuda(const char *path, const StepOptions *opt, const Init *init, DataFile *data,
                   double tolerance);

/* Test fixtures: ckc finds the libraries of fake_cuda/, or with CKC_GPU the GPU that is here; a cache of its
 * own.  CKC_LONG=1: all accesses of kernels to memory are looked at. */
void use_cuda(void);
void leave_cuda(void);
#endif
