/* plan_text.c -- the text form of a plan (.ckp): printed canonically, read back and checked.
 *
 *   plan   = "plan" version "{" { header } "}" graph "steps" "{" { place | step } "}"
 *   header = key value                  one line each, see header_table; "model" string hash,
 *            "file" string hash         one line for each other file
 *   graph  = as in parse.c, at the start of a line and ended by "}" alone on its line
 *   place  = "place" at                 values of no step: parameters, inputs, constants, views
 *   step   = "step" "choice" "=" choice { key "=" integer } [ "recompute of" integer ] ":" { at } "->" { at }
 *   choice = "-" (the kernel's text) | characters but blanks, which the device understands
 *   at     = name "@" offset "+" bytes
 *
 * What a step reads and writes follows from the graph; it is printed with its place in the arena
 * because people read it, and every mention must agree when it is parsed. */
#include "lex.h"
#include "mem.h"
#include "plan.h"
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The version of the text's meaning: a schedule of another one is planned again, not read.  1 had no number;
 * 2: a step's choice was a number; 3: it is text; 4: max_pool has two results, and some kernels store in
 * another pass; 5: a weight's names say who holds them, and in what shape. */
enum { VERSION = 6 };

/* Limits within which nanoseconds and bytes of many steps can be added up. */
static const int64_t max_bytes = (int64_t)1 << 60, max_ns = (int64_t)1 << 42;

/* ---- header ------------------------------------------------------------------------------- */

typedef struct {
    const char *key;
    size_t off;
    enum { H_I64, H_U32, H_F64, H_STRING } type;
    int64_t low, high; /* limits of an integer; 0, 0: 0 to max_bytes */
} Header;

#define FIELD(key, member, type) {key, offsetof(Plan, member), type, 0, 0}
#define RANGE(key, member, type, low, high) {key, offsetof(Plan, member), type, low, high}
static const Header header_table[] = {
    FIELD("device", device, H_STRING),
    RANGE("threads", threads, H_U32, 0, PLAN_THREADS),
    RANGE("accumulate", accumulate, H_I64, 0, PLAN_ACCUMULATE),
    FIELD("budget", budget, H_I64),
    FIELD("reserved", reserved, H_I64),
    RANGE("align", align, H_I64, ARENA_ALIGN, PLAN_ALIGN),
    FIELD("arena", arena_bytes, H_I64),
    FIELD("host", host_bytes, H_I64),
    FIELD("live", live_bytes, H_I64),
    FIELD("keep_all", keep_all_bytes, H_I64),
    FIELD("min_feasible", min_feasible_bytes, H_I64),
    FIELD("predicted_ns", predicted_ns, H_I64),
    RANGE("measured_ns", measured_ns, H_I64, -1, (int64_t)1 << 60),
    FIELD("base_ns", base_ns, H_I64),
    FIELD("bound_ns", bound_ns, H_I64),
    RANGE("peak_step", peak_step, H_U32, 0, UINT32_MAX),
    FIELD("lr", run.lr, H_F64),
    RANGE("seed", run.seed, H_I64, INT64_MIN, INT64_MAX),
    FIELD("init", run.init, H_STRING),
    FIELD("data", run.data, H_STRING),
    FIELD("schedule", run.schedule, H_STRING),
    FIELD("warmup", run.warmup, H_I64),
    FIELD("min_lr", run.min_lr, H_F64),
    FIELD("order", run.order, H_STRING),
    {0},
};

static void print_hashed(const char *key, const PlanFile *file, FILE *f)
{
    fprintf(f, "  %s ", key);
    print_quoted(file->path, f);
    fprintf(f, " %016" PRIx64 "\n", file->hash);
}

static void print_header(const Plan *p, const Header *h, FILE *f)
{
    const void *at = (const char *)p + h->off;
    if (h->type == H_STRING && !*(const char *const *)at)
        return;
    fprintf(f, "  %s ", h->key);
    if (h->type == H_I64)
        fprintf(f, "%" PRId64, *(const int64_t *)at);
    else if (h->type == H_U32)
        fprintf(f, "%" PRIu32, *(const uint32_t *)at);
    else if (h->type == H_F64)
        fprintf(f, "%.17g", *(const double *)at);
    else
        print_quoted(*(const char *const *)at, f);
    fputc('\n', f);
}

