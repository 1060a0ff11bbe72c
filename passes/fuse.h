/* fuse.h -- what prepares the graph for fusion (inline.c). */
#ifndef CKC_FUSE_H
#define CKC_FUSE_H
#include "passes.h"

/* Backward readers of cheap forward values get clones of their own.  loss: its position. */
void inline_cheap(Graph *g, Arena *tmp, uint32_t loss);

static inline bool is_view(const Node *n) { return node_def(n)->traits & OPT_VIEW; }
#endif
