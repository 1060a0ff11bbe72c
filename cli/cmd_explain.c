/* cmd_explain.c -- `ckc explain MODEL.onnx --budget SIZE`: what a plan does with every value, and why. */
#include "explain.h"
#include "ir/mem.h"
#include <fnmatch.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Rows shown of a decision; the budget's part by which a price is found; columns of indentation. */
enum { SHOWN = 8, PRICE_SHARE = 20, WRAPPED = 8 };

const char *const decision_name[DECISIONS] = {"kept", "redone", "moved"};

const char *const why_text[WHYS] = {
    [WHY_ROOM] = "there is room for it",
    [WHY_NOT_AT_PEAK] = "not there at the peak, where memory is short",
    [WHY_PRICE] = "would free less per ms than all that is redone",
    [WHY_INPUTS] = "what it is made of is gone: that would have to be made again, too",
};

/* Bytes freed per millisecond of recomputation; 0: it takes no time. */
static double rate_of(const Result *r)
{
    return r->ns > 0 ? 1e6 * (double)r->fate->bytes / (double)r->ns : 0;
}

/* ---- decisions -------------------------------------------------------------------------------------- */

Decision explain_decision(const Fate *f) { return f->fetched ? MOVED : f->redone ? REDONE : KEPT; }

static Result make_result(Explain *x, const Fate *f)
{
    enum { LABEL = 60 };
    const Plan *p = x->job->plan;
    char *label = NEW(&x->job->arena, char, LABEL);
    step_label(p, f->step, label, LABEL);
    return (Result){.fate = f,
                    .decision = explain_decision(f),
                    .module = step_module(p, f->step, &x->job->arena),
                    .kernel = label,
                    .ns = f->redone ? f->redone_ns / f->redone : p->step[f->step].cost_ns};
}

/* Is one of its inputs no longer in memory when it is read after the forward phase?  Then that would have to
 * be computed again, too. */
static bool inputs_gone(const Explain *x, const Fate *f)
{
    const Graph *g = x->job->plan->g;
    const Step *s = &x->job->plan->step[f->step];
    for (uint32_t k = 0; k < s->count; k++) {
        const Node *n = &g->nodes[g->order[s->first + k].i];
        for (int i = 0; i < n->nin; i++) {
            Val root = graph_root(g, n->in[i]);
            bool computed = root.i && g->vals[root.i].kind == VAL_TEMP && x->job->plan->offset[root.i] >= 0;
            uint32_t last = x->uses.last[root.i];
            if (computed && f->behind != NEVER && (last == NEVER || last < f->behind))
                return true;
        }
    }
    return false;
}

static Why why_kept(const Explain *x, const Result *r, double price)
{
    if (!price && !x->total[MOVED].n)
        return WHY_ROOM;
    if (!r->fate->at_peak)
        return WHY_NOT_AT_PEAK;
    if (rate_of(r) < price)
        return WHY_PRICE;
    return inputs_gone(x, r->fate) ? WHY_INPUTS : WHY_ROOM;
}

/* The least bytes per ms for which something is computed again; 0: nothing is. */
static double least_rate(const Explain *x)
{
    double least = 0;
    for (uint32_t i = 0; i < x->n; i++) {
        const Result *r = &x->result[i];
        double rate = rate_of(r);
        if (r->decision == REDONE && rate > 0 && (least == 0 || rate < least))
            least = rate;
    }
    return least;
}

static int by_decision_and_bytes(const void *a, const void *b)
{
    const Result *x = a, *y = b;
    if (x->decision != y->decision)
        return x->decision > y->decision ? -1 : 1;
    if (x->fate->bytes != y->fate->bytes)
        return x->fate->bytes < y->fate->bytes ? 1 : -1;
    return (x->fate->step > y->fate->step) - (x->fate->step < y->fate->step);
}

static void add(Total *t, const Fate *f)
{
    t->n++;
    t->bytes += f->bytes;
    t->ns += f->redone_ns;
}

