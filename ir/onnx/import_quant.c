/* import_quant.c -- quantization as arithmetic: integers narrower than the native types
 * live in wider ones, with the saturation that their type would have. */
#include "onnx_int.h"

typedef struct {
    int32_t data_type;
    double lo, hi;
} Range;

static const Range ranges[] = {
    {ONNX__TENSOR_PROTO__DATA_TYPE__UINT8, 0, 255},
    {ONNX__TENSOR_PROTO__DATA_TYPE__INT8, -128, 127},
    {ONNX__TENSOR_PROTO__DATA_TYPE__UINT16, 0, 65535},
    {ONNX__TENSOR_PROTO__DATA_TYPE__INT16, -32768, 32767},
};

static int32_t quantized_type(const OnnxNode *n)
{
    int32_t t = data_type_of(n, 2);
    return t ? t : in_type(n, 2)->dt == DT_U8 ? ONNX__TENSOR_PROTO__DATA_TYPE__UINT8 : 0;
}

/* A scale or zero point for every element of x: one number, one per index of the axis, or
 * one per block along it. */
static Val spread(OnnxNode *n, int k, int64_t axis)
{
    const Type *x = in_type(n, 0), *s = in_type(n, k);
    int64_t block = attr_int(n, "block_size", 0);
    if (s->rank == 1 && s->dim[0] != 1)
        return along_axis(n->g, n->in[k], (int)axis, x->rank);
    if (block > 0 && s->rank == x->rank) {
        Val all = repeat_each(n->g, n->in[k], (int)axis, block);
        return all.i ? build_slice(n->g, all, (int)axis, 0, x->dim[axis]) : all;
    }
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
    int32_t type =
        has_in(n, 2) ? quantized_type(n) : (int32_t)attr_int(n, "output_dtype", 0);
    type = type ? type : ONNX__TENSOR_PROTO__DATA_TYPE__UINT8;
    const Range *r = NULL;
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        r = ranges[i].data_type == type ? &ranges[i] : r;
    if (!r)
        return refuse(n, "quantization to %s", onnx_dtype_name(type));
    TRY(read_axis(n, &axis));
    Val scale = spread(n, 1, axis);
    Val x = build_cast(g, n->in[0], val_type(g, scale)->dt);
    Val q = one(g, OP_round, build2(g, OP_div, x, scale));
    if (has_in(n, 2))
        q = build2(g, OP_add, q, build_cast(g, spread(n, 2, axis), val_type(g, q)->dt));
    n->out[0] = narrow(n, with_consts(g, OP_clip, q, r->lo, r->hi), type);
    return n->out[0].i;
}

static bool import_dequantize(OnnxNode *n)
{
    Graph *g = n->g;
    int64_t axis;
    TRY(read_axis(n, &axis));
    Val scale = spread(n, 1, axis), x = n->in[0];
    TRY(scale.i);
    if (has_in(n, 2)) {
        DType wide = in_type(n, 0)->dt == DT_U8 ? DT_I32 : in_type(n, 0)->dt;
        x = build2(g, OP_sub, build_cast(g, x, wide),
                   build_cast(g, spread(n, 2, axis), wide));
    }
    n->out[0] = build2(g, OP_mul, build_cast(g, x, val_type(g, scale)->dt), scale);
    return n->out[0].i;
}

const OnnxOp onnx_quant[] = {
    {"DequantizeLinear", 10, .import = import_dequantize},
    {"QuantizeLinear", 10, .import = import_quantize},
    {0},
};
