/* plan.c -- a place in one arena for every byte of the schedule.
 *
 * Sources (parameters, state, data, constants) live through every step and lie at the bottom, at
 * places that do not depend on the schedule.  Computed values become buffers with lifetimes;
 * a result that may take over a dying operand shares its buffer, an update shares its state's.
 * Library working memory is a buffer of one step.  passes/plan/pack.c assigns the offsets. */
#include "instance.h"
#include "plan/pack.h"
#include <string.h>

/* Steps of the packing search, about a nanosecond each, and how many a byte may take that it is to save. */
static const int64_t steps_of[] = {[PACK_QUICK] = 2000000, [PACK_LONG] = 50000000,
                                   [PACK_LONGEST] = 8000000000};
enum { STEPS_PER_BYTE = 40000 };

typedef struct {
    int64_t bytes;
    int32_t lower, upper;
} Buffer;

typedef struct {
    Graph *g;
    StepInfo *info;
    Plan *p;
    Arena *tmp;
    Diag *d;
    const Command *command; /* per step */
    int32_t *last;       /* per value: last step that reads it (nstep: lives to the end) */
    int32_t *buffer;     /* per value: its buffer, -1 */
    int32_t *occupant;   /* per buffer: the value that has it now */
    Buffer *buf;
    uint32_t nbuf;
    Val *target;         /* per value: state it updates */
    int32_t *scratch;    /* per step: its buffer, -1 */
} Place;

/* Cost and workspace of a step: those of the step it repeats. */
static void step_cost(Place *pl, uint32_t s)
{
    Step *st = &pl->p->step[s];
    if (!pl->info->cost)
        return;
    NodeId id = pl->g->order[st->first];
    const StepCost *cost = &pl->info->cost[graph_original(pl->g, id).i];
    const Candidate *c = &cost->c[pl->g->nodes[id.i].candidate];
    st->choice = c->choice;
    st->scratch = c->scratch;
    st->cost_ns = c->ns;
    pl->p->predicted_ns += c->ns * plan_times(pl->p, s);
    pl->p->measured_ns += cost->measured ? c->ns * plan_times(pl->p, s) : 0;
}

static void find_lifetimes(Place *pl)
{
    Graph *g = pl->g;
    memset(pl->last, -1, g->nvals * sizeof *pl->last);
    for (uint32_t s = 0; s < pl->p->nstep; s++) {
        const Command *c = &pl->command[s];
        for (int i = 0; i < c->nread + c->nwrite; i++)
            pl->last[c->vals[i].i] = (int32_t)s;
        step_cost(pl, s);
    }
    for (uint32_t i = 0; i < g->nout; i++)
        pl->last[graph_root(g, g->out[i]).i] = (int32_t)pl->p->nstep;
    for (uint32_t i = 0; i < g->nupdate; i++)
        pl->last[graph_root(g, g->update[i].value).i] = (int32_t)pl->p->nstep;
}

static bool is_source(const Graph *g, uint32_t v) { return g->vals[v].kind != VAL_TEMP; }

static int64_t place_sources(Place *pl)
{
    Graph *g = pl->g;
    int64_t at = 0;
    static const ValKind order[] = {VAL_PARAM, VAL_STATE, VAL_INPUT, VAL_CONST};
    for (size_t k = 0; k < sizeof order / sizeof *order; k++)
        for (uint32_t v = 1; v < g->nvals; v++) {
            bool keeps = g->vals[v].kind == VAL_PARAM || g->vals[v].kind == VAL_STATE;
            if (g->vals[v].kind != order[k] || (pl->last[v] < 0 && !keeps))
                continue;
            pl->p->offset[v] = at;
            at += plan_align(type_bytes(&g->vals[v].type));
        }
    return at;
}

static int32_t new_buffer(Place *pl, int64_t bytes, uint32_t s)
{
    pl->buf[pl->nbuf] = (Buffer){plan_align(bytes), (int32_t)s, (int32_t)s + 1};
    return (int32_t)pl->nbuf++;
}

/* The state v overwrites, if this step may write it in place and nobody reads the state later. */
static bool in_place_update(Place *pl, const Command *o, int out, uint32_t s)
{
    Val v = o->vals[out], state = pl->target[v.i];
    if (!state.i || pl->last[state.i] > (int32_t)s)
        return false;
    for (int i = 0; i < o->nread; i++)
        if (o->vals[i].i == state.i && kernel_inplace(&o->k, i, out)) {
            pl->p->offset[v.i] = pl->p->offset[state.i];
            return true;
        }
    return false;
}

