/* profile_int.h -- shared by the files of the profiler: profile.c, replay.c. */
#ifndef CKC_PROFILE_INT_H
#define CKC_PROFILE_INT_H

#include "cpu.h"
#include "runtime/times.h"

/* ---- replay.c ---------------------------------------------------------- */

/* A command of the schedule. */
typedef struct {
    const Command *of;
    NodeId first; /* the command's first node, for use when `of` is no longer valid */
    MeasureOperand *o; /* n operands */
    int n;
    Launches l;
    Call *call;
    int *routine, nroutine; /* per stage of a loop, or for a command that is no loop: its routine; -1: none */
    DnnlDesc *desc;         /* products of blocks that are not full, and in `other` their routines */
    DnnlOp **other;
    uint32_t nother, cdesc, cother;
    uint32_t entry;
    double estimate; /* ns */
} Item;

/* Sets hot and alias of every operand. */
void replay(Item *item, uint32_t n);
int64_t computed_bytes(const Item *it); /* bytes of temporaries with memory of their own; after replay */

#endif
