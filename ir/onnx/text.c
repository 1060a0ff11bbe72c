/* text.c -- strings of the file are text: UTF-8 without control characters.
 *
 * They are printed, written into other files and compared; none may forge a line of a message or move
 * a terminal's cursor.  Documentation and metadata may hold anything: nobody prints them. */
#include "../utf8.h"
#include "onnx_int.h"
#include <string.h>

static bool is_text(const char *s)
{
    uint32_t c;
    for (int n; *s; s += n)
        if ((n = utf8_character(s, &c)) == 0 || utf8_control(c))
            return false;
    return true;
}

static bool check_string(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f, const char *s, Diag *d)
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
