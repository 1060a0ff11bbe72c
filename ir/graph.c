/* graph.c -- construction of graphs: values with unique names, nodes, the schedule. */
#include "names.h"
#include "ops/common.h"
#include <string.h>

const OpDef *const op_table[OP_COUNT] = {
#define OP(name) [OP_##name] = &op_##name,
#include "ops.def"
};

const char *const val_kind_name[VAL_KIND_COUNT] = {"temp", "input", "param", "state", "const"};

Op op_find(const char *name)
{
    for (int op = 1; op < OP_COUNT; op++)
        if (strcmp(op_table[op]->name, name) == 0)
            return (Op)op;
    return OP_NONE;
}

void op_attr_init(Op op, void *attr)
{
    const OpDef *def = op_table[op];
    memset(attr, 0, def->attr_size);
    for (size_t i = 0; i < def->nattrs; i++) {
        char *at = (char *)attr + def->attrs[i].off;
        if (def->attrs[i].type == AT_F64)
            *(double *)(void *)at = def->attrs[i].dflt;
        else if (def->attrs[i].type != AT_INTS)
            *(int64_t *)(void *)at = (int64_t)def->attrs[i].dflt;
    }
}

void graph_init(Graph *g, Arena *a, Diag *d)
{
    *g = (Graph){.arena = a, .diag = d, .nvals = 1, .nnodes = 1};
    g->vals = arena_grow(a, NULL, 1, &g->cvals, sizeof *g->vals);
    g->nodes = arena_grow(a, NULL, 1, &g->cnodes, sizeof *g->nodes);
    g->order = arena_grow(a, NULL, 0, &g->corder, sizeof *g->order); /* not NULL, even if empty */
    g->vals[0].name = "_";
}

/* ---- names: open addressing over Val indices, FNV-1a ------------------------- */

/* Slot of the name, or the free slot where it belongs. */
static uint32_t *name_slot(const Graph *g, const char *name)
{
    uint32_t mask = g->cnames - 1, i = name_hash(name) & mask;
    while (g->names[i] && strcmp(g->vals[g->names[i]].name, name) != 0)
        i = (i + 1) & mask;
    return &g->names[i];
}

static void names_grow(Graph *g)
{
    if (g->names && g->nvals * 2 < g->cnames)
        return;
    g->cnames = g->cnames ? g->cnames * 2 : 256;
    g->names = NEW(g->arena, uint32_t, g->cnames);
    for (uint32_t i = 1; i < g->nvals; i++)
        *name_slot(g, g->vals[i].name) = i;
}

/* Entries behind a freed slot move up as far as their hash allows, so that probing needs no marks
 * of what was there. */
static void name_forget(Graph *g, const char *name)
{
    uint32_t mask = g->cnames - 1, hole = (uint32_t)(name_slot(g, name) - g->names), i = hole;
    g->names[hole] = 0;
    while (g->names[i = (i + 1) & mask]) {
        uint32_t home = name_hash(g->vals[g->names[i]].name) & mask;
        if (((i - home) & mask) < ((i - hole) & mask))
            continue;
        g->names[hole] = g->names[i];
        g->names[i] = 0;
        hole = i;
    }
}

Val graph_find(const Graph *g, const char *name) { return (Val){g->names ? *name_slot(g, name) : 0}; }

/* Is it the name of an input or a state that a step has beside those of its model? */
static bool is_own(const char *name)
{
    static const char *const own[] = {"lr", "step", "rng", "micro_batch", "loss_scale"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcmp(name, own[i]) == 0)
            return true;
    return false;
}

