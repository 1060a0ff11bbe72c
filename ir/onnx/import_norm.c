/* import_norm.c -- normalizations.
 *
 * Inference-form BatchNormalization becomes the training form when a training step is
 * built: exporters write the inference form even for models that are to be trained. */
#include "onnx_int.h"
#include <string.h>

/* Operand k, a vector of channels, along dimension 1. */
static Val channel(OnnxNode *n, int k) { return along_axis(n->g, n->in[k], 1, in_type(n, 0)->rank); }

static Val affine(Graph *g, Val x, Val scale, Val bias)
{
    x = scale.i ? build2(g, OP_mul, x, scale) : x;
    return bias.i ? build2(g, OP_add, x, bias) : x;
}

/* ---- batch normalization ------------------------------------------------ */

/* Makes a statistic that the file holds a state, before anything is folded through it.  The inference form's
 * are, too, because others may be given (--weights, --val).  false: v does not become one. */
static bool is_state(const Import *x, Val v)
{
    ValKind *kind = &x->g->vals[v.i].kind;
    bool held = *kind == VAL_PARAM || *kind == VAL_CONST || *kind == VAL_STATE;
    if ((x->opt->forward_only && !x->opt->inference) || !held)
        return false;
    *kind = VAL_STATE;
    return true;
}

/* A running variance without a value in the file starts at 1, as in PyTorch. */
static void start_at_one(Graph *g, Val var)
{
    Value *v = &g->vals[var.i];
    if (v->data || v->file || (v->kind != VAL_STATE && v->kind != VAL_PARAM))
        return;
    Tensor ones = {v->type, arena_alloc(g->arena, (size_t)type_bytes(&v->type) + 1, 1)};
    for (int64_t i = 0; i < type_count(&v->type); i++)
        tensor_set_f(&ones, i, 1);
    v->data = ones.data;
}

static bool batch_norm_given(OnnxNode *n, double eps)
{
    Graph *g = n->g;
    for (int i = 3; i < 5 && n->x->opt->inference; i++)
        is_state(n->x, n->in[i]);
    start_at_one(g, n->in[4]);
    Val rstd = one(g, OP_rsqrt, add_scalar(g, channel(n, 4), eps));
    Val x = build2(g, OP_mul, build2(g, OP_sub, n->in[0], channel(n, 3)), rstd);
    n->out[0] = affine(g, x, channel(n, 1), channel(n, 2));
    for (int i = 1; i < n->nout && i < 5; i++)
        n->out[i] = n->in[i & 1 ? 3 : 4]; /* results of a node that is written to train */
    return n->out[0].i;
}

/* old * momentum + batch * (1 - momentum) */
static Val running(Graph *g, Val old, Val batch, double momentum)
{
    const Type *t = val_type(g, old);
    batch = build_reshape(g, build_cast(g, batch, t->dt), t->rank, t->dim);
    return build2(g, OP_add, mul_scalar(g, old, momentum), mul_scalar(g, batch, 1 - momentum));
}

/* Adds an update of a statistic; if several nodes share it, only the first updates it. */
static void keep_running(Graph *g, Val state, Val value)
{
    for (uint32_t i = 0; i < g->nupdate; i++)
        if (g->update[i].state.i == state.i)
            return;
    if (value.i)
        graph_add_update(g, state, value);
}

bool batch_norm_of_batch(const Import *x, const BatchNorm *b, Val out[4], Val mean_var[2])
{
    Graph *g = x->g;
    const Type *t = val_type(g, b->x);
    Val in[] = {b->x, b->scale, b->bias};
    TRY(build_n(g, OP_batch_norm, NULL, 3, in, &(NormAttrs){b->axis, b->eps}, 4, out));
    double count = (double)type_count(t) / (double)(t->dim[b->axis] ? t->dim[b->axis] : 1);
    Val var = x->opt->unbiased_var && count > 1 ? mul_scalar(g, out[2], count / (count - 1)) : out[2];
    bool keep = is_state(x, b->mean) && is_state(x, b->var);
    mean_var[0] = running(g, b->mean, out[1], b->momentum);
    mean_var[1] = running(g, b->var, var, b->momentum);
    if (keep) {
        start_at_one(g, b->var);
        keep_running(g, b->mean, mean_var[0]);
        keep_running(g, b->var, mean_var[1]);
    }
    return mean_var[0].i && mean_var[1].i;
}

