/* cmd_train.c -- `ckc MODEL.onnx --budget SIZE`: the main job; `ckc plan` is the same without running a step.
 *
 * It plans, runs, and only when all went well writes the weights and gradients that were asked for, then
 * MODEL.ckc/ with the schedule, its kernels and the report. */
#include "plot.h"
#include "ir/mem.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool check_offload(Options *o)
{
    const StepOptions *s = &o->step;
    const DeviceInfo *device = step_device(s);
    if (s->offload == OFFLOAD_NO || (s->offload == OFFLOAD_AUTO && !s->host_bytes))
        return true;
    if (o->cuda)
        return fail(&o->diag, "--emit cuda prints no copies to the host's memory: --offload no");
    if (s->least_bytes)
        return fail(&o->diag, "--overhead does not offload");
    return device->host_link > 0 ||
           fail(&o->diag, "--offload and --host-memory: --device %s has no memory but the host's",
                device->name);
}

const char *step_take_out(StepOptions *s, Diag *d)
{
    static const char *const option[] = {"lr", "momentum", "beta1", "beta2", "eps", "weight-decay"};
    for (int i = 0; i < OPTIM_NUMBERS && s->optim != OPTIM_NONE; i++) {
        if (isnan(s->number.v[i]) || !isnan(optim_default[s->optim].v[i]))
            continue;
        char have[80] = "";
        for (int k = 0; optim_name[k]; k++)
            if (!isnan(optim_default[k].v[i]))
                snprintf(have + strlen(have), sizeof have - strlen(have), "%s%s", have[0] ? ", " : "",
                         optim_name[k]);
        s->number.v[i] = NAN;
        diag_set(d, "--%s belongs to --optimizer %s", option[i], have);
        return option[i];
    }
    if (s->nesterov && s->optim != OPTIM_MOMENTUM) {
        s->nesterov = false;
        diag_set(d, "--nesterov belongs to --optimizer momentum");
        return "nesterov";
    }
    if ((s->nno_decay || s->no_decay_auto) && !(optim_numbers(s).weight_decay > 0)) {
        s->nno_decay = 0;
        s->no_decay_auto = false;
        diag_set(d, "--no-decay needs a --weight-decay");
        return "no-decay";
    }
    return NULL;
}

/* Refuses options that would change nothing. */
static bool check_options(Options *o)
{
    const StepOptions *s = &o->step;
    Diag *d = &o->diag;
    if (!o->path)
        return fail(d, "no model given (try ckc --help)");
    StepOptions other = *s;
    if (step_take_out(&other, d))
        return false;
    if (s->number.beta1 >= 1 || s->number.beta2 >= 1) /* their corrections would divide by zero */
        return fail(d, "--beta1 and --beta2 have to be below 1");
    if (s->loss_scale > 0 && s->precision != PRECISION_FP16)
        return fail(d, "--loss-scale belongs to --precision fp16");
    if (o->val && (s->optim == OPTIM_NONE || s->loss == LOSS_NONE))
        return fail(d, "--val needs a loss and an optimizer");
    if (o->val_every && !o->val)
        return fail(d, "--val-every needs --val");
    if (o->onnx && (o->accumulate_auto || s->accumulate > 1))
        return fail_status(d, EXIT_UNSUPPORTED,
                           "--emit onnx: steps in micro-batches are not translated; leave out --accumulate");
    if (s->optim == OPTIM_NONE && (o->accumulate_auto || s->accumulate > 1 || s->clip_norm > 0))
        return fail(d, "--accumulate and --clip-norm need an optimizer");
    if (s->optim == OPTIM_NONE &&
        (!isnan(s->number.lr) || !isnan(s->number.weight_decay) || o->schedule >= 0 || o->warmup >= 0))
        return fail(d, "--lr, --schedule, --warmup and --weight-decay need an optimizer");
    if (o->accumulate_auto && s->least_bytes)
        return fail(d, "--accumulate auto looks for the least time within --budget, not for --overhead");
    if (s->least_bytes && (s->budget || s->budget_fraction > 0 || s->policy))
        return fail(d, "--overhead takes the place of --budget and --policy");
    if (s->policy && (s->time_limit > 0 || s->max_moves > 0 || s->gap > 0))
        return fail(d, "--time, --moves and --gap are of the search, which --policy takes the place of");
    if (o->training && (s->optim != OPTIM_NONE || s->keep_grads) && !o->val && !saves(o, ".onnx"))
        return fail(d, "--training belongs to --val, to --save FILE.onnx and to --optimizer none");
    if (o->accumulate_auto && s->instance)
        return fail(d, "--instance is of one plan: give --accumulate a number");
    if (s->loss == LOSS_NONE && s->loss_output)
        return fail(d, "--loss-output needs a loss");
    if (o->steps == 0 && (o->nsave || o->grads))
        return fail(d, "--save and --grads need a step to have run");
    if (!o->ops && o->steps != 0)
        return fail(d, "--device %s is not this machine: ckc plan plans for it", s->device->name);
    if (!(o->ops && o->ops->threads) && s->threads)
        return fail(d, "--threads belongs to this machine, not to --device %s", s->device->name);
    if (s->keep_grads && s->loss == LOSS_NONE)
        return fail(d, "--grads needs a loss");
    return check_offload(o);
}

