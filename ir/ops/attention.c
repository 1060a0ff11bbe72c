/* attention.c -- scaled dot-product attention without the matrix of scores, and its gradients.
 *
 * Forward, per row r with scores s_c = cap tanh(scale * q_r k_c / cap), masked, plus bias:
 * o_r = sum_c p_c v_c with p_c = exp(s_c - top_r) * inv_r, the largest score and the inverse of the
 * sum of exponentials, by a running maximum (Milakov and Gimelshein, "Online normalizer
 * calculation for softmax", 2018).  Both are kept: log(sum) + top, one number, would lose the sum
 * where a mask of -3e38 makes all scores of a row large.
 * Backward from o, top and inv alone (Dao et al., FlashAttention, 2022): p is recomputed,
 *
 *     dv_c = sum_r p_rc do_r     dp_rc = do_r v_c     ds_rc = p_rc (dp_rc - do_r o_r)
 *     dq_r = sum_c ds_rc k_c scale tanh'    dk_c = sum_r ds_rc q_r scale tanh'    dbias = sum ds
 *
 * and dropout multiplies p in dv, and dp, by keep / (1 - p_drop).  The bodies below are one row,
 * column or element per item; CPUs run the blocked routine of codegen/prelude/attention.h. */
#include "attention.h"
#include "../kernel_math.h"

const int attention_place[ATTENTION_LAYOUTS][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}, {1, 2, 0, 3}};

static const AttrDef attention_attrs[] = {
    ATTR(AttentionAttrs, scale, AT_F64, 1),       ATTR(AttentionAttrs, fill, AT_F64, -INFINITY),
    ATTR(AttentionAttrs, cap, AT_F64, 0),         ATTR(AttentionAttrs, hides, AT_I64, HIDES_ALL),
    ATTR(AttentionAttrs, causal, AT_I64, 0),      ATTR(AttentionAttrs, diagonal, AT_I64, 0),
    ATTR(AttentionAttrs, window, AT_I64, 0),      ATTR(AttentionAttrs, guard, AT_I64, 0),
    ATTR(AttentionAttrs, p, AT_F64, 0),           ATTR(AttentionAttrs, key, AT_I64, 0),
    ATTR(AttentionAttrs, out, AT_DTYPE, DT_NONE), ATTR(AttentionAttrs, layout, AT_INTS, 0),
    ATTR(AttentionAttrs, groups, AT_I64, 0),      ATTR(AttentionAttrs, packed, AT_INTS, 0)};

/* ---- shapes ----------------------------------------------------------------------------- */

typedef struct {
    int64_t batch, heads, groups, rows, cols, size;
} Shape;

static int64_t layout_of(const AttentionAttrs *at, int operand)
{
    return operand < at->layout.n ? at->layout.v[operand] : 0;
}

static Type operand_type(const AttentionAttrs *at, int operand, DType dt, const int64_t dim[4])
{
    int64_t d[4];
    for (int i = 0; i < 4; i++)
        d[attention_place[layout_of(at, operand)][i]] = dim[i];
    return type_make(dt, 4, d);
}

static int64_t extent(const AttentionAttrs *at, int operand, const Type *t, int i)
{
    return t->dim[attention_place[layout_of(at, operand)][i]];
}

/* Does operand i, if there is one, broadcast to the scores?  Of type dt, or that of its sums. */
static bool fits_scores(const Graph *g, const Node *n, int i, DType dt, const Shape *s, Diag *d)
{
    Type scores = type_make(dt, 4, (int64_t[]){s->batch, s->heads, s->rows, s->cols});
    Type wide = scores;
    if (!has_in(n, i) || (has_type(g, n, i, dt) && type_broadcast(&wide, in_type(g, n, i)) &&
                          type_equal(&wide, &scores)))
        return true;
    return fail(d, "%s: a mask or bias does not fit the scores", node_def(n)->name);
}

/* First head and step of operand i of packed ones. */
static int64_t packed_of(const AttentionAttrs *at, int i, int what)
{
    return at->packed.n ? at->packed.v[2 * i + what] : what;
}

