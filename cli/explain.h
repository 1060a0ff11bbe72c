/* explain.h -- ckc explain: what cmd_explain.c and explain_value.c share. */
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
    const char *module, *kernel; /* module and kernel that compute it */
    int64_t ns;                  /* predicted time to compute it once more */
    Why why;                     /* why it is kept, if it is */
} Result;

typedef struct {
    uint32_t n;
    int64_t bytes, ns;
} Total;

/* A plan for another budget. */
typedef struct {
    bool known;        /* there is a plan */
    int64_t bytes, ns; /* the budget; predicted time of the step */
} Other;

typedef struct {
    Options *o;
    Job *job;
    PlanUses uses;
    const Fate *fate;
    uint32_t nfate;
    Result *result; /* results of the forward pass read after it, and others that are not kept */
    uint32_t n;
    Total total[DECISIONS], why[WHYS];
    Other more, less;
    int64_t phase_ns[PHASE_UPDATE + 1], again_ns; /* predicted time without recomputation; of recomputation */
    int64_t state_bytes; /* bytes of optimizer states in the host's memory */
} Explain;

Decision explain_decision(const Fate *f);

/* explain_value.c: prints what becomes of the value of --value.  False: no value has that name. */
bool explain_value(const Explain *x);

#endif
