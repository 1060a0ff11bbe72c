/* cuda_column.c -- reductions whose innermost dimension is parallel as CUDA C.
 *
 * A block has a tile of columns, so many that their rows in memory are pieces of 128 bytes; its threads
 * along the reduced points (rows) add up chunks of columns in registers, and a fixed tree joins their sums.
 * Where there are fewer tiles than processors, blocks have parts of the rows (cuda_parts.c). */
#include "cuda_int.h"

enum { PIECE_BYTES = 128, FLIGHT_BYTES = 64, MANY_INSTS = 64 };

static bool in_chunk(const Sched *s, uint32_t i) { return s->dep[i] >> s->vec & 1; }

static int64_t chunks_along(const Printer *pr) { return pr->s->extent[pr->s->vec] / pr->v.width; }
static int64_t tiles(const Printer *pr) { return ceil_div(chunks_along(pr), pr->columns.lanes); }
static bool whole_tiles(const Printer *pr) { return chunks_along(pr) % pr->columns.lanes == 0; }

static int narrowest(const Sched *s)
{
    int size = 8;
    for (uint32_t i = 0; i < s->n; i++) {
        const KInst *in = &s->ins[i];
        if (in->kind != K_LOAD || !s->shaping[i] || !(s->dep[i] & s->red) || !in_chunk(s, i))
            continue;
        int own = dtype_size[s->k->operand[in->operand]];
        size = own < size ? own : size;
    }
    return size;
}

CudaLaunch column_launch(Printer *pr)
{
    const Sched *s = pr->s;
    int64_t chunks = chunks_along(pr), piece = PIECE_BYTES / (pr->v.width * narrowest(s));
    int lanes = (int)next_power_of_2(piece < chunks ? piece : chunks, WARP);
    /* Blocks of twice as many threads have at most 128 registers a thread. */
    unsigned threads = (unsigned)lanes, most = FLAT_THREADS * (s->nshaping > MANY_INSTS ? 2 : 1);
    while (threads < WARP || (threads < most && threads / (unsigned)lanes < s->nred))
        threads *= 2;
    pr->columns.lanes = lanes;
    int64_t blocks = s->nitem * tiles(pr);
    while (threads > WARP && threads > (unsigned)lanes &&
           parts_are_few(pr, blocks, s->nred, threads / (unsigned)lanes))
        threads /= 2;
    return parts_launch(pr, blocks, threads, s->nred, threads / (unsigned)lanes);
}

/* ---- values of columns -------------------------------------------------------------------------- */

/* Prints the values of a level that no reduced dimension changes: those of all columns once, then the others
 * chunk by chunk as c<i>. */
static void free_values(Printer *pr, int level)
{
    const Sched *s = pr->s;
    bool any = false;
    memset(pr->mark, 0, s->n * sizeof *pr->mark);
    for (uint32_t i = 0; i < s->n; i++) {
        if (!pr->need[i] || !sched_is_plain(&s->ins[i]) || (s->dep[i] & s->red) || s->level[i] != level)
            continue;
        pr->mark[i] = in_chunk(s, i) && s->ins[i].kind != K_CONST;
        any |= pr->mark[i];
        if (!in_chunk(s, i))
            text_value(&pr->w, s, (int)i, cuda_name_of, pr);
    }
    if (!any)
        return;
    for (uint32_t i = 0; i < s->n; i++)
        if (pr->mark[i])
            LINE("%s c%u[%d];", text_type(&s->ins[i]), i, pr->v.width);
    text_block(&pr->w);
    for (uint32_t i = 0; i < s->n; i++)
        if (pr->mark[i] && s->ins[i].kind == K_LOAD && pr->v.wide[i]) {
            chunk_declare(pr, i, 0);
            chunk_load(pr, i, "");
        }
    chunk_begin(pr, pr->mark);
    chunk_open(pr);
    for (uint32_t i = 0; i < s->n; i++)
        if (pr->mark[i]) {
            chunk_value(pr, i);
            LINE("c%u[e] = v%u;", i, i);
        }
    CLOSE();
    CLOSE();
}

/* ---- deviations ----------------------------------------------------------------------------------- c<i> is
 * a sum of squared deviations from a mean, m<i>: of a thread's rows, of a part's, of all.  To join such sums,
 * each grows by its number of rows times the square of the difference between its mean and the mean of all
 * (Chan, Golub, LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979,
 * section 2).  A thread first sums the differences of its rows from its first row, first<i>. */

static bool deviates(const Printer *pr, uint32_t i) { return pr->s->ins[i].kind == K_DEVIATION; }

