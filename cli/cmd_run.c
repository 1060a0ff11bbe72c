/* cmd_run.c -- `ckc run MODEL.ckc/step.ckp`: execute a saved schedule, giving the same bits as the
 * run that wrote it.  Paths in the schedule are relative to its folder. */
#include "cli.h"
#include "ir/file.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The one it was planned for; --device may say which of several. */
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

static bool read_plan(Job *j, Plan *p)
{
    FileMap m;
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

/* The command line overrides what the schedule recorded. */
static bool override(Job *j, Plan *p)
{
    Options *o = j->o;
    p->run.lr = isnan(o->step.lr) ? p->run.lr : o->step.lr;
    p->run.seed = o->seed_given ? (int64_t)o->step.seed : p->run.seed;
    p->threads = o->step.threads ? (uint32_t)o->step.threads : p->threads ? p->threads : o->ops->threads;
    if (!o->init_text && p->run.init)
        TRY(init_parse(p->run.init, &o->init, &o->diag));
    p->run.init = o->init_text ? o->init_text : p->run.init;
    return training_defaults(j) && files_open(j) && weights_give(j);
}

static bool finish(Job *j)
{
    TRY(output_finite(j) && output_weights(j));
    if (j->o->json) {
        char *json = report_json(j);
        puts(json);
        free(json);
    } else if (!j->o->quiet) {
        report_print(j, stdout);
    }
    return steplog_close(j);
}

int cmd_run(Options *o)
{
    Plan p = {0};
    Job j = {.o = o, .plan = &p, .in_schedule = true};
    bool ok = (o->path || fail(&o->diag, "no schedule given")) &&
              (o->steps || !o->nsave || fail(&o->diag, "--save needs a step to have run"));
    ok = ok && output_check(&j) && read_plan(&j, &p) && override(&j, &p) && job_train(&j) &&
         finish(&j);
    int status = job_status(&j, ok);
    job_free(&j);
    return status;
}