/* The buffer of an operand that dies here and may be taken over; -1: none. */
static int32_t take_over(Place *pl, const Command *o, int out, uint32_t s)
{
    int64_t bytes = plan_align(type_bytes(val_type(pl->g, o->vals[out])));
    for (int i = 0; i < o->nread; i++) {
        Val r = o->vals[i];
        if (!r.i || is_source(pl->g, r.i) || pl->last[r.i] != (int32_t)s || pl->buffer[r.i] < 0)
            continue;
        int32_t b = pl->buffer[r.i];
        if (pl->buf[b].bytes == bytes && (uint32_t)pl->occupant[b] == r.i &&
            kernel_inplace(&o->k, i, out)) {
            bool twice = false; /* another operand in the same bytes would be clobbered */
            for (int j = 0; j < o->nread; j++)
                twice |= j != i && o->vals[j].i && pl->buffer[o->vals[j].i] == b &&
                         o->vals[j].i != r.i;
            if (!twice)
                return b;
        }
    }
    return -1;
}

static void make_buffers(Place *pl)
{
    for (uint32_t s = 0; s < pl->p->nstep; s++) {
        const Command *o = &pl->command[s];
        for (int i = o->nread; i < o->nread + o->nwrite; i++) {
            uint32_t v = o->vals[i].i;
            if (in_place_update(pl, o, i, s))
                continue;
            int32_t b = take_over(pl, o, i, s);
            if (b < 0)
                b = new_buffer(pl, type_bytes(&pl->g->vals[v].type), s);
            pl->buffer[v] = b;
            pl->occupant[b] = (int32_t)v;
            int32_t end = pl->last[v] < (int32_t)s ? (int32_t)s : pl->last[v];
            if (end + 1 > pl->buf[b].upper)
                pl->buf[b].upper = end + 1;
        }
        pl->scratch[s] = pl->p->step[s].scratch ? new_buffer(pl, pl->p->step[s].scratch, s) : -1;
    }
}

/* A search for offsets that was made: the last plan of a schedule often is not its first.  Of use again
 * if it reached the goal, or had that goal and took as long. */
struct Packing {
    const struct Packing *older;
    int64_t goal, steps;
    uint32_t n;
    const PackBuffer *placed;
    PackResult result;
};

static bool is_of(const struct Packing *k, const Place *pl, int64_t goal, int64_t steps)
{
    bool same = k->n == pl->nbuf &&
                (k->result.arena <= goal || (k->goal == goal && k->steps >= steps));
    for (uint32_t i = 0; same && i < k->n; i++)
        same = k->placed[i].size == pl->buf[i].bytes && k->placed[i].lower == pl->buf[i].lower &&
               k->placed[i].upper == pl->buf[i].upper;
    return same;
}

/* Offsets found in that many steps or more; an arena of at most `goal` bytes (0: none), less those of the
 * sources, ends the search.  NULL: failed. */
static const struct Packing *pack_with(Place *pl, int64_t goal, int64_t steps)
{
    for (const struct Packing *known = pl->info->packed; known; known = known->older)
        if (is_of(known, pl, goal, steps))
            return known;
    char err[PACK_ERR_SIZE];
    PackOptions opt = {.align = ARENA_ALIGN, .seed = 1, .max_steps = steps, .capacity = goal};
    struct Packing *k = NEW(pl->g->arena, struct Packing, 1);
    PackBuffer *b = NEW(pl->g->arena, PackBuffer, pl->nbuf + 1);
    *k = (struct Packing){pl->info->packed, goal, steps, pl->nbuf, b, {0}};
    for (uint32_t i = 0; i < pl->nbuf; i++)
        b[i] = (PackBuffer){pl->buf[i].bytes, pl->buf[i].lower, pl->buf[i].upper, -1};
    if (!pack_solve(b, (int32_t)pl->nbuf, &opt, &k->result, err)) {
        diag_set(pl->d, "plan: %s", err);
        return NULL;
    }
    pl->info->packed = k;
    return k;
}

/* As many as the effort has, less where few bytes are to be saved: a step of kilobytes does not wait for
 * seconds. */
static int64_t steps_for(PackEffort effort, int64_t bytes)
{
    int64_t least = steps_of[PACK_LONG], worth = bytes * STEPS_PER_BYTE;
    worth = worth > least ? worth : least;
    return worth < steps_of[effort] ? worth : steps_of[effort];
}

/* Most schedules pack without a gap at once.  A longer search is for those that do not: where the
 * arena is above the budget although the live bytes are not, or more than 0.5 % above them. */
