/* depthwise_planes.c -- depthwise convolutions and the gradients of their data, on images whose columns are
 * adjacent: every position of a plane (a channel of an image) is the sum of a few taps.
 *
 * A band of the input plane lies in scratch, in f32, with zeros around it.  There each tap is an offset from
 * the output position, so that a few vectors of a few rows are summed in registers, tap by tap.  The output
 * of a gradient of a convolution with strides is cut into phases, each of which has its own taps. */
#include "depthwise.h"
#include "element.h"
#include "pack.h"

#include <omp.h>

enum { LANES = 8, MOST_ROWS = 8, MOST_TAPS = 256, MOST_PHASES = 16, BAND_FLOATS = 8192 };

/* Sums taps for some rows and vectors of each; compiled as panels are (panel.c). */
#define SUM_TAPS(name, isa, rows, vectors)                                                                   \
    __attribute__((no_sanitize("address", "undefined"))) isa static void name(                               \
        const float *x, int64_t x_row, const int64_t *offset, const float *weight, int64_t taps, float *y,   \
        int64_t y_row, float bias)                                                                           \
    {                                                                                                        \
        Lanes s[rows][vectors];                                                                              \
        UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < vectors; v++) s[r][v] =             \
            (Lanes){0} + bias;                                                                               \
        for (int64_t t = 0; t < taps; t++) {                                                                 \
            const float *at = x + offset[t];                                                                 \
            const float w = weight[t];                                                                       \
            UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < vectors; v++) s[r][v] +=        \
                w * ((const Lanes *)(const void *)(at + r * x_row))[v];                                      \
        }                                                                                                    \
        UNROLL for (int r = 0; r < rows; r++)                                                                \
            UNROLL for (int v = 0; v < vectors; v++)((Lanes *)(void *)(y + r * y_row))[v] = s[r][v];         \
    }

typedef float Lanes __attribute__((vector_size(4 * LANES), aligned(4)));

SUM_TAPS(sum_1, , MOST_ROWS, 1)
SUM_TAPS(sum_2, , MOST_ROWS / 2, 2)
SUM_TAPS(sum_4, , MOST_ROWS / 4, 4)
SUM_TAPS(sum_8, , MOST_ROWS / 8, 8)
#ifdef __x86_64__
SUM_TAPS(sum_1_avx2, __attribute__((target("avx2,fma"))), MOST_ROWS, 1)
SUM_TAPS(sum_2_avx2, __attribute__((target("avx2,fma"))), MOST_ROWS / 2, 2)
SUM_TAPS(sum_4_avx2, __attribute__((target("avx2,fma"))), MOST_ROWS / 4, 4)
SUM_TAPS(sum_8_avx2, __attribute__((target("avx2,fma"))), MOST_ROWS / 8, 8)
#else
#define sum_1_avx2 sum_1
#define sum_2_avx2 sum_2
#define sum_4_avx2 sum_4
#define sum_8_avx2 sum_8
#endif

/* ---- description --------------------------------------------------------------------------------- */

static PlaneAxis axis_of(int64_t read, int64_t made, int64_t taps, int64_t stride, int64_t dilation,
                         int64_t pad, bool gradient)
{
    int64_t window = (taps - 1) * dilation;
    PlaneAxis a = {read, made, .taps = taps, .dilation = dilation, .shift = pad};
    a.stride = gradient ? 1 : stride;
    a.phases = gradient ? stride : 1;
    a.pad = !gradient ? pad : window > pad ? ceil_div(window - pad, stride) : 0;
    a.positions = ceil_div(made, a.phases);
    a.reach = gradient ? (stride - 1 + pad) / stride + a.pad : window / stride;
    return a;
}

