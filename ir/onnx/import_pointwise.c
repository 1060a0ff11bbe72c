/* import_pointwise.c -- elementwise operators: most are a row naming the native
 * operator. */
#include "onnx_int.h"
#include <math.h>
#include <string.h>

static bool unary(OnnxNode *n)
{
    const OnnxOp *row = n->row;
    double al = row->al ? attr_float(n, row->al, row->al0) : row->al0;
    double be = row->be ? attr_float(n, row->be, row->be0) : row->be0;
    n->out[0] = with_consts(n->g, row->native, n->in[0], al, be);
    return wrapped(n);
}

/* Before opset 7 the second operand was placed at an axis by attribute. */
static Val legacy_broadcast(OnnxNode *n, Val b)
{
    const Type *ta = in_type(n, 0), *tb = val_type(n->g, b);
    int64_t axis, dim[MAX_RANK];
    if (n->opset >= 7 || !attr_int(n, "broadcast", 0) || tb->rank > ta->rank)
        return b;
    if (!attr_int_in(n, "axis", ta->rank - tb->rank, -MAX_RANK, ta->rank, &axis))
        return (Val){0};
    if (axis < 0)
        return b;
    int rank = ta->rank - (int)axis;
    for (int i = 0; i < rank; i++)
        dim[i] = i < tb->rank ? tb->dim[i] : 1;
    return rank >= tb->rank ? build_reshape(n->g, b, rank, dim) : b;
}

static bool binary(OnnxNode *n)
{
    if (!has_in(n, 0) || !has_in(n, 1))
        return fail(n->x->d, "an operand is missing");
    n->out[0] = build2(n->g, n->row->native, n->in[0], legacy_broadcast(n, n->in[1]));
    return wrapped(n);
}

static bool import_add(OnnxNode *n)
{
    return (has_in(n, 0) && has_in(n, 1) && batch_norm_written_out(n)) || binary(n);
}

static bool binary_swapped(OnnxNode *n)
{
    if (!has_in(n, 0) || !has_in(n, 1))
        return fail(n->x->d, "an operand is missing");
    n->out[0] = build2(n->g, n->row->native, legacy_broadcast(n, n->in[1]), n->in[0]);
    return n->out[0].i;
}

static bool variadic(OnnxNode *n)
{
    Val acc = n->in[0];
    for (int i = 1; i < n->nin; i++)
        acc = build2(n->g, n->row->native, acc, n->in[i]);
    n->out[0] = acc;
    return acc.i;
}

static bool import_mean(OnnxNode *n)
{
    TRY(variadic(n));
    if (n->nin > 1)
        n->out[0] = mul_scalar(n->g, n->out[0], 1.0 / n->nin);
    return n->out[0].i;
}

static bool import_mod(OnnxNode *n)
{
    n->out[0] = build2(n->g, attr_int(n, "fmod", 0) ? OP_fmod : OP_mod, n->in[0], n->in[1]);
    return n->out[0].i;
}

/* Powers with a constant exponent have gradients in the base only. */
static Val constant_power(Graph *g, Val x, double e)
{
    if (e == 1)
        return x;
    if (e == 2 || e == 3)
        return one(g, e == 2 ? OP_square : OP_cube, x);
    if (e == 0.5 || e == -0.5)
        return one(g, e > 0 ? OP_sqrt : OP_rsqrt, x);
    if (e == -1)
        return one(g, OP_reciprocal, x);
    return with_consts(g, OP_powc, x, e, 0);
}

static bool import_pow(OnnxNode *n)
{
    Graph *g = n->g;
    Val x = n->in[0], e = n->in[1];
    DType dt = in_type(n, 0)->dt, de = in_type(n, 1)->dt;
    bool scalar = graph_is_const(g, e) && type_count(in_type(n, 1)) == 1 &&
                  in_type(n, 1)->rank <= in_type(n, 0)->rank;
    Tensor t = graph_tensor(g, e);
    if (scalar && dtype_is_float(dt))
        n->out[0] = constant_power(g, x, tensor_f(&t, 0));
    else if (!dtype_is_float(dt) && dtype_is_float(de))
        n->out[0] = build_cast(g, build2(g, OP_pow, build_cast(g, x, de), e), dt);
    else
        n->out[0] = build2(g, OP_pow, x, legacy_broadcast(n, build_cast(g, e, dt)));
    return wrapped(n);
}

static bool clip_bound(OnnxNode *n, int k, const char *attr, double dflt, Val *tensor, double *v)
{
    *v = n->opset < 11 ? attr_float(n, attr, dflt) : dflt;
    *tensor = (Val){0};
    if (n->opset < 11 || !has_in(n, k))
        return true;
    if (dtype_is_float(in_type(n, 0)->dt) && graph_is_const(n->g, n->in[k]))
        return static_float(n, k, v);
    *tensor = n->in[k];
    return true;
}

