/* cuda_row.c -- reductions along the innermost dimension as CUDA C.
 *
 * Several threads share a row: they load its chunks once and keep them in registers from pass to pass if that
 * takes at most 128 bytes each; a longer row is kept in shared memory, or is read again in every pass.
 * Partial results are joined by a butterfly in a warp, then those of the row's warps in order. */
#include "cuda_int.h"
#include "ir/mem.h"
#include <stdlib.h>

enum { HELD_BYTES = 128, HELD_ELEMENTS = 32, HELD_WITH_SUMS = 16, HELD_AND_AHEAD = 352, MAX_LANES = 512,
       MANY_INSTS = 64, UNROLL = 4 };
/* Bytes of shared memory for rows: the least of any GPU, less a block's partial results in two types. */
enum { SHARED_MOST = CUDA_SHARED_LEAST - 2 * 8 * MAX_LANES / WARP };

static bool along_row(const Sched *s, uint32_t i) { return s->dep[i] >> s->vec & 1; }

/* Per instruction, the number of passes that compute it; allocated in a. */
static int *count_passes(const Sched *s, Arena *a)
{
    int *passes = NEW(a, int, s->n + 1);
    bool *mark = NEW(a, bool, s->n + 1);
    for (int pass = 0; pass <= s->last; pass++) {
        memset(mark, 0, s->n * sizeof *mark);
        sched_vector_set(s, pass, mark);
        for (uint32_t i = 0; i < s->n; i++)
            passes[i] += mark[i];
    }
    return passes;
}

static int64_t load_bytes(const Sched *s, uint32_t i)
{
    return s->ins[i].kind == K_LOAD ? dtype_size[s->k->operand[s->ins[i].operand]] : 0;
}

static int64_t value_bytes(const Sched *s, uint32_t i)
{
    return s->ins[i].type == KT_INT || s->f64 ? 8 : 4;
}

/* Has every row values of its own?  What all rows share need not be kept, as it is in a cache. */
static bool is_rows_own(const Sched *s, uint32_t i)
{
    return along_row(s, i) && (!kernel_has_column_sums(s->k) || (s->dep[i] & ~s->red));
}

/* Marks the loads that are kept from one pass to another; returns the bytes that are kept per element. */
static int64_t hold(Rows *r, const Sched *s, const int *passes)
{
    int64_t bytes = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        r->held[i] = s->ins[i].kind == K_LOAD && passes[i] > 1 && is_rows_own(s, i);
        r->kept[i] = r->held[i];
        bool sums = s->live[i] && s->ins[i].kind == K_COLUMN_SUM;
        bytes += (r->held[i] ? load_bytes(s, i) : 0) + (s->saved[i] || sums ? value_bytes(s, i) : 0);
        r->sums += sums;
    }
    return bytes;
}

/* The most elements of a row that a thread may hold, by the bytes that its reductions read of it, as if all
 * of them were needed again. */
static int64_t most_elements(const Sched *s)
{
    int64_t bytes = 0, most = HELD_ELEMENTS / (s->nshaping > MANY_INSTS ? 2 : 1);
    int loads = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        bool own = s->shaping[i] && along_row(s, i) && (s->dep[i] & ~s->red);
        bool load = own && s->ins[i].kind == K_LOAD;
        loads += load;
        bytes += load ? load_bytes(s, i) : own && sched_is_heavy(&s->ins[i]) ? value_bytes(s, i) : 0;
    }
    if (loads > 1 && most > HELD_WITH_SUMS) /* a gradient: leaves room for column sums */
        most = HELD_WITH_SUMS;
    while (most > 1 && most * bytes > HELD_BYTES)
        most /= 2;
    return most;
}

/* Holds loads that are needed only behind a reduction, so that they are made before it with the rest, where
 * there are registers for them: blocks that sum columns are too few to hide the second wait. */
static void hold_ahead(Rows *r, const Sched *s, const int *passes, int64_t elements, int64_t bytes)
{
    for (uint32_t i = 0; i < s->n; i++) {
        int64_t size = load_bytes(s, i);
        if (size && is_rows_own(s, i) && passes[i] == 1 && (bytes + size) * elements <= HELD_AND_AHEAD) {
            r->held[i] = true;
            bytes += size;
        }
    }
}

