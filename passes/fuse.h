/* fuse.h -- what prepares the graph for fusion (inline.c, piece.c). */
#ifndef CKC_FUSE_H
#define CKC_FUSE_H
#include "passes.h"

enum { MAX_UNIT = 128 }; /* nodes of a kernel */

/* Backward readers of cheap forward values get clones of their own, recorded in info->factor where
 * the reader is the product of a weight gradient.  loss: its position. */
void inline_cheap(Graph *g, PassCtx *cx, uint32_t loss);

/* Products of weight gradients with large factors are made in pieces, as one group with the nodes
 * from `first` on that stand in front of them: what inline_cheap made a factor of.  Where that is no
 * kernel, the product reads the stored value. */
void group_pieces(Graph *g, PassCtx *cx, uint32_t first);
int64_t factor_bytes(const StepOptions *o); /* what is large */

static inline bool is_view(const Node *n) { return node_def(n)->traits & OPT_VIEW; }
#endif
