/* measure.c -- measures times on an NVIDIA GPU with events: of the algorithms of a product, of which the
 * fastest is taken, and of commands.
 *
 * Each is run alone on memory of zeros, none of which is in the cache.  Times are kept with the compiled
 * kernels: as long as they are there, all plans choose alike. */
#include "ir/mem.h"
#include "profile.h"
#include "task.h"
#include <math.h>
#include <stdlib.h>

enum { RUNS = 3 };
static const double default_limit = 10; /* seconds for commands; algorithms are all timed */

/* For functions that have b and d. */
#define CALL(name, ...) CUDA_CALL(b->cu, name, __VA_ARGS__)

/* A stream, `bytes` bytes of memory, and `cache` bytes more whose writing evicts them from the cache. */
typedef struct {
    const CudaDriver *cu;
    CUstream stream;
    CUevent from, to;
    CUdeviceptr memory;
    int64_t bytes, cache;
} Bench;

/* Are there `bytes` bytes within half of the free memory?  The other half is left to others. */
static bool has_room(const CudaProfile *p, int64_t bytes)
{
    size_t free = 0, all = 0;
    return p->on.cu->cuMemGetInfo_v2(&free, &all) == 0 && bytes + p->opt.device->cache <= (int64_t)(free / 2);
}

static bool bench_open(Bench *b, const CudaProfile *p, int64_t bytes, Diag *d)
{
    *b = (Bench){.cu = p->on.cu, .bytes = align_up(bytes, 256), .cache = p->opt.device->cache};
    return CALL(cuMemAlloc_v2, &b->memory, (size_t)(b->bytes + b->cache + 1)) &&
           CALL(cuStreamCreate, &b->stream, CU_STREAM_NON_BLOCKING) && CALL(cuEventCreate, &b->from, 0) &&
           CALL(cuEventCreate, &b->to, 0) && CALL(cuMemsetD8Async, b->memory, 0, (size_t)b->bytes, b->stream);
}

static void bench_close(Bench *b)
{
    cuda_event_free(b->cu, b->from);
    cuda_event_free(b->cu, b->to);
    if (b->memory)
        b->cu->cuMemFree_v2(b->memory);
    if (b->stream)
        b->cu->cuStreamDestroy_v2(b->stream);
}

typedef bool Run(void *what, CUstream stream, Diag *d);

/* Sets *ns to the least time of RUNS runs, after one run that triggers lazy loading. */
static bool bench_ns(const Bench *b, Run *run, void *what, double *ns, Diag *d)
{
    float ms = 0, best = INFINITY;
    for (int i = 0; i <= RUNS; i++) {
        TRY(b->cache == 0 || CALL(cuMemsetD8Async, b->memory + (CUdeviceptr)b->bytes, (unsigned char)i,
                                  (size_t)b->cache, b->stream));
        TRY(CALL(cuEventRecord, b->from, b->stream) && run(what, b->stream, d) &&
            CALL(cuEventRecord, b->to, b->stream) && CALL(cuStreamSynchronize, b->stream) &&
            CALL(cuEventElapsedTime, &ms, b->from, b->to));
        best = i > 0 && ms < best ? ms : best;
    }
    *ns = fmax(1, round(1e6 * (double)best));
    return true;
}

/* ---- algorithms --------------------------------------------------------------------------------- */

typedef struct {
    Known *k;
    int algo;
    const ProductLibrary *lib;
    Routine r;
    CUdeviceptr at[GEMM_OPERANDS], workspace;
} AlgoRun;

static bool run_algo(void *what, CUstream stream, Diag *d)
{
    const AlgoRun *x = what;
    return routine_run(&x->r, x->lib, x->at, x->workspace, stream, d);
}

