/* import_index.c -- reading and writing by index, sorting by comparison, sets of known data. */
#include "onnx_int.h"
#include <stdlib.h>
#include <string.h>

bool indices_inside(OnnxNode *n, int operand, const int64_t *extent, int64_t tuple)
{
    Tensor t;
    if (!graph_is_const(n->g, n->in[operand]))
        return true;
    TRY(static_tensor(n, operand, &t));
    for (int64_t k = 0, count = type_count(&t.type); k < count; k++) {
        int64_t i = tensor_i(&t, k), end = extent[k % tuple];
        if (i < -end || i >= end)
            return fail(n->x->d, "index %lld is outside %lld", (long long)i, (long long)end);
    }
    return true;
}

/* Likewise of tuples behind `batch` dimensions; what does not fit together at all is left to inference. */
static bool tuples_inside(OnnxNode *n, int64_t batch)
{
    const Type *t = in_type(n, 0), *ti = in_type(n, 1);
    int64_t tuple = ti->rank ? ti->dim[ti->rank - 1] : 0;
    return batch < 0 || batch >= t->rank || tuple < 1 || tuple > t->rank - batch ||
           indices_inside(n, 1, t->dim + batch, tuple);
}

/* y, whose gradient is over how often its row of the table is read: PyTorch's scale_grad_by_freq, which
 * stands in the call alone. */
static Val scaled_by_frequency(OnnxNode *n, Val y)
{
    Graph *g = n->g;
    const Type ti = *in_type(n, 1), t = *val_type(g, y);
    int64_t count = type_count(&ti);
    Val one_f32 = build_cast(g, scalar_like(g, y, 1), DT_F32), zero = scalar_like(g, one_f32, 0);
    Val in[] = {build_expand(g, zero, 1, in_type(n, 0)->dim),
                build_reshape(g, n->in[1], 2, (int64_t[]){count, 1}), build_expand(g, one_f32, 1, &count)};
    Val often = build(g, OP_scatter_nd, NULL, 3, in, &(ScatterAttrs){.reduction = SCATTER_ADD});
    Val share = build2(g, OP_div, one_f32, build_gather(g, often, n->in[1], 0));
    for (int i = ti.rank; i < t.rank; i++)
        share = insert_axis(g, share, i);
    Val held = build1(g, OP_detach, y);
    return build2(g, OP_add, held, build2(g, OP_mul, build2(g, OP_sub, y, held), build_cast(g, share, t.dt)));
}

static bool import_gather(OnnxNode *n)
{
    Graph *g = n->g;
    const Type *t = in_type(n, 0), *ti = in_type(n, 1);
    int64_t axis;
    TRY(axis_in(n, attr_int(n, "axis", 0), t->rank, &axis));
    TRY(indices_inside(n, 1, &t->dim[axis], 1));
    if (graph_is_const(g, n->in[1]) && ti->rank == 0) { /* one element: a slice */
        int64_t i, extent = t->dim[axis];
        TRY(static_int(n, 1, &i));
        Val cut = build_slice(g, n->in[0], (int)axis, i < 0 ? i + extent : i, 1);
        n->out[0] = drop_axis(g, cut, (int)axis);
        return n->out[0].i;
    }
    double padding = call_number(n, "embedding.default", 2, -1);
    GatherAttrs at = {axis, axis == 0 && padding >= 0 && padding < (double)t->dim[0] ? (int64_t)padding : -1};
    n->out[0] = build(g, OP_gather, NULL, 2, n->in, &at);
    if (axis == 0 && n->out[0].i &&
        (call_number(n, "embedding.default", 3, 0) || call_number(n, "embedding_bag.padding_idx", 3, 0)))
        n->out[0] = scaled_by_frequency(n, n->out[0]);
    return n->out[0].i;
}

/* ---- by element: PyTorch expands an index of rows to all of their elements ----------------------- */

/* The first of every `inner` elements of a known index, if the others equal it; else {0}. */
static Val known_rows(Graph *g, Val index, const Type *rows, int64_t inner)
{
    Tensor t = graph_tensor(g, index);
    for (int64_t k = 0, count = type_count(&t.type); k < count; k++)
        if (tensor_i(&t, k) != tensor_i(&t, k / inner * inner))
            return (Val){0};
    for (int i = rows->rank; i < t.type.rank; i++)
        index = build_slice(g, index, i, 0, 1);
    return build_reshape(g, index, rows->rank, rows->dim);
}

