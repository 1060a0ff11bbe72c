/* state.c -- incremental evaluation of a schedule under local changes.
 *
 * The schedule lies in T slots with free slots in between, so that an execution can be
 * added, removed or moved without renumbering. Per operator the slots of its runs, per
 * value the slots of its readers are kept sorted; a copy of a value is resident from its
 * run to the last reader before the producer's next run, which these two lists give
 * directly. A change is therefore a few range additions to the levels (levels.c). Free
 * slots carry -HOLE and so never count. Everything is exact in integers, so taking a
 * change back restores the state bit by bit. */
#include "state.h"
#include "ir/integer.h"

#include <stdlib.h>

enum { HOLE = LEVEL_TOP };
static const int64_t max_total = (int64_t)1 << 28; /* quanta over all values: sums stay in int32 */

/* ---- copies -------------------------------------------------------------------------- */

int32_t state_copy_start(const State *st, int32_t value, int32_t slot)
{
    const Slots *runs = &st->runs[st->p->producer[value]];
    int32_t k = slots_lower(runs, slot);
    return k > 0 ? runs->at[k - 1] : -1;
}

/* The runs of op, a fetch or an operator: those of the operator and of its fetch. */
static Slots *runs_of(const State *st, int32_t op) { return &st->runs[st->p->origin[op]]; }

static bool is_fetch(const State *st, int32_t op) { return op >= st->p->nops; }

/* The first run of op behind slot, T + 1 if none. */
static int32_t next_run(const State *st, int32_t op, int32_t slot)
{
    const Slots *runs = runs_of(st, op);
    int32_t k = slots_lower(runs, slot + 1);
    return k < runs->n ? runs->at[k] : st->T + 1;
}

/* Last reader in (start, end), or start. */
static int32_t last_read(const State *st, int32_t value, int32_t start, int32_t end)
{
    const Slots *reads = &st->reads[value];
    int32_t k = slots_lower(reads, end);
    return k > 0 && reads->at[k - 1] > start ? reads->at[k - 1] : start;
}

int32_t state_last_read(const State *st, int32_t value, int32_t start)
{
    return last_read(st, value, start, next_run(st, st->p->producer[value], start));
}

int32_t state_first_reader(const State *st, int32_t slot)
{
    const Problem *p = st->p;
    int32_t op = st->op[slot], first = st->T, end = next_run(st, op, slot);
    for (int32_t k = p->out.first[op]; k < p->out.first[op + 1]; k++) {
        const Slots *reads = &st->reads[p->out.at[k]];
        int32_t i = slots_lower(reads, slot + 1);
        if (i < reads->n && reads->at[i] < first && reads->at[i] < end)
            first = reads->at[i];
    }
    return first;
}

bool state_unread(const State *st, int32_t slot)
{
    const Problem *p = st->p;
    int32_t op = st->op[slot];
    if (runs_of(st, op)->n < 2)
        return false;
    for (int32_t k = p->out.first[op]; k < p->out.first[op + 1]; k++)
        if (state_last_read(st, p->out.at[k], slot) > slot)
            return false;
    return true;
}

int32_t state_free_slot(const State *st, int32_t lo, int32_t hi, int32_t near)
{
    for (int32_t d = 0; near - d > lo || near + d < hi; d++) {
        if (near + d < hi && near + d > lo && st->op[near + d] < 0)
            return near + d;
        if (near - d > lo && near - d < hi && st->op[near - d] < 0)
            return near - d;
    }
    return -1;
}

/* ---- kernels ------------------------------------------------------------------------- */

/* The row of kcost and kws by which a run of op counts. */
static int32_t kernel_row(const State *st, int32_t op, int32_t kernel)
{
    return st->lean ? st->kfirst[op + 1] - 1 : st->kfirst[op] + kernel;
}

/* ---- in-place ------------------------------------------------------------------------ */

