/* kernels.h -- what devices share that compile generated text. */
#ifndef CKC_RUNTIME_KERNELS_H
#define CKC_RUNTIME_KERNELS_H

#include "codegen/codegen.h"
#include "kernel_cache.h"

/* How a device's text is printed, compiled and found again; `on` is its own. */
typedef struct {
    uint64_t compiler; /* of kernel_key(), whose text is that of kernel_print_text() */
    void (*shared)(FILE *f, const Kernel *const *k, int n); /* what comes before the kernels */
    KernelPrint *print;
    void *(*find)(void *on, const KernelCache *c, const KernelKey *key, const Kernel *k,
                  const char *name); /* NULL: not there */
    const char *(*why)(void *on);    /* what was found last did not load */
    bool (*add)(void *on, const KernelCache *c, const char *source, const KernelKey *key, int n, Diag *d);
} KernelTarget;

/* Functions of kernels, fn[i] of k[i], each once: from the cache; those it lacks are printed, compiled
 * and added. */
bool kernels_make(const KernelTarget *t, void *on, const KernelCache *c, const Kernel *const *k, int n,
                  void **fn, Diag *d);

#endif
