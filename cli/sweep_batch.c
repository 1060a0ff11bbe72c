/* sweep_batch.c -- `ckc sweep MODEL.onnx --batch A..B --budget SIZE`: is a larger batch, which recomputes to
 * fit, faster than a smaller one, which need not?
 *
 * Every power of two is planned as one batch that recomputes, as micro-batches of it and, if the device has a
 * link to the host, with values in the host's memory.  The largest batch that fits is found by bisection, and
 * two batches halfway between the fastest one and its neighbours are tried as well. */
#include "option.h"
#include "ir/mem.h"
#include "plot.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ONE, MICRO, HOST, WAYS };
static const char *const way_key[WAYS] = {"one_batch", "micro_batches", "offload"};
static const char *const way_name[WAYS] = {"in one batch", "in micro-batches", "with the host's memory"};

typedef struct {
    bool fits;
    int64_t ns, base_ns, peak, k; /* ns of a step, and without recomputation; bytes; micro-batches */
    uint32_t redone, moved;
} Way;

typedef struct {
    int64_t batch;
    Way way[WAYS];
} Point;

typedef struct {
    Options *o;
    StepOptions given;
    Batch batch;
    Point *point; /* in the order of rising batches */
    uint32_t n, cap;
    bool host;
    double others; /* share of the processors that other processes used while kernels were measured */
    int64_t fail; /* the least batch that is known not to fit; 0: none */
    Job *best;    /* --output: the job of the fastest plan */
    Point best_point;
    int best_way;
} Sweep;

static double rate(const Point *p, int way) { return 1e9 * (double)p->batch / (double)p->way[way].ns; }

/* Which plans to look at: one batch that keeps everything, one that recomputes, any way. */
typedef enum { KEPT, REDONE, ANY } Which;

static bool is(const Point *p, int way, Which which)
{
    const Way *w = &p->way[way];
    return w->fits && (which == ANY || (way == ONE && (w->redone > 0) == (which == REDONE)));
}

/* ---- plans -------------------------------------------------------------------------------------- */

/* Finds the batch, which --batch may name and --bind does not give. */
static bool find_batch(Sweep *s)
{
    Options *o = s->o;
    const OnnxOptions *im = &o->step.import;
    OnnxModel *m = onnx_open(o->path, &o->diag);
    TRY(m);
    Batch given = batch_find(m, im, o->batch, true, &o->arena);
    Batch b = s->batch = batch_find(m, im, o->batch, false, &o->arena);
    onnx_close(m);
    if (b.other)
        return fail(&o->diag, "--batch: which is the batch, %s or %s?  Say --batch %s=1..64", b.name[0],
                    b.other, b.name[0]);
    if (given.n && (o->batch || !b.n))
        return fail(&o->diag, "--batch: --bind says how large %s is: leave it out there", given.name[0]);
    return b.n || (o->batch ? fail(&o->diag, "--batch: %s is the first dimension of no input", o->batch)
                            : fail(&o->diag, "--batch: the first dimension of no input is left open"));
}

static void bind_batch(Sweep *s, int64_t batch)
{
    Options *o = s->o;
    o->step = s->given;
    o->step.compared = true;
    batch_set(&o->step.import, &s->batch, batch, &o->arena);
}

static Way way_of(const Job *j)
{
    const Plan *p = j->plan;
    return (Way){.fits = true,
                 .ns = p->predicted_ns,
                 .base_ns = p->base_ns,
                 .peak = p->arena_bytes + p->reserved,
                 .k = plan_batches(p),
                 .redone = j->info.nrecomputed,
                 .moved = j->info.nfetched};
}

/* Keeps j for --output if its plan is the fastest so far, in place of the best job before; else frees it. */
static void keep_or_free(Sweep *s, Job *j, const Point *p, int way)
{
    bool kept = s->o->output && p->way[way].fits;
    if (kept && s->best) {
        double more = rate(p, way) - rate(&s->best_point, s->best_way);
        kept = more > 0 || (more >= 0 && p->batch < s->best_point.batch);
    }
    job_free(kept ? s->best : j);
    if (kept) {
        s->best = j;
        s->best_point = *p;
        s->best_way = way;
    }
}

