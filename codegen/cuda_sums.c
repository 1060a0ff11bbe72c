/* cuda_sums.c -- sums of columns in a kernel that reduces rows (K_COLUMN_SUM) as CUDA C.
 *
 * Two blocks a processor go over all rows, each over an equal number of consecutive ones; a thread has the
 * same columns of each row, and adds them up in registers.  The sums of a block's threads are joined by a
 * fixed tree and go to the workspace; a second launch joins those of the blocks, in order within each thread,
 * then by a fixed tree as well. */
#include "cuda_int.h"

enum { COLUMNS = WARP }; /* columns of a block that joins */

static int64_t row_length(const Printer *pr) { return pr->s->extent[pr->s->vec]; }
static int64_t column_blocks(const Printer *pr) { return ceil_div(row_length(pr), COLUMNS); }
static bool sums_at(const Printer *pr, uint32_t i)
{
    return pr->s->live[i] && pr->s->ins[i].kind == K_COLUMN_SUM;
}

CudaLaunch sums_launch(Printer *pr)
{
    const Sched *s = pr->s;
    Rows *r = &pr->rows;
    unsigned threads = (unsigned)(r->lanes > FLAT_THREADS ? r->lanes : FLAT_THREADS);
    int64_t groups = ceil_div(s->nitem, threads / (unsigned)r->lanes), at = 0;
    r->turns = ceil_div(groups, BLOCKS);
    r->turns = r->turns ? r->turns : 1;
    CudaLaunch l = one_phase(blocks_for(groups, r->turns), threads);
    l.n = 2;
    l.phase[1] = (CudaPhase){blocks_for(column_blocks(pr) * r->sums, 1), MAX_THREADS, 0};
    for (uint32_t i = 0; i < s->n; i++)
        if (sums_at(pr, i)) {
            pr->parts.at[i] = at;
            at = align_up(at + l.phase[0].grid * row_length(pr) * (s->f64 ? 8 : 4), CUDA_WORKSPACE_ALIGN);
        }
    l.workspace = at;
    return l;
}

void sums_start(Printer *pr)
{
    for (uint32_t i = 0; i < pr->s->n; i++)
        if (sums_at(pr, i))
            LINE("REAL b%u[%d][%d] = {{0}};", i, pr->rows.chunks, pr->v.width);
}

void sums_add(Printer *pr)
{
    char v[NAME_LEN];
    for (uint32_t i = 0; i < pr->s->n; i++)
        if (sums_at(pr, i)) {
            cuda_name_of(pr, pr->s->ins[i].arg[0], v);
            LINE("b%u[c][e] = b%u[c][e] + %s;", i, i, v);
        }
}

static void join(Printer *pr, uint32_t i, const char *v, int width, int lanes)
{
    LINE("JOIN_THREADS(column, sum, %s, %s, part, %d, %d);", text_type(&pr->s->ins[i]), v, width, lanes);
}

/* Prints the join and the store of chunk c of a block's sums. */
static void store_chunk(Printer *pr, uint32_t i)
{
    const Rows *r = &pr->rows;
    char v[NAME_LEN];
    snprintf(v, sizeof v, "b%u[c]", i);
    join(pr, i, v, pr->v.width, r->lanes);
    LINE("#pragma unroll");
    LINE("for (int e = 0; e < %d; e++)", pr->v.width);
    LINE("    if (threadIdx.x < %d && j + e < %" PRId64 ")", r->lanes, row_length(pr));
    LINE("        ((REAL *)(workspace + %" PRId64 "))[(int64_t)blockIdx.x * %" PRId64
         " + j + e] = b%u[c][e];",
         pr->parts.at[i], row_length(pr), i);
}

void sums_store(Printer *pr)
{
    LINE("#pragma unroll");
    OPEN("for (int c = 0; c < %d; c++)", pr->rows.chunks);
    LINE("const int j = ((int)threadIdx.x %% %d + c * %d) * %d;", pr->rows.lanes, pr->rows.lanes,
         pr->v.width);
    for (uint32_t i = 0; i < pr->s->n; i++)
        if (sums_at(pr, i))
            store_chunk(pr, i);
    CLOSE();
}

static void stores_of(Printer *pr, uint32_t sum)
{
    const Sched *s = pr->s;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->live[i] && sched_is_column_store(s, i) && s->ins[i].arg[0] == (int)sum)
            text_store(&pr->w, s, (int)i, cuda_name_of, pr);
}

void sums_kernel(Printer *pr)
{
    const Sched *s = pr->s;
    int which = 0, vec = s->vec;
    LINE("__shared__ REAL part[%u];", pr->launch.block);
    LINE("const int sum = blockIdx.x / %" PRId64 ";", column_blocks(pr));
    LINE("const int64_t i%d = blockIdx.x %% %" PRId64 " * %d + threadIdx.x %% %d;", vec, column_blocks(pr),
         COLUMNS, COLUMNS);
    LINE("REAL b[1] = {0};");
    for (uint32_t i = 0; i < s->n; i++) {
        if (!sums_at(pr, i))
            continue;
        OPEN("if (sum == %d)", which++);
        LINE("#pragma unroll 4");
        LINE("for (unsigned q = threadIdx.x / %d; q < %u && i%d < %" PRId64 "; q += %u)", COLUMNS,
             s->nitem ? pr->launches.phase[0].grid : 0, vec, row_length(pr), pr->launch.block / COLUMNS);
        LINE("    b[0] = b[0] + ((const REAL *)(workspace + %" PRId64 "))[q * (int64_t)%" PRId64 " + i%d];",
             pr->parts.at[i], row_length(pr), vec);
        CLOSE();
    }
    which = 0;
    LINE("JOIN_THREADS(column, sum, %s, b, part, 1, %d);", s->f64 ? "double" : "float", COLUMNS);
    LINE("if (threadIdx.x >= %d || i%d >= %" PRId64 ")", COLUMNS, vec, row_length(pr));
    LINE("    return;");
    for (uint32_t i = 0; i < s->n; i++) {
        if (!sums_at(pr, i))
            continue;
        OPEN("if (sum == %d)", which++);
        LINE("const REAL v%u = b[0];", i);
        stores_of(pr, i);
        CLOSE();
    }
}
