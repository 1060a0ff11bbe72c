/* choice.c -- chooses the algorithm of an operation.
 *
 * Measured (tests/bench), without and with AVX-512:
 *
 *   products             the library's as the operands lie: packing one as a whole costs more than it
 *                        brings; ours where it has none that does not allocate, where rows of the second
 *                        factor all lie in the same sets of the cache, where it computes in 16 bits no
 *                        faster than we do in f32, and of f32 with AMX, in parts of bf16: 450 to 570
 *                        GFLOP/s on two cores where the library does 300 to 380 (product.c)
 *   1x1 convolutions     our product: about as fast as blocked layouts, without their copies
 *   gradients of large weights from one image or two    ours, likewise
 *   gradients of depthwise weights    ours: the library takes up to 80 times as long (7x7); of windows up to
 *                        3x3 on channels-last images a third of ours
 *   3x3, stride 1        Winograd halves the time (ours without AVX-512: 0.4 to 0.55 of it; on channels-last
 *                        images with it: 0.3 to 0.7, in bf16, which is widened, 0.5 to 0.9), where there are
 *                        channels to fill vectors with and enough tiles for each transformed weight
 *   depthwise ones       ours without AVX-512: a quarter faster than blocked layouts with their copies
 *   16 bits without AVX-512    ours: the library copies one element at a time (convolutions took 3 to 10
 *                        times as long)
 *   other convolutions   blocked layouts, faster in spite of the copies
 *   gradients of weights in bf16 with AMX    ours, where windows move by one: 0.5 to 1.1 of the library's
 *                        time on channels-last images, 0.5 to 0.95 on others, mostly in less memory
 *   channels-last ones   as the images lie, where they are not Winograd's; 1x1 in f32 with AMX our product:
 *                        0.6 to 0.9 of the library's time
 *
 * Workspace that is large against the operands would limit how small a budget can be met, above all where a
 * batch is reordered as a whole (gradients of weights).  Such a choice gives way to one with less workspace;
 * Winograd's is taken where the schedule needs as much memory elsewhere.  The rule cannot depend on the
 * budget, since the algorithm decides the bits. */
#include "cpu.h"
#include "problem.h"
#include <string.h>

enum {
    PAGE = 4096,
    HALF_ROWS = 64,
    LEAST_SPLIT = 64, /* rows and columns of a product whose factors are worth splitting */
    LEAST_SPLIT_TERMS = 32,
    LEAST_MULTIPLIED = 1 << 22,
    SAME_SETS_ROWS = 32,
    FEW_IMAGES = 2,
    TILE = 4,
    VECTOR = 16,
    LEAST_CHANNELS = 32, /* for Winograd's algorithm and for tiles */
    FEW_CHANNELS = 128,
    LEAST_TILES = 32,
    TILE_CHANNELS = 16, /* channels per tile, at most, for Winograd's algorithm */
    SMALL_WINDOW = 3,
    WORTH_BYTES = 64 << 10 /* less workspace than this is not worth another candidate */
};

static bool all_ones(const Ints *v)
{
    for (int i = 0; i < v->n; i++)
        if (v->v[i] != 1)
            return false;
    return true;
}

static bool kernel_is(const Type *w, int64_t size)
{
    for (int i = 2; i < w->rank; i++)
        if (w->dim[i] != size)
            return false;
    return true;
}

/* Are there few images, with fewer bytes in input and output than the weights have? */
static bool weights_prevail(const LibDesc *d, const Type *w, const Type *y)
{
    const Type *x = problem_type(d, SRC);
    return d->conv.group == 1 && y->dim[0] <= FEW_IMAGES &&
           type_bytes(w) > type_bytes(x) + type_bytes(y);
}

/* Is one channel read per group and, for a gradient of data, also one made? */
static bool is_depthwise(const LibDesc *d, const Type *w)
{
    return d->conv.group > 1 && w->dim[1] == 1 && w->rank <= 4 &&
           (d->op != LIB_CONV_BWD_DATA || w->dim[0] == d->conv.group);
}

/* Does the library have a routine for the window?  It has for small ones, of channels in whole vectors. */
static bool is_small_window(const Type *w)
{
    bool small = w->dim[0] % VECTOR == 0;
    for (int i = 2; i < w->rank; i++)
        small &= w->dim[i] <= SMALL_WINDOW;
    return small;
}

