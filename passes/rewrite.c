/* rewrite.c -- the sweep behind recognise and simplify: substitution, rules, common subexpressions.
 *
 * The schedule is emptied and refilled in order; each node's operands are replaced by what their
 * values became, then rules may replace the node, then an identical earlier node may. */
#include "rewrite.h"
#include <string.h>
#include <xxhash.h>

const Node *rewrite_def(const Rewrite *rw, Val v, Op op)
{
    const Node *n = v.i ? graph_def(rw->g, v) : NULL;
    return n && n->op == op ? n : NULL;
}

uint32_t rewrite_uses(const Rewrite *rw, Val v) { return v.i < rw->nuses ? rw->uses[v.i] : UINT32_MAX; }

const Node *rewrite_reader(const Rewrite *rw, Val v, uint32_t i)
{
    if (v.i == 0 || v.i >= rw->nuses || i >= rw->nreaders[v.i])
        return NULL;
    return &rw->g->nodes[rw->readers[v.i][i].i];
}

bool rewrite_once(const Rewrite *rw, Val v) { return rewrite_uses(rw, v) == 1; }

bool rewrite_scalar(const Rewrite *rw, Val v, double *x)
{
    const Node *made = graph_def(rw->g, v);
    if (made && (made->op == OP_expand || made->op == OP_reshape || made->op == OP_cast)) {
        char bytes[8] = {0};
        Tensor one = {type_scalar(val_type(rw->g, v)->dt), bytes};
        TRY(rewrite_scalar(rw, made->in[0], x));
        tensor_set_f(&one, 0, *x);
        *x = tensor_f(&one, 0);
        return true;
    }
    if (!graph_is_const(rw->g, v))
        return false;
    Tensor t = graph_tensor(rw->g, v);
    int64_t n = type_count(&t.type);
    if (n < 1)
        return false;
    *x = tensor_f(&t, 0);
    for (int64_t i = 0; i < n; i++) /* *x may round an integer */
        if (tensor_f(&t, i) != *x || tensor_i(&t, i) != int_of(*x))
            return false;
    return true;
}

typedef struct {
    Rewrite rw;
    Val *subst;
    uint32_t nsubst;
    uint32_t *table, mask; /* hash of (op, operands, attributes) -> node id */
    bool changed;
} Sweep;

static Val mapped(const Sweep *s, Val v) { return v.i < s->nsubst ? s->subst[v.i] : v; }

static bool same_node(const Node *a, const Node *b)
{
    return nodes_alike(a, b) && memcmp(a->in, b->in, (size_t)a->nin * sizeof *a->in) == 0;
}

/* The earlier node equal to n, or n's own id after entering it. */
static uint32_t intern(Sweep *s, uint32_t id)
{
    const Node *n = &s->rw.g->nodes[id];
    if (node_def(n)->traits & (OPT_RANDOM | OPT_ONCE))
        return id;
    uint64_t h = XXH64(n->in, (size_t)n->nin * sizeof *n->in, (uint64_t)n->op);
    if (n->attr)
        h = XXH64(n->attr, node_def(n)->attr_size, h);
    uint32_t i = (uint32_t)h & s->mask;
    for (; s->table[i]; i = (i + 1) & s->mask)
        if (same_node(&s->rw.g->nodes[s->table[i]], n))
            return s->table[i];
    s->table[i] = id;
    return id;
}

/* Constants of the same type and bytes are one: exporters write a mask once per layer. */
static void merge_constants(Sweep *s, Arena *tmp)
{
    const Graph *g = s->rw.g;
    uint32_t mask = 63;
    while (mask < 2 * g->nvals)
        mask = mask * 2 + 1;
    uint32_t *table = NEW(tmp, uint32_t, mask + 1);
    for (uint32_t v = 1; v < g->nvals; v++) {
        if (!graph_is_const(g, (Val){v}) || !s->rw.uses[v])
            continue;
        const Value *x = &g->vals[v];
        size_t size = (size_t)type_bytes(&x->type);
        uint32_t i = (uint32_t)XXH64(x->data, size, (uint64_t)x->type.dt) & mask;
        for (; table[i]; i = (i + 1) & mask) {
            const Value *y = &g->vals[table[i]];
            if (type_equal(&x->type, &y->type) && memcmp(x->data, y->data, size) == 0)
                break;
        }
        if (table[i]) {
            s->subst[v].i = table[i];
            s->changed = true;
        } else {
            table[i] = v;
        }
    }
}

