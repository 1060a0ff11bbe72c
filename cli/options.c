/* options.c -- the command line: one table of options, of which each command has a part. */
#include "option.h"
#include "passes/remat/remat.h"
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the table ----------------------------------------------------------------------------- */

#define AT(member) offsetof(Options, member)
#define TITLED(text)                                                                                         \
    {                                                                                                        \
        .doc = text, .kind = TITLE                                                                           \
    }
#define IS(groups, name, key, member, doc)                                                                   \
    {                                                                                                        \
        groups, name, key, NULL, doc, FLAG, AT(member), 0, 0, NULL, NULL                                     \
    }
#define TEXT_OF(groups, name, key, arg, member, doc)                                                         \
    {                                                                                                        \
        groups, name, key, arg, doc, TEXT, AT(member), 0, 0, NULL, NULL                                      \
    }
#define NAME_OF(groups, name, arg, member, names, doc)                                                       \
    {                                                                                                        \
        groups, name, 0, arg, doc, TEXT, AT(member), 0, 0, names, NULL                                       \
    }
#define CHOICE_OF(groups, name, arg, member, names, doc)                                                     \
    {                                                                                                        \
        groups, name, 0, arg, doc, CHOICE, AT(member), 0, 0, names, NULL                                     \
    }
#define REAL_OF(groups, name, key, member, low, high, doc)                                                   \
    {                                                                                                        \
        groups, name, key, "X", doc, REAL, AT(member), low, high, NULL, NULL                                 \
    }
#define INTEGER_OF(groups, name, key, member, low, high, doc)                                                \
    {                                                                                                        \
        groups, name, key, "N", doc, INTEGER, AT(member), low, high, NULL, NULL                              \
    }
#define CALL_NAMED(groups, name, arg, names, fn, doc)                                                        \
    {                                                                                                        \
        groups, name, 0, arg, doc, OTHER, 0, 0, 0, names, fn                                                 \
    }
#define CALL(groups, name, key, arg, fn, doc)                                                                \
    {                                                                                                        \
        groups, name, key, arg, doc, OTHER, 0, 0, 0, NULL, fn                                                \
    }

enum {
    MODEL = OPTIONS_MODEL,
    STEP = OPTIONS_STEP,
    BUDGET = OPTIONS_BUDGET,
    RUN = OPTIONS_RUN,
    OUTPUT = OPTIONS_OUTPUT,
    DEBUG = OPTIONS_DEBUG,
    EVAL = OPTIONS_EVAL,
    OPT = OPTIONS_OPT,
    JSON = OPTIONS_JSON,
    SOLVE = OPTIONS_SOLVE,
    PACK = OPTIONS_PACK,
    DATA = OPTIONS_DATA,
    TRAIN = OPTIONS_TRAIN,
    SEARCH = OPTIONS_SEARCH,
    COMPARE = OPTIONS_COMPARE,
    SWEEP = OPTIONS_SWEEP,
    EXPLAIN = OPTIONS_EXPLAIN,
    OOM = OPTIONS_OOM,
    HELP = OPTIONS_HELP,
    OFTEN = OPTIONS_OFTEN,
    LIBRARY = OPTIONS_LIBRARY,
};

