/* wire.c -- the protobuf wire form of a model, checked before protobuf-c sees it.
 *
 * protobuf-c recurses without limit, keeps unknown fields and copies every bytes field.
 * This walk knows only which fields of which message are messages.  It checks lengths,
 * nesting and counts, and writes the copy that protobuf-c reads: fields that nobody needs
 * are dropped, and each TensorProto.raw_data is replaced by its place (offset and size in
 * the file, two 64-bit numbers), so weights stay in the mapping.  Inner lengths are patched
 * in as 5-byte varints. Linear in the size of the file.
 *
 * https://protobuf.dev/programming-guides/encoding */
#include "../mem.h"
#include "onnx_int.h"
#include <stdlib.h>
#include <string.h>

enum { LENGTH_BYTES = 5 };

typedef enum {
    M_LEAF,
    M_MODEL,
    M_GRAPH,
    M_NODE,
    M_ATTRIBUTE,
    M_TENSOR,
    M_SPARSE,
    M_VALUE_INFO,
    M_TYPE,
    M_TENSOR_TYPE,
    M_ELEM_TYPE,
    M_MAP_TYPE,
    M_SHAPE,
    M_FUNCTION,
    M_COUNT
} Message;

/* Fields that are kept, and which of them are messages. */
typedef struct {
    uint32_t keep;
    struct {
        uint8_t field, message;
    } sub[9];
} Layout;

#define F(n) (1u << (n))
static const Layout layout[M_COUNT] = {
    [M_LEAF] = {~0u, {{0, 0}}},
    [M_MODEL] = {F(1) | F(2) | F(3) | F(7) | F(8) | F(25),
                 {{7, M_GRAPH}, {8, M_LEAF}, {25, M_FUNCTION}}},
    [M_GRAPH] = {F(1) | F(2) | F(5) | F(11) | F(12) | F(15) | F(16),
                 {{1, M_NODE},
                  {5, M_TENSOR},
                  {11, M_VALUE_INFO},
                  {12, M_VALUE_INFO},
                  {15, M_SPARSE},
                  {16, M_LEAF}}},
    [M_NODE] = {F(1) | F(2) | F(3) | F(4) | F(5) | F(7), {{5, M_ATTRIBUTE}}},
    [M_ATTRIBUTE] = {~(F(13) | F(0)),
                     {{5, M_TENSOR},
                      {6, M_GRAPH},
                      {10, M_TENSOR},
                      {11, M_GRAPH},
                      {14, M_TYPE},
                      {15, M_TYPE},
                      {22, M_SPARSE},
                      {23, M_SPARSE}}},
    [M_TENSOR] = {F(1) | F(2) | F(4) | F(5) | F(6) | F(7) | F(8) | F(9) | F(10) | F(11) |
                      F(13) | F(14),
                  {{13, M_LEAF}}},
    [M_SPARSE] = {F(1) | F(2) | F(3), {{1, M_TENSOR}, {2, M_TENSOR}}},
    [M_VALUE_INFO] = {F(1) | F(2), {{2, M_TYPE}}},
    [M_TYPE] = {F(1) | F(4) | F(5) | F(8) | F(9),
                {{1, M_TENSOR_TYPE},
                 {4, M_ELEM_TYPE},
                 {5, M_MAP_TYPE},
                 {8, M_TENSOR_TYPE},
                 {9, M_ELEM_TYPE}}},
    [M_TENSOR_TYPE] = {F(1) | F(2), {{2, M_SHAPE}}},
    [M_ELEM_TYPE] = {F(1), {{1, M_TYPE}}},
    [M_MAP_TYPE] = {F(1) | F(2), {{2, M_TYPE}}},
    [M_SHAPE] = {F(1), {{1, M_LEAF}}},
    [M_FUNCTION] = {F(1) | F(4) | F(5) | F(6) | F(7) | F(9) | F(10) | F(11),
                    {{7, M_NODE}, {9, M_LEAF}, {11, M_ATTRIBUTE}}},
};
enum { TENSOR_RAW_DATA = 9 };

typedef struct {
    const uint8_t *start; /* of the file */
    uint8_t *out;
    size_t nout, cout;
    uint32_t messages;
    int depth;
    Diag *d;
} Walk;

static bool varint(Walk *w, const uint8_t **p, const uint8_t *end, uint64_t *v)
{
    *v = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
        if (*p == end)
            return fail(w->d, "not a complete ONNX model: it ends inside a number");
        uint8_t byte = *(*p)++;
        *v |= (uint64_t)(byte & 0x7f) << (shift < 64 ? shift : 63);
        if (!(byte & 0x80))
            return true;
    }
    return fail(w->d, "not an ONNX model: bad number at byte %zu", (size_t)(*p - w->start));
}

