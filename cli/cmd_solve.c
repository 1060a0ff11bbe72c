/* cmd_solve.c -- `ckc solve INSTANCE.dag`: the rematerialization solver on instance files.
 */
#include "message.h"
#include "../ir/file.h"
#include "../passes/remat/remat.h"
#include "ir/mem.h"

#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cmd_solve(int argc, char **argv);

enum { KEY_GAP = 256, KEY_MOVES, KEY_JSON, KEY_PARETO, KEY_MIN, KEY_POLICY };

typedef struct {
    const char *path, *budget, *output, *policy;
    double time, gap;
    int64_t moves;
    uint64_t seed;
    int threads, pareto;
    bool json, min_budget;
} Args;

typedef struct {
    const Args *args;
    RematInstance inst;
    const int64_t *ids;
    int64_t budget, input_peak, base_cost;
    char err[REMAT_ERR];
    Diag diag; /* of what is written */
} Job;

static const struct argp_option option_table[] = {
    {"budget", 'b', "BYTES|%", 0, "Bytes, or a percentage of the input order's peak", 0},
    {"time", 't', "SECONDS", 0, "Time limit (default 10)", 0},
    {"moves", KEY_MOVES, "N", 0, "Limit of search moves; without --time the only limit", 0},
    {"seed", 's', "N", 0, "Random seed (default 1)", 0},
    {"threads", 'j', "N", 0, "Threads (default 1)", 0},
    {"gap", KEY_GAP, "PERCENT", 0, "Stop when the cost is this close to the lower bound",
     0},
    {"output", 'o', "FILE", 0, "Write the schedule: ids in execution order", 0},
    {"json", KEY_JSON, NULL, 0, "Print JSON", 0},
    {"pareto", KEY_PARETO, "N", 0, "Solve N budgets down to the least one", 0},
    {"min-budget", KEY_MIN, NULL, 0, "Search for the least budget", 0},
    {"policy", KEY_POLICY, "NAME", 0, "A named policy instead of the search, or 'all'", 0},
    {0},
};

static bool read_double(const char *text, double low, double high, double *x)
{
    char *end;
    *x = strtod(text, &end);
    return end != text && (*end == 0 || strcmp(end, "%") == 0) && *x >= low && *x <= high;
}

