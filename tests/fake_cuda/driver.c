/* driver.c -- a libcuda for tests: one GPU whose kernels are run by the processor (nvrtc.c, ../shim).
 *
 * What is enqueued runs when somebody waits for it, streams in any order that their events allow.  What a
 * program must not do ends the test (violation()): touch memory outside of what it allocated, allocate in
 * a step, leave something behind.
 *
 *   FAKE_CUDA=no_device | old_driver | lost   no GPU; a driver for CUDA 11.4; an error in the third launch
 *   FAKE_CUDA_NAME, FAKE_CUDA_MEMORY          of the GPU; its bytes
 *   FAKE_CUDA_OTHERS                          bytes that others have of it
 *   FAKE_CUDA_SEED                            of the order of streams; 0: as issued */
#include "runtime/cuda/driver.h"
#include "kernel.h"
#include "shim/fiber.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define CU(name, ...) EXPORT CUresult name(__VA_ARGS__);
#include "runtime/cuda/symbols.def"

enum { INVALID_VALUE = 1, NOT_READY = 600, LAUNCH_FAILED = 719, LOST_AFTER = 2 };
enum { ZONE = 256, MEMORY = 256 << 20, ARGS = FIBER_ARGS };

typedef enum { KERNEL, COPY, FILL, RECORD, WAIT, GRAPH } Kind;

typedef struct Work {
    Kind kind;
    bool done;
    double when;
    const FakeKernel *of;
    const void *kernel;
    ShimState *shim;
    unsigned grid, block;
    void *arg[ARGS];
    CUDA_MEMCPY2D copy;
    void *staged; /* what a copy from pageable memory reads; owned */
    const struct Work *target;
    CUgraph captured; /* in this one, NULL: enqueued */
    CUgraphExec graph;
    struct Work *all; /* list of all */
} Work;

struct CUstream_st {
    Work **work;
    size_t next, n, cap, before; /* before: of them are not captured */
    CUgraph capture;             /* what is enqueued goes there */
    struct CUstream_st *all;
};
/* What was captured of each stream. */
struct CUgraph_st {
    CUstream origin, part;
};
struct CUgraphExec_st {
    CUstream part;
};
struct CUevent_st {
    const Work *last;
    bool timing;
};
struct CUmod_st {
    void *dl;
    ShimState shim;
};
struct CUfunc_st {
    const void *kernel;
    const FakeKernel *of;
    ShimState *shim;
    struct CUfunc_st *all;
};

/* Memory of the device, or pinned of the host. */
typedef struct Block {
    char *at;
    size_t bytes;
    bool device;
    struct Block *next;
} Block;

static struct {
    int retained;
    bool launched; /* in a step: nothing is allocated any more */
    bool lost;
    int launches;
    size_t used;
    int objects; /* streams, events and modules */
    uint64_t random;
    Block *block;
    Work *work;
    struct CUstream_st *stream;
    struct CUfunc_st *function;
} gpu;

static void violation(const char *what)
{
    fprintf(stderr, "fake cuda: %s\n", what);
    abort();
}

static const char *setting(const char *name)
{
    const char *v = getenv(name);
    return v ? v : "";
}

static bool mode(const char *name) { return strcmp(setting("FAKE_CUDA"), name) == 0; }

static size_t memory_bytes(void)
{
    const char *v = setting("FAKE_CUDA_MEMORY");
    return *v ? (size_t)strtoull(v, NULL, 10) : MEMORY;
}

