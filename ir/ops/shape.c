/* shape.c -- operators that move elements: reshape, transpose, expand, slice, concat, pad. */
#include "common.h"
#include <string.h>
#include "../kernel_math.h"

static const AttrDef shape_attrs[] = {ATTR(ShapeAttrs, shape, AT_INTS, 0)};

/* ---- accumulated x: x, when all micro-batches of a step are over -----------------------
 * Marks where a step goes on that is cut into micro-batches (plan.h): what depends on it runs once,
 * everything else once for each. */

static bool same_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    (void)d;
    *out = *in_type(g, n, 0);
    return true;
}

/* ---- reshape x: a view ------------------------------------------------------------ */

static bool reshape_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    const ShapeAttrs *at = n->attr;
    const Type *x = in_type(g, n, 0);
    TRY(shape_type(n, x->dt, &at->shape, out, d));
    char a[160], b[160];
    if (type_count(out) != type_count(x))
        return fail(d, "reshape: %s has not the elements of %s", type_str(out, b), type_str(x, a));
    return true;
}

static bool reshape_lower(Kernel *k, const Graph *g, const Node *n)
{
    int64_t count = type_count(in_type(g, n, 0));
    Type flat = type_make(in_type(g, n, 0)->dt, 1, &count);
    k_space(k, &flat, 0);
    k_store(k, 1, k_load(k, 0, &flat));
    return true;
}

static bool reshape_grad(Grad *gr, const Node *n)
{
    const Type *x = val_type(gr->g, n->in[0]);
    grad_add(gr, n->in[0], build_reshape(gr->g, grad_out(gr, n, 0), x->rank, x->dim));
    return true;
}

static bool view_onnx(OnnxNodes *o, const Graph *g, const Node *n)
{
    const Type *t = out_type(g, n, 0);
    onnx_out(o, 0, onnx_reshape(o, onnx_in(o, 0), t->rank, t->dim));
    return true;
}

/* In ONNX a value has no place: a copy is an Identity. */
static bool same_onnx(OnnxNodes *o, const Graph *g, const Node *n)
{
    (void)g, (void)n;
    onnx_out(o, 0, onnx_op1(o, "Identity", onnx_in(o, 0)));
    return true;
}

/* An operator whose result equals its operand. */
#define SAME(op, ...)                                                                                        \
    const OpDef op_##op = {.name = #op, .min_in = 1, .max_in = 1, .nout = 1,                                 \
                           .infer = same_infer, .onnx = same_onnx, __VA_ARGS__}
SAME(accumulated, .traits = OPT_VIEW, .grad = reshape_grad, .lower = reshape_lower);

/* ---- detach x: x, through which no gradient goes ---------------------------------- */

SAME(detach, .traits = OPT_VIEW | OPT_ZEROGRAD, .lower = reshape_lower);

const OpDef op_reshape = {.name = "reshape", .min_in = 1, .max_in = 1, .nout = 1, .traits = OPT_VIEW,
                          ATTRS(shape_attrs, ShapeAttrs), .infer = reshape_infer, .grad = reshape_grad,
                          .lower = reshape_lower, .onnx = view_onnx};

/* ---- transpose x {perm} ------------------------------------------------------------- */

static const AttrDef transpose_attrs[] = {ATTR(TransposeAttrs, perm, AT_INTS, 0)};

static bool transpose_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    const TransposeAttrs *at = n->attr;
    const Type *x = in_type(g, n, 0);
    uint32_t seen = 0;
    *out = (Type){.dt = x->dt, .rank = x->rank};
    if (at->perm.n != x->rank)
        return fail(d, "transpose: %d axes for rank %d", at->perm.n, x->rank);
    for (int i = 0; i < x->rank; i++) {
        int64_t p = at->perm.v[i];
        if (p < 0 || p >= x->rank || (seen >> p & 1))
            return fail(d, "transpose: perm is no permutation");
        seen |= 1u << p;
        out->dim[i] = x->dim[p];
    }
    return true;
}

