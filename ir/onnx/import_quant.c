/* import_quant.c -- quantization as arithmetic: integers narrower than the native types
 * live in wider ones, with the saturation that their type would have. */
#include "onnx_int.h"

/* The result is round(x) + zero point, clipped to the range of the type. */
static bool saturate(OnnxNode *n, Val x, Val zero_point, int32_t type)
{
    int bits = data_type_bits(type);
    if (bits == 0 || bits > 16 || dtype_is_float(onnx_dtype(type)))
        return refuse(n, "quantization to %s", onnx_dtype_name(type));
    double span = (double)(1 << bits), lo = data_type_is_signed(type) ? -span / 2 : 0;
    Val q = one(n->g, OP_round, x);
    TRY(q.i);
    if (zero_point.i)
        q = build2(n->g, OP_add, q, build_cast(n->g, zero_point, val_type(n->g, q)->dt));
    n->out[0] = narrow(n, with_consts(n->g, OP_clip, q, lo, lo + span - 1), type);
    return n->out[0].i;
}

/* A scale or zero point for every element of x: one number, one per index of the axis, or
 * one per block along it. */
static Val spread(OnnxNode *n, int k, int64_t axis)
{
    const Type *x = in_type(n, 0), *s = in_type(n, k);
    int64_t block;
    if (!attr_int_in(n, "block_size", 0, 0, MAX_STEP, &block))
        return (Val){0};
    if (s->rank == 1 && x->rank == 0)
        return build_reshape(n->g, n->in[k], 0, NULL);
    if (block > 0 && s->rank == x->rank) {
        Val all = repeat_each(n->g, n->in[k], (int)axis, block);
        return all.i ? build_slice(n->g, all, (int)axis, 0, x->dim[axis]) : all;
    }
    if (s->rank == 1 && s->dim[0] != 1)
        return along_axis(n->g, n->in[k], (int)axis, x->rank);
    return n->in[k];
}

static bool read_axis(OnnxNode *n, int64_t *axis)
{
    *axis = 0;
    if (in_type(n, 1)->rank == 0)
        return true;
    if (in_type(n, 1)->rank == 1 && in_type(n, 1)->dim[0] == 1)
        return true;
    return axis_in(n, attr_int(n, "axis", 1), in_type(n, 0)->rank, axis);
}

static bool import_quantize(OnnxNode *n)
{
    Graph *g = n->g;
    int64_t axis;
    int32_t type;
    TRY(attr_data_type(n, "output_dtype", 0, &type));
    if (has_in(n, 2))
        type = element_type(n, 2);
    TRY(read_axis(n, &axis));
    Val scale = spread(n, 1, axis), zero = has_in(n, 2) ? spread(n, 2, axis) : (Val){0};
    Val x = build_cast(g, n->in[0], val_type(g, scale)->dt);
    return saturate(n, build2(g, OP_div, x, scale), zero, type ? type : ONNX__TENSOR_PROTO__DATA_TYPE__UINT8);
}

/* The clip by which saturate() has made q, whose operand, not rounded, is *from; NULL: it has not. */
static const Node *quantized_from(const Graph *g, Val q, Val *from)
{
    const Node *n = graph_def(g, q);
    while (n && (n->op == OP_cast || n->op == OP_add || n->op == OP_sub || n->op == OP_bitand))
        n = graph_def(g, n->in[0]);
    const Node *clip = n && n->op == OP_clip ? n : NULL;
    n = clip ? graph_def(g, clip->in[0]) : NULL;
    n = n && n->op == OP_add ? graph_def(g, n->in[0]) : n;
    if (!n || n->op != OP_round)
        return NULL;
    *from = n->in[0];
    return clip;
}

/* The straight-through estimator of a quantized value's rounding: y, whose gradient is that of what was
 * rounded where that was in range, else zero.  Adding the difference back, at most a half, is
 * exact, but not in 16 bits for types of more than 8. */
static Val straight_through(Graph *g, Val q, Val zero, Val y)
{
    Val x = {0};
    const Node *clip = quantized_from(g, q, &x);
    DType dt = val_type(g, y)->dt;
    const PointwiseAttrs *range = clip ? clip->attr : NULL;
    if (!range || val_type(g, x)->dt != dt || (dtype_is_half(dt) && range->be - range->al > 255))
        return y;
    Val low = build_scalar(g, dt, range->al - 0.5), high = build_scalar(g, dt, range->be + 0.5);
    if (zero.i) {
        low = build2(g, OP_sub, low, build_cast(g, zero, dt));
        high = build2(g, OP_sub, high, build_cast(g, zero, dt));
    }
    x = build2(g, OP_min, build2(g, OP_max, x, low), high);
    return build2(g, OP_add, x, one(g, OP_detach, build2(g, OP_sub, y, x)));
}

static bool import_dequantize(OnnxNode *n)
{
    Graph *g = n->g;
    int64_t axis;
    int32_t type;
    TRY(attr_data_type(n, "output_dtype", 0, &type));
    TRY(read_axis(n, &axis));
    Val scale = spread(n, 1, axis), x = n->in[0], zero = has_in(n, 2) ? spread(n, 2, axis) : (Val){0};
    TRY(scale.i);
    if (zero.i) {
        DType wide = dtype_size[in_type(n, 0)->dt] < 4 ? DT_I32 : in_type(n, 0)->dt;
        x = build2(g, OP_sub, build_cast(g, x, wide), build_cast(g, zero, wide));
    }
    x = straight_through(g, n->in[0], zero, build_cast(g, x, val_type(g, scale)->dt));
    n->out[0] = build2(g, OP_mul, x, scale);
    if (type)
        n->out[0] = build_cast(g, n->out[0], onnx_dtype(type));
    return n->out[0].i;
}

