/* fuse.h -- declarations shared by the passes inline, split and fuse. */
#ifndef CKC_FUSE_H
#define CKC_FUSE_H
#include "passes.h"

enum { MAX_UNIT = 128 }; /* most nodes of a kernel */

int64_t factor_bytes(const StepOptions *o); /* size from which on a factor of a product is not stored */
/* Position of the loss in order; norder: there is none. */
uint32_t loss_position(const Graph *g, const StepInfo *info);
/* Puts the slices that a value is cut into in front of their first readers; loss: as of loss_position(). */
void delay_slices(Graph *g, uint32_t loss, Arena *tmp);

static inline bool is_view(const Node *n) { return node_def(n)->traits & OPT_VIEW; }
#endif
