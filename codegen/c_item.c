/* c_item.c -- the loops of one item of a C kernel: names, values, passes, reduced stores.
 *
 * Names in the text: v<i> value of instruction i; p<k> operand k; i<d> index along dimension d;
 * c column within the block, l lane; a<i> accumulators, z<i> the sum of what they held before, t<i> values
 * per column, b<i> values kept for a later pass, u<i> a tile or draws made ahead. */
#include "c_int.h"
#include <inttypes.h>
#include <string.h>

/* ---- names -------------------------------------------------------------------------------- */

/* Writes the name or literal of a value at the place being printed; ctx is the Printer. */
static void c_name(const void *ctx, int v, char buf[NAME_LEN])
{
    const Printer *pr = ctx;
    const Sched *s = pr->s;
    const KInst *in = &s->ins[v];
    bool vector = pr->here == SCOPE_VECTOR || pr->here == SCOPE_COLUMN;
    if (in->kind == K_CONST)
        text_const(in, buf);
    else if (k_reduces(in) && s->kind == SCHED_COLUMN && vector)
        snprintf(buf, NAME_LEN, "a%d[c]", v);
    else if (s->scope[v] == SCOPE_COLUMN && !k_reduces(in) &&
             !(pr->here == SCOPE_COLUMN && s->level[v] == pr->column_level))
        snprintf(buf, NAME_LEN, "t%d[c]", v);
    else if (s->saved[v] && !pr->mark[v])
        snprintf(buf, NAME_LEN, "b%d[i%d]", v, s->vec);
    else
        snprintf(buf, NAME_LEN, "v%d", v);
}

/* Is instruction i a random draw that is made for a whole item at once, into u<i>?  Draws of consecutive
 * elements are several times cheaper together, as one call of the generator serves four. */
static bool is_bulk(const Sched *s, uint32_t i)
{
    const KInst *in = &s->ins[i];
    if (in->kind != K_EXPR || !s->live[i] || in->expr->cost != EXPR_UNIFORM)
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
    else if (sched_is_staged(pr->s, i))
        LINE("const %s v%u = LD_%s(u%u[c], i%d - t0);", text_type(in), i,
             dtype_name[pr->s->k->operand[in->operand]], i, pr->s->tile);
    else
        text_value(&pr->w, pr->s, (int)i, c_name, pr);
}

/* ---- one item --------------------------------------------------------------------------------- */

static uint32_t item_mask(const Sched *s)
{
    uint32_t all = (1u << s->rank) - 1;
    uint32_t inner = s->kind == SCHED_ROW ? 0 : 1u << s->vec;
    return all & ~s->red & ~inner & ~(s->tile < 0 ? 0 : 1u << s->tile);
}

/* Prints the item scope values that become known at a level. */
void c_item_values(Printer *pr, int level)
{
    const Sched *s = pr->s;
    pr->here = SCOPE_ITEM;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->live[i] && s->scope[i] == SCOPE_ITEM && s->level[i] == level &&
            sched_is_plain(&s->ins[i]))
            value(pr, i);
}

void c_item_indices(Printer *pr)
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

/* Opens the loop over the columns of an item (or over its part of a flat range). */
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

/* Prints the values per column that a pass made known, kept in t<i> for later loops. */
void c_column_values(Printer *pr, int level)
{
    const Sched *s = pr->s;
    memset(pr->mark, 0, s->n * sizeof *pr->mark);
    bool any = false;
    for (uint32_t i = s->n; i-- > 0;) {
        bool mine = s->live[i] && s->scope[i] == SCOPE_COLUMN && sched_is_plain(&s->ins[i]) &&
                    s->level[i] == level;
        pr->mark[i] |= mine;
        any |= mine;
        bool inner = mine || (s->scope[i] == SCOPE_VECTOR && s->level[i] == 0);
        for (int a = 0; a < k_nargs(&s->ins[i]) && pr->mark[i] && inner; a++)
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
        if (pr->mark[i] && sched_is_plain(&s->ins[i]) && (mine || s->scope[i] == SCOPE_VECTOR))
            value(pr, i);
        if (pr->mark[i] && mine && sched_is_plain(&s->ins[i]))
            LINE("t%u[c] = v%u;", i, i);
    }
    CLOSE();
}

/* ---- a pass -------------------------------------------------------------------------------------- */

/* Prints the statements of the vector loop; acc: the index of the accumulator. */
static void vector_body(Printer *pr, int pass, const char *acc)
{
    const Sched *s = pr->s;
    char v[NAME_LEN], a[NAME_LEN];
    pr->here = SCOPE_VECTOR;
    for (uint32_t i = 0; i < s->n; i++)
        if (pr->mark[i] && sched_is_plain(&s->ins[i]) && s->scope[i] == SCOPE_VECTOR) {
            value(pr, i);
            if (s->saved[i])
                LINE("b%u[i%d] = v%u;", i, s->vec, i);
        }
    for (uint32_t i = 0; i < s->n; i++) {
        if (!sched_is_root(s, i, pass))
            continue;
        if (s->ins[i].kind == K_STORE) {
            text_store(&pr->w, s, (int)i, c_name, pr);
            continue;
        }
        c_name(pr, s->ins[i].arg[0], v);
        snprintf(a, sizeof a, "a%u[%s]", i, acc);
        text_accumulate(&pr->w, &s->ins[i], a, v);
    }
}

