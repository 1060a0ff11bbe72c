/* kernel_cache.c -- compile generated C, keep the shared object under the keys of its kernels.
 *
 * The source is cut at kernel boundaries (lines starting with KERNEL_MARK) into a few parts that
 * compile at the same time, each behind the common prelude.  Everything is written in a private
 * temporary folder inside the cache; rename() publishes the result, so that a reader sees a
 * whole object or none. */
#include "kernel_cache.h"
#include "codegen/codegen.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define KERNEL_MARK "/* kernel "
enum { MAX_PARTS = 8, PART_BYTES = 24 * 1024 };

/* No -ffast-math, ever: sums keep their order and nothing is contracted, so that a kernel gives
 * the same bits wherever it is used.  Type punning through operands is allowed (in-place). */
static const char *const flags[] = {
    "-std=gnu11", "-O3", "-march=native",
#ifdef __x86_64__
    "-mprefer-vector-width=512",
#endif
    "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fno-strict-aliasing",
    "-fopenmp", "-fPIC", "-w"};
enum { NFLAGS = sizeof flags / sizeof *flags };

extern char **environ;

/* ---- files --------------------------------------------------------------------------- */

static bool make_dirs(const char *path, Diag *d)
{
    char p[PATH_MAX];
    if (snprintf(p, sizeof p, "%s", path) >= (int)sizeof p)
        return fail_status(d, EXIT_DEVICE, "cache folder: path too long");
    for (char *s = p + 1;; s++) {
        bool end = *s == '\0';
        if (*s != '/' && !end)
            continue;
        *s = '\0';
        if (mkdir(p, 0777) != 0 && errno != EEXIST)
            return fail_status(d, EXIT_DEVICE, "cannot create %s: %s", p, strerror(errno));
        if (end)
            return true;
        *s = '/';
    }
}

/* The folder, created: given, or the user's ($XDG_CACHE_HOME/ckc, ~/.cache/ckc). */
static bool cache_folder(const char *given, char out[PATH_MAX], Diag *d)
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n;
    if (given)
        n = snprintf(out, PATH_MAX, "%s", given);
    else if (xdg && xdg[0] == '/')
        n = snprintf(out, PATH_MAX, "%s/ckc", xdg);
    else
        n = snprintf(out, PATH_MAX, "%s/.cache/ckc", home ? home : "/tmp");
    if (n >= PATH_MAX)
        return fail_status(d, EXIT_DEVICE, "cache folder: path too long");
    return make_dirs(out, d);
}

static bool write_part(const char *path, const char *prelude, size_t nprelude,
                       const char *text, size_t ntext, Diag *d)
{
    FILE *f = fopen(path, "w");
    bool ok = f && fwrite(prelude, 1, nprelude, f) == nprelude &&
              fwrite(text, 1, ntext, f) == ntext;
    ok = f && fclose(f) == 0 && ok;
    return ok || fail_status(d, EXIT_DEVICE, "cannot write %s: %s", path, strerror(errno));
}

static void remove_tmp(const char *dir, int parts)
{
    char p[PATH_MAX + 32];
    for (int i = 0; i <= parts; i++) {
        static const char *const suffix[] = {"c", "o", "log"};
        for (int s = 0; s < 3; s++) {
            snprintf(p, sizeof p, "%s/%d.%s", dir, i, suffix[s]);
            unlink(p);
        }
    }
    snprintf(p, sizeof p, "%s/out.so", dir);
    unlink(p);
    rmdir(dir);
}

/* ---- identity --------------------------------------------------------------------------- */

static void hash_stream(XXH3_state_t *h, FILE *f, const char *only)
{
    char line[4096];
    while (f && fgets(line, sizeof line, f))
        if (!only || strncmp(line, only, strlen(only)) == 0) {
            XXH3_128bits_update(h, line, strlen(line));
            if (only)
                break;
        }
}

static void hash_prelude(XXH3_state_t *h)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (f) {
        codegen_prelude_c(f);
        fclose(f);
        XXH3_128bits_update(h, text, size);
    }
    free(text);
}

bool kernel_cache_open(KernelCache *c, const char *given, Diag *d)
{
    TRY(cache_folder(given, c->dir, d));
    XXH3_state_t *h = XXH3_createState();
    if (!h)
        return fail_status(d, EXIT_DEVICE, "out of memory");
    XXH3_128bits_reset(h);
    hash_prelude(h);
    for (int i = 0; i < NFLAGS; i++)
        XXH3_128bits_update(h, flags[i], strlen(flags[i]) + 1);
    FILE *f = popen("cc --version 2>&1", "r");
    hash_stream(h, f, NULL);
    if (f)
        pclose(f);
    static const char *const about[] = {"model name", "flags"};
    for (int i = 0; i < 2; i++) {
        f = fopen("/proc/cpuinfo", "r");
        hash_stream(h, f, about[i]);
        if (f)
            fclose(f);
    }
    c->machine = XXH3_128bits_digest(h).low64;
    XXH3_freeState(h);
    return true;
}

KernelKey kernel_key(const KernelCache *c, const char *text)
{
    KernelKey key;
    XXH128_hash_t v = XXH3_128bits_withSeed(text, strlen(text), c->machine);
    snprintf(key.hex, sizeof key.hex, "%016" PRIx64 "%016" PRIx64, (uint64_t)v.high64,
             (uint64_t)v.low64);
    return key;
}

/* ---- compiling ----------------------------------------------------------------------------- */

