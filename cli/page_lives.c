/* page_lives.c -- bars of a page: when the largest results of the forward phase are in memory. */
#include "ir/names.h"
#include "page.h"
#include <stdlib.h>
#include <string.h>

enum { ROWS = 40, WIDTH = 1000 /* of bars, in their own units */, LABEL = 60 };

typedef struct {
    const Job *j;
    const MemoryPlot *m;
    const Life *life; /* sorted by the value that they are lives of, then by time */
    const char **of;  /* per value: the name under which its bytes were first computed */
    uint32_t n;
    FILE *f;
} Bars;

/* The name under which a value was first computed, before it was offloaded, fetched or recomputed. */
static const char *computed_as(const Graph *g, Val v)
{
    for (;;) {
        const Node *n = graph_def(g, v);
        if (!n)
            return g->vals[v.i].name;
        if (n->op != OP_fetch && n->op != OP_offload)
            return n->remat && n->out[0].i == v.i ? n->remat : g->vals[v.i].name;
        v = graph_root(g, n->in[0]);
    }
}

static const char *kernel_of(const Plan *p, uint32_t s, Arena *a)
{
    char *label = NEW(a, char, LABEL);
    step_label(p, s, label, LABEL);
    return label;
}

static int larger_first(const void *a, const void *b)
{
    const Fate *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return (x->step > y->step) - (x->step < y->step);
}

static int earlier_first(const void *a, const void *b)
{
    const Fate *x = a, *y = b;
    return (x->step > y->step) - (x->step < y->step);
}

/* Thins out a model of many equal layers: keeps of each operator as many results as leave room for the
 * others, evenly spaced; returns how many are kept. */
static uint32_t thin(const Plan *p, Fate *fate, uint32_t n, Arena *a)
{
    enum { LEAST = 4 };
    uint32_t(*count)[2] = arena_alloc(a, n + 1, sizeof *count), kept = 0; /* per operator: all; seen */
    NameMap number = name_map(a);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t *known = name_get(&number, kernel_of(p, fate[i].step, a));
        uint32_t kind = known ? *known : number.n;
        if (!known)
            name_put(&number, kernel_of(p, fate[i].step, a), kind);
        count[kind][0]++;
    }
    uint32_t most = number.n && ROWS / number.n > LEAST ? ROWS / number.n : LEAST;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t *of = count[*name_get(&number, kernel_of(p, fate[i].step, a))];
        uint64_t before = (uint64_t)of[1] * most / of[0], behind = (uint64_t)(of[1] + 1) * most / of[0];
        of[1]++;
        if (of[0] <= most || behind > before)
            fate[kept++] = fate[i];
    }
    return kept;
}

/* Chooses the largest results of the forward phase that are read after it, in the order of computation. */
static uint32_t choose(const Job *j, Fate **out, Arena *a)
{
    uint32_t n, kept = 0;
    int64_t largest = 0;
    const Plan *p = j->plan;
    PlanUses u = plan_uses(p, job_results(j), a);
    Fate *fate = *out = plan_fates(p, &u, &n, a);
    for (uint32_t i = 0; i < n; i++)
        if (step_phase(p, &u, fate[i].step) == PHASE_FORWARD && fate[i].behind != NEVER) {
            largest = fate[i].bytes > largest ? fate[i].bytes : largest;
            fate[kept++] = fate[i];
        }
    n = kept;
    kept = 0;
    for (uint32_t i = 0; i < n; i++) /* very small ones are left out */
        if (fate[i].bytes > largest / 1000)
            fate[kept++] = fate[i];
    kept = thin(p, fate, kept, a);
    qsort(fate, kept, sizeof *fate, larger_first);
    kept = kept < ROWS ? kept : ROWS;
    qsort(fate, kept, sizeof *fate, earlier_first);
    return kept;
}

static double position(const Bars *b, uint32_t s)
{
    return b->m->time > 0 ? WIDTH * (double)b->m->own.ns[s] / b->m->time : 0;
}

static void put_bar(const Bars *b, const Life *l, Paint paint)
{
    double from = position(b, l->first), to = position(b, l->end);
    bool host = l->space == SPACE_HOST;
    fprintf(b->f, "<rect class=\"f-%s\" x=\"%.1f\" width=\"%.1f\" y=\"%d\" height=\"%d\"/>",
            paint_color[paint].name, from, to - from > 3 ? to - from : 3, host ? 5 : 0, host ? 2 : 12);
}

