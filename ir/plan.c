/* plan.c -- queries on plans: steps, live-out values, the independent verifier. */
#include "plan.h"
#include "integer.h"
#include "spans.h"
#include <stdlib.h>
#include <string.h>

const char *const mem_kind_name[MEM_KINDS] = {
    "parameters", "gradients", "optimizer", "state", "data", "activations", "workspace"};

int64_t align_up(int64_t bytes, int64_t align) { return round_up(bytes, align ? align : ARENA_ALIGN); }

/* The end of the kernel that the node at place k is part of: nodes of a group that stand together are one. */
static uint32_t kernel_end(const Graph *g, uint32_t k)
{
    uint32_t group = g->nodes[g->order[k].i].group, end = k + 1;
    while (group && end < g->norder && g->nodes[g->order[end].i].group == group)
        end++;
    return end;
}

/* Per value: is it, or a view of it, read outside the kernel that makes it?  Views themselves are
 * never live out: they have no memory of their own. */
static bool *live_out(const Graph *g, Arena *a)
{
    bool *live = graph_ends(g, a);
    uint32_t *end = NEW(a, uint32_t, g->nnodes); /* per node: the end of its kernel */
    for (uint32_t k = 0; k < g->norder; k++) {
        const Node *n = &g->nodes[g->order[k].i];
        uint32_t at = g->order[k].i, last = k ? end[g->order[k - 1].i] : 0;
        end[at] = k < last ? last : kernel_end(g, k);
        if (node_def(n)->traits & OPT_VIEW)
            continue;
        for (int i = 0; i < n->nin; i++) {
            Val r = graph_root(g, n->in[i]);
            NodeId def = g->vals[r.i].def;
            live[r.i] |= r.i && def.i && end[def.i] != end[at];
        }
    }
    return live;
}

bool *graph_accumulated(const Graph *g, Arena *a)
{
    bool *accumulated = NEW(a, bool, g->norder + 1), *value = NEW(a, bool, g->nvals);
    for (uint32_t k = 0; k < g->norder; k++) {
        const Node *n = &g->nodes[g->order[k].i];
        accumulated[k] = n->op == OP_accumulated;
        for (int i = 0; i < n->nin; i++)
            accumulated[k] |= value[n->in[i].i];
        for (int i = 0; i < n->nout; i++)
            value[n->out[i].i] = accumulated[k];
    }
    return accumulated;
}

/* The first step that depends on an accumulated value. */
static uint32_t find_micro(const Plan *p)
{
    Arena a = {0};
    const Graph *g = p->g;
    const bool *accumulated = graph_accumulated(g, &a);
    uint32_t first = p->nstep;
    for (uint32_t s = 0, k = 0; k < g->norder && first == p->nstep; k++) {
        const Node *n = &g->nodes[g->order[k].i];
        while (s < p->nstep && p->step[s].first + p->step[s].count <= k)
            s++;
        bool view = node_def(n)->traits & OPT_VIEW; /* it may stand in the kernel of its operand */
        if (accumulated[k] && !view && s < p->nstep)
            first = s;
    }
    arena_free(&a);
    return first;
}

void plan_cut(Plan *p, Arena *a)
{
    const Graph *g = p->g;
    p->step = NEW(a, Step, g->norder + 1);
    p->nstep = 0;
    for (uint32_t k = 0; k < g->norder;) {
        const Node *n = &g->nodes[g->order[k].i];
        uint32_t first = k;
        k = kernel_end(g, first);
        if (k == first + 1 && (node_def(n)->traits & OPT_VIEW))
            continue;
        p->step[p->nstep++] = (Step){.first = first, .count = k - first};
    }
    p->nmicro = find_micro(p);
}

typedef struct {
    const char *name; /* name of the node's first result, or of the one it recomputes */
    uint32_t step;
} Computed;

static int by_name_and_step(const void *a, const void *b)
{
    const Computed *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : (x->step > y->step) - (x->step < y->step);
}

