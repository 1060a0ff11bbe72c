/* recognise.c -- replaces decomposed forms by native operators.
 *
 * Exporters write norms, activations and losses as chains of elementary operators; recognising
 * them saves the intermediate values that the chain's gradient would keep.  One function per
 * form, one file per family.  A rule looks at the last node of its form and walks up the
 * producers; operands of + and * are tried both ways.  Forms grow: x / deviation becomes a norm
 * without scale, a product with it a norm with scale, a sum with that a norm with bias.
 * Values change by rounding only. */
#include "recognise.h"
#include <math.h>

bool form_near(double a, double b, DType dt)
{
    double tolerance = dtype_size[dt] < 4 ? 4e-3 : 1e-6;
    return fabs(a - b) <= tolerance * fabs(b);
}

bool form_counts(const Rewrite *rw, Val v, int64_t first, int64_t step)
{
    const Graph *g = rw->g;
    double same;
    if (step == 0 && rewrite_scalar(rw, v, &same))
        return same == (double)first;
    bool counts = graph_is_const(g, v);
    int64_t n = type_count(val_type(g, v));
    for (int64_t k = 0; counts && k < n; k++) {
        Tensor values = graph_tensor(g, v);
        counts = tensor_f(&values, k) == (double)(first + k * step);
    }
    return counts;
}

/* x if it has v's shape, else {0}: a constant that x is combined with may have broadcast it. */
static Val of_shape(const Rewrite *rw, Val x, Val v)
{
    return type_same_shape(val_type(rw->g, x), val_type(rw->g, v)) ? x : (Val){0};
}

Val form_scaled(const Rewrite *rw, Val v, double *c)
{
    const Node *m = rewrite_def(rw, v, OP_mul), *d = rewrite_def(rw, v, OP_div);
    if (m && rewrite_scalar(rw, m->in[1], c))
        return of_shape(rw, m->in[0], v);
    if (m && rewrite_scalar(rw, m->in[0], c))
        return of_shape(rw, m->in[1], v);
    if (d && rewrite_scalar(rw, d->in[1], c)) {
        *c = 1 / *c;
        return of_shape(rw, d->in[0], v);
    }
    const Node *n = rewrite_def(rw, v, OP_neg);
    *c = -1;
    return n ? n->in[0] : (Val){0};
}

Val form_behind_reshapes(const Rewrite *rw, Val v)
{
    for (const Node *r; (r = rewrite_def(rw, v, OP_reshape));)
        v = r->in[0];
    return v;
}

Val form_shifted(const Rewrite *rw, Val v, double *c)
{
    const Node *a = rewrite_def(rw, v, OP_add), *s = rewrite_def(rw, v, OP_sub);
    if (a && rewrite_scalar(rw, a->in[1], c))
        return of_shape(rw, a->in[0], v);
    if (a && rewrite_scalar(rw, a->in[0], c))
        return of_shape(rw, a->in[1], v);
    if (s && rewrite_scalar(rw, s->in[1], c)) {
        *c = -*c;
        return of_shape(rw, s->in[0], v);
    }
    return (Val){0};
}

Val form_inverse(const Rewrite *rw, Val v, double *c)
{
    const Node *r = rewrite_def(rw, v, OP_reciprocal), *d = rewrite_def(rw, v, OP_div);
    *c = 1;
    if (r)
        return r->in[0];
    return d && rewrite_scalar(rw, d->in[0], c) ? of_shape(rw, d->in[1], v) : (Val){0};
}

Val form_folded(Rewrite *rw, const char *name, Op op, Val x, double c)
{
    DType dt = val_type(rw->g, x)->dt;
    char bytes[8];
    Tensor one = {type_scalar(dt), bytes};
    if (!x.i)
        return x;
    tensor_set_f(&one, 0, c);
    if (!form_near(tensor_f(&one, 0), c, dt))
        return (Val){0};
    return build(rw->g, op, name, 2, (Val[]){x, build_scalar(rw->g, dt, c)}, NULL);
}

static void add_factors(const Rewrite *rw, Monomial *p, Val v, int depth)
{
    double c;
    Val x = depth < FORM_DEPTH ? form_scaled(rw, v, &c) : (Val){0};
    const Node *m = depth < FORM_DEPTH ? rewrite_def(rw, v, OP_mul) : NULL;
    if (x.i) {
        p->c *= c;
        add_factors(rw, p, x, depth + 1);
    } else if (m && (depth == 0 || rewrite_once(rw, v))) { /* a shared product is one factor */
        add_factors(rw, p, m->in[0], depth + 1);
        add_factors(rw, p, m->in[1], depth + 1);
    } else if (p->n < FORM_FACTORS) {
        p->factor[p->n++] = v;
    } else {
        p->n = FORM_FACTORS + 1;
    }
}

Monomial form_product(const Rewrite *rw, Val v)
{
    Monomial p = {.c = 1};
    add_factors(rw, &p, v, 0);
    return p;
}

