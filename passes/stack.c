/* stack.c -- sums of products become products of stacked factors: A1' B1 + A2' B2 + ... = [A1; A2; ...]'
 * [B1; B2; ...].
 *
 * A weight that is read in every time step has such a gradient.  Its terms are small products, each of which
 * reads and writes the whole sum; stacked they are one large product that writes it once.  The factors then
 * live until the last of them is made.  Factors may be stacked already, as gradients of a recurrent layer's
 * gates are, per segment of time, for the gradient of the layer's input; then these stacks are the factors,
 * and each product is added to the one before, in its place. */
#include "../ir/attrs.h"
#include "rewrite.h"
#include <string.h>

enum { LEAST = 4 }; /* fewest terms worth stacking */

/* A term A' B of a sum. */
typedef struct {
    Val left, right;
    bool open; /* it is in no stacked product yet */
} Term;

typedef struct {
    const Graph *g;
    const uint32_t *uses; /* per value */
    Val *open;            /* operands of the sum still to visit, a stack */
    Term *term;           /* the terms that are such products, in order */
    Val *rest;            /* the other terms */
    uint32_t n, nrest;
    DType dt;        /* of the terms' factors */
    bool tf32;
    uint32_t nvals;  /* entries of stack and place */
    NodeId *stack;   /* per value: the last concatenation of rows that reads it in some shape, {0} = none */
    uint32_t *place; /* per value: which operand of that it is */
    Term **from;     /* the terms to stack, in order */
} Terms;

static bool is_sum(const Terms *t, Val v)
{
    const Node *n = graph_def(t->g, v);
    return n && n->op == OP_add && t->uses[v.i] == 1 &&
           type_equal(val_type(t->g, n->in[0]), val_type(t->g, n->in[1]));
}

/* Is v = A' B with factors no larger than itself, so that adding it up moves more bytes than reading them? */
static bool is_product(const Terms *t, Val v)
{
    const Node *n = graph_def(t->g, v);
    if (!n || n->op != OP_matmul || t->uses[v.i] != 1)
        return false;
    const MatmulAttrs *at = n->attr;
    const Type *a = val_type(t->g, n->in[0]), *b = val_type(t->g, n->in[1]);
    return at->ta && !at->tb && a->rank == 2 && b->rank == 2 && a->dim[0] <= a->dim[1] &&
           a->dim[0] <= b->dim[1] && (t->n == 0 || (a->dt == t->dt && (at->tf32 != 0) == t->tf32));
}

/* Does stacking, which copies the factors, move fewer elements than adding up? */
static bool is_small(const Terms *t, const Term *x)
{
    const Type *a = val_type(t->g, x->left), *b = val_type(t->g, x->right);
    return a->dim[1] * b->dim[1] > 2 * a->dim[0] * (a->dim[1] + b->dim[1]);
}

/* Collects the terms of the sum that the node ends, in order. */
static void collect(Terms *t, const Node *end)
{
    uint32_t n = 0;
    t->n = t->nrest = 0;
    t->open[n++] = end->in[1];
    t->open[n++] = end->in[0];
    while (n > 0) {
        Val v = t->open[--n];
        const Node *def = graph_def(t->g, v);
        if (is_sum(t, v)) {
            t->open[n++] = def->in[1];
            t->open[n++] = def->in[0];
        } else if (is_product(t, v)) {
            t->dt = val_type(t->g, def->in[0])->dt;
            t->tf32 = ((const MatmulAttrs *)def->attr)->tf32;
            t->term[t->n++] = (Term){def->in[0], def->in[1], true};
        } else {
            t->rest[t->nrest++] = v;
        }
    }
}

/* ---- existing stacks ------------------------------------------------------------------------- */

/* The value that v is a reshape of, in the shape in which it was made; {0}: this pass made it. */
static Val unshaped(const Terms *t, Val v)
{
    for (const Node *n = graph_def(t->g, v); n && n->op == OP_reshape; n = graph_def(t->g, v))
        v = n->in[0];
    return v.i < t->nvals ? v : none();
}

/* Is n a concatenation in whose result the elements of its operands lie one behind the other? */
static bool stacks_rows(const Graph *g, const Node *n)
{
    bool is = n->op == OP_concat;
    for (int i = 0; is && i < ((const AxisAttrs *)n->attr)->axis; i++)
        is = val_type(g, n->out[0])->dim[i] == 1;
    return is;
}

static void note_stack(Terms *t, NodeId id)
{
    const Node *n = &t->g->nodes[id.i];
    for (int i = 0; stacks_rows(t->g, n) && i < n->nin; i++) {
        Val v = unshaped(t, n->in[i]);
        t->stack[v.i] = id; /* the last one counts */
        t->place[v.i] = (uint32_t)i;
    }
    t->stack[0].i = 0;
}

static Val factor(const Term *x, bool right) { return right ? x->right : x->left; }

/* The number of terms whose left or right factors are exactly the operands of the stack that v is in; these
 * terms are then in t->from, in its order.  0: there is no such stack. */
static uint32_t follow_stack(const Terms *t, Val v, bool right)
{
    NodeId id = t->stack[unshaped(t, v).i];
    uint32_t n = id.i ? (uint32_t)t->g->nodes[id.i].nin : 0, found = 0;
    if (n < LEAST || n > t->n)
        return 0;
    memset(t->from, 0, n * sizeof(Term *));
    for (uint32_t i = 0; i < t->n; i++) {
        Val of = unshaped(t, factor(&t->term[i], right));
        if (!t->term[i].open || t->stack[of.i].i != id.i || t->from[t->place[of.i]])
            continue;
        t->from[t->place[of.i]] = &t->term[i];
        found++;
    }
    return found == n ? n : 0;
}

