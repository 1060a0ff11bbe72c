/* repack.c -- the same executions in an order that has fewer bytes resident beside the peak.
 *
 * A schedule of the search may be nearly as full at many steps as at its peak: cost and peak do not
 * mind, but offsets in one arena are hard to find for it. This pass drags single executions to
 * earlier or later places where fewer bytes stay resident, without raising the peak. Every
 * execution reads the copies it read before, so that costs stay as they are.
 *
 * The price of an order is the sum over its steps of the resident bytes to the eighth power, so
 * that nearly full steps count most. A drag is a row of exchanges of neighbours, which change the
 * bytes of these two steps only. */
#include "remat_int.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    int64_t bytes;
    int32_t maker;       /* the execution that makes it */
    int32_t first, last; /* places of its maker and last reader; last: n when it stays to the end */
} Copy;

/* Executions are numbered as in the given order. */
typedef struct {
    const RematInstance *inst;
    const int32_t *op; /* per execution: its operator */
    const uint8_t *alt; /* per execution: its kernel choice */
    int32_t n;
    int32_t *order;    /* place -> execution */
    int32_t *in, *out; /* execution e reads read[in[e]] .. read[in[e + 1] - 1], makes copies out[e] .. */
    int32_t *read;     /* numbers of the copies that are read */
    Copy *copy;
    int64_t *resident, *bytes; /* per place: without and with workspace and savings */
    double *price;             /* per place */
    int64_t peak;
} Repack;

/* ---- copies and their lives ------------------------------------------------------------ */

static void make_copies(Repack *s)
{
    int32_t *latest = RM_NEW(int32_t, s->inst->nvalues);
    for (int32_t e = 0; e < s->n; e++) {
        s->in[e + 1] = s->in[e] + s->inst->ops[s->op[e]].nin;
        s->out[e + 1] = s->out[e] + s->inst->ops[s->op[e]].nout;
    }
    s->read = RM_NEW(int32_t, s->in[s->n]);
    s->copy = RM_NEW(Copy, s->out[s->n]);
    for (int32_t e = 0; e < s->n; e++) {
        const RematOp *o = &s->inst->ops[s->op[e]];
        for (int32_t i = 0; i < o->nin; i++) {
            s->read[s->in[e] + i] = latest[o->in[i]];
            s->copy[latest[o->in[i]]].last = e;
        }
        for (int32_t i = 0; i < o->nout; i++) {
            latest[o->out[i]] = s->out[e] + i;
            s->copy[s->out[e] + i] = (Copy){s->inst->values[o->out[i]].bytes, e, e, e};
        }
    }
    for (int32_t v = 0; v < s->inst->nvalues; v++)
        if (s->inst->values[v].keep_to_end)
            s->copy[latest[v]].last = s->n;
    for (int32_t c = 0; c < s->out[s->n]; c++)
        for (int32_t k = s->copy[c].first; k <= s->copy[c].last && k < s->n; k++)
            s->resident[k] += s->copy[c].bytes;
    free(latest);
}

static double price(const Repack *s, int32_t k)
{
    double x = (double)(s->bytes[k] - s->inst->persistent) / (double)(s->peak - s->inst->persistent + 1);
    x *= x;
    x *= x;
    return x * x;
}

/* Updates the bytes of a place, with savings as remat_profile counts them, and its price. */
static void count_bytes(Repack *s, int32_t k)
{
    int32_t e = s->order[k];
    const RematOp *o = &s->inst->ops[s->op[e]];
    uint64_t applied = 0;
    int64_t bytes = s->resident[k] + (s->alt[e] ? o->alt[s->alt[e] - 1].workspace : o->workspace);
    for (int32_t p = 0; p < o->ninplace; p++) {
        RematInPlace a = o->inplace[p];
        const Copy *in = &s->copy[s->read[s->in[e] + a.in]], *out = &s->copy[s->out[e] + a.out];
        if (in->last == k && inplace_free(o, p, applied)) {
            bytes -= in->bytes < out->bytes ? in->bytes : out->bytes;
            applied |= (uint64_t)1 << p;
        }
    }
    s->bytes[k] = bytes;
    s->price[k] = price(s, k);
}

/* ---- exchanging neighbours --------------------------------------------------------------- */

/* The operator of an execution; of a fetch, the operator that it fetches. */
static int32_t origin(const Repack *s, int32_t e)
{
    return s->op[e] < s->inst->nops ? s->op[e] : s->inst->ops[s->op[e]].fetch_of;
}

/* May b, which follows a, run before it without changing the copy that any read takes? */
static bool independent(const Repack *s, int32_t a, int32_t b)
{
    const RematOp *ob = &s->inst->ops[s->op[b]];
    if (origin(s, a) == origin(s, b))
        return false;
    for (int32_t i = s->in[b]; i < s->in[b + 1]; i++)
        if (s->copy[s->read[i]].maker == a)
            return false;
    for (int32_t i = s->in[a]; i < s->in[a + 1]; i++)
        if (origin(s, s->copy[s->read[i]].maker) == origin(s, b))
            return false;
    for (int32_t i = 0; i < ob->nbarrier; i++)
        if (ob->barrier[i] == s->op[a])
            return false;
    return true;
}

