/* gather.c -- reading by index: gather, gather_elements, gather_nd; the gradient of gather (that of
 * gather_elements is in scatter.c).
 *
 * Negative indices count from the end.  An index out of range reads 0 and receives nothing:
 * data decides about indices, so a kernel cannot refuse them and must not leave its memory.
 *
 * gather_bwd adds rows in index order without atomics: an item owns a block of rows and a
 * chunk of columns, and looks for its rows among all indices.  The number of blocks is
 * chosen so that looking costs no more than zeroing and adding: O((rows + indices) * inner)
 * in all. */
#include "../integer.h"
#include "layout.h"
#include "../kernel_math.h"

static const AttrDef axis_attrs[] = {ATTR(AxisAttrs, axis, AT_I64, 0)};
static const AttrDef gather_attrs[] = {ATTR(GatherAttrs, axis, AT_I64, 0),
                                       ATTR(GatherAttrs, padding, AT_I64, -1)};
static const AttrDef elements_attrs[] = {ATTR(ElementsAttrs, axis, AT_I64, 0),
                                         ATTR(ElementsAttrs, batch, AT_I64, 0)};
static const AttrDef gather_bwd_attrs[] = {ATTR(GatherBwdAttrs, axis, AT_I64, 0),
                                           ATTR(GatherBwdAttrs, shape, AT_INTS, 0)};

/* gather's or gather_nd's */
static int axis_of(const Node *n) { return (int)*(const int64_t *)n->attr; }
static bool is_int(const Type *t) { return !dtype_is_float(t->dt); }

/* ---- gather x, i: slices of x along axis --------------------------------------------- */

static bool gather_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    const Type *x = in_type(g, n, 0), *ix = in_type(g, n, 1);
    TRY(index_valid(g, n, 1, d));
    const GatherAttrs *at = n->attr;
    TRY(axis_valid(n, at->axis, x->rank, d));
    int axis = axis_of(n), rank = 0;
    if (at->padding < -1 || at->padding >= x->dim[axis])
        return fail(d, "gather: padding = %lld of %lld rows", (long long)at->padding,
                    (long long)x->dim[axis]);
    if (x->rank + ix->rank - 1 > MAX_RANK)
        return fail(d, "gather: result of rank %d", x->rank + ix->rank - 1);
    int64_t dim[2 * MAX_RANK];
    for (int i = 0; i < axis; i++)
        dim[rank++] = x->dim[i];
    for (int i = 0; i < ix->rank; i++)
        dim[rank++] = ix->dim[i];
    for (int i = axis + 1; i < x->rank; i++)
        dim[rank++] = x->dim[i];
    *out = type_make(x->dt, rank, dim);
    return true;
}

/* clang-format off */
KERNEL(gather,
    const int64_t inner = p[0], rows = p[1], count = p[2], chunks = p[3];
    const int64_t c0 = i % chunks * 32, c1 = FMIN(inner, c0 + 32), at = i / chunks;
    int64_t row = I(1, at % count);
    row += row < 0 ? rows : 0;
    const int inside = row >= 0 && row < rows;
    const int64_t from = (at / count * rows + (inside ? row : 0)) * inner;
    for (int64_t c = c0; c < c1; c++)
        if (p[4])
            SETI(2, at * inner + c, inside ? I(0, from + c) : 0);
        else
            SETF(2, at * inner + c, inside ? F(0, from + c) : R(0));
)

KERNEL(gather_bwd,
    const int64_t inner = p[0], rows = p[1], count = p[2], chunks = p[3];
    const int64_t blocks = p[4], block = p[5];
    const int64_t c0 = i % chunks * p[6], c1 = FMIN(inner, c0 + p[6]);
    const int64_t outer = i / (chunks * blocks);
    const int64_t r0 = i / chunks % blocks * block, r1 = FMIN(rows, r0 + block);
    for (int64_t r = r0; r < r1; r++)
        for (int64_t c = c0; c < c1; c++)
            SETF(2, (outer * rows + r) * inner + c, 0);
    for (int64_t j = 0; j < count; j++) {
        int64_t row = I(1, j);
        row += row < 0 ? rows : 0;
        if (row < r0 || row >= r1)
            continue;
        const int64_t to = (outer * rows + row) * inner;
        const int64_t from = (outer * count + j) * inner;
        for (int64_t c = c0; c < c1; c++)
            SETF(2, to + c, F(2, to + c) + F(0, from + c));
    }
)
/* clang-format on */