/* Free of it. */
static size_t memory_left(void)
{
    size_t others = (size_t)strtoull(setting("FAKE_CUDA_OTHERS"), NULL, 10);
    return memory_bytes() - gpu.used - others;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the device --------------------------------------------------------------------------------- */

CUresult cuInit(unsigned flags)
{
    return flags ? INVALID_VALUE : mode("no_device") ? CUDA_ERROR_NO_DEVICE : 0;
}

CUresult cuDriverGetVersion(int *v)
{
    *v = mode("old_driver") ? 11040 : 13000;
    return 0;
}

CUresult cuGetErrorString(CUresult e, const char **text)
{
    *text = e == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory"
            : e == CUDA_ERROR_NO_DEVICE   ? "no CUDA-capable device is detected"
            : e == LAUNCH_FAILED          ? "unspecified launch failure"
                                          : "invalid argument";
    return 0;
}

CUresult cuDeviceGetCount(int *n)
{
    *n = 1;
    return 0;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    *device = ordinal;
    return ordinal ? INVALID_VALUE : 0;
}

CUresult cuDeviceGetName(char *name, int n, CUdevice device)
{
    (void)device;
    snprintf(name, (size_t)n, "%s", *setting("FAKE_CUDA_NAME") ? setting("FAKE_CUDA_NAME") : "Fake GPU");
    return 0;
}

CUresult cuDeviceGetAttribute(int *v, CUdevice_attribute which, CUdevice device)
{
    static const int value[][2] = {{CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1000000},
                                   {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 4},
                                   {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 1000000},
                                   {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 256},
                                   {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 4 << 20},
                                   {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
                                   {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 8},
                                   {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0}};
    (void)device;
    for (size_t i = 0; i < sizeof value / sizeof *value; i++)
        if (value[i][0] == which) {
            *v = value[i][1];
            return 0;
        }
    return INVALID_VALUE;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    (void)device;
    *bytes = memory_bytes();
    return 0;
}

static void check_context(void)
{
    if (!gpu.retained)
        violation("a call without a context");
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    static char one;
    (void)device;
    gpu.retained++;
    gpu.random = strtoull(setting("FAKE_CUDA_SEED"), NULL, 10);
    *context = (CUcontext)(void *)&one;
    return 0;
}

static void free_all(void)
{
    for (Work *w = gpu.work, *next; w; w = next) {
        next = w->all;
        free(w->staged);
        free(w);
    }
    for (struct CUfunc_st *f = gpu.function, *next; f; f = next) {
        next = f->all;
        free(f);
    }
    gpu.work = NULL;
    gpu.function = NULL;
    gpu.launched = false;
    gpu.launches = 0;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    (void)device;
    check_context();
    if (--gpu.retained > 0)
        return 0;
    if (gpu.block)
        violation("memory is left behind");
    if (gpu.objects)
        violation("streams, events or modules are left behind");
    free_all();
    return 0;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    check_context();
    return context ? 0 : INVALID_VALUE;
}

CUresult cuMemGetInfo_v2(size_t *left, size_t *all)
{
    check_context();
    *all = memory_bytes();
    *left = memory_left();
    return 0;
}

/* ---- memory ------------------------------------------------------------------------------------- */

static void check_step(const char *what)
{
    check_context();
    if (gpu.launched)
        violation(what);
}

/* At 256 bytes and not at 512, between zones that nobody may write. */
static char *new_block(size_t bytes, bool device)
{
    Block *b = calloc(1, sizeof *b);
    char *base = aligned_alloc(2 * ZONE, (bytes + 4 * ZONE - 1) / (2 * ZONE) * (2 * ZONE));
    if (!b || !base)
        violation("the host has no memory");
    memset(base, 0xA5, ZONE);
    memset(base + ZONE, 0xFF, bytes);
    memset(base + ZONE + bytes, 0xA5, ZONE);
    *b = (Block){base + ZONE, bytes, device, gpu.block};
    gpu.block = b;
    return b->at;
}

static void check_zones(void)
{
    for (const Block *b = gpu.block; b; b = b->next)
        for (int i = 0; i < ZONE; i++)
            if ((b->at - ZONE)[i] != (char)0xA5 || b->at[b->bytes + (size_t)i] != (char)0xA5)
                violation("a kernel or a copy wrote outside of an allocation");
}

static CUresult free_block(const void *at, bool device)
{
    check_context();
    check_zones();
    for (Block **b = &gpu.block; *b; b = &(*b)->next)
        if ((*b)->at == at && (*b)->device == device) {
            Block *found = *b;
            *b = found->next;
            gpu.used -= device ? found->bytes : 0;
            free(found->at - ZONE);
            free(found);
            return 0;
        }
    violation("what is freed was not allocated");
    return INVALID_VALUE;
}

static const Block *block_at(const void *at, size_t bytes)
{
    const char *p = at;
    for (const Block *b = gpu.block; b; b = b->next)
        if (p >= b->at && p + bytes <= b->at + b->bytes)
            return b;
    return NULL;
}

static void *pointer(CUdeviceptr at) { return (void *)(uintptr_t)at; }

CUresult cuMemAlloc_v2(CUdeviceptr *at, size_t bytes)
{
    check_step("memory is allocated in a step");
    if (bytes == 0 || gpu.lost)
        return gpu.lost ? LAUNCH_FAILED : INVALID_VALUE;
    if (bytes > memory_left())
        return CUDA_ERROR_OUT_OF_MEMORY;
    gpu.used += bytes;
    *at = (CUdeviceptr)(uintptr_t)new_block(bytes, true);
    return 0;
}

CUresult cuMemHostAlloc(void **at, size_t bytes, unsigned flags)
{
    check_step("memory is allocated in a step");
    *at = flags ? NULL : new_block(bytes, false);
    return *at ? 0 : INVALID_VALUE;
}

CUresult cuMemFree_v2(CUdeviceptr at) { return free_block(pointer(at), true); }
CUresult cuMemFreeHost(void *at) { return free_block(at, false); }

/* ---- modules ------------------------------------------------------------------------------------ */

CUresult cuModuleLoadData(CUmodule *m, const void *image)
{
    char path[] = "/tmp/fake_cuda-XXXXXX";
    check_step("a module is loaded in a step");
    /* An object begins with the offset of its section headers, which are its end. */
    uint64_t sections;
    uint16_t size, count;
    memcpy(&sections, (const char *)image + 0x28, sizeof sections);
    memcpy(&size, (const char *)image + 0x3A, sizeof size);
    memcpy(&count, (const char *)image + 0x3C, sizeof count);
    int fd = mkstemp(path);
    size_t n = (size_t)sections + (size_t)size * count;
    if (fd < 0 || write(fd, image, n) != (ssize_t)n)
        return INVALID_VALUE;
    close(fd);
    *m = calloc(1, sizeof **m);
    (*m)->dl = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    unlink(path);
    if (!(*m)->dl) {
        fprintf(stderr, "fake cuda: %s\n", dlerror());
        free(*m);
        return INVALID_VALUE;
    }
    *(ShimState **)dlsym((*m)->dl, "shim") = &(*m)->shim;
    gpu.objects++;
    return 0;
}

CUresult cuModuleUnload(CUmodule m)
{
    dlclose(m->dl);
    free(m);
    gpu.objects--;
    return 0;
}

CUresult cuModuleGetFunction(CUfunction *fn, CUmodule m, const char *name)
{
    char of[128];
    snprintf(of, sizeof of, "fake_%s", name);
    struct CUfunc_st f = {dlsym(m->dl, name), dlsym(m->dl, of), &m->shim, gpu.function};
    if (!f.kernel || !f.of)
        return INVALID_VALUE;
    *fn = gpu.function = memcpy(malloc(sizeof f), &f, sizeof f);
    return 0;
}

/* ---- streams and events ------------------------------------------------------------------------- */

CUresult cuStreamCreate(CUstream *s, unsigned flags)
{
    check_step("a stream is made in a step");
    *s = calloc(1, sizeof **s);
    (*s)->all = gpu.stream;
    gpu.stream = *s;
    gpu.objects++;
    return flags == CU_STREAM_NON_BLOCKING ? 0 : INVALID_VALUE;
}

CUresult cuStreamDestroy_v2(CUstream s)
{
    for (struct CUstream_st **at = &gpu.stream; *at; at = &(*at)->all)
        if (*at == s) {
            *at = s->all;
            break;
        }
    free(s->work);
    free(s);
    gpu.objects--;
    return 0;
}

CUresult cuEventCreate(CUevent *e, unsigned flags)
{
    check_step("an event is made in a step");
    *e = calloc(1, sizeof **e);
    (*e)->timing = !(flags & CU_EVENT_DISABLE_TIMING);
    gpu.objects++;
    return 0;
}

CUresult cuEventDestroy_v2(CUevent e)
{
    free(e);
    gpu.objects--;
    return 0;
}

static Work *enqueue(CUstream s, Kind kind)
{
    check_context();
    if (!s)
        violation("the stream that waits for all others is used");
    Work *w = calloc(1, sizeof *w);
    w->kind = kind;
    w->captured = s->capture;
    w->all = gpu.work;
    gpu.work = w;
    if (s->n == s->cap) {
        s->cap = 2 * s->cap + 16;
        s->work = realloc(s->work, s->cap * sizeof *s->work);
    }
    return s->work[s->n++] = w;
}

CUresult cuEventRecord(CUevent e, CUstream s)
{
    e->last = enqueue(s, RECORD);
    return gpu.lost ? LAUNCH_FAILED : 0;
}

/* A stream that waits for a captured event is captured as well. */
CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned flags)
{
    CUgraph in = e->last ? e->last->captured : NULL;
    if (s->capture && s->capture != in)
        violation("what is captured waits for what is not");
    if (in && !s->capture) {
        s->capture = in;
        s->before = s->n;
    }
    enqueue(s, WAIT)->target = e->last;
    return flags ? INVALID_VALUE : 0;
}

CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to)
{
    if (!from->timing || !to->timing || !from->last || !to->last)
        return INVALID_VALUE;
    if (!from->last->done || !to->last->done)
        return NOT_READY;
    *ms = (float)(1e3 * (to->last->when - from->last->when));
    return gpu.lost ? LAUNCH_FAILED : 0;
}

