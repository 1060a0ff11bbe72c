/* picture.c -- shapes, and their text as SVG.
 *
 * Points are rounded to tenths and written relative to each other, so that every step of a curve, which is a
 * staircase, takes only a few bytes. */
#include "picture.h"
#include "ir/file.h"
#include "ir/mem.h"
#include "ir/utf8.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

const PaintColor paint_color[PAINTS] = {
    [PAINT_SURFACE] = {"surface", 0xffffff, 0x16181d},
    [PAINT_INK] = {"ink", 0x1b1d22, 0xeceef2},
    [PAINT_SOFT] = {"soft", 0x5d636e, 0x9da4b0},
    [PAINT_GRID] = {"grid", 0xe2e5ea, 0x2c3038},
    [PAINT_LIMIT] = {"limit", 0xc62828, 0xff6b61},
    [PAINT_FORWARD] = {"forward", 0xc3c9d3, 0x4b525e},
    [PAINT_BACKWARD] = {"backward", 0x8b93a1, 0x79818f},
    [PAINT_UPDATE] = {"update", 0x4a505b, 0xb4bac5},
    [PAINT_AGAIN] = {"again", 0xe8590c, 0xff8a3d},
    [PAINT_COPY] = {"copy", 0x0b7285, 0x3bc9db},
    [PAINT_KIND + MEM_PARAM] = {"param", 0x5f4bb6, 0x9182e0},
    [PAINT_KIND + MEM_GRAD] = {"grad", 0xe6a200, 0xd29a10},
    [PAINT_KIND + MEM_OPTIMIZER] = {"optimizer", 0xb9a9ea, 0x5b4c94},
    [PAINT_KIND + MEM_STATE] = {"state", 0x868e96, 0x868e96},
    [PAINT_KIND + MEM_DATA] = {"data", 0x2b8a3e, 0x40a857},
    [PAINT_KIND + MEM_ACTIVATION] = {"activation", 0x2f7fd6, 0x3d88dd},
    [PAINT_KIND + MEM_WORKSPACE] = {"workspace", 0xe06c9f, 0xcf5a8d},
};

/* ---- shapes ------------------------------------------------------------------------------------- */

static Shape *add(Picture *p, ShapeKind kind, Paint paint, const PlotPoint *at, uint32_t n)
{
    p->shape = arena_grow(p->a, p->shape, p->n, &p->cap, sizeof *p->shape);
    Shape *s = &p->shape[p->n++];
    *s = (Shape){
        .kind = kind, .paint = paint, .at = memcpy(NEW(p->a, PlotPoint, n + 1), at, n * sizeof *at), .n = n};
    return s;
}

void picture_area(Picture *p, Paint paint, const PlotPoint *at, uint32_t n)
{
    add(p, SHAPE_AREA, paint, at, n);
}

void picture_rect(Picture *p, Paint paint, double x, double y, double width, double height)
{
    picture_area(p, paint, (PlotPoint[]){{x, y}, {x + width, y}, {x + width, y + height}, {x, y + height}},
                 4);
}

void picture_line(Picture *p, Paint paint, double width, bool dashed, const PlotPoint *at, uint32_t n)
{
    Shape *s = add(p, SHAPE_LINE, paint, at, n);
    s->width = width;
    s->dashed = dashed;
}

void picture_dot(Picture *p, Paint paint, double x, double y, double radius)
{
    enum { CORNERS = 24 };
    PlotPoint at[CORNERS];
    for (int i = 0; i < CORNERS; i++)
        at[i] =
            (PlotPoint){x + radius * cos(2 * M_PI * i / CORNERS), y + radius * sin(2 * M_PI * i / CORNERS)};
    picture_area(p, paint, at, CORNERS);
}

void picture_text(Picture *p, Paint paint, double x, double y, Align align, double size, const char *text)
{
    Shape *s = add(p, SHAPE_TEXT, paint, &(PlotPoint){x, y}, 1);
    s->width = size;
    s->align = align;
    s->text = arena_strndup(p->a, text, strlen(text));
}

double text_width(double size, const char *text)
{
    double n = 0;
    for (; *text; text++)
        n += (*text & 0xc0) != 0x80;
    return 0.6 * size * n;
}

/* ---- SVG ------------------------------------------------------------------------------------------ */

/* U+FFFE and U+FFFF are not characters of XML, and are written as \x escapes. */
void print_xml(FILE *f, const char *text)
{
    char *shown = text_escape(text, NULL);
    for (const char *s = shown; *s; s++) {
        const char *name = *s == '&'    ? "&amp;"
                           : *s == '<'  ? "&lt;"
                           : *s == '>'  ? "&gt;"
                           : *s == '"'  ? "&quot;"
                           : *s == '\'' ? "&#39;"
                                        : NULL;
        bool none = strncmp(s, "\xef\xbf\xbe", 3) == 0 || strncmp(s, "\xef\xbf\xbf", 3) == 0;
        if (name)
            fputs(name, f);
        else if (none)
            fprintf(f, "\\xef\\xbf\\x%02x", (unsigned)(unsigned char)s[2]);
        else
            fputc(*s, f);
        s += none ? 2 : 0;
    }
    free(shown);
}

