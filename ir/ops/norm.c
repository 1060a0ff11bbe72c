/* norm.c -- layer, RMS and batch normalization, with their gradients.
 *
 * The statistics that the gradient needs (mean, reciprocal deviation) are outputs of their own.
 * Gradients of scale and bias are sums over the other axes of pointwise products: ordinary
 * nodes, which fusion turns into one column kernel. */
#include "common.h"

static const AttrDef norm_attrs[] = {ATTR(NormAttrs, axis, AT_I64, -1), ATTR(NormAttrs, eps, AT_F64, 1e-5)};

#define MUL(a, b) k_op(k, OP_mul, (a), (b), 0)
#define ADD(a, b) k_op(k, OP_add, (a), (b), 0)
#define SUB(a, b) k_op(k, OP_sub, (a), (b), 0)

/* The normalised dimensions: axis and all behind it. */
static uint32_t norm_axes(const Graph *g, const Node *n, int data)
{
    int rank = in_type(g, n, data)->rank;
    return ((1u << rank) - 1) & ~((1u << ((const NormAttrs *)n->attr)->axis) - 1);
}

static int64_t masked_count(const Type *t, uint32_t mask)
{
    int64_t c = 1;
    for (int i = 0; i < t->rank; i++)
        c *= mask >> i & 1 ? t->dim[i] : 1;
    return c;
}

/* x's shape with the masked dimensions 1. */
static Type keep_ones(Type t, uint32_t mask)
{
    for (int i = 0; i < t.rank; i++)
        if (mask >> i & 1)
            t.dim[i] = 1;
    return t;
}

static bool norm_valid(const Graph *g, const Node *n, int data, Diag *d)
{
    const Type *x = in_type(g, n, data);
    TRY(dtype_is_float(x->dt) || fail(d, "%s: data is %s", node_def(n)->name, dtype_name[x->dt]));
    return axis_valid(n, ((const NormAttrs *)n->attr)->axis, x->rank, d);
}

/* The type of x's statistics over the masked dimensions. */
static Type stat_type(const Type *x, uint32_t mask)
{
    return type_with(keep_ones(*x, mask), dtype_sum(x->dt));
}

/* Is operand i absent, or broadcasts to x's shape? */
static bool broadcasts(const Graph *g, const Node *n, int i, const Type *x, Diag *d)
{
    Type t = *x;
    return !has_in(n, i) ||
           (has_type(g, n, i, x->dt) && type_broadcast(&t, in_type(g, n, i)) && type_same_shape(&t, x)) ||
           fail(d, "%s: scale or bias does not fit", node_def(n)->name);
}

static int mean_of(Kernel *k, int v, int64_t count)
{
    return MUL(k_reduce(k, K_SUM, v), k_const(k, KT_REAL, 1.0 / (double)count));
}

static int rstd_of(Kernel *k, int var, double eps)
{
    return k_op(k, OP_rsqrt, ADD(var, k_const(k, KT_REAL, eps)), 0, 0);
}

/* ---- layer_norm x [, scale, bias] -> y, mean, rstd ------------------------------------ */

static bool layer_norm_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    TRY(norm_valid(g, n, 0, d));
    out[0] = *in_type(g, n, 0);
    out[1] = out[2] = stat_type(out, norm_axes(g, n, 0));
    return broadcasts(g, n, 1, out, d) && broadcasts(g, n, 2, out, d);
}

static bool layer_norm_lower(Kernel *k, const Graph *g, const Node *n)
{
    const Type *t = in_type(g, n, 0);
    uint32_t axes = norm_axes(g, n, 0);
    int64_t count = masked_count(t, axes);
    k_space(k, t, axes);
    int x = k_load(k, 0, t), mean = mean_of(k, x, count), c = SUB(x, mean);
    int rstd = rstd_of(k, mean_of(k, MUL(c, c), count), ((const NormAttrs *)n->attr)->eps);
    int y = MUL(c, rstd);
    if (has_in(n, 1))
        y = MUL(y, k_load(k, 1, in_type(g, n, 1)));
    if (has_in(n, 2))
        y = ADD(y, k_load(k, 2, in_type(g, n, 2)));
    k_store(k, n->nin, y);
    k_store_keep(k, n->nin + 1, mean, axes);
    k_store_keep(k, n->nin + 2, rstd, axes);
    return true;
}

/* x - mean (absent: x), in the type of statistics */
static Val centred(Graph *g, Val x, Val mean, Val rstd)
{
    x = build_cast(g, x, val_type(g, rstd)->dt);
    return mean.i ? build2(g, OP_sub, x, mean) : x;
}

