/* task.c -- binds launches to memory of a GPU, and enqueues them. */
#include "task.h"
#include <inttypes.h>
#include <string.h>

/* For functions that have t and d. */
#define CALL(name, ...) CUDA_CALL(t->cu, name, __VA_ARGS__)

/* ---- products ----------------------------------------------------------------------------------- */

struct SharedRoutine {
    AlignedGemm of;
    ProductAlgo asked; /* the pinned algorithm, or only a workspace if one is chosen again */
    Routine r;
    struct SharedRoutine *next;
};

static struct SharedRoutine *find_routine(const Tasks *t, const AlignedGemm *p, const ProductAlgo *asked)
{
    struct SharedRoutine *s = t->routine;
    while (s && (memcmp(&s->of, p, sizeof *p) != 0 || memcmp(&s->asked, asked, sizeof *asked) != 0))
        s = s->next;
    return s;
}

static bool set_algo(const Tasks *t, struct SharedRoutine *s, int64_t *rechosen, Diag *d)
{
    if (rechosen) {
        ++*rechosen;
        return routine_algos(&s->r, t->lib, &s->of, s->asked.workspace, &s->r.algo, 1) == 1 ||
               fail_status(d, EXIT_DEVICE,
                           "cuda: cuBLASLt has no algorithm for a product within the %" PRId64
                           " bytes of workspace that the plan has: plan the model again",
                           s->asked.workspace);
    }
    s->r.algo = s->asked;
    return routine_takes(&s->r, t->lib, &s->asked) ||
           fail_status(d, EXIT_DEVICE,
                       "plan: cuBLASLt does not take the algorithm that a product is pinned to: "
                       "plan the model again");
}

static bool make_routine(Tasks *t, const AlignedGemm *p, const ProductAlgo *asked, int64_t *rechosen,
                         const Routine **out, Arena *a, Diag *d)
{
    struct SharedRoutine *s = find_routine(t, p, asked);
    if (!s) {
        s = NEW(a, struct SharedRoutine, 1);
        s->of = *p;
        s->asked = *asked;
        s->next = t->routine;
        t->routine = s;
        TRY(routine_make(&s->r, t->lib, p, d) && set_algo(t, s, rechosen, d));
    }
    *out = &s->r;
    return true;
}

/* Bytes of workspace that the library may use in a launch. */
static int64_t product_room(const Launch *l)
{
    int64_t at = align_up(l->workspace.at, CUDA_WORKSPACE_ALIGN), end = l->workspace.at + l->workspace.bytes;
    return end > at ? end - at : 0;
}

static bool refuse(const ProductLibrary *lib, const char *choice, uint32_t step, Diag *d)
{
    int length = (int)strcspn(choice, "+,");
    if (!lib->lt)
        return cuda_cublaslt(cuda_driver(d), d) != NULL;
    return fail_status(d, EXIT_DEVICE,
                       "plan: step %" PRIu32 " is pinned to '%.*s', and this GPU's library is "
                       "'%s:%s': plan the model again, or --rechoose takes other algorithms, with other bits",
                       step, length, choice, product_unpinned, lib->pin);
}

static bool is_text(const char *choice)
{
    return choice && (strcmp(choice, cuda_wgmma) == 0 || strcmp(choice, cuda_small_tiles) == 0);
}

/* Is the step's kernel the variant that the step is pinned to?  cuda.c has set it if the GPU can run it. */
static bool takes_text(const TaskInput *in, uint32_t step, Diag *d)
{
    const uint32_t *first = &in->first[step];
    const Launch *l = first[0] < first[1] ? &in->l->launch[first[0]] : NULL;
    const Kernel *k = l && !l->copy ? in->l->kernel[l->kernel] : NULL;
    bool is = k && (k->wgmma || k->small_tiles);
    if (!is && in->rechosen)
        ++*in->rechosen;
    return is || in->rechosen ||
           fail_status(d, EXIT_DEVICE,
                       "plan: step %" PRIu32 " is pinned to '%s', which this GPU or the kernel does not have:"
                       " plan the model again, or --rechoose takes other kernels, with other bits",
                       step, in->choice[step]);
}

typedef struct {
    Products products;
    const Routine **routine; /* per product; NULL: it runs as text */
} StepProducts;

