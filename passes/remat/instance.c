/* instance.c -- checking an instance and indexing it: edges in both directions, cheapest
 * kernels. */
#include "remat_int.h"

#include <stdlib.h>
#include <string.h>

static bool add_within(int64_t *sum, int64_t x, int64_t limit) { return x < limit && (*sum += x) < limit; }

static bool check_list(int32_t op, const int32_t *list, int32_t n, int32_t limit,
                       int32_t *mark, const char *what, char err[REMAT_ERR])
{
    if (n < 0 || (n > 0 && !list))
        return rm_fail(err, "operator %d: bad %s list", op, what);
    for (int32_t i = 0; i < n; i++) {
        if (list[i] < 0 || list[i] >= limit)
            return rm_fail(err, "operator %d: %s %d is unknown", op, what, list[i]);
        if (mark[list[i]] == op + 1)
            return rm_fail(err, "operator %d: %s %d is listed twice", op, what, list[i]);
        mark[list[i]] = op + 1;
    }
    return true;
}

/* Checks costs, workspaces, kernel choices and in-place pairs of one operator; adds the cost of
 * its most expensive kernel to *cost_sum. */
static bool check_op(const RematOp *o, int32_t op, int64_t *cost_sum, int64_t *ws_max, char err[REMAT_ERR])
{
    int64_t dearest = o->cost;
    if (o->cost < 0 || o->workspace < 0)
        return rm_fail(err, "operator %d: negative cost or workspace", op);
    if (o->nalt < 0 || o->nalt > 255)
        return rm_fail(err, "operator %d: %d kernel choices", op, o->nalt);
    *ws_max = o->workspace > *ws_max ? o->workspace : *ws_max;
    for (int32_t k = 0; k < o->nalt; k++) {
        if (o->alt[k].cost < 0 || o->alt[k].workspace < 0)
            return rm_fail(err, "operator %d: negative cost or workspace", op);
        dearest = o->alt[k].cost > dearest ? o->alt[k].cost : dearest;
        *ws_max = o->alt[k].workspace > *ws_max ? o->alt[k].workspace : *ws_max;
    }
    if (!add_within(cost_sum, dearest, RM_COSTS))
        return rm_fail(err, "operator %d: the sum of the costs does not fit 52 bits", op);
    if (o->ninplace < 0 || o->ninplace > 64)
        return rm_fail(err, "operator %d: %d in-place pairs", op, o->ninplace);
    for (int32_t k = 0; k < o->ninplace; k++)
        if (o->inplace[k].out < 0 || o->inplace[k].out >= o->nout || o->inplace[k].in < 0 ||
            o->inplace[k].in >= o->nin)
            return rm_fail(err, "operator %d: bad in-place pair", op);
    return true;
}

static bool check_values(const RematInstance *inst, int64_t ws_max, char err[REMAT_ERR])
{
    int64_t sum = inst->persistent;
    if (inst->persistent < 0)
        return rm_fail(err, "negative persistent bytes");
    if (sum >= RM_SUM || !add_within(&sum, ws_max, RM_SUM))
        return rm_fail(err, "the sum of the bytes does not fit 62 bits");
    for (int32_t v = 0; v < inst->nvalues; v++) {
        if (inst->values[v].bytes < 0)
            return rm_fail(err, "value %d: negative bytes", v);
        if (!add_within(&sum, inst->values[v].bytes, RM_SUM))
            return rm_fail(err, "value %d: the sum of the bytes does not fit 62 bits", v);
    }
    return true;
}

static bool check_order(const RematInstance *inst, int32_t *mark, int32_t *producer, char err[REMAT_ERR])
{
    for (int32_t i = 0; i < inst->nops; i++) {
        const RematOp *o = &inst->ops[i];
        if (!check_list(i, o->in, o->nin, inst->nvalues, mark, "input", err) ||
            !check_list(i, o->out, o->nout, inst->nvalues, mark, "value", err))
            return false;
        for (int32_t k = 0; k < o->nin; k++)
            if (producer[o->in[k]] < 0)
                return rm_fail(err, "operator %d reads value %d, which nothing has made", i, o->in[k]);
        for (int32_t k = 0; k < o->nout; k++) {
            if (producer[o->out[k]] >= 0)
                return rm_fail(err, "value %d has two producers", o->out[k]);
            producer[o->out[k]] = i;
        }
    }
    for (int32_t v = 0; v < inst->nvalues; v++)
        if (producer[v] < 0)
            return rm_fail(err, "value %d has no producer", v);
    return true;
}