const Row option_rows[] = {
    TITLED("Model:"),
    CALL(MODEL | OFTEN, "bind", 0, "SYMBOL=SIZE,...", parse_bind,
         "Sizes of symbolic dimensions, batch=8,seq=128; INPUT.K names a dimension that has no symbol, and "
         "batch the first of every input where none is called so; INPUT=N is the value of an integer input"),
    CALL(MODEL | RUN | LIBRARY, "init", 0, "RULE", parse_init,
         "Initial values of parameters exported without: normal[:DEVIATION], xavier, kaiming"),
    TEXT_OF(
        MODEL | RUN | LIBRARY, "weights", 0, "FILE", weights,
        "Start from these weights, under the model's names: .safetensors or .npz; 16-bit floats are widened"),
    CALL(STEP, "train", 0, "GLOB,...", parse_train, "Train these tensors, whatever the rule says"),
    CALL(STEP, "freeze", 0, "GLOB,...", parse_freeze, "Do not train these"),
    IS(MODEL, "keep-batch-norm", 0, step.import.keep_batch_norm,
       "Leave inference-form BatchNormalization as it is"),
    IS(MODEL, "unbiased-var", 0, step.import.unbiased_var,
       "Running variance as PyTorch keeps it: times n/(n-1)"),
    IS(MODEL, "untie", 0, step.import.untie,
       "What the exporter merged because it was equal, or left out because it was zero, trains on its own"),
    CALL(MODEL, "tie", 0, "KEPT=COPY,...", parse_tie,
         "Two weights are one: the copy is the kept one, or that transposed"),

    TITLED("Training step:"),
    CHOICE_OF(STEP, "loss", "KIND", step.loss, loss_name,
              "Loss: ce, mse, bce, l1, none; auto (default): the model's scalar output, else bce behind a "
              "Sigmoid, mse for one class or number a row, ce for more"),
    TEXT_OF(STEP, "loss-output", 0, "NAME", step.loss_output, "The output the loss is, or is on"),
    CHOICE_OF(STEP | OFTEN, "optimizer", "KIND", step.optim, optim_name,
              "adamw, adam, lion, adafactor, sgd, momentum or none (default adamw); in PyTorch's form"),
    CHOICE_OF(
        STEP | OFTEN, "precision", "TYPE", step.precision, precision_name,
        "Precision of products, f32, tf32, bf16 or fp16 (default f32: as the model has it); weights that "
        "train stay as they are"),
    REAL_OF(STEP, "loss-scale", 0, step.loss_scale, 1e-30, 1e30,
            "Loss scale that --precision fp16 starts with (default 65536); halved when gradients overflow"),
    REAL_OF(STEP | RUN | LIBRARY | OFTEN, "lr", 0, step.number.lr, 0, 1e9,
            "Learning rate (default 0.001; lion 0.0001; adafactor, sgd and momentum 0.01)"),
    CHOICE_OF(
        RUN | LIBRARY, "schedule", "KIND", schedule, lr_shape_name,
        "How the learning rate falls: constant, cosine or linear (default constant: it does not), from --lr "
        "to --min-lr in --steps"),
    INTEGER_OF(RUN | LIBRARY, "warmup", 0, warmup, 0, 1e15,
               "Steps in which the learning rate rises to --lr (default 0)"),
    REAL_OF(RUN | LIBRARY, "min-lr", 0, min_lr, 0, 1e9, "Where --schedule cosine or linear ends (default 0)"),
    REAL_OF(STEP, "momentum", 0, step.number.momentum, 0, 1e9, "Factor of momentum (default 0.9)"),
    REAL_OF(STEP, "beta1", 0, step.number.beta1, 0, 1,
            "Decay of the first moment of adam and adamw, of lion's in an update (default 0.9)"),
    REAL_OF(STEP, "beta2", 0, step.number.beta2, 0, 1,
            "Decay of the second moment of adam and adamw (default 0.999), of lion's (0.99)"),
    REAL_OF(STEP, "eps", 0, step.number.eps, 0, 1e9, "Epsilon of adam and adamw (default 1e-8)"),
    REAL_OF(STEP, "weight-decay", 0, step.number.weight_decay, 0, 1e9,
            "Weight decay (default 0.01 for adamw, else 0)"),
    CALL(STEP, "no-decay", 0, "GLOB,...|auto", parse_no_decay,
         "Parameters without weight decay; auto: those of less than two dimensions (biases, norms)"),
    IS(STEP, "nesterov", 0, step.nesterov, "Nesterov's form of momentum"),
    CALL(STEP, "accumulate", 0, "N|auto[:SYMBOL]", parse_accumulate,
         "Micro-batches of a step, each a batch of the data; gradients are averaged.  auto: the batch of "
         "--bind is cut into as many as make the step fastest within --budget; SYMBOL is the batch"),
    REAL_OF(STEP, "clip-norm", 0, step.clip_norm, 1e-30, 1e30,
            "Largest global norm of the gradients, as PyTorch's clip_grad_norm_"),

    TITLED("Plan:"),
    CALL(BUDGET | OFTEN, "budget", 'b', "SIZE", parse_budget,
         "Most memory of a step, such as 40GB or 50% (of everything it holds; 40GB = 40e9 bytes, 40GiB = "
         "40*2^30; 50%: half of what it takes with everything stored; default: no limit)"),
    CHOICE_OF(
        SEARCH, "offload", "WHICH", step.offload, offload_name,
        "Values and states in the host's memory: auto, where to fetch them back is faster than to compute "
        "them again, or nothing else fits, on devices that have a link to it (default); no; or only: nothing "
        "is recomputed"),
    CALL(SEARCH, "host-memory", 0, "SIZE", parse_host_memory,
         "Most bytes of the host's memory; default: as many as it takes"),
    CALL_NAMED(SEARCH, "choices", "WHICH", choices_name, parse_choices,
               "Algorithms, fixed or budget (fixed, the default: the same, and the same bits, at every "
               "budget; budget: others too)"),
    CALL(BUDGET, "overhead", 0, "PERCENT", parse_overhead,
         "Instead of --budget: the least bytes for a step that is predicted to take at most this much longer "
         "than without recomputation, such as 2%"),
    REAL_OF(SEARCH, "time", 0, step.time_limit, 0.001, 1e9,
            "Seconds to search for a better plan, instead of moves"),
    INTEGER_OF(SEARCH, "moves", 0, step.max_moves, 1, 1e18,
               "Moves of the search (default 1000000 or 300 a kernel): the same plan on every machine"),
    REAL_OF(SEARCH, "gap", 0, step.gap, 0, 1e6, "Stop this close to the lower bound (0.01: 1 %)"),
    CALL_NAMED(
        BUDGET, "policy", "NAME", remat_policies, parse_policy,
        "Plan by a named policy instead of the search: keep-all (no recomputation), recompute-all, every-2, "
        "every-N, segments=1-2,4 (of layers), ratio=0.25, chen-sqrt, chen-greedy, selective, greedy, "
        "knapsack, revolve, dtr"),
    TEXT_OF(BUDGET, "instance", 0, "FILE.dag", step.instance, "Write the planning problem for ckc solve"),

    TITLED("Run:"),
    CALL(
        SEARCH | RUN | LIBRARY | OFTEN, "device", 0, "NAME|FILE", parse_device,
        "Device, one of ckc devices (cuda: an NVIDIA GPU, cuda:1 the second; cpu: this machine; others, or a "
        "text file like those in devices/, can be planned for; default: cuda where it is found with all it "
        "runs with, else cpu; of a schedule, the device it was planned for)"),
    INTEGER_OF(RUN | LIBRARY | OFTEN, "steps", 'n', steps, 0, 1e15,
               "Training steps (default 1; 0: none is run)"),
    INTEGER_OF(RUN | LIBRARY, "epochs", 0, epochs, 1, 1e9,
               "Instead of --steps: how often the data is gone through"),
    IS(RUN | LIBRARY, "shuffle", 0, shuffle,
       "Take the rows of --data in another order every epoch, which follows from --seed (default: as they "
       "come; windows of a text are always drawn at random)"),
    TEXT_OF(TRAIN | OFTEN, "val", 0, "FILE|DIR", val,
            "Data to validate on (after every epoch and at the end: the mean loss, where nothing drops and "
            "statistics are the running ones)"),
    INTEGER_OF(TRAIN, "val-every", 0, val_every, 1, 1e15, "Evaluate it every N steps instead"),
    TEXT_OF(RUN | LIBRARY | OFTEN, "checkpoint", 0, "DIR", checkpoint,
            "Folder of what a run needs to go on (weights, optimizer state, step; written --every N steps, "
            "at the end, and when a signal ends the run; the last two are kept)"),
    INTEGER_OF(RUN, "every", 0, every, 1, 1e15, "Steps between checkpoints (default: those of 10 minutes)"),
    IS(RUN | LIBRARY | OFTEN, "resume", 0, resume,
       "Go on from the newest checkpoint; with the bits of a run that was never interrupted, up to step "
       "--steps; from the start where there is none"),
    TEXT_OF(DATA | OFTEN, "data", 'd', "FILE|DIR", data,
            "Inputs and targets, npz or text (npz, npy, safetensors, TensorProto, ONNX test folder, or any "
            "text for a model of bytes; default: random inputs in valid ranges)"),
    CALL(DATA, "allow-path", 0, "DIR", parse_allow,
         "Files that the model or the schedule names may lie in this folder, too; repeatable"),
    CALL(RUN | OFTEN, "save", 's', "FILE", parse_save,
         "Write the trained weights, .onnx or .safetensors (.onnx: a copy of the model)"),
    IS(RUN | LIBRARY, "save-trained", 0, save_trained,
       "To .safetensors write only what trains, and running statistics: adapters without their base"),
    TEXT_OF(
        RUN, "metrics", 0, "FILE.jsonl", metrics,
        "Write a JSON object per step: step, loss, lr, seconds, samples_per_second; val_loss of --val; after "
        "--resume it goes on"),
    CALL(TRAIN, "grads", 0, "FILE.npz", parse_grads,
         "Write the last step's loss, outputs and every gradient under its parameter's name"),
    CALL(DATA, "threads", 'j', "N", parse_threads, "Threads (default: all cores)"),
    CALL(DATA, "seed", 0, "N", parse_seed, "Seed of initial values, dropout and random data (default 1)"),
    IS(RUN | EVAL | LIBRARY, "training", 0, training,
       "Evaluate as the model is written, and save .onnx so: dropout drops, batch statistics"),
    IS(RUN, "check", 0, check, "Fill dead memory with NaNs: shows a plan that frees too early"),
    IS(OUTPUT, "memory", 0, memory, "Print memory by layer, and what holds the peak"),
    IS(RUN | LIBRARY, "rechoose", 0, rechoose,
       "Where a schedule is pinned to algorithms or kernels that this GPU or its library does not have: take "
       "others"),
    IS(RUN, "profile", 0, profile, "Time every step of the plan; the slowest are listed"),

    TITLED("Comparison:"),
    TEXT_OF(EVAL | OFTEN, "expect", 0, "FILE|DIR", expect,
            "Expected outputs: npz by name, or output_K.pb in a folder"),
    REAL_OF(EVAL | OFTEN, "rtol", 0, rtol, 0, 1e9, "Relative tolerance (default 1e-3)"),
    REAL_OF(EVAL | OFTEN, "atol", 0, atol, 0, 1e9, "Absolute tolerance (default 1e-5; --suite 1e-7)"),
    IS(EVAL | OFTEN, "suite", 0, suite, "Check every model folder below FOLDER"),
    IS(EVAL, "reference", 0, reference, "Evaluate by interpretation in double precision"),

    TITLED("Passes:"),
    CALL(OPT | OFTEN, "passes", 'p', "NAME,...", parse_only, "Run these passes, in the pipeline's order"),
    IS(OPT | OFTEN, "list", 'l', list, "List the passes"),

    TITLED("Many plans:"),
    TEXT_OF(COMPARE | SWEEP | OOM | OFTEN, "budget", 'b', "SIZE", budget,
            "Most memory of a step, such as 40GB or 50% (of an instance: bytes or a percentage; default: to "
            "compare 50%, else the memory of a --device that is not here)"),
    CALL_NAMED(
        COMPARE | OFTEN, "policy", "NAME", remat_policies, parse_compared,
        "Compare this one; repeatable: those named are compared, in their order, the search is called ckc; "
        "every-N, segments=1-2,4 and ratio=0.25 are of layers (default: all, and ckc)"),
    INTEGER_OF(SWEEP | OFTEN, "budgets", 0, budgets, 2, 4096,
               "Budgets from everything stored down to the least that works (default 8)"),
    CALL(SWEEP | OFTEN, "batch", 0, "A..B", parse_batches,
         "Batches from A to B within --budget (powers of two, and some between; SYMBOL=A..B where several "
         "symbols are the first dimension of an input)"),
    IS(COMPARE | OFTEN, "measure", 0, measure, "Run the plans that fit, in turns, and show the median step"),

    TITLED("What to explain:"),
    TEXT_OF(EXPLAIN | OFTEN, "value", 0, "NAME", value,
            "One value: where it is made and read, and what becomes of it meanwhile"),
    TEXT_OF(EXPLAIN | OFTEN, "node", 0, "GLOB", node,
            "All results of the nodes, or modules, of such names, h.3.attn or 'h.3.*'"),

    TITLED("Search:"),
    TEXT_OF(SOLVE | OFTEN, "budget", 'b', "BYTES|%", budget,
            "Bytes, or a percentage of what the instance calls whole, else of its own order's peak"),
    REAL_OF(SOLVE | OFTEN, "time", 't', step.time_limit, 1e-3, 1e9, "Time limit in seconds (default 10)"),
    INTEGER_OF(SOLVE, "moves", 0, step.max_moves, 1, 1e18,
               "Limit of search moves; without --time the only limit"),
    CALL(SOLVE, "seed", 's', "N", parse_seed, "Random seed (default 1)"),
    CALL(SOLVE, "threads", 'j', "N", parse_threads, "Threads (default 1)"),
    CALL(SOLVE, "gap", 0, "PERCENT", parse_gap, "Stop when the cost is this close to the lower bound"),
    INTEGER_OF(SOLVE | OFTEN, "pareto", 0, pareto, 2, 4096, "Solve N budgets down to the least one"),
    IS(SOLVE, "min-budget", 0, min_budget, "Search for the least budget"),
    TEXT_OF(SOLVE | OFTEN, "policy", 0, "NAME", step.policy,
            "A named policy instead of the search, or 'all' (ckc compare has the table of them)"),
    TEXT_OF(SOLVE | OFTEN, "output", 'o', "FILE", output, "Write the schedule: ids in execution order"),

    TITLED("Placement:"),
    INTEGER_OF(PACK | OFTEN, "capacity", 'c', capacity, 1, 1e18,
               "Stop when it fits; exit status 3 when it does not"),
    REAL_OF(PACK | OFTEN, "time", 't', step.time_limit, 1e-3, 1e9, "Time limit of the search in seconds"),
    INTEGER_OF(PACK, "steps", 0, max_steps, 1, 1e18, "Step limit of the search (about 1e9 a second)"),
    INTEGER_OF(PACK, "align", 0, align, 1, 1e18,
               "Alignment in bytes of the offsets that are not fixed (default 1)"),
    CALL(PACK, "seed", 0, "N", parse_seed, "Random seed of the search (default 0)"),
    TEXT_OF(PACK | OFTEN, "output", 'o', "FILE", output, "Write the rows with an offset column"),

    TITLED("Output:"),
    TEXT_OF(OUTPUT | OFTEN, "output", 'o', "DIR", output,
            "Folder of what is written (step.ckp, kernels, report; default MODEL.ckc beside the model)"),
    TEXT_OF(
        SWEEP | OFTEN, "output", 'o', "DIR", output,
        "Write report.html with the sweep, and the plan of its best point as ckc plan does, to this folder"),
    CALL_NAMED(OUTPUT, "emit", "TARGET", emit_name, parse_emit,
               "What is written beside the schedule: c (default), its kernels; cuda: as well kernels.cu, a "
               "program for nvcc that trains, with weights.bin and, for --steps steps (10 unless given), "
               "data.bin, for 0 neither; onnx: as well step.onnx, the step as a model of standard operators; "
               "torch: as well policy.py, what is kept, for torch.utils.checkpoint"),
    CALL(OUTPUT | SWEEP, "plot", 0, "FILE", parse_plot,
         "Draw the memory over the step, or the sweep, as .svg or .png (beside everything stored and the "
         "budget; of a sweep: overhead by budget, samples/s by batch)"),
    TEXT_OF(OUTPUT, "trace", 0, "FILE.json", trace,
            "Write the step for Perfetto and chrome://tracing (kernels and copies as predicted, with "
            "--profile as measured, and the bytes by kind)"),
    IS(OUTPUT | RUN | EVAL | JSON | SOLVE | PACK, "json", 0, json, "Print the report, or the error, as JSON"),
    IS(OUTPUT | RUN | EVAL, "quiet", 'q', quiet, "Print nothing but errors"),
    TEXT_OF(OUTPUT | RUN | EVAL | COMPARE | SWEEP | EXPLAIN | OOM | LIBRARY, "cache", 0, "DIR", cache,
            "Compiled kernels and measured costs (default ~/.cache/ckc)"),

    TITLED("Looking inside:"),
    CALL(DEBUG, "dump", 0, "PASS|all", parse_dump, "Print the graph after a pass"),
    CALL(DEBUG, "disable", 0, "PASS,...", parse_disable, "Leave passes out"),
    IS(DEBUG, "time-passes", 0, time_passes, "Print seconds per pass"),

    TITLED("Pages:"),
    IS(HELP | OFTEN, "man", 0, man, "Print the man page ckc(1)"),
    NAME_OF(HELP | OFTEN, "completion", "SHELL", shell, shell_name,
            "Print the completion script of bash, zsh or fish"),
};

