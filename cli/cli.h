/* cli.h -- what the commands of ckc share: options, the training-step job, reports. */
#ifndef CKC_CLI_H
#define CKC_CLI_H

#include "ir/file.h"
#include "passes/passes.h"
#include "runtime/device.h"
#include "message.h"
#include <jansson.h>
#include <signal.h>

/* ---- options.c -------------------------------------------------------------------------- */

typedef struct {
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
    const char *output;      /* --output DIR; NULL: MODEL.ckc beside the model */
    const char *disable;     /* passes left out */
    const char *dump;        /* print the graph after this pass */
    const char *passes;      /* ckc opt */
    const char *cache;       /* --cache DIR; NULL: the user's */
    const char *const *allow; /* --allow-path DIR, each */
    int nallow;
    bool accumulate_auto;    /* --accumulate auto */
    const char *batch;       /* auto:SYMBOL; NULL: the one there is */
    int64_t steps;           /* -1: not said */
    int64_t record;          /* steps whose inputs go beside the text for a GPU; 0: none */
    double rtol, atol;       /* NaN: not said */
    const char *budget;      /* ckc solve: as given; so the next two */
    bool min_budget;
    int64_t pareto;          /* 0: not said */
    int64_t capacity, align, max_steps; /* ckc pack; 0: not said */
    bool quiet, memory, json, time_passes, check, profile, cuda, list, suite, reference, training, seed_given,
        rechoose;
} Options;

/* Which groups of options a command has. */
enum {
    OPTIONS_MODEL = 1 << 0,  /* --bind --init --train ... */
    OPTIONS_STEP = 1 << 1,   /* --loss --optimizer ... */
    OPTIONS_BUDGET = 1 << 2, /* --budget --time ... */
    OPTIONS_RUN = 1 << 3,    /* --steps --data --save --lr ... */
    OPTIONS_OUTPUT = 1 << 4, /* --output --emit */
    OPTIONS_DEBUG = 1 << 5,  /* --dump --time-passes */
    OPTIONS_EVAL = 1 << 6,   /* --expect --suite ... */
    OPTIONS_OPT = 1 << 7,    /* --passes --list */
    OPTIONS_JSON = 1 << 8,   /* --json alone */
    OPTIONS_SOLVE = 1 << 9,  /* ckc solve, all of it */
    OPTIONS_PACK = 1 << 10,  /* ckc pack, all of it */
};

/* Parse the command line; false with a message in o->diag.  --help and --version do not return. */
bool options_parse(Options *o, unsigned groups, const char *args_doc, const char *doc, int argc,
                   char **argv);
void options_free(Options *o);
bool parse_bytes(const char *text, int64_t *bytes); /* "40GB", "1.5GiB", "1000" */

/* ---- process.c: signals, standard streams ------------------------------------------------ */

/* Call first.  At exit, what could not be printed is a message and EXIT_DEVICE. */
void process_begin(void);
/* From now on the first signal waits in signal_caught (0: none). */
void signals_defer(void);
extern volatile sig_atomic_t signal_caught;
const char *signal_name(int sig);

/* ---- commands: exit status ---------------------------------------------------------------- */

int cmd_train(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_opt(int argc, char **argv);
int cmd_eval(int argc, char **argv);
int cmd_solve(int argc, char **argv);
int cmd_pack(int argc, char **argv);
int cmd_devices(int argc, char **argv);

/* ---- job.c: from a model to a plan that runs ------------------------------------------------ */

typedef struct {
    const char *name;
    Type type;
} JobOutput;

/* A file that a schedule refers to. */
typedef struct {
    const char *name; /* in the schedule */
    FileMap map;
} JobFile;

/* A number of micro-batches that was tried, and the plan there was for it. */
typedef struct {
    int64_t k, ns, bytes;
    uint32_t recomputed; /* steps that run again */
    const char *why;     /* there was none; else NULL */
} Trial;

typedef struct {
    Options *o;
    Arena arena, tmp;
    Graph graph;
    OnnxModel *model;
    KernelCache cache;
    JobFile *file;
    uint32_t nfile, cfile;
    const DeviceOps *planner; /* who says what commands cost; NULL: nobody */
    void *profile;     /* of it */
    DataFile *data;
    StepInfo info;
    Plan *plan;        /* of the pipeline, or read from a schedule */
    Executor *exec;
    TrainResult result;
    int64_t steps;     /* training steps run */
    const char *folder; /* written */
    JobOutput *output; /* of the model */
    uint32_t noutput;
    char **remark;     /* of the passes */
    uint32_t nremark, cremark;
    double plan_seconds;
    Trial *trial;      /* --accumulate auto: one batch first */
    uint32_t ntrial;
    bool in_schedule;  /* the plan was read, not made */
    const char *blame; /* the file a failure is about: its name goes before the message */
} Job;

/* Open model and data, run the pipeline. */
bool job_plan(Job *j, const PassRun *how);
/* Likewise; with --accumulate auto *j becomes the job of the best number of micro-batches, also on failure.
 * *j is malloc'ed. */
bool job_plan_best(Job **j, const PassRun *how);
void job_remark(Job *j, const char *text);
/* Values before the first step, and the inputs of the first o->record steps, to files. */
bool job_record(Job *j, FILE *values, FILE *inputs);
/* Open the executor: weights are at their initial values. */
bool job_open(Job *j);
/* Open it and train for o->steps. */
bool job_train(Job *j);
/* The exit status of a command; an error, or that steps were left out after a signal, is said. */
int job_status(const Job *j, bool ok);
void job_free(Job *j);

/* ---- files.c: what a schedule refers to --------------------------------------------------------- */

bool hash_file(const char *path, uint64_t *hash, Diag *d);
/* The hash of a file (path NULL: of the data) into p, under its name there, unless it has one. */
bool file_record(Job *j, Plan *p, const char *name, const char *path);
/* Of a schedule that was read: values get the bytes of their files, and j->data is opened. */
bool files_open(Job *j);
void files_loaded(Job *j); /* the executor has them: gives the memory of the mappings back */
void files_close(Job *j);

/* ---- output.c: files ------------------------------------------------------------------------- */

/* Try early that files can be written where they are wanted. */
bool output_check(Job *j);
/* A step has run; false: the weights to be saved are not finite. */
bool output_finite(Job *j);
/* step.ckp, consts.bin, kernels.c, kernels.cu, report.json. */
bool output_folder(Job *j, const char *report);
bool output_weights(Job *j);
bool output_grads(Job *j);

/* ---- report.c ---------------------------------------------------------------------------------- */

void report_print(const Job *j, FILE *f);
char *report_json(const Job *j);  /* malloc'd text */
const char *bytes_str(int64_t bytes, char buf[32]);

/* ---- memory.c: of a planned job ------------------------------------------------------------------ */

void memory_print(const Job *j, FILE *f); /* by layer, and what holds the peak */
void memory_json(const Job *j, json_t *report);

#endif