Val index_of_rows(Graph *g, Val index, int axis)
{
    const Type t = *val_type(g, index), rows = type_make(t.dt, axis + 1, t.dim);
    const Node *n = graph_def(g, index);
    int64_t inner = 1;
    for (int i = axis + 1; i < t.rank; i++)
        inner *= t.dim[i];
    if (inner > 1 && graph_is_const(g, index))
        return known_rows(g, index, &rows, inner);
    if (inner <= 1 || !n || (n->op != OP_cast && n->op != OP_expand))
        return (Val){0};
    Val x = n->in[0];
    if (n->op == OP_cast) {
        x = index_of_rows(g, x, axis);
        return x.i ? build_cast(g, x, t.dt) : x;
    }
    const Type from = *val_type(g, x);
    int kept = axis + 1 - (t.rank - from.rank);
    for (int i = kept > 0 ? kept : 0; i < from.rank; i++)
        if (from.dim[i] != 1)
            return (Val){0};
    x = build_reshape(g, x, kept > 0 ? kept : 0, from.dim);
    return build_expand(g, x, rows.rank, rows.dim);
}

/* The index as tuples of one, for gather_nd and scatter_nd with `axis` batch dimensions; {0}: elements of a
 * row of x have indices of their own, or none. */
static Val row_tuples(Graph *g, Val x, Val index, int axis)
{
    const Type *t = val_type(g, x), *ti = val_type(g, index);
    bool whole = t->rank == ti->rank && t->rank < MAX_RANK;
    for (int i = 0; whole && i < t->rank; i++)
        whole = i == axis || t->dim[i] == ti->dim[i];
    Val rows = whole ? index_of_rows(g, index, axis) : (Val){0};
    if (!rows.i)
        return rows;
    Type tuples = *val_type(g, rows);
    tuples.dim[tuples.rank++] = 1;
    return build_reshape(g, rows, tuples.rank, tuples.dim);
}

/* ---- ... or one of a matrix to all of a batch ------------------------------------------------------ */

/* Is a known index the same along its first `batch` dimensions? */
static bool repeats(const Tensor *t, int batch)
{
    int64_t each = 1, count = type_count(&t->type);
    for (int i = batch; i < t->type.rank; i++)
        each *= t->type.dim[i];
    for (int64_t k = each; k < count; k++)
        if (tensor_i(t, k) != tensor_i(t, k - each))
            return false;
    return each < count;
}

/* The first batch of a known index; reduces *batch to the number of dimensions along which it repeats. */
static Val known_batch(Graph *g, Val index, int *batch)
{
    Tensor t = graph_tensor(g, index);
    while (*batch && !repeats(&t, *batch))
        --*batch;
    for (int i = 0; i < *batch; i++)
        index = build_slice(g, index, i, 0, 1);
    return *batch ? index : (Val){0};
}

/* The index with extents of 1 in place of its first dimensions, at most *batch, along which it is the same;
 * {0}: there are none. */
static Val index_of_batch(Graph *g, Val index, int *batch)
{
    const Type t = *val_type(g, index);
    const Node *n = graph_def(g, index);
    if (graph_is_const(g, index))
        return known_batch(g, index, batch);
    if (n && n->op == OP_cast) {
        Val x = index_of_batch(g, n->in[0], batch);
        return x.i ? build_cast(g, x, t.dt) : x;
    }
    if (!n || n->op != OP_expand)
        return (Val){0};
    const Type *x = val_type(g, n->in[0]);
    Type one = t;
    int most = *batch, added = t.rank - x->rank;
    for (*batch = 0; *batch < most && (*batch < added || x->dim[*batch - added] == 1); ++*batch)
        one.dim[*batch] = 1;
    return type_same_shape(&one, &t) ? (Val){0} : build_expand(g, n->in[0], one.rank, one.dim);
}

