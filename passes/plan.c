/* plan.c -- chooses an offset in one arena for every value of the schedule.
 *
 * Sources (parameters, state, data, constants) live through every step and lie at the bottom of their
 * memory, at places that do not depend on the schedule.  Computed values become buffers with lifetimes;
 * a result that may take over a dying operand shares its buffer, an update shares its state's.
 * Library working memory is a buffer of one step.  passes/plan/pack.c assigns the offsets. */
#include "instance.h"
#include "ir/program.h"
#include "plan/pack.h"
#include <string.h>

/* Steps of the packing search, about a nanosecond each, and the most to spend per byte to be saved. */
static const int64_t steps_of[] = {[PACK_QUICK] = 2000000, [PACK_LONG] = 50000000,
                                   [PACK_LONGEST] = 1000000000};
enum { STEPS_PER_BYTE = 40000 };

typedef struct {
    int64_t bytes;
    int32_t lower, upper;
} Buffer;

typedef struct {
    const Sequence *s;
    StepInfo *info;
    Arena *tmp;
    Diag *d;
    const Lifetime *life; /* per copy */
    int64_t *offset;      /* per copy, -1: it has no memory */
    int32_t *buffer;      /* per copy: its buffer, -1 */
    int32_t *occupant;    /* per buffer: the copy that it holds now */
    Buffer *buf;
    uint32_t nbuf;
    Val *target;          /* per copy: state it updates */
    int32_t *scratch;     /* per execution: its buffer, -1 */
    int64_t *scratch_offset;
} Place;

static const Type *copy_type(const Place *pl, uint32_t v) { return val_type(pl->s->g, pl->s->of[v]); }

/* Sets the offsets of the sources in this memory; returns their bytes. */
static int64_t place_sources(Place *pl, Space space)
{
    const Graph *g = pl->s->g;
    const bool *cast = graph_cast(g, pl->tmp);
    int64_t at = 0;
    static const ValKind order[] = {VAL_PARAM, VAL_STATE, VAL_INPUT, VAL_CONST};
    for (size_t k = 0; k < sizeof order / sizeof *order; k++)
        for (uint32_t v = 1; v < g->nvals; v++) {
            bool keeps = (g->vals[v].kind == VAL_PARAM && !cast[v]) || g->vals[v].kind == VAL_STATE;
            if (g->vals[v].kind != order[k] || g->vals[v].space != space || (pl->life[v].last < 0 && !keeps))
                continue;
            pl->offset[v] = at;
            at += align_up(type_bytes(&g->vals[v].type), pl->info->align);
        }
    return at;
}

static int32_t new_buffer(Place *pl, int64_t bytes, uint32_t s)
{
    pl->buf[pl->nbuf] = (Buffer){align_up(bytes, pl->info->align), (int32_t)s, (int32_t)s + 1};
    return (int32_t)pl->nbuf++;
}

/* Gives a result the place of the state that it updates, if this step may write it in place and nothing
 * reads the state later; false: it may not. */
static bool in_place_update(Place *pl, const Execution *e, int out, uint32_t s)
{
    Val v = e->vals[out], state = pl->target[v.i];
    if (!state.i || pl->life[state.i].last > (int32_t)s)
        return false;
    for (int i = 0; i < e->c->nread; i++)
        if (e->vals[i].i == state.i && command_inplace(e->c, i, out)) {
            pl->offset[v.i] = pl->offset[state.i];
            return true;
        }
    return false;
}

/* The buffer of an operand that dies here and may be taken over; -1: none. */
static int32_t take_over(Place *pl, const Execution *e, int out, uint32_t s)
{
    int64_t bytes = align_up(type_bytes(copy_type(pl, e->vals[out].i)), pl->info->align);
    int nread = e->c->nread;
    for (int i = 0; i < nread; i++) {
        Val r = e->vals[i];
        int32_t b = pl->buffer[r.i]; /* sources have none */
        if (b < 0 || pl->life[r.i].last != (int32_t)s)
            continue;
        if (pl->buf[b].bytes == bytes && (uint32_t)pl->occupant[b] == r.i && command_inplace(e->c, i, out)) {
            bool twice = false; /* another operand in the same bytes would be clobbered */
            for (int j = 0; j < nread; j++)
                twice |= j != i && pl->buffer[e->vals[j].i] == b && e->vals[j].i != r.i;
            if (!twice)
                return b;
        }
    }
    return -1;
}

