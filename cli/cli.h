/* cli.h -- what the commands of ckc share: options, the training-step job, reports. */
#ifndef CKC_CLI_H
#define CKC_CLI_H

#include "ir/file.h"
#include "passes/passes.h"
#include "runtime/checkpoint.h"
#include "runtime/device.h"
#include "message.h"
#include <jansson.h>
#include <signal.h>

/* ---- options.c -------------------------------------------------------------------------- */

typedef struct Subcommand Subcommand;

typedef struct {
    const Subcommand *command;
    Arena arena;
    Diag diag;
    const char *path;        /* the model, schedule, graph or instance */
    StepOptions step;        /* symbols, loss, optimizer, budget, search limits, threads */
    const DeviceOps *ops;    /* of --device; NULL: it is not here */
    int ordinal;             /* cuda:ORDINAL */
    DeviceInfo device;       /* step.device, once it is known */
    const char *unused;      /* a GPU that is here, and what it lacks; NULL: none */
    const char *data;        /* --data: file or folder; NULL: random */
    const char *expect;      /* ckc eval */
    const char *init_text;   /* --init as given; NULL: none */
    Init init;
    const char *save[4];     /* --save FILE, by suffix */
    int nsave;
    const char *grads;       /* --grads FILE.npz */
    const char *metrics;     /* --metrics FILE.jsonl */
    const char *output;      /* --output DIR; NULL: MODEL.ckc beside the model */
    const char *plot;        /* --plot FILE.svg|FILE.png; NULL: none */
    const char *trace;       /* --trace FILE.json; NULL: none */
    const char *disable;     /* passes left out */
    const char *dump;        /* print the graph after this pass */
    const char *passes;      /* ckc opt */
    const char *cache;       /* --cache DIR; NULL: the user's */
    const char *const *allow; /* --allow-path DIR, each */
    int nallow;
    bool accumulate_auto;    /* --accumulate auto */
    const char *batch;       /* auto:SYMBOL, --batch SYMBOL=; NULL: the one there is */
    int64_t steps;           /* -1: not said */
    const char *weights;     /* --weights FILE; NULL: those of the model */
    const char *val;         /* --val FILE; NULL: none */
    int64_t val_every;       /* steps; 0: once an epoch */
    int64_t beside;          /* bytes that its forward pass takes on the device */
    int64_t epochs;          /* 0: not said */
    int schedule;            /* LrShape; -1: not said */
    int64_t warmup;          /* -1: not said */
    double min_lr;           /* NaN: not said */
    const char *checkpoint;  /* --checkpoint DIR; NULL: none */
    int64_t every;           /* steps between them; 0: not said */
    int64_t record;          /* steps whose inputs go beside the text for a GPU; 0: none */
    double rtol, atol;       /* NaN: not said */
    const char *budget;      /* ckc solve: as given; so the next two */
    bool min_budget;
    int64_t pareto;          /* 0: not said */
    int64_t capacity, align, max_steps; /* ckc pack; 0: not said */
    const char *shell;                  /* ckc help --completion */
    const char *of_model;               /* an option given that ckc solve does not have; NULL: none */
    const char *const *policies;        /* ckc compare --policy NAME, each */
    int npolicies;
    int64_t budgets;                  /* ckc sweep; 0: not said */
    int64_t batches_from, batches_to; /* --batch; to 0: not said */
    const char *value, *node;         /* ckc explain */
    bool quiet, memory, json, time_passes, check, profile, cuda, onnx, torch, list, suite, reference,
        training, seed_given, rechoose, resume, save_trained, shuffle, man, measure;
} Options;

/* Which groups of options a command has, and which rows the short page shows. */
enum {
    OPTIONS_MODEL = 1 << 0,    /* --bind --init --train ... */
    OPTIONS_STEP = 1 << 1,     /* --loss --optimizer ... */
    OPTIONS_BUDGET = 1 << 2,   /* --budget --policy ... */
    OPTIONS_RUN = 1 << 3,      /* --steps --save --lr ... */
    OPTIONS_OUTPUT = 1 << 4,   /* --output --emit */
    OPTIONS_DEBUG = 1 << 5,    /* --dump --time-passes */
    OPTIONS_EVAL = 1 << 6,     /* --expect --suite ... */
    OPTIONS_OPT = 1 << 7,      /* --passes --list */
    OPTIONS_JSON = 1 << 8,     /* --json alone */
    OPTIONS_SOLVE = 1 << 9,    /* ckc solve, all of it */
    OPTIONS_PACK = 1 << 10,    /* ckc pack, all of it */
    OPTIONS_DATA = 1 << 11,    /* --data --seed --threads ... */
    OPTIONS_TRAIN = 1 << 12,   /* what ckc train alone has */
    OPTIONS_HELP = 1 << 13,    /* ckc help */
    OPTIONS_OFTEN = 1 << 14,   /* of a row: people need it */
    OPTIONS_SEARCH = 1 << 15,  /* --time --offload ... */
    OPTIONS_COMPARE = 1 << 16, /* ckc compare */
    OPTIONS_SWEEP = 1 << 17,   /* ckc sweep */
    OPTIONS_EXPLAIN = 1 << 18, /* ckc explain */
    OPTIONS_OOM = 1 << 19,     /* ckc oom */
    OPTIONS_LIBRARY = 1 << 20, /* of OPTIONS_RUN: what the functions of ckc.h take, too */
};

