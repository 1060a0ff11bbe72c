/* binary.c -- expands binary.def; gradients of the arithmetic ones; where and cast. */
#include "common.h"
#include "../kernel_math.h"

bool infer_broadcast(const Graph *g, const Node *n, Type *out, Diag *d)
{
    *out = *in_type(g, n, 0);
    for (int i = 1; i < n->nin; i++) {
        char a[160], b[160];
        const Type *t = in_type(g, n, i);
        if (!type_broadcast(out, t))
            return fail(d, "%s: shapes %s and %s do not broadcast", node_def(n)->name,
                        type_str(out, a), type_str(t, b));
        if (t->dt != in_type(g, n, n->nin - 1)->dt && i + 1 < n->nin)
            return fail(d, "%s: operand types differ", node_def(n)->name);
    }
    return true;
}

static bool infer_T(const Graph *g, const Node *n, Type *out, Diag *d)
{
    TRY(infer_broadcast(g, n, out, d));
    if (in_type(g, n, 0)->dt != in_type(g, n, 1)->dt)
        return fail(d, "%s: operands are %s and %s", node_def(n)->name,
                    dtype_name[in_type(g, n, 0)->dt], dtype_name[in_type(g, n, 1)->dt]);
    return true;
}

static bool infer_B(const Graph *g, const Node *n, Type *out, Diag *d)
{
    TRY(infer_T(g, n, out, d));
    out->dt = DT_BOOL;
    return true;
}

static bool binary_lower(Kernel *k, const Graph *g, const Node *n)
{
    const PointwiseAttrs *at = n->attr;
    k_space(k, out_type(g, n, 0), 0);
    bool compares = n->op == OP_equal || n->op == OP_max || n->op == OP_min;
    int a = compares ? k_load_compared(k, g, n, 0) : k_load(k, 0, in_type(g, n, 0));
    int b = compares ? k_load_compared(k, g, n, 1) : k_load(k, 1, in_type(g, n, 1));
    KType type = out_type(g, n, 0)->dt == DT_BOOL || !dtype_is_float(in_type(g, n, 0)->dt) ? KT_INT : KT_REAL;
    k_store(k, 2, k_expr(k, &node_def(n)->expr, type, a, b, 0, at->al, at->be));
    return true;
}

/* ---- gradient builders: cotangent of operand `i` ---------------------------------- */

typedef Val GradFn(Graph *g, const Node *n, int i, Val dy);

static Val grad_pass(Graph *g, const Node *n, int i, Val dy)
{
    (void)g, (void)n, (void)i;
    return dy;
}

static Val grad_negate(Graph *g, const Node *n, int i, Val dy)
{
    (void)n, (void)i;
    return build1(g, OP_neg, dy);
}

static Val grad_times_other(Graph *g, const Node *n, int i, Val dy)
{
    return build2(g, OP_mul, dy, n->in[1 - i]);
}

static Val grad_div_a(Graph *g, const Node *n, int i, Val dy)
{
    (void)i;
    return build2(g, OP_div, dy, n->in[1]);
}

/* -dy * y / b */
static Val grad_div_b(Graph *g, const Node *n, int i, Val dy)
{
    (void)i;
    return build1(g, OP_neg, build2(g, OP_mul, dy, build2(g, OP_div, n->out[0], n->in[1])));
}

/* dy * b * a^(b-1), 0 where b = 0 */
static Val grad_pow_a(Graph *g, const Node *n, int i, Val dy)
{
    (void)i;
    DType dt = val_type(g, n->in[1])->dt;
    Val zero = build_scalar(g, dt, 0), one = build_scalar(g, dt, 1);
    Val p = build2(g, OP_pow, n->in[0], build2(g, OP_sub, n->in[1], one));
    Val slope = build2(g, OP_mul, n->in[1], p);
    slope = build3(g, OP_where, build2(g, OP_equal, n->in[1], zero), zero, slope);
    return build2(g, OP_mul, dy, slope);
}