/* index_of_batch() for elements of x along an axis; if the index stays as it was, *batch is 0. */
static Val batch_index(Graph *g, Val x, Val index, int64_t axis, int64_t *batch)
{
    const Type *t = val_type(g, x), *ti = val_type(g, index);
    int n = 0;
    while (t->rank == ti->rank && n < axis && t->dim[n] == ti->dim[n])
        n++;
    Val one = index_of_batch(g, index, &n);
    *batch = one.i ? n : 0;
    return one.i ? one : index;
}

static Val gather_elements(Graph *g, Val x, Val index, int64_t axis)
{
    ElementsAttrs at = {.axis = axis};
    Val rows = row_tuples(g, x, index, (int)axis);
    if (rows.i)
        return build(g, OP_gather_nd, NULL, 2, (Val[]){x, rows}, &(AxisAttrs){axis});
    index = batch_index(g, x, index, axis, &at.batch);
    return build(g, OP_gather_elements, NULL, 2, (Val[]){x, index}, &at);
}

static bool import_gather_elements(OnnxNode *n)
{
    int64_t axis;
    TRY(axis_in(n, attr_int(n, "axis", 0), in_type(n, 0)->rank, &axis));
    TRY(indices_inside(n, 1, &in_type(n, 0)->dim[axis], 1));
    n->out[0] = gather_elements(n->g, n->in[0], n->in[1], axis);
    return n->out[0].i;
}

static bool import_gather_nd(OnnxNode *n)
{
    AxisAttrs at = {attr_int(n, "batch_dims", 0)};
    TRY(tuples_inside(n, at.axis));
    n->out[0] = build(n->g, OP_gather_nd, NULL, 2, n->in, &at);
    return n->out[0].i;
}

static bool read_reduction(OnnxNode *n, int64_t *reduction)
{
    static const char *const names[] = {[SCATTER_SET] = "none", [SCATTER_ADD] = "add",
                                        [SCATTER_MUL] = "mul", [SCATTER_MAX] = "max",
                                        [SCATTER_MIN] = "min"};
    *reduction = attr_which(n, "reduction", "none", names, 5);
    return *reduction >= 0 || refuse(n, "reduction '%s'", attr_str(n, "reduction", ""));
}

static Val scatter_elements(Graph *g, Val x, Val index, Val source, ScatterAttrs at)
{
    Val rows = row_tuples(g, x, index, (int)at.axis);
    index = rows.i ? rows : batch_index(g, x, index, at.axis, &at.batch);
    return build(g, rows.i ? OP_scatter_nd : OP_scatter_elements, NULL, 3, (Val[]){x, index, source}, &at);
}

static bool includes_self(const OnnxNode *n)
{
    return !call_says(n, "scatter_reduce.two", "include_self: False");
}

/* Does the node come from PyTorch's scatter_reduce(..., "mean"), which its exporter writes as an assignment?
 * Not the one in front, which assigns the zeros to add to where include_self=False. */
static bool is_scattered_mean(const OnnxNode *n)
{
    if (!call_says(n, "scatter_reduce.two", ", mean"))
        return false;
    if (includes_self(n) || !graph_is_const(n->g, n->in[2]))
        return true;
    Tensor source = graph_tensor(n->g, n->in[2]);
    return !tensor_is_uniform(&source) || tensor_f(&source, 0) != 0;
}

/* The sum over the number of its terms, where there are any. */
static Val scattered_mean(const OnnxNode *n, ScatterAttrs at)
{
    Graph *g = n->g;
    at.reduction = SCATTER_ADD;
    Val count = build_filled(g, n->in[0], includes_self(n));
    count = scatter_elements(g, count, n->in[1], build_filled(g, n->in[2], 1), at);
    count = build2(g, OP_max, count, scalar_like(g, count, 1));
    return build2(g, OP_div, scatter_elements(g, n->in[0], n->in[1], n->in[2], at), count);
}

static bool import_scatter_elements(OnnxNode *n)
{
    ScatterAttrs at = {0};
    TRY(axis_in(n, attr_int(n, "axis", 0), in_type(n, 0)->rank, &at.axis));
    TRY(indices_inside(n, 1, &in_type(n, 0)->dim[at.axis], 1));
    TRY(read_reduction(n, &at.reduction));
    n->out[0] = is_scattered_mean(n) ? scattered_mean(n, at)
                                     : scatter_elements(n->g, n->in[0], n->in[1], n->in[2], at);
    return wrapped(n);
}

