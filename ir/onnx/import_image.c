/* import_image.c -- sampling and rearranging images: GridSample, AffineGrid, RoiAlign,
 * MaxRoiPool, DeformConv, Col2Im, CenterCropPad, MaxUnpool. */
#include "onnx_int.h"
#include <math.h>
#include <string.h>

/* ---- GridSample and AffineGrid ------------------------------------------ */

/* Samples x[N,C,s...] at grid[N,p...,k]: [N,C,p...]. */
static Val sample(Graph *g, const GridSampleAttrs *at, Val x, Val grid)
{
    Val in[] = {move_axis(g, x, 1, val_type(g, x)->rank - 1), grid};
    return move_axis(g, build(g, OP_grid_sample, NULL, 2, in, at), val_type(g, grid)->rank - 1, 1);
}

/* A grid [N,points,2] of row and column positions, [N,points] each. */
static Val positions(Graph *g, const Val at[2])
{
    Val in[2] = {{0}};
    for (int d = 0; d < 2 && at[d].i; d++) {
        const Type *t = val_type(g, at[d]);
        in[1 - d] = build_reshape(g, at[d], 3, (int64_t[]){t->dim[0], t->dim[1], 1});
    }
    return build_concat(g, 2, in, 2);
}

static bool import_grid_sample(OnnxNode *n)
{
    const Type *x = in_type(n, 0), *grid = in_type(n, 1);
    const char *mode = attr_str(n, "mode", "linear"), *pad = attr_str(n, "padding_mode", "zeros");
    int k = x->rank - 2;
    GridSampleAttrs at = {.mode = strstr(mode, "linear")  ? SAMPLE_LINEAR
                                  : strstr(mode, "cubic") ? SAMPLE_CUBIC
                                                          : SAMPLE_NEAREST,
                          .outside = strcmp(pad, "border") == 0       ? OUTSIDE_BORDER
                                     : strcmp(pad, "reflection") == 0 ? OUTSIDE_REFLECTED
                                                                      : OUTSIDE_ZERO,
                          .corners = attr_int(n, "align_corners", 0) != 0};
    if (k < 1 || k > 3 || grid->rank != x->rank || grid->dim[k + 1] != k || grid->dim[0] != x->dim[0])
        return fail(n->x->d, "grid does not fit the input");
    n->out[0] = sample(n->g, &at, n->in[0], n->in[1]);
    return n->out[0].i;
}

static bool import_affine_grid(OnnxNode *n)
{
    Graph *g = n->g;
    const Type *theta = in_type(n, 0);
    Ints size;
    TRY(static_ints(n, 1, &size) && shape_valid(n, &size));
    int k = size.n - 2;
    if (k < 2 || k > 3 || theta->rank != 3 || theta->dim[1] != k || theta->dim[2] != k + 1)
        return fail(n->x->d, "theta does not fit the size");
    bool corners = attr_int(n, "align_corners", 0) != 0;
    Ints out = {.n = k + 2, .v = {size.v[0]}};
    int64_t points = 1;
    for (int d = 0; d < k; d++)
        points *= out.v[1 + d] = size.v[2 + d];
    out.v[k + 1] = k;
    Type tb = type_make(theta->dt, 2, (int64_t[]){points, k + 1});
    TRY(small_enough(n, &tb));
    Tensor base = {tb, NEW(n->x->a, char, type_bytes(&tb) + 1)};
    for (int64_t p = 0; p < points; p++) {
        int64_t rest = p;
        for (int d = k - 1, c = 0; d >= 0; d--, c++) { /* the last dimension's coordinate first */
            double extent = (double)size.v[2 + d], i = (double)(rest % size.v[2 + d]);
            double v = !corners     ? (2 * i + 1) / extent - 1
                       : extent > 1 ? 2 * i / (extent - 1) - 1
                                    : 0;
            tensor_set_f(&base, p * (k + 1) + c, v);
            rest /= size.v[2 + d];
        }
        tensor_set_f(&base, p * (k + 1) + k, 1);
    }
    Val y = build_matmul(g, graph_const(g, "grid", tb, base.data), n->in[0], false, true);
    n->out[0] = reshape_ints(g, y, &out);
    return n->out[0].i;
}

/* ---- RoiAlign ----------------------------------------------------------- */

