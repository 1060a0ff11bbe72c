/* program.c -- a plan as the launches that a device executes. */
#include "program.h"
#include "mem.h"
#include <inttypes.h>
#include <stdlib.h>

/* ---- from operands to offsets ------------------------------------------------------------------------- */

/* Byte offset of an operand of the step's command, or of its workspace. */
static int64_t place(const Plan *p, uint32_t s, const Command *c, int base)
{
    if (base == c->nread + c->nwrite)
        return p->step[s].scratch_offset;
    return p->offset[graph_root(p->g, c->vals[base]).i];
}

static bool inside(const Plan *p, Space space, int64_t at, int64_t bytes)
{
    int64_t all = space == SPACE_HOST ? p->host_bytes : p->arena_bytes;
    return at >= 0 && at <= all && bytes <= all - at;
}

/* Checks that nothing lies outside the arena: a schedule may come from a file. */
static bool check_places(const Plan *p, Diag *d)
{
    for (uint32_t v = 1; v < p->g->nvals; v++)
        if (p->offset[v] >= 0 && !inside(p, val_space(p->g, (Val){v}), p->offset[v],
                                         type_bytes(&p->g->vals[v].type)))
            return fail(d, "plan: %%%s lies outside the arena", p->g->vals[v].name);
    for (uint32_t i = 0; i < p->g->nupdate; i++) {
        Update u = p->g->update[i];
        if (val_space(p->g, u.state) == SPACE_HOST && p->offset[u.state.i] != p->offset[u.value.i])
            return fail(d, "plan: %%%s lies in the host's memory, and is not updated where it lies",
                        p->g->vals[u.state.i].name);
    }
    for (uint32_t s = 0; s < p->nstep; s++)
        if (p->step[s].scratch > 0 && !inside(p, SPACE_DEVICE, p->step[s].scratch_offset, p->step[s].scratch))
            return fail(d, "plan: the scratch of step %" PRIu32 " lies outside the arena", s);
    return true;
}

static Lane lane_of(const Command *c)
{
    Op op = command_node(c)->op;
    return op == OP_offload ? LANE_OUT : op == OP_fetch ? LANE_IN : LANE_COMPUTE;
}

static bool locate(const Plan *p, uint32_t s, const Command *c, Launch *l, Arena *a, Diag *d)
{
    Slice *op = NEW(a, Slice, l->nop + 1);
    for (int i = 0; i < l->nop; i++) {
        op[i] = l->op[i];
        if (op[i].base < 0)
            continue;
        int64_t at = place(p, s, c, op[i].base);
        bool workspace = op[i].base == c->nread + c->nwrite;
        if (at < 0)
            return fail(d, "plan: an operand of step %" PRIu32 " has no memory", s);
        if (workspace && op[i].bytes > p->step[s].scratch - op[i].at)
            return fail(d, "plan: step %" PRIu32 " needs %" PRId64 " bytes of workspace, and has %" PRId64,
                        s, command_workspace_bytes(c), p->step[s].scratch);
        op[i].at += at;
        op[i].base = workspace ? SPACE_DEVICE : (int)val_space(p->g, c->vals[op[i].base]);
    }
    l->op = op;
    l->workspace.bytes = p->step[s].scratch - l->workspace.at;
    l->workspace.at += p->step[s].scratch_offset;
    l->workspace.base = SPACE_DEVICE;
    l->lane = lane_of(c);
    return true;
}

static bool add_step(Program *out, const Plan *p, uint32_t s, Arena *a, Diag *d)
{
    const Command *c = &out->command[s];
    out->first[s] = out->l.n;
    if (command_launch_count(c, command_blocks(c)) > PROGRAM_LAUNCHES - (int64_t)out->l.n)
        return fail_status(d, EXIT_UNSUPPORTED, "plan: more than %d launches", PROGRAM_LAUNCHES);
    command_launches(c, &out->l);
    for (uint32_t i = out->first[s]; i < out->l.n; i++)
        TRY(locate(p, s, c, &out->l.launch[i], a, d));
    return true;
}

/* ---- updates ------------------------------------------------------------------------------------------- */

/* Is v made once per micro-batch? */
static bool made_in_micro(const Plan *p, Val v)
{
    NodeId def = p->g->vals[graph_root(p->g, v).i].def;
    for (uint32_t k = p->nmicro < p->nstep ? p->step[p->nmicro].first : p->g->norder; k < p->g->norder; k++)
        if (p->g->order[k].i == def.i)
            return false;
    return true;
}

static void add_copy(Program *out, int64_t from, int64_t to, int64_t bytes)
{
    Launches *l = &out->l;
    CopyRows *copy = NEW(l->arena, CopyRows, 1);
    Slice *op = NEW(l->arena, Slice, 2);
    *copy = (CopyRows){.rows = 1, .bytes = bytes, .stride = bytes};
    op[0] = (Slice){0, false, from, bytes};
    op[1] = (Slice){0, true, to, bytes};
    l->launch = arena_grow(l->arena, l->launch, l->n, &l->cap, sizeof *l->launch);
    l->launch[l->n++] = (Launch){.copy = copy, .ncopy = 1, .nop = 2, .op = op};
}

static void add_updates(Program *out, const Plan *p, bool micro)
{
    const Graph *g = p->g;
    for (uint32_t i = 0; i < g->nupdate; i++) {
        int64_t to = p->offset[graph_root(g, g->update[i].state).i];
        int64_t from = p->offset[graph_root(g, g->update[i].value).i];
        int64_t bytes = type_bytes(val_type(g, g->update[i].state));
        if (to >= 0 && from >= 0 && to != from && made_in_micro(p, g->update[i].value) == micro)
            add_copy(out, from, to, bytes);
    }
}

bool program_make(Program *out, const Plan *p, Arena *a, Diag *d)
{
    *out = (Program){.l = {.arena = a}, .first = NEW(a, uint32_t, p->nstep + 1),
                     .bytes = {[SPACE_DEVICE] = p->arena_bytes, [SPACE_HOST] = p->host_bytes},
                     .align = p->align};
    out->command = plan_commands(p, a, d);
    TRY(out->command && check_places(p, d));
    for (uint32_t s = 0; s < p->nstep; s++)
        TRY(add_step(out, p, s, a, d));
    out->first[p->nstep] = out->updates[0] = out->l.n;
    add_updates(out, p, true);
    out->updates[1] = out->l.n;
    add_updates(out, p, false);
    out->updates[2] = out->l.n;
    program_add_waits(out);
    return true;
}

int64_t program_ns(const Program *p, const int64_t *step_ns, uint32_t from, uint32_t to, StepTime *times)
{
    int64_t *end = mem_new((size_t)p->l.n + 1, sizeof *end), lane[LANES] = {0}, all = 0;
    for (uint32_t s = from; s < to; s++) {
        uint32_t first = p->first[s], n = p->first[s + 1] - first;
        int64_t kernels = lane[LANE_COMPUTE];
        StepTime time = {kernels, kernels, LANE_COMPUTE};
        for (uint32_t i = first; i < first + n; i++) {
            const Launch *l = &p->l.launch[i];
            int64_t *now = &lane[l->lane];
            for (int w = 0; w < l->nwait; w++)
                *now = end[l->wait[w]] > *now ? end[l->wait[w]] : *now;
            if (i == first)
                time = (StepTime){*now, *now, l->lane};
            *now += step_ns[s] / n + (i == first ? step_ns[s] % n : 0);
            end[i] = *now;
            time.end = *now;
            all = *now > all ? *now : all;
        }
        if (times)
            times[s] = time;
    }
    free(end);
    return all;
}
