/* hoist.c -- moves executions whose results are copied out to as early as possible.
 *
 * The search does not care when an update runs, as long as no step gets too many bytes: it leaves many to the
 * end, where the copies of their states would overlap with nothing. An execution whose results only
 * copies out read is moved to where the last of its operands is made, together with executions whose results
 * nothing else reads. Each of these moves is O(the reads of a schedule). */
#include "remat_int.h"

#include <stdlib.h>
#include <string.h>

enum {
    MEMBERS = 32,     /* most executions that move together */
    LITTLE = 1 << 16, /* 1 / LITTLE of the largest step's bytes is little */
};

typedef struct {
    const RematInstance *inst;
    int32_t *seq, n;
    uint8_t *alt;
    int64_t *bytes, most;  /* bytes per step; of the largest step */
    int32_t *first, *made; /* reads of k: [first[k], first[k + 1]); per read: the execution it reads from */
    int32_t *latest;       /* per value: the latest execution that made it */
    int32_t member[MEMBERS], nmember;
} Hoist;

static const RematOp *run(const Hoist *h, int32_t k) { return &h->inst->ops[h->seq[k]]; }

static void trace(Hoist *h)
{
    for (int32_t k = 0, at = 0; k < h->n; k++) {
        const RematOp *op = run(h, k);
        h->first[k] = at;
        for (int32_t i = 0; i < op->nin; i++)
            h->made[at++] = h->latest[op->in[i]];
        for (int32_t i = 0; i < op->nout; i++)
            h->latest[op->out[i]] = k;
        h->first[k + 1] = at;
    }
}

static bool is_member(const Hoist *h, int32_t k)
{
    bool is = false;
    for (int32_t i = 0; i < h->nmember && !is; i++)
        is = h->member[i] == k;
    return is;
}

/* May execution k move with the members: only they read its outputs, or these are so small that they may be
 * resident for longer? */
static bool may_join(const Hoist *h, int32_t k)
{
    const RematOp *op = run(h, k);
    bool may = h->nmember < MEMBERS && h->seq[k] < h->inst->nops;
    if (rm_output_bytes(h->inst, op) <= h->most / LITTLE && op->lane == REMAT_KERNEL)
        return may;
    for (int32_t i = 0; i < op->nout && may; i++)
        may = !h->inst->values[op->out[i]].keep_to_end;
    for (int32_t r = k + 1; r < h->n && may; r++)
        for (int32_t i = h->first[r]; i < h->first[r + 1] && may; i++)
            may = h->made[i] != k || is_member(h, r);
    return may;
}

/* Makes the copies out of k's outputs the members; false: there are none, or k may not join them. */
static bool begin_with(Hoist *h, int32_t k)
{
    h->nmember = 0;
    for (int32_t r = k + 1; r < h->n; r++)
        for (int32_t i = h->first[r]; i < h->first[r + 1]; i++)
            if (h->made[i] == k && h->nmember < MEMBERS && run(h, r)->lane == REMAT_OUT)
                h->member[h->nmember++] = r;
    return h->nmember > 0 && may_join(h, k);
}

/* The last execution, no member itself, whose outputs the members read; -1: none. */
static int32_t last_operand(const Hoist *h)
{
    int32_t last = -1;
    for (int32_t m = 0; m < h->nmember; m++)
        for (int32_t i = h->first[h->member[m]]; i < h->first[h->member[m] + 1]; i++)
            if (h->made[i] > last && !is_member(h, h->made[i]))
                last = h->made[i];
    return last;
}

/* The last execution of an operator that must not run behind a member; -1: none. */
static int32_t last_barred(const Hoist *h)
{
    int32_t last = -1;
    for (int32_t m = 0; m < h->nmember; m++) {
        const RematOp *op = run(h, h->member[m]);
        for (int32_t b = 0; b < op->nbarrier; b++)
            for (int32_t k = h->n - 1; k > last; k--)
                last = h->seq[k] == op->barrier[b] && !is_member(h, k) ? k : last;
    }
    return last;
}

/* Moves the members, in their order, behind step `to`. */
static void put_behind(Hoist *h, int32_t to)
{
    int32_t *seq = RM_NEW(int32_t, h->n + 1), n = 0;
    uint8_t *alt = RM_NEW(uint8_t, h->n + 1);
    for (int part = 0; part < 3; part++)
        for (int32_t k = part == 2 ? to + 1 : 0; k < (part == 0 ? to + 1 : h->n); k++)
            if (is_member(h, k) == (part == 1)) {
                seq[n] = h->seq[k];
                alt[n++] = h->alt[k];
            }
    memcpy(h->seq, seq, (size_t)n * sizeof *seq);
    memcpy(h->alt, alt, (size_t)n);
    free(seq);
    free(alt);
}

static int64_t largest(Hoist *h)
{
    char err[REMAT_ERR];
    int64_t most = 0;
    if (!remat_profile(h->inst, h->seq, h->n, h->alt, h->bytes, err))
        return INT64_MAX;
    for (int32_t k = 0; k < h->n; k++)
        most = h->bytes[k] > most ? h->bytes[k] : most;
    return most;
}

