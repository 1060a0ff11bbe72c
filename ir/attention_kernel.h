/* attention_kernel.h -- names of the parameters of attention's kernels (ir/ops/attention.c).
 *
 * Each list is the one place that names and orders them.  Parameter ROWS is
 *
 *   k->p[P_ROWS]  where a kernel is made or read, and p[P_ROWS] in the texts of its bodies
 *   A_ROWS        its value, in the texts of codegen/prelude/attention*.h (codegen/attention_text.h)
 *
 * and of the real ones SCALE is k->q[Q_SCALE], q[Q_SCALE] and A_SCALE. */
#ifndef CKC_ATTENTION_KERNEL_H
#define CKC_ATTENTION_KERNEL_H

#include "attrs.h"

/* clang-format off */
#define ATTENTION_INTEGERS(NAME)                                                                             \
    NAME(BATCH) NAME(HEADS) NAME(GROUPS) /* GROUPS: heads of k and of v */                                   \
    NAME(ROWS) NAME(COLS)                /* rows and columns of the scores */                                \
    NAME(SIZE) NAME(V_SIZE)              /* elements of a head of q and k; of v and o */                     \
    NAME(RIGHT) NAME(LEFT)               /* row r sees the columns r - LEFT to r + RIGHT */                  \
    /* Elements from one batch, head and row to the next, of q, k, v and o (gradients lie alike). */         \
    NAME(Q_BATCH) NAME(Q_HEAD) NAME(Q_ROW)                                                                   \
    NAME(K_BATCH) NAME(K_HEAD) NAME(K_ROW)                                                                   \
    NAME(V_BATCH) NAME(V_HEAD) NAME(V_ROW)                                                                   \
    NAME(O_BATCH) NAME(O_HEAD) NAME(O_ROW)                                                                   \
    NAME(Q_FIRST) NAME(K_FIRST) NAME(V_FIRST) /* first elements: 0, unless operands are packed */            \
    /* Is there a mask, a bias?  Elements from one of each to the next, 0: the same for all. */              \
    NAME(MASK) NAME(MASK_BATCH) NAME(MASK_HEAD) NAME(MASK_ROW) NAME(MASK_COL)                                \
    NAME(BIAS) NAME(BIAS_BATCH) NAME(BIAS_HEAD) NAME(BIAS_ROW) NAME(BIAS_COL)                                \
    NAME(BIAS_EXTENT_BATCH) NAME(BIAS_EXTENT_HEAD) NAME(BIAS_EXTENT_ROW) NAME(BIAS_EXTENT_COL)               \
    NAME(SINK) NAME(DROPOUT)   /* is there a sink, dropout? */                                               \
    NAME(PHASE)                /* PHASE_FORWARD .. */                                                        \
    NAME(GUARD) NAME(HIDES)    /* GUARD_NONE .., HIDES_ALL .. */                                             \
    NAME(PACKED)               /* gradients of q, k and v are one result */                                  \
    NAME(KEY)                  /* key of dropout; must be the last integer, see NativeText */
#define ATTENTION_REALS(NAME)                                                                                \
    NAME(SCALE) NAME(FILL) NAME(CAP)     /* as in AttentionAttrs; CAP 0: none */                             \
    NAME(DROP_BELOW) NAME(KEEP_FACTOR)   /* weights whose draw is below are 0, others are multiplied */
#define ATTENTION_PHASES PHASE_FORWARD, PHASE_BACKWARD, PHASE_BIAS /* PHASE_BIAS: gradient of the bias */
/* clang-format on */

#define ATTENTION_P(name) P_##name,
#define ATTENTION_Q(name) Q_##name,
enum { ATTENTION_INTEGERS(ATTENTION_P) P_COUNT };
enum { ATTENTION_REALS(ATTENTION_Q) Q_COUNT };
enum { ATTENTION_PHASES };

/* For the texts of bodies (KERNEL_NAMED). */
#define ATTENTION_NAMES                                                                                      \
    enum { ATTENTION_INTEGERS(ATTENTION_P) };                                                                \
    enum { ATTENTION_REALS(ATTENTION_Q) };                                                                   \
    enum { ATTENTION_HIDES };                                                                                \
    enum { ATTENTION_GUARDS };

#endif
