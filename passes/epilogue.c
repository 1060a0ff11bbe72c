/* epilogue.c -- pointwise operators join the operator that makes their operand, on devices whose operators
 * have epilogues: products add a row (a bias) and a matrix (a residual, or another gradient), gradients of
 * attention and of gather_elements are stored in the 16 bits in which they are read; the product in front of
 * a GELU makes both values, and the product that makes the gradient of a GELU's result makes that of its
 * operand.
 *
 * The result goes through memory once instead of two or three times.  A product that is added to wider
 * numbers is not rounded before that.  Products that may be split later stay as they are. */
#include "../ir/attrs.h"
#include "fuse.h"
#include "rewrite.h"
#include <string.h>

static bool is_product(const Node *n)
{
    return n && (n->op == OP_matmul || (n->op == OP_matmul_bias && !n->in[2].i)) && !n->group;
}

enum { NEAR = 16 };

/* Is n one of the last nodes so far, with no update of a parameter, which n may read, behind it? */
static bool is_near(const Graph *g, const Node *n)
{
    for (uint32_t k = g->norder; k > 0 && g->norder - k < NEAR; k--) {
        const Node *last = &g->nodes[g->order[k - 1].i];
        if (last->out[0].i == n->out[0].i)
            return true;
        if (node_def(last)->traits & OPT_ONCE)
            return false;
    }
    return false;
}

/* The product that v is, behind views and, if `casts`, casts to a wider type, if nothing else reads it; NULL:
 * there is none. */
static const Node *product_behind(const Rewrite *rw, Val v, bool casts)
{
    const Graph *g = rw->g;
    const Node *n = graph_def(g, v);
    while (n && rewrite_once(rw, v) && (n->op == OP_reshape || (casts && node_widens(g, n)))) {
        v = n->in[0];
        n = graph_def(g, v);
    }
    return is_product(n) && rewrite_once(rw, v) && node_split_rows(g, n) == SPLIT_NONE && is_near(g, n)
               ? n
               : NULL;
}

/* Is v one row for all rows of t? */
static bool is_row(const Graph *g, Val v, const Type *t)
{
    const Type *b = val_type(g, v);
    return b->dt == t->dt && t->dt != DT_F64 && b->rank >= 1 && b->rank <= t->rank && t->rank > 1 &&
           b->dim[b->rank - 1] == t->dim[t->rank - 1] && type_count(b) == b->dim[b->rank - 1];
}

/* a b + bias */
static Val rule_bias(Rewrite *rw, const Node *n)
{
    Graph *g = rw->g;
    for (int i = 0; n->op == OP_add && i < 2; i++) {
        const Node *p = product_behind(rw, n->in[i], false);
        const Type *t = val_type(g, n->out[0]), *y = p ? val_type(g, p->out[0]) : NULL;
        if (!p || p->op != OP_matmul || !is_row(g, n->in[1 - i], t) || !is_row(g, n->in[1 - i], y) ||
            type_count(t) != type_count(y))
            continue;
        Val in[] = {p->in[0], p->in[1], none(), build_reshape(g, n->in[1 - i], 1, &t->dim[t->rank - 1])};
        return build_reshape(g, build(g, OP_matmul_bias, n->name, 4, in, p->attr), t->rank, t->dim);
    }
    return none();
}

/* v in type dt: the operand of the narrowing cast that v is, if that has type dt, else a cast of v. */
static Val widened(Graph *g, Val v, DType dt)
{
    const Node *n = graph_def(g, v);
    bool narrowed = n && n->op == OP_cast && val_type(g, n->in[0])->dt == dt;
    return narrowed ? n->in[0] : build_cast(g, v, dt);
}

/* Is v part of another value, and read by nothing else?  A pointwise sum reads it where it lies; for a
 * product it would be copied first. */
static bool is_part(const Rewrite *rw, Val v)
{
    const Node *n = graph_def(rw->g, v);
    while (n && rewrite_once(rw, v) && n->op == OP_reshape) {
        v = n->in[0];
        n = graph_def(rw->g, v);
    }
    return n && n->op == OP_slice && rewrite_once(rw, v);
}

