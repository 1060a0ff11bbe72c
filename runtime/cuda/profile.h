/* profile.h -- what a planner knows of an NVIDIA GPU, from command to command. */
#ifndef CKC_CUDA_PROFILE_H
#define CKC_CUDA_PROFILE_H

#include "cuda.h"
#include "product.h"
#include "runtime/times.h"

enum { KNOWN_ALGOS = 8 };

/* A distinct product, by the hash of its description, and the library's algorithms for it in its order, those
 * without workspace last.  Kept: they have been timed, in this process or before, and are the fastest, then
 * the fastest without workspace where that is another. */
typedef struct {
    XXH128_hash_t key;
    AlignedGemm of; /* where it was asked for in this process */
    bool asked, kept;
    int n;
    ProductAlgo algo[KNOWN_ALGOS];
    double ns[KNOWN_ALGOS]; /* < 0: not timed */
} Known;

/* A command of the last round, with what it runs through. */
typedef struct {
    const Command *c;
    NodeId first;
    uint32_t entry; /* of its time */
    const char *choice;
    int64_t scratch;
} Item;

typedef struct {
    ProfileOptions opt;
    int64_t workspace;    /* that products may have */
    CudaContext on;       /* not open: it is not here */
    ProductLibrary lib;
    Table table; /* where opt.cache is set */
    Arena arena;
    Known *known;
    uint32_t nknown, cknown;
    char algos[40]; /* the file of the kept ones in the cache */
    Arena round;
    Item *item;
    uint32_t nitem;
} CudaProfile;

/* Are times kept, and may they be taken? */
static inline bool profile_measures(const CudaProfile *p)
{
    return p->on.cu && p->opt.cache && p->opt.time_limit >= 0;
}
/* ns of an entry; -1: not known. */
static inline double profile_ns(const CudaProfile *p, uint32_t entry)
{
    return profile_measures(p) ? p->table.entry[entry].ns : -1;
}

/* ---- algos.c ------------------------------------------------------------------------------------ */

/* Those of devices of that hash, where there is a cache. */
void algos_open(CudaProfile *p, uint64_t of);
/* Asked for if it is new; NULL: failed. */
const Known *algos_of(CudaProfile *p, const AlignedGemm *of, Diag *d);
/* The fastest within that workspace, the first where times are not known; -1: none. */
int algos_fastest(const Known *k, int64_t workspace);
/* What is timed is chosen from now on. */
bool algos_keep(CudaProfile *p, Diag *d);

/* ---- choose.c ----------------------------------------------------------------------------------- */

/* The answers for the items, which choose again as times have it. */
bool profile_answer(CudaProfile *p, StepCost *out, Diag *d);

#endif
