/* cmd_oom.c -- `ckc oom MODEL.onnx --device NAME --bind batch=N`: for a step that does not fit, the ways to
 * make it fit, best first.
 *
 * Ways that do not change the training come first: recomputation, the host's memory, micro-batches.  Then
 * follow 16-bit products, optimizers with less state, a smaller batch; where none fits, several changes at
 * once.  Each is planned within the budget, all side by side unless their kernels are measured. */
#include "option.h"
#include "parallel.h"
#include "ir/mem.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* What a way changes of the training, in the order in which people accept it. */
typedef enum { NOTHING, LAST_BITS, ROUNDING, OPTIMIZER, BATCH } Changes;
static const char *const changes_text[] = {"nothing", "last bits", "rounding", "optimizer", "batch"};

typedef struct {
    const char *name, *how; /* options that are added */
    const char *without;    /* options that have to be left out; NULL: none */
    Changes changes;
    const char *why;            /* why there is no plan; NULL: there is one */
    int64_t peak, ns, k, batch; /* k: micro-batches; rows of a step, 0: not known */
    int64_t host;               /* bytes in the host's memory */
    uint32_t redone;
} Way;

/* Without recomputation, whatever it takes; within the budget; within it, in micro-batches if needed; the
 * same if one batch does not fit; a smaller batch without recomputation. */
typedef enum { STORED, WITHIN, MICRO, WITHIN_OR_MICRO, SMALLER } Plans;

/* A way that is to be tried. */
typedef struct {
    const char *name, *how, *without;
    Changes changes;
    Plans plans;
    StepOptions step;
} Attempt;

/* What came of it: how and why are texts of the way, which has none. */
typedef struct {
    Way way;
    char how[1024], why[160];
    bool ok;
    Diag diag; /* if not ok */
} Outcome;

typedef struct {
    Options *o;
    StepOptions given;
    const char *budget; /* value of --budget */
    int64_t bytes;
    Batch batch; /* n: 0 if it is not known */
    Way whole; /* without recomputation */
    int64_t mem[MEM_KINDS];
    Attempt *list;
    uint32_t nlist, clist, first; /* first: of those that are tried at once */
    Way *way;
    uint32_t n, cap;
} Oom;

static bool fits(const Oom *m, const Way *w) { return !w->why && w->peak <= m->bytes; }

/* ---- plans -------------------------------------------------------------------------------------- */

static Way way_of(const Job *j)
{
    const Plan *p = j->plan;
    int64_t samples, tokens, k = plan_batches(p);
    batch_size(j, &samples, &tokens);
    return (Way){.peak = p->arena_bytes + p->reserved,
                 .ns = p->predicted_ns,
                 .k = k,
                 .batch = samples * k,
                 .redone = j->info.nrecomputed,
                 .host = p->host_bytes};
}

static Way no_way(const Oom *m, const Job *j)
{
    char bytes[32];
    int64_t least = j->info.plan.min_feasible_bytes;
    return (Way){.why = !least ? "does not fit"
                               : arena_printf(&m->o->arena, "does not fit: takes %s",
                                              bytes_str(least + step_device(&m->given)->reserved, bytes))};
}

/* Plans a step; mem: NULL, or receives its bytes by kind.  That there is no plan is not a failure, but where
 * everything may be stored: then there is no memory for a step at all. */
static bool plan(Oom *m, const StepOptions *s, Plans kind, Way *w, int64_t mem[MEM_KINDS])
{
    Options *o = m->o;
    Job *j = job_new(o);
    o->step = *s;
    o->step.budget = m->bytes;
    o->step.policy = kind == STORED ? "keep-all" : NULL;
    o->step.policy_anyway = kind == STORED;
    o->accumulate_auto = kind == MICRO;
    o->batch = kind == MICRO ? m->batch.name[0] : NULL;
    bool planned = job_plan_best(&j, &(PassRun){0});
    *w = planned ? way_of(j) : no_way(m, j);
    if (mem && planned)
        memcpy(mem, j->plan->mem, sizeof j->plan->mem);
    o->accumulate_auto = false;
    job_free(j);
    bool ok = planned || (kind != STORED && o->diag.status == EXIT_INFEASIBLE);
    o->diag = ok ? (Diag){0} : o->diag;
    return ok;
}

static bool trains(const Oom *m) { return m->given.optim != OPTIM_NONE && m->given.loss != LOSS_NONE; }

/* Can the batch be cut into micro-batches? */
static bool cuts(const Oom *m) { return m->batch.size > 1 && trains(m) && m->given.accumulate < 2; }

/* ---- ways to try ------------------------------------------------------------------------------- */

static void add(Oom *m, Attempt t)
{
    m->list = arena_grow(&m->o->arena, m->list, m->nlist, &m->clist, sizeof *m->list);
    m->list[m->nlist++] = t;
}

