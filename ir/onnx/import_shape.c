/* import_shape.c -- operators that move elements: reshape, transpose, slice, concat,
 * pad. */
#include "onnx_int.h"
#include <string.h>

static bool import_identity(OnnxNode *n)
{
    if (n->record && n->record->detach) {
        n->out[0] = build1(n->g, OP_detach, n->in[0]);
        return n->out[0].i;
    }
    n->out[0] = n->in[0];
    const Value *v = &n->g->vals[n->in[0].i];
    if (v->kind != VAL_PARAM || (n->record && n->record->called)) /* clone() in the program is no weight */
        return n->out[0].i;
    if (!n->x->opt->untie || n->x->depth > 1) { /* exporters put theirs in the main graph */
        Tensor t = graph_tensor(n->g, n->in[0]);
        if (t.data && tensor_is_uniform(&t))
            return true; /* merged.c reports it */
        note(n->x, ONNX_REMARK, v->name, "'%s' is tied to it by an Identity node", pb(n->proto->output[0]));
        if (role_is_held(n->x, pb(n->proto->output[0])))
            name_value(n->x, n->in[0], pb(n->proto->output[0]));
        return true;
    }
    Value copy = *v;
    n->out[0] = graph_value(n->g, pb(n->proto->output[0]), copy.type, VAL_PARAM);
    n->g->vals[n->out[0].i].data = copy.data;
    n->g->vals[n->out[0].i].file = copy.file;
    n->g->vals[n->out[0].i].offset = copy.offset;
    name_value(n->x, n->out[0], pb(n->proto->output[0]));
    return true;
}

static bool import_reshape(OnnxNode *n)
{
    const Type *t = in_type(n, 0);
    Ints shape;
    if (n->opset < 5)
        TRY(attr_needed(n, "shape") && attr_ints(n, "shape", &shape));
    else
        TRY(static_ints(n, 1, &shape));
    int64_t known = 1, free_dim = -1;
    for (int i = 0; i < shape.n; i++) {
        if (shape.v[i] == 0 && !attr_int(n, "allowzero", 0) && i < t->rank)
            shape.v[i] = t->dim[i];
        if (shape.v[i] == -1) {
            if (free_dim >= 0)
                return fail(n->x->d, "two dimensions of the new shape are -1");
            free_dim = i;
            shape.v[i] = 1;
        }
    }
    TRY(shape_valid(n, &shape));
    for (int i = 0; i < shape.n; i++)
        known *= shape.v[i];
    if (free_dim >= 0)
        shape.v[free_dim] = known ? type_count(t) / known : 0;
    Type want = type_make(t->dt, shape.n, shape.v);
    char a[160], b[160];
    if (type_count(&want) != type_count(t))
        return fail(n->x->d, "cannot reshape %s to %s", type_str(t, a), type_str(&want, b));
    n->out[0] = reshape_ints(n->g, n->in[0], &shape);
    return n->out[0].i;
}

static bool import_flatten(OnnxNode *n)
{
    const Type *t = in_type(n, 0);
    int64_t axis = attr_int(n, "axis", 1), dim[2] = {1, 1};
    if (axis != t->rank) /* equal: everything is in front of it */
        TRY(axis_in(n, axis, t->rank, &axis));
    for (int i = 0; i < t->rank; i++)
        dim[i >= axis] *= t->dim[i];
    n->out[0] = build_reshape(n->g, n->in[0], 2, dim);
    return n->out[0].i;
}

static bool import_transpose(OnnxNode *n)
{
    int rank = in_type(n, 0)->rank, perm[MAX_RANK];
    uint32_t seen = 0;
    Ints p;
    bool given = has_attr(n, "perm");
    TRY(attr_ints(n, "perm", &p));
    if (given && p.n != rank)
        return fail(n->x->d, "perm has %d entries for rank %d", p.n, rank);
    for (int i = 0; i < rank; i++) {
        int64_t axis = rank - 1 - i;
        if (given)
            TRY(axis_in(n, p.v[i], rank, &axis));
        perm[i] = (int)axis;
        seen |= 1u << axis;
    }
    if (seen != (1u << rank) - 1)
        return fail(n->x->d, "perm is not a permutation");
    n->out[0] = build_transpose(n->g, n->in[0], perm);
    return n->out[0].i;
}

static bool import_squeeze(OnnxNode *n)
{
    const Type *t = in_type(n, 0);
    Ints axes, out = {0};
    bool given;
    TRY(node_axes(n, 13, 1, t->rank, &axes, &given));
    uint32_t drop = axes_mask(&axes);
    for (int i = 0; i < t->rank; i++) {
        bool dropped = axes.n ? drop >> i & 1 : t->dim[i] == 1;
        if (dropped && t->dim[i] != 1)
            return fail(n->x->d, "dimension %d has size %lld, not 1", i, (long long)t->dim[i]);
        if (!dropped)
            out.v[out.n++] = t->dim[i];
    }
    n->out[0] = reshape_ints(n->g, n->in[0], &out);
    return n->out[0].i;
}

