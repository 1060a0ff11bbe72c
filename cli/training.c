/* training.c -- the steps of a job: their number, checkpoints and validation between them, the profile. */
#include "cli.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <xxhash.h>

enum { LEARN_STEPS = 5 }; /* fewer steps say little about times */
static const double LEARN_OFF = 0.1, LEARN_OTHERS = 0.1;
enum { CHECKPOINT_SECONDS = 600 }; /* time between the checkpoints of a run without --every */

/* ---- what the run is --------------------------------------------------------------------------------- */

static bool is_shape(const char *name, LrShape *shape)
{
    int k = 0;
    while (lr_shape_name[k] && strcmp(lr_shape_name[k], name ? name : "constant") != 0)
        k++;
    *shape = (LrShape)k;
    return lr_shape_name[k] != NULL;
}

static bool check_schedule(const RunDefaults *r, bool least, Diag *d)
{
    LrShape shape;
    if (!is_shape(r->schedule, &shape))
        return fail(d, "the schedule's learning rate is '%s': this version does not know it", r->schedule);
    if (shape == LR_CONSTANT && least)
        return fail(d, "--min-lr belongs to --schedule cosine or linear");
    return r->min_lr <= r->lr || fail(d, "--min-lr %g is above the learning rate, %g", r->min_lr, r->lr);
}

bool training_defaults(Job *j)
{
    const Options *o = j->o;
    RunDefaults *r = &j->plan->run;
    r->schedule = o->schedule >= 0 ? lr_shape_name[o->schedule] : r->schedule;
    r->warmup = o->warmup >= 0 ? o->warmup : r->warmup;
    r->min_lr = isnan(o->min_lr) ? r->min_lr : o->min_lr;
    r->order = o->shuffle ? "shuffled" : r->order;
    return check_schedule(r, !isnan(o->min_lr), &j->o->diag);
}

static LrSchedule lr_schedule(const Job *j)
{
    const RunDefaults *r = &j->plan->run;
    LrSchedule s = {.warmup = r->warmup, .least = r->min_lr, .steps = j->steps};
    is_shape(r->schedule, &s.shape);
    return s;
}

bool job_feed(Job *j)
{
    const Plan *p = j->plan;
    StepInputs own = step_inputs(p->g);
    FeedOrder order = p->run.order ? FEED_SHUFFLED : FEED_FILE;
    j->blame = p->run.data;
    j->feed = j->feed ? j->feed : feed_open(p->g, &own, j->data, order, p->run.seed, &j->o->diag);
    TRY(j->feed);
    j->blame = NULL;
    return true;
}

/* The number of steps follows from --steps, or from --epochs and the rows of the data. */
bool job_count(Job *j)
{
    const Options *o = j->o;
    const Plan *p = j->plan;
    int64_t batch;
    j->steps = o->steps < 0 ? 1 : o->steps;
    if (j->steps == 0)
        return true;
    TRY(job_feed(j));
    feed_size(j->feed, &j->epoch, &batch);
    j->step_rows = batch * plan_batches(p);
    if (o->epochs && !j->data)
        return fail(&j->o->diag, "--epochs needs --data");
    if (o->epochs)
        j->steps = o->epochs * j->epoch / j->step_rows;
    return j->steps > 0 || fail(&j->o->diag, "--epochs: the data has %" PRId64 " rows, a step takes %" PRId64,
                                j->epoch, j->step_rows);
}

/* ---- checkpoints ------------------------------------------------------------------------------------ */

/* Refuses to start a run beside the checkpoints of another, as --resume could then mean either. */
static bool check_new(const Options *o, const Checkpoints *c, Diag *d)
{
    int64_t step = checkpoints_newest(c);
    return o->resume || !step ||
           fail(d,
                "%s: has a checkpoint of step %" PRId64 ": --resume goes on from it; or name another folder",
                o->checkpoint, step);
}

static bool check_data(const Job *j)
{
    const Options *o = j->o;
    Diag *d = &j->o->diag;
    if (o->epochs && o->steps >= 0)
        return fail(d, "--epochs takes the place of --steps");
    return o->data || j->in_schedule || !(o->epochs || o->shuffle) ||
           fail(d, "%s needs --data", o->epochs ? "--epochs" : "--shuffle");
}

bool training_check(const Job *j)
{
    Options *o = j->o;
    Diag *d = &o->diag;
    Checkpoints c;
    TRY(check_data(j));
    if (o->steps == 0 && (o->metrics || o->profile || o->check))
        return fail(d, "--metrics, --profile and --check need a step to run");
    TRY(!o->metrics || file_try(o->metrics, d));
    if (!o->checkpoint)
        return !(o->every || o->resume) || fail(d, "--every and --resume need --checkpoint DIR");
    if (o->steps == 0)
        return fail(d, "--checkpoint needs a step to run");
    TRY(checkpoints_open(&c, o->checkpoint, d));
    bool ok = check_new(o, &c, d) && file_try(arena_printf(&o->arena, "%s/try", o->checkpoint), d);
    checkpoints_close(&c);
    return ok;
}

