/* here.c -- describes this machine as a device. */
#include "cpu.h"
#include "onednn.h"
#include "panel.h"
#include <omp.h>

bool cpu_info(int ordinal, DeviceInfo *out, Arena *a, Diag *d)
{
    (void)ordinal, (void)a, (void)d;
    *out = device_cpu;
    out->memory = memory_total();
    out->processors = omp_get_num_procs();
    out->threads = 1;
    out->cache = cache_bytes();
    out->panel_columns = panel_of(onednn_vector_bytes(), PANEL_FLOATS).columns;
    return true;
}
