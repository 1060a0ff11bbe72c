/* onnx_builder.c -- small ONNX models that tests write: protobuf-c packs messages that lie in one object. */
#include "tests.h"

#include <stdio.h>
#include <string.h>

#include "command.h"
#include "onnx_builder.h"

void start(Builder *b, int opset)
{
    memset(b, 0, sizeof *b);
    onnx__model_proto__init(&b->model);
    onnx__graph_proto__init(&b->graph);
    onnx__operator_set_id_proto__init(&b->opset);
    b->opset.has_version = true;
    b->opset.version = opset;
    b->opsets[0] = &b->opset;
    b->model.has_ir_version = true;
    b->model.ir_version = 8;
    b->model.n_opset_import = 1;
    b->model.opset_import = b->opsets;
    b->model.graph = &b->graph;
    b->graph.name = (char *)"g";
    b->graph.node = b->nodes;
    b->graph.initializer = b->tensors;
    b->graph.input = b->inputs;
    b->graph.output = b->outputs;
}

static size_t words(Arena *a, const char *list, char **out)
{
    size_t n = 0;
    for (const char *p = list; *p;) {
        size_t len = strcspn(p, " ");
        out[n++] = len == 1 && *p == '_' ? (char *)"" : arena_strndup(a, p, len);
        p += len + (p[len] == ' ');
    }
    return n;
}

Onnx__NodeProto *add_node(Builder *b, Arena *a, const char *op, const char *in,
                          const char *out)
{
    size_t k = b->graph.n_node++;
    Onnx__NodeProto *n = b->nodes[k] = &b->node[k];
    onnx__node_proto__init(n);
    n->op_type = (char *)(uintptr_t)op;
    n->name = arena_printf(a, "node%zu", k);
    n->input = b->operand[k];
    n->n_input = words(a, in, n->input);
    n->output = b->result[k];
    n->n_output = words(a, out, n->output);
    return n;
}

Onnx__AttributeProto *add_attr(Builder *b, Onnx__NodeProto *n, const char *name)
{
    size_t k = 0;
    while (b->attrs[k])
        k++;
    b->attrs[k] = &b->attr[k];
    onnx__attribute_proto__init(b->attrs[k]);
    b->attrs[k]->name = (char *)(uintptr_t)name;
    n->attribute = &b->attrs[k]; /* a node's attributes are added one after another */
    n->attribute -= n->n_attribute;
    n->n_attribute++;
    return b->attrs[k];
}

void add_int(Builder *b, Onnx__NodeProto *n, const char *name, int64_t v)
{
    Onnx__AttributeProto *a = add_attr(b, n, name);
    a->has_type = a->has_i = true;
    a->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT;
    a->i = v;
}

void add_value(Builder *b, Arena *a, const char *name, int type, const char *dims,
               bool input)
{
    size_t k = b->nvalue++;
    onnx__value_info_proto__init(&b->value[k]);
    onnx__type_proto__init(&b->type[k]);
    onnx__type_proto__tensor__init(&b->ttype[k]);
    onnx__tensor_shape_proto__init(&b->shape[k]);
    b->value[k].name = (char *)(uintptr_t)name;
    b->value[k].type = &b->type[k];
    b->type[k].value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    b->type[k].tensor_type = &b->ttype[k];
    b->ttype[k].has_elem_type = true;
    b->ttype[k].elem_type = type;
    b->ttype[k].shape = &b->shape[k];
    b->shape[k].dim = b->dimp[k];
    for (; *dims; dims++) {
        Onnx__TensorShapeProto__Dimension *d = &b->dim[k][b->shape[k].n_dim];
        onnx__tensor_shape_proto__dimension__init(d);
        bool number = *dims >= '0' && *dims <= '9';
        if (*dims != '?')
            d->value_case = number ? ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE
                                   : ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
        if (number)
            d->dim_value = *dims - '0';
        else if (*dims != '?')
            d->dim_param = arena_strndup(a, dims, 1);
        b->dimp[k][b->shape[k].n_dim++] = d;
    }
    if (input)
        b->inputs[b->graph.n_input++] = &b->value[k];
    else
        b->outputs[b->graph.n_output++] = &b->value[k];
}

