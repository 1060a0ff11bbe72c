/* accumulate.c -- `--accumulate auto`: the number of micro-batches is chosen together with what is
 * recomputed, under one budget (fission).
 *
 * A batch in k parts holds a k-th of its activations and reads the weights k times: where that costs
 * less than recomputing, the batch is cut, and what still does not fit is recomputed.  One batch is
 * planned first; if it recomputes, the other divisors of the batch are planned, unless a bound shows that
 * they take longer, until one recomputes nothing and is no faster (smaller parts can be faster, as they fit
 * caches better).  The plan with the least predicted time is chosen: it is never above that of recomputation
 * alone (k = 1) or of micro-batches alone (those k that recompute nothing). */
#include "option.h"
#include "ir/mem.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    Options *o;
    const PassRun *how;
    StepOptions given;  /* the options for the whole batch */
    Job *best;          /* the job of one batch, until there is a better one */
    bool planned; /* best has a plan; else it takes the fewest bytes, in `k` micro-batches, and `why` says
                   * why there is none */
    int64_t k;
    Diag why;
    Batch batch;
    int64_t budget;     /* bytes, as --budget has them, the same for every k */
    LossKind loss;      /* the whole batch's; LOSS_AUTO: the model's own, or as given */
    Trial *trial;
    uint32_t ntrial, ctrial;
} Choice;

/* Finds the batch that --bind gives; o->batch: by this name. */
static bool find_batch(Choice *c)
{
    Options *o = c->o;
    const Batch b = c->batch = batch_find(c->best->model, &o->step.import, o->batch, true, &o->arena);
    if (b.other)
        return fail(&o->diag, "--accumulate auto: which is the batch, %s or %s?  Say auto:%s", b.name[0],
                    b.other, b.name[0]);
    return b.n || fail(&o->diag,
                       "--accumulate auto cuts the batch: --bind has to give it, by %s, the "
                       "first dimension of an input",
                       o->batch ? o->batch : "its symbol");
}

/* ---- plans --------------------------------------------------------------------------------------- */

/* Records a trial for the report, in the order of k. */
static void add_trial(Choice *c, int64_t k, const Job *j, bool planned)
{
    Arena *a = &c->o->arena;
    Trial t = {.k = k, .why = planned ? NULL : arena_printf(a, "%s", c->o->diag.msg)};
    if (planned) {
        t.ns = j->plan->predicted_ns;
        t.base_ns = j->plan->base_ns;
        t.bytes = j->plan->arena_bytes;
        t.recomputed = j->info.nrecomputed;
    }
    c->trial = arena_grow(a, c->trial, c->ntrial, &c->ctrial, sizeof *c->trial);
    uint32_t i = c->ntrial++;
    for (; i > 0 && c->trial[i - 1].k > k; i--)
        c->trial[i] = c->trial[i - 1];
    c->trial[i] = t;
}

/* The whole batch's options, changed for k micro-batches that must take less time than the best job. */
static StepOptions options_for(const Choice *c, int64_t k)
{
    StepOptions s = c->given;
    batch_set(&s.import, &c->batch, c->batch.size / k, &c->o->arena);
    s.accumulate = k;
    s.budget = c->budget;
    s.budget_fraction = 0;
    s.loss = c->loss != LOSS_AUTO ? c->loss : s.loss; /* one row of outputs may look like a loss */
    s.limit_ns = c->planned ? c->best->plan->predicted_ns : INT64_MAX;
    return s;
}

typedef struct {
    bool planned, better, recomputed;
} Tried;

/* Frees j, and hands the data and the validation, which jobs share, to the job that stays. */
static void drop(Job *j, Job *stays)
{
    stays->data = stays->data ? stays->data : j->data;
    stays->val = stays->val ? stays->val : j->val;
    j->data = NULL;
    j->val = NULL;
    job_free(j);
}

/* The fewest values over which a batch norm takes its statistics; 0: there is no batch norm. */
static int64_t least_normalized(const Graph *g)
{
    int64_t least = 0;
    for (uint32_t i = 0; i < g->norder; i++) {
        const Node *n = &g->nodes[g->order[i].i];
        if (n->op != OP_batch_norm)
            continue;
        const Type *t = val_type(g, n->in[0]);
        int64_t channels = t->dim[((const NormAttrs *)n->attr)->axis];
        int64_t values = type_count(t) / (channels ? channels : 1);
        least = least && least < values ? least : values;
    }
    return least;
}

/* Plans micro-batches; fails if a batch norm would have one value, as that has no variance. */
static bool plan_micro(Choice *c, Job *j)
{
    TRY(job_plan(j, c->how));
    return least_normalized(&j->graph) != 1 ||
           fail_status(&c->o->diag, EXIT_INFEASIBLE, "a batch norm would have one value in a micro-batch");
}

/* Does job a, which has no plan, take fewer bytes than b, which has none either? */
static bool takes_less(const Job *a, const Job *b)
{
    int64_t x = a->info.plan.min_feasible_bytes, y = b->info.plan.min_feasible_bytes;
    return x > 0 && (y <= 0 || x < y);
}

