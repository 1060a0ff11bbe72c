/* mem.h -- checked allocation: on failure the program exits cleanly (no temporary file is left) with status 4
 * and one line on standard error; inside mem_try(), as in the library, that returns instead. */
#ifndef CKC_MEM_H
#define CKC_MEM_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#define MEM_NEW __attribute__((returns_nonnull, warn_unused_result))

/* Zeroed room for n elements of size bytes, n = 0 as well; free() it. */
MEM_NEW void *mem_new(size_t n, size_t size);
/* p resized to n elements; those behind the old ones are undefined.  p may be NULL. */
MEM_NEW void *mem_grow(void *p, size_t n, size_t size);
MEM_NEW char *mem_strdup(const char *s);
MEM_NEW char *mem_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
MEM_NEW char *mem_vprintf(const char *fmt, va_list ap) __attribute__((format(printf, 1, 0)));
/* Calls free() for each argument. */
#define MEM_FREE(...)                                                                                        \
    do {                                                                                                     \
        void *all_[] = {__VA_ARGS__};                                                                        \
        for (size_t i_ = 0; i_ < sizeof all_ / sizeof *all_; i_++)                                           \
            free(all_[i_]);                                                                                  \
    } while (0)
char *mem_realpath(const char *path); /* realpath(); NULL only if the path is wrong */
/* A stream that writes to *text, as open_memstream(); mem_stream_end() closes it. */
MEM_NEW FILE *mem_stream(char **text, size_t *size);
void mem_stream_end(FILE *f);

/* Ends the program, or the mem_try() it is in; bytes: the size that was asked for, 0: not known. */
_Noreturn void out_of_memory(size_t bytes);

/* Calls work(arg); false: an allocation in it failed and ended it there, but the program goes on.  What it
 * had not yet handed over is lost. */
bool mem_try(void (*work)(void *), void *arg);

#endif
