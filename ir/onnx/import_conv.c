/* import_conv.c -- convolution and pooling: resolves auto_pad and ceil_mode to explicit
 * extents. */
#include "onnx_int.h"
#include <string.h>

enum { MAX_SPATIAL = 3 }; /* dimensions of operators' windows */

/* A window sliding over the spatial dimensions, all attributes filled in. */
typedef struct {
    int n; /* spatial dimensions */
    Ints kernel, strides, pads, dilations, out;
} Window;

static bool kernel_of_weights(OnnxNode *n, const Type *w, Ints *kernel)
{
    int spatial = in_type(n, 0)->rank - 2;
    kernel->n = spatial;
    if (w->rank != spatial + 2)
        return fail(n->x->d, "weights of rank %d for data of rank %d", w->rank, spatial + 2);
    for (int i = 0; i < spatial; i++) {
        kernel->v[i] = w->dim[2 + i];
        if (kernel->v[i] < 1 || kernel->v[i] > INT32_MAX)
            return fail(n->x->d, "a kernel of %lld elements along dimension %d", (long long)kernel->v[i],
                        2 + i);
    }
    return true;
}

/* Reads the window; its extents are those of the weights, or an attribute if these are NULL. */
static bool read_window(OnnxNode *n, const Type *weights, Window *w)
{
    w->n = in_type(n, 0)->rank - 2;
    if (w->n < 1 || (weights && w->n > MAX_SPATIAL))
        return refuse(n, "%d spatial dimensions, 1 to %d are supported", w->n, MAX_SPATIAL);
    if (weights)
        TRY(kernel_of_weights(n, weights, &w->kernel));
    else
        TRY(attr_needed(n, "kernel_shape") &&
            attr_ints_in(n, "kernel_shape", w->n, 0, 1, INT32_MAX, &w->kernel));
    return attr_ints_in(n, "strides", w->n, 1, 1, MAX_STEP, &w->strides) &&
           attr_ints_in(n, "dilations", w->n, 1, 1, MAX_STEP, &w->dilations) &&
           attr_ints_in(n, "pads", 2 * w->n, 0, -INT32_MAX, INT32_MAX, &w->pads);
}

static int64_t reach(const Window *w, int i) { return (w->kernel.v[i] - 1) * w->dilations.v[i] + 1; }

/* Sets the extents of the result, and the pads if auto_pad is given. */
static bool place_window(OnnxNode *n, Window *w, bool ceil_mode)
{
    const Type *x = in_type(n, 0);
    const char *mode = attr_str(n, "auto_pad", "NOTSET");
    bool same = strncmp(mode, "SAME_", 5) == 0, valid = strcmp(mode, "VALID") == 0;
    w->out.n = w->n;
    for (int i = 0; i < w->n; i++) {
        int64_t in = x->dim[2 + i], stride = w->strides.v[i], r = reach(w, i);
        int64_t *before = &w->pads.v[i], *after = &w->pads.v[w->n + i];
        if (same) {
            w->out.v[i] = ceil_div(in, stride);
            int64_t total = (w->out.v[i] - 1) * stride + r - in;
            total = total > 0 ? total : 0;
            *before = strcmp(mode, "SAME_LOWER") == 0 ? total - total / 2 : total / 2;
            *after = total - *before;
            continue;
        }
        if (valid)
            *before = *after = 0;
        int64_t room = in + *before + *after - r;
        bool cut_off = ceil_mode && room < 0 && room > -stride && r + room > 0;
        if (cut_off) { /* one window, cut to the data there is */
            w->kernel.v[i] = (r + room - 1) / w->dilations.v[i] + 1;
            room = 0;
        }
        if (room < 0)
            return fail(n->x->d, "the window is larger than dimension %d", 2 + i);
        w->out.v[i] = (ceil_mode ? ceil_div(room, stride) : room / stride) + 1;
        if (ceil_mode && (w->out.v[i] - 1) * stride >= in + *before)
            w->out.v[i]--; /* a window may not start in the padding behind the data */
    }
    return true;
}

