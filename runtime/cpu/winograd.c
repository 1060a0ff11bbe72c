/* winograd.c -- F(4x4, 3x3) of A. Lavin and S. Gray, Fast Algorithms for Convolutional Neural Networks
 * (2016), sections 4 and 5: input tiles of 6x6 and the weights are transformed; 36 products, one for each
 * place of a tile, are summed over the channels and transformed back to output tiles of 4x4.
 *
 * Vectors hold eight tiles.  Scratch has the transformed weights as panels of rows and, for each thread, the
 * transformed tiles of a block as panels of columns and the products of a few panels of rows.  If there are
 * fewer tiles than channels, it has all tiles instead, and for each thread a few panels of the weights. */
#include "winograd_tile.h"

#include <omp.h>
#include <string.h>

enum {
    FEW_CHANNELS = 128,
    BLOCK_FEW = 32, /* tiles of a block, with few channels */
    BLOCK_MANY = 64,
    SPOTS = 64, /* tiles located at a time */
    GROUP_ROWS = 24,
    FEW_ROWS = 6 /* divides the rows of a panel */
};

/* ---- description --------------------------------------------------------------------------------- */

static bool is_3x3(const Problem *q)
{
    const Layout *w = &q->slot[WEIGHTS];
    bool fits = w->rank == 4 && q->slot[SRC].rank == 4 && w->dim[2] == WINDOW_SIDE &&
                w->dim[3] == WINDOW_SIDE;
    for (int i = 0; i < 2; i++)
        fits = fits && q->strides[i] == 1 && q->dilates[i] == 0 && q->pad_begin[i] < WINDOW_SIDE;
    return fits && q->added == 0;
}

static void cut(Winograd *w)
{
    int64_t most = w->in > FEW_CHANNELS ? BLOCK_MANY : BLOCK_FEW, all = round_up(w->tiles, w->panel.columns);
    w->by_panels = all <= w->out;
    w->block = w->by_panels
                   ? all
                   : round_up(least(most, ceil_div(w->tiles, w->threads)), w->panel.columns);
}

bool winograd_describe(Winograd *w, const Problem *q, int vector, int threads)
{
    bool forward = q->op != LIB_CONV_BWD_DATA, of_weights = q->op == LIB_CONV_BWD_WEIGHTS;
    bool half = dtype_is_half(q->slot[SRC].dt) || dtype_is_half(q->slot[DST].dt);
    if (vector < (int)sizeof(V) || q->parts > 1 || !is_3x3(q))
        return false;
    bool last = q->channels_last && vector == 64 && q->slot[SRC].dt != DT_F16 && q->slot[DST].dt != DT_F16;
    if (vector > (int)sizeof(V) && !last && (of_weights || half)) /* the library is faster */
        return false;
    *w = (Winograd){.src = forward ? SRC : DST, .dst = forward ? DST : SRC, .flip = !forward, .last = last};
    w->of_weights = of_weights;
    const Layout *x = &q->slot[w->src], *y = &q->slot[w->dst], *k = &q->slot[WEIGHTS];
    w->read = x->dt;
    w->made = of_weights ? k->dt : y->dt;
    w->in = x->dim[1];
    w->out = y->dim[1];
    w->from.height = x->dim[2];
    w->from.width = x->dim[3];
    w->to.height = y->dim[2];
    w->to.width = y->dim[3];
    w->from.pad_y = forward ? q->pad_begin[0] : WINDOW_SIDE - 1 - q->pad_begin[0];
    w->from.pad_x = forward ? q->pad_begin[1] : WINDOW_SIDE - 1 - q->pad_begin[1];
    memcpy(w->from.stride, x->stride, sizeof w->from.stride);
    memcpy(w->to.stride, y->stride, sizeof w->to.stride);
    w->of_out = k->stride[forward ? 0 : 1];
    w->of_in = k->stride[forward ? 1 : 0];
    w->bias = q->slot[BIAS].rank > 0;
    w->down = ceil_div(w->to.height, TILE);
    w->across = ceil_div(w->to.width, TILE);
    w->tiles = q->batch * w->down * w->across;
    w->panel = panel_of(vector, PANEL_FLOATS);
    w->threads = threads;
    w->groups = GROUP_ROWS / w->panel.rows;
    (last ? winograd_last_cut : of_weights ? winograd_weights_cut : cut)(w);
    int inner = last ? 1 : 3;
    return x->stride[inner] == 1 && y->stride[inner] == 1;
}