static void make_buffers(Place *pl)
{
    for (uint32_t s = 0; s < pl->s->n; s++) {
        const Execution *e = &pl->s->run[s];
        for (int i = e->c->nread; i < e->c->nread + e->c->nwrite; i++) {
            uint32_t v = e->vals[i].i;
            if (val_space(pl->s->g, pl->s->of[v]) == SPACE_HOST)
                continue; /* placed by pack_host */
            if (in_place_update(pl, e, i, s))
                continue;
            int32_t b = take_over(pl, e, i, s);
            if (b < 0)
                b = new_buffer(pl, type_bytes(copy_type(pl, v)), s);
            pl->buffer[v] = b;
            pl->occupant[b] = (int32_t)v;
            if (pl->life[v].last + 1 > pl->buf[b].upper)
                pl->buf[b].upper = pl->life[v].last + 1;
        }
        pl->scratch[s] = e->how && e->how->scratch ? new_buffer(pl, e->how->scratch, s) : -1;
    }
}

/* The result of a packing search, kept because the same schedule is often packed again.  It answers another
 * search if it reached that one's goal, or had the same goal and as many steps. */
struct Packing {
    const struct Packing *older;
    int64_t goal, steps;
    uint32_t n;
    const PackBuffer *placed;
    PackResult result;
};

static bool same_buffers(const struct Packing *k, const Place *pl)
{
    bool same = k->n == pl->nbuf;
    for (uint32_t i = 0; same && i < k->n; i++)
        same = k->placed[i].size == pl->buf[i].bytes && k->placed[i].lower == pl->buf[i].lower &&
               k->placed[i].upper == pl->buf[i].upper;
    return same;
}

static bool answers(const struct Packing *k, int64_t goal, int64_t steps)
{
    return k->result.arena <= goal || (k->goal == goal && k->steps >= steps);
}

/* Offsets found in so many steps or more; an arena of at most `goal` bytes (0: none), sources not counted,
 * ends the search.  NULL: failed. */
static const struct Packing *pack_with(Place *pl, int64_t goal, int64_t steps)
{
    const struct Packing *best = NULL;
    bool answered = false;
    for (const struct Packing *known = pl->info->packed; known; known = known->older)
        if (same_buffers(known, pl)) {
            best = !best || known->result.arena < best->result.arena ? known : best;
            answered |= answers(known, goal, steps);
        }
    if (answered)
        return best;
    char err[PACK_ERR_SIZE];
    PackOptions opt = {.align = align_up(1, pl->info->align), .seed = 1, .max_steps = steps,
                       .capacity = goal};
    struct Packing *k = NEW(pl->s->g->arena, struct Packing, 1);
    PackBuffer *b = NEW(pl->s->g->arena, PackBuffer, pl->nbuf + 1);
    *k = (struct Packing){pl->info->packed, goal, steps, pl->nbuf, b, {0}};
    for (uint32_t i = 0; i < pl->nbuf; i++)
        b[i] = (PackBuffer){pl->buf[i].bytes, pl->buf[i].lower, pl->buf[i].upper, -1};
    if (!pack_solve(b, (int32_t)pl->nbuf, &opt, &k->result, err)) {
        diag_set(pl->d, "plan: %s", err);
        return NULL;
    }
    pl->info->packed = k;
    return best && best->result.arena < k->result.arena ? best : k; /* a longer search may find less */
}

/* Search steps for this effort, fewer if few bytes can be saved: planning a small model does not take
 * seconds.  The longest search takes its part of those. */
static int64_t steps_for(const StepInfo *info, PackEffort effort, int64_t bytes)
{
    int64_t least = steps_of[PACK_LONG], most = steps_of[effort], worth = bytes * STEPS_PER_BYTE;
    if (effort == PACK_LONGEST && info->pack_share > 0)
        most = (int64_t)(info->pack_share * (double)most);
    worth = worth > least ? worth : least;
    return worth < most ? worth : most;
}

/* Chooses offsets of the buffers above `base`.  Most schedules pack without a gap at once; a longer search
 * follows if the arena is above a budget that the live bytes meet, or more than 0.5 % above them. */
