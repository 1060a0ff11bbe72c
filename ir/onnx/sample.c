/* sample.c -- interpolation at computed positions.
 *
 * A value is a weighted sum over the neighbouring pixels: 1, 2 or 4 per dimension.  Per
 * neighbour and dimension there are an index and a weight; the index of a pixel in memory
 * is their sum by strides, its weight their product, for all channels: they are made the rows that gather_nd
 * reads. */
#include "sample.h"

typedef struct {
    Val index;  /* i64[N,P] inside the extent */
    Val weight; /* float[N,P], 0 outside if that is asked for; {0}: 1 */
} Neighbour;

/* Reflect at lo and lo + range: a triangle wave. */
static Val reflect(Graph *g, Val x, double lo, double range)
{
    if (range <= 0)
        return mul_scalar(g, x, 0);
    Val t = add_scalar(g, x, -lo);
    Val turns = one(g, OP_floor, mul_scalar(g, t, 0.5 / range));
    t = build2(g, OP_sub, t, mul_scalar(g, turns, 2 * range));
    Val back = add_scalar(g, one(g, OP_neg, t), 2 * range);
    return add_scalar(g, build2(g, OP_min, t, back), lo);
}

static Val reflected(Graph *g, const Sampler *s, int d, Val x)
{
    double last = (double)s->extent[d] - 1;
    return s->corners ? reflect(g, x, 0, last) : reflect(g, x, -0.5, last + 1);
}

static Val clipped(Graph *g, const Sampler *s, int d, Val x)
{
    return with_consts(g, OP_clip, x, 0, (double)s->extent[d] - 1);
}

/* The pixel at a whole coordinate x, with what lies outside. */
static Neighbour pixel(Graph *g, const Sampler *s, int d, Val x, Val weight)
{
    Neighbour r = {.weight = weight};
    if (s->outside == OUTSIDE_REFLECTED)
        x = one(g, OP_trunc, reflected(g, s, d, x));
    Val inside = clipped(g, s, d, x);
    if (s->outside == OUTSIDE_ZERO) {
        Val hit = build2(g, OP_equal, inside, x);
        r.weight = weight.i /* NaN at infinity */
                       ? build3(g, OP_where, hit, weight, scalar_like(g, weight, 0))
                       : build_cast(g, hit, val_type(g, x)->dt);
    }
    r.index = build_cast(g, inside, DT_I64);
    return r;
}

/* Cubic convolution (a = -0.75) of a pixel at distance t: near for t in [0,1], far for
 * [1,2]. */
static Val cubic(Graph *g, Val t, bool near)
{
    static const double c[2][4] = {{-0.75 * -4, -0.75 * 8, -0.75 * -5, -0.75}, {1, 0, -2.25, 1.25}};
    const double *k = c[near];
    Val y = add_scalar(g, mul_scalar(g, t, k[3]), k[2]);
    y = add_scalar(g, build2(g, OP_mul, y, t), k[1]);
    return add_scalar(g, build2(g, OP_mul, y, t), k[0]);
}

/* The neighbours along dimension d of coordinate x. */
static int neighbours(Graph *g, const Sampler *s, int d, Val x, Neighbour *out)
{
    if (s->mode == SAMPLE_NEAREST)
        x = one(g, OP_round, x);
    if (s->outside == OUTSIDE_BORDER && s->mode != SAMPLE_CUBIC) /* whose weights are those of x itself */
        x = clipped(g, s, d, x);
    if (s->outside == OUTSIDE_REFLECTED)
        x = reflected(g, s, d, x);
    if (s->mode == SAMPLE_NEAREST) {
        out[0] = pixel(g, s, d, x, (Val){0});
        return 1;
    }
    Val floor = one(g, OP_floor, x), t = build2(g, OP_sub, x, floor);
    Val rest = add_scalar(g, one(g, OP_neg, t), 1);
    Val next = add_scalar(g, floor, 1);
    if (s->mode == SAMPLE_LINEAR) {
        out[0] = pixel(g, s, d, floor, rest);
        out[1] = pixel(g, s, d, next, t);
        return 2;
    }
    out[0] = pixel(g, s, d, add_scalar(g, floor, -1), cubic(g, add_scalar(g, t, 1), false));
    out[1] = pixel(g, s, d, floor, cubic(g, t, true));
    out[2] = pixel(g, s, d, next, cubic(g, rest, true));
    out[3] = pixel(g, s, d, add_scalar(g, floor, 2), cubic(g, add_scalar(g, rest, 1), false));
    return 4;
}

static Val both(Graph *g, Op op, Val a, Val b)
{
    return a.i && b.i ? build2(g, op, a, b) : a.i ? a : b;
}

/* [N,C,P] as [N,P,C], or back. */
static Val swapped(Graph *g, Val x) { return build_transpose(g, x, (const int[]){0, 2, 1}); }

Val sample(Graph *g, const Sampler *s, Val x, const Val *at)
{
    Neighbour near[SAMPLE_DIMS][4];
    int count = 1, per = 1;
    for (int d = 0; d < s->n; d++) {
        if (!at[d].i)
            return at[d];
        per = neighbours(g, s, d, at[d], near[d]);
        count *= per;
    }
    const Type t = *val_type(g, x), p = *val_type(g, at[0]);
    int64_t batch = t.dim[0], channels = t.dim[1], points = p.dim[1];
    int64_t pixels = 1;
    for (int d = 0; d < s->n; d++)
        pixels *= s->extent[d];
    x = swapped(g, build_reshape(g, x, 3, (int64_t[]){batch, channels, pixels}));
    const int64_t each[] = {batch, points, 1};
    Val sum = {0};
    for (int c = 0; c < count; c++) {
        Val index = {0}, weight = {0};
        for (int d = 0, rest = c; d < s->n; d++, rest /= per) {
            const Neighbour *nb = &near[d][rest % per];
            index = index.i ? mul_scalar(g, index, (double)s->extent[d]) : index;
            index = both(g, OP_add, index, nb->index);
            weight = both(g, OP_mul, weight, nb->weight);
        }
        index = build_reshape(g, index, 3, each);
        Val v = build(g, OP_gather_nd, NULL, 2, (Val[]){x, index}, &(AxisAttrs){1});
        if (weight.i)
            v = build2(g, OP_mul, v, build_reshape(g, weight, 3, each));
        sum = both(g, s->largest ? OP_max : OP_add, sum, v);
    }
    return swapped(g, sum);
}