bool attention_packs(const AttentionAttrs *at, int64_t heads)
{
    enum { MOST = 1 << 16 };
    const int64_t *part = at->packed.v, g = at->groups;
    bool packs = at->packed.n == 6 && heads <= MOST && g > 0 && g <= (heads - 1) / 2;
    const int64_t n[] = {packs ? heads - 2 * g : 0, g, g};
    for (int i = 0; i < 3 && packs; i++)
        packs = part[2 * i] >= 0 && part[2 * i] < heads && part[2 * i + 1] > 0 && part[2 * i + 1] <= heads;
    for (int64_t h = 0; h < heads && packs; h++) {
        int uses = 0;
        for (int i = 0; i < 3; i++) {
            int64_t from = h - part[2 * i], step = part[2 * i + 1];
            uses += from >= 0 && from % step == 0 && from / step < n[i];
        }
        packs = uses == 1;
    }
    return packs;
}

/* Of packed operands. */
static bool packed_shape(const Node *n, int first, Shape *s, Diag *d)
{
    const AttentionAttrs *at = n->attr;
    for (int i = 1; i < 3; i++)
        if (n->in[first + i].i != n->in[first].i || layout_of(at, i) != layout_of(at, 0))
            return fail(d, "%s: packed operands are one value in one layout", node_def(n)->name);
    if (!attention_packs(at, s->heads))
        return fail(d, "%s: not every head of the packed operand has one use", node_def(n)->name);
    s->heads -= 2 * at->groups;
    s->groups = at->groups;
    return true;
}

/* q stands at operand `first`, k and v behind it; at `mask` the mask, then the bias; last is rng. */
static bool shape_of(const Graph *g, const Node *n, int first, int mask, Shape *s, Diag *d)
{
    const AttentionAttrs *at = n->attr;
    const Type *q = in_type(g, n, first), *k = in_type(g, n, first + 1);
    if (at->hides < HIDES_ALL || at->hides > HIDES_SCORE)
        return fail(d, "%s: no such way to hide", node_def(n)->name);
    if (n->nin != node_def(n)->max_in || (at->layout.n != 0 && at->layout.n != 4))
        return fail(d, "%s: operands or layouts are missing", node_def(n)->name);
    for (int i = 0; i < at->layout.n; i++)
        if (at->layout.v[i] < 0 || at->layout.v[i] >= ATTENTION_LAYOUTS)
            return fail(d, "%s: no such layout", node_def(n)->name);
    if (q->rank != 4 || k->rank != 4 || !dtype_is_float(q->dt) || q->dim[3] > ATTENTION_SIZE)
        return fail(d, "%s: operands are not matrices of batches and heads", node_def(n)->name);
    *s = (Shape){extent(at, 0, q, 0), extent(at, 0, q, 1), extent(at, 1, k, 1),
                 extent(at, 0, q, 2), extent(at, 1, k, 2), q->dim[3]};
    Type kt = operand_type(at, 1, q->dt, (int64_t[]){s->batch, s->groups, s->cols, s->size});
    Type vt = operand_type(at, 2, q->dt, (int64_t[]){s->batch, s->groups, s->cols, s->size});
    Type rng = type_make(DT_I64, 1, (int64_t[]){2});
    TRY(at->packed.n == 0 || packed_shape(n, first, s, d));
    if (type_count(q) == 0 || type_count(k) == 0 || s->heads % s->groups)
        return fail(d, "%s: empty, or heads that share unevenly", node_def(n)->name);
    return operand_is(g, n, first + 1, &kt, d) && operand_is(g, n, first + 2, &vt, d) &&
           fits_scores(g, n, mask, DT_BOOL, s, d) && fits_scores(g, n, mask + 1, q->dt, s, d) &&
           (!has_in(n, n->nin - 1) || operand_is(g, n, n->nin - 1, &rng, d));
}

static Type row_type(const Shape *s, DType dt)
{
    return type_make(dtype_sum(dt), 3, (int64_t[]){s->batch, s->heads, s->rows});
}

static Type result_type(const AttentionAttrs *at, const Shape *s, DType dt)
{
    return operand_type(at, 3, dt, (int64_t[]){s->batch, s->heads, s->rows, s->size});
}

static bool attention_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    Shape s;
    TRY(shape_of(g, n, Q, MASK, &s, d));
    Type sink = type_make(DT_NONE, 1, &s.heads);
    if (has_in(n, SINK) && (!has_type(g, n, SINK, in_type(g, n, Q)->dt) ||
                            !type_same_shape(in_type(g, n, SINK), &sink)))
        return fail(d, "%s: sinks do not fit the heads", node_def(n)->name);
    out[0] = result_type(n->attr, &s, in_type(g, n, Q)->dt);
    out[1] = out[2] = row_type(&s, out[0].dt);
    return true;
}

