/* small_order.c -- moves small casts of parameters to the start of the step, small updates to its end, each
 * by size, and puts updates of running statistics together.
 *
 * The updates of a network's biases and norms, and casts of biases to 16 bits, are many calls of few kernels,
 * which a GPU runs as one launch if they stand together (codegen/cuda_batch.c).  The casts live from the
 * start and the gradients until the end, which takes few bytes.  The kernels that update running statistics
 * are put in front of the first update of a parameter; not with micro-batches, each of which updates them. */
#include "instance.h"
#include <stdlib.h>
#include <string.h>

enum { LITTLE = 256 }; /* at most 1 / LITTLE of the bytes of all casts, of all updates, moves */

typedef enum { STAYS, FIRST, LAST } Place;

typedef struct {
    uint32_t at; /* position in the order */
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

/* Lists the smallest nodes that belong `where` in u, and sets moves[k] for their positions k.  Returns their
 * number. */
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

/* ---- running statistics ------------------------------------------------------------------------ */

/* A kernel whose results nothing reads in this step. */
typedef struct {
    uint32_t at, n; /* position of its first node in the order, number of nodes */
    int64_t bytes;
} Statistic;

/* Per value: a node of another kernel reads it, or it is an output of the step. */
static bool *read_elsewhere(const Graph *g, Arena *tmp)
{
    bool *read = NEW(tmp, bool, g->nvals + 1);
    for (uint32_t k = 0; k < g->norder; k++) {
        const Node *n = &g->nodes[g->order[k].i];
        for (int i = 0; i < n->nin; i++) {
            Val v = graph_root(g, n->in[i]);
            const Node *def = graph_def(g, v);
            read[v.i] |= !def || !def->group || def->group != n->group;
        }
    }
    for (uint32_t i = 0; i < g->nout; i++)
        read[graph_root(g, g->out[i]).i] = true;
    return read;
}

static bool is_statistic(const Graph *g, const bool *read, const bool *updates, Statistic s)
{
    bool any = false;
    for (uint32_t k = s.at; k < s.at + s.n; k++) {
        const Node *n = &g->nodes[g->order[k].i];
        if (!n->group || n->remat || (node_def(n)->traits & OPT_ONCE))
            return false;
        for (int i = 0; i < n->nout; i++) {
            if (n->out[i].i && read[n->out[i].i])
                return false;
            any |= updates[n->out[i].i];
        }
        for (int i = 0; i < n->nin; i++)
            if (n->in[i].i && (is_fetched(g, n->in[i]) || type_bytes(val_type(g, n->in[i])) > s.bytes))
                return false;
    }
    return any;
}

static int by_kernel(const void *a, const void *b)
{
    const Statistic *x = a, *y = b;
    if (x->n != y->n)
        return x->n < y->n ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Lists the statistics' kernels before position `end` in s, sorted so that like ones stand together, and sets
 * moves[k] for the positions of their nodes.  Returns their number; s has room for one per node. */
static uint32_t find_statistics(const Graph *g, uint32_t end, Statistic *s, bool *moves, Arena *tmp)
{
    const bool *read = read_elsewhere(g, tmp);
    bool *updates = NEW(tmp, bool, g->nvals + 1);
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->nupdate; i++)
        updates[g->update[i].value.i] = true;
    for (uint32_t k = 0, next; k < end; k = next) {
        const Node *first = &g->nodes[g->order[k].i];
        for (next = k + 1; next < end && first->group && g->nodes[g->order[next].i].group == first->group;)
            next++;
        Statistic one = {k, next - k, type_bytes(val_type(g, g->nodes[g->order[next - 1].i].out[0]))};
        if (is_statistic(g, read, updates, one))
            s[n++] = one;
    }
    qsort(s, n, sizeof *s, by_kernel);
    for (uint32_t i = 0; i < n; i++)
        memset(moves + s[i].at, true, s[i].n * sizeof *moves);
    return n;
}

/* Appends those of the nodes [from, to) of the old order that do not move to the first `kept` nodes of g's
 * order; returns the new number. */
static uint32_t append(Graph *g, uint32_t kept, const NodeId *old, const bool *moves, uint32_t from,
                       uint32_t to)
{
    for (uint32_t k = from; k < to; k++)
        if (!moves[k])
            g->order[kept++] = old[k];
    return kept;
}

static uint32_t first_update(const Graph *g)
{
    uint32_t k = 0;
    while (k < g->norder && !(node_def(&g->nodes[g->order[k].i])->traits & OPT_ONCE))
        k++;
    return k;
}

bool small_apart(Graph *g, bool micro, Arena *tmp)
{
    uint32_t n = g->norder, kept = 0, update = first_update(g);
    bool *moves = NEW(tmp, bool, n + 1);
    Statistic *statistic = NEW(tmp, Statistic, n + 1);
    NodeId *old = NEW(tmp, NodeId, n + 1);
    Small *first = NEW(tmp, Small, n + 1), *last = NEW(tmp, Small, n + 1);
    uint32_t nfirst = find_small(g, FIRST, first, moves), nlast = find_small(g, LAST, last, moves);
    uint32_t nstatistic = micro ? 0 : find_statistics(g, update, statistic, moves, tmp);
    memcpy(old, g->order, n * sizeof *old);
    for (uint32_t i = 0; i < nfirst; i++)
        g->order[kept++] = old[first[i].at];
    kept = append(g, kept, old, moves, 0, update);
    for (uint32_t i = 0; i < nstatistic; i++)
        for (uint32_t j = 0; j < statistic[i].n; j++)
            g->order[kept++] = old[statistic[i].at + j];
    kept = append(g, kept, old, moves, update, n);
    for (uint32_t i = 0; i < nlast; i++)
        g->order[kept++] = old[last[i].at];
    return memcmp(old, g->order, n * sizeof *old) != 0;
}
