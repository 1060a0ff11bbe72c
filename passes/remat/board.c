/* board.c -- incremental evaluation of a schedule under local changes.
 *
 * The schedule lies in T slots with free slots in between, so that an execution can be
 * added, removed or moved without renumbering. Per operator the slots of its runs, per
 * value the slots of its readers are kept sorted; a copy of a value is resident from its
 * run to the last reader before the producer's next run, which these two lists give
 * directly. A change is therefore a few range additions to the levels (levels.c). Free
 * slots carry -HOLE and so never count. Everything is exact in integers, so taking a
 * change back restores the state bit by bit. */
#include "board.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { HOLE = LEVEL_TOP };
static const int64_t max_total = (int64_t)1
                                 << 28; /* quanta over all values: sums stay in int32 */

/* ---- sorted slots -------------------------------------------------------------------- */

static Slots *slots_new(int32_t n)
{
    Slots *s = RM_NEW(Slots, n);
    for (int32_t i = 0; i < n; i++)
        s[i] = (Slots){RM_NEW(int32_t, 4), 0, 4};
    return s;
}

static void slots_insert(Slots *s, int32_t t)
{
    if (s->n == s->cap) {
        s->cap *= 2;
        s->at = mem_grow(s->at, (size_t)s->cap, sizeof *s->at);
    }
    int32_t i = s->n++;
    for (; i > 0 && s->at[i - 1] > t; i--)
        s->at[i] = s->at[i - 1];
    s->at[i] = t;
}

static void slots_delete(Slots *s, int32_t t)
{
    int32_t i = slots_lower(s, t);
    assert(i < s->n && s->at[i] == t);
    s->n--;
    for (; i < s->n; i++)
        s->at[i] = s->at[i + 1];
}

/* ---- copies -------------------------------------------------------------------------- */

int32_t board_copy_start(const Board *b, int32_t value, int32_t slot)
{
    const Slots *runs = &b->runs[b->p->producer[value]];
    int32_t k = slots_lower(runs, slot);
    return k > 0 ? runs->at[k - 1] : -1;
}

/* The first run of op behind slot, T + 1 if none. */
static int32_t next_run(const Board *b, int32_t op, int32_t slot)
{
    const Slots *runs = &b->runs[op];
    int32_t k = slots_lower(runs, slot + 1);
    return k < runs->n ? runs->at[k] : b->T + 1;
}

/* Last reader in (start, end), or start. */
static int32_t last_read(const Board *b, int32_t value, int32_t start, int32_t end)
{
    const Slots *reads = &b->reads[value];
    int32_t k = slots_lower(reads, end);
    return k > 0 && reads->at[k - 1] > start ? reads->at[k - 1] : start;
}

int32_t board_last_read(const Board *b, int32_t value, int32_t start)
{
    return last_read(b, value, start, next_run(b, b->p->producer[value], start));
}

int32_t board_first_reader(const Board *b, int32_t slot)
{
    const Problem *p = b->p;
    int32_t op = b->op[slot], first = b->T, end = next_run(b, op, slot);
    for (int32_t k = p->out.first[op]; k < p->out.first[op + 1]; k++) {
        const Slots *reads = &b->reads[p->out.at[k]];
        int32_t i = slots_lower(reads, slot + 1);
        if (i < reads->n && reads->at[i] < first && reads->at[i] < end)
            first = reads->at[i];
    }
    return first;
}

bool board_unread(const Board *b, int32_t slot)
{
    const Problem *p = b->p;
    int32_t op = b->op[slot];
    if (b->runs[op].n < 2)
        return false;
    for (int32_t k = p->out.first[op]; k < p->out.first[op + 1]; k++)
        if (board_last_read(b, p->out.at[k], slot) > slot)
            return false;
    return true;
}

int32_t board_free_slot(const Board *b, int32_t lo, int32_t hi, int32_t near)
{
    for (int32_t d = 0; near - d > lo || near + d < hi; d++) {
        if (near + d < hi && near + d > lo && b->op[near + d] < 0)
            return near + d;
        if (near - d > lo && near - d < hi && b->op[near - d] < 0)
            return near - d;
    }
    return -1;
}

