/* runtime.h -- running a plan on a device: executor, training data, training loop, measured costs.
 *
 * The runtime knows the Plan and nothing of the passes that made it.  A run has one allocation for tensors,
 * of exactly plan->arena_bytes; everything else it needs (compiled kernels, library objects, operand tables)
 * is made when it is opened. */
#ifndef CKC_RUNTIME_H
#define CKC_RUNTIME_H

#include "ir/device.h"
#include "ir/file.h"
#include "ir/plan.h"
#include "kernel_cache.h"
#include "weights.h"
#include <signal.h>

/* ---- cpu/spin.c ---------------------------------------------------------------------------- */

/* Call first in main: bounds how long threads spin (restarts the program once). */
void spin_bounded(char **argv);

/* ---- cpu/pages.c ------------------------------------------------------------------------ */

/* Sets the calling thread's floating-point mode on its workers, which runs leave with denormals as zero. */
void fp_leave(void);

/* ---- exec.c: the executor ----------------------------------------------- */

typedef struct {
    const struct DeviceOps *device; /* device.h; NULL: the default */
    int ordinal;           /* number of the device among those of its kind, from 0 */
    const KernelCache *cache; /* of compiled kernels; NULL: the user's */
    const Init *init;      /* initial values of parameters without data; NULL: such a parameter is an error */
    int64_t seed;          /* of init */
    int64_t lane_order;    /* fake device: seed of the order in which lanes advance; 0: order of issue */
    NewFile *record_values, *record_inputs; /* files that record_device writes */
    int64_t *rechosen;     /* counts routines replaced, with other bits, because they are pinned to a library
                            * or GPU that is not here; NULL: that is an error */
    bool check; /* fill memory with NaNs where no value lives: a plan that reuses memory too early shows in
                 * the results */
} ExecOptions;

/* ---- initial.c: writes the initial value of a parameter, state or constant to out->data */

bool initial_value(const Graph *g, Val v, const ExecOptions *opt, Tensor *out, Diag *d);

typedef struct Executor Executor;

/* Compiles kernels, makes library routines, and sets parameters and state to their initial values.  The plan
 * must outlive the executor.  NULL: failed. */
Executor *exec_open(const Plan *p, const ExecOptions *opt, Diag *d);
void exec_close(Executor *x); /* NULL is fine */

/* A training step is exec_micro for each micro-batch, with its own inputs, then exec_rest, which updates the
 * parameters and does nothing in a plan without micro-batches (plan.h).  Denormals are flushed to zero.
 * seconds: NULL, or the least time of each plan step so far (0: none), which the run updates (device.h). */
bool exec_micro(Executor *x, double *seconds, Diag *d);
bool exec_rest(Executor *x, double *seconds, Diag *d);

/* A run is exec_begin, parts of a step, exec_end; v is its loss (one float; {0}: there is none).  exec_finish
 * returns the loss (NaN if none) and the seconds of the oldest unfinished run.  At most exec_flight() runs
 * may be begun and not finished: a device that runs asynchronously overlaps them with work of the host, such
 * as preparing the next inputs. */
bool exec_begin(Executor *x, Diag *d);
bool exec_end(Executor *x, Val v, Diag *d);
bool exec_finish(Executor *x, double *loss, double *seconds, Diag *d);
int exec_flight(const Executor *x);

/* A value as the host addresses it; data is NULL if it has no memory.  If the host can address the device's
 * memory, the tensor lies there and is valid while the value is live (parameters, state, graph outputs:
 * between steps; inputs: until exec_micro).  Otherwise it is a host copy that lasts until exec_drop or
 * exec_close: exec_write copies it to the device, exec_read back; all do nothing if there is no copy. */
Tensor exec_tensor(const Executor *x, Val v);
bool exec_write(Executor *x, Val v, Diag *d);
bool exec_read(Executor *x, Val v, Diag *d);
void exec_drop(Executor *x, Val v);
/* Replaces the elements of a weight, and of the values that are loaded as casts of it.  If the weight has no
 * memory in the plan, the executor keeps the new elements on the host. */
bool exec_replace(Executor *x, Val v, const void *from, Diag *d);
const Plan *exec_plan(const Executor *x);

/* ---- inputs.c, feed.c: inputs of a step --------------------------------- */

/* Inputs that the runtime itself sets, and the state that it watches; {0}: the graph has none. */
typedef struct {
    Val lr;   /* f64[] */
    Val step; /* i64[], from 1 */
    Val rng;  /* i64[2]: seed, batch (from 1) */
    Val micro; /* i64[]: micro-batch of the step, from 0 */
    Val scale; /* f32[]: loss scale, a state; decreases after a step whose gradients overflowed */
} StepInputs;
StepInputs step_inputs(const Graph *g); /* found by name, kind and type */

/* The input whose first dimension is the batch, of those that are not in `own` and are read: the one marked
 * so, or else the first; {0}: there is none. */
Val feed_batch(const Graph *g, const StepInputs *own);

typedef struct Feed Feed;

typedef enum {
    FEED_FILE,     /* rows in the file's order; windows of text at random places */
    FEED_SHUFFLED, /* rows in an order that changes every epoch and follows from the seed */
    FEED_ONCE      /* every row once, consecutive windows of text: see feed_count() */
} FeedOrder;

