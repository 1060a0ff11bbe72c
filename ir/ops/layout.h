/* layout.h -- how irregular kernels see their operands: an axis between outer and inner
 * dimensions, and sliding windows over up to three spatial dimensions. */
#ifndef CKC_OPS_LAYOUT_H
#define CKC_OPS_LAYOUT_H
#include "../integer.h"
#include "common.h"
#include <string.h>

enum { CHUNK = 32 }; /* contiguous elements one item handles; the kernel texts name it too */

static inline int64_t dims_product(const Type *t, int from, int to)
{
    int64_t n = 1;
    for (int i = from; i < to; i++)
        n *= t->dim[i];
    return n;
}

static inline int64_t chunks_of(int64_t inner) { return ceil_div(inner, CHUNK); }

static inline bool index_valid(const Graph *g, const Node *n, int operand, Diag *d)
{
    DType dt = in_type(g, n, operand)->dt;
    return dt == DT_I64 || dt == DT_I32 || dt == DT_U8 ||
           fail(d, "%s: indices are %s", node_def(n)->name, dtype_name[dt]);
}

/* Rows per block when every block of rows searches all `count` indices for its own. Looking
 * at an index costs an eighth of handling a row of CHUNK elements: with this many blocks
 * all the searching costs no more than the work itself. */
static inline int64_t row_block(int64_t rows, int64_t count)
{
    int64_t blocks = count ? (rows + count) * 8 / count : rows;
    blocks = blocks < 1 ? 1 : blocks > 256 ? 256 : blocks;
    int64_t block = ceil_div(rows, blocks);
    return block ? block : 1;
}

/* Are indices (or updates) of type ix fit to address x element-wise along axis? */
static inline bool elements_fit(const Node *n, const Type *x, const Type *ix, int axis, int64_t batch,
                                Diag *d)
{
    bool ok = x->rank == ix->rank && x->rank > 0 && batch >= 0 && batch <= axis;
    for (int i = 0; ok && i < x->rank; i++)
        ok = i < batch ? ix->dim[i] == 1 : i == axis || ix->dim[i] <= x->dim[i];
    char a[160], b[160];
    return ok || fail(d, "%s: indices %s do not fit %s on axis %d", node_def(n)->name,
                      type_str(ix, a), type_str(x, b), axis);
}

/* Are the last dimension's tuples in ix fit to address x after `batch` common dimensions? */
static inline bool tuples_fit(const Node *n, const Type *x, const Type *ix, int64_t batch,
                              Diag *d)
{
    bool ok = batch >= 0 && ix->rank > batch && x->rank > batch;
    ok = ok && ix->dim[ix->rank - 1] >= 0 && ix->dim[ix->rank - 1] <= x->rank - batch;
    for (int i = 0; ok && i < batch; i++)
        ok = x->dim[i] == ix->dim[i];
    char a[160], b[160];
    return ok || fail(d, "%s: index tuples %s do not fit %s, %lld batch dimensions",
                      node_def(n)->name, type_str(ix, a), type_str(x, b), (long long)batch);
}

/* Sliding windows: spatial dimensions right-aligned in three, missing ones have extent 1. */
typedef struct {
    int64_t in[3], out[3], kernel[3], stride[3], pad[3], pad_end[3], dilation[3];
} Window;

typedef struct {
    const Ints *kernel, *strides, *pads, *dilations;
} WindowAttrs;

static inline bool ints_within(const Ints *v, int n, int64_t low, const char *what,
                               const Node *node, Diag *d)
{
    if (v->n != n)
        return fail(d, "%s: %d %s for %d spatial dimensions", node_def(node)->name, v->n,
                    what, n);
    for (int i = 0; i < n; i++)
        if (v->v[i] < low || v->v[i] > INT32_MAX)
            return fail(d, "%s: %s out of range", node_def(node)->name, what);
    return true;
}

/* Check the attributes against x [N, C, s...] and fill w (all but out). */
static inline bool window_make(Window *w, const Node *n, const Type *x, WindowAttrs at,
                               Diag *d)
{
    int sp = x->rank - 2;
    if (sp < 1 || sp > 3)
        return fail(d, "%s: %d spatial dimensions, 1 to 3 are known", node_def(n)->name,
                    sp);
    TRY(ints_within(at.kernel, sp, 1, "kernel extents", n, d));
    TRY(ints_within(at.strides, sp, 1, "strides", n, d));
    TRY(ints_within(at.dilations, sp, 1, "dilations", n, d));
    TRY(at.pads->n % 2 == 0 || fail(d, "%s: odd number of pads", node_def(n)->name));
    Ints half = *at.pads;
    half.n /= 2;
    TRY(ints_within(&half, sp, 0, "pads", n, d));
    memmove(half.v, half.v + sp, (size_t)sp * sizeof *half.v);
    TRY(ints_within(&half, sp, 0, "pads", n, d));
    *w = (Window){{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0}, {0}, {1, 1, 1}};
    for (int i = 0; i < sp; i++) {
        int k = 3 - sp + i;
        w->in[k] = x->dim[2 + i];
        w->kernel[k] = at.kernel->v[i];
        w->stride[k] = at.strides->v[i];
        w->dilation[k] = at.dilations->v[i];
        w->pad[k] = at.pads->v[i];
        w->pad_end[k] = at.pads->v[sp + i];
    }
    return true;
}

static inline void window_set_out(Window *w, int sp, const int64_t *dim)
{
    for (int i = 0; i < sp; i++)
        w->out[3 - sp + i] = dim[i];
}

/* Parameters 0..17: in, out, kernel, stride, pad, dilation. */
static inline void window_params(Kernel *k, const Window *w)
{
    const int64_t *field[] = {w->in, w->out, w->kernel, w->stride, w->pad, w->dilation};
    for (size_t f = 0; f < COUNT(field); f++)
        for (int i = 0; i < 3; i++)
            k_param(k, field[f][i]);
}
#endif
