/* winograd_last.c -- F(4x4, 3x3) (winograd.c) on channels-last images, with AVX-512.
 *
 * Vectors hold sixteen channels of a tile, as images have them.  Transformed tiles are stored, at each of the
 * 36 places, as groups of sixteen channels of all tiles of a block.  In convolutions and data gradients they
 * are the rows of products whose other factor is the weights as panels of columns; in gradients of weights,
 * which are summed over tiles, both factors are such tiles.
 *
 * Scratch of the former has the weights and, for each thread, a block and its products; of the latter the
 * sums and a block of each factor.  If there are fewer tiles than channels, it has all tiles instead, and for
 * each thread a panel of the weights, or of the sums. */
#include "winograd_tile.h"

#include <omp.h>

enum {
    WINDOW_TAPS = WINDOW_SIDE * WINDOW_SIDE,
    GROUP = 16, /* channels */
    PANEL_GROUPS = 2,
    PANEL_COLUMNS = PANEL_GROUPS * GROUP,
    TILE_ROWS = 12, /* tiles that are rows of a product, in registers */
    FEW_TILE_ROWS = 4,
    CHANNEL_ROWS = 8,
    BLOCK_BYTES = 512 << 10, /* bytes of the tiles of a block, in the second level of cache */
    LEAST_BLOCK = 48,        /* tiles of a block, which reads all weights */
    MOST_BLOCK = 96,
    TERMS_BYTES = 5 << 20, /* bytes of the tiles of both factors, in the third level of cache */
    LEAST_TERMS = 128,
    MOST_TERMS = 512,
    SUM_TERMS = 64 /* tiles summed in registers */
};

#ifdef __x86_64__
#define WIDE __attribute__((target("avx512f,avx512bw,avx512vl"), no_sanitize("address", "undefined")))
#else
#define WIDE __attribute__((no_sanitize("address", "undefined")))
#endif

typedef float G __attribute__((vector_size(4 * GROUP), aligned(4)));
typedef uint32_t GWords __attribute__((vector_size(4 * GROUP)));
typedef uint16_t GHalves __attribute__((vector_size(2 * GROUP), aligned(2)));

static int64_t groups_of(int64_t channels) { return ceil_div(channels, GROUP); }
static int64_t panels_of(int64_t channels) { return ceil_div(channels, PANEL_COLUMNS); }

/* ---- description --------------------------------------------------------------------------------- */

static int64_t clamp(int64_t n, int64_t low, int64_t high) { return n < low ? low : least(n, high); }

/* Works by panels or by blocks, whichever takes less memory.  In gradients of weights blocks decide the order
 * of sums, so the number of threads must not matter there. */
void winograd_last_cut(Winograd *w)
{
    int64_t read = groups_of(w->in), made = groups_of(w->out), tile = PLACES * GROUP * sizeof(float);
    int64_t most = clamp(BLOCK_BYTES / (read * tile), LEAST_BLOCK, MOST_BLOCK);
    int64_t blocks = round_up(ceil_div(w->tiles, most), w->threads);
    int64_t terms = least(clamp(TERMS_BYTES / ((read + made) * tile), LEAST_TERMS, MOST_TERMS), w->tiles);
    int64_t all = round_up(w->tiles, FEW_TILE_ROWS);
    w->by_panels =
        w->of_weights ? (w->tiles - terms) * (read + made) <= read * made * GROUP : all <= made * GROUP;
    w->block = w->by_panels    ? all
               : w->of_weights ? terms
                               : round_up(ceil_div(w->tiles, blocks), FEW_TILE_ROWS);
}

/* Floats from place to place, of tiles, weights, products and sums. */
static int64_t tiles_place(const Winograd *w, int64_t groups)
{
    return place_floats(w->block * groups * GROUP);
}

static int64_t panel_floats(const Winograd *w) { return PANEL_COLUMNS * groups_of(w->in) * GROUP; }