static bool pack(Place *pl, int64_t base, int64_t budget, PackEffort effort, ArenaSize *size)
{
    const struct Packing *k = pack_with(pl, 0, steps_of[PACK_QUICK]);
    TRY(k);
    int64_t live = base + k->result.max_load, goal = live + live / 200;
    goal = budget >= live && budget < goal ? budget : goal;
    if (effort > PACK_QUICK && base + k->result.arena > goal) {
        int64_t steps = steps_for(pl->info, effort, base + k->result.arena - goal);
        k = pack_with(pl, goal - base, steps);
        TRY(k);
    }
    for (uint32_t v = 1; v < pl->s->nvals; v++)
        if (pl->buffer[v] >= 0)
            pl->offset[v] = base + k->placed[pl->buffer[v]].offset;
    for (uint32_t s = 0; s < pl->s->n; s++)
        if (pl->scratch[s] >= 0)
            pl->scratch_offset[s] = base + k->placed[pl->scratch[s]].offset;
    *size = (ArenaSize){.arena = base + k->result.arena, .live = live};
    return true;
}

/* Chooses offsets of offloaded values in the host's memory above `base`; a quick search is enough, as there
 * is more of that memory.  The new value of a state has the state's offset. */
static bool pack_host(Place *pl, int64_t base, int64_t *bytes)
{
    PackBuffer *b = NEW(pl->tmp, PackBuffer, pl->s->nvals);
    uint32_t *of = NEW(pl->tmp, uint32_t, pl->s->nvals);
    int32_t n = 0;
    for (uint32_t v = 1; v < pl->s->nvals; v++)
        if (val_space(pl->s->g, pl->s->of[v]) == SPACE_HOST && pl->life[v].first >= 0) {
            if (pl->target[v].i) {
                pl->offset[v] = pl->offset[pl->target[v].i];
                continue;
            }
            b[n] = (PackBuffer){align_up(type_bytes(copy_type(pl, v)), pl->info->align),
                                pl->life[v].first, pl->life[v].last + 1, -1};
            of[n++] = v;
        }
    char err[PACK_ERR_SIZE];
    PackResult result;
    PackOptions opt = {.align = align_up(1, pl->info->align), .seed = 1, .max_steps = steps_of[PACK_QUICK]};
    *bytes = base;
    if (n == 0)
        return true;
    if (!pack_solve(b, n, &opt, &result, err))
        return fail(pl->d, "plan: %s", err);
    for (int32_t i = 0; i < n; i++)
        pl->offset[of[i]] = base + b[i].offset;
    *bytes = base + result.arena;
    return true;
}

static bool place(Place *pl, int64_t budget, PackEffort effort, ArenaSize *size)
{
    const Sequence *s = pl->s;
    const Graph *g = s->g;
    pl->life = sequence_lifetimes(s, pl->tmp);
    pl->offset = NEW(pl->tmp, int64_t, s->nvals);
    pl->buffer = NEW(pl->tmp, int32_t, s->nvals);
    pl->occupant = NEW(pl->tmp, int32_t, s->nvals + s->n + 1);
    pl->buf = NEW(pl->tmp, Buffer, s->nvals + s->n + 1);
    pl->target = NEW(pl->tmp, Val, s->nvals);
    pl->scratch = NEW(pl->tmp, int32_t, s->n + 1);
    pl->scratch_offset = NEW(pl->tmp, int64_t, s->n + 1);
    memset(pl->offset, -1, s->nvals * sizeof *pl->offset);
    memset(pl->buffer, -1, s->nvals * sizeof *pl->buffer);
    for (uint32_t i = 0; i < g->nupdate; i++)
        pl->target[s->final[graph_root(g, g->update[i].value).i].i] = g->update[i].state;
    int64_t base = place_sources(pl, SPACE_DEVICE), host = place_sources(pl, SPACE_HOST);
    make_buffers(pl);
    return pack(pl, base, budget, effort, size) && pack_host(pl, host, &size->host);
}

bool sequence_place(const Sequence *s, StepInfo *info, int64_t budget, PackEffort effort, ArenaSize *size,
                    Arena *tmp, Diag *d)
{
    return place(&(Place){.s = s, .info = info, .tmp = tmp, .d = d}, budget, effort, size);
}

