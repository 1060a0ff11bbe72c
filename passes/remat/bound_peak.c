/* bound_peak.c -- a lower bound on the peak of every schedule, whatever it runs again.
 *
 * When an operator runs, all its inputs are resident.  Of the values that are resident together one was made
 * last: while its producer ran, the others were resident, and so were the producer's inputs. So the least
 * peak of a schedule up to the moment when all values of S are resident is at least
 *
 *     F(S) = min over u that make one of S of max(bytes(u, S), F(inputs of u + S - outputs of u)),  F({}) = 0
 *
 * where bytes(u, S) are the bytes of u's step with all of S resident; u's outputs cannot have taken over a
 * value that is in S afterwards. The search goes backwards in time for the path of the least peak; it allows
 * any recomputation. F can only fall when values leave S: the search forgets all but the largest few, which
 * keeps it small and its result a bound, and skips a set if a subset was found with no higher peak. The peak
 * only rises along the search: if it stops before a path is complete, its peak is a bound, too. */
#include "heap.h"
#include "solve.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 6, SHARE = 256, STARTS = 8, SETS = 1 << 16, WORK = 1 << 23 };

typedef struct {
    int32_t v[MOST]; /* values by falling bytes; -1 behind the last */
    int64_t peak;    /* the least known peak on a path from here to the start */
    int64_t bytes;
} Set;

typedef struct {
    const Problem *p;
    int64_t small; /* values of fewer bytes are forgotten */
    Set *set;
    int32_t nset;
    int32_t *table; /* hash of the values -> set, 2 SETS entries */
    Heap next;      /* the least peak first, then the fewest bytes, then ~set: the newest */
    uint8_t *in_set; /* per value: it is in the current set */
    uint8_t *counted;
    int64_t work; /* work left, in operands and pairs of operands visited */
    bool full;    /* there was no room for a set */
} Walk;

/* ---- sets ------------------------------------------------------------------------------------ */

static uint32_t hash(const int32_t *v)
{
    uint64_t h = 0;
    for (int i = 0; i < MOST; i++)
        h = (h ^ (uint32_t)v[i]) * 0x9E3779B97F4A7C15u, h ^= h >> 29;
    return (uint32_t)h;
}

/* The table entry of the set v, or the free one where it belongs. */
static int32_t *find(const Walk *w, const int32_t *v)
{
    int32_t at = (int32_t)(hash(v) % (2 * SETS));
    while (w->table[at] >= 0 && memcmp(w->set[w->table[at]].v, v, sizeof w->set->v) != 0)
        at = (at + 1) % (2 * SETS);
    return &w->table[at];
}

static Set none_of(void)
{
    Set s = {.bytes = 0};
    memset(s.v, -1, sizeof s.v);
    return s;
}

/* Puts v into the set, unless it is small, or the set is full and v smaller than all in it. */
static void put(const Walk *w, Set *s, int32_t v)
{
    const int64_t *bytes = w->p->bytes;
    int i = MOST;
    if (bytes[v] == 0 || bytes[v] < w->small)
        return;
    while (i > 0 && (s->v[i - 1] < 0 || bytes[v] > bytes[s->v[i - 1]] ||
                     (bytes[v] == bytes[s->v[i - 1]] && v < s->v[i - 1])))
        i--;
    if (i == MOST || (i > 0 && s->v[i - 1] == v))
        return;
    s->bytes += bytes[v] - (s->v[MOST - 1] < 0 ? 0 : bytes[s->v[MOST - 1]]);
    memmove(&s->v[i + 1], &s->v[i], sizeof *s->v * (size_t)(MOST - 1 - i));
    s->v[i] = v;
}

/* Was the set or a subset of it found with no higher peak? */
static bool surpassed(const Walk *w, const Set *s)
{
    int n = 0;
    while (n < MOST && s->v[n] >= 0)
        n++;
    for (unsigned part = 0; part < 1u << n; part++) {
        int32_t v[MOST], m = 0;
        memset(v, -1, sizeof v);
        for (int i = 0; i < n; i++)
            if (part >> i & 1)
                v[m++] = s->v[i];
        int32_t at = *find(w, v);
        if (at >= 0 && w->set[at].peak <= s->peak)
            return true;
    }
    return false;
}

static void meet(Walk *w, const Set *s)
{
    if (surpassed(w, s))
        return;
    int32_t *at = find(w, s->v);
    w->full |= w->next.n == 2 * SETS || (*at < 0 && w->nset == SETS);
    if (w->full)
        return;
    if (*at < 0)
        *at = w->nset++;
    w->set[*at] = *s;
    heap_push(&w->next, (HeapItem){{s->peak, s->bytes}, ~*at});
}

/* ---- a step back ----------------------------------------------------------------------------- */

static int64_t count(Walk *w, int32_t v)
{
    int64_t bytes = w->counted[v] ? 0 : w->p->bytes[v];
    w->counted[v] = 1;
    return bytes;
}

