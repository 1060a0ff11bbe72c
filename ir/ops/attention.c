/* attention.c -- scaled dot-product attention without the matrix of scores, and its gradient.
 *
 * Forward, per row r with scores s_c = scale * q_r k_c (masked):  o_r = sum_c p_c v_c with
 * p_c = exp(s_c - lse_r), lse_r = log sum_c exp(s_c), by a running maximum (Milakov and Gimelshein,
 * "Online normalizer calculation for softmax", 2018).
 * Backward from o and lse alone (Dao et al., FlashAttention, 2022): p is computed again,
 *
 *     dv_c = sum_r p_rc do_r     dp_rc = do_r v_c     ds_rc = p_rc (dp_rc - do_r o_r) * scale
 *     dq_r = sum_c ds_rc k_c     dk_c = sum_r ds_rc q_r
 *
 * and dropout multiplies p in dv, and dp, by keep / (1 - p_drop).  The bodies below are one row or
 * column per item; CPUs run the blocked routine of codegen/prelude/attention.h. */
#include "common.h"
#include "../kernel_math.h"

const int attention_place[ATTENTION_LAYOUTS][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}, {1, 2, 0, 3}};

static const AttrDef attention_attrs[] = {
    ATTR(AttentionAttrs, scale, AT_F64, 1),  ATTR(AttentionAttrs, fill, AT_F64, 0),
    ATTR(AttentionAttrs, causal, AT_I64, 0), ATTR(AttentionAttrs, diagonal, AT_I64, 0),
    ATTR(AttentionAttrs, p, AT_F64, 0),      ATTR(AttentionAttrs, key, AT_I64, 0),
    ATTR(AttentionAttrs, layout, AT_INTS, 0)};

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

/* q stands at operand `first`, k and v behind it, the mask at `mask`, rng behind that. */
static bool shape_of(const Graph *g, const Node *n, int first, int mask, Shape *s, Diag *d)
{
    const AttentionAttrs *at = n->attr;
    const Type *q = in_type(g, n, first), *k = in_type(g, n, first + 1);
    if (n->nin != mask + 2 || (at->layout.n != 0 && at->layout.n != 4))
        return fail(d, "%s: operands or layouts are missing", node_def(n)->name);
    for (int i = 0; i < at->layout.n; i++)
        if (at->layout.v[i] < 0 || at->layout.v[i] >= ATTENTION_LAYOUTS)
            return fail(d, "%s: no such layout", node_def(n)->name);
    if (q->rank != 4 || k->rank != 4 || !dtype_is_float(q->dt) || q->dim[3] > ATTENTION_SIZE)
        return fail(d, "%s: operands are not matrices of batches and heads", node_def(n)->name);
    *s = (Shape){extent(at, 0, q, 0), extent(at, 0, q, 1), extent(at, 1, k, 1),
                 extent(at, 0, q, 2), extent(at, 1, k, 2), q->dim[3]};
    if (type_count(q) == 0 || type_count(k) == 0 || s->heads % s->groups)
        return fail(d, "%s: empty, or heads that share unevenly", node_def(n)->name);
    Type kt = operand_type(at, 1, q->dt, (int64_t[]){s->batch, s->groups, s->cols, s->size});
    Type vt = operand_type(at, 2, q->dt, (int64_t[]){s->batch, s->groups, s->cols, s->size});
    TRY(operand_is(g, n, first + 1, &kt, d) && operand_is(g, n, first + 2, &vt, d));
    if (has_in(n, mask)) {
        const Type *m = in_type(g, n, mask);
        Type scores = type_make(m->dt, 4, (int64_t[]){s->batch, s->heads, s->rows, s->cols});
        Type wide = scores;
        if ((m->dt != DT_BOOL && m->dt != q->dt) || !type_broadcast(&wide, m) ||
            !type_equal(&wide, &scores))
            return fail(d, "%s: the mask does not fit the scores", node_def(n)->name);
    }
    Type rng = type_make(DT_I64, 1, (int64_t[]){2});
    return !has_in(n, mask + 1) || operand_is(g, n, mask + 1, &rng, d);
}

