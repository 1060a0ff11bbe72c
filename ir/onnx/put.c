/* put.c -- writing protobuf's wire format, and the messages of ONNX that several writers have. */
#include "put.h"
#include "../mem.h"
#include "protobuf.h"

#include <string.h>

void put_bytes(Arena *a, Buf *b, const void *data, size_t size)
{
    if (size >= INT32_MAX - b->n) /* such a model could not be written */
        out_of_memory(size);
    b->p = arena_grow(a, b->p, b->n + (uint32_t)size, &b->cap, 1);
    memcpy(b->p + b->n, data, size);
    b->n += (uint32_t)size;
}

static void put_varint(Arena *a, Buf *b, uint64_t v)
{
    uint8_t byte[10];
    size_t n = 0;
    for (; v >= 0x80; v >>= 7)
        byte[n++] = (uint8_t)(v | 0x80);
    byte[n++] = (uint8_t)v;
    put_bytes(a, b, byte, n);
}

void put_number(Arena *a, Buf *b, uint32_t field, uint64_t v)
{
    put_varint(a, b, field << 3 | WIRE_VARINT);
    put_varint(a, b, v);
}

void put_header(Arena *a, Buf *b, uint32_t field, size_t size)
{
    put_varint(a, b, field << 3 | WIRE_BYTES);
    put_varint(a, b, size);
}

void put_string(Arena *a, Buf *b, uint32_t field, const char *text)
{
    put_header(a, b, field, strlen(text));
    put_bytes(a, b, text, strlen(text));
}

void put_message(Arena *a, Buf *b, uint32_t field, const Buf *message)
{
    put_header(a, b, field, message->n);
    if (message->n)
        put_bytes(a, b, message->p, message->n);
}

void put_value_info(Arena *a, Buf *b, uint32_t field, const char *name, int32_t elem, const Type *type)
{
    Buf shape = {0}, tensor = {0}, kind = {0}, info = {0};
    for (int i = 0; i < type->rank; i++) {
        Buf dim = {0};
        put_number(a, &dim, DIM_VALUE, (uint64_t)type->dim[i]);
        put_message(a, &shape, SHAPE_DIM, &dim);
    }
    put_number(a, &tensor, TENSOR_TYPE_ELEM, (uint64_t)elem);
    put_message(a, &tensor, TENSOR_TYPE_SHAPE, &shape);
    put_message(a, &kind, TYPE_TENSOR, &tensor);
    put_string(a, &info, INFO_NAME, name);
    put_message(a, &info, INFO_TYPE, &kind);
    put_message(a, b, field, &info);
}

void put_external(Arena *a, Buf *tensor, const char *location, int64_t offset, size_t bytes)
{
    const char *entry[3][2] = {
        {"location", location},
        {"offset", arena_printf(a, "%lld", (long long)offset)},
        {"length", arena_printf(a, "%zu", bytes)},
    };
    for (int i = 0; i < 3; i++) {
        Buf b = {0};
        put_string(a, &b, ENTRY_KEY, entry[i][0]);
        put_string(a, &b, ENTRY_VALUE, entry[i][1]);
        put_message(a, tensor, TENSOR_EXTERNAL, &b);
    }
    put_number(a, tensor, TENSOR_LOCATION, 1);
}