/* Places operands, then the workspace, from the start of the memory; returns their bytes. */
static int64_t place_algo(AlgoRun *x, CUdeviceptr memory)
{
    int64_t at = 0;
    for (int o = 0; o < GEMM_OPERANDS; o++) {
        x->at[o] = memory + (CUdeviceptr)at;
        at += align_up(gemm_bytes(&x->k->of.g, (GemmOperand)o), 256);
    }
    x->workspace = memory + (CUdeviceptr)at;
    return at + x->k->algo[x->algo].workspace;
}

static uint32_t unknown_algos(const CudaProfile *p, AlgoRun *run, int64_t *bytes)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->nknown; i++)
        for (int a = 0; a < p->known[i].n && p->known[i].n > 1 && !p->known[i].kept; a++) {
            AlgoRun x = {.k = &p->known[i], .algo = a, .lib = &p->lib};
            int64_t need = place_algo(&x, 0);
            if (x.k->ns[a] >= 0 || !has_room(p, need))
                continue;
            *bytes = need > *bytes ? need : *bytes;
            run[n++] = x;
        }
    return n;
}

static bool measure_algos(CudaProfile *p, const Progress *pr, Diag *d)
{
    Bench b = {0};
    int64_t bytes = 0;
    AlgoRun *run = mem_new((size_t)p->nknown * KNOWN_ALGOS + 1, sizeof *run);
    uint32_t n = unknown_algos(p, run, &bytes);
    bool ok = true;
    for (uint32_t i = 0; i < n && ok; i++) {
        ok = routine_make(&run[i].r, &p->lib, &run[i].k->of, d);
        run[i].r.algo = run[i].k->algo[run[i].algo];
    }
    ok = ok && (n == 0 || bench_open(&b, p, bytes, d));
    for (uint32_t i = 0; i < n && ok; i++) {
        progress(pr, "measuring %u of %u algorithms of products", i + 1, n);
        place_algo(&run[i], b.memory);
        ok = bench_ns(&b, run_algo, &run[i], &run[i].k->ns[run[i].algo], d);
    }
    bench_close(&b);
    for (uint32_t i = 0; i < n; i++)
        routine_free(&run[i].r, &p->lib);
    free(run);
    return ok;
}

/* ---- commands ----------------------------------------------------------------------------------- */

typedef struct {
    Tasks *tasks;
    uint32_t from, to;
} TaskRun;

static bool run_tasks(void *what, CUstream stream, Diag *d)
{
    const TaskRun *x = what;
    for (uint32_t i = x->from; i < x->to; i++)
        TRY(task_run(x->tasks, &x->tasks->task[i], stream, d));
    return true;
}

/* Offset of an operand; after all operands comes the workspace. */
static int64_t place_operand(const Item *it, int base)
{
    int64_t at = 0;
    for (int i = 0; i < base; i++)
        at += it->c->vals[i].i ? align_up(type_bytes(val_type(it->c->g, it->c->vals[i])), 256) : 0;
    return at;
}

static int64_t item_bytes(const Item *it)
{
    return place_operand(it, it->c->nread + it->c->nwrite) + it->scratch;
}

/* Adds the launches of a command, with operands and workspace placed in one memory. */
static void add_launches(const Item *it, Launches *l)
{
    uint32_t from = l->n;
    int64_t workspace = place_operand(it, it->c->nread + it->c->nwrite);
    command_launches(it->c, l);
    for (uint32_t i = from; i < l->n; i++) {
        Launch *x = &l->launch[i];
        Slice *op = NEW(l->arena, Slice, x->nop + 1);
        for (int o = 0; o < x->nop; o++) {
            op[o] = x->op[o];
            op[o].at += op[o].base < 0 ? 0 : place_operand(it, op[o].base);
            op[o].base = op[o].base < 0 ? -1 : SPACE_DEVICE;
        }
        x->op = op;
        x->workspace =
            (Slice){SPACE_DEVICE, true, workspace + x->workspace.at, it->scratch - x->workspace.at};
    }
}

static bool crosses_link(const Command *c)
{
    Op op = command_node(c)->op;
    return op == OP_offload || op == OP_fetch;
}

