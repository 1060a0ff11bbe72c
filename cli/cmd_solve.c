/* cmd_solve.c -- `ckc solve INSTANCE.dag`: the rematerialization solver on instance files. */
#include "cli.h"
#include "ir/file.h"
#include "passes/remat/remat.h"
#include "ir/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    Options *o;
    RematInstance inst;
    const int64_t *ids;
    int64_t budget, input_peak, base_cost;
    char err[REMAT_ERR];
} Solve;

/* What percentages are of: the bytes that the instance says, or the peak of its own order. */
static int64_t whole_of(const Solve *job) { return job->inst.whole > 0 ? job->inst.whole : job->input_peak; }

static bool find_budget(Solve *job)
{
    const int64_t most = (int64_t)1 << 62; /* bytes of an instance are fewer */
    const char *text = job->o->budget;
    char *end;
    errno = 0;
    if (!text)
        return true;
    if (strchr(text, '%')) {
        double percent = strtod(text, &end), bytes = (double)whole_of(job) * percent / 100;
        bool ok = end != text && strcmp(end, "%") == 0 && percent >= 0 && percent <= 1e6;
        job->budget = ok && bytes < (double)most ? (int64_t)bytes : most;
        return ok;
    }
    job->budget = strtoll(text, &end, 10);
    bool ok = *end ? parse_bytes(text, &job->budget) : end != text && errno == 0 && job->budget >= 0;
    job->budget = job->budget < most ? job->budget : most;
    return ok;
}

/* ---- reports ------------------------------------------------------------------------- */

static double over_base(const Solve *job, int64_t cost)
{
    return job->base_cost > 0 ? 100 * ((double)cost / (double)job->base_cost - 1) : 0;
}

static double gap_of(const RematResult *r)
{
    return r->lower_bound > 0 ? 100 * ((double)r->cost / (double)r->lower_bound - 1) : 0;
}

static json_t *result_json(const Solve *job, const RematResult *r, int64_t budget)
{
    json_t *history = json_array();
    for (int32_t i = 0; i < r->nhistory; i++)
        json_array_append_new(history,
                              json_pack("{s:f, s:I, s:I}", "seconds", r->history[i].seconds,
                                        "moves", (json_int_t)r->history[i].moves, "cost",
                                        (json_int_t)r->history[i].cost));
    json_t *j = json_pack(
        "{s:o, s:I, s:b, s:I, s:f, s:I, s:I, s:f, s:b, s:b, s:I, s:I, s:i, s:I, s:f, s:f, "
        "s:I, s:I, s:o}",
        "instance", text_json(job->o->path), "budget", (json_int_t)budget, "feasible", r->feasible,
        "cost", (json_int_t)r->cost, "increase_percent", over_base(job, r->cost), "peak",
        (json_int_t)r->peak, "bound", (json_int_t)r->lower_bound, "gap_percent",
        gap_of(r), "proved_optimal", r->proved_optimal, "proved_infeasible",
        r->proved_infeasible, "min_budget", (json_int_t)r->min_budget, "min_budget_bound",
        (json_int_t)r->min_budget_bound, "steps", (int)r->n, "moves",
        (json_int_t)r->moves, "seconds", r->seconds, "cost_per_byte", r->price,
        "base_cost", (json_int_t)job->base_cost, "peak_of_input_order",
        (json_int_t)job->input_peak, "history", history);
    return j;
}

static double percent_of_whole(const Solve *job, int64_t bytes)
{
    return whole_of(job) ? 100 * (double)bytes / (double)whole_of(job) : 0;
}

static char *result_text(const Solve *job, const RematResult *r, int64_t budget)
{
    if (!r->feasible)
        return mem_printf("budget %" PRId64 " (%.2f %%): %s; least peak found %" PRId64
                          " (%.3f %%), none below %" PRId64 " (%.3f %%)\n",
                          budget, percent_of_whole(job, budget),
                          r->proved_infeasible ? "infeasible" : "no schedule found", r->min_budget,
                          percent_of_whole(job, r->min_budget), r->min_budget_bound,
                          percent_of_whole(job, r->min_budget_bound));
    return mem_printf("budget %" PRId64 " (%.2f %%): cost %" PRId64
                      " (+%.4f %%), bound +%.4f %%, gap %.4f %%%s, peak %" PRId64
                      " (%.3f %%), %d steps, %.2f s\n",
                      budget, percent_of_whole(job, budget), r->cost, over_base(job, r->cost),
                      over_base(job, r->lower_bound), gap_of(r), r->proved_optimal ? " (optimal)" : "",
                      r->peak, percent_of_whole(job, r->peak), r->n, r->seconds);
}

