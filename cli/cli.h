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
    const DeviceOps *ops;    /* of --device; NULL: this machine does not have the device */
    int ordinal;             /* cuda:ORDINAL */
    DeviceInfo device;       /* step.device points here once the device is known */
    const char *unused;      /* message on a GPU of this machine that is not used, and why; NULL: none */
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
    const char *const *allow; /* every --allow-path DIR */
    int nallow;
    bool accumulate_auto;    /* --accumulate auto */
    const char *batch;       /* the batch's symbol, of auto:SYMBOL or --batch SYMBOL=; NULL: the only one */
    int64_t steps;           /* -1: not said */
    const char *weights;     /* --weights FILE; NULL: the model's own */
    const char *val;         /* --val FILE; NULL: none */
    int64_t val_every;       /* steps between validations; 0: once an epoch */
    int64_t epochs;          /* 0: not said */
    int schedule;            /* LrShape; -1: not said */
    int64_t warmup;          /* -1: not said */
    double min_lr;           /* NaN: not said */
    const char *checkpoint;  /* --checkpoint DIR; NULL: none */
    int64_t every;           /* steps between checkpoints; 0: not said */
    int64_t record;          /* steps whose inputs are written beside the text for a GPU; 0: none */
    double rtol, atol;       /* NaN: not said */
    const char *budget;      /* --budget as given, in the commands that read it late; NULL: not said */
    bool min_budget;         /* ckc solve */
    int64_t pareto;          /* ckc solve; 0: not said */
    int64_t capacity, align, max_steps; /* ckc pack; 0: not said */
    const char *shell;                  /* ckc help --completion */
    const char *of_model;               /* a given option that ckc solve does not have; NULL: none */
    const char *const *policies;        /* every ckc compare --policy NAME */
    int npolicies;
    int64_t budgets;                  /* ckc sweep; 0: not said */
    int64_t batches_from, batches_to; /* --batch; batches_to 0: not said */
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
    OPTIONS_TRAIN = 1 << 12,   /* ckc train alone */
    OPTIONS_HELP = 1 << 13,    /* ckc help */
    OPTIONS_OFTEN = 1 << 14,   /* no group: the short page shows the row */
    OPTIONS_SEARCH = 1 << 15,  /* --time --offload ... */
    OPTIONS_COMPARE = 1 << 16, /* ckc compare */
    OPTIONS_SWEEP = 1 << 17,   /* ckc sweep */
    OPTIONS_EXPLAIN = 1 << 18, /* ckc explain */
    OPTIONS_OOM = 1 << 19,     /* ckc oom */
    OPTIONS_LIBRARY = 1 << 20, /* rows of OPTIONS_RUN that the functions of ckc.h take, too */
};

/* Parses the command line; false with a message in o->diag.  -h, --help and --version do not return. */
bool options_parse(Options *o, const Subcommand *c, int argc, char **argv);
/* The same without a command line: options_init sets the defaults, options_set one option, "NAME=VALUE" or
 * "NAME", whose text must last as long as o; false with a message in o->diag. */
void options_init(Options *o, const Subcommand *c);
bool options_set(Options *o, const char *option);
void options_free(Options *o);
bool parse_bytes(const char *text, int64_t *bytes); /* "40GB", "1.5GiB", "1000" */

/* ---- process.c: signals, standard streams ------------------------------------------------ */

/* To be called first.  Output that cannot be written ends the process with a message and EXIT_DEVICE. */
void process_begin(void);
/* From now on the first signal is only remembered in signal_caught (0: none). */
void signals_defer(void);
void signals_default(void); /* in a forked process: signals end it */
extern volatile sig_atomic_t signal_caught;
const char *signal_name(int sig);

/* ---- commands.c: the table of commands ----------------------------------------------------- */

struct Subcommand {
    const char *name, *args, *brief; /* args: what it takes, "MODEL.onnx|FOLDER"; brief: one line on it */
    unsigned groups;                 /* OPTIONS_* */
    int (*run)(Options *o);          /* returns the exit status */
    const char *about, *examples;    /* on the long page: a paragraph; lines that are printed unchanged */
};