static void each_element(Printer *pr)
{
    LINE("#pragma unroll");
    OPEN("for (int e = 0; e < %d; e++)", pr->v.width);
}

static void join_sums(Printer *pr, const char *sums)
{
    LINE("JOIN_THREADS(column, sum, REAL, %s, part, %d, %d);", sums, pr->v.width, pr->columns.lanes);
}

static void start_deviation(Printer *pr, uint32_t i)
{
    LINE("ALIGNED_16 REAL m%u[%d], first%u[%d];", i, pr->v.width, i, pr->v.width);
    each_element(pr);
    LINE("m%u[e] = first%u[e] = 0;", i, i);
    CLOSE();
}

static void add_deviation(Printer *pr, uint32_t i, const char *v)
{
    LINE("first%u[e] = r == from + (int)threadIdx.x / %d ? %s : first%u[e];", i, pr->columns.lanes, v, i);
    LINE("const REAL far%u = %s - first%u[e];", i, v, i);
    LINE("m%u[e] += far%u;", i, i);
    LINE("c%u[e] = FMA(far%u, far%u, c%u[e]);", i, i, i, i);
}

/* Prints the mean and the squared deviations of the thread's n rows, from the differences from first<i>. */
static void close_deviation(Printer *pr, uint32_t i)
{
    int64_t rows = pr->launch.block / (unsigned)pr->columns.lanes;
    LINE("const REAL n%u = (REAL)((to - from - (int)threadIdx.x / %d + %" PRId64 ") / %" PRId64 ");", i,
         pr->columns.lanes, rows - 1, rows);
    each_element(pr);
    LINE("const REAL far%u = m%u[e] / (n%u > 0 ? n%u : 1);", i, i, i, i);
    LINE("c%u[e] = FMAX(FMA(-far%u, m%u[e], c%u[e]), R(0));", i, i, i, i);
    LINE("m%u[e] = first%u[e] + far%u;", i, i, i);
    CLOSE();
}

/* Declares all<i>, which sums n times the mean over the sums that are joined. */
static void begin_means(Printer *pr, uint32_t i)
{
    LINE("ALIGNED_16 REAL all%u[%d];", i, pr->v.width);
    each_element(pr);
    LINE("all%u[e] = 0;", i);
    CLOSE();
}

static void join_means(Printer *pr, uint32_t i, const char *rows)
{
    char sums[NAME_LEN];
    snprintf(sums, sizeof sums, "all%u", i);
    join_sums(pr, sums);
    each_element(pr);
    LINE("all%u[e] /= %s;", i, rows);
    CLOSE();
}

/* Prints how c<i> of n rows with mean m is changed to deviations from the mean of all. */
static void move_mean(Printer *pr, uint32_t i, const char *m, const char *n)
{
    LINE("const REAL far%u = %s - all%u[e];", i, m, i);
    LINE("c%u[e] = FMA(%s * far%u, far%u, c%u[e]);", i, n, i, i, i);
}

static void join_deviation(Printer *pr, uint32_t i)
{
    char name[NAME_LEN], n[NAME_LEN];
    snprintf(n, sizeof n, "n%u", i);
    close_deviation(pr, i);
    begin_means(pr, i);
    each_element(pr);
    LINE("all%u[e] = n%u * m%u[e];", i, i, i);
    CLOSE();
    join_means(pr, i, "(REAL)(to - from)");
    each_element(pr);
    snprintf(name, sizeof name, "m%u[e]", i);
    move_mean(pr, i, name, n);
    LINE("m%u[e] = all%u[e];", i, i);
    CLOSE();
    snprintf(name, sizeof name, "c%u", i);
    join_sums(pr, name);
}

/* ---- passes ------------------------------------------------------------------------------------- */

static void start(Printer *pr, uint32_t i)
{
    const KInst *in = &pr->s->ins[i];
    LINE("ALIGNED_16 %s c%u[%d];", text_type(in), i, pr->v.width);
    each_element(pr);
    LINE("c%u[e] = %s;", i, text_start(in));
    CLOSE();
}

static void accumulate(Printer *pr, uint32_t i, const char *v)
{
    char acc[NAME_LEN];
    snprintf(acc, sizeof acc, "c%u[e]", i);
    text_accumulate(&pr->w, &pr->s->ins[i], acc, v);
}

static void join(Printer *pr, uint32_t i)
{
    const KInst *in = &pr->s->ins[i];
    if (deviates(pr, i))
        join_deviation(pr, i);
    else
        LINE("JOIN_THREADS(column, %s, %s, c%u, %s, %d, %d);", cuda_reduction(in), text_type(in), i,
             in->type == KT_REAL ? "part" : "part_int", pr->v.width, pr->columns.lanes);
}

