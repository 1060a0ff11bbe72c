/* op_samples.c -- random operands and attributes for every operator, family by family.
 *
 * Shapes are small but awkward: extents of 1, broadcasts, leading dimensions left out, now and then
 * an empty one.  Values stay where the operator is defined and differentiable. */
#include "op_samples.h"
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* ---- randomness: splitmix64 (Steele, Lea, Flood 2014) --------------------------------------- */

uint64_t sample_next(Sample *s)
{
    uint64_t z = s->seed += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

double sample_real(Sample *s, double lo, double hi)
{
    return lo + (hi - lo) * (double)(sample_next(s) >> 11) * 0x1p-53;
}

int sample_int(Sample *s, int lo, int hi)
{
    return lo + (int)(sample_next(s) % (uint64_t)(hi - lo + 1));
}

static bool chance(Sample *s, int percent) { return sample_int(s, 1, 100) <= percent; }

/* ---- operands ----------------------------------------------------------------------------------- */

static int64_t extent(Sample *s)
{
    static const int some[] = {1, 2, 3, 4, 5, 7};
    return s->empty && chance(s, 15) ? 0 : some[sample_int(s, 0, COUNT(some) - 1)];
}

static Type shape(Sample *s, int min_rank, int max_rank)
{
    int64_t dim[MAX_RANK];
    int rank = sample_int(s, min_rank, max_rank);
    for (int i = 0; i < rank; i++)
        dim[i] = extent(s);
    return type_make(s->dt, rank, dim);
}

static Type typed(DType dt, int rank, const int64_t *dim) { return type_make(dt, rank, dim); }

/* A shape that broadcasts to t. */
static Type narrower(Sample *s, Type t)
{
    for (int i = 0; i < t.rank; i++)
        if (chance(s, 30))
            t.dim[i] = 1;
    int drop = chance(s, 30) ? sample_int(s, 0, t.rank) : 0;
    return type_make(t.dt, t.rank - drop, t.dim + drop);
}

static Type kept_shape(Type t, uint32_t ones)
{
    for (int i = 0; i < t.rank; i++)
        if (ones >> i & 1)
            t.dim[i] = 1;
    return t;
}

static Tensor *operand(Sample *s, Type t)
{
    bool real = dtype_is_float(t.dt);
    Tensor *x = &s->data[s->nin];
    *x = (Tensor){t, NEW(&s->arena, char, type_bytes(&t) + 1)};
    s->in[s->nin++] = graph_value(&s->g, "x", t, real ? VAL_PARAM : VAL_INPUT);
    return x;
}

static void reals(Sample *s, Type t, double lo, double hi)
{
    Tensor *x = operand(s, t);
    for (int64_t i = 0; i < type_count(&t); i++)
        tensor_set_f(x, i, sample_real(s, lo, hi));
}

static void ints(Sample *s, Type t, int lo, int hi)
{
    Tensor *x = operand(s, t);
    for (int64_t i = 0; i < type_count(&t); i++)
        tensor_set_i(x, i, sample_int(s, lo, hi));
}

/* Of the element type t has. */
static void numbers(Sample *s, Type t, double lo, double hi)
{
    if (dtype_is_float(t.dt))
        reals(s, t, lo, hi);
    else if (t.dt == DT_BOOL)
        ints(s, t, 0, 1);
    else
        ints(s, t, t.dt == DT_U8 ? 0 : -9, 9);
}

static DType some_int(Sample *s) { return chance(s, 50) ? DT_I64 : DT_I32; }

/* Data that is only moved: integers at times. */
static void table(Sample *s, Type t)
{
    if (chance(s, 20))
        t.dt = some_int(s);
    numbers(s, t, -2, 2);
}

static void scalar(Sample *s, DType dt, double v)
{
    tensor_set_f(operand(s, type_scalar(dt)), 0, v);
}

static void finish(Sample *s, const void *attr)
{
    build_n(&s->g, s->op, "y", s->nin, s->in, attr, MAX_OUT, s->out);
}

/* ---- pointwise ----------------------------------------------------------------------------------- */

typedef struct {
    Op op;
    double lo, hi;
} Domain;

static const Domain domains[] = {
    {OP_log, 0.3, 3},       {OP_log_bwd, 0.3, 3},   {OP_log1p, -0.5, 3},    {OP_log1p_bwd, -0.5, 3},
    {OP_sqrt, 0.3, 3},      {OP_sqrt_bwd, 0.3, 3},  {OP_rsqrt, 0.3, 3},     {OP_rsqrt_bwd, 0.3, 3},
    {OP_reciprocal, 0.3, 3}, {OP_powc, 0.3, 3},     {OP_powc_bwd, 0.3, 3},  {OP_asin, -0.9, 0.9},
    {OP_asin_bwd, -0.9, 0.9}, {OP_acos, -0.9, 0.9}, {OP_acos_bwd, -0.9, 0.9},
    {OP_atanh, -0.9, 0.9},  {OP_atanh_bwd, -0.9, 0.9}, {OP_acosh, 1.2, 3},  {OP_acosh_bwd, 1.2, 3},
    {OP_tan, -1.2, 1.2},    {OP_div, 0.5, 2},       {OP_pow, 0.3, 2},       {OP_fmod, 0.5, 2},
    {OP_mod, 0.5, 2},
};

static Domain domain(Op op)
{
    for (size_t i = 0; i < COUNT(domains); i++)
        if (domains[i].op == op)
            return domains[i];
    return (Domain){op, -2, 2};
}

static bool is_bitwise(Op op)
{
    return op == OP_bitnot || (op >= OP_bitand && op <= OP_bitshr);
}

static bool is_logical(Op op) { return op == OP_not || op == OP_and || op == OP_or || op == OP_xor; }

/* Element type of a pointwise operand: now and then integers where they make sense. */
static DType pointwise_type(Sample *s)
{
    if (is_logical(s->op))
        return DT_BOOL;
    if (is_bitwise(s->op) || ((s->op >= OP_add || s->op == OP_abs) && chance(s, 20)))
        return some_int(s);
    return s->dt;
}

static void unary(Sample *s)
{
    Domain in = domain(s->op);
    Type t = shape(s, 0, 4);
    t.dt = pointwise_type(s);
    for (int i = 0; i < op_table[s->op]->min_in; i++)
        numbers(s, t, in.lo, in.hi);
    finish(s, &(PointwiseAttrs){s->op == OP_clip || s->op == OP_clip_bwd ? -0.7 : 0.7, 0.9});
}

static void binary(Sample *s)
{
    Domain in = domain(s->op);
    Type t = shape(s, 0, 4);
    t.dt = s->op == OP_pow || s->op == OP_prelu ? s->dt : pointwise_type(s);
    bool shift = s->op == OP_bitshl || s->op == OP_bitshr, whole = chance(s, 50);
    for (int i = 0; i < 2; i++) {
        Type ti = i == whole ? t : narrower(s, t);
        if (shift)
            ints(s, ti, 0, 9);
        else
            numbers(s, ti, in.lo, in.hi);
    }
    finish(s, NULL);
}

static void where(Sample *s)
{
    Type t = shape(s, 0, 4);
    ints(s, type_with(narrower(s, t), DT_BOOL), 0, 1);
    reals(s, t, -2, 2);
    reals(s, narrower(s, t), -2, 2);
    finish(s, NULL);
}

static void cast(Sample *s)
{
    static const DType to[] = {DT_F32, DT_F64, DT_BF16, DT_F16, DT_I64, DT_I32, DT_BOOL};
    Type t = shape(s, 0, 3);
    if (chance(s, 30))
        t.dt = chance(s, 50) ? DT_BOOL : DT_I32;
    numbers(s, t, -4, 4);
    finish(s, &(CastAttrs){to[sample_int(s, 0, COUNT(to) - 1)]});
}

/* ---- moving elements -------------------------------------------------------------------------------- */

static Ints all_dims(const Type *t)
{
    Ints v = {.n = t->rank};
    memcpy(v.v, t->dim, (size_t)t->rank * sizeof *v.v);
    return v;
}

static void reshape(Sample *s)
{
    Type t = shape(s, 0, 4), back = {.rank = t.rank};
    for (int i = 0; i < t.rank; i++)
        back.dim[i] = t.dim[t.rank - 1 - i];
    reals(s, t, -2, 2);
    Ints flat = {1, {type_count(&t)}};
    finish(s, &(ShapeAttrs){chance(s, 50) ? flat : all_dims(&back)});
}

static void transpose(Sample *s)
{
    Type t = shape(s, 0, 5);
    Ints perm = {.n = t.rank};
    for (int i = 0; i < t.rank; i++) {
        int j = sample_int(s, 0, i);
        perm.v[i] = perm.v[j];
        perm.v[j] = i;
    }
    reals(s, t, -2, 2);
    finish(s, &(TransposeAttrs){perm});
}

static void expand(Sample *s)
{
    Type t = shape(s, 0, 4);
    reals(s, narrower(s, t), -2, 2);
    finish(s, &(ShapeAttrs){all_dims(&t)});
}

/* A window in whole: start, step and extents of the part. */
static SliceAttrs window_of(Sample *s, const Type *whole, Type *part)
{
    SliceAttrs at = {.start.n = whole->rank, .step.n = whole->rank, .size.n = whole->rank};
    *part = *whole;
    for (int i = 0; i < whole->rank; i++) {
        int n = (int)whole->dim[i], step = sample_int(s, 1, 2);
        int start = n ? sample_int(s, 0, n - 1) : 0;
        bool back = chance(s, 30);
        int room = n ? (back ? start : n - 1 - start) / step + 1 : 0;
        at.start.v[i] = start;
        at.step.v[i] = back ? -step : step;
        at.size.v[i] = part->dim[i] = room ? sample_int(s, 1, room) : 0;
    }
    return at;
}

static void slice(Sample *s)
{
    Type t = shape(s, 0, 4), part;
    SliceAttrs at = window_of(s, &t, &part);
    reals(s, t, -2, 2);
    finish(s, &at);
}

static void slice_bwd(Sample *s)
{
    Type t = shape(s, 1, 4), part;
    SliceAttrs at = window_of(s, &t, &part);
    at.size = all_dims(&t);
    reals(s, part, -2, 2);
    finish(s, &at);
}

static void concat(Sample *s)
{
    Type t = shape(s, 1, 4);
    int axis = sample_int(s, 0, t.rank - 1), n = sample_int(s, 1, 4);
    for (int i = 0; i < n; i++) {
        t.dim[axis] = extent(s);
        reals(s, t, -2, 2);
    }
    finish(s, &(AxisAttrs){axis});
}

static void pad(Sample *s)
{
    s->empty = false;
    Type t = shape(s, 0, 4);
    PadAttrs at = {.before.n = t.rank, .after.n = t.rank, .mode = sample_int(s, 0, 3), .value = 3};
    for (int i = 0; i < t.rank; i++) {
        at.before.v[i] = sample_int(s, 0, 3);
        at.after.v[i] = sample_int(s, 0, 3);
    }
    table(s, t);
    finish(s, &at);
}

/* ---- rows ------------------------------------------------------------------------------------------ */

static void reduce(Sample *s)
{
    s->empty = s->empty && s->op == OP_reduce_sum;
    Type t = shape(s, 0, 4);
    ReduceAttrs at = {.keepdims = chance(s, 50)};
    for (int i = 0; i < t.rank; i++)
        if (chance(s, 50))
            at.axes.v[at.axes.n++] = i;
    reals(s, t, -2, 2);
    finish(s, &at);
}

static void matmul(Sample *s)
{
    Type batch = shape(s, 0, 2), a = batch, b = narrower(s, batch);
    MatmulAttrs at = {chance(s, 50), chance(s, 50)};
    int64_t m = extent(s), n = extent(s), k = extent(s);
    a.dim[a.rank++] = at.ta ? k : m;
    a.dim[a.rank++] = at.ta ? m : k;
    b.dim[b.rank++] = at.tb ? n : k;
    b.dim[b.rank++] = at.tb ? k : n;
    reals(s, a, -1, 1);
    reals(s, b, -1, 1);
    finish(s, &at);
}

static void rows(Sample *s)
{
    Type t = shape(s, 1, 4);
    for (int i = 0; i < op_table[s->op]->min_in; i++)
        reals(s, t, -2, 2);
    finish(s, &(AxisAttrs){sample_int(s, 0, t.rank - 1)});
}

static void norm(Sample *s)
{
    s->empty = false;
    Type t = shape(s, 1, 4);
    NormAttrs at = {sample_int(s, 0, t.rank - 1), 1e-5};
    uint32_t axes = (1u << t.rank) - (1u << at.axis);
    Type stat = kept_shape(t, axes), scale = narrower(s, t);
    bool rms = s->op == OP_rms_norm || s->op == OP_rms_norm_bwd, scaled = chance(s, 70);
    bool forward = s->op == OP_rms_norm || s->op == OP_layer_norm;
    if (!forward)
        reals(s, t, -1, 1);
    reals(s, t, -2, 2);
    for (int i = rms; i < 2 && !forward; i++)
        reals(s, stat, 0.5, 1.5);
    for (int i = rms && forward; scaled && i < (forward ? 2 : 1); i++)
        reals(s, scale, 0.5, 2);
    finish(s, &at);
}

static void batch_norm(Sample *s)
{
    s->empty = false;
    Type t = shape(s, 2, 4);
    t.dim[0] = sample_int(s, 2, 4);
    Type c = typed(s->dt, 1, &t.dim[1]);
    if (s->op == OP_batch_norm_bwd)
        reals(s, t, -1, 1);
    reals(s, t, -2, 2);
    for (int i = 0; i < (s->op == OP_batch_norm_bwd ? 3 : 2); i++)
        reals(s, c, 0.5, 1.5);
    finish(s, &(NormAttrs){1, 1e-5});
}

static void cross_entropy(Sample *s)
{
    s->empty = false;
    Type t = shape(s, 1, 3);
    int axis = sample_int(s, 0, t.rank - 1), classes = (int)t.dim[axis];
    Type rest = {.dt = s->dt};
    for (int i = 0; i < t.rank; i++)
        if (i != axis)
            rest.dim[rest.rank++] = t.dim[i];
    if (s->op == OP_cross_entropy_bwd)
        reals(s, rest, -1, 1);
    reals(s, t, -2, 2);
    ints(s, type_with(rest, some_int(s)), 0, classes - 1);
    if (s->op == OP_cross_entropy_bwd)
        reals(s, rest, 1, 2);
    if (chance(s, 50)) {
        reals(s, typed(s->dt, 1, &t.dim[axis]), 0.5, 2);
        s->g.vals[s->in[s->nin - 1].i].kind = VAL_INPUT; /* class weights are not learnt */
    }
    finish(s, &(CrossEntropyAttrs){axis, 0, chance(s, 50)});
}

/* ---- random, optimizers -------------------------------------------------------------------------------- */

static void rng(Sample *s) { ints(s, typed(DT_I64, 1, (int64_t[]){2}), 1, 1000); }

static void dropout(Sample *s)
{
    reals(s, shape(s, 1, 3), -2, 2);
    rng(s);
    finish(s, &(DropoutAttrs){0.4, sample_int(s, 1, 99)});
}

static void noise(Sample *s)
{
    Type t = shape(s, 0, 3);
    rng(s);
    finish(s, &(RandomAttrs){all_dims(&t), s->dt, sample_int(s, 1, 99), -0.5, 2});
}

static void optimizer(Sample *s)
{
    Type t = shape(s, 0, 3);
    int nout = op_table[s->op]->nout;
    for (int i = 0; i < nout + 1; i++)
        reals(s, t, i == 3 ? 0.1 : -1, 1);
    while (s->nin < op_table[s->op]->min_in)
        scalar(s, s->dt, s->op == OP_momentum && s->nin == 4 ? chance(s, 50) : 0.125);
    SgdAttrs sgd = {0.9, 0.1, 0.01, chance(s, 50)};
    AdamAttrs adam = {0.9, 0.999, 1e-8, 0.01};
    finish(s, s->op == OP_adamw ? (const void *)&adam : (const void *)&sgd);
}

/* ---- windows ------------------------------------------------------------------------------------------ */

static Ints some(Sample *s, int n, int lo, int hi)
{
    Ints v = {.n = n};
    for (int i = 0; i < n; i++)
        v.v[i] = sample_int(s, lo, hi);
    return v;
}

/* Extents of the windows over in; all at least 1. */
static int64_t windows(int64_t in, int64_t pads, int64_t kernel, int64_t stride, int64_t dilation)
{
    return (in + pads - dilation * (kernel - 1) - 1) / stride + 1;
}

static void conv(Sample *s)
{
    int sp = sample_int(s, 1, 3);
    ConvAttrs at = {.strides = some(s, sp, 1, 3), .pads = some(s, 2 * sp, 0, 2),
                    .dilations = some(s, sp, 1, 2), .group = sample_int(s, 1, 3)};
    Type x = {.dt = s->dt, .rank = sp + 2, .dim = {sample_int(s, 1, 2), at.group * sample_int(s, 1, 2)}};
    Type w = {.dt = s->dt, .rank = sp + 2, .dim = {at.group * sample_int(s, 1, 2), x.dim[1] / at.group}};
    Type y = {.dt = s->dt, .rank = sp + 2, .dim = {x.dim[0], w.dim[0]}};
    for (int i = 0; i < sp; i++) {
        int64_t k = w.dim[2 + i] = sample_int(s, 1, 3), reach = at.dilations.v[i] * (k - 1) + 1;
        x.dim[2 + i] = reach + sample_int(s, 0, sp == 1 ? 40 : 4);
        y.dim[2 + i] = windows(x.dim[2 + i], at.pads.v[i] + at.pads.v[sp + i], k,
                               at.strides.v[i], at.dilations.v[i]);
    }
    reals(s, s->op == OP_conv_bwd_data ? y : x, -1, 1);
    reals(s, s->op == OP_conv_bwd_weights ? y : w, -1, 1);
    if (s->op == OP_conv && chance(s, 50))
        reals(s, typed(s->dt, 1, w.dim), -1, 1);
    at.shape = all_dims(s->op == OP_conv_bwd_data ? &x : &w);
    finish(s, &at);
}

static void pool(Sample *s)
{
    int sp = sample_int(s, 1, 3);
    PoolAttrs at = {.kernel = some(s, sp, 1, 3), .strides = some(s, sp, 1, 3),
                    .pads = some(s, 2 * sp, 0, 1), .dilations = some(s, sp, 1, 2),
                    .out.n = sp, .include_pad = chance(s, 50)};
    Type x = {.dt = s->dt, .rank = sp + 2, .dim = {sample_int(s, 1, 2), sample_int(s, 1, 3)}}, y = x;
    for (int i = 0; i < sp; i++) {
        int64_t reach = at.dilations.v[i] * (at.kernel.v[i] - 1) + 1;
        if (at.kernel.v[i] == 1) /* no window wholly in the padding */
            at.pads.v[i] = at.pads.v[sp + i] = 0;
        x.dim[2 + i] = reach + sample_int(s, 0, sp == 1 ? 40 : 4);
        int64_t n = windows(x.dim[2 + i], at.pads.v[i] + at.pads.v[sp + i], at.kernel.v[i],
                            at.strides.v[i], at.dilations.v[i]);
        n += n * at.strides.v[i] - at.pads.v[i] < x.dim[2 + i]; /* ceil_mode: leans out */
        y.dim[2 + i] = at.out.v[i] = n;
    }
    at.shape = all_dims(&x);
    if (s->op != OP_avg_pool_bwd)
        reals(s, x, -1, 1);
    if (s->op == OP_avg_pool_bwd || s->op == OP_max_pool_bwd)
        reals(s, y, -1, 1);
    finish(s, &at);
}

/* ---- indices ------------------------------------------------------------------------------------------- */

static void gather(Sample *s)
{
    Type x = shape(s, 1, 3), ix = shape(s, 0, 2);
    int axis = sample_int(s, 0, x.rank - 1), n = (int)(x.dim[axis] = sample_int(s, 1, 40));
    if (chance(s, 30))
        x.dim[x.rank - 1] = sample_int(s, 1, 70);
    n = (int)x.dim[axis];
    table(s, x);
    ints(s, type_with(ix, some_int(s)), -n, n - 1);
    finish(s, &(AxisAttrs){axis});
}

static void gather_bwd(Sample *s)
{
    Type x = shape(s, 1, 3), ix = shape(s, 0, 2), y = {.dt = s->dt};
    int axis = sample_int(s, 0, x.rank - 1);
    x.dim[axis] = sample_int(s, 1, 40);
    if (chance(s, 30))
        x.dim[x.rank - 1] = sample_int(s, 1, 70);
    int n = (int)x.dim[axis];
    for (int i = 0; i < axis; i++)
        y.dim[y.rank++] = x.dim[i];
    for (int i = 0; i < ix.rank; i++)
        y.dim[y.rank++] = ix.dim[i];
    for (int i = axis + 1; i < x.rank; i++)
        y.dim[y.rank++] = x.dim[i];
    reals(s, y, -1, 1);
    ints(s, type_with(ix, some_int(s)), -n, n - 1);
    finish(s, &(GatherBwdAttrs){axis, all_dims(&x)});
}

/* Indices into x along axis: a shape no larger than x elsewhere. */
static Type element_indices(Sample *s, const Type *x, int axis)
{
    Type ix = type_with(*x, some_int(s));
    for (int i = 0; i < x->rank; i++)
        ix.dim[i] = i == axis ? extent(s) : sample_int(s, 0, 3) ? x->dim[i] : x->dim[i] / 2;
    return ix;
}

static void gather_elements(Sample *s)
{
    Type x = shape(s, 1, 4);
    int axis = sample_int(s, 0, x.rank - 1), n = (int)(x.dim[axis] = sample_int(s, 1, 6));
    Type ix = element_indices(s, &x, axis);
    table(s, x);
    ints(s, ix, -n, n - 1);
    finish(s, &(AxisAttrs){axis});
}

/* Batch dimensions, tuple length and the shape of the tuples for x. */
static Type tuples(Sample *s, const Type *x, int *batch, int *tuple)
{
    *batch = sample_int(s, 0, x->rank - 1);
    *tuple = sample_int(s, 1, x->rank - *batch);
    Type ix = type_make(some_int(s), *batch, x->dim);
    for (int i = sample_int(s, 0, 1); i >= 0; i--)
        ix.dim[ix.rank++] = sample_int(s, 1, 3);
    ix.dim[ix.rank++] = *tuple;
    return ix;
}

static void fill_tuples(Sample *s, Type ix, const Type *x, int batch, int tuple)
{
    Tensor *t = operand(s, ix);
    for (int64_t i = 0; i < type_count(&ix); i++) {
        int n = (int)x->dim[batch + i % tuple];
        tensor_set_i(t, i, n ? sample_int(s, -n, n - 1) : 0);
    }
}

static void gather_nd(Sample *s)
{
    Type x = shape(s, 1, 4);
    int batch, tuple;
    Type ix = tuples(s, &x, &batch, &tuple);
    table(s, x);
    fill_tuples(s, ix, &x, batch, tuple);
    finish(s, &(AxisAttrs){batch});
}

/* Distinct rows, as the gradient of SET assumes them: index a counts up along the axis. */
static void scatter_elements(Sample *s)
{
    Type x = shape(s, 1, 4);
    int axis = sample_int(s, 0, x.rank - 1), n = (int)(x.dim[axis] = sample_int(s, 1, 6));
    ScatterAttrs at = {axis, chance(s, 30) ? sample_int(s, 2, 4) : sample_int(s, 0, 1)};
    Type ix = element_indices(s, &x, axis);
    if (at.reduction == SCATTER_SET && ix.dim[axis] > n)
        ix.dim[axis] = n;
    table(s, x);
    Tensor *t = operand(s, ix);
    int64_t inner = 1, first = sample_int(s, 0, n - 1);
    for (int i = axis + 1; i < x.rank; i++)
        inner *= ix.dim[i];
    for (int64_t i = 0; i < type_count(&ix); i++)
        tensor_set_i(t, i, at.reduction ? sample_int(s, -n, n - 1)
                                        : (first + i / inner % ix.dim[axis]) % n);
    numbers(s, type_with(ix, s->data[0].type.dt), -2, 2);
    finish(s, &at);
}

static void scatter_nd(Sample *s)
{
    Type x = shape(s, 1, 4);
    int batch, tuple;
    Type ix = tuples(s, &x, &batch, &tuple);
    ScatterAttrs at = {batch, chance(s, 30) ? sample_int(s, 2, 4) : sample_int(s, 0, 1)};
    if (at.reduction == SCATTER_SET) /* one tuple per batch is distinct */
        for (int i = batch; i < ix.rank - 1; i++)
            ix.dim[i] = 1;
    Type u = type_make(s->dt, ix.rank - 1, ix.dim);
    for (int i = batch + tuple; i < x.rank; i++)
        u.dim[u.rank++] = x.dim[i];
    table(s, x);
    fill_tuples(s, ix, &x, batch, tuple);
    numbers(s, type_with(u, s->data[0].type.dt), -2, 2);
    finish(s, &at);
}

static void cumsum(Sample *s)
{
    Type t = shape(s, 1, 4);
    if (chance(s, 30))
        t.dim[t.rank - 1] = sample_int(s, 1, 70);
    int axis = sample_int(s, 0, t.rank - 1);
    table(s, t);
    finish(s, &(CumsumAttrs){axis, chance(s, 50), chance(s, 50)});
}

static void arg(Sample *s)
{
    Type t = shape(s, 1, 4);
    int axis = sample_int(s, 0, t.rank - 1);
    t.dim[axis] = sample_int(s, 1, 9);
    table(s, t);
    finish(s, &(ArgAttrs){axis, chance(s, 50), chance(s, 50)});
}

static void topk(Sample *s)
{
    Type t = shape(s, 1, 3);
    int axis = sample_int(s, 0, t.rank - 1);
    t.dim[axis] = sample_int(s, 1, 20);
    table(s, t);
    finish(s, &(TopkAttrs){axis, sample_int(s, 0, (int)t.dim[axis]), chance(s, 50)});
}

/* The tables are constants, as an importer makes them. */
static void resample(Sample *s)
{
    Type x = shape(s, 1, 4);
    int axis = sample_int(s, 0, x.rank - 1), n = (int)x.dim[axis];
    if (chance(s, 30))
        x.dim[x.rank - 1] = sample_int(s, 1, 70);
    reals(s, x, -1, 1);
    int64_t dim[] = {sample_int(s, 1, 16), sample_int(s, 1, 4)};
    ints(s, typed(some_int(s), 2, dim), -1, n - 1);
    reals(s, typed(DT_F32, 2, dim), -1, 1);
    for (int i = 1; i < 3; i++)
        s->in[i] = graph_const(&s->g, "table", s->data[i].type, s->data[i].data);
    finish(s, &(AxisAttrs){axis});
}

static void trilu(Sample *s)
{
    table(s, shape(s, 2, 4));
    finish(s, &(TriluAttrs){sample_int(s, -3, 3), chance(s, 50)});
}

/* ---- which operator, which sampler ------------------------------------------------------------------------ */

typedef void SampleFn(Sample *s);
static SampleFn *const samplers[OP_COUNT] = {
    [OP_where] = where, [OP_cast] = cast, [OP_reshape] = reshape, [OP_transpose] = transpose,
    [OP_expand] = expand, [OP_slice] = slice, [OP_slice_bwd] = slice_bwd, [OP_concat] = concat,
    [OP_pad] = pad, [OP_reduce_sum] = reduce, [OP_reduce_max] = reduce,
    [OP_reduce_min] = reduce, [OP_reduce_prod] = reduce, [OP_matmul] = matmul,
    [OP_softmax] = rows, [OP_softmax_bwd] = rows, [OP_log_softmax] = rows,
    [OP_log_softmax_bwd] = rows, [OP_layer_norm] = norm, [OP_layer_norm_bwd] = norm,
    [OP_rms_norm] = norm, [OP_rms_norm_bwd] = norm, [OP_batch_norm] = batch_norm,
    [OP_batch_norm_bwd] = batch_norm, [OP_cross_entropy] = cross_entropy,
    [OP_cross_entropy_bwd] = cross_entropy, [OP_dropout] = dropout, [OP_uniform] = noise,
    [OP_normal] = noise, [OP_sgd] = optimizer, [OP_momentum] = optimizer, [OP_adamw] = optimizer,
    [OP_conv] = conv, [OP_conv_bwd_data] = conv, [OP_conv_bwd_weights] = conv,
    [OP_max_pool] = pool, [OP_max_pool_bwd] = pool, [OP_avg_pool] = pool,
    [OP_avg_pool_bwd] = pool, [OP_gather] = gather, [OP_gather_bwd] = gather_bwd,
    [OP_gather_elements] = gather_elements, [OP_gather_nd] = gather_nd,
    [OP_scatter_elements] = scatter_elements, [OP_scatter_nd] = scatter_nd, [OP_cumsum] = cumsum,
    [OP_argmax] = arg, [OP_argmin] = arg, [OP_trilu] = trilu, [OP_topk] = topk,
    [OP_resample] = resample,
};

bool sample_make(Sample *s, Op op, DType dt, int trial)
{
    SampleFn *fn = samplers[op];
    if (!fn && (op_table[op]->traits & OPT_POINTWISE))
        fn = op_table[op]->expr.text && (op >= OP_add && op <= OP_bitshr) ? binary : unary;
    if (!fn)
        return false;
    *s = (Sample){.seed = (uint64_t)op << 32 ^ (uint64_t)dt << 16 ^ (uint64_t)trial,
                  .dt = dt, .op = op};
    s->empty = trial % 4 == 3;
    graph_init(&s->g, &s->arena, &s->diag);
    fn(s);
    for (int i = 0; i < op_table[op]->nout && s->out[i].i; i++)
        graph_add_out(&s->g, s->out[i]);
    return true;
}

void sample_free(Sample *s) { arena_free(&s->arena); }
