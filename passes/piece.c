/* piece.c -- which weight gradients are split-K: dW = X^T dY summed over blocks of rows, of which what makes
 * X is the prologue, recomputed for each block (ir/piece.c).
 *
 * A rule of shapes and the device, so that every budget computes the same: a factor of
 * DeviceInfo.piece_bytes or more is taken in pieces; a piece is PIECE_FACTORS times that of both
 * factors, or twice what the product writes if that is more: each further piece writes it anew. */
#include "../ir/attrs.h"
#include "fuse.h"
#include "instance.h"
#include <string.h>

enum { PIECE_FACTORS = 4 };

int64_t factor_bytes(const StepOptions *o)
{
    return o->piece_bytes ? o->piece_bytes : step_device(o)->piece_bytes;
}

/* Rows of dimension 0 at a time; all of them if that is one piece. */
static int64_t rows_of_piece(const Graph *g, const Node *n, const StepOptions *o)
{
    int64_t bytes = 0, target = factor_bytes(o) * PIECE_FACTORS;
    int64_t out = node_adds_pieces(n) ? 2 * type_bytes(val_type(g, n->out[0])) : 0;
    int64_t rows = val_type(g, n->in[0])->dim[0];
    for (int i = 0; i < 2; i++)
        bytes += type_bytes(val_type(g, n->in[i]));
    int64_t pieces = bytes / (out > target ? out : target);
    return pieces > 1 ? (rows + pieces - 1) / pieces : rows;
}

/* A window of one position has no layouts to rearrange. */
static bool has_window(const Node *n, const Type *w)
{
    bool window = false;
    for (int i = 2; n->op == OP_conv_bwd_weights && i < w->rank; i++)
        window |= w->dim[i] > 1;
    return window;
}

/* Bytes the kernel of these nodes hands over and adds in; < 0: they are none. */
static int64_t own_bytes(const Graph *g, const NodeId *id, uint32_t n)
{
    Arena a = {0};
    Command c;
    bool ok = lower_in_pieces(&c, &a, g, id, (int)n, NULL);
    int64_t bytes = ok ? kernel_workspace_bytes(&c.k) : -1;
    arena_free(&a);
    return bytes;
}

/* May the product, the last of made + 1 nodes, be made in pieces with those in front of it? */
static bool in_pieces(Graph *g, const StepOptions *o, const NodeId *id, uint32_t made)
{
    Node *n = &g->nodes[id[made].i];
    int64_t *piece = node_piece(n), rows = rows_of_piece(g, n, o);
    bool several = rows < val_type(g, n->in[0])->dim[0];
    *piece = made || (several && has_window(n, val_type(g, n->out[0]))) ? rows : 0;
    if (*piece && made < MAX_UNIT && own_bytes(g, id, made + 1) >= 0)
        return true;
    *piece = 0;
    return false;
}

/* How many nodes at the end of order were made for n. */
static uint32_t made_for(const Graph *g, const Node *n, uint32_t first)
{
    uint32_t made = 0;
    bool any = false;
    for (int i = 0; i < n->nin; i++)
        any |= g->vals[n->in[i].i].def.i >= first;
    while (any && made < g->norder && g->order[g->norder - 1 - made].i >= first)
        made++;
    return made;
}

static bool has_factor(const StepInfo *info, NodeId product)
{
    for (uint32_t i = 0; i < info->nfactor; i++)
        if (info->factor[i].product.i == product.i)
            return true;
    return false;
}

/* Its factors come from memory after all. */
static void store_factors(Graph *g, StepInfo *info, NodeId product)
{
    for (uint32_t i = info->nfactor; i-- > 0;) {
        PieceFactor f = info->factor[i];
        if (f.product.i != product.i)
            continue;
        g->nodes[product.i].in[f.operand] = f.stored;
        info->factor[i] = info->factor[--info->nfactor];
    }
}

void group_pieces(Graph *g, PassCtx *cx, uint32_t first)
{
    uint32_t n = g->norder;
    NodeId *order = NEW(cx->tmp, NodeId, n + 1);
    memcpy(order, g->order, n * sizeof *order);
    g->norder = 0;
    for (uint32_t k = 0; k < n; k++) {
        Node *node = &g->nodes[order[k].i];
        uint32_t made = has_factor(cx->info, order[k]) ? made_for(g, node, first) : 0;
        g->order[g->norder++] = order[k];
        if (!node_piece(node))
            continue;
        const NodeId *id = &g->order[g->norder - 1 - made];
        if (!in_pieces(g, cx->opt, id, made)) {
            store_factors(g, cx->info, order[k]);
            g->norder -= made;
            g->order[g->norder - 1] = order[k];
        } else if (made > 0) {
            g->ngroups++;
            for (uint32_t i = 0; i <= made; i++)
                g->nodes[id[i].i].group = g->ngroups;
        }
    }
}

/* The product alone, whole, its factor from memory.  Operands and attributes may be shared with the
 * graph that this one was copied from: both are new. */
static void store_factor(Graph *g, const PieceFactor *f)
{
    Node *n = &g->nodes[f->product.i];
    size_t size = node_def(n)->attr_size;
    void *attr = arena_alloc(g->arena, 1, size);
    Val *in = NEW(g->arena, Val, n->nin);
    n->attr = memcpy(attr, n->attr, size);
    n->in = memcpy(in, n->in, (size_t)n->nin * sizeof *in);
    n->in[f->operand] = f->stored;
    n->group = 0;
    *node_piece(n) = 0;
}

bool graph_store_factors(Graph *g, const StepInfo *info, StepCost *cost)
{
    NodeId *product = NEW(g->arena, NodeId, g->ngroups + 1); /* by group */
    uint32_t n = 0;
    for (uint32_t i = 0; i < info->nfactor; i++)
        product[g->nodes[info->factor[i].product.i].group] = info->factor[i].product;
    for (uint32_t k = 0, members; k < g->norder; k += members) {
        const NodeId *id = &g->order[k];
        NodeId p = product[g->nodes[id->i].group];
        for (members = 1; p.i && id[members - 1].i != p.i;)
            members++;
        if (p.i && cost) {
            int64_t own = own_bytes(g, id, members);
            cost[p.i] = cost[id->i];
            cost[p.i].c[0].scratch -= own;
        }
        g->order[n++] = id[members - 1];
    }
    g->norder = n;
    for (uint32_t i = 0; i < info->nfactor; i++)
        store_factor(g, &info->factor[i]);
    return info->nfactor > 0;
}
