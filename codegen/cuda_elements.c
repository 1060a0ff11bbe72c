/* cuda_elements.c -- gather_elements, its gradient and scatter_elements as CUDA C: the text of
 * ir/ops/gather.c with a few elements for each thread, so that a warp's are neighbours; and of what is
 * written along an axis a warp for each range of a line, which is in shared memory meanwhile
 * (prelude/gather.h). Other bodies whose items have a chunk of columns get an item for each column. */
#include "cuda_int.h"

/* ---- columns ------------------------------------------------------------------------------------ */

Kernel cuda_by_columns(const Kernel *k)
{
    /* Where a body's parameters have the number of columns, of chunks of them, and a chunk's columns, and of
     * indices that each item looks at (0: nowhere). */
    static const struct {
        const char *name;
        int columns, chunks, width, seen;
    } body[] = {{"gather_bwd", 0, 3, 6, 2},        {"gather_nd", 0, 3, 6, 0},
                {"resample", 0, 4, 7, 0},          {"scatter_nd", 0, 3, 9, 2},
                {"scatter_elements", 5, 7, 12, 0}, {"gather_elements_bwd", 5, 7, 12, 0}};
    Kernel by = *k;
    for (size_t i = 0; i < sizeof body / sizeof *body; i++)
        if (cuda_is_body(k, body[i].name) && k->items > 0) {
            by.items = k->items / k->p[body[i].chunks] * k->p[body[i].columns];
            if (body[i].seen)
                by.flops += 2 * (double)k->p[body[i].seen] * (double)(by.items - k->items);
            by.p[body[i].chunks] = k->p[body[i].columns];
            by.p[body[i].width] = 1;
        }
    if (cuda_is_body(k, "resample") && k->items > 0) { /* nor positions along the axis */
        by.items = by.items / k->p[6] * k->p[2];
        by.p[5] = 1;
        by.p[6] = k->p[2];
    }
    return by;
}

enum { THREADS = 256, PER_THREAD = 4, WARPS = 4, MOST_BYTES = 32 << 10 /* bytes of a block's rows */ };

/* ---- elements by index -------------------------------------------------------------------------- */

bool cuda_is_elements(const Kernel *k) { return k->items > 0 && cuda_is_body(k, "gather_elements"); }

/* The same kernel with PER_THREAD elements as an item. */
static Kernel by_elements(const Kernel *k)
{
    Kernel by = *k;
    by.p[7] = PER_THREAD;
    by.p[24] = ceil_div(k->p[1], PER_THREAD);
    by.items = k->items * by.p[24];
    return by;
}

CudaLaunch elements_launch(const Kernel *k)
{
    return one_phase(blocks_for(by_elements(k).items, THREADS), THREADS);
}

void elements_prelude(Printer *pr, const Kernel *k)
{
    Kernel by = by_elements(k);
    text_body(&pr->w, &by, pr->name);
}

void elements_kernel(Printer *pr, const Kernel *k) { item_kernel(pr, k, by_elements(k).items, THREADS); }

/* ---- writing by index --------------------------------------------------------------------------- */

/* Which operand is what is written to (-1: zeros), the indices, the updates and the result. */
typedef struct {
    int x, index, updates, result;
} ScatterOperands;

static ScatterOperands scatter_operands(const Kernel *k)
{
    return cuda_is_body(k, "scatter_elements") ? (ScatterOperands){0, 1, 2, 3}
                                               : (ScatterOperands){-1, 1, 0, 2};
}

static DType scatter_type(const Kernel *k) { return k->operand[scatter_operands(k).result]; }

/* The type that elements have in shared memory. */
static DType held_type(const Kernel *k)
{
    return dtype_is_float(scatter_type(k)) ? dtype_sum(scatter_type(k)) : DT_I64;
}

/* How a warp has a range of a line's elements in shared memory; parameters as in scatter.c. */
typedef struct {
    int64_t lines, own, ranges; /* own: elements of a range */
} Ranges;

static Ranges ranges_of(const Kernel *k)
{
    enum { LEAST_OWN = 64, WANTED = 2 * BLOCKS * WARPS };
    const int64_t most = MOST_BYTES / WARPS / dtype_size[held_type(k)];
    Ranges r = {.lines = cuda_by_columns(k).items};
    const int64_t wanted = ceil_div(k->p[1], r.lines < WANTED ? WANTED / r.lines : 1);
    r.own = wanted < LEAST_OWN ? LEAST_OWN : wanted > most ? most : wanted;
    r.own = k->p[1] < r.own ? k->p[1] : r.own;
    r.ranges = ceil_div(k->p[1], r.own);
    return r;
}

/* Many lines side by side have a thread each, whose elements lie beside its neighbour's. */
bool cuda_is_scatter(const Kernel *k)
{
    enum { MANY_LINES = 32768 };
    if ((!cuda_is_body(k, "scatter_elements") && !cuda_is_body(k, "gather_elements_bwd")) || k->items == 0 ||
        k->p[1] == 0)
        return false;
    const Ranges r = ranges_of(k);
    return r.lines < INT32_MAX / r.ranges && k->p[2] < INT32_MAX / 2 &&
           (k->p[5] == 1 || r.lines < MANY_LINES);
}

