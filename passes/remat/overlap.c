/* overlap.c -- overlaps copies with kernels: a copy in begins earlier by the time it takes, and a value that
 * is copied out is held longer by that time, as far as no step gets more bytes than the largest step has.
 * Staged states have room of their own, half of it for each direction; or what their step leaves of the
 * largest step's bytes, if operators then wait less than half as long.
 *
 * The search places a copy in directly in front of its reader, a copy out directly behind its writer, and
 * counts the bytes of an offloaded value as free when nothing reads them: kernels would wait for every copy.
 * Each direction is a lane in which copies run one behind the other. Copies in are placed from the last to
 * the first: each is to end when its reader runs and before the next begins. Copies out are placed from the
 * first to the last: each begins as soon as it can. O(executions + the sum of the distances). */
#include "remat_int.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    const RematInstance *inst;
    int32_t *seq, n;
    uint8_t *alt;
    int64_t *bytes, *staged, *start; /* per step; start: when its kernel begins, without waits */
    int64_t most, room;              /* most bytes, and most staged bytes, that a step may have */
    bool stages;                     /* is anything staged? */
    int64_t peak; /* not 0: staged bytes are limited by what a step leaves of the peak, not by room */
} Overlap;

static int32_t origin(const Overlap *o, int32_t op)
{
    return op < o->inst->nops ? op : o->inst->ops[op].fetch_of;
}

static bool comes_in(const Overlap *o, int32_t op)
{
    return op >= o->inst->nops || o->inst->ops[op].lane == REMAT_IN;
}

static bool goes_out(const Overlap *o, int32_t op) { return o->inst->ops[op].lane == REMAT_OUT; }

static bool reads(const RematOp *o, int32_t value)
{
    for (int32_t k = 0; k < o->nin; k++)
        if (o->in[k] == value)
            return true;
    return false;
}

/* May a result of op take over the buffer of this value? */
static bool takes_over(const Overlap *o, int32_t op, int32_t value)
{
    const RematOp *run = &o->inst->ops[op];
    for (int32_t k = 0; k < run->ninplace; k++)
        if (run->in[run->inplace[k].in] == value)
            return true;
    return false;
}

/* Does op read or make the values that the copy makes? */
static bool meets(const Overlap *o, int32_t op, int32_t fetch)
{
    bool met = origin(o, op) == origin(o, fetch);
    for (int32_t k = 0; k < o->inst->ops[fetch].nout && !met; k++)
        met = reads(&o->inst->ops[op], o->inst->ops[fetch].out[k]);
    return met;
}

static void measure(Overlap *o)
{
    char err[REMAT_ERR];
    int64_t staged = 0;
    remat_profile(o->inst, o->seq, o->n, o->alt, o->bytes, err);
    for (int32_t k = 0; k < o->n; k++) {
        const RematOp *op = &o->inst->ops[o->seq[k]];
        int64_t cost = o->alt && o->alt[k] ? op->alt[o->alt[k] - 1].cost : op->cost;
        o->start[k + 1] = o->start[k] + cost;
        o->most = o->bytes[k] > o->most ? o->bytes[k] : o->most;
        staged += comes_in(o, o->seq[k]) ? op->staged : 0;
        o->stages |= op->staged > 0;
        o->staged[k] = staged;
        staged -= goes_out(o, o->seq[k]) ? op->staged : 0;
    }
}

/* May step k have so many more bytes and staged bytes?  These may take 1 / part of their room. */
static bool has_room(const Overlap *o, int32_t k, int64_t bytes, int64_t staged, int32_t part)
{
    int64_t now = o->bytes[k] + bytes, room = o->peak ? o->peak - now : o->room;
    return now <= o->most && (!o->peak || now + o->staged[k] + staged <= o->peak) &&
           (staged == 0 || o->staged[k] + staged <= room / part);
}

/* ---- in --------------------------------------------------------------------------------- */

