/* driver.c -- a libcuda for tests: one GPU whose kernels are run by the processor (nvrtc.c, ../shim).
 *
 * Enqueued work runs when somebody waits for it, streams in any order that their events allow.  What a
 * program must not do ends the test (violation()): touch memory outside of what it allocated, allocate in a
 * step, leave something behind.  Variables of the environment:
 *
 *   FAKE_CUDA=no_device | old_driver | lost   no GPU; a driver for CUDA 11.4; an error in the third launch
 *             no_clocks                       the GPU does not say how fast it is
 *   FAKE_CUDA_NAME, FAKE_CUDA_MEMORY          the GPU's name; bytes of its memory
 *   FAKE_CUDA_CAPABILITY                      80, 90 or another: which tensor cores and shared memory it has
 *   FAKE_CUDA_OTHERS                          bytes of its memory that other programs use
 *   FAKE_CUDA_PITCH                           most bytes between rows that one call copies
 *   FAKE_CUDA_SEED                            seed of a random order of streams; not set: the one waited for
 *                                             runs first
 *   FAKE_CUDA_DROP                            the number, from 1, of the wait for an event that is left out
 *   FAKE_CUDA_LATE=1                          a kernel's first launch takes a second more, for loading it
 *   FAKE_CUDA_FAST=1                          accesses to memory are not checked (shadow.h), for long runs */
#include "gpu.h"
#include "shim/shadow.h"
#include <dlfcn.h>
#include <stdatomic.h>
#include <unistd.h>

Gpu gpu;

void violation(const char *what)
{
    fprintf(stderr, "fake cuda: %s\n", what);
    abort();
}

const char *setting(const char *name)
{
    const char *v = getenv(name);
    return v ? v : "";
}

bool mode(const char *name) { return strcmp(setting("FAKE_CUDA"), name) == 0; }

static size_t memory_bytes(void)
{
    const char *v = setting("FAKE_CUDA_MEMORY");
    return *v ? (size_t)strtoull(v, NULL, 10) : MEMORY;
}

static int capability(void)
{
    int v = atoi(setting("FAKE_CUDA_CAPABILITY"));
    return v ? v : 80;
}

/* Most bytes of shared memory of a block, from the CUDA programming guide. */
static int shared_memory(void)
{
    int v = capability();
    return (v < 80 ? 64 : v == 80 || v == 87 ? 163 : v < 90 || v >= 120 ? 99 : 227) << 10;
}

int pitch_limit(void)
{
    const char *v = setting("FAKE_CUDA_PITCH");
    return *v ? atoi(v) : INT32_MAX;
}

/* Bytes of the GPU's memory that are free. */
static size_t memory_left(void)
{
    size_t others = (size_t)strtoull(setting("FAKE_CUDA_OTHERS"), NULL, 10);
    return memory_bytes() - gpu.used - others;
}

/* ---- the device --------------------------------------------------------------------------------- */

static atomic_int inits;
EXPORT int fake_cuda_inits(void); /* how often cuInit() was called */
int fake_cuda_inits(void) { return inits; }

CUresult cuInit(unsigned flags)
{
    inits++;
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

/* NVIDIA's NVRTC calls this where there is a driver, and is content with an error. */
EXPORT CUresult cuGetExportTable(const void **table, const void *id);
CUresult cuGetExportTable(const void **table, const void *id)
{
    *table = NULL;
    return id ? NOT_FOUND : INVALID_VALUE;
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
    const int clock = mode("no_clocks") ? 0 : 1000000;
    const int value[][2] = {{CU_DEVICE_ATTRIBUTE_MAX_PITCH, pitch_limit()},
                                   {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, clock},
                                   {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 4},
                                   {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, clock},
                                   {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 256},
                                   {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 4 << 20},
                                   {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
                                   {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, shared_memory()},
                                   {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, capability() / 10},
                                   {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, capability() % 10}};
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

/* How often the only context is on the calling thread's stack of current ones. */
static _Thread_local int current;
EXPORT int fake_cuda_current(void);
int fake_cuda_current(void) { return current; }

void check_context(void)
{
    if (!gpu.retained || !current)
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
        free(w->seen);
        free(w);
    }
    for (Clock *c = gpu.host, *next; c; c = next) {
        next = c->all;
        free(c);
    }
    shadow_forget_work();
    for (struct CUfunc_st *f = gpu.function, *next; f; f = next) {
        next = f->all;
        free(f);
    }
    gpu.work = NULL;
    gpu.host = NULL;
    gpu.streams = gpu.waits = 0;
    gpu.function = NULL;
    gpu.launched = false;
    gpu.launches = 0;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    (void)device;
    if (!gpu.retained)
        violation("a context is released that was not retained");
    if (--gpu.retained > 0)
        return 0;
    if (gpu.block)
        violation("memory is left behind");
    if (gpu.objects)
        violation("streams, events or modules are left behind");
    if ((unsigned)atoi(setting("FAKE_CUDA_DROP")) > gpu.waits)
        fprintf(stderr, "fake cuda: %u waits\n", gpu.waits);
    free_all();
    return 0;
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    current++;
    return context && gpu.retained ? 0 : INVALID_VALUE;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    static char one;
    check_context();
    current--;
    *context = (CUcontext)(void *)&one;
    return 0;
}

CUresult cuMemGetInfo_v2(size_t *left, size_t *all)
{
    check_context();
    *all = memory_bytes();
    *left = memory_left();
    return 0;
}

/* ---- memory ------------------------------------------------------------------------------------- */

void check_step(const char *what)
{
    check_context();
    if (gpu.launched)
        violation(what);
}

/* Allocates a block that is aligned to 256 bytes and not to 512, between zones that nobody may write. */
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
    shadow_add(b->at, bytes, device ? SHADOW_GLOBAL : SHADOW_HOST);
    return b->at;
}

void check_zones(void)
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
            shadow_remove(found->at);
            free(found->at - ZONE);
            free(found);
            return 0;
        }
    violation("what is freed was not allocated");
    return INVALID_VALUE;
}

const Block *block_at(const void *at, size_t bytes)
{
    const char *p = at;
    for (const Block *b = gpu.block; b; b = b->next)
        if (p >= b->at && p + bytes <= b->at + b->bytes)
            return b;
    return NULL;
}

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
    /* The header of an object tells where its section headers are, which are its end. */
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
    (*m)->shim.capability = capability();
    shadow_add_object(dlsym((*m)->dl, "shim_memory"));
    gpu.objects++;
    return 0;
}

CUresult cuModuleUnload(CUmodule m)
{
    shadow_remove_object(dlsym(m->dl, "shim_memory"));
    dlclose(m->dl);
    free(m);
    gpu.objects--;
    return 0;
}

CUresult cuModuleGetFunction(CUfunction *fn, CUmodule m, const char *name)
{
    char of[128];
    snprintf(of, sizeof of, "fake_%s", name);
    struct CUfunc_st f = {dlsym(m->dl, name), dlsym(m->dl, of), &m->shim, SHARED, gpu.function, false};
    if (!f.kernel || !f.of)
        return INVALID_VALUE;
    *fn = gpu.function = memcpy(malloc(sizeof f), &f, sizeof f);
    return 0;
}

/* Sets the bytes of dynamic shared memory, for which the kernel's __shared__ variables leave room. */
CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute which, int value)
{
    check_step("a function is changed in a step");
    if (which != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 ||
        value > shared_memory() - f->of->shared)
        return INVALID_VALUE;
    f->shared = (unsigned)value > SHARED ? (unsigned)value : SHARED;
    return 0;
}