static bool backward_shape(const Graph *g, const Node *n, Shape *s, Diag *d)
{
    TRY(shape_of(g, n, B_Q, B_MASK, s, d));
    Type o = result_type(n->attr, s, in_type(g, n, B_Q)->dt), row = row_type(s, o.dt);
    return operand_is(g, n, B_DO, &o, d) && operand_is(g, n, B_O, &o, d) &&
           operand_is(g, n, B_TOP, &row, d) && operand_is(g, n, B_INV, &row, d);
}

/* Is it the type of sums, or what `out` may say? */
static bool gradient_type(const Graph *g, const Node *n, DType *dt, Diag *d)
{
    DType in = in_type(g, n, B_Q)->dt, sum = dtype_sum(in),
          to = (DType)((const AttentionAttrs *)n->attr)->out;
    *dt = to == DT_NONE ? sum : to;
    return *dt == sum || *dt == in ||
           fail(d, "%s: the result cannot be %s", node_def(n)->name, dtype_name[to]);
}

static bool attention_grad_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    Shape s;
    DType dt;
    TRY(gradient_type(g, n, &dt, d));
    for (int i = 0; i < n->nout; i++)
        out[i] = type_with(*in_type(g, n, B_Q + i), dt);
    if ((n->nout == 1) != (((const AttentionAttrs *)n->attr)->packed.n > 0))
        return fail(d, "%s: operands are packed, or they are not", node_def(n)->name);
    return backward_shape(g, n, &s, d);
}

static bool attention_bias_grad_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    Shape s;
    if (!has_in(n, B_BIAS))
        return fail(d, "%s: there is no bias", node_def(n)->name);
    *out = type_with(*in_type(g, n, B_BIAS), dtype_sum(in_type(g, n, B_Q)->dt));
    return backward_shape(g, n, &s, d);
}

/* ---- parameters of the kernels ------------------------------------------------------------
 *
 * p  0 batch, heads, groups, rows, columns, size
 *    6 row r sees the columns r - p[7] to r + p[6]
 *    8 strides (batch, head, row) of q, 11 k, 14 v, 17 o
 *   20 mask?   21 its strides (batch, head, row, column)   25 bias?   26 its strides, 30 extents
 *   34 sinks?  35 dropout?  36 0 forward, 1 backward, 2 gradient of the bias
 *   37 0 instead of NaN: 1 always, 2 if nothing is seen   38 hides   39 first elements of q, k, v
 *   42 gradients in one result?   43 key of dropout
 * q  0 scale, fill, drop below, factor of what is kept, cap */

/* From one to the next in memory: batch, head, row. */
static int64_t stride_of(const AttentionAttrs *at, int operand, const Type *t, int i)
{
    int64_t stride[MAX_RANK];
    type_strides(t, stride);
    return stride[attention_place[layout_of(at, operand)][i]];
}

static void operand_strides(Kernel *k, const AttentionAttrs *at, int operand, const Type *t)
{
    for (int i = 0; i < 3; i++)
        k_param(k, stride_of(at, operand, t, i) * (i == 1 && operand < 3 ? packed_of(at, operand, 1) : 1));
}

static void score_strides(Kernel *k, const Graph *g, const Node *n, int operand, bool extents)
{
    const Type *t = has_in(n, operand) ? in_type(g, n, operand) : NULL;
    int64_t stride[MAX_RANK] = {0}, dim[4];
    if (t)
        type_strides(t, stride);
    k_param(k, t != NULL);
    for (int i = 0; i < 4; i++) {
        int own = t ? i - (4 - t->rank) : -1;
        dim[i] = own < 0 ? 1 : t->dim[own];
        k_param(k, own < 0 || t->dim[own] == 1 ? 0 : stride[own]);
    }
    for (int i = 0; i < 4 && extents; i++)
        k_param(k, dim[i]);
}

