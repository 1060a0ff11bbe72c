/* offload.c -- what may be offloaded and fetched, and what that takes.
 *
 * A result is offloaded behind the first command that makes it, and fetched as often as it is wanted: an
 * operator without inputs (passes/remat/).  The nodes are made for every result, and are in no order until a
 * schedule with them is chosen. */
#include "instance.h"
#include <string.h>

const char *const offload_name[] = {"auto", "no", "only", NULL};

/* A node that is in no order yet; its result. */
static NodeId detached(Graph *g, Op op, Val v)
{
    build1(g, op, v);
    return g->order[--g->norder];
}

static bool may_move(const Graph *g, const RematOp *op, const Command *c)
{
    bool may = op->nout > 0;
    for (int i = c->nread; i < c->nread + c->nwrite && may; i++)
        may = val_space(g, c->vals[i]) == SPACE_DEVICE && type_bytes(val_type(g, c->vals[i])) > 0;
    return may;
}

/* ns of a copy of so many bytes in its lane. */
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

/* Offload and fetch of every result of a step, and the operator that stands for fetching them. */
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

/* What the copies cost: for the nodes that are new. */
static void cost_moves(Instance *in, StepInfo *info, const HostLink *link, uint32_t nnodes)
{
    const Graph *g = in->cut.g;
    StepCost *cost = NEW(g->arena, StepCost, g->nnodes);
    memcpy(cost, info->cost, nnodes * sizeof *cost);
    for (uint32_t i = nnodes; i < g->nnodes; i++) {
        int64_t ns = lane_ns(link, type_bytes(val_type(g, g->nodes[i].out[0])));
        cost[i] = (StepCost){.c = {{.ns = ns}}, .n = 1, .same = 1};
    }
    info->cost = in->cost = cost;
}

/* What is needed after the loss is offloaded before it and fetched after it. */
static int64_t time_to_copy(const Instance *in)
{
    int64_t before = 0, all = 0;
    for (int32_t i = 0; i < in->inst.nops; i++) {
        all += in->inst.ops[i].cost;
        before = i == in->inst.loss ? all : before;
    }
    before = before ? before : all / 2;
    return before < all - before ? before : all - before;
}

bool instance_add_moves(Graph *g, Instance *in, StepInfo *info, const Command *c, Diag *d)
{
    uint32_t nnodes = g->nnodes;
    const HostLink *link = &info->link;
    in->moves = NEW(in->arena, Move *, in->nops + 1);
    in->nmoves = NEW(in->arena, uint32_t, in->nops + 1);
    for (uint32_t s = 0; s < in->nops && link->bandwidth > 0 && info->cost; s++)
        if (may_move(g, &in->inst.ops[s], &c[s]))
            add_moves(g, in, link, &c[s], s);
    for (int32_t i = 0; i < in->inst.nops; i++)
        in->inst.ops[i].once |= link->only;
    in->inst.host = link->bytes;
    in->inst.link = in->inst.nfetch ? time_to_copy(in) : 0;
    in->live = NEW(in->arena, bool, g->nvals);
    in->fetched = NEW(in->arena, Val, g->nvals);
    if (in->inst.nfetch)
        cost_moves(in, info, link, nnodes);
    for (uint32_t s = 0; s < in->nops; s++)
        for (uint32_t k = 0; k < in->nmoves[s]; k++) {
            Move *v = &in->moves[s][k];
            TRY(lower_copy(in, &v->offload, &v->out, d) && lower_copy(in, &v->fetch, &v->in, d));
            in->fetched[v->fetched.i] = v->value;
        }
    return true;
}