static bool transpose_lower(Kernel *k, const Graph *g, const Node *n)
{
    const TransposeAttrs *at = n->attr;
    int64_t own[MAX_RANK], stride[MAX_RANK];
    type_strides(in_type(g, n, 0), own);
    for (int i = 0; i < at->perm.n; i++)
        stride[i] = own[at->perm.v[i]];
    k_space(k, out_type(g, n, 0), 0);
    k_store(k, 1, k_load_at(k, 0, 0, stride));
    return true;
}

static bool transpose_onnx(OnnxNodes *o, const Graph *g, const Node *n)
{
    const TransposeAttrs *at = n->attr;
    int perm[MAX_RANK];
    for (int i = 0; i < at->perm.n; i++)
        perm[i] = (int)at->perm.v[i];
    onnx_out(o, 0, onnx_transpose(o, onnx_in(o, 0), in_type(g, n, 0)->rank, perm));
    return true;
}

static bool transpose_grad(Grad *gr, const Node *n)
{
    const TransposeAttrs *at = n->attr;
    int back[MAX_RANK];
    for (int i = 0; i < at->perm.n; i++)
        back[at->perm.v[i]] = i;
    grad_add(gr, n->in[0], build_transpose(gr->g, grad_out(gr, n, 0), back));
    return true;
}

const OpDef op_transpose = {.name = "transpose", .min_in = 1, .max_in = 1, .nout = 1,
                            ATTRS(transpose_attrs, TransposeAttrs), .infer = transpose_infer,
                            .grad = transpose_grad, .lower = transpose_lower, .onnx = transpose_onnx};

/* ---- expand x {shape}: numpy broadcast_to ---------------------------------------------- */

static bool expand_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    const ShapeAttrs *at = n->attr;
    TRY(shape_type(n, in_type(g, n, 0)->dt, &at->shape, out, d));
    Type both = *out;
    if (!type_broadcast(&both, in_type(g, n, 0)) || !type_same_shape(&both, out))
        return fail(d, "expand: operand does not broadcast to the shape");
    return true;
}

static bool expand_lower(Kernel *k, const Graph *g, const Node *n)
{
    k_space(k, out_type(g, n, 0), 0);
    k_store(k, 1, k_load(k, 0, in_type(g, n, 0)));
    return true;
}

static bool expand_onnx(OnnxNodes *o, const Graph *g, const Node *n)
{
    const Type *t = out_type(g, n, 0);
    onnx_out(o, 0, onnx_expand(o, onnx_in(o, 0), t->rank, t->dim));
    return true;
}

static bool expand_grad(Grad *gr, const Node *n)
{
    grad_add(gr, n->in[0], grad_out(gr, n, 0)); /* grad_add sums the broadcast back */
    return true;
}

const OpDef op_expand = {.name = "expand", .min_in = 1, .max_in = 1, .nout = 1,
                         ATTRS(shape_attrs, ShapeAttrs), .infer = expand_infer, .grad = expand_grad,
                         .lower = expand_lower, .onnx = expand_onnx};

/* ---- slice x {start, step, size}; slice_bwd g: zeros of `size` with g put there ---------- */

static const AttrDef slice_attrs[] = {ATTR(SliceAttrs, start, AT_INTS, 0), ATTR(SliceAttrs, step, AT_INTS, 0),
                                      ATTR(SliceAttrs, size, AT_INTS, 0)};

/* Does the slice of `whole` by at lie inside it and have the extents of part? */
static bool slice_fits(const SliceAttrs *at, const int64_t *whole, const int64_t *part, int rank)
{
    if (at->start.n != rank || at->step.n != rank || at->size.n != rank)
        return false;
    for (int i = 0; i < rank; i++) {
        int64_t start = at->start.v[i], step = at->step.v[i], last;
        if (part[i] < 0 || step == 0 || step < -INT32_MAX || step > INT32_MAX || start < -1 ||
            start > whole[i])
            return false;
        if (part[i] == 0)
            continue;
        if (__builtin_mul_overflow(part[i] - 1, step, &last) || __builtin_add_overflow(start, last, &last))
            return false;
        if (start < 0 || start >= whole[i] || last < 0 || last >= whole[i])
            return false;
    }
    return true;
}

