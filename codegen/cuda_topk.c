/* cuda_topk.c -- CUDA C for topk (prelude/topk.h): as many threads for a row as it has work for. */
#include "cuda_int.h"

enum { PER_THREAD = 4, LONG_ROW = 8192 };

/* Threads of a row; parameters as in ir/ops/scan.c. */
static int64_t span_of(const Kernel *k)
{
    return next_power_of_2(ceil_div(k->p[0], PER_THREAD), k->p[0] >= LONG_ROW ? MAX_THREADS : FLAT_THREADS);
}

static unsigned block_of(const Kernel *k) { return span_of(k) > FLAT_THREADS ? MAX_THREADS : FLAT_THREADS; }

bool cuda_is_topk(const Kernel *k)
{
    return cuda_is_body(k, "topk") && k->items > 0 && k->items < INT32_MAX &&
           k->p[0] < INT32_MAX - MAX_THREADS;
}

CudaLaunch topk_launch(const Kernel *k)
{
    const unsigned threads = block_of(k);
    return one_phase(blocks_for(k->items * span_of(k), threads), threads);
}

/* A round's work is what a thread does to find its next element, and the threads to find the first of theirs.
 */
double topk_flops(const Kernel *k)
{
    enum { LOOK = 4, JOIN = 20 };
    return (double)k->items * (double)(k->p[2] + 1) * (double)(LOOK * k->p[0] + JOIN * span_of(k));
}

static const char *value_type(const Kernel *k)
{
    return k->p[4] ? "int64_t" : text_element(dtype_sum(k->operand[0]));
}

void topk_prelude(Printer *pr, const Kernel *k)
{
    const Writer *w = &pr->w;
    text_parameters(w, k);
    text_define(w, "TOPK_T", "%s", value_type(k));
    text_define(w, "TOPK_ELEMENT", "%s", text_element(k->operand[0]));
    text_define(w, "TOPK_LOAD", "LD_%s", dtype_name[k->operand[0]]);
    text_int(w, "TOPK_SPAN", span_of(k));
    text_int(w, "TOPK_THREADS", block_of(k));
    text_integer(w, "TOPK_ROWS", k->items);
    text_define(w, "AT(of)", "%s_##of", pr->name);
    text_prelude(w->f, prelude_topk);
}

void topk_kernel(Printer *pr, const Kernel *k)
{
    LINE("__shared__ %s value[%u];", value_type(k), 2 * block_of(k) / WARP);
    LINE("__shared__ int place[%u];", 2 * block_of(k) / WARP);
    LINE("%s_rows(p0, p1, value, place);", pr->name);
}
