/* remat.h -- rematerialization: which operators to run again, and when, so that a step fits
 * a budget.
 *
 * The solver stands alone: it sees an abstract instance (operators with a cost and a
 * workspace, values with bytes) and answers with a sequence of executions. Costs are int64
 * in whatever unit the caller likes (the compiler uses nanoseconds), memory is int64 bytes;
 * both are summed exactly. While it searches, the solver counts memory in multiples of what
 * divides all sizes or, if that is more, of a 2^28th of their sum, and rounds up: a budget that
 * leaves no room for that may be missed.
 *
 * Model. An execution of an operator makes a new copy of each of its outputs. A read takes
 * the copy of the latest earlier execution of the producer. A copy is resident from the
 * step that makes it to its last reader; the last copy of a keep_to_end value stays to the
 * end. The bytes of a step are
 *
 *     persistent + resident copies + workspace - in-place savings
 *
 * its inputs and outputs being among the copies, and the peak is the largest step. Every
 * operator runs at least once.
 *
 * A fetch is an operator without inputs that makes new copies of another operator's outputs,
 * which were offloaded after that one ran. It runs any number of times, but never before it. The link costs
 * (RematOp.link) of all fetches of a schedule sum to at most RematInstance.link. A fetched output takes its
 * bytes in the host's memory once however often it is fetched: these sum to at most RematInstance.host.
 *
 * Errors: functions return false and write one line to err (REMAT_ERR bytes). Nothing here
 * exits. An infeasible budget is no error: see RematResult.feasible.
 */
#ifndef CKC_REMAT_H
#define CKC_REMAT_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { REMAT_ERR = 256, REMAT_MAX_THREADS = 64 };

/* ---- the instance (instance.c) ------------------------------------------------------- */

typedef struct {
    int64_t bytes;
    bool keep_to_end;
} RematValue;

typedef struct {
    int64_t cost, workspace;
} RematAlt;

/* Output out[out] may take over the buffer of input in[in] when this step is the last
 * reader of that copy: the larger of the two counts instead of the sum. A buffer is taken
 * over once; pairs are tried in the order given. */
typedef struct {
    int32_t out, in; /* positions in the operator's own lists */
} RematInPlace;

/* The lane that an operator runs in: kernels, copies from the host's memory, copies to it. */
typedef enum { REMAT_KERNEL, REMAT_IN, REMAT_OUT } RematLane;

typedef struct {
    int64_t cost, workspace; /* of kernel choice 0 */
    int32_t nin, nout;
    const int32_t *in, *out; /* values, each once per list; one producer each */
    bool once;               /* must not run a second time */
    int32_t layer;           /* layer of the model, rising from 1 on, for policies; 0: in none */
    int32_t ninplace;        /* at most 64 */
    const RematInPlace *inplace;
    int32_t nalt;
    const RematAlt *alt; /* kernel choice k > 0 is alt[k - 1]; at most 255 of them */
    int32_t nbarrier;
    const int32_t *barrier; /* operators that must not run once this one has run */
    int32_t fetch_of;       /* for a fetch: the operator whose outputs it makes */
    int64_t link;           /* for a fetch: its share of RematInstance.link; for other copies: their time */
    RematLane lane;         /* for an operator that runs once; not set for a fetch, which is a copy in */
    int64_t staged; /* for a copy that is no fetch: bytes of what it copies, resident from the copy in
                     * to the copy out, and not among the bytes of the values */
} RematOp;

/* The order of ops is a valid topological order and respects the barriers. The fetches follow
 * them, at most one for each operator. Arrays belong to the caller, unless remat_read made
 * them. */
typedef struct {
    int32_t nops, nvalues;
    RematOp *ops; /* nops + nfetch */
    RematValue *values;
    int64_t persistent;   /* bytes that are always there: parameters, optimizer state */
    int32_t loss;         /* last forward operator, -1 = unknown (for policies) */
    void *memory;         /* owned storage when made by remat_read */
    int64_t whole;        /* bytes that budgets in percent are relative to; 0: the input order's peak */
    int32_t nfetch;
    int64_t link;         /* limit on the sum of RematOp.link over all fetches of a schedule */
    int64_t host;         /* limit on the bytes of all values that a schedule fetches, each once; 0: none */
} RematInstance;

/* Checks ranges, producers, order, barriers, and that the costs of the dearest kernels sum to less than 2^52
 * and the bytes to less than 2^62. Does the same for every instance the functions below are given. */
bool remat_check(const RematInstance *inst, char err[REMAT_ERR]);

