/* conv.c -- convolution and its two gradients, direct loops over up to three spatial
 * dimensions.
 *
 * The three are partial derivatives of one trilinear form  sum g * w * x,  so each one's
 * gradient is made of the other two.  Rows are computed CHUNK outputs at a time in
 * registers; the range of outputs whose window stays inside is computed, not tested.  All but
 * f64 have library routines; the loops serve that, the reference and back ends without
 * a library. */
#include "layout.h"
#include "../kernel_math.h"

static const AttrDef conv_attrs[] = {
    ATTR(ConvAttrs, strides, AT_INTS, 0),   ATTR(ConvAttrs, pads, AT_INTS, 0),
    ATTR(ConvAttrs, dilations, AT_INTS, 0), ATTR(ConvAttrs, group, AT_I64, 1),
    ATTR(ConvAttrs, shape, AT_INTS, 0),     ATTR(ConvAttrs, out, AT_DTYPE, DT_NONE),
    ATTR(ConvAttrs, tf32, AT_I64, 0),       ATTR(ConvAttrs, channels_last, AT_I64, 0),
};

/* ---- inference ----------------------------------------------------------------------- */

/* The dimension of x's channels. */
static int channel_dim(const Node *n, const Type *x)
{
    return ((const ConvAttrs *)n->attr)->channels_last ? x->rank - 1 : 1;
}

/* t with dimension `from` moved to `to`. */
static Type moved_dim(Type t, int from, int to)
{
    int64_t v = t.dim[from];
    for (int i = from; i != to; i += to > from ? 1 : -1)
        t.dim[i] = t.dim[to > from ? i + 1 : i - 1];
    t.dim[to] = v;
    return t;
}

/* Checks x (`data`) and w, and sets the window and the type of y. */
static bool conv_shape(const Node *n, const Type *data, const Type *w, Window *win, Type *y, Diag *d)
{
    const ConvAttrs *at = n->attr;
    int sp = data->rank - 2;
    if (w->rank != data->rank || sp < 1)
        return fail(d, "%s: data of rank %d, weights of rank %d", node_def(n)->name, data->rank, w->rank);
    Type first = moved_dim(*data, channel_dim(n, data), 1), *x = &first;
    Ints kernel = {.n = sp};
    memcpy(kernel.v, w->dim + 2, (size_t)sp * sizeof *kernel.v);
    TRY(window_make(win, n, x, (WindowAttrs){&kernel, &at->strides, &at->pads, &at->dilations}, d));
    if (at->group < 1 || x->dim[1] % at->group || w->dim[0] % at->group || x->dim[1] / at->group != w->dim[1])
        return fail(d, "%s: %lld channels, weights [%lld,%lld,..], group %lld", node_def(n)->name,
                    (long long)x->dim[1], (long long)w->dim[0], (long long)w->dim[1], (long long)at->group);
    *y = *x;
    y->dim[1] = w->dim[0];
    for (int i = 0; i < sp; i++) {
        int k = 3 - sp + i;
        int64_t room = win->in[k] + win->pad[k] + win->pad_end[k] -
                       win->dilation[k] * (win->kernel[k] - 1) - 1;
        y->dim[2 + i] = room < 0 ? 0 : room / win->stride[k] + 1;
    }
    window_set_out(win, sp, y->dim + 2);
    *y = moved_dim(*y, 1, channel_dim(n, y));
    return true;
}

static bool same_float(const Graph *g, const Node *n, Diag *d)
{
    DType dt = in_type(g, n, 0)->dt;
    for (int i = 0; i < n->nin; i++)
        if (has_in(n, i) && (in_type(g, n, i)->dt != dt || !dtype_is_float(dt)))
            return fail(d, "%s: operand %d is %s", node_def(n)->name, i, dtype_name[in_type(g, n, i)->dt]);
    return true;
}

static bool conv_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    Window win;
    TRY(same_float(g, n, d));
    TRY(conv_shape(n, in_type(g, n, 0), in_type(g, n, 1), &win, out, d));
    if (has_in(n, 2) && (in_type(g, n, 2)->rank != 1 || in_type(g, n, 2)->dim[0] != in_type(g, n, 1)->dim[0]))
        return fail(d, "conv: bias must have %lld elements", (long long)in_type(g, n, 1)->dim[0]);
    return sum_infer(n, ((const ConvAttrs *)n->attr)->out, out, d);
}