const size_t option_count = sizeof option_rows / sizeof *option_rows;
enum { NROWS = sizeof option_rows / sizeof *option_rows, HELP_KEY = 256, VERSION_KEY, KEY };

int row_brief(const Row *r)
{
    size_t n = strcspn(r->doc, ";:(");
    while (n && r->doc[n - 1] == ' ')
        n--;
    return (int)n;
}

/* ---- the parser ------------------------------------------------------------------------------- */

static int key_of(const Row *r) { return r->key ? r->key : KEY + (int)(r - option_rows); }

/* The row with this key among those of the groups; NULL: there is none. */
static const Row *row_of(unsigned groups, int key)
{
    for (const Row *r = option_rows; r < option_rows + NROWS; r++)
        if (r->groups & groups && key == key_of(r))
            return r;
    return NULL;
}

/* The row of this name among those of the groups; NULL: there is none. */
static const Row *row_named(unsigned groups, const char *name)
{
    for (const Row *r = option_rows; r < option_rows + NROWS; r++)
        if (r->groups & groups && strcmp(r->name, name) == 0)
            return r;
    return NULL;
}

static bool set_option(Options *o, const Row *r, const char *arg)
{
    if (!o->of_model && !row_named(SOLVE, r->name))
        o->of_model = r->name;
    void *at = (char *)o + r->off;
    int k = 0;
    switch (r->kind) {
    case FLAG: *(bool *)at = true; return true;
    case TEXT:
        if (!*arg)
            return fail(&o->diag, "--%s: its value is empty", r->name);
        *(const char **)at = arg;
        return !r->names || parse_name(o, r->name, r->names, arg, &k);
    case CHOICE:
        return parse_name(o, r->name, r->names, arg, at);
    case REAL:
        return parse_real(arg, r->low, r->high, at) ||
               fail(&o->diag, "--%s: '%s' is not a number from %g to %g", r->name, arg, r->low,
                    r->high);
    case INTEGER:
        return parse_integer(arg, (int64_t)r->low, (int64_t)r->high, at) ||
               fail(&o->diag, "--%s: '%s' is not a number from %.0f to %.0f", r->name, arg, r->low, r->high);
    default: return r->parse(o, arg);
    }
}