/* ---- in-place ------------------------------------------------------------------------ */

static void mark_dirty(Board *b, int32_t slot)
{
    if (!b->p->any_inplace || slot >= b->T)
        return;
    if (b->ndirty == b->capdirty) {
        b->capdirty = b->capdirty ? 2 * b->capdirty : 16;
        b->dirty = mem_grow(b->dirty, (size_t)b->capdirty, sizeof *b->dirty);
    }
    b->dirty[b->ndirty++] = slot;
}

static int32_t saving_at(const Board *b, int32_t slot)
{
    int32_t op = b->op[slot], saved = 0;
    if (op < 0)
        return 0;
    const RematOp *o = &b->p->inst->ops[op];
    uint64_t applied = 0;
    for (int32_t k = 0; k < o->ninplace; k++) {
        RematInPlace a = o->inplace[k];
        int32_t in = o->in[a.in];
        if (!inplace_free(o, k, applied) ||
            board_last_read(b, in, board_copy_start(b, in, slot)) != slot)
            continue;
        int32_t x = b->bytes[in], y = b->bytes[o->out[a.out]];
        saved += x < y ? x : y;
        applied |= (uint64_t)1 << k;
    }
    return saved;
}

/* Brings the savings of the dirty slots up to date. */
static void settle(Board *b)
{
    for (int32_t i = 0; i < b->ndirty; i++) {
        int32_t slot = b->dirty[i], now = saving_at(b, slot);
        levels_add(&b->levels, slot, slot + 1, b->saving[slot] - now);
        b->saving[slot] = now;
    }
    b->ndirty = 0;
}

/* ---- adding and removing ------------------------------------------------------------- */

static bool may_add(const Board *b, int32_t op, int32_t slot)
{
    const Problem *p = b->p;
    if (b->op[slot] >= 0 || (p->inst->ops[op].once && b->runs[op].n > 0))
        return false;
    for (int32_t k = p->in.first[op]; k < p->in.first[op + 1]; k++) {
        const Slots *runs = &b->runs[p->producer[p->in.at[k]]];
        if (runs->n == 0 || runs->at[0] >= slot)
            return false;
    }
    if (!p->any_barrier)
        return true;
    for (int32_t k = p->barred_by.first[op]; k < p->barred_by.first[op + 1]; k++) {
        const Slots *runs = &b->runs[p->barred_by.at[k]];
        if (runs->n > 0 && runs->at[0] < slot)
            return false;
    }
    const RematOp *o = &p->inst->ops[op];
    for (int32_t k = 0; k < o->nbarrier; k++) {
        const Slots *runs = &b->runs[o->barrier[k]];
        if (runs->n > 0 && runs->at[runs->n - 1] > slot)
            return false;
    }
    return true;
}

static void count_run(Board *b, int32_t op, int32_t slot, int32_t by)
{
    if (by > 0) {
        slots_insert(&b->runs[op], slot);
        b->event_at[slot] = b->nevents;
        b->event[b->nevents++] = slot;
        if (b->runs[op].n == 2) {
            b->multi_at[op] = b->nmulti;
            b->multi[b->nmulti++] = op;
        }
        return;
    }
    slots_delete(&b->runs[op], slot);
    int32_t i = b->event_at[slot], moved = b->event[--b->nevents];
    b->event[i] = moved;
    b->event_at[moved] = i;
    if (b->runs[op].n == 1) {
        int32_t k = b->multi_at[op], other = b->multi[--b->nmulti];
        b->multi[k] = other;
        b->multi_at[other] = k;
    }
}

/* The copies read at slot now last at least to it. */
static void add_reads(Board *b, int32_t op, int32_t slot)
{
    const Problem *p = b->p;
    for (int32_t k = p->in.first[op]; k < p->in.first[op + 1]; k++) {
        int32_t v = p->in.at[k], start = board_copy_start(b, v, slot);
        int32_t end = board_last_read(b, v, start);
        if (end < slot) {
            levels_add(&b->levels, end + 1, slot + 1, b->bytes[v]);
            mark_dirty(b, end);
        }
        slots_insert(&b->reads[v], slot);
    }
}

