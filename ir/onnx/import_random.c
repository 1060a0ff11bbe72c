/* import_random.c -- random operators: all draw from the counter-based generator, keyed by
 * a number per node, so that a recomputation draws the same. */
#include "onnx_int.h"

static Val draw_by(OnnxNode *n, Op op, const Type *t, int64_t key, double lo, double hi)
{
    RandomAttrs at = {ints_of(t), t->dt, key, lo, hi};
    Val rng = random_input(n->x);
    return build(n->g, op, NULL, 1, &rng, &at);
}

static Val draw(OnnxNode *n, Op op, const Type *t, double lo, double hi)
{
    return draw_by(n, op, t, ++n->x->nkeys, lo, hi);
}

/* The mask of elements that the dropout imported last keeps, from the same draw. */
static Val dropout_mask(OnnxNode *n, double ratio)
{
    Type t = type_with(*in_type(n, 0), in_type(n, 0)->dt == DT_F64 ? DT_F64 : DT_F32);
    Val u = draw_by(n, OP_uniform, &t, n->x->nkeys, 0, 1);
    return build2(n->g, OP_less_equal, build_scalar(n->g, t.dt, ratio), u);
}

static bool import_dropout(OnnxNode *n)
{
    Graph *g = n->g;
    double ratio = attr_float(n, "ratio", 0.5);
    bool training = !n->x->opt->forward_only; /* before opset 12 the runtime decided */
    if (n->opset >= 12) {
        int64_t mode = 0;
        if (has_in(n, 1))
            TRY(static_float(n, 1, &ratio));
        if (has_in(n, 2))
            TRY(static_int(n, 2, &mode));
        training &= !has_in(n, 2); /* without the operand the step decides */
        training |= mode != 0;
    } else if (n->opset < 7) {
        training &= !attr_int(n, "is_test", 0);
    }
    if (!(ratio >= 0 && ratio <= 1))
        return fail(n->x->d, "ratio %g is not 0 to 1", ratio);
    bool drops = training && ratio > 0 && !n->x->opt->inference;
    n->out[0] = n->in[0];
    if (drops)
        n->out[0] = build(g, OP_dropout, NULL, 2, (Val[]){n->in[0], random_input(n->x)},
                          &(DropoutAttrs){ratio, ++n->x->nkeys});
    if (has_out(n, 1)) {
        Val kept = drops ? dropout_mask(n, ratio) : scalar_like(g, n->in[0], 1);
        kept = build_expand(g, build_cast(g, kept, DT_BOOL), in_type(n, 0)->rank, in_type(n, 0)->dim);
        n->out[1] = n->opset < 10 ? build_cast(g, kept, in_type(n, 0)->dt) : kept;
    }
    return n->out[0].i;
}

static bool random_type(OnnxNode *n, DType dflt, Type *t)
{
    int32_t dtype;
    TRY(attr_data_type(n, "dtype", 0, &dtype));
    t->dt = dtype ? onnx_dtype(dtype) : dflt;
    return dtype_is_float(t->dt) || refuse(n, "element type %s", onnx_dtype_name(dtype));
}

static bool random_tensor(OnnxNode *n, Op op, double first, double second)
{
    Ints shape;
    TRY((n->nin || attr_needed(n, "shape")) && attr_ints(n, "shape", &shape));
    TRY(shape_valid(n, &shape));
    Type t = n->nin ? *in_type(n, 0) : type_make(DT_F32, shape.n, shape.v);
    TRY(random_type(n, t.dt, &t));
    n->out[0] = draw(n, op, &t, first, second);
    return n->out[0].i;
}

static bool import_uniform(OnnxNode *n)
{
    return random_tensor(n, OP_uniform, attr_float(n, "low", 0), attr_float(n, "high", 1));
}

static bool import_normal(OnnxNode *n)
{
    return random_tensor(n, OP_normal, attr_float(n, "mean", 0), attr_float(n, "scale", 1));
}

static bool import_bernoulli(OnnxNode *n)
{
    int32_t dtype;
    TRY(attr_data_type(n, "dtype", 0, &dtype));
    const Type t = *in_type(n, 0);
    Val u = draw(n, OP_uniform, &t, 0, 1);
    Val hit = build2(n->g, OP_less, u, n->in[0]);
    n->out[0] = build_cast(n->g, hit, dtype ? onnx_dtype(dtype) : t.dt);
    return n->out[0].i;
}

/* Index of the largest of logit + Gumbel noise: one draw per sample and class. */
static bool import_multinomial(OnnxNode *n)
{
    Graph *g = n->g;
    const Type *x = in_type(n, 0);
    int32_t dtype;
    int64_t samples;
    TRY(attr_int_in(n, "sample_size", 1, 1, MAX_ELEMENTS, &samples));
    TRY(attr_data_type(n, "dtype", ONNX__TENSOR_PROTO__DATA_TYPE__INT32, &dtype));
    if (x->rank != 2)
        return fail(n->x->d, "input must be [batch, classes]");
    int64_t batch = x->dim[0], classes = x->dim[1];
    Type t = type_make(x->dt, 3, (int64_t[]){batch, samples, classes});
    Val u = draw(n, OP_uniform, &t, 1e-12, 1);
    Val noise = one(g, OP_neg, one(g, OP_log, one(g, OP_neg, one(g, OP_log, u))));
    Val logit = build_reshape(g, n->in[0], 3, (int64_t[]){batch, 1, classes});
    Val sum = build2(g, OP_add, noise, logit);
    Val best = build(g, OP_argmax, NULL, 1, &sum, &(ArgAttrs){.axis = 2});
    n->out[0] = build_cast(g, best, onnx_dtype(dtype));
    return n->out[0].i;
}

const OnnxOp onnx_random[] = {
    {"Bernoulli", 15, .import = import_bernoulli},      {"Dropout", 1, .import = import_dropout},
    {"Multinomial", 7, .import = import_multinomial},   {"RandomNormal", 1, .import = import_normal},
    {"RandomNormalLike", 1, .import = import_normal},   {"RandomUniform", 1, .import = import_uniform},
    {"RandomUniformLike", 1, .import = import_uniform}, {0},
};