/* Recomputation alone, then with the host's memory if the device has a link to it; micro-batches. */
static void add_same(Oom *m)
{
    bool link = step_device(&m->given)->host_link > 0 && m->given.offload != OFFLOAD_NO;
    StepOptions s = m->given;
    s.offload = OFFLOAD_NO;
    add(m, (Attempt){"recompute", link ? "--offload no" : "", NULL, NOTHING, WITHIN, s});
    if (link)
        add(m, (Attempt){"recompute, offload", "", NULL, NOTHING, WITHIN, m->given});
    if (cuts(m))
        add(m, (Attempt){"micro-batches", "--accumulate auto", NULL, LAST_BITS, MICRO, m->given});
}

/* Takes out of s what its optimizer does not have; the options as text, NULL: there are none. */
static const char *left_out(StepOptions *s, Arena *a)
{
    const char *text = NULL, *name;
    while ((name = step_take_out(s, &(Diag){0})))
        text = text ? arena_printf(a, "%s --%s", text, name) : arena_printf(a, "--%s", name);
    return text;
}

/* Is there a precision of fewer bytes? */
static bool halves(const Oom *m)
{
    return m->given.precision == PRECISION_F32 || m->given.precision == PRECISION_TF32;
}

/* Optimizers of less state, beside what `with` changes; name, how: text in front of theirs. */
static void add_optimizers(Oom *m, StepOptions with, const char *name, const char *how)
{
    Arena *a = &m->o->arena;
    for (int k = 0; trains(m) && k < OPTIM_NONE; k++) {
        if (optim_moments[k] >= optim_moments[m->given.optim])
            continue;
        StepOptions s = with;
        s.optim = (OptimKind)k;
        const char *without = left_out(&s, a);
        add(m, (Attempt){arena_printf(a, "%s%s", name, optim_name[k]),
                         arena_printf(a, "%s--optimizer %s", how, optim_name[k]), without, OPTIMIZER,
                         WITHIN_OR_MICRO, s});
    }
}

static void add_changes(Oom *m)
{
    StepOptions s = m->given;
    s.precision = PRECISION_BF16;
    if (halves(m))
        add(m, (Attempt){"bf16", "--precision bf16", NULL, ROUNDING, WITHIN_OR_MICRO, s});
    add_optimizers(m, m->given, "", "");
    if (m->batch.n)
        add(m, (Attempt){"smaller batch", "", NULL, BATCH, SMALLER, m->given});
}

static void add_other_kernels(Oom *m)
{
    StepOptions s = m->given;
    s.any_bits = true;
    add(m, (Attempt){"other kernels", "--choices budget", NULL, ROUNDING, WITHIN_OR_MICRO, s});
}

/* Several changes at once. */
static void add_combined(Oom *m)
{
    StepOptions s = m->given;
    s.any_bits = true;
    s.precision = halves(m) ? PRECISION_BF16 : s.precision;
    const char *how = halves(m) ? "--choices budget --precision bf16" : "--choices budget";
    if (halves(m))
        add(m, (Attempt){"bf16, other kernels", how, NULL, ROUNDING, WITHIN_OR_MICRO, s});
    add_optimizers(m, s, halves(m) ? "bf16, " : "kernels, ", arena_printf(&m->o->arena, "%s ", how));
}

/* ---- trying them ------------------------------------------------------------------------------- */

/* Finds the largest batch that fits without recomputation, to within a sixteenth. */
static bool find_smaller(Oom *m, Way *best, int64_t *batch)
{
    int64_t low = 0, high = m->batch.size; /* low fits; high does not */
    *best = (Way){.why = "a batch of one does not fit either"};
    while (high - low > 1 + low / 16) {
        int64_t try = low + (high - low) / 2;
        StepOptions s = m->given;
        Way w;
        batch_set(&s.import, &m->batch, try, &m->o->arena);
        TRY(plan(m, &s, STORED, &w, NULL));
        if (fits(m, &w))
            *best = w;
        *(fits(m, &w) ? &low : &high) = try;
    }
    *batch = low;
    return true;
}

static bool attempt(Oom *m, const Attempt *t, Way *w, const char **how)
{
    Arena *a = &m->o->arena;
    int64_t batch;
    *how = t->how;
    if (t->plans == SMALLER) {
        TRY(find_smaller(m, w, &batch));
        *how = batch ? arena_printf(a, "--bind %s", batch_text(&m->batch, batch, a)) : "";
        return true;
    }
    TRY(plan(m, &t->step, t->plans == MICRO ? MICRO : WITHIN, w, NULL));
    if (t->plans != WITHIN_OR_MICRO || !w->why || !cuts(m))
        return true;
    *how = arena_printf(a, "%s --accumulate auto", t->how);
    return plan(m, &t->step, MICRO, w, NULL);
}

