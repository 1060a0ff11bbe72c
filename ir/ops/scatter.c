/* scatter.c -- writing by index: scatter_elements and scatter_nd; the gradient of gather_elements.
 *
 * out = x, then out[index] op= u in the order of the indices, so that duplicates are well
 * defined (the last SET wins).  An item owns every element it may write: all of one line
 * along the axis, or a block of rows and a chunk of columns (see gather.c).  Indices out of
 * range are skipped.
 *
 * Gradients: SET assumes distinct indices, as everybody does; MAX and MIN share evenly among
 * all that reach the result, and MUL is exact at zeros, both as in PyTorch. */
#include "layout.h"
#include "../kernel_math.h"

static const AttrDef scatter_attrs[] = {ATTR(ScatterAttrs, axis, AT_I64, 0),
                                        ATTR(ScatterAttrs, reduction, AT_I64, SCATTER_SET),
                                        ATTR(ScatterAttrs, batch, AT_I64, 0)};

static bool scatter_valid(const Graph *g, const Node *n, Diag *d)
{
    const ScatterAttrs *at = n->attr;
    TRY(index_valid(g, n, 1, d));
    if (at->reduction < SCATTER_SET || at->reduction > SCATTER_MIN)
        return fail(d, "%s: unknown reduction", node_def(n)->name);
    return in_type(g, n, 0)->dt == in_type(g, n, 2)->dt ||
           fail(d, "%s: updates are %s", node_def(n)->name,
                dtype_name[in_type(g, n, 2)->dt]);
}

/* ---- scatter_elements -------------------------------------------------------------- */

/* Do updates u of x at indices ix have the shape of the indices, the batch's included? */
static bool updates_fit(const Node *n, const Type *x, const Type *ix, const Type *u, int axis, int64_t batch,
                        Diag *d)
{
    char a[160];
    TRY(elements_fit(n, x, ix, axis, batch, d));
    Type each = *ix;
    for (int i = 0; i < batch; i++)
        each.dim[i] = x->dim[i];
    return type_same_shape(&each, u) || fail(d, "%s: updates are %s", node_def(n)->name, type_str(u, a));
}

/* p: 0 lead dimensions (neither axis nor the inner one), 1 axis extent of x, 2 of u, 3 axis
 * stride of x, 4 of u, 5 inner extent of x, 6 of u, 7 chunks, 8 integers, 9 reduction, 10 indices, 12 inner
 * positions of an item; per lead dimension 16.. extent of x, 24.. of u, 32.. stride of x, 40.. of u. */

static bool scatter_elements_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    const ScatterAttrs *at = n->attr;
    const Type *x = in_type(g, n, 0), *ix = in_type(g, n, 1);
    *out = *x;
    TRY(scatter_valid(g, n, d));
    TRY(axis_valid(n, at->axis, x->rank, d));
    return updates_fit(n, x, ix, in_type(g, n, 2), (int)at->axis, at->batch, d);
}

/* clang-format off */
/* Where an item's line begins in x and in u, which has it only inside. */
#define LINE_OF_ITEM                                                                                         \
    int64_t rest = i / p[7], base = 0, ubase = 0;                                                            \
    int inside = 1;                                                                                          \
    for (int64_t d = p[0]; d-- > 0;) {                                                                       \
        const int64_t at = rest % p[16 + d];                                                                 \
        rest /= p[16 + d];                                                                                   \
        base += at * p[32 + d];                                                                              \
        ubase += at * p[40 + d];                                                                             \
        inside = inside && at < p[24 + d];                                                                   \
    }

