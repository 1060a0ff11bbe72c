/* cuda.h -- shared by the files of the device "cuda": contexts, staging of inputs, kernels, the profile. */
#ifndef CKC_CUDA_H
#define CKC_CUDA_H

#include "codegen/codegen.h"
#include "driver.h"
#include "runtime/runtime.h"

/* ---- info.c ------------------------------------------------------------------------------------- */

/* An attribute of the device; 0 if the driver does not tell. */
int cuda_attribute(const CudaDriver *cu, CUdevice device, CUdevice_attribute which);
int cuda_capability(const CudaDriver *cu, CUdevice device); /* 90 is 9.0 */
/* Does the GPU have matrix products of warpgroups (wgmma), and does NVRTC know them? */
bool cuda_has_wgmma(const CudaDriver *cu, CUdevice device);

/* A GPU's primary context.  Zeroed: not open. */
typedef struct {
    const CudaDriver *cu; /* NULL: there is no driver, or the context was never opened */
    CUdevice device;
    CUcontext context;
} CudaContext;

bool cuda_context_open(CudaContext *x, int ordinal, Diag *d); /* to be closed even if it failed */
void cuda_context_close(CudaContext *x);
/* The context is current in the calling thread from enter to leave, which returns `ok`; both have no effect
 * if it is not open. */
bool cuda_context_enter(const CudaContext *x, Diag *d);
bool cuda_context_leave(const CudaContext *x, bool ok);
/* Evaluates `work` in the context; for functions that have d. */
#define IN_CONTEXT(x, work) (cuda_context_enter(x, d) && cuda_context_leave(x, work))

/* The functions of DeviceOps. */
bool cuda_info(int ordinal, DeviceInfo *out, Arena *a, Diag *d);
bool cuda_complete(Diag *d);
const char *cuda_about(int ordinal, Arena *a);

/* ---- stage.c ------------------------------------------------------------------------------------ */

enum { CUDA_FLIGHT = 2 }; /* runs that are begun and not finished, at most */

/* Pinned host memory: CUDA_FLIGHT buffers of `bytes` bytes for the inputs of a run, then the results. */
typedef struct {
    const CudaContext *on;
    CUstream stream;
    char *memory;
    int64_t bytes, used; /* size of a buffer; bytes used of the current one */
    int half;            /* index of the current buffer */
    CUevent taken[CUDA_FLIGHT], begin[CUDA_FLIGHT], end[CUDA_FLIGHT];
    uint32_t turns, begun, ended, finished;
} Staging;

int64_t stage_bytes(const Graph *g); /* size of a buffer for all inputs of the graph */
bool stage_open(Staging *s, const CudaContext *on, CUstream stream, int64_t bytes, Diag *d);
void stage_close(Staging *s); /* {0} is fine */
/* Enqueues a copy to the device; `from` may be overwritten when this returns.  Data that does not fit into
 * the buffer is copied from pageable memory. */
bool stage_write(Staging *s, CUdeviceptr to, const void *from, int64_t bytes, Diag *d);
bool stage_turn(Staging *s, Diag *d); /* the writes from now on belong to the next run */
/* The functions begin, end and finish of DeviceOps. */
bool stage_begin(Staging *s, Diag *d);
bool stage_end(Staging *s, CUdeviceptr result, int64_t bytes, Diag *d);
bool stage_finish(Staging *s, void *result, int64_t bytes, double *seconds, Diag *d);

/* ---- compile.c ---------------------------------------------------------------------------------- */

typedef struct {
    CUfunction fn[CUDA_PHASES];
} CudaKernel;

/* Sets out[i] to the functions of k[i], in the current context, from the cache (NULL: the user's); kernels of
 * the same text share one.  Allocated in a.  They can be launched until cuda_kernels_unload(o), which is to
 * be called even if the load failed. */
bool cuda_kernels_load(const CudaDriver *cu, CUdevice device, const KernelCache *cache,
                       const Kernel *const *k, int n, const CudaKernel **out, KernelObjects *o, Arena *a,
                       Diag *d);
void cuda_kernels_unload(const CudaDriver *cu, KernelObjects *o);

/* ---- choose.c ----------------------------------------------------------------------------------- */

/* The functions of DeviceOps; the device need not be here. */
CostFn cuda_choose;
TimesFn cuda_times;
bool cuda_learn(void *profile, const NodeId *first, const double *seconds, uint32_t n, Diag *d);
void *cuda_profile_open(const ProfileOptions *o, Diag *d);
void cuda_profile_close(void *profile);

#endif
