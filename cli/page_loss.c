/* page_loss.c -- the loss of a run over its steps. */
#include "page.h"
#include <math.h>

enum { POINTS = 400 }; /* most points of a line; each is the mean of equally many steps */

static Series loss_series(const TrainResult *r, Arena *a)
{
    int64_t per = (r->steps + POINTS - 1) / POINTS;
    Series s = {.name = {PAINT_KIND + MEM_ACTIVATION, "training", true, false},
                .at = NEW(a, PlotPoint, POINTS + 1)};
    for (int64_t i = 0; i < r->steps; i += per) {
        double sum = 0;
        int64_t n = i + per < r->steps ? per : r->steps - i;
        for (int64_t k = i; k < i + n; k++)
            sum += r->loss[k];
        if (isfinite(sum)) /* steps that are skipped with --precision fp16 have no loss */
            s.at[s.n++] = (PlotPoint){(double)(r->first + i) + 0.5 * (double)(n + 1), sum / (double)n};
    }
    return s;
}

static Series validation_series(const Job *j, Arena *a)
{
    Series s = {.name = {PAINT_AGAIN, "validation", true, false}, .at = NEW(a, PlotPoint, j->nval + 1)};
    for (uint32_t i = 0; i < j->nval; i++)
        if (isfinite(j->val_loss[i]))
            s.at[s.n++] = (PlotPoint){(double)j->val_step[i], j->val_loss[i]};
    return s;
}

static void put_picture(const Job *j, const Series *s, uint32_t n, double width, const char *class, FILE *f,
                        Arena *a)
{
    enum { HEIGHT = 260 };
    Axis y = {.low = INFINITY, .high = -INFINITY};
    const TrainResult *r = &j->result;
    for (uint32_t k = 0; k < n; k++)
        for (uint32_t i = 0; i < s[k].n; i++) {
            y.low = fmin(y.low, s[k].at[i].y);
            y.high = fmax(y.high, s[k].at[i].y);
        }
    double room = 0.06 * (y.high - y.low);
    y.low -= room;
    y.high += room;
    Plot t = plot_begin(a, width, HEIGHT, false, "loss by step");
    plot_series(&t, (Axis){.low = (double)r->first, .high = (double)(r->first + r->steps), .label = "step"},
                y, s, n);
    page_picture(f, t.p, class);
}

void page_loss(const Job *j, FILE *f)
{
    Arena a = {0};
    if (j->result.steps < 2)
        return;
    Series s[2] = {loss_series(&j->result, &a), validation_series(j, &a)};
    if (s[0].n > 0) {
        fputs("<section><h2>Loss</h2>\n<figure>\n", f);
        put_picture(j, s, 1 + (s[1].n > 0), PLOT_WIDTH, "wide", f, &a);
        put_picture(j, s, 1 + (s[1].n > 0), NARROW_WIDTH, "narrow", f, &a);
        fputs("</figure></section>\n", f);
    }
    arena_free(&a);
}
