/* pages.c -- allocates the memory of a run, and sets the floating-point mode of its threads.
 *
 * First touch of a page costs a fault (0.6-5 GB/s on a virtual machine), so all pages are
 * touched here, by the threads that will use them, and none during a step.  Huge pages make
 * both the touching and the steps faster. */
#include "cpu.h"
#include <errno.h>
#include <inttypes.h>
#include <omp.h>
#include <string.h>
#include <sys/mman.h>
#ifdef __SSE2__
#include <xmmintrin.h>
#endif

enum { HUGE = 2 << 20, PAGE = 4096 };

/* Maps memory that starts at a huge page, by mapping more and unmapping both ends. */
static char *map_aligned(size_t bytes)
{
    char *m = mmap(NULL, bytes + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                   -1, 0);
    if (m == MAP_FAILED)
        return NULL;
    size_t before = (HUGE - (uintptr_t)m % HUGE) % HUGE, after = HUGE - before;
    if (before)
        munmap(m, before);
    if (after)
        munmap(m + before + bytes, after);
    return m + before;
}

static size_t whole_pages(int64_t bytes)
{
    return ((size_t)bytes + PAGE - 1) / PAGE * PAGE;
}

void *pages_alloc(int64_t bytes, Diag *d)
{
    size_t size = whole_pages(bytes ? bytes : 1);
    int64_t free_bytes = memory_available();
    if (bytes > free_bytes) {
        fail_status(d, EXIT_DEVICE, "%" PRId64 " bytes of memory are needed and %" PRId64 " available", bytes,
                    free_bytes);
        return NULL;
    }
    char *m = map_aligned(size);
    if (!m) {
        fail_status(d, EXIT_DEVICE, "cannot allocate %" PRId64 " bytes: %s", bytes, strerror(errno));
        return NULL;
    }
    madvise(m, size, MADV_HUGEPAGE);
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < size; i += PAGE)
        *(volatile char *)(m + i) = 0;
    return m;
}

void pages_free(void *at, int64_t bytes)
{
    if (at)
        munmap(at, whole_pages(bytes ? bytes : 1));
}

/* ---- floating-point mode ----------------------------------------------- */

#if defined(__SSE2__)
enum { FLUSH = 0x8040 }; /* FTZ | DAZ */
static unsigned mode_get(void) { return _mm_getcsr(); }
static void mode_set(unsigned m) { _mm_setcsr(m); }
#elif defined(__aarch64__)
enum { FLUSH = 1 << 24 }; /* FZ */
static unsigned mode_get(void)
{
    uint64_t m;
    __asm__ volatile("mrs %0, fpcr" : "=r"(m));
    return (unsigned)m;
}
static void mode_set(unsigned m) { __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)m)); }
#else
enum { FLUSH = 0 };
static unsigned mode_get(void) { return 0; }
static void mode_set(unsigned m) { (void)m; }
#endif

unsigned fp_flush(int threads)
{
    unsigned mode = mode_get();
    if (threads > 0)
        omp_set_num_threads(threads);
#pragma omp parallel
    mode_set(mode_get() | FLUSH);
    return mode;
}

void fp_restore(unsigned mode) { mode_set(mode); }

void fp_leave(void)
{
    unsigned mode = mode_get();
#pragma omp parallel
    mode_set(mode);
}
