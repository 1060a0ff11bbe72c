/* import_training.c -- ai.onnx.preview.training: differentiation and optimizers as
 * operators.
 *
 * Operands of an optimizer: learning rate R, update count T, then tensors X..., gradients
 * G..., and one or two lists of state.  Results: new tensors, then new state. */
#include "onnx_int.h"

typedef struct {
    Graph *g;
    Val rate, count; /* count as a float */
    int n;           /* number of tensors */
    double decay;    /* norm_coefficient: G + decay X */
} Optimizer;

static Val mul(Graph *g, Val a, Val b) { return build2(g, OP_mul, a, b); }
static Val add(Graph *g, Val a, Val b) { return build2(g, OP_add, a, b); }
static Val sub(Graph *g, Val a, Val b) { return build2(g, OP_sub, a, b); }

static bool read_update(OnnxNode *n, int lists, Optimizer *u)
{
    if (n->nin < 2 + lists || (n->nin - 2) % lists || !has_in(n, 0) || !has_in(n, 1))
        return fail(n->x->d, "%d operands", n->nin);
    for (int i = 2; i < n->nin; i++)
        if (!has_in(n, i))
            return fail(n->x->d, "operand %d is missing", i);
    *u = (Optimizer){n->g,
                     build_reshape(n->g, n->in[0], 0, NULL),
                     {0},
                     (n->nin - 2) / lists,
                     attr_float(n, "norm_coefficient", 0)};
    u->count = build_cast(n->g, build_reshape(n->g, n->in[1], 0, NULL), in_type(n, 0)->dt);
    return u->rate.i && u->count.i && n->nout == (lists - 1) * u->n;
}

static Val regularized(const Optimizer *u, Val x, Val grad)
{
    return u->decay == 0 ? grad : add(u->g, grad, mul_scalar(u->g, x, u->decay));
}

static bool import_adagrad(OnnxNode *n)
{
    Optimizer u;
    Graph *g = n->g;
    TRY(read_update(n, 3, &u));
    double eps = attr_float(n, "epsilon", 1e-6), slow = attr_float(n, "decay_factor", 0);
    Val rate = build2(g, OP_div, u.rate, add_scalar(g, mul_scalar(g, u.count, slow), 1));
    for (int i = 0; i < u.n; i++) {
        Val x = n->in[2 + i], h = n->in[2 + 2 * u.n + i];
        Val grad = regularized(&u, x, n->in[2 + u.n + i]);
        h = add(g, h, one(g, OP_square, grad));
        Val step = build2(g, OP_div, mul(g, rate, grad), add_scalar(g, one(g, OP_sqrt, h), eps));
        n->out[i] = sub(g, x, step);
        n->out[u.n + i] = h;
    }
    return n->out[0].i;
}

/* rate * sqrt(1 - beta^T) / (1 - alpha^T), or the rate itself while T is 0. */
static Val corrected(const Optimizer *u, double alpha, double beta)
{
    Graph *g = u->g;
    Val none = build2(g, OP_less_equal, u->count, scalar_like(g, u->count, 0));
    Val t = build3(g, OP_where, none, scalar_like(g, u->count, 1), u->count);
    Val a = build2(g, OP_pow, scalar_like(g, t, alpha), t);
    Val b = build2(g, OP_pow, scalar_like(g, t, beta), t);
    Val factor = build2(g, OP_div, one(g, OP_sqrt, sub(g, scalar_like(g, t, 1), b)),
                        sub(g, scalar_like(g, t, 1), a));
    return build3(g, OP_where, none, u->rate, mul(g, u->rate, factor));
}

