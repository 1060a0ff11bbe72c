/* save_node.c -- nodes in a saved model: with operands that are parameters of their own
 * (merged.c), and, in bodies and functions, too, with their external data in another file, and as they are
 * when nothing trains. */
#include "save_int.h"
#include <string.h>

/* Where a node stands: `index` in the main graph, or IN_BODY of control flow or a function. */
#define IN_BODY UINT32_MAX
typedef struct {
    const Onnx__NodeProto *p;
    uint32_t index;
    int opset;
} Place;

/* ---- parameters told apart --------------------------------------------------------------- */

/* Is it saved as a value of its own, not as a further name of another? */
static bool stands_alone(const Save *s, const char *name)
{
    WireField f = {.data = (const uint8_t *)name, .size = strlen(name)};
    const Target *t = target_of(s, &f);
    return t && !t->v->alias;
}

/* The name of the parameter that operand `slot` of the node (-1: any) is of its own; NULL: it is none, or
 * not trained. */
static const char *own_name(const Save *s, const Place *at, int slot)
{
    const Merged *m = s->merged;
    const Separate *r;
    for (uint32_t i = at->index == IN_BODY ? 0 : m->first[at->index]; i; i = r->next) {
        r = &m->read[i - 1];
        if ((slot < 0 || r->slot == slot) && !r->identity && stands_alone(s, r->name))
            return r->name;
    }
    return NULL;
}

/* ---- what changes -------------------------------------------------------------------------- */

static NodeForm form_of(const Save *s, const Place *at)
{
    NodeForm form = {.ninput = INT32_MAX, .noutput = INT32_MAX, .identity_of = -1};
    return s->inference ? inference_form(s->m, at->p, at->opset, at->index != IN_BODY) : form;
}

static bool any_external(size_t n, Onnx__TensorProto *const *tensor)
{
    bool external = false;
    for (size_t i = 0; i < n; i++)
        external |= tensor[i]->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
    return external;
}

static bool graph_changes(const Save *s, const Onnx__GraphProto *g, int opset);

static bool node_changes(const Save *s, const Place *at)
{
    bool changes = form_of(s, at).changes || own_name(s, at, -1);
    for (size_t k = 0; k < at->p->n_attribute && !changes; k++) {
        const Onnx__AttributeProto *a = at->p->attribute[k];
        changes = any_external(a->t ? 1 : 0, &a->t) || any_external(a->n_tensors, a->tensors) ||
                  (a->g && graph_changes(s, a->g, at->opset));
        for (size_t i = 0; i < a->n_graphs && !changes; i++)
            changes = graph_changes(s, a->graphs[i], at->opset);
    }
    return changes;
}

static bool any_changes(const Save *s, size_t n, Onnx__NodeProto *const *node, int opset)
{
    bool changes = false;
    for (size_t i = 0; i < n && !changes; i++)
        changes = node_changes(s, &(Place){node[i], IN_BODY, opset});
    return changes;
}

static bool graph_changes(const Save *s, const Onnx__GraphProto *g, int opset)
{
    return any_external(g->n_initializer, g->initializer) || any_changes(s, g->n_node, g->node, opset);
}

/* Is operand `in` of a node there in the saved one, too? */
static bool stays(const NodeForm *form, int in)
{
    return form->identity_of >= 0 ? in == form->identity_of : in < form->ninput;
}

/* ---- what nothing reads any more ----------------------------------------------------------- */

static void add_name(NameMap *read, const char *name)
{
    if (*name)
        name_add(read, name, 0);
}