static void print_memory(const char *key, const int64_t *mem, FILE *f)
{
    fprintf(f, "  %s", key);
    for (int k = 0; k < MEM_KINDS; k++)
        fprintf(f, " %s=%" PRId64, mem_kind_name[k], mem[k]);
    fputc('\n', f);
}

/* ---- printing steps ------------------------------------------------------------------------ */

typedef struct {
    const Plan *p;
    FILE *f;
    uint32_t *seen;     /* per value: 1 + the step that mentioned it last */
    uint32_t *original; /* per step */
} Printer;

static void print_at(Printer *pr, Val v)
{
    const Plan *p = pr->p;
    fprintf(pr->f, " %%%s@%" PRId64 "+%" PRId64, p->g->vals[v.i].name, p->offset[v.i],
            type_bytes(val_type(p->g, v)));
}

static void mention(Printer *pr, Val v, uint32_t step)
{
    if (!v.i || pr->p->offset[v.i] < 0 || pr->seen[v.i] == step + 1)
        return;
    pr->seen[v.i] = step + 1;
    print_at(pr, v);
}

static void print_step(Printer *pr, uint32_t s)
{
    const Plan *p = pr->p;
    const Step *st = &p->step[s];
    const NodeId *order = p->g->order + st->first;
    fprintf(pr->f, "  step choice=%s scratch=%" PRId64 " scratch_at=%" PRId64 " ns=%" PRId64,
            st->choice ? st->choice : "-", st->scratch, st->scratch_offset, st->cost_ns);
    if (pr->original[s] != s)
        fprintf(pr->f, " recompute of %u", pr->original[s]);
    fputs(" :", pr->f);
    for (uint32_t k = 0; k < st->count; k++)
        for (int i = 0; i < p->g->nodes[order[k].i].nout; i++)
            pr->seen[p->g->nodes[order[k].i].out[i].i] = s + 1; /* made here: no operand */
    for (uint32_t k = 0; k < st->count; k++)
        for (int i = 0; i < p->g->nodes[order[k].i].nin; i++)
            mention(pr, graph_root(p->g, p->g->nodes[order[k].i].in[i]), s);
    fputs(" ->", pr->f);
    for (uint32_t k = 0; k < st->count; k++)
        for (int i = 0; i < p->g->nodes[order[k].i].nout; i++) {
            Val v = p->g->nodes[order[k].i].out[i];
            if (p->offset[v.i] >= 0)
                print_at(pr, v);
        }
    fputc('\n', pr->f);
}

static void print_place(Printer *pr, Val v)
{
    if (pr->p->offset[v.i] < 0)
        return;
    fputs("  place", pr->f);
    print_at(pr, v);
    fputc('\n', pr->f);
}

/* Prints places of values that no step makes: sources as the graph lists them, then views as scheduled. */
static void print_places(Printer *pr)
{
    const Plan *p = pr->p;
    const Graph *g = p->g;
    for (uint32_t i = 1; i < g->nvals; i++)
        if (g->vals[i].kind != VAL_TEMP)
            print_place(pr, (Val){i});
    for (uint32_t k = 0, s = 0; k < g->norder; k++) {
        if (s < p->nstep && k == p->step[s].first) {
            k += p->step[s++].count - 1;
            continue;
        }
        print_place(pr, g->nodes[g->order[k].i].out[0]);
    }
}

static void print_steps(const Plan *p, FILE *f)
{
    Arena a = {0};
    Printer pr = {p, f, NEW(&a, uint32_t, p->g->nvals), plan_originals(p, &a)};
    fputs("steps {\n", f);
    print_places(&pr);
    for (uint32_t s = 0; s < p->nstep; s++)
        print_step(&pr, s);
    fputs("}\n", f);
    arena_free(&a);
}

void plan_print(const Plan *p, FILE *f)
{
    fprintf(f, "plan %d {\n", VERSION);
    if (p->model)
        print_hashed("model", &(PlanFile){p->model, p->model_hash}, f);
    for (uint32_t i = 0; i < p->nfile; i++)
        print_hashed("file", &p->file[i], f);
    for (const Header *h = header_table; h->key; h++)
        print_header(p, h, f);
    print_memory("memory", p->mem, f);
    print_memory("keep_all_memory", p->keep_all_mem, f);
    fputs("}\n", f);
    graph_print(p->g, f);
    print_steps(p, f);
}

/* ---- parsing --------------------------------------------------------------------------------- */

typedef struct {
    Lex lex;
    Plan *p;
} P;

