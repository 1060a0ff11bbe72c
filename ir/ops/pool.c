/* pool.c -- maximum and average pooling over up to three spatial dimensions, and gradients.
 *
 * The extents of the pooled side are an attribute (ceil_mode and auto_pad are decided at
 * import), so a window may lie partly or wholly outside.  max_pool leaves where in a window its
 * first maximum is, which gets the gradient, as in PyTorch; a NaN is a maximum.  So the data need not
 * be kept.  avg_pool is linear: the gradients of it and of avg_pool_bwd are each other. */
#include "layout.h"
#include "../kernel_math.h"

static const AttrDef pool_attrs[] = {
    ATTR(PoolAttrs, kernel, AT_INTS, 0), ATTR(PoolAttrs, strides, AT_INTS, 0),
    ATTR(PoolAttrs, pads, AT_INTS, 0),   ATTR(PoolAttrs, dilations, AT_INTS, 0),
    ATTR(PoolAttrs, out, AT_INTS, 0),    ATTR(PoolAttrs, include_pad, AT_I64, 0),
    ATTR(PoolAttrs, shape, AT_INTS, 0),
};

/* Sets the window and the type of the pooled side for x. */
static bool pool_shape(const Node *n, const Type *x, Window *w, Type *y, Diag *d)
{
    const PoolAttrs *at = n->attr;
    int sp = x->rank - 2;
    TRY(dtype_is_float(x->dt) || fail(d, "%s: data is %s", node_def(n)->name, dtype_name[x->dt]));
    TRY(window_make(w, n, x, (WindowAttrs){&at->kernel, &at->strides, &at->pads, &at->dilations}, d));
    TRY(ints_within(&at->out, sp, 0, "output extents", n, d));
    for (int i = 0; i < 3; i++)
        if (w->dilation[i] * (w->kernel[i] - 1) - (w->stride[i] - 1) >=
            w->in[i] + w->pad[i] + w->pad_end[i]) /* ceil_mode may lean out by stride - 1 */
            return fail(d, "%s: the window is larger than the padded data", node_def(n)->name);
    *y = *x;
    memcpy(y->dim + 2, at->out.v, (size_t)sp * sizeof *y->dim);
    window_set_out(w, sp, at->out.v);
    return true;
}

static bool avg_pool_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    Window w;
    return pool_shape(n, in_type(g, n, 0), &w, out, d);
}

/* The type of a place in a window; the number of its places stands for nowhere. */
static DType place_type(const Window *w)
{
    return w->kernel[0] * w->kernel[1] * w->kernel[2] <= UINT8_MAX ? DT_U8 : DT_I32;
}

static bool max_pool_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    Window w;
    TRY(pool_shape(n, in_type(g, n, 0), &w, &out[0], d));
    out[1] = out[0];
    out[1].dt = place_type(&w);
    return true;
}

static bool max_pool_bwd_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    Window w;
    Type y;
    TRY(shape_type(n, in_type(g, n, 1)->dt, &((const PoolAttrs *)n->attr)->shape, out, d));
    TRY(pool_shape(n, out, &w, &y, d));
    TRY(operand_is(g, n, 1, &y, d));
    y.dt = place_type(&w);
    return operand_is(g, n, 0, &y, d);
}

static bool avg_pool_bwd_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    Window w;
    Type y;
    TRY(shape_type(n, in_type(g, n, 0)->dt, &((const PoolAttrs *)n->attr)->shape, out, d));
    TRY(pool_shape(n, out, &w, &y, d));
    return operand_is(g, n, 0, &y, d);
}

/* ---- kernels ----------------------------------------------------------------------- */

/* Parameters 0..17: the window.  Averages divide by the number of window positions in
 * [p[18+d], p[21+d]) along each dimension d: the data, or the data and its padding.  max_pool_bwd's
 * planes come in p[24] parts of p[25] rows. */