static bool import_scatter_nd(OnnxNode *n)
{
    ScatterAttrs at = {0};
    TRY(tuples_inside(n, 0));
    TRY(read_reduction(n, &at.reduction));
    n->out[0] = build(n->g, OP_scatter_nd, NULL, 3, n->in, &at);
    return wrapped(n);
}

/* off + (on - off) * (index == class); indices outside [-depth, depth) give a row of off. */
static bool import_one_hot(OnnxNode *n)
{
    Graph *g = n->g;
    Type t = *in_type(n, 0);
    int64_t depth, axis;
    TRY(static_int(n, 1, &depth));
    TRY(axis_in(n, attr_int(n, "axis", -1), t.rank + 1, &axis));
    if (t.rank == MAX_RANK || depth < 0)
        return refuse(n, "rank %d, depth %lld", t.rank, (long long)depth);
    Val index = insert_axis(g, build_cast(g, n->in[0], DT_I64), (int)axis);
    index = negative_wraps(g, index, depth);
    Val hit = build2(g, OP_equal, index, along_axis(g, iota(g, depth), (int)axis, t.rank + 1));
    Val off = build_slice(g, n->in[2], 0, 0, 1), on = build_slice(g, n->in[2], 0, 1, 1);
    n->out[0] = build3(g, OP_where, hit, on, off);
    set_data_type(n->x, n->out[0], data_type_of(n, 2));
    return n->out[0].i;
}

/* ---- sorting: indices, by which the values are gathered --------------------------------------- */

static bool import_top_k(OnnxNode *n)
{
    const Type *t = in_type(n, 0);
    TopkAttrs at = {.k = attr_int(n, "k", 0), .largest = attr_int(n, "largest", 1) != 0};
    TRY(n->opset >= 10 ? static_int(n, 1, &at.k) : attr_needed(n, "k"));
    TRY(axis_in(n, attr_int(n, "axis", -1), t->rank, &at.axis));
    Val index = build(n->g, OP_topk, NULL, 1, n->in, &at);
    n->out[0] =
        build(n->g, OP_gather_elements, NULL, 2, (Val[]){n->in[0], index}, &(ElementsAttrs){.axis = at.axis});
    if (has_out(n, 1))
        n->out[1] = index;
    return n->out[0].i;
}

/* out[t] = x[len-1-t] for t < len, else x[t]: gather_elements along time. */
static bool import_reverse_sequence(OnnxNode *n)
{
    Graph *g = n->g;
    const Type t = *in_type(n, 0);
    int64_t time, batch;
    TRY(axis_in(n, attr_int(n, "time_axis", 0), t.rank, &time));
    TRY(axis_in(n, attr_int(n, "batch_axis", 1), t.rank, &batch));
    Val step = along_axis(g, iota(g, t.dim[time]), (int)time, t.rank);
    Val len = along_axis(g, build_cast(g, n->in[1], DT_I64), (int)batch, t.rank);
    Val mirrored = add_scalar(g, build2(g, OP_sub, len, step), -1);
    Val index = build3(g, OP_where, build2(g, OP_less, step, len), mirrored, step);
    n->out[0] = gather_elements(g, n->in[0], build_expand(g, index, t.rank, t.dim), time);
    return n->out[0].i;
}

const OnnxOp onnx_index[] = {
    {"Gather", 1, .import = import_gather},
    {"GatherElements", 1, .import = import_gather_elements},
    {"GatherND", 1, .import = import_gather_nd},
    {"OneHot", 9, .import = import_one_hot, .typed = 1},
    {"ReverseSequence", 10, .import = import_reverse_sequence},
    {"Scatter", 9, .import = import_scatter_elements},
    {"ScatterElements", 11, .import = import_scatter_elements},
    {"ScatterND", 11, .import = import_scatter_nd},
    {"TopK", 1, .import = import_top_k, .typed = 1 << 1},
    {0},
};
