/* tensor.c -- TensorProto to tensors: raw, typed and external data of every element type.
 *
 * Types without a native counterpart are widened to one that holds their values (i8, i16,
 * u16 to i32; u32, u64 to i64).  Raw data of native types is referenced where it lies. */
#include "../within.h"
#include "onnx_int.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *name;
    DType dt;
    int8_t size; /* bytes in raw data; 0: not supported */
    bool is_signed;
} DataType;

static const DataType data_types[] = {
    [1] = {"float", DT_F32, 4, true},
    [2] = {"uint8", DT_U8, 1, false},
    [3] = {"int8", DT_I32, 1, true},
    [4] = {"uint16", DT_I32, 2, false},
    [5] = {"int16", DT_I32, 2, true},
    [6] = {"int32", DT_I32, 4, true},
    [7] = {"int64", DT_I64, 8, true},
    [8] = {"string", DT_NONE, 0, false},
    [9] = {"bool", DT_BOOL, 1, false},
    [10] = {"float16", DT_F16, 2, true},
    [11] = {"double", DT_F64, 8, true},
    [12] = {"uint32", DT_I64, 4, false},
    [13] = {"uint64", DT_I64, 8, false},
    [14] = {"complex64", DT_NONE, 0, false},
    [15] = {"complex128", DT_NONE, 0, false},
    [16] = {"bfloat16", DT_BF16, 2, true},
    [17] = {"float8e4m3fn", DT_NONE, 0, false},
    [18] = {"float8e4m3fnuz", DT_NONE, 0, false},
    [19] = {"float8e5m2", DT_NONE, 0, false},
    [20] = {"float8e5m2fnuz", DT_NONE, 0, false},
    [21] = {"uint4", DT_NONE, 0, false},
    [22] = {"int4", DT_NONE, 0, false},
    [23] = {"float4e2m1", DT_NONE, 0, false},
    [24] = {"float8e8m0", DT_NONE, 0, false},
    [25] = {"uint2", DT_NONE, 0, false},
    [26] = {"int2", DT_NONE, 0, false},
};

static const DataType *data_type(int32_t t)
{
    static const DataType unknown = {"unknown", DT_NONE, 0, false};
    bool known = t > 0 && t < (int32_t)(sizeof data_types / sizeof data_types[0]);
    return known ? &data_types[t] : &unknown;
}

DType onnx_dtype(int32_t t) { return data_type(t)->dt; }
const char *onnx_dtype_name(int32_t t) { return data_type(t)->name; }
int data_type_size(int32_t t) { return data_type(t)->size; }
bool data_type_is_signed(int32_t t) { return data_type(t)->is_signed; }
bool data_type_is_widened(int32_t t)
{
    return (data_type(t)->size && data_type(t)->size != dtype_size[data_type(t)->dt]) ||
           t == ONNX__TENSOR_PROTO__DATA_TYPE__UINT64;
}

int32_t onnx_data_type(DType dt)
{
    int32_t t = (int32_t)(sizeof data_types / sizeof data_types[0]);
    while (--t > 0 && (data_types[t].dt != dt || data_type_is_widened(t)))
        ;
    return t;
}

static bool shape_of(const Onnx__TensorProto *p, DType dt, Type *t, Diag *d)
{
    if (p->n_dims > MAX_RANK)
        return fail(d, "tensor '%s' has %zu dimensions, at most %d are supported",
                    pb(p->name), p->n_dims, MAX_RANK);
    *t = (Type){.dt = dt, .rank = (int)p->n_dims};
    for (size_t i = 0; i < p->n_dims; i++)
        t->dim[i] = p->dims[i];
    return type_valid(t) || fail(d, "tensor '%s' has impossible dimensions", pb(p->name));
}

static const char *external_key(const Onnx__TensorProto *p, const char *key)
{
    for (size_t i = 0; i < p->n_external_data; i++)
        if (strcmp(pb(p->external_data[i]->key), key) == 0)
            return pb(p->external_data[i]->value);
    return NULL;
}

static bool decimal(const char *s, uint64_t *v)
{
    char *end;
    *v = s ? strtoull(s, &end, 10) : 0;
    return !s || (*s && *s != '-' && !*end);
}

/* Where raw bytes lie: in the model file or an external one. */
static bool raw_place(OnnxModel *m, const Onnx__TensorProto *p, OnnxTensor *out,
                      const uint8_t **data, uint64_t *size, Diag *d)
{
    uint64_t place[2];
    FileMap map = m->map;
    out->file = m->path;
    if (p->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL) {
        const char *location = external_key(p, "location");
        if (!location)
            return fail(d, "tensor '%s': external data without a location", pb(p->name));
        TRY(external_map(m, location, &map, d));
        if (!decimal(external_key(p, "offset"), &place[0]) ||
            !decimal(external_key(p, "length"), &place[1]) || place[0] > map.size)
            return fail(d, "tensor '%s': external data outside '%s'", pb(p->name),
                        location);
        if (!external_key(p, "length"))
            place[1] = map.size - place[0];
        out->file = path_beside(&m->arena, m->path, location);
    } else {
        memcpy(place, p->raw_data.data, sizeof place); /* written by wire_copy() */
    }
    if (place[0] > map.size || place[1] > map.size - place[0])
        return fail(d, "tensor '%s': %llu bytes at %llu lie outside the file", pb(p->name),
                    (unsigned long long)place[1], (unsigned long long)place[0]);
    out->offset = (int64_t)place[0];
    *data = map.data + place[0];
    *size = place[1];
    return true;
}

