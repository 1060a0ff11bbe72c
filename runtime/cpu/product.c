/* product.c -- our own matrix products and convolutions, for processors, shapes and types where the library
 * has no routine or one that allocates memory.
 *
 * A result of rows x columns is the sum over terms of factor A (rows x terms) times factor B (terms x
 * columns), once per member of a batch.  Convolutions are such products with B gathered from an image: a
 * column is a position of the result, a term is a channel and a position of the window.
 *
 * Blocks of both factors are packed into panels, in scratch of each thread, and a kernel in vector
 * registers multiplies two panels.  Every element is summed over a block of terms in registers, then added to
 * the result: always in the same order, whatever the threads and blocks.
 *
 * Elements of 16 bits are widened as they are packed.  A result of 16 bits is summed in scratch, in f32; only
 * bf16 whose terms are all in one block is rounded in registers.  Where the processor multiplies pairs of
 * bf16 as fast as one f32, or has tiles for them, panels hold two terms in each 32 bits.  Tiles multiply 16
 * times as many pairs in a second as vectors do floats: there a float is split into three bf16, whose six
 * products that count are 1.3 to 1.5 times as fast as one in f32, with half its rounding error.  Images with
 * few positions are packed side by side, so that panels are full. */
#include "product_int.h"
#include "element.h"
#include "ir/mem.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum {
    BLOCK_ROWS = 96,
    BLOCK_COLUMNS = 1024, /* with BLOCK_ROWS, size of the blocks in scratch, at most */
    LEAST_ROWS = 24,      /* rows of a block, at least, where `parts` make it small */
    LEAST_COLUMNS = 128,  /* columns of a block, at least, where more blocks reduce packing */
    HALF_BLOCKS = 4,      /* blocks of rows in a unit, at most, if the result is summed in scratch */
    MOST_PHASES = 64,     /* up to so many phases are worth a product each */
    UNITS = 4             /* units of the result per thread that balance the work */
};

/* ---- description --------------------------------------------------------------------------------- */

/* Number of units to cut the rows of each of `units` results into, so that all threads have equal work. */
static int64_t cuts_of(const Product *p, int64_t rows, int64_t units)
{
    int64_t cuts = 1;
    while (cuts < rows && cuts * units % p->threads != 0 && cuts * units < UNITS * p->threads)
        cuts++;
    return cuts;
}

/* Number of blocks, of at most `most` columns each, with which the least is packed: factor a is packed once
 * per block, factor b once per unit of rows. */
static int64_t blocks_of_columns(const Product *p, int64_t rows, int64_t columns, int64_t most)
{
    int64_t first = ceil_div(columns, most), best = first, least_packed = INT64_MAX;
    for (int64_t n = first; n == first || (n < first + p->threads && n * LEAST_COLUMNS <= columns); n++) {
        int64_t packed = n * rows * p->mr + cuts_of(p, rows, p->nbatch * n) * columns;
        best = packed < least_packed ? n : best;
        least_packed = least(packed, least_packed);
    }
    return best;
}

static bool holds_bf16(const Product *p) { return p->kind == PANEL_PAIRS || p->kind == PANEL_TILES; }

/* Sets the sizes of blocks, and units of them that keep all threads busy.  A block of columns belongs to one
 * member of the batch, or has all columns of a few members that share factor a. */
