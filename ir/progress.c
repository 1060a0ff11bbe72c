/* progress.c -- see progress.h. */
#include "progress.h"
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

void progress(const Progress *p, const char *fmt, ...)
{
    char text[160];
    if (!p || !p->say)
        return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    p->say(p->user, text);
}

double clock_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