static bool reads(const Repack *s, int32_t e, int32_t copy)
{
    for (int32_t i = s->in[e]; i < s->in[e + 1]; i++)
        if (s->read[i] == copy)
            return true;
    return false;
}

/* Exchanges the executions at k and k + 1, and moves the copies that begin or end there: the second does not
 * read copies that end with the first; the first may read copies that end with the second. */
static void exchange(Repack *s, int32_t k)
{
    int32_t a = s->order[k], b = s->order[k + 1];
    for (int32_t i = s->in[b]; i < s->in[b + 1]; i++) {
        Copy *c = &s->copy[s->read[i]];
        if (c->last == k + 1 && !reads(s, a, s->read[i])) {
            c->last = k;
            s->resident[k + 1] -= c->bytes;
        }
    }
    for (int32_t i = s->in[a]; i < s->in[a + 1]; i++) {
        Copy *c = &s->copy[s->read[i]];
        if (c->last == k) {
            c->last = k + 1;
            s->resident[k + 1] += c->bytes;
        }
    }
    for (int32_t i = s->out[b]; i < s->out[b + 1]; i++) {
        Copy *c = &s->copy[i];
        c->first = k;
        s->resident[k] += c->bytes;
        if (c->last == k + 1) {
            c->last = k;
            s->resident[k + 1] -= c->bytes;
        }
    }
    for (int32_t i = s->out[a]; i < s->out[a + 1]; i++) {
        Copy *c = &s->copy[i];
        c->first = k + 1;
        s->resident[k] -= c->bytes;
        if (c->last == k) {
            c->last = k + 1;
            s->resident[k + 1] += c->bytes;
        }
    }
    s->order[k] = b;
    s->order[k + 1] = a;
    count_bytes(s, k);
    count_bytes(s, k + 1);
}

/* ---- the search ---------------------------------------------------------------------------- */

/* Drags the execution at place k by up to `far` places and leaves it where the price is least, the
 * farthest among equals. Returns the exchanges made. */
static int32_t drag(Repack *s, int32_t k, int32_t far, int dir)
{
    double sum = 0, best = 1e-12;
    int32_t went = 0, stay = 0, at = dir > 0 ? k : k - 1;
    while (went < far && at >= 0 && at + 1 < s->n && independent(s, s->order[at], s->order[at + 1])) {
        sum -= s->price[at] + s->price[at + 1];
        exchange(s, at);
        sum += s->price[at] + s->price[at + 1];
        went++;
        at += dir;
        if (s->bytes[at - dir] > s->peak || s->bytes[at - dir + 1] > s->peak)
            break;
        if (sum <= best) {
            best = sum;
            stay = went;
        }
    }
    for (int32_t back = went; back > stay; back--)
        exchange(s, at -= dir);
    return 2 * went - stay + 1;
}

void remat_repack_order(const RematInstance *inst, int32_t *seq, uint8_t *alt, int32_t n, uint64_t seed,
                        int64_t exchanges)
{
    Repack s = {.inst = inst, .op = seq, .alt = alt, .n = n, .order = RM_NEW(int32_t, n),
                .in = RM_NEW(int32_t, n + 1), .out = RM_NEW(int32_t, n + 1),
                .resident = RM_NEW(int64_t, n), .bytes = RM_NEW(int64_t, n),
                .price = RM_NEW(double, n), .peak = inst->persistent};
    Rng rng = {seed};
    for (int32_t k = 0; k < n; k++) {
        s.order[k] = k;
        s.resident[k] = inst->persistent;
    }
    make_copies(&s);
    for (int32_t k = 0; k < n; k++) {
        count_bytes(&s, k);
        s.peak = s.bytes[k] > s.peak ? s.bytes[k] : s.peak;
    }
    for (int32_t k = 0; k < n; k++)
        s.price[k] = price(&s, k);
    while (exchanges > 0 && n > 1) {
        int32_t k = rng_below(&rng, n), far = 1 + rng_below(&rng, rng_below(&rng, 2) ? 8 : n);
        exchanges -= drag(&s, k, far, rng_below(&rng, 2) ? 1 : -1);
    }
    int32_t *op = RM_NEW(int32_t, n);
    uint8_t *kernel = RM_NEW(uint8_t, n);
    for (int32_t k = 0; k < n; k++) {
        op[k] = seq[s.order[k]];
        kernel[k] = alt[s.order[k]];
    }
    memcpy(seq, op, (size_t)n * sizeof *seq);
    memcpy(alt, kernel, (size_t)n);
    MEM_FREE(op, kernel, s.order, s.in, s.out, s.read, s.copy, s.resident, s.bytes, s.price);
}
