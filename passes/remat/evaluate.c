/* evaluate.c -- the meaning of a schedule: a plain simulation that the search does not
 * share.
 *
 * One forward sweep finds for every execution the copies it reads and thereby the last
 * reader of each copy; a second sweep adds the bytes of every copy over its steps [made,
 * last reader]. O(executions x degree). */
#include "remat_int.h"

#include <stdlib.h>
#include <string.h>

/* Copies are numbered in the order they are made: execution i makes copies first[i] ..
 * first[i+1]-1. */
typedef struct {
    int32_t n;
    int32_t *first;  /* n + 1 */
    int32_t *last;   /* per copy: step of its last reader, or the step that made it */
    int32_t *latest; /* per value: its newest copy, -1 = none */
} Copies;

static void copies_free(Copies *c) { MEM_FREE(c->first, c->last, c->latest); }

/* The use of the link and of the host's memory by the fetches so far. */
typedef struct {
    int64_t link, host;
    uint8_t *away; /* per operator: it was fetched */
} Fetched;

static bool check_fetch(const RematInstance *inst, int32_t step, const RematOp *o, const uint8_t *ran,
                        Fetched *f, char err[REMAT_ERR])
{
    if (!ran[o->fetch_of])
        return rm_fail(err, "step %d: operator %d is fetched before it runs", step, o->fetch_of);
    if (o->link > inst->link - f->link)
        return rm_fail(err, "step %d: the fetches take more than the link has", step);
    if (!f->away[o->fetch_of] && !rm_host_has(inst, f->host, o))
        return rm_fail(err, "step %d: what is fetched takes more than the host has", step);
    f->link += o->link;
    f->host += f->away[o->fetch_of] ? 0 : rm_output_bytes(inst, o);
    f->away[o->fetch_of] = 1;
    return true;
}

static bool check_step(const RematInstance *inst, int32_t step, int32_t op, uint8_t *ran,
                       uint8_t *barred, Fetched *f, char err[REMAT_ERR])
{
    if (op < 0 || op >= inst->nops + inst->nfetch)
        return rm_fail(err, "step %d: operator %d is unknown", step, op);
    const RematOp *o = &inst->ops[op];
    if (op >= inst->nops)
        return check_fetch(inst, step, o, ran, f, err);
    if (o->once && ran[op])
        return rm_fail(err, "step %d: operator %d must not run again", step, op);
    if (barred[op])
        return rm_fail(err, "step %d: operator %d runs behind its barrier", step, op);
    ran[op] = 1;
    for (int32_t k = 0; k < o->nbarrier; k++)
        barred[o->barrier[k]] = 1;
    return true;
}

static bool trace_step(const RematInstance *inst, Copies *c, int32_t step, int32_t op, char err[REMAT_ERR])
{
    const RematOp *o = &inst->ops[op];
    for (int32_t k = 0; k < o->nin; k++) {
        int32_t copy = c->latest[o->in[k]];
        if (copy < 0)
            return rm_fail(err, "step %d: operator %d reads value %d, which is not there",
                           step, op, o->in[k]);
        c->last[copy] = step;
    }
    c->first[step + 1] = c->first[step] + o->nout;
    for (int32_t k = 0; k < o->nout; k++) {
        c->latest[o->out[k]] = c->first[step] + k;
        c->last[c->first[step] + k] = step;
    }
    return true;
}

/* Fills c; false with the reason when seq is no schedule. */
static bool trace(const RematInstance *inst, const int32_t *seq, int32_t n, Copies *c, char err[REMAT_ERR])
{
    uint8_t *ran = RM_NEW(uint8_t, inst->nops), *barred = RM_NEW(uint8_t, inst->nops);
    int64_t total = 0;
    Fetched f = {.away = RM_NEW(uint8_t, inst->nops)};
    for (int32_t i = 0; i < n; i++)
        total += seq[i] >= 0 && seq[i] < inst->nops + inst->nfetch ? inst->ops[seq[i]].nout : 0;
    *c = (Copies){n, RM_NEW(int32_t, n + 1), RM_NEW(int32_t, total), RM_NEW(int32_t, inst->nvalues)};
    memset(c->latest, -1, sizeof *c->latest * (size_t)inst->nvalues);
    bool ok = true;
    for (int32_t i = 0; i < n && ok; i++)
        ok = check_step(inst, i, seq[i], ran, barred, &f, err) && trace_step(inst, c, i, seq[i], err);
    for (int32_t i = 0; i < inst->nops && ok; i++)
        if (!ran[i])
            ok = rm_fail(err, "operator %d never runs", i);
    for (int32_t v = 0; v < inst->nvalues && ok; v++)
        if (inst->values[v].keep_to_end)
            c->last[c->latest[v]] = n;
    MEM_FREE(f.away, ran, barred);
    return ok;
}

/* Bytes saved by taking over buffers whose last reader is this step; pairs are tried in
 * order. */
static int64_t inplace_saving(const RematInstance *inst, const RematOp *o,
                              const int32_t *input_copy, const int32_t *last, int32_t step)
{
    int64_t saved = 0;
    uint64_t applied = 0;
    for (int32_t k = 0; k < o->ninplace; k++) {
        RematInPlace a = o->inplace[k];
        if (last[input_copy[a.in]] != step || !inplace_free(o, k, applied))
            continue;
        int64_t in = inst->values[o->in[a.in]].bytes, out = inst->values[o->out[a.out]].bytes;
        saved += in < out ? in : out;
        applied |= (uint64_t)1 << k;
    }
    return saved;
}

