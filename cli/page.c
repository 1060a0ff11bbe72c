/* page.c -- report.html: headline numbers, the memory over the step, tables. */
#include "page.h"
#include "ir/mem.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NARROW_HEIGHT = 380, HEIGHT = 400, ROWS = 40, LABEL = 60 };

static void put_lines(FILE *f, const char *const *line)
{
    for (; *line; line++)
        fputs(*line, f);
}

void page_picture(FILE *f, const Picture *p, const char *class)
{
    fprintf(f, "<div class=\"%s\">\n", class);
    picture_svg(p, f, false);
    fputs("</div>\n", f);
}

/* ---- headline ---------------------------------------------------------------------------------------- */

static void put_tile(FILE *f, const char *what, const char *number, const char *more)
{
    fprintf(f, "<div class=\"tile\"><small>%s</small><b>%s</b><small>%s</small></div>\n", what, number, more);
}

static void put_memory_tiles(const Plan *p, FILE *f, Arena *a)
{
    char b[2][32];
    if (p->budget)
        put_tile(f, "Budget", bytes_str(p->budget, b[0]),
                 p->reserved
                     ? arena_printf(a, "%s of it for driver and libraries", bytes_str(p->reserved, b[1]))
                     : "");
    put_tile(f, "Planned", bytes_str(p->arena_bytes, b[0]),
             p->keep_all_bytes ? arena_printf(a, "%.1f %% of everything stored",
                                              100 * (double)p->arena_bytes / (double)p->keep_all_bytes)
                               : "");
    put_tile(f, "Everything stored", bytes_str(p->keep_all_bytes, b[0]), "without recomputation");
    if (p->host_bytes)
        put_tile(f, "In the host\xe2\x80\x99s memory", bytes_str(p->host_bytes, b[0]), "at most");
}

static void put_time_tiles(const Job *j, const json_t *report, FILE *f, Arena *a)
{
    const Plan *p = j->plan;
    const TrainResult *r = &j->result;
    double most = (double)p->predicted_ns;
    char share[2][16];
    long long again = json_integer_value(json_object_get(report, "recomputed_steps"));
    put_tile(f, "Predicted time of a step", unit_text(a, UNIT_NS, most, most),
             r->steps
                 ? arena_printf(a, "measured %s", unit_text(a, UNIT_NS, 1e9 * r->median, 1e9 * r->median))
                 : "not run");
    put_tile(f, p->host_bytes ? "For recomputation and copies" : "For recomputation",
             percent_str(part_over(p->predicted_ns, p->base_ns), share[0]),
             arena_printf(a, "lower bound %s", percent_str(part_over(p->bound_ns, p->base_ns), share[1])));
    put_tile(f, "Kernels computed again", arena_printf(a, "%lld", again),
             arena_printf(a, "%u steps in all", p->nstep));
    if (r->steps && isfinite(r->loss[0]))
        put_tile(f, r->steps > 1 ? "Last loss" : "Loss", arena_printf(a, "%.6g", r->loss[r->steps - 1]),
                 arena_printf(a, "first %.6g, %lld steps", r->loss[0], (long long)r->steps));
}

static void put_head(const Job *j, const json_t *report, FILE *f, Arena *a)
{
    char precision[64];
    const Plan *p = j->plan;
    static const char *const begin[] = {
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
        "style-src 'unsafe-inline'; script-src 'unsafe-inline'\"/>\n"
        "<meta name=\"color-scheme\" content=\"light dark\"/>\n<title>",
        NULL};
    put_lines(f, begin);
    print_xml(f, j->o->path);
    fputs(": training step</title>\n<style>\n", f);
    picture_style(f);
    put_lines(f, page_css);
    fputs("</style>\n</head>\n<body>\n<header><h1>", f);
    print_xml(f, j->o->path);
    fputs("</h1>\n<p class=\"sub\">", f);
    print_xml(f, arena_printf(a, "A training step: %s, loss %s, on %s in %s", optim_name[j->o->step.optim],
                              loss_used(j), p->device ? p->device : "cpu",
                              precision_of(p->g, precision)));
    if (p->accumulate > 1)
        fprintf(f, ", %lld micro-batches", (long long)p->accumulate);
    fputs("</p></header>\n<div class=\"tiles\">\n", f);
    put_memory_tiles(p, f, a);
    put_time_tiles(j, report, f, a);
    fputs("</div>\n", f);
}

/* ---- the memory over the step -------------------------------------------------------------------------- */

static void put_pane(const MemoryPlot *m, const char *class, FILE *f)
{
    const Picture *p = m->t.p;
    fprintf(f, "<div class=\"pane %s\" data-left=\"%.4f\" data-right=\"%.4f\">\n", class,
            m->t.left / p->width, m->t.right / p->width);
    picture_svg(p, f, false);
    fputs("<div class=\"cursor\"></div></div>\n", f);
}