/* Matches entries of a data file (NULL: random data) to the graph's inputs that are not in `own`, by name,
 * then as input/NAME, then as input_K in order.  An array with the input's shape is used as it is; one that
 * only has more rows is cut into consecutive batches, starting again at its end; one with another leading
 * dimension has one batch per entry, or several.  Text gives windows of tokens to the inputs of lookups and,
 * one byte later, to the targets.  Integers convert to integers, floats to floats.  Everything is checked
 * here: names, shapes, numbers of rows, NaNs, integers that fit in the input's type, indices and class
 * targets in range. */
Feed *feed_open(const Graph *g, const StepInputs *own, DataFile *data, FeedOrder order, int64_t seed,
                Diag *d);
void feed_close(Feed *f); /* NULL is fine */
Val feed_input(const Feed *f, int k); /* k-th input (from 0) that the feed writes; {0}: there are no more */
/* Number of rows (windows of text) in an epoch and in a batch; equal if all batches are the same. */
void feed_size(const Feed *f, int64_t *rows, int64_t *batch);
/* FEED_ONCE: number of distinct rows in the batch of a step, each repeated equally often, so that the mean
 * over the batch is the mean over them; 0: earlier steps had all rows. */
int64_t feed_count(const Feed *f, int64_t step);
/* FEED_ONCE: the weight of a step's loss in the mean over all steps: the number of targets that are not
 * ignored among its distinct rows, or of these rows if there is no value that is ignored. */
int64_t feed_weight(const Feed *f, int64_t step);
/* "x[17] of the data is not finite; ": an input that a step in `of` micro-batches is fed with; "": there is
 * none. */
enum { FEED_TEXT_MAX = 256 };
const char *feed_infinite(const Feed *f, int64_t step, int64_t of, char text[FEED_TEXT_MAX]);
/* Write all data inputs for a step (from 1) into the arena. */
bool feed_step(Feed *f, Executor *x, int64_t step, Diag *d);
/* The same for micro-batch `micro` (from 0) of `of`: together these have the rows of one batch that is `of`
 * times as large, whether they come from files, from text or at random. */
bool feed_micro(Feed *f, Executor *x, int64_t step, int64_t micro, int64_t of, Diag *d);

/* ---- lr.c: learning rates -------------------------------------------------- */

typedef enum { LR_CONSTANT, LR_COSINE, LR_LINEAR } LrShape;
extern const char *const lr_shape_name[]; /* "constant", ..., NULL */

/* Schedule over `steps` steps: the rate of the first `warmup` is peak * step / warmup; then it falls in the
 * given shape from the peak to `least`, which step steps + 1 would have. */
typedef struct {
    LrShape shape;
    int64_t warmup, steps;
    double least;
} LrSchedule;
double learning_rate(double peak, const LrSchedule *s, int64_t step); /* step: from 1 */

/* ---- train.c: the loop ------------------------------------------------- */

typedef struct {
    int64_t steps;
    int64_t first; /* number of steps made before (the counter starts at first + 1) */
    double lr;
    LrSchedule schedule; /* {0}: every step uses lr */
    int64_t seed;        /* of dropout and, without a feed, of the random batch */
    StepInputs inputs;
    Feed *feed; /* NULL: the same random batch every step */
    void (*each)(void *user, int64_t step, double loss, double seconds); /* after every step; or NULL */
    void (*skipped)(void *user, int64_t step, double scale); /* after a skipped step; or NULL */
    /* pause is called when no step runs and values may be read: after each step that `pauses` is true for,
     * and after the last one.  Both or neither are NULL. */
    bool (*pauses)(void *user, int64_t step);
    bool (*pause)(void *user, int64_t step, bool last, Diag *d);
    void *user;
    bool others; /* TrainResult.others is wanted */
    bool finite; /* a loss that is not finite ends the run with an error, EXIT_DEVICE */
    const volatile sig_atomic_t *stop; /* when not 0, the current step is the last; or NULL */
} TrainOptions;

typedef struct {
    double *loss; /* per step, NaN if the graph has none; owned, see train_result_free */
    int64_t first;    /* as in the options */
    int64_t steps;    /* number of steps that this run made */
    int64_t skipped;  /* how many of them were skipped as gradients overflowed: they changed no weight and no
                       * optimizer state */
    double scale;     /* loss scale after the last step; 0: there is none */
    double median;    /* seconds per step, without feeding; the first step, which finds caches and threads
                       * cold, counts only if it is the only one */
    double *seconds;  /* per plan step: its least time, which leaves out disturbed runs, scaled so that all
                       * sum to the median; owned; NULL: no step was made */
    double others;    /* share of all processors that other processes used meanwhile; 0: not asked for */
} TrainResult;

bool graph_has_loss(const Graph *g); /* is the first output one float? */
double plain_nan(double x);          /* x; a NaN loses its sign, which printf would print */
bool train_run(Executor *x, const TrainOptions *opt, TrainResult *r, Diag *d);
void train_result_free(TrainResult *r);

/* ---- costs (device.h) ------------------------------------------------- */

typedef struct {
    const DeviceInfo *device; /* the device to plan for; NULL: this processor */
    int ordinal;        /* number of the device among those of its kind, from 0 */
    bool here;          /* the device is present and can be asked */
    KernelCache *cache; /* also keeps the measured times; outlives the profile; NULL: the user's */
    int threads;
    double time_limit; /* seconds of measuring, 0: default; what is not measured by then is estimated; < 0:
                        * no times at all, only algorithms and scratch */
    bool on_demand; /* `choose` only estimates, and measuring is left to `times` */
} ProfileOptions;

#endif