/* Bytes that `rows` rows of `inner` elements are, wherever they lie: memory is read in units. */
static int64_t gathered_bytes(int64_t rows, int64_t inner, DType dt)
{
    enum { UNIT = 32 };
    return rows * round_up(inner * dtype_size[dt], UNIT);
}

static bool gather_lower(Kernel *k, const Graph *g, const Node *n)
{
    const Type *x = in_type(g, n, 0), *ix = in_type(g, n, 1);
    int axis = axis_of(n);
    int64_t inner = dims_product(x, axis + 1, x->rank), count = type_count(ix);
    k_param(k, inner);
    k_param(k, x->dim[axis]);
    k_param(k, count);
    k_param(k, chunks_of(inner));
    k_param(k, is_int(x));
    k->flops = (double)type_count(out_type(g, n, 0));
    k->gathers = gathered_bytes(dims_product(x, 0, axis) * count, inner, x->dt);
    k_body(k, &gather_body, dims_product(x, 0, axis) * count * chunks_of(inner));
    return true;
}

/* The indices in a type that ONNX allows, i32 or i64. */
static OnnxVal index_onnx(OnnxNodes *o, const Graph *g, const Node *n)
{
    OnnxVal i = onnx_in(o, 1);
    return in_type(g, n, 1)->dt == DT_U8 ? onnx_cast(o, i, DT_I64) : i;
}

static bool axis_onnx(OnnxNodes *o, const Graph *g, const Node *n)
{
    bool nd = n->op == OP_gather_nd;
    const char *op = nd ? "GatherND" : "Gather";
    OnnxVal index = index_onnx(o, g, n), y;
    y = onnx_op2(o, op, onnx_in(o, 0), nd ? onnx_cast(o, index, DT_I64) : index);
    onnx_attr(o, nd ? "batch_dims" : "axis", axis_of(n));
    onnx_out(o, 0, y);
    return true;
}

/* Sums of many small terms: accumulated in f32 when the operands are narrower. */
static Val wide(Graph *g, Val v) { return build_cast(g, v, dtype_sum(val_type(g, v)->dt)); }

/* The indices of a gather, those that give no gradient out of range. */
static Val gradient_rows(Graph *g, const Node *n)
{
    const GatherAttrs *at = n->attr;
    if (at->padding < 0)
        return n->in[1];
    Val i = build_cast(g, n->in[1], DT_I64);
    Val pads = build2(g, OP_equal, i, build_scalar(g, DT_I64, (double)at->padding));
    return build3(g, OP_where, pads, build_scalar(g, DT_I64, (double)val_type(g, n->in[0])->dim[at->axis]),
                  i);
}

static bool gather_grad(Grad *gr, const Node *n)
{
    Graph *g = gr->g;
    const Type *x = val_type(g, n->in[0]);
    GatherBwdAttrs at = {axis_of(n), ints_of(x)};
    Val in[] = {grad_out(gr, n, 0), gradient_rows(g, n)};
    grad_add(gr, n->in[0], build(g, OP_gather_bwd, NULL, 2, in, &at));
    return true;
}

const OpDef op_gather = {.name = "gather", .min_in = 2, .max_in = 2, .nout = 1,
                         ATTRS(gather_attrs, GatherAttrs), .infer = gather_infer, .grad = gather_grad,
                         .onnx = axis_onnx, .lower = gather_lower};

