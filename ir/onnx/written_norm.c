/* written_norm.c -- batch norms for inference that are written out in elementary operators, as those of Keras
 * on PyTorch come:
 *
 *     (x - mean) * (scale / sqrt(variance + eps)) + bias
 *
 * or, with a factor f = scale / sqrt(variance + eps), as those of Keras on JAX do:
 *
 *     x * f + (-mean * f + bias)
 *
 * Mean and variance are tensors of the file, which would train as any other: the norm becomes one of the
 * batch's statistics, as BatchNormalization does. */
#include "onnx_int.h"

enum { MOST_VISITS = 6 }; /* enough for a product of three factors */

typedef struct {
    const Graph *g;
    BatchNorm norm;
    int visits;
} Written;

static const Node *made_by(const Graph *g, Val v, Op op)
{
    const Node *n = graph_def(g, v);
    return n && n->op == op ? n : NULL;
}

/* The tensor that v views, if it has an element per index of dimension *axis of x (-1: any, which is set);
 * else {0}. */
static Val per_channel(const Graph *g, Val v, const Type *x, int64_t *axis)
{
    const Type *t = val_type(g, v);
    for (int d = 0; d < t->rank && t->rank <= x->rank; d++) {
        int64_t at = x->rank - t->rank + d;
        bool all = t->dim[d] != 1 && t->dim[d] == type_count(t) && t->dim[d] == x->dim[at];
        if (!all || (*axis >= 0 && *axis != at))
            continue;
        *axis = at;
        return graph_root(g, v);
    }
    return (Val){0};
}

static bool trains_so_far(const Graph *g, Val v) { return v.i && g->vals[v.i].kind == VAL_PARAM; }

/* Is v sqrt(variance + eps)?  Sets both. */
static bool deviation(Written *w, Val v)
{
    const Node *root = made_by(w->g, v, OP_sqrt);
    const Node *sum = root ? made_by(w->g, root->in[0], OP_add) : NULL;
    for (int i = 0; sum && i < 2; i++) {
        if (!graph_is_const(w->g, sum->in[i]) || type_count(val_type(w->g, sum->in[i])) != 1)
            continue;
        Tensor eps = graph_tensor(w->g, sum->in[i]);
        w->norm.eps = tensor_f(&eps, 0);
        w->norm.var = sum->in[!i];
        return true;
    }
    return false;
}

static bool is_one(const Graph *g, Val v)
{
    if (!graph_is_const(g, v) || type_count(val_type(g, v)) != 1)
        return false;
    Tensor t = graph_tensor(g, v);
    return tensor_f(&t, 0) == 1;
}

/* Is v a factor: x - mean, 1 / sqrt(variance + eps), or else the scale; or a product or quotient of them? */
static bool factor(Written *w, Val v)
{
    const Node *n = graph_def(w->g, v);
    if (++w->visits > MOST_VISITS)
        return false;
    if (n && n->op == OP_mul)
        return factor(w, n->in[0]) && factor(w, n->in[1]);
    if (n && n->op == OP_div)
        return !w->norm.var.i && (is_one(w->g, n->in[0]) || factor(w, n->in[0])) &&
               deviation(w, n->in[1]);
    if (n && n->op == OP_reciprocal)
        return !w->norm.var.i && deviation(w, n->in[0]);
    if (n && n->op == OP_sub && !w->norm.x.i) {
        w->norm.x = n->in[0];
        w->norm.mean = n->in[1];
        return true;
    }
    if (w->norm.scale.i)
        return false;
    w->norm.scale = v;
    return true;
}

/* The factor f of product = x * f and shift = -mean * f + bias, of which it sets x, mean and bias; else
 * {0}. */
static Val shifted(Written *w, Val product, Val shift)
{
    const Node *p = made_by(w->g, product, OP_mul), *sum = made_by(w->g, shift, OP_add);
    for (int order = 0; p && sum && order < 8; order++) {
        int i = order & 1, j = order >> 1 & 1, k = order >> 2;
        const Node *of_mean = made_by(w->g, sum->in[i], OP_mul);
        const Node *minus = of_mean ? made_by(w->g, of_mean->in[j], OP_neg) : NULL;
        if (!minus || of_mean->in[!j].i != p->in[k].i)
            continue;
        w->norm.x = p->in[!k];
        w->norm.mean = minus->in[0];
        w->norm.bias = sum->in[!i];
        return p->in[k];
    }
    return (Val){0};
}

/* Are all operands vectors along one dimension of x, mean and variance tensors of the file?  Sets these and
 * the axis. */
static bool take_channels(Written *w)
{
    BatchNorm *b = &w->norm;
    const Type *x = val_type(w->g, b->x);
    b->axis = -1;
    b->var = per_channel(w->g, b->var, x, &b->axis);
    b->mean = per_channel(w->g, b->mean, x, &b->axis);
    return trains_so_far(w->g, b->mean) && trains_so_far(w->g, b->var) && b->mean.i != b->var.i &&
           per_channel(w->g, b->scale, x, &b->axis).i && per_channel(w->g, b->bias, x, &b->axis).i;
}

bool batch_norm_written_out(OnnxNode *n)
{
    const double momentum = 0.99; /* what Keras begins with; the file does not say */
    const OnnxOptions *opt = n->x->opt;
    Val out[4], mean_var[2];
    if (opt->inference || opt->forward_only || opt->keep_batch_norm)
        return false;
    for (int i = 0; i < 2; i++) {
        Written w = {.g = n->g, .norm = {.bias = n->in[i], .momentum = momentum}};
        BatchNorm *b = &w.norm;
        Val f = shifted(&w, n->in[!i], n->in[i]);
        if (!factor(&w, f.i ? f : n->in[!i]) || !b->x.i || !b->var.i || !b->scale.i || !take_channels(&w))
            continue;
        int64_t channels = val_type(n->g, b->x)->dim[b->axis];
        b->scale = build_reshape(n->g, b->scale, 1, &channels);
        b->bias = build_reshape(n->g, b->bias, 1, &channels);
        TRY(batch_norm_of_batch(n->x, b, out, mean_var));
        n->out[0] = out[0];
        note_batch_norm(n);
        return true;
    }
    return false;
}
