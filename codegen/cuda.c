/* cuda.c -- kernel descriptions printed as CUDA C.
 *
 * The same loop analysis as for C (schedule.h), spread over threads:
 *
 *   pointwise   a grid-stride loop over the flat space; where an operand is transposed, one block per
 *               32 x 32 tile, which the operand crosses in shared memory
 *   row         one block per row: threads stride along the reduced points, then a fixed tree
 *   column      one block per 32 columns: 32 x ROWS threads, rows stride along the reduced points,
 *               then a fixed tree over the rows
 *   body        a grid-stride loop over the items
 *
 * No atomics, and launch shapes depend on the kernel alone, so results are reproducible.  What
 * does not change along the reduced dimensions is computed once per thread and level. */
#include "codegen.h"
#include "text.h"
#include <inttypes.h>
#include <string.h>

enum { FLAT_THREADS = 256, WARP = 32, TILE = 32, MAX_THREADS = 1024, MAX_BLOCKS = 65536 };

typedef struct {
    Writer w;
    const char *name;
    const Sched *s;
    CudaPhase launch;
    bool *mark;
} Printer;

#define LINE(...) text_line(&pr->w, __VA_ARGS__)
#define OPEN(...) text_open(&pr->w, __VA_ARGS__)
#define CLOSE() text_close(&pr->w)

/* ---- launch shapes ----------------------------------------------------------------------- */

static unsigned blocks_for(int64_t work, int64_t per_block)
{
    int64_t n = (work + per_block - 1) / per_block;
    return (unsigned)(n < 1 ? 1 : n);
}

/* Threads along the reduced points: enough to have several each, at least a warp. */
static unsigned threads_for(int64_t points, unsigned most)
{
    unsigned t = WARP;
    while (t < most && (int64_t)t * 4 < points)
        t *= 2;
    return t;
}

static CudaPhase flat_launch(int64_t work)
{
    unsigned n = blocks_for(work, FLAT_THREADS);
    return (CudaPhase){n < MAX_BLOCKS ? n : MAX_BLOCKS, FLAT_THREADS, 0};
}

static int64_t tiles_along(const Sched *s, int d) { return (s->extent[d] + TILE - 1) / TILE; }

static int64_t tile_items(const Sched *s)
{
    if (s->nitem * s->extent[s->vec] == 0)
        return 0;
    return s->nitem / s->extent[s->tile] * tiles_along(s, s->tile) * tiles_along(s, s->vec);
}

static CudaPhase sched_launch(const Sched *s)
{
    int64_t n = s->extent[s->vec];
    if (s->tile >= 0)
        return (CudaPhase){blocks_for(tile_items(s), 1), FLAT_THREADS, 0};
    if (s->kind == SCHED_POINT)
        return flat_launch(s->nitem * n);
    if (s->kind == SCHED_ROW)
        return (CudaPhase){blocks_for(s->nitem, 1), threads_for(s->nred, MAX_THREADS), 0};
    unsigned rows = threads_for(s->nred, MAX_THREADS) / WARP;
    rows = rows < 4 ? 4 : rows;
    return (CudaPhase){blocks_for(s->nitem * ((n + WARP - 1) / WARP), 1), rows * WARP, 0};
}

CudaLaunch kernel_cuda_launch(const Kernel *k)
{
    Arena a = {0};
    Sched s;
    CudaLaunch l = {.n = 1};
    if (k->body) {
        l.phase[0] = flat_launch(k->items);
        return l;
    }
    sched_make(&s, k, 0, &a);
    l.phase[0] = sched_launch(&s);
    arena_free(&a);
    return l;
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

/* ---- values ------------------------------------------------------------------------------- */

static void name_of(const void *ctx, int v, char buf[NAME_LEN])
{
    const Printer *pr = ctx;
    if (pr->s->ins[v].kind == K_CONST)
        text_const(&pr->s->ins[v], buf);
    else
        snprintf(buf, NAME_LEN, "v%d", v);
}

static bool is_plain(const KInst *in)
{
    return in->kind != K_STORE && !sched_is_reduce(in);
}

static void value(Printer *pr, uint32_t i)
{
    const Sched *s = pr->s;
    if (sched_is_staged(s, i))
        LINE("const %s v%u = LD_%s(u%u[i%d - c0], i%d - t0);", text_type(&s->ins[i]), i,
             dtype_name[s->k->operand[s->ins[i].operand]], i, s->vec, s->tile);
    else
        text_value(&pr->w, s, (int)i, name_of, pr);
}

/* What a level makes known and no reduced dimension changes. */
static void free_values(Printer *pr, int level)
{
    const Sched *s = pr->s;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->live[i] && is_plain(&s->ins[i]) && !(s->dep[i] & s->red) && s->level[i] == level)
            value(pr, i);
}