/* The first step from `from` on behind which the members fit beside all resident bytes; at most `to`. */
static int32_t find_room(const Hoist *h, int32_t from, int32_t to)
{
    int64_t made = 0, workspace = 0;
    for (int32_t m = 0; m < h->nmember; m++) {
        const RematOp *op = run(h, h->member[m]);
        made += rm_output_bytes(h->inst, op);
        workspace = op->workspace > workspace ? op->workspace : workspace;
    }
    while (from < to &&
           (h->bytes[from] < h->bytes[from + 1] ? h->bytes[from] : h->bytes[from + 1]) + made + workspace >
               h->most)
        from++;
    return from;
}

/* The step behind which the members can go; -1: none that is earlier than their first one's place. */
static int32_t find_place(const Hoist *h)
{
    int32_t last = last_operand(h), barred = last_barred(h), first = h->n;
    for (int32_t m = 0; m < h->nmember; m++)
        first = h->member[m] < first ? h->member[m] : first;
    last = last > barred ? last : barred;
    int32_t to = last >= 0 && last < first ? find_room(h, last, first - 1) : -1;
    return to + 1 < first ? to : -1;
}

/* Adds executions of operands to the members as long as that leads to an earlier place; returns the place, as
 * find_place. */
static int32_t choose_members(Hoist *h)
{
    int32_t to = find_place(h), n = h->nmember, last;
    while ((last = last_operand(h)) >= 0 && last >= last_barred(h) && may_join(h, last)) {
        h->member[h->nmember++] = last;
        int32_t at = find_place(h);
        if (at >= 0 && (to < 0 || at < to)) {
            to = at;
            n = h->nmember;
        }
    }
    h->nmember = n;
    return to;
}

static void hoist(Hoist *h, int32_t k)
{
    if (!begin_with(h, k))
        return;
    h->member[h->nmember++] = k;
    int32_t to = choose_members(h);
    if (to < 0)
        return;
    int32_t *seq = RM_NEW(int32_t, h->n + 1);
    uint8_t *alt = RM_NEW(uint8_t, h->n + 1);
    memcpy(seq, h->seq, (size_t)h->n * sizeof *seq);
    memcpy(alt, h->alt, (size_t)h->n);
    put_behind(h, to);
    if (largest(h) > h->most) {
        memcpy(h->seq, seq, (size_t)h->n * sizeof *seq);
        memcpy(h->alt, alt, (size_t)h->n);
        largest(h);
    }
    trace(h);
    free(seq);
    free(alt);
}

/* Puts each copy of a staged state next to its reader or writer, as the search may have put it anywhere in
 * front of its reader or behind its writer. */
static void put_copies_near(const RematInstance *inst, int32_t *seq, uint8_t *alt, int32_t n)
{
    int32_t *copy = RM_NEW(int32_t, inst->nvalues + 1), *to = RM_NEW(int32_t, n + 1), at = 0;
    uint8_t *choice = RM_NEW(uint8_t, n + 1);
    memset(copy, -1, sizeof *copy * (size_t)inst->nvalues);
    for (int32_t i = 0; i < inst->nops; i++)
        if (inst->ops[i].staged > 0)
            copy[inst->ops[i].lane == REMAT_IN ? inst->ops[i].out[0] : inst->ops[i].in[0]] = i;
    for (int32_t k = 0; k < n; k++) {
        const RematOp *op = &inst->ops[seq[k]];
        if (op->staged > 0)
            continue;
        for (int32_t i = 0; i < op->nin; i++)
            if (copy[op->in[i]] >= 0)
                to[at++] = copy[op->in[i]];
        choice[at] = alt[k];
        to[at++] = seq[k];
        for (int32_t i = 0; i < op->nout; i++)
            if (copy[op->out[i]] >= 0)
                to[at++] = copy[op->out[i]];
    }
    memcpy(seq, to, (size_t)n * sizeof *seq);
    memcpy(alt, choice, (size_t)n);
    MEM_FREE(copy, to, choice);
}

void rm_hoist(const RematInstance *inst, int32_t *seq, uint8_t *alt, int32_t n)
{
    size_t reads = 0;
    for (int32_t k = 0; k < n; k++)
        reads += (size_t)inst->ops[seq[k]].nin;
    Hoist h = {.inst = inst,
               .seq = seq,
               .n = n,
               .alt = alt,
               .bytes = RM_NEW(int64_t, n + 1),
               .first = RM_NEW(int32_t, n + 2),
               .made = RM_NEW(int32_t, reads + 1),
               .latest = RM_NEW(int32_t, inst->nvalues + 1)};
    bool *feeds = RM_NEW(bool, inst->nvalues + 1); /* values that copies out read */
    for (int32_t i = 0; i < inst->nops; i++)
        if (inst->ops[i].lane == REMAT_OUT)
            feeds[inst->ops[i].in[0]] = true;
    put_copies_near(inst, seq, alt, n);
    h.most = largest(&h);
    trace(&h);
    for (int32_t k = 0; k < n; k++) {
        bool wanted = false;
        for (int32_t i = 0; i < run(&h, k)->nout; i++)
            wanted |= feeds[run(&h, k)->out[i]];
        if (wanted)
            hoist(&h, k);
    }
    put_copies_near(inst, seq, alt, n); /* an update may have gone between another one and its copies */
    MEM_FREE(feeds, h.bytes, h.first, h.made, h.latest);
}
