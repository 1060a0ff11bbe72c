/* winograd_weights.c -- gradients of weights of 3x3 convolutions: F(4x4, 3x3) (winograd.c) transposed.
 * Tiles of 6x6 of the convolution's input and of 4x4 of its result's gradient are transformed; at each of 36
 * places they are the factors of a product, which is summed over all tiles and transformed back to windows of
 * 3x3.
 *
 * Scratch has the sums, and the transformed tiles of a block as panels, of rows for the result's gradient and
 * of columns for the input; or, if that is less, all tiles, and for each thread the sums of a few panels.
 * Vectors hold eight channels of a tile.  SUM_TERMS tiles at a time are summed in registers, then added to
 * the sums before. */
#include "winograd_tile.h"

#include <omp.h>

enum {
    ROWS = 6, /* rows of a panel; of eight rows from a multiple of 8 on, 6, 4 or 2 are in the first panel */
    BLOCK_TERMS = 128, /* tiles of a block */
    SUM_TERMS = 64     /* tiles summed in registers */
};

typedef struct {
    int64_t rows, columns;      /* channels in whole panels */
    int64_t sum_rows;           /* how many of the rows have sums in scratch at a time */
    float *sums, *left, *right; /* per place: [sum_rows, columns]; panels of rows; panels of columns */
    int64_t next_sums, next_left, next_right; /* floats from place to place */
} Scratch;

static Scratch scratch_of(const Winograd *w, float *at)
{
    Scratch s = {.rows = round_up(w->out, w->panel.rows), .columns = round_up(w->in, w->panel.columns)};
    s.sum_rows = w->by_panels ? least(w->groups * w->panel.rows, s.rows) : s.rows;
    s.next_sums = place_floats(s.sum_rows * s.columns);
    s.next_left = place_floats(s.rows * w->block);
    s.next_right = place_floats(s.columns * w->block);
    s.left = at;
    s.right = s.left + PLACES * s.next_left;
    s.sums = s.right + PLACES * s.next_right;
    return s;
}

/* The number of threads must not matter here, since blocks decide the order of sums. */
void winograd_weights_cut(Winograd *w)
{
    w->by_panels = (w->tiles - BLOCK_TERMS) * (w->in + w->out) <= w->in * w->out;
    w->block = w->by_panels ? w->tiles : BLOCK_TERMS;
}

int64_t winograd_weights_floats(const Winograd *w)
{
    Scratch s = scratch_of(w, NULL);
    return PLACES * (s.next_left + s.next_right + (w->by_panels ? w->threads : 1) * s.next_sums);
}

/* ---- transforms of eight at a time --------------------------------------------------------------- */

/* Finds a tile of eight channels, of which n exist; the others are empty. */
ISA ALWAYS static inline void find_channels(const Images *of, const Tile *tile, const char *from, int64_t n,
                                            Source source[LANES], DType dt)
{
    static const Tile nothing;
    for (int64_t c = 0; c < LANES; c++)
        find_source(of, c < n ? tile : &nothing, from + c * of->stride[1] * dtype_size[dt], &source[c], dt);
}

ISA ALWAYS static inline void transform_result(const Source channel[LANES], V v[SIDE][SIDE], DType dt)
{
    V half[TILE][SIDE];
    for (int i = 0; i < TILE; i++) {
        V y[TILE];
        load_four(channel, i, 0, y, dt);
        of_result(half[i], y);
    }
    transform_columns(of_result, TILE, half, v);
}

/* ---- a block of tiles -------------------------------------------------------------------------------- */

/* Stores rows of a term at all places, from row r of a panel on: eight, or only those of this panel.  next:
 * floats from there to row 0 of the next panel. */
ISA ALWAYS static inline void store_rows(V v[SIDE][SIDE], int r, bool eight, float *to, int64_t place,
                                     int64_t next)
{
    const size_t n = (size_t)(ROWS - r);
    for (int i = 0; i < SIDE; i++)
        for (int x = 0; x < SIDE; x++, to += place) {
            memcpy(to, &v[i][x], n * sizeof(float));
            if (eight)
                memcpy(to + next, (const char *)&v[i][x] + n * sizeof(float), (LANES - n) * sizeof(float));
        }
}

