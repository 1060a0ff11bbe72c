/* batch.c -- which dimension is the batch: of --accumulate auto, of ckc oom, of ckc sweep --batch.
 *
 * It is the first dimension of the inputs, by the names that --bind has for it: one symbol, or "batch"; and
 * INPUT.0 of inputs that have none, which are of the batch if their sizes are the same. */
#include "option.h"
#include <inttypes.h>
#include <string.h>

typedef struct {
    const OnnxModel *m;
    OnnxOptions import;
    const char *only;
    bool bound;
    Arena *a;
} Search;

/* What --bind calls the first dimension of input k, and its size; *place: by its place.  False: it is none
 * that is looked for. */
static bool candidate(const Search *s, uint32_t k, OnnxBind *name, bool *place)
{
    const char *symbol = onnx_input_batch(s->m, k, s->a);
    const OnnxBind *bind = onnx_batch_bind(s->m, k, &s->import, s->a);
    if (!symbol || (s->bound && !bind) || (!s->bound && bind && strcmp(bind->symbol, s->only) != 0))
        return false;
    *name = bind ? *bind : (OnnxBind){symbol, 0};
    *place = strcmp(name->symbol, arena_printf(s->a, "%s.0", onnx_input_name(s->m, k))) == 0;
    return true;
}

static bool has(const Batch *b, const char *name)
{
    int i = 0;
    while (i < b->n && strcmp(b->name[i], name) != 0)
        i++;
    return i < b->n;
}

/* False: it is another batch than what was found before. */
static bool add(Batch *b, OnnxBind y, bool place, Arena *a)
{
    if (has(b, y.symbol))
        return true;
    if (b->n && (b->size != y.value || (b->symbol && !place)))
        return false;
    const char **name = NEW(a, const char *, b->n + 1);
    for (int i = 0; i < b->n; i++)
        name[i] = b->name[i];
    name[b->n] = arena_strndup(a, y.symbol, strlen(y.symbol));
    b->symbol = place ? b->symbol : name[b->n];
    b->name = name;
    b->n++;
    b->size = y.value;
    return true;
}

Batch batch_find(const OnnxModel *m, const OnnxOptions *im, const char *only, bool bound, Arena *a)
{
    Search s = {m, *im, only ? only : "", bound, a};
    Batch b = {0};
    OnnxBind name;
    bool place;
    if (only && !bound)
        set_bind(&s.import, only, 0, a);
    for (uint32_t k = 0; only && onnx_input_name(m, k); k++)
        if (candidate(&s, k, &name, &place) && strcmp(name.symbol, only) == 0)
            add(&b, name, place, a);
    if (only && !b.n)
        return b;
    for (uint32_t k = 0; onnx_input_name(m, k); k++)
        if (candidate(&s, k, &name, &place) && !add(&b, name, place, a) && !only)
            b.other = arena_strndup(a, name.symbol, strlen(name.symbol));
    return b;
}

void batch_set(OnnxOptions *im, const Batch *b, int64_t size, Arena *a)
{
    for (int i = 0; i < b->n; i++)
        set_bind(im, b->name[i], size, a);
}

const char *batch_text(const Batch *b, int64_t size, Arena *a)
{
    const char *text = "";
    for (int i = 0; i < b->n; i++)
        text = arena_printf(a, "%s%s%s=%" PRId64, text, i ? "," : "", b->name[i], size);
    return text;
}
