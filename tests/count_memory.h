/* count_memory.h -- what the process takes from the system while a test looks. */
#ifndef CKC_TESTS_COUNT_MEMORY_H
#define CKC_TESTS_COUNT_MEMORY_H
#include <stdint.h>

/* Allocations of this process, its libraries included: malloc and its kin, and mmap. */
typedef struct {
    int64_t calls, bytes, largest;
} MemoryCount;

void memory_count_start(void);
MemoryCount memory_count_stop(void); /* since the start */
#endif
