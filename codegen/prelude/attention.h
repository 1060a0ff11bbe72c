/* attention.h -- attention in blocks for the vectors of a CPU; pasted in front of its kernel, whose
 * parameters are A_BATCH.. and A_SCALE.. (ir/attention_kernel.h) and whose functions are AT(name).  The key
 * of dropout is an argument.  A_TYPE, A_BIAS_TYPE and A_SINK_TYPE are the types in memory of q, k, v, o and
 * do, of the bias and of the sinks; 16-bit ones are widened block by block.  Gradients are REAL.  Where
 * factors are pairs of bf16 (attention_product.h), probabilities and slopes of scores are rounded to them,
 * the sums are not.
 *
 * Blocks of 64 rows of q are multiplied with blocks of 64 rows of k.  Scores are transposed, [column][row],
 * so that sums and maxima over columns run in vectors of rows, and all five products have one form, a matrix
 * of scalars times a matrix whose rows are vectors.  Only q and do are transposed, once per block of rows.
 * Whole blocks of REAL are read in place; others are copied and padded with zeros.
 *
 * One thread works on a block of rows (forward), a head of k and v (backward) or rows of the bias, in a fixed
 * order, so that the number of threads does not matter.  A thread needs some 10 blocks on its stack. */
#define A_LIMITED (A_RIGHT < A_COLS - 1 || A_LEFT < A_ROWS - 1)
#define A_CAPPED (A_CAP > 0)

/* ---- scores ------------------------------------------------------------------------------- */

typedef struct {
    int64_t b, h, r0, nr, c0, nc; /* batch, head; first row, number of rows; the same of columns */
    int64_t wr;                   /* number of rows, rounded up to whole vectors */
    int64_t key;                  /* key of dropout */
} AT(Place);

FN int AT(hidden)(const void *mask, AT(Place) at, int64_t c, int64_t r)
{
    return ((const uint8_t *)mask)[at.b * A_MASK_BATCH + at.h * A_MASK_HEAD + (at.r0 + r) * A_MASK_ROW +
                                   (at.c0 + c) * A_MASK_COL];
}

FN int AT(within)(AT(Place) at, int64_t c, int64_t r)
{
    return at.c0 + c <= at.r0 + r + A_RIGHT && at.c0 + c >= at.r0 + r - A_LEFT;
}

FN void AT(set_rows)(AT(Place) *at)
{
    at->nr = A_MIN(A_R, A_ROWS - at->r0);
    at->wr = (at->nr + 15) / 16 * 16;
}

/* AT(limited): is a part of the block beyond the limits?  AT(beyond): is all of it? */
FN int AT(limited)(AT(Place) at)
{
    return at.c0 + at.nc - 1 > at.r0 + A_RIGHT || at.c0 < at.r0 + at.nr - 1 - A_LEFT;
}

FN int AT(beyond)(AT(Place) at)
{
    return at.c0 > at.r0 + at.nr - 1 + A_RIGHT || at.c0 + at.nc - 1 < at.r0 - A_LEFT;
}

/* Sets x[column][row] to `to`, or adds `to` (keep), where the position is beyond the limits or masked. */
FN void AT(hide)(REAL *x, const void *mask, AT(Place) at, int keep, REAL to)
{
    for (int64_t c = 0; c < at.nc && A_LIMITED && AT(limited)(at); c++)
        for (int64_t r = 0; r < at.wr; r++)
            x[c * A_R + r] = AT(within)(at, c, r) ? x[c * A_R + r]
                             : keep                  ? x[c * A_R + r] + to
                                                     : to;
    for (int64_t c = 0; c < at.nc && A_MASK; c++)
        for (int64_t r = 0; r < at.nr; r++)
            if (AT(hidden)(mask, at, c, r) && (!keep || !A_LIMITED || AT(within)(at, c, r)))
                x[c * A_R + r] = keep ? x[c * A_R + r] + to : to;
}

/* Turns s[column][row], which is scale * q k (q k where factors are pairs), into scores; slope (may be NULL):
 * the derivative of the scores by scale * q k. */
