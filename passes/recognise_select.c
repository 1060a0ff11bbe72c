/* recognise_select.c -- selection that is written as a product with zeros and ones.
 *
 * tf2onnx writes TensorFlow's SelectV2, where(c, x, y), as cast(c) * x + cast(not c) * y.  Of what is not
 * selected 0 * x is NaN where x is not finite; the where that was meant has no such NaN.  With a constant
 * condition the second product is a constant, too. */
#include "recognise.h"
#include <math.h>

/* A product of x and a condition, cast(cond), or cast(not cond) if it is negated. */
typedef struct {
    Val cond, x;
    bool negated;
} Selected;

/* Is v a product, the k-th factor of which is a condition? */
static bool selected(const Rewrite *rw, Val v, int k, Selected *s)
{
    const Node *m = rewrite_def(rw, v, OP_mul), *cast = m ? rewrite_def(rw, m->in[k], OP_cast) : NULL;
    if (!cast || val_type(rw->g, cast->in[0])->dt != DT_BOOL)
        return false;
    const Node *opposite = rewrite_def(rw, cast->in[0], OP_not);
    *s = (Selected){opposite ? opposite->in[0] : cast->in[0], m->in[1 - k], opposite != NULL};
    return true;
}

/* Where the constant m of zeros and ones is 1; {0}: it is no such constant. */
static Val is_one(Rewrite *rw, Val m)
{
    if (!graph_is_const(rw->g, m))
        return none();
    Tensor t = graph_tensor(rw->g, m);
    int64_t n = type_count(&t.type);
    Type type = type_make(DT_BOOL, t.type.rank, t.type.dim);
    char *set = NEW(rw->g->arena, char, n);
    for (int64_t i = 0; i < n; i++) {
        double x = tensor_f(&t, i);
        set[i] = x == 1;
        if (x != 0 && x != 1)
            return none();
    }
    return graph_const(rw->g, "selected", type, set);
}

/* The number that the constant k has wherever cond is not set, if k is 0 where it is, else {0}. */
static Val filled(Rewrite *rw, Val cond, Val k)
{
    if (!graph_is_const(rw->g, k) || !type_same_shape(val_type(rw->g, k), val_type(rw->g, cond)))
        return none();
    Tensor set = graph_tensor(rw->g, cond), t = graph_tensor(rw->g, k);
    int64_t n = type_count(&t.type), zeros = 0;
    double fill = 0;
    for (int64_t i = 0; i < n; i++) {
        bool zero = tensor_f(&set, i) == 0;
        if (zero && zeros++ == 0)
            fill = tensor_f(&t, i);
        if (tensor_f(&t, i) != (zero ? fill : 0))
            return none();
    }
    return zeros > 0 ? build_scalar(rw->g, t.type.dt, fill) : none();
}

Val rule_select(Rewrite *rw, const Node *n)
{
    Selected a, b;
    for (int i = 0; n->op == OP_add && i < 4; i++) {
        Val v = n->in[i / 2], other = n->in[1 - i / 2];
        for (int k = 0; k < 2 && selected(rw, v, i % 2, &a); k++)
            if (selected(rw, other, k, &b) && a.cond.i == b.cond.i && a.negated != b.negated)
                return build3(rw->g, OP_where, a.cond, a.negated ? b.x : a.x, a.negated ? a.x : b.x);
        const Node *m = rewrite_def(rw, v, OP_mul);
        Val cond = m && graph_is_const(rw->g, other) ? is_one(rw, m->in[i % 2]) : none();
        Val fill = cond.i ? filled(rw, cond, other) : none();
        if (fill.i)
            return build3(rw->g, OP_where, cond, m->in[1 - i % 2], fill);
    }
    return none();
}

/* ---- masks behind softmax: w / sum(w) with w = softmax(s) * m, and 0 where that sum is 0; jax2onnx ---- */

static bool is_number(const Rewrite *rw, Val v, double x)
{
    double c;
    return rewrite_scalar(rw, v, &c) && c == x;
}

/* softmax(where(m, s, -inf)), and 0 where that is NaN: in a row of which nothing is seen */
static Val masked_softmax(Rewrite *rw, const Node *softmax, Val m)
{
    Graph *g = rw->g;
    const Node *cast = rewrite_def(rw, m, OP_cast);
    Val cond = cast && val_type(g, cast->in[0])->dt == DT_BOOL ? cast->in[0] : is_one(rw, m);
    Val s = softmax->in[0];
    Type both = *val_type(g, s);
    DType dt = both.dt;
    if (!cond.i || !type_broadcast(&both, val_type(g, cond)) || !type_same_shape(&both, val_type(g, s)))
        return none();
    Val seen = build3(g, OP_where, cond, s, build_scalar(g, dt, -INFINITY));
    Val p = build(g, OP_softmax, softmax->name, 1, &seen, softmax->attr);
    return build3(g, OP_where, build1(g, OP_isnan, p), build_scalar(g, dt, 0), p);
}

Val rule_masked_softmax(Rewrite *rw, const Node *n)
{
    const Node *div =
        n->op == OP_where && is_number(rw, n->in[2], 0) ? rewrite_def(rw, n->in[1], OP_div) : NULL;
    const Node *more = div ? rewrite_def(rw, n->in[0], OP_less) : NULL;
    const Node *safe = more ? rewrite_def(rw, div->in[1], OP_where) : NULL;
    const Node *sum =
        safe && is_number(rw, more->in[0], 0) ? rewrite_def(rw, more->in[1], OP_reduce_sum) : NULL;
    if (!sum || sum->in[0].i != div->in[0].i || safe->in[0].i != n->in[0].i ||
        safe->in[1].i != more->in[1].i || !is_number(rw, safe->in[2], 1))
        return none();
    const Node *w = rewrite_def(rw, div->in[0], OP_mul);
    const Ints *axes = &((const ReduceAttrs *)sum->attr)->axes;
    for (int i = 0; w && i < 2; i++) {
        const Node *softmax = rewrite_def(rw, w->in[i], OP_softmax);
        if (softmax && axes->n == 1 && axes->v[0] == ((const AxisAttrs *)softmax->attr)->axis)
            return masked_softmax(rw, softmax, w->in[1 - i]);
    }
    return none();
}

/* ---- where(x == 0, k, a / (c * x)), such as sinc ------------------------------------------------------ */

/* What is not selected has the gradient 0 / 0 there, unless it is divided by something else. */
Val rule_guarded_quotient(Rewrite *rw, const Node *n)
{
    Graph *g = rw->g;
    double c;
    const Node *equal = n->op == OP_where ? rewrite_def(rw, n->in[0], OP_equal) : NULL;
    const Node *div = equal ? rewrite_def(rw, n->in[2], OP_div) : NULL;
    if (!div || !is_number(rw, equal->in[1], 0))
        return none();
    Val by = div->in[1], x = equal->in[0];
    if (by.i != x.i && form_scaled(rw, by, &c).i != x.i)
        return none();
    by = build3(g, OP_where, n->in[0], build_scalar(g, val_type(g, by)->dt, 1), by);
    return build3(g, OP_where, n->in[0], n->in[1], build2(g, OP_div, div->in[0], by));
}