/* dy * (x - mean) * rstd */
static Val times_xhat(Graph *g, Val dy, Val x, Val mean, Val rstd)
{
    Val xhat = build2(g, OP_mul, centred(g, x, mean, rstd), rstd);
    return build2(g, OP_mul, build_cast(g, dy, val_type(g, rstd)->dt), xhat);
}

/* Adds what the statistics, if they are used as results, contribute to dx:
 * d mean = dmean / count;  d rstd = -drstd * rstd^3 * (x - mean) / count  (mean absent: 0) */
static void statistics_grad(Grad *gr, const Node *n, Val mean, int rstd)
{
    Graph *g = gr->g;
    const Type *x = val_type(g, n->in[0]);
    Val inv = build_scalar(g, dtype_sum(x->dt), 1.0 / (double)masked_count(x, norm_axes(g, n, 0)));
    Val dmean = mean.i ? grad_out(gr, n, 1) : (Val){0}, drstd = grad_out(gr, n, rstd);
    if (dmean.i)
        grad_add(gr, n->in[0], build_expand(g, build2(g, OP_mul, dmean, inv), x->rank, x->dim));
    if (!drstd.i)
        return;
    Val c = centred(g, n->in[0], mean, n->out[rstd]);
    Val slope = build2(g, OP_mul, build1(g, OP_cube, n->out[rstd]), inv);
    slope = build1(g, OP_neg, build2(g, OP_mul, drstd, slope));
    grad_add(gr, n->in[0], build2(g, OP_mul, c, slope));
}

static bool layer_norm_grad(Grad *gr, const Node *n)
{
    Val dy = grad_out(gr, n, 0), scale = has_in(n, 1) ? n->in[1] : (Val){0};
    if (grad_wants(gr, n, 0))
        statistics_grad(gr, n, n->out[1], 2);
    if (!dy.i)
        return true;
    if (grad_wants(gr, n, 0)) {
        Val in[] = {dy, n->in[0], n->out[1], n->out[2], scale};
        grad_add(gr, n->in[0], build(gr->g, OP_layer_norm_bwd, NULL, scale.i ? 5 : 4, in, n->attr));
    }
    if (grad_wants(gr, n, 1))
        grad_add(gr, scale, times_xhat(gr->g, dy, n->in[0], n->out[1], n->out[2]));
    if (has_in(n, 2))
        grad_add(gr, n->in[2], dy);
    return true;
}

const OpDef op_layer_norm = {.name = "layer_norm", .min_in = 1, .max_in = 3, .nout = 3, .in = IN_SINGLE,
                             ATTRS(norm_attrs, NormAttrs), .infer = layer_norm_infer, .grad = layer_norm_grad,
                             .lower = layer_norm_lower};

/* layer_norm_bwd dy, x, mean, rstd [, scale] -> dx
 * with h = dy * scale: dx = rstd * (h - mean(h) - xhat * mean(h * xhat)) */
static bool norm_bwd_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    int nstat = n->op == OP_layer_norm_bwd ? 2 : 1;
    TRY(norm_valid(g, n, 1, d));
    *out = *in_type(g, n, 1);
    TRY(operand_is(g, n, 0, out, d));
    Type stat = stat_type(out, norm_axes(g, n, 1));
    for (int i = 2; i < 2 + nstat; i++)
        TRY(operand_is(g, n, i, &stat, d));
    return broadcasts(g, n, 2 + nstat, out, d);
}

static bool layer_norm_bwd_lower(Kernel *k, const Graph *g, const Node *n)
{
    const Type *t = in_type(g, n, 1);
    uint32_t axes = norm_axes(g, n, 0);
    int64_t count = masked_count(t, axes);
    k_space(k, t, axes);
    int h = k_load(k, 0, t), x = k_load(k, 1, t);
    int mean = k_load(k, 2, in_type(g, n, 2)), rstd = k_load(k, 3, in_type(g, n, 3));
    int xhat = MUL(SUB(x, mean), rstd);
    if (has_in(n, 4))
        h = MUL(h, k_load(k, 4, in_type(g, n, 4)));
    int c1 = mean_of(k, h, count), c2 = mean_of(k, MUL(h, xhat), count);
    k_store(k, n->nin, MUL(rstd, SUB(SUB(h, c1), MUL(xhat, c2))));
    return true;
}

/* y does not depend on x's mean, and so dx sums up to zero. */
static bool layer_norm_bwd_zero_sums(const Graph *g, const Node *n, int k, uint32_t axes, bool *zero)
{
    uint32_t rows = norm_axes(g, n, 0);
    (void)zero;
    return (axes & rows) == rows && k == 0;
}

