/* evict.c -- constructs a schedule in one sweep: runs the order, evicts values when a step does
 * not fit, and brings them back before their reader.
 *
 * The resident set is simulated in the given order. Where a step needs room, idle values
 * are evicted, those with the highest
 *
 *     bytes * distance to the next reader / cost to bring back
 *
 * first; the cost to bring back includes the evicted values it needs (as known when it is
 * asked). A missing input is recomputed together with its missing ancestors, in the order
 * of their numbers, which is topological. Large instances evict in batches, so that the
 * candidates are scanned a bounded number of times. DTR's rule (Kirisame et al. 2021: cost
 * / (bytes * staleness), no knowledge of the future) is the other score. O(executions x
 * degree + scans x values). */
#include "solve.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    double score;
    int32_t value;
} Candidate;

typedef struct {
    const Problem *p;
    const int32_t *order;
    int64_t budget, level; /* bytes */
    EvictRule rule;
    int32_t now;          /* position in order */
    int32_t *position;    /* per op: its position in order */
    int32_t *next;        /* per value: index of its next reader in by_position */
    int32_t *by_position; /* p->readers, each row sorted by position */
    bool *resident;
    int32_t *pins;        /* per value: how many pending runs need it */
    bool *taken;          /* per value: its buffer goes to an output of the current run */
    int32_t *used;        /* per value: position of its last use (DTR)*/
    double *back;         /* per value: cost to bring it back, as of its eviction */
    int32_t *barred;      /* per op: position of the first operator that bars it */
    int32_t *until;       /* per value: last position at which it can be brought back, as of its eviction */
    int32_t *need;        /* per value: last position at which values that are evicted need it */
    int32_t *stack;       /* for need_inputs */
    int32_t *list, nlist; /* resident values in any order, stale entries allowed */
    bool *listed;
    Candidate *candidate;
    bool *wanted; /* per op: it is in the current closure */
    bool *fetched; /* per op: it is in the closure, and its outputs are to be fetched */
    bool *away;    /* per op: its outputs were fetched before */
    int64_t link;  /* sum of RematOp.link over the fetches so far */
    int64_t host;  /* bytes of all values fetched so far, each counted once */
    int32_t *closure, nclosure;
    Seq out;
    int32_t most; /* executions allowed */
    int64_t cost, most_cost; /* cost so far, and the most allowed */
} Sweep;

static int32_t next_reader(const Sweep *w, int32_t v)
{
    return w->next[v] < w->p->readers.first[v + 1] ? w->by_position[w->next[v]] : INT32_MAX;
}

static void set_resident(Sweep *w, int32_t v, bool is)
{
    if (w->resident[v] == is)
        return;
    w->resident[v] = is;
    w->level += is ? w->p->bytes[v] : -w->p->bytes[v];
    if (is && !w->listed[v]) {
        w->listed[v] = true;
        w->list[w->nlist++] = v;
    }
}

/* The fetch of an operator, -1 where there is none or it does not fit the link or the host's memory. */
static int32_t possible_fetch(const Sweep *w, int32_t op)
{
    int32_t fetch = w->p->fetch[op];
    if (fetch < 0)
        return -1;
    const RematInstance *inst = w->p->inst;
    return rm_fetch_fits(inst, &inst->ops[fetch], w->link, w->host, w->away[op]) ? fetch : -1;
}

static double cost_to_recompute(const Sweep *w, int32_t op)
{
    const Problem *p = w->p;
    double sum = (double)p->cost[op];
    for (int32_t k = p->in.first[op]; k < p->in.first[op + 1]; k++)
        if (!w->resident[p->in.at[k]])
            sum += w->back[p->in.at[k]];
    return sum;
}

static double cost_back(const Sweep *w, int32_t v)
{
    int32_t op = w->p->producer[v], fetch = possible_fetch(w, op);
    double sum = cost_to_recompute(w, op);
    return fetch >= 0 && (double)w->p->cost[fetch] < sum ? (double)w->p->cost[fetch] : sum;
}

