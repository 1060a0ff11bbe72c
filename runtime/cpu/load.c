/* load.c -- measures how busy other processes, and other machines of the host, keep the processors. */
#include "runtime/runtime_int.h"
#include <stdio.h>
#include <time.h>
#include <unistd.h>

ProcessorTime processor_time(void)
{
    ProcessorTime t = {0};
    double user, nice, system, idle, wait, irq, soft, steal, tick = (double)sysconf(_SC_CLK_TCK);
    FILE *f = fopen("/proc/stat", "r");
    if (f && fscanf(f, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &user, &nice, &system, &idle, &wait,
                    &irq, &soft, &steal) == 8) {
        t.used = (user + nice + system + irq + soft + steal) / tick;
        t.all = t.used + (idle + wait) / tick;
    }
    if (f)
        fclose(f);
    struct timespec own;
    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own) == 0)
        t.own = (double)own.tv_sec + 1e-9 * (double)own.tv_nsec;
    return t;
}

double others_since(const ProcessorTime *from)
{
    ProcessorTime now = processor_time();
    double all = now.all - from->all;
    double others = now.used - from->used - (now.own - from->own);
    return all > 0 && others > 0 ? others / all : 0;
}
