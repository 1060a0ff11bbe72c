/* recognise_activation.c -- powers, scalar chains and activation functions.
 *
 * Products are compared as sets of factors (form_product), so 0.5 * x * (1 + erf), its regroupings
 * and x * (0.5 + 0.5 * erf) are one form. */
#include "recognise.h"
#include <math.h>

static DType type_of(const Rewrite *rw, Val v) { return val_type(rw->g, v)->dt; }

static bool is_float(const Rewrite *rw, const Node *n) { return dtype_is_float(type_of(rw, n->in[0])); }

static Val unary(Rewrite *rw, const Node *n, Op op, Val x, double al, double be)
{
    return build(rw->g, op, n->name, 1, &x, &(PointwiseAttrs){al, be});
}

/* ---- powers -------------------------------------------------------------------------- */

/* x ^ constant */
Val rule_power(Rewrite *rw, const Node *n)
{
    double c;
    if (n->op != OP_pow || !rewrite_scalar(rw, n->in[1], &c) || !is_float(rw, n))
        return none();
    if (c == 1)
        return n->in[0];
    static const struct { double power; Op op; } special[] = {
        {2, OP_square}, {3, OP_cube}, {0.5, OP_sqrt}, {-1, OP_reciprocal}, {-0.5, OP_rsqrt}};
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        if (c == special[i].power)
            return unary(rw, n, special[i].op, n->in[0], 0, 0);
    return unary(rw, n, OP_powc, n->in[0], c, 0);
}

/* x * x, x * x^2 */
Val rule_square(Rewrite *rw, const Node *n)
{
    if (n->op != OP_mul || !is_float(rw, n))
        return none();
    if (n->in[0].i == n->in[1].i)
        return unary(rw, n, OP_square, n->in[0], 0, 0);
    for (int i = 0; i < 2; i++) {
        const Node *s = rewrite_def(rw, n->in[i], OP_square);
        if (s && s->in[0].i == n->in[1 - i].i && rewrite_once(rw, n->in[i]))
            return unary(rw, n, OP_cube, s->in[0], 0, 0);
    }
    return none();
}

/* 1 / x, 1 / sqrt(x) */
Val rule_inverse(Rewrite *rw, const Node *n)
{
    double c;
    Val x = form_inverse(rw, n->out[0], &c);
    if (!x.i || c != 1 || !is_float(rw, n))
        return none();
    const Node *s = rewrite_def(rw, x, OP_sqrt);
    if (s)
        return unary(rw, n, OP_rsqrt, s->in[0], 0, 0);
    return n->op == OP_div ? unary(rw, n, OP_reciprocal, x, 0, 0) : none();
}

/* ---- chains of scalars --------------------------------------------------------------- */

/* (x * a) * b, divisions and negations included: x * ab */
Val rule_fold_scale(Rewrite *rw, const Node *n)
{
    double a, b;
    Val y = form_scaled(rw, n->out[0], &b), x = y.i ? form_scaled(rw, y, &a) : none();
    if (!x.i || !rewrite_once(rw, y) || !is_float(rw, n))
        return none();
    return form_folded(rw, n->name, OP_mul, x, a * b);
}

/* (x + a) + b */
Val rule_fold_shift(Rewrite *rw, const Node *n)
{
    double a, b;
    Val y = form_shifted(rw, n->out[0], &b), x = y.i ? form_shifted(rw, y, &a) : none();
    if (!x.i || !rewrite_once(rw, y) || !is_float(rw, n))
        return none();
    return form_folded(rw, n->name, OP_add, x, a + b);
}

/* ---- sigmoid and its products -------------------------------------------------------- */

/* 1 / (1 + exp(-x)) */
Val rule_sigmoid(Rewrite *rw, const Node *n)
{
    double c;
    Val sum = n->op == OP_reciprocal ? n->in[0] : none();
    Val e = sum.i ? form_shifted(rw, sum, &c) : none();
    const Node *p = e.i && c == 1 ? rewrite_def(rw, e, OP_exp) : NULL;
    Val x = p ? form_scaled(rw, p->in[0], &c) : none();
    return x.i && c == -1 ? unary(rw, n, OP_sigmoid, x, 0, 0) : none();
}

/* x * sigmoid(al * x), x / (1 + exp(-al * x)) */
Val rule_silu(Rewrite *rw, const Node *n)
{
    double c = 1;
    for (int i = 0; n->op == OP_mul && i < 2; i++) {
        const Node *s = rewrite_def(rw, n->in[i], OP_sigmoid);
        Val x = n->in[1 - i];
        if (!s || !rewrite_once(rw, n->in[i]))
            continue;
        if (s->in[0].i == x.i)
            return unary(rw, n, OP_silu, x, 1, 0);
        if (form_scaled(rw, s->in[0], &c).i == x.i)
            return unary(rw, n, OP_silu, x, c, 0);
    }
    Val e = n->op == OP_div && is_float(rw, n) ? form_shifted(rw, n->in[1], &c) : none();
    const Node *p = e.i && c == 1 ? rewrite_def(rw, e, OP_exp) : NULL;
    if (p && form_scaled(rw, p->in[0], &c).i == n->in[0].i)
        return unary(rw, n, OP_silu, n->in[0], -c, 0);
    return none();
}

/* ---- GELU ---------------------------------------------------------------------------- */

