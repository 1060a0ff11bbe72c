/* onednn.h -- matrix products and convolutions, by oneDNN or, where its routines allocate memory or
 * there are none, by our own (product.c).
 *
 * Tensors are plain row-major outside, images of convolutions in either order of dimensions.  Inside, a
 * choice of algorithm may reorder them into blocked layouts; such copies, and oneDNN's own working memory,
 * live in scratch that the caller provides, so that they are planned like every other buffer.  Nothing is
 * allocated by a run.  Convolutions reorder a few images at a time, a rule on shapes says how many; only
 * gradients of weights, which are sums over the batch, take all at once.
 *
 * The same operation with the same choice and number of threads gives the same bits every time;
 * different choices add in different orders, so a choice belongs to the signature of an operator,
 * not to an execution of it. */
#ifndef CKC_ONEDNN_H
#define CKC_ONEDNN_H

#include "ir/kernel.h"

typedef enum {
    ONEDNN_PLAIN,    /* every tensor as it lies, but the weights of a convolution */
    ONEDNN_BLOCKED,  /* operands reordered to the layouts the library likes best */
    ONEDNN_WINOGRAD, /* convolution only: fewer multiplications, about 5 times the rounding error */
    ONEDNN_OWN,      /* our own (product.c): every tensor as it lies, but images where it makes some as
                      * [N, s..., C]: reordered */
    ONEDNN_CHOICES
} DnnlChoice;

/* One operation and the way it is made.  Unused bytes are zero. */
typedef struct {
    LibDesc of;
    int64_t images; /* that a convolution may reorder at a time (not of weights), 0: by rule */
    int64_t parts;  /* the channels of a convolution's result (not of weights) are made in, or fractions
                     * of the usual blocks of ONEDNN_OWN: a power of 2, 0: one */
    DnnlChoice choice;
} DnnlDesc;

typedef struct DnnlOp DnnlOp;

/* Choice and parts as schedules have them (Step.choice): "blocked", "own/4".  It is static. */
enum { ONEDNN_MAX_PARTS = 16 };
const char *onednn_choice_text(const DnnlDesc *desc);
bool onednn_choice_parse(DnnlDesc *desc, const char *text); /* false: it is none */

/* NULL without a message: the library has no fast routine for it (element type, empty tensors),
 * or the choice would be the same as a simpler one; NULL with a message: it failed.  Takes
 * 0.2-0.5 ms: create once.  Uses the number of OpenMP threads of this moment; run with the same. */
DnnlOp *onednn_make(const DnnlDesc *desc, Diag *d);
void onednn_free(DnnlOp *op); /* NULL is fine */
int64_t onednn_scratch_bytes(const DnnlOp *op);
const char *onednn_impl(const DnnlOp *op); /* the library's name of the routine */
/* The instructions that the library uses here: of the processor, or what ONEDNN_MAX_CPU_ISA allows.  Our
 * own products and generated kernels keep to vectors as wide.  The set is one number, for keys. */
unsigned onednn_isa(void);
int onednn_vector_bytes(void); /* 64 with AVX-512, 32 with AVX2, 16 */
bool onednn_wide_bf16(void);   /* 16-bit instructions of AVX-512 */
/* Those, where products in bf16 are faster than in f32: with AMX, and AMD's.  Others make half as many. */
bool onednn_fast_bf16(void);
bool onednn_has_amx(void);

/* in[k]: operand k (an absent bias is not looked at); scratch: 64-byte aligned.  One run of an
 * op at a time.  What a product is added to may be at `out`, otherwise it is copied there. */
bool onednn_run(DnnlOp *op, const void *const *in, void *out, void *scratch, Diag *d);

#endif