void rows_make(Rows *r, const Sched *s, const Vector *v, Arena *a)
{
    const int *passes = count_passes(s, a);
    int64_t n = s->extent[s->vec], outer = n ? s->nred / n : 0;
    *r = (Rows){.lanes = 1, .turns = 1, .held = NEW(a, bool, s->n + 1), .kept = NEW(a, bool, s->n + 1),
                .at = NEW(a, int64_t, s->n + 1)};
    r->along = ceil_div(n + (v->phase >= 0 ? v->width - 1 : 0), v->width);
    r->along = r->along ? r->along : 1;
    r->all = n ? outer * r->along : 0;
    int64_t bytes = hold(r, s, passes), most = most_elements(s) / v->width;
    most = most ? most : 1;
    while (r->lanes < WARP && r->lanes < r->all)
        r->lanes *= 2;
    while (r->lanes < MAX_LANES &&
           (r->lanes * most < r->all || (r->lanes < r->all && s->nitem * r->lanes < BLOCKS * FLAT_THREADS)))
        r->lanes *= 2;
    r->chunks = (int)ceil_div(r->all, r->lanes);
    r->chunks = r->chunks > most && !r->sums ? 0 : r->chunks ? r->chunks : 1;
    memset(r->chunks ? r->kept : r->held, 0, s->n * sizeof *r->held);
    if (r->sums)
        hold_ahead(r, s, passes, r->chunks * v->width, bytes);
}

/* Places the loads to be kept in shared memory while there is room; returns the bytes that they take. */
static unsigned keep_in_shared(Rows *r, const Sched *s, const Vector *v)
{
    int64_t at = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        if (!r->kept[i])
            continue;
        int64_t bytes = r->all * v->width * dtype_size[s->k->operand[s->ins[i].operand]];
        r->kept[i] = v->wide[i] && at + bytes <= SHARED_MOST;
        r->at[i] = at;
        at += r->kept[i] ? align_up(bytes, 16) : 0;
    }
    return (unsigned)at;
}

CudaLaunch row_launch(Printer *pr)
{
    const Sched *s = pr->s;
    Rows *r = &pr->rows;
    if (r->sums)
        return sums_launch(pr);
    unsigned lanes = (unsigned)r->lanes, threads = lanes > FLAT_THREADS ? lanes : FLAT_THREADS;
    while (threads > lanes && threads > WARP && s->nitem * lanes / threads < BLOCKS)
        threads /= 2;
    CudaLaunch l = parts_launch(pr, s->nitem, FLAT_THREADS, r->all, FLAT_THREADS);
    if (pr->parts.n == 1) {
        l = one_phase(blocks_for(s->nitem, threads / lanes), threads);
        l.phase[0].shared = keep_in_shared(r, s, &pr->v);
        return l;
    }
    r->lanes = FLAT_THREADS;
    r->chunks = 0;
    memset(r->held, 0, s->n * sizeof *r->held);
    memset(r->kept, 0, s->n * sizeof *r->kept);
    return l;
}

/* ---- text --------------------------------------------------------------------------------------- */

/* Rows of a block; the last block may have fewer. */
static int64_t rows_of_block(const Printer *pr) { return pr->launch.block / (unsigned)pr->rows.lanes; }
static bool whole_blocks(const Printer *pr)
{
    return pr->s->nitem % (rows_of_block(pr) * pr->rows.turns) == 0;
}

