/* inline.c -- cheap forward values are made again inside the backward kernels that read them.
 *
 * A pointwise value that the backward phase reads is stored between.  If its large operands are
 * stored anyway (silu(gate) where the gradient of silu keeps gate), a clone next to each reader
 * joins the reader's kernel and the value is not stored at all.  If one large operand is read by
 * nothing else (the product in front of a bias), storing it instead of the sum costs the same and
 * lets the sum join what follows it; this is done for operators without calls only.
 * A slice of what is stored anyway is taken again, whoever reads it.
 * Latest values first, so that chains are cloned as a whole.  Linear in the uses. */
#include "fuse.h"
#include <string.h>

enum { READERS_MAX = 4, SMALL_PART = 8 };

typedef struct {
    Graph *g;
    uint32_t *forward;  /* per value: forward readers, views looked through */
    uint32_t *head;     /* per value: backward readers, as a list */
    struct { NodeId node; uint32_t next; } *reader;
    uint32_t nreader, creader;
    bool *viewed, *ends; /* per value: some backward reader sees a view of it; survives the step */
    bool *late;          /* per node: backward */
    uint32_t *before;   /* per node: clones to run in front of it, as a list through `after` */
    uint32_t *after;
} Inline;

static void add_reader(Inline *x, Val v, NodeId node)
{
    x->reader = arena_grow(x->g->arena, x->reader, x->nreader, &x->creader, sizeof *x->reader);
    x->reader[x->nreader].node = node;
    x->reader[x->nreader].next = x->head[v.i];
    x->head[v.i] = x->nreader++;
}

/* A backward view of a slice counts as the slice's reader. */
static bool views_slice(const Inline *x, const Node *n)
{
    const Node *of = is_view(n) && x->late[n - x->g->nodes] ? graph_def(x->g, n->in[0]) : NULL;
    return of && of->op == OP_slice;
}

/* The value whose bytes v shows; none for such a view. */
static Val read_value(const Inline *x, Val v)
{
    for (const Node *n; (n = graph_def(x->g, v)) && is_view(n); v = n->in[0])
        if (views_slice(x, n))
            return (Val){0};
    return v;
}

static void find_readers(Inline *x, uint32_t loss)
{
    Graph *g = x->g;
    x->nreader = 1; /* 0 ends a list */
    x->reader = arena_grow(g->arena, NULL, 0, &x->creader, sizeof *x->reader);
    for (uint32_t k = 0; k < g->norder; k++) {
        const Node *n = &g->nodes[g->order[k].i];
        x->late[g->order[k].i] = k > loss;
        for (int i = 0; i < n->nin && (!is_view(n) || views_slice(x, n)); i++) {
            Val r = is_view(n) ? n->in[i] : read_value(x, n->in[i]);
            if (k <= loss) {
                x->forward[r.i]++;
            } else if (r.i) {
                add_reader(x, r, g->order[k]);
                x->viewed[r.i] |= r.i != n->in[i].i;
            }
        }
    }
    for (uint32_t i = 0; i < g->nout; i++)
        x->ends[graph_root(g, g->out[i]).i] = true;
    for (uint32_t i = 0; i < g->nupdate; i++)
        x->ends[graph_root(g, g->update[i].value).i] = true;
}

/* Does the operator call a function? */
static bool calls(const Node *n)
{
    static const char *const call[] = {"EXP", "LOG", "TANH", "SQRT", "ERF", "POW", "SIN", "COS"};
    const char *text = node_def(n)->expr.text;
    for (size_t i = 0; text && i < sizeof call / sizeof *call; i++)
        if (strstr(text, call[i]))
            return true;
    return false;
}

/* Is storing n's operands instead of its result no loss? */
static bool worth_inlining(const Inline *x, const Node *n)
{
    Graph *g = x->g;
    int64_t count = type_count(val_type(g, n->out[0]));
    int swaps = 0;
    for (int i = 0; i < n->nin; i++) {
        Val r = graph_root(g, n->in[i]);
        const Value *v = &g->vals[r.i];
        if (v->kind != VAL_TEMP || x->head[r.i] || type_count(&v->type) * SMALL_PART <= count)
            continue; /* there anyway, or small */
        if (calls(n) || x->forward[r.i] > 1 ||
            type_bytes(&v->type) > type_bytes(val_type(g, n->out[0])))
            return false;
        swaps++;
    }
    return swaps <= 1;
}

static bool is_pointwise(const Node *n) { return node_def(n)->traits & OPT_POINTWISE; }

static bool can_inline(const Inline *x, const Node *n)
{
    Val v = n->out[0];
    int readers = 0;
    if (!(is_pointwise(n) || n->op == OP_slice) || (node_def(n)->traits & OPT_RANDOM) ||
        x->viewed[v.i] || x->ends[v.i])
        return false;
    for (uint32_t e = x->head[v.i]; e; e = x->reader[e].next) {
        const Node *r = &x->g->nodes[x->reader[e].node.i];
        bool joins = is_pointwise(r) &&
                     type_same_shape(val_type(x->g, r->out[0]), val_type(x->g, v));
        if (++readers > READERS_MAX || !(joins || n->op == OP_slice))
            return false;
    }
    return readers > 0 && worth_inlining(x, n);
}

static void inline_value(Inline *x, NodeId id)
{
    Graph *g = x->g;
    Val v = g->nodes[id.i].out[0];
    for (uint32_t e = x->head[v.i]; e; e = x->reader[e].next) {
        NodeId reader = x->reader[e].node, clone = graph_clone_node(g, id, NULL);
        Node *c = &g->nodes[clone.i], *r = &g->nodes[reader.i];
        c->remat_of.i = 0; /* part of the step, not of a plan under a budget */
        graph_rename(g, c->out[0], arena_printf(g->arena, "%s.again", g->vals[v.i].name));
        for (int i = 0; i < r->nin; i++)
            if (r->in[i].i == v.i)
                r->in[i] = c->out[0];
        for (int i = 0; i < c->nin; i++) {
            Val w = graph_root(g, c->in[i]);
            add_reader(x, w, clone);
            x->viewed[w.i] |= w.i != c->in[i].i;
        }
        x->after[clone.i] = x->before[reader.i];
        x->before[reader.i] = clone.i;
    }
    x->head[v.i] = 0;
}

static void emit(const Inline *x, NodeId id)
{
    Graph *g = x->g;
    for (uint32_t c = x->before[id.i]; c; c = x->after[c])
        emit(x, (NodeId){c});
    g->order = arena_grow(g->arena, g->order, g->norder, &g->corder, sizeof *g->order);
    g->order[g->norder++] = id;
}

void inline_cheap(Graph *g, Arena *tmp, uint32_t loss)
{
    uint32_t n = g->norder, nodes = g->nnodes + READERS_MAX * g->norder;
    Inline x = {.g = g, .forward = NEW(tmp, uint32_t, g->nvals),
                .head = NEW(tmp, uint32_t, g->nvals), .viewed = NEW(tmp, bool, g->nvals),
                .ends = NEW(tmp, bool, g->nvals), .late = NEW(tmp, bool, g->nnodes),
                .before = NEW(tmp, uint32_t, nodes),
                .after = NEW(tmp, uint32_t, nodes)};
    NodeId *order = NEW(tmp, NodeId, n + 1);
    find_readers(&x, loss);
    for (uint32_t k = loss; k-- > 0;)
        if (can_inline(&x, &g->nodes[g->order[k].i]))
            inline_value(&x, g->order[k]);
    memcpy(order, g->order, n * sizeof *order);
    g->norder = 0;
    for (uint32_t k = 0; k < n; k++)
        emit(&x, order[k]);
}
