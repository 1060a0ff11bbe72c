/* kernels.c -- from kernels to functions of a device: kernels are found in the cache, or else printed and
 * compiled together.  If an object in the cache does not load, its kernels are compiled again. */
#include "kernels.h"
#include "ir/mem.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
    const Kernel *k;
    KernelKey key;
    void *fn;
    int at; /* index in the caller's list */
} Keyed;

static int by_key(const void *a, const void *b)
{
    return strcmp(((const Keyed *)a)->key.hex, ((const Keyed *)b)->key.hex);
}

/* Fills q, ordered by key, so that a set of kernels gives the same source whatever the schedule. */
static void sort_by_key(Keyed *q, const KernelTarget *t, const Kernel *const *k, int n)
{
    for (int i = 0; i < n; i++) {
        char *text = kernel_print_text(t->print, k[i]);
        q[i] = (Keyed){k[i], kernel_key(t->compiler, text), NULL, i};
        free(text);
    }
    qsort(q, (size_t)n, sizeof *q, by_key);
}

enum { NAME = 40 };

static void function_name(const KernelKey *key, char out[NAME]) { snprintf(out, NAME, "ck_%s", key->hex); }

/* Finds functions for the kernels without one; returns the number of kernels that still have none. */
static int find(Keyed *q, int n, const KernelTarget *t, void *on, const KernelCache *c)
{
    int missing = 0;
    for (int i = 0; i < n; i++) {
        char name[NAME];
        bool again = i > 0 && by_key(&q[i], &q[i - 1]) == 0;
        function_name(&q[i].key, name);
        if (again)
            q[i].fn = q[i - 1].fn;
        else if (!q[i].fn)
            q[i].fn = t->find(on, c, &q[i].key, q[i].k, name);
        missing += !q[i].fn;
    }
    return missing;
}

/* The source of the kernels without a function, each once; k and key receive them in the same order. */
static char *print_missing(const Keyed *q, int n, const KernelTarget *t, const Kernel **k, KernelKey *key,
                           int *nkey)
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
    t->shared(f, k, *nkey);
    for (int i = 0; i < *nkey; i++) {
        function_name(&key[i], name);
        t->print(k[i], name, f);
    }
    mem_stream_end(f);
    return text;
}

static bool add_missing(const KernelTarget *t, void *on, const KernelCache *c, const Keyed *q, int n, Diag *d)
{
    int nkey;
    const Kernel **k = mem_new((size_t)n, sizeof(Kernel *));
    KernelKey *key = mem_new((size_t)n, sizeof *key);
    char *source = print_missing(q, n, t, k, key, &nkey);
    bool ok = t->add(on, c, source, key, nkey, d);
    free(source);
    free(key);
    free(k);
    return ok;
}

bool kernels_make(const KernelTarget *t, void *on, const KernelCache *c, const Kernel *const *k, int n,
                  void **fn, Diag *d)
{
    Keyed *q = mem_new((size_t)n + 1, sizeof *q);
    sort_by_key(q, t, k, n);
    bool ok = find(q, n, t, on, c) == 0 ||
              (add_missing(t, on, c, q, n, d) &&
               (find(q, n, t, on, c) == 0 ||
                fail_status(d, EXIT_DEVICE, "cannot load generated kernels: %s", t->why(on))));
    for (int i = 0; i < n && ok; i++)
        fn[q[i].at] = q[i].fn;
    free(q);
    return ok;
}
