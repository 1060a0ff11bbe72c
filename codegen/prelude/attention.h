/* attention.h -- attention in blocks for the vectors of a CPU; pasted in front of its kernel, whose
 * parameters are P0.. and Q0.. (ir/ops/attention.c) and whose functions are AT(name).  The key of
 * dropout is an argument.
 *
 * Blocks of 64 rows of q meet blocks of 64 rows of k.  Scores lie transposed, [column][row]: sums and
 * maxima over columns run in vectors of rows, and all five products have one form, a matrix of
 * scalars times a matrix whose rows are vectors.  Only q and do are transposed, once per block of
 * rows.  Whole blocks are read where they lie; others are copied behind zeros.
 *
 * A block of rows (forward) or a head of k and v (backward) is worked on by one thread, in a fixed
 * order: the number of threads does not matter.  Memory of a thread: some 10 blocks on its stack. */
#ifdef __x86_64__
#include <immintrin.h>
#endif

#define A_HEADS P1
#define A_GROUPS P2
#define A_ROWS P3
#define A_COLS P4
#define A_SIZE P5
#define A_LIMIT P6
#define A_CAUSAL (A_LIMIT < A_COLS)
#define A_MASK P19
#define A_DROP P24
#ifdef __AVX512F__
#define A_BYTES 64
#else
#define A_BYTES 32
#endif
#define A_LANES (A_BYTES / (int)sizeof(REAL))
#define A_WIDE ((A_SIZE + A_LANES - 1) / A_LANES * A_LANES) /* a row behind zeros */
#define A_R (A_ROWS <= 32 ? 32 : 64)                        /* rows of a block */
#define A_C (A_COLS <= 32 ? 32 : 64)                        /* columns of a block */
#define A_TILE(name, n) REAL name[n] __attribute__((aligned(64)))
#define A_MIN(a, b) ((a) < (b) ? (a) : (b))

typedef REAL AT(Vec) __attribute__((vector_size(A_BYTES), aligned(sizeof(REAL)), may_alias));

FN AT(Vec) AT(fma)(AT(Vec) a, AT(Vec) b, AT(Vec) c)
{
#if defined(__AVX512F__)
    return sizeof(REAL) == 4
               ? (AT(Vec))_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c)
               : (AT(Vec))_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif defined(__FMA__)
    return sizeof(REAL) == 4
               ? (AT(Vec))_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c)
               : (AT(Vec))_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#else
    for (int l = 0; l < A_LANES; l++)
        a[l] = FMA(a[l], b[l], c[l]);
    return a;
#endif
}

/* Eight rows and nv vectors of a product, in registers. */
FN void AT(panel)(REAL *c, int64_t nc, const REAL *a, int64_t ra, int64_t ka, const REAL *b,
                  int64_t nb, int64_t k, int add, int nv)
{
    AT(Vec) acc[8][2];
    for (int x = 0; x < 8; x++)
        for (int y = 0; y < nv; y++)
            acc[x][y] = add ? *(const AT(Vec) *)(c + x * nc + y * A_LANES) : (AT(Vec)){0};
    for (int64_t i = 0; i < k; i++) {
        AT(Vec) v[2];
        for (int y = 0; y < nv; y++)
            v[y] = *(const AT(Vec) *)(b + i * nb + y * A_LANES);
        for (int x = 0; x < 8; x++)
            for (int y = 0; y < nv; y++)
                acc[x][y] = AT(fma)(a[x * ra + i * ka] - (AT(Vec)){0}, v[y], acc[x][y]);
    }
    for (int x = 0; x < 8; x++)
        for (int y = 0; y < nv; y++)
            *(AT(Vec) *)(c + x * nc + y * A_LANES) = acc[x][y];
}

/* c[m][n] = (add ? c : 0) + sum over k of a[m * ra + k * ka] * b[k * nb + n]; m a multiple of 8, n
 * of the lanes. */
FN void AT(product)(REAL *c, int64_t nc, const REAL *a, int64_t ra, int64_t ka, const REAL *b,
                    int64_t nb, int64_t m, int64_t n, int64_t k, int add)
{
    for (int64_t j = 0; j + 2 * A_LANES <= n; j += 2 * A_LANES)
        for (int64_t i = 0; i < m; i += 8)
            AT(panel)(c + i * nc + j, nc, a + i * ra, ra, ka, b + j, nb, k, add, 2);
    if (n % (2 * A_LANES))
        for (int64_t i = 0; i < m; i += 8)
            AT(panel)(c + i * nc + n - A_LANES, nc, a + i * ra, ra, ka, b + n - A_LANES, nb, k, add,
                      1);
}