static bool conv_bwd_data_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    Window win;
    Type y;
    TRY(same_float(g, n, d));
    TRY(shape_type(n, in_type(g, n, 0)->dt, &((const ConvAttrs *)n->attr)->shape, out, d));
    TRY(conv_shape(n, out, in_type(g, n, 1), &win, &y, d));
    return operand_is(g, n, 0, &y, d) && sum_infer(n, ((const ConvAttrs *)n->attr)->out, out, d);
}

static bool conv_bwd_weights_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    Window win;
    Type y;
    TRY(same_float(g, n, d));
    TRY(shape_type(n, in_type(g, n, 0)->dt, &((const ConvAttrs *)n->attr)->shape, out, d));
    TRY(conv_shape(n, in_type(g, n, 0), out, &win, &y, d));
    return operand_is(g, n, 1, &y, d) && sum_infer(n, ((const ConvAttrs *)n->attr)->out, out, d);
}

/* ---- kernels ----------------------------------------------------------------------- */

/* Parameters 0..17: the window; 18 C, 19 M, 20 C/group, 21 M/group, 22 N; 23: channels last.
 * Output o of a row reads column o * stride + at, with at = k * dilation - pad.  Places of a channel of x are
 * XP elements apart, channels of a place XC; those of the result YP and YC. */

/* clang-format off */
#define CONV_SIZES \
    const int64_t D = p[0], H = p[1], W = p[2], OD = p[3], OH = p[4], OW = p[5], S = p[11]; \
    const int64_t C = p[18], M = p[19], CG = p[20]; \
    const int64_t XP = p[23] ? C : 1, XC = p[23] ? 1 : D * H * W; \
    const int64_t YP = p[23] ? M : 1, YC = p[23] ? 1 : OD * OH * OW;
/* Position of item i of the result, a row of a channel. */
#define CONV_RESULT \
    CONV_SIZES \
    const int64_t oh = i % OH, od = i / OH % OD, m = i / (OH * OD) % M; \
    const int64_t n = i / (OH * OD * M); \
    const int64_t to = n * M * OD * OH * OW + m * YC + (od * OH + oh) * OW * YP;

KERNEL_BEHIND(conv, CONV_RESULT,
    for (int64_t first = 0; first < OW; first += 32) {
        const int64_t last = FMIN(OW, first + 32);
        REAL acc[32];
        for (int64_t o = 0; o < 32; o++)
            acc[o] = 0;
        for (int64_t c = 0; c < CG; c++)
            for (int64_t kd = 0; kd < p[6]; kd++) {
                const int64_t z = od * p[9] + kd * p[15] - p[12];
                if (z < 0 || z >= D)
                    continue;
                for (int64_t kh = 0; kh < p[7]; kh++) {
                    const int64_t y = oh * p[10] + kh * p[16] - p[13];
                    if (y < 0 || y >= H)
                        continue;
                    const int64_t row = n * C * D * H * W + (m / p[21] * CG + c) * XC + (z * H + y) * W * XP;
                    const int64_t wrow = ((m * CG + c) * p[6] + kd) * p[7] + kh;
                    for (int64_t kw = 0; kw < p[8]; kw++) {
                        const int64_t at = kw * p[17] - p[14];
                        const int64_t lo = FMAX(first, at < 0 ? (S - 1 - at) / S : 0);
                        const int64_t hi = FMIN(last, W > at ? (W - at + S - 1) / S : 0);
                        const REAL w = F(1, wrow * p[8] + kw);
                        for (int64_t o = lo; o < hi; o++)
                            acc[o - first] += w * F(0, row + (at + o * S) * XP);
                    }
                }
            }
        for (int64_t o = first; o < last; o++)
            SETF(2, to + o * YP, acc[o - first]);
    }
)