FN void AT(scores)(REAL *s, REAL *slope, const void *mask, const void *bias, AT(Place) at)
{
    for (int64_t c = 0; c < at.nc && A_PAIRS; c++)
        for (int64_t r = 0; r < at.wr; r++)
            s[c * A_R + r] *= A_SCALE;
    for (int64_t c = 0; c < at.nc && A_CAPPED; c++) {
#pragma omp simd
        for (int64_t r = 0; r < at.wr; r++) {
            const REAL t = TANH(s[c * A_R + r] / A_CAP);
            s[c * A_R + r] = A_CAP * t;
            if (slope)
                slope[c * A_R + r] = 1 - t * t;
        }
    }
    if (A_HIDES == A_HIDES_SCORE)
        AT(hide)(s, mask, at, 0, A_FILL);
    const A_MEMORY(A_BIAS_TYPE) *added = bias;
    if (A_BIAS)
        added += at.b * A_BIAS_BATCH + at.h * A_BIAS_HEAD + at.r0 * A_BIAS_ROW + at.c0 * A_BIAS_COL;
    for (int64_t c = 0; c < at.nc && A_BIAS; c++)
        for (int64_t r = 0; r < at.nr; r++)
            s[c * A_R + r] += R(CAT(LD_, A_BIAS_TYPE)(added, r * A_BIAS_ROW + c * A_BIAS_COL));
    if (A_HIDES != A_HIDES_SCORE)
        AT(hide)(s, mask, at, A_HIDES == A_HIDES_ADDED, A_FILL);
}

/* Do masked scores, A_FILL, count in some row because all scores of the row are as low? */
FN int AT(filled)(const REAL *top, int64_t nr)
{
    int low = A_FILL > R(-1e30);
    for (int64_t r = 0; r < nr && A_FILL > -INF_; r++)
        low |= top[r] < A_FILL / 2;
    return low;
}

#if A_DROPOUT
#define A_KEEP(bits) (R(bits) * R(5.9604644775390625e-8) >= A_DROP_BELOW ? A_KEEP_FACTOR : R(0))

/* Sets keep[column][row] to the factors of dropout.  A draw serves four consecutive columns. */
FN void AT(kept)(REAL *keep, const int64_t *rng, AT(Place) at)
{
    const uint64_t low = 0xFFFFFFFFu, t = (uint64_t)rng[1];
    const uint64_t s = (uint64_t)rng[0], k = (uint64_t)at.key;
    const int64_t row = (at.b * A_HEADS + at.h) * A_ROWS + at.r0;
#if A_COLS % 4 == 0
    for (int64_t c = 0; c < at.nc; c += 4) {
#pragma omp simd
        for (int64_t r = 0; r < at.wr; r++) {
            uint64_t i = (uint64_t)((row + r) * A_COLS + at.c0 + c) >> 2;
            uint64_t c0 = i & low, c1 = i >> 32, c2 = t & low, c3 = t >> 32;
            uint64_t k0 = (s ^ (s >> 32)) & low, k1 = (k ^ (k >> 32)) & low;
            PHILOX_WIDE_ROUNDS(c0, c1, c2, c3, k0, k1);
            keep[c * A_R + r] = A_KEEP((int32_t)(c0 >> 8));
            keep[(c + 1) * A_R + r] = A_KEEP((int32_t)(c1 >> 8));
            keep[(c + 2) * A_R + r] = A_KEEP((int32_t)(c2 >> 8));
            keep[(c + 3) * A_R + r] = A_KEEP((int32_t)(c3 >> 8));
        }
    }
#else
    int32_t bits[A_C + 6];
    for (int64_t r = 0; r < at.wr; r++) {
        int64_t first = (row + r) * A_COLS + at.c0;
        philox_fill(bits, at.nc, rng[0], at.key, rng[1], first);
        for (int64_t c = 0; c < at.nc; c++)
            keep[c * A_R + r] = A_KEEP(bits[(first & 3) + c]);
    }
#endif
}
#endif

/* ---- forward ------------------------------------------------------------------------------- */

