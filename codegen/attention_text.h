/* attention_text.h -- the macros by which the texts of attention (prelude/attention*.h) see their kernel. */
#ifndef CKC_ATTENTION_TEXT_H
#define CKC_ATTENTION_TEXT_H
#include "text.h"

/* Defines A_ROWS .. and A_SCALE .., the kernel's parameters under their names (ir/attention_kernel.h) except
 * the key of dropout; A_HIDES_ALL .., A_GUARD_NONE .., A_PHASE_FORWARD .., the values that some of them take;
 * A_TYPE, A_BIAS_TYPE and A_SINK_TYPE, the element types in memory of q, of the bias and of the sinks. */
void attention_macros(const Writer *w, const Kernel *k);
/* Defines macro `name` as the element type of an operand; f32 where the kernel has no such operand. */
void attention_type(const Writer *w, const Kernel *k, const char *name, int operand);

#endif
