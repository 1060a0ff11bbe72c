/* winograd.c -- F(4x4, 3x3) of A. Lavin and S. Gray, Fast Algorithms for Convolutional Neural Networks
 * (2016), sections 4 and 5: tiles of 6x6 of what is read and the weights are transformed; 36 products, one
 * for each of their places, are summed over the channels; transformed back they are tiles of 4x4 of the
 * result.
 *
 * Vectors hold eight tiles.  Scratch has the transformed weights as panels of rows, and of each thread the
 * transformed tiles of a block as panels of columns and the products of a few panels of rows. */
#include "winograd_tile.h"

#include <omp.h>
#include <string.h>

enum {
    FEW_CHANNELS = 128,
    BLOCK_FEW = 96, /* tiles, of few channels */
    BLOCK_MANY = 64,
    BLOCK_TERMS = 128, /* tiles, of gradients of weights */
    GROUP_ROWS = 24
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
    w->down = (w->to.height + TILE - 1) / TILE;
    w->across = (w->to.width + TILE - 1) / TILE;
    w->tiles = q->batch * w->down * w->across;
    w->panel = panel_of(vector, false);
    w->threads = threads;
    int64_t most = w->in > FEW_CHANNELS ? BLOCK_MANY : BLOCK_FEW;
    w->block = of_weights ? least(BLOCK_TERMS, w->tiles)
                          : round_up(least(most, (w->tiles + threads - 1) / threads), w->panel.columns);
    w->groups = GROUP_ROWS / w->panel.rows;
    if (last)
        winograd_last_cut(w);
    int inner = last ? 1 : 3;
    return x->stride[inner] == 1 && y->stride[inner] == 1;
}

static int64_t panels(const Winograd *w) { return (w->out + w->panel.rows - 1) / w->panel.rows; }

static int64_t weight_floats(const Winograd *w) { return PLACES * panels(w) * w->panel.rows * w->in; }

/* From place to place, of transformed tiles and of products. */
static int64_t tile_place(const Winograd *w) { return place_floats(w->block * w->in); }
static int64_t product_place(const Winograd *w) { return place_floats(w->block * GROUP_ROWS); }

static int64_t thread_floats(const Winograd *w) { return PLACES * (tile_place(w) + product_place(w)); }

int64_t winograd_floats(const Winograd *w)
{
    if (w->last)
        return winograd_last_floats(w);
    return w->of_weights ? winograd_weights_floats(w) : weight_floats(w) + w->threads * thread_floats(w);
}

/* ---- weights ------------------------------------------------------------------------------------- */

/* Of one channel of the result, and so many that are read. */
ISA static void transform_weights(const Winograd *w, const void *from, int64_t out, int64_t first, float *to)
{
    V g[WINDOW_SIDE][WINDOW_SIDE] = {{{0}}}, half[WINDOW_SIDE][SIDE], u[SIDE][SIDE];
    int64_t n = least(LANES, w->in - first), rows = w->panel.rows;
    for (int64_t c = 0; c < n; c++) {
        int64_t at = out * w->of_out + (first + c) * w->of_in;
        for (int i = 0; i < 9; i++)
            g[i / 3][i % 3][c] = element_load(w->read, from, at + (w->flip ? 8 - i : i));
    }
    for (int i = 0; i < WINDOW_SIDE; i++)
        of_window(half[i], g[i]);
    transform_columns(of_window, WINDOW_SIDE, half, u);
    for (int p = 0; p < PLACES; p++) {
        float *at = to + ((p * panels(w) + out / rows) * w->in + first) * rows + out % rows;
        for (int64_t c = 0; c < n; c++)
            at[c * rows] = u[p / SIDE][p % SIDE][c];
    }
}

/* ---- tiles --------------------------------------------------------------------------------------- */

/* Eight tiles of one channel; to: the first of their places, a panel of columns for each. */
ISA static void transform_tiles(const Source tile[LANES], float *to, int64_t place, DType dt)
{
    V v[SIDE][SIDE];
    FOR_TYPE(dt, transform_tile, tile, v);
    for (int p = 0; p < PLACES; p++)
        *(V *)(void *)(to + p * place) = v[p / SIDE][p % SIDE];
}

static void transform_block(const Winograd *w, const char *from, int64_t first, float *to)
{
    Tile tile[LANES];
    Source source[LANES];
    int64_t columns = w->panel.columns, place = tile_place(w);
    int64_t channel = w->from.stride[1] * dtype_size[w->read];
    for (int64_t t = 0; t < w->block; t += LANES) {
        for (int i = 0; i < LANES; i++)
            tile[i] = find_tile(w, &w->from, SIDE, first + t + i);
        for (int64_t c = 0; c < w->in; c++) {
            for (int i = 0; i < LANES; i++)
                FOR_TYPE(w->read, find_source, &w->from, &tile[i], from + c * channel, &source[i]);
            transform_tiles(source, to + (t / columns * w->in + c) * columns + t % columns, place, w->read);
        }
    }
}

