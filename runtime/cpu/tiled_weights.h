/* tiled_weights.h -- gradients of weights of convolutions of bf16, in tiles (AMX), whose windows move by one.
 * Nothing is copied once for each position of the window. */
#ifndef CKC_TILED_WEIGHTS_H
#define CKC_TILED_WEIGHTS_H

#include "problem.h"

/* Images of one or two dimensions; the result's are those of its gradient. */
typedef struct {
    int64_t in, out, images;                                      /* channels; of the batch */
    int64_t from_size[2], to_size[2], window[2], step[2], pad[2]; /* rows, columns; step: of the window */
    int64_t from_stride[4], to_stride[4],
        stride[4]; /* image, channel, row, column; of weights out, in, ... */
    DType made;
    /* A block: so many images, of each so many rows of the result's gradient. */
    int64_t block_images, block_rows;
    int64_t pitch;         /* positions from row to row, of both */
    int64_t places, pairs; /* of an image of a block: positions of the gradient; pairs of what is read */
    int threads;
} TiledWeights;

/* False: it is none that this can do. */
bool tiled_weights_describe(TiledWeights *w, const Problem *q, int threads);
int64_t tiled_weights_scratch(const TiledWeights *w); /* bytes */
/* Bits do not depend on the number of threads. */
void tiled_weights_run(const TiledWeights *w, char *const at[SLOTS], void *scratch);

#endif