/* dy * y * log a where a > 0, else 0 */
static Val grad_pow_b(Graph *g, const Node *n, int i, Val dy)
{
    (void)i;
    DType dt = val_type(g, n->in[0])->dt;
    Val zero = build_scalar(g, dt, 0), one = build_scalar(g, dt, 1);
    Val positive = build2(g, OP_less, zero, n->in[0]);
    Val lg = build1(g, OP_log, build3(g, OP_where, positive, n->in[0], one));
    return build2(g, OP_mul, dy, build2(g, OP_mul, n->out[0], lg));
}

/* Cotangent where this operand is the result; split evenly on ties, as PyTorch does. */
static Val grad_if_chosen(Graph *g, const Node *n, int i, Val dy)
{
    DType dt = val_type(g, dy)->dt;
    Val mine = build2(g, OP_equal, n->in[i], n->out[0]);
    Val tie = build2(g, OP_equal, n->in[0], n->in[1]);
    Val half = build2(g, OP_mul, dy, build_scalar(g, dt, 0.5));
    Val share = build3(g, OP_where, tie, half, dy);
    return build3(g, OP_where, mine, share, build_scalar(g, dt, 0));
}

/* a - b * q with q = a / b rounded to an integer: d/db = -q */
static Val grad_quotient(Graph *g, const Node *n, Op rounding, Val dy)
{
    Val q = build1(g, rounding, build2(g, OP_div, n->in[0], n->in[1]));
    return build1(g, OP_neg, build2(g, OP_mul, dy, q));
}

static Val grad_fmod_b(Graph *g, const Node *n, int i, Val dy)
{
    (void)i;
    return grad_quotient(g, n, OP_trunc, dy);
}

static Val grad_mod_b(Graph *g, const Node *n, int i, Val dy)
{
    (void)i;
    return grad_quotient(g, n, OP_floor, dy);
}

static Val grad_prelu_a(Graph *g, const Node *n, int i, Val dy)
{
    (void)i;
    Val zero = build_scalar(g, val_type(g, dy)->dt, 0);
    Val below = build2(g, OP_less_equal, n->in[0], zero);
    return build3(g, OP_where, below, build2(g, OP_mul, dy, n->in[1]), dy);
}

static Val grad_prelu_b(Graph *g, const Node *n, int i, Val dy)
{
    (void)i;
    Val zero = build_scalar(g, val_type(g, dy)->dt, 0);
    return build2(g, OP_mul, dy, build2(g, OP_min, n->in[0], zero));
}

static bool binary_grad(Grad *gr, const Node *n, GradFn *da, GradFn *db)
{
    Val dy = grad_out(gr, n, 0);
    if (da && grad_wants(gr, n, 0))
        grad_add(gr, n->in[0], da(gr->g, n, 0, dy));
    if (db && grad_wants(gr, n, 1))
        grad_add(gr, n->in[1], db(gr->g, n, 1, dy));
    return true;
}

/* clang-format off */
#define BIN(id, res, single, cost, text, da, db)                                             \
    static double id##_f(double a, double b, double c, double al, double be)                 \
    {                                                                                        \
        (void)c, (void)al, (void)be;                                                         \
        return (double)(text);                                                               \
    }                                                                                        \
    static int64_t id##_i(int64_t a, int64_t b, int64_t c, int64_t al, int64_t be)           \
    {                                                                                        \
        (void)c, (void)al, (void)be;                                                         \
        return INT_OF(text);                                                                 \
    }                                                                                        \
    static bool id##_grad(Grad *gr, const Node *n) { return binary_grad(gr, n, da, db); }    \
    const OpDef op_##id = {.name = #id, .min_in = 2, .max_in = 2, .nout = 1,                 \
                           .traits = OPT_POINTWISE, .in = IN_##single,                       \
                           ATTRS(pointwise_attrs, PointwiseAttrs), .infer = infer_##res,     \
                           .grad = id##_grad, .lower = binary_lower,                         \
                           .expr = {#id, 2, EXPR_##cost, #text, id##_f, id##_i}};
#include "binary.def"
/* clang-format on */

/* ---- where c, x, y ------------------------------------------------------------------- */

static double where_f(double a, double b, double c, double al, double be)
{
    (void)al, (void)be;
    return a != 0 ? b : c;
}
static int64_t where_i(int64_t a, int64_t b, int64_t c, int64_t al, int64_t be)
{
    (void)al, (void)be;
    return a != 0 ? b : c;
}

static bool where_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    TRY(infer_broadcast(g, n, out, d));
    if (in_type(g, n, 1)->dt != in_type(g, n, 2)->dt)
        return fail(d, "where: operands are %s and %s", dtype_name[in_type(g, n, 1)->dt],
                    dtype_name[in_type(g, n, 2)->dt]);
    out->dt = in_type(g, n, 1)->dt;
    return true;
}

