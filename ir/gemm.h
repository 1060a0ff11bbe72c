/* gemm.h -- matrix products as a BLAS library has to know them: plain data, no graph.
 *
 * y[batch][m][n] = op(a) op(b) [+ c] [+ bias[n]], or gelu_tanh of that, which is stored beside it, or the
 * product times its derivative at x, all row-major.  A convolution with a window of one position is such a
 * product, too: W X of every image.  One operation is one call or several of the same description: batches
 * that are not one stride apart, and sums over images, each of which is added to those before. */
#ifndef CKC_GEMM_H
#define CKC_GEMM_H

#include "kernel.h"

/* One call, comparable with memcmp.  Leading dimensions and strides are in elements; with a stride of 0 all
 * batches see the same.  c is laid out as y. */
typedef struct {
    DType in, out; /* type of the factors; of y and c.  Sums are in dtype_sum(in) */
    int tf32;      /* f32 factors may be rounded to 10 bits of fraction */
    int adds, bias, gelu, ta, tb; /* gelu: a GeluOf; x is laid out as y */
    int64_t m, n, k, lda, ldb, ldy, batch, sa, sb, sy;
} Gemm;

typedef enum { GEMM_A, GEMM_B, GEMM_Y, GEMM_C, GEMM_BIAS, GEMM_X, GEMM_OPERANDS } GemmOperand;
static inline bool gemm_has(const Gemm *g, GemmOperand o)
{
    return o <= GEMM_Y || (o == GEMM_C && g->adds) || (o == GEMM_BIAS && g->bias) || (o == GEMM_X && g->gelu);
}

typedef struct {
    Gemm g;
    int operand[GEMM_OPERANDS]; /* operand of the launch, of each that gemm_has() */
    bool sums;                  /* calls but the first add to y */
    int rank;                   /* depth of the loop nest of calls; loops from the outermost on: */
    int64_t extent[MAX_RANK], stride[MAX_RANK][GEMM_OPERANDS];
} Gemms;

/* Most calls of one operation, and of a sum, where each call reads and writes the whole result. */
enum { GEMM_CALLS = 64, GEMM_SUM_CALLS = 8 };

/* False: the operation is not a product, or takes more calls than that. */
bool gemm_describe(Gemms *out, const LibDesc *of);
int64_t gemm_calls(const Gemms *s);
/* Call i: its description, and the bytes from the start of each operand to what it works on. */
Gemm gemm_call(const Gemms *s, int64_t i, int64_t at[GEMM_OPERANDS]);
int64_t gemm_bytes(const Gemm *g, GemmOperand operand); /* from its first element to the end of its last */

#endif
