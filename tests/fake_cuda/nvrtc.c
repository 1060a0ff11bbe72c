/* nvrtc.c -- a libnvrtc for tests: it compiles with the host's C compiler and the shim, to a shared object
 * instead of machine code for a GPU, which also tells how to call each kernel (kernel.h).
 *
 * FAKE_NVRTC=error: the first kernel has an error.  FAKE_NVRTC=11: the library is CUDA 11's.
 * FAKE_CUDA_SHADOW=1: all accesses of kernels to memory are checked (shim/shadow.h). */
#include "runtime/cuda/driver.h"
#include "kernel.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct _nvrtcProgram {
    char *source, *log, *object;
    size_t size;
};

#define EXPORT __attribute__((visibility("default")))
#define RTC(name, ...) EXPORT nvrtcResult name(__VA_ARGS__);
#include "runtime/cuda/symbols.def"

enum { OUT_OF_MEMORY = 1, INVALID_INPUT = 3, COMPILATION = 6 };

static bool mode(const char *name)
{
    const char *is = getenv("FAKE_NVRTC");
    return is && strcmp(is, name) == 0;
}

static bool shadowed(void) { return getenv("FAKE_CUDA_SHADOW") != NULL; }

nvrtcResult nvrtcVersion(int *major, int *minor)
{
    *major = mode("11") ? 11 : 13;
    *minor = shadowed(); /* so that a cache keeps kernels of both kinds */
    return 0;
}

nvrtcResult nvrtcCreateProgram(nvrtcProgram *p, const char *source, const char *name, int n,
                               const char *const *header, const char *const *include)
{
    (void)name, (void)header, (void)include;
    *p = calloc(1, sizeof **p);
    if (!*p || n != 0)
        return OUT_OF_MEMORY;
    (*p)->source = strdup(source);
    return 0;
}

nvrtcResult nvrtcDestroyProgram(nvrtcProgram *p)
{
    free((*p)->source);
    free((*p)->log);
    free((*p)->object);
    free(*p);
    *p = NULL;
    return 0;
}

/* ---- the source for the host -------------------------------------------------------------------- */

/* Writes "+sizeof(float[16])" for every "__shared__ REAL part[16];" from at to end.  The last "#define REAL"
 * in front of at tells what REAL is. */
static void write_shared(FILE *f, const char *source, const char *at, const char *end)
{
    char real[16] = "float", type[16], size[64];
    for (const char *s = source; (s = strstr(s, "#define REAL ")) && s < at; s++)
        sscanf(s, "#define REAL %15s", real);
    for (; (at = strstr(at, "__shared__ ")) && at < end; at++)
        if (sscanf(at, "__shared__ %15s %*[a-z_0-9]%63[][0-9]", type, size) == 2)
            fprintf(f, "+sizeof(%s%s)", strcmp(type, "REAL") == 0 ? real : type, size);
}

static bool has(const char *from, const char *to, const char *word)
{
    const char *at = strstr(from, word);
    return at && at < to;
}

/* Do lanes wait for each other in the function of the kernel's items, which stands in front of the kernel? */
static bool items_wait(const char *source, const char *at, const char *name)
{
    char item[80];
    snprintf(item, sizeof item, "FN void %s_item(", name);
    const char *own = strstr(source, item);
    return own && own < at && has(own, at, "JOIN_LANES");
}

/* Writes the FakeKernel of the kernel at `at`, "GLOBAL void __launch_bounds__(256) NAME(const float *p0,
 * ...)", or (256, 2), and a check of the size of its __shared__ variables. */
static void write_kernel(FILE *f, const char *source, const char *at)
{
    char name[64];
    int block, n = 1, pointers = 0;
    if (sscanf(at, "GLOBAL void __launch_bounds__(%d%*[^)]) %63[a-z0-9A-Z_](", &block, name) != 2 &&
        sscanf(at, "GLOBAL void __launch_bounds__(%d) %63[a-z0-9A-Z_](", &block, name) != 2)
        return;
    const char *end = strstr(at, "\n}\n"), *close = strchr(strchr(at, '(') + 1, '(');
    int table = 0;
    if (sscanf(close, "(OPERANDS(%d", &table) == 1)
        close = strchr(close, ')') + 1;
    for (; *close != ')'; close++) {
        n += *close == ',';
        pointers += *close == '*';
    }
    bool waits = has(close, end, "JOIN_THREADS") || has(close, end, "__shared__") ||
                 has(close, end, "SHARED_BYTES") || has(close, end, "gather_") ||
                 items_wait(source, at, name);
    fprintf(f, "enum { SHARED_%s = 0", name);
    write_shared(f, source, at, end);
    fprintf(f, "};\n_Static_assert(SHARED_%s <= 48 << 10, \"%s uses too much shared data\");\n", name,
            name);
    fprintf(f, "const FakeKernel fake_%s = {\"%s\", %d, %d, %d, %d, %d, SHARED_%s};\n", name, name, n,
            pointers, block, waits, table, name);
}

