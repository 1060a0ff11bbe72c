/* unary.c -- expands unary.def: every row becomes an operator, and its derivative another. */
#include "common.h"
#include "../kernel_math.h"

const AttrDef pointwise_attrs[2] = {ATTR(PointwiseAttrs, al, AT_F64, 0), ATTR(PointwiseAttrs, be, AT_F64, 0)};

bool infer_same(const Graph *g, const Node *n, Type *out, Diag *d)
{
    out[0] = *in_type(g, n, 0);
    for (int i = 1; i < n->nin; i++)
        TRY(operand_is(g, n, i, out, d));
    return true;
}

static bool infer_bool(const Graph *g, const Node *n, Type *out, Diag *d)
{
    TRY(infer_same(g, n, out, d));
    out[0].dt = DT_BOOL;
    return true;
}

/* Rows with a derivative are real functions; these few make sense on integers as well. */
static bool infer_real(const Graph *g, const Node *n, Type *out, Diag *d)
{
    static const Op also_integer[] = {OP_neg, OP_abs, OP_square, OP_cube, OP_powc, OP_relu, OP_clip};
    TRY(infer_same(g, n, out, d));
    bool ok = dtype_is_float(out->dt);
    for (size_t i = 0; i < COUNT(also_integer); i++)
        ok |= n->op == also_integer[i];
    return ok || fail(d, "%s: operand is %s", node_def(n)->name, dtype_name[out->dt]);
}

/* The type of a derivative's result: the cotangent and the saved value are broadcast. */
static bool infer_bwd(const Graph *g, const Node *n, Type *out, Diag *d)
{
    TRY(infer_broadcast(g, n, out, d));
    for (int i = 0; i < n->nin; i++)
        if (!dtype_is_float(in_type(g, n, i)->dt) || in_type(g, n, i)->dt != out->dt)
            return fail(d, "%s: operand %d is %s", node_def(n)->name, i, dtype_name[in_type(g, n, i)->dt]);
    return true;
}

/* One instruction between a load of each operand and a store. */
static bool pointwise_lower(Kernel *k, const Graph *g, const Node *n)
{
    const PointwiseAttrs *at = n->attr;
    const Type *t = out_type(g, n, 0);
    int a[2] = {0, 0};
    k_space(k, t, 0);
    for (int i = 0; i < n->nin; i++)
        a[i] = k_load(k, i, in_type(g, n, i));
    KType type = dtype_is_float(in_type(g, n, 0)->dt) ? KT_REAL : KT_INT;
    k_store(k, n->nin, k_expr(k, &node_def(n)->expr, type, a[0], a[1], 0, at->al, at->be));
    return true;
}

/* dx = name_bwd(dy, saved); the derivative's operator follows the function's in ops.def. */
static bool unary_grad(Grad *gr, const Node *n, const char *saves)
{
    Graph *g = gr->g;
    Val dy = grad_out(gr, n, 0), x = n->in[0];
    Val saved = *saves == 'y' ? n->out[0] : x;
    Val in[2] = {dy, saved};
    PointwiseAttrs at = *(const PointwiseAttrs *)n->attr;
    grad_add(gr, x, build(g, (Op)(n->op + 1), NULL, *saves ? 2 : 1, in, &at));
    return true;
}

/* Adds nothing: the gradient is zero almost everywhere. */
static bool zero_grad(Grad *gr, const Node *n)
{
    (void)gr, (void)n;
    return true;
}

static bool copy_grad(Grad *gr, const Node *n)
{
    grad_add(gr, n->in[0], grad_out(gr, n, 0));
    return true;
}

#define ROW_FN(name, text)                                                                   \
    static double name##_f(double a, double b, double c, double al, double be)               \
    {                                                                                        \
        (void)a, (void)b, (void)c, (void)al, (void)be;                                       \
        return (double)(text);                                                               \
    }                                                                                        \
    static int64_t name##_i(int64_t a, int64_t b, int64_t c, int64_t al, int64_t be)         \
    {                                                                                        \
        (void)a, (void)b, (void)c, (void)al, (void)be;                                       \
        return INT_OF(text);                                                                 \
    }
#define ROW_OP(id, n, tr, computes, infer_fn, grad_fn, cost, txt)                                     \
    const OpDef op_##id = {.name = #id, .min_in = n, .max_in = n, .nout = 1,                 \
                           .traits = OPT_POINTWISE | (tr), .in = computes,                   \
                           ATTRS(pointwise_attrs, PointwiseAttrs),                           \
                           .infer = infer_fn, .grad = grad_fn, .lower = pointwise_lower,     \
                           .expr = {#id, n, cost, txt, id##_f, id##_i}};

#define infer_not infer_bool
#define infer_isnan infer_bool
#define infer_isinf infer_bool
#define infer_copy infer_same
#define infer_sign infer_same
#define infer_floor infer_same
#define infer_ceil infer_same
#define infer_round infer_same
#define infer_trunc infer_same
#define infer_bitnot infer_same

/* clang-format off */
#define UN(id, tr, cost, y)                                                                  \
    ROW_FN(id, y)                                                                            \
    ROW_OP(id, 1, tr, IN_WIDEST, infer_##id, (tr) ? zero_grad : copy_grad, EXPR_##cost, #y)
#define UNG(id, saves, single, cost, y, cost_bwd, dx)                                        \
    ROW_FN(id, y)                                                                            \
    ROW_FN(id##_bwd, dx)                                                                     \
    static bool id##_grad(Grad *gr, const Node *n) { return unary_grad(gr, n, saves); }      \
    ROW_OP(id, 1, 0, IN_##single, infer_real, id##_grad, EXPR_##cost, #y)                                 \
    ROW_OP(id##_bwd, (sizeof(saves) > 1 ? 2 : 1), 0, IN_WIDEST, infer_bwd, NULL, EXPR_##cost_bwd, #dx)
#include "unary.def"
/* clang-format on */
