/* shared.h -- functions that several kernels call.
 *
 * Layers of one shape often differ in nothing but the keys of their random draws.  Their text is one
 * function shared_HASH(operands, keys), where HASH is that of the text; a kernel is a call of it. */
#ifndef CKC_SHARED_H
#define CKC_SHARED_H
#include "text.h"

/* Is there hand-written C for the vectors of a CPU for this kernel and its element types? */
bool native_has(const Kernel *k);
/* Function NAME(operands, keys) of that text. */
void native_print(Writer *w, const Kernel *k, const char *name);

/* Does the kernel draw random numbers, by keys of its own? */
bool shared_has(const Kernel *k);
/* Print, once each, the functions that kernels with keys call.  print: one of them, by name. */
typedef void PrintFn(Writer *w, const Kernel *k, const char *name);
void shared_print(FILE *f, const Kernel *const *k, int n, PrintFn *print);
/* The kernel's function: a call. */
void shared_print_call(const Writer *w, const Kernel *k, const char *name, PrintFn *print);
#endif