const OpDef op_layer_norm_bwd = {.name = "layer_norm_bwd", .min_in = 4, .max_in = 5, .nout = 1,
                                 ATTRS(norm_attrs, NormAttrs), .infer = norm_bwd_infer,
                                 .lower = layer_norm_bwd_lower, .zero_sums = layer_norm_bwd_zero_sums};

/* ---- rms_norm x [, scale] -> y, rstd ------------------------------------------------------ */

static bool rms_norm_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    TRY(layer_norm_infer(g, n, out, d));
    out[2] = (Type){0};
    return true;
}

static bool rms_norm_lower(Kernel *k, const Graph *g, const Node *n)
{
    const Type *t = in_type(g, n, 0);
    uint32_t axes = norm_axes(g, n, 0);
    k_space(k, t, axes);
    int x = k_load(k, 0, t);
    int ms = mean_of(k, MUL(x, x), masked_count(t, axes));
    int rstd = rstd_of(k, ms, ((const NormAttrs *)n->attr)->eps), y = MUL(x, rstd);
    if (has_in(n, 1))
        y = MUL(y, k_load(k, 1, in_type(g, n, 1)));
    k_store(k, n->nin, y);
    k_store_keep(k, n->nin + 1, rstd, axes);
    return true;
}

static bool rms_norm_grad(Grad *gr, const Node *n)
{
    Val dy = grad_out(gr, n, 0), scale = has_in(n, 1) ? n->in[1] : (Val){0};
    if (grad_wants(gr, n, 0))
        statistics_grad(gr, n, (Val){0}, 1);
    if (!dy.i)
        return true;
    if (grad_wants(gr, n, 0)) {
        Val in[] = {dy, n->in[0], n->out[1], scale};
        grad_add(gr, n->in[0], build(gr->g, OP_rms_norm_bwd, NULL, scale.i ? 4 : 3, in, n->attr));
    }
    if (grad_wants(gr, n, 1))
        grad_add(gr, scale, times_xhat(gr->g, dy, n->in[0], (Val){0}, n->out[1]));
    return true;
}

const OpDef op_rms_norm = {.name = "rms_norm", .min_in = 1, .max_in = 2, .nout = 2, .in = IN_SINGLE,
                           ATTRS(norm_attrs, NormAttrs), .infer = rms_norm_infer, .grad = rms_norm_grad,
                           .lower = rms_norm_lower};

/* rms_norm_bwd dy, x, rstd [, scale] -> dx = rstd * (h - xhat * mean(h * xhat)) */
static bool rms_norm_bwd_lower(Kernel *k, const Graph *g, const Node *n)
{
    const Type *t = in_type(g, n, 1);
    uint32_t axes = norm_axes(g, n, 0);
    k_space(k, t, axes);
    int h = k_load(k, 0, t), rstd = k_load(k, 2, in_type(g, n, 2));
    int xhat = MUL(k_load(k, 1, t), rstd);
    if (has_in(n, 3))
        h = MUL(h, k_load(k, 3, in_type(g, n, 3)));
    int c = mean_of(k, MUL(h, xhat), masked_count(t, axes));
    k_store(k, n->nin, MUL(rstd, SUB(h, MUL(xhat, c))));
    return true;
}

const OpDef op_rms_norm_bwd = {.name = "rms_norm_bwd", .min_in = 3, .max_in = 4, .nout = 1,
                               ATTRS(norm_attrs, NormAttrs), .infer = norm_bwd_infer,
                               .lower = rms_norm_bwd_lower};

/* ---- batch_norm x, scale, bias -> y, mean, var, rstd -------------------------------------- */

static const AttrDef batch_attrs[] = {ATTR(NormAttrs, axis, AT_I64, 1), ATTR(NormAttrs, eps, AT_F64, 1e-5)};

static int channel_axis(const Node *n) { return (int)((const NormAttrs *)n->attr)->axis; }

/* All dimensions but the channel. */
static uint32_t batch_axes(const Node *n, const Type *t)
{
    return ((1u << t->rank) - 1) & ~(1u << channel_axis(n));
}

static int load_channel(Kernel *k, const Node *n, int operand)
{
    int64_t stride[K_DIMS] = {0};
    stride[channel_axis(n)] = 1;
    return k_load_at(k, operand, 0, stride);
}

/* Checks operand `data` and the `count` ones behind it, which have one element per channel; the last `stats`
 * of them are statistics.  Sets c, the type of a statistic. */