/* What a column shows: its step (-1: none), the step's kernel, bytes with everything stored (-1: none), and
 * the plan's bytes by kind. */
static json_t *column_json(const MemoryPlot *m, const Paint *paint, uint32_t k, Arena *a)
{
    char label[LABEL] = "";
    uint32_t s = m->own_step[k], other = m->all_step[k];
    json_t *at = json_array();
    const char *module = "", *phase = "";
    if (s != NEVER) {
        step_label(m->p, s, label, sizeof label);
        module = step_module(m->p, s, a);
        phase = paint[s] == PAINT_AGAIN ? "computed again: " : "";
    }
    array_put(at, json_integer(s == NEVER ? -1 : (json_int_t)s));
    array_put(at, text_json(arena_printf(a, "%s%s%s%s", phase, label, *module ? " of " : "", module)));
    array_put(at, json_integer(other == NEVER ? -1 : mem_sum(m->all.held[other])));
    for (int i = 0; i < MEM_KINDS; i++)
        array_put(at, json_integer(s == NEVER ? 0 : m->own.held[s][i]));
    return at;
}

/* Writes the columns as JSON for the script, with < escaped so that no text in it ends the element. */
static void put_curve(const Job *j, const MemoryPlot *m, FILE *f, Arena *a)
{
    json_t *o = json_object(), *kinds = json_array(), *at = json_array();
    const Paint *paint = step_paints(j, a);
    for (int i = 0; i < MEM_KINDS; i++)
        array_put(kinds, json_string(mem_kind_name[i]));
    for (uint32_t k = 0; k < m->columns; k++)
        array_put(at, column_json(m, paint, k, a));
    object_put(o, "kinds", kinds);
    object_put(o, "at", at);
    char *text = dump_json(o, JSON_COMPACT);
    fputs("<script type=\"application/json\" id=\"curve\">", f);
    for (const char *s = text; *s; s++)
        if (*s == '<')
            fputs("\\u003c", f);
        else
            fputc(*s, f);
    fputs("</script>\n", f);
    free(text);
    json_decref(o);
}

static void put_memory(const Job *j, const MemoryPlot *m, FILE *f, Arena *a)
{
    MemoryPlot narrow = plot_memory(j, NARROW_WIDTH, NARROW_HEIGHT, false, a);
    fputs("<section><h2>Memory over the step</h2>\n<figure>\n", f);
    put_pane(m, "wide", f);
    put_pane(&narrow, "narrow", f);
    fputs("<figcaption class=\"readout\"></figcaption>\n</figure></section>\n", f);
    put_curve(j, m, f, a);
}

/* ---- tables -------------------------------------------------------------------------------------------- */

static void put_table(FILE *f, const char *title, const char *text, const json_t *rows, const Column *column,
                      int ncolumns)
{
    fprintf(f, "<section><h2>%s</h2>\n<p>%s</p>\n", title, text);
    page_table(f, rows, column, ncolumns, ROWS);
    fputs("</section>\n", f);
}

static void put_kinds(const Plan *p, FILE *f)
{
    static const Column column[] = {{"kind", "kind", UNIT_NONE, true, 0},
                                    {"everything stored", "stored", UNIT_BYTES, false, 0},
                                    {"planned", "planned", UNIT_BYTES, false, 0}};
    json_t *rows = json_array();
    for (int k = 0; k < MEM_KINDS; k++)
        if (p->mem[k] || p->keep_all_mem[k])
            array_put(rows, json_pack("{s:s, s:I, s:I}", "kind", mem_kind_name[k], "stored",
                                      (json_int_t)p->keep_all_mem[k], "planned", (json_int_t)p->mem[k]));
    put_table(f, "At the peak", "Bytes by kind where each of the two holds the most.", rows, column, 3);
    json_decref(rows);
}

static void put_recomputed(const json_t *report, FILE *f)
{
    static const Column column[] = {{"kernel", "kernel", UNIT_NONE, true, 0},
                                    {"times", "times", UNIT_NONE, false, 0},
                                    {"predicted", "predicted_ms", UNIT_NS, false, 1e6},
                                    {"results", "bytes", UNIT_BYTES, false, 0}};
    const json_t *rows = json_object_get(report, "recomputed");
    if (json_array_size(rows))
        put_table(f, "Computed again",
                  "Kernels that run a second time, so that their results need not be stored.", rows, column,
                  4);
}

