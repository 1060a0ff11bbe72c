/* sample.h -- shared by sample.c and sample_onnx.c. */
#ifndef CKC_OPS_SAMPLE_H
#define CKC_OPS_SAMPLE_H
#include "layout.h"

enum { SAMPLE_DIMS = 3, SAMPLE_TAPS = 4 }; /* most spatial dimensions, and taps along one */

static inline int sample_taps(const GridSampleAttrs *at)
{
    return at->mode == SAMPLE_NEAREST ? 1 : at->mode == SAMPLE_LINEAR ? 2 : SAMPLE_TAPS;
}

/* Pixel coordinates along a dimension of that extent are (grid + shift) * scale + offset. */
static inline double sample_shift(const GridSampleAttrs *at) { return at->pixels ? 0 : 1; }
static inline double sample_scale(const GridSampleAttrs *at, int64_t extent)
{
    return at->pixels ? 1 : (double)(extent - (at->corners != 0)) / 2;
}
static inline double sample_offset(const GridSampleAttrs *at) { return at->pixels || at->corners ? 0 : -0.5; }

bool sample_onnx(OnnxNodes *o, const Graph *g, const Node *n);
bool sample_bwd_data_onnx(OnnxNodes *o, const Graph *g, const Node *n);
bool sample_bwd_grid_onnx(OnnxNodes *o, const Graph *g, const Node *n);
#endif
