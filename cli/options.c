/* options.c -- the command line: one table of options, which each command takes a part of.
 *
 * Values are checked here, so that a bad one is a single line and nothing has been started.
 * argp gives --help, --usage and --version; its own complaints (unknown option, missing value) are
 * one line, too, because the "Try --help" line goes to no stream. */
#include "cli.h"
#include "passes/remat/remat.h"
#include <argp.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *argp_program_version = "ckc " CKC_VERSION " (CPU: oneDNN, OpenMP; CUDA: driver API, NVRTC)";

typedef enum { HEADER, FLAG, TEXT, REAL, INTEGER, OTHER } Kind;

typedef struct {
    unsigned groups;
    const char *name;
    int key; /* short option; 0: none */
    const char *arg, *doc;
    Kind kind;
    size_t off;
    double low, high;
    bool (*parse)(Options *o, const char *arg);
} Row;

/* ---- values ---------------------------------------------------------------------------- */

static bool parse_real(const char *text, double low, double high, double *v)
{
    char *end;
    *v = strtod(text, &end);
    return end != text && *end == 0 && *v >= low && *v <= high;
}

static bool parse_integer(const char *text, int64_t low, int64_t high, int64_t *v)
{
    char *end;
    errno = 0;
    *v = strtoll(text, &end, 10);
    return end != text && *end == 0 && errno == 0 && *v >= low && *v <= high;
}

/* k, M, G or T, in any case, with an i for powers of 1024, with or without B; bytes without one are
 * as many as no one writes by mistake. */
bool parse_bytes(const char *text, int64_t *bytes)
{
    static const char prefix[] = "kmgt";
    char *end;
    double v = strtod(text, &end);
    if (end == text || !(v > 0))
        return false;
    end += strspn(end, " ");
    const char *p = *end ? strchr(prefix, tolower((unsigned char)*end)) : NULL;
    bool binary = p && tolower((unsigned char)end[1]) == 'i', bare = !*end;
    end += (p != NULL) + binary;
    end += tolower((unsigned char)*end) == 'b';
    if (*end || (bare && v < 0x1p16))
        return false;
    v = floor(v * (p ? pow(binary ? 1024 : 1000, (double)(p - prefix + 1)) : 1));
    *bytes = v < 0x1p60 ? (int64_t)v : 0;
    return *bytes > 0;
}

/* Position in a list of names that ends with NULL; false: the message lists them. */
static bool parse_name(Options *o, const char *option, const char *const *names,
                       const char *text, int *k)
{
    char all[200] = "", hint[NEAREST_HINT];
    Nearest near;
    nearest_init(&near, text);
    for (int i = 0; names[i]; i++) {
        nearest_try(&near, names[i]);
        if (strcmp(names[i], text) == 0) {
            nearest_hint(&near, hint);
            *k = i;
            return true;
        }
        size_t n = strlen(all);
        snprintf(all + n, sizeof all - n, "%s%s", n ? ", " : "", names[i]);
    }
    return fail(&o->diag, "--%s: '%s' is none of %s%s", option, text, all, nearest_hint(&near, hint));
}

static bool parse_percent(const char *text, double low, double high, double *fraction)
{
    char *end;
    double percent = strtod(text, &end);
    *fraction = percent / 100;
    return end != text && strcmp(end, "%") == 0 && percent >= low && percent <= high;
}

/* Of ckc solve: in percent, with or without the sign. */
static bool parse_gap(Options *o, const char *text)
{
    bool ok = parse_percent(text, 0, 1e6, &o->step.gap) || parse_real(text, 0, 1e6, &o->step.gap);
    if (ok && !strchr(text, '%'))
        o->step.gap /= 100;
    return ok || fail(&o->diag, "--gap: '%s' is no percentage", text);
}