static void begin_row(Printer *pr)
{
    const Sched *s = pr->s;
    int64_t rows = rows_of_block(pr);
    uint32_t parallel = ((1u << s->rank) - 1) & ~s->red;
    const char *index = pr->w.index;
    if (parts_of_phase(pr) > 1) {
        LINE("const %s lane = threadIdx.x, row = blockIdx.x / %" PRId64 ", slice = blockIdx.x %% %" PRId64
             ";", index, pr->parts.n, pr->parts.n);
        LINE("const %s from = slice * %" PRId64 ", end = from + %" PRId64 ";", index, pr->parts.per,
             pr->parts.per);
        LINE("const %s to = end < %" PRId64 " ? end : %" PRId64 ";", index, pr->rows.all, pr->rows.all);
    } else if (pr->rows.turns > 1)
        LINE("const %s lane = threadIdx.x %% %d, row = ((%s)blockIdx.x * %" PRId64 " + turn) * %" PRId64
             " + threadIdx.x / %d;",
             index, pr->rows.lanes, index, pr->rows.turns, rows, pr->rows.lanes);
    else if (rows == 1)
        LINE("const %s lane = threadIdx.x, row = blockIdx.x;", index);
    else
        LINE("const %s lane = threadIdx.x %% %d, row = (%s)blockIdx.x * %" PRId64 " + threadIdx.x / %d;",
             index, pr->rows.lanes, index, rows, pr->rows.lanes);
    if (!whole_blocks(pr))
        LINE("const %s all = row < %" PRId64 " ? %" PRId64 " : 0;", index, s->nitem, pr->rows.all);
    if (parallel && !whole_blocks(pr))
        LINE("const %s item = row < %" PRId64 " ? row : %" PRId64 ";", index, s->nitem, s->nitem - 1);
    else if (parallel)
        LINE("const %s item = row;", index);
    text_unpack(&pr->w, s, "item", parallel);
}

/* Prints j, the first index of chunk q, and the indices of the other reduced dimensions. */
static void unpack_chunk(Printer *pr)
{
    const Sched *s = pr->s;
    uint32_t outer = s->red & ~(1u << s->vec);
    char at[512], before[NAME_LEN] = "";
    if (outer) {
        LINE(pr->rows.along > 1 ? "const %s outer = q / %" PRId64 ";" : "const %s outer = q;", pr->w.index,
             pr->rows.along);
        text_unpack(&pr->w, s, "outer", outer);
    }
    if (pr->v.phase >= 0) {
        text_address_at(s, &s->ins[pr->v.phase], "0", at, sizeof at);
        LINE("const int before = (int)((%s) & %d);", at, pr->v.width - 1);
        snprintf(before, sizeof before, " - before");
    }
    if (outer)
        LINE("const %s j = q %% %" PRId64 " * %d%s;", pr->w.index, pr->rows.along, pr->v.width, before);
    else
        LINE("const %s j = q * %d%s;", pr->w.index, pr->v.width, before);
}

static void open_chunks(Printer *pr)
{
    const Rows *r = &pr->rows;
    char all[NAME_LEN] = "all";
    const char *first = "lane";
    if (parts_of_phase(pr) > 1) {
        first = "from + lane";
        snprintf(all, sizeof all, "to");
    } else if (whole_blocks(pr))
        snprintf(all, sizeof all, "%" PRId64, r->all);
    if (r->chunks) {
        LINE("#pragma unroll");
        OPEN("for (int c = 0; c < %d; c++)", r->chunks);
        LINE("const %s q = lane + c * %d;", pr->w.index, r->lanes);
        if (!whole_blocks(pr) || r->all != (int64_t)r->chunks * r->lanes) {
            LINE("if (q >= %s)", all);
            LINE("    continue;");
        }
    } else {
        LINE("#pragma unroll %d", UNROLL);
        OPEN("for (%s q = %s; q < %s; q += %d)", pr->w.index, first, all, r->lanes);
    }
    unpack_chunk(pr);
}

static void load_row(Printer *pr)
{
    const Sched *s = pr->s;
    bool any = false;
    for (uint32_t i = 0; i < s->n; i++)
        if (pr->rows.held[i]) {
            chunk_declare(pr, i, pr->rows.chunks);
            any = true;
        }
    if (!any)
        return;
    open_chunks(pr);
    for (uint32_t i = 0; i < s->n; i++)
        if (pr->rows.held[i])
            chunk_load(pr, i, "[c]");
    CLOSE();
}

