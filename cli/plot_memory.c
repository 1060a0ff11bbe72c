/* plot_memory.c -- the bytes of a planned job over its step, by kind, and those with everything stored.
 *
 * A step may have thousands of kernels: the plane is cut into columns, and each shows the kernel in it that
 * holds the most, so that no peak is lost. */
#include "plot.h"
#include <math.h>
#include <string.h>

/* The order in which kinds are stacked, from below. */
static const MemKind stacked[MEM_KINDS] = {MEM_PARAM, MEM_OPTIMIZER,  MEM_STATE,    MEM_DATA,
                                           MEM_GRAD,  MEM_ACTIVATION, MEM_WORKSPACE};

static const double column = 1.5; /* width of a column, pixels */
static const double band = 8;     /* height of the band that shows what is computed, pixels */

typedef MemoryPlot Drawing;

/* Per column: the step in it that holds the most; NEVER: the curve has ended. */
static uint32_t *column_steps(const Drawing *d, const MemCurve *c)
{
    uint32_t *at = NEW(d->a, uint32_t, d->columns);
    memset(at, 0xff, d->columns * sizeof *at);
    for (uint32_t s = 0; s < c->n; s++) {
        double scale = d->columns / d->time;
        uint32_t from = (uint32_t)((double)c->ns[s] * scale),
                 to = (uint32_t)ceil((double)c->ns[s + 1] * scale);
        from = from < d->columns ? from : d->columns - 1;
        to = to > from ? to : from + 1;
        for (uint32_t k = from; k < to && k < d->columns; k++)
            if (at[k] == NEVER || mem_sum(c->held[s]) > mem_sum(c->held[at[k]]))
                at[k] = s;
    }
    return at;
}

/* Writes the levels of columns as points of stairs, up to the first level below 0; returns their number. */
static uint32_t stairs(const Drawing *d, const double *level, PlotPoint *out)
{
    uint32_t n = 0;
    double width = (d->t.right - d->t.left) / d->columns, before = 0;
    for (uint32_t k = 0; k < d->columns && level[k] >= 0; k++) {
        double x = d->t.left + k * width, y = plot_y(&d->t, level[k]);
        bool last = k + 1 == d->columns || level[k + 1] < 0;
        if (k == 0 || level[k] != level[k - 1]) {
            if (k)
                out[n++] = (PlotPoint){x, before};
            out[n++] = (PlotPoint){x, y};
        }
        before = y;
        if (last)
            out[n++] = (PlotPoint){x + width, y};
    }
    return n;
}

/* Draws the stack from the top: each area reaches from its kind's level down to 0, over the ones above it. */
static void draw_stack(Drawing *d)
{
    const uint32_t *at = d->own_step = column_steps(d, &d->own);
    double *level = NEW(d->a, double, d->columns);
    PlotPoint *out = NEW(d->a, PlotPoint, 2 * d->columns + 4);
    for (int top = MEM_KINDS; top-- > 0;) {
        for (uint32_t k = 0; k < d->columns; k++) {
            level[k] = at[k] == NEVER ? -1 : 0;
            for (int i = 0; i <= top && at[k] != NEVER; i++)
                level[k] += (double)d->own.held[at[k]][stacked[i]];
        }
        uint32_t n = stairs(d, level, out);
        if (n == 0)
            continue;
        out[n] = (PlotPoint){out[n - 1].x, d->t.bottom};
        out[n + 1] = (PlotPoint){out[0].x, d->t.bottom};
        picture_area(d->t.p, PAINT_KIND + stacked[top], out, n + 2);
    }
}

static void draw_all(Drawing *d)
{
    const uint32_t *at = d->all_step = column_steps(d, &d->all);
    double *level = NEW(d->a, double, d->columns);
    PlotPoint *out = NEW(d->a, PlotPoint, 2 * d->columns + 4);
    for (uint32_t k = 0; k < d->columns; k++)
        level[k] = at[k] == NEVER ? -1 : (double)mem_sum(d->all.held[at[k]]);
    if (d->other)
        picture_line(d->t.p, PAINT_INK, 1.5, false, out, stairs(d, level, out));
}

static void draw_budget(Drawing *d, int64_t budget)
{
    double y = plot_y(&d->t, (double)budget);
    picture_line(d->t.p, PAINT_LIMIT, 1.5, true, (PlotPoint[]){{d->t.left, y}, {d->t.right, y}}, 2);
}

/* ---- what is computed when ------------------------------------------------------------------------- */

