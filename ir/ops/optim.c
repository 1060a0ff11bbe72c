/* optim.c -- optimizer updates in PyTorch's form (torch.optim.SGD, AdamW, Adafactor, single tensor); Lion.
 *
 * Results overwrite parameter and state in place; the scalars lr, bias1 and bias2 are inputs.  A
 * scalar, scale, may follow: the gradient is multiplied by it (limits on its norm, a loss that was scaled);
 * and a bool: where it is false, the results are the operands, whatever the gradient is. */
#include "common.h"

#define MUL(a, b) k_op(k, OP_mul, (a), (b), 0)
#define ADD(a, b) k_op(k, OP_add, (a), (b), 0)
#define SUB(a, b) k_op(k, OP_sub, (a), (b), 0)
#define DIVIDE(a, b) k_op(k, OP_div, (a), (b), 0)
#define CONST(v) k_const(k, KT_REAL, (v))

/* Parameter and gradient, then the state, all of one shape; then scalars. */
static bool update_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    int nout = node_def(n)->nout;
    out[0] = *in_type(g, n, 0);
    for (int i = 1; i < n->nin; i++) {
        const Type *t = in_type(g, n, i);
        bool fits = i <= nout ? dtype_is_float(t->dt) && type_same_shape(out, t) : t->rank == 0;
        if (!fits)
            return fail(d, "%s: operand %d has an unfit type", node_def(n)->name, i);
        if (i > 1 && i <= nout)
            out[i - 1] = *t;
    }
    return dtype_is_float(out->dt) || fail(d, "%s: parameter is not real", node_def(n)->name);
}

static int load(Kernel *k, const Graph *g, const Node *n, int i) { return k_load(k, i, in_type(g, n, i)); }

/* Operand 1, the gradient, times operand `scale` if there is one. */
static int load_grad(Kernel *k, const Graph *g, const Node *n, int scale)
{
    int grad = load(k, g, n, 1);
    return has_in(n, scale) ? MUL(grad, load(k, g, n, scale)) : grad;
}

/* Operand i, or the value v if operand `apply` is true or absent. */
static int updated(Kernel *k, const Graph *g, const Node *n, int i, int v, int apply)
{
    if (!has_in(n, apply))
        return v;
    return k_expr(k, &op_where.expr, KT_REAL, load(k, g, n, apply), v, load(k, g, n, i), 0, 0);
}

/* The parameter after decoupled weight decay: p * (1 - lr * decay). */
static int kept(Kernel *k, int p, int lr, double decay)
{
    return MUL(p, SUB(CONST(1), MUL(lr, CONST(decay))));
}

/* ---- sgd p, g, lr -> p' ------------------------------------------------------------------ */

static const AttrDef sgd_attrs[] = {
    ATTR(SgdAttrs, momentum, AT_F64, 0), ATTR(SgdAttrs, dampening, AT_F64, 0),
    ATTR(SgdAttrs, weight_decay, AT_F64, 0), ATTR(SgdAttrs, nesterov, AT_I64, 0)};

static int decayed(Kernel *k, const SgdAttrs *at, int p, int grad)
{
    return at->weight_decay != 0 ? ADD(grad, MUL(p, CONST(at->weight_decay))) : grad;
}

static bool sgd_lower(Kernel *k, const Graph *g, const Node *n)
{
    k_space(k, in_type(g, n, 0), 0);
    int p = load(k, g, n, 0), lr = load(k, g, n, 2);
    int next = SUB(p, MUL(lr, decayed(k, n->attr, p, load_grad(k, g, n, 3))));
    k_store(k, n->nin, updated(k, g, n, 0, next, 4));
    return true;
}

const OpDef op_sgd = {.name = "sgd", .min_in = 3, .max_in = 5, .nout = 1, .traits = OPT_ONCE,
                      ATTRS(sgd_attrs, SgdAttrs), .infer = update_infer, .lower = sgd_lower};

/* ---- momentum p, g, buf, lr, first -> p', buf' -------------------------------------------------
 * first is 1 on the first step (the buffer starts as the gradient, undampened), else 0. */
static bool momentum_lower(Kernel *k, const Graph *g, const Node *n)
{
    const SgdAttrs *at = n->attr;
    k_space(k, in_type(g, n, 0), 0);
    int p = load(k, g, n, 0), buf = load(k, g, n, 2), lr = load(k, g, n, 3);
    int grad = decayed(k, at, p, load_grad(k, g, n, 5));
    int next = ADD(MUL(buf, CONST(at->momentum)), MUL(grad, CONST(1 - at->dampening)));
    next = k_expr(k, &op_where.expr, KT_REAL, load(k, g, n, 4), grad, next, 0, 0);
    int step = at->nesterov ? ADD(grad, MUL(next, CONST(at->momentum))) : next;
    k_store(k, n->nin, updated(k, g, n, 0, SUB(p, MUL(lr, step)), 6));
    k_store(k, n->nin + 1, updated(k, g, n, 2, next, 6));
    return true;
}

const OpDef op_momentum = {.name = "momentum", .min_in = 5, .max_in = 7, .nout = 2, .traits = OPT_ONCE,
                           ATTRS(sgd_attrs, SgdAttrs), .infer = update_infer, .lower = momentum_lower};

/* ---- adamw p, g, m, v, lr, bias1, bias2 -> p', m', v' ---------------------------------------- */

