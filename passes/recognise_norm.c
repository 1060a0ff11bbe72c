/* recognise_norm.c -- layer, RMS, group and instance normalization.
 *
 * A norm is built in three steps that meet in any order of operands:
 *   c / sqrt(mean(c^2) + eps)         layer_norm of x if c = x - mean(x), else rms_norm of c
 *   c / sqrt(mean(x^2) - mean(x)^2 + eps)  layer_norm of x, where c = x - mean(x)
 *   norm * scale, norm + bias         scale and bias of any shape that broadcasts into x
 * Group and instance norms view x as rows of groups and back; there scale and bias are per
 * channel, and the norm moves to the common refinement of both views. */
#include "recognise.h"

/* ---- mean and deviation -------------------------------------------------------------- */

static const Node *skip_reshape(const Rewrite *rw, Val *v)
{
    const Node *r = rewrite_def(rw, *v, OP_reshape);
    if (r)
        *v = r->in[0];
    return r;
}

/* Are the reduced axes all dimensions from some first one on (extents of 1 aside)? */
static bool trailing(const Type *x, const Ints *axes, int64_t *first)
{
    uint32_t mask = axes_mask(axes);
    *first = 0;
    while (*first < x->rank && !(mask >> *first & 1))
        ++*first;
    for (int64_t d = *first; d < x->rank; d++)
        if (!(mask >> d & 1) && x->dim[d] != 1)
            return false;
    return *first < x->rank;
}

/* Returns x if v = mean of x over dimensions *axis and behind, which stay as extents of 1, else {0}. */
static Val mean_of(const Rewrite *rw, Val v, int64_t *axis)
{
    double c;
    Type t = *val_type(rw->g, v);
    skip_reshape(rw, &v);
    Val sum = form_scaled(rw, v, &c);
    if (!sum.i)
        return none();
    skip_reshape(rw, &sum);
    const Node *r = rewrite_def(rw, sum, OP_reduce_sum);
    if (!r)
        return none();
    Type x = *val_type(rw->g, r->in[0]);
    if (!trailing(&x, &((const ReduceAttrs *)r->attr)->axes, axis))
        return none();
    double count = 1;
    for (int64_t d = *axis; d < x.rank; d++) {
        count *= (double)x.dim[d];
        x.dim[d] = 1;
    }
    return type_equal(&x, &t) && form_near(c * count, 1, t.dt) ? r->in[0] : none();
}

/* A norm: the deviation is that of c from 0, or of x, if given, from its mean. */
typedef struct {
    Val c, x;
    double eps;
    int64_t axis;
} Norm;

/* Returns x if v = mean(x)^2, else {0}; rule_square has made squares of products with itself. */
static Val squared_mean(const Rewrite *rw, Val v, int64_t *axis)
{
    const Node *square = rewrite_def(rw, v, OP_square);
    return square ? mean_of(rw, square->in[0], axis) : none();
}

/* Is v = mean(c^2), or mean(x^2) - mean(x)^2, perhaps clamped to be not negative? */
static bool variance(const Rewrite *rw, Val v, Norm *f)
{
    const Node *square = rewrite_def(rw, mean_of(rw, v, &f->axis), OP_square);
    const Node *positive = rewrite_def(rw, v, OP_relu);
    const Node *less = rewrite_def(rw, positive ? positive->in[0] : v, OP_sub);
    int64_t axis;
    f->c = square ? square->in[0] : none();
    f->x = less ? squared_mean(rw, less->in[1], &axis) : none();
    if (!f->x.i)
        return f->c.i;
    square = rewrite_def(rw, mean_of(rw, less->in[0], &f->axis), OP_square);
    return square && square->in[0].i == f->x.i && axis == f->axis;
}

/* Is v = op(variance + eps), op being sqrt or rsqrt? */
static bool deviation(const Rewrite *rw, Val v, Op op, Norm *f)
{
    const Node *root = rewrite_def(rw, v, op);
    if (!root)
        return false;
    Val var = form_shifted(rw, root->in[0], &f->eps);
    if (!var.i)
        var = root->in[0], f->eps = 0;
    return variance(rw, var, f) && f->eps >= 0;
}

/* Returns x if c = x - mean(x) over the norm's axes, else {0}. */
static Val centred(const Rewrite *rw, Val c, const Norm *f)
{
    const Node *sub = rewrite_def(rw, c, OP_sub);
    int64_t axis;
    bool found = sub && mean_of(rw, sub->in[1], &axis).i == sub->in[0].i && axis == f->axis;
    return found ? sub->in[0] : none();
}

/* Is f the deviation of c? */
static bool divides(const Rewrite *rw, const Norm *f, Val c)
{
    return f->x.i ? centred(rw, c, f).i == f->x.i : f->c.i == c.i;
}

static Val build_norm(Rewrite *rw, const Node *n, const Norm *f)
{
    NormAttrs at = {f->axis, f->eps};
    Val out[3] = {{0}}, x = f->x.i ? f->x : centred(rw, f->c, f);
    if (x.i)
        build_n(rw->g, OP_layer_norm, n->name, 1, &x, &at, 3, out);
    else
        build_n(rw->g, OP_rms_norm, n->name, 1, &f->c, &at, 2, out);
    return out[0];
}

