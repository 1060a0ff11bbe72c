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
/* Of an optimizer; NaN: it has none such or, of what was asked for, not said. */
enum { OPTIM_NUMBERS = 6 };
typedef union {
    struct { double lr, momentum, beta1, beta2, eps, weight_decay; };
    double v[OPTIM_NUMBERS];
} OptimNumbers;
extern const OptimNumbers optim_default[], optim_unsaid; /* by OptimKind; nothing of them */
extern const int optim_moments[]; /* by OptimKind: states of a parameter's size */
/* What products are computed in (precision.c); tf32 by devices that have it. */
typedef enum { PRECISION_F32, PRECISION_TF32, PRECISION_BF16, PRECISION_FP16 } PrecisionKind;
extern const char *const precision_name[]; /* "f32", "tf32", "bf16", "fp16", NULL */
DType precision_half(PrecisionKind kind);  /* DT_NONE: not in 16 bits */

/* Values may go to the host's memory and come back, beside recomputation, not at all, or instead of it. */
typedef enum { OFFLOAD_AUTO, OFFLOAD_NO, OFFLOAD_ONLY } OffloadKind;
extern const char *const offload_name[]; /* "auto", "no", "only", NULL */

/* What the user asked for.  Zero is "not said"; threads and seed are used as they are. */
typedef struct {
    OnnxModel *model;        /* for bind; NULL: the graph is given */
    OnnxOptions import;
    LossKind loss;
    const char *loss_output; /* name of the output the loss is on, or is */
    PrecisionKind precision;
    OptimKind optim;
    OptimNumbers number;
    bool nesterov;
    const char *const *train, *const *freeze, *const *no_decay; /* globs over parameter names */
    int ntrain, nfreeze, nno_decay;
    bool no_decay_auto;      /* nor do those of less than two dimensions decay */
    bool keep_grads;         /* gradients are outputs (--grads) */
    int64_t accumulate;      /* micro-batches of a step, their gradients averaged; 0 = 1 */
    double loss_scale;       /* that fp16 starts with; 0: 65536 */
    int64_t scale_steps;     /* without overflow, after which it doubles; 0: 2000 */
    double clip_norm;        /* largest global norm of the gradients, 0 = none */
    int64_t head_rows;       /* rows of logits at a time, whatever their size; 0 = the device's */
    int64_t update_bytes;    /* weight gradients from this size on are split by rows; 0 = the device's */
    int64_t factor_bytes;    /* factors of them from this size on come in blocks; 0 = the device's */
    int64_t budget;          /* bytes, 0 = none; the arena has what the device does not reserve of them */
    double budget_fraction;  /* > 0: of the keep-everything arena */
    bool least_bytes;        /* instead of a budget: the smallest arena whose step takes at most */
    double overhead;         /* 1 + this times the one that recomputes nothing */
    bool any_bits;           /* candidates with other bits may be chosen to meet the budget */
    double time_limit;       /* seconds for remat, 0 = default */
    int64_t limit_ns;        /* one of several plans: it recomputes only to take less; 0: it is alone */
    bool compared;           /* one of many: no time goes into the smallest arena, or what a refusal says */
    int64_t max_moves;       /* deterministic limit for remat, 0 = default */
    double gap;
    const char *policy;      /* a named policy plans instead of the search; NULL: the search */
    bool policy_anyway;      /* its plan is made where it misses the budget, too */
    const char *instance;    /* write the rematerialization problem to this file; NULL: do not */
    OffloadKind offload;     /* to the host's memory, where the device has a link to it */
    int64_t host_bytes;      /* that may be there; 0: any number */
    bool f64;                /* train in double precision what the model has in single */
    uint64_t seed;
    int threads;
    const DeviceInfo *device; /* the plan is for; NULL: device_cpu */
    int channels_last;        /* as DeviceOps has it (runtime/device.h) */
    bool either_order;        /* likewise */
    CostFn *cost;            /* the device's answer (runtime/device.h), NULL: the roofline of one that is not
                              * here */
    TimesFn *times;          /* NULL: the answers have their times from the start */
    void *cost_user;
    int64_t memory;          /* bytes the device has for the step, 0 = any: more is refused */
    bool memory_limits;      /* no: without a budget it is one */
    Progress progress;
} StepOptions;

OptimNumbers optim_numbers(const StepOptions *o); /* with the defaults of what was not said */

static inline const DeviceInfo *step_device(const StepOptions *o)
{
    return o->device ? o->device : &device_cpu;
}

/* Bytes for a step's arena of a budget in bytes, which counts what the device reserves, too; 0: none was
 * given. */
static inline int64_t step_budget(const StepOptions *o)
{
    return o->budget > 0 ? o->budget - step_device(o)->reserved : 0;
}