KERNEL_BEHIND(scatter_elements, LINE_OF_ITEM,
    const int64_t inner = p[5], chunks = p[7], how = p[9];
    const int64_t c0 = i % chunks * p[12], c1 = FMIN(inner, c0 + p[12]), u1 = FMIN(p[6], c1);
    for (int64_t a = 0; a < p[1]; a++)
        for (int64_t c = c0; c < c1; c++)
            if (p[8])
                SETI(3, base + a * p[3] + c, I(0, base + a * p[3] + c));
            else
                SETF(3, base + a * p[3] + c, F(0, base + a * p[3] + c));
    const int64_t index = ubase % p[10];
    for (int64_t a = 0; a < p[2] && inside; a++)
        for (int64_t c = c0; c < u1; c++) {
            const int64_t from = ubase + a * p[4] + c;
            int64_t row = I(1, index + a * p[4] + c);
            row += row < 0 ? p[1] : 0;
            if (row < 0 || row >= p[1])
                continue;
            const int64_t to = base + row * p[3] + c;
            if (p[8]) {
                const int64_t v = I(2, from), old = I(3, to);
                SETI(3, to, how == 1 ? (int64_t)((uint64_t)old + (uint64_t)v)
                          : how == 2 ? (int64_t)((uint64_t)old * (uint64_t)v)
                          : how == 3 ? FMAX(old, v) : how == 4 ? FMIN(old, v) : v);
            } else {
                const REAL v = F(2, from), old = F(3, to);
                SETF(3, to, how == 1 ? old + v : how == 2 ? old * v
                          : how == 3 ? FMAX(old, v) : how == 4 ? FMIN(old, v) : v);
            }
        }
)
/* clang-format on */

/* Parameters for updates u of x at indices ix; returns the items. */
static int64_t elements_params(Kernel *k, const Type *x, const Type *ix, const Type *u, int axis,
                               int64_t reduction)
{
    int last = x->rank - 1, lead = 0;
    bool column = axis != last;
    int64_t xs[MAX_RANK], us[MAX_RANK], items = 1, indices = type_count(ix);
    type_strides(x, xs);
    type_strides(u, us);
    for (int i = 0; i < x->rank; i++) {
        if (i == axis || i == last)
            continue;
        k->p[16 + lead] = x->dim[i];
        k->p[24 + lead] = u->dim[i];
        k->p[32 + lead] = xs[i];
        k->p[40 + lead++] = us[i];
        items *= x->dim[i];
    }
    int64_t inner = column ? x->dim[last] : 1;
    int64_t p[] = {lead,
                   x->dim[axis],
                   u->dim[axis],
                   xs[axis],
                   us[axis],
                   inner,
                   column ? u->dim[last] : 1,
                   chunks_of(inner),
                   !dtype_is_float(x->dt),
                   reduction,
                   indices ? indices : 1,
                   0,
                   CHUNK};
    memcpy(k->p, p, sizeof p);
    k->np = 48;
    k->flops = 2.0 * (double)type_count(x) + 5.0 * (double)type_count(u);
    return items * chunks_of(inner);
}

static bool scatter_elements_lower(Kernel *k, const Graph *g, const Node *n)
{
    const ScatterAttrs *at = n->attr;
    k_body(k, &scatter_elements_body,
           elements_params(k, in_type(g, n, 0), in_type(g, n, 1), in_type(g, n, 2), (int)at->axis,
                           at->reduction));
    return true;
}

/* ---- gather_elements_bwd dy, i: zeros with dy added at i ---------------------------- */

static const AttrDef elements_bwd_attrs[] = {
    ATTR(ElementsBwdAttrs, axis, AT_I64, 0), ATTR(ElementsBwdAttrs, batch, AT_I64, 0),
    ATTR(ElementsBwdAttrs, out, AT_DTYPE, DT_NONE), ATTR(ElementsBwdAttrs, shape, AT_INTS, 0)};

static bool gather_elements_bwd_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    const ElementsBwdAttrs *at = n->attr;
    const Type *dy = in_type(g, n, 0);
    TRY(index_valid(g, n, 1, d));
    TRY(shape_type(n, at->out == DT_NONE ? dtype_sum(dy->dt) : (DType)at->out, &at->shape, out, d));
    TRY(axis_valid(n, at->axis, out->rank, d));
    if (!dtype_is_float(dy->dt) || (out->dt != dy->dt && out->dt != dtype_sum(dy->dt)))
        return fail(d, "gather_elements_bwd: sums of %s are not %s", dtype_name[dy->dt], dtype_name[out->dt]);
    return updates_fit(n, out, in_type(g, n, 1), dy, (int)at->axis, at->batch, d);
}

/* p: as in scatter_elements; 11: positions along the axis that are summed at a time, 0: all, in the result
 * itself, which is not rounded. */