/* Sampling positions along one dimension: start + (i + 0.5) * size / count, clamped as the
 * definition does: beyond one pixel outside reads 0, closer ones read the border. */
typedef struct {
    Val at, valid; /* [rois, count] */
} Line;

static Line line(Graph *g, Val start, Val size, int64_t count, int64_t extent)
{
    Val step = along_axis(g, build_cast(g, iota(g, count), val_type(g, start)->dt), 1, 2);
    step = mul_scalar(g, add_scalar(g, step, 0.5), 1.0 / (double)count);
    Val at = build2(g, OP_add, start, build2(g, OP_mul, size, step));
    Val low = build2(g, OP_less_equal, scalar_like(g, at, -1), at);
    Val high = build2(g, OP_less_equal, at, scalar_like(g, at, (double)extent));
    Val valid = build_cast(g, build2(g, OP_and, low, high), val_type(g, at)->dt);
    return (Line){with_consts(g, OP_clip, at, 0, (double)extent - 1), valid};
}

/* v[rois, n] repeated to every pair (row, column): [rois, rows * columns]. */
static Val pairs(Graph *g, Val v, bool is_row, int64_t rows, int64_t columns)
{
    int64_t rois = val_type(g, v)->dim[0];
    v = build_reshape(g, v, 3, is_row ? (int64_t[]){rois, rows, 1} : (int64_t[]){rois, 1, columns});
    v = build_expand(g, v, 3, (int64_t[]){rois, rows, columns});
    return build_reshape(g, v, 2, (int64_t[]){rois, rows * columns});
}

/* The largest of the four pixels around each position, times their weights. */
static Val largest_pixel(Graph *g, Val image, const Val at[2])
{
    const Type p = *val_type(g, at[0]);
    GridSampleAttrs nearest = {.mode = SAMPLE_NEAREST, .outside = OUTSIDE_BORDER, .pixels = 1};
    Val floor[2], next[2], largest = {0};
    for (int d = 0; d < 2; d++) {
        floor[d] = one(g, OP_floor, at[d]);
        next[d] = build2(g, OP_sub, at[d], floor[d]);
    }
    for (int k = 0; k < 4; k++) {
        Val pixel[2], weight[2];
        for (int d = 0; d < 2; d++) {
            bool far = k >> d & 1;
            pixel[d] = far ? add_scalar(g, floor[d], 1) : floor[d];
            weight[d] = far ? next[d] : add_scalar(g, one(g, OP_neg, next[d]), 1);
        }
        Val v = sample(g, &nearest, image, positions(g, pixel));
        Val w = build_reshape(g, build2(g, OP_mul, weight[0], weight[1]), 3,
                              (int64_t[]){p.dim[0], 1, p.dim[1]});
        v = build2(g, OP_mul, v, w);
        largest = k ? build2(g, OP_max, largest, v) : v;
    }
    return largest;
}