/* Sums the predicted times of each phase.  Copies do not count, as they run beside the kernels. */
static void find_times(Explain *x)
{
    const Plan *p = x->job->plan;
    for (uint32_t s = 0; s < p->nstep; s++) {
        int64_t ns = step_copies(p, s) ? 0 : p->step[s].cost_ns * plan_times(p, s);
        uint32_t first = p->step[s].first; /* an update that joins its weight's product is backward */
        bool again = x->uses.before[first] != NEVER;
        *(again ? &x->again_ns : &x->phase_ns[x->uses.phase[p->g->order[first].i]]) += ns;
    }
}

static void find_results(Explain *x)
{
    Job *j = x->job;
    uint32_t n;
    x->uses = plan_uses(j->plan, j->plan->g->nout, &j->arena);
    find_times(x);
    const Fate *f = plan_fates(j->plan, &x->uses, &n, &j->arena);
    x->fate = f;
    x->nfate = n;
    x->result = NEW(&j->arena, Result, n + 1);
    for (uint32_t i = 0; i < n; i++)
        if (f[i].bytes &&
            (explain_decision(&f[i]) != KEPT ||
             (f[i].behind != NEVER && step_phase(j->plan, &x->uses, f[i].step) == PHASE_FORWARD)))
            x->result[x->n++] = make_result(x, &f[i]);
    for (uint32_t i = 0; i < x->n; i++)
        add(&x->total[x->result[i].decision], x->result[i].fate);
    double price = least_rate(x);
    for (uint32_t i = 0; i < x->n; i++) {
        Result *r = &x->result[i];
        r->why = why_kept(x, r, price);
        if (r->decision == KEPT)
            add(&x->why[r->why], r->fate);
    }
    qsort(x->result, x->n, sizeof *x->result, by_decision_and_bytes);
    for (uint32_t i = 0; i < j->info.ntrained; i++)
        for (int k = 0; k < 2; k++) {
            Val v = j->info.trained[i].state[k];
            bool host = v.i && val_space(j->plan->g, v) == SPACE_HOST;
            x->state_bytes += host ? type_bytes(val_type(j->plan->g, v)) : 0;
        }
}

/* ---- what memory is worth --------------------------------------------------------------------------- */

static bool plan_other(const Explain *x, Job *base, int64_t budget, Other *other)
{
    Options *o = x->o;
    const Plan *p = x->job->plan;
    Job *j = job_fork(base);
    o->step.budget = budget;
    o->step.budget_fraction = 0;
    o->step.least_bytes = false;
    bool planned = job_finish(j, &(PassRun){0});
    *other = (Other){.bytes = budget};
    if (planned)
        *other = (Other){true, budget, j->plan->predicted_ns};
    /* The plan for the smaller budget also fits the larger one. */
    if (planned && (budget > p->budget) == (other->ns > p->predicted_ns))
        other->ns = p->predicted_ns;
    job_free(j);
    bool ok = planned || o->diag.status == EXIT_INFEASIBLE;
    o->diag = ok ? (Diag){0} : o->diag;
    return ok;
}

static bool find_price(Explain *x, Job *base)
{
    const Plan *p = x->job->plan;
    int64_t part = p->budget / PRICE_SHARE;
    if (!part || x->o->step.policy || (!x->total[REDONE].n && !x->total[MOVED].n && !x->state_bytes))
        return true;
    return plan_other(x, base, p->budget + part, &x->more) && plan_other(x, base, p->budget - part, &x->less);
}

/* Milliseconds saved per byte of budget, between the plan's budget and another one. */
static double price(const Explain *x, const Other *other)
{
    const Plan *p = x->job->plan;
    return ns_ms(p->predicted_ns - other->ns) / (double)(other->bytes - p->budget);
}

/* ---- text ------------------------------------------------------------------------------------------- */