static bool header_value(P *p, const Header *h)
{
    void *at = (char *)p->p + h->off;
    int64_t v = 0;
    if (h->type == H_STRING)
        return lex_string(&p->lex, at);
    if (h->type == H_F64) {
        TRY(lex_number(&p->lex, at));
        return isfinite(*(double *)at) || lex_bad(&p->lex, "a number");
    }
    TRY(lex_integer(&p->lex, h->low, h->high ? h->high : max_bytes, &v));
    if (h->type == H_U32)
        *(uint32_t *)at = (uint32_t)v;
    else
        *(int64_t *)at = v;
    return true;
}

static bool memory(P *p, int64_t *mem)
{
    for (int k = 0; k < MEM_KINDS; k++)
        TRY(lex_expect(&p->lex, mem_kind_name[k]) && lex_expect(&p->lex, "=") &&
            lex_integer(&p->lex, 0, max_bytes, &mem[k]));
    return true;
}

static bool hashed(P *p, const char **path, uint64_t *hash)
{
    char *end;
    TRY(lex_string(&p->lex, path));
    errno = 0;
    *hash = strtoull(p->lex.s, &end, 16);
    bool ok = end != p->lex.s && errno == 0;
    p->lex.s = end;
    return ok || lex_bad(&p->lex, "a hash");
}

static bool header(P *p)
{
    if (lex_accept(&p->lex, "model"))
        return hashed(p, &p->p->model, &p->p->model_hash);
    if (lex_accept(&p->lex, "file")) {
        Plan *q = p->p;
        q->file = arena_grow(q->g->arena, q->file, q->nfile, &q->cfile, sizeof *q->file);
        q->file[q->nfile++] = (PlanFile){NULL, 0};
        return hashed(p, &q->file[q->nfile - 1].path, &q->file[q->nfile - 1].hash);
    }
    if (lex_accept(&p->lex, "memory"))
        return memory(p, p->p->mem);
    if (lex_accept(&p->lex, "keep_all_memory"))
        return memory(p, p->p->keep_all_mem);
    for (const Header *h = header_table; h->key; h++)
        if (lex_accept(&p->lex, h->key))
            return header_value(p, h);
    return lex_bad(&p->lex, "a header line or '}'");
}

/* The graph is handed to its own parser with blanks before it, so that lines keep their numbers. */
static bool graph(P *p)
{
    TRY(lex_accept(&p->lex, "graph") || lex_bad(&p->lex, "graph"));
    const char *from = p->lex.s - strlen("graph"), *end = strstr(from, "\n}");
    if (!end)
        return lex_bad(&p->lex, "the end of the graph");
    size_t before = (size_t)(from - p->lex.start), n = (size_t)(end + 2 - p->lex.start);
    char *text = mem_new(n + 1, 1);
    memcpy(text, p->lex.start, n);
    text[n] = 0;
    for (size_t i = 0; i < before; i++)
        if (text[i] != '\n')
            text[i] = ' ';
    bool ok = graph_parse(p->p->g, text, p->lex.d) && graph_verify(p->p->g, p->lex.d);
    free(text);
    p->lex.s = end + 2;
    return ok;
}

/* "%name@offset+bytes" */
static bool at(P *p)
{
    TRY(lex_expect(&p->lex, "%"));
    size_t n = strcspn(p->lex.s, "@ \n");
    const char *name = arena_strndup(p->p->g->arena, p->lex.s, n);
    Val v = graph_find(p->p->g, name);
    int64_t offset = 0, bytes = 0;
    if (!v.i)
        return fail(p->lex.d, "place of %%%s, which is not in the graph", name);
    p->lex.s += n;
    int64_t end = val_space(p->p->g, v) == SPACE_HOST ? p->p->host_bytes : p->p->arena_bytes;
    TRY(lex_expect(&p->lex, "@") && lex_integer(&p->lex, 0, end, &offset) &&
        lex_expect(&p->lex, "+") && lex_integer(&p->lex, 0, max_bytes, &bytes));
    if (bytes != type_bytes(val_type(p->p->g, v)))
        return fail(p->lex.d, "%%%s has another size", name);
    if (p->p->offset[v.i] >= 0 && p->p->offset[v.i] != offset)
        return fail(p->lex.d, "%%%s has two places", name);
    p->p->offset[v.i] = offset;
    return true;
}

