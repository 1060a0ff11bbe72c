/* sum_order.c -- sums are added in the order in which reduced dimensions are walked, several as one where
 * every access steps through them as through one.  A kernel that is run again for some of its results has
 * fewer accesses. */
#include "kernel.h"
#include <string.h>

uint32_t kernel_dims_apart(const Kernel *k)
{
    uint32_t apart = 0;
    for (int d = 0; d + 1 < k->rank; d++)
        for (uint32_t i = 0; i < k->nins && k->red >> d & k->red >> (d + 1) & 1; i++) {
            const KInst *in = &k->ins[i];
            if (k_addresses(in) && in->stride[d] != in->stride[d + 1] * k->extent[d + 1])
                apart |= 1u << d;
        }
    return apart;
}

/* Extents of the reduced dimensions, where those that are walked as one are joined; returns their number. */
static int walked_dims(const Kernel *k, int64_t *extent)
{
    int n = 0;
    for (int d = 0; d < k->rank; d++) {
        bool joins = d > 0 && (k->red >> (d - 1) & 3) == 3 && !(k->apart >> (d - 1) & 1);
        if (joins)
            extent[n - 1] *= k->extent[d];
        else if (k->red >> d & 1)
            extent[n++] = k->extent[d];
    }
    return n;
}

bool kernel_reduces_alike(const Kernel *a, const Kernel *b)
{
    int64_t x[K_DIMS], y[K_DIMS];
    int n = walked_dims(a, x);
    return n == walked_dims(b, y) && memcmp(x, y, (size_t)n * sizeof *x) == 0;
}