static int64_t weights_place(const Winograd *w)
{
    return place_floats(panel_floats(w) * (w->by_panels ? 1 : panels_of(w->out)));
}

static int64_t product_place(const Winograd *w)
{
    return place_floats(least(w->block, MOST_BLOCK) * PANEL_COLUMNS);
}

static int64_t sums_columns(const Winograd *w) { return panels_of(w->in) * PANEL_COLUMNS; }

static int64_t sums_place(const Winograd *w)
{
    return place_floats(sums_columns(w) * GROUP * (w->by_panels ? 1 : groups_of(w->out)));
}

/* The parts of scratch, in floats per place. */
typedef struct {
    int64_t left, right; /* tiles of the result's gradient (0: none); tiles of the input */
    int64_t factor;      /* weights, or sums */
    int64_t product;
} Parts;

static Parts parts_of(const Winograd *w)
{
    Parts p = {.right = tiles_place(w, groups_of(w->in)), .factor = weights_place(w)};
    p.product = product_place(w);
    if (w->of_weights)
        p = (Parts){tiles_place(w, groups_of(w->out)), tiles_place(w, PANEL_GROUPS * panels_of(w->in)),
                    sums_place(w), 0};
    return p;
}

static int64_t thread_floats(const Winograd *w)
{
    Parts p = parts_of(w);
    return PLACES * (w->by_panels ? p.factor + p.product : w->of_weights ? 0 : p.right + p.product);
}

static int64_t shared_floats(const Winograd *w)
{
    Parts p = parts_of(w);
    return PLACES * (w->by_panels    ? p.left + p.right
                     : w->of_weights ? p.left + p.right + p.factor
                                     : p.factor);
}

int64_t winograd_last_floats(const Winograd *w) { return shared_floats(w) + w->threads * thread_floats(w); }

/* ---- sixteen channels ---------------------------------------------------------------------------- */

/* Loads the first n channels of a group; the others are 0. */
WIDE ALWAYS static inline G load_group(const char *at, int64_t n, DType dt)
{
    if (dt == DT_F32) {
        if (n >= GROUP)
            return *(const G *)(const void *)at;
        G part = {0};
        memcpy(&part, at, (size_t)n * sizeof(float));
        return part;
    }
    GHalves half = {0};
    memcpy(&half, at, (size_t)least(n, GROUP) * sizeof(uint16_t));
    return (G)(__builtin_convertvector(half, GWords) << 16);
}

WIDE ALWAYS static inline void store_group(char *at, G x, int64_t n, DType dt)
{
    if (dt == DT_F32 && n >= GROUP) {
        *(G *)(void *)at = x;
    } else if (dt == DT_F32) {
        memcpy(at, &x, (size_t)n * sizeof(float));
    } else {
        GHalves half = __builtin_convertvector(BF16_WORDS(GWords, x), GHalves);
        memcpy(at, &half, (size_t)least(n, GROUP) * sizeof(uint16_t));
    }
}

#define OF_TYPE(dt, function, ...)                                                                           \
    ((dt) == DT_F32 ? function(__VA_ARGS__, DT_F32) : function(__VA_ARGS__, DT_BF16))

TRANSFORMS(G, WIDE ALWAYS, tile_to_places, result_to_places, window_to_places, places_to_result,
           places_to_window)

/* ---- tiles --------------------------------------------------------------------------------------- */

/* Addresses of the positions of a tile; those outside the image point to zeros, for all channels. */
typedef struct {
    const char *at[SIDE][SIDE];
    int64_t mask[SIDE][SIDE]; /* masks a channel's offset: all ones, or 0 outside the image */
    int64_t ahead;            /* bytes to the next tile */
} Positions;

static const char zeros[GROUP * sizeof(float)];

