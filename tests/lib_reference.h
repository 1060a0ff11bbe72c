/* lib_reference.h -- computes what library routines do (LibDesc), by plain loops in double precision. */
#ifndef CKC_TESTS_LIB_REFERENCE_H
#define CKC_TESTS_LIB_REFERENCE_H

#include "ir/kernel.h"

/* t: the operands; out: room for as many elements as d->out has.  Images of convolutions are [N, C, s...]. */
void reference_matmul(const LibDesc *d, const Tensor *t, double *out);
void reference_conv(const LibDesc *d, const Tensor *t, double *out);

#endif