static bool parse_budget(Options *o, const char *text)
{
    if (parse_percent(text, 1e-9, 100, &o->step.budget_fraction)) {
        o->step.budget = 0;
        return true;
    }
    o->step.budget_fraction = 0;
    if (parse_bytes(text, &o->step.budget))
        return true;
    if (*text && !text[strspn(text, "0123456789.")] && strtod(text, NULL) > 0)
        return fail(&o->diag, "--budget: '%s' has no unit: %sGB, %sMB, %sB, or %s%%?", text, text, text, text,
                    text);
    return fail(&o->diag, "--budget: '%s' is no size such as 40GB, 512MiB, 1000000 or 50%%", text);
}

static bool parse_choices(Options *o, const char *text)
{
    static const char *const names[] = {"fixed", "budget", NULL};
    int k = 0;
    TRY(parse_name(o, "choices", names, text, &k));
    o->step.any_bits = k == 1;
    return true;
}

static bool parse_overhead(Options *o, const char *text)
{
    o->step.least_bytes = true;
    return parse_percent(text, 0, 1000, &o->step.overhead) ||
           fail(&o->diag, "--overhead: '%s' is no percentage from 0%% to 1000%%", text);
}

static bool parse_bind(Options *o, const char *text)
{
    const char *s = text;
    while (*s) {
        size_t n = strcspn(s, ",");
        char *item = arena_strndup(&o->arena, s, n), *eq = strrchr(item, '=');
        int64_t v = 0;
        if (!eq || eq == item || !parse_integer(eq + 1, 1, INT32_MAX, &v))
            return fail(&o->diag, "--bind: '%s' is not SYMBOL=SIZE, a size from 1 on", item);
        *eq = 0;
        OnnxOptions *im = &o->step.import;
        OnnxBind *b = NEW(&o->arena, OnnxBind, im->nbind + 1);
        for (int i = 0; i < im->nbind; i++)
            b[i] = im->bind[i];
        b[im->nbind++] = (OnnxBind){item, v};
        im->bind = b;
        s += n + (s[n] == ',');
    }
    return true;
}

static bool parse_tie(Options *o, const char *text)
{
    for (const char *s = text; *s;) {
        size_t n = strcspn(s, ",");
        char *kept = arena_strndup(&o->arena, s, n), *eq = strchr(kept, '=');
        if (!eq || eq == kept || !eq[1])
            return fail(&o->diag, "--tie: '%s' is not KEPT=COPY", kept);
        *eq = 0;
        OnnxOptions *im = &o->step.import;
        OnnxTie *t = NEW(&o->arena, OnnxTie, im->nties + 1);
        for (int i = 0; i < im->nties; i++)
            t[i] = im->tie[i];
        t[im->nties++] = (OnnxTie){kept, eq + 1};
        im->tie = t;
        s += n + (s[n] == ',');
    }
    return true;
}

static void add_globs(Options *o, const char *text, const char *const **list, int *n)
{
    for (const char *s = text; *s;) {
        size_t len = strcspn(s, ",");
        const char **longer = NEW(&o->arena, const char *, *n + 1);
        for (int i = 0; i < *n; i++)
            longer[i] = (*list)[i];
        longer[(*n)++] = arena_strndup(&o->arena, s, len);
        *list = longer;
        s += len + (s[len] == ',');
    }
}

static bool parse_train(Options *o, const char *text)
{
    add_globs(o, text, &o->step.train, &o->step.ntrain);
    o->step.import.train = o->step.train;
    o->step.import.ntrain = o->step.ntrain;
    return true;
}

static bool parse_freeze(Options *o, const char *text)
{
    add_globs(o, text, &o->step.freeze, &o->step.nfreeze);
    return true;
}

static bool parse_allow(Options *o, const char *text)
{
    const char **longer = NEW(&o->arena, const char *, o->nallow + 1);
    for (int i = 0; i < o->nallow; i++)
        longer[i] = o->allow[i];
    longer[o->nallow++] = text;
    o->allow = longer;
    return true;
}

static bool parse_init(Options *o, const char *text)
{
    o->init_text = text;
    o->step.import.init = true;
    return init_parse(text, &o->init, &o->diag);
}