/* Makes the routines for the products of a step's launches. */
static bool step_products(Tasks *t, const TaskInput *in, uint32_t step, StepProducts *out, Arena *a, Diag *d)
{
    const Launch *l = in->l->launch + in->first[step];
    *out = (StepProducts){.products = products_of(l, in->first[step + 1] - in->first[step], a)};
    uint32_t n = out->products.n;
    ProductAlgo *algo = NEW(a, ProductAlgo, n + 1);
    out->routine = NEW(a, const Routine *, n + 1);
    if (n == 0 && is_text(in->choice[step]))
        return takes_text(in, step, d);
    bool pinned = product_parse(t->lib, in->choice[step], n, algo);
    if (!pinned && !(in->rechosen && t->lib->lt))
        return refuse(t->lib, in->choice[step], step, d);
    for (uint32_t i = 0; i < n; i++) {
        if (!pinned)
            algo[i] = (ProductAlgo){.workspace = product_room(l)};
        TRY(algo[i].workspace < 0 || make_routine(t, &out->products.of[i], &algo[i],
                                                  pinned ? NULL : in->rechosen, &out->routine[i], a, d));
    }
    return true;
}

/* Binds the calls of products; false: not all calls have a routine, and the launch runs as text. */
static bool bind_products(Task *task, const StepProducts *p, Arena *a)
{
    Gemms s;
    if (!gemm_describe(&s, task->l->lib))
        return false;
    int64_t n = gemm_calls(&s);
    ProductCall *call = NEW(a, ProductCall, n);
    for (int64_t i = 0; i < n; i++) {
        int64_t at[GEMM_OPERANDS];
        Gemm g = gemm_call(&s, i, at);
        call[i].routine = p->routine[product_index(&p->products, &g)];
        TRY(call[i].routine);
        for (int o = 0; o < GEMM_OPERANDS; o++)
            call[i].at[o] = task->op[s.operand[o]] + (CUdeviceptr)at[o];
    }
    task->call = call;
    task->ncall = n;
    return true;
}

/* ---- kernels and copies ------------------------------------------------------------------------- */

static CUdeviceptr address(const TaskInput *in, const Slice *s)
{
    return s->base < 0 ? 0 : in->space[s->base] + (CUdeviceptr)s->at;
}

static uint32_t calls_of(const TaskInput *in, uint32_t launch)
{
    return in->batch ? in->batch[launch].calls : 1;
}

static const Kernel *kernel_of(const TaskInput *in, uint32_t launch)
{
    return in->batch ? in->batch[launch].kernel : in->l->kernel[in->l->launch[launch].kernel];
}

static CUdeviceptr *bind_operands(const TaskInput *in, const Launch *l, CUdeviceptr *to)
{
    for (int i = 0; i < l->nop; i++)
        *to++ = address(in, &l->op[i]);
    return to;
}

/* Fills the table of a batch with operands and keys of its calls. */
static void bind_table(const TaskInput *in, uint32_t launch, CUdeviceptr *to)
{
    int64_t key[CUDA_KEYS];
    for (const Launch *l = &in->l->launch[launch], *end = l + calls_of(in, launch); l < end; l++) {
        to = bind_operands(in, l, to);
        int n = kernel_cuda_keys(in->l->kernel[l->kernel], key);
        for (int i = 0; i < n; i++)
            *to++ = (CUdeviceptr)key[i];
    }
}

static Task bind(const TaskInput *in, uint32_t launch, Arena *a)
{
    const Launch *l = &in->l->launch[launch];
    bool one = calls_of(in, launch) <= 1;
    Task task = {.l = l, .op = NEW(a, CUdeviceptr, one ? l->nop + 1 : CUDA_TABLE)};
    if (one)
        bind_operands(in, l, task.op);
    else
        bind_table(in, launch, task.op);
    return task;
}

/* The arguments of a kernel: operands (in a batch the table), the workspace if there is one, keys. */
static void **bind_arguments(const Task *task, const Kernel *k, Arena *a)
{
    int n = k->calls > 1 ? 1 : task->l->nop + (task->launch.workspace > 0);
    int nkey = kernel_cuda_keys(k, NULL);
    int64_t *key = NEW(a, int64_t, nkey + 1);
    void **arg = NEW(a, void *, n + nkey + 1);
    kernel_cuda_keys(k, key);
    for (int i = 0; i < n; i++)
        arg[i] = &task->op[i];
    for (int i = 0; i < nkey; i++)
        arg[n + i] = &key[i];
    return arg;
}

static bool no_workspace(Diag *d)
{
    return fail_status(d, EXIT_DEVICE,
                       "plan: it has no workspace for the kernels of this version of ckc: "
                       "plan the model again");
}

/* Binds the workspace of kernel or products, aligned, in the step's workspace after the buffers of a loop. */
static bool bind_workspace(const TaskInput *in, Task *task, Diag *d)
{
    CudaLaunch of = task->launch;
    for (int64_t i = 0; i < task->ncall; i++)
        if (task->call[i].routine->algo.workspace > of.workspace)
            of.workspace = task->call[i].routine->algo.workspace;
    if (!cuda_workspace_fits(task->l, &of))
        return no_workspace(d);
    if (of.workspace)
        task->workspace = task->op[task->l->nop] =
            in->space[SPACE_DEVICE] + (CUdeviceptr)cuda_workspace_at(task->l, &of);
    return true;
}

