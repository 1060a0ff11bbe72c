/* profile.c -- the cost of every kernel of a schedule on this CPU, measured once per machine.
 *
 * Announced kernels form a round.  At the first question it is settled:
 *
 *   algorithms    by rule (choice.c), which also says how much scratch is needed
 *   caches        the schedule is replayed on a clock of bytes touched: an operand is in the caches
 *                 when fewer bytes than they hold were touched since it was; a result finds memory
 *                 in the caches when it will be dead within as many bytes
 *   signatures    hash of kernel text or library description, operand bytes, what is cached, what
 *                 is in place, threads
 *   measuring     of unknown signatures, those with the largest estimated share of the step first,
 *                 within a time limit; the rest are estimates scaled by what was measured
 *
 * The profile is a text file of signatures and nanoseconds; it can be deleted at any time. */
#include "runtime_int.h"
#include "../codegen/codegen.h"
#include "../ir/file.h"
#include "kernel_cache.h"
#include <dlfcn.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

enum { REFERENCES = 4 }; /* kernels measured again to see how fast the machine is now */
static const double default_limit = 10; /* seconds */
static const double bytes_per_ns = 20, flops_per_ns = 250, call_ns = 1000; /* first guess */

typedef struct {
    XXH128_hash_t key;
    double ns; /* < 0: not measured */
    bool fresh; /* by this process */
} Entry;

typedef struct {
    DnnlDesc desc; /* as announced: choice not yet made */
    DnnlChoice choice;
    DnnlOp *op; /* NULL: the kernel's text runs */
} Routine;

typedef struct {
    const Graph *g;
    NodeId first;
    const NodeId *nodes;
    int n;
    const Kernel *k;
    const Val *vals;
    int nread, nwrite;
    MeasureOperand *o;
    int routine;    /* -1: none */
    uint32_t entry;
    double estimate; /* ns */
    KernelFn *fn;
} Item;

struct Profile {
    ProfileOptions opt;
    char path[PATH_MAX + 64];
    Entry *entry; /* sorted up to nsorted */
    uint32_t nentry, centry, nsorted;
    Arena file;   /* of entries */
    /* the round */
    Arena arena;
    Item *item;
    uint32_t nitem, citem, next;
    Routine *routine;
    uint32_t nroutine, croutine;
    bool settled;
    double scale[2]; /* measured over estimated: text, library */
};

/* ---- the file ------------------------------------------------------------------------------ */

static int by_key(const void *a, const void *b)
{
    const Entry *x = a, *y = b;
    return XXH128_cmp(&x->key, &y->key);
}

static uint32_t find_entry(Profile *p, XXH128_hash_t key)
{
    Entry want = {.key = key};
    Entry *e = p->nsorted ? bsearch(&want, p->entry, p->nsorted, sizeof want, by_key) : NULL;
    if (e)
        return (uint32_t)(e - p->entry);
    for (uint32_t i = p->nsorted; i < p->nentry; i++)
        if (XXH128_isEqual(p->entry[i].key, key))
            return i;
    p->entry = arena_grow(&p->file, p->entry, p->nentry, &p->centry, sizeof *p->entry);
    p->entry[p->nentry] = (Entry){.key = key, .ns = -1};
    return p->nentry++;
}

static void sort_entries(Profile *p)
{
    if (p->nentry)
        qsort(p->entry, p->nentry, sizeof *p->entry, by_key);
    p->nsorted = p->nentry;
}

/* The machine, and the text that every kernel is compiled with. */
static uint64_t machine_hash(void)
{
    char *text = NULL, line[4096];
    size_t size = 0;
    FILE *f = open_memstream(&text, &size), *cpu = fopen("/proc/cpuinfo", "r");
    if (f)
        codegen_prelude_c(f);
    for (int i = 0; f && cpu && i < 30 && fgets(line, sizeof line, cpu); i++)
        if (strncmp(line, "model name", 10) == 0 || strncmp(line, "flags", 5) == 0)
            fputs(line, f);
    if (cpu)
        fclose(cpu);
    if (f)
        fclose(f);
    uint64_t h = text ? XXH3_64bits(text, size) : 0;
    free(text);
    return h;
}

static void read_profile(Profile *p)
{
    FILE *f = fopen(p->path, "r");
    uint64_t high, low;
    double ns;
    while (f && fscanf(f, "%16" SCNx64 "%16" SCNx64 " %lf", &high, &low, &ns) == 3)
        if (ns > 0 && isfinite(ns)) {
            p->entry = arena_grow(&p->file, p->entry, p->nentry, &p->centry, sizeof *p->entry);
            p->entry[p->nentry++] = (Entry){.key = {low, high}, .ns = ns};
        }
    if (f)
        fclose(f);
    sort_entries(p);
}