/* Adds what a node, or one in its bodies, reads: in the file, or saved. */
static void add_reads(const Save *s, NameMap *read, const Place *at, bool saved)
{
    NodeForm form = saved ? form_of(s, at) : (NodeForm){.ninput = INT32_MAX, .identity_of = -1};
    for (size_t i = 0; i < at->p->n_input; i++)
        if (stays(&form, (int)i))
            add_name(read, pb(at->p->input[i]));
    for (size_t k = 0; k < at->p->n_attribute; k++) {
        const Onnx__GraphProto *g = at->p->attribute[k]->g;
        for (size_t i = 0; g && i < g->n_node; i++)
            add_reads(s, read, &(Place){g->node[i], IN_BODY, at->opset}, saved);
        for (size_t i = 0; g && i < g->n_output; i++)
            add_name(read, pb(g->output[i]->name));
    }
}

/* A node is needed if the outputs of the graph depend on it; it follows what it reads. */
void find_unread(Save *s)
{
    const Onnx__GraphProto *g = s->m->proto->graph;
    NameMap read[2] = {name_map(&s->a), name_map(&s->a)}; /* by needed nodes in the file, by those saved */
    s->unread_node = NEW(&s->a, bool, g->n_node + 1);
    s->unread_tensor = NEW(&s->a, bool, g->n_initializer + 1);
    for (int saved = 0; saved < 2; saved++) {
        for (size_t i = 0; i < g->n_output; i++)
            add_name(&read[saved], pb(g->output[i]->name));
        for (size_t i = g->n_node; i-- > 0;) {
            Place at = {g->node[i], (uint32_t)i, opset_of(s->m, NULL, "")};
            bool needed = false;
            for (size_t k = 0; k < at.p->n_output; k++)
                needed |= name_get(&read[saved], pb(at.p->output[k])) != NULL;
            if (needed)
                add_reads(s, &read[saved], &at, saved);
            s->unread_node[i] = saved ? s->unread_node[i] && !needed : needed;
        }
    }
    for (size_t i = 0; i < g->n_input; i++) /* initializers that are inputs, too, stay */
        add_name(&read[1], pb(g->input[i]->name));
    for (size_t i = 0; i < g->n_initializer; i++)
        s->unread_tensor[i] = name_get(&read[0], pb(g->initializer[i]->name)) &&
                              !name_get(&read[1], pb(g->initializer[i]->name));
}

/* ---- one node -------------------------------------------------------------------------------- */

static void put_body(Save *s, Buf *out, const WireField *body, uint32_t node_field, size_t n,
                     Onnx__NodeProto *const *node, int opset);

static void put_attribute(Save *s, Buf *out, const WireField *proto, const Onnx__AttributeProto *a, int opset)
{
    Buf b = {0};
    Wire w = wire_of(proto->data, proto->size);
    WireField f;
    size_t k = 0;
    while (wire_next(&w, &f))
        if (f.number == ATTR_GRAPH && a->g)
            put_body(s, &b, &f, GRAPH_NODE, a->g->n_node, a->g->node, opset);
        else if (f.number == ATTR_GRAPHS && k < a->n_graphs) {
            put_body(s, &b, &f, GRAPH_NODE, a->graphs[k]->n_node, a->graphs[k]->node, opset);
            k++;
        } else if ((f.number == ATTR_TENSOR || f.number == ATTR_TENSORS) && is_external(&f))
            put_external_tensor(s, &b, &f);
        else
            put_bytes(&s->a, &b, f.start, (size_t)(w.p - f.start));
    put_message(&s->a, out, NODE_ATTRIBUTE, &b);
}

/* Does the inference form leave the attribute out, or set it itself? */
static bool is_dropped(const Onnx__AttributeProto *a, const NodeForm *form)
{
    return (form->training_mode && strcmp(pb(a->name), "training_mode") == 0) ||
           (form->is_test && strcmp(pb(a->name), "is_test") == 0);
}

static void put_flag(Save *s, Buf *node, const char *name)
{
    Buf a = {0};
    put_string(&s->a, &a, ATTR_NAME, name);
    put_number(&s->a, &a, ATTR_INT, 1);
    put_number(&s->a, &a, ATTR_TYPE, 2);
    put_message(&s->a, node, NODE_ATTRIBUTE, &a);
}