static void mark_dirty(State *st, int32_t slot)
{
    if (!st->p->any_inplace || slot >= st->T)
        return;
    if (st->ndirty == st->capdirty) {
        st->capdirty = st->capdirty ? 2 * st->capdirty : 16;
        st->dirty = mem_grow(st->dirty, (size_t)st->capdirty, sizeof *st->dirty);
    }
    st->dirty[st->ndirty++] = slot;
}

static int32_t saving_at(const State *st, int32_t slot)
{
    int32_t op = st->op[slot], saved = 0;
    if (op < 0)
        return 0;
    const RematOp *o = &st->p->inst->ops[op];
    uint64_t applied = 0;
    for (int32_t k = 0; k < o->ninplace; k++) {
        RematInPlace a = o->inplace[k];
        int32_t in = o->in[a.in];
        if (!inplace_free(o, k, applied) || state_last_read(st, in, state_copy_start(st, in, slot)) != slot)
            continue;
        int32_t x = st->bytes[in], y = st->bytes[o->out[a.out]];
        saved += x < y ? x : y;
        applied |= (uint64_t)1 << k;
    }
    return saved;
}

/* Brings the savings of the dirty slots up to date. */
static void update_savings(State *st)
{
    for (int32_t i = 0; i < st->ndirty; i++) {
        int32_t slot = st->dirty[i], now = saving_at(st, slot);
        levels_add(&st->levels, slot, slot + 1, st->saving[slot] - now);
        st->saving[slot] = now;
    }
    st->ndirty = 0;
}

/* ---- adding and removing ------------------------------------------------------------- */

/* May a fetch go to slot: behind a run of its operator, within the link and the host's memory? */
static bool may_fetch(const State *st, int32_t op, int32_t slot)
{
    const Slots *runs = runs_of(st, op);
    return runs->n > 0 && runs->at[0] < slot && !is_fetch(st, st->op[runs->at[0]]) &&
           state_fetch_fits(st, op);
}

static bool may_add(const State *st, int32_t op, int32_t slot)
{
    const Problem *p = st->p;
    if (st->op[slot] >= 0 || (p->inst->ops[op].once && st->runs[op].n > 0))
        return false;
    if (is_fetch(st, op))
        return may_fetch(st, op, slot);
    const Slots *own = &st->runs[op];
    if (own->n > 0 && is_fetch(st, st->op[own->at[0]]) && own->at[0] < slot)
        return false;
    for (int32_t k = p->in.first[op]; k < p->in.first[op + 1]; k++) {
        const Slots *runs = &st->runs[p->producer[p->in.at[k]]];
        if (runs->n == 0 || runs->at[0] >= slot)
            return false;
    }
    if (!p->any_barrier)
        return true;
    for (int32_t k = p->barred_by.first[op]; k < p->barred_by.first[op + 1]; k++) {
        const Slots *runs = &st->runs[p->barred_by.at[k]];
        if (runs->n > 0 && runs->at[0] < slot)
            return false;
    }
    const RematOp *o = &p->inst->ops[op];
    for (int32_t k = 0; k < o->nbarrier; k++) {
        const Slots *runs = &st->runs[o->barrier[k]];
        if (runs->n > 0 && runs->at[runs->n - 1] > slot)
            return false;
    }
    return true;
}

static void count_run(State *st, int32_t op, int32_t slot, int32_t by)
{
    op = st->p->origin[op];
    if (by > 0) {
        slots_insert(&st->runs[op], slot);
        st->event_at[slot] = st->nevents;
        st->event[st->nevents++] = slot;
        if (st->runs[op].n == 2) {
            st->multi_at[op] = st->nmulti;
            st->multi[st->nmulti++] = op;
        }
        return;
    }
    slots_delete(&st->runs[op], slot);
    int32_t i = st->event_at[slot], moved = st->event[--st->nevents];
    st->event[i] = moved;
    st->event_at[moved] = i;
    if (st->runs[op].n == 1) {
        int32_t k = st->multi_at[op], other = st->multi[--st->nmulti];
        st->multi[k] = other;
        st->multi_at[other] = k;
    }
}

