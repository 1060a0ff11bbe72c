/* data_type.c -- the table of ONNX's element types.
 *
 * Types without a native counterpart are widened to one that holds their values (i2, i4 to i8; u2, u4 to
 * u8; i16, u16 to i32; u32, u64 to i64). */
#include "data_type.h"
#include "put.h"
#include <string.h>

static const DataType data_types[] = {
    [0] = {.name = "unknown"},
    [1] = {"float", DT_F32, 32, 'f', TENSOR_FLOAT_DATA},
    [2] = {"uint8", DT_U8, 8, 'u', TENSOR_INT32_DATA},
    [3] = {"int8", DT_I8, 8, 'i', TENSOR_INT32_DATA},
    [4] = {"uint16", DT_I32, 16, 'u', TENSOR_INT32_DATA},
    [5] = {"int16", DT_I32, 16, 'i', TENSOR_INT32_DATA},
    [6] = {"int32", DT_I32, 32, 'i', TENSOR_INT32_DATA},
    [7] = {"int64", DT_I64, 64, 'i', TENSOR_INT64_DATA},
    [8] = {.name = "string"},
    [9] = {"bool", DT_BOOL, 8, 'b', TENSOR_INT32_DATA},
    [10] = {"float16", DT_F16, 16, 'f', TENSOR_INT32_DATA},
    [11] = {"double", DT_F64, 64, 'f', TENSOR_DOUBLE_DATA},
    [12] = {"uint32", DT_I64, 32, 'u', TENSOR_UINT64_DATA},
    [13] = {"uint64", DT_I64, 64, 'u', TENSOR_UINT64_DATA},
    [14] = {.name = "complex64"},
    [15] = {.name = "complex128"},
    [16] = {"bfloat16", DT_BF16, 16, 'B', TENSOR_INT32_DATA},
    [17] = {.name = "float8e4m3fn"},
    [18] = {.name = "float8e4m3fnuz"},
    [19] = {.name = "float8e5m2"},
    [20] = {.name = "float8e5m2fnuz"},
    [21] = {"uint4", DT_U8, 4, 'u', TENSOR_INT32_DATA},
    [22] = {"int4", DT_I8, 4, 'i', TENSOR_INT32_DATA},
    [23] = {.name = "float4e2m1"},
    [24] = {.name = "float8e8m0"},
    [25] = {"uint2", DT_U8, 2, 'u', TENSOR_INT32_DATA},
    [26] = {"int2", DT_I8, 2, 'i', TENSOR_INT32_DATA},
};
enum { NDATA_TYPES = sizeof data_types / sizeof data_types[0] };

const DataType *data_type_info(int32_t t) { return &data_types[t > 0 && t < NDATA_TYPES ? t : 0]; }

DType onnx_dtype(int32_t t) { return data_type_info(t)->dt; }
const char *onnx_dtype_name(int32_t t) { return data_type_info(t)->name; }
int data_type_bits(int32_t t) { return data_type_info(t)->bits; }

bool data_type_is_signed(int32_t t)
{
    char kind = data_type_info(t)->kind;
    return kind == 'f' || kind == 'B' || kind == 'i';
}

bool data_type_is_widened(int32_t t)
{
    const DataType *type = data_type_info(t);
    bool same = type->bits == 8 * dtype_size[type->dt] && !(type->kind == 'u' && type->dt == DT_I64);
    return type->bits && !same;
}

int64_t data_type_integer(const DataType *t, const uint8_t *raw, int64_t i)
{
    uint64_t v = 0;
    memcpy(&v, raw + i * t->bits / 8, (size_t)(t->bits + 7) / 8);
    int shift = 64 - t->bits;
    v = v >> i * t->bits % 8 << shift;
    return t->kind == 'i' ? (int64_t)v >> shift : (int64_t)(v >> shift);
}

int32_t onnx_data_type(DType dt)
{
    int32_t t = NDATA_TYPES;
    while (--t > 0 && (data_types[t].dt != dt || data_type_is_widened(t)))
        ;
    return t;
}
