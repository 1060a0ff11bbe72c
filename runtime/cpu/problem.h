/* problem.h -- a matrix product or convolution as strided tensors: what oneDNN (onednn.c) and our own
 * products (product.c) are made from. */
#ifndef CKC_PROBLEM_H
#define CKC_PROBLEM_H

#include "onednn.h"
#include "panel.h"

enum { SRC, WEIGHTS, BIAS, DST, SLOTS, LAYOUT_DIMS = 12 };

typedef struct {
    int rank; /* 0: absent */
    DType dt;
    int64_t dim[LAYOUT_DIMS], stride[LAYOUT_DIMS]; /* stride in elements */
} Layout;

/* Tensors by role; conv: of the forward operation, grouped weights as [g, M/g, C/g, k...]. */
typedef struct {
    LibOp op;
    DnnlChoice choice;
    Layout slot[SLOTS];
    int64_t strides[LAYOUT_DIMS], dilates[LAYOUT_DIMS]; /* dilates: 0 = dense */
    int64_t pad_begin[LAYOUT_DIMS], pad_end[LAYOUT_DIMS];
    bool channels_last; /* images lie as [N, s..., C] */
    bool panels;   /* WEIGHTS of a product are [columns / p, terms, p] */
    int64_t added; /* bytes of what a product is added to; 0: nothing */
    int64_t batch, images; /* in all, and in the slots; of a product one */
    int64_t parts;         /* of the result's channels, one of which is in the slots; of a product of
                            * ours: of its blocks */
} Problem;

/* false: none of ours, or no such parts. */
bool problem_describe(Problem *p, const DnnlDesc *d);
/* Which operand is in a slot that the operation has; -1: its result. */
int problem_operand(LibOp op, int slot);
const Type *problem_type(const LibDesc *d, int slot);
/* Elements from one part to the next of a tensor of a convolution; 0: all parts see the same. */
int64_t problem_part_stride(const Problem *p, int slot);

/* ---- product.c: products that allocate nothing ------------------------------------------------- */

/* Bits depend neither on the number of threads nor on how the result is cut: every element is summed
 * in the same order, in terms of PRODUCT_TERMS. */
typedef struct Product Product;

/* NULL: p->choice is Winograd's algorithm, which is not for this one.  vector: bytes, 16, 32 (with FMA) or 64
 * (AVX-512).  of_bf16: how their factors are multiplied, as pairs (AVX512_BF16) or tiles (AMX). */
Product *product_make(const Problem *p, int vector, PanelKind of_bf16, int threads);
void product_free(Product *p); /* NULL is fine */
int64_t product_scratch(const Product *p); /* bytes */
/* at: the tensors by slot.  add: to what is there; a bias is added in any case. */
void product_run(const Product *p, char *const at[SLOTS], bool add, void *scratch);

#endif
