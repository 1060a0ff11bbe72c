/* fuzz_pack.c -- ckc pack: a table of buffers (.csv) is refused, or the buffers are placed in few steps. */
#include "cli/cli.h"
#include "text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *path = fuzz_file(data, size, "csv");
    char *argv[] = {(char *)"ckc pack", (char *)(uintptr_t)path, (char *)"--steps=2000",
                    (char *)(size % 2 ? "--align=64" : "--align=1"), NULL};
    fuzz_quiet();
    command_run(command_find("pack"), 4, argv);
    return 0;
}

TEXT_MUTATOR
