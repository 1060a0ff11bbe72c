/* recognise_attention.c -- softmax, and forms that cost memory in exported attention.
 *
 * Scales of queries and keys move onto the scores, where one row kernel applies scale, mask and
 * softmax; keys and values that several query heads share are not copied for each of them; the
 * rotation of queries and keys makes no rotated copy. */
#include "recognise.h"

/* The axis if v = sum of e over one axis, which is kept, else -1. */
static int64_t summed_axis(const Rewrite *rw, Val v, Val e)
{
    const Node *r = rewrite_def(rw, v, OP_reduce_sum);
    const ReduceAttrs *at = r ? r->attr : NULL;
    return r && r->in[0].i == e.i && at->axes.n == 1 && at->keepdims ? at->axes.v[0] : -1;
}

static Val along(Rewrite *rw, const Node *n, Op op, Val x, int64_t axis)
{
    return build(rw->g, op, n->name, 1, &x, &(AxisAttrs){axis});
}

/* x if z = x - max(x) along the axis, which does not change softmax, else z. */
static Val unshifted(const Rewrite *rw, Val z, int64_t axis)
{
    const Node *s = rewrite_def(rw, z, OP_sub);
    const Node *m = s ? rewrite_def(rw, s->in[1], OP_reduce_max) : NULL;
    const ReduceAttrs *at = m ? m->attr : NULL;
    bool shift = m && m->in[0].i == s->in[0].i && at->axes.n == 1 && at->keepdims && at->axes.v[0] == axis;
    return shift ? s->in[0] : z;
}

/* exp(z) / sum(exp(z)), softmax(x - max(x)) */
Val rule_softmax(Rewrite *rw, const Node *n)
{
    if (n->op == OP_softmax) {
        int64_t axis = ((const AxisAttrs *)n->attr)->axis;
        Val x = unshifted(rw, n->in[0], axis);
        return x.i == n->in[0].i ? none() : along(rw, n, OP_softmax, x, axis);
    }
    for (int i = 0; i < 2 && (n->op == OP_div || n->op == OP_mul); i++) {
        const Node *e = rewrite_def(rw, n->in[i], OP_exp);
        const Node *inverse = rewrite_def(rw, n->in[1 - i], OP_reciprocal);
        if (!e || (n->op == OP_div ? i == 1 : !inverse))
            continue;
        int64_t axis = summed_axis(rw, n->op == OP_div ? n->in[1] : inverse->in[0], n->in[i]);
        if (axis >= 0)
            return along(rw, n, OP_softmax, unshifted(rw, e->in[0], axis), axis);
    }
    return none();
}

/* Is t, which broadcasts to x, one value along this axis of x? */
static bool is_constant_along(const Type *t, const Type *x, int64_t axis)
{
    int64_t own = axis - (x->rank - t->rank);
    return own < 0 || t->dim[own] == 1;
}

/* log(softmax(x)), z - log(sum(exp(z))), x - (log(sum(exp(x - t))) + t) with t constant along the axis */
Val rule_log_softmax(Rewrite *rw, const Node *n)
{
    const Node *s = n->op == OP_log ? rewrite_def(rw, n->in[0], OP_softmax) : NULL;
    if (s && s->out[0].i == n->in[0].i)
        return along(rw, n, OP_log_softmax, s->in[0], ((const AxisAttrs *)s->attr)->axis);
    if (n->op != OP_sub)
        return none();
    Val z = n->in[0], norm = n->in[1], t = none();
    const Node *lse = rewrite_def(rw, norm, OP_reduce_log_sum_exp);
    const ReduceAttrs *over = lse ? lse->attr : NULL;
    if (lse && lse->in[0].i == z.i && over->axes.n == 1 && over->keepdims)
        return along(rw, n, OP_log_softmax, z, over->axes.v[0]);
    const Node *sum = rewrite_def(rw, norm, OP_add);
    for (int i = 0; sum && !t.i && i < 2; i++)
        if (rewrite_def(rw, sum->in[i], OP_log))
            norm = sum->in[i], t = sum->in[1 - i];
    const Node *l = rewrite_def(rw, norm, OP_log);
    const Node *r = l ? rewrite_def(rw, l->in[0], OP_reduce_sum) : NULL;
    const Node *e = r ? rewrite_def(rw, r->in[0], OP_exp) : NULL;
    int64_t axis = e ? summed_axis(rw, l->in[0], r->in[0]) : -1;
    if (axis < 0)
        return none();
    if (!t.i)
        return e->in[0].i == z.i ? along(rw, n, OP_log_softmax, unshifted(rw, z, axis), axis) : none();
    const Node *d = rewrite_def(rw, e->in[0], OP_sub);
    const Type *x = val_type(rw->g, z);
    bool same = d && d->in[0].i == z.i && d->in[1].i == t.i && type_same_shape(x, val_type(rw->g, e->in[0]));
    return same && is_constant_along(val_type(rw->g, t), x, axis) ? along(rw, n, OP_log_softmax, z, axis)
                                                                  : none();
}

