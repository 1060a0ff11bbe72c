/* conv_samples.h -- convolutions that together take every way of codegen/cuda_conv.c. */
#ifndef CKC_CONV_SAMPLES_H
#define CKC_CONV_SAMPLES_H
#include "op_samples.h"

int conv_samples(void); /* the number of samples */
/* Makes sample `which` of op, conv or one of its gradients; the caller frees it with sample_free(). */
void conv_sample(Sample *s, Op op, DType dt, int which);
#endif
