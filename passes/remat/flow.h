/* flow.h -- maximum flow; see flow.c. */
#ifndef CKC_REMAT_FLOW_H
#define CKC_REMAT_FLOW_H
#include <stdbool.h>
#include <stdint.h>

typedef struct {
    int32_t nvertices, nedges, capvertices, capedges;
    int32_t *head;      /* per vertex: first edge, -1 = none */
    int32_t *next, *to; /* per edge; edge e and e ^ 1 are each other's reverse */
    int64_t *cap;       /* residual capacity per edge */
    int32_t *level, *it, *queue;
} Flow;

#define FLOW_INF ((int64_t)1 << 62)

void flow_reset(Flow *f, int32_t nvertices);
int32_t flow_edge(Flow *f, int32_t from, int32_t to, int64_t cap); /* returns the edge's number */
int64_t flow_max(Flow *f, int32_t source, int32_t sink);
/* Is the vertex on the source side of the minimum cut that flow_max ended with? */
bool flow_source_side(const Flow *f, int32_t vertex);
void flow_free(Flow *f);
#endif
