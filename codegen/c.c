/* c.c -- kernel descriptions printed as C for the CPU.
 *
 * Loops (schedule.h has the terms):
 *
 *   items (omp parallel for)            rows, blocks of columns, blocks of a flat range
 *     pass 0 .. last
 *       outer reduced dimensions        row kernels with several reduced dimensions; columns;
 *                                       or the tile of a pointwise kernel that transposes
 *         vector loop                   LANES accumulators along a row | one per column
 *       results of the pass             tree over the lanes | the columns' accumulators
 *     reduced stores
 *
 * Vector loops never carry a dependence: accumulators are arrays, one element per lane or column,
 * so compilers vectorise them under strict IEEE rules, and the order of every sum is fixed by the
 * shape alone.  Where there are few items and long reductions, the reduced range is cut into a
 * fixed number of chunks with partial results; their number depends on the shape, not on threads.
 *
 * A store in a vector loop follows the loads of its own element, so an output may lie on an input
 * read at the same positions (kernel_inplace); `omp simd` states that other elements differ. */
#include "codegen.h"
#include "text.h"
#include <inttypes.h>
#include <string.h>

enum {
    LANES = 32,          /* accumulators along a row */
    COLUMNS = 256,       /* columns of a block */
    FLAT_BLOCK = 4096,   /* elements of a pointwise item */
    TILE = 64,           /* indices of the tile dimension */
    TILE_BLOCK = 64,     /* and of the vector dimension beside it */
    ROW_BUFFER = 4096,   /* longest row of which heavy values are kept between passes */
    FEW_ITEMS = 32,      /* fewer rows or blocks than this: cut the reduced range */
    CHUNK_ROW = 8192,    /* reduced points of a chunk, rows */
    CHUNK_COLUMN = 256,  /* and columns */
    MAX_CHUNKS = 64,
    SCRATCH = 65536,     /* elements of partial results, all reductions together */
    PARALLEL_WORK = 32768 /* instructions below which one thread is faster */
};

typedef struct {
    Writer w;
    const char *name;
    const Sched *s;
    int64_t items, blocks, width; /* items in all; blocks of the vector dimension per item */
    int64_t tiles;                /* blocks of the tile dimension per item, 1 if there is none */
    int64_t chunks, chunk;        /* 0: not cut; reduced indices per chunk */
    int lanes, cut;               /* cut: the dimension that is cut */
    bool parallel, lane_loop;
    bool *mark;
    Scope here;                   /* scope being printed */
    int column_level;             /* in a column loop: the level whose values are at hand */
} Printer;

#define LINE(...) text_line(&pr->w, __VA_ARGS__)
#define OPEN(...) text_open(&pr->w, __VA_ARGS__)
#define CLOSE() text_close(&pr->w)

/* ---- names -------------------------------------------------------------------------------- */

static void name_of(const void *ctx, int v, char buf[NAME_LEN])
{
    const Printer *pr = ctx;
    const Sched *s = pr->s;
    const KInst *in = &s->ins[v];
    bool vector = pr->here == SCOPE_VECTOR || pr->here == SCOPE_COLUMN;
    if (in->kind == K_CONST)
        text_const(in, buf);
    else if (sched_is_reduce(in) && s->kind == SCHED_COLUMN && vector)
        snprintf(buf, NAME_LEN, "a%d[c]", v);
    else if (s->scope[v] == SCOPE_COLUMN && !sched_is_reduce(in) &&
             !(pr->here == SCOPE_COLUMN && s->level[v] == pr->column_level))
        snprintf(buf, NAME_LEN, "t%d[c]", v);
    else if (s->saved[v] && !pr->mark[v])
        snprintf(buf, NAME_LEN, "b%d[i%d]", v, s->vec);
    else
        snprintf(buf, NAME_LEN, "v%d", v);
}

