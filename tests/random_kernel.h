/* random_kernel.h -- random DAG kernels with data, for the code generators' tests. */
#ifndef CKC_TESTS_RANDOM_KERNEL_H
#define CKC_TESTS_RANDOM_KERNEL_H
#include "ir/kernel.h"

enum { RANDOM_OPERANDS = 16 };

typedef struct {
    Kernel k;
    int nread;
    Type type[RANDOM_OPERANDS];
    uint64_t seed;
} RandomKernel;

/* Makes a kernel over a random space: broadcast and permuted operands of all element types, several levels of
 * reductions, full and reduced stores.  large: the space is large enough to be cut into blocks. */
void random_kernel(RandomKernel *r, Arena *a, uint64_t seed, bool large);
/* Makes the kernel of a batch norm's gradient behind a residual sum and a ReLU, with elements dt: it adds
 * operands 0 and 1, gradients of the ReLU's result, and stores the gradient of the ReLU's operand as its
 * second result.  Channels are dimension 1 of the three. */
void residual_kernel(RandomKernel *r, Arena *a, DType dt, const int64_t shape[3]);
/* How many of the kernel's stores are made in the first of several passes. */
int random_kernel_early(const RandomKernel *r);
/* Tensors for the kernel's operands: inputs have the same data at every call, outputs are zero. */
Tensor *random_kernel_data(const RandomKernel *r, Arena *a);
/* The relative error to allow, by the type in which the kernel computes. */
double random_kernel_tolerance(const RandomKernel *r);
/* Is got equal to want up to tol times 1 + |want|, in 16-bit types up to their rounding, in integers exactly?
 * False: msg tells the first difference. */
bool tensor_close(const Tensor *want, const Tensor *got, double tol, char msg[256]);
#endif
