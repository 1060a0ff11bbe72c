/* protobuf.h -- reading protobuf's wire format in place: no allocation, no recursion, every length
 * checked against what is left.  For files that may be hostile, and for messages too large to
 * unpack or to be copied field by field. */
#ifndef CKC_PROTOBUF_H
#define CKC_PROTOBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };
typedef enum { WIRE_GOOD, WIRE_CUT, WIRE_MALFORMED } WireError; /* cut: it ends inside a field */

typedef struct {
    const uint8_t *p, *end;
    WireError bad; /* why wire_next() has returned false; WIRE_GOOD: at the end */
} Wire;

typedef struct {
    uint32_t number;
    int type;            /* WIRE_* */
    uint64_t value;      /* varint or fixed, little-endian */
    const uint8_t *data; /* WIRE_BYTES: the contents */
    size_t size;
    const uint8_t *start; /* start of the field, tag included; it ends at Wire.p */
    const uint8_t *body;  /* what follows the tag */
} WireField;

static inline Wire wire_of(const uint8_t *data, size_t size)
{
    return (Wire){data, data ? data + size : data, WIRE_GOOD};
}

static inline bool wire_varint(Wire *w, uint64_t *v)
{
    *v = 0;
    for (int shift = 0; shift < 64 && w->p < w->end; shift += 7) {
        uint8_t byte = *w->p++;
        *v |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return true;
    }
    w->bad = w->p == w->end ? WIRE_CUT : WIRE_MALFORMED;
    return false;
}

static inline bool wire_fixed(Wire *w, uint64_t *v, size_t bytes)
{
    *v = 0;
    if ((size_t)(w->end - w->p) < bytes) {
        w->bad = WIRE_CUT;
        return false;
    }
    memcpy(v, w->p, bytes);
    w->p += bytes;
    return true;
}

/* The next field; false at the end or when malformed (w->bad). */
static inline bool wire_next(Wire *w, WireField *f)
{
    if (w->bad || w->p == w->end)
        return false;
    uint64_t tag;
    *f = (WireField){.start = w->p};
    if (!wire_varint(w, &tag))
        return false;
    f->body = w->p;
    f->number = (uint32_t)(tag >> 3);
    f->type = (int)(tag & 7);
    switch (f->number && tag >> 32 == 0 ? f->type : -1) {
    case WIRE_VARINT:
        return wire_varint(w, &f->value);
    case WIRE_FIXED64:
        return wire_fixed(w, &f->value, 8);
    case WIRE_FIXED32:
        return wire_fixed(w, &f->value, 4);
    case WIRE_BYTES:
        if (!wire_varint(w, &f->value))
            return false;
        w->bad = f->value > (uint64_t)(w->end - w->p) ? WIRE_CUT : WIRE_GOOD;
        if (w->bad)
            return false;
        f->data = w->p;
        f->size = (size_t)f->value;
        w->p += f->size;
        return true;
    default:
        w->bad = WIRE_MALFORMED;
        return false;
    }
}

/* The elements of a repeated number field, packed or a single one. */
typedef struct {
    Wire packed;
    uint64_t value;
    int type;    /* WIRE_* of an element */
    bool single; /* value is still to come */
} WireNumbers;

static inline WireNumbers wire_numbers(const WireField *f, int type)
{
    bool packed = f->type == WIRE_BYTES;
    return (WireNumbers){wire_of(f->data, f->size), f->value, type, !packed && f->type == type};
}

static inline bool wire_number(WireNumbers *n, uint64_t *v)
{
    bool single = n->single;
    n->single = false;
    if (single)
        *v = n->value;
    if (single || n->packed.p == n->packed.end)
        return single;
    return n->type == WIRE_VARINT ? wire_varint(&n->packed, v)
                                  : wire_fixed(&n->packed, v, n->type == WIRE_FIXED32 ? 4 : 8);
}

static inline bool wire_is(const WireField *f, const char *s)
{
    return f->type == WIRE_BYTES && f->size == strlen(s) && memcmp(f->data, s, f->size) == 0;
}

/* The key and the value, both text, of an entry of a map. */
static inline void wire_entry(const WireField *entry, WireField *key, WireField *value)
{
    WireField part;
    Wire w = wire_of(entry->data, entry->size);
    *key = *value = (WireField){0};
    while (wire_next(&w, &part))
        if (part.type == WIRE_BYTES)
            *(part.number == 1 ? key : value) = part;
}

#endif
