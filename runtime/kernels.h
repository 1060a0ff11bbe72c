/* kernels.h -- from kernels to functions, for all devices that compile generated text. */
#ifndef CKC_RUNTIME_KERNELS_H
#define CKC_RUNTIME_KERNELS_H

#include "codegen/codegen.h"
#include "kernel_cache.h"

/* How a device prints and compiles text and finds it again in the cache; `on` is its own state. */
typedef struct {
    uint64_t compiler; /* argument of kernel_key(), whose text is that of kernel_print_text() */
    void (*shared)(FILE *f, const Kernel *const *k, int n); /* prints what comes before the kernels */
    KernelPrint *print;
    void *(*find)(void *on, const KernelCache *c, const KernelKey *key, const Kernel *k,
                  const char *name); /* the function of that name; NULL: not there */
    const char *(*why)(void *on);    /* why the object found last did not load */
    bool (*add)(void *on, const KernelCache *c, const char *source, const KernelKey *key, int n, Diag *d);
} KernelTarget;

/* Sets fn[i] to the function of k[i], from the cache; kernels that it lacks are printed, each once, compiled
 * and added to it. */
bool kernels_make(const KernelTarget *t, void *on, const KernelCache *c, const Kernel *const *k, int n,
                  void **fn, Diag *d);

#endif