static bool train_batch_norm(OnnxNode *n, double eps)
{
    BatchNorm b = {n->in[0], n->in[1], n->in[2], n->in[3], n->in[4], 1, eps, attr_float(n, "momentum", 0.9)};
    Val out[4], mean_var[2];
    TRY(batch_norm_of_batch(n->x, &b, out, mean_var));
    n->out[0] = out[0];
    for (int i = 1; i < n->nout && i < 5; i++)
        n->out[i] = i < 3 ? mean_var[i - 1] : out[i - 2]; /* saved statistics of opset < 14 */
    return true;
}

void note_batch_norm(OnnxNode *n)
{
    note(n->x, ONNX_REMARK, n->name,
         "inference-form BatchNormalization trains: batch "
         "statistics, running statistics updated");
}

/* Was the norm in eval() where others of the program were in training mode?  Their records alone tell. */
static bool held_by_program(const OnnxNode *n)
{
    return n->x->m->norm_trains && call_says(n, "_native_batch_norm_legit_no_training.default", "");
}

static bool import_batch_norm(OnnxNode *n)
{
    double eps = attr_float(n, "epsilon", 1e-5);
    for (int k = 0; k < 5; k++)
        if (!has_in(n, k))
            return fail(n->x->d, "operand %d is missing", k);
    if (in_type(n, 0)->rank < 2)
        return refuse(n, "data of rank %d", in_type(n, 0)->rank);
    if (n->opset < 9 && !attr_int(n, "spatial", 1))
        return refuse(n, "spatial=0");
    bool training = n->opset >= 14 ? attr_int(n, "training_mode", 0) != 0
                                   : n->nout > 1 || (n->opset < 7 && !attr_int(n, "is_test", 0));
    if (n->x->opt->inference)
        return batch_norm_given(n, eps);
    bool convert =
        !training && !n->x->opt->forward_only && !n->x->opt->keep_batch_norm && !held_by_program(n);
    if (convert)
        note_batch_norm(n);
    if (training || convert)
        return train_batch_norm(n, eps);
    return batch_norm_given(n, eps);
}

/* Is it a convolution whose operands have the names that PyTorch's exporters give folded ones:
 * onnx::Conv_42 (the older exporter), or a bias named after the weight, conv1.weight_bias (the newer)? */
static bool holds_folded_norm(const Onnx__NodeProto *n)
{
    if (strcmp(pb(n->op_type), "Conv") != 0 || n->n_input != 3)
        return false;
    const char *weight = pb(n->input[1]), *bias = pb(n->input[2]);
    size_t len = strlen(weight);
    return strncmp(weight, "onnx::Conv", 10) == 0 ||
           (strncmp(bias, weight, len) == 0 && strcmp(bias + len, "_bias") == 0);
}

/* Exporters for inference fold BatchNormalization into the convolution in front: a network of
 * such convolutions trains without it. */
void report_folded_norms(Import *x)
{
    enum { MANY = 4 };
    const Onnx__GraphProto *gp = x->m->proto->graph;
    int lost = roles_lost_norms(x), folded = 0;
    for (size_t i = 0; i < gp->n_node; i++)
        folded += holds_folded_norm(gp->node[i]);
    if (lost)
        note(x, ONNX_REMARK, "Conv",
             "%d BatchNormalizations are folded away, as the exporter's signature shows; export "
             "with optimize=False to train them",
             lost);
    else if (folded >= MANY)
        note(x, ONNX_REMARK, "Conv",
             "BatchNormalization seems to be folded into %d convolutions; export in training "
             "mode (PyTorch: optimize=False) to train it",
             folded);
}

/* ---- layer normalization and relatives ---------------------------------- */

/* Expands a scale or bias to the full shape of the normalised dimensions. */
static Val full_shape(OnnxNode *n, int k, int64_t axis)
{
    const Type *t = in_type(n, 0);
    if (!has_in(n, k))
        return (Val){0};
    return build_expand(n->g, n->in[k], t->rank - (int)axis, t->dim + axis);
}

