/* profile_int.h -- pieces of the profiler: the table of measured times, announced kernels.
 */
#ifndef CKC_PROFILE_INT_H
#define CKC_PROFILE_INT_H

#include "cpu.h"
#include <limits.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

/* ---- profile_file.c ---------------------------------------------------- */

typedef struct {
    XXH128_hash_t key;
    double ns; /* < 0: not measured */
} Entry;

/* Signatures and their times, as in a file. */
typedef struct {
    KernelCache *cache; /* where the file is */
    char name[40];
    Arena arena;
    Entry *entry; /* sorted up to nsorted */
    uint32_t n, cap, nsorted;
} Table;

/* The table of this machine in the cache; empty if there is no file, or one that is not
 * ours or not whole: the cache's note says so. */
void table_open(Table *t, KernelCache *c);
void table_close(Table *t);
bool table_write(const Table *t, Diag *d);        /* atomically */
uint32_t table_find(Table *t, XXH128_hash_t key); /* index; a new entry if there is none */

/* ---- replay.c ---------------------------------------------------------- */

/* A command of the schedule. */
typedef struct {
    const Command *of;
    NodeId first; /* of its nodes: valid when the command no longer is */
    MeasureOperand *o;
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