static void remove_reads(Board *b, int32_t op, int32_t slot)
{
    const Problem *p = b->p;
    for (int32_t k = p->in.first[op]; k < p->in.first[op + 1]; k++) {
        int32_t v = p->in.at[k], start = board_copy_start(b, v, slot);
        slots_delete(&b->reads[v], slot);
        int32_t end = board_last_read(b, v, start);
        if (end < slot) {
            levels_add(&b->levels, end + 1, slot + 1, -b->bytes[v]);
            mark_dirty(b, end);
        }
    }
}

/* A new copy of each output starts at slot (by = 1), cutting an older one short, or goes
 * (by = -1). The run itself is not in the list of runs. */
static void split_copies(Board *b, int32_t op, int32_t slot, int32_t by)
{
    const Problem *p = b->p;
    const Slots *runs = &b->runs[op];
    int32_t k = slots_lower(runs, slot), start = k > 0 ? runs->at[k - 1] : -1;
    int32_t end = k < runs->n ? runs->at[k] : b->T + 1;
    for (int32_t i = p->out.first[op]; i < p->out.first[op + 1]; i++) {
        int32_t v = p->out.at[i], last = last_read(b, v, slot, end);
        if (start < 0) { /* the first run: nothing to cut */
            levels_add(&b->levels, slot, last < b->T ? last + 1 : b->T, by * b->bytes[v]);
        } else if (last > slot) {
            int32_t cut = last_read(b, v, start, slot);
            levels_add(&b->levels, cut + 1, slot, -by * b->bytes[v]);
            mark_dirty(b, cut);
        } else {
            levels_add(&b->levels, slot, slot + 1, by * b->bytes[v]);
        }
    }
}

static void log_change(Board *b, Change c)
{
    if (b->nlog == b->caplog) {
        b->caplog = b->caplog ? 2 * b->caplog : 64;
        b->log = mem_grow(b->log, (size_t)b->caplog, sizeof *b->log);
    }
    b->log[b->nlog++] = c;
}

static void add_run(Board *b, int32_t op, int32_t kernel, int32_t slot)
{
    int32_t row = b->kfirst[op] + kernel;
    b->op[slot] = op;
    b->kernel[slot] = (uint8_t)kernel;
    b->cost += b->kcost[row];
    levels_add(&b->levels, slot, slot + 1, HOLE + b->kws[row]);
    add_reads(b, op, slot);
    split_copies(b, op, slot, 1);
    count_run(b, op, slot, 1);
    mark_dirty(b, slot);
    settle(b);
}

static void remove_run(Board *b, int32_t slot)
{
    int32_t op = b->op[slot], row = b->kfirst[op] + b->kernel[slot];
    count_run(b, op, slot, -1);
    split_copies(b, op, slot, -1);
    remove_reads(b, op, slot);
    b->op[slot] = -1;
    mark_dirty(b, slot);
    settle(b);
    levels_add(&b->levels, slot, slot + 1, -HOLE - b->kws[row]);
    b->cost -= b->kcost[row];
}

/* ---- sliding ------------------------------------------------------------------------- */

/* Is there an entry in (lo, hi)? */
static bool any_between(const Slots *s, int32_t lo, int32_t hi)
{
    int32_t i = slots_lower(s, lo + 1);
    return i < s->n && s->at[i] < hi;
}

/* May the run at `from` go to the free slot `to` past other runs only that have nothing to do with
 * the copies it reads and makes? */
static bool may_slide(const Board *b, int32_t from, int32_t to)
{
    const Problem *p = b->p;
    int32_t op = b->op[from], lo = from < to ? from : to, hi = from < to ? to : from;
    if (b->op[to] >= 0 || p->any_barrier || any_between(&b->runs[op], lo, hi))
        return false;
    for (int32_t k = p->in.first[op]; k < p->in.first[op + 1]; k++)
        if (any_between(&b->runs[p->producer[p->in.at[k]]], lo, hi))
            return false;
    for (int32_t k = p->out.first[op]; k < p->out.first[op + 1]; k++)
        if (any_between(&b->reads[p->out.at[k]], lo, hi))
            return false;
    return true;
}