/* clang-format off */
KERNEL(max_pool,
    const int64_t D = p[0], H = p[1], W = p[2], OD = p[3], OH = p[4], OW = p[5], S = p[11];
    const int64_t oh = i % OH, od = i / OH % OD, plane = i / (OH * OD);
    const int64_t z0 = od * p[9] - p[12], y0 = oh * p[10] - p[13], nowhere = p[6] * p[7] * p[8];
    const int near = 31 * S + (p[8] - 1) * p[17] < 128; /* 32 windows lie in as many columns */
    for (int64_t first = 0; first < OW; first += 32) {
        const int64_t n = FMIN(OW - first, 32), from = first * S - p[14];
        const int64_t end = FMIN((n - 1) * S + (p[8] - 1) * p[17] + 1, W - from);
        REAL best[32];
        int32_t tap[32]; /* which place in the window, -1: none yet */
        for (int64_t o = 0; o < 32; o++) {
            best[o] = -INF_;
            tap[o] = -1;
        }
        for (int64_t c0 = near ? 0 : FMAX(0, -from); c0 < end; c0 += 128) { /* down, then along the window */
            const int64_t x0 = from + c0, m = FMIN(end - c0, 128);
            REAL column[128];
            int32_t top[128]; /* which row of the window, -1: none */
            for (int64_t c = 0; c < 128; c++) {
                column[c] = -INF_;
                top[c] = -1;
            }
            for (int64_t k = 0; k < p[6] * p[7]; k++) {
                const int64_t z = z0 + k / p[7] * p[15], y = y0 + k % p[7] * p[16];
                const int64_t row = ((plane * D + z) * H + y) * W + x0;
                if (z < 0 || z >= D || y < 0 || y >= H)
                    continue;
                for (int64_t c = FMAX(0, -x0); c < m; c++) {
                    const REAL v = F(0, row + c), b = column[c];
                    const int more = (top[c] < 0) | (!(v <= b) & (b == b));
                    column[c] = more ? v : b;
                    top[c] = more ? (int32_t)k : top[c];
                }
            }
            for (int64_t kw = 0; kw < p[8]; kw++) {
                const int64_t at = kw * p[17] - c0;
                const int64_t lo = near || at >= 0 ? 0 : (S - 1 - at) / S;
                const int64_t hi = near ? 32 : FMIN(n, m > at ? (m - at + S - 1) / S : 0);
                for (int64_t o = lo; o < hi; o++) {
                    const REAL v = column[o * S + at], b = best[o];
                    const int32_t down = top[o * S + at], had = tap[o];
                    const int32_t k = down * (int32_t)p[8] + (int32_t)kw;
                    const int same = (v == b) | ((v != v) & (b != b)), larger = !(v <= b) & (b == b);
                    const int more = (down >= 0) & ((had < 0) | larger | (same & (k < had)));
                    best[o] = more ? v : b;
                    tap[o] = more ? k : had;
                }
            }
        }
        for (int64_t o = 0; o < n; o++)
            SETF(1, i * OW + first + o, best[o]);
        for (int64_t o = 0; o < n; o++)
            SETI(2, i * OW + first + o, tap[o] < 0 ? nowhere : tap[o]);
    }
)

KERNEL(max_pool_bwd,
    const int64_t D = p[0], H = p[1], W = p[2], OD = p[3], OH = p[4], OW = p[5], S = p[11];
    const int64_t image = i / p[24], plane = image * D * H * W, taps = p[6] * p[7] * p[8];
    const int64_t begin = plane + i % p[24] * p[25] * W; /* first element of the rows that the item makes */
    const int64_t end = FMIN(begin + p[25] * W, plane + D * H * W);
    int64_t far[256]; /* distance of a window's places from its first one, in elements */
    for (int64_t k = 0; k < FMIN(taps, 256); k++)
        far[k] = (k / (p[7] * p[8]) * p[15] * H + k / p[8] % p[7] * p[16]) * W + k % p[8] * p[17];
    for (int64_t j = begin; j < end; j++)
        SETF(2, j, 0);
    for (int64_t r = 0; r < OD * OH; r++) {
        const int64_t z0 = r / OH * p[9] - p[12], y0 = r % OH * p[10] - p[13];
        const int64_t corner = plane + (z0 * H + y0) * W - p[14], row = (image * OD * OH + r) * OW;
        const int64_t down = (p[6] - 1) * p[15] * H + (p[7] - 1) * p[16] + 1;
        if (corner + p[14] >= end || corner + p[14] + down * W <= begin) /* no window sees those rows */
            continue;
        for (int64_t o = 0; o < OW; o++) {
            const int64_t k = I(0, row + o);
            if (k >= taps)
                continue;
            const int64_t away = k < 256 ? far[k]
                : (k / (p[7] * p[8]) * p[15] * H + k / p[8] % p[7] * p[16]) * W + k % p[8] * p[17];
            const int64_t j = corner + o * S + away;
            if (j >= begin && j < end)
                SETF(2, j, F(2, j) + F(1, row + o));
        }
    }
)

