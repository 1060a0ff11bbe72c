/* wire.c -- the protobuf wire form of a model, checked before protobuf-c sees it.
 *
 * protobuf-c recurses without limit, keeps unknown fields and copies every bytes field.
 * This walk knows only which fields of which message are messages.  It checks nesting and
 * counts (protobuf.h: lengths), and writes the copy that protobuf-c reads: fields that nobody needs
 * are dropped, and each TensorProto.raw_data is replaced by its place (offset and size in
 * the file, two 64-bit numbers), so weights stay in the mapping.  Inner lengths are patched
 * in as 5-byte varints. Linear in the size of the file.
 *
 * https://protobuf.dev/programming-guides/encoding */
#include "../mem.h"
#include "onnx_int.h"
#include "protobuf.h"
#include "put.h"
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

/* The fields of a message that are kept (bit mask), and which of them are messages. */
typedef struct {
    uint32_t keep;
    struct {
        uint8_t field, message;
    } sub[9];
} Layout;

#define F(n) (1u << (n))
static const Layout layout[M_COUNT] = {
    [M_LEAF] = {~0u, {{0, 0}}},
    [M_MODEL] = {F(1) | F(2) | F(3) | F(7) | F(8) | F(25), {{7, M_GRAPH}, {8, M_LEAF}, {25, M_FUNCTION}}},
    [M_GRAPH] =
        {F(1) | F(2) | F(5) | F(11) | F(12) | F(15) | F(16),
         {{1, M_NODE}, {5, M_TENSOR}, {11, M_VALUE_INFO}, {12, M_VALUE_INFO}, {15, M_SPARSE}, {16, M_LEAF}}},
    [M_NODE] = {F(1) | F(2) | F(3) | F(4) | F(5) | F(7) | F(8), {{5, M_ATTRIBUTE}}},
    [M_ATTRIBUTE] = {~(F(13) | F(0)),
                     {{5, M_TENSOR},
                      {6, M_GRAPH},
                      {10, M_TENSOR},
                      {11, M_GRAPH},
                      {14, M_TYPE},
                      {15, M_TYPE},
                      {22, M_SPARSE},
                      {23, M_SPARSE}}},
    [M_TENSOR] = {F(1) | F(2) | F(4) | F(5) | F(6) | F(7) | F(8) | F(9) | F(10) | F(11) | F(13) | F(14),
                  {{13, M_LEAF}}},
    [M_SPARSE] = {F(1) | F(2) | F(3), {{1, M_TENSOR}, {2, M_TENSOR}}},
    [M_VALUE_INFO] = {F(1) | F(2), {{2, M_TYPE}}},
    [M_TYPE] =
        {F(1) | F(4) | F(5) | F(8) | F(9),
         {{1, M_TENSOR_TYPE}, {4, M_ELEM_TYPE}, {5, M_MAP_TYPE}, {8, M_TENSOR_TYPE}, {9, M_ELEM_TYPE}}},
    [M_TENSOR_TYPE] = {F(1) | F(2), {{2, M_SHAPE}}},
    [M_ELEM_TYPE] = {F(1), {{1, M_TYPE}}},
    [M_MAP_TYPE] = {F(1) | F(2), {{2, M_TYPE}}},
    [M_SHAPE] = {F(1), {{1, M_LEAF}}},
    [M_FUNCTION] = {F(1) | F(4) | F(5) | F(6) | F(7) | F(9) | F(10) | F(11) | F(13),
                    {{7, M_NODE}, {9, M_LEAF}, {11, M_ATTRIBUTE}}},
};

typedef struct {
    const uint8_t *start; /* first byte of the file */
    uint8_t *out;
    size_t nout, cout;
    uint32_t messages;
    int depth;
    Diag *d;
} Walk;

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

static bool walk(Walk *w, Message m, const uint8_t *data, size_t size);

/* Copies a message or bytes, with its tag. */
static bool delimited(Walk *w, Message m, const WireField *f)
{
    int sub = sub_message(m, f->number);
    bool raw = m == M_TENSOR && f->number == TENSOR_RAW;
    uint64_t place[2] = {(uint64_t)(f->data - w->start), f->size};
    size_t n = raw ? sizeof place : f->size;
    uint8_t length[LENGTH_BYTES];
    put_length(length, n);
    emit(w, f->start, (size_t)(f->body - f->start));
    emit(w, length, sizeof length);
    if (sub < 0) {
        emit(w, raw ? (const void *)place : f->data, n);
        return true;
    }
    if (++w->messages > MAX_MESSAGES)
        return fail(w->d, "model has more than %d parts", MAX_MESSAGES);
    size_t at = w->nout;
    TRY(walk(w, (Message)sub, f->data, f->size));
    put_length(w->out + at - LENGTH_BYTES, w->nout - at);
    return true;
}

static bool bad_field(const Walk *w, const Wire *in, const WireField *f)
{
    size_t left = (size_t)(in->end - in->p);
    if (in->bad == WIRE_MALFORMED)
        return fail(w->d, "not an ONNX model: bad field at byte %zu", (size_t)(f->start - w->start));
    if (f->type == WIRE_BYTES && f->value > left)
        return fail(w->d, "not a complete ONNX model: %llu bytes announced at byte %zu, %zu left",
                    (unsigned long long)f->value, (size_t)(in->p - w->start), left);
    return fail(w->d, "not a complete ONNX model: it ends inside a number");
}

static bool walk(Walk *w, Message m, const uint8_t *data, size_t size)
{
    Wire in = wire_of(data, size);
    WireField f = {0};
    if (++w->depth > MAX_DEPTH)
        return fail(w->d, "graphs or types are nested too deep (more than %d messages)", MAX_DEPTH);
    while (wire_next(&in, &f)) {
        if (f.number >= 32 || !(layout[m].keep >> f.number & 1))
            continue;
        if (f.type == WIRE_BYTES)
            TRY(delimited(w, m, &f));
        else
            emit(w, f.start, (size_t)(in.p - f.start));
    }
    w->depth--;
    return !in.bad || bad_field(w, &in, &f);
}

bool wire_copy(const uint8_t *data, size_t size, bool tensor, uint8_t **copy, size_t *ncopy, Diag *d)
{
    Walk w = {.start = data, .d = d};
    bool ok = walk(&w, tensor ? M_TENSOR : M_MODEL, data, size);
    if (!ok) {
        free(w.out);
        return false;
    }
    *copy = w.out;
    *ncopy = w.nout;
    return true;
}
