/* job.c -- from a model file to a training step that has run. */
#include "cli.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEARN_STEPS = 5 }; /* fewer say little */
static const double LEARN_OFF = 0.1, LEARN_OTHERS = 0.1;

void job_remark(Job *j, const char *text)
{
    j->remark = arena_grow(&j->arena, j->remark, j->nremark, &j->cremark, sizeof *j->remark);
    j->remark[j->nremark++] = arena_strndup(&j->arena, text, strlen(text));
}

static void remark(void *user, const char *text) { job_remark(user, text); }

/* Open for as long as the job lasts. */
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

/* The input an array is for: NAME or input/NAME. */
static const char *input_name(const char *array)
{
    return strncmp(array, "input/", 6) == 0 ? array + 6 : array;
}

/* The names in the data file tell the importer which inputs are no parameters. */
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

static double learning_rate(const StepOptions *o)
{
    bool sgd = o->optim == OPTIM_SGD || o->optim == OPTIM_MOMENTUM;
    return !isnan(o->lr) ? o->lr : sgd ? 1e-2 : 1e-3;
}

/* Which outputs the model has, before the loss and the gradients join them. */
static void remember_outputs(Job *j)
{
    const Graph *g = &j->graph;
    j->noutput = g->nout;
    j->output = NEW(&j->arena, JobOutput, g->nout + 1);
    for (uint32_t i = 0; i < g->nout; i++)
        j->output[i] = (JobOutput){g->vals[g->out[i].i].name, *val_type(g, g->out[i])};
}

/* The importer runs first, alone: what it finds is needed for reports. */
static bool run_passes(Job *j, const PassRun *how)
{
    Options *o = j->o;
    PassCtx cx = {.diag = &o->diag, .tmp = &j->tmp, .opt = &o->step, .info = &j->info,
                  .note = remark, .user = j};
    PassRun rest = *how, bind = {.only = "bind", .dump = how->dump, .time = how->time};
    rest.disable = how->disable ? arena_printf(&j->arena, "bind,%s", how->disable) : "bind";
    TRY(passes_run(&j->graph, &cx, &bind));
    remember_outputs(j);
    return passes_run(&j->graph, &cx, &rest);
}

/* Not beside what else writes there. */
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

/* One that is here is asked; of another there is what its file says. */
static bool ask_device(Job *j)
{
    Options *o = j->o;
    StepOptions *s = &o->step;
    if (o->unused)
        job_remark(j, o->unused);
    TRY(!o->ops || o->ops->info(o->ordinal, &o->device, &o->arena, &o->diag));
    s->device = &o->device;
    s->memory = o->ops && o->steps == 0 ? 0 : device_room(&o->device);
    j->planner = o->ops ? o->ops : device_planner(&o->device);
    if (o->ops && !s->threads && o->ops->threads)
        s->threads = (int)o->device.processors;
    if (!j->planner)
        return true;
    s->channels_last = j->planner->channels_last;
    TRY(!j->planner->profile_open || open_profile(j));
    s->cost = j->planner->choose;
    s->times = o->ops ? j->planner->times : NULL;
    s->cost_user = j->profile;
    return true;
}

bool job_plan(Job *j, const PassRun *how)
{
    Options *o = j->o;
    double start = clock_seconds();
    begin_progress(o, &o->step.progress);
    graph_init(&j->graph, &j->arena, &o->diag);
    TRY(open_data(j));
    if (!j->model && !(j->model = onnx_open(o->path, &o->diag)))
        return false;
    onnx_allow(j->model, o->allow, o->nallow);
    o->step.model = j->model;
    o->step.import.weightless = o->steps == 0 && !o->record;
    TRY(ask_device(j));
    j->blame = o->path;
    TRY(run_passes(j, how));
    j->blame = NULL;
    j->plan = &j->info.plan;
    j->plan->model = o->path;
    j->plan->run = (RunDefaults){learning_rate(&o->step), (int64_t)o->step.seed, o->init_text,
                                 o->data};
    j->plan_seconds = clock_seconds() - start;
    return hash_file(o->path, &j->plan->model_hash, &o->diag);
}

/* At most about twenty lines for any number of steps. */
static void show_step(void *user, int64_t step, double loss, double seconds)
{
    const Job *j = user;
    int64_t n = j->steps, every = (n + 19) / 20;
    if (step == 1 || step == n || step % every == 0) {
        printf("step %-6lld loss %-12.6g %8.1f ms\n", (long long)step, loss, 1e3 * seconds);
        fflush(stdout);
    }
}