/* Moves the execution at `from` to the earlier place `to`; its copies are resident from there on. */
static void put_before(Overlap *o, bool *done, int32_t from, int32_t to, int64_t bytes)
{
    int32_t op = o->seq[from];
    int64_t staged = o->inst->ops[op].staged, level = from > to ? o->staged[to] + staged : o->staged[to];
    uint8_t alt = o->alt[from];
    size_t n = (size_t)(from - to);
    int64_t here = from > to ? o->bytes[to] + bytes : o->bytes[to];
    for (int32_t k = from; k > to; k--) {
        o->bytes[k] = o->bytes[k - 1] + bytes;
        o->staged[k] = o->staged[k - 1] + staged;
        o->start[k] = o->start[k - 1];
    }
    memmove(o->seq + to + 1, o->seq + to, n * sizeof *o->seq);
    memmove(o->alt + to + 1, o->alt + to, n);
    memmove(done + to + 1, done + to, n * sizeof *done);
    o->seq[to] = op;
    o->alt[to] = alt;
    o->bytes[to] = here;
    o->staged[to] = level;
    done[to] = true;
}

static void advance_copies(Overlap *o)
{
    bool *done = RM_NEW(bool, o->n + 1);
    int64_t next = INT64_MAX; /* when the next copy in the lane begins */
    for (int32_t at = o->n - 1; at >= 0; at -= !comes_in(o, o->seq[at]) || done[at]) {
        if (!comes_in(o, o->seq[at]) || done[at])
            continue;
        const RematOp *op = &o->inst->ops[o->seq[at]];
        int64_t bytes = rm_output_bytes(o->inst, op), staged = op->staged;
        int64_t end = o->start[at] < next ? o->start[at] : next;
        int64_t begin = end - op->link;
        int32_t to = at;
        while (to > 0 && o->start[to] > begin && !meets(o, o->seq[to - 1], o->seq[at]) &&
               has_room(o, to - 1, bytes, staged, 2))
            to--;
        next = o->start[to] > begin ? o->start[to] : begin;
        put_before(o, done, at, to, bytes);
    }
    free(done);
}

/* ---- out ----------------------------------------------------------------------------- */

/* Moves the execution at `from` to the later place `to`; the state it copies stays staged until then. */
static void put_behind(Overlap *o, int32_t from, int32_t to)
{
    int32_t op = o->seq[from];
    int64_t staged = o->inst->ops[op].staged;
    uint8_t alt = o->alt[from];
    size_t n = (size_t)(to - from);
    for (int32_t k = from; k < to; k++) {
        o->bytes[k] = o->bytes[k + 1];
        o->staged[k] = o->staged[k + 1] + staged;
        o->start[k] = o->start[k + 1];
    }
    memmove(o->seq + from, o->seq + from + 1, n * sizeof *o->seq);
    memmove(o->alt + from, o->alt + from + 1, n);
    o->seq[to] = op;
    o->alt[to] = alt;
}

/* Delays the copies out of states, which are operators, to where their lane has time for them. */
static void delay_copies(Overlap *o)
{
    bool *done = RM_NEW(bool, o->inst->nops + 1);
    int64_t lane = 0;
    for (int32_t at = 0; at < o->n; at++) {
        int32_t op = o->seq[at], to = at;
        if (op >= o->inst->nops || !goes_out(o, op) || done[op])
            continue;
        lane = (lane > o->start[at] ? lane : o->start[at]) + o->inst->ops[op].link;
        while (to + 1 < o->n && o->start[to + 1] < lane &&
               has_room(o, to + 1, 0, o->inst->ops[op].staged, 1))
            to++;
        done[op] = true;
        if (to > at)
            put_behind(o, at--, to);
    }
    free(done);
}

static void find_fetched(const Overlap *o, bool *fetched)
{
    for (int32_t k = 0; k < o->n; k++)
        if (o->seq[k] >= o->inst->nops)
            fetched[origin(o, o->seq[k])] = true;
}

