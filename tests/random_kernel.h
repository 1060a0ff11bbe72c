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

/* A kernel over a random space: broadcast and permuted operands of all element types, several
 * levels of reductions, full and reduced stores.  large: spaces that are cut into blocks. */
void random_kernel(RandomKernel *r, Arena *a, uint64_t seed, bool large);
/* The gradient of a batch norm behind a residual sum of elements dt, whose gradients, operands 0 and 1, it
 * adds and stores as its second result; channels are dimension 1 of three. */
void residual_kernel(RandomKernel *r, Arena *a, DType dt, const int64_t shape[3]);
/* How many of its stores are made in the first of several passes. */
int random_kernel_early(const RandomKernel *r);
/* The same data at every call; outputs zero. */
Tensor *random_kernel_data(const RandomKernel *r, Arena *a);
/* Relative error to expect of its REAL. */
double random_kernel_tolerance(const RandomKernel *r);
/* Equal up to tol times 1 + |x|; halves by their rounding, integers exactly. */
bool tensor_close(const Tensor *want, const Tensor *got, double tol, char msg[256]);
#endif