/* clang-format off */
KERNEL_BEHIND(gather_elements_bwd, LINE_OF_ITEM,
    const int64_t inner = p[5], chunks = p[7];
    const int64_t c0 = i % chunks * p[12], c1 = FMIN(inner, c0 + p[12]), u1 = FMIN(p[6], c1);
    const int64_t index = ubase % p[10], updates = inside ? p[2] : 0;
    for (int64_t a = 0; a < p[1] && !p[11]; a++)
        for (int64_t c = c0; c < c1; c++)
            SETF(2, base + a * p[3] + c, 0);
    for (int64_t a = 0; a < updates && !p[11]; a++)
        for (int64_t c = c0; c < u1; c++) {
            int64_t row = I(1, index + a * p[4] + c);
            row += row < 0 ? p[1] : 0;
            if (row < 0 || row >= p[1])
                continue;
            const int64_t to = base + row * p[3] + c;
            SETF(2, to, F(2, to) + F(0, ubase + a * p[4] + c));
        }
    for (int64_t a0 = 0; a0 < p[1] && p[11]; a0 += p[11])
        for (int64_t c = c0; c < c1; c++) {
            REAL sum[32];
            for (int64_t a = 0; a < p[11]; a++)
                sum[a] = 0;
            for (int64_t a = 0; a < updates && c < u1; a++) {
                int64_t row = I(1, index + a * p[4] + c);
                row += row < 0 ? p[1] : 0;
                if (row >= a0 && row < a0 + p[11])
                    sum[row - a0] += F(0, ubase + a * p[4] + c);
            }
            for (int64_t a = a0; a < FMIN(p[1], a0 + p[11]); a++)
                SETF(2, base + a * p[3] + c, sum[a - a0]);
        }
)
/* clang-format on */

static bool gather_elements_bwd_lower(Kernel *k, const Graph *g, const Node *n)
{
    enum { AT_A_TIME = 32 };
    const ElementsBwdAttrs *at = n->attr;
    const Type *x = out_type(g, n, 0), *dy = in_type(g, n, 0);
    int64_t items = elements_params(k, x, in_type(g, n, 1), dy, (int)at->axis, SCATTER_ADD);
    k->p[11] = x->dt == dtype_sum(dy->dt) ? 0 : AT_A_TIME;
    k_body(k, &gather_elements_bwd_body, items);
    return true;
}

static bool gather_elements_bwd_grad(Grad *gr, const Node *n)
{
    const ElementsBwdAttrs *at = n->attr;
    Val dx = build_cast(gr->g, grad_out(gr, n, 0), val_type(gr->g, n->in[0])->dt);
    grad_add(gr, n->in[0],
             build(gr->g, OP_gather_elements, NULL, 2, (Val[]){dx, n->in[1]},
                   &(ElementsAttrs){at->axis, at->batch}));
    return true;
}

/* ---- scatter_nd -------------------------------------------------------------------- */

/* p: 0 inner, 1 rows of x, 2 tuples, 3 chunks, 4 tuple length, 5 blocks, 6 rows per block,
 * 7 integers, 8 reduction, 9 inner positions of an item; 16.. extents the tuple indexes. */

static bool scatter_nd_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    const Type *x = in_type(g, n, 0), *ix = in_type(g, n, 1), *u = in_type(g, n, 2);
    int64_t batch = ((const ScatterAttrs *)n->attr)->axis;
    char a[160];
    *out = *x;
    TRY(scatter_valid(g, n, d));
    TRY(tuples_fit(n, x, ix, batch, d));
    int from = (int)(batch + ix->dim[ix->rank - 1]), rank = ix->rank - 1;
    bool ok = u->rank == rank + x->rank - from;
    for (int i = 0; ok && i < u->rank; i++)
        ok = u->dim[i] == (i < rank ? ix->dim[i] : x->dim[from + i - rank]);
    return ok || fail(d, "scatter_nd: updates are %s", type_str(u, a));
}

