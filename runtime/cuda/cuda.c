/* cuda.c -- an NVIDIA GPU as a device: the launches of a Program in streams, one for each of its lanes.
 *
 * Everything that can fail for want of something happens in cuda_open: one allocation of the arena's size,
 * the other space in pinned memory of the host, kernels compiled and loaded, streams and events made.  A run
 * then only enqueues: nothing is allocated. */
#include "cuda.h"
#include "ir/mem.h"
#include "ir/program.h"
#include "runtime/device.h"
#include <inttypes.h>

/* A launch bound to memory. */
typedef struct {
    const Launch *l;
    const CudaKernel *kernel; /* NULL: copies */
    CUdeviceptr *op;          /* and the workspace */
    void **arg;               /* to each of op */
    CUevent done; /* NULL: no other lane waits for it */
} Task;

typedef struct {
    const Plan *plan;
    Arena arena; /* tables; this lies in it */
    Program program;
    const CudaDriver *cu;
    CUdevice device;
    CUcontext context;
    CUdeviceptr memory;
    void *host;
    CUstream stream[LANES];
    CUevent begin, end[LANES]; /* of a run; of each lane in it */
    KernelObjects modules;
    Task *task;           /* as the launches of the program */
    bool ran[2];          /* of a micro-batch, of the rest */
    CUgraphExec graph[2]; /* likewise, from the second time on */
    CUevent *timed;       /* per plan step, and one more: when the compute lane comes to it */
} Cuda;

/* In functions that have x and d. */
#define CALL(name, ...) CUDA_CALL(x->cu, name, __VA_ARGS__)

/* ---- opening ------------------------------------------------------------------------------------ */

static bool open_context(Cuda *x, int ordinal, Diag *d)
{
    x->cu = cuda_driver(d);
    return x->cu && cuda_device_get(x->cu, ordinal, &x->device, d) &&
           CALL(cuDevicePrimaryCtxRetain, &x->context, x->device) && CALL(cuCtxSetCurrent, x->context);
}

static bool open_streams(Cuda *x, Diag *d)
{
    for (int i = 0; i < LANES; i++)
        TRY(CALL(cuStreamCreate, &x->stream[i], CU_STREAM_NON_BLOCKING) &&
            CALL(cuEventCreate, &x->end[i], CU_EVENT_DISABLE_TIMING));
    return CALL(cuEventCreate, &x->begin, CU_EVENT_DISABLE_TIMING);
}

static bool no_memory(const Cuda *x, Diag *d)
{
    size_t free = 0, all = 0;
    TRY(CALL(cuMemGetInfo_v2, &free, &all));
    return fail_status(d, EXIT_DEVICE,
                       "cuda: the arena of %" PRId64 " bytes cannot be had: of the device's %zu "
                       "bytes %zu are free: a smaller --budget recomputes more",
                       x->plan->arena_bytes, all, free);
}

static bool allocate(Cuda *x, Diag *d)
{
    const Plan *p = x->plan;
    CUresult r = x->cu->cuMemAlloc_v2(&x->memory, (size_t)(p->arena_bytes ? p->arena_bytes : 1));
    if (r == CUDA_ERROR_OUT_OF_MEMORY)
        return no_memory(x, d);
    return cuda_ok(x->cu, r, "cuMemAlloc", d) &&
           (!p->host_bytes || CALL(cuMemHostAlloc, &x->host, (size_t)p->host_bytes, 0));
}

static CUdeviceptr address(const Cuda *x, const Slice *s)
{
    CUdeviceptr base = s->base == SPACE_HOST ? (CUdeviceptr)(uintptr_t)x->host : x->memory;
    return s->base < 0 ? 0 : base + (CUdeviceptr)s->at;
}

static Task bind(Cuda *x, const Launch *l)
{
    Task t = {
        .l = l, .op = NEW(&x->arena, CUdeviceptr, l->nop + 1), .arg = NEW(&x->arena, void *, l->nop + 1)};
    for (int i = 0; i <= l->nop; i++) {
        t.op[i] = i < l->nop ? address(x, &l->op[i]) : 0;
        t.arg[i] = &t.op[i];
    }
    return t;
}

