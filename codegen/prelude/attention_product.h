/* attention_product.h -- products of blocks of attention on a CPU (attention.h), and their factors.
 *
 * c[m][n] (+)= a[m][k] b[k][n], where b is read in vectors and a element by element.  Factors are REAL or,
 * where the processor multiplies those fast (A_PAIRS), pairs of bf16, which are two consecutive terms.  Where
 * it has tiles (A_TILED: AMX), 16 rows, 16 columns and 16 pairs are multiplied at once, others in vectors. */
#ifdef __x86_64__
#include <immintrin.h>
#endif

#ifdef __AVX512F__
#define A_BYTES 64
#define A_PANEL 8 /* rows of a product, two vectors each, that fit the registers */
#define A_IN_REGISTER(v) (void)0
#else
#define A_BYTES 32
#define A_PANEL 6
#ifdef __AVX2__ /* keeps v in a register: else it would be read from memory for each row */
#define A_IN_REGISTER(v) __asm__("" : "+x"(v))
#else
#define A_IN_REGISTER(v) (void)0
#endif
#endif
#define A_LANES (A_BYTES / (int)sizeof(REAL))
#define A_WIDE(n) (((n) + A_LANES - 1) / A_LANES * A_LANES) /* n elements of a row padded with zeros */
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
#define A_MAX(a, b) ((a) > (b) ? (a) : (b))

#define A_PAIRED_bf16 1
#define A_PAIRED_float 1
#undef A_PAIRS
#undef A_F
#undef A_TERMS
#if CAT(A_PAIRED_, A_TYPE) && CAT(A_PAIRED_, REAL) && (BF16_PAIRS || BF16_TILES) && defined(__AVX512BF16__)
#define A_PAIRS 1
#define A_F uint32_t /* two terms, the first in the lower half */
#define A_TERMS(n) (((n) + 1) / 2)
#else
#define A_PAIRS 0
#define A_F REAL
#define A_TERMS(n) (n)
#endif
#undef A_TILED
#undef A_BEGIN
#undef A_END
#undef A_STEP
#undef A_S_ROW
#undef A_PADDED
#undef A_S_TERM
#if A_PAIRS && BF16_TILES && defined(__AMX_BF16__)
#define A_TILED 1
#define A_BEGIN() tiles_begin()
#define A_END() tiles_end()
#define A_SIDE TILE_SIDE
#define A_STEP A_SIDE        /* the rows of a product are a multiple of this */
#define A_S_ROW A_TERMS(A_C) /* distance of rows of AT(by_columns), and (A_S_TERM) of terms */
#define A_S_TERM 1
#define A_PADDED(n) (((n) + A_SIDE - 1) / A_SIDE * A_SIDE)
#else
#define A_TILED 0
#define A_BEGIN() (void)0
#define A_END() (void)0
#define A_STEP 8
#define A_S_ROW 1
#define A_S_TERM A_R
#define A_PADDED(n) (n)
#endif
#define A_STEPS(n) (((n) + A_STEP - 1) / A_STEP * A_STEP)
#define A_DEPTH(n) A_PADDED(A_TERMS(n)) /* terms of n elements of a row, padded with zeros */

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

/* Computes so many rows of nv vectors of a product in registers. */
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

/* Computes m rows of nv vectors of a product. */
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

/* Computes m rows and n columns of a product in vectors; m is a multiple of 8, n of A_LANES. */
FN void AT(in_vectors)(REAL *c, int64_t nc, const A_F *a, int64_t ra, int64_t ka, const A_F *b, int64_t nb,
                       int64_t m, int64_t n, int64_t k, int add)
{
    for (int64_t j = 0; j + 2 * A_LANES <= n; j += 2 * A_LANES)
        AT(panels)(c + j, nc, a, ra, ka, b + j, nb, m, k, add, 2);
    if (n % (2 * A_LANES))
        AT(panels)(c + n - A_LANES, nc, a, ra, ka, b + n - A_LANES, nb, m, k, add, 1);
}

#if A_TILED
/* Computes one or two tiles of rows, over all columns, of a product. */
FN void AT(tile_rows)(REAL *c, int64_t nc, const A_F *a, int64_t ra, const A_F *b, int64_t nb, int64_t n,
                      int64_t k, int add, bool two)
{
    int64_t j = 0;
    for (; j + 2 * A_SIDE <= n; j += 2 * A_SIDE)
        tiles_multiply(k, a, 4 * ra, 4 * A_SIDE, 4 * A_SIDE * ra, b + j, 4 * nb, c + j, 4 * nc, add, two,
                       true);
    if (j < n)
        tiles_multiply(k, a, 4 * ra, 4 * A_SIDE, 4 * A_SIDE * ra, b + j, 4 * nb, c + j, 4 * nc, add, two,
                       false);
}
#endif

/* c[m][n] = (add ? c : 0) + sum over k of a[m * ra + k * ka] * b[k * nb + n]; m is a multiple of A_STEP,
 * n of A_LANES. */
