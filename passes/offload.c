/* offload.c -- which values may be offloaded and fetched, and what that costs.
 *
 * A result is offloaded behind the first command that makes it, and fetched as often as it is wanted: a fetch
 * is an operator without inputs (passes/remat/).  The nodes are made for every result, and are in no order
 * until a schedule with them is chosen.
 *
 * States that only their update reads may be in the host's memory all the time: they are fetched in front of
 * it, and offloaded behind it (J. Ren et al., "ZeRO-Offload", USENIX ATC 2021, keeps the optimizer's there).
 */
#include "instance.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const offload_name[] = {"auto", "no", "only", NULL};

/* byte_ns follows from the bandwidth of the device's memory, which copies and kernels share. */
HostLink step_link(const StepOptions *o)
{
    const DeviceInfo *d = step_device(o);
    return (HostLink){o->offload == OFFLOAD_NO ? 0 : d->host_link,
                      1 / (d->memory_bandwidth * d->memory_efficiency), d->launch_ns, o->host_bytes,
                      o->offload == OFFLOAD_ONLY};
}

/* Makes a node with operand v that is in no order yet. */
static NodeId detached(Graph *g, Op op, Val v)
{
    build1(g, op, v);
    return g->order[--g->norder];
}

/* May the results of a command be offloaded?  A result without bytes of its own is in place or staged. */
static bool may_move(const Graph *g, const RematInstance *inst, const RematOp *op, const Command *c)
{
    bool may = op->nout > 0;
    for (int32_t i = 0; i < op->nout && may; i++)
        may = inst->values[op->out[i]].bytes > 0;
    for (int i = c->nread; i < c->nread + c->nwrite && may; i++)
        may = val_space(g, c->vals[i]) == SPACE_DEVICE && type_bytes(val_type(g, c->vals[i])) > 0;
    return may;
}

/* ns that a copy of so many bytes takes in its lane. */
static int64_t lane_ns(const HostLink *l, int64_t bytes)
{
    return (int64_t)((double)bytes / l->bandwidth + l->copy_ns);
}

static bool lower_copy(Instance *in, NodeId *id, Command *c, Diag *d)
{
    Val v = in->cut.g->nodes[id->i].out[0];
    in->live[v.i] = true;
    bool ok = lower(c, in->arena, in->cut.g, id, 1, in->live, d);
    in->live[v.i] = false;
    return ok;
}

/* Makes an offload and a fetch of every result of a step, and the operator that stands for the fetches. */
static void add_moves(Graph *g, Instance *in, const HostLink *link, const Command *c, uint32_t s)
{
    RematInstance *inst = &in->inst;
    RematOp *fetch = &inst->ops[inst->nops + inst->nfetch++];
    Move *list = in->moves[s] = NEW(in->arena, Move, c->nwrite);
    *fetch = (RematOp){.nout = inst->ops[s].nout, .out = inst->ops[s].out, .fetch_of = (int32_t)s};
    for (int i = 0; i < c->nwrite; i++) {
        Move *v = &list[in->nmoves[s]++];
        v->value = c->vals[c->nread + i];
        v->offload = detached(g, OP_offload, v->value);
        v->fetch = detached(g, OP_fetch, g->nodes[v->offload.i].out[0]);
        v->fetched = g->nodes[v->fetch.i].out[0];
        int64_t bytes = type_bytes(val_type(g, v->value));
        fetch->link += lane_ns(link, bytes);
        fetch->cost += 2 * copy_beside_ns(link, bytes);
    }
}

/* Extends info->cost by the costs of copies, for the nodes from nnodes on. */
static void cost_copies(const Graph *g, StepInfo *info, const HostLink *link, uint32_t nnodes)
{
    StepCost *cost = NEW(g->arena, StepCost, g->nnodes);
    memcpy(cost, info->cost, nnodes * sizeof *cost);
    for (uint32_t i = nnodes; i < g->nnodes; i++) {
        int64_t ns = lane_ns(link, type_bytes(val_type(g, g->nodes[i].out[0])));
        cost[i] = (StepCost){.c = {{.ns = ns}}, .n = 1, .same = 1};
    }
    info->cost = cost;
}

static bool has_copies(const RematInstance *inst)
{
    for (int32_t i = 0; i < inst->nops; i++)
        if (inst->ops[i].lane != REMAT_KERNEL)
            return true;
    return false;
}

/* ns of the link that a step has for copies each way: values are offloaded before the loss and fetched after
 * it, where copies of states share the lane. */
static int64_t time_to_copy(const Instance *in)
{
    int64_t before = 0, all = 0, states = 0;
    for (int32_t i = 0; i < in->inst.nops; i++) {
        all += in->inst.ops[i].cost;
        before = i == in->inst.loss ? all : before;
        states += in->inst.ops[i].lane == REMAT_IN ? in->inst.ops[i].link : 0;
    }
    before = before ? before : all / 2;
    int64_t after = all - before > states ? all - before - states : 0;
    return before < after ? before : after;
}

