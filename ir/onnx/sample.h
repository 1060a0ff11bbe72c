/* sample.h -- reading an image between its pixels: shared by GridSample, RoiAlign,
 * DeformConv. */
#ifndef CKC_ONNX_SAMPLE_H
#define CKC_ONNX_SAMPLE_H

#include "onnx_int.h"

typedef enum { SAMPLE_NEAREST, SAMPLE_LINEAR, SAMPLE_CUBIC } SampleMode;
typedef enum { OUTSIDE_ZERO, OUTSIDE_BORDER, OUTSIDE_REFLECTED } SampleOutside;

enum { SAMPLE_DIMS = 3 };

typedef struct {
    SampleMode mode;
    SampleOutside outside;
    bool largest; /* the largest weighted neighbour instead of their sum (RoiAlign's "max")
                   */
    bool corners; /* reflection is about the centres of the outermost pixels, not their
                     edges */
    int n;        /* spatial dimensions */
    int64_t extent[SAMPLE_DIMS];
} Sampler;

/* x[N,C,s...] at at[d][N,P], pixel coordinates of dimension d: [N,C,P].  Differentiable in
 * both. */
Val sample(Graph *g, const Sampler *s, Val x, const Val *at);

#endif
