/* op_samples.h -- random operands and attributes for every operator. */
#ifndef CKC_OP_SAMPLES_H
#define CKC_OP_SAMPLES_H
#include "ir/attrs.h"

enum { SAMPLE_IN = 12 };

/* One node over inputs with data, in a graph of its own. */
typedef struct {
    Arena arena;
    Diag diag;
    Graph g;
    uint64_t seed; /* state of the generator */
    DType dt;      /* type of the float operands */
    bool empty;    /* shapes may have extents of 0 */
    int size;      /* attention: elements of a head of q and k, with several tiles of rows; 0: mostly small */
    int v_size;    /* the same of v and o; 0: as `size`, or at random */
    Op op;
    int nin;
    Val in[SAMPLE_IN], out[MAX_OUT];
    Tensor data[SAMPLE_IN];
} Sample;

/* Makes a node of op; all random choices follow from op, dt and trial.  False: the operator has no sampler.
 * Otherwise s->diag tells whether the node was built, and the caller frees s with sample_free(). */
bool sample_make(Sample *s, Op op, DType dt, int trial);
/* The same for an operator of attention, with heads of that size and more rows than a tile has. */
void sample_make_attention(Sample *s, Op op, DType dt, int trial, int size, int v_size);
void sample_free(Sample *s);
uint64_t sample_next(Sample *s); /* 64 random bits */
double sample_real(Sample *s, double lo, double hi);
int sample_int(Sample *s, int lo, int hi); /* in [lo, hi], both included */

#endif