static bool slice_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    const SliceAttrs *at = n->attr;
    const Type *x = in_type(g, n, 0);
    if (!slice_fits(at, x->dim, at->size.v, x->rank))
        return fail(d, "slice: outside the operand");
    return shape_type(n, x->dt, &at->size, out, d);
}

static bool slice_lower(Kernel *k, const Graph *g, const Node *n)
{
    const SliceAttrs *at = n->attr;
    int64_t stride[MAX_RANK], offset = 0;
    type_strides(in_type(g, n, 0), stride);
    for (int i = 0; i < at->start.n; i++) {
        offset += at->start.v[i] * stride[i];
        stride[i] *= at->step.v[i];
    }
    k_space(k, out_type(g, n, 0), 0);
    k_store(k, 1, k_load_at(k, 0, offset, stride));
    return true;
}

/* Slices only the dimensions that are not whole. */
static bool slice_onnx(OnnxNodes *o, const Graph *g, const Node *n)
{
    const SliceAttrs *at = n->attr;
    OnnxVal v = onnx_in(o, 0);
    for (int i = 0; i < at->start.n; i++) {
        int64_t step = at->step.v[i], end = at->start.v[i] + at->size.v[i] * step;
        if (at->size.v[i] != in_type(g, n, 0)->dim[i] || step != 1)
            v = onnx_slice(o, v, i, at->start.v[i], end < 0 ? -INT32_MAX : end, step);
    }
    onnx_out(o, 0, v);
    return true;
}

static bool slice_grad(Grad *gr, const Node *n)
{
    SliceAttrs at = *(const SliceAttrs *)n->attr;
    const Type *x = val_type(gr->g, n->in[0]);
    Val dy = grad_out(gr, n, 0);
    memcpy(at.size.v, x->dim, sizeof x->dim);
    grad_add(gr, n->in[0], build(gr->g, OP_slice_bwd, NULL, 1, &dy, &at));
    return true;
}

const OpDef op_slice = {.name = "slice", .min_in = 1, .max_in = 1, .nout = 1,
                        ATTRS(slice_attrs, SliceAttrs), .infer = slice_infer, .grad = slice_grad,
                        .lower = slice_lower, .onnx = slice_onnx};

static bool slice_bwd_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    const SliceAttrs *at = n->attr;
    const Type *x = in_type(g, n, 0);
    if (!slice_fits(at, at->size.v, x->dim, x->rank))
        return fail(d, "slice_bwd: operand does not lie inside the result");
    return shape_type(n, x->dt, &at->size, out, d);
}

/* One row of the result: p = rank, then extent, start, step, operand extent per dimension. */
KERNEL(slice_bwd, {
    int64_t rank = p[0];
    int64_t row = i;
    int64_t from = 0;
    int64_t scale = 1;
    int64_t inside = 1;
    int64_t last = rank - 1;
    for (int64_t d = last; d >= 0; d--) {
        int64_t n = p[4 * d + 4];
        if (d < last) {
            int64_t at = row % p[4 * d + 1] - p[4 * d + 2];
            row /= p[4 * d + 1];
            inside = inside && at % p[4 * d + 3] == 0 && at / p[4 * d + 3] >= 0 && at / p[4 * d + 3] < n;
            from += at / p[4 * d + 3] * scale;
        }
        scale *= n;
    }
    int64_t width = p[4 * last + 1];
    for (int64_t j = 0; j < width; j++)
        SETF(1, i * width + j, 0);
    if (inside)
        for (int64_t j = 0; j < p[4 * last + 4]; j++)
            SETF(1, i * width + p[4 * last + 2] + j * p[4 * last + 3], F(0, from + j));
})