/* ---- scales of queries and keys ------------------------------------------------------ */

/* If v = c * x behind views and transposes: the same views of x, else {0}. */
static Val without_scale(Rewrite *rw, Val v, double *c, int depth)
{
    Graph *g = rw->g;
    if (!rewrite_once(rw, v) || depth == FORM_DEPTH)
        return none();
    Val x = form_scaled(rw, v, c);
    if (x.i)
        return x;
    const Node *t = rewrite_def(rw, v, OP_transpose), *r = rewrite_def(rw, v, OP_reshape);
    const Node *n = t ? t : r;
    x = n ? without_scale(rw, n->in[0], c, depth + 1) : none();
    return x.i ? build(g, n->op, n->name, 1, &x, n->attr) : none();
}

static Val scores_lifted(Rewrite *rw, const Node *m)
{
    double a = 1, b = 1;
    Val q = without_scale(rw, m->in[0], &a, 0), k = without_scale(rw, m->in[1], &b, 0);
    if (!q.i && !k.i)
        return none();
    a = q.i ? a : 1;
    b = k.i ? b : 1;
    Val in[] = {q.i ? q : m->in[0], k.i ? k : m->in[1]};
    Val scores = build(rw->g, OP_matmul, m->name, 2, in, m->attr);
    return scores.i ? form_folded(rw, m->name, OP_mul, scores, a * b) : none();
}

/* The operand v of softmax with the scales of queries and keys moved behind their product; {0}: none. */
static Val lifted(Rewrite *rw, Val v, int depth)
{
    static const Op through[] = {OP_add, OP_where, OP_mul, OP_div, OP_reshape};
    const Node *n = graph_def(rw->g, v);
    if (!n || !rewrite_once(rw, v) || depth == FORM_DEPTH)
        return none();
    if (n->op == OP_matmul)
        return scores_lifted(rw, n);
    bool passes = false;
    for (size_t i = 0; i < sizeof through / sizeof *through; i++)
        passes |= n->op == through[i];
    for (int i = 0; passes && i < n->nin; i++) {
        Val in[3] = {n->in[0], n->nin > 1 ? n->in[1] : none(), n->nin > 2 ? n->in[2] : none()};
        if (type_count(val_type(rw->g, in[i])) != type_count(val_type(rw->g, v)))
            continue; /* a mask or a scalar */
        in[i] = lifted(rw, in[i], depth + 1);
        if (in[i].i)
            return build(rw->g, n->op, n->name, n->nin, in, n->attr);
    }
    return none();
}

Val rule_lift_scale(Rewrite *rw, const Node *n)
{
    Val x = n->op == OP_softmax ? lifted(rw, n->in[0], 0) : none();
    return x.i ? along(rw, n, OP_softmax, x, ((const AxisAttrs *)n->attr)->axis) : none();
}

/* ---- grouped queries --------------------------------------------------------------------
 *
 *   q [.., kv * r, m, k]  x  y [.., kv, 1, k, n] repeated r times  ->  [.., kv * r, m, n]
 *
 * is q viewed as [.., kv, r * m, k] times y: neither the keys nor their gradient exist r times. */

