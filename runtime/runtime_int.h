/* runtime_int.h -- pieces that devices and what is above them share. */
#ifndef CKC_RUNTIME_INT_H
#define CKC_RUNTIME_INT_H

#include "runtime.h"

/* ---- cpu/load.c ------------------------------------------------------------ */

typedef struct {
    double used, all; /* seconds of all processors since the machine started: busy, in all */
    double own;       /* seconds of this process on them */
} ProcessorTime;

ProcessorTime processor_time(void);
/* Share of all processors that others have used since then; 0 if the system does not tell. */
double others_since(const ProcessorTime *from);

/* ---- inputs.c ---------------------------------------------------------- */

/* What an integer operand selects from: indices are in [0, limit), and from -limit where
 * `negative`; ignore: one further value, where has_ignore.  limit 0: it is no index. */
typedef struct {
    int64_t limit, ignore;
    bool negative, has_ignore, target;
} IndexRange;
IndexRange index_range(const Graph *g, const Node *n, int operand);
/* What both take; of limit 0, which says nothing, the other. */
IndexRange range_of_both(IndexRange a, IndexRange b);
/* Does n hand indices on as they are? */
bool keeps_indices(const Graph *g, const Node *n);

/* Which elements of an input a value has: first + step * i, 0 <= i < size, along each of the input's axes. */
typedef struct {
    int axis[MAX_RANK]; /* per axis of the value: the input's, or -1 */
    int64_t first[MAX_RANK], step[MAX_RANK], size[MAX_RANK];
} InputView;
InputView view_whole(const Type *t);
/* v, of the operand of a node that keeps indices, becomes that of its result; false: it is not known. */
bool view_follow(InputView *v, const Graph *g, const Node *n);
/* Is the element at at[first], ..., at[rank - 1] (any along the axes before) one of v? */
bool view_has(const InputView *v, const int64_t *at, int first, int rank);

/* ---- train.c ----------------------------------------------------------- */

double median(double *v, int64_t n); /* which it sorts; 0 of none */

/* ---- shuffle.c --------------------------------------------------------- */

/* Element i of a random order of 0 .. n - 1, n < 2^62, which follows from seed and epoch. */
int64_t shuffled(int64_t seed, int64_t epoch, int64_t n, int64_t i);

#endif
