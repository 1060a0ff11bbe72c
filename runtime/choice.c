/* choice.c -- which algorithm of the library an operation uses.
 *
 * Measured on AVX-512 machines (performance.md 0 and tests/bench):
 *
 *   products             as the operands lie: packing one costs more than it brings
 *   1x1 convolutions     are products of the same kind
 *   large weights        as they lie, for one image or two
 *   few input channels   as they lie: blocks of channels would be mostly padding
 *   3x3, stride 1        Winograd halves the time, where there are channels to fill
 *                        vectors with and enough tiles for each transformed weight
 *   other convolutions   blocked layouts, twice as fast in spite of the copies
 *
 * Working memory that is large against the operands would decide how small a budget can be met,
 * above all where a batch is reordered as a whole (gradients of weights).
 * Such a choice gives way to one with less; Winograd's is granted where the schedule needs as
 * much memory elsewhere.  The rule cannot follow the budget, since the algorithm decides the bits. */
#include "runtime_int.h"

enum { FEW_CHANNELS = 8, FEW_IMAGES = 2, TILE = 4, WINOGRAD_CHANNELS = 64, WINOGRAD_TILES = 128 };

static bool all(const Ints *v, int n, int64_t value)
{
    for (int i = 0; i < n && i < v->n; i++)
        if (v->v[i] != value)
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

/* Rearranging the weights would take longer than reading them once for each image. */
static bool weights_prevail(const DnnlDesc *d, const Type *w, const Type *y)
{
    const Type *x = d->op == LIB_CONV ? &d->in[0] : &d->out;
    return d->op != LIB_CONV_BWD_WEIGHTS && d->conv.group == 1 && y->dim[0] <= FEW_IMAGES &&
           type_bytes(w) > type_bytes(x) + type_bytes(y);
}

static DnnlChoice preferred(const DnnlDesc *d)
{
    if (d->op == LIB_MATMUL)
        return DNNL_PLAIN;
    const Type *w = d->op == LIB_CONV_BWD_WEIGHTS ? &d->out : &d->in[1];
    const Type *y = d->op == LIB_CONV               ? &d->out
                    : d->op == LIB_CONV_BWD_WEIGHTS ? &d->in[1]
                                                    : &d->in[0];
    bool dense = d->conv.group == 1 && all(&d->conv.strides, MAX_INTS, 1) &&
                 all(&d->conv.dilations, MAX_INTS, 1);
    if (weights_prevail(d, w, y))
        return DNNL_PLAIN;
    if (dense && (kernel_is(w, 1) || w->dim[1] < FEW_CHANNELS))
        return DNNL_PLAIN;
    if (!dense || w->rank != 4 || !kernel_is(w, 3))
        return DNNL_BLOCKED;
    int64_t rows = d->rows ? d->rows : w->dim[0], tiles = y->dim[0];
    int64_t low = rows < w->dim[1] ? rows : w->dim[1], high = rows < w->dim[1] ? w->dim[1] : rows;
    for (int i = 2; i < 4; i++)
        tiles *= (y->dim[i] + TILE - 1) / TILE;
    bool worth = low >= WINOGRAD_CHANNELS && tiles >= WINOGRAD_TILES && tiles >= high / 4;
    return worth ? DNNL_WINOGRAD : DNNL_BLOCKED;
}

/* Bytes of the operands and half again: blocks round channels up. */
static int64_t own_cap(const DnnlDesc *d)
{
    int64_t n = type_bytes(&d->out);
    for (int i = 0; i < d->nin; i++)
        n += d->in[i].dt == DT_NONE ? 0 : type_bytes(&d->in[i]);
    return n + n / 2;
}

static DnnlOp *make(DnnlDesc *desc, DnnlChoice choice, Diag *d)
{
    desc->choice = choice;
    return dnnl_make(desc, d);
}

DnnlOp *choose_routine(DnnlDesc *desc, Diag *d)
{
    bool blocked = preferred(desc) != DNNL_PLAIN;
    DnnlOp *op = make(desc, blocked ? DNNL_BLOCKED : DNNL_PLAIN, d), *other;
    if (d->failed || (op && dnnl_scratch_bytes(op) <= own_cap(desc)))
        return op;
    other = make(desc, blocked ? DNNL_PLAIN : DNNL_BLOCKED, d);
    if (!op || (other && dnnl_scratch_bytes(other) < dnnl_scratch_bytes(op))) {
        dnnl_free(op);
        return other;
    }
    dnnl_free(other);
    desc->choice = blocked ? DNNL_BLOCKED : DNNL_PLAIN;
    return op;
}

DnnlOp *choose_faster(DnnlDesc *desc, int64_t room, Diag *d)
{
    if (preferred(desc) != DNNL_WINOGRAD)
        return NULL;
    DnnlOp *op = make(desc, DNNL_WINOGRAD, d);
    if (op && dnnl_scratch_bytes(op) <= room)
        return op;
    dnnl_free(op);
    return NULL;
}