/* Parse the command line; false with a message in o->diag.  -h, --help and --version do not return. */
bool options_parse(Options *o, const Subcommand *c, int argc, char **argv);
/* Without a command line: the defaults, then one by one "NAME=VALUE" or "NAME", texts that last as long as
 * o; false with a message in o->diag. */
void options_init(Options *o, const Subcommand *c);
bool options_set(Options *o, const char *option);
void options_free(Options *o);
bool parse_bytes(const char *text, int64_t *bytes); /* "40GB", "1.5GiB", "1000" */

/* ---- process.c: signals, standard streams ------------------------------------------------ */

/* Call first.  At exit, what could not be printed is a message and EXIT_DEVICE. */
void process_begin(void);
/* From now on the first signal waits in signal_caught (0: none). */
void signals_defer(void);
extern volatile sig_atomic_t signal_caught;
const char *signal_name(int sig);

/* ---- commands.c: the table of commands ----------------------------------------------------- */

struct Subcommand {
    const char *name, *args, *brief; /* what is its argument; one line on it */
    unsigned groups;                 /* OPTIONS_* */
    int (*run)(Options *o);          /* its exit status */
    const char *about, *examples;    /* of the long page: a paragraph; lines as they are printed */
};

extern const Subcommand commands[];               /* the last has no name */
const Subcommand *command_find(const char *name); /* NULL: there is none */
/* Its exit status.  argv[0] is not looked at. */
int command_run(const Subcommand *c, int argc, char **argv);
bool command_unknown(const char *name, Diag *d); /* false, with the nearest */

int cmd_plan(Options *o);
int cmd_train(Options *o);
int cmd_run(Options *o);
int cmd_opt(Options *o);
int cmd_eval(Options *o);
int cmd_solve(Options *o);
int cmd_pack(Options *o);
int cmd_devices(Options *o);
int cmd_compare(Options *o);
int cmd_sweep(Options *o);
int cmd_explain(Options *o);
int cmd_oom(Options *o);
int solve_compare(Options *o);  /* of an instance */
bool sweep_batches(Options *o); /* ckc sweep --batch */
int cmd_help(Options *o);

/* What is done with a model wherever a step of it is planned: the device, and an option that would change
 * nothing is a mistake. */
bool step_check(Options *o);

/* ---- policies.c: ways to plan beside each other ---------------------------------------------- */

typedef struct {
    const char *policy;
    const char *why;           /* there is no plan; else NULL */
    int64_t activations, peak; /* bytes at the largest step: of values, of everything */
    int64_t redone;            /* kernels that run again */
    double cost, measured;     /* NAN: not measured */
    bool fits;
} PolicyRow;

typedef struct {
    const char *path;
    int64_t budget, whole; /* bytes; those of everything stored */
    double base, bound;    /* cost without recomputation; of every schedule within the budget, 0: not known */
    bool in_ms, measured;  /* costs are predicted milliseconds; some were measured, too */
    double others;         /* share of the processors that other processes used meanwhile, at most */
    PolicyRow *row;
    uint32_t n;
} PolicyTable;

/* The rows that o asks for: names only. */
void policy_rows(Options *o, PolicyTable *t);
void policies_print(FILE *f, const PolicyTable *t);
void policies_json(const PolicyTable *t);

/* ---- help.c, man.c, completion.c: what the tables say, in at most 80 columns ---------------- */

void help_short(FILE *f, const Subcommand *c); /* one screen */
void help_long(FILE *f, const Subcommand *c);
void man_print(FILE *f);
void completion_print(FILE *f, const char *shell);

/* ---- job.c: from a model to a plan that runs ------------------------------------------------ */

/* A file that a schedule refers to. */
typedef struct {
    const char *name; /* in the schedule */
    FileMap map;
} JobFile;

