/* recognise_loss.c -- softmax cross-entropy and binary cross-entropy written out.
 *
 * Class targets are integers: an index into the log-probabilities, or a one-hot tensor computed
 * from one.  cross_entropy keeps no probabilities: its gradient needs the logits only. */
#include "recognise.h"

/* Minus cross-entropy of logits x and target t, of any shape with the right count.  negative: targets below
 * 0 count from the end. */
static Val minus_cross_entropy(Rewrite *rw, const Node *n, Val x, Val t, int64_t axis, bool negative)
{
    Graph *g = rw->g;
    Type rest = {.dt = val_type(g, t)->dt};
    for (int i = 0; i < val_type(g, x)->rank; i++)
        if (i != axis)
            rest.dim[rest.rank++] = val_type(g, x)->dim[i];
    Val in[] = {x, build_reshape(g, t, rest.rank, rest.dim)}, out[3] = {{0}};
    build_n(g, OP_cross_entropy, n->name, 2, in, &(CrossEntropyAttrs){axis, 0, 0, negative, 0}, 3, out);
    return build1(g, OP_neg, out[0]);
}

/* Is t's shape x's with one element along axis? */
static bool one_per_row(const Graph *g, Val t, Val x, int64_t axis)
{
    Type row = *val_type(g, x);
    row.dim[axis] = 1;
    return type_same_shape(&row, val_type(g, t)) && !dtype_is_float(val_type(g, t)->dt);
}

static int64_t axis_of(const Node *n) { return ((const AxisAttrs *)n->attr)->axis; }

/* log of elements picked from softmax(x) = elements picked from log_softmax(x) */
Val rule_log_of_picked(Rewrite *rw, const Node *n)
{
    static const Op picks[] = {OP_gather_elements, OP_gather_nd};
    Graph *g = rw->g;
    const Node *view = n->op == OP_log ? rewrite_def(rw, n->in[0], OP_reshape) : NULL;
    for (int i = 0; n->op == OP_log && i < 2; i++) {
        const Node *p = rewrite_def(rw, view ? view->in[0] : n->in[0], picks[i]);
        const Node *s = p ? rewrite_def(rw, p->in[0], OP_softmax) : NULL;
        if (!s)
            continue;
        Val in[] = {build(g, OP_log_softmax, s->name, 1, s->in, s->attr), p->in[1]};
        Type t = *val_type(g, n->out[0]);
        return build_reshape(g, build(g, p->op, p->name, 2, in, p->attr), t.rank, t.dim);
    }
    return none();
}

/* Is v 0, 1, 2, ... along this axis, with extent 1 in all others? */
static bool counts_along(const Rewrite *rw, Val v, int axis)
{
    const Type *t = val_type(rw->g, v);
    return axis >= 0 && axis < t->rank && type_count(t) == t->dim[axis] && form_counts(rw, v, 0, 1);
}

/* The index if n picks one element along the last axis of each row of its first operand, else {0}.
 * gather_nd has the index with all dimensions but the last as batch, or behind the row's number. */
static Val picked_last(const Rewrite *rw, const Node *n)
{
    const Graph *g = rw->g;
    int last = val_type(g, n->in[0])->rank - 1;
    if (axis_of(n) == last && one_per_row(g, n->in[1], n->in[0], last))
        return n->in[1];
    const Node *pair = n->op == OP_gather_nd ? rewrite_def(rw, n->in[1], OP_concat) : NULL;
    bool rows = pair && axis_of(n) == 0 && pair->nin == 2 && last == 1 && axis_of(pair) == 1 &&
                counts_along(rw, pair->in[0], 0) && one_per_row(g, pair->in[1], n->in[0], 1);
    return rows ? pair->in[1] : none();
}

/* log_softmax(x) at one index per row */
Val rule_nll(Rewrite *rw, const Node *n)
{
    bool picks = n->op == OP_gather_elements || n->op == OP_gather_nd;
    const Node *l = picks ? rewrite_def(rw, n->in[0], OP_log_softmax) : NULL;
    if (!l)
        return none();
    int64_t axis = axis_of(l), last = val_type(rw->g, n->in[0])->rank - 1;
    Val index = axis == last ? picked_last(rw, n) : none();
    if (n->op == OP_gather_elements && axis == axis_of(n) && one_per_row(rw->g, n->in[1], n->in[0], axis))
        index = n->in[1];
    if (!index.i)
        return none();
    Type t = *val_type(rw->g, n->out[0]);
    Val r = minus_cross_entropy(rw, n, l->in[0], index, axis, true);
    return build_reshape(rw->g, r, t.rank, t.dim);
}

