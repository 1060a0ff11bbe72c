/* driver.c -- finds and opens libcuda, libnvrtc and libcublasLt. */
#include "driver.h"
#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

typedef struct {
    const char *title, *file[4]; /* file: names to try, newest first */
    const char *without;         /* what works without the library, and how to get it */
} Library;

static const Library driver_library = {
    "NVIDIA driver",
    {"libcuda.so.1"},
    "ckc plan --device h200 plans for a GPU, --emit cuda prints its kernels"};
static const Library nvrtc_library = {
    "NVRTC",
    {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"},
    "pip install nvidia-cuda-nvrtc brings it; training on the processor works without"};
static const Library cublaslt_library = {"cuBLASLt",
                                         {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11"},
                                         "products run as generated kernels, slower by far; pip install "
                                         "nvidia-cublas brings it"};

/* Folders to search, in this order; relative to the folder in an environment variable if that is given. */
static const struct {
    const char *variable, *folder;
} places[] = {{NULL, ""}, /* the loader's own folders */
              {NULL, "/usr/local/cuda/lib64/"},
              {"VIRTUAL_ENV", "/lib/python3*/site-packages/nvidia/*/lib/"},
              {"CONDA_PREFIX", "/lib/python3*/site-packages/nvidia/*/lib/"},
              {"HOME", "/.local/lib/python3*/site-packages/nvidia/*/lib/"},
              {NULL, "/usr/local/lib/python3*/*-packages/nvidia/*/lib/"},
              {NULL, "/usr/lib/python3*/*-packages/nvidia/*/lib/"}};
static const char searched[] =
    "the loader's folders, /usr/local/cuda/lib64, nvidia/*/lib of Python's packages";

/* Held while one of the three libraries is searched, so that threads load it once. */
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

/* What the loader says of the first file of the library searched that is there and cannot be loaded; "": no
 * such file.  Used while `loading` is held. */
static char broken[1024];

/* May this open library be used? */
typedef bool Accept(void *dl, void *user);

/* Keeps what the loader says, unless that is that there is no such file. */
static void note_error(const char *path)
{
    static const char absent[] = ": cannot open shared object file: No such file";
    const char *says = dlerror();
    size_t n = strlen(path);
    if (says && !*broken && (strncmp(says, path, n) != 0 || strncmp(says + n, absent, strlen(absent)) != 0))
        snprintf(broken, sizeof broken, "%s", says);
}

static void *try_open(const char *path, Accept *accept, void *user)
{
    void *dl = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!dl)
        note_error(path);
    if (!dl || accept(dl, user))
        return dl;
    dlclose(dl);
    return NULL;
}

/* Opens the first file that matches and is accepted; the loader finds a name without a folder. */
static void *open_in(const char *before, const char *folder, const char *file, Accept *accept, void *user)
{
    char pattern[PATH_MAX];
    glob_t found;
    void *dl = NULL;
    int n = snprintf(pattern, sizeof pattern, "%s%s%s", before, folder, file);
    if (n >= PATH_MAX)
        return NULL;
    if (!strchr(pattern, '/'))
        return try_open(pattern, accept, user);
    if (glob(pattern, 0, NULL, &found) != 0)
        return NULL;
    for (size_t i = 0; i < found.gl_pathc && !dl; i++)
        dl = try_open(found.gl_pathv[i], accept, user);
    globfree(&found);
    return dl;
}

static void *open_library(const Library *l, Accept *accept, void *user)
{
    const char *only = getenv("CKC_CUDA_PATH");
    void *dl = NULL;
    *broken = '\0';
    for (const char *const *file = l->file; *file && !dl; file++) {
        if (only)
            dl = *only ? open_in(only, "/", *file, accept, user) : NULL;
        for (size_t i = 0; i < sizeof places / sizeof *places && !only && !dl; i++) {
            const char *before = places[i].variable ? getenv(places[i].variable) : "";
            dl = before ? open_in(before, places[i].folder, *file, accept, user) : NULL;
        }
    }
    return dl;
}

static bool missing(const Library *l, Diag *d)
{
    const char *only = getenv("CKC_CUDA_PATH");
    if (*broken)
        return fail_status(d, EXIT_DEVICE, "cuda: the loader refuses the %s: %s: install it anew", l->title,
                           broken);
    return fail_status(d, EXIT_DEVICE, "cuda: no %s (%s) in %s%s: %s", l->title, l->file[0],
                       only ? "CKC_CUDA_PATH=" : "", only ? only : searched, l->without);
}

static bool lacks(const Library *l, const char *name, Diag *d)
{
    return fail_status(d, EXIT_DEVICE, "cuda: the %s is too old: it has no %s (CUDA 11.4 has)", l->title,
                       name);
}

/* ---- the driver --------------------------------------------------------------------------------- */

static bool any(void *dl, void *user)
{
    (void)dl, (void)user;
    return true;
}

bool cuda_ok(const CudaDriver *cu, CUresult r, const char *call, Diag *d)
{
    const char *text = NULL;
    if (r == 0)
        return true;
    cu->cuGetErrorString(r, &text);
    return fail_status(d, EXIT_DEVICE, "cuda: %s: %s (error %d)", call, text ? text : "unknown", r);
}

static bool start_driver(void *dl, CudaDriver *cu, Diag *d)
{
#define CU(name, ...)                                                                                        \
    if (!(*(void **)&cu->name = dlsym(dl, #name)))                                                           \
        return lacks(&driver_library, #name, d);
#include "symbols.def"
    return CUDA_CALL(cu, cuInit, 0) && CUDA_CALL(cu, cuDriverGetVersion, &cu->version);
}

static bool load_driver(CudaDriver *cu, Diag *d)
{
    void *dl = open_library(&driver_library, any, NULL);
    if (!dl)
        return missing(&driver_library, d);
    bool ok = start_driver(dl, cu, d);
    if (!ok)
        dlclose(dl);
    return ok;
}

const CudaDriver *cuda_driver(Diag *d)
{
    static CudaDriver cu;
    static bool loaded;
    pthread_mutex_lock(&loading);
    bool ok = loaded = loaded || load_driver(&cu, d);
    pthread_mutex_unlock(&loading);
    return ok ? &cu : NULL;
}

/* ---- libraries for a driver --------------------------------------------------------------------- */

/* The search for a library of a version that the driver runs. */
typedef struct {
    void *table;
    bool (*load)(void *dl, void *table, int *major, int *minor, const char **lacking);
    int most;            /* major version of CUDA that the driver runs */
    int major, minor;    /* version of a library that was found and is too new */
    const char *lacking; /* a function that a library found lacks */
} Search;

static bool accept(void *dl, void *user)
{
    Search *s = user;
    int major, minor;
    TRY(s->load(dl, s->table, &major, &minor, &s->lacking));
    if (major <= s->most)
        return true;
    s->major = major;
    s->minor = minor;
    return false;
}

static bool load_for(const CudaDriver *cu, const Library *l, Search s, Diag *d)
{
    s.most = cu->version / 1000;
    if (open_library(l, accept, &s))
        return true;
    if (s.major)
        return fail_status(d, EXIT_DEVICE,
                           "cuda: the driver is for CUDA %d, and %s is %d.%d: a newer driver "
                           "is needed, or %s %d",
                           s.most, l->title, s.major, s.minor, l->title, s.most);
    return s.lacking ? lacks(l, s.lacking, d) : missing(l, d);
}

static bool load_once(bool *loaded, const CudaDriver *cu, const Library *l, Search s, Diag *d)
{
    pthread_mutex_lock(&loading);
    bool ok = *loaded = *loaded || load_for(cu, l, s, d);
    pthread_mutex_unlock(&loading);
    return ok;
}

/* Hash of size and modification time of the file that has the function: differs if the file is replaced. */
static uint64_t file_hash(const void *function)
{
    Dl_info at;
    struct stat st = {0};
    if (!dladdr(function, &at) || stat(at.dli_fname, &st) != 0)
        return 0;
    int64_t what[] = {st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec};
    return XXH3_64bits(what, sizeof what);
}

static bool load_nvrtc(void *dl, void *table, int *major, int *minor, const char **lacking)
{
    Nvrtc *rtc = table;
#define RTC(name, ...)                                                                                       \
    if (!(*(void **)&rtc->name = dlsym(dl, #name))) {                                                        \
        *lacking = #name;                                                                                    \
        return false;                                                                                        \
    }
#include "symbols.def"
    bool ok = rtc->nvrtcVersion(&rtc->major, &rtc->minor) == 0;
    rtc->hash = file_hash(dlsym(dl, "nvrtcVersion"));
    *major = rtc->major;
    *minor = rtc->minor;
    return ok;
}

const Nvrtc *cuda_nvrtc(const CudaDriver *cu, Diag *d)
{
    static Nvrtc rtc;
    static bool loaded;
    bool ok = load_once(&loaded, cu, &nvrtc_library, (Search){.table = &rtc, .load = load_nvrtc}, d);
    return ok ? &rtc : NULL;
}

static bool load_cublaslt(void *dl, void *table, int *major, int *minor, const char **lacking)
{
    CublasLt *lt = table;
    int patch = 0;
#define LT(name, ...)                                                                                        \
    if (!(*(void **)&lt->name = dlsym(dl, #name))) {                                                         \
        *lacking = #name;                                                                                    \
        return false;                                                                                        \
    }
#include "symbols.def"
    bool ok = lt->cublasLtGetProperty(MAJOR_VERSION, major) == 0 &&
              lt->cublasLtGetProperty(MINOR_VERSION, minor) == 0 &&
              lt->cublasLtGetProperty(PATCH_LEVEL, &patch) == 0;
    lt->version = ok ? (*major * 100 + *minor) * 100 + patch : 0;
    return ok;
}

const CublasLt *cuda_cublaslt(const CudaDriver *cu, Diag *d)
{
    static CublasLt lt;
    static bool loaded;
    bool ok = load_once(&loaded, cu, &cublaslt_library, (Search){.table = &lt, .load = load_cublaslt}, d);
    return ok ? &lt : NULL;
}
