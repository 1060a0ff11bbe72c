/* nodes.c -- a graph of standard operators under construction, and its protobuf form. */
#include "nodes_int.h"
#include <string.h>

enum { ATTR_TYPE_INT = 2, ATTR_TYPE_STRING = 3, ATTR_TYPE_INTS = 7 };

OnnxNodes *onnx_nodes(Arena *a, const Graph *g, Diag *d)
{
    OnnxNodes *o = NEW(a, OnnxNodes, 1);
    *o = (OnnxNodes){.a = a, .d = d, .g = g};
    o->names = name_map(a);
    o->node_names = name_map(a);
    o->reserved = name_map(a);
    o->of = NEW(a, OnnxVal, g->nvals + 1);
    o->tensor = arena_grow(a, NULL, 0, &o->ctensor, sizeof *o->tensor);
    o->tensor[o->ntensor++] = (EmittedTensor){.name = ""};
    return o;
}

bool onnx_refuse(OnnxNodes *o, const char *why)
{
    return fail_status(o->d, EXIT_UNSUPPORTED, "--emit onnx: operator '%s'%s%s: %s", node_def(o->n)->name,
                       o->n->name ? " of " : "", o->n->name ? o->n->name : "", why);
}

Arena *onnx_arena(OnnxNodes *o) { return o->a; }

/* ---- names ---------------------------------------------------------------------------------------- */

/* The name, with a number behind it if it is taken. */
static const char *new_name(OnnxNodes *o, NameMap *m, const char *name)
{
    const uint32_t *used = name_get(m, name);
    const char *own = name;
    for (uint32_t k = used ? *used : 0; !name_add(m, own, 1); k++) {
        own = arena_printf(o->a, "%s_%u", name, k);
        name_put(m, name, k + 1);
    }
    return own;
}

void onnx_reserve(OnnxNodes *o, const char *name)
{
    if (name_add(&o->names, name, 1))
        name_add(&o->reserved, name, 1);
}

/* Is the name reserved?  Then it is no more. */
static bool take_reserved(OnnxNodes *o, const char *name)
{
    const uint32_t *left = name_get(&o->reserved, name);
    bool is = left && *left;
    if (is)
        name_put(&o->reserved, name, 0);
    return is;
}

static OnnxVal new_tensor(OnnxNodes *o, DType dt)
{
    o->tensor = arena_grow(o->a, o->tensor, o->ntensor, &o->ctensor, sizeof *o->tensor);
    o->tensor[o->ntensor] = (EmittedTensor){.dt = dt, .made_for = o->translations};
    return (OnnxVal){o->ntensor++};
}

const char *onnx_source(OnnxNodes *o, Val v, const char *name)
{
    o->of[v.i] = new_tensor(o, val_type(o->g, v)->dt);
    o->tensor[o->of[v.i].i].made_for = 0;
    return o->tensor[o->of[v.i].i].name = new_name(o, &o->names, name);
}

DType onnx_type(const OnnxNodes *o, OnnxVal v) { return o->tensor[v.i].dt; }

/* ---- nodes ------------------------------------------------------------------------------------------ */

OnnxVal onnx_op(OnnxNodes *o, const char *op, DType dt, int nin, const OnnxVal *in)
{
    EmittedNode n = {.op = op, .nin = nin, .nout = 1, .metadata = o->metadata};
    n.in = NEW(o->a, OnnxVal, nin + 1);
    memcpy(n.in, in, (size_t)nin * sizeof *in);
    while (n.nin > 0 && !n.in[n.nin - 1].i)
        n.nin--;
    n.out[0] = new_tensor(o, dt);
    n.name = new_name(o, &o->node_names, arena_printf(o->a, "%s/%s", o->base, op));
    o->node = arena_grow(o->a, o->node, o->nnode, &o->cnode, sizeof *o->node);
    o->node[o->nnode++] = n;
    o->metadata = NULL;
    return n.out[0];
}

