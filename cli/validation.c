/* validation.c -- --val: the loss on other data, computed between steps.
 *
 * The forward pass is planned as a step of its own, of the network in its inference form, in memory of its
 * own beside the training step's; the weights are copied there whenever it runs. */
#include "cli.h"
#include "ir/mem.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct Validation {
    Options o; /* a copy of the training's options, changed for validation */
    Job *job;
    int64_t steps;
};

static void set_options(Options *v, const Options *o)
{
    *v = *o;
    v->diag = (Diag){0};
    v->arena = (Arena){0};
    v->data = o->val;
    v->nsave = 0;
    v->grads = v->checkpoint = v->dump = v->step.instance = v->step.policy = NULL;
    v->accumulate_auto = v->step.keep_grads = v->step.least_bytes = v->cuda = v->time_passes = false;
    v->schedule = -1;
    v->warmup = -1;
    v->min_lr = NAN;
    v->shuffle = false;
    v->record = v->step.accumulate = v->step.budget = 0;
    v->step.budget_fraction = v->step.clip_norm = 0;
    v->step.optim = OPTIM_NONE;
    v->step.import.inference = !o->training;
}

static bool open_data(Validation *v)
{
    Job *j = v->job;
    const Plan *p = j->plan;
    StepInputs own = step_inputs(p->g);
    j->blame = v->o.data;
    TRY((j->feed = feed_open(p->g, &own, j->data, FEED_ONCE, p->run.seed, &v->o.diag)) != NULL);
    while (feed_count(j->feed, v->steps + 1))
        v->steps++;
    return true;
}

static bool plan_validation(Validation *v, const PassRun *how)
{
    Job *j = v->job;
    PassRun quiet = {.disable = how->disable};
    TRY(job_plan(j, &quiet));
    if (!graph_has_loss(j->plan->g))
        return fail(&v->o.diag, "--val: the model has no loss to evaluate");
    TRY(open_data(v));
    j->blame = NULL;
    return true;
}

/* Takes validation's part from the budget. */
static bool share_budget(Options *o, const Validation *v)
{
    int64_t bytes = o->step.beside = v->job->plan->arena_bytes;
    return !o->step.budget || o->step.budget > bytes ||
           fail_status(&o->diag, EXIT_INFEASIBLE,
                       "--val: the forward pass alone takes %" PRId64 " bytes of the budget", bytes);
}

/* Gives validation's error to the training job, which reports it; returns ok. */
static bool hand_over(Job *j, bool ok)
{
    Validation *v = j->val;
    if (ok)
        return true;
    j->o->diag = v->o.diag;
    j->blame = v->job->blame;
    return false;
}

bool validation_plan(Job *j, const PassRun *how)
{
    Options *o = j->o;
    if (!o->val)
        return true;
    Validation *v = j->val = mem_new(1, sizeof *v);
    set_options(&v->o, o);
    v->job = job_new(&v->o);
    return hand_over(j, plan_validation(v, how)) && share_budget(o, v);
}

bool validation_open(Job *j) { return !j->val || hand_over(j, job_open(j->val->job)); }

void validation_close(Validation *v)
{
    if (!v)
        return;
    job_free(v->job);
    options_free(&v->o);
    free(v);
}

/* Copies the weights that training changes, cast where the forward pass reads only a cast. */
static bool copy_weights(Validation *v, Executor *from, Diag *d)
{
    const Graph *g = exec_plan(from)->g, *to = v->job->plan->g;
    bool *changes = graph_updated(g, &v->job->tmp);
    for (uint32_t i = 1; i < to->nvals; i++) {
        const Value *y = &to->vals[to->vals[i].cast_of.i ? to->vals[i].cast_of.i : i];
        Val x = graph_find(g, y->name);
        if (!changes[x.i] || !g->vals[x.i].in_model || !type_equal(val_type(g, x), &y->type))
            continue;
        if (y->kind == VAL_CONST)
            return fail(d, "--val: '%s' trains, but is a constant of the inference form", y->name);
        Tensor t = exec_tensor(v->job->exec, (Val){i});
        if (!t.data)
            continue;
        TRY(exec_read(from, x, d));
        Tensor now = exec_tensor(from, x);
        tensor_cast(&now, &t);
        TRY(exec_write(v->job->exec, (Val){i}, d));
        exec_drop(v->job->exec, (Val){i});
        exec_drop(from, x);
    }
    arena_free(&v->job->tmp);
    return true;
}

bool validation_run(Validation *v, Executor *from, double *loss, Diag *d)
{
    TrainResult r;
    TrainOptions to = {.steps = v->steps,
                       .seed = v->job->plan->run.seed,
                       .feed = v->job->feed,
                       .inputs = step_inputs(v->job->plan->g),
                       .stop = &signal_caught};
    TRY(copy_weights(v, from, d) && train_run(v->job->exec, &to, &r, d));
    double sum = 0, all = 0;
    for (int64_t i = 0; i < r.steps; i++) {
        double weight = (double)feed_weight(v->job->feed, i + 1);
        sum += weight > 0 ? weight * r.loss[i] : 0; /* the mean over no targets is NaN */
        all += weight;
    }
    *loss = plain_nan(sum / all);
    train_result_free(&r);
    return true;
}

const Job *validation_job(const Validation *v) { return v->job; }