KERNEL(avg_pool,
    const int64_t D = p[0], H = p[1], W = p[2], OD = p[3], OH = p[4], OW = p[5], S = p[11];
    const int64_t oh = i % OH, od = i / OH % OD, plane = i / (OH * OD);
    int64_t rows = 0;
    for (int64_t kd = 0; kd < p[6]; kd++)
        for (int64_t kh = 0; kh < p[7]; kh++) {
            const int64_t z = od * p[9] + kd * p[15] - p[12];
            const int64_t y = oh * p[10] + kh * p[16] - p[13];
            rows += z >= p[18] && z < p[21] && y >= p[19] && y < p[22];
        }
    for (int64_t first = 0; first < OW; first += 32) {
        const int64_t last = FMIN(OW, first + 32);
        REAL acc[32], count[32];
        for (int64_t o = 0; o < 32; o++)
            acc[o] = count[o] = 0;
        for (int64_t kw = 0; kw < p[8]; kw++) {
            const int64_t at = kw * p[17] - p[14];
            for (int64_t o = first; o < last; o++)
                count[o - first] += o * S + at >= p[20] && o * S + at < p[23];
        }
        for (int64_t kd = 0; kd < p[6]; kd++) {
            const int64_t z = od * p[9] + kd * p[15] - p[12];
            if (z < 0 || z >= D)
                continue;
            for (int64_t kh = 0; kh < p[7]; kh++) {
                const int64_t y = oh * p[10] + kh * p[16] - p[13];
                if (y < 0 || y >= H)
                    continue;
                for (int64_t kw = 0; kw < p[8]; kw++) {
                    const int64_t at = kw * p[17] - p[14];
                    const int64_t lo = FMAX(first, at < 0 ? (S - 1 - at) / S : 0);
                    const int64_t hi = FMIN(last, W > at ? (W - at + S - 1) / S : 0);
                    const int64_t row = ((plane * D + z) * H + y) * W + at;
                    for (int64_t o = lo; o < hi; o++)
                        acc[o - first] += F(0, row + o * S);
                }
            }
        }
        for (int64_t o = first; o < last; o++) {
            const REAL n = R(rows) * count[o - first];
            SETF(1, i * OW + o, n > 0 ? acc[o - first] / n : R(0));
        }
    }
)

KERNEL(avg_pool_bwd,
    const int64_t D = p[0], H = p[1], W = p[2], OD = p[3], OH = p[4], OW = p[5], S = p[11];
    const int64_t y = i % H, z = i / H % D, plane = i / (H * D);
    for (int64_t first = 0; first < W; first += 32) {
        const int64_t last = FMIN(W, first + 32);
        REAL acc[32];
        for (int64_t x = 0; x < 32; x++)
            acc[x] = 0;
        for (int64_t kd = 0; kd < p[6]; kd++) {
            const int64_t sz = z + p[12] - kd * p[15], od = sz / p[9];
            if (sz < 0 || sz % p[9] || od >= OD)
                continue;
            int64_t nd = 0;
            for (int64_t k = 0; k < p[6]; k++) {
                const int64_t at = od * p[9] + k * p[15] - p[12];
                nd += at >= p[18] && at < p[21];
            }
            for (int64_t kh = 0; kh < p[7]; kh++) {
                const int64_t sy = y + p[13] - kh * p[16], oh = sy / p[10];
                if (sy < 0 || sy % p[10] || oh >= OH)
                    continue;
                int64_t nh = 0;
                for (int64_t k = 0; k < p[7]; k++) {
                    const int64_t at = oh * p[10] + k * p[16] - p[13];
                    nh += at >= p[19] && at < p[22];
                }
                for (int64_t kw = 0; kw < p[8]; kw++) {
                    const int64_t at = kw * p[17] - p[14];
                    const int64_t lo = first > at ? (first - at + S - 1) / S : 0;
                    const int64_t hi = FMIN(OW, last > at ? (last - at + S - 1) / S : 0);
                    for (int64_t o = lo; o < hi; o++) {
                        int64_t nw = 0;
                        for (int64_t k = 0; k < p[8]; k++) {
                            const int64_t x = o * S + k * p[17] - p[14];
                            nw += x >= p[20] && x < p[23];
                        }
                        acc[o * S + at - first] +=
                            F(0, ((plane * OD + od) * OH + oh) * OW + o) / R(nd * nh * nw);
                    }
                }
            }
        }
        for (int64_t x = first; x < last; x++)
            SETF(1, i * W + x, acc[x - first]);
    }
)
/* clang-format on */