static bool loads_chunk(const Printer *pr, uint32_t i)
{
    return cuda_walks(pr, i) && pr->s->ins[i].kind == K_LOAD && pr->v.wide[i];
}

static void row_of_chunks(Printer *pr, int pass)
{
    const Sched *s = pr->s;
    char v[NAME_LEN];
    text_unpack(&pr->w, s, "r", s->red);
    for (uint32_t i = 0; i < s->n; i++)
        if (cuda_walks(pr, i) && !in_chunk(s, i))
            text_value(&pr->w, s, (int)i, cuda_name_of, pr);
    for (uint32_t i = 0; i < s->n; i++)
        if (loads_chunk(pr, i) && !pr->rows.held[i]) {
            chunk_declare(pr, i, 0);
            chunk_load(pr, i, "");
        }
    chunk_begin(pr, pr->mark);
    chunk_open(pr);
    for (uint32_t i = 0; i < s->n; i++)
        if (cuda_walks(pr, i) && in_chunk(s, i))
            chunk_value(pr, i);
    for (uint32_t i = 0; i < s->n; i++)
        if (sched_reduces_at(s, i, pass)) {
            cuda_name_of(pr, s->ins[i].arg[0], v);
            deviates(pr, i) ? add_deviation(pr, i, v) : accumulate(pr, i, v);
        }
    for (uint32_t i = 0; i < s->n; i++)
        if (pr->mark[i] && s->ins[i].kind == K_STORE)
            chunk_store(pr, i);
    CLOSE();
    chunk_end(pr, pr->mark);
}

static bool stores_rows(const Printer *pr)
{
    for (uint32_t i = 0; i < pr->s->n; i++)
        if (pr->mark[i] && pr->s->ins[i].kind == K_STORE && (pr->s->dep[i] & pr->s->red))
            return true;
    return false;
}

/* Rows that a thread loads before it adds, so that about FLIGHT_BYTES are on their way to it. */
static int rows_in_flight(const Printer *pr)
{
    const Sched *s = pr->s;
    int bytes = 0;
    for (uint32_t i = 0; i < s->n; i++)
        if (cuda_walks(pr, i) && s->ins[i].kind == K_LOAD && in_chunk(s, i))
            bytes += pr->v.width * dtype_size[s->k->operand[s->ins[i].operand]];
    /* One or two operands leave registers for twice as many. */
    int most = stores_rows(pr) && bytes <= FLIGHT_BYTES / 2 ? 2 * FLIGHT_BYTES : FLIGHT_BYTES;
    return bytes == 0 || bytes >= most ? 1 : most / bytes;
}

/* Prints r, the row at a place.  A last pass that only stores goes from the last row to the first one, as the
 * rows read last are still in the cache. */
static void row_of_place(Printer *pr)
{
    bool back = pr->pass > 0;
    for (uint32_t i = 0; i < pr->s->n; i++)
        back &= !sched_reduces_at(pr->s, i, pr->pass);
    LINE(back ? "const %s r = from + to - 1 - place;" : "const %s r = place;", pr->w.index);
}

/* Opens the loop over `many` rows from place `first` on, whose row is r; skips those behind the last. */
static void open_row(Printer *pr, int many, int64_t rows)
{
    LINE("#pragma unroll");
    OPEN("for (int c = 0; c < %d; c++)", many);
    LINE("const %s place = first + c * %" PRId64 ";", pr->w.index, rows);
    LINE("if (place >= to)");
    LINE("    continue;");
    row_of_place(pr);
}

/* Prints the loads of `many` rows ahead of their use.  The compiler would not load a row before the stores of
 * an earlier one, as these may lie where it reads. */
static void load_rows(Printer *pr, int many, int64_t rows)
{
    const Sched *s = pr->s;
    for (uint32_t i = 0; i < s->n; i++) {
        pr->rows.held[i] = loads_chunk(pr, i);
        if (pr->rows.held[i])
            chunk_declare(pr, i, many);
    }
    open_row(pr, many, rows);
    text_unpack(&pr->w, s, "r", s->red);
    for (uint32_t i = 0; i < s->n; i++)
        if (pr->rows.held[i])
            chunk_load(pr, i, "[c]");
    CLOSE();
}