/* Fills until: per output of the run at k, its last reader. Returns the next run of the operator or its
 * fetch, or n; readers from there on read other copies. */
static int32_t behind(const Overlap *o, int32_t k, int64_t *until)
{
    int32_t end = k + 1;
    for (; end < o->n && origin(o, o->seq[end]) != o->seq[k]; end++)
        for (int32_t i = 0; i < o->inst->ops[o->seq[k]].nout; i++)
            if (reads(&o->inst->ops[o->seq[end]], o->inst->ops[o->seq[k]].out[i]))
                until[i] = end;
    return end;
}

/* The last step that holds the outputs of the run at k for their copy out, which ends at *ready. Times are by
 * start[], which has no waits; where there is no room to hold them, *ready becomes that earlier time. */
static int32_t delay_offload(Overlap *o, int32_t k, int64_t *ready)
{
    const RematOp *op = &o->inst->ops[o->seq[k]];
    int64_t *until = RM_NEW(int64_t, op->nout + 1);
    int32_t at = k, end = behind(o, k, until);
    for (; at + 1 < end && o->start[at + 1] < *ready; at++) {
        int64_t more = 0;
        for (int32_t i = 0; i < op->nout; i++) {
            bool over = until[i] == at + 1 && takes_over(o, o->seq[at + 1], op->out[i]);
            more += over || until[i] < at + 1 ? o->inst->values[op->out[i]].bytes : 0;
        }
        if (!has_room(o, at + 1, more, 0, 1)) {
            *ready = o->start[at + 1];
            break;
        }
        o->bytes[at + 1] += more;
    }
    free(until);
    return at;
}

/* Fills offload, as in remat_overlap. link: per operator, the time to copy its outputs. */
static void delay_offloads(Overlap *o, int32_t *offload, const int64_t *link)
{
    bool *fetched = RM_NEW(bool, o->inst->nops + 1), *ran = RM_NEW(bool, o->inst->nops + 1);
    int64_t lane = 0;
    find_fetched(o, fetched);
    for (int32_t k = 0; k < o->n; k++) {
        int32_t op = o->seq[k];
        offload[k] = -1;
        if (goes_out(o, op))
            lane = (lane > o->start[k] ? lane : o->start[k]) + o->inst->ops[op].link;
        if (op >= o->inst->nops || !fetched[op] || ran[op])
            continue;
        ran[op] = true;
        lane = (lane > o->start[k + 1] ? lane : o->start[k + 1]) + link[op];
        offload[k] = delay_offload(o, k, &lane);
    }
    free(fetched);
    free(ran);
}

/* ---- time -------------------------------------------------------------------------------- */

static int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }

typedef struct {
    int64_t now, out, in; /* times when the last kernel, copy out and copy in ended */
    int64_t left;         /* time when all bytes given up so far are free */
    int64_t *ready, *away; /* per value: when it is complete; per operator: the end of its offload */
    int64_t *leaves;       /* per execution: when the bytes are free that are given up in front of it */
} Lanes;

static void run_in(Lanes *l, const RematOp *op, int64_t away)
{
    l->in = later(later(l->in, l->now), later(l->left, away)) + op->link;
    for (int32_t i = 0; i < op->nout; i++)
        l->ready[op->out[i]] = l->in;
}

/* Runs a copy out; the bytes that it reads are free when it has ended. */
static void run_out(Lanes *l, const RematOp *op, int32_t k)
{
    l->out = later(l->out, l->ready[op->in[0]]) + op->link;
    l->leaves[k + 1] = later(l->leaves[k + 1], l->out);
}

static void run_operator(const Overlap *o, Lanes *l, int32_t k, int32_t offload, int64_t link)
{
    const RematOp *op = &o->inst->ops[o->seq[k]];
    l->now = later(l->now, l->left);
    for (int32_t i = 0; i < op->nin; i++)
        l->now = later(l->now, l->ready[op->in[i]]);
    for (int32_t i = 0; i < op->nout; i++)
        l->ready[op->out[i]] = l->now + o->start[k + 1] - o->start[k];
    if (offload < 0)
        return;
    l->away[o->seq[k]] = l->out = later(l->out, l->now + o->start[k + 1] - o->start[k]) + link;
    l->leaves[offload + 1] = later(l->leaves[offload + 1], l->out);
}