static void replace_slot(Slots *s, int32_t from, int32_t to)
{
    int32_t i = slots_lower(s, from);
    for (; i + 1 < s->n && s->at[i + 1] < to; i++)
        s->at[i] = s->at[i + 1];
    for (; i > 0 && s->at[i - 1] > to; i--)
        s->at[i] = s->at[i - 1];
    s->at[i] = to;
}

/* The copy of v read at `from` is read at `to` instead. */
static void slide_read(Board *b, int32_t v, int32_t from, int32_t to)
{
    int32_t start = board_copy_start(b, v, from), was = board_last_read(b, v, start);
    replace_slot(&b->reads[v], from, to);
    int32_t is = was != from && was > to ? was : board_last_read(b, v, start);
    if (is == was)
        return;
    levels_add(&b->levels, (is < was ? is : was) + 1, (is < was ? was : is) + 1,
              is < was ? -b->bytes[v] : b->bytes[v]);
    mark_dirty(b, was);
    mark_dirty(b, is);
}

/* The copy of v made at `from` is made at `to` instead. */
static void slide_copy(Board *b, int32_t v, int32_t from, int32_t to)
{
    if (board_last_read(b, v, from) == from) {
        levels_add(&b->levels, from, from + 1, -b->bytes[v]);
        levels_add(&b->levels, to, to + 1, b->bytes[v]);
    } else if (from < to) {
        levels_add(&b->levels, from, to, -b->bytes[v]);
    } else {
        levels_add(&b->levels, to, from, b->bytes[v]);
    }
}

/* The same as removing and adding the run, where may_slide: only the steps on the way change. */
static void slide(Board *b, int32_t from, int32_t to)
{
    const Problem *p = b->p;
    int32_t op = b->op[from], own = HOLE + b->kws[b->kfirst[op] + b->kernel[from]];
    for (int32_t k = p->in.first[op]; k < p->in.first[op + 1]; k++)
        slide_read(b, p->in.at[k], from, to);
    for (int32_t k = p->out.first[op]; k < p->out.first[op + 1]; k++)
        slide_copy(b, p->out.at[k], from, to);
    replace_slot(&b->runs[op], from, to);
    b->op[to] = op;
    b->op[from] = -1;
    b->kernel[to] = b->kernel[from];
    b->event_at[to] = b->event_at[from];
    b->event[b->event_at[to]] = to;
    mark_dirty(b, from);
    mark_dirty(b, to);
    settle(b);
    levels_add(&b->levels, to, to + 1, own);
    levels_add(&b->levels, from, from + 1, -own);
}

/* ---- making room --------------------------------------------------------------------- */

/* The run at `from` goes to the free slot beside it; block maxima are not brought up to
 * date. */
static void relabel(Board *b, int32_t from, int32_t to)
{
    const Problem *p = b->p;
    int32_t op = b->op[from];
    replace_slot(&b->runs[op], from, to);
    for (int32_t k = p->in.first[op]; k < p->in.first[op + 1]; k++)
        replace_slot(&b->reads[p->in.at[k]], from, to);
    b->op[to] = op;
    b->op[from] = -1;
    b->kernel[to] = b->kernel[from];
    b->saving[to] = b->saving[from];
    b->saving[from] = 0;
    b->event_at[to] = b->event_at[from];
    b->event[b->event_at[to]] = to;
    levels_put(&b->levels, to, levels_at(&b->levels, from));
}

/* The level of a free slot directly in front of this one. */
static int32_t level_before(const Board *b, int32_t slot)
{
    const Problem *p = b->p;
    int32_t op = b->op[slot], level = levels_at(&b->levels, slot);
    if (op < 0)
        return level;
    level += b->saving[slot] - b->kws[b->kfirst[op] + b->kernel[slot]] - HOLE;
    for (int32_t k = p->out.first[op]; k < p->out.first[op + 1]; k++)
        level -= b->bytes[p->out.at[k]];
    return level;
}

/* The runs behind the hole, up to and including `end` (on either side of it), move one slot
 * towards it; end is the hole then. The order stays, and with it what each step holds. */