/* clang-format off */
KERNEL(scatter_nd,
    const int64_t inner = p[0], rows = p[1], count = p[2], chunks = p[3], tuple = p[4];
    const int64_t blocks = p[5], block = p[6], how = p[8];
    const int64_t c0 = i % chunks * p[9], c1 = FMIN(inner, c0 + p[9]);
    const int64_t batch = i / (chunks * blocks);
    const int64_t r0 = i / chunks % blocks * block, r1 = FMIN(rows, r0 + block);
    for (int64_t r = batch * rows + r0; r < batch * rows + r1; r++)
        for (int64_t j = r * inner + c0; j < r * inner + c1; j++)
            if (p[7])
                SETI(3, j, I(0, j));
            else
                SETF(3, j, F(0, j));
    for (int64_t j = batch * count; j < (batch + 1) * count; j++) {
        int64_t row = 0;
        int inside = 1;
        for (int64_t k = 0; k < tuple; k++) {
            int64_t v = I(1, j * tuple + k);
            v += v < 0 ? p[16 + k] : 0;
            inside = inside && v >= 0 && v < p[16 + k];
            row = row * p[16 + k] + (inside ? v : 0);
        }
        if (!inside || row < r0 || row >= r1)
            continue;
        const int64_t base = (batch * rows + row) * inner;
        for (int64_t c = c0; c < c1; c++)
            if (p[7]) {
                const int64_t v = I(2, j * inner + c), old = I(3, base + c);
                SETI(3, base + c, how == 1 ? (int64_t)((uint64_t)old + (uint64_t)v)
                                : how == 2 ? (int64_t)((uint64_t)old * (uint64_t)v)
                                : how == 3 ? FMAX(old, v) : how == 4 ? FMIN(old, v) : v);
            } else {
                const REAL v = F(2, j * inner + c), old = F(3, base + c);
                SETF(3, base + c, how == 1 ? old + v : how == 2 ? old * v
                                : how == 3 ? FMAX(old, v) : how == 4 ? FMIN(old, v) : v);
            }
    }
)
/* clang-format on */

static bool scatter_nd_lower(Kernel *k, const Graph *g, const Node *n)
{
    const ScatterAttrs *at = n->attr;
    const Type *x = in_type(g, n, 0), *ix = in_type(g, n, 1);
    int batch = (int)at->axis, tuple = (int)ix->dim[ix->rank - 1];
    int64_t inner = dims_product(x, batch + tuple, x->rank), chunks = chunks_of(inner);
    int64_t rows = dims_product(x, batch, batch + tuple);
    int64_t count = dims_product(ix, batch, ix->rank - 1), block = row_block(rows, count);
    int64_t blocks = ceil_div(rows, block);
    int64_t p[] = {inner,         rows, count, chunks, tuple, blocks, block, !dtype_is_float(x->dt),
                   at->reduction, CHUNK};
    memcpy(k->p, p, sizeof p);
    memcpy(k->p + 16, x->dim + batch, (size_t)tuple * sizeof *x->dim);
    k->np = 24;
    const int64_t items = dims_product(x, 0, batch) * blocks * chunks;
    k->flops = 2.0 * (double)type_count(x) + 5.0 * (double)type_count(in_type(g, n, 2)) +
               (2.0 * tuple + 2) * (double)count * (double)items;
    k_body(k, &scatter_nd_body, items);
    return true;
}

/* ---- gradients ----------------------------------------------------------------------- */

/* The same scatter, combined in another way. */
static Val scatter_as(Graph *g, const Node *n, int64_t reduction, Val x, Val u)
{
    ScatterAttrs at = *(const ScatterAttrs *)n->attr;
    at.reduction = reduction;
    return build(g, n->op, NULL, 3, (Val[]){x, n->in[1], u}, &at);
}

/* For each update, the element of a tensor like x at which it is written. */
static Val gathered(Graph *g, const Node *n, Val x)
{
    const ScatterAttrs *at = n->attr;
    Val in[] = {x, n->in[1]};
    if (n->op == OP_scatter_nd)
        return build(g, OP_gather_nd, NULL, 2, in, &(AxisAttrs){at->axis});
    return build(g, OP_gather_elements, NULL, 2, in, &(ElementsAttrs){at->axis, at->batch});
}

/* The cotangent with zeros where x was overwritten. */
static Val cleared(Graph *g, const Node *n, Val dy)
{
    return scatter_as(g, n, SCATTER_SET, dy, build_filled(g, n->in[2], 0));
}

/* Elements and updates that equal the result get dy in equal shares. */
static void extremum_grad(Grad *gr, const Node *n, Val dy)
{
    Graph *g = gr->g;
    Val x = n->in[0], u = n->in[2], y = n->out[0];
    DType dt = val_type(g, x)->dt;
    Val x_hits = build_cast(g, build2(g, OP_equal, x, y), dt);
    Val u_hits = build_cast(g, build2(g, OP_equal, u, gathered(g, n, y)), dt);
    Val share = build2(g, OP_div, dy, scatter_as(g, n, SCATTER_ADD, x_hits, u_hits));
    grad_add(gr, x, build2(g, OP_mul, x_hits, share));
    grad_add(gr, u, build2(g, OP_mul, u_hits, gathered(g, n, share)));
}

