/* cuda_attention.h -- attention and its gradients as CUDA C in tiles (prelude/attention_tile.h). */
#ifndef CKC_CUDA_ATTENTION_H
#define CKC_CUDA_ATTENTION_H
#include "text.h"

/* Is it attention in a type and shape that has a tiled text?  Attention in f64, and the gradient of a bias
 * that rows or columns share, have none: they run as their scalar body. */
bool cuda_attention_has(const Kernel *k);
/* Is there a text that multiplies with warpgroups (prelude/wgmma.h)?  Kernel.wgmma asks for it. */
bool cuda_attention_has_wgmma(const Kernel *k);
CudaLaunch cuda_attention_launch(const Kernel *k);
void cuda_attention_print(Writer *w, const Kernel *k, const char *name);
/* Writes the key of the kernel's dropout to *key unless it is NULL; returns the number of keys, 0 or 1. */
int cuda_attention_keys(const Kernel *k, int64_t *key);

#endif
