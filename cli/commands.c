/* commands.c -- the table of commands that main runs; the help pages, the man page and the shells' completion
 * are made from it as well. */
#include "cli.h"
#include <string.h>

enum {
    PLANNING = OPTIONS_MODEL | OPTIONS_STEP | OPTIONS_BUDGET | OPTIONS_SEARCH | OPTIONS_DATA |
               OPTIONS_OUTPUT | OPTIONS_DEBUG,
};

const Subcommand commands[] = {
    {"plan", "MODEL.onnx", "Decide what to keep, recompute and move; run nothing", PLANNING, cmd_plan,
     "Plans a training step within a budget as ckc train does, writes the schedule and the kernels to "
     "MODEL.ckc/ and "
     "tells what the step will take.  Weights need not have values, and --device may be one that is not "
     "here.",
     "  ckc plan model.onnx --bind batch=8 --budget 50%\n"
     "  ckc plan model.onnx --bind batch=8 --budget 60% --policy chen-sqrt\n"
     "  ckc plan model.onnx --bind batch=64 --device h200 --budget 40GB\n"},
    {"train", "MODEL.onnx", "Plan, generate and run training steps", PLANNING | OPTIONS_RUN | OPTIONS_TRAIN,
     cmd_train,
     "Plans a training step within a budget, generates its kernels, runs it and writes what was trained.  "
     "The result "
     "is the same bit for bit at every budget; only time changes.",
     "  ckc model.onnx --bind batch=8,seq=128 --budget 40GB\n"
     "  ckc model.onnx --budget 50% --steps 1000 --data train.npz --save out.onnx\n"
     "  ckc model.onnx --data a.npz --val b.npz --epochs 9 --checkpoint run --resume\n"},
    {"run", "SCHEDULE.ckp", "Execute a saved schedule: the same bits", OPTIONS_DATA | OPTIONS_RUN, cmd_run,
     "Executes a schedule that plan or train wrote; what is not given is as in the run that wrote it.",
     "  ckc run model.ckc/step.ckp --steps 1000 --save out.safetensors\n"},
    {"eval", "MODEL.onnx|FOLDER", "Run a model forward and compare its outputs",
     OPTIONS_DATA | OPTIONS_EVAL | OPTIONS_MODEL | OPTIONS_DEBUG, cmd_eval,
     "Runs the forward graph in its inference form and compares its outputs with expected ones.",
     "  ckc eval model.onnx --data in.npz --expect out.npz\n"
     "  ckc eval --suite FOLDER\n"},
    {"compare", "MODEL.onnx|INSTANCE.dag", "Plan by every named policy, and compare",
     OPTIONS_MODEL | OPTIONS_STEP | OPTIONS_SEARCH | OPTIONS_DATA | OPTIONS_COMPARE | OPTIONS_JSON,
     cmd_compare,
     "Plans the same step by every named policy and by the search, within one budget, and prints a table: "
     "bytes of "
     "activations and of everything at the largest step, kernels that run again, predicted and, with "
     "--measure, "
     "measured time, and how far it is above what no schedule can beat.",
     "  ckc compare model.onnx --bind batch=8 --budget 50%\n"
     "  ckc compare model.onnx --bind batch=8 --policy every-2 --policy ckc --measure\n"
     "  ckc compare instance.dag --budget 60%\n"},
    {"sweep", "MODEL.onnx", "Plan for many budgets, or many batches",
     OPTIONS_MODEL | OPTIONS_STEP | OPTIONS_SEARCH | OPTIONS_DATA | OPTIONS_SWEEP | OPTIONS_JSON, cmd_sweep,
     "Shows what less memory costs: plans for budgets from everything stored down to the least that works.  "
     "With --batch "
     "it shows what a larger batch brings within one budget, in one batch that recomputes, in micro-batches "
     "and with the "
     "host's memory, and says whether recomputing for it pays.",
     "  ckc sweep model.onnx --bind batch=8,seq=128 --budgets 12 -o sweep\n"
     "  ckc sweep model.onnx --bind seq=128 --batch 1..256 --budget 40GB\n"
     "  ckc sweep model.onnx --bind seq=1024 --batch 1..512 --device h200 --json\n"},
    {"explain", "MODEL.onnx", "Tell what a plan does with every value, and why",
     OPTIONS_MODEL | OPTIONS_STEP | OPTIONS_BUDGET | OPTIONS_SEARCH | OPTIONS_DATA | OPTIONS_EXPLAIN |
         OPTIONS_JSON,
     cmd_explain,
     "Plans a step as ckc plan does, and tells what holds the peak, by module; what is kept, computed again "
     "and moved, with the bytes that frees and the time it takes; and what more memory would be worth.",
     "  ckc explain model.onnx --bind batch=8 --budget 50%\n"
     "  ckc explain model.onnx --bind batch=8 --budget 50% --node 'h.3.*'\n"
     "  ckc explain model.onnx --bind batch=8 --budget 50% --value attn_probs\n"},
    {"oom", "MODEL.onnx", "Tell what makes a step fit that runs out of memory",
     OPTIONS_MODEL | OPTIONS_STEP | OPTIONS_SEARCH | OPTIONS_DATA | OPTIONS_OOM | OPTIONS_JSON, cmd_oom,
     "Shows what a step takes without recomputation, and plans what makes it fit: recomputation, the host's "
     "memory, micro-batches, 16-bit products, other optimizers, a smaller batch; each with its peak and "
     "time, "
     "those first that change nothing of the training.",
     "  ckc oom model.onnx --bind batch=64,seq=1024 --device h200\n"
     "  ckc oom model.onnx --bind batch=64 --budget 8GB\n"},
    {"solve", "INSTANCE.dag", "Solve a rematerialization instance", OPTIONS_SOLVE, cmd_solve,
     "Finds the cheapest schedule of a graph of operators within a memory budget: the solver alone, on "
     "instances as "
     "--instance writes them.",
     "  ckc solve instance.dag --budget 60% --time 10\n"
     "  ckc solve instance.dag --budget 60% --policy all\n"
     "  ckc solve instance.dag --pareto 8\n"},
    {"pack", "FILE.csv", "Place buffers in one arena", OPTIONS_PACK, cmd_pack,
     "Places buffers with known lifetimes in one arena, as small as can be: the allocator alone.",
     "  ckc pack buffers.csv --capacity 1048576 --output placed.csv\n"},
    {"opt", "GRAPH.ckg|SCHEDULE.ckp", "Run passes on a graph's text form",
     OPTIONS_OPT | OPTIONS_STEP | OPTIONS_BUDGET | OPTIONS_SEARCH | OPTIONS_DEBUG, cmd_opt,
     "Runs passes on a graph in text form and prints it; checks and prints a schedule.  - reads standard "
     "input.",
     "  ckc opt --passes=simplify,fuse graph.ckg\n"},
    {"devices", "[FILE]", "List this machine and known devices", OPTIONS_JSON, cmd_devices,
     "Lists this machine and the devices that plans can be made for (ckc plan MODEL --device NAME), with "
     "FILE one more.",
     "  ckc devices\n"},
    {"help", "[COMMAND]", "Show the page of a command", OPTIONS_HELP, cmd_help,
     "Shows all options of a command; ckc -h is the short page.",
     "  ckc help train\n"
     "  ckc help --man >ckc.1\n"
     "  ckc help --completion bash >ckc.bash\n"},
    {0},
};