static void try_one(void *user, int i, void *result)
{
    Oom *m = user;
    Outcome *out = result;
    const char *how;
    out->ok = attempt(m, &m->list[m->first + (uint32_t)i], &out->way, &how);
    if (!out->ok) {
        out->diag = m->o->diag;
        return;
    }
    snprintf(out->how, sizeof out->how, "%s", how);
    snprintf(out->why, sizeof out->why, "%s", out->way.why ? out->way.why : "");
}

/* Is it plain recomputation after all, without micro-batches or the host's memory? */
static bool is_plain(const Attempt *t, const Way *w)
{
    return !w->why && (t->plans == MICRO ? w->k == 1 : !w->host);
}

static void keep(Oom *m, const Attempt *t, const Outcome *out)
{
    Arena *a = &m->o->arena;
    Way w = out->way;
    w.name = t->name;
    w.changes = t->changes;
    w.without = t->without;
    w.how = arena_strndup(a, out->how, strlen(out->how));
    w.why = *out->why ? arena_strndup(a, out->why, strlen(out->why)) : NULL;
    m->way = arena_grow(a, m->way, m->n, &m->cap, sizeof *m->way);
    m->way[m->n++] = w;
}

/* Tries the ways from `first` on, and keeps those that are ways of their own. */
static bool try_from(Oom *m, uint32_t first)
{
    Options *o = m->o;
    uint32_t n = m->nlist - first;
    Outcome *out = NEW(&o->arena, Outcome, n + 1);
    bool ok = true;
    m->first = first;
    progress(&o->step.progress, "planning %u ways", n);
    parallel_run((int)n, !o->ops, try_one, m, out, sizeof *out);
    for (uint32_t i = 0; i < n && ok; i++) {
        const Attempt *t = &m->list[first + i];
        ok = out[i].ok;
        if (!ok)
            o->diag = out[i].diag;
        else if (first + i == 0 || t->changes > LAST_BITS || !is_plain(t, &out[i].way))
            keep(m, t, &out[i]);
    }
    return ok;
}

/* Fits one that changes no more than this? */
static bool any_fits(const Oom *m, Changes most)
{
    bool any = false;
    for (uint32_t i = 0; i < m->n; i++)
        any |= m->way[i].changes <= most && !m->way[i].why;
    return any;
}

static bool try_ways(Oom *m)
{
    add_same(m);
    add_changes(m);
    TRY(try_from(m, 0));
    uint32_t first = m->nlist;
    if (!any_fits(m, LAST_BITS) && !m->given.any_bits)
        add_other_kernels(m);
    TRY(try_from(m, first));
    first = m->nlist;
    if (!any_fits(m, BATCH))
        add_combined(m);
    return try_from(m, first);
}

/* ---- what is asked --------------------------------------------------------------------------------- */

/* Finds the batch, if --bind gives one and no other. */
static bool find_batch(Oom *m)
{
    Options *o = m->o;
    OnnxModel *model = onnx_open(o->path, &o->diag);
    TRY(model);
    Batch b = batch_find(model, &m->given.import, NULL, true, &o->arena);
    onnx_close(model);
    m->batch = b.other ? (Batch){0} : b;
    return true;
}

static int best_first(const void *a, const void *b)
{
    const Way *x = a, *y = b;
    if (!x->why != !y->why)
        return x->why ? 1 : -1;
    if (x->changes != y->changes)
        return x->changes < y->changes ? -1 : 1;
    double left = (double)x->ns * (double)y->batch, right = (double)y->ns * (double)x->batch;
    return left != right ? (left < right ? -1 : 1) : strcmp(x->name, y->name);
}

/* ---- what is said ---------------------------------------------------------------------------------- */

static double rate(const Way *w) { return w->ns > 0 ? 1e9 * (double)w->batch / (double)w->ns : 0; }

static void print_way(FILE *f, const Oom *m, const Way *w, uint32_t place)
{
    char peak[32], text[16], ms[32];
    if (w->why) {
        print_line(f, "-  %-22s %s", w->name, w->why);
        return;
    }
    print_line(f, "%" PRIu32 "  %-22s %10s %12s %10s  %s", place, w->name, bytes_str(w->peak, peak),
               ms_str(w->ns, ms), rate_str(rate(w), text), changes_text[w->changes]);
    print_line(f, "   --budget %s%s%s%s%s", m->budget, *w->how ? " " : "", w->how,
               w->without ? ", without " : "", w->without ? w->without : "");
}