/* ---- graphs ------------------------------------------------------------------------------------- */

CUresult cuStreamBeginCapture_v2(CUstream s, CUstreamCaptureMode mode)
{
    if (s->capture)
        return INVALID_VALUE;
    s->capture = calloc(1, sizeof *s->capture);
    s->capture->origin = s;
    s->before = s->n;
    return mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL ? 0 : INVALID_VALUE;
}

/* Is the end of what was captured of s an event that the origin waits for? */
static bool joined(CUstream s)
{
    CUstream origin = s->capture->origin;
    const Work *last = s->work[s->n - 1];
    for (size_t i = origin->before; i < origin->n; i++)
        if (origin->work[i]->kind == WAIT && origin->work[i]->target == last)
            return true;
    return s == origin;
}

/* Takes what was captured out of the stream. */
static CUstream take_part(CUstream s, CUstream next)
{
    CUstream part = calloc(1, sizeof *part);
    part->n = s->n - s->before;
    part->work = calloc(part->n + 1, sizeof *part->work);
    memcpy(part->work, s->work + s->before, part->n * sizeof *part->work);
    part->all = next;
    s->n = s->before;
    return part;
}

CUresult cuStreamEndCapture(CUstream s, CUgraph *graph)
{
    *graph = s->capture;
    if (!*graph || (*graph)->origin != s)
        return INVALID_VALUE;
    for (CUstream i = gpu.stream; i; i = i->all)
        if (i->capture == *graph && !joined(i))
            violation("a captured stream is not joined");
    for (CUstream i = gpu.stream; i; i = i->all)
        if (i->capture == *graph) {
            (*graph)->part = take_part(i, (*graph)->part);
            i->capture = NULL;
        }
    gpu.objects++;
    return 0;
}

