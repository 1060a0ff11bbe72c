/* cuda.c -- kernel descriptions printed as CUDA C.
 *
 * The same loop analysis as for C (schedule.h), spread over threads:
 *
 *   cuda_vector.c   how threads take the innermost dimension, 16 bytes at a time
 *   cuda_point.c    pointwise: a thread has some chunks; tiles where an operand is transposed
 *   cuda_row.c      the innermost dimension is reduced: rows in registers
 *   cuda_sums.c     columns that are summed in a kernel that reduces rows
 *   cuda_column.c   the innermost dimension is parallel, others are reduced
 *   cuda_parts.c    reductions in phases, where blocks have parts of the reduced points
 *   cuda_gather.c   rows by index, and sums of rows by index
 *   cuda_pool.c     pools, and copies into zeros
 *   cuda_scan.c     cumulative sums
 *   cuda_topk.c     the first elements of rows
 *   cuda_sample.c   images read between their pixels
 *   here            other bodies: a grid-stride loop over the items
 *
 * There are no atomics, and launch shapes depend on the kernel alone, so results are reproducible.  Values
 * that do not change along the reduced dimensions are computed once per thread and level. */
#include "cuda_attention.h"
#include "cuda_conv.h"
#include "cuda_int.h"

/* PROCESSOR_THREADS: so many threads, with 128 registers each, fit a processor.  Launch bounds are set to it,
 * as without them the compiler spills rather than have one block less on a processor. */
enum { MAX_BLOCKS = 65536, PROCESSOR_THREADS = 512 };

/* Bodies that have a CUDA text of their own. */
typedef struct {
    bool (*has)(const Kernel *k);
    CudaLaunch (*launch)(const Kernel *k);
    void (*prelude)(Printer *pr, const Kernel *k); /* NULL: none */
    void (*print)(Printer *pr, const Kernel *k);
    int (*results)(const Kernel *k); /* how many of the last operands it writes; NULL: one */
    double (*flops)(const Kernel *k); /* operations; NULL: those of the description */
} OwnText;
static const OwnText own_texts[] = {
    {cuda_is_gather, gather_launch, NULL, gather_kernel, NULL, NULL},
    {cuda_is_gather_sum, gather_sum_launch, gather_sum_prelude, gather_sum_kernel, NULL, gather_sum_flops},
    {cuda_is_pool, pool_launch, pool_prelude, pool_kernel, pool_results, NULL},
    {cuda_is_pad, pad_launch, NULL, pad_kernel, NULL, NULL},
    {cuda_is_scan, scan_launch, scan_prelude, scan_kernel, NULL, NULL},
    {cuda_is_topk, topk_launch, topk_prelude, topk_kernel, NULL, topk_flops},
    {cuda_is_sample, sample_launch, sample_prelude, sample_kernel, NULL, NULL},
    {cuda_is_elements, elements_launch, elements_prelude, elements_kernel, NULL, NULL},
    {cuda_is_scatter, scatter_launch, scatter_prelude, scatter_kernel, NULL, scatter_flops},
};

static const OwnText *own_text(const Kernel *k)
{
    for (size_t i = 0; i < sizeof own_texts / sizeof *own_texts; i++)
        if (own_texts[i].has(k))
            return &own_texts[i];
    return NULL;
}

/* Launch of a body.  Blocks have fewer threads where there are few items, as each then takes long. */
static CudaLaunch body_launch(const Kernel *k)
{
    unsigned threads = FLAT_THREADS;
    const OwnText *own = own_text(k);
    if (own)
        return own->launch(k);
    const int64_t items = cuda_by_columns(k).items;
    while (threads > WARP && blocks_for(items, threads) < BLOCKS)
        threads /= 2;
    unsigned n = blocks_for(items, threads);
    return one_phase(n < MAX_BLOCKS ? n : MAX_BLOCKS, threads);
}

/* Is the kernel pointwise and walks all operands alike, so that its number of elements can be an argument? */
static bool is_counted(const Sched *s) { return s->kind == SCHED_POINT && s->rank == 1; }