static void element(Printer *pr, int pass)
{
    const Sched *s = pr->s;
    char acc[NAME_LEN], v[NAME_LEN];
    for (uint32_t i = 0; i < s->n; i++) {
        if (!cuda_walks(pr, i) || !along_row(s, i))
            continue;
        chunk_value(pr, i);
        if (s->saved[i])
            LINE("r%u[c][e] = v%u;", i, i);
    }
    for (uint32_t i = 0; i < s->n; i++) {
        if (!sched_reduces_at(s, i, pass))
            continue;
        snprintf(acc, sizeof acc, "a%u", i);
        cuda_name_of(pr, s->ins[i].arg[0], v);
        text_accumulate(&pr->w, &s->ins[i], acc, v);
    }
    if (pass == s->last)
        sums_add(pr);
    for (uint32_t i = 0; i < s->n; i++)
        if (pr->mark[i] && s->ins[i].kind == K_STORE)
            chunk_store(pr, i);
}

/* Has an earlier pass left the load in shared memory?  The same thread did, so no barrier is needed. */
static bool is_there(const Printer *pr, uint32_t i, int pass)
{
    bool *mark = mem_new(pr->s->n + 1, sizeof *mark), there = false;
    for (int p = 0; p < pass && !there; p++) {
        memset(mark, 0, pr->s->n * sizeof *mark);
        sched_vector_set(pr->s, p, mark);
        there = mark[i];
    }
    free(mark);
    return there;
}

static void load_chunk(Printer *pr, uint32_t i, int pass)
{
    const char *type = text_element(pr->s->k->operand[pr->s->ins[i].operand]);
    bool kept = pr->rows.kept[i], there = kept && is_there(pr, i, pass);
    chunk_declare(pr, i, 0);
    if (!there)
        chunk_load(pr, i, "");
    if (!kept)
        return;
    LINE("%s *const k%u = (%s *)(kept + %" PRId64 ") + q * %d;", type, i, type, pr->rows.at[i], pr->v.width);
    LINE(there ? "wide_copy(u%u, k%u, sizeof u%u);" : "wide_copy(k%u, u%u, sizeof u%u);", i, i, i);
}

static void pass_loop(Printer *pr, int pass)
{
    const Sched *s = pr->s;
    memset(pr->mark, 0, s->n * sizeof *pr->mark);
    sched_vector_set(s, pass, pr->mark);
    open_chunks(pr);
    for (uint32_t i = 0; i < s->n; i++)
        if (cuda_walks(pr, i) && !along_row(s, i))
            text_value(&pr->w, s, (int)i, cuda_name_of, pr);
    for (uint32_t i = 0; i < s->n; i++)
        if (cuda_walks(pr, i) && s->ins[i].kind == K_LOAD && pr->v.wide[i] && !pr->rows.held[i])
            load_chunk(pr, i, pass);
    chunk_begin(pr, pr->mark);
    chunk_open(pr);
    element(pr, pass);
    CLOSE();
    chunk_end(pr, pr->mark);
    CLOSE();
}

static void join(Printer *pr, uint32_t i)
{
    const KInst *in = &pr->s->ins[i];
    LINE("const %s v%u = JOIN_THREADS(row, %s, %s, a%u, %s, %d);", text_type(in), i, cuda_reduction(in),
         text_type(in), i, in->type == KT_REAL ? "part" : "part_int", pr->rows.lanes);
}

static void run_pass(Printer *pr, int pass)
{
    const Sched *s = pr->s;
    pr->pass = pass;
    for (uint32_t i = 0; i < s->n; i++) {
        const KInst *in = &s->ins[i];
        if (sched_reduces_at(s, i, pass))
            LINE("%s a%u = %s;", text_type(in), i, text_start(in));
        if (s->saved[i] && s->level[i] == pass)
            LINE("%s r%u[%d][%d];", text_type(in), i, pr->rows.chunks, pr->v.width);
    }
    pass_loop(pr, pass);
    for (uint32_t i = 0; i < s->n; i++)
        if (sched_reduces_at(s, i, pass))
            join(pr, i);
}

