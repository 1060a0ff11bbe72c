/* cmd_compare.c -- `ckc compare MODEL.onnx --budget SIZE`: the same step planned by every named policy and by
 * the search.  The passes up to the plan run once; each plan is a fork of that job. */
#include "option.h"
#include "ir/mem.h"
#include "passes/remat/remat.h"
#include "runtime/runtime_int.h"
#include <math.h>
#include <string.h>

enum { ROUNDS = 3, STEPS = 3 }; /* measured rounds; steps of each, of which the first does not count */

typedef struct {
    Options *o;
    Job *base, **job; /* per row */
    PolicyTable table;
} Compare;

/* Fills a row with the numbers of a plan. */
static void fill_row(PolicyRow *r, const Job *j)
{
    const Plan *p = j->plan;
    r->activations = p->mem[MEM_ACTIVATION];
    r->peak = p->arena_bytes + p->reserved;
    r->redone = j->info.nrecomputed;
    r->cost = ns_ms(p->predicted_ns);
    r->fits = r->peak <= p->budget;
}

/* Fills in what is known even without a plan, when the budget is still the arena's alone. */
static void fill_table(PolicyTable *t, const Job *j, bool planned)
{
    const Plan *p = &j->info.plan;
    int64_t reserved = step_device(&j->o->step)->reserved;
    t->budget = p->budget + (planned ? 0 : reserved);
    t->whole = p->keep_all_bytes + reserved;
    t->base = ns_ms(p->base_ns);
}

/* The message without the list of what is held at the peak, which follows a tab. */
static const char *reason(Options *o)
{
    size_t n = strcspn(o->diag.msg, "\t\n");
    return arena_strndup(&o->arena, o->diag.msg, n && o->diag.msg[n - 1] == ':' ? n - 1 : n);
}

/* Plans a row; that there is no plan is not a failure of the command. */
static bool plan_row(Compare *c, uint32_t i)
{
    Options *o = c->o;
    PolicyRow *r = &c->table.row[i];
    bool search = strcmp(r->policy, "ckc") == 0;
    Job *j = c->job[i] = job_fork(c->base);
    o->step.policy = search ? NULL : r->policy;
    o->step.policy_anyway = true;
    bool planned = job_finish(j, &(PassRun){0});
    fill_table(&c->table, j, planned);
    if (planned) {
        fill_row(r, j);
        if (search)
            c->table.bound = ns_ms(j->plan->bound_ns);
        return true;
    }
    if (o->diag.status != EXIT_INFEASIBLE)
        return false;
    r->why = reason(o);
    o->diag = (Diag){0};
    return true;
}

static bool measure_row(Job *j, double *seconds)
{
    TRY(job_count(j) && job_begin(j));
    TrainOptions to = job_options(j, STEPS);
    to.others = true;
    TRY(train_run(j->exec, &to, &j->result, &j->o->diag));
    *seconds = j->result.median;
    return true;
}

/* Measures the plans that fit in turns, so that a slow phase of the machine affects all of them. */
static bool measure(Compare *c)
{
    double *seconds = NEW(&c->o->arena, double, c->table.n *ROUNDS);
    c->o->quiet = true;
    c->o->steps = STEPS;
    for (int round = 0; round < ROUNDS; round++)
        for (uint32_t i = 0; i < c->table.n; i++) {
            Job *j = c->job[i];
            if (!c->table.row[i].fits)
                continue;
            TRY(measure_row(j, &seconds[i * ROUNDS + (uint32_t)round]));
            c->table.others = fmax(c->table.others, j->result.others);
            job_close(j);
        }
    for (uint32_t i = 0; i < c->table.n; i++)
        if (c->table.row[i].fits)
            c->table.row[i].measured = 1e3 * median(&seconds[i * ROUNDS], ROUNDS);
    return true;
}

static bool prepare(Compare *c)
{
    Options *o = c->o;
    if (o->measure && !o->ops)
        return fail(&o->diag, "--measure: --device %s is not this machine", o->step.device->name);
    o->steps = o->measure ? STEPS : 0;
    TRY(step_check(o) && parse_budget(o, o->budget ? o->budget : "50%"));
    o->step.policy = "keep-all"; /* so that all kernels are measured well */
    return job_prepare(c->base, &(PassRun){0});
}

static bool compare(Compare *c)
{
    TRY(prepare(c));
    policy_rows(c->o, &c->table);
    c->job = NEW(&c->o->arena, Job *, c->table.n);
    for (uint32_t i = 0; i < c->table.n; i++)
        TRY(plan_row(c, i));
    TRY(!c->o->measure || measure(c));
    progress_end();
    if (c->o->json)
        policies_json(&c->table);
    else
        policies_print(stdout, &c->table);
    return true;
}

int cmd_compare(Options *o)
{
    if (o->path && has_suffix(o->path, ".dag"))
        return solve_compare(o);
    Compare c = {.o = o, .base = job_new(o)};
    c.table = (PolicyTable){.path = o->path, .in_ms = true, .measured = o->measure};
    int status = job_status(c.base, compare(&c));
    for (uint32_t i = 0; i < c.table.n; i++)
        job_free(c.job[i]);
    job_free(c.base);
    return status;
}