static Computed computed(const Plan *p, uint32_t k, uint32_t step)
{
    const Node *n = &p->g->nodes[p->g->order[k].i];
    return (Computed){n->remat ? n->remat : p->g->vals[n->out[0].i].name, step};
}

uint32_t *plan_originals(const Plan *p, Arena *a)
{
    uint32_t *first = NEW(a, uint32_t, p->nstep + 1), n = 0;
    Computed *c = NEW(a, Computed, p->g->norder + 1);
    for (uint32_t s = 0; s < p->nstep; s++)
        for (uint32_t k = 0; k < p->step[s].count; k++)
            c[n++] = computed(p, p->step[s].first + k, s);
    qsort(c, n, sizeof *c, by_name_and_step);
    for (uint32_t s = 0; s < p->nstep; s++) {
        Computed key = computed(p, p->step[s].first, s);
        const Computed *at = bsearch(&key, c, n, sizeof *c, by_name_and_step);
        while (at > c && strcmp(at[-1].name, key.name) == 0)
            at--;
        first[s] = at->step;
    }
    return first;
}

Command *plan_commands(const Plan *p, Arena *a, Diag *d)
{
    Command *c = NEW(a, Command, p->nstep + 1);
    const bool *live = live_out(p->g, a);
    bool ok = true;
    for (uint32_t s = 0; s < p->nstep && ok; s++)
        ok = lower(&c[s], a, p->g, p->g->order + p->step[s].first, (int)p->step[s].count, live, d);
    return ok ? c : NULL;
}

/* ---- verifier: replays the plan on a map of the arena's bytes ------------------------------
 * Every write marks its range with the value; every read checks that its range still is that
 * value's. */

typedef struct {
    int64_t lo, hi;
    uint32_t val; /* 0: workspace, which holds nothing */
} Range;

static bool is_aligned(const Plan *p, int64_t at) { return at == align_up(at, p->align); }
static void map_write(Spans *m, Range w) { spans_write(m, w.lo, w.hi, w.val); }
static bool map_holds(const Spans *m, Range w) { return spans_hold(m, w.lo, w.hi, w.val); }

/* Sets a value's range in the map, in which the host's bytes lie behind the arena's. */
static bool value_range(const Plan *p, Val v, Range *r, Diag *d)
{
    int64_t bytes = type_bytes(val_type(p->g, v)), at = p->offset[v.i];
    bool host = val_space(p->g, v) == SPACE_HOST;
    int64_t base = host ? p->arena_bytes : 0;
    *r = (Range){base + at, base + at + bytes, v.i};
    if (bytes && (at < 0 || at + bytes > (host ? p->host_bytes : p->arena_bytes)))
        return fail(d, "plan: %%%s lies outside the arena", p->g->vals[v.i].name);
    return !bytes || is_aligned(p, at) || fail(d, "plan: %%%s is misaligned", p->g->vals[v.i].name);
}

static bool verify_step(const Plan *p, uint32_t s, const Command *c, Spans *m, Diag *d)
{
    Range r;
    const Val *vals = c->vals;
    int nread = c->nread, nwrite = c->nwrite;
    Range scratch = {p->step[s].scratch_offset, p->step[s].scratch_offset + p->step[s].scratch, 0};
    if (p->step[s].scratch && (scratch.lo < 0 || scratch.hi > p->arena_bytes))
        return fail(d, "plan: workspace of step %u lies outside the arena", s);
    if (p->step[s].scratch && !is_aligned(p, scratch.lo))
        return fail(d, "plan: workspace of step %u is misaligned", s);
    map_write(m, scratch);
    for (int i = 0; i < nread; i++) {
        if (!vals[i].i)
            continue;
        TRY(value_range(p, vals[i], &r, d));
        if (!map_holds(m, r))
            return fail(d, "plan: step %u reads %%%s, whose bytes are overwritten", s,
                        p->g->vals[vals[i].i].name);
    }
    for (int o = nread; o < nread + nwrite; o++) {
        TRY(value_range(p, vals[o], &r, d));
        for (int i = 0; i < nread; i++) { /* sharing a read operand's bytes needs permission */
            Range q;
            if (!vals[i].i)
                continue;
            TRY(value_range(p, vals[i], &q, d));
            bool overlap = r.lo < q.hi && q.lo < r.hi;
            if (overlap && (r.lo != q.lo || !command_inplace(c, i, o)))
                return fail(d, "plan: step %u writes %%%s over its operand %%%s", s,
                            p->g->vals[vals[o].i].name, p->g->vals[vals[i].i].name);
        }
        map_write(m, r);
    }
    for (int o = nread; o < nread + nwrite; o++) { /* results must not overlap each other */
        TRY(value_range(p, vals[o], &r, d));
        if (!map_holds(m, r))
            return fail(d, "plan: step %u: results overlap", s);
    }
    return true;
}

