/* signature.c -- what torch.export's signature says of a file's tensors.
 *
 * It stands in the graph's metadata, a line per tensor:
 * "p_layer_w: PARAMETER target='layer.w'".  The first name is the one in the exported
 * program, to which the records of the nodes refer (merged.c).  Behind "# outputs" are results,
 * with what they are written to as their targets. */
#include "onnx_int.h"
#include <stdlib.h>
#include <string.h>

static int by_name(const void *a, const void *b)
{
    return strcmp(((const Declared *)a)->name, ((const Declared *)b)->name);
}

static int by_symbol(const void *a, const void *b)
{
    return strcmp(((const Declared *)a)->symbol, ((const Declared *)b)->symbol);
}

static Declared read_line(OnnxModel *m, const char *text, const char *target, const char *name)
{
    const char *kind = target, *line = target;
    while (kind > text && kind[-1] != ' ' && kind[-1] != '\n')
        kind--;
    while (line > text && line[-1] != '\n')
        line--;
    static const char transient[] = "' persistent=False";
    const char *word = arena_strndup(&m->arena, kind, (size_t)(target - kind));
    size_t len = strcspn(name, "'\n");
    return (Declared){.name = arena_strndup(&m->arena, name, len),
                      .symbol = arena_strndup(&m->arena, line, strcspn(line, ": \n")),
                      .parameter = strcmp(word, "PARAMETER") == 0,
                      .constant = strcmp(word, "CONSTANT_TENSOR") == 0,
                      .transient = strncmp(name + len, transient, strlen(transient)) == 0};
}

static void read_signature(OnnxModel *m, Signature *s, const char *text)
{
    static const char target[] = " target='";
    const char *end = strstr(text, "\n# outputs");
    uint32_t cap = 0;
    for (const char *at = text; (at = strstr(at, target)) && (!end || at < end); at++) {
        s->by_name = arena_grow(&m->arena, s->by_name, s->n, &cap, sizeof *s->by_name);
        s->by_name[s->n++] = read_line(m, text, at, at + strlen(target));
    }
    s->by_symbol = NEW(&m->arena, Declared, s->n + 1);
    if (!s->n)
        return;
    memcpy(s->by_symbol, s->by_name, s->n * sizeof *s->by_name);
    qsort(s->by_name, s->n, sizeof *s->by_name, by_name);
    qsort(s->by_symbol, s->n, sizeof *s->by_symbol, by_symbol);
}

/* The signature is an entry of GraphProto.metadata_props, field 16. */
const Signature *model_signature(OnnxModel *m)
{
    const Onnx__GraphProto *gp = m->proto->graph;
    if (m->signature)
        return m->signature;
    Signature *s = NEW(&m->arena, Signature, 1);
    for (unsigned i = 0; i < gp->base.n_unknown_fields && !s->n; i++) {
        size_t len;
        const uint8_t *body = newer_field(&gp->base, i, 16, &len);
        Onnx__StringStringEntryProto *e =
            body ? onnx__string_string_entry_proto__unpack(model_allocator(m), len, body) : NULL;
        if (e && strcmp(pb(e->key), "pkg.torch.export.ExportedProgram.graph_signature") == 0)
            read_signature(m, s, pb(e->value));
    }
    return m->signature = s;
}

const Declared *declared(const Signature *s, const char *name)
{
    Declared key = {.name = name};
    return s->n ? bsearch(&key, s->by_name, s->n, sizeof key, by_name) : NULL;
}

const Declared *declared_symbol(const Signature *s, const char *symbol)
{
    Declared key = {.symbol = symbol};
    return s->n ? bsearch(&key, s->by_symbol, s->n, sizeof key, by_symbol) : NULL;
}
