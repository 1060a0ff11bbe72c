/* records.c -- what PyTorch's exporters wrote down of each node: the call of the exported program it
 * comes from, with its operands ("pkg.torch.onnx.fx_node"), and its module ("name_scopes", or the
 * path that is the node's name). */
#include "onnx_int.h"
#include "protobuf.h"
#include "put.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 256 }; /* most bytes of a symbol, with its end */
static const char behind_symbol[] = " ,()[]:";

/* The tensor of the program at the head of a text, "%p_w, ..."; NULL: none. */
static const Declared *declared_at(const Signature *s, const char *text, size_t size)
{
    char symbol[LONGEST];
    size_t n = 0;
    while (*text == '%' && 1 + n < size && n + 1 < sizeof symbol && !strchr(behind_symbol, text[1 + n]))
        symbol[n] = text[1 + n], n++;
    symbol[n] = 0;
    return n ? declared_symbol(s, symbol) : NULL;
}

static void add_symbols(Signature *s, Record *r, const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        const Declared *d = declared_at(s, text + i, size - i);
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
    if (!size)
        return NULL;
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

static void read_entry(OnnxModel *m, Record *r, const WireField *entry)
{
    WireField key, value;
    wire_entry(entry, &key, &value);
    if (wire_is(&key, "pkg.torch.onnx.fx_node")) {
        add_symbols(m->signature, r, (const char *)value.data, value.size);
        r->called = true;
        r->call = (const char *)value.data, r->call_size = value.size;
        r->linear = has_text(&value, "[target=torch.ops.aten.linear.default]");
        r->detach = has_text(&value, "[target=torch.ops.aten.detach.default]");
        m->norm_trains |=
            has_text(&value, "[target=torch.ops.aten._native_batch_norm_legit_functional.default]");
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
    m->folded_at = name_map(&m->arena);
    while (wire_next(&nodes, &field)) {
        if (field.number == GRAPH_VALUE && field.type == WIRE_BYTES)
            add_folded(m, field.data, field.size);
        if (field.number != GRAPH_NODE || field.type != WIRE_BYTES)
            continue;
        if (i == gp->n_node)
            return NULL;
        Record *r = &record[i];
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

/* The operands of a call of a function; NULL: the record is of no such call. */
static const char *operands_of(const Record *r, const char *function)
{
    char begin[80];
    int size = snprintf(begin, sizeof begin, "[target=torch.ops.aten.%s](args = (", function);
    const char *s = r && r->call ? memmem(r->call, r->call_size, begin, (size_t)size) : NULL;
    return s ? s + size : NULL;
}

bool is_group_norm(const Record *r) { return operands_of(r, "group_norm.default"); }

bool call_reads(const Record *r, const char *symbol)
{
    const char *s = r->call, *end = s ? s + r->call_size : s;
    size_t n = strlen(symbol);
    for (; s && (s = memchr(s, '%', (size_t)(end - s))) && (size_t)(end - s) > n + 1; s++)
        if (strncmp(s + 1, symbol, n) == 0 && strchr(behind_symbol, s[n + 1]))
            return true;
    return false;
}

/* The tensor of the program that is an operand of the call; NULL: none is. */
static const Declared *call_operand(OnnxModel *m, const Record *r, int operand)
{
    static const char begin[] = "](args = (";
    const char *s = r->call ? memmem(r->call, r->call_size, begin, strlen(begin)) : NULL;
    if (!s)
        return NULL;
    const char *end = r->call + r->call_size;
    int depth = 0;
    for (s += strlen(begin); s < end && operand > 0 && depth >= 0; s++) {
        depth += (*s == '[' || *s == '(') - (*s == ']' || *s == ')');
        operand -= *s == ',' && depth == 0;
    }
    while (s < end && *s == ' ')
        s++;
    return s < end && operand == 0 ? declared_at(model_signature(m), s, (size_t)(end - s)) : NULL;
}

const char *statistic_read(OnnxModel *m, const Onnx__NodeProto *p, const Record *r, int slot)
{
    bool may_be = slot >= 3 && strcmp(pb(p->op_type), "BatchNormalization") == 0;
    const Declared *d = may_be ? call_operand(m, r, slot) : NULL;
    return d && !d->parameter && !d->constant ? d->name : NULL;
}

size_t call_name_length(const char *name)
{
    size_t n = strlen(name), digits = 0;
    while (digits < n && name[n - digits - 1] >= '0' && name[n - digits - 1] <= '9')
        digits++;
    return digits && digits < n && name[n - digits - 1] == '_' ? n - digits - 1 : n;
}

bool call_says(const OnnxNode *n, const char *function, const char *text)
{
    const char *s = operands_of(n->record, function);
    return s && memmem(s, (size_t)(n->record->call + n->record->call_size - s), text, strlen(text));
}

/* The call is written "%y = call_function[target=torch.ops.aten.avg_pool2d.default](args = (%x, [3, 3], 2),
 * ...". */
double call_number(const OnnxNode *n, const char *function, int operand, double otherwise)
{
    const Record *r = n->record;
    const char *s = operands_of(r, function), *last = s ? r->call + r->call_size : NULL;
    char number[32] = {0};
    int length = 0, depth = 0, at = 0;
    for (; s < last && depth >= 0 && at <= operand; s++) {
        depth += (*s == '[' || *s == '(') - (*s == ']' || *s == ')');
        at += *s == ',' && depth == 0;
        if (at == operand && depth == 0 && *s != ',' && length + 1 < (int)sizeof number)
            number[length++] = *s;
    }
    char *end;
    if (strcmp(number + strspn(number, " "), "True") == 0)
        return 1;
    double v = strtod(number, &end);
    return end > number && *end == 0 && isfinite(v) ? v : otherwise;
}

const Record *read_records(OnnxModel *m)
{
    if (!m->record)
        m->record = records_of(m);
    return m->record;
}

/* Notes y + (x - y), which nobody writes but for y + (x - y).detach(), a straight-through estimator. */
static void report_straight_through(Import *x)
{
    const Graph *g = x->g;
    for (uint32_t k = 0; k < g->norder; k++) {
        const Node *n = &g->nodes[g->order[k].i];
        for (int i = 0; n->op == OP_add && i < 2; i++) {
            const Node *sub = graph_def(g, n->in[i]);
            if (!sub || sub->op != OP_sub || sub->in[1].i != n->in[!i].i ||
                !dtype_is_float(val_type(g, n->out[0])->dt))
                continue;
            note(x, ONNX_REMARK, g->vals[n->out[0].i].name,
                 "is y + (x - y), of which x alone has a gradient; if it is a straight-through estimator, "
                 "its detach() is not in the file: write detach() and export with dynamo=True, "
                 "optimize=False");
            return;
        }
    }
}

/* Notes that the exporter's optimizer has taken detach() out: gradients go where PyTorch's do not.  Files of
 * TorchScript, and of torch.no_grad(), do not tell. */
void report_detached(Import *x)
{
    const Onnx__GraphProto *gp = x->m->proto->graph;
    const Record *r = read_records(x->m);
    const char *reader = NULL;
    bool kept = false;
    if (x->opt->inference)
        return;
    for (size_t i = 0; r && i < gp->n_node; i++) {
        kept |= r[i].detach;
        if (r[i].detached && !reader)
            reader = gp->node[i]->n_output ? pb(gp->node[i]->output[0]) : "";
    }
    if (reader && !kept)
        note(x, ONNX_REMARK, reader,
             "in PyTorch reads what no gradient goes through (detach), but the exporter has optimized that "
             "away: gradients are others; export with optimize=False");
    else
        report_straight_through(x);
}