static bool pack(Place *pl, int64_t base, int64_t budget, PackEffort effort)
{
    const struct Packing *k = pack_with(pl, 0, steps_of[PACK_QUICK]);
    TRY(k);
    int64_t live = base + k->result.max_load, goal = live + live / 200;
    goal = budget >= live && budget < goal ? budget : goal;
    if (effort > PACK_QUICK && base + k->result.arena > goal) {
        int64_t steps = steps_for(effort, base + k->result.arena - goal);
        const struct Packing *longer = pack_with(pl, goal - base, steps);
        TRY(longer);
        k = longer->result.arena < k->result.arena ? longer : k;
    }
    for (uint32_t v = 1; v < pl->g->nvals; v++)
        if (pl->buffer[v] >= 0)
            pl->p->offset[v] = base + k->placed[pl->buffer[v]].offset;
    for (uint32_t s = 0; s < pl->p->nstep; s++)
        if (pl->scratch[s] >= 0)
            pl->p->step[s].scratch_offset = base + k->placed[pl->scratch[s]].offset;
    pl->p->arena_bytes = base + k->result.arena;
    pl->p->live_bytes = live;
    return true;
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
    for (uint32_t i = 0; i < g->nupdate; i++) /* where gradients are accumulated */
        if (k[graph_root(g, g->update[i].value).i] == MEM_GRAD)
            k[g->update[i].state.i] = MEM_GRAD;
    return k;
}

/* Bytes by kind at the step with the largest load. */
static void account(Place *pl)
{
    uint32_t n = pl->p->nstep;
    int64_t *load = NEW(pl->tmp, int64_t, n + 2), level = 0, top = -1;
    MemKind *kind = plan_kinds(pl->g, pl->info, pl->tmp);
    for (uint32_t i = 0; i < pl->nbuf; i++) {
        load[pl->buf[i].lower] += pl->buf[i].bytes;
        load[pl->buf[i].upper < (int32_t)n ? pl->buf[i].upper : (int32_t)n] -= pl->buf[i].bytes;
    }
    for (uint32_t s = 0; s < n; s++) {
        level += load[s];
        if (level > top) {
            top = level;
            pl->p->peak_step = s;
        }
    }
    int32_t peak = (int32_t)pl->p->peak_step;
    for (uint32_t v = 1; v < pl->g->nvals; v++) {
        int64_t bytes = plan_align(type_bytes(&pl->g->vals[v].type));
        if (is_source(pl->g, v) && pl->p->offset[v] >= 0)
            pl->p->mem[kind[v]] += bytes;
    }
    for (uint32_t i = 0; i < pl->nbuf; i++) {
        if (pl->buf[i].lower > peak || pl->buf[i].upper <= peak)
            continue;
        int32_t v = pl->occupant[i];
        pl->p->mem[v > 0 ? kind[v] : MEM_WORKSPACE] += pl->buf[i].bytes;
    }
}

bool plan_place(Graph *g, StepInfo *info, int64_t budget, PackEffort effort, Plan *p, Arena *tmp,
                Diag *d)
{
    *p = (Plan){.g = g, .accumulate = info->accumulate, .offset = NEW(g->arena, int64_t, g->nvals)};
    memset(p->offset, -1, g->nvals * sizeof *p->offset);
    plan_cut(p, g->arena);
    Place pl = {.g = g, .info = info, .p = p, .tmp = tmp, .d = d, .command = plan_commands(p, tmp, d),
                .last = NEW(tmp, int32_t, g->nvals), .buffer = NEW(tmp, int32_t, g->nvals),
                .occupant = NEW(tmp, int32_t, g->nvals + p->nstep + 1),
                .buf = NEW(tmp, Buffer, g->nvals + p->nstep + 1),
                .target = NEW(tmp, Val, g->nvals), .scratch = NEW(tmp, int32_t, p->nstep + 1)};
    memset(pl.buffer, -1, g->nvals * sizeof *pl.buffer);
    for (uint32_t i = 0; i < g->nupdate; i++)
        pl.target[graph_root(g, g->update[i].value).i] = g->update[i].state;
    TRY(pl.command);
    find_lifetimes(&pl);
    int64_t base = place_sources(&pl);
    make_buffers(&pl);
    TRY(pack(&pl, base, budget, effort));
    account(&pl);
    return true;
}

bool pass_plan(Graph *g, PassCtx *cx)
{
    StepInfo *info = cx->info;
    Plan p;
    TRY(plan_place(g, info, info->plan.budget, PACK_LONG, &p, cx->tmp, cx->diag));
    p.budget = info->plan.budget;
    p.base_ns = info->plan.base_ns ? info->plan.base_ns : p.predicted_ns;
    p.bound_ns = info->plan.bound_ns ? info->plan.bound_ns : p.predicted_ns;
    p.keep_all_bytes = info->plan.keep_all_bytes ? info->plan.keep_all_bytes : p.arena_bytes;
    p.min_feasible_bytes = info->plan.min_feasible_bytes;
    bool kept = info->plan.keep_all_bytes != 0;
    memcpy(p.keep_all_mem, kept ? info->plan.keep_all_mem : p.mem, sizeof p.mem);
    p.model = info->plan.model;
    p.model_hash = info->plan.model_hash;
    p.device = step_device(cx->opt)->name;
    p.threads = (uint32_t)(cx->opt->device ? 0 : cx->opt->threads > 0 ? cx->opt->threads : 1);
    info->plan = p;
    return plan_verify(&info->plan, cx->diag);
}
