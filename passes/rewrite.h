/* rewrite.h -- local rewriting in one forward sweep (rewrite.c), used by recognise and simplify. */
#ifndef CKC_REWRITE_H
#define CKC_REWRITE_H
#include "passes.h"

/* A rule looks at a node whose operands are already rewritten and returns a value that replaces
 * its first output, or {0}.  It may build nodes: they land in front of the node's successors.
 * Every rule must make the graph smaller or cheaper, so that repeated sweeps end. */
typedef struct {
    Graph *g;
    const uint32_t *uses; /* per value: its uses at the start of the sweep */
    uint32_t nuses;       /* number of values at the start of the sweep */
    const uint32_t *nreaders; /* per value: its readers at the start of the sweep */
    NodeId **readers;
} Rewrite;
typedef Val Rule(Rewrite *rw, const Node *n);
static inline Val none(void) { return (Val){0}; } /* the rule does not fit; an absent operand */

/* Sweep until nothing changes (at most 8 times); sets *changed. */
bool rewrite_run(Graph *g, Arena *tmp, Rule *const *rules, bool cse, bool *changed);

/* Tests that rules share. */
const Node *rewrite_def(const Rewrite *rw, Val v, Op op);  /* v's node if it is op, else NULL */
uint32_t rewrite_uses(const Rewrite *rw, Val v); /* at the start of the sweep; UINT32_MAX: v is newer */
bool rewrite_once(const Rewrite *rw, Val v);               /* v has one use */
/* The i-th node that reads v, once for each operand, at the start of the sweep; NULL: there are no more. */
const Node *rewrite_reader(const Rewrite *rw, Val v, uint32_t i);
/* v takes the place of old, and its name: dumps stay readable and outputs can be named. */
void rewrite_name(Graph *g, Val old, Val v);
/* The value that takes the place of v.  as: per value, its replacement; {0}: v stays. */
static inline Val rewrite_as(const Val *as, Val v) { return as[v.i].i ? as[v.i] : v; }
void rewrite_ends(Graph *g, const Val *as); /* replaces all outputs and updates of g so */
/* Moves updates of states behind all readers of the state, for passes that make such readers (of p instead of
 * p * 1, or of views of it), or that move them. */
void graph_delay_updates(Graph *g, Arena *tmp);
bool rewrite_scalar(const Rewrite *rw, Val v, double *x);  /* are all elements of v one constant, *x? */
#endif