static bool import_adam(OnnxNode *n)
{
    Optimizer u;
    Graph *g = n->g;
    TRY(read_update(n, 4, &u));
    double alpha = attr_float(n, "alpha", 0.9), beta = attr_float(n, "beta", 0.999);
    double eps = attr_float(n, "epsilon", 1e-6);
    double after = attr_float(n, "norm_coefficient_post", 0);
    Val rate = corrected(&u, alpha, beta);
    for (int i = 0; i < u.n; i++) {
        Val x = n->in[2 + i], v = n->in[2 + 2 * u.n + i], h = n->in[2 + 3 * u.n + i];
        Val grad = regularized(&u, x, n->in[2 + u.n + i]);
        v = add(g, mul_scalar(g, v, alpha), mul_scalar(g, grad, 1 - alpha));
        h = add(g, mul_scalar(g, h, beta), mul_scalar(g, one(g, OP_square, grad), 1 - beta));
        Val root = add_scalar(g, one(g, OP_sqrt, h), eps);
        x = sub(g, x, build2(g, OP_div, mul(g, rate, v), root));
        n->out[i] = after == 0 ? x : mul_scalar(g, x, 1 - after);
        n->out[u.n + i] = v;
        n->out[2 * u.n + i] = h;
    }
    return n->out[0].i;
}

static bool import_momentum(OnnxNode *n)
{
    Optimizer u;
    Graph *g = n->g;
    TRY(read_update(n, 3, &u));
    double alpha = attr_float(n, "alpha", 0), beta = attr_float(n, "beta", 1);
    bool nesterov = attr_is(n, "mode", "standard", "nesterov");
    Val later = build2(g, OP_less, scalar_like(g, u.count, 0), u.count);
    Val weight = build3(g, OP_where, later, scalar_like(g, u.rate, beta), scalar_like(g, u.rate, 1));
    for (int i = 0; i < u.n; i++) {
        Val x = n->in[2 + i], v = n->in[2 + 2 * u.n + i];
        Val grad = regularized(&u, x, n->in[2 + u.n + i]);
        v = add(g, mul_scalar(g, v, alpha), mul(g, weight, grad));
        Val step = nesterov ? add(g, grad, mul_scalar(g, v, alpha)) : v;
        n->out[i] = sub(g, x, mul(g, u.rate, step));
        n->out[u.n + i] = v;
    }
    return n->out[0].i;
}

/* ---- Gradient: of the tensor y with respect to the tensors xs, all named by attributes
 * ---- */

static const char *string_at(const OnnxNode *n, const Onnx__AttributeProto *a, int k)
{
    return arena_strndup(n->x->a, (const char *)a->strings[k].data, a->strings[k].len);
}

static bool import_gradient(OnnxNode *n)
{
    Graph *g = n->g;
    const Onnx__AttributeProto *xs = attr_find(n, "xs");
    const char *name = attr_str(n, "y", "");
    int count = xs ? (int)xs->n_strings : 0;
    Val y, *x = NEW(n->x->a, Val, count + 1), *grad = NEW(n->x->a, Val, count + 1);
    if (count != n->nout || count > n->nin || !scope_find(n->x, name, &y) || !y.i || y.i >= g->nvals)
        return fail(n->x->d, "xs, y and the operands do not fit together");
    for (int i = 0; i < count; i++) {
        if (!scope_find(n->x, string_at(n, xs, i), &x[i]) || x[i].i != n->in[i].i)
            return refuse(n, "an operand other than the tensor of xs");
        if (graph_is_const(g, x[i]))
            return refuse(n, "'%s' is a constant", string_at(n, xs, i));
    }
    TRY(autodiff(g, y, x, (uint32_t)count, grad));
    for (int i = 0; i < count; i++)
        n->out[i] = grad[i].i ? grad[i] : build_filled(g, x[i], 0);
    return true;
}

#define PREVIEW .domain = "ai.onnx.preview.training"
const OnnxOp onnx_training[] = {
    {"Adagrad", 1, .import = import_adagrad, PREVIEW},
    {"Adam", 1, .import = import_adam, PREVIEW},
    {"Gradient", 1, .import = import_gradient, PREVIEW},
    {"Momentum", 1, .import = import_momentum, PREVIEW},
    {0},
};
