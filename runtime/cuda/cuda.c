/* cuda.c -- an NVIDIA GPU as a device: runs the launches of a Program in streams, one for each of its lanes.
 *
 * Everything that can fail for lack of resources happens in cuda_open: it makes one allocation of the arena's
 * size, the other space in pinned host memory, compiles and loads kernels, and makes streams and events.  A
 * run then only enqueues and allocates nothing. */
#include "task.h"
#include "ir/program.h"
#include "runtime/device.h"
#include <inttypes.h>
#include <string.h>

typedef struct {
    const Plan *plan;
    Arena arena; /* tables, and this struct */
    Program program;
    CudaContext on;
    CUdeviceptr memory;
    void *host;
    Staging stage;
    CUstream stream[LANES];
    CUevent begin, end[LANES]; /* start of a run; end of each lane in it */
    ProductLibrary lib;
    const CudaBatch *batch; /* per launch of the program */
    Tasks tasks;            /* of the program's launches */
    CUevent *done;        /* per launch: its end; NULL: no other lane waits for it */
    int eager[2];         /* number of runs issued launch by launch: of a micro-batch, of the rest */
    CUgraphExec graph[2]; /* graphs for the later runs: of a micro-batch, of the rest */
    CUevent *timed;       /* per plan step, and one more: when the compute lane reaches it */
} Cuda;

/* For functions that have x and d. */
#define CALL(name, ...) CUDA_CALL(x->on.cu, name, __VA_ARGS__)

/* ---- opening ------------------------------------------------------------------------------------ */

static bool open_streams(Cuda *x, Diag *d)
{
    for (int i = 0; i < LANES; i++)
        TRY(CALL(cuStreamCreate, &x->stream[i], CU_STREAM_NON_BLOCKING) &&
            CALL(cuEventCreate, &x->end[i], CU_EVENT_DISABLE_TIMING));
    return CALL(cuEventCreate, &x->begin, CU_EVENT_DISABLE_TIMING) &&
           stage_open(&x->stage, &x->on, x->stream[LANE_COMPUTE], stage_bytes(x->plan->g), d);
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
    CUresult r = x->on.cu->cuMemAlloc_v2(&x->memory, (size_t)(p->arena_bytes ? p->arena_bytes : 1));
    if (r == CUDA_ERROR_OUT_OF_MEMORY)
        return no_memory(x, d);
    return cuda_ok(x->on.cu, r, "cuMemAlloc", d) &&
           (!p->host_bytes || CALL(cuMemHostAlloc, &x->host, (size_t)p->host_bytes, 0));
}

static bool make_events(Cuda *x, Diag *d)
{
    const Launches *l = &x->program.l;
    x->done = NEW(&x->arena, CUevent, l->n + 1);
    for (uint32_t i = 0; i < l->n; i++)
        for (int w = 0; w < l->launch[i].nwait; w++) {
            CUevent *done = &x->done[l->launch[i].wait[w]];
            TRY(*done || CALL(cuEventCreate, done, CU_EVENT_DISABLE_TIMING));
        }
    x->timed = NEW(&x->arena, CUevent, x->plan->nstep + 1);
    for (uint32_t s = 0; s <= x->plan->nstep; s++)
        TRY(CALL(cuEventCreate, &x->timed[s], 0));
    return true;
}

static bool make_tasks(Cuda *x, const ExecOptions *opt, Arena *tmp, Diag *d)
{
    const Plan *p = x->plan;
    const char **choice = NEW(tmp, const char *, p->nstep + 1);
    CUdevice_attribute most = CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
    int64_t room = opt->rechosen ? cuda_attribute(x->on.cu, x->on.device, most) : INT64_MAX;
    int64_t smaller = cuda_choose_texts(&x->program.l, x->program.first, p,
                                        cuda_has_wgmma(x->on.cu, x->on.device), room);
    if (opt->rechosen)
        *opt->rechosen += smaller;
    x->batch = cuda_batches(&x->program, p->nmicro, p->nstep, &x->arena);
    for (uint32_t s = 0; s < p->nstep; s++)
        choice[s] = p->step[s].choice;
    TaskInput in = {.l = &x->program.l,
                    .nstep = p->nstep,
                    .first = x->program.first,
                    .choice = choice,
                    .space = {[SPACE_DEVICE] = x->memory, [SPACE_HOST] = (CUdeviceptr)(uintptr_t)x->host},
                    .cache = opt->cache,
                    .rechosen = opt->rechosen,
                    .batch = x->batch};
    x->tasks = (Tasks){.cu = x->on.cu, .device = x->on.device, .lib = &x->lib};
    return products_open(&x->lib, x->on.cu, x->on.device, d) && tasks_make(&x->tasks, &in, &x->arena, d);
}