/* Plans one batch, and micro-batches of it if they are faster.  That there is no plan is not a failure. */
static bool plan_alone(Sweep *s, Point *p)
{
    Options *o = s->o;
    Job *j = job_new(o);
    bind_batch(s, p->batch);
    o->step.offload = OFFLOAD_NO;
    o->accumulate_auto = o->step.optim != OPTIM_NONE;
    o->batch = s->batch.name[0];
    bool planned = job_plan_best(&j, &(PassRun){0});
    const Trial *one = j->trial;
    s->others = fmax(s->others, j->others);
    if (planned) {
        Way w = way_of(j);
        if (w.k == 1)
            p->way[ONE] = w;
        else
            p->way[MICRO] = w;
        if (w.k > 1 && one && !one->why)
            p->way[ONE] = (Way){.fits = true,
                                .ns = one->ns,
                                .base_ns = one->base_ns,
                                .k = 1,
                                .redone = one->recomputed,
                                .peak = one->bytes + step_device(&o->step)->reserved};
    }
    o->accumulate_auto = false;
    keep_or_free(s, j, p, p->way[MICRO].fits ? MICRO : ONE);
    return planned || o->diag.status == EXIT_INFEASIBLE;
}

static bool plan_host(Sweep *s, Point *p)
{
    Options *o = s->o;
    Job *j = job_new(o);
    bind_batch(s, p->batch);
    bool planned = job_plan(j, &(PassRun){0});
    if (planned && j->plan->host_bytes)
        p->way[HOST] = way_of(j);
    keep_or_free(s, j, p, HOST);
    return planned || o->diag.status == EXIT_INFEASIBLE;
}

static const Point *find_point(const Sweep *s, int64_t batch)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (s->point[i].batch == batch)
            return &s->point[i];
    return NULL;
}

static bool fits(const Point *p) { return p->way[ONE].fits || p->way[HOST].fits; }

/* Plans a batch unless that was done, and inserts its point in order. */
static bool try_batch(Sweep *s, int64_t batch)
{
    Point p = {.batch = batch};
    if (find_point(s, batch))
        return true;
    TRY(plan_alone(s, &p));
    s->o->diag = (Diag){0};
    TRY(!s->host || plan_host(s, &p));
    s->o->diag = (Diag){0};
    if (!fits(&p) && (!s->fail || batch < s->fail))
        s->fail = batch;
    s->point = arena_grow(&s->o->arena, s->point, s->n, &s->cap, sizeof *s->point);
    uint32_t i = s->n++;
    for (; i > 0 && s->point[i - 1].batch > batch; i--)
        s->point[i] = s->point[i - 1];
    s->point[i] = p;
    return true;
}

/* ---- which batches ------------------------------------------------------------------------------ */

/* The largest batch that fits as a whole; NULL: none does. */
static const Point *largest(const Sweep *s)
{
    const Point *p = NULL;
    for (uint32_t i = 0; i < s->n; i++)
        p = fits(&s->point[i]) ? &s->point[i] : p;
    return p;
}

/* The fastest point among such plans, and its way in *way; NULL: there is none. */
static const Point *fastest(const Sweep *s, Which which, int *way)
{
    const Point *best = NULL;
    for (uint32_t i = 0; i < s->n; i++)
        for (int w = 0; w < WAYS; w++) {
            const Point *p = &s->point[i];
            if (!is(p, w, which) || (best && rate(p, w) <= rate(best, *way)))
                continue;
            best = p;
            *way = w;
        }
    return best;
}

static bool try_powers(Sweep *s)
{
    int64_t from = s->o->batches_from, to = s->o->batches_to;
    for (int64_t b = from; b <= to && !s->fail;) {
        TRY(try_batch(s, b));
        int64_t next = 1;
        while (next <= b)
            next *= 2;
        b = b < to && next > to ? to : next;
    }
    return true;
}

/* Bisects between the largest batch that fits and the least that does not, to within a sixteenth.  These
 * batches are far from the fastest, and a short search tells whether they fit. */
static bool try_largest(Sweep *s)
{
    enum { MOVES = 200000 };
    const Point *p;
    StepOptions *o = &s->given;
    bool limited = o->max_moves || o->time_limit > 0;
    o->max_moves = limited ? o->max_moves : MOVES;
    while (s->fail && (p = largest(s)) && s->fail - p->batch > 1 + p->batch / 16)
        TRY(try_batch(s, p->batch + (s->fail - p->batch) / 2));
    o->max_moves = limited ? o->max_moves : 0;
    return true;
}

