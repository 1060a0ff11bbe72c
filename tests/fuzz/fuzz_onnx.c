/* fuzz_onnx.c -- model files: opening and importing either works or says why not.  Mutations know the
 * structure: a model is decoded, a few things in it change, and it is encoded again. */
#include "fuzz.h"
#include "ir/onnx/onnx_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const OnnxBind bind[] = {{"batch", 2}, {"seq", 4}};
    Arena a = {0};
    Diag d = {0};
    Graph g;
    OnnxOptions opt = {.bind = bind, .nbind = 2, .forward_only = size & 1};
    OnnxModel *m = onnx_open(fuzz_file(data, size, "onnx"), &d);
    graph_init(&g, &a, &d);
    if (m && onnx_import(m, &opt, &g, &d) && !graph_verify(&g, &d))
        fuzz_fail(d.msg, "imported graph");
    if (d.failed && !*d.msg)
        fuzz_fail("failed without a message", "");
    onnx_close(m);
    arena_free(&a);
    return 0;
}

/* ---- mutations ------------------------------------------------------------ */

typedef struct {
    Arena a;
    Onnx__ModelProto *m;
    Onnx__GraphProto *g;
    unsigned seed;
} Mutator;

static uint32_t pick(Mutator *x, size_t n) { return (uint32_t)(fuzz_random(&x->seed) % (n ? n : 1)); }

static int64_t number(Mutator *x, int64_t old)
{
    static const int64_t extreme[] = {0, 1, -1, 2, 3, 8, 64, 4096, 4097, INT32_MAX, (int64_t)INT32_MAX + 1,
                                      INT32_MIN, UINT32_MAX, (int64_t)1 << 40, (int64_t)1 << 59,
                                      (int64_t)1 << 62, INT64_MAX, INT64_MIN};
    if (pick(x, 3) == 0)
        return (int64_t)((uint64_t)old + pick(x, 5) - 2);
    return extreme[pick(x, sizeof extreme / sizeof *extreme)];
}

static void *take(void *data, size_t n) { return arena_alloc(data, n ? n : 1, 1); }
static void leave(void *data, void *p) { (void)data, (void)p; }

/* A copy of the list of n elements with room for one more. */
static void *longer(Mutator *x, const void *list, size_t n, size_t size)
{
    void *more = arena_alloc(&x->a, n + 1, size);
    if (n)
        memcpy(more, list, n * size);
    return more;
}

static Onnx__NodeProto *any_node(Mutator *x)
{
    return x->g->n_node ? x->g->node[pick(x, x->g->n_node)] : NULL;
}

/* A name that stands somewhere in the graph, or "".  It is never NULL, as the name of an input may be: a list
 * of strings cannot hold NULL. */
static char *any_name(Mutator *x)
{
    const Onnx__NodeProto *n = any_node(x);
    char *name = NULL;
    if (n && n->n_input && pick(x, 2))
        name = n->input[pick(x, n->n_input)];
    else if (n && n->n_output)
        name = n->output[pick(x, n->n_output)];
    else if (x->g->n_input)
        name = x->g->input[pick(x, x->g->n_input)]->name;
    return name ? name : (char *)"";
}

static bool change_value(Mutator *x, Onnx__ValueInfoProto *v)
{
    Onnx__TypeProto__Tensor *t =
        v->type && v->type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE ? v->type->tensor_type : NULL;
    if (!t || pick(x, 6) == 0)
        return v->name = any_name(x), true;
    if (!t->shape || !t->shape->n_dim || pick(x, 4) == 0)
        return t->elem_type = (int32_t)pick(x, 27), true;
    Onnx__TensorShapeProto__Dimension *d = t->shape->dim[pick(x, t->shape->n_dim)];
    bool symbol = pick(x, 4) == 0;
    d->value_case = symbol ? ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM
                           : ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
    if (symbol)
        d->dim_param = (char *)"batch";
    else
        d->dim_value = number(x, 2);
    return true;
}

static bool change_attribute(Mutator *x, Onnx__AttributeProto *a)
{
    if (a->n_ints && pick(x, 4))
        a->ints[pick(x, a->n_ints)] = number(x, 1);
    else if (a->n_ints)
        a->n_ints = pick(x, a->n_ints + 1);
    else if (a->n_floats)
        a->floats[pick(x, a->n_floats)] = (float)number(x, 1);
    else if (a->has_f)
        a->f = pick(x, 4) ? (float)number(x, 1) : (float)(0.0 / (pick(x, 2) - 0.0));
    else if (a->g && a->g->n_output && pick(x, 4) == 0)
        return change_value(x, a->g->output[pick(x, a->g->n_output)]);
    else if (a->g && a->g->n_node)
        x->g = a->g; /* later changes are made inside the body */
    else
        a->i = number(x, a->i), a->has_i = true;
    return true;
}