/* arg = sqrt(2/pi) * (x + 0.044715 * x^3), or with x factored out */
static bool is_tanh_argument(const Rewrite *rw, Val arg, Val x)
{
    DType dt = type_of(rw, x);
    double c, one;
    Monomial p = form_product(rw, arg);
    if (!form_near(p.c, 0.79788456080286536, dt))
        return false;
    const Node *sum = p.n == 1 ? rewrite_def(rw, p.factor[0], OP_add) : NULL;
    for (int i = 0; sum && i < 2; i++)
        if (sum->in[i].i == x.i && form_monomial(rw, sum->in[1 - i], x, 3, &c) && form_near(c, 0.044715, dt))
            return true;
    for (int i = 0; p.n == 2 && i < 2; i++) {
        Val square = p.factor[i].i == x.i ? form_shifted(rw, p.factor[1 - i], &one) : none();
        if (square.i && one == 1 && form_monomial(rw, square, x, 2, &c) && form_near(c, 0.044715, dt))
            return true;
    }
    return false;
}

/* gate = shift + scale * erf(x / sqrt 2) or shift + scale * tanh(...) with scale = shift */
static bool is_gelu_gate(const Rewrite *rw, Val gate, Val x, double *shift, Op *op)
{
    double scale, c;
    Val f = form_shifted(rw, gate, shift), inner = f.i ? form_scaled(rw, f, &scale) : none();
    if (!inner.i)
        scale = 1, inner = f;
    if (!inner.i || !form_near(scale, *shift, type_of(rw, x)))
        return false;
    const Node *e = rewrite_def(rw, inner, OP_erf), *t = rewrite_def(rw, inner, OP_tanh);
    *op = e ? OP_gelu : OP_gelu_tanh;
    if (e)
        return form_scaled(rw, e->in[0], &c).i == x.i && form_near(c, 0.70710678118654752, type_of(rw, x));
    return t && is_tanh_argument(rw, t->in[0], x);
}

/* 0.5 * x * (1 + erf(x / sqrt 2)) and its tanh approximation */
Val rule_gelu(Rewrite *rw, const Node *n)
{
    double shift;
    Op op;
    if (n->op != OP_mul && n->op != OP_div)
        return none();
    Monomial p = form_product(rw, n->out[0]);
    for (int i = 0; p.n == 2 && i < 2; i++) {
        Val x = p.factor[i], gate = p.factor[1 - i];
        if (is_gelu_gate(rw, gate, x, &shift, &op) && rewrite_once(rw, gate) &&
            form_near(p.c * shift, 0.5, type_of(rw, x)))
            return unary(rw, n, op, x, 0, 0);
    }
    return none();
}

/* ---- softplus, mish, the hard ones --------------------------------------------------- */

/* log(1 + exp(x)) */
Val rule_softplus(Rewrite *rw, const Node *n)
{
    double c = 1;
    Val e = n->op == OP_log1p ? n->in[0]
            : n->op == OP_log ? form_shifted(rw, n->in[0], &c)
                              : none();
    const Node *p = e.i && c == 1 ? rewrite_def(rw, e, OP_exp) : NULL;
    return p ? unary(rw, n, OP_softplus, p->in[0], 0, 0) : none();
}

/* x * tanh(softplus(x)) */
Val rule_mish(Rewrite *rw, const Node *n)
{
    for (int i = 0; n->op == OP_mul && i < 2; i++) {
        const Node *t = rewrite_def(rw, n->in[i], OP_tanh);
        const Node *s = t ? rewrite_def(rw, t->in[0], OP_softplus) : NULL;
        if (s && s->in[0].i == n->in[1 - i].i && rewrite_once(rw, n->in[i]))
            return unary(rw, n, OP_mish, s->in[0], 0, 0);
    }
    return none();
}

/* clip(x + b, 0, c) / c */
Val rule_hardsigmoid(Rewrite *rw, const Node *n)
{
    double c, b;
    if (n->op != OP_mul && n->op != OP_div)
        return none();
    const Node *clip = rewrite_def(rw, form_scaled(rw, n->out[0], &c), OP_clip);
    const PointwiseAttrs *at = clip ? clip->attr : NULL;
    if (!clip || at->al != 0 || !form_near(c * at->be, 1, type_of(rw, n->in[0])))
        return none();
    Val x = form_shifted(rw, clip->in[0], &b);
    return x.i ? unary(rw, n, OP_hardsigmoid, x, 1 / at->be, b / at->be) : none();
}

/* x * hardsigmoid(x), or x * clip(x + 3, 0, 6) / 6 with the division last */
Val rule_hardswish(Rewrite *rw, const Node *n)
{
    double b;
    if (n->op != OP_mul && n->op != OP_div)
        return none();
    Monomial p = form_product(rw, n->out[0]);
    for (int i = 0; p.n == 2 && i < 2; i++) {
        Val x = p.factor[i], gate = p.factor[1 - i];
        DType dt = type_of(rw, x);
        const Node *h = rewrite_def(rw, gate, OP_hardsigmoid), *c = rewrite_def(rw, gate, OP_clip);
        const PointwiseAttrs *at = h ? h->attr : c ? c->attr : NULL;
        if (!at || !rewrite_once(rw, gate))
            continue;
        bool hard = h && h->in[0].i == x.i && form_near(at->al, 1.0 / 6, dt) && at->be == 0.5 && p.c == 1;
        bool six = c && at->al == 0 && at->be == 6 && form_near(p.c, 1.0 / 6, dt) &&
                   form_shifted(rw, c->in[0], &b).i == x.i && b == 3;
        if (hard || six)
            return unary(rw, n, OP_hardswish, x, 0, 0);
    }
    return none();
}

/* max(x, 0): the gradient of relu needs the result, which the next operator keeps anyway */
Val rule_relu(Rewrite *rw, const Node *n)
{
    double c;
    for (int i = 0; n->op == OP_max && is_float(rw, n) && i < 2; i++)
        if (rewrite_scalar(rw, n->in[i], &c) && c == 0)
            return unary(rw, n, OP_relu, n->in[1 - i], 0, 0);
    return none();
}