static void print_result(const Solve *job, const RematResult *r, int64_t budget)
{
    char *text = result_text(job, r, budget);
    print_lines(stdout, text, 4);
    free(text);
}

static bool write_schedule(Solve *job, const RematResult *r)
{
    NewFile f;
    if (!job->o->output)
        return true;
    if (!file_create(&f, job->o->output, &job->o->diag))
        return false;
    for (int32_t i = 0; i < r->n; i++)
        fprintf(f.f, "%s%" PRId64 "\n", r->seq[i] >= job->inst.nops ? "fetch " : "", job->ids[r->seq[i]]);
    return file_commit(&f, &job->o->diag);
}

/* ---- the jobs, which return the exit status ------------------------------------------ */

static int bad(const Solve *job)
{
    Diag d = job->o->diag;
    diag_set(&d, "%s", job->err); /* unless it has failed */
    return report_error(&d, NULL);
}

static RematOptions options_of(const Solve *job)
{
    const StepOptions *s = &job->o->step;
    RematOptions o = remat_defaults(job->budget);
    o.time_limit_s = s->time_limit > 0 ? s->time_limit : s->max_moves > 0 ? 0 : 10;
    o.max_moves = s->max_moves;
    o.seed = s->seed;
    o.threads = s->threads ? s->threads : 1;
    o.gap = s->gap;
    return o;
}

static int finish(Solve *job, RematResult *r, int64_t budget)
{
    int status = r->feasible ? EXIT_SUCCESS : EXIT_INFEASIBLE;
    json_t *j = job->o->json ? result_json(job, r, budget) : NULL;
    if (!j)
        print_result(job, r, budget);
    if (r->feasible && !write_schedule(job, r))
        status = bad(job);
    else if (j)
        json_print(j, 9);
    json_decref(j);
    remat_result_free(r);
    return status;
}

static int run_solve(Solve *job)
{
    RematOptions o = options_of(job);
    RematResult r;
    bool min = job->o->min_budget;
    if (!(min ? remat_min_budget : remat_solve)(&job->inst, &o, &r, job->err))
        return bad(job);
    return finish(job, &r, min ? r.peak : job->budget);
}

static int run_pareto(Solve *job)
{
    RematOptions o = options_of(job);
    int32_t n = (int32_t)job->o->pareto;
    RematResult *r = mem_new((size_t)n, sizeof *r);
    json_t *all = json_array();
    o.budget = job->o->budget ? job->budget : 0;
    bool ok = remat_pareto(&job->inst, &o, n, r, job->err);
    int status = ok ? EXIT_INFEASIBLE : bad(job);
    for (int32_t i = 0; i < n && ok; i++) {
        if (r[i].feasible)
            status = EXIT_SUCCESS;
        if (job->o->json)
            json_array_append_new(all, result_json(job, &r[i], r[i].budget));
        else
            print_result(job, &r[i], r[i].budget);
    }
    if (job->o->json && ok)
        json_print(all, 9);
    for (int32_t i = 0; i < n; i++)
        remat_result_free(&r[i]);
    json_decref(all);
    free(r);
    return status;
}

/* The search is limited by moves, so that a table is the same on every machine, unless a time is given. */
enum { MOVES = 1000000 };

static RematOptions search_options(const Solve *job)
{
    RematOptions o = options_of(job);
    o.time_limit_s = job->o->step.time_limit;
    o.max_moves = o.max_moves || o.time_limit_s > 0 ? o.max_moves : MOVES;
    return o;
}