/* Replaces s by exp(s - top), and adjusts the maximum, the sum and the result so far to the new maximum. */
FN void AT(exponentials)(REAL *s, int64_t nc, int64_t wr, REAL *top, REAL *sum, REAL *acc)
{
    A_TILE(base, A_R);
    A_TILE(part, A_R);
    A_TILE(shrink, A_R);
    for (int64_t r = 0; r < wr; r++)
        part[r] = top[r];
    for (int64_t c = 0; c < nc; c++)
        for (int64_t r = 0; r < wr; r++)
            part[r] = s[c * A_R + r] > part[r] ? s[c * A_R + r] : part[r];
#pragma omp simd
    for (int64_t r = 0; r < wr; r++) {
        base[r] = part[r] == -INF_ ? R(0) : part[r]; /* nothing seen yet */
        shrink[r] = EXP(top[r] - base[r]);
        top[r] = part[r];
        part[r] = 0;
    }
    for (int64_t c = 0; c < nc; c++) {
#pragma omp simd
        for (int64_t r = 0; r < wr; r++) {
            s[c * A_R + r] = EXP(s[c * A_R + r] - base[r]);
            part[r] += s[c * A_R + r];
        }
    }
    for (int64_t r = 0; r < wr; r++)
        sum[r] = sum[r] * shrink[r] + part[r];
    for (int64_t r = 0; r < wr; r++)
        for (int64_t d = 0; d < A_WIDE(A_V_SIZE); d++)
            acc[r * A_WIDE(A_V_SIZE) + d] *= shrink[r];
}

#if A_PHASE == A_PHASE_FORWARD
typedef struct {
    A_FACTOR(q, A_DEPTH(A_SIZE) * A_R); /* transposed */
    A_TILE(acc, A_R * A_WIDE(A_V_SIZE));
    A_TILE(top, A_R);
    A_TILE(sum, A_R);
} AT(Sums);

FN void AT(forward_block)(AT(Sums) *w, void *const *op, AT(Place) at)
{
    A_TILE(s, A_C * A_R);
    A_FACTOR(room_k, A_C * A_WIDE(A_SIZE));
    A_FACTOR(room_v, A_C * A_WIDE(A_V_SIZE));
    A_FACTOR(room_s, A_PAIRS ? A_C * A_R / 2 : 1);
    const int64_t g = at.h / (A_HEADS / A_GROUPS);
    const A_T *k0 = (const A_T *)op[1] + A_K_FIRST + at.b * A_K_BATCH + g * A_K_HEAD + at.c0 * A_K_ROW;
    const A_T *v0 = (const A_T *)op[2] + A_V_FIRST + at.b * A_V_BATCH + g * A_V_HEAD + at.c0 * A_V_ROW;
    int64_t nk, nv;
    const A_F *k = AT(block)(room_k, k0, A_K_ROW, at.nc, A_C, A_SIZE, &nk);
    const A_F *v = AT(stacked)(room_v, v0, A_V_ROW, at.nc, A_C, A_V_SIZE, &nv);
    AT(product)(s, A_R, k, nk, 1, w->q, A_R, A_STEPS(at.nc), at.wr, A_DEPTH(A_SIZE), 0);
    AT(scores)(s, 0, op[3], op[4], at);
    AT(exponentials)(s, at.nc, at.wr, w->top, w->sum, w->acc);
#if A_DROPOUT
    A_TILE(keep, A_C * A_R);
    AT(kept)(keep, op[6], at);
    for (int64_t i = 0; i < at.nc * A_R; i++)
        s[i] *= keep[i];
#endif
    AT(product)
    (w->acc, A_WIDE(A_V_SIZE), AT(by_columns)(room_s, s, at.nc, at.wr), A_S_ROW, A_S_TERM, v, nv, at.wr,
     A_WIDE(A_V_SIZE), A_DEPTH(at.nc), 1);
}

/* Works on the blocks of columns that the rows see (seen 1), or on those that they do not see. */
FN void AT(forward_blocks)(AT(Sums) *w, void *const *op, AT(Place) at, int seen)
{
    for (at.c0 = 0; at.c0 < A_COLS; at.c0 += A_C) {
        at.nc = A_MIN(A_C, A_COLS - at.c0);
        if (AT(beyond)(at) != seen)
            AT(forward_block)(w, op, at);
    }
}