bool form_monomial(const Rewrite *rw, Val v, Val x, int power, double *c)
{
    Monomial p = form_product(rw, v);
    *c = p.c;
    int found = 0;
    for (int i = 0; i < p.n && i < FORM_FACTORS; i++) {
        const Node *s = rewrite_def(rw, p.factor[i], OP_square);
        const Node *q = rewrite_def(rw, p.factor[i], OP_cube);
        Val base = s ? s->in[0] : q ? q->in[0] : p.factor[i];
        if (p.factor[i].i == x.i)
            base = x, found += 1;
        else
            found += s ? 2 : q ? 3 : 1;
        if (base.i != x.i)
            return false;
    }
    return p.n <= FORM_FACTORS && found == power;
}

static Rule *const rules[] = {
    /* recognise_activation.c */
    rule_power, rule_square, rule_inverse, rule_fold_scale, rule_fold_shift, rule_sigmoid, rule_silu,
    rule_gelu, rule_softplus, rule_mish, rule_hardsigmoid, rule_hardswish, rule_relu,
    /* recognise_select.c */
    rule_select, rule_masked_softmax, rule_guarded_quotient,
    /* recognise_norm.c */
    rule_norm, rule_norm_affine, rule_norm_tf,
    /* recognise_attention.c */
    rule_softmax, rule_log_softmax, rule_lift_scale, rule_grouped_query, rule_rotary,
    /* attention_shared.c */
    rule_added_scores,
    /* recognise_product.c */
    rule_attention, rule_attention_layout,
    /* attention_packed.c */
    rule_attention_packed,
    /* recognise_parts.c */
    rule_parts_alike,
    /* recognise_inverse.c */
    rule_substitution, rule_unit_diagonal,
    /* recognise_loss.c */
    rule_log_of_picked, rule_nll, rule_nll_sign, rule_nll_onehot, rule_cross_entropy,
    rule_loss_transposed, rule_log_sigmoid, rule_log_sum_exp, NULL};

/* Behind the others: an inverse of a triangular matrix is a loop that writes rows. */
static Rule *const rules_writes[] = {/* recognise_box.c */ rule_box_read,
                                     /* recognise_writes.c */ rule_box_written, NULL};

/* Behind the others, whose forms have roots in them. */
static Rule *const rules_ends[] = {/* recognise_norm.c */ rule_root, NULL};

/* Is x a product of matrices, perhaps behind elementwise operators? */
static bool is_product(const Graph *g, Val x)
{
    int64_t count = type_count(val_type(g, x));
    for (int depth = 0; depth < 2 * FORM_DEPTH; depth++) {
        const Node *n = graph_def(g, x);
        if (!n || n->op == OP_matmul)
            return n != NULL;
        for (int i = n->nin - 1; i >= 0; i--) /* a mask is often smaller */
            if (type_count(val_type(g, n->in[i])) == count && graph_def(g, n->in[i]))
                x = n->in[i];
        if (graph_def(g, x) == n)
            return false;
    }
    return false;
}

/* Does a node read v? */
static bool is_read(const Graph *g, Val v)
{
    for (uint32_t i = 0; i < g->norder; i++) {
        const Node *n = &g->nodes[g->order[i].i];
        for (int k = 0; k < n->nin; k++)
            if (n->in[k].i == v.i)
                return true;
    }
    return false;
}

/* Notes large scores of softmax that no rule matched, as they are kept for the gradient; a softmax that ends
 * the model is part of the loss and not counted. */
static void note_scores(const Graph *g, PassCtx *cx)
{
    enum { WORTH = 1 << 20 };
    for (uint32_t i = 0; cx->note && i < g->norder; i++) {
        const Node *n = &g->nodes[g->order[i].i];
        const Type *t = n->op == OP_softmax ? val_type(g, n->out[0]) : NULL;
        if (!t || t->rank < 3 || type_bytes(t) <= WORTH || !is_product(g, n->in[0]) || !is_read(g, n->out[0]))
            continue;
        cx->note(cx->user, arena_printf(g->arena, "%s: a softmax of %.1f MB is stored: around it is "
                                        "no form of attention that is known", n->name ? n->name
                                        : g->vals[n->out[0].i].name, (double)type_bytes(t) / 1e6));
    }
}

bool pass_recognise(Graph *g, PassCtx *cx)
{
    bool written = false;
    TRY(rewrite_run(g, cx->tmp, rules, false, &cx->changed));
    TRY(rewrite_run(g, cx->tmp, rules_writes, false, &written));
    if (written) /* what reads slices that were written reads the parts */
        TRY(pass_canonicalize(g, cx) && rewrite_run(g, cx->tmp, rules, false, &cx->changed));
    TRY(rewrite_run(g, cx->tmp, rules_ends, false, &cx->changed));
    cx->changed |= written;
    note_scores(g, cx);
    return true;
}
