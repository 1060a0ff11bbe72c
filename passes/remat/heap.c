/* heap.c -- a binary heap. */
#include "heap.h"
#include "ir/mem.h"
#include <stdbool.h>

static bool before(const HeapItem *a, const HeapItem *b)
{
    for (int i = 0; i < 2; i++)
        if (a->key[i] != b->key[i])
            return a->key[i] < b->key[i];
    return a->id < b->id;
}

void heap_push(Heap *h, HeapItem x)
{
    if (h->n == h->cap)
        h->item = mem_grow(h->item, (size_t)(h->cap = 2 * h->cap + 64), sizeof *h->item);
    int32_t i = h->n++;
    for (; i > 0 && before(&x, &h->item[(i - 1) / 2]); i = (i - 1) / 2)
        h->item[i] = h->item[(i - 1) / 2];
    h->item[i] = x;
}

HeapItem heap_pop(Heap *h)
{
    HeapItem top = h->item[0], last = h->item[--h->n];
    int32_t i = 0;
    for (int32_t c = 1; c < h->n; c = 2 * i + 1) {
        c += c + 1 < h->n && before(&h->item[c + 1], &h->item[c]);
        if (!before(&h->item[c], &last))
            break;
        h->item[i] = h->item[c];
        i = c;
    }
    h->item[i] = last;
    return top;
}
