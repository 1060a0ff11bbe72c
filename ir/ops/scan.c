/* scan.c -- along one axis: cumsum, argmax, argmin, topk; and trilu, which looks at two.
 *
 * argmax is a reduction of a reduction: the smallest (or largest) index whose element
 * equals the maximum.  A NaN counts as the maximum, as in NumPy and PyTorch. */
#include "layout.h"
#include "../kernel_math.h"

/* ---- cumsum x ------------------------------------------------------------------------ */

static const AttrDef cumsum_attrs[] = {ATTR(CumsumAttrs, axis, AT_I64, 0),
                                       ATTR(CumsumAttrs, exclusive, AT_I64, 0),
                                       ATTR(CumsumAttrs, reverse, AT_I64, 0)};

static bool cumsum_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    *out = *in_type(g, n, 0);
    return axis_valid(n, ((const CumsumAttrs *)n->attr)->axis, out->rank, d);
}

/* clang-format off */
KERNEL(cumsum,
    const int64_t extent = p[0], inner = p[1], chunks = p[2];
    const int64_t first = i % chunks * p[5], n = FMIN(p[5], inner - first);
    const int64_t base = i / chunks * extent * inner + first;
    REAL acc[32];
    for (int64_t c = 0; c < n; c++)
        acc[c] = 0;
    for (int64_t j = 0; j < extent; j++) {
        const int64_t row = base + (p[4] ? extent - 1 - j : j) * inner;
        for (int64_t c = 0; c < n; c++) {
            const REAL before = acc[c];
            acc[c] = before + F(0, row + c);
            SETF(1, row + c, p[3] ? before : acc[c]);
        }
    }
)

KERNEL(cumsum_int,
    const int64_t extent = p[0], inner = p[1], chunks = p[2];
    const int64_t first = i % chunks * p[5], n = FMIN(p[5], inner - first);
    const int64_t base = i / chunks * extent * inner + first;
    uint64_t acc[32];
    for (int64_t c = 0; c < n; c++)
        acc[c] = 0;
    for (int64_t j = 0; j < extent; j++) {
        const int64_t row = base + (p[4] ? extent - 1 - j : j) * inner;
        for (int64_t c = 0; c < n; c++) {
            const uint64_t before = acc[c];
            acc[c] = before + (uint64_t)I(0, row + c);
            SETI(1, row + c, (int64_t)(p[3] ? before : acc[c]));
        }
    }
)
/* clang-format on */

static bool cumsum_lower(Kernel *k, const Graph *g, const Node *n)
{
    const CumsumAttrs *at = n->attr;
    const Type *x = in_type(g, n, 0);
    int axis = (int)at->axis;
    int64_t inner = dims_product(x, axis + 1, x->rank);
    k_param(k, x->dim[axis]);
    k_param(k, inner);
    k_param(k, chunks_of(inner));
    k_param(k, at->exclusive);
    k_param(k, at->reverse);
    k_param(k, CHUNK);
    k->flops = 3.0 * (double)type_count(x);
    k_body(k, dtype_is_float(x->dt) ? &cumsum_body : &cumsum_int_body,
           dims_product(x, 0, axis) * chunks_of(inner));
    return true;
}

static bool cumsum_onnx(OnnxNodes *o, const Graph *g, const Node *n)
{
    const CumsumAttrs *at = n->attr;
    (void)g;
    OnnxVal y = onnx_op2(o, "CumSum", onnx_in(o, 0), onnx_scalar(o, DT_I64, (double)at->axis));
    onnx_attr(o, "exclusive", at->exclusive);
    onnx_attr(o, "reverse", at->reverse);
    onnx_out(o, 0, y);
    return true;
}

static bool cumsum_grad(Grad *gr, const Node *n)
{
    CumsumAttrs at = *(const CumsumAttrs *)n->attr;
    Val dy = grad_out(gr, n, 0);
    at.reverse = !at.reverse;
    grad_add(gr, n->in[0], build(gr->g, OP_cumsum, NULL, 1, &dy, &at));
    return true;
}

const OpDef op_cumsum = {.name = "cumsum", .min_in = 1, .max_in = 1, .nout = 1, .in = IN_SINGLE,
                         ATTRS(cumsum_attrs, CumsumAttrs), .infer = cumsum_infer, .grad = cumsum_grad,
                         .lower = cumsum_lower, .onnx = cumsum_onnx};

/* ---- argmax, argmin x ---------------------------------------------------------------- */