static DType sum_type(DType dt) { return dt == DT_F64 ? DT_F64 : DT_F32; }

static Type lse_type(const Shape *s, DType dt)
{
    return type_make(sum_type(dt), 3, (int64_t[]){s->batch, s->heads, s->rows});
}

static Type result_type(const AttentionAttrs *at, const Shape *s, DType dt)
{
    return operand_type(at, 3, dt, (int64_t[]){s->batch, s->heads, s->rows, s->size});
}

static bool attention_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    Shape s;
    TRY(shape_of(g, n, 0, 3, &s, d));
    out[0] = result_type(n->attr, &s, in_type(g, n, 0)->dt);
    out[1] = lse_type(&s, out[0].dt);
    return true;
}

static bool attention_grad_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    Shape s;
    TRY(shape_of(g, n, 1, 6, &s, d));
    for (int i = 0; i < 3; i++)
        out[i] = *in_type(g, n, 1 + i);
    Type o = result_type(n->attr, &s, out[0].dt), lse = lse_type(&s, o.dt);
    return operand_is(g, n, 0, &o, d) && operand_is(g, n, 4, &o, d) &&
           operand_is(g, n, 5, &lse, d);
}

/* ---- parameters of the kernels ------------------------------------------------------------
 *
 * p  0 batch, heads, groups, rows, columns, size   6 column c is seen if c <= r + p[6]
 *    7 strides (batch, head, row) of q, 10 k, 13 v, 16 o   19 mask: 0 none, 1 bool, 2 added
 *   20 its strides (batch, head, row, column)   24 dropout?   25 backward?
 *   26 key of dropout
 * q  0 scale, fill, drop below, factor of what is kept */

static void operand_strides(Kernel *k, const AttentionAttrs *at, int operand, const Type *t)
{
    int64_t stride[MAX_RANK];
    type_strides(t, stride);
    for (int i = 0; i < 3; i++)
        k_param(k, stride[attention_place[layout_of(at, operand)][i]]);
}

static void mask_strides(Kernel *k, const Graph *g, const Node *n, int mask)
{
    const Type *t = has_in(n, mask) ? in_type(g, n, mask) : NULL;
    int64_t stride[MAX_RANK] = {0};
    if (t)
        type_strides(t, stride);
    k_param(k, !t ? 0 : t->dt == DT_BOOL ? 1 : 2);
    for (int i = 0; i < 4; i++) {
        int own = t ? i - (4 - t->rank) : -1;
        k_param(k, own < 0 || t->dim[own] == 1 ? 0 : stride[own]);
    }
}

static bool parameters(Kernel *k, const Graph *g, const Node *n, int first, int mask, Shape *s)
{
    const AttentionAttrs *at = n->attr;
    TRY(shape_of(g, n, first, mask, s, g->diag));
    int64_t limit = at->diagonal > s->cols ? s->cols : at->diagonal < -s->rows ? -s->rows
                                                                                : at->diagonal;
    const int64_t head[] = {s->batch, s->heads, s->groups, s->rows, s->cols, s->size,
                            at->causal ? limit : s->cols};
    for (size_t i = 0; i < COUNT(head); i++)
        k_param(k, head[i]);
    for (int i = 0; i < 3; i++)
        operand_strides(k, at, i, in_type(g, n, first + i));
    Type o = result_type(at, s, DT_F32);
    operand_strides(k, at, 3, &o);
    mask_strides(k, g, n, mask);
    k_param(k, has_in(n, mask + 1));
    k_param(k, n->op == OP_attention_grad);
    k_param(k, at->key);
    k->native = NATIVE_ATTENTION;
    k->q[0] = at->scale;
    k->q[1] = at->fill;
    k->q[2] = at->p;
    k->q[3] = at->p < 1 ? 1 / (1 - at->p) : 0;
    return true;
}

