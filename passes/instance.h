/* instance.h -- a graph as a rematerialization instance, and a schedule as a graph again. */
#ifndef CKC_INSTANCE_H
#define CKC_INSTANCE_H
#include "ir/sequence.h"
#include "passes.h"
#include "remat/remat.h"

/* The command that an execution of a step runs if only some of its results are read. */
typedef struct Variant {
    struct Variant *next;
    const bool *read; /* per result of the step's nodes: something reads it, or a view of it */
    Command c;
} Variant;

/* A result of a step that may be offloaded and fetched, with nodes for that; they are in no order yet. */
typedef struct {
    Val value, fetched;
    NodeId offload, fetch;
    Command out, in;
} Move;

/* Operators are the plan's steps; values are the computed values that have memory.  Views are no
 * operators: they follow the step that makes the value they view. */
typedef struct {
    RematInstance inst;
    Plan cut;              /* the steps of the graph the instance was made from */
    StepCost *cost;        /* per node id: cost of the step that starts with it; NULL: not known */
    Variant **variant;     /* per step */
    bool *live;            /* per value: false between calls */
    Arena *arena;
    int32_t *op_of_node;   /* per node id: its step, -1 = none (views of sources) */
    NodeId **views;        /* per step: views to schedule behind it */
    uint32_t *nviews;
    NodeId *free_views;    /* views of sources: scheduled first */
    uint32_t nfree;
    uint32_t nops, tail;   /* the instance is one micro-batch: steps from nops on, nodes from
                            * order[tail] on, run unchanged after all micro-batches */
    int64_t batches, tail_ns; /* micro-batches of a step; ns of the steps from nops on */
    Move **moves;          /* per step: moves of its results; NULL: they are not fetched */
    uint32_t *nmoves;
    Val *fetched;          /* per value: the value that it is a fetched copy of; {0}: none */
    bool copies;           /* the instance has copies beside kernels: fetches, or copies of states */
    int64_t room;          /* bytes for staged states, included in the persistent bytes */
    bool any_bits;         /* candidates with other bits are kernel choices as well */
} Instance;

/* Makes an instance of the graph; everything is allocated in a.  With a link, computed values may be fetched:
 * the graph and info->cost get nodes for the copies, which are in no order yet. */
bool instance_make(Graph *g, StepInfo *info, bool any_bits, Arena *a, Instance *in, Diag *d);

/* The budget in bytes if none was given: the memory of a device that is only planned for, if a step of
 * `whole` bytes does not fit it; else 0 (cost.c). */
int64_t memory_as_budget(const PassCtx *cx, int64_t whole);
/* A budget in bytes, or the memory of a device that is planned for if that is less. */
int64_t budget_within_memory(const PassCtx *cx, int64_t budget);

/* The device's link to the host's memory, within what the options allow (offload.c). */
HostLink step_link(const StepOptions *o);

/* The optimizer states that are kept in the host's memory. */
typedef struct {
    int64_t bytes, room; /* of all these states; on the device, for those that are there at a time */
    int64_t beside_ns;   /* ns that their copies cost the kernels beside them */
} Staging;
/* Moves states of about so many bytes, evenly over all updates, to the host's memory: each is fetched for its
 * update and offloaded behind it (offload.c). */
Staging graph_offload_states(Graph *g, StepInfo *info, int64_t bytes, Arena *tmp);
typedef struct {
    int64_t moved; /* bytes in the host's memory that give the least predicted time of a step: by the bound on
                    * the cost of schedules within the budget that is left, and by the copies, which run
                    * beside everything behind the loss */
    int64_t ns;    /* that time, an estimate: no plan is known to reach it */
    int64_t all;   /* bytes of all states that can move, at most what the host's memory takes */
    int64_t part;  /* the least difference in bytes that matters */
    bool fits;     /* the bound does not rule out that all states stay on the device */
    /* Results of the plans tried so far: */
    int64_t best_ns;      /* time of the fastest plan; INT64_MAX: there is none yet */
    int64_t least, none;  /* moved bytes: the fewest with a plan; the last tried without one, -1: none */
    int halves;
} StatesAway;
/* Chooses what to try: fills *away. */
bool choose_states_away(const Graph *g, PassCtx *cx, int64_t budget, StatesAway *away);
/* Returns how many bytes of states to move next; -1: stop.  The order: none, if all could stay; then
 * away->moved; all, if no plan is found; then fewer, between where a plan is found and where none is; and a
 * little more where a plan takes far longer than predicted, for as long as that helps.  ns: time of the plan
 * with `moved` bytes, INT64_MAX: there is none.  once: one plan is enough. */
