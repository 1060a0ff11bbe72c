/* profile_int.h -- pieces of the profiler. */
#ifndef CKC_PROFILE_INT_H
#define CKC_PROFILE_INT_H

#include "cpu.h"
#include "runtime/times.h"

/* ---- replay.c ---------------------------------------------------------- */

/* A command of the schedule. */
typedef struct {
    const Command *of;
    NodeId first; /* of its nodes: valid when the command no longer is */
    MeasureOperand *o; /* n */
    int n;
    Launches l;
    Call *call;
    int *routine, nroutine; /* of each stage of a loop, or of a command that is none; -1: none */
    DnnlDesc *desc;         /* of the products of other blocks than a full one, and their routines */
    DnnlOp **other;
    uint32_t nother, cdesc, cother;
    uint32_t entry;
    double estimate; /* ns */
} Item;

/* Sets hot and alias of every operand. */
void replay(Item *item, uint32_t n);
int64_t computed_bytes(const Item *it); /* of those that need memory for it, after replay */

#endif