/* The parts move. */
CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    *exec = calloc(1, sizeof **exec);
    (*exec)->part = graph->part;
    graph->part = NULL;
    gpu.objects++;
    return flags ? INVALID_VALUE : 0;
}

static void free_parts(CUstream part)
{
    for (CUstream next; part; part = next) {
        next = part->all;
        free(part->work);
        free(part);
    }
}

CUresult cuGraphDestroy(CUgraph graph)
{
    free_parts(graph->part);
    free(graph);
    gpu.objects--;
    return 0;
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    free_parts(exec->part);
    free(exec);
    gpu.objects--;
    return 0;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream s)
{
    if (s->capture)
        violation("a graph is launched while it is captured");
    enqueue(s, GRAPH)->graph = exec;
    return gpu.lost ? LAUNCH_FAILED : 0;
}

/* ---- running ------------------------------------------------------------------------------------ */

static uint64_t draw(void)
{
    gpu.random = gpu.random * 6364136223846793005u + 1442695040888963407u;
    return gpu.random >> 33;
}

static void run_kernel(const Work *w)
{
    bool ok = (w->of->waits ? fiber_launch_kernel : thread_launch_kernel)(w->shim, w->kernel, w->arg, w->grid,
                                                                          w->block, gpu.random);
    if (!ok)
        violation("threads are stuck");
    gpu.lost = gpu.lost || (mode("lost") && ++gpu.launches > LOST_AFTER);
}

static void run_copy(const CUDA_MEMCPY2D *c)
{
    for (size_t i = 0; i < c->Height; i++)
        memmove((char *)pointer(c->dstDevice) + i * c->dstPitch,
                (char *)pointer(c->srcDevice) + i * c->srcPitch, c->WidthInBytes);
}

static void run_one(CUstream list, CUstream wanted);

static void run_graph(CUgraphExec exec)
{
    size_t left = 0;
    for (CUstream s = exec->part; s; s = s->all) {
        s->next = 0;
        left += s->n;
        for (size_t i = 0; i < s->n; i++)
            s->work[i]->done = false;
    }
    while (left-- > 0)
        run_one(exec->part, NULL);
}