/* Extends the copies that op reads at slot at least to it. */
static void add_reads(State *st, int32_t op, int32_t slot)
{
    const Problem *p = st->p;
    for (int32_t k = p->in.first[op]; k < p->in.first[op + 1]; k++) {
        int32_t v = p->in.at[k], start = state_copy_start(st, v, slot);
        int32_t end = state_last_read(st, v, start);
        if (end < slot) {
            levels_add(&st->levels, end + 1, slot + 1, st->bytes[v]);
            mark_dirty(st, end);
        }
        slots_insert(&st->reads[v], slot);
    }
}

static void remove_reads(State *st, int32_t op, int32_t slot)
{
    const Problem *p = st->p;
    for (int32_t k = p->in.first[op]; k < p->in.first[op + 1]; k++) {
        int32_t v = p->in.at[k], start = state_copy_start(st, v, slot);
        slots_delete(&st->reads[v], slot);
        int32_t end = state_last_read(st, v, start);
        if (end < slot) {
            levels_add(&st->levels, end + 1, slot + 1, -st->bytes[v]);
            mark_dirty(st, end);
        }
    }
}

/* Starts a new copy of each output at slot, which cuts an older one short (by = 1), or removes
 * it (by = -1). The run itself is not in the list of runs. */
static void split_copies(State *st, int32_t op, int32_t slot, int32_t by)
{
    const Problem *p = st->p;
    const Slots *runs = runs_of(st, op);
    int32_t k = slots_lower(runs, slot), start = k > 0 ? runs->at[k - 1] : -1;
    int32_t end = k < runs->n ? runs->at[k] : st->T + 1;
    for (int32_t i = p->out.first[op]; i < p->out.first[op + 1]; i++) {
        int32_t v = p->out.at[i], last = last_read(st, v, slot, end);
        if (start < 0) { /* the first run: nothing to cut */
            levels_add(&st->levels, slot, last < st->T ? last + 1 : st->T, by * st->bytes[v]);
        } else if (last > slot) {
            int32_t cut = last_read(st, v, start, slot);
            levels_add(&st->levels, cut + 1, slot, -by * st->bytes[v]);
            mark_dirty(st, cut);
        } else {
            levels_add(&st->levels, slot, slot + 1, by * st->bytes[v]);
        }
    }
}

static void log_change(State *st, Change c)
{
    if (st->nlog == st->caplog) {
        st->caplog = st->caplog ? 2 * st->caplog : 64;
        st->log = mem_grow(st->log, (size_t)st->caplog, sizeof *st->log);
    }
    st->log[st->nlog++] = c;
}

static void count_fetch(State *st, const RematOp *fetch, int32_t by)
{
    int32_t *n = &st->fetches[fetch->fetch_of];
    st->link += by * fetch->link;
    st->host -= *n > 0 ? rm_output_bytes(st->p->inst, fetch) : 0;
    *n += by;
    st->host += *n > 0 ? rm_output_bytes(st->p->inst, fetch) : 0;
}

static void add_run(State *st, int32_t op, int32_t kernel, int32_t slot)
{
    int32_t row = kernel_row(st, op, kernel);
    st->op[slot] = op;
    st->kernel[slot] = (uint8_t)kernel;
    st->cost += st->kcost[row];
    if (is_fetch(st, op))
        count_fetch(st, &st->p->inst->ops[op], 1);
    levels_add(&st->levels, slot, slot + 1, HOLE + st->kws[row]);
    add_reads(st, op, slot);
    split_copies(st, op, slot, 1);
    count_run(st, op, slot, 1);
    mark_dirty(st, slot);
    update_savings(st);
}

