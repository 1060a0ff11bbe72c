/* import_quant.c -- quantization as arithmetic: integers narrower than the native types
 * live in wider ones, with the saturation that their type would have. */
#include "onnx_int.h"
#include <string.h>

/* ---- gradients ----------------------------------------------------------- */

/* The value with a gradient that an integer value stands for, as large as it; {0}: it has none. */
static Val real_of(const Import *x, Val q) { return q.i < x->nreals ? x->real[q.i] : (Val){0}; }

void set_real(Import *x, Val q, Val real)
{
    if (x->opt->forward_only)
        return;
    while (x->nreals <= q.i) {
        x->real = arena_grow(x->a, x->real, x->nreals, &x->creals, sizeof *x->real);
        x->real[x->nreals++] = (Val){0};
    }
    x->real[q.i] = real;
}

Val real_cast(const OnnxNode *n, Val v, DType dt)
{
    Val real = dtype_is_float(dt) ? real_of(n->x, v) : (Val){0};
    return build_cast(n->g, real.i ? real : v, dt);
}

static bool only_moves(Op op)
{
    return op == OP_reshape || op == OP_transpose || op == OP_slice || op == OP_gather;
}

void move_reals(Import *x, uint32_t first_node)
{
    Graph *g = x->g;
    for (uint32_t i = first_node, end = x->nreals ? g->nnodes : 0; i < end; i++) {
        const Node n = g->nodes[i];
        Val real = n.nin && only_moves(n.op) ? real_of(x, n.in[0]) : (Val){0};
        if (!real.i || real_of(x, n.out[0]).i)
            continue;
        Val *in = NEW(x->a, Val, n.nin);
        memcpy(in, n.in, (size_t)n.nin * sizeof *in);
        in[0] = real;
        set_real(x, n.out[0], build(g, n.op, NULL, n.nin, in, n.attr));
    }
}

/* The straight-through estimator: q, which x was rounded to, with the gradient of x where that is in the
 * range from lo to hi, else zero.  Adding the difference back, at most a half, is exact, but not in 16 bits
 * for types of more than 8. */
static Val straight_through(OnnxNode *n, Val q, Val x, Val zero_point, double lo, double hi)
{
    Graph *g = n->g;
    DType dt = val_type(g, x)->dt;
    Val low = build_scalar(g, dt, lo - 0.5), high = build_scalar(g, dt, hi + 0.5);
    if (!dtype_is_float(dt) || (dtype_is_half(dt) && hi - lo > 255))
        return (Val){0};
    if (zero_point.i)
        x = build2(g, OP_add, x, build_cast(g, zero_point, dt));
    x = build2(g, OP_min, build2(g, OP_max, x, low), high);
    return build2(g, OP_add, x, one(g, OP_detach, build2(g, OP_sub, q, x)));
}

/* ---- quantization -------------------------------------------------------- */

/* The result is round(x) + zero point, clipped to the range of the type. */
static bool saturate(OnnxNode *n, Val x, Val zero_point, int32_t type)
{
    int bits = data_type_bits(type);
    if (bits == 0 || bits > 16 || dtype_is_float(onnx_dtype(type)))
        return refuse(n, "quantization to %s", onnx_dtype_name(type));
    double span = (double)(1 << bits), lo = data_type_is_signed(type) ? -span / 2 : 0, hi = lo + span - 1;
    Val q = one(n->g, OP_round, x);
    TRY(q.i);
    if (zero_point.i)
        q = build2(n->g, OP_add, q, build_cast(n->g, zero_point, val_type(n->g, q)->dt));
    q = with_consts(n->g, OP_clip, q, lo, hi);
    n->out[0] = narrow(n, q, type);
    TRY(n->out[0].i);
    set_real(n->x, n->out[0], straight_through(n, q, x, zero_point, lo, hi));
    return true;
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

static bool import_dequantize(OnnxNode *n)
{
    Graph *g = n->g;
    int64_t axis;
    int32_t type;
    TRY(attr_data_type(n, "output_dtype", 0, &type));
    TRY(read_axis(n, &axis));
    Val scale = spread(n, 1, axis), x = n->in[0], zero = has_in(n, 2) ? spread(n, 2, axis) : (Val){0};
    TRY(scale.i);
    DType dt = val_type(g, scale)->dt, wide = dtype_size[in_type(n, 0)->dt] < 4 ? DT_I32 : in_type(n, 0)->dt;
    Val real = real_of(n->x, x);
    if (real.i && val_type(g, real)->dt == dt)
        x = real, wide = dt;
    if (zero.i)
        x = build2(g, OP_sub, build_cast(g, x, wide), build_cast(g, zero, wide));
    x = build_cast(g, x, dt);
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
    Val v = real_cast(n, n->in[k], DT_F64);
    int rank = in_type(n, k)->rank;
    return has_in(n, z) ? build2(n->g, OP_sub, v, real_along(n, z, axis, rank)) : v;
}

/* The result is y, whose elements are whole numbers. */
static bool whole(OnnxNode *n, Val y)
{
    n->out[0] = build_cast(n->g, y, DT_I32);
    TRY(n->out[0].i);
    set_real(n->x, n->out[0], y);
    return true;
}

static bool import_matmul_integer(OnnxNode *n)
{
    int ra = in_type(n, 0)->rank, rb = in_type(n, 1)->rank;
    if (ra < 2 || rb < 2)
        return refuse(n, "operands of rank %d and %d", ra, rb);
    Val a = centred(n, 0, 2, ra - 2), b = centred(n, 1, 3, rb - 1);
    return whole(n, build_matmul(n->g, a, b, false, false));
}

static bool import_conv_integer(OnnxNode *n)
{
    ConvAttrs at;
    TRY(read_conv(n, 1, &at));
    Val in[] = {centred(n, 0, 2, 1), centred(n, 1, 3, 0)};
    return whole(n, build(n->g, OP_conv, NULL, 2, in, &at));
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

/* Scale and zero point from the range of the data, which is made to hold 0; they have no gradient. */
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
    Val scale = one(g, OP_detach, build2(g, OP_div, range, most));
    Val start = one(g, OP_neg, build2(g, OP_div, one(g, OP_detach, low), scale));
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