static int64_t panels(const Winograd *w) { return ceil_div(w->out, w->panel.rows); }

/* Number of panels of weights in scratch at a time. */
static int64_t panels_held(const Winograd *w) { return w->by_panels ? w->groups : panels(w); }

static int64_t weight_floats(const Winograd *w)
{
    return PLACES * panels_held(w) * w->panel.rows * w->in;
}

/* Floats from place to place, of transformed tiles and of products. */
static int64_t tile_place(const Winograd *w) { return place_floats(w->block * w->in); }
static int64_t product_place(const Winograd *w) { return place_floats(w->block * GROUP_ROWS); }

static int64_t shared_floats(const Winograd *w)
{
    return w->by_panels ? PLACES * tile_place(w) : weight_floats(w);
}

static int64_t thread_floats(const Winograd *w)
{
    return (w->by_panels ? weight_floats(w) : PLACES * tile_place(w)) + PLACES * product_place(w);
}

int64_t winograd_floats(const Winograd *w)
{
    if (w->last)
        return winograd_last_floats(w);
    return w->of_weights ? winograd_weights_floats(w) : shared_floats(w) + w->threads * thread_floats(w);
}

/* ---- weights ------------------------------------------------------------------------------------- */

/* Loads the windows of one input channel and n output channels, which are the lanes. */
ISA ALWAYS static inline void load_windows(const Winograd *w, const void *from, int64_t at, int64_t n,
                                           V g[WINDOW_SIDE * WINDOW_SIDE])
{
    Four low[LANES], high[LANES];
    float last[LANES];
    for (int i = 0; i < WINDOW_SIDE * WINDOW_SIDE && w->read != DT_F32; i++)
        for (int64_t k = 0; k < LANES; k++)
            g[i][k] = k < n ? element_load(w->read, from, at + k * w->of_out + i) : 0;
    if (w->read != DT_F32)
        return;
    UNROLL for (int k = 0; k < LANES; k++)
    {
        static const float zeros[WINDOW_SIDE * WINDOW_SIDE];
        const float *window = k < n ? (const float *)from + at + k * w->of_out : zeros;
        low[k] = *(const Four *)(const void *)window;
        high[k] = *(const Four *)(const void *)(window + 4);
        last[k] = window[8];
    }
    transpose(low);
    transpose(low + 4);
    transpose(high);
    transpose(high + 4);
    UNROLL for (int i = 0; i < 4; i++)
    {
        g[i] = both(low[i], low[4 + i]);
        g[4 + i] = both(high[i], high[4 + i]);
    }
    g[8] = *(const V *)(const void *)last;
}

/* Transforms the weights of input channel `in` and FEW_ROWS output channels from `out` on; first: the first
 * output channel in scratch. */
ISA static void transform_weights(const Winograd *w, const void *from, int64_t first, int64_t out, int64_t in,
                                  float *to)
{
    V g[WINDOW_SIDE * WINDOW_SIDE], half[WINDOW_SIDE][SIDE], u[SIDE][SIDE];
    int64_t rows = w->panel.rows;
    load_windows(w, from, out * w->of_out + in * w->of_in, least(FEW_ROWS, w->out - out), g);
    for (int i = 0; i < WINDOW_SIDE; i++) {
        V row[WINDOW_SIDE];
        UNROLL for (int j = 0; j < WINDOW_SIDE; j++) row[j] = g[w->flip ? 8 - 3 * i - j : 3 * i + j];
        of_window(half[i], row);
    }
    transform_columns(of_window, WINDOW_SIDE, half, u);
    to += ((out - first) / rows * w->in + in) * rows + out % rows;
    for (int p = 0; p < PLACES; p++, to += panels_held(w) * w->in * rows)
        memcpy(to, &u[p / SIDE][p % SIDE], FEW_ROWS * sizeof(float));
}

