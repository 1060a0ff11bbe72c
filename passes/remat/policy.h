/* policy.h -- state and helpers shared by the named policies. */
#ifndef CKC_REMAT_POLICY_H
#define CKC_REMAT_POLICY_H
#include "solve.h"

typedef struct {
    const Problem *p;
    int64_t budget;
    RematResult *result; /* the best schedule so far */
    int32_t loss;
    int32_t *block; /* per forward op: its block */
    int32_t nblocks;
    int32_t *layer; /* per block: its number among the layers that policies choose from, -1: none */
    int32_t nlayers;
    bool *again; /* per forward op: may run again in the backward pass, if the values of `keep` are kept */
    bool *saved; /* per value: the forward pass makes it and the backward pass reads it */
    bool *keep;  /* per value: it is kept for the backward pass */
    /* used by replay(): */
    bool *held;   /* per value: the newest copy may still be read */
    bool *wanted; /* per op: it is in closure, the ops to run in front of the next one */
    int32_t *closure, nclosure;
    Seq out;
} Policy;

int32_t policy_last_forward(const Policy *y, int32_t v); /* last forward reader of v, or its producer */
void policy_find_again(Policy *y);                       /* sets y->again for y->keep */
bool policy_can_drop(const Policy *y, int32_t v);
void policy_run(Policy *y, int32_t op); /* appends op to y->out, behind the producers of inputs not held */
void policy_offer(const Policy *y);     /* offers y->out for the result */

bool policy_revolve(Policy *y, const char *rest); /* rest: text behind the name, must be empty */

#endif
