/* early_stores.c -- when a kernel stores what it makes, and what may therefore share memory.
 *
 * A kernel walks the reduced dimensions once per reduction that waits for another (kernel_levels), and a
 * last time for what it stores along them.  What a later pass needs again is computed again, from operands
 * that are read again.  A store whose value takes more to read than itself is therefore made in the first
 * pass, and read back: the sum of a residual's gradients in the gradient of a batch norm.  In 16 bits that
 * needs a value that is rounded whether it is stored or not, as recomputations make some results of a kernel
 * alone (k_load_rounded). */
#include "kernel.h"
#include <string.h>

bool kernel_same_map(const Kernel *k, const KInst *a, const KInst *b)
{
    if (a->offset != b->offset)
        return false;
    for (int d = 0; d < k->rank; d++)
        if (k->extent[d] != 1 && a->stride[d] != b->stride[d])
            return false;
    return true;
}

/* ---- as in memory --------------------------------------------------------------------------------- */

static double bf16_of(double a, double b, double c, double al, double be)
{
    (void)b, (void)c, (void)al, (void)be;
    return (double)bf16_to_f32(f32_to_bf16((float)a));
}
static double f16_of(double a, double b, double c, double al, double be)
{
    (void)b, (void)c, (void)al, (void)be;
    return (double)f16_to_f32(f32_to_f16((float)a));
}
static double f32_of(double a, double b, double c, double al, double be)
{
    (void)b, (void)c, (void)al, (void)be;
    return (double)(float)a;
}
static int64_t i32_of(int64_t a, int64_t b, int64_t c, int64_t al, int64_t be)
{
    (void)b, (void)c, (void)al, (void)be;
    return (int32_t)(uint32_t)(uint64_t)a;
}
static int64_t i8_of(int64_t a, int64_t b, int64_t c, int64_t al, int64_t be)
{
    (void)b, (void)c, (void)al, (void)be;
    return (int8_t)(uint8_t)(uint64_t)a;
}
static int64_t u8_of(int64_t a, int64_t b, int64_t c, int64_t al, int64_t be)
{
    (void)b, (void)c, (void)al, (void)be;
    return (uint8_t)(uint64_t)a;
}

static const Expr narrowing[DT_COUNT] = {
    [DT_F32] = {"as_f32", 1, EXPR_ARITH, "F32(a)", f32_of, NULL},
    [DT_BF16] = {"as_bf16", 1, EXPR_ARITH, "BF16(a)", bf16_of, NULL},
    [DT_F16] = {"as_f16", 1, EXPR_ARITH, "F16(a)", f16_of, NULL},
    [DT_I32] = {"as_i32", 1, EXPR_ARITH, "I32(a)", NULL, i32_of},
    [DT_I8] = {"as_i8", 1, EXPR_ARITH, "I8(a)", NULL, i8_of},
    [DT_U8] = {"as_u8", 1, EXPR_ARITH, "U8(a)", NULL, u8_of},
};

/* Is v narrowed to that type or loaded from it, followed only by operators that keep it representable? */
static bool is_narrow(const Kernel *k, int v, DType dt)
{
    static const Op keeps[] = {OP_copy, OP_relu, OP_neg, OP_relu_bwd};
    const KInst *in = &k->ins[v];
    size_t nkeeps = dtype_is_float(dt) ? sizeof keeps / sizeof *keeps : 2; /* -128 has no negative */
    bool is = in->kind == K_LOAD ? k->operand[in->operand] == dt : in->expr == &narrowing[dt];
    for (size_t i = 0; i < nkeeps && in->kind == K_EXPR; i++)
        is |= in->expr == &op_table[keeps[i]]->expr && is_narrow(k, in->arg[0], dt);
    return is;
}

int kernel_narrow(Kernel *k, int v, DType dt)
{
    const Expr *e = &narrowing[dt];
    KType type = dtype_is_float(dt) ? KT_REAL : KT_INT;
    return !e->text || is_narrow(k, v, dt) ? v : k_expr(k, e, type, v, 0, 0, 0, 0);
}

/* ---- passes --------------------------------------------------------------------------------------- */