Onnx__TensorProto *add_tensor(Builder *b, const char *name, int rank, const int64_t *dim,
                              float *data)
{
    size_t k = b->graph.n_initializer++;
    Onnx__TensorProto *t = b->tensors[k] = &b->tensor[k];
    onnx__tensor_proto__init(t);
    t->name = (char *)(uintptr_t)name;
    t->has_data_type = true;
    t->data_type = ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT;
    t->n_dims = (size_t)rank;
    t->dims = b->dims[k];
    t->n_float_data = data ? 1 : 0;
    t->float_data = data;
    for (int i = 0; i < rank; i++) {
        t->dims[i] = dim[i];
        t->n_float_data *= (size_t)dim[i];
    }
    return t;
}

void add_external(Builder *b, Arena *a, const char *name, int64_t n, const char *location,
                  const char *offset, const char *length)
{
    const char *const key[] = {"location", "offset", "length"};
    const char *const value[] = {location, offset, length};
    Onnx__TensorProto *t = add_tensor(b, name, 1, &n, NULL);
    t->has_data_location = true;
    t->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
    t->external_data = NEW(a, Onnx__StringStringEntryProto *, 3);
    for (int i = 0; i < 3; i++) {
        if (!value[i])
            continue;
        Onnx__StringStringEntryProto *e = NEW(a, Onnx__StringStringEntryProto, 1);
        onnx__string_string_entry_proto__init(e);
        e->key = (char *)(uintptr_t)key[i];
        e->value = (char *)(uintptr_t)value[i];
        t->external_data[t->n_external_data++] = e;
    }
}

void add_record(Arena *a, ProtobufCMessage *m, uint32_t field, const char *key,
                const char *value)
{
    Onnx__StringStringEntryProto e = ONNX__STRING_STRING_ENTRY_PROTO__INIT;
    e.key = (char *)(uintptr_t)key;
    e.value = (char *)(uintptr_t)value;
    size_t n = onnx__string_string_entry_proto__get_packed_size(&e);
    ck_assert_uint_lt(n, 1 << 14);
    uint8_t *data = arena_alloc(a, n + 2, 1);
    data[0] = (uint8_t)(n | 0x80); /* the length of the pair, in two bytes */
    data[1] = (uint8_t)(n >> 7);
    onnx__string_string_entry_proto__pack(&e, data + 2);
    ProtobufCMessageUnknownField *all = NEW(a, ProtobufCMessageUnknownField, m->n_unknown_fields + 1);
    for (unsigned i = 0; i < m->n_unknown_fields; i++)
        all[i] = m->unknown_fields[i];
    all[m->n_unknown_fields++] = (ProtobufCMessageUnknownField){
        field, PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED, n + 2, data};
    m->unknown_fields = all;
}

void add_metadata(Builder *b, Arena *a, const char *key, const char *value)
{
    add_record(a, &b->graph.base, 16, key, value);
}

Onnx__NodeProto *add_recorded(Builder *b, Arena *a, const char *op, const char *in, const char *out,
                              const char *call, const char *scope)
{
    Onnx__NodeProto *n = add_node(b, a, op, in, out);
    if (call)
        add_record(a, &n->base, 9, "pkg.torch.onnx.fx_node", call);
    if (scope)
        add_record(a, &n->base, 9, "pkg.torch.onnx.name_scopes", scope);
    return n;
}

void add_signature(Builder *b, Arena *a, const char *lines)
{
    b->model.producer_name = (char *)(uintptr_t) "pytorch";
    if (lines)
        add_metadata(b, a, "pkg.torch.export.ExportedProgram.graph_signature", lines);
}

void add_origins(Builder *b, Arena *a, const char *name, const char *names)
{
    Onnx__ValueInfoProto *v = NEW(a, Onnx__ValueInfoProto, 1);
    onnx__value_info_proto__init(v);
    v->name = (char *)(uintptr_t)name;
    add_record(a, &v->base, 4, "pkg.onnxscript.optimizer.folded_from", names);
    b->graph.value_info = b->infos;
    b->infos[b->graph.n_value_info++] = v;
}

void add_bool(Builder *b, const char *name, bool value)
{
    static int32_t values[] = {0, 1};
    Onnx__TensorProto *t = add_tensor(b, name, 0, NULL, NULL);
    t->data_type = ONNX__TENSOR_PROTO__DATA_TYPE__BOOL;
    t->int32_data = &values[value];
    t->n_int32_data = 1;
}

const char *save(Builder *b, Arena *a, const char *path)
{
    size_t n = onnx__model_proto__get_packed_size(&b->model);
    uint8_t *bytes = NEW(a, uint8_t, n + 1);
    onnx__model_proto__pack(&b->model, bytes);
    write_bytes(path, bytes, n);
    return path;
}