/* Column c is seen by row r if r - left <= c <= r + right. */
static void limits(Kernel *k, const AttentionAttrs *at, const Shape *s)
{
    int64_t reach = s->rows + s->cols, right = at->diagonal, left;
    right = right > reach ? reach : right < -reach ? -reach : right;
    left = at->window > 0 && at->window <= 2 * reach ? at->window - 1 - right : reach;
    k_param(k, at->causal ? right : reach);
    k_param(k, left);
}

static bool parameters(Kernel *k, const Graph *g, const Node *n, int first, int mask, Shape *s)
{
    const AttentionAttrs *at = n->attr;
    TRY(shape_of(g, n, first, mask, s, g->diag));
    const int64_t head[] = {s->batch, s->heads, s->groups, s->rows, s->cols, s->size};
    for (size_t i = 0; i < COUNT(head); i++)
        k_param(k, head[i]);
    limits(k, at, s);
    for (int i = 0; i < 3; i++)
        operand_strides(k, at, i, in_type(g, n, first + i));
    Type o = result_type(at, s, DT_F32);
    operand_strides(k, at, 3, &o);
    score_strides(k, g, n, mask, false);
    score_strides(k, g, n, mask + 1, true);
    k_param(k, n->op == OP_attention && has_in(n, SINK));
    k_param(k, has_in(n, n->nin - 1));
    k_param(k, n->op == OP_attention ? 0 : n->op == OP_attention_bias_grad ? 2 : 1);
    k_param(k, at->guard);
    k_param(k, at->hides);
    for (int i = 0; i < 3; i++)
        k_param(k, packed_of(at, i, 0) * stride_of(at, i, in_type(g, n, first + i), 1));
    k_param(k, at->packed.n > 0);
    k_param(k, at->key);
    k->native = NATIVE_ATTENTION;
    k->q[0] = at->scale;
    k->q[1] = at->fill;
    k->q[2] = at->p;
    k->q[3] = at->p < 1 ? 1 / (1 - at->p) : 0;
    k->q[4] = at->cap;
    return true;
}

/* ---- forward ------------------------------------------------------------------------------- */

/* Row i of the result: q, k, v, mask, bias, sink, rng -> o, top, inv. */
KERNEL(attention, {
    const int64_t r = i % p[3];
    const int64_t h = i / p[3] % p[1];
    const int64_t b = i / p[3] / p[1];
    const int64_t q0 = p[39] + b * p[8] + h * p[9] + r * p[10];
    const int64_t k0 = p[40] + b * p[11] + h / (p[1] / p[2]) * p[12];
    const int64_t v0 = p[41] + b * p[14] + h / (p[1] / p[2]) * p[15];
    const int64_t o0 = b * p[17] + h * p[18] + r * p[19];
    REAL acc[256];
    REAL top = -INF_;
    REAL sum = 0;
    if (p[34]) {
        top = F(5, h);
        sum = 1;
    }
    for (int64_t d = 0; d < p[5]; d++)
        acc[d] = 0;
    for (int64_t c = 0; c < p[4]; c++) {
        REAL s = 0;
        for (int64_t d = 0; d < p[5]; d++)
            s += q[0] * F(0, q0 + d) * F(1, k0 + c * p[13] + d);
        if (q[4] > 0)
            s = q[4] * TANH(s / q[4]);
        int hidden = c > r + p[6] || c < r - p[7];
        if (p[20])
            hidden |= I(3, b * p[21] + h * p[22] + r * p[23] + c * p[24]) != 0;
        if (hidden && p[38] == 2)
            s = q[1];
        if (p[25])
            s += F(4, b * p[26] + h * p[27] + r * p[28] + c * p[29]);
        if (hidden && p[38] < 2)
            s = p[38] ? s + q[1] : q[1];
        if (s > top) {
            const REAL shrink = EXP(top - s);
            for (int64_t d = 0; d < p[5]; d++)
                acc[d] *= shrink;
            sum *= shrink;
            top = s;
        }
        REAL e = s == -INF_ ? R(0) : EXP(s - top);
        sum += e;
        if (p[35])
            e *= PHILOX_UNIFORM(I(6, 0), p[43], I(6, 1), i * p[4] + c) >= q[2] ? q[3] : R(0);
        for (int64_t d = 0; d < p[5]; d++)
            acc[d] += e * F(2, v0 + c * p[16] + d);
    }
    const int zero = p[37] == 2 ? sum == 0 : p[37] && !(sum > 0);
    for (int64_t d = 0; d < p[5]; d++)
        SETF(7, o0 + d, zero ? R(0) : acc[d] / sum);
    SETF(8, i, top);
    SETF(9, i, zero ? R(0) : R(1) / sum);
})

