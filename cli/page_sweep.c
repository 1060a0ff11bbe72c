/* page_sweep.c -- what a sweep found, on the page of the plan of one of its points. */
#include "page.h"

static const Column budgets[] = {{"budget", "budget_bytes", UNIT_BYTES, false, 0},
                                 {"peak", "peak_bytes", UNIT_BYTES, false, 0},
                                 {"predicted", "predicted_ms", UNIT_NS, false, 1e6},
                                 {"overhead", "overhead", UNIT_PERCENT, false, 100},
                                 {"lower bound", "lower_bound", UNIT_PERCENT, false, 100},
                                 {"computed again", "redone", UNIT_NONE, false, 0},
                                 {"fetched", "fetched", UNIT_NONE, false, 0}};

static const Column batches[] = {{"batch", "batch", UNIT_NONE, false, 0},
                                 {"one batch, samples/s", "one_batch", UNIT_NONE, false, 0},
                                 {"overhead", "overhead", UNIT_PERCENT, false, 100},
                                 {"computed again", "redone", UNIT_NONE, false, 0},
                                 {"peak", "peak_bytes", UNIT_BYTES, false, 0},
                                 {"micro-batches", "micro_batches", UNIT_NONE, false, 0},
                                 {"their number", "accumulate", UNIT_NONE, false, 0},
                                 {"host\xe2\x80\x99s memory", "offload", UNIT_NONE, false, 0}};

/* Adds the numbers of a way to plan to its batch's row. */
static void take(json_t *row, const json_t *point, const char *way, const char *const *keys)
{
    const json_t *o = json_object_get(point, way);
    json_object_set(row, way, json_object_get(o, "samples_per_second"));
    for (; *keys; keys++)
        json_object_set(row, *keys, json_object_get(o, *keys));
}

static json_t *batch_rows(const json_t *points)
{
    json_t *rows = json_array(), *p;
    size_t i;
    json_array_foreach((json_t *)points, i, p)
    {
        json_t *row = json_pack("{s:O}", "batch", json_object_get(p, "batch"));
        take(row, p, "one_batch", (const char *[]){"overhead", "redone", "peak_bytes", NULL});
        take(row, p, "micro_batches", (const char *[]){"accumulate", NULL});
        take(row, p, "offload", (const char *[]){NULL});
        json_array_append_new(rows, row);
    }
    return rows;
}

/* labels: at points, for which a phone has no room; the table has the same numbers. */
static void put_picture(const Diagram *d, double width, bool labels, const char *class, FILE *f, Arena *a)
{
    enum { HEIGHT = 320 };
    Series *line = NEW(a, Series, d->n);
    for (uint32_t i = 0; i < d->n; i++) {
        line[i] = d->line[i];
        line[i].label = labels ? line[i].label : NULL;
    }
    Plot t = plot_begin(a, width, HEIGHT, false, d->title);
    plot_series(&t, d->x, d->y, line, d->n);
    page_picture(f, t.p, class);
}

void page_sweep(const Job *j, FILE *f)
{
    const SweepResult *s = j->sweep;
    Arena a = {0};
    if (!s)
        return;
    json_t *points = json_object_get(s->json, "points");
    json_t *rows = s->batches ? batch_rows(points) : json_incref(points);
    const char *verdict = json_string_value(json_object_get(s->json, "verdict"));
    fprintf(f, "<section><h2>What %s</h2>\n<p class=\"sub\">",
            s->batches ? "a larger batch brings" : "less memory costs");
    print_xml(f, s->diagram.text);
    fputs("</p>\n<p>", f);
    print_xml(f, arena_printf(&a, "%s%sAll else on this page is %s.", verdict ? verdict : "",
                              verdict ? " " : "", s->shown));
    fputs("</p>\n<figure>\n", f);
    put_picture(&s->diagram, PLOT_WIDTH, true, "wide", f, &a);
    put_picture(&s->diagram, NARROW_WIDTH, false, "narrow", f, &a);
    fputs("</figure>\n", f);
    if (s->batches)
        page_table(f, rows, batches, sizeof batches / sizeof *batches, json_array_size(rows));
    else
        page_table(f, rows, budgets, sizeof budgets / sizeof *budgets, json_array_size(rows));
    fputs("</section>\n", f);
    json_decref(rows);
    arena_free(&a);
}