static void walk_rows(Printer *pr, int pass)
{
    const char *index = pr->w.index;
    int64_t rows = pr->launch.block / (unsigned)pr->columns.lanes;
    int many = rows_in_flight(pr);
    if (many == 1 || !stores_rows(pr)) {
        LINE("#pragma unroll %d", many);
        OPEN("for (%s place = from + threadIdx.x / %d; place < to; place += %" PRId64 ")", index,
             pr->columns.lanes, rows);
        row_of_place(pr);
        row_of_chunks(pr, pass);
        CLOSE();
        return;
    }
    OPEN("for (%s first = from + threadIdx.x / %d; first < to; first += %" PRId64 ")", index,
         pr->columns.lanes, many * rows);
    load_rows(pr, many, rows);
    open_row(pr, many, rows);
    row_of_chunks(pr, pass);
    CLOSE();
    CLOSE();
    memset(pr->rows.held, 0, pr->s->n * sizeof *pr->rows.held);
}

static void run_pass(Printer *pr, int pass)
{
    const Sched *s = pr->s;
    pr->pass = pass;
    for (uint32_t i = 0; i < s->n; i++)
        if (sched_reduces_at(s, i, pass)) {
            start(pr, i);
            if (deviates(pr, i))
                start_deviation(pr, i);
        }
    memset(pr->mark, 0, s->n * sizeof *pr->mark);
    sched_vector_set(s, pass, pr->mark);
    walk_rows(pr, pass);
    for (uint32_t i = 0; i < s->n; i++)
        if (sched_reduces_at(s, i, pass))
            join(pr, i);
    sched_read_back(s, pass, pr->v.wide);
}

/* ---- parts -------------------------------------------------------------------------------------- */

/* Writes the address of a reduction's partial result to buf; which: 0, or 1 for the mean of a deviation. */
static void partial_address(const Printer *pr, uint32_t i, int which, const char *part, char buf[256])
{
    snprintf(buf, 256,
             "(%s *)(workspace + %" PRId64 ") + ((int64_t)item * %" PRId64 " + %s) * %" PRId64 " + j",
             text_type(&pr->s->ins[i]), pr->parts.at[i] + which * parts_bytes(pr, i), pr->parts.n, part,
             pr->s->extent[pr->s->vec]);
}

static void store_partials(Printer *pr, int pass)
{
    const Sched *s = pr->s;
    char at[256];
    OPEN(whole_tiles(pr) ? "if (threadIdx.x < %d)" : "if (threadIdx.x < %d && inside)", pr->columns.lanes);
    for (uint32_t i = 0; i < s->n; i++)
        if (sched_reduces_at(s, i, pass)) {
            for (int m = 0; m <= deviates(pr, i); m++) {
                partial_address(pr, i, m, "slice", at);
                LINE("wide_copy(%s, %c%u, %d * sizeof(%s));", at, m ? 'm' : 'c', i, pr->v.width,
                     text_type(&s->ins[i]));
            }
        }
    CLOSE();
}

/* Prints those stores in pr->mark, one per column, that pr->need still has, and takes them out of it. */
static void column_stores(Printer *pr)
{
    const Sched *s = pr->s;
    bool any = false;
    for (uint32_t i = 0; i < s->n; i++) {
        pr->mark[i] &= pr->need[i];
        pr->need[i] &= !pr->mark[i];
        any |= pr->mark[i];
    }
    if (!any)
        return;
    OPEN(whole_tiles(pr) ? "if (threadIdx.x < %d%s)" : "if (threadIdx.x < %d && inside%s)", pr->columns.lanes,
         parts_of_phase(pr) > 1 ? " && slice == 0" : "");
    chunk_begin(pr, pr->mark);
    chunk_open(pr);
    for (uint32_t i = 0; i < s->n; i++)
        if (pr->mark[i])
            chunk_store(pr, i);
    CLOSE();
    chunk_end(pr, pr->mark);
    CLOSE();
}

static void reduced_stores(Printer *pr)
{
    for (uint32_t i = 0; i < pr->s->n; i++)
        pr->mark[i] = sched_is_reduced_store(pr->s, i);
    column_stores(pr);
}

/* Prints the stores of reduction r itself at once, so that its registers become free. */
static void stores_of(Printer *pr, uint32_t r)
{
    const Sched *s = pr->s;
    for (uint32_t i = 0; i < s->n; i++)
        pr->mark[i] = sched_is_reduced_store(s, i) && s->ins[i].arg[0] == (int)r;
    column_stores(pr);
}

/* Opens the loop over this thread's partial results, which load_partial reads into u<which>. */
static void open_partials(Printer *pr)
{
    OPEN("for (int q = threadIdx.x / %d; q < %" PRId64 "; q += %" PRId64 ")", pr->columns.lanes, pr->parts.n,
         (int64_t)pr->launch.block / pr->columns.lanes);
}

