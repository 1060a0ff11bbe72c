/* tile.c -- which weight gradients are products in tiles of rows, with the update as their epilogue.
 *
 * A weight gradient that is a product (of matrices, or a convolution's) and goes into one update,
 * directly or through pointwise operators, becomes one kernel with it (ir/tile.c): the gradient has
 * no memory but for a tile.  A rule of shapes and the device, so that every budget computes the
 * same: a gradient of DeviceInfo.tile_bytes or more is made in tiles of half that size, or of a
 * sixteenth of it if that is more.  Gradients that someone else reads, such as those the user wants to see,
 * stay whole. */
#include "../ir/attrs.h"
#include "instance.h"
#include <string.h>

enum {
    ROW_UNIT = 16,       /* rows of a tile: multiples keep every operand aligned */
    MAX_TILES = 16,      /* about: threads meet twice for each */
    MAX_MEMBERS = 8,
};

typedef struct {
    Graph *g;
    const uint32_t *uses;
    int64_t min_bytes;
    const Node *update;
    NodeId product, member[MAX_MEMBERS]; /* members: the pointwise ones and the update */
    int n;
    bool full;        /* there are more */
    uint32_t *size;   /* per group: its nodes */
    bool *live;       /* per value: false between kernels */
    NodeId *in_front; /* per node id: what is to run right before it, {0}: as it is */
    bool *moves;      /* per node id: it is in front of another */
} Tile;

static bool reads(const Node *n, Val v)
{
    for (int i = 0; i < n->nin; i++)
        if (n->in[i].i == v.i)
            return true;
    return false;
}

/* Can the node run as late as the update?  Only the update's own states may be read. */
static bool may_wait(const Tile *t, const Node *n, bool own)
{
    for (int i = 0; i < n->nin; i++) {
        Val r = graph_root(t->g, n->in[i]);
        bool state = t->g->vals[r.i].kind == VAL_PARAM || t->g->vals[r.i].kind == VAL_STATE;
        if (state && !(own && reads(t->update, r)))
            return false;
    }
    return true;
}

static bool is_product(const Tile *t, const Node *n)
{
    const Type *y = val_type(t->g, n->out[0]);
    if (!node_tile(n) || node_in_pieces(n) || type_bytes(y) < t->min_bytes ||
        !may_wait(t, n, false))
        return false;
    int64_t read = type_bytes(val_type(t->g, n->in[0])) + type_bytes(val_type(t->g, n->in[1]));
    return n->op == OP_matmul || 4 * read <= type_bytes(y); /* every tile rearranges those */
}

static bool is_elementwise(const Tile *t, const Node *n)
{
    unsigned traits = node_def(n)->traits;
    return (traits & (OPT_POINTWISE | OPT_VIEW)) && !(traits & OPT_RANDOM) && may_wait(t, n, true);
}

/* v and what it is computed from, as far as nobody else reads it; behind what they read. */
static void collect(Tile *t, Val v)
{
    NodeId id = t->g->vals[v.i].def;
    const Node *n = &t->g->nodes[id.i];
    if (!id.i || t->uses[v.i] != 1)
        return;
    if (is_product(t, n) && !t->product.i) {
        t->product = id;
    } else if (is_elementwise(t, n)) {
        for (int i = 0; i < n->nin; i++)
            collect(t, n->in[i]);
        t->full |= t->n == MAX_MEMBERS - 1;
        if (!t->full)
            t->member[t->n++] = id;
    }
}

/* Groups stay whole: which the fusion pass made, and the new one. */
static bool splits_group(const Tile *t)
{
    NodeId id[MAX_MEMBERS + 1] = {t->product};
    for (int i = 0; i < t->n; i++)
        id[i + 1] = t->member[i];
    for (int i = 0; i <= t->n; i++) {
        uint32_t group = t->g->nodes[id[i].i].group, here = 0;
        for (int k = 0; k <= t->n; k++)
            here += t->g->nodes[id[k].i].group == group;
        if (group && here < t->size[group])
            return true;
    }
    return false;
}