/* c / sqrt(..), c * rsqrt(..), c * (rsqrt(..) * scale) */
Val rule_norm(Rewrite *rw, const Node *n)
{
    Norm f;
    if (n->op == OP_div && deviation(rw, n->in[1], OP_sqrt, &f) && divides(rw, &f, n->in[0]))
        return build_norm(rw, n, &f);
    for (int i = 0; n->op == OP_mul && i < 2; i++) {
        Val c = n->in[i], factor = n->in[1 - i];
        if (deviation(rw, factor, OP_rsqrt, &f) && divides(rw, &f, c))
            return build_norm(rw, n, &f);
        const Node *both = rewrite_def(rw, factor, OP_mul);
        for (int k = 0; both && k < 2; k++)
            if (deviation(rw, both->in[k], OP_rsqrt, &f) && divides(rw, &f, c))
                return build2(rw->g, OP_mul, build_norm(rw, n, &f), both->in[1 - k]);
    }
    return none();
}

/* ---- TensorFlow's batch form: x * s + (bias - mean(x) * s) with s = rsqrt(..) * scale; Keras 3 has
 * x * s + (-mean(x) * s + bias), and either without a bias ------------------------------- */

static Val other_factor(const Node *m, Val v)
{
    return m->in[0].i == v.i ? m->in[1] : m->in[1].i == v.i ? m->in[0] : none();
}

/* x * s + shift with shift = +-mean(x) * s */
static Val norm_tf(Rewrite *rw, const Node *n, const Node *product, Val shift, bool negative)
{
    const Node *m = rewrite_def(rw, shift, OP_mul);
    Norm f;
    int64_t axis;
    for (int i = 0; m && i < 2; i++) {
        Val x = product->in[i], s = product->in[1 - i], mean = other_factor(m, s);
        const Node *neg = rewrite_def(rw, mean, OP_neg);
        if (!mean.i || negative == (neg != NULL) || mean_of(rw, neg ? neg->in[0] : mean, &axis).i != x.i)
            continue;
        const Node *both = rewrite_def(rw, s, OP_mul);
        Val scale = none();
        bool found = deviation(rw, s, OP_rsqrt, &f);
        for (int k = 0; both && !found && k < 2; k++)
            if ((found = deviation(rw, both->in[k], OP_rsqrt, &f)))
                scale = both->in[1 - k];
        if (!found || axis != f.axis || (f.x.i ? f.x : centred(rw, f.c, &f)).i != x.i)
            continue;
        Val y = build_norm(rw, n, &f);
        return scale.i ? build2(rw->g, OP_mul, y, scale) : y;
    }
    return none();
}

Val rule_norm_tf(Rewrite *rw, const Node *n)
{
    const Node *first = rewrite_def(rw, n->in[0], OP_mul);
    if (n->op == OP_sub && first)
        return norm_tf(rw, n, first, n->in[1], true);
    for (int i = 0; n->op == OP_add && i < 2; i++) {
        Val rest = n->in[1 - i];
        const Node *product = rewrite_def(rw, n->in[i], OP_mul);
        const Node *less = rewrite_def(rw, rest, OP_sub), *more = rewrite_def(rw, rest, OP_add);
        Val y = product ? norm_tf(rw, n, product, rest, false) : none();
        if (y.i)
            return y;
        if (product && less && (y = norm_tf(rw, n, product, less->in[1], true)).i)
            return build2(rw->g, OP_add, y, less->in[0]);
        for (int k = 0; product && more && k < 2; k++)
            if ((y = norm_tf(rw, n, product, more->in[k], false)).i)
                return build2(rw->g, OP_add, y, more->in[1 - k]);
    }
    return none();
}

/* ---- scale and bias ------------------------------------------------------------------ */

/* Finds the common refinement r of two shapes of the same elements; whole[d]: the dimension of a
 * that its dimension d comes from; *axis: where dimension axis_b of b starts in it. */
static bool refine(const Type *a, const Type *b, int64_t axis_b, Type *r, int *whole, int64_t *axis)
{
    int64_t dim[MAX_RANK], left_a = 1, left_b = 1;
    int from[MAX_RANK], n = 0, i = a->rank, j = b->rank;
    *axis = -1;
    while (i > 0 || j > 0 || left_a > 1 || left_b > 1) {
        if (left_b == 1 && j == axis_b && *axis < 0)
            *axis = n;
        if (left_a == 1 && i > 0)
            left_a = a->dim[--i];
        if (left_b == 1 && j > 0)
            left_b = b->dim[--j];
        int64_t e = left_a < left_b ? left_a : left_b;
        if (e < 1 || left_a % e || left_b % e || n == MAX_RANK)
            return false;
        from[n] = i;
        dim[n++] = e;
        left_a /= e;
        left_b /= e;
    }
    if (*axis < 0)
        *axis = n;
    *axis = n - *axis;
    *r = (Type){.dt = a->dt, .rank = n};
    for (int d = 0; d < n; d++) {
        r->dim[d] = dim[n - 1 - d];
        whole[d] = from[n - 1 - d];
    }
    return true;
}