static bool prepare(Cuda *x, const ExecOptions *opt, Arena *tmp, Diag *d)
{
    const Plan *p = x->plan;
    Program *pr = &x->program;
    return program_make(pr, p, &x->arena, d) && (!opt->check || program_verify(pr, d)) &&
           make_tasks(x, opt, tmp, d) && make_events(x, d) &&
           (!opt->check || !p->arena_bytes ||
            CALL(cuMemsetD8Async, x->memory, 0xFF, (size_t)p->arena_bytes, x->stream[0]));
}

/* Frees everything that was made, ignoring errors. */
static void give_back(Cuda *x)
{
    if (x->stream[LANE_COMPUTE])
        x->on.cu->cuStreamSynchronize(x->stream[LANE_COMPUTE]);
    stage_close(&x->stage);
    for (uint32_t i = 0; x->done && i < x->program.l.n; i++)
        cuda_event_free(x->on.cu, x->done[i]);
    for (uint32_t s = 0; x->timed && s <= x->plan->nstep; s++)
        cuda_event_free(x->on.cu, x->timed[s]);
    for (int i = 0; i < 2; i++)
        if (x->graph[i])
            x->on.cu->cuGraphExecDestroy(x->graph[i]);
    for (int i = 0; i < LANES; i++) {
        if (x->stream[i])
            x->on.cu->cuStreamDestroy_v2(x->stream[i]);
        cuda_event_free(x->on.cu, x->end[i]);
    }
    cuda_event_free(x->on.cu, x->begin);
    if (x->memory)
        x->on.cu->cuMemFree_v2(x->memory);
    if (x->host)
        x->on.cu->cuMemFreeHost(x->host);
    tasks_free(&x->tasks);
    products_close(&x->lib);
}

static void cuda_close(void *device)
{
    Cuda *x = device;
    if (cuda_context_enter(&x->on, &(Diag){0})) {
        give_back(x);
        cuda_context_leave(&x->on, true);
    }
    cuda_context_close(&x->on);
    Arena arena = x->arena;
    arena_free(&arena);
}

static void *cuda_open(const Plan *p, const ExecOptions *opt, Diag *d)
{
    Arena arena = {0}, tmp = {0};
    Cuda *x = NEW(&arena, Cuda, 1);
    x->arena = arena;
    x->plan = p;
    bool ok = cuda_context_open(&x->on, opt->ordinal, d) &&
              IN_CONTEXT(&x->on, open_streams(x, d) && allocate(x, d) && prepare(x, opt, &tmp, d));
    arena_free(&tmp);
    if (ok)
        return x;
    cuda_close(x);
    return NULL;
}

/* ---- running ------------------------------------------------------------------------------------ */

/* Enqueues the launches [from, to); those before `begin` have ended and are not waited for. */
static bool enqueue(const Cuda *x, uint32_t begin, uint32_t from, uint32_t to, Diag *d)
{
    for (uint32_t i = from; i < to; i++) {
        const Launch *l = &x->program.l.launch[i];
        CUstream stream = x->stream[l->lane];
        for (int w = 0; w < l->nwait; w++)
            TRY(l->wait[w] < begin || CALL(cuStreamWaitEvent, stream, x->done[l->wait[w]], 0));
        TRY(task_run(&x->tasks, &x->tasks.task[i], stream, d) &&
            (!x->done[i] || CALL(cuEventRecord, x->done[i], stream)));
    }
    return true;
}

/* Makes the other lanes wait for what is in the compute lane. */
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

/* Enqueues a whole run: a micro-batch or the rest. */
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
        x->on.cu->cuGraphDestroy(graph);
    return ok;
}

/* Updates seconds with the times of the compute lane; launches in other lanes count as 0, and the steps of a
 * batch share its time equally. */
static bool take_times(const Cuda *x, uint32_t from, uint32_t to, double *seconds, Diag *d)
{
    const Program *p = &x->program;
    for (uint32_t s = from, n = 1; s < to; s += n) {
        float ms = 0;
        n = p->first[s] < p->first[s + 1] ? x->batch[p->first[s]].calls : 1;
        TRY(CALL(cuEventElapsedTime, &ms, x->timed[s], x->timed[s + n]));
        for (uint32_t i = s; i < s + n; i++)
            if (seconds[i] <= 0 || 1e-3 * ms / n < seconds[i])
                seconds[i] = 1e-3 * ms / n;
    }
    return true;
}