static void put_peak(const json_t *report, FILE *f)
{
    static const Column layer[] = {{"module", "layer", UNIT_NONE, true, 0},
                                   {"bytes", "bytes", UNIT_BYTES, false, 0},
                                   {"parameters", "parameters", UNIT_BYTES, false, 0},
                                   {"gradients", "gradients", UNIT_BYTES, false, 0},
                                   {"optimizer", "optimizer", UNIT_BYTES, false, 0},
                                   {"activations", "activations", UNIT_BYTES, false, 0}};
    static const Column value[] = {{"value", "name", UNIT_NONE, true, 0},
                                   {"module", "layer", UNIT_NONE, true, 0},
                                   {"kind", "kind", UNIT_NONE, true, 0},
                                   {"bytes", "bytes", UNIT_BYTES, false, 0}};
    const json_t *peak = json_object_get(report, "peak");
    put_table(f, "Modules at the peak", "What holds the plan\xe2\x80\x99s peak, by the path of its module.",
              json_object_get(peak, "layers"), layer, 6);
    put_table(f, "Values at the peak", "The largest first.", json_object_get(peak, "values"), value, 4);
}

/* ---- time by operator --------------------------------------------------------------------------------- */

static void add_to(json_t *row, const char *key, double v)
{
    object_put(row, key, json_real(json_number_value(json_object_get(row, key)) + v));
}

static int slower_first(const void *a, const void *b)
{
    double x = json_number_value(json_object_get(*(json_t *const *)a, "ns"));
    double y = json_number_value(json_object_get(*(json_t *const *)b, "ns"));
    return (x < y) - (x > y);
}

/* Rows of a table by operator, the one that takes the most time first. */
static json_t *sum_operators(const Job *j)
{
    const Plan *p = j->plan;
    Arena a = {0};
    json_t *by = json_object(), *rows = json_array(), *row;
    const uint32_t *original = plan_originals(p, &a);
    const char *key;
    for (uint32_t s = 0; s < p->nstep; s++) {
        char label[LABEL];
        double times = (double)plan_times(p, s), ns = times * (double)p->step[s].cost_ns;
        step_label(p, s, label, sizeof label);
        row = json_object_get(by, label);
        if (!row)
            object_put(by, label, row = json_pack("{s:s}", "kernel", label));
        add_to(row, "runs", times);
        add_to(row, "ns", ns);
        add_to(row, "again", original[s] != s && !step_copies(p, s) ? ns : 0);
        add_to(row, "share", p->predicted_ns > 0 ? 100 * ns / (double)p->predicted_ns : 0);
        if (j->o->profile && j->result.seconds)
            add_to(row, "measured", times * 1e9 * j->result.seconds[s]);
    }
    size_t n = json_object_size(by), k = 0;
    json_t **sorted = mem_new(n + 1, sizeof *sorted);
    json_object_foreach(by, key, row) sorted[k++] = row;
    qsort(sorted, n, sizeof *sorted, slower_first);
    for (k = 0; k < n; k++)
        array_put(rows, json_incref(sorted[k]));
    free(sorted);
    json_decref(by);
    arena_free(&a);
    return rows;
}

static void put_operators(const Job *j, FILE *f)
{
    static const Column column[] = {
        {"kernel", "kernel", UNIT_NONE, true, 0}, {"runs", "runs", UNIT_NONE, false, 0},
        {"predicted", "ns", UNIT_NS, false, 0},   {"of the step", "share", UNIT_PERCENT, false, 0},
        {"again", "again", UNIT_NS, false, 0},    {"measured", "measured", UNIT_NS, false, 0}};
    json_t *rows = sum_operators(j);
    put_table(f, "Time by operator",
              j->plan->host_bytes ? "Copies run beside kernels, so that shares add up to more than all." : "",
              rows, column, j->o->profile && j->result.seconds ? 6 : 5);
    json_decref(rows);
}

/* ---- the page ------------------------------------------------------------------------------------------ */

static void put_notes(const json_t *report, FILE *f)
{
    const json_t *notes = json_object_get(report, "notes"), *note;
    size_t i;
    if (!json_array_size(notes))
        return;
    fputs("<section><h2>Notes</h2>\n<ul>\n", f);
    json_array_foreach((json_t *)notes, i, note)
    {
        const char *name = json_string_value(json_object_get(note, "name"));
        const char *reason = json_string_value(json_object_get(note, "reason"));
        if (i == ROWS)
            break;
        fputs("<li>", f);
        if (name)
            print_xml(f, name);
        fputs(name ? ": " : "", f);
        print_xml(f, reason ? reason : "");
        fputs("</li>\n", f);
    }
    fputs("</ul></section>\n", f);
}

void page_write(const Job *j, const json_t *report, FILE *f)
{
    Arena a = {0};
    MemoryPlot wide = plot_memory(j, PLOT_WIDTH, HEIGHT, false, &a);
    put_head(j, report, f, &a);
    page_sweep(j, f);
    put_memory(j, &wide, f, &a);
    page_loss(j, f);
    put_kinds(j->plan, f);
    page_lives(j, &wide, f);
    put_recomputed(report, f);
    put_peak(report, f);
    put_operators(j, f);
    put_notes(report, f);
    fputs("<footer>Written by ckc " CKC_VERSION "; all numbers are in report.json, too.</footer>\n<script>\n",
          f);
    put_lines(f, page_js);
    fputs("</script>\n</body>\n</html>\n", f);
    arena_free(&a);
}
