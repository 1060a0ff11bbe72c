/* schedule.h -- loop analysis of DAG kernels, shared by the C and the CUDA printer.
 *
 * The iteration space is brought to a small form: size-1 dimensions go, neighbours that every
 * access walks alike are merged, equal loads are one.  What remains decides the loop nest:
 *
 *   SCHED_POINT   nothing is reduced; the last dimension is the vector dimension; an operand that
 *                 is contiguous along another one (a transposition) makes that the tile dimension
 *   SCHED_ROW     the last dimension is reduced: lanes along it, one item per row
 *   SCHED_COLUMN  the last dimension is parallel, others are reduced: blocks of columns
 *
 * An instruction's level is the number of reductions it waits for.  The reduced dimensions are
 * walked once per level (a pass); what a later pass needs again is recomputed, except for heavy
 * row values, which a row schedule keeps in a buffer.  Stores run in the last pass, or in the first one
 * and are read back (ir/early_stores.c).  An instruction's scope is the loop level where its value
 * changes. */
#ifndef CKC_SCHEDULE_H
#define CKC_SCHEDULE_H

#include "ir/kernel.h"

typedef enum { SCHED_POINT, SCHED_ROW, SCHED_COLUMN } SchedKind;

typedef enum {
    SCOPE_ITEM,   /* constant for an item (a row, a block of columns) */
    SCOPE_OUTER,  /* changes with reduced dimensions, or the tile dimension, not with the vector's */
    SCOPE_COLUMN, /* SCHED_COLUMN: one value per column, after a reduction */
    SCOPE_VECTOR, /* changes with the vector dimension */
} Scope;

typedef struct {
    const Kernel *k;
    SchedKind kind;
    bool f64;                /* REAL is double */
    int rank, vec;           /* merged dimensions; vec = rank - 1 */
    int tile;                /* SCHED_POINT: a dimension to block together with vec, or -1 */
    int64_t extent[K_DIMS];
    uint32_t red, apart;     /* bits of merged dimensions (Kernel) */
    KInst *ins;              /* strides follow the merged dimensions */
    uint32_t n;
    int *level;              /* per instruction */
    uint32_t *dep;           /* per instruction: bits of the dimensions it changes with */
    Scope *scope;            /* per instruction */
    bool *live, *saved;      /* reaches a store; kept in the row buffer between passes */
    bool *early;             /* a store in the pass of its value */
    bool *shaping;           /* what a kernel's shape may depend on where its sums' order does: what reaches a
                              * reduction, sums of columns beside it apart; the other results of a group are
                              * not made by all of its executions.  Without reductions: live */
    int nshaping;            /* so many */
    int last;                /* last pass over the reduced dimensions */
    int64_t nitem, nred;     /* parallel points without the vector dimension; reduced points */
} Sched;

/* Arrays live in a.  row_buffer: longest row (elements) of which heavy values are saved. */
void sched_make(Sched *s, const Kernel *k, int64_t row_buffer, Arena *a);
bool sched_is_heavy(const KInst *in); /* worth storing if needed again */
bool sched_is_plain(const KInst *in); /* neither a store nor a sum or other reduction */
/* Is it reduced in this pass? */
bool sched_reduces_at(const Sched *s, uint32_t i, int pass);
/* A store of what reductions leave over. */
bool sched_is_reduced_store(const Sched *s, uint32_t i);
/* What is stored of a sum of columns, behind all rows. */
static inline bool sched_is_column_store(const Sched *s, uint32_t i)
{
    return s->ins[i].kind == K_STORE && s->ins[s->ins[i].arg[0]].kind == K_COLUMN_SUM;
}
/* A load that runs along the tile dimension: its tile is copied to near memory first. */
bool sched_is_staged(const Sched *s, uint32_t i);
/* The full-space stores and reductions of pass p: what its loop must compute. */
bool sched_is_root(const Sched *s, uint32_t i, int pass);
/* Behind the text of a pass: what it stored early is loaded from there on, as wide as it was stored (per
 * instruction; NULL: all alike). */
void sched_read_back(const Sched *s, int pass, bool *wide);
/* Instructions printed inside the vector loop of a pass: mark[i]. */
void sched_vector_set(const Sched *s, int pass, bool *mark);

#endif