FN void AT(forward_rows)(void *const *op, AT(Place) at)
{
    AT(Sums) w;
    const A_T *q0 = (const A_T *)op[0] + A_Q_FIRST + at.b * A_Q_BATCH + at.h * A_Q_HEAD + at.r0 * A_Q_ROW;
    AT(transposed)(w.q, q0, A_Q_ROW, at.nr, A_SIZE, A_SCALE);
    for (int64_t r = 0; r < A_R; r++) {
        w.top[r] = A_SINK ? R(CAT(LD_, A_SINK_TYPE)((const A_MEMORY(A_SINK_TYPE) *)op[5], at.h)) : -INF_;
        w.sum[r] = A_SINK;
    }
    for (int64_t i = 0; i < A_R * A_WIDE(A_V_SIZE); i++)
        w.acc[i] = 0;
    AT(forward_blocks)(&w, op, at, 1);
    if (A_LIMITED && AT(filled)(w.top, at.nr))
        AT(forward_blocks)(&w, op, at, 0);
    const int64_t line = (at.b * A_HEADS + at.h) * A_ROWS + at.r0;
    A_T *o = (A_T *)op[7] + at.b * A_O_BATCH + at.h * A_O_HEAD + at.r0 * A_O_ROW;
    for (int64_t r = 0; r < at.nr; r++) {
        const int zero = A_GUARD == A_GUARD_UNSEEN ? w.sum[r] == 0
                                                   : A_GUARD != A_GUARD_NONE && !(w.sum[r] > 0);
        ((REAL *)op[8])[line + r] = w.top[r];
        ((REAL *)op[9])[line + r] = zero ? R(0) : 1 / w.sum[r];
        for (int64_t d = 0; d < A_V_SIZE; d++)
            CAT(ST_, A_TYPE)(o, r * A_O_ROW + d, zero ? R(0) : w.acc[r * A_WIDE(A_V_SIZE) + d] / w.sum[r]);
    }
}

static void AT(run)(void *const *op, int64_t key)
{
    const int64_t blocks = (A_ROWS + A_R - 1) / A_R;
#pragma omp parallel for schedule(dynamic)
    for (int64_t i = 0; i < A_BATCH * A_HEADS * blocks; i++) {
        AT(Place) at = {.b = i / blocks / A_HEADS, .h = i / blocks % A_HEADS,
                        .r0 = i % blocks * A_R, .key = key};
        AT(set_rows)(&at);
        A_BEGIN();
        AT(forward_rows)(op, at);
        A_END();
    }
}
#else

/* ---- backward ------------------------------------------------------------------------------ */

/* Operands, results and statistics of the rows of a block. */
typedef struct {
    A_FACTOR(q, A_DEPTH(A_SIZE) * A_R); /* transposed */
    A_FACTOR(g, A_DEPTH(A_V_SIZE) * A_R); /* do, transposed */
    A_FACTOR(room_q, A_TERMS(A_R) * A_WIDE(A_SIZE));
    A_FACTOR(room_g, A_TERMS(A_R) * A_WIDE(A_V_SIZE));
    A_TILE(dq, A_R * A_WIDE(A_SIZE));
    A_TILE(top, A_R);
    A_TILE(inv, A_R);
    A_TILE(delta, A_R);
    const A_F *q_rows, *g_rows;
    int64_t nq, ng;
} AT(Rows);

