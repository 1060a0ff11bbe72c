/* schedule.c -- makes a saved schedule a job that gives the same bits as the run that wrote it.  Paths in the
 * schedule are relative to its folder. */
#include "cli.h"
#include "ir/file.h"
#include <math.h>

/* Finds the device that the schedule was planned for; --device may choose one of several of its kind. */
static bool find_device(Options *o, const Plan *p)
{
    int ordinal;
    const DeviceOps *of = device_here(p->device, &ordinal);
    if (o->step.device && o->ops != of)
        return fail(&o->diag, "is a schedule for the device '%s': --device %s is another", p->device,
                    o->step.device->name);
    o->ordinal = o->step.device ? o->ordinal : ordinal;
    o->ops = of;
    return of || fail_status(&o->diag, EXIT_DEVICE,
                             "is a schedule for the device '%s', which is not here: plan the model "
                             "without --device",
                             p->device);
}

static bool read_plan(Job *j)
{
    FileMap m;
    Plan *p = j->plan = NEW(&j->arena, Plan, 1);
    Diag *d = &j->o->diag;
    TRY(file_map(&m, j->o->path, d));
    char *text = arena_strndup(&j->arena, m.size ? (const char *)m.data : "", m.size);
    file_unmap(&m);
    graph_init(&j->graph, &j->arena, d);
    p->g = &j->graph;
    j->blame = j->o->path;
    TRY(plan_parse(p, text, d) && find_device(j->o, p));
    j->blame = NULL;
    return true;
}

/* The options override what the schedule recorded. */
static bool override(Job *j)
{
    Options *o = j->o;
    Plan *p = j->plan;
    p->run.lr = isnan(o->step.number.lr) ? p->run.lr : o->step.number.lr;
    p->run.seed = o->seed_given ? (int64_t)o->step.seed : p->run.seed;
    p->threads = o->step.threads ? (uint32_t)o->step.threads : p->threads ? p->threads : o->ops->threads;
    if (!o->init_text && p->run.init)
        TRY(init_parse(p->run.init, &o->init, &o->diag));
    p->run.init = o->init_text ? o->init_text : p->run.init;
    return training_defaults(j) && files_open(j) && weights_give(j);
}

bool job_read(Job *j) { return read_plan(j) && override(j); }
