/* kernel_cache.h -- compiled kernels on disk, each compiled once per compiler and machine.
 *
 * A kernel is kept as KEY and a suffix, an object that defines the function ck_KEY; KEY is the hash of its
 * text and of all that the text is compiled by and with.  Kernels that were compiled together are links to
 * one file. Several processes may share the folder. */
#ifndef CKC_KERNEL_CACHE_H
#define CKC_KERNEL_CACHE_H

#include "cache_folder.h"

typedef struct {
    CacheFolder folder;
    char note[PATH_MAX + 256]; /* one line for the user, "": all is well */
} KernelCache;

typedef struct {
    char hex[33];
} KernelKey;

/* Objects that are open, each once. */
typedef struct {
    dev_t dev;
    ino_t ino;
    void *handle; /* the device's: of a shared object, a module */
} KernelObject;

typedef struct {
    KernelObject *of; /* room for all that will be opened */
    int n;
} KernelObjects;

/* In the folder given, NULL: the user's (cache_folder.h).  d->status is EXIT_DEVICE on failure, here and
 * below. */
bool kernel_cache_open(KernelCache *c, const char *given, Diag *d);
void kernel_cache_close(KernelCache *c); /* {0} is fine */
/* compiler: hash of all besides the text that the result depends on. */
KernelKey kernel_key(uint64_t compiler, const char *text);
/* The object with a kernel, which `open` opens if it is not among o: NULL if it is not ours, not whole, or
 * does not load.  NULL: that, or it is not there. */
typedef void *ObjectOpen(void *on, const CacheFolder *c, const char *name);
void *kernel_cache_object(const KernelCache *c, const KernelKey *key, const char *suffix, KernelObjects *o,
                          ObjectOpen *open, void *on);
/* A file in a scratch folder of the cache as the object of n keys. */
bool kernel_cache_keep(const KernelCache *c, const char *object, const KernelKey *key, int n,
                       const char *suffix, Diag *d);

#endif