static double products(const Kernel *k, const Shape *s, int n)
{
    double seen = k->p[6] < s->cols ? 0.5 : 1, window = (double)(k->p[6] + k->p[7] + 1);
    if (window < seen * (double)s->cols)
        seen = window / (double)s->cols;
    return seen * n * 2.0 * (double)(s->batch * s->heads) * (double)(s->rows * s->cols * s->size);
}

static bool attention_lower(Kernel *k, const Graph *g, const Node *n)
{
    Shape s;
    TRY(parameters(k, g, n, Q, MASK, &s));
    k_body(k, &attention_body, s.batch * s.heads * s.rows);
    k->flops = products(k, &s, 2);
    return true;
}

/* The sink's share of each row, exp(sink - top) * inv, meets no value: dp is 0. */
static void sink_gradient(Grad *gr, const Node *n)
{
    Graph *g = gr->g;
    const AttentionAttrs *at = n->attr;
    DType dt = val_type(g, n->out[1])->dt;
    Val g_o = build2(g, OP_mul, build_cast(g, grad_out(gr, n, 0), dt),
                     build_cast(g, n->out[0], dt));
    Val delta = build_reduce(g, OP_reduce_sum, g_o, 1u << 3, false);
    const int *place = attention_place[layout_of(at, 3)];
    delta = build_transpose(g, delta, (int[]){place[0], place[1], place[2]});
    Val sink = build_reshape(g, build_cast(g, n->in[SINK], dt), 3,
                             (int64_t[]){1, val_type(g, n->in[SINK])->dim[0], 1});
    Val share = build1(g, OP_exp, build2(g, OP_sub, sink, n->out[1]));
    share = build2(g, OP_mul, share, build2(g, OP_mul, n->out[2], delta));
    Val sum = build_reduce(g, OP_reduce_sum, share, 1u << 0 | 1u << 2, false);
    grad_add(gr, n->in[SINK], build1(g, OP_neg, sum));
}

static void gradients(Grad *gr, const Node *n, const Val *in)
{
    bool packed = ((const AttentionAttrs *)n->attr)->packed.n > 0;
    Op op = packed ? OP_attention_packed_grad : OP_attention_grad;
    Val out[MAX_OUT] = {{0}};
    if (grad_wants(gr, n, Q) || grad_wants(gr, n, K) || grad_wants(gr, n, V))
        build_n(gr->g, op, NULL, B_NIN, in, n->attr, packed ? 1 : 3, out);
    for (int i = 0; i < (packed ? 1 : 3); i++)
        if (grad_wants(gr, n, i))
            grad_add(gr, n->in[i], out[i]);
}

static bool attention_gradient(Grad *gr, const Node *n)
{
    TRY(only_first_output(gr, n));
    Val in[] = {grad_out(gr, n, 0), n->in[Q],  n->in[K],    n->in[V],    n->out[0],
                n->out[1],          n->out[2], n->in[MASK], n->in[BIAS], n->in[RNG]};
    gradients(gr, n, in);
    if (has_in(n, BIAS) && grad_wants(gr, n, BIAS))
        grad_add(gr, n->in[BIAS],
                 build(gr->g, OP_attention_bias_grad, NULL, B_NIN, in, n->attr));
    if (has_in(n, SINK) && grad_wants(gr, n, SINK))
        sink_gradient(gr, n);
    return true;
}

const OpDef op_attention = {.name = "attention",
                            .min_in = V + 1,
                            .max_in = NIN,
                            .nout = 3,
                            .traits = OPT_RANDOM,
                            .in = IN_HALF,
                            .wide_in = 1 << BIAS | 1 << SINK,
                            .attrs = attention_attrs,
                            .nattrs = COUNT(attention_attrs),
                            .attr_size = sizeof(AttentionAttrs),
                            .infer = attention_infer,
                            .grad = attention_gradient,
                            .onnx = attention_onnx,
                            .lower = attention_lower};

/* ---- backward ------------------------------------------------------------------------------ */

