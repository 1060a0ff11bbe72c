/* winograd.h -- 3x3 convolutions and their gradients with a quarter of the multiplications, for
 * processors where the library has no such routine. */
#ifndef CKC_WINOGRAD_H
#define CKC_WINOGRAD_H

#include "panel.h"
#include "problem.h"

/* Rows and columns of each channel of each image, and how they lie. */
typedef struct {
    int64_t height, width, stride[4]; /* from image, channel, row and column to the next */
    int64_t pad_y, pad_x;             /* in front of them */
} Images;

/* A convolution of stride 1, as it is computed: a data gradient is one of the result's gradient with weights
 * that are turned, `flip`; of a gradient of weights, `of_weights`, src and dst are the forward's. */
typedef struct {
    int src, dst; /* slots */
    int64_t in, out; /* channels */
    Images from, to;
    int64_t of_out, of_in; /* strides of weights, from channel to channel */
    bool flip, bias, of_weights;
    bool last, by_panels; /* channels lie together: winograd_last.c; all tiles at a time */
    DType read, made; /* types: of operands, of the result */
    int64_t down, across, tiles; /* of an image; of all */
    int64_t block, groups;       /* tiles at a time; panels of rows */
    Panel panel;
    int threads;
} Winograd;

/* False: it is none that this can do. */
bool winograd_describe(Winograd *w, const Problem *q, int vector, int threads);
int64_t winograd_floats(const Winograd *w); /* of scratch, of all threads */
/* Bits do not depend on the number of threads. */
void winograd_run(const Winograd *w, char *const at[SLOTS], float *scratch);

/* winograd_weights.c: likewise, of gradients of weights.  Sets the number of tiles at a time. */
void winograd_weights_cut(Winograd *w);
int64_t winograd_weights_floats(const Winograd *w);
void winograd_weights_run(const Winograd *w, char *const at[SLOTS], float *scratch);

/* winograd_last.c: likewise, of images whose channels lie together.  Sets the number of tiles at a time. */
void winograd_last_cut(Winograd *w);
int64_t winograd_last_floats(const Winograd *w);
void winograd_last_run(const Winograd *w, char *const at[SLOTS], float *scratch);

#endif