OnnxVal onnx_second(OnnxNodes *o)
{
    EmittedNode *n = &o->node[o->nnode - 1];
    return n->out[n->nout++] = new_tensor(o, DT_I64);
}

OnnxVal onnx_op1(OnnxNodes *o, const char *op, OnnxVal a) { return onnx_op(o, op, onnx_type(o, a), 1, &a); }

OnnxVal onnx_op2(OnnxNodes *o, const char *op, OnnxVal a, OnnxVal b)
{
    return onnx_op(o, op, onnx_type(o, a), 2, (OnnxVal[]){a, b});
}

OnnxVal onnx_op3(OnnxNodes *o, const char *op, OnnxVal a, OnnxVal b, OnnxVal c)
{
    return onnx_op(o, op, onnx_type(o, a), 3, (OnnxVal[]){a, b, c});
}

static void end_attr(OnnxNodes *o, Buf *b, uint64_t type)
{
    put_number(o->a, b, ATTR_TYPE, type);
    put_message(o->a, &o->node[o->nnode - 1].attr, NODE_ATTRIBUTE, b);
}

void onnx_attr(OnnxNodes *o, const char *name, int64_t v)
{
    Buf b = {0};
    put_string(o->a, &b, ATTR_NAME, name);
    put_number(o->a, &b, ATTR_INT, (uint64_t)v);
    end_attr(o, &b, ATTR_TYPE_INT);
}

void onnx_attr_ints(OnnxNodes *o, const char *name, const int64_t *v, int n)
{
    Buf b = {0};
    put_string(o->a, &b, ATTR_NAME, name);
    for (int i = 0; i < n; i++)
        put_number(o->a, &b, ATTR_INTS, (uint64_t)v[i]);
    end_attr(o, &b, ATTR_TYPE_INTS);
}

void onnx_attr_text(OnnxNodes *o, const char *name, const char *v)
{
    Buf b = {0};
    put_string(o->a, &b, ATTR_NAME, name);
    put_string(o->a, &b, ATTR_STRING, v);
    end_attr(o, &b, ATTR_TYPE_STRING);
}

/* ---- constants: one of each content ------------------------------------------------------------------ */

OnnxVal onnx_table(OnnxNodes *o, const Tensor *t)
{
    size_t bytes = (size_t)type_bytes(&t->type);
    for (uint32_t i = 0; i < o->nconstant; i++)
        if (type_equal(&o->constant[i].type, &t->type) && memcmp(o->constant[i].data, t->data, bytes) == 0)
            return o->constant[i].v;
    char *data = NEW(o->a, char, bytes + 1);
    memcpy(data, t->data, bytes);
    EmittedConst c = {new_tensor(o, t->type.dt), t->type, data};
    o->tensor[c.v.i].made_for = 0;
    o->tensor[c.v.i].name = new_name(o, &o->names, "const");
    o->constant = arena_grow(o->a, o->constant, o->nconstant, &o->cconstant, sizeof *o->constant);
    o->constant[o->nconstant++] = c;
    return c.v;
}

OnnxVal onnx_scalar(OnnxNodes *o, DType dt, double v)
{
    uint64_t room = 0;
    Tensor t = {type_scalar(dt), &room};
    if (dtype_is_float(dt))
        tensor_set_f(&t, 0, v);
    else
        tensor_set_i(&t, 0, int_of(v));
    return onnx_table(o, &t);
}

OnnxVal onnx_ints(OnnxNodes *o, const int64_t *v, int n)
{
    int64_t copy[MAX_INTS + 1] = {0};
    memcpy(copy, v, (size_t)n * sizeof *v);
    return onnx_table(o, &(Tensor){type_make(DT_I64, 1, (int64_t[]){n}), copy});
}

/* ---- nodes that several translations have ------------------------------------------------------------- */

