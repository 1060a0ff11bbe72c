/* remat_cases.h -- what the tests of the solver share. */
#ifndef CKC_TESTS_REMAT_CASES_H
#define CKC_TESTS_REMAT_CASES_H
#include "passes/remat/remat.h"

extern char err[REMAT_ERR]; /* of the last call that failed */

RematInstance parse(const char *text);
extern uint64_t random_state; /* of below */
int32_t below(int32_t n);     /* 0 .. n - 1 */
/* So many moves, no time limit; seed 1 if none is given. */
RematResult solve(const RematInstance *inst, int64_t budget, int64_t moves);
RematResult solve_seed(const RematInstance *inst, int64_t budget, int64_t moves, uint64_t seed);
/* The search also ends when it has come down to the cost `enough`. */
RematResult solve_to(const RematInstance *inst, int64_t budget, int64_t moves, uint64_t seed,
                     int64_t enough);
/* The result is what an independent simulation of its schedule says. */
void check_result(const RematInstance *inst, const RematResult *r);
#endif
