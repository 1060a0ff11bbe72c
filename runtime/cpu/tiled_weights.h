/* tiled_weights.h -- gradients of the weights of convolutions of stride 1 in bf16, in tiles (AMX).  The image
 * is not copied once for each position of the window. */
#ifndef CKC_TILED_WEIGHTS_H
#define CKC_TILED_WEIGHTS_H

#include "problem.h"

/* Images have one or two dimensions.  from: the image that the convolution reads; to: the gradient of its
 * result. */
typedef struct {
    int64_t in, out, images;                                      /* channels; images of the batch */
    int64_t from_size[2], to_size[2], window[2], step[2], pad[2]; /* rows, columns; step: dilation */
    int64_t from_stride[4], to_stride[4],
        stride[4]; /* image, channel, row, column; of the weights: out, in, row, column */
    DType made;    /* type of the gradient of the weights */
    /* Number of images in a block, and of rows of the result's gradient in each. */
    int64_t block_images, block_rows;
    int64_t pitch;         /* positions from row to row, in the copies of both images */
    int64_t places, pairs; /* per image of a block: positions of the gradient; pairs of the image read */
    int threads;
} TiledWeights;

/* False: this cannot do the problem. */
bool tiled_weights_describe(TiledWeights *w, const Problem *q, int threads);
int64_t tiled_weights_scratch(const TiledWeights *w); /* bytes */
/* Bits do not depend on the number of threads. */
void tiled_weights_run(const TiledWeights *w, char *const at[SLOTS], void *scratch);

#endif
