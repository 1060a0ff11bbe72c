/* runtime.h -- running a plan on a device: executor, training data, training loop, measured costs.
 *
 * The runtime knows the Plan and nothing of the passes that made it.  A run has one
 * allocation for tensors, of exactly plan->arena_bytes; what else it needs (compiled
 * kernels, library objects, operand tables) is made when it is opened. */
#ifndef CKC_RUNTIME_H
#define CKC_RUNTIME_H

#include "ir/device.h"
#include "ir/plan.h"
#include "kernel_cache.h"
#include "weights.h"
#include <signal.h>

/* ---- cpu/spin.c ---------------------------------------------------------------------------- */

/* Call first in main: bounds how long threads spin (restarts the program once). */
void spin_bounded(char **argv);

/* ---- cpu/pages.c ------------------------------------------------------------------------ */

/* The floating-point mode of the calling thread for those that work with it, too: runs leave them with
 * denormals as zero. */
void fp_leave(void);

/* ---- exec.c: the executor ----------------------------------------------- */

typedef struct {
    const struct DeviceOps *device; /* device.h; NULL: the default */
    int ordinal;           /* which of them */
    const KernelCache *cache; /* of compiled kernels; NULL: the user's */
    const Init *init;      /* for parameters without data; NULL: they are an error */
    int64_t seed;          /* of init */
    int64_t lane_order;    /* of a fake device: the seed of the order in which lanes go on, 0: as issued */
    FILE *record_values, *record_inputs; /* of record_device */
    int64_t *rechosen;     /* routines pinned to a library or GPU that is not here: others, with other bits,
                            * are taken and counted; NULL: it is an error */
    bool check; /* fill memory with NaNs where no value lives: a plan that gives memory
                 * away too early shows in the results */
} ExecOptions;

/* ---- initial.c: the value a parameter, state or constant starts with, into out->data */

bool initial_value(const Graph *g, Val v, const ExecOptions *opt, Tensor *out, Diag *d);

typedef struct Executor Executor;

/* Kernels compiled, library routines made, parameters and state at their initial values.
 * The plan must outlive the executor.  NULL: failed. */
Executor *exec_open(const Plan *p, const ExecOptions *opt, Diag *d);
void exec_close(Executor *x); /* NULL is fine */

/* A training step: one micro-batch, to be repeated with other inputs, then the rest, which updates the
 * parameters.  Without micro-batches (plan.h) the rest is nothing.  Denormals are zero.
 * seconds: NULL, or per plan step its least time so far (0: none), which is kept up (device.h). */
bool exec_micro(Executor *x, double *seconds, Diag *d);
bool exec_rest(Executor *x, double *seconds, Diag *d);

/* Around the parts of a step whose loss v (one float; {0}: there is none) is wanted: exec_begin, the parts,
 * exec_end.  Later exec_finish returns the loss (NaN if none) and the seconds of the oldest such run that is
 * unfinished; at most exec_flight() of them may be in flight: on a device that runs beside the host what is
 * done meanwhile, such as preparing the next inputs, costs no time. */
bool exec_begin(Executor *x, Diag *d);
bool exec_end(Executor *x, Val v, Diag *d);
bool exec_finish(Executor *x, double *loss, double *seconds, Diag *d);
int exec_flight(const Executor *x);

/* A value as the host addresses it; data is NULL if it has no memory.  Where the device's memory is the
 * host's, this is it: valid while the value is live (parameters, state, graph outputs: between steps;
 * inputs: until exec_micro).  Otherwise it is a copy, which lasts until exec_close, and goes to the
 * device and comes from there by the two functions below, which do nothing where it is no copy. */
Tensor exec_tensor(const Executor *x, Val v);
bool exec_write(Executor *x, Val v, Diag *d);
bool exec_read(Executor *x, Val v, Diag *d);
/* Other elements of a weight, and of what is loaded as a cast of it.  The host keeps those of one without
 * memory. */
bool exec_replace(Executor *x, Val v, const void *from, Diag *d);
const Plan *exec_plan(const Executor *x);

/* ---- inputs.c, feed.c: inputs of a step --------------------------------- */

/* Inputs the runtime itself makes, and the state that it watches; {0}: the graph has none. */
typedef struct {
    Val lr;   /* f64[] */
    Val step; /* i64[], from 1 */
    Val rng;  /* i64[2]: seed, batch (from 1) */
    Val micro; /* i64[]: micro-batch of the step, from 0 */
    Val scale; /* f32[]: of the loss, a state: less after a step whose gradients overflowed */
} StepInputs;
StepInputs step_inputs(const Graph *g); /* by name, kind and type */

/* The first of its other inputs that is read; {0}: there is none. */
Val feed_first(const Graph *g, const StepInputs *own);

typedef struct Feed Feed;

