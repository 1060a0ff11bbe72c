/* instance.h -- a graph as a rematerialization instance, and a schedule as a graph again. */
#ifndef CKC_INSTANCE_H
#define CKC_INSTANCE_H
#include "ir/sequence.h"
#include "passes.h"
#include "remat/remat.h"

/* What a step runs where only some of its results are read. */
typedef struct Variant {
    struct Variant *next;
    const bool *read; /* per result of its nodes: somebody reads it, or a view of it */
    Command c;
} Variant;

/* A result of a step that may be offloaded and fetched: nodes that are in no order yet. */
typedef struct {
    Val value, fetched;
    NodeId offload, fetch;
    Command out, in;
} Move;

/* Operators are the plan's steps; values are what has memory and is computed.  Views are no
 * operators: they follow the step that makes what they view. */
typedef struct {
    RematInstance inst;
    Plan cut;              /* the steps of the graph the instance was made from */
    StepCost *cost;        /* per node id: of the step that starts with it; NULL: not known */
    Variant **variant;     /* per step */
    bool *live;            /* per value: false between calls */
    Arena *arena;
    int32_t *op_of_node;   /* per node id: its step, -1 = none (views of sources) */
    NodeId **views;        /* per step: views to schedule behind it */
    uint32_t *nviews;
    NodeId *free_views;    /* views of sources: scheduled first */
    uint32_t nfree;
    uint32_t nops, tail;   /* the instance is a micro-batch: steps from nops on, nodes from
                            * order[tail] on run after all of them, as they stand */
    int64_t batches, tail_ns; /* micro-batches of a step; what the rest takes */
    Move **moves;          /* per step: of its results; NULL: they are not fetched */
    uint32_t *nmoves;
    Val *fetched;          /* per value: the one that it is a copy of, fetched; {0}: none */
    bool copies;           /* there are some beside kernels: fetches, or those of states */
    int64_t room;          /* bytes for states that are staged, among the persistent ones */
    bool any_bits;         /* candidates with other bits are kernel choices as well */
} Instance;

/* Everything is allocated in a.  With a link, what is made may be fetched: then the graph and info->cost get
 * nodes that do it, in no order yet. */
bool instance_make(Graph *g, StepInfo *info, bool any_bits, Arena *a, Instance *in, Diag *d);

/* The budget where none was given: bytes of a device that is planned for, if a step of so many bytes is
 * too much for it; else 0 (cost.c). */
int64_t memory_as_budget(const PassCtx *cx, int64_t whole);

/* What there is for copies to the host's memory, and what is wanted (offload.c). */
HostLink step_link(const StepOptions *o);

/* States in the host's memory. */
typedef struct {
    int64_t bytes, room; /* of all; for those that are on the device at a time */
    int64_t beside_ns;   /* what their copies cost the kernels beside them */
} Staging;
/* Those of about so many bytes, evenly over all updates, go there: each is fetched for its update, and
 * offloaded behind it (offload.c). */
Staging graph_offload_states(Graph *g, StepInfo *info, int64_t bytes, Arena *tmp);
typedef struct {
    int64_t moved; /* bytes in the host's memory that give the least predicted time of a step: by the bound on
                    * the cost of schedules within the budget that is left, and by the copies, which run
                    * beside everything behind the loss */
    int64_t ns;    /* that time: no plan is known to take as little */
    int64_t all;   /* the most bytes that the host's memory takes */
    int64_t part;  /* a difference in bytes that matters */
    bool fits;     /* the bound finds no reason why all could not stay on the device */
    /* What was planned: */
    int64_t best_ns;      /* INT64_MAX: nothing yet */
    int64_t least, none;  /* the fewest bytes with a plan; the most, below those, without */
    int halves;
} StatesAway;
bool choose_states_away(const Graph *g, PassCtx *cx, int64_t budget, StatesAway *away);
/* How many bytes to try next; -1: that is enough.  First none, if all could stay, and those that promise the
 * least time; all where no plan is found, then fewer, between where one is found and where not; and a little
 * more where a plan takes far longer than promised, for as long as that helps.  ns: of the plan with `moved`
 * bytes, INT64_MAX: there is none.  once: one plan is enough. */