static bool read_int(const char *text, int64_t low, int64_t high, int64_t *x)
{
    char *end;
    errno = 0;
    *x = strtoll(text, &end, 10);
    return end != text && *end == 0 && errno == 0 && *x >= low && *x <= high;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    Args *a = state->input;
    int64_t n = 0;
    bool ok = true;
    switch (key) {
    case 'b': a->budget = arg; break;
    case 't': ok = read_double(arg, 1e-3, 1e9, &a->time); break;
    case KEY_GAP: ok = read_double(arg, 0, 1e6, &a->gap); break;
    case KEY_MOVES: ok = read_int(arg, 1, INT64_MAX, &a->moves); break;
    case 's':
        ok = read_int(arg, 0, INT64_MAX, &n);
        a->seed = (uint64_t)n;
        break;
    case 'j':
        ok = read_int(arg, 1, REMAT_MAX_THREADS, &n);
        a->threads = (int)n;
        break;
    case KEY_PARETO:
        ok = read_int(arg, 2, 4096, &n);
        a->pareto = (int)n;
        break;
    case 'o': a->output = arg; break;
    case KEY_JSON: a->json = true; break;
    case KEY_MIN: a->min_budget = true; break;
    case KEY_POLICY: a->policy = arg; break;
    case ARGP_KEY_INIT: state->err_stream = NULL; break; /* no second line */
    case ARGP_KEY_ARG:
        if (a->path)
            usage_error("one instance at a time");
        a->path = arg;
        break;
    case ARGP_KEY_END:
        if (!a->path)
            usage_error("no instance given");
        if (!a->budget && !a->pareto && !a->min_budget)
            usage_error("--budget is missing");
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    if (!ok)
        usage_error("bad number '%s'", arg);
    return 0;
}

static bool find_budget(Job *job)
{
    const char *text = job->args->budget;
    double percent;
    if (!text)
        return true;
    if (strchr(text, '%')) {
        if (!read_double(text, 0, 1e6, &percent))
            return false;
        int64_t whole = job->inst.whole > 0 ? job->inst.whole : job->input_peak;
        job->budget = (int64_t)((double)whole * percent / 100);
        return true;
    }
    return read_int(text, 0, INT64_MAX, &job->budget);
}

/* ---- reports ------------------------------------------------------------------------- */

static double over_base(const Job *job, int64_t cost)
{
    return job->base_cost > 0 ? 100 * ((double)cost / (double)job->base_cost - 1) : 0;
}

static double gap_of(const RematResult *r)
{
    return r->lower_bound > 0 ? 100 * ((double)r->cost / (double)r->lower_bound - 1) : 0;
}

static json_t *result_json(const Job *job, const RematResult *r, int64_t budget)
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
        "instance", json_text(job->args->path), "budget", (json_int_t)budget, "feasible", r->feasible,
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

/* In % of the peak of the instance's order. */
static double of_peak(const Job *job, int64_t bytes)
{
    return job->input_peak ? 100 * (double)bytes / (double)job->input_peak : 0;
}

static void print_result(const Job *job, const RematResult *r, int64_t budget)
{
    if (!r->feasible) {
        printf("budget %" PRId64 " (%.2f %%): %s; least peak found %" PRId64
               " (%.3f %%), none below %" PRId64 " (%.3f %%)\n",
               budget, of_peak(job, budget),
               r->proved_infeasible ? "infeasible" : "no schedule found", r->min_budget,
               of_peak(job, r->min_budget), r->min_budget_bound,
               of_peak(job, r->min_budget_bound));
        return;
    }
    printf("budget %" PRId64 " (%.2f %%): cost %" PRId64
           " (+%.4f %%), bound +%.4f %%, gap %.4f %%%s, peak %" PRId64
           " (%.3f %%), %d steps, %.2f s\n",
           budget, of_peak(job, budget), r->cost, over_base(job, r->cost),
           over_base(job, r->lower_bound), gap_of(r), r->proved_optimal ? " (optimal)" : "",
           r->peak, of_peak(job, r->peak), r->n, r->seconds);
}

static bool write_schedule(Job *job, const RematResult *r)
{
    NewFile f;
    if (!job->args->output)
        return true;
    if (!file_create(&f, job->args->output, &job->diag))
        return false;
    for (int32_t i = 0; i < r->n; i++)
        fprintf(f.f, "%" PRId64 "\n", job->ids[r->seq[i]]);
    return file_commit(&f, &job->diag);
}

/* ---- the jobs: exit status ----------------------------------------------------------- */

static int bad(const Job *job)
{
    Diag d = job->diag;
    diag_set(&d, "%s", job->err); /* unless it has failed */
    return report_error(&d, NULL);
}

static RematOptions options_of(const Job *job)
{
    RematOptions o = remat_defaults(job->budget);
    o.time_limit_s = job->args->time > 0 ? job->args->time : job->args->moves > 0 ? 0 : 10;
    o.max_moves = job->args->moves;
    o.seed = job->args->seed;
    o.threads = job->args->threads;
    o.gap = job->args->gap / 100;
    return o;
}

static int finish(Job *job, RematResult *r, int64_t budget)
{
    int status = r->feasible ? EXIT_SUCCESS : EXIT_INFEASIBLE;
    json_t *j = job->args->json ? result_json(job, r, budget) : NULL;
    if (j)
        json_print(j, 9);
    else
        print_result(job, r, budget);
    json_decref(j);
    if (r->feasible && !write_schedule(job, r))
        status = bad(job);
    remat_result_free(r);
    return status;
}

static int run_solve(Job *job)
{
    RematOptions o = options_of(job);
    RematResult r;
    bool min = job->args->min_budget;
    if (!(min ? remat_min_budget : remat_solve)(&job->inst, &o, &r, job->err))
        return bad(job);
    return finish(job, &r, min ? r.peak : job->budget);
}

static int run_pareto(Job *job)
{
    RematOptions o = options_of(job);
    int32_t n = job->args->pareto;
    RematResult *r = mem_new((size_t)n, sizeof *r);
    json_t *all = json_array();
    int status = EXIT_SUCCESS;
    o.budget = job->args->budget ? job->budget : 0;
    if (!remat_pareto(&job->inst, &o, NULL, n, r, job->err))
        status = bad(job);
    for (int32_t i = 0; i < n && status == EXIT_SUCCESS; i++) {
        if (job->args->json)
            json_array_append_new(all, result_json(job, &r[i], r[i].budget));
        else
            print_result(job, &r[i], r[i].budget);
    }
    if (job->args->json && status == EXIT_SUCCESS)
        json_print(all, 9);
    for (int32_t i = 0; i < n; i++)
        remat_result_free(&r[i]);
    json_decref(all);
    free(r);
    return status;
}

static int run_policies(Job *job)
{
    bool all = strcmp(job->args->policy, "all") == 0;
    json_t *list = json_array();
    for (int i = 0; all && remat_policies[i]; i++) {
        RematResult r;
        if (!remat_named_policy(&job->inst, remat_policies[i], job->budget, &r, job->err))
            return bad(job);
        if (job->args->json) {
            json_t *j = result_json(job, &r, job->budget);
            json_object_set_new(j, "policy", json_string(remat_policies[i]));
            json_array_append_new(list, j);
        } else {
            printf("%-14s cost +%9.4f %%  peak %8.3f %%  %s\n", remat_policies[i],
                   over_base(job, r.cost), of_peak(job, r.peak),
                   r.feasible ? "fits" : "over budget");
        }
        remat_result_free(&r);
    }
    if (all && job->args->json)
        json_print(list, 9);
    json_decref(list);
    if (all)
        return EXIT_SUCCESS;
    RematResult r;
    if (!remat_named_policy(&job->inst, job->args->policy, job->budget, &r, job->err))
        return bad(job);
    return finish(job, &r, job->budget);
}

int cmd_solve(int argc, char **argv)
{
    static const struct argp argp = {option_table,
                                     parse_option,
                                     "INSTANCE.dag",
                                     "Find the cheapest schedule within a memory budget.",
                                     NULL,
                                     NULL,
                                     NULL};
    Args args = {.seed = 1, .threads = 1};
    Job job = {.args = &args};
    argp_err_exit_status = EXIT_FAILURE;
    if (argp_parse(&argp, argc, argv, 0, NULL, &args))
        return EXIT_FAILURE;
    if ((args.output && !file_try(args.output, &job.diag)) ||
        !remat_read(args.path, &job.inst, &job.ids, job.err))
        return bad(&job);
    job.input_peak = remat_input_peak(&job.inst);
    job.base_cost = remat_base_cost(&job.inst);
    int status;
    if (!find_budget(&job)) {
        snprintf(job.err, sizeof job.err, "bad budget '%.100s'", args.budget);
        status = bad(&job);
    } else if (args.policy) {
        status = run_policies(&job);
    } else if (args.pareto) {
        status = run_pareto(&job);
    } else {
        status = run_solve(&job);
    }
    remat_free(&job.inst);
    return status;
}
