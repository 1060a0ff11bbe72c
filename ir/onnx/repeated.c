/* repeated.c -- parameters that PyTorch's exporter has reshaped and repeated, by default: a class token or
 * sinks of attention, expanded to a batch of fixed size.  The file has equal slices; the parameter is one of
 * them, and an Expand follows. */
#include "onnx_int.h"
#include <string.h>

/* Is it the first dimension of an input of the model? */
static bool is_batch(const Import *x, int64_t extent)
{
    const Onnx__GraphProto *gp = x->m->proto->graph;
    bool found = false;
    Type t;
    for (size_t i = 0; i < gp->n_input && !found; i++)
        found = declared_type(gp->input[i], &t) && t.rank > 0 && t.dim[0] == extent;
    return found;
}

/* The type of what the tensor repeats.  Of equal values nothing tells along which dimensions they are
 * repeated, but that one is a batch. */
static Type repeated_type(const Import *x, const Tensor *t)
{
    Type type = t->type, slice;
    Tensor first;
    bool uniform = tensor_is_uniform(t);
    for (int axis = 0; axis < t->type.rank; axis++) {
        slice = type;
        slice.dim[axis] = 1;
        if (type.dim[axis] > 1 &&
            (uniform ? axis == 0 && is_batch(x, type.dim[0]) : tensor_slice(t, &slice, x->a, &first)))
            type = slice;
    }
    return type;
}

/* In how many dimensions has it more than one element? */
static int extents(const Type *t)
{
    int n = 0;
    for (int i = 0; i < t->rank; i++)
        n += t->dim[i] > 1;
    return n;
}

/* Has it the elements of the parameter, in their order, once? */
static bool is_whole(const Folded *from, const Type *one, bool repeats)
{
    if (from->does & FOLDED_TURNS && extents(one) > 1)
        return false;
    if (from->does & FOLDED_REPEATS)
        return repeats && (from->last & FOLDED_REPEATS || !(from->does & FOLDED_VIEWS));
    return true;
}

/* The parameter's type.  What is viewed as a row of elements in several dimensions is a vector, as sinks are;
 * nothing tells of dimensions that expand() puts in front. */
static Type parameter_type(const Folded *from, const Type *one)
{
    Type t = {.dt = one->dt};
    int added = from->does & FOLDED_VIEWS && extents(one) == 1 ? one->rank - 1 : from->added;
    for (int i = 0; i < one->rank; i++)
        if (one->dim[i] != 1 || added-- <= 0)
            t.dim[t.rank++] = one->dim[i];
    return t;
}

static void note_repeated(Import *x, const char *name, const char *parameter, const Type *type, bool uniform)
{
    char text[160];
    bool may_be_lower = type->rank > 1 && type->dim[0] == 1;
    const char *shape = may_be_lower ? arena_printf(x->a, ", saved as %s unless --weights has another shape",
                                                    type_str(type, text))
                                     : "";
    note(x, ONNX_REMARK, name, "the exporter repeats %s in it, which trains as one%s%s", parameter, shape,
         uniform ? "; its equal values do not tell along what, and the rows of a batch are taken to be one "
                   "(optimize=False tells)"
                 : "");
}

Val same_parameter(const Graph *g, const char *name, const Tensor *one)
{
    Val v = graph_find(g, name);
    Tensor t = v.i ? graph_tensor(g, v) : (Tensor){.data = NULL};
    bool same = t.data && type_equal(&t.type, &one->type) &&
                memcmp(t.data, one->data, (size_t)type_bytes(&t.type)) == 0;
    return same ? v : (Val){0};
}

bool import_moved(Import *x, const char *name, const OnnxTensor *t, Val *v)
{
    Graph *g = x->g;
    const Folded *from = x->depth == 0 && t->t.data ? folded(x->m, name) : NULL;
    if (!from || !is_computed(x->m, name))
        return false;
    Type type = from->does & FOLDED_REPEATS ? repeated_type(x, &t->t) : t->t.type;
    bool repeats = !type_equal(&type, &t->t.type);
    const char *parameter = is_whole(from, &type, repeats) ? moved_parameter(x->m, name) : NULL;
    Tensor first;
    if ((!repeats && !parameter) || !tensor_slice(&t->t, &type, g->arena, &first))
        return false;
    Val one = parameter ? same_parameter(g, parameter, &first) : (Val){0};
    if (!one.i) {
        one = graph_value(g, parameter ? parameter : name, type, VAL_PARAM);
        g->vals[one.i].data = first.data;
        if (first.data == t->t.data) {
            g->vals[one.i].file = t->file;
            g->vals[one.i].offset = t->offset;
        }
    }
    name_value_of(x, one, name, parameter ? NAME_OF_FILE : NAME_OF_BOTH, false);
    if (parameter) {
        Type *shape = NEW(g->arena, Type, 1);
        *shape = parameter_type(from, &type);
        graph_name_in_model(g, one,
                            (ModelName){.name = arena_strndup(g->arena, parameter, strlen(parameter)),
                                        .of = NAME_OF_MODULE,
                                        .shape = type_equal(shape, &type) ? NULL : shape});
        if (repeats)
            note_repeated(x, name, parameter, shape, tensor_is_uniform(&t->t));
    }
    *v = repeats ? build_expand(g, one, t->t.type.rank, t->t.type.dim) : one;
    return true;
}

Val repeated_one(const Import *x, Val v)
{
    const Node *made = graph_def(x->g, v);
    bool repeats = made && made->op == OP_expand && x->g->vals[made->in[0].i].kind == VAL_PARAM;
    return repeats ? made->in[0] : (Val){0};
}

Val moved_again(const Import *x, Val kept, const Tensor *copy, Type *one)
{
    Tensor of = graph_tensor(x->g, kept), first = *copy;
    *one = copy->type;
    if (!of.data || !copy->data || of.type.dt != one->dt)
        return (Val){0};
    if (type_count(one) != type_count(&of.type)) {
        *one = repeated_type(x, copy);
        if (type_count(one) != type_count(&of.type) || !tensor_slice(copy, one, x->a, &first))
            return (Val){0};
    }
    if (memcmp(first.data, of.data, (size_t)type_bytes(one)) != 0)
        return (Val){0};
    Val v = build_reshape(x->g, kept, one->rank, one->dim);
    return type_equal(one, &copy->type) ? v : build_expand(x->g, v, copy->type.rank, copy->type.dim);
}
