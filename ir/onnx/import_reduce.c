/* import_reduce.c -- reductions over axes, and along one axis: softmax, arg, cumulative
 * sums. */
#include "onnx_int.h"
#include <string.h>

typedef struct {
    Val x;
    uint32_t axes;
    bool keep;
} Reduction;

static bool read_reduction(OnnxNode *n, int since, Reduction *r)
{
    int rank = in_type(n, 0)->rank;
    Ints axes;
    bool given;
    TRY(node_axes(n, since, 1, rank, &axes, &given));
    *r = (Reduction){n->in[0], axes_mask(&axes), attr_int(n, "keepdims", 1) != 0};
    if (!axes.n && !attr_int(n, "noop_with_empty_axes", 0))
        r->axes = (1u << rank) - 1;
    return true;
}

static Val reduce(Graph *g, Op op, const Reduction *r, Val x)
{
    return build_reduce(g, op, x, r->axes, r->keep);
}

/* Axes became an operand in opset 13 for ReduceSum and 18 for the others. */
static bool import_reduce_sum(OnnxNode *n)
{
    Reduction r;
    TRY(read_reduction(n, 13, &r));
    n->out[0] = reduce(n->g, OP_reduce_sum, &r, r.x);
    return wrapped(n);
}

static bool import_reduce(OnnxNode *n)
{
    Reduction r;
    TRY(read_reduction(n, 18, &r));
    DType dt = in_type(n, 0)->dt;
    Val x = dt == DT_BOOL ? build_cast(n->g, r.x, DT_U8) : r.x;
    n->out[0] = build_cast(n->g, reduce(n->g, n->row->native, &r, x), dt);
    return wrapped(n);
}

static bool import_reduce_mean(OnnxNode *n)
{
    Reduction r;
    TRY(read_reduction(n, 18, &r));
    n->out[0] = mean_over(n->g, r.x, r.axes, r.keep);
    return n->out[0].i;
}

static bool import_reduce_sum_of(OnnxNode *n)
{
    Reduction r;
    TRY(read_reduction(n, 18, &r));
    n->out[0] = reduce(n->g, OP_reduce_sum, &r, one(n->g, n->row->native, r.x));
    return wrapped(n);
}

static bool import_reduce_l2(OnnxNode *n)
{
    Reduction r;
    TRY(read_reduction(n, 18, &r));
    DType dt = in_type(n, 0)->dt;
    Val sum = reduce(n->g, OP_reduce_sum, &r, one(n->g, OP_square, r.x));
    Val root = one(n->g, OP_root, build_cast(n->g, sum, dtype_is_float(dt) ? dt : DT_F64));
    n->out[0] = build_cast(n->g, root, dt);
    return n->out[0].i;
}

static bool import_reduce_log_sum(OnnxNode *n)
{
    Reduction r;
    TRY(read_reduction(n, 18, &r));
    n->out[0] = one(n->g, OP_log, reduce(n->g, OP_reduce_sum, &r, r.x));
    return n->out[0].i;
}

/* ---- along one axis ----------------------------------------------------- */

/* Applies f along the axis.  Before opset 13 the operator saw a matrix: all dimensions before
 * the axis by all from it on. */
static bool along_classes(OnnxNode *n, Val (*f)(OnnxNode *n, Val x, int64_t axis))
{
    Type t = *in_type(n, 0);
    int64_t axis, rows = 1, columns = 1;
    TRY(axis_in(n, attr_int(n, "axis", n->opset < 13 ? 1 : -1), t.rank, &axis));
    if (n->opset >= 13 || axis == t.rank - 1) {
        n->out[0] = f(n, n->in[0], axis);
        return n->out[0].i;
    }
    for (int i = 0; i < t.rank; i++)
        *(i < axis ? &rows : &columns) *= t.dim[i];
    Val x = build_reshape(n->g, n->in[0], 2, (int64_t[]){rows, columns});
    n->out[0] = build_reshape(n->g, f(n, x, 1), t.rank, t.dim);
    return n->out[0].i;
}

static Val softmax(OnnxNode *n, Val x, int64_t axis)
{
    return build(n->g, n->row->native, NULL, 1, &x, &(AxisAttrs){axis});
}

static bool import_softmax(OnnxNode *n) { return along_classes(n, softmax); }

