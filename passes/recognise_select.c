/* recognise_select.c -- where, written as cast(c) * x + cast(not c) * y.
 *
 * tf2onnx writes TensorFlow's SelectV2 so.  Of what is not selected 0 * x is NaN where x is not finite; the
 * where that was meant has no such NaN.  With a constant condition the second product is a constant, too. */
#include "recognise.h"

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

/* Where the constant m of zeros and ones is 1 and k is 0, else {0}; *fill: all of k where m is 0. */
static Val condition(Rewrite *rw, Val m, Val k, Val *fill)
{
    Graph *g = rw->g;
    if (!graph_is_const(g, m) || !graph_is_const(g, k) || !type_same_shape(val_type(g, m), val_type(g, k)))
        return none();
    Tensor one = graph_tensor(g, m), other = graph_tensor(g, k);
    int64_t n = type_count(&one.type), zeros = 0;
    double same = 0;
    Type type = type_make(DT_BOOL, one.type.rank, one.type.dim);
    char *set = NEW(g->arena, char, n);
    for (int64_t i = 0; i < n; i++) {
        double factor = tensor_f(&one, i), added = tensor_f(&other, i);
        set[i] = factor == 1;
        if (factor == 0 && zeros++ == 0)
            same = added;
        if (added != (set[i] ? 0 : same) || (factor != 0 && factor != 1))
            return none();
    }
    *fill = zeros > 0 ? build_scalar(g, other.type.dt, same) : none();
    return zeros > 0 ? graph_const(g, "selected", type, set) : none();
}

Val rule_select(Rewrite *rw, const Node *n)
{
    Selected a, b;
    for (int i = 0; n->op == OP_add && i < 4; i++) {
        Val v = n->in[i / 2], other = n->in[1 - i / 2], fill;
        for (int k = 0; k < 2 && selected(rw, v, i % 2, &a); k++)
            if (selected(rw, other, k, &b) && a.cond.i == b.cond.i && a.negated != b.negated)
                return build3(rw->g, OP_where, a.cond, a.negated ? b.x : a.x, a.negated ? a.x : b.x);
        const Node *m = rewrite_def(rw, v, OP_mul);
        Val cond = m ? condition(rw, m->in[i % 2], other, &fill) : none();
        if (cond.i)
            return build3(rw->g, OP_where, cond, m->in[1 - i % 2], fill);
    }
    return none();
}
