/* flow.c -- Dinic's maximum flow with an explicit path instead of recursion, so that deep
 * graphs are fine.
 *
 * Each phase finds levels by breadth-first search from the source and saturates the level
 * graph. O(V^2 E) at worst; on the layered networks of bound.c a handful of phases. */
#include "flow.h"
#include "remat_int.h"

#include <stdlib.h>
#include <string.h>

void flow_reset(Flow *f, int32_t nvertices)
{
    f->nvertices = nvertices;
    f->nedges = 0;
    if (nvertices > f->capvertices) {
        size_t n = (size_t)(f->capvertices = nvertices);
        f->head = mem_grow(f->head, n, sizeof *f->head);
        f->level = mem_grow(f->level, n, sizeof *f->level);
        f->it = mem_grow(f->it, n, sizeof *f->it);
        f->queue = mem_grow(f->queue, n, sizeof *f->queue);
    }
    memset(f->head, -1, sizeof *f->head * (size_t)nvertices);
}

static void push_edge(Flow *f, int32_t from, int32_t to, int64_t cap)
{
    if (f->nedges == f->capedges) {
        size_t n = (size_t)(f->capedges = f->capedges ? 2 * f->capedges : 1024);
        f->next = mem_grow(f->next, n, sizeof *f->next);
        f->to = mem_grow(f->to, n, sizeof *f->to);
        f->cap = mem_grow(f->cap, n, sizeof *f->cap);
    }
    int32_t e = f->nedges++;
    f->to[e] = to;
    f->cap[e] = cap;
    f->next[e] = f->head[from];
    f->head[from] = e;
}

int32_t flow_edge(Flow *f, int32_t from, int32_t to, int64_t cap)
{
    push_edge(f, from, to, cap);
    push_edge(f, to, from, 0);
    return f->nedges - 2;
}

static bool find_levels(Flow *f, int32_t source, int32_t sink)
{
    int32_t n = 0;
    memset(f->level, -1, sizeof *f->level * (size_t)f->nvertices);
    f->level[source] = 0;
    f->queue[n++] = source;
    for (int32_t i = 0; i < n; i++)
        for (int32_t e = f->head[f->queue[i]]; e >= 0; e = f->next[e])
            if (f->cap[e] > 0 && f->level[f->to[e]] < 0) {
                f->level[f->to[e]] = f->level[f->queue[i]] + 1;
                f->queue[n++] = f->to[e];
            }
    return f->level[sink] >= 0;
}

/* Sends flow along the path of edges; returns the position to continue from: the tail of a
 * saturated edge. */
static int32_t augment(Flow *f, const int32_t *path, int32_t n, int64_t *total)
{
    int64_t least = INT64_MAX;
    int32_t back = 0;
    for (int32_t i = 0; i < n; i++)
        least = f->cap[path[i]] < least ? f->cap[path[i]] : least;
    for (int32_t i = n - 1; i >= 0; i--) {
        f->cap[path[i]] -= least;
        f->cap[path[i] ^ 1] += least;
        if (f->cap[path[i]] == 0)
            back = i;
    }
    *total += least;
    return back;
}

static int64_t saturate(Flow *f, int32_t source, int32_t sink)
{
    int64_t total = 0;
    int32_t n = 0, at = source, *path = f->queue;
    memcpy(f->it, f->head, sizeof *f->it * (size_t)f->nvertices);
    for (;;) {
        if (at == sink) {
            n = augment(f, path, n, &total);
            at = f->to[path[n] ^ 1];
        }
        int32_t e = f->it[at];
        while (e >= 0 && !(f->cap[e] > 0 && f->level[f->to[e]] == f->level[at] + 1))
            e = f->next[e];
        f->it[at] = e;
        if (e >= 0) {
            path[n++] = e;
            at = f->to[e];
        } else if (n > 0) {
            f->level[at] = -1;
            at = f->to[path[--n] ^ 1];
        } else {
            return total;
        }
    }
}

int64_t flow_max(Flow *f, int32_t source, int32_t sink)
{
    int64_t total = 0;
    while (find_levels(f, source, sink))
        total += saturate(f, source, sink);
    return total;
}

bool flow_source_side(const Flow *f, int32_t vertex) { return f->level[vertex] >= 0; }

void flow_free(Flow *f)
{
    MEM_FREE(f->head, f->next, f->to, f->cap, f->level, f->it, f->queue);
    *f = (Flow){0};
}
