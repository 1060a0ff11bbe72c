/* info.c -- describes a GPU that is here as a device to plan for. */
#include "cuda.h"
#include "product.h"
#include <ctype.h>
#include <stdatomic.h>
#include <string.h>

static bool get_device(const CudaDriver *cu, int ordinal, CUdevice *device, Diag *d)
{
    int n = 0;
    TRY(CUDA_CALL(cu, cuDeviceGetCount, &n));
    if (ordinal >= n)
        return fail_status(d, EXIT_DEVICE, "cuda: there is no device %d: %d here, counted from 0", ordinal,
                           n);
    return CUDA_CALL(cu, cuDeviceGet, device, ordinal);
}

int cuda_attribute(const CudaDriver *cu, CUdevice device, CUdevice_attribute which)
{
    int v = 0;
    return cu->cuDeviceGetAttribute(&v, which, device) == 0 ? v : 0;
}

int cuda_capability(const CudaDriver *cu, CUdevice device)
{
    return 10 * cuda_attribute(cu, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
           cuda_attribute(cu, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
}

bool cuda_has_wgmma(const CudaDriver *cu, CUdevice device)
{
    enum { KNOWN_SINCE = 12 };
    const Nvrtc *rtc = cuda_nvrtc(cu, &(Diag){0});
    return cuda_capability(cu, device) == CUDA_WGMMA_CAPABILITY && (!rtc || rtc->major >= KNOWN_SINCE);
}

bool cuda_context_open(CudaContext *x, int ordinal, Diag *d)
{
    x->cu = cuda_driver(d);
    return x->cu && get_device(x->cu, ordinal, &x->device, d) &&
           CUDA_CALL(x->cu, cuDevicePrimaryCtxRetain, &x->context, x->device);
}

void cuda_context_close(CudaContext *x)
{
    if (x->context)
        x->cu->cuDevicePrimaryCtxRelease_v2(x->device);
    x->context = NULL;
}

bool cuda_context_enter(const CudaContext *x, Diag *d)
{
    return !x->context || CUDA_CALL(x->cu, cuCtxPushCurrent_v2, x->context);
}

bool cuda_context_leave(const CudaContext *x, bool ok)
{
    CUcontext left;
    if (x->context)
        x->cu->cuCtxPopCurrent_v2(&left);
    return ok;
}

/* ---- GPUs that have a file in devices/ ---------------------------------------------------------- */

/* Does s begin with words that joined are the name?  "RTX 4090" is rtx4090, "L40S" is not l4. */
static bool begins_with(const char *s, const char *name)
{
    while (*name && *s) {
        if (tolower((unsigned char)*s) == *name)
            name++;
        else if (isalnum((unsigned char)*s))
            return false;
        s++;
    }
    return !*name && !isalnum((unsigned char)*s);
}

static const char *find_file(const char *title)
{
    for (const DeviceText *t = device_texts; t->name; t++)
        for (const char *s = title; *s; s++)
            if ((s == title || !isalnum((unsigned char)s[-1])) && begins_with(s, t->name))
                return t->name;
    return NULL;
}

/* ---- other GPUs --------------------------------------------------------------------------------- */

/* Operations per multiprocessor and clock, a multiply-add counting as two, from this compute capability on:
 * NVIDIA's programming guide ("arithmetic instructions") and architecture white papers. */
static const struct {
    int capability, f32, f64, half; /* half: 16 bits, in tensor cores */
} rates[] = {{120, 256, 4, 1024}, {100, 256, 128, 8192}, {90, 256, 128, 4096}, {86, 256, 4, 1024},
             {80, 128, 64, 2048}, {75, 128, 4, 1024},    {70, 128, 64, 1024},  {0, 128, 64, 128}};

static double attribute_or(const CudaDriver *cu, CUdevice device, CUdevice_attribute which, double otherwise)
{
    int v = cuda_attribute(cu, device, which);
    return v > 0 ? v : otherwise;
}

/* Describes a GPU without a device file, from its clocks or, if these are unknown, from usual ones. */
static bool estimate(const CudaDriver *cu, CUdevice device, int64_t memory, DeviceInfo *out, Arena *a,
                     Diag *d)
{
    enum { AMPERE = 80, CLOCK = 1500000, MEMORY_CLOCK = 5000000, WIDTH = 256 };
    int i = 0, capability = cuda_capability(cu, device);
    while (rates[i].capability > capability)
        i++;
    double processors = cuda_attribute(cu, device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    double clock = 1e-6 * attribute_or(cu, device, CU_DEVICE_ATTRIBUTE_CLOCK_RATE, CLOCK) * processors;
    double width = attribute_or(cu, device, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, WIDTH);
    double memory_clock =
        1e-6 * attribute_or(cu, device, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, MEMORY_CLOCK);
    const char *text = arena_printf(
        a,
        "device estimated \"\" memory %lld B reserved %lld B align 256 B vector f32 %g GFLOP/s vector f64 %g "
        "GFLOP/s matrix bf16 %g GFLOP/s matrix f16 %g GFLOP/s memory_bandwidth %g GB/s memory_efficiency 85 "
        "%% "
        "host_link 12 GB/s launch 1 us",
        (long long)memory, (long long)(memory / 64), clock * rates[i].f32, clock * rates[i].f64,
        clock * rates[i].half, clock * rates[i].half, memory_clock * 2 * width / 8);
    bool ok = device_parse(out, text, a, d);
    out->tf32 = capability >= AMPERE ? clock * rates[i].half / 2 : 0;
    return ok;
}

enum { LEAST_CAPABILITY = 80 }; /* the oldest compute capability that kernels are written for */

static bool ask_epilogues(const CudaContext *on, bool *has, Diag *d)
{
    ProductLibrary lib = {0};
    bool ok = products_open(&lib, on->cu, on->device, d) && lib.lt;
    *has = ok && products_have_epilogues(&lib);
    products_close(&lib);
    return ok;
}

/* Does the library have the epilogues?  Asked once per process (threads that come at the same time may all
 * ask, with the same answer); if the GPU cannot be asked now, the answer of its device file. */
static int64_t find_epilogues(int ordinal, int64_t by_file)
{
    enum { DEVICES = 64 };
    static _Atomic int8_t known[DEVICES]; /* 1: no, 2: yes */
    Diag none = {0}, *d = &none;
    CudaContext on = {0};
    bool has = false;
    int8_t is = known[ordinal % DEVICES];
    if (!is && cuda_context_open(&on, ordinal, d) && IN_CONTEXT(&on, ask_epilogues(&on, &has, d)))
        known[ordinal % DEVICES] = is = has ? 2 : 1;
    cuda_context_close(&on);
    return is ? is - 1 : by_file;
}

bool cuda_info(int ordinal, DeviceInfo *out, Arena *a, Diag *d)
{
    char name[128] = "";
    size_t memory = 0;
    CUdevice device = 0;
    const CudaDriver *cu = cuda_driver(d);
    TRY(cu && get_device(cu, ordinal, &device, d) &&
        CUDA_CALL(cu, cuDeviceGetName, name, sizeof name, device) &&
        CUDA_CALL(cu, cuDeviceTotalMem_v2, &memory, device));
    if (cuda_capability(cu, device) < LEAST_CAPABILITY)
        return fail_status(d, EXIT_DEVICE, "cuda: %s has compute capability %.1f: 8.0 is needed", name,
                           0.1 * cuda_capability(cu, device));
    const char *known = find_file(name);
    TRY(known ? device_find(out, known, a, d) : estimate(cu, device, (int64_t)memory, out, a, d));
    out->name = "cuda";
    out->title = arena_printf(a, "%s%s%s", name, known ? "" : " (estimated)",
                              cuda_cublaslt(cu, &(Diag){0}) ? "" : ", without cuBLASLt");
    out->memory = (int64_t)memory;
    out->cache = cuda_attribute(cu, device, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
    out->capability = cuda_capability(cu, device);
    out->epilogues = find_epilogues(ordinal, out->epilogues);
    out->processors = cuda_attribute(cu, device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    out->threads = cuda_attribute(cu, device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
    out->shared_memory = cuda_attribute(cu, device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    return true;
}

bool cuda_complete(Diag *d)
{
    const CudaDriver *cu = cuda_driver(d);
    return cu && cuda_nvrtc(cu, d) && cuda_cublaslt(cu, d);
}

static bool free_bytes(CudaContext *x, int ordinal, size_t *bytes, Diag *d)
{
    size_t all;
    return cuda_context_open(x, ordinal, d) &&
           IN_CONTEXT(x, CUDA_CALL(x->cu, cuMemGetInfo_v2, bytes, &all));
}

const char *cuda_about(int ordinal, Arena *a)
{
    Diag d = {0};
    size_t bytes = 0;
    CudaContext x = {0};
    bool ok = free_bytes(&x, ordinal, &bytes, &d);
    cuda_context_close(&x);
    if (!ok)
        return arena_printf(a, "%s", d.msg);
    const CudaDriver *cu = x.cu;
    const Nvrtc *rtc = cuda_nvrtc(cu, &d);
    const char *compiler = rtc ? arena_printf(a, "NVRTC %d.%d", rtc->major, rtc->minor) : d.msg;
    Diag why = {0};
    const CublasLt *lt = cuda_cublaslt(cu, &why);
    const char *products = lt ? arena_printf(a, "cuBLASLt %d.%d.%d", lt->version / 10000,
                                             lt->version / 100 % 100, lt->version % 100) : why.msg;
    return arena_printf(a, "cuda:%d: %zu bytes free, driver for CUDA %d.%d, %s, %s", ordinal, bytes,
                        cu->version / 1000, cu->version % 1000 / 10, compiler, products);
}