/* ---- products of integers, exact in double precision ----------------------- */

/* Operand k in double; a vector lies along `axis` of `rank` dimensions. */
static Val real_along(OnnxNode *n, int k, int axis, int rank)
{
    const Type *t = in_type(n, k);
    Val v = t->rank == 1 && t->dim[0] > 1 ? along_axis(n->g, n->in[k], axis, rank) : n->in[k];
    if (t->rank == 1 && t->dim[0] == 1)
        v = build_reshape(n->g, v, 0, NULL);
    return build_cast(n->g, v, DT_F64);
}

/* Operand k less its zero point, operand z, if it has one. */
static Val centred(OnnxNode *n, int k, int z, int axis)
{
    Val v = build_cast(n->g, n->in[k], DT_F64);
    int rank = in_type(n, k)->rank;
    return has_in(n, z) ? build2(n->g, OP_sub, v, real_along(n, z, axis, rank)) : v;
}

static bool import_matmul_integer(OnnxNode *n)
{
    int ra = in_type(n, 0)->rank, rb = in_type(n, 1)->rank;
    if (ra < 2 || rb < 2)
        return refuse(n, "operands of rank %d and %d", ra, rb);
    Val a = centred(n, 0, 2, ra - 2), b = centred(n, 1, 3, rb - 1);
    n->out[0] = build_cast(n->g, build_matmul(n->g, a, b, false, false), DT_I32);
    return n->out[0].i;
}

static bool import_conv_integer(OnnxNode *n)
{
    ConvAttrs at;
    TRY(read_conv(n, 1, &at));
    Val in[] = {centred(n, 0, 2, 1), centred(n, 1, 3, 0)};
    n->out[0] = build_cast(n->g, build(n->g, OP_conv, NULL, 2, in, &at), DT_I32);
    return n->out[0].i;
}

/* Scales y, the product, to the result's type.  Operands of the node: x, scale and zero point of both
 * factors, then scale and zero point of the result. */
static bool requantize(OnnxNode *n, Val y, Val second_scale)
{
    Graph *g = n->g;
    Val scale = build2(g, OP_mul, real_along(n, 1, 0, 1), second_scale);
    scale = build2(g, OP_div, scale, real_along(n, 6, 0, 1));
    return saturate(n, build2(g, OP_mul, y, scale), n->in[7], element_type(n, 7));
}

static bool import_qlinear_matmul(OnnxNode *n)
{
    int ra = in_type(n, 0)->rank, rb = in_type(n, 3)->rank;
    if (ra < 2 || rb < 2)
        return refuse(n, "operands of rank %d and %d", ra, rb);
    Val a = centred(n, 0, 2, ra - 2), b = centred(n, 3, 5, rb - 1);
    return requantize(n, build_matmul(n->g, a, b, false, false), real_along(n, 4, rb - 1, rb));
}

static bool import_qlinear_conv(OnnxNode *n)
{
    ConvAttrs at;
    TRY(read_conv(n, 3, &at));
    Val in[] = {centred(n, 0, 2, 1), centred(n, 3, 5, 0), {0}};
    if (has_in(n, 8))
        in[2] = build_cast(n->g, n->in[8], DT_F64);
    Val y = build(n->g, OP_conv, NULL, has_in(n, 8) ? 3 : 2, in, &at);
    return requantize(n, y, real_along(n, 4, 1, in_type(n, 0)->rank));
}

/* Scale and zero point from the range of the data, which is made to hold 0. */
static bool import_dynamic_quantize(OnnxNode *n)
{
    Graph *g = n->g;
    Val x = n->in[0];
    uint32_t all = (1u << in_type(n, 0)->rank) - 1;
    Val zero = scalar_like(g, x, 0), most = scalar_like(g, x, 255);
    Val high = build2(g, OP_max, build_reduce(g, OP_reduce_max, x, all, false), zero);
    Val low = build2(g, OP_min, build_reduce(g, OP_reduce_min, x, all, false), zero);
    Val range = build2(g, OP_sub, high, low);
    range = build3(g, OP_where, build2(g, OP_equal, range, zero), scalar_like(g, x, 1), range);
    Val scale = build2(g, OP_div, range, most);
    Val start = one(g, OP_neg, build2(g, OP_div, low, scale));
    start = one(g, OP_round, with_consts(g, OP_clip, start, 0, 255));
    n->out[1] = scale;
    n->out[2] = build_cast(g, start, DT_U8);
    return saturate(n, build2(g, OP_div, x, scale), start, ONNX__TENSOR_PROTO__DATA_TYPE__UINT8);
}

const OnnxOp onnx_quant[] = {
    {"ConvInteger", 10, .import = import_conv_integer, .typed = 1},
    {"DequantizeLinear", 10, .import = import_dequantize, .fixed = 6},
    {"DequantizeLinear", 1, .import = import_dequantize, .fixed = 6, .domain = "com.microsoft"},
    {"DynamicQuantizeLinear", 11, .import = import_dynamic_quantize},
    {"MatMulInteger", 10, .import = import_matmul_integer, .typed = 1},
    {"QLinearConv", 10, .import = import_qlinear_conv, .fixed = 0xd2},
    {"QLinearMatMul", 10, .import = import_qlinear_matmul, .fixed = 0xd2},
    {"QuantizeLinear", 10, .import = import_quantize, .fixed = 6},
    {"QuantizeLinear", 1, .import = import_quantize, .fixed = 6, .domain = "com.microsoft"},
    {0},
};
