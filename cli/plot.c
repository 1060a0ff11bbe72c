/* plot.c -- axes, ticks and legends of diagrams. */
#include "plot.h"
#include <math.h>
#include <string.h>

static const double small = 12, line_height = 19, margin = 14;

/* ---- numbers -------------------------------------------------------------------------------------- */

static const char *const byte_unit[] = {"B", "kB", "MB", "GB", "TB", "PB"};
static const char *const time_unit[] = {"ns", "\xc2\xb5s", "ms", "s"};

/* The power of 1000 of the largest unit in which `most` is at least 1. */
static int power_of(TickUnit unit, double most)
{
    int last = unit == UNIT_BYTES ? 5 : unit == UNIT_NS ? 3 : 0, k = 0;
    for (; k < last && most >= 1000; k++)
        most /= 1000;
    return k;
}

const char *unit_text(Arena *a, TickUnit unit, double v, double most)
{
    if (unit == UNIT_NONE)
        return arena_printf(a, "%.6g", fabs(v) < 1e-9 * most ? 0 : v);
    int k = power_of(unit, most);
    double scaled = v / pow(1000, k);
    const char *name = unit == UNIT_BYTES ? byte_unit[k] : unit == UNIT_NS ? time_unit[k] : "%";
    return arena_printf(a, "%.4g %s", fabs(scaled) < 1e-9 ? 0 : scaled, name);
}

/* The distance between ticks: 1, 2, 2.5 or 5 times a power of ten, of which at most n fit the range. */
static double tick_step(double range, int n)
{
    static const double nice[] = {1, 2, 2.5, 5, 10};
    double power = pow(10, floor(log10(range / n)));
    for (size_t i = 0; i < sizeof nice / sizeof *nice; i++)
        if (range / (nice[i] * power) <= n)
            return nice[i] * power;
    return 10 * power;
}

/* ---- above the plane ---------------------------------------------------------------------------------- */

/* Text cut to a width at its beginning, as the end of a path tells it from others. */
static const char *fit(Arena *a, double size, const char *text, double width)
{
    if (text_width(size, text) <= width)
        return text;
    while (*text && text_width(size, text) + size > width)
        do
            text++;
        while ((*text & 0xc0) == 0x80);
    return arena_printf(a, "\xe2\x80\xa6%s", text);
}

Plot plot_begin(Arena *a, double width, double height, bool headed, const char *title)
{
    const double size = 15;
    Picture *p = NEW(a, Picture, 1);
    *p = (Picture){.a = a, .width = width, .height = height, .title = title};
    picture_rect(p, PAINT_SURFACE, 0, 0, width, height);
    if (!headed)
        return (Plot){.p = p, .left = 2, .right = width - 6, .top = 2, .bottom = height - 6};
    picture_text(p, PAINT_INK, margin, margin + size, ALIGN_LEFT, size,
                 fit(a, size, title, width - 2 * margin));
    return (Plot){
        .p = p, .left = margin, .right = width - margin, .top = margin + size + 6, .bottom = height - margin};
}

void plot_line(Plot *t, const char *text)
{
    double width = t->right - t->left;
    const char *word = text, *end = text;
    while (*end) { /* as many parts as fit, cut at semicolons */
        const char *next = end + strcspn(end, ";");
        next += *next != 0;
        const char *part = arena_strndup(t->p->a, word, (size_t)(next - word));
        if (end > word && text_width(small, part) > width) {
            plot_line(t, arena_strndup(t->p->a, word, (size_t)(end - word)));
            word = end + strspn(end, " ");
        }
        end = next;
    }
    picture_text(t->p, PAINT_SOFT, t->left, t->top + small, ALIGN_LEFT, small,
                 fit(t->p->a, small, word, width));
    t->top += line_height;
}

void plot_legend(Plot *t, const LegendEntry *entry, uint32_t n)
{
    const double mark = 14, gap = 16;
    double x = t->left, y = t->top + line_height / 2;
    for (uint32_t i = 0; i < n; i++) {
        const LegendEntry *e = &entry[i];
        double width = mark + 5 + text_width(small, e->name);
        if (x > t->left && x + width > t->right) {
            x = t->left;
            y += line_height;
        }
        if (e->line)
            picture_line(t->p, e->paint, 2, e->dashed, (PlotPoint[]){{x, y}, {x + mark, y}}, 2);
        else
            picture_rect(t->p, e->paint, x, y - 5, mark, 10);
        picture_text(t->p, PAINT_INK, x + mark + 5, y + 0.36 * small, ALIGN_LEFT, small, e->name);
        x += width + gap;
    }
    t->top = y + line_height / 2 + 4;
}

/* ---- axes ---------------------------------------------------------------------------------------------- */

static double share(const Axis *a, double v)
{
    if (a->log2)
        return log2(v / a->low) / log2(a->high / a->low);
    return (v - a->low) / (a->high - a->low);
}

static double plot_x(const Plot *t, double v) { return t->left + share(&t->x, v) * (t->right - t->left); }
double plot_y(const Plot *t, double v) { return t->bottom - share(&t->y, v) * (t->bottom - t->top); }

typedef struct {
    double at;
    const char *text;
} Tick;
enum { TICKS = 24 };