/* do, q, k, v, o, top, inv, mask, bias, rng -> dq, dk, dv, or all in one.  Items are the rows of dq, then
 * those of dk and dv: each walks the other side once, and over all query heads that share it. */
KERNEL(attention_grad, {
    const int64_t nq = p[0] * p[1] * p[3];
    const int64_t row = i < nq;
    const int64_t j = row ? i : i - nq;
    const int64_t mine = row ? j % p[3] : j % p[4];
    const int64_t part = row ? j / p[3] : j / p[4];
    const int64_t share = p[1] / p[2];
    const int64_t b = row ? part / p[1] : part / p[2];
    const int64_t head = row ? part % p[1] : part % p[2] * share;
    const int64_t k0 = p[40] + b * p[11] + head / share * p[12];
    const int64_t v0 = p[41] + b * p[14] + head / share * p[15];
    REAL a[256];
    REAL z[256];
    for (int64_t d = 0; d < p[5]; d++)
        a[d] = z[d] = 0;
    for (int64_t h = head; h < head + (row ? 1 : share); h++)
        for (int64_t other = 0; other < (row ? p[4] : p[3]); other++) {
            const int64_t r = row ? mine : other;
            const int64_t c = row ? other : mine;
            const int64_t q0 = p[39] + b * p[8] + h * p[9] + r * p[10];
            const int64_t o0 = b * p[17] + h * p[18] + r * p[19];
            const int64_t line = (b * p[1] + h) * p[3] + r;
            REAL s = 0;
            REAL dp = 0;
            REAL delta = 0;
            for (int64_t d = 0; d < p[5]; d++) {
                s += q[0] * F(1, q0 + d) * F(2, k0 + c * p[13] + d);
                dp += F(0, o0 + d) * F(3, v0 + c * p[16] + d);
                delta += F(0, o0 + d) * F(4, o0 + d);
            }
            REAL slope = q[0];
            if (q[4] > 0) {
                s = TANH(s / q[4]);
                slope = q[0] * (1 - s * s);
                s = q[4] * s;
            }
            int hidden = c > r + p[6] || c < r - p[7];
            if (p[20])
                hidden |= I(7, b * p[21] + h * p[22] + r * p[23] + c * p[24]) != 0;
            if (hidden && p[38] == 2)
                s = q[1];
            if (p[25])
                s += F(8, b * p[26] + h * p[27] + r * p[28] + c * p[29]);
            if (hidden && p[38] < 2)
                s = p[38] ? s + q[1] : q[1];
            if (hidden && p[38] != 1)
                slope = 0;
            const REAL e = F(6, line) == 0 ? R(0) : EXP(s - F(5, line)) * F(6, line);
            REAL keep = 1;
            if (p[35])
                keep = PHILOX_UNIFORM(I(9, 0), p[43], I(9, 1), line * p[4] + c) >= q[2] ? q[3] : R(0);
            const REAL ds = slope == 0 ? R(0) : slope * e * (keep * dp - delta);
            for (int64_t d = 0; d < p[5]; d++) {
                a[d] += ds * (row ? F(2, k0 + c * p[13] + d) : F(1, q0 + d));
                z[d] += keep * e * F(0, o0 + d);
            }
        }
    for (int64_t d = 0; d < p[5]; d++)
        if (row) {
            SETF(10, p[39] + b * p[8] + head * p[9] + mine * p[10] + d, a[d]);
        } else if (p[42]) {
            SETF(10, k0 + mine * p[13] + d, a[d]);
            SETF(10, v0 + mine * p[16] + d, z[d]);
        } else {
            SETF(11, k0 + mine * p[13] + d, a[d]);
            SETF(12, v0 + mine * p[16] + d, z[d]);
        }
})

static bool attention_grad_lower(Kernel *k, const Graph *g, const Node *n)
{
    Shape s;
    TRY(parameters(k, g, n, B_Q, B_MASK, &s));
    k_body(k, &attention_grad_body,
           s.batch * s.heads * s.rows + s.batch * s.groups * s.cols);
    k->flops = products(k, &s, 5);
    return true;
}