/* Reshapes v, which broadcasts into a, to broadcast into a's refinement r. */
static Val refined_operand(Graph *g, Val v, const Type *a, const Type *r, const int *whole)
{
    Type t = *val_type(g, v);
    Type full = {.dt = t.dt, .rank = r->rank};
    int skip = 0;
    for (int d = 0; d < r->rank; d++) {
        int own = whole[d] - (a->rank - t.rank);
        full.dim[d] = own < 0 || t.dim[own] == 1 ? 1 : r->dim[d];
    }
    while (skip < r->rank && full.dim[skip] == 1)
        skip++;
    return build_reshape(g, v, r->rank - skip, full.dim + skip);
}

/* The norm behind v, seen through a view, if v is its only use. */
static const Node *norm_behind(const Rewrite *rw, Val v)
{
    if (!rewrite_once(rw, v))
        return NULL;
    if (skip_reshape(rw, &v) && !rewrite_once(rw, v))
        return NULL;
    const Node *l = rewrite_def(rw, v, OP_layer_norm), *r = rewrite_def(rw, v, OP_rms_norm);
    const Node *n = l ? l : r;
    return n && n->out[0].i == v.i ? n : NULL;
}

static bool has(const Node *n, int k) { return k < n->nin && n->in[k].i; }

/* norm * scale, norm + bias */
Val rule_norm_affine(Rewrite *rw, const Node *n)
{
    Graph *g = rw->g;
    int slot = n->op == OP_mul ? 1 : 2;
    for (int i = 0; (n->op == OP_mul || n->op == OP_add) && i < 2; i++) {
        const Node *norm = norm_behind(rw, n->in[i]);
        Val v = n->in[1 - i];
        if (!norm || has(norm, slot) || has(norm, 2) || (slot == 2 && norm->op == OP_rms_norm))
            continue;
        Type y = *val_type(g, n->in[i]), x = *val_type(g, norm->in[0]), both = y, r;
        if (!type_broadcast(&both, val_type(g, v)) || !type_same_shape(&both, &y) ||
            (slot == 2 && type_count(val_type(g, v)) == type_count(&y)))
            continue; /* the sum with a full tensor is a residual connection, not a bias */
        int whole[MAX_RANK];
        NormAttrs at = *(const NormAttrs *)norm->attr;
        if (!refine(&y, &x, at.axis, &r, whole, &at.axis) || (has(norm, 1) && !type_same_shape(&r, &x)))
            continue;
        Val in[3] = {build_reshape(g, norm->in[0], r.rank, r.dim),
                     has(norm, 1) ? norm->in[1] : none(), none()}, out[3] = {{0}};
        in[slot] = type_same_shape(&r, &y) ? v : refined_operand(g, v, &y, &r, whole);
        build_n(g, norm->op, norm->name, slot + 1, in, &at, norm->op == OP_layer_norm ? 3 : 2, out);
        return build_reshape(g, out[0], y.rank, y.dim);
    }
    return none();
}

/* ---- norms that are values ------------------------------------------------------------- */

/* Is v a sum of squares, scaled or viewed, or a product of such (of two norms in a cosine)? */
static bool sums_squares(const Rewrite *rw, Val v, int depth)
{
    double c;
    skip_reshape(rw, &v);
    const Node *sum = rewrite_def(rw, v, OP_reduce_sum), *e = rewrite_def(rw, v, OP_expand);
    const Node *m = rewrite_def(rw, v, OP_mul);
    Val of = e ? e->in[0] : form_scaled(rw, v, &c);
    if (sum || depth == FORM_DEPTH)
        return sum && rewrite_def(rw, sum->in[0], OP_square);
    if (of.i)
        return sums_squares(rw, of, depth + 1);
    return m && sums_squares(rw, m->in[0], depth + 1) && sums_squares(rw, m->in[1], depth + 1);
}

/* sqrt of such is a norm or a standard deviation: PyTorch's have gradient zero where they are zero, where
 * that of sqrt is not finite.  So has another power below 1: TorchScript's cdist is one to 1 / (2 + 1e-6). */
Val rule_root(Rewrite *rw, const Node *n)
{
    Graph *g = rw->g;
    double power = n->op == OP_powc ? ((const PointwiseAttrs *)n->attr)->al : 0.5;
    bool found = (n->op == OP_sqrt || n->op == OP_powc) && sums_squares(rw, n->in[0], 0);
    if (!found || power <= 0 || power >= 1)
        return none();
    if (n->op == OP_sqrt)
        return build(g, OP_root, n->name, 1, n->in, NULL);
    DType dt = val_type(g, n->in[0])->dt;
    Val zero = build_scalar(g, dt, 0), is_zero = build2(g, OP_equal, n->in[0], zero);
    Val x = build3(g, OP_where, is_zero, build_scalar(g, dt, 1), n->in[0]);
    return build3(g, OP_where, is_zero, zero, build(g, OP_powc, n->name, 1, &x, n->attr));
}