static bool is_kernel(const Tile *t, Arena *tmp)
{
    NodeId id[MAX_MEMBERS + 1] = {t->product};
    Command c;
    for (int i = 0; i < t->n; i++)
        id[i + 1] = t->member[i];
    for (int i = 0; i < t->update->nout; i++)
        t->live[t->update->out[i].i] = true;
    bool ok = lower_in_tiles(&c, tmp, t->g, id, t->n + 1, t->live, NULL);
    for (int i = 0; i < t->update->nout; i++)
        t->live[t->update->out[i].i] = false;
    return ok;
}

static void set_tile(Tile *t)
{
    Node *n = &t->g->nodes[t->product.i];
    const Type *y = val_type(t->g, n->out[0]);
    int64_t bytes = type_bytes(y) / MAX_TILES;
    bytes = bytes > t->min_bytes / 2 ? bytes : t->min_bytes / 2;
    int64_t rows = bytes / (type_bytes(y) / y->dim[0]) / ROW_UNIT * ROW_UNIT;
    *node_tile(n) = rows > ROW_UNIT ? rows : ROW_UNIT;
    n->group = ++t->g->ngroups;
    for (int i = 0; i < t->n; i++)
        t->g->nodes[t->member[i].i].group = n->group;
}

/* The product and the pointwise operators are to run right in front of the update. */
static void gather(Tile *t)
{
    NodeId last = t->product;
    for (int i = 0; i < t->n; i++) {
        t->moves[last.i] = true;
        t->in_front[t->member[i].i] = last;
        last = t->member[i];
    }
    t->size[t->g->nodes[last.i].group] = (uint32_t)t->n + 1;
}

static void reorder(const Tile *t, Arena *tmp)
{
    Graph *g = t->g;
    NodeId *order = NEW(tmp, NodeId, g->norder + 1);
    uint32_t n = 0;
    for (uint32_t k = 0; k < g->norder; k++) {
        NodeId chain[MAX_MEMBERS + 1], id = g->order[k];
        int m = 0;
        if (t->moves[id.i])
            continue;
        for (; id.i; id = t->in_front[id.i])
            chain[m++] = id;
        while (m > 0)
            order[n++] = chain[--m];
    }
    memcpy(g->order, order, n * sizeof *order);
}

static bool tile_update(Tile *t, NodeId update, Arena *tmp)
{
    t->update = &t->g->nodes[update.i];
    t->product.i = 0;
    t->n = 0;
    t->full = false;
    collect(t, t->update->in[1]); /* the gradient */
    t->member[t->n++] = update;
    if (!t->product.i || t->full || splits_group(t) || !is_kernel(t, tmp))
        return false;
    set_tile(t);
    gather(t);
    return true;
}

bool pass_tile(Graph *g, PassCtx *cx)
{
    Tile t = {.g = g, .uses = graph_uses(g, cx->tmp),
              .min_bytes = cx->opt->tile_bytes ? cx->opt->tile_bytes
                                               : step_device(cx->opt)->tile_bytes,
              .size = NEW(cx->tmp, uint32_t, g->ngroups + g->nupdate + 1),
              .live = NEW(cx->tmp, bool, g->nvals), .in_front = NEW(cx->tmp, NodeId, g->nnodes),
              .moves = NEW(cx->tmp, bool, g->nnodes)};
    for (uint32_t k = 0; k < g->norder; k++)
        t.size[g->nodes[g->order[k].i].group]++;
    for (uint32_t i = 0; i < g->nupdate; i++) {
        NodeId id = g->vals[g->update[i].value.i].def;
        bool once = id.i && (node_def(&g->nodes[id.i])->traits & OPT_ONCE);
        if (once && g->vals[g->update[i].state.i].kind == VAL_PARAM)
            cx->changed |= tile_update(&t, id, cx->tmp);
    }
    if (cx->changed)
        reorder(&t, cx->tmp);
    return true;
}

bool graph_untile(Graph *g, StepCost *cost)
{
    bool changed = false;
    for (uint32_t k = 0; k < g->norder; k++) {
        NodeId id = g->order[k];
        Node *n = &g->nodes[id.i];
        if (!node_tile(n) || !n->group || node_in_pieces(n))
            continue;
        const Type *y = val_type(g, n->out[0]);
        int64_t tile = *node_tile(n);
        n->group = 0;
        changed = true;
        if (cost && tile > 0)
            cost[id.i].c[0].scratch -= plan_align(type_bytes(y) / y->dim[0] *
                                             (tile < y->dim[0] ? tile : y->dim[0]));
    }
    return changed;
}
