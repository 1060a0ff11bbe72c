/* cpu.h -- shared by the executor and the profiler of this processor: kernels ready to run, memory, the
 * floating-point mode, measuring. */
#ifndef CKC_CPU_H
#define CKC_CPU_H

#include "ir/program.h"
#include "onednn.h"
#include "runtime/runtime_int.h"

/* ---- call.c ------------------------------------------------------------ */

typedef void KernelFn(void *const *op); /* a function that codegen_c prints */

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

/* Calls for n launches, with room for their operands; copies are set.  Allocated in a. */
Call *calls_make(const Launch *l, uint32_t n, Arena *a);
/* Sets operands and workspace; base[i]: memory i of the launches' slices. */
void calls_bind(Call *c, const Launch *l, uint32_t n, char *const *base);
/* Sets fn of the calls that have no routine and no copies, to functions of the launches' kernels.  These can
 * be called until kernels_unload(o). */
bool calls_load(Call *const *c, const Launches *const *l, uint32_t n, const KernelCache *cache,
                KernelObjects *o, Diag *d);
bool calls_run(const Call *c, uint32_t n, Diag *d);

/* Returns `of`, or NULL if the operation is too small to be worth calling a routine for. */
const LibDesc *lib_worth(const LibDesc *of);

/* ---- kernels.c --------------------------------------------------------- */

/* Sets fn[i] to the function of k[i], from the cache (NULL: the user's); kernels that it lacks are printed,
 * compiled and added.  The functions can be called until kernels_unload(o). */
bool kernels_load(const Kernel *const *k, int n, const KernelCache *c, KernelFn **fn, KernelObjects *o,
                  Diag *d);
void kernels_unload(KernelObjects *o);

/* ---- compile.c --------------------------------------------------------- */

static const char shared_object[] = ".so"; /* suffix of compiled kernels */
/* Hash of the system's C compiler, flags, processor, its instructions in use, and prelude.  Without a
 * compiler it assumes the last one that the folder was used with, so that what that compiled still runs. */
uint64_t compiler_identity(const KernelCache *c);
/* Compiles a source (prelude, then each kernel after its mark) and keeps it as the object of n keys.  On
 * failure d has the compiler's first error. */
bool compile_kernels(const KernelCache *c, const char *source, const KernelKey *key, int n, Diag *d);

/* ---- memory.c ---------------------------------------------------------- */

int64_t memory_available(void); /* bytes that can be allocated now; INT64_MAX if unknown */
/* Upper limit of this process's memory in bytes: by the machine, its control groups and RLIMIT_AS. */
int64_t memory_total(void);

/* ---- here.c ------------------------------------------------------------ */

/* Describes this machine: device_cpu with its memory, processors and last level of cache. */
bool cpu_info(int ordinal, DeviceInfo *out, Arena *a, Diag *d);

/* ---- profile.c: measured costs, as device.h asks for them -------------- */

void *profile_open(const ProfileOptions *opt, Diag *d);
void profile_close(void *profile); /* NULL is fine */
/* Chooses algorithms and returns costs; unless opt.on_demand, first measures as profile_times() does. */
CostFn profile_cost;
/* Compiles the kernels without a time in the profile file in one unit, measures them, the largest first, and
 * writes the file.  Takes at most a quarter of the free memory, and time in proportion to that of the step: a
 * kernel that would take too much of either, or that hardly counts, is estimated. */
TimesFn profile_times;
bool profile_learn(void *profile, const NodeId *first, const double *seconds, uint32_t n, Diag *d);

/* ---- pages.c ----------------------------------------------------------- */

/* Allocates zeroed memory, on huge pages if the system has them; each thread touches its part. */
void *pages_alloc(int64_t bytes, Diag *d);
void pages_free(void *at, int64_t bytes); /* NULL is fine */

/* Sets the number of threads of the next parallel regions (0: unchanged), and denormals as zero on all of
 * them.  Returns the caller's mode, which fp_restore restores on the caller only; workers keep flushing. */
unsigned fp_flush(int threads);
void fp_restore(unsigned mode);

/* ---- measure.c --------------------------------------------------------- */

/* Memory that kernels are measured on: each run of a kernel gets its operands from the next part of a window
 * that has room for all runs or is larger than the caches, so that data which a run has not just touched is
 * not cached. */
typedef struct {
    char *at;
    int64_t bytes, window, next;
} Pool;

typedef struct {
    int64_t bytes;
    bool hot;     /* it is in the caches when the kernel starts */
    int alias;    /* operand whose memory it shares; -1: none */
    Tensor index; /* if it selects (index_range): its type, and data that is filled in */
    IndexRange range;
} MeasureOperand;

int64_t cache_bytes(void); /* size of the last level of this CPU's caches */
int64_t measure_bytes(const MeasureOperand *o, int n, int64_t scratch); /* size of a subject's memory */
int64_t pool_bytes(int64_t bytes); /* size of a pool for a subject of `bytes` bytes */
bool pool_open(Pool *p, int64_t bytes, Diag *d);
void pool_use(Pool *p, int64_t bytes); /* sets the window for a subject of `bytes` bytes */
/* Fills the window with random data again, for kernels whose time depends on the data. */
void pool_refill(Pool *p);
void pool_close(Pool *p);
/* A command to measure: its launches, and calls, which measure() binds to the pool. */
typedef struct {
    const Launches *l;
    uint32_t launches; /* how many of the launches are run, from the first on */
    Call *call;
    MeasureOperand *o; /* the command's n operands */
    int n;
    int64_t workspace; /* bytes, after the operands */
} Subject;

typedef struct {
    double value, weight;
} Weighted;

/* The value below which lies half of the weight; sorts v.  0 if n is 0. */
double weighted_median(Weighted *v, uint32_t n);
/* Sets *seconds to the median time of a few runs. */
bool measure(Pool *p, const Subject *s, double *seconds, Diag *d);

/* ---- choice.c ---------------------------------------------------------- */

/* Makes the library routine for an operation and sets desc->choice, by a rule on shapes: never by
 * measurement, because different choices give different bits.  NULL without a message: the kernel's text
 * runs. */
DnnlOp *choose_routine(DnnlDesc *desc, Diag *d);
/* A faster routine with more workspace, but at most `room` bytes; NULL: there is none. */
DnnlOp *choose_faster(DnnlDesc *desc, int64_t room, Diag *d);
/* Lists the candidates for op, which was made from desc: op itself; with the same bits routines that make the
 * result in parts; with other bits other algorithms, and the kernel's text, which needs no workspace.  Each
 * has less workspace than the one before. */
void find_candidates(const DnnlDesc *desc, const DnnlOp *op, StepCost *cost, Diag *d);
/* Sets the times of the candidates, given the first's (ns; < 0: not known); cost has what to add for the
 * others of the same bits. */
void candidate_times(StepCost *cost, int64_t ns);

/* ---- poison.c ---------------------------------------------------------- */

/* Bytes of the arena that are dead after a step. */
typedef struct {
    uint32_t step;
    int64_t offset, bytes;
} DeadRange;
/* The n dead ranges of a plan, ordered by step.  c: from plan_commands().  Allocated in a. */
const DeadRange *dead_ranges(const Plan *p, const Command *c, uint32_t *n, Arena *a);

#endif
