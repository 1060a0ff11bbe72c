/* peak.c -- what holds the bytes at the peak of a plan, for messages. */
#include "instance.h"
#include "ir/mem.h"
#include "ir/module.h"
#include <stdlib.h>

enum { SHOWN = 4 };

/* Compares for qsort: the largest first. */
static int larger_first(const void *a, const void *b)
{
    const PeakHeld *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return x->val.i < y->val.i ? -1 : x->val.i > y->val.i;
}

/* ---- layers -------------------------------------------------------------------------------- */

/* Per value: the parameter whose gradient or state it is, or itself. */
static Val *find_params(const Graph *g, const StepInfo *info, Arena *a)
{
    Val *param = NEW(a, Val, g->nvals);
    for (uint32_t v = 0; v < g->nvals; v++)
        param[v].i = v;
    for (uint32_t i = 0; i < info->ntrained; i++) {
        const Trained *t = &info->trained[i];
        param[graph_root(g, t->grad).i] = param[t->state[0].i] = param[t->state[1].i] = t->param;
    }
    param[0].i = 0;
    return param;
}

const char *value_scope(const Graph *g, Val v, Arena *a)
{
    v = g->vals[v.i].cast_of.i ? g->vals[v.i].cast_of : v;
    const Node *n = v.i ? graph_def(g, v) : NULL;
    bool made = v.i && g->vals[v.i].kind == VAL_CONST && !g->vals[v.i].in_model; /* by the compiler */
    if (made)
        return "";
    const char *name = n ? n->name : v.i ? g->vals[v.i].name : NULL;
    return name ? module_path(name, true, a) : "";
}

/* ---- held at the peak ------------------------------------------------------------------------ */

const PeakHeld *plan_peak(const Plan *p, const StepInfo *info, uint32_t *n, Arena *a)
{
    const Graph *g = p->g;
    uint32_t all;
    const Life *life = plan_lives(p, info, &all, a);
    PeakHeld *held = NEW(a, PeakHeld, all + 1);
    *n = 0;
    for (const Life *l = life; l < life + all; l++) {
        int64_t bytes = l->val.i ? type_bytes(val_type(g, l->val)) : p->step[l->first].scratch;
        if (l->space == SPACE_DEVICE && l->first <= p->peak_step && p->peak_step < l->end)
            held[(*n)++] = (PeakHeld){l->val, bytes, l->at, l->kind, NULL};
    }
    qsort(held, *n, sizeof *held, larger_first);
    const Val *param = find_params(g, info, a);
    for (uint32_t i = 0; i < *n; i++)
        held[i].layer = value_scope(g, param[held[i].val.i], a);
    return held;
}

static void show(FILE *f, const Graph *g, const PeakHeld *h)
{
    const Node *n = graph_def(g, h->val);
    if (!h->val.i)
        fprintf(f, "workspace");
    else
        fprintf(f, "%%%s", g->vals[h->val.i].name);
    fprintf(f, " (%s", h->val.i ? mem_kind_name[h->kind] : "of its routine");
    if (n)
        fprintf(f, " of %s%s%s%s", node_def(n)->name, n->name ? " '" : "", n->name ? n->name : "",
                n->name ? "'" : "");
    fprintf(f, ", %lld bytes)", (long long)h->bytes);
}

/* Prints the largest of the values that are there in every step (always), or of the others. */
static void show_largest(FILE *f, const Graph *g, const PeakHeld *held, uint32_t n, bool always)
{
    for (uint32_t i = 0, shown = 0; i < n && shown < SHOWN; i++)
        if ((held[i].val.i && g->vals[held[i].val.i].kind != VAL_TEMP) == always) {
            fputs(shown++ ? ", " : " ", f);
            show(f, g, &held[i]);
        }
}

/* ---- a message ------------------------------------------------------------------------------- */

const char *plan_describe_peak(const Plan *p, const StepInfo *info, Arena *a)
{
    char *text = NULL;
    size_t size = 0;
    uint32_t n;
    const Graph *g = p->g;
    const PeakHeld *held = plan_peak(p, info, &n, a);
    FILE *f = mem_stream(&text, &size);
    const Node *step = &g->nodes[g->order[p->step[p->peak_step].first].i];
    for (int k = 0, some = 0; k < MEM_KINDS; k++)
        if (p->mem[k])
            fprintf(f, "%s%s %lld", some++ ? ",\t" : "", mem_kind_name[k], (long long)p->mem[k]);
    fprintf(f, ";\talways there:");
    show_largest(f, g, held, n, true);
    fprintf(f, ";\tat the peak, in %s:", node_def(step)->name);
    show_largest(f, g, held, n, false);
    mem_stream_end(f);
    char *copy = arena_strndup(a, text, size);
    free(text);
    return copy;
}