FN void AT(product)(REAL *c, int64_t nc, const A_F *a, int64_t ra, int64_t ka, const A_F *b, int64_t nb,
                    int64_t m, int64_t n, int64_t k, int add)
{
    int64_t i = 0;
#if A_TILED /* the terms of a are consecutive, ka is 1 */
    const int64_t whole = k / A_SIDE * A_SIDE;
    for (; whole && i + 2 * A_SIDE <= m; i += 2 * A_SIDE)
        AT(tile_rows)(c + i * nc, nc, a + i * ra, ra, b, nb, n, whole, add, true);
    for (; whole && i + A_SIDE <= m; i += A_SIDE)
        AT(tile_rows)(c + i * nc, nc, a + i * ra, ra, b, nb, n, whole, add, false);
    if (whole < k)
        AT(in_vectors)(c, nc, a + whole, ra, ka, b + whole * nb, nb, i, n, k - whole, 1);
#endif
    if (i < m)
        AT(in_vectors)(c + i * nc, nc, a + i * ra, ra, ka, b, nb, m - i, n, k, add);
}

/* ---- factors --------------------------------------------------------------------------------- */

#if A_PAIRS
#define A_PAIR(low, high) ((uint32_t)(low) | (uint32_t)(high) << 16)

/* Transposes 16 rows of 16 words. */
FN void AT(transpose)(__m512i x[16])
{
    __m512i y[16];
    for (int i = 0; i < 16; i += 2) {
        y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int k = 0; k < 2; k++) {
            x[i + 2 * k] = _mm512_unpacklo_epi64(y[i + k], y[i + 2 + k]);
            x[i + 2 * k + 1] = _mm512_unpackhi_epi64(y[i + k], y[i + 2 + k]);
        }
    for (int i = 0; i < 16; i += 8)
        for (int k = 0; k < 4; k++) {
            y[i + k] = _mm512_shuffle_i32x4(x[i + k], x[i + 4 + k], 0x88);
            y[i + 4 + k] = _mm512_shuffle_i32x4(x[i + k], x[i + 4 + k], 0xdd);
        }
    for (int k = 0; k < 8; k++) {
        x[k] = _mm512_shuffle_i32x4(y[k], y[k + 8], 0x88);
        x[k + 8] = _mm512_shuffle_i32x4(y[k], y[k + 8], 0xdd);
    }
}

/* t[A_DEPTH(size)][A_R] = n rows of x, which have `size` elements, transposed and padded with zeros. */
FN void AT(transposed)(A_F *t, const A_T *x, int64_t stride, int64_t n, int64_t size, REAL factor)
{
    (void)factor; /* scores are multiplied by it later */
    for (int64_t d = 0; d < size; d += 32)
        for (int64_t r = 0; r < A_R; r += 16) {
            const __mmask32 mask = size - d >= 32 ? ~(__mmask32)0 : ((__mmask32)1 << (size - d)) - 1;
            __m512i w[16];
            for (int i = 0; i < 16; i++)
                w[i] = _mm512_maskz_loadu_epi16(r + i < n ? mask : 0, x + (r + i) * stride + d);
            AT(transpose)(w);
            for (int i = 0; i < 16 && d / 2 + i < A_DEPTH(size); i++)
                _mm512_storeu_si512(t + (d / 2 + i) * A_R + r, w[i]);
        }
}

/* n rows of x as a block of `whole` rows of pairs: in place, or copied to `room` and padded with zeros.
 * *next: distance of rows. */
FN const A_F *AT(block)(A_F *room, const A_T *x, int64_t stride, int64_t n, int64_t whole, int64_t size,
                      int64_t *next)
{
    *next = stride / 2;
    if (n == whole && size == 2 * A_DEPTH(size) && stride % 2 == 0 && (uintptr_t)x % sizeof(A_F) == 0)
        return (const A_F *)x;
    *next = A_DEPTH(size);
    for (int64_t r = 0; r < n; r++) {
        A_F *to = room + r * A_DEPTH(size);
        for (int64_t d = 0; d + 1 < size; d += 2)
            to[d / 2] = A_PAIR(x[r * stride + d], x[r * stride + d + 1]);
        if (size % 2)
            to[size / 2] = A_PAIR(x[r * stride + size - 1], 0);
        for (int64_t i = A_TERMS(size); i < A_DEPTH(size); i++)
            to[i] = 0;
    }
    for (int64_t i = n * A_DEPTH(size); i < whole * A_DEPTH(size); i++)
        room[i] = 0;
    return room;
}

/* The same in pairs of rows.  The last row is repeated behind the others, where it is multiplied by zeros. */
FN const A_F *AT(stacked)(A_F *room, const A_T *x, int64_t stride, int64_t n, int64_t whole, int64_t size,
                      int64_t *next)
{
    *next = A_WIDE(size);
    for (int64_t r = 0; r < whole; r += 2) {
        const A_T *low = x + A_MIN(r, n - 1) * stride, *high = x + A_MIN(r + 1, n - 1) * stride;
#pragma omp simd
        for (int64_t d = 0; d < size; d++)
            room[r / 2 * A_WIDE(size) + d] = A_PAIR(low[d], high[d]);
        for (int64_t d = size; d < A_WIDE(size); d++)
            room[r / 2 * A_WIDE(size) + d] = 0;
    }
    return room;
}

