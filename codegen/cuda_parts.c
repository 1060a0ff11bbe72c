/* cuda_parts.c -- reductions in phases, for kernels that have fewer rows or tiles than the device has
 * processors: each block has a part of the reduced points.
 *
 * A pass over the points is a phase.  It writes a partial result per part to the workspace; blocks that need
 * the result in a later phase join the partial ones in order, by a fixed tree as well.  If no points are left
 * to walk over behind the last reduction, one more phase only joins and stores. */
#include "cuda_int.h"

enum { LEAST_BYTES = 500000, LEAST_BLOCKS = BLOCKS / 2, FEW_INSTS = 4 };

/* Bytes that reductions read.  Stored bytes do not count, as the shape must not depend on them. */
static int64_t bytes_read(const Sched *s)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        const KInst *in = &s->ins[i];
        if (!s->shaping[i] || in->kind != K_LOAD)
            continue;
        int64_t n = dtype_size[s->k->operand[in->operand]];
        for (int d = 0; d < s->rank; d++)
            n *= in->stride[d] ? s->extent[d] : 1;
        sum += n;
    }
    return sum;
}

/* Is something reduced in the last pass? */
static bool reduces_last(const Sched *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (sched_reduces_at(s, i, s->last))
            return true;
    return false;
}

int64_t parts_bytes(const Printer *pr, uint32_t i)
{
    const Sched *s = pr->s;
    int64_t columns = s->kind == SCHED_COLUMN ? s->extent[s->vec] : 1;
    int64_t bytes = s->nitem * pr->parts.n * columns * (s->f64 || s->ins[i].type == KT_INT ? 8 : 4);
    return align_up(bytes, CUDA_WORKSPACE_ALIGN);
}

/* Lays out the partial results of each reduction, one per column, item and part (twice that for a deviation,
 * which has means, too); returns the bytes of the workspace. */
static int64_t lay_out(Printer *pr)
{
    const Sched *s = pr->s;
    int64_t at = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        if (!s->live[i] || !k_reduces(&s->ins[i]))
            continue;
        pr->parts.at[i] = at;
        at += parts_bytes(pr, i) * (s->ins[i].kind == K_DEVIATION ? 2 : 1);
    }
    return at;
}

static bool wants_parts(const Printer *pr, int64_t blocks)
{
    return blocks > 0 && blocks < LEAST_BLOCKS && bytes_read(pr->s) >= LEAST_BYTES;
}

bool parts_are_few(const Printer *pr, int64_t blocks, int64_t points, int64_t least)
{
    return wants_parts(pr, blocks) && points / least * blocks < LEAST_BLOCKS &&
           points * blocks >= LEAST_BLOCKS;
}

static bool computes_little(const Sched *s)
{
    bool little = s->nshaping <= FEW_INSTS;
    for (uint32_t i = 0; i < s->n; i++)
        little &= !s->live[i] || s->ins[i].kind != K_DEVIATION;
    return little;
}

CudaLaunch parts_launch(Printer *pr, int64_t blocks, unsigned threads, int64_t points, int64_t least)
{
    const Sched *s = pr->s;
    CudaLaunch l = one_phase(blocks_for(blocks, 1), threads);
    int phases = s->last + 1 + reduces_last(s);
    pr->parts.n = 1;
    if (!wants_parts(pr, blocks) || phases > CUDA_PHASES || points < 2 * least)
        return l;
    /* No more blocks than run at once, which are twice as many for kernels that compute little. */
    int64_t aim = computes_little(s) ? 2 * BLOCKS : BLOCKS;
    int64_t n = aim / blocks, most = points / least;
    /* A block that walks over the points again joins first, which should be little work beside the walk. */
    for (int64_t i = n; i > 1 && points / i < 4 * i; i--)
        n = blocks * i >= LEAST_BLOCKS ? i : n;
    pr->parts.n = n < most ? n : most;
    pr->parts.per = ceil_div(points, pr->parts.n);
    pr->parts.n = ceil_div(points, pr->parts.per);
    l.n = phases;
    for (int p = 0; p < phases; p++)
        l.phase[p] = (CudaPhase){blocks_for(blocks * (p <= s->last ? pr->parts.n : 1), 1), threads, 0};
    l.workspace = lay_out(pr);
    return l;
}

int64_t parts_of_phase(const Printer *pr) { return pr->phase <= pr->s->last ? pr->parts.n : 1; }

bool parts_wait(const Printer *pr) { return pr->pass < pr->s->last || reduces_last(pr->s); }

/* Marks what this phase stores or joins, and everything that is needed for it. */
void parts_need(Printer *pr)
{
    const Sched *s = pr->s;
    bool whole = pr->parts.n <= 1, ends = pr->phase == pr->launches.n - 1;
    for (uint32_t i = 0; i < s->n; i++)
        pr->need[i] = whole ? s->live[i]
                            : sched_is_root(s, i, pr->phase) || (ends && sched_is_reduced_store(s, i));
    for (uint32_t i = s->n; i-- > 0 && !whole;) {
        bool joined = k_reduces(&s->ins[i]) && s->level[i] <= pr->phase;
        for (int a = 0; a < k_nargs(&s->ins[i]) && pr->need[i] && !joined; a++)
            pr->need[s->ins[i].arg[a]] = true;
    }
}