static void stores(Printer *pr, bool reduced)
{
    const Sched *s = pr->s;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->ins[i].kind == K_STORE && (s->red && !(s->dep[i] & s->red)) == reduced)
            text_store(&pr->w, s, (int)i, name_of, pr);
}

static bool has_reduced_stores(const Sched *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (s->ins[i].kind == K_STORE && s->red && !(s->dep[i] & s->red))
            return true;
    return false;
}

static bool reduces_at(const Sched *s, uint32_t i, int pass)
{
    return s->live[i] && sched_is_reduce(&s->ins[i]) && s->level[i] == pass + 1;
}

/* ---- passes --------------------------------------------------------------------------------- */

static void pass_loop(Printer *pr, int pass)
{
    const Sched *s = pr->s;
    bool column = s->kind == SCHED_COLUMN;
    char acc[NAME_LEN], v[NAME_LEN];
    memset(pr->mark, 0, s->n * sizeof *pr->mark);
    sched_vector_set(s, pass, pr->mark);
    OPEN("for (%s j = %s; j < %" PRId64 "; j += %s)", pr->w.index,
         column ? "threadIdx.x / 32" : "threadIdx.x", s->nred,
         column ? "blockDim.x / 32" : "blockDim.x");
    text_unpack(&pr->w, s, "j", s->red);
    for (uint32_t i = 0; i < s->n; i++)
        if (pr->mark[i] && is_plain(&s->ins[i]) && (s->dep[i] & s->red))
            text_value(&pr->w, s, (int)i, name_of, pr);
    for (uint32_t i = 0; i < s->n; i++) {
        if (!reduces_at(s, i, pass))
            continue;
        snprintf(acc, sizeof acc, "a%u", i);
        name_of(pr, s->ins[i].arg[0], v);
        text_accumulate(&pr->w, &s->ins[i], acc, v);
    }
    if (pass == s->last && column)
        LINE("if (column < %" PRId64 ") {", s->extent[s->vec]);
    if (pass == s->last)
        stores(pr, false);
    if (pass == s->last && column)
        LINE("}");
    CLOSE();
}

static void run_pass(Printer *pr, int pass)
{
    static const char *const op[] = {[K_SUM] = "sum", [K_MAX] = "max", [K_MIN] = "min",
                                     [K_PROD] = "prod"};
    const Sched *s = pr->s;
    for (uint32_t i = 0; i < s->n; i++)
        if (reduces_at(s, i, pass))
            LINE("%s a%u = %s;", text_type(&s->ins[i]), i, text_start(&s->ins[i]));
    pass_loop(pr, pass);
    for (uint32_t i = 0; i < s->n; i++)
        if (reduces_at(s, i, pass))
            LINE("const %s v%u = JOIN_THREADS(%s, %s, %s, a%u, %s);", text_type(&s->ins[i]), i,
                 s->kind == SCHED_ROW ? "block" : "column", op[s->ins[i].kind],
                 text_type(&s->ins[i]), i, s->ins[i].type == KT_REAL ? "part" : "part_int");
}

static void shared_memory(Printer *pr)
{
    const Sched *s = pr->s;
    unsigned n = s->kind == SCHED_ROW ? pr->launch.block / WARP : pr->launch.block;
    bool real = false, whole = false;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->live[i] && sched_is_reduce(&s->ins[i]))
            *(s->ins[i].type == KT_REAL ? &real : &whole) = true;
    if (real)
        LINE("__shared__ REAL part[%u];", n);
    if (whole)
        LINE("__shared__ int64_t part_int[%u];", n);
}