/* The name in printable form, made unique by a suffix. */
static const char *unique_name(Graph *g, const char *name)
{
    names_grow(g);
    char *unique = arena_strndup(g->arena, name, strlen(name));
    for (char *c = unique; *c; c++) /* names are printed between blanks and commas */
        if ((unsigned char)*c <= ' ' || strchr(",()\"#{}=%@", *c))
            *c = '_';
    const char *base = unique;
    /* The count so far is a good first guess: names clash in runs (.grad, .remat). */
    for (uint32_t k = 1; !*unique || *name_slot(g, unique) || (g->importing && is_own(unique));
         k = k < 8 ? k + 1 : g->nvals + k)
        unique = arena_printf(g->arena, "%s.%u", *base ? base : "v", k);
    return unique;
}

Val graph_value(Graph *g, const char *name, Type t, ValKind kind)
{
    const char *unique = unique_name(g, name);
    g->vals = arena_grow(g->arena, g->vals, g->nvals, &g->cvals, sizeof *g->vals);
    g->vals[g->nvals] = (Value){.name = unique, .type = t, .kind = kind};
    *name_slot(g, unique) = g->nvals;
    return (Val){g->nvals++};
}

void graph_rename(Graph *g, Val v, const char *name)
{
    if (strcmp(g->vals[v.i].name, name) == 0)
        return;
    names_grow(g);
    name_forget(g, g->vals[v.i].name);
    g->vals[v.i].name = "";
    g->vals[v.i].name = unique_name(g, name);
    *name_slot(g, g->vals[v.i].name) = v.i;
}

const char *const name_holder[NAME_HOLDERS] = {"", "file", "module"};

void graph_name_in_model(Graph *g, Val v, ModelName name)
{
    ModelName *more = NEW(g->arena, ModelName, 1);
    *more = name;
    const ModelName **end = &g->vals[v.i].in_model;
    while (*end && strcmp((*end)->name, name.name) != 0)
        end = (const ModelName **)(uintptr_t)&(*end)->next;
    more->next = *end ? (*end)->next : NULL;
    *end = more;
}

const ModelName *next_module_name(const ModelName *n)
{
    while (n && n->of != NAME_OF_MODULE)
        n = n->next;
    return n;
}

const ModelName *graph_module_name(const Graph *g, Val v) { return next_module_name(g->vals[v.i].in_model); }

/* Bytes of each of the blocks that a name has. */
static size_t block_bytes(const ModelName *name, DType dt)
{
    return (size_t)(type_count(name->shape) / name->blocks->n * dtype_size[dt]);
}

void tensor_put_blocks(const ModelName *name, const Tensor *t, void *value)
{
    size_t size = block_bytes(name, t->type.dt);
    for (int i = 0; i < name->blocks->n; i++)
        memcpy((char *)value + (size_t)name->blocks->v[i] * size, (const char *)t->data + (size_t)i * size,
               size);
}

static Tensor tensor_of_blocks(const ModelName *name, Tensor t, Arena *a)
{
    size_t size = block_bytes(name, t.type.dt);
    Tensor part = {.type = type_with(*name->shape, t.type.dt)};
    if (t.data)
        part.data = arena_alloc(a, (size_t)type_bytes(&part.type) + 1, 1);
    for (int i = 0; i < name->blocks->n && t.data; i++)
        memcpy((char *)part.data + (size_t)i * size, (const char *)t.data + (size_t)name->blocks->v[i] * size,
               size);
    return part;
}

Tensor tensor_of_name(const ModelName *name, Tensor t, Arena *a)
{
    if (name->blocks)
        return tensor_of_blocks(name, t, a);
    if (name->transposed && t.data)
        return tensor_transposed(&t, a);
    if (name->transposed)
        t.type = type_make(t.type.dt, 2, (int64_t[]){t.type.dim[1], t.type.dim[0]});
    if (name->shape)
        t.type = type_with(*name->shape, t.type.dt);
    return t;
}

bool *graph_updated(const Graph *g, Arena *a)
{
    bool *updated = NEW(a, bool, g->nvals + 1);
    for (uint32_t i = 0; i < g->nupdate; i++)
        updated[g->update[i].state.i] = true;
    return updated;
}

