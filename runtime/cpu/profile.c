/* profile.c -- the cost of every kernel of a schedule on this CPU, measured once.
 *
 * The commands of a schedule are one round.  profile_cost resolves its routines and signatures; profile_times
 * measures:
 *
 *   algorithms   by rule (choice.c), which also says how much scratch is needed
 *   caches       operands that each kernel finds in the caches (replay.c)
 *   signatures   hash of kernel text or library description, bytes of operands, which are
 *                cached, which are in place, threads
 *   measuring    of unknown signatures (measure.c), those with the largest estimated share
 *                of the step first, within limits on time and memory; the rest are estimates,
 *                scaled by what was measured
 *
 * A run reports its times (profile_learn) if its steps take another time than predicted: then the times of
 * its kernels in the step replace those measured alone. */
#include "profile_int.h"
#include "codegen/codegen.h"
#include "ir/mem.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    ROUNDS = 2,         /* how often everything is measured */
    WORTH_STEPS = 100,  /* measuring takes at most the time of so many steps, or a second */
    ROOM_SIXTHS = 5,    /* sixths of the memory that others hold which a faster routine may use: values that
                         * outlive both need the rest */
    MEASURED_BLOCKS = 4 /* blocks of a loop that are measured, as all take the same time */
};
static const double default_limit = 10; /* seconds */
/* A time so many times the estimate is not taken if other processes used more than this share of the
 * processors meanwhile: threads that wait for one whose processor is taken can make a step of seconds of one
 * of 20 ms. */
enum { BUSY_TIMES = 10 };
static const double busy = 0.25;

typedef struct {
    LibDesc of;
    DnnlChoice choice;
    DnnlOp *op; /* NULL: the kernel's text runs */
    StepCost ways;  /* candidates for a command that is this product alone; times: added to the first's */
    int64_t others; /* bytes of temporaries besides its scratch while it runs, at most */
    bool by_rows;   /* a loop makes it by rows */
} Routine;

typedef struct {
    ProfileOptions opt;
    KernelCache own; /* the cache if none was given */
    Table table;
    /* the current round */
    Arena arena;
    Item *item;
    uint32_t nitem;
    Routine *routine;
    uint32_t nroutine, croutine;
    double scale[2]; /* measured over estimated time: of text, of library routines */
} Profile;

void *profile_open(const ProfileOptions *opt, Diag *d)
{
    Profile *p = mem_new(1, sizeof *p);
    p->opt = *opt;
    if (!opt->cache && !kernel_cache_open(p->opt.cache = &p->own, NULL, d)) {
        free(p);
        return NULL;
    }
    table_open(&p->table, p->opt.cache, compiler_identity(p->opt.cache));
    return p;
}

static void free_others(Item *it)
{
    for (uint32_t i = 0; i < it->nother; i++)
        onednn_free(it->other[i]);
    it->nother = 0;
}

static void close_round(Profile *p)
{
    for (uint32_t i = 0; i < p->nroutine; i++)
        onednn_free(p->routine[i].op);
    for (uint32_t i = 0; i < p->nitem; i++)
        free_others(&p->item[i]);
    arena_free(&p->arena);
    p->item = NULL;
    p->routine = NULL;
    p->nitem = p->nroutine = p->croutine = 0;
}

void profile_close(void *profile)
{
    Profile *p = profile;
    if (!p)
        return;
    close_round(p);
    table_close(&p->table);
    kernel_cache_close(&p->own);
    free(p);
}

/* ---- settling a round -------------------------------------------------- */

/* The routine of a command that is no loop. */
static DnnlOp *item_op(const Profile *p, const Item *it)
{
    return it->of->loop || it->routine[0] < 0 ? NULL : p->routine[it->routine[0]].op;
}

static bool has_text(const Profile *p, const Item *it)
{
    return it->of->k.lib != LIB_COPY && !item_op(p, it);
}

static int64_t item_scratch(const Item *it)
{
    int64_t most = 0;
    for (uint32_t i = 0; i < it->l.n; i++) {
        int64_t bytes = it->call[i].lib ? onednn_scratch_bytes(it->call[i].lib) : 0;
        most = bytes > most ? bytes : most;
    }
    return command_workspace_bytes(it->of) + most;
}

