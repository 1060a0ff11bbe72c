/* schedule.c -- loop analysis of DAG kernels: merge dimensions, find levels, scopes and passes.
 *
 * Linear in the instructions except for the removal of equal loads (quadratic in loads). */
#include "schedule.h"
#include <string.h>

/* ---- dimensions ----------------------------------------------------------------- */

static void remove_dim(Sched *s, int d)
{
    for (int i = d; i + 1 < s->rank; i++)
        s->extent[i] = s->extent[i + 1];
    s->red = (s->red & ((1u << d) - 1)) | (s->red >> (d + 1) << d);
    uint32_t before = d ? (s->apart >> d & 1) << (d - 1) : 0;
    s->apart = (s->apart & ((1u << d) - 1)) | before | (s->apart >> (d + 1) << d);
    for (uint32_t i = 0; i < s->n; i++)
        for (int j = d; j + 1 < s->rank; j++)
            s->ins[i].stride[j] = s->ins[i].stride[j + 1];
    s->rank--;
}

/* Can dimensions d and d + 1 become one, as every access steps through them as through one? */
static bool can_merge(const Sched *s, int d)
{
    if ((s->red >> d & 1) != (s->red >> (d + 1) & 1) || (s->apart >> d & 1))
        return false;
    for (uint32_t i = 0; i < s->n; i++)
        if (k_addresses(&s->ins[i]) &&
            s->ins[i].stride[d] != s->ins[i].stride[d + 1] * s->extent[d + 1])
            return false;
    return true;
}

static void merge_dims(Sched *s)
{
    for (int d = s->rank; d-- > 0;)
        if (s->extent[d] == 1)
            remove_dim(s, d);
    for (int d = s->rank - 1; d-- > 0;)
        if (can_merge(s, d)) {
            s->extent[d + 1] *= s->extent[d];
            remove_dim(s, d);
        }
    if (s->rank == 0) { /* a single point */
        s->rank = 1;
        s->extent[0] = 1;
        s->red = 0;
        for (uint32_t i = 0; i < s->n; i++)
            s->ins[i].stride[0] = 0;
    }
}

/* ---- instructions ---------------------------------------------------------------- */

static bool same_value(const Sched *s, const KInst *a, const KInst *b)
{
    if (a->kind != b->kind || a->type != b->type || (a->kind != K_LOAD && a->kind != K_INDEX))
        return false;
    return a->operand == b->operand && a->offset == b->offset &&
           memcmp(a->stride, b->stride, (size_t)s->rank * sizeof *a->stride) == 0;
}

/* Makes equal loads one; replaces reductions by their arguments if nothing is reduced. */
static void share_values(Sched *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        KInst *in = &s->ins[i];
        for (int a = 0; a < k_nargs(in); a++)
            while (!s->red && k_reduces(&s->ins[in->arg[a]]))
                in->arg[a] = s->ins[in->arg[a]].arg[0];
        for (int a = 0; a < k_nargs(in); a++)
            for (uint32_t j = 0; j < (uint32_t)in->arg[a]; j++)
                if (same_value(s, &s->ins[j], &s->ins[in->arg[a]]))
                    in->arg[a] = (int)j;
    }
}

static void find_levels(Sched *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        const KInst *in = &s->ins[i];
        for (int d = 0; d < s->rank && k_addresses(in); d++)
            if (in->stride[d])
                s->dep[i] |= 1u << d;
        for (int a = 0; a < k_nargs(in); a++) {
            s->dep[i] |= s->dep[in->arg[a]];
            if (s->level[in->arg[a]] > s->level[i])
                s->level[i] = s->level[in->arg[a]];
        }
        if (in->kind == K_COLUMN_SUM)
            s->dep[i] &= s->red;
        if (k_reduces(in)) {
            s->level[i]++;
            s->dep[i] &= ~s->red;
            if (s->kind == SCHED_COLUMN) /* every column has its accumulator */
                s->dep[i] |= 1u << s->vec;
        }
    }
}

