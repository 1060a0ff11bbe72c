/* depthwise.h -- gradients of the weights of depthwise convolutions, which have one channel in and few out
 * per group: a sum over all positions for each of a few taps. */
#ifndef CKC_DEPTHWISE_H
#define CKC_DEPTHWISE_H

#include "problem.h"

typedef struct {
    int64_t extent, taps, stride, dilation, pad; /* of the image; of the window */
    int64_t positions;                           /* of the result */
} Axis;

typedef void TapsFn(const float *x, int64_t x_row, const float *y, int64_t rows, int64_t columns,
                    const int64_t *offset, float *sum);

/* Rows of so many positions are taken at a time, as f32 in scratch: of the image with its padding, columns
 * that are a stride apart behind each other; of the result's gradient. */
typedef struct {
    Axis y, x;
    int64_t channels, each, images;         /* of the result; per channel of the image */
    int64_t image[4], result[4], weight[3]; /* strides: image, channel, row, column; channel, row, column */
    DType in, out;
    int64_t band, phase, row, columns, taps; /* positions, as they lie in scratch; taps: with what fills up */
    int64_t unit;                            /* channels of a position, behind each other there */
    TapsFn *add_taps;
    int threads;
} Depthwise;

/* False: it is no such gradient. */
bool depthwise_describe(Depthwise *d, const Problem *q, int vector, int threads);
int64_t depthwise_floats(const Depthwise *d); /* of scratch, per thread */
/* Bits depend neither on the number of threads nor on the width of vectors, where these have FMA. */
void depthwise_run(const Depthwise *d, char *const at[SLOTS], bool add, float *scratch);

#endif