/* Collects one item of each signature whose time is not known; returns their number. */
static uint32_t unknown_items(const CudaProfile *p, const Item **out, int64_t *bytes, Arena *a)
{
    uint32_t n = 0;
    bool *seen = NEW(a, bool, p->table.n + 1);
    for (uint32_t i = 0; i < p->nitem; i++) {
        const Item *it = &p->item[i];
        int64_t need = item_bytes(it);
        if (profile_ns(p, it->entry) >= 0 || seen[it->entry] || crosses_link(it->c) || !has_room(p, need))
            continue;
        seen[it->entry] = true;
        *bytes = need > *bytes ? need : *bytes;
        out[n++] = it;
    }
    return n;
}

/* Measures items until the time limit; those left are estimated. */
static bool time_items(CudaProfile *p, const Item *const *item, uint32_t n, const Bench *b, Tasks *t,
                       const uint32_t *first, const Progress *pr, Diag *d)
{
    double start = clock_seconds(), limit = p->opt.time_limit > 0 ? p->opt.time_limit : default_limit;
    for (uint32_t i = 0; i < n && clock_seconds() - start < limit; i++) {
        TaskRun run = {t, first[i], first[i + 1]};
        progress(pr, "measuring %u of %u kernels", i + 1, n);
        TRY(bench_ns(b, run_tasks, &run, &p->table.entry[item[i]->entry].ns, d));
    }
    return true;
}

static bool measure_items(CudaProfile *p, const Progress *pr, Diag *d)
{
    Arena a = {0};
    Bench b = {0};
    int64_t bytes = 0;
    const Item **item = NEW(&a, const Item *, p->nitem + 1);
    uint32_t n = unknown_items(p, item, &bytes, &a), *first = NEW(&a, uint32_t, n + 1);
    const char **choice = NEW(&a, const char *, n + 1);
    Launches l = {.arena = &a};
    for (uint32_t i = 0; i < n; i++) {
        first[i] = l.n;
        choice[i] = item[i]->choice;
        add_launches(item[i], &l);
    }
    first[n] = l.n;
    bool ok = n == 0 || bench_open(&b, p, bytes, d);
    if (n > 0) {
        Tasks t = {.cu = p->on.cu, .device = p->on.device, .lib = &p->lib};
        TaskInput in = {.l = &l, .nstep = n, .first = first, .choice = choice, .cache = p->opt.cache};
        in.space[SPACE_DEVICE] = b.memory;
        progress(pr, "compiling kernels");
        ok = ok && tasks_make(&t, &in, &a, d) && time_items(p, item, n, &b, &t, first, pr, d);
        tasks_free(&t);
        bench_close(&b);
    }
    arena_free(&a);
    return ok;
}

static bool measure(CudaProfile *p, const Progress *pr, StepCost *out, Diag *d)
{
    bool compiles = cuda_nvrtc(p->on.cu, &(Diag){0}) != NULL; /* without it only a run fails, not planning */
    return measure_algos(p, pr, d) && algos_keep(p, d) && profile_answer(p, out, d) &&
           (!compiles || measure_items(p, pr, d)) && table_write(&p->table, d) && profile_answer(p, out, d);
}

bool cuda_times(void *user, Times worth, const Progress *pr, StepCost *out, Diag *d)
{
    CudaProfile *p = user;
    (void)worth; /* the choice must not depend on it */
    return IN_CONTEXT(&p->on,
                      profile_measures(p) ? measure(p, pr, out, d) : profile_answer(p, out, d));
}

bool cuda_learn(void *user, const NodeId *first, const double *seconds, uint32_t n, Diag *d)
{
    CudaProfile *p = user;
    if (!profile_measures(p))
        return true;
    TimedCommand *c = NEW(&p->round, TimedCommand, p->nitem + 1);
    for (uint32_t i = 0; i < p->nitem; i++)
        c[i] = (TimedCommand){p->item[i].first, p->item[i].entry};
    return table_learn(&p->table, c, p->nitem, first, seconds, n, d);
}