/* ---- tiles --------------------------------------------------------------------------------------- */

/* Transforms eight tiles of one channel; to: the first place, in the panel of columns that each place has. */
ISA static void transform_tiles(const Source tile[LANES], float *to, int64_t place, DType dt)
{
    V v[SIDE][SIDE];
    FOR_TYPE(dt, transform_tile, tile, v);
    for (int i = 0; i < SIDE; i++)
        UNROLL for (int x = 0; x < SIDE; x++, to += place) *(V *)(void *)to = v[i][x];
}

/* Transforms eight tiles of a block, all channels; first: the block's first tile; t: the first of the eight
 * in the block. */
ISA static void transform_eight(const Winograd *w, const char *from, int64_t first, int64_t t, float *to)
{
    Tile tile[LANES];
    Source source[LANES];
    int64_t columns = w->panel.columns, place = tile_place(w);
    int64_t channel = w->from.stride[1] * dtype_size[w->read];
    for (int i = 0; i < LANES; i++)
        tile[i] = find_tile(w, &w->from, SIDE, first + t + i);
    for (int64_t c = 0; c < w->in; c++) {
        for (int i = 0; i < LANES; i++)
            FOR_TYPE(w->read, find_source, &w->from, &tile[i], from + c * channel, &source[i]);
        transform_tiles(source, to + (t / columns * w->in + c) * columns + t % columns, place, w->read);
    }
}

/* ---- results ------------------------------------------------------------------------------------- */

/* Offset of an output tile of the first channel, in elements, and the rows and columns of it in the image. */
typedef struct {
    int64_t at, rows, columns;
} Spot;

static Spot find_spot(const Winograd *w, int64_t t)
{
    int64_t image = t / (w->down * w->across), row = t / w->across % w->down * TILE,
            column = t % w->across * TILE;
    return (Spot){image * w->to.stride[0] + row * w->to.stride[2] + column,
                  t < w->tiles ? least(TILE, w->to.height - row) : 0, least(TILE, w->to.width - column)};
}

ISA ALWAYS static inline void store_tile(const Winograd *w, char *to, const Spot *spot, const Four y[TILE])
{
    const int64_t size = dtype_size[w->made], pitch = w->to.stride[2] * size;
    to += spot->at * size;
    if (spot->rows == TILE && spot->columns == TILE)
        UNROLL for (int i = 0; i < TILE; i++) FOR_TYPE(w->made, store, to + i * pitch, y[i], TILE);
    else
        for (int64_t i = 0; i < spot->rows; i++)
            FOR_TYPE(w->made, store, to + i * pitch, y[i], spot->columns);
}

/* Transforms the products of eight tiles of one channel back and stores them. */
ISA static void store_tiles(const Winograd *w, const float *from, int64_t place, char *to,
                            const Spot spot[LANES], float bias)
{
    V half[SIDE][TILE];
    Four row[LANES][TILE]; /* of each tile */
    for (int i = 0; i < SIDE; i++) {
        V m[SIDE];
        UNROLL for (int j = 0; j < SIDE; j++) m[j] =
            *(const V *)(const void *)(from + (i * SIDE + j) * place);
        to_result(half[i], m);
    }
    V y[TILE][TILE];
    UNROLL for (int x = 0; x < TILE; x++)
    {
        V column[SIDE], o[TILE];
        UNROLL for (int i = 0; i < SIDE; i++) column[i] = half[i][x];
        to_result(o, column);
        UNROLL for (int i = 0; i < TILE; i++) y[i][x] = o[i] + bias;
    }
    UNROLL for (int i = 0; i < TILE; i++)
    {
        Four low[4], high[4];
        UNROLL for (int x = 0; x < TILE; x++)
        {
            low[x] = __builtin_shufflevector(y[i][x], y[i][x], 0, 1, 2, 3);
            high[x] = __builtin_shufflevector(y[i][x], y[i][x], 4, 5, 6, 7);
        }
        transpose(low);
        transpose(high);
        UNROLL for (int t = 0; t < 4; t++)
        {
            row[t][i] = low[t];
            row[4 + t][i] = high[t];
        }
    }
    for (int t = 0; t < LANES; t++)
        store_tile(w, to, &spot[t], row[t]);
}

