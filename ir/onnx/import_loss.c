/* import_loss.c -- the standard's losses: classes are on dimension 1. */
#include "onnx_int.h"
#include <string.h>

typedef struct {
    int64_t ignore;
    bool has_ignore;
    Val kept; /* 0 where an element is ignored, else 1; {0}: all are 1 */
} Ignored;

static Ignored read_ignored(const OnnxNode *n)
{
    return (Ignored){.ignore = attr_int(n, "ignore_index", 0), .has_ignore = attr_find(n, "ignore_index")};
}

/* The weight of each element: that of its class, or 0 if it is ignored.  {0}: all are 1.
 * Sets target to the classes, 0 where an element is ignored. */
static Val element_weights(OnnxNode *n, Ignored *ig, Val *target)
{
    Graph *g = n->g;
    Val weight = {0};
    *target = n->in[1];
    if (ig->has_ignore) {
        Val hit = build2(g, OP_equal, *target, scalar_like(g, *target, (double)ig->ignore));
        ig->kept = build_cast(g, one(g, OP_not, hit), in_type(n, 0)->dt);
        *target = build3(g, OP_where, hit, scalar_like(g, *target, 0), *target);
    }
    if (has_in(n, 2))
        weight = build_gather(g, n->in[2], *target, 0);
    return weight.i && ig->kept.i ? build2(g, OP_mul, weight, ig->kept) : weight.i ? weight : ig->kept;
}

/* Reduces the loss, which is given per element and weighted, as the attribute says. */
static bool reduce_loss(OnnxNode *n, Val loss, Val weights)
{
    Graph *g = n->g;
    const char *how = attr_str(n, "reduction", "mean");
    TRY(loss.i);
    uint32_t all = (1u << val_type(g, loss)->rank) - 1;
    if (strcmp(how, "none") == 0)
        n->out[0] = loss;
    else if (strcmp(how, "sum") == 0)
        n->out[0] = build_reduce(g, OP_reduce_sum, loss, all, false);
    else if (strcmp(how, "mean") != 0)
        return refuse(n, "reduction '%s'", how);
    else if (!weights.i)
        n->out[0] = mean_over(g, loss, all, false);
    else
        n->out[0] = build2(g, OP_div, build_reduce(g, OP_reduce_sum, loss, all, false),
                           build_reduce(g, OP_reduce_sum, weights, all, false));
    return n->out[0].i;
}

enum { CLASSES = 1 << 1 }; /* the dimension, as a mask */

/* label_smoothing, of which torch.export's exporter leaves nothing but the call. */
static double smoothing(const OnnxNode *n) { return call_number(n, "cross_entropy_loss.default", 5, 0); }

/* The loss with label smoothing: a share of it is the mean of all classes' losses, each times its weight. */
static Val smoothed(OnnxNode *n, Val loss, Val kept)
{
    Graph *g = n->g;
    double share = smoothing(n);
    if (share == 0 || !loss.i)
        return loss;
    const Type t = *in_type(n, 0);
    Val x = n->in[0], lse = build_reduce(g, OP_reduce_log_sum_exp, x, CLASSES, false);
    if (has_in(n, 2)) {
        x = build2(g, OP_mul, x, along_axis(g, n->in[2], 1, t.rank));
        lse = build2(g, OP_mul, lse, mean_over(g, n->in[2], 1, false));
    }
    Val all = build2(g, OP_sub, lse, mean_over(g, x, CLASSES, false));
    if (kept.i)
        all = build2(g, OP_mul, all, kept);
    return build2(g, OP_add, mul_scalar(g, loss, 1 - share), mul_scalar(g, all, share));
}

/* Targets that are probabilities of the classes: PyTorch's, not the standard's. */
static bool import_probable_classes(OnnxNode *n)
{
    Graph *g = n->g;
    const Type t = *in_type(n, 0);
    double share = smoothing(n);
    Val p = n->in[1];
    if (!type_same_shape(&t, in_type(n, 1)))
        return fail(n->x->d, "targets that are probabilities need the shape of the scores");
    if (share)
        p = build2(g, OP_add, mul_scalar(g, p, 1 - share), scalar_like(g, p, share / (double)t.dim[1]));
    if (has_in(n, 2))
        p = build2(g, OP_mul, p, along_axis(g, n->in[2], 1, t.rank));
    Val log = build(g, OP_log_softmax, NULL, 1, n->in, &(AxisAttrs){1});
    Val sum = build_reduce(g, OP_reduce_sum, build2(g, OP_mul, log, p), CLASSES, false);
    TRY(reduce_loss(n, one(g, OP_neg, sum), (Val){0}));
    if (has_out(n, 1))
        n->out[1] = log;
    return true;
}

static bool import_softmax_cross_entropy(OnnxNode *n);

/* Scores of one sample without a batch dimension: PyTorch's, not the standard's. */
static bool import_one_sample(OnnxNode *n)
{
    Graph *g = n->g;
    for (int k = 0; k < 2; k++)
        n->in[k] = insert_axis(g, n->in[k], 0);
    TRY(n->in[0].i && n->in[1].i && import_softmax_cross_entropy(n));
    n->out[0] = build_reshape(g, n->out[0], 0, NULL);
    if (has_out(n, 1))
        n->out[1] = drop_axis(g, n->out[1], 0);
    return n->out[0].i;
}

static bool import_softmax_cross_entropy(OnnxNode *n)
{
    Graph *g = n->g;
    Ignored ig = read_ignored(n);
    if (in_type(n, 0)->rank == 1)
        return import_one_sample(n);
    if (in_type(n, 0)->rank < 2)
        return fail(n->x->d, "scores need a class dimension");
    if (dtype_is_float(in_type(n, 1)->dt))
        return import_probable_classes(n);
    Val target, out[3], weights = element_weights(n, &ig, &target);
    TRY(build_n(g, OP_cross_entropy, NULL, 2, n->in, &(CrossEntropyAttrs){1, ig.ignore, ig.has_ignore, 0, 0},
                3, out));
    Val loss = has_in(n, 2) ? build2(g, OP_mul, out[0], weights) : out[0];
    TRY(reduce_loss(n, smoothed(n, loss, ig.kept), weights));
    if (has_out(n, 1))
        n->out[1] = build(g, OP_log_softmax, NULL, 1, n->in, &(AxisAttrs){1});
    return true;
}

static bool import_nll(OnnxNode *n)
{
    Graph *g = n->g;
    Ignored ig = read_ignored(n);
    Val target, weights = element_weights(n, &ig, &target);
    if (in_type(n, 0)->rank < 2)
        return fail(n->x->d, "input needs a class dimension");
    Val in[] = {n->in[0], insert_axis(g, target, 1)};
    Val picked = build(g, OP_gather_elements, NULL, 2, in, &(ElementsAttrs){.axis = 1});
    Val loss = one(g, OP_neg, drop_axis(g, picked, 1));
    return reduce_loss(n, weights.i ? build2(g, OP_mul, loss, weights) : loss, weights);
}

const OnnxOp onnx_loss[] = {
    {"NegativeLogLikelihoodLoss", 12, .import = import_nll, .fixed = 4},
    {"SoftmaxCrossEntropyLoss", 12, .import = import_softmax_cross_entropy, .fixed = 4},
    {0},
};
