/* job.c -- from a model file to a training step that has run. */
#include "cli.h"
#include "ir/mem.h"
#include "runtime/runtime_int.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

Job *job_new(Options *o)
{
    Job *j = mem_new(1, sizeof *j);
    j->o = o;
    return j;
}

static const double MEASURES = 0.3; /* seconds; a faster plan found its costs in the cache */

void job_remark(Job *j, const char *text)
{
    j->remark = arena_grow(&j->arena, j->remark, j->nremark, &j->cremark, sizeof *j->remark);
    j->remark[j->nremark++] = arena_strndup(&j->arena, text, strlen(text));
}

static void remark(void *user, const char *text) { job_remark(user, text); }

/* The kernel cache, which is opened at the first call and stays open as long as the job. */
static KernelCache *open_cache(Job *j)
{
    if (!*j->cache.folder.path && !kernel_cache_open(&j->cache, j->o->cache, &j->o->diag))
        return NULL;
    return &j->cache;
}

static void mention_cache(Job *j)
{
    if (*j->cache.note)
        remark(j, j->cache.note);
    *j->cache.note = '\0';
}

/* The name of the input that an array is for: the array is called NAME or input/NAME. */
static const char *input_name(const char *array)
{
    return strncmp(array, "input/", 6) == 0 ? array + 6 : array;
}

/* Opens the data file, whose names tell the importer which inputs are not parameters. */
static bool open_data(Job *j)
{
    Options *o = j->o;
    if (!o->data)
        return true;
    if (!j->data && !(j->data = data_open(o->data, &o->diag)))
        return false;
    int n = data_count(j->data);
    const char **names = NEW(&o->arena, const char *, n + 1);
    for (int k = 0; k < n; k++)
        names[k] = input_name(data_name(j->data, k));
    o->step.import.data = names;
    o->step.import.ndata = n;
    return true;
}

/* Keeps the names of the model's outputs, before the loss and the gradients join them. */
static void remember_outputs(Job *j)
{
    const Graph *g = &j->graph;
    j->noutput = g->nout;
    j->output = NEW(&j->arena, const char *, g->nout + 1);
    for (uint32_t i = 0; i < g->nout; i++)
        j->output[i] = g->vals[g->out[i].i].name;
}

static bool is_named(const Value *v, const char *name)
{
    bool named = false;
    for (const ModelName *m = v->in_model; m; m = m->next)
        named |= strcmp(m->name, name) == 0;
    return named;
}

/* Says which arrays of the data are not read, as they have names of weights. */
static void mention_weights(Job *j)
{
    const OnnxOptions *im = &j->o->step.import;
    for (uint32_t i = 1; i < j->graph.nvals; i++)
        for (int k = 0; k < im->ndata && value_is_weight(&j->graph.vals[i]); k++)
            if (is_named(&j->graph.vals[i], im->data[k]))
                job_remark(j, arena_printf(&j->arena,
                                           "%s: '%s' is not read: it is a weight of the model, which "
                                           "--weights FILE gives other values",
                                           j->o->data, im->data[k]));
}

/* Runs the passes `only`, or all (NULL) except `without`. */
static bool run_passes(Job *j, const PassRun *how, const char *only, const char *without)
{
    Options *o = j->o;
    PassCtx cx = {.diag = &o->diag, .tmp = &j->tmp, .opt = &o->step, .info = &j->info,
                  .note = remark, .user = j};
    PassRun run = *how;
    run.only = only;
    run.disable = !without       ? how->disable
                  : how->disable ? arena_printf(&j->arena, "%s,%s", without, how->disable)
                                 : without;
    j->blame = o->path;
    TRY(passes_run(&j->graph, &cx, &run));
    j->blame = NULL;
    return true;
}

/* Begins the progress line, unless other output would mix with it. */
static void begin_progress(const Options *o, Progress *p)
{
    *p = progress_begin(o->quiet || o->json || o->dump || o->time_passes);
}

static bool open_profile(Job *j)
{
    Options *o = j->o;
    ProfileOptions po = {.device = &o->device, .ordinal = o->ordinal, .here = o->ops != NULL,
                         .threads = o->step.threads, .on_demand = true};
    TRY(!po.here || (po.cache = open_cache(j)) != NULL);
    TRY((j->profile = j->planner->profile_open(&po, &o->diag)) != NULL);
    mention_cache(j);
    return true;
}

/* Bytes of the device's memory that are left for the step; 0: no limit. */
static int64_t room_left(const Options *o)
{
    int64_t room = device_room(&o->device);
    return room > o->step.beside ? room - o->step.beside : room > 0;
}

/* Sets what the passes know of the device: asked of the device itself if it is here, else from its file. */
static bool ask_device(Job *j)
{
    Options *o = j->o;
    StepOptions *s = &o->step;
    if (o->unused)
        job_remark(j, o->unused);
    TRY(!o->ops || o->ops->info(o->ordinal, &o->device, &o->arena, &o->diag));
    s->device = &o->device;
    s->memory = o->ops && o->steps == 0 ? 0 : room_left(o);
    s->memory_limits = !o->ops;
    j->planner = o->ops ? o->ops : device_planner(&o->device);
    if (o->ops && !s->threads && o->ops->threads)
        s->threads = (int)o->device.processors;
    if (!j->planner)
        return true;
    s->channels_last = j->planner->channels_last ? j->planner->channels_last() : 0;
    s->either_order = j->planner->either_order;
    TRY(!j->planner->profile_open || open_profile(j));
    s->cost = j->planner->choose;
    s->times = o->ops ? j->planner->times : NULL;
    s->cost_user = j->profile;
    return true;
}