static bool import_roi_align(OnnxNode *n)
{
    Graph *g = n->g;
    const Type x = *in_type(n, 0), r = *in_type(n, 1);
    int64_t oh = attr_int(n, "output_height", 1), ow = attr_int(n, "output_width", 1);
    int64_t ratio = attr_int(n, "sampling_ratio", 0);
    double scale = attr_float(n, "spatial_scale", 1);
    bool half = attr_is(n, "coordinate_transformation_mode",
                        n->opset < 16 ? "output_half_pixel" : "half_pixel", "half_pixel");
    if (ratio < 1 || ratio > 64 || oh < 1 || ow < 1 || oh > 4096 || ow > 4096)
        return refuse(n, "sampling_ratio %lld: the number of samples would depend on data", (long long)ratio);
    if (x.rank != 4 || r.rank != 2 || r.dim[1] != 4)
        return fail(n->x->d, "rois must be [n, 4]");
    TRY(indices_inside(n, 2, x.dim, 1));
    Val c[4];
    for (int i = 0; i < 4; i++)
        c[i] = add_scalar(g, mul_scalar(g, build_slice(g, n->in[1], 1, i, 1), scale), half ? -0.5 : 0);
    Val w = build2(g, OP_sub, c[2], c[0]), h = build2(g, OP_sub, c[3], c[1]);
    if (!half) {
        w = build2(g, OP_max, w, scalar_like(g, w, 1));
        h = build2(g, OP_max, h, scalar_like(g, h, 1));
    }
    int64_t rows = oh * ratio, columns = ow * ratio;
    Line ly = line(g, c[1], h, rows, x.dim[2]), lx = line(g, c[0], w, columns, x.dim[3]);
    TRY(ly.at.i && lx.at.i);
    Val at[2] = {pairs(g, ly.at, true, rows, columns), pairs(g, lx.at, false, rows, columns)};
    Val valid =
        build2(g, OP_mul, pairs(g, ly.valid, true, rows, columns), pairs(g, lx.valid, false, rows, columns));
    bool max = attr_is(n, "mode", "avg", "max");
    GridSampleAttrs linear = {.outside = OUTSIDE_BORDER, .pixels = 1};
    Val image = build_gather(g, n->in[0], n->in[2], 0);
    TRY(image.i && valid.i);
    Val y = max ? largest_pixel(g, image, at) : sample(g, &linear, image, positions(g, at));
    y = build2(g, OP_mul, y, build_reshape(g, valid, 3, (int64_t[]){r.dim[0], 1, rows * columns}));
    y = build_reshape(g, y, 6, (int64_t[]){r.dim[0], x.dim[1], oh, ratio, ow, ratio});
    uint32_t bins = 1u << 3 | 1u << 5;
    n->out[0] = max ? build_reduce(g, OP_reduce_max, y, bins, false) : mean_over(g, y, bins, false);
    return n->out[0].i;
}

/* ---- MaxRoiPool --------------------------------------------------------- */

/* Does a position of a dimension lie in a bin of [first, last]?  bool [rois, count, extent]. */
static Val bins(Graph *g, Val first, Val last, int64_t count, int64_t extent)
{
    int64_t rois = val_type(g, first)->dim[0];
    DType dt = val_type(g, first)->dt;
    Val size = add_scalar(g, build2(g, OP_sub, last, first), 1);
    size = build2(g, OP_max, size, scalar_like(g, size, 1));
    size = build2(g, OP_div, size, scalar_like(g, size, (double)count));
    Val bin = along_axis(g, build_cast(g, iota(g, count), dt), 1, 2);
    Val start = one(g, OP_floor, build2(g, OP_mul, bin, size));
    Val end = one(g, OP_ceil, build2(g, OP_mul, add_scalar(g, bin, 1), size));
    start = build_reshape(g, build2(g, OP_add, start, first), 3, (int64_t[]){rois, count, 1});
    end = build_reshape(g, build2(g, OP_add, end, first), 3, (int64_t[]){rois, count, 1});
    Val at = along_axis(g, build_cast(g, iota(g, extent), dt), 2, 3);
    return build2(g, OP_and, build2(g, OP_less_equal, start, at), build2(g, OP_less, at, end));
}

/* The largest element of every bin, along the last dimension of x[rois, channels, other, extent]
 * where which[rois, count, extent] holds: [rois, channels, other, count]. */
static Val max_in_bins(Graph *g, Val x, Val which)
{
    const Type t = *val_type(g, x), w = *val_type(g, which);
    x = build_reshape(g, x, 5, (int64_t[]){t.dim[0], t.dim[1], t.dim[2], 1, t.dim[3]});
    which = build_reshape(g, which, 5, (int64_t[]){w.dim[0], 1, 1, w.dim[1], w.dim[2]});
    x = build3(g, OP_where, which, x, scalar_like(g, x, -INFINITY));
    return build_reduce(g, OP_reduce_max, x, 1u << 4, false);
}

