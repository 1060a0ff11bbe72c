/* fuzz_solve.c -- ckc solve: an instance (.dag) is refused, or solved with few moves and by a policy. */
#include "cli/cli.h"
#include "text.h"

static void solve(const char *path, const char *how, const char *value)
{
    char *argv[] = {(char *)"ckc solve", (char *)(uintptr_t)path, (char *)"--budget=70%",
                    (char *)(uintptr_t)how, (char *)(uintptr_t)value, NULL};
    command_run(command_find("solve"), 5, argv);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_quiet();
    const char *path = fuzz_file(data, size, "dag");
    solve(path, "--moves", "300");
    if (size % 4 == 0)
        solve(path, "--policy", "dtr");
    return 0;
}

TEXT_MUTATOR