/* -view(-x) */
Val rule_nll_sign(Rewrite *rw, const Node *n)
{
    const Node *view = n->op == OP_neg ? rewrite_def(rw, n->in[0], OP_reshape) : NULL;
    const Node *inner = view ? rewrite_def(rw, view->in[0], OP_neg) : NULL;
    Type t = *val_type(rw->g, n->out[0]);
    return inner ? build_reshape(rw->g, inner->in[0], t.rank, t.dim) : none();
}

/* The index if v = 1 where an index equals the position along axis and 0 elsewhere, else {0}. */
static Val one_hot_index(const Rewrite *rw, Val v, int64_t axis)
{
    double on, off;
    const Node *w = rewrite_def(rw, v, OP_where), *c = rewrite_def(rw, v, OP_cast);
    if (w && !(rewrite_scalar(rw, w->in[1], &on) && on == 1 &&
               rewrite_scalar(rw, w->in[2], &off) && off == 0))
        return none();
    const Node *eq = w || c ? rewrite_def(rw, (w ? w : c)->in[0], OP_equal) : NULL;
    int rank = val_type(rw->g, v)->rank;
    for (int i = 0; eq && i < 2; i++) {
        Val iota = eq->in[i];
        const Type *t = val_type(rw->g, iota);
        int own = (int)axis - (rank - t->rank);
        if (counts_along(rw, iota, own) && t->dim[own] == val_type(rw->g, v)->dim[axis] &&
            one_per_row(rw->g, eq->in[1 - i], v, axis))
            return eq->in[1 - i];
    }
    return none();
}

/* Minus cross-entropy, but 0 for an index that is no class, like the product with one-hot. */
static Val valid_cross_entropy(Rewrite *rw, const Node *n, Val x, Val index, int64_t axis)
{
    Graph *g = rw->g;
    DType dt = val_type(g, index)->dt;
    double classes = (double)val_type(g, x)->dim[axis];
    Val inside = build2(g, OP_and, build2(g, OP_less_equal, build_scalar(g, dt, 0), index),
                        build2(g, OP_less, index, build_scalar(g, dt, classes)));
    Type row = *val_type(g, x);
    row.dim[axis] = 1;
    Val loss = build_reshape(g, minus_cross_entropy(rw, n, x, index, axis, false), row.rank, row.dim);
    return build2(g, OP_mul, loss, build_cast(g, inside, row.dt));
}

/* sum over classes (and more) of log_softmax(x) * one_hot */
Val rule_nll_onehot(Rewrite *rw, const Node *n)
{
    Graph *g = rw->g;
    const Node *m = n->op == OP_reduce_sum ? rewrite_def(rw, n->in[0], OP_mul) : NULL;
    for (int i = 0; m && i < 2; i++) {
        const Node *l = rewrite_def(rw, m->in[i], OP_log_softmax);
        uint32_t mask = axes_mask(&((const ReduceAttrs *)n->attr)->axes);
        if (!l || !(mask >> axis_of(l) & 1))
            continue;
        Val index = one_hot_index(rw, m->in[1 - i], axis_of(l));
        if (!index.i || !type_same_shape(val_type(g, m->in[1 - i]), val_type(g, l->in[0])))
            continue;
        Type t = *val_type(g, n->out[0]);
        Val r = valid_cross_entropy(rw, n, l->in[0], index, axis_of(l));
        uint32_t others = mask & ~(1u << axis_of(l));
        r = others ? build_reduce(g, OP_reduce_sum, r, others, true) : r;
        return build_reshape(g, r, t.rank, t.dim);
    }
    return none();
}

