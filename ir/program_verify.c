/* program_verify.c -- checks of a Program: its operands, and which launches happen before which.
 *
 * Launches are looked at as they are issued.  For every byte the last write and the last read of each lane
 * are kept (spans.h); an access conflicts with the write and, if it writes, with the reads.  A
 * launch knows of each lane how many of its launches have ended before it begins: those that the one
 * before it in its lane knows of, that one itself, and what those it waits for know. */
#include "program.h"
#include "mem.h"
#include "spans.h"
#include <stdlib.h>
#include <string.h>

_Static_assert((int)LANES <= (int)SPAN_READERS, "each lane reads");

/* Numbers of launches count from 1; 0: none. */
typedef struct {
    const Program *p;
    Spans space[SPACES];
    uint32_t (*known)[LANES]; /* per launch: the last of each lane that has ended before it begins */
    uint32_t last[LANES];     /* the last launch of each lane issued so far */
} Order;

/* ---- conflicts ------------------------------------------------------------------------------- */

static void later(uint32_t *a, uint32_t b) { *a = b > *a ? b : *a; }

/* Raises need[] to the last launch of each lane that conflicts with this access. */
static void conflicts(Order *o, const Slice *s, uint32_t need[LANES])
{
    uint32_t n;
    const Span *at = spans_cover(&o->space[s->base], s->at, s->at + s->bytes, &n);
    for (uint32_t i = 0; i < n; i++) {
        if (at[i].write)
            later(&need[o->p->l.launch[at[i].write - 1].lane], at[i].write);
        for (int lane = 0; lane < LANES && s->write; lane++)
            later(&need[lane], at[i].read[lane]);
    }
}

static void record(Order *o, const Slice *s, uint32_t number, Lane lane)
{
    uint32_t n;
    if (s->write) {
        spans_write(&o->space[s->base], s->at, s->at + s->bytes, number);
        return;
    }
    Span *at = spans_cover(&o->space[s->base], s->at, s->at + s->bytes, &n);
    for (uint32_t i = 0; i < n; i++)
        at[i].read[lane] = number;
}

static void learn(Order *o, uint32_t launch, uint32_t of)
{
    for (int lane = 0; lane < LANES; lane++)
        later(&o->known[launch][lane], o->known[of][lane]);
    later(&o->known[launch][o->p->l.launch[of].lane], of + 1);
}

static void begin(Order *o, uint32_t launch)
{
    const Launch *l = &o->p->l.launch[launch];
    if (o->last[l->lane])
        learn(o, launch, o->last[l->lane] - 1);
    for (int i = 0; i < l->nwait; i++)
        learn(o, launch, l->wait[i]);
}

/* Slice i of those that a launch reads and writes; NULL behind the last. */
static const Slice *access_of(const Launch *l, int i)
{
    return i < l->nop ? &l->op[i] : i == l->nop ? &l->workspace : NULL;
}

static void needs_of(Order *o, const Launch *l, uint32_t need[LANES])
{
    const Slice *s;
    memset(need, 0, LANES * sizeof *need);
    for (int i = 0; (s = access_of(l, i)) != NULL; i++)
        if (s->base >= 0 && s->bytes > 0)
            conflicts(o, s, need);
}

static void end(Order *o, uint32_t launch)
{
    const Slice *s;
    const Launch *l = &o->p->l.launch[launch];
    for (int write = 0; write < 2; write++)
        for (int i = 0; (s = access_of(l, i)) != NULL; i++)
            if (s->base >= 0 && s->bytes > 0 && s->write == write)
                record(o, s, launch + 1, l->lane);
    o->last[l->lane] = launch + 1;
}

/* ---- operands -------------------------------------------------------------------------------- */

static bool inside(const Program *p, const Slice *s)
{
    int64_t all = p->bytes[s->base];
    return s->at >= 0 && s->bytes >= 0 && s->at <= all && s->bytes <= all - s->at;
}

static bool overlap(const Slice *a, const Slice *b)
{
    return a->base == b->base && a->at < b->at + b->bytes && b->at < a->at + a->bytes;
}

/* Checks that operand i, which is written, overlaps no other but one that the kernel may write over. */
static bool verify_write(const Launch *l, const Kernel *k, int i, Diag *d)
{
    for (int r = 0; r < l->nop; r++) {
        const Slice *s = &l->op[i], *other = &l->op[r];
        bool same = other->at == s->at && k && !other->write && kernel_inplace(k, r, i);
        if (r != i && other->base >= 0 && overlap(s, other) && !same)
            return fail(d, "operand %d is written over operand %d", i, r);
    }
    return true;
}