static void run(Work *w)
{
    if (w->kind == KERNEL && !gpu.lost)
        run_kernel(w);
    else if (w->kind == COPY)
        run_copy(&w->copy);
    else if (w->kind == FILL)
        memset(pointer(w->copy.dstDevice), (int)w->copy.Height, w->copy.WidthInBytes);
    else if (w->kind == GRAPH)
        run_graph(w->graph);
    w->when = now();
    w->done = true;
}

static bool ready(CUstream s)
{
    const Work *w = s->next < s->n ? s->work[s->next] : NULL;
    return w && (w->kind != WAIT || !w->target || w->target->done);
}

/* Something of a stream that is ready: any, or without a seed the one that is asked for, if it can. */
static void run_one(CUstream list, CUstream wanted)
{
    int n = 0;
    CUstream chosen = NULL;
    for (CUstream s = list; s; s = s->all)
        if (ready(s) && draw() % (uint64_t)++n == 0)
            chosen = s;
    if (!*setting("FAKE_CUDA_SEED") && wanted && ready(wanted))
        chosen = wanted;
    if (!chosen)
        violation("streams wait for each other");
    run(chosen->work[chosen->next++]);
}

CUresult cuStreamSynchronize(CUstream s)
{
    check_context();
    if (s->capture)
        violation("what is captured is waited for");
    while (s->next < s->n)
        run_one(gpu.stream, s);
    check_zones();
    return gpu.lost ? LAUNCH_FAILED : 0;
}

/* ---- work --------------------------------------------------------------------------------------- */

CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                        unsigned bz, unsigned shared, CUstream s, void **arg, void **extra)
{
    if (gx == 0 || gy != 1 || gz != 1 || by != 1 || bz != 1 || shared || extra || (int)bx > f->of->block ||
        f->of->params > ARGS)
        return INVALID_VALUE;
    Work *w = enqueue(s, KERNEL);
    w->of = f->of;
    w->kernel = f->kernel;
    w->shim = f->shim;
    w->grid = gx;
    w->block = bx;
    gpu.launched = true;
    for (int i = 0; i < f->of->params; i++) {
        w->arg[i] = *(void **)arg[i];
        const Block *b = block_at(w->arg[i], 0);
        if (w->arg[i] && (!b || !b->device))
            violation("an operand of a kernel lies outside of the device's memory");
    }
    return gpu.lost ? LAUNCH_FAILED : 0;
}

static void check_inside(CUdeviceptr at, size_t pitch, const CUDA_MEMCPY2D *c)
{
    if (c->Height && !block_at(pointer(at), (c->Height - 1) * pitch + c->WidthInBytes))
        violation("a copy leaves what is allocated");
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *c, CUstream s)
{
    enum { PITCH = INT32_MAX };
    if (c->srcMemoryType != CU_MEMORYTYPE_UNIFIED || c->dstMemoryType != CU_MEMORYTYPE_UNIFIED ||
        c->srcPitch < c->WidthInBytes || c->dstPitch < c->WidthInBytes || c->srcPitch > PITCH ||
        c->dstPitch > PITCH)
        return INVALID_VALUE;
    check_inside(c->srcDevice, c->srcPitch, c);
    check_inside(c->dstDevice, c->dstPitch, c);
    enqueue(s, COPY)->copy = *c;
    return 0;
}

static CUDA_MEMCPY2D row(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return (CUDA_MEMCPY2D){.srcDevice = from, .dstDevice = to, .WidthInBytes = bytes, .Height = 1};
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s)
{
    CUDA_MEMCPY2D c = row(to, from, bytes);
    check_inside(from, 0, &c);
    check_inside(to, 0, &c);
    enqueue(s, COPY)->copy = c;
    return 0;
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream s)
{
    CUDA_MEMCPY2D c = row(to, 0, bytes);
    check_inside(to, 0, &c);
    Work *w = enqueue(s, COPY);
    w->staged = memcpy(malloc(bytes + 1), from, bytes);
    c.srcDevice = (CUdeviceptr)(uintptr_t)w->staged;
    w->copy = c;
    return gpu.lost ? LAUNCH_FAILED : 0;
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream s)
{
    CUDA_MEMCPY2D c = row((CUdeviceptr)(uintptr_t)to, from, bytes);
    check_inside(from, 0, &c);
    enqueue(s, COPY)->copy = c;
    return gpu.lost ? LAUNCH_FAILED : 0;
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream s)
{
    CUDA_MEMCPY2D c = row(to, 0, bytes);
    check_inside(to, 0, &c);
    c.Height = value;
    enqueue(s, FILL)->copy = c;
    return 0;
}
