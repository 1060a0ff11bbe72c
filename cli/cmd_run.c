/* cmd_run.c -- `ckc run MODEL.ckc/step.ckp`: execute a saved schedule. */
#include "cli.h"
#include <stdlib.h>

static bool finish(Job *j)
{
    TRY(output_finite(j, job_made(j)) && output_weights(j) && steplog_close(j));
    if (j->o->json) {
        json_t *report = report_json(j);
        report_write(report, stdout);
        json_decref(report);
    } else if (!j->o->quiet) {
        report_print(j, stdout);
    }
    return true;
}

int cmd_run(Options *o)
{
    Job *j = job_new(o);
    j->in_schedule = true;
    bool ok = (o->path || fail(&o->diag, "no schedule given")) &&
              (o->steps || !o->nsave || fail(&o->diag, "--save needs a step to have run"));
    ok = ok && output_check(j) && job_read(j) && job_train(j) && finish(j);
    int status = job_status(j, ok);
    job_free(j);
    return status;
}