KERNEL_BEHIND(conv_bias, CONV_RESULT,
    for (int64_t first = 0; first < OW; first += 32) {
        const int64_t last = FMIN(OW, first + 32);
        REAL acc[32];
        for (int64_t o = 0; o < 32; o++)
            acc[o] = F(2, m);
        for (int64_t c = 0; c < CG; c++)
            for (int64_t kd = 0; kd < p[6]; kd++) {
                const int64_t z = od * p[9] + kd * p[15] - p[12];
                if (z < 0 || z >= D)
                    continue;
                for (int64_t kh = 0; kh < p[7]; kh++) {
                    const int64_t y = oh * p[10] + kh * p[16] - p[13];
                    if (y < 0 || y >= H)
                        continue;
                    const int64_t row = n * C * D * H * W + (m / p[21] * CG + c) * XC + (z * H + y) * W * XP;
                    const int64_t wrow = ((m * CG + c) * p[6] + kd) * p[7] + kh;
                    for (int64_t kw = 0; kw < p[8]; kw++) {
                        const int64_t at = kw * p[17] - p[14];
                        const int64_t lo = FMAX(first, at < 0 ? (S - 1 - at) / S : 0);
                        const int64_t hi = FMIN(last, W > at ? (W - at + S - 1) / S : 0);
                        const REAL w = F(1, wrow * p[8] + kw);
                        for (int64_t o = lo; o < hi; o++)
                            acc[o - first] += w * F(0, row + (at + o * S) * XP);
                    }
                }
            }
        for (int64_t o = first; o < last; o++)
            SETF(3, to + o * YP, acc[o - first]);
    }
)

KERNEL_BEHIND(conv_bwd_data, CONV_SIZES,
    const int64_t MG = p[21];
    const int64_t y = i % H, z = i / H % D, c = i / (H * D) % C, n = i / (H * D * C);
    const int64_t to = n * C * D * H * W + c * XC + (z * H + y) * W * XP;
    for (int64_t first = 0; first < W; first += 32) {
        const int64_t last = FMIN(W, first + 32);
        REAL acc[32];
        for (int64_t x = 0; x < 32; x++)
            acc[x] = 0;
        for (int64_t m = c / CG * MG; m < (c / CG + 1) * MG; m++)
            for (int64_t kd = 0; kd < p[6]; kd++) {
                const int64_t sz = z + p[12] - kd * p[15];
                if (sz < 0 || sz % p[9] || sz / p[9] >= OD)
                    continue;
                for (int64_t kh = 0; kh < p[7]; kh++) {
                    const int64_t sy = y + p[13] - kh * p[16];
                    if (sy < 0 || sy % p[10] || sy / p[10] >= OH)
                        continue;
                    const int64_t line = sz / p[9] * OH + sy / p[10];
                    const int64_t row = n * M * OD * OH * OW + m * YC + line * OW * YP;
                    const int64_t wrow = ((m * CG + c % CG) * p[6] + kd) * p[7] + kh;
                    for (int64_t kw = 0; kw < p[8]; kw++) {
                        const int64_t at = kw * p[17] - p[14];
                        const int64_t lo = first > at ? (first - at + S - 1) / S : 0;
                        const int64_t hi =
                            FMIN(OW, last > at ? (last - at + S - 1) / S : 0);
                        const REAL w = F(1, wrow * p[8] + kw);
                        for (int64_t o = lo; o < hi; o++)
                            acc[o * S + at - first] += w * F(0, row + o * YP);
                    }
                }
            }
        for (int64_t x = first; x < last; x++)
            SETF(2, to + x * XP, acc[x - first]);
    }
)

KERNEL_BEHIND(conv_bwd_weights, CONV_SIZES,
    const int64_t m = i / CG, c = m / p[21] * CG + i % CG;
    for (int64_t k = 0; k < p[6] * p[7] * p[8]; k++) {
        const int64_t kw = k % p[8], kh = k / p[8] % p[7], kd = k / (p[8] * p[7]);
        const int64_t at = kw * p[17] - p[14];
        const int64_t lo = at < 0 ? (S - 1 - at) / S : 0;
        const int64_t hi = FMIN(OW, W > at ? (W - at + S - 1) / S : 0);
        REAL lane[8];
        for (int64_t j = 0; j < 8; j++)
            lane[j] = 0;
        for (int64_t n = 0; n < p[22]; n++)
            for (int64_t od = 0; od < OD; od++) {
                const int64_t z = od * p[9] + kd * p[15] - p[12];
                if (z < 0 || z >= D)
                    continue;
                for (int64_t oh = 0; oh < OH; oh++) {
                    const int64_t y = oh * p[10] + kh * p[16] - p[13];
                    if (y < 0 || y >= H)
                        continue;
                    const int64_t row = n * C * D * H * W + c * XC + ((z * H + y) * W + at) * XP;
                    const int64_t grow = n * M * OD * OH * OW + m * YC + (od * OH + oh) * OW * YP;
                    int64_t o = lo;
                    for (; o + 8 <= hi; o += 8)
                        for (int64_t j = 0; j < 8; j++)
                            lane[j] += F(1, grow + (o + j) * YP) * F(0, row + (o + j) * S * XP);
                    for (; o < hi; o++)
                        lane[0] += F(1, grow + o * YP) * F(0, row + o * S * XP);
                }
            }
        for (int64_t j = 4; j > 0; j /= 2)
            for (int64_t l = 0; l < j; l++)
                lane[l] += lane[l + j];
        SETF(2, i * p[6] * p[7] * p[8] + k, lane[0]);
    }
)
/* clang-format on */