/* Makes j the best job. */
static void choose(Choice *c, Job *j)
{
    drop(c->best, j);
    c->best = j;
}

/* A plan without recomputation; a faster one than the best; one of the fewest bytes, where none fits. */
typedef enum { ALONE, FASTER, LEAST } Aim;

/* Plans k micro-batches.  False: the device failed; it is not a failure if there is no such plan. */
static bool try_micro(Choice *c, int64_t k, Aim aim, Tried *tried)
{
    Options *o = c->o;
    Job *j = job_new(o);
    j->data = c->best->data;
    StepOptions s = options_for(c, k), before = o->step;
    if (aim != FASTER)
        s.limit_ns = aim == ALONE; /* 1: nothing is searched; 0: the cheapest is wanted */
    o->step = s;
    bool planned = plan_micro(c, j);
    bool better = planned && (!c->planned || j->plan->predicted_ns < c->best->plan->predicted_ns);
    if (planned || aim == FASTER)
        add_trial(c, k, j, planned);
    *tried = (Tried){.planned = planned, .better = better, .recomputed = j->info.nrecomputed > 0};
    if (better) {
        choose(c, j);
        c->planned = true;
        return true;
    }
    if (!planned && aim == LEAST && takes_less(j, c->best)) {
        choose(c, j);
        c->k = k;
        c->why = o->diag;
    } else {
        drop(j, c->best);
    }
    o->step = before;
    if (!planned && o->diag.status == EXIT_DEVICE)
        return false;
    o->diag = (Diag){0};
    return true;
}

static void mention(Choice *c)
{
    Job *j = c->best;
    int64_t k = j->plan->accumulate;
    if (k > 1)
        job_remark(
            j,
            arena_printf(&j->arena,
                         "--accumulate auto: %" PRId64 " micro-batches of %s = %" PRId64
                         "; the result's last bits depend on their number%s",
                         k, c->batch.name[0], c->batch.size / k,
                         least_normalized(&j->graph) ? ", and batch norms take the statistics of each" : ""));
}

/* The fewest micro-batches that recompute nothing are planned first, without a search; numbers that a bound
 * shows to be slower then need no search either.  Beyond that number, the first plan that recomputes nothing
 * and is no faster ends it, as more micro-batches would only read the weights more often.  Where nothing
 * fits, the smallest micro-batches are searched in full, for the bytes to say. */
static bool try_all(Choice *c)
{
    int64_t whole = c->batch.size, alone = 0;
    bool enough = c->planned && !c->best->info.nrecomputed;
    Tried t;
    for (int64_t k = 2; k <= whole && !enough && !alone; k++)
        if (whole % k == 0) {
            TRY(try_micro(c, k, ALONE, &t));
            alone = t.planned ? k : 0;
        }
    for (int64_t k = 2; k <= whole && !enough; k++) {
        if (k == alone)
            enough = c->best->plan->accumulate != k;
        else if (whole % k == 0) {
            TRY(try_micro(c, k, FASTER, &t));
            enough = t.planned && !t.better && !t.recomputed;
        }
    }
    return c->planned || whole < 2 || try_micro(c, whole, LEAST, &t);
}

/* Plans the whole batch, which the others are compared with. */
static bool try_whole(Choice *c)
{
    Options *o = c->o;
    c->best->model = onnx_open(o->path, &o->diag);
    TRY(c->best->model && find_batch(c));
    c->planned = job_plan(c->best, c->how);
    c->loss = c->best->info.appended;
    if (!c->planned && o->diag.status != EXIT_INFEASIBLE)
        return false;
    add_trial(c, 1, c->best, c->planned);
    /* a plan's budget includes what the device reserves */
    int64_t outside = c->planned ? c->given.beside : step_outside(&c->given);
    c->budget = c->given.budget ? c->given.budget : c->best->info.plan.budget + outside;
    c->k = 1;
    c->why = o->diag;
    o->diag = (Diag){0};
    return true;
}

bool job_plan_best(Job **job, const PassRun *how)
{
    Options *o = (*job)->o;
    bool budget = o->step.budget || o->step.budget_fraction > 0;
    if (!o->accumulate_auto || !budget)
        return job_plan(*job, how);
    double start = clock_seconds();
    Choice c = {.o = o, .how = how, .given = o->step, .best = *job};
    bool ok = try_whole(&c) && try_all(&c);
    *job = c.best;
    if (!ok)
        return false;
    if (!c.planned)
        return fail_status(
            &o->diag, EXIT_INFEASIBLE,
            "neither one batch nor micro-batches of it fit; the least is that of %lld: %.3900s",
            (long long)c.k, c.why.msg);
    c.best->trial = c.trial;
    c.best->ntrial = c.ntrial;
    c.best->plan_seconds = clock_seconds() - start;
    mention(&c);
    return true;
}