static void set_blocks(Product *p, int64_t parts)
{
    static const struct {
        int64_t terms, columns;
    } most[] = {[PANEL_FLOATS] = {256, BLOCK_COLUMNS},
                [PANEL_PAIRS] = {512, BLOCK_COLUMNS},
                [PANEL_TILES] = {512, BLOCK_COLUMNS},
                [PANEL_SPLIT] = {384, BLOCK_COLUMNS / 2}};
    int64_t most_columns = most[p->kind].columns / parts, most_rows = BLOCK_ROWS / parts;
    most_columns = most_columns < p->nr ? p->nr : most_columns;
    most_rows = round_up(most_rows < LEAST_ROWS ? LEAST_ROWS : most_rows, p->mr);
    int inner = 0;
    while (inner + 1 < BATCH && p->batch[inner + 1])
        inner++;
    int64_t columns = round_up(p->columns, p->nr), rows = round_up(p->rows, p->mr) / p->mr;
    p->shared = p->batch[inner] && !p->step[0][inner] ? p->batch[inner] : 1;
    p->members = columns < most_columns ? least(p->shared, most_columns / columns) : 1;
    p->block_terms = least(p->terms, most[p->kind].terms);
    int64_t n = p->shared > 1 ? 1 : blocks_of_columns(p, rows, columns, most_columns);
    p->block_columns = least(round_up(ceil_div(columns, n), p->nr), most_columns);
    p->block_rows = least(rows * p->mr, most_rows);
    p->ncolumns = ceil_div(p->columns, p->block_columns);
    int64_t sets = p->nbatch / p->shared * ceil_div(p->shared, p->members);
    int64_t units = sets * p->ncolumns, cuts = cuts_of(p, rows, units);
    p->unit_rows = ceil_div(rows, cuts) * p->mr;
    if (p->is_phase || dtype_is_half(p->out)) /* summed in scratch */
        p->unit_rows = least(p->unit_rows, HALF_BLOCKS * p->block_rows);
    p->nrows = ceil_div(p->rows, p->unit_rows);
    p->units = units * p->nrows;
}

static bool even(const int64_t step[BATCH])
{
    for (int i = 0; i < BATCH; i++)
        if (step[i] % 2)
            return false;
    return true;
}

static PanelKind kind_of(const Problem *q, DType in, int vector, PanelKind of_bf16)
{
    if (vector == 64 && in == DT_BF16)
        return of_bf16;
    return vector == 64 && of_bf16 == PANEL_TILES && q->splits ? PANEL_SPLIT : PANEL_FLOATS;
}

/* offset: of a phase in its tensors, in elements; NULL: the product is no phase. */
static Product *make_product(const Problem *q, const int64_t *offset, int vector, PanelKind of_bf16,
                             int threads)
{
    Product *p = mem_new(1, sizeof *p);
    p->threads = threads;
    p->is_phase = offset != NULL;
    p->vector = vector;
    p->in = q->slot[q->op == LIB_CONV_BWD_DATA ? DST : SRC].dt;
    p->kind = kind_of(q, p->in, vector, of_bf16);
    p->panel = panel_of(vector, p->kind);
    p->mr = p->panel.rows;
    p->nr = p->panel.columns;
    product_describe(p, q);
    for (int i = 0; i < SLOTS && offset; i++)
        p->offset[i] = offset[i];
    p->in_panels = q->panels && p->in == DT_F32 && p->fb.lanes[DIGITS - 1] == p->nr;
    p->joins[0] = holds_bf16(p) && even(p->step[0]) && pack_joins(&p->fa, &p->joined[0]);
    p->joins[1] = holds_bf16(p) && even(p->step[1]) && pack_joins(&p->fb, &p->joined[1]);
    p->pack = pack_function(p->in, vector);
    p->pack_joined = pack_function(DT_F32, vector);
    p->narrow = narrow_function(p->out, vector);
    set_blocks(p, q->parts);
    p->rounds = p->out == DT_BF16 && !p->is_phase && p->terms <= p->block_terms && q->added == 0;
    p->few = p->kind == PANEL_FLOATS && few_rows_fit(p);
    return p;
}

/* Makes a list of products, one for each phase; NULL: no phase has taps and positions. */
static Product *make_phases(const Problem *q, int vector, PanelKind of_bf16, int threads)
{
    int spatial = q->slot[SRC].rank - 2;
    int64_t phases = 1, made = 0;
    Product *first = NULL;
    for (int i = 0; i < spatial; i++)
        phases *= q->strides[i];
    for (int64_t f = 0; f < phases; f++) {
        Problem one = *q;
        int64_t offset[SLOTS] = {0}, phase = f;
        bool any = true;
        for (int i = spatial - 1; i >= 0; i--) {
            any = product_cut_phase(&one, offset, i, phase % q->strides[i]) && any;
            phase /= q->strides[i];
        }
        if (!any)
            continue;
        Product *p = make_product(&one, offset, vector, of_bf16, threads);
        p->next = first;
        first = p;
        made++;
    }
    if (first && made < phases)
        first->cleared = q->slot[SRC].dim[0] * q->slot[SRC].stride[0] * dtype_size[first->out];
    return first;
}