static bool try_beside_fastest(Sweep *s)
{
    int way;
    const Point *p = fastest(s, ANY, &way);
    if (!p)
        return true;
    int64_t at = p->batch, below = p > s->point ? p[-1].batch : at,
            above = p < s->point + s->n - 1 ? p[1].batch : at;
    return try_batch(s, below + (at - below) / 2) && try_batch(s, at + (above - at) / 2);
}

/* ---- what is said ------------------------------------------------------------------------------- */

static const char *pays(const Sweep *s, const Point *more, const Point *kept)
{
    char a[16], share[16];
    double part = rate(more, ONE) / rate(kept, ONE) - 1;
    percent_str(part, share);
    return arena_printf(&s->o->arena,
                        "Recomputing for a larger batch %s: batch %" PRId64
                        " makes %s samples/s, %s %s batch %" PRId64 ", the fastest that keeps everything.",
                        part > 0 ? "pays" : "does not pay", more->batch, rate_str(rate(more, ONE), a), share,
                        part > 0 ? "over" : "against", kept->batch);
}

/* Says in a sentence whether recomputing for a larger batch pays, and in another what is faster still. */
static const char *verdict(const Sweep *s)
{
    Arena *a = &s->o->arena;
    int way = ONE;
    char text[16];
    const Point *best = fastest(s, ANY, &way);
    if (!best)
        return "No batch of these fits.";
    const char *told =
        arena_printf(a, "Fastest%s: batch %" PRId64 " %s, %s samples/s.", way == ONE ? "" : " of all",
                     best->batch, way_name[way], rate_str(rate(best, way), text));
    const Point *more = fastest(s, REDONE, &(int){ONE}), *kept = fastest(s, KEPT, &(int){ONE});
    const char *first = more && kept ? pays(s, more, kept)
                        : kept       ? "Nothing has to be recomputed."
                        : more       ? "No batch fits without recomputation."
                                     : "No batch fits as a whole on the device.";
    return more && kept && way == ONE ? first : arena_printf(a, "%s %s", first, told);
}

static void print_rate(FILE *f, const Point *p, int way)
{
    char text[16];
    fprintf(f, " %11s", p->way[way].fits ? rate_str(rate(p, way), text) : "-");
}

static void print_row(FILE *f, const Sweep *s, const Point *p, const Point *best)
{
    char bytes[32], share[16];
    const Way *w = &p->way[ONE];
    fprintf(f, "%c%7" PRId64, p == best ? '*' : ' ', p->batch);
    print_rate(f, p, ONE);
    if (w->fits)
        fprintf(f, " %10s %6u %10s", percent_str(part_over(w->ns, w->base_ns), share), w->redone,
                bytes_str(w->peak, bytes));
    else
        fprintf(f, " %10s %6s %10s", "-", "-", "-");
    print_rate(f, p, MICRO);
    if (p->way[MICRO].fits)
        fprintf(f, " %4" PRId64, p->way[MICRO].k);
    else
        fprintf(f, " %4s", "-");
    if (s->host)
        print_rate(f, p, HOST);
    fputc('\n', f);
}

static void print_points(FILE *f, const Sweep *s)
{
    char bytes[32];
    int way = ONE;
    const Point *best = fastest(s, ANY, &way), *most = largest(s);
    print_line(f, "%s", s->o->path);
    fprintf(f, "budget %s; samples/s as predicted\n\n", bytes_str(s->given.budget, bytes));
    fprintf(f, "%8s %11s %10s %6s %10s %11s %4s%s\n", "batch", "one batch", "overhead", "redone", "peak",
            "micro", "k", s->host ? "        host" : "");
    for (uint32_t i = 0; i < s->n; i++)
        print_row(f, s, &s->point[i], best);
    fprintf(f, "\nmicro: in k micro-batches, where those are faster or one batch does not fit\n");
    if (most)
        fprintf(f, "largest batch that fits: %" PRId64 "%s\n", most->batch,
                s->fail ? "" : ", and larger ones were not tried");
    others_print(f, s->others);
    const char *text = verdict(s);
    print_words(f, text, strlen(text), 0, 79, 0);
    fputc('\n', f);
}

static json_t *way_json(const Point *p, int way)
{
    const Way *w = &p->way[way];
    if (!w->fits)
        return json_null();
    return json_pack("{s:f, s:f, s:f, s:I, s:i, s:i, s:I}", "samples_per_second", rate(p, way),
                     "predicted_ms", ns_ms(w->ns), "overhead", part_over(w->ns, w->base_ns), "peak_bytes",
                     (json_int_t)w->peak, "redone", (int)w->redone, "fetched", (int)w->moved, "accumulate",
                     (json_int_t)w->k);
}

