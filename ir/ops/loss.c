/* loss.c -- softmax cross-entropy from logits and integer targets, and its gradient. */
#include "common.h"
#include <math.h>
#include <string.h>

static const AttrDef ce_attrs[] = {
    ATTR(CrossEntropyAttrs, axis, AT_I64, 1), ATTR(CrossEntropyAttrs, ignore, AT_I64, 0),
    ATTR(CrossEntropyAttrs, has_ignore, AT_I64, 0), ATTR(CrossEntropyAttrs, negative, AT_I64, 0),
    ATTR(CrossEntropyAttrs, count, AT_I64, 0)};

static Type without_axis(const Type *t, int64_t axis)
{
    Type r = {.dt = t->dt};
    for (int i = 0; i < t->rank; i++)
        if (i != axis)
            r.dim[r.rank++] = t->dim[i];
    return r;
}

/* Logits at operand `logits`, target behind them. */
static bool classes_valid(const Graph *g, const Node *n, int logits, Type *rest, Diag *d)
{
    const CrossEntropyAttrs *at = n->attr;
    const Type *x = in_type(g, n, logits), *t = in_type(g, n, logits + 1);
    char a[160], b[160];
    TRY(axis_valid(n, at->axis, x->rank, d));
    if (!dtype_is_float(x->dt) || dtype_is_float(t->dt) || t->dt == DT_BOOL)
        return fail(d, "cross_entropy: logits %s, target %s", type_str(x, a), type_str(t, b));
    if (at->count < 0 || at->count > x->dim[at->axis])
        return fail(d, "cross_entropy: %lld classes in logits %s", (long long)at->count, type_str(x, a));
    *rest = without_axis(x, at->axis);
    if (!type_same_shape(rest, t))
        return fail(d, "cross_entropy: logits %s need a target of shape %s, not %s",
                    type_str(x, a), strchr(type_str(rest, b), '['), type_str(t, (char[160]){0}));
    return true;
}

/* operands: logits, target -> loss, top, log_sum */
static bool cross_entropy_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    TRY(classes_valid(g, n, 0, out, d));
    out[1] = out[2] = type_with(out[0], dtype_sum(out->dt));
    return true;
}

/* Instructions both directions share, over the logits' space with the class axis reduced. */
typedef struct {
    int x, hit, kept; /* logit; is this the target's class; 0 where the target is ignored, else 1 */
} Classes;

static Classes classes(Kernel *k, const Graph *g, const Node *n, int logits)
{
    const CrossEntropyAttrs *at = n->attr;
    const Type *x = in_type(g, n, logits);
    uint32_t axis = 1u << at->axis;
    int64_t along[K_DIMS] = {0};
    along[at->axis] = 1;
    k_space(k, x, axis);
    Classes c = {.x = k_load(k, logits, x)};
    int index = k_index(k, along, 0);
    if (class_count(at, x) < x->dim[at->axis]) {
        int seen = k_expr(k, &op_less.expr, KT_INT, index, k_const(k, KT_INT, (double)at->count), 0, 0, 0);
        c.x = k_expr(k, &op_where.expr, KT_REAL, seen, c.x, k_const(k, KT_REAL, -INFINITY), 0, 0);
    }
    int t = k_load_keep(k, logits + 1, axis);
    int class = t;
    if (at->negative) {
        int below = k_expr(k, &op_less.expr, KT_INT, t, k_const(k, KT_INT, 0), 0, 0, 0);
        int count = k_const(k, KT_INT, (double)class_count(at, x));
        class = k_expr(k, &op_where.expr, KT_INT, below,
                       k_expr(k, &op_add.expr, KT_INT, t, count, 0, 0, 0), t, 0, 0);
    }
    c.hit = k_expr(k, &op_equal.expr, KT_INT, index, class, 0, 0, 0);
    c.kept = k_const(k, KT_REAL, 1);
    if (at->has_ignore) {
        int ignored = k_expr(k, &op_equal.expr, KT_INT, t, k_const(k, KT_INT, (double)at->ignore), 0, 0, 0);
        c.kept = k_expr(k, &op_where.expr, KT_REAL, ignored, k_const(k, KT_REAL, 0), c.kept, 0, 0);
    }
    return c;
}