static void find_live(Sched *s)
{
    for (uint32_t i = s->n; i-- > 0;) {
        s->live[i] |= s->ins[i].kind == K_STORE;
        for (int a = 0; a < k_nargs(&s->ins[i]) && s->live[i]; a++)
            s->live[s->ins[i].arg[a]] = true;
    }
}

static void find_shaping(Sched *s)
{
    bool any = false;
    for (uint32_t i = s->n; i-- > 0;) {
        bool reduces = s->live[i] && k_reduces(&s->ins[i]);
        any |= reduces;
        for (int a = 0; a < k_nargs(&s->ins[i]) && (reduces || s->shaping[i]); a++)
            s->shaping[s->ins[i].arg[a]] = true;
    }
    if (!any)
        memcpy(s->shaping, s->live, s->n * sizeof *s->shaping);
    s->nshaping = 0;
    for (uint32_t i = 0; i < s->n; i++)
        s->nshaping += s->shaping[i];
}

/* The dimension along which an operand that strides along the vector dimension is contiguous; -1: none. */
static int find_tile(const Sched *s)
{
    for (uint32_t i = 0; i < s->n && s->kind == SCHED_POINT; i++) {
        const KInst *in = &s->ins[i];
        if (in->kind != K_LOAD || in->stride[s->vec] == 0 || in->stride[s->vec] == 1)
            continue;
        for (int d = 0; d < s->vec; d++)
            if (in->stride[d] == 1 && s->extent[d] > 1)
                return d;
    }
    return -1;
}

static Scope scope_of(const Sched *s, uint32_t i)
{
    uint32_t vec = 1u << s->vec, dep = s->dep[i];
    if (s->kind == SCHED_COLUMN && (dep & vec) && !(dep & s->red) && s->level[i] > 0)
        return SCOPE_COLUMN;
    if (dep & vec)
        return SCOPE_VECTOR;
    uint32_t outer = s->tile < 0 ? s->red : 1u << s->tile;
    return dep & outer ? SCOPE_OUTER : SCOPE_ITEM;
}

bool sched_is_heavy(const KInst *in)
{
    return in->kind == K_EXPR && in->expr->cost >= EXPR_CALL;
}

bool sched_is_plain(const KInst *in) { return in->kind < K_SUM; }

bool sched_reduces_at(const Sched *s, uint32_t i, int pass)
{
    return s->live[i] && k_reduces(&s->ins[i]) && s->level[i] == pass + 1;
}

bool sched_is_reduced_store(const Sched *s, uint32_t i)
{
    return s->ins[i].kind == K_STORE && s->red && !(s->dep[i] & s->red);
}

/* Marks as saved the row values that are costly and needed in a later pass than the one that makes them. */
static void find_saved(Sched *s, int64_t row_buffer, bool *costly)
{
    if (s->kind != SCHED_ROW || s->red != 1u << s->vec || s->nred > row_buffer || !row_buffer)
        return;
    for (uint32_t i = 0; i < s->n; i++) {
        const KInst *in = &s->ins[i];
        int pass = k_reduces(in) ? s->level[i] - 1 : s->level[i];
        if ((in->kind == K_STORE && s->scope[i] == SCOPE_VECTOR) || in->kind == K_COLUMN_SUM)
            pass = s->last;
        costly[i] = sched_is_heavy(in);
        for (int a = 0; a < k_nargs(in) && s->live[i]; a++) {
            int v = in->arg[a];
            if (s->scope[v] != SCOPE_VECTOR || !costly[v])
                continue;
            if (s->level[v] < pass)
                s->saved[v] = true;
            else
                costly[i] = true;
        }
    }
}