static void outer_values(Printer *pr)
{
    const Sched *s = pr->s;
    pr->here = SCOPE_OUTER;
    for (uint32_t i = 0; i < s->n; i++)
        if (pr->mark[i] && sched_is_plain(&s->ins[i]) && s->scope[i] == SCOPE_OUTER)
            value(pr, i);
}

/* ---- reduced loops; g, h: where the current block of loop `summed` begins and ends ----------------- */

/* Prints, for every accumulator of a pass, a statement that adds from[c] to to[c]. */
static void add_parts(Printer *pr, int pass, const char *to, const char *from)
{
    char acc[NAME_LEN], part[NAME_LEN];
    for (uint32_t i = 0; i < pr->s->n; i++) {
        if (!sched_reduces_at(pr->s, i, pass))
            continue;
        snprintf(acc, sizeof acc, "%s%u[c]", to, i);
        snprintf(part, sizeof part, "%s%u[c]", from, i);
        text_accumulate(&pr->w, &pr->s->ins[i], acc, part);
    }
}

static void clear(Printer *pr, int pass, const char *to)
{
    for (uint32_t i = 0; i < pr->s->n; i++)
        if (sched_reduces_at(pr->s, i, pass))
            LINE("%s%u[c] = %s;", to, i, text_start(&pr->s->ins[i]));
}

static void open_accumulators(Printer *pr)
{
    OPEN("for (int c = 0; c < %" PRId64 "; c++)", pr->s->kind == SCHED_ROW ? pr->lanes : pr->width);
}

static void close_block(Printer *pr, int pass)
{
    open_accumulators(pr);
    add_parts(pr, pass, "z", "a");
    clear(pr, pass, "a");
    CLOSE();
    CLOSE();
}

/* Opens the loops over the tile or the reduced dimensions outside the vector dimension. */
static void open_outer(Printer *pr, bool reduces)
{
    const Sched *s = pr->s;
    if (s->tile >= 0)
        OPEN("for (int64_t i%d = t0; i%d < t1; i%d++)", s->tile, s->tile, s->tile);
    for (int d = 0; d < s->rank; d++) {
        bool cut = pr->chunks && d == pr->cut, block = reduces && d == pr->summed;
        char end[NAME_LEN];
        if (!(s->red >> d & 1) || d == s->vec)
            continue;
        snprintf(end, sizeof end, cut ? "end" : "%" PRId64, s->extent[d]);
        if (block) {
            OPEN("for (int64_t g = %s, h; g < %s; g = h)", cut ? "begin" : "0", end);
            LINE("h = g + %" PRId64 " < %s ? g + %" PRId64 " : %s;", pr->step, end, pr->step, end);
        }
        const char *from = block ? "g" : cut ? "begin" : "0";
        OPEN("for (int64_t i%d = %s; i%d < %s; i%d++)", d, from, d, block ? "h" : end, d);
    }
}

static void close_outer(Printer *pr, int pass, bool reduces)
{
    const Sched *s = pr->s;
    for (int d = s->rank; d-- > 0;) {
        if (!(s->red >> d & 1) || d == s->vec)
            continue;
        CLOSE();
        if (reduces && d == pr->summed)
            close_block(pr, pass);
    }
    if (s->tile >= 0)
        CLOSE();
}

static void lane_loop(Printer *pr, int pass, const char *count)
{
    LINE("#pragma omp simd");
    OPEN("for (int l = 0; l < %s; l++)", count);
    LINE("const int64_t i%d = j + l;", pr->s->vec);
    vector_body(pr, pass, "l");
    CLOSE();
}

/* Prints the loop along a row: `lanes` elements at a time, then the rest into the first lanes. */
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
    text_block(&pr->w);
    LINE(cut ? "int64_t j = begin;" : "int64_t j = 0;");
    snprintf(count, sizeof count, cut ? "end" : "%" PRId64, n);
    if (pr->summed == s->vec) {
        int64_t step = pr->step * pr->lanes;
        OPEN("while (j + %d <= %s)", pr->lanes, count);
        LINE("const int64_t h = j + %" PRId64 " < %s ? j + %" PRId64 " : %s;", step, count, step, count);
        snprintf(count, sizeof count, "h");
    }
    OPEN("for (; j + %d <= %s; j += %d)", pr->lanes, count, pr->lanes);
    snprintf(count, sizeof count, "%d", pr->lanes);
    lane_loop(pr, pass, count);
    CLOSE();
    if (pr->summed == s->vec)
        close_block(pr, pass);
    if (n % pr->lanes) {
        snprintf(count, sizeof count, cut ? "end - j" : "%" PRId64, n % pr->lanes);
        lane_loop(pr, pass, count);
    }
    CLOSE();
}