static void remove_run(State *st, int32_t slot)
{
    int32_t op = st->op[slot], row = kernel_row(st, op, st->kernel[slot]);
    count_run(st, op, slot, -1);
    split_copies(st, op, slot, -1);
    remove_reads(st, op, slot);
    st->op[slot] = -1;
    mark_dirty(st, slot);
    update_savings(st);
    levels_add(&st->levels, slot, slot + 1, -HOLE - st->kws[row]);
    st->cost -= st->kcost[row];
    if (is_fetch(st, op))
        count_fetch(st, &st->p->inst->ops[op], -1);
}

/* ---- sliding ------------------------------------------------------------------------- */

/* May the run at `from` go to the free slot `to`, as no run on the way reads, makes or replaces the
 * copies that it reads and makes? */
static bool may_slide(const State *st, int32_t from, int32_t to)
{
    const Problem *p = st->p;
    int32_t op = st->op[from], lo = from < to ? from : to, hi = from < to ? to : from;
    if (st->op[to] >= 0 || p->any_barrier || slots_between(runs_of(st, op), lo, hi))
        return false;
    for (int32_t k = p->in.first[op]; k < p->in.first[op + 1]; k++)
        if (slots_between(&st->runs[p->producer[p->in.at[k]]], lo, hi))
            return false;
    for (int32_t k = p->out.first[op]; k < p->out.first[op + 1]; k++)
        if (slots_between(&st->reads[p->out.at[k]], lo, hi))
            return false;
    return true;
}

/* Moves the read of v at `from` to `to`: the same copy is read there. */
static void slide_read(State *st, int32_t v, int32_t from, int32_t to)
{
    int32_t start = state_copy_start(st, v, from), was = state_last_read(st, v, start);
    slots_replace(&st->reads[v], from, to);
    int32_t is = was != from && was > to ? was : state_last_read(st, v, start);
    if (is == was)
        return;
    levels_add(&st->levels, (is < was ? is : was) + 1, (is < was ? was : is) + 1,
              is < was ? -st->bytes[v] : st->bytes[v]);
    mark_dirty(st, was);
    mark_dirty(st, is);
}

/* Moves the start of the copy of v made at `from` to `to`. */
static void slide_copy(State *st, int32_t v, int32_t from, int32_t to)
{
    if (state_last_read(st, v, from) == from) {
        levels_add(&st->levels, from, from + 1, -st->bytes[v]);
        levels_add(&st->levels, to, to + 1, st->bytes[v]);
    } else if (from < to) {
        levels_add(&st->levels, from, to, -st->bytes[v]);
    } else {
        levels_add(&st->levels, to, from, st->bytes[v]);
    }
}

/* Does what removing and adding the run would, if may_slide: only the steps on the way change. */
static void slide(State *st, int32_t from, int32_t to)
{
    const Problem *p = st->p;
    int32_t op = st->op[from], own = HOLE + st->kws[kernel_row(st, op, st->kernel[from])];
    for (int32_t k = p->in.first[op]; k < p->in.first[op + 1]; k++)
        slide_read(st, p->in.at[k], from, to);
    for (int32_t k = p->out.first[op]; k < p->out.first[op + 1]; k++)
        slide_copy(st, p->out.at[k], from, to);
    slots_replace(runs_of(st, op), from, to);
    st->op[to] = op;
    st->op[from] = -1;
    st->kernel[to] = st->kernel[from];
    st->event_at[to] = st->event_at[from];
    st->event[st->event_at[to]] = to;
    mark_dirty(st, from);
    mark_dirty(st, to);
    update_savings(st);
    levels_add(&st->levels, to, to + 1, own);
    levels_add(&st->levels, from, from + 1, -own);
}

/* ---- making room --------------------------------------------------------------------- */

