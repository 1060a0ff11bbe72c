/* passes.h -- the pipeline from an ONNX model to the plan of a training step. */
#ifndef CKC_PASSES_H
#define CKC_PASSES_H
#include "../ir/device.h"
#include "../ir/onnx/onnx.h"
#include "../ir/program.h"

typedef enum { LOSS_AUTO, LOSS_CE, LOSS_MSE, LOSS_BCE, LOSS_L1, LOSS_NONE } LossKind;
extern const char *const loss_name[]; /* "auto", "ce", ..., NULL */
typedef enum {
    OPTIM_ADAMW, OPTIM_ADAM, OPTIM_LION, OPTIM_ADAFACTOR, OPTIM_SGD, OPTIM_MOMENTUM, OPTIM_NONE
} OptimKind;
extern const char *const optim_name[]; /* "adamw", "adam", ..., "none", NULL */
/* Hyperparameters of an optimizer.  NaN: the optimizer has no such number, or the user gave none. */
enum { OPTIM_NUMBERS = 6 };
typedef union {
    struct { double lr, momentum, beta1, beta2, eps, weight_decay; };
    double v[OPTIM_NUMBERS];
} OptimNumbers;
extern const OptimNumbers optim_default[], optim_unsaid; /* defaults by OptimKind; all NaN */
extern const int optim_moments[]; /* by OptimKind: number of states of a parameter's size */
/* Precision that products are computed in (precision.c); tf32 only on devices that have it. */
typedef enum { PRECISION_F32, PRECISION_TF32, PRECISION_BF16, PRECISION_FP16 } PrecisionKind;
extern const char *const precision_name[]; /* "f32", "tf32", "bf16", "fp16", NULL */
DType precision_half(PrecisionKind kind);  /* the 16-bit type of kind; DT_NONE: it has none */

/* May values go to the host's memory and come back: beside recomputation, not at all, or instead of it? */
typedef enum { OFFLOAD_AUTO, OFFLOAD_NO, OFFLOAD_ONLY } OffloadKind;
extern const char *const offload_name[]; /* "auto", "no", "only", NULL */

/* What the user asked for.  Zero is "not said"; threads and seed are used as they are. */
typedef struct {
    OnnxModel *model;        /* for bind; NULL: the graph is given */
    OnnxOptions import;
    LossKind loss;
    const char *loss_output; /* name of the output that the loss is computed from, or that is the loss */
    PrecisionKind precision;
    OptimKind optim;
    OptimNumbers number;
    bool nesterov;
    const char *const *train, *const *freeze, *const *no_decay; /* globs over parameter names */
    int ntrain, nfreeze, nno_decay;
    bool no_decay_auto;      /* parameters of less than two dimensions do not decay either */
    bool keep_grads;         /* gradients are outputs (--grads) */
    int64_t accumulate;      /* micro-batches of a step, their gradients averaged; 0 = 1 */
    double loss_scale;       /* initial loss scale of fp16; 0: 65536 */
    int64_t scale_steps;     /* steps without overflow after which the loss scale doubles; 0: 2000 */
    double clip_norm;        /* largest global norm of the gradients, 0 = none */
    int64_t head_rows;       /* rows of logits at a time, whatever their size; 0 = the device's */
    int64_t update_bytes;    /* weight gradients from this size on are split by rows; 0 = the device's */
    int64_t factor_bytes;    /* their factors from this size on are computed in blocks; 0 = the device's */
    int64_t budget;          /* bytes, 0 = none; the arena gets these less step_outside() */
    int64_t beside;          /* bytes that validation takes beside the step */
    double budget_fraction;  /* > 0: the budget as a fraction of the keep-everything arena */
    bool least_bytes;        /* instead of a budget: find the smallest arena whose step takes at most */
    double overhead;         /* (1 + overhead) times the step that recomputes nothing */
    bool any_bits;           /* candidates with other bits may be chosen to meet the budget */
    double time_limit;       /* seconds for remat, 0 = default */
    int64_t limit_ns;        /* this one of several plans recomputes only to take less than this; 0: none */
    bool compared;           /* one of many plans: spend no time on the smallest arena or a refusal's text */
    int64_t max_moves;       /* deterministic limit for remat, 0 = default */
    double gap;
    const char *policy;      /* a named policy plans instead of the search; NULL: the search */
    bool policy_anyway;      /* the policy's plan is made even where it misses the budget */
    const char *instance;    /* write the rematerialization problem to this file; NULL: do not */
    OffloadKind offload;     /* copies to the host's memory, if the device has a link to it */
    int64_t host_bytes;      /* limit on the bytes in the host's memory; 0: none */
    bool f64;                /* train in double precision what the model has in single */
    uint64_t seed;
    int threads;
    const DeviceInfo *device; /* device that the plan is for; NULL: device_cpu */
    int channels_last;        /* what DeviceOps.channels_last returns (runtime/device.h) */
    bool either_order;        /* DeviceOps.either_order */
    CostFn *cost;            /* costs from the device's runtime (runtime/device.h); NULL: from the roofline,
                              * as the device is not here */
    TimesFn *times;          /* takes the times that `cost` left open; NULL: it left none */
    void *cost_user;
    int64_t memory;          /* bytes the device has for the step; a step of more is refused; 0: any size */
    bool memory_limits;      /* without a budget `memory` is the budget, instead of a refusal */
    Progress progress;
} StepOptions;