void sched_make(Sched *s, const Kernel *k, int64_t row_buffer, Arena *a)
{
    *s = (Sched){.k = k, .rank = k->rank, .red = k->red, .apart = k->apart, .n = k->nins};
    memcpy(s->extent, k->extent, sizeof s->extent);
    s->ins = NEW(a, KInst, k->nins + 1);
    if (k->nins)
        memcpy(s->ins, k->ins, k->nins * sizeof *k->ins);
    s->level = NEW(a, int, k->nins + 1);
    s->dep = NEW(a, uint32_t, k->nins + 1);
    s->scope = NEW(a, Scope, k->nins + 1);
    s->live = NEW(a, bool, k->nins + 1);
    s->shaping = NEW(a, bool, k->nins + 1);
    s->saved = NEW(a, bool, k->nins + 1);
    s->early = NEW(a, bool, k->nins + 1);
    for (uint32_t i = 0; i < k->nins; i++)
        s->early[i] = kernel_stores_early(k, i);
    s->f64 = kernel_is_f64(k);
    merge_dims(s);
    share_values(s);
    s->vec = s->rank - 1;
    s->kind = !s->red ? SCHED_POINT : s->red >> s->vec & 1 ? SCHED_ROW : SCHED_COLUMN;
    s->tile = find_tile(s);
    find_levels(s);
    find_live(s);
    find_shaping(s);
    s->nitem = s->nred = 1;
    for (int d = 0; d < s->rank; d++)
        if (s->red >> d & 1)
            s->nred *= s->extent[d];
        else if (d != s->vec)
            s->nitem *= s->extent[d];
    for (uint32_t i = 0; i < s->n; i++) {
        bool walks = k_reduces(&s->ins[i]) || (s->dep[i] & s->red);
        int pass = s->level[i] - k_reduces(&s->ins[i]);
        s->scope[i] = scope_of(s, i);
        if (walks && s->live[i] && pass > s->last)
            s->last = pass;
    }
    find_saved(s, row_buffer, NEW(a, bool, k->nins + 1));
}

bool sched_is_staged(const Sched *s, uint32_t i)
{
    const KInst *in = &s->ins[i];
    return s->tile >= 0 && in->kind == K_LOAD && s->live[i] && in->stride[s->tile] == 1 &&
           in->stride[s->vec] != 0 && in->stride[s->vec] != 1;
}

/* ---- what a pass computes -------------------------------------------------------- */

bool sched_is_root(const Sched *s, uint32_t i, int pass)
{
    const KInst *in = &s->ins[i];
    if (!s->live[i])
        return false;
    if (k_reduces(in))
        return s->level[i] == pass + 1;
    bool walks = !s->red || (s->dep[i] & s->red);
    if (in->kind == K_COLUMN_SUM)
        return pass == s->last;
    return in->kind == K_STORE && !sched_is_column_store(s, i) && walks &&
           pass == (s->early[i] ? s->level[i] : s->last);
}

void sched_read_back(const Sched *s, int pass, bool *wide)
{
    for (uint32_t st = 0; st < s->n; st++)
        for (uint32_t i = 0; i < s->n && s->early[st] && s->level[st] == pass; i++)
            if (kernel_is_read_back(s->k, st, i)) {
                s->ins[i] = s->ins[st];
                s->ins[i].kind = K_LOAD;
                if (wide)
                    wide[i] = wide[st];
            }
}

/* Walks back from the roots, stopping at values that are already computed: reductions, item and column
 * values, and saved values of earlier passes. */
void sched_vector_set(const Sched *s, int pass, bool *mark)
{
    for (uint32_t i = s->n; i-- > 0;) {
        const KInst *in = &s->ins[i];
        bool root = sched_is_root(s, i, pass);
        bool keep = s->saved[i] && s->level[i] == pass;
        mark[i] |= root || keep;
        bool at_hand = !root && (k_reduces(in) || s->scope[i] == SCOPE_ITEM ||
                                 s->scope[i] == SCOPE_COLUMN ||
                                 (s->saved[i] && s->level[i] < pass));
        mark[i] &= !at_hand;
        for (int a = 0; a < k_nargs(in) && mark[i]; a++)
            mark[in->arg[a]] = true;
    }
}
