/* fuzz.h -- helpers that the fuzz targets share. */
#ifndef CKC_FUZZ_H
#define CKC_FUZZ_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed);

static inline uint32_t fuzz_random(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static inline void fuzz_fail(const char *what, const char *text)
{
    fprintf(stderr, "%s\n%s\n", what, text);
    abort();
}

/* Fails unless two texts are equal: a printed one, and that one parsed and printed again.  Frees both. */
static inline void fuzz_same(char *first, char *second)
{
    if (strcmp(first, second) != 0)
        fuzz_fail("prints differently", first);
    free(first);
    free(second);
}

/* Discards what commands print on standard output. */
static inline void fuzz_quiet(void)
{
    if (!freopen("/dev/null", "w", stdout))
        fuzz_fail("cannot write", "/dev/null");
}

/* Writes the bytes to a file in memory; returns its path, which is the same every time for a suffix. */
static inline const char *fuzz_file(const uint8_t *data, size_t size, const char *suffix)
{
    static char path[64];
    snprintf(path, sizeof path, "/dev/shm/ckc-fuzz-%ld.%s", (long)getpid(), suffix);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, size, f) != size || fclose(f) != 0)
        fuzz_fail("cannot write", path);
    return path;
}

#endif