/* The derivative by an update is the product of all other factors: that of all which are not zero,
 * over its own; 0 if another one is zero. */
static void product_grad(Grad *gr, const Node *n, Val dy)
{
    Graph *g = gr->g;
    Val x = n->in[0], u = n->in[2];
    DType dt = val_type(g, x)->dt;
    Val zero = build_scalar(g, dt, 0), one = build_scalar(g, dt, 1);
    Val is_zero = build2(g, OP_equal, u, zero);
    Val nonzero = build3(g, OP_where, is_zero, one, u);
    Val zeros = scatter_as(g, n, SCATTER_ADD, build_filled(g, x, 0), build_cast(g, is_zero, dt));
    Val product = build2(g, OP_mul, dy, scatter_as(g, n, SCATTER_MUL, x, nonzero));
    Val own = build2(g, OP_equal, gathered(g, n, zeros), build_cast(g, is_zero, dt));
    Val others = build2(g, OP_div, gathered(g, n, product), nonzero);
    grad_add(gr, x, build2(g, OP_mul, dy, scatter_as(g, n, SCATTER_MUL, build_filled(g, x, 1), u)));
    grad_add(gr, u, build3(g, OP_where, own, others, zero));
}

static bool scatter_grad(Grad *gr, const Node *n)
{
    const ScatterAttrs *at = n->attr;
    Val dy = grad_out(gr, n, 0);
    if (at->reduction == SCATTER_MAX || at->reduction == SCATTER_MIN) {
        extremum_grad(gr, n, dy);
    } else if (at->reduction == SCATTER_MUL) {
        product_grad(gr, n, dy);
    } else {
        if (grad_wants(gr, n, 0))
            grad_add(gr, n->in[0], at->reduction == SCATTER_SET ? cleared(gr->g, n, dy) : dy);
        if (grad_wants(gr, n, 2))
            grad_add(gr, n->in[2], gathered(gr->g, n, dy));
    }
    return true;
}

static const char *const reduction_name[] = {"none", "add", "mul", "max", "min"};

static OnnxVal scatter_elements(OnnxNodes *o, OnnxVal x, OnnxVal index, OnnxVal updates, int64_t axis,
                                int64_t how)
{
    OnnxVal y = onnx_op3(o, "ScatterElements", x, index, updates);
    onnx_attr(o, "axis", axis);
    onnx_attr_text(o, "reduction", reduction_name[how]);
    return y;
}

/* The row of x, [rows, inner], that each tuple names. */
static OnnxVal rows_onnx(OnnxNodes *o, const Type *x, int64_t count, int tuple)
{
    int64_t stride[MAX_RANK], step = 1;
    for (int i = tuple; i-- > 0; step *= x->dim[i])
        stride[i] = step;
    OnnxVal index = onnx_reshape(o, onnx_cast(o, onnx_in(o, 1), DT_I64), 2, (int64_t[]){count, tuple});
    OnnxVal behind = onnx_op2(o, "Add", index, onnx_ints(o, x->dim, tuple));
    OnnxVal less = onnx_op(o, "Less", DT_BOOL, 2, (OnnxVal[]){index, onnx_scalar(o, DT_I64, 0)});
    index = onnx_op(o, "Where", DT_I64, 3, (OnnxVal[]){less, behind, index});
    return onnx_reduced(o, "ReduceSum", onnx_op2(o, "Mul", index, onnx_ints(o, stride, tuple)), 2, true);
}

/* scatter_nd by ScatterElements of rows: with equal indices onnxruntime's ScatterND, whose threads do not
 * wait for each other, loses terms. */