/* Sets *routine to the index of the routine for a product of an item, made once per description. */
static bool find_routine(Profile *p, const Item *it, const LibDesc *of, int *routine, Diag *d)
{
    uint32_t i = 0;
    while (i < p->nroutine && memcmp(&p->routine[i].of, of, sizeof *of) != 0)
        i++;
    *routine = (int)i;
    if (i == p->nroutine) {
        p->routine = arena_grow(&p->arena, p->routine, i, &p->croutine, sizeof *p->routine);
        Routine *r = &p->routine[p->nroutine++];
        DnnlDesc chosen = {.of = *of};
        *r = (Routine){.of = *of, .op = choose_routine(&chosen, d)};
        r->choice = chosen.choice;
        if (r->op)
            find_candidates(&chosen, r->op, &r->ways, d);
    }
    int64_t others = computed_bytes(it);
    if (p->routine[i].others < others)
        p->routine[i].others = others;
    return !d->failed;
}

/* The routine for another product of the item (of a block that is not full), made once per description. */
static DnnlOp *other_routine(Profile *p, Item *it, const DnnlDesc *desc, Diag *d)
{
    uint32_t i = 0;
    while (i < it->nother && memcmp(&it->desc[i].of, &desc->of, sizeof desc->of) != 0)
        i++;
    if (i < it->nother)
        return it->other[i];
    it->desc = arena_grow(&p->arena, it->desc, i, &it->cdesc, sizeof *it->desc);
    it->other = arena_grow(&p->arena, it->other, i, &it->cother, sizeof *it->other);
    it->desc[it->nother] = *desc;
    return it->other[it->nother++] = onednn_make(desc, d);
}

/* Binds the item's products to routines; those of all blocks get the algorithm chosen for a full one. */
static bool bind_routines(Profile *p, Item *it, Diag *d)
{
    free_others(it);
    for (uint32_t i = 0; i < it->l.n && !d->failed; i++) {
        const LibDesc *of = lib_worth(it->l.launch[i].lib);
        int routine = it->routine[it->l.launch[i].stage];
        if (!of || routine < 0)
            continue;
        const Routine *r = &p->routine[routine];
        bool full = memcmp(&r->of, of, sizeof *of) == 0;
        it->call[i].lib = full ? r->op
                               : other_routine(p, it, &(DnnlDesc){.of = *of, .choice = r->choice}, d);
    }
    return !d->failed;
}

static bool has_routine(const Item *it)
{
    bool any = false;
    for (int i = 0; i < it->nroutine; i++)
        any |= it->routine[i] >= 0;
    return any;
}

static bool find_algorithm(Profile *p, Item *it, Diag *d)
{
    const Loop *loop = it->of->loop;
    it->nroutine = loop ? loop->nstage : 1;
    it->routine = NEW(&p->arena, int, it->nroutine);
    for (int i = 0; i < it->nroutine; i++)
        it->routine[i] = -1;
    for (uint32_t i = 0; i < it->l.n; i++) {
        const LibDesc *of = lib_worth(it->l.launch[i].lib);
        int stage = it->l.launch[i].stage, *routine = &it->routine[stage];
        if (!of || *routine >= 0)
            continue;
        TRY(find_routine(p, it, of, routine, d));
        p->routine[*routine].by_rows |= loop && loop->stage[stage].split->split.by == SPLIT_ROWS;
    }
    return bind_routines(p, it, d);
}

/* The least workspace in bytes with which an item gives the same bits. */
static int64_t least_scratch(const Profile *p, const Item *it)
{
    const StepCost *ways = item_op(p, it) ? &p->routine[it->routine[0]].ways : NULL;
    return ways ? ways->c[ways->same - 1].scratch : item_scratch(it);
}

/* Takes faster routines with more scratch, if other commands need as much memory at once anyway. */
static bool find_faster(Profile *p, Diag *d)
{
    int64_t most = 0;
    for (uint32_t i = 0; i < p->nitem; i++) {
        int64_t held = computed_bytes(&p->item[i]) + least_scratch(p, &p->item[i]);
        most = held > most ? held : most;
    }
    for (uint32_t i = 0; i < p->nroutine && !d->failed; i++) {
        Routine *r = &p->routine[i];
        DnnlDesc desc = {.of = r->of};
        DnnlOp *op = r->by_rows ? NULL : choose_faster(&desc, (most - r->others) / 6 * ROOM_SIXTHS, d);
        if (!op)
            continue;
        onednn_free(r->op);
        r->op = op;
        r->choice = desc.choice;
        find_candidates(&desc, op, &r->ways, d);
    }
    return !d->failed;
}