static void find_positions(const Winograd *w, const Images *of, int side, const char *from, int64_t t,
                           Positions *p)
{
    const Tile tile = find_tile(w, of, side, t);
    const int64_t size = dtype_size[w->read];
    p->ahead = TILE * of->stride[3] * size;
    for (int i = 0; i < side; i++)
        for (int j = 0; j < side; j++) {
            bool inside = i >= tile.top && i < tile.bottom && j >= tile.left && j < tile.right;
            int64_t at = tile.at + i * of->stride[2] + j * of->stride[3];
            p->at[i][j] = inside ? from + at * size : zeros;
            p->mask[i][j] = inside ? -1 : 0;
        }
}

/* Defines a function that transforms SIDE_ rows and columns of a group to the places. */
#define TRANSFORM(name, SIDE_, to_places)                                                                    \
    WIDE ALWAYS static inline void name(const Positions *p, int64_t offset, int64_t n, float *to,            \
                                        int64_t place, DType dt)                                             \
    {                                                                                                        \
        G half[SIDE_][SIDE];                                                                                 \
        for (int i = 0; i < SIDE_; i++) {                                                                    \
            G d[SIDE_];                                                                                      \
            UNROLL for (int j = 0; j < SIDE_; j++) d[j] =                                                    \
                load_group(p->at[i][j] + (offset & p->mask[i][j]), n, dt);                                   \
            UNROLL for (int j = SIDE_ - TILE; j < SIDE_; j++)                                                \
                __builtin_prefetch(p->at[i][j] + offset + p->ahead);                                         \
            to_places(half[i], d);                                                                           \
        }                                                                                                    \
        for (int x = 0; x < SIDE; x++, to += place) {                                                        \
            G column[SIDE_], o[SIDE];                                                                        \
            UNROLL for (int i = 0; i < SIDE_; i++) column[i] = half[i][x];                                   \
            to_places(o, column);                                                                            \
            UNROLL for (int i = 0; i < SIDE; i++) * (G *)(void *)(to + i * SIDE * place) = o[i];             \
        }                                                                                                    \
    }
TRANSFORM(transform_read, SIDE, tile_to_places)
TRANSFORM(transform_made, TILE, result_to_places)

