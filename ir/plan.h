/* plan.h -- the plan of a training step: schedule, places, kernel choices.
 *
 * A Plan is a Graph whose order is final (recomputations are nodes of their own), cut into steps,
 * with one offset in one arena for every value that has memory; results of `offload` have theirs in the
 * host's arena.  It is what is emitted, shown, stored (.ckp) and executed.  arena_bytes is exactly what a
 * run allocates. */
#ifndef CKC_PLAN_H
#define CKC_PLAN_H

#include "kernel.h"
#include "progress.h"

/* Upper limits. */
enum { PLAN_THREADS = 1024, PLAN_ACCUMULATE = 1000000, PLAN_CHOICE = 4000, PLAN_ALIGN = 1 << 21 };
enum { ARENA_ALIGN = 64 }; /* bytes, the least alignment: a CPU's, and that of a workspace's parts */

typedef struct {
    uint32_t first, count;  /* nodes order[first .. first + count): one kernel, or one node */
    const char *choice;     /* the routine to run, named in the device's own words: printable, without
                             * blanks; NULL: the kernel's text */
    int64_t scratch;        /* bytes of library working memory, 0 = none */
    int64_t scratch_offset;
    int64_t cost_ns;        /* predicted */
} Step;

/* Bytes by kind, at the step with the largest load or over the whole arena. */
typedef enum { MEM_PARAM, MEM_GRAD, MEM_OPTIMIZER, MEM_STATE, MEM_DATA, MEM_ACTIVATION,
               MEM_WORKSPACE, MEM_KINDS } MemKind;
extern const char *const mem_kind_name[MEM_KINDS];

/* What a run of the plan takes unless it is told otherwise, so that a saved schedule gives the
 * same bits. */
typedef struct {
    double lr;
    int64_t seed;
    const char *init, *data; /* --init and --data; NULL: none */
    const char *schedule;    /* schedule of the learning rate; NULL: it is constant */
    int64_t warmup;          /* steps in which the learning rate rises */
    double min_lr;
    const char *order; /* order of the data: "shuffled"; NULL: as in the file */
} RunDefaults;

/* A file that a schedule refers to, and the hash (XXH64) of its content. */
typedef struct {
    const char *path;
    uint64_t hash;
} PlanFile;

typedef struct {
    Graph *g;
    Step *step;
    uint32_t nstep;
    uint32_t nmicro;         /* steps before this one run once per micro-batch, the others once: those
                              * that depend on an `accumulated` value; nstep if there is none */
    int64_t accumulate;      /* micro-batches; 0 = 1 */
    int64_t *offset;         /* per value: byte offset in the arena, -1: has no memory (inside a
                              * kernel, unused); views and in-place results share offsets */
    int64_t align;           /* bytes, a power of 2, of which all offsets are multiples; 0: ARENA_ALIGN */
    int64_t arena_bytes;     /* the one allocation of a run */
    int64_t host_bytes;      /* the one allocation in the host's memory; values there have offsets in it */
    int64_t live_bytes;      /* largest sum of live bytes: no arena is smaller for this schedule */
    int64_t budget;          /* bytes, 0 = none; the arena may take what is left of it after `reserved` */
    int64_t reserved;        /* bytes that the device's driver and libraries take */
    int64_t predicted_ns, base_ns, bound_ns; /* this plan; without recomputation; lower bound */
    int64_t measured_ns;     /* the part of predicted_ns from measured kernels; -1: not known */
    int64_t keep_all_bytes, min_feasible_bytes; /* arena without recomputation; least budget known */
    const char *model;       /* path of the ONNX file, and its content hash */
    uint64_t model_hash;
    PlanFile *file;          /* the other files: external weights, constants, data */
    uint32_t nfile, cfile;
    const char *device;      /* its name (device.h), NULL: device_cpu's */
    uint32_t threads;        /* results are bitwise for this device and number of threads, 0: its own */
    int64_t mem[MEM_KINDS];  /* bytes by kind at the peak step */
    int64_t keep_all_mem[MEM_KINDS]; /* the same for the schedule without recomputation */
    uint32_t peak_step;
    RunDefaults run;
} Plan;

/* Bytes rounded up to a multiple of align, as an arena hands them out; align 0: ARENA_ALIGN. */
int64_t align_up(int64_t bytes, int64_t align);
/* The command of every step, allocated in a; NULL: failed. */
Command *plan_commands(const Plan *p, Arena *a, Diag *d);
/* Cut order into steps by group, and steps into micro-batch and update; views are no steps. */
void plan_cut(Plan *p, Arena *a);
/* Per place in the order: does the node depend on a sum over micro-batches?  Allocated in a. */
bool *graph_accumulated(const Graph *g, Arena *a);
/* Per step: the first one that computes the same; itself unless it is a recomputation.  Allocated
 * in a. */
uint32_t *plan_originals(const Plan *p, Arena *a);

/* Micro-batches of a step. */
static inline int64_t plan_batches(const Plan *p) { return p->accumulate > 1 ? p->accumulate : 1; }

/* How often step s runs for one update of the parameters. */
static inline int64_t plan_times(const Plan *p, uint32_t s) { return s < p->nmicro ? plan_batches(p) : 1; }

/* Independent check: every operand has memory inside the arena when its step runs, and no two
 * live values share a byte unless one is a view of, or in place on, the other. */
bool plan_verify(const Plan *p, Diag *d);

/* What a device says about a command: provided by the runtime, asked by the cost pass, which knows no
 * devices. */
typedef struct {
    const char *choice; /* as in Step; the cost pass copies it */
    int64_t scratch; /* bytes */
    int64_t ns;      /* seconds * 1e9; < 0: not known, use the roofline */
} Candidate;
enum { MAX_CANDIDATES = 9 };
/* Ways to run a step, each with less workspace than the one before.  The first runs where memory is no reason
 * for another; the first `same` of them give the same bits. */
typedef struct {
    Candidate c[MAX_CANDIDATES];
    int n, same;
    bool measured; /* the time of c[0] was measured */
} StepCost;
/* Writes the costs of a schedule's n commands to out.  The commands stay as they are for TimesFn. */
typedef bool CostFn(void *user, const Command *c, uint32_t n, StepCost *out, Diag *d);

/* How much depends on the times of the commands. */
typedef enum {
    TIMES_ROUGH,  /* a prediction: the kernels that make up most of the step are timed, once */
    TIMES_DECIDE, /* the plan follows from them */
} Times;
/* Measures the times that are not known yet, and writes the costs of the last CostFn's commands again. */
typedef bool TimesFn(void *user, Times worth, const Progress *progress, StepCost *out, Diag *d);

/* Text form (.ckp): a header, the graph (ir.h), then one line per step.  plan_parse fills p and
 * p->g (initialised by the caller with its arena). */
void plan_print(const Plan *p, FILE *f);
bool plan_parse(Plan *p, const char *text, Diag *d);

#endif
