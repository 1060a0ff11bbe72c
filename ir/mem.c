/* mem.c -- allocations that succeed, or end the program in order. */
#include "mem.h"
#include "file.h"
#include <errno.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local jmp_buf *guard; /* where the innermost mem_try() goes on; NULL: there is none */

_Noreturn void out_of_memory(size_t bytes)
{
    if (guard)
        longjmp(*guard, 1);
    temp_remove_all();
    if (bytes)
        fprintf(stderr, "ckc: out of memory: there are no %zu bytes more\n", bytes);
    else
        fprintf(stderr, "ckc: out of memory\n");
    exit(EXIT_DEVICE);
}

bool mem_try(void (*work)(void *), void *arg)
{
    jmp_buf here, *outer = guard;
    if (setjmp(here) != 0) {
        guard = outer;
        return false;
    }
    guard = &here;
    work(arg);
    guard = outer;
    return true;
}

void *mem_new(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);
    if (!p)
        out_of_memory(n > SIZE_MAX / size ? SIZE_MAX : n * size);
    return p;
}

void *mem_grow(void *p, size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n ? n : 1, size, &bytes))
        out_of_memory(SIZE_MAX);
    p = realloc(p, bytes);
    if (!p)
        out_of_memory(bytes);
    return p;
}

char *mem_strdup(const char *s)
{
    size_t n = strlen(s) + 1;
    return memcpy(mem_new(n, 1), s, n);
}

char *mem_vprintf(const char *fmt, va_list ap)
{
    char *text;
    if (vasprintf(&text, fmt, ap) < 0)
        out_of_memory(0);
    return text;
}

char *mem_printf(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *text = mem_vprintf(fmt, ap);
    va_end(ap);
    return text;
}

char *mem_realpath(const char *path)
{
    char *real = realpath(path, NULL);
    if (!real && errno == ENOMEM)
        out_of_memory(0);
    return real;
}

FILE *mem_stream(char **text, size_t *size)
{
    FILE *f = open_memstream(text, size);
    if (!f)
        out_of_memory(0);
    return f;
}

void mem_stream_end(FILE *f)
{
    int failed = ferror(f);
    if (fclose(f) || failed)
        out_of_memory(0);
}