static bool cross_entropy_lower(Kernel *k, const Graph *g, const Node *n)
{
    Classes c = classes(k, g, n, 0);
    uint32_t axis = 1u << ((const CrossEntropyAttrs *)n->attr)->axis;
    int top = k_reduce(k, K_MAX, c.x);
    int sum = k_reduce(k, K_SUM, k_op(k, OP_exp, k_op(k, OP_sub, c.x, top, 0), 0, 0));
    int log_sum = k_op(k, OP_log, sum, 0, 0);
    int mine = k_reduce(k, K_SUM, k_expr(k, &op_where.expr, KT_REAL, c.hit, c.x,
                                         k_const(k, KT_REAL, 0), 0, 0));
    int loss = k_op(k, OP_mul, c.kept, k_op(k, OP_sub, log_sum, k_op(k, OP_sub, mine, top, 0), 0), 0);
    k_store_keep(k, n->nin, loss, axis);
    k_store_keep(k, n->nin + 1, top, axis);
    k_store_keep(k, n->nin + 2, log_sum, axis);
    return true;
}

static bool cross_entropy_grad(Grad *gr, const Node *n)
{
    TRY(only_first_output(gr, n));
    Val in[] = {grad_out(gr, n, 0), n->in[0], n->in[1], n->out[1], n->out[2]};
    grad_add(gr, n->in[0], build(gr->g, OP_cross_entropy_bwd, NULL, 5, in, n->attr));
    return true;
}

const OpDef op_cross_entropy = {.name = "cross_entropy", .min_in = 2, .max_in = 2, .nout = 3, .in = IN_SINGLE,
                                ATTRS(ce_attrs, CrossEntropyAttrs), .infer = cross_entropy_infer,
                                .grad = cross_entropy_grad, .lower = cross_entropy_lower};

/* cross_entropy_bwd dloss, logits, target, top, log_sum -> dlogits = dloss * (softmax - onehot), 0 where the
 * target is ignored */
static bool cross_entropy_bwd_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    Type rest;
    TRY(classes_valid(g, n, 1, &rest, d));
    *out = *in_type(g, n, 1);
    Type row = type_with(rest, dtype_sum(rest.dt));
    return operand_is(g, n, 0, &rest, d) && operand_is(g, n, 3, &row, d) && operand_is(g, n, 4, &row, d);
}

static bool cross_entropy_bwd_lower(Kernel *k, const Graph *g, const Node *n)
{
    Classes c = classes(k, g, n, 1);
    uint32_t axis = 1u << ((const CrossEntropyAttrs *)n->attr)->axis;
    int top = k_load_keep(k, 3, axis), log_sum = k_load_keep(k, 4, axis);
    int dy = k_op(k, OP_mul, k_load_keep(k, 0, axis), c.kept, 0);
    int prob = k_op(k, OP_exp, k_op(k, OP_sub, k_op(k, OP_sub, c.x, top, 0), log_sum, 0), 0, 0);
    int one = k_expr(k, &op_copy.expr, KT_REAL, c.hit, 0, 0, 0, 0);
    k_store(k, n->nin, k_op(k, OP_mul, dy, k_op(k, OP_sub, prob, one, 0), 0));
    k->red = 0; /* nothing is reduced: a pointwise kernel */
    return true;
}

const OpDef op_cross_entropy_bwd = {.name = "cross_entropy_bwd", .min_in = 5, .max_in = 5, .nout = 1,
                                    ATTRS(ce_attrs, CrossEntropyAttrs), .infer = cross_entropy_bwd_infer,
                                    .lower = cross_entropy_bwd_lower};
