/* page_table.c -- tables of a page: rows of JSON, a column per member. */
#include "page.h"
#include <math.h>

static void put_number(FILE *f, const Column *c, double v)
{
    char bytes[32];
    v *= c->scale > 0 ? c->scale : 1;
    fprintf(f, "<td data-v=\"%.9g\">", v);
    if (c->unit == UNIT_BYTES)
        fputs(bytes_str((int64_t)v, bytes), f);
    else if (c->unit == UNIT_NS && v < 1e6)
        fprintf(f, "%.3g \xc2\xb5s", 1e-3 * v);
    else if (c->unit == UNIT_NS)
        fputs(ms_str((int64_t)v, bytes), f);
    else if (c->unit == UNIT_PERCENT)
        fprintf(f, "%.1f %%", v);
    else
        fprintf(f, v < 1000 && v != floor(v) ? "%.4g" : "%.0f", v);
    fputs("</td>", f);
}

static void put_cell(FILE *f, const Column *c, const json_t *row)
{
    const json_t *v = json_object_get(row, c->key);
    if (c->text) {
        const char *text = json_string_value(v);
        fputs("<td class=\"text\">", f);
        print_xml(f, text && *text ? text : "\xe2\x80\x93");
        fputs("</td>", f);
    } else if (json_is_number(v))
        put_number(f, c, json_number_value(v));
    else
        fputs("<td data-v=\"0\">\xe2\x80\x93</td>", f);
}

void page_table(FILE *f, const json_t *rows, const Column *column, int ncolumns, size_t most)
{
    size_t n = json_array_size(rows), i;
    const json_t *row;
    fputs("<div class=\"scroll\"><table class=\"sorts\">\n<thead><tr>", f);
    for (int c = 0; c < ncolumns; c++)
        fprintf(f, "<th scope=\"col\"%s>%s</th>", column[c].text ? " class=\"text\"" : "", column[c].title);
    fputs("</tr></thead>\n<tbody>\n", f);
    json_array_foreach((json_t *)rows, i, row)
    {
        if (i == most)
            break;
        fputs("<tr>", f);
        for (int c = 0; c < ncolumns; c++)
            put_cell(f, &column[c], row);
        fputs("</tr>\n", f);
    }
    fputs("</tbody></table></div>\n", f);
    if (n > most)
        fprintf(f, "<p class=\"note\">The first %zu of %zu; report.json has all.</p>\n", most, n);
}