Paint *step_paints(const Job *j, Arena *a)
{
    const Plan *p = j->plan;
    const PlanUses u = plan_uses(p, job_results(j), a);
    const uint32_t *original = plan_originals(p, a);
    static const Paint of[] = {[PHASE_NONE] = PAINT_FORWARD,
                               [PHASE_FORWARD] = PAINT_FORWARD,
                               [PHASE_BACKWARD] = PAINT_BACKWARD,
                               [PHASE_UPDATE] = PAINT_UPDATE};
    Paint *paint = NEW(a, Paint, p->nstep + 1);
    for (uint32_t s = 0; s < p->nstep; s++)
        paint[s] = step_copies(p, s) ? PAINT_COPY : original[s] != s ? PAINT_AGAIN : of[step_phase(p, &u, s)];
    return paint;
}

typedef double Shares[PAINTS];

/* Per column, the parts of its time that steps of each of these colours take.  Recomputation counts ten
 * times, so that short ones are seen, too: they are what the picture is about. */
static Shares *column_shares(const Drawing *d, const Paint *paint, Paint from, Paint to)
{
    Shares *share = arena_alloc(d->a, d->columns + 1, sizeof *share);
    const StepTime *time = plan_clock(d->p, d->a);
    double scale = d->columns / d->time;
    for (uint32_t s = 0; s < d->own.n; s++) {
        bool copy = paint[s] == PAINT_COPY;
        double at = scale * (double)(copy ? time[s].begin : d->own.ns[s]);
        double end = scale * (double)(copy ? time[s].end : d->own.ns[s + 1]);
        for (uint32_t k = (uint32_t)at; k < end && k < d->columns && from <= paint[s] && paint[s] <= to; k++)
            share[k][paint[s]] += (paint[s] == PAINT_AGAIN ? 10 : 1) * (fmin(end, k + 1) - fmax(at, k));
    }
    return share;
}

/* Draws a band in which each column has the colour that takes most of its time. */
static void draw_band(Drawing *d, const Paint *paint, Paint from, Paint to, double y, double height)
{
    Shares *share = column_shares(d, paint, from, to);
    double width = (d->t.right - d->t.left) / d->columns;
    for (uint32_t k = 0, first = 0; k < d->columns; k++) {
        Paint most[2] = {PAINT_SURFACE, PAINT_SURFACE}; /* of this column, and the next */
        for (uint32_t i = 0; i < 2 && k + i < d->columns; i++)
            for (Paint q = from; q <= to; q++)
                if (share[k + i][q] > share[k + i][most[i]])
                    most[i] = q;
        if (most[0] == most[1] && k + 1 < d->columns)
            continue;
        if (most[0] != PAINT_SURFACE)
            picture_rect(d->t.p, most[0], d->t.left + first * width, y, (k + 1 - first) * width, height);
        first = k + 1;
    }
}

/* ---- around it ------------------------------------------------------------------------------------- */

static void write_numbers(Drawing *d)
{
    const Plan *p = d->p;
    char b[4][32];
    const char *budget = "", *time = "", *micro = "";
    if (p->budget && p->reserved)
        budget = arena_printf(d->a, "; budget %s with %s for driver and libraries",
                              bytes_str(p->budget, b[0]), bytes_str(p->reserved, b[1]));
    else if (p->budget)
        budget = arena_printf(d->a, "; budget %s", bytes_str(p->budget, b[0]));
    if (p->predicted_ns && p->base_ns)
        time = arena_printf(d->a, "; predicted %s, %+.2f %% for recomputation%s",
                            unit_text(d->a, UNIT_NS, (double)p->predicted_ns, (double)p->predicted_ns),
                            100 * ((double)p->predicted_ns / (double)p->base_ns - 1),
                            p->host_bytes ? " and copies" : "");
    if (p->accumulate > 1)
        micro = arena_printf(d->a, "; shown: one of %lld micro-batches, and the update",
                             (long long)p->accumulate);
    plot_line(&d->t,
              arena_printf(d->a, "planned %s; everything stored %s%s%s%s", bytes_str(p->arena_bytes, b[2]),
                           bytes_str(p->keep_all_bytes, b[3]), budget, time, micro));
}

/* Names the line of the budget, which is for the arena, without what driver and libraries take. */
static LegendEntry name_budget(Drawing *d)
{
    char bytes[2][32];
    const char *text = arena_printf(d->a, "budget %s", bytes_str(d->p->budget, bytes[0]));
    if (d->p->reserved)
        text = arena_printf(d->a, "%s less %s", text, bytes_str(d->p->reserved, bytes[1]));
    return (LegendEntry){PAINT_LIMIT, text, true, true};
}