/* Is v a state, or a view of one, that the step overwrites? */
static bool is_updated(const Graph *g, Val v)
{
    Val root = graph_root(g, v);
    for (uint32_t i = 0; i < g->nupdate; i++)
        if (g->update[i].state.i == root.i)
            return true;
    return false;
}

/* Is v, or a view of it, an output, or read by an update?  A state that the step overwrites cannot take its
 * place: the output would be the new state, and of two updates that read each other's states none could come
 * first. */
static bool outlives_states(const Rewrite *rw, Val v)
{
    bool outlives = graph_is_out(rw->g, v);
    const Node *n;
    for (uint32_t i = 0; !outlives && (n = rewrite_reader(rw, v, i)); i++) {
        unsigned traits = node_def(n)->traits;
        outlives = (traits & OPT_ONCE) || ((traits & OPT_VIEW) && outlives_states(rw, n->out[0]));
    }
    return outlives;
}

static Val apply_rules(Sweep *s, Rule *const *rules, uint32_t id)
{
    const Graph *g = s->rw.g;
    for (; *rules; rules++) {
        Node n = g->nodes[id];
        Val v = (*rules)(&s->rw, &n);
        if (v.i && type_equal(val_type(g, v), val_type(g, n.out[0])) &&
            !(is_updated(g, v) && outlives_states(&s->rw, n.out[0])))
            return v;
    }
    return (Val){0};
}

void rewrite_name(Graph *g, Val old, Val v)
{
    const char *name = g->vals[old.i].name;
    graph_rename(g, old, arena_printf(g->arena, "%s.was", name));
    graph_rename(g, v, name);
}

void rewrite_ends(Graph *g, const Val *as)
{
    for (uint32_t i = 0; i < g->nout; i++)
        g->out[i] = rewrite_as(as, g->out[i]);
    for (uint32_t i = 0; i < g->nupdate; i++)
        g->update[i].value = rewrite_as(as, g->update[i].value);
}

static void replace_outputs(Sweep *s)
{
    Graph *g = s->rw.g;
    for (uint32_t i = 0; i < g->nout; i++) {
        Val old = g->out[i], v = mapped(s, old);
        if (v.i != old.i && v.i < s->nsubst && g->vals[v.i].kind == VAL_TEMP && !graph_is_out(g, v))
            rewrite_name(g, old, v);
        g->out[i] = v;
    }
}

static void visit(Sweep *s, Rule *const *rules, bool cse, NodeId id)
{
    Graph *g = s->rw.g;
    Node *n = &g->nodes[id.i];
    for (int i = 0; i < n->nin; i++)
        n->in[i] = mapped(s, n->in[i]);
    Val v = apply_rules(s, rules, id.i);
    if (v.i) {
        Val old = g->nodes[id.i].out[0];
        if (v.i >= s->nsubst)
            rewrite_name(g, old, v);
        s->subst[old.i] = v;
        s->changed = true;
        return;
    }
    uint32_t same = cse ? intern(s, id.i) : id.i;
    n = &g->nodes[id.i];
    if (same != id.i) {
        for (int i = 0; i < n->nout; i++)
            s->subst[n->out[i].i] = g->nodes[same].out[i];
        s->changed = true;
        return;
    }
    graph_schedule(g, id);
}

static void find_readers(Rewrite *rw, Arena *tmp)
{
    const Graph *g = rw->g;
    uint32_t *count = NEW(tmp, uint32_t, rw->nuses);
    NodeId **readers = NEW(tmp, NodeId *, rw->nuses);
    for (uint32_t v = 1; v < rw->nuses; v++)
        readers[v] = NEW(tmp, NodeId, rw->uses[v]);
    for (uint32_t k = 0; k < g->norder; k++) {
        const Node *n = &g->nodes[g->order[k].i];
        for (int i = 0; i < n->nin; i++)
            if (n->in[i].i)
                readers[n->in[i].i][count[n->in[i].i]++] = g->order[k];
    }
    rw->nreaders = count;
    rw->readers = readers;
}

