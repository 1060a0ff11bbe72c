/* tensorpb.c -- one ONNX TensorProto in a file (onnx.proto, message TensorProto): dims, type and
 * elements, either raw or in the typed field of that type, packed or not.  Read in place from
 * the wire, so a hostile file costs no memory that it does not itself contain. */
#include "data_int.h"
#include "ir/onnx/protobuf.h"

#include <string.h>

enum { /* field numbers */
    TP_DIMS = 1, TP_TYPE = 2, TP_FLOAT = 4, TP_INT32 = 5, TP_INT64 = 7, TP_NAME = 8, TP_RAW = 9,
    TP_DOUBLE = 10, TP_UINT64 = 11, TP_LOCATION = 14,
};

typedef struct {
    Elem elem;
    uint32_t field; /* where elements stand when they are not raw */
} Kind;

static const Kind kinds[] = { /* by TensorProto.DataType */
    [1] = {{'f', 4}, TP_FLOAT},  [2] = {{'u', 1}, TP_INT32},   [3] = {{'i', 1}, TP_INT32},
    [4] = {{'u', 2}, TP_INT32},  [5] = {{'i', 2}, TP_INT32},   [6] = {{'i', 4}, TP_INT32},
    [7] = {{'i', 8}, TP_INT64},  [9] = {{'b', 1}, TP_INT32},   [10] = {{'f', 2}, TP_INT32},
    [11] = {{'f', 8}, TP_DOUBLE}, [12] = {{'u', 4}, TP_UINT64}, [13] = {{'u', 8}, TP_UINT64},
    [16] = {{'B', 2}, TP_INT32},
};

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
        if (f.number == TP_DIMS) {
            WireNumbers dims = wire_numbers(&f, WIRE_VARINT);
            for (uint64_t v; wire_number(&dims, &v); t->rank++) {
                if (t->rank == MAX_RANK)
                    return false;
                t->dim[t->rank] = v;
            }
        } else if (f.number == TP_TYPE && f.type == WIRE_VARINT) {
            t->type = f.value;
        } else if (f.number == TP_LOCATION && f.type == WIRE_VARINT) {
            t->location = f.value;
        } else if (f.number == TP_NAME && f.type == WIRE_BYTES) {
            t->name = f;
        } else if (f.number == TP_RAW && f.type == WIRE_BYTES) {
            t->raw = f;
        }
    }
    return !w.bad;
}

/* Pass over the typed field: count its elements, and store them little-endian when out is set. */
static uint64_t typed_elements(const Entry *e, const Kind *k, uint8_t *out)
{
    int type = k->field == TP_FLOAT    ? WIRE_FIXED32
               : k->field == TP_DOUBLE ? WIRE_FIXED64
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
                memcpy(out + n * (uint64_t)k->elem.size, &v, (size_t)k->elem.size);
    }
    return n;
}

bool tensorpb_decode(DataFile *f, Entry *e, Diag *d)
{
    Proto t = {0};
    if (!read_proto(e, &t))
        return fail(d, "%s: not a TensorProto, or truncated", e->where);
    if (t.name.size)
        e->name = arena_strndup(&f->arena, (const char *)t.name.data, t.name.size);
    const Kind *k = &kinds[t.type < sizeof kinds / sizeof *kinds ? t.type : 0];
    if (k->field == 0)
        return fail(d, "%s: ONNX element type %llu is not read", e->where,
                    (unsigned long long)t.type);
    if (t.location != 0)
        return fail(d, "%s: its elements are in another file", e->where);
    const uint8_t *bytes = t.raw.data;
    uint64_t have = t.raw.size;
    if (!bytes) {
        uint8_t *own = data_own(f, e, typed_elements(e, k, NULL) * (uint64_t)k->elem.size, d);
        if (!own)
            return false;
        have = typed_elements(e, k, own) * (uint64_t)k->elem.size;
        bytes = own;
    }
    TRY(data_type(e, &e->tensor.type, k->elem, t.rank, t.dim, have, d));
    return data_elements(f, e, k->elem, bytes, d);
}