/* A load that runs along the tile dimension: its tile is copied to u<i> first. */
static bool is_staged(const Sched *s, uint32_t i)
{
    const KInst *in = &s->ins[i];
    return s->tile >= 0 && in->kind == K_LOAD && s->live[i] && in->stride[s->tile] == 1 &&
           in->stride[s->vec] != 0 && in->stride[s->vec] != 1;
}

/* Random draws of consecutive elements are several times cheaper together: one call of the
 * generator serves four.  They are made for the whole item, into u<i>. */
static bool is_bulk(const Sched *s, uint32_t i)
{
    const KInst *in = &s->ins[i];
    if (in->kind != K_EXPR || !s->live[i] || strcmp(in->expr->text, "PHILOX_UNIFORM(a, al, b, c)"))
        return false;
    bool fits = s->kind == SCHED_POINT
                    ? s->tile < 0
                    : s->kind == SCHED_ROW && s->red == 1u << s->vec && s->nred <= ROW_BUFFER;
    const KInst *at = &s->ins[in->arg[2]];
    return fits && at->kind == K_INDEX && at->stride[s->vec] == 1 &&
           s->scope[in->arg[0]] == SCOPE_ITEM && s->scope[in->arg[1]] == SCOPE_ITEM;
}

static void value(Printer *pr, uint32_t i)
{
    const KInst *in = &pr->s->ins[i];
    if (is_bulk(pr->s, i))
        LINE("const REAL v%u = R(u%u[i%d - e%u]) * R(5.9604644775390625e-8);", i, i, pr->s->vec, i);
    else if (is_staged(pr->s, i))
        LINE("const %s v%u = LD_%s(u%u[c], i%d - t0);", text_type(in), i,
             dtype_name[pr->s->k->operand[in->operand]], i, pr->s->tile);
    else
        text_value(&pr->w, pr->s, (int)i, name_of, pr);
}

static bool is_plain(const KInst *in)
{
    return in->kind != K_STORE && !sched_is_reduce(in);
}

/* ---- shape of the loops -------------------------------------------------------------------- */

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

static int count_reductions(const Sched *s)
{
    int n = 0;
    for (uint32_t i = 0; i < s->n; i++)
        n += s->live[i] && sched_is_reduce(&s->ins[i]);
    return n;
}

static void choose_chunks(Printer *pr)
{
    const Sched *s = pr->s;
    bool row = s->kind == SCHED_ROW, few = pr->items < FEW_ITEMS;
    int reductions = count_reductions(s);
    pr->cut = 0;
    while (!(s->red >> pr->cut & 1))
        pr->cut++;
    if (reductions == 0 || pr->items == 0 || (!few && (row || s->last > 0)))
        return;
    int64_t n = s->nred / (row ? CHUNK_ROW : CHUNK_COLUMN);
    int64_t room = SCRATCH / (pr->items * pr->width * reductions);
    n = n < MAX_CHUNKS ? n : MAX_CHUNKS;
    n = n < room ? n : room;
    int64_t unit = row && pr->cut == s->vec ? pr->lanes : 1;
    int64_t steps = ceil_div(s->extent[pr->cut], unit);
    n = n < steps ? n : steps;
    if (n < 2)
        return;
    pr->chunk = ceil_div(steps, n) * unit;
    pr->chunks = ceil_div(s->extent[pr->cut], pr->chunk);
}

static void choose_loops(Printer *pr)
{
    const Sched *s = pr->s;
    int64_t n = s->extent[s->vec], points = s->nitem * s->nred;
    pr->blocks = pr->width = pr->tiles = 1;
    if (s->kind == SCHED_ROW) {
        for (pr->lanes = LANES; pr->lanes > n && pr->lanes > 1;)
            pr->lanes /= 2;
    } else {
        pr->width = s->kind == SCHED_COLUMN ? COLUMNS : s->tile >= 0 ? TILE_BLOCK : FLAT_BLOCK;
        if (n < pr->width)
            pr->width = n > 0 ? n : 1;
        pr->blocks = ceil_div(n, pr->width);
        points *= n;
    }
    pr->items = s->nitem * pr->blocks;
    if (s->tile >= 0) {
        pr->tiles = ceil_div(s->extent[s->tile], TILE);
        pr->items = pr->items / s->extent[s->tile] * pr->tiles;
    }
    pr->parallel = points * (int64_t)s->n >= PARALLEL_WORK;
    if (s->red)
        choose_chunks(pr);
}