/* The first run is issued launch by launch, which triggers lazy loading; a second one too if times are
 * wanted, so that one of them is warm.  Later runs are one graph, which costs the host one call and runs
 * asynchronously. */
static bool run(Cuda *x, bool rest, double *seconds, Diag *d)
{
    const Plan *p = x->plan;
    CUstream stream = x->stream[LANE_COMPUTE];
    TRY(rest || stage_turn(&x->stage, d));
    if (x->eager[rest] >= (seconds ? 2 : 1))
        return (x->graph[rest] || capture(x, rest, d)) && CALL(cuGraphLaunch, x->graph[rest], stream);
    x->eager[rest]++;
    return enqueue_run(x, rest, true, d) && CALL(cuStreamSynchronize, stream) &&
           (!seconds || take_times(x, rest ? p->nmicro : 0, rest ? p->nstep : p->nmicro, seconds, d));
}

static bool cuda_run(void *device, bool rest, double *seconds, Diag *d)
{
    Cuda *x = device;
    return IN_CONTEXT(&x->on, run(x, rest, seconds, d));
}

static bool cuda_begin(void *device, Diag *d)
{
    Cuda *x = device;
    return IN_CONTEXT(&x->on, stage_begin(&x->stage, d));
}

static bool cuda_end(void *device, int64_t at, int64_t bytes, Diag *d)
{
    Cuda *x = device;
    return IN_CONTEXT(&x->on, stage_end(&x->stage, x->memory + (CUdeviceptr)at, bytes, d));
}

static bool cuda_finish(void *device, void *result, int64_t bytes, double *seconds, Diag *d)
{
    Cuda *x = device;
    return IN_CONTEXT(&x->on, stage_finish(&x->stage, result, bytes, seconds, d));
}

/* ---- memory ------------------------------------------------------------------------------------- */

static bool write_space(Cuda *x, Space space, int64_t at, const void *from, int64_t bytes, Diag *d)
{
    if (space == SPACE_HOST) {
        TRY(CALL(cuStreamSynchronize, x->stream[LANE_COMPUTE]));
        memcpy((char *)x->host + at, from, (size_t)bytes);
        return true;
    }
    return bytes == 0 || stage_write(&x->stage, x->memory + (CUdeviceptr)at, from, bytes, d);
}

static bool read_space(Cuda *x, Space space, int64_t at, void *to, int64_t bytes, Diag *d)
{
    if (space == SPACE_HOST) {
        TRY(CALL(cuStreamSynchronize, x->stream[LANE_COMPUTE]));
        memcpy(to, (const char *)x->host + at, (size_t)bytes);
        return true;
    }
    return bytes == 0 || (CALL(cuMemcpyDtoHAsync_v2, to, x->memory + (CUdeviceptr)at, (size_t)bytes,
                               x->stream[LANE_COMPUTE]) &&
                          CALL(cuStreamSynchronize, x->stream[LANE_COMPUTE]));
}

static bool cuda_write(void *device, Space space, int64_t at, const void *from, int64_t bytes, Diag *d)
{
    Cuda *x = device;
    return IN_CONTEXT(&x->on, write_space(x, space, at, from, bytes, d));
}

static bool cuda_read(void *device, Space space, int64_t at, void *to, int64_t bytes, Diag *d)
{
    Cuda *x = device;
    return IN_CONTEXT(&x->on, read_space(x, space, at, to, bytes, d));
}

/* Channels are copied 8 bytes at a time, so the three channels of an image become four. */
static int cuda_channels_last(void) { return 8; }

const DeviceOps cuda_device = {.name = "cuda",
                               .numbered = true,
                               .channels_last = cuda_channels_last,
                               .info = cuda_info,
                               .complete = cuda_complete,
                               .about = cuda_about,
                               .choose = cuda_choose,
                               .times = cuda_times,
                               .learn = cuda_learn,
                               .profile_open = cuda_profile_open,
                               .profile_close = cuda_profile_close,
                               .open = cuda_open,
                               .close = cuda_close,
                               .run = cuda_run,
                               .begin = cuda_begin,
                               .end = cuda_end,
                               .finish = cuda_finish,
                               .write = cuda_write,
                               .read = cuda_read};