static void shift_runs(Board *b, int32_t hole, int32_t end)
{
    int32_t by = end > hole ? 1 : -1;
    for (int32_t t = hole; t != end; t += by)
        relabel(b, t + by, t);
    levels_put(&b->levels, end, level_before(b, end + 1));
    levels_settle(&b->levels, end > hole ? hole : end, end > hole ? end : hole);
}

bool board_open(Board *b, int32_t slot)
{
    int32_t hole = slot;
    while (hole >= 0 && b->op[hole] >= 0)
        hole--;
    if (hole < 0 || slot + 1 >= b->T)
        return false;
    if (hole == slot)
        return true;
    shift_runs(b, hole, slot);
    log_change(b, (Change){OPENED, hole, .to = slot});
    for (int32_t i = 0; i < 2; i++)
        b->held[i] -= b->held[i] > hole && b->held[i] <= slot;
    return true;
}

/* ---- changes that can be taken back -------------------------------------------------- */

bool board_add(Board *b, int32_t op, int32_t kernel, int32_t slot)
{
    if (!may_add(b, op, slot))
        return false;
    add_run(b, op, kernel, slot);
    log_change(b, (Change){ADDED, slot, .op = op, .kernel = (uint8_t)kernel});
    return true;
}

bool board_remove(Board *b, int32_t slot)
{
    int32_t op = b->op[slot];
    if (b->runs[op].n < 2 ||
        (b->runs[op].at[0] == slot && board_first_reader(b, slot) < b->T))
        return false;
    Change c = {REMOVED, slot, .op = op, .kernel = b->kernel[slot]};
    remove_run(b, slot);
    log_change(b, c);
    return true;
}

bool board_move(Board *b, int32_t from, int32_t to)
{
    int32_t op = b->op[from];
    if (may_slide(b, from, to)) {
        slide(b, from, to);
        log_change(b, (Change){SLID, from, .to = to});
        return true;
    }
    Change c = {REMOVED, from, .op = op, .kernel = b->kernel[from]};
    remove_run(b, from);
    log_change(b, c);
    return board_add(b, op, c.kernel, to);
}

void board_set_kernel(Board *b, int32_t slot, int32_t kernel)
{
    Change c = {REMOVED, slot, .op = b->op[slot], .kernel = b->kernel[slot]};
    remove_run(b, slot);
    log_change(b, c);
    add_run(b, c.op, kernel, slot);
    log_change(b, (Change){ADDED, slot, .op = c.op, .kernel = (uint8_t)kernel});
}

void board_undo(Board *b)
{
    while (b->nlog > 0) {
        Change c = b->log[--b->nlog];
        switch (c.kind) {
        case ADDED: remove_run(b, c.slot); break;
        case REMOVED: add_run(b, c.op, c.kernel, c.slot); break;
        case SLID: slide(b, c.to, c.slot); break;
        case OPENED: shift_runs(b, c.to, c.slot); break;
        }
    }
}

/* ---- loading and storing ------------------------------------------------------------- */

static void reset(Board *b)
{
    const Problem *p = b->p;
    b->cost = 0;
    levels_reset(&b->levels, b->T, -HOLE);
    b->nevents = b->nmulti = b->nlog = b->ndirty = 0;
    for (int32_t t = 0; t < b->T; t++) {
        b->op[t] = -1;
        b->saving[t] = 0;
    }
    for (int32_t i = 0; i < p->nops; i++)
        b->runs[i].n = 0;
    for (int32_t v = 0; v < p->nvals; v++) {
        b->reads[v].n = 0;
        if (p->inst->values[v].keep_to_end)
            slots_insert(&b->reads[v], b->T);
    }
}

static void resize(Board *b, int32_t T)
{
    size_t n = (size_t)T;
    b->T = T;
    b->op = mem_grow(b->op, n, sizeof *b->op);
    b->kernel = mem_grow(b->kernel, n, sizeof *b->kernel);
    b->saving = mem_grow(b->saving, n, sizeof *b->saving);
    b->event = mem_grow(b->event, n, sizeof *b->event);
    b->event_at = mem_grow(b->event_at, n, sizeof *b->event_at);
}

