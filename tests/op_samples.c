/* op_samples.c -- random operands and attributes for every operator, family by family.
 *
 * Shapes are small but awkward: extents of 1, broadcasts, leading dimensions left out, now
 * and then an empty one.  Values stay where the operator is defined and differentiable. */
#include "op_samples_int.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* ---- randomness: splitmix64 (Steele, Lea, Flood 2014) -------------------------------- */

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

bool sample_chance(Sample *s, int percent) { return sample_int(s, 1, 100) <= percent; }

/* ---- operands ------------------------------------------------------------------------ */

int64_t sample_extent(Sample *s)
{
    static const int some[] = {1, 2, 3, 4, 5, 7};
    return s->empty && sample_chance(s, 15) ? 0 : some[sample_int(s, 0, COUNT(some) - 1)];
}

Type sample_shape(Sample *s, int min_rank, int max_rank)
{
    int64_t dim[MAX_RANK];
    int rank = sample_int(s, min_rank, max_rank);
    for (int i = 0; i < rank; i++)
        dim[i] = sample_extent(s);
    return type_make(s->dt, rank, dim);
}

/* A shape that broadcasts to t. */
Type sample_narrower(Sample *s, Type t)
{
    for (int i = 0; i < t.rank; i++)
        if (sample_chance(s, 30))
            t.dim[i] = 1;
    int drop = sample_chance(s, 30) ? sample_int(s, 0, t.rank) : 0;
    return type_make(t.dt, t.rank - drop, t.dim + drop);
}

Tensor *sample_operand(Sample *s, Type t)
{
    bool real = dtype_is_float(t.dt);
    Tensor *x = &s->data[s->nin];
    *x = (Tensor){t, NEW(&s->arena, char, type_bytes(&t) + 1)};
    s->in[s->nin++] = graph_value(&s->g, "x", t, real ? VAL_PARAM : VAL_INPUT);
    return x;
}

void sample_reals(Sample *s, Type t, double lo, double hi)
{
    Tensor *x = sample_operand(s, t);
    for (int64_t i = 0; i < type_count(&t); i++)
        tensor_set_f(x, i, sample_real(s, lo, hi));
}

void sample_ints(Sample *s, Type t, int lo, int hi)
{
    Tensor *x = sample_operand(s, t);
    for (int64_t i = 0; i < type_count(&t); i++)
        tensor_set_i(x, i, sample_int(s, lo, hi));
}

/* Appends an operand of type t: floats in [lo, hi], bools, or small integers. */
void sample_numbers(Sample *s, Type t, double lo, double hi)
{
    if (dtype_is_float(t.dt))
        sample_reals(s, t, lo, hi);
    else if (t.dt == DT_BOOL)
        sample_ints(s, t, 0, 1);
    else
        sample_ints(s, t, t.dt == DT_U8 ? 0 : -9, 9);
}

DType sample_some_int(Sample *s) { return sample_chance(s, 50) ? DT_I64 : DT_I32; }

/* Appends an operand for an operator that only moves elements: at times they are integers. */
void sample_table(Sample *s, Type t)
{
    if (sample_chance(s, 20))
        t.dt = sample_some_int(s);
    sample_numbers(s, t, -2, 2);
}

void sample_scalar(Sample *s, DType dt, double v)
{
    tensor_set_f(sample_operand(s, type_scalar(dt)), 0, v);
}

void sample_build(Sample *s, const void *attr)
{
    build_n(&s->g, s->op, "y", s->nin, s->in, attr, MAX_OUT, s->out);
}

/* ---- pointwise ----------------------------------------------------------------------- */

typedef struct {
    Op op;
    double lo, hi;
} Domain;