/* The last position at which v can be made again: nothing that it needs is barred by then. */
static int32_t returns_until(const Sweep *w, int32_t v)
{
    const Problem *p = w->p;
    int32_t op = p->producer[v], last = w->barred[op];
    if (p->inst->ops[op].once && possible_fetch(w, op) < 0)
        return -1;
    for (int32_t k = p->in.first[op]; k < p->in.first[op + 1]; k++)
        if (!w->resident[p->in.at[k]] && w->until[p->in.at[k]] < last)
            last = w->until[p->in.at[k]];
    return last;
}

/* The last position that needs v before it may have been made again; below now: none. */
static int32_t last_need(const Sweep *w, int32_t v)
{
    int32_t reader = next_reader(w, v);
    return reader != INT32_MAX && reader > w->need[v] ? reader : w->need[v];
}

static bool needed_later(const Sweep *w, int32_t v)
{
    return w->p->inst->values[v].keep_to_end || next_reader(w, v) != INT32_MAX ||
           (w->need[v] >= w->now && w->need[v] > returns_until(w, v));
}

/* May the resident value v be dropped, as it can be brought back for everything that needs it? */
static bool may_drop(const Sweep *w, int32_t v)
{
    bool stays = w->p->inst->values[v].keep_to_end && next_reader(w, v) == INT32_MAX;
    int32_t last = last_need(w, v);
    return !stays && (last < w->now || last <= returns_until(w, v));
}

/* Records that the inputs of an evicted value are needed at this position, and so are, where those are not
 * resident, their inputs. */
static void need_inputs(Sweep *w, int32_t v, int32_t position)
{
    const Problem *p = w->p;
    int32_t n = 0;
    w->stack[n++] = v;
    while (n > 0) {
        int32_t op = p->producer[w->stack[--n]];
        for (int32_t k = p->in.first[op]; k < p->in.first[op + 1]; k++) {
            int32_t in = p->in.at[k];
            if (w->need[in] >= position)
                continue;
            w->need[in] = position;
            if (!w->resident[in])
                w->stack[n++] = in;
        }
    }
}

/* Limits the evicted values that need v: they must return no later than v can. */
static void limit_readers(Sweep *w, int32_t v)
{
    const Problem *p = w->p;
    int32_t n = 0, last = w->until[v];
    w->stack[n++] = v;
    while (n > 0) {
        int32_t in = w->stack[--n];
        for (int32_t j = p->readers.first[in]; j < p->readers.first[in + 1]; j++) {
            int32_t op = p->readers.at[j];
            for (int32_t k = p->out.first[op]; k < p->out.first[op + 1]; k++) {
                int32_t out = p->out.at[k];
                if (w->resident[out] || w->until[out] <= last)
                    continue;
                w->until[out] = last;
                w->stack[n++] = out;
            }
        }
    }
}

static void drop(Sweep *w, int32_t v)
{
    int32_t last = last_need(w, v);
    w->back[v] = cost_back(w, v);
    w->until[v] = returns_until(w, v);
    set_resident(w, v, false);
    limit_readers(w, v);
    if (last >= w->now)
        need_inputs(w, v, last);
}

static bool may_evict(const Sweep *w, int32_t v)
{
    return w->resident[v] && w->pins[v] == 0 && w->p->bytes[v] > 0 && may_drop(w, v);
}

static double score(const Sweep *w, int32_t v)
{
    double bytes = (double)w->p->bytes[v], cost = cost_back(w, v) + 1e-9;
    if (w->rule == EVICT_DTR)
        return bytes * (double)(w->now - w->used[v] + 1) / cost;
    return bytes * (next_reader(w, v) - w->now) / cost;
}

static int by_score(const void *a, const void *b)
{
    const Candidate *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return (x->value > y->value) - (x->value < y->value);
}

/* Scans the resident values: drops stale list entries, scores the candidates. Returns how
 * many there are. */
static int32_t scan(Sweep *w)
{
    int32_t n = 0, candidates = 0;
    for (int32_t i = 0; i < w->nlist; i++) {
        int32_t v = w->list[i];
        w->listed[v] = w->resident[v];
        if (!w->resident[v])
            continue;
        w->list[n++] = v;
        if (may_evict(w, v))
            w->candidate[candidates++] = (Candidate){score(w, v), v};
    }
    w->nlist = n;
    qsort(w->candidate, (size_t)candidates, sizeof *w->candidate, by_score);
    return candidates;
}