bool planes_describe(Planes *p, const Problem *q, int vector, int threads)
{
    const Layout *x = &q->slot[SRC], *w = &q->slot[WEIGHTS], *y = &q->slot[DST];
    bool gradient = q->op == LIB_CONV_BWD_DATA, flat = x->rank == 3;
    const Layout *from = gradient ? y : x, *to = gradient ? x : y;
    int last = x->rank - 1, tap = w->rank - 1;
    int64_t taps = w->dim[tap] * (flat ? 1 : w->dim[tap - 1]);
    int64_t phases = gradient ? q->strides[0] * (flat ? 1 : q->strides[1]) : 1;
    if (taps > MOST_TAPS || phases > MOST_PHASES || from->stride[last] != 1 || to->stride[last] != 1 ||
        (gradient && w->dim[1] != 1))
        return false;
    *p = (Planes){.src = gradient ? DST : SRC, .dst = gradient ? SRC : DST, .gradient = gradient};
    p->bias = q->slot[BIAS].rank > 0;
    p->images = q->batch;
    p->channels = to->dim[1];
    p->each = w->dim[1];
    p->in = from->dt;
    p->out = to->dt;
    int64_t column = last - 2, row = column - 1;
    p->x = axis_of(from->dim[last], to->dim[last], w->dim[tap], q->strides[column], q->dilates[column] + 1,
                   q->pad_begin[column], gradient);
    p->y = flat ? axis_of(1, 1, 1, 1, 1, 0, gradient)
                : axis_of(from->dim[last - 1], to->dim[last - 1], w->dim[tap - 1], q->strides[row],
                          q->dilates[row] + 1, q->pad_begin[row], gradient);
    for (int i = 0; i < 4; i++) {
        int at = i < 2 ? i : i - flat;
        p->read[i] = flat && i == 2 ? 0 : from->stride[at];
        p->made[i] = flat && i == 2 ? 0 : to->stride[at];
    }
    p->weight[0] = w->stride[1];
    p->weight[1] = flat ? 0 : w->stride[tap - 1];
    p->weight[2] = w->stride[tap];
    p->columns = round_up(p->x.positions, LANES);
    p->phase = p->columns + p->x.reach;
    p->row = p->phase * p->x.stride;
    int64_t band = BAND_FLOATS / (p->row * p->y.stride) - p->y.reach;
    p->band = least(round_up(band > MOST_ROWS ? band : MOST_ROWS, MOST_ROWS), p->y.positions);
    PlaneFn *const sum[][4] = {{sum_1, sum_2, sum_4, sum_8},
                               {sum_1_avx2, sum_2_avx2, sum_4_avx2, sum_8_avx2}};
    memcpy(p->sum, sum[vector >= (int)sizeof(Lanes)], sizeof p->sum);
    p->narrow = narrow_function(p->out, vector);
    p->threads = threads;
    return true;
}

/* Number of input rows that `rows` rows of a phase need. */
static int64_t rows_read(const Planes *p, int64_t rows) { return (rows + p->y.reach) * p->y.stride; }

static int64_t rows_made(const Planes *p) { return p->band == 1 ? 1 : round_up(p->band, MOST_ROWS); }

static int64_t read_floats(const Planes *p)
{
    return round_up(rows_read(p, rows_made(p)) * p->row + LANES, LANES);
}

int64_t planes_floats(const Planes *p)
{
    return round_up(read_floats(p) + rows_made(p) * p->columns, 2 * LANES);
}

/* ---- running --------------------------------------------------------------------------------------- */

/* The taps of each phase: offsets in scratch from the output position, and in the weights of a channel. */
typedef struct {
    int64_t first[MOST_PHASES + 1]; /* index of the first tap of each phase, and the number of all */
    int64_t offset[MOST_TAPS], weight[MOST_TAPS];
} Taps;

/* Sets *offset to a tap's offset in positions along one dimension; false: the tap is not of this phase. */
static bool tap_offset(const PlaneAxis *a, bool gradient, int64_t phase, int64_t tap, int64_t *offset)
{
    *offset = tap * a->dilation;
    if (!gradient)
        return true;
    int64_t from = phase + a->shift - tap * a->dilation + a->pad * a->phases;
    *offset = from / a->phases;
    return from % a->phases == 0;
}

static void find_taps(const Planes *p, Taps *t)
{
    int64_t n = 0, down, across;
    for (int64_t f = 0; f < p->y.phases * p->x.phases; f++) {
        t->first[f] = n;
        for (int64_t i = 0; i < p->y.taps; i++)
            for (int64_t j = 0; j < p->x.taps; j++)
                if (tap_offset(&p->y, p->gradient, f / p->x.phases, i, &down) &&
                    tap_offset(&p->x, p->gradient, f % p->x.phases, j, &across)) {
                    t->offset[n] = down * p->row + across % p->x.stride * p->phase + across / p->x.stride;
                    t->weight[n++] = i * p->weight[1] + j * p->weight[2];
                }
        t->first[f + 1] = n;
    }
}