/* Returns y and *r if v = y [.., kv, 1, a, b] expanded to r and viewed as [.., kv * r, a, b], or if v = y
 * [.., 1, a, b]. */
static Val repeated(const Rewrite *rw, Val v, int64_t heads, int64_t *r)
{
    const Type *t = val_type(rw->g, v);
    if (t->dim[t->rank - 3] == 1) {
        *r = heads;
        return v;
    }
    const Node *view = rewrite_def(rw, v, OP_reshape);
    const Node *e = view ? rewrite_def(rw, view->in[0], OP_expand) : NULL;
    if (!e)
        return none();
    const Type *y = val_type(rw->g, e->in[0]), *wide = val_type(rw->g, view->in[0]);
    int d = y->rank - 3; /* the repeated dimension */
    if (y->rank != wide->rank || d < 1 || t->rank != y->rank - 1 || y->dim[d] != 1)
        return none();
    *r = wide->dim[d];
    for (int i = 0; i < y->rank; i++)
        if ((i != d && y->dim[i] != wide->dim[i]) ||
            (i < d - 1 && t->dim[i] != y->dim[i]) || (i > d && t->dim[i - 1] != y->dim[i]))
            return none();
    return t->dim[d - 1] == y->dim[d - 1] * *r ? e->in[0] : none();
}

Val rule_grouped_query(Rewrite *rw, const Node *n)
{
    Graph *g = rw->g;
    if (n->op != OP_matmul || ((const MatmulAttrs *)n->attr)->ta)
        return none();
    Type q = *val_type(g, n->in[0]), k = *val_type(g, n->in[1]), y = *val_type(g, n->out[0]);
    int h = q.rank - 3;
    if (h < 0 || k.rank != q.rank)
        return none();
    for (int i = 0; i < h; i++)
        if (q.dim[i] != k.dim[i])
            return none();
    int64_t r = 1, heads = q.dim[h];
    Val shared = repeated(rw, n->in[1], heads, &r);
    if (!shared.i || r < 2 || heads % r || (k.dim[h] != 1 && k.dim[h] != heads))
        return none();
    q.dim[h] = k.dim[h] = heads / r;
    q.dim[h + 1] *= r;
    Val in[] = {build_reshape(g, n->in[0], q.rank, q.dim), build_reshape(g, shared, k.rank, k.dim)};
    return build_reshape(g, build(g, OP_matmul, n->name, 2, in, n->attr), y.rank, y.dim);
}

/* ---- rotary embedding -------------------------------------------------------------------
 *
 *   y = x * c + r * s with r = [-x_second, x_first]
 *
 * is [x_first * c_first - x_second * s_first, x_second * c_second + x_first * s_second]: no rotated copy of
 * x. First and second are the halves of the last dimension, or the even and the odd elements: those are
 * halves, too, of x viewed with a last dimension of 2. */

/* Is v a part of x along its last dimension: a half or, if pairs, the elements at even or odd places? */
static bool is_part(const Rewrite *rw, Val v, Val x, bool second, bool pairs)
{
    const Node *n = rewrite_def(rw, pairs ? form_behind_reshapes(rw, v) : v, OP_slice);
    if (!n || (n->in[0].i != x.i &&
               !(pairs && form_behind_reshapes(rw, n->in[0]).i == form_behind_reshapes(rw, x).i)))
        return false;
    const SliceAttrs *at = n->attr;
    const Type *t = val_type(rw->g, n->in[0]);
    int last = t->rank - 1;
    for (int d = 0; d < last; d++)
        if (at->step.v[d] != 1 || at->size.v[d] != t->dim[d])
            return false;
    int64_t len = at->size.v[last], step = len == 1 && pairs ? 2 : at->step.v[last];
    return len * 2 == t->dim[last] && step == (pairs ? 2 : 1) &&
           at->start.v[last] == second * (pairs ? 1 : len);
}