typedef struct Validation Validation;
typedef struct StepLog StepLog;
typedef struct SweepResult SweepResult;

/* A number of micro-batches that was tried, and the plan there was for it. */
typedef struct {
    int64_t k, ns, base_ns, bytes; /* base: without recomputation */
    uint32_t recomputed; /* steps that run again */
    const char *why;     /* there was none; else NULL */
} Trial;

typedef struct Job {
    Options *o;
    const struct Job *of; /* it is a fork; NULL: it has files and profile of its own */
    Arena arena, tmp;
    Graph graph;
    OnnxModel *model;
    const char *model_path; /* NULL: a schedule does not say */
    KernelCache cache;
    JobFile *file;
    uint32_t nfile, cfile;
    const DeviceOps *planner; /* who says what commands cost; NULL: nobody */
    void *profile;     /* of it */
    DataFile *data;
    DataFile *weights; /* of --weights */
    StepInfo info;
    Plan *plan;        /* of the pipeline, or read from a schedule */
    Executor *exec;
    TrainResult result;
    int64_t steps; /* training steps, those before --resume included */
    int64_t done;  /* that are behind it */
    Feed *feed;
    Validation *val;
    StepLog *log;
    int64_t epoch, step_rows; /* rows of the data, and of a step */
    Checkpoints checkpoints;
    RunKeys keys;
    double checkpoint_seconds; /* when the last one was written */
    bool checkpoint_due, val_due;
    bool val_left; /* a signal came before it had ended */
    double *val_loss; /* after each of val_step */
    int64_t *val_step;
    uint32_t nval, cval_loss, cval_step;
    const char *folder; /* written */
    const char **output; /* of the model */
    uint32_t noutput;
    char **remark;     /* of the passes */
    uint32_t nremark, cremark;
    double plan_seconds;
    double others;     /* share of the processors that others used while kernels were measured */
    Trial *trial;      /* --accumulate auto: one batch first */
    uint32_t ntrial;
    bool in_schedule;  /* the plan was read, not made */
    const SweepResult *sweep; /* whose plan it is; NULL: none's */
    const char *blame; /* the file a failure is about: its name goes before the message */
} Job;

Job *job_new(Options *o);
/* Open model and data, run the pipeline: job_prepare up to remat, job_finish from there on. */
bool job_plan(Job *j, const PassRun *how);
bool job_prepare(Job *j, const PassRun *how);
bool job_finish(Job *j, const PassRun *how);
/* Of a prepared one: can be finished with other options of the plan.  It ends before `of`, whose files and
 * profile it uses. */
Job *job_fork(const Job *of);
/* Likewise; with --accumulate auto *j becomes that of the best number of micro-batches, also on failure. */
bool job_plan_best(Job **j, const PassRun *how);
void job_remark(Job *j, const char *text);
/* Open the executor: weights are at their initial values. */
bool job_open(Job *j);
uint32_t job_results(const Job *j); /* outputs of its plan that are no gradients */
int64_t job_made(const Job *j);     /* steps, those before --resume included */
/* The exit status of a command; an error, or that steps were left out after a signal, is said. */
int job_status(const Job *j, bool ok);
void job_close(Job *j); /* what ran, so that it may be opened again */
void job_free(Job *j);  /* NULL is fine */

/* ---- steplog.c: what a run tells while it goes on ------------------------------------------------- */

/* first: steps that were made before; what --metrics has of later ones goes. */
bool steplog_open(Job *j, const LrSchedule *schedule, int64_t first);
void steplog_listen(const StepLog *l, TrainOptions *to);
void steplog_validation(StepLog *l, int64_t step, double loss);
/* False: --metrics could not be written.  The last of the files, as nothing else depends on it. */
bool steplog_close(Job *j);

/* ---- validation.c: --val ------------------------------------------------------------------------- */

/* Before the training step is planned: of a budget it takes its part. */
bool validation_plan(Job *j, const PassRun *how);
bool validation_open(Job *j);         /* when all is planned */
void validation_close(Validation *v); /* NULL is fine */
/* The mean loss of all rows with the weights of x; of those up to then where a signal is caught. */
bool validation_run(Validation *v, Executor *x, double *loss, Diag *d);
const Job *validation_job(const Validation *v);

/* ---- training.c: steps of a job ----------------------------------------------------------------- */

