/* conv_samples.h -- convolutions for every way that CUDA's kernels take. */
#ifndef CKC_CONV_SAMPLES_H
#define CKC_CONV_SAMPLES_H
#include "op_samples.h"

int conv_samples(void); /* how many */
/* One of them, forward or a gradient; free with sample_free. */
void conv_sample(Sample *s, Op op, DType dt, int which);
#endif