static bool make_room(Sweep *w, int64_t bytes)
{
    if (w->level + bytes <= w->budget)
        return true;
    int32_t candidates = scan(w);
    int64_t batch = w->nlist > 2048 ? w->budget / 64 : 0;
    for (int32_t i = 0; i < candidates && w->level > w->budget - bytes - batch; i++)
        if (may_drop(w, w->candidate[i].value)) /* still, now that those before it are dropped */
            drop(w, w->candidate[i].value);
    return w->level + bytes <= w->budget;
}

/* The bytes that in-place permissions save: buffers of inputs that nothing but this run needs;
 * with `force` also of inputs that it evicts. Marks the inputs that are taken over. */
static int64_t take_over(Sweep *w, int32_t op, bool force)
{
    const Problem *p = w->p;
    const RematOp *o = &p->inst->ops[op];
    int64_t sum = 0;
    uint64_t applied = 0;
    for (int32_t k = 0; k < o->ninplace; k++) {
        RematInPlace a = o->inplace[k];
        int32_t in = o->in[a.in], out = o->out[a.out];
        bool can = w->pins[in] == 1 && !w->resident[out] && inplace_free(o, k, applied) &&
                   (!needed_later(w, in) || (force && may_drop(w, in)));
        w->taken[in] |= can;
        if (can) {
            sum += p->bytes[in] < p->bytes[out] ? p->bytes[in] : p->bytes[out];
            applied |= (uint64_t)1 << k;
        }
    }
    return sum;
}

/* Runs op, whose inputs are resident and pinned. */
static bool run(Sweep *w, int32_t op)
{
    const Problem *p = w->p;
    int64_t need = p->min_ws[op];
    w->cost += p->cost[op];
    if (w->out.n >= w->most || w->cost > w->most_cost)
        return false;
    for (int32_t k = p->out.first[op]; k < p->out.first[op + 1]; k++) {
        w->pins[p->out.at[k]]++;
        need += w->resident[p->out.at[k]] ? 0 : p->bytes[p->out.at[k]];
    }
    if (!make_room(w, need - take_over(w, op, false)) && !make_room(w, need - take_over(w, op, true)))
        return false;
    seq_push(&w->out, op);
    for (int32_t k = p->out.first[op]; k < p->out.first[op + 1]; k++) {
        int32_t v = p->out.at[k];
        set_resident(w, v, true);
        w->used[v] = w->now;
        if (--w->pins[v] == 0 && !needed_later(w, v))
            drop(w, v);
    }
    return true;
}

static void unpin(Sweep *w, int32_t v)
{
    w->used[v] = w->now;
    if (--w->pins[v] > 0)
        return;
    if (w->taken[v] || !needed_later(w, v))
        drop(w, v);
    w->taken[v] = false;
}

/* Adds an operator to the closure, and decides whether its outputs are fetched. */
static void want(Sweep *w, int32_t op)
{
    int32_t fetch = possible_fetch(w, op);
    w->wanted[op] = true;
    w->closure[w->nclosure++] = op;
    w->fetched[op] = fetch >= 0 && (w->p->inst->ops[op].once ||
                                    (double)w->p->cost[fetch] < cost_to_recompute(w, op));
    if (!w->fetched[op])
        return;
    w->link += w->p->inst->ops[fetch].link;
    w->host += w->away[op] ? 0 : rm_output_bytes(w->p->inst, &w->p->inst->ops[fetch]);
    w->away[op] = true;
}

/* Pins the inputs of op and adds the producers of the missing ones to the closure. */
static void want_inputs(Sweep *w, int32_t op)
{
    const Problem *p = w->p;
    for (int32_t k = p->in.first[op]; k < p->in.first[op + 1]; k++) {
        int32_t v = p->in.at[k], u = p->producer[v];
        w->pins[v]++;
        if (!w->resident[v] && !w->wanted[u])
            want(w, u);
    }
}

static void unpin_inputs(Sweep *w, int32_t op)
{
    const Problem *p = w->p;
    for (int32_t k = p->in.first[op]; k < p->in.first[op + 1]; k++)
        unpin(w, p->in.at[k]);
}

static bool may_rerun(const Sweep *w, int32_t op)
{
    return w->barred[op] >= w->now && !w->p->inst->ops[op].once;
}