bool instance_add_moves(Graph *g, Instance *in, StepInfo *info, const Command *c, Diag *d)
{
    uint32_t nnodes = g->nnodes;
    const HostLink *link = &info->link;
    in->moves = NEW(in->arena, Move *, in->nops + 1);
    in->nmoves = NEW(in->arena, uint32_t, in->nops + 1);
    for (uint32_t s = 0; s < in->nops && link->bandwidth > 0 && info->cost; s++)
        if (may_move(g, &in->inst, &in->inst.ops[s], &c[s]))
            add_moves(g, in, link, &c[s], s);
    for (int32_t i = 0; i < in->inst.nops; i++)
        in->inst.ops[i].once |= link->only;
    in->inst.host = link->bytes;
    in->inst.link = in->inst.nfetch ? time_to_copy(in) : 0;
    in->copies = in->inst.nfetch > 0 || has_copies(&in->inst);
    in->live = NEW(in->arena, bool, g->nvals);
    in->fetched = NEW(in->arena, Val, g->nvals);
    if (in->inst.nfetch)
        cost_copies(g, info, link, nnodes);
    in->cost = info->cost;
    for (uint32_t s = 0; s < in->nops; s++)
        for (uint32_t k = 0; k < in->nmoves[s]; k++) {
            Move *v = &in->moves[s][k];
            TRY(lower_copy(in, &v->offload, &v->out, d) && lower_copy(in, &v->fetch, &v->in, d));
            in->fetched[v->fetched.i] = v->value;
        }
    return true;
}

enum { SHARES = FETCH_FEWER / 2 + 1 };

/* How many of the first n fetches are of values made in the first part / SHARES of the time to the loss. */
static int32_t early_fetches(const RematInstance *inst, int32_t n, int32_t part)
{
    int64_t before = 0, now = 0;
    int32_t early = 0;
    for (int32_t i = 0; i <= inst->loss; i++)
        before += inst->ops[i].cost;
    for (int32_t i = 0; early < n && (now += inst->ops[i].cost) <= before / SHARES * part; i++)
        early += inst->ops[inst->nops + early].fetch_of == i;
    return early;
}

void fetch_fewer(Instance *in, int step, int32_t all, int64_t link)
{
    bool early = step < SHARES;
    in->inst.nfetch = step == FETCH_FEWER ? 0 : early ? early_fetches(&in->inst, all, SHARES - step) : all;
    in->inst.link = early ? link : link / SHARES * (FETCH_FEWER - step);
}

/* ---- states ------------------------------------------------------------------------------------ */

enum {
    COPIES_WORTH = 8, /* a copy's fixed time is at most 1 / COPIES_WORTH of the time for its bytes */
    LARGE = 4,        /* a state of more than LARGE times the states' mean bytes is large */
    STAGED_STEPS = 4  /* steps whose states are staged at a time; of few steps, 1 / STAGED_STEPS of all */
};

/* A state that only one step reads, which also makes its new value. */
typedef struct {
    uint32_t update; /* in Graph.update */
    uint32_t step;
    int64_t bytes;
    NodeId fetch, offload;
    bool chosen;
} Movable;

/* Per value: the step that reads it, NONE or SEVERAL.  Fills step_of: per node, its step, or NONE. */
enum { NONE = UINT32_MAX, SEVERAL = UINT32_MAX - 1 };
static uint32_t *find_readers(const Plan *cut, uint32_t *step_of, Arena *tmp)
{
    const Graph *g = cut->g;
    uint32_t *reader = NEW(tmp, uint32_t, g->nvals);
    memset(reader, -1, g->nvals * sizeof *reader);
    memset(step_of, -1, g->nnodes * sizeof *step_of);
    for (uint32_t s = 0; s < cut->nstep; s++)
        for (uint32_t k = 0; k < cut->step[s].count; k++)
            step_of[g->order[cut->step[s].first + k].i] = s;
    for (uint32_t k = 0; k < g->norder; k++) {
        const Node *n = &g->nodes[g->order[k].i];
        for (int i = 0; i < n->nin; i++) {
            uint32_t *r = &reader[n->in[i].i], s = step_of[g->order[k].i];
            *r = s != NONE && (*r == NONE || *r == s) ? s : SEVERAL;
        }
    }
    return reader;
}

static int by_step(const void *a, const void *b)
{
    const Movable *x = a, *y = b;
    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    return x->update < y->update ? -1 : 1;
}

