/* cuda_vector.c -- chunks of the innermost dimension: which operands a thread accesses 16 bytes at a time,
 * and the text of a chunk.
 *
 * An access is wide if the elements of a chunk lie side by side and begin at a multiple of their bytes, which
 * follows from strides, as operands are aligned to 16 bytes (Kernel.unaligned: they need not be).  Where rows
 * are not a multiple of a chunk long there are two ways: pointwise kernels take the space as one row, and
 * reductions along rows begin their chunks before the row, where the addresses are aligned. */
#include "cuda_int.h"

enum { WIDE_BYTES = 16, MAX_WIDTH = 8, DRAW = 4 };
/* Most column values in the registers of a thread: with 8 columns, with fewer. */
enum { MANY_VALUES = 88, MOST_VALUES = 104 };

static bool is_access(const KInst *in) { return in->kind == K_LOAD || in->kind == K_STORE; }

static int size_of(const Sched *s, const KInst *in) { return dtype_size[s->k->operand[in->operand]]; }

static int64_t points(const Sched *s)
{
    int64_t n = 1;
    for (int d = 0; d < s->rank; d++)
        n *= s->extent[d];
    return n;
}

static bool row_major(const Sched *s, const KInst *in)
{
    int64_t n = 1;
    for (int d = s->rank; d-- > 0; n *= s->extent[d])
        if (in->stride[d] != n)
            return false;
    return true;
}

static bool contiguous(const Sched *s, const KInst *in, bool flat)
{
    return flat ? row_major(s, in) : in->stride[s->vec] == 1;
}

/* Is n a divisor of all positions of the access, less those of `from` (NULL: 0), at the start of a chunk? */
static bool round_positions(const Sched *s, const KInst *in, const KInst *from, int64_t n, bool flat)
{
    int64_t off = in->offset - (from ? from->offset : 0);
    bool ok = off % n == 0;
    for (int d = 0; d < s->vec && !flat; d++)
        ok &= (in->stride[d] - (from ? from->stride[d] : 0)) % n == 0;
    return ok;
}

/* Is instruction i a draw per element, of consecutive elements, with one seed and step for all of them? */
static bool is_draw_of_four(const Sched *s, const Vector *v, uint32_t i, const KInst *from)
{
    const KInst *in = &s->ins[i];
    if (in->kind != K_EXPR || in->expr->cost != EXPR_UNIFORM || v->width % DRAW)
        return false;
    const KInst *index = &s->ins[in->arg[2]];
    uint32_t walked = v->flat ? ~0u : 1u << s->vec;
    return !((s->dep[in->arg[0]] | s->dep[in->arg[1]]) & walked) && index->kind == K_INDEX &&
           contiguous(s, index, v->flat) && round_positions(s, index, from, DRAW, v->flat);
}

static void mark_wide(const Sched *s, Vector *v)
{
    const KInst *from = v->phase < 0 ? NULL : &s->ins[v->phase];
    for (uint32_t i = 0; i < s->n; i++) {
        const KInst *in = &s->ins[i];
        v->wide[i] = v->width > 1 && s->live[i] && is_draw_of_four(s, v, i, from);
        if (v->width < 2 || !s->live[i] || !is_access(in) || sched_is_column_store(s, i))
            continue;
        int64_t most = WIDE_BYTES / size_of(s, in), n = v->width < most ? v->width : most;
        v->wide[i] = contiguous(s, in, v->flat) && round_positions(s, in, from, n, v->flat);
    }
}

/* The sum of the bytes per access over the loads and stores that may decide the shape. */
static int64_t score(const Sched *s, const Vector *v)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        bool counts = s->shaping[i] && is_access(&s->ins[i]);
        int64_t size = counts ? size_of(s, &s->ins[i]) : 0, chunk = v->width * size;
        sum += v->wide[i] ? (chunk < WIDE_BYTES ? chunk : WIDE_BYTES) : size;
    }
    return sum;
}

/* Values that a thread has of a column in a pass: accumulators, and loads that it makes once per column. */
static int column_values(const Sched *s, int pass)
{
    int n = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        bool column = (s->dep[i] >> s->vec & 1) && !(s->dep[i] & s->red);
        bool once = s->shaping[i] && s->ins[i].kind == K_LOAD && column;
        n += sched_reduces_at(s, i, pass) || once;
    }
    return n;
}

/* Elements of a row's chunk: 16 bytes of its widest operand.  With twice as many, each of two stores would
 * write halves of sectors of 32 bytes. */
static int most_of_row(const Sched *s)
{
    int64_t size = WIDE_BYTES / MAX_WIDTH;
    for (uint32_t i = 0; i < s->n; i++) {
        bool own = s->shaping[i] && (s->dep[i] >> s->vec & 1) && (s->dep[i] & ~s->red);
        if (own && s->ins[i].kind == K_LOAD && size_of(s, &s->ins[i]) > size)
            size = size_of(s, &s->ins[i]);
    }
    return (int)(WIDE_BYTES / size);
}