static bool import_unsqueeze(OnnxNode *n)
{
    const Type *t = in_type(n, 0);
    Ints axes, out = {0};
    if (n->opset < 13)
        TRY(attr_needed(n, "axes") && attr_ints(n, "axes", &axes));
    else
        TRY(static_ints(n, 1, &axes));
    out.n = t->rank + axes.n;
    if (out.n > MAX_RANK)
        return refuse(n, "more than %d dimensions", MAX_RANK);
    uint32_t added = 0;
    for (int i = 0; i < axes.n; i++) {
        TRY(axis_in(n, axes.v[i], out.n, &axes.v[i]));
        added |= 1u << axes.v[i];
    }
    for (int i = 0, k = 0; i < out.n; i++)
        out.v[i] = added >> i & 1 || k == t->rank ? 1 : t->dim[k++];
    n->out[0] = reshape_ints(n->g, n->in[0], &out);
    return n->out[0].i;
}

static bool import_concat(OnnxNode *n)
{
    int64_t axis;
    TRY(n->opset < 4 || attr_needed(n, "axis"));
    TRY(axis_in(n, attr_int(n, "axis", 1), in_type(n, 0)->rank, &axis));
    n->out[0] = build_concat_many(n->g, n->nin, n->in, (int)axis);
    return n->out[0].i;
}

static bool split_sizes(OnnxNode *n, int64_t extent, int64_t *size)
{
    Tensor t = {0};
    const Onnx__AttributeProto *a = n->opset < 13 ? attr_find(n, "split") : NULL;
    bool given = a || has_in(n, 1);
    if (!a && given)
        TRY(static_tensor(n, 1, &t));
    int64_t count = a ? (int64_t)a->n_ints : given ? type_count(&t.type) : n->nout, sum = 0;
    if (count < n->nout)
        return fail(n->x->d, "%d results but %lld parts", n->nout, (long long)count);
    int64_t part = ceil_div(extent, n->nout);
    for (int i = 0; i < n->nout; i++) {
        size[i] = a ? a->ints[i] : given ? tensor_i(&t, i) : part;
        if (!given && sum + size[i] > extent)
            size[i] = extent > sum ? extent - sum : 0;
        sum = size[i] >= 0 && size[i] <= extent ? sum + size[i] : extent + 1;
        if (sum > extent)
            return fail(n->x->d, "parts of %lld elements cannot be cut from %lld",
                        (long long)sum, (long long)extent);
    }
    return true;
}

static bool import_split(OnnxNode *n)
{
    int64_t axis, start = 0, *size = NEW(n->x->a, int64_t, n->nout + 1);
    TRY(axis_in(n, attr_int(n, "axis", 0), in_type(n, 0)->rank, &axis));
    TRY(split_sizes(n, in_type(n, 0)->dim[axis], size));
    for (int i = 0; i < n->nout; i++) {
        n->out[i] = build_slice(n->g, n->in[0], (int)axis, start, size[i]);
        TRY(n->out[i].i);
        start += size[i];
    }
    return true;
}

/* numpy's rule for start:end:step over n elements. */
static void slice_range(int64_t n, int64_t start, int64_t end, int64_t step, int64_t *first, int64_t *count)
{
    int64_t low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
    start += start < 0 ? n : 0;
    end += end < 0 ? n : 0;
    start = start < low ? low : start > high ? high : start;
    end = end < low ? low : end > high ? high : end;
    int64_t span = step > 0 ? end - start : start - end, by = step > 0 ? step : -step;
    *count = span > 0 ? (span - 1) / by + 1 : 0;
    *first = *count ? start : 0;
}

