/* train.c -- the training loop: feed, step, loss. */
#include "runtime_int.h"
#include "ir/mem.h"
#include <math.h>
#include <stdlib.h>

static bool set_scalars(Executor *x, const TrainOptions *o, int64_t step, int64_t batch,
                        int64_t micro, Diag *d)
{
    const StepInputs *in = &o->inputs;
    Tensor lr = exec_tensor(x, in->lr), count = exec_tensor(x, in->step);
    Tensor rng = exec_tensor(x, in->rng), part = exec_tensor(x, in->micro);
    if (lr.data)
        tensor_set_f(&lr, 0, o->lr);
    if (count.data)
        tensor_set_i(&count, 0, step);
    if (rng.data) {
        tensor_set_i(&rng, 0, o->seed);
        tensor_set_i(&rng, 1, batch);
    }
    if (part.data)
        tensor_set_i(&part, 0, micro);
    return exec_write(x, in->lr, d) && exec_write(x, in->step, d) && exec_write(x, in->rng, d) &&
           exec_write(x, in->micro, d);
}

/* The first output, if it is one float, is the loss. */
static bool has_loss(const Plan *p)
{
    const Type *t = p->g->nout ? val_type(p->g, p->g->out[0]) : NULL;
    return t && dtype_is_float(t->dt) && type_count(t) == 1;
}

static bool read_loss(Executor *x, double *loss, Diag *d)
{
    const Plan *p = exec_plan(x);
    Tensor t = has_loss(p) ? exec_tensor(x, p->g->out[0]) : (Tensor){.data = NULL};
    TRY(!t.data || exec_read(x, p->g->out[0], d));
    *loss = t.data ? tensor_f(&t, 0) : NAN;
    return true;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Without the first, unless it is alone. */
static double median(double *v, int64_t n)
{
    if (n == 0)
        return 0;
    v += n > 1;
    n -= n > 1;
    qsort(v, (size_t)n, sizeof *v, ascending);
    return (v[(n - 1) / 2] + v[n / 2]) / 2;
}

/* Seconds of an execution, so that all of a step take `total`. */
static void scale_to(double *v, const Plan *p, double total)
{
    double sum = 0;
    for (uint32_t i = 0; i < p->nstep; i++)
        sum += v[i] * (double)plan_times(p, i);
    for (uint32_t i = 0; i < p->nstep && sum > 0; i++)
        v[i] *= total / sum;
}

/* One update of the parameters: all micro-batches, each with the next batch of the data; the loss
 * is their mean.  *seconds: without feeding. */
static bool run_step(Executor *x, Feed *feed, const TrainOptions *o, int64_t step, double *loss,
                     double *each, double *seconds, Diag *d)
{
    int64_t n = exec_plan(x)->accumulate > 1 ? exec_plan(x)->accumulate : 1;
    *loss = *seconds = 0;
    for (int64_t micro = 0; micro < n; micro++) {
        int64_t batch = (step - 1) * n + micro + 1;
        double start, each_loss;
        TRY(feed_micro(feed, x, step, micro, n, d) && set_scalars(x, o, step, batch, micro, d));
        start = clock_seconds();
        TRY(exec_micro(x, each, d) && (micro + 1 < n || exec_rest(x, each, d)));
        *seconds += clock_seconds() - start;
        TRY(read_loss(x, &each_loss, d));
        *loss += each_loss / (double)n;
    }
    return true;
}

/* The update has been made from it: the weights of this step are lost. */
static bool check_loss(double loss, int64_t step, Diag *d)
{
    return isfinite(loss) ||
           fail_status(d, EXIT_DEVICE, "the loss of step %lld is %s: training stopped, nothing is "
                       "written; %s", (long long)step, isnan(loss) ? "NaN" : "infinite",
                       step > 1 ? "try a smaller --lr, or --clip-norm"
                                : "look at the data (values too large, or all targets ignored) and "
                                  "at the weights it starts from");
}

static bool read_scale(Executor *x, const TrainOptions *o, double *scale, Diag *d)
{
    Val v = o->inputs.scale;
    Tensor t = v.i ? exec_tensor(x, v) : (Tensor){.data = NULL};
    TRY(!t.data || exec_read(x, v, d));
    *scale = t.data ? tensor_f(&t, 0) : 0;
    return true;
}

/* A step whose gradients overflow in fp16 changes nothing but the scale of the loss. */
static bool watch_scale(Executor *x, const TrainOptions *o, int64_t step, TrainResult *r, bool *skipped,
                        Diag *d)
{
    static const double LEAST = 0x1p-16;
    double before = r->scale;
    TRY(read_scale(x, o, &r->scale, d));
    *skipped = r->scale < before;
    r->skipped += *skipped;
    if (*skipped && o->skipped)
        o->skipped(o->user, step, r->scale);
    return !*skipped || r->scale >= LEAST ||
           fail_status(d, EXIT_DEVICE, "step %lld overflows in fp16 whatever the scale of the loss: training "
                       "stopped, nothing is written; try --precision bf16", (long long)step);
}

static bool run_steps(Executor *x, Feed *feed, const TrainOptions *o, TrainResult *r,
                      double *seconds, Diag *d)
{
    TRY(read_scale(x, o, &r->scale, d));
    for (int64_t i = 0; i < o->steps; i++) {
        bool skipped;
        int64_t step = o->first + i + 1;
        TRY(run_step(x, feed, o, step, &r->loss[i], r->seconds, &seconds[i], d));
        r->steps = i + 1;
        if (o->each)
            o->each(o->user, step, r->loss[i], seconds[i]);
        TRY(watch_scale(x, o, step, r, &skipped, d));
        if (o->finite && !skipped && has_loss(exec_plan(x)))
            TRY(check_loss(r->loss[i], step, d));
        if (o->stop && *o->stop)
            break;
    }
    return true;
}

bool train_run(Executor *x, const TrainOptions *o, TrainResult *r, Diag *d)
{
    const Plan *p = exec_plan(x);
    size_t n = (size_t)(o->steps > 0 ? o->steps : 0) + 1;
    double *seconds = mem_new(n, sizeof *seconds);
    *r = (TrainResult){.loss = mem_new(n, sizeof *r->loss),
                       .seconds = mem_new(p->nstep + 1, sizeof *r->seconds)};
    Feed *feed = feed_open(p->g, &o->inputs, o->data, o->seed, d);
    ProcessorTime start = processor_time();
    bool ok = feed && run_steps(x, feed, o, r, seconds, d);
    r->others = others_since(&start);
    feed_close(feed);
    r->median = ok ? median(seconds, r->steps) : 0;
    if (ok)
        scale_to(r->seconds, p, r->median);
    free(seconds);
    if (!ok)
        train_result_free(r);
    return ok;
}

void train_result_free(TrainResult *r)
{
    free(r->loss);
    free(r->seconds);
    *r = (TrainResult){0};
}