static bool parse_loss(Options *o, const char *text)
{
    int k = 0;
    TRY(parse_name(o, "loss", loss_name, text, &k));
    o->step.loss = (LossKind)k;
    return true;
}

static bool parse_precision(Options *o, const char *text)
{
    int k = 0;
    TRY(parse_name(o, "precision", precision_name, text, &k));
    o->step.precision = (PrecisionKind)k;
    return true;
}

static bool parse_optimizer(Options *o, const char *text)
{
    int k = 0;
    TRY(parse_name(o, "optimizer", optim_name, text, &k));
    o->step.optim = (OptimKind)k;
    return true;
}

static bool parse_device(Options *o, const char *text)
{
    o->ops = device_here(text, &o->ordinal);
    o->step.device = &o->device;
    if (!o->ops)
        return device_find(&o->device, text, &o->arena, &o->diag);
    return o->ops->info(o->ordinal, &o->device, &o->arena, &o->diag);
}

static bool parse_offload(Options *o, const char *text)
{
    int k = 0;
    TRY(parse_name(o, "offload", offload_name, text, &k));
    o->step.offload = (OffloadKind)k;
    return true;
}

static bool parse_host_memory(Options *o, const char *text)
{
    return parse_bytes(text, &o->step.host_bytes) ||
           fail(&o->diag, "--host-memory: '%s' is no size such as 64GB or 32GiB; --offload no uses none",
                text);
}

static bool parse_policy(Options *o, const char *text)
{
    int k = 0;
    o->step.policy = text;
    return parse_name(o, "policy", remat_policies, text, &k);
}

static bool parse_emit(Options *o, const char *text)
{
    static const char *const names[] = {"c", "cuda", NULL};
    int k = 0;
    TRY(parse_name(o, "emit", names, text, &k));
    o->cuda = k == 1;
    return true;
}

static bool parse_save(Options *o, const char *text)
{
    if (!has_suffix(text, ".onnx") && !has_suffix(text, ".safetensors"))
        return fail(&o->diag, "--save: '%s' ends in neither .onnx nor .safetensors", text);
    if (o->nsave == (int)(sizeof o->save / sizeof o->save[0]))
        return fail(&o->diag, "--save: given too often");
    o->save[o->nsave++] = text;
    return true;
}

static bool parse_accumulate(Options *o, const char *text)
{
    size_t n = strlen("auto");
    o->accumulate_auto = strncmp(text, "auto", n) == 0 && (!text[n] || (text[n] == ':' && text[n + 1]));
    o->batch = o->accumulate_auto && text[n] ? text + n + 1 : NULL;
    o->step.accumulate = 0;
    return o->accumulate_auto || parse_integer(text, 1, PLAN_ACCUMULATE, &o->step.accumulate) ||
           fail(&o->diag, "--accumulate: '%s' is neither a number from 1 to %d nor auto or auto:SYMBOL", text,
                PLAN_ACCUMULATE);
}

static bool parse_grads(Options *o, const char *text)
{
    o->grads = text;
    o->step.keep_grads = true;
    return true;
}

static bool parse_threads(Options *o, const char *text)
{
    int64_t n = 0;
    if (!parse_integer(text, 1, PLAN_THREADS, &n))
        return fail(&o->diag, "--threads: '%s' is not a number from 1 to %d", text, PLAN_THREADS);
    o->step.threads = (int)n;
    return true;
}

static bool parse_seed(Options *o, const char *text)
{
    int64_t n = 0;
    if (!parse_integer(text, 0, INT64_MAX, &n))
        return fail(&o->diag, "--seed: '%s' is not a number from 0 on", text);
    o->step.seed = (uint64_t)n;
    o->seed_given = true;
    return true;
}

static bool no_pass(Options *o, const char *name)
{
    char hint[NEAREST_HINT];
    Nearest near;
    nearest_init(&near, name);
    for (const Pass *p = pipeline; p->name; p++)
        nearest_try(&near, p->name);
    return fail(&o->diag, "there is no pass '%s' (see ckc opt --list)%s", name,
                nearest_hint(&near, hint));
}

