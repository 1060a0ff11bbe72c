/* runtime_int.h -- functions shared by the devices and the runtime above them. */
#ifndef CKC_RUNTIME_INT_H
#define CKC_RUNTIME_INT_H

#include "runtime.h"

/* ---- cpu/load.c ------------------------------------------------------------ */

typedef struct {
    double used, all; /* seconds since boot, summed over processors: busy; busy and idle */
    double own;       /* processor seconds of this process */
} ProcessorTime;

ProcessorTime processor_time(void);
/* Share of all processors that other processes have used since `from`; 0 if the system does not tell. */
double others_since(const ProcessorTime *from);

/* ---- inputs.c ---------------------------------------------------------- */

/* The valid values of an integer operand that selects: [0, limit), or [-limit, limit) if `negative`, and the
 * value `ignore` if has_ignore.  limit 0: it is no index. */
typedef struct {
    int64_t limit, ignore;
    bool negative, has_ignore, target;
} IndexRange;
IndexRange index_range(const Graph *g, const Node *n, int operand);
/* The intersection of two ranges; one of limit 0 does not restrict the other. */
IndexRange range_of_both(IndexRange a, IndexRange b);
/* Does the result of n consist of integers of its operand, unchanged? */
bool keeps_indices(const Graph *g, const Node *n);

/* The elements of an input that a value has: element `first` and, along each axis of the value, those at a
 * distance of step * i, 0 <= i < size. */
typedef struct {
    int rank;
    bool regrouped; /* the value's axes are others, after a reshape of axes that have no common distance */
    int64_t first, step[MAX_RANK], size[MAX_RANK];
} InputView;
InputView view_whole(const Type *t);
/* Turns v from the view of a node's operand into that of its result, for a node that keeps_indices(); false:
 * the view is not known. */
bool view_follow(InputView *v, const Graph *g, const Node *n);
/* Sets has[place] for each element of v, where rows of an input have `row` elements, and place is that in
 * any. */
void view_mark(const InputView *v, int64_t row, bool *has);

/* ---- train.c ----------------------------------------------------------- */

double median(double *v, int64_t n); /* sorts v; 0 if n is 0 */

/* ---- shuffle.c --------------------------------------------------------- */

/* Element i of a random permutation of 0 .. n - 1, n < 2^62, a function of seed and epoch. */
int64_t shuffled(int64_t seed, int64_t epoch, int64_t n, int64_t i);

#endif
