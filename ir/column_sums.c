/* column_sums.c -- kernels that reduce rows and sum columns while they read both once.
 *
 * The gradient of a norm reduces rows; those of its scale and bias, and of a bias in front of it, sum columns
 * of what it reads and of what it makes.  As one kernel, rows are reduced and K_COLUMN_SUM goes over the
 * other dimensions; nothing but a store reads one.  A GPU runs that as it stands.  For a CPU, and for the
 * interpreter, it is split into up to three kernels, which run one after the other and have no K_COLUMN_SUM:
 *
 *   1. the sums of columns of what is read;
 *   2. the reductions of rows and what is made of them, which may be written over what is read;
 *   3. the sums of columns of what is made of reductions, loaded from where kernel 2 has stored it. */
#include "kernel.h"

enum { LONGEST_ROW = 4096 }; /* elements; the sums of its columns fit the registers of a GPU's threads */

bool kernel_has_column_sums(const Kernel *k)
{
    bool has = false;
    for (uint32_t i = 0; i < k->nins; i++)
        has |= k->ins[i].kind == K_COLUMN_SUM;
    return has;
}

/* Does k reduce rows alone?  A row of one element is not reduced: its kernel is pointwise. */
static bool reduces_rows(const Kernel *k)
{
    int64_t row = k->rank > 0 ? k->extent[k->rank - 1] : 0;
    return row > 1 && row <= LONGEST_ROW && k->red == 1u << (k->rank - 1);
}

/* Are all reductions sums of reals that only stores read? */
static bool only_sums(const Kernel *k)
{
    for (uint32_t i = 0; i < k->nins; i++) {
        const KInst *in = &k->ins[i];
        if (k_reduces(in) && (in->kind != K_SUM || in->type != KT_REAL))
            return false;
        for (int a = 0; a < k_nargs(in); a++)
            if (k_reduces(&k->ins[in->arg[a]]) && in->kind != K_STORE)
                return false;
    }
    return true;
}

bool kernels_join_columns(Kernel *a, Kernel *b)
{
    Kernel *rows = reduces_rows(a) ? a : b, *columns = rows == a ? b : a;
    if (!reduces_rows(rows) || (rows->red ^ columns->red) != (1u << rows->rank) - 1 || !only_sums(columns))
        return false;
    for (uint32_t i = 0; i < columns->nins; i++)
        if (k_reduces(&columns->ins[i]))
            columns->ins[i].kind = K_COLUMN_SUM;
    columns->red = rows->red;
    return true;
}

/* ---- splitting --------------------------------------------------------------------------------------- */

static bool is_column_store(const Kernel *k, const KInst *in)
{
    return in->kind == K_STORE && k->ins[in->arg[0]].kind == K_COLUMN_SUM;
}

/* The store of all elements of a value; NULL: it is not stored. */
static const KInst *store_of(const Kernel *k, int v)
{
    for (uint32_t i = 0; i < k->nins; i++)
        if (k->ins[i].kind == K_STORE && k->ins[i].arg[0] == v && k->ins[i].stride[k->rank - 1] != 0)
            return &k->ins[i];
    return NULL;
}

/* Per instruction: does its value depend on a reduction of rows? */
static bool *find_reduced(const Kernel *k, Arena *a)
{
    bool *reduced = NEW(a, bool, k->nins + 1);
    for (uint32_t i = 0; i < k->nins; i++) {
        reduced[i] = k_reduces(&k->ins[i]);
        for (int arg = 0; arg < k_nargs(&k->ins[i]); arg++)
            reduced[i] |= reduced[k->ins[i].arg[arg]];
    }
    return reduced;
}

/* Computes v in `part` from loads of what k stores; false: k does not store all that v needs. */
static bool load_stored(const Kernel *k, Kernel *part, int v)
{
    const KInst *in = &k->ins[v], *st = store_of(k, v);
    if (st) {
        part->ins[v] = *st;
        part->ins[v].kind = K_LOAD;
        part->ins[v].type = in->type;
        return true;
    }
    bool ok = in->kind == K_EXPR || in->kind == K_CONST || in->kind == K_INDEX;
    for (int a = 0; a < k_nargs(in) && ok; a++)
        ok = load_stored(k, part, in->arg[a]);
    return ok;
}

