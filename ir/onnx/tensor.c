/* tensor.c -- TensorProto to tensors: raw, typed and external data of every element type.
 *
 * Data of native types is referenced where it lies. */
#include "../within.h"
#include "onnx_int.h"
#include "put.h"
#include <stdlib.h>
#include <string.h>

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

/* Finds raw bytes, in the model file or an external one. */
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
            return fail(d, "tensor '%s': external data outside '%s'", pb(p->name), location);
        if (!external_key(p, "length"))
            place[1] = map.size - place[0];
        out->file = external_path(m, location);
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

/* A field of TensorProto that holds elements which are not raw. */
typedef struct {
    const char *name;
    const void *data;
    size_t n;
    size_t size; /* bytes of a number in it */
    uint8_t number;
} TypedField;

enum { TYPED_FIELDS = 5 };

static void typed_fields(const Onnx__TensorProto *p, TypedField field[TYPED_FIELDS])
{
    const TypedField all[TYPED_FIELDS] = {
        {"float_data", p->float_data, p->n_float_data, sizeof *p->float_data, TENSOR_FLOAT_DATA},
        {"int32_data", p->int32_data, p->n_int32_data, sizeof *p->int32_data, TENSOR_INT32_DATA},
        {"int64_data", p->int64_data, p->n_int64_data, sizeof *p->int64_data, TENSOR_INT64_DATA},
        {"double_data", p->double_data, p->n_double_data, sizeof *p->double_data, TENSOR_DOUBLE_DATA},
        {"uint64_data", p->uint64_data, p->n_uint64_data, sizeof *p->uint64_data, TENSOR_UINT64_DATA},
    };
    memcpy(field, all, sizeof all);
}

/* The elements in the typed field for this element type, as raw data has them: the low bytes of each
 * number.  Other fields must be empty. */
static bool typed_data(OnnxModel *m, const Onnx__TensorProto *p, const DataType *type, const uint8_t **data,
                       uint64_t *size, Diag *d)
{
    TypedField field[TYPED_FIELDS];
    typed_fields(p, field);
    const TypedField *own = field;
    while (own->number != type->field)
        own++;
    for (const TypedField *f = field; f < field + TYPED_FIELDS; f++)
        if (f != own && f->n)
            return fail(d, "tensor '%s': elements of type %s in %s, they must be in raw_data or %s",
                        pb(p->name), type->name, f->name, own->name);
    *data = own->data;
    size_t each = type->bits < 8 ? 1 : type->bits / 8; /* a byte of several elements is one number */
    *size = (uint64_t)own->n * each;
    if (own->size == each)
        return true;
    uint8_t *packed = arena_alloc(&m->arena, own->n + 1, each);
    for (size_t i = 0; i < own->n; i++)
        memcpy(packed + i * each, (const char *)own->data + i * own->size, each);
    *data = packed;
    return true;
}

bool tensor_type_of(const Onnx__TensorProto *p, Type *t, Diag *d)
{
    const DataType *type = data_type_info(p->data_type);
    if (!type->bits)
        return fail_status(d, EXIT_UNSUPPORTED, "tensor '%s': element type %s is not supported", pb(p->name),
                           type->name);
    return shape_of(p, type->dt, t, d);
}

const char *tensor_lacks(OnnxModel *m, const Onnx__TensorProto *p)
{
    bool external = p->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
    const char *location = external ? external_key(p, "location") : NULL;
    return location && !external_is_there(m, location) ? location : NULL;
}

/* Finds the elements of a tensor, checks their size, and sets out->t.type. */
static bool find_data(OnnxModel *m, const Onnx__TensorProto *p, OnnxTensor *out, const uint8_t **data,
                      Diag *d)
{
    const DataType *type = data_type_info(p->data_type);
    uint64_t size = 0;
    bool external = p->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
    *out = (OnnxTensor){0};
    TRY(tensor_type_of(p, &out->t.type, d));
    TRY(external || p->has_raw_data ? raw_place(m, p, out, data, &size, d)
                                    : typed_data(m, p, type, data, &size, d));
    uint64_t count = (uint64_t)type_count(&out->t.type), needed = (count * type->bits + 7) / 8;
    return size == needed ||
           fail(d, "tensor '%s' of %llu %s has %llu bytes of data, not %llu", pb(p->name),
                (unsigned long long)count, type->name, (unsigned long long)size, (unsigned long long)needed);
}