static bool sweep(Graph *g, Arena *tmp, Rule *const *rules, bool cse)
{
    uint32_t n = g->norder;
    Sweep s = {.rw = {g, graph_uses(g, tmp), g->nvals}, .subst = NEW(tmp, Val, g->nvals),
               .nsubst = g->nvals, .mask = 1023};
    for (uint32_t i = 0; i < g->nvals; i++)
        s.subst[i].i = i;
    find_readers(&s.rw, tmp);
    if (cse)
        merge_constants(&s, tmp);
    while (s.mask < 4 * n)
        s.mask = s.mask * 2 + 1;
    s.table = NEW(tmp, uint32_t, s.mask + 1);
    const NodeId *old = graph_take_order(g, tmp);
    for (uint32_t k = 0; k < n && !g->diag->failed; k++)
        visit(&s, rules, cse, old[k]);
    replace_outputs(&s);
    for (uint32_t i = 0; i < g->nupdate; i++)
        g->update[i].value = mapped(&s, g->update[i].value);
    return s.changed;
}

void graph_dce(Graph *g, Arena *tmp)
{
    bool *live = NEW(tmp, bool, g->nvals);
    for (uint32_t i = 0; i < g->nout; i++)
        live[g->out[i].i] = true;
    for (uint32_t i = 0; i < g->nupdate; i++)
        live[g->update[i].value.i] = true;
    uint32_t keep = g->norder;
    for (uint32_t k = g->norder; k-- > 0;) {
        const Node *n = &g->nodes[g->order[k].i];
        bool used = false;
        for (int i = 0; i < n->nout; i++)
            used |= live[n->out[i].i];
        if (!used)
            continue;
        for (int i = 0; i < n->nin; i++)
            live[n->in[i].i] = true;
        g->order[--keep] = g->order[k];
    }
    g->norder -= keep;
    memmove(g->order, g->order + keep, g->norder * sizeof *g->order);
}

/* Is the node too early: an operand is not made yet, or other nodes have yet to read what it overwrites? */
static bool is_early(const Graph *g, const Node *n, const Val *overwrites, const uint32_t *readers,
                     const bool *made)
{
    for (int i = 0; i < n->nin; i++)
        if (g->vals[n->in[i].i].def.i && !made[n->in[i].i])
            return true;
    for (int o = 0; o < n->nout; o++) {
        uint32_t state = overwrites[n->out[o].i].i, own = 0;
        for (int i = 0; i < n->nin; i++)
            own += graph_root(g, n->in[i]).i == state;
        if (state && (node_def(n)->traits & OPT_ONCE) && readers[state] > own)
            return true;
    }
    return false;
}

void graph_delay_updates(Graph *g, Arena *tmp)
{
    Val *overwrites = NEW(tmp, Val, g->nvals);
    uint32_t *readers = NEW(tmp, uint32_t, g->nvals), n = g->norder, nheld = 0;
    bool *made = NEW(tmp, bool, g->nvals);
    NodeId *held = NEW(tmp, NodeId, n + 1);
    const NodeId *old = graph_take_order(g, tmp);
    for (uint32_t i = 0; i < g->nupdate; i++)
        overwrites[g->update[i].value.i] = g->update[i].state;
    for (uint32_t k = 0; k < n; k++)
        for (int i = 0; i < g->nodes[old[k].i].nin; i++)
            readers[graph_root(g, g->nodes[old[k].i].in[i]).i]++;
    for (uint32_t k = 0; k < n; k++) {
        held[nheld++] = old[k];
        for (uint32_t h = 0; h < nheld; h++) {
            const Node *node = &g->nodes[held[h].i];
            if (is_early(g, node, overwrites, readers, made))
                continue;
            for (int i = 0; i < node->nin; i++)
                readers[graph_root(g, node->in[i]).i]--;
            for (int o = 0; o < node->nout; o++)
                made[node->out[o].i] = true;
            graph_schedule(g, held[h]);
            memmove(held + h, held + h + 1, (--nheld - h) * sizeof *held);
            h = UINT32_MAX; /* start over: others may have waited for it */
        }
    }
}

bool rewrite_run(Graph *g, Arena *tmp, Rule *const *rules, bool cse, bool *changed)
{
    for (int round = 0; round < 8; round++) {
        bool any = sweep(g, tmp, rules, cse);
        graph_dce(g, tmp);
        *changed |= any;
        if (!any || g->diag->failed)
            break;
    }
    if (*changed && g->nupdate && !g->diag->failed)
        graph_delay_updates(g, tmp);
    return !g->diag->failed;
}