/* ---- accounting --------------------------------------------------------------------------- */

MemKind *plan_kinds(const Graph *g, const StepInfo *info, Arena *a)
{
    static const MemKind plain[] = {[VAL_PARAM] = MEM_PARAM, [VAL_STATE] = MEM_STATE,
                                    [VAL_INPUT] = MEM_DATA, [VAL_CONST] = MEM_DATA,
                                    [VAL_TEMP] = MEM_ACTIVATION};
    MemKind *k = NEW(a, MemKind, g->nvals);
    for (uint32_t v = 1; v < g->nvals; v++)
        k[v] = plain[g->vals[v].kind];
    for (uint32_t i = 0; i < info->ntrained; i++) {
        const Trained *t = &info->trained[i];
        Val grad = graph_root(g, t->grad);
        k[grad.i] = k[grad.i] == MEM_ACTIVATION ? MEM_GRAD : k[grad.i];
        for (int s = 0; s < 2; s++)
            if (t->state[s].i)
                k[t->state[s].i] = MEM_OPTIMIZER;
    }
    for (uint32_t i = 0; i < g->nupdate; i++) /* states that accumulate gradients */
        if (k[graph_root(g, g->update[i].value).i] == MEM_GRAD)
            k[g->update[i].state.i] = MEM_GRAD;
    return k;
}

/* Sets the peak step and its bytes by kind. */
static void account(const Place *pl, const Command *c, Plan *p)
{
    uint32_t n;
    const Life *life = lives_of(p, pl->info, c, pl->life, &n, pl->tmp);
    MemCurve curve = lives_curve(p, life, n, pl->tmp);
    p->peak_step = curve_peak(&curve);
    memcpy(p->mem, curve.held[p->peak_step], sizeof p->mem);
}

/* Cost of step s, for a recomputation that of the step it repeats; NULL: not known. */
static const StepCost *step_cost(const Plan *p, const StepInfo *info, uint32_t s)
{
    NodeId id = p->g->order[p->step[s].first];
    return info->cost ? &info->cost[graph_original(p->g, id).i] : NULL;
}

/* Copies times, workspace and offsets of the plan's own sequence into the plan. */
static void keep_places(Plan *p, const Place *pl, Arena *a)
{
    p->offset = NEW(a, int64_t, p->g->nvals);
    memcpy(p->offset, pl->offset, p->g->nvals * sizeof *p->offset);
    for (uint32_t s = 0; s < p->nstep; s++) {
        const Candidate *how = pl->s->run[s].how;
        Step *st = &p->step[s];
        const StepCost *cost = step_cost(p, pl->info, s);
        if (!cost)
            continue;
        st->choice = how->choice;
        st->scratch = how->scratch;
        st->scratch_offset = pl->scratch_offset[s];
        st->cost_ns = how->ns;
        p->predicted_ns += how->ns * plan_times(p, s);
        p->measured_ns += cost->measured && how == cost->c ? how->ns * plan_times(p, s) : 0;
    }
}

/* ns that a copy costs the kernels that run beside it; 0: the step is no copy. */
static int64_t beside_ns(const Plan *p, const HostLink *link, uint32_t s)
{
    const Node *n = &p->g->nodes[p->g->order[p->step[s].first].i];
    bool copy = n->op == OP_offload || n->op == OP_fetch;
    return copy ? copy_beside_ns(link, type_bytes(val_type(p->g, n->out[0]))) : 0;
}

/* Predicts the time of a plan with copies in lanes of their own: that of its lanes, waits included. */
static bool predict_lanes(Plan *p, const HostLink *link, Arena *tmp, Diag *d)
{
    Program program;
    TRY(program_make(&program, p, tmp, d));
    int64_t *ns = NEW(tmp, int64_t, p->nstep + 1), beside = 0;
    for (uint32_t s = 0; s < p->nstep; s++) {
        ns[s] = p->step[s].cost_ns;
        beside += beside_ns(p, link, s) * plan_times(p, s);
    }
    int64_t batches = plan_batches(p);
    p->predicted_ns = program_ns(&program, ns, 0, p->nmicro, NULL) * batches +
                      program_ns(&program, ns, p->nmicro, p->nstep, NULL) + beside;
    return true;
}

