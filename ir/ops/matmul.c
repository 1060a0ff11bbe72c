/* matmul.c -- batched matrix product with transposes: y[..,m,n] = [c +] op(a)[..,m,k] op(b)[..,k,n]. */
#include "common.h"
#include "../kernel_math.h"

static const AttrDef matmul_attrs[] = {ATTR(MatmulAttrs, ta, AT_I64, 0), ATTR(MatmulAttrs, tb, AT_I64, 0),
                                       ATTR(MatmulAttrs, out, AT_DTYPE, DT_NONE),
                                       ATTR(MatmulAttrs, tf32, AT_I64, 0)};

static bool matmul_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    const MatmulAttrs *at = n->attr;
    const Type *a = in_type(g, n, 0), *b = in_type(g, n, 1);
    char sa[160], sb[160];
    if (a->rank < 2 || b->rank < 2 || a->dt != b->dt || !dtype_is_float(a->dt))
        return fail(d, "matmul: operands %s and %s", type_str(a, sa), type_str(b, sb));
    int64_t m = a->dim[a->rank - (at->ta ? 1 : 2)], ka = a->dim[a->rank - (at->ta ? 2 : 1)];
    int64_t kb = b->dim[b->rank - (at->tb ? 1 : 2)], c = b->dim[b->rank - (at->tb ? 2 : 1)];
    if (ka != kb)
        return fail(d, "matmul: inner dimensions %lld and %lld differ", (long long)ka, (long long)kb);
    Type x = type_make(a->dt, a->rank - 2, a->dim), y = type_make(b->dt, b->rank - 2, b->dim);
    if (!type_broadcast(&x, &y))
        return fail(d, "matmul: batches of %s and %s do not broadcast", type_str(a, sa), type_str(b, sb));
    x.dim[x.rank++] = m;
    x.dim[x.rank++] = c;
    *out = x;
    return sum_infer(n, at->out, out, d);
}

static bool matmul_add_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    return matmul_infer(g, n, out, d) && operand_is(g, n, 2, out, d);
}

enum { C = 2, BIAS };

static bool matmul_bias_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    if (n->nin != BIAS + 1 || !has_in(n, BIAS))
        return fail(d, "matmul_bias: there is no bias");
    TRY(matmul_infer(g, n, out, d));
    for (int i = 1; i < n->nout; i++)
        out[i] = out[0];
    if (n->op == OP_matmul_gelu && has_in(n, C))
        return fail(d, "matmul_gelu: nothing is added but a bias");
    Type row = type_make(out->dt, 1, &out->dim[out->rank - 1]);
    return operand_is(g, n, BIAS, &row, d) && (!has_in(n, C) || operand_is(g, n, C, out, d));
}

/* Row i of the result.  p = m, n, k, strides of a (m, k) and b (k, n), batch rank, then per
 * batch dimension extent and strides of a and b. */
#define MATMUL_ROW                                                                                           \
    int64_t row = i % p[0];                                                                                  \
    int64_t rest = i / p[0];                                                                                 \
    int64_t at_a = row * p[3];                                                                               \
    int64_t at_b = 0;                                                                                        \
    for (int64_t d = p[7] - 1; d >= 0; d--) {                                                                \
        int64_t j = rest % p[3 * d + 8];                                                                     \
        rest /= p[3 * d + 8];                                                                                \
        at_a += j * p[3 * d + 9];                                                                            \
        at_b += j * p[3 * d + 10];                                                                           \
    }

KERNEL_BEHIND(matmul, MATMUL_ROW, {
    for (int64_t c = 0; c < p[1]; c++) {
        REAL sum = 0;
        for (int64_t k = 0; k < p[2]; k++)
            sum += F(0, at_a + k * p[4]) * F(1, at_b + k * p[5] + c * p[6]);
        SETF(2, i * p[1] + c, sum);
    }
})

/* The same product, added to the third operand. */
KERNEL_BEHIND(matmul_add, MATMUL_ROW, {
    for (int64_t c = 0; c < p[1]; c++) {
        REAL sum = F(2, i * p[1] + c);
        for (int64_t k = 0; k < p[2]; k++)
            sum += F(0, at_a + k * p[4]) * F(1, at_b + k * p[5] + c * p[6]);
        SETF(3, i * p[1] + c, sum);
    }
})

/* The same product plus a bias row; one more parameter says whether the third operand is added, too. */
KERNEL_BEHIND(matmul_bias, MATMUL_ROW, {
    for (int64_t c = 0; c < p[1]; c++) {
        REAL sum = 0;
        for (int64_t k = 0; k < p[2]; k++)
            sum += F(0, at_a + k * p[4]) * F(1, at_b + k * p[5] + c * p[6]);
        if (p[8 + 3 * p[7]])
            sum += F(2, i * p[1] + c);
        SETF(4, i * p[1] + c, sum + F(3, c));
    }
})

