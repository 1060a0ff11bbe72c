/* order.c -- orders to start from: list scheduling by memory, and depth first.
 *
 * Greedy: of the operators whose inputs are made, the one that adds the fewest bytes (its
 * outputs less the inputs it is the last reader of); among equals the one whose inputs are
 * newest, so that it tends to finish what it began. Depth first: the operators nothing
 * reads, in input order, each behind what it needs. Barriers count as dependencies: an
 * operator follows those it bars. O((n + m) log n). */
#include "heap.h"
#include "solve.h"

#include <stdlib.h>
#include <string.h>

/* ---- greedy -------------------------------------------------------------------------- */

typedef struct {
    const Problem *p;
    Heap ready;     /* operators by added bytes, then the newest of their inputs */
    int32_t *waits; /* per op: predecessors that have not run */
    int32_t *left;  /* per value: readers that have not run */
    int32_t *made;  /* per op: when it ran, -1 = not yet */
} Greedy;

static HeapItem rate(const Greedy *g, int32_t op)
{
    const Problem *p = g->p;
    int64_t added = 0;
    int32_t newest = -1;
    for (int32_t k = p->out.first[op]; k < p->out.first[op + 1]; k++)
        if (p->readers.first[p->out.at[k]] < p->readers.first[p->out.at[k] + 1])
            added += p->bytes[p->out.at[k]];
    for (int32_t k = p->in.first[op]; k < p->in.first[op + 1]; k++) {
        int32_t v = p->in.at[k], age = g->made[p->producer[v]];
        newest = age > newest ? age : newest;
        if (g->left[v] == 1 && !p->inst->values[v].keep_to_end)
            added -= p->bytes[v];
    }
    return (HeapItem){{added, -newest}, op};
}

static void arrive(Greedy *g, int32_t op)
{
    if (--g->waits[op] == 0)
        heap_push(&g->ready, rate(g, op));
}

/* Runs op: readers of its outputs and operators that bar it wait for one less; the last
 * readers of its inputs improve. */
static void advance(Greedy *g, int32_t op, int32_t now)
{
    const Problem *p = g->p;
    g->made[op] = now;
    for (int32_t k = p->in.first[op]; k < p->in.first[op + 1]; k++) {
        int32_t v = p->in.at[k];
        if (--g->left[v] != 1)
            continue;
        for (int32_t j = p->readers.first[v]; j < p->readers.first[v + 1]; j++) {
            int32_t reader = p->readers.at[j];
            if (g->made[reader] < 0 && g->waits[reader] == 0)
                heap_push(&g->ready, rate(g, reader));
        }
    }
    for (int32_t k = p->out.first[op]; k < p->out.first[op + 1]; k++)
        for (int32_t j = p->readers.first[p->out.at[k]]; j < p->readers.first[p->out.at[k] + 1]; j++)
            arrive(g, p->readers.at[j]);
    for (int32_t k = p->barred_by.first[op]; k < p->barred_by.first[op + 1]; k++)
        arrive(g, p->barred_by.at[k]);
}

void order_greedy(const Problem *p, int32_t *order)
{
    Greedy g = {.p = p,
                .waits = RM_NEW(int32_t, p->nops),
                .left = RM_NEW(int32_t, p->nvals),
                .made = RM_NEW(int32_t, p->nops)};
    for (int32_t i = 0; i < p->nops; i++) {
        g.waits[i] = p->in.first[i + 1] - p->in.first[i] + p->inst->ops[i].nbarrier + 1;
        g.made[i] = -1;
    }
    for (int32_t v = 0; v < p->nvals; v++)
        g.left[v] = p->readers.first[v + 1] - p->readers.first[v];
    for (int32_t i = 0; i < p->nops; i++)
        arrive(&g, i);
    for (int32_t n = 0; n < p->nops;) {
        int32_t op = heap_pop(&g.ready).id;
        if (g.made[op] >= 0) /* a stale entry: op was pushed again since */
            continue;
        order[n] = op;
        advance(&g, op, n++);
    }
    MEM_FREE(g.ready.item, g.waits, g.left, g.made);
}

/* ---- depth first --------------------------------------------------------------------- */

/* The k-th predecessor of op, -1 behind the last. */
static int32_t predecessor(const Problem *p, int32_t op, int32_t k)
{
    int32_t nin = p->in.first[op + 1] - p->in.first[op];
    if (k < nin)
        return p->producer[p->in.at[p->in.first[op] + k]];
    return k - nin < p->inst->ops[op].nbarrier ? p->inst->ops[op].barrier[k - nin] : -1;
}

void order_depth_first(const Problem *p, int32_t *order)
{
    int32_t *stack = RM_NEW(int32_t, p->nops), *at = RM_NEW(int32_t, p->nops), n = 0;
    bool *seen = RM_NEW(bool, p->nops);
    for (int32_t root = 0; root < p->nops; root++) {
        bool read = false;
        for (int32_t k = p->out.first[root]; k < p->out.first[root + 1]; k++)
            read |= p->readers.first[p->out.at[k]] < p->readers.first[p->out.at[k] + 1];
        int32_t depth = 0;
        if (!read && !seen[root]) {
            seen[root] = true;
            stack[depth++] = root;
        }
        while (depth > 0) {
            int32_t op = stack[depth - 1], u = predecessor(p, op, at[op]++);
            if (u < 0) {
                order[n++] = op;
                depth--;
            } else if (!seen[u]) {
                seen[u] = true;
                stack[depth++] = u;
            }
        }
    }
    MEM_FREE(stack, at, seen);
}
