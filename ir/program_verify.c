/* program_verify.c -- what every Program keeps to: operands, and which launches happen before which.
 *
 * Launches are looked at as they are issued.  For every byte the last write and the last read of each lane
 * are kept, as disjoint spans; an access conflicts with the write and, if it writes, with the reads.  A
 * launch knows of each lane how many of its launches have ended before it begins: those that the one
 * before it in its lane knows of, that one itself, and what those it waits for know. */
#include "program.h"
#include "mem.h"
#include <stdlib.h>
#include <string.h>

/* Numbers of launches count from 1; 0: none. */
typedef struct {
    int64_t lo, hi;
    uint32_t write, read[LANES];
} Span;

typedef struct {
    Span *s;
    uint32_t n, cap;
} Spans;

typedef struct {
    const Program *p;
    Spans space[SPACES];
    uint32_t (*known)[LANES]; /* per launch: last of each lane that ended before it */
    uint32_t last[LANES];     /* issued so far */
} Order;

/* ---- spans ----------------------------------------------------------------------------------- */

/* The first that ends behind `at`. */
static uint32_t span_at(const Spans *m, int64_t at)
{
    uint32_t lo = 0, hi = m->n;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (m->s[mid].hi > at)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

static void insert(Spans *m, uint32_t at, Span s)
{
    if (m->n == m->cap) {
        m->cap = m->cap ? 2 * m->cap : 64;
        m->s = mem_grow(m->s, m->cap, sizeof *m->s);
    }
    memmove(m->s + at + 1, m->s + at, (m->n - at) * sizeof *m->s);
    m->s[at] = s;
    m->n++;
}

static void split(Spans *m, int64_t at)
{
    uint32_t i = span_at(m, at);
    if (i == m->n || m->s[i].lo >= at)
        return;
    Span below = m->s[i];
    below.hi = at;
    m->s[i].lo = at;
    insert(m, i, below);
}

/* Spans that cover the slice and nothing else: the first of *count. */
static uint32_t cover(Spans *m, const Slice *s, uint32_t *count)
{
    int64_t end = s->at + s->bytes;
    split(m, s->at);
    split(m, end);
    uint32_t first = span_at(m, s->at), i = first;
    for (int64_t at = s->at; at < end; at = m->s[i++].hi)
        if (i == m->n || m->s[i].lo > at)
            insert(m, i, (Span){.lo = at, .hi = i < m->n && m->s[i].lo < end ? m->s[i].lo : end});
    *count = i - first;
    return first;
}

/* ---- conflicts ------------------------------------------------------------------------------- */

static void later(uint32_t *a, uint32_t b) { *a = b > *a ? b : *a; }

/* Into need: the last launch of each lane that conflicts with this access. */
static void conflicts(Order *o, const Slice *s, uint32_t need[LANES])
{
    uint32_t n, first = cover(&o->space[s->base], s, &n);
    for (uint32_t i = first; i < first + n; i++) {
        const Span *at = &o->space[s->base].s[i];
        if (at->write)
            later(&need[o->p->l.launch[at->write - 1].lane], at->write);
        for (int lane = 0; lane < LANES && s->write; lane++)
            later(&need[lane], at->read[lane]);
    }
}

static void record(Order *o, const Slice *s, uint32_t number, Lane lane)
{
    uint32_t n, first = cover(&o->space[s->base], s, &n);
    Spans *m = &o->space[s->base];
    for (uint32_t i = first; i < first + n; i++)
        if (s->write)
            m->s[i] = (Span){.lo = m->s[i].lo, .hi = m->s[i].hi, .write = number};
        else
            m->s[i].read[lane] = number;
    if (!s->write || n < 2)
        return;
    m->s[first].hi = m->s[first + n - 1].hi;
    memmove(m->s + first + 1, m->s + first + n, (m->n - first - n) * sizeof *m->s);
    m->n -= n - 1;
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

/* Number i of what a launch reads and writes; NULL behind the last. */
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

/* A kernel may write over what it reads where it says so; nothing else is written twice or read too. */
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

/* ---- the interface --------------------------------------------------------------------------- */

static Order order_begin(const Program *p)
{
    return (Order){.p = p, .known = mem_new(p->l.n + 1, sizeof(uint32_t[LANES]))};
}

static void order_end(Order *o)
{
    for (int s = 0; s < SPACES; s++)
        free(o->space[s].s);
    free(o->known);
}

static bool one_lane(const Program *p)
{
    for (uint32_t i = 0; i < p->l.n; i++)
        if (p->l.launch[i].lane != p->l.launch[0].lane)
            return false;
    return true;
}

/* The latest first: it may know of the others. */
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
