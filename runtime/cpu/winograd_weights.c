/* winograd_weights.c -- gradients of weights of 3x3 convolutions: F(4x4, 3x3) turned around (winograd.c).
 * Tiles of 6x6 of what the convolution read and of 4x4 of its result's gradient are transformed; at each of
 * 36 places they are the factors of a product, which is summed over all tiles; transformed back its elements
 * are windows of 3x3.
 *
 * Scratch has the sums, and the transformed tiles of a block as panels: those of the result's gradient of
 * rows, the others of columns.  Vectors hold eight channels of a tile.  Every sum is over the tiles of a
 * block in registers, then added to those before. */
#include "winograd_tile.h"

#include <omp.h>

typedef struct {
    int64_t rows, columns;                    /* channels in whole panels */
    float *sums, *left, *right;               /* of each place: [rows, columns]; panels of rows; of columns */
    int64_t next_sums, next_left, next_right; /* from place to place */
} Scratch;

static Scratch scratch_of(const Winograd *w, float *at)
{
    Scratch s = {.rows = round_up(w->out, w->panel.rows), .columns = round_up(w->in, w->panel.columns)};
    s.next_sums = place_floats(s.rows * s.columns);
    s.next_left = place_floats(s.rows * w->block);
    s.next_right = place_floats(s.columns * w->block);
    s.sums = at;
    s.left = s.sums + PLACES * s.next_sums;
    s.right = s.left + PLACES * s.next_left;
    return s;
}

int64_t winograd_weights_floats(const Winograd *w)
{
    Scratch s = scratch_of(w, NULL);
    return PLACES * (s.next_sums + s.next_left + s.next_right);
}

/* ---- transforms of eight at a time --------------------------------------------------------------- */

/* A tile of eight channels, of which there are n. */
ALWAYS static inline void find_channels(const Images *of, const Tile *tile, const char *from, int64_t n,
                                        Source source[LANES], DType dt)
{
    static const Tile nothing;
    for (int64_t c = 0; c < LANES; c++)
        find_source(of, c < n ? tile : &nothing, from + c * of->stride[1] * dtype_size[dt], &source[c], dt);
}

ISA ALWAYS static inline void transform_result(const Source channel[LANES], V v[SIDE][SIDE], DType dt)
{
    V y[TILE], half[TILE][SIDE];
    for (int i = 0; i < TILE; i++) {
        load_four(channel, i, 0, y, dt);
        of_result(half[i], y);
    }
    transform_columns(of_result, TILE, half, v);
}

/* ---- a block of tiles -------------------------------------------------------------------------------- */

/* Tile t of the block, all channels, as term t of its panels. */
ISA static void transform_left(const Winograd *w, const Scratch *s, const char *from, int64_t first,
                               int64_t t)
{
    Tile tile = find_tile(w, &w->to, TILE, first + t);
    Source source[LANES];
    V v[SIDE][SIDE];
    int64_t width = w->panel.rows, channel = w->to.stride[1] * dtype_size[w->read];
    for (int64_t k = 0; k < s->rows; k += LANES) {
        int64_t n = least(LANES, s->rows - k);
        FOR_TYPE(w->read, find_channels, &w->to, &tile, from + k * channel, w->out - k, source);
        FOR_TYPE(w->read, transform_result, source, v);
        for (int64_t i = 0; i < n; i++) {
            float *to = s->left + (k + i) / width * width * w->block + t * width + (k + i) % width;
            for (int p = 0; p < PLACES; p++)
                to[p * s->next_left] = v[p / SIDE][p % SIDE][i];
        }
    }
}

ISA static void transform_right(const Winograd *w, const Scratch *s, const char *from, int64_t first,
                                int64_t t)
{
    Tile tile = find_tile(w, &w->from, SIDE, first + t);
    Source source[LANES];
    V v[SIDE][SIDE];
    int64_t width = w->panel.columns, channel = w->from.stride[1] * dtype_size[w->read];
    for (int64_t c = 0; c < s->columns; c += LANES) {
        float *to = s->right + c / width * width * w->block + t * width + c % width;
        FOR_TYPE(w->read, find_channels, &w->from, &tile, from + c * channel, w->in - c, source);
        FOR_TYPE(w->read, transform_tile, source, v);
        for (int p = 0; p < PLACES; p++)
            *(V *)(void *)(to + p * s->next_right) = v[p / SIDE][p % SIDE];
    }
}

/* Rows of a few panels at a place, n tiles. */
static void multiply(const Winograd *w, const Scratch *s, int64_t place, int64_t row, int64_t n, bool add)
{
    int64_t width = w->panel.rows, end = least(s->rows, row + w->groups * width);
    const float *left = s->left + place * s->next_left, *right = s->right + place * s->next_right;
    for (int64_t c = 0; c < s->columns; c += w->panel.columns)
        for (int64_t k = row; k < end; k += width)
            w->panel.multiply(n, left + k * w->block, right + c * w->block, w->panel.columns,
                              s->sums + place * s->next_sums + k * s->columns + c, s->columns, add);
}

/* ---- running ----------------------------------------------------------------------------------------- */

/* The windows between channel k of the result and n others. */
ISA static void store_windows(const Winograd *w, const Scratch *s, int64_t k, int64_t c, int64_t n, void *to)
{
    V m[SIDE], half[SIDE][WINDOW_SIDE], column[SIDE], o[WINDOW_SIDE];
    const float *from = s->sums + k * s->columns + c;
    for (int i = 0; i < SIDE; i++) {
        for (int j = 0; j < SIDE; j++)
            m[j] = *(const V *)(const void *)(from + (i * SIDE + j) * s->next_sums);
        to_window(half[i], m);
    }
    for (int x = 0; x < WINDOW_SIDE; x++) {
        for (int i = 0; i < SIDE; i++)
            column[i] = half[i][x];
        to_window(o, column);
        for (int y = 0; y < WINDOW_SIDE; y++)
            for (int64_t i = 0; i < n; i++)
                element_store(w->made, to, k * w->of_out + (c + i) * w->of_in + y * WINDOW_SIDE + x, o[y][i]);
    }
}

void winograd_weights_run(const Winograd *w, char *const at[SLOTS], float *scratch)
{
    Scratch s = scratch_of(w, scratch);
    int64_t rows = w->groups * w->panel.rows, parts = (s.rows + rows - 1) / rows;
#pragma omp parallel num_threads(w->threads)
    {
        for (int64_t first = 0; first < w->tiles; first += w->block) {
            int64_t n = least(w->block, w->tiles - first);
#pragma omp for schedule(static)
            for (int64_t t = 0; t < n; t++) {
                transform_left(w, &s, at[w->dst], first, t);
                transform_right(w, &s, at[w->src], first, t);
            }
#pragma omp for schedule(static)
            for (int64_t i = 0; i < PLACES * parts; i++)
                multiply(w, &s, i / parts, i % parts * rows, n, first > 0);
        }
#pragma omp for schedule(static)
        for (int64_t k = 0; k < w->out; k++)
            for (int64_t c = 0; c < w->in; c += LANES)
                store_windows(w, &s, k, c, least(LANES, w->in - c), at[WEIGHTS]);
    }
}
