/* folded.c -- what PyTorch's exporter has computed ahead, by default, and from what.  With such a tensor's
 * declaration in the file stand all names that went into it ("folded_from"), sorted: tensors of the program,
 * results of its calls, numbered ("expand_1"), and values between ("val_7"):
 * ['m.cls', 'unsqueeze', 'val_0', 'val_2']. */
#include "onnx_int.h"
#include "protobuf.h"
#include "put.h"
#include <string.h>

/* What a call does to its operand, by its name; OTHER: it computes. */
static uint32_t does(const char *name)
{
    static const struct {
        const char *call;
        uint32_t does;
    } calls[] = {{"expand", FOLDED_REPEATS},
                 {"repeat", FOLDED_REPEATS},
                 {"repeat_interleave", FOLDED_REPEATS},
                 {"view", FOLDED_VIEWS},
                 {"_unsafe_view", FOLDED_VIEWS},
                 {"reshape", FOLDED_VIEWS},
                 {"t", FOLDED_TURNS},
                 {"transpose", FOLDED_TURNS},
                 {"permute", FOLDED_TURNS},
                 {"detach", FOLDED_DETACHES},
                 {"unsqueeze", FOLDED_ADDS},
                 {"squeeze", FOLDED_REMOVES},
                 {"linear", FOLDED_LINEAR | FOLDED_OTHER},
                 {"zeros", 0},
                 {"clone", 0},
                 {"contiguous", 0},
                 {"alias", 0},
                 {"embedding", FOLDED_REPEATS | FOLDED_OTHER},
                 {"index", FOLDED_REPEATS | FOLDED_OTHER}};
    size_t n = call_name_length(name);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (strlen(calls[i].call) == n && strncmp(name, calls[i].call, n) == 0)
            return calls[i].does;
    return FOLDED_OTHER;
}

static void add_call(Folded *f, uint32_t what)
{
    f->does |= what;
    f->added += (what == FOLDED_ADDS) - (what == FOLDED_REMOVES);
}

static void add_origin(OnnxModel *m, Folded *f, const char *name)
{
    const Signature *s = model_signature(m);
    const Declared *d = declared(s, name);
    if (d) {
        s->by_name[d - s->by_name].folded = true;
        f->of = arena_grow(&m->arena, f->of, f->n, &f->cap, sizeof *f->of);
        f->of[f->n++] = d;
    } else if (strncmp(name, "val_", 4) != 0) {
        f->result = arena_grow(&m->arena, f->result, f->nresult, &f->cresult, sizeof *f->result);
        f->result[f->nresult++] = name;
        f->calls |= does(name);
        add_call(f, does(name));
    }
}

void add_folded(OnnxModel *m, const uint8_t *info, size_t size)
{
    WireField field, key, value, from = {0};
    const char *name = "";
    Wire w = wire_of(info, size);
    while (wire_next(&w, &field))
        if (field.number == INFO_NAME && field.type == WIRE_BYTES)
            name = arena_strndup(&m->arena, (const char *)field.data, field.size);
        else if (field.number == INFO_METADATA && field.type == WIRE_BYTES) {
            wire_entry(&field, &key, &value);
            from = wire_is(&key, "pkg.onnxscript.optimizer.folded_from") ? value : from;
        }
    if (!from.size || !model_initializer(m, name))
        return;
    m->folded = arena_grow(&m->arena, m->folded, m->nfolded, &m->cfolded, sizeof *m->folded);
    Folded *f = &m->folded[m->nfolded];
    *f = (Folded){.name = name, .last = does(name)};
    add_call(f, f->last);
    for (const char *p = (const char *)from.data, *end = p + from.size; p < end; p++) {
        const char *close = *p == '\'' ? memchr(p + 1, '\'', (size_t)(end - p - 1)) : NULL;
        if (close) {
            add_origin(m, f, arena_strndup(&m->arena, p + 1, (size_t)(close - p - 1)));
            p = close;
        }
    }
    name_put(&m->folded_at, name, m->nfolded++);
}

/* Constants may be weights that a program closes over (Keras's on PyTorch). */
const Folded *folded(OnnxModel *m, const char *name)
{
    const uint32_t *at = m->nfolded ? name_get(&m->folded_at, name) : NULL;
    const Folded *f = at ? &m->folded[*at] : NULL;
    for (uint32_t i = 0; f && i < f->n; i++)
        if (f->of[i]->constant)
            return NULL;
    return f;
}

bool reads_result(OnnxModel *m, const Record *r, const char *name)
{
    const Folded *from = folded(m, name);
    for (uint32_t i = 0; from && i < from->n; i++)
        if (from->of[i]->parameter)
            return false;
    bool reads = from && call_reads(r, name);
    for (uint32_t i = 0; from && i < from->nresult && !reads; i++)
        reads = call_reads(r, from->result[i]);
    return reads;
}
