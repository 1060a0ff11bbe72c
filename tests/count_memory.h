/* count_memory.h -- counts the memory that the process allocates while a test looks. */
#ifndef CKC_TESTS_COUNT_MEMORY_H
#define CKC_TESTS_COUNT_MEMORY_H
#include <stdint.h>

/* Allocations of this process and its libraries by malloc and its kin and by mmap, also those freed since. */
typedef struct {
    int64_t calls, bytes, largest; /* bytes: of all calls; largest: bytes of the largest one */
} MemoryCount;

void memory_count_start(void);
MemoryCount memory_count_stop(void); /* returns the allocations since the start */
#endif