bool *graph_cast(const Graph *g, Arena *a)
{
    bool *cast = NEW(a, bool, g->nvals);
    for (uint32_t i = 1; i < g->nvals; i++)
        cast[g->vals[i].cast_of.i] = true;
    cast[0] = false;
    return cast;
}

const char *graph_model_name(const Graph *g, Val v)
{
    const ModelName *n = g->vals[v.i].in_model;
    return n ? n->name : g->vals[v.i].name;
}

Val graph_const(Graph *g, const char *name, Type t, const void *data)
{
    Val v = graph_value(g, name, t, VAL_CONST);
    size_t n = (size_t)type_bytes(&t);
    void *copy = arena_alloc(g->arena, n ? n : 1, 1);
    if (n)
        memcpy(copy, data, n);
    g->vals[v.i].data = copy;
    return v;
}

/* ---- nodes --------------------------------------------------------------------- */

bool nodes_alike(const Node *a, const Node *b)
{
    size_t size = node_def(a)->attr_size;
    return a->op == b->op && a->nin == b->nin && (size == 0 || memcmp(a->attr, b->attr, size) == 0);
}

static Val *vals_dup(Arena *a, const Val *v, int n)
{
    Val *copy = NEW(a, Val, n ? n : 1);
    for (int i = 0; i < n; i++)
        copy[i] = v[i];
    return copy;
}

static Node *node_new(Graph *g, Op op, int nin, const Val *in, int nout, const Val *out)
{
    g->nodes = arena_grow(g->arena, g->nodes, g->nnodes, &g->cnodes, sizeof *g->nodes);
    Node *n = &g->nodes[g->nnodes];
    *n = (Node){.op = op, .nin = nin, .nout = nout, .in = vals_dup(g->arena, in, nin),
                .out = vals_dup(g->arena, out, nout)};
    if (op_table[op]->attr_size)
        n->attr = arena_alloc(g->arena, 1, op_table[op]->attr_size);
    for (int i = 0; i < nout; i++)
        g->vals[out[i].i].def.i = g->nnodes;
    g->nnodes++;
    return n;
}

Node *graph_node(Graph *g, Op op, int nin, const Val *in, int nout, const Val *out)
{
    Node *n = node_new(g, op, nin, in, nout, out);
    if (n->attr)
        op_attr_init(op, n->attr);
    graph_schedule(g, (NodeId){g->nnodes - 1});
    return n;
}

void graph_schedule(Graph *g, NodeId n)
{
    g->order = arena_grow(g->arena, g->order, g->norder, &g->corder, sizeof *g->order);
    g->order[g->norder++] = n;
}

NodeId *graph_take_order(Graph *g, Arena *a)
{
    NodeId *order = memcpy(NEW(a, NodeId, g->norder + 1), g->order, g->norder * sizeof *order);
    g->norder = 0;
    return order;
}

static void *copy_array(Arena *a, const void *from, uint32_t n, uint32_t *cap, size_t size)
{
    *cap = n + 1;
    void *to = arena_alloc(a, *cap, size);
    return n ? memcpy(to, from, n * size) : to;
}

Graph graph_copy(const Graph *g, Arena *a)
{
    Graph c = *g;
    c.arena = a;
    c.vals = copy_array(a, g->vals, g->nvals, &c.cvals, sizeof *g->vals);
    c.nodes = copy_array(a, g->nodes, g->nnodes, &c.cnodes, sizeof *g->nodes);
    c.order = copy_array(a, g->order, g->norder, &c.corder, sizeof *g->order);
    c.out = copy_array(a, g->out, g->nout, &c.cout, sizeof *g->out);
    c.update = copy_array(a, g->update, g->nupdate, &c.cupdate, sizeof *g->update);
    if (g->cnames)
        c.names = memcpy(NEW(a, uint32_t, g->cnames), g->names, g->cnames * sizeof *g->names);
    return c;
}