/* ---- forward ------------------------------------------------------------------------------- */

/* Row i of the result: q, k, v, mask, rng -> o, lse. */
KERNEL(attention, {
    const int64_t r = i % p[3];
    const int64_t h = i / p[3] % p[1];
    const int64_t b = i / p[3] / p[1];
    const int64_t q0 = b * p[7] + h * p[8] + r * p[9];
    const int64_t k0 = b * p[10] + h / (p[1] / p[2]) * p[11];
    const int64_t v0 = b * p[13] + h / (p[1] / p[2]) * p[14];
    const int64_t o0 = b * p[16] + h * p[17] + r * p[18];
    REAL acc[256];
    REAL top = -INF_;
    REAL sum = 0;
    for (int64_t d = 0; d < p[5]; d++)
        acc[d] = 0;
    for (int64_t c = 0; c < p[4] && c <= r + p[6]; c++) {
        const int64_t at = b * p[20] + h * p[21] + r * p[22] + c * p[23];
        REAL s = 0;
        for (int64_t d = 0; d < p[5]; d++)
            s += q[0] * F(0, q0 + d) * F(1, k0 + c * p[12] + d);
        if (p[19] == 1 && I(3, at))
            s = q[1];
        if (p[19] == 2)
            s += F(3, at);
        if (s > top) {
            const REAL shrink = EXP(top - s);
            for (int64_t d = 0; d < p[5]; d++)
                acc[d] *= shrink;
            sum *= shrink;
            top = s;
        }
        REAL e = s == -INF_ ? R(0) : EXP(s - top);
        sum += e;
        if (p[24])
            e *= PHILOX_UNIFORM(I(4, 0), p[26], I(4, 1), i * p[4] + c) >= q[2] ? q[3] : R(0);
        for (int64_t d = 0; d < p[5]; d++)
            acc[d] += e * F(2, v0 + c * p[15] + d);
    }
    for (int64_t d = 0; d < p[5]; d++)
        SETF(5, o0 + d, acc[d] / sum);
    SETF(6, i, top + LOG(sum));
})

static double products(const Kernel *k, const Shape *s, int n)
{
    double half = k->p[6] < s->cols ? 0.5 : 1;
    return half * n * 2.0 * (double)(s->batch * s->heads) * (double)(s->rows * s->cols * s->size);
}

static bool attention_lower(Kernel *k, const Graph *g, const Node *n)
{
    Shape s;
    TRY(parameters(k, g, n, 0, 3, &s));
    k_body(k, &attention_body, s.batch * s.heads * s.rows);
    k->flops = products(k, &s, 2);
    return true;
}

static bool attention_gradient(Grad *gr, const Node *n)
{
    TRY(only_first_output(gr, n));
    if (has_in(n, 3) && grad_wants(gr, n, 3))
        return fail_status(gr->g->diag, EXIT_UNSUPPORTED, "attention: no gradient of the mask");
    Val in[] = {grad_out(gr, n, 0), n->in[0], n->in[1], n->in[2],
                n->out[0], n->out[1], n->in[3], n->in[4]}, out[MAX_OUT] = {{0}};
    build_n(gr->g, OP_attention_grad, NULL, COUNT(in), in, n->attr, 3, out);
    for (int i = 0; i < 3; i++)
        if (grad_wants(gr, n, i))
            grad_add(gr, n->in[i], out[i]);
    return true;
}

const OpDef op_attention = {.name = "attention", .min_in = 3, .max_in = 5, .nout = 2,
                            .traits = OPT_RANDOM, .attrs = attention_attrs,
                            .nattrs = COUNT(attention_attrs),
                            .attr_size = sizeof(AttentionAttrs), .infer = attention_infer,
                            .grad = attention_gradient, .lower = attention_lower};