static bool import_clip(OnnxNode *n)
{
    double lo, hi;
    Val tlo, thi, y = n->in[0];
    TRY(clip_bound(n, 1, "min", -INFINITY, &tlo, &lo));
    TRY(clip_bound(n, 2, "max", INFINITY, &thi, &hi));
    if (lo != -INFINITY || hi != INFINITY)
        y = lo == 0 && hi == INFINITY ? one(n->g, OP_relu, y) : with_consts(n->g, OP_clip, y, lo, hi);
    if (tlo.i)
        y = build2(n->g, OP_max, y, tlo);
    if (thi.i)
        y = build2(n->g, OP_min, y, thi);
    n->out[0] = y;
    return y.i;
}

static bool import_isinf(OnnxNode *n)
{
    n->out[0] = with_consts(n->g, OP_isinf, n->in[0], attr_int(n, "detect_positive", 1) != 0,
                            attr_int(n, "detect_negative", 1) != 0);
    return n->out[0].i;
}

static bool import_where(OnnxNode *n)
{
    n->out[0] = build3(n->g, OP_where, n->in[0], n->in[1], n->in[2]);
    return n->out[0].i;
}

static bool import_cast(OnnxNode *n)
{
    int32_t to;
    TRY(attr_needed(n, "to"));
    if (attr_find(n, "to")->s.data)
        return refuse(n, "attribute 'to' must be a number: convert the model to a newer opset");
    TRY(attr_data_type(n, "to", 0, &to));
    n->out[0] = narrow(n, n->in[0], to);
    return n->out[0].i;
}

static bool import_cast_like(OnnxNode *n)
{
    n->out[0] = narrow(n, n->in[0], element_type(n, 1));
    return n->out[0].i;
}

static bool import_gelu(OnnxNode *n)
{
    n->out[0] = one(n->g, attr_is(n, "approximate", "none", "tanh") ? OP_gelu_tanh : OP_gelu, n->in[0]);
    return n->out[0].i;
}

static bool import_swiglu(OnnxNode *n)
{
    Val gate = with_consts(n->g, OP_silu, n->in[0], attr_float(n, "alpha", 1), 0);
    n->out[0] = build2(n->g, OP_mul, gate, n->in[1]);
    return n->out[0].i;
}

static bool import_prelu(OnnxNode *n)
{
    const Type *x = in_type(n, 0), *s = in_type(n, 1);
    Val slope = n->in[1];
    if (n->opset < 7 && s->rank == 1 && x->rank > 2)
        slope = along_axis(n->g, slope, 1, x->rank);
    n->out[0] = build2(n->g, OP_prelu, n->in[0], slope);
    return n->out[0].i;
}

/* Shifts beyond the width leave 0, or the sign of a signed number that is shifted right. */
static bool import_bitshift(OnnxNode *n)
{
    enum { WIDTH = 64 };
    Graph *g = n->g;
    bool left = attr_is(n, "direction", "", "LEFT");
    TRY(attr_needed(n, "direction"));
    int32_t type = element_type(n, 0);
    bool keeps_sign = !left && data_type_is_signed(type);
    int bits = keeps_sign ? data_type_bits(type) : WIDTH;
    Val by = n->in[1], zero = scalar_like(g, n->in[0], 0), most = scalar_like(g, by, bits - 1);
    Val inside = build2(g, OP_less_equal, by, most);
    if (keeps_sign) {
        inside = build2(g, OP_and, inside, build2(g, OP_less_equal, scalar_like(g, by, 0), by));
        by = build3(g, OP_where, inside, by, most);
        Val sign = build3(g, OP_where, build2(g, OP_less, n->in[0], zero),
                          scalar_like(g, n->in[0], -1), zero);
        Val y = build2(g, OP_bitshr, build2(g, OP_bitxor, n->in[0], sign), by);
        n->out[0] = build2(g, OP_bitxor, y, sign);
        return wrapped(n);
    }
    Val y = build2(g, left ? OP_bitshl : OP_bitshr, n->in[0], build2(g, OP_min, by, most));
    n->out[0] = build3(g, OP_where, inside, y, zero);
    return wrapped(n);
}

