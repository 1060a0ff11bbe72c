/* cost.c -- the cost of every kernel: time, workspace and the library algorithm it uses.
 *
 * The device answers through StepOptions.cost (the runtime measures on this machine and keeps a
 * profile).  The roofline (ir/device.h) answers for a device that is not here, or does not know. */
#include "instance.h"
#include <string.h>

/* Keeps the device's costs in the graph's arena, with the roofline's time where the device knows none. */
static void keep_costs(const Graph *g, PassCtx *cx, const Command *c, uint32_t n, const StepCost *cost)
{
    for (uint32_t s = 0; s < n; s++) {
        StepCost *kept = &cx->info->cost[c[s].nodes[0].i];
        *kept = cost[s];
        for (Candidate *way = kept->c; way < kept->c + kept->n; way++) {
            if (way->ns < 0)
                way->ns = (int64_t)device_ns(step_device(cx->opt), &c[s]);
            if (way->choice)
                way->choice = arena_strndup(g->arena, way->choice, strlen(way->choice));
        }
    }
}

/* Does the device have the bytes that a plan takes at least?  These are the values that live through the
 * step; or the live bytes of the step, unless recomputation may lower them; or the budget if it is less.
 * A refusal comes before any kernel is measured. */
static bool fits_machine(const Plan *p, PassCtx *cx, int64_t budget)
{
    const StepOptions *o = cx->opt;
    int64_t floor = p->mem[MEM_PARAM] + p->mem[MEM_OPTIMIZER] + p->mem[MEM_STATE] + p->mem[MEM_DATA];
    int64_t whole = o->least_bytes || o->memory_limits ? 0 : p->live_bytes;
    int64_t need = budget > 0 && budget < whole ? budget : whole;
    need = need > floor ? need : floor;
    if (o->memory <= 0 || need <= o->memory)
        return true;
    return fail_status(cx->diag, EXIT_DEVICE,
                       "a step holds at least %lld bytes, and %s has %lld: %s; ckc oom finds what fits%s",
                       (long long)need, step_device(o)->title, (long long)o->memory,
                       floor > o->memory ? "what lives through a step alone is too much"
                                         : "a smaller --budget recomputes more",
                       o->cost ? "; ckc plan plans for another machine" : "");
}

int64_t budget_within_memory(const PassCtx *cx, int64_t budget)
{
    const StepOptions *o = cx->opt;
    if (!o->memory_limits || o->memory <= 0 || budget <= o->memory)
        return budget;
    if (cx->note)
        cx->note(cx->user,
                 arena_printf(cx->tmp,
                              "the budget is more than %s has for a step, %lld bytes: planned within "
                              "its memory",
                              step_device(o)->title, (long long)o->memory));
    return o->memory;
}

int64_t memory_as_budget(const PassCtx *cx, int64_t whole)
{
    const StepOptions *o = cx->opt;
    if (!o->memory_limits || o->budget_fraction > 0 || o->policy || o->least_bytes || o->memory <= 0 ||
        whole <= o->memory)
        return 0;
    if (cx->note)
        cx->note(cx->user, arena_printf(cx->tmp,
                                        "a step that recomputes nothing takes %lld bytes, and %s has "
                                        "%lld: planned within its memory",
                                        (long long)whole, step_device(o)->title, (long long)o->memory));
    return o->memory;
}

/* Times matter to the plan only when memory is short, when another plan than the usual was asked for (a
 * policy, the least memory, a limit on time), or when the problem is written to a file; else they predict. */
static Times worth(const Plan *p, const StepOptions *o, int64_t budget)
{
    bool decide = o->policy || o->instance || o->least_bytes || o->limit_ns > 0 ||
                  (budget > 0 && p->live_bytes > budget);
    return decide ? TIMES_DECIDE : TIMES_ROUGH;
}

/* Asks the device for the costs again, now with times. */
static bool take_times(Graph *g, PassCtx *cx, const Command *c, uint32_t n, StepCost *cost)
{
    Plan p;
    const StepOptions *o = cx->opt;
    int64_t budget = step_budget(o);
    TRY(plan_place(g, cx->info, 0, PACK_QUICK, &p, cx->tmp, cx->diag));
    if (o->budget_fraction > 0)
        budget = (int64_t)(o->budget_fraction * (double)p.live_bytes);
    TRY(fits_machine(&p, cx, budget));
    TRY(!o->times || o->times(o->cost_user, worth(&p, o, budget), &o->progress, cost, cx->diag));
    keep_costs(g, cx, c, n, cost);
    return true;
}

bool pass_cost(Graph *g, PassCtx *cx)
{
    const StepOptions *o = cx->opt;
    Plan p = {.g = g};
    plan_cut(&p, cx->tmp);
    const Command *c = plan_commands(&p, cx->tmp, cx->diag);
    TRY(c);
    StepCost *cost = NEW(cx->tmp, StepCost, p.nstep + 1);
    for (uint32_t s = 0; s < p.nstep; s++)
        cost[s] = (StepCost){.c = {{.ns = -1, .scratch = command_workspace_bytes(&c[s])}}, .n = 1, .same = 1};
    cx->info->cost = NEW(g->arena, StepCost, g->nnodes);
    TRY(!o->cost || o->cost(o->cost_user, c, p.nstep, cost, cx->diag));
    keep_costs(g, cx, c, p.nstep, cost);
    return (!o->times && !o->memory) || take_times(g, cx, c, p.nstep, cost);
}
