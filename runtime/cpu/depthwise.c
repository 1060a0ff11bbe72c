/* depthwise.c -- gradients of the weights of depthwise convolutions; the convolutions themselves and
 * gradients of data are in depthwise_planes.c.
 *
 * The gradient of the weight of channel c and tap t is the sum over images and positions p of
 * result's gradient[c][p] * image[c][p * stride + t * dilation - pad].
 *
 * A band of rows of a channel lies in scratch.  There each tap is an offset, so that a few taps are summed at
 * once in LANES sums each, over the band's positions; the sums of bands are added up, and at the end the
 * lanes.  If images are channels-last, the lanes are channels: a position has `unit` of them. */
#include "depthwise.h"
#include "element.h"
#include "pack.h"

#include <omp.h>
#include <string.h>

enum { LANES = 16, TAPS = 5 /* at once */, BAND = 16 /* rows */, BAND_LAST = 8 };

/* Adds up TAPS taps over a band; compiled as panels are (panel.c). */
#define ADD_TAPS(name, isa, width)                                                                           \
    typedef float name##_v __attribute__((vector_size(4 * width), aligned(4)));                              \
    __attribute__((no_sanitize("address", "undefined"))) isa static void name(                               \
        const float *x, int64_t x_row, const float *y, int64_t rows, int64_t columns, const int64_t *offset, \
        float *sum)                                                                                          \
    {                                                                                                        \
        name##_v s[TAPS][LANES / width] = {{{0}}};                                                           \
        for (int64_t r = 0; r < rows; r++, x += x_row, y += columns)                                         \
            for (int64_t j = 0; j < columns; j += LANES)                                                     \
                UNROLL for (int k = 0; k < TAPS; k++) UNROLL for (int v = 0; v < LANES / width; v++)         \
                    s[k][v] += ((const name##_v *)(const void *)(y + j))[v] *                                \
                               ((const name##_v *)(const void *)(x + offset[k] + j))[v];                     \
        UNROLL for (int k = 0; k < TAPS; k++)                                                                \
            UNROLL for (int v = 0; v < LANES / width; v++)((name##_v *)(void *)(sum + k * LANES))[v] +=      \
            s[k][v];                                                                                         \
    }

ADD_TAPS(add_taps_16, , 4)
#ifdef __x86_64__
ADD_TAPS(add_taps_32, __attribute__((target("avx2,fma"))), 8)
ADD_TAPS(add_taps_64, __attribute__((target("avx512f"))), 16)
#else
#define add_taps_32 add_taps_16
#define add_taps_64 add_taps_16
#endif

static Axis axis(const Problem *q, int from, int64_t extent, int64_t taps, int64_t positions)
{
    return (Axis){extent, taps, q->strides[from], q->dilates[from] + 1, q->pad_begin[from], positions};
}

static int64_t window(const Axis *a) { return (a->taps - 1) * a->dilation + 1; }

bool depthwise_describe(Depthwise *d, const Problem *q, int vector, int threads)
{
    const Layout *x = &q->slot[SRC], *w = &q->slot[WEIGHTS], *y = &q->slot[DST];
    int flat = x->rank == 3, row = 2 - flat, column = 3 - flat; /* dimensions of the image; weights: + 1 */
    if (x->rank > 4 || w->rank != x->rank + 1 || w->dim[2] != 1 || w->dim[0] != x->dim[1])
        return false;
    *d = (Depthwise){.of_planes = q->op != LIB_CONV_BWD_WEIGHTS};
    if (d->of_planes)
        return planes_describe(&d->planes, q, vector, threads);
    d->channels = y->dim[1];
    d->each = w->dim[1];
    d->images = x->dim[0];
    d->in = x->dt;
    d->out = w->dt;
    d->x = axis(q, column - 2, x->dim[column], w->dim[column + 1], y->dim[column]);
    d->y = flat ? (Axis){1, 1, 1, 1, 0, 1} : axis(q, 0, x->dim[row], w->dim[row + 1], y->dim[row]);
    for (int i = 0; i < 4; i++) {
        int from = i < 2 ? i : i - flat;
        d->image[i] = flat && i == 2 ? 0 : x->stride[from];
        d->result[i] = flat && i == 2 ? 0 : y->stride[from];
    }
    d->weight[0] = w->stride[1];
    d->weight[1] = flat ? 0 : w->stride[row + 1];
    d->weight[2] = w->stride[column + 1];
    d->unit = q->channels_last && d->each == 1 ? LANES : 1;
    int64_t band = least(d->y.positions, d->unit > 1 ? BAND_LAST : BAND);
    d->band = band > 0 ? band : 1;
    d->columns = d->unit > 1 ? d->x.positions : round_up(d->x.positions, LANES);
    d->phase = d->columns + (window(&d->x) - 1) / d->x.stride + 1;
    d->row = d->phase * d->x.stride;
    d->taps = round_up(d->y.taps * d->x.taps, TAPS);
    d->add_taps = vector == 64 ? add_taps_64 : vector == 32 ? add_taps_32 : add_taps_16;
    d->threads = threads;
    return true;
}

static int64_t band_rows(const Depthwise *d) { return (d->band - 1) * d->y.stride + window(&d->y); }

int64_t depthwise_floats(const Depthwise *d)
{
    if (d->of_planes)
        return planes_floats(&d->planes);
    return round_up((band_rows(d) * d->row + d->band * d->columns) * d->unit + d->taps * LANES, LANES);
}

/* Copies n positions, which are `every` apart in memory, of one channel or of `channels` adjacent ones.
 * Lanes without a channel keep their contents: they are summed, but not stored. */
static void copy_positions(const Depthwise *d, const char *base, int64_t from, int64_t every, int64_t n,
                           int64_t channels, float *to)
{
    if (d->unit == 1)
        elements_load(d->in, base, from, every, n, to);
    for (int64_t i = 0; i < n && d->unit > 1; i++)
        elements_load(d->in, base, from + i * every, 1, channels, to + i * d->unit);
}

/* Copies rows of the padded image from `first` on. */
static void copy_image(const Depthwise *d, const char *base, int64_t at, int64_t first, int64_t rows,
                       int64_t channels, float *to)
{
    const Axis *x = &d->x;
    memset(to, 0, (size_t)(rows * d->row * d->unit) * sizeof *to);
    for (int64_t r = 0; r < rows; r++, to += d->row * d->unit) {
        int64_t row = first + r - d->y.pad;
        if (row < 0 || row >= d->y.extent)
            continue;
        for (int64_t p = 0; p < x->stride; p++) {
            int64_t k = p < x->pad ? ceil_div(x->pad - p, x->stride) : 0; /* first in the image */
            int64_t column = p + k * x->stride - x->pad;
            int64_t n = column < x->extent ? ceil_div(x->extent - column, x->stride) : 0;
            n = least(n, d->phase - k);
            if (n > 0)
                copy_positions(d, base, at + row * d->image[2] + column * d->image[3],
                               x->stride * d->image[3], n, channels, to + (p * d->phase + k) * d->unit);
        }
    }
}

static void copy_result(const Depthwise *d, const char *base, int64_t at, int64_t rows, int64_t channels,
                        float *to)
{
    int64_t n = d->x.positions;
    for (int64_t r = 0; r < rows; r++, to += d->columns * d->unit) {
        copy_positions(d, base, at + r * d->result[2], d->result[3], n, channels, to);
        memset(to + n * d->unit, 0, (size_t)((d->columns - n) * d->unit) * sizeof *to);
    }
}

static int64_t tap_offset(const Depthwise *d, int64_t tap)
{
    int64_t row = tap / d->x.taps * d->y.dilation, column = tap % d->x.taps * d->x.dilation;
    return (row * d->row + column % d->x.stride * d->phase + column / d->x.stride) * d->unit;
}

static void add_band(const Depthwise *d, const float *image, const float *result, int64_t rows, float *sum)
{
    int64_t taps = d->y.taps * d->x.taps, offset[TAPS];
    for (int64_t t = 0; t < d->taps; t += TAPS) {
        for (int k = 0; k < TAPS; k++)
            offset[k] = tap_offset(d, least(t + k, taps - 1));
        d->add_taps(image, d->y.stride * d->row * d->unit, result, rows, d->columns * d->unit, offset,
                    sum + t * LANES);
    }
}

static void store(const Depthwise *d, char *base, int64_t i, float sum, bool add)
{
    element_store(d->out, base, i, add ? element_load(d->out, base, i) + sum : sum);
}

/* Stores the sums of tap t: one per channel in each lane, or of a single channel spread over all lanes. */
static void store_tap(const Depthwise *d, char *base, int64_t channel, int64_t channels, int64_t t,
                      float *lane, bool add)
{
    int64_t to = channel * d->weight[0] + t / d->x.taps * d->weight[1] + t % d->x.taps * d->weight[2];
    for (int h = LANES / 2; h > 0 && d->unit == 1; h /= 2)
        for (int k = 0; k < h; k++)
            lane[k] += lane[k + h];
    for (int64_t c = 0; c < channels; c++)
        store(d, base, to + c * d->weight[0], lane[c], add);
}

static void run_channels(const Depthwise *d, char *const at[SLOTS], int64_t channel, bool add, float *scratch)
{
    float *image = scratch, *result = image + band_rows(d) * d->row * d->unit;
    float *sum = result + d->band * d->columns * d->unit;
    int64_t channels = least(d->unit, d->channels - channel);
    memset(sum, 0, (size_t)(d->taps * LANES) * sizeof *sum);
    for (int64_t n = 0; n < d->images; n++)
        for (int64_t r = 0; r < d->y.positions; r += d->band) {
            int64_t rows = least(d->band, d->y.positions - r);
            copy_image(d, at[SRC], n * d->image[0] + channel / d->each * d->image[1], r * d->y.stride,
                       (rows - 1) * d->y.stride + window(&d->y), channels, image);
            copy_result(d, at[DST], n * d->result[0] + channel * d->result[1] + r * d->result[2], rows,
                        channels, result);
            add_band(d, image, result, rows, sum);
        }
    for (int64_t t = 0; t < d->y.taps * d->x.taps; t++)
        store_tap(d, at[WEIGHTS], channel, channels, t, sum + t * LANES, add);
}

void depthwise_run(const Depthwise *d, char *const at[SLOTS], bool add, float *scratch)
{
    if (d->of_planes) {
        planes_run(&d->planes, at, scratch);
        return;
    }
#pragma omp parallel for schedule(static) num_threads(d->threads) if (d->channels > d->unit)
    for (int64_t c = 0; c < d->channels; c += d->unit)
        run_channels(d, at, c, add, scratch + omp_get_thread_num() * depthwise_floats(d));
}
