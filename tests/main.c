/* main.c -- runs all suites, or those named on the command line, and closes with Check's summary. */
#include "tests.h"
#include "runtime/runtime.h"
#include <oneapi/dnnl/dnnl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *shared_path(const char *name)
{
    static char path[4096];
    const char *root = getenv("CKC_SHARED");
    snprintf(path, sizeof path, "%s/%s", root ? root : CKC_SOURCE_DIR "/../shared", name);
    if (access(path, R_OK) == 0)
        return path;
    skipped("%s is not there", path);
    return NULL;
}

bool use_isa(int i)
{
    static const struct {
        const char *name;
        dnnl_cpu_isa_t isa;
    } sets[TEST_ISAS + 1] = {{"SSE41", dnnl_cpu_isa_sse41},
                             {"AVX2", dnnl_cpu_isa_avx2},
                             {"AVX512_CORE", dnnl_cpu_isa_avx512_core},
                             {"AVX512_CORE_BF16", dnnl_cpu_isa_avx512_core_bf16},
                             {"AVX512_CORE_AMX", dnnl_cpu_isa_avx512_core_amx}};
    setenv("ONEDNN_MAX_CPU_ISA", sets[i].name, 1);
    unsigned need = (unsigned)sets[i].isa;
    if (((unsigned)dnnl_get_effective_cpu_isa() & need) == need)
        return true;
    skipped("this processor has no %s", sets[i].name);
    return false;
}

/* Tests are processes of their own: what they skip is kept in a file, a line each. */
static FILE *skips;

void skipped(const char *fmt, ...)
{
    char line[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    printf("skipped: %s\n", line);
    fprintf(skips, "%s\n", line);
    fflush(skips);
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Prints every reason for skipping something once, and how often it was given. */
static void print_skips(void)
{
    enum { MOST = 4096 };
    static char *line[MOST];
    char text[512];
    size_t n = 0;
    rewind(skips);
    while (n < MOST && fgets(text, sizeof text, skips))
        line[n++] = strdup(text);
    qsort(line, n, sizeof *line, by_text);
    for (size_t i = 0, same; i < n; i += same) {
        for (same = 1; i + same < n && strcmp(line[i], line[i + same]) == 0;)
            same++;
        printf("%zu times skipped: %s", same, line[i]);
    }
    for (size_t i = 0; i < n; i++)
        free(line[i]);
}

static bool chosen(const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return true;
    return argc == 1;
}

int main(int argc, char **argv)
{
    spin_bounded(argv);
    setenv("CK_DEFAULT_TIMEOUT", "1200", 0); /* seconds; enough for slow tests: it ends those that hang */
    setenv("CKC_CUDA_PATH", "", 1);          /* tests do not find the GPU that may be here */
    skips = tmpfile();
    if (!skips)
        return EXIT_FAILURE;
    SRunner *r = srunner_create(NULL);
#define SUITE(name)                                                                          \
    if (chosen(#name, argc, argv))                                                           \
        srunner_add_suite(r, suite_##name());
#include "suites.def"
    srunner_run_all(r, CK_NORMAL);
    print_skips();
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