OnnxVal onnx_cast(OnnxNodes *o, OnnxVal v, DType dt)
{
    if (onnx_type(o, v) == dt)
        return v;
    OnnxVal r = onnx_op(o, "Cast", dt, 1, &v);
    onnx_attr(o, "to", onnx_data_type(dt));
    return r;
}

OnnxVal onnx_reshape(OnnxNodes *o, OnnxVal v, int rank, const int64_t *dim)
{
    OnnxVal r = onnx_op2(o, "Reshape", v, onnx_ints(o, dim, rank));
    for (int i = 0; i < rank; i++)
        if (dim[i] == 0) {
            onnx_attr(o, "allowzero", 1);
            break;
        }
    return r;
}

OnnxVal onnx_transpose(OnnxNodes *o, OnnxVal v, int rank, const int *perm)
{
    int64_t p[MAX_INTS];
    bool moves = false;
    for (int i = 0; i < rank; i++) {
        p[i] = perm[i];
        moves |= perm[i] != i;
    }
    if (!moves)
        return v;
    OnnxVal r = onnx_op1(o, "Transpose", v);
    onnx_attr_ints(o, "perm", p, rank);
    return r;
}

OnnxVal onnx_expand(OnnxNodes *o, OnnxVal v, int rank, const int64_t *dim)
{
    return onnx_op2(o, "Expand", v, onnx_ints(o, dim, rank));
}

OnnxVal onnx_zeros(OnnxNodes *o, DType dt, int rank, const int64_t *dim)
{
    return onnx_expand(o, onnx_scalar(o, dt, 0), rank, dim);
}

OnnxVal onnx_reduced(OnnxNodes *o, const char *op, OnnxVal v, uint32_t axes, bool keepdims)
{
    int64_t axis[MAX_RANK];
    int n = 0;
    for (int i = 0; i < MAX_RANK; i++)
        if (axes >> i & 1)
            axis[n++] = i;
    if (n == 0)
        return v;
    OnnxVal r = onnx_op2(o, op, v, onnx_ints(o, axis, n));
    onnx_attr(o, "keepdims", keepdims);
    return r;
}

OnnxVal onnx_slice(OnnxNodes *o, OnnxVal v, int axis, int64_t start, int64_t end, int64_t step)
{
    OnnxVal in[] = {v, onnx_ints(o, &start, 1), onnx_ints(o, &end, 1), onnx_ints(o, (int64_t[]){axis}, 1),
                    onnx_ints(o, &step, 1)};
    return onnx_op(o, "Slice", onnx_type(o, v), 5, in);
}

void onnx_spread(OnnxNodes *o, int n, const int64_t *from, const int64_t *to, const int64_t *kernel,
                 const int64_t *stride, const int64_t *dilation, const int64_t *pads)
{
    int64_t pad[MAX_RANK * 2], more[MAX_RANK];
    for (int i = 0; i < n; i++) {
        int64_t all = stride[i] * (from[i] - 1) + dilation[i] * (kernel[i] - 1) + 1 - pads[i] - to[i];
        pad[i] = pads[i];
        pad[n + i] = all > 0 ? all : 0;
        more[i] = all < 0 ? -all : 0;
    }
    onnx_attr_ints(o, "pads", pad, 2 * n);
    onnx_attr_ints(o, "output_padding", more, n);
}

OnnxVal onnx_expr(OnnxNodes *o, Op pointwise, OnnxVal a, OnnxVal b)
{
    ExprValue out = {0}, arg[] = {{.v = a, .class = X_REAL}, {.v = b, .class = X_REAL}};
    DType real = onnx_type(o, a);
    if (!expr_translate(o, &op_table[pointwise]->expr, arg, 0, 0, real, &out))
        return (OnnxVal){0};
    return expr_tensor(o, out, X_REAL, real);
}

/* ---- one node of the graph -------------------------------------------------------------------------- */

OnnxVal onnx_in(OnnxNodes *o, int k)
{
    if (k >= o->n->nin || !o->n->in[k].i)
        return (OnnxVal){0};
    OnnxVal v = o->of[o->n->in[k].i];
    return onnx_cast(o, v, dtype_sum(onnx_type(o, v)));
}

