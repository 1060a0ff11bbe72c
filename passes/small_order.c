/* small_order.c -- small copies of parameters at the start of the step and small updates at its end, by size.
 *
 * The updates of a network's biases and norms, and biases in 16 bits, are many calls of few kernels, which a
 * GPU runs as one launch where they stand together (codegen/cuda_batch.c).  The copies live from the start,
 * gradients until the end: a little of all. */
#include "instance.h"
#include <stdlib.h>
#include <string.h>

enum { LITTLE = 256 }; /* of the bytes of all copies, of all that is updated, one part */

typedef enum { STAYS, FIRST, LAST } Place;

typedef struct {
    uint32_t at; /* in the order */
    int64_t bytes;
} Small;

static Place place_of(const Graph *g, const Node *n)
{
    if (node_def(n)->traits & OPT_ONCE)
        return LAST;
    bool copy = n->op == OP_cast && g->vals[n->in[0].i].kind == VAL_PARAM;
    return copy && !n->remat ? FIRST : STAYS;
}

static bool is_fetched(const Graph *g, Val v)
{
    const Node *def = graph_def(g, v);
    return def && def->op == OP_fetch;
}

static bool may_move(const Graph *g, const Node *n)
{
    bool may = !n->group;
    for (int i = 0; i < n->nin; i++)
        may &= !is_fetched(g, n->in[i]);
    return may;
}

static int by_bytes(const void *a, const void *b)
{
    const Small *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* The smallest that belong there: moves[k] of those at k in the order.  Returns their number. */
static uint32_t find_small(const Graph *g, Place where, Small *u, bool *moves)
{
    uint32_t n = 0, small = 0;
    int64_t all = 0, sum = 0;
    for (uint32_t k = 0; k < g->norder; k++) {
        const Node *node = &g->nodes[g->order[k].i];
        if (place_of(g, node) != where)
            continue;
        int64_t bytes = type_bytes(val_type(g, node->out[0]));
        all += bytes;
        if (may_move(g, node))
            u[n++] = (Small){k, bytes};
    }
    qsort(u, n, sizeof *u, by_bytes);
    while (small < n && (sum += u[small].bytes) <= all / LITTLE)
        moves[u[small++].at] = true;
    return small;
}

bool small_apart(Graph *g, Arena *tmp)
{
    uint32_t n = g->norder, kept = 0;
    bool *moves = NEW(tmp, bool, n + 1);
    NodeId *old = NEW(tmp, NodeId, n + 1);
    Small *first = NEW(tmp, Small, n + 1), *last = NEW(tmp, Small, n + 1);
    uint32_t nfirst = find_small(g, FIRST, first, moves), nlast = find_small(g, LAST, last, moves);
    memcpy(old, g->order, n * sizeof *old);
    for (uint32_t i = 0; i < nfirst; i++)
        g->order[kept++] = old[first[i].at];
    for (uint32_t k = 0; k < n; k++)
        if (!moves[k])
            g->order[kept++] = old[k];
    for (uint32_t i = 0; i < nlast; i++)
        g->order[kept++] = old[last[i].at];
    return memcmp(old, g->order, n * sizeof *old) != 0;
}
