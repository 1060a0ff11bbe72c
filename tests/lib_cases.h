/* lib_cases.h -- matrix products and convolutions for tests, and their descriptions for libraries. */
#ifndef CKC_TESTS_LIB_CASES_H
#define CKC_TESTS_LIB_CASES_H

#include "ir/kernel.h"
#include "runtime/cpu/onednn.h"

typedef struct {
    LibOp op;
    DType dt, out_dt;
    bool ta, tb;
    int ra, rb;
    int64_t a[5], b[5]; /* matmul: the factors as stored; conv: x and w of the forward operation */
    int64_t strides[3], pads[6], dilations[3], group; /* 0: the default, which is 1 but for pads */
    bool bias;
} LibCase;

#define CONV(type, rank) .op = LIB_CONV, .dt = type, .ra = rank, .rb = rank

/* Make a tensor of zeros, and one of random numbers in [-1, 1); the caller frees its data. */
Tensor tensor_new(Type t);
Tensor tensor_random(Type t, uint32_t seed);

/* Set the attributes and types of d->of from a case; op: the convolution or one of its gradients. */
void lib_case_matmul(DnnlDesc *d, const LibCase *c);
void lib_case_conv(DnnlDesc *d, const LibCase *c, LibOp op);

#endif
