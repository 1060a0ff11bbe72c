/* compile.c -- from kernels to functions of a GPU: NVRTC compiles CUDA C to machine code of the device, never
 * to PTX, which every driver would translate in its own way.  The results are kept in the cache of kernels,
 * keyed by text, options, device and NVRTC. */
#include "cuda.h"
#include "ir/mem.h"
#include "runtime/kernels.h"
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

typedef struct {
    const CudaDriver *cu;
    const Nvrtc *rtc;
    char arch[40];
    int shared; /* bytes of shared memory that a block may have */
    KernelObjects *objects;
    Arena *arena; /* for the functions */
    const char *why;
} Compiler;

/* Sums keep their order, and nothing is contracted to fused multiply-adds; fmaf in the text remains one. */
static const char no_contraction[] = "--fmad=false";
static const char standard[] = "--std=c++17"; /* the default of NVRTC 12 and 13 */

/* ---- NVRTC -------------------------------------------------------------------------------------- */

/* Name of the kernel with a line of the source, by the last mark before it; NULL: it is in the prelude. */
static const char *kernel_at(const char *source, long line, char name[64])
{
    const char *found = NULL;
    for (const char *s = source; s && line > 0; line--) {
        if (sscanf(s, "/* kernel %60s", name) == 1)
            found = name;
        s = strchr(s, '\n');
        s = s ? s + 1 : NULL;
    }
    return found;
}

/* Fails with the first error of the log, "kernels.cu(123): error: ...", and the kernel that it is in. */
static void compile_error(const char *source, const char *log, Diag *d)
{
    char name[64] = "";
    const char *error = strstr(log, "error");
    const char *start = error ? error : log;
    while (start > log && start[-1] != '\n')
        start--;
    const char *bracket = strchr(start, '(');
    long line = bracket ? strtol(bracket + 1, NULL, 10) : 0;
    const char *kernel = kernel_at(source, line, name);
    fail_status(d, EXIT_DEVICE, "cuda: NVRTC failed on generated kernels%s%s: %.*s", kernel ? ", in " : "",
                kernel ? kernel : "", (int)strcspn(start, "\n"), start);
}

static bool rtc_ok(nvrtcResult r, const char *call, Diag *d)
{
    return r == 0 || fail_status(d, EXIT_DEVICE, "cuda: %s failed: error %d", call, r);
}

static bool fail_with_log(const Compiler *x, nvrtcProgram program, const char *source, Diag *d)
{
    size_t n = 0;
    TRY(rtc_ok(x->rtc->nvrtcGetProgramLogSize(program, &n), "nvrtcGetProgramLogSize", d));
    char *log = mem_new(n + 1, 1);
    if (rtc_ok(x->rtc->nvrtcGetProgramLog(program, log), "nvrtcGetProgramLog", d))
        compile_error(source, log, d);
    free(log);
    return false;
}

/* Compiles a program to *cubin, *n bytes, which the caller frees even after a failure. */
static bool compile(const Compiler *x, nvrtcProgram program, const char *source, char **cubin, size_t *n,
                    Diag *d)
{
    const char *const option[] = {x->arch, no_contraction, standard};
    if (x->rtc->nvrtcCompileProgram(program, 3, option) != 0)
        return fail_with_log(x, program, source, d);
    TRY(rtc_ok(x->rtc->nvrtcGetCUBINSize(program, n), "nvrtcGetCUBINSize", d));
    *cubin = mem_new(*n + 1, 1);
    return rtc_ok(x->rtc->nvrtcGetCUBIN(program, *cubin), "nvrtcGetCUBIN", d);
}

/* ---- the cache ---------------------------------------------------------------------------------- */

static const char suffix[] = ".cubin";

static bool keep(const KernelCache *c, const char *cubin, size_t n, const KernelKey *key, int nkey, Diag *d)
{
    char path[PATH_MAX + 32];
    Temp tmp;
    TRY(cache_folder_scratch(&c->folder, &tmp, d));
    snprintf(path, sizeof path, "%s/out%s", tmp.path, suffix);
    bool ok = cache_file_put(path, cubin, n, d) && kernel_cache_keep(c, path, key, nkey, suffix, d);
    temp_remove(&tmp);
    return ok;
}

static bool add(void *on, const KernelCache *c, const char *source, const KernelKey *key, int n, Diag *d)
{
    const Compiler *x = on;
    nvrtcProgram program = NULL;
    char *cubin = NULL;
    size_t size = 0;
    TRY(rtc_ok(x->rtc->nvrtcCreateProgram(&program, source, "kernels.cu", 0, NULL, NULL),
               "nvrtcCreateProgram", d));
    bool ok = compile(x, program, source, &cubin, &size, d) && keep(c, cubin, size, key, n, d);
    x->rtc->nvrtcDestroyProgram(&program);
    free(cubin);
    return ok;
}

