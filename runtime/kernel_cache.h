/* kernel_cache.h -- generated kernels as shared objects on disk, each compiled once per machine.
 *
 * A kernel is kept as KEY.so, an object that defines the function ck_KEY; KEY is the hash of its text
 * and of all that the text is compiled with.  Kernels that were compiled together are links to one
 * file.  Several processes may share the folder. */
#ifndef CKC_KERNEL_CACHE_H
#define CKC_KERNEL_CACHE_H

#include "../ir/ir.h"
#include <limits.h>

typedef struct {
    char dir[PATH_MAX];
    uint64_t machine; /* hash of compiler, flags, processor and prelude */
} KernelCache;

typedef struct {
    char hex[33];
} KernelKey;

/* In the folder given, NULL: the user's ($XDG_CACHE_HOME/ckc, ~/.cache/ckc), which is created.
 * d->status is EXIT_DEVICE on failure, here and below. */
bool kernel_cache_open(KernelCache *c, const char *given, Diag *d);
KernelKey kernel_key(const KernelCache *c, const char *text);
/* A dlopen handle of the object with a kernel, closed by the caller; NULL: it is not there, or does
 * not load. */
void *kernel_cache_find(const KernelCache *c, const KernelKey *key);
/* Compile a source (prelude, then kernels behind their marks) with the system C compiler, and keep it
 * as the object of n keys.  On failure d has the compiler's first messages. */
bool kernel_cache_add(const KernelCache *c, const char *source, const KernelKey *key, int n, Diag *d);

#endif