static bool pool_setup(Kernel *k, const Node *n, const Type *x)
{
    Window w;
    Type y;
    Diag d = {0};
    TRY(pool_shape(n, x, &w, &y, &d));
    bool padded = ((const PoolAttrs *)n->attr)->include_pad != 0;
    k->flops = (double)(type_count(&y) * w.kernel[0] * w.kernel[1] * w.kernel[2]);
    window_params(k, &w);
    for (int i = 0; i < 3; i++)
        k_param(k, padded ? -w.pad[i] : 0);
    for (int i = 0; i < 3; i++)
        k_param(k, w.in[i] + (padded ? w.pad_end[i] : 0));
    return true;
}

static int64_t rows_of(const Type *t) { return dims_product(t, 0, t->rank - 1); }

static bool max_pool_lower(Kernel *k, const Graph *g, const Node *n)
{
    k_body(k, &max_pool_body, rows_of(out_type(g, n, 0)));
    return pool_setup(k, n, in_type(g, n, 0));
}

static bool max_pool_bwd_lower(Kernel *k, const Graph *g, const Node *n)
{
    enum { PLANES = 64, WINDOWS = 8 }; /* enough planes for all threads; least height of a part in windows */
    const Type *x = out_type(g, n, 0);
    TRY(pool_setup(k, n, x));
    int d = k->p[0] > 1 ? 0 : 1; /* the dimension that is cut */
    int64_t planes = x->dim[0] * x->dim[1], parts = 1;
    int64_t high = WINDOWS * ((k->p[6 + d] - 1) * k->p[15 + d] + 1);
    while (planes < PLANES && k->p[d] >= 2 * parts * high)
        parts *= 2;
    k_param(k, parts);
    k_param(k, ceil_div(k->p[d], parts) * (d == 0 ? k->p[1] : 1));
    k_body(k, &max_pool_bwd_body, planes * parts);
    return true;
}

/* ---- as standard operators -------------------------------------------------------------- */

/* How far the window can move along spatial dimension i. */
static int64_t window_room(const PoolAttrs *at, const Type *x, int i)
{
    return x->dim[2 + i] + at->pads.v[i] + at->pads.v[at->kernel.n + i] -
           at->dilations.v[i] * (at->kernel.v[i] - 1) - 1;
}

/* Sets the attributes of the last node, a pooling of x; false: ONNX would give the result other extents. */
static bool window_onnx(OnnxNodes *o, const Node *n, const Type *x)
{
    const PoolAttrs *at = n->attr;
    int64_t up = 0;
    int sp = at->kernel.n;
    for (int i = 0; i < sp; i++)
        up |= at->out.v[i] != window_room(at, x, i) / at->strides.v[i] + 1;
    onnx_attr_ints(o, "kernel_shape", at->kernel.v, sp);
    onnx_attr_ints(o, "strides", at->strides.v, sp);
    onnx_attr_ints(o, "pads", at->pads.v, 2 * sp);
    onnx_attr_ints(o, "dilations", at->dilations.v, sp);
    onnx_attr(o, "ceil_mode", up);
    for (int i = 0; i < sp && up; i++)
        if (at->out.v[i] != (window_room(at, x, i) + at->strides.v[i] - 1) / at->strides.v[i] + 1)
            return onnx_refuse(o, "its extents are rounded down here and up there");
    return true;
}

/* Where the windows begin along spatial dimension d.  ONNX gives the position of a maximum in all of x, here
 * it is a place in its window: they are converted by coordinates along the spatial dimensions. */
static OnnxVal origins(OnnxNodes *o, const PoolAttrs *at, const Type *x, int d)
{
    int64_t dim[MAX_RANK] = {1, 1, 1, 1, 1};
    dim[2 + d] = at->out.v[d];
    Tensor t = {type_make(DT_I64, x->rank, dim),
                arena_alloc(onnx_arena(o), (size_t)at->out.v[d] + 1, sizeof(int64_t))};
    for (int64_t i = 0; i < at->out.v[d]; i++)
        tensor_set_i(&t, i, i * at->strides.v[d] - at->pads.v[d]);
    return onnx_table(o, &t);
}

