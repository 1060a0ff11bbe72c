/* winograd.h -- Winograd's algorithm for 3x3 convolutions and their gradients, with a quarter of the
 * multiplications, for processors where the library has no such routine. */
#ifndef CKC_WINOGRAD_H
#define CKC_WINOGRAD_H

#include "panel.h"
#include "problem.h"

/* Size of the images, and their layout in memory. */
typedef struct {
    int64_t height, width, stride[4]; /* strides: image, channel, row, column */
    int64_t pad_y, pad_x;             /* padding in front of rows and columns */
} Images;

/* A convolution of stride 1.  A data gradient is computed as the convolution of the result's gradient with
 * flipped weights, `flip`; for a gradient of weights, `of_weights`, src and dst are the convolution's. */
typedef struct {
    int src, dst; /* slots of input and output */
    int64_t in, out; /* channels */
    Images from, to;
    int64_t of_out, of_in; /* strides of weights, per channel of the output and of the input */
    bool flip, bias, of_weights;
    bool last, by_panels; /* channels-last images: winograd_last.c; scratch has all tiles at a time */
    DType read, made; /* types of the operands and of the result */
    int64_t down, across, tiles; /* tiles of an image, down and across; tiles in all */
    int64_t block, groups;       /* tiles, and panels of rows, at a time */
    Panel panel;
    int threads;
} Winograd;

/* False: the algorithm does not suit the problem. */
bool winograd_describe(Winograd *w, const Problem *q, int vector, int threads);
int64_t winograd_floats(const Winograd *w); /* floats of scratch, for all threads together */
/* Bits do not depend on the number of threads. */
void winograd_run(const Winograd *w, char *const at[SLOTS], float *scratch);

/* winograd_weights.c: the same for gradients of weights.  The first sets the number of tiles at a time. */
void winograd_weights_cut(Winograd *w);
int64_t winograd_weights_floats(const Winograd *w);
void winograd_weights_run(const Winograd *w, char *const at[SLOTS], float *scratch);

/* winograd_last.c: the same for channels-last images.  The first sets the number of tiles at a time. */
void winograd_last_cut(Winograd *w);
int64_t winograd_last_floats(const Winograd *w);
void winograd_last_run(const Winograd *w, char *const at[SLOTS], float *scratch);

#endif
