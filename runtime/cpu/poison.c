/* poison.c -- finds the memory that is dead after each step, for the check mode of the executor.
 *
 * A value lives from the step that makes it to the last one that reads it; parameters, state, constants and
 * outputs live always, inputs from the start.  In-place results share bytes with other values, so the bytes
 * that die with a value are its range minus the ranges of all values that live on. */
#include "ir/sequence.h"
#include "cpu.h"
#include <stdlib.h>

typedef struct {
    int64_t begin, end; /* bytes */
    Lifetime in;        /* steps, both included */
} Life;

typedef struct {
    DeadRange *range;
    uint32_t n, cap;
    Arena *arena;
} List;

static Life *lives(const Plan *p, const Command *c, Arena *a)
{
    const Graph *g = p->g;
    Sequence s = sequence_of_plan(p, c, a);
    const Lifetime *in = sequence_lifetimes(&s, a);
    Life *life = NEW(a, Life, g->nvals);
    for (uint32_t v = 1; v < g->nvals; v++) {
        ValKind kind = g->vals[v].kind;
        life[v] = (Life){p->offset[v], p->offset[v] + type_bytes(&g->vals[v].type), in[v]};
        if (val_space(g, (Val){v}) == SPACE_HOST)
            life[v].begin = -1;
        if (kind != VAL_TEMP && kind != VAL_INPUT)
            life[v].in.last = (int32_t)p->nstep;
    }
    return life;
}

static void add(List *l, int32_t step, int64_t begin, int64_t end)
{
    l->range = arena_grow(l->arena, l->range, l->n, &l->cap, sizeof *l->range);
    l->range[l->n++] = (DeadRange){(uint32_t)step, begin, end - begin};
}

/* Adds the parts of [begin, end) that none of the values [v, n) keeps alive after the step. */
static void subtract(List *l, const Life *life, uint32_t n, uint32_t v, int32_t step,
                     int64_t begin, int64_t end)
{
    for (; v < n && begin < end; v++) {
        const Life *o = &life[v];
        if (o->begin < 0 || o->in.first > step || o->in.last <= step || o->begin >= end ||
            o->end <= begin)
            continue;
        if (o->begin > begin)
            subtract(l, life, n, v + 1, step, begin, o->begin);
        begin = o->end;
    }
    if (begin < end)
        add(l, step, begin, end);
}

static int by_step(const void *a, const void *b)
{
    const DeadRange *x = a, *y = b;
    return (x->step > y->step) - (x->step < y->step);
}

const DeadRange *dead_ranges(const Plan *p, const Command *c, uint32_t *n, Arena *a)
{
    List l = {.arena = a};
    const Life *life = lives(p, c, a);
    for (uint32_t v = 1; v < p->g->nvals; v++)
        if (life[v].begin >= 0 && life[v].in.last >= 0 && life[v].in.last < (int32_t)p->nstep)
            subtract(&l, life, p->g->nvals, 1, life[v].in.last, life[v].begin, life[v].end);
    if (l.n)
        qsort(l.range, l.n, sizeof *l.range, by_step);
    *n = l.n;
    return l.range;
}