/* Transforms tile t of the block, all channels of the result's gradient, as term t of the panels of rows. */
ISA static void transform_left(const Winograd *w, const Scratch *s, const char *from, int64_t first,
                               int64_t t)
{
    Tile tile = find_tile(w, &w->to, TILE, first + t);
    Source source[LANES];
    V v[SIDE][SIDE];
    const int64_t channel = w->to.stride[1] * dtype_size[w->read], place = s->next_left;
    for (int64_t k = 0; k < s->rows; k += LANES) {
        const int64_t r = k % ROWS, next = w->block * ROWS - r;
        const bool eight = k + LANES <= s->rows; /* if not, the panel is the last one */
        float *to = s->left + (k / ROWS * w->block + t) * ROWS + r;
        FOR_TYPE(w->read, find_channels, &w->to, &tile, from + k * channel, w->out - k, source);
        FOR_TYPE(w->read, transform_result, source, v);
        if (r == 0)
            store_rows(v, 0, eight, to, place, next);
        else if (r == 2)
            store_rows(v, 2, eight, to, place, next);
        else
            store_rows(v, 4, eight, to, place, next);
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
        for (int i = 0; i < SIDE; i++)
            UNROLL for (int x = 0; x < SIDE; x++, to += s->next_right) *(V *)(void *)to = v[i][x];
    }
}

/* Sums the products of a few panels of rows at a place over the first n tiles of the block; sums: those of
 * the first row. */
static void multiply(const Winograd *w, const Scratch *s, int64_t place, int64_t row, int64_t n, float *sums,
                     bool add)
{
    int64_t width = w->panel.rows, columns = w->panel.columns, end = least(s->rows, row + w->groups * width);
    const float *left = s->left + place * s->next_left, *right = s->right + place * s->next_right;
    sums += place * s->next_sums;
    for (int64_t t = 0; t < n; t += SUM_TERMS)
        for (int64_t c = 0; c < s->columns; c += columns)
            for (int64_t k = row; k < end; k += width)
                w->panel.multiply(least(SUM_TERMS, n - t), left + k * w->block + t * width,
                                  right + c * w->block + t * columns, columns,
                                  sums + (k - row) * s->columns + c, s->columns, add || t > 0);
}

/* ---- running ----------------------------------------------------------------------------------------- */

/* Transforms sums back and stores the windows between output channel k, whose sums these are, and n input
 * channels from c on. */
ISA static void store_windows(const Winograd *w, const Scratch *s, const float *sums, int64_t k, int64_t c,
                              int64_t n, void *to)
{
    V m[SIDE], half[SIDE][WINDOW_SIDE], column[SIDE], o[WINDOW_SIDE];
    const float *from = sums + c;
    for (int i = 0; i < SIDE; i++) {
        UNROLL for (int j = 0; j < SIDE; j++) m[j] =
            *(const V *)(const void *)(from + (i * SIDE + j) * s->next_sums);
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

static void store_channel(const Winograd *w, const Scratch *s, const float *sums, int64_t k, void *to)
{
    for (int64_t c = 0; c < w->in; c += LANES)
        store_windows(w, s, sums, k, c, least(LANES, w->in - c), to);
}

static void run_by_blocks(const Winograd *w, const Scratch *s, char *const at[SLOTS])
{
    int64_t rows = w->groups * w->panel.rows, parts = ceil_div(s->rows, rows);
#pragma omp parallel num_threads(w->threads)
    {
        for (int64_t first = 0; first < w->tiles; first += w->block) {
            int64_t n = least(w->block, w->tiles - first);
#pragma omp for schedule(static)
            for (int64_t t = 0; t < n; t++) {
                transform_left(w, s, at[w->dst], first, t);
                transform_right(w, s, at[w->src], first, t);
            }
#pragma omp for schedule(static)
            for (int64_t i = 0; i < PLACES * parts; i++) {
                int64_t row = i % parts * rows;
                multiply(w, s, i / parts, row, n, s->sums + row * s->columns, first > 0);
            }
        }
#pragma omp for schedule(static)
        for (int64_t k = 0; k < w->out; k++)
            store_channel(w, s, s->sums + k * s->columns, k, at[WEIGHTS]);
    }
}

static void run_by_panels(const Winograd *w, const Scratch *s, char *const at[SLOTS])
{
#pragma omp parallel num_threads(w->threads)
    {
        float *sums = s->sums + omp_get_thread_num() * PLACES * s->next_sums;
#pragma omp for schedule(static)
        for (int64_t t = 0; t < w->tiles; t++) {
            transform_left(w, s, at[w->dst], 0, t);
            transform_right(w, s, at[w->src], 0, t);
        }
#pragma omp for schedule(static)
        for (int64_t row = 0; row < s->rows; row += s->sum_rows) {
            for (int64_t p = 0; p < PLACES; p++)
                multiply(w, s, p, row, w->tiles, sums, false);
            for (int64_t k = row; k < least(row + s->sum_rows, w->out); k++)
                store_channel(w, s, sums + (k - row) * s->columns, k, at[WEIGHTS]);
        }
    }
}

void winograd_weights_run(const Winograd *w, char *const at[SLOTS], float *scratch)
{
    Scratch s = scratch_of(w, scratch);
    (w->by_panels ? run_by_panels : run_by_blocks)(w, &s, at);
}