/* ---- results ------------------------------------------------------------------------------------- */

ISA static void store_tile(const Winograd *w, char *to, int64_t t, int64_t channel, const Four y[TILE])
{
    int64_t image = t / (w->down * w->across), row = t / w->across % w->down * TILE,
            column = t % w->across * TILE, n = least(TILE, w->to.width - column);
    int64_t at = image * w->to.stride[0] + channel * w->to.stride[1] + row * w->to.stride[2] + column;
    for (int64_t i = 0; i < least(TILE, w->to.height - row); i++, at += w->to.stride[2])
        FOR_TYPE(w->made, store, to + at * dtype_size[w->made], y[i], n);
}

/* Eight tiles of one channel from their products. */
ISA static void store_tiles(const Winograd *w, const float *from, int64_t place, char *to, int64_t first,
                            int64_t channel, float bias)
{
    V m[SIDE], half[SIDE][TILE], column[SIDE], y[TILE][TILE], o[TILE];
    for (int i = 0; i < SIDE; i++) {
        for (int j = 0; j < SIDE; j++)
            m[j] = *(const V *)(const void *)(from + (i * SIDE + j) * place);
        to_result(half[i], m);
    }
    for (int x = 0; x < TILE; x++) {
        for (int i = 0; i < SIDE; i++)
            column[i] = half[i][x];
        to_result(o, column);
        for (int i = 0; i < TILE; i++)
            y[i][x] = o[i] + bias;
    }
    Four row[LANES][TILE]; /* of each tile */
    for (int i = 0; i < TILE; i++) {
        Four low[4], high[4];
        for (int x = 0; x < TILE; x++) {
            low[x] = __builtin_shufflevector(y[i][x], y[i][x], 0, 1, 2, 3);
            high[x] = __builtin_shufflevector(y[i][x], y[i][x], 4, 5, 6, 7);
        }
        turn(low);
        turn(high);
        for (int t = 0; t < 4; t++) {
            row[t][i] = low[t];
            row[4 + t][i] = high[t];
        }
    }
    for (int64_t t = 0; t < least(LANES, w->tiles - first); t++)
        store_tile(w, to, first + t, channel, row[t]);
}

/* ---- running ------------------------------------------------------------------------------------- */

/* Rows of a few panels at all places, of the tiles of a block. */
static void multiply(const Winograd *w, const float *weights, const float *tiles, int64_t panel, int64_t n,
                     float *to)
{
    int64_t rows = w->panel.rows, columns = w->panel.columns;
    for (int64_t p = 0; p < PLACES; p++)
        for (int64_t t = 0; t < w->block; t += columns)
            for (int64_t i = 0; i < n; i++)
                w->panel.multiply(w->in, weights + (p * panels(w) + panel + i) * w->in * rows,
                                  tiles + p * tile_place(w) + t * w->in, columns,
                                  to + p * product_place(w) + i * rows * w->block + t, w->block, false);
}

static void run_block(const Winograd *w, char *const at[SLOTS], const float *weights, int64_t first,
                      float *scratch)
{
    float *product = scratch + PLACES * tile_place(w), bias = 0;
    transform_block(w, at[w->src], first, scratch);
    for (int64_t p = 0; p < panels(w); p += w->groups) {
        int64_t channel = p * w->panel.rows, n = least(GROUP_ROWS, w->out - channel);
        multiply(w, weights, scratch, p, least(w->groups, panels(w) - p), product);
        for (int64_t i = 0; i < n; i++) {
            bias = w->bias ? element_load(w->read, at[BIAS], channel + i) : 0;
            for (int64_t t = 0; t < w->block && first + t < w->tiles; t += LANES)
                store_tiles(w, product + i * w->block + t, product_place(w), at[w->dst], first + t,
                            channel + i, bias);
        }
    }
}

void winograd_run(const Winograd *w, char *const at[SLOTS], float *scratch)
{
    float *threads = scratch + weight_floats(w);
    if (w->last || w->of_weights) {
        (w->last ? winograd_last_run : winograd_weights_run)(w, at, scratch);
        return;
    }
#pragma omp parallel num_threads(w->threads)
    {
#pragma omp for schedule(static)
        for (int64_t k = 0; k < w->out; k++)
            for (int64_t c = 0; c < w->in; c += LANES)
                transform_weights(w, at[WEIGHTS], k, c, scratch);
#pragma omp for schedule(static)
        for (int64_t t = 0; t < w->tiles; t += w->block)
            run_block(w, at, scratch, t, threads + omp_get_thread_num() * thread_floats(w));
    }
}