static bool verify_copies(const Launch *l, Diag *d)
{
    for (int i = 0; i < l->ncopy; i++) {
        const CopyRows *c = &l->copy[i];
        int64_t end = c->rows ? c->at + (c->rows - 1) * c->stride + c->bytes : 0;
        if (c->rows * c->bytes != l->op[c->operand].bytes || end > l->op[l->nop - 1].bytes)
            return fail(d, "what is copied of operand %d is not its bytes", c->operand);
    }
    return true;
}

static bool verify_launch(const Program *p, const Launch *l, Diag *d)
{
    const Kernel *k = l->copy ? NULL : p->l.kernel[l->kernel];
    for (int i = 0; i < l->nop; i++) {
        const Slice *s = &l->op[i];
        if (s->base < 0)
            continue;
        if (!inside(p, s))
            return fail(d, "operand %d leaves its memory", i);
        if (k && s->at % dtype_size[k->operand[i]])
            return fail(d, "operand %d is misaligned", i);
        TRY(!s->write || verify_write(l, k, i, d));
    }
    return (inside(p, &l->workspace) || fail(d, "the workspace leaves its memory")) && verify_copies(l, d);
}

/* Checks the alignment of a step's only launch, which has whole values and the step's workspace. */
static bool verify_places(const Program *p, const Launch *l, Diag *d)
{
    const Slice *s;
    for (int i = 0; (s = access_of(l, i)) != NULL; i++)
        if (s->base >= 0 && s->bytes > 0 && s->at != align_up(s->at, p->align))
            return fail(d, "operand %d is no multiple of %lld bytes away from the arena's start", i,
                        (long long)align_up(1, p->align));
    return true;
}

static bool verify_step(const Program *p, uint32_t s, Diag *d)
{
    Diag why = {0};
    uint32_t from = p->first[s];
    return p->first[s + 1] - from != 1 || verify_places(p, &p->l.launch[from], &why) ||
           fail(d, "launch %u: %.900s", from, why.msg);
}

/* ---- the interface --------------------------------------------------------------------------- */

static Order order_begin(const Program *p)
{
    return (Order){.p = p, .known = mem_new(p->l.n + 1, sizeof(uint32_t[LANES]))};
}

static void order_end(Order *o)
{
    for (int s = 0; s < SPACES; s++)
        spans_free(&o->space[s]);
    free(o->known);
}

static bool one_lane(const Program *p)
{
    for (uint32_t i = 0; i < p->l.n; i++)
        if (p->l.launch[i].lane != p->l.launch[0].lane)
            return false;
    return true;
}

/* Adds the waits that a launch lacks, the latest first: it may know of the others. */
static void add_waits(Order *o, uint32_t launch, const uint32_t need[LANES])
{
    Launch *l = &o->p->l.launch[launch];
    for (;;) {
        uint32_t most = 0;
        for (int lane = 0; lane < LANES; lane++)
            if (need[lane] > o->known[launch][lane])
                later(&most, need[lane]);
        if (!most)
            return;
        l->wait[l->nwait++] = most - 1;
        learn(o, launch, most - 1);
    }
}

void program_add_waits(Program *p)
{
    if (one_lane(p))
        return;
    Order o = order_begin(p);
    for (uint32_t i = 0; i < p->l.n; i++) {
        uint32_t need[LANES];
        begin(&o, i);
        needs_of(&o, &p->l.launch[i], need);
        add_waits(&o, i, need);
        end(&o, i);
    }
    order_end(&o);
}

bool program_verify(const Program *p, Diag *d)
{
    for (uint32_t s = 0; p->first[s] < p->updates[0]; s++)
        TRY(verify_step(p, s, d));
    Order o = order_begin(p);
    bool ok = true;
    for (uint32_t i = 0; i < p->l.n && ok; i++) {
        uint32_t need[LANES];
        Diag why = {0};
        if (!verify_launch(p, &p->l.launch[i], &why)) {
            ok = fail(d, "launch %u: %.900s", i, why.msg);
            break;
        }
        begin(&o, i);
        needs_of(&o, &p->l.launch[i], need);
        for (int lane = 0; lane < LANES && ok; lane++)
            ok = need[lane] <= o.known[i][lane] ||
                 fail(d, "launch %u does not wait for launch %u, with which it shares bytes", i,
                      need[lane] - 1);
        end(&o, i);
    }
    order_end(&o);
    return ok;
}
