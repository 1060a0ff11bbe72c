/* repeated.c -- parameters that PyTorch's exporter has expanded, by default, to a batch of fixed size, or to
 * positions: a class token, sinks of attention.  The file has equal slices (`expand`); the parameter is one
 * of them, and an Expand follows. */
#include "onnx_int.h"
#include <string.h>

static bool begins_with(const char *s, const char *with) { return strncmp(s, with, strlen(with)) == 0; }

/* torch.export's name of what it computes so. */
static bool is_expanded(const char *name)
{
    return begins_with(name, "expand") || begins_with(name, "repeat");
}

static bool is_computed(const Merged *merged, const char *name)
{
    bool found = false;
    for (uint32_t i = 0; i < merged->computed.n && !found; i++)
        found = strcmp(merged->computed.name[i], name) == 0;
    return found;
}

/* The module of all nodes that read the tensor, "" that of the model; NULL: not known, or several. */
static const char *read_in(const Import *x, const char *name)
{
    const Onnx__GraphProto *gp = x->m->proto->graph;
    const Record *record = read_records(x->m);
    const char *scope = NULL;
    for (size_t i = 0; record && i < gp->n_node; i++)
        for (size_t k = 0; k < gp->node[i]->n_input; k++) {
            if (strcmp(pb(gp->node[i]->input[k]), name) != 0)
                continue;
            const char *here = record[i].scope ? record[i].scope : "";
            if (scope && strcmp(scope, here) != 0)
                return NULL;
            scope = here;
        }
    return scope;
}

/* Is it a parameter that the module holds itself? */
static bool is_held_by(const char *name, const char *module)
{
    size_t n = strlen(module);
    if (n == 0)
        return !strchr(name, '.');
    return strncmp(name, module, n) == 0 && name[n] == '.' && !strchr(name + n + 1, '.');
}

const char *repeated_parameter(const Import *x, const char *name)
{
    const Merged *merged = model_merged(x->m);
    const char *only = NULL;
    const char *module = is_expanded(name) && is_computed(merged, name) ? read_in(x, name) : NULL;
    for (uint32_t i = 0; module && i < merged->hidden.n; i++) {
        if (!is_held_by(merged->hidden.name[i], module))
            continue;
        if (only)
            return NULL;
        only = merged->hidden.name[i];
    }
    for (uint32_t i = 0; only && i < merged->computed.n; i++) {
        const char *other = merged->computed.name[i], *in = is_expanded(other) ? read_in(x, other) : NULL;
        if (in && strcmp(in, module) == 0 && strcmp(other, name) != 0)
            return NULL;
    }
    return only;
}

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

/* The type of what the tensor repeats; its own: it repeats nothing.  Of equal values nothing tells along
 * which dimensions they are repeated, but that one is a batch. */
static Type repeated_type(const Import *x, const char *name, const Tensor *t)
{
    Type type = t->type, slice;
    Tensor first;
    bool uniform = tensor_is_uniform(t);
    for (int axis = 0; axis < t->type.rank; axis++) {
        slice = type;
        slice.dim[axis] = 1;
        if (type.dim[axis] > 1 && (uniform ? axis == 0 && is_expanded(name) && is_batch(x, type.dim[0])
                                           : tensor_slice(t, &slice, x->a, &first)))
            type = slice;
    }
    return type;
}

bool import_repeated(Import *x, const char *name, const OnnxTensor *t, Val *v)
{
    Graph *g = x->g;
    Type type = t->t.type;
    Tensor first;
    if (x->depth == 0 && t->t.data && is_computed(model_merged(x->m), name))
        type = repeated_type(x, name, &t->t);
    if (type_equal(&type, &t->t.type) || !tensor_slice(&t->t, &type, g->arena, &first))
        return false;
    const char *parameter = repeated_parameter(x, name);
    Val one = graph_value(g, parameter ? parameter : name, type, VAL_PARAM);
    g->vals[one.i].data = first.data;
    if (first.data == t->t.data) {
        g->vals[one.i].file = t->file;
        g->vals[one.i].offset = t->offset;
    }
    name_value_of(x, one, name, parameter ? NAME_OF_FILE : NAME_OF_BOTH, false);
    if (parameter) {
        name_value_of(x, one, parameter, NAME_OF_MODULE, false);
        note(x, ONNX_REMARK, name, "the exporter repeats %s in it, which trains as one", parameter);
    }
    *v = build_expand(g, one, t->t.type.rank, t->t.type.dim);
    return true;
}

Val repeated_one(const Import *x, Val v)
{
    const Node *made = graph_def(x->g, v);
    bool repeats = made && made->op == OP_expand && x->g->vals[made->in[0].i].kind == VAL_PARAM;
    return repeats ? made->in[0] : (Val){0};
}
