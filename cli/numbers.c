/* numbers.c -- numbers as text. */
#include "cli.h"
#include <math.h>

const char *bytes_str(int64_t bytes, char buf[32])
{
    static const char *const unit[] = {"B", "kB", "MB", "GB", "TB"};
    double v = (double)bytes;
    int k = 0;
    while (v >= 1000 && k < 4) {
        v /= 1000;
        k++;
    }
    snprintf(buf, 32, k ? "%.2f %s" : "%.0f %s", v, unit[k]);
    return buf;
}

const char *percent_str(double part, char buf[16])
{
    snprintf(buf, 16, fabs(part) < 1 ? "%+.2f %%" : fabs(part) < 10 ? "%+.1f %%" : "%+.0f %%", 100 * part);
    return buf;
}

const char *rate_str(double v, char buf[16])
{
    snprintf(buf, 16, v < 1000 ? "%.4g" : "%.0f", v);
    return buf;
}

const char *ms_str(int64_t ns, char buf[32])
{
    double ms = ns_ms(ns);
    snprintf(buf, 32, ms < 9999.5 ? "%.4g ms" : "%.0f ms", ms);
    return buf;
}

void others_print(FILE *f, double share)
{
    if (share > 0.1)
        fprintf(f, "measured while others used up to %.0f %% of the processors\n", 100 * share);
}

double ns_ms(int64_t ns) { return 1e-6 * (double)ns; }

json_t *real_json(double v) { return isfinite(v) ? json_real(v) : json_null(); }

double part_over(int64_t ns, int64_t base) { return base > 0 ? (double)ns / (double)base - 1 : 0; }
