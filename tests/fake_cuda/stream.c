/* stream.c -- the fake driver's streams, events and graphs, and the work that is enqueued in them.  Events
 * tell the time that an imagined GPU would take, the same on every machine, so that plans are the same. */
#include "gpu.h"
#include "shim/shadow.h"

/* ---- clocks ------------------------------------------------------------------------------------- */

static unsigned new_number(void)
{
    if (gpu.streams == STREAMS)
        violation("too many streams and graphs for the clocks of a test");
    return gpu.streams++;
}

static void join(Clock *c, const Clock *with)
{
    for (unsigned i = 0; with && i < gpu.streams; i++)
        c->of[i] = with->of[i] > c->of[i] ? with->of[i] : c->of[i];
}

static Clock *copy_of(const Clock *c)
{
    return c ? memcpy(malloc(sizeof *c), c, sizeof *c) : calloc(1, sizeof *c);
}

/* The host has waited for all that is in c: what it enqueues from now on comes after that. */
static void host_saw(const Clock *c)
{
    Clock *next = copy_of(gpu.host);
    join(next, c);
    next->all = gpu.host;
    gpu.host = next;
}

void check_access(const void *at, size_t bytes, bool write)
{
    if (!shadow_touch(at, bytes, write))
        violation(write ? "what is written is used by work of another stream that is not waited for"
                        : "what is read is written by work of another stream that is not waited for");
}

/* ---- streams and events ------------------------------------------------------------------------- */

CUresult cuStreamCreate(CUstream *s, unsigned flags)
{
    check_step("a stream is made in a step");
    *s = calloc(1, sizeof **s);
    (*s)->number = new_number();
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
    gpu.launched = gpu.launched && gpu.stream; /* without a stream there is no step */
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
    w->host = s->capture ? NULL : gpu.host;
    w->all = gpu.work;
    gpu.work = w;
    if (s->n == s->cap) {
        s->cap = 2 * s->cap + 16;
        s->work = realloc(s->work, s->cap * sizeof *s->work);
    }
    return s->work[s->n++] = w;
}

void enqueue_call(CUstream s, void (*call)(void *), void *staged, double seconds)
{
    Work *w = enqueue(s, CALL);
    w->call = call;
    w->seconds = seconds;
    w->staged = staged;
    gpu.launched = true;
}

CUresult cuEventRecord(CUevent e, CUstream s)
{
    e->last = enqueue(s, RECORD);
    e->stream = s;
    return gpu.lost ? LAUNCH_FAILED : 0;
}

/* A stream that waits for a captured event is captured as well. */
CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned flags)
{
    if (++gpu.waits == (unsigned)atoi(setting("FAKE_CUDA_DROP")))
        return 0;
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

/* Is s the origin of its capture, or its last captured work an event that the origin waits for? */
static bool joined(CUstream s)
{
    CUstream origin = s->capture->origin;
    const Work *last = s->work[s->n - 1];
    for (size_t i = origin->before; i < origin->n; i++)
        if (origin->work[i]->kind == WAIT && origin->work[i]->target == last)
            return true;
    return s == origin;
}

/* Moves what was captured out of stream s into a new one, the first of the list whose rest is `next`. */
static CUstream take_part(CUstream s, CUstream next)
{
    CUstream part = calloc(1, sizeof *part);
    part->number = new_number();
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

/* The parts move from the graph to *exec. */
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
    shadow_add(w->staged, (size_t)w->of->table * sizeof(void *), SHADOW_IGNORED); /* it is a parameter */
    bool ok = w->of->waits
                  ? fiber_launch_kernel(w->shim, w->kernel, w->arg, w->grid, w->block, w->shared, gpu.random)
                  : thread_launch_kernel(w->shim, w->kernel, w->arg, w->grid, w->block, gpu.random);
    shadow_remove(w->staged);
    if (!ok) {
        char what[sizeof w->shim->error + 80];
        snprintf(what, sizeof what, "%s: %s", w->of->name, w->shim->error);
        violation(what);
    }
    gpu.lost = gpu.lost || (mode("lost") && ++gpu.launches > LOST_AFTER);
}

static void run_call(const Work *w)
{
    w->call(w->staged);
    gpu.lost = gpu.lost || (mode("lost") && ++gpu.launches > LOST_AFTER);
}

static void run_copy(const CUDA_MEMCPY2D *c)
{
    for (size_t i = 0; i < c->Height; i++) {
        char *to = (char *)pointer(c->dstDevice) + i * c->dstPitch;
        const char *from = (char *)pointer(c->srcDevice) + i * c->srcPitch;
        check_access(from, c->WidthInBytes, false);
        check_access(to, c->WidthInBytes, true);
        memmove(to, from, c->WidthInBytes);
    }
}

static void run_fill(const CUDA_MEMCPY2D *c)
{
    check_access(pointer(c->dstDevice), c->WidthInBytes, true);
    memset(pointer(c->dstDevice), (int)c->Height, c->WidthInBytes);
}

static void run_one(CUstream list, CUstream wanted);

static void run_graph(CUgraphExec exec, CUstream in)
{
    size_t left = 0;
    for (CUstream s = exec->part; s; s = s->all) {
        s->next = 0;
        join(&s->clock, &in->clock);
        left += s->n;
        for (size_t i = 0; i < s->n; i++)
            s->work[i]->done = false;
    }
    while (left-- > 0)
        run_one(exec->part, NULL);
    for (CUstream s = exec->part; s; s = s->all)
        join(&in->clock, &s->clock);
}

static double seconds_of(const Work *w)
{
    const double load = w->first && *setting("FAKE_CUDA_LATE") ? 1 : 0;
    const double start = 2e-6, thread = 1e-7, byte = 1e-10;
    const double rows = w->kind == COPY ? (double)w->copy.Height : 1;
    switch (w->kind) {
    case KERNEL: return load + start + thread * w->grid * w->block;
    case CALL: return start + w->seconds;
    case COPY:
    case FILL: return start + byte * (double)w->copy.WidthInBytes * rows;
    default: return 0;
    }
}

static void run(Work *w, CUstream s)
{
    join(&s->clock, w->host);
    if (w->kind == WAIT && w->target)
        join(&s->clock, w->target->seen);
    s->clock.of[s->number]++;
    shadow_work(s->number, s->clock.of);
    if (w->kind == KERNEL && !gpu.lost)
        run_kernel(w);
    else if (w->kind == CALL && !gpu.lost)
        run_call(w);
    else if (w->kind == COPY)
        run_copy(&w->copy);
    else if (w->kind == FILL)
        run_fill(&w->copy);
    else if (w->kind == GRAPH)
        run_graph(w->graph, s);
    else if (w->kind == RECORD) {
        free(w->seen);
        w->seen = copy_of(&s->clock);
    }
    w->when = gpu.now += seconds_of(w);
    w->done = true;
}

static bool ready(CUstream s)
{
    const Work *w = s->next < s->n ? s->work[s->next] : NULL;
    return w && (w->kind != WAIT || !w->target || w->target->done);
}

/* Runs the next work of a stream of the list that is ready: a random one, or without a seed `wanted` if that
 * is ready. */
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
    run(chosen->work[chosen->next++], chosen);
}

