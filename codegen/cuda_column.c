/* cuda_column.c -- reductions whose innermost dimension is parallel as CUDA C: one block per 32 columns, whose
 * rows of threads stride along the reduced points and are joined by a fixed tree. */
#include "cuda_int.h"

/* Threads along the reduced points: enough to have several each, at least a warp. */
static unsigned threads_for(int64_t points, unsigned most)
{
    unsigned t = WARP;
    while (t < most && (int64_t)t * 4 < points)
        t *= 2;
    return t;
}

CudaLaunch column_launch(const Sched *s)
{
    unsigned rows = threads_for(s->nred, MAX_THREADS) / WARP;
    rows = rows < 4 ? 4 : rows;
    return one_phase(blocks_for(s->nitem * ceil_div(s->extent[s->vec], WARP), 1), rows * WARP);
}

static void pass_loop(Printer *pr, int pass)
{
    const Sched *s = pr->s;
    char acc[NAME_LEN], v[NAME_LEN];
    memset(pr->mark, 0, s->n * sizeof *pr->mark);
    sched_vector_set(s, pass, pr->mark);
    OPEN("for (%s j = threadIdx.x / 32; j < %" PRId64 "; j += blockDim.x / 32)", pr->w.index, s->nred);
    text_unpack(&pr->w, s, "j", s->red);
    for (uint32_t i = 0; i < s->n; i++)
        if (pr->mark[i] && cuda_is_plain(&s->ins[i]) && (s->dep[i] & s->red))
            text_value(&pr->w, s, (int)i, cuda_name_of, pr);
    for (uint32_t i = 0; i < s->n; i++) {
        if (!cuda_reduces_at(s, i, pass))
            continue;
        snprintf(acc, sizeof acc, "a%u", i);
        cuda_name_of(pr, s->ins[i].arg[0], v);
        text_accumulate(&pr->w, &s->ins[i], acc, v);
    }
    if (pass == s->last) {
        OPEN("if (column < %" PRId64 ")", s->extent[s->vec]);
        cuda_stores(pr, false);
        CLOSE();
    }
    CLOSE();
}

static void run_pass(Printer *pr, int pass)
{
    const Sched *s = pr->s;
    for (uint32_t i = 0; i < s->n; i++)
        if (cuda_reduces_at(s, i, pass))
            LINE("%s a%u = %s;", text_type(&s->ins[i]), i, text_start(&s->ins[i]));
    pass_loop(pr, pass);
    for (uint32_t i = 0; i < s->n; i++)
        if (cuda_reduces_at(s, i, pass))
            LINE("const %s v%u = JOIN_THREADS(column, %s, %s, a%u, %s, 32);", text_type(&s->ins[i]), i,
                 cuda_reduction(&s->ins[i]), text_type(&s->ins[i]), i,
                 s->ins[i].type == KT_REAL ? "part" : "part_int");
}

void column_kernel(Printer *pr)
{
    const Sched *s = pr->s;
    uint32_t parallel = ((1u << s->rank) - 1) & ~s->red;
    int64_t n = s->extent[s->vec], blocks = ceil_div(n, WARP);
    if (s->nitem == 0 || n == 0) {
        LINE("return;");
        return;
    }
    cuda_shared_parts(pr, pr->launch.block);
    LINE("const %s item = blockIdx.x / %" PRId64 ";", pr->w.index, blocks);
    LINE("const %s column = blockIdx.x %% %" PRId64 " * 32 + threadIdx.x %% 32;", pr->w.index, blocks);
    LINE("const %s i%d = column < %" PRId64 " ? column : %" PRId64 ";", pr->w.index, s->vec, n, n - 1);
    text_unpack(&pr->w, s, "item", parallel & ~(1u << s->vec));
    cuda_free_values(pr, 0);
    for (int pass = 0; pass <= s->last; pass++) {
        run_pass(pr, pass);
        cuda_free_values(pr, pass + 1);
    }
    if (!cuda_has_reduced_stores(s))
        return;
    OPEN("if (threadIdx.x < 32 && column < %" PRId64 ")", n);
    cuda_stores(pr, true);
    CLOSE();
}