/* Lists long options and letters for getopt, with those that every command has. */
static void list_options(unsigned groups, struct option table[NROWS + 3], char letters[2 * NROWS + 4])
{
    char *s = stpcpy(letters, ":hV");
    int n = 0;
    for (const Row *r = option_rows; r < option_rows + NROWS; r++) {
        if (!(r->groups & groups))
            continue;
        table[n++] = (struct option){r->name, r->arg ? required_argument : no_argument, NULL, key_of(r)};
        if (r->key)
            s += sprintf(s, "%c%s", r->key, r->arg ? ":" : "");
    }
    table[n++] = (struct option){"help", no_argument, NULL, HELP_KEY};
    table[n++] = (struct option){"version", no_argument, NULL, VERSION_KEY};
    table[n] = (struct option){0};
}

/* What an option is called elsewhere. */
static const struct {
    const char *name, *here;
} elsewhere[] = {{"batch", "bind"},      {"batch-size", "bind"},      {"learning-rate", "lr"},
                 {"memory", "budget"},   {"max-memory", "budget"},    {"max-grad-norm", "clip-norm"},
                 {"wd", "weight-decay"}, {"grad-accum", "accumulate"}};

/* What to say of a word that is no option of c: which one was meant, or which command has it. */
static const char *option_hint(const Subcommand *c, const char *name, char hint[NEAREST_HINT])
{
    const char *meant = name;
    Nearest near;
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        meant = strcmp(elsewhere[i].name, name) == 0 ? elsewhere[i].here : meant;
    nearest_init(&near, meant);
    for (const Row *r = option_rows; *name && r < option_rows + NROWS; r++)
        if (r->groups & c->groups)
            nearest_try(&near, r->name);
    nearest_hint(&near, hint);
    const Subcommand *s = commands;
    while (s->name && !row_named(s->groups, name))
        s++;
    if (s->name && meant == name)
        snprintf(hint, NEAREST_HINT, "; ckc %s has it", s->name);
    return hint;
}