CUresult cuStreamSynchronize(CUstream s)
{
    check_context();
    if (s->capture)
        violation("what is captured is waited for");
    while (s->next < s->n)
        run_one(gpu.stream, s);
    host_saw(&s->clock);
    check_zones();
    return gpu.lost ? LAUNCH_FAILED : 0;
}

CUresult cuEventSynchronize(CUevent e)
{
    check_context();
    while (e->last && !e->last->done)
        run_one(gpu.stream, e->stream);
    host_saw(e->last ? e->last->seen : NULL);
    check_zones();
    return gpu.lost ? LAUNCH_FAILED : 0;
}

/* ---- work --------------------------------------------------------------------------------------- */

static void check_operand(const void *at)
{
    const Block *b = block_at(at, 0);
    if (at && (!b || !b->device))
        violation("an operand of a kernel lies outside of the device's memory");
}

/* Copies a kernel's table, as arguments are taken by value, and checks the pointers in it; numbers in it are
 * small. */
static void take_table(Work *w, void *table)
{
    size_t n = (size_t)w->of->table;
    void **own = w->staged = w->arg[0] = malloc(n * sizeof *own);
    memcpy(own, table, n * sizeof *own);
    for (size_t i = 0; i < n; i++)
        if ((uintptr_t)own[i] > UINT32_MAX)
            check_operand(own[i]);
}

CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                        unsigned bz, unsigned shared, CUstream s, void **arg, void **extra)
{
    if (gx == 0 || gy != 1 || gz != 1 || by != 1 || bz != 1 || shared > f->shared || extra ||
        (int)bx > f->of->block ||
        f->of->params > ARGS)
        return INVALID_VALUE;
    Work *w = enqueue(s, KERNEL);
    w->of = f->of;
    w->kernel = f->kernel;
    w->shim = f->shim;
    w->grid = gx;
    w->block = bx;
    w->shared = shared;
    w->first = !f->launched;
    gpu.launched = f->launched = true;
    if (f->of->table)
        take_table(w, arg[0]);
    for (int i = f->of->table > 0; i < f->of->params; i++) {
        w->arg[i] = *(void **)arg[i];
        if (i < f->of->pointers)
            check_operand(w->arg[i]);
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
    const size_t most = (size_t)pitch_limit();
    if (c->srcMemoryType != CU_MEMORYTYPE_UNIFIED || c->dstMemoryType != CU_MEMORYTYPE_UNIFIED ||
        c->srcPitch < c->WidthInBytes || c->dstPitch < c->WidthInBytes || c->srcPitch > most ||
        c->dstPitch > most)
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
    if (!block_at(from, bytes)) /* pageable memory may change once this returns; pinned is read later */
        from = w->staged = memcpy(malloc(bytes + 1), from, bytes);
    c.srcDevice = (CUdeviceptr)(uintptr_t)from;
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