static bool bind_kernel(const Cuda *x, Task *t, const CudaKernel *k, Diag *d)
{
    if (!cuda_workspace_fits(t->l, &k->launch))
        return fail_status(d, EXIT_DEVICE,
                           "plan: it has no workspace for the kernels of this version of ckc: plan again");
    t->kernel = k;
    if (k->launch.workspace)
        t->op[t->l->nop] = x->memory + (CUdeviceptr)cuda_workspace_at(t->l, &k->launch);
    return true;
}

static bool load_kernels(Cuda *x, const KernelCache *cache, Arena *tmp, Diag *d)
{
    const Launches *l = &x->program.l;
    int n = (int)l->nkernel;
    const CudaKernel **kernel = NEW(tmp, const CudaKernel *, n + 1);
    TRY(cuda_kernels_load(x->cu, x->device, cache, l->kernel, n, kernel, &x->modules, &x->arena, d));
    for (uint32_t i = 0; i < l->n; i++)
        TRY(l->launch[i].copy || bind_kernel(x, &x->task[i], kernel[l->launch[i].kernel], d));
    return true;
}

static bool make_events(Cuda *x, Diag *d)
{
    const Launches *l = &x->program.l;
    for (uint32_t i = 0; i < l->n; i++)
        for (int w = 0; w < l->launch[i].nwait; w++) {
            CUevent *done = &x->task[l->launch[i].wait[w]].done;
            TRY(*done || CALL(cuEventCreate, done, CU_EVENT_DISABLE_TIMING));
        }
    x->timed = NEW(&x->arena, CUevent, x->plan->nstep + 1);
    for (uint32_t s = 0; s <= x->plan->nstep; s++)
        TRY(CALL(cuEventCreate, &x->timed[s], 0));
    return true;
}

/* Every kernel is its text. */
static bool check_choices(const Plan *p, Diag *d)
{
    for (uint32_t s = 0; s < p->nstep; s++)
        if (p->step[s].choice)
            return fail_status(d, EXIT_DEVICE,
                               "plan: step %" PRIu32 ": there is no routine '%s' on this device: "
                               "plan the model again",
                               s, p->step[s].choice);
    return true;
}

static bool prepare(Cuda *x, const ExecOptions *opt, Arena *tmp, Diag *d)
{
    const Plan *p = x->plan;
    Program *pr = &x->program;
    TRY(check_choices(p, d) && program_make(pr, p, &x->arena, d) && (!opt->check || program_verify(pr, d)));
    x->task = NEW(&x->arena, Task, pr->l.n + 1);
    for (uint32_t i = 0; i < pr->l.n; i++)
        x->task[i] = bind(x, &pr->l.launch[i]);
    return load_kernels(x, opt->cache, tmp, d) && make_events(x, d) &&
           (!opt->check || !p->arena_bytes ||
            CALL(cuMemsetD8Async, x->memory, 0xFF, (size_t)p->arena_bytes, x->stream[0]));
}

/* What was made; errors say nothing new here. */
static void cuda_close(void *device)
{
    Cuda *x = device;
    for (uint32_t i = 0; x->task && i < x->program.l.n; i++)
        if (x->task[i].done)
            x->cu->cuEventDestroy_v2(x->task[i].done);
    for (uint32_t s = 0; x->timed && s <= x->plan->nstep; s++)
        if (x->timed[s])
            x->cu->cuEventDestroy_v2(x->timed[s]);
    for (int i = 0; i < 2; i++)
        if (x->graph[i])
            x->cu->cuGraphExecDestroy(x->graph[i]);
    for (int i = 0; i < LANES; i++) {
        if (x->stream[i])
            x->cu->cuStreamDestroy_v2(x->stream[i]);
        if (x->end[i])
            x->cu->cuEventDestroy_v2(x->end[i]);
    }
    if (x->begin)
        x->cu->cuEventDestroy_v2(x->begin);
    if (x->memory)
        x->cu->cuMemFree_v2(x->memory);
    if (x->host)
        x->cu->cuMemFreeHost(x->host);
    cuda_kernels_unload(x->cu, &x->modules);
    if (x->context)
        x->cu->cuDevicePrimaryCtxRelease_v2(x->device);
    Arena arena = x->arena;
    arena_free(&arena);
}