/* A node that updates a parameter; NULL: there is none. */
static const Node *update_of(const Graph *g)
{
    for (uint32_t k = 0; k < g->norder; k++)
        if (node_def(&g->nodes[g->order[k].i])->traits & OPT_ONCE)
            return &g->nodes[g->order[k].i];
    return NULL;
}

/* The type of the input of the batch with the rows of all micro-batches, as text: what a step takes of the
 * data. */
static const char *batch_of(Job *j)
{
    char text[160];
    const Plan *p = j->plan;
    StepInputs own = step_inputs(p->g);
    Val batch = feed_batch(p->g, &own);
    if (!batch.i)
        return "none";
    Type t = *val_type(p->g, batch);
    if (t.rank)
        t.dim[0] *= plan_batches(p);
    type_str(&t, text);
    return arena_strndup(&j->arena, text, strlen(text));
}

static const char *hash_text(Job *j, uint64_t hash) { return arena_printf(&j->arena, "%016" PRIx64, hash); }

/* A hash of the weights that do not train, which does not depend on their order. */
static bool hash_frozen(Job *j, uint64_t *hash)
{
    const Graph *g = j->plan->g;
    bool *trains = graph_updated(g, &j->arena);
    *hash = 0;
    for (uint32_t i = 1; i < g->nvals; i++) {
        Tensor t;
        const char *name = graph_model_name(g, (Val){i});
        if (g->vals[i].kind != VAL_PARAM || trains[i] || g->vals[i].cast_of.i)
            continue;
        TRY(output_weight(j, (Val){i}, &t));
        *hash += XXH64(t.data, (size_t)type_bytes(&t.type), XXH64(name, strlen(name), 0));
        output_weight_end(j, (Val){i});
    }
    return true;
}

static double number_of(const Node *n, const AttrDef *at)
{
    const void *v = (const char *)n->attr + at->off;
    return at->type == AT_F64 ? *(const double *)v : (double)*(const int64_t *)v;
}

/* The numbers of an optimizer, each a key that may change: of all updates the largest, as some have no decay.
 * Allocated in j's arena; returns their number. */
static int update_keys(Job *j, RunKey **keys)
{
    const Graph *g = j->plan->g;
    const Node *first = update_of(g);
    const OpDef *def = node_def(first);
    *keys = NEW(&j->arena, RunKey, def->nattrs);
    for (size_t i = 0; i < def->nattrs; i++) {
        double most = number_of(first, &def->attrs[i]);
        for (uint32_t k = 0; k < g->norder; k++) {
            const Node *n = &g->nodes[g->order[k].i];
            most = node_def(n) == def ? fmax(most, number_of(n, &def->attrs[i])) : most;
        }
        (*keys)[i] = (RunKey){def->attrs[i].name, arena_printf(&j->arena, "%.10g", most), true};
    }
    return (int)def->nattrs;
}

/* Finds the keys that must not change when a run is resumed, and those whose change is told.  Its loss,
 * --no-decay, --clip-norm and number of steps may change without a word. */
static bool find_keys(Job *j)
{
    uint64_t frozen;
    const Plan *p = j->plan;
    Arena *a = &j->arena;
    RunKey *numbers;
    char precision[64];
    precision_of(p->g, precision);
    TRY(hash_frozen(j, &frozen));
    const RunKey keys[] = {{"optimizer", node_def(update_of(p->g))->name, false},
                           {"precision", arena_strndup(a, precision, strlen(precision)), false},
                           {"seed", arena_printf(a, "%" PRId64, p->run.seed), false},
                           {"init", p->run.init ? p->run.init : "none", false},
                           {"batch", batch_of(j), false},
                           {"rows", p->run.order ? p->run.order : "in order", false},
                           {"data", j->data ? hash_text(j, data_hash(j->data)) : "none", false},
                           {"model", hash_text(j, p->model_hash), false},
                           {"frozen weights", hash_text(j, frozen), false},
                           {"lr", arena_printf(a, "%.10g", p->run.lr), true},
                           {"schedule", p->run.schedule ? p->run.schedule : "constant", true}};
    const int nkeys = sizeof keys / sizeof *keys, nnumbers = update_keys(j, &numbers);
    RunKey *all = NEW(a, RunKey, nkeys + nnumbers + 1);
    memcpy(all, keys, sizeof keys);
    memcpy(all + nkeys, numbers, (size_t)nnumbers * sizeof *numbers);
    j->keys = all;
    return true;
}