/* ---- one item --------------------------------------------------------------------------------- */

static uint32_t item_mask(const Sched *s)
{
    uint32_t all = (1u << s->rank) - 1;
    uint32_t inner = s->kind == SCHED_ROW ? 0 : 1u << s->vec;
    return all & ~s->red & ~inner & ~(s->tile < 0 ? 0 : 1u << s->tile);
}

/* Item scope values that become known at a level. */
static void item_values(Printer *pr, int level)
{
    const Sched *s = pr->s;
    pr->here = SCOPE_ITEM;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->live[i] && s->scope[i] == SCOPE_ITEM && s->level[i] == level &&
            is_plain(&s->ins[i]))
            value(pr, i);
}

static void item_indices(Printer *pr)
{
    const Sched *s = pr->s;
    if (pr->blocks > 1) {
        bool alone = pr->items == pr->blocks && s->tile < 0;
        if (alone)
            LINE("const int64_t c0 = item * %" PRId64 ";", pr->width);
        else
            LINE("const int64_t c0 = item %% %" PRId64 " * %" PRId64 ";", pr->blocks, pr->width);
        if (!alone)
            LINE("const int64_t outer = item / %" PRId64 ";", pr->blocks);
        if (s->extent[s->vec] % pr->width)
            LINE("const int64_t w = c0 + %" PRId64 " <= %" PRId64 " ? %" PRId64 " : %" PRId64
                 " - c0;", pr->width, s->extent[s->vec], pr->width, s->extent[s->vec]);
    }
    const char *rest = pr->blocks > 1 ? "outer" : "item";
    if (s->tile >= 0) {
        int64_t n = s->extent[s->tile];
        LINE("const int64_t t0 = %s %% %" PRId64 " * %d;", rest, pr->tiles, TILE);
        LINE("const int64_t t1 = t0 + %d < %" PRId64 " ? t0 + %d : %" PRId64 ";", TILE, n, TILE, n);
        LINE("const int64_t above = %s / %" PRId64 ";", rest, pr->tiles);
        rest = "above";
    }
    text_unpack(&pr->w, s, rest, item_mask(s));
}

/* The loop over the columns of an item (or its part of a flat range). */
static void open_columns(Printer *pr, bool simd)
{
    const Sched *s = pr->s;
    if (simd)
        LINE("#pragma omp simd");
    if (pr->blocks > 1 && s->extent[s->vec] % pr->width)
        OPEN("for (int64_t c = 0; c < w; c++)");
    else
        OPEN("for (int64_t c = 0; c < %" PRId64 "; c++)",
             s->extent[s->vec] == 0 ? 0 : pr->width);
    LINE(pr->blocks > 1 ? "const int64_t i%d = c0 + c;" : "const int64_t i%d = c;", s->vec);
}