bool read_conv(OnnxNode *n, int weights, ConvAttrs *at)
{
    Window w;
    TRY(read_window(n, in_type(n, weights), &w));
    TRY(place_window(n, &w, false));
    for (int i = 0; i < 2 * w.n; i++)
        if (w.pads.v[i] < 0)
            return refuse(n, "negative pads");
    *at = (ConvAttrs){
        .strides = w.strides, .pads = w.pads, .dilations = w.dilations, .group = attr_int(n, "group", 1)};
    return true;
}

/* Is there a bias other than constant zeros?  PyTorch's exporter writes some of these in a shape that no bias
 * has ([C, 2], in 3-D). */
static bool has_bias(const OnnxNode *n)
{
    if (!has_in(n, 2) || !graph_is_const(n->g, n->in[2]))
        return has_in(n, 2);
    Tensor t = graph_tensor(n->g, n->in[2]);
    return type_count(&t.type) == 0 || !tensor_is_uniform(&t) || tensor_f(&t, 0) != 0;
}

bool import_conv(OnnxNode *n)
{
    ConvAttrs at;
    TRY(read_conv(n, 1, &at));
    n->out[0] = build(n->g, OP_conv, NULL, has_bias(n) ? 3 : 2, n->in, &at);
    return n->out[0].i;
}

/* Transposed convolution is the gradient of a convolution with respect to its data: the
 * convolution that maps the (padded) result back to x.  Pads beyond what a convolution can
 * have, and output_padding, change the extent of the result only. */
static bool import_conv_transpose(OnnxNode *n)
{
    Window w;
    const Type *x = in_type(n, 0), *weight = in_type(n, 1);
    Ints extra, shape;
    int64_t group;
    bool has_shape = has_attr(n, "output_shape");
    TRY(read_window(n, weight, &w));
    TRY(attr_int_in(n, "group", 1, 1, weight->dim[0], &group));
    TRY(attr_ints_in(n, "output_padding", w.n, 0, 0, INT32_MAX, &extra));
    TRY(attr_ints(n, "output_shape", &shape));
    TRY(attr_ints_in(n, "output_shape", shape.n == w.n + 2 ? w.n + 2 : w.n, 0, 0, MAX_ELEMENTS, &shape));
    if (shape.n == w.n + 2)
        memmove(shape.v, shape.v + 2, (size_t)w.n * sizeof *shape.v);
    const char *mode = attr_str(n, "auto_pad", "NOTSET");
    bool same = strncmp(mode, "SAME_", 5) == 0;
    ConvAttrs at = {.strides = w.strides, .dilations = w.dilations, .group = group};
    at.shape = ints_of(x);
    at.shape.v[1] = weight->dim[1] * at.group;
    at.pads.n = 2 * w.n;
    Val y = n->in[0];
    for (int i = 0; i < w.n; i++) {
        int64_t full = (x->dim[2 + i] - 1) * w.strides.v[i] + reach(&w, i) + extra.v[i];
        int64_t before = w.pads.v[i], after = w.pads.v[w.n + i];
        if (has_shape || same) {
            int64_t want = has_shape ? shape.v[i] : x->dim[2 + i] * w.strides.v[i];
            int64_t total = full - want;
            before = strcmp(mode, "SAME_UPPER") == 0 ? total / 2 : total - total / 2;
            if (total < 0)
                before = 0;
            after = total - before;
        }
        at.pads.v[i] = before;
        at.pads.v[w.n + i] = after - extra.v[i];
        at.shape.v[2 + i] = full - before - after;
        if (before < 0 || at.shape.v[2 + i] < 1)
            return refuse(n, "pads do not fit the result");
    }
    /* A result that ends behind the last window is computed shorter and filled with
     * zeros. */
    PadAttrs fill_up = {.before.n = x->rank, .after.n = x->rank};
    bool any = false;
    for (int i = 0; i < w.n; i++)
        if (at.pads.v[w.n + i] < 0) {
            any = true;
            fill_up.after.v[2 + i] = -at.pads.v[w.n + i];
            at.shape.v[2 + i] += at.pads.v[w.n + i];
            at.pads.v[w.n + i] = 0;
        }
    y = build(n->g, OP_conv_bwd_data, NULL, 2, n->in, &at);
    if (any)
        y = build(n->g, OP_pad, NULL, 1, &y, &fill_up);
    if (has_in(n, 2))
        y = build2(n->g, OP_add, y, along_axis(n->g, n->in[2], 1, x->rank));
    n->out[0] = y;
    return y.i;
}

