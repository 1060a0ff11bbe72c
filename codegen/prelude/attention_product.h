/* attention_product.h -- products of blocks of attention on a CPU (attention.h), and their factors.
 *
 * c[m][n] (+)= a[m][k] b[k][n], of b in vectors, of a element by element.  Factors are REAL or, where the
 * processor multiplies those as fast (A_PAIRS), pairs of bf16, of two terms that follow each other. */
#ifdef __x86_64__
#include <immintrin.h>
#endif

#ifdef __AVX512F__
#define A_BYTES 64
#define A_PANEL 8 /* rows of a product, two vectors each, for which there are registers */
#define A_IN_REGISTER(v) (void)0
#else
#define A_BYTES 32
#define A_PANEL 6
#ifdef __AVX2__ /* and not read from memory for each row */
#define A_IN_REGISTER(v) __asm__("" : "+x"(v))
#else
#define A_IN_REGISTER(v) (void)0
#endif
#endif
#define A_LANES (A_BYTES / (int)sizeof(REAL))
#define A_WIDE ((A_SIZE + A_LANES - 1) / A_LANES * A_LANES) /* a row behind zeros */
#define A_R (A_ROWS <= 32 ? 32 : 64)                        /* rows of a block */
#define A_C (A_COLS <= 32 ? 32 : 64)                        /* columns of a block */
#define A_MEMORY_f32 float
#define A_MEMORY_f64 double
#define A_MEMORY_bf16 uint16_t
#define A_MEMORY_f16 uint16_t
#define A_MEMORY(type) CAT(A_MEMORY_, type)
#define A_T A_MEMORY(A_TYPE)
#define A_LD(p, i) R(CAT(LD_, A_TYPE)(p, i))
#define A_TILE(name, n) REAL name[n] __attribute__((aligned(64)))
#define A_FACTOR(name, n) A_F name[n] __attribute__((aligned(64)))
#define A_MIN(a, b) ((a) < (b) ? (a) : (b))

#define A_PAIRED_bf16 1
#define A_PAIRED_float 1
#undef A_PAIRS
#undef A_F
#undef A_TERMS
#if CAT(A_PAIRED_, A_TYPE) && CAT(A_PAIRED_, REAL) && BF16_PAIRS && defined(__AVX512BF16__)
#define A_PAIRS 1
#define A_F uint32_t /* two terms, the first in the lower half */
#define A_TERMS(n) (((n) + 1) / 2)
#else
#define A_PAIRS 0
#define A_F REAL
#define A_TERMS(n) (n)
#endif

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

/* c + a b */
FN AT(Vec) AT(add_product)(AT(Vec) c, A_F a, AT(Vec) b)
{
#if A_PAIRS
    return (AT(Vec))_mm512_dpbf16_ps((__m512)c, (__m512bh)_mm512_set1_epi32((int)a), (__m512bh)b);
#else
    return AT(fma)(a - (AT(Vec)){0}, b, c);
#endif
}

/* So many rows and nv vectors of a product, in registers. */
FN void AT(panel)(REAL *c, int64_t nc, const A_F *a, int64_t ra, int64_t ka, const A_F *b,
                  int64_t nb, int64_t k, int add, int rows, int nv)
{
    AT(Vec) acc[A_PANEL][2];
    for (int x = 0; x < rows; x++)
        for (int y = 0; y < nv; y++)
            acc[x][y] = add ? *(const AT(Vec) *)(c + x * nc + y * A_LANES) : (AT(Vec)){0};
    for (int64_t i = 0; i < k; i++) {
        AT(Vec) v[2];
        for (int y = 0; y < nv; y++) {
            v[y] = *(const AT(Vec) *)(b + i * nb + y * A_LANES);
            A_IN_REGISTER(v[y]);
        }
        for (int x = 0; x < rows; x++)
            for (int y = 0; y < nv; y++)
                acc[x][y] = AT(add_product)(acc[x][y], a[x * ra + i * ka], v[y]);
    }
    for (int x = 0; x < rows; x++)
        for (int y = 0; y < nv; y++)
            *(AT(Vec) *)(c + x * nc + y * A_LANES) = acc[x][y];
}