static bool import_layer_norm(OnnxNode *n)
{
    Graph *g = n->g;
    const Type *t = in_type(n, 0);
    NormAttrs at = {.eps = attr_float(n, "epsilon", 1e-5)};
    Val in[3] = {n->in[0]}, out[3];
    TRY(axis_in(n, attr_int(n, "axis", -1), t->rank, &at.axis));
    in[1] = full_shape(n, 1, at.axis);
    in[2] = full_shape(n, 2, at.axis);
    TRY(build_n(g, OP_layer_norm, NULL, in[2].i ? 3 : in[1].i ? 2 : 1, in, &at, 3, out));
    n->out[0] = out[0];
    Ints stat = ints_of(t);
    for (int64_t i = at.axis; i < stat.n; i++)
        stat.v[i] = 1;
    for (int k = 1; k < n->nout && k < 3; k++)
        n->out[k] = reshape_ints(g, out[k], &stat);
    return true;
}

static bool import_rms_norm(OnnxNode *n)
{
    NormAttrs at = {.eps = attr_float(n, "epsilon", 1e-5)};
    TRY(axis_in(n, attr_int(n, "axis", -1), in_type(n, 0)->rank, &at.axis));
    Val in[2] = {n->in[0], full_shape(n, 1, at.axis)}, out[2];
    TRY(build_n(n->g, OP_rms_norm, NULL, in[1].i ? 2 : 1, in, &at, 2, out));
    n->out[0] = out[0];
    return true;
}

/* Normalise the elements of each of `groups` groups of channels of each sample. */
static Val normalize_groups(OnnxNode *n, int64_t groups, double eps)
{
    const Type t = *in_type(n, 0);
    int64_t rows = t.dim[0] * groups, all = type_count(&t);
    Val x = build_reshape(n->g, n->in[0], 2, (int64_t[]){rows, rows ? all / rows : 0}), out[3];
    if (!x.i || !build_n(n->g, OP_layer_norm, NULL, 1, &x, &(NormAttrs){1, eps}, 3, out))
        return (Val){0};
    return build_reshape(n->g, out[0], t.rank, t.dim);
}

/* Has the operand this value only, as far as is known? */
static bool is_all(OnnxNode *n, int k, double value)
{
    Tensor t = graph_tensor(n->g, n->in[k]);
    return !t.data || (tensor_is_uniform(&t) && tensor_f(&t, 0) == value);
}

/* By PyTorch's exporter that of a group norm scales groups by ones and shifts them by zeros, which may be
 * merged with parameters; the norm's own follow. */
static bool import_instance_norm(OnnxNode *n)
{
    bool grouped = is_group_norm(n->record) && is_all(n, 1, 1) && is_all(n, 2, 0);
    if (in_type(n, 0)->rank < 3)
        return refuse(n, "data of rank %d", in_type(n, 0)->rank);
    Val x = normalize_groups(n, in_type(n, 0)->dim[1], attr_float(n, "epsilon", 1e-5));
    n->out[0] = grouped ? x : affine(n->g, x, channel(n, 1), channel(n, 2));
    return n->out[0].i;
}

/* Scale and bias are per group in opset 18 and per channel since 21. */
static Val per_channel(OnnxNode *n, int k, int64_t groups)
{
    const Type *t = in_type(n, 0);
    int64_t each = t->dim[1] / groups;
    Val v = n->in[k];
    if (n->opset < 21) {
        v = build_reshape(n->g, v, 2, (int64_t[]){groups, 1});
        v = build_expand(n->g, v, 2, (int64_t[]){groups, each});
    }
    return along_axis(n->g, v, 1, t->rank);
}

static bool import_group_norm(OnnxNode *n)
{
    int64_t groups;
    const Type *t = in_type(n, 0);
    TRY(attr_needed(n, "num_groups") && attr_int_in(n, "num_groups", 0, 1, MAX_STEP, &groups));
    if (t->rank < 3 || t->dim[1] % groups)
        return fail(n->x->d, "%lld groups do not divide the channels", (long long)groups);
    Val x = normalize_groups(n, groups, attr_float(n, "epsilon", 1e-5));
    n->out[0] = affine(n->g, x, per_channel(n, 1, groups), per_channel(n, 2, groups));
    return n->out[0].i;
}

