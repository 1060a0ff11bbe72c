/* task.h -- launches bound to memory of a GPU: what is left is to enqueue them. */
#ifndef CKC_CUDA_TASK_H
#define CKC_CUDA_TASK_H

#include "cuda.h"
#include "product.h"

typedef struct {
    const Routine *routine;
    CUdeviceptr at[GEMM_OPERANDS];
} ProductCall;

/* Copies, or products, or else a kernel. */
typedef struct {
    const Launch *l;
    CUdeviceptr *op; /* and the workspace; of a batch the table of all its calls */
    void **arg;      /* of a kernel: to those, or to the table, and to its keys */
    const CudaKernel *kernel;
    CudaLaunch launch; /* of the kernel */
    const ProductCall *call;
    int64_t ncall;
    CUdeviceptr workspace; /* of products */
} Task;

/* A plan, or commands to measure, step by step.  Slices are offsets in spaces. */
typedef struct {
    const Launches *l;
    uint32_t nstep;
    const uint32_t *first;     /* per step, and one more: its launches */
    const char *const *choice; /* per step, as in Step */
    CUdeviceptr space[SPACES];
    const KernelCache *cache; /* NULL: the user's */
    int64_t *rechosen;        /* as in ExecOptions: algorithms */
    const CudaBatch *batch;   /* per launch; NULL: each is one of its own */
} TaskInput;

typedef struct {
    const CudaDriver *cu;
    CUdevice device;
    const ProductLibrary *lib;
    size_t pitch; /* of rows that are copied together, at most */
    Task *task; /* as the launches */
    KernelObjects modules;
    struct SharedRoutine *routine; /* each once */
} Tasks;

/* Kernels compiled, products described; cu, device and lib are set before.  The context is current.  Tables
 * are allocated in a; what was made is given back by tasks_free, also after a failure. */
bool tasks_make(Tasks *t, const TaskInput *in, Arena *a, Diag *d);
void tasks_free(Tasks *t);
/* Enqueues without waiting; nothing is allocated. */
bool task_run(const Tasks *t, const Task *task, CUstream stream, Diag *d);

#endif