/* The loop analysis; a row kernel stores nothing early, as its rows are in registers, or nearly so. */
static void schedule(Sched *s, const Kernel *k, int64_t row_buffer, Arena *a)
{
    sched_make(s, k, row_buffer, a);
    if (s->kind == SCHED_ROW)
        memset(s->early, 0, s->n * sizeof *s->early);
}

/* Finds the schedule of a DAG, how it is vectorised, and its launches.  Arrays live in a. */
static void analyse(Printer *pr, Sched *s, const Kernel *k, Arena *a)
{
    schedule(s, k, INT64_MAX, a);
    if (s->kind != SCHED_COLUMN)
        schedule(s, k = kernel_without_deviations(k, a), INT64_MAX, a);
    pr->s = s;
    vector_make(&pr->v, s, a);
    pr->counted = is_counted(s);
    strcpy(pr->limit, "n");
    if (!pr->counted)
        snprintf(pr->limit, sizeof pr->limit, "%" PRId64, (pr->v.flat ? s->nitem : 1) * s->extent[s->vec]);
    pr->mark = NEW(a, bool, s->n + 1);
    pr->need = NEW(a, bool, s->n + 1);
    pr->parts = (Parts){.n = 1, .at = NEW(a, int64_t, s->n + 1)};
    pr->rows.held = NEW(a, bool, s->n + 1);
    if (s->kind == SCHED_ROW)
        rows_make(&pr->rows, s, &pr->v, a);
    pr->launches = s->kind == SCHED_POINT ? point_launch(s, &pr->v)
                   : s->kind == SCHED_ROW ? row_launch(pr)
                                          : column_launch(pr);
    if (s->kind == SCHED_ROW && !pr->rows.chunks) /* costly values are recomputed as well */
        schedule(s, k, 0, a);
}

CudaLaunch kernel_cuda_launch(const Kernel *k)
{
    Arena a = {0};
    Sched s;
    Printer pr = {0};
    if (cuda_conv_has(k))
        return cuda_conv_launch(k);
    if (cuda_attention_has(k))
        return cuda_attention_launch(k);
    if (k->body)
        return body_launch(k);
    analyse(&pr, &s, k, &a);
    arena_free(&a);
    if (k->calls > 1)
        pr.launches.phase[0].grid *= (unsigned)k->calls;
    return pr.launches;
}

bool kernel_cuda_is_point(const Kernel *k)
{
    Arena a = {0};
    Sched s;
    Printer pr = {0};
    if (k->body)
        return false;
    analyse(&pr, &s, k, &a);
    bool is = s.kind == SCHED_POINT && s.tile < 0;
    arena_free(&a);
    return is;
}

bool kernel_cuda_is_scalar(const Kernel *k)
{
    bool matrix = k->native != NATIVE_NONE || (k->lib != LIB_NONE && k->lib != LIB_COPY);
    return matrix && k->body && !cuda_conv_has(k) && !cuda_attention_has(k);
}

void kernel_cuda_work(Kernel *k)
{
    const OwnText *own = own_text(k);
    k->threads = 0;
    if (!k->body || k->native != NATIVE_NONE || k->lib != LIB_NONE)
        return;
    const CudaLaunch l = body_launch(k);
    for (int i = 0; i < l.n; i++) {
        int64_t n = (int64_t)l.phase[i].grid * l.phase[i].block;
        k->threads = n > k->threads ? n : k->threads;
    }
    const Kernel by = cuda_by_columns(k);
    if (!own && by.items < k->threads)
        k->threads = by.items;
    k->flops = !own ? by.flops : own->flops ? own->flops(k) : k->flops;
}

/* Appends a key to key[0..n) unless key is NULL; returns the new number. */
static int add_key(int64_t *key, int n, int64_t value)
{
    if (key)
        key[n] = value;
    return n + 1;
}

/* Writes the keys of one call to `key` unless it is NULL; returns their number. */
static int call_keys(const Kernel *k, int64_t *key)
{
    Arena a = {0};
    Sched s;
    int n = cuda_attention_keys(k, key);
    for (uint32_t i = 0; i < k->nins; i++)
        if (text_is_draw(&k->ins[i]))
            n = add_key(key, n, (int64_t)k->ins[i].al);
    if (k->body)
        return n;
    sched_make(&s, k, 0, &a);
    if (is_counted(&s))
        n = add_key(key, n, s.extent[s.vec]);
    arena_free(&a);
    return n;
}