static bool gather_bwd_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    const GatherBwdAttrs *at = n->attr;
    const Type *dy = in_type(g, n, 0);
    TRY(index_valid(g, n, 1, d));
    TRY(shape_type(n, dtype_sum(dy->dt), &at->shape, out, d));
    TRY(axis_valid(n, at->axis, out->rank, d));
    int axis = (int)at->axis;
    if (!dtype_is_float(dy->dt) ||
        type_count(dy) != dims_product(out, 0, axis) * type_count(in_type(g, n, 1)) *
                              dims_product(out, axis + 1, out->rank))
        return fail(d, "gather_bwd: the gradient does not fit indices and shape");
    return true;
}

static bool gather_bwd_lower(Kernel *k, const Graph *g, const Node *n)
{
    const Type *x = out_type(g, n, 0);
    int axis = (int)((const GatherBwdAttrs *)n->attr)->axis;
    int64_t rows = x->dim[axis], count = type_count(in_type(g, n, 1));
    int64_t inner = dims_product(x, axis + 1, x->rank), chunks = chunks_of(inner);
    int64_t block = row_block(rows, count);
    int64_t blocks = ceil_div(rows, block);
    int64_t params[] = {inner, rows, count, chunks, blocks, block, CHUNK};
    for (size_t i = 0; i < COUNT(params); i++)
        k_param(k, params[i]);
    const int64_t items = dims_product(x, 0, axis) * blocks * chunks;
    k->flops = (double)type_count(x) + 4.0 * (double)type_count(in_type(g, n, 0)) +
               2.0 * (double)count * (double)items;
    k_body(k, &gather_bwd_body, items);
    return true;
}

/* Adds the gradient, [outer, indices, inner], to zeros [outer, rows, inner]; of indices behind the last row
 * (those of gather's padding) nothing.  ScatterND would need no index for each element, but onnxruntime runs
 * it on several threads at once, and loses terms where indices are equal. */
static bool gather_bwd_onnx(OnnxNodes *o, const Graph *g, const Node *n)
{
    const Type *x = out_type(g, n, 0);
    int axis = (int)((const GatherBwdAttrs *)n->attr)->axis;
    int64_t count = type_count(in_type(g, n, 1)), outer = dims_product(x, 0, axis);
    int64_t inner = dims_product(x, axis + 1, x->rank), dims[] = {outer, count, inner};
    OnnxVal dy = onnx_reshape(o, onnx_cast(o, onnx_in(o, 0), x->dt), 3, dims);
    OnnxVal index = onnx_reshape(o, onnx_cast(o, onnx_in(o, 1), DT_I64), 3, (int64_t[]){1, count, 1});
    OnnxVal inside = onnx_op2(o, "Less", index, onnx_scalar(o, DT_I64, (double)x->dim[axis]));
    dy = onnx_op3(o, "Where", inside, dy, onnx_scalar(o, x->dt, 0));
    index = onnx_op3(o, "Where", inside, index, onnx_scalar(o, DT_I64, 0));
    OnnxVal zeros = onnx_zeros(o, x->dt, 3, (int64_t[]){outer, x->dim[axis], inner});
    OnnxVal dx = onnx_op3(o, "ScatterElements", zeros, onnx_expand(o, index, 3, dims), dy);
    onnx_attr(o, "axis", 1);
    onnx_attr_text(o, "reduction", "add");
    onnx_out(o, 0, onnx_reshape(o, dx, x->rank, x->dim));
    return true;
}

static bool gather_bwd_grad(Grad *gr, const Node *n)
{
    Val dx = build_cast(gr->g, grad_out(gr, n, 0), val_type(gr->g, n->in[0])->dt);
    Val dy = build_gather(gr->g, dx, n->in[1], (int)((const GatherBwdAttrs *)n->attr)->axis);
    const Type *t = val_type(gr->g, n->in[0]);
    grad_add(gr, n->in[0], build_reshape(gr->g, dy, t->rank, t->dim));
    return true;
}

