/* wgmma.h -- products of warpgroups (wgmma.mma_async) in the fiber shim. */
#ifndef CKC_WGMMA_H
#define CKC_WGMMA_H
#include "warp.h"

void wgmma_block(void); /* begins */
/* What the lanes of a warp come to do together, from WARP_WGMMA on. */
void wgmma_run(unsigned warp, const Lane lane[32], const unsigned char *shared, unsigned shared_bytes,
               const ShimState *state);
/* May the thread not touch that yet, as a product that nobody has waited for writes it? */
bool wgmma_holds(unsigned thread, const void *at, size_t bytes);
/* All threads have ended: has somebody waited for every product, and did whole warpgroups make them? */
void wgmma_end(unsigned warps);
#endif
