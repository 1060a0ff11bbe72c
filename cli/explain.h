/* explain.h -- ckc explain: what its pages share. */
#ifndef CKC_EXPLAIN_H
#define CKC_EXPLAIN_H

#include "cli.h"
#include "ir/uses.h"

typedef enum { KEPT, REDONE, MOVED, DECISIONS } Decision;
extern const char *const decision_name[DECISIONS];

/* Why something is kept. */
typedef enum { WHY_ROOM, WHY_NOT_AT_PEAK, WHY_PRICE, WHY_INPUTS, WHYS } Why;
extern const char *const why_text[WHYS];

typedef struct {
    const Fate *fate;
    Decision decision;
    const char *module, *kernel; /* what computes it */
    int64_t ns;                  /* that computing it once more takes */
    Why why;                     /* of what is kept */
} Result;

typedef struct {
    uint32_t n;
    int64_t bytes, ns;
} Total;

/* A plan for other memory. */
typedef struct {
    bool known;
    int64_t bytes, ns; /* of the budget, in all */
} Other;

typedef struct {
    Options *o;
    Job *job;
    PlanUses uses;
    const Fate *fate;
    uint32_t nfate;
    Result *result; /* of the forward pass, read behind the loss; of others, what does not stay */
    uint32_t n;
    Total total[DECISIONS], why[WHYS];
    Other more, less;
    int64_t phase_ns[PHASE_UPDATE + 1], again_ns; /* predicted, without what is computed again; that */
    int64_t state_bytes; /* of optimizer states in the host's memory */
} Explain;

Decision explain_decision(const Fate *f);

/* explain_value.c: --value.  False: there is none of that name. */
bool explain_value(const Explain *x);

#endif