static Val one_hot_maximum(OnnxNode *n, Val x, int64_t axis)
{
    Val best = build(n->g, OP_argmax, NULL, 1, &x, &(ArgAttrs){.axis = axis, .keepdims = 1});
    if (!best.i)
        return best;
    const Type *t = val_type(n->g, x);
    Val index = along_axis(n->g, iota(n->g, t->dim[axis]), (int)axis, t->rank);
    return build_cast(n->g, build2(n->g, OP_equal, best, index), t->dt);
}

static bool import_hardmax(OnnxNode *n) { return along_classes(n, one_hot_maximum); }

static bool import_arg(OnnxNode *n)
{
    ArgAttrs at = {.keepdims = attr_int(n, "keepdims", 1), .last = attr_int(n, "select_last_index", 0)};
    TRY(axis_in(n, attr_int(n, "axis", 0), in_type(n, 0)->rank, &at.axis));
    n->out[0] = build(n->g, n->row->native, NULL, 1, n->in, &at);
    return n->out[0].i;
}

static bool import_cumsum(OnnxNode *n)
{
    CumsumAttrs at = {.exclusive = attr_int(n, "exclusive", 0), .reverse = attr_int(n, "reverse", 0)};
    TRY(static_int(n, 1, &at.axis) && axis_in(n, at.axis, in_type(n, 0)->rank, &at.axis));
    n->out[0] = build(n->g, OP_cumsum, NULL, 1, n->in, &at);
    return wrapped(n);
}

/* Cumulative products by doubling: after step k every element is the product of the 2^k
 * elements that end there. */
static bool import_cumprod(OnnxNode *n)
{
    Graph *g = n->g;
    Type t = *in_type(n, 0);
    int64_t axis;
    TRY(static_int(n, 1, &axis) && axis_in(n, axis, t.rank, &axis));
    bool reverse = attr_int(n, "reverse", 0) != 0;
    int64_t extent = t.dim[axis], first = attr_int(n, "exclusive", 0) ? 1 : 0;
    PadAttrs pad = {.before.n = t.rank, .after.n = t.rank, .value = 1};
    Val y = n->in[0];
    for (int64_t by = 1, shifted = first; by < extent || shifted;) {
        int64_t cut = by < extent ? by : extent;
        Val kept = build_slice(g, y, (int)axis, reverse ? cut : 0, extent - cut);
        pad.before.v[axis] = reverse ? 0 : cut;
        pad.after.v[axis] = reverse ? cut : 0;
        Val moved = build(g, OP_pad, NULL, 1, &kept, &pad);
        y = shifted ? moved : build2(g, OP_mul, y, moved);
        by = shifted ? 1 : by * 2;
        shifted = 0;
    }
    n->out[0] = y;
    return wrapped(n);
}

const OnnxOp onnx_reduce[] = {
    {"ArgMax", 1, .import = import_arg, .native = OP_argmax, .typed = 1},
    {"ArgMin", 1, .import = import_arg, .native = OP_argmin, .typed = 1},
    {"CumProd", 1, .import = import_cumprod},
    {"CumSum", 1, .import = import_cumsum},
    {"Hardmax", 1, .import = import_hardmax},
    {"LogSoftmax", 1, .import = import_softmax, .native = OP_log_softmax},
    {"ReduceL1", 1, .import = import_reduce_sum_of, .native = OP_abs},
    {"ReduceL2", 1, .import = import_reduce_l2},
    {"ReduceLogSum", 1, .import = import_reduce_log_sum},
    {"ReduceLogSumExp", 1, .import = import_reduce, .native = OP_reduce_log_sum_exp},
    {"ReduceMax", 1, .import = import_reduce, .native = OP_reduce_max},
    {"ReduceMean", 1, .import = import_reduce_mean},
    {"ReduceMin", 1, .import = import_reduce, .native = OP_reduce_min},
    {"ReduceProd", 1, .import = import_reduce, .native = OP_reduce_prod},
    {"ReduceSum", 1, .import = import_reduce_sum},
    {"ReduceSumSquare", 1, .import = import_reduce_sum_of, .native = OP_square},
    {"Softmax", 1, .import = import_softmax, .native = OP_softmax},
    {0},
};
