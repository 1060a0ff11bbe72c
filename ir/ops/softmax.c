/* softmax.c -- softmax and log-softmax along one axis, with their gradients. */
#include "common.h"

static const AttrDef axis_attrs[] = {ATTR(AxisAttrs, axis, AT_I64, -1)};

static bool axis_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    TRY(infer_same(g, n, out, d));
    TRY(dtype_is_float(out->dt) || fail(d, "%s: operand is %s", node_def(n)->name, dtype_name[out->dt]));
    return axis_valid(n, ((const AxisAttrs *)n->attr)->axis, out->rank, d);
}

/* Space of operand 0 with the axis reduced; returns the load of operand 0. */
static int row_space(Kernel *k, const Graph *g, const Node *n)
{
    const Type *x = in_type(g, n, 0);
    k_space(k, x, 1u << ((const AxisAttrs *)n->attr)->axis);
    return k_load(k, 0, x);
}

static bool softmax_lower(Kernel *k, const Graph *g, const Node *n)
{
    int x = row_space(k, g, n);
    int e = k_op(k, OP_exp, k_op(k, OP_sub, x, k_reduce(k, K_MAX, x), 0), 0, 0);
    int scale = k_op(k, OP_reciprocal, k_reduce(k, K_SUM, e), 0, 0); /* one division per row */
    k_store(k, 1, k_op(k, OP_mul, e, scale, 0));
    return true;
}

/* dx = y * (dy - sum(dy * y)); operands y, dy */
static bool softmax_bwd_lower(Kernel *k, const Graph *g, const Node *n)
{
    int y = row_space(k, g, n), dy = k_load(k, 1, in_type(g, n, 1));
    int s = k_reduce(k, K_SUM, k_op(k, OP_mul, dy, y, 0));
    k_store(k, 2, k_op(k, OP_mul, y, k_op(k, OP_sub, dy, s, 0), 0));
    return true;
}

static bool log_softmax_lower(Kernel *k, const Graph *g, const Node *n)
{
    int x = row_space(k, g, n);
    int c = k_op(k, OP_sub, x, k_reduce(k, K_MAX, x), 0);
    int s = k_reduce(k, K_SUM, k_op(k, OP_exp, c, 0, 0));
    k_store(k, 1, k_op(k, OP_sub, c, k_op(k, OP_log, s, 0, 0), 0));
    return true;
}

/* dx = dy - exp(y) * sum(dy) */
static bool log_softmax_bwd_lower(Kernel *k, const Graph *g, const Node *n)
{
    int y = row_space(k, g, n), dy = k_load(k, 1, in_type(g, n, 1));
    int e = k_op(k, OP_exp, y, 0, 0);
    k_store(k, 2, k_op(k, OP_sub, dy, k_op(k, OP_mul, e, k_reduce(k, K_SUM, dy), 0), 0));
    return true;
}

static bool any_grad(Grad *gr, const Node *n)
{
    Val in[] = {n->out[0], grad_out(gr, n, 0)};
    grad_add(gr, n->in[0], build(gr->g, (Op)(n->op + 1), NULL, 2, in, n->attr));
    return true;
}

#define ROW(id, nin, gradient)                                                               \
    const OpDef op_##id = {.name = #id, .min_in = nin, .max_in = nin, .nout = 1, .in = IN_SINGLE,            \
                           ATTRS(axis_attrs, AxisAttrs), .infer = axis_infer, .grad = gradient,              \
                           .lower = id##_lower};
ROW(softmax, 1, any_grad)
ROW(softmax_bwd, 2, NULL)
ROW(log_softmax, 1, any_grad)
ROW(log_softmax_bwd, 2, NULL)