static bool is_rotated(const Rewrite *rw, Val r, Val x, bool pairs)
{
    const Node *view = pairs ? rewrite_def(rw, r, OP_reshape) : NULL;
    const Node *c = rewrite_def(rw, view ? view->in[0] : r, OP_concat);
    if (!c || pairs != (view != NULL) || c->nin != 2)
        return false;
    const Type *t = val_type(rw->g, c->out[0]);
    if (((const AxisAttrs *)c->attr)->axis != t->rank - 1 || (pairs && t->dim[t->rank - 1] != 2))
        return false;
    const Node *minus = rewrite_def(rw, pairs ? form_behind_reshapes(rw, c->in[0]) : c->in[0], OP_neg);
    return minus && is_part(rw, minus->in[0], x, true, pairs) && is_part(rw, c->in[1], x, false, pairs);
}

/* v, or its view whose last dimensions are n / 2 and 2. */
static Val in_pairs(Graph *g, Val v, bool pairs)
{
    Type t = *val_type(g, v);
    if (!pairs || t.rank == 0)
        return v;
    int64_t n = t.dim[t.rank - 1];
    t.dim[t.rank - 1] = n > 1 ? n / 2 : 1;
    t.dim[t.rank++] = n > 1 ? 2 : 1;
    return build_reshape(g, v, t.rank, t.dim);
}

/* The halves of a table along its last dimension; one of extent 1 stays. */
static void halves(Graph *g, Val v, bool pairs, Val half[2])
{
    v = in_pairs(g, v, pairs);
    const Type *t = val_type(g, v);
    int64_t len = t->rank ? t->dim[t->rank - 1] / 2 : 0;
    for (int i = 0; i < 2; i++)
        half[i] = len ? build_slice(g, v, t->rank - 1, i * len, len) : v;
}

/* The halves of x.  A transpose that nothing else reads, and that keeps the last dimension, moves behind
 * them. */
static void halves_turned(Rewrite *rw, Val x, bool pairs, Val half[2])
{
    Graph *g = rw->g;
    const Node *t = rewrite_uses(rw, x) <= 3 ? rewrite_def(rw, x, OP_transpose) : NULL;
    int last = val_type(g, x)->rank - 1, perm[MAX_RANK];
    if (!t || ((const TransposeAttrs *)t->attr)->perm.v[last] != last) {
        halves(g, x, pairs, half);
        return;
    }
    for (int i = 0; i <= last; i++)
        perm[i] = (int)((const TransposeAttrs *)t->attr)->perm.v[i];
    if (pairs)
        perm[last + 1] = last + 1;
    halves(g, t->in[0], pairs, half);
    for (int i = 0; i < 2; i++)
        half[i] = build_transpose(g, half[i], perm);
}

Val rule_rotary(Rewrite *rw, const Node *n)
{
    Graph *g = rw->g;
    Type t = *val_type(g, n->out[0]);
    bool in_twos = t.rank > 0 && t.rank < MAX_RANK && t.dim[t.rank - 1] > 0 && t.dim[t.rank - 1] % 2 == 0;
    for (int i = 0; n->op == OP_add && i < (in_twos ? 16 : 8); i++) { /* all orders of operands */
        bool pairs = i >> 3;
        const Node *straight = rewrite_def(rw, n->in[i & 1], OP_mul);
        const Node *turned = rewrite_def(rw, n->in[!(i & 1)], OP_mul);
        if (!straight || !turned)
            return none();
        Val x = straight->in[i >> 1 & 1], c = straight->in[!(i >> 1 & 1)];
        Val r = turned->in[i >> 2 & 1], s = turned->in[!(i >> 2 & 1)];
        if (!type_same_shape(val_type(g, x), &t) || !is_rotated(rw, r, x, pairs) || !rewrite_once(rw, r))
            continue;
        Val xs[2], cs[2], ss[2];
        halves_turned(rw, x, pairs, xs);
        halves(g, c, pairs, cs);
        halves(g, s, pairs, ss);
        Val part[] = {build2(g, OP_sub, build2(g, OP_mul, xs[0], cs[0]), build2(g, OP_mul, xs[1], ss[0])),
                      build2(g, OP_add, build2(g, OP_mul, xs[1], cs[1]), build2(g, OP_mul, xs[0], ss[1]))};
        return build_reshape(g, build_concat(g, 2, part, t.rank - 1 + pairs), t.rank, t.dim);
    }
    return none();
}