static bool write_profile(Profile *p, Diag *d)
{
    NewFile f;
    TRY(file_create(&f, p->path, d));
    for (uint32_t i = 0; i < p->nentry; i++) {
        char line[80];
        const Entry *e = &p->entry[i];
        if (e->ns < 0)
            continue;
        int n = snprintf(line, sizeof line, "%016" PRIx64 "%016" PRIx64 " %.0f\n",
                         (uint64_t)e->key.high64, (uint64_t)e->key.low64, e->ns);
        file_write(&f, line, (size_t)n);
    }
    return file_commit(&f, d);
}

Profile *profile_open(const ProfileOptions *opt, Diag *d)
{
    char dir[PATH_MAX];
    if (!cache_folder(opt->cache_dir, dir, d))
        return NULL;
    Profile *p = calloc(1, sizeof *p);
    if (!p) {
        diag_set(d, "out of memory");
        return NULL;
    }
    p->opt = *opt;
    snprintf(p->path, sizeof p->path, "%s/profile-%016" PRIx64 ".txt", dir, machine_hash());
    read_profile(p);
    return p;
}

static void close_round(Profile *p)
{
    for (uint32_t i = 0; i < p->nroutine; i++)
        dnnl_free(p->routine[i].op);
    arena_free(&p->arena);
    p->item = NULL;
    p->routine = NULL;
    p->nitem = p->citem = p->next = p->nroutine = p->croutine = 0;
    p->settled = false;
}

void profile_close(Profile *p)
{
    if (!p)
        return;
    close_round(p);
    arena_free(&p->file);
    free(p);
}

/* ---- caches ------------------------------------------------------------------------------------- */

/* Of one value, by its root: in bytes touched since the step began. */
typedef struct {
    int64_t last; /* last touch */
    uint32_t item;
    bool lasts; /* beyond the step */
} Touch;

static int64_t item_bytes(const Item *it)
{
    int64_t sum = 0;
    for (int i = 0; i < it->nread + it->nwrite; i++)
        sum += it->o[i].bytes;
    return sum;
}

/* Operand whose memory result w will take: one that dies here, or the state it updates. */
static int find_alias(const Item *it, const Touch *touch, uint32_t self, int w)
{
    for (int r = 0; r < it->nread; r++) {
        uint32_t v = graph_root(it->g, it->vals[r]).i;
        if (v && it->o[r].bytes == it->o[w].bytes && kernel_inplace(it->k, r, w) &&
            touch[v].item == self && (!touch[v].lasts || it->g->vals[v].kind == VAL_PARAM ||
                                      it->g->vals[v].kind == VAL_STATE))
            return r;
    }
    return -1;
}

static void mark_item(const Item *it, uint32_t self, const Touch *touch, const int64_t *since,
                      int64_t now, int64_t cache)
{
    for (int i = 0; i < it->nread + it->nwrite; i++) {
        uint32_t v = graph_root(it->g, it->vals[i]).i;
        MeasureOperand *o = &it->o[i];
        if (i < it->nread) {
            o->hot = now - since[v] + o->bytes <= cache;
        } else {
            o->alias = find_alias(it, touch, self, i);
            o->hot = o->alias < 0 && !touch[v].lasts && touch[v].last - now <= cache;
        }
    }
}

/* The second round of the loop sees the caches as the first left them. */
static void replay(Profile *p)
{
    const Graph *g = p->nitem ? p->item[0].g : NULL;
    int64_t now = 0, cache = cache_bytes() / 2;
    Arena tmp = {0};
    Touch *touch = g ? NEW(&tmp, Touch, g->nvals) : NULL;
    int64_t *since = g ? NEW(&tmp, int64_t, g->nvals) : NULL;
    for (uint32_t v = 0; g && v < g->nvals; v++) {
        touch[v].lasts = g->vals[v].kind != VAL_TEMP;
        since[v] = -cache;
    }
    for (uint32_t i = 0; g && i < g->nout; i++)
        touch[graph_root(g, g->out[i]).i].lasts = true;
    for (int turn = 0; turn < 2; turn++) {
        int64_t start = now;
        for (uint32_t s = 0; s < p->nitem; s++) {
            const Item *it = &p->item[s];
            if (turn == 1)
                mark_item(it, s, touch, since, now, cache);
            now += item_bytes(it);
            for (int i = 0; i < it->nread + it->nwrite; i++) {
                uint32_t v = graph_root(g, it->vals[i]).i;
                since[v] = now;
                if (turn == 0)
                    touch[v] = (Touch){now - start, s, touch[v].lasts};
            }
        }
        for (uint32_t v = 0; g && turn == 0 && v < g->nvals; v++)
            touch[v].last += now; /* in the clock of the second turn */
    }
    arena_free(&tmp);
}

