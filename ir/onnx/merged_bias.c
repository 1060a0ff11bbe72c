/* merged_bias.c -- biases of zeros, which the exporter has left out: their lengths and tensors. */
#include "onnx_int.h"
#include <string.h>

static int64_t int_attribute(const Onnx__NodeProto *p, const char *name, int64_t dflt)
{
    for (size_t i = 0; i < p->n_attribute; i++)
        if (strcmp(pb(p->attribute[i]->name), name) == 0)
            return p->attribute[i]->i;
    return dflt;
}

int64_t bias_count(const Onnx__NodeProto *p, const Onnx__TensorProto *w)
{
    const char *op = pb(p->op_type);
    if (w->n_dims == 2 && strcmp(op, "Gemm") == 0)
        return w->dims[!int_attribute(p, "transB", 0)];
    if (w->n_dims > 2 && strcmp(op, "Conv") == 0)
        return w->dims[0];
    bool transposed = w->n_dims > 2 && strcmp(op, "ConvTranspose") == 0;
    int64_t groups = transposed ? int_attribute(p, "group", 1) : 0;
    return transposed && groups > 0 && w->dims[1] > 0 && w->dims[1] <= INT32_MAX / groups
               ? w->dims[1] * groups
               : 0;
}

Onnx__TensorProto zero_bias(Arena *a, int32_t data_type, int64_t count)
{
    Onnx__TensorProto t = ONNX__TENSOR_PROTO__INIT;
    size_t n = (size_t)count;
    t.has_data_type = true;
    t.data_type = data_type;
    t.n_dims = 1;
    t.dims = NEW(a, int64_t, 1);
    t.dims[0] = count;
    if (data_type == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT)
        t.float_data = NEW(a, float, n), t.n_float_data = n;
    else if (data_type == ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE)
        t.double_data = NEW(a, double, n), t.n_double_data = n;
    else
        t.int32_data = NEW(a, int32_t, n), t.n_int32_data = n;
    return t;
}