/* ---- running ------------------------------------------------------------------------------------- */

/* Multiplies n panels of weights by the tiles of a block, at all places. */
static void multiply(const Winograd *w, const float *weights, const float *tiles, int64_t n, float *to)
{
    int64_t rows = w->panel.rows, columns = w->panel.columns;
    for (int64_t p = 0; p < PLACES; p++)
        for (int64_t t = 0; t < w->block; t += columns)
            for (int64_t i = 0; i < n; i++)
                w->panel.multiply(w->in, weights + (p * panels_held(w) + i) * w->in * rows,
                                  tiles + p * tile_place(w) + t * w->in, columns,
                                  to + p * product_place(w) + i * rows * w->block + t, w->block, false);
}

/* Computes and stores a block of tiles for the output channels of a few panels of weights from `panel` on. */
static void run_panels(const Winograd *w, char *const at[SLOTS], int64_t panel, const float *weights,
                       const float *tiles, int64_t first, float *product)
{
    const int64_t of_channel = w->to.stride[1] * dtype_size[w->made], channel = panel * w->panel.rows;
    const int64_t n = least(GROUP_ROWS, w->out - channel);
    multiply(w, weights, tiles, least(w->groups, panels(w) - panel), product);
    for (int64_t from = 0; from < w->block; from += SPOTS) {
        int64_t some = least(SPOTS, w->block - from);
        Spot spot[SPOTS];
        for (int64_t t = 0; t < some; t++)
            spot[t] = find_spot(w, first + from + t);
        for (int64_t i = 0; i < n; i++) {
            float bias = w->bias ? element_load(w->read, at[BIAS], channel + i) : 0;
            for (int64_t t = 0; t < some && first + from + t < w->tiles; t += LANES)
                store_tiles(w, product + i * w->block + from + t, product_place(w),
                            at[w->dst] + (channel + i) * of_channel, spot + t, bias);
        }
    }
}

static void run_by_blocks(const Winograd *w, char *const at[SLOTS], float *weights, float *threads)
{
#pragma omp parallel num_threads(w->threads)
    {
        float *own = threads + omp_get_thread_num() * thread_floats(w);
#pragma omp for schedule(static)
        for (int64_t k = 0; k < w->out; k += FEW_ROWS)
            for (int64_t c = 0; c < w->in; c++)
                transform_weights(w, at[WEIGHTS], 0, k, c, weights);
#pragma omp for schedule(static)
        for (int64_t first = 0; first < w->tiles; first += w->block) {
            for (int64_t t = 0; t < w->block; t += LANES)
                transform_eight(w, at[w->src], first, t, own);
            for (int64_t p = 0; p < panels(w); p += w->groups)
                run_panels(w, at, p, weights + p * w->in * w->panel.rows, own, first,
                           own + PLACES * tile_place(w));
        }
    }
}

static void run_by_panels(const Winograd *w, char *const at[SLOTS], float *tiles, float *threads)
{
    const int64_t rows = w->groups * w->panel.rows;
#pragma omp parallel num_threads(w->threads)
    {
        float *own = threads + omp_get_thread_num() * thread_floats(w);
#pragma omp for schedule(static)
        for (int64_t t = 0; t < w->block; t += LANES)
            transform_eight(w, at[w->src], 0, t, tiles);
#pragma omp for schedule(static)
        for (int64_t p = 0; p < panels(w); p += w->groups) {
            int64_t first = p * w->panel.rows;
            for (int64_t k = first; k < least(first + rows, w->out); k += FEW_ROWS)
                for (int64_t c = 0; c < w->in; c++)
                    transform_weights(w, at[WEIGHTS], first, k, c, own);
            run_panels(w, at, p, own, tiles, 0, own + weight_floats(w));
        }
    }
}

void winograd_run(const Winograd *w, char *const at[SLOTS], float *scratch)
{
    if (w->last)
        winograd_last_run(w, at, scratch);
    else if (w->of_weights)
        winograd_weights_run(w, at, scratch);
    else
        (w->by_panels ? run_by_panels : run_by_blocks)(w, at, scratch, scratch + shared_floats(w));
}
