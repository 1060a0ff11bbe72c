/* compile.c -- compiles generated C to shared objects, with the system's C compiler.
 *
 * The source is cut at kernel boundaries (lines starting with KERNEL_MARK) into a few parts that compile at
 * the same time, each after the common prelude.  The compiler is started in a private temporary folder
 * inside the cache, without a shell and with file names of our own, so that no part of a path can be taken
 * for an option or be split at a blank. */
#include "cpu.h"
#include "ir/mem.h"
#include "onednn.h"
#include "codegen/codegen.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define KERNEL_MARK "/* kernel "
enum { MAX_PARTS = 8, PART_BYTES = 4 * 1024 }; /* a part takes some 0.1 s to compile, the prelude 0.02 s */

/* No -ffast-math, ever: sums keep their order and nothing is contracted, so that a kernel
 * gives the same bits wherever it is used.  Type punning through operands is allowed
 * (in-place), and integers wrap around. */
static const char *const flags[] = {"-std=gnu11",
                                    "-O3",
                                    "-march=native",
                                    "-ffp-contract=off",
                                    "-fno-math-errno",
                                    "-fno-trapping-math",
                                    "-fno-strict-aliasing",
                                    "-fwrapv",
                                    "-fopenmp",
                                    "-fPIC",
                                    "-w"};
enum { NFLAGS = sizeof flags / sizeof *flags };

/* The flag that restricts instructions to those that the library may use, so that one setting rules both. */
static const char *vector_flag(void)
{
#ifdef __x86_64__
    switch (onednn_vector_bytes()) {
    case 64:
        return "-mprefer-vector-width=512";
    case 32:
        return "-mno-avx512f";
    default:
        return "-mno-avx";
    }
#else
    return "-march=native";
#endif
}

/* Tells kernels whether to multiply bf16 in pairs or tiles (attention_product.h), where that is faster. */
static const char *pairs_flag(void)
{
    return onednn_has_amx() ? "-DBF16_TILES=1" : onednn_fast_bf16() ? "-DBF16_PAIRS=1" : "-DBF16_PAIRS=0";
}

extern char **environ;

/* ---- files ---------------------------------------------------------------------------------------- */

static bool write_part(const char *path, const char *prelude, size_t nprelude, const char *text, size_t ntext,
                       Diag *d)
{
    FILE *f = fopen(path, "w");
    bool ok = f && fwrite(prelude, 1, nprelude, f) == nprelude && fwrite(text, 1, ntext, f) == ntext;
    ok = f && fclose(f) == 0 && ok;
    return ok || fail_status(d, EXIT_DEVICE, "cannot write %s: %s", path, strerror(errno));
}

/* ---- identity ------------------------------------------------------------------------------------- */

/* Hashes the first line of f that starts with `start`. */
static void hash_line(XXH3_state_t *h, FILE *f, const char *start)
{
    char line[4096];
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, start, strlen(start)) == 0) {
            XXH3_128bits_update(h, line, strlen(line));
            return;
        }
}

static void hash_prelude(XXH3_state_t *h)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = mem_stream(&text, &size);
    codegen_prelude_c(f);
    mem_stream_end(f);
    XXH3_128bits_update(h, text, size);
    free(text);
}

/* Did the process end with status 0?  If the program ignores SIGCHLD, its status is lost, and we assume so:
 * its output is checked anyway. */
static bool ended_well(pid_t pid)
{
    int st = 0;
    pid_t got;
    while ((got = waitpid(pid, &st, 0)) < 0 && errno == EINTR)
        ;
    return got < 0 || (WIFEXITED(st) && WEXITSTATUS(st) == 0);
}

/* The output of "cc --version", malloc'ed; NULL: there is no compiler. */
static char *ask_compiler(void)
{
    char *argv[] = {"cc", "--version", NULL}, *text = NULL;
    posix_spawn_file_actions_t io;
    size_t size = 0;
    int end[2];
    pid_t pid;
    if (pipe2(end, O_CLOEXEC) != 0)
        return NULL;
    posix_spawn_file_actions_init(&io);
    posix_spawn_file_actions_adddup2(&io, end[1], 1);
    posix_spawn_file_actions_addopen(&io, 2, "/dev/null", O_WRONLY, 0);
    bool started = posix_spawnp(&pid, argv[0], &io, NULL, argv, environ) == 0;
    posix_spawn_file_actions_destroy(&io);
    close(end[1]);
    FILE *f = fdopen(end[0], "r");
    if (!f)
        close(end[0]);
    bool ok = started && f && getdelim(&text, &size, '\0', f) > 0;
    if (f)
        fclose(f);
    if (started && ended_well(pid) && ok)
        return text;
    free(text);
    return NULL;
}

/* The compiler's version, which is kept in the folder; without a compiler the version kept there, or NULL. */
static char *compiler_version(const KernelCache *c)
{
    Diag ignored = {0};
    char *now = ask_compiler(), *last = NULL;
    cache_file_check(&c->folder, "compiler", &last);
    if (now && (!last || strcmp(now, last) != 0))
        cache_file_write(&c->folder, "compiler", now, &ignored);
    if (!now)
        return last;
    free(last);
    return now;
}

static void hash_processor(XXH3_state_t *h)
{
    static const char *const about[] = {"model name", "flags"};
    for (int i = 0; i < 2; i++) {
        FILE *f = fopen("/proc/cpuinfo", "r");
        hash_line(h, f, about[i]);
        if (f)
            fclose(f);
    }
}

