/* algos.c -- which algorithm of cuBLASLt a product runs through on a GPU that is here.
 *
 * The library is asked once for every distinct product, and the fastest of what it names is taken.  That is
 * kept with the compiled kernels, word by word, and neither asked for nor timed again: what the library says
 * and how long it takes differ from process to process, and the bits of a plan's results must not. */
#include "ir/mem.h"
#include "profile.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static XXH128_hash_t key_of(const Product *p) { return XXH3_128bits(p, sizeof *p); }

/* ---- the file ----------------------------------------------------------------------------------- */

/* A product a line: its hash, then nanoseconds and words of the fastest, and of the fastest without workspace
 * where that is another. */
static bool parse_line(const char *s, const char *end, Kept *out)
{
    char *next;
    int n = 0;
    TRY(sscanf(s, "%16" SCNx64 "%16" SCNx64 "%n", &out->key.high64, &out->key.low64, &n) == 2);
    for (out->n = 0, s += n; s < end && out->n < KEPT_ALGOS; out->n++) {
        out->ns[out->n] = strtod(s, &next);
        TRY(next > s && *next == ' ');
        s = next + 1;
        TRY(product_algo_parse(&s, &out->algo[out->n]));
    }
    return out->n > 0 && s == end;
}

static void read_kept(CudaProfile *p, const char *text)
{
    for (const char *end; (end = strchr(text, '\n')); text = end + 1) {
        Kept k;
        if (!parse_line(text, end, &k))
            continue;
        p->kept = arena_grow(&p->arena, p->kept, p->nkept, &p->ckept, sizeof *p->kept);
        p->kept[p->nkept++] = k;
    }
}

void algos_open(CudaProfile *p, uint64_t of)
{
    char *text = NULL;
    KernelCache *c = p->opt.cache;
    snprintf(p->algos, sizeof p->algos, "algos-%016" PRIx64 ".txt", of);
    if (cache_file_check(&c->folder, p->algos, &text) == CACHE_DAMAGED)
        snprintf(c->note, sizeof c->note, "%s/%s: damaged or not ours: algorithms are chosen anew",
                 c->folder.path, p->algos);
    if (text)
        read_kept(p, text);
    free(text);
}

static bool write_kept(const CudaProfile *p, Diag *d)
{
    char *text = NULL;
    size_t size = 0;
    Arena tmp = {0};
    FILE *f = mem_stream(&text, &size);
    for (uint32_t i = 0; i < p->nkept; i++) {
        const Kept *k = &p->kept[i];
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

/* False: there is none, or the library does not take it any more. */
static bool find_kept(const CudaProfile *p, Known *k, const Routine *r)
{
    uint32_t i = p->nkept;
    XXH128_hash_t key = key_of(&k->of);
    while (i > 0 && !XXH128_isEqual(p->kept[i - 1].key, key))
        i--;
    TRY(i > 0);
    const Kept *is = &p->kept[i - 1];
    for (k->n = 0; k->n < is->n; k->n++) {
        k->algo[k->n] = is->algo[k->n];
        k->ns[k->n] = is->ns[k->n];
        TRY(routine_takes(r, &p->lib, &k->algo[k->n]));
    }
    return k->kept = true;
}

/* The library's first ones, and its first without workspace. */
static void ask(const CudaProfile *p, Known *k, const Routine *r)
{
    k->n = routine_algos(r, &p->lib, &k->of, p->workspace, k->algo, KNOWN_ALGOS - 1);
    bool least = routine_algos(r, &p->lib, &k->of, 0, &k->algo[k->n], 1) == 1;
    for (int i = 0; i < k->n && least; i++)
        least = memcmp(&k->algo[i], &k->algo[k->n], sizeof *k->algo) != 0;
    k->n += least;
    for (int i = 0; i < k->n; i++)
        k->ns[i] = -1;
}

const Known *algos_of(CudaProfile *p, const Product *of, Diag *d)
{
    Routine r;
    uint32_t i = 0;
    while (i < p->nknown && memcmp(&p->known[i].of, of, sizeof *of) != 0)
        i++;
    if (i < p->nknown)
        return &p->known[i];
    p->known = arena_grow(&p->arena, p->known, p->nknown, &p->cknown, sizeof *p->known);
    p->known[i] = (Known){.of = *of};
    bool ok = routine_make(&r, &p->lib, of, d);
    if (ok && !find_kept(p, &p->known[i], &r))
        ask(p, &p->known[i], &r);
    routine_free(&r, &p->lib);
    p->nknown += ok;
    return ok ? &p->known[i] : NULL;
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

static void settle(CudaProfile *p, Known *k)
{
    int which[KEPT_ALGOS] = {algos_fastest(k, p->workspace), algos_fastest(k, 0)};
    Kept new = {.key = key_of(&k->of)};
    for (int i = 0; i < KEPT_ALGOS; i++)
        if (which[i] >= 0 && (i == 0 || which[i] != which[0])) {
            new.algo[new.n] = k->algo[which[i]];
            new.ns[new.n++] = k->ns[which[i]];
        }
    p->kept = arena_grow(&p->arena, p->kept, p->nkept, &p->ckept, sizeof *p->kept);
    p->kept[p->nkept++] = new;
    k->kept = true;
    k->n = new.n;
    memcpy(k->algo, new.algo, sizeof new.algo);
    memcpy(k->ns, new.ns, sizeof new.ns);
}

/* One that the library no longer takes is before its replacement in the file: the last is the one. */
bool algos_keep(CudaProfile *p, Diag *d)
{
    bool any = false;
    for (uint32_t i = 0; i < p->nknown; i++) {
        Known *k = &p->known[i];
        bool timed = k->n == 1;
        for (int a = 0; a < k->n && k->n > 1; a++)
            timed |= k->ns[a] >= 0;
        if (!k->kept && timed) {
            settle(p, k);
            any = true;
        }
    }
    return !any || write_kept(p, d);
}
