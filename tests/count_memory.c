/* count_memory.c -- counts allocations of the whole test program.  The functions below take the
 * place of the C library's for every library that is loaded, and call what lies under them; address
 * sanitizer, which has taken that place already, calls back instead. */
#include "count_memory.h"
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_bool counting;
static _Atomic int64_t calls, bytes, largest;

static void note(size_t size)
{
    if (!counting)
        return;
    int64_t n = (int64_t)size, seen = largest;
    calls++;
    bytes += n;
    while (seen < n && !atomic_compare_exchange_weak(&largest, &seen, n))
        ;
}

#if defined(__SANITIZE_ADDRESS__)
/* From sanitizer/allocator_interface.h, which gcc does not install. */
int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void *, size_t),
                                              void (*on_free)(const volatile void *));

static void on_malloc(const volatile void *p, size_t size)
{
    (void)p;
    note(size);
}

static void on_free(const volatile void *p) { (void)p; }

static void install(void)
{
    static bool done;
    if (!done)
        __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
    done = true;
}
#else
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t align, size_t size);

void *malloc(size_t size)
{
    note(size);
    return __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    note(n * size);
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t size)
{
    note(size);
    return __libc_realloc(p, size);
}

void *memalign(size_t align, size_t size)
{
    note(size);
    return __libc_memalign(align, size);
}

void *aligned_alloc(size_t align, size_t size) { return memalign(align, size); }

int posix_memalign(void **p, size_t align, size_t size)
{
    *p = memalign(align, size);
    return *p ? 0 : ENOMEM;
}

static void install(void) {}
#endif

void *mmap(void *at, size_t size, int prot, int flags, int fd, off_t offset)
{
    note(size);
    return (void *)syscall(SYS_mmap, at, size, prot, flags, fd, offset); // NOLINT
}

void *mmap64(void *at, size_t size, int prot, int flags, int fd, off_t offset)
{
    return mmap(at, size, prot, flags, fd, offset);
}

void memory_count_start(void)
{
    install();
    calls = bytes = largest = 0;
    counting = true;
}

MemoryCount memory_count_stop(void)
{
    counting = false;
    return (MemoryCount){calls, bytes, largest};
}