static bool import_mean_variance(OnnxNode *n)
{
    Graph *g = n->g;
    Ints axes;
    TRY(attr_ints(n, "axes", &axes));
    if (!has_attr(n, "axes"))
        axes = (Ints){3, {0, 2, 3}};
    for (int i = 0; i < axes.n; i++)
        TRY(axis_in(n, axes.v[i], in_type(n, 0)->rank, &axes.v[i]));
    uint32_t mask = axes_mask(&axes);
    Val centred = build2(g, OP_sub, n->in[0], mean_over(g, n->in[0], mask, true));
    Val dev = one(g, OP_root, mean_over(g, one(g, OP_square, centred), mask, true));
    n->out[0] = build2(g, OP_div, centred, add_scalar(g, dev, 1e-9));
    return n->out[0].i;
}

/* x / norm, and 0 where the norm is 0. */
static bool import_lp_norm(OnnxNode *n)
{
    Graph *g = n->g;
    int64_t axis, p = attr_int(n, "p", 2);
    TRY(axis_in(n, attr_int(n, "axis", -1), in_type(n, 0)->rank, &axis));
    if (p != 1 && p != 2)
        return refuse(n, "p = %lld", (long long)p);
    Val x = n->in[0];
    Val sum = build_reduce(g, OP_reduce_sum, one(g, p == 1 ? OP_abs : OP_square, x), 1u << axis, true);
    Val norm = p == 1 ? sum : one(g, OP_root, sum);
    Val zero = build2(g, OP_equal, norm, scalar_like(g, norm, 0));
    n->out[0] = build2(g, OP_div, x, build3(g, OP_where, zero, scalar_like(g, norm, 1), norm));
    return n->out[0].i;
}

/* x / (bias + alpha/size * sum of squares over neighbouring channels)^beta; the window over
 * channels is average pooling of an image of channels x positions. */
static bool import_lrn(OnnxNode *n)
{
    Graph *g = n->g;
    const Type t = *in_type(n, 0);
    int64_t size;
    TRY(attr_needed(n, "size") && attr_int_in(n, "size", 0, 1, 256, &size));
    double alpha = attr_float(n, "alpha", 1e-4), beta = attr_float(n, "beta", 0.75);
    if (t.rank < 2)
        return refuse(n, "data of rank %d", t.rank);
    int64_t rest = 1, channels = t.dim[1];
    for (int i = 2; i < t.rank; i++)
        rest *= t.dim[i];
    PoolAttrs window = {.kernel = {.n = 2, .v = {size, 1}},
                        .strides = {.n = 2, .v = {1, 1}},
                        .pads = {.n = 4, .v = {(size - 1) / 2, 0, size / 2, 0}},
                        .dilations = {.n = 2, .v = {1, 1}},
                        .out = {.n = 2, .v = {channels, rest}},
                        .include_pad = 1};
    Val square = one(g, OP_square, n->in[0]);
    Val image = build_reshape(g, square, 4, (int64_t[]){t.dim[0], 1, channels, rest});
    Val mean = build(g, OP_avg_pool, NULL, 1, &image, &window);
    mean = build_reshape(g, mean, t.rank, t.dim);
    Val base = add_scalar(g, mul_scalar(g, mean, alpha), attr_float(n, "bias", 1));
    n->out[0] = build2(g, OP_mul, n->in[0], with_consts(g, OP_powc, base, -beta, 0));
    return n->out[0].i;
}

const OnnxOp onnx_norm[] = {
    {"BatchNormalization", 1, .import = import_batch_norm, .weights = 0x1e},
    {"GroupNormalization", 18, .import = import_group_norm, .weights = 6},
    {"InstanceNormalization", 1, .import = import_instance_norm, .weights = 6},
    {"LRN", 1, .import = import_lrn},
    {"LayerNormalization", 1, .import = import_layer_norm, .weights = 6},
    {"LpNormalization", 1, .import = import_lp_norm},
    {"MeanVarianceNormalization", 9, .import = import_mean_variance},
    {"RMSNormalization", 1, .import = import_rms_norm, .weights = 2},
    {0},
};