static bool find_routines(Profile *p, Diag *d)
{
    for (uint32_t i = 0; i < p->nitem; i++)
        TRY(find_algorithm(p, &p->item[i], d));
    TRY(find_faster(p, d));
    for (uint32_t i = 0; i < p->nitem; i++)
        if (has_routine(&p->item[i]))
            TRY(bind_routines(p, &p->item[i], d));
    return true;
}

/* Hashes the text of the kernels that run as text. */
static void sign_texts(const Item *it, XXH3_state_t *h)
{
    for (uint32_t k = 0; k < it->l.nkernel; k++) {
        bool runs = false;
        for (uint32_t i = 0; i < it->l.n && !runs; i++)
            runs = !it->l.launch[i].copy && !it->call[i].lib && it->l.launch[i].kernel == k;
        char *text = runs ? kernel_print_text(kernel_print_keyless_c, it->l.kernel[k]) : NULL;
        if (text)
            XXH3_128bits_update(h, text, strlen(text));
        free(text);
    }
}

/* Hashes a routine, with what distinguishes it from that of another version of the library. */
static void sign_routine(const Routine *r, XXH3_state_t *h)
{
    XXH3_128bits_update(h, &r->of, sizeof r->of);
    XXH3_128bits_update(h, &r->choice, sizeof r->choice);
    if (r->op) {
        int64_t scratch = onednn_scratch_bytes(r->op);
        XXH3_128bits_update(h, onednn_impl(r->op), strlen(onednn_impl(r->op)));
        XXH3_128bits_update(h, &scratch, sizeof scratch);
    }
}

static void sign(Profile *p, Item *it)
{
    XXH3_state_t state, *h = &state;
    XXH3_128bits_reset(h);
    sign_texts(it, h);
    for (int i = 0; i < it->nroutine; i++)
        if (it->routine[i] >= 0)
            sign_routine(&p->routine[it->routine[i]], h);
    int64_t block = it->of->loop ? it->of->loop->block : 0;
    XXH3_128bits_update(h, &block, sizeof block);
    XXH3_128bits_update(h, &p->opt.threads, sizeof p->opt.threads);
    for (int i = 0; i < it->n; i++) {
        int64_t o[] = {it->o[i].bytes, it->o[i].hot, it->o[i].alias};
        XXH3_128bits_update(h, o, sizeof o);
    }
    it->entry = table_find(&p->table, XXH3_128bits_digest(h));
}

static int64_t item_memory(const Item *it)
{
    return measure_bytes(it->o, it->n, item_scratch(it));
}

static bool measure_item(Profile *p, Item *it, Pool *pool, Diag *d)
{
    int64_t blocks = command_blocks(it->of), some = blocks < MEASURED_BLOCKS ? blocks : MEASURED_BLOCKS;
    Subject subject = {&it->l, (uint32_t)command_launch_count(it->of, some), it->call, it->o,
                       it->n, item_scratch(it)};
    const Loop *loop = it->of->loop;
    double s, part = some < blocks ? (double)(some * loop->block) / (double)loop->rows : 1;
    pool_use(pool, item_memory(it));
    if (it->of->k.body && has_text(p, it))
        pool_refill(pool); /* it may branch on data */
    ProcessorTime before = processor_time();
    TRY(measure(pool, &subject, &s, d));
    double *ns = &p->table.entry[it->entry].ns, now = fmax(1, round(s * 1e9 / part));
    if (now > BUSY_TIMES * it->estimate && others_since(&before) > busy)
        return true;
    *ns = *ns < 0 ? now : round((*ns + now) / 2); /* rounded, as in the file */
    return true;
}

typedef struct {
    uint32_t item;
    double share; /* estimated time of all items with its signature, ns */
} Unknown;

static int by_share(const void *a, const void *b)
{
    double x = ((const Unknown *)a)->share, y = ((const Unknown *)b)->share;
    return (x < y) - (x > y);
}

