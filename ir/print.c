/* print.c -- canonical text form of a graph; parse.c reads it back (grammar there). */
#include "ir.h"
#include "lex.h"
#include "mem.h"
#include <string.h>

enum { INLINE_MAX = 64 }; /* larger constants are referred to by file and offset */

static void print_type(const Type *t, FILE *f)
{
    char buf[160];
    fputs(type_str(t, buf), f);
}

static void print_names(const Graph *g, const Val *v, int n, FILE *f)
{
    for (int i = 0; i < n; i++)
        fprintf(f, "%s%s%s", i ? ", " : "", v[i].i ? "%" : "", g->vals[v[i].i].name);
}

static void print_ints(const Ints *l, FILE *f)
{
    fputc('[', f);
    for (int i = 0; i < l->n; i++)
        fprintf(f, "%s%lld", i ? "," : "", (long long)l->v[i]);
    fputc(']', f);
}

/* Prints the attribute unless it has its default value; true if printed. */
static bool print_attr(const AttrDef *a, const void *attr, const char *sep, FILE *f)
{
    const void *at = (const char *)attr + a->off;
    if (a->type == AT_INTS) {
        const Ints *l = at;
        if (l->n == 0)
            return false;
        fprintf(f, "%s%s=", sep, a->name);
        print_ints(l, f);
        return true;
    }
    if (a->type == AT_F64) {
        double v = *(const double *)at;
        if (memcmp(&v, &a->dflt, sizeof v) == 0)
            return false;
        fprintf(f, "%s%s=%.17g", sep, a->name, v);
        return true;
    }
    int64_t v = *(const int64_t *)at;
    if (v == (int64_t)a->dflt)
        return false;
    if (a->type == AT_DTYPE)
        fprintf(f, "%s%s=%s", sep, a->name, dtype_name[v]);
    else
        fprintf(f, "%s%s=%lld", sep, a->name, (long long)v);
    return true;
}

static void print_node(const Graph *g, const Node *n, FILE *f)
{
    const OpDef *def = node_def(n);
    const char *sep = " {";
    fputs("  ", f);
    for (int i = 0; i < n->nout; i++) {
        fprintf(f, "%s%%%s: ", i ? ", " : "", g->vals[n->out[i].i].name);
        print_type(&g->vals[n->out[i].i].type, f);
    }
    fprintf(f, " = %s ", def->name);
    print_names(g, n->in, n->nin, f);
    for (size_t i = 0; i < def->nattrs; i++)
        if (print_attr(&def->attrs[i], n->attr, sep, f))
            sep = ", ";
    if (*sep == ',')
        fputc('}', f);
    if (n->group)
        fprintf(f, " #%u", n->group);
    if (node_is_split(n))
        fprintf(f, " split %s %lld", split_name[n->split.by], (long long)n->split.block);
    if (n->remat)
        fprintf(f, " remat %%%s", n->remat);
    if (n->name) {
        fputc(' ', f);
        print_quoted(n->name, f);
    }
    fputc('\n', f);
}

static void print_data(const Value *v, FILE *f)
{
    Tensor t = {v->type, (void *)(uintptr_t)v->data};
    int64_t n = type_count(&v->type);
    fputs(" = {", f);
    for (int64_t i = 0; i < n; i++) {
        if (dtype_is_float(v->type.dt))
            fprintf(f, "%s%.*g", i ? ", " : "", v->type.dt == DT_F64 ? 17 : 9, tensor_f(&t, i));
        else
            fprintf(f, "%s%lld", i ? ", " : "", (long long)tensor_i(&t, i));
    }
    fputc('}', f);
}

static void print_model_names(const ModelName *n, FILE *f)
{
    for (const char *sep = " as "; n; n = n->next, sep = ", ") {
        fputs(sep, f);
        print_quoted(n->name, f);
        fprintf(f, "%s%s%s", n->transposed ? " transposed" : "", n->of ? " " : "", name_holder[n->of]);
        char shape[160];
        if (n->shape)
            fprintf(f, " shape %s", type_str(n->shape, shape));
        for (int i = 0; n->blocks && i < n->blocks->n; i++)
            fprintf(f, "%s%lld%s", i ? ", " : " blocks [", (long long)n->blocks->v[i],
                    i + 1 < n->blocks->n ? "" : "]");
    }
}

/* *place: that of the input before; an input's own is written where it does not follow that. */
static void print_input(const Value *v, uint32_t *place, FILE *f)
{
    if (v->kind != VAL_INPUT)
        return;
    if (v->place && v->place != *place + 1)
        fprintf(f, " #%u", v->place - 1);
    *place = v->place ? v->place : *place + 1;
    fputs(v->batch ? " batch" : "", f);
}

static void print_source(const Graph *g, const Value *v, uint32_t *place, FILE *f)
{
    fprintf(f, "  %s %%%s: ", val_kind_name[v->kind], v->name);
    print_type(&v->type, f);
    fputs(v->space == SPACE_HOST ? " host" : "", f);
    print_input(v, place, f);
    print_model_names(v->in_model, f);
    if (v->file) {
        fputs(" @", f);
        print_quoted(v->file, f);
        fprintf(f, " %lld", (long long)v->offset);
    } else if (v->data && type_count(&v->type) <= INLINE_MAX) {
        print_data(v, f);
    } else if (v->data) {
        fputs(" @\"-\" 0", f);
    } else if (v->cast_of.i) {
        fprintf(f, " cast %%%s", g->vals[v->cast_of.i].name);
    }
    fputc('\n', f);
}

/* All sources, constants only if something reads them, is a cast of them, or the model's file names them. */
bool *graph_sources(const Graph *g, Arena *a)
{
    uint32_t *uses = graph_uses(g, a);
    bool *source = NEW(a, bool, g->nvals);
    for (uint32_t i = 1; i < g->nvals; i++)
        source[i] = g->vals[i].kind != VAL_TEMP &&
                    (g->vals[i].kind != VAL_CONST || uses[i] || g->vals[i].in_model);
    for (uint32_t i = 1; i < g->nvals; i++)
        source[g->vals[i].cast_of.i] |= source[i];
    source[0] = false;
    return source;
}

void graph_print(const Graph *g, FILE *f)
{
    Arena a = {0};
    bool *source = graph_sources(g, &a);
    uint32_t place = 0;
    fputs("graph {\n", f);
    for (uint32_t i = 1; i < g->nvals; i++)
        if (source[i])
            print_source(g, &g->vals[i], &place, f);
    for (uint32_t k = 0; k < g->norder; k++)
        print_node(g, &g->nodes[g->order[k].i], f);
    for (uint32_t i = 0; i < g->nupdate; i++)
        fprintf(f, "  update %%%s = %%%s\n", g->vals[g->update[i].state.i].name,
                g->vals[g->update[i].value.i].name);
    for (uint32_t i = 0; i < g->nout; i++)
        fprintf(f, "  output %%%s\n", g->vals[g->out[i].i].name);
    fputs("}\n", f);
    arena_free(&a);
}

char *graph_text(const Graph *g)
{
    char *text = NULL;
    size_t size;
    FILE *f = mem_stream(&text, &size);
    graph_print(g, f);
    mem_stream_end(f);
    return text;
}