/* ---- the rewrite ------------------------------------------------------------------------------- */

/* The stacked left or right factors of from's first n terms; stack: that value if it exists already. */
static Val stack_rows(Graph *g, const Terms *t, uint32_t n, bool right, Val stack, Arena *tmp)
{
    int64_t cols = val_type(g, factor(t->from[0], right))->dim[1];
    if (stack.i)
        return build_reshape(g, stack, 2, (int64_t[]){type_count(val_type(g, stack)) / cols, cols});
    Val *all = NEW(tmp, Val, n);
    for (uint32_t i = 0; i < n; i++)
        all[i] = factor(t->from[i], right);
    return build_concat_many(g, (int)n, all, 0);
}

/* sum + A' B, in the type of its sums; sum {0}: there is none yet. */
static Val add_product(Graph *g, const Terms *t, Val sum, Val a, Val b)
{
    MatmulAttrs at = {.ta = true, .tf32 = t->tf32};
    at.out = dtype_sum(t->dt) == t->dt ? DT_NONE : dtype_sum(t->dt);
    return build(g, sum.i ? OP_matmul_add : OP_matmul, NULL, sum.i ? 3 : 2, (Val[]){a, b, sum}, &at);
}

/* Adds the product of the stacked factors of from's first n terms to the sum. */
static Val add_stacked(Graph *g, const Terms *t, uint32_t n, const Val *stack, Val sum, Arena *tmp)
{
    Val factors[2];
    for (int right = 1; right >= 0; right--)
        factors[right] = stack_rows(g, t, n, right, stack[right], tmp);
    for (uint32_t i = 0; i < n; i++)
        t->from[i]->open = false;
    return add_product(g, t, sum, factors[0], factors[1]);
}

/* The value that replaces the sum: products of existing stacks, of one stack of the small terms, and the
 * rest. */
static Val stacked(Graph *g, const Terms *t, DType dt, Arena *tmp)
{
    Val sum = none();
    uint32_t n, nsmall = 0;
    for (uint32_t i = 0; i < t->n; i++)
        for (int right = 0; right < 2 && t->term[i].open; right++)
            if ((n = follow_stack(t, factor(&t->term[i], right), right)) > 0) {
                Val stack[2] = {none(), none()};
                stack[right] = g->nodes[t->stack[unshaped(t, factor(&t->term[i], right)).i].i].out[0];
                sum = add_stacked(g, t, n, stack, sum, tmp);
            }
    for (uint32_t i = 0; i < t->n; i++)
        if (t->term[i].open && is_small(t, &t->term[i]))
            t->from[nsmall++] = &t->term[i];
    if (nsmall > 0)
        sum = add_stacked(g, t, nsmall, (Val[]){none(), none()}, sum, tmp);
    for (uint32_t i = 0; i < t->n; i++)
        if (t->term[i].open)
            sum = add_product(g, t, sum, t->term[i].left, t->term[i].right);
    sum = build_cast(g, sum, dt);
    for (uint32_t i = 0; i < t->nrest; i++)
        sum = build(g, OP_add, NULL, 2, (Val[]){sum, t->rest[i]}, NULL);
    return sum;
}

/* Per value: it is an addition that only a further addition of the same type reads. */
static bool *find_inner(const Graph *g, const Terms *t, Arena *tmp)
{
    bool *inner = NEW(tmp, bool, g->nvals);
    for (uint32_t k = 0; k < g->norder; k++) {
        const Node *n = &g->nodes[g->order[k].i];
        bool alike = n->op == OP_add && type_equal(val_type(g, n->in[0]), val_type(g, n->in[1]));
        for (int i = 0; i < n->nin && alike; i++)
            inner[n->in[i].i] = is_sum(t, n->in[i]);
    }
    return inner;
}

/* Does n end a sum with enough products?  Then its terms are in t. */
static bool ends_sum(Terms *t, const bool *inner, const Node *n)
{
    if (n->op != OP_add || inner[n->out[0].i] ||
        !type_equal(val_type(t->g, n->in[0]), val_type(t->g, n->in[1])))
        return false;
    collect(t, n);
    return t->n >= LEAST;
}

bool pass_stack(Graph *g, PassCtx *cx)
{
    uint32_t n = g->norder, nvals = g->nvals;
    Terms t = {.g = g, .uses = graph_uses(g, cx->tmp)};
    t.open = NEW(cx->tmp, Val, n + 2);
    t.term = NEW(cx->tmp, Term, n + 2);
    t.rest = NEW(cx->tmp, Val, n + 2);
    t.nvals = nvals;
    t.stack = NEW(cx->tmp, NodeId, nvals);
    t.place = NEW(cx->tmp, uint32_t, nvals);
    t.from = NEW(cx->tmp, Term *, n + 2);
    const bool *inner = find_inner(g, &t, cx->tmp);
    Val *as = NEW(cx->tmp, Val, nvals);
    const NodeId *old = graph_take_order(g, cx->tmp);
    for (uint32_t k = 0; k < n && !g->diag->failed; k++) {
        Node *node = &g->nodes[old[k].i];
        for (int i = 0; i < node->nin; i++)
            node->in[i] = rewrite_as(as, node->in[i]);
        if (ends_sum(&t, inner, node)) {
            Val out = node->out[0];
            as[out.i] = stacked(g, &t, val_type(g, out)->dt, cx->tmp);
            rewrite_name(g, out, as[out.i]);
            cx->changed = true;
        } else {
            graph_schedule(g, old[k]);
            note_stack(&t, old[k]);
        }
    }
    rewrite_ends(g, as);
    graph_dce(g, cx->tmp);
    if (cx->changed && !g->diag->failed) /* factors that are weights are read later than before */
        graph_delay_updates(g, cx->tmp);
    return !g->diag->failed;
}
