/* cuda_topk.c -- CUDA C for topk (prelude/topk.h): as many threads for a row as it has work for; where many
 * elements are asked for, blocks that sort the rows. */
#include "cuda_int.h"

enum { PER_THREAD = 4, LONG_ROW = 8192, MANY = 32, HELD_BYTES = 32 << 10 };

/* Threads of a row; parameters as in ir/ops/scan.c. */
static int64_t span_of(const Kernel *k)
{
    return next_power_of_2(ceil_div(k->p[0], PER_THREAD), k->p[0] >= LONG_ROW ? MAX_THREADS : FLAT_THREADS);
}

/* A round's work is what a thread does to find its next element, and the threads to find the first of theirs.
 */
static double rounds_flops(const Kernel *k)
{
    enum { LOOK = 4, JOIN = 20 };
    return (double)k->items * (double)(k->p[2] + 1) * (double)(LOOK * k->p[0] + JOIN * span_of(k));
}

/* Half of the elements, and what is missing to a power of two, are compared in each step. */
static double sort_flops(const Kernel *k)
{
    enum { EXCHANGE = 8 };
    int64_t pairs = 1, merges = 1;
    for (; 2 * pairs < k->p[0]; pairs *= 2)
        merges++;
    return (double)k->items * (double)(merges * (merges + 1) / 2) * (double)(EXCHANGE * pairs);
}

static bool sorts(const Kernel *k) { return k->p[2] >= MANY && sort_flops(k) < rounds_flops(k); }

static unsigned block_of(const Kernel *k)
{
    const int64_t span = span_of(k);
    if (sorts(k))
        return span < WARP ? WARP : (unsigned)span;
    return span > FLAT_THREADS ? MAX_THREADS : FLAT_THREADS;
}

bool cuda_is_topk(const Kernel *k)
{
    return cuda_is_body(k, "topk") && k->items > 0 && k->items < INT32_MAX &&
           k->p[0] < INT32_MAX / 2 - MAX_THREADS;
}

static DType value_dtype(const Kernel *k) { return k->p[4] ? DT_I64 : dtype_sum(k->operand[0]); }

/* Elements of a row that are sorted in shared memory: their values and places. */
static int64_t held(const Kernel *k)
{
    return HELD_BYTES / (dtype_size[value_dtype(k)] > 4 ? 16 : 8);
}

/* Elements that all blocks have in the workspace. */
static int64_t kept(const Kernel *k)
{
    return k->p[0] > held(k) ? k->p[0] * (k->items < BLOCKS ? k->items : BLOCKS) : 0;
}

static int64_t kept_values(const Kernel *k)
{
    return align_up(kept(k) * dtype_size[value_dtype(k)], CUDA_WORKSPACE_ALIGN);
}

CudaLaunch topk_launch(const Kernel *k)
{
    const unsigned threads = block_of(k);
    if (!sorts(k))
        return one_phase(blocks_for(k->items * span_of(k), threads), threads);
    CudaLaunch l = one_phase((unsigned)(kept(k) ? kept(k) / k->p[0] : k->items), threads);
    l.workspace = kept_values(k) + kept(k) * dtype_size[DT_I32];
    return l;
}

double topk_flops(const Kernel *k) { return sorts(k) ? sort_flops(k) : rounds_flops(k); }

static const char *value_type(const Kernel *k) { return text_element(value_dtype(k)); }

void topk_prelude(Printer *pr, const Kernel *k)
{
    const Writer *w = &pr->w;
    text_parameters(w, k);
    text_define(w, "TOPK_T", "%s", value_type(k));
    text_define(w, "TOPK_ELEMENT", "%s", text_element(k->operand[0]));
    text_define(w, "TOPK_LOAD", "LD_%s", dtype_name[k->operand[0]]);
    text_int(w, "TOPK_SPAN", span_of(k));
    text_int(w, "TOPK_THREADS", block_of(k));
    text_int(w, "TOPK_HELD", held(k));
    text_integer(w, "TOPK_ROWS", k->items);
    text_define(w, "AT(of)", "%s_##of", pr->name);
    text_prelude(w->f, prelude_topk);
}

static void print_shared(Printer *pr, const Kernel *k, int64_t n)
{
    LINE("__shared__ %s value[%" PRId64 "];", value_type(k), n);
    LINE("__shared__ int place[%" PRId64 "];", n);
}

void topk_kernel(Printer *pr, const Kernel *k)
{
    const char *type = value_type(k);
    if (!sorts(k)) {
        print_shared(pr, k, 2 * block_of(k) / WARP);
        LINE("%s_rows(p0, p1, value, place);", pr->name);
        return;
    }
    print_shared(pr, k, held(k) < k->p[0] ? held(k) : k->p[0]);
    if (!kept(k)) {
        LINE("%s_sorted(p0, p1, value, place, value, place);", pr->name);
        return;
    }
    LINE("%s *const all = (%s *)workspace + (int64_t)blockIdx.x * %" PRId64 ";", type, type, k->p[0]);
    LINE("int *const places = (int *)(workspace + %" PRId64 ") + (int64_t)blockIdx.x * %" PRId64 ";",
         kept_values(k), k->p[0]);
    LINE("%s_sorted(p0, p1, value, place, all, places);", pr->name);
}