const OnnxOp onnx_pointwise[] = {
    {"Abs", 1, .import = unary, .native = OP_abs},
    {"Acos", 1, .import = unary, .native = OP_acos},
    {"Acosh", 1, .import = unary, .native = OP_acosh},
    {"Add", 1, .import = import_add, .native = OP_add},
    {"And", 1, .import = binary, .native = OP_and},
    {"Asin", 1, .import = unary, .native = OP_asin},
    {"Asinh", 1, .import = unary, .native = OP_asinh},
    {"Atan", 1, .import = unary, .native = OP_atan},
    {"Atanh", 1, .import = unary, .native = OP_atanh},
    {"BitShift", 1, .import = import_bitshift},
    {"BitwiseAnd", 1, .import = binary, .native = OP_bitand},
    {"BitwiseNot", 1, .import = unary, .native = OP_bitnot},
    {"BitwiseOr", 1, .import = binary, .native = OP_bitor},
    {"BitwiseXor", 1, .import = binary, .native = OP_bitxor},
    {"Cast", 6, .import = import_cast, .typed = 1},
    {"CastLike", 1, .import = import_cast_like, .typed = 1},
    {"Ceil", 1, .import = unary, .native = OP_ceil},
    {"Celu", 1, .import = unary, .native = OP_celu, .al = "alpha", .al0 = 1},
    {"Clip", 1, .import = import_clip},
    {"Cos", 1, .import = unary, .native = OP_cos},
    {"Cosh", 1, .import = unary, .native = OP_cosh},
    {"Div", 1, .import = binary, .native = OP_div},
    {"Elu", 1, .import = unary, .native = OP_elu, .al = "alpha", .al0 = 1},
    {"Equal", 1, .import = binary, .native = OP_equal},
    {"Erf", 1, .import = unary, .native = OP_erf},
    {"Exp", 1, .import = unary, .native = OP_exp},
    {"Floor", 1, .import = unary, .native = OP_floor},
    {"Gelu", 1, .import = import_gelu},
    {"Greater", 1, .import = binary_swapped, .native = OP_less},
    {"GreaterOrEqual", 1, .import = binary_swapped, .native = OP_less_equal},
    {"HardSigmoid", 1, .import = unary, .native = OP_hardsigmoid, .al = "alpha",
     .be = "beta", .al0 = 0.2, .be0 = 0.5},
    {"HardSwish", 1, .import = unary, .native = OP_hardswish},
    {"IsInf", 1, .import = import_isinf},
    {"IsNaN", 1, .import = unary, .native = OP_isnan},
    {"LeakyRelu", 1, .import = unary, .native = OP_leaky_relu, .al = "alpha", .al0 = 0.01},
    {"Less", 1, .import = binary, .native = OP_less},
    {"LessOrEqual", 1, .import = binary, .native = OP_less_equal},
    {"Log", 1, .import = unary, .native = OP_log},
    {"Max", 1, .import = variadic, .native = OP_max},
    {"Mean", 1, .import = import_mean, .native = OP_add},
    {"Min", 1, .import = variadic, .native = OP_min},
    {"Mish", 1, .import = unary, .native = OP_mish},
    {"Mod", 1, .import = import_mod},
    {"Mul", 1, .import = binary, .native = OP_mul},
    {"Neg", 1, .import = unary, .native = OP_neg},
    {"Not", 1, .import = unary, .native = OP_not},
    {"Or", 1, .import = binary, .native = OP_or},
    {"PRelu", 1, .import = import_prelu, .weights = 1 << 1},
    {"Pow", 1, .import = import_pow},
    {"Reciprocal", 1, .import = unary, .native = OP_reciprocal},
    {"Relu", 1, .import = unary, .native = OP_relu},
    {"Round", 1, .import = unary, .native = OP_round},
    {"Selu", 1, .import = unary, .native = OP_selu, .al = "alpha", .be = "gamma",
     .al0 = 1.67326319217681884765625, .be0 = 1.05070102214813232421875},
    {"Shrink", 1, .import = unary, .native = OP_shrink, .al = "lambd", .be = "bias", .al0 = 0.5},
    {"Sigmoid", 1, .import = unary, .native = OP_sigmoid},
    {"Sign", 1, .import = unary, .native = OP_sign},
    {"Sin", 1, .import = unary, .native = OP_sin},
    {"Sinh", 1, .import = unary, .native = OP_sinh},
    {"Softplus", 1, .import = unary, .native = OP_softplus},
    {"Softsign", 1, .import = unary, .native = OP_softsign},
    {"Sqrt", 1, .import = unary, .native = OP_sqrt},
    {"Sub", 1, .import = binary, .native = OP_sub},
    {"Sum", 1, .import = variadic, .native = OP_add},
    {"SwiGLU", 1, .import = import_swiglu},
    {"Swish", 1, .import = unary, .native = OP_silu, .al = "alpha", .al0 = 1},
    {"Tan", 1, .import = unary, .native = OP_tan},
    {"Tanh", 1, .import = unary, .native = OP_tanh},
    {"ThresholdedRelu", 1, .import = unary, .native = OP_thresholded_relu, .al = "alpha", .al0 = 1},
    {"Where", 1, .import = import_where},
    {"Xor", 1, .import = binary, .native = OP_xor},
    {0},
};
