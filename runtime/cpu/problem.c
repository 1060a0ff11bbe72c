/* problem.c -- makes strided tensors from the description of a node. */
#include "problem.h"
#include <string.h>

enum {
    BLOCK_BYTES = 4 << 20,   /* least bytes of operand and result of a block */
    BLOCK_WEIGHTS = 2,       /* ... and at least so many times the bytes of the weights */
    WINOGRAD_WEIGHTS = 4,    /* factor by which Winograd's algorithm enlarges the weights: 6x6 for 3x3 */
    TWICE_SHARE = 16,        /* at most 1 / TWICE_SHARE of the batch is computed twice */
    PART_CHANNELS = 16       /* a part's channels are a multiple of this: whole vectors */
};

static Layout layout_plain(const Type *t)
{
    Layout l = {.rank = t->rank, .dt = t->dt};
    int64_t stride[MAX_RANK];
    type_strides(t, stride);
    for (int i = 0; i < t->rank; i++) {
        l.dim[i] = t->dim[i];
        l.stride[i] = stride[i];
    }
    return l;
}

/* The layout of images: dimensions are always [N, C, s...], strides give the order in memory. */
static Layout layout_images(const Type *t, bool channels_last)
{
    Layout plain = layout_plain(t), l = plain;
    for (int i = 1; channels_last && i < t->rank; i++) {
        int from = i == 1 ? t->rank - 1 : i - 1;
        l.dim[i] = plain.dim[from];
        l.stride[i] = plain.stride[from];
    }
    return l;
}

/* The layout of a matrix operand with `batch` leading dimensions; missing ones have extent 1. */
static Layout layout_matrix(const Type *t, bool transposed, int batch)
{
    Layout plain = layout_plain(t), l = {.rank = batch + 2, .dt = plain.dt};
    for (int i = 0; i < l.rank; i++) {
        int k = i - (l.rank - t->rank);
        if (transposed && i >= batch)
            k = i == batch ? t->rank - 1 : t->rank - 2;
        l.dim[i] = k < 0 ? 1 : plain.dim[k];
        l.stride[i] = k < 0 ? type_count(t) : plain.stride[k];
    }
    return l;
}

/* Merges the batch dimensions into one or, with `rows`, into the rows of the matrix. */
static void merge_batch(Layout *l, int batch, bool rows)
{
    int64_t n = 1;
    for (int i = 0; i < batch; i++)
        n *= l->dim[i];
    Layout m = {.rank = rows ? 2 : 3, .dt = l->dt};
    int first = m.rank - 2;
    memcpy(&m.dim[first], &l->dim[batch], 2 * sizeof m.dim[0]);
    memcpy(&m.stride[first], &l->stride[batch], 2 * sizeof m.stride[0]);
    if (rows) {
        m.dim[0] *= n;
    } else {
        m.dim[0] = n;
        m.stride[0] = l->dim[batch] * l->dim[batch + 1];
    }
    *l = m;
}

static void describe_matmul(Problem *p, const LibDesc *d)
{
    const Type *a = &d->in[0], *b = &d->in[1];
    int batch = d->panels ? 0 : (a->rank > b->rank ? a->rank : b->rank) - 2;
    Layout *la = &p->slot[SRC], *lb = &p->slot[WEIGHTS], *lc = &p->slot[DST];
    *la = layout_matrix(a, d->matmul.ta, batch);
    *lb = d->panels ? layout_plain(b) : layout_matrix(b, d->matmul.tb, batch);
    *lc = layout_matrix(&d->out, false, batch);
    p->panels = d->panels;
    if (batch == 0 && d->rows)
        la->dim[0] = lc->dim[0] = d->rows;
    if (d->nin > 2 && d->in[2].dt != DT_NONE)
        p->added = type_bytes(&d->out);
    bool same = true, single = true;
    for (int i = 0; i < batch; i++) {
        same &= la->dim[i] == lb->dim[i];
        single &= lb->dim[i] == 1;
    }
    bool rows = single && !d->matmul.ta; /* there is one matrix b: one product has all rows of a */
    if (batch == 0 || !(same || rows))
        return;
    merge_batch(la, batch, rows);
    merge_batch(lc, batch, rows);
    merge_batch(lb, batch, false);
    if (rows) { /* drop the batch of one */
        lb->rank = 2;
        memmove(lb->dim, lb->dim + 1, 2 * sizeof lb->dim[0]);
        memmove(lb->stride, lb->stride + 1, 2 * sizeof lb->stride[0]);
    }
}

static int64_t attr_or(const Ints *v, int i, int64_t otherwise)
{
    return i < v->n ? v->v[i] : otherwise;
}

/* Turns the weights of a grouped convolution from [M, C/g, k...] into [g, M/g, C/g, k...]. */
static void split_groups(Layout *w, int64_t group)
{
    memmove(w->dim + 1, w->dim, (size_t)w->rank * sizeof w->dim[0]);
    memmove(w->stride + 1, w->stride, (size_t)w->rank * sizeof w->stride[0]);
    w->dim[0] = group;
    w->dim[1] /= group;
    w->stride[0] = w->dim[1] * w->stride[1];
    w->rank++;
}