static Kernel copy_kernel(const Kernel *k, Arena *a)
{
    Kernel part = *k;
    part.arena = a;
    part.flops = 0;
    part.ins = NEW(a, KInst, k->nins + 1);
    for (uint32_t i = 0; i < k->nins; i++)
        part.ins[i] = k->ins[i];
    return part;
}

/* Instructions that none of the marked stores needs become constants, unmarked stores too; random draws stay,
 * because their keys are numbered in order. */
static void keep_stores(Kernel *k, const bool *store, Arena *a)
{
    bool *keep = NEW(a, bool, k->nins + 1);
    for (uint32_t i = k->nins; i-- > 0;) {
        KInst *in = &k->ins[i];
        keep[i] |= in->kind == K_STORE && store[i];
        for (int arg = 0; arg < k_nargs(in) && keep[i]; arg++)
            keep[in->arg[arg]] = true;
        if (!keep[i] && !(in->kind == K_EXPR && in->expr->cost >= EXPR_UNIFORM))
            *in = (KInst){.kind = K_CONST, .type = in->type};
    }
}

/* Makes kernel 1 (late: false) or 3 (true) of the list at the top; false: it has nothing to do. */
static bool column_part(const Kernel *k, const bool *reduced, bool late, Kernel *out, Arena *a)
{
    bool *store = NEW(a, bool, k->nins + 1), any = false;
    *out = copy_kernel(k, a);
    for (uint32_t i = 0; i < k->nins; i++) {
        store[i] = is_column_store(k, &k->ins[i]) && reduced[i] == late;
        any |= store[i];
        if (store[i])
            out->ins[k->ins[i].arg[0]].kind = K_SUM;
        if (store[i] && late)
            (void)load_stored(k, out, k->ins[k->ins[i].arg[0]].arg[0]);
    }
    out->red = ((1u << k->rank) - 1) & ~k->red;
    keep_stores(out, store, a);
    return any;
}

/* Makes kernel 2 of that list; false: it has nothing to do. */
static bool row_part(const Kernel *k, Kernel *out, Arena *a)
{
    bool *store = NEW(a, bool, k->nins + 1), any = false;
    *out = copy_kernel(k, a);
    for (uint32_t i = 0; i < k->nins; i++) {
        store[i] = k->ins[i].kind == K_STORE && !is_column_store(k, &k->ins[i]);
        any |= store[i];
    }
    keep_stores(out, store, a);
    return any;
}

int kernel_split_columns(const Kernel *k, Kernel part[KERNEL_PARTS], Arena *a)
{
    int n = 0;
    if (!kernel_has_column_sums(k)) {
        part[0] = *k;
        return 1;
    }
    const bool *reduced = find_reduced(k, a);
    n += column_part(k, reduced, false, &part[n], a);
    n += row_part(k, &part[n], a);
    n += column_part(k, reduced, true, &part[n], a);
    return n;
}

bool kernel_can_split_columns(const Kernel *k)
{
    Arena a = {0};
    bool *reduced = find_reduced(k, &a), ok = true;
    Kernel part = copy_kernel(k, &a);
    for (uint32_t i = 0; i < k->nins && ok; i++)
        ok = k->ins[i].kind != K_COLUMN_SUM || !reduced[i] || load_stored(k, &part, k->ins[i].arg[0]);
    arena_free(&a);
    return ok;
}

int kernel_awaited(const Kernel *k, const Val *vals, Val *awaited)
{
    Arena a = {0};
    const bool *reduced = find_reduced(k, &a);
    int n = 0;
    for (uint32_t i = 0; i < k->nins; i++)
        for (uint32_t j = 0; j < i && k->ins[i].kind == K_COLUMN_SUM && reduced[k->ins[i].arg[0]]; j++)
            if (k->ins[j].kind == K_STORE && k->ins[j].arg[0] == k->ins[i].arg[0])
                awaited[n++] = vals[k->ins[j].operand];
    arena_free(&a);
    return n;
}