bool tensor_load(OnnxModel *m, const Onnx__TensorProto *p, OnnxTensor *out, Diag *d)
{
    const DataType *type = data_type_info(p->data_type);
    const uint8_t *data = NULL;
    TRY(find_data(m, p, out, &data, d));
    out->t.data = (void *)(uintptr_t)data;
    if (type->bits == 8 * dtype_size[type->dt] && type->dt != DT_BOOL)
        return true;
    out->file = NULL; /* widened, or made 0 and 1 */
    out->t.data = arena_alloc(&m->arena, (size_t)type_bytes(&out->t.type) + 1, 1);
    int64_t count = type_count(&out->t.type);
    for (int64_t i = 0; i < count; i++)
        tensor_set_i(&out->t, i, data_type_integer(type, data, i));
    return true;
}

bool tensor_load_packed(OnnxModel *m, const Onnx__TensorProto *p, OnnxTensor *out, Diag *d)
{
    const uint8_t *data = NULL;
    TRY(find_data(m, p, out, &data, d));
    int64_t bytes = (type_count(&out->t.type) * data_type_bits(p->data_type) + 7) / 8;
    out->t = (Tensor){type_make(DT_U8, 1, &bytes), (void *)(uintptr_t)data};
    return true;
}

/* Where element i of a sparse tensor lies in the dense one: its index, or its coordinates. */
static int64_t dense_index(const Tensor *index, const Type *t, int64_t i)
{
    if (index->type.rank == 1)
        return tensor_i(index, i);
    int64_t at = 0;
    for (int k = 0; k < t->rank; k++) {
        int64_t x = tensor_i(index, i * t->rank + k);
        if (x < 0 || x >= t->dim[k])
            return -1;
        at = at * t->dim[k] + x;
    }
    return at;
}

bool tensor_load_sparse(OnnxModel *m, const Onnx__SparseTensorProto *p, Tensor *out, Diag *d)
{
    OnnxTensor values, index;
    if (!p->values || !p->indices)
        return fail(d, "a sparse tensor without values or indices");
    const char *name = pb(p->values->name);
    Onnx__TensorProto shape = {.n_dims = p->n_dims, .dims = p->dims, .name = p->values->name};
    TRY(tensor_load(m, p->values, &values, d) && tensor_load(m, p->indices, &index, d));
    TRY(shape_of(&shape, values.t.type.dt, &out->type, d));
    const Type *v = &values.t.type, *i = &index.t.type;
    bool linear = i->rank == 1, each = i->rank == 2 && i->dim[1] == out->type.rank;
    if (data_type_bits(p->values->data_type) < 8)
        return fail_status(d, EXIT_UNSUPPORTED, "sparse tensor '%s': elements of type %s", name,
                           onnx_dtype_name(p->values->data_type));
    if (v->rank != 1 || i->dt != DT_I64 || !(linear || each) || i->dim[0] != v->dim[0])
        return fail(d, "sparse tensor '%s': values and indices do not fit each other", name);
    if (type_bytes(&out->type) > MAX_FOLDED)
        return fail_status(d, EXIT_UNSUPPORTED, "sparse tensor '%s': a constant of more than %d MiB", name,
                           MAX_FOLDED >> 20);
    size_t size = (size_t)dtype_size[v->dt];
    int64_t count = type_count(&out->type);
    out->data = arena_alloc(&m->arena, (size_t)count + 1, size);
    for (int64_t k = 0; k < v->dim[0]; k++) {
        int64_t at = dense_index(&index.t, &out->type, k);
        if (at < 0 || at >= count)
            return fail(d, "sparse tensor '%s': index %lld is outside of it", name, (long long)k);
        memcpy((char *)out->data + (size_t)at * size, (const char *)values.t.data + (size_t)k * size, size);
    }
    return true;
}

bool tensor_is_uniform(const Tensor *t)
{
    size_t bytes = (size_t)type_bytes(&t->type), size = (size_t)dtype_size[t->type.dt];
    const char *data = t->data;
    return bytes <= size || memcmp(data, data + size, bytes - size) == 0;
}