NodeId graph_clone_node(Graph *g, NodeId id, const Val *subst)
{
    Node old = g->nodes[id.i];
    Val *in = NEW(g->arena, Val, old.nin ? old.nin : 1), out[MAX_OUT];
    for (int i = 0; i < old.nin; i++)
        in[i] = subst ? subst[old.in[i].i] : old.in[i];
    for (int i = 0; i < old.nout; i++) {
        Value v = g->vals[old.out[i].i];
        out[i] = graph_value(g, arena_printf(g->arena, "%s.remat", v.name), v.type, VAL_TEMP);
    }
    Node *n = node_new(g, old.op, old.nin, in, old.nout, out);
    if (n->attr)
        memcpy(n->attr, old.attr, op_table[old.op]->attr_size);
    n->name = old.name;
    n->split = old.split;
    n->remat = old.remat ? old.remat : g->vals[old.out[0].i].name;
    return (NodeId){g->nnodes - 1};
}

NodeId graph_original(const Graph *g, NodeId id)
{
    const char *remat = g->nodes[id.i].remat;
    NodeId original = remat ? g->vals[graph_find(g, remat).i].def : id;
    return original.i ? original : id;
}

void graph_add_out(Graph *g, Val v)
{
    g->out = arena_grow(g->arena, g->out, g->nout, &g->cout, sizeof *g->out);
    g->out[g->nout++] = v;
}

bool graph_is_out(const Graph *g, Val v)
{
    for (uint32_t i = 0; i < g->nout; i++)
        if (g->out[i].i == v.i)
            return true;
    return false;
}

void graph_add_update(Graph *g, Val state, Val value)
{
    g->update = arena_grow(g->arena, g->update, g->nupdate, &g->cupdate, sizeof *g->update);
    g->update[g->nupdate++] = (Update){state, value};
}

bool *graph_ends(const Graph *g, Arena *a)
{
    bool *end = NEW(a, bool, g->nvals);
    for (uint32_t i = 0; i < g->nout; i++)
        end[graph_root(g, g->out[i]).i] = true;
    for (uint32_t i = 0; i < g->nupdate; i++)
        end[graph_root(g, g->update[i].value).i] = true;
    return end;
}

uint32_t *graph_uses(const Graph *g, Arena *a)
{
    uint32_t *uses = NEW(a, uint32_t, g->nvals);
    for (uint32_t k = 0; k < g->norder; k++) {
        const Node *n = &g->nodes[g->order[k].i];
        for (int i = 0; i < n->nin; i++)
            uses[n->in[i].i]++;
    }
    for (uint32_t i = 0; i < g->nout; i++)
        uses[g->out[i].i]++;
    for (uint32_t i = 0; i < g->nupdate; i++)
        uses[g->update[i].value.i]++;
    uses[0] = 0;
    return uses;
}

Val graph_root(const Graph *g, Val v)
{
    const Node *n;
    while (v.i && (n = graph_def(g, v)) && (node_def(n)->traits & OPT_VIEW))
        v = n->in[0];
    return v;
}

bool graph_is_const(const Graph *g, Val v)
{
    return v.i && g->vals[v.i].kind == VAL_CONST && g->vals[v.i].data;
}

Val graph_loaded(const Graph *g, Val v)
{
    uint32_t i = 1;
    while (i < g->nvals && g->vals[i].cast_of.i != v.i)
        i++;
    return i < g->nvals ? (Val){i} : v;
}

Tensor graph_tensor(const Graph *g, Val v)
{
    /* Evaluators take Tensors of inputs and outputs alike; they never write an input. */
    return (Tensor){g->vals[v.i].type, (void *)(uintptr_t)g->vals[v.i].data};
}

int64_t *node_whole(const Node *n, const char *name)
{
    const OpDef *def = node_def(n);
    for (size_t i = 0; i < def->nattrs; i++)
        if (def->attrs[i].type == AT_I64 && strcmp(def->attrs[i].name, name) == 0)
            return (int64_t *)((char *)n->attr + def->attrs[i].off);
    return NULL;
}
