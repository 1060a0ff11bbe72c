/* kernels.c -- kernels to functions: found in the cache, or printed and compiled together.  An
 * object in the cache that does not load is compiled again. */
#include "cpu.h"
#include "ir/mem.h"
#include "codegen/codegen.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const Kernel *k;
    KernelKey key;
    KernelFn *fn;
    int at; /* place in the caller's list */
} Keyed;

static char *print_text(const Kernel *k, bool keyless)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = mem_stream(&text, &size);
    if (keyless)
        kernel_print_keyless_c(k, f);
    else
        kernel_print_c(k, "K", f);
    mem_stream_end(f);
    return text;
}

char *kernel_text(const Kernel *k) { return print_text(k, false); }
char *kernel_text_keyless(const Kernel *k) { return print_text(k, true); }

static int by_key(const void *a, const void *b)
{
    return strcmp(((const Keyed *)a)->key.hex, ((const Keyed *)b)->key.hex);
}

/* In a fixed order, so that a set of kernels is the same source whatever the schedule. */
static void sort_by_key(Keyed *q, const KernelCache *c, const Kernel *const *k, int n)
{
    for (int i = 0; i < n; i++) {
        char *text = kernel_text(k[i]);
        q[i] = (Keyed){k[i], kernel_key(c, text), NULL, i};
        free(text);
    }
    qsort(q, (size_t)n, sizeof *q, by_key);
}

enum { NAME = 40 };

static void function_name(const KernelKey *key, char out[NAME])
{
    snprintf(out, NAME, "ck_%s", key->hex);
}

/* Functions of kernels that have none yet and whose objects are there; those stay open in o. */
static int find(Keyed *q, int n, const KernelCache *c, KernelObjects *o)
{
    int missing = 0;
    for (int i = 0; i < n; i++) {
        char name[NAME];
        bool again = i > 0 && by_key(&q[i], &q[i - 1]) == 0;
        void *dl = q[i].fn || again ? NULL : kernel_cache_find(c, &q[i].key, o);
        function_name(&q[i].key, name);
        if (again)
            q[i].fn = q[i - 1].fn;
        else if (dl)
            *(void **)&q[i].fn = dlsym(dl, name);
        missing += !q[i].fn;
    }
    return missing;
}

/* One source of the kernels without a function, each once, their keys in the same order. */
static char *print_missing(const Keyed *q, int n, const Kernel **k, KernelKey *key, int *nkey)
{
    char *text = NULL, name[NAME];
    size_t size = 0;
    FILE *f = mem_stream(&text, &size);
    *nkey = 0;
    for (int i = 0; i < n; i++)
        if (!q[i].fn && (i == 0 || by_key(&q[i], &q[i - 1]) != 0)) {
            k[*nkey] = q[i].k;
            key[(*nkey)++] = q[i].key;
        }
    codegen_shared_c(f, k, *nkey);
    for (int i = 0; i < *nkey; i++) {
        function_name(&key[i], name);
        kernel_print_c(k[i], name, f);
    }
    mem_stream_end(f);
    return text;
}

static bool add_missing(const KernelCache *c, const Keyed *q, int n, Diag *d)
{
    int nkey;
    const Kernel **k = mem_new((size_t)n, sizeof(Kernel *));
    KernelKey *key = mem_new((size_t)n, sizeof *key);
    char *source = print_missing(q, n, k, key, &nkey);
    bool ok = kernel_cache_add(c, source, key, nkey, d);
    free(source);
    free(key);
    free(k);
    return ok;
}

static bool load(Keyed *q, const Kernel *const *k, int n, const KernelCache *c, KernelObjects *o, Diag *d)
{
    sort_by_key(q, c, k, n);
    if (find(q, n, c, o) == 0)
        return true;
    TRY(add_missing(c, q, n, d));
    return find(q, n, c, o) == 0 ||
           fail_status(d, EXIT_DEVICE, "cannot load generated kernels: %s", dlerror());
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
    Keyed *q = mem_new((size_t)n, sizeof *q);
    o->of = mem_new(2 * (size_t)n, sizeof *o->of);
    bool ok = load(q, k, n, c, o, d);
    for (int i = 0; i < n && ok; i++)
        fn[q[i].at] = q[i].fn;
    if (!ok)
        kernels_unload(o);
    free(q);
    return ok;
}

void kernels_unload(KernelObjects *o)
{
    for (int i = 0; i < o->n; i++)
        dlclose(o->of[i].dl);
    free(o->of);
    *o = (KernelObjects){0};
}