typedef struct { Val param, grad, state[2]; } Trained; /* state: optimizer state, {0} = none */

/* A factor of a weight gradient that is recomputed in blocks instead of being stored. */
typedef struct { NodeId product; int operand; Val stored; } PrologueFactor;

/* To the host's memory; bandwidth 0: there is none that is known. */
typedef struct {
    double bandwidth; /* bytes per ns in one direction */
    double byte_ns;   /* that a byte copied costs the kernels beside it */
    double copy_ns;   /* of each copy, for both */
    int64_t bytes; /* of the host's memory, for what is there at any time of a step; 0: not limited */
    bool only;     /* nothing is recomputed */
} HostLink;
static inline int64_t copy_beside_ns(const HostLink *l, int64_t bytes)
{
    return (int64_t)((double)bytes * l->byte_ns + l->copy_ns);
}

/* Bytes of the arena that each step of a plan holds, and of the host's memory (timeline.c). */
typedef struct {
    uint32_t n;                 /* steps */
    int64_t (*held)[MEM_KINDS]; /* per step */
    int64_t *host;              /* per step */
    int64_t *ns; /* per step, and one more: when it begins, as predicted; NULL: not asked for */
} MemCurve;

/* What the passes found; lives in the graph's arena. */
typedef struct {
    Val loss, target, lr, step, rng; /* {0}: not present */
    LossKind appended;               /* with `target` */
    uint32_t given;                  /* the output that is the loss, from 1; 0: none is */
    Val scale;                       /* of the loss, a state; {0}: it is not scaled */
    Trained *trained;
    uint32_t ntrained;
    int64_t accumulate; /* as planned: 0 where nothing trains */
    int64_t align;      /* of the device's arena; 0: ARENA_ALIGN */
    HostLink link;
    PrologueFactor *factor;
    uint32_t nfactor, cfactor;
    uint32_t first_inlined; /* nodes from this one on were made by pass inline */
    StepCost *cost;    /* per node id: of the step that starts with it, before remat */
    Plan plan;
    MemCurve keep_all;            /* of the plan that recomputes nothing; n = 0: not known */
    const struct Packing *packed; /* plan.c's, the latest first */
    uint32_t nrecomputed;        /* steps that run again */
    uint32_t nfetched;           /* whose results are fetched instead */
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
bool pass_listed(const char *list, const char *name); /* comma-separated names, of which "all" is every one */

bool pass_bind(Graph *g, PassCtx *cx);
bool pass_recognise(Graph *g, PassCtx *cx);
bool pass_loss(Graph *g, PassCtx *cx);
bool pass_precision(Graph *g, PassCtx *cx);
bool pass_layout(Graph *g, PassCtx *cx);
bool pass_autodiff(Graph *g, PassCtx *cx);
bool pass_zeros(Graph *g, PassCtx *cx);
bool pass_optimize(Graph *g, PassCtx *cx);
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

/* ---- timeline.c: who has which bytes when -------------------------------------------------- */

typedef struct {
    Val val;             /* {0}: the workspace of step `first` */
    uint32_t first, end; /* steps [first, end) */
    int64_t bytes, at;   /* as the memory gives them out */
    MemKind kind;
    Space space; /* of `at` */
} Life;

/* Lives in one memory do not overlap, and those in the arena add up to what the plan holds: at
 * p->peak_step to p->live_bytes.  Allocated in a; so below. */
Life *plan_lives(const Plan *p, const StepInfo *info, uint32_t *n, Arena *a);
MemCurve lives_curve(const Plan *p, const Life *life, uint32_t n, Arena *a); /* without ns */
MemCurve plan_curve(const Plan *p, const StepInfo *info, Arena *a);          /* with it */
uint32_t curve_peak(const MemCurve *c); /* the first step that holds the most */
int64_t mem_sum(const int64_t mem[MEM_KINDS]);
/* When each step runs once as predicted, a micro-batch before the update; copies beside kernels, as far as
 * these do not wait for them. */
StepTime *plan_clock(const Plan *p, Arena *a);

/* ---- peak.c: what holds the bytes at the peak ------------------------------------------- */

typedef struct {
    Val val; /* {0}: workspace of the step */
    int64_t bytes, at;
    MemKind kind;
    const char *layer; /* the scope of its parameter or of the node it comes from, such as "h.3.attn"; "":
                        * none */
} PeakHeld;

/* Everything held at p->peak_step, the largest first.  Allocated in a. */
const PeakHeld *plan_peak(const Plan *p, const StepInfo *info, uint32_t *n, Arena *a);

/* Does one of the globs match the name? */
bool glob_any(const char *const *globs, int n, const char *name);

/* What nobody reads leaves the order. */
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