const Subcommand *command_find(const char *name)
{
    for (const Subcommand *c = commands; c->name; c++)
        if (strcmp(c->name, name) == 0)
            return c;
    return NULL;
}

/* Does the command take files of this suffix, such as ".onnx" of MODEL.onnx|FOLDER? */
static bool takes(const Subcommand *c, const char *suffix)
{
    const char *at = strstr(c->args, suffix), *end = at ? at + strlen(suffix) : NULL;
    return end && (*end == '|' || !*end);
}

/* Fails if the file is of a kind that another command takes and this one does not. */
static bool check_kind(Options *o)
{
    const char *suffix = o->path ? strrchr(o->path, '.') : NULL;
    if (!suffix || strlen(suffix) < 2 || takes(o->command, suffix))
        return true;
    for (const Subcommand *c = commands; c->name; c++)
        if (takes(c, suffix))
            return fail(&o->diag, "%s: ckc %s takes %s; ckc %s takes %s", o->path, o->command->name,
                        o->command->args, c->name, c->args);
    return true;
}

int command_run(const Subcommand *c, int argc, char **argv)
{
    Options o;
    bool ok = options_parse(&o, c, argc, argv) && check_kind(&o) && outputs_apart(&o);
    int status = ok ? c->run(&o) : report_error(&o.diag, NULL);
    options_free(&o);
    return status;
}

bool command_unknown(const char *name, Diag *d)
{
    char hint[NEAREST_HINT];
    Nearest near;
    nearest_init(&near, name);
    for (const Subcommand *c = commands; c->name; c++)
        nearest_try(&near, c->name);
    return fail(d, "'%s' is neither a command nor a file%s; ckc -h lists the commands", name,
                nearest_hint(&near, hint));
}