/* Does an epoch end in this step: does the step take the epoch's last row? */
static bool ends_epoch(const Job *j, int64_t step)
{
    return j->data && step * j->step_rows / j->epoch > (step - 1) * j->step_rows / j->epoch;
}

static bool validation_due(const Job *j, int64_t step, bool last)
{
    const Options *o = j->o;
    return j->val && (last || (o->val_every ? step % o->val_every == 0 : ends_epoch(j, step)));
}

static bool work_due(void *user, int64_t step)
{
    Job *j = user;
    const Options *o = j->o;
    double since = clock_seconds() - j->checkpoint_seconds;
    j->checkpoint_due = o->checkpoint && (o->every ? step % o->every == 0 : since > CHECKPOINT_SECONDS);
    j->val_due = validation_due(j, step, false);
    return j->checkpoint_due || j->val_due;
}

/* Validates unless a signal has come, as its sender may not wait for that. */
static bool validate(Job *j, int64_t step, Diag *d)
{
    double loss;
    progress(&j->o->step.progress, "step %" PRId64 " of %" PRId64 ", validating", step, j->steps);
    TRY(signal_caught || validation_run(j->val, j->exec, &loss, d));
    if (signal_caught) { /* the loss may be of some rows only */
        j->val_left = true;
        return true;
    }
    j->val_loss = arena_grow(&j->arena, j->val_loss, j->nval, &j->cval_loss, sizeof *j->val_loss);
    j->val_step = arena_grow(&j->arena, j->val_step, j->nval, &j->cval_step, sizeof *j->val_step);
    j->val_loss[j->nval] = loss;
    j->val_step[j->nval++] = step;
    steplog_validation(j->log, step, loss);
    return true;
}

/* Ends the run when a checkpoint cannot be written; saves the weights where --save says, which may work. */
static bool end_run(Job *j, int64_t step, Diag *d)
{
    Arena *a = &j->arena;
    Options *o = j->o;
    Diag why = *d;
    int64_t last = j->checkpoints.intact;
    const char *kept = "", *before = "there is no earlier checkpoint";
    *d = o->diag = (Diag){0};
    if (last)
        before = arena_printf(a, "make room, and --resume goes on from step %" PRId64, last);
    if (o->nsave && output_weights(j))
        kept = "; the weights are written as --save says";
    else if (o->nsave)
        kept = arena_printf(a, "; nor can the weights be saved: %.500s", o->diag.msg);
    *d = (Diag){0};
    return fail_status(d, why.status, "%.3000s: the run ends behind step %" PRId64 "; %s%s", why.msg, step,
                       before, kept);
}

bool job_checkpoint(Job *j, int64_t step, Diag *d)
{
    TRY(output_finite(j, step));
    if (!checkpoint_write(&j->checkpoints, j->exec, step, j->keys, d))
        return end_run(j, step, d);
    j->checkpoint_seconds = clock_seconds();
    return true;
}

static bool do_work(Job *j, int64_t step, bool last, Diag *d)
{
    if (j->o->checkpoint && (j->checkpoint_due || last))
        TRY(job_checkpoint(j, step, d));
    return !j->val || !(j->val_due || last) || validate(j, step, d);
}

static bool between_steps(void *user, int64_t step, bool last, Diag *d)
{
    Job *j = user;
    const char *blame = j->blame; /* failures in here are not about the data */
    j->blame = NULL;
    TRY(do_work(j, step, last, d));
    j->blame = blame;
    return true;
}

static bool resume(Job *j)
{
    const char *damaged, *changed;
    Diag *d = &j->o->diag;
    TRY(checkpoint_read(&j->checkpoints, j->exec, j->keys, &j->done, &damaged, &changed, &j->arena, d));
    if (changed)
        job_remark(j, arena_printf(&j->arena, "the checkpoint was made with %s", changed));
    if (damaged)
        job_remark(j, arena_printf(&j->arena, "%s is damaged: the run goes on from step %" PRId64, damaged,
                                   j->done));
    return true;
}

static bool begin_checkpoints(Job *j)
{
    Options *o = j->o;
    Diag *d = &o->diag;
    j->done = 0;
    if (!o->checkpoint)
        return true;
    if (!update_of(j->plan->g))
        return fail(d, "--checkpoint: this step trains nothing");
    TRY(checkpoints_open(&j->checkpoints, o->checkpoint, d) && check_new(o, &j->checkpoints, d) &&
        find_keys(j));
    j->checkpoint_seconds = clock_seconds();
    return !o->resume || resume(j);
}

/* ---- the profile -------------------------------------------------------------------------------------- */

/* Times of kernels measured alone can mislead: on a busy machine, or where memory is slower in place.  So the
 * times of a run that took a clearly different time than predicted go to the profile, unless the run itself
 * was disturbed. */
