/* nvrtc.c -- NVIDIA's run-time compiler, where it is installed. */
#include "tests.h"
#include "nvrtc.h"
#include <dlfcn.h>
#include <stdlib.h>

bool nvrtc_open(Nvrtc *n)
{
    static const char *const path[] = {"libnvrtc.so.13", "libnvrtc.so",
                                       "/usr/local/cuda/lib64/libnvrtc.so"};
    for (size_t i = 0; i < sizeof path / sizeof *path && !n->dl; i++)
        n->dl = dlopen(path[i], RTLD_NOW);
    if (!n->dl)
        return false;
    *(void **)&n->create = dlsym(n->dl, "nvrtcCreateProgram");
    *(void **)&n->compile = dlsym(n->dl, "nvrtcCompileProgram");
    *(void **)&n->log_size = dlsym(n->dl, "nvrtcGetProgramLogSize");
    *(void **)&n->log = dlsym(n->dl, "nvrtcGetProgramLog");
    *(void **)&n->cubin_size = dlsym(n->dl, "nvrtcGetCUBINSize");
    *(void **)&n->destroy = dlsym(n->dl, "nvrtcDestroyProgram");
    return n->create && n->compile && n->log_size && n->log && n->cubin_size && n->destroy;
}

char *nvrtc_report(const Nvrtc *n, const char *source, const char *arch)
{
    const char *const option[] = {arch, "--fmad=false", "--ptxas-options=-v"};
    void *prog = NULL;
    size_t size = 0;
    ck_assert_int_eq(n->create(&prog, source, "kernels.cu", 0, NULL, NULL), 0);
    int status = n->compile(prog, 3, option);
    n->log_size(prog, &size);
    char *log = calloc(size + 1, 1);
    n->log(prog, log);
    ck_assert_msg(status == 0, "%s: %.2000s", arch, log);
    n->cubin_size(prog, &size);
    ck_assert_uint_gt(size, 0);
    n->destroy(&prog);
    return log;
}

void nvrtc_compiles(const Nvrtc *n, const char *source, const char *arch)
{
    free(nvrtc_report(n, source, arch));
}