/* One item per unknown signature, the largest share first. */
static Unknown *unknown_signatures(Profile *p, uint32_t *n)
{
    uint32_t *at = NEW(&p->arena, uint32_t, p->table.n + 1); /* per entry: index in u plus 1; 0: none */
    Unknown *u = NEW(&p->arena, Unknown, p->nitem + 1);
    *n = 0;
    for (uint32_t i = 0; i < p->nitem; i++) {
        uint32_t e = p->item[i].entry;
        if (p->table.entry[e].ns >= 0)
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

/* Compiles the kernels of all items to measure at once. */
static bool compile_unknown(Profile *p, const Unknown *u, uint32_t count, KernelObjects *o, Diag *d)
{
    Call **c = NEW(&p->arena, Call *, count + 1);
    const Launches **l = NEW(&p->arena, const Launches *, count + 1);
    for (uint32_t i = 0; i < count; i++) {
        c[i] = p->item[u[i].item].call;
        l[i] = &p->item[u[i].item].l;
    }
    return calls_load(c, l, count, p->opt.cache, o, d);
}

/* Limits of measuring: memory, time in all, and the least share of a step for which it is worth it. */
typedef struct {
    int64_t bytes;
    double seconds, share;
    int rounds; /* measurements of an item, apart in time as the load of the machine changes */
} Allowance;

static Allowance allowance(const Profile *p, Times worth)
{
    double step = 0, limit = p->opt.time_limit > 0 ? p->opt.time_limit : default_limit;
    for (uint32_t i = 0; i < p->nitem; i++)
        step += 1e-9 * p->item[i].estimate;
    Allowance a = {memory_available() / 4, fmin(limit, fmax(1, WORTH_STEPS * step)), 0.001, ROUNDS};
    if (worth == TIMES_ROUGH)
        a = (Allowance){a.bytes, a.seconds / 5, 0.01, 1};
    return a;
}

/* Keeps the signatures of u that are worth measuring and feasible, and returns their number. */
static uint32_t keep_worthy(const Profile *p, Unknown *u, uint32_t n, const Allowance *a)
{
    double step = 0;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < p->nitem; i++)
        step += p->item[i].estimate;
    for (uint32_t i = 0; i < n; i++) {
        const Item *it = &p->item[u[i].item];
        bool short_enough = 1e-9 * it->estimate <= a->seconds / 5;
        if (u[i].share >= a->share * step && short_enough &&
            pool_bytes(item_memory(it)) <= a->bytes)
            u[kept++] = u[i];
    }
    return kept;
}

static bool measure_unknown(Profile *p, const Unknown *u, uint32_t n, const Allowance *a,
                            const Progress *pr, Diag *d)
{
    int64_t most = 0;
    Pool pool;
    Diag none = {0}; /* without memory to measure in, times are estimated */
    for (uint32_t i = 0; i < n; i++) {
        int64_t bytes = item_memory(&p->item[u[i].item]);
        most = bytes > most ? bytes : most;
    }
    if (!pool_open(&pool, most, &none))
        return true;
    uint32_t all = (uint32_t)a->rounds * n;
    double start = clock_seconds(), spent = 0;
    bool ok = true;
    for (uint32_t i = 0; i < all && ok && spent < a->seconds; i++) {
        double left = i ? fmin(spent / i * (all - i), a->seconds - spent) : a->seconds;
        progress(pr, "measuring %u of %u kernels, at most %.0f s left", i % n + 1, n, ceil(left));
        ok = measure_item(p, &p->item[u[i % n].item], &pool, d);
        spent = clock_seconds() - start;
    }
    pool_close(&pool);
    return ok && table_write(&p->table, d);
}

/* Sets p->scale, the ratio of measured to estimated time: the median by estimated time, as single times may
 * be far off. */
static void calibrate(Profile *p)
{
    Weighted *ratio = NEW(&p->arena, Weighted, p->nitem + 1);
    for (int c = 0; c < 2; c++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < p->nitem; i++) {
            const Item *it = &p->item[i];
            double ns = p->table.entry[it->entry].ns;
            if (ns >= 0 && it->estimate > 0 && (item_op(p, it) != NULL) == c)
                ratio[n++] = (Weighted){ns / it->estimate, it->estimate};
        }
        p->scale[c] = n ? weighted_median(ratio, n) : 1;
    }
}

static bool resolve(Profile *p, Diag *d)
{
    unsigned mode = fp_flush(p->opt.threads);
    replay(p->item, p->nitem);
    bool ok = find_routines(p, d);
    for (uint32_t i = 0; i < p->nitem && ok; i++)
        sign(p, &p->item[i]);
    calibrate(p);
    fp_restore(mode);
    return ok;
}

static bool take_times(Profile *p, Times worth, const Progress *pr, Diag *d)
{
    uint32_t n = 0;
    if (p->opt.time_limit < 0)
        return true;
    Unknown *u = unknown_signatures(p, &n);
    Allowance a = allowance(p, worth);
    n = keep_worthy(p, u, n, &a);
    if (n == 0)
        return true;
    unsigned mode = fp_flush(p->opt.threads);
    KernelObjects objects = {0};
    progress(pr, "compiling %u kernels", n);
    bool ok = compile_unknown(p, u, n, &objects, d) && measure_unknown(p, u, n, &a, pr, d);
    kernels_unload(&objects);
    calibrate(p);
    fp_restore(mode);
    return ok;
}

