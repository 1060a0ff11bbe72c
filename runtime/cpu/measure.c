/* measure.c -- measures the time of a kernel, alone.
 *
 * In a step a kernel finds some operands in the caches and others not, which can change its time several
 * times over.  So each run uses fresh memory, until a pool that is larger than the caches starts again, and
 * operands that are cached in the step are read just before the clock starts.  The time is the median of a
 * few runs. */
#include "cpu.h"
#include "ir/philox.h"
#include <stdlib.h>

enum { MIN_RUNS = 3, MAX_RUNS = 25, DEFAULT_CACHE = 32 << 20 };
static const double enough = 0.01, once = 0.05; /* seconds of all runs; of a first run that suffices */

/* Read from sysfs: sysconf asks CPUID, which on a virtual machine tells the cache of the whole socket. */
int64_t cache_bytes(void)
{
    FILE *f = fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "r");
    long kib = 0;
    if (f && fscanf(f, "%ldK", &kib) != 1)
        kib = 0;
    if (f)
        fclose(f);
    return kib > 0 ? (int64_t)kib << 10 : DEFAULT_CACHE;
}

int64_t measure_bytes(const MeasureOperand *o, int n, int64_t scratch)
{
    int64_t sum = align_up(scratch, ARENA_ALIGN);
    for (int i = 0; i < n; i++)
        sum += o[i].alias < 0 ? align_up(o[i].bytes, ARENA_ALIGN) : 0;
    return sum;
}

/* Number i of a sequence in [-1, 1] without a pattern that branch prediction could learn. */
static float scrambled(int64_t i)
{
    uint32_t h = (uint32_t)i * 0x9E3779B9u;
    h = (h ^ h >> 15) * 0x85EBCA6Bu;
    h = (h ^ h >> 13) * 0xC2B2AE35u;
    return (float)(int32_t)h * 0x1p-31f;
}

void pool_refill(Pool *p)
{
    float *f = (float *)p->at;
    int64_t n = p->window / (int64_t)sizeof *f;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++)
        f[i] = scrambled(i);
}

int64_t pool_bytes(int64_t bytes)
{
    int64_t cold = bytes + 2 * cache_bytes(), all = (1 + MAX_RUNS) * bytes;
    return cold < all ? cold : all;
}

void pool_use(Pool *p, int64_t bytes)
{
    bytes = pool_bytes(bytes);
    p->window = bytes < p->bytes ? bytes : p->bytes;
    p->next = 0;
}

bool pool_open(Pool *p, int64_t bytes, Diag *d)
{
    *p = (Pool){.bytes = pool_bytes(bytes)};
    p->window = p->bytes;
    p->at = pages_alloc(p->bytes, d);
    if (p->at)
        pool_refill(p);
    return p->at != NULL;
}

void pool_close(Pool *p)
{
    pages_free(p->at, p->bytes);
    *p = (Pool){0};
}

static char *take(Pool *p, int64_t bytes)
{
    char *at = p->at + p->next;
    p->next += align_up(bytes, ARENA_ALIGN);
    return at;
}

/* Binds operands and workspace to the next part of the window. */
static void place(Pool *p, const Subject *s, char **base)
{
    if (p->next + measure_bytes(s->o, s->n, s->workspace) > p->window)
        p->next = 0;
    for (int i = 0; i < s->n; i++)
        base[i] = s->o[i].alias < 0 ? take(p, s->o[i].bytes) : base[s->o[i].alias];
    base[s->n] = take(p, s->workspace);
    calls_bind(s->call, s->l->launch, s->l->n, base);
}

static void fill_indices(MeasureOperand *o, char *at)
{
    int64_t n = type_count(&o->index.type);
    o->index.data = at;
    for (int64_t i = 0; i < n; i++)
        tensor_set_i(&o->index, i, philox_draw(0, 0, 0, i).w0 % o->range.limit);
}

static void read_all(const char *at, int64_t bytes)
{
    int64_t sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum)
    for (int64_t i = 0; i < bytes; i += ARENA_ALIGN)
        sum += ((const volatile char *)at)[i];
}

static bool timed_run(Pool *p, const Subject *s, char **base, double *seconds, Diag *d)
{
    place(p, s, base);
    for (int i = 0; i < s->n; i++)
        if (s->o[i].range.limit)
            fill_indices(&s->o[i], base[i]);
    for (int i = 0; i < s->n; i++)
        if (s->o[i].hot)
            read_all(base[i], s->o[i].bytes);
    double start = clock_seconds();
    TRY(calls_run(s->call, s->launches, d));
    *seconds = clock_seconds() - start;
    return true;
}

static bool median_run(Pool *p, const Subject *s, char **base, double *seconds, Diag *d)
{
    double t[MAX_RUNS], sum = 0, first;
    int runs = 0;
    TRY(timed_run(p, s, base, &first, d)); /* warm-up: pages in the code */
    if (first >= once) {
        *seconds = first;
        return true;
    }
    while (runs < MIN_RUNS || (runs < MAX_RUNS && sum < enough)) {
        TRY(timed_run(p, s, base, &t[runs], d));
        sum += t[runs++];
    }
    *seconds = median(t, runs);
    return true;
}

bool measure(Pool *p, const Subject *s, double *seconds, Diag *d)
{
    Arena tmp = {0};
    bool ok = median_run(p, s, NEW(&tmp, char *, s->n + 1), seconds, d);
    arena_free(&tmp);
    return ok;
}

static int by_value(const void *a, const void *b)
{
    double x = ((const Weighted *)a)->value, y = ((const Weighted *)b)->value;
    return (x > y) - (x < y);
}

double weighted_median(Weighted *v, uint32_t n)
{
    double all = 0, below = 0;
    uint32_t i = 0;
    for (uint32_t k = 0; k < n; k++)
        all += v[k].weight;
    if (n)
        qsort(v, n, sizeof *v, by_value);
    while (i + 1 < n && (below += v[i].weight) < all / 2)
        i++;
    return n ? v[i].value : 0;
}