static OnnxVal with_number(OnnxNodes *o, const char *op, OnnxVal v, int64_t n)
{
    return onnx_op2(o, op, v, onnx_scalar(o, DT_I64, (double)n));
}

static int64_t inner_count(const int64_t *extent, int sp, int d)
{
    int64_t n = 1;
    for (int i = d + 1; i < sp; i++)
        n *= extent[i];
    return n;
}

/* Coordinate d of a position: v / (the extents behind d) mod extent. */
static OnnxVal coordinate(OnnxNodes *o, OnnxVal v, const int64_t *extent, int sp, int d)
{
    return with_number(o, "Mod", with_number(o, "Div", v, inner_count(extent, sp, d)), extent[d]);
}

static bool max_pool_onnx(OnnxNodes *o, const Graph *g, const Node *n)
{
    const Type *x = in_type(g, n, 0);
    const PoolAttrs *at = n->attr;
    int sp = at->kernel.n;
    OnnxVal y = onnx_op1(o, "MaxPool", onnx_in(o, 0));
    TRY(window_onnx(o, n, x));
    OnnxVal index = onnx_second(o), place = {0};
    for (int d = 0; d < sp; d++) {
        OnnxVal k = onnx_op2(o, "Sub", coordinate(o, index, x->dim + 2, sp, d), origins(o, at, x, d));
        k = with_number(o, "Div", k, at->dilations.v[d]);
        place = d ? onnx_op2(o, "Add", with_number(o, "Mul", place, at->kernel.v[d]), k) : k;
    }
    onnx_out(o, 0, y);
    onnx_out(o, 1, place);
    return true;
}

static bool max_pool_bwd_onnx(OnnxNodes *o, const Graph *g, const Node *n)
{
    const Type *x = out_type(g, n, 0);
    const PoolAttrs *at = n->attr;
    int sp = at->kernel.n;
    int64_t count = type_count(x), flat = -1, dim[MAX_RANK] = {x->dim[0], x->dim[1], 1, 1, 1};
    OnnxVal place = onnx_cast(o, onnx_in(o, 0), DT_I64), dy = onnx_in(o, 1);
    Tensor plane = {type_make(DT_I64, x->rank, dim),
                    arena_alloc(onnx_arena(o), (size_t)(dim[0] * dim[1]) + 1, sizeof(int64_t))};
    for (int64_t i = 0; i < dim[0] * dim[1]; i++)
        tensor_set_i(&plane, i, i);
    OnnxVal index = onnx_table(o, &plane);
    for (int d = 0; d < sp; d++) {
        OnnxVal k = with_number(o, "Mul", coordinate(o, place, at->kernel.v, sp, d), at->dilations.v[d]);
        index = onnx_op2(o, "Add", with_number(o, "Mul", index, x->dim[2 + d]),
                         onnx_op2(o, "Add", k, origins(o, at, x, d)));
    }
    OnnxVal dx = onnx_op3(o, "ScatterElements", onnx_zeros(o, onnx_type(o, dy), 1, &count),
                          onnx_reshape(o, index, 1, &flat), onnx_reshape(o, dy, 1, &flat));
    onnx_attr_text(o, "reduction", "add");
    onnx_out(o, 0, onnx_reshape(o, dx, x->rank, x->dim));
    return true;
}

static bool avg_pool_onnx(OnnxNodes *o, const Graph *g, const Node *n)
{
    OnnxVal y = onnx_op1(o, "AveragePool", onnx_in(o, 0));
    TRY(window_onnx(o, n, in_type(g, n, 0)));
    onnx_attr(o, "count_include_pad", ((const PoolAttrs *)n->attr)->include_pad);
    onnx_out(o, 0, y);
    return true;
}

