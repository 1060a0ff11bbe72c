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
    int32_t left;         /* runs that the move at hand may still add */
    bool coin_flips;      /* as in Cooling */
    bool sparing;         /* relieve skips candidates above the cost limit, cap */
    int32_t least;        /* search_reach: the least peak, that of best */
    int32_t *live_out, nlive_out; /* values that stay to the end */
    int64_t moves;
    int64_t best_cost; /* INT64_MAX = nothing feasible yet */
    Seq best;
    bool pending; /* the state is better than best, and not stored yet */
    bool stored;  /* best was replaced since the last report */
    void (*improved)(void *user, Search *s); /* best was replaced; may be NULL */
    void *user;
};

void search_init(Search *s, const Problem *p, int64_t budget, uint64_t seed);
void search_free(Search *s);
void search_load(Search *s, const Seq *from, const uint8_t *kernels);

typedef struct {
    double hot, cold; /* first and last temperature, in units of cost */
    double weight;   /* to start with: units of cost for a hundredth of the budget in one step */
    bool coin_flips; /* whether to recompute a dead input is left to chance */
} Cooling;

/* Runs until `moves` more moves were tried; stops early when the best cost is at most
 * target or deadline (monotonic seconds, 0 = none) has passed. Returns false when it
 * stopped early. */
bool search_run(Search *s, int64_t moves, Cooling c, int64_t target, double deadline);

/* At one temperature (hot) and weight the limit follows the peak of the schedule down to the
 * one that is set; how it falls does not depend on where that is. Ends after so many moves, or
 * when for `patience` of them the peak did not fall. Returns whether the limit was met; best
 * is the schedule of the least peak. */
bool search_reach(Search *s, int64_t moves, int64_t patience, Cooling c, double deadline);

/* From a schedule within the limit: removes every execution that can be spared there. */
void search_polish(Search *s);
#endif