const OpDef op_gather_bwd = {.name = "gather_bwd", .min_in = 2, .max_in = 2, .nout = 1,
                             ATTRS(gather_bwd_attrs, GatherBwdAttrs), .infer = gather_bwd_infer,
                             .grad = gather_bwd_grad, .onnx = gather_bwd_onnx, .lower = gather_bwd_lower};

/* ---- gather_elements x, i: x at i's coordinates, the one along axis replaced by i; the same i for all of
 * the first `batch` dimensions, which are 1 in i ---- */

static bool gather_elements_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    const ElementsAttrs *at = n->attr;
    const Type *x = in_type(g, n, 0), *ix = in_type(g, n, 1);
    TRY(index_valid(g, n, 1, d));
    TRY(axis_valid(n, at->axis, x->rank, d));
    TRY(elements_fit(n, x, ix, (int)at->axis, at->batch, d));
    *out = type_with(*ix, x->dt);
    for (int i = 0; i < at->batch; i++)
        out->dim[i] = x->dim[i];
    return true;
}

/* p: 0 dimensions but the last, 1 its extent, 2 of x's axis, 3 its stride, 4 along the last otherwise, 5
 * integers, 6 indices, 7 elements of an item, 24 items of a row; per dimension 8.. extent, 16.. stride of
 * x. */
/* clang-format off */
KERNEL(gather_elements,
    int64_t rest = i / p[24], base = 0;
    const int64_t first = rest * p[1], index = first % p[6], j0 = i % p[24] * p[7];
    for (int64_t d = p[0]; d-- > 0;) {
        base += rest % p[8 + d] * p[16 + d];
        rest /= p[8 + d];
    }
    for (int64_t j = j0; j < FMIN(p[1], j0 + p[7]); j++) {
        const int64_t at = first + j;
        int64_t row = I(1, index + j);
        row += row < 0 ? p[2] : 0;
        const int inside = row >= 0 && row < p[2];
        const int64_t from = base + (inside ? row : 0) * p[3] + j * p[4];
        if (p[5])
            SETI(2, at, inside ? I(0, from) : 0);
        else
            SETF(2, at, inside ? F(0, from) : R(0));
    }
)
/* clang-format on */

static bool gather_elements_lower(Kernel *k, const Graph *g, const Node *n)
{
    const Type *x = in_type(g, n, 0), *y = out_type(g, n, 0);
    int axis = (int)((const ElementsAttrs *)n->attr)->axis, last = y->rank - 1;
    int64_t stride[MAX_RANK], indices = type_count(in_type(g, n, 1));
    type_strides(x, stride);
    k->p[0] = last;
    k->p[1] = y->dim[last];
    k->p[2] = x->dim[axis];
    k->p[3] = stride[axis];
    k->p[4] = axis != last;
    k->p[5] = is_int(x);
    k->p[6] = indices ? indices : 1;
    k->p[7] = k->p[1] ? k->p[1] : 1;
    k->p[24] = 1;
    for (int i = 0; i < last; i++) {
        k->p[8 + i] = y->dim[i];
        k->p[16 + i] = i == axis ? 0 : stride[i];
    }
    k->np = 25;
    k->flops = (double)type_count(y);
    k->gathers = gathered_bytes(type_count(y), 1, x->dt);
    k_body(k, &gather_elements_body, dims_product(y, 0, last));
    return true;
}

/* Adds the cotangent to the gradient so far, so that many readings need no sum of tensors. */
static bool gather_elements_grad(Grad *gr, const Node *n)
{
    Graph *g = gr->g;
    const ElementsAttrs *at = n->attr;
    Val dy = grad_out(gr, n, 0);
    if (g->diag->failed)
        return false;
    Val sum = grad_take(gr, n->in[0], dtype_sum(val_type(g, dy)->dt));
    ScatterAttrs add = {at->axis, SCATTER_ADD, at->batch};
    ElementsBwdAttrs first = {at->axis, at->batch, DT_NONE, ints_of(val_type(g, n->in[0]))};
    Val dx = sum.i ? build(g, OP_scatter_elements, NULL, 3, (Val[]){sum, n->in[1], wide(g, dy)}, &add)
                   : build(g, OP_gather_elements_bwd, NULL, 2, (Val[]){dy, n->in[1]}, &first);
    grad_add(gr, n->in[0], dx);
    return true;
}

