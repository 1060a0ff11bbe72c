/* spin.c -- how long OpenMP threads wait for each other awake.
 *
 * libgomp spins at barriers for milliseconds; when another process holds a core, every barrier of
 * a step waits for the scheduler instead (a decoder's step was measured 4 times slower on a busy
 * machine).  A bounded spin covers the gap between two kernels and sleeps beyond it.  libgomp reads
 * its settings when it is loaded, so the program starts itself once more with the bound set;
 * a user's own setting stays. */
#include "runtime/runtime.h"
#include <stdlib.h>
#include <unistd.h>

void spin_bounded(char **argv)
{
    static const char *const own[] = {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (getenv(own[i]))
            return;
    if (setenv("GOMP_SPINCOUNT", "10000", 1) == 0)
        execv("/proc/self/exe", argv); /* on failure: slower on a busy machine, nothing else */
}
