/* text.c -- strings of the file are text: UTF-8 without control characters.
 *
 * They are printed, written into other files and compared; none may forge a line of a message or move
 * a terminal's cursor.  Documentation and metadata may hold anything: nobody prints them. */
#include "onnx_int.h"
#include <string.h>

/* Bytes of a well-formed character that is not a control; 0: none. */
static int character(const unsigned char *s)
{
    if (s[0] < 0x80)
        return s[0] >= 0x20 && s[0] != 0x7f;
    int n = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    uint32_t c = s[0] & (0x7fu >> n);
    for (int i = 1; i < n; i++) {
        if (s[i] >> 6 != 2)
            return 0;
        c = c << 6 | (s[i] & 0x3f);
    }
    static const uint32_t least[5] = {0, 0, 0xa0, 0x800, 0x10000}; /* below 0xa0: controls */
    bool whole = s[0] >= 0xc0 && s[0] < 0xf8 && c >= least[n] && c <= 0x10ffff;
    return whole && (c < 0xd800 || c >= 0xe000) ? n : 0;
}

static bool is_text(const char *s)
{
    for (int n; *s; s += n)
        if ((n = character((const unsigned char *)s)) == 0)
            return false;
    return true;
}

static bool check_string(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f, const char *s,
                         Diag *d)
{
    return !s || is_text(s) ||
           fail(d, "%s of a %s is no text: '%.200s'", f->name, m->descriptor->short_name, s);
}

static bool check_field(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f, Diag *d)
{
    const char *at = (const char *)m + f->offset;
    bool string = f->type == PROTOBUF_C_TYPE_STRING, many = f->label == PROTOBUF_C_LABEL_REPEATED;
    if ((!string && f->type != PROTOBUF_C_TYPE_MESSAGE) || strcmp(f->name, "doc_string") == 0)
        return true;
    if ((f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) &&
        *(const uint32_t *)(const void *)((const char *)m + f->quantifier_offset) != f->id)
        return true; /* the union holds another */
    size_t n = many ? *(const size_t *)(const void *)((const char *)m + f->quantifier_offset) : 1;
    void *const *list = many ? *(void *const *const *)(const void *)at : (void *const *)(const void *)at;
    for (size_t i = 0; i < n; i++) {
        if (string)
            TRY(check_string(m, f, list[i], d));
        else if (list[i])
            TRY(text_check(list[i], d));
    }
    return true;
}

bool text_check(const ProtobufCMessage *m, Diag *d)
{
    if (m->descriptor == &onnx__string_string_entry_proto__descriptor)
        return true;
    for (unsigned i = 0; i < m->descriptor->n_fields; i++)
        TRY(check_field(m, &m->descriptor->fields[i], d));
    return true;
}