static const Domain domains[] = {
    {OP_log, 0.3, 3},         {OP_log_bwd, 0.3, 3},      {OP_log1p, -0.5, 3},
    {OP_log1p_bwd, -0.5, 3},  {OP_sqrt, 0.3, 3},         {OP_sqrt_bwd, 0.3, 3},
    {OP_root, 0.3, 3},        {OP_root_bwd, 0.3, 3},     {OP_reciprocal, 0.3, 3},
    {OP_rsqrt, 0.3, 3},       {OP_rsqrt_bwd, 0.3, 3},
    {OP_powc, 0.3, 3},        {OP_powc_bwd, 0.3, 3},     {OP_asin, -0.9, 0.9},
    {OP_asin_bwd, -0.9, 0.9}, {OP_acos, -0.9, 0.9},      {OP_acos_bwd, -0.9, 0.9},
    {OP_atanh, -0.9, 0.9},    {OP_atanh_bwd, -0.9, 0.9}, {OP_acosh, 1.2, 3},
    {OP_acosh_bwd, 1.2, 3},   {OP_tan, -1.2, 1.2},       {OP_div, 0.5, 2},
    {OP_pow, 0.3, 2},         {OP_fmod, 0.5, 2},         {OP_mod, 0.5, 2},
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

static bool is_logical(Op op)
{
    return op == OP_not || op == OP_and || op == OP_or || op == OP_xor;
}

/* Element type of a pointwise operand: now and then integers where they make sense. */
static DType pointwise_type(Sample *s)
{
    if (is_logical(s->op))
        return DT_BOOL;
    if (is_bitwise(s->op) || ((s->op >= OP_add || s->op == OP_abs) && sample_chance(s, 20)))
        return sample_some_int(s);
    return s->dt;
}

static void unary(Sample *s)
{
    Domain in = domain(s->op);
    Type t = sample_shape(s, 0, 4);
    t.dt = pointwise_type(s);
    for (int i = 0; i < op_table[s->op]->min_in; i++)
        sample_numbers(s, t, in.lo, in.hi);
    sample_build(
        s, &(PointwiseAttrs){s->op == OP_clip || s->op == OP_clip_bwd ? -0.7 : 0.7, 0.9});
}

static void binary(Sample *s)
{
    Domain in = domain(s->op);
    Type t = sample_shape(s, 0, 4);
    t.dt = s->op == OP_pow || s->op == OP_prelu ? s->dt : pointwise_type(s);
    bool shift = s->op == OP_bitshl || s->op == OP_bitshr, whole = sample_chance(s, 50);
    for (int i = 0; i < 2; i++) {
        Type ti = i == whole ? t : sample_narrower(s, t);
        if (shift)
            sample_ints(s, ti, 0, 9);
        else
            sample_numbers(s, ti, in.lo, in.hi);
    }
    sample_build(s, NULL);
}

static void where(Sample *s)
{
    Type t = sample_shape(s, 0, 4);
    sample_ints(s, type_with(sample_narrower(s, t), DT_BOOL), 0, 1);
    sample_reals(s, t, -2, 2);
    sample_reals(s, sample_narrower(s, t), -2, 2);
    sample_build(s, NULL);
}

static void cast(Sample *s)
{
    static const DType to[] = {DT_F32, DT_F64, DT_BF16, DT_F16, DT_I64, DT_I32, DT_BOOL};
    Type t = sample_shape(s, 0, 3);
    if (sample_chance(s, 30))
        t.dt = sample_chance(s, 50) ? DT_BOOL : DT_I32;
    sample_numbers(s, t, -4, 4);
    sample_build(s, &(CastAttrs){to[sample_int(s, 0, COUNT(to) - 1)]});
}

Ints sample_all_dims(const Type *t)
{
    Ints v = {.n = t->rank};
    memcpy(v.v, t->dim, (size_t)t->rank * sizeof *v.v);
    return v;
}

/* ---- which operator, which sampler --------------------------------------------------- */

static void start(Sample *s, Op op, DType dt, int trial)
{
    *s = (Sample){.seed = (uint64_t)op << 32 ^ (uint64_t)dt << 16 ^ (uint64_t)trial, .dt = dt, .op = op};
    s->empty = trial % 4 == 3;
    graph_init(&s->g, &s->arena, &s->diag);
}

static void finish(Sample *s)
{
    for (int i = 0; i < op_table[s->op]->nout && s->out[i].i; i++)
        graph_add_out(&s->g, s->out[i]);
}

void sample_make_attention(Sample *s, Op op, DType dt, int trial, int size, int v_size)
{
    start(s, op, dt, trial);
    s->size = size;
    s->v_size = v_size;
    sample_rows[op](s);
    finish(s);
}

bool sample_make(Sample *s, Op op, DType dt, int trial)
{
    SampleFn *fn = op == OP_where ? where : op == OP_cast ? cast : sample_rows[op];
    fn = fn ? fn : sample_index[op];
    if (!fn && (op_table[op]->traits & OPT_POINTWISE))
        fn = op_table[op]->expr.text && (op >= OP_add && op <= OP_bitshr) ? binary : unary;
    if (!fn)
        return false;
    start(s, op, dt, trial);
    fn(s);
    finish(s);
    return true;
}

void sample_free(Sample *s) { arena_free(&s->arena); }