/* How long operators wait if each lane runs its copies or kernels in order. */
static int64_t waits(const Overlap *o, const int32_t *offload, const int64_t *link)
{
    Lanes l = {.ready = RM_NEW(int64_t, o->inst->nvalues + 1), .away = RM_NEW(int64_t, o->inst->nops + 1),
               .leaves = RM_NEW(int64_t, o->n + 2)};
    for (int32_t k = 0; k < o->n; k++) {
        l.left = later(l.left, l.leaves[k]);
        const RematOp *op = &o->inst->ops[o->seq[k]];
        if (comes_in(o, o->seq[k]))
            run_in(&l, op, o->seq[k] < o->inst->nops ? 0 : l.away[op->fetch_of]);
        else if (goes_out(o, o->seq[k]))
            run_out(&l, op, k);
        else
            run_operator(o, &l, k, offload[k], link[o->seq[k]]);
        l.now += o->start[k + 1] - o->start[k];
    }
    MEM_FREE(l.ready, l.away, l.leaves);
    return l.now - (o->start[o->n] - o->start[0]);
}

/* Places all copies to be in time; returns how long operators still wait for them. */
static int64_t place_copies(Overlap *o, int32_t *offload)
{
    int64_t *link = RM_NEW(int64_t, o->inst->nops + 1);
    for (int32_t k = o->inst->nops; k < o->inst->nops + o->inst->nfetch; k++)
        link[o->inst->ops[k].fetch_of] = o->inst->ops[k].link;
    o->most = 0;
    measure(o);
    advance_copies(o);
    measure(o);
    delay_copies(o);
    measure(o);
    delay_offloads(o, offload, link);
    int64_t late = waits(o, offload, link);
    free(link);
    return late;
}

/* The bytes of the largest step, staged bytes included. */
static int64_t largest(const Overlap *o)
{
    int64_t most = 0;
    for (int32_t k = 0; k < o->n; k++)
        most = o->bytes[k] + o->staged[k] > most ? o->bytes[k] + o->staged[k] : most;
    return most;
}

/* Copies in that use the bytes that steps leave may keep others back: that is used only if much better. */
int64_t remat_overlap(const RematInstance *inst, int32_t *seq, uint8_t *alt, int32_t n, int64_t room,
                      int32_t *offload)
{
    Overlap o = {.inst = inst, .seq = seq, .n = n, .alt = alt, .room = room};
    size_t ops = (size_t)n * sizeof *seq, kernels = (size_t)n;
    int32_t *hoisted = RM_NEW(int32_t, n + 1), *other = RM_NEW(int32_t, n + 1);
    uint8_t *with = RM_NEW(uint8_t, n + 1);
    o.bytes = RM_NEW(int64_t, n + 1);
    o.staged = RM_NEW(int64_t, n + 1);
    o.start = RM_NEW(int64_t, n + 1);
    rm_hoist(inst, seq, alt, n);
    memcpy(hoisted, seq, ops);
    memcpy(with, alt, kernels);
    int64_t late = place_copies(&o, offload);
    if (late > 0 && o.stages) {
        o.seq = hoisted;
        o.alt = with;
        o.peak = largest(&o);
        int64_t spared = place_copies(&o, other);
        if (spared < late / 2) { /* by half, as waits() does not know which copy waits for whose bytes */
            late = spared;
            memcpy(seq, hoisted, ops);
            memcpy(alt, with, kernels);
            memcpy(offload, other, ops);
        }
    }
    MEM_FREE(o.bytes, o.staged, o.start, hoisted, other, with);
    return late;
}