static void put_identity(Save *s, Buf *out, uint32_t field, const char *from, const char *to)
{
    Buf b = {0};
    put_string(&s->a, &b, NODE_INPUT, from);
    put_string(&s->a, &b, NODE_OUTPUT, to);
    put_string(&s->a, &b, NODE_OP, "Identity");
    put_message(&s->a, out, field, &b);
}

static void put_node(Save *s, Buf *out, uint32_t field, const WireField *proto, const Place *at)
{
    const Onnx__NodeProto *p = at->p;
    NodeForm form = form_of(s, at);
    Buf b = {0};
    Wire w = wire_of(proto->data, proto->size);
    WireField f;
    const char *name;
    int in = 0, results = 0;
    size_t k = 0;
    while (wire_next(&w, &f)) {
        size_t whole = (size_t)(w.p - f.start);
        if (f.number == NODE_INPUT) {
            bool there = stays(&form, in);
            name = own_name(s, at, in++);
            if (there && name)
                put_string(&s->a, &b, NODE_INPUT, name);
            else if (there)
                put_bytes(&s->a, &b, f.start, whole);
        } else if (f.number == NODE_OP && form.identity_of >= 0) {
            put_string(&s->a, &b, NODE_OP, "Identity");
        } else if (f.number == NODE_ATTRIBUTE && k < p->n_attribute) {
            const Onnx__AttributeProto *a = p->attribute[k++];
            if (!is_dropped(a, &form))
                put_attribute(s, &b, &f, a, at->opset);
        } else if (!(f.number == NODE_OUTPUT && results++ >= form.noutput)) {
            put_bytes(&s->a, &b, f.start, whole);
        }
    }
    if ((name = own_name(s, at, in))) /* a bias that was left out */
        put_string(&s->a, &b, NODE_INPUT, name);
    if (form.is_test)
        put_flag(s, &b, "is_test");
    put_message(&s->a, out, field, &b);
    for (int i = form.noutput; i < (int)p->n_output && p->n_input == 5; i++)
        if (*pb(p->output[i])) /* statistics of a batch norm: those given */
            put_identity(s, out, field, p->input[i & 1 ? 3 : 4], p->output[i]);
}

/* ---- graphs of control flow, functions ---------------------------------------------------- */

static void put_body(Save *s, Buf *out, const WireField *body, uint32_t node_field, size_t n,
                     Onnx__NodeProto *const *node, int opset)
{
    Buf b = {0};
    Wire w = wire_of(body->data, body->size);
    WireField f;
    size_t i = 0;
    while (wire_next(&w, &f)) {
        Place at = {f.number == node_field && i < n ? node[i++] : NULL, IN_BODY, opset};
        if (at.p && node_changes(s, &at))
            put_node(s, &b, node_field, &f, &at);
        else if (node_field == GRAPH_NODE && f.number == GRAPH_INITIALIZER && is_external(&f))
            put_external_tensor(s, &b, &f);
        else
            put_bytes(&s->a, &b, f.start, (size_t)(w.p - f.start));
    }
    put_message(&s->a, out, body->number, &b);
}

bool put_changed_node(Save *s, Buf *b, const WireField *proto, uint32_t index)
{
    Place at = {s->m->proto->graph->node[index], index, opset_of(s->m, NULL, "")};
    bool changes = node_changes(s, &at);
    if (changes)
        put_node(s, b, GRAPH_NODE, proto, &at);
    return changes;
}

bool put_changed_function(Save *s, Buf *b, const WireField *proto, size_t index)
{
    const Onnx__FunctionProto *f = s->m->proto->functions[index];
    int opset = opset_of(s->m, f, "");
    bool changes = any_changes(s, f->n_node, f->node, opset);
    if (changes)
        put_body(s, b, proto, FUNCTION_NODE, f->n_node, f->node, opset);
    return changes;
}