/* Writes a bar for each time that a value is in memory, coloured by how it got there. */
static void put_bars(const Bars *b, const Fate *fate)
{
    const Graph *g = b->j->plan->g;
    const char *name = computed_as(g, fate->val);
    fprintf(b->f, "<svg class=\"bar\" viewBox=\"0 0 %d 12\" preserveAspectRatio=\"none\">", WIDTH);
    for (uint32_t i = 0; i < b->n; i++) {
        const Life *l = &b->life[i];
        const Node *n = l->val.i ? graph_def(g, l->val) : NULL;
        if (!n || strcmp(b->of[l->val.i], name) != 0)
            continue;
        bool copied = n->op == OP_fetch || l->space == SPACE_HOST;
        put_bar(b, l, copied ? PAINT_COPY : n->remat ? PAINT_AGAIN : PAINT_KIND + MEM_ACTIVATION);
    }
    fputs("</svg>\n", b->f);
}

/* Length of the longest beginning of whole names, "a.b.", that all modules' paths share. */
static size_t common_path(const Plan *p, const Fate *fate, uint32_t n, Arena *a)
{
    const char *path = "";
    size_t common = 0;
    for (uint32_t i = 0; i < n; i++) {
        const char *other = step_module(p, fate[i].step, a);
        size_t same = 0;
        if (!*path) {
            path = other;
            common = strlen(path);
        }
        while (*other && same < common && path[same] == other[same])
            same++;
        common = *other ? same : common;
    }
    while (common && path[common - 1] != '.')
        common--;
    return common;
}

static void put_fate(const Bars *b, const Fate *fate, size_t common, Arena *a)
{
    char bytes[32];
    const Plan *p = b->j->plan;
    const char *module = step_module(p, fate->step, a), *label = kernel_of(p, fate->step, a);
    fputs("<div class=\"life\"><span class=\"name\" title=\"", b->f);
    print_xml(b->f, p->g->vals[fate->val.i].name);
    fputs("\">", b->f);
    print_xml(b->f, *module ? module + common : "");
    fprintf(b->f, "%s<b>%s</b></span><span class=\"what\">%s", *module ? " " : "", label,
            bytes_str(fate->bytes, bytes));
    if (fate->redone)
        fprintf(b->f, ", again %u\xc3\x97", fate->redone);
    else if (fate->fetched)
        fprintf(b->f, ", moved");
    fputs("</span>", b->f);
    put_bars(b, fate);
    fputs("</div>\n", b->f);
}

static void put_key(FILE *f, Paint paint, const char *text)
{
    fprintf(f,
            "<span class=\"key\"><svg viewBox=\"0 0 14 10\"><rect class=\"f-%s\" width=\"14\" height=\"10\"/>"
            "</svg>%s</span>\n",
            paint_color[paint].name, text);
}

void page_lives(const Job *j, const MemoryPlot *m, FILE *f)
{
    Arena a = {0};
    Fate *fate;
    const Graph *g = j->plan->g;
    Bars b = {.j = j, .m = m, .f = f, .of = NEW(&a, const char *, g->nvals)};
    b.life = plan_lives(j->plan, &j->info, &b.n, &a);
    for (uint32_t v = 1; v < g->nvals; v++)
        b.of[v] = computed_as(g, (Val){v});
    uint32_t n = choose(j, &fate, &a);
    if (n) {
        fputs("<section><h2>Kept for the backward pass</h2>\n<p>Large results of the forward pass that are "
              "read behind it, and when they are in memory; of many alike some.</p>\n<p>",
              f);
        put_key(f, PAINT_KIND + MEM_ACTIVATION, "stored");
        if (j->info.nrecomputed)
            put_key(f, PAINT_AGAIN, "computed again");
        if (j->info.nfetched)
            put_key(f, PAINT_COPY, "fetched; thin: in the host's memory");
        fputs("</p>\n<div class=\"lives\">\n", f);
        size_t common = common_path(j->plan, fate, n, &a);
        for (uint32_t i = 0; i < n; i++)
            put_fate(&b, &fate[i], common, &a);
        fputs("</div></section>\n", f);
    }
    arena_free(&a);
}
