/* train.c -- the training loop: feed, step, loss. */
#include "runtime_int.h"
#include <math.h>
#include <stdlib.h>

static void set_scalars(Executor *x, const TrainOptions *o, int64_t step)
{
    Tensor lr = exec_tensor(x, o->inputs.lr), count = exec_tensor(x, o->inputs.step);
    Tensor rng = exec_tensor(x, o->inputs.rng);
    if (lr.data)
        tensor_set_f(&lr, 0, o->lr);
    if (count.data)
        tensor_set_i(&count, 0, step);
    if (rng.data) {
        tensor_set_i(&rng, 0, o->seed);
        tensor_set_i(&rng, 1, step);
    }
}

/* The first output, if it is one float. */
static bool read_loss(const Executor *x, double *loss)
{
    const Graph *g = exec_plan(x)->g;
    *loss = NAN;
    if (g->nout == 0)
        return false;
    Tensor t = exec_tensor(x, g->out[0]);
    if (!t.data || !dtype_is_float(t.type.dt) || type_count(&t.type) != 1)
        return false;
    *loss = tensor_f(&t, 0);
    return true;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int64_t n)
{
    if (n == 0)
        return 0;
    qsort(v, (size_t)n, sizeof *v, ascending);
    return (v[(n - 1) / 2] + v[n / 2]) / 2;
}

static void scale_to(double *v, uint32_t n, double total)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += v[i];
    for (uint32_t i = 0; i < n && sum > 0; i++)
        v[i] *= total / sum;
}

static bool run_steps(Executor *x, Feed *feed, const TrainOptions *o, TrainResult *r,
                      double *seconds, Diag *d)
{
    for (int64_t i = 0; i < o->steps; i++) {
        int64_t step = o->first + i + 1;
        feed_step(feed, x, step);
        set_scalars(x, o, step);
        double start = clock_seconds();
        TRY(exec_step(x, r->seconds, d));
        seconds[i] = clock_seconds() - start;
        r->steps = i + 1;
        if (read_loss(x, &r->loss[i]) && !isfinite(r->loss[i]) && !r->nan_step)
            r->nan_step = step;
        if (o->each)
            o->each(o->user, step, r->loss[i], seconds[i]);
    }
    return true;
}

bool train_run(Executor *x, const TrainOptions *o, TrainResult *r, Diag *d)
{
    const Plan *p = exec_plan(x);
    size_t n = (size_t)(o->steps > 0 ? o->steps : 0) + 1;
    double *seconds = calloc(n, sizeof *seconds);
    *r = (TrainResult){.loss = calloc(n, sizeof *r->loss),
                       .seconds = calloc(p->nstep + 1, sizeof *r->seconds)};
    bool ok = seconds && r->loss && r->seconds;
    if (!ok)
        diag_set(d, "out of memory");
    Feed *feed = ok ? feed_open(p->g, &o->inputs, o->data, o->seed, d) : NULL;
    ok = feed && run_steps(x, feed, o, r, seconds, d);
    feed_close(feed);
    r->median = ok ? median(seconds, r->steps) : 0;
    if (ok)
        scale_to(r->seconds, p->nstep, r->median);
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