static int widest(const Sched *s)
{
    int width = 1;
    for (uint32_t i = 0; i < s->n; i++) {
        const KInst *in = &s->ins[i];
        bool draw = s->shaping[i] && in->kind == K_EXPR && in->expr->cost == EXPR_UNIFORM;
        int64_t most = draw ? DRAW : 1;
        if (is_access(in) && s->shaping[i] && (contiguous(s, in, false) || (!s->red && row_major(s, in))))
            most = WIDE_BYTES / size_of(s, in);
        width = most > width ? (int)most : width;
    }
    int most = s->kind == SCHED_ROW && kernel_has_column_sums(s->k) ? most_of_row(s) : MAX_WIDTH;
    for (int pass = 0; pass <= s->last && s->kind == SCHED_COLUMN; pass++)
        while (most > 1 && most * column_values(s, pass) > (most == MAX_WIDTH ? MANY_VALUES : MOST_VALUES))
            most /= 2;
    return width < most ? width : most;
}

static void try_vector(Vector *best, const Sched *s, Vector v, Arena *a)
{
    v.wide = NEW(a, bool, s->n + 1);
    mark_wide(s, &v);
    if (score(s, &v) > score(s, best))
        *best = v;
}

/* Tries chunks of `width` elements that begin with the row, that cut the whole space, or that begin before
 * the row. */
static void try_width(Vector *best, const Sched *s, int width, Arena *a)
{
    int64_t n = s->extent[s->vec];
    bool fits = n % width == 0, edged = !fits && n >= 2 * width;
    Vector v = {.width = width, .edges = !fits, .phase = -1};
    if (fits || (edged && (s->kind == SCHED_ROW || s->rank == 1)))
        try_vector(best, s, v, a);
    if (s->kind == SCHED_POINT && s->tile < 0 && !fits && points(s) >= 2 * width) {
        v.flat = true;
        v.edges = points(s) % width != 0;
        try_vector(best, s, v, a);
    }
    bool anywhere = s->kind == SCHED_ROW && !kernel_has_column_sums(s->k); /* else threads own columns */
    for (uint32_t i = 0; i < s->n && anywhere && n >= 2 * width; i++)
        if (s->shaping[i] && is_access(&s->ins[i]) && contiguous(s, &s->ins[i], false) &&
            !round_positions(s, &s->ins[i], NULL, width, false)) {
            v = (Vector){.width = width, .edges = true, .phase = (int)i};
            try_vector(best, s, v, a);
        }
}

void vector_make(Vector *v, const Sched *s, Arena *a)
{
    *v = (Vector){.width = 1, .phase = -1, .wide = NEW(a, bool, s->n + 1)};
    for (int width = widest(s); width > 1 && !s->k->unaligned; width /= 2)
        try_width(v, s, width, a);
}

Accesses vector_accesses(const Vector *v, const Sched *s)
{
    Accesses n = {0};
    for (uint32_t i = 0; i < s->n; i++) {
        const KInst *in = &s->ins[i];
        bool staged = cuda_is_staged(s, i);
        if (!s->live[i] || !is_access(in) || sched_is_column_store(s, i) ||
            !(staged || contiguous(s, in, false) || contiguous(s, in, v->flat)))
            continue;
        int width = staged ? staged_width(s, i) : v->wide[i] ? v->width : 1;
        bool wide = width * size_of(s, in) >= WIDE_BYTES;
        *(wide ? &n.wide : &n.narrow) += 1;
    }
    return n;
}

/* ---- text --------------------------------------------------------------------------------------- */

static void position(const Printer *pr, const KInst *in, char *buf, size_t size)
{
    if (!pr->v.flat)
        text_address_at(pr->s, in, "j", buf, size);
    else
        snprintf(buf, size, in->offset ? "%" PRId64 " + j" : "%.0" PRId64 "j", in->offset);
}

void chunk_declare(Printer *pr, uint32_t i, int copies)
{
    const char *type = text_element(pr->s->k->operand[pr->s->ins[i].operand]);
    if (copies > 0)
        LINE("ALIGNED_16 %s u%u[%d][%d];", type, i, copies, pr->v.width);
    else
        LINE("ALIGNED_16 %s u%u[%d];", type, i, pr->v.width);
}

/* Prints the copy of a chunk between an array and memory. */
static void copy_chunk(Printer *pr, const char *to, const char *from)
{
    if (!pr->v.edges)
        LINE("wide_copy(%s, %s, %d * sizeof *(%s));", to, from, pr->v.width, from);
    else
        LINE("EDGE_COPY(%s, %s, %d, %s, %s - j);", to, from, pr->v.width, pr->v.phase < 0 ? "0" : "-j",
             pr->limit);
}

void chunk_load(Printer *pr, uint32_t i, const char *at)
{
    const KInst *in = &pr->s->ins[i];
    char where[512], from[560], to[NAME_LEN];
    if (pr->v.wide[i]) {
        position(pr, in, where, sizeof where);
        snprintf(from, sizeof from, "p%d + (%s)", in->operand, where);
        snprintf(to, sizeof to, "u%u%s", i, at);
        copy_chunk(pr, to, from);
        return;
    }
    chunk_open(pr);
    text_address(pr->s, in, where, sizeof where);
    LINE("u%u%s[e] = p%d[%s];", i, at, in->operand, where);
    CLOSE();
}