/* Sets all parameters of the convolution y = x * w; items and body are up to the caller. */
static bool conv_setup(Kernel *k, const Node *n, const Type *x, const Type *w, LibOp lib)
{
    Window win;
    Type y;
    Diag d = {0};
    TRY(conv_shape(n, x, w, &win, &y, &d));
    int64_t group = ((const ConvAttrs *)n->attr)->group;
    k->tf32 = ((const ConvAttrs *)n->attr)->tf32 != 0;
    window_params(k, &win);
    k_param(k, x->dim[channel_dim(n, x)]);
    k_param(k, w->dim[0]);
    k_param(k, w->dim[1]);
    k_param(k, w->dim[0] / group);
    k_param(k, x->dim[0]);
    k_param(k, ((const ConvAttrs *)n->attr)->channels_last != 0);
    k->flops = 2.0 * (double)type_count(&y) * (double)dims_product(w, 1, w->rank);
    if (x->dt != DT_F64)
        k->lib = lib;
    return true;
}

/* Number of items: one per row of a channel along the last spatial dimension. */
static int64_t rows_of(const Node *n, const Type *t)
{
    Type first = moved_dim(*t, channel_dim(n, t), 1);
    return dims_product(&first, 0, first.rank - 1);
}

static bool conv_lower(Kernel *k, const Graph *g, const Node *n)
{
    TRY(conv_setup(k, n, in_type(g, n, 0), in_type(g, n, 1), LIB_CONV));
    k_body(k, n->nin > 2 ? &conv_bias_body : &conv_body, rows_of(n, out_type(g, n, 0)));
    return true;
}

static bool conv_bwd_data_lower(Kernel *k, const Graph *g, const Node *n)
{
    TRY(conv_setup(k, n, out_type(g, n, 0), in_type(g, n, 1), LIB_CONV_BWD_DATA));
    k_body(k, &conv_bwd_data_body, rows_of(n, out_type(g, n, 0)));
    return true;
}

static bool conv_bwd_weights_lower(Kernel *k, const Graph *g, const Node *n)
{
    const Type *w = out_type(g, n, 0);
    TRY(conv_setup(k, n, in_type(g, n, 0), w, LIB_CONV_BWD_WEIGHTS));
    k_body(k, &conv_bwd_weights_body, w->dim[0] * w->dim[1]);
    return true;
}

/* ---- as standard operators -------------------------------------------------------------- */

/* If channels are last here, moves them in front of the places, or behind them again. */
static OnnxVal layout_onnx(OnnxNodes *o, const Node *n, OnnxVal v, int rank, bool front)
{
    int perm[MAX_RANK];
    bool last = ((const ConvAttrs *)n->attr)->channels_last != 0;
    for (int i = 0; i < rank; i++)
        perm[i] = !last || i == 0 ? i : front ? (i == 1 ? rank - 1 : i - 1) : i == rank - 1 ? 1 : i + 1;
    return onnx_transpose(o, v, rank, perm);
}

static void window_onnx(OnnxNodes *o, const Ints *strides, const Ints *dilations, int64_t group)
{
    onnx_attr_ints(o, "strides", strides->v, strides->n);
    onnx_attr_ints(o, "dilations", dilations->v, dilations->n);
    onnx_attr(o, "group", group);
}

