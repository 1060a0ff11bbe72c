/* cmd_sweep.c -- `ckc sweep MODEL.onnx`: plans for many budgets (--budgets N, here) or batches (--batch A..B,
 * sweep_batch.c).
 *
 * Budgets are evenly spaced from everything stored down to the least that works, and planned from there up: a
 * plan that a smaller budget found stands in where the search for a larger one finds nothing faster. */
#include "sweep.h"
#include "plot.h"
#include "ir/mem.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { POINTS = 8, BAR = 10, LABELLED = 12 /* points of a picture */ };

typedef struct {
    int64_t budget, peak, ns, bound; /* bytes with what the device reserves; per step */
    uint32_t redone, moved;
} Point;

typedef struct {
    Options *o;
    Job *base;
    Point *point; /* falling budgets */
    uint32_t n;
    int64_t base_ns, whole;
} Sweep;

double sweep_ms(int64_t ns) { return 1e-6 * (double)ns; }

const char *sweep_percent(double part, char buf[16])
{
    snprintf(buf, 16, "%+.2f %%", 100 * part);
    return buf;
}

static double over(const Sweep *s, int64_t ns)
{
    return s->base_ns > 0 ? (double)ns / (double)s->base_ns - 1 : 0;
}

/* ---- the points --------------------------------------------------------------------------------- */

/* The plan for a budget, of the arena alone; found: there is one, else why not is in o->diag. */
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
    job_free(j);
    free(j);
    return *found || o->diag.status == EXIT_INFEASIBLE;
}

/* A budget of one byte is refused with the least there is. */
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

/* What no schedule can beat within more bytes, none can within fewer. */
static void raise_bounds(Sweep *s)
{
    for (uint32_t i = 1; i < s->n; i++)
        if (s->point[i].bound < s->point[i - 1].bound)
            s->point[i].bound = s->point[i - 1].bound;
}

static bool sweep_points(Sweep *s)
{
    int64_t least = 0;
    TRY(find_least(s, &least));
    for (uint32_t i = s->n; i-- > 0;) {
        Point *p = &s->point[i], less = i + 1 < s->n ? s->point[i + 1] : (Point){0};
        int64_t budget = least + (int64_t)((double)(s->whole - least) * (s->n - 1 - i) / (s->n - 1));
        bool found;
        TRY(plan(s, budget, p, &found));
        if (!found && !less.ns)
            return false;
        s->o->diag = (Diag){0};
        if (less.ns && (!found || less.ns < p->ns)) {
            less.budget = budget + step_device(&s->o->step)->reserved;
            less.bound = found && p->bound < less.bound ? p->bound : less.bound;
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
    char a[32], b[32], c[16], d[16];
    bool bars = isatty(fileno(f));
    double most = over(s, s->point[s->n - 1].ns), whole = (double)s->point[0].budget;
    print_line(f, "%s", s->o->path);
    fprintf(f, "\n%10s %7s %10s %11s %9s %9s %6s\n", "budget", "of all", "peak", "predicted", "overhead",
            "bound", "redone");
    for (uint32_t i = 0; i < s->n; i++) {
        const Point *p = &s->point[i];
        fprintf(f, "%10s %5.1f %% %10s %8.4g ms %9s %9s %6u%s", bytes_str(p->budget, a),
                100 * (double)p->budget / whole, bytes_str(p->peak, b), sweep_ms(p->ns),
                sweep_percent(over(s, p->ns), c), sweep_percent(over(s, p->bound), d), p->redone,
                bars ? "  " : "");
        if (bars && most > 0)
            print_bar(f, over(s, p->ns) / most);
        fputc('\n', f);
    }
    fprintf(f, "\noverhead, bound: predicted time, and the least of any schedule within the\n"
               "budget, over that without recomputation; redone: kernels that run again\n");
}

static void print_json(const Sweep *s)
{
    json_t *points = json_array();
    for (uint32_t i = 0; i < s->n; i++) {
        const Point *p = &s->point[i];
        json_array_append_new(points,
                              json_pack("{s:I, s:I, s:f, s:f, s:f, s:f, s:i, s:i}", "budget_bytes",
                                        (json_int_t)p->budget, "peak_bytes", (json_int_t)p->peak,
                                        "predicted_ms", sweep_ms(p->ns), "bound_ms", sweep_ms(p->bound),
                                        "overhead", over(s, p->ns), "lower_bound", over(s, p->bound),
                                        "redone", (int)p->redone, "fetched", (int)p->moved));
    }
    json_t *o =
        json_pack("{s:o, s:I, s:f, s:o}", "model", json_text(s->o->path), "keep_all_bytes",
                  (json_int_t)s->point[0].budget, "keep_all_ms", sweep_ms(s->base_ns), "points", points);
    json_print(o, 9);
    json_decref(o);
}

/* The frontier: what less memory costs. */
static bool draw(const Sweep *s)
{
    Arena *a = &s->o->arena;
    char b[2][32];
    Series line[2] = {{{PAINT_SOFT, "least of any schedule (lower bound)", true, true}, NULL, s->n, NULL},
                      {{PAINT_KIND + MEM_ACTIVATION, "predicted", true, false}, NULL, s->n, NULL}};
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
    const Picture *p = plot_table(
        a, arena_printf(a, "%s: what less memory costs", s->o->path), text,
        (Axis){.low = (double)s->point[s->n - 1].budget,
               .high = (double)s->point[0].budget,
               .unit = UNIT_BYTES,
               .label = "budget"},
        (Axis){.high = 1.08 * most, .unit = UNIT_PERCENT, .label = "longer than without recomputation"}, line,
        2);
    return picture_write(p, s->o->plot, &s->o->diag);
}

static bool sweep_budgets(Options *o, Job *base)
{
    Sweep s = {.o = o, .base = base, .n = o->budgets ? (uint32_t)o->budgets : POINTS};
    s.point = NEW(&o->arena, Point, s.n);
    o->step.policy = "keep-all"; /* times decide */
    TRY(job_prepare(base, &(PassRun){0}));
    o->step.policy = NULL;
    TRY(sweep_points(&s));
    progress_end();
    TRY(!o->plot || draw(&s));
    if (o->json)
        print_json(&s);
    else
        print_points(stdout, &s);
    return true;
}

static bool check(Options *o)
{
    o->steps = 0;
    TRY(step_check(o) && (!o->plot || file_try(o->plot, &o->diag)));
    if (o->accumulate_auto)
        return fail(&o->diag, "--accumulate auto is what --batch tries anyway");
    if (o->batches_to && o->budgets)
        return fail(&o->diag, "--budgets and --batch are two sweeps");
    return o->batches_to || !o->budget ||
           fail(&o->diag, "--budget belongs to --batch; --budgets N finds its own");
}

int cmd_sweep(Options *o)
{
    Job *j = mem_new(1, sizeof *j);
    j->o = o;
    bool ok = check(o) && (o->batches_to ? sweep_batches(o) : sweep_budgets(o, j));
    int status = job_status(j, ok);
    job_free(j);
    free(j);
    return status;
}