/* The product plus a bias row: stores gelu_tanh of the sum, and the sum. */
KERNEL_BEHIND(matmul_gelu, MATMUL_ROW, {
    for (int64_t c = 0; c < p[1]; c++) {
        REAL sum = F(3, c);
        for (int64_t k = 0; k < p[2]; k++)
            sum += F(0, at_a + k * p[4]) * F(1, at_b + k * p[5] + c * p[6]);
        const REAL cube = R(0.044715) * sum * sum * sum;
        SETF(4, i * p[1] + c, R(0.5) * sum * (1 + TANH(R(0.79788456080286536) * (sum + cube))));
        SETF(5, i * p[1] + c, sum);
    }
})

/* The product times the derivative of gelu_tanh at the third operand. */
KERNEL_BEHIND(matmul_gelu_bwd, MATMUL_ROW, {
    for (int64_t c = 0; c < p[1]; c++) {
        REAL sum = 0;
        for (int64_t k = 0; k < p[2]; k++)
            sum += F(0, at_a + k * p[4]) * F(1, at_b + k * p[5] + c * p[6]);
        const REAL x = F(2, i * p[1] + c);
        const REAL th = TANH(R(0.79788456080286536) * (x + R(0.044715) * x * x * x));
        const REAL slope = R(0.79788456080286536) * (1 + R(0.134145) * x * x);
        SETF(3, i * p[1] + c, sum * (R(0.5) * (1 + th) + R(0.5) * x * (1 - th * th) * slope));
    }
})

static const Body *body_of(Op op)
{
    return op == OP_matmul        ? &matmul_body
           : op == OP_matmul_add  ? &matmul_add_body
           : op == OP_matmul_bias ? &matmul_bias_body
           : op == OP_matmul_gelu ? &matmul_gelu_body
                                  : &matmul_gelu_bwd_body;
}

static bool matmul_lower(Kernel *k, const Graph *g, const Node *n)
{
    const MatmulAttrs *at = n->attr;
    const Type *a = in_type(g, n, 0), *b = in_type(g, n, 1), *y = out_type(g, n, 0);
    int64_t m = y->dim[y->rank - 2], c = y->dim[y->rank - 1];
    int64_t inner = a->dim[a->rank - (at->ta ? 2 : 1)];
    int64_t sa[MAX_RANK], sb[MAX_RANK];
    type_strides(a, sa);
    type_strides(b, sb);
    const int64_t head[] = {m, c, inner, at->ta ? 1 : inner, at->ta ? m : 1,
                            at->tb ? 1 : c, at->tb ? inner : 1, y->rank - 2};
    for (size_t i = 0; i < COUNT(head); i++)
        k_param(k, head[i]);
    for (int d = 0; d < y->rank - 2; d++) {
        int da = d - (y->rank - a->rank), db = d - (y->rank - b->rank);
        k_param(k, y->dim[d]);
        k_param(k, da < 0 || a->dim[da] == 1 ? 0 : sa[da]);
        k_param(k, db < 0 || b->dim[db] == 1 ? 0 : sb[db]);
    }
    if (n->op == OP_matmul_bias)
        k_param(k, has_in(n, C));
    k_body(k, body_of(n->op), c ? type_count(y) / c : 0);
    k->flops = 2.0 * (double)type_count(y) * (double)inner;
    k->lib = n->op == OP_matmul || n->op == OP_matmul_gelu_bwd ? LIB_MATMUL : LIB_MATMUL_ADD;
    k->tf32 = at->tf32 != 0;
    return true;
}

static OnnxVal turned(OnnxNodes *o, OnnxVal v, int rank, bool turns)
{
    int perm[MAX_RANK];
    for (int i = 0; i < rank; i++)
        perm[i] = !turns || i < rank - 2 ? i : 2 * rank - 3 - i;
    return onnx_transpose(o, v, rank, perm);
}

