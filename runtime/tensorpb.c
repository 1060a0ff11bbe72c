/* tensorpb.c -- reads a file that is one ONNX TensorProto (onnx.proto, message TensorProto): dims, type and
 * elements, which are raw or in the typed field of that type, packed or not.  It is parsed in place, so a
 * hostile file costs memory only in proportion to its own size. */
#include "data_int.h"
#include "ir/onnx/data_type.h"
#include "ir/onnx/protobuf.h"
#include "ir/onnx/put.h"

#include <string.h>

typedef struct {
    int rank;
    uint64_t dim[MAX_RANK];
    uint64_t type, location;
    WireField name, raw;
} Proto;

static bool read_proto(const Entry *e, Proto *t)
{
    Wire w = wire_of(e->bytes, (size_t)e->size);
    WireField f;
    while (wire_next(&w, &f)) {
        if (f.number == TENSOR_DIMS) {
            WireNumbers dims = wire_numbers(&f, WIRE_VARINT);
            for (uint64_t v; wire_number(&dims, &v); t->rank++) {
                if (t->rank == MAX_RANK)
                    return false;
                t->dim[t->rank] = v;
            }
        } else if (f.number == TENSOR_TYPE && f.type == WIRE_VARINT) {
            t->type = f.value;
        } else if (f.number == TENSOR_LOCATION && f.type == WIRE_VARINT) {
            t->location = f.value;
        } else if (f.number == TENSOR_NAME && f.type == WIRE_BYTES) {
            t->name = f;
        } else if (f.number == TENSOR_RAW && f.type == WIRE_BYTES) {
            t->raw = f;
        }
    }
    return !w.bad;
}

/* Number of elements in the typed field, which are stored little-endian in out unless that is NULL. */
static uint64_t typed_elements(const Entry *e, const DataType *k, uint8_t *out)
{
    int type = k->field == TENSOR_FLOAT_DATA    ? WIRE_FIXED32
               : k->field == TENSOR_DOUBLE_DATA ? WIRE_FIXED64
                                                : WIRE_VARINT;
    Wire w = wire_of(e->bytes, (size_t)e->size);
    WireField f;
    uint64_t n = 0, v;
    while (wire_next(&w, &f)) {
        if (f.number != k->field)
            continue;
        WireNumbers numbers = wire_numbers(&f, type);
        for (; wire_number(&numbers, &v); n++)
            if (out)
                memcpy(out + n * ((k->bits + 7u) / 8), &v, (k->bits + 7u) / 8);
    }
    return n;
}

/* Unpacks elements of less than 8 bits to one byte each, and sets *have to their number, if the *have bytes
 * hold as many as the shape says; otherwise returns `bytes`. */
static const uint8_t *unpacked(DataFile *f, Entry *e, const DataType *k, const Proto *t, const uint8_t *bytes,
                               uint64_t *have, Diag *d)
{
    uint64_t n = 1, bits;
    for (int i = 0; i < t->rank; i++)
        if (__builtin_mul_overflow(n, t->dim[i], &n))
            return bytes;
    if (__builtin_mul_overflow(n, k->bits, &bits) || bits / 8 + (bits % 8 > 0) != *have)
        return bytes;
    uint8_t *own = data_own(f, e, n, d);
    for (uint64_t i = 0; own && i < n; i++)
        own[i] = (uint8_t)data_type_integer(k, bytes, (int64_t)i);
    *have = n;
    return own;
}

bool tensorpb_decode(DataFile *f, Entry *e, Diag *d)
{
    Proto t = {0};
    if (!read_proto(e, &t))
        return fail(d, "%s: not a TensorProto, or truncated", e->where);
    if (t.name.size)
        e->name = arena_strndup(&f->arena, (const char *)t.name.data, t.name.size);
    const DataType *k = data_type_info(t.type <= INT32_MAX ? (int32_t)t.type : 0);
    const Elem elem = {k->kind, (k->bits + 7) / 8};
    if (!elem.size)
        return fail(d, "%s: ONNX element type %llu is not read", e->where,
                    (unsigned long long)t.type);
    if (t.location != 0)
        return fail(d, "%s: its elements are in another file", e->where);
    const uint8_t *bytes = t.raw.data;
    uint64_t have = t.raw.size;
    if (!bytes) {
        uint8_t *own = data_own(f, e, typed_elements(e, k, NULL) * (uint64_t)elem.size, d);
        if (!own)
            return false;
        have = typed_elements(e, k, own) * (uint64_t)elem.size;
        bytes = own;
    }
    if (k->bits < 8)
        TRY((bytes = unpacked(f, e, k, &t, bytes, &have, d)) != NULL);
    TRY(data_type(e, &e->tensor.type, elem, t.rank, t.dim, have, d));
    return data_elements(f, e, elem, bytes, d);
}