static bool import_slice(OnnxNode *n)
{
    const Type *t = in_type(n, 0);
    Ints start, end, axes = {0}, step = {0};
    if (n->opset < 10) {
        TRY(attr_needed(n, "starts") && attr_ints(n, "starts", &start));
        TRY(attr_needed(n, "ends") && attr_ints(n, "ends", &end));
        TRY(attr_ints(n, "axes", &axes));
    } else {
        TRY(static_ints(n, 1, &start) && static_ints(n, 2, &end));
        TRY(!has_in(n, 3) || static_ints(n, 3, &axes));
        TRY(!has_in(n, 4) || static_ints(n, 4, &step));
    }
    if (start.n != end.n || (axes.n && axes.n != start.n) ||
        (step.n && step.n != start.n) || start.n > t->rank)
        return fail(n->x->d, "starts, ends, axes and steps differ in number");
    SliceAttrs at = slice_all(t);
    bool all = true;
    for (int i = 0; i < start.n; i++) {
        int64_t axis, by = step.n ? step.v[i] : 1;
        TRY(axis_in(n, axes.n ? axes.v[i] : i, t->rank, &axis));
        if (by == 0 || by == INT64_MIN)
            return fail(n->x->d, "step %lld", (long long)by);
        slice_range(t->dim[axis], start.v[i], end.v[i], by, &at.start.v[axis], &at.size.v[axis]);
        at.step.v[axis] = at.size.v[axis] > 1 ? by : 1; /* of one element any step will do */
        all &= at.step.v[axis] == 1 && at.size.v[axis] == t->dim[axis];
    }
    n->out[0] = all ? n->in[0] : build(n->g, OP_slice, NULL, 1, n->in, &at);
    return n->out[0].i;
}

static bool import_expand(OnnxNode *n)
{
    Ints shape;
    if (has_in(n, 1) && !is_static(n, 1))
        return !n->x->d->failed && expand_of_data(n);
    TRY(static_ints(n, 1, &shape) && shape_valid(n, &shape));
    Type want = type_make(DT_F32, shape.n, shape.v);
    char a[160], b[160];
    if (!type_broadcast(&want, in_type(n, 0)))
        return fail(n->x->d, "cannot expand %s to %s", type_str(in_type(n, 0), a), type_str(&want, b));
    n->out[0] = build_expand(n->g, n->in[0], want.rank, want.dim);
    return n->out[0].i;
}

static bool import_tile(OnnxNode *n)
{
    const Type *t = in_type(n, 0);
    Ints times;
    TRY(static_ints(n, 1, &times));
    if (times.n != t->rank)
        return refuse(n, "repeats must have one entry per dimension");
    Ints dim = ints_of(t);
    for (int i = 0; i < times.n; i++)
        if (times.v[i] < 0 || __builtin_mul_overflow(dim.v[i], times.v[i], &dim.v[i]))
            return fail(n->x->d, "%lld repeats", (long long)times.v[i]);
    TRY(shape_valid(n, &dim));
    Val y = n->in[0];
    for (int i = 0; i < times.n; i++)
        y = repeat_whole(n->g, y, i, times.v[i]);
    n->out[0] = y;
    return y.i;
}

static bool import_shape(OnnxNode *n)
{
    const Type *t = in_type(n, 0);
    int64_t start = attr_int(n, "start", 0), end = attr_int(n, "end", t->rank);
    start += start < 0 ? t->rank : 0;
    end += end < 0 ? t->rank : 0;
    start = start < 0 ? 0 : start > t->rank ? t->rank : start;
    end = end < start ? start : end > t->rank ? t->rank : end;
    n->out[0] = build_ints(n->g, t->dim + start, (int)(end - start));
    return n->out[0].i;
}

static bool import_size(OnnxNode *n)
{
    int64_t count = type_count(in_type(n, 0));
    n->out[0] = graph_const(n->g, "size", type_scalar(DT_I64), &count);
    return true;
}

/* ---- pad ---------------------------------------------------------------- */

static const char *const pad_modes[] = {
    [PAD_CONSTANT] = "constant", [PAD_REFLECT] = "reflect", [PAD_EDGE] = "edge", [PAD_WRAP] = "wrap"};

static bool read_pads(OnnxNode *n, Ints *pads, double *value)
{
    *value = n->opset < 11 ? attr_float(n, "value", 0) : 0;
    const char *name = n->opset < 2 ? "paddings" : "pads";
    if (n->opset < 11)
        return attr_needed(n, name) && attr_ints(n, name, pads);
    TRY(static_ints(n, 1, pads));
    return !has_in(n, 2) || static_float(n, 2, value);
}

enum { PAD_MOST = INT32_MAX };

