/* tiled_weights.c -- see tiled_weights.h.
 *
 * The positions of an image are copied to a sequence, row after row, with zeros where the window reaches over
 * the edge: then what a tap of the window reads lies a fixed number of positions away, and the tap's gradient
 * is one product over all positions.  The factors are the channels of the result's gradient as rows, and
 * pairs of positions of the image, in two copies, of which one begins at the second position.  So each tap
 * finds its pairs as whole cache lines, and up to three adjacent taps read the same ones.
 *
 * A block of the batch (images, or rows of one image) is copied at a time; then each thread computes some of
 * the products, which are added to those of the blocks before.  If there is only one block, a thread stores a
 * product as soon as it is complete. */
#include "tiled_weights.h"
#include "element.h"
#include "pack.h"

#include <omp.h>

enum {
    SIDE = 16,       /* channels of a tile */
    STEP = 2 * SIDE, /* positions of a tile */
    ROWS = 2 * SIDE, /* channels of the result in a product */
    TAPS = 3,        /* adjacent taps in a product, at most */
    TILE_WORDS = SIDE * SIDE,
    BLOCK_BYTES = 1 << 19, /* size of the copies of a block, about */
    LEAST_PLACES = 1024,   /* positions of a block, so that computing it takes longer than adding it up */
    MOST_PLACES = 4096     /* positions of an image in a block, about */
};

#ifdef __x86_64__
#include "codegen/prelude/tiles.h"

#define PLAIN __attribute__((no_sanitize("address", "undefined")))
#define ISA __attribute__((target("avx512f"))) PLAIN

typedef uint32_t Words __attribute__((vector_size(4 * SIDE), aligned(4), may_alias));
typedef uint16_t Halves __attribute__((vector_size(2 * SIDE), aligned(2), may_alias));

/* Scratch.  rows: for each SIDE channels of the result's gradient all tiles, image by image; pairs: for each
 * SIDE channels of the input, image by image, the pairs from the first position on, then those from the
 * second; sums: [tap, result, input] for ROWS channels of the result and SIDE of the input, for all of these
 * or, if there is one block, for each thread; room: a buffer for each thread. */
typedef struct {
    uint32_t *rows, *pairs;
    float *sums;
    uint32_t *room;
    int64_t next_rows, next_pairs, next_sums, next_room, bytes; /* distances in words; bytes: size of all */
} Scratch;

static int64_t taps(const TiledWeights *w) { return w->window[0] * w->window[1]; }

static bool is_whole(const TiledWeights *w)
{
    return w->block_images == w->images && w->block_rows == w->to_size[0];
}

static Scratch scratch_of(const TiledWeights *w, void *at)
{
    Scratch s = {.next_rows = w->block_images * w->places / 2 * SIDE,
                 .next_pairs = w->block_images * 2 * w->pairs * SIDE,
                 .next_sums = taps(w) * ROWS * SIDE,
                 .next_room = SIDE * (w->pairs + SIDE)};
    s.rows = at;
    s.pairs = s.rows + ceil_div(w->out, SIDE) * s.next_rows;
    s.sums = (float *)(void *)(s.pairs + ceil_div(w->in, SIDE) * s.next_pairs);
    const int64_t units = ceil_div(w->in, SIDE) * ceil_div(w->out, ROWS);
    s.room = (uint32_t *)(void *)s.sums + (is_whole(w) ? w->threads : units) * s.next_sums;
    s.bytes = (char *)(s.room + w->threads * s.next_room) - (char *)at;
    return s;
}

/* ---- copies of a block ------------------------------------------------------------------------------- */

/* An image to copy as a sequence of positions; first: row of the first position; pad: columns of zeros in
 * front; pitch: positions per row. */
typedef struct {
    const uint16_t *from;            /* the first of n channels */
    int64_t n, channel, row, column; /* strides */
    int64_t rows, columns, first, pad, pitch;
} Image;

/* Copies positions of SIDE channels, whose columns are adjacent in memory, to rows `apart` words apart. */
static void copy_rows(const Image *m, int64_t positions, uint32_t *to, int64_t apart)
{
    for (int64_t c = 0; c < SIDE; c++) {
        uint16_t *row = (uint16_t *)(void *)(to + c * apart);
        memset(row, 0, (size_t)positions * sizeof *row);
        for (int64_t at = m->pad, y = m->first; at < positions && c < m->n; at += m->pitch, y++)
            if (y >= 0 && y < m->rows)
                memcpy(row + at, m->from + c * m->channel + y * m->row,
                       (size_t)least(m->columns, positions - at) * sizeof *row);
    }
}

