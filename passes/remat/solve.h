/* solve.h -- pieces of the solver that several files use. */
#ifndef CKC_REMAT_SOLVE_H
#define CKC_REMAT_SOLVE_H
#include "anneal.h"

/* Puts a schedule into the result, with the best kernel choices for budget. */
void result_set(RematResult *r, const Problem *p, const Seq *s, int64_t budget);

/* ---- evict.c: constructing a schedule in one sweep --------------------------------------------- */

typedef enum { EVICT_NEXT_USE, EVICT_DTR } EvictRule;

/* Runs order (every operator once), evicts values when a step would exceed budget, and makes them again before their next
 * reader. False when the sweep gives up (s is then unchanged). In-place permissions are not used. */
bool evict_sweep(const Problem *p, const int32_t *order, int64_t budget, EvictRule rule, Seq *s);

/* ---- bound.c ---------------------------------------------------------------------------------------- */

/* Largest step that every schedule has: a lower bound of the least budget. */
int64_t bound_least_budget(const Problem *p);
void bound_problem(const Problem *p, int64_t budget, int effort, double deadline, RematBound *bound);

#endif
