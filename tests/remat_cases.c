/* remat_cases.c -- parses and solves instances of rematerialization, and checks results, for tests. */
#include "remat_cases.h"
#include "tests.h"

char err[REMAT_ERR];

RematInstance parse(const char *text)
{
    RematInstance inst;
    ck_assert_msg(remat_parse(text, &inst, NULL, err), "%s", err);
    return inst;
}

uint64_t random_state;

int32_t below(int32_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int32_t)((random_state >> 33) % (uint64_t)n);
}

RematResult solve_to(const RematInstance *inst, int64_t budget, int64_t moves, uint64_t seed,
                     int64_t enough)
{
    RematOptions o = remat_defaults(budget);
    RematResult r;
    o.time_limit_s = 0;
    o.max_moves = moves;
    o.seed = seed;
    o.enough = enough;
    ck_assert_msg(remat_solve(inst, &o, &r, err), "%s", err);
    return r;
}

RematResult solve_seed(const RematInstance *inst, int64_t budget, int64_t moves, uint64_t seed)
{
    return solve_to(inst, budget, moves, seed, 0);
}

RematResult solve(const RematInstance *inst, int64_t budget, int64_t moves)
{
    return solve_seed(inst, budget, moves, 1);
}

void check_result(const RematInstance *inst, const RematResult *r)
{
    int64_t cost, peak;
    ck_assert_msg(remat_evaluate(inst, r->seq, r->n, r->alt, &cost, &peak, err), "%s", err);
    ck_assert_int_eq(cost, r->cost);
    ck_assert_int_eq(peak, r->peak);
    ck_assert_int_eq(r->feasible, peak <= r->budget);
    if (r->feasible)
        ck_assert_int_le(r->lower_bound, r->cost);
    ck_assert_int_le(r->min_budget_bound, r->min_budget);
}