static bool verify_steps(const Plan *p, uint32_t to, const Command *c, Spans *m, Diag *d)
{
    for (uint32_t s = 0; s < to; s++)
        TRY(verify_step(p, s, &c[s], m, d));
    return true;
}

/* Marks the states that a micro-batch has updated as written. */
static bool verify_states(const Plan *p, Spans *m, Diag *d)
{
    const Graph *g = p->g;
    for (uint32_t i = 0; i < g->nupdate; i++) {
        Range value, state;
        Val v = graph_root(g, g->update[i].value);
        TRY(value_range(p, v, &value, d) && value_range(p, g->update[i].state, &state, d));
        if (map_holds(m, value))
            map_write(m, state);
    }
    return true;
}

/* Checks that outputs, updates and constants hold their bytes at the end of the step. */
static bool verify_end(const Plan *p, const Spans *m, Diag *d)
{
    const Graph *g = p->g;
    Range r;
    for (uint32_t i = 0; i < g->nout; i++) {
        TRY(value_range(p, graph_root(g, g->out[i]), &r, d));
        if (!map_holds(m, r))
            return fail(d, "plan: output %%%s is overwritten", g->vals[g->out[i].i].name);
    }
    for (uint32_t i = 0; i < g->nupdate; i++) {
        TRY(value_range(p, graph_root(g, g->update[i].value), &r, d));
        if (!map_holds(m, r))
            return fail(d, "plan: update %%%s is overwritten", g->vals[g->update[i].value.i].name);
    }
    for (uint32_t i = 1; i < g->nvals; i++)
        if (g->vals[i].kind == VAL_CONST && p->offset[i] >= 0) {
            TRY(value_range(p, (Val){i}, &r, d));
            if (!map_holds(m, r))
                return fail(d, "plan: constant %%%s is overwritten", g->vals[i].name);
        }
    return true;
}

bool plan_verify(const Plan *p, Diag *d)
{
    Arena a = {0};
    Spans m = {0};
    const Graph *g = p->g;
    const Command *c = plan_commands(p, &a, d);
    bool ok = c != NULL;
    for (uint32_t i = 1; i < g->nvals && ok; i++)
        if (g->vals[i].kind != VAL_TEMP && p->offset[i] >= 0) {
            Range r;
            ok = value_range(p, (Val){i}, &r, d);
            if (ok)
                map_write(&m, r);
        }
    for (uint32_t i = 1; i < g->nvals && ok; i++)
        if (g->vals[i].kind != VAL_TEMP && p->offset[i] >= 0) {
            Range r;
            ok = value_range(p, (Val){i}, &r, d) &&
                 (map_holds(&m, r) || fail(d, "plan: sources overlap at %%%s", g->vals[i].name));
        }
    if (p->nmicro < p->nstep) /* the bytes that one micro-batch leaves must do for the next */
        ok = ok && verify_steps(p, p->nmicro, c, &m, d) && verify_states(p, &m, d);
    ok = ok && verify_steps(p, p->nstep, c, &m, d);
    ok = ok && verify_end(p, &m, d);
    spans_free(&m);
    arena_free(&a);
    return ok;
}