/* Writes the legends, without kinds of memory that are too little to be seen. */
static void write_legend(Drawing *d, const Paint *paint, bool budget)
{
    LegendEntry e[MEM_KINDS + 8];
    uint32_t n = 0;
    bool has[PAINTS] = {0};
    int64_t peak = mem_sum(d->own.held[curve_peak(&d->own)]);
    for (uint32_t s = 0; s < d->own.n; s++) {
        has[paint[s]] = true;
        for (int k = 0; k < MEM_KINDS; k++)
            has[PAINT_KIND + k] |= d->own.held[s][k] > peak / 300;
    }
    for (int i = 0; i < MEM_KINDS; i++)
        if (has[PAINT_KIND + stacked[i]])
            e[n++] = (LegendEntry){PAINT_KIND + stacked[i], mem_kind_name[stacked[i]], false, false};
    if (d->other)
        e[n++] = (LegendEntry){PAINT_INK, "everything stored", true, false};
    if (budget)
        e[n++] = name_budget(d);
    plot_legend(&d->t, e, n);
    static const LegendEntry phases[] = {{PAINT_FORWARD, "forward", false, false},
                                         {PAINT_BACKWARD, "backward", false, false},
                                         {PAINT_AGAIN, "computed again", false, false},
                                         {PAINT_UPDATE, "update", false, false},
                                         {PAINT_COPY, "copies to and from the host", false, false}};
    n = 0;
    for (size_t i = 0; i < sizeof phases / sizeof *phases; i++)
        if (has[phases[i].paint])
            e[n++] = phases[i];
    plot_legend(&d->t, e, n);
}

/* Replaces the times of a curve that has none by the numbers of its kernels. */
static void count_steps(MemCurve *c, Arena *a)
{
    c->ns = NEW(a, int64_t, c->n + 1);
    for (uint32_t s = 0; s <= c->n; s++)
        c->ns[s] = s;
}

static Axis time_axis(Drawing *d)
{
    bool timed = d->own.ns[d->own.n] > 0 && d->all.ns && d->all.ns[d->all.n] > 0;
    if (!timed) {
        count_steps(&d->own, d->a);
        count_steps(&d->all, d->a);
    }
    d->time = (double)d->own.ns[d->own.n];
    d->time = fmax(d->time, (double)d->all.ns[d->all.n]);
    return (Axis){
        .high = d->time, .unit = timed ? UNIT_NS : UNIT_NONE, .label = timed ? "predicted time" : "kernels"};
}

MemoryPlot plot_memory(const Job *j, double width, double height, bool headed, Arena *a)
{
    const Plan *p = j->plan;
    Drawing d = {.p = p, .a = a, .own = plan_curve(p, &j->info, a), .all = j->info.keep_all};
    if (d.all.n == 0)
        d.all = d.own;
    int64_t most = mem_sum(d.own.held[curve_peak(&d.own)]), all = mem_sum(d.all.held[curve_peak(&d.all)]);
    int64_t budget = p->budget > 0 ? p->budget - p->reserved : 0;
    const Paint *paint = step_paints(j, a);
    d.other = p->predicted_ns != p->base_ns || most != all;
    most = all > most ? all : most;
    d.t =
        plot_begin(a, width, height, headed, arena_printf(a, "%s: memory over a training step", j->o->path));
    if (headed)
        write_numbers(&d);
    bool near = budget > 0 && budget <= most + most / 2; /* a far budget would flatten the curves */
    write_legend(&d, paint, near);
    d.t.top += 2 * band;
    most = budget > most && near ? budget : most;
    Axis time = time_axis(&d);
    plot_axes(&d.t, time, (Axis){.high = 1.06 * (double)most, .unit = UNIT_BYTES});
    d.columns = (uint32_t)((d.t.right - d.t.left) / column);
    draw_stack(&d);
    draw_band(&d, paint, PAINT_FORWARD, PAINT_AGAIN, d.t.top - 2 * band, band);
    draw_band(&d, paint, PAINT_COPY, PAINT_COPY, d.t.top - band + 1, band / 2);
    draw_all(&d);
    if (near)
        draw_budget(&d, budget);
    return d;
}

bool plot_write(const Job *j)
{
    Arena a = {0};
    bool ok = !j->o->plot ||
              picture_write(plot_memory(j, PLOT_WIDTH, PLOT_HEIGHT, true, &a).t.p, j->o->plot, &j->o->diag);
    arena_free(&a);
    return ok;
}