static bool start(char *const argv[], const char *log, pid_t *pid, Diag *d)
{
    posix_spawn_file_actions_t io;
    posix_spawn_file_actions_init(&io);
    posix_spawn_file_actions_addopen(&io, 2, log, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    int e = posix_spawnp(pid, argv[0], &io, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&io);
    return e == 0 || fail_status(d, EXIT_DEVICE, "cannot run the C compiler %s: %s", argv[0],
                                 strerror(e));
}

static bool finish(pid_t pid, const char *log, Diag *d)
{
    int st = 0;
    while (waitpid(pid, &st, 0) < 0 && errno == EINTR)
        ;
    if (WIFEXITED(st) && WEXITSTATUS(st) == 0)
        return true;
    char text[1024] = "";
    FILE *f = fopen(log, "r");
    if (f) {
        text[fread(text, 1, sizeof text - 1, f)] = '\0';
        fclose(f);
    }
    return fail_status(d, EXIT_DEVICE, "the C compiler failed on generated kernels:\n%s", text);
}

static bool compile_parts(const char *dir, int parts, Diag *d)
{
    pid_t pid[MAX_PARTS];
    char in[PATH_MAX + 32], out[PATH_MAX + 32], log[MAX_PARTS][PATH_MAX + 32];
    int started = 0;
    bool ok = true;
    for (int i = 0; i < parts && ok; i++) {
        char *argv[NFLAGS + 8] = {"cc"};
        int n = 1;
        for (int k = 0; k < NFLAGS; k++)
            argv[n++] = (char *)(uintptr_t)flags[k];
        snprintf(in, sizeof in, "%s/%d.c", dir, i);
        snprintf(out, sizeof out, "%s/%d.o", dir, i);
        snprintf(log[i], sizeof log[i], "%s/%d.log", dir, i);
        argv[n++] = "-c";
        argv[n++] = in;
        argv[n++] = "-o";
        argv[n++] = out;
        ok = start(argv, log[i], &pid[i], d);
        started += ok;
    }
    for (int i = 0; i < started; i++)
        ok = finish(pid[i], log[i], d) && ok;
    return ok;
}

static bool link_parts(const char *dir, int parts, Diag *d)
{
    char obj[MAX_PARTS][PATH_MAX + 32], out[PATH_MAX + 32], log[PATH_MAX + 32];
    char *argv[MAX_PARTS + 8] = {"cc", "-shared", "-fopenmp"};
    int n = 3;
    for (int i = 0; i < parts; i++) {
        snprintf(obj[i], sizeof obj[i], "%s/%d.o", dir, i);
        argv[n++] = obj[i];
    }
    snprintf(out, sizeof out, "%s/out.so", dir);
    snprintf(log, sizeof log, "%s/%d.log", dir, parts);
    argv[n++] = "-o";
    argv[n++] = out;
    argv[n++] = "-lm";
    pid_t pid;
    TRY(start(argv, log, &pid, d));
    return finish(pid, log, d);
}

/* Cut [body, end) into about equal parts at kernel marks. */
static int write_parts(const char *dir, const char *source, Diag *d)
{
    const char *body = strstr(source, "\n" KERNEL_MARK);
    size_t nprelude = body ? (size_t)(body - source) + 1 : strlen(source);
    const char *at = source + nprelude;
    size_t total = strlen(at);
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    size_t want = total / PART_BYTES + 1, most = cpus < 1 ? 1 : (size_t)cpus;
    want = want < most ? want : most;
    want = want < MAX_PARTS ? want : MAX_PARTS;
    int parts = 0;
    for (size_t left = want; left > 0; left--) {
        const char *cut = at + strlen(at) / left;
        cut = left > 1 ? strstr(cut, "\n" KERNEL_MARK) : NULL;
        cut = cut ? cut + 1 : at + strlen(at);
        if (cut == at && parts > 0)
            break;
        char path[PATH_MAX + 32];
        snprintf(path, sizeof path, "%s/%d.c", dir, parts);
        if (!write_part(path, source, nprelude, at, (size_t)(cut - at), d))
            return -1;
        parts++;
        at = cut;
    }
    return parts;
}

/* ---- the folder ---------------------------------------------------------------------------- */

static void object_path(const KernelCache *c, const KernelKey *key, char out[PATH_MAX + 64])
{
    snprintf(out, PATH_MAX + 64, "%s/%s.so", c->dir, key->hex);
}

void *kernel_cache_find(const KernelCache *c, const KernelKey *key)
{
    char so[PATH_MAX + 64];
    object_path(c, key, so);
    return dlopen(so, RTLD_NOW | RTLD_LOCAL);
}

/* The object under one more name, in place of what may stand there. */
static bool publish(const KernelCache *c, const char *object, const KernelKey *key, Diag *d)
{
    char so[PATH_MAX + 64], other[PATH_MAX + 64];
    object_path(c, key, so);
    snprintf(other, sizeof other, "%s.link", object);
    bool ok = link(object, other) == 0 && rename(other, so) == 0;
    return ok || fail_status(d, EXIT_DEVICE, "cannot write %s: %s", so, strerror(errno));
}

bool kernel_cache_add(const KernelCache *c, const char *source, const KernelKey *key, int n, Diag *d)
{
    char tmp[PATH_MAX], out[PATH_MAX + 32];
    if (snprintf(tmp, sizeof tmp, "%s/tmp-XXXXXX", c->dir) >= (int)sizeof tmp)
        return fail_status(d, EXIT_DEVICE, "cache folder: path too long");
    if (!mkdtemp(tmp))
        return fail_status(d, EXIT_DEVICE, "cannot write in %s: %s", c->dir, strerror(errno));
    int parts = write_parts(tmp, source, d);
    snprintf(out, sizeof out, "%s/out.so", tmp);
    bool ok = parts > 0 && compile_parts(tmp, parts, d) && link_parts(tmp, parts, d);
    for (int i = 0; i < n && ok; i++)
        ok = publish(c, out, &key[i], d);
    remove_tmp(tmp, MAX_PARTS);
    return ok;
}
