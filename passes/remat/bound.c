/* bound.c -- lower bounds on the cost, valid for every order: the parametric minimum cut.
 *
 * Take any operator g and the step of its first run in any schedule. Its ancestors have run
 * by then, its descendants run later. What the descendants read of the ancestors' values is
 * therefore resident at that step, or recomputed later: its producer runs once more, and
 * needs its own inputs in the same way. So the extra cost is at least
 *
 *     min { cost(ancestors run again) : bytes(values kept) <= room },
 *     room = budget - persistent - what g itself occupies while it runs,
 *
 * a closure problem with one knapsack row. Its Lagrangian dual, max over lambda of
 * mincut(lambda) - lambda * room, is a minimum cut for each lambda:
 *
 *     source --inf--> value v read by a descendant          (or kept to the end)
 *     value v --lambda * bytes(v)--> producer(v)            cut: v is kept
 *     operator u --cost(u)--> sink                          cut: u runs again
 *     operator u --inf--> each of its inputs
 *
 * Inputs of g are resident anyway and left out; the cost of an operator that may not run
 * again is infinite.  An operator with a fetch costs the lesser of both costs and has no edges
 * to its inputs; the limit on the link is ignored.
 *
 * The dual function is concave and piecewise linear; each cut is one line (bytes, cost) of
 * it, and intersecting the lines on both sides of the room (secant steps) reaches the
 * maximum after a few cuts. Capacities are integers rounded down, so the result is a
 * certificate, not an estimate. The bound of the instance is the best over g. */
#include "flow.h"
#include "solve.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const Problem *p;
    int64_t budget;
    double deadline; /* monotonic seconds, 0 = none */
    int32_t g;
    int64_t room;
    uint8_t *ancestor, *descendant; /* per op: is it an ancestor, a descendant of g? */
    uint8_t *resident;              /* per value: input of g */
    int32_t *vertex_op, *vertex_value;
    int32_t *queue;
    int32_t *values, nvalues; /* values in the network */
    int32_t *keep_edge;       /* per entry of values */
    int32_t *ops, nops, *redo_edge;
    Flow flow;
} Cut;

static int64_t saved_by(const RematInstance *inst, const RematOp *o, int32_t k)
{
    int64_t in = inst->values[o->in[o->inplace[k].in]].bytes;
    int64_t out = inst->values[o->out[o->inplace[k].out]].bytes;
    return in < out ? in : out;
}

int64_t bound_most_saved(const RematInstance *inst, const RematOp *o, const uint8_t *stays)
{
    int64_t sum = 0;
    for (int32_t k = 0; k < o->ninplace; k++) {
        bool first = true; /* an output takes over one buffer: count its largest pair once */
        int64_t s = saved_by(inst, o, k);
        for (int32_t j = 0; j < o->ninplace; j++) {
            if (j == k || o->inplace[j].out != o->inplace[k].out || (stays && stays[o->in[o->inplace[j].in]]))
                continue;
            int64_t other = saved_by(inst, o, j);
            first &= s > other || (s == other && k < j);
        }
        sum += first && !(stays && stays[o->in[o->inplace[k].in]]) ? s : 0;
    }
    return sum;
}

/* Bytes that are resident in every step that runs op. */
int64_t bound_step_bytes(const Problem *p, int32_t op)
{
    int64_t sum = p->inst->persistent + p->min_ws[op] - bound_most_saved(p->inst, &p->inst->ops[op], NULL);
    for (int32_t k = p->in.first[op]; k < p->in.first[op + 1]; k++)
        sum += p->bytes[p->in.at[k]];
    for (int32_t k = p->out.first[op]; k < p->out.first[op + 1]; k++)
        sum += p->bytes[p->out.at[k]];
    return sum;
}

int64_t bound_least_budget(const Problem *p)
{
    int64_t most = p->inst->persistent;
    for (int32_t i = 0; i < p->nops; i++) {
        int64_t x = bound_step_bytes(p, i);
        most = x > most ? x : most;
    }
    return most;
}

/* ---- the network of one g ------------------------------------------------------------ */

