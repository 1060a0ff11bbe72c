/* on_cuda.h -- a network's step on the CUDA device, which in tests is fake_cuda/. */
#ifndef CKC_TESTS_ON_CUDA_H
#define CKC_TESTS_ON_CUDA_H
#include "step.h"

/* Checks that a step's gradients agree with the processor's from the same weights and data, and that three
 * steps give the same bits at 100, 75 and 50 % of the memory (at least the least feasible), in five orders of
 * streams.
 *
 * The device's libraries are those of CKC_CUDA_PATH.  opt: import, loss and what does not train; init: for
 * weights that the file does not have, or NULL; data: as for step_run(); tolerance: the largest error of all
 * gradients, over their norm, and of each element, over 1 + its size. */
void check_on_cuda(const char *path, const StepOptions *opt, const Init *init, DataFile *data,
                   double tolerance);

/* Unchecked fixtures: make_cache(), and ckc finds the libraries of fake_cuda/, or with CKC_GPU=1 the GPU that
 * is here.  With CKC_LONG=1 all accesses of kernels to memory are checked. */
void use_cuda(void);
void leave_cuda(void);
#endif
