/* model.c -- opening a model file: map, check, unpack under a memory cap. */
#include "onnx_int.h"
#include <stdlib.h>
#include <string.h>

/* protobuf-c allocates from the model's arena; a crafted file (2 MB of empty nodes unpack
 * to 186 MB) ends at the cap and not at the machine's limit. */

static void *capped_alloc(void *data, size_t size)
{
    OnnxModel *m = data;
    if (size > m->left)
        return NULL;
    m->left -= size;
    return arena_alloc(&m->arena, size, 1);
}

static void capped_free(void *data, void *p) { (void)data, (void)p; }

ProtobufCAllocator *model_allocator(OnnxModel *m)
{
    m->alloc = (ProtobufCAllocator){capped_alloc, capped_free, m};
    return &m->alloc;
}

const uint8_t *newer_field(const ProtobufCMessage *m, unsigned i, uint32_t tag, size_t *len)
{
    const ProtobufCMessageUnknownField *u = &m->unknown_fields[i];
    size_t skip = 0;
    while (skip < u->len && u->data[skip] & 0x80)
        skip++;
    if (u->tag != tag || skip >= u->len)
        return NULL;
    *len = u->len - skip - 1;
    return u->data + skip + 1;
}

static ProtobufCMessage *unpack(OnnxModel *m, const ProtobufCMessageDescriptor *type, Diag *d)
{
    uint8_t *copy;
    size_t n;
    bool tensor = type == &onnx__tensor_proto__descriptor;
    if (!wire_copy(m->map.data, m->map.size, tensor, &copy, &n, d))
        return NULL;
    m->left = UNPACK_BYTES + UNPACK_FACTOR * n;
    ProtobufCMessage *p = protobuf_c_message_unpack(type, model_allocator(m), n, copy);
    free(copy);
    if (!p)
        diag_set(d, "not an ONNX model: its fields cannot be decoded");
    return p;
}

/* Indexes names, each of which stands for one thing; an initializer named as an input is its default. */
static bool index_names(OnnxModel *m, Diag *d)
{
    const Onnx__GraphProto *gp = m->proto->graph;
    NameMap in = name_map(&m->arena);
    m->initializers = name_map(&m->arena);
    m->producers = name_map(&m->arena);
    for (uint32_t i = 0; i < gp->n_initializer; i++)
        if (!name_add(&m->initializers, pb(gp->initializer[i]->name), i))
            return fail(d, "two initializers are named '%s'", pb(gp->initializer[i]->name));
    m->input = NEW(&m->arena, const char *, gp->n_input + 1);
    for (uint32_t i = 0; i < gp->n_input; i++) {
        const char *name = pb(gp->input[i]->name);
        if (!name_add(&in, name, i))
            return fail(d, "two inputs are named '%s'", name);
        if (!name_get(&m->initializers, name))
            m->input[m->ninput++] = name;
    }
    for (uint32_t i = 0; i < gp->n_node; i++)
        for (size_t k = 0; k < gp->node[i]->n_output; k++)
            name_put(&m->producers, pb(gp->node[i]->output[k]), i);
    return true;
}

const Onnx__TensorProto *model_initializer(const OnnxModel *m, const char *name)
{
    const uint32_t *i = *name ? name_get(&m->initializers, name) : NULL; /* "": an absent operand */
    return i ? m->proto->graph->initializer[*i] : NULL;
}

const Onnx__NodeProto *model_producer(const OnnxModel *m, const char *name)
{
    const uint32_t *i = *name ? name_get(&m->producers, name) : NULL;
    return i ? m->proto->graph->node[*i] : NULL;
}

static bool check_opsets(size_t n, Diag *d)
{
    return n <= MAX_OPSETS || fail(d, "%zu opset imports, at most %d are read", n, MAX_OPSETS);
}

/* The field `overload`, which the schema is too old to know. */
static const char *overload_of(Arena *a, const ProtobufCMessage *m, uint32_t tag)
{
    for (unsigned i = 0; i < m->n_unknown_fields; i++) {
        size_t len;
        const uint8_t *text = newer_field(m, i, tag, &len);
        if (text)
            return arena_strndup(a, (const char *)text, len);
    }
    return "";
}

static const char *function_key(Arena *a, const char *domain, const char *name, const char *overload)
{
    return arena_printf(a, "%s:%s:%s", canonical_domain(domain), name, overload);
}

const Onnx__FunctionProto *model_function(const OnnxModel *m, const Onnx__NodeProto *call, Arena *a)
{
    if (!m->proto->n_functions)
        return NULL;
    const char *overload = overload_of(a, &call->base, 8);
    const uint32_t *i =
        name_get(&m->functions, function_key(a, pb(call->domain), pb(call->op_type), overload));
    return i ? m->proto->functions[*i] : NULL;
}

