/* problem.h -- a matrix product or convolution as strided tensors, from which the routines of oneDNN
 * (onednn.c) and our own (product.c) are made. */
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

/* The tensors by role, for gradients of a convolution by their role in the convolution itself; grouped
 * weights are [g, M/g, C/g, k...]. */
typedef struct {
    LibOp op;
    DnnlChoice choice;
    Layout slot[SLOTS];
    int64_t strides[LAYOUT_DIMS], dilates[LAYOUT_DIMS]; /* dilates: 0 = dense */
    int64_t pad_begin[LAYOUT_DIMS], pad_end[LAYOUT_DIMS];
    bool channels_last; /* images lie as [N, s..., C] */
    bool panels;   /* WEIGHTS of a product are [columns / p, terms, p] */
    bool splits;   /* factors of f32 are sums of parts (panel.h) where the processor has tiles */
    int64_t added; /* size in bytes of the operand that a product is added to; 0: there is none */
    int64_t batch, images; /* images in all, and in the slots; 1 for a matrix product */
    int64_t parts;         /* number of parts of the result's channels, the slots have one of them; for
                            * ONEDNN_OWN the divisor of the blocks */
} Problem;

/* False: neither oneDNN nor we have a routine for it, or the result cannot be cut into such parts. */
bool problem_describe(Problem *p, const DnnlDesc *d);
/* choice.c: Are a routine's factors worth splitting in parts of bf16?  It depends on neither the number of
 * rows that are made nor the processor. */
bool routine_splits(const LibDesc *d);
/* Number of the operand in a slot that the operation has; -1: the result. */
int problem_operand(LibOp op, int slot);
const Type *problem_type(const LibDesc *d, int slot);
/* Distance in elements from one part to the next in a tensor of a convolution; 0: all parts use the same. */
int64_t problem_part_stride(const Problem *p, int slot);

/* ---- product.c: products that allocate nothing ------------------------------------------------- */

/* Bits depend neither on the number of threads nor on how the result is cut: every element is summed in the
 * same order, a block of terms at a time.  (Where factors are split and have infinite elements, the finite
 * sums of their block may be rounded otherwise.) */
typedef struct Product Product;

/* NULL: p->choice is Winograd's algorithm, which does not suit the problem.  vector: bytes, 16, 32 (with FMA)
 * or 64 (AVX-512).  of_bf16: how factors of bf16 are multiplied, as pairs (AVX512_BF16), in tiles (AMX), or
 * widened; tiles multiply parts of f32, too. */
Product *product_make(const Problem *p, int vector, PanelKind of_bf16, int threads);
void product_free(Product *p); /* NULL is fine */
int64_t product_scratch(const Product *p); /* bytes */
/* at: the tensors by slot.  add: adds to the result that is there; a bias is added in any case. */
void product_run(const Product *p, char *const at[SLOTS], bool add, void *scratch);

#endif