int kernel_cuda_keys(const Kernel *k, int64_t *key)
{
    if (k->calls <= 1)
        return call_keys(k, key);
    return add_key(key, 0, kernel_cuda_launch(k).phase[0].grid / (unsigned)k->calls);
}

const char *cuda_phase_name(const char *name, int phase, char buf[CUDA_NAME])
{
    if (phase == 0)
        return name;
    snprintf(buf, CUDA_NAME, "%s_%d", name, phase);
    return buf;
}

int64_t cuda_workspace_at(const Launch *l, const CudaLaunch *of)
{
    return of->workspace ? align_up(l->workspace.at, CUDA_WORKSPACE_ALIGN) : -1;
}

bool cuda_workspace_fits(const Launch *l, const CudaLaunch *of)
{
    int64_t end = cuda_workspace_at(l, of) + of->workspace;
    return of->workspace == 0 || end <= l->workspace.at + l->workspace.bytes;
}

/* ---- pieces of all kinds ------------------------------------------------------------------------ */

/* Is there one such value per column? */
static bool is_column_value(const Sched *s, int i)
{
    return (s->dep[i] >> s->vec & 1) && !(s->dep[i] & s->red);
}

void cuda_name_of(const void *ctx, int v, char buf[NAME_LEN])
{
    const Printer *pr = ctx;
    if (pr->s->ins[v].kind == K_CONST)
        text_const(&pr->s->ins[v], buf);
    else if (pr->s->saved[v] && pr->s->level[v] < pr->pass)
        snprintf(buf, NAME_LEN, "r%d[c][e]", v);
    else if (pr->s->kind == SCHED_COLUMN && is_column_value(pr->s, v))
        snprintf(buf, NAME_LEN, "c%d[e]", v);
    else
        snprintf(buf, NAME_LEN, "v%d", v);
}

const char *cuda_reduction(const KInst *in)
{
    static const char *const op[] = {[K_SUM] = "sum", [K_MAX] = "max", [K_MIN] = "min", [K_PROD] = "prod"};
    return op[in->kind];
}

void cuda_shared_parts(Printer *pr, unsigned n)
{
    const Sched *s = pr->s;
    bool real = false, whole = false;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->live[i] && (k_reduces(&s->ins[i]) || s->ins[i].kind == K_COLUMN_SUM))
            *(s->ins[i].type == KT_REAL ? &real : &whole) = true;
    if (real)
        LINE("__shared__ REAL part[%u];", n);
    if (whole)
        LINE("__shared__ int64_t part_int[%u];", n);
}

/* ---- kernels ------------------------------------------------------------------------------------ */

static void operand_type(Printer *pr, const Kernel *k, int i, const bool *stored)
{
    const char *type = k->operand[i] == DT_NONE ? "void" : text_element(k->operand[i]);
    fprintf(pr->w.f, "%s%s *", stored[i] ? "" : "const ", type);
}

/* In a kernel of several calls: prints which call a block belongs to, and its operands and keys. */
static void take_operands(Printer *pr, const Kernel *k, const bool *stored)
{
    int nkey = call_keys(k, NULL), n = k->noperands + nkey;
    LINE("const unsigned block = blockIdx.x %% (unsigned)blocks, call = blockIdx.x / (unsigned)blocks;");
    for (int i = 0; i < k->noperands; i++) {
        fputs("    ", pr->w.f);
        operand_type(pr, k, i, stored);
        fprintf(pr->w.f, "p%d = (", i);
        operand_type(pr, k, i, stored);
        fprintf(pr->w.f, ")OPERAND(all, call * %d + %d);\n", n, i);
    }
    for (int i = 0; i < nkey; i++)
        LINE("const int64_t key%d = (int64_t)OPERAND(all, call * %d + %d);", i, n, k->noperands + i);
}

