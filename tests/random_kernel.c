/* random_kernel.c -- random DAG kernels with data, for the code generators' tests. */
#include "random_kernel.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "ir/kernel_math.h"

enum { MAX_VALUES = 64 };

typedef struct {
    RandomKernel *r;
    Kernel *k;
    uint64_t state;
    int real[MAX_VALUES], nreal, whole[MAX_VALUES], nwhole;
    int reduced[MAX_VALUES], nreduced;
    bool f64;
} Gen;

static uint64_t next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    uint64_t x = *state;
    return (x ^ x >> 33) * 0xff51afd7ed558ccdu >> 32;
}

static int pick(Gen *g, int n) { return (int)(next(&g->state) % (uint64_t)n); }

static void choose_space(Gen *g, bool large)
{
    static const int64_t small[] = {1, 2, 3, 5, 7, 8, 16, 17, 32, 33, 40, 64, 100};
    static const struct {
        int rank;
        int64_t dim[4];
        uint32_t red;
    } wide[] = {{1, {70000}, 1}, {2, {700, 300}, 1}, {2, {3, 20000}, 0}, {2, {40, 5000}, 2},
                {3, {600, 3, 40}, 5}, {3, {4, 300, 70}, 2}, {2, {2, 9000}, 2}, {1, {9001}, 0},
                {3, {20, 6, 200}, 5}, {2, {2000, 10}, 1}, {2, {200, 300}, 0}, {3, {3, 130, 70}, 0},
                {2, {9, 2051}, 2}, {2, {2, 20011}, 2}, {3, {40, 6, 49}, 5}, {3, {7, 50, 49}, 0},
                {2, {700, 64}, 2}, {2, {70, 1024}, 2}, {2, {300, 13}, 2}, {2, {3, 17408}, 2},
                {2, {900, 256}, 1}, {3, {3, 400, 48}, 2}, {4, {3, 5, 60, 20}, 4},
                {2, {8200, 40}, 1}, {1, {300000}, 1}, {3, {60, 8, 800}, 5}, {3, {2, 4100, 48}, 2}};
    Type t = {.dt = DT_F32};
    uint32_t red = 0;
    if (large) {
        int i = pick(g, (int)(sizeof wide / sizeof *wide));
        t = type_make(DT_F32, wide[i].rank, wide[i].dim);
        red = wide[i].red;
    } else {
        t.rank = pick(g, 5);
        for (int d = 0; d < t.rank; d++)
            t.dim[d] = small[pick(g, t.rank > 2 ? 8 : 13)];
        if (t.rank && pick(g, 30) == 0)
            t.dim[pick(g, t.rank)] = 0;
        for (int d = 0; d < t.rank; d++)
            red |= (uint32_t)(pick(g, 2) == 0) << d;
        red = pick(g, 3) == 0 ? 0 : red;
    }
    k_space(g->k, &t, red);
}

static DType choose_dtype(Gen *g)
{
    static const DType some[] = {DT_F32, DT_F32, DT_F32, DT_BF16, DT_F16,
                                 DT_I64, DT_I32, DT_U8,  DT_BOOL};
    DType t = some[pick(g, 9)];
    return g->f64 && t == DT_F32 ? DT_F64 : t;
}

static int operand(Gen *g, Type t)
{
    int o = g->k->noperands++;
    g->k->operand[o] = t.dt;
    g->r->type[o] = t;
    return o;
}

static void keep(Gen *g, int v)
{
    if (g->k->ins[v].type == KT_REAL)
        g->real[g->nreal++] = v;
    else
        g->whole[g->nwhole++] = v;
}

/* Loads an operand of the whole space, perhaps broadcast along dimensions or laid out in another order. */
static void load(Gen *g)
{
    Kernel *k = g->k;
    uint32_t drop = pick(g, 2) ? 0 : (uint32_t)pick(g, 1 << k->rank);
    int order[K_DIMS];
    int64_t stride[K_DIMS] = {0}, size = 1;
    for (int d = 0; d < k->rank; d++)
        order[d] = d;
    for (int d = 0; d + 1 < k->rank && pick(g, 3) == 0; d++) {
        int t = order[d];
        order[d] = order[d + 1];
        order[d + 1] = t;
    }
    for (int d = k->rank; d-- > 0;)
        if (!(drop >> order[d] & 1)) {
            stride[order[d]] = size;
            size *= k->extent[order[d]];
        }
    int o = operand(g, type_make(choose_dtype(g), 1, &size));
    keep(g, k_load_at(k, o, 0, stride));
}

