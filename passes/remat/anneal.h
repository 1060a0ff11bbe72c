/* anneal.h -- simulated annealing over schedules; see anneal.c. */
#ifndef CKC_REMAT_ANNEAL_H
#define CKC_REMAT_ANNEAL_H
#include "state.h"

typedef struct Search Search;
struct Search {
    State state;
    Rng rng;
    double unit;   /* cost of a typical operator: the scale of temperatures */
    double weight; /* cost per unit of excess; adapts */
    double temperature;
    double cap;           /* no accepted move ends above this cost */
    int32_t left;         /* runs that the current move may still add */
    bool coin_flips;      /* as in Cooling */
    bool sparing;         /* relieve skips candidates above the cost limit, cap */
    int32_t least;        /* search_reach: the least peak so far, in quanta: the peak of best */
    int32_t *live_out, nlive_out; /* values that stay to the end */
    int64_t moves;
    int64_t best_cost; /* INT64_MAX = nothing feasible yet */
    Seq best;
    bool pending; /* the state is better than best and not stored yet */
    bool stored;  /* best was replaced since the last report */
    void (*improved)(void *user, Search *s); /* best was replaced; may be NULL */
    void *user;
};

void search_init(Search *s, const Problem *p, int64_t budget, uint64_t seed);
void search_free(Search *s);
void search_load(Search *s, const Seq *from, const uint8_t *kernels);

typedef struct {
    double hot, cold; /* first and last temperature, in units of cost */
    double weight;   /* initial weight: units of cost for a hundredth of the budget in one step */
    bool coin_flips; /* decide at random whether to recompute a dead input */
} Cooling;

/* Runs until `moves` more moves were tried; stops early when the best cost is at most
 * target or deadline (monotonic seconds, 0 = none) has passed. Returns false when it
 * stopped early. */
bool search_run(Search *s, int64_t moves, Cooling c, int64_t target, double deadline);

/* Searches for a low peak at one temperature (hot) and weight: the working limit follows the
 * schedule's peak down to the limit that is set, and how it falls does not depend on that one.
 * Ends after `moves` moves, or when the peak has not fallen for `patience` of them. Returns
 * whether the limit was met; best is the schedule of the least peak. */
bool search_reach(Search *s, int64_t moves, int64_t patience, Cooling c, double deadline);

/* Removes every execution that a schedule within the limit can do without, until the deadline. */
void search_polish(Search *s, double deadline);
#endif
