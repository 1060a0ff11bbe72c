/* times.h -- measured times on disk, by signature. */
#ifndef CKC_RUNTIME_TIMES_H
#define CKC_RUNTIME_TIMES_H

#include "runtime.h"
#define XXH_INLINE_ALL
#include <xxhash.h>

typedef struct {
    XXH128_hash_t key;
    double ns;  /* < 0: not measured */
    double was; /* the time in the file, ns; < 0: not there */
} TimeEntry;

/* Signatures and their times, as kept in a file. */
typedef struct {
    KernelCache *cache; /* has the file */
    char name[40];
    Arena arena;
    TimeEntry *entry; /* the first nsorted are sorted by key */
    uint32_t n, cap, nsorted;
} Table;

/* Reads the cache's table for `of`, a hash of what the times depend on.  It is empty if there is no file, or
 * if the file is not ours or not complete, which the cache's note then says. */
void table_open(Table *t, KernelCache *c, uint64_t of);
void table_close(Table *t);
/* Merges the new times into the file as it is by now, which other processes may have written; atomic. */
bool table_write(Table *t, Diag *d);
uint32_t table_find(Table *t, XXH128_hash_t key); /* index of the key's entry, added if there is none */

/* A command, by its first node, and the entry with its time. */
typedef struct {
    NodeId first;
    uint32_t entry;
} TimedCommand;
/* Replaces times by those of a run, as DeviceOps.learn does, and writes the table. */
bool table_learn(Table *t, const TimedCommand *c, uint32_t ncommand, const NodeId *first,
                 const double *seconds, uint32_t n, Diag *d);

#endif
