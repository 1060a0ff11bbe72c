/* alloc.c -- stands in front of every allocation of ckc_oom (ld --wrap): the one whose number, from 1, is
 * CKC_FAIL_AT fails, and all others work.  How many there were is written to the file that CKC_FAIL_COUNT
 * names. */
#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static atomic_long count, at;

__attribute__((constructor)) static void start(void)
{
    const char *text = getenv("CKC_FAIL_AT");
    at = text ? atol(text) : 0;
}

__attribute__((destructor)) static void end(void)
{
    const char *path = getenv("CKC_FAIL_COUNT");
    FILE *f = path ? fopen(path, "w") : NULL;
    if (f) {
        fprintf(f, "%ld\n", count);
        fclose(f);
    }
}

static int fails(void)
{
    if (++count != at)
        return 0;
    errno = ENOMEM;
    return 1;
}

#define WRAP(type, failed, name, params, args)                                               \
    type __real_##name params;                                                               \
    type __wrap_##name params;                                                               \
    type __wrap_##name params { return fails() ? failed : __real_##name args; }

WRAP(void *, NULL, malloc, (size_t n), (n))
WRAP(void *, NULL, calloc, (size_t n, size_t size), (n, size))
WRAP(void *, NULL, realloc, (void *p, size_t n), (p, n))
WRAP(void *, NULL, aligned_alloc, (size_t align, size_t n), (align, n))
WRAP(char *, NULL, strdup, (const char *s), (s))
WRAP(char *, NULL, realpath, (const char *path, char *out), (path, out))
WRAP(FILE *, NULL, open_memstream, (char **text, size_t *n), (text, n))
WRAP(void *, MAP_FAILED, mmap, (void *p, size_t n, int prot, int flags, int fd, off_t from),
     (p, n, prot, flags, fd, from))
WRAP(int, -1, scandir,
     (const char *path, struct dirent ***list, int (*filter)(const struct dirent *),
      int (*order)(const struct dirent **, const struct dirent **)),
     (path, list, filter, order))
WRAP(int, -1, vasprintf, (char **text, const char *format, va_list args), (text, format, args))

int __wrap_asprintf(char **text, const char *format, ...);
int __wrap_asprintf(char **text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = __wrap_vasprintf(text, format, args);
    va_end(args);
    return n;
}