static int real(Gen *g) { return g->real[pick(g, g->nreal)]; }

/* Bounds v by tanh, so that nothing overflows and errors stay comparable. */
static int squash(Gen *g, int v) { return k_op(g->k, OP_tanh, v, 0, 0); }

static void expression(Gen *g)
{
    static const Op unary[] = {OP_tanh, OP_sigmoid, OP_neg, OP_abs, OP_erf, OP_gelu_tanh, OP_sin,
                               OP_relu};
    static const Op binary[] = {OP_add, OP_sub, OP_mul, OP_max, OP_min};
    int v;
    switch (pick(g, 6)) {
    case 0: v = k_op(g->k, unary[pick(g, 8)], real(g), 0, 0); break;
    case 1: v = k_op(g->k, OP_exp, squash(g, real(g)), 0, 0); break;
    case 2: v = k_const(g->k, KT_REAL, pick(g, 100) / 37.0); break;
    case 3:
        if (g->nwhole) {
            int w = g->whole[pick(g, g->nwhole)];
            v = k_expr(g->k, &op_table[OP_copy]->expr, KT_REAL, w, 0, 0, 0, 0);
            break;
        }
        /* fall through */
    default: {
        int a = real(g), b = real(g);
        v = k_op(g->k, binary[pick(g, 5)], a, b, 0);
        break;
    }
    }
    keep(g, squash(g, v));
}

static void integer_expression(Gen *g)
{
    static const Op binary[] = {OP_add, OP_sub, OP_max, OP_min, OP_less, OP_equal, OP_bitxor};
    if (!g->nwhole || pick(g, 4) == 0) {
        int64_t stride[K_DIMS];
        for (int d = 0; d < g->k->rank; d++)
            stride[d] = pick(g, 7) - 3;
        keep(g, k_index(g->k, stride, pick(g, 5)));
        return;
    }
    int a = g->whole[pick(g, g->nwhole)], b = g->whole[pick(g, g->nwhole)];
    keep(g, k_expr(g->k, &op_table[binary[pick(g, 7)]]->expr, KT_INT, a, b, 0, 0, 0));
}

static double uniform_f(double a, double b, double c, double al, double be)
{
    (void)be;
    return PHILOX_UNIFORM(a, al, b, c);
}
static const Expr uniform = {"philox_uniform", 3, EXPR_UNIFORM, "PHILOX_UNIFORM(a, al, b, c)",
                             uniform_f, NULL};

/* Draws a random number per element, in the form that dropout has in a kernel. */
static void draw(Gen *g)
{
    int64_t stride[K_DIMS] = {0}, size = 1;
    for (int d = g->k->rank; d-- > 0;) {
        stride[d] = size;
        size *= g->k->extent[d];
    }
    int seed = k_const(g->k, KT_INT, 42), step = k_const(g->k, KT_INT, 3);
    int at = k_index(g->k, stride, pick(g, 7));
    keep(g, k_expr(g->k, &uniform, KT_REAL, seed, step, at, 1234567890123.0, 0));
}

/* Adds a reduction.  Sums of reals are divided by the number of their terms, which keeps their size. */
static void reduction(Gen *g)
{
    static const KKind kind[] = {K_SUM, K_SUM, K_MAX, K_MIN, K_SUM, K_DEVIATION};
    double count = 1;
    for (int d = 0; d < g->k->rank; d++)
        if (g->k->red >> d & 1)
            count *= (double)g->k->extent[d];
    int which = pick(g, 6), v;
    if (which == 4 && g->nwhole) {
        v = k_reduce(g->k, kind[pick(g, 4)], g->whole[pick(g, g->nwhole)]);
        g->reduced[g->nreduced++] = v;
        g->whole[g->nwhole++] = v;
        return;
    }
    KKind kd = kind[which];
    v = k_reduce(g->k, kd, real(g));
    bool sums = kd == K_SUM || kd == K_DEVIATION;
    int scale = k_const(g->k, KT_REAL, sums && count > 0 ? 1 / count : 1);
    v = k_op(g->k, OP_mul, v, scale, 0);
    g->reduced[g->nreduced++] = v;
    g->real[g->nreal++] = v;
}