/* The same operands -> dbias.  Element i is the sum over all scores that it was added to. */
KERNEL(attention_bias_grad, {
    const int64_t first[4] = {i / p[33] / p[32] / p[31], i / p[33] / p[32] % p[31],
                              i / p[33] % p[32], i % p[33]};
    int64_t end[4];
    REAL sum = 0;
    for (int64_t j = 0; j < 4; j++)
        end[j] = p[30 + j] > 1 ? first[j] + 1 : j == 2 ? p[3] : j == 3 ? p[4] : p[j];
    for (int64_t b = first[0]; b < end[0]; b++)
        for (int64_t h = first[1]; h < end[1]; h++)
            for (int64_t r = first[2]; r < end[2]; r++)
                for (int64_t c = first[3]; c < end[3]; c++) {
                    const int64_t g = h / (p[1] / p[2]);
                    const int64_t q0 = p[39] + b * p[8] + h * p[9] + r * p[10];
                    const int64_t k0 = p[40] + b * p[11] + g * p[12] + c * p[13];
                    const int64_t v0 = p[41] + b * p[14] + g * p[15] + c * p[16];
                    const int64_t o0 = b * p[17] + h * p[18] + r * p[19];
                    const int64_t line = (b * p[1] + h) * p[3] + r;
                    REAL s = 0;
                    REAL dp = 0;
                    REAL delta = 0;
                    for (int64_t d = 0; d < p[5]; d++) {
                        s += q[0] * F(1, q0 + d) * F(2, k0 + d);
                        dp += F(0, o0 + d) * F(3, v0 + d);
                        delta += F(0, o0 + d) * F(4, o0 + d);
                    }
                    if (q[4] > 0)
                        s = q[4] * TANH(s / q[4]);
                    int hidden = c > r + p[6] || c < r - p[7];
                    if (p[20])
                        hidden |= I(7, b * p[21] + h * p[22] + r * p[23] + c * p[24]) != 0;
                    if (hidden && p[38] == 2)
                        s = q[1];
                    s += F(8, b * p[26] + h * p[27] + r * p[28] + c * p[29]);
                    if (hidden && p[38] < 2)
                        s = p[38] ? s + q[1] : q[1];
                    const REAL e = F(6, line) == 0 ? R(0) : EXP(s - F(5, line)) * F(6, line);
                    REAL keep = 1;
                    if (p[35])
                        keep = PHILOX_UNIFORM(I(9, 0), p[43], I(9, 1), line * p[4] + c) >= q[2] ? q[3] : R(0);
                    if (!hidden || p[38] > 0)
                        sum += e * (keep * dp - delta);
                }
    SETF(10, i, sum);
})

static bool attention_bias_grad_lower(Kernel *k, const Graph *g, const Node *n)
{
    Shape s;
    TRY(parameters(k, g, n, B_Q, B_MASK, &s));
    k_body(k, &attention_bias_grad_body, type_count(in_type(g, n, B_BIAS)));
    k->flops = products(k, &s, 2);
    return true;
}

const OpDef op_attention_grad = {.name = "attention_grad",
                                 .min_in = B_INV + 1,
                                 .max_in = B_NIN,
                                 .nout = 3,
                                 .traits = OPT_RANDOM,
                                 .attrs = attention_attrs,
                                 .nattrs = COUNT(attention_attrs),
                                 .attr_size = sizeof(AttentionAttrs),
                                 .infer = attention_grad_infer,
                                 .onnx = attention_grad_onnx,
                                 .lower = attention_grad_lower};
const OpDef op_attention_packed_grad = {.name = "attention_packed_grad",
                                        .min_in = B_INV + 1,
                                        .max_in = B_NIN,
                                        .nout = 1,
                                        .traits = OPT_RANDOM,
                                        .attrs = attention_attrs,
                                        .nattrs = COUNT(attention_attrs),
                                        .attr_size = sizeof(AttentionAttrs),
                                        .infer = attention_grad_infer,
                                        .onnx = attention_grad_onnx,
                                        .lower = attention_grad_lower};
const OpDef op_attention_bias_grad = {.name = "attention_bias_grad",
                                      .min_in = B_INV + 1,
                                      .max_in = B_NIN,
                                      .nout = 1,
                                      .traits = OPT_RANDOM,
                                      .attrs = attention_attrs,
                                      .nattrs = COUNT(attention_attrs),
                                      .attr_size = sizeof(AttentionAttrs),
                                      .infer = attention_bias_grad_infer,
                                      .onnx = attention_grad_onnx,
                                      .lower = attention_bias_grad_lower};
