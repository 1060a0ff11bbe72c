/* schedule.h -- loop analysis of DAG kernels, shared by the C and the CUDA printer.
 *
 * The iteration space is first simplified: size-1 dimensions are removed, neighbouring dimensions that
 * every access walks alike are merged, equal loads become one.  What remains decides the loop nest:
 *
 *   SCHED_POINT   nothing is reduced; the last dimension is the vector dimension; if an operand is
 *                 contiguous along another one (a transposition), that one is the tile dimension
 *   SCHED_ROW     the last dimension is reduced: lanes along it, one item per row
 *   SCHED_COLUMN  the last dimension is parallel, others are reduced: blocks of columns
 *
 * An instruction's level is the number of reductions it waits for.  The reduced dimensions are
 * walked once per level (a pass); values that a later pass needs again are recomputed, except for heavy
 * row values, which a row schedule keeps in a buffer.  Stores run in the last pass, or in the first one,
 * after which they are read back (ir/early_stores.c).  An instruction's scope is the loop level where its
 * value changes. */
#ifndef CKC_SCHEDULE_H
#define CKC_SCHEDULE_H

#include "ir/kernel.h"

typedef enum { SCHED_POINT, SCHED_ROW, SCHED_COLUMN } SchedKind;

typedef enum {
    SCOPE_ITEM,   /* constant for an item (a row, a block of columns) */
    SCOPE_OUTER,  /* changes with reduced dimensions or the tile dimension, not with the vector dimension */
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
    int *level;              /* per instruction: number of reductions that it waits for */
    uint32_t *dep;           /* per instruction: bits of the dimensions it changes with */
    Scope *scope;            /* per instruction */
    bool *live, *saved;      /* per instruction: reaches a store; is kept in the row buffer between passes */
    bool *early;             /* per instruction: a store that runs in the pass of its value */
    bool *shaping;           /* per instruction: it reaches a reduction that is no column sum.  Only such may
                              * decide a shape that the order of sums depends on, as not every execution of a
                              * group makes its other results.  Without reductions: live */
    int nshaping;            /* number of shaping instructions */
    int last;                /* last pass over the reduced dimensions */
    int64_t nitem, nred;     /* parallel points without the vector dimension; reduced points */
} Sched;

/* Arrays live in a.  row_buffer: elements of the longest row whose heavy values are saved. */
void sched_make(Sched *s, const Kernel *k, int64_t row_buffer, Arena *a);
bool sched_is_heavy(const KInst *in); /* worth storing if needed again */
bool sched_is_plain(const KInst *in); /* neither a store nor a sum or other reduction */
/* Is instruction i a live reduction that this pass makes? */
bool sched_reduces_at(const Sched *s, uint32_t i, int pass);
/* Is instruction i a store that no reduced dimension changes, so that it runs after the reductions? */
bool sched_is_reduced_store(const Sched *s, uint32_t i);
/* Is instruction i the store of a column sum, which runs after all rows? */
static inline bool sched_is_column_store(const Sched *s, uint32_t i)
{
    return s->ins[i].kind == K_STORE && s->ins[s->ins[i].arg[0]].kind == K_COLUMN_SUM;
}
/* Is instruction i a load along the tile dimension, whose tile is copied to near memory first? */
bool sched_is_staged(const Sched *s, uint32_t i);
/* Is instruction i a full-space store or a reduction of this pass, which its loop must compute? */
bool sched_is_root(const Sched *s, uint32_t i, int pass);
/* To be called after the text of a pass: turns values that the pass stored early into loads of what was
 * stored.  wide: per instruction, copied from the store to the load; NULL: not used. */
void sched_read_back(const Sched *s, int pass, bool *wide);
/* Sets mark[i] for the instructions that the vector loop of a pass computes. */
void sched_vector_set(const Sched *s, int pass, bool *mark);

#endif
