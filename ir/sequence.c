/* sequence.c -- a plan's steps as a sequence; lifetimes. */
#include "sequence.h"

Sequence sequence_of_plan(const Plan *p, const Command *c, Arena *a)
{
    Val *itself = NEW(a, Val, p->g->nvals);
    Execution *run = NEW(a, Execution, p->nstep + 1);
    for (uint32_t v = 0; v < p->g->nvals; v++)
        itself[v].i = v;
    for (uint32_t s = 0; s < p->nstep; s++)
        run[s] = (Execution){&c[s], c[s].vals, NULL};
    return (Sequence){p->g, run, p->nstep, p->nmicro, p->g->nvals, itself, itself};
}

static void lives_on(const Sequence *s, Lifetime *life, Val v)
{
    life[s->final[graph_root(s->g, v).i].i].last = (int32_t)s->n;
}

Lifetime *sequence_lifetimes(const Sequence *s, Arena *a)
{
    Lifetime *life = NEW(a, Lifetime, s->nvals);
    for (uint32_t v = 0; v < s->nvals; v++)
        life[v] = (Lifetime){-1, -1};
    for (uint32_t k = 0; k < s->n; k++) {
        const Command *c = s->run[k].c;
        for (int i = 0; i < c->nread + c->nwrite; i++) {
            Lifetime *l = &life[s->run[k].vals[i].i];
            l->first = i < c->nread ? l->first : (int32_t)k;
            l->last = (int32_t)k;
        }
    }
    for (uint32_t i = 0; i < s->g->nout; i++)
        lives_on(s, life, s->g->out[i]);
    for (uint32_t i = 0; i < s->g->nupdate; i++)
        lives_on(s, life, s->g->update[i].value);
    return life;
}
