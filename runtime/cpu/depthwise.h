/* depthwise.h -- depthwise convolutions, which have one channel in and few out per group, and their
 * gradients: of each position a sum of a few taps; of a weight one over all positions. */
#ifndef CKC_DEPTHWISE_H
#define CKC_DEPTHWISE_H

#include "pack.h"
#include "problem.h"

typedef struct {
    int64_t extent, taps, stride, dilation, pad; /* of the image; of the window */
    int64_t positions;                           /* of the result */
} Axis;

/* ---- convolutions and gradients of data (depthwise_planes.c) ---------------------------------------- */

/* Along one dimension.  What is read lies in scratch with `pad` zeros in front, positions that are `stride`
 * apart behind each other.  What is made has `phases`: its position p + phases * i is the sum over the taps
 * of phase p of weight times what lies at i + offset of the tap. */
typedef struct {
    int64_t read, made; /* extents */
    int64_t stride, pad, phases, positions, reach; /* of a phase: positions at most, the largest offset */
    int64_t taps, dilation, shift;                 /* shift: of a gradient, its convolution's padding */
} PlaneAxis;

/* Bias and taps summed, in so many vectors of a row, of a few rows. */
typedef void PlaneFn(const float *x, int64_t x_row, const int64_t *offset, const float *weight, int64_t taps,
                     float *y, int64_t y_row, float bias);

typedef struct {
    PlaneAxis y, x;
    int src, dst; /* slots */
    bool bias, gradient;
    int64_t images, channels, each;       /* of the result; per channel that is read */
    int64_t read[4], made[4], weight[3];  /* strides: image, channel, row, column; channel, row, column */
    DType in, out;
    int64_t band, columns, phase, row; /* rows of a phase at a time; as they lie in scratch */
    PlaneFn *sum[4];                   /* in 1, 2, 4, 8 vectors of a row */
    NarrowFn *narrow;
    int threads;
} Planes;

bool planes_describe(Planes *p, const Problem *q, int vector, int threads);
int64_t planes_floats(const Planes *p);
void planes_run(const Planes *p, char *const at[SLOTS], float *scratch);

/* ---- gradients of weights ------------------------------------------------------------------------- */

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
    bool of_planes;
    Planes planes; /* instead of all else */
} Depthwise;

/* False: it is none. */
bool depthwise_describe(Depthwise *d, const Problem *q, int vector, int threads);
int64_t depthwise_floats(const Depthwise *d); /* of scratch, per thread */
/* Bits depend neither on the number of threads nor on the width of vectors, where these have FMA. */
void depthwise_run(const Depthwise *d, char *const at[SLOTS], bool add, float *scratch);

#endif