static const AttrDef arg_attrs[] = {ATTR(ArgAttrs, axis, AT_I64, 0), ATTR(ArgAttrs, keepdims, AT_I64, 1),
                                    ATTR(ArgAttrs, last, AT_I64, 0)};

static bool arg_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    const ArgAttrs *at = n->attr;
    const Type *x = in_type(g, n, 0);
    TRY(axis_valid(n, at->axis, x->rank, d));
    if (x->dim[at->axis] == 0)
        return fail(d, "%s: the axis is empty", node_def(n)->name);
    int64_t dim[MAX_RANK];
    int rank = 0;
    for (int i = 0; i < x->rank; i++)
        if (i != at->axis)
            dim[rank++] = x->dim[i];
        else if (at->keepdims)
            dim[rank++] = 1;
    *out = type_make(DT_I64, rank, dim);
    return true;
}

/* The index c where element a is the extremum b, else beyond every index (al). */
static double chosen_f(double a, double b, double c, double al, double be)
{
    (void)be;
    return a == b || a != a ? c : al;
}
static int64_t chosen_i(int64_t a, int64_t b, int64_t c, int64_t al, int64_t be)
{
    (void)be;
    return a == b ? c : al;
}
static const Expr chosen = {"chosen", 3, EXPR_ARITH, "(a == b || a != a) ? c : INT_OF(al)",
                            chosen_f, chosen_i};

static bool arg_lower(Kernel *k, const Graph *g, const Node *n)
{
    const ArgAttrs *at = n->attr;
    const Type *x = in_type(g, n, 0);
    uint32_t axis = 1u << at->axis;
    int64_t stride[MAX_RANK] = {0};
    stride[at->axis] = 1;
    k_space(k, x, axis);
    int v = k_load(k, 0, x), i = k_index(k, stride, 0);
    int best = k_reduce(k, n->op == OP_argmax ? K_MAX : K_MIN, v);
    double none = at->last ? -1 : (double)x->dim[at->axis];
    int where = k_expr(k, &chosen, KT_INT, v, best, i, none, 0);
    k_store_keep(k, 1, k_reduce(k, at->last ? K_MAX : K_MIN, where), axis);
    return true;
}

#define ARG_OP(id)                                                                         \
    const OpDef op_##id = {.name = #id, .min_in = 1, .max_in = 1, .nout = 1, .traits = OPT_ZEROGRAD,         \
                           ATTRS(arg_attrs, ArgAttrs), .infer = arg_infer, .lower = arg_lower}
ARG_OP(argmax);
ARG_OP(argmin);

/* ---- topk x {axis, k, largest} ------------------------------------------------------- */

/* A heap of the indices found so far, the last in order on top, which is sorted at the end: O(extent log k),
 * on random data O(extent + k log(k) log(extent)).  Equal elements keep their order; the values are gathered,
 * so that their gradient is gather's. */

static const AttrDef topk_attrs[] = {ATTR(TopkAttrs, axis, AT_I64, 0), ATTR(TopkAttrs, k, AT_I64, 1),
                                     ATTR(TopkAttrs, largest, AT_I64, 1)};

static bool topk_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    const TopkAttrs *at = n->attr;
    *out = type_with(*in_type(g, n, 0), DT_I64);
    TRY(axis_valid(n, at->axis, out->rank, d));
    if (at->k < 0 || at->k > out->dim[at->axis])
        return fail(d, "topk: k = %lld of %lld", (long long)at->k, (long long)out->dim[at->axis]);
    out->dim[at->axis] = at->k;
    return true;
}

/* clang-format off */
/* A step sifts an item down from place `at`: of the first k, until they are a heap; each further one, from
 * above the top, which it takes or does not; then the last of the heap, whose place the top has.  Of two
 * items the one of the larger index is in front only if its element is. */