static bool has_phases(const Problem *q)
{
    int64_t phases = 1;
    bool dilates = false;
    for (int i = 0; i < q->slot[SRC].rank - 2 && q->op == LIB_CONV_BWD_DATA; i++) {
        phases = least(phases * q->strides[i], MOST_PHASES + 1);
        dilates |= q->dilates[i] > 0;
    }
    return phases > 1 && phases <= MOST_PHASES && !dilates;
}

Product *product_make(const Problem *q, int vector, PanelKind of_bf16, int threads)
{
    bool winograd = q->choice == ONEDNN_WINOGRAD;
    Product *p = mem_new(1, sizeof *p);
    p->threads = threads;
    p->is_winograd = winograd && winograd_describe(&p->winograd, q, vector, threads);
    p->is_depthwise = !winograd && depthwise_describe(&p->depthwise, q, vector, threads);
    p->is_tiled = !winograd && of_bf16 == PANEL_TILES && tiled_weights_describe(&p->tiled, q, threads);
    if (p->is_depthwise || p->is_winograd || p->is_tiled)
        return p;
    free(p);
    if (winograd)
        return NULL;
    p = has_phases(q) ? make_phases(q, vector, of_bf16, threads) : NULL;
    return p ? p : make_product(q, NULL, vector, of_bf16, threads);
}

void product_free(Product *p)
{
    for (Product *next; p; p = next) {
        next = p->next;
        free(p);
    }
}

static bool in_scratch(const Product *p) { return p->is_phase || (dtype_is_half(p->out) && !p->rounds); }

/* Floats per lane of a packed panel of `terms` terms. */
static int64_t panel_depth(const Product *p, int64_t terms)
{
    int64_t pairs = (terms + 1) / 2, tiled = round_up(pairs, TILE_PAIRS);
    return p->kind == PANEL_FLOATS  ? terms
           : p->kind == PANEL_PAIRS ? pairs
           : p->kind == PANEL_TILES ? tiled
                                    : SPLIT_PARTS * tiled;
}

/* Floats of scratch for a panel while it is converted to pairs or tiles. */
static int64_t unpacked_floats(const Product *p)
{
    int64_t widened = p->block_terms * p->nr + PACK_SPARE;
    return p->kind == PANEL_FLOATS  ? 0
           : p->kind == PANEL_PAIRS ? widened
                                    : widened + panel_depth(p, p->block_terms) * p->mr;
}

static int64_t thread_floats(const Product *p)
{
    if (p->is_depthwise)
        return depthwise_floats(&p->depthwise);
    int64_t columns = p->members * p->block_columns, packed = p->in_panels ? 0 : columns;
    int64_t result = p->rounds ? p->unit_rows : in_scratch(p) ? p->unit_rows * columns : 0;
    return round_up(panel_depth(p, p->block_terms) * (p->block_rows + packed) + PACK_SPARE +
                        unpacked_floats(p) + result,
                    16);
}

int64_t product_scratch(const Product *p)
{
    if (p->is_winograd)
        return winograd_floats(&p->winograd) * (int64_t)sizeof(float);
    if (p->is_tiled)
        return tiled_weights_scratch(&p->tiled);
    int64_t most = 0;
    for (; p; p = p->next)
        if (!p->few && p->threads * thread_floats(p) > most)
            most = p->threads * thread_floats(p);
    return most * (int64_t)sizeof(float);
}

/* ---- running ---------------------------------------------------------------------------------------- */

int64_t product_place(const Product *p, int64_t row, int64_t column, int64_t *n)
{
    int64_t inside = column % p->image_columns;
    int64_t at = row * p->row_stride + column / p->image_columns * p->image_stride;
    *n = p->image_columns - inside;
    if (!p->is_phase)
        return at + inside;
    *n = p->extent[WINDOW - 1] - inside % p->extent[WINDOW - 1];
    for (int i = WINDOW - 1; i >= 0; inside /= p->extent[i--])
        at += inside % p->extent[i] * p->place[i];
    return at;
}

/* Where a unit of a member's result, from (row, column) on, is summed: in the result, of f32 at `at` or of
 * bf16 at `half`, rounded after adding the bias of each row (NULL: none); or in scratch at `at`. */