bool routine_splits(const LibDesc *d)
{
    const Type *a = &d->in[0], *b = &d->in[1];
    int64_t rows, columns, terms;
    if (a->dt != DT_F32 || d->panels)
        return false;
    if (d->op == LIB_MATMUL) {
        rows = d->out.dim[d->out.rank - 2];
        columns = b->dim[b->rank - (d->matmul.tb ? 2 : 1)];
        terms = a->dim[a->rank - (d->matmul.ta ? 2 : 1)];
    } else {
        const Type *w = problem_type(d, WEIGHTS), *y = problem_type(d, DST);
        rows = w->dim[0];
        columns = type_count(y) / rows;
        terms = d->conv.group == 1 ? type_count(w) / rows : 0;
    }
    return rows >= LEAST_SPLIT && columns >= LEAST_SPLIT && terms >= LEAST_SPLIT_TERMS &&
           rows * columns * terms >= LEAST_MULTIPLIED;
}

/* Is our product faster?  It is where factors are split, for 16 bits if the library is no faster there than
 * in f32, and if the rows of the second factor are whole pages apart, which the library copies only if their
 * length is a power of two, and otherwise is half as fast (768 x 3072 with AVX-512); given enough rows to be
 * worth packing. */
static bool own_is_faster(const LibDesc *d)
{
    const Type *b = &d->in[1], *c = &d->out;
    int64_t n = b->dim[b->rank - 1], rows = c->dim[c->rank - 2];
    if (d->panels)
        return true;
    if (dtype_is_half(d->in[0].dt))
        return !onednn_fast_bf16() && rows >= HALF_ROWS;
    if (onednn_has_amx() && routine_splits(d))
        return true;
    return !d->matmul.tb && n * dtype_size[b->dt] % PAGE == 0 && (n & (n - 1)) != 0 && rows >= SAME_SETS_ROWS;
}

/* Does the window, of this size, see all channels and move by one, without dilation? */
static bool is_dense(const LibDesc *d, int64_t window)
{
    return d->conv.group == 1 && all_ones(&d->conv.strides) && all_ones(&d->conv.dilations) &&
           kernel_is(problem_type(d, WEIGHTS), window);
}

/* Are elements of 16 bits that the library would copy one at a time, without vectors? */
static bool is_slow_half(const LibDesc *d)
{
    return dtype_is_half(d->in[0].dt) && onednn_vector_bytes() <= 32;
}

/* Do our tiles suit a gradient of weights?  They share copies among the window's positions. */
static bool suits_tiles(const LibDesc *d, const Type *w)
{
    return onednn_has_amx() && d->in[0].dt == DT_BF16 && d->conv.group == 1 && all_ones(&d->conv.strides) &&
           !kernel_is(w, 1) && w->rank <= 4 && w->dim[0] >= VECTOR && w->dim[1] >= VECTOR &&
           w->dim[0] * w->dim[1] >= LEAST_CHANNELS * LEAST_CHANNELS;
}

/* Is a convolution of channels-last images faster as our product, of floats in parts?  It is with enough
 * columns, which are channels. */
static bool suits_split(const LibDesc *d, const Type *w)
{
    bool biased = d->nin > 2 && d->in[2].dt != DT_NONE;
    int64_t made = d->op == LIB_CONV ? w->dim[0] : w->dim[1];
    return onednn_has_amx() && routine_splits(d) && is_dense(d, 1) && !biased && made >= FEW_CHANNELS &&
           (d->op != LIB_CONV_BWD_WEIGHTS || w->dim[0] >= FEW_CHANNELS);
}

static DnnlChoice preferred(const LibDesc *d)
{
    if (d->op == LIB_MATMUL)
        return own_is_faster(d) ? ONEDNN_OWN : ONEDNN_PLAIN;
    const Type *w = problem_type(d, WEIGHTS), *y = problem_type(d, DST);
    bool last = d->conv.channels_last != 0;
    bool of_weights = d->op == LIB_CONV_BWD_WEIGHTS;
    if (is_depthwise(d, w) && of_weights)
        return last && is_small_window(w) ? ONEDNN_PLAIN : ONEDNN_OWN;
    if (of_weights && suits_tiles(d, w))
        return ONEDNN_OWN;
    if (last)
        return suits_split(d, w) ? ONEDNN_OWN : ONEDNN_PLAIN;
    bool own = is_dense(d, 1) || (of_weights && weights_prevail(d, w, y)) ||
               (is_depthwise(d, w) && onednn_vector_bytes() <= 32) || is_slow_half(d);
    return own ? ONEDNN_OWN : ONEDNN_BLOCKED;
}