/* Reads a .dag file. One operator per line, '#' starts a comment:
 *
 *     id cost bytes [input ids...] [; field ...]
 *
 * ids are any distinct nonnegative numbers; the input order is topological, the smallest id first. The
 * fields:
 *
 *     ws=N            workspace
 *     keep[=K]        output K (default 0) lives to the end
 *     once            never run again
 *     layer=N         layer of the model, from 1 on; policies store values outside all layers
 *     out=N           a further output of N bytes
 *     inplace=ID[.K][:J]  output J (default 0) may take over that input
 *     alt=COST,WS     a further kernel choice
 *     before=ID       barrier: ID must not run after this
 *
 * If no line has a layer, layers end where one value carries everything across.
 * A line "whole N" sets the bytes that budgets in percent are relative to (0: the input order's peak).
 * No setting and no ws, layer stands twice. An input ID.K is output K of operator ID. A line "persistent N"
 * sets the persistent bytes, a line "loss ID" names the last forward operator. A line "fetch ID COST LINK"
 * says that the outputs of ID may be fetched, a line "link N" sets the limit on the LINKs of all fetches, a
 * line "host N" the limit on bytes that are fetched, each once (0: none). ids: the file's id of each
 * operator; for a fetch, of the operator it fetches (owned by the instance); may be NULL. */
bool remat_read(const char *path, RematInstance *inst, const int64_t **ids,
                char err[REMAT_ERR]);
bool remat_parse(const char *text, RematInstance *inst, const int64_t **ids,
                 char err[REMAT_ERR]);
void remat_free(RematInstance *inst);

/* Writes a checked instance as a .dag file; ids are positions. */
void remat_write(const RematInstance *inst, FILE *f);

/* ---- evaluation (evaluate.c) --------------------------------------------------------- */

/* Simulates seq (n operators; alt[i] the kernel choice of step i, NULL = all 0) from
 * scratch, independently of the search. False with the reason when the sequence is not a
 * schedule of the instance. */
bool remat_evaluate(const RematInstance *inst, const int32_t *seq, int32_t n,
                    const uint8_t *alt, int64_t *cost, int64_t *peak, char err[REMAT_ERR]);

/* The same, and the bytes of every step in step_bytes (n entries). */
bool remat_profile(const RematInstance *inst, const int32_t *seq, int32_t n,
                   const uint8_t *alt, int64_t *step_bytes, char err[REMAT_ERR]);

/* Peak of the input order with kernel choice 0 everywhere, and the least cost any schedule
 * has: every operator once with its cheapest kernel. Percentages are relative to these. */
int64_t remat_input_peak(const RematInstance *inst);
int64_t remat_base_cost(const RematInstance *inst);

/* ---- solving (solve.c) --------------------------------------------------------------- */

#define REMAT_OPTIMAL 1e-6 /* relative gap that counts as none */

typedef struct {
    double seconds;
    int64_t moves; /* search moves so far: a machine-independent clock */
    int64_t cost, peak;
} RematPoint;

typedef struct {
    int64_t budget;      /* bytes, persistent ones included */
    double time_limit_s; /* 0 = none */
    int64_t max_moves;   /* 0 = none; with this as the only limit the result does not depend
                          * on the speed of the machine */
    uint64_t seed;
    int threads;          /* 0 and 1 = one; the result depends on it, but not on timing */
    double gap;           /* stop when cost <= bound * (1 + gap); 0 = only at the optimum */
    int64_t enough;       /* stop also when cost <= this; 0 = only by the gap */
    bool rough_bound;     /* skip the more expensive lower bound */
    const int32_t *start; /* a schedule to start from, or NULL */
    int32_t nstart;
    bool repair;          /* start is cheap but slightly over the budget: bring it within the budget first */
    void (*progress)(void *user,
                     const RematPoint *point); /* each improvement; may be NULL */
    /* Called now and then during the search, with the best schedule so far (cost 0: none) and the bound;
     * done: the spent fraction of the limit on moves or time. */
    void (*tick)(void *user, const RematPoint *best, int64_t bound, double done);
    void *user;
} RematOptions;

/* This budget, 10 s, one thread, seed 1. */
RematOptions remat_defaults(int64_t budget);