/* Indices that batches share are expanded. */
static bool gather_elements_onnx(OnnxNodes *o, const Graph *g, const Node *n)
{
    const ElementsAttrs *at = n->attr;
    const Type *t = out_type(g, n, 0);
    OnnxVal index = index_onnx(o, g, n);
    index = at->batch ? onnx_expand(o, index, t->rank, t->dim) : index;
    OnnxVal y = onnx_op2(o, "GatherElements", onnx_in(o, 0), index);
    onnx_attr(o, "axis", at->axis);
    onnx_out(o, 0, y);
    return true;
}

const OpDef op_gather_elements = {.name = "gather_elements",
                                  .min_in = 2,
                                  .max_in = 2,
                                  .nout = 1,
                                  ATTRS(elements_attrs, ElementsAttrs),
                                  .infer = gather_elements_infer,
                                  .grad = gather_elements_grad,
                                  .onnx = gather_elements_onnx,
                                  .lower = gather_elements_lower};

/* ---- gather_nd x, i: slices of x at index tuples, after `axis` batch dimensions ------ */

static bool gather_nd_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    const Type *x = in_type(g, n, 0), *ix = in_type(g, n, 1);
    int batch = axis_of(n), rank = 0;
    TRY(index_valid(g, n, 1, d));
    TRY(tuples_fit(n, x, ix, ((const AxisAttrs *)n->attr)->axis, d));
    int tuple = (int)ix->dim[ix->rank - 1];
    int64_t dim[2 * MAX_RANK];
    for (int i = 0; i < ix->rank - 1; i++)
        dim[rank++] = ix->dim[i];
    for (int i = batch + tuple; i < x->rank; i++)
        dim[rank++] = x->dim[i];
    if (rank > MAX_RANK)
        return fail(d, "gather_nd: result of rank %d", rank);
    *out = type_make(x->dt, rank, dim);
    return true;
}

/* clang-format off */
KERNEL(gather_nd,
    const int64_t inner = p[0], rows = p[1], count = p[2], chunks = p[3], tuple = p[4];
    const int64_t c0 = i % chunks * p[6], c1 = FMIN(inner, c0 + p[6]), at = i / chunks;
    int64_t row = 0;
    int inside = 1;
    for (int64_t k = 0; k < tuple; k++) {
        int64_t v = I(1, at * tuple + k);
        v += v < 0 ? p[8 + k] : 0;
        inside = inside && v >= 0 && v < p[8 + k];
        row = row * p[8 + k] + (inside ? v : 0);
    }
    const int64_t from = (at / count * rows + row) * inner;
    for (int64_t c = c0; c < c1; c++)
        if (p[5])
            SETI(2, at * inner + c, inside ? I(0, from + c) : 0);
        else
            SETF(2, at * inner + c, inside ? F(0, from + c) : R(0));
)
/* clang-format on */

static bool gather_nd_lower(Kernel *k, const Graph *g, const Node *n)
{
    const Type *x = in_type(g, n, 0), *ix = in_type(g, n, 1);
    int batch = axis_of(n), tuple = (int)ix->dim[ix->rank - 1];
    int64_t inner = dims_product(x, batch + tuple, x->rank);
    k->p[0] = inner;
    k->p[1] = dims_product(x, batch, batch + tuple);
    k->p[2] = dims_product(ix, batch, ix->rank - 1);
    k->p[3] = chunks_of(inner);
    k->p[4] = tuple;
    k->p[5] = is_int(x);
    k->p[6] = CHUNK;
    for (int i = 0; i < tuple; i++)
        k->p[8 + i] = x->dim[batch + i];
    k->np = 16;
    k->flops = (double)type_count(out_type(g, n, 0));
    k->gathers = gathered_bytes(dims_product(ix, 0, ix->rank - 1), inner, x->dt);
    k_body(k, &gather_nd_body, dims_product(ix, 0, ix->rank - 1) * chunks_of(inner));
    return true;
}

