/* arena.c -- memory by lifetime: everything in an arena dies together; first-error diagnostics. */
#include "ir.h"
#include "mem.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct Block {
    struct Block *next;
    size_t cap;
};
enum { BLOCK = 1 << 16, ALIGN = 64 };

void *arena_alloc(Arena *a, size_t n, size_t size)
{
    if (size && n > (SIZE_MAX / 2 - 2 * ALIGN) / size)
        out_of_memory(SIZE_MAX);
    size_t need = (n * size + ALIGN - 1) / ALIGN * ALIGN;
    if (need < 2 * ALIGN)
        need = (n * size + 15) / 16 * 16;
    if (!a->top || a->used + need + ALIGN > a->top->cap) {
        size_t cap = need + ALIGN > BLOCK ? need + ALIGN : BLOCK;
        struct Block *b = mem_new(1, ALIGN + cap);
        *b = (struct Block){a->top, cap};
        a->top = b;
        a->used = 0;
    }
    uintptr_t p = (uintptr_t)a->top + ALIGN + a->used;
    if (need >= 2 * ALIGN)
        p = (p + ALIGN - 1) / ALIGN * ALIGN;
    a->used = p + need - (uintptr_t)a->top - ALIGN;
    return (char *)a->top + (p - (uintptr_t)a->top);
}

char *arena_strndup(Arena *a, const char *s, size_t n)
{
    char *p = NEW(a, char, n + 1);
    memcpy(p, s, n);
    return p;
}

char *arena_printf(Arena *a, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *p = NEW(a, char, n + 1);
    vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    return p;
}

void arena_free(Arena *a)
{
    for (struct Block *b = a->top, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    *a = (Arena){0};
}

void *arena_grow(Arena *a, void *old, uint32_t n, uint32_t *cap, size_t size)
{
    if (old && n < *cap)
        return old;
    uint32_t want = *cap ? *cap * 2 : 16;
    while (want <= n)
        want *= 2;
    void *p = arena_alloc(a, want, size);
    if (old && *cap)
        memcpy(p, old, (size_t)*cap * size);
    *cap = want;
    return p;
}

void diag_set(Diag *d, const char *fmt, ...)
{
    if (d->failed)
        return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(d->msg, sizeof d->msg, fmt, ap);
    va_end(ap);
    d->failed = true;
    if (!d->status)
        d->status = EXIT_BAD_INPUT;
}