typedef enum {
    FEED_FILE,     /* rows as they come; windows of text anywhere */
    FEED_SHUFFLED, /* rows in another order every epoch, which follows from the seed */
    FEED_ONCE      /* every row once, windows of text one behind the other: see feed_count() */
} FeedOrder;

/* Match entries of a data file (NULL: random data) to the graph's other inputs, by name, then
 * as input/NAME, then as input_K in order.  An array with the input's shape is used as it is;
 * one that only has more rows is cut into consecutive batches, starting again at its end; one
 * with a further leading dimension has one batch per entry, or several.  Text gives windows to the
 * inputs that are looked up (tokens) and, one byte later, to the targets.
 * Integers convert to integers, floats to floats.  Everything is checked here: names, shapes,
 * NaNs, indices and class targets in range. */
Feed *feed_open(const Graph *g, const StepInputs *own, DataFile *data, FeedOrder order, int64_t seed,
                Diag *d);
void feed_close(Feed *f); /* NULL is fine */
Val feed_input(const Feed *f, int k); /* that it writes, in their order; {0}: there are no more */
/* Rows of an epoch, and of a batch; windows of text count as rows.  Equal where all batches are the same. */
void feed_size(const Feed *f, int64_t *rows, int64_t *batch);
/* Of FEED_ONCE: rows of the data that a step has, each as often as another, so that the mean of a batch is
 * theirs; 0: all were in the steps before. */
int64_t feed_count(const Feed *f, int64_t step);
/* Write all data inputs for a step (from 1) into the arena. */
bool feed_step(Feed *f, Executor *x, int64_t step, Diag *d);
/* For micro-batch `micro` (from 0) of `of`: together they are the rows of a batch that is so many times as
 * large, be they from files, text or random. */
bool feed_micro(Feed *f, Executor *x, int64_t step, int64_t micro, int64_t of, Diag *d);

/* ---- lr.c: learning rates -------------------------------------------------- */

typedef enum { LR_CONSTANT, LR_COSINE, LR_LINEAR } LrShape;
extern const char *const lr_shape_name[]; /* "constant", ..., NULL */

/* Of `steps` steps the first `warmup` rise to the peak, peak * step / warmup; then the shape falls from it
 * to `least`, which step steps + 1 would have. */
typedef struct {
    LrShape shape;
    int64_t warmup, steps;
    double least;
} LrSchedule;
double learning_rate(double peak, const LrSchedule *s, int64_t step); /* from 1 */

/* ---- train.c: the loop ------------------------------------------------- */

typedef struct {
    int64_t steps;
    int64_t first; /* steps done before (the counter starts at first + 1) */
    double lr;
    LrSchedule schedule; /* {0}: lr in all steps */
    int64_t seed;        /* of dropout, and as that of the feed */
    StepInputs inputs;
    Feed *feed; /* NULL: the same random batch every step */
    void (*each)(void *user, int64_t step, double loss, double seconds); /* or NULL */
    void (*skipped)(void *user, int64_t step, double scale); /* a step that changed nothing; or NULL */
    /* Between steps, when none runs and values may be read: behind those that `pauses` is true for, and the
     * last; both or neither NULL. */
    bool (*pauses)(void *user, int64_t step);
    bool (*pause)(void *user, int64_t step, bool last, Diag *d);
    void *user;
    bool others; /* of the result is wanted */
    bool finite; /* a loss that is not ends the run: an error, EXIT_DEVICE */
    const volatile sig_atomic_t *stop; /* not 0: the step that runs is the last; or NULL */
} TrainOptions;

typedef struct {
    double *loss; /* per step, NaN if the graph has none; owned, see train_result_free */
    int64_t first;    /* as in the options */
    int64_t steps;    /* that were made behind those */
    int64_t skipped;  /* of them, as gradients overflowed: weights and optimizer state unchanged */
    double scale;     /* of the loss after the last; 0: it has none */
    double median;    /* seconds per step, without feeding; the first, which finds
                       * caches and threads cold, counts only if it is alone */
    double *seconds;  /* per plan step: its least time, scaled so that all sum to the median
                       * (what disturbed one run of a kernel counts nowhere); owned */
    double others;    /* share of all processors that other processes used meanwhile; 0: not asked for */
} TrainResult;

bool graph_has_loss(const Graph *g); /* is the first output one float? */
bool train_run(Executor *x, const TrainOptions *opt, TrainResult *r, Diag *d);
void train_result_free(TrainResult *r);

/* ---- costs (device.h) ------------------------------------------------- */

typedef struct {
    const DeviceInfo *device; /* that is planned for; NULL: this processor */
    int ordinal;        /* which of them */
    bool here;          /* it can be asked */
    KernelCache *cache; /* has the measured times, too; outlives the profile; NULL: the user's */
    int threads;
    double time_limit; /* seconds of measuring, 0: default; what is left is estimated; < 0:
                        * no times are given at all, only algorithms and scratch */
    bool on_demand; /* `times` measures, not `choose`: until then, estimates */
} ProfileOptions;

#endif
