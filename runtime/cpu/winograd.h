/* winograd.h -- 3x3 convolutions and their data gradients with a quarter of the multiplications, for
 * processors where the library has no such routine. */
#ifndef CKC_WINOGRAD_H
#define CKC_WINOGRAD_H

#include "panel.h"
#include "problem.h"

/* A convolution of stride 1, as it is computed: a data gradient is one of the result's gradient with weights
 * that are turned, `flip`. */
typedef struct {
    int src, dst;                                  /* slots */
    int64_t images, in, out, height, width;        /* channels; of what is read */
    int64_t rows, columns, pad_y, pad_x;           /* of the result */
    int64_t from[3], to[3], of_out, of_in;         /* strides: image, channel, row; of weights */
    bool flip, bias;
    int64_t down, across, tiles;                   /* of an image; of all */
    int64_t block, groups;                         /* tiles that a thread has at a time; panels of rows */
    Panel panel;
    int threads;
} Winograd;

/* False: it is none that this can do. */
bool winograd_describe(Winograd *w, const Problem *q, int vector, int threads);
int64_t winograd_floats(const Winograd *w); /* of scratch, of all threads */
/* Bits do not depend on the number of threads. */
void winograd_run(const Winograd *w, char *const at[SLOTS], float *scratch);

#endif