static bool import_pad(OnnxNode *n)
{
    const Type *t = in_type(n, 0);
    Ints pads, axes;
    PadAttrs at = {.before.n = t->rank, .after.n = t->rank,
                   .mode = attr_which(n, "mode", "constant", pad_modes, 4)};
    TRY(read_pads(n, &pads, &at.value));
    bool given = n->opset >= 18 && has_in(n, 3);
    if (given)
        TRY(static_ints(n, 3, &axes));
    int count = given ? axes.n : t->rank;
    if (pads.n != 2 * count)
        return fail(n->x->d, "%d pads for %d dimensions", pads.n, count);
    if (at.mode < 0)
        return refuse(n, "mode '%s'", attr_str(n, "mode", ""));
    Val y = n->in[0];
    for (int i = 0; i < count; i++) {
        int64_t axis = i, before = pads.v[i], after = pads.v[count + i];
        if (given)
            TRY(axis_in(n, axes.v[i], t->rank, &axis));
        if (before < -PAD_MOST || before > PAD_MOST || after < -PAD_MOST || after > PAD_MOST)
            return fail(n->x->d, "pads %lld, %lld", (long long)before, (long long)after);
        int64_t cut = (before < 0 ? -before : 0) + (after < 0 ? -after : 0);
        if (cut > t->dim[axis])
            return fail(n->x->d, "negative pads cut more than dimension %lld has", (long long)axis);
        y = build_slice(n->g, y, (int)axis, before < 0 ? -before : 0, t->dim[axis] - cut);
        t = in_type(n, 0);
        at.before.v[axis] = before > 0 ? before : 0;
        at.after.v[axis] = after > 0 ? after : 0;
    }
    bool any = false;
    for (int i = 0; i < t->rank; i++)
        any |= at.before.v[i] || at.after.v[i];
    n->out[0] = any ? build(n->g, OP_pad, NULL, 1, &y, &at) : y;
    return n->out[0].i;
}

/* ---- depth and space ---------------------------------------------------- */

static bool import_depth_to_space(OnnxNode *n)
{
    Type t = *in_type(n, 0);
    int64_t b = attr_int(n, "blocksize", 0);
    if (t.rank != 4 || b <= 0 || b > INT16_MAX || t.dim[1] % (b * b))
        return fail(n->x->d, "blocksize %lld does not fit the channels", (long long)b);
    int64_t c = t.dim[1] / (b * b), h = t.dim[2], w = t.dim[3];
    bool dcr = attr_is(n, "mode", "DCR", "DCR");
    Val y = dcr ? build_reshape(n->g, n->in[0], 6, (int64_t[]){t.dim[0], b, b, c, h, w})
                : build_reshape(n->g, n->in[0], 6, (int64_t[]){t.dim[0], c, b, b, h, w});
    y = build_transpose(n->g, y, dcr ? (int[]){0, 3, 4, 1, 5, 2} : (int[]){0, 1, 4, 2, 5, 3});
    n->out[0] = build_reshape(n->g, y, 4, (int64_t[]){t.dim[0], c, h * b, w * b});
    return n->out[0].i;
}

static bool import_space_to_depth(OnnxNode *n)
{
    Type t = *in_type(n, 0);
    int64_t b = attr_int(n, "blocksize", 0);
    if (t.rank != 4 || b <= 0 || b > INT16_MAX || t.dim[2] % b || t.dim[3] % b)
        return fail(n->x->d, "blocksize %lld does not fit the image", (long long)b);
    int64_t c = t.dim[1], h = t.dim[2] / b, w = t.dim[3] / b;
    Val y = build_reshape(n->g, n->in[0], 6, (int64_t[]){t.dim[0], c, h, b, w, b});
    bool crd = attr_is(n, "mode", "DCR", "CRD"); /* channels first in the result's channels */
    y = build_transpose(n->g, y, crd ? (int[]){0, 1, 3, 5, 2, 4} : (int[]){0, 3, 5, 1, 2, 4});
    n->out[0] = build_reshape(n->g, y, 4, (int64_t[]){t.dim[0], c * b * b, h, w});
    return n->out[0].i;
}

static bool import_trilu(OnnxNode *n)
{
    int64_t k = 0;
    if (has_in(n, 1))
        TRY(static_int(n, 1, &k));
    n->out[0] = build(n->g, OP_trilu, NULL, 1, n->in, &(TriluAttrs){k, attr_int(n, "upper", 1)});
    return n->out[0].i;
}

const OnnxOp onnx_shape[] = {
    {"Concat", 1, .import = import_concat},
    {"DepthToSpace", 1, .import = import_depth_to_space},
    {"Expand", 1, .import = import_expand},
    {"Flatten", 1, .import = import_flatten},
    {"Identity", 1, .import = import_identity},
    {"Pad", 1, .import = import_pad},
    {"Reshape", 1, .import = import_reshape},
    {"Shape", 1, .import = import_shape, .typed = 1},
    {"Size", 1, .import = import_size, .typed = 1},
    {"Slice", 1, .import = import_slice},
    {"SpaceToDepth", 1, .import = import_space_to_depth},
    {"Split", 2, .import = import_split},
    {"Squeeze", 1, .import = import_squeeze},
    {"Tile", 6, .import = import_tile},
    {"Transpose", 1, .import = import_transpose},
    {"Trilu", 1, .import = import_trilu},
    {"Trilu", 1, .import = import_trilu, .domain = "com.microsoft"},
    {"Unsqueeze", 1, .import = import_unsqueeze},
    {"ZipMap", 1, .import = import_identity,
     .domain = "ai.onnx.ml"}, /* its tensor, without the names of classes */
    {0},
};
