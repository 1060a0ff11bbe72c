/* op_samples_int.h -- what the samplers of operators are made of. */
#ifndef CKC_OP_SAMPLES_INT_H
#define CKC_OP_SAMPLES_INT_H
#include "op_samples.h"
#include <string.h>

typedef void SampleFn(Sample *s); /* operands, attributes, sample_build */
extern SampleFn
    *const sample_rows[OP_COUNT]; /* moving elements, rows, randomness, optimizers */
extern SampleFn *const sample_index[OP_COUNT]; /* windows and indices */

bool sample_chance(Sample *s, int percent);
int64_t sample_extent(Sample *s);
Type sample_shape(Sample *s, int min_rank, int max_rank); /* of the sample's float type */
Type sample_narrower(Sample *s, Type t);                  /* broadcasts to t */
DType sample_some_int(Sample *s);
Ints sample_all_dims(const Type *t);
Type sample_channels_last(Type t); /* [N, s..., C] of [N, C, s...] */

/* Append an operand with data. */
Tensor *sample_operand(Sample *s, Type t); /* zeros */
void sample_reals(Sample *s, Type t, double lo, double hi);
void sample_ints(Sample *s, Type t, int lo, int hi);
void sample_numbers(Sample *s, Type t, double lo,
                    double hi);       /* of the element type t has */
void sample_table(Sample *s, Type t); /* data that is only moved: integers at times */
void sample_scalar(Sample *s, DType dt, double v);
/* Where in each window a maximum is, of a max_pool of x: anywhere in the data. */
void sample_places(Sample *s, const PoolAttrs *at, const Type *x);

void sample_build(Sample *s, const void *attr); /* the node over the operands */
#endif
