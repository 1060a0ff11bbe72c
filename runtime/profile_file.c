/* profile_file.c -- measured times on disk: one line per signature, hash and nanoseconds.
 *
 * The file's name has the kernel cache's hash of the machine, so times of another processor,
 * compiler or prelude are never used.  It can be
 * deleted at any time; of two processes that write, the last wins. */
#include "../ir/file.h"
#include "kernel_cache.h"
#include "profile_int.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int by_key(const void *a, const void *b)
{
    const Entry *x = a, *y = b;
    return XXH128_cmp(&x->key, &y->key);
}

uint32_t table_find(Table *t, XXH128_hash_t key)
{
    Entry want = {.key = key};
    Entry *e =
        t->nsorted ? bsearch(&want, t->entry, t->nsorted, sizeof want, by_key) : NULL;
    if (e)
        return (uint32_t)(e - t->entry);
    for (uint32_t i = t->nsorted; i < t->n; i++)
        if (XXH128_isEqual(t->entry[i].key, key))
            return i;
    t->entry = arena_grow(&t->arena, t->entry, t->n, &t->cap, sizeof *t->entry);
    t->entry[t->n] = (Entry){.key = key, .ns = -1};
    return t->n++;
}

static void sort_entries(Table *t)
{
    if (t->n)
        qsort(t->entry, t->n, sizeof *t->entry, by_key);
    t->nsorted = t->n;
}

static void read_table(Table *t)
{
    FILE *f = fopen(t->path, "r");
    uint64_t high, low;
    double ns;
    while (f && fscanf(f, "%16" SCNx64 "%16" SCNx64 " %lf", &high, &low, &ns) == 3)
        if (ns > 0 && isfinite(ns)) {
            t->entry = arena_grow(&t->arena, t->entry, t->n, &t->cap, sizeof *t->entry);
            t->entry[t->n++] = (Entry){.key = {low, high}, .ns = ns};
        }
    if (f)
        fclose(f);
    sort_entries(t);
}

bool table_write(const Table *t, Diag *d)
{
    NewFile f;
    TRY(file_create(&f, t->path, d));
    for (uint32_t i = 0; i < t->n; i++) {
        char line[80];
        const Entry *e = &t->entry[i];
        if (e->ns < 0)
            continue;
        int n = snprintf(line, sizeof line, "%016" PRIx64 "%016" PRIx64 " %.0f\n",
                         (uint64_t)e->key.high64, (uint64_t)e->key.low64, e->ns);
        file_write(&f, line, (size_t)n);
    }
    return file_commit(&f, d);
}

bool table_open(Table *t, const char *cache_dir, Diag *d)
{
    KernelCache c;
    *t = (Table){0};
    TRY(kernel_cache_open(&c, cache_dir, d));
    snprintf(t->path, sizeof t->path, "%s/profile-%016" PRIx64 ".txt", c.dir, c.machine);
    read_table(t);
    return true;
}

void table_close(Table *t) { arena_free(&t->arena); }