KERNEL(topk,
    const int64_t extent = p[0], inner = p[1], k = p[2], heaped = k / 2, looked = heaped + extent - k;
    const int64_t from = i / inner * extent * inner + i % inner;
    const int64_t to = i / inner * k * inner + i % inner;
    for (int64_t j = 0; j < k; j++)
        SETI(1, to + j * inner, j);
    for (int64_t step = 0; k > 0 && step < looked + k - 1; step++) {
        const int64_t size = step < looked ? k : k - 1 - (step - looked);
        int64_t at = step < heaped ? heaped - 1 - step : step < looked ? -1 : 0, next = at;
        const int64_t item = step >= heaped && step < looked ? k + step - heaped
                                                             : I(1, to + (step < heaped ? at : size) * inner);
        if (step >= looked)
            SETI(1, to + size * inner, I(1, to));
        do {
            int64_t last = item;
            at = next;
            for (int64_t below = FMAX(0, 2 * at + 1); below < FMIN(size, 2 * at + 3); below++) {
                const int64_t other = I(1, to + below * inner);
                const int64_t a = from + FMAX(last, other) * inner, b = from + FMIN(last, other) * inner;
                const int before = p[4] ? (p[3] ? I(0, a) > I(0, b) : I(0, a) < I(0, b))
                                        : (p[3] ? F(0, a) > F(0, b) : F(0, a) < F(0, b)) ||
                                          (ISNAN(F(0, a)) && !ISNAN(F(0, b)));
                if (before == (last > other)) {
                    last = other;
                    next = below;
                }
            }
            if (at >= 0)
                SETI(1, to + at * inner, last);
        } while (next != at);
    }
)
/* clang-format on */

static bool topk_lower(Kernel *k, const Graph *g, const Node *n)
{
    const TopkAttrs *at = n->attr;
    const Type *x = in_type(g, n, 0);
    int axis = (int)at->axis;
    int64_t inner = dims_product(x, axis + 1, x->rank);
    k_param(k, x->dim[axis]);
    k_param(k, inner);
    k_param(k, at->k);
    k_param(k, at->largest);
    k_param(k, !dtype_is_float(x->dt));
    k->flops = 4.0 * (double)type_count(x);
    k_body(k, &topk_body, dims_product(x, 0, axis) * inner);
    return true;
}

static bool topk_onnx(OnnxNodes *o, const Graph *g, const Node *n)
{
    const TopkAttrs *at = n->attr;
    (void)g;
    onnx_op2(o, "TopK", onnx_in(o, 0), onnx_ints(o, &at->k, 1));
    onnx_attr(o, "axis", at->axis);
    onnx_attr(o, "largest", at->largest);
    onnx_out(o, 0, onnx_second(o));
    return true;
}

const OpDef op_topk = {.name = "topk", .min_in = 1, .max_in = 1, .nout = 1, .traits = OPT_ZEROGRAD,
                       ATTRS(topk_attrs, TopkAttrs), .infer = topk_infer, .lower = topk_lower,
                       .onnx = topk_onnx};

/* ---- trilu x: the last two dimensions' triangle on one side of diagonal k ------------ */

static const AttrDef trilu_attrs[] = {ATTR(TriluAttrs, k, AT_I64, 0), ATTR(TriluAttrs, upper, AT_I64, 1)};

static bool trilu_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    *out = *in_type(g, n, 0);
    int64_t k = ((const TriluAttrs *)n->attr)->k;
    TRY(out->rank >= 2 || fail(d, "trilu: rank %d", out->rank));
    return (k >= -INT32_MAX && k <= INT32_MAX) || fail(d, "trilu: diagonal out of range");
}

static double upper_f(double a, double b, double c, double al, double be)
{
    (void)c, (void)al, (void)be;
    return b >= 0 ? a : 0;
}
static int64_t upper_i(int64_t a, int64_t b, int64_t c, int64_t al, int64_t be)
{
    (void)c, (void)al, (void)be;
    return b >= 0 ? a : 0;
}
static const Expr upper = {"upper", 2, EXPR_ARITH, "b >= 0 ? a : 0", upper_f, upper_i};

static bool trilu_lower(Kernel *k, const Graph *g, const Node *n)
{
    const TriluAttrs *at = n->attr;
    const Type *x = in_type(g, n, 0);
    int64_t stride[MAX_RANK] = {0}, sign = at->upper ? 1 : -1;
    stride[x->rank - 1] = sign;
    stride[x->rank - 2] = -sign;
    k_space(k, x, 0);
    int v = k_load(k, 0, x), above = k_index(k, stride, -sign * at->k);
    k_store(k, 1, k_expr(k, &upper, k->ins[v].type, v, above, 0, 0, 0));
    return true;
}

static bool trilu_grad(Grad *gr, const Node *n)
{
    Val dy = grad_out(gr, n, 0);
    grad_add(gr, n->in[0], build(gr->g, OP_trilu, NULL, 1, &dy, n->attr));
    return true;
}

const OpDef op_trilu = {.name = "trilu", .min_in = 1, .max_in = 1, .nout = 1,
                        ATTRS(trilu_attrs, TriluAttrs), .infer = trilu_infer, .grad = trilu_grad,
                        .lower = trilu_lower};
