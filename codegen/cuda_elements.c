/* cuda_elements.c -- gather_elements, its gradient and sums by scatter_elements as CUDA C: the text of
 * ir/ops/gather.c with a few elements for each thread, so that a warp's are neighbours; and of sums along the
 * last dimension a warp for each row, which is in shared memory meanwhile (prelude/gather.h adds to it).
 * Other bodies whose items have a chunk of columns get an item for each column. */
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

/* ---- sums by index ------------------------------------------------------------------------------ */

/* Which operand is what is added to (-1: zeros), the indices, the updates and the result. */
typedef struct {
    int x, index, updates, sums;
} SumOperands;

static SumOperands sum_operands(const Kernel *k)
{
    return cuda_is_body(k, "scatter_elements") ? (SumOperands){0, 1, 2, 3} : (SumOperands){-1, 1, 0, 2};
}

/* Parameters as in scatter.c: rows have p[1] elements, and p[2] elements are added to each. */
bool cuda_is_scatter_sum(const Kernel *k)
{
    bool sums = cuda_is_body(k, "gather_elements_bwd") ||
                (cuda_is_body(k, "scatter_elements") && k->p[9] == SCATTER_ADD && k->operand[0] == DT_F32);
    return sums && k->items > 0 && k->p[3] == 1 && k->p[4] == 1 &&
           dtype_sum(k->operand[sum_operands(k).sums]) == DT_F32 && k->p[1] > 0 &&
           k->p[1] * WARPS * dtype_size[DT_F32] <= MOST_BYTES;
}

CudaLaunch scatter_sum_launch(const Kernel *k)
{
    return one_phase(blocks_for(k->items, WARPS), WARPS * WARP);
}

/* Prints where a row begins in the result (base) and in what is added to it (from), if anything is (any). */
static void print_row(Printer *pr, const Kernel *k)
{
    LINE("int64_t rest = row, base = 0, from = 0;");
    LINE("bool any = true;");
    for (int64_t d = k->p[0]; d-- > 0;) {
        LINE("base += rest %% %" PRId64 " * %" PRId64 ";", k->p[16 + d], k->p[32 + d]);
        LINE("from += rest %% %" PRId64 " * %" PRId64 ";", k->p[16 + d], k->p[40 + d]);
        LINE("any = any && rest %% %" PRId64 " < %" PRId64 ";", k->p[16 + d], k->p[24 + d]);
        LINE("rest /= %" PRId64 ";", k->p[16 + d]);
    }
}

void scatter_sum_kernel(Printer *pr, const Kernel *k)
{
    const int64_t extent = k->p[1], added = k->p[2];
    const SumOperands of = sum_operands(k);
    LINE("__shared__ float sums[%d][%" PRId64 "];", WARPS, extent);
    LINE("const int lane = (int)threadIdx.x %% 32;");
    LINE("const int64_t row = (int64_t)blockIdx.x * %d + threadIdx.x / 32;", WARPS);
    LINE("float *const sum = sums[threadIdx.x / 32];");
    LINE("if (row >= %" PRId64 ")", k->items);
    LINE("    return;");
    print_row(pr, k);
    LINE("for (int c = lane; c < %" PRId64 "; c += 32)", extent);
    if (of.x >= 0)
        LINE("    sum[c] = p%d[base + c];", of.x);
    else
        LINE("    sum[c] = 0;");
    LINE("__syncwarp();");
    OPEN("for (int c = lane; any && c - lane < %" PRId64 "; c += 32)", added);
    LINE("int64_t to = c < %" PRId64 " ? LD_%s(p%d, from %% %" PRId64 " + c) : -%" PRId64 " - 1;", added,
         dtype_name[k->operand[of.index]], of.index, k->p[10], extent);
    LINE("to += to < 0 ? %" PRId64 " : 0;", extent);
    LINE("const bool adds = to >= 0 && to < %" PRId64 ";", extent);
    LINE("scatter_lanes(sum, adds ? (int)to : -1, adds ? LD_%s(p%d, from + c) : 0.f);",
         dtype_name[k->operand[of.updates]], of.updates);
    LINE("__syncwarp();");
    CLOSE();
    LINE("for (int c = lane; c < %" PRId64 "; c += 32)", extent);
    LINE("    ST_%s(p%d, base + c, sum[c]);", dtype_name[k->operand[of.sums]], of.sums);
}