/* ---- settling a round ----------------------------------------------------------------------------- */

/* The routine for an item's kernel, made once per description. */
static bool find_routine(Profile *p, Item *it, Diag *d)
{
    DnnlDesc desc;
    it->routine = -1;
    if (!lib_describe(&desc, it->g, &it->g->nodes[it->nodes[0].i], it->k, 0))
        return true;
    for (uint32_t i = 0; i < p->nroutine; i++)
        if (memcmp(&p->routine[i].desc, &desc, sizeof desc) == 0) {
            it->routine = (int)i;
            return true;
        }
    it->routine = (int)p->nroutine;
    p->routine = arena_grow(&p->arena, p->routine, p->nroutine, &p->croutine, sizeof *p->routine);
    Routine *r = &p->routine[p->nroutine++];
    r->desc = desc;
    r->op = choose_routine(&desc, d);
    r->choice = desc.choice;
    return !d->failed;
}

static DnnlOp *item_op(const Profile *p, const Item *it)
{
    return it->routine < 0 ? NULL : p->routine[it->routine].op;
}

static bool has_text(const Profile *p, const Item *it)
{
    return it->k->lib != LIB_CONCAT && !item_op(p, it);
}

static int64_t item_scratch(const Profile *p, const Item *it)
{
    DnnlOp *op = item_op(p, it);
    return op ? dnnl_scratch_bytes(op) : 0;
}

static bool sign(Profile *p, Item *it, Diag *d)
{
    XXH3_state_t *h = XXH3_createState();
    char *text = has_text(p, it) ? kernel_text(it->k) : NULL;
    if (!h || (!text && has_text(p, it)))
        return fail(d, "out of memory");
    XXH3_128bits_reset(h);
    if (text)
        XXH3_128bits_update(h, text, strlen(text));
    if (item_op(p, it)) {
        XXH3_128bits_update(h, &p->routine[it->routine].desc, sizeof(DnnlDesc));
        XXH3_128bits_update(h, &p->routine[it->routine].choice, sizeof(DnnlChoice));
    }
    XXH3_128bits_update(h, &p->opt.threads, sizeof p->opt.threads);
    for (int i = 0; i < it->nread + it->nwrite; i++) {
        int64_t o[] = {it->o[i].bytes, it->o[i].hot, it->o[i].alias};
        XXH3_128bits_update(h, o, sizeof o);
    }
    it->entry = find_entry(p, XXH3_128bits_digest(h));
    XXH3_freeState(h);
    free(text);
    return true;
}

static double estimate(const Item *it)
{
    const Kernel *k = it->k;
    double bytes = (double)item_bytes(it), points = k->nins;
    for (int d = 0; d < k->rank; d++)
        points *= (double)k->extent[d];
    double flops = k->flops > 0 ? k->flops : k->body ? (double)k->items * 8 : points;
    return fmax(bytes / bytes_per_ns, flops / flops_per_ns) + call_ns;
}

/* All texts of the round at once: the executor will want the same set. */
static bool compile_round(Profile *p, void **dl, Diag *d)
{
    Kernel **k = NEW(&p->arena, Kernel *, p->nitem + 1);
    KernelFn **fn = NEW(&p->arena, KernelFn *, p->nitem + 1);
    int n = 0;
    for (uint32_t i = 0; i < p->nitem; i++)
        if (has_text(p, &p->item[i]))
            k[n++] = (Kernel *)(uintptr_t)p->item[i].k;
    TRY(kernels_load(k, n, p->opt.cache_dir, fn, dl, d));
    n = 0;
    for (uint32_t i = 0; i < p->nitem; i++)
        if (has_text(p, &p->item[i]))
            p->item[i].fn = fn[n++];
    return true;
}

