/* cuda_conv.h -- hand-written CUDA C for convolutions with f32 and 16-bit operands. */
#ifndef CKC_CUDA_CONV_H
#define CKC_CUDA_CONV_H
#include "text.h"

bool cuda_conv_has(const Kernel *k);
/* Is there a text that multiplies with warpgroups (prelude/wgmma.h)?  Kernel.wgmma asks for it. */
bool cuda_conv_has_wgmma(const Kernel *k);
/* Both only for kernels of which cuda_conv_has() is true. */
CudaLaunch cuda_conv_launch(const Kernel *k);
void cuda_conv_print(Writer *w, const Kernel *k, const char *name);
#endif