/* t[SIZE][A_R] = factor * (n rows of x, transposed), zeros behind them. */
FN void AT(transposed)(REAL *t, const REAL *x, int64_t stride, int64_t n, REAL factor)
{
    if (n < A_R)
        for (int64_t i = 0; i < A_SIZE * A_R; i++)
            t[i] = 0;
    for (int64_t d = 0; d < A_SIZE; d++) {
#pragma omp simd
        for (int64_t r = 0; r < n; r++)
            t[d * A_R + r] = factor * x[r * stride + d];
    }
}

/* n rows of x as a block of `whole` rows of A_WIDE: as they lie, or in `room` with zeros around. */
FN const REAL *AT(block)(REAL *room, const REAL *x, int64_t stride, int64_t n, int64_t whole,
                         int64_t *next)
{
    *next = stride;
    if (n == whole && A_SIZE == A_WIDE)
        return x;
    *next = A_WIDE;
    for (int64_t r = 0; r < whole; r++)
        for (int64_t d = 0; d < A_WIDE; d++)
            room[r * A_WIDE + d] = r < n && d < A_SIZE ? x[r * stride + d] : 0;
    return room;
}

/* x (n rows) += the first rows of a block of products that had no room there. */
FN void AT(add_rows)(REAL *x, int64_t stride, const REAL *block, int64_t n)
{
    for (int64_t r = 0; r < n; r++)
        for (int64_t d = 0; d < A_SIZE; d++)
            x[r * stride + d] += block[r * A_WIDE + d];
}

/* x (n rows, accumulated) += a [A_C][A_R] times b [A_R][A_WIDE] */
FN void AT(accumulate)(REAL *x, int64_t stride, const REAL *a, const REAL *b, int64_t nb, int64_t n,
                       REAL *room)
{
    if (n == A_C && A_SIZE == A_WIDE) {
        AT(product)(x, stride, a, A_R, 1, b, nb, A_C, A_WIDE, A_R, 1);
        return;
    }
    AT(product)(room, A_WIDE, a, A_R, 1, b, nb, (n + 7) / 8 * 8, A_WIDE, A_R, 0);
    AT(add_rows)(x, stride, room, n);
}

/* ---- scores ------------------------------------------------------------------------------- */

typedef struct {
    int64_t b, h, r0, nr, c0, nc; /* batch, head; first row and column, and how many */
    int64_t key;                  /* of dropout */
} AT(Place);

FN int AT(hidden)(const void *mask, AT(Place) at, int64_t c, int64_t r)
{
    return ((const uint8_t *)mask)[at.b * P20 + at.h * P21 + (at.r0 + r) * P22 + (at.c0 + c) * P23];
}

/* s[column][row] of scores: mask and limit; bool masks set `fill`. */
FN void AT(masked)(REAL *s, const void *mask, AT(Place) at, REAL fill)
{
    const REAL *added = (const REAL *)mask + at.b * P20 + at.h * P21 + at.r0 * P22 + at.c0 * P23;
    for (int64_t c = 0; c < at.nc && A_MASK == 1; c++)
        for (int64_t r = 0; r < at.nr; r++)
            s[c * A_R + r] = AT(hidden)(mask, at, c, r) ? fill : s[c * A_R + r];
    for (int64_t c = 0; c < at.nc && A_MASK == 2; c++)
        for (int64_t r = 0; r < at.nr; r++)
            s[c * A_R + r] += added[r * P22 + c * P23];
}

FN void AT(limited)(REAL *s, AT(Place) at, REAL beyond)
{
    if (!A_CAUSAL || at.c0 + at.nc - 1 <= at.r0 + A_LIMIT)
        return;
    for (int64_t c = 0; c < at.nc; c++)
        for (int64_t r = 0; r < A_R; r++)
            s[c * A_R + r] = at.c0 + c > at.r0 + r + A_LIMIT ? beyond : s[c * A_R + r];
}