typedef struct {
    float *at;
    uint16_t *half;
    const float *bias;
    int64_t row, column, scratch; /* scratch: floats of a row in scratch; 0: in the result */
} Sums;

/* A tile of such sums. */
typedef struct {
    float *at;
    uint16_t *half;
    const float *bias;
    int64_t stride, together; /* from row to row; adjacent columns from the first on */
} Tile;

static Tile tile_at(const Product *p, const Sums *s, int64_t row, int64_t column)
{
    if (s->scratch)
        return (Tile){s->at + row * s->scratch + column, NULL, NULL, s->scratch, s->scratch - column};
    int64_t n, from = product_place(p, s->row + row, s->column + column, &n);
    return (Tile){s->at ? s->at + from : NULL, s->half ? s->half + from : NULL,
                  s->bias ? s->bias + row : NULL, p->row_stride, n};
}

/* Multiplies two panels for a tile that is needed only in part, or belongs to several images. */
static void multiply_edge(const Product *p, int64_t terms, const float *a, const float *b, const Sums *to,
                          int64_t row, int64_t rows, int64_t column, int64_t columns, bool add)
{
    float whole[PANEL_ROWS * MAX_COLUMNS];
    PanelFn *of = rows <= p->panel.few ? p->panel.multiply_few : p->panel.multiply;
    of(terms, a, b, p->nr, whole, p->nr, false);
    for (int64_t j = 0, n; j < columns; j += n) {
        Tile part = tile_at(p, to, row, column + j);
        n = least(part.together, columns - j);
        for (int64_t i = 0; i < rows && part.half; i++) {
            for (int64_t k = 0; k < n && part.bias; k++)
                whole[i * p->nr + j + k] += part.bias[i];
            p->narrow(part.half + i * part.stride, whole + i * p->nr + j, n);
        }
        for (int64_t i = 0; i < rows && part.at; i++)
            for (int64_t k = 0; k < n; k++) {
                float *at = part.at + i * part.stride + k, sum = whole[i * p->nr + j + k];
                *at = add ? *at + sum : sum;
            }
    }
}

/* Multiplies two panels, with all rows of a or only the first few. */
static void multiply_panels(const Product *p, int64_t terms, const float *a, const float *b, const Tile *to,
                            bool few, bool add)
{
    const Panel *of = &p->panel;
    if (to->half)
        (few ? of->multiply_few_bf16 : of->multiply_bf16)(terms, a, b, p->nr, to->half, to->stride, to->bias);
    else
        (few ? of->multiply_few : of->multiply)(terms, a, b, p->nr, to->at, to->stride, add);
}

/* Multiplies packed blocks of rows and columns; terms: panel_depth() of the panels; next: elements from one
 * panel of b to the next. */
static void multiply(const Product *p, int64_t terms, const float *a, const float *b, int64_t next,
                     const Sums *to, int64_t row, int64_t rows, int64_t columns, bool add)
{
    for (int64_t j = 0; j < columns; j += p->nr, b += next)
        for (int64_t i = 0; i < rows; i += p->mr) {
            const float *pa = a + i * terms;
            Tile tile = tile_at(p, to, row + i, j);
            bool few = i + p->panel.few == rows;
            if ((few || i + p->mr <= rows) && p->nr <= least(tile.together, columns - j))
                multiply_panels(p, terms, pa, b, &tile, few, add);
            else
                multiply_edge(p, terms, pa, b, to, row + i, least(p->mr, rows - i), j,
                              least(p->nr, columns - j), add);
        }
}

Member product_member(const Product *p, char *const at[SLOTS], int64_t i)
{
    int64_t offset[3] = {0}, group = 0;
    for (int d = BATCH - 1; d >= 0; d--) {
        if (!p->batch[d])
            continue;
        int64_t digit = i % p->batch[d];
        group = p->step[0][d] ? digit : group;
        for (int k = 0; k < 3; k++)
            offset[k] += digit * p->step[k][d];
        i /= p->batch[d];
    }
    int64_t in = dtype_size[p->in], out = dtype_size[p->out];
    return (Member){at[p->a] + (p->offset[p->a] + offset[0]) * in, at[p->b] + offset[1] * in,
                    p->bias ? at[BIAS] + group * p->rows * in : NULL,
                    at[p->c] + (p->offset[p->c] + offset[2]) * out};
}

