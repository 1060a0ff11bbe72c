/* delay_slices.c -- the slices that a value is cut into stand in front of their first readers.
 *
 * They can join these then, such as the parts of a gradient of all time steps, each of which a step far
 * behind adds to its own.  All of them take no fewer bytes than the value, which lives longer for it. */
#include "fuse.h"

typedef struct {
    Graph *g;
    bool *late; /* per node: it is such a slice, or a view of one, and not in the order yet */
} Late;

/* Appends a node to the order, late operands in front of it. */
static void append(Late *x, NodeId id)
{
    const Node *n = &x->g->nodes[id.i];
    for (int i = 0; i < n->nin; i++) {
        NodeId d = x->g->vals[n->in[i].i].def;
        if (x->late[d.i]) {
            x->late[d.i] = false;
            append(x, d);
        }
    }
    x->g->order[x->g->norder++] = id;
}

/* Is n one of the slices that a computed value is cut into, which nothing else reads? */
static bool is_cut(const Graph *g, const Node *n, const int64_t *cut, const bool *ends)
{
    Val r = graph_root(g, n->in[0]);
    return g->vals[r.i].def.i && !ends[r.i] && !ends[n->out[0].i] && cut[r.i] >= type_count(val_type(g, r));
}

/* Is the first reader of the node at k in the same phase, and is neither in a group? */
static bool joins(const Graph *g, uint32_t k, uint32_t loss, const uint32_t *first)
{
    uint32_t reader = first[g->nodes[g->order[k].i].out[0].i];
    return reader && (reader <= loss) == (k <= loss) && !g->nodes[g->order[k].i].group &&
           !g->nodes[g->order[reader].i].group;
}

void delay_slices(Graph *g, uint32_t loss, Arena *tmp)
{
    Late x = {g, NEW(tmp, bool, g->nnodes + 1)};
    const bool *ends = graph_ends(g, tmp);
    uint32_t n = g->norder, *first = NEW(tmp, uint32_t, g->nvals);
    int64_t *cut = NEW(tmp, int64_t, g->nvals); /* elements of its slices; -1: something else reads it */
    for (uint32_t k = n; k-- > 0;) {
        const Node *node = &g->nodes[g->order[k].i];
        for (int i = 0; i < node->nin && !is_view(node); i++) {
            uint32_t r = graph_root(g, node->in[i]).i;
            int64_t part = node->op == OP_slice ? type_count(val_type(g, node->out[0])) : -1;
            cut[r] = part < 0 || cut[r] < 0 ? -1 : cut[r] + part;
            first[r] = k;
        }
    }
    for (uint32_t k = 0; k < n; k++) {
        const Node *node = &g->nodes[g->order[k].i];
        x.late[g->order[k].i] = node->op == OP_slice ? is_cut(g, node, cut, ends) && joins(g, k, loss, first)
                                                     : is_view(node) && x.late[g->vals[node->in[0].i].def.i];
    }
    const NodeId *order = graph_take_order(g, tmp);
    for (uint32_t k = 0; k < n; k++)
        if (!x.late[order[k].i])
            append(&x, order[k]);
}
