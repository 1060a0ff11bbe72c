/* profile.h -- the profile of an NVIDIA GPU: algorithms and times of commands, for planning. */
#ifndef CKC_CUDA_PROFILE_H
#define CKC_CUDA_PROFILE_H

#include "cuda.h"
#include "product.h"
#include "runtime/times.h"

enum { KNOWN_ALGOS = 8 };

/* A distinct product, by the hash of its description, and the library's algorithms for it, in the library's
 * order, with the one without workspace last.  kept: the algorithms have been timed, in this process or
 * before, and are the fastest one and, if it differs, the fastest without workspace. */
typedef struct {
    XXH128_hash_t key;
    AlignedGemm of; /* set if this process has asked for the product */
    bool asked, kept;
    int n;
    ProductAlgo algo[KNOWN_ALGOS];
    double ns[KNOWN_ALGOS]; /* < 0: not timed */
} Known;

/* A command of the last round, with its choice. */
typedef struct {
    const Command *c;
    NodeId first;   /* the command's first node */
    uint32_t entry; /* index of its time in the table */
    const char *choice;
    int64_t scratch;
} Item;

typedef struct {
    ProfileOptions opt;
    int64_t workspace;    /* bytes that products may use, at most */
    CudaContext on;       /* not open: the device is not here */
    ProductLibrary lib;
    Table table; /* open if opt.cache is set */
    Arena arena;
    Known *known;
    uint32_t nknown, cknown;
    char algos[40]; /* name of the file in the cache with the kept algorithms */
    Arena round;
    Item *item;
    uint32_t nitem;
} CudaProfile;

/* Are times kept, and may this measure? */
static inline bool profile_measures(const CudaProfile *p)
{
    return p->on.cu && p->opt.cache && p->opt.time_limit >= 0;
}
/* The time of an entry in ns; -1: not known. */
static inline double profile_ns(const CudaProfile *p, uint32_t entry)
{
    return profile_measures(p) ? p->table.entry[entry].ns : -1;
}

/* ---- algos.c ------------------------------------------------------------------------------------ */

/* Reads the algorithms kept in the cache for devices of that hash. */
void algos_open(CudaProfile *p, uint64_t of);
/* The algorithms of a product; the library is asked if the product is new.  NULL: failed. */
const Known *algos_of(CudaProfile *p, const AlignedGemm *of, Diag *d);
/* The fastest algorithm with at most that workspace, the first if times are not known; -1: there is none. */
int algos_fastest(const Known *k, int64_t workspace);
/* Keeps the choice of all products that have been timed, here and in the cache. */
bool algos_keep(CudaProfile *p, Diag *d);

/* ---- choose.c ----------------------------------------------------------------------------------- */

/* Fills out with the costs of the items; products choose again by the times known now. */
bool profile_answer(CudaProfile *p, StepCost *out, Diag *d);

#endif