/* A unit of work: rows and columns of some members of the batch that share factor a. */
typedef struct {
    int64_t row, rows, column, columns, member, members;
} Unit;

static Unit find_unit(const Product *p, int64_t i)
{
    Unit u = {.column = i % p->ncolumns * p->block_columns,
              .row = i / p->ncolumns % p->nrows * p->unit_rows};
    int64_t set = i / (p->nrows * p->ncolumns), sets = ceil_div(p->shared, p->members);
    u.member = set / sets * p->shared + set % sets * p->members;
    u.members = least(p->members, (set / sets + 1) * p->shared - u.member);
    u.rows = least(p->unit_rows, p->rows - u.row);
    u.columns = least(p->block_columns, p->columns - u.column);
    return u;
}

static Sums open_sums(const Product *p, const Unit *u, const Member *m, float *scratch)
{
    Sums s = {.row = u->row, .column = u->column};
    if (in_scratch(p)) {
        s.at = scratch;
        s.scratch = p->block_columns;
    } else if (p->rounds) {
        for (int64_t i = 0; i < u->rows && p->bias; i++)
            scratch[i] = element_load(p->in, m->bias, u->row + i);
        s.half = (uint16_t *)(void *)m->c;
        s.bias = p->bias ? scratch : NULL;
    } else {
        s.at = (float *)(void *)m->c;
    }
    return s;
}

/* Initializes the sums with what the product is added to: the bias, or the result that is there. */
static void fill_sums(const Product *p, const Unit *u, const Member *m, const Sums *s, bool add)
{
    bool fills = !p->rounds && (p->bias || (add && in_scratch(p)));
    for (int64_t i = 0; i < u->rows && fills; i++)
        for (int64_t j = 0, n; j < u->columns; j += n) {
            int64_t from = product_place(p, u->row + i, u->column + j, &n);
            float *to = tile_at(p, s, i, j).at;
            n = least(n, u->columns - j);
            for (int64_t k = 0; k < n; k++)
                to[k] =
                    p->bias ? element_load(p->in, m->bias, u->row + i) : element_load(p->out, m->c, from + k);
        }
}

static void store_sums(const Product *p, const Unit *u, const Member *m, const Sums *s)
{
    for (int64_t i = 0; i < u->rows && in_scratch(p); i++)
        for (int64_t j = 0, n; j < u->columns; j += n) {
            int64_t to = product_place(p, u->row + i, u->column + j, &n);
            n = least(n, u->columns - j);
            if (p->is_phase)
                elements_store(p->out, m->c, to, p->place[WINDOW - 1], n, tile_at(p, s, i, j).at);
            else
                p->narrow((uint16_t *)(void *)m->c + to, tile_at(p, s, i, j).at, n);
        }
}

/* Packs n lanes of a factor into panels.  False: elements are too large to be split. */
static bool pack(const Product *p, bool of_b, const char *at, int64_t lane, int64_t n, int64_t first,
                 int64_t terms, float *to, float *room)
{
    const Factor *f = of_b ? &p->fb : &p->fa, *joined = p->joins[of_b] ? &p->joined[of_b] : NULL;
    int64_t width = of_b ? p->nr : p->mr, depth = panel_depth(p, terms), pairs = (terms + 1) / 2;
    if (p->kind == PANEL_FLOATS) {
        p->pack(f, at, lane, n, (int)width, first, terms, to);
        return true;
    }
    if (p->kind == PANEL_SPLIT)
        return pack_split(f, of_b, at, lane, n, first, terms, to, room);
    if (p->kind == PANEL_TILES && !of_b) {
        pack_tiles(f, joined, at, lane, n, first, terms, to, room + p->block_terms * p->nr + PACK_SPARE,
                   room);
        return true;
    }
    if (!joined) {
        pack_pairs(f, at, lane, n, (int)width, first, terms, depth, to, room);
        return true;
    }
    for (int64_t i = 0; i < n; i += width, to += width * depth) {
        p->pack_joined(joined, at, lane + i, least(width, n - i), (int)width, first / 2, pairs, to);
        memset(to + width * pairs, 0, (size_t)(width * (depth - pairs)) * sizeof *to);
    }
    return true;
}

