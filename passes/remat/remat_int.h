/* remat_int.h -- declarations shared by the files of passes/remat: memory, random numbers, the
 * indexed problem, schedules. */
#ifndef CKC_REMAT_INT_H
#define CKC_REMAT_INT_H
#include "ir/mem.h"
#include "ir/progress.h"
#include "remat.h"

#include <stddef.h>
#include <stdio.h>

/* Instances' bytes and limits stay below RM_SUM, their costs below RM_COSTS: floating point has these
 * exactly, and schedules that cost a thousand times as much fit an integer. Those above RM_SUM are not
 * considered. */
#define RM_SUM ((int64_t)1 << 62)
#define RM_COSTS ((int64_t)1 << 52)

/* ---- helpers (instance.c) ------------------------------------------------------------ */

#define RM_NEW(T, n) ((T *)mem_new((size_t)(n), sizeof(T)))
#define rm_fail(err, ...) (snprintf(err, REMAT_ERR, __VA_ARGS__), false)

/* Makes room for one more element and increments the length n; the capacity doubles at powers of two. */
static inline void *rm_append(void *list, int32_t *n, size_t size)
{
    if ((*n & (*n - 1)) == 0)
        list = mem_grow(list, *n ? 2 * (size_t)*n : 1, size);
    (*n)++;
    return list;
}

static inline int rm_by_number(const void *a, const void *b) /* compares int32_t, for qsort */
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static inline int64_t rm_output_bytes(const RematInstance *inst, const RematOp *o)
{
    int64_t n = 0;
    for (int32_t i = 0; i < o->nout; i++)
        n += inst->values[o->out[i]].bytes;
    return n;
}

/* Is there room in the host's memory for the fetch's outputs, beside `used` bytes? */
static inline bool rm_host_has(const RematInstance *inst, int64_t used, const RematOp *fetch)
{
    return inst->host == 0 || rm_output_bytes(inst, fetch) <= inst->host - used;
}

/* Does one more fetch fit, if others take `link` and `host`?  away: its outputs are in the host's memory
 * already. */
static inline bool rm_fetch_fits(const RematInstance *inst, const RematOp *fetch, int64_t link, int64_t host,
                                 bool away)
{
    return fetch->link <= inst->link - link && (away || rm_host_has(inst, host, fetch));
}

typedef struct {
    uint64_t s;
} Rng;

/* splitmix64 */
static inline uint64_t rng_next(Rng *r)
{
    uint64_t z = (r->s += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static inline int32_t rng_below(Rng *r, int32_t n)
{
    return (int32_t)(((rng_next(r) >> 32) * (uint64_t)n) >> 32);
}

static inline double rng_unit(Rng *r)
{
    return (double)(rng_next(r) >> 11) * 0x1p-53;
}

/* ---- the indexed problem (instance.c) ------------------------------------------------ */

/* Lists of int32 per row: row i is at[first[i]] .. at[first[i + 1] - 1]. */
typedef struct {
    int32_t *first, *at;
} Rows;

/* A checked instance with its edges in both directions. */
typedef struct {
    const RematInstance *inst;
    int32_t nops, nvals;
    int32_t nall;      /* operators and fetches */
    int32_t *origin;   /* per fetch: the operator whose outputs it makes; per operator: itself */
    int32_t *fetch;    /* per operator: its fetch, -1 = none */
    int32_t *producer; /* per value: the operator that makes it, never a fetch */
    Rows in, out;      /* op -> values */
    Rows readers;      /* value -> ops */
    Rows barred_by;    /* op -> ops after which it must not run */
    int64_t *bytes;    /* per value */
    int64_t *cost;     /* per op: cost of its cheapest kernel */
    int64_t *redo;     /* per op: the least cost of making its outputs once more */
    uint8_t *cheapest; /* per op: its cheapest kernel */
    int64_t *min_ws;   /* per op: the least workspace of any kernel */
    int64_t base_cost;
    bool any_inplace, any_alt, any_barrier;
} Problem;

bool problem_init(Problem *p, const RematInstance *inst, char err[REMAT_ERR]);
void problem_free(Problem *p);

/* A sequence of executions. */
typedef struct {
    int32_t *op;
    int32_t n, cap;
} Seq;

void seq_push(Seq *s, int32_t op);
void seq_copy(Seq *to, const Seq *from);
void seq_free(Seq *s);

/* ---- exact accounting of a sequence (evaluate.c) ------------------------------------- */

/* The cheapest kernel whose workspace fits free bytes; failing that, the leanest. */
int32_t rm_best_kernel(const RematOp *o, int64_t free_bytes);

/* Chooses for each step the cheapest kernel that keeps the step within budget, or the one
 * with the least workspace where none does; alt may be NULL. Sums cost and peak; false: the cost is above
 * RM_SUM. */
bool seq_account(const Problem *p, const Seq *s, int64_t budget, uint8_t *alt, int64_t *cost, int64_t *peak);

/* ---- order (hoist.c) ----------------------------------------------------------------- */

/* Moves executions whose results only copies out (RematOp.lane) read to earlier places in a valid schedule;
 * the peak does not rise. */
void rm_hoist(const RematInstance *inst, int32_t *seq, uint8_t *alt, int32_t n);

/* Pairs of o->inplace are tried in order: are both buffers of pair k unused by the pairs applied
 * so far (bits)? */
static inline bool inplace_free(const RematOp *o, int32_t k, uint64_t applied)
{
    for (; applied; applied &= applied - 1) { /* few of up to 64 pairs are applied */
        const RematInPlace *a = &o->inplace[__builtin_ctzll(applied)];
        if (a->in == o->inplace[k].in || a->out == o->inplace[k].out)
            return false;
    }
    return true;
}
#endif