static void print_head(FILE *f, const Explain *x)
{
    char a[32], b[32];
    const Plan *p = x->job->plan;
    print_line(f, "%s", x->o->path);
    fprintf(f, "%s of %s with everything stored", bytes_str(p->arena_bytes + p->reserved, a),
            bytes_str(p->keep_all_bytes + p->reserved, b));
    if (p->budget)
        fprintf(f, ", budget %s", bytes_str(p->budget, a));
    fprintf(f, "; %s predicted", ms_str(p->predicted_ns, a));
    if (p->base_ns)
        fprintf(f, ", %+.2f %%", 100 * ((double)p->predicted_ns / (double)p->base_ns - 1));
    fputc('\n', f);
}

static void print_times(FILE *f, const Explain *x)
{
    const int64_t *ns = x->phase_ns;
    char a[32], b[32];
    fprintf(f, "forward %s, backward %s", ms_str(ns[PHASE_FORWARD], a), ms_str(ns[PHASE_BACKWARD], b));
    if (ns[PHASE_FORWARD])
        fprintf(f, " (%.3g times)", (double)ns[PHASE_BACKWARD] / (double)ns[PHASE_FORWARD]);
    fprintf(f, ", updates %s", ms_str(ns[PHASE_UPDATE], a));
    if (x->again_ns)
        fprintf(f, "; again %s", ms_str(x->again_ns, a));
    fputc('\n', f);
}

static void print_totals(FILE *f, const Explain *x)
{
    char bytes[32];
    static const char *const text[DECISIONS] = {"kept", "computed again", "in the host's memory meanwhile"};
    fprintf(f, "\nresults that the backward pass reads\n");
    for (int d = 0; d < DECISIONS; d++) {
        const Total *t = &x->total[d];
        if (!t->n && d)
            continue;
        fprintf(f, "  %11s  %s, of %" PRIu32 " kernels", bytes_str(t->bytes, bytes), text[d], t->n);
        if (t->ns)
            fprintf(f, ", in %s", ms_str(t->ns, bytes));
        fputc('\n', f);
    }
    if (x->state_bytes)
        fprintf(f, "  %11s  of optimizer state in the host's memory\n", bytes_str(x->state_bytes, bytes));
}

static void print_result(FILE *f, const Explain *x, const Result *r)
{
    enum { ROOM = 24 };
    char bytes[32], again[16] = "-", kernel[ROOM];
    if (r->fate->again != NEVER)
        snprintf(again, sizeof again, "%" PRIu32, r->fate->again);
    step_label(x->job->plan, r->fate->step, kernel, ROOM);
    print_line(f, "%-6s %10s %8.3g %7.4g %5" PRIu32 " %5" PRIu32 " %5s  %s%s%s", decision_name[r->decision],
               bytes_str(r->fate->bytes, bytes), ns_ms(r->ns), rate_of(r) / 1e6, r->fate->step,
               r->fate->until, again, kernel, *r->module ? " of " : "", r->module);
}

static bool chosen(const Explain *x, const Result *r)
{
    const Plan *p = x->job->plan;
    const Graph *g = p->g;
    const char *glob = x->o->node;
    bool match = !glob || fnmatch(glob, r->module, 0) == 0;
    for (uint32_t k = 0; k < p->step[r->fate->step].count && !match; k++) {
        const Node *n = &g->nodes[g->order[p->step[r->fate->step].first + k].i];
        match = n->name && fnmatch(glob, n->name, 0) == 0;
    }
    return match;
}

static void print_results(FILE *f, const Explain *x)
{
    uint32_t found[DECISIONS] = {0}, limit = x->o->node ? UINT32_MAX : SHOWN;
    fprintf(f, "\n%-6s %10s %8s %7s %5s %5s %5s  %s\n", "", "bytes", "ms again", "MB/ms", "made", "until",
            "again", "kernel");
    for (uint32_t i = 0; i < x->n; i++) {
        const Result *r = &x->result[i];
        if (chosen(x, r) && found[r->decision]++ < limit)
            print_result(f, x, r);
    }
    for (int d = DECISIONS; d-- > 0;)
        if (found[d] > limit)
            fprintf(f, "%-6s and %" PRIu32 " more\n", decision_name[d], found[d] - limit);
    fputs("\nms again: predicted, to compute it once more; made, until, again: the steps that\n"
          "make it, read it last before it is dropped, and make or fetch it again\n",
          f);
}

