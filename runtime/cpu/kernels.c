/* kernels.c -- loads kernels as functions of this processor. */
#include "cpu.h"
#include "ir/mem.h"
#include "codegen/codegen.h"
#include "runtime/kernels.h"
#include <dlfcn.h>
#include <stdlib.h>

static void *open_shared(void *on, const CacheFolder *c, const char *name)
{
    char path[2 * PATH_MAX];
    (void)on;
    snprintf(path, sizeof path, "%s/%s", c->path, name);
    return cache_file_check(c, name, NULL) == CACHE_FOUND ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
}

static void *find(void *on, const KernelCache *c, const KernelKey *key, const Kernel *k, const char *name)
{
    (void)k;
    void *dl = kernel_cache_object(c, key, shared_object, on, open_shared, NULL);
    return dl ? dlsym(dl, name) : NULL;
}

static const char *why(void *on)
{
    (void)on;
    return dlerror();
}

static bool add(void *on, const KernelCache *c, const char *source, const KernelKey *key, int n, Diag *d)
{
    (void)on;
    return compile_kernels(c, source, key, n, d);
}

static bool load_own(const Kernel *const *k, int n, KernelFn **fn, KernelObjects *o, Diag *d)
{
    KernelCache c;
    TRY(kernel_cache_open(&c, NULL, d));
    bool ok = kernels_load(k, n, &c, fn, o, d);
    kernel_cache_close(&c);
    return ok;
}

bool kernels_load(const Kernel *const *k, int n, const KernelCache *c, KernelFn **fn, KernelObjects *o,
                  Diag *d)
{
    *o = (KernelObjects){0};
    if (n == 0)
        return true;
    if (!c)
        return load_own(k, n, fn, o, d);
    const KernelTarget target = {compiler_identity(c), codegen_shared_c, kernel_print_c, find, why, add};
    o->of = mem_new(2 * (size_t)n, sizeof *o->of);
    void **found = mem_new((size_t)n, sizeof *found);
    bool ok = kernels_make(&target, o, c, k, n, found, d);
    for (int i = 0; i < n && ok; i++)
        *(void **)&fn[i] = found[i];
    if (!ok)
        kernels_unload(o);
    free(found);
    return ok;
}

void kernels_unload(KernelObjects *o)
{
    for (int i = 0; i < o->n; i++)
        dlclose(o->of[i].handle);
    free(o->of);
    *o = (KernelObjects){0};
}