/* ---- pooling ------------------------------------------------------------ */

/* Does the window move over spatial dimension i? */
static bool slides(const PoolAttrs *at, int i)
{
    return at->kernel.v[i] != 1 || at->strides.v[i] != 1 || at->pads.v[i] || at->pads.v[at->kernel.n + i];
}

static int slid_dimensions(const PoolAttrs *at)
{
    int slid = 0;
    for (int i = 0; i < at->kernel.n; i++)
        slid += slides(at, i);
    return slid;
}

static bool read_pool(OnnxNode *n, PoolAttrs *at)
{
    Window w;
    TRY(read_window(n, NULL, &w));
    TRY(place_window(n, &w, attr_int(n, "ceil_mode", 0) != 0));
    *at = (PoolAttrs){
        .kernel = w.kernel, .strides = w.strides, .pads = w.pads, .dilations = w.dilations, .out = w.out};
    int slid = slid_dimensions(at);
    if (slid > MAX_SPATIAL)
        return refuse(n, "%d spatial dimensions, 1 to %d are supported", slid, MAX_SPATIAL);
    return true;
}

/* Pools where there are more dimensions than operators have: those that the window does not move over are
 * channels.  jax2onnx writes pooling of channels last so, and counts the batch among them. */
static Val pool_slid(Graph *g, Op op, Val x, const PoolAttrs *at)
{
    const Type t = *val_type(g, x);
    int perm[MAX_RANK], back[MAX_RANK], rank = 0, slid = slid_dimensions(at);
    int64_t flat[2 + MAX_SPATIAL] = {1, 1}, dim[MAX_RANK];
    PoolAttrs few = {.include_pad = at->include_pad};
    few.kernel.n = few.strides.n = few.dilations.n = few.out.n = slid;
    few.pads.n = 2 * slid;
    for (int d = 0; d < t.rank; d++)
        if (d < 2 || !slides(at, d - 2)) {
            flat[1] *= t.dim[d];
            perm[rank++] = d;
        }
    for (int i = 0, k = 0; i < at->kernel.n; i++)
        if (slides(at, i)) {
            few.kernel.v[k] = at->kernel.v[i];
            few.strides.v[k] = at->strides.v[i];
            few.dilations.v[k] = at->dilations.v[i];
            few.pads.v[k] = at->pads.v[i];
            few.pads.v[slid + k] = at->pads.v[at->kernel.n + i];
            few.out.v[k] = at->out.v[i];
            flat[2 + k++] = t.dim[2 + i];
            perm[rank++] = 2 + i;
        }
    if (slid == 0)
        return x;
    for (int k = 0; k < rank; k++) {
        dim[k] = perm[k] < 2 ? t.dim[perm[k]] : at->out.v[perm[k] - 2];
        back[perm[k]] = k;
    }
    Val rows = build_reshape(g, build_transpose(g, x, perm), 2 + slid, flat);
    return build_transpose(g, build_reshape(g, build(g, op, NULL, 1, &rows, &few), rank, dim), back);
}