static bool check_barriers(const RematInstance *inst, char err[REMAT_ERR])
{
    for (int32_t i = 0; i < inst->nops; i++)
        for (int32_t k = 0; k < inst->ops[i].nbarrier; k++) {
            int32_t b = inst->ops[i].barrier[k];
            if (b < 0 || b >= inst->nops)
                return rm_fail(err, "operator %d: barrier %d is unknown", i, b);
            if (b >= i)
                return rm_fail(err, "operator %d: barrier against %d, which comes later", i, b);
        }
    return true;
}

/* Checks a fetch: it has the outputs of its operator, and otherwise only a cost and a link. */
static bool check_fetch(const RematInstance *inst, int32_t i, uint8_t *fetched, char err[REMAT_ERR])
{
    const RematOp *o = &inst->ops[i];
    if (o->fetch_of < 0 || o->fetch_of >= inst->nops)
        return rm_fail(err, "fetch of operator %d, which is unknown", o->fetch_of);
    const RematOp *of = &inst->ops[o->fetch_of];
    if (fetched[o->fetch_of]++)
        return rm_fail(err, "operator %d has two fetches", o->fetch_of);
    if (o->link < 0 || o->link >= RM_SUM)
        return rm_fail(err, "operator %d: bad fetch", o->fetch_of);
    if (o->nin || o->ninplace || o->nalt || o->nbarrier || o->once || o->workspace || o->nout != of->nout ||
        (o->nout > 0 && memcmp(o->out, of->out, (size_t)o->nout * sizeof *o->out) != 0))
        return rm_fail(err, "operator %d: its fetch makes something else", o->fetch_of);
    return true;
}

static bool check_fetches(const RematInstance *inst, char err[REMAT_ERR])
{
    uint8_t *fetched = RM_NEW(uint8_t, inst->nops);
    bool fits = inst->link >= 0 && inst->link < RM_SUM && inst->host >= 0 && inst->host < RM_SUM;
    bool ok = fits || rm_fail(err, "the link or the host's memory does not fit 62 bits");
    for (int32_t k = 0; k < inst->nfetch && ok; k++)
        ok = check_fetch(inst, inst->nops + k, fetched, err);
    free(fetched);
    return ok;
}

bool remat_check(const RematInstance *inst, char err[REMAT_ERR])
{
    int64_t cost = 0, ws = 0;
    if (inst->nops < 0 || inst->nvalues < 0 || inst->nfetch < 0 || inst->nops > 1 << 28 ||
        inst->nvalues > 1 << 28 || inst->nfetch > 1 << 28)
        return rm_fail(err, "instance of impossible size");
    for (int32_t i = 0; i < inst->nops + inst->nfetch; i++)
        if (!check_op(&inst->ops[i], i, &cost, &ws, err))
            return false;
    if (!check_fetches(inst, err))
        return false;
    if (!check_values(inst, ws, err))
        return false;
    int32_t *mark = RM_NEW(int32_t, inst->nvalues);
    int32_t *producer = RM_NEW(int32_t, inst->nvalues);
    memset(producer, -1, sizeof *producer * (size_t)inst->nvalues);
    bool ok = check_order(inst, mark, producer, err) && check_barriers(inst, err);
    free(mark);
    free(producer);
    return ok;
}

/* ---- indexing ------------------------------------------------------------------------ */

/* Makes rows from the operators' lists of inputs or outputs. */
static Rows rows_forward(const RematInstance *inst, bool outputs)
{
    int32_t n = inst->nops + inst->nfetch;
    Rows r = {RM_NEW(int32_t, n + 1), NULL};
    for (int32_t i = 0; i < n; i++)
        r.first[i + 1] = r.first[i] + (outputs ? inst->ops[i].nout : inst->ops[i].nin);
    r.at = RM_NEW(int32_t, r.first[n]);
    for (int32_t i = 0; i < n; i++) {
        const int32_t *list = outputs ? inst->ops[i].out : inst->ops[i].in;
        for (int32_t k = r.first[i]; k < r.first[i + 1]; k++)
            r.at[k] = list[k - r.first[i]];
    }
    return r;
}