static long tenths(double v) { return lround(10 * v); }

static void put_tenths(FILE *f, long v)
{
    fprintf(f, "%s%ld", v < 0 ? "-" : "", labs(v) / 10);
    if (v % 10)
        fprintf(f, ".%ld", labs(v) % 10);
}

static void put_number(FILE *f, const char *before, double v)
{
    fputs(before, f);
    put_tenths(f, tenths(v));
}

static void put_path(FILE *f, const Shape *s)
{
    long x = tenths(s->at[0].x), y = tenths(s->at[0].y);
    put_number(f, "M", s->at[0].x);
    put_number(f, " ", s->at[0].y);
    for (uint32_t i = 1; i < s->n; i++) {
        long dx = tenths(s->at[i].x) - x, dy = tenths(s->at[i].y) - y;
        if (dx || dy)
            fputc(dy == 0 ? 'h' : dx == 0 ? 'v' : 'l', f);
        if (dx)
            put_tenths(f, dx);
        if (dx && dy)
            fputc(' ', f);
        if (dy)
            put_tenths(f, dy);
        x += dx;
        y += dy;
    }
}

static void put_shape(FILE *f, const Shape *s)
{
    static const char *const anchor[] = {"start", "middle", "end"};
    const char *paint = paint_color[s->paint].name;
    if (s->kind == SHAPE_TEXT) {
        put_number(f, "<text x=\"", s->at[0].x);
        put_number(f, "\" y=\"", s->at[0].y);
        put_number(f, "\" font-size=\"", s->width);
        fprintf(f, "\" text-anchor=\"%s\" class=\"f-%s\">", anchor[s->align], paint);
        print_xml(f, s->text);
        fputs("</text>\n", f);
        return;
    }
    fputs("<path d=\"", f);
    put_path(f, s);
    if (s->kind == SHAPE_AREA) {
        fprintf(f, "z\" class=\"f-%s\"/>\n", paint);
        return;
    }
    put_number(f, "\" stroke-width=\"", s->width);
    fprintf(f, "\"%s class=\"s-%s\"/>\n", s->dashed ? " stroke-dasharray=\"6 4\"" : "", paint);
}

static void put_colors(FILE *f, bool dark)
{
    for (int i = 0; i < PAINTS; i++)
        fprintf(f, "--%s:#%06x;", paint_color[i].name, dark ? paint_color[i].dark : paint_color[i].light);
}

void picture_style(FILE *f)
{
    fputs(":root{", f);
    put_colors(f, false);
    fputs("}\n@media screen and (prefers-color-scheme:dark){:root{", f);
    put_colors(f, true);
    fputs("}}\n", f);
    for (const PaintColor *c = paint_color; c < paint_color + PAINTS; c++)
        fprintf(f, ".f-%s{fill:var(--%s)}.s-%s{fill:none;stroke:var(--%s)}\n", c->name, c->name, c->name,
                c->name);
    fputs("svg text{font-family:system-ui,-apple-system,\"Segoe UI\",Roboto,\"Helvetica "
          "Neue\",Arial,sans-serif;"
          "paint-order:stroke;stroke:var(--surface);stroke-width:3px;stroke-linejoin:round}\n"
          "svg path{stroke-linejoin:round}\n",
          f);
}

void picture_svg(const Picture *p, FILE *f, bool alone)
{
    if (alone)
        fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n", f);
    fprintf(f, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\"", p->width, p->height);
    if (alone)
        fprintf(f, " width=\"%g\" height=\"%g\"", p->width, p->height);
    fputs(" role=\"img\">\n<title>", f);
    print_xml(f, p->title);
    fputs("</title>\n", f);
    if (alone) {
        fputs("<style>\n", f);
        picture_style(f);
        fputs("</style>\n", f);
    }
    for (uint32_t i = 0; i < p->n; i++)
        put_shape(f, &p->shape[i]);
    fputs("</svg>\n", f);
}

/* ---- files ---------------------------------------------------------------------------------------- */

bool picture_suffix(const char *path) { return has_suffix(path, ".svg") || has_suffix(path, ".png"); }

bool picture_write(const Picture *p, const char *path, Diag *d)
{
    NewFile n;
    TRY(file_create(&n, path, d));
    if (has_suffix(path, ".png"))
        picture_png(p, n.f);
    else
        picture_svg(p, n.f, true);
    return file_commit(&n, d);
}