static void store_full(Gen *g, int v)
{
    Type t = {.dt = choose_dtype(g), .rank = g->k->rank};
    if (g->k->ins[v].type == KT_REAL && !dtype_is_float(t.dt))
        t.dt = DT_F32;
    memcpy(t.dim, g->k->extent, sizeof t.dim);
    k_store(g->k, operand(g, t), v);
}

/* Stores a value that several operands make, and goes on with it as it is stored.  It is rounded as in the
 * reference, since a maximum adds no digits. */
static void store_shared(Gen *g)
{
    static const DType some[] = {DT_F32, DT_BF16, DT_F16};
    Kernel *k = g->k;
    int v = k_op(k, OP_max, k_op(k, OP_min, real(g), real(g), 0), real(g), 0);
    Type t = {.dt = g->f64 ? DT_F64 : some[pick(g, 3)], .rank = k->rank};
    memcpy(t.dim, k->extent, sizeof t.dim);
    k_store(k, operand(g, t), v);
    v = kernel_narrow(k, v, t.dt);
    keep(g, v);
    keep(g, k_op(k, OP_neg, v, 0, 0));
}

static void store_reduced(Gen *g, int v)
{
    Type t = {.dt = g->k->ins[v].type == KT_REAL ? DT_F32 : DT_I64};
    for (int d = 0; d < g->k->rank; d++)
        if (!(g->k->red >> d & 1))
            t.dim[t.rank++] = g->k->extent[d];
    k_store_keep(g->k, operand(g, t), v, g->k->red);
}

static bool is_stored(const Kernel *k, int v)
{
    bool stored = false;
    for (uint32_t i = 0; i < k->nins; i++)
        stored |= k->ins[i].kind == K_STORE && k->ins[i].arg[0] == v;
    return stored;
}

/* Adds a sum of columns beside the reductions of rows.  What it adds is stored as well and not rounded, as it
 * has to be where it depends on a reduction. */
static void column_sum(Gen *g)
{
    Kernel *k = g->k;
    int last = k->rank - 1, v = real(g);
    Type t = {g->f64 ? DT_F64 : DT_F32, k->rank, {0}};
    double rows = 1;
    for (int d = 0; d < last; d++)
        rows *= (double)k->extent[d];
    if (is_stored(k, v))
        return;
    memcpy(t.dim, k->extent, sizeof t.dim);
    k_store(k, operand(g, t), v);
    v = k_op(k, OP_mul, v, k_const(k, KT_REAL, rows > 0 ? 1 / rows : 1), 0);
    Type row = type_make(t.dt, 1, &k->extent[last]);
    k_store_keep(k, operand(g, row), k_reduce(k, K_COLUMN_SUM, v), (1u << last) - 1);
}

void random_kernel(RandomKernel *r, Arena *a, uint64_t seed, bool large)
{
    *r = (RandomKernel){.seed = seed};
    Gen g = {.r = r, .k = &r->k, .state = seed * 0x9E3779B97F4A7C15u + 1};
    for (int i = 0; i < 8; i++)
        next(&g.state);
    r->k.arena = a;
    r->k.operand = NEW(a, DType, RANDOM_OPERANDS);
    g.f64 = pick(&g, 6) == 0;
    r->k.f64 = g.f64;
    choose_space(&g, large);
    int loads = 1 + pick(&g, 4);
    for (int i = 0; i < loads; i++)
        load(&g);
    if (!g.nreal)
        keep(&g, k_const(&r->k, KT_REAL, 0.25));
    r->nread = r->k.noperands;
    if (pick(&g, 4) == 0)
        draw(&g);
    if (pick(&g, 2))
        store_shared(&g);
    int levels = r->k.red ? 1 + pick(&g, 3) : 0;
    for (int i = 0; i <= levels; i++) {
        for (int n = pick(&g, 4); n >= 0; n--)
            pick(&g, 4) ? expression(&g) : integer_expression(&g);
        for (int n = i < levels ? pick(&g, 2) : -1; n >= 0; n--)
            reduction(&g);
    }
    for (int i = 0; i < g.nreduced && r->k.noperands < RANDOM_OPERANDS - 3; i++)
        if (pick(&g, 2))
            store_reduced(&g, g.reduced[i]);
    store_full(&g, g.real[g.nreal - 1]);
    if (pick(&g, 2))
        store_full(&g, real(&g));
    if (g.nwhole && pick(&g, 2))
        store_full(&g, g.whole[g.nwhole - 1]);
    int64_t row = r->k.rank > 1 ? r->k.extent[r->k.rank - 1] : 0;
    bool rows = row > 1 && row <= 4096 && r->k.red == 1u << (r->k.rank - 1);
    for (int i = 0; i < 2 && rows && r->k.noperands < RANDOM_OPERANDS - 1; i++)
        column_sum(&g);
}

