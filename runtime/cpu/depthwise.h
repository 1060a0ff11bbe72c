/* depthwise.h -- depthwise convolutions, with one channel in and few out per group, and their gradients: each
 * position of a result is a sum over a few taps, each gradient of a weight a sum over all positions. */
#ifndef CKC_DEPTHWISE_H
#define CKC_DEPTHWISE_H

#include "pack.h"
#include "problem.h"

typedef struct {
    int64_t extent, taps, stride, dilation, pad; /* extent of the image; the others are the window's */
    int64_t positions;                           /* extent of the result */
} Axis;

/* ---- convolutions and gradients of data (depthwise_planes.c) ---------------------------------------- */

/* One dimension of the planes.  Scratch holds the input with `pad` zeros in front; positions that are
 * `stride` apart are stored next to each other.  The output has `phases`: its position p + phases * i is the
 * sum over the taps of phase p of weight times input at i + offset of the tap. */
typedef struct {
    int64_t read, made; /* extents of input and output */
    int64_t stride, pad, phases, positions, reach; /* positions: of a phase, at most; reach: largest offset */
    int64_t taps, dilation, shift;                 /* shift: of a gradient, its convolution's padding */
} PlaneAxis;

/* Sums bias and taps for a few rows, for as many vectors of each row as the function is made for. */
typedef void PlaneFn(const float *x, int64_t x_row, const int64_t *offset, const float *weight, int64_t taps,
                     float *y, int64_t y_row, float bias);

typedef struct {
    PlaneAxis y, x;
    int src, dst; /* slots of input and output */
    bool bias, gradient;
    int64_t images, channels, each;       /* channels of the output; how many of them per input channel */
    int64_t read[4], made[4], weight[3];  /* strides: image, channel, row, column; channel, row, column */
    DType in, out;
    int64_t band, columns, phase, row; /* rows of a phase at a time; floats in scratch: output row, phase of
                                        * an input row, input row */
    PlaneFn *sum[4];                   /* for 1, 2, 4 and 8 vectors of a row */
    NarrowFn *narrow;
    int threads;
} Planes;

bool planes_describe(Planes *p, const Problem *q, int vector, int threads);
int64_t planes_floats(const Planes *p);
void planes_run(const Planes *p, char *const at[SLOTS], float *scratch);

/* ---- gradients of weights ------------------------------------------------------------------------- */

typedef void TapsFn(const float *x, int64_t x_row, const float *y, int64_t rows, int64_t columns,
                    const int64_t *offset, float *sum);

/* Scratch holds a band of rows at a time, as f32: rows of the image with its padding, in which columns that
 * are a stride apart are stored next to each other; and rows of the result's gradient. */
typedef struct {
    Axis y, x;
    int64_t channels, each, images;         /* channels of the result; how many of them per image channel */
    int64_t image[4], result[4], weight[3]; /* strides: image, channel, row, column; channel, row, column */
    DType in, out;
    int64_t band, phase, row, columns, taps; /* band: rows of the result; positions in scratch: phase of an
                                              * image row, image row, result row; taps: rounded up */
    int64_t unit;                            /* channels of a position that are adjacent in scratch */
    TapsFn *add_taps;
    int threads;
    bool of_planes; /* only `planes` is set */
    Planes planes;
} Depthwise;

/* False: the problem is no depthwise convolution that this can do. */
bool depthwise_describe(Depthwise *d, const Problem *q, int vector, int threads);
int64_t depthwise_floats(const Depthwise *d); /* floats of scratch per thread */
/* Bits depend neither on the number of threads nor on the width of vectors, if the vectors have FMA. */
void depthwise_run(const Depthwise *d, char *const at[SLOTS], bool add, float *scratch);

#endif
