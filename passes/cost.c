/* cost.c -- what every kernel costs: seconds, workspace and the library algorithm it uses.
 *
 * The device answers through StepOptions.cost (the runtime measures on this machine and keeps a
 * profile).  Without a device, or where it does not know, a roofline: the larger of the bytes moved
 * over memory bandwidth and the operations over the arithmetic rate. */
#include "passes.h"

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

bool pass_cost(Graph *g, PassCtx *cx)
{
    Plan p = {.g = g};
    plan_cut(&p, cx->tmp);
    bool *live = plan_live_out(g, cx->tmp);
    cx->info->cost = NEW(g->arena, StepCost, g->nnodes);
    for (uint32_t s = 0; s < p.nstep; s++) {
        Arena a = {0};
        Kernel k;
        int nread, nwrite, cap = 1;
        const NodeId *nodes = g->order + p.step[s].first;
        for (uint32_t i = 0; i < p.step[s].count; i++)
            cap += g->nodes[nodes[i].i].nin + g->nodes[nodes[i].i].nout;
        Val *vals = NEW(&a, Val, cap);
        StepCost c = {.ns = -1};
        bool ok = plan_step_kernel(&p, s, &a, live, &k, vals, &nread, &nwrite, cx->diag);
        if (ok && cx->opt->cost)
            ok = cx->opt->cost(cx->opt->cost_user, g, nodes, (int)p.step[s].count, &k, vals, nread,
                               nwrite, &c, cx->diag);
        if (ok && c.ns < 0)
            c.ns = roofline(g, &k, vals, nread + nwrite);
        cx->info->cost[nodes[0].i] = c;
        arena_free(&a);
        TRY(ok);
    }
    return true;
}
