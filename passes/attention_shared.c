/* attention_shared.c -- scores and probabilities that several attentions have in common.
 *
 * If two products read the same probabilities, or two softmaxes the same scores, each attention
 * computes them again.  A sum of two products of queries and keys becomes one product, of both queries
 * side by side and both keys side by side. */
#include "attention_form.h"

/* Is op one of the operators between scores and softmax, or between probabilities and values? */
static bool passes_scores(Op op)
{
    static const Op list[] = {OP_reshape, OP_cast, OP_dropout, OP_add,   OP_sub,    OP_mul,
                              OP_div,     OP_max,  OP_tanh,    OP_where, OP_softmax};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i] == op)
            return true;
    return false;
}

static bool is_weighing(const Rewrite *rw, const Node *n, Val p)
{
    const Type *y = val_type(rw->g, n->out[0]);
    return n->op == OP_matmul && n->in[0].i == p.i && n->in[1].i != p.i &&
           !((const MatmulAttrs *)n->attr)->ta && y->rank && y->dim[y->rank - 1] <= ATTENTION_SIZE;
}

/* form_only_weighs without the case of one use; left: how many more nodes may be visited. */
static bool only_weighs(const Rewrite *rw, Val v, bool weights, int *left)
{
    const Node *n, *last = NULL;
    uint32_t uses = 0;
    for (; (n = rewrite_reader(rw, v, uses)); uses++) {
        if (n == last || (weights && is_weighing(rw, n, v)))
            continue;
        last = n;
        if (--*left < 0 || !passes_scores(n->op) ||
            type_count(val_type(rw->g, n->out[0])) != type_count(val_type(rw->g, v)) ||
            !only_weighs(rw, n->out[0], weights || n->op == OP_softmax, left))
            return false;
    }
    return uses > 0 && uses == rewrite_uses(rw, v);
}

enum { NODES_MAX = 64 };

bool form_only_weighs(const Rewrite *rw, Val v, bool weights)
{
    int left = NODES_MAX;
    return rewrite_once(rw, v) || only_weighs(rw, v, weights, &left);
}

/* ---- sums of scores ---------------------------------------------------------------------------- */

/* The product if v = c * a product of queries and keys with several heads or batches, else NULL. */
static const Node *scaled_product(const Rewrite *rw, Val v, double *c)
{
    double factor;
    *c = 1;
    for (int depth = 0; depth < FORM_DEPTH && form_only_weighs(rw, v, false); depth++) {
        const Node *n = graph_def(rw->g, v);
        Val x = n ? form_scaled(rw, v, &factor) : none();
        if (n && n->op == OP_matmul)
            return val_type(rw->g, v)->rank > 2 && !((const MatmulAttrs *)n->attr)->ta ? n : NULL;
        if (!x.i)
            return NULL;
        *c *= factor;
        v = x;
    }
    return NULL;
}

/* The keys of a product, transposed if needed to have one key per row. */
static Val keys(Graph *g, const Node *product)
{
    Val k = product->in[1];
    int perm[MAX_RANK], last = val_type(g, k)->rank - 1;
    for (int i = 0; i <= last; i++)
        perm[i] = i < last - 1 ? i : 2 * last - 1 - i;
    return ((const MatmulAttrs *)product->attr)->tb ? k : build_transpose(g, k, perm);
}

static bool same_lead(const Graph *g, Val a, Val b)
{
    Type s = *val_type(g, a), t = *val_type(g, b);
    if (s.rank != t.rank || s.rank < 3)
        return false;
    for (int i = 0; i < s.rank - 2; i++)
        if (s.dim[i] != t.dim[i])
            return false;
    return s.dt == t.dt;
}

/* a q k^T + b r l^T = a [q, b/a r] [k, l]^T in front of softmax; the earlier product comes first, so that
 * both orders of the sum give the same result. */
Val rule_added_scores(Rewrite *rw, const Node *n)
{
    Graph *g = rw->g;
    double c[2];
    int left = NODES_MAX;
    if (n->op != OP_add || !type_same_shape(val_type(g, n->in[0]), val_type(g, n->in[1])))
        return none();
    const Node *x = scaled_product(rw, n->in[0], &c[0]), *y = scaled_product(rw, n->in[1], &c[1]);
    if (!x || !y || !only_weighs(rw, n->out[0], false, &left) || !same_lead(g, x->in[0], y->in[0]) ||
        !same_lead(g, x->in[1], y->in[1]))
        return none();
    bool swap = y->out[0].i < x->out[0].i;
    const Node *first = swap ? y : x, *second = swap ? x : y;
    double a = c[swap], b = c[!swap];
    Val q[] = {first->in[0], second->in[0]}, k[] = {keys(g, first), keys(g, second)};
    int last = val_type(g, q[0])->rank - 1;
    if (a == 0)
        return none();
    if (a != b)
        q[1] = form_folded(rw, n->name, OP_mul, q[1], b / a);
    if (!q[1].i)
        return none();
    Val s = build_matmul(g, build_concat(g, 2, q, last), build_concat(g, 2, k, last), false, true);
    return a == 1 ? s : form_folded(rw, n->name, OP_mul, s, a);
}
