/* uses.c -- what the nodes of a plan are for, and what becomes of their results. */
#include "uses.h"
#include "module.h"
#include "names.h"
#include <string.h>

const char *const phase_name[] = {"", "forward", "backward", "update"};

static const Node *node_at(const Graph *g, uint32_t k) { return &g->nodes[g->order[k].i]; }

/* ---- phases ---------------------------------------------------------------------------------------- */

/* Gives the phase `is` to nodes that the wanted values depend on and that have no phase yet. */
static void give_phase(const Graph *g, bool *wanted, Phase is, Phase *phase)
{
    for (uint32_t k = g->norder; k-- > 0;) {
        const Node *n = node_at(g, k);
        Phase *own = &phase[g->order[k].i];
        bool some = false;
        for (int i = 0; i < n->nout; i++)
            some |= wanted[n->out[i].i];
        for (int i = 0; i < n->nin && some; i++)
            wanted[n->in[i].i] = true;
        if (some && !*own)
            *own = is;
    }
}

static Phase *node_phases(const Graph *g, uint32_t results, Arena *a)
{
    bool *loss = NEW(a, bool, g->nvals), *gradient = NEW(a, bool, g->nvals);
    bool *update = NEW(a, bool, g->nvals), *rest = NEW(a, bool, g->nvals);
    Phase *phase = NEW(a, Phase, g->nnodes);
    for (uint32_t i = 0; i < g->nout; i++)
        (i < results ? loss : gradient)[g->out[i].i] = true;
    for (uint32_t k = 0; k < g->norder; k++) {
        const Node *n = node_at(g, k);
        if (node_def(n)->traits & OPT_ONCE) /* an update: operand 1 is the gradient */
            gradient[n->in[1].i] = update[n->out[0].i] = true;
        for (int i = 0; i < n->nout; i++)
            rest[n->out[i].i] = true;
    }
    give_phase(g, loss, PHASE_FORWARD, phase);
    give_phase(g, gradient, PHASE_BACKWARD, phase);
    give_phase(g, update, PHASE_UPDATE, phase);
    give_phase(g, rest, PHASE_FORWARD, phase);
    return phase;
}

/* ---- when a value is read, and computed again ------------------------------------------------------- */

static const char *computes(const Graph *g, const Node *n)
{
    return n->remat ? n->remat : g->vals[n->out[0].i].name;
}

static uint32_t *filled(uint32_t n, Arena *a)
{
    return memset(NEW(a, uint32_t, n + 1), 0xff, (n + 1) * sizeof(uint32_t));
}

static uint32_t later(uint32_t a, uint32_t b) { return a == NEVER || (b != NEVER && b > a) ? b : a; }
static uint32_t earlier(uint32_t a, uint32_t b) { return b < a ? b : a; }

/* Reading a view counts as reading the value that it views. */
static void find_reads(const Graph *g, PlanUses *u)
{
    for (uint32_t k = g->norder; k-- > 0;) {
        const Node *n = node_at(g, k);
        bool view = node_def(n)->traits & OPT_VIEW, copy = n->op == OP_offload || n->op == OP_fetch;
        bool behind = !copy && u->phase[g->order[k].i] != PHASE_FORWARD;
        for (int i = 0; i < n->nin; i++) {
            uint32_t *last = &u->last[n->in[i].i], *first = &u->behind[n->in[i].i];
            *last = later(*last, view ? u->last[n->out[0].i] : u->step[k]);
            *first = earlier(*first, view ? u->behind[n->out[0].i] : behind ? u->step[k] : NEVER);
        }
    }
}

PlanUses plan_uses(const Plan *p, uint32_t results, Arena *a)
{
    const Graph *g = p->g;
    PlanUses u = {.step = filled(g->norder, a),
                  .before = filled(g->norder, a),
                  .again = filled(g->norder, a),
                  .last = filled(g->nvals, a),
                  .behind = filled(g->nvals, a),
                  .phase = node_phases(g, results, a)};
    NameMap latest = name_map(a); /* name of what is computed, to the latest place that computes it */
    for (uint32_t k = 0, s = 0; k < g->norder; k++) {
        const Node *n = node_at(g, k);
        while (s + 1 < p->nstep && p->step[s + 1].first <= k)
            s++;
        u.step[k] = s;
        const uint32_t *before = name_get(&latest, computes(g, n));
        if (before) {
            u.before[k] = u.step[*before];
            u.again[*before] = s;
        }
        name_put(&latest, computes(g, n), k);
    }
    find_reads(g, &u);
    return u;
}

