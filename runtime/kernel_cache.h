/* kernel_cache.h -- compiled kernels on disk, each compiled once per compiler and machine.
 *
 * A kernel is a file KEY.SUFFIX, an object that defines the function ck_KEY; KEY is the hash of its text, its
 * compiler, and everything it is compiled with.  Kernels that were compiled together are hard links to one
 * file.  Several processes may share the folder. */
#ifndef CKC_KERNEL_CACHE_H
#define CKC_KERNEL_CACHE_H

#include "cache_folder.h"

typedef struct {
    CacheFolder folder;
    char note[PATH_MAX + 256]; /* a warning for the user, one line; "": there is none */
} KernelCache;

typedef struct {
    char hex[33];
} KernelKey;

/* An open object, known by its file, so that it is opened once. */
typedef struct {
    dev_t dev;
    ino_t ino;
    void *handle; /* a shared object or, on a GPU, a module */
} KernelObject;

typedef struct {
    KernelObject *of; /* has room for all objects that will be opened */
    int n;
} KernelObjects;

/* Opens the cache in the folder given; NULL: the user's (cache_folder.h).  d->status is EXIT_DEVICE on
 * failure, here and below. */
bool kernel_cache_open(KernelCache *c, const char *given, Diag *d);
void kernel_cache_close(KernelCache *c); /* {0} is fine */
/* compiler: hash of everything except the text that the result depends on. */
KernelKey kernel_key(uint64_t compiler, const char *text);
/* The handle of the object with a kernel: from o or, if it is not there, opened by `open` and added.  open
 * returns NULL if the object is not ours, not complete, or does not load.  NULL: that, or there is none. */
typedef void *ObjectOpen(void *on, const CacheFolder *c, const char *name);
void *kernel_cache_object(const KernelCache *c, const KernelKey *key, const char *suffix, KernelObjects *o,
                          ObjectOpen *open, void *on);
/* Seals `object`, a file in a scratch folder of the cache, and publishes it as the object of n keys. */
bool kernel_cache_keep(const KernelCache *c, const char *object, const KernelKey *key, int n,
                       const char *suffix, Diag *d);

#endif