static OnnxVal scatter_rows(OnnxNodes *o, const Graph *g, const Node *n, int64_t how)
{
    const Type *x = in_type(g, n, 0), *ix = in_type(g, n, 1);
    int tuple = (int)ix->dim[ix->rank - 1];
    int64_t count = dims_product(ix, 0, ix->rank - 1), inner = dims_product(x, tuple, x->rank);
    int64_t dims[] = {count, inner}, rows[] = {dims_product(x, 0, tuple), inner};
    OnnxVal index = onnx_expand(o, rows_onnx(o, x, count, tuple), 2, dims);
    OnnxVal y = scatter_elements(o, onnx_reshape(o, onnx_in(o, 0), 2, rows), index,
                                 onnx_reshape(o, onnx_in(o, 2), 2, dims), 0, how);
    return onnx_reshape(o, y, x->rank, x->dim);
}

/* scatter_nd with tuples of one index behind batch dimensions: ScatterElements with an index per element. */
static OnnxVal scatter_batches(OnnxNodes *o, const Graph *g, const Node *n)
{
    const ScatterAttrs *at = n->attr;
    const Type *u = in_type(g, n, 2);
    Type index = *u;
    for (int i = in_type(g, n, 1)->rank - 1; i < u->rank; i++)
        index.dim[i] = 1;
    OnnxVal v = onnx_reshape(o, onnx_cast(o, onnx_in(o, 1), DT_I64), u->rank, index.dim);
    return scatter_elements(o, onnx_in(o, 0), onnx_expand(o, v, u->rank, u->dim), onnx_in(o, 2), at->axis,
                            at->reduction);
}

/* The indices as i64, one for each update. */
static OnnxVal elements_index(OnnxNodes *o, int64_t batch, const Type *u)
{
    OnnxVal index = onnx_cast(o, onnx_in(o, 1), DT_I64);
    return batch ? onnx_expand(o, index, u->rank, u->dim) : index;
}

static bool gather_elements_bwd_onnx(OnnxNodes *o, const Graph *g, const Node *n)
{
    const ElementsBwdAttrs *at = n->attr;
    const Type *x = out_type(g, n, 0), *dy = in_type(g, n, 0);
    DType sum = dtype_sum(dy->dt);
    OnnxVal y = scatter_elements(o, onnx_zeros(o, sum, x->rank, x->dim), elements_index(o, at->batch, dy),
                                 onnx_cast(o, onnx_in(o, 0), sum), at->axis, SCATTER_ADD);
    onnx_out(o, 0, onnx_cast(o, y, x->dt));
    return true;
}

const OpDef op_gather_elements_bwd = {.name = "gather_elements_bwd",
                                      .min_in = 2,
                                      .max_in = 2,
                                      .nout = 1,
                                      ATTRS(elements_bwd_attrs, ElementsBwdAttrs),
                                      .infer = gather_elements_bwd_infer,
                                      .grad = gather_elements_bwd_grad,
                                      .onnx = gather_elements_bwd_onnx,
                                      .lower = gather_elements_bwd_lower};

static bool scatter_onnx(OnnxNodes *o, const Graph *g, const Node *n)
{
    const ScatterAttrs *at = n->attr;
    bool nd = n->op == OP_scatter_nd;
    const Type *x = in_type(g, n, 0), *ix = in_type(g, n, 1), *u = in_type(g, n, 2);
    bool one = nd && ix->dim[ix->rank - 1] == 1 && u->rank == x->rank;
    if (nd && at->axis && !one)
        return onnx_refuse(o, "ScatterND has no batch dimensions");
    if (nd && at->axis)
        onnx_out(o, 0, scatter_batches(o, g, n));
    else if (!nd)
        onnx_out(o, 0,
                 scatter_elements(o, onnx_in(o, 0), elements_index(o, at->batch, u), onnx_in(o, 2), at->axis,
                                  at->reduction));
    else if (at->reduction)
        onnx_out(o, 0, scatter_rows(o, g, n, at->reduction));
    else
        onnx_out(o, 0,
                 onnx_op3(o, "ScatterND", onnx_in(o, 0), onnx_cast(o, onnx_in(o, 1), DT_I64), onnx_in(o, 2)));
    return true;
}

#define SCATTER_OP(id)                                                                                       \
    const OpDef op_##id = {.name = #id, .min_in = 3, .max_in = 3, .nout = 1,                                 \
                           ATTRS(scatter_attrs, ScatterAttrs), .infer = id##_infer, .grad = scatter_grad,    \
                           .onnx = scatter_onnx, .lower = id##_lower}
SCATTER_OP(scatter_elements);
SCATTER_OP(scatter_nd);
