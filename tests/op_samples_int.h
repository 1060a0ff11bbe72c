/* op_samples_int.h -- helpers for the samplers of operators. */
#ifndef CKC_OP_SAMPLES_INT_H
#define CKC_OP_SAMPLES_INT_H
#include "op_samples.h"
#include <string.h>

typedef void SampleFn(Sample *s); /* appends operands, chooses attributes, calls sample_build() */
/* Per operator its sampler, NULL: none.  sample_rows: operators that move elements, work on rows, draw random
 * numbers or update parameters; sample_index: operators with windows or indices. */
extern SampleFn
    *const sample_rows[OP_COUNT];
extern SampleFn *const sample_index[OP_COUNT];

bool sample_chance(Sample *s, int percent);
int64_t sample_extent(Sample *s);
Type sample_shape(Sample *s, int min_rank, int max_rank); /* its type is s->dt */
Type sample_narrower(Sample *s, Type t);                  /* a type that broadcasts to t */
DType sample_some_int(Sample *s);
Ints sample_all_dims(const Type *t);
Type sample_channels_last(Type t); /* makes [N, s..., C] of [N, C, s...] */

/* These append an operand with data. */
Tensor *sample_operand(Sample *s, Type t); /* zeros */
void sample_reals(Sample *s, Type t, double lo, double hi);
void sample_ints(Sample *s, Type t, int lo, int hi);
void sample_numbers(Sample *s, Type t, double lo,
                    double hi);       /* of t's element type; lo and hi are for floats */
void sample_table(Sample *s, Type t); /* for operators that only move elements: at times integers */
void sample_scalar(Sample *s, DType dt, double v);
/* Appends the result of max_pool of x that tells the place of each window's maximum, at random within x. */
void sample_places(Sample *s, const PoolAttrs *at, const Type *x);

void sample_build(Sample *s, const void *attr); /* builds the node over the operands appended */
#endif