static void print_reasons(FILE *f, const Explain *x)
{
    char bytes[32];
    fputs("\nwhy the rest is kept\n", f);
    for (int w = 0; w < WHYS; w++)
        if (x->why[w].n)
            fprintf(f, "  %11s  %s\n", bytes_str(x->why[w].bytes, bytes), why_text[w]);
}

/* Prints a price per KiB, MiB or GiB: the largest unit that is not far above the difference. */
static void print_other(FILE *f, const Explain *x, const Other *other, const char *word)
{
    static const char *const name[] = {"KiB", "MiB", "GiB"};
    char bytes[32];
    const Plan *p = x->job->plan;
    int64_t part = other->bytes > p->budget ? other->bytes - p->budget : p->budget - other->bytes;
    int unit = part >> 26 ? 2 : part >> 16 ? 1 : 0;
    fprintf(f, "  %s %s: ", bytes_str(part, bytes), word);
    if (other->known)
        fprintf(f, "%s, %+.2f %%; %.3g ms for a %s\n", ms_str(other->ns, bytes),
                100 * ((double)other->ns / (double)p->predicted_ns - 1),
                price(x, other) * (double)(INT64_C(1) << (10 * (unit + 1))), name[unit]);
    else
        fputs("there is no plan\n", f);
}

static void print_price(FILE *f, const Explain *x)
{
    if (!x->more.bytes)
        return;
    fputs("\nwhat memory is worth\n", f);
    print_other(f, x, &x->more, "more");
    print_other(f, x, &x->less, "less");
}

static void print(const Explain *x)
{
    bool all = !x->o->node;
    char *text;
    size_t size;
    FILE *f = mem_stream(&text, &size);
    print_head(f, x);
    print_times(f, x);
    if (all) {
        fputc('\n', f);
        memory_print(x->job, f);
        print_totals(f, x);
    }
    print_results(f, x);
    if (all && x->total[KEPT].n)
        print_reasons(f, x);
    if (all)
        print_price(f, x);
    mem_stream_end(f);
    print_lines(stdout, text, WRAPPED);
    free(text);
}

/* ---- JSON ------------------------------------------------------------------------------------------- */

static json_t *step_json(uint32_t s) { return s == NEVER ? json_null() : json_integer(s); }

static json_t *result_json(const Explain *x, const Result *r)
{
    const Fate *f = r->fate;
    const char *why = r->decision == KEPT ? why_text[r->why] : NULL;
    return json_pack(
        "{s:s, s:o, s:o, s:s, s:I, s:f, s:f, s:i, s:i, s:o, s:i, s:i, s:i, s:I, s:b, s:s?}", "decision",
        decision_name[r->decision], "value", text_json(x->job->plan->g->vals[f->val.i].name), "module",
        text_json(r->module), "kernel", r->kernel, "bytes", (json_int_t)f->bytes, "ms_again", ns_ms(r->ns),
        "paid_ms", ns_ms(f->redone_ns), "made", (int)f->step, "until", (int)f->until, "again",
        step_json(f->again), "last", (int)f->last, "redone", (int)f->redone, "fetched", (int)f->fetched,
        "moved_bytes", (json_int_t)f->moved_bytes, "at_peak", f->at_peak, "why", why);
}

static json_t *total_json(const Total *t)
{
    return json_pack("{s:i, s:I, s:f}", "kernels", (int)t->n, "bytes", (json_int_t)t->bytes, "paid_ms",
                     ns_ms(t->ns));
}

