/* records.c -- what PyTorch's exporters wrote down of each node: the call of the exported program it
 * comes from, with its operands ("pkg.torch.onnx.fx_node"), and its module ("name_scopes", or the
 * path that is the node's name). */
#include "onnx_int.h"
#include "protobuf.h"
#include "put.h"
#include <stdio.h>
#include <string.h>

enum { LONGEST = 256 }; /* most bytes of a symbol, with its end */

static void add_symbols(Signature *s, Record *r, const char *text, size_t size)
{
    char symbol[LONGEST];
    for (size_t i = 0; i < size; i++) {
        size_t n = 0;
        while (text[i] == '%' && i + 1 + n < size && n + 1 < sizeof symbol &&
               !strchr(" ,()[]:", text[i + 1 + n]))
            symbol[n] = text[i + 1 + n], n++;
        symbol[n] = 0;
        const Declared *d = n ? declared_symbol(s, symbol) : NULL;
        bool again = false;
        for (int k = 0; k < r->nparam; k++)
            again |= r->param[k] == d;
        if (d)
            s->by_symbol[d - s->by_symbol].mentioned = true;
        if (d && d->parameter && !again && r->nparam < (int)(sizeof r->param / sizeof r->param[0]))
            r->param[r->nparam++] = d;
    }
}

/* The last string but one of ['', 'layer', 'layer.norm', 'layer_norm']; repeated calls add "@1" to it. */
static const char *last_scope(OnnxModel *m, const char *text, size_t size)
{
    size_t begin[3] = {0}, end[3] = {0};
    for (size_t i = 0; i < size; i++) {
        if (text[i] != '\'')
            continue;
        size_t start = ++i;
        while (i < size && text[i] != '\'')
            i++;
        begin[0] = begin[1], end[0] = end[1];
        begin[1] = start, end[1] = i;
    }
    const char *s = arena_strndup(&m->arena, text + begin[0], end[0] - begin[0]);
    return *s ? arena_strndup(&m->arena, s, strcspn(s, "@")) : NULL;
}

/* "layer.norm" of "/layer/norm/LayerNormalization"; NULL: it is no path. */
static const char *scope_of_path(OnnxModel *m, const char *path)
{
    const char *end = *path == '/' ? strrchr(path + 1, '/') : NULL;
    if (!end)
        return NULL;
    char *s = arena_strndup(&m->arena, path + 1, (size_t)(end - path - 1));
    for (char *c = s; *c; c++)
        *c = *c == '/' ? '.' : *c;
    return s;
}

static bool has_text(const WireField *f, const char *text)
{
    return f->size && memmem(f->data, f->size, text, strlen(text));
}

/* The third operand of an embedding's call, (%weight, %indices, 3): its padding_idx; -1: none. */
static int64_t padding_row(OnnxModel *m, const WireField *call)
{
    static const char embedding[] = "[target=torch.ops.aten.embedding.default]";
    long long row = -1;
    if (has_text(call, embedding)) {
        const char *text = arena_strndup(&m->arena, (const char *)call->data, call->size);
        sscanf(strstr(text, embedding) + strlen(embedding), "(args = (%*[^,], %*[^,], %18lld", &row);
    }
    return row;
}

static void read_entry(OnnxModel *m, Record *r, const WireField *entry)
{
    WireField key = {0}, value = {0}, part;
    Wire w = wire_of(entry->data, entry->size);
    while (wire_next(&w, &part))
        if (part.type == WIRE_BYTES)
            *(part.number == ENTRY_KEY ? &key : &value) = part;
    if (wire_is(&key, "pkg.torch.onnx.fx_node")) {
        add_symbols(m->signature, r, (const char *)value.data, value.size);
        r->called = true;
        r->padding = padding_row(m, &value);
        r->linear = has_text(&value, "[target=torch.ops.aten.linear.default]");
        r->detach = has_text(&value, "[target=torch.ops.aten.detach.default]");
        r->detached = has_text(&value, "(%detach") || has_text(&value, " %detach");
    } else if (wire_is(&key, "pkg.torch.onnx.name_scopes"))
        r->scope = last_scope(m, (const char *)value.data, value.size);
}

/* Reads the records from the mapped file: protobuf-c has not kept them. */
static const Record *records_of(OnnxModel *m)
{
    const Onnx__GraphProto *gp = m->proto->graph;
    Record *record = NEW(&m->arena, Record, gp->n_node + 1);
    Wire w = wire_of(m->map.data, m->map.size), nodes = {0}, node;
    WireField field;
    model_signature(m);
    while (wire_next(&w, &field))
        if (field.number == MODEL_GRAPH && field.type == WIRE_BYTES)
            nodes = wire_of(field.data, field.size);
    size_t i = 0;
    while (wire_next(&nodes, &field)) {
        if (field.number != GRAPH_NODE || field.type != WIRE_BYTES)
            continue;
        if (i == gp->n_node)
            return NULL;
        Record *r = &record[i];
        r->padding = -1;
        node = wire_of(field.data, field.size);
        while (wire_next(&node, &field))
            if (field.number == NODE_METADATA && field.type == WIRE_BYTES)
                read_entry(m, r, &field);
        if (!r->scope)
            r->scope = scope_of_path(m, pb(gp->node[i]->name));
        i++;
    }
    return i == gp->n_node ? record : NULL;
}

const Record *read_records(OnnxModel *m)
{
    if (!m->record)
        m->record = records_of(m);
    return m->record;
}

/* Notes that the exporter's optimizer has taken detach() out: gradients go where PyTorch's do not. */
void report_detached(Import *x)
{
    const Onnx__GraphProto *gp = x->m->proto->graph;
    const Record *r = read_records(x->m);
    const char *reader = NULL;
    for (size_t i = 0; r && i < gp->n_node; i++) {
        if (r[i].detach)
            return;
        if (r[i].detached && !reader)
            reader = gp->node[i]->n_output ? pb(gp->node[i]->output[0]) : "";
    }
    if (reader && !x->opt->inference)
        note(x, ONNX_REMARK, reader,
             "in PyTorch reads what no gradient goes through (detach), but the exporter has optimized that "
             "away: gradients are others; export with optimize=False");
}
