/* update_order.c -- small updates at the end of the step, those of one size together.
 *
 * The updates of a network's biases and norms are many calls of few kernels, which a GPU runs as one launch
 * where they stand together (codegen/cuda_batch.c).  Their gradients live until then: a little of all. */
#include "instance.h"
#include <stdlib.h>
#include <string.h>

enum { LITTLE = 256 }; /* of the bytes of all that is updated, one part */

typedef struct {
    uint32_t at; /* in the order */
    int64_t bytes;
} Small;

static bool fetches_state(const Graph *g, const Node *n)
{
    bool fetches = false;
    for (int i = 0; i < n->nin && !fetches; i++) {
        const Node *def = graph_def(g, n->in[i]);
        fetches = def && def->op == OP_fetch;
    }
    return fetches;
}

static int by_bytes(const void *a, const void *b)
{
    const Small *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

bool updates_last(Graph *g, Arena *tmp)
{
    uint32_t n = g->norder, nupdate = 0, last = 0, kept = 0;
    int64_t all = 0, sum = 0;
    Small *u = NEW(tmp, Small, n + 1);
    bool *moves = NEW(tmp, bool, n + 1);
    NodeId *old = NEW(tmp, NodeId, n + 1);
    for (uint32_t k = 0; k < n; k++) {
        const Node *node = &g->nodes[g->order[k].i];
        if (!(node_def(node)->traits & OPT_ONCE))
            continue;
        int64_t bytes = type_bytes(val_type(g, node->out[0]));
        all += bytes;
        if (!node->group && !fetches_state(g, node))
            u[nupdate++] = (Small){k, bytes};
    }
    qsort(u, nupdate, sizeof *u, by_bytes);
    while (last < nupdate && (sum += u[last].bytes) <= all / LITTLE)
        moves[u[last++].at] = true;
    memcpy(old, g->order, n * sizeof *old);
    for (uint32_t k = 0; k < n; k++)
        if (!moves[k])
            g->order[kept++] = old[k];
    for (uint32_t i = 0; i < last; i++)
        g->order[kept + i] = old[u[i].at];
    return memcmp(old, g->order, n * sizeof *old) != 0;
}