static bool import_max_roi_pool(OnnxNode *n)
{
    static const int swap[] = {0, 1, 3, 2};
    Graph *g = n->g;
    const Type x = *in_type(n, 0), r = *in_type(n, 1);
    double scale = attr_float(n, "spatial_scale", 1);
    Ints out;
    TRY(attr_needed(n, "pooled_shape") && attr_ints_in(n, "pooled_shape", 2, 0, 1, MAX_STEP, &out));
    if (x.rank != 4 || r.rank != 2 || r.dim[1] != 5)
        return fail(n->x->d, "rois must be [n, 5]");
    Val at[4], batch = build_cast(g, build_slice(g, n->in[1], 1, 0, 1), DT_I64);
    for (int i = 0; i < 4; i++) /* halves are rounded up */
        at[i] = one(g, OP_floor,
                    add_scalar(g, mul_scalar(g, build_slice(g, n->in[1], 1, i + 1, 1), scale), 0.5));
    batch = build_reshape(g, batch, 1, (int64_t[]){r.dim[0]});
    Val y = build_gather(g, n->in[0], batch, 0);
    Val columns = bins(g, at[0], at[2], out.v[1], x.dim[3]), rows = bins(g, at[1], at[3], out.v[0], x.dim[2]);
    TRY(y.i && columns.i && rows.i);
    y = max_in_bins(g, y, columns);
    TRY(y.i);
    y = max_in_bins(g, build_transpose(g, y, swap), rows);
    TRY(y.i);
    y = build_transpose(g, y, swap);
    n->out[0] = build3(g, OP_where, with_consts(g, OP_isinf, y, 0, 1), scalar_like(g, y, 0), y);
    return n->out[0].i;
}

/* ---- DeformConv ---------------------------------------------------------
 *
 * A convolution whose window positions are moved by offsets that are data: the moved pixels
 * are sampled to columns [N, C * kernel, out] and multiplied by the weights. */

typedef struct {
    int64_t batch, channels, kernel, points, groups;
    int64_t kh, kw, oh, ow, stride[2], pad[2], dilation[2];
} Deform;

static bool read_deform(OnnxNode *n, Deform *f)
{
    const Type *x = in_type(n, 0), *w = in_type(n, 1), *offset = in_type(n, 2);
    Ints stride, pads, dilation;
    if (x->rank != 4 || w->rank != 4 || offset->rank != 4)
        return refuse(n, "other than two spatial dimensions");
    TRY(attr_ints_in(n, "strides", 2, 1, 1, MAX_STEP, &stride));
    TRY(attr_ints_in(n, "pads", 4, 0, -INT32_MAX, INT32_MAX, &pads));
    TRY(attr_ints_in(n, "dilations", 2, 1, 1, MAX_STEP, &dilation));
    *f = (Deform){.batch = x->dim[0],
                  .channels = x->dim[1],
                  .kernel = w->dim[2] * w->dim[3],
                  .kh = w->dim[2],
                  .kw = w->dim[3],
                  .oh = offset->dim[2],
                  .ow = offset->dim[3]};
    f->points = f->oh * f->ow;
    TRY(attr_int_in(n, "offset_group", 1, 1, MAX_STEP, &f->groups));
    for (int i = 0; i < 2; i++) {
        f->stride[i] = stride.v[i];
        f->pad[i] = pads.v[i];
        f->dilation[i] = dilation.v[i];
    }
    return (f->channels % f->groups == 0 && offset->dim[1] == 2 * f->groups * f->kernel) ||
           fail(n->x->d, "offsets do not fit the weights");
}

/* Positions [kernel, points] of the window's elements in dimension d, without offsets. */
static Val window_positions(OnnxNode *n, const Deform *f, int d)
{
    Type t = type_make(in_type(n, 0)->dt, 2, (int64_t[]){f->kernel, f->points});
    Tensor v = {t, NEW(n->x->a, char, type_bytes(&t) + 1)};
    for (int64_t k = 0; k < f->kernel; k++)
        for (int64_t p = 0; p < f->points; p++) {
            int64_t tap = d ? k % f->kw : k / f->kw, out = d ? p % f->ow : p / f->ow;
            double at = (double)(out * f->stride[d] - f->pad[d] + tap * f->dilation[d]);
            tensor_set_f(&v, k * f->points + p, at);
        }
    return graph_const(n->g, "window", t, v.data);
}

