/* fuzz.h -- what the fuzz targets share. */
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

/* What was printed, and what was read from that and printed again; frees both. */
static inline void fuzz_same(char *first, char *second)
{
    if (strcmp(first, second) != 0)
        fuzz_fail("prints differently", first);
    free(first);
    free(second);
}

/* Commands print nothing. */
static inline void fuzz_quiet(void)
{
    if (!freopen("/dev/null", "w", stdout))
        fuzz_fail("cannot write", "/dev/null");
}

/* The bytes as a file in memory; the same path every time. */
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
