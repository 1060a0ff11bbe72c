/* import_constant.c -- tensors from nothing: Constant, ConstantOfShape, Range, EyeLike.
 *
 * Models stripped of their weights compute them by ConstantOfShape; models of some
 * exporters keep them in Constant nodes.  Those that feed weight operands become parameters
 * (onnx.h). */
#include "onnx_int.h"
#include <math.h>
#include <string.h>

static Val numbers(OnnxNode *n, DType dt, const void *data, size_t count, bool list)
{
    int64_t dim = (int64_t)count;
    return graph_const(n->g, "c", type_make(dt, list ? 1 : 0, &dim), data);
}

static bool import_constant_node(OnnxNode *n)
{
    const Onnx__AttributeProto *a;
    const char *name = pb(n->proto->output[0]);
    if ((a = attr_find(n, "value")) && a->t) {
        n->out[0] = import_constant(n->x, name, a->t);
        TRY(n->out[0].i);
        Value *v = &n->g->vals[n->out[0].i];
        if (dtype_is_float(v->type.dt) && !n->x->opt->forward_only &&
            role_promotes_constants(n->x) && role_is_weight(n->x, name)) {
            Tensor t = graph_tensor(n->g, n->out[0]);
            v->kind = role_of(n->x, name, &t);
            name_value(n->x, n->out[0], name);
        }
    } else if ((a = attr_find(n, "sparse_value")) && a->sparse_tensor) {
        n->out[0] = import_sparse(n->x, name, a->sparse_tensor);
    } else if ((a = attr_find(n, "value_float"))) {
        n->out[0] = numbers(n, DT_F32, &a->f, 1, false);
    } else if ((a = attr_find(n, "value_int"))) {
        n->out[0] = numbers(n, DT_I64, &a->i, 1, false);
    } else if ((a = attr_find(n, "value_floats"))) {
        n->out[0] = numbers(n, DT_F32, a->floats, a->n_floats, true);
    } else if ((a = attr_find(n, "value_ints"))) {
        n->out[0] = numbers(n, DT_I64, a->ints, a->n_ints, true);
    } else {
        return refuse(n, "string constants");
    }
    return n->out[0].i;
}

/* Fills a tensor with one element, by doubling. */
static void fill_with(Tensor *t, const void *element)
{
    size_t bytes = (size_t)type_bytes(&t->type), done = (size_t)dtype_size[t->type.dt];
    char *data = t->data;
    if (!bytes)
        return;
    memcpy(data, element, done);
    for (size_t part; done < bytes; done += part) {
        part = done < bytes - done ? done : bytes - done;
        memcpy(data + done, data, part);
    }
}

static bool import_constant_of_shape(OnnxNode *n)
{
    Graph *g = n->g;
    Ints shape;
    TRY(static_ints(n, 0, &shape) && shape_valid(n, &shape));
    const Onnx__AttributeProto *a = attr_find(n, "value");
    const char *name = pb(n->proto->output[0]);
    Val fill = a && a->t ? import_constant(n->x, "fill", a->t) : build_scalar(g, DT_F32, 0);
    TRY(fill.i);
    Type t = type_make(val_type(g, fill)->dt, shape.n, shape.v);
    fill = build_reshape(g, fill, 0, NULL);
    if (!dtype_is_float(t.dt) || n->x->opt->forward_only || !role_is_stripped_weight(n->x, name)) {
        n->out[0] = build_expand(g, fill, shape.n, shape.v);
        set_data_type(n->x, n->out[0], a && a->t ? a->t->data_type : 0);
        return n->out[0].i;
    }
    TRY(small_enough(n, &t));
    Tensor all = {t, arena_alloc(g->arena, (size_t)type_bytes(&t) + 1, 1)};
    fill_with(&all, graph_tensor(g, fill).data);
    n->out[0] = graph_value(g, name, t, role_of(n->x, name, &all));
    g->vals[n->out[0].i].data = all.data;
    name_value(n->x, n->out[0], name);
    return true;
}

/* Number of steps from start to limit by delta, however far apart they are. */
static double whole_steps(int64_t start, int64_t limit, int64_t delta)
{
    uint64_t span = delta > 0 ? (uint64_t)limit - (uint64_t)start : (uint64_t)start - (uint64_t)limit;
    uint64_t by = delta > 0 ? (uint64_t)delta : -(uint64_t)delta;
    bool ahead = delta > 0 ? start < limit : start > limit;
    return by && ahead ? (double)((span - 1) / by + 1) : 0;
}

static bool import_range(OnnxNode *n)
{
    Tensor t[3];
    for (int k = 0; k < 3; k++) {
        TRY(static_tensor(n, k, &t[k]));
        if (type_count(&t[k].type) != 1)
            return fail(n->x->d, "operand %d must be one number", k);
    }
    double start = tensor_f(&t[0], 0), limit = tensor_f(&t[1], 0), delta = tensor_f(&t[2], 0);
    double steps = dtype_is_float(t[0].type.dt)
                       ? ceil((limit - start) / delta)
                       : whole_steps(tensor_i(&t[0], 0), tensor_i(&t[1], 0), tensor_i(&t[2], 0));
    if (delta == 0 || !isfinite(steps) || steps > 1e9)
        return fail(n->x->d, "from %g to %g by %g", start, limit, delta);
    int64_t count = steps > 0 ? (int64_t)steps : 0;
    Type type = type_make(t[0].type.dt, 1, &count);
    TRY(small_enough(n, &type));
    Tensor r = {type, arena_alloc(n->x->a, (size_t)type_bytes(&type) + 1, 1)};
    uint64_t first = (uint64_t)tensor_i(&t[0], 0), step = (uint64_t)tensor_i(&t[2], 0);
    for (int64_t i = 0; i < count; i++) {
        if (dtype_is_float(type.dt))
            tensor_set_f(&r, i, start + (double)i * delta);
        else
            tensor_set_i(&r, i, (int64_t)(first + (uint64_t)i * step));
    }
    n->out[0] = graph_const(n->g, "range", type, r.data);
    return true;
}

static bool import_eye_like(OnnxNode *n)
{
    Graph *g = n->g;
    const Type t = *in_type(n, 0);
    int32_t dtype;
    int64_t k;
    TRY(attr_data_type(n, "dtype", 0, &dtype));
    TRY(attr_int_in(n, "k", 0, -MAX_ELEMENTS, MAX_ELEMENTS, &k));
    if (t.rank != 2)
        return refuse(n, "a result of rank %d", t.rank);
    Val row = along_axis(g, iota(g, t.dim[0]), 0, 2);
    Val column = along_axis(g, iota(g, t.dim[1]), 1, 2);
    row = add_scalar(g, row, (double)k);
    n->out[0] = narrow(n, build2(g, OP_equal, row, column), dtype ? dtype : element_type(n, 0));
    return n->out[0].i;
}

const OnnxOp onnx_constant[] = {
    {"Constant", 1, .import = import_constant_node},
    {"ConstantOfShape", 9, .import = import_constant_of_shape},
    {"EyeLike", 9, .import = import_eye_like, .typed = 1},
    {"Range", 11, .import = import_range},
    {0},
};
