/* kernel_cache.h -- generated kernels as shared objects on disk, each compiled once per
 * machine.
 *
 * A kernel is kept as KEY.so, an object that defines the function ck_KEY; KEY is the hash
 * of its text and of all that the text is compiled with.  Kernels that were compiled
 * together are links to one file.  Several processes may share the folder. */
#ifndef CKC_KERNEL_CACHE_H
#define CKC_KERNEL_CACHE_H

#include "cache_folder.h"

typedef struct {
    CacheFolder folder;
    char note[PATH_MAX + 256]; /* one line for the user, "": all is well */
    uint64_t machine;          /* hash of compiler, flags, processor, its instructions in use, and prelude */
} KernelCache;

typedef struct {
    char hex[33];
} KernelKey;

/* Objects that are open, each once. */
typedef struct {
    dev_t dev;
    ino_t ino;
    void *dl; /* of a shared object; other devices have handles of their own */
} KernelObject;

typedef struct {
    KernelObject *of; /* room for all that will be opened */
    int n;
} KernelObjects;

/* In the folder given, NULL: the user's (cache_folder.h).  d->status is EXIT_DEVICE on
 * failure, here and below.  Without a C compiler the one that the folder was used with last
 * is assumed: what it compiled still runs. */
bool kernel_cache_open(KernelCache *c, const char *given, Diag *d);
void kernel_cache_close(KernelCache *c); /* {0} is fine */
KernelKey kernel_key(const KernelCache *c, const char *text);
/* The object with a kernel, opened if it is not among o; NULL: it is not there, not ours,
 * not whole, or does not load. */
void *kernel_cache_find(const KernelCache *c, const KernelKey *key, KernelObjects *o);
/* The same of files with another suffix, which `open` opens: NULL if it is not ours, not whole, or does not
 * load. */
typedef void *ObjectOpen(void *on, const CacheFolder *c, const char *name);
void *kernel_cache_object(const KernelCache *c, const KernelKey *key, const char *suffix, KernelObjects *o,
                          ObjectOpen *open, void *on);
/* A file in a scratch folder of the cache as the object of n keys. */
bool kernel_cache_keep(const KernelCache *c, const char *object, const KernelKey *key, int n,
                       const char *suffix, Diag *d);
/* Compile a source (prelude, then kernels behind their marks) with the system C compiler,
 * and keep it as the object of n keys.  On failure d has the compiler's first error. */
bool kernel_cache_add(const KernelCache *c, const char *source, const KernelKey *key, int n, Diag *d);

#endif