/* Inverts the (op, target) pairs: row t of n has the ops that name target t. */
static Rows rows_backward(const RematInstance *inst, int32_t n, bool barriers)
{
    Rows r = {RM_NEW(int32_t, n + 2), NULL};
    for (int32_t i = 0; i < inst->nops; i++) {
        const RematOp *o = &inst->ops[i];
        for (int32_t k = 0; k < (barriers ? o->nbarrier : o->nin); k++)
            r.first[(barriers ? o->barrier : o->in)[k] + 2]++;
    }
    for (int32_t i = 0; i < n; i++)
        r.first[i + 2] += r.first[i + 1];
    r.at = RM_NEW(int32_t, r.first[n + 1]);
    for (int32_t i = 0; i < inst->nops; i++) {
        const RematOp *o = &inst->ops[i];
        for (int32_t k = 0; k < (barriers ? o->nbarrier : o->nin); k++)
            r.at[r.first[(barriers ? o->barrier : o->in)[k] + 1]++] = i;
    }
    return r;
}

static void index_ops(Problem *p)
{
    for (int32_t i = 0; i < p->nops; i++) {
        const RematOp *o = &p->inst->ops[i];
        p->cost[i] = o->cost;
        p->min_ws[i] = o->workspace;
        for (int32_t k = 0; k < o->nalt; k++) {
            if (o->alt[k].cost < p->cost[i]) {
                p->cost[i] = o->alt[k].cost;
                p->cheapest[i] = (uint8_t)(k + 1);
            }
            p->min_ws[i] = o->alt[k].workspace < p->min_ws[i] ? o->alt[k].workspace : p->min_ws[i];
        }
        p->base_cost += p->cost[i];
        p->any_alt |= o->nalt > 0;
        p->any_inplace |= o->ninplace > 0;
        p->any_barrier |= o->nbarrier > 0;
        for (int32_t k = 0; k < o->nout; k++)
            p->producer[o->out[k]] = i;
        p->redo[i] = p->cost[i];
        p->origin[i] = i;
        p->fetch[i] = -1;
    }
    for (int32_t i = p->nops; i < p->nall; i++) {
        int32_t of = p->origin[i] = p->inst->ops[i].fetch_of;
        p->cost[i] = p->inst->ops[i].cost;
        p->redo[of] = p->cost[i] < p->cost[of] ? p->cost[i] : p->cost[of];
        p->fetch[of] = i;
    }
    for (int32_t v = 0; v < p->nvals; v++)
        p->bytes[v] = p->inst->values[v].bytes;
}

bool problem_init(Problem *p, const RematInstance *inst, char err[REMAT_ERR])
{
    if (!remat_check(inst, err))
        return false;
    *p = (Problem){.inst = inst, .nops = inst->nops, .nvals = inst->nvalues,
                   .nall = inst->nops + inst->nfetch};
    p->origin = RM_NEW(int32_t, p->nall);
    p->fetch = RM_NEW(int32_t, p->nops);
    p->producer = RM_NEW(int32_t, p->nvals);
    p->bytes = RM_NEW(int64_t, p->nvals);
    p->cost = RM_NEW(int64_t, p->nall);
    p->redo = RM_NEW(int64_t, p->nops);
    p->min_ws = RM_NEW(int64_t, p->nall);
    p->cheapest = RM_NEW(uint8_t, p->nall);
    p->in = rows_forward(inst, false);
    p->out = rows_forward(inst, true);
    p->readers = rows_backward(inst, p->nvals, false);
    p->barred_by = rows_backward(inst, p->nall, true);
    index_ops(p);
    return true;
}

void problem_free(Problem *p)
{
    MEM_FREE(p->origin, p->fetch, p->producer, p->bytes, p->cost, p->redo, p->min_ws, p->cheapest,
             p->in.first, p->in.at, p->out.first, p->out.at, p->readers.first, p->readers.at,
             p->barred_by.first, p->barred_by.at);
}

void seq_push(Seq *s, int32_t op)
{
    if (s->n == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 64;
        s->op = mem_grow(s->op, (size_t)s->cap, sizeof *s->op);
    }
    s->op[s->n++] = op;
}

void seq_copy(Seq *to, const Seq *from)
{
    if (to->cap < from->n) {
        to->cap = from->n;
        to->op = mem_grow(to->op, (size_t)to->cap, sizeof *to->op);
    }
    if (from->n)
        memcpy(to->op, from->op, sizeof *to->op * (size_t)from->n);
    to->n = from->n;
}

void seq_free(Seq *s)
{
    free(s->op);
    *s = (Seq){0};
}
