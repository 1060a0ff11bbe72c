/* task.h -- launches bound to memory of a GPU, ready to be enqueued. */
#ifndef CKC_CUDA_TASK_H
#define CKC_CUDA_TASK_H

#include "cuda.h"
#include "product.h"

typedef struct {
    const Routine *routine;
    CUdeviceptr at[GEMM_OPERANDS];
} ProductCall;

/* A launch that is copies, products or a kernel. */
typedef struct {
    const Launch *l;
    CUdeviceptr *op; /* operands, then the workspace; in a batch the table of all its calls */
    void **arg;      /* arguments of a kernel: pointers to these (in a batch the table) and to its keys */
    const CudaKernel *kernel;
    CudaLaunch launch; /* launch of the kernel */
    const ProductCall *call;
    int64_t ncall;
    CUdeviceptr workspace; /* of the products */
} Task;

/* A plan, or commands to measure, step by step.  Slices are offsets in spaces. */
typedef struct {
    const Launches *l;
    uint32_t nstep;
    const uint32_t *first;     /* per step, and one more: index of its first launch */
    const char *const *choice; /* per step, as in Step */
    CUdeviceptr space[SPACES];
    const KernelCache *cache; /* NULL: the user's */
    int64_t *rechosen;        /* as in ExecOptions: counts steps and products that get another routine */
    const CudaBatch *batch;   /* per launch; NULL: there are no batches */
} TaskInput;

typedef struct {
    const CudaDriver *cu;
    CUdevice device;
    const ProductLibrary *lib;
    size_t pitch; /* bytes from row to row that a strided copy may have, at most */
    Task *task; /* one for each launch */
    KernelObjects modules;
    struct SharedRoutine *routine; /* list of the distinct routines */
} Tasks;

/* Compiles kernels, makes routines of products and binds all launches; cu, device and lib are set before, and
 * the context is current.  Tables are allocated in a.  tasks_free is to be called even after a failure. */
bool tasks_make(Tasks *t, const TaskInput *in, Arena *a, Diag *d);
void tasks_free(Tasks *t);
/* Enqueues without waiting; nothing is allocated. */
bool task_run(const Tasks *t, const Task *task, CUstream stream, Diag *d);

#endif
