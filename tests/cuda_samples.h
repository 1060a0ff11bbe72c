/* cuda_samples.h -- operators at sizes for which the CUDA printer has texts of their own, or which reach the
 * edges of its texts. */
#ifndef CKC_TESTS_CUDA_SAMPLES_H
#define CKC_TESTS_CUDA_SAMPLES_H
#include "op_samples_int.h"

int cuda_samples(void); /* the number of samples */
/* Makes sample i; the caller frees it with sample_free(). */
void cuda_sample(Sample *s, int i);

/* Attention, or its gradient (op), whose products may be those of warpgroups; false: i has no such
 * gradient. */
enum { WARPGROUP_SAMPLES = 11 };
bool warpgroup_sample(Sample *s, Op op, int i);
#endif