Phase step_phase(const Plan *p, const PlanUses *u, uint32_t s)
{
    Phase phase = PHASE_NONE;
    for (uint32_t k = 0; k < p->step[s].count; k++) {
        Phase is = u->phase[p->g->order[p->step[s].first + k].i];
        phase = is > phase ? is : phase;
    }
    return phase;
}

/* ---- steps ------------------------------------------------------------------------------------------ */

bool step_copies(const Plan *p, uint32_t s)
{
    Op op = node_at(p->g, p->step[s].first)->op;
    return op == OP_offload || op == OP_fetch;
}

const char *step_module(const Plan *p, uint32_t s, Arena *a)
{
    for (uint32_t k = 0; k < p->step[s].count; k++) {
        const Node *n = node_at(p->g, p->step[s].first + k);
        if (n->name && *n->name)
            return module_path(n->name, false, a);
    }
    return "";
}

void step_label(const Plan *p, uint32_t s, char *label, size_t room)
{
    size_t n = 0;
    *label = 0;
    for (uint32_t k = 0; k < p->step[s].count; k++) {
        const char *op = node_def(node_at(p->g, p->step[s].first + k))->name;
        if (!strstr(label, op) && n + strlen(op) + 2 < room)
            n += (size_t)snprintf(label + n, room - n, "%s%s", n ? "+" : "", op);
    }
}

typedef struct {
    const Plan *p;
    const PlanUses *u;
    uint32_t *original; /* per step */
    uint32_t *maker;    /* per value: the step that makes it, or what it is a copy of; NEVER: none */
    Fate *fate;         /* per step */
} Fates;

/* Adds to a fate the lifetime of v, a result or a copy of one, which exists from step s on. */
static void add_life(Fates *f, Fate *to, uint32_t s, Val v)
{
    uint32_t last = f->u->last[v.i] == NEVER ? s : f->u->last[v.i];
    if (s == to->step)
        to->until = last > to->until ? last : to->until;
    else
        to->again = s < to->again ? s : to->again;
    to->last = last > to->last ? last : to->last;
    to->behind = earlier(to->behind, f->u->behind[v.i]);
    to->at_peak |= s <= f->p->peak_step && f->p->peak_step <= last;
}

static void add_computed(Fates *f, uint32_t s)
{
    const Graph *g = f->p->g;
    Fate *to = &f->fate[f->original[s]];
    bool first = f->original[s] == s;
    int64_t most = -1;
    if (first)
        *to = (Fate){.step = s, .until = s, .last = s, .again = NEVER, .behind = NEVER};
    else {
        to->redone++;
        to->redone_ns += f->p->step[s].cost_ns;
    }
    for (uint32_t k = 0; k < f->p->step[s].count; k++) {
        const Node *n = node_at(g, f->p->step[s].first + k);
        for (int i = 0; i < n->nout; i++) {
            Val v = n->out[i];
            int64_t bytes = type_bytes(val_type(g, v));
            f->maker[v.i] = to->step;
            if (f->p->offset[v.i] < 0 || node_def(n)->traits & OPT_VIEW)
                continue;
            if (first && bytes > most) {
                to->val = v;
                most = bytes;
            }
            to->bytes += first ? bytes : 0;
            add_life(f, to, s, v);
        }
    }
}

/* Adds a copy to the fate of the result that it copies; copies of states belong to none. */
static void add_copy(Fates *f, uint32_t s)
{
    const Node *n = node_at(f->p->g, f->p->step[s].first);
    uint32_t made = f->maker[n->op == OP_fetch ? n->in[0].i : graph_root(f->p->g, n->in[0]).i];
    f->maker[n->out[0].i] = made;
    if (made == NEVER)
        return;
    Fate *to = &f->fate[made];
    to->moved_bytes += type_bytes(val_type(f->p->g, n->out[0]));
    if (n->op == OP_fetch) {
        to->fetched++;
        add_life(f, to, s, n->out[0]);
    }
}

Fate *plan_fates(const Plan *p, const PlanUses *u, uint32_t *n, Arena *a)
{
    Fates f = {.p = p, .u = u, .original = plan_originals(p, a), .maker = filled(p->g->nvals, a)};
    f.fate = NEW(a, Fate, p->nstep + 1);
    for (uint32_t s = 0; s < p->nstep; s++)
        if (step_copies(p, s))
            add_copy(&f, s);
        else
            add_computed(&f, s);
    *n = 0;
    for (uint32_t s = 0; s < p->nstep; s++)
        if (f.original[s] == s && !step_copies(p, s))
            f.fate[(*n)++] = f.fate[s];
    return f.fate;
}