static bool slice_bwd_lower(Kernel *k, const Graph *g, const Node *n)
{
    const SliceAttrs *at = n->attr;
    const Type *x = in_type(g, n, 0), *y = out_type(g, n, 0);
    int64_t rows = 1;
    k_param(k, x->rank ? x->rank : 1);
    for (int i = 0; i < x->rank; i++) {
        k_param(k, y->dim[i]);
        k_param(k, at->start.v[i]);
        k_param(k, at->step.v[i]);
        k_param(k, x->dim[i]);
        rows *= i + 1 < x->rank ? y->dim[i] : 1;
    }
    for (int i = 0; !x->rank && i < 4; i++)
        k_param(k, i == 1 ? 0 : 1);
    k->flops = (double)type_count(y);
    k_body(k, &slice_bwd_body, rows);
    return true;
}

/* Scatters v along one axis of zeros to the elements of the slice; t is its type, before and after. */
static OnnxVal spread_onnx(OnnxNodes *o, const SliceAttrs *at, int axis, OnnxVal v, Type *t)
{
    int64_t n = t->dim[axis], dim[MAX_RANK] = {0}, *index = NEW(onnx_arena(o), int64_t, n + 1);
    for (int64_t j = 0; j < n; j++)
        index[j] = at->start.v[axis] + j * at->step.v[axis];
    for (int i = 0; i < t->rank; i++)
        dim[i] = i == axis ? n : 1;
    OnnxVal at_axis = onnx_table(o, &(Tensor){type_make(DT_I64, t->rank, dim), index});
    at_axis = onnx_expand(o, at_axis, t->rank, t->dim);
    t->dim[axis] = at->size.v[axis];
    OnnxVal r = onnx_op3(o, "ScatterElements", onnx_zeros(o, onnx_type(o, v), t->rank, t->dim), at_axis, v);
    onnx_attr(o, "axis", axis);
    return r;
}

static bool slice_bwd_onnx(OnnxNodes *o, const Graph *g, const Node *n)
{
    const SliceAttrs *at = n->attr;
    Type t = *in_type(g, n, 0);
    OnnxVal v = onnx_in(o, 0);
    int64_t pad[2 * MAX_RANK] = {0};
    bool pads = false;
    for (int i = 0; i < t.rank; i++)
        if (at->step.v[i] != 1) {
            v = spread_onnx(o, at, i, v, &t);
        } else {
            pad[i] = at->start.v[i];
            pad[t.rank + i] = at->size.v[i] - at->start.v[i] - t.dim[i];
            pads |= pad[i] || pad[t.rank + i];
        }
    onnx_out(o, 0, pads ? onnx_op2(o, "Pad", v, onnx_ints(o, pad, 2 * t.rank)) : v);
    return true;
}

const OpDef op_slice_bwd = {.name = "slice_bwd", .min_in = 1, .max_in = 1, .nout = 1,
                            ATTRS(slice_attrs, SliceAttrs), .infer = slice_bwd_infer,
                            .lower = slice_bwd_lower, .onnx = slice_bwd_onnx};

/* ---- concat x... {axis} ------------------------------------------------------------------- */

static const AttrDef axis_attrs[] = {ATTR(AxisAttrs, axis, AT_I64, 0)};

static bool concat_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    int64_t axis = ((const AxisAttrs *)n->attr)->axis;
    *out = *in_type(g, n, 0);
    if (axis < 0 || axis >= out->rank)
        return fail(d, "concat: axis %lld", (long long)axis);
    for (int i = 1; i < n->nin; i++) {
        Type t = *in_type(g, n, i);
        if (t.rank != out->rank || t.dt != out->dt)
            return fail(d, "concat: operand %d has another rank or type", i);
        out->dim[axis] += t.dim[axis];
        t.dim[axis] = out->dim[axis];
        if (!type_same_shape(&t, out))
            return fail(d, "concat: operand %d has other extents", i);
    }
    return true;
}

/* No text: every back end copies.  The reference, for any number of operands: item i is an
 * element; p = axis extent of the result, elements below the axis, axis, number of operands. */