/* What the command line says of the run, over what a schedule recorded. */
bool training_defaults(Job *j);
/* Of --checkpoint, --every and --resume, early: what needs no plan. */
bool training_check(const Job *j);
/* Values before the first step, and the inputs of the first o->record steps, to files. */
bool job_record(Job *j, FILE *values, FILE *inputs);
/* Its feed, opened unless it is. */
bool job_feed(Job *j);
/* Its feed, and how many steps o asks for: j->steps. */
bool job_count(Job *j);
/* Open the executor, at the initial values, or where --resume goes on: j->done steps are behind it. */
bool job_begin(Job *j);
/* For n steps from there. */
TrainOptions job_options(Job *j, int64_t n);
bool job_checkpoint(Job *j, int64_t step, Diag *d);
/* All of this, up to step j->steps; the first signal ends it behind the step that runs. */
bool job_train(Job *j);
/* What a run that has ended teaches the profile of kernels; a remark says so, or that it cannot be kept. */
void job_learn(Job *j);

/* ---- schedule.c ----------------------------------------------------------------------------------- */

/* Of a job that is in_schedule, whose options name it: the plan, and what o says instead of it. */
bool job_read(Job *j);

/* ---- files.c: what a schedule refers to --------------------------------------------------------- */

bool hash_file(const char *path, uint64_t *hash, Diag *d);
/* The hash of a file into p, under its name there, unless it has one. */
void file_record(Job *j, Plan *p, const char *name, uint64_t hash);
/* Of the files that values of the plan lie in: before --save replaces one. */
bool files_hash(Job *j);
uint64_t file_hash(const Job *j, const char *path); /* then */
/* Of a schedule that was read: values get the bytes of their files, and j->data is opened. */
bool files_open(Job *j);
bool files_model(Job *j);  /* may the model that it names be read? */
void files_loaded(Job *j); /* the executor has them: gives the memory of the mappings back */
void files_close(Job *j);

/* ---- weights.c: --weights ----------------------------------------------------------------------- */

/* The values of a graph that was just imported, or read, are those of o->weights. */
bool weights_give(Job *j);

/* ---- output.c: files ------------------------------------------------------------------------- */

/* No output takes the place of an input or of another one, but for weights that are saved where they were. */
bool outputs_apart(Options *o);
/* Does a --save end so? */
bool saves(const Options *o, const char *suffix);
/* Try early that files can be written where they are wanted. */
bool output_check(Job *j);
/* Of a plan: can it be written as --emit says? */
bool output_translates(Job *j);
/* After that many steps; false: the weights to be saved are not finite. */
bool output_finite(Job *j, int64_t step);
/* step.ckp, consts.bin, kernels.c, kernels.cu, report.json, report.html. */
bool output_folder(Job *j, const json_t *report);
bool output_weights(Job *j);
bool value_is_weight(const Value *v); /* of the model's file */
/* The elements of one, in memory of the run or of j->tmp. */
bool output_weight(Job *j, Val v, Tensor *t);

/* Names of the plan's outputs: the loss, those of the model, the parameters whose gradients they are. */
typedef struct {
    const char **name;
    const ModelName **module; /* of a gradient: its parameter's name in the module; NULL: as in the file */
    uint32_t loss;      /* 1: the first is the loss, 0: there is none */
    uint32_t gradients; /* the first of them */
} Results;
Results output_results(Job *j);
bool output_grads(Job *j);

/* ---- numbers.c ---------------------------------------------------------------------------------- */

const char *bytes_str(int64_t bytes, char buf[32]);
const char *percent_str(double part, char buf[16]); /* 0.0123: "+1.23 %", 1.268: "+126.8 %" */
const char *rate_str(double v, char buf[16]);       /* per second: "5408", "0.4321" */
double ns_ms(int64_t ns);
/* A line about kernels that were measured, where other processes used more than a tenth of the processors. */
void others_print(FILE *f, double share);
json_t *real_json(double v); /* what is not finite is null */
double part_over(int64_t ns, int64_t base); /* 0.5: half as much again; 0 if there is no base */

/* ---- report.c ---------------------------------------------------------------------------------- */

void report_print(const Job *j, FILE *f);
json_t *report_json(const Job *j);
void report_write(const json_t *report, FILE *f);
/* The types that products read, and of the parameters, where these are others: "bf16 (weights f32)". */
const char *precision_of(const Graph *g, char buf[64]);
const char *loss_used(const Job *j);

/* ---- memory.c: of a planned job ------------------------------------------------------------------ */

void memory_print(const Job *j, FILE *f); /* by layer, and what holds the peak */
void memory_json(const Job *j, json_t *report);
/* Rows of the first input that is fed, and its elements if they are indices: samples and tokens of a batch.
 * 0: unknown. */
void batch_size(const Job *j, int64_t *samples, int64_t *tokens);

#endif
