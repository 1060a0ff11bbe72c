/* nvrtc.c -- runs NVIDIA's run-time compiler, where it is installed, by the program of nvrtc/nvrtc.c. */
#include "nvrtc.h"
#include "command.h"
#include "tests.h"
#include <stdlib.h>

char *nvrtc_report(const char *source, const char *arch, const char *option)
{
    enum { MISSING = 77 };
    write_text("kernels.cu", source);
    int status =
        shell(format("'%s' kernels.cu --gpu-architecture=%s %s >nvrtc.log", CKC_NVRTC, arch, option));
    char *log = read_text("nvrtc.log");
    if (status == MISSING) {
        skipped("libnvrtc is not there");
        free(log);
        return NULL;
    }
    ck_assert_msg(status == 0, "%s: %.2000s", arch, log);
    return log;
}