/* ---- CostFn and TimesFn ------------------------------------------------ */

static bool is_operand(const Command *c, Val v, int *k)
{
    for (*k = 0; *k < c->nread; ++*k)
        if (c->vals[*k].i == v.i)
            return true;
    return false;
}

static Item item_of(Profile *p, const Command *c)
{
    Item it = {.of = c, .first = c->nodes[0], .n = c->nread + c->nwrite};
    int k;
    it.o = NEW(&p->arena, MeasureOperand, it.n + 1);
    for (int i = 0; i < it.n; i++) {
        it.o[i].alias = -1;
        it.o[i].bytes = c->vals[i].i ? type_bytes(val_type(c->g, c->vals[i])) : 0;
    }
    for (int i = 0; i < c->n; i++) {
        const Node *node = &c->g->nodes[c->nodes[i].i];
        for (int j = 0; j < node->nin; j++) {
            IndexRange r = index_range(c->g, node, j);
            if (r.limit > 0 && is_operand(c, node->in[j], &k)) {
                it.o[k].range = r;
                it.o[k].index.type = *val_type(c->g, node->in[j]);
            }
        }
    }
    it.estimate = device_ns(&device_cpu, c); /* first guess */
    it.l.arena = &p->arena;
    command_launches(c, &it.l);
    it.call = calls_make(it.l.launch, it.l.n, &p->arena);
    return it;
}

/* The choices of all stages that name a routine, separated by commas, "-" for one that runs as text; NULL:
 * all of them run as text. */
static const char *loop_choices(Profile *p, const Item *it)
{
    const char *all = "";
    bool any = false;
    for (int i = 0; i < it->nroutine; i++) {
        const Routine *r = it->routine[i] >= 0 ? &p->routine[it->routine[i]] : NULL;
        if (!(it->of->loop ? it->of->loop->stage[i].lib : it->of->lib))
            continue;
        any |= r && r->op;
        all = arena_printf(&p->arena, "%s%s%s", all, *all ? "," : "",
                           r && r->op ? onednn_choice_text(&(DnnlDesc){.choice = r->choice}) : "-");
    }
    return any ? all : NULL;
}

static StepCost cost_of(Profile *p, const Item *it)
{
    StepCost cost = {.c = {{NULL, item_scratch(it), 0}}, .n = 1, .same = 1};
    double ns = p->table.entry[it->entry].ns;
    if (ns < 0)
        ns = it->estimate * p->scale[item_op(p, it) != NULL];
    if (item_op(p, it))
        cost = p->routine[it->routine[0]].ways;
    else if (has_routine(it))
        cost.c[0].choice = loop_choices(p, it);
    candidate_times(&cost, p->opt.time_limit < 0 ? -1 : (int64_t)ns);
    cost.measured = p->opt.time_limit >= 0 && p->table.entry[it->entry].ns >= 0;
    return cost;
}

bool profile_times(void *user, Times worth, const Progress *pr, StepCost *out, Diag *d)
{
    Profile *p = user;
    TRY(take_times(p, worth, pr, d));
    for (uint32_t i = 0; i < p->nitem; i++)
        out[i] = cost_of(p, &p->item[i]);
    return true;
}

bool profile_cost(void *user, const Command *c, uint32_t n, StepCost *out, Diag *d)
{
    Profile *p = user;
    close_round(p);
    p->item = NEW(&p->arena, Item, n + 1);
    for (; p->nitem < n; p->nitem++)
        p->item[p->nitem] = item_of(p, &c[p->nitem]);
    TRY(resolve(p, d) && (p->opt.on_demand || take_times(p, TIMES_DECIDE, NULL, d)));
    for (uint32_t i = 0; i < n; i++)
        out[i] = cost_of(p, &p->item[i]);
    return true;
}

/* ---- learning ---------------------------------------------------------- */

bool profile_learn(void *profile, const NodeId *first, const double *seconds, uint32_t n, Diag *d)
{
    Profile *p = profile;
    if (p->opt.time_limit < 0)
        return true;
    TimedCommand *c = NEW(&p->arena, TimedCommand, p->nitem + 1);
    for (uint32_t i = 0; i < p->nitem; i++)
        c[i] = (TimedCommand){p->item[i].first, p->item[i].entry};
    return table_learn(&p->table, c, p->nitem, first, seconds, n, d);
}
