/* native.h -- hand-written C for the vectors of a CPU in place of a kernel's body. */
#ifndef CKC_NATIVE_H
#define CKC_NATIVE_H
#include "text.h"

/* Is there one for this kernel and its element types? */
bool native_has(const Kernel *k);
/* The texts of all kernels that have one, each once: kernels that differ in their last integer
 * parameter share it. */
void native_print_texts(FILE *f, Kernel *const *k, int n);
/* The kernel's function: a call of its text. */
void native_print_call(const Writer *w, const Kernel *k, const char *name);
#endif
