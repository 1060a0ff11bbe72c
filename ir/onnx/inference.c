/* inference.c -- what a node of a training export is when nothing trains.
 *
 * Dropout and BatchNormalization say themselves whether they train.  Where PyTorch's exporter has no
 * operator (dropout of whole channels, stochastic depth) it writes x * ((uniform < p) / p), which is x
 * on average and in evaluation. */
#include "onnx_int.h"
#include <string.h>

static bool is_op(const Onnx__NodeProto *p, const char *op)
{
    return p && strcmp(pb(p->op_type), op) == 0 && !*canonical_domain(pb(p->domain));
}

static const Onnx__AttributeProto *attribute(const Onnx__NodeProto *p, const char *name)
{
    for (size_t i = 0; i < p->n_attribute; i++)
        if (strcmp(pb(p->attribute[i]->name), name) == 0)
            return p->attribute[i];
    return NULL;
}

/* ---- dropout made of other operators ------------------------------------------------------- */

static bool draws(const Onnx__NodeProto *p)
{
    return is_op(p, "RandomUniform") || is_op(p, "RandomUniformLike");
}

/* The operand before conversions; only a few are looked through, as they may form a cycle. */
static const char *unconverted(const OnnxModel *m, const char *name)
{
    const Onnx__NodeProto *p = model_producer(m, name);
    for (int i = 0; i < 4 && (is_op(p, "Cast") || is_op(p, "CastLike")) && p->n_input; i++) {
        name = pb(p->input[0]);
        p = model_producer(m, name);
    }
    return name;
}

static const Onnx__NodeProto *source(const OnnxModel *m, const char *name)
{
    return model_producer(m, unconverted(m, name));
}

static bool scalar_of(OnnxModel *m, const Onnx__TensorProto *t, double *v)
{
    OnnxTensor tensor;
    Diag d = {0};
    if (!t || !tensor_load(m, t, &tensor, &d) || type_count(&tensor.t.type) != 1 || !tensor.t.data)
        return false;
    *v = tensor_f(&tensor.t, 0);
    return true;
}

static bool scalar(OnnxModel *m, const char *name, double *v)
{
    name = unconverted(m, name);
    const Onnx__TensorProto *t = model_initializer(m, name);
    if (t)
        return scalar_of(m, t, v);
    const Onnx__NodeProto *p = model_producer(m, name);
    const Onnx__AttributeProto *a = is_op(p, "Constant") ? attribute(p, "value") : NULL;
    if (a)
        return scalar_of(m, a->t, v);
    a = is_op(p, "Constant") ? attribute(p, "value_float") : NULL;
    *v = a ? (double)a->f : 0;
    return a != NULL;
}

/* Is the value (uniform < p) / p? */
static bool is_scaled_mask(OnnxModel *m, const char *name)
{
    double p, q;
    const Onnx__NodeProto *div = source(m, name);
    if (!is_op(div, "Div") || div->n_input != 2)
        return false;
    const Onnx__NodeProto *less = source(m, pb(div->input[0]));
    return is_op(less, "Less") && less->n_input == 2 && draws(source(m, pb(less->input[0]))) &&
           scalar(m, pb(less->input[1]), &p) && scalar(m, pb(div->input[1]), &q) && p > 0 &&
           (float)p == (float)q;
}

static bool has_draws(OnnxModel *m)
{
    const Onnx__GraphProto *gp = m->proto->graph;
    if (!m->draws)
        for (size_t i = 0; i < gp->n_node && m->draws != DRAWS; i++)
            m->draws = draws(gp->node[i]) ? DRAWS : DRAWS_NOT;
    return m->draws == DRAWS;
}

int dropped_operand(OnnxModel *m, const Onnx__NodeProto *p)
{
    if (!is_op(p, "Mul") || p->n_input != 2 || !has_draws(m))
        return -1;
    return is_scaled_mask(m, pb(p->input[1])) ? 0 : is_scaled_mask(m, pb(p->input[0])) ? 1 : -1;
}

/* Is the bias of a convolution expanded zeros?  For 3-D ones PyTorch's exporter gives it a shape that
 * onnxruntime refuses. */
static bool has_no_bias(OnnxModel *m, const Onnx__NodeProto *p)
{
    double v;
    const Onnx__NodeProto *made =
        is_op(p, "Conv") && p->n_input == 3 ? model_producer(m, pb(p->input[2])) : NULL;
    return is_op(made, "Expand") && made->n_input == 2 && scalar(m, pb(made->input[0]), &v) && v == 0;
}

/* ---- the form ------------------------------------------------------------------------------------ */

static void without_training_mode(const Onnx__NodeProto *p, int opset, NodeForm *f)
{
    const Onnx__AttributeProto *mode = attribute(p, "training_mode");
    bool norm = is_op(p, "BatchNormalization");
    f->is_test = opset < 7;
    if (!norm && opset >= 12)
        f->ninput = 2;
    bool given = mode && *pb(mode->ref_attr_name); /* by the call of the function that it is in */
    if (norm && (opset < 14 || given || (mode && mode->i)))
        f->noutput = 1;
    f->training_mode = norm && mode != NULL;
}

NodeForm inference_form(OnnxModel *m, const Onnx__NodeProto *p, int opset, bool in_main)
{
    NodeForm f = {.ninput = (int)p->n_input, .noutput = (int)p->n_output,
                  .identity_of = in_main ? dropped_operand(m, p) : -1};
    if (is_op(p, "Dropout") || is_op(p, "BatchNormalization"))
        without_training_mode(p, opset, &f);
    if (in_main && has_no_bias(m, p))
        f.ninput = 2;
    f.ninput = f.ninput < (int)p->n_input ? f.ninput : (int)p->n_input;
    f.noutput = f.noutput < (int)p->n_output ? f.noutput : (int)p->n_output;
    f.changes = f.is_test || f.training_mode || f.identity_of >= 0 || f.ninput < (int)p->n_input ||
                f.noutput < (int)p->n_output;
    return f;
}