static int64_t layout_bytes(const Layout *l)
{
    int64_t n = dtype_size[l->dt];
    for (int i = 0; i < l->rank; i++)
        n *= l->dim[i];
    return n;
}

/* Number of images in a block: as few as keep the speed of the whole batch.  All blocks have the same number;
 * if that does not divide the batch, the last one starts earlier and computes some images again. */
static int64_t block_images(const Problem *p)
{
    int64_t image = (layout_bytes(&p->slot[SRC]) + layout_bytes(&p->slot[DST])) / p->batch;
    int64_t fill = BLOCK_WEIGHTS * layout_bytes(&p->slot[WEIGHTS]);
    if (p->choice == ONEDNN_WINOGRAD)
        fill *= WINOGRAD_WEIGHTS;
    if (fill < BLOCK_BYTES)
        fill = BLOCK_BYTES;
    int64_t least = (fill + image - 1) / image;
    for (int64_t twice = 0; twice <= p->batch / TWICE_SHARE; twice++)
        for (int64_t n = least; n <= 2 * least && n < p->batch; n++)
            if ((p->batch + n - 1) / n * n - p->batch == twice)
                return n;
    return p->batch;
}

/* If the images are reordered, cuts the batch into blocks, for which the primitive is made. */
static void cut_batch(Problem *p, int64_t images)
{
    p->batch = p->images = p->slot[SRC].dim[0];
    if (p->choice == ONEDNN_PLAIN || p->choice == ONEDNN_OWN || p->op == LIB_CONV_BWD_WEIGHTS)
        return;
    p->images = images ? images : block_images(p);
    p->slot[SRC].dim[0] = p->slot[DST].dim[0] = p->images;
}

int problem_operand(LibOp op, int slot)
{
    static const int operand[][SLOTS] = {
        [LIB_MATMUL] = {[SRC] = 0, [WEIGHTS] = 1, [DST] = -1},
        [LIB_CONV] = {[SRC] = 0, [WEIGHTS] = 1, [BIAS] = 2, [DST] = -1},
        [LIB_CONV_BWD_DATA] = {[SRC] = -1, [WEIGHTS] = 1, [DST] = 0},
        [LIB_CONV_BWD_WEIGHTS] = {[SRC] = 0, [WEIGHTS] = -1, [DST] = 1},
    };
    return operand[op][slot];
}

const Type *problem_type(const LibDesc *d, int slot)
{
    int operand = problem_operand(d->op, slot);
    return operand < 0 ? &d->out : &d->in[operand];
}

static void describe_conv(Problem *p, const LibDesc *d)
{
    p->channels_last = d->conv.channels_last != 0;
    p->slot[SRC] = layout_images(problem_type(d, SRC), p->channels_last);
    p->slot[WEIGHTS] = layout_plain(problem_type(d, WEIGHTS));
    p->slot[DST] = layout_images(problem_type(d, DST), p->channels_last);
    if (d->rows)
        p->slot[WEIGHTS].dim[0] = p->slot[DST].dim[1] = d->rows;
    if (d->op == LIB_CONV && d->nin > 2 && d->in[2].dt != DT_NONE)
        p->slot[BIAS] = layout_plain(&d->in[2]);
    if (d->conv.group > 1)
        split_groups(&p->slot[WEIGHTS], d->conv.group);
    int spatial = p->slot[SRC].rank - 2;
    for (int i = 0; i < spatial; i++) {
        p->strides[i] = attr_or(&d->conv.strides, i, 1);
        p->dilates[i] = attr_or(&d->conv.dilations, i, 1) - 1;
        p->pad_begin[i] = attr_or(&d->conv.pads, i, 0);
        p->pad_end[i] = attr_or(&d->conv.pads, spatial + i, 0);
    }
}

/* Is it a convolution with a window of one that is, on channels-last images, one product? */
static bool is_product(const Problem *p)
{
    const Layout *w = &p->slot[WEIGHTS];
    bool one = p->channels_last && p->op != LIB_CONV_BWD_WEIGHTS && !p->slot[BIAS].rank &&
               w->rank == p->slot[SRC].rank;
    for (int i = 0; i + 2 < w->rank; i++)
        one &= w->dim[i + 2] == 1 && p->strides[i] == 1 && !p->pad_begin[i] && !p->pad_end[i];
    return one;
}

/* All positions of channels-last images as the rows of a matrix. */
static Layout layout_positions(const Layout *l)
{
    int64_t n = l->dim[0];
    for (int i = 2; i < l->rank; i++)
        n *= l->dim[i];
    return (Layout){.rank = 2, .dt = l->dt, .dim = {n, l->dim[1]}, .stride = {l->dim[1], 1}};
}