/* Element i of raw little-endian integers of the given size. */
static int64_t raw_int(const uint8_t *p, int size, bool is_signed, int64_t i)
{
    uint64_t v = 0;
    memcpy(&v, p + i * size, (size_t)size);
    int shift = 64 - 8 * size;
    return is_signed ? (int64_t)(v << shift) >> shift : (int64_t)v;
}

static bool load_raw(OnnxModel *m, const Onnx__TensorProto *p, const DataType *type,
                     OnnxTensor *out, Diag *d)
{
    const uint8_t *data = NULL;
    uint64_t size = 0;
    TRY(raw_place(m, p, out, &data, &size, d));
    int64_t count = type_count(&out->t.type);
    if (size != (uint64_t)(count * type->size))
        return fail(d, "tensor '%s' of %lld %s has %llu bytes of data", pb(p->name),
                    (long long)count, type->name, (unsigned long long)size);
    out->t.data = (void *)(uintptr_t)data;
    if (type->size == dtype_size[type->dt])
        return true;
    out->file = NULL; /* widened */
    out->t.data = arena_alloc(&m->arena, (size_t)type_bytes(&out->t.type) + 1, 1);
    for (int64_t i = 0; i < count; i++)
        tensor_set_i(&out->t, i, raw_int(data, type->size, type->is_signed, i));
    return true;
}

static bool load_typed(OnnxModel *m, const Onnx__TensorProto *p, const DataType *type,
                       OnnxTensor *out, Diag *d)
{
    size_t have = type->dt == DT_F32   ? p->n_float_data
                  : type->dt == DT_F64 ? p->n_double_data
                  : p->n_uint64_data   ? p->n_uint64_data
                  : p->n_int64_data    ? p->n_int64_data
                                       : p->n_int32_data;
    int64_t count = type_count(&out->t.type);
    if (have != (uint64_t)count)
        return fail(d, "tensor '%s' of %lld %s has %zu elements of data", pb(p->name),
                    (long long)count, type->name, have);
    Tensor *t = &out->t;
    if (type->dt == DT_F32 || type->dt == DT_F64 ||
        (type->dt == DT_I64 && p->n_int64_data)) {
        t->data = type->dt == DT_F32   ? (void *)p->float_data
                  : type->dt == DT_F64 ? (void *)p->double_data
                                       : (void *)p->int64_data;
        return true;
    }
    t->data = arena_alloc(&m->arena, (size_t)type_bytes(&t->type) + 1, 1);
    for (int64_t i = 0; i < count; i++) {
        int64_t v = p->n_uint64_data  ? (int64_t)p->uint64_data[i]
                    : p->n_int64_data ? p->int64_data[i]
                                      : p->int32_data[i];
        if (type->dt == DT_F16 || type->dt == DT_BF16)
            ((uint16_t *)t->data)[i] = (uint16_t)v; /* bit patterns */
        else
            tensor_set_i(t, i, v);
    }
    return true;
}

bool tensor_type_of(const Onnx__TensorProto *p, Type *t, Diag *d)
{
    const DataType *type = data_type(p->data_type);
    if (!type->size)
        return fail_status(d, EXIT_UNSUPPORTED,
                           "tensor '%s': element type %s is not supported", pb(p->name),
                           type->name);
    return shape_of(p, type->dt, t, d);
}

const char *tensor_lacks(OnnxModel *m, const Onnx__TensorProto *p)
{
    bool external = p->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
    const char *location = external ? external_key(p, "location") : NULL;
    return location && !external_is_there(m, location) ? location : NULL;
}

bool tensor_load(OnnxModel *m, const Onnx__TensorProto *p, OnnxTensor *out, Diag *d)
{
    const DataType *type = data_type(p->data_type);
    *out = (OnnxTensor){0};
    TRY(tensor_type_of(p, &out->t.type, d));
    if (p->has_raw_data || p->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL)
        return load_raw(m, p, type, out, d);
    return load_typed(m, p, type, out, d);
}

bool tensor_is_uniform(const Tensor *t)
{
    size_t bytes = (size_t)type_bytes(&t->type), size = (size_t)dtype_size[t->type.dt];
    const char *data = t->data;
    return bytes <= size || memcmp(data, data + size, bytes - size) == 0;
}
