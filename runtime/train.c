/* train.c -- the training loop: feeds inputs, runs steps, checks losses. */
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
        tensor_set_f(&lr, 0, learning_rate(o->lr, &o->schedule, step));
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

bool graph_has_loss(const Graph *g)
{
    const Type *t = g->nout ? val_type(g, g->out[0]) : NULL;
    return t && dtype_is_float(t->dt) && type_count(t) == 1;
}

double plain_nan(double x) { return isnan(x) ? NAN : x; }

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double median(double *v, int64_t n)
{
    if (n == 0)
        return 0;
    qsort(v, (size_t)n, sizeof *v, ascending);
    return (v[(n - 1) / 2] + v[n / 2]) / 2;
}

/* Scales the seconds of the plan's steps, so that a training step takes `total` seconds. */
static void scale_to(double *v, const Plan *p, double total)
{
    double sum = 0;
    for (uint32_t i = 0; i < p->nstep; i++)
        sum += v[i] * (double)plan_times(p, i);
    for (uint32_t i = 0; i < p->nstep && sum > 0; i++)
        v[i] *= total / sum;
}

static bool read_scale(Executor *x, const TrainOptions *o, double *scale, Diag *d)
{
    Val v = o->inputs.scale;
    Tensor t = v.i ? exec_tensor(x, v) : (Tensor){.data = NULL};
    TRY(!t.data || exec_read(x, v, d));
    *scale = t.data ? tensor_f(&t, 0) : 0;
    return true;
}

typedef struct {
    Executor *x;
    Feed *feed;
    const TrainOptions *o;
    TrainResult *r;
    double *seconds;         /* per step, without feeding */
    int64_t room;            /* number of steps that `seconds` and r->loss have room for */
    int64_t micro;           /* micro-batches of a step */
    int64_t begun, finished; /* numbers of micro-batches begun and finished */
} Batches;

/* What the data of a step holds that is not finite, or that of the one before, which may have led to weights
 * that are not. */
static const char *infinite_data(const Batches *b, int64_t step, char text[FEED_TEXT_MAX])
{
    const char *found = feed_infinite(b->feed, step, b->micro, text);
    return *found || step == b->o->first + 1 ? found : feed_infinite(b->feed, step - 1, b->micro, text);
}

/* Fails if the loss is not finite; the weights are then lost, as the step has updated them already. */
static bool check_loss(const Batches *b, double loss, int64_t step, Diag *d)
{
    char text[FEED_TEXT_MAX];
    return isfinite(loss) ||
           fail_status(d, EXIT_DEVICE,
                       "the loss of step %lld is %s: training stopped, nothing is "
                       "written; %s%s",
                       (long long)step, isnan(loss) ? "NaN" : "infinite", infinite_data(b, step, text),
                       step > 1 ? "try a smaller --lr, or --clip-norm"
                                : "look at the data (values too large, or all targets ignored) and "
                                  "at the weights it starts from");
}

/* Finds out whether the step was skipped: a step whose gradients overflow in fp16 only lowers the loss scale.
 * Fails if the scale gets too small. */
static bool watch_scale(Batches *b, int64_t step, bool *skipped, Diag *d)
{
    static const double LEAST = 0x1p-16;
    const TrainOptions *o = b->o;
    TrainResult *r = b->r;
    double before = r->scale;
    char text[FEED_TEXT_MAX];
    TRY(read_scale(b->x, o, &r->scale, d));
    *skipped = r->scale < before;
    r->skipped += *skipped;
    if (*skipped && o->skipped)
        o->skipped(o->user, step, r->scale);
    return !*skipped || r->scale >= LEAST ||
           fail_status(d, EXIT_DEVICE,
                       "step %lld overflows in fp16 whatever the scale of the loss: training "
                       "stopped, nothing is written; %stry --precision bf16",
                       (long long)step, infinite_data(b, step, text));
}

/* Begins the next micro-batch; the last one of a step also updates the parameters. */
static bool begin_batch(Batches *b, Diag *d)
{
    const Graph *g = exec_plan(b->x)->g;
    int64_t step = b->o->first + b->begun / b->micro + 1, micro = b->begun % b->micro;
    int64_t batch = (step - 1) * b->micro + micro + 1;
    b->begun++;
    return feed_micro(b->feed, b->x, step, micro, b->micro, d) &&
           set_scalars(b->x, b->o, step, batch, micro, d) && exec_begin(b->x, d) &&
           exec_micro(b->x, b->r->seconds, d) &&
           (micro + 1 < b->micro || exec_rest(b->x, b->r->seconds, d)) &&
           exec_end(b->x, graph_has_loss(g) ? g->out[0] : (Val){0}, d);
}

