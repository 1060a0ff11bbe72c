/* cmd_sweep.c -- `ckc sweep MODEL.onnx`: plans for many budgets (--budgets N, here) or batches (--batch A..B,
 * sweep_batch.c).
 *
 * Budgets are evenly spaced from everything stored down to the least that works, and planned at once unless
 * kernels are measured: the plan for a smaller budget is used for a larger one, too, if the search finds none
 * faster. */
#include "option.h"
#include "parallel.h"
#include "plot.h"
#include "ir/mem.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { POINTS = 8, BAR = 10, LABELLED = 12 /* most points with labels */ };

typedef struct {
    int64_t budget, peak, ns, bound; /* bytes, with what the device reserves; predicted ns, and their bound */
    uint32_t redone, moved;
    Job *job; /* --output: the job of this plan */
} Point;

typedef struct {
    Options *o;
    Job *base;
    Point *point; /* in the order of falling budgets */
    uint32_t n;
    int64_t base_ns, whole;
    Job **made; /* the jobs of all points, to be freed */
    uint32_t nmade;
} Sweep;

static double over(const Sweep *s, int64_t ns) { return part_over(ns, s->base_ns); }

/* ---- the points --------------------------------------------------------------------------------- */

/* Plans a budget for the arena alone; found: there is a plan, else o->diag says why not. */
static bool plan(Sweep *s, int64_t budget, Point *p, bool *found)
{
    Options *o = s->o;
    Job *j = job_fork(s->base);
    int64_t reserved = step_device(&o->step)->reserved;
    o->step.budget = budget + reserved;
    *found = job_finish(j, &(PassRun){0});
    const Plan *q = &j->info.plan;
    if (*found)
        *p = (Point){.budget = budget + reserved,
                     .peak = q->arena_bytes + reserved,
                     .ns = q->predicted_ns,
                     .bound = q->bound_ns,
                     .redone = j->info.nrecomputed,
                     .moved = j->info.nfetched};
    else
        *p = (Point){.budget = q->min_feasible_bytes};
    s->base_ns = q->base_ns;
    s->whole = q->keep_all_bytes;
    if (*found && o->output)
        p->job = s->made[s->nmade++] = j;
    else
        job_free(j);
    return *found || o->diag.status == EXIT_INFEASIBLE;
}

/* Finds the least budget, which planning within one byte reports when it fails. */
static bool find_least(Sweep *s, int64_t *least)
{
    Point p;
    bool found;
    TRY(plan(s, 1, &p, &found));
    if (found || !p.budget)
        return fail(&s->o->diag, "nothing is known of the least budget");
    s->o->diag = (Diag){0};
    *least = p.budget < s->whole ? p.budget : s->whole;
    return true;
}

/* A time that no schedule beats within a larger budget is a bound for smaller ones, too. */
static void raise_bounds(Sweep *s)
{
    for (uint32_t i = 1; i < s->n; i++)
        if (s->point[i].bound < s->point[i - 1].bound)
            s->point[i].bound = s->point[i - 1].bound;
}

/* What planning a budget came to. */
typedef struct {
    Point point;
    bool found, ok;
    Diag diag; /* why there is none */
} Outcome;

static void plan_one(void *user, int i, void *result)
{
    Sweep *s = user;
    Outcome *out = result;
    out->ok = plan(s, s->point[i].budget, &out->point, &out->found);
    out->diag = s->o->diag;
    s->o->diag = (Diag){0};
}

static bool sweep_points(Sweep *s)
{
    Options *o = s->o;
    int64_t least = 0;
    TRY(find_least(s, &least));
    for (uint32_t i = 0; i < s->n; i++)
        s->point[i].budget = least + (int64_t)((double)(s->whole - least) * (s->n - 1 - i) / (s->n - 1));
    Outcome *out = NEW(&o->arena, Outcome, s->n);
    progress(&o->step.progress, "planning %u budgets", s->n);
    parallel_run((int)s->n, !o->ops && !o->output, plan_one, s, out, sizeof *out);
    for (uint32_t i = s->n; i-- > 0;) {
        Point *p = &s->point[i], less = i + 1 < s->n ? s->point[i + 1] : (Point){0};
        int64_t budget = p->budget;
        if (!out[i].ok || (!out[i].found && !less.ns)) {
            o->diag = out[i].diag;
            return false;
        }
        *p = out[i].point;
        if (less.ns && (!out[i].found || less.ns < p->ns)) {
            less.budget = budget + step_device(&o->step)->reserved;
            less.bound = out[i].found && p->bound < less.bound ? p->bound : less.bound;
            *p = less;
        }
    }
    raise_bounds(s);
    return true;
}