int64_t next_states_away(StatesAway *away, int64_t moved, int64_t ns, bool once);
/* Nanoseconds of a step whose micro-batches take this many each, and the other way round. */
static inline int64_t step_ns(const Instance *in, int64_t ns) { return ns * in->batches + in->tail_ns; }
static inline int64_t micro_ns(const Instance *in, int64_t ns) { return (ns - in->tail_ns) / in->batches; }
/* For each step of an instance that has no moves yet (offload.c). */
bool instance_add_moves(Graph *g, Instance *in, StepInfo *info, const Command *c, Diag *d);
/* Limits an instance that has so many fetches, and so much of the link, in steps 1 to FETCH_FEWER: to ever
 * earlier values, as those have the more time for their copies; to ever less of the link, as where there is
 * no room to wait for copies values leave as fast as they are made; in the last step to no fetch. */
enum { FETCH_FEWER = 7 };
void fetch_fewer(Instance *in, int step, int32_t all, int64_t link);

/* The layers of its forward operators, by the names of modules (layers.c). */
void instance_layers(const Graph *g, Instance *in, Arena *tmp);
/* The scope of the module that v is computed in, "h.3.attn", or v's own; "": not known.  Allocated in a
 * (peak.c). */
const char *value_scope(const Graph *g, Val v, Arena *a);

/* A schedule of its operators: steps in order, and their kernel choices. */
typedef struct {
    const int32_t *op;
    const uint8_t *alt;
    int32_t n;
} Schedule;

/* What the schedule runs; the graph stays as it is.  Executions whose results nobody reads are left out.
 * Allocated in a. */
bool instance_sequence(Instance *in, Schedule s, Sequence *out, Arena *a, Diag *d);
/* Make the schedule the graph's: what runs again becomes clones.  The instance is of no use afterwards. */
void instance_apply(Graph *g, const Instance *in, Schedule s, Arena *tmp);

typedef enum { PACK_QUICK, PACK_LONG, PACK_LONGEST } PackEffort; /* milliseconds to seconds */
typedef struct {
    int64_t arena, live; /* bytes: the arena; the largest sum of live bytes */
    int64_t host;        /* of what is offloaded */
} ArenaSize;

/* Offsets for a sequence (plan.c).  More than the quick effort is made where the arena is more than 0.5 %
 * above the live bytes, or above a budget (0: none) that is less than that above them. */
bool sequence_place(const Sequence *s, StepInfo *info, int64_t budget, PackEffort effort, ArenaSize *size,
                    Arena *tmp, Diag *d);
/* Likewise for the graph as it stands: fills p, allocated in g's arena. */
bool plan_place(Graph *g, StepInfo *info, int64_t budget, PackEffort effort, Plan *p, Arena *tmp,
                Diag *d);
/* The step that keeps everything: gradients whole, activations stored; its curve goes to cx->info.  blocks:
 * the plan as it is. */
bool plan_place_whole(const Graph *split, const StepInfo *info, const Plan *blocks, Plan *p, PassCtx *cx);
/* Puts small copies of parameters in 16 bits at the start and small updates at the end, a little of all bytes
 * of each, by size, and updates of running statistics together, where a step has no micro-batches
 * (small_order.c).  False: they were there. */
bool small_apart(Graph *g, bool micro, Arena *tmp);
/* Weight gradients in blocks (split.c) are whole again, and read their factors from memory.  cost: of the
 * steps by their first node; may be NULL.  False: there were none. */
bool graph_join_blocks(Graph *g, const StepInfo *info, StepCost *cost, Arena *tmp);
/* What the bytes of every value are for, as Plan.mem counts them (plan.c).  Allocated in a. */
MemKind *plan_kinds(const Graph *g, const StepInfo *info, Arena *a);
/* plan_lives of a plan whose commands and lifetimes are known (timeline.c). */
Life *lives_of(const Plan *p, const StepInfo *info, const Command *c, const Lifetime *life, uint32_t *n,
               Arena *a);
/* One line: bytes by kind, and the largest values that are held at the peak.  Allocated in a. */
const char *plan_describe_peak(const Plan *p, const StepInfo *info, Arena *a);
#endif