/* Defines a function that transforms tile t of the images, in `groups` groups, as tile b of the block. */
#define TILE_OF(name, of, channels, side, transform)                                                         \
    WIDE ALWAYS static inline void name##_as(const Winograd *w, const char *from, int64_t t, int64_t b,      \
                                             int64_t groups, float *to, DType dt)                            \
    {                                                                                                        \
        const int64_t place = tiles_place(w, groups);                                                        \
        Positions p;                                                                                         \
        find_positions(w, &w->of, side, from, t, &p);                                                        \
        to += b * GROUP;                                                                                     \
        for (int64_t c = 0; c < groups * GROUP; c += GROUP, to += w->block * GROUP) {                        \
            if (c + GROUP <= w->channels)                                                                    \
                transform(&p, c * dtype_size[dt], GROUP, to, place, dt);                                     \
            else                                                                                             \
                transform(&p, c * dtype_size[dt], c < w->channels ? w->channels - c : 0, to, place, dt);     \
        }                                                                                                    \
    }                                                                                                        \
    WIDE static void name(const Winograd *w, const char *from, int64_t t, int64_t b, int64_t groups,         \
                          float *to)                                                                         \
    {                                                                                                        \
        OF_TYPE(w->read, name##_as, w, from, t, b, groups, to);                                              \
    }
TILE_OF(read_tile, from, in, SIDE, transform_read)
TILE_OF(made_tile, to, out, TILE, transform_made)

/* ---- products ------------------------------------------------------------------------------------ */

/* Defines a function that multiplies ROWS tiles by a panel of weights, over all groups of channels. */
#define MULTIPLY_TILES(name, ROWS)                                                                           \
    WIDE static void name(int64_t groups, const float *a, int64_t next, const float *b, float *c)            \
    {                                                                                                        \
        G sum[ROWS][PANEL_GROUPS] = {{{0}}};                                                                 \
        for (int64_t g = 0; g < groups; g++, a += next)                                                      \
            for (int64_t k = 0; k < GROUP; k++, b += PANEL_COLUMNS)                                          \
                UNROLL for (int i = 0; i < ROWS; i++) UNROLL for (int v = 0; v < PANEL_GROUPS; v++)          \
                    sum[i][v] += a[i * GROUP + k] * ((const G *)(const void *)b)[v];                         \
        UNROLL for (int i = 0; i < ROWS; i++)                                                                \
            UNROLL for (int v = 0; v < PANEL_GROUPS; v++)((G *)(void *)c)[i * PANEL_GROUPS + v] = sum[i][v]; \
    }
MULTIPLY_TILES(multiply_tiles, TILE_ROWS)
MULTIPLY_TILES(multiply_few, FEW_TILE_ROWS)

/* Multiplies CHANNEL_ROWS channels of the result's gradient by PANEL_GROUPS groups of input channels, summed
 * over n tiles. */
WIDE static void multiply_channels(int64_t n, const float *a, const float *b, int64_t next, float *c,
                                   int64_t stride, bool add)
{
    G sum[CHANNEL_ROWS][PANEL_GROUPS] = {{{0}}};
    for (int64_t k = 0; k < n; k++, a += GROUP, b += GROUP)
        UNROLL for (int i = 0; i < CHANNEL_ROWS; i++) UNROLL for (int v = 0; v < PANEL_GROUPS; v++)
            sum[i][v] += a[i] * *(const G *)(const void *)(b + v * next);
    UNROLL for (int i = 0; i < CHANNEL_ROWS; i++) UNROLL for (int v = 0; v < PANEL_GROUPS; v++)
    {
        G *at = (G *)(void *)(c + i * stride + v * GROUP);
        *at = add ? *at + sum[i][v] : sum[i][v];
    }
}

/* ---- convolutions and gradients of data ------------------------------------------------------------ */

/* Loads the windows between a group of output and a group of input channels as [input][tap], vectors of
 * output channels. */
WIDE ALWAYS static inline void load_windows(const Winograd *w, const char *from, int64_t made, int64_t read,
                                            G windows[GROUP * WINDOW_TAPS], DType dt)
{
    const int64_t size = dt == DT_F32 ? sizeof(float) : sizeof(uint16_t);
    const bool whole = made + GROUP <= w->out && read + GROUP <= w->in;
    G r[GROUP];
    from += (made * w->of_out + read * w->of_in) * size;
    if (whole && w->of_in == WINDOW_TAPS) {
        for (int64_t k = 0; k < WINDOW_TAPS; k++) {
            UNROLL for (int i = 0; i < GROUP; i++) r[i] =
                load_group(from + (i * w->of_out + k * GROUP) * size, GROUP, dt);
            TRANSPOSE(G, r, GROUP, ALL_16)
            UNROLL for (int i = 0; i < GROUP; i++) windows[k * GROUP + i] = r[i];
        }
    } else if (whole && w->of_out == WINDOW_TAPS) {
        for (int64_t k = 0; k < GROUP; k++) {
            UNROLL for (int i = 0; i < GROUP; i++) r[i] = load_group(
                from + (k * w->of_in + i * WINDOW_TAPS) * size, i < GROUP - 1 ? GROUP : WINDOW_TAPS, dt);
            TRANSPOSE(G, r, GROUP, ALL_16)
            UNROLL for (int i = 0; i < WINDOW_TAPS; i++) windows[k * WINDOW_TAPS + i] = r[i];
        }
    } else {
        memset(windows, 0, GROUP * WINDOW_TAPS * sizeof *windows);
        for (int64_t i = 0; i < least(GROUP, w->out - made); i++)
            for (int64_t k = 0; k < least(GROUP, w->in - read); k++)
                for (int64_t p = 0; p < WINDOW_TAPS; p++)
                    windows[k * WINDOW_TAPS + p][i] =
                        element_load(dt, from, i * w->of_out + k * w->of_in + p);
    }
}

/* Transforms the windows of such groups; to: the panel of the output group. */
WIDE static void transform_weights(const Winograd *w, const void *from, int64_t group, int64_t read,
                                   float *to)
{
    G windows[GROUP * WINDOW_TAPS];
    OF_TYPE(w->read, load_windows, w, from, group * GROUP, read, windows);
    to += read * PANEL_COLUMNS + group % PANEL_GROUPS * GROUP;
    for (const G *at = windows; at < windows + GROUP * WINDOW_TAPS; at += WINDOW_TAPS, to += PANEL_COLUMNS) {
        G g[WINDOW_SIDE], half[WINDOW_SIDE][SIDE];
        UNROLL for (int i = 0; i < WINDOW_SIDE; i++)
        {
            UNROLL for (int j = 0; j < WINDOW_SIDE; j++) g[j] =
                at[w->flip ? WINDOW_TAPS - 1 - i * WINDOW_SIDE - j : i * WINDOW_SIDE + j];
            window_to_places(half[i], g);
        }
        UNROLL for (int x = 0; x < SIDE; x++)
        {
            G column[WINDOW_SIDE], o[SIDE];
            UNROLL for (int i = 0; i < WINDOW_SIDE; i++) column[i] = half[i][x];
            window_to_places(o, column);
            UNROLL for (int i = 0; i < SIDE; i++) * (G *)(void *)(to + (i * SIDE + x) * weights_place(w)) =
                o[i];
        }
    }
}

/* Multiplies n tiles by a panel of weights, at all places. */
static void multiply_panel(const Winograd *w, const float *weights, const float *tiles, int64_t n, float *to)
{
    int64_t groups = groups_of(w->in), next = w->block * GROUP;
    for (int64_t p = 0; p < PLACES; p++) {
        const float *a = tiles + p * tiles_place(w, groups), *b = weights + p * weights_place(w);
        float *c = to + p * product_place(w);
        int64_t t = 0;
        for (; t + TILE_ROWS <= n; t += TILE_ROWS)
            multiply_tiles(groups, a + t * GROUP, next, b, c + t * PANEL_COLUMNS);
        for (; t < n; t += FEW_TILE_ROWS)
            multiply_few(groups, a + t * GROUP, next, b, c + t * PANEL_COLUMNS);
    }
}

/* Transforms the products of n channels of a tile back and stores the rows and columns inside the image. */
WIDE ALWAYS static inline void store_result(const Winograd *w, const float *from, int64_t place, char *to,
                                            int rows, int columns, int64_t n, G bias, DType dt)
{
    const int64_t size = dt == DT_F32 ? sizeof(float) : sizeof(uint16_t);
    const int64_t row = w->to.stride[2] * size, column = w->to.stride[3] * size;
    G half[SIDE][TILE];
    for (int i = 0; i < SIDE; i++, from += SIDE * place) {
        G m[SIDE];
        UNROLL for (int j = 0; j < SIDE; j++) m[j] = *(const G *)(const void *)(from + j * place);
        places_to_result(half[i], m);
    }
    for (int x = 0; x < columns; x++, to += column) {
        G m[SIDE], o[TILE];
        UNROLL for (int i = 0; i < SIDE; i++) m[i] = half[i][x];
        places_to_result(o, m);
        UNROLL for (int i = 0; i < TILE; i++) if (i < rows) store_group(to + i * row, o[i] + bias, n, dt);
    }
}

WIDE ALWAYS static inline void store_panel(const Winograd *w, const float *from, int64_t panel, int64_t first,
                                           int64_t n, const void *bias, char *to, DType dt)
{
    const int64_t size = dt == DT_F32 ? sizeof(float) : sizeof(uint16_t);
    for (int64_t g = 0; g < PANEL_GROUPS; g++) {
        int64_t channel = (panel * PANEL_GROUPS + g) * GROUP, channels = least(GROUP, w->out - channel);
        G added = {0};
        for (int64_t c = 0; c < channels && bias; c++)
            added[c] = element_load(w->read, bias, channel + c);
        for (int64_t t = 0; t < n && channels > 0; t++) {
            Tile tile = find_tile(w, &w->to, TILE, first + t);
            char *at = to + (tile.at + channel) * size;
            const float *product = from + t * PANEL_COLUMNS + g * GROUP;
            if (tile.whole && channels == GROUP)
                store_result(w, product, product_place(w), at, TILE, TILE, GROUP, added, dt);
            else
                store_result(w, product, product_place(w), at, tile.bottom, tile.right, channels, added, dt);
        }
    }
}

WIDE static void run_panel(const Winograd *w, char *const at[SLOTS], const float *weights, const float *tiles,
                           int64_t panel, int64_t first, int64_t n, float *product)
{
    multiply_panel(w, weights, tiles, round_up(n, FEW_TILE_ROWS), product);
    OF_TYPE(w->made, store_panel, w, product, panel, first, n, w->bias ? at[BIAS] : NULL, at[w->dst]);
}

static void run_block(const Winograd *w, char *const at[SLOTS], const float *weights, int64_t first,
                      float *scratch)
{
    int64_t groups = groups_of(w->in), n = least(w->block, w->tiles - first);
    for (int64_t t = 0; t < round_up(n, FEW_TILE_ROWS); t++)
        read_tile(w, at[w->src], first + t, t, groups, scratch);
    for (int64_t p = 0; p < panels_of(w->out); p++)
        run_panel(w, at, weights + p * panel_floats(w), scratch, p, first, n,
                  scratch + PLACES * tiles_place(w, groups));
}

static void weights_panel(const Winograd *w, const void *from, int64_t panel, float *to)
{
    for (int64_t k = panel * PANEL_GROUPS; k < (panel + 1) * PANEL_GROUPS; k++)
        for (int64_t c = 0; c < groups_of(w->in); c++)
            transform_weights(w, from, k, c * GROUP, to);
}

static void run_images(const Winograd *w, char *const at[SLOTS], float *weights, float *threads)
{
#pragma omp parallel num_threads(w->threads)
    {
#pragma omp for schedule(static)
        for (int64_t p = 0; p < panels_of(w->out); p++)
            weights_panel(w, at[WEIGHTS], p, weights + p * panel_floats(w));
#pragma omp for schedule(static)
        for (int64_t t = 0; t < w->tiles; t += w->block)
            run_block(w, at, weights, t, threads + omp_get_thread_num() * thread_floats(w));
    }
}

static void run_images_by_panels(const Winograd *w, char *const at[SLOTS], float *tiles, float *threads)
{
#pragma omp parallel num_threads(w->threads)
    {
        float *weights = threads + omp_get_thread_num() * thread_floats(w);
#pragma omp for schedule(static)
        for (int64_t t = 0; t < w->block; t++)
            read_tile(w, at[w->src], t, t, groups_of(w->in), tiles);
#pragma omp for schedule(static)
        for (int64_t p = 0; p < panels_of(w->out); p++) {
            weights_panel(w, at[WEIGHTS], p, weights);
            for (int64_t t = 0; t < w->tiles; t += MOST_BLOCK)
                run_panel(w, at, weights, tiles + t * GROUP, p, t, least(MOST_BLOCK, w->tiles - t),
                          weights + PLACES * weights_place(w));
        }
    }
}

/* ---- gradients of weights -------------------------------------------------------------------------- */

/* Transforms sums back and stores the windows between output channel k and a group of input channels. */
WIDE static void store_windows(const Winograd *w, const float *from, int64_t k, int64_t c, void *to)
{
    G half[SIDE][WINDOW_SIDE];
    for (int i = 0; i < SIDE; i++, from += SIDE * sums_place(w)) {
        G m[SIDE];
        UNROLL for (int j = 0; j < SIDE; j++) m[j] = *(const G *)(const void *)(from + j * sums_place(w));
        places_to_window(half[i], m);
    }
    for (int x = 0; x < WINDOW_SIDE; x++) {
        G column[SIDE], o[WINDOW_SIDE];
        for (int i = 0; i < SIDE; i++)
            column[i] = half[i][x];
        places_to_window(o, column);
        for (int y = 0; y < WINDOW_SIDE; y++)
            for (int64_t i = 0; i < least(GROUP, w->in - c); i++)
                element_store(w->made, to, k * w->of_out + (c + i) * w->of_in + y * WINDOW_SIDE + x, o[y][i]);
    }
}

/* Stores the windows of group k of output channels, from its sums. */
static void store_group_windows(const Winograd *w, const float *sums, int64_t k, void *to)
{
    for (int64_t r = 0; r < least(GROUP, w->out - k * GROUP); r++)
        for (int64_t c = 0; c < w->in; c += GROUP)
            store_windows(w, sums + r * sums_columns(w) + c, k * GROUP + r, c, to);
}

/* Sums the products of a group of output channels at a place over n tiles, SUM_TERMS at a time, as long sums
 * in registers are less exact. */
static void sum_group(const Winograd *w, const float *left, const float *right, int64_t n, float *sums,
                      bool add)
{
    int64_t next = w->block * GROUP;
    for (int64_t t = 0; t < n; t += SUM_TERMS)
        for (int64_t c = 0; c < sums_columns(w); c += PANEL_COLUMNS)
            for (int64_t r = 0; r < GROUP; r += CHANNEL_ROWS)
                multiply_channels(least(SUM_TERMS, n - t), left + t * GROUP + r,
                                  right + c / GROUP * next + t * GROUP, next, sums + r * sums_columns(w) + c,
                                  sums_columns(w), add || t > 0);
}

/* By blocks, threads share the places and groups of channels of each block; by panels, each thread sums all
 * tiles for some groups of channels. */
static void run_weights(const Winograd *w, char *const at[SLOTS], float *shared, float *threads)
{
    const Parts parts = parts_of(w);
    const int64_t rows = groups_of(w->out), columns = PANEL_GROUPS * panels_of(w->in);
    const int64_t next = w->block * GROUP, row = GROUP * sums_columns(w);
    float *left = shared, *right = left + PLACES * parts.left, *sums = right + PLACES * parts.right;
#pragma omp parallel num_threads(w->threads)
    {
        float *own = threads + omp_get_thread_num() * thread_floats(w);
        for (int64_t first = 0; first < w->tiles; first += w->block) {
            int64_t n = least(w->block, w->tiles - first);
#pragma omp for schedule(static)
            for (int64_t t = 0; t < n; t++) {
                made_tile(w, at[w->dst], first + t, t, rows, left);
                read_tile(w, at[w->src], first + t, t, columns, right);
            }
            if (w->by_panels)
                break;
#pragma omp for schedule(static)
            for (int64_t i = 0; i < PLACES * rows; i++) {
                int64_t p = i / rows, k = i % rows;
                sum_group(w, left + p * parts.left + k * next, right + p * parts.right, n,
                          sums + p * parts.factor + k * row, first > 0);
            }
        }
#pragma omp for schedule(static)
        for (int64_t k = 0; k < rows; k++) {
            float *of_group = w->by_panels ? own : sums + k * row;
            for (int64_t p = 0; p < PLACES && w->by_panels; p++)
                sum_group(w, left + p * parts.left + k * next, right + p * parts.right, w->tiles,
                          of_group + p * parts.factor, false);
            store_group_windows(w, of_group, k, at[WEIGHTS]);
        }
    }
}

void winograd_last_run(const Winograd *w, char *const at[SLOTS], float *scratch)
{
    (w->of_weights  ? run_weights
     : w->by_panels ? run_images_by_panels
                    : run_images)(w, at, scratch, scratch + shared_floats(w));
}
