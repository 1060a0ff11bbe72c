/* sequence.h -- a schedule as data: commands in order, on copies of a graph's values.
 *
 * A command that runs again makes new copies of its results; a read takes the copy that was made last.
 * The graph does not know: it is changed once, when a sequence was chosen (passes/instance.c). */
#ifndef CKC_SEQUENCE_H
#define CKC_SEQUENCE_H

#include "plan.h"

typedef struct {
    const Command *c;     /* its operands are values of the graph */
    const Val *vals;      /* the copy that each operand is */
    const Candidate *how; /* time and workspace; NULL: not known */
} Execution;

typedef struct {
    const Graph *g;
    Execution *run;
    uint32_t n, nmicro; /* as in Plan */
    uint32_t nvals;     /* number of copies; those below g->nvals are the first copy of each value */
    const Val *of;      /* per copy: its value */
    const Val *final;   /* per value: the copy that was made last, which outputs and updates mean */
} Sequence;

/* The sequence that runs every step of the plan once; c: the steps' commands.  Allocated in a. */
Sequence sequence_of_plan(const Plan *p, const Command *c, Arena *a);

/* When the bytes of a copy are needed. */
typedef struct {
    int32_t first; /* the execution that makes it, -1: none */
    int32_t last;  /* the last that reads or makes it; Sequence.n: the end of the step needs it; -1: none */
} Lifetime;
/* The lifetime of every copy.  Allocated in a. */
Lifetime *sequence_lifetimes(const Sequence *s, Arena *a);

#endif