/* Values per column that a pass made known, kept in t<i> for later loops. */
static void column_values(Printer *pr, int level)
{
    const Sched *s = pr->s;
    memset(pr->mark, 0, s->n * sizeof *pr->mark);
    bool any = false;
    for (uint32_t i = s->n; i-- > 0;) {
        bool mine = s->live[i] && s->scope[i] == SCOPE_COLUMN && is_plain(&s->ins[i]) &&
                    s->level[i] == level;
        pr->mark[i] |= mine;
        any |= mine;
        bool inner = mine || (s->scope[i] == SCOPE_VECTOR && s->level[i] == 0);
        for (int a = 0; a < sched_nargs(&s->ins[i]) && pr->mark[i] && inner; a++)
            pr->mark[s->ins[i].arg[a]] = true;
        if (mine)
            LINE("%s t%u[%" PRId64 "];", text_type(&s->ins[i]), i, pr->width);
    }
    if (!any)
        return;
    pr->here = SCOPE_COLUMN;
    pr->column_level = level;
    open_columns(pr, true);
    for (uint32_t i = 0; i < s->n; i++) {
        bool mine = s->scope[i] == SCOPE_COLUMN && s->level[i] == level;
        if (pr->mark[i] && is_plain(&s->ins[i]) && (mine || s->scope[i] == SCOPE_VECTOR))
            value(pr, i);
        if (pr->mark[i] && mine && is_plain(&s->ins[i]))
            LINE("t%u[c] = v%u;", i, i);
    }
    CLOSE();
}

/* ---- a pass -------------------------------------------------------------------------------------- */

/* The statements of the vector loop; acc: index of the accumulator. */
static void vector_body(Printer *pr, int pass, const char *acc)
{
    const Sched *s = pr->s;
    char v[NAME_LEN], a[NAME_LEN];
    pr->here = SCOPE_VECTOR;
    for (uint32_t i = 0; i < s->n; i++)
        if (pr->mark[i] && is_plain(&s->ins[i]) && s->scope[i] == SCOPE_VECTOR) {
            value(pr, i);
            if (s->saved[i])
                LINE("b%u[i%d] = v%u;", i, s->vec, i);
        }
    for (uint32_t i = 0; i < s->n; i++) {
        if (!sched_is_root(s, i, pass))
            continue;
        if (s->ins[i].kind == K_STORE) {
            text_store(&pr->w, s, (int)i, name_of, pr);
            continue;
        }
        name_of(pr, s->ins[i].arg[0], v);
        snprintf(a, sizeof a, "a%u[%s]", i, acc);
        text_accumulate(&pr->w, &s->ins[i], a, v);
    }
}

static void outer_values(Printer *pr)
{
    const Sched *s = pr->s;
    pr->here = SCOPE_OUTER;
    for (uint32_t i = 0; i < s->n; i++)
        if (pr->mark[i] && is_plain(&s->ins[i]) && s->scope[i] == SCOPE_OUTER)
            value(pr, i);
}

/* Loops over the tile or the reduced dimensions outside the vector dimension; returns how many. */
static int open_outer(Printer *pr)
{
    const Sched *s = pr->s;
    int n = s->tile >= 0;
    if (s->tile >= 0)
        OPEN("for (int64_t i%d = t0; i%d < t1; i%d++)", s->tile, s->tile, s->tile);
    for (int d = 0; d < s->rank; d++) {
        if (!(s->red >> d & 1) || d == s->vec)
            continue;
        if (pr->chunks && d == pr->cut)
            OPEN("for (int64_t i%d = begin; i%d < end; i%d++)", d, d, d);
        else
            OPEN("for (int64_t i%d = 0; i%d < %" PRId64 "; i%d++)", d, d, s->extent[d], d);
        n++;
    }
    return n;
}

static void lane_loop(Printer *pr, int pass, const char *count)
{
    LINE("#pragma omp simd");
    OPEN("for (int l = 0; l < %s; l++)", count);
    LINE("const int64_t i%d = j + l;", pr->s->vec);
    vector_body(pr, pass, "l");
    CLOSE();
}