static void emit(Walk *w, const void *bytes, size_t n)
{
    if (w->nout + n > w->cout) {
        w->cout = (w->nout + n) * 2;
        w->out = mem_grow(w->out, w->cout, 1);
    }
    if (n)
        memcpy(w->out + w->nout, bytes, n);
    w->nout += n;
}

static void put_length(uint8_t *at, size_t n)
{
    for (int i = 0; i < LENGTH_BYTES; i++, n >>= 7)
        at[i] = (uint8_t)((n & 0x7f) | (i < LENGTH_BYTES - 1 ? 0x80 : 0));
}

static int sub_message(Message m, uint32_t field)
{
    for (size_t i = 0; i < sizeof layout[m].sub / sizeof layout[m].sub[0]; i++)
        if (field && layout[m].sub[i].field == field)
            return layout[m].sub[i].message;
    return -1;
}

static bool walk(Walk *w, Message m, const uint8_t *p, const uint8_t *end);

/* A length-delimited field whose tag has been written. */
static bool delimited(Walk *w, Message m, uint32_t field, const uint8_t *p, size_t n)
{
    int sub = sub_message(m, field);
    uint8_t length[LENGTH_BYTES];
    if (sub < 0 && m == M_TENSOR && field == TENSOR_RAW_DATA) {
        uint64_t place[2] = {(uint64_t)(p - w->start), n};
        put_length(length, sizeof place);
        emit(w, length, sizeof length);
        emit(w, place, sizeof place);
        return true;
    }
    if (sub < 0) {
        put_length(length, n);
        emit(w, length, sizeof length);
        emit(w, p, n);
        return true;
    }
    if (++w->messages > MAX_MESSAGES)
        return fail(w->d, "model has more than %d parts", MAX_MESSAGES);
    size_t at = w->nout;
    emit(w, length, sizeof length);
    TRY(walk(w, (Message)sub, p, p + n));
    put_length(w->out + at, w->nout - at - LENGTH_BYTES);
    return true;
}

static bool field(Walk *w, Message m, const uint8_t **p, const uint8_t *end)
{
    const uint8_t *tag = *p;
    uint64_t key, n = 0;
    TRY(varint(w, p, end, &key));
    uint32_t number = (uint32_t)(key >> 3);
    size_t tag_bytes = (size_t)(*p - tag);
    if (!number || key >> 32)
        return fail(w->d, "not an ONNX model: bad field at byte %zu",
                    (size_t)(tag - w->start));
    bool keep = number < 32 && layout[m].keep >> number & 1;
    const uint8_t *body = *p;
    switch (key & 7) {
    case 0:
        TRY(varint(w, p, end, &n));
        n = 0;
        break;
    case 1:
        n = 8;
        break;
    case 5:
        n = 4;
        break;
    case 2:
        TRY(varint(w, p, end, &n));
        body = *p;
        break;
    default:
        return fail(w->d, "not an ONNX model: bad field at byte %zu",
                    (size_t)(tag - w->start));
    }
    if (n > (uint64_t)(end - *p))
        return fail(w->d,
                    "not a complete ONNX model: %llu bytes announced at byte %zu, %zu left",
                    (unsigned long long)n, (size_t)(*p - w->start), (size_t)(end - *p));
    *p += n;
    if (!keep)
        return true;
    emit(w, tag, tag_bytes);
    if ((key & 7) == 2)
        return delimited(w, m, number, body, (size_t)n);
    emit(w, body, (size_t)(*p - body));
    return true;
}

static bool walk(Walk *w, Message m, const uint8_t *p, const uint8_t *end)
{
    if (++w->depth > MAX_DEPTH)
        return fail(w->d, "graphs or types are nested too deep (more than %d messages)",
                    MAX_DEPTH);
    while (p < end)
        TRY(field(w, m, &p, end));
    w->depth--;
    return true;
}

bool wire_copy(const uint8_t *data, size_t size, bool tensor, uint8_t **copy, size_t *ncopy,
               Diag *d)
{
    Walk w = {.start = data, .d = d};
    bool ok = walk(&w, tensor ? M_TENSOR : M_MODEL, data, data + size);
    if (!ok) {
        free(w.out);
        return false;
    }
    *copy = w.out;
    *ncopy = w.nout;
    return true;
}