/* Bytes of every step without workspace: sweep once more, now that the last readers are
 * known. */
static void sweep(const RematInstance *inst, const int32_t *seq, const Copies *c, int64_t *bytes)
{
    int64_t *ends = RM_NEW(int64_t, c->n + 2);
    int32_t cap = 0;
    int32_t *input_copy = NULL;
    int64_t level = inst->persistent;
    memset(c->latest, -1, sizeof *c->latest * (size_t)inst->nvalues);
    for (int32_t i = 0; i < c->n; i++) {
        const RematOp *o = &inst->ops[seq[i]];
        if (o->nin > cap)
            input_copy = mem_grow(input_copy, (size_t)(cap = o->nin), sizeof *input_copy);
        for (int32_t k = 0; k < o->nin; k++)
            input_copy[k] = c->latest[o->in[k]];
        level -= ends[i];
        for (int32_t k = 0; k < o->nout; k++) {
            int32_t copy = c->first[i] + k;
            c->latest[o->out[k]] = copy;
            level += inst->values[o->out[k]].bytes;
            ends[c->last[copy] + 1] += inst->values[o->out[k]].bytes;
        }
        bytes[i] = level - (o->ninplace ? inplace_saving(inst, o, input_copy, c->last, i) : 0);
    }
    free(ends);
    free(input_copy);
}

static bool choice(const RematOp *o, int32_t k, RematAlt *alt)
{
    if (k > o->nalt)
        return false;
    *alt = k ? o->alt[k - 1] : (RematAlt){o->cost, o->workspace};
    return true;
}

bool remat_profile(const RematInstance *inst, const int32_t *seq, int32_t n,
                   const uint8_t *alt, int64_t *step_bytes, char err[REMAT_ERR])
{
    Copies c;
    bool ok = trace(inst, seq, n, &c, err);
    if (ok)
        sweep(inst, seq, &c, step_bytes);
    for (int32_t i = 0; i < n && ok; i++) {
        RematAlt a;
        ok = choice(&inst->ops[seq[i]], alt ? alt[i] : 0, &a) ||
             rm_fail(err, "step %d: operator %d has no kernel %d", i, seq[i], alt[i]);
        step_bytes[i] += ok ? a.workspace : 0;
    }
    copies_free(&c);
    return ok;
}

bool remat_evaluate(const RematInstance *inst, const int32_t *seq, int32_t n,
                    const uint8_t *alt, int64_t *cost, int64_t *peak, char err[REMAT_ERR])
{
    int64_t *bytes = RM_NEW(int64_t, n);
    bool ok = remat_profile(inst, seq, n, alt, bytes, err);
    *cost = 0;
    *peak = inst->persistent;
    for (int32_t i = 0; i < n && ok; i++) {
        RematAlt a = {0, 0};
        choice(&inst->ops[seq[i]], alt ? alt[i] : 0, &a);
        if (__builtin_add_overflow(*cost, a.cost, cost))
            ok = rm_fail(err, "step %d: the cost does not fit 64 bits", i);
        *peak = bytes[i] > *peak ? bytes[i] : *peak;
    }
    free(bytes);
    return ok;
}

int64_t remat_input_peak(const RematInstance *inst)
{
    int32_t *seq = RM_NEW(int32_t, inst->nops);
    int64_t cost = 0, peak = 0;
    char err[REMAT_ERR];
    for (int32_t i = 0; i < inst->nops; i++)
        seq[i] = i;
    remat_evaluate(inst, seq, inst->nops, NULL, &cost, &peak, err);
    free(seq);
    return peak;
}

int64_t remat_base_cost(const RematInstance *inst)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < inst->nops; i++) {
        int64_t least = inst->ops[i].cost;
        for (int32_t k = 0; k < inst->ops[i].nalt; k++)
            least = inst->ops[i].alt[k].cost < least ? inst->ops[i].alt[k].cost : least;
        sum += least;
    }
    return sum;
}

int32_t rm_best_kernel(const RematOp *o, int64_t free_bytes)
{
    int32_t best = 0;
    RematAlt b = {o->cost, o->workspace}, a;
    for (int32_t k = 1; choice(o, k, &a); k++) {
        bool fits = a.workspace <= free_bytes, best_fits = b.workspace <= free_bytes;
        bool better = fits != best_fits ? fits
                      : fits            ? a.cost < b.cost
                                        : a.workspace < b.workspace;
        if (better) {
            best = k;
            b = a;
        }
    }
    return best;
}

bool seq_account(const Problem *p, const Seq *s, int64_t budget, uint8_t *alt, int64_t *cost, int64_t *peak)
{
    char err[REMAT_ERR];
    Copies c;
    int64_t *bytes = RM_NEW(int64_t, s->n);
    *cost = 0;
    *peak = p->inst->persistent;
    if (!trace(p->inst, s->op, s->n, &c, err)) {
        fprintf(stderr, "remat: the search made a bad schedule: %s\n", err);
        abort();
    }
    sweep(p->inst, s->op, &c, bytes);
    for (int32_t i = 0; i < s->n && *cost <= RM_SUM; i++) {
        const RematOp *o = &p->inst->ops[s->op[i]];
        RematAlt a = {0, 0};
        int32_t k = rm_best_kernel(o, budget - bytes[i]);
        choice(o, k, &a);
        *cost += a.cost;
        *peak = bytes[i] + a.workspace > *peak ? bytes[i] + a.workspace : *peak;
        if (alt)
            alt[i] = (uint8_t)k;
    }
    copies_free(&c);
    free(bytes);
    return *cost <= RM_SUM;
}