/* c + (a b [+ bias]) */
static Val rule_add(Rewrite *rw, const Node *n)
{
    Graph *g = rw->g;
    const Type *t = val_type(g, n->out[0]);
    for (int i = 0; n->op == OP_add && i < 2; i++) {
        const Node *p = product_behind(rw, n->in[i], true);
        if (!p || !type_equal(t, val_type(g, n->in[1 - i])) ||
            type_count(t) != type_count(val_type(g, p->out[0])) || is_part(rw, n->in[1 - i]))
            continue;
        Type y = *val_type(g, p->out[0]);
        if (t->dt != y.dt && t->dt != dtype_sum(val_type(g, p->in[0])->dt))
            continue;
        MatmulAttrs at = *(const MatmulAttrs *)p->attr;
        at.out = t->dt == val_type(g, p->in[0])->dt ? DT_NONE : t->dt;
        Val in[] = {p->in[0], p->in[1], build_reshape(g, n->in[1 - i], y.rank, y.dim),
                    p->op == OP_matmul_bias ? widened(g, p->in[3], t->dt) : none()};
        bool bias = in[3].i != 0;
        Val v = build(g, bias ? OP_matmul_bias : OP_matmul_add, n->name, bias ? 4 : 3, in, &at);
        return build_reshape(g, v, t->rank, t->dim);
    }
    return none();
}

/* ---- gradients that are stored in 16 bits -------------------------------------------------------- */

typedef struct {
    Val *as;     /* per value, as of rewrite_as() */
    bool *other; /* per value: something else than a cast to 16 bits reads it */
} Narrow;

static bool is_narrowing(const Graph *g, const Node *n)
{
    return n->op == OP_cast && dtype_is_half(val_type(g, n->out[0])->dt);
}

static void find_others(const Graph *g, Narrow *x)
{
    for (uint32_t k = 0; k < g->norder; k++) {
        const Node *n = &g->nodes[g->order[k].i];
        for (int i = 0; i < n->nin; i++)
            x->other[n->in[i].i] |= !is_narrowing(g, n);
    }
    for (uint32_t i = 0; i < g->nout; i++)
        x->other[g->out[i].i] = true;
    for (uint32_t i = 0; i < g->nupdate; i++)
        x->other[g->update[i].value.i] = true;
}

/* The attribute of n that names the type of its results, and the operand whose 16-bit type they may have;
 * NULL: n has none.  Sums by index are rounded by a kernel that has whole rows of them in shared memory. */
static int64_t *result_type(const Graph *g, const Node *n, int *of)
{
    enum { ROW = 2048 /* elements */ };
    if (n->op == OP_attention_grad || n->op == OP_attention_packed_grad) {
        *of = 1; /* q */
        return &((AttentionAttrs *)n->attr)->out;
    }
    if (n->op != OP_gather_elements_bwd)
        return NULL;
    ElementsBwdAttrs *at = n->attr;
    const Type *x = val_type(g, n->out[0]);
    *of = 0;
    return at->axis == x->rank - 1 && x->dim[at->axis] <= ROW ? &at->out : NULL;
}

/* Stores n's results in 16 bits, where it can and nothing reads them wider. */
static void narrow(Graph *g, const Node *n, Narrow *x)
{
    int of;
    int64_t *type = result_type(g, n, &of);
    DType half = type ? val_type(g, n->in[of])->dt : DT_NONE;
    bool all = dtype_is_half(half) && *type == DT_NONE;
    for (int i = 0; i < n->nout; i++)
        all &= !x->other[n->out[i].i];
    if (!all)
        return;
    *type = half;
    for (int i = 0; i < n->nout; i++)
        g->vals[n->out[i].i].type.dt = half;
}

static bool narrow_gradients(Graph *g, Arena *tmp)
{
    Narrow x = {NEW(tmp, Val, g->nvals), NEW(tmp, bool, g->nvals)};
    bool any = false;
    find_others(g, &x);
    for (uint32_t k = 0; k < g->norder; k++) {
        Node *n = &g->nodes[g->order[k].i];
        for (int i = 0; i < n->nin; i++)
            n->in[i] = rewrite_as(x.as, n->in[i]);
        narrow(g, n, &x);
        if (is_narrowing(g, n) && type_equal(val_type(g, n->in[0]), val_type(g, n->out[0]))) {
            x.as[n->out[0].i] = n->in[0];
            any = true;
        }
    }
    rewrite_ends(g, x.as);
    graph_dce(g, tmp);
    return any;
}

bool pass_epilogue(Graph *g, PassCtx *cx)
{
    static Rule *const rules[] = {rule_bias, rule_add, NULL};
    if (!step_device(cx->opt)->epilogues)
        return true;
    cx->changed |= narrow_gradients(g, cx->tmp);
    return rewrite_run(g, cx->tmp, rules, false, &cx->changed);
}

/* ---- activations --------------------------------------------------------------------------------- */

enum { AUX_UNIT = 8 }; /* elements: rows of the activation's operand, as a library stores it, are multiples */