/* ---- what is said ------------------------------------------------------------------------------- */

static void print_bar(FILE *f, double part)
{
    for (int i = 0; i < (int)lround(BAR * part); i++)
        fputc('#', f);
}

static void print_points(FILE *f, const Sweep *s)
{
    char a[32], b[32], c[16], d[16], ms[32];
    bool bars = isatty(fileno(f));
    double most = over(s, s->point[s->n - 1].ns), whole = (double)s->point[0].budget;
    print_line(f, "%s", s->o->path);
    fprintf(f, "\n%10s %7s %10s %11s %9s %9s %6s\n", "budget", "of all", "peak", "predicted", "overhead",
            "bound", "redone");
    for (uint32_t i = 0; i < s->n; i++) {
        const Point *p = &s->point[i];
        fprintf(f, "%10s %5.1f %% %10s %11s %9s %9s %6u%s", bytes_str(p->budget, a),
                100 * (double)p->budget / whole, bytes_str(p->peak, b), ms_str(p->ns, ms),
                percent_str(over(s, p->ns), c), percent_str(over(s, p->bound), d), p->redone,
                bars ? "  " : "");
        if (bars && most > 0)
            print_bar(f, over(s, p->ns) / most);
        fputc('\n', f);
    }
    fprintf(f, "\noverhead, bound: predicted time, and the least of any schedule within the\n"
               "budget, over that without recomputation; redone: kernels that run again\n");
    others_print(f, s->base->others);
}

static json_t *points_json(const Sweep *s)
{
    json_t *points = json_array();
    for (uint32_t i = 0; i < s->n; i++) {
        const Point *p = &s->point[i];
        json_array_append_new(points, json_pack("{s:I, s:I, s:f, s:f, s:f, s:f, s:i, s:i}", "budget_bytes",
                                                (json_int_t)p->budget, "peak_bytes", (json_int_t)p->peak,
                                                "predicted_ms", ns_ms(p->ns), "bound_ms", ns_ms(p->bound),
                                                "overhead", over(s, p->ns), "lower_bound", over(s, p->bound),
                                                "redone", (int)p->redone, "fetched", (int)p->moved));
    }
    return json_pack("{s:o, s:I, s:f, s:f, s:o}", "model", text_json(s->o->path), "keep_all_bytes",
                     (json_int_t)s->point[0].budget, "keep_all_ms", ns_ms(s->base_ns), "others",
                     s->base->others, "points", points);
}

/* The diagram of the frontier: predicted time over budget. */
static Diagram draw(const Sweep *s, const Point *chosen)
{
    Arena *a = &s->o->arena;
    char b[2][32];
    Series *line = NEW(a, Series, 3);
    line[0] = (Series){{PAINT_SOFT, "least of any schedule (lower bound)", true, true}, NULL, s->n, NULL};
    line[1] = (Series){{PAINT_KIND + MEM_ACTIVATION, "predicted", true, false}, NULL, s->n, NULL};
    double most = 0;
    for (int k = 0; k < 2; k++) {
        line[k].at = NEW(a, PlotPoint, s->n);
        for (uint32_t i = 0; i < s->n; i++) {
            const Point *p = &s->point[i];
            double percent = 100 * over(s, k ? p->ns : p->bound);
            line[k].at[i] = (PlotPoint){(double)p->budget, percent};
            most = fmax(most, percent);
        }
    }
    line[1].label = s->n <= LABELLED ? NEW(a, const char *, s->n) : NULL;
    for (uint32_t i = 0; i < s->n && line[1].label; i++)
        line[1].label[i] = arena_printf(a, "%.3g %%", line[1].at[i].y);
    const char *text = arena_printf(a, "everything stored %s, %s a step; least budget %s",
                                    bytes_str(s->point[0].budget, b[0]),
                                    unit_text(a, UNIT_NS, (double)s->base_ns, (double)s->base_ns),
                                    bytes_str(s->point[s->n - 1].budget, b[1]));
    if (s->o->output)
        line[2] = plot_mark(a, (double)chosen->budget, 100 * over(s, chosen->ns));
    Axis budgets = {.low = (double)s->point[s->n - 1].budget,
                    .high = (double)s->point[0].budget,
                    .unit = UNIT_BYTES,
                    .label = "budget"};
    Axis times = {.high = 1.08 * most, .unit = UNIT_PERCENT, .label = "longer than without recomputation"};
    return (Diagram){arena_printf(a, "%s: what less memory costs", s->o->path),
                     text,
                     budgets,
                     times,
                     line,
                     s->o->output ? 3 : 2};
}