/* If no device was named, takes a GPU that is here with all the libraries it needs, unless --threads asks for
 * the processor. */
static void find_gpu(Options *o)
{
    DeviceInfo gpu;
    Diag why = {0};
    const DeviceOps *cuda = device_here("cuda", &o->ordinal);
    if (o->step.threads || !cuda->info(o->ordinal, &gpu, &o->arena, &why))
        return;
    if (!cuda->complete(&why)) {
        o->unused = arena_printf(&o->arena, "%s is here and not used: %s", gpu.title, why.msg);
        return;
    }
    o->ops = cuda;
    o->device = gpu;
    o->step.device = &o->device;
}

/* Finds the device that the step is planned for and runs on.  --emit cuda needs a plan for a GPU, an H200 if
 * none was named or found, and records the inputs of the steps. */
static bool find_device(Options *o)
{
    enum { RECORDED = 10 };
    if (!o->step.device)
        find_gpu(o);
    if (!o->cuda)
        return true;
    if (!o->step.device) {
        TRY(device_find(&o->device, "h200", &o->arena, &o->diag));
        o->step.device = &o->device;
        o->ops = NULL;
    }
    if (o->step.offload == OFFLOAD_AUTO && !o->step.host_bytes)
        o->step.offload = OFFLOAD_NO;
    if (!o->ops && o->epochs)
        return fail(&o->diag,
                    "--emit cuda runs no step here: --steps N says of how many it writes the inputs, "
                    "not --epochs");
    o->record = o->steps < 0 ? RECORDED : o->steps;
    o->steps = o->ops ? o->steps : 0;
    return o->device.capability > 0 ||
           fail(&o->diag, "--emit cuda: %s is no NVIDIA GPU", o->step.device->name);
}

/* Writes all files, the trained weights first: they are worth the most, and the rest may fail. */
static bool write_all(Job *j)
{
    TRY(output_finite(j, job_made(j)));
    json_t *report = report_json(j);
    bool ok = output_weights(j);
    ok &= output_grads(j);
    ok &= plot_write(j);
    ok &= trace_write(j);
    ok &= output_folder(j, report);
    ok &= steplog_close(j);
    if (ok && j->o->json)
        report_write(report, stdout);
    else if (ok && !j->o->quiet)
        report_print(j, stdout);
    json_decref(report);
    return ok;
}

bool step_check(Options *o)
{
    TRY(find_device(o) && check_options(o));
    /* Without an optimizer and gradients the step only evaluates; gradients need the training form. */
    o->step.import.inference = o->step.optim == OPTIM_NONE && !o->step.keep_grads && !o->training;
    return true;
}

int cmd_train(Options *o)
{
    Job *j = job_new(o);
    bool ok = step_check(o) && output_check(j);
    PassRun how = {.disable = o->disable, .dump = o->dump, .time = o->time_passes};
    ok = ok && validation_plan(j, &how) && job_plan_best(&j, &how) && output_translates(j) && job_train(j) &&
         write_all(j);
    int status = job_status(j, ok);
    job_free(j);
    return status;
}

int cmd_plan(Options *o)
{
    o->steps = 0;
    return cmd_train(o);
}