/* A vector of rows, in pairs of column c of s[column][row] and the next column, or 0 if there is none. */
FN __m512i AT(two_columns)(const REAL *s, int64_t c, int64_t columns, int64_t r)
{
    const REAL *x = s + c * A_R + r;
    const __m512 zero = _mm512_setzero_ps();
    const __m512 low = c < columns ? _mm512_loadu_ps(x) : zero;
    const __m512 high = c + 1 < columns ? _mm512_loadu_ps(x + A_R) : zero;
    const __m512i l = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(low));
    const __m512i h = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(high));
    return _mm512_or_si512(l, _mm512_slli_epi32(h, 16));
}

#if A_TILED
/* s[column][row] as rows of pairs of columns, padded with zeros, 16 x 16 at a time; rows: whole vectors. */
FN const A_F *AT(by_columns)(A_F *room, const REAL *s, int64_t columns, int64_t rows)
{
    for (int64_t c = 0; c < columns; c += 2 * A_SIDE)
        for (int64_t r = 0; r < rows; r += A_SIDE) {
            __m512i x[16];
            for (int i = 0; i < 16; i++)
                x[i] = AT(two_columns)(s, c + 2 * i, columns, r);
            AT(transpose)(x);
            for (int i = 0; i < 16; i++)
                _mm512_storeu_si512(room + (r + i) * A_S_ROW + c / 2, x[i]);
        }
    return room;
}
#else
/* s[column][row] in pairs of columns; rows: whole vectors. */
FN const A_F *AT(by_columns)(A_F *room, const REAL *s, int64_t columns, int64_t rows)
{
    for (int64_t c = 0; c < columns; c += 2)
        for (int64_t r = 0; r < rows; r += A_LANES)
            _mm512_storeu_si512(room + c / 2 * A_R + r, AT(two_columns)(s, c, columns, r));
    return room;
}
#endif

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
/* t[size][A_R] = factor * (n rows of x, which have `size` elements, transposed and padded with zeros). */
FN void AT(transposed)(REAL *t, const A_T *x, int64_t stride, int64_t n, int64_t size, REAL factor)
{
    if (n < A_R)
        for (int64_t i = 0; i < size * A_R; i++)
            t[i] = 0;
    for (int64_t d = 0; d < size; d++) {
#pragma omp simd
        for (int64_t r = 0; r < n; r++)
            t[d * A_R + r] = factor * A_LD(x, r * stride + d);
    }
}

/* n rows of x as a block of `whole` rows of A_WIDE(size): in place, or copied to `room` and padded with
 * zeros.  *next: distance of rows. */
FN const REAL *AT(block)(REAL *room, const A_T *x, int64_t stride, int64_t n, int64_t whole, int64_t size,
                         int64_t *next)
{
    *next = stride;
    if (n == whole && size == A_WIDE(size) && sizeof(A_T) == sizeof(REAL))
        return (const REAL *)x;
    *next = A_WIDE(size);
    for (int64_t r = 0; r < n; r++) {
        for (int64_t d = 0; d < size; d++)
            room[r * A_WIDE(size) + d] = A_LD(x, r * stride + d);
        for (int64_t d = size; d < A_WIDE(size); d++)
            room[r * A_WIDE(size) + d] = 0;
    }
    for (int64_t i = n * A_WIDE(size); i < whole * A_WIDE(size); i++)
        room[i] = 0;
    return room;
}

FN const REAL *AT(stacked)(REAL *room, const A_T *x, int64_t stride, int64_t n, int64_t whole, int64_t size,
                           int64_t *next)
{
    return AT(block)(room, x, stride, n, whole, size, next);
}

FN const REAL *AT(by_columns)(REAL *room, const REAL *s, int64_t columns, int64_t rows) { return s; }
FN const REAL *AT(by_rows)(REAL *room, const REAL *s, int64_t columns, int64_t rows) { return s; }
#endif

/* Adds the first n rows, of `size` elements, of a block of products to x, which has no room for the whole
 * block. */
FN void AT(add_rows)(REAL *x, int64_t stride, const REAL *block, int64_t n, int64_t size)
{
    for (int64_t r = 0; r < n; r++)
        for (int64_t d = 0; d < size; d++)
            x[r * stride + d] += block[r * A_WIDE(size) + d];
}

/* Adds a [A_C][A_R] times b [A_R][A_WIDE(size)], summed over so many rows, to the n rows of x. */
FN void AT(accumulate)(REAL *x, int64_t stride, const A_F *a, const A_F *b, int64_t nb, int64_t n,
                       int64_t rows, int64_t size, REAL *room)
{
    if (n == A_C && size == A_WIDE(size)) {
        AT(product)(x, stride, a, A_TERMS(A_R), 1, b, nb, A_C, A_WIDE(size), A_TERMS(rows), 1);
        return;
    }
    AT(product)
    (room, A_WIDE(size), a, A_TERMS(A_R), 1, b, nb, A_STEPS(n), A_WIDE(size), A_TERMS(rows), 0);
    AT(add_rows)(x, stride, room, n, size);
}
