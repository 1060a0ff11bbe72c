/* policy_revolve.c -- Griewank and Walther's revolve, on the blocks of the forward pass: checkpoints are
 * chosen anew while the backward pass goes through them. */
#include "policy.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* (n over k), capped. */
static int64_t binomial(int32_t n, int32_t k)
{
    double x = 1;
    for (int32_t i = 1; i <= k; i++)
        x = x * (n - k + i) / i;
    return x < 1e15 ? (int64_t)llround(x) : (int64_t)1000000000000000;
}

/* How far to advance before the next checkpoint when `length` blocks are to be reversed
 * with `slots` checkpoints, the one at the start among them: with r the least number such
 * that binomial(slots + r, slots) >= length. */
static int32_t revolve_hop(int32_t length, int32_t slots)
{
    int32_t r = 1;
    while (binomial(slots + r, slots) < length)
        r++;
    int64_t hop = binomial(slots + r - 1, slots), other = length - binomial(slots + r - 2, slots - 1);
    hop = hop < other ? hop : other;
    return hop < 1 ? 1 : hop < length ? (int32_t)hop : length - 1;
}

/* Places checkpoints between block k, which the backward pass reads, and the nearest one before.
 * stored[b]: the border behind block b is held. */
static void revolve_plan(Policy *y, bool *stored, int32_t k, int32_t slots)
{
    int32_t at = k - 1, used = 0;
    for (int32_t b = 0; b < k; b++)
        used += stored[b];
    while (at >= 0 && !stored[at])
        at--;
    for (int32_t b = k; b < y->nblocks; b++)
        stored[b] = false;
    while (k - at > 1 && used < slots) {
        at += revolve_hop(k - at, slots - used + 1);
        if (at >= k)
            break;
        stored[at] = true;
        used++;
    }
}

/* Drops held values that neither cross a stored border nor belong to block k. */
static void revolve_hold(Policy *y, const bool *stored, int32_t k)
{
    const Problem *p = y->p;
    for (int32_t v = 0; v < p->nvals; v++) {
        int32_t op = p->producer[v];
        if (!y->held[v] || !policy_can_drop(y, v) || y->block[op] == k)
            continue;
        bool held = false;
        for (int32_t b = y->block[op], to = y->block[policy_last_forward(y, v)]; b < to && !held; b++)
            held = stored[b];
        y->held[v] = held;
    }
}

/* The last block whose values op reads, -1 = none. */
static int32_t block_read(const Policy *y, int32_t op)
{
    const Problem *p = y->p;
    int32_t last = -1;
    for (int32_t k = p->in.first[op]; k < p->in.first[op + 1]; k++) {
        int32_t u = p->producer[p->in.at[k]];
        if (u <= y->loss && y->block[u] > last)
            last = y->block[u];
    }
    return last;
}

static void revolve(Policy *y, int32_t slots)
{
    const Problem *p = y->p;
    bool *stored = RM_NEW(bool, y->nblocks + 1);
    int32_t current = y->nblocks;
    y->out.n = 0;
    memset(y->held, 0, sizeof *y->held * (size_t)p->nvals);
    revolve_plan(y, stored, y->nblocks - 1, slots);
    for (int32_t i = 0; i < p->nops; i++) {
        int32_t k = i > y->loss ? block_read(y, i) : -1;
        if (k >= 0 && k < current) {
            current = k;
            revolve_plan(y, stored, k, slots);
        }
        policy_run(y, i);
        if (i >= y->loss)
            revolve_hold(y, stored, current < y->nblocks ? current : y->nblocks - 1);
    }
    policy_offer(y);
    free(stored);
}

/* Tries ever fewer checkpoints, any forward value being droppable; the best schedule is the result. */
bool policy_revolve(Policy *y, const char *rest)
{
    for (int32_t v = 0; v < y->p->nvals; v++)
        y->keep[v] = y->p->producer[v] > y->loss;
    policy_find_again(y);
    for (int32_t slots = y->nblocks; slots >= 1; slots = slots > 32 ? slots * 3 / 4 : slots - 1)
        revolve(y, slots);
    return !*rest;
}
