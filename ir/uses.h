/* uses.h -- what the nodes of a plan are for, and what becomes of their results: for those who tell of a
 * plan. */
#ifndef CKC_USES_H
#define CKC_USES_H

#include "plan.h"

typedef enum { PHASE_NONE, PHASE_FORWARD, PHASE_BACKWARD, PHASE_UPDATE } Phase;
extern const char *const phase_name[]; /* "", "forward", "backward", "update" */

enum { NEVER = UINT32_MAX };

typedef struct {
    Phase *phase;     /* per node */
    uint32_t *step;   /* per place in the graph's order: its step; of a view the one before it */
    uint32_t *before; /* per place: the step that computed the same last; NEVER */
    uint32_t *again;  /* per place: the one that computes it next; NEVER */
    uint32_t *last;   /* per value: the last step that reads it, or a view of it; NEVER */
    uint32_t *behind; /* per value: its first reader outside the forward phase; NEVER */
} PlanUses;

/* What the loss and the model's other outputs depend on is forward, what gradients depend on besides is
 * backward, with what is computed again for them; then come the updates of parameters; running statistics are
 * forward.  The first `results` outputs of the graph are no gradients.  Allocated in a. */
PlanUses plan_uses(const Plan *p, uint32_t results, Arena *a);

/* Of a step: of its last node in the order of phases. */
Phase step_phase(const Plan *p, const PlanUses *u, uint32_t s);

/* What becomes of what a step computes. */
typedef struct {
    Val val;                  /* its largest result */
    uint32_t step;            /* that computes it first */
    int64_t bytes;            /* of all its results that have memory */
    uint32_t until;           /* the last step that reads one of them before they are dropped */
    uint32_t again;           /* the first step that makes or fetches them again; NEVER: none */
    uint32_t last;            /* the last step that reads one of them, or a copy */
    uint32_t behind;          /* the first behind the forward phase that does so; NEVER */
    uint32_t redone, fetched; /* times: computed again; copied back from the host's memory */
    int64_t redone_ns,
        moved_bytes; /* predicted time of the former; bytes of the latter and of copies there */
    bool at_peak;    /* some of it is held at the peak */
} Fate;

/* Of every step that is neither a recomputation nor a copy, in order.  Allocated in a. */
Fate *plan_fates(const Plan *p, const PlanUses *u, uint32_t *n, Arena *a);

/* Is it copied between the device's and the host's memory there? */
bool step_copies(const Plan *p, uint32_t s);
/* The path of the module that a step is part of, "h.3.attn"; "": not known.  Allocated in a. */
const char *step_module(const Plan *p, uint32_t s, Arena *a);
/* The operators of a step, "add+gelu", as far as there is room. */
void step_label(const Plan *p, uint32_t s, char *label, size_t room);

#endif