/* Is n a product in 16 bits whose rows lie one behind the other, each a multiple of AUX_UNIT elements? */
static bool has_rows(const Graph *g, const Node *n)
{
    const Type *y = val_type(g, n->out[0]);
    return !n->group && dtype_is_half(y->dt) && !((const MatmulAttrs *)n->attr)->ta &&
           val_type(g, n->in[1])->rank == 2 && y->dim[y->rank - 1] % AUX_UNIT == 0;
}

/* Is n such a product with a bias and no matrix added, which an activation can join? */
static bool takes_activation(const Graph *g, const Node *n)
{
    return n && n->op == OP_matmul_bias && !n->in[2].i && has_rows(g, n);
}

/* Turns n, which has one result, into a view of v. */
static void become_view(Graph *g, Node *n, Val v)
{
    ShapeAttrs *shape = NEW(g->arena, ShapeAttrs, 1);
    shape->shape = ints_of(val_type(g, n->out[0]));
    n->op = OP_reshape;
    n->attr = shape;
    n->nin = 1;
    n->in[0] = v;
}

/* Makes the product compute the activation as its first result, its own as the second; the activation node
 * becomes a view of the first. */
static void join(Graph *g, NodeId product, NodeId activation)
{
    Val x = g->nodes[product.i].out[0], of = g->nodes[activation.i].out[0];
    Val y = graph_value(g, g->vals[of.i].name, *val_type(g, x), VAL_TEMP);
    Node *p = &g->nodes[product.i], *a = &g->nodes[activation.i];
    g->vals[y.i].def = product;
    p->op = OP_matmul_gelu;
    p->nout = 2;
    p->out = NEW(g->arena, Val, 2);
    p->out[0] = y;
    p->out[1] = x;
    become_view(g, a, y);
}

/* The product whose result is the cotangent of this gradient of an activation, and read by nothing else; {0}:
 * there is none. */
static NodeId product_of_gradient(const Graph *g, const Node *n, const uint32_t *uses)
{
    Val dy = n->in[0];
    while (uses[dy.i] == 1 && graph_def(g, dy) && is_view(graph_def(g, dy)))
        dy = graph_def(g, dy)->in[0];
    const Node *p = graph_def(g, dy);
    return uses[dy.i] == 1 && p && p->op == OP_matmul && has_rows(g, p) ? g->vals[dy.i].def : (NodeId){0};
}

/* The value of type t that v is, or is a view of; {0}: there is none. */
static Val shown_as(const Graph *g, Val v, const Type *t)
{
    const Node *n;
    while (!type_equal(val_type(g, v), t) && (n = graph_def(g, v)) && is_view(n))
        v = n->in[0];
    return type_equal(val_type(g, v), t) ? v : (Val){0};
}

/* Makes the product compute the gradient of the activation, whose node becomes a view of its result. */
static bool join_gradient(Graph *g, NodeId gradient, const uint32_t *uses, const uint32_t *at)
{
    Node *n = &g->nodes[gradient.i];
    NodeId product = product_of_gradient(g, n, uses);
    Node *p = &g->nodes[product.i];
    Val x = product.i ? shown_as(g, n->in[1], val_type(g, p->out[0])) : (Val){0};
    if (!x.i || at[g->vals[x.i].def.i] > at[product.i])
        return false;
    Val in[] = {p->in[0], p->in[1], x};
    p->op = OP_matmul_gelu_bwd;
    p->nin = 3;
    p->in = NEW(g->arena, Val, 3);
    memcpy(p->in, in, sizeof in);
    become_view(g, n, p->out[0]);
    return true;
}

/* Runs behind inline and split, as backward recomputes the activation from its operand.  Of several GELUs of
 * one product the first in order, the forward's, joins it. */
bool pass_activate(Graph *g, PassCtx *cx)
{
    uint32_t *at = NEW(cx->tmp, uint32_t, g->nnodes + 1), *uses = graph_uses(g, cx->tmp);
    for (uint32_t k = 0; k < g->norder; k++)
        at[g->order[k].i] = k + 1;
    for (uint32_t k = 0; k < g->norder && step_device(cx->opt)->epilogues; k++) {
        const Node *n = &g->nodes[g->order[k].i];
        Val x = n->op == OP_gelu_tanh && !n->group ? graph_root(g, n->in[0]) : (Val){0};
        if (x.i && takes_activation(g, graph_def(g, x))) {
            join(g, g->vals[x.i].def, g->order[k]);
            cx->changed = true;
        }
        if (n->op == OP_gelu_tanh_bwd && !n->group)
            cx->changed |= join_gradient(g, g->order[k], uses, at);
    }
    return true;
}