/* Fills the row of a named policy or, for "ckc", of the search. */
static bool fill_row(Solve *job, PolicyTable *t, PolicyRow *row)
{
    RematResult r;
    RematOptions o = search_options(job);
    bool search = strcmp(row->policy, "ckc") == 0;
    TRY(search ? remat_solve(&job->inst, &o, &r, job->err)
               : remat_named_policy(&job->inst, row->policy, job->budget, &r, job->err));
    row->activations = r.peak - job->inst.persistent;
    row->peak = r.peak;
    row->redone = r.n - job->inst.nops;
    row->cost = (double)r.cost;
    row->fits = r.feasible;
    if (r.feasible && (double)r.lower_bound > t->bound)
        t->bound = (double)r.lower_bound;
    remat_result_free(&r);
    return true;
}

static int run_policies(Solve *job)
{
    RematBound bound;
    PolicyTable t = {
        .path = job->o->path, .budget = job->budget, .base = (double)job->base_cost, .whole = whole_of(job)};
    policy_rows(job->o, &t);
    if (!remat_bound(&job->inst, job->budget, 0, &bound, job->err))
        return bad(job);
    t.bound = bound.infeasible ? 0 : (double)bound.cost;
    bool fits = false;
    for (uint32_t i = 0; i < t.n; i++) {
        if (!fill_row(job, &t, &t.row[i]))
            return bad(job);
        fits |= t.row[i].fits;
    }
    if (job->o->json)
        policies_json(&t);
    else
        policies_print(stdout, &t);
    return fits ? EXIT_OK : EXIT_INFEASIBLE;
}

static int run_policy(Solve *job)
{
    RematResult r;
    RematBound bound;
    if (!remat_bound(&job->inst, job->budget, 0, &bound, job->err) ||
        !remat_named_policy(&job->inst, job->o->step.policy, job->budget, &r, job->err))
        return bad(job);
    remat_raise_bound(&r, bound.cost);
    return finish(job, &r, job->budget);
}

/* Is one thing asked for, and --output of one schedule? */
static bool check_options(Options *o)
{
    bool all = o->step.policy && strcmp(o->step.policy, "all") == 0;
    if (!!o->pareto + o->min_budget + !!o->step.policy > 1)
        return fail(&o->diag, "--pareto, --min-budget and --policy exclude each other");
    if (o->min_budget && o->budget)
        return fail(&o->diag, "--min-budget looks for the least --budget: leave that out");
    return !o->output || (!o->pareto && !all) ||
           fail(&o->diag, "--output is of one schedule, %s finds several", all ? "--policy all" : "--pareto");
}

static bool read_instance(Solve *job)
{
    Options *o = job->o;
    TRY(o->path || fail(&o->diag, "no instance given"));
    TRY(check_options(o));
    TRY(o->budget || o->pareto || o->min_budget || fail(&o->diag, "--budget is missing"));
    TRY(!o->output || file_try(o->output, &o->diag));
    TRY(remat_read(o->path, &job->inst, &job->ids, job->err));
    TRY(job->inst.nops || fail(&o->diag, "%s: has no operators", o->path));
    job->input_peak = remat_input_peak(&job->inst);
    job->base_cost = remat_base_cost(&job->inst);
    return find_budget(job) ||
           fail(&o->diag, "--budget: '%.100s' is no number of bytes, nor a percentage such as 50%%",
                o->budget);
}

int cmd_solve(Options *o)
{
    Solve job = {.o = o};
    int status;
    if (!read_instance(&job))
        status = bad(&job);
    else if (o->step.policy)
        status = strcmp(o->step.policy, "all") == 0 ? run_policies(&job) : run_policy(&job);
    else
        status = o->pareto ? run_pareto(&job) : run_solve(&job);
    remat_free(&job.inst);
    return status;
}

int solve_compare(Options *o)
{
    bool ok = !o->of_model || fail(&o->diag, "--%s needs a model, which an instance is not", o->of_model);
    if (!ok)
        return report_error(&o->diag, o->path);
    o->budget = o->budget ? o->budget : "50%";
    o->step.policy = "all";
    int status = cmd_solve(o);
    return status == EXIT_INFEASIBLE ? EXIT_OK : status; /* a comparison is done where nothing fits, too */
}