/* Copies input rows from `first` on, numbered with the zeros in front; the zeros beside the rows are set. */
static void copy_rows(const Planes *p, const char *plane, int64_t first, int64_t rows, float *to)
{
    const PlaneAxis *x = &p->x;
    for (int64_t s = 0; s < x->stride; s++) {
        int64_t zeros = s < x->pad ? ceil_div(x->pad - s, x->stride) : 0;
        int64_t column = s + zeros * x->stride - x->pad; /* the first inside the plane */
        int64_t n = column < x->read ? ceil_div(x->read - column, x->stride) : 0;
        float *at = to + s * p->phase + zeros;
        n = least(n, p->phase - zeros);
        for (int64_t r = 0, row = first - p->y.pad; r < rows && n > 0; r++, row++, at += p->row)
            if (row >= 0 && row < p->y.read)
                elements_load(p->in, plane, row * p->read[2] + column, x->stride, n, at);
            else
                memset(at, 0, (size_t)n * sizeof *at);
    }
}

static void sum_band(const Planes *p, const float *x, const int64_t *offset, const float *weight,
                     int64_t taps, int64_t rows, float bias, float *y)
{
    bool single = p->band == 1; /* then all rows of a block are the same row */
    int64_t x_row = single ? 0 : p->row * p->y.stride, y_row = single ? 0 : p->columns;
    for (int64_t j = 0, left; j < p->columns; j = p->columns - left * LANES) {
        left = (p->columns - j) / LANES;
        int log2 = rows == 1 && left >= 8 ? 3 : left >= 4 ? 2 : left >= 2 ? 1 : 0;
        for (int64_t r = 0; r < rows; r += MOST_ROWS >> log2)
            p->sum[log2](x + r * x_row + j, x_row, offset, weight, taps, y + r * y_row + j, y_row, bias);
        left -= 1 << log2;
    }
}

/* Stores rows of a phase, from its row `first` on. */
static void store_rows(const Planes *p, char *plane, int64_t phase, int64_t first, int64_t rows,
                       const float *y)
{
    int64_t down = phase / p->x.phases, across = phase % p->x.phases, every = p->x.phases;
    int64_t n = ceil_div(p->x.made - across, every);
    for (int64_t r = 0; r < rows; r++, y += p->columns) {
        int64_t to = (down + (first + r) * p->y.phases) * p->made[2] + across;
        if (every == 1 && p->out != DT_F32)
            p->narrow(plane + to * dtype_size[p->out], y, n);
        else
            elements_store(p->out, plane, to, every, n, y);
    }
}

static void run_plane(const Planes *p, const Taps *t, char *const at[SLOTS], int64_t image, int64_t channel,
                      float *x)
{
    const char *from = at[p->src] + (image * p->read[0] + channel / p->each * p->read[1]) * dtype_size[p->in];
    char *to = at[p->dst] + (image * p->made[0] + channel * p->made[1]) * dtype_size[p->out];
    int64_t phases = p->y.phases * p->x.phases;
    float weight[MOST_TAPS], bias = p->bias ? element_load(p->in, at[BIAS], channel) : 0;
    float *y = x + read_floats(p);
    for (int64_t i = 0; i < t->first[phases]; i++)
        weight[i] = element_load(p->in, at[WEIGHTS], channel * p->weight[0] + t->weight[i]);
    for (int64_t first = 0; first < p->y.positions; first += p->band) {
        int64_t rows = least(p->band, p->y.positions - first);
        copy_rows(p, from, first * p->y.stride, rows_read(p, rows), x);
        for (int64_t f = 0; f < phases; f++) {
            int64_t made = least(rows, ceil_div(p->y.made - f / p->x.phases, p->y.phases) - first);
            int64_t tap = t->first[f];
            sum_band(p, x, t->offset + tap, weight + tap, t->first[f + 1] - tap, made, bias, y);
            store_rows(p, to, f, first, made, y);
        }
    }
}

void planes_run(const Planes *p, char *const at[SLOTS], float *scratch)
{
    int64_t planes = p->images * p->channels;
    Taps taps;
    find_taps(p, &taps);
#pragma omp parallel num_threads(p->threads) if (planes > 1)
    {
        float *own = scratch + omp_get_thread_num() * planes_floats(p);
        memset(own, 0, (size_t)read_floats(p) * sizeof *own);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < planes; i++)
            run_plane(p, &taps, at, i / p->channels, i % p->channels, own);
    }
}