static bool import_deform_conv(OnnxNode *n)
{
    Graph *g = n->g;
    Deform f = {0};
    TRY(read_deform(n, &f));
    const Type x = *in_type(n, 0), w = *in_type(n, 1);
    int64_t per = f.channels / f.groups, taps = f.kernel * f.points, group;
    TRY(attr_int_in(n, "group", 1, 1, f.channels, &group));
    if (w.dim[0] % group || f.channels % group || w.dim[1] != f.channels / group || taps > 1 << 26)
        return fail(n->x->d, "group %lld does not fit the weights", (long long)group);
    Val base[2] = {window_positions(n, &f, 0), window_positions(n, &f, 1)}, at[2];
    Val offset = build_reshape(g, n->in[2], 5, (int64_t[]){f.batch, f.groups, f.kernel, 2, f.points});
    GridSampleAttrs linear = {.pixels = 1};
    int64_t images = f.batch * f.groups, inner = w.dim[1] * f.kernel;
    for (int d = 0; d < 2; d++) {
        Val moved = build_slice(g, offset, 3, d, 1);
        moved = build_reshape(g, moved, 3, (int64_t[]){images, f.kernel, f.points});
        at[d] = build_reshape(g, build2(g, OP_add, moved, base[d]), 2, (int64_t[]){images, taps});
    }
    Val x_of = build_reshape(g, n->in[0], 4, (int64_t[]){images, per, x.dim[2], x.dim[3]});
    TRY(x_of.i);
    Val all = sample(g, &linear, x_of, positions(g, at));
    if (has_in(n, 4))
        all = build2(g, OP_mul, all, build_reshape(g, n->in[4], 3, (int64_t[]){images, 1, taps}));
    all = build_reshape(g, all, 4, (int64_t[]){f.batch, group, inner, f.points});
    Val weight = build_reshape(g, n->in[1], 3, (int64_t[]){group, w.dim[0] / group, inner});
    Val y = build_matmul(g, weight, all, false, false);
    y = build_reshape(g, y, 4, (int64_t[]){f.batch, w.dim[0], f.oh, f.ow});
    if (has_in(n, 3))
        y = build2(g, OP_add, y, along_axis(g, n->in[3], 1, 4));
    n->out[0] = y;
    return y.i;
}

/* ---- rearranging -------------------------------------------------------- */

/* Overlapping blocks summed: the transposed convolution of every channel with unit
 * kernels. */
static bool import_col2im(OnnxNode *n)
{
    Graph *g = n->g;
    const Type x = *in_type(n, 0);
    Ints image, block;
    ConvAttrs at = {0};
    TRY(static_ints(n, 1, &image) && static_ints(n, 2, &block));
    int k = image.n;
    if (x.rank != 3 || block.n != k || k < 1 || k > 3)
        return refuse(n, "%d spatial dimensions", k);
    TRY(shape_valid(n, &image));
    TRY(attr_ints_in(n, "strides", k, 1, 1, MAX_STEP, &at.strides));
    TRY(attr_ints_in(n, "pads", 2 * k, 0, 0, INT32_MAX, &at.pads));
    TRY(attr_ints_in(n, "dilations", k, 1, 1, MAX_STEP, &at.dilations));
    int64_t size = 1, blocks = 1;
    Ints out = {.n = k + 2, .v = {x.dim[0]}}, w = {.n = k + 2, .v = {0, 1}};
    for (int i = 0; i < k; i++) {
        if (block.v[i] < 1 || block.v[i] > 4096)
            return fail(n->x->d, "blocks of %lld elements along dimension %d", (long long)block.v[i], i);
        int64_t room =
            image.v[i] + at.pads.v[i] + at.pads.v[k + i] - at.dilations.v[i] * (block.v[i] - 1) - 1;
        size *= w.v[2 + i] = block.v[i];
        out.v[2 + i] = room < 0 ? 0 : room / at.strides.v[i] + 1;
    }
    TRY(shape_valid(n, &out));
    for (int i = 0; i < k; i++)
        blocks *= out.v[2 + i];
    if (size > 4096 || x.dim[1] % size || blocks != x.dim[2])
        return fail(n->x->d, "the input does not consist of such blocks");
    at.group = x.dim[1] / size;
    at.shape = (Ints){.n = k + 2, .v = {x.dim[0], at.group}};
    memcpy(&at.shape.v[2], image.v, (size_t)k * sizeof *image.v);
    out.v[1] = w.v[0] = x.dim[1];
    Val row = along_axis(g, iota(g, x.dim[1]), 0, 2), column = along_axis(g, iota(g, size), 1, 2);
    Val unit = build2(g, OP_equal, build2(g, OP_mod, row, build_scalar(g, DT_I64, (double)size)), column);
    Val y = reshape_ints(g, n->in[0], &out);
    unit = reshape_ints(g, build_cast(g, unit, x.dt), &w);
    n->out[0] = build(g, OP_conv_bwd_data, NULL, 2, (Val[]){y, unit}, &at);
    return n->out[0].i;
}

