/* timeline.c -- the bytes of a plan over its steps: which value holds them when, and how many of each kind.
 *
 * All follows from the plan: a computed value holds its bytes from the step that makes it to the last that
 * reads it, a source always, a workspace during its step.  A result that takes over the bytes of an operand
 * holds them from its own step on, so that every byte is counted once. */
#include "instance.h"
#include "ir/program.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
    const Plan *p;
    const Command *c;     /* per step */
    const Lifetime *life; /* per value */
    const MemKind *kind;  /* per value */
    uint32_t *end;        /* per value: the step from which on it no longer holds its bytes */
    bool *updates;        /* per value: it is written over the state that it updates */
    Life *out;
    uint32_t n;
} Lives;

/* Ends the lives of operands whose bytes a result of step s takes over. */
static void find_heirs(Lives *l, uint32_t s)
{
    const Plan *p = l->p;
    const Command *c = &l->c[s];
    for (int o = c->nread; o < c->nread + c->nwrite; o++)
        for (int i = 0; i < c->nread; i++) {
            uint32_t from = c->vals[i].i, to = c->vals[o].i;
            if (from && p->g->vals[from].kind == VAL_TEMP && l->life[from].last == (int32_t)s &&
                p->offset[from] == p->offset[to] &&
                val_space(p->g, (Val){from}) == val_space(p->g, (Val){to}))
                l->end[from] = s;
        }
}

static void find_updates(Lives *l)
{
    const Graph *g = l->p->g;
    for (uint32_t i = 0; i < g->nupdate; i++) {
        Val v = graph_root(g, g->update[i].value);
        l->updates[v.i] |= l->p->offset[v.i] == l->p->offset[g->update[i].state.i];
    }
}

static void add_value(Lives *l, uint32_t v)
{
    const Plan *p = l->p;
    bool source = p->g->vals[v].kind != VAL_TEMP;
    if (p->offset[v] < 0 || (!source && (l->life[v].first < 0 || l->updates[v])))
        return;
    l->out[l->n++] = (Life){.val = {v},
                            .first = source ? 0 : (uint32_t)l->life[v].first,
                            .end = source ? p->nstep : l->end[v],
                            .bytes = align_up(type_bytes(&p->g->vals[v].type), p->align),
                            .at = p->offset[v],
                            .kind = l->kind[v],
                            .space = val_space(p->g, (Val){v})};
}

Life *lives_of(const Plan *p, const StepInfo *info, const Command *c, const Lifetime *life, uint32_t *n,
               Arena *a)
{
    uint32_t nvals = p->g->nvals;
    Lives l = {p,
               c,
               life,
               plan_kinds(p->g, info, a),
               NEW(a, uint32_t, nvals),
               NEW(a, bool, nvals),
               NEW(a, Life, nvals + p->nstep),
               0};
    for (uint32_t v = 1; v < nvals; v++)
        l.end[v] = life[v].last < (int32_t)p->nstep ? (uint32_t)(life[v].last + 1) : p->nstep;
    for (uint32_t s = 0; s < p->nstep; s++)
        find_heirs(&l, s);
    find_updates(&l);
    for (uint32_t v = 1; v < nvals; v++)
        add_value(&l, v);
    for (uint32_t s = 0; s < p->nstep; s++)
        if (p->step[s].scratch)
            l.out[l.n++] = (Life){.first = s,
                                  .end = s + 1,
                                  .bytes = align_up(p->step[s].scratch, p->align),
                                  .at = p->step[s].scratch_offset,
                                  .kind = MEM_WORKSPACE};
    *n = l.n;
    return l.out;
}

Life *plan_lives(const Plan *p, const StepInfo *info, uint32_t *n, Arena *a)
{
    const Command *c = plan_commands(p, a, NULL);
    if (!c)
        abort(); /* the plan was made of them */
    Sequence s = sequence_of_plan(p, c, a);
    return lives_of(p, info, c, sequence_lifetimes(&s, a), n, a);
}

/* ---- bytes by kind ---------------------------------------------------------------------------- */

int64_t mem_sum(const int64_t mem[MEM_KINDS])
{
    int64_t all = 0;
    for (int k = 0; k < MEM_KINDS; k++)
        all += mem[k];
    return all;
}

uint32_t curve_peak(const MemCurve *c)
{
    uint32_t peak = 0;
    for (uint32_t s = 1; s < c->n; s++)
        if (mem_sum(c->held[s]) > mem_sum(c->held[peak]))
            peak = s;
    return peak;
}

MemCurve lives_curve(const Plan *p, const Life *life, uint32_t n, Arena *a)
{
    MemCurve c = {.n = p->nstep,
                  .held = arena_alloc(a, p->nstep + 1, sizeof *c.held),
                  .host = NEW(a, int64_t, p->nstep + 1)};
    for (const Life *l = life; l < life + n; l++) { /* changes first, summed below */
        bool host = l->space == SPACE_HOST;
        *(host ? &c.host[l->first] : &c.held[l->first][l->kind]) += l->bytes;
        *(host ? &c.host[l->end] : &c.held[l->end][l->kind]) -= l->bytes;
    }
    for (uint32_t s = 1; s < c.n; s++) {
        c.host[s] += c.host[s - 1];
        for (int k = 0; k < MEM_KINDS; k++)
            c.held[s][k] += c.held[s - 1][k];
    }
    return c;
}

/* ---- predicted times ---------------------------------------------------------------------------- */

static void lanes_clock(const Plan *p, StepTime *t, Arena *a)
{
    Program program;
    if (!program_make(&program, p, a, NULL))
        abort(); /* the prediction was made of it */
    int64_t *ns = NEW(a, int64_t, p->nstep + 1);
    for (uint32_t s = 0; s < p->nstep; s++)
        ns[s] = p->step[s].cost_ns;
    int64_t micro = program_ns(&program, ns, 0, p->nmicro, t);
    program_ns(&program, ns, p->nmicro, p->nstep, t);
    for (uint32_t s = p->nmicro; s < p->nstep; s++) {
        t[s].begin += micro;
        t[s].end += micro;
    }
}

StepTime *plan_clock(const Plan *p, Arena *a)
{
    StepTime *t = NEW(a, StepTime, p->nstep + 1);
    int64_t now = 0;
    if (p->host_bytes)
        lanes_clock(p, t, a);
    for (uint32_t s = 0; s < p->nstep && !p->host_bytes; s++) {
        t[s] = (StepTime){now, now + p->step[s].cost_ns, LANE_COMPUTE};
        now = t[s].end;
    }
    return t;
}

MemCurve plan_curve(const Plan *p, const StepInfo *info, Arena *a)
{
    Arena tmp = {0};
    uint32_t n;
    const Life *life = plan_lives(p, info, &n, &tmp);
    MemCurve c = lives_curve(p, life, n, a);
    const StepTime *t = plan_clock(p, &tmp);
    int64_t now = 0, all = 0;
    c.ns = NEW(a, int64_t, p->nstep + 1);
    for (uint32_t s = 0; s < p->nstep; s++) { /* a copy is shown where the kernel before it ends */
        bool kernel = t[s].lane == LANE_COMPUTE;
        c.ns[s] = kernel ? t[s].begin : now;
        now = kernel ? t[s].end : now;
        all = t[s].end > all ? t[s].end : all;
    }
    c.ns[p->nstep] = all;
    arena_free(&tmp);
    return c;
}
