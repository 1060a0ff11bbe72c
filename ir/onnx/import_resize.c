/* import_resize.c -- Resize and Upsample: separable interpolation with weights known when
 * compiling.
 *
 * Along each axis an output element is a weighted sum of a few input elements (taps).  One tap:
 * a slice, a repetition or a gather.  More: resample, whose tables are made here. */
#include "onnx_int.h"
#include <math.h>
#include <string.h>

typedef enum { NEAREST, LINEAR, CUBIC } Mode;
enum { MOST_OUT = 1 << 20 };

typedef struct {
    Mode mode;
    const char *coordinates, *nearest;
    bool antialias, exclude_outside;
    double a, extrapolation; /* cubic coefficient; value outside the cropped region */
} Interpolation;

typedef struct {
    int64_t in, out;
    double from, to;   /* the scale is to / from: both extents, or 1 and the scale */
    double start, end; /* region of interest */
} Axis;

/* Taps of one output element: consecutive indices from first. */
typedef struct {
    int64_t first;
    int n;
    double *weight;
    bool outside;
} Taps;

static double scale_of(const Axis *a) { return a->to / a->from; }

/* x over the scale.  A scale is stored in single precision, and so are its quotients: 3 over 0.6 is 5. */
static double over_scale(const Axis *a, double x)
{
    return a->from == 1 ? (double)(float)(x / a->to) : x * a->from / a->to;
}

/* The coordinate in the operand of the result's element o.  align_corners uses the result's extent, as
 * PyTorch and onnxruntime do; examples of the standard use in * scale, which need not be whole. */
static double original(const Interpolation *p, const Axis *a, int64_t o)
{
    const char *c = p->coordinates;
    double x = (double)o, in = (double)a->in, out = (double)a->out;
    double half = over_scale(a, x + 0.5);
    if (strcmp(c, "asymmetric") == 0)
        return over_scale(a, x);
    if (strcmp(c, "align_corners") == 0)
        return a->out == 1 ? 0 : x * (in - 1) / (out - 1);
    if (strcmp(c, "pytorch_half_pixel") == 0)
        return a->out == 1 ? 0 : half - 0.5;
    if (strcmp(c, "tf_half_pixel_for_nn") == 0)
        return half;
    if (strcmp(c, "tf_crop_and_resize") == 0)
        return a->out > 1 ? a->start * (in - 1) + x * (a->end - a->start) * (in - 1) / (out - 1)
                          : 0.5 * (a->start + a->end) * (in - 1);
    if (strcmp(c, "half_pixel_symmetric") == 0) /* in double precision, as in examples of the standard */
        return in / 2 * (1 - out / (in * scale_of(a))) + (x + 0.5) / scale_of(a) - 0.5;
    return half - 0.5;
}

/* Rounds x to an index.  "simple" (before opset 11): up if the result is smaller than the operand, else
 * down. */
static int64_t nearest(const Interpolation *p, const Axis *a, double x)
{
    bool simple = strcmp(p->nearest, "simple") == 0;
    if (simple && scale_of(a) < 1)
        return (int64_t)ceil(x);
    if (simple || strcmp(p->nearest, "floor") == 0)
        return (int64_t)floor(x);
    if (strcmp(p->nearest, "ceil") == 0)
        return (int64_t)ceil(x);
    return (int64_t)(strcmp(p->nearest, "round_prefer_ceil") == 0 ? floor(x + 0.5) : ceil(x - 0.5));
}

