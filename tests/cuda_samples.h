/* cuda_samples.h -- operators at sizes that the CUDA printer has texts of their own for, or edges in. */
#ifndef CKC_TESTS_CUDA_SAMPLES_H
#define CKC_TESTS_CUDA_SAMPLES_H
#include "op_samples_int.h"

int cuda_samples(void);
/* The i-th of them; the caller frees it. */
void cuda_sample(Sample *s, int i);
#endif