extern const Subcommand commands[];               /* ends with one whose name is NULL */
const Subcommand *command_find(const char *name); /* NULL: there is none */
/* Parses the options and runs a command; returns its exit status.  argv[0] is ignored. */
int command_run(const Subcommand *c, int argc, char **argv);
bool command_unknown(const char *name, Diag *d); /* returns false, with the nearest name in the message */

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
int solve_compare(Options *o);  /* ckc compare INSTANCE.dag */
bool sweep_batches(Options *o); /* ckc sweep --batch */
int cmd_help(Options *o);

/* To be called before a step is planned: finds the device, and refuses options that would change nothing. */
bool step_check(Options *o);
/* Takes out of s an option that its optimizer does not have; returns its name, with the reason in d.  NULL:
 * there is none. */
const char *step_take_out(StepOptions *s, Diag *d);

/* ---- policies.c: ways to plan beside each other ---------------------------------------------- */

typedef struct {
    const char *policy;
    const char *why;           /* why there is no plan; NULL: there is one */
    int64_t activations, peak; /* bytes at the largest step: of activations, of everything */
    int64_t redone;            /* kernels that run again */
    double cost, measured;     /* NAN: not measured */
    bool fits;
} PolicyRow;

typedef struct {
    const char *path;
    int64_t budget, whole; /* bytes; bytes with everything stored */
    double base, bound;    /* cost without recomputation; lower bound within the budget, 0: not known */
    bool in_ms, measured;  /* costs are predicted milliseconds; plans were measured, too */
    double others;         /* largest share of the processors that other processes used while measuring */
    PolicyRow *row;
    uint32_t n;
} PolicyTable;

/* Makes the rows that o asks for, with nothing but their policies' names. */
void policy_rows(Options *o, PolicyTable *t);
void policies_print(FILE *f, const PolicyTable *t);
void policies_json(const PolicyTable *t);

/* ---- help.c, man.c, completion.c: texts made of the tables, at most 80 columns wide --------- */

void help_short(FILE *f, const Subcommand *c); /* at most one screen */
void help_long(FILE *f, const Subcommand *c);
void man_print(FILE *f);
void completion_print(FILE *f, const char *shell);

/* ---- job.c: from a model to a plan that runs ------------------------------------------------ */

/* A file that a schedule refers to. */
typedef struct {
    const char *name; /* its path in the schedule */
    FileMap map;
} JobFile;

typedef struct Validation Validation;
typedef struct StepLog StepLog;
typedef struct SweepResult SweepResult;

/* A number k of micro-batches that was tried, and the plan for it. */
typedef struct {
    int64_t k, ns, base_ns, bytes; /* predicted time, and that without recomputation; bytes of the arena */
    uint32_t recomputed; /* steps that run again */
    const char *why;     /* why there is no plan; NULL: there is one */
} Trial;

typedef struct Job {
    Options *o;
    const struct Job *of; /* the job that this is a fork of; NULL: none, files and profile are its own */
    Arena arena, tmp;
    Graph graph;
    OnnxModel *model;
    const char *model_path; /* NULL: a schedule that does not name its model */
    KernelCache cache;
    JobFile *file;
    uint32_t nfile, cfile;
    const DeviceOps *planner; /* predicts the times of commands; NULL: none */
    void *profile;     /* the planner's profile of kernels */
    DataFile *data;
    DataFile *weights; /* of --weights */
    StepInfo info;
    Plan *plan;        /* made by the pipeline, or read from a schedule */
    Executor *exec;
    TrainResult result;
    int64_t steps; /* training steps, those before --resume included */
    int64_t done;  /* of them, the steps before --resume */
    Feed *feed;
    Validation *val;
    StepLog *log;
    int64_t epoch, step_rows; /* rows of the data; rows that a step takes */
    Checkpoints checkpoints;
    RunKeys keys;
    double checkpoint_seconds; /* clock_seconds() of the last checkpoint */
    bool checkpoint_due, val_due;
    bool val_left; /* a signal came before the validation had ended */
    double *val_loss; /* validation loss after each step of val_step */
    int64_t *val_step;
    uint32_t nval, cval_loss, cval_step;
    const char *folder; /* the folder that was written */
    const char **output; /* names of the model's outputs */
    uint32_t noutput;
    char **remark;     /* of the passes and the job, shown as notes */
    uint32_t nremark, cremark;
    double plan_seconds;
    double others;     /* share of the processors that other processes used while kernels were measured */
    Trial *trial;      /* --accumulate auto: rising k, one batch first */
    uint32_t ntrial;
    bool in_schedule;  /* the plan was read from a schedule, not made */
    const SweepResult *sweep; /* the sweep that the plan is one of; NULL: none */
    const char *blame; /* the file a failure is about: its name goes before the message */
} Job;