static json_t *other_json(const Explain *x, const Other *other)
{
    if (!other->known)
        return json_null();
    return json_pack("{s:I, s:f, s:f}", "budget_bytes", (json_int_t)other->bytes, "predicted_ms",
                     ns_ms(other->ns), "ms_per_gib", price(x, other) * (double)(1 << 30));
}

static void print_json(const Explain *x)
{
    const Plan *p = x->job->plan;
    json_t *results = json_array();
    for (uint32_t i = 0; i < x->n; i++)
        if (chosen(x, &x->result[i]))
            json_array_append_new(results, result_json(x, &x->result[i]));
    json_t *o = json_pack("{s:o, s:I, s:I, s:I, s:f, s:f}", "model", text_json(x->o->path), "budget_bytes",
                          (json_int_t)p->budget, "peak_bytes", (json_int_t)(p->arena_bytes + p->reserved),
                          "keep_all_bytes", (json_int_t)(p->keep_all_bytes + p->reserved), "predicted_ms",
                          ns_ms(p->predicted_ns), "keep_all_ms", ns_ms(p->base_ns));
    memory_json(x->job, o);
    for (int d = 0; d < DECISIONS; d++)
        json_object_set_new(o, decision_name[d], total_json(&x->total[d]));
    json_object_set_new(o, "forward_ms", json_real(ns_ms(x->phase_ns[PHASE_FORWARD])));
    json_object_set_new(o, "backward_ms", json_real(ns_ms(x->phase_ns[PHASE_BACKWARD])));
    json_object_set_new(o, "update_ms", json_real(ns_ms(x->phase_ns[PHASE_UPDATE])));
    json_object_set_new(o, "again_ms", json_real(ns_ms(x->again_ns)));
    json_object_set_new(o, "host_state_bytes", json_integer(x->state_bytes));
    json_object_set_new(o, "results", results);
    json_object_set_new(o, "more", other_json(x, &x->more));
    json_object_set_new(o, "less", other_json(x, &x->less));
    json_print(o, 9);
    json_decref(o);
}

/* ---- the command -------------------------------------------------------------------------------------- */

/* Fails if the glob of --node matches nothing, which is probably a typing error. */
static bool check_node(const Explain *x)
{
    char hint[NEAREST_HINT];
    Nearest near;
    for (uint32_t i = 0; i < x->n; i++)
        if (chosen(x, &x->result[i]))
            return true;
    nearest_init(&near, x->o->node);
    for (uint32_t i = 0; i < x->n; i++)
        nearest_try(&near, x->result[i].module);
    return fail(&x->o->diag,
                "--node %s: no result that the backward pass reads is of a node or module of such a name%s",
                x->o->node, nearest_hint(&near, hint));
}

static bool explain(Explain *x, Job *base)
{
    Options *o = x->o;
    o->steps = 0;
    if (o->value && (o->json || o->node))
        return fail(&o->diag, "--value: one value is told as text, without %s",
                    o->json ? "--json" : "--node");
    TRY(step_check(o));
    if (o->accumulate_auto)
        return fail(&o->diag, "ckc explain is of one plan: give --accumulate a number");
    const char *policy = o->step.policy;
    o->step.policy = policy ? policy : "keep-all"; /* times are reported, so all kernels are measured well */
    TRY(job_prepare(base, &(PassRun){0}));
    o->step.policy = policy;
    x->job = job_fork(base);
    TRY(job_finish(x->job, &(PassRun){0}));
    find_results(x);
    TRY(!o->node || check_node(x));
    if (o->value)
        return explain_value(x);
    TRY(o->node || find_price(x, base));
    progress_end();
    if (o->json)
        print_json(x);
    else
        print(x);
    return true;
}

int cmd_explain(Options *o)
{
    Explain x = {.o = o};
    Job *base = job_new(o);
    bool ok = explain(&x, base);
    int status = job_status(x.job ? x.job : base, ok);
    job_free(x.job);
    job_free(base);
    return status;
}