ISA static inline Words load(const uint16_t *at, int64_t n)
{
    Halves v = {0};
    if (at && n == SIDE)
        v = *(const Halves *)at;
    else if (at)
        memcpy(&v, at, (size_t)n * sizeof *at);
    return __builtin_convertvector(v, Words);
}

typedef struct {
    int64_t y, x;
} Place;

static inline bool is_inside(const Image *m, Place p)
{
    return p.y >= 0 && p.y < m->rows && p.x >= 0 && p.x < m->columns;
}

static inline void move_on(const Image *m, Place *p, int64_t by)
{
    p->x += by;
    if (p->x == m->pitch - m->pad)
        *p = (Place){p->y + 1, -m->pad};
}

/* Address of the channels of position p, which moves on to the next one; NULL: they are zeros. */
static inline const uint16_t *next_place(const Image *m, Place *p)
{
    const uint16_t *at = is_inside(m, *p) ? m->from + p->y * m->row + p->x * m->column : NULL;
    move_on(m, p, 1);
    return at;
}

/* Packs pairs of positions, of channels adjacent in memory: pairs from the first position on and, unless
 * `second` is NULL, those from the second position on. */
ISA static void join_pairs(const Image *m, int64_t pairs, uint32_t *first, uint32_t *second)
{
    Place p = {m->first, -m->pad};
    Words even = load(next_place(m, &p), m->n), odd;
    for (int64_t k = 0, run; k < pairs; k += run) {
        const uint16_t *at = m->from + p.y * m->row + p.x * m->column;
        run = m->n == SIDE && is_inside(m, p) ? least((m->columns - p.x) / 2, pairs - k) : 0;
        for (int64_t i = k; i < k + run; i++, at += 2 * m->column) {
            odd = load(at, SIDE);
            *(Words *)(first + i * SIDE) = even | odd << 16;
            even = load(at + m->column, SIDE);
            if (second)
                *(Words *)(second + i * SIDE) = odd | even << 16;
        }
        if (run > 0) {
            move_on(m, &p, 2 * run);
            continue;
        }
        run = 1;
        odd = load(next_place(m, &p), m->n);
        *(Words *)(first + k * SIDE) = even | odd << 16;
        even = load(next_place(m, &p), m->n);
        if (second)
            *(Words *)(second + k * SIDE) = odd | even << 16;
    }
}

/* Transposes tiles of SIDE rows, `apart` words apart, of SIDE words; next: words from tile to tile. */
ISA static void turn(const uint32_t *from, int64_t apart, int64_t next, int64_t tiles, uint32_t *to)
{
    for (int64_t k = 0; k < tiles; k++, from += next, to += TILE_WORDS) {
        Words r[SIDE];
        UNROLL for (int i = 0; i < SIDE; i++) r[i] = *(const Words *)(from + i * apart);
        TRANSPOSE(Words, r, SIDE, ALL_16)
        UNROLL for (int i = 0; i < SIDE; i++) * (Words *)(to + i * SIDE) = r[i];
    }
}

static Image image_of(const int64_t stride[4], const char *at, int64_t image, int64_t channel,
                      int64_t channels)
{
    const uint16_t *from = (const uint16_t *)(const void *)at + image * stride[0] + channel * stride[1];
    return (Image){from, least(SIDE, channels - channel), stride[1], stride[2], stride[3], 0, 0, 0, 0, 0};
}

/* Copies SIDE channels of an input image, from the row on that the first tap reads for result row `row`. */
static void copy_read(const TiledWeights *w, const char *at, int64_t image, int64_t channel, int64_t row,
                      uint32_t *to, uint32_t *room)
{
    Image m = image_of(w->from_stride, at, image, channel, w->in);
    m.rows = w->from_size[0], m.columns = w->from_size[1], m.pitch = w->pitch;
    m.first = row - w->pad[0], m.pad = w->pad[1];
    const int64_t apart = w->pairs + SIDE;
    if (m.column == 1)
        copy_rows(&m, 2 * apart, room, apart);
    else
        join_pairs(&m, w->pairs, to, to + w->pairs * SIDE);
    for (int second = 0; second < 2 && m.column == 1; second++, to += w->pairs * SIDE)
        turn((uint32_t *)(void *)((uint16_t *)(void *)room + second), apart, SIDE, w->pairs / SIDE, to);
}