int64_t next_states_away(StatesAway *away, int64_t moved, int64_t ns, bool once);
/* ns of a step whose micro-batches take `ns` each; and ns of a micro-batch of a step that takes `ns`. */
static inline int64_t step_ns(const Instance *in, int64_t ns) { return ns * in->batches + in->tail_ns; }
static inline int64_t micro_ns(const Instance *in, int64_t ns) { return (ns - in->tail_ns) / in->batches; }
/* Adds moves and fetches to each step of an instance that has none yet (offload.c). */
bool instance_add_moves(Graph *g, Instance *in, StepInfo *info, const Command *c, Diag *d);
/* Limits the fetches of an instance, which has `all` of them and `link` of the link, in steps 1 to
 * FETCH_FEWER: first to ever earlier values, which have more time for their copies; then to ever less of the
 * link, as without room to wait values must leave as fast as they are made; in the last step to no fetch. */
enum { FETCH_FEWER = 7 };
void fetch_fewer(Instance *in, int step, int32_t all, int64_t link);

/* Sets the layers of the instance's forward operators, by the names of modules (layers.c). */
void instance_layers(const Graph *g, Instance *in, Arena *tmp);
/* The scope of the module that computes v, such as "h.3.attn", or of a source v's own name; "": not known
 * (peak.c).  Allocated in a. */
const char *value_scope(const Graph *g, Val v, Arena *a);

/* A schedule of an instance: its operators in order of execution, and their kernel choices. */
typedef struct {
    const int32_t *op;
    const uint8_t *alt;
    int32_t n;
} Schedule;

/* The commands that the schedule runs, without executions whose results nobody reads; the graph stays as it
 * is.  Allocated in a. */
bool instance_sequence(Instance *in, Schedule s, Sequence *out, Arena *a, Diag *d);
/* Makes the schedule the graph's order: steps that run again are cloned.  The instance is of no use then. */
void instance_apply(Graph *g, const Instance *in, Schedule s, Arena *tmp);

typedef enum { PACK_QUICK, PACK_LONG, PACK_LONGEST } PackEffort; /* milliseconds to seconds */
typedef struct {
    int64_t arena, live; /* bytes: the arena; the largest sum of live bytes */
    int64_t host;        /* bytes of the host's memory for offloaded values */
} ArenaSize;

/* Chooses offsets for a sequence (plan.c).  More than the quick effort is made only if the arena is more than
 * 0.5 % above the live bytes, or above a budget (0: none) that is less than that above them. */
bool sequence_place(const Sequence *s, StepInfo *info, int64_t budget, PackEffort effort, ArenaSize *size,
                    Arena *tmp, Diag *d);
/* The same for the graph as it stands: fills p, allocated in g's arena. */
bool plan_place(Graph *g, StepInfo *info, int64_t budget, PackEffort effort, Plan *p, Arena *tmp,
                Diag *d);
/* Fills p with the plan of the step that keeps everything: gradients whole, activations stored; its curve
 * goes to cx->info.  split, blocks: the graph with gradients in blocks, and its plan. */
bool plan_place_whole(const Graph *split, const StepInfo *info, const Plan *blocks, Plan *p, PassCtx *cx);
/* Moves the smallest casts of parameters, a small part of their bytes, to the start and the smallest updates
 * to the end, by size, and puts updates of running statistics together unless there are micro-batches
 * (small_order.c).  False: the order did not change. */
bool small_apart(Graph *g, bool micro, Arena *tmp);
/* Makes weight gradients that are computed in blocks (split.c) whole again; they read their factors from
 * memory.  cost: per node id, of the step it starts; may be NULL.  False: there were none. */
bool graph_join_blocks(Graph *g, const StepInfo *info, StepCost *cost, Arena *tmp);
/* Per value: the kind that its bytes count as in Plan.mem (plan.c).  Allocated in a. */
MemKind *plan_kinds(const Graph *g, const StepInfo *info, Arena *a);
/* plan_lives of a plan whose commands and lifetimes are known (timeline.c). */
Life *lives_of(const Plan *p, const StepInfo *info, const Command *c, const Lifetime *life, uint32_t *n,
               Arena *a);
/* One line: bytes by kind, and the largest values that are held at the peak.  Allocated in a. */
const char *plan_describe_peak(const Plan *p, const StepInfo *info, Arena *a);
#endif