/* Along a row: LANES elements at a time, then the rest into the first lanes. */
static void row_vector(Printer *pr, int pass, bool reduces)
{
    const Sched *s = pr->s;
    char count[NAME_LEN];
    int64_t n = s->extent[s->vec];
    bool cut = pr->chunks && pr->cut == s->vec;
    if (!reduces) {
        LINE("#pragma omp simd");
        if (cut)
            OPEN("for (int64_t i%d = begin; i%d < end; i%d++)", s->vec, s->vec, s->vec);
        else
            OPEN("for (int64_t i%d = 0; i%d < %" PRId64 "; i%d++)", s->vec, s->vec, n, s->vec);
        vector_body(pr, pass, "");
        CLOSE();
        return;
    }
    LINE(cut ? "int64_t j = begin;" : "int64_t j = 0;");
    snprintf(count, sizeof count, cut ? "end" : "%" PRId64, n);
    OPEN("for (; j + %d <= %s; j += %d)", pr->lanes, count, pr->lanes);
    snprintf(count, sizeof count, "%d", pr->lanes);
    lane_loop(pr, pass, count);
    CLOSE();
    if (n % pr->lanes) {
        snprintf(count, sizeof count, cut ? "end - j" : "%" PRId64, n % pr->lanes);
        lane_loop(pr, pass, count);
    }
}

static bool begin_pass(Printer *pr, int pass)
{
    const Sched *s = pr->s;
    bool reduces = false;
    for (uint32_t i = 0; i < s->n; i++) {
        const KInst *in = &s->ins[i];
        if (!s->live[i] || !sched_is_reduce(in) || s->level[i] != pass + 1)
            continue;
        int64_t n = s->kind == SCHED_ROW ? pr->lanes : pr->width;
        LINE("%s a%u[%" PRId64 "];", text_type(in), i, n);
        LINE("for (int c = 0; c < %" PRId64 "; c++)", n);
        LINE("    a%u[c] = %s;", i, text_start(in));
        reduces = true;
    }
    memset(pr->mark, 0, s->n * sizeof *pr->mark);
    sched_vector_set(s, pass, pr->mark);
    return reduces;
}

static const char *tree_op(const KInst *in)
{
    return in->kind == K_SUM ? "ADD" : in->kind == K_PROD ? "MUL"
                                   : in->kind == K_MAX    ? "FMAX" : "FMIN";
}

/* All loops of one pass for the current item; partial results are in a<i>. */
static void run_pass(Printer *pr, int pass)
{
    const Sched *s = pr->s;
    bool reduces = begin_pass(pr, pass);
    bool block = s->kind == SCHED_ROW; /* j is declared inside */
    int loops = open_outer(pr);
    outer_values(pr);
    if (block) {
        if (loops == 0)
            text_block(&pr->w);
        row_vector(pr, pass, reduces);
        if (loops == 0)
            CLOSE();
    } else {
        open_columns(pr, true);
        vector_body(pr, pass, "c");
        CLOSE();
    }
    while (loops-- > 0)
        CLOSE();
    for (uint32_t i = 0; i < s->n && s->kind == SCHED_ROW; i++)
        if (s->live[i] && sched_is_reduce(&s->ins[i]) && s->level[i] == pass + 1)
            LINE("TREE(%s, a%u, %d);", tree_op(&s->ins[i]), i, pr->lanes);
}

/* Stores of reduced values, at the very end of an item. */
static bool is_reduced_store(const Sched *s, uint32_t i)
{
    return s->ins[i].kind == K_STORE && s->red && !(s->dep[i] & s->red);
}

static void item_stores(Printer *pr)
{
    const Sched *s = pr->s;
    memset(pr->mark, 0, s->n * sizeof *pr->mark);
    bool column = false;
    for (uint32_t i = s->n; i-- > 0;) {
        bool mine = is_reduced_store(s, i) && s->scope[i] != SCOPE_ITEM;
        column |= mine;
        pr->mark[i] |= mine;
        bool inner = mine || (s->scope[i] == SCOPE_VECTOR && s->level[i] == 0);
        for (int a = 0; a < sched_nargs(&s->ins[i]) && pr->mark[i] && inner; a++)
            pr->mark[s->ins[i].arg[a]] = true;
    }
    if (column) {
        open_columns(pr, true);
        pr->here = SCOPE_VECTOR;
        for (uint32_t i = 0; i < s->n; i++)
            if (pr->mark[i] && is_plain(&s->ins[i]) && s->scope[i] == SCOPE_VECTOR)
                value(pr, i);
        for (uint32_t i = 0; i < s->n; i++)
            if (pr->mark[i] && s->ins[i].kind == K_STORE)
                text_store(&pr->w, s, (int)i, name_of, pr);
        CLOSE();
    }
    pr->here = SCOPE_ITEM;
    for (uint32_t i = 0; i < s->n; i++)
        if (is_reduced_store(s, i) && s->scope[i] == SCOPE_ITEM)
            text_store(&pr->w, s, (int)i, name_of, pr);
}

