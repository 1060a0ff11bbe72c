/* reduce.c -- reductions over any set of axes. */
#include "common.h"
#include <float.h>

static const AttrDef reduce_attrs[] = {ATTR(ReduceAttrs, axes, AT_INTS, 0),
                                       ATTR(ReduceAttrs, keepdims, AT_I64, 1)};

static bool reduce_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    const ReduceAttrs *at = n->attr;
    const Type *x = in_type(g, n, 0);
    *out = (Type){.dt = x->dt};
    for (int i = 0; i < at->axes.n; i++)
        TRY(axis_valid(n, at->axes.v[i], x->rank, d));
    uint32_t mask = axes_mask(&at->axes);
    for (int i = 0; i < x->rank; i++)
        if (!(mask >> i & 1))
            out->dim[out->rank++] = x->dim[i];
        else if (at->keepdims)
            out->dim[out->rank++] = 1;
    return true;
}

static bool reduce_lower(Kernel *k, const Graph *g, const Node *n)
{
    uint32_t mask = axes_mask(&((const ReduceAttrs *)n->attr)->axes);
    const Type *x = in_type(g, n, 0);
    KKind kind = n->op == OP_reduce_max   ? K_MAX
                 : n->op == OP_reduce_min ? K_MIN
                 : n->op == OP_reduce_prod ? K_PROD
                                           : K_SUM;
    k_space(k, x, mask);
    int v = kind == K_MAX || kind == K_MIN ? k_load_compared(k, g, n, 0) : k_load(k, 0, x);
    k_store_keep(k, 1, k_reduce(k, kind, v), mask);
    return true;
}

/* v (a result or its cotangent) with the reduced axes back as extents of 1. */
static Val kept(Graph *g, const Node *n, Val v)
{
    Type t = *val_type(g, n->in[0]);
    uint32_t mask = axes_mask(&((const ReduceAttrs *)n->attr)->axes);
    for (int i = 0; i < t.rank; i++)
        if (mask >> i & 1)
            t.dim[i] = 1;
    return build_reshape(g, v, t.rank, t.dim);
}

static bool sum_grad(Grad *gr, const Node *n)
{
    const Type *x = val_type(gr->g, n->in[0]);
    Val dy = kept(gr->g, n, grad_out(gr, n, 0));
    grad_add(gr, n->in[0], build_expand(gr->g, dy, x->rank, x->dim));
    return true;
}

/* Elements that equal the extremum get the gradient in equal shares (PyTorch's amax). */
static bool extremum_grad(Grad *gr, const Node *n)
{
    Graph *g = gr->g;
    DType dt = val_type(g, n->in[0])->dt;
    Val y = kept(g, n, n->out[0]), dy = kept(g, n, grad_out(gr, n, 0));
    Val hit = build_cast(g, build2(g, OP_equal, n->in[0], y), dt);
    Val hits = build_reduce(g, OP_reduce_sum, hit, axes_mask(&((const ReduceAttrs *)n->attr)->axes), true);
    grad_add(gr, n->in[0], build2(g, OP_mul, hit, build2(g, OP_div, dy, hits)));
    return true;
}

/* The derivative is the product of the others.  With no zero it is y/x; a single zero takes the product
 * of the rest, found by counting zeros and multiplying the non-zero elements. */
static bool prod_grad(Grad *gr, const Node *n)
{
    Graph *g = gr->g;
    Val x = n->in[0], dy = kept(g, n, grad_out(gr, n, 0));
    DType dt = val_type(g, x)->dt;
    uint32_t axes = axes_mask(&((const ReduceAttrs *)n->attr)->axes);
    Val zero = build_scalar(g, dt, 0), one = build_scalar(g, dt, 1);
    Val is0 = build2(g, OP_equal, x, zero), safe = build3(g, OP_where, is0, one, x);
    Val rest = build_reduce(g, OP_reduce_prod, safe, axes, true);
    Val zeros = build_reduce(g, OP_reduce_sum, build_cast(g, is0, dt), axes, true);
    Val others = build2(g, OP_sub, zeros, build_cast(g, is0, dt));
    Val none = build2(g, OP_equal, others, zero);
    Val d = build2(g, OP_mul, dy, build2(g, OP_div, rest, safe));
    grad_add(gr, x, build3(g, OP_where, none, d, zero));
    return true;
}

/* The largest finite number of a type. */
static double largest(DType dt)
{
    return dt == DT_F64 ? DBL_MAX : dt == DT_F16 ? 65504 : dt == DT_BF16 ? 0x1.fep127 : (double)FLT_MAX;
}

/* log(sum(exp(x))), of what is less the maximum; one that is not finite is replaced by the finite number next
 * to it. */
static bool log_sum_exp_lower(Kernel *k, const Graph *g, const Node *n)
{
    uint32_t mask = axes_mask(&((const ReduceAttrs *)n->attr)->axes);
    const Type *x = in_type(g, n, 0);
    k_space(k, x, mask);
    int v = k_load(k, 0, x), low = k_const(k, KT_REAL, -largest(x->dt));
    int high = k_const(k, KT_REAL, largest(x->dt));
    int top = k_op(k, OP_min, k_op(k, OP_max, k_reduce(k, K_MAX, v), low, 0), high, 0);
    int sum = k_reduce(k, K_SUM, k_op(k, OP_exp, k_op(k, OP_sub, v, top, 0), 0, 0));
    k_store_keep(k, 1, k_op(k, OP_add, k_op(k, OP_log, sum, 0, 0), top, 0), mask);
    return true;
}

/* dx = dy * exp(x - y); where all are -inf, so is y, and dx is 0. */
static bool log_sum_exp_grad(Grad *gr, const Node *n)
{
    Graph *g = gr->g;
    DType dt = val_type(g, n->in[0])->dt;
    Val y = build2(g, OP_max, kept(g, n, n->out[0]), build_scalar(g, dt, -largest(dt)));
    Val e = build1(g, OP_exp, build2(g, OP_sub, n->in[0], y));
    grad_add(gr, n->in[0], build2(g, OP_mul, e, kept(g, n, grad_out(gr, n, 0))));
    return true;
}

#define REDUCE(id, computes, grad_fn, lower_fn)                                                              \
    const OpDef op_##id = {.name = #id, .min_in = 1, .max_in = 1, .nout = 1, .in = computes,                 \
                           ATTRS(reduce_attrs, ReduceAttrs), .infer = reduce_infer, .grad = grad_fn,         \
                           .lower = lower_fn};
REDUCE(reduce_sum, IN_SINGLE, sum_grad, reduce_lower)
REDUCE(reduce_max, IN_WIDEST, extremum_grad, reduce_lower)
REDUCE(reduce_min, IN_WIDEST, extremum_grad, reduce_lower)
REDUCE(reduce_prod, IN_SINGLE, prod_grad, reduce_lower)
REDUCE(reduce_log_sum_exp, IN_SINGLE, log_sum_exp_grad, log_sum_exp_lower)