static void signature(Printer *pr, const Kernel *k, const bool *stored)
{
    char name[CUDA_NAME];
    if (pr->phase == 0 && !k->body) {
        Accesses n = vector_accesses(&pr->v, pr->s);
        LINE("/* along rows: %d accesses of 16 bytes, %d narrower */", n.wide, n.narrow);
    }
    unsigned threads = pr->counted ? FLAT_THREADS : pr->launch.block,
             together = PROCESSOR_THREADS * (pr->launch.shared ? 2 : 1), /* one loads, one computes */
             blocks = threads < together ? together / threads : 1;
    fprintf(pr->w.f, "GLOBAL void __launch_bounds__(%u, %u) %s(", threads, blocks,
            cuda_phase_name(pr->name, pr->phase, name));
    if (k->calls > 1)
        fprintf(pr->w.f, "OPERANDS(%d, all), int64_t blocks", CUDA_TABLE);
    for (int i = 0; i < k->noperands && k->calls <= 1; i++) {
        fputs(i ? ", " : "", pr->w.f);
        operand_type(pr, k, i, stored);
        fprintf(pr->w.f, "p%d", i);
    }
    fputs(pr->launches.workspace ? ", unsigned char *workspace" : "", pr->w.f);
    for (int i = 0; i < call_keys(k, NULL) && k->calls <= 1; i++)
        fprintf(pr->w.f, ", int64_t key%d", i);
    fputs(")\n", pr->w.f);
}

/* The type of indices: 32 bits where every position fits, as divisions are several times faster. */
static const char *index_type(const Sched *s)
{
    int64_t limit = INT32_MAX / 2;
    bool fits = s->nitem * s->nred * (s->red >> s->vec & 1 ? 1 : s->extent[s->vec]) < limit;
    for (uint32_t i = 0; i < s->n; i++) {
        int64_t span = s->ins[i].offset < 0 ? -s->ins[i].offset : s->ins[i].offset;
        for (int d = 0; d < s->rank; d++) {
            int64_t st = s->ins[i].stride[d];
            span += (st < 0 ? -st : st) * s->extent[d];
        }
        fits &= span < limit;
    }
    return fits ? "int" : "int64_t";
}

static void print_dag(Printer *pr, const Kernel *k)
{
    Arena a = {0};
    Sched s;
    analyse(pr, &s, k, &a);
    bool *stored = NEW(&a, bool, k->noperands + 1);
    for (uint32_t i = 0; i < s.n; i++)
        if (s.ins[i].kind == K_STORE)
            stored[s.ins[i].operand] = true;
    pr->w.index = index_type(&s);
    text_real_type(&pr->w, k);
    for (pr->phase = 0; pr->phase < pr->launches.n; pr->phase++) {
        pr->launch = pr->launches.phase[pr->phase];
        signature(pr, k, stored);
        text_block(&pr->w);
        if (k->calls > 1)
            take_operands(pr, k, stored);
        if (pr->counted)
            LINE("const %s n = (%s)key%d;", pr->w.index, pr->w.index, call_keys(k, NULL) - 1);
        (s.kind == SCHED_POINT ? point_kernel : s.kind == SCHED_ROW ? row_kernel : column_kernel)(pr);
        CLOSE();
    }
    arena_free(&a);
}

void item_kernel(Printer *pr, const Kernel *k, int64_t items, int threads)
{
    LINE("const int64_t item = (int64_t)blockIdx.x * %d + threadIdx.x;", threads);
    LINE("if (item >= %" PRId64 ")", items);
    LINE("    return;");
    text_body_call(&pr->w, k, pr->name, "p", "", "item");
}

static void print_items(Printer *pr, const Kernel *k)
{
    OPEN("for (int64_t item = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; item < %" PRId64
         "; item += (int64_t)gridDim.x * blockDim.x)",
         cuda_by_columns(k).items);
    text_body_call(&pr->w, k, pr->name, "p", "", "item");
    CLOSE();
}

