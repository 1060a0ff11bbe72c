/* cuda.h -- what the files of this device share. */
#ifndef CKC_CUDA_H
#define CKC_CUDA_H

#include "codegen/codegen.h"
#include "driver.h"
#include "runtime/runtime.h"

/* ---- info.c ------------------------------------------------------------------------------------- */

/* 0: it does not say. */
int cuda_attribute(const CudaDriver *cu, CUdevice device, CUdevice_attribute which);
int cuda_capability(const CudaDriver *cu, CUdevice device); /* 90 is 9.0 */
/* Products of warpgroups: has the GPU them, and does its compiler know? */
bool cuda_has_wgmma(const CudaDriver *cu, CUdevice device);

/* A GPU's primary context.  Zeroed: not open. */
typedef struct {
    const CudaDriver *cu; /* NULL: there is no driver, or nobody asked */
    CUdevice device;
    CUcontext context;
} CudaContext;

bool cuda_context_open(CudaContext *x, int ordinal, Diag *d); /* to be closed also where it failed */
void cuda_context_close(CudaContext *x);
/* The calling thread's from enter to leave, which says `ok`; one that is not open: nothing changes. */
bool cuda_context_enter(const CudaContext *x, Diag *d);
bool cuda_context_leave(const CudaContext *x, bool ok);
/* In functions that have d. */
#define IN_CONTEXT(x, work) (cuda_context_enter(x, d) && cuda_context_leave(x, work))

/* As in DeviceOps. */
bool cuda_info(int ordinal, DeviceInfo *out, Arena *a, Diag *d);
bool cuda_complete(Diag *d);
const char *cuda_about(int ordinal, Arena *a);

/* ---- stage.c ------------------------------------------------------------------------------------ */

enum { CUDA_FLIGHT = 2 }; /* runs that are begun and not finished, at most */

/* Pinned memory of the host: buffers for the inputs of a run, each with room for `bytes`, then results. */
typedef struct {
    const CudaContext *on;
    CUstream stream;
    char *memory;
    int64_t bytes, used; /* of a buffer */
    int half;            /* which one */
    CUevent taken[CUDA_FLIGHT], begin[CUDA_FLIGHT], end[CUDA_FLIGHT];
    uint32_t turns, begun, ended, finished;
} Staging;

int64_t stage_bytes(const Graph *g); /* of all its inputs */
bool stage_open(Staging *s, const CudaContext *on, CUstream stream, int64_t bytes, Diag *d);
void stage_close(Staging *s); /* {0} is fine */
/* Enqueues a copy to the device; what it reads may change when this returns.  More than there is room for is
 * copied from pageable memory. */
bool stage_write(Staging *s, CUdeviceptr to, const void *from, int64_t bytes, Diag *d);
bool stage_turn(Staging *s, Diag *d); /* the next writes are of the next run */
/* As in DeviceOps. */
bool stage_begin(Staging *s, Diag *d);
bool stage_end(Staging *s, CUdeviceptr result, int64_t bytes, Diag *d);
bool stage_finish(Staging *s, void *result, int64_t bytes, double *seconds, Diag *d);

/* ---- compile.c ---------------------------------------------------------------------------------- */

typedef struct {
    CUfunction fn[CUDA_PHASES];
} CudaKernel;

/* Functions of kernels, out[i] of k[i], one for all of a text, in the current context, from the cache (NULL:
 * the user's).  They can be launched until the objects are given back, also of a load that failed.  Allocated
 * in a. */
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