static double kernel(const Interpolation *p, double x)
{
    double a = p->a;
    x = fabs(x);
    if (p->mode == LINEAR)
        return x < 1 ? 1 - x : 0;
    if (x <= 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

static Taps taps_of(const Interpolation *p, const Axis *a, int64_t o, Arena *arena)
{
    double x = fmin(fmax(original(p, a, o), -2.0 * MOST_OUT), 2.0 * MOST_OUT);
    bool crop = strcmp(p->coordinates, "tf_crop_and_resize") == 0;
    Taps t = {.n = 1, .outside = crop && (x < 0 || x > (double)a->in - 1)};
    if (p->mode == NEAREST) {
        t.first = nearest(p, a, x);
        t.weight = NEW(arena, double, 1);
        t.weight[0] = 1;
        return t;
    }
    double squeeze = p->antialias ? fmin(scale_of(a), 1) : 1;
    squeeze = fmax(squeeze, 1.0 / MOST_OUT);
    int64_t reach = (int64_t)ceil((p->mode == LINEAR ? 1 : 2) / squeeze);
    t.first = (int64_t)floor(x) - reach + 1;
    t.n = (int)(2 * reach);
    t.weight = NEW(arena, double, t.n);
    double sum = 0;
    for (int k = 0; k < t.n; k++) {
        int64_t at = t.first + k;
        bool skip = p->exclude_outside && (at < 0 || at >= a->in);
        t.weight[k] = skip ? 0 : kernel(p, ((double)at - x) * squeeze);
        sum += t.weight[k];
    }
    for (int k = 0; k < t.n && sum != 0; k++)
        t.weight[k] /= sum;
    return t;
}

static int64_t clamp(int64_t i, int64_t n) { return i < 0 ? 0 : i >= n ? n - 1 : i; }

/* out[o] = x[index[o]]: a slice or a repetition where the indices allow it. */
static Val pick(Graph *g, Val x, int axis, int64_t n, const int64_t *index)
{
    const Type t = *val_type(g, x);
    int64_t in = t.dim[axis], step = n > 1 ? index[1] - index[0] : 1;
    int64_t times = n % in == 0 ? n / in : 0;
    bool strided = step > 0, repeats = times > 0;
    for (int64_t o = 0; o < n; o++) {
        strided = strided && index[o] == index[0] + o * step;
        repeats = repeats && index[o] == o / times;
    }
    if (strided) {
        SliceAttrs at = slice_all(&t);
        at.start.v[axis] = index[0];
        at.step.v[axis] = step;
        at.size.v[axis] = n;
        return build(g, OP_slice, NULL, 1, &x, &at);
    }
    if (repeats)
        return repeat_each(g, x, axis, times);
    Val v = graph_const(g, "index", type_make(DT_I64, 1, &n), index);
    return build_gather(g, x, v, axis);
}

/* Makes tables for resample: the taps of every output element, as many as the widest has. */
static Val interpolate(OnnxNode *n, Val x, int axis, const Axis *a, const Taps *taps)
{
    Graph *g = n->g;
    int64_t dim[2] = {a->out, 0};
    for (int64_t o = 0; o < a->out; o++)
        dim[1] = taps[o].n > dim[1] ? taps[o].n : dim[1];
    DType dt = val_type(g, x)->dt == DT_F64 ? DT_F64 : DT_F32;
    Type ti = type_make(DT_I64, 2, dim), tw = type_make(dt, 2, dim);
    Tensor index = {ti, NEW(n->x->a, char, type_bytes(&ti) + 1)};
    Tensor weight = {tw, NEW(n->x->a, char, type_bytes(&tw) + 1)};
    for (int64_t o = 0; o < a->out; o++)
        for (int64_t k = 0; k < dim[1]; k++) {
            double w = k < taps[o].n ? taps[o].weight[k] : 0;
            tensor_set_i(&index, o * dim[1] + k, w != 0 ? clamp(taps[o].first + k, a->in) : -1);
            tensor_set_f(&weight, o * dim[1] + k, w);
        }
    Val in[] = {x, graph_const(g, "index", ti, index.data), graph_const(g, "weight", tw, weight.data)};
    return build(g, OP_resample, NULL, 3, in, &(AxisAttrs){axis});
}

/* Picks the one tap of every output element. */
static Val nearest_elements(OnnxNode *n, Val x, int axis, const Axis *a, const Taps *taps)
{
    int64_t *index = NEW(n->x->a, int64_t, a->out + 1);
    for (int64_t o = 0; o < a->out; o++)
        index[o] = clamp(taps[o].first, a->in);
    return pick(n->g, x, axis, a->out, index);
}

static Val resize_axis(OnnxNode *n, const Interpolation *p, Val x, int axis, const Axis *a)
{
    Graph *g = n->g;
    if (a->out > MOST_OUT || a->in > MOST_OUT) {
        refuse(n, "extents over %d", MOST_OUT);
        return (Val){0};
    }
    if (!a->out)
        return build_slice(g, x, axis, 0, 0);
    Taps *taps = NEW(n->x->a, Taps, a->out);
    bool identity = a->in == a->out && scale_of(a) == 1, outside = false;
    for (int64_t o = 0; o < a->out; o++) {
        taps[o] = taps_of(p, a, o, n->x->a);
        outside |= taps[o].outside;
    }
    if ((identity && strcmp(p->coordinates, "tf_crop_and_resize") != 0) || !x.i)
        return x;
    Val y = p->mode == NEAREST ? nearest_elements(n, x, axis, a, taps) : interpolate(n, x, axis, a, taps);
    if (!outside || !y.i)
        return y;
    bool *inside = NEW(n->x->a, bool, a->out);
    for (int64_t o = 0; o < a->out; o++)
        inside[o] = !taps[o].outside;
    Val mask = graph_const(g, "inside", type_make(DT_BOOL, 1, &a->out), inside);
    mask = along_axis(g, mask, axis, val_type(g, y)->rank);
    return build3(g, OP_where, mask, y, scalar_like(g, y, p->extrapolation));
}

static bool resize(OnnxNode *n, const Interpolation *p, const Axis *axis)
{
    DType dt = in_type(n, 0)->dt;
    bool real = dtype_is_float(dt) || p->mode == NEAREST;
    Val y = real ? n->in[0] : build_cast(n->g, n->in[0], DT_F32);
    for (int i = 0; i < in_type(n, 0)->rank; i++) {
        if (axis[i].in < 1 && axis[i].out > 0)
            return fail(n->x->d, "dimension %d is empty", i);
        y = resize_axis(n, p, y, i, &axis[i]);
    }
    n->out[0] = build_cast(n->g, y, dt);
    return y.i;
}

/* ---- operands ------------------------------------------------------------------------------ */

static bool read_mode(OnnxNode *n, Interpolation *p)
{
    const char *mode = attr_str(n, "mode", "nearest");
    bool linear = strcmp(mode, "linear") == 0 || strcmp(mode, "bilinear") == 0;
    *p = (Interpolation){
        .mode = linear ? LINEAR : strcmp(mode, "cubic") == 0 ? CUBIC : NEAREST,
        .coordinates = attr_str(n, "coordinate_transformation_mode",
                                n->opset < 11 ? "asymmetric" : "half_pixel"),
        .nearest = attr_str(n, "nearest_mode", n->opset < 11 ? "simple" : "round_prefer_floor"),
        .antialias = attr_int(n, "antialias", 0) != 0,
        .exclude_outside = attr_int(n, "exclude_outside", 0) != 0,
        .a = attr_float(n, "cubic_coeff_a", -0.75),
        .extrapolation = attr_float(n, "extrapolation_value", 0)};
    return true;
}

static bool read_axes(OnnxNode *n, Ints *axes)
{
    int rank = in_type(n, 0)->rank;
    TRY(attr_ints(n, "axes", axes));
    if (!has_attr(n, "axes")) {
        axes->n = rank;
        for (int i = 0; i < rank; i++)
            axes->v[i] = i;
    }
    for (int i = 0; i < axes->n; i++)
        TRY(axis_in(n, axes->v[i], rank, &axes->v[i]));
    return true;
}

static bool floats_of(OnnxNode *n, int k, int64_t want, double *v)
{
    Tensor t;
    TRY(static_tensor(n, k, &t));
    if (type_count(&t.type) != want || want > 2 * MAX_RANK)
        return fail(n->x->d, "operand %d has %lld elements, expected %lld", k,
                    (long long)type_count(&t.type), (long long)want);
    for (int64_t i = 0; i < want; i++)
        v[i] = tensor_f(&t, i);
    return true;
}

static void start_axes(const Type *t, Axis *axis)
{
    for (int i = 0; i < t->rank; i++)
        axis[i] = (Axis){t->dim[i], t->dim[i], 1, 1, 0, 1};
}

static bool set_extent(OnnxNode *n, Axis *a, double scale, double out)
{
    if (!(scale >= 0 && out >= 0 && out < 1e9))
        return fail(n->x->d, "scale %g of an extent of %lld", scale, (long long)a->in);
    a->from = 1;
    a->to = scale;
    a->out = (int64_t)out;
    return true;
}

static bool set_scale(OnnxNode *n, Axis *a, double scale)
{
    /* in single precision, in which 1.4 is stored: 5 become 7 */
    double out = floor((float)((double)a->in * (a->end - a->start) * scale));
    return set_extent(n, a, scale > 0 ? scale : -1, out);
}

/* Sets extents by the operand sizes and the policy for the aspect ratio. */
static bool set_sizes(OnnxNode *n, const Ints *axes, const Ints *sizes, Axis *axis)
{
    const char *policy = attr_str(n, "keep_aspect_ratio_policy", "stretch");
    bool stretch = strcmp(policy, "stretch") == 0;
    double common = 0;
    for (int i = 0; i < axes->n; i++) {
        Axis *a = &axis[axes->v[i]];
        if (a->in < 1 && !stretch)
            return fail(n->x->d, "dimension %lld is empty", (long long)axes->v[i]);
        if (sizes->v[i] < 0 || sizes->v[i] > 1000000000)
            return fail(n->x->d, "size %lld", (long long)sizes->v[i]);
        a->out = sizes->v[i];
        a->from = (double)a->in;
        a->to = (double)a->out;
        bool larger = strcmp(policy, "not_larger") == 0;
        if (i == 0 || (larger ? scale_of(a) < common : scale_of(a) > common))
            common = scale_of(a);
    }
    for (int i = 0; i < axes->n && !stretch; i++) {
        Axis *a = &axis[axes->v[i]];
        TRY(set_extent(n, a, common, floor(common * (double)a->in + 0.5)));
    }
    return true;
}

static bool import_resize(OnnxNode *n)
{
    Interpolation p;
    Axis axis[MAX_RANK];
    Ints axes, sizes;
    double roi[2 * MAX_RANK], scale[2 * MAX_RANK];
    TRY(read_mode(n, &p));
    TRY(read_axes(n, &axes));
    start_axes(in_type(n, 0), axis);
    if (n->opset >= 11 && strcmp(p.coordinates, "tf_crop_and_resize") == 0) {
        TRY(floats_of(n, 1, 2 * axes.n, roi));
        for (int i = 0; i < axes.n; i++) {
            axis[axes.v[i]].start = roi[i];
            axis[axes.v[i]].end = roi[axes.n + i];
        }
    }
    int k = n->opset < 11 ? 1 : 2;
    bool by_size = n->opset >= 11 && has_in(n, 3);
    if (by_size) {
        TRY(static_ints(n, 3, &sizes));
        if (sizes.n != axes.n)
            return fail(n->x->d, "%d sizes for %d axes", sizes.n, axes.n);
        TRY(set_sizes(n, &axes, &sizes, axis));
    } else {
        TRY(floats_of(n, k, axes.n, scale));
        for (int i = 0; i < axes.n; i++)
            TRY(set_scale(n, &axis[axes.v[i]], scale[i]));
    }
    return resize(n, &p, axis);
}

static bool import_upsample(OnnxNode *n)
{
    Interpolation p;
    Axis axis[MAX_RANK];
    int rank = in_type(n, 0)->rank;
    double scale[2 * MAX_RANK];
    TRY(read_mode(n, &p));
    start_axes(in_type(n, 0), axis);
    const Onnx__AttributeProto *a = attr_find(n, "scales");
    if (n->opset >= 9)
        TRY(floats_of(n, 1, rank, scale));
    else
        TRY(attr_needed(n, "scales"));
    if (n->opset < 9 && a->n_floats != (size_t)rank)
        return fail(n->x->d, "attribute 'scales' has %zu numbers, not %d", a->n_floats, rank);
    for (int i = 0; i < rank; i++)
        TRY(set_scale(n, &axis[i], n->opset < 9 ? (double)a->floats[i] : scale[i]));
    return resize(n, &p, axis);
}

const OnnxOp onnx_resize[] = {
    {"Resize", 10, .import = import_resize, .fixed = 6},
    {"Upsample", 7, .import = import_upsample, .fixed = 2},
    {0},
};