static bool measure_item(Profile *p, Item *it, Pool *pool, Diag *d)
{
    int n = it->nread + it->nwrite;
    Call c = {.fn = it->fn, .lib = item_op(p, it), .nread = it->nread,
              .op = NEW(&p->arena, void *, n + 1)};
    if (it->k->lib == LIB_CONCAT) {
        const Node *node = &it->g->nodes[it->nodes[0].i];
        c.copy = concat_copies(it->g, node, &p->arena);
        c.ncopy = node->nin;
    }
    double s;
    TRY(measure_call(pool, &c, it->o, n, item_scratch(p, it), &s, d));
    p->entry[it->entry].ns = fmax(1, round(s * 1e9));
    p->entry[it->entry].fresh = true;
    return true;
}

typedef struct {
    uint32_t item;
    double share; /* estimated ns of all items with its signature */
} Unknown;

static int by_share(const void *a, const void *b)
{
    double x = ((const Unknown *)a)->share, y = ((const Unknown *)b)->share;
    return (x < y) - (x > y);
}

/* One item per unknown signature, the largest share first. */
static Unknown *unknown_signatures(Profile *p, uint32_t *n)
{
    uint32_t *at = NEW(&p->arena, uint32_t, p->nentry + 1); /* by entry: place + 1 */
    Unknown *u = NEW(&p->arena, Unknown, p->nitem + 1);
    *n = 0;
    for (uint32_t i = 0; i < p->nitem; i++) {
        uint32_t e = p->item[i].entry;
        if (p->entry[e].ns >= 0)
            continue;
        if (at[e] == 0) {
            u[*n].item = i;
            at[e] = ++*n;
        }
        u[at[e] - 1].share += p->item[i].estimate;
    }
    qsort(u, *n, sizeof *u, by_share);
    return u;
}

static int64_t item_memory(const Profile *p, const Item *it)
{
    return measure_bytes(it->o, it->nread + it->nwrite, item_scratch(p, it));
}

static bool measure_unknown(Profile *p, const Unknown *u, uint32_t n, Diag *d)
{
    double limit = p->opt.time_limit > 0 ? p->opt.time_limit : default_limit;
    int64_t room = memory_available() / 2 - 2 * cache_bytes(), most = 0;
    Pool pool;
    for (uint32_t i = 0; i < n; i++) {
        int64_t bytes = item_memory(p, &p->item[u[i].item]);
        most = bytes > most && bytes <= room ? bytes : most;
    }
    TRY(pool_open(&pool, most, d));
    double start = clock_seconds();
    bool ok = true;
    for (uint32_t i = 0; i < n && ok && clock_seconds() - start < limit; i++) {
        Item *it = &p->item[u[i].item];
        if (item_memory(p, it) <= most)
            ok = measure_item(p, it, &pool, d);
    }
    pool_close(&pool);
    return ok && write_profile(p, d);
}

/* Measured over estimated time, of texts and of library routines. */
static void calibrate(Profile *p)
{
    double measured[2] = {0}, estimated[2] = {0};
    for (uint32_t i = 0; i < p->nitem; i++) {
        const Item *it = &p->item[i];
        bool lib = item_op(p, it) != NULL;
        if (p->entry[it->entry].ns < 0)
            continue;
        measured[lib] += p->entry[it->entry].ns;
        estimated[lib] += it->estimate;
    }
    for (int c = 0; c < 2; c++)
        p->scale[c] = estimated[c] > 0 ? measured[c] / estimated[c] : 1;
}

static bool settle(Profile *p, Diag *d)
{
    unsigned mode = fp_flush(p->opt.threads);
    uint32_t n = 0;
    void *dl = NULL;
    bool ok = true;
    replay(p);
    for (uint32_t i = 0; i < p->nitem && ok; i++)
        ok = find_routine(p, &p->item[i], d) && sign(p, &p->item[i], d);
    const Unknown *u = ok ? unknown_signatures(p, &n) : NULL;
    if (n > 0 && p->opt.time_limit >= 0)
        ok = compile_round(p, &dl, d) && measure_unknown(p, u, n, d);
    if (dl)
        dlclose(dl);
    calibrate(p);
    fp_restore(mode);
    p->settled = true;
    return ok;
}

/* ---- drift ------------------------------------------------------------------------------------------ */

/* Library routines of the round whose times are from the file: the largest, each signature once. */
static int references(const Profile *p, const Item *ref[REFERENCES])
{
    int n = 0;
    for (uint32_t i = 0; i < p->nitem; i++) {
        const Item *it = &p->item[i];
        const Entry *e = &p->entry[it->entry];
        int at = n, twin = 0;
        while (twin < n && ref[twin]->entry != it->entry)
            twin++;
        if (!item_op(p, it) || e->ns < 0 || e->fresh || twin < n)
            continue;
        while (at > 0 && p->entry[ref[at - 1]->entry].ns < e->ns)
            at--;
        if (at == REFERENCES)
            continue;
        n += n < REFERENCES;
        memmove(&ref[at + 1], &ref[at], (size_t)(n - 1 - at) * sizeof *ref);
        ref[at] = it;
    }
    return n;
}