static bool change_node(Mutator *x, Onnx__NodeProto *n)
{
    const Onnx__NodeProto *other = any_node(x);
    switch (pick(x, 8)) {
    case 0: n->op_type = other->op_type; n->domain = other->domain; return true;
    case 1:
        if (n->n_input)
            n->input[pick(x, n->n_input)] = any_name(x);
        return true;
    case 2:
        if (n->n_output)
            n->output[pick(x, n->n_output)] = any_name(x);
        return true;
    case 3: n->n_input = pick(x, n->n_input + 1); return true;
    case 4:
        n->input = longer(x, n->input, n->n_input, sizeof *n->input);
        n->input[n->n_input++] = any_name(x);
        return true;
    case 5: n->attribute = other->attribute; n->n_attribute = other->n_attribute; return true;
    case 6: n->n_output = pick(x, n->n_output + 1); return true;
    default: return n->n_attribute > 0 && change_attribute(x, n->attribute[pick(x, n->n_attribute)]);
    }
}

static bool change_nodes(Mutator *x)
{
    Onnx__GraphProto *g = x->g;
    if (!g->n_node)
        return false;
    uint32_t a = pick(x, g->n_node), b = pick(x, g->n_node);
    Onnx__NodeProto *n = g->node[a];
    switch (pick(x, 3)) {
    case 0: g->node[a] = g->node[b]; g->node[b] = n; return true;
    case 1:
        g->node = longer(x, g->node, g->n_node, sizeof *g->node);
        g->node[g->n_node++] = n;
        return true;
    default: g->node[a] = g->node[--g->n_node]; return true;
    }
}

static bool change_tensor(Mutator *x, Onnx__TensorProto *t)
{
    switch (pick(x, 6)) {
    case 0: t->name = any_name(x); return true;
    case 1: t->data_type = (int32_t)pick(x, 27); t->has_data_type = true; return true;
    case 2:
        t->dims = longer(x, t->dims, t->n_dims, sizeof *t->dims);
        t->dims[t->n_dims++] = number(x, 1);
        return true;
    case 3:
        if (t->n_int64_data)
            t->int64_data[pick(x, t->n_int64_data)] = number(x, 0);
        else if (t->has_raw_data && t->raw_data.len)
            t->raw_data.data[pick(x, t->raw_data.len)] = (uint8_t)pick(x, 256);
        return true;
    case 4: /* the elements are in another field, or in two */
        t->n_uint64_data = t->n_dims ? (size_t)t->dims[0] & 63 : 1;
        t->uint64_data = arena_alloc(&x->a, t->n_uint64_data + 1, sizeof *t->uint64_data);
        return true;
    default: return t->n_dims && (t->dims[pick(x, t->n_dims)] = number(x, 1), true);
    }
}

static bool change_model(Mutator *x)
{
    Onnx__GraphProto *g = x->g;
    switch (pick(x, 10)) {
    case 0: return x->m->n_opset_import && (x->m->opset_import[0]->version = pick(x, 28), true);
    case 1: return g->n_input && change_value(x, g->input[pick(x, g->n_input)]);
    case 2: return g->n_output && change_value(x, g->output[pick(x, g->n_output)]);
    case 3: case 4:
        return g->n_initializer && change_tensor(x, g->initializer[pick(x, g->n_initializer)]);
    case 5: return change_nodes(x);
    case 6:
        if (g->n_initializer) {
            g->initializer = longer(x, g->initializer, g->n_initializer, sizeof *g->initializer);
            g->initializer[g->n_initializer] = g->initializer[pick(x, g->n_initializer)];
            g->n_initializer++;
        }
        return true;
    default: return g->n_node && change_node(x, any_node(x));
    }
}

/* Decodes a model.  False: it has no graph, or the reader refuses it, for instance for its nesting; then it
 * must not be decoded here either. */
static bool decode(Mutator *x, const uint8_t *data, size_t size)
{
    Diag d = {0};
    uint8_t *copy;
    size_t n;
    ProtobufCAllocator in = {take, leave, &x->a};
    if (!wire_copy(data, size, false, &copy, &n, &d))
        return false;
    free(copy);
    x->m = onnx__model_proto__unpack(&in, size, data);
    x->g = x->m ? x->m->graph : NULL;
    return x->g != NULL;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed)
{
    Mutator x = {.seed = seed};
    size_t n = 0;
    if (pick(&x, 8) && decode(&x, data, size)) {
        bool changed = false;
        for (uint32_t i = 0, times = 1 + pick(&x, 3); i < times; i++)
            changed |= change_model(&x);
        n = changed ? onnx__model_proto__get_packed_size(x.m) : 0;
        n = n <= room ? n : 0;
        if (n)
            onnx__model_proto__pack(x.m, data);
    }
    arena_free(&x.a);
    return n ? n : LLVMFuzzerMutate(data, size, room);
}