static bool step(Sweep *w)
{
    const Problem *p = w->p;
    int32_t op = w->order[w->now];
    w->nclosure = 0;
    want_inputs(w, op);
    for (int32_t i = 0; i < w->nclosure; i++)
        if (!w->fetched[w->closure[i]])
            want_inputs(w, w->closure[i]);
    qsort(w->closure, (size_t)w->nclosure, sizeof *w->closure, rm_by_number);
    for (int32_t i = 0; i < w->nclosure; i++) {
        int32_t u = w->closure[i];
        w->wanted[u] = false;
        if (w->fetched[u] ? !run(w, p->fetch[u]) : !may_rerun(w, u) || !run(w, u))
            return false;
        if (!w->fetched[u])
            unpin_inputs(w, u);
    }
    for (int32_t k = p->in.first[op]; k < p->in.first[op + 1]; k++)
        w->next[p->in.at[k]]++;
    if (!run(w, op))
        return false;
    unpin_inputs(w, op);
    return true;
}

/* Fills by_position: each row of readers sorted by position in the order, as positions. */
static void sort_readers(Sweep *w)
{
    const Rows *r = &w->p->readers;
    for (int32_t v = 0; v < w->p->nvals; v++) {
        int32_t *row = w->by_position + r->first[v], n = r->first[v + 1] - r->first[v];
        for (int32_t k = 0; k < n; k++)
            row[k] = w->position[r->at[r->first[v] + k]];
        qsort(row, (size_t)n, sizeof *row, rm_by_number);
        w->next[v] = r->first[v];
    }
}

static void sweep_free(Sweep *w)
{
    MEM_FREE(w->position, w->next, w->by_position, w->resident, w->pins, w->taken, w->used, w->back, w->list,
             w->listed, w->candidate, w->wanted, w->closure, w->out.op, w->fetched, w->away, w->barred,
             w->until, w->need, w->stack);
}

bool evict_sweep(const Problem *p, const int32_t *order, int64_t budget, int64_t most_cost, EvictRule rule,
                 Seq *s)
{
    Sweep w = {.p = p, .order = order, .budget = budget, .rule = rule, .level = p->inst->persistent};
    w.position = RM_NEW(int32_t, p->nops);
    w.next = RM_NEW(int32_t, p->nvals);
    w.by_position = RM_NEW(int32_t, p->readers.first[p->nvals]);
    w.resident = RM_NEW(bool, p->nvals);
    w.pins = RM_NEW(int32_t, p->nvals);
    w.taken = RM_NEW(bool, p->nvals);
    w.used = RM_NEW(int32_t, p->nvals);
    w.back = RM_NEW(double, p->nvals);
    w.barred = RM_NEW(int32_t, p->nops);
    w.until = RM_NEW(int32_t, p->nvals);
    w.need = RM_NEW(int32_t, p->nvals);
    w.stack = RM_NEW(int32_t, p->nvals + 1);
    w.list = RM_NEW(int32_t, p->nvals);
    w.listed = RM_NEW(bool, p->nvals);
    w.candidate = RM_NEW(Candidate, p->nvals);
    w.wanted = RM_NEW(bool, p->nops);
    w.fetched = RM_NEW(bool, p->nops);
    w.away = RM_NEW(bool, p->nops);
    w.closure = RM_NEW(int32_t, p->nops);
    w.most_cost = most_cost < RM_SUM ? most_cost : RM_SUM;
    w.most = p->nops < INT32_MAX / 6 ? 6 * p->nops : INT32_MAX;
    for (int32_t i = 0; i < p->nops; i++)
        w.position[order[i]] = i;
    for (int32_t i = 0; i < p->nops; i++) {
        w.barred[i] = INT32_MAX;
        for (int32_t k = p->barred_by.first[i]; k < p->barred_by.first[i + 1]; k++)
            if (w.position[p->barred_by.at[k]] < w.barred[i])
                w.barred[i] = w.position[p->barred_by.at[k]];
    }
    memset(w.need, -1, (size_t)p->nvals * sizeof *w.need);
    sort_readers(&w);
    bool ok = true;
    for (w.now = 0; w.now < p->nops && ok; w.now++)
        ok = step(&w);
    if (ok)
        seq_copy(s, &w.out);
    sweep_free(&w);
    return ok;
}