void onnx_out(OnnxNodes *o, int k, OnnxVal v)
{
    Val to = o->n->out[k];
    OnnxVal own = onnx_cast(o, v, val_type(o->g, to)->dt);
    EmittedTensor *t = &o->tensor[own.i];
    if (t->made_for == o->translations && !t->name)
        t->name = new_name(o, &o->names, o->g->vals[to.i].name);
    o->of[to.i] = own;
}

bool onnx_translate(OnnxNodes *o, const Node *n, const char *name, const char *const *metadata)
{
    const OpDef *def = node_def(n);
    Kernel k;
    o->n = n;
    o->base = name;
    o->metadata = metadata;
    o->translations++;
    if (def->onnx)
        return def->onnx(o, o->g, n);
    k_init(&k, o->a, o->g, n);
    bool ok = def->lower && def->lower(&k, o->g, n) && !k.body && kernel_translate(o, &k);
    return ok || onnx_refuse(o, "it has no translation to standard operators");
}

const char *onnx_result(OnnxNodes *o, Val v, const char *want)
{
    OnnxVal own = o->of[v.i];
    if (o->tensor[own.i].result || !o->tensor[own.i].made_for) {
        o->base = "out";
        o->metadata = NULL;
        own = onnx_op1(o, "Identity", own);
    }
    o->tensor[own.i].result = true;
    return o->tensor[own.i].name = take_reserved(o, want) ? want : new_name(o, &o->names, want);
}

/* ---- protobuf
 * ------------------------------------------------------------------------------------------------ */

static void put_node(OnnxNodes *o, Buf *graph, const EmittedNode *n)
{
    Buf b = {0};
    for (int i = 0; i < n->nin; i++)
        put_string(o->a, &b, NODE_INPUT, o->tensor[n->in[i].i].name);
    for (int i = 0; i < n->nout; i++)
        put_string(o->a, &b, NODE_OUTPUT, o->tensor[n->out[i].i].name);
    put_string(o->a, &b, NODE_NAME, n->name);
    put_string(o->a, &b, NODE_OP, n->op);
    put_bytes(o->a, &b, n->attr.p ? n->attr.p : (const uint8_t *)"", n->attr.n);
    for (const char *const *m = n->metadata; m && *m; m += 2) {
        Buf entry = {0};
        put_string(o->a, &entry, ENTRY_KEY, m[0]);
        put_string(o->a, &entry, ENTRY_VALUE, m[1]);
        put_message(o->a, &b, NODE_METADATA, &entry);
    }
    put_message(o->a, graph, GRAPH_NODE, &b);
}

static void put_constant(OnnxNodes *o, Buf *graph, const EmittedConst *c)
{
    Buf b = {0};
    size_t bytes = (size_t)type_bytes(&c->type);
    for (int i = 0; i < c->type.rank; i++)
        put_number(o->a, &b, TENSOR_DIMS, (uint64_t)c->type.dim[i]);
    put_number(o->a, &b, TENSOR_TYPE, (uint64_t)onnx_data_type(c->type.dt));
    put_string(o->a, &b, TENSOR_NAME, o->tensor[c->v.i].name);
    put_header(o->a, &b, TENSOR_RAW, bytes);
    put_bytes(o->a, &b, c->data, bytes);
    put_message(o->a, graph, GRAPH_INITIALIZER, &b);
}

void onnx_put(OnnxNodes *o, Buf *graph)
{
    for (uint32_t i = 1; i < o->ntensor; i++)
        if (!o->tensor[i].name)
            o->tensor[i].name = new_name(o, &o->names, "t");
    for (uint32_t i = 0; i < o->nnode; i++)
        put_node(o, graph, &o->node[i]);
    for (uint32_t i = 0; i < o->nconstant; i++)
        put_constant(o, graph, &o->constant[i]);
}