static void write_source(FILE *f, char *source)
{
    char *at = strstr(source, "\nGLOBAL void");
    if (at && mode("error"))
        at[1] = '@';
    fprintf(f, "%s\nShimState *shim;\n#include \"fake_cuda/kernel.h\"\n%s", source,
            shadowed() ? "#include \"shadow_hooks.h\"\n" : "");
    for (; at; at = strstr(at + 1, "\nGLOBAL void"))
        write_kernel(f, source, at + 1);
}

/* ---- compiling ---------------------------------------------------------------------------------- */

static char *read_file(const char *folder, const char *name, size_t *size)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "r");
    char *text = NULL;
    *size = 0;
    for (size_t cap = 1 << 12; f && !feof(f); cap *= 2) {
        text = realloc(text, cap + 1);
        *size += fread(text + *size, 1, cap - *size, f);
    }
    if (f)
        fclose(f);
    if (text)
        text[*size] = '\0';
    return text;
}

/* The first error of the host's compiler in NVRTC's form, "kernels.cu(12): error: ..."; frees log.  A log
 * without errors, or NULL, is returned as it is. */
static char *translate_log(char *log)
{
    char *error = log ? strstr(log, "error:") : NULL, *out = NULL;
    if (!error)
        return log;
    while (error > log && error[-1] != '\n')
        error--;
    const char *line = strchr(error, ':');
    if (asprintf(&out, "kernels.cu(%ld): %.*s\n", line ? strtol(line + 1, NULL, 10) : 0,
                 (int)strcspn(strstr(error, "error:"), "\n"), strstr(error, "error:")) < 0)
        out = NULL;
    free(log);
    return out;
}

static nvrtcResult compile_in(nvrtcProgram p, const char *folder)
{
    char path[256], command[1024];
    size_t n;
    snprintf(path, sizeof path, "%s/k.c", folder);
    FILE *f = fopen(path, "w");
    if (!f)
        return COMPILATION;
    write_source(f, p->source);
    fclose(f);
    snprintf(command, sizeof command,
             "cd %s && cc -std=gnu11 -O1 -w -ffp-contract=off -march=native -fPIC %s -I'%s/tests' "
             "-I'%s/tests/shim' -c k.c -o k.o 2>log && cc -shared k.o -o k.so -lm 2>>log",
             folder, shadowed() ? "-fsanitize=thread" : "", CKC_SOURCE_DIR, CKC_SOURCE_DIR);
    int status = system(command);
    p->log = translate_log(read_file(folder, "log", &n));
    p->object = status == 0 ? read_file(folder, "k.so", &p->size) : NULL;
    return p->object ? 0 : COMPILATION;
}

nvrtcResult nvrtcCompileProgram(nvrtcProgram p, int n, const char *const *option)
{
    char folder[] = "/tmp/fake_nvrtc-XXXXXX", command[64];
    bool arch = false, contraction = true, standard = false; /* CUDA 11 has an old standard by default */
    for (int i = 0; i < n; i++) {
        arch |= strncmp(option[i], "--gpu-architecture=sm_", 22) == 0 &&
                !(mode("11") && strcmp(option[i], "--gpu-architecture=sm_90a") == 0);
        contraction &= strcmp(option[i], "--fmad=false") != 0;
        standard |= strcmp(option[i], "--std=c++17") == 0;
    }
    if (!arch || contraction || !standard || !mkdtemp(folder))
        return INVALID_INPUT;
    nvrtcResult r = compile_in(p, folder);
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command) == 0 ? r : COMPILATION;
}

nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram p, size_t *n)
{
    *n = p->log ? strlen(p->log) + 1 : 1;
    return 0;
}

nvrtcResult nvrtcGetProgramLog(nvrtcProgram p, char *log)
{
    strcpy(log, p->log ? p->log : "");
    return 0;
}

nvrtcResult nvrtcGetCUBINSize(nvrtcProgram p, size_t *n)
{
    *n = p->size;
    return 0;
}

nvrtcResult nvrtcGetCUBIN(nvrtcProgram p, char *cubin)
{
    memcpy(cubin, p->object, p->size);
    return 0;
}