static void mark_ancestors(Cut *c)
{
    const Problem *p = c->p;
    int32_t n = 0;
    memset(c->ancestor, 0, (size_t)p->nops);
    c->queue[n++] = c->g;
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = p->in.first[c->queue[i]]; k < p->in.first[c->queue[i] + 1]; k++) {
            int32_t u = p->producer[p->in.at[k]];
            if (!c->ancestor[u]) {
                c->ancestor[u] = 1;
                c->queue[n++] = u;
            }
        }
}

static void mark_descendants(Cut *c)
{
    const Problem *p = c->p;
    int32_t n = 0;
    memset(c->descendant, 0, (size_t)p->nops);
    c->queue[n++] = c->g;
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = p->out.first[c->queue[i]]; k < p->out.first[c->queue[i] + 1]; k++) {
            int32_t v = p->out.at[k];
            for (int32_t j = p->readers.first[v]; j < p->readers.first[v + 1]; j++)
                if (!c->descendant[p->readers.at[j]]) {
                    c->descendant[p->readers.at[j]] = 1;
                    c->queue[n++] = p->readers.at[j];
                }
        }
}

/* Must an ancestor's value be resident at some time after g has run? */
static bool demanded(const Cut *c, int32_t v)
{
    const Problem *p = c->p;
    if (p->inst->values[v].keep_to_end)
        return true;
    for (int32_t j = p->readers.first[v]; j < p->readers.first[v + 1]; j++)
        if (c->descendant[p->readers.at[j]])
            return true;
    return false;
}

static bool may_rerun(const Cut *c, int32_t op)
{
    const Problem *p = c->p;
    if (p->fetch[op] >= 0)
        return true;
    if (p->inst->ops[op].once)
        return false;
    for (int32_t k = p->barred_by.first[op]; k < p->barred_by.first[op + 1]; k++)
        if (c->ancestor[p->barred_by.at[k]])
            return false;
    return true;
}

static void enter_value(Cut *c, int32_t v)
{
    if (c->vertex_value[v] < 0) {
        c->vertex_value[v] = 0;
        c->values[c->nvalues++] = v;
    }
}

/* Collects the values and operators that the network needs; returns the bytes to keep if
 * nothing is run again. */
static int64_t collect(Cut *c)
{
    const Problem *p = c->p;
    int64_t bytes = 0;
    for (int32_t i = 0; i < c->nvalues; i++)
        c->vertex_value[c->values[i]] = -1;
    for (int32_t i = 0; i < c->nops; i++)
        c->vertex_op[c->ops[i]] = -1;
    c->nvalues = c->nops = 0;
    for (int32_t u = 0; u < p->nops; u++)
        for (int32_t k = p->out.first[u]; c->ancestor[u] && k < p->out.first[u + 1]; k++)
            if (demanded(c, p->out.at[k])) {
                enter_value(c, p->out.at[k]);
                bytes += c->resident[p->out.at[k]] ? 0 : p->bytes[p->out.at[k]];
            }
    for (int32_t i = 0; i < c->nvalues; i++) {
        int32_t u = p->producer[c->values[i]];
        if (c->vertex_op[u] >= 0 || c->resident[c->values[i]])
            continue;
        c->vertex_op[u] = 0;
        c->ops[c->nops++] = u;
        for (int32_t k = p->in.first[u]; p->fetch[u] < 0 && k < p->in.first[u + 1]; k++)
            enter_value(c, p->in.at[k]);
    }
    return bytes;
}

static void build(Cut *c, double lambda, double scale)
{
    const Problem *p = c->p;
    Flow *f = &c->flow;
    flow_reset(f, 2 + c->nvalues + c->nops);
    for (int32_t i = 0; i < c->nvalues; i++)
        c->vertex_value[c->values[i]] = 2 + i;
    for (int32_t i = 0; i < c->nops; i++)
        c->vertex_op[c->ops[i]] = 2 + c->nvalues + i;
    for (int32_t i = 0; i < c->nvalues; i++) {
        int32_t v = c->values[i];
        c->keep_edge[i] = -1;
        if (c->resident[v])
            continue;
        double cap = floor(lambda * (double)p->bytes[v] * scale);
        c->keep_edge[i] = flow_edge(f, 2 + i, c->vertex_op[p->producer[v]],
                                    cap < 0x1p60 ? (int64_t)cap : (int64_t)1 << 60);
        if (demanded(c, v))
            flow_edge(f, 0, 2 + i, FLOW_INF);
    }
    for (int32_t i = 0; i < c->nops; i++) {
        int32_t u = c->ops[i];
        double cap = floor((double)p->redo[u] * scale);
        c->redo_edge[i] = flow_edge(f, c->vertex_op[u], 1, may_rerun(c, u) ? (int64_t)cap : FLOW_INF);
        for (int32_t k = p->in.first[u]; p->fetch[u] < 0 && k < p->in.first[u + 1]; k++)
            if (!c->resident[p->in.at[k]])
                flow_edge(f, c->vertex_op[u], c->vertex_value[p->in.at[k]], FLOW_INF);
    }
}