static bool channels_valid(const Graph *g, const Node *n, int data, int count, int stats, Type *c, Diag *d)
{
    const Type *x = in_type(g, n, data);
    if (x->rank < 2 || !dtype_is_float(x->dt))
        return fail(d, "%s: data of rank %d, %s", node_def(n)->name, x->rank, dtype_name[x->dt]);
    TRY(axis_valid(n, channel_axis(n), x->rank, d));
    *c = type_make(dtype_sum(x->dt), 1, &x->dim[channel_axis(n)]);
    for (int i = data + 1; i <= data + count; i++) {
        bool given = i <= data + count - stats && in_type(g, n, i)->dt == x->dt;
        Type want = given ? type_with(*c, x->dt) : *c;
        TRY(operand_is(g, n, i, &want, d));
    }
    return true;
}

static bool batch_norm_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    out[0] = *in_type(g, n, 0);
    TRY(channels_valid(g, n, 0, 2, 0, &out[1], d));
    out[2] = out[3] = out[1];
    return true;
}

static bool batch_norm_lower(Kernel *k, const Graph *g, const Node *n)
{
    const Type *t = in_type(g, n, 0);
    uint32_t axes = batch_axes(n, t);
    int64_t count = masked_count(t, axes);
    k_space(k, t, axes);
    int x = k_load_rounded(k, 0, t), mean = mean_of(k, x, count), c = SUB(x, mean);
    int var = MUL(k_reduce(k, K_DEVIATION, x), k_const(k, KT_REAL, 1.0 / (double)count));
    int rstd = rstd_of(k, var, ((const NormAttrs *)n->attr)->eps);
    k_store(k, 3, ADD(MUL(MUL(c, rstd), load_channel(k, n, 1)), load_channel(k, n, 2)));
    k_store_keep(k, 4, mean, axes);
    k_store_keep(k, 5, var, axes);
    k_store_keep(k, 6, rstd, axes);
    return true;
}

static bool batch_norm_grad(Grad *gr, const Node *n)
{
    Val in[] = {grad_out(gr, n, 0), n->in[0], n->in[1], n->out[1], n->out[3]}, out[3];
    TRY(only_first_output(gr, n));
    TRY(build_n(gr->g, OP_batch_norm_bwd, NULL, 5, in, n->attr, 3, out));
    for (int i = 0; i < 3; i++)
        if (grad_wants(gr, n, i)) {
            const Type *t = val_type(gr->g, n->in[i]);
            grad_add(gr, n->in[i], build_reshape(gr->g, out[i], t->rank, t->dim));
        }
    return true;
}

const OpDef op_batch_norm = {.name = "batch_norm", .min_in = 3, .max_in = 3, .nout = 4,
                             .wide_in = 1 << 1 | 1 << 2,
                             ATTRS(batch_attrs, NormAttrs), .infer = batch_norm_infer,
                             .grad = batch_norm_grad, .lower = batch_norm_lower};

/* batch_norm_bwd dy, x, scale, mean, rstd -> dx, dscale, dbias */
static bool batch_norm_bwd_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    out[0] = *in_type(g, n, 1);
    TRY(channels_valid(g, n, 1, 3, 2, &out[1], d));
    out[2] = out[1];
    return operand_is(g, n, 0, out, d);
}

static bool batch_norm_bwd_lower(Kernel *k, const Graph *g, const Node *n)
{
    const Type *t = in_type(g, n, 1);
    uint32_t axes = batch_axes(n, t);
    int inv = (k_space(k, t, axes), k_const(k, KT_REAL, 1.0 / (double)masked_count(t, axes)));
    int dy = k_load_rounded(k, 0, t), x = k_load(k, 1, t), rstd = load_channel(k, n, 4);
    int xhat = MUL(SUB(x, load_channel(k, n, 3)), rstd);
    int s1 = k_reduce(k, K_SUM, dy), s2 = k_reduce(k, K_SUM, MUL(dy, xhat));
    int centered = SUB(SUB(dy, MUL(s1, inv)), MUL(xhat, MUL(s2, inv)));
    k_store(k, 5, MUL(MUL(load_channel(k, n, 2), rstd), centered));
    k_store_keep(k, 6, s2, axes);
    k_store_keep(k, 7, s1, axes);
    return true;
}

static bool batch_norm_bwd_zero_sums(const Graph *g, const Node *n, int k, uint32_t axes, bool *zero)
{
    uint32_t images = batch_axes(n, val_type(g, n->out[0]));
    (void)zero;
    return (axes & images) == images && k == 0;
}

const OpDef op_batch_norm_bwd = {.name = "batch_norm_bwd", .min_in = 5, .max_in = 5, .nout = 3,
                                 ATTRS(batch_attrs, NormAttrs), .infer = batch_norm_bwd_infer,
                                 .lower = batch_norm_bwd_lower, .zero_sums = batch_norm_bwd_zero_sums};