OptimNumbers optim_numbers(const StepOptions *o); /* o->number, its NaN replaced by the defaults */

static inline const DeviceInfo *step_device(const StepOptions *o)
{
    return o->device ? o->device : &device_cpu;
}

/* Bytes of a budget that are not for the step's arena: what the device reserves and what runs beside. */
static inline int64_t step_outside(const StepOptions *o) { return step_device(o)->reserved + o->beside; }

/* Bytes of the budget that are left for the arena; 0: no budget was given in bytes. */
static inline int64_t step_budget(const StepOptions *o)
{
    return o->budget > 0 ? o->budget - step_outside(o) : 0;
}

typedef struct { Val param, grad, state[2]; } Trained; /* state: optimizer state, {0} = none */

/* A factor of a weight gradient that is recomputed in blocks instead of being stored. */
typedef struct { NodeId product; int operand; Val stored; } PrologueFactor;

/* The link between the device and the host's memory; bandwidth 0: no link is known. */
typedef struct {
    double bandwidth; /* bytes per ns in one direction */
    double byte_ns;   /* ns that each byte copied costs the kernels that run beside the copy */
    double copy_ns;   /* ns that each copy takes beside its bytes, and costs those kernels as well */
    int64_t bytes; /* limit on what a step may hold in the host's memory at a time; 0: no limit */
    bool only;     /* values are offloaded only, nothing is recomputed */
} HostLink;
/* ns that a copy of so many bytes costs the kernels that run beside it. */
static inline int64_t copy_beside_ns(const HostLink *l, int64_t bytes)
{
    return (int64_t)((double)bytes * l->byte_ns + l->copy_ns);
}

/* Bytes that each step of a plan holds in the arena and in the host's memory (timeline.c). */
typedef struct {
    uint32_t n;                 /* steps */
    int64_t (*held)[MEM_KINDS]; /* per step: bytes of the arena by kind */
    int64_t *host;              /* per step: bytes of the host's memory */
    int64_t *ns; /* per step: predicted begin; [n]: the end of the last; NULL: not asked for */
} MemCurve;

/* What the passes found; lives in the graph's arena. */
typedef struct {
    Val loss, target, lr, step, rng; /* {0}: not present */
    LossKind appended;               /* kind of the loss that pass loss appended, with input `target` */
    uint32_t given;                  /* number of the output that is the loss, from 1; 0: none is */
    Val scale;                       /* state: the loss scale; {0}: the loss is not scaled */
    Trained *trained;
    uint32_t ntrained;
    int64_t accumulate; /* micro-batches as planned: 0 where nothing trains */
    int64_t align;      /* bytes: alignment of the device's arena; 0: ARENA_ALIGN */
    HostLink link;
    PrologueFactor *factor;
    uint32_t nfactor, cfactor;
    uint32_t first_inlined; /* nodes from this one on were made by pass inline */
    StepCost *cost;    /* per node id: cost of the step that starts with it, before remat */
    Plan plan;
    MemCurve keep_all;            /* curve of the plan that recomputes nothing; n = 0: not known */
    const struct Packing *packed; /* packings that plan.c has made, the latest first */
    double pack_share; /* what part of its steps the longest packing search may take; 0: all of them */
    uint32_t nrecomputed;        /* executions that run a step again */
    uint32_t nfetched;           /* executions that fetch a step's results instead */
    int64_t min_budget_bound;    /* no schedule fits below this */
    double solve_seconds, gap;
} StepInfo;

typedef struct {
    Diag *diag;
    Arena *tmp;              /* scratch, emptied by the driver after every pass */
    bool changed;            /* set by the pass */
    const StepOptions *opt;
    StepInfo *info;
    void (*note)(void *user, const char *text); /* remarks for the user; may be NULL */
    void *user;
} PassCtx;

typedef struct {
    const char *name; /* for --dump, --disable and messages */
    const char *doc;  /* one line, printed by ckc opt --list */
    bool (*run)(Graph *g, PassCtx *cx);
} Pass;