/* Number of window positions of each result that count, along spatial dimension d. */
static Tensor counts(OnnxNodes *o, const PoolAttrs *at, const Type *x, int d, DType dt)
{
    int64_t n = at->out.v[d], dim[MAX_RANK] = {1, 1, 1, 1, 1}, sp = at->kernel.n;
    dim[2 + d] = n;
    Tensor t = {type_make(dt, x->rank, dim), arena_alloc(onnx_arena(o), (size_t)n + 1, sizeof(double))};
    int64_t low = at->include_pad ? -at->pads.v[d] : 0;
    int64_t high = x->dim[2 + d] + (at->include_pad ? at->pads.v[sp + d] : 0);
    for (int64_t i = 0; i < n; i++) {
        int64_t c = 0;
        for (int64_t k = 0; k < at->kernel.v[d]; k++) {
            int64_t p = i * at->strides.v[d] + k * at->dilations.v[d] - at->pads.v[d];
            c += p >= low && p < high;
        }
        tensor_set_f(&t, i, (double)(c ? c : 1));
    }
    return t;
}

/* Each result's share of the gradient is spread by a transposed convolution with ones. */
static bool avg_pool_bwd_onnx(OnnxNodes *o, const Graph *g, const Node *n)
{
    const PoolAttrs *at = n->attr;
    const Type *x = out_type(g, n, 0);
    OnnxVal dy = onnx_in(o, 0);
    DType dt = onnx_type(o, dy);
    int64_t ones[MAX_RANK] = {x->dim[1], 1};
    memcpy(ones + 2, at->kernel.v, (size_t)at->kernel.n * sizeof *ones);
    for (int d = 0; d < at->kernel.n; d++) {
        Tensor t = counts(o, at, x, d, dt);
        dy = onnx_op2(o, "Div", dy, onnx_table(o, &t));
    }
    OnnxVal w = onnx_expand(o, onnx_scalar(o, dt, 1), x->rank, ones);
    OnnxVal dx = onnx_op2(o, "ConvTranspose", dy, w);
    onnx_attr_ints(o, "strides", at->strides.v, at->strides.n);
    onnx_attr_ints(o, "dilations", at->dilations.v, at->dilations.n);
    onnx_attr(o, "group", x->dim[1]);
    onnx_spread(o, at->kernel.n, at->out.v, x->dim + 2, at->kernel.v, at->strides.v, at->dilations.v,
                at->pads.v);
    onnx_out(o, 0, dx);
    return true;
}

static bool avg_pool_lower(Kernel *k, const Graph *g, const Node *n)
{
    k_body(k, &avg_pool_body, rows_of(out_type(g, n, 0)));
    return pool_setup(k, n, in_type(g, n, 0));
}

static bool avg_pool_bwd_lower(Kernel *k, const Graph *g, const Node *n)
{
    k_body(k, &avg_pool_bwd_body, rows_of(out_type(g, n, 0)));
    return pool_setup(k, n, out_type(g, n, 0));
}

static bool max_pool_grad(Grad *gr, const Node *n)
{
    PoolAttrs at = *(const PoolAttrs *)n->attr;
    Val in[] = {n->out[1], grad_out(gr, n, 0)};
    at.shape = ints_of(val_type(gr->g, n->in[0]));
    grad_add(gr, n->in[0], build(gr->g, OP_max_pool_bwd, NULL, 2, in, &at));
    return true;
}

static bool avg_pool_grad(Grad *gr, const Node *n)
{
    PoolAttrs at = *(const PoolAttrs *)n->attr;
    Val dy = grad_out(gr, n, 0);
    at.shape = ints_of(val_type(gr->g, n->in[0]));
    grad_add(gr, n->in[0], build(gr->g, OP_avg_pool_bwd, NULL, 1, &dy, &at));
    return true;
}

static bool avg_pool_bwd_grad(Grad *gr, const Node *n)
{
    Val dx = grad_out(gr, n, 0);
    grad_add(gr, n->in[0], build(gr->g, OP_avg_pool, NULL, 1, &dx, n->attr));
    return true;
}

#define POOL_OP(id, n, results, grad_fn)                                                                     \
    const OpDef op_##id = {.name = #id, .min_in = n, .max_in = n, .nout = results,                           \
                           ATTRS(pool_attrs, PoolAttrs), .infer = id##_infer, .grad = grad_fn,               \
                           .lower = id##_lower, .onnx = id##_onnx}
POOL_OP(max_pool, 1, 2, max_pool_grad);
POOL_OP(max_pool_bwd, 2, 1, NULL);
POOL_OP(avg_pool, 1, 1, avg_pool_grad);
POOL_OP(avg_pool_bwd, 1, 1, avg_pool_bwd_grad);