static int32_t slots_for(int32_t n)
{
    return (3 * n / LEVEL_BLOCK + 2) * LEVEL_BLOCK;
}

static void load_runs(Board *b, const int32_t *ops, const uint8_t *kernels, int32_t n)
{
    if (b->T < 2 * n || b->T > 6 * n + 4 * LEVEL_BLOCK)
        resize(b, slots_for(n));
    reset(b);
    for (int32_t i = 0; i < n; i++) {
        int32_t slot = (int32_t)((int64_t)(2 * i + 1) * b->T / (2 * n));
        add_run(b, ops[i], kernels ? kernels[i] : b->p->cheapest[ops[i]], slot);
    }
}

void board_load(Board *b, const Seq *s, const uint8_t *kernels)
{
    load_runs(b, s->op, kernels, s->n);
}

void board_store(const Board *b, Seq *s)
{
    s->n = 0;
    for (int32_t t = 0; t < b->T; t++)
        if (b->op[t] >= 0)
            seq_push(s, b->op[t]);
}

void board_respread(Board *b)
{
    int32_t n = 0, *ops = RM_NEW(int32_t, b->nevents);
    uint8_t *kernels = RM_NEW(uint8_t, b->nevents);
    for (int32_t t = 0; t < b->T; t++)
        if (b->op[t] >= 0) {
            ops[n] = b->op[t];
            kernels[n++] = b->kernel[t];
        }
    load_runs(b, ops, kernels, n);
    free(ops);
    free(kernels);
}

/* ---- making a board ------------------------------------------------------------------ */

static int64_t gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t t = a % b;
        a = b;
        b = t;
    }
    return a;
}

/* Also the shift with which the penalties of a block add up within int32. */
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

static int32_t quanta(const Board *b, int64_t bytes)
{
    return (int32_t)((bytes + b->quantum - 1) / b->quantum);
}

void board_set_budget(Board *b, int64_t budget)
{
    int64_t room = budget - b->p->inst->persistent;
    int64_t limit = room < 0 ? -1 : room / b->quantum;
    b->levels.limit = (int32_t)(limit < 2 * max_total ? limit : 2 * max_total);
}

void board_init(Board *b, const Problem *p, int64_t budget)
{
    *b = (Board){.p = p};
    b->quantum = choose_quantum(p, &b->levels.shift);
    board_set_budget(b, budget);
    b->bytes = RM_NEW(int32_t, p->nvals);
    for (int32_t v = 0; v < p->nvals; v++)
        b->bytes[v] = quanta(b, p->bytes[v]);
    b->kfirst = RM_NEW(int32_t, p->nops + 1);
    for (int32_t i = 0; i < p->nops; i++)
        b->kfirst[i + 1] = b->kfirst[i] + 1 + p->inst->ops[i].nalt;
    b->kcost = RM_NEW(int64_t, b->kfirst[p->nops]);
    b->kws = RM_NEW(int32_t, b->kfirst[p->nops]);
    for (int32_t i = 0; i < p->nops; i++) {
        const RematOp *o = &p->inst->ops[i];
        for (int32_t k = 0; k <= o->nalt; k++) {
            b->kcost[b->kfirst[i] + k] = k ? o->alt[k - 1].cost : o->cost;
            b->kws[b->kfirst[i] + k] =
                quanta(b, k ? o->alt[k - 1].workspace : o->workspace);
        }
    }
    b->runs = slots_new(p->nops);
    b->reads = slots_new(p->nvals);
    b->multi = RM_NEW(int32_t, p->nops);
    b->multi_at = RM_NEW(int32_t, p->nops);
}

void board_free(Board *b)
{
    for (int32_t i = 0; i < b->p->nops; i++)
        free(b->runs[i].at);
    for (int32_t v = 0; v < b->p->nvals; v++)
        free(b->reads[v].at);
    void *all[] = {b->op,    b->kernel,   b->bytes, b->kfirst,   b->kcost, b->kws,
                   b->saving, b->runs,    b->reads, b->event,    b->event_at,
                   b->multi, b->multi_at, b->log,   b->dirty};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    levels_free(&b->levels);
    *b = (Board){0};
}