/* Cross-entropy of log-probabilities: normalising twice changes nothing. */
Val rule_cross_entropy(Rewrite *rw, const Node *n)
{
    const Node *l = n->op == OP_cross_entropy ? rewrite_def(rw, n->in[0], OP_log_softmax) : NULL;
    if (!l || axis_of(l) != ((const CrossEntropyAttrs *)n->attr)->axis || rewrite_uses(rw, n->out[1]) > 0 ||
        rewrite_uses(rw, n->out[2]) > 0)
        return none();
    Val in[] = {l->in[0], n->in[1]}, out[3] = {{0}};
    build_n(rw->g, OP_cross_entropy, n->name, 2, in, n->attr, 3, out);
    return out[0];
}

/* Cross-entropy of logits whose classes were moved to where PyTorch wants them: along the axis that they come
 * from, without a copy of the logits. */
Val rule_loss_transposed(Rewrite *rw, const Node *n)
{
    const Node *p = n->op == OP_cross_entropy ? rewrite_def(rw, n->in[0], OP_transpose) : NULL;
    if (!p || rewrite_uses(rw, n->out[1]) > 0 || rewrite_uses(rw, n->out[2]) > 0)
        return none();
    CrossEntropyAttrs at = *(const CrossEntropyAttrs *)n->attr;
    const Ints *perm = &((const TransposeAttrs *)p->attr)->perm;
    int64_t last = -1;
    for (int i = 0; i < perm->n; i++) { /* all others in their order, which is the targets' */
        if (i == at.axis)
            continue;
        if (perm->v[i] < last)
            return none();
        last = perm->v[i];
    }
    at.axis = perm->v[at.axis];
    Val in[] = {p->in[0], n->in[1]}, out[3] = {{0}};
    build_n(rw->g, OP_cross_entropy, n->name, 2, in, &at, 3, out);
    return out[0];
}

/* log(sigmoid(x)) = -softplus(-x), log(1 - sigmoid(x)) = -softplus(x): no overflow, no 0 */
Val rule_log_sigmoid(Rewrite *rw, const Node *n)
{
    Graph *g = rw->g;
    double one;
    if (n->op != OP_log)
        return none();
    const Node *s = rewrite_def(rw, n->in[0], OP_sigmoid);
    if (s)
        return build1(g, OP_neg, build1(g, OP_softplus, build1(g, OP_neg, s->in[0])));
    const Node *d = rewrite_def(rw, n->in[0], OP_sub); /* 1 - s, or -s + 1 */
    const Node *m = rewrite_def(rw, d ? none() : form_shifted(rw, n->in[0], &one), OP_neg);
    if (m || (d && rewrite_scalar(rw, d->in[0], &one)))
        s = one == 1 ? rewrite_def(rw, m ? m->in[0] : d->in[1], OP_sigmoid) : NULL;
    return s ? build1(g, OP_neg, build1(g, OP_softplus, s->in[0])) : none();
}

/* m + log(sum(exp(x - m))) = log(sum(exp(x))), whatever m is: no gradient goes through a maximum. */
Val rule_log_sum_exp(Rewrite *rw, const Node *n)
{
    for (int i = 0; n->op == OP_add && i < 2; i++) {
        const Node *l = rewrite_def(rw, n->in[i], OP_log);
        const Node *r = l ? rewrite_def(rw, l->in[0], OP_reduce_sum) : NULL;
        const Node *e = r ? rewrite_def(rw, r->in[0], OP_exp) : NULL;
        const Node *d = e ? rewrite_def(rw, e->in[0], OP_sub) : NULL;
        if (!d || form_behind_reshapes(rw, n->in[1 - i]).i != form_behind_reshapes(rw, d->in[1]).i)
            continue;
        const Type *x = val_type(rw->g, d->in[0]), *m = val_type(rw->g, d->in[1]);
        uint32_t axes = axes_mask(&((const ReduceAttrs *)r->attr)->axes);
        bool along = m->rank == x->rank && type_same_shape(x, val_type(rw->g, d->out[0])) &&
                     type_same_shape(val_type(rw->g, n->out[0]), val_type(rw->g, r->out[0]));
        for (int k = 0; along && k < x->rank; k++)
            along = m->dim[k] == (axes >> k & 1 ? 1 : x->dim[k]);
        if (along)
            return build(rw->g, OP_reduce_log_sum_exp, n->name, 1, d->in, r->attr);
    }
    return none();
}