extern const Pass pipeline[]; /* ends with a row without name */

typedef struct {
    const char *only;    /* comma-separated names, NULL = all */
    const char *disable; /* comma-separated */
    const char *dump;    /* name or "all": print the graph to stderr after it */
    bool time;           /* print seconds per pass to stderr */
} PassRun;

/* Run, verify, dump: every pass gets the same treatment, so a broken invariant is reported under
 * the name of the pass that broke it. */
bool passes_run(Graph *g, PassCtx *cx, const PassRun *how);
const Pass *pass_find(const char *name);
/* Does the comma-separated list contain the name, or "all"? */
bool pass_listed(const char *list, const char *name);

bool pass_bind(Graph *g, PassCtx *cx);
bool pass_recognise(Graph *g, PassCtx *cx);
bool pass_rows(Graph *g, PassCtx *cx);
bool pass_loss(Graph *g, PassCtx *cx);
bool pass_precision(Graph *g, PassCtx *cx);
bool pass_layout(Graph *g, PassCtx *cx);
bool pass_autodiff(Graph *g, PassCtx *cx);
bool pass_zeros(Graph *g, PassCtx *cx);
bool pass_optimize(Graph *g, PassCtx *cx);
bool pass_canonicalize(Graph *g, PassCtx *cx);
bool pass_simplify(Graph *g, PassCtx *cx);
bool pass_fuse(Graph *g, PassCtx *cx);
bool pass_narrow(Graph *g, PassCtx *cx);
bool pass_stack(Graph *g, PassCtx *cx);
bool pass_head(Graph *g, PassCtx *cx);
bool pass_epilogue(Graph *g, PassCtx *cx);
bool pass_activate(Graph *g, PassCtx *cx);
bool pass_inline(Graph *g, PassCtx *cx);
bool pass_panels(Graph *g, PassCtx *cx);
bool pass_split(Graph *g, PassCtx *cx);
bool pass_cost(Graph *g, PassCtx *cx);
bool pass_remat(Graph *g, PassCtx *cx);
bool pass_plan(Graph *g, PassCtx *cx);

/* ---- timeline.c: which value holds which bytes when ---------------------------------------- */

typedef struct {
    Val val;             /* {0}: the workspace of step `first` */
    uint32_t first, end; /* held in steps [first, end) */
    int64_t bytes, at;   /* size, rounded up to the memory's alignment, and offset */
    MemKind kind;
    Space space; /* memory that `at` is an offset in */
} Life;

/* What every value and workspace holds, and when.  Lives in one memory do not overlap; those in the arena
 * add up to p->live_bytes at p->peak_step.  This and the following results are allocated in a. */
Life *plan_lives(const Plan *p, const StepInfo *info, uint32_t *n, Arena *a);
MemCurve lives_curve(const Plan *p, const Life *life, uint32_t n, Arena *a); /* ns is NULL */
MemCurve plan_curve(const Plan *p, const StepInfo *info, Arena *a);          /* with ns */
uint32_t curve_peak(const MemCurve *c); /* the first step that holds the most */
int64_t mem_sum(const int64_t mem[MEM_KINDS]);
/* Predicted begin and end of each step, all run once: one micro-batch, then the update.  Copies run beside
 * kernels, as far as these do not wait for them. */
StepTime *plan_clock(const Plan *p, Arena *a);

/* ---- peak.c: what holds the bytes at the peak ------------------------------------------- */

typedef struct {
    Val val; /* {0}: the workspace of the step */
    int64_t bytes, at;
    MemKind kind;
    const char *layer; /* scope of its parameter or of the node that makes it, such as "h.3.attn"; "":
                        * none */
} PeakHeld;

/* Everything held at p->peak_step, the largest first.  Allocated in a. */
const PeakHeld *plan_peak(const Plan *p, const StepInfo *info, uint32_t *n, Arena *a);

/* Does one of the globs match one of the value's names, in the graph or in the model? */
bool glob_any(const char *const *globs, int n, const Value *v);

/* Dead code elimination: removes the nodes whose results nothing reads from the order. */
void graph_dce(Graph *g, Arena *tmp);

/* ---- nodes that several passes look for ------------------------------------------------- */

/* A cast of floats to a wider float type, which holds all their values. */
static inline bool node_widens(const Graph *g, const Node *n)
{
    DType from = n->op == OP_cast ? val_type(g, n->in[0])->dt : DT_NONE, to = val_type(g, n->out[0])->dt;
    return n->op == OP_cast && dtype_is_float(from) && dtype_is_float(to) &&
           dtype_size[from] < dtype_size[to];
}

#endif