/* Is the rest of the columns beyond all rows? */
FN int AT(beyond)(AT(Place) at)
{
    return at.c0 >= A_COLS || (A_CAUSAL && at.c0 > at.r0 + at.nr - 1 + A_LIMIT);
}

#if A_DROP
#define A_KEEP(bits) (R(bits) * R(5.9604644775390625e-8) >= Q2 ? Q3 : R(0))

/* keep[column][row]: the factors of dropout.  A draw serves four consecutive columns. */
FN void AT(kept)(REAL *keep, const int64_t *rng, AT(Place) at)
{
    const uint64_t low = 0xFFFFFFFFu, t = (uint64_t)rng[1];
    const uint64_t s = (uint64_t)rng[0], k = (uint64_t)at.key;
    const int64_t row = (at.b * A_HEADS + at.h) * A_ROWS + at.r0;
#if A_COLS % 4 == 0
    for (int64_t c = 0; c < at.nc; c += 4) {
#pragma omp simd
        for (int64_t r = 0; r < A_R; r++) {
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
    for (int64_t r = 0; r < A_R; r++) {
        int64_t first = (row + r) * A_COLS + at.c0;
        philox_fill(bits, at.nc, rng[0], at.key, rng[1], first);
        for (int64_t c = 0; c < at.nc; c++)
            keep[c * A_R + r] = A_KEEP(bits[(first & 3) + c]);
    }
#endif
}
#endif

/* ---- forward ------------------------------------------------------------------------------- */

/* s becomes exp(s - top); the maximum, the sum and what is accumulated so far follow. */
FN void AT(exponentials)(REAL *s, int64_t nc, REAL *top, REAL *sum, REAL *acc)
{
    A_TILE(base, A_R);
    A_TILE(part, A_R);
    A_TILE(shrink, A_R);
    for (int64_t r = 0; r < A_R; r++)
        part[r] = top[r];
    for (int64_t c = 0; c < nc; c++)
        for (int64_t r = 0; r < A_R; r++)
            part[r] = s[c * A_R + r] > part[r] ? s[c * A_R + r] : part[r];
#pragma omp simd
    for (int64_t r = 0; r < A_R; r++) {
        base[r] = part[r] == -INF_ ? R(0) : part[r]; /* nothing seen yet */
        shrink[r] = EXP(top[r] - base[r]);
        top[r] = part[r];
        part[r] = 0;
    }
    for (int64_t c = 0; c < nc; c++) {
#pragma omp simd
        for (int64_t r = 0; r < A_R; r++) {
            s[c * A_R + r] = EXP(s[c * A_R + r] - base[r]);
            part[r] += s[c * A_R + r];
        }
    }
    for (int64_t r = 0; r < A_R; r++)
        sum[r] = sum[r] * shrink[r] + part[r];
    for (int64_t r = 0; r < A_R; r++)
        for (int64_t d = 0; d < A_WIDE; d++)
            acc[r * A_WIDE + d] *= shrink[r];
}

#if P25 == 0
FN void AT(forward_rows)(void *const *op, AT(Place) at)
{
    A_TILE(q, A_SIZE * A_R);
    A_TILE(s, A_C * A_R);
    A_TILE(acc, A_R * A_WIDE);
    A_TILE(room_k, A_C * A_WIDE);
    A_TILE(room_v, A_C * A_WIDE);
    A_TILE(top, A_R);
    A_TILE(sum, A_R);
    const REAL *k0 = (const REAL *)op[1] + at.b * P10 + at.h / (A_HEADS / A_GROUPS) * P11;
    const REAL *v0 = (const REAL *)op[2] + at.b * P13 + at.h / (A_HEADS / A_GROUPS) * P14;
    AT(transposed)(q, (const REAL *)op[0] + at.b * P7 + at.h * P8 + at.r0 * P9, P9, at.nr, Q0);
    for (int64_t r = 0; r < A_R; r++)
        top[r] = -INF_, sum[r] = 0;
    for (int64_t i = 0; i < A_R * A_WIDE; i++)
        acc[i] = 0;
    for (at.c0 = 0; !AT(beyond)(at); at.c0 += A_C) {
        int64_t nk, nv;
        at.nc = A_MIN(A_C, A_COLS - at.c0);
        const REAL *k = AT(block)(room_k, k0 + at.c0 * P12, P12, at.nc, A_C, &nk);
        const REAL *v = AT(block)(room_v, v0 + at.c0 * P15, P15, at.nc, A_C, &nv);
        AT(product)(s, A_R, k, nk, 1, q, A_R, (at.nc + 7) / 8 * 8, A_R, A_SIZE, 0);
        AT(masked)(s, op[3], at, Q1);
        AT(limited)(s, at, -INF_);
        AT(exponentials)(s, at.nc, top, sum, acc);
#if A_DROP
        A_TILE(keep, A_C * A_R);
        AT(kept)(keep, op[4], at);
        for (int64_t i = 0; i < at.nc * A_R; i++)
            s[i] *= keep[i];
#endif
        AT(product)(acc, A_WIDE, s, 1, A_R, v, nv, A_R, A_WIDE, at.nc, 1);
    }
    REAL *o = (REAL *)op[5] + at.b * P16 + at.h * P17 + at.r0 * P18;
    REAL *lse = (REAL *)op[6] + (at.b * A_HEADS + at.h) * A_ROWS + at.r0;
    for (int64_t r = 0; r < at.nr; r++) {
        lse[r] = top[r] + LOG(sum[r]);
        for (int64_t d = 0; d < A_SIZE; d++)
            o[r * P18 + d] = acc[r * A_WIDE + d] / sum[r];
    }
}

static void AT(run)(void *const *op, int64_t key)
{
    const int64_t blocks = (A_ROWS + A_R - 1) / A_R;
#pragma omp parallel for schedule(dynamic)
    for (int64_t i = 0; i < P0 * A_HEADS * blocks; i++) {
        AT(Place) at = {.b = i / blocks / A_HEADS, .h = i / blocks % A_HEADS,
                        .r0 = i % blocks * A_R, .key = key};
        at.nr = A_MIN(A_R, A_ROWS - at.r0);
        AT(forward_rows)(op, at);
    }
}
#else

/* ---- backward ------------------------------------------------------------------------------ */

/* What the rows of a block know. */
typedef struct {
    A_TILE(q, A_SIZE * A_R); /* transposed */
    A_TILE(g, A_SIZE * A_R); /* do, transposed */
    A_TILE(room_q, A_R * A_WIDE);
    A_TILE(room_g, A_R * A_WIDE);
    A_TILE(dq, A_R * A_WIDE);
    A_TILE(lse, A_R);
    A_TILE(delta, A_R);
    const REAL *q_rows, *g_rows;
    int64_t nq, ng;
} AT(Rows);

FN void AT(open_rows)(AT(Rows) *w, void *const *op, AT(Place) at)
{
    const int64_t o_at = at.b * P16 + at.h * P17 + at.r0 * P18;
    const REAL *q = (const REAL *)op[1] + at.b * P7 + at.h * P8 + at.r0 * P9;
    const REAL *g = (const REAL *)op[0] + o_at, *o = (const REAL *)op[4] + o_at;
    const REAL *lse = (const REAL *)op[5] + (at.b * A_HEADS + at.h) * A_ROWS + at.r0;
    AT(transposed)(w->q, q, P9, at.nr, Q0);
    AT(transposed)(w->g, g, P18, at.nr, R(1));
    w->q_rows = AT(block)(w->room_q, q, P9, at.nr, A_R, &w->nq);
    w->g_rows = AT(block)(w->room_g, g, P18, at.nr, A_R, &w->ng);
    for (int64_t i = 0; i < A_R * A_WIDE; i++)
        w->dq[i] = 0;
    for (int64_t r = 0; r < A_R; r++) {
        REAL lane[16] = {0};
        for (int64_t d = 0; d < A_SIZE && r < at.nr; d++)
            lane[d % 16] += g[r * P18 + d] * o[r * P18 + d];
        TREE(ADD, lane, 16);
        w->delta[r] = lane[0];
        w->lse[r] = r < at.nr ? lse[r] : 0;
    }
}

/* p -> s, ds -> t, from the scores in s and do v in t; keep multiplies p and do v. */
FN void AT(slopes)(REAL *s, REAL *t, const REAL *keep, const AT(Rows) *w, const void *mask,
                   AT(Place) at)
{
    for (int64_t c = 0; c < at.nc; c++) {
#pragma omp simd
        for (int64_t r = 0; r < A_R; r++) {
            const int64_t i = c * A_R + r;
            const REAL p = EXP(s[i] - w->lse[r]), k = A_DROP ? keep[i] : R(1);
            s[i] = p * k;
            t[i] = Q0 * p * (k * t[i] - w->delta[r]);
        }
    }
    for (int64_t c = 0; c < at.nc && A_MASK == 1; c++)
        for (int64_t r = 0; r < at.nr; r++)
            t[c * A_R + r] = AT(hidden)(mask, at, c, r) ? R(0) : t[c * A_R + r];
    for (int64_t i = at.nc * A_R; i < (at.nc + 7) / 8 * 8 * A_R; i++)
        s[i] = t[i] = 0;
}

FN void AT(backward_block)(AT(Rows) *w, void *const *op, AT(Place) at)
{
    A_TILE(s, A_C * A_R);
    A_TILE(t, A_C * A_R);
    A_TILE(keep, A_DROP ? A_C * A_R : 1);
    A_TILE(room_k, A_C * A_WIDE);
    A_TILE(room_v, A_C * A_WIDE);
    const int64_t g = at.h / (A_HEADS / A_GROUPS), m = (at.nc + 7) / 8 * 8;
    const int64_t k_at = at.b * P10 + g * P11 + at.c0 * P12;
    const int64_t v_at = at.b * P13 + g * P14 + at.c0 * P15;
    int64_t nk, nv;
    const REAL *k = AT(block)(room_k, (const REAL *)op[2] + k_at, P12, at.nc, A_C, &nk);
    const REAL *v = AT(block)(room_v, (const REAL *)op[3] + v_at, P15, at.nc, A_C, &nv);
    AT(product)(s, A_R, k, nk, 1, w->q, A_R, m, A_R, A_SIZE, 0);
    AT(masked)(s, op[6], at, Q1);
    AT(limited)(s, at, -INF_);
    AT(product)(t, A_R, v, nv, 1, w->g, A_R, m, A_R, A_SIZE, 0);
#if A_DROP
    AT(kept)(keep, op[7], at);
#endif
    AT(slopes)(s, t, keep, w, op[6], at);
    AT(product)(w->dq, A_WIDE, t, 1, A_R, k, nk, A_R, A_WIDE, at.nc, 1);
    AT(accumulate)((REAL *)op[10] + v_at, P15, s, w->g_rows, w->ng, at.nc, room_v);
    AT(accumulate)((REAL *)op[9] + k_at, P12, t, w->q_rows, w->nq, at.nc, room_k);
}

FN void AT(clear)(REAL *x, int64_t stride)
{
    for (int64_t c = 0; c < A_COLS; c++)
        for (int64_t d = 0; d < A_SIZE; d++)
            x[c * stride + d] = 0;
}

/* All rows that use a head of k and v. */
FN void AT(backward_head)(void *const *op, int64_t b, int64_t g, int64_t key)
{
    AT(Rows) w;
    AT(Place) at = {.b = b, .key = key};
    AT(clear)((REAL *)op[9] + b * P10 + g * P11, P12);
    AT(clear)((REAL *)op[10] + b * P13 + g * P14, P15);
    for (at.h = g * (A_HEADS / A_GROUPS); at.h < (g + 1) * (A_HEADS / A_GROUPS); at.h++)
        for (at.r0 = 0; at.r0 < A_ROWS; at.r0 += A_R) {
            at.nr = A_MIN(A_R, A_ROWS - at.r0);
            AT(open_rows)(&w, op, at);
            for (at.c0 = 0; !AT(beyond)(at); at.c0 += A_C) {
                at.nc = A_MIN(A_C, A_COLS - at.c0);
                AT(backward_block)(&w, op, at);
            }
            REAL *dq = (REAL *)op[8] + at.b * P7 + at.h * P8 + at.r0 * P9;
            for (int64_t r = 0; r < at.nr; r++)
                for (int64_t d = 0; d < A_SIZE; d++)
                    dq[r * P9 + d] = w.dq[r * A_WIDE + d];
        }
}

static void AT(run)(void *const *op, int64_t key)
{
#pragma omp parallel for schedule(dynamic)
    for (int64_t i = 0; i < P0 * A_GROUPS; i++)
        AT(backward_head)(op, i / A_GROUPS, i % A_GROUPS, key);
}
#endif
