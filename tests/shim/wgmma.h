/* wgmma.h -- products of warpgroups (wgmma.mma_async) in the fiber shim. */
#ifndef CKC_WGMMA_H
#define CKC_WGMMA_H
#include "warp.h"

void wgmma_block(void); /* a block begins */
/* Does what the lanes of a warp have come to do together, one of the operations from WARP_WGMMA on. */
void wgmma_run(unsigned warp, const Lane lane[32], const unsigned char *shared, unsigned shared_bytes,
               const ShimState *state);
/* Is the memory in a result of the thread that it may not touch yet, as nobody has waited for the product? */
bool wgmma_holds(unsigned thread, const void *at, size_t bytes);
/* All threads of a block have ended: it is a fault if a product was not waited for, or if the warps of a
 * warpgroup did not do the same. */
void wgmma_end(unsigned warps);
#endif