/* Lists the states that may move, in the order of their steps; returns their number. */
static uint32_t find_movable(const Plan *cut, const HostLink *link, Movable *list, Arena *tmp)
{
    const Graph *g = cut->g;
    uint32_t *step_of = NEW(tmp, uint32_t, g->nnodes), n = 0;
    const uint32_t *reader = find_readers(cut, step_of, tmp);
    double least = COPIES_WORTH * link->copy_ns * link->bandwidth;
    for (uint32_t i = 0; i < g->nupdate; i++) {
        Update u = g->update[i];
        int64_t bytes = type_bytes(val_type(g, u.state));
        NodeId def = g->vals[u.value.i].def;
        if (g->vals[u.state.i].kind == VAL_STATE && g->vals[u.state.i].space == SPACE_DEVICE &&
            (double)bytes >= least && def.i && step_of[def.i] != NONE &&
            reader[u.state.i] == step_of[def.i] && graph_root(g, u.value).i == u.value.i &&
            (step_of[def.i] > cut->nmicro ||
             cut->nmicro == cut->nstep)) /* steps before nmicro run once per micro-batch */
            list[n++] = (Movable){.update = i, .step = step_of[def.i], .bytes = bytes};
    }
    qsort(list, n, sizeof *list, by_step);
    return n;
}

static double sum_bytes(const Movable *list, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)list[i].bytes;
    return sum;
}

/* Chooses about so many bytes evenly from the states of at most `size` bytes, or from the larger ones.
 * Returns the bytes chosen. */
static double choose_evenly(Movable *list, uint32_t n, double size, bool larger, double bytes)
{
    double all = 0, seen = 0, chosen = 0;
    for (uint32_t i = 0; i < n; i++)
        all += ((double)list[i].bytes > size) == larger ? (double)list[i].bytes : 0;
    for (uint32_t i = 0; i < n; i++) {
        double b = (double)list[i].bytes;
        seen += (b > size) == larger ? b : 0;
        list[i].chosen |= (b > size) == larger && chosen + b / 2 <= seen / all * bytes;
        chosen += (b > size) == larger && list[i].chosen ? b : 0;
    }
    return chosen;
}

/* Chooses states of about so many bytes, and moves them to the front of the list; returns their number.  Much
 * larger ones come last, as they fill the room for a long time. */
static uint32_t choose_states(Movable *list, uint32_t n, int64_t bytes)
{
    double size = LARGE * sum_bytes(list, n) / (n ? n : 1);
    double took = choose_evenly(list, n, size, false, (double)bytes);
    uint32_t kept = 0;
    if (took < (double)bytes)
        choose_evenly(list, n, size, true, (double)bytes - took);
    for (uint32_t i = 0; i < n; i++)
        if (list[i].chosen)
            list[kept++] = list[i];
    return kept;
}

/* Bytes of room for staged states: enough for those of a few steps, at most a part of all, but at least for
 * those of any one step. */
static int64_t staging_room(const Movable *list, uint32_t n, int64_t align)
{
    int64_t most = 0, all = 0, steps = 0;
    for (uint32_t i = 0, end; i < n; i = end, steps++) {
        int64_t step = 0;
        for (end = i; end < n && list[end].step == list[i].step; end++)
            step += align_up(list[end].bytes, align);
        most = step > most ? step : most;
        all += step;
    }
    int64_t few = steps > STAGED_STEPS * STAGED_STEPS ? STAGED_STEPS * all / steps : all / STAGED_STEPS;
    return few > most ? few : most;
}

static void read_instead(Graph *g, const Step *s, Val v, Val by)
{
    for (uint32_t k = 0; k < s->count; k++) {
        Node *n = &g->nodes[g->order[s->first + k].i];
        n->in = memcpy(NEW(g->arena, Val, n->nin + 1), n->in, (size_t)n->nin * sizeof *n->in);
        for (int i = 0; i < n->nin; i++)
            n->in[i] = n->in[i].i == v.i ? by : n->in[i];
    }
}

/* The index of the first state behind i whose step is another; n: there is none. */
static uint32_t next_step(const Movable *list, uint32_t n, uint32_t i)
{
    uint32_t k = i;
    while (k < n && list[k].step == list[i].step)
        k++;
    return k;
}

/* Puts the copies into the order: copies in one update ahead, and copies out one update behind. */
static void put_copies(Graph *g, const Plan *cut, const Movable *list, uint32_t n, Arena *tmp)
{
    uint32_t nold = g->norder, in = 0, out = 0, at = 0, to = 0;
    NodeId *old = memcpy(NEW(tmp, NodeId, nold + 1), g->order, nold * sizeof *old);
    g->order = NEW(g->arena, NodeId, nold + 2 * n);
    g->norder = g->corder = nold + 2 * n;
    for (uint32_t k = 0; k < nold; k++) {
        const Step *s = at < n ? &cut->step[list[at].step] : NULL;
        uint32_t next = next_step(list, n, at), ahead = next_step(list, n, next);
        for (; s && s->first == k && in < ahead; in++)
            g->order[to++] = list[in].fetch;
        g->order[to++] = old[k];
        if (!s || s->first + s->count != k + 1)
            continue;
        for (; out < (next < n ? at : n); out++)
            g->order[to++] = list[out].offload;
        at = next;
    }
}

