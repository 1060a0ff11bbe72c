/* plot.h -- diagrams: axes with ticks, legends, and the diagrams that ckc draws. */
#ifndef CKC_PLOT_H
#define CKC_PLOT_H

#include "cli.h"
#include "ir/uses.h"
#include "picture.h"

/* ---- plot.c: what diagrams have in common ---------------------------------------------------------- */

/* Units of ticks, with prefixes for powers of 1000. */
typedef enum { UNIT_NONE, UNIT_BYTES, UNIT_NS, UNIT_PERCENT } TickUnit;

typedef struct {
    double low, high; /* numbers at the ends */
    TickUnit unit;
    bool log2;         /* ticks are powers of 2 */
    const char *label; /* NULL: none */
} Axis;

typedef struct {
    Picture *p;
    double left, right, top, bottom; /* pixels of the plane between the axes */
    Axis x, y;
} Plot;

enum { PLOT_WIDTH = 880, PLOT_HEIGHT = 460 }; /* pixels of the pictures of --plot */

/* An empty picture; if `headed`, with its title above the plane, cut to fit. */
Plot plot_begin(Arena *a, double width, double height, bool headed, const char *title);
/* Writes a line of text below the last one, and moves the top of the plane below it. */
void plot_line(Plot *t, const char *text);
typedef struct {
    Paint paint;
    const char *name;
    bool line, dashed; /* line: drawn as a line, not as an area */
} LegendEntry;
void plot_legend(Plot *t, const LegendEntry *entry, uint32_t n);
/* Draws grid, ticks and labels; from then on the plane's edges are fixed. */
void plot_axes(Plot *t, Axis x, Axis y);
double plot_y(const Plot *t, double v);
/* A number with its unit, whose prefix fits numbers from 0 to `most`. */
const char *unit_text(Arena *a, TickUnit unit, double v, double most);

typedef struct {
    LegendEntry name;
    PlotPoint *at; /* in the axes' numbers */
    uint32_t n;
    const char **label; /* text at each point; NULL: none */
} Series;
/* Draws legend, axes and lines, with dots at points that are few enough, into a picture that was begun. */
void plot_series(Plot *t, Axis x, Axis y, const Series *s, uint32_t n);
/* A series of one point that marks a report's plan among the others. */
Series plot_mark(Arena *a, double x, double y);
typedef struct {
    const char *title, *text; /* text: numbers below the title */
    Axis x, y;
    const Series *line;
    uint32_t n;
} Diagram;
/* Draws the whole diagram, PLOT_WIDTH by PLOT_HEIGHT pixels. */
Picture *plot_diagram(Arena *a, const Diagram *d);

/* ---- cmd_sweep.c, sweep_batch.c -------------------------------------------------------------------- */

/* What a sweep found, for the report of one of its plans. */
struct SweepResult {
    Diagram diagram;
    json_t *json;      /* what --json prints */
    const char *shown; /* words that say which plan the report is of */
    bool batches;      /* the sweep is over batches, else over budgets */
};
/* Writes the folder of --output for that plan. */
bool sweep_output(Job *j, const SweepResult *r);

/* ---- plot_memory.c: the bytes of a planned job over the step ---------------------------------------- */

/* The colour of each step, PAINT_FORWARD to PAINT_COPY; allocated in a. */
Paint *step_paints(const Job *j, Arena *a);
typedef struct {
    Plot t;
    const Plan *p;
    MemCurve own, all;                   /* bytes held by the plan; with everything stored */
    bool other;                          /* the two differ */
    uint32_t columns;                    /* number of columns that the plane is cut into */
    const uint32_t *own_step, *all_step; /* per column: the step that is shown; NEVER: none */
    double time;                         /* time at the right end, ns (or kernels) */
    Arena *a;
} MemoryPlot;
/* headed: with a title, and a line of the numbers that a page has elsewhere. */
MemoryPlot plot_memory(const Job *j, double width, double height, bool headed, Arena *a);
bool plot_write(const Job *j); /* --plot */

/* ---- trace.c ---------------------------------------------------------------------------------------- */

bool trace_write(const Job *j); /* --trace */

#endif