static int make_ticks(Arena *a, const Axis *x, double pixels, Tick tick[TICKS])
{
    int n = 0, most = (int)fmax(2, fmin(8, pixels));
    double power = pow(1000, power_of(x->unit, x->high)), step;
    if (x->log2) {
        int every = 1 + (int)((log2(x->high / x->low) - 1e-9) / most);
        for (double v = exp2(ceil(log2(x->low) - 1e-9)); v <= x->high * (1 + 1e-9) && n < TICKS;
             v *= exp2(every))
            tick[n++] = (Tick){v, unit_text(a, x->unit, v, x->high)};
        return n;
    }
    step = tick_step((x->high - x->low) / power, most) * power;
    for (double v = ceil(x->low / step - 1e-9) * step; v <= x->high * (1 + 1e-9) && n < TICKS; v += step)
        tick[n++] = (Tick){v, unit_text(a, x->unit, v, x->high)};
    return n;
}

static void draw_x(const Plot *t, const Tick *tick, int n)
{
    Picture *p = t->p;
    picture_line(p, PAINT_SOFT, 1, false, (PlotPoint[]){{t->left, t->bottom}, {t->right, t->bottom}}, 2);
    for (int i = 0; i < n; i++) {
        double x = plot_x(t, tick[i].at), half = text_width(small, tick[i].text) / 2;
        bool end = x + half > p->width - 2;
        picture_line(p, PAINT_SOFT, 1, false, (PlotPoint[]){{x, t->bottom}, {x, t->bottom + 4}}, 2);
        picture_text(p, PAINT_SOFT, end ? p->width - 2 : x, t->bottom + 17, end ? ALIGN_RIGHT : ALIGN_CENTER,
                     small, tick[i].text);
    }
    if (t->x.label)
        picture_text(p, PAINT_SOFT, (t->left + t->right) / 2, t->bottom + 35, ALIGN_CENTER, small,
                     t->x.label);
}

/* An axis whose ends differ, which they do not if all points are one. */
static Axis widened(Axis a)
{
    if (!(a.high > a.low))
        a.high = a.low > 0 ? 2 * a.low : a.low + 1;
    return a;
}

void plot_axes(Plot *t, Axis x, Axis y)
{
    Tick at[TICKS];
    Arena *a = t->p->a;
    t->x = widened(x);
    t->y = widened(y);
    if (y.label) {
        picture_text(t->p, PAINT_SOFT, t->left, t->top + small, ALIGN_LEFT, small, y.label);
        t->top += line_height;
    }
    t->top += 6;
    t->bottom -= x.label ? 32 : 14;
    int n = make_ticks(a, &t->y, (t->bottom - t->top) / 40, at);
    double widest = 0;
    for (int i = 0; i < n; i++)
        widest = fmax(widest, text_width(small, at[i].text));
    t->left += widest + 8;
    for (int i = 0; i < n; i++) {
        double level = plot_y(t, at[i].at);
        picture_line(t->p, PAINT_GRID, 1, false, (PlotPoint[]){{t->left, level}, {t->right, level}}, 2);
        picture_text(t->p, PAINT_SOFT, t->left - 8, level + 0.36 * small, ALIGN_RIGHT, small, at[i].text);
    }
    draw_x(t, at, make_ticks(a, &t->x, (t->right - t->left) / 80, at));
}

static void draw_series(const Plot *t, const Series *s)
{
    enum { DOTS = 64 };
    PlotPoint *at = NEW(t->p->a, PlotPoint, s->n + 1);
    for (uint32_t i = 0; i < s->n; i++)
        at[i] = (PlotPoint){plot_x(t, s->at[i].x), plot_y(t, s->at[i].y)};
    if (s->n > 1)
        picture_line(t->p, s->name.paint, 2, s->name.dashed, at, s->n);
    for (uint32_t i = 0; i < s->n && s->n <= DOTS && !s->name.dashed; i++)
        picture_dot(t->p, s->name.paint, at[i].x, at[i].y, 3.5);
    for (uint32_t i = 0; i < s->n && s->label; i++)
        picture_text(t->p, PAINT_SOFT, at[i].x + 4, at[i].y - 8,
                     at[i].x + 60 > t->right ? ALIGN_RIGHT : ALIGN_LEFT, small, s->label[i]);
}

void plot_series(Plot *t, Axis x, Axis y, const Series *s, uint32_t n)
{
    LegendEntry *names = NEW(t->p->a, LegendEntry, n + 1);
    for (uint32_t i = 0; i < n; i++)
        names[i] = s[i].name;
    plot_legend(t, names, n);
    plot_axes(t, x, y);
    for (uint32_t i = 0; i < n; i++)
        draw_series(t, &s[i]);
}

Series plot_mark(Arena *a, double x, double y)
{
    Series s = {{PAINT_LIMIT, "the plan of this report", true, false}, NEW(a, PlotPoint, 1), 1, NULL};
    s.at[0] = (PlotPoint){x, y};
    return s;
}

Picture *plot_diagram(Arena *a, const Diagram *d)
{
    Plot t = plot_begin(a, PLOT_WIDTH, PLOT_HEIGHT, true, d->title);
    plot_line(&t, d->text);
    plot_series(&t, d->x, d->y, d->line, d->n);
    return t.p;
}