FN void AT(open_rows)(AT(Rows) *w, void *const *op, AT(Place) at)
{
    const int64_t o_at = at.b * A_O_BATCH + at.h * A_O_HEAD + at.r0 * A_O_ROW;
    const int64_t line = (at.b * A_HEADS + at.h) * A_ROWS + at.r0;
    const A_T *q = (const A_T *)op[1] + A_Q_FIRST + at.b * A_Q_BATCH + at.h * A_Q_HEAD + at.r0 * A_Q_ROW;
    const A_T *g = (const A_T *)op[0] + o_at, *o = (const A_T *)op[4] + o_at;
    AT(transposed)(w->q, q, A_Q_ROW, at.nr, A_SIZE, A_SCALE);
    AT(transposed)(w->g, g, A_O_ROW, at.nr, A_V_SIZE, R(1));
    w->q_rows = AT(stacked)(w->room_q, q, A_Q_ROW, at.nr, A_R, A_SIZE, &w->nq);
    w->g_rows = AT(stacked)(w->room_g, g, A_O_ROW, at.nr, A_R, A_V_SIZE, &w->ng);
    for (int64_t i = 0; i < A_R * A_WIDE(A_SIZE); i++)
        w->dq[i] = 0;
    for (int64_t r = 0; r < A_R; r++) {
        REAL lane[16] = {0};
        for (int64_t d = 0; d < A_V_SIZE && r < at.nr; d += 16)
            for (int64_t l = 0; l < A_MIN(16, A_V_SIZE - d); l++)
                lane[l] += A_LD(g, r * A_O_ROW + d + l) * A_LD(o, r * A_O_ROW + d + l);
        TREE(ADD, lane, 16);
        w->delta[r] = lane[0];
        w->top[r] = r < at.nr ? ((const REAL *)op[5])[line + r] : 0;
        w->inv[r] = r < at.nr ? ((const REAL *)op[6])[line + r] : 0;
    }
}

/* Replaces q k in s by p, and do v in t by ds, the derivative by the scores; slope: theirs by scale * q k. */
FN void AT(slopes)(REAL *s, REAL *t, REAL *slope, const AT(Rows) *w, void *const *op, AT(Place) at)
{
    A_TILE(keep, A_DROPOUT ? A_C * A_R : 1);
#if A_DROPOUT
    AT(kept)(keep, op[9], at);
#endif
    AT(scores)(s, slope, op[7], op[8], at);
    for (int64_t c = 0; c < at.nc; c++) {
#pragma omp simd
        for (int64_t r = 0; r < at.wr; r++) {
            const int64_t i = c * A_R + r;
            const REAL e = EXP(s[i] - w->top[r]) * w->inv[r], p = w->inv[r] == 0 ? R(0) : e;
            const REAL k = A_DROPOUT ? keep[i] : R(1);
            s[i] = p * k;
            t[i] = p * (k * t[i] - w->delta[r]);
        }
    }
}

/* Computes q k and do v of a block, then p and ds by AT(slopes). */
FN void AT(block_slopes)(REAL *s, REAL *t, REAL *slope, const A_F *k, int64_t nk, const A_F *v,
                         int64_t nv, const AT(Rows) *w, void *const *op, AT(Place) at)
{
    const int64_t m = A_STEPS(at.nc);
    AT(product)(s, A_R, k, nk, 1, w->q, A_R, m, at.wr, A_DEPTH(A_SIZE), 0);
    AT(product)(t, A_R, v, nv, 1, w->g, A_R, m, at.wr, A_DEPTH(A_V_SIZE), 0);
    AT(slopes)(s, t, slope, w, op, at);
}

#define A_KEYS(form, room, n)                                                                                \
    AT(form)                                                                                                 \
    (room, (const A_T *)op[2] + A_K_FIRST + at.b * A_K_BATCH + g * A_K_HEAD + at.c0 * A_K_ROW, A_K_ROW,      \
     at.nc, A_C, A_SIZE, n)
#define A_VALUES(room, n)                                                                                    \
    AT(block)                                                                                                \
    (room, (const A_T *)op[3] + A_V_FIRST + at.b * A_V_BATCH + g * A_V_HEAD + at.c0 * A_V_ROW, A_V_ROW,      \
     at.nc, A_C, A_V_SIZE, n)

/* Does the block add nothing to the gradients? */
FN int AT(skipped)(const AT(Rows) *w, AT(Place) at)
{
    return A_LIMITED && AT(beyond)(at) && !AT(filled)(w->top, at.nr);
}

#if A_PHASE == A_PHASE_BACKWARD
#define A_DQ ((REAL *)op[10] + A_Q_FIRST)
#define A_DK ((REAL *)op[A_PACKED ? 10 : 11] + A_K_FIRST)
#define A_DV ((REAL *)op[A_PACKED ? 10 : 12] + A_V_FIRST)