static bool parse_passes(Options *o, const char *text)
{
    for (const char *s = text; *s;) {
        size_t n = strcspn(s, ",");
        const char *name = arena_strndup(&o->arena, s, n);
        if (strcmp(name, "all") != 0 && !pass_find(name))
            return no_pass(o, name);
        s += n + (s[n] == ',');
    }
    return true;
}

static bool parse_only(Options *o, const char *text)
{
    o->passes = text;
    return parse_passes(o, text);
}

static bool parse_disable(Options *o, const char *text)
{
    o->disable = text;
    return parse_passes(o, text);
}

static bool parse_dump(Options *o, const char *text)
{
    o->dump = text;
    return parse_passes(o, text);
}

/* ---- the table ----------------------------------------------------------------------------- */

#define AT(member) offsetof(Options, member)
#define TITLE(groups, text) {groups, NULL, 0, NULL, text, HEADER, 0, 0, 0, NULL}
#define IS(groups, name, key, member, doc) {groups, name, key, NULL, doc, FLAG, AT(member), 0, 0, NULL}
#define TEXT_OF(groups, name, key, arg, member, doc)                                         \
    {groups, name, key, arg, doc, TEXT, AT(member), 0, 0, NULL}
#define REAL_OF(groups, name, key, member, low, high, doc)                                   \
    {groups, name, key, "X", doc, REAL, AT(member), low, high, NULL}
#define INTEGER_OF(groups, name, key, member, low, high, doc)                                \
    {groups, name, key, "N", doc, INTEGER, AT(member), low, high, NULL}
#define CALL(groups, name, key, arg, fn, doc) {groups, name, key, arg, doc, OTHER, 0, 0, 0, fn}

enum {
    MODEL = OPTIONS_MODEL, STEP = OPTIONS_STEP, BUDGET = OPTIONS_BUDGET, RUN = OPTIONS_RUN,
    OUTPUT = OPTIONS_OUTPUT, DEBUG = OPTIONS_DEBUG, EVAL = OPTIONS_EVAL, OPT = OPTIONS_OPT,
    JSON = OPTIONS_JSON, SOLVE = OPTIONS_SOLVE, PACK = OPTIONS_PACK,
};