uint64_t compiler_identity(const KernelCache *c)
{
    XXH3_state_t state, *h = &state;
    XXH3_128bits_reset(h);
    hash_prelude(h);
    for (int i = 0; i < NFLAGS; i++)
        XXH3_128bits_update(h, flags[i], strlen(flags[i]) + 1);
    XXH3_128bits_update(h, vector_flag(), strlen(vector_flag()) + 1);
    XXH3_128bits_update(h, pairs_flag(), strlen(pairs_flag()) + 1);
    XXH3_128bits_update(h, &(unsigned){onednn_isa()}, sizeof(unsigned));
    char *version = compiler_version(c);
    if (version)
        XXH3_128bits_update(h, version, strlen(version));
    free(version);
    hash_processor(h);
    return XXH3_128bits_digest(h).low64;
}

/* ---- compiling ------------------------------------------------------------------------------------ */

/* Starts the compiler in the folder dir, where it also keeps its temporary files. */
static bool start(char *const argv[], const char *dir, const char *log, pid_t *pid, Diag *d)
{
    size_t n = 0, kept = 0;
    while (environ[n])
        n++;
    char **env = mem_new(n + 2, sizeof *env);
    for (size_t i = 0; i < n; i++)
        if (strncmp(environ[i], "TMPDIR=", 7) != 0)
            env[kept++] = environ[i];
    env[kept++] = "TMPDIR=.";
    env[kept] = NULL;
    posix_spawn_file_actions_t io;
    posix_spawn_file_actions_init(&io);
    posix_spawn_file_actions_addchdir_np(&io, dir);
    posix_spawn_file_actions_addopen(&io, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&io, 2, log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    int e = posix_spawnp(pid, argv[0], &io, NULL, argv, env);
    posix_spawn_file_actions_destroy(&io);
    free(env);
    return e == 0 || fail_status(d, EXIT_DEVICE, "cannot run the C compiler %s: %s", argv[0], strerror(e));
}

/* The first line of f with the word "error", or the first line if there is none. */
static void first_error(FILE *f, char *line, int size)
{
    char next[1024];
    *line = '\0';
    while (fgets(next, sizeof next, f)) {
        bool error = strstr(next, "error") != NULL;
        if (error || !*line)
            snprintf(line, (size_t)size, "%.*s", (int)strcspn(next, "\n"), next);
        if (error)
            return;
    }
}

static bool finish(pid_t pid, const char *dir, const char *log, Diag *d)
{
    char path[PATH_MAX + 32], line[1024] = "";
    if (ended_well(pid))
        return true;
    snprintf(path, sizeof path, "%s/%s", dir, log);
    FILE *f = fopen(path, "r");
    if (f) {
        first_error(f, line, sizeof line);
        fclose(f);
    }
    return fail_status(d, EXIT_DEVICE, "the C compiler failed on generated kernels: %s", line);
}

enum { FILE_NAME = 24 };

static bool compile_parts(const char *dir, int parts, Diag *d)
{
    pid_t pid[MAX_PARTS];
    char in[FILE_NAME], out[FILE_NAME], log[MAX_PARTS][FILE_NAME];
    int started = 0;
    bool ok = true;
    for (int i = 0; i < parts && ok; i++) {
        char *argv[NFLAGS + 8] = {"cc"};
        int n = 1;
        for (int k = 0; k < NFLAGS; k++)
            argv[n++] = (char *)(uintptr_t)flags[k];
        argv[n++] = (char *)(uintptr_t)vector_flag();
        argv[n++] = (char *)(uintptr_t)pairs_flag();
        snprintf(in, sizeof in, "%d.c", i);
        snprintf(out, sizeof out, "%d.o", i);
        snprintf(log[i], sizeof log[i], "%d.log", i);
        argv[n++] = "-c";
        argv[n++] = in;
        argv[n++] = "-o";
        argv[n++] = out;
        ok = start(argv, dir, log[i], &pid[i], d);
        started += ok;
    }
    for (int i = 0; i < started; i++)
        ok = finish(pid[i], dir, log[i], d) && ok;
    return ok;
}

static bool link_parts(const char *dir, int parts, Diag *d)
{
    char obj[MAX_PARTS][FILE_NAME];
    char *argv[MAX_PARTS + 8] = {"cc", "-shared", "-fopenmp"};
    int n = 3;
    for (int i = 0; i < parts; i++) {
        snprintf(obj[i], sizeof obj[i], "%d.o", i);
        argv[n++] = obj[i];
    }
    argv[n++] = "-o";
    argv[n++] = "out.so";
    argv[n++] = "-lm";
    pid_t pid;
    TRY(start(argv, dir, "link.log", &pid, d));
    return finish(pid, dir, "link.log", d);
}

/* Writes the kernels of source, cut at their marks into about equal parts, to files; returns the number of
 * parts, or -1. */
static int write_parts(const char *dir, const char *source, Diag *d)
{
    const char *body = strstr(source, "\n" KERNEL_MARK);
    size_t nprelude = body ? (size_t)(body - source) + 1 : strlen(source);
    const char *at = source + nprelude;
    size_t total = strlen(at);
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    size_t want = total / PART_BYTES + 1, most = cpus < 1 ? 1 : 2 * (size_t)cpus; /* kernels differ in time */
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

bool compile_kernels(const KernelCache *c, const char *source, const KernelKey *key, int n, Diag *d)
{
    char out[PATH_MAX + 32];
    Temp tmp;
    TRY(cache_folder_scratch(&c->folder, &tmp, d));
    int parts = write_parts(tmp.path, source, d);
    snprintf(out, sizeof out, "%s/out%s", tmp.path, shared_object);
    bool ok = parts > 0 && compile_parts(tmp.path, parts, d) && link_parts(tmp.path, parts, d) &&
              kernel_cache_keep(c, out, key, n, shared_object, d);
    temp_remove(&tmp);
    return ok;
}