/* ---- parts -------------------------------------------------------------------------------------- */

static void store_partials(Printer *pr, int pass)
{
    const Sched *s = pr->s;
    OPEN("if (lane == 0)");
    for (uint32_t i = 0; i < s->n; i++)
        if (sched_reduces_at(s, i, pass))
            LINE("((%s *)(workspace + %" PRId64 "))[row * %" PRId64 " + slice] = v%u;", text_type(&s->ins[i]),
                 pr->parts.at[i], pr->parts.n, i);
    CLOSE();
}

static void join_partials(Printer *pr, int pass)
{
    const Sched *s = pr->s;
    char acc[NAME_LEN], v[128];
    for (uint32_t i = 0; i < s->n; i++) {
        if (!sched_reduces_at(s, i, pass) || !pr->need[i])
            continue;
        LINE("%s a%u = %s;", text_type(&s->ins[i]), i, text_start(&s->ins[i]));
        snprintf(acc, sizeof acc, "a%u", i);
        snprintf(v, sizeof v, "((const %s *)(workspace + %" PRId64 "))[row * %" PRId64 " + q]",
                 text_type(&s->ins[i]), pr->parts.at[i], pr->parts.n);
        OPEN("for (int q = lane; q < %" PRId64 "; q += %d)", pr->parts.n, pr->rows.lanes);
        text_accumulate(&pr->w, &s->ins[i], acc, v);
        CLOSE();
        join(pr, i);
    }
}

/* ---- the kernel --------------------------------------------------------------------------------- */

/* Prints the values of a level that no reduced dimension changes. */
static void free_values(Printer *pr, int level)
{
    const Sched *s = pr->s;
    for (uint32_t i = 0; i < s->n; i++)
        if (pr->need[i] && sched_is_plain(&s->ins[i]) && !(s->dep[i] & s->red) && s->level[i] == level)
            text_value(&pr->w, s, (int)i, cuda_name_of, pr);
}

static void reduced_stores(Printer *pr)
{
    const Sched *s = pr->s;
    bool any = false;
    for (uint32_t i = 0; i < s->n; i++)
        any |= sched_is_reduced_store(s, i);
    if (!any)
        return;
    if (parts_of_phase(pr) > 1)
        OPEN("if (lane == 0 && slice == 0)");
    else
        OPEN(whole_blocks(pr) ? "if (lane == 0)" : "if (lane == 0 && row < %" PRId64 ")", s->nitem);
    for (uint32_t i = 0; i < s->n; i++)
        if (sched_is_reduced_store(s, i))
            text_store(&pr->w, s, (int)i, cuda_name_of, pr);
    CLOSE();
}

static void row_text(Printer *pr)
{
    const Sched *s = pr->s;
    begin_row(pr);
    free_values(pr, 0);
    load_row(pr);
    for (int pass = 0; pass <= s->last; pass++) {
        if (pr->parts.n > 1 && pass < pr->phase) {
            join_partials(pr, pass);
        } else {
            run_pass(pr, pass);
            if (pr->parts.n > 1 && parts_wait(pr)) {
                store_partials(pr, pass);
                return;
            }
        }
        free_values(pr, pass + 1);
    }
    reduced_stores(pr);
}

void row_kernel(Printer *pr)
{
    bool sums = pr->rows.sums > 0;
    if (sums && pr->phase == 1) {
        sums_kernel(pr);
        return;
    }
    if (pr->s->nitem == 0) {
        LINE("return;");
        return;
    }
    parts_need(pr);
    if (pr->launch.shared)
        LINE("SHARED_BYTES(kept, 16);");
    cuda_shared_parts(pr, sums ? pr->launch.block * (unsigned)pr->v.width : pr->launch.block / WARP);
    if (sums)
        sums_start(pr);
    if (pr->rows.turns > 1) {
        LINE("#pragma unroll 1");
        OPEN("for (int turn = 0; turn < %" PRId64 "; turn++)", pr->rows.turns);
    }
    row_text(pr);
    if (pr->rows.turns > 1)
        CLOSE();
    if (sums)
        sums_store(pr);
}