static const Row rows[] = {
    TITLE(MODEL, "Model:"),
    CALL(MODEL, "bind", 0, "SYMBOL=SIZE,...", parse_bind,
         "Sizes of symbolic dimensions; INPUT.K names a dimension that has no symbol"),
    CALL(MODEL | RUN, "init", 0, "RULE", parse_init,
         "Initial values of parameters exported without: normal[:DEVIATION], xavier, kaiming"),
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

    TITLE(STEP, "Training step:"),
    CALL(STEP, "loss", 0, "KIND", parse_loss,
         "ce, mse, bce, l1, none; auto (default): the model's scalar output, else ce"),
    TEXT_OF(STEP, "loss-output", 0, "NAME", step.loss_output, "The output the loss is, or is on"),
    CALL(STEP, "optimizer", 0, "KIND", parse_optimizer,
         "adamw (default), adam, sgd, momentum, none; in PyTorch's form"),
    CALL(STEP, "precision", 0, "TYPE", parse_precision,
         "Of products: f32 (default: as the model has it), tf32, bf16, fp16; weights stay as they are"),
    REAL_OF(STEP, "loss-scale", 0, step.loss_scale, 1e-30, 1e30,
            "That --precision fp16 starts with (default 65536); halved when gradients overflow"),
    REAL_OF(STEP | RUN, "lr", 0, step.lr, 0, 1e9, "Learning rate (default 0.001; sgd and momentum 0.01)"),
    REAL_OF(STEP, "momentum", 0, step.momentum, 0, 1e9, "Of momentum (default 0.9)"),
    REAL_OF(STEP, "beta1", 0, step.beta1, 0, 1, "Of adam and adamw (default 0.9)"),
    REAL_OF(STEP, "beta2", 0, step.beta2, 0, 1, "Of adam and adamw (default 0.999)"),
    REAL_OF(STEP, "eps", 0, step.eps, 0, 1e9, "Of adam and adamw (default 1e-8)"),
    REAL_OF(STEP, "weight-decay", 0, step.weight_decay, 0, 1e9, "Default 0.01 for adamw, else 0"),
    IS(STEP, "nesterov", 0, step.nesterov, "Nesterov's form of momentum"),
    CALL(STEP, "accumulate", 0, "N|auto[:SYMBOL]", parse_accumulate,
         "Micro-batches of a step, each a batch of the data; gradients are averaged.  auto: the batch of "
         "--bind is cut into as many as make the step fastest within --budget; SYMBOL is the batch"),
    REAL_OF(STEP, "clip-norm", 0, step.clip_norm, 1e-30, 1e30,
            "Largest global norm of the gradients, as PyTorch's clip_grad_norm_"),

    TITLE(BUDGET, "Plan:"),
    CALL(BUDGET, "budget", 'b', "SIZE", parse_budget,
         "Bytes of everything a step holds (40GB = 40e9, 40GiB = 40*2^30), or a percentage of "
         "what it takes with everything stored; default: no limit"),
    CALL(BUDGET, "offload", 0, "WHICH", parse_offload,
         "auto: values go to the host's memory and return where that is faster than to compute them again, "
         "on devices that have a link to it (default); no; or only: nothing is recomputed"),
    CALL(BUDGET, "host-memory", 0, "SIZE", parse_host_memory,
         "Bytes of the host's memory for them, at most; default: as many as it takes"),
    CALL(BUDGET, "choices", 0, "WHICH", parse_choices,
         "fixed: the same algorithms, and bits, at every budget (default); budget: others too"),
    CALL(BUDGET, "overhead", 0, "PERCENT", parse_overhead,
         "Instead of --budget: the least bytes for a step that is predicted to take at most this much "
         "longer than without recomputation, such as 2%"),
    REAL_OF(BUDGET, "time", 0, step.time_limit, 0.001, 1e9,
            "Seconds to search for a better plan, instead of moves"),
    INTEGER_OF(BUDGET, "moves", 0, step.max_moves, 1, 1e18,
               "Moves of the search (default 1000000): the same plan on every machine"),
    REAL_OF(BUDGET, "gap", 0, step.gap, 0, 1e6, "Stop this close to the lower bound (0.01: 1 %)"),
    CALL(BUDGET, "policy", 0, "NAME", parse_policy,
         "Plan by a named policy instead of the search: keep-all (no recomputation), recompute-all, every-2, "
         "every-4, "
         "chen-sqrt, chen-greedy, selective, revolve, dtr, knapsack"),
    TEXT_OF(BUDGET, "instance", 0, "FILE.dag", step.instance, "Write the planning problem for ckc solve"),

    TITLE(RUN | EVAL, "Run:"),
    CALL(BUDGET | RUN, "device", 0, "NAME|FILE", parse_device,
         "cuda: an NVIDIA GPU, cuda:1 the second; or, with --steps 0, plan for a device that is not there: "
         "one of ckc devices, or a text file like those in devices/; default: cuda where it is found with "
         "all it runs with, else cpu, this machine; of a schedule, the device it was planned for"),
    INTEGER_OF(RUN, "steps", 'n', steps, 0, 1e15, "Training steps (default 1; 0: plan only)"),
    TEXT_OF(RUN | EVAL, "data", 'd', "FILE|DIR", data,
            "npz, npy, TensorProto, ONNX test folder, or any text for a model of bytes; default: "
            "random inputs in valid ranges"),
    CALL(RUN | EVAL, "allow-path", 0, "DIR", parse_allow,
         "Files that the model or the schedule names may lie in this folder, too; repeatable"),
    CALL(RUN, "save", 's', "FILE", parse_save,
         "Write the trained weights: .onnx (a copy of the model) or .safetensors"),
    CALL(STEP, "grads", 0, "FILE.npz", parse_grads,
         "Write the last step's loss, outputs and every gradient under its parameter's name"),
    CALL(RUN | EVAL, "threads", 'j', "N", parse_threads, "Threads (default: all cores)"),
    CALL(RUN | EVAL, "seed", 0, "N", parse_seed, "Of initial values, dropout and random data (default 1)"),
    IS(RUN | EVAL, "training", 0, training,
       "Evaluate as the model is written, and save .onnx so: dropout drops, batch statistics"),
    IS(RUN, "check", 0, check, "Fill dead memory with NaNs: shows a plan that frees too early"),
    IS(OUTPUT, "memory", 0, memory, "Print memory by layer, and what holds the peak"),
    IS(RUN, "rechoose", 0, rechoose,
       "Where a schedule is pinned to algorithms of a library that is here in another version: take others"),
    IS(RUN, "profile", 0, profile, "Time every step of the plan; the slowest are listed"),

    TITLE(EVAL, "Comparison:"),
    TEXT_OF(EVAL, "expect", 0, "FILE|DIR", expect,
            "Expected outputs: npz by name, or output_K.pb in a folder"),
    REAL_OF(EVAL, "rtol", 0, rtol, 0, 1e9, "Relative tolerance (default 1e-3)"),
    REAL_OF(EVAL, "atol", 0, atol, 0, 1e9, "Absolute tolerance (default 1e-5; --suite 1e-7)"),
    IS(EVAL, "suite", 0, suite, "The path is a folder: check every model folder below it"),
    IS(EVAL, "reference", 0, reference, "Evaluate by interpretation in double precision"),

    TITLE(OPT, "Passes:"),
    CALL(OPT, "passes", 'p', "NAME,...", parse_only, "Run these passes, in the pipeline's order"),
    IS(OPT, "list", 'l', list, "List the passes"),

    TEXT_OF(SOLVE, "budget", 'b', "BYTES|%", budget, "Bytes, or a percentage of the input order's peak"),
    REAL_OF(SOLVE, "time", 't', step.time_limit, 1e-3, 1e9, "Time limit in seconds (default 10)"),
    INTEGER_OF(SOLVE, "moves", 0, step.max_moves, 1, 1e18,
               "Limit of search moves; without --time the only limit"),
    CALL(SOLVE, "seed", 's', "N", parse_seed, "Random seed (default 1)"),
    CALL(SOLVE, "threads", 'j', "N", parse_threads, "Threads (default 1)"),
    CALL(SOLVE, "gap", 0, "PERCENT", parse_gap, "Stop when the cost is this close to the lower bound"),
    INTEGER_OF(SOLVE, "pareto", 0, pareto, 2, 4096, "Solve N budgets down to the least one"),
    IS(SOLVE, "min-budget", 0, min_budget, "Search for the least budget"),
    TEXT_OF(SOLVE, "policy", 0, "NAME", step.policy, "A named policy instead of the search, or 'all'"),
    TEXT_OF(SOLVE, "output", 'o', "FILE", output, "Write the schedule: ids in execution order"),

    INTEGER_OF(PACK, "capacity", 'c', capacity, 1, 1e18, "Stop when it fits; exit status 3 when it does not"),
    REAL_OF(PACK, "time", 't', step.time_limit, 1e-3, 1e9, "Time limit of the search in seconds"),
    INTEGER_OF(PACK, "steps", 0, max_steps, 1, 1e18, "Step limit of the search (about 1e9 a second)"),
    INTEGER_OF(PACK, "align", 0, align, 1, 1e18, "Alignment of every offset in bytes (default 1)"),
    CALL(PACK, "seed", 0, "N", parse_seed, "Random seed of the search (default 0)"),
    TEXT_OF(PACK, "output", 'o', "FILE", output, "Write the rows with an offset column"),

    TITLE(OUTPUT | RUN | EVAL | JSON, "Output:"),
    TEXT_OF(OUTPUT, "output", 'o', "DIR", output,
            "Folder of step.ckp, kernels and report (default MODEL.ckc beside the model)"),
    CALL(OUTPUT, "emit", 0, "TARGET", parse_emit,
         "c (default), or cuda: as well kernels.cu, a program for nvcc that trains, with "
         "weights.bin and the data.bin of --steps (10; 0: neither)"),
    IS(OUTPUT | RUN | EVAL | JSON | SOLVE | PACK, "json", 0, json, "Print the report as JSON"),
    IS(OUTPUT | RUN | EVAL, "quiet", 'q', quiet, "Print nothing but errors"),
    TEXT_OF(OUTPUT | RUN | EVAL, "cache", 0, "DIR", cache,
            "Compiled kernels and measured costs (default ~/.cache/ckc)"),

    TITLE(DEBUG, "Looking inside:"),
    CALL(DEBUG, "dump", 0, "PASS|all", parse_dump, "Print the graph after a pass"),
    CALL(DEBUG, "disable", 0, "PASS,...", parse_disable, "Leave passes out"),
    IS(DEBUG, "time-passes", 0, time_passes, "Print seconds per pass"),
};
enum { NROWS = sizeof rows / sizeof rows[0], KEY = 256 };