static json_t *points_json(const Sweep *s)
{
    json_t *points = json_array();
    int way = ONE;
    const Point *best = fastest(s, ANY, &way), *most = largest(s);
    for (uint32_t i = 0; i < s->n; i++) {
        json_t *p = json_pack("{s:I}", "batch", (json_int_t)s->point[i].batch);
        for (int w = 0; w < WAYS; w++)
            json_object_set_new(p, way_key[w], way_json(&s->point[i], w));
        json_array_append_new(points, p);
    }
    return json_pack("{s:o, s:I, s:f, s:s, s:o, s:I, s:s?, s:I, s:s}", "model", text_json(s->o->path),
                     "budget_bytes", (json_int_t)s->given.budget, "others", s->others, "symbol",
                     s->batch.name[0], "points", points, "best_batch", (json_int_t)(best ? best->batch : 0),
                     "best_way", best ? way_key[way] : NULL, "largest_batch",
                     (json_int_t)(most ? most->batch : 0), "verdict", verdict(s));
}

static Series draw_way(const Sweep *s, int way, Paint paint, const char *name)
{
    Series line = {{paint, name, true, false}, NEW(&s->o->arena, PlotPoint, s->n + 1), 0, NULL};
    for (uint32_t i = 0; i < s->n; i++)
        if (s->point[i].way[way].fits)
            line.at[line.n++] = (PlotPoint){(double)s->point[i].batch, rate(&s->point[i], way)};
    return line;
}

static Diagram draw(const Sweep *s, const Point *best, int way)
{
    static const Paint paint[WAYS] = {PAINT_KIND + MEM_ACTIVATION, PAINT_AGAIN, PAINT_COPY};
    Arena *a = &s->o->arena;
    char bytes[32];
    Series *line = NEW(a, Series, WAYS + 1);
    uint32_t n = 0;
    double high = 0; /* the largest batch that fits in any way */
    for (int w = 0; w < WAYS; w++) {
        line[n] = draw_way(s, w, paint[w], way_name[w]);
        if (line[n].n == 0)
            continue;
        high = fmax(high, line[n].at[line[n].n - 1].x);
        n++;
    }
    if (s->o->output)
        line[n++] = plot_mark(a, (double)best->batch, rate(best, way));
    const Point *most = largest(s);
    const char *fitting = most ? arena_printf(a, "largest batch that fits: %" PRId64, most->batch)
                               : "no batch fits as a whole";
    return (Diagram){arena_printf(a, "%s: samples/s by batch", s->o->path),
                     arena_printf(a, "budget %s; %s; fastest: %" PRId64, bytes_str(s->given.budget, bytes),
                                  fitting, best->batch),
                     {.low = (double)s->point[0].batch, .high = high, .log2 = true, .label = "batch"},
                     {.high = 1.08 * rate(best, way), .label = "samples/s, as predicted"},
                     line,
                     n};
}

/* Writes the files of --plot and --output for the best point. */
static bool write_files(const Sweep *s, json_t *json)
{
    int way = ONE;
    Options *o = s->o;
    const Point *best = fastest(s, ANY, &way);
    if (!o->plot && !o->output)
        return true;
    if (!best)
        return fail_status(&o->diag, EXIT_INFEASIBLE, "no batch of these fits: there is nothing for %s",
                           o->output ? "--output" : "--plot to draw");
    SweepResult r = {draw(s, best, way), json,
                     arena_printf(&o->arena, "the plan of batch %" PRId64 " %s", best->batch, way_name[way]),
                     true};
    return (!o->plot || picture_write(plot_diagram(&o->arena, &r.diagram), o->plot, &o->diag)) &&
           (!o->output || sweep_output(s->best, &r));
}

bool sweep_batches(Options *o)
{
    TRY(budget_bytes(o, "ckc sweep --batch"));
    Sweep s = {.o = o, .given = o->step};
    s.host = step_device(&o->step)->host_link > 0 && o->step.offload != OFFLOAD_NO;
    bool ok = find_batch(&s) && try_powers(&s) && try_largest(&s) && try_beside_fastest(&s);
    progress_end();
    json_t *json = ok ? points_json(&s) : NULL;
    if (ok && !o->json)
        print_points(stdout, &s);
    ok = ok && write_files(&s, json);
    if (ok && o->json)
        json_print(json, 9);
    json_decref(json);
    job_free(s.best);
    return ok;
}
