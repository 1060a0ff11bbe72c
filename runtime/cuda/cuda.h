/* cuda.h -- what the files of this device share. */
#ifndef CKC_CUDA_H
#define CKC_CUDA_H

#include "codegen/codegen.h"
#include "driver.h"
#include "runtime/runtime.h"

/* ---- info.c ------------------------------------------------------------------------------------- */

bool cuda_device_get(const CudaDriver *cu, int ordinal, CUdevice *device, Diag *d);
/* 0: it does not say. */
int cuda_attribute(const CudaDriver *cu, CUdevice device, CUdevice_attribute which);
int cuda_capability(const CudaDriver *cu, CUdevice device); /* 90 is 9.0 */

/* A GPU's primary context, which is current from its opening on.  Zeroed: not open. */
typedef struct {
    const CudaDriver *cu; /* NULL: there is no driver, or nobody asked */
    CUdevice device;
    CUcontext context;
} CudaContext;

bool cuda_context_open(CudaContext *x, int ordinal, Diag *d); /* to be closed also where it failed */
void cuda_context_close(CudaContext *x);

/* As in DeviceOps. */
bool cuda_info(int ordinal, DeviceInfo *out, Arena *a, Diag *d);
bool cuda_complete(Diag *d);
const char *cuda_about(int ordinal, Arena *a);

/* ---- compile.c ---------------------------------------------------------------------------------- */

typedef struct {
    CudaLaunch launch;
    CUfunction fn[CUDA_PHASES];
} CudaKernel;

/* Functions of kernels, out[i] of k[i], in the current context, from the cache (NULL: the user's).  They can
 * be launched until the objects are given back, also of a load that failed.  Allocated in a. */
bool cuda_kernels_load(const CudaDriver *cu, CUdevice device, const KernelCache *cache,
                       const Kernel *const *k, int n, const CudaKernel **out, KernelObjects *o, Arena *a,
                       Diag *d);
void cuda_kernels_unload(const CudaDriver *cu, KernelObjects *o);

/* ---- choose.c ----------------------------------------------------------------------------------- */

/* As in DeviceOps; of a device that need not be here. */
CostFn cuda_choose;
TimesFn cuda_times;
bool cuda_learn(void *profile, const NodeId *first, const double *seconds, uint32_t n, Diag *d);
void *cuda_profile_open(const ProfileOptions *o, Diag *d);
void cuda_profile_close(void *profile);

#endif
