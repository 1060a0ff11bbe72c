/* nvrtc.c -- nvrtc SOURCE OPTION OPTION compiles with NVIDIA's run-time compiler and prints its log.  It is a
 * program without sanitizers, under which the library's allocations would take a third of its time.
 * Exit status 1: the library does not take the source; 77: there is no such library. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { REFUSED = 1, INVALID_OPTION = 5, MISSING = 77 };

typedef struct {
    int (*create)(void **, const char *, const char *, int, const char *const *, const char *const *);
    int (*compile)(void *, int, const char *const *);
    int (*log_size)(void *, size_t *);
    int (*log)(void *, char *);
    int (*cubin_size)(void *, size_t *);
} Nvrtc;

static bool find(Nvrtc *n)
{
    static const char *const path[] = {"libnvrtc.so.13", "libnvrtc.so", "/usr/local/cuda/lib64/libnvrtc.so"};
    void *dl = NULL;
    for (size_t i = 0; i < sizeof path / sizeof *path && !dl; i++)
        dl = dlopen(path[i], RTLD_NOW);
    if (!dl)
        return false;
    *(void **)&n->create = dlsym(dl, "nvrtcCreateProgram");
    *(void **)&n->compile = dlsym(dl, "nvrtcCompileProgram");
    *(void **)&n->log_size = dlsym(dl, "nvrtcGetProgramLogSize");
    *(void **)&n->log = dlsym(dl, "nvrtcGetProgramLog");
    *(void **)&n->cubin_size = dlsym(dl, "nvrtcGetCUBINSize");
    return n->create && n->compile && n->log_size && n->log && n->cubin_size;
}

static char *read_all(const char *path)
{
    FILE *f = fopen(path, "r");
    char *text = NULL;
    size_t room = 0;
    if (!f || getdelim(&text, &room, '\0', f) < 0)
        exit(REFUSED);
    fclose(f);
    return text;
}

int main(int argc, char **argv)
{
    Nvrtc n;
    void *program = NULL;
    size_t bytes = 0;
    if (!find(&n))
        return MISSING;
    if (argc != 4 || n.create(&program, read_all(argv[1]), "kernels.cu", 0, NULL, NULL) != 0)
        return REFUSED;
    const char *const option[] = {"--fmad=false", argv[2], argv[3]};
    int status = n.compile(program, 3, option);
    if (status == INVALID_OPTION) /* an older library does not know the last option */
        status = n.compile(program, 2, option);
    n.log_size(program, &bytes);
    char *log = calloc(bytes + 1, 1);
    n.log(program, log);
    puts(log);
    n.cubin_size(program, &bytes);
    return status == 0 && bytes > 0 ? 0 : REFUSED;
}