/* Upper limit of the channels with which Winograd's algorithm is faster. */
static int64_t most_channels(const LibDesc *d)
{
    if (!dtype_is_half(d->in[0].dt) || !onednn_fast_bf16())
        return INT64_MAX;
    return onednn_has_amx() ? 0 : d->op == LIB_CONV_BWD_WEIGHTS ? FEW_CHANNELS : INT64_MAX;
}

static bool suits_winograd(const LibDesc *d)
{
    const Type *w = problem_type(d, WEIGHTS), *y = problem_type(d, DST);
    bool last = d->conv.channels_last != 0;
    if (d->op == LIB_MATMUL || w->rank != 4 || !is_dense(d, 3) || weights_prevail(d, w, y))
        return false;
    int64_t rows = d->rows ? d->rows : w->dim[0], tiles = y->dim[0];
    int64_t low = rows < w->dim[1] ? rows : w->dim[1], high = rows < w->dim[1] ? w->dim[1] : rows;
    for (int i = 2; i < 4; i++)
        tiles *= (y->dim[last ? i - 1 : i] + TILE - 1) / TILE;
    return low >= LEAST_CHANNELS && high <= most_channels(d) && tiles >= LEAST_TILES &&
           tiles * TILE_CHANNELS >= high;
}

/* Workspace in bytes up to which a choice need not give way: the size of all tensors in f32 and half as much
 * again, as blocks round channels up, and for 16 bits the library has copies of its own besides, more with
 * each thread.  No limit where all ways but one are slow. */
static int64_t own_cap(const LibDesc *d)
{
    if (d->op == LIB_MATMUL || is_slow_half(d))
        return INT64_MAX;
    int64_t n = type_bytes(&d->out);
    for (int i = 0; i < d->nin; i++)
        n += d->in[i].dt == DT_NONE ? 0 : type_bytes(&d->in[i]);
    return (n + n / 2) * (dtype_is_half(d->in[0].dt) ? 2 : 1);
}

static DnnlOp *make(DnnlDesc *desc, DnnlChoice choice, Diag *d)
{
    desc->choice = choice;
    return onednn_make(desc, d);
}

/* Takes the first routine in this order that is within own_cap(), else the one with the least workspace.  The
 * choice for a matrix product does not depend on the number of its rows. */
DnnlOp *choose_routine(DnnlDesc *desc, Diag *d)
{
    enum { PRODUCT, CONVOLUTION };
    static const DnnlChoice order[][ONEDNN_CHOICES][3] = {
        [PRODUCT] = {[ONEDNN_PLAIN] = {ONEDNN_PLAIN, ONEDNN_OWN, ONEDNN_BLOCKED},
                     [ONEDNN_OWN] = {ONEDNN_OWN, ONEDNN_BLOCKED, ONEDNN_PLAIN}},
        [CONVOLUTION] = {[ONEDNN_PLAIN] = {ONEDNN_PLAIN, ONEDNN_BLOCKED, ONEDNN_OWN},
                         [ONEDNN_BLOCKED] = {ONEDNN_BLOCKED, ONEDNN_PLAIN, ONEDNN_OWN},
                         [ONEDNN_OWN] = {ONEDNN_OWN, ONEDNN_BLOCKED, ONEDNN_PLAIN}},
    };
    const DnnlChoice *next = order[desc->of.op == LIB_MATMUL ? PRODUCT : CONVOLUTION][preferred(&desc->of)];
    DnnlChoice best = *next;
    DnnlOp *op = NULL;
    for (int i = 0; i < 3 && !d->failed && (!op || onednn_scratch_bytes(op) > own_cap(&desc->of)); i++) {
        DnnlOp *other = make(desc, next[i], d);
        bool better = other && (!op || onednn_scratch_bytes(other) < onednn_scratch_bytes(op));
        onednn_free(better ? op : other);
        op = better ? other : op;
        best = better ? next[i] : best;
    }
    desc->choice = best;
    return op;
}