void residual_kernel(RandomKernel *r, Arena *a, DType dt, const int64_t shape[3])
{
    enum { REDUCED = 5 };
    Kernel *k = &r->k;
    *r = (RandomKernel){.seed = (uint64_t)(shape[0] + shape[1] + shape[2])};
    Gen g = {.r = r, .k = k};
    k->arena = a;
    k->operand = NEW(a, DType, RANDOM_OPERANDS);
    Type all = type_make(dt, 3, shape), one = type_make(DT_F32, 1, &shape[1]);
    k_space(k, &all, REDUCED);
    int in[5];
    for (int i = 0; i < 5; i++) {
        int o = operand(&g, i < 4 ? all : one);
        in[i] = i < 4 ? k_load(k, o, &all) : k_load_keep(k, o, REDUCED);
    }
    r->nread = k->noperands;
    int sum = k_op(k, OP_relu_bwd, k_op(k, OP_add, in[0], in[1], 0), in[2], 0);
    int dy = kernel_narrow(k, sum, dt), x = k_op(k, OP_sub, in[3], in[4], 0);
    int scale = k_const(k, KT_REAL, 1.0 / (double)(shape[0] * shape[2]));
    int bias = k_op(k, OP_mul, k_reduce(k, K_SUM, dy), scale, 0);
    int weight = k_op(k, OP_mul, k_reduce(k, K_SUM, k_op(k, OP_mul, dy, x, 0)), scale, 0);
    int dx = k_op(k, OP_sub, k_op(k, OP_sub, dy, bias, 0), k_op(k, OP_mul, x, weight, 0), 0);
    k_store(k, operand(&g, all), dx);
    k_store(k, operand(&g, all), sum);
    store_reduced(&g, bias);
    store_reduced(&g, weight);
}

int random_kernel_early(const RandomKernel *r)
{
    int n = 0;
    for (uint32_t i = 0; i < r->k.nins; i++)
        n += kernel_stores_early(&r->k, i);
    return n;
}

Tensor *random_kernel_data(const RandomKernel *r, Arena *a)
{
    Tensor *t = NEW(a, Tensor, r->k.noperands + 1);
    uint64_t s = r->seed ^ 0x5DEECE66Du;
    for (int o = 0; o < r->k.noperands; o++) {
        t[o].type = r->type[o];
        t[o].data = NEW(a, char, type_bytes(&r->type[o]) + 64);
        for (int64_t i = 0; o < r->nread && i < type_count(&r->type[o]); i++) {
            int64_t v = (int64_t)(next(&s) % 4001) - 2000;
            if (dtype_is_float(r->type[o].dt))
                tensor_set_f(&t[o], i, (double)v / 1000);
            else
                tensor_set_i(&t[o], i, r->type[o].dt == DT_U8 ? v & 15 : v % 8);
        }
    }
    return t;
}

double random_kernel_tolerance(const RandomKernel *r)
{
    for (int o = 0; o < r->k.noperands; o++)
        if (r->k.operand[o] == DT_F64)
            return 1e-10;
    return 4e-5;
}

bool tensor_close(const Tensor *want, const Tensor *got, double tol, char msg[256])
{
    tol = want->type.dt == DT_F32 && tol < 1e-6 ? 1e-6 : tol;
    tol = fmax(tol, want->type.dt == DT_BF16 ? 0.008 : want->type.dt == DT_F16 ? 0.001 : 0);
    tol = dtype_is_float(want->type.dt) ? tol : 0;
    for (int64_t i = 0; i < type_count(&want->type); i++) {
        double w = tensor_f(want, i), x = tensor_f(got, i);
        if ((isnan(w) && isnan(x)) || w == x || fabs(w - x) <= tol * (1 + fabs(w)))
            continue;
        char type[160];
        snprintf(msg, 256, "%s[%lld] is %.9g, not %.9g", type_str(&want->type, type),
                 (long long)i, x, w);
        return false;
    }
    return true;
}