/* The number of the row of x that each tuple of gather_nd names, among the rows of all batches; one beyond
 * them if an index is out of range. */
static Val rows_of_tuples(Graph *g, const Node *n)
{
    const Type x = *val_type(g, n->in[0]), ix = *val_type(g, n->in[1]);
    int batch = axis_of(n), last = ix.rank - 1, tuple = (int)ix.dim[last];
    if (batch == 0 && tuple == 1)
        return build_reshape(g, n->in[1], last, ix.dim);
    int64_t batches = dims_product(&x, 0, batch), rows = dims_product(&x, batch, batch + tuple);
    int64_t stride[MAX_RANK], *before = NEW(g->arena, int64_t, batches + 1),
                              count = dims_product(&ix, 0, last);
    for (int k = 0; k < tuple; k++)
        stride[k] = dims_product(&x, batch + k + 1, batch + tuple);
    for (int64_t b = 0; b < batches; b++)
        before[b] = b * rows;
    Val extent = build_ints(g, x.dim + batch, tuple), zero = build_scalar(g, DT_I64, 0);
    Val i = build_cast(g, n->in[1], DT_I64), beyond = build_scalar(g, DT_I64, (double)(batches * rows));
    i = build3(g, OP_where, build2(g, OP_less, i, zero), build2(g, OP_add, i, extent), i);
    Val outside = build2(g, OP_or, build2(g, OP_less, i, zero), build2(g, OP_less_equal, extent, i));
    i = build2(g, OP_mul, build3(g, OP_where, outside, beyond, i), build_ints(g, stride, tuple));
    Val row = build_reduce(g, OP_reduce_sum, i, 1u << last, false);
    row = build_reshape(g, row, 2, (int64_t[]){batches, batches ? count / batches : 0});
    row = build2(g, OP_add, row,
                 graph_const(g, "before", type_make(DT_I64, 2, (int64_t[]){batches, 1}), before));
    return build_reshape(g, row, 1, &count);
}

/* Adds the cotangent to the gradient so far; the first one is that of a gather of rows. */
static bool gather_nd_grad(Grad *gr, const Node *n)
{
    Graph *g = gr->g;
    Val dy = grad_out(gr, n, 0);
    if (g->diag->failed)
        return false;
    const Type x = *val_type(g, n->in[0]);
    Val sum = grad_take(gr, n->in[0], dtype_sum(val_type(g, dy)->dt));
    if (sum.i) {
        ScatterAttrs at = {axis_of(n), SCATTER_ADD, 0};
        grad_add(gr, n->in[0], build(g, OP_scatter_nd, NULL, 3, (Val[]){sum, n->in[1], wide(g, dy)}, &at));
        return true;
    }
    int named = axis_of(n) + (int)val_type(g, n->in[1])->dim[val_type(g, n->in[1])->rank - 1];
    GatherBwdAttrs at = {0, {.n = 2, .v = {dims_product(&x, 0, named), dims_product(&x, named, x.rank)}}};
    Val dx = build(g, OP_gather_bwd, NULL, 2, (Val[]){dy, rows_of_tuples(g, n)}, &at);
    grad_add(gr, n->in[0], build_reshape(g, dx, x.rank, x.dim));
    return true;
}

const OpDef op_gather_nd = {.name = "gather_nd",
                            .min_in = 2,
                            .max_in = 2,
                            .nout = 1,
                            ATTRS(axis_attrs, AxisAttrs),
                            .infer = gather_nd_infer,
                            .grad = gather_nd_grad,
                            .onnx = axis_onnx,
                            .lower = gather_nd_lower};
