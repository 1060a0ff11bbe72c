/* random.c -- counter-based randomness: dropout, uniform and normal tensors.
 *
 * A draw is a function of (seed, key, step, element), Philox4x32-10 (Salmon et al., "Parallel random
 * numbers: as easy as 1, 2, 3", SC 2011): recomputing a node replays its numbers for free.  The
 * rng operand is i64[2] = (seed, step); the key is the node's own. */
#include "common.h"
#include "../kernel_math.h"

/* a: seed, b: step, c: element, al: key */
static double uniform_f(double a, double b, double c, double al, double be)
{
    (void)be;
    return PHILOX_UNIFORM(a, al, b, c);
}
static double normal_f(double a, double b, double c, double al, double be)
{
    (void)be;
    return PHILOX_NORMAL(a, al, b, c);
}
static const Expr uniform_expr = {"philox_uniform", 3, EXPR_UNIFORM, "PHILOX_UNIFORM(a, al, b, c)",
                                  uniform_f, NULL};
static const Expr normal_expr = {"philox_normal", 3, EXPR_NORMAL, "PHILOX_NORMAL(a, al, b, c)",
                                 normal_f, NULL};

/* One draw per element of the space. */
static int draw(Kernel *k, const Expr *e, int rng, int64_t key)
{
    int64_t none[K_DIMS] = {0}, linear[K_DIMS] = {0};
    Type t = type_make(DT_F32, k->rank, k->extent);
    type_strides(&t, linear);
    int seed = k_load_at(k, rng, 0, none), step = k_load_at(k, rng, 1, none);
    return k_expr(k, e, KT_REAL, seed, step, k_index(k, linear, 0), (double)key, 0);
}

/* ---- dropout x, rng {p, key} ---------------------------------------------------------- */

static const AttrDef dropout_attrs[] = {ATTR(DropoutAttrs, p, AT_F64, 0.5),
                                        ATTR(DropoutAttrs, key, AT_I64, 0)};

static bool rng_valid(const Graph *g, const Node *n, int operand, Diag *d)
{
    Type rng = type_make(DT_I64, 1, (int64_t[]){2});
    return operand_is(g, n, operand, &rng, d);
}

static bool dropout_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    *out = *in_type(g, n, 0);
    TRY(dtype_is_float(out->dt) || fail(d, "dropout: data is %s", dtype_name[out->dt]));
    return rng_valid(g, n, 1, d);
}

/* a: x, b: draw, al: p, be: 1 / (1 - p) */
static double keep_f(double a, double b, double c, double al, double be)
{
    (void)c;
    return b >= al ? a * be : 0;
}
static const Expr keep_expr = {"dropout", 2, EXPR_ARITH, "b >= al ? a * be : 0", keep_f, NULL};

static bool dropout_lower(Kernel *k, const Graph *g, const Node *n)
{
    const DropoutAttrs *at = n->attr;
    k_space(k, out_type(g, n, 0), 0);
    int x = k_load(k, 0, in_type(g, n, 0)), u = draw(k, &uniform_expr, 1, at->key);
    double scale = at->p < 1 ? 1 / (1 - at->p) : 0;
    k_store(k, 2, k_expr(k, &keep_expr, KT_REAL, x, u, 0, at->p, scale));
    return true;
}

/* The mask is the operator's own function of the element: the gradient applies it again. */
static bool dropout_grad(Grad *gr, const Node *n)
{
    Val in[] = {grad_out(gr, n, 0), n->in[1]};
    grad_add(gr, n->in[0], build(gr->g, OP_dropout, NULL, 2, in, n->attr));
    return true;
}

const OpDef op_dropout = {.name = "dropout", .min_in = 2, .max_in = 2, .nout = 1, .traits = OPT_RANDOM,
                          ATTRS(dropout_attrs, DropoutAttrs), .infer = dropout_infer, .grad = dropout_grad,
                          .lower = dropout_lower};

/* ---- uniform rng, normal rng {shape, dtype, key, lo, hi} --------------------------------- */

static const AttrDef random_attrs[] = {
    ATTR(RandomAttrs, shape, AT_INTS, 0), ATTR(RandomAttrs, dtype, AT_DTYPE, DT_F32),
    ATTR(RandomAttrs, key, AT_I64, 0), ATTR(RandomAttrs, lo, AT_F64, 0), ATTR(RandomAttrs, hi, AT_F64, 1)};

static bool random_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    const RandomAttrs *at = n->attr;
    TRY(rng_valid(g, n, 0, d));
    if (!dtype_is_float((DType)at->dtype))
        return fail(d, "%s: type is not real", node_def(n)->name);
    return shape_type(n, (DType)at->dtype, &at->shape, out, d);
}

static double affine_f(double a, double b, double c, double al, double be)
{
    (void)b, (void)c;
    return al + a * be;
}
static const Expr affine_expr = {"affine", 1, EXPR_ARITH, "al + a * be", affine_f, NULL};

static bool random_lower(Kernel *k, const Graph *g, const Node *n)
{
    const RandomAttrs *at = n->attr;
    bool normal = n->op == OP_normal;
    k_space(k, out_type(g, n, 0), 0);
    int u = draw(k, normal ? &normal_expr : &uniform_expr, 0, at->key);
    double scale = normal ? at->hi : at->hi - at->lo;
    k_store(k, 1, k_expr(k, &affine_expr, KT_REAL, u, 0, 0, at->lo, scale));
    return true;
}

#define RANDOM(id)                                                                           \
    const OpDef op_##id = {.name = #id, .min_in = 1, .max_in = 1, .nout = 1,                                 \
                           .traits = OPT_RANDOM | OPT_ZEROGRAD,                                              \
                           ATTRS(random_attrs, RandomAttrs), .infer = random_infer, .lower = random_lower};
RANDOM(uniform)
RANDOM(normal)
