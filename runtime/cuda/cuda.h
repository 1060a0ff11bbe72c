/* cuda.h -- what the files of this device share. */
#ifndef CKC_CUDA_H
#define CKC_CUDA_H

#include "driver.h"
#include "runtime/runtime.h"

/* ---- info.c ------------------------------------------------------------------------------------- */

bool cuda_device_get(const CudaDriver *cu, int ordinal, CUdevice *device, Diag *d);
/* 0: it does not say. */
int cuda_attribute(const CudaDriver *cu, CUdevice device, CUdevice_attribute which);
int cuda_capability(const CudaDriver *cu, CUdevice device); /* 90 is 9.0 */
/* As in DeviceOps. */
bool cuda_info(int ordinal, DeviceInfo *out, Arena *a, Diag *d);
const char *cuda_about(int ordinal, Arena *a);

/* ---- compile.c ---------------------------------------------------------------------------------- */

/* Functions of kernels, fn[i] of k[i], in the current context, from the cache (NULL: the user's).  They can
 * be launched until the objects are given back, also of a load that failed. */
bool cuda_kernels_load(const CudaDriver *cu, CUdevice device, const KernelCache *cache,
                       const Kernel *const *k, int n, CUfunction *fn, KernelObjects *o, Diag *d);
void cuda_kernels_unload(const CudaDriver *cu, KernelObjects *o);

#endif
