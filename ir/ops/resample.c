/* resample.c -- interpolation along one axis by tables of indices and weights: a sparse
 * matrix with a fixed number of entries per row, applied to every line along the axis.
 *
 * The adjoint of a sparse matrix is its transpose, so the gradient is resample again, with
 * tables transposed here, while compiling. */
#include "layout.h"
#include "../kernel_math.h"

static const AttrDef axis_attrs[] = {ATTR(AxisAttrs, axis, AT_I64, 0)};

static bool resample_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    const Type *x = in_type(g, n, 0), *ix = in_type(g, n, 1), *w = in_type(g, n, 2);
    int64_t axis = ((const AxisAttrs *)n->attr)->axis;
    *out = *x;
    TRY(index_valid(g, n, 1, d));
    TRY(axis_valid(n, axis, x->rank, d));
    if (!dtype_is_float(x->dt) || !dtype_is_float(w->dt) || ix->rank != 2 || !type_same_shape(ix, w))
        return fail(d, "resample: tables of rank 2 and one shape, float data and weights");
    out->dim[axis] = ix->dim[0];
    return true;
}

/* An item: `block` results along the axis, up to p[7] elements below it. */
/* clang-format off */
KERNEL(resample,
    const int64_t inner = p[0], rows = p[1], count = p[2], taps = p[3], chunks = p[4];
    const int64_t block = p[5], blocks = p[6];
    const int64_t c0 = i % chunks * p[7], n = FMIN(p[7], inner - c0);
    const int64_t first = i / chunks % blocks * block, last = FMIN(count, first + block);
    const int64_t outer = i / (chunks * blocks);
    for (int64_t o = first; o < last; o++) {
        REAL acc[32];
        for (int64_t c = 0; c < n; c++)
            acc[c] = 0;
        for (int64_t j = o * taps; j < (o + 1) * taps; j++) {
            const int64_t row = I(1, j);
            const REAL w = F(2, j);
            if (row < 0 || row >= rows)
                continue;
            for (int64_t c = 0; c < n; c++)
                acc[c] += w * F(0, (outer * rows + row) * inner + c0 + c);
        }
        for (int64_t c = 0; c < n; c++)
            SETF(3, (outer * count + o) * inner + c0 + c, acc[c]);
    }
)
/* clang-format on */

static bool resample_lower(Kernel *k, const Graph *g, const Node *n)
{
    const Type *x = in_type(g, n, 0), *ix = in_type(g, n, 1);
    int axis = (int)((const AxisAttrs *)n->attr)->axis;
    int64_t inner = dims_product(x, axis + 1, x->rank), count = ix->dim[0];
    int64_t block = inner < CHUNK ? CHUNK / (inner ? inner : 1) : 1;
    int64_t blocks = ceil_div(count, block), chunks = chunks_of(inner);
    int64_t params[] = {inner, x->dim[axis], count, ix->dim[1], chunks, block, blocks, CHUNK};
    for (size_t i = 0; i < COUNT(params); i++)
        k_param(k, params[i]);
    k->flops = (double)(type_count(out_type(g, n, 0)) * ix->dim[1]);
    k_body(k, &resample_body, dims_product(x, 0, axis) * blocks * chunks);
    return true;
}

/* Gathers rows by the table, with weight 0 where it has none, and sums them over its columns. */
static bool resample_onnx(OnnxNodes *o, const Graph *g, const Node *n)
{
    const Type *x = in_type(g, n, 0), *table = in_type(g, n, 1);
    int axis = (int)((const AxisAttrs *)n->attr)->axis;
    OnnxVal v = onnx_in(o, 0), index = onnx_cast(o, onnx_in(o, 1), DT_I64), none = onnx_scalar(o, DT_I64, 0);
    DType dt = onnx_type(o, v);
    OnnxVal there = onnx_op(o, "GreaterOrEqual", DT_BOOL, 2, (OnnxVal[]){index, none});
    OnnxVal w = onnx_cast(o, onnx_in(o, 2), dt);
    w = onnx_op(o, "Where", dt, 3, (OnnxVal[]){there, w, onnx_scalar(o, dt, 0)});
    int64_t dim[MAX_RANK + 2] = {table->dim[0], table->dim[1]};
    for (int i = axis + 1; i < x->rank; i++)
        dim[i - axis + 1] = 1;
    w = onnx_reshape(o, w, x->rank - axis + 1, dim);
    OnnxVal rows = onnx_op2(o, "Gather", v, onnx_op2(o, "Max", index, none));
    onnx_attr(o, "axis", axis);
    onnx_out(o, 0, onnx_reduced(o, "ReduceSum", onnx_op2(o, "Mul", rows, w), 1u << (axis + 1), false));
    return true;
}

/* ---- the transpose ------------------------------------------------------------------- */

/* Entries per input element; returns the largest. */
static int64_t count_entries(const Tensor *index, int64_t rows, int64_t *entries)
{
    int64_t most = 0;
    for (int64_t i = 0; i < type_count(&index->type); i++) {
        int64_t row = tensor_i(index, i);
        if (row >= 0 && row < rows && ++entries[row] > most)
            most = entries[row];
    }
    return most;
}

static void transpose_tables(Graph *g, Val index, Val weight, int64_t rows, Val out[2])
{
    Tensor ix = graph_tensor(g, index), w = graph_tensor(g, weight);
    int64_t *entries = NEW(g->arena, int64_t, rows + 1), taps = ix.type.dim[1];
    int64_t dim[] = {rows, count_entries(&ix, rows, entries)};
    Tensor tix = {type_make(DT_I64, 2, dim), NULL}, tw = {type_make(w.type.dt, 2, dim), NULL};
    tix.data = NEW(g->arena, char, type_bytes(&tix.type) + 1);
    tw.data = NEW(g->arena, char, type_bytes(&tw.type) + 1);
    memset(tix.data, 0xff, (size_t)type_bytes(&tix.type)); /* -1: no entry */
    memset(entries, 0, (size_t)rows * sizeof *entries);
    for (int64_t i = 0; i < type_count(&ix.type); i++) {
        int64_t row = tensor_i(&ix, i);
        if (row < 0 || row >= rows)
            continue;
        int64_t to = row * dim[1] + entries[row]++;
        tensor_set_i(&tix, to, i / taps);
        tensor_set_f(&tw, to, tensor_f(&w, i));
    }
    out[0] = graph_const(g, "index", tix.type, tix.data);
    out[1] = graph_const(g, "weight", tw.type, tw.data);
}

static bool resample_grad(Grad *gr, const Node *n)
{
    Graph *g = gr->g;
    Val in[3] = {grad_out(gr, n, 0)};
    if (!graph_is_const(g, n->in[1]) || !graph_is_const(g, n->in[2]))
        return fail_status(g->diag, EXIT_UNSUPPORTED, "resample: tables must be constants");
    int64_t axis = ((const AxisAttrs *)n->attr)->axis;
    transpose_tables(g, n->in[1], n->in[2], val_type(g, n->in[0])->dim[axis], in + 1);
    grad_add(gr, n->in[0], build(g, OP_resample, NULL, 3, in, n->attr));
    return true;
}

const OpDef op_resample = {.name = "resample", .min_in = 3, .max_in = 3, .nout = 1, .wide_in = 1 << 2,
                           ATTRS(axis_attrs, AxisAttrs), .infer = resample_infer, .grad = resample_grad,
                           .onnx = resample_onnx, .lower = resample_lower};