/* Loads the kernels, each text once, and sets launches, arguments and workspace of the tasks. */
static bool bind_kernels(Tasks *t, const TaskInput *in, Arena *a, Diag *d)
{
    uint32_t n = in->l->n;
    int nrun = 0;
    const Kernel **text = NEW(a, const Kernel *, n + 1);
    const CudaKernel **kernel = NEW(a, const CudaKernel *, n + 1);
    int *which = NEW(a, int, n + 1); /* index in kernel, plus 1; 0: the launch runs no kernel */
    for (uint32_t i = 0; i < n; i++)
        if (!in->l->launch[i].copy && !t->task[i].call && calls_of(in, i)) {
            text[nrun] = kernel_of(in, i);
            which[i] = ++nrun;
        }
    TRY(cuda_kernels_load(t->cu, t->device, in->cache, text, nrun, kernel, &t->modules, a, d));
    for (uint32_t i = 0; i < n; i++) {
        Task *task = &t->task[i];
        if (which[i]) {
            task->kernel = kernel[which[i] - 1];
            task->launch = kernel_cuda_launch(kernel_of(in, i));
            task->arg = bind_arguments(task, kernel_of(in, i), a);
        }
        TRY(bind_workspace(in, task, d));
    }
    return true;
}

bool tasks_make(Tasks *t, const TaskInput *in, Arena *a, Diag *d)
{
    StepProducts p;
    t->pitch = (size_t)cuda_attribute(t->cu, t->device, CU_DEVICE_ATTRIBUTE_MAX_PITCH);
    t->task = NEW(a, Task, in->l->n + 1);
    for (uint32_t i = 0; i < in->l->n; i++)
        t->task[i] = bind(in, i, a);
    for (uint32_t s = 0; s < in->nstep; s++) {
        TRY(step_products(t, in, s, &p, a, d));
        for (uint32_t i = in->first[s]; i < in->first[s + 1]; i++)
            bind_products(&t->task[i], &p, a);
    }
    return bind_kernels(t, in, a, d);
}

void tasks_free(Tasks *t)
{
    for (struct SharedRoutine *s = t->routine; s; s = s->next)
        routine_free(&s->r, t->lib);
    cuda_kernels_unload(t->cu, &t->modules);
}

/* ---- running ------------------------------------------------------------------------------------ */

static bool copy_apart(const Tasks *t, CUdeviceptr to, CUdeviceptr from, size_t stride, size_t bytes,
                       size_t rows, CUstream stream, Diag *d)
{
    CUDA_MEMCPY2D m = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                       .srcDevice = from,
                       .srcPitch = bytes,
                       .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                       .dstDevice = to,
                       .dstPitch = stride,
                       .WidthInBytes = bytes,
                       .Height = rows};
    return CALL(cuMemcpy2DAsync_v2, &m, stream);
}

/* Copies packed rows of an operand to strided rows: with one call if the stride is within the limit of
 * pitches, else row by row. */
static bool copy_rows(const Tasks *t, const Task *task, const CopyRows *c, CUstream stream, Diag *d)
{
    CUdeviceptr from = task->op[c->operand], to = task->op[task->l->nop - 1] + (CUdeviceptr)c->at;
    size_t bytes = (size_t)c->bytes, rows = (size_t)c->rows, stride = (size_t)c->stride;
    if (stride == bytes) {
        bytes *= rows;
        rows = 1;
    }
    if (rows > 1 && bytes && stride <= t->pitch)
        return copy_apart(t, to, from, stride, bytes, rows, stream, d);
    for (size_t i = 0; i < rows && bytes; i++)
        TRY(CALL(cuMemcpyAsync, to + i * stride, from + i * bytes, bytes, stream));
    return true;
}

bool task_run(const Tasks *t, const Task *task, CUstream stream, Diag *d)
{
    for (int i = 0; i < task->l->ncopy; i++)
        TRY(copy_rows(t, task, &task->l->copy[i], stream, d));
    for (int64_t i = 0; i < task->ncall; i++)
        TRY(routine_run(task->call[i].routine, t->lib, task->call[i].at, task->workspace, stream, d));
    for (int i = 0; i < task->launch.n; i++) {
        const CudaPhase *p = &task->launch.phase[i];
        TRY(CALL(cuLaunchKernel, task->kernel->fn[i], p->grid, 1, 1, p->block, 1, 1, p->shared, stream,
                 task->arg, NULL));
    }
    return true;
}
