/* remat_cases.h -- helpers that the tests of the rematerialization solver share. */
#ifndef CKC_TESTS_REMAT_CASES_H
#define CKC_TESTS_REMAT_CASES_H
#include "passes/remat/remat.h"

extern char err[REMAT_ERR]; /* message of the last call that failed */

RematInstance parse(const char *text);
extern uint64_t random_state; /* state of below() */
int32_t below(int32_t n);     /* a random number from 0 to n - 1 */
/* Solve the instance with a limit of `moves` moves and none of time; solve() has seed 1.  A failure ends the
 * test. */
RematResult solve(const RematInstance *inst, int64_t budget, int64_t moves);
RematResult solve_seed(const RematInstance *inst, int64_t budget, int64_t moves, uint64_t seed);
/* The same, but the search also ends when it has come down to the cost `enough`, unless that is 0. */
RematResult solve_to(const RematInstance *inst, int64_t budget, int64_t moves, uint64_t seed,
                     int64_t enough);
/* Checks the result's cost and peak against an independent simulation of its schedule, and its bounds. */
void check_result(const RematInstance *inst, const RematResult *r);
#endif
