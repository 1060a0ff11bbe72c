/* cost.c -- what every kernel costs: seconds, workspace and the library algorithm it uses.
 *
 * The device answers through StepOptions.cost (the runtime measures on this machine and keeps a
 * profile).  Without a device, or where it does not know, a roofline: the larger of the bytes moved
 * over memory bandwidth and the operations over the arithmetic rate. */
#include "instance.h"

/* A two-core server CPU with AVX-512, measured: in-cache rates are higher, cold ones lower. */
static const double bytes_per_ns = 20, flops_per_ns = 250, launch_ns = 1000;

static int64_t roofline(const Graph *g, const Kernel *k, const Val *vals, int n)
{
    double bytes = 0, points = 1;
    for (int i = 0; i < n; i++)
        if (vals[i].i)
            bytes += (double)type_bytes(val_type(g, vals[i]));
    for (int d = 0; d < k->rank; d++)
        points *= (double)k->extent[d];
    double flops = k->flops > 0 ? k->flops : k->body ? (double)k->items * 8 : points * k->nins;
    double ns = bytes / bytes_per_ns > flops / flops_per_ns ? bytes / bytes_per_ns
                                                            : flops / flops_per_ns;
    return (int64_t)(ns + launch_ns);
}

/* A step with its kernel, as CostFn wants it. */
typedef struct {
    const NodeId *nodes;
    int n;
    Kernel k;
    Val *vals;
    int nread, nwrite;
} StepKernel;

static bool step_kernel(const Plan *p, uint32_t s, const bool *live, PassCtx *cx, StepKernel *o)
{
    int cap = 1;
    o->nodes = p->g->order + p->step[s].first;
    o->n = (int)p->step[s].count;
    for (int i = 0; i < o->n; i++)
        cap += p->g->nodes[o->nodes[i].i].nin + p->g->nodes[o->nodes[i].i].nout;
    o->vals = NEW(cx->tmp, Val, cap);
    return plan_step_kernel(p, s, cx->tmp, live, &o->k, o->vals, &o->nread, &o->nwrite, cx->diag);
}

static bool ask(const Graph *g, PassCtx *cx, const StepKernel *o, StepCost *out)
{
    const StepOptions *opt = cx->opt;
    return !opt->cost || opt->cost(opt->cost_user, g, o->nodes, o->n, &o->k, o->vals, o->nread,
                                   o->nwrite, out, cx->diag);
}

static bool ask_all(const Graph *g, PassCtx *cx, const StepKernel *o, uint32_t n)
{
    for (uint32_t s = 0; s < n; s++) {
        StepCost *c = &cx->info->cost[o[s].nodes[0].i];
        *c = (StepCost){.c = {{.ns = -1, .scratch = kernel_own_bytes(&o[s].k)}}, .n = 1, .same = 1};
        TRY(ask(g, cx, &o[s], c));
        for (int i = 0; i < c->n; i++)
            if (c->c[i].ns < 0)
                c->c[i].ns = roofline(g, &o[s].k, o[s].vals, o[s].nread + o[s].nwrite);
    }
    return true;
}

/* Bytes that every plan has: what lives through the step; the live bytes of the step as it is, where
 * nothing is recomputed; or the budget, which is used where it is less.  Memory that is not there
 * is said before any kernel is measured. */
static bool fits_machine(const Plan *p, PassCtx *cx, int64_t budget)
{
    const StepOptions *o = cx->opt;
    int64_t floor = p->mem[MEM_PARAM] + p->mem[MEM_OPTIMIZER] + p->mem[MEM_STATE] + p->mem[MEM_DATA];
    int64_t whole = o->least_bytes ? 0 : p->live_bytes;
    int64_t need = budget > 0 && budget < whole ? budget : whole;
    need = need > floor ? need : floor;
    if (o->memory <= 0 || need <= o->memory)
        return true;
    return fail_status(cx->diag, EXIT_DEVICE,
                       "a step holds at least %lld bytes, and this machine has %lld: a smaller --budget "
                       "recomputes more%s; --steps 0 plans for another machine",
                       (long long)need, (long long)o->memory,
                       floor > o->memory ? " but what lives through a step alone is too much" : "");
}

/* Times, where the plan follows from them: where memory is short, or another order of things was
 * asked for.  Where it does not, they are only for the prediction. */
static bool take_times(const Plan *p, PassCtx *cx, int64_t budget)
{
    const StepOptions *o = cx->opt;
    bool decide = o->policy || o->instance || o->least_bytes || (budget > 0 && p->live_bytes > budget);
    return o->times(o->cost_user, decide ? TIMES_DECIDE : TIMES_ROUGH, &o->progress, cx->diag);
}

/* The answers again, with times. */
static bool ask_times(Graph *g, PassCtx *cx, const StepKernel *o, uint32_t n)
{
    Plan p;
    int64_t budget = cx->opt->budget;
    TRY(plan_place(g, cx->info, 0, PACK_QUICK, &p, cx->tmp, cx->diag));
    if (cx->opt->budget_fraction > 0)
        budget = (int64_t)(cx->opt->budget_fraction * (double)p.live_bytes);
    TRY(fits_machine(&p, cx, budget));
    return !cx->opt->times || (take_times(&p, cx, budget) && ask_all(g, cx, o, n));
}

bool pass_cost(Graph *g, PassCtx *cx)
{
    Plan p = {.g = g};
    plan_cut(&p, cx->tmp);
    bool *live = plan_live_out(g, cx->tmp);
    StepKernel *o = NEW(cx->tmp, StepKernel, p.nstep + 1);
    cx->info->cost = NEW(g->arena, StepCost, g->nnodes);
    for (uint32_t s = 0; s < p.nstep; s++)
        TRY(step_kernel(&p, s, live, cx, &o[s]) && ask(g, cx, &o[s], NULL));
    TRY(ask_all(g, cx, o, p.nstep));
    return (!cx->opt->times && !cx->opt->memory) || ask_times(g, cx, o, p.nstep);
}