typedef struct {
    double bytes, cost; /* of the cut, which is the line cost + lambda * (bytes - room) */
    double value;       /* certified mincut(lambda) - lambda * room */
} Line;

static Line solve_cut(Cut *c, double lambda)
{
    const Problem *p = c->p;
    double total = (double)p->base_cost + 1, flow;
    for (int32_t i = 0; i < c->nvalues; i++)
        total += lambda * (double)p->bytes[c->values[i]];
    double scale = 0x1p58 / total;
    build(c, lambda, scale);
    flow = (double)flow_max(&c->flow, 0, 1) / scale;
    Line l = {.value = flow * (1 - 1e-12) - lambda * (double)c->room * (1 + 1e-15)};
    for (int32_t i = 0; i < c->nvalues; i++) {
        int32_t v = c->values[i];
        if (c->keep_edge[i] >= 0 && flow_source_side(&c->flow, 2 + i) &&
            !flow_source_side(&c->flow, c->vertex_op[p->producer[v]]))
            l.bytes += (double)p->bytes[v];
    }
    for (int32_t i = 0; i < c->nops; i++)
        if (flow_source_side(&c->flow, c->vertex_op[c->ops[i]]))
            l.cost += (double)p->redo[c->ops[i]];
    return l;
}

/* Makes c the network of g; returns the bytes to keep if nothing is run again. */
static int64_t enter(Cut *c, int32_t g)
{
    const Problem *p = c->p;
    c->g = g;
    c->room = c->budget - bound_step_bytes(p, g);
    mark_ancestors(c);
    mark_descendants(c);
    for (int32_t k = p->in.first[g]; k < p->in.first[g + 1]; k++)
        c->resident[p->in.at[k]] = 1;
    return collect(c);
}

static void leave(Cut *c)
{
    const Problem *p = c->p;
    for (int32_t k = p->in.first[c->g]; k < p->in.first[c->g + 1]; k++)
        c->resident[p->in.at[k]] = 0;
}

static bool out_of_time(const Cut *c) { return c->deadline > 0 && clock_seconds() >= c->deadline; }

/* The bound of one g; computed only so far as to see that it is not above `best`, if it is not. */
static double bound_at(Cut *c, int32_t g, double best, double *price, bool *infeasible)
{
    const Problem *p = c->p;
    double top = 0;
    int64_t bytes = enter(c, g);
    *infeasible = c->room < 0;
    if (*infeasible)
        goto done;
    if (bytes > c->room) {
        Line rich = {.bytes = (double)bytes, .cost = 0};
        Line lean = solve_cut(c, 0x1p20 * ((double)p->base_cost + 1) / (double)bytes);
        *infeasible = lean.value > (double)p->base_cost; /* more than running all of them again */
        if (lean.bytes > (double)c->room)
            goto done;
        for (int32_t i = 0; i < 60 && !out_of_time(c); i++) {
            double lambda = (lean.cost - rich.cost) / (rich.bytes - lean.bytes);
            double at = rich.cost + lambda * (rich.bytes - (double)c->room);
            if (at <= best)
                break;
            Line l = solve_cut(c, lambda);
            if (l.value > top) {
                top = l.value;
                *price = lambda;
            }
            if (l.value >= at * (1 - 1e-9) || l.bytes >= rich.bytes || l.bytes <= lean.bytes)
                break;
            if (l.bytes > (double)c->room)
                rich = l;
            else
                lean = l;
        }
    }
done:
    leave(c);
    return top;
}