static void *cuda_open(const Plan *p, const ExecOptions *opt, Diag *d)
{
    Arena arena = {0}, tmp = {0};
    Cuda *x = NEW(&arena, Cuda, 1);
    x->arena = arena;
    x->plan = p;
    bool ok =
        open_context(x, opt->ordinal, d) && open_streams(x, d) && allocate(x, d) && prepare(x, opt, &tmp, d);
    arena_free(&tmp);
    if (ok)
        return x;
    cuda_close(x);
    return NULL;
}

/* ---- running ------------------------------------------------------------------------------------ */

/* From an operand where the rows are packed; pitches have a limit, and lengths have none. */
static bool copy_rows(const Cuda *x, const Task *t, const CopyRows *c, Diag *d)
{
    CUdeviceptr from = t->op[c->operand], to = t->op[t->l->nop - 1] + (CUdeviceptr)c->at;
    size_t bytes = (size_t)c->bytes, rows = (size_t)c->rows;
    CUstream stream = x->stream[t->l->lane];
    if (bytes * rows == 0)
        return true;
    if (rows == 1 || c->stride == c->bytes)
        return CALL(cuMemcpyAsync, to, from, rows * bytes, stream);
    CUDA_MEMCPY2D m = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                       .srcDevice = from,
                       .srcPitch = bytes,
                       .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                       .dstDevice = to,
                       .dstPitch = (size_t)c->stride,
                       .WidthInBytes = bytes,
                       .Height = rows};
    return CALL(cuMemcpy2DAsync_v2, &m, stream);
}

static bool run_task(const Cuda *x, const Task *t, Diag *d)
{
    for (int i = 0; i < t->l->ncopy; i++)
        TRY(copy_rows(x, t, &t->l->copy[i], d));
    for (int i = 0; t->kernel && i < t->kernel->launch.n; i++) {
        const CudaPhase *p = &t->kernel->launch.phase[i];
        TRY(CALL(cuLaunchKernel, t->kernel->fn[i], p->grid, 1, 1, p->block, 1, 1, p->shared,
                 x->stream[t->l->lane], t->arg, NULL));
    }
    return true;
}

/* Launches before `begin` have ended. */
static bool enqueue(const Cuda *x, uint32_t begin, uint32_t from, uint32_t to, Diag *d)
{
    for (uint32_t i = from; i < to; i++) {
        const Task *t = &x->task[i];
        CUstream stream = x->stream[t->l->lane];
        for (int w = 0; w < t->l->nwait; w++)
            TRY(t->l->wait[w] < begin || CALL(cuStreamWaitEvent, stream, x->task[t->l->wait[w]].done, 0));
        TRY(run_task(x, t, d) && (!t->done || CALL(cuEventRecord, t->done, stream)));
    }
    return true;
}

/* The other lanes begin behind what is in the compute lane. */
static bool fork_lanes(const Cuda *x, Diag *d)
{
    TRY(CALL(cuEventRecord, x->begin, x->stream[LANE_COMPUTE]));
    for (int i = LANE_COMPUTE + 1; i < LANES; i++)
        TRY(CALL(cuStreamWaitEvent, x->stream[i], x->begin, 0));
    return true;
}

static bool join_lanes(const Cuda *x, Diag *d)
{
    for (int i = LANE_COMPUTE + 1; i < LANES; i++)
        TRY(CALL(cuEventRecord, x->end[i], x->stream[i]) &&
            CALL(cuStreamWaitEvent, x->stream[LANE_COMPUTE], x->end[i], 0));
    return true;
}