static void concat_ref(int64_t i, const int64_t *p, const double *q, Tensor *t)
{
    (void)q;
    int64_t total = p[0], inner = p[1];
    int64_t below = i % inner, at = i / inner % total, above = i / inner / total;
    int k = 0, n = (int)p[3];
    for (; at >= t[k].type.dim[p[2]]; k++)
        at -= t[k].type.dim[p[2]];
    int64_t j = (above * t[k].type.dim[p[2]] + at) * inner + below;
    if (dtype_is_float(t[k].type.dt))
        tensor_set_f(&t[n], i, tensor_f(&t[k], j));
    else
        tensor_set_i(&t[n], i, tensor_i(&t[k], j));
}
static const Body concat_body = {"concat", NULL, concat_ref};

/* Few parts of one shape: one point of the space is an element of each part, so that whatever
 * makes the parts (transposes, rotations) can be part of the same kernel. */
static bool concat_equal_parts(Kernel *k, const Graph *g, const Node *n)
{
    enum { FEW = 4 };
    const Type *part = in_type(g, n, 0);
    int64_t axis = ((const AxisAttrs *)n->attr)->axis, stride[MAX_RANK];
    for (int i = 1; i < n->nin; i++)
        if (n->nin > FEW || !type_equal(part, in_type(g, n, i)))
            return false;
    type_strides(out_type(g, n, 0), stride);
    k_space(k, part, 0);
    for (int i = 0; i < n->nin; i++)
        k_store_at(k, n->nin, k_load(k, i, part), i * part->dim[axis] * stride[axis], stride);
    return true;
}

static bool concat_lower(Kernel *k, const Graph *g, const Node *n)
{
    int64_t axis = ((const AxisAttrs *)n->attr)->axis, inner = 1;
    const Type *y = out_type(g, n, 0);
    if (concat_equal_parts(k, g, n))
        return true;
    for (int i = (int)axis + 1; i < y->rank; i++)
        inner *= y->dim[i];
    k_param(k, y->dim[axis]);
    k_param(k, inner);
    k_param(k, axis);
    k_param(k, n->nin);
    k_body(k, &concat_body, type_count(y));
    k->lib = LIB_COPY;
    return true;
}

static bool concat_onnx(OnnxNodes *o, const Graph *g, const Node *n)
{
    (void)g;
    OnnxVal *in = NEW(onnx_arena(o), OnnxVal, n->nin + 1);
    for (int i = 0; i < n->nin; i++)
        in[i] = onnx_in(o, i);
    OnnxVal r = onnx_op(o, "Concat", onnx_type(o, in[0]), n->nin, in);
    onnx_attr(o, "axis", ((const AxisAttrs *)n->attr)->axis);
    onnx_out(o, 0, r);
    return true;
}

static bool concat_grad(Grad *gr, const Node *n)
{
    int axis = (int)((const AxisAttrs *)n->attr)->axis;
    Val dy = grad_out(gr, n, 0);
    int64_t at = 0;
    for (int i = 0; i < n->nin; i++) {
        int64_t len = val_type(gr->g, n->in[i])->dim[axis];
        if (grad_wants(gr, n, i))
            grad_add(gr, n->in[i], build_slice(gr->g, dy, axis, at, len));
        at += len;
    }
    return true;
}

const OpDef op_concat = {.name = "concat", .min_in = 1, .max_in = -1, .nout = 1,
                         ATTRS(axis_attrs, AxisAttrs), .infer = concat_infer, .grad = concat_grad,
                         .lower = concat_lower, .onnx = concat_onnx};

/* ---- offload x, fetch x: a copy to the host's memory, and one back ------------------------------
 * Values are in the device's memory but for results of offload, which only fetch reads. */

static void copy_ref(int64_t i, const int64_t *p, const double *q, Tensor *t)
{
    (void)p, (void)q;
    if (dtype_is_float(t[0].type.dt))
        tensor_set_f(&t[1], i, tensor_f(&t[0], i));
    else
        tensor_set_i(&t[1], i, tensor_i(&t[0], i));
}
static const Body copy_body = {"copy", NULL, copy_ref};