/* ---- the whole kernel ------------------------------------------------------------------------------ */

static void row_buffers(Printer *pr)
{
    for (uint32_t i = 0; i < pr->s->n; i++)
        if (pr->s->saved[i])
            LINE("%s b%u[%" PRId64 "];", text_type(&pr->s->ins[i]), i, pr->s->nred);
}

/* Copy the tiles of transposed operands, reading whole cache lines, each once. */
static void stage_tiles(Printer *pr)
{
    const Sched *s = pr->s;
    char at[512];
    for (uint32_t i = 0; i < s->n; i++) {
        if (!is_staged(s, i))
            continue;
        LINE("%s u%u[%" PRId64 "][%d];", text_element(s->k->operand[s->ins[i].operand]), i,
             pr->width, TILE + 1);
        open_columns(pr, false);
        OPEN("for (int64_t i%d = t0; i%d < t1; i%d++)", s->tile, s->tile, s->tile);
        text_address(s, &s->ins[i], at, sizeof at);
        LINE("u%u[c][i%d - t0] = p%d[%s];", i, s->tile, s->ins[i].operand, at);
        CLOSE();
        CLOSE();
    }
}

/* Draws for all elements of the item, from element e<i> of the vector dimension on. */
static void draw_bulk(Printer *pr)
{
    const Sched *s = pr->s;
    char seed[NAME_LEN], step[NAME_LEN], count[NAME_LEN], at[512];
    bool row = s->kind == SCHED_ROW, part = !row && pr->blocks > 1;
    pr->here = SCOPE_ITEM;
    for (uint32_t i = 0; i < s->n; i++) {
        if (!is_bulk(s, i))
            continue;
        KInst first = s->ins[s->ins[i].arg[2]];
        first.stride[s->vec] = 0;
        text_address(s, &first, at, sizeof at);
        name_of(pr, s->ins[i].arg[0], seed);
        name_of(pr, s->ins[i].arg[1], step);
        LINE("int32_t u%u[%" PRId64 "];", i, (row ? s->nred : pr->width) + 6);
        LINE("const int64_t f%u = %s%s;", i, at, part ? " + c0" : "");
        LINE("const int64_t e%u = %s - (f%u & 3);", i, part ? "c0" : "0", i);
        if (part && s->extent[s->vec] % pr->width)
            snprintf(count, sizeof count, "w");
        else
            snprintf(count, sizeof count, "%" PRId64, row ? s->nred : pr->width);
        LINE("philox_fill(u%u, %s, %s, INT64_C(%" PRId64 "), %s, f%u);", i, count, seed,
             (int64_t)s->ins[i].al, step, i);
    }
}

/* Every item from start to end on one thread. */
static void whole_items(Printer *pr)
{
    const Sched *s = pr->s;
    if (pr->parallel && pr->items > 1)
        LINE("#pragma omp parallel for schedule(static)");
    OPEN("for (int64_t item = 0; item < %" PRId64 "; item++)", pr->items);
    item_indices(pr);
    row_buffers(pr);
    stage_tiles(pr);
    item_values(pr, 0);
    draw_bulk(pr);
    for (int pass = 0; pass <= s->last; pass++) {
        run_pass(pr, pass);
        for (uint32_t i = 0; i < s->n && s->kind == SCHED_ROW; i++)
            if (s->live[i] && sched_is_reduce(&s->ins[i]) && s->level[i] == pass + 1)
                LINE("const %s v%u = a%u[0];", text_type(&s->ins[i]), i, i);
        item_values(pr, pass + 1);
        if (s->kind == SCHED_COLUMN)
            column_values(pr, pass + 1);
    }
    item_stores(pr);
    CLOSE();
}

