/* plot.h -- diagrams: axes with ticks, legends, and those that ckc draws. */
#ifndef CKC_PLOT_H
#define CKC_PLOT_H

#include "cli.h"
#include "ir/uses.h"
#include "picture.h"

/* ---- plot.c: what diagrams have in common ---------------------------------------------------------- */

/* Units of ticks: 2^10 is never one. */
typedef enum { UNIT_NONE, UNIT_BYTES, UNIT_NS, UNIT_PERCENT } TickUnit;

typedef struct {
    double low, high; /* what lies at the ends */
    TickUnit unit;
    bool log2;         /* ticks are powers of 2 */
    const char *label; /* NULL: none */
} Axis;

typedef struct {
    Picture *p;
    double left, right, top, bottom; /* pixels of the plane between the axes */
    Axis x, y;
} Plot;

enum { PLOT_WIDTH = 880, PLOT_HEIGHT = 460 }; /* of --plot */

/* An empty picture, with its title above the plane, cut to fit, if it is `headed`. */
Plot plot_begin(Arena *a, double width, double height, bool headed, const char *title);
/* Below the last one; the plane begins beneath. */
void plot_line(Plot *t, const char *text);
typedef struct {
    Paint paint;
    const char *name;
    bool line, dashed; /* a line, no area */
} LegendEntry;
void plot_legend(Plot *t, const LegendEntry *entry, uint32_t n);
/* Grid, ticks and labels; then the plane is where it stays. */
void plot_axes(Plot *t, Axis x, Axis y);
double plot_y(const Plot *t, double v);
/* A number with its unit, as a reader of all of them from 0 to `most` takes it. */
const char *unit_text(Arena *a, TickUnit unit, double v, double most);

typedef struct {
    LegendEntry name;
    PlotPoint *at; /* in the axes' numbers */
    uint32_t n;
    const char **label; /* of each; NULL: none */
} Series;
/* Lines through dots, where those are few enough, into a picture that was begun. */
void plot_series(Plot *t, Axis x, Axis y, const Series *s, uint32_t n);
/* Where a report's plan is among the others. */
Series plot_mark(Arena *a, double x, double y);
typedef struct {
    const char *title, *text; /* text: numbers below the title */
    Axis x, y;
    const Series *line;
    uint32_t n;
} Diagram;
/* All of it, of PLOT_WIDTH and PLOT_HEIGHT. */
Picture *plot_diagram(Arena *a, const Diagram *d);

/* ---- cmd_sweep.c, sweep_batch.c -------------------------------------------------------------------- */

/* What a sweep found, for the report of one of its plans. */
struct SweepResult {
    Diagram diagram;
    json_t *json;      /* what --json prints */
    const char *shown; /* which plan that is */
    bool batches;      /* else budgets */
};
/* --output: the folder of that plan. */
bool sweep_output(Job *j, const SweepResult *r);

/* ---- plot_memory.c: the bytes of a planned job over the step ---------------------------------------- */

/* Per step: in which colour it is told of, PAINT_FORWARD to PAINT_COPY. */
Paint *step_paints(const Job *j, Arena *a);
typedef struct {
    Plot t;
    const Plan *p;
    MemCurve own, all;                   /* of the plan; of everything stored */
    bool other;                          /* these differ */
    uint32_t columns;                    /* that the plane is cut into */
    const uint32_t *own_step, *all_step; /* per column: the step that is shown; NEVER: none */
    double time;                         /* at the right end */
    Arena *a;
} MemoryPlot;
/* headed: with a title, and the numbers that are on a page already. */
MemoryPlot plot_memory(const Job *j, double width, double height, bool headed, Arena *a);
bool plot_write(const Job *j); /* --plot */

/* ---- trace.c ---------------------------------------------------------------------------------------- */

bool trace_write(const Job *j); /* --trace */

#endif
