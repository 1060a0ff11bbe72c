/* times.h -- measured times on disk, by signature. */
#ifndef CKC_RUNTIME_TIMES_H
#define CKC_RUNTIME_TIMES_H

#include "runtime.h"
#define XXH_INLINE_ALL
#include <xxhash.h>

typedef struct {
    XXH128_hash_t key;
    double ns;  /* < 0: not measured */
    double was; /* in the file; < 0: it is not there */
} TimeEntry;

/* Signatures and their times, as in a file. */
typedef struct {
    KernelCache *cache; /* where the file is */
    char name[40];
    Arena arena;
    TimeEntry *entry; /* sorted up to nsorted */
    uint32_t n, cap, nsorted;
} Table;

/* The table in the cache of what `of` is the hash of; empty if there is no file, or one that is not ours or
 * not whole: the cache's note says so. */
void table_open(Table *t, KernelCache *c, uint64_t of);
void table_close(Table *t);
/* What is new here goes beside what the file has by now, of this process or another; atomically. */
bool table_write(Table *t, Diag *d);
uint32_t table_find(Table *t, XXH128_hash_t key); /* index; a new entry if there is none */

/* A command whose time an entry is, by its first node. */
typedef struct {
    NodeId first;
    uint32_t entry;
} TimedCommand;
/* Times of a run instead of those there are, as DeviceOps.learn has them; writes the table. */
bool table_learn(Table *t, const TimedCommand *c, uint32_t ncommand, const NodeId *first,
                 const double *seconds, uint32_t n, Diag *d);

#endif