static bool index_functions(OnnxModel *m, Diag *d)
{
    const Onnx__ModelProto *p = m->proto;
    TRY(check_opsets(p->n_opset_import, d));
    m->functions = name_map(&m->arena);
    for (uint32_t i = 0; i < p->n_functions; i++) {
        const Onnx__FunctionProto *f = p->functions[i];
        TRY(check_opsets(f->n_opset_import, d));
        const char *key =
            function_key(&m->arena, pb(f->domain), pb(f->name), overload_of(&m->arena, &f->base, 13));
        if (!name_add(&m->functions, key, i))
            return fail(d, "two functions are named '%s'", key);
    }
    return true;
}

static bool open_model(OnnxModel *m, Diag *d)
{
    static const char zip[] = {'P', 'K', 3, 4};
    TRY(file_map(&m->map, m->path, d));
    if (!m->map.size)
        return fail(d, "empty file");
    if (m->map.size >= sizeof zip && memcmp(m->map.data, zip, sizeof zip) == 0)
        return fail(
            d, "not an ONNX model but a zip archive, as torch.save(), Keras and numpy write them: export "
               "the model to ONNX");
    m->proto = (Onnx__ModelProto *)(void *)unpack(m, &onnx__model_proto__descriptor, d);
    if (m->proto && !m->proto->graph)
        return fail(d, "not an ONNX model: there is no graph in it");
    return m->proto && text_check(&m->proto->base, d) && index_names(m, d) && index_functions(m, d);
}

void diag_prefix(Diag *d, const char *path)
{
    char msg[sizeof d->msg];
    if (strncmp(d->msg, path, strlen(path)) == 0)
        return;
    memcpy(msg, d->msg, sizeof msg);
    snprintf(d->msg, sizeof d->msg, "%.1000s: %.3000s", path, msg);
}

OnnxModel *onnx_open(const char *path, Diag *d)
{
    Arena arena = {0};
    OnnxModel *m = NEW(&arena, OnnxModel, 1);
    m->path = arena_strndup(&arena, path, strlen(path));
    m->arena = arena; /* the model lives in its own arena */
    if (open_model(m, d))
        return m;
    diag_prefix(d, path);
    onnx_close(m);
    return NULL;
}

void onnx_close(OnnxModel *m)
{
    if (!m)
        return;
    for (External *e = m->external; e; e = e->next)
        file_unmap(&e->map);
    file_unmap(&m->map);
    Arena arena = m->arena;
    arena_free(&arena);
}

const OnnxNote *onnx_notes(const OnnxModel *m, uint32_t *n)
{
    *n = m->nnotes;
    return m->notes;
}

uint32_t onnx_output_index(const OnnxModel *m, uint32_t k) { return m->output[k]; }

const char *onnx_output_name(const OnnxModel *m, uint32_t k)
{
    return pb(m->proto->graph->output[m->output[k]]->name);
}

const char *onnx_input_name(const OnnxModel *m, uint32_t k) { return k < m->ninput ? m->input[k] : NULL; }

const char *onnx_input_batch(const OnnxModel *m, uint32_t k, Arena *a)
{
    const Onnx__GraphProto *gp = m->proto->graph;
    size_t i = 0;
    while (strcmp(pb(gp->input[i]->name), m->input[k]) != 0)
        i++;
    const Onnx__TypeProto *t = gp->input[i]->type;
    bool tensor = t && t->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    const Onnx__TensorShapeProto *shape = tensor ? t->tensor_type->shape : NULL;
    if (!shape || !shape->n_dim)
        return NULL;
    const Onnx__TensorShapeProto__Dimension *dim = shape->dim[0];
    if (dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE && dim->dim_value >= 0)
        return NULL;
    bool named = dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM &&
                 *pb(dim->dim_param);
    return named ? dim->dim_param : arena_printf(a, "%s.0", m->input[k]);
}

bool onnx_read_tensor(const char *path, Arena *a, Tensor *t, Diag *d)
{
    OnnxModel m = {.path = path};
    OnnxTensor loaded = {0};
    TRY(file_map(&m.map, path, d));
    Onnx__TensorProto *p = (Onnx__TensorProto *)(void *)unpack(&m, &onnx__tensor_proto__descriptor, d);
    bool ok = p && tensor_load(&m, p, &loaded, d);
    if (ok) {
        size_t bytes = (size_t)type_bytes(&loaded.t.type);
        *t = (Tensor){loaded.t.type, arena_alloc(a, bytes + 1, 1)};
        if (bytes)
            memcpy(t->data, loaded.t.data, bytes);
    } else {
        diag_prefix(d, path);
    }
    file_unmap(&m.map);
    arena_free(&m.arena);
    return ok;
}