/* Copies SIDE channels of an image of the result's gradient: `rows` rows from `row` on. */
static void copy_gradient(const TiledWeights *w, const char *at, int64_t image, int64_t channel, int64_t row,
                          int64_t rows, uint32_t *to, uint32_t *room)
{
    Image m = image_of(w->to_stride, at, image, channel, w->out);
    m.rows = row + rows, m.columns = w->to_size[1], m.first = row, m.pitch = w->pitch;
    const int64_t tiles = w->places / STEP, apart = w->places / 2;
    if (m.column != 1) {
        join_pairs(&m, w->places / 2, room, NULL);
        turn(room, SIDE, TILE_WORDS, tiles, to);
        return;
    }
    copy_rows(&m, w->places, room, apart);
    for (int64_t k = 0; k < tiles; k++)
        for (int64_t c = 0; c < SIDE; c++)
            memcpy(to + (k * SIDE + c) * SIDE, room + c * apart + k * SIDE, SIDE * sizeof *to);
}

/* ---- products ---------------------------------------------------------------------------------------- */

enum { LINE = 64, TILE_BYTES = SIDE * LINE };

/* The products of adjacent taps, tap t of which reads pairs[t], with one or two tiles of rows. */
typedef struct {
    const char *rows, *pairs[TAPS];
    int64_t tiles, images, next_rows, next_low, next_pairs; /* next: bytes to the next image; low: to the
                                                             * second tile of rows */
    float *sums;
} TapProduct;

/* Does DO for each of n taps and the tile of its sums: 0 to 2 have the first SIDE rows, 3 to 5 the others. */
#define EACH_TAP(n, DO, tile0, tile1, tile2)                                                                 \
    do {                                                                                                     \
        DO(0, tile0);                                                                                        \
        if ((n) > 1)                                                                                         \
            DO(1, tile1);                                                                                    \
        if ((n) > 2)                                                                                         \
            DO(2, tile2);                                                                                    \
    } while (0)
#define SUMS(tap, tile) (p->sums + (tap)*ROWS * SIDE + ((tile) > 2 ? SIDE * SIDE : 0))
#define OPEN(tap, tile)                                                                                      \
    do {                                                                                                     \
        if (add)                                                                                             \
            _tile_loadd(tile, SUMS(tap, tile), LINE);                                                        \
        else                                                                                                 \
            _tile_zero(tile);                                                                                \
    } while (0)
#define CLOSE(tap, tile) _tile_stored(tile, SUMS(tap, tile), LINE)
#define MULTIPLY(tap, tile)                                                                                  \
    do {                                                                                                     \
        _tile_loadd(7, b[tap] + k * TILE_BYTES, LINE);                                                       \
        _tile_dpbf16ps(tile, 6, 7);                                                                          \
    } while (0)

TILES PLAIN void multiply(const TapProduct *p, bool add, int taps, bool both)
{
    __asm__ volatile("" ::: "memory");
    EACH_TAP(taps, OPEN, 0, 1, 2);
    if (both)
        EACH_TAP(taps, OPEN, 3, 4, 5);
    for (int64_t i = 0; i < p->images; i++) {
        const char *a = p->rows + i * p->next_rows, *b[TAPS];
        for (int t = 0; t < taps; t++)
            b[t] = p->pairs[t] + i * p->next_pairs;
        for (int64_t k = 0; k < p->tiles; k++) {
            _tile_loadd(6, a + k * TILE_BYTES, LINE);
            EACH_TAP(taps, MULTIPLY, 0, 1, 2);
            if (!both)
                continue;
            _tile_loadd(6, a + p->next_low + k * TILE_BYTES, LINE);
            EACH_TAP(taps, MULTIPLY, 3, 4, 5);
        }
    }
    EACH_TAP(taps, CLOSE, 0, 1, 2);
    if (both)
        EACH_TAP(taps, CLOSE, 3, 4, 5);
    __asm__ volatile("" ::: "memory");
}

