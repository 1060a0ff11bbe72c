/* kernel_cache.h -- generated C to a loaded shared object, through a cache on disk. */
#ifndef CKC_KERNEL_CACHE_H
#define CKC_KERNEL_CACHE_H

#include "../ir/ir.h"
#include <limits.h>

/* Compile c_source (codegen_c) with the system C compiler and load it; *dl is a dlopen handle,
 * closed by the caller.  Objects are kept in cache_dir (NULL: $XDG_CACHE_HOME/ckc or ~/.cache/ckc)
 * under a hash of the source, the compiler, its flags and the processor, so the same kernels are
 * compiled once per machine; several processes may share the folder.  On failure *dl is NULL and
 * d has the compiler's first messages (status EXIT_DEVICE). */
bool kernels_compile(const char *c_source, const char *cache_dir, void **dl, Diag *d);

/* The folder, created: given, or the user's ($XDG_CACHE_HOME/ckc, ~/.cache/ckc). */
bool cache_folder(const char *given, char out[PATH_MAX], Diag *d);

#endif