static const AttrDef adam_attrs[] = {
    ATTR(AdamAttrs, beta1, AT_F64, 0.9), ATTR(AdamAttrs, beta2, AT_F64, 0.999),
    ATTR(AdamAttrs, eps, AT_F64, 1e-8), ATTR(AdamAttrs, weight_decay, AT_F64, 0.01)};

static bool adamw_lower(Kernel *k, const Graph *g, const Node *n)
{
    const AdamAttrs *at = n->attr;
    k_space(k, in_type(g, n, 0), 0);
    int p = load(k, g, n, 0), grad = load_grad(k, g, n, 7), m = load(k, g, n, 2);
    int v = load(k, g, n, 3), lr = load(k, g, n, 4);
    int step = DIVIDE(lr, load(k, g, n, 5));
    int root = k_op(k, OP_sqrt, load(k, g, n, 6), 0, 0);
    m = ADD(m, MUL(SUB(grad, m), CONST(1 - at->beta1)));
    v = ADD(MUL(v, CONST(at->beta2)), MUL(MUL(grad, grad), CONST(1 - at->beta2)));
    int denom = ADD(DIVIDE(k_op(k, OP_sqrt, v, 0, 0), root), CONST(at->eps));
    int next = SUB(kept(k, p, lr, at->weight_decay), MUL(step, DIVIDE(m, denom)));
    k_store(k, n->nin, updated(k, g, n, 0, next, 8));
    k_store(k, n->nin + 1, updated(k, g, n, 2, m, 8));
    k_store(k, n->nin + 2, updated(k, g, n, 3, v, 8));
    return true;
}

const OpDef op_adamw = {.name = "adamw", .min_in = 7, .max_in = 9, .nout = 3, .traits = OPT_ONCE,
                        ATTRS(adam_attrs, AdamAttrs), .infer = update_infer, .lower = adamw_lower};

/* ---- lion p, g, m, lr -> p', m' --------------------------------------------------------------
 * X. Chen et al., Symbolic Discovery of Optimization Algorithms, NeurIPS 2023, algorithm 2. */
static const AttrDef lion_attrs[] = {ATTR(LionAttrs, beta1, AT_F64, 0.9),
                                     ATTR(LionAttrs, beta2, AT_F64, 0.99),
                                     ATTR(LionAttrs, weight_decay, AT_F64, 0)};

static int mixed(Kernel *k, int m, int grad, double beta)
{
    return ADD(MUL(m, CONST(beta)), MUL(grad, CONST(1 - beta)));
}

static bool lion_lower(Kernel *k, const Graph *g, const Node *n)
{
    const LionAttrs *at = n->attr;
    k_space(k, in_type(g, n, 0), 0);
    int p = load(k, g, n, 0), grad = load_grad(k, g, n, 4), m = load(k, g, n, 2), lr = load(k, g, n, 3);
    int sign = k_op(k, OP_sign, mixed(k, m, grad, at->beta1), 0, 0);
    k_store(k, n->nin, updated(k, g, n, 0, SUB(kept(k, p, lr, at->weight_decay), MUL(lr, sign)), 5));
    k_store(k, n->nin + 1, updated(k, g, n, 2, mixed(k, m, grad, at->beta2), 5));
    return true;
}

const OpDef op_lion = {.name = "lion", .min_in = 4, .max_in = 6, .nout = 2, .traits = OPT_ONCE,
                       ATTRS(lion_attrs, LionAttrs), .infer = update_infer, .lower = lion_lower};

/* ---- adafactor p, g, r, rate, lr, [c] -> p' ------------------------------------------------------
 * The mean of the squares of g is r * c, or r. */
static const AttrDef adafactor_attrs[] = {ATTR(AdafactorAttrs, least, AT_F64, 0),
                                          ATTR(AdafactorAttrs, weight_decay, AT_F64, 0)};

static bool adafactor_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    out[0] = *in_type(g, n, 0);
    for (int i = 1; i < n->nin; i++) {
        const Type *t = in_type(g, n, i);
        bool fits = (i == 7 || dtype_is_float(t->dt)) && t->rank == (i < 3 || i == 5 ? out->rank : 0);
        for (int k = 0; k < t->rank && fits; k++)
            fits = t->dim[k] == out->dim[k] || (i > 1 && t->dim[k] == 1);
        if (n->in[i].i && !fits)
            return fail(d, "adafactor: operand %d has an unfit type", i);
    }
    return dtype_is_float(out->dt) || fail(d, "adafactor: parameter is not real");
}

static bool adafactor_lower(Kernel *k, const Graph *g, const Node *n)
{
    const AdafactorAttrs *at = n->attr;
    k_space(k, in_type(g, n, 0), 0);
    int p = load(k, g, n, 0), grad = load_grad(k, g, n, 6), mean = load(k, g, n, 2);
    if (has_in(n, 5))
        mean = MUL(mean, load(k, g, n, 5));
    int root = k_op(k, OP_sqrt, k_op(k, OP_max, mean, CONST(at->least), 0), 0, 0);
    int step = MUL(load(k, g, n, 3), DIVIDE(grad, root));
    int next = SUB(kept(k, p, load(k, g, n, 4), at->weight_decay), step);
    k_store(k, n->nin, updated(k, g, n, 0, next, 7));
    return true;
}

const OpDef op_adafactor = {.name = "adafactor", .min_in = 5, .max_in = 8, .nout = 1, .traits = OPT_ONCE,
                            ATTRS(adafactor_attrs, AdafactorAttrs), .infer = adafactor_infer,
                            .lower = adafactor_lower};