/* Address of a column and term in factor b, which is stored in panels. */
static const float *panels_in(const Product *p, const Member *m, int64_t column, int64_t term)
{
    return (const float *)(const void *)m->b + column * p->terms + term * p->nr;
}

/* Packs the columns of a unit, for all members. */
static bool pack_columns(const Product *p, const Unit *u, const Member *m, int64_t first, int64_t terms,
                         float *to, float *room)
{
    int64_t each = round_up(u->columns, p->nr) * panel_depth(p, terms);
    bool finite = true;
    for (int64_t i = 0; i < u->members; i++)
        finite &= pack(p, true, m[i].b, u->column, u->columns, first, terms, to + i * each, room);
    return finite;
}

/* The same product with panels of floats. */
static Product in_floats(const Product *p)
{
    Product q = *p;
    q.kind = PANEL_FLOATS;
    q.panel = panel_of(p->vector, PANEL_FLOATS);
    q.mr = q.panel.rows;
    return q;
}

static void run_unit(const Product *p, char *const at[SLOTS], int64_t unit, bool add, float *scratch)
{
    Unit u = find_unit(p, unit);
    Member m[BLOCK_COLUMNS];
    Sums sums[BLOCK_COLUMNS];
    int64_t most = panel_depth(p, p->block_terms);
    float *b = scratch, *a = b + (p->in_panels ? 0 : most * p->members * p->block_columns);
    float *room = a + most * p->block_rows + PACK_SPARE, *c = room + unpacked_floats(p);
    for (int64_t i = 0; i < u.members; i++) {
        m[i] = product_member(p, at, u.member + i);
        sums[i] = open_sums(p, &u, &m[i], in_scratch(p) ? c + i * p->unit_rows * p->block_columns : c);
        fill_sums(p, &u, &m[i], &sums[i], add);
    }
    panel_begin(&p->panel);
    for (int64_t k = 0; k < p->terms; k += p->block_terms) {
        const Product *now = p;
        Product floats; /* for the rest of a block with elements that cannot be split */
        int64_t terms = least(p->block_terms, p->terms - k);
        bool finite = p->in_panels || pack_columns(p, &u, m, k, terms, b, room);
        for (int64_t r = 0; r < u.rows; r += p->block_rows) {
            int64_t n = least(p->block_rows, u.rows - r);
            finite = pack(now, false, m[0].a, u.row + r, n, k, terms, a, room) && finite;
            if (!finite && now == p) {
                floats = in_floats(p);
                now = &floats;
                pack_columns(now, &u, m, k, terms, b, room);
                pack(now, false, m[0].a, u.row + r, n, k, terms, a, room);
            }
            int64_t depth = panel_depth(now, terms), each = round_up(u.columns, p->nr) * depth;
            int64_t next = p->nr * (p->in_panels ? p->terms : depth);
            const float *panels = p->in_panels ? panels_in(p, &m[0], u.column, k) : b;
            for (int64_t i = 0; i < u.members; i++)
                multiply(now, depth, a, panels + i * each, next, &sums[i], r, n, u.columns,
                         add || p->bias || k > 0);
        }
    }
    panel_end(&p->panel);
    for (int64_t i = 0; i < u.members; i++)
        store_sums(p, &u, &m[i], &sums[i]);
}

void product_run(const Product *p, char *const at[SLOTS], bool add, void *scratch)
{
    if (p->is_winograd) {
        winograd_run(&p->winograd, at, scratch);
        return;
    }
    if (p->is_depthwise) {
        depthwise_run(&p->depthwise, at, add, scratch);
        return;
    }
    if (p->is_tiled) {
        tiled_weights_run(&p->tiled, at, scratch);
        return;
    }
    memset(at[p->c], 0, (size_t)p->cleared);
    for (; p; p = p->next) {
        if (p->few) {
            few_rows_run(p, at, add);
            continue;
        }
#pragma omp parallel for schedule(static) num_threads(p->threads) if (p->units > 1)
        for (int64_t i = 0; i < p->units; i++)
            run_unit(p, at, i, add, (float *)scratch + omp_get_thread_num() * thread_floats(p));
    }
}