static bool conv_onnx(OnnxNodes *o, const Graph *g, const Node *n)
{
    const ConvAttrs *at = n->attr;
    int rank = in_type(g, n, 0)->rank;
    OnnxVal x = layout_onnx(o, n, onnx_in(o, 0), rank, true);
    OnnxVal y = onnx_op3(o, "Conv", x, onnx_in(o, 1), onnx_in(o, 2));
    window_onnx(o, &at->strides, &at->dilations, at->group);
    onnx_attr_ints(o, "pads", at->pads.v, at->pads.n);
    onnx_out(o, 0, layout_onnx(o, n, y, rank, false));
    return true;
}

static bool conv_bwd_data_onnx(OnnxNodes *o, const Graph *g, const Node *n)
{
    const ConvAttrs *at = n->attr;
    const Type *y = in_type(g, n, 0), *w = in_type(g, n, 1);
    int rank = y->rank;
    Type gt = moved_dim(*y, channel_dim(n, y), 1), xt = moved_dim(*out_type(g, n, 0), channel_dim(n, y), 1);
    OnnxVal dy = layout_onnx(o, n, onnx_in(o, 0), rank, true);
    OnnxVal x = onnx_op2(o, "ConvTranspose", dy, onnx_in(o, 1));
    window_onnx(o, &at->strides, &at->dilations, at->group);
    onnx_spread(o, rank - 2, gt.dim + 2, xt.dim + 2, w->dim + 2, at->strides.v, at->dilations.v, at->pads.v);
    onnx_out(o, 0, layout_onnx(o, n, x, rank, false));
    return true;
}

/* The gradient is a convolution whose channels are the images: x as [C/group, group * N, ..] by dy as
 * [M, N, ..], strides and dilations exchanged.  -> [C/group, M, k..]; k may be too large, and is cut. */
static bool conv_bwd_weights_onnx(OnnxNodes *o, const Graph *g, const Node *n)
{
    const ConvAttrs *at = n->attr;
    const Type *w = out_type(g, n, 0);
    int rank = w->rank, sp = rank - 2, swap[MAX_RANK], perm[MAX_RANK + 1];
    Type x = moved_dim(*in_type(g, n, 0), channel_dim(n, in_type(g, n, 0)), 1);
    int64_t group = at->group, dim[MAX_RANK + 1] = {x.dim[0], group, w->dim[1]};
    for (int i = 0; i < rank; i++) {
        swap[i] = i < 2 ? 1 - i : i;
        perm[i + 1] = i + 1;
    }
    memcpy(dim + 3, x.dim + 2, (size_t)sp * sizeof *dim);
    perm[0] = 2, perm[1] = 1, perm[2] = 0;
    OnnxVal images = onnx_reshape(o, layout_onnx(o, n, onnx_in(o, 0), rank, true), rank + 1, dim);
    images = onnx_transpose(o, images, rank + 1, perm);
    dim[0] = w->dim[1], dim[1] = group * x.dim[0];
    memcpy(dim + 2, x.dim + 2, (size_t)sp * sizeof *dim);
    images = onnx_reshape(o, images, rank, dim);
    OnnxVal dy = layout_onnx(o, n, onnx_in(o, 1), rank, true);
    OnnxVal dw = onnx_op2(o, "Conv", images, onnx_transpose(o, dy, rank, swap));
    window_onnx(o, &at->dilations, &at->strides, group);
    onnx_attr_ints(o, "pads", at->pads.v, at->pads.n);
    for (int i = 2; i < rank; i++)
        dw = onnx_slice(o, dw, i, 0, w->dim[i], 1);
    onnx_out(o, 0, onnx_transpose(o, dw, rank, swap));
    return true;
}

enum { PARAM_IMAGES = 22 };

/* Rows are output channels; terms of the sum are images. */
static bool conv_bwd_weights_split(const Graph *g, const Node *n, SplitBy by, SplitAxis *axis)
{
    const Type *x = in_type(g, n, 0), *w = out_type(g, n, 0);
    if (by == SPLIT_ROWS) {
        axis->extent = w->dim[0];
        axis->in[1] = channel_dim(n, x);
        return ((const ConvAttrs *)n->attr)->group == 1;
    }
    *axis = (SplitAxis){.extent = x->dim[0], .param = PARAM_IMAGES};
    return !dtype_is_half(w->dt);
}

/* ---- gradients ----------------------------------------------------------------------- */

static Val conv_forward(Grad *gr, const Node *n, Val x, Val w)
{
    ConvAttrs at = *(const ConvAttrs *)n->attr;
    at.out = DT_NONE;
    return build(gr->g, OP_conv, NULL, 2, (Val[]){x, w}, &at);
}

