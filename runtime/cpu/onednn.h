/* onednn.h -- matrix products and convolutions, by oneDNN or, where it has no routine or one that allocates
 * memory, by our own routines (product.c).
 *
 * Callers pass plain row-major tensors, images of convolutions in either order of dimensions.  Inside, a
 * choice of algorithm may reorder them into blocked layouts; such copies, and oneDNN's own working memory,
 * live in scratch that the caller provides, so that they are planned like every other buffer.  Nothing is
 * allocated by a run.  Convolutions reorder a few images at a time, as many as a rule on shapes says; only
 * gradients of weights, which are sums over the batch, reorder all at once.
 *
 * The same operation with the same choice and number of threads gives the same bits every time;
 * different choices add in different orders, so a choice belongs to the signature of an operator,
 * not to an execution of it. */
#ifndef CKC_ONEDNN_H
#define CKC_ONEDNN_H

#include "ir/kernel.h"

typedef enum {
    ONEDNN_PLAIN,    /* tensors stay as they lie, except the weights of a convolution */
    ONEDNN_BLOCKED,  /* operands reordered to the layouts the library likes best */
    ONEDNN_WINOGRAD, /* convolution only: fewer multiplications, about 5 times the rounding error */
    ONEDNN_OWN,      /* our own (product.c): tensors stay as they lie, except images that lie as [N, s..., C],
                      * which are reordered unless only weights are made or the window is one */
    ONEDNN_CHOICES
} DnnlChoice;

/* An operation and the way it is computed.  Unused bytes are zero. */
typedef struct {
    LibDesc of;
    int64_t images; /* number of images that a convolution (not of weights) reorders at a time; 0: by rule */
    int64_t parts;  /* number of parts in which a convolution (not of weights) makes the channels of its
                     * result or, for ONEDNN_OWN, divisor of the usual blocks; a power of 2, 0: one */
    DnnlChoice choice;
} DnnlDesc;

typedef struct DnnlOp DnnlOp;

/* Choice and parts as written in schedules (Step.choice): "blocked", "own/4".  The text is static. */
enum { ONEDNN_MAX_PARTS = 16 };
const char *onednn_choice_text(const DnnlDesc *desc);
bool onednn_choice_parse(DnnlDesc *desc, const char *text); /* false: the text is not a choice */

/* NULL without a message: the library has no fast routine for it (element type, empty tensors),
 * or the choice would be the same as a simpler one; NULL with a message: it failed.  Takes
 * 0.2-0.5 ms: create once.  Uses the number of OpenMP threads of this moment; run with the same. */
DnnlOp *onednn_make(const DnnlDesc *desc, Diag *d);
void onednn_free(DnnlOp *op); /* NULL is fine */
int64_t onednn_scratch_bytes(const DnnlOp *op);
const char *onednn_impl(const DnnlOp *op); /* the library's name of the routine */
/* The instruction sets that the library uses here, as bits: those of the processor that ONEDNN_MAX_CPU_ISA
 * allows.  Our own products and generated kernels use vectors of the same width. */
unsigned onednn_isa(void);
int onednn_vector_bytes(void); /* 64 with AVX-512, 32 with AVX2, 16 */
bool onednn_wide_bf16(void);   /* 16-bit instructions of AVX-512 */
/* Are products faster in bf16 than in f32?  True with AMX, and on AMD with those instructions; other
 * processors execute half as many of them. */
bool onednn_fast_bf16(void);
bool onednn_has_amx(void);

/* in[k]: operand k (an absent bias is not read); scratch: 64-byte aligned.  Only one run of an op at a time.
 * The operand that a product is added to may be at `out`, otherwise it is copied there. */
bool onednn_run(DnnlOp *op, const void *const *in, void *out, void *scratch, Diag *d);

#endif