/* m rows of nv vectors. */
FN void AT(panels)(REAL *c, int64_t nc, const A_F *a, int64_t ra, int64_t ka, const A_F *b,
                   int64_t nb, int64_t m, int64_t k, int add, int nv)
{
    int64_t i = 0;
    for (; i + A_PANEL <= m; i += A_PANEL)
        AT(panel)(c + i * nc, nc, a + i * ra, ra, ka, b, nb, k, add, A_PANEL, nv);
    if (A_PANEL % 8 && m - i >= 4) {
        AT(panel)(c + i * nc, nc, a + i * ra, ra, ka, b, nb, k, add, 4, nv);
        i += 4;
    }
    if (A_PANEL % 8 && i < m)
        AT(panel)(c + i * nc, nc, a + i * ra, ra, ka, b, nb, k, add, 2, nv);
}

/* c[m][n] = (add ? c : 0) + sum over k of a[m * ra + k * ka] * b[k * nb + n]; m a multiple of 8, n
 * of the lanes. */
FN void AT(product)(REAL *c, int64_t nc, const A_F *a, int64_t ra, int64_t ka, const A_F *b,
                    int64_t nb, int64_t m, int64_t n, int64_t k, int add)
{
    for (int64_t j = 0; j + 2 * A_LANES <= n; j += 2 * A_LANES)
        AT(panels)(c + j, nc, a, ra, ka, b + j, nb, m, k, add, 2);
    if (n % (2 * A_LANES))
        AT(panels)(c + n - A_LANES, nc, a, ra, ka, b + n - A_LANES, nb, m, k, add, 1);
}

/* ---- factors --------------------------------------------------------------------------------- */

#if A_PAIRS
#define A_PAIR(low, high) ((uint32_t)(low) | (uint32_t)(high) << 16)

/* t[SIZE][A_R] = n rows of x, transposed, zeros behind them. */
FN void AT(transposed)(A_F *t, const A_T *x, int64_t stride, int64_t n, REAL factor)
{
    (void)factor; /* is of the scores */
    for (int64_t i = 0; i < A_TERMS(A_SIZE) * A_R && n < A_R; i++)
        t[i] = 0;
    for (int64_t d = 0; d < A_SIZE; d += 2) {
#pragma omp simd
        for (int64_t r = 0; r < n; r++)
            t[d / 2 * A_R + r] = A_PAIR(x[r * stride + d], d + 1 < A_SIZE ? x[r * stride + d + 1] : 0);
    }
}

/* n rows of x as a block of `whole` rows of pairs: as they lie, or in `room` with zeros around. */
FN const A_F *AT(block)(A_F *room, const A_T *x, int64_t stride, int64_t n, int64_t whole, int64_t *next)
{
    *next = stride / 2;
    if (n == whole && A_SIZE % 2 == 0 && stride % 2 == 0 && (uintptr_t)x % sizeof(A_F) == 0)
        return (const A_F *)x;
    *next = A_TERMS(A_SIZE);
    for (int64_t r = 0; r < n; r++) {
        A_F *to = room + r * A_TERMS(A_SIZE);
        for (int64_t d = 0; d + 1 < A_SIZE; d += 2)
            to[d / 2] = A_PAIR(x[r * stride + d], x[r * stride + d + 1]);
        if (A_SIZE % 2)
            to[A_SIZE / 2] = A_PAIR(x[r * stride + A_SIZE - 1], 0);
    }
    for (int64_t i = n * A_TERMS(A_SIZE); i < whole * A_TERMS(A_SIZE); i++)
        room[i] = 0;
    return room;
}

/* Likewise, in pairs of rows.  The last row again is behind them, which meets zeros. */
FN const A_F *AT(stacked)(A_F *room, const A_T *x, int64_t stride, int64_t n, int64_t whole, int64_t *next)
{
    *next = A_WIDE;
    for (int64_t r = 0; r < whole; r += 2) {
        const A_T *low = x + A_MIN(r, n - 1) * stride, *high = x + A_MIN(r + 1, n - 1) * stride;
#pragma omp simd
        for (int64_t d = 0; d < A_SIZE; d++)
            room[r / 2 * A_WIDE + d] = A_PAIR(low[d], high[d]);
        for (int64_t d = A_SIZE; d < A_WIDE; d++)
            room[r / 2 * A_WIDE + d] = 0;
    }
    return room;
}

