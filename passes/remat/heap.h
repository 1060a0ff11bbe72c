/* heap.h -- a binary heap: the least item first, by two keys, then by its number. */
#ifndef CKC_REMAT_HEAP_H
#define CKC_REMAT_HEAP_H
#include <stdint.h>

typedef struct {
    int64_t key[2];
    int32_t id;
} HeapItem;

/* {0} is empty; the caller frees `item`. */
typedef struct {
    HeapItem *item;
    int32_t n, cap;
} Heap;

void heap_push(Heap *h, HeapItem x);
HeapItem heap_pop(Heap *h); /* n > 0 */

#endif