static Val data_gradient(Grad *gr, const Node *n, Val dy, Val w, Val x)
{
    ConvAttrs at = *(const ConvAttrs *)n->attr;
    at.shape = ints_of(val_type(gr->g, x));
    at.out = DT_NONE;
    return build(gr->g, OP_conv_bwd_data, NULL, 2, (Val[]){dy, w}, &at);
}

/* Is the window one position on one image, so that x and y are matrices of channels by places? */
static bool is_product(const ConvAttrs *at, const Type *x, const Type *w)
{
    return !at->channels_last && at->group == 1 && x->dim[0] == 1 && dims_product(w, 2, w->rank) == 1 &&
           ints_are(&at->strides, 1) && ints_are(&at->pads, 0);
}

static Val channel_rows(Graph *g, Val v)
{
    const Type *t = val_type(g, v);
    return build_reshape(g, v, 2, (int64_t[]){t->dim[1], dims_product(t, 2, t->rank)});
}

static Val weights_gradient(Grad *gr, const Node *n, Val x, Val dy, Val w)
{
    Graph *g = gr->g;
    const Type tw = *val_type(g, w);
    DType dt = grad_type(g, w), out = dt == val_type(g, x)->dt ? DT_NONE : dt;
    if (is_product(n->attr, val_type(g, x), &tw)) {
        Val b = channel_rows(g, x), a = channel_rows(g, dy);
        MatmulAttrs at = {.tb = 1, .out = out, .tf32 = ((const ConvAttrs *)n->attr)->tf32};
        Val dw = build(g, OP_matmul, NULL, 2, (Val[]){a, b}, &at);
        return build_reshape(g, dw, tw.rank, tw.dim);
    }
    ConvAttrs at = *(const ConvAttrs *)n->attr;
    at.shape = ints_of(&tw);
    at.out = out;
    return build(gr->g, OP_conv_bwd_weights, NULL, 2, (Val[]){x, dy}, &at);
}

static bool conv_grad(Grad *gr, const Node *n)
{
    Val x = n->in[0], w = n->in[1], dy = build_cast(gr->g, grad_out(gr, n, 0), val_type(gr->g, x)->dt);
    if (grad_wants(gr, n, 0))
        grad_add(gr, x, data_gradient(gr, n, dy, w, x));
    if (grad_wants(gr, n, 1))
        grad_add(gr, w, weights_gradient(gr, n, x, dy, w));
    if (grad_wants(gr, n, 2)) {
        const Type *t = val_type(gr->g, dy);
        uint32_t axes = ((1u << t->rank) - 1) & ~(1u << channel_dim(n, t));
        dy = build_cast(gr->g, dy, grad_type(gr->g, n->in[2]));
        grad_add(gr, n->in[2], build_reduce(gr->g, OP_reduce_sum, dy, axes, false));
    }
    return true;
}

static bool conv_bwd_data_grad(Grad *gr, const Node *n)
{
    Val dx = grad_out(gr, n, 0), y = n->in[0], w = n->in[1];
    if (grad_wants(gr, n, 0))
        grad_add(gr, y, conv_forward(gr, n, dx, w));
    if (grad_wants(gr, n, 1))
        grad_add(gr, w, weights_gradient(gr, n, dx, y, w));
    return true;
}

static bool conv_bwd_weights_grad(Grad *gr, const Node *n)
{
    Val dw = grad_out(gr, n, 0), x = n->in[0], y = n->in[1];
    if (grad_wants(gr, n, 0))
        grad_add(gr, x, data_gradient(gr, n, y, dw, x));
    if (grad_wants(gr, n, 1))
        grad_add(gr, y, conv_forward(gr, n, x, dw));
    return true;
}

#define CONV_OP(id, most, splits)                                                                            \
    const OpDef op_##id = {.name = #id, .min_in = 2, .max_in = most, .nout = 1, .in = IN_HALF,               \
                           ATTRS(conv_attrs, ConvAttrs), .infer = id##_infer, .grad = id##_grad,             \
                           .lower = id##_lower, .onnx = id##_onnx, .split = splits}
CONV_OP(conv, 3, NULL);
CONV_OP(conv_bwd_data, 2, NULL);
CONV_OP(conv_bwd_weights, 2, conv_bwd_weights_split);