/* Rows and columns: an item per block, every pass over the reduced points. */
static void reduction_kernel(Printer *pr)
{
    const Sched *s = pr->s;
    uint32_t parallel = ((1u << s->rank) - 1) & ~s->red;
    int64_t n = s->extent[s->vec], blocks = (n + WARP - 1) / WARP;
    shared_memory(pr);
    if (s->nitem == 0 || n == 0)
        LINE("return;");
    if (s->kind == SCHED_ROW) {
        LINE("const %s item = blockIdx.x;", pr->w.index);
        text_unpack(&pr->w, s, "item", parallel);
    } else {
        LINE("const %s item = blockIdx.x / %" PRId64 ";", pr->w.index, blocks ? blocks : 1);
        LINE("const %s column = blockIdx.x %% %" PRId64 " * 32 + threadIdx.x %% 32;", pr->w.index,
             blocks ? blocks : 1);
        LINE("const %s i%d = column < %" PRId64 " ? column : %" PRId64 ";", pr->w.index, s->vec, n,
             n - 1);
        text_unpack(&pr->w, s, "item", parallel & ~(1u << s->vec));
    }
    free_values(pr, 0);
    for (int pass = 0; pass <= s->last; pass++) {
        run_pass(pr, pass);
        free_values(pr, pass + 1);
    }
    if (!has_reduced_stores(s))
        return;
    if (s->kind == SCHED_ROW)
        OPEN("if (threadIdx.x == 0)");
    else
        OPEN("if (threadIdx.x < 32 && column < %" PRId64 ")", n);
    stores(pr, true);
    CLOSE();
}

static void open_flat(Printer *pr, const char *index, int64_t n)
{
    OPEN("for (%s %s = (%s)blockIdx.x * blockDim.x + threadIdx.x; %s < %" PRId64
         "; %s += (%s)gridDim.x * blockDim.x)", pr->w.index, index, pr->w.index, index, n, index,
         pr->w.index);
}

static void pointwise_kernel(Printer *pr)
{
    const Sched *s = pr->s;
    open_flat(pr, "at", s->nitem * s->extent[s->vec]);
    text_unpack(&pr->w, s, "at", (1u << s->rank) - 1);
    free_values(pr, 0);
    stores(pr, false);
    CLOSE();
}

/* Loop of a tile: rows along dimension d, threads of a warp along dimension w. */
static void open_tile(Printer *pr, int d, const char *d0, int w, const char *w0)
{
    const Sched *s = pr->s;
    OPEN("for (%s r = threadIdx.x / 32; r < %d; r += blockDim.x / 32)", pr->w.index, TILE);
    LINE("const %s i%d = %s + r, i%d = %s + threadIdx.x %% 32;", pr->w.index, d, d0, w, w0);
    LINE("if (i%d >= %" PRId64 " || i%d >= %" PRId64 ")", d, s->extent[d], w, s->extent[w]);
    LINE("    continue;");
}

/* Staged operands are read along their own rows, and used along those of the result. */
static void tile_kernel(Printer *pr)
{
    const Sched *s = pr->s;
    int64_t across = tiles_along(s, s->vec), down = tiles_along(s, s->tile);
    char at[512];
    for (uint32_t i = 0; i < s->n; i++)
        if (sched_is_staged(s, i))
            LINE("__shared__ %s u%u[%d][%d];", text_element(s->k->operand[s->ins[i].operand]), i,
                 TILE, TILE + 1);
    if (tile_items(s) == 0) {
        LINE("return;");
        return;
    }
    LINE("const %s c0 = blockIdx.x %% %" PRId64 " * %d;", pr->w.index, across, TILE);
    LINE("const %s t0 = blockIdx.x / %" PRId64 " %% %" PRId64 " * %d;", pr->w.index, across, down,
         TILE);
    LINE("const %s item = blockIdx.x / %" PRId64 ";", pr->w.index, across * down);
    text_unpack(&pr->w, s, "item", ((1u << s->rank) - 1) & ~(1u << s->vec) & ~(1u << s->tile));
    open_tile(pr, s->vec, "c0", s->tile, "t0");
    for (uint32_t i = 0; i < s->n; i++) {
        if (!sched_is_staged(s, i))
            continue;
        text_address(s, &s->ins[i], at, sizeof at);
        LINE("u%u[r][threadIdx.x %% 32] = p%d[%s];", i, s->ins[i].operand, at);
    }
    CLOSE();
    LINE("__syncthreads();");
    open_tile(pr, s->tile, "t0", s->vec, "c0");
    free_values(pr, 0);
    stores(pr, false);
    CLOSE();
}