/* Moves the run at `from` to the free slot `to` beside it; block maxima are not updated. */
static void relabel(State *st, int32_t from, int32_t to)
{
    const Problem *p = st->p;
    int32_t op = st->op[from];
    slots_replace(runs_of(st, op), from, to);
    for (int32_t k = p->in.first[op]; k < p->in.first[op + 1]; k++)
        slots_replace(&st->reads[p->in.at[k]], from, to);
    st->op[to] = op;
    st->op[from] = -1;
    st->kernel[to] = st->kernel[from];
    st->saving[to] = st->saving[from];
    st->saving[from] = 0;
    st->event_at[to] = st->event_at[from];
    st->event[st->event_at[to]] = to;
    levels_put(&st->levels, to, levels_at(&st->levels, from));
}

/* The level of a free slot directly in front of this one. */
static int32_t level_before(const State *st, int32_t slot)
{
    const Problem *p = st->p;
    int32_t op = st->op[slot], level = levels_at(&st->levels, slot);
    if (op < 0)
        return level;
    level += st->saving[slot] - st->kws[kernel_row(st, op, st->kernel[slot])] - HOLE;
    for (int32_t k = p->out.first[op]; k < p->out.first[op + 1]; k++)
        level -= st->bytes[p->out.at[k]];
    return level;
}

/* Moves the runs from the hole up to and including `end` (on either side of it) one slot towards
 * it; end is the hole then. The order stays, and with it the level of each step. */
static void shift_runs(State *st, int32_t hole, int32_t end)
{
    int32_t by = end > hole ? 1 : -1;
    for (int32_t t = hole; t != end; t += by)
        relabel(st, t + by, t);
    levels_put(&st->levels, end, level_before(st, end + 1));
    levels_update_max(&st->levels, end > hole ? hole : end, end > hole ? end : hole);
}

bool state_open(State *st, int32_t slot)
{
    int32_t hole = slot;
    while (hole >= 0 && st->op[hole] >= 0)
        hole--;
    if (hole < 0 || slot + 1 >= st->T)
        return false;
    if (hole == slot)
        return true;
    shift_runs(st, hole, slot);
    st->shifted += slot - hole;
    log_change(st, (Change){OPENED, hole, .to = slot});
    for (int32_t i = 0; i < 2; i++)
        st->held[i] -= st->held[i] > hole && st->held[i] <= slot;
    return true;
}

/* ---- changes that can be taken back -------------------------------------------------- */

bool state_add(State *st, int32_t op, int32_t kernel, int32_t slot)
{
    if (!may_add(st, op, slot))
        return false;
    add_run(st, op, kernel, slot);
    log_change(st, (Change){ADDED, slot, .op = op, .kernel = (uint8_t)kernel});
    return true;
}

bool state_remove(State *st, int32_t slot)
{
    int32_t op = st->op[slot];
    const Slots *runs = runs_of(st, op);
    if (runs->n < 2 || (runs->at[0] == slot && (state_first_reader(st, slot) < st->T ||
                                                is_fetch(st, st->op[runs->at[1]]))))
        return false;
    Change c = {REMOVED, slot, .op = op, .kernel = st->kernel[slot]};
    remove_run(st, slot);
    log_change(st, c);
    return true;
}

bool state_move(State *st, int32_t from, int32_t to)
{
    int32_t op = st->op[from];
    if (may_slide(st, from, to)) {
        slide(st, from, to);
        log_change(st, (Change){SLID, from, .to = to});
        return true;
    }
    Change c = {REMOVED, from, .op = op, .kernel = st->kernel[from]};
    remove_run(st, from);
    log_change(st, c);
    return state_add(st, op, c.kernel, to);
}

/* Changes nothing but the cost and the level of the slot. */
static void change_kernel(State *st, int32_t slot, int32_t kernel)
{
    int32_t op = st->op[slot], was = kernel_row(st, op, st->kernel[slot]), is = kernel_row(st, op, kernel);
    st->kernel[slot] = (uint8_t)kernel;
    st->cost += st->kcost[is] - st->kcost[was];
    levels_add(&st->levels, slot, slot + 1, st->kws[is] - st->kws[was]);
}