/* Describes such a convolution, or its gradient of data, as a product with the weights. */
static void describe_product(Problem *p)
{
    bool forward = p->op == LIB_CONV;
    const Layout *w = &p->slot[WEIGHTS];
    Problem q = {
        .op = LIB_MATMUL, .choice = p->choice, .splits = p->splits, .batch = 1, .images = 1, .parts = 1};
    q.slot[SRC] = layout_positions(&p->slot[forward ? SRC : DST]);
    q.slot[DST] = layout_positions(&p->slot[forward ? DST : SRC]);
    q.slot[WEIGHTS] = (Layout){.rank = 2, .dt = w->dt};
    for (int i = 0; i < 2; i++) {
        q.slot[WEIGHTS].dim[i] = w->dim[forward ? 1 - i : i];
        q.slot[WEIGHTS].stride[i] = w->stride[forward ? 1 - i : i];
    }
    *p = q;
}

/* The dimension in which parts of the result cut a tensor of a convolution; -1: none.  Grouped convolutions
 * are cut by groups. */
static int part_dim(const Problem *p, int slot)
{
    bool grouped = p->slot[WEIGHTS].rank > p->slot[SRC].rank;
    int result = p->op == LIB_CONV ? DST : SRC;
    if (slot == WEIGHTS)
        return grouped ? 0 : result == DST ? 0 : 1;
    if (slot == BIAS)
        return 0;
    return grouped || slot == result ? 1 : -1;
}

int64_t problem_part_stride(const Problem *p, int slot)
{
    const Layout *l = &p->slot[slot];
    int dim = p->parts > 1 && p->choice != ONEDNN_OWN && l->rank ? part_dim(p, slot) : -1;
    return dim < 0 ? 0 : l->dim[dim] * l->stride[dim];
}

/* Cuts the channels of the result into parts; false: it cannot.  Gradients of weights, which are sums over
 * the batch, are not cut, as the library would add in another order. */
static bool cut_channels(Problem *p, int64_t parts)
{
    int64_t channels = p->slot[p->op == LIB_CONV ? DST : SRC].dim[1];
    if (p->op == LIB_CONV_BWD_WEIGHTS || channels % (parts * PART_CHANNELS))
        return false;
    p->parts = parts;
    for (int i = 0; i < SLOTS; i++) {
        int dim = p->slot[i].rank ? part_dim(p, i) : -1;
        if (dim >= 0 && p->slot[i].dim[dim] % parts)
            return false;
        if (dim >= 0)
            p->slot[i].dim[dim] /= parts;
    }
    return true;
}

/* Are the extents small enough for the library?  It counts in 32 bits in many places, rounding up: above the
 * limit it divides by zero. */
static bool fits_library(const Problem *p)
{
    enum { MOST = 1 << 30 };
    for (int s = 0; s < SLOTS; s++)
        for (int i = 0; i < p->slot[s].rank; i++)
            if (p->slot[s].dim[i] > MOST)
                return false;
    for (int i = 0; i < LAYOUT_DIMS; i++)
        if (p->strides[i] > MOST || p->dilates[i] > MOST || p->pad_begin[i] > MOST ||
            p->pad_end[i] > MOST)
            return false;
    return true;
}

/* Do all operands have one float type up to 32 bits, and the result that type or f32? */
static bool types_fit(const LibDesc *d)
{
    DType dt = d->in[0].dt;
    if (d->nin > 3 || d->gelu)
        return false; /* neither adding a row nor an activation is supported */
    for (int i = 0; i < d->nin; i++) {
        DType want = i == 2 && d->op == LIB_MATMUL ? d->out.dt : dt;
        if (d->in[i].dt != DT_NONE && d->in[i].dt != want)
            return false;
    }
    return dtype_is_float(dt) && dt != DT_F64 && (d->out.dt == dt || d->out.dt == DT_F32);
}

bool problem_describe(Problem *p, const DnnlDesc *d)
{
    *p = (Problem){.op = d->of.op, .choice = d->choice, .batch = 1, .images = 1, .parts = 1};
    bool conv = d->of.op != LIB_MATMUL;
    if (d->of.op == LIB_NONE || (!conv && d->choice == ONEDNN_WINOGRAD) ||
        (d->of.panels && d->choice != ONEDNN_OWN) || !types_fit(&d->of))
        return false;
    for (int i = 0; i <= d->of.nin; i++) {
        const Type *t = i < d->of.nin ? &d->of.in[i] : &d->of.out;
        if (t->dt == DT_NONE)
            continue;
        if (type_count(t) == 0)
            return false;
        if (conv && i != 2 && (t->rank < 3 || t->rank > 5))
            return false;
    }
    (conv ? describe_conv : describe_matmul)(p, &d->of);
    p->splits = routine_splits(&d->of);
    if (conv && d->choice == ONEDNN_OWN && is_product(p))
        describe_product(p);
    else if (conv)
        cut_batch(p, d->images);
    if (!fits_library(p))
        return false;
    if (d->parts > 1 && d->choice == ONEDNN_OWN)
        p->parts = d->parts;
    return d->parts <= 1 || d->choice == ONEDNN_OWN || (conv && cut_channels(p, d->parts));
}