/* ---- kernels ---------------------------------------------------------------------------------- */

static void signature(Printer *pr, const Kernel *k, const bool *stored)
{
    fprintf(pr->w.f, "GLOBAL void __launch_bounds__(%u) %s(", pr->launch.block, pr->name);
    for (int i = 0; i < k->noperands; i++) {
        const char *type = k->operand[i] == DT_NONE ? "void" : text_element(k->operand[i]);
        fprintf(pr->w.f, "%s%s%s *p%d", i ? ", " : "", stored[i] ? "" : "const ", type, i);
    }
    fputs(")\n", pr->w.f);
}

/* 32-bit indices where every position fits: divisions are several times faster. */
static const char *index_type(const Sched *s)
{
    int64_t limit = INT32_MAX / 2;
    bool fits = s->nitem * s->nred * s->extent[s->vec] < limit;
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
    sched_make(&s, k, 0, &a);
    bool *stored = NEW(&a, bool, k->noperands + 1);
    for (uint32_t i = 0; i < s.n; i++)
        if (s.ins[i].kind == K_STORE)
            stored[s.ins[i].operand] = true;
    pr->s = &s;
    pr->mark = NEW(&a, bool, s.n + 1);
    pr->launch = sched_launch(&s);
    pr->w.index = index_type(&s);
    LINE("#undef REAL");
    LINE("#define REAL %s", s.f64 ? "double" : "float");
    signature(pr, k, stored);
    text_block(&pr->w);
    if (s.tile >= 0)
        tile_kernel(pr);
    else if (s.kind == SCHED_POINT)
        pointwise_kernel(pr);
    else
        reduction_kernel(pr);
    CLOSE();
    arena_free(&a);
}

static void print_body(Printer *pr, const Kernel *k)
{
    Arena a = {0};
    bool *stored = NEW(&a, bool, k->noperands + 1), f64 = false;
    for (int i = 0; i < k->noperands; i++) {
        f64 |= k->operand[i] == DT_F64;
        stored[i] = true; /* the text decides what it writes */
    }
    pr->launch = flat_launch(k->items);
    pr->w.index = "int64_t";
    LINE("#undef REAL");
    LINE("#define REAL %s", f64 ? "double" : "float");
    text_body(&pr->w, k, pr->name, "FN");
    signature(pr, k, stored);
    text_block(&pr->w);
    open_flat(pr, "item", k->items);
    text_body_call(&pr->w, k, pr->name, "p", "", "item");
    CLOSE();
    CLOSE();
    arena_free(&a);
}

void kernel_print_cuda(const Kernel *k, const char *name, FILE *f)
{
    Printer p = {.w = {.f = f, .index = "int64_t"}, .name = name}, *pr = &p;
    LINE("\n/* kernel %s */", name);
    if (k->body)
        print_body(pr, k);
    else
        print_dag(pr, k);
}

static void prelude(FILE *f, bool tensor)
{
    text_prelude(f, prelude_cuda);
    text_prelude(f, prelude_philox);
    text_prelude(f, prelude_math);
    if (tensor)
        text_prelude(f, prelude_tensor);
}

void codegen_prelude_cuda(FILE *f) { prelude(f, true); }

/* Does its text call functions of prelude/tensor.h? */
static bool uses_tensor(const Kernel *k)
{
    (void)k;
    return false;
}

void codegen_shared_cuda(FILE *f, const Kernel *const *k, int n)
{
    bool tensor = false;
    for (int i = 0; i < n; i++)
        tensor |= uses_tensor(k[i]);
    prelude(f, tensor);
}

int codegen_cuda(FILE *f, const Kernel *const *k, int n, int *func_of_kernel)
{
    codegen_shared_cuda(f, k, n);
    return text_distinct(f, k, n, func_of_kernel, kernel_print_cuda);
}