static bool move_lower(Kernel *k, const Graph *g, const Node *n)
{
    k_body(k, &copy_body, type_count(out_type(g, n, 0)));
    k->lib = LIB_COPY;
    return true;
}

static bool move_grad(Grad *gr, const Node *n)
{
    grad_add(gr, n->in[0], grad_out(gr, n, 0));
    return true;
}

SAME(offload, .grad = move_grad, .lower = move_lower);
SAME(fetch, .grad = move_grad, .lower = move_lower);

/* ---- pad x {before, after, mode, value} ----------------------------------------------------- */

static const AttrDef pad_attrs[] = {
    ATTR(PadAttrs, before, AT_INTS, 0), ATTR(PadAttrs, after, AT_INTS, 0),
    ATTR(PadAttrs, mode, AT_I64, PAD_CONSTANT), ATTR(PadAttrs, value, AT_F64, 0)};

static bool pad_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    const PadAttrs *at = n->attr;
    *out = *in_type(g, n, 0);
    if (at->before.n != out->rank || at->after.n != out->rank)
        return fail(d, "pad: counts for %d dimensions, rank %d", at->before.n, out->rank);
    if (at->mode < PAD_CONSTANT || at->mode > PAD_WRAP)
        return fail(d, "pad: unknown mode");
    for (int i = 0; i < out->rank; i++) {
        int64_t before = at->before.v[i], after = at->after.v[i];
        if (before < 0 || before > INT32_MAX || after < 0 || after > INT32_MAX)
            return fail(d, "pad: count out of range");
        if (at->mode != PAD_CONSTANT && out->dim[i] == 0 && before + after > 0)
            return fail(d, "pad: no elements to repeat");
        out->dim[i] += before + after;
    }
    return true;
}

/* One row of the result: the elements of the operand, then the borders.  p = leading dimensions,
 * mode, integers; before, operand extent, result extent of the row, then of each leading
 * dimension; the value if it is an integer, which REAL may not hold.  q = value. */
/* clang-format off */
KERNEL(pad,
    const int64_t mode = p[1], width = p[4], total = p[5], integer = p[3 * p[0] + 6];
    int64_t rest = i, from = 0, scale = 1, inside = 1;
    for (int64_t d = p[0]; d > 0; d--) { /* where the row comes from, if from anywhere */
        const int64_t n = p[3 * d + 4];
        int64_t at = rest % p[3 * d + 5] - p[3 * d + 3];
        rest /= p[3 * d + 5];
        inside = inside && (mode != 0 || (at >= 0 && at < n));
        if (mode == 1) {
            at = MOD(at, 2 * n - 2);
            at = FMIN(at, 2 * n - 2 - at);
        }
        at = mode == 2 ? FMIN(FMAX(at, 0), n - 1) : mode == 3 ? MOD(at, n) : at;
        from += at * scale;
        scale *= n;
    }
    for (int64_t j = 0; j < width; j++) {
        const int64_t at = from * width + j;
        if (p[2])
            SETI(1, i * total + p[3] + j, inside ? I(0, at) : integer);
        else
            SETF(1, i * total + p[3] + j, inside ? F(0, at) : q[0]);
    }
    for (int64_t j = p[3] ? 0 : width; j < total; j += j + 1 == p[3] ? width + 1 : 1) {
        int64_t at = j - p[3];
        if (mode == 1) {
            at = MOD(at, 2 * width - 2);
            at = FMIN(at, 2 * width - 2 - at);
        }
        at = mode == 2 ? FMIN(FMAX(at, 0), width - 1) : mode == 3 ? MOD(at, width) : at;
        at = mode ? from * width + at : 0;
        if (p[2])
            SETI(1, i * total + j, mode ? I(0, at) : integer);
        else
            SETF(1, i * total + j, mode ? F(0, at) : q[0]);
    }
)
/* clang-format on */