/* Reports a word that is no option, or the beginning of several. */
static bool unknown_option(Options *o, const Subcommand *c, const char *word)
{
    char hint[NEAREST_HINT];
    size_t n = strcspn(word, "=");
    const char *typed = arena_strndup(&o->arena, word, n), *begins[2] = {0};
    const char *name = strncmp(typed, "--", 2) == 0 ? typed + 2 : "";
    int found = 0;
    for (const Row *r = option_rows; *name && r < option_rows + NROWS; r++)
        if (r->groups & c->groups && found < 2 && strncmp(r->name, name, strlen(name)) == 0)
            begins[found++] = r->name;
    if (found == 2)
        return fail(&o->diag, "'%s' may be --%s or --%s", typed, begins[0], begins[1]);
    return fail(&o->diag, "ckc %s has no option '%s'%s", c->name, typed, option_hint(c, name, hint));
}

/* Reports an option that getopt refuses; key is optopt. */
static bool bad_option(Options *o, const Subcommand *c, int got, int key, const char *word)
{
    const Row *r = row_of(c->groups, key);
    const char *name = r ? arena_printf(&o->arena, "--%s", r->name) : "--help";
    if (got == ':')
        return fail(&o->diag, "%s: its value is missing (%s %s)", name, name, r ? r->arg : "");
    if (r || key == HELP_KEY || key == VERSION_KEY)
        return fail(&o->diag, "'%s': %s takes no value", word, key == VERSION_KEY ? "--version" : name);
    return unknown_option(o, c, key ? arena_printf(&o->arena, "-%c", key) : word);
}