static void *open_module(void *on, const CacheFolder *c, const char *name)
{
    Compiler *x = on;
    CUmodule module = NULL;
    char *cubin = NULL;
    cache_file_check(c, name, &cubin);
    CUresult r = cubin ? x->cu->cuModuleLoadData(&module, cubin) : 0;
    free(cubin);
    if (r != 0)
        x->cu->cuGetErrorString(r, &x->why);
    return r == 0 ? module : NULL;
}

static bool find_phase(Compiler *x, CUmodule module, const char *name, const CudaPhase *phase, CUfunction *fn)
{
    CUresult r = x->cu->cuModuleGetFunction(fn, module, name);
    if (r == 0 && phase->shared > (unsigned)x->shared) {
        x->why = arena_printf(x->arena,
                              "a block needs %u bytes of shared memory, and this GPU has %d: plan the "
                              "model again",
                              phase->shared, x->shared);
        return false;
    }
    if (r == 0 && phase->shared)
        r = x->cu->cuFuncSetAttribute(*fn, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                      (int)phase->shared);
    if (r != 0)
        x->cu->cuGetErrorString(r, &x->why);
    return r == 0;
}

static void *find(void *on, const KernelCache *c, const KernelKey *key, const Kernel *k, const char *name)
{
    Compiler *x = on;
    char phase[CUDA_NAME];
    CUmodule module = kernel_cache_object(c, key, suffix, x->objects, open_module, x);
    if (!module)
        return NULL;
    CudaKernel *found = NEW(x->arena, CudaKernel, 1);
    CudaLaunch l = kernel_cuda_launch(k);
    bool ok = true;
    for (int i = 0; i < l.n && ok; i++)
        ok = find_phase(x, module, cuda_phase_name(name, i, phase), &l.phase[i], &found->fn[i]);
    return ok ? found : NULL;
}

static const char *why(void *on)
{
    const Compiler *x = on;
    return x->why ? x->why : "not found in the cache";
}

/* Hash of everything except the text that a compiled kernel depends on. */
static uint64_t hash_compiler(const Compiler *x)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = mem_stream(&text, &size);
    codegen_prelude_cuda(f);
    fprintf(f, "%s %s %s %d.%d %llx", x->arch, no_contraction, standard, x->rtc->major, x->rtc->minor,
            (unsigned long long)x->rtc->hash);
    mem_stream_end(f);
    uint64_t h = XXH3_64bits(text, size);
    free(text);
    return h;
}

static bool load(Compiler *x, const KernelCache *cache, const Kernel *const *k, int n,
                 const CudaKernel **out, Diag *d)
{
    const KernelTarget target = {hash_compiler(x), codegen_shared_cuda, kernel_print_cuda, find, why, add};
    void **found = mem_new((size_t)n, sizeof *found);
    bool ok = kernels_make(&target, x, cache, k, n, found, d);
    for (int i = 0; i < n && ok; i++)
        out[i] = found[i];
    free(found);
    return ok;
}

bool cuda_kernels_load(const CudaDriver *cu, CUdevice device, const KernelCache *cache,
                       const Kernel *const *k, int n, const CudaKernel **out, KernelObjects *o, Arena *a,
                       Diag *d)
{
    Compiler x = {
        .cu = cu,
        .rtc = cuda_nvrtc(cu, d),
        .shared = cuda_attribute(cu, device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
        .objects = o,
        .arena = a};
    TRY(x.rtc);
    snprintf(x.arch, sizeof x.arch, "--gpu-architecture=sm_%d%s", cuda_capability(cu, device),
             cuda_has_wgmma(cu, device) ? "a" : "");
    o->of = mem_new(2 * (size_t)n + 1, sizeof *o->of);
    o->n = 0;
    if (n == 0 || cache)
        return n == 0 || load(&x, cache, k, n, out, d);
    KernelCache own;
    TRY(kernel_cache_open(&own, NULL, d));
    bool ok = load(&x, &own, k, n, out, d);
    kernel_cache_close(&own);
    return ok;
}

void cuda_kernels_unload(const CudaDriver *cu, KernelObjects *o)
{
    for (int i = 0; i < o->n; i++)
        cu->cuModuleUnload(o->of[i].handle);
    free(o->of);
    *o = (KernelObjects){0};
}