static void print_body(Printer *pr, const Kernel *k)
{
    Arena a = {0};
    const Kernel by = cuda_by_columns(k);
    bool *stored = NEW(&a, bool, k->noperands + 1);
    const OwnText *own = own_text(k);
    int results = !own ? k->noperands : own->results ? own->results(k) : 1; /* bodies may write any */
    for (int i = 0; i < k->noperands; i++)
        stored[i] = i >= k->noperands - results;
    pr->launches = body_launch(k);
    text_real_type(&pr->w, k);
    if (!own)
        text_body(&pr->w, &by, pr->name);
    else if (own->prelude)
        own->prelude(pr, k);
    for (pr->phase = 0; pr->phase < pr->launches.n; pr->phase++) {
        pr->launch = pr->launches.phase[pr->phase];
        signature(pr, k, stored);
        text_block(&pr->w);
        (own ? own->print : print_items)(pr, k);
        CLOSE();
    }
    arena_free(&a);
}

void kernel_print_cuda(const Kernel *k, const char *name, FILE *f)
{
    Printer p = {.w = {.f = f, .index = "int64_t", .keys = true}, .name = name}, *pr = &p;
    LINE("\n/* kernel %s */", name);
    if (cuda_conv_has(k))
        cuda_conv_print(&pr->w, k, name);
    else if (cuda_attention_has(k))
        cuda_attention_print(&pr->w, k, name);
    else
        (k->body ? print_body : print_dag)(pr, k);
}

const char cuda_wgmma[] = "wgmma", cuda_small_tiles[] = "small_tiles";

bool kernel_cuda_has_wgmma(const Kernel *k) { return cuda_attention_has_wgmma(k) || cuda_conv_has_wgmma(k); }

bool kernel_cuda_wants_small_tiles(const Kernel *k, int64_t shared)
{
    CudaLaunch l = {0};
    bool wants = false;
    if (cuda_attention_has(k))
        l = cuda_attention_launch(k);
    for (int i = 0; i < l.n; i++)
        wants |= l.phase[i].shared > shared;
    return wants;
}

int64_t cuda_choose_texts(Launches *l, const uint32_t *first, const Plan *p, bool wgmma, int64_t shared)
{
    int64_t smaller = 0;
    for (uint32_t s = 0; s < p->nstep; s++)
        for (uint32_t i = first[s]; i < first[s + 1]; i++) {
            const Kernel **k = &l->kernel[l->launch[i].kernel];
            const char *choice = p->step[s].choice ? p->step[s].choice : "";
            if (l->launch[i].copy)
                continue;
            bool small = strcmp(choice, cuda_small_tiles) == 0;
            bool groups = wgmma && strcmp(choice, cuda_wgmma) == 0 && kernel_cuda_has_wgmma(*k);
            bool large = !small && !groups && kernel_cuda_wants_small_tiles(*k, shared);
            if (!small && !groups && !large)
                continue;
            Kernel *chosen = NEW(l->arena, Kernel, 1);
            *chosen = **k;
            chosen->wgmma = groups;
            chosen->small_tiles = small || large;
            *k = chosen;
            smaller += large;
        }
    return smaller;
}

static void prelude(FILE *f, bool gather, bool tensor, bool wgmma)
{
    text_prelude(f, prelude_cuda);
    text_prelude(f, prelude_philox);
    text_prelude(f, prelude_math);
    if (gather)
        text_prelude(f, prelude_gather);
    if (tensor)
        text_prelude(f, prelude_tensor);
    if (wgmma)
        text_prelude(f, prelude_wgmma);
}

void codegen_prelude_cuda(FILE *f) { prelude(f, true, true, true); }

/* Does the kernel's text call functions of prelude/tensor.h? */
static bool uses_tensor(const Kernel *k) { return cuda_conv_has(k) || cuda_attention_has(k); }

void codegen_shared_cuda(FILE *f, const Kernel *const *k, int n)
{
    bool gather = false, tensor = false, wgmma = false;
    for (int i = 0; i < n; i++) {
        gather |= cuda_is_gather_sum(k[i]) || cuda_is_scatter(k[i]);
        tensor |= uses_tensor(k[i]);
        wgmma |= k[i]->wgmma;
    }
    prelude(f, gather, tensor, wgmma);
}

int codegen_cuda(FILE *f, const Kernel *const *k, int n, int *func_of_kernel)
{
    codegen_shared_cuda(f, k, n);
    return text_distinct(f, k, n, func_of_kernel, kernel_print_cuda);
}
