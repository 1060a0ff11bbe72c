/* instance.h -- a graph as a rematerialization instance, and a schedule as a graph again. */
#ifndef CKC_INSTANCE_H
#define CKC_INSTANCE_H
#include "passes.h"
#include "remat/remat.h"

/* Operators are the plan's steps; values are what has memory and is computed.  Views are no
 * operators: they follow the step that makes what they view. */
typedef struct {
    RematInstance inst;
    Plan cut;              /* the steps of the graph the instance was made from */
    int32_t *op_of_node;   /* per node id: its step, -1 = none (views of sources) */
    NodeId **views;        /* per step: views to schedule behind it */
    uint32_t *nviews;
    NodeId *free_views;    /* views of sources: scheduled first */
    uint32_t nfree;
    uint32_t nops, tail;   /* the instance is a micro-batch: steps from nops on, nodes from
                            * order[tail] on run after all of them, as they stand */
    int64_t tail_ns;
    bool any_bits;         /* candidates with other bits are kernel choices as well */
} Instance;

/* Everything is allocated in a. */
bool instance_make(Graph *g, const StepInfo *info, bool any_bits, Arena *a, Instance *in, Diag *d);

/* Make g's order the given sequence of steps with these kernel choices; repeated ones become clones.
 * The nodes of the instance's graph are not modified in place: graph_snapshot/restore undo it. */
void instance_apply(Graph *g, const Instance *in, const int32_t *seq, const uint8_t *alt, int32_t n,
                    Arena *tmp);

typedef struct {
    Node *nodes;
    uint32_t nnodes, norder, ngroups;
    NodeId *order;
    Val *out;
    Update *update;
} Snapshot;
Snapshot graph_snapshot(const Graph *g, Arena *a);
void graph_restore(Graph *g, const Snapshot *s);

typedef enum { PACK_QUICK, PACK_LONG, PACK_LONGEST } PackEffort; /* milliseconds to seconds */

/* Offsets for the graph's present order (plan.c): fills p, allocated in g's arena.  More than the quick
 * effort is made where the arena is more than 0.5 % above the live bytes, or above a budget (0: none)
 * that is less than that above them. */
bool plan_place(Graph *g, StepInfo *info, int64_t budget, PackEffort effort, Plan *p, Arena *tmp,
                Diag *d);
/* Products in tiles (tile.c) stand alone again, and have their results whole.  cost: of the steps by
 * their first node; may be NULL.  False: there were none. */
bool graph_untile(Graph *g, StepCost *cost);
/* Likewise products in pieces (piece.c), which read their factors whole from memory. */
bool graph_store_factors(Graph *g, const StepInfo *info, StepCost *cost);
/* What the bytes of every value are for, as Plan.mem counts them (plan.c).  Allocated in a. */
MemKind *plan_kinds(const Graph *g, const StepInfo *info, Arena *a);
/* One line: bytes by kind, and the largest values that are held at the peak.  Allocated in a. */
const char *plan_describe_peak(const Plan *p, const StepInfo *info, Arena *a);
#endif