static bool matmul_onnx(OnnxNodes *o, const Graph *g, const Node *n)
{
    const MatmulAttrs *at = n->attr;
    const Type *a = in_type(g, n, 0), *b = in_type(g, n, 1);
    bool bwd = n->op == OP_matmul_gelu_bwd; /* whose third operand is not added */
    OnnxVal y, c = bwd ? (OnnxVal){0} : onnx_in(o, C), bias = onnx_in(o, BIAS);
    if (a->rank == 2 && b->rank == 2) {
        y = onnx_op3(o, "Gemm", onnx_in(o, 0), onnx_in(o, 1), c.i ? c : bias);
        onnx_attr(o, "transA", at->ta);
        onnx_attr(o, "transB", at->tb);
    } else {
        OnnxVal left = turned(o, onnx_in(o, 0), a->rank, at->ta);
        y = onnx_op2(o, "MatMul", left, turned(o, onnx_in(o, 1), b->rank, at->tb));
        y = c.i ? onnx_op2(o, "Add", y, c) : y;
    }
    if (bias.i && (c.i || a->rank > 2 || b->rank > 2))
        y = onnx_op2(o, "Add", y, bias);
    if (n->op == OP_matmul_gelu) {
        onnx_out(o, 1, y);
        y = onnx_expr(o, OP_gelu_tanh, y, (OnnxVal){0});
    }
    y = bwd ? onnx_expr(o, OP_gelu_tanh_bwd, y, onnx_in(o, C)) : y;
    onnx_out(o, 0, y);
    return true;
}

enum { PARAM_TERMS = 2 };

static bool matmul_split(const Graph *g, const Node *n, SplitBy by, SplitAxis *axis)
{
    const MatmulAttrs *at = n->attr;
    const Type *a = in_type(g, n, 0), *b = in_type(g, n, 1);
    bool rows = by == SPLIT_ROWS;
    axis->in[0] = rows == !at->ta ? 0 : 1;
    axis->in[1] = rows ? SPLIT_WHOLE : at->tb ? 1 : 0;
    axis->param = rows ? -1 : PARAM_TERMS;
    axis->add = OP_matmul_add;
    axis->extent = a->dim[axis->in[0]];
    return a->rank == 2 && b->rank == 2 && /* terms: rows of both; the result holds their sums */
           (rows || (at->ta && !at->tb && !dtype_is_half(out_type(g, n, 0)->dt)));
}

/* Adds op(a) op(b) to the gradient of n's operand v. */
static void add_product(Grad *gr, const Node *n, Val v, Val a, Val b, bool ta, bool tb)
{
    DType dt = grad_type(gr->g, v);
    MatmulAttrs at = {.ta = ta, .tb = tb, .out = dt == val_type(gr->g, a)->dt ? DT_NONE : dt};
    at.tf32 = ((const MatmulAttrs *)n->attr)->tf32;
    grad_add(gr, v, build(gr->g, OP_matmul, NULL, 2, (Val[]){a, b}, &at));
}

static bool matmul_grad(Grad *gr, const Node *n)
{
    const MatmulAttrs *at = n->attr;
    Val a = n->in[0], b = n->in[1], dy = build_cast(gr->g, grad_out(gr, n, 0), val_type(gr->g, a)->dt);
    if (grad_wants(gr, n, 0) && at->ta)
        add_product(gr, n, a, b, dy, at->tb, true);
    else if (grad_wants(gr, n, 0))
        add_product(gr, n, a, dy, b, false, !at->tb);
    if (grad_wants(gr, n, 1) && at->tb)
        add_product(gr, n, b, dy, a, true, at->ta);
    else if (grad_wants(gr, n, 1))
        add_product(gr, n, b, a, dy, !at->ta, false);
    return true;
}

const OpDef op_matmul = {.name = "matmul", .min_in = 2, .max_in = 2, .nout = 1, .in = IN_HALF,
                         ATTRS(matmul_attrs, MatmulAttrs), .infer = matmul_infer, .grad = matmul_grad,
                         .onnx = matmul_onnx, .lower = matmul_lower, .split = matmul_split};

const OpDef op_matmul_add = {.name = "matmul_add", .min_in = 3, .max_in = 3, .nout = 1,
                             ATTRS(matmul_attrs, MatmulAttrs), .infer = matmul_add_infer, .onnx = matmul_onnx,
                             .lower = matmul_lower};

const OpDef op_matmul_bias = {.name = "matmul_bias", .min_in = 2, .max_in = BIAS + 1, .nout = 1,
                              ATTRS(matmul_attrs, MatmulAttrs), .infer = matmul_bias_infer,
                              .onnx = matmul_onnx, .lower = matmul_lower};

const OpDef op_matmul_gelu = {.name = "matmul_gelu", .min_in = 2, .max_in = BIAS + 1, .nout = 2,
                              ATTRS(matmul_attrs, MatmulAttrs), .infer = matmul_bias_infer,
                              .onnx = matmul_onnx, .lower = matmul_lower};

const OpDef op_matmul_gelu_bwd = {.name = "matmul_gelu_bwd", .min_in = 3, .max_in = 3, .nout = 1,
                                  ATTRS(matmul_attrs, MatmulAttrs), .infer = matmul_add_infer,
                                  .onnx = matmul_onnx, .lower = matmul_lower};
