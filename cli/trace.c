/* trace.c -- --trace FILE.json: a step in the Trace Event Format, which Perfetto and chrome://tracing show.
 *
 * Process 1 is the step as predicted: a thread per lane with its kernels or copies, and the bytes that are
 * held, by kind.  Process 2 has the times that --profile measured, one kernel after the other.  Events are
 * written in the order of their times. */
#include "ir/mem.h"
#include "plot.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PREDICTED = 1, MEASURED = 2, LABEL = 80 };

typedef struct {
    int64_t ns, order; /* time; order among events of one time */
    json_t *json;      /* owned by the event */
} Event;

typedef struct {
    const Job *j;
    const Plan *p;
    const Paint *paint;
    Event *event;
    uint32_t n, cap;
    Arena a;
} Trace;

static void add(Trace *t, int64_t ns, json_t *json)
{
    t->event = arena_grow(&t->a, t->event, t->n, &t->cap, sizeof *t->event);
    t->event[t->n] = (Event){ns, t->n, json};
    t->n++;
}

/* Nanoseconds as microseconds.  Perfetto cuts times to whole nanoseconds, and drops an event that begins
 * before the last one of its thread has ended, so 1e-6 is added where a nanosecond would be lost (1.001). */
static double us(int64_t ns)
{
    double t = (double)ns / 1000;
    return (int64_t)(1000 * t) == ns ? t : t + 1e-6;
}

/* Adds the name of a process or a thread, in front of all other events. */
static void add_name(Trace *t, const char *what, int process, int thread, const char *name)
{
    add(t, -1,
        json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "ph", "M", "name", what, "pid", process, "tid", thread,
                  "args", "name", name));
}

static const char *category(Paint paint)
{
    return paint == PAINT_COPY       ? "copy"
           : paint == PAINT_AGAIN    ? "computed again"
           : paint == PAINT_BACKWARD ? phase_name[PHASE_BACKWARD]
           : paint == PAINT_UPDATE   ? phase_name[PHASE_UPDATE]
                                     : phase_name[PHASE_FORWARD];
}

static void add_step(Trace *t, int process, int thread, uint32_t s, int64_t begin, int64_t ns)
{
    char label[LABEL];
    const Graph *g = t->p->g;
    const char *module = step_module(t->p, s, &t->a);
    Val result = g->nodes[g->order[t->p->step[s].first].i].out[0];
    step_label(t->p, s, label, LABEL);
    json_t *args = json_pack("{s:i, s:o, s:o, s:f, s:I}", "step", (int)s, "result",
                             text_json(g->vals[result.i].name), "module", text_json(module), "predicted_us",
                             us(t->p->step[s].cost_ns), "times", (json_int_t)plan_times(t->p, s));
    add(t, begin,
        json_pack("{s:s, s:o, s:s, s:i, s:i, s:f, s:f, s:o}", "ph", "X", "name",
                  text_json(arena_printf(&t->a, "%s%s%s", label, *module ? " " : "", module)), "cat",
                  category(t->paint[s]), "pid", process, "tid", thread, "ts", us(begin), "dur", us(ns),
                  "args", args));
}

/* ---- as predicted --------------------------------------------------------------------------------- */

static void add_counter(Trace *t, int64_t ns, const char *name, json_t *args)
{
    add(t, ns,
        json_pack("{s:s, s:s, s:i, s:f, s:o}", "ph", "C", "name", name, "pid", PREDICTED, "ts", us(ns),
                  "args", args));
}

static json_t *kinds(const int64_t held[MEM_KINDS])
{
    json_t *o = json_object();
    for (int k = 0; k < MEM_KINDS; k++)
        json_object_set_new(o, mem_kind_name[k], json_integer(held[k]));
    return o;
}

/* Adds the bytes that are held, at the times when they change. */
static void add_memory(Trace *t)
{
    MemCurve c = plan_curve(t->p, &t->j->info, &t->a);
    for (uint32_t s = 0; s < c.n; s++) {
        if (s == 0 || memcmp(c.held[s], c.held[s - 1], sizeof *c.held) != 0)
            add_counter(t, c.ns[s], "memory", kinds(c.held[s]));
        if (t->p->host_bytes && (s == 0 || c.host[s] != c.host[s - 1]))
            add_counter(t, c.ns[s], "host memory", json_pack("{s:I}", "bytes", (json_int_t)c.host[s]));
    }
}

static void add_predicted(Trace *t)
{
    static const char *const lane[LANES] = {"kernels", "copies to the host", "copies from the host"};
    const StepTime *time = plan_clock(t->p, &t->a);
    add_name(t, "process_name", PREDICTED, 0,
             t->p->accumulate > 1 ? "predicted: one micro-batch, and the update" : "predicted");
    for (int l = 0; l < (t->p->host_bytes ? LANES : 1); l++)
        add_name(t, "thread_name", PREDICTED, 1 + l, lane[l]);
    for (uint32_t s = 0; s < t->p->nstep; s++)
        add_step(t, PREDICTED, 1 + (int)time[s].lane, s, time[s].begin, time[s].end - time[s].begin);
    add_memory(t);
}

/* ---- as measured ------------------------------------------------------------------------------------- */

static void add_measured(Trace *t)
{
    const double *seconds = t->j->result.seconds;
    int64_t now = 0;
    if (!t->j->o->profile || !seconds)
        return;
    add_name(t, "process_name", MEASURED, 0, "measured");
    add_name(t, "thread_name", MEASURED, 1, "kernels");
    for (uint32_t s = 0; s < t->p->nstep; s++) {
        int64_t ns = (int64_t)fmax(0, 1e9 * seconds[s]);
        add_step(t, MEASURED, 1, s, now, ns);
        now += ns;
    }
}

/* ---- the file ------------------------------------------------------------------------------------------ */

static int earlier_first(const void *a, const void *b)
{
    const Event *x = a, *y = b;
    if (x->ns != y->ns)
        return x->ns < y->ns ? -1 : 1;
    return (x->order > y->order) - (x->order < y->order);
}

static void write_events(Trace *t, FILE *f)
{
    json_t *other =
        json_pack("{s:s, s:o, s:I, s:I, s:I}", "version", CKC_VERSION, "model", text_json(t->j->o->path),
                  "arena_bytes", (json_int_t)t->p->arena_bytes, "predicted_ns",
                  (json_int_t)t->p->predicted_ns, "micro_batches", (json_int_t)plan_times(t->p, 0));
    qsort(t->event, t->n, sizeof *t->event, earlier_first);
    fputs("{\"otherData\":", f);
    json_dumpf(other, f, JSON_COMPACT);
    fputs(",\"traceEvents\":[", f);
    for (uint32_t i = 0; i < t->n; i++) {
        fputs(i ? ",\n" : "\n", f);
        json_dumpf(t->event[i].json, f, JSON_COMPACT | JSON_REAL_PRECISION(15));
        json_decref(t->event[i].json);
    }
    fputs("\n]}\n", f);
    json_decref(other);
}

bool trace_write(const Job *j)
{
    NewFile n;
    Trace t = {.j = j, .p = j->plan};
    if (!j->o->trace)
        return true;
    TRY(file_create(&n, j->o->trace, &j->o->diag));
    t.paint = step_paints(j, &t.a);
    add_predicted(&t);
    add_measured(&t);
    write_events(&t, n.f);
    arena_free(&t.a);
    return file_commit(&n, &j->o->diag);
}