Staging graph_offload_states(Graph *g, StepInfo *info, int64_t bytes, Arena *tmp)
{
    Plan cut = {.g = g};
    Staging away = {0};
    uint32_t nnodes = g->nnodes;
    Movable *list = NEW(tmp, Movable, g->nupdate + 1);
    plan_cut(&cut, tmp);
    uint32_t n = choose_states(list, find_movable(&cut, &info->link, list, tmp), bytes);
    for (uint32_t i = 0; i < n; i++) {
        Update *u = &g->update[list[i].update];
        g->vals[u->state.i].space = SPACE_HOST;
        list[i].fetch = detached(g, OP_fetch, u->state);
        list[i].offload = detached(g, OP_offload, u->value);
        read_instead(g, &cut.step[list[i].step], u->state, g->nodes[list[i].fetch.i].out[0]);
        u->value = g->nodes[list[i].offload.i].out[0];
        away.bytes += list[i].bytes;
        away.beside_ns += 2 * copy_beside_ns(&info->link, list[i].bytes);
    }
    put_copies(g, &cut, list, n, tmp);
    away.room = staging_room(list, n, info->align);
    if (n && info->cost)
        cost_copies(g, info, &info->link, nnodes);
    return away;
}

bool choose_states_away(const Graph *g, PassCtx *cx, int64_t budget, StatesAway *away)
{
    enum { PARTS = 16, WORTH = 100 }; /* a gain of less than 1 / WORTH is worth no copies */
    const double BESIDE = 0.5;        /* share of the time in which copies run: updates have fixed places */
    StepInfo info = *cx->info;
    Instance in;
    char err[REMAT_ERR];
    int64_t before = 0, least = INT64_MAX;
    Graph kept = graph_copy(g, cx->tmp), without = graph_copy(g, cx->tmp);
    Staging s = graph_offload_states(&without, &info, INT64_MAX, cx->tmp);
    double bandwidth = info.link.bandwidth;
    int64_t cap = info.link.bytes;
    int64_t all = cap && s.bytes > cap ? cap : s.bytes;
    *away = (StatesAway){.all = all, .part = all / PARTS, .fits = s.bytes == 0, .best_ns = INT64_MAX,
                         .least = INT64_MAX, .none = -1};
    info = *cx->info;
    info.link.bandwidth = 0;
    TRY(s.bytes == 0 || instance_make(&kept, &info, false, cx->tmp, &in, cx->diag));
    for (int32_t i = 0; s.bytes && i <= in.inst.loss; i++)
        before += in.inst.ops[i].cost;
    for (int i = 0; s.bytes && i <= PARTS; i++) {
        RematBound b;
        int64_t part = away->part * i;
        if (!remat_bound(&in.inst, budget + part - (i ? s.room : 0), 0, &b, err))
            return fail(cx->diag, "rematerialization: %s", err);
        away->fits |= i == 0 && !b.infeasible;
        double copied = (double)before + (double)part / bandwidth / BESIDE;
        double beside = (double)s.beside_ns * (double)part / (double)s.bytes;
        int64_t ns = (int64_t)(fmax((double)b.cost, copied) + beside);
        if (b.infeasible || ns >= least - (away->moved == 0 ? least / WORTH : 0))
            continue;
        away->moved = part;
        least = ns;
        away->ns = step_ns(&in, ns);
    }
    return true;
}

int64_t next_states_away(StatesAway *a, int64_t moved, int64_t ns, bool once)
{
    enum { HALVES = 3, FAR = 10 };
    bool found = ns < INT64_MAX, better = ns < a->best_ns;
    int64_t next = -1;
    a->best_ns = better ? ns : a->best_ns;
    a->least = found && moved < a->least ? moved : a->least;
    a->none = found ? a->none : moved;
    if (moved == 0 && a->fits && a->moved > 0)
        next = a->moved;
    else if (a->best_ns == INT64_MAX)
        next = moved < a->all ? a->all : -1;
    else if (once || a->moved == 0)
        next = -1;
    else if (a->none >= 0)
        next = a->least - a->none > a->part && a->halves++ < HALVES ? a->none + (a->least - a->none) / 2 : -1;
    else if (better && a->best_ns - a->ns > a->ns / FAR && moved < a->all)
        next = moved + a->part;
    return next < a->all ? next : a->all;
}