void state_set_kernel(State *st, int32_t slot, int32_t kernel)
{
    log_change(st, (Change){CHOSEN, slot, .kernel = st->kernel[slot]});
    change_kernel(st, slot, kernel);
}

void state_fit_kernel(State *st, int32_t slot)
{
    const RematOp *o = &st->p->inst->ops[st->op[slot]];
    if (o->nalt == 0 || st->lean)
        return;
    int32_t own = st->kws[kernel_row(st, st->op[slot], st->kernel[slot])];
    int32_t room = st->levels.limit - levels_at(&st->levels, slot) + own;
    int32_t kernel = rm_best_kernel(o, room * st->quantum);
    if (st->kws[kernel_row(st, st->op[slot], kernel)] <= room)
        state_set_kernel(st, slot, kernel);
}

void state_undo(State *st)
{
    while (st->nlog > 0) {
        Change c = st->log[--st->nlog];
        switch (c.kind) {
        case ADDED: remove_run(st, c.slot); break;
        case REMOVED: add_run(st, c.op, c.kernel, c.slot); break;
        case SLID: slide(st, c.to, c.slot); break;
        case OPENED: shift_runs(st, c.to, c.slot); break;
        case CHOSEN: change_kernel(st, c.slot, c.kernel); break;
        }
    }
}

/* ---- loading and storing ------------------------------------------------------------- */

static void reset(State *st)
{
    const Problem *p = st->p;
    st->cost = st->link = st->host = 0;
    levels_reset(&st->levels, st->T, -HOLE);
    st->nevents = st->nmulti = st->nlog = st->ndirty = 0;
    for (int32_t t = 0; t < st->T; t++) {
        st->op[t] = -1;
        st->saving[t] = 0;
    }
    for (int32_t i = 0; i < p->nops; i++)
        st->runs[i].n = st->fetches[i] = 0;
    for (int32_t v = 0; v < p->nvals; v++) {
        st->reads[v].n = 0;
        if (p->inst->values[v].keep_to_end)
            slots_insert(&st->reads[v], st->T);
    }
}

static void resize(State *st, int32_t T)
{
    size_t n = (size_t)T;
    st->T = T;
    st->op = mem_grow(st->op, n, sizeof *st->op);
    st->kernel = mem_grow(st->kernel, n, sizeof *st->kernel);
    st->saving = mem_grow(st->saving, n, sizeof *st->saving);
    st->event = mem_grow(st->event, n, sizeof *st->event);
    st->event_at = mem_grow(st->event_at, n, sizeof *st->event_at);
}

static int32_t slots_for(int32_t n) { return (3 * n / LEVEL_BLOCK + 2) * LEVEL_BLOCK; }

static void load_runs(State *st, const int32_t *ops, const uint8_t *kernels, int32_t n)
{
    if (st->T < 2 * n || st->T > 6 * n + 4 * LEVEL_BLOCK)
        resize(st, slots_for(n));
    reset(st);
    for (int32_t i = 0; i < n; i++) {
        int32_t slot = (int32_t)((int64_t)(2 * i + 1) * st->T / (2 * n));
        add_run(st, ops[i], kernels ? kernels[i] : st->p->cheapest[ops[i]], slot);
    }
    levels_sum(&st->levels);
    st->shifted = 0;
}

void state_load(State *st, const Seq *s, const uint8_t *kernels) { load_runs(st, s->op, kernels, s->n); }

void state_store(const State *st, Seq *s)
{
    s->n = 0;
    for (int32_t t = 0; t < st->T; t++)
        if (st->op[t] >= 0)
            seq_push(s, st->op[t]);
}

void state_respread(State *st)
{
    int32_t n = 0, *ops = RM_NEW(int32_t, st->nevents);
    uint8_t *kernels = RM_NEW(uint8_t, st->nevents);
    for (int32_t t = 0; t < st->T; t++)
        if (st->op[t] >= 0) {
            ops[n] = st->op[t];
            kernels[n++] = st->kernel[t];
        }
    load_runs(st, ops, kernels, n);
    free(ops);
    free(kernels);
}