/* Prints the accumulators of a pass; false: it has none. */
static bool begin_pass(Printer *pr, int pass)
{
    const Sched *s = pr->s;
    int64_t n = s->kind == SCHED_ROW ? pr->lanes : pr->width;
    bool reduces = false;
    for (uint32_t i = 0; i < s->n; i++) {
        if (!sched_reduces_at(s, i, pass))
            continue;
        LINE("%s a%u[%" PRId64 "];", text_type(&s->ins[i]), i, n);
        if (pr->summed >= 0)
            LINE("%s z%u[%" PRId64 "];", text_type(&s->ins[i]), i, n);
        reduces = true;
    }
    if (reduces) {
        open_accumulators(pr);
        clear(pr, pass, "a");
        if (pr->summed >= 0)
            clear(pr, pass, "z");
        CLOSE();
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

/* Prints all loops of one pass for the current item; its results, or partial ones, are in a<i>. */
void c_run_pass(Printer *pr, int pass)
{
    const Sched *s = pr->s;
    bool reduces = begin_pass(pr, pass);
    open_outer(pr, reduces);
    outer_values(pr);
    if (s->kind == SCHED_ROW) {
        row_vector(pr, pass, reduces);
    } else {
        open_columns(pr, true);
        vector_body(pr, pass, "c");
        CLOSE();
    }
    close_outer(pr, pass, reduces);
    if (reduces && pr->summed >= 0) {
        open_accumulators(pr);
        add_parts(pr, pass, "a", "z");
        CLOSE();
    }
    for (uint32_t i = 0; i < s->n && s->kind == SCHED_ROW; i++)
        if (sched_reduces_at(s, i, pass))
            LINE("TREE(%s, a%u, %d);", tree_op(&s->ins[i]), i, pr->lanes);
    sched_read_back(s, pass, NULL);
}

void c_item_stores(Printer *pr)
{
    const Sched *s = pr->s;
    memset(pr->mark, 0, s->n * sizeof *pr->mark);
    bool column = false;
    for (uint32_t i = s->n; i-- > 0;) {
        bool mine = sched_is_reduced_store(s, i) && s->scope[i] != SCOPE_ITEM;
        column |= mine;
        pr->mark[i] |= mine;
        bool inner = mine || (s->scope[i] == SCOPE_VECTOR && s->level[i] == 0);
        for (int a = 0; a < k_nargs(&s->ins[i]) && pr->mark[i] && inner; a++)
            pr->mark[s->ins[i].arg[a]] = true;
    }
    if (column) {
        open_columns(pr, true);
        pr->here = SCOPE_VECTOR;
        for (uint32_t i = 0; i < s->n; i++)
            if (pr->mark[i] && sched_is_plain(&s->ins[i]) && s->scope[i] == SCOPE_VECTOR)
                value(pr, i);
        for (uint32_t i = 0; i < s->n; i++)
            if (pr->mark[i] && s->ins[i].kind == K_STORE)
                text_store(&pr->w, s, (int)i, c_name, pr);
        CLOSE();
    }
    pr->here = SCOPE_ITEM;
    for (uint32_t i = 0; i < s->n; i++)
        if (sched_is_reduced_store(s, i) && s->scope[i] == SCOPE_ITEM)
            text_store(&pr->w, s, (int)i, c_name, pr);
}

/* Prints the copies of the tiles of transposed operands, which read whole cache lines, each once. */
void c_stage_tiles(Printer *pr)
{
    const Sched *s = pr->s;
    char at[512];
    for (uint32_t i = 0; i < s->n; i++) {
        if (!sched_is_staged(s, i))
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

/* Prints the draws for all elements of the item, from element e<i> of the vector dimension on. */
void c_draw_bulk(Printer *pr)
{
    const Sched *s = pr->s;
    char seed[NAME_LEN], step[NAME_LEN], key[NAME_LEN], count[NAME_LEN], at[512];
    bool row = s->kind == SCHED_ROW, part = !row && pr->blocks > 1;
    pr->here = SCOPE_ITEM;
    for (uint32_t i = 0; i < s->n; i++) {
        if (!is_bulk(s, i))
            continue;
        KInst first = s->ins[s->ins[i].arg[2]];
        first.stride[s->vec] = 0;
        text_address(s, &first, at, sizeof at);
        c_name(pr, s->ins[i].arg[0], seed);
        c_name(pr, s->ins[i].arg[1], step);
        LINE("int32_t u%u[%" PRId64 "];", i, (row ? s->nred : pr->width) + 6);
        LINE("const int64_t f%u = %s%s;", i, at, part ? " + c0" : "");
        LINE("const int64_t e%u = %s - (f%u & 3);", i, part ? "c0" : "0", i);
        if (part && s->extent[s->vec] % pr->width)
            snprintf(count, sizeof count, "w");
        else
            snprintf(count, sizeof count, "%" PRId64, row ? s->nred : pr->width);
        text_key(&pr->w, s->ins, (int)i, key);
        LINE("philox_fill(u%u, %s, %s, %s, %s, f%u);", i, count, seed, key, step, i);
    }
}