void chunk_open(Printer *pr)
{
    const Sched *s = pr->s;
    if (pr->v.width == 1) {
        text_block(&pr->w);
        LINE("const int e = 0;");
    } else {
        LINE("#pragma unroll");
        OPEN("for (int e = 0; e < %d; e++)", pr->v.width);
    }
    if (pr->v.edges)
        LINE(pr->v.phase < 0 ? "if (j + e >= %s)" : "if (j + e < 0 || j + e >= %s)", pr->limit);
    if (pr->v.edges)
        LINE("    continue;");
    if (pr->v.flat) {
        LINE("const %s at = j + e;", pr->w.index);
        text_unpack(&pr->w, s, "at", (1u << s->rank) - 1);
    } else {
        LINE("const %s i%d = j + e;", pr->w.index, s->vec);
    }
}

static void draw_chunk(Printer *pr, uint32_t i)
{
    const KInst *in = &pr->s->ins[i];
    char seed[NAME_LEN], step[NAME_LEN], key[NAME_LEN], at[512];
    cuda_name_of(pr, in->arg[0], seed);
    cuda_name_of(pr, in->arg[1], step);
    text_key(&pr->w, pr->s->ins, (int)i, key);
    position(pr, &pr->s->ins[in->arg[2]], at, sizeof at);
    LINE("int32_t u%u[%d];", i, pr->v.width);
    for (int e = 0; e < pr->v.width; e += DRAW)
        LINE("PHILOX_FOUR(u%u + %d, %s, %s, %s, %s + %d);", i, e, seed, key, step, at, e);
}

void chunk_begin(Printer *pr, const bool *mark)
{
    const Sched *s = pr->s;
    for (uint32_t i = 0; i < s->n; i++)
        if (mark[i] && pr->v.wide[i] && s->ins[i].kind == K_EXPR)
            draw_chunk(pr, i);
        else if (mark[i] && pr->v.wide[i] && s->ins[i].kind == K_STORE)
            chunk_declare(pr, i, 0);
}

/* Prints a comparison of an element's position with another integer, in 32 bits.  False: i is none. */
static bool position_value(Printer *pr, uint32_t i)
{
    const Sched *s = pr->s;
    const KInst *in = &s->ins[i];
    if (in->kind != K_EXPR || in->expr != &op_table[OP_equal]->expr)
        return false;
    for (int a = 0; a < 2; a++) {
        const KInst *at = &s->ins[in->arg[a]];
        bool whole = at->kind == K_INDEX && at->offset == 0 && s->ins[in->arg[!a]].type == KT_INT;
        for (int d = 0; d < s->rank; d++)
            whole &= at->stride[d] == 0 || (at->stride[d] == 1 && d == s->vec);
        if (!whole || at->stride[s->vec] != 1 || s->extent[s->vec] > INT32_MAX)
            continue;
        char v[NAME_LEN];
        cuda_name_of(pr, in->arg[!a], v);
        LINE("const int64_t v%u = IS_POSITION(i%d, %s);", i, s->vec, v);
        return true;
    }
    return false;
}

void chunk_value(Printer *pr, uint32_t i)
{
    const KInst *in = &pr->s->ins[i];
    const char *at = pr->rows.held && pr->rows.held[i] ? "[c]" : "";
    if (in->kind == K_LOAD && pr->v.wide[i] && pr->v.width > 1 && pr->s->k->operand[in->operand] == DT_BF16)
        LINE("const %s v%u = bf16_of_chunk(u%u%s, e);", text_type(in), i, i, at);
    else if (in->kind == K_LOAD && (pr->v.wide[i] || *at))
        LINE("const %s v%u = LD_%s(u%u%s, e);", text_type(in), i,
             dtype_name[pr->s->k->operand[in->operand]], i, at);
    else if (in->kind == K_EXPR && pr->v.wide[i])
        LINE("const REAL v%u = R(u%u[e]) * R(5.9604644775390625e-8);", i, i);
    else if (!position_value(pr, i))
        text_value(&pr->w, pr->s, (int)i, cuda_name_of, pr);
}

void chunk_store(Printer *pr, uint32_t i)
{
    const KInst *in = &pr->s->ins[i];
    char v[NAME_LEN];
    if (!pr->v.wide[i]) {
        text_store(&pr->w, pr->s, (int)i, cuda_name_of, pr);
        return;
    }
    cuda_name_of(pr, in->arg[0], v);
    LINE("ST_%s(u%u, e, %s);", dtype_name[pr->s->k->operand[in->operand]], i, v);
}

void chunk_end(Printer *pr, const bool *mark)
{
    const Sched *s = pr->s;
    char where[512], to[560], from[NAME_LEN];
    for (uint32_t i = 0; i < s->n; i++) {
        if (!mark[i] || !pr->v.wide[i] || s->ins[i].kind != K_STORE)
            continue;
        position(pr, &s->ins[i], where, sizeof where);
        snprintf(to, sizeof to, "p%d + (%s)", s->ins[i].operand, where);
        snprintf(from, sizeof from, "u%u", i);
        copy_chunk(pr, to, from);
    }
}
