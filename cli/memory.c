/* memory.c -- where the memory of a step goes: by layer, and the values that hold the peak. */
#include "cli.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 24, VALUES = 12 };

typedef struct {
    const char *name;
    int64_t bytes, kind[MEM_KINDS];
} Layer;

static int larger_first(const void *a, const void *b)
{
    const Layer *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes ? 1 : -1) : strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b)
{
    const Layer *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* Sums by layer, the largest first; values that belong to no layer are under the name "". */
static Layer *by_layer(const PeakHeld *held, uint32_t n, uint32_t *nlayers, Arena *a)
{
    Layer *l = NEW(a, Layer, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        l[i].name = held[i].layer;
        l[i].bytes = l[i].kind[held[i].kind] = held[i].bytes;
    }
    qsort(l, n, sizeof *l, by_name);
    *nlayers = 0;
    for (uint32_t i = 0; i < n; i++) {
        Layer part = l[i], *to = *nlayers ? &l[*nlayers - 1] : NULL;
        if (!to || strcmp(to->name, part.name) != 0) {
            l[(*nlayers)++] = part;
            continue;
        }
        to->bytes += part.bytes;
        for (int k = 0; k < MEM_KINDS; k++)
            to->kind[k] += part.kind[k];
    }
    qsort(l, *nlayers, sizeof *l, larger_first);
    return l;
}

static const char *value_name(const Job *j, const PeakHeld *h)
{
    return h->val.i ? j->plan->g->vals[h->val.i].name : "(workspace)";
}

void batch_size(const Job *j, int64_t *samples, int64_t *tokens)
{
    const Graph *g = j->plan->g;
    StepInputs own = step_inputs(g);
    Val v = feed_batch(g, &own);
    const Type *t = val_type(g, v);
    bool rows = v.i && t->rank > 0;
    *samples = rows ? t->dim[0] : 0;
    *tokens = rows && !dtype_is_float(t->dt) && t->rank == 2 ? type_count(t) : 0;
}

/* Bytes that grow with the batch: data, activations and workspace. */
static int64_t batch_bytes(const Plan *p)
{
    return p->mem[MEM_DATA] + p->mem[MEM_ACTIVATION] + p->mem[MEM_WORKSPACE];
}

/* The average of the live bytes over the predicted time of a step. */
static int64_t average_bytes(const Job *j, Arena *a)
{
    MemCurve c = plan_curve(j->plan, &j->info, a);
    double area = 0;
    for (uint32_t s = 0; s < c.n; s++)
        area += (double)mem_sum(c.held[s]) * (double)(c.ns[s + 1] - c.ns[s]);
    return c.n && c.ns[c.n] ? (int64_t)(area / (double)c.ns[c.n]) : 0;
}

void memory_print(const Job *j, FILE *f)
{
    Arena a = {0};
    char b[5][32];
    uint32_t n, nlayers;
    int64_t samples, tokens;
    const PeakHeld *held = plan_peak(j->plan, &j->info, &n, &a);
    const Layer *l = by_layer(held, n, &nlayers, &a);
    fprintf(f, "by layer            bytes  parameters   gradients   optimizer activations\n");
    for (uint32_t i = 0; i < nlayers && i < LAYERS; i++)
        print_line(f, "  %-12s %11s %11s %11s %11s %11s", *l[i].name ? l[i].name : "-",
                   bytes_str(l[i].bytes, b[0]), bytes_str(l[i].kind[MEM_PARAM], b[1]),
                   bytes_str(l[i].kind[MEM_GRAD], b[2]), bytes_str(l[i].kind[MEM_OPTIMIZER], b[3]),
                   bytes_str(l[i].kind[MEM_ACTIVATION], b[4]));
    if (nlayers > LAYERS)
        fprintf(f, "  and %u more\n", nlayers - LAYERS);
    fprintf(f, "held at the peak, in step %" PRIu32 "\n", j->plan->peak_step);
    for (uint32_t i = 0; i < n && i < VALUES; i++)
        print_line(f, "  %11s %-12s %s", bytes_str(held[i].bytes, b[0]), mem_kind_name[held[i].kind],
                   value_name(j, &held[i]));
    batch_size(j, &samples, &tokens);
    int64_t all = batch_bytes(j->plan);
    if (samples)
        fprintf(f, "per sample  %s of data, activations and workspace", bytes_str(all / samples, b[0]));
    if (tokens)
        fprintf(f, "; per token %s", bytes_str(all / tokens, b[0]));
    fputs(samples ? "\n" : "", f);
    int64_t average = average_bytes(j, &a), live = j->plan->live_bytes;
    fprintf(f, "on average  %s over the step, %.1f %% of the %s at the peak\n", bytes_str(average, b[0]),
            live ? 100 * (double)average / (double)live : 0, bytes_str(live, b[1]));
    arena_free(&a);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *layers_json(const Layer *l, uint32_t n)
{
    json_t *a = json_array();
    for (uint32_t i = 0; i < n; i++) {
        json_t *o = json_object();
        object_put(o, "layer", text_json(l[i].name));
        object_put(o, "bytes", json_integer(l[i].bytes));
        for (int k = 0; k < MEM_KINDS; k++)
            if (l[i].kind[k])
                object_put(o, mem_kind_name[k], json_integer(l[i].kind[k]));
        array_put(a, o);
    }
    return a;
}

static json_t *values_json(const Job *j, const PeakHeld *held, uint32_t n)
{
    json_t *a = json_array();
    for (uint32_t i = 0; i < n; i++) {
        json_t *o = json_object();
        object_put(o, "name", text_json(value_name(j, &held[i])));
        object_put(o, "kind", json_string(mem_kind_name[held[i].kind]));
        object_put(o, "layer", text_json(held[i].layer));
        object_put(o, "bytes", json_integer(held[i].bytes));
        array_put(a, o);
    }
    return a;
}

void memory_json(const Job *j, json_t *report)
{
    Arena a = {0};
    uint32_t n, nlayers;
    int64_t samples, tokens;
    const PeakHeld *held = plan_peak(j->plan, &j->info, &n, &a);
    const Layer *l = by_layer(held, n, &nlayers, &a);
    json_t *peak = json_object();
    object_put(peak, "step", json_integer(j->plan->peak_step));
    object_put(peak, "layers", layers_json(l, nlayers));
    object_put(peak, "values", values_json(j, held, n));
    object_put(report, "peak", peak);
    batch_size(j, &samples, &tokens);
    int64_t all = batch_bytes(j->plan);
    object_put(report, "bytes_per_sample", samples ? json_integer(all / samples) : json_null());
    object_put(report, "bytes_per_token", tokens ? json_integer(all / tokens) : json_null());
    object_put(report, "average_bytes", json_integer(average_bytes(j, &a)));
    arena_free(&a);
}