static bool measure_references(Profile *p, const Item *const *ref, int n, double *ratio, Diag *d)
{
    int64_t most = 0;
    double now = 0, then = 0, s;
    Pool pool;
    for (int i = 0; i < n; i++)
        most = item_memory(p, ref[i]) > most ? item_memory(p, ref[i]) : most;
    TRY(pool_open(&pool, most, d));
    bool ok = true;
    for (int i = 0; i < n && ok; i++) {
        int count = ref[i]->nread + ref[i]->nwrite;
        Call c = {.lib = item_op(p, ref[i]), .nread = ref[i]->nread,
                  .op = NEW(&p->arena, void *, count + 1)};
        ok = measure_call(&pool, &c, ref[i]->o, count, item_scratch(p, ref[i]), &s, d);
        now += s * 1e9;
        then += p->entry[ref[i]->entry].ns;
    }
    pool_close(&pool);
    *ratio = ok && then > 0 ? now / then : 1;
    return ok;
}

bool profile_drift(Profile *p, double *ratio, Diag *d)
{
    const Item *ref[REFERENCES];
    *ratio = 1;
    int n = p->settled && p->opt.time_limit >= 0 ? references(p, ref) : 0;
    if (n == 0)
        return true;
    unsigned mode = fp_flush(p->opt.threads);
    bool ok = measure_references(p, ref, n, ratio, d);
    fp_restore(mode);
    return ok;
}

/* ---- the CostFn ------------------------------------------------------------------------------------- */

static bool is_operand(const Item *it, Val v, int *k)
{
    for (*k = 0; *k < it->nread; ++*k)
        if (it->vals[*k].i == v.i)
            return true;
    return false;
}

static void announce(Profile *p, const Item *given)
{
    p->item = arena_grow(&p->arena, p->item, p->nitem, &p->citem, sizeof *p->item);
    Item *it = &p->item[p->nitem++];
    *it = *given;
    int n = it->nread + it->nwrite, k;
    it->o = NEW(&p->arena, MeasureOperand, n + 1);
    for (int i = 0; i < n; i++) {
        it->o[i].alias = -1;
        it->o[i].bytes = it->vals[i].i ? type_bytes(val_type(it->g, it->vals[i])) : 0;
    }
    for (int i = 0; i < it->n; i++) {
        const Node *node = &it->g->nodes[it->nodes[i].i];
        for (int j = 0; j < node->nin; j++) {
            IndexRange r = index_range(it->g, node, j);
            if (r.limit > 0 && is_operand(it, node->in[j], &k)) {
                it->o[k].range = r;
                it->o[k].index.type = *val_type(it->g, node->in[j]);
            }
        }
    }
    it->estimate = estimate(it);
}

/* The announced item of a question: they come in the same order. */
static const Item *find_item(Profile *p, NodeId first)
{
    for (uint32_t i = 0; i < p->nitem; i++) {
        const Item *it = &p->item[(p->next + i) % p->nitem];
        if (it->first.i == first.i) {
            p->next = (p->next + i + 1) % p->nitem;
            return it;
        }
    }
    return NULL;
}

bool profile_cost(void *user, const Graph *g, const NodeId *nodes, int n, const Kernel *k,
                  const Val *vals, int nread, int nwrite, StepCost *out, Diag *d)
{
    Profile *p = user;
    Item given = {.g = g, .first = nodes[0], .nodes = nodes, .n = n, .k = k, .vals = vals,
                  .nread = nread, .nwrite = nwrite};
    if (!out) {
        if (p->settled)
            close_round(p);
        announce(p, &given);
        return true;
    }
    const Item *it = p->nitem ? find_item(p, nodes[0]) : NULL;
    if (!it) {
        close_round(p);
        announce(p, &given);
        it = &p->item[0];
    }
    if (!p->settled)
        TRY(settle(p, d));
    double ns = p->entry[it->entry].ns;
    if (ns < 0)
        ns = it->estimate * p->scale[item_op(p, it) != NULL];
    out->choice = it->routine < 0 ? 0 : (int)p->routine[it->routine].choice;
    out->scratch = item_scratch(p, it);
    out->ns = p->opt.time_limit < 0 ? -1 : (int64_t)ns;
    return true;
}