/* Results of the passes before `pass`, from r<i>. */
static void known_results(Printer *pr, int pass)
{
    const Sched *s = pr->s;
    item_values(pr, 0);
    for (int level = 1; level <= pass; level++) {
        for (uint32_t i = 0; i < s->n; i++) {
            if (!s->live[i] || !sched_is_reduce(&s->ins[i]) || s->level[i] != level)
                continue;
            const char *type = text_type(&s->ins[i]);
            if (s->kind == SCHED_ROW)
                LINE("const %s v%u = r%u[item];", type, i, i);
            else
                LINE("const %s *a%u = r%u + item * %" PRId64 ";", type, i, i, pr->width);
        }
        item_values(pr, level);
        if (s->kind == SCHED_COLUMN)
            column_values(pr, level);
    }
}

static void open_work(Printer *pr, const char *what, int64_t n)
{
    if (pr->parallel)
        LINE("#pragma omp for schedule(static)");
    OPEN("for (int64_t %s = 0; %s < %" PRId64 "; %s++)", what, what, n, what);
}

/* r = partial results of all chunks, added in order. */
static void join_chunks(Printer *pr, int pass)
{
    const Sched *s = pr->s;
    open_work(pr, "item", pr->items);
    for (uint32_t i = 0; i < s->n; i++) {
        if (!s->live[i] || !sched_is_reduce(&s->ins[i]) || s->level[i] != pass + 1)
            continue;
        char acc[NAME_LEN], part[NAME_LEN];
        snprintf(acc, sizeof acc, "r%u[item * %" PRId64 " + c]", i, pr->width);
        snprintf(part, sizeof part, "s%u[(item * %" PRId64 " + k) * %" PRId64 " + c]", i,
                 pr->chunks, pr->width);
        LINE("for (int c = 0; c < %" PRId64 "; c++)", pr->width);
        LINE("    %s = %s;", acc, text_start(&s->ins[i]));
        LINE("for (int k = 0; k < %" PRId64 "; k++)", pr->chunks);
        LINE("    for (int c = 0; c < %" PRId64 "; c++)", pr->width);
        pr->w.indent += 2;
        text_accumulate(&pr->w, &s->ins[i], acc, part);
        pr->w.indent -= 2;
    }
    CLOSE();
}

static void chunk_pass(Printer *pr, int pass)
{
    const Sched *s = pr->s;
    int64_t n = s->extent[pr->cut];
    bool reduces = false;
    open_work(pr, "work", pr->items * pr->chunks);
    LINE("const int64_t item = work / %" PRId64 ", begin = work %% %" PRId64 " * %" PRId64 ";",
         pr->chunks, pr->chunks, pr->chunk);
    LINE("const int64_t end = begin + %" PRId64 " < %" PRId64 " ? begin + %" PRId64
         " : %" PRId64 ";", pr->chunk, n, pr->chunk, n);
    item_indices(pr);
    known_results(pr, pass);
    run_pass(pr, pass);
    for (uint32_t i = 0; i < s->n; i++) {
        if (!s->live[i] || !sched_is_reduce(&s->ins[i]) || s->level[i] != pass + 1)
            continue;
        LINE("for (int c = 0; c < %" PRId64 "; c++)", pr->width);
        LINE("    s%u[work * %" PRId64 " + c] = a%u[c];", i, pr->width, i);
        reduces = true;
    }
    CLOSE();
    if (reduces)
        join_chunks(pr, pass);
}

