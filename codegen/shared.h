/* shared.h -- functions that several kernels call.
 *
 * Layers of one shape often differ in nothing but the keys of their random draws.  Their text is one
 * function shared_HASH(operands, keys), where HASH is the hash of the text; each kernel calls it. */
#ifndef CKC_SHARED_H
#define CKC_SHARED_H
#include "text.h"

/* Is there hand-written C for the vectors of a CPU for this kernel and its element types? */
bool native_has(const Kernel *k);
/* Prints that text as function NAME(operands, keys). */
void native_print(Writer *w, const Kernel *k, const char *name);

/* Does the kernel have keys, of random draws or of a native text, so that it calls a shared function? */
bool shared_has(const Kernel *k);
/* Prints, once each, the functions that kernels with keys call; `print` prints one of them under a name. */
typedef void PrintFn(Writer *w, const Kernel *k, const char *name);
void shared_print(FILE *f, const Kernel *const *k, int n, PrintFn *print);
/* Prints the kernel's own function, which calls the shared one. */
void shared_print_call(const Writer *w, const Kernel *k, const char *name, PrintFn *print);
#endif