static int key_of(const Row *r) { return r->key ? r->key : KEY + (int)(r - rows); }

static bool set_option(Options *o, const Row *r, const char *arg)
{
    void *at = (char *)o + r->off;
    switch (r->kind) {
    case FLAG: *(bool *)at = true; return true;
    case TEXT: *(const char **)at = arg; return true;
    case REAL:
        return parse_real(arg, r->low, r->high, at) ||
               fail(&o->diag, "--%s: '%s' is not a number from %g to %g", r->name, arg, r->low,
                    r->high);
    case INTEGER:
        return parse_integer(arg, (int64_t)r->low, (int64_t)r->high, at) ||
               fail(&o->diag, "--%s: '%s' is not a number from %g to %g", r->name, arg, r->low,
                    r->high);
    default: return r->parse(o, arg);
    }
}

typedef struct {
    Options *o;
    unsigned groups;
} Input;

static error_t parse_key(int key, char *arg, struct argp_state *state)
{
    const Input *in = state->input;
    Options *o = in->o;
    if (key == ARGP_KEY_INIT) {
        state->err_stream = NULL; /* no second line */
        return 0;
    }
    if (key == ARGP_KEY_ARG && !o->path) {
        o->path = arg;
        return 0;
    }
    if (key == ARGP_KEY_ARG) {
        diag_set(&o->diag, "one file at a time: '%s' and '%s'", o->path, arg);
        return EINVAL;
    }
    for (const Row *r = rows; r < rows + NROWS; r++)
        if (r->groups & in->groups && r->kind != HEADER && key == key_of(r))
            return set_option(o, r, arg) ? 0 : EINVAL;
    return ARGP_ERR_UNKNOWN;
}

bool options_parse(Options *o, unsigned groups, const char *args_doc, const char *doc, int argc,
                   char **argv)
{
    struct argp_option table[NROWS + 1] = {{0}};
    int n = 0, group = 0;
    *o = (Options){.ops = devices_here[0], .steps = -1, .rtol = NAN, .atol = NAN};
    o->step = (StepOptions){.lr = NAN, .momentum = NAN, .beta1 = NAN, .beta2 = NAN, .eps = NAN,
                            .weight_decay = NAN, .seed = 1};
    for (const Row *r = rows; r < rows + NROWS; r++) {
        if (!(r->groups & groups))
            continue;
        group += r->kind == HEADER;
        table[n++] = (struct argp_option){r->name, r->kind == HEADER ? 0 : key_of(r), r->arg, 0,
                                          r->doc, group};
    }
    struct argp argp = {table, parse_key, args_doc, doc, NULL, NULL, NULL};
    if (argp_parse(&argp, argc, argv, 0, NULL, &(Input){o, groups}) == 0)
        return true;
    o->diag.failed = true; /* without text: getopt has printed its line */
    return false;
}

void options_free(Options *o) { arena_free(&o->arena); }