/* Pooling is defined on floats; small integers go through f32 exactly. */
static Val pool(OnnxNode *n, Op op, Val x, const PoolAttrs *at)
{
    DType dt = val_type(n->g, x)->dt;
    Val f = dtype_is_float(dt) ? x : real_cast(n, x, DT_F32);
    Val y = at->kernel.n > MAX_SPATIAL ? pool_slid(n->g, op, f, at) : build(n->g, op, NULL, 1, &f, at);
    Val held = build_cast(n->g, y, dt);
    if (held.i && !dtype_is_float(dt) && op == OP_max_pool)
        set_real(n->x, held, y);
    return held;
}

/* Flat index (as ONNX counts it) of each maximum: the maximum over the window of the index
 * of an element, where the element equals the maximum; computed by unfolding the window. */
static Val unfold(OnnxNode *n, Val x, const PoolAttrs *at, int64_t fill_value);

static bool import_max_pool(OnnxNode *n)
{
    PoolAttrs at;
    TRY(read_pool(n, &at));
    n->out[0] = pool(n, OP_max_pool, n->in[0], &at);
    TRY(n->out[0].i);
    if (!has_out(n, 1))
        return true;
    Graph *g = n->g;
    const Type t = *in_type(n, 0);
    if (t.rank == MAX_RANK)
        return refuse(n, "indices of %d dimensions", t.rank);
    int64_t count = type_count(&t), order = attr_int(n, "storage_order", 0);
    Val index = build_reshape(g, iota(g, count), t.rank, t.dim);
    if (order && t.rank == 4) { /* column major inside an image */
        Type turned = t;
        turned.dim[2] = t.dim[3], turned.dim[3] = t.dim[2];
        index = build_transpose(g, build_reshape(g, iota(g, count), 4, turned.dim), (int[]){0, 1, 3, 2});
    }
    Val x = unfold(n, n->in[0], &at, INT64_MIN), where = unfold(n, index, &at, count);
    TRY(x.i && where.i);
    int last = val_type(g, x)->rank - 1;
    Val best = build_reduce(g, OP_reduce_max, x, 1u << last, true);
    Val first = build3(g, OP_where, build2(g, OP_equal, x, best), where,
                       scalar_like(g, where, (double)count));
    n->out[1] = build_reduce(g, OP_reduce_min, first, 1u << last, false);
    return n->out[1].i;
}

/* Unfolds x[N,C,s...] to [N,C,out...,window]: one strided slice per position in the window. */
static Val unfold(OnnxNode *n, Val x, const PoolAttrs *at, int64_t fill_value)
{
    enum { MOST_POSITIONS = 4096 };
    Graph *g = n->g;
    const Type t = *val_type(g, x);
    int sp = t.rank - 2;
    PadAttrs pad = {.before.n = t.rank, .after.n = t.rank, .value = (double)fill_value};
    int64_t positions = 1;
    for (int i = 0; i < sp; i++) {
        int64_t need = (at->out.v[i] - 1) * at->strides.v[i] + (at->kernel.v[i] - 1) * at->dilations.v[i] + 1;
        int64_t after = need - at->pads.v[i] - t.dim[2 + i];
        pad.before.v[2 + i] = at->pads.v[i];
        pad.after.v[2 + i] = after > 0 ? after : 0;
        if (at->kernel.v[i] > MOST_POSITIONS / positions) {
            refuse(n, "indices of so large a window");
            return (Val){0};
        }
        positions *= at->kernel.v[i];
    }
    if (fill_value == INT64_MIN)
        pad.value = dtype_is_float(t.dt) ? -__builtin_inf() : (double)INT32_MIN;
    Val padded = build(g, OP_pad, NULL, 1, &x, &pad);
    Val *part = NEW(n->x->a, Val, positions);
    for (int64_t p = 0; p < positions; p++) {
        SliceAttrs s = slice_all(&t);
        int64_t rest = p;
        for (int i = sp; i-- > 0; rest /= at->kernel.v[i]) {
            s.start.v[2 + i] = rest % at->kernel.v[i] * at->dilations.v[i];
            s.step.v[2 + i] = at->strides.v[i];
            s.size.v[2 + i] = at->out.v[i];
        }
        part[p] = insert_axis(g, build(g, OP_slice, NULL, 1, &padded, &s), t.rank);
    }
    return build_concat_many(g, (int)positions, part, t.rank);
}

