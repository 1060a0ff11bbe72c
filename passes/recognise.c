/* recognise.c -- decomposed forms become native operators.
 *
 * Exporters write norms and activations as chains of elementary operators; recognising them
 * saves the intermediate values that the chain's gradient would keep.  One function per form;
 * the order of the operands of + and * is tried both ways. */
#include "../ir/attrs.h"
#include "rewrite.h"
#include <math.h>

static Val none(void) { return (Val){0}; }

static bool near(double a, double b) { return fabs(a - b) <= 1e-3 * fabs(b); }

/* v = c * x with a constant c (or x / (1/c)): x, else {0} */
static Val scaled(const Rewrite *rw, Val v, double *c)
{
    const Node *m = rewrite_def(rw, v, OP_mul), *d = rewrite_def(rw, v, OP_div);
    if (m && rewrite_scalar(rw, m->in[1], c))
        return m->in[0];
    if (m && rewrite_scalar(rw, m->in[0], c))
        return m->in[1];
    if (d && rewrite_scalar(rw, d->in[1], c)) {
        *c = 1 / *c;
        return d->in[0];
    }
    return none();
}

/* v = x + c */
static Val shifted(const Rewrite *rw, Val v, double *c)
{
    const Node *a = rewrite_def(rw, v, OP_add);
    if (a && rewrite_scalar(rw, a->in[1], c))
        return a->in[0];
    if (a && rewrite_scalar(rw, a->in[0], c))
        return a->in[1];
    return none();
}

/* x ^ constant */
static Val rule_power(Rewrite *rw, const Node *n)
{
    double c;
    if (n->op != OP_pow || !rewrite_scalar(rw, n->in[1], &c) ||
        !dtype_is_float(val_type(rw->g, n->in[0])->dt))
        return none();
    Val x = n->in[0];
    if (c == 1)
        return x;
    static const struct { double power; Op op; } special[] = {
        {2, OP_square}, {3, OP_cube}, {0.5, OP_sqrt}, {-1, OP_reciprocal}, {-0.5, OP_rsqrt}};
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        if (c == special[i].power)
            return build(rw->g, special[i].op, n->name, 1, &x, NULL);
    return build(rw->g, OP_powc, n->name, 1, &x, &(PointwiseAttrs){.al = c});
}

/* x * x */
static Val rule_square(Rewrite *rw, const Node *n)
{
    return n->op == OP_mul && n->in[0].i == n->in[1].i ? build(rw->g, OP_square, n->name, 1, n->in, NULL)
                                                       : none();
}

/* x * sigmoid(x) */
static Val rule_silu(Rewrite *rw, const Node *n)
{
    for (int i = 0; n->op == OP_mul && i < 2; i++) {
        const Node *s = rewrite_def(rw, n->in[i], OP_sigmoid);
        if (s && s->in[0].i == n->in[1 - i].i)
            return build(rw->g, OP_silu, n->name, 1, s->in, &(PointwiseAttrs){.al = 1});
    }
    return none();
}

/* The x of gate(x) = 1 + erf(x / sqrt 2), or 1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)). */
static Val gelu_gate(const Rewrite *rw, Val v, Op *op)
{
    double c;
    Val inner = shifted(rw, v, &c);
    if (!inner.i || c != 1)
        return none();
    const Node *e = rewrite_def(rw, inner, OP_erf), *t = rewrite_def(rw, inner, OP_tanh);
    if (e) {
        *op = OP_gelu;
        Val x = scaled(rw, e->in[0], &c);
        return x.i && near(c, 0.70710678118654752) ? x : none();
    }
    Val sum = t ? scaled(rw, t->in[0], &c) : none();
    const Node *add = sum.i && near(c, 0.79788456080286536) ? rewrite_def(rw, sum, OP_add) : NULL;
    *op = OP_gelu_tanh;
    for (int i = 0; add && i < 2; i++) {
        Val cube = scaled(rw, add->in[i], &c);
        const Node *p = cube.i && near(c, 0.044715) ? rewrite_def(rw, cube, OP_cube) : NULL;
        if (p && p->in[0].i == add->in[1 - i].i)
            return p->in[0];
    }
    return none();
}

/* 0.5 * x * gate(x), the three factors in any order and grouping */
static Val rule_gelu(Rewrite *rw, const Node *n)
{
    Val factor[3];
    int nf = 0;
    double c = 1, k;
    if (n->op != OP_mul)
        return none();
    for (int i = 0; i < 2; i++) {
        const Node *m = rewrite_def(rw, n->in[i], OP_mul);
        Val part[2] = {n->in[i], none()};
        if (m) {
            part[0] = m->in[0];
            part[1] = m->in[1];
        }
        for (int j = 0; j < 2 && part[j].i; j++) {
            Val half = none();
            if (rewrite_scalar(rw, part[j], &k))
                c *= k;
            else if ((half = scaled(rw, part[j], &k)).i && near(k, 0.5))
                c *= k, factor[nf < 2 ? nf++ : 2] = half;
            else if (nf < 3)
                factor[nf++] = part[j];
        }
    }
    if (nf != 2 || !near(c, 0.5))
        return none();
    for (int i = 0; i < 2; i++) {
        Op op;
        Val x = gelu_gate(rw, factor[i], &op);
        if (x.i && x.i == factor[1 - i].i)
            return build(rw->g, op, n->name, 1, &x, NULL);
    }
    return none();
}

static Rule *const rules[] = {rule_power, rule_square, rule_silu, rule_gelu, NULL};

bool pass_recognise(Graph *g, PassCtx *cx)
{
    return rewrite_run(g, cx->tmp, rules, false, &cx->changed);
}
