/* page.h -- report.html: the decisions of a plan and the results of a run as one page for a browser.
 *
 * Nothing is fetched from anywhere, pictures are drawn without a script, and every text of a model is
 * escaped. */
#ifndef CKC_PAGE_H
#define CKC_PAGE_H

#include "plot.h"

/* Writes the page; report: what report_json() made of the job. */
void page_write(const Job *j, const json_t *report, FILE *f);

extern const char *const page_css[], *const page_js[]; /* lines of page.css and page.js, NULL at the end */

/* ---- page_table.c: tables ---------------------------------------------------------------------------- */

typedef struct {
    const char *title;
    const char *key; /* of the member of each row's object */
    TickUnit unit;   /* of numbers; UNIT_NONE: counts */
    bool text;       /* members are strings */
    double scale;    /* numbers are multiplied by it first; 0: 1 */
} Column;

/* Writes a table with a row for each object in `rows`, at most `most`; a script may sort it by a column. */
void page_table(FILE *f, const json_t *rows, const Column *column, int ncolumns, size_t most);

/* ---- page.c -------------------------------------------------------------------------------------------- */

/* Writes a picture in an element of that class: "wide", "narrow". */
void page_picture(FILE *f, const Picture *p, const char *class);

/* ---- page_loss.c --------------------------------------------------------------------------------------- */

enum { NARROW_WIDTH = 360 }; /* width of pictures for phones */
/* Writes the losses if there was more than one step. */
void page_loss(const Job *j, FILE *f);

/* ---- page_sweep.c -------------------------------------------------------------------------------------- */

/* Writes what a sweep found, if the plan is one of a sweep's. */
void page_sweep(const Job *j, FILE *f);

/* ---- page_lives.c: when values have bytes ------------------------------------------------------------- */

/* Writes when the largest results of the forward phase that are read after it are in memory. */
void page_lives(const Job *j, const MemoryPlot *m, FILE *f);

#endif