static void print_head(FILE *f, const Oom *m)
{
    char a[32], b[32], c[32];
    int64_t over = m->whole.peak - m->bytes;
    print_line(f, "%s", m->o->path);
    print_line(f, "%s: %s without recomputation, %s %s than there is (%s)", step_device(&m->given)->name,
               bytes_str(m->whole.peak, a), bytes_str(over > 0 ? over : -over, b), over > 0 ? "more" : "less",
               bytes_str(m->bytes, c));
    for (int k = 0; k < MEM_KINDS; k++)
        if (m->mem[k])
            fprintf(f, "  %11s  %s\n", bytes_str(m->mem[k], a), mem_kind_name[k]);
    if (step_device(&m->given)->reserved)
        fprintf(f, "  %11s  driver and libraries\n", bytes_str(step_device(&m->given)->reserved, a));
}

static void print(FILE *f, const Oom *m)
{
    print_head(f, m);
    if (fits(m, &m->whole)) {
        char ms[32];
        fprintf(f, "\nIt fits: %s predicted, nothing has to be done.\n", ms_str(m->whole.ns, ms));
        return;
    }
    fprintf(f, "\n%-25s %10s %12s %10s  %s\n", "what to do", "peak", "predicted", "samples/s", "changes");
    for (uint32_t i = 0; i < m->n; i++)
        print_way(f, m, &m->way[i], i + 1);
    fputs(m->way[0].why ? "\nNothing of this fits: the step needs another device.\n"
                        : "\npredicted: of a step; below each: the options to add\n",
          f);
}

static json_t *way_json(const Oom *m, const Way *w)
{
    if (w->why)
        return json_pack("{s:s, s:b, s:o}", "name", w->name, "fits", false, "reason", text_json(w->why));
    return json_pack(
        "{s:s, s:b, s:s, s:o, s:s?, s:I, s:f, s:f, s:I, s:i, s:I}", "name", w->name, "fits", fits(m, w),
        "changes", changes_text[w->changes], "options",
        text_json(arena_printf(&m->o->arena, "--budget %s%s%s", m->budget, *w->how ? " " : "", w->how)),
        "without", w->without, "peak_bytes", (json_int_t)w->peak, "predicted_ms", ns_ms(w->ns),
        "samples_per_second", rate(w), "accumulate", (json_int_t)w->k, "redone", (int)w->redone, "host_bytes",
        (json_int_t)w->host);
}

static void print_json(const Oom *m)
{
    json_t *ways = json_array(), *mem = json_object();
    for (uint32_t i = 0; i < m->n; i++)
        json_array_append_new(ways, way_json(m, &m->way[i]));
    for (int k = 0; k < MEM_KINDS; k++)
        json_object_set_new(mem, mem_kind_name[k], json_integer(m->mem[k]));
    json_t *o =
        json_pack("{s:o, s:I, s:I, s:f, s:o, s:b, s:o}", "model", text_json(m->o->path), "budget_bytes",
                  (json_int_t)m->bytes, "keep_all_bytes", (json_int_t)m->whole.peak, "keep_all_ms",
                  ns_ms(m->whole.ns), "memory", mem, "fits", fits(m, &m->whole), "ways", ways);
    json_print(o, 9);
    json_decref(o);
}

/* ---- the command -------------------------------------------------------------------------------------- */

/* Plans the step without recomputation, and takes the budget from the options; a percentage is of what that
 * plan takes. */
static bool find_budget(Oom *m)
{
    Options *o = m->o;
    TRY(!o->budget || parse_budget(o, o->budget));
    double part = o->step.budget_fraction;
    TRY(part > 0 || budget_bytes(o, "ckc oom"));
    o->step.budget_fraction = 0;
    m->given = o->step;
    m->bytes = o->step.budget;
    TRY(find_batch(m) && plan(m, &m->given, STORED, &m->whole, m->mem));
    if (part > 0) {
        int64_t reserved = step_device(&m->given)->reserved, memory = m->given.device ? o->device.memory : 0;
        m->bytes = reserved + (int64_t)(part * (double)(m->whole.peak - reserved));
        m->bytes = memory > 0 && memory < m->bytes ? memory : m->bytes;
    }
    bool bytes = o->budget && part == 0; /* other ways have other percentages */
    m->budget = bytes ? o->budget : arena_printf(&o->arena, "%" PRId64 "B", m->bytes);
    return true;
}

static bool find_ways(Oom *m)
{
    Options *o = m->o;
    o->steps = 0;
    if (o->accumulate_auto)
        return fail(&o->diag, "--accumulate auto is among what is tried anyway");
    return step_check(o) && find_budget(m) && (fits(m, &m->whole) || try_ways(m));
}

static bool oom(Oom *m)
{
    TRY(find_ways(m));
    if (m->n)
        qsort(m->way, m->n, sizeof *m->way, best_first);
    progress_end();
    if (m->o->json)
        print_json(m);
    else
        print(stdout, m);
    return true;
}

int cmd_oom(Options *o)
{
    Oom m = {.o = o};
    if (!oom(&m))
        return report_error(&o->diag, o->path);
    return fits(&m, &m.whole) || !m.way[0].why ? EXIT_OK : EXIT_INFEASIBLE;
}
