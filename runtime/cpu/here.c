/* here.c -- this machine as a device. */
#include "cpu.h"
#include <omp.h>
#include <unistd.h>

static int64_t last_cache(void)
{
    static const int level[] = {_SC_LEVEL4_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE};
    for (int i = 0; i < 3; i++) {
        long bytes = sysconf(level[i]);
        if (bytes > 0)
            return bytes;
    }
    return 0;
}

DeviceInfo device_here(void)
{
    DeviceInfo d = device_cpu;
    d.memory = memory_total();
    d.processors = omp_get_num_procs();
    d.threads = 1;
    d.cache = last_cache();
    return d;
}