static void load_partial(Printer *pr, uint32_t i, int which)
{
    char at[256];
    LINE("ALIGNED_16 %s u%d[%d];", text_type(&pr->s->ins[i]), which, pr->v.width);
    partial_address(pr, i, which, "q", at);
    LINE("wide_copy(u%d, %s, %d * sizeof *u%d);", which, at, pr->v.width, which);
}

static void rows_of_partial(Printer *pr)
{
    int64_t last = pr->s->nred - (pr->parts.n - 1) * pr->parts.per;
    LINE("const REAL n = q == %" PRId64 " ? %" PRId64 " : %" PRId64 ";", pr->parts.n - 1, last,
         pr->parts.per);
}

static void join_deviations(Printer *pr, uint32_t i)
{
    char name[NAME_LEN];
    begin_means(pr, i);
    open_partials(pr);
    load_partial(pr, i, 1);
    rows_of_partial(pr);
    each_element(pr);
    LINE("all%u[e] = FMA(n, u1[e], all%u[e]);", i, i);
    CLOSE();
    CLOSE();
    snprintf(name, sizeof name, "R(%" PRId64 ")", pr->s->nred);
    join_means(pr, i, name);
    open_partials(pr);
    load_partial(pr, i, 0);
    load_partial(pr, i, 1);
    rows_of_partial(pr);
    each_element(pr);
    LINE("c%u[e] += u0[e];", i);
    move_mean(pr, i, "u1[e]", "n");
    CLOSE();
    CLOSE();
    snprintf(name, sizeof name, "c%u", i);
    join_sums(pr, name);
}

static void join_partials(Printer *pr, int pass)
{
    const Sched *s = pr->s;
    for (uint32_t i = 0; i < s->n; i++) {
        if (!sched_reduces_at(s, i, pass) || !pr->need[i])
            continue;
        start(pr, i);
        if (deviates(pr, i)) {
            join_deviations(pr, i);
        } else {
            open_partials(pr);
            load_partial(pr, i, 0);
            each_element(pr);
            accumulate(pr, i, "u0[e]");
            CLOSE();
            CLOSE();
            join(pr, i);
        }
        stores_of(pr, i);
    }
}

/* ---- the kernel --------------------------------------------------------------------------------- */

static void begin(Printer *pr)
{
    const Sched *s = pr->s;
    const char *index = pr->w.index;
    int64_t parts = parts_of_phase(pr);
    char block[NAME_LEN] = "blockIdx.x";
    if (parts > 1) {
        LINE("const %s slice = blockIdx.x %% %" PRId64 ";", index, parts);
        snprintf(block, sizeof block, "blockIdx.x / %" PRId64, parts);
    }
    LINE("const %s item = %s / %" PRId64 ";", index, block, tiles(pr));
    LINE("const %s column = %s %% %" PRId64 " * %d + threadIdx.x %% %d;", index, block, tiles(pr),
         pr->columns.lanes, pr->columns.lanes);
    if (whole_tiles(pr)) {
        LINE("const %s j = column * %d;", index, pr->v.width);
    } else {
        LINE("const bool inside = column < %" PRId64 ";", chunks_along(pr));
        LINE("const %s j = inside ? column * %d : 0;", index, pr->v.width);
    }
    text_unpack(&pr->w, s, "item", ((1u << s->rank) - 1) & ~s->red & ~(1u << s->vec));
    if (parts > 1)
        LINE("const %s from = slice * %" PRId64 ", end = from + %" PRId64 ";", index, pr->parts.per,
             pr->parts.per);
    else
        LINE("const %s from = 0, end = %" PRId64 ";", index, s->nred);
    LINE("const %s to = %send < %" PRId64 " ? end : %" PRId64 ";", index,
         whole_tiles(pr) ? "" : "!inside ? from : ", s->nred, s->nred);
}

void column_kernel(Printer *pr)
{
    const Sched *s = pr->s;
    if (s->nitem == 0 || s->extent[s->vec] == 0) {
        LINE("return;");
        return;
    }
    parts_need(pr);
    cuda_shared_parts(pr, pr->launch.block * (unsigned)pr->v.width);
    begin(pr);
    pr->pass = 0;
    free_values(pr, 0);
    for (pr->pass = 0; pr->pass <= s->last; pr->pass++) {
        if (pr->parts.n > 1 && pr->pass < pr->phase) {
            join_partials(pr, pr->pass);
        } else {
            run_pass(pr, pr->pass);
            if (pr->parts.n > 1 && parts_wait(pr)) {
                store_partials(pr, pr->pass);
                return;
            }
        }
        free_values(pr, pr->pass + 1);
    }
    reduced_stores(pr);
}