typedef struct {
    const Kernel *k;
    int *level, last; /* per instruction; the last pass that walks over the reduced dimensions */
    bool *walks;      /* per instruction: does it change along the reduced dimensions? */
} Passes;

static bool is_along(const Kernel *k, const KInst *in, uint32_t dims)
{
    bool any = false;
    for (int d = 0; d < k->rank; d++)
        any |= k->extent[d] > 1 && (dims >> d & 1) && in->stride[d] != 0;
    return any;
}

static Passes find_passes(const Kernel *k, Arena *a)
{
    Passes p = {k, NEW(a, int, k->nins + 1), 0, NEW(a, bool, k->nins + 1)};
    kernel_levels(k, p.level);
    for (uint32_t i = 0; i < k->nins; i++) {
        const KInst *in = &k->ins[i];
        bool reduces = k_reduces(in);
        p.walks[i] = is_along(k, in, k->red);
        for (int n = 0; n < k_nargs(in); n++)
            p.walks[i] |= p.walks[in->arg[n]];
        p.walks[i] &= !reduces;
        if ((reduces || p.walks[i]) && p.level[i] - reduces > p.last)
            p.last = p.level[i] - reduces;
    }
    return p;
}

/* Marks the instructions that a pass computes.  early: stores that are made in the pass of their value. */
static void mark_pass(const Passes *p, int pass, const bool *early, bool *mark)
{
    const Kernel *k = p->k;
    for (uint32_t i = k->nins; i-- > 0;) {
        const KInst *in = &k->ins[i];
        bool back = false;
        for (uint32_t s = 0; s < k->nins; s++)
            back |= early[s] && pass > p->level[s] && kernel_is_read_back(k, s, i);
        int made = k_reduces(in) ? p->level[i] - 1 : early[i] ? p->level[i] : p->last;
        mark[i] |= (k_reduces(in) || (in->kind == K_STORE && p->walks[i])) && pass == made;
        for (int n = 0; n < k_nargs(in) && mark[i] && !back; n++)
            mark[in->arg[n]] |= p->walks[in->arg[n]];
    }
}

/* The operands that a pass loads along the reduced dimensions, or reads back. */
static void read_in_pass(const Passes *p, int pass, const bool *early, bool *read, Arena *a)
{
    const Kernel *k = p->k;
    bool *mark = NEW(a, bool, k->nins + 1);
    mark_pass(p, pass, early, mark);
    for (uint32_t i = 0; i < k->nins; i++) {
        if (mark[i] && k->ins[i].kind == K_LOAD && is_along(k, &k->ins[i], k->red))
            read[k->ins[i].operand] = true;
        for (uint32_t s = 0; s < k->nins && mark[i]; s++)
            if (early[s] && pass > p->level[s] && kernel_is_read_back(k, s, i))
                read[k->ins[s].operand] = true;
    }
}

/* Per operand, the number of passes that read it; allocated in a. */
static int *count_readings(const Kernel *k, const bool *early, Arena *a)
{
    Passes p = find_passes(k, a);
    int *n = NEW(a, int, k->noperands + 1);
    for (int pass = 0; pass <= p.last; pass++) {
        bool *read = NEW(a, bool, k->noperands + 1);
        read_in_pass(&p, pass, early, read, a);
        for (int o = 0; o < k->noperands; o++)
            n[o] += read[o];
    }
    return n;
}

/* ---- early stores ----------------------------------------------------------------------------------- */

bool kernel_is_read_back(const Kernel *k, uint32_t store, uint32_t i)
{
    const KInst *in = &k->ins[i];
    DType dt = k->operand[k->ins[store].operand];
    int v = k->ins[store].arg[0];
    if (dt == DT_F32 || is_narrow(k, v, dt))
        return (int)i == v;
    return in->kind == K_EXPR && in->expr == &narrowing[dt] && in->arg[0] == v;
}

/* Is instruction i the only store to its operand, of a real expression at every point, in a kernel that
 * reduces more than rows and has no f64? */