static bool where_lower(Kernel *k, const Graph *g, const Node *n)
{
    int a[3];
    k_space(k, out_type(g, n, 0), 0);
    for (int i = 0; i < 3; i++)
        a[i] = k_load(k, i, in_type(g, n, i));
    KType type = dtype_is_float(out_type(g, n, 0)->dt) ? KT_REAL : KT_INT;
    k_store(k, 3, k_expr(k, &op_where.expr, type, a[0], a[1], a[2], 0, 0));
    return true;
}

static bool where_grad(Grad *gr, const Node *n)
{
    Val dy = grad_out(gr, n, 0), zero = build_scalar(gr->g, val_type(gr->g, dy)->dt, 0);
    if (grad_wants(gr, n, 1))
        grad_add(gr, n->in[1], build3(gr->g, OP_where, n->in[0], dy, zero));
    if (grad_wants(gr, n, 2))
        grad_add(gr, n->in[2], build3(gr->g, OP_where, n->in[0], zero, dy));
    return true;
}

const OpDef op_where = {.name = "where", .min_in = 3, .max_in = 3, .nout = 1,
                        .traits = OPT_POINTWISE, .infer = where_infer, .grad = where_grad,
                        .lower = where_lower,
                        .expr = {"where", 3, EXPR_ARITH, "a != 0 ? b : c", where_f, where_i}};

/* ---- cast ------------------------------------------------------------------------------- */

static const AttrDef cast_attrs[] = {ATTR(CastAttrs, dtype, AT_DTYPE, DT_F32)};

static bool cast_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    (void)d;
    *out = type_with(*in_type(g, n, 0), (DType)((const CastAttrs *)n->attr)->dtype);
    return true;
}

static double nonzero_f(double a, double b, double c, double al, double be)
{
    (void)b, (void)c, (void)al, (void)be;
    return a != 0;
}
static int64_t nonzero_i(int64_t a, int64_t b, int64_t c, int64_t al, int64_t be)
{
    (void)b, (void)c, (void)al, (void)be;
    return a != 0;
}

static bool cast_lower(Kernel *k, const Graph *g, const Node *n)
{
    static const Expr nonzero = {"nonzero", 1, EXPR_ARITH, "a != 0", nonzero_f, nonzero_i};
    DType to = out_type(g, n, 0)->dt;
    k_space(k, out_type(g, n, 0), 0);
    int a = k_load(k, 0, in_type(g, n, 0));
    KType type = dtype_is_float(to) ? KT_REAL : KT_INT;
    k_store(k, 1, k_expr(k, to == DT_BOOL ? &nonzero : &op_copy.expr, type, a, 0, 0, 0, 0));
    return true;
}

static bool cast_grad(Grad *gr, const Node *n)
{
    DType from = val_type(gr->g, n->in[0])->dt;
    if (dtype_is_float(from) && dtype_is_float(val_type(gr->g, n->out[0])->dt))
        grad_add(gr, n->in[0], build_cast(gr->g, grad_out(gr, n, 0), from));
    return true;
}

const OpDef op_cast = {.name = "cast", .min_in = 1, .max_in = 1, .nout = 1,
                       .traits = OPT_POINTWISE, ATTRS(cast_attrs, CastAttrs),
                       .infer = cast_infer, .grad = cast_grad, .lower = cast_lower,
                       .expr = {"cast", 1, EXPR_ARITH, "a", NULL, NULL}};
