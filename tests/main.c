/* main.c -- runs all suites, or those named on the command line, and closes with Check's summary. */
#include "tests.h"
#include "runtime/runtime.h"
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
    printf("skipped: %s is not there\n", path);
    return NULL;
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
    setenv("CK_DEFAULT_TIMEOUT", "1200", 0); /* seconds: for what hangs, not for what is slow */
    SRunner *r = srunner_create(NULL);
#define SUITE(name)                                                                          \
    if (chosen(#name, argc, argv))                                                           \
        srunner_add_suite(r, suite_##name());
#include "suites.def"
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