/* Refuses to disable passes that every job needs, and the one that keeps the limit that was asked for. */
static bool check_disabled(Options *o)
{
    const StepOptions *s = &o->step;
    bool limited = s->budget || s->budget_fraction > 0 || s->least_bytes || s->policy || s->instance;
    if (pass_listed(o->disable, "bind") || pass_listed(o->disable, "plan"))
        return fail(&o->diag, "--disable: there is no plan without the passes bind and plan");
    return !limited || !pass_listed(o->disable, "remat") ||
           fail(&o->diag, "--disable remat: --budget, --overhead, --policy and --instance need that pass");
}

bool job_prepare(Job *j, const PassRun *how)
{
    Options *o = j->o;
    double start = clock_seconds();
    ProcessorTime before = processor_time();
    TRY(check_disabled(o));
    begin_progress(o, &o->step.progress);
    graph_init(&j->graph, &j->arena, &o->diag);
    TRY(open_data(j));
    if (!j->model && !(j->model = onnx_open(o->path, &o->diag)))
        return false;
    onnx_allow(j->model, o->allow, o->nallow);
    o->step.model = j->model;
    o->step.import.weightless = o->steps == 0 && !o->record;
    TRY(ask_device(j) && run_passes(j, how, "bind", NULL)); /* alone: reports need what bind finds */
    remember_outputs(j);
    mention_weights(j);
    TRY(weights_give(j) && run_passes(j, how, NULL, "bind,remat,plan"));
    j->info.plan.model = j->model_path = o->path;
    j->plan_seconds = clock_seconds() - start;
    j->others = o->step.times && j->plan_seconds > MEASURES ? others_since(&before) : 0;
    return hash_file(o->path, &j->info.plan.model_hash, &o->diag);
}

bool job_finish(Job *j, const PassRun *how)
{
    Options *o = j->o;
    double start = clock_seconds();
    TRY(run_passes(j, how, "remat,plan", NULL));
    j->plan = &j->info.plan;
    j->plan->run = (RunDefaults){
        .lr = optim_numbers(&o->step).lr,
        .seed = (int64_t)o->step.seed,
        .init = o->init_text,
        .data = o->data};
    TRY(training_defaults(j));
    j->plan_seconds += clock_seconds() - start;
    return true;
}

bool job_plan(Job *j, const PassRun *how) { return job_prepare(j, how) && job_finish(j, how); }

Job *job_fork(const Job *of)
{
    Job *j = mem_new(1, sizeof *j);
    *j = *of;
    j->of = of;
    j->arena = j->tmp = (Arena){0};
    j->remark = NULL;
    j->nremark = j->cremark = 0;
    j->graph = graph_copy(&of->graph, &j->arena);
    if (of->info.cost)
        j->info.cost = memcpy(NEW(&j->arena, StepCost, of->graph.nnodes), of->info.cost,
                              of->graph.nnodes * sizeof *of->info.cost);
    return j;
}

bool job_open(Job *j)
{
    Options *o = j->o;
    const RunDefaults *run = &j->plan->run;
    int64_t rechosen = 0;
    ExecOptions xo = {.device = o->ops, .ordinal = o->ordinal, .cache = open_cache(j),
                      .init = run->init ? &o->init : NULL, .seed = run->seed, .check = o->check,
                      .rechosen = o->rechoose ? &rechosen : NULL};
    j->blame = o->path;
    mention_cache(j);
    begin_progress(o, &o->step.progress);
    progress(&o->step.progress, "compiling kernels, reading weights");
    TRY(xo.cache && (j->exec = exec_open(j->plan, &xo, &o->diag)) != NULL);
    j->blame = NULL;
    if (rechosen > 0)
        remark(j, arena_printf(&j->arena,
                               "%lld algorithms or kernels are others than the schedule's, with other bits: "
                               "the GPU, or its library, is another",
                               (long long)rechosen));
    files_loaded(j);
    return true;
}

uint32_t job_results(const Job *j)
{
    return j->plan->g->nout - (j->o->step.keep_grads ? j->info.ntrained : 0);
}

int64_t job_made(const Job *j) { return j->result.first + j->result.steps; }

int job_status(const Job *j, bool ok)
{
    if (!ok)
        return report_error(&j->o->diag, j->blame);
    progress_end();
    int64_t made = job_made(j);
    if (!signal_caught || (made == j->steps && !j->val_left))
        return EXIT_OK;
    fprintf(stderr, "ckc: %s: stopped after step %lld of %lld%s; what was asked for is written%s\n",
            signal_name(signal_caught), (long long)made, (long long)j->steps,
            j->val_left ? ", without its validation" : "", j->o->checkpoint ? "; --resume goes on" : "");
    return 128 + signal_caught;
}

void job_close(Job *j)
{
    train_result_free(&j->result);
    j->result = (TrainResult){0};
    steplog_close(j);
    exec_close(j->exec);
    j->exec = NULL;
    feed_close(j->feed);
    j->feed = NULL;
}

/* Closes what a job shares with its forks. */
static void close_shared(Job *j)
{
    validation_close(j->val);
    if (j->profile)
        j->planner->profile_close(j->profile);
    kernel_cache_close(&j->cache);
    onnx_close(j->model);
    data_close(j->data);
    data_close(j->weights);
    files_close(j);
}

void job_free(Job *j)
{
    if (!j)
        return;
    job_close(j);
    checkpoints_close(&j->checkpoints);
    if (!j->of)
        close_shared(j);
    arena_free(&j->tmp);
    arena_free(&j->arena);
    free(j);
}