bool plan_place(Graph *g, StepInfo *info, int64_t budget, PackEffort effort, Plan *p, Arena *tmp, Diag *d)
{
    ArenaSize size;
    *p = (Plan){.g = g, .accumulate = info->accumulate, .align = align_up(1, info->align)};
    plan_cut(p, g->arena);
    const Command *c = plan_commands(p, tmp, d);
    TRY(c);
    Sequence s = sequence_of_plan(p, c, tmp);
    for (uint32_t k = 0; k < s.n; k++) {
        const StepCost *cost = step_cost(p, info, k);
        s.run[k].how = cost ? &cost->c[g->nodes[g->order[p->step[k].first].i].candidate] : NULL;
    }
    Place pl = {.s = &s, .info = info, .tmp = tmp, .d = d};
    TRY(place(&pl, budget, effort, &size));
    p->arena_bytes = size.arena;
    p->host_bytes = size.host;
    p->live_bytes = size.live;
    keep_places(p, &pl, g->arena);
    account(&pl, c, p);
    return p->host_bytes == 0 || predict_lanes(p, &info->link, tmp, d);
}

/* For an NVIDIA GPU, replaces the plan by one with small copies first and small updates last, if that meets
 * the budget as well. */
static bool place_small_apart(Graph *g, PassCtx *cx, Plan *p)
{
    Plan apart;
    int64_t budget = cx->info->plan.budget;
    NodeId *order = NEW(cx->tmp, NodeId, g->norder + 1);
    memcpy(order, g->order, g->norder * sizeof *order);
    if (step_device(cx->opt)->capability <= 0 || !small_apart(g, cx->info->accumulate > 1, cx->tmp))
        return true;
    TRY(plan_place(g, cx->info, budget, PACK_LONG, &apart, cx->tmp, cx->diag));
    if (budget <= 0 || apart.arena_bytes <= budget)
        *p = apart;
    else
        memcpy(g->order, order, g->norder * sizeof *order);
    return true;
}

bool pass_plan(Graph *g, PassCtx *cx)
{
    StepInfo *info = cx->info;
    Plan p;
    TRY(plan_place(g, info, info->plan.budget, PACK_LONG, &p, cx->tmp, cx->diag) &&
        place_small_apart(g, cx, &p));
    p.reserved = step_device(cx->opt)->reserved;
    p.budget = info->plan.budget > 0 ? info->plan.budget + p.reserved : 0;
    p.base_ns = info->plan.base_ns ? info->plan.base_ns : p.predicted_ns;
    p.bound_ns = info->plan.bound_ns ? info->plan.bound_ns : p.predicted_ns;
    p.keep_all_bytes = p.arena_bytes > info->plan.keep_all_bytes ? p.arena_bytes : info->plan.keep_all_bytes;
    p.min_feasible_bytes = info->plan.min_feasible_bytes;
    p.min_feasible_bytes += p.min_feasible_bytes > 0 ? p.reserved : 0;
    bool kept = info->plan.keep_all_bytes != 0;
    memcpy(p.keep_all_mem, kept ? info->plan.keep_all_mem : p.mem, sizeof p.mem);
    p.model = info->plan.model;
    p.model_hash = info->plan.model_hash;
    p.device = step_device(cx->opt)->name;
    p.threads = (uint32_t)(cx->opt->threads > 0 ? cx->opt->threads : !cx->opt->device);
    info->plan = p;
    return plan_verify(&info->plan, cx->diag);
}

bool plan_place_whole(const Graph *split, const StepInfo *info, const Plan *blocks, Plan *p, PassCtx *cx)
{
    Graph g = graph_copy(split, cx->tmp);
    StepInfo whole = *info;
    if (info->cost) {
        whole.cost = NEW(cx->tmp, StepCost, g.nnodes);
        memcpy(whole.cost, info->cost, g.nnodes * sizeof *whole.cost);
    }
    *p = *blocks;
    if (graph_join_blocks(&g, info, whole.cost, cx->tmp))
        TRY(plan_place(&g, &whole, 0, PACK_LONG, p, cx->tmp, cx->diag));
    cx->info->keep_all = plan_curve(p, &whole, split->arena);
    return true;
}
