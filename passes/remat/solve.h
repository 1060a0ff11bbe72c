/* solve.h -- parts of the solver that several files use. */
#ifndef CKC_REMAT_SOLVE_H
#define CKC_REMAT_SOLVE_H
#include "anneal.h"

/* Stores the schedule, with the best kernel choices for budget, in the result if it beats the
 * one there: it fits and is cheaper, or nothing fits yet and its peak is lower. */
bool result_offer(RematResult *r, const Problem *p, const Seq *s, int64_t budget);

/* ---- order.c ------------------------------------------------------------------------- */

void order_greedy(const Problem *p, int32_t *order); /* nops entries */
void order_depth_first(const Problem *p, int32_t *order);

/* ---- evict.c: constructing a schedule in one sweep ----------------------------------- */

typedef enum { EVICT_NEXT_USE, EVICT_DTR } EvictRule;

/* Runs order (every operator once), evicts values when a step would exceed budget, and
 * recomputes them before their next reader. False when the sweep gives up, or would cost more than
 * most_cost (s is then unchanged). */
bool evict_sweep(const Problem *p, const int32_t *order, int64_t budget, int64_t most_cost, EvictRule rule,
                 Seq *s);

/* ---- bound.c ------------------------------------------------------------------------- */

/* Largest step that every schedule has: a lower bound of the least budget. */
int64_t bound_least_budget(const Problem *p);
int64_t bound_step_bytes(const Problem *p,
                         int32_t op); /* bytes resident in every step that runs op */
/* The most bytes that in-place permissions can save in a step of o; stays: per value, it is not
 * taken over; may be NULL. */
int64_t bound_most_saved(const RematInstance *inst, const RematOp *o, const uint8_t *stays);
/* Per op: bytes that would be resident at its first run if nothing were run again, beyond
 * the budget. */
void bound_excess(const Problem *p, int64_t budget, int64_t *excess);
void bound_problem(const Problem *p, int64_t budget, double deadline, RematBound *bound);

/* ---- bound_peak.c -------------------------------------------------------------------- */

/* A higher lower bound of the least budget, found in about a tenth of a second. known: the peak of a
 * schedule; a bound that reaches it is enough. */
int64_t bound_peak(const Problem *p, int64_t known);

/* ---- bound_stage.c ------------------------------------------------------------------- */

/* Raises bound->cost by integer programming until the deadline (monotonic seconds), or until about so much
 * work is done (pivots of the simplex method times rows: the same on every machine; INFINITY for no limit),
 * or until it reaches `known`, the cost of a schedule. */
void bound_stages(const Problem *p, int64_t budget, double deadline, double work, int64_t known,
                  RematBound *bound);

#endif