static bool enqueue_steps(const Cuda *x, uint32_t from, uint32_t to, bool timed, Diag *d)
{
    const uint32_t *first = x->program.first;
    for (uint32_t s = from; s < to; s++)
        TRY((!timed || CALL(cuEventRecord, x->timed[s], x->stream[LANE_COMPUTE])) &&
            enqueue(x, first[from], first[s], first[s + 1], d));
    return !timed || CALL(cuEventRecord, x->timed[to], x->stream[LANE_COMPUTE]);
}

/* All of a run. */
static bool enqueue_run(const Cuda *x, bool rest, bool timed, Diag *d)
{
    const Plan *p = x->plan;
    const uint32_t *update = &x->program.updates[rest];
    return fork_lanes(x, d) &&
           enqueue_steps(x, rest ? p->nmicro : 0, rest ? p->nstep : p->nmicro, timed, d) &&
           join_lanes(x, d) && enqueue(x, update[0], update[0], update[1], d);
}

static bool capture(Cuda *x, bool rest, Diag *d)
{
    CUstream stream = x->stream[LANE_COMPUTE];
    CUgraph graph = NULL;
    TRY(CALL(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    bool ok = enqueue_run(x, rest, false, d);
    ok = CALL(cuStreamEndCapture, stream, &graph) && ok;
    ok = ok && CALL(cuGraphInstantiateWithFlags, &x->graph[rest], graph, 0);
    if (graph)
        x->cu->cuGraphDestroy(graph);
    return ok;
}

/* What runs in another lane takes no time here. */
static bool take_times(const Cuda *x, uint32_t from, uint32_t to, double *seconds, Diag *d)
{
    for (uint32_t s = from; s < to; s++) {
        float ms = 0;
        TRY(CALL(cuEventElapsedTime, &ms, x->timed[s], x->timed[s + 1]));
        if (seconds[s] <= 0 || 1e-3 * ms < seconds[s])
            seconds[s] = 1e-3 * ms;
    }
    return true;
}

/* The first time step by step, which is timed and loads what is loaded late; from then on as one graph, which
 * costs the host a call. */
static bool cuda_run(void *device, bool rest, double *seconds, Diag *d)
{
    Cuda *x = device;
    const Plan *p = x->plan;
    CUstream stream = x->stream[LANE_COMPUTE];
    if (x->ran[rest]) {
        TRY(x->graph[rest] || capture(x, rest, d));
        return CALL(cuGraphLaunch, x->graph[rest], stream) && CALL(cuStreamSynchronize, stream);
    }
    x->ran[rest] = true;
    return enqueue_run(x, rest, true, d) && CALL(cuStreamSynchronize, stream) &&
           (!seconds || take_times(x, rest ? p->nmicro : 0, rest ? p->nstep : p->nmicro, seconds, d));
}

/* ---- memory ------------------------------------------------------------------------------------- */

/* The host's memory may change when this returns: it is pageable. */
static bool cuda_write(void *device, int64_t at, const void *from, int64_t bytes, Diag *d)
{
    Cuda *x = device;
    return bytes == 0 || CALL(cuMemcpyHtoDAsync_v2, x->memory + (CUdeviceptr)at, from, (size_t)bytes,
                              x->stream[LANE_COMPUTE]);
}

static bool cuda_read(void *device, int64_t at, void *to, int64_t bytes, Diag *d)
{
    Cuda *x = device;
    return bytes == 0 || (CALL(cuMemcpyDtoHAsync_v2, to, x->memory + (CUdeviceptr)at, (size_t)bytes,
                               x->stream[LANE_COMPUTE]) &&
                          CALL(cuStreamSynchronize, x->stream[LANE_COMPUTE]));
}

const DeviceOps cuda_device = {.name = "cuda",
                               .numbered = true,
                               .info = cuda_info,
                               .about = cuda_about,
                               .choose = cuda_choose,
                               .open = cuda_open,
                               .close = cuda_close,
                               .run = cuda_run,
                               .write = cuda_write,
                               .read = cuda_read};
