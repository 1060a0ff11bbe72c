/* attention_text.h -- what the texts of attention (prelude/attention*.h) see of their kernel, as macros. */
#ifndef CKC_ATTENTION_TEXT_H
#define CKC_ATTENTION_TEXT_H
#include "text.h"

/* A_ROWS .. and A_SCALE ..: the kernel's parameters under their names (ir/attention_kernel.h), but the key of
 * dropout; A_HIDES_ALL .., A_GUARD_NONE .., A_PHASE_FORWARD ..: what some of them may be; A_TYPE,
 * A_BIAS_TYPE, A_SINK_TYPE: types in memory of q, of the bias and of the sinks. */
void attention_macros(const Writer *w, const Kernel *k);
/* A macro for an element type; f32 where the kernel has no such operand. */
void attention_type(const Writer *w, const Kernel *k, const char *name, int operand);

#endif