/* ---- backward ------------------------------------------------------------------------------ */

/* do, q, k, v, o, lse, mask, rng -> dq, dk, dv.  Items are the rows of dq, then those of dk and
 * dv: each walks the other side once, and over all query heads that share it. */
KERNEL(attention_grad, {
    const int64_t nq = p[0] * p[1] * p[3];
    const int64_t row = i < nq;
    const int64_t j = row ? i : i - nq;
    const int64_t mine = row ? j % p[3] : j % p[4];
    const int64_t part = row ? j / p[3] : j / p[4];
    const int64_t share = p[1] / p[2];
    const int64_t b = row ? part / p[1] : part / p[2];
    const int64_t head = row ? part % p[1] : part % p[2] * share;
    const int64_t k0 = b * p[10] + head / share * p[11];
    const int64_t v0 = b * p[13] + head / share * p[14];
    REAL a[256];
    REAL z[256];
    for (int64_t d = 0; d < p[5]; d++)
        a[d] = z[d] = 0;
    for (int64_t h = head; h < head + (row ? 1 : share); h++)
        for (int64_t other = 0; other < (row ? p[4] : p[3]); other++) {
            const int64_t r = row ? mine : other;
            const int64_t c = row ? other : mine;
            const int64_t q0 = b * p[7] + h * p[8] + r * p[9];
            const int64_t o0 = b * p[16] + h * p[17] + r * p[18];
            const int64_t at = b * p[20] + h * p[21] + r * p[22] + c * p[23];
            const int64_t line = (b * p[1] + h) * p[3] + r;
            if (c > r + p[6])
                continue;
            REAL s = 0;
            REAL dp = 0;
            REAL delta = 0;
            for (int64_t d = 0; d < p[5]; d++) {
                s += q[0] * F(1, q0 + d) * F(2, k0 + c * p[12] + d);
                dp += F(0, o0 + d) * F(3, v0 + c * p[15] + d);
                delta += F(0, o0 + d) * F(4, o0 + d);
            }
            if (p[19] == 1 && I(6, at))
                s = q[1];
            if (p[19] == 2)
                s += F(6, at);
            const REAL e = EXP(s - F(5, line));
            REAL keep = 1;
            if (p[24])
                keep = PHILOX_UNIFORM(I(7, 0), p[26], I(7, 1), line * p[4] + c) >= q[2] ? q[3]
                                                                                     : R(0);
            REAL ds = q[0] * e * (keep * dp - delta);
            if (p[19] == 1 && I(6, at))
                ds = 0;
            for (int64_t d = 0; d < p[5]; d++) {
                a[d] += ds * (row ? F(2, k0 + c * p[12] + d) : F(1, q0 + d));
                z[d] += keep * e * F(0, o0 + d);
            }
        }
    for (int64_t d = 0; d < p[5]; d++)
        if (row) {
            SETF(8, b * p[7] + head * p[8] + mine * p[9] + d, a[d]);
        } else {
            SETF(9, k0 + mine * p[12] + d, a[d]);
            SETF(10, v0 + mine * p[15] + d, z[d]);
        }
})

static bool attention_grad_lower(Kernel *k, const Graph *g, const Node *n)
{
    Shape s;
    TRY(parameters(k, g, n, 1, 6, &s));
    k_body(k, &attention_grad_body,
           s.batch * s.heads * s.rows + s.batch * s.groups * s.cols);
    k->flops = products(k, &s, 5);
    return true;
}

const OpDef op_attention_grad = {.name = "attention_grad", .min_in = 6, .max_in = 8, .nout = 3,
                                 .traits = OPT_RANDOM, .attrs = attention_attrs,
                                 .nattrs = COUNT(attention_attrs),
                                 .attr_size = sizeof(AttentionAttrs),
                                 .infer = attention_grad_infer, .lower = attention_grad_lower};