typedef struct {
    int64_t budget;
    bool feasible;          /* the schedule below fits the budget */
    bool proved_optimal;    /* cost is within REMAT_OPTIMAL of lower_bound */
    bool proved_infeasible; /* the budget is below min_budget_bound */
    int32_t n;
    int32_t *seq; /* operators in execution order; when not feasible: the schedule of
                   * the least peak that was found */
    uint8_t *alt; /* kernel choice of each step */
    int64_t cost, peak;
    double price;        /* shadow price: cost that one more byte saves, by the bound; 0 = unknown */
    int64_t lower_bound; /* on the cost of every schedule within the budget, in any order */
    int64_t min_budget;  /* least peak that was seen (an upper bound of the least budget) */
    int64_t min_budget_bound; /* no schedule has a smaller peak */
    int64_t moves;
    double seconds;
    int32_t nhistory;
    RematPoint *history; /* feasible schedules in order of discovery, costs falling */
} RematResult;

/* Takes a bound of the cost where it is larger, and tells by it whether the schedule is optimal. */
void remat_raise_bound(RematResult *result, int64_t lower_bound);
void remat_result_free(RematResult *result);

/* At least one of time_limit_s and max_moves must be set. Deterministic in (instance,
 * budget, seed, threads, max_moves); a time limit only decides how far the search gets. */
bool remat_solve(const RematInstance *inst, const RematOptions *options,
                 RematResult *result, char err[REMAT_ERR]);

/* The smallest budget for which a schedule was found (result: that schedule) and
 * min_budget_bound. options->budget is ignored; options->gap: stop when the peak is this close to that
 * bound. */
bool remat_min_budget(const RematInstance *inst, const RematOptions *options,
                      RematResult *result, char err[REMAT_ERR]);

/* count budgets, evenly spaced from the input order's peak (or options->budget when not 0)
 * down to the least one; results[i] never costs more than results[i + 1]. The limits of
 * options hold for the whole curve. */
bool remat_pareto(const RematInstance *inst, const RematOptions *options, int32_t count,
                  RematResult *results, char err[REMAT_ERR]);

/* ---- the order, for packing (repack.c) ----------------------------------------------- */

/* Reorders a schedule (n operators, a valid one, and their kernel choices) so that fewer bytes are resident
 * beside its peak, which does not rise; every execution reads the copies it read before. Offsets
 * in one arena are easier to find then. Deterministic in (inst, seq, seed, exchanges). */
void remat_repack_order(const RematInstance *inst, int32_t *seq, uint8_t *alt, int32_t n, uint64_t seed,
                        int64_t exchanges);

/* ---- copies beside kernels (overlap.c) ------------------------------------------------- */

/* Moves the copies of a valid schedule, fetches included, to where they are done in time. offload[k]: the
 * step after which the outputs of the execution at k need not be held, as they are offloaded; -1: they are
 * not fetched. The link is in units of cost. The peak does not rise; at most `room` bytes, or those of one
 * operator, are staged at a time. Returns roughly how long operators still wait for copies, in units of
 * cost. */
int64_t remat_overlap(const RematInstance *inst, int32_t *seq, uint8_t *alt, int32_t n, int64_t room,
                      int32_t *offload);

/* ---- bounds (bound.c, bound_peak.c, bound_stage.c) ----------------------------------- */

typedef struct {
    int64_t cost;       /* every schedule within the budget costs at least this */
    int64_t min_budget; /* every schedule needs at least this budget */
    bool infeasible;    /* min_budget > budget, or the cut itself proves it */
    int32_t node;       /* operator whose first run gives the bound, -1 = trivial */
    double price;       /* cost saved per further byte of budget there */
} RematBound;

/* effort 0: the parametric min cut over all useful operators. effort 1: also the bound on the
 * least peak of bound_peak.c, and the stage model by integer programming when built with GLPK
 * and the instance has at most 600 operators. */
bool remat_bound(const RematInstance *inst, int64_t budget, int effort, RematBound *bound,
                 char err[REMAT_ERR]);

/* ---- named policies (policy.c) ------------------------------------------------------- */

/* Schedules by a named policy. keep-all and recompute-all are the extremes; by layers: every-N (segments of N
 * layers), segments=1-2,4 (recomputes these, counted from 1; stores the others), ratio=F (recomputes a
 * fraction F of the layers, each by itself), chen-sqrt; by budget: chen-greedy, greedy (bytes per cost),
 * knapsack (PyTorch's), revolve, dtr; whatever the budget: selective (recomputes what is cheaper than
 * average). A schedule may miss the budget: result->feasible says so. */
extern const char *const remat_policies[]; /* names that are usually compared; NULL terminated */
bool remat_is_policy(const char *name);
bool remat_named_policy(const RematInstance *inst, const char *name, int64_t budget,
                        RematResult *result, char err[REMAT_ERR]);
#endif
