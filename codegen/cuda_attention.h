/* cuda_attention.h -- attention and its gradients as CUDA C in tiles (prelude/attention_tile.h). */
#ifndef CKC_CUDA_ATTENTION_H
#define CKC_CUDA_ATTENTION_H
#include "text.h"

/* Is it attention in a type and shape that has such a text?  Not in f64, nor with a gradient of a bias that
 * rows or columns share: those run as their scalar body. */
bool cuda_attention_has(const Kernel *k);
/* Is there a text whose products are those of warpgroups (prelude/wgmma.h)?  Kernel.wgmma asks for it. */
bool cuda_attention_has_wgmma(const Kernel *k);
CudaLaunch cuda_attention_launch(const Kernel *k);
void cuda_attention_print(Writer *w, const Kernel *k, const char *name);
/* The key of its dropout: their number, 0 or 1; key: NULL, or where it goes. */
int cuda_attention_keys(const Kernel *k, int64_t *key);

#endif