/* Computes the products for ROWS x SIDE channels and row y of the window. */
TILES_ISA PLAIN static void multiply_row(const TiledWeights *w, const Scratch *s, int64_t images, int64_t out,
                                         int64_t in, int64_t y, float *sums, bool add)
{
    const bool both = w->out - out * ROWS > SIDE;
    TapProduct p = {.rows = (const char *)(s->rows + 2 * out * s->next_rows),
                    .tiles = w->places / STEP,
                    .images = images,
                    .next_rows = w->places * SIDE * 2,
                    .next_low = s->next_rows * 4,
                    .next_pairs = 2 * w->pairs * LINE};
    for (int64_t x = 0, n; x < w->window[1]; x += n) {
        n = least(TAPS, w->window[1] - x);
        for (int64_t t = 0; t < n; t++) {
            int64_t shift = y * w->step[0] * w->pitch + (x + t) * w->step[1];
            p.pairs[t] = (const char *)(s->pairs + in * s->next_pairs) +
                         (shift / 2 + (shift % 2 ? w->pairs : 0)) * LINE;
        }
        p.sums = sums + (y * w->window[1] + x) * ROWS * SIDE;
        if (n == 3)
            both ? multiply(&p, add, 3, true) : multiply(&p, add, 3, false);
        else if (n == 2)
            both ? multiply(&p, add, 2, true) : multiply(&p, add, 2, false);
        else
            both ? multiply(&p, add, 1, true) : multiply(&p, add, 1, false);
    }
}

static void store(const TiledWeights *w, const float *sums, int64_t out, int64_t in, void *to)
{
    const int64_t n = least(SIDE, w->in - in * SIDE);
    for (int64_t o = 0; o < least(ROWS, w->out - out * ROWS); o++)
        for (int64_t t = 0; t < taps(w); t++)
            elements_store(w->made, to,
                           (out * ROWS + o) * w->stride[0] + in * SIDE * w->stride[1] +
                               t / w->window[1] * w->stride[2] + t % w->window[1] * w->stride[3],
                           w->stride[1], n, sums + (t * ROWS + o) * SIDE);
}

/* ---- running ----------------------------------------------------------------------------------------- */

static void copy_block(const TiledWeights *w, const Scratch *s, char *const at[SLOTS], int64_t image,
                       int64_t images, int64_t row)
{
    const int64_t in = ceil_div(w->in, SIDE), out = ceil_div(w->out, SIDE);
    const int64_t rows = least(w->block_rows, w->to_size[0] - row);
    uint32_t *room = s->room + omp_get_thread_num() * s->next_room;
#pragma omp for schedule(static) nowait
    for (int64_t k = 0; k < in * images; k++) {
        int64_t i = k / in, c = k % in;
        copy_read(w, at[SRC], image + i, c * SIDE, row,
                  s->pairs + c * s->next_pairs + i * 2 * w->pairs * SIDE, room);
    }
#pragma omp for schedule(static)
    for (int64_t k = 0; k < out * images; k++) {
        int64_t i = k / out, c = k % out;
        copy_gradient(w, at[DST], image + i, c * SIDE, row, rows,
                      s->rows + c * s->next_rows + i * w->places / 2 * SIDE, room);
    }
}

static void run_whole(const TiledWeights *w, const Scratch *s, char *const at[SLOTS])
{
    const int64_t in = ceil_div(w->in, SIDE), out = ceil_div(w->out, ROWS);
    float *sums = s->sums + omp_get_thread_num() * s->next_sums;
    copy_block(w, s, at, 0, w->images, 0);
#pragma omp for schedule(static)
    for (int64_t i = 0; i < in * out; i++) {
        for (int64_t y = 0; y < w->window[0]; y++)
            multiply_row(w, s, w->images, i / in, i % in, y, sums, false);
        store(w, sums, i / in, i % in, at[WEIGHTS]);
    }
}

static void run_blocks(const TiledWeights *w, const Scratch *s, char *const at[SLOTS])
{
    const int64_t in = ceil_div(w->in, SIDE), out = ceil_div(w->out, ROWS), down = w->window[0];
    for (int64_t image = 0; image < w->images; image += w->block_images)
        for (int64_t row = 0; row < w->to_size[0]; row += w->block_rows) {
            const int64_t images = least(w->block_images, w->images - image);
            copy_block(w, s, at, image, images, row);
#pragma omp for schedule(static)
            for (int64_t k = 0; k < in * out * down; k++) {
                int64_t i = k / down;
                multiply_row(w, s, images, i / in, i % in, k % down, s->sums + i * s->next_sums,
                             image > 0 || row > 0);
            }
        }
#pragma omp for schedule(static)
    for (int64_t i = 0; i < in * out; i++)
        store(w, s->sums + i * s->next_sums, i / in, i % in, at[WEIGHTS]);
}