Job *job_new(Options *o);
/* Opens model and data and runs the pipeline: job_prepare up to the pass remat, job_finish from it on. */
bool job_plan(Job *j, const PassRun *how);
bool job_prepare(Job *j, const PassRun *how);
bool job_finish(Job *j, const PassRun *how);
/* A copy of a prepared job that can be finished with other options of the plan.  It must be freed before
 * `of`, whose files and profile it uses. */
Job *job_fork(const Job *of);
/* Like job_plan; with --accumulate auto *j becomes the job of the best number of micro-batches, on failure
 * as well. */
bool job_plan_best(Job **j, const PassRun *how);
void job_remark(Job *j, const char *text);
/* Opens the executor, with weights at their initial values. */
bool job_open(Job *j);
uint32_t job_results(const Job *j); /* number of the plan's outputs that are not gradients */
int64_t job_made(const Job *j);     /* steps made, those before --resume included */
/* The exit status of a command.  Prints the error, or that a signal ended the run early. */
int job_status(const Job *j, bool ok);
void job_close(Job *j); /* closes executor, feed and log, so that the job may be opened again */
void job_free(Job *j);  /* NULL is fine */

/* ---- steplog.c: what a run tells while it goes on ------------------------------------------------- */

/* first: number of steps that were made before; lines of --metrics on later ones are removed. */
bool steplog_open(Job *j, const LrSchedule *schedule, int64_t first);
void steplog_listen(const StepLog *l, TrainOptions *to);
void steplog_validation(StepLog *l, int64_t step, double loss);
/* False: --metrics could not be written.  To be closed after all other files, as none depends on it. */
bool steplog_close(Job *j);

/* ---- validation.c: --val ------------------------------------------------------------------------- */

/* To be called before the training step is planned, as validation takes its part of the budget. */
bool validation_plan(Job *j, const PassRun *how);
bool validation_open(Job *j);         /* to be called when all is planned */
void validation_close(Validation *v); /* NULL is fine */
/* The mean loss of all rows with the weights of x; if a signal is caught, of the rows up to then. */
bool validation_run(Validation *v, Executor *x, double *loss, Diag *d);
const Job *validation_job(const Validation *v);

/* ---- training.c: steps of a job ----------------------------------------------------------------- */

/* Sets the plan's run defaults: what the command line says replaces what a schedule recorded. */
bool training_defaults(Job *j);
/* Checks the options of a run that need no plan: --metrics, --checkpoint, --every, --resume and others. */
bool training_check(const Job *j);
/* Writes the values before the first step, and the inputs of the first o->record steps, to files. */
bool job_record(Job *j, NewFile *values, NewFile *inputs);
/* Opens the job's feed unless it is open. */
bool job_feed(Job *j);
/* Opens the job's feed and sets j->steps, the number of steps that o asks for. */
bool job_count(Job *j);
/* Opens the executor at the initial values, or with --resume at a checkpoint, after j->done steps. */
bool job_begin(Job *j);
/* The options of train_run() for n steps from there. */
TrainOptions job_options(Job *j, int64_t n);
bool job_checkpoint(Job *j, int64_t step, Diag *d);
/* Counts, begins and runs the steps up to j->steps; the first signal ends it after the step that runs. */
bool job_train(Job *j);
/* Gives the profile of kernels the times of a run that has ended; a remark says so, or why that fails. */
void job_learn(Job *j);

/* ---- schedule.c ----------------------------------------------------------------------------------- */

/* Reads the plan of a job that is in_schedule from o->path; options that are given replace its defaults. */
bool job_read(Job *j);

/* ---- files.c: the files that a schedule refers to ----------------------------------------------- */

