/* times.c -- measured times on disk: one line per signature, hash and nanoseconds.
 *
 * The file's name has a hash of what they are of, so times of another processor,
 * compiler or prelude are never used.  It can be deleted at any time; of two
 * processes that write, the last wins. */
#include "times.h"
#include "ir/mem.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

static int by_key(const void *a, const void *b)
{
    const TimeEntry *x = a, *y = b;
    return XXH128_cmp(&x->key, &y->key);
}

uint32_t table_find(Table *t, XXH128_hash_t key)
{
    TimeEntry want = {.key = key};
    TimeEntry *e = t->nsorted ? bsearch(&want, t->entry, t->nsorted, sizeof want, by_key) : NULL;
    if (e)
        return (uint32_t)(e - t->entry);
    for (uint32_t i = t->nsorted; i < t->n; i++)
        if (XXH128_isEqual(t->entry[i].key, key))
            return i;
    t->entry = arena_grow(&t->arena, t->entry, t->n, &t->cap, sizeof *t->entry);
    t->entry[t->n] = (TimeEntry){.key = key, .ns = -1};
    return t->n++;
}

static void sort_entries(Table *t)
{
    if (t->n)
        qsort(t->entry, t->n, sizeof *t->entry, by_key);
    t->nsorted = t->n;
}

static void read_table(Table *t, const char *text)
{
    uint64_t high, low;
    double ns;
    for (int n = 0;
         sscanf(text, "%16" SCNx64 "%16" SCNx64 " %lf\n%n", &high, &low, &ns, &n) == 3;
         text += n)
        if (ns > 0 && ns < 1e15) {
            t->entry = arena_grow(&t->arena, t->entry, t->n, &t->cap, sizeof *t->entry);
            t->entry[t->n++] = (TimeEntry){.key = {low, high}, .ns = ns};
        }
    sort_entries(t);
}

bool table_write(const Table *t, Diag *d)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = mem_stream(&text, &size);
    for (uint32_t i = 0; i < t->n; i++) {
        const TimeEntry *e = &t->entry[i];
        if (e->ns >= 0)
            fprintf(f, "%016" PRIx64 "%016" PRIx64 " %.0f\n", (uint64_t)e->key.high64,
                    (uint64_t)e->key.low64, e->ns);
    }
    mem_stream_end(f);
    bool ok = cache_file_write(&t->cache->folder, t->name, text, d);
    free(text);
    return ok;
}

void table_open(Table *t, KernelCache *c, uint64_t of)
{
    char *text = NULL;
    *t = (Table){.cache = c};
    snprintf(t->name, sizeof t->name, "profile-%016" PRIx64 ".txt", of);
    if (cache_file_check(&c->folder, t->name, &text) == CACHE_DAMAGED)
        snprintf(c->note, sizeof c->note,
                 "%s/%s: damaged or not ours: its measured costs are not used",
                 c->folder.path, t->name);
    if (text)
        read_table(t, text);
    free(text);
}

void table_close(Table *t) { arena_free(&t->arena); }