static bool choice(P *p, const char **text)
{
    size_t n = 0;
    lex_skip(&p->lex);
    while (n <= PLAN_CHOICE && isgraph((unsigned char)p->lex.s[n]))
        n++;
    if (n == 0 || n > PLAN_CHOICE)
        return lex_bad(&p->lex, "a choice, or - for none");
    *text = n == 1 && *p->lex.s == '-' ? NULL : arena_strndup(p->lex.a, p->lex.s, n);
    p->lex.s += n;
    return true;
}

static bool step(P *p, uint32_t s)
{
    int64_t ignored = 0;
    if (s >= p->p->nstep)
        return lex_bad(&p->lex, "no more steps than the graph has");
    Step *st = &p->p->step[s];
    TRY(lex_expect(&p->lex, "choice") && lex_expect(&p->lex, "=") && choice(p, &st->choice));
    TRY(lex_expect(&p->lex, "scratch") && lex_expect(&p->lex, "=") &&
        lex_integer(&p->lex, 0, max_bytes, &st->scratch));
    TRY(lex_expect(&p->lex, "scratch_at") && lex_expect(&p->lex, "=") &&
        lex_integer(&p->lex, INT64_MIN / 2, p->p->arena_bytes, &st->scratch_offset));
    TRY(lex_expect(&p->lex, "ns") && lex_expect(&p->lex, "=") &&
        lex_integer(&p->lex, -max_ns, max_ns, &st->cost_ns));
    if (lex_accept(&p->lex, "recompute"))
        TRY(lex_expect(&p->lex, "of") && lex_integer(&p->lex, 0, UINT32_MAX, &ignored));
    TRY(lex_expect(&p->lex, ":"));
    while (!lex_accept(&p->lex, "->"))
        TRY(at(p));
    while (lex_accept(&p->lex, "%")) {
        p->lex.s--;
        TRY(at(p));
    }
    return true;
}

/* Removes the places of constants that graph_print leaves out. */
static void forget_unused(Plan *p)
{
    const Graph *g = p->g;
    const bool *source = graph_sources(g, g->arena);
    for (uint32_t i = 1; i < g->nvals; i++)
        if (g->vals[i].kind == VAL_CONST && !source[i])
            p->offset[i] = -1;
}

static bool steps(P *p)
{
    Graph *g = p->p->g;
    uint32_t s = 0;
    plan_cut(p->p, g->arena);
    p->p->offset = NEW(g->arena, int64_t, g->nvals);
    for (uint32_t i = 0; i < g->nvals; i++)
        p->p->offset[i] = -1;
    TRY(lex_expect(&p->lex, "steps") && lex_expect(&p->lex, "{"));
    while (!lex_accept(&p->lex, "}")) {
        if (lex_accept(&p->lex, "place"))
            TRY(at(p));
        else
            TRY((lex_accept(&p->lex, "step") || lex_bad(&p->lex, "place, step or '}'")) && step(p, s++));
    }
    forget_unused(p->p);
    if (s != p->p->nstep)
        return fail(p->lex.d, "%u steps for a graph of %u", s, p->p->nstep);
    if (p->p->peak_step > 0 && p->p->peak_step >= s)
        return fail(p->lex.d, "peak_step %u of %u steps", p->p->peak_step, s);
    lex_skip(&p->lex);
    return *p->lex.s == 0 || lex_bad(&p->lex, "the end of the file");
}

static bool version(P *p)
{
    int64_t v = 1;
    TRY(lex_expect(&p->lex, "plan") &&
        (lex_accept(&p->lex, "{") || (lex_integer(&p->lex, 0, INT64_MAX, &v) && lex_expect(&p->lex, "{"))));
    return v == VERSION || fail(p->lex.d,
                                "is a schedule in version %lld of its form, and this ckc reads "
                                "version %d: plan the model again",
                                (long long)v, VERSION);
}

bool plan_parse(Plan *plan, const char *text, Diag *d)
{
    Graph *g = plan->g;
    *plan = (Plan){.g = g, .align = ARENA_ALIGN, .measured_ns = -1}; /* where a schedule does not say */
    P p = {{text, text, g->arena, d, false}, plan};
    TRY(version(&p));
    while (!lex_accept(&p.lex, "}"))
        TRY(header(&p));
    if (plan->align & (plan->align - 1))
        return fail(d, "align is no power of 2");
    return graph(&p) && steps(&p) && plan_verify(plan, d);
}