static void chunked_items(Printer *pr)
{
    const Sched *s = pr->s;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->live[i] && sched_is_reduce(&s->ins[i]))
            LINE("%s s%u[%" PRId64 "], r%u[%" PRId64 "];", text_type(&s->ins[i]), i,
                 pr->items * pr->chunks * pr->width, i, pr->items * pr->width);
    if (pr->parallel)
        LINE("#pragma omp parallel");
    text_block(&pr->w);
    for (int pass = 0; pass <= s->last; pass++)
        chunk_pass(pr, pass);
    bool stores = false;
    for (uint32_t i = 0; i < s->n; i++)
        stores |= is_reduced_store(s, i);
    if (stores) {
        open_work(pr, "item", pr->items);
        item_indices(pr);
        known_results(pr, s->last + 1);
        item_stores(pr);
        CLOSE();
    }
    CLOSE();
}

static void operands(Printer *pr, const Kernel *k, Arena *a)
{
    bool *used = NEW(a, bool, k->noperands + 1), *stored = NEW(a, bool, k->noperands + 1);
    for (uint32_t i = 0; i < pr->s->n; i++) {
        const KInst *in = &pr->s->ins[i];
        if (pr->s->live[i] && (in->kind == K_LOAD || in->kind == K_STORE))
            used[in->operand] = true;
        if (in->kind == K_STORE)
            stored[in->operand] = true;
    }
    for (int i = 0; i < k->noperands; i++)
        if (used[i])
            LINE("%s%s *const p%d = op[%d];", stored[i] ? "" : "const ",
                 text_element(k->operand[i]), i, i);
}

static void print_dag(Printer *pr, const Kernel *k)
{
    Arena a = {0};
    Sched s;
    sched_make(&s, k, ROW_BUFFER, &a);
    pr->s = &s;
    pr->mark = NEW(&a, bool, s.n + 1);
    choose_loops(pr);
    LINE("#undef REAL");
    LINE("#define REAL %s", s.f64 ? "double" : "float");
    LINE("void %s(void *const *op);", pr->name);
    LINE("void %s(void *const *op)", pr->name);
    text_block(&pr->w);
    operands(pr, k, &a);
    if (pr->chunks)
        chunked_items(pr);
    else
        whole_items(pr);
    CLOSE();
    arena_free(&a);
}

static void print_body(Printer *pr, const Kernel *k)
{
    bool f64 = false;
    for (int i = 0; i < k->noperands; i++)
        f64 |= k->operand[i] == DT_F64;
    LINE("#undef REAL");
    LINE("#define REAL %s", f64 ? "double" : "float");
    text_body(&pr->w, k, pr->name, "FN");
    LINE("void %s(void *const *op);", pr->name);
    LINE("void %s(void *const *op)", pr->name);
    text_block(&pr->w);
    if (k->items > 1024 || (k->items > 1 && k->flops >= PARALLEL_WORK))
        LINE("#pragma omp parallel for schedule(static)");
    LINE("for (int64_t i = 0; i < %" PRId64 "; i++)", k->items);
    text_body_call(&pr->w, k, pr->name, "op[", "]", "i");
    CLOSE();
}

bool kernel_print_c(const Kernel *k, const char *name, FILE *f)
{
    Printer pr = {.w = {f, 0, "int64_t"}, .name = name};
    fprintf(f, "\n/* kernel %s */\n", name); /* runtime/kernel_cache.c cuts here */
    if (k->body)
        print_body(&pr, k);
    else
        print_dag(&pr, k);
    return !ferror(f);
}

void codegen_prelude_c(FILE *f)
{
    text_prelude(f, prelude_c);
    text_prelude(f, prelude_philox);
    text_prelude(f, prelude_math);
}

int codegen_c(FILE *f, Kernel *const *k, int n, int *func_of_kernel)
{
    codegen_prelude_c(f);
    return text_distinct(f, k, n, func_of_kernel, kernel_print_c);
}