void tiled_weights_run(const TiledWeights *w, char *const at[SLOTS], void *scratch)
{
    const Scratch s = scratch_of(w, scratch);
    const Panel tiles = panel_of(64, PANEL_TILES);
#pragma omp parallel num_threads(w->threads)
    {
        panel_begin(&tiles);
        (is_whole(w) ? run_whole : run_blocks)(w, &s, at);
        panel_end(&tiles);
    }
}

int64_t tiled_weights_scratch(const TiledWeights *w) { return scratch_of(w, NULL).bytes; }

/* ---- description ------------------------------------------------------------------------------------- */

/* Sets the size of a block.  Rows of an image are cut by a rule on its size alone, which decides the
 * positions that a tile sums, so that a part of the channels gets the same bits.  A block has as many images
 * as fit into the cache, or more if those have few positions; or all, if that takes no more memory than the
 * sums of all products. */
static void cut(TiledWeights *w)
{
    const int64_t in = round_up(w->in, SIDE), out = round_up(w->out, SIDE);
    const int64_t place = 4 * in + 2 * out, sums = (int64_t)sizeof(float) * in * out * taps(w);
    w->block_rows = ceil_div(w->to_size[0], ceil_div(w->to_size[0] * w->pitch, MOST_PLACES));
    w->places = round_up(w->block_rows * w->pitch, STEP);
    w->pairs =
        round_up(w->places / 2 +
                     ((w->window[0] - 1) * w->step[0] * w->pitch + (w->window[1] - 1) * w->step[1]) / 2 + 1,
                 SIDE);
    int64_t most = BLOCK_BYTES / place > LEAST_PLACES ? BLOCK_BYTES / place : LEAST_PLACES;
    if (w->images * w->places <= most + sums / place)
        most = w->images * w->places;
    const int64_t images = w->block_rows < w->to_size[0] ? 1 : least(w->images, most / w->places);
    w->block_images = images > 1 ? ceil_div(w->images, ceil_div(w->images, images)) : 1;
}

bool tiled_weights_describe(TiledWeights *w, const Problem *q, int threads)
{
    const Layout *x = &q->slot[SRC], *y = &q->slot[DST], *k = &q->slot[WEIGHTS];
    if (q->op != LIB_CONV_BWD_WEIGHTS || x->dt != DT_BF16 || y->dt != DT_BF16 || k->rank != x->rank ||
        x->rank > 4)
        return false;
    *w = (TiledWeights){
        .in = x->dim[1], .out = y->dim[1], .images = x->dim[0], .made = k->dt, .threads = threads};
    for (int i = 0; i < 2; i++) {
        w->from_stride[i] = x->stride[i], w->to_stride[i] = y->stride[i], w->stride[i] = k->stride[i];
        w->from_size[i] = w->to_size[i] = w->window[i] = w->step[i] = 1;
    }
    for (int i = 4 - x->rank, d = 2; d < x->rank; i++, d++) {
        if (q->strides[d - 2] != 1)
            return false;
        w->from_size[i] = x->dim[d], w->to_size[i] = y->dim[d], w->window[i] = k->dim[d];
        w->from_stride[i + 2] = x->stride[d], w->to_stride[i + 2] = y->stride[d];
        w->stride[i + 2] = k->stride[d];
        w->step[i] = q->dilates[d - 2] + 1, w->pad[i] = q->pad_begin[d - 2];
    }
    int inner = x->stride[1] == 1 ? 1 : 3;
    w->pitch = w->to_size[1] + (w->window[1] - 1) * w->step[1];
    cut(w);
    return taps(w) > 1 && w->from_stride[inner] == 1 && w->to_stride[inner] == 1;
}
#else
bool tiled_weights_describe(TiledWeights *w, const Problem *q, int threads)
{
    (void)w, (void)q, (void)threads;
    return false;
}

int64_t tiled_weights_scratch(const TiledWeights *w) { return (void)w, 0; }

void tiled_weights_run(const TiledWeights *w, char *const at[SLOTS], void *scratch)
{
    (void)w, (void)at, (void)scratch;
}
#endif