FN void AT(backward_block)(AT(Rows) *w, void *const *op, AT(Place) at)
{
    A_TILE(s, A_C * A_R);
    A_TILE(t, A_C * A_R);
    A_TILE(slope, A_CAPPED ? A_C * A_R : 1);
    A_TILE(room, A_C * A_MAX(A_WIDE(A_SIZE), A_WIDE(A_V_SIZE)));
    A_FACTOR(room_k, A_C * A_WIDE(A_SIZE));
    A_FACTOR(room_v, A_C * A_WIDE(A_V_SIZE));
    A_FACTOR(room_s, A_PAIRS ? A_C * A_R / 2 : 1);
    const int64_t g = at.h / (A_HEADS / A_GROUPS), m = A_STEPS(at.nc);
    int64_t nk, nv;
    const A_F *k = A_KEYS(block, room_k, &nk), *v = A_VALUES(room_v, &nv);
    AT(block_slopes)(s, t, slope, k, nk, v, nv, w, op, at);
    for (int64_t c = 0; c < at.nc; c++)
        for (int64_t r = 0; r < at.wr; r++)
            t[c * A_R + r] *= A_CAPPED ? A_SCALE * slope[c * A_R + r] : A_SCALE;
    if (A_HIDES != A_HIDES_ADDED)
        AT(hide)(t, op[7], at, 0, 0);
    for (int64_t i = at.nc * A_R; i < m * A_R; i++)
        s[i] = t[i] = 0;
    if (A_PAIRS)
        k = A_KEYS(stacked, room_k, &nk);
    AT(product)
    (w->dq, A_WIDE(A_SIZE), AT(by_columns)(room_s, t, at.nc, at.wr), A_S_ROW, A_S_TERM, k, nk, at.wr,
     A_WIDE(A_SIZE), A_DEPTH(at.nc), 1);
    REAL *dv = A_DV + at.b * A_V_BATCH + g * A_V_HEAD + at.c0 * A_V_ROW;
    REAL *dk = A_DK + at.b * A_K_BATCH + g * A_K_HEAD + at.c0 * A_K_ROW;
    AT(accumulate)(dv, A_V_ROW, AT(by_rows)(room_s, s, m, at.wr), w->g_rows, w->ng, at.nc, at.wr,
                   A_V_SIZE, room);
    AT(accumulate)(dk, A_K_ROW, AT(by_rows)(room_s, t, m, at.wr), w->q_rows, w->nq, at.nc, at.wr, A_SIZE,
                   room);
}

FN void AT(clear)(REAL *x, int64_t stride, int64_t size)
{
    for (int64_t c = 0; c < A_COLS; c++)
        for (int64_t d = 0; d < size; d++)
            x[c * stride + d] = 0;
}

/* Computes the gradients of a head of k and v, and of all rows of q that use it. */
FN void AT(backward_head)(void *const *op, int64_t b, int64_t g, int64_t key)
{
    AT(Rows) w;
    AT(Place) at = {.b = b, .key = key};
    AT(clear)(A_DK + b * A_K_BATCH + g * A_K_HEAD, A_K_ROW, A_SIZE);
    AT(clear)(A_DV + b * A_V_BATCH + g * A_V_HEAD, A_V_ROW, A_V_SIZE);
    for (at.h = g * (A_HEADS / A_GROUPS); at.h < (g + 1) * (A_HEADS / A_GROUPS); at.h++)
        for (at.r0 = 0; at.r0 < A_ROWS; at.r0 += A_R) {
            AT(set_rows)(&at);
            AT(open_rows)(&w, op, at);
            for (at.c0 = 0; at.c0 < A_COLS; at.c0 += A_C) {
                at.nc = A_MIN(A_C, A_COLS - at.c0);
                if (!AT(skipped)(&w, at))
                    AT(backward_block)(&w, op, at);
            }
            REAL *dq = A_DQ + at.b * A_Q_BATCH + at.h * A_Q_HEAD + at.r0 * A_Q_ROW;
            for (int64_t r = 0; r < at.nr; r++)
                for (int64_t d = 0; d < A_SIZE; d++)
                    dq[r * A_Q_ROW + d] = w.dq[r * A_WIDE(A_SIZE) + d];
        }
}

