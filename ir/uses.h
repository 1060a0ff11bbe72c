/* uses.h -- what the nodes of a plan are for, and what becomes of their results: for reports on a plan. */
#ifndef CKC_USES_H
#define CKC_USES_H

#include "plan.h"

typedef enum { PHASE_NONE, PHASE_FORWARD, PHASE_BACKWARD, PHASE_UPDATE } Phase;
extern const char *const phase_name[]; /* "", "forward", "backward", "update" */

enum { NEVER = UINT32_MAX };

typedef struct {
    Phase *phase;     /* per node */
    uint32_t *step;   /* per place in the graph's order: its step; for a view the step before it */
    uint32_t *before; /* per place: the last step before it that computed the same; NEVER: none */
    uint32_t *again;  /* per place: the next step that computes the same; NEVER: none */
    uint32_t *last;   /* per value: the last step that reads it, or a view of it; NEVER: none */
    uint32_t *behind; /* per value: its first reader outside the forward phase; NEVER: none */
} PlanUses;

/* Nodes that the loss and the model's other outputs depend on are forward; those that only gradients depend
 * on are backward, as are recomputations for them; then come the updates of parameters.  Running statistics
 * are forward.  The outputs of the graph after the first `results` are gradients.  Allocated in a. */
PlanUses plan_uses(const Plan *p, uint32_t results, Arena *a);

/* The phase of step s: the latest one that a node of it is in. */
Phase step_phase(const Plan *p, const PlanUses *u, uint32_t s);

/* What becomes of the results of a step. */
typedef struct {
    Val val;                  /* its largest result */
    uint32_t step;            /* the step that computes it first */
    int64_t bytes;            /* of all results that have memory */
    uint32_t until;           /* the last step that reads one of them before they are dropped */
    uint32_t again;           /* the first step that makes or fetches them again; NEVER: none */
    uint32_t last;            /* the last step that reads one of them, or a copy */
    uint32_t behind;          /* the first step behind the forward phase that does so; NEVER: none */
    uint32_t redone, fetched; /* how often it is computed again; copied back from the host's memory */
    int64_t redone_ns,
        moved_bytes; /* predicted ns of recomputing it; bytes copied to and from the host's memory */
    bool at_peak;    /* some of it is held at the peak */
} Fate;

/* The fates of the *n steps that are neither recomputations nor copies, in order.  Allocated in a. */
Fate *plan_fates(const Plan *p, const PlanUses *u, uint32_t *n, Arena *a);

/* Is step s a copy between the device's and the host's memory? */
bool step_copies(const Plan *p, uint32_t s);
/* The path of the module that a step is part of, "h.3.attn"; "": not known.  Allocated in a. */
const char *step_module(const Plan *p, uint32_t s, Arena *a);
/* Writes the operators of a step, "add+gelu", as far as there is room. */
void step_label(const Plan *p, uint32_t s, char *label, size_t room);

#endif