/* Bytes of the step of u that makes the last value of the set s. */
static int64_t bytes_beside(Walk *w, int32_t u, const Set *s)
{
    const Problem *p = w->p;
    int64_t sum = p->inst->persistent + p->min_ws[u] - bound_most_saved(p->inst, &p->inst->ops[u], w->in_set);
    for (int32_t k = p->in.first[u]; k < p->in.first[u + 1]; k++)
        sum += count(w, p->in.at[k]);
    for (int32_t k = p->out.first[u]; k < p->out.first[u + 1]; k++)
        sum += count(w, p->out.at[k]);
    for (int i = 0; i < MOST && s->v[i] >= 0; i++)
        sum += count(w, s->v[i]);
    for (int32_t k = p->in.first[u]; k < p->in.first[u + 1]; k++)
        w->counted[p->in.at[k]] = 0;
    for (int32_t k = p->out.first[u]; k < p->out.first[u + 1]; k++)
        w->counted[p->out.at[k]] = 0;
    for (int i = 0; i < MOST && s->v[i] >= 0; i++)
        w->counted[s->v[i]] = 0;
    return sum;
}

/* Adds the set of values that must be resident before u runs and completes `from`. */
static void step_back(Walk *w, int32_t u, const Set *from)
{
    const Problem *p = w->p;
    const RematOp *o = &p->inst->ops[u];
    w->work -= MOST + o->nin + o->nout + o->ninplace * o->ninplace;
    Set to = none_of();
    int64_t bytes = bytes_beside(w, u, from);
    to.peak = bytes > from->peak ? bytes : from->peak;
    for (int32_t k = p->in.first[u]; k < p->in.first[u + 1]; k++)
        put(w, &to, p->in.at[k]);
    for (int i = 0; i < MOST && from->v[i] >= 0; i++)
        if (p->producer[from->v[i]] != p->origin[u])
            put(w, &to, from->v[i]);
    meet(w, &to);
}

static void look(Walk *w, Set s)
{
    const Problem *p = w->p;
    for (int i = 0; i < MOST && s.v[i] >= 0; i++)
        w->in_set[s.v[i]] = 1;
    for (int i = 0; i < MOST && s.v[i] >= 0; i++) {
        int32_t u = p->producer[s.v[i]];
        bool again = false; /* another output of u came before */
        for (int j = 0; j < i; j++)
            again |= p->producer[s.v[j]] == u;
        if (again)
            continue;
        step_back(w, u, &s);
        if (p->fetch[u] >= 0)
            step_back(w, p->fetch[u], &s);
    }
    for (int i = 0; i < MOST && s.v[i] >= 0; i++)
        w->in_set[s.v[i]] = 0;
}

/* The bound from the inputs of one operator, at least `least` and at most `known`. */
static int64_t bound_from(Walk *w, int32_t op, int64_t least, int64_t known)
{
    const Problem *p = w->p;
    Set s = none_of();
    memset(w->table, -1, 2 * SETS * sizeof *w->table);
    w->nset = w->next.n = 0;
    w->full = false;
    for (int32_t k = p->in.first[op]; k < p->in.first[op + 1]; k++)
        put(w, &s, p->in.at[k]);
    s.peak = least;
    meet(w, &s);
    while (w->next.n > 0 && least < known && !w->full) { /* when full, one of the next may be missing */
        HeapItem x = heap_pop(&w->next);
        const Set *at = &w->set[~x.id];
        if (x.key[0] > at->peak) /* a better path to it was found since */
            continue;
        least = x.key[0];
        if (at->v[0] < 0 || w->work < 0)
            break;
        look(w, *at);
    }
    return least < known ? least : known;
}

/* ---- the operators from which to look back ----------------------------------------------------- */

typedef struct {
    int64_t bytes;
    int32_t op;
} Start;

static int by_bytes(const void *a, const void *b)
{
    const Start *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes) - (x->bytes > y->bytes) : x->op - y->op;
}

static bool is_read(const Problem *p, int32_t op)
{
    bool any = false;
    for (int32_t k = p->out.first[op]; k < p->out.first[op + 1]; k++)
        any |= p->readers.first[p->out.at[k]] < p->readers.first[p->out.at[k] + 1];
    return any;
}

/* Chooses the operators of the largest steps, and the last ones that nothing reads, as many others precede
 * them. */
static int32_t choose_starts(const Problem *p, int32_t *start)
{
    Start *all = RM_NEW(Start, p->nops);
    int32_t n = 0;
    for (int32_t i = 0; i < p->nops; i++)
        all[i] = (Start){bound_step_bytes(p, i), i};
    qsort(all, (size_t)p->nops, sizeof *all, by_bytes);
    for (; n < STARTS && n < p->nops; n++)
        start[n] = all[n].op;
    for (int32_t i = p->nops - 1; i >= 0 && n < 2 * STARTS; i--)
        if (!is_read(p, i))
            start[n++] = i;
    free(all);
    return n;
}

int64_t bound_peak(const Problem *p, int64_t known)
{
    int64_t least = bound_least_budget(p);
    int32_t start[2 * STARTS], n = choose_starts(p, start);
    Walk w = {.p = p, .small = (least - p->inst->persistent) / SHARE};
    w.set = RM_NEW(Set, SETS);
    w.table = RM_NEW(int32_t, 2 * SETS);
    w.in_set = RM_NEW(uint8_t, p->nvals);
    w.counted = RM_NEW(uint8_t, p->nvals);
    for (int32_t i = 0; i < n && least < known; i++) {
        w.work = WORK / n;
        least = bound_from(&w, start[i], least, known);
    }
    MEM_FREE(w.set, w.table, w.next.item, w.in_set, w.counted);
    return least;
}
