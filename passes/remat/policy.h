/* policy.h -- what the named policies share. */
#ifndef CKC_REMAT_POLICY_H
#define CKC_REMAT_POLICY_H
#include "solve.h"

typedef struct {
    const Problem *p;
    int64_t budget;
    RematResult *result; /* the best schedule so far */
    int32_t loss;
    int32_t *block; /* per forward op */
    int32_t nblocks;
    int32_t *layer; /* per block: which it is of the layers that policies go by, -1: none */
    int32_t nlayers;
    bool *again; /* per op: may run in the backward pass, where y->keep is kept */
    bool *saved; /* per value: read by the backward pass */
    bool *keep;  /* per value */
    /* replay */
    bool *held;   /* per value: the newest copy may still be read */
    bool *wanted; /* per op */
    int32_t *closure, nclosure;
    Seq out;
} Policy;

int32_t policy_last_forward(const Policy *y, int32_t v); /* reader of a value, or its producer */
void policy_find_again(Policy *y);                       /* for y->keep as it is */
bool policy_can_drop(const Policy *y, int32_t v);
void policy_run(Policy *y, int32_t op); /* after everything it misses */
void policy_offer(const Policy *y);     /* y->out, for the result */

bool policy_revolve(Policy *y, const char *rest); /* rest: what follows its name, nothing */

#endif