void job_learn(Job *j)
{
    const Plan *p = j->plan;
    const Graph *g = p->g;
    Arena *a = &j->arena;
    Diag why = {0};
    double off = 1e9 * j->result.median / (double)p->predicted_ns - 1;
    if (!j->profile || !j->planner->learn || j->result.steps < LEARN_STEPS || p->predicted_ns <= 0 ||
        fabs(off) < LEARN_OFF)
        return;
    const char *took = arena_printf(a, "steps took %.0f %% %s time than predicted", 100 * fabs(off),
                                    off > 0 ? "more" : "less");
    if (j->result.others > LEARN_OTHERS) {
        job_remark(j, arena_printf(a, "%s while others used %.0f %% of the processors", took,
                                   100 * j->result.others));
        return;
    }
    NodeId *first = NEW(a, NodeId, p->nstep + 1);
    double *seconds = NEW(a, double, p->nstep + 1);
    uint32_t n = 0;
    for (uint32_t s = 0; s < p->nstep; s++) {
        NodeId id = g->order[p->step[s].first];
        if (g->nodes[id.i].candidate == 0) { /* times are those of the first way to run a step */
            seconds[n] = j->result.seconds[s];
            first[n++] = graph_original(g, id);
        }
    }
    bool kept = j->planner->learn(j->profile, first, seconds, n, &why);
    job_remark(j, kept ? arena_printf(a, "%s: the next plan is made with this run's times", took)
                       : arena_printf(a, "%s, and this run's times cannot be kept: %s", took, why.msg));
}

/* ---- running ------------------------------------------------------------------------------------------ */

TrainOptions job_options(Job *j, int64_t steps)
{
    const RunDefaults *run = &j->plan->run;
    return (TrainOptions){.steps = steps,
                          .first = j->done,
                          .lr = run->lr,
                          .seed = run->seed,
                          .schedule = lr_schedule(j),
                          .feed = j->feed,
                          .inputs = step_inputs(j->plan->g),
                          .user = j};
}

bool job_record(Job *j, NewFile *values, NewFile *inputs)
{
    Options *o = j->o;
    TRY(job_feed(j));
    ExecOptions xo = {.device = &record_device,
                      .init = o->init_text ? &o->init : NULL,
                      .seed = j->plan->run.seed,
                      .record_values = values,
                      .record_inputs = inputs};
    TrainOptions to = job_options(j, o->record);
    to.schedule.steps = o->record;
    TrainResult result = {0};
    Executor *x = exec_open(j->plan, &xo, &o->diag);
    bool ok = x && train_run(x, &to, &result, &o->diag);
    train_result_free(&result);
    exec_close(x);
    return ok;
}

/* Checks how many steps are left: a checkpoint may be of the run's last step, or of a later one. */
static bool check_left(Job *j)
{
    const Options *o = j->o;
    Diag *d = &j->o->diag;
    if (j->done && j->done == j->steps)
        job_remark(
            j, arena_printf(&j->arena, "%s: all %" PRId64 " steps were made before", o->checkpoint, j->done));
    if (j->done > j->steps)
        return fail(d, "%s: is at step %" PRId64 " already: --steps %" PRId64 " is less", o->checkpoint,
                    j->done, j->steps);
    return j->done < j->steps || !o->grads ||
           fail(d, "%s: is at step %" PRId64 " already: there is no step left for --grads", o->checkpoint,
                j->done);
}

bool job_begin(Job *j) { return job_open(j) && validation_open(j) && begin_checkpoints(j); }

bool job_train(Job *j)
{
    Options *o = j->o;
    const RunDefaults *run = &j->plan->run;
    TRY(job_count(j));
    if (j->steps == 0)
        return true;
    TRY(output_fits_model(j) && job_begin(j) && check_left(j));
    bool pauses = o->checkpoint || j->val;
    TrainOptions to = job_options(j, j->steps - j->done);
    /* A checkpoint is written before the validation of its step, which the run may not have come to. */
    j->val_due = j->done && validation_due(j, j->done, j->done == j->steps);
    TRY(steplog_open(j, &to.schedule, j->done));
    steplog_listen(j->log, &to);
    to.pauses = pauses ? work_due : NULL;
    to.pause = pauses ? between_steps : NULL;
    to.finite = !o->step.import.forward_only;
    to.stop = &signal_caught;
    to.others = true;
    TRY(!j->val_due || validate(j, j->done, &o->diag)); /* a signal here ends the run: it is due again */
    signals_defer();
    j->blame = run->data ? run->data : o->path;
    progress(&o->step.progress, "running %lld step%s", (long long)j->steps, j->steps > 1 ? "s" : "");
    if (!train_run(j->exec, &to, &j->result, &o->diag)) {
        j->blame = o->diag.status == EXIT_DEVICE ? o->path : j->blame; /* not about the data */
        return false;
    }
    j->blame = NULL;
    job_learn(j);
    return true;
}