/* ---- allocation ---------------------------------------------------------------------- */

/* The quantum in bytes; *shift: the shift with which the excess of a block adds up within int32. */
static int64_t choose_quantum(const Problem *p, int32_t *shift)
{
    int64_t q = 0, total = 0, ws = 0;
    for (int32_t v = 0; v < p->nvals; v++) {
        q = gcd(q, p->bytes[v]);
        total += p->bytes[v];
    }
    for (int32_t i = 0; i < p->nops; i++) {
        const RematOp *o = &p->inst->ops[i];
        int64_t most = o->workspace;
        q = gcd(q, o->workspace);
        for (int32_t k = 0; k < o->nalt; k++) {
            q = gcd(q, o->alt[k].workspace);
            most = o->alt[k].workspace > most ? o->alt[k].workspace : most;
        }
        ws = most > ws ? most : ws;
    }
    total += ws;
    q = q ? q : 1;
    q = total / q <= max_total ? q : total / max_total + 1;
    for (*shift = 0; total / q >> *shift >= 1 << 24;)
        ++*shift;
    return q;
}

static int32_t quanta(const State *st, int64_t bytes)
{
    return (int32_t)((bytes + st->quantum - 1) / st->quantum);
}

void state_set_budget(State *st, int64_t budget)
{
    int64_t room = budget - st->p->inst->persistent;
    int64_t limit = room < 0 ? -1 : room / st->quantum;
    st->levels.limit = (int32_t)(limit < 2 * max_total ? limit : 2 * max_total);
}

void state_init(State *st, const Problem *p, int64_t budget)
{
    *st = (State){.p = p};
    st->quantum = choose_quantum(p, &st->levels.shift);
    state_set_budget(st, budget);
    st->bytes = RM_NEW(int32_t, p->nvals);
    for (int32_t v = 0; v < p->nvals; v++)
        st->bytes[v] = quanta(st, p->bytes[v]);
    st->kfirst = RM_NEW(int32_t, p->nall + 1);
    for (int32_t i = 0; i < p->nall; i++)
        st->kfirst[i + 1] = st->kfirst[i] + 2 + p->inst->ops[i].nalt;
    st->kcost = RM_NEW(int64_t, st->kfirst[p->nall]);
    st->kws = RM_NEW(int32_t, st->kfirst[p->nall]);
    for (int32_t i = 0; i < p->nall; i++) {
        const RematOp *o = &p->inst->ops[i];
        int32_t row = st->kfirst[i], lean = row + o->nalt + 1;
        for (int32_t k = 0; k <= o->nalt; k++) {
            st->kcost[row + k] = k ? o->alt[k - 1].cost : o->cost;
            st->kws[row + k] = quanta(st, k ? o->alt[k - 1].workspace : o->workspace);
        }
        st->kcost[lean] = p->cost[i];
        st->kws[lean] = quanta(st, p->min_ws[i]);
    }
    st->runs = slots_new(p->nops);
    st->reads = slots_new(p->nvals);
    st->multi = RM_NEW(int32_t, p->nops);
    st->multi_at = RM_NEW(int32_t, p->nops);
    st->fetches = RM_NEW(int32_t, p->nops);
}

void state_free(State *st)
{
    for (int32_t i = 0; i < st->p->nops; i++)
        free(st->runs[i].at);
    for (int32_t v = 0; v < st->p->nvals; v++)
        free(st->reads[v].at);
    MEM_FREE(st->op, st->kernel, st->bytes, st->kfirst, st->kcost, st->kws, st->runs, st->saving, st->reads,
             st->event, st->event_at, st->multi, st->log, st->dirty, st->multi_at, st->fetches);
    levels_free(&st->levels);
    *st = (State){0};
}