static void AT(run)(void *const *op, int64_t key)
{
#pragma omp parallel for schedule(dynamic)
    for (int64_t i = 0; i < A_BATCH * A_GROUPS; i++) {
        A_BEGIN();
        AT(backward_head)(op, i / A_GROUPS, i % A_GROUPS, key);
        A_END();
    }
}
#else

/* ---- gradient of the bias -------------------------------------------------------------------- */

FN void AT(bias_block)(const AT(Rows) *w, void *const *op, AT(Place) at)
{
    A_TILE(s, A_C * A_R);
    A_TILE(t, A_C * A_R);
    A_FACTOR(room_k, A_C * A_WIDE(A_SIZE));
    A_FACTOR(room_v, A_C * A_WIDE(A_V_SIZE));
    const int64_t g = at.h / (A_HEADS / A_GROUPS);
    int64_t nk, nv;
    const A_F *k = A_KEYS(block, room_k, &nk), *v = A_VALUES(room_v, &nv);
    AT(block_slopes)(s, t, 0, k, nk, v, nv, w, op, at);
    if (A_HIDES == A_HIDES_ALL)
        AT(hide)(t, op[7], at, 0, 0);
    REAL *db = (REAL *)op[10];
    db += at.b * A_BIAS_BATCH + at.h * A_BIAS_HEAD + at.r0 * A_BIAS_ROW + at.c0 * A_BIAS_COL;
    for (int64_t r = 0; r < at.nr; r++)
        for (int64_t c = 0; c < at.nc; c++)
            db[r * A_BIAS_ROW + c * A_BIAS_COL] += t[c * A_R + r];
}

/* Adds to the bias's gradient what the rows of a block contribute, for one batch and head. */
FN void AT(bias_rows)(void *const *op, AT(Place) at)
{
    AT(Rows) w;
    AT(set_rows)(&at);
    AT(open_rows)(&w, op, at);
    for (at.c0 = 0; at.c0 < A_COLS; at.c0 += A_C) {
        at.nc = A_MIN(A_C, A_COLS - at.c0);
        if (!AT(skipped)(&w, at))
            AT(bias_block)(&w, op, at);
    }
}

/* Computes the gradient of rows r0.. of a bias, over all batches, heads and rows that share them. */
FN void AT(bias_part)(void *const *op, int64_t b0, int64_t h0, int64_t r0, int64_t key)
{
    REAL *db = (REAL *)op[10] + b0 * A_BIAS_BATCH + h0 * A_BIAS_HEAD;
    const int64_t b1 = A_BIAS_EXTENT_BATCH > 1 ? b0 + 1 : A_BATCH;
    const int64_t h1 = A_BIAS_EXTENT_HEAD > 1 ? h0 + 1 : A_HEADS;
    const int64_t r1 = A_BIAS_EXTENT_ROW > 1 ? A_MIN(r0 + A_R, A_ROWS) : A_ROWS;
    for (int64_t r = r0; r < A_MIN(r0 + A_R, A_BIAS_EXTENT_ROW); r++)
        for (int64_t c = 0; c < A_BIAS_EXTENT_COL; c++)
            db[r * A_BIAS_ROW + c * A_BIAS_COL] = 0;
    AT(Place) at = {.key = key};
    for (at.b = b0; at.b < b1; at.b++)
        for (at.h = h0; at.h < h1; at.h++)
            for (at.r0 = r0; at.r0 < r1; at.r0 += A_R)
                AT(bias_rows)(op, at);
}

static void AT(run)(void *const *op, int64_t key)
{
    const int64_t blocks = (A_BIAS_EXTENT_ROW + A_R - 1) / A_R, heads = A_BIAS_EXTENT_HEAD;
#pragma omp parallel for schedule(dynamic)
    for (int64_t i = 0; i < A_BIAS_EXTENT_BATCH * heads * blocks; i++) {
        A_BEGIN();
        AT(bias_part)(op, i / blocks / heads, i / blocks % heads, i % blocks * A_R, key);
        A_END();
    }
}
#endif
#endif
