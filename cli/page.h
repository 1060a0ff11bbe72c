/* page.h -- report.html: what a plan decided and a run found, as one page for a browser.
 *
 * Nothing is fetched from anywhere, pictures are drawn without a script, and every text of a model is
 * escaped. */
#ifndef CKC_PAGE_H
#define CKC_PAGE_H

#include "plot.h"

/* The page; report: what report_json() made of the job. */
void page_write(const Job *j, const json_t *report, FILE *f);

extern const char *const page_css[], *const page_js[]; /* page.css, page.js: parts, NULL behind the last */

/* ---- page_table.c: tables ---------------------------------------------------------------------------- */

typedef struct {
    const char *title;
    const char *key; /* of an object of the rows */
    TickUnit unit;   /* of numbers; UNIT_NONE: counts */
    bool text;
    double scale; /* numbers are multiplied by it first; 0: 1 */
} Column;

/* The objects in `rows`, at most `most` of them; a script may sort them by a column. */
void page_table(FILE *f, const json_t *rows, const Column *column, int ncolumns, size_t most);

/* ---- page.c -------------------------------------------------------------------------------------------- */

/* A picture in an element of that class: "wide", "narrow". */
void page_picture(FILE *f, const Picture *p, const char *class);

/* ---- page_loss.c --------------------------------------------------------------------------------------- */

enum { NARROW_WIDTH = 360 }; /* of pictures for phones */
/* Where there was more than a step. */
void page_loss(const Job *j, FILE *f);

/* ---- page_sweep.c -------------------------------------------------------------------------------------- */

/* Where the plan is one of many. */
void page_sweep(const Job *j, FILE *f);

/* ---- page_lives.c: when values have bytes ------------------------------------------------------------- */

/* The largest results of the forward phase that are read behind it, over the time of the step. */
void page_lives(const Job *j, const MemoryPlot *m, FILE *f);

#endif