/* Takes an option; ends the program if it asks for a page. */
static bool take_option(Options *o, const Subcommand *c, int key)
{
    if (key == 'h')
        help_short(stdout, c);
    else if (key == HELP_KEY)
        help_long(stdout, c);
    else if (key == VERSION_KEY || key == 'V')
        puts("ckc " CKC_VERSION " (CPU: oneDNN, OpenMP; CUDA: driver API, NVRTC)");
    else
        return set_option(o, row_of(c->groups, key), optarg);
    exit(EXIT_OK);
}

void options_init(Options *o, const Subcommand *c)
{
    *o = (Options){.command = c,
                   .ops = devices_here[0],
                   .steps = -1,
                   .schedule = -1,
                   .warmup = -1,
                   .min_lr = NAN,
                   .rtol = NAN,
                   .atol = NAN};
    o->step = (StepOptions){.number = optim_unsaid, .seed = 1};
}

bool options_parse(Options *o, const Subcommand *c, int argc, char **argv)
{
    struct option table[NROWS + 3];
    char letters[2 * NROWS + 4];
    options_init(o, c);
    list_options(c->groups, table, letters);
    optind = 0; /* getopt starts over */
    opterr = 0;
    for (int key; (key = getopt_long(argc, argv, letters, table, NULL)) >= 0;)
        if (key == ':' || key == '?')
            return bad_option(o, c, key, optopt, argv[optind - 1]);
        else if (!take_option(o, c, key))
            return false;
    o->path = argv[optind];
    return optind + 1 >= argc ||
           fail(&o->diag, "one file at a time: '%s' and '%s'", o->path, argv[optind + 1]);
}

bool options_set(Options *o, const char *option)
{
    char hint[NEAREST_HINT];
    size_t n = strcspn(option, "=");
    const char *name = arena_strndup(&o->arena, option, n);
    const Row *r = row_named(o->command->groups, name);
    if (!r)
        return fail(&o->diag, "%s has no option '%s'%s", o->command->name, name,
                    option_hint(o->command, name, hint));
    if (!option[n] != !r->arg)
        return bad_option(o, o->command, r->arg ? ':' : '?', key_of(r), option);
    return set_option(o, r, option[n] ? option + n + 1 : NULL);
}

void options_free(Options *o) { arena_free(&o->arena); }