static bool may_be_early(const Kernel *k, uint32_t i)
{
    const KInst *st = &k->ins[i];
    int inner = k->rank - 1;
    if (k->body || k->lib || !k->red || st->kind != K_STORE || k->ins[st->arg[0]].kind != K_EXPR ||
        k->ins[st->arg[0]].type != KT_REAL)
        return false;
    while (inner > 0 && k->extent[inner] == 1)
        inner--;
    DType dt = k->operand[st->operand];
    if ((dt != DT_F32 && dt != DT_BF16 && dt != DT_F16) || !(k->red & ~(1u << inner)))
        return false;
    for (int d = 0; d < k->rank; d++)
        if (k->extent[d] > 1 && st->stride[d] == 0)
            return false;
    for (uint32_t j = 0; j < k->nins; j++)
        if (k->ins[j].kind == K_COLUMN_SUM ||
            (k->ins[j].kind == K_STORE && j != i && k->ins[j].operand == st->operand))
            return false;
    for (int o = 0; o < k->noperands; o++)
        if (k->operand[o] == DT_F64)
            return false;
    return true;
}

static int64_t bytes_read(const Kernel *k, const bool *early, Arena *a)
{
    const int *readings = count_readings(k, early, a);
    int64_t bytes = 0;
    for (int o = 0; o < k->noperands; o++)
        bytes += readings[o] * dtype_size[k->operand[o]];
    return bytes;
}

/* Does it save reading to make store i early?  Not if its value depends on a reduction. */
static bool saves_reading(const Kernel *k, uint32_t i)
{
    Arena a = {0};
    bool *early = NEW(&a, bool, k->nins + 1);
    int64_t all = bytes_read(k, early, &a);
    early[i] = true;
    bool saves = find_passes(k, &a).level[i] == 0 && bytes_read(k, early, &a) < all;
    arena_free(&a);
    return saves;
}

bool kernel_stores_early(const Kernel *k, uint32_t i) { return may_be_early(k, i) && saves_reading(k, i); }

static bool *early_stores(const Kernel *k, Arena *a)
{
    bool *early = NEW(a, bool, k->nins + 1);
    for (uint32_t i = 0; i < k->nins; i++)
        early[i] = kernel_stores_early(k, i);
    return early;
}

int *kernel_readings(const Kernel *k, Arena *a) { return count_readings(k, early_stores(k, a), a); }

/* ---- results in place -------------------------------------------------------------------------------- */

/* Is the operand read in a pass behind that of an early store? */
static bool is_read_behind(const Kernel *k, uint32_t store, int operand)
{
    Arena a = {0};
    if (!kernel_stores_early(k, store))
        return false;
    const bool *early = early_stores(k, &a);
    Passes p = find_passes(k, &a);
    bool *read = NEW(&a, bool, k->noperands + 1);
    for (int pass = p.level[store] + 1; pass <= p.last; pass++)
        read_in_pass(&p, pass, early, read, &a);
    bool is = read[operand];
    arena_free(&a);
    return is;
}

/* In place is safe when every load of `read` addresses exactly what the store of `write` does: an
 * element is loaded before it is stored, and full-space stores run in the last pass that loads it. */
bool kernel_inplace(const Kernel *k, int read, int write)
{
    if (k->lib == LIB_MATMUL_ADD && read == 2)
        return true;
    if (k->body || k->lib || dtype_size[k->operand[read]] != dtype_size[k->operand[write]])
        return false;
    const KInst *st = NULL;
    for (uint32_t i = 0; i < k->nins; i++)
        if (k->ins[i].kind == K_STORE && k->ins[i].operand == write) {
            if (st)
                return false;
            st = &k->ins[i];
        }
    if (st && k->ins[st->arg[0]].kind == K_COLUMN_SUM)
        return false; /* a CPU stores it before rows are read */
    for (int d = 0; st && d < k->rank; d++)
        if (k->extent[d] != 1 && (k->red >> d & 1) && st->stride[d] == 0)
            return false; /* a reduced store: other passes may still read */
    for (uint32_t i = 0; st && i < k->nins; i++)
        if (k->ins[i].kind == K_LOAD && k->ins[i].operand == read && !kernel_same_map(k, &k->ins[i], st))
            return false;
    return st && !is_read_behind(k, (uint32_t)(st - k->ins), read);
}