bool hash_file(const char *path, uint64_t *hash, Diag *d);
/* Records the hash of a file in p, under its name there, unless p has one. */
void file_record(Job *j, Plan *p, const char *name, uint64_t hash);
/* Hashes the files that values of the plan lie in; to be called before --save replaces one of them. */
bool files_hash(Job *j);
uint64_t file_hash(const Job *j, const char *path); /* the hash of one of them, after files_hash() */
/* After a schedule was read: points values to the bytes of their files, and opens j->data. */
bool files_open(Job *j);
bool files_model(Job *j);  /* may the model that the schedule names be read? */
bool files_in_model(const Job *j, const void *data); /* do these bytes lie in the file of that model? */
void files_loaded(Job *j); /* once the executor has the values: gives the mappings' memory back */
void files_close(Job *j);

/* ---- weights.c: --weights ----------------------------------------------------------------------- */

/* Replaces the weights of a graph that was just imported, or read, by the values in o->weights. */
bool weights_give(Job *j);

/* ---- output.c: files ------------------------------------------------------------------------- */

/* Checks that no output overwrites an input or another output; only --save may, the model or --weights. */
bool outputs_apart(Options *o);
/* Has a --save file this suffix? */
bool saves(const Options *o, const char *suffix);
/* Checks early that files can be written where they are wanted, and that the folder's overwrite no other. */
bool output_check(Job *j);
/* Can the plan be written as --emit says? */
bool output_translates(Job *j);
/* Has the model a place for the weights that --save FILE.onnx writes into a copy of it? */
bool output_fits_model(Job *j);
/* False: weights that are to be saved are not finite after so many steps. */
bool output_finite(Job *j, int64_t step);
/* Writes step.ckp, consts.bin, kernels.c, kernels.cu, report.json, report.html and other files of --emit. */
bool output_folder(Job *j, const json_t *report);
bool output_weights(Job *j);
bool value_is_weight(const Value *v); /* is it a weight of the model's file? */
/* The elements of a weight, in memory of the run, of the model's file or of j->tmp, until
 * output_weight_end(). */
bool output_weight(Job *j, Val v, Tensor *t);
void output_weight_end(Job *j, Val v);

/* Names of the plan's outputs: the loss, the model's outputs, then gradients, named as their parameters. */
typedef struct {
    const char **name;
    const ModelName **module; /* of a gradient: its parameter's name in the module; NULL: as in the file */
    uint32_t loss;      /* 1: the first output is the loss, 0: there is none */
    uint32_t gradients; /* index of the first gradient */
} Results;
Results output_results(Job *j);
bool output_grads(Job *j);

/* ---- numbers.c ---------------------------------------------------------------------------------- */

const char *bytes_str(int64_t bytes, char buf[32]);
const char *percent_str(double part, char buf[16]); /* 0.0123: "+1.23 %", 1.268: "+126.8 %" */
const char *rate_str(double v, char buf[16]);       /* per second: "5408", "0.4321" */
const char *ms_str(int64_t ns, char buf[32]);       /* "287 ms", "0.05173 ms", "299400 ms" */
double ns_ms(int64_t ns);
/* Prints a line if other processes used more than a tenth of the processors while kernels were measured. */
void others_print(FILE *f, double share);
json_t *real_json(double v); /* null if v is not finite */
double part_over(int64_t ns, int64_t base); /* ns / base - 1; 0 if base is 0 */

/* ---- report.c ---------------------------------------------------------------------------------- */

void report_print(const Job *j, FILE *f);
json_t *report_json(const Job *j);
void report_write(const json_t *report, FILE *f);
/* The types that products read, with those of the parameters if they differ: "bf16 (weights f32)". */
const char *precision_of(const Graph *g, char buf[64]);
const char *loss_used(const Job *j);

/* ---- memory.c: the memory of a planned job ------------------------------------------------------- */

void memory_print(const Job *j, FILE *f); /* bytes by layer, and the values held at the peak */
void memory_json(const Job *j, json_t *report);
/* Samples and tokens of a batch: the rows of the input of the batch, and its elements if they are
 * indices.  0: unknown. */
void batch_size(const Job *j, int64_t *samples, int64_t *tokens);

#endif