CudaLaunch scatter_launch(const Kernel *k)
{
    const Ranges r = ranges_of(k);
    return one_phase(blocks_for(r.lines * r.ranges, WARPS), WARPS * WARP);
}

/* Each range looks at all indices of its line. */
double scatter_flops(const Kernel *k)
{
    const Ranges r = ranges_of(k);
    return 2.0 * (double)r.lines * (double)k->p[1] +
           5.0 * (double)r.lines * (double)r.ranges * (double)k->p[2];
}

/* Prints where a line begins in the result (base) and in the updates (from), if any are written (any). */
static void print_line(Printer *pr, const Kernel *k)
{
    LINE("int64_t rest = line / %" PRId64 ", base = line %% %" PRId64 ", from = base;", k->p[5], k->p[5]);
    LINE("bool any = base < %" PRId64 ";", k->p[6]);
    for (int64_t d = k->p[0]; d-- > 0;) {
        LINE("base += rest %% %" PRId64 " * %" PRId64 ";", k->p[16 + d], k->p[32 + d]);
        LINE("from += rest %% %" PRId64 " * %" PRId64 ";", k->p[16 + d], k->p[40 + d]);
        LINE("any = any && rest %% %" PRId64 " < %" PRId64 ";", k->p[16 + d], k->p[24 + d]);
        LINE("rest /= %" PRId64 ";", k->p[16 + d]);
    }
}

/* scatter_elements rounds each sum to its result's type, gather_elements' gradient sums up in f32. */
void scatter_prelude(Printer *pr, const Kernel *k)
{
    const Writer *w = &pr->w;
    const DType type = scatter_type(k);
    const char *name = dtype_name[type];
    cuda_define_join(w, "SCATTER_BOTH(a, b)", k->p[9], type);
    if (dtype_is_half(type) && cuda_is_body(k, "scatter_elements"))
        text_define(w, "SCATTER_JOIN(a, b)", "%s_load(%s_store(SCATTER_BOTH(a, b)))", name, name);
    else
        text_define(w, "SCATTER_JOIN(a, b)", "SCATTER_BOTH(a, b)");
    fprintf(w->f, "SCATTER_LANES(%s, %s, SCATTER_JOIN)\n", pr->name, text_element(held_type(k)));
}

void scatter_kernel(Printer *pr, const Kernel *k)
{
    const char *type = text_element(held_type(k));
    enum { FLIGHT = 4 };
    const int64_t extent = k->p[1], added = k->p[2];
    const ScatterOperands of = scatter_operands(k);
    const Ranges r = ranges_of(k);
    LINE("__shared__ %s part[%d][%" PRId64 "];", type, WARPS, r.own);
    LINE("const int lane = (int)threadIdx.x %% 32;");
    LINE("const int64_t warp = (int64_t)blockIdx.x * %d + threadIdx.x / 32;", WARPS);
    LINE("const int64_t line = warp %% %" PRId64 ", first = warp / %" PRId64 " * %" PRId64 ";", r.lines,
         r.lines, r.own);
    LINE("const int64_t left = %" PRId64 " - first, n = left < %" PRId64 " ? left : %" PRId64 ";", extent,
         r.own, r.own);
    LINE("%s *const own = part[threadIdx.x / 32];", type);
    LINE("if (left <= 0)");
    LINE("    return;");
    print_line(pr, k);
    LINE("base += first * %" PRId64 ";", k->p[3]);
    LINE("for (int c = lane; c < n; c += 32)");
    if (of.x >= 0)
        LINE("    own[c] = LD_%s(p%d, base + c * %" PRId64 ");", dtype_name[k->operand[of.x]], of.x, k->p[3]);
    else
        LINE("    own[c] = 0;");
    LINE("__syncwarp();");
    OPEN("for (int c = lane; any && c - lane < %" PRId64 "; c += 32 * %d)", added, FLIGHT);
    LINE("int to[%d];", FLIGHT);
    LINE("%s v[%d];", type, FLIGHT);
    OPEN("UNROLL for (int f = 0; f < %d; f++)", FLIGHT);
    LINE("const int64_t at = (c + 32 * f) * INT64_C(%" PRId64 ");", k->p[4]);
    LINE("int64_t row = c + 32 * f < %" PRId64 " ? LD_%s(p%d, from %% %" PRId64 " + at) : -%" PRId64 " - 1;",
         added, dtype_name[k->operand[of.index]], of.index, k->p[10], extent);
    LINE("row += (row < 0 ? %" PRId64 " : 0) - first;", extent);
    LINE("to[f] = row >= 0 && row < n ? (int)row : -1;");
    LINE("v[f] = to[f] >= 0 ? LD_%s(p%d, from + at) : 0;", dtype_name[k->operand[of.updates]], of.updates);
    CLOSE();
    OPEN("UNROLL for (int f = 0; f < %d; f++)", FLIGHT);
    LINE("if (__ballot_sync(0xffffffffu, to[f] >= 0) == 0)");
    LINE("    continue;");
    LINE("%s_scatter(own, to[f], v[f]);", pr->name);
    LINE("__syncwarp();");
    CLOSE();
    CLOSE();
    LINE("for (int c = lane; c < n; c += 32)");
    LINE("    ST_%s(p%d, base + c * %" PRId64 ", own[c]);", dtype_name[k->operand[of.result]], of.result,
         k->p[3]);
}