/* Sums of windows, divided: averages times the size of the window.  Windows that hang over the end are
 * averages of fewer positions than they have: x is padded first. */
static Val sum_pool(OnnxNode *n, Val x, PoolAttrs at, double divisor)
{
    const Type t = *val_type(n->g, x);
    PadAttrs pad = {.before.n = t.rank, .after.n = t.rank};
    double size = 1;
    for (int i = 0; i < at.kernel.n; i++) {
        int64_t need = (at.out.v[i] - 1) * at.strides.v[i] + (at.kernel.v[i] - 1) * at.dilations.v[i] + 1;
        int64_t after = need - at.pads.v[i] - t.dim[2 + i];
        pad.before.v[2 + i] = at.pads.v[i];
        pad.after.v[2 + i] = after > 0 ? after : 0;
        at.pads.v[i] = at.pads.v[at.kernel.n + i] = 0;
        size *= (double)at.kernel.v[i];
    }
    x = build(n->g, OP_pad, NULL, 1, &x, &pad);
    return mul_scalar(n->g, pool(n, OP_avg_pool, x, &at), size / divisor);
}

/* torch.export's exporter leaves out divisor_override: the call has it. */
static bool import_average_pool(OnnxNode *n)
{
    PoolAttrs at;
    TRY(read_pool(n, &at));
    at.include_pad = attr_int(n, "count_include_pad", 0);
    double divisor =
        call_number(n, in_type(n, 0)->rank == 4 ? "avg_pool2d.default" : "avg_pool3d.default", 6, 0);
    n->out[0] = divisor ? sum_pool(n, n->in[0], at, divisor) : pool(n, OP_avg_pool, n->in[0], &at);
    return n->out[0].i;
}

/* (sum |x|^p)^(1/p) */
static bool import_lp_pool(OnnxNode *n)
{
    Graph *g = n->g;
    PoolAttrs at;
    TRY(read_pool(n, &at));
    double p = (double)attr_int(n, "p", 2);
    Val sum = sum_pool(n, with_consts(g, OP_powc, one(g, OP_abs, n->in[0]), p, 0), at, 1);
    n->out[0] = with_consts(g, OP_powc, sum, 1 / p, 0);
    return n->out[0].i;
}

static uint32_t spatial(const OnnxNode *n) { return ((1u << in_type(n, 0)->rank) - 1) & ~3u; }

static bool import_global_average_pool(OnnxNode *n)
{
    n->out[0] = mean_over(n->g, n->in[0], spatial(n), true);
    return n->out[0].i;
}

static bool import_global_max_pool(OnnxNode *n)
{
    n->out[0] = build_reduce(n->g, OP_reduce_max, n->in[0], spatial(n), true);
    return n->out[0].i;
}

static bool import_global_lp_pool(OnnxNode *n)
{
    Graph *g = n->g;
    double p = (double)attr_int(n, "p", 2);
    Val x = with_consts(g, OP_powc, one(g, OP_abs, n->in[0]), p, 0);
    x = build_reduce(g, OP_reduce_sum, x, spatial(n), true);
    n->out[0] = with_consts(g, OP_powc, x, 1 / p, 0);
    return n->out[0].i;
}

const OnnxOp onnx_conv[] = {
    {"AveragePool", 1, .import = import_average_pool},
    {"Conv", 1, .import = import_conv, .weights = 1 << 1 | 1 << 2},
    {"ConvTranspose", 1, .import = import_conv_transpose, .weights = 1 << 1 | 1 << 2},
    {"GlobalAveragePool", 1, .import = import_global_average_pool},
    {"GlobalLpPool", 2, .import = import_global_lp_pool},
    {"GlobalMaxPool", 1, .import = import_global_max_pool},
    {"LpPool", 2, .import = import_lp_pool},
    {"MaxPool", 1, .import = import_max_pool},
    {0},
};
