/* algos.c -- chooses the algorithm of cuBLASLt for a product on a GPU that is here.
 *
 * The library is asked once for every distinct product, and the fastest of the algorithms it names is taken.
 * The choice is kept with the compiled kernels, word by word, and neither asked for nor timed again: the
 * library's answers and times differ from process to process, and the bits of a plan's results must not.  If
 * two processes choose at the same time, the first one to write chooses for both. */
#include "ir/mem.h"
#include "profile.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- the file ----------------------------------------------------------------------------------- */

/* Parses the line of a product: its hash, then nanoseconds and text of each algorithm. */
static bool parse_line(const char *s, const char *end, Known *out)
{
    char *next;
    int n = 0;
    *out = (Known){.kept = true};
    TRY(sscanf(s, "%16" SCNx64 "%16" SCNx64 "%n", &out->key.high64, &out->key.low64, &n) == 2);
    for (s += n; s < end && out->n < KNOWN_ALGOS; out->n++) {
        out->ns[out->n] = strtod(s, &next);
        TRY(next > s && *next == ' ');
        s = next + 1;
        TRY(product_algo_parse(&s, &out->algo[out->n]));
    }
    return out->n > 0 && s == end;
}

static Known *add_known(CudaProfile *p, Known k)
{
    p->known = arena_grow(&p->arena, p->known, p->nknown, &p->cknown, sizeof *p->known);
    p->known[p->nknown] = k;
    return &p->known[p->nknown++];
}

static Known *find_known(const CudaProfile *p, XXH128_hash_t key)
{
    for (uint32_t i = 0; i < p->nknown; i++)
        if (XXH128_isEqual(p->known[i].key, key))
            return &p->known[i];
    return NULL;
}

static bool takes_all(const CudaProfile *p, const Known *k, const Routine *r)
{
    for (int i = 0; i < k->n; i++)
        TRY(routine_takes(r, &p->lib, &k->algo[i]));
    return true;
}

/* Adopts the algorithms that another process has kept for a product since this one asked for it. */
static void adopt(const CudaProfile *p, Known *k, const Known *theirs)
{
    Routine r;
    if (routine_make(&r, &p->lib, &k->of, &(Diag){0}) && takes_all(p, theirs, &r)) {
        k->kept = true;
        k->n = theirs->n;
        memcpy(k->algo, theirs->algo, sizeof k->algo);
        memcpy(k->ns, theirs->ns, sizeof k->ns);
    }
    routine_free(&r, &p->lib);
}

static CacheState read_kept(CudaProfile *p)
{
    char *text = NULL;
    Known theirs;
    CacheState state = cache_file_check(&p->opt.cache->folder, p->algos, &text);
    for (const char *s = text, *end; s && (end = strchr(s, '\n')); s = end + 1) {
        if (!parse_line(s, end, &theirs))
            continue;
        Known *k = find_known(p, theirs.key);
        if (!k)
            add_known(p, theirs);
        else if (k->asked && !k->kept)
            adopt(p, k, &theirs);
    }
    free(text);
    return state;
}

void algos_open(CudaProfile *p, uint64_t of)
{
    KernelCache *c = p->opt.cache;
    snprintf(p->algos, sizeof p->algos, "algos-%016" PRIx64 ".txt", of);
    if (read_kept(p) == CACHE_DAMAGED)
        snprintf(c->note, sizeof c->note, "%s/%s: damaged or not ours: algorithms are chosen anew",
                 c->folder.path, p->algos);
}

static bool write_kept(const CudaProfile *p, Diag *d)
{
    char *text = NULL;
    size_t size = 0;
    Arena tmp = {0};
    FILE *f = mem_stream(&text, &size);
    for (const Known *k = p->known; k < p->known + p->nknown; k++) {
        if (!k->kept)
            continue;
        fprintf(f, "%016" PRIx64 "%016" PRIx64, (uint64_t)k->key.high64, (uint64_t)k->key.low64);
        for (int a = 0; a < k->n; a++)
            fprintf(f, " %.0f %s", k->ns[a], product_algo_text(&k->algo[a], &tmp));
        fputc('\n', f);
    }
    mem_stream_end(f);
    bool ok = cache_file_write(&p->opt.cache->folder, p->algos, text, d);
    arena_free(&tmp);
    free(text);
    return ok;
}

/* ---- choosing ----------------------------------------------------------------------------------- */

/* Asks the library for its first algorithms, and for its first one without workspace. */
static void ask_library(const CudaProfile *p, Known *k, const Routine *r)
{
    k->n = routine_algos(r, &p->lib, &k->of, p->workspace, k->algo, KNOWN_ALGOS - 1);
    bool least = routine_algos(r, &p->lib, &k->of, 0, &k->algo[k->n], 1) == 1;
    for (int i = 0; i < k->n && least; i++)
        least = memcmp(&k->algo[i], &k->algo[k->n], sizeof *k->algo) != 0;
    k->n += least;
    for (int i = 0; i < k->n; i++)
        k->ns[i] = -1;
}

/* Uses the algorithms that were kept if the library takes them, else asks the library. */
static bool ask(const CudaProfile *p, Known *k, Diag *d)
{
    Routine r;
    bool ok = routine_make(&r, &p->lib, &k->of, d);
    k->kept = ok && k->kept && takes_all(p, k, &r);
    if (ok && !k->kept)
        ask_library(p, k, &r);
    routine_free(&r, &p->lib);
    return ok;
}

const Known *algos_of(CudaProfile *p, const AlignedGemm *of, Diag *d)
{
    XXH128_hash_t key = XXH3_128bits(of, sizeof *of);
    Known *k = find_known(p, key);
    if (!k)
        k = add_known(p, (Known){.key = key});
    k->of = *of;
    k->asked = k->asked || ask(p, k, d);
    return k->asked ? k : NULL;
}

int algos_fastest(const Known *k, int64_t workspace)
{
    int best = -1;
    for (int i = 0; i < k->n; i++)
        if (k->algo[i].workspace <= workspace &&
            (best < 0 || (k->ns[i] >= 0 && (k->ns[best] < 0 || k->ns[i] < k->ns[best]))))
            best = i;
    return best;
}

static bool is_timed(const Known *k)
{
    bool timed = k->n == 1;
    for (int i = 0; i < k->n; i++)
        timed |= k->ns[i] >= 0;
    return timed;
}

static void keep(const CudaProfile *p, Known *k)
{
    Known was = *k;
    int which[] = {algos_fastest(k, p->workspace), algos_fastest(k, 0)};
    k->kept = true;
    k->n = 0;
    for (int i = 0; i < 2; i++)
        if (which[i] >= 0 && (i == 0 || which[i] != which[0])) {
            k->algo[k->n] = was.algo[which[i]];
            k->ns[k->n++] = was.ns[which[i]];
        }
}

static bool is_new(const Known *k) { return !k->kept && is_timed(k); }

bool algos_keep(CudaProfile *p, Diag *d)
{
    bool any = false;
    for (const Known *k = p->known; k < p->known + p->nknown; k++)
        any |= is_new(k);
    if (!any)
        return true;
    int lock = cache_folder_lock(&p->opt.cache->folder);
    read_kept(p);
    for (Known *k = p->known; k < p->known + p->nknown; k++)
        if (is_new(k))
            keep(p, k);
    bool ok = write_kept(p, d);
    cache_folder_unlock(lock);
    return ok;
}
