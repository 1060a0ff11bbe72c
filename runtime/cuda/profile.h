/* profile.h -- what a planner knows of an NVIDIA GPU, from command to command. */
#ifndef CKC_CUDA_PROFILE_H
#define CKC_CUDA_PROFILE_H

#include "cuda.h"
#include "product.h"
#include "runtime/times.h"

enum { KNOWN_ALGOS = 8 };

/* A distinct product, and the library's algorithms for it in its order, those without workspace last. */
typedef struct {
    Product of;
    ProductAlgo algo[KNOWN_ALGOS];
    uint32_t entry[KNOWN_ALGOS]; /* of their times */
    int n;
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
const Known *profile_known(CudaProfile *p, const Product *of,
                           Diag *d); /* asked for if it is new; NULL: failed */
/* The answers for the items, which choose again as times have it. */
bool profile_answer(CudaProfile *p, StepCost *out, Diag *d);

#endif