DnnlOp *choose_faster(DnnlDesc *desc, int64_t room, Diag *d)
{
    if (!suits_winograd(&desc->of))
        return NULL;
    DnnlOp *op = make(desc, ONEDNN_WINOGRAD, d);
    if (op && onednn_scratch_bytes(op) <= room)
        return op;
    onednn_free(op);
    return NULL;
}

/* ---- candidates ---------------------------------------------------------------------------------- */

/* Estimates of what is not measured.  The text of convolutions took 8 to 68 times as long as their routines,
 * in the median 25 times (ResNet-18, AVX-512). */
static const double reorder_bytes_per_ns = 10, part_ns = 2000, other_time = 1.5, text_time = 25;

typedef struct {
    DnnlDesc desc;
    const char *impl; /* onednn_impl() of the first candidate */
    StepCost *cost;
    Diag *d;
} Candidates;

/* Does a routine of the library that is made for a part of the result's channels add in the same order as the
 * one for all?  In batch-reduced products (brgemm) the blocks of sums depend on the number of channels. */
static bool adds_in_parts(const char *impl) { return strncmp(impl, "brg", 3) != 0; }

/* Adds a candidate if its workspace is at most `most` bytes; returns that, or `most` if it was not added. */
static int64_t add_candidate(Candidates *c, int64_t most, double ns)
{
    StepCost *cost = c->cost;
    bool same = c->desc.parts > 1;
    DnnlOp *op = onednn_make(&c->desc, c->d);
    int64_t bytes = op ? onednn_scratch_bytes(op) : INT64_MAX;
    if (bytes <= most && (!same || strcmp(onednn_impl(op), c->impl) == 0)) {
        cost->c[cost->n++] = (Candidate){onednn_choice_text(&c->desc), bytes, (int64_t)ns};
        cost->same += same;
        most = bytes;
    }
    onednn_free(op);
    return most;
}

/* Adds the routine in parts, then other algorithms, each with less workspace than `most`. */
static void add_routines(Candidates *c, const DnnlDesc *desc, int64_t most)
{
    double in = (double)type_bytes(&desc->of.in[0]) / reorder_bytes_per_ns;
    bool alike = desc->choice != ONEDNN_WINOGRAD && adds_in_parts(c->impl);
    int64_t parts = alike ? ONEDNN_MAX_PARTS : 1;
    for (c->desc.parts = 2; c->desc.parts <= parts; c->desc.parts *= 2)
        most = add_candidate(c, most - most / 8, (double)(c->desc.parts - 1) * (in + part_ns));
    c->desc.parts = 0;
    for (int choice = 0; choice < ONEDNN_CHOICES; choice++) {
        c->desc.choice = (DnnlChoice)choice;
        if (c->desc.choice != desc->choice)
            most = add_candidate(c, most - most / 8, 0);
    }
}

_Static_assert(1 + 4 + (ONEDNN_CHOICES - 1) + 1 <= MAX_CANDIDATES && ONEDNN_MAX_PARTS == 1 << 4,
               "room for the first, parts of it, others, and the text");

void find_candidates(const DnnlDesc *desc, const DnnlOp *op, StepCost *cost, Diag *d)
{
    Candidates c = {*desc, onednn_impl(op), cost, d};
    int64_t most = onednn_scratch_bytes(op);
    *cost = (StepCost){.c = {{onednn_choice_text(desc), most, 0}}, .n = 1, .same = 1};
    if (most < WORTH_BYTES)
        return;
    if (desc->of.op != LIB_MATMUL || desc->choice == ONEDNN_OWN)
        add_routines(&c, desc, most);
    if (cost->c[cost->n - 1].scratch >= WORTH_BYTES) /* the kernel's text needs none */
        cost->c[cost->n++] = (Candidate){NULL, 0, 0};
}

void candidate_times(StepCost *cost, int64_t ns)
{
    for (int i = 0; i < cost->n; i++)
        cost->c[i].ns = ns < 0           ? -1
                        : i < cost->same ? ns + cost->c[i].ns
                        : (int64_t)((cost->c[i].choice ? other_time : text_time) * (double)ns);
}
