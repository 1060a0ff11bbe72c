/* here.c -- this machine as a device. */
#include "cpu.h"
#include <omp.h>

DeviceInfo cpu_info(void)
{
    DeviceInfo d = device_cpu;
    d.memory = memory_total();
    d.processors = omp_get_num_procs();
    d.threads = 1;
    d.cache = cache_bytes();
    return d;
}