static void show_skipped(void *user, int64_t step, double scale)
{
    (void)user;
    printf("step %-6lld skipped: its gradients overflow in fp16; the loss scale is now %g\n", (long long)step,
           scale);
    fflush(stdout);
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
                               "%lld algorithms of products are others than the schedule's, with other bits: "
                               "the library is another",
                               (long long)rechosen));
    files_loaded(j);
    return true;
}

/* Kernels measured alone can mislead: on a busy machine, or where memory is slower in place.  A
 * run that took clearly another time than predicted teaches the profile, unless it was the run
 * that was disturbed. */
static bool learn(Job *j)
{
    const Plan *p = j->plan;
    const Graph *g = p->g;
    double off = 1e9 * j->result.median / (double)p->predicted_ns - 1;
    if (!j->profile || !j->planner->learn || j->result.steps < LEARN_STEPS || p->predicted_ns <= 0 ||
        fabs(off) < LEARN_OFF)
        return true;
    const char *more = off > 0 ? "more" : "less";
    if (j->result.others > LEARN_OTHERS) {
        remark(j, arena_printf(&j->arena, "steps took %.0f %% %s time than predicted while others "
                               "used %.0f %% of the processors", 100 * fabs(off), more,
                               100 * j->result.others));
        return true;
    }
    NodeId *first = NEW(&j->arena, NodeId, p->nstep + 1);
    double *seconds = NEW(&j->arena, double, p->nstep + 1);
    uint32_t n = 0;
    for (uint32_t s = 0; s < p->nstep; s++) {
        NodeId id = g->order[p->step[s].first];
        if (g->nodes[id.i].candidate == 0) { /* times are those of the first way to run a step */
            seconds[n] = j->result.seconds[s];
            first[n++] = graph_original(g, id);
        }
    }
    remark(j, arena_printf(&j->arena, "steps took %.0f %% %s time than predicted: the next plan "
                           "is made with this run's times", 100 * fabs(off), more));
    return j->planner->learn(j->profile, first, seconds, n, &j->o->diag);
}

static TrainOptions train_options(Job *j, int64_t steps)
{
    const RunDefaults *run = &j->plan->run;
    return (TrainOptions){.steps = steps,
                          .lr = run->lr,
                          .seed = run->seed,
                          .data = j->data,
                          .inputs = step_inputs(j->plan->g),
                          .user = j};
}

bool job_record(Job *j, FILE *values, FILE *inputs)
{
    Options *o = j->o;
    ExecOptions xo = {.device = &record_device,
                      .init = o->init_text ? &o->init : NULL,
                      .seed = j->plan->run.seed,
                      .record_values = values,
                      .record_inputs = inputs};
    TrainOptions to = train_options(j, o->record);
    TrainResult result = {0};
    Executor *x = exec_open(j->plan, &xo, &o->diag);
    bool ok = x && train_run(x, &to, &result, &o->diag);
    train_result_free(&result);
    exec_close(x);
    return ok;
}

bool job_train(Job *j)
{
    Options *o = j->o;
    const RunDefaults *run = &j->plan->run;
    j->steps = o->steps < 0 ? 1 : o->steps;
    if (j->steps == 0)
        return true;
    TRY(job_open(j));
    bool talk = !o->quiet && !o->json && j->steps > 1;
    TrainOptions to = train_options(j, j->steps);
    to.each = talk ? show_step : NULL;
    to.skipped = talk ? show_skipped : NULL;
    to.finite = !o->step.import.forward_only;
    to.stop = &signal_caught;
    j->blame = run->data ? run->data : o->path;
    signals_defer();
    if (talk)
        progress_end();
    else
        progress(&o->step.progress, "running %lld step%s", (long long)j->steps, j->steps > 1 ? "s" : "");
    TRY(train_run(j->exec, &to, &j->result, &o->diag));
    j->blame = NULL;
    return learn(j);
}

int job_status(const Job *j, bool ok)
{
    if (!ok)
        return report_error(&j->o->diag, j->blame);
    progress_end();
    if (!signal_caught || j->result.steps == j->steps)
        return EXIT_OK;
    fprintf(stderr, "ckc: %s: stopped after step %lld of %lld; what was asked for is written\n",
            signal_name(signal_caught), (long long)j->result.steps, (long long)j->steps);
    return 128 + signal_caught;
}

void job_free(Job *j)
{
    train_result_free(&j->result);
    exec_close(j->exec);
    if (j->profile)
        j->planner->profile_close(j->profile);
    kernel_cache_close(&j->cache);
    onnx_close(j->model);
    data_close(j->data);
    files_close(j);
    arena_free(&j->tmp);
    arena_free(&j->arena);
}