static bool finish_step(Batches *b, int64_t i, Diag *d)
{
    bool skipped;
    const TrainOptions *o = b->o;
    int64_t step = o->first + i + 1;
    b->r->steps = i + 1;
    b->r->loss[i] = plain_nan(b->r->loss[i]);
    if (o->each)
        o->each(o->user, step, b->r->loss[i], b->seconds[i]);
    TRY(watch_scale(b, step, &skipped, d));
    bool looks = o->finite && !skipped && graph_has_loss(exec_plan(b->x)->g);
    return !looks || check_loss(b, b->r->loss[i], step, d);
}

/* Makes room for the results of step i, and clears them. */
static void make_room(Batches *b, int64_t i)
{
    if (i == b->room) {
        b->room = i ? 2 * i : 64;
        b->r->loss = mem_grow(b->r->loss, (size_t)b->room, sizeof *b->r->loss);
        b->seconds = mem_grow(b->seconds, (size_t)b->room, sizeof *b->seconds);
    }
    b->r->loss[i] = b->seconds[i] = 0;
}

/* Finishes the oldest micro-batch in flight.  The loss of a step is the mean over its micro-batches. */
static bool finish_batch(Batches *b, Diag *d)
{
    double loss, seconds;
    int64_t i = b->finished / b->micro;
    TRY(exec_finish(b->x, &loss, &seconds, d));
    if (b->finished % b->micro == 0)
        make_room(b, i);
    b->r->loss[i] += loss / (double)b->micro;
    b->seconds[i] += seconds;
    return ++b->finished % b->micro != 0 || finish_step(b, i, d);
}

static bool finish_all(Batches *b, Diag *d)
{
    while (b->finished < b->begun)
        TRY(finish_batch(b, d));
    return true;
}

/* Called after a micro-batch was begun: pauses if it is time to; *more: there are more to begin. */
static bool go_on(Batches *b, bool *more, Diag *d)
{
    const TrainOptions *o = b->o;
    int64_t step = o->first + b->begun / b->micro;
    *more = b->begun < o->steps * b->micro;
    if (b->begun % b->micro)
        return true;
    *more = *more && !(o->stop && *o->stop);
    if (!o->pause || (*more && !o->pauses(o->user, step)))
        return true;
    return finish_all(b, d) && o->pause(o->user, step, !*more, d);
}

/* The next micro-batch is prepared while one runs, unless a loss scale has to be checked after each step. */
static bool run_steps(Batches *b, Diag *d)
{
    const TrainOptions *o = b->o;
    int flight = o->inputs.scale.i ? 1 : exec_flight(b->x);
    TRY(read_scale(b->x, o, &b->r->scale, d));
    for (bool more = o->steps > 0; more;) {
        TRY(begin_batch(b, d));
        if (b->begun - b->finished == flight)
            TRY(finish_batch(b, d));
        TRY(go_on(b, &more, d));
    }
    return finish_all(b, d);
}

bool train_run(Executor *x, const TrainOptions *o, TrainResult *r, Diag *d)
{
    const Plan *p = exec_plan(x);
    *r = (TrainResult){.first = o->first, .seconds = mem_new(p->nstep + 1, sizeof *r->seconds)};
    Feed *random = o->feed ? NULL : feed_open(p->g, &o->inputs, NULL, FEED_FILE, o->seed, d);
    ProcessorTime start = o->others ? processor_time() : (ProcessorTime){0};
    Batches all = {.x = x,
                   .feed = random ? random : o->feed,
                   .o = o,
                   .r = r,
                   .micro = plan_batches(p)};
    bool ok = all.feed && run_steps(&all, d);
    r->others = o->others ? others_since(&start) : 0;
    feed_close(random);
    int64_t cold = r->steps > 1; /* the first step counts only if it is the only one */
    r->median = ok ? median(all.seconds + cold, r->steps - cold) : 0;
    if (ok)
        scale_to(r->seconds, p, r->median);
    if (r->steps == 0) { /* nothing was measured */
        free(r->seconds);
        r->seconds = NULL;
    }
    free(all.seconds);
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