static bool pad_lower(Kernel *k, const Graph *g, const Node *n)
{
    const PadAttrs *at = n->attr;
    const Type *x = in_type(g, n, 0), *y = out_type(g, n, 0);
    int last = x->rank - 1;
    int64_t rows = 1;
    k_param(k, x->rank ? last : 0);
    k_param(k, at->mode);
    k_param(k, !dtype_is_float(x->dt));
    k_param(k, x->rank ? at->before.v[last] : 0);
    k_param(k, x->rank ? x->dim[last] : 1);
    k_param(k, x->rank ? y->dim[last] : 1);
    for (int i = 0; i < last; i++) {
        k_param(k, at->before.v[i]);
        k_param(k, x->dim[i]);
        k_param(k, y->dim[i]);
        rows *= y->dim[i];
    }
    k_param(k, dtype_is_float(x->dt) ? 0 : int_of(at->value));
    k->q[0] = at->value;
    k->flops = (double)type_count(y);
    k_body(k, &pad_body, rows);
    return true;
}

static bool pad_onnx(OnnxNodes *o, const Graph *g, const Node *n)
{
    static const char *const mode[] = {"constant", "reflect", "edge", "wrap"};
    const PadAttrs *at = n->attr;
    int64_t pad[2 * MAX_RANK];
    int rank = in_type(g, n, 0)->rank;
    OnnxVal v = onnx_in(o, 0);
    memcpy(pad, at->before.v, (size_t)rank * sizeof *pad);
    memcpy(pad + rank, at->after.v, (size_t)rank * sizeof *pad);
    v = onnx_op3(o, "Pad", v, onnx_ints(o, pad, 2 * rank), onnx_scalar(o, onnx_type(o, v), at->value));
    onnx_attr_text(o, "mode", mode[at->mode]);
    onnx_out(o, 0, v);
    return true;
}

/* Index of the element, of n, that padded position j copies. */
static int64_t padded_from(int64_t mode, int64_t j, int64_t n)
{
    int64_t period = mode == PAD_REFLECT ? n > 1 ? 2 * n - 2 : 1 : n;
    int64_t m = (j % period + period) % period;
    if (mode == PAD_EDGE)
        return j < 0 ? 0 : j >= n ? n - 1 : j;
    return m < n ? m : period - m;
}

/* Along one axis padding gathers with known indices, so its gradient is gather's. */
static Val unpad_axis(Graph *g, Val dy, const PadAttrs *at, int axis, int64_t n)
{
    GatherBwdAttrs back = {.axis = axis};
    Type t = *val_type(g, dy);
    int64_t count = t.dim[axis], *from = NEW(g->arena, int64_t, count);
    for (int64_t j = 0; j < count; j++)
        from[j] = padded_from(at->mode, j - at->before.v[axis], n);
    t.dim[axis] = n;
    back.shape.n = t.rank;
    memcpy(back.shape.v, t.dim, sizeof t.dim);
    Val in[] = {dy, graph_const(g, "from", type_make(DT_I64, 1, &count), from)};
    return build_cast(g, build(g, OP_gather_bwd, NULL, 2, in, &back), t.dt);
}

static bool pad_grad(Grad *gr, const Node *n)
{
    const PadAttrs *at = n->attr;
    Type x = *val_type(gr->g, n->in[0]);
    Val dy = grad_out(gr, n, 0);
    for (int i = 0; i < x.rank && !gr->g->diag->failed; i++)
        if (at->mode == PAD_CONSTANT)
            dy = build_slice(gr->g, dy, i, at->before.v[i], x.dim[i]);
        else if (at->before.v[i] || at->after.v[i])
            dy = unpad_axis(gr->g, dy, at, i, x.dim[i]);
    grad_add(gr, n->in[0], dy);
    return true;
}

const OpDef op_pad = {.name = "pad", .min_in = 1, .max_in = 1, .nout = 1,
                      ATTRS(pad_attrs, PadAttrs), .infer = pad_infer, .grad = pad_grad, .lower = pad_lower,
                      .onnx = pad_onnx};