static bool import_center_crop_pad(OnnxNode *n)
{
    Graph *g = n->g;
    const Type t = *in_type(n, 0);
    Ints shape, axes;
    TRY(static_ints(n, 1, &shape) && shape_valid(n, &shape));
    bool given = has_attr(n, "axes");
    TRY(attr_ints(n, "axes", &axes));
    if (shape.n != (given ? axes.n : t.rank))
        return fail(n->x->d, "%d extents for rank %d", shape.n, t.rank);
    PadAttrs pad = {.before.n = t.rank, .after.n = t.rank};
    Val y = n->in[0];
    for (int i = 0; i < shape.n; i++) {
        int64_t axis;
        TRY(axis_in(n, given ? axes.v[i] : i, t.rank, &axis));
        int64_t have = t.dim[axis], want = shape.v[i];
        if (want <= have) {
            y = build_slice(g, y, (int)axis, (have - want) / 2, want);
        } else {
            pad.before.v[axis] = (want - have) / 2;
            pad.after.v[axis] = want - have - pad.before.v[axis];
        }
    }
    n->out[0] = build(g, OP_pad, NULL, 1, &y, &pad);
    return n->out[0].i;
}

/* Zeros with the values put at their flat indices.  These count without output_shape, as in the standard's
 * own test; onnxruntime counts in that shape. */
static bool import_max_unpool(OnnxNode *n)
{
    Graph *g = n->g;
    const Type x = *in_type(n, 0);
    Ints kernel, strides, pads, out = ints_of(&x);
    int sp = x.rank - 2;
    if (sp < 1)
        return fail(n->x->d, "data of rank %d", x.rank);
    TRY(attr_needed(n, "kernel_shape") && attr_ints_in(n, "kernel_shape", sp, 0, 1, INT32_MAX, &kernel));
    TRY(attr_ints_in(n, "strides", sp, 1, 1, MAX_STEP, &strides));
    TRY(attr_ints_in(n, "pads", 2 * sp, 0, -INT32_MAX, INT32_MAX, &pads));
    for (int i = 0; i < sp; i++)
        out.v[2 + i] = (x.dim[2 + i] - 1) * strides.v[i] + kernel.v[i] - pads.v[i] - pads.v[sp + i];
    TRY(shape_valid(n, &out));
    Type natural = type_make(x.dt, out.n, out.v); /* indices count in this shape */
    int64_t total = type_count(&natural), count = type_count(&x);
    Val zero = build_expand(g, build_scalar(g, x.dt, 0), 1, &total);
    Val in[3] = {zero, build_reshape(g, n->in[1], 1, &count), build_reshape(g, n->in[0], 1, &count)};
    Val y = build(g, OP_scatter_elements, NULL, 3, in, &(ScatterAttrs){0});
    y = reshape_ints(g, y, &out);
    if (has_in(n, 2)) {
        PadAttrs pad = {.before.n = x.rank, .after.n = x.rank};
        TRY(static_ints(n, 2, &out) && shape_valid(n, &out));
        for (int i = 0; i < x.rank; i++) {
            pad.after.v[i] = i < out.n ? out.v[i] - natural.dim[i] : -1;
            if (pad.after.v[i] < 0)
                return refuse(n, "output_shape smaller than what the window covers");
        }
        y = build(g, OP_pad, NULL, 1, &y, &pad);
    }
    n->out[0] = y;
    return y.i;
}

const OnnxOp onnx_image[] = {
    {"AffineGrid", 20, .import = import_affine_grid},
    {"CenterCropPad", 18, .import = import_center_crop_pad},
    {"Col2Im", 18, .import = import_col2im},
    {"DeformConv", 19, .import = import_deform_conv, .weights = 10},
    {"GridSample", 16, .import = import_grid_sample},
    {"GridSample", 1, .import = import_grid_sample, .domain = "com.microsoft"},
    {"MaxRoiPool", 1, .import = import_max_roi_pool},
    {"MaxUnpool", 9, .import = import_max_unpool},
    {"RoiAlign", 10, .import = import_roi_align},
    {0},
};
