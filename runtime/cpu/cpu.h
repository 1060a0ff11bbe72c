/* cpu.h -- what the executor and the profiler of this processor share: kernels ready to run, memory, the
 * floating-point mode. */
#ifndef CKC_CPU_H
#define CKC_CPU_H

#include "ir/program.h"
#include "onednn.h"
#include "runtime/runtime_int.h"

/* ---- call.c ------------------------------------------------------------ */

typedef void KernelFn(void *const *op); /* what codegen_c prints */

/* A launch bound to memory: one of fn, lib and copy is set. */
typedef struct {
    KernelFn *fn;
    DnnlOp *lib; /* not owned */
    const CopyRows *copy;
    int ncopy;
    int nop;
    void **op; /* operands as in the launch */
    void *workspace;
} Call;

/* Of n launches, with room for their operands; copies are set.  Allocated in a. */
Call *calls_make(const Launch *l, uint32_t n, Arena *a);
/* base[i]: memory i of the launches' slices. */
void calls_bind(Call *c, const Launch *l, uint32_t n, char *const *base);
/* Sets fn of the calls that have no routine and no copies; kernels: of the launches.  The functions can
 * be called until the objects are given back. */
bool calls_load(Call *const *c, const Launches *const *l, uint32_t n, const KernelCache *cache,
                KernelObjects *o, Diag *d);
bool calls_run(const Call *c, uint32_t n, Diag *d);

/* The description of what is worth calling a routine for; else NULL. */
const LibDesc *lib_worth(const LibDesc *of);

/* ---- kernels.c --------------------------------------------------------- */

/* Functions of kernels, fn[i] of k[i], from the cache (NULL: the user's); those it lacks are printed,
 * compiled and added.  They can be called until the objects are given back. */
bool kernels_load(const Kernel *const *k, int n, const KernelCache *c, KernelFn **fn, KernelObjects *o,
                  Diag *d);
void kernels_unload(KernelObjects *o);

/* ---- compile.c --------------------------------------------------------- */

static const char shared_object[] = ".so"; /* suffix of compiled kernels */
/* Hash of the system's C compiler, flags, processor, its instructions in use, and prelude.  Without a
 * compiler the one that the folder was used with last is assumed: what it compiled still runs. */
uint64_t compiler_identity(const KernelCache *c);
/* Compile a source (prelude, then kernels behind their marks), and keep it as the object of n keys.  On
 * failure d has the compiler's first error. */
bool compile_kernels(const KernelCache *c, const char *source, const KernelKey *key, int n, Diag *d);

/* ---- memory.c ---------------------------------------------------------- */

int64_t memory_available(void); /* bytes that can be had now; INT64_MAX if unknown */
/* Bytes this process can have at most: of the machine, its control groups, RLIMIT_AS. */
int64_t memory_total(void);

/* ---- here.c ------------------------------------------------------------ */

/* device_cpu with what this machine says of itself: memory, processors, the last cache. */
bool cpu_info(int ordinal, DeviceInfo *out, Arena *a, Diag *d);

/* ---- profile.c: measured costs, as device.h asks for them -------------- */

void *profile_open(const ProfileOptions *opt, Diag *d);
void profile_close(void *profile); /* NULL is fine */
/* Kernels are compiled in one unit, what is not in the profile file is measured, the largest first, and
 * the file is written. */
CostFn profile_cost;
/* Takes at most a quarter of the memory that is free, and time in proportion to that of the step: a kernel
 * that would take too much of either is estimated, and so is what hardly counts. */
TimesFn profile_times;
bool profile_learn(void *profile, const NodeId *first, const double *seconds, uint32_t n, Diag *d);

/* ---- pages.c ----------------------------------------------------------- */

/* Zeroed memory on huge pages where the system has them, touched by all threads, each its part. */
void *pages_alloc(int64_t bytes, Diag *d);
void pages_free(void *at, int64_t bytes); /* NULL is fine */

/* Threads of the next parallel regions, and denormals as zero on all of them.  Returns the
 * caller's mode, which fp_restore gives back to the caller; workers keep theirs. */
unsigned fp_flush(int threads);
void fp_restore(unsigned mode);

/* ---- measure.c --------------------------------------------------------- */

/* Memory that kernels are measured on: operands move through a part of it that holds all runs of a kernel or
 * is larger than the caches, so that what a run has not just touched is not in them. */
typedef struct {
    char *at;
    int64_t bytes, window, next;
} Pool;

typedef struct {
    int64_t bytes;
    bool hot;     /* in the caches when the kernel starts */
    int alias;    /* operand whose memory it takes over, -1: none */
    Tensor index; /* type if it selects (index_range); data is filled in */
    IndexRange range;
} MeasureOperand;

int64_t cache_bytes(void); /* of the last level of this CPU's caches */
int64_t measure_bytes(const MeasureOperand *o, int n, int64_t scratch);
int64_t pool_bytes(int64_t bytes); /* of a pool for a subject of that many */
bool pool_open(Pool *p, int64_t bytes, Diag *d);
void pool_use(Pool *p, int64_t bytes); /* for a subject of that many bytes from now on */
/* Random data again, for kernels whose time depends on it. */
void pool_refill(Pool *p);
void pool_close(Pool *p);
/* A command to measure: its launches, and calls that are bound to the pool here. */
typedef struct {
    const Launches *l;
    uint32_t launches; /* the first of them, which are run */
    Call *call;
    MeasureOperand *o; /* n, those of the command */
    int n;
    int64_t workspace; /* bytes, behind them */
} Subject;

/* Typical seconds of running it. */
bool measure(Pool *p, const Subject *s, double *seconds, Diag *d);

/* ---- choice.c ---------------------------------------------------------- */

/* The library routine for an operation, by a rule on shapes: never by measurement, because
 * different choices give different bits.  NULL without a message: the kernel's text runs.
 * desc->choice is set. */
DnnlOp *choose_routine(DnnlDesc *desc, Diag *d);
/* A faster one that needs more working memory, but at most `room` bytes; NULL: there is none. */
DnnlOp *choose_faster(DnnlDesc *desc, int64_t room, Diag *d);
/* Candidates for the operation op, made of desc: op itself; with the same bits those that make the
 * result in parts; with other bits other algorithms, and the kernel's text, which has no workspace.  Each has
 * less than the one before. */
void find_candidates(const DnnlDesc *desc, const DnnlOp *op, StepCost *cost, Diag *d);
/* Their times, estimated from the first's (< 0: not known), of which cost has the differences. */
void candidate_times(StepCost *cost, int64_t ns);

/* ---- poison.c ---------------------------------------------------------- */

/* Bytes nobody may read after a step. */
typedef struct {
    uint32_t step;
    int64_t offset, bytes;
} DeadRange;
/* Ordered by step; c: of plan_commands(); allocated in a. */
const DeadRange *dead_ranges(const Plan *p, const Command *c, uint32_t *n, Arena *a);

#endif