/* s[column][row] in pairs of columns; of rows: rows, whole vectors. */
FN const A_F *AT(by_columns)(A_F *room, const REAL *s, int64_t columns, int64_t rows)
{
    for (int64_t c = 0; c < columns; c += 2)
        for (int64_t r = 0; r < rows; r += A_LANES) {
            const REAL *x = s + c * A_R + r;
            const __m512 low = _mm512_loadu_ps(x), zero = _mm512_setzero_ps();
            const __m512 high = c + 1 < columns ? _mm512_loadu_ps(x + A_R) : zero;
            const __m512i l = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(low));
            const __m512i h = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(high));
            _mm512_storeu_si512(room + c / 2 * A_R + r, _mm512_or_si512(l, _mm512_slli_epi32(h, 16)));
        }
    return room;
}

/* s[column][row] in pairs of rows. */
FN const A_F *AT(by_rows)(A_F *room, const REAL *s, int64_t columns, int64_t rows)
{
    for (int64_t c = 0; c < columns; c++)
        for (int64_t r = 0; r < rows; r += 2 * A_LANES) {
            const __m512 low = _mm512_loadu_ps(s + c * A_R + r);
            const __m512 high = _mm512_loadu_ps(s + c * A_R + r + A_LANES);
            _mm512_storeu_si512(room + (c * A_R + r) / 2, (__m512i)_mm512_cvtne2ps_pbh(high, low));
        }
    return room;
}
#else
/* t[SIZE][A_R] = factor * (n rows of x, transposed), zeros behind them. */
FN void AT(transposed)(REAL *t, const A_T *x, int64_t stride, int64_t n, REAL factor)
{
    if (n < A_R)
        for (int64_t i = 0; i < A_SIZE * A_R; i++)
            t[i] = 0;
    for (int64_t d = 0; d < A_SIZE; d++) {
#pragma omp simd
        for (int64_t r = 0; r < n; r++)
            t[d * A_R + r] = factor * A_LD(x, r * stride + d);
    }
}

/* n rows of x as a block of `whole` rows of A_WIDE: as they lie, or in `room` with zeros around. */
FN const REAL *AT(block)(REAL *room, const A_T *x, int64_t stride, int64_t n, int64_t whole,
                         int64_t *next)
{
    *next = stride;
    if (n == whole && A_SIZE == A_WIDE && sizeof(A_T) == sizeof(REAL))
        return (const REAL *)x;
    *next = A_WIDE;
    for (int64_t r = 0; r < n; r++) {
        for (int64_t d = 0; d < A_SIZE; d++)
            room[r * A_WIDE + d] = A_LD(x, r * stride + d);
        for (int64_t d = A_SIZE; d < A_WIDE; d++)
            room[r * A_WIDE + d] = 0;
    }
    for (int64_t i = n * A_WIDE; i < whole * A_WIDE; i++)
        room[i] = 0;
    return room;
}

FN const REAL *AT(stacked)(REAL *room, const A_T *x, int64_t stride, int64_t n, int64_t whole,
                           int64_t *next)
{
    return AT(block)(room, x, stride, n, whole, next);
}

FN const REAL *AT(by_columns)(REAL *room, const REAL *s, int64_t columns, int64_t rows) { return s; }
FN const REAL *AT(by_rows)(REAL *room, const REAL *s, int64_t columns, int64_t rows) { return s; }
#endif

/* x (n rows) += the first rows of a block of products that had no room there. */
FN void AT(add_rows)(REAL *x, int64_t stride, const REAL *block, int64_t n)
{
    for (int64_t r = 0; r < n; r++)
        for (int64_t d = 0; d < A_SIZE; d++)
            x[r * stride + d] += block[r * A_WIDE + d];
}

/* x (n rows, accumulated) += a [A_C][A_R] times b [A_R][A_WIDE], of so many rows */
FN void AT(accumulate)(REAL *x, int64_t stride, const A_F *a, const A_F *b, int64_t nb, int64_t n,
                       int64_t rows, REAL *room)
{
    if (n == A_C && A_SIZE == A_WIDE) {
        AT(product)(x, stride, a, A_TERMS(A_R), 1, b, nb, A_C, A_WIDE, A_TERMS(rows), 1);
        return;
    }
    AT(product)(room, A_WIDE, a, A_TERMS(A_R), 1, b, nb, (n + 7) / 8 * 8, A_WIDE, A_TERMS(rows), 0);
    AT(add_rows)(x, stride, room, n);
}
