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
#include "../attention_kernel.h"
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
    int64_t batch, heads, groups, rows, cols, size, v_size; /* size: of q and k; v_size: of v and o */
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

/* Is operand i absent, or of type dt or that of its sums, and broadcasts to the scores? */
static bool fits_scores(const Graph *g, const Node *n, int i, DType dt, const Shape *s, Diag *d)
{
    Type scores = type_make(dt, 4, (int64_t[]){s->batch, s->heads, s->rows, s->cols});
    Type wide = scores;
    if (!has_in(n, i) || (has_type(g, n, i, dt) && type_broadcast(&wide, in_type(g, n, i)) &&
                          type_equal(&wide, &scores)))
        return true;
    return fail(d, "%s: a mask or bias does not fit the scores", node_def(n)->name);
}

/* The first head (what: 0) of operand i in a packed value, or the step between its heads (1). */
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

/* Checks packed operands, and takes the heads of k and v from those of the shape. */
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

/* Checks operands and sets the shape.  q is operand `first`, then k and v; `mask` the mask, then the bias;
 * the last one is rng. */
static bool shape_of(const Graph *g, const Node *n, int first, int mask, Shape *s, Diag *d)
{
    const AttentionAttrs *at = n->attr;
    const Type *q = in_type(g, n, first), *k = in_type(g, n, first + 1), *v = in_type(g, n, first + 2);
    if (at->hides < HIDES_ALL || at->hides > HIDES_SCORE)
        return fail(d, "%s: no such way to mask", node_def(n)->name);
    if (n->nin != node_def(n)->max_in || (at->layout.n != 0 && at->layout.n != 4))
        return fail(d, "%s: operands or layouts are missing", node_def(n)->name);
    for (int i = 0; i < at->layout.n; i++)
        if (at->layout.v[i] < 0 || at->layout.v[i] >= ATTENTION_LAYOUTS)
            return fail(d, "%s: no such layout", node_def(n)->name);
    if (q->rank != 4 || k->rank != 4 || v->rank != 4 || !dtype_is_float(q->dt) ||
        q->dim[3] > ATTENTION_SIZE || v->dim[3] > ATTENTION_SIZE)
        return fail(d, "%s: operands are not matrices of batches and heads", node_def(n)->name);
    *s = (Shape){extent(at, 0, q, 0), extent(at, 0, q, 1), extent(at, 1, k, 1),
                 extent(at, 0, q, 2), extent(at, 1, k, 2), q->dim[3], v->dim[3]};
    Type kt = operand_type(at, 1, q->dt, (int64_t[]){s->batch, s->groups, s->cols, s->size});
    Type vt = operand_type(at, 2, q->dt, (int64_t[]){s->batch, s->groups, s->cols, s->v_size});
    Type rng = type_make(DT_I64, 1, (int64_t[]){2});
    TRY(at->packed.n == 0 || packed_shape(n, first, s, d));
    if (type_count(q) == 0 || type_count(k) == 0 || type_count(v) == 0 || s->heads % s->groups)
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
    return operand_type(at, 3, dt, (int64_t[]){s->batch, s->heads, s->rows, s->v_size});
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

/* Sets the type of gradients: that of sums, or what `out` says; false: it may not say that. */
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

/* ---- parameters of the kernels ------------------------------------------------------------ */

/* Elements from one batch (i: 0), head (1) or row (2) of an operand to the next. */
static int64_t stride_of(const AttentionAttrs *at, int operand, const Type *t, int i)
{
    int64_t stride[MAX_RANK];
    type_strides(t, stride);
    return stride[attention_place[layout_of(at, operand)][i]];
}

/* Sets an operand's strides from one batch, head and row to the next, in elements. */
static void set_strides(int64_t to[3], const AttentionAttrs *at, int operand, const Type *t)
{
    for (int i = 0; i < 3; i++)
        to[i] = stride_of(at, operand, t, i) * (i == 1 && operand < 3 ? packed_of(at, operand, 1) : 1);
}

/* Strides and extents of an operand that broadcasts to the scores; 0 and 1 for dimensions that it lacks. */
static void set_broadcast(int64_t stride[4], int64_t dim[4], const Type *t)
{
    int64_t own[MAX_RANK];
    type_strides(t, own);
    for (int i = 0; i < 4; i++) {
        int d = i - (4 - t->rank);
        dim[i] = d < 0 ? 1 : t->dim[d];
        stride[i] = dim[i] == 1 ? 0 : own[d];
    }
}

/* Sets left and right: row r sees column c if r - left <= c <= r + right. */
static void set_limits(Kernel *k, const AttentionAttrs *at, const Shape *s)
{
    int64_t reach = s->rows + s->cols, right = at->diagonal;
    right = right > reach ? reach : right < -reach ? -reach : right;
    k->p[P_RIGHT] = at->causal ? right : reach;
    k->p[P_LEFT] = at->window > 0 && at->window <= 2 * reach ? at->window - 1 - right : reach;
}

static void set_operands(Kernel *k, const Graph *g, const Node *n, int first, int mask, const Shape *s)
{
    static const int strides[] = {P_Q_BATCH, P_K_BATCH, P_V_BATCH};
    static const int start[] = {P_Q_FIRST, P_K_FIRST, P_V_FIRST};
    const AttentionAttrs *at = n->attr;
    Type o = result_type(at, s, DT_F32);
    int64_t dim[4];
    for (int i = 0; i < 3; i++) {
        const Type *t = in_type(g, n, first + i);
        set_strides(&k->p[strides[i]], at, i, t);
        k->p[start[i]] = packed_of(at, i, 0) * stride_of(at, i, t, 1);
    }
    set_strides(&k->p[P_O_BATCH], at, 3, &o);
    k->p[P_MASK] = has_in(n, mask);
    if (k->p[P_MASK])
        set_broadcast(&k->p[P_MASK_BATCH], dim, in_type(g, n, mask));
    k->p[P_BIAS] = has_in(n, mask + 1);
    if (k->p[P_BIAS])
        set_broadcast(&k->p[P_BIAS_BATCH], &k->p[P_BIAS_EXTENT_BATCH], in_type(g, n, mask + 1));
}

static bool parameters(Kernel *k, const Graph *g, const Node *n, int first, int mask, Shape *s)
{
    const AttentionAttrs *at = n->attr;
    TRY(shape_of(g, n, first, mask, s, g->diag));
    k->native = NATIVE_ATTENTION;
    k->np = P_COUNT;
    k->p[P_BATCH] = s->batch;
    k->p[P_HEADS] = s->heads;
    k->p[P_GROUPS] = s->groups;
    k->p[P_ROWS] = s->rows;
    k->p[P_COLS] = s->cols;
    k->p[P_SIZE] = s->size;
    k->p[P_V_SIZE] = s->v_size;
    set_limits(k, at, s);
    set_operands(k, g, n, first, mask, s);
    k->p[P_SINK] = n->op == OP_attention && has_in(n, SINK);
    k->p[P_DROPOUT] = has_in(n, n->nin - 1);
    k->p[P_PHASE] = n->op == OP_attention             ? PHASE_FORWARD
                    : n->op == OP_attention_bias_grad ? PHASE_BIAS
                                                      : PHASE_BACKWARD;
    k->p[P_GUARD] = at->guard;
    k->p[P_HIDES] = at->hides;
    k->p[P_PACKED] = at->packed.n > 0;
    k->p[P_KEY] = at->key;
    k->q[Q_SCALE] = at->scale;
    k->q[Q_FILL] = at->fill;
    k->q[Q_CAP] = at->cap;
    k->q[Q_DROP_BELOW] = at->p;
    k->q[Q_KEEP_FACTOR] = at->p < 1 ? 1 / (1 - at->p) : 0;
    return true;
}

/* Names that all bodies use; share: how many heads of q share one of k and v. */
/* clang-format off */
#define ATTENTION_EXTENTS \
    enum { LARGEST = ATTENTION_SIZE }; \
    const int64_t heads = p[P_HEADS], rows = p[P_ROWS], cols = p[P_COLS]; \
    const int64_t size = p[P_SIZE], v_size = p[P_V_SIZE], share = heads / p[P_GROUPS];
/* clang-format on */

/* ---- forward ------------------------------------------------------------------------------- */

/* Row i of the result: q, k, v, mask, bias, sink, rng -> o, top, inv. */
KERNEL_NAMED(attention, ATTENTION_NAMES, ATTENTION_EXTENTS, {
    const int64_t r = i % rows;
    const int64_t h = i / rows % heads;
    const int64_t b = i / rows / heads;
    const int64_t q0 = p[P_Q_FIRST] + b * p[P_Q_BATCH] + h * p[P_Q_HEAD] + r * p[P_Q_ROW];
    const int64_t k0 = p[P_K_FIRST] + b * p[P_K_BATCH] + h / share * p[P_K_HEAD];
    const int64_t v0 = p[P_V_FIRST] + b * p[P_V_BATCH] + h / share * p[P_V_HEAD];
    const int64_t o0 = b * p[P_O_BATCH] + h * p[P_O_HEAD] + r * p[P_O_ROW];
    REAL acc[LARGEST];
    REAL top = -INF_;
    REAL sum = 0;
    if (p[P_SINK]) {
        top = F(5, h);
        sum = 1;
    }
    for (int64_t d = 0; d < v_size; d++)
        acc[d] = 0;
    for (int64_t c = 0; c < cols; c++) {
        REAL s = 0;
        for (int64_t d = 0; d < size; d++)
            s += q[Q_SCALE] * F(0, q0 + d) * F(1, k0 + c * p[P_K_ROW] + d);
        if (q[Q_CAP] > 0)
            s = q[Q_CAP] * TANH(s / q[Q_CAP]);
        int masked = c > r + p[P_RIGHT] || c < r - p[P_LEFT];
        if (p[P_MASK])
            masked |=
                I(3, b * p[P_MASK_BATCH] + h * p[P_MASK_HEAD] + r * p[P_MASK_ROW] + c * p[P_MASK_COL]) != 0;
        if (masked && p[P_HIDES] == HIDES_SCORE)
            s = q[Q_FILL];
        if (p[P_BIAS])
            s += F(4, b * p[P_BIAS_BATCH] + h * p[P_BIAS_HEAD] + r * p[P_BIAS_ROW] + c * p[P_BIAS_COL]);
        if (masked && p[P_HIDES] != HIDES_SCORE)
            s = p[P_HIDES] == HIDES_ADDED ? s + q[Q_FILL] : q[Q_FILL];
        if (s > top) {
            const REAL shrink = EXP(top - s);
            for (int64_t d = 0; d < v_size; d++)
                acc[d] *= shrink;
            sum *= shrink;
            top = s;
        }
        REAL e = s == -INF_ ? R(0) : EXP(s - top);
        sum += e;
        if (p[P_DROPOUT])
            e *= PHILOX_UNIFORM(I(6, 0), p[P_KEY], I(6, 1), i * cols + c) >= q[Q_DROP_BELOW]
                     ? q[Q_KEEP_FACTOR]
                     : R(0);
        for (int64_t d = 0; d < v_size; d++)
            acc[d] += e * F(2, v0 + c * p[P_V_ROW] + d);
    }
    const int zero = p[P_GUARD] == GUARD_UNSEEN ? sum == 0 : p[P_GUARD] != GUARD_NONE && !(sum > 0);
    for (int64_t d = 0; d < v_size; d++)
        SETF(7, o0 + d, zero ? R(0) : acc[d] / sum);
    SETF(8, i, top);
    SETF(9, i, zero ? R(0) : R(1) / sum);
})

/* The operations of n products with heads of q and k, and v_n with heads of v and o. */
static double products(const Kernel *k, const Shape *s, int n, int v_n)
{
    double seen = k->p[P_RIGHT] < s->cols ? 0.5 : 1, window = (double)(k->p[P_RIGHT] + k->p[P_LEFT] + 1);
    if (window < seen * (double)s->cols)
        seen = window / (double)s->cols;
    double all = n + v_n * ((double)s->v_size / (double)s->size);
    return seen * all * 2.0 * (double)(s->batch * s->heads) * (double)(s->rows * s->cols * s->size);
}

static bool attention_lower(Kernel *k, const Graph *g, const Node *n)
{
    Shape s;
    TRY(parameters(k, g, n, Q, MASK, &s));
    k_body(k, &attention_body, s.batch * s.heads * s.rows);
    k->flops = products(k, &s, 1, 1);
    return true;
}

/* The sink's weight in each row, exp(sink - top) * inv, multiplies no value, so that its dp is 0. */
static void sink_gradient(Grad *gr, const Node *n)
{
    Graph *g = gr->g;
    const AttentionAttrs *at = n->attr;
    DType dt = val_type(g, n->out[1])->dt;
    Val g_o = build2(g, OP_mul, build_cast(g, grad_out(gr, n, 0), dt), build_cast(g, n->out[0], dt));
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
    if (grad_wants(gr, n, BIAS))
        grad_add(gr, n->in[BIAS], build(gr->g, OP_attention_bias_grad, NULL, B_NIN, in, n->attr));
    if (grad_wants(gr, n, SINK))
        sink_gradient(gr, n);
    return true;
}

const OpDef op_attention = {.name = "attention", .min_in = V + 1, .max_in = NIN, .nout = 3,
                            .traits = OPT_RANDOM, .in = IN_HALF, .wide_in = 1 << BIAS | 1 << SINK,
                            ATTRS(attention_attrs, AttentionAttrs), .infer = attention_infer,
                            .grad = attention_gradient, .onnx = attention_onnx, .lower = attention_lower};

/* ---- backward ------------------------------------------------------------------------------ */

/* do, q, k, v, o, top, inv, mask, bias, rng -> dq, dk, dv, or all in one.  Items are the rows of dq, then
 * those of dk and dv: each walks the other side once, and over all query heads that share it. */
KERNEL_NAMED(attention_grad, ATTENTION_NAMES, ATTENTION_EXTENTS, {
    const int64_t nq = p[P_BATCH] * heads * rows;
    const int64_t row = i < nq;
    const int64_t j = row ? i : i - nq;
    const int64_t mine = row ? j % rows : j % cols;
    const int64_t part = row ? j / rows : j / cols;
    const int64_t b = row ? part / heads : part / p[P_GROUPS];
    const int64_t head = row ? part % heads : part % p[P_GROUPS] * share;
    const int64_t k0 = p[P_K_FIRST] + b * p[P_K_BATCH] + head / share * p[P_K_HEAD];
    const int64_t v0 = p[P_V_FIRST] + b * p[P_V_BATCH] + head / share * p[P_V_HEAD];
    REAL a[LARGEST];
    REAL z[LARGEST];
    for (int64_t d = 0; d < size; d++)
        a[d] = 0;
    for (int64_t d = 0; d < v_size; d++)
        z[d] = 0;
    for (int64_t h = head; h < head + (row ? 1 : share); h++)
        for (int64_t other = 0; other < (row ? cols : rows); other++) {
            const int64_t r = row ? mine : other;
            const int64_t c = row ? other : mine;
            const int64_t q0 = p[P_Q_FIRST] + b * p[P_Q_BATCH] + h * p[P_Q_HEAD] + r * p[P_Q_ROW];
            const int64_t o0 = b * p[P_O_BATCH] + h * p[P_O_HEAD] + r * p[P_O_ROW];
            const int64_t line = (b * heads + h) * rows + r;
            REAL s = 0;
            REAL dp = 0;
            REAL delta = 0;
            for (int64_t d = 0; d < size; d++)
                s += q[Q_SCALE] * F(1, q0 + d) * F(2, k0 + c * p[P_K_ROW] + d);
            for (int64_t d = 0; d < v_size; d++) {
                dp += F(0, o0 + d) * F(3, v0 + c * p[P_V_ROW] + d);
                delta += F(0, o0 + d) * F(4, o0 + d);
            }
            REAL slope = q[Q_SCALE];
            if (q[Q_CAP] > 0) {
                s = TANH(s / q[Q_CAP]);
                slope = q[Q_SCALE] * (1 - s * s);
                s = q[Q_CAP] * s;
            }
            int masked = c > r + p[P_RIGHT] || c < r - p[P_LEFT];
            if (p[P_MASK])
                masked |= I(7, b * p[P_MASK_BATCH] + h * p[P_MASK_HEAD] + r * p[P_MASK_ROW] +
                          c * p[P_MASK_COL]) != 0;
            if (masked && p[P_HIDES] == HIDES_SCORE)
                s = q[Q_FILL];
            if (p[P_BIAS])
                s += F(8, b * p[P_BIAS_BATCH] + h * p[P_BIAS_HEAD] + r * p[P_BIAS_ROW] + c * p[P_BIAS_COL]);
            if (masked && p[P_HIDES] != HIDES_SCORE)
                s = p[P_HIDES] == HIDES_ADDED ? s + q[Q_FILL] : q[Q_FILL];
            if (masked && p[P_HIDES] != HIDES_ADDED)
                slope = 0;
            const REAL e = F(6, line) == 0 ? R(0) : EXP(s - F(5, line)) * F(6, line);
            REAL keep = 1;
            if (p[P_DROPOUT])
                keep = PHILOX_UNIFORM(I(9, 0), p[P_KEY], I(9, 1), line * cols + c) >= q[Q_DROP_BELOW]
                       ? q[Q_KEEP_FACTOR]
                       : R(0);
            const REAL ds = slope == 0 ? R(0) : slope * e * (keep * dp - delta);
            for (int64_t d = 0; d < size; d++)
                a[d] += ds * (row ? F(2, k0 + c * p[P_K_ROW] + d) : F(1, q0 + d));
            for (int64_t d = 0; d < v_size && !row; d++)
                z[d] += keep * e * F(0, o0 + d);
        }
    for (int64_t d = 0; d < size; d++)
        if (row) {
            SETF(10, p[P_Q_FIRST] + b * p[P_Q_BATCH] + head * p[P_Q_HEAD] + mine * p[P_Q_ROW] + d, a[d]);
        } else if (p[P_PACKED]) {
            SETF(10, k0 + mine * p[P_K_ROW] + d, a[d]);
        } else {
            SETF(11, k0 + mine * p[P_K_ROW] + d, a[d]);
        }
    for (int64_t d = 0; d < v_size && !row; d++)
        if (p[P_PACKED]) {
            SETF(10, v0 + mine * p[P_V_ROW] + d, z[d]);
        } else {
            SETF(12, v0 + mine * p[P_V_ROW] + d, z[d]);
        }
})

static bool attention_grad_lower(Kernel *k, const Graph *g, const Node *n)
{
    Shape s;
    TRY(parameters(k, g, n, B_Q, B_MASK, &s));
    k_body(k, &attention_grad_body, s.batch * s.heads * s.rows + s.batch * s.groups * s.cols);
    k->flops = products(k, &s, 3, 2);
    return true;
}

/* One vector added to all keys of a head adds one number to all scores of a row, which does not change the
 * softmax unless there are a cap, a sink or replaced scores: dk sums to zero over the keys. */
static bool attention_grad_zero_sums(const Graph *g, const Node *n, int k, uint32_t axes, bool *zero)
{
    enum { NEVER = -10000 }; /* a score as low as this has no weight */
    const AttentionAttrs *at = n->attr;
    const Node *forward = graph_def(g, n->in[B_O]);
    const Type *t = out_type(g, n, k);
    const int *place = attention_place[layout_of(at, 1)];
    if (at->cap > 0 || !forward || forward->op != OP_attention || has_in(forward, SINK) ||
        (at->hides != HIDES_ADDED && at->fill > NEVER) || !(axes >> place[2] & 1))
        return false;
    if (n->nout > 1)
        return k == 1;
    int64_t inner = 1, outer = 1, heads = t->dim[place[1]];
    for (int d = 0; d < t->rank; d++)
        *(d < place[1] ? &outer : &inner) *= d == place[1] || axes >> d & 1 ? 1 : t->dim[d];
    if (axes >> place[1] & 1)
        return false;
    for (int64_t i = 0; i < outer * heads * inner; i++) {
        int64_t from = i / inner % heads - packed_of(at, 1, 0), step = packed_of(at, 1, 1);
        zero[i] &= from >= 0 && from % step == 0 && from / step < at->groups;
    }
    return true;
}

/* The same operands -> dbias.  Element i is the sum over all scores that it was added to. */
KERNEL_NAMED(attention_bias_grad, ATTENTION_NAMES, ATTENTION_EXTENTS, {
    const int64_t nh = p[P_BIAS_EXTENT_HEAD];
    const int64_t nr = p[P_BIAS_EXTENT_ROW];
    const int64_t nc = p[P_BIAS_EXTENT_COL];
    const int64_t first[4] = {i / nc / nr / nh, i / nc / nr % nh, i / nc % nr, i % nc};
    const int64_t all[4] = {p[P_BATCH], heads, rows, cols};
    int64_t end[4];
    REAL sum = 0;
    for (int64_t j = 0; j < 4; j++)
        end[j] = p[P_BIAS_EXTENT_BATCH + j] > 1 ? first[j] + 1 : all[j];
    for (int64_t b = first[0]; b < end[0]; b++)
        for (int64_t h = first[1]; h < end[1]; h++)
            for (int64_t r = first[2]; r < end[2]; r++)
                for (int64_t c = first[3]; c < end[3]; c++) {
                    const int64_t g = h / share;
                    const int64_t q0 = p[P_Q_FIRST] + b * p[P_Q_BATCH] + h * p[P_Q_HEAD] + r * p[P_Q_ROW];
                    const int64_t k0 = p[P_K_FIRST] + b * p[P_K_BATCH] + g * p[P_K_HEAD] + c * p[P_K_ROW];
                    const int64_t v0 = p[P_V_FIRST] + b * p[P_V_BATCH] + g * p[P_V_HEAD] + c * p[P_V_ROW];
                    const int64_t o0 = b * p[P_O_BATCH] + h * p[P_O_HEAD] + r * p[P_O_ROW];
                    const int64_t line = (b * heads + h) * rows + r;
                    REAL s = 0;
                    REAL dp = 0;
                    REAL delta = 0;
                    for (int64_t d = 0; d < size; d++)
                        s += q[Q_SCALE] * F(1, q0 + d) * F(2, k0 + d);
                    for (int64_t d = 0; d < v_size; d++) {
                        dp += F(0, o0 + d) * F(3, v0 + d);
                        delta += F(0, o0 + d) * F(4, o0 + d);
                    }
                    if (q[Q_CAP] > 0)
                        s = q[Q_CAP] * TANH(s / q[Q_CAP]);
                    int masked = c > r + p[P_RIGHT] || c < r - p[P_LEFT];
                    if (p[P_MASK])
                        masked |= I(7, b * p[P_MASK_BATCH] + h * p[P_MASK_HEAD] + r * p[P_MASK_ROW] +
                          c * p[P_MASK_COL]) != 0;
                    if (masked && p[P_HIDES] == HIDES_SCORE)
                        s = q[Q_FILL];
                    s += F(8, b * p[P_BIAS_BATCH] + h * p[P_BIAS_HEAD] + r * p[P_BIAS_ROW] +
                               c * p[P_BIAS_COL]);
                    if (masked && p[P_HIDES] != HIDES_SCORE)
                        s = p[P_HIDES] == HIDES_ADDED ? s + q[Q_FILL] : q[Q_FILL];
                    const REAL e = F(6, line) == 0 ? R(0) : EXP(s - F(5, line)) * F(6, line);
                    REAL keep = 1;
                    if (p[P_DROPOUT])
                        keep = PHILOX_UNIFORM(I(9, 0), p[P_KEY], I(9, 1), line * cols + c) >= q[Q_DROP_BELOW]
                       ? q[Q_KEEP_FACTOR]
                       : R(0);
                    if (!masked || p[P_HIDES] != HIDES_ALL)
                        sum += e * (keep * dp - delta);
                }
    SETF(10, i, sum);
})

static bool attention_bias_grad_lower(Kernel *k, const Graph *g, const Node *n)
{
    Shape s;
    TRY(parameters(k, g, n, B_Q, B_MASK, &s));
    k_body(k, &attention_bias_grad_body, type_count(in_type(g, n, B_BIAS)));
    k->flops = products(k, &s, 1, 1);
    return true;
}

const OpDef op_attention_grad = {.name = "attention_grad", .min_in = B_INV + 1, .max_in = B_NIN, .nout = 3,
                                 .traits = OPT_RANDOM,
                                 ATTRS(attention_attrs, AttentionAttrs), .infer = attention_grad_infer,
                                 .onnx = attention_grad_onnx, .lower = attention_grad_lower,
                                 .zero_sums = attention_grad_zero_sums};
const OpDef op_attention_packed_grad = {.name = "attention_packed_grad", .min_in = B_INV + 1, .max_in = B_NIN,
                                        .nout = 1, .traits = OPT_RANDOM,
                                        ATTRS(attention_attrs, AttentionAttrs), .infer = attention_grad_infer,
                                        .onnx = attention_grad_onnx, .lower = attention_grad_lower,
                                        .zero_sums = attention_grad_zero_sums};
const OpDef op_attention_bias_grad = {.name = "attention_bias_grad", .min_in = B_INV + 1, .max_in = B_NIN,
                                      .nout = 1, .traits = OPT_RANDOM,
                                      ATTRS(attention_attrs, AttentionAttrs),
                                      .infer = attention_bias_grad_infer, .onnx = attention_grad_onnx,
                                      .lower = attention_bias_grad_lower};