/* The point whose share of the saved bytes is the most above its share of the added time. */
static const Point *choose(const Sweep *s)
{
    const Point *first = &s->point[0], *last = &s->point[s->n - 1], *best = first;
    double most = 0, bytes = (double)(first->budget - last->budget), ns = (double)(last->ns - first->ns);
    for (const Point *p = first; p <= last && bytes > 0; p++) {
        double gain =
            (double)(first->budget - p->budget) / bytes - (ns > 0 ? (double)(p->ns - first->ns) / ns : 0);
        if (gain > most) {
            most = gain;
            best = p;
        }
    }
    return best;
}

bool sweep_output(Job *j, const SweepResult *r)
{
    j->sweep = r;
    json_t *report = report_json(j);
    bool ok = output_folder(j, report);
    json_decref(report);
    if (ok && !j->o->json)
        print_line(stdout, "wrote %s/, with report.html to look at: %s", j->folder, r->shown);
    return ok;
}

static bool write_results(const Sweep *s)
{
    char bytes[32];
    Options *o = s->o;
    const Point *p = choose(s);
    SweepResult r = {draw(s, p), points_json(s),
                     arena_printf(&o->arena, "the plan for %s", bytes_str(p->budget, bytes)), false};
    bool ok = !o->plot || picture_write(plot_diagram(&o->arena, &r.diagram), o->plot, &o->diag);
    if (ok && !o->json)
        print_points(stdout, s);
    ok = ok && (!o->output || sweep_output(p->job, &r));
    if (ok && o->json)
        json_print(r.json, 9);
    json_decref(r.json);
    return ok;
}

static bool sweep_budgets(Options *o, Job *base)
{
    Sweep s = {.o = o, .base = base, .n = o->budgets ? (uint32_t)o->budgets : POINTS};
    s.point = NEW(&o->arena, Point, s.n);
    s.made = NEW(&o->arena, Job *, s.n);
    o->step.policy = "keep-all"; /* so that all kernels are measured well */
    TRY(job_prepare(base, &(PassRun){0}));
    o->step.policy = NULL;
    bool ok = sweep_points(&s);
    progress_end();
    ok = ok && write_results(&s);
    for (uint32_t i = 0; i < s.nmade; i++)
        job_free(s.made[i]);
    return ok;
}

static bool check(Job *j)
{
    Options *o = j->o;
    o->steps = 0;
    TRY(step_check(o) && (o->output ? output_check(j) : !o->plot || file_try(o->plot, &o->diag)));
    if (o->accumulate_auto || (o->batches_to && o->step.accumulate > 1))
        return fail(&o->diag, "--accumulate: micro-batches are what --batch tries anyway");
    if (o->batches_to && o->budgets)
        return fail(&o->diag, "--budgets and --batch are two sweeps");
    return o->batches_to || !o->budget ||
           fail(&o->diag, "--budget belongs to --batch; --budgets N finds its own");
}

int cmd_sweep(Options *o)
{
    Job *j = job_new(o);
    bool ok = check(j) && (o->batches_to ? sweep_batches(o) : sweep_budgets(o, j));
    int status = job_status(j, ok);
    job_free(j);
    return status;
}