/* ---- the best g ---------------------------------------------------------------------- */

static void cut_init(Cut *c, const Problem *p, int64_t budget)
{
    *c = (Cut){.p = p, .budget = budget};
    c->ancestor = RM_NEW(uint8_t, p->nops);
    c->descendant = RM_NEW(uint8_t, p->nops);
    c->resident = RM_NEW(uint8_t, p->nvals);
    c->queue = RM_NEW(int32_t, p->nops + 1);
    c->ops = RM_NEW(int32_t, p->nops);
    c->redo_edge = RM_NEW(int32_t, p->nops);
    c->values = RM_NEW(int32_t, p->nvals);
    c->keep_edge = RM_NEW(int32_t, p->nvals);
    c->vertex_op = RM_NEW(int32_t, p->nops);
    c->vertex_value = RM_NEW(int32_t, p->nvals);
    memset(c->vertex_op, -1, sizeof(int32_t) * (size_t)p->nops);
    memset(c->vertex_value, -1, sizeof(int32_t) * (size_t)p->nvals);
}

static void cut_free(Cut *c)
{
    MEM_FREE(c->ancestor, c->descendant, c->resident, c->queue, c->ops, c->redo_edge, c->values, c->keep_edge,
             c->vertex_op, c->vertex_value);
    flow_free(&c->flow);
}

static void visit(Cut *c, int32_t g, RematBound *bound, double *best)
{
    bool infeasible;
    double price = 0;
    double x = bound_at(c, g, *best, &price, &infeasible);
    bound->infeasible |= infeasible;
    if (x > *best) {
        *best = x;
        bound->node = g;
        bound->price = price;
    }
}

void bound_excess(const Problem *p, int64_t budget, int64_t *excess)
{
    Cut c;
    cut_init(&c, p, budget);
    for (int32_t g = 0; g < p->nops; g++) {
        int64_t bytes = enter(&c, g);
        excess[g] = bytes > c.room ? bytes - c.room : 0;
        leave(&c);
    }
    cut_free(&c);
}

/* Bounds by all operators of a small instance; by a coarse grid of a large one, refined three
 * times around the best. */
void bound_problem(const Problem *p, int64_t budget, double deadline, RematBound *bound)
{
    enum { GRID = 32 };
    Cut c;
    double best = 0;
    cut_init(&c, p, budget);
    c.deadline = deadline;
    *bound = (RematBound){.min_budget = bound_least_budget(p), .node = -1};
    bound->infeasible = bound->min_budget > budget;
    int32_t lo = 0, hi = p->nops;
    bool small = p->nops <= 1500;
    while (lo < hi && !bound->infeasible) {
        int32_t stride = small ? 1 : (hi - lo + GRID - 1) / GRID;
        int32_t middle = lo + (hi - lo) / 2; /* outwards from there: the most is alive around it */
        for (int32_t d = 0; (middle - d >= lo || middle + d < hi) && !bound->infeasible && !out_of_time(&c);
             d += stride) {
            if (middle + d < hi)
                visit(&c, middle + d, bound, &best);
            if (d > 0 && middle - d >= lo && !bound->infeasible)
                visit(&c, middle - d, bound, &best);
        }
        if (stride == 1 || bound->node < 0)
            break;
        lo = bound->node - stride > 0 ? bound->node - stride : 0;
        hi = bound->node + stride < p->nops ? bound->node + stride : p->nops;
    }
    bound->cost = p->base_cost + (int64_t)ceil(best * (1 - 1e-9) - 1e-6);
    cut_free(&c);
}

bool remat_bound(const RematInstance *inst, int64_t budget, int effort, RematBound *bound,
                 char err[REMAT_ERR])
{
    Problem p;
    if (!problem_init(&p, inst, err))
        return false;
    bound_problem(&p, budget, 0, bound);
    if (effort > 0) {
        bound->min_budget = bound_peak(&p, INT64_MAX);
        bound->infeasible |= bound->min_budget > budget;
    }
    if (effort > 0 && !bound->infeasible)
        bound_stages(&p, budget, INFINITY, INFINITY, INT64_MAX, bound);
    problem_free(&p);
    return true;
}
