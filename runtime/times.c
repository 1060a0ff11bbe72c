/* times.c -- measured times on disk: a line with hash and nanoseconds for each signature.
 *
 * The file's name has a hash of what the times depend on, so those of another processor, compiler or prelude
 * are never used.  The file can be deleted at any time.  Processes take turns to write it; if two measured
 * the same signature, the last one wins. */
#include "times.h"
#include "ir/mem.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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
    t->entry[t->n] = (TimeEntry){.key = key, .ns = -1, .was = -1};
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
            t->entry[t->n++] = (TimeEntry){.key = {low, high}, .ns = ns, .was = ns};
        }
    sort_entries(t);
}

static bool write_entries(const Table *t, Diag *d)
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

static bool is_new(const TimeEntry *e) { return e->ns >= 0 && e->ns != e->was; }

bool table_write(Table *t, Diag *d)
{
    char *text = NULL;
    Table now = {.cache = t->cache};
    bool any = false;
    for (uint32_t i = 0; i < t->n; i++)
        any |= is_new(&t->entry[i]);
    if (!any)
        return true;
    int lock = cache_folder_lock(&t->cache->folder);
    memcpy(now.name, t->name, sizeof now.name);
    cache_file_check(&t->cache->folder, t->name, &text);
    if (text)
        read_table(&now, text);
    free(text);
    for (uint32_t i = 0; i < t->n; i++) {
        TimeEntry *e = &t->entry[i];
        if (!is_new(e))
            continue;
        uint32_t at = table_find(&now, e->key);
        now.entry[at].ns = e->was = e->ns;
    }
    bool ok = write_entries(&now, d);
    cache_folder_unlock(lock);
    arena_free(&now.arena);
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

/* The command that starts with node `first`; NULL: there is none.  The search begins behind the command found
 * last, as steps come in the order of the commands. */
static const TimedCommand *find_command(const TimedCommand *c, uint32_t n, NodeId first, uint32_t *next)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = (*next + i) % n;
        if (c[at].first.i == first.i) {
            *next = at + 1;
            return &c[at];
        }
    }
    return NULL;
}

bool table_learn(Table *t, const TimedCommand *c, uint32_t ncommand, const NodeId *first,
                 const double *seconds, uint32_t n, Diag *d)
{
    uint32_t next = 0, *count = mem_new(t->n + 1, sizeof *count);
    double *sum = mem_new(t->n + 1, sizeof *sum);
    for (uint32_t i = 0; i < n; i++) {
        const TimedCommand *of = find_command(c, ncommand, first[i], &next);
        if (of) {
            sum[of->entry] += 1e9 * seconds[i];
            count[of->entry]++;
        }
    }
    for (uint32_t e = 0; e < t->n; e++)
        if (count[e])
            t->entry[e].ns = fmax(1, round(sum[e] / count[e]));
    free(sum);
    free(count);
    return table_write(t, d);
}

void table_close(Table *t) { arena_free(&t->arena); }
