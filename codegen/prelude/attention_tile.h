/* attention_tile.h -- attention in tiles for the warps of a GPU; pasted in front of each phase of its kernel,
 * whose parameters are A_BATCH.. and A_SCALE.. (ir/attention_kernel.h) and whose functions are AT(name).
 *
 * A block of threads owns A_OWN rows of one side, queries or (A_KEYS) keys, of one batch and head, and walks
 * over the other side in tiles of A_OTHER rows that cp.async brings to shared memory.  A warp works on A_M
 * times 16 of the own rows; scores and sums are in its registers in the layout of mma's C (tensor.h):
 *
 *   x[m][n][i]  own row 16 m + g + 8 (i / 2) of the warp, row or column 8 n + 2 t + i % 2 of the other side
 *
 * where lane = 4 g + t.  Sums of a row need shuffles between four lanes, no memory; scores are the left
 * factor of a second product without being moved.  In 16 bits products run on tensor cores, in f32 as sums of
 * fmaf in the same layout.  Rows in shared memory have 16 bytes of padding against bank conflicts.  A_WGMMA:
 * four warps multiply together and asynchronously, until AT(finish) (wgmma.h); A_M is 1, rows are whole, and
 * tiles have the layout of its factors.
 *
 * A_PART is the phase: A_FORWARD, or gradients of q (A_QUERIES), of k and v (A_KEYS), of the bias (A_BIASES).
 *
 * A_BYTES: size in memory of an element of q, k, v, o and do; gradients may have their type, too.  A row has
 * `size` elements: A_SIZE those of q and k, A_V_SIZE those of v and o, and of their gradients.  A_D(size):
 * its columns in a tile, padded with zeros to a multiple of A_STEP, 32 or 64.  A_WHOLE, A_EVEN: rows consist
 * of whole 16 bytes, of pairs of elements, and are aligned to them.  A_PLAIN: exp(scale q k - top) is one
 * fmaf and ex2, as scores are nothing but scaled products; top is in units of the products until
 * the end.  Deterministic: each result is written by one thread, in a fixed order of sums. */
#define A_LIMITED (A_RIGHT < A_COLS - 1 || A_LEFT < A_ROWS - 1)
/* Masked scores become A_FILL, and only -inf is sure to leave no weight.  A fill above -1e30 counts in every
 * row (A_COUNTS), a lower one only in rows whose scores are all as low (A_LOW). */
#define A_FILLS ((A_MASK || A_LIMITED) && A_FILL > -INF_)
#define A_COUNTS (A_FILLS && A_FILL > R(-1e30))
#define A_LOW (A_LIMITED && A_FILLS && !A_COUNTS)

#define A_THREADS (A_WARPS * 32)
#define A_M (A_OWN / A_WARPS / 16)
#define A_N (A_OTHER / 8)
#define A_D(size) (((size) + A_STEP - 1) / A_STEP * A_STEP)
#define A_WHOLE(size) (!A_UNALIGNED && (size) * A_BYTES % 16 == 0)
#define A_EVEN(size) (!A_UNALIGNED && (size) % 2 == 0)
#define A_PITCH(size) (A_WGMMA ? A_D(size) : A_D(size) + 16 / A_BYTES)
#define A_ALIGN (A_WGMMA ? 1024 : 16) /* alignment of tiles, bytes */
#define A_OWN_TILE(size) (A_OWN * A_PITCH(size))
#define A_TILE(size) (A_OTHER * A_PITCH(size))
#define A_TILES (A_TILE(A_SIZE) + A_TILE(A_V_SIZE))
#define A_OUT(size) (A_D(size) / A_SPLIT) /* columns of the result that a block makes */
#define A_CHUNKS(size) (A_D(size) * A_BYTES % 128 == 0 ? 8 : 4) /* threads that copy a row, 16 bytes each */
#define A_MEMORY_f32 float
#define A_MEMORY_bf16 uint16_t
#define A_MEMORY_f16 uint16_t
#define A_MEMORY(type) CAT(A_MEMORY_, type)
#define A_T A_MEMORY(A_TYPE)
#define A_LD(p, i) ((float)CAT(LD_, A_TYPE)(p, i))
#define A_LANE ((int)threadIdx.x & 31)
#define A_WARP ((int)threadIdx.x >> 5)
#define A_ALL 0xffffffffu
#define A_UNIT (A_SCALE * 1.4426950408889634f) /* factor from products to A_PLAIN's exponents of 2 */

/* ---- operands ----------------------------------------------------------------------------------- */

#define A_IN(T, forward, backward) ((const T *)op[A_PART == A_FORWARD ? (forward) : (backward)])
#define A_OP_DO ((const A_T *)op[0])
#define A_OP_Q (A_IN(A_T, 0, 1) + A_Q_FIRST)
#define A_OP_K (A_IN(A_T, 1, 2) + A_K_FIRST)
#define A_OP_V (A_IN(A_T, 2, 3) + A_V_FIRST)
#define A_OP_O ((const A_T *)op[4])
#define A_OP_TOP ((const float *)op[5])
#define A_OP_INV ((const float *)op[6])
#define A_OP_MASK A_IN(uint8_t, 3, 7)
#define A_OP_BIAS A_IN(A_MEMORY(A_BIAS_TYPE), 4, 8)
#define A_OP_RNG A_IN(int64_t, 6, 9)
#define A_G A_MEMORY(A_GRADIENT_TYPE)
#define A_OP_DQ ((A_G *)op[10] + A_Q_FIRST)
#define A_OP_DK ((A_G *)op[A_PACKED ? 10 : 11] + A_K_FIRST)
#define A_OP_DV ((A_G *)op[A_PACKED ? 10 : 12] + A_V_FIRST)
/* Workspace with two numbers per row: do o, and AT(base), which is subtracted from its scores. */
#define A_LINES (A_BATCH * A_HEADS * A_ROWS)
#define A_OP_DELTA ((float *)op[A_PACKED ? 11 : 13])
#define A_OP_BASE (A_OP_DELTA + A_LINES)

typedef struct {
    int b, h;       /* batch, head of q */
    int own, other; /* first rows of both sides */
} AT(Place);

FN int64_t AT(line)(AT(Place) at) { return ((int64_t)at.b * A_HEADS + at.h) * A_ROWS; }
FN const A_T *AT(q)(void *const *op, AT(Place) at) { return A_OP_Q + at.b * A_Q_BATCH + at.h * A_Q_HEAD; }
FN const A_T *AT(k)(void *const *op, AT(Place) at)
{
    return A_OP_K + at.b * A_K_BATCH + at.h / (A_HEADS / A_GROUPS) * A_K_HEAD;
}
FN const A_T *AT(v)(void *const *op, AT(Place) at)
{
    return A_OP_V + at.b * A_V_BATCH + at.h / (A_HEADS / A_GROUPS) * A_V_HEAD;
}
FN int64_t AT(o)(AT(Place) at) { return at.b * A_O_BATCH + at.h * A_O_HEAD; }

/* AT(mine): own row of x[m][.][i] in the block.  AT(theirs): row or column of x[.][n][i] in the tile. */
FN int AT(mine)(int m, int i) { return (A_WARP * A_M + m) * 16 + A_LANE / 4 + 8 * (i >> 1); }
FN int AT(theirs)(int n, int i) { return 8 * n + A_LANE % 4 * 2 + (i & 1); }

/* Position in a tile of n rows of the elements of row r from c on, a multiple of 8. */
FN int AT(cell)(int n, int r, int c, int size)
{
    return A_WGMMA ? c / 64 * 64 * n + r * 64 + ((c ^ r * 8) & 56) : r * A_PITCH(size) + c;
}

/* Copies n rows of x from `first` on to shared memory; those from `rows` on are zeros. */
FN void AT(load)(A_T *to, const A_T *x, int64_t stride, int first, int rows, int n, int size)
{
    const int d = A_D(size);
    if (A_WHOLE(size)) {
        const int step = A_THREADS / A_CHUNKS(size), wide = 16 / A_BYTES;
        const int r0 = (int)threadIdx.x / A_CHUNKS(size), c0 = (int)threadIdx.x % A_CHUNKS(size) * wide;
        A_EACH_COPY
        for (int j = 0; j < (n + step - 1) / step; j++) {
            const int r = r0 + j * step;
            UNROLL
            for (int i = 0; i < d; i += A_CHUNKS(size) * wide) {
                const int c = c0 + i, inside = first + r < rows && (size == d || c < size);
                if (n % step == 0 || r < n)
                    copy_async_16(to + AT(cell)(n, r, c, size),
                                  inside ? x + (int64_t)(first + r) * stride + c : x, inside ? 16 : 0);
            }
        }
        return;
    }
    for (int i = (int)threadIdx.x; i < n * d; i += A_THREADS) {
        const int r = i / d, c = i % d, inside = first + r < rows && c < size;
        to[r * A_PITCH(size) + c] = inside ? x[(int64_t)(first + r) * stride + c] : (A_T)0;
    }
}

/* Makes the copies visible to products (of warpgroups as well) behind the next barrier. */
FN void AT(publish)(void)
{
#if A_WGMMA
    fence_async();
#endif
}

/* ---- products ----------------------------------------------------------------------------------- */

/* Results x[m][d][i] are an array of A_M * A_OUT(size) / 2; A_AT is the place of x[m][d][0]. */
#define A_AT(size, m, d) (((m) * (A_OUT(size) / 8) + (d)) * 4)

FN void AT(clear)(float *x, int n)
{
    UNROLL
    for (int i = 0; i < n; i++)
        x[i] = 0;
}

#if A_WGMMA
#define A_BY(how, n) CAT(CAT(how, A_TYPE), CAT(_n, n))
/* In units of descriptors: distance of column k, a multiple of 16, in a tile of so many rows; distance of a
 * warpgroup's own rows. */
#define A_COLUMN(k, rows) (uint64_t)(((k) / 64 * (rows) * 128 + (k) % 64 * 2) / 16)
#define A_OWN_STEP (uint64_t)(__shfl_sync(A_ALL, A_WARP / 4, 0) * 64 * 128 / 16)

/* s = own rows times rows of the other side, of `size` elements. */
FN void AT(meet)(float s[A_M][A_N][4], const A_T *own, const A_T *other, int size)
{
    const uint64_t a = wgmma_matrix(own, A_OWN) + A_OWN_STEP, b = wgmma_matrix(other, A_OTHER);
    wgmma_hold(&s[0][0][0], A_N * 4);
    wgmma_fence();
    UNROLL
    for (int k = 0; k < A_D(size); k += 16)
        A_BY(wgmma_, A_OTHER)(&s[0][0][0], a + A_COLUMN(k, A_OWN), b + A_COLUMN(k, A_OTHER), k > 0);
    wgmma_commit();
}

/* x += s times rows of the other side, of `size` elements: 33 to 64 or 97 to 128. */
FN void AT(gather)(float *x, float s[A_M][A_N][4], const A_T *other, int size)
{
    const uint64_t b = wgmma_matrix(other, A_OTHER), step = 16 * 128 / 16;
    uint32_t a[A_N / 2][4];
    UNROLL
    for (int i = 0; i < A_N * 2; i++)
        a[i / 4][i % 4] = CAT(pack_, A_TYPE)(s[0][i / 2][i % 2 * 2], s[0][i / 2][i % 2 * 2 + 1]);
    wgmma_hold(x, A_OUT(size) / 2);
    wgmma_hold_left(&a[0][0], A_N * 2);
    wgmma_fence();
    UNROLL
    for (int n = 0; n < A_N / 2; n++)
        if (A_D(size) == 64)
            A_BY(wgmma_left_, 64)(x, a[n], b + (uint64_t)n * step);
        else
            A_BY(wgmma_left_, 128)(x, a[n], b + (uint64_t)n * step);
    wgmma_commit();
}

/* Waits until all products are done; x: n elements of their results. */
FN void AT(finish)(float *x, int n)
{
    wgmma_wait(0);
    wgmma_hold(x, n);
}
#elif A_BYTES == 2
/* s = own rows times rows of the other side, of `size` elements. */
FN void AT(meet)(float s[A_M][A_N][4], const A_T *own, const A_T *other, int size)
{
    const int l = A_LANE;
    const uint32_t a0 = shared_at(own + (A_WARP * A_M * 16 + (l & 15)) * A_PITCH(size) + (l >> 4) * 8);
    const uint32_t b0 = shared_at(other + ((l & 7) + (l >> 4) * 8) * A_PITCH(size) + (l >> 3 & 1) * 8);
    AT(clear)(&s[0][0][0], A_M * A_N * 4);
    UNROLL
    for (int k = 0; k < A_D(size); k += 16) {
        uint32_t a[A_M][4], b[4];
        UNROLL
        for (int m = 0; m < A_M; m++)
            ldmatrix(a[m], a0 + (uint32_t)(m * 16 * A_PITCH(size) + k) * 2);
        UNROLL
        for (int n = 0; n < A_N; n += 2) {
            ldmatrix(b, b0 + (uint32_t)(n * 8 * A_PITCH(size) + k) * 2);
            UNROLL
            for (int m = 0; m < A_M; m++) {
                CAT(mma_, A_TYPE)(s[m][n], a[m], b[0], b[1]);
                CAT(mma_, A_TYPE)(s[m][n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* x += s times A_OUT(size) columns of the other side. */
FN void AT(gather)(float *x, float s[A_M][A_N][4], const A_T *other, int size)
{
    const int l = A_LANE;
    const uint32_t b0 = shared_at(other + (l & 15) * A_PITCH(size) + (l >> 4) * 8);
    UNROLL
    for (int n = 0; n < A_N; n += 2) {
        uint32_t a[A_M][4], b[4];
        UNROLL
        for (int m = 0; m < A_M; m++)
            UNROLL
            for (int i = 0; i < 4; i++)
                a[m][i] = CAT(pack_, A_TYPE)(s[m][n + i / 2][i % 2 * 2], s[m][n + i / 2][i % 2 * 2 + 1]);
        UNROLL
        for (int d = 0; d < A_OUT(size) / 8; d += 2) {
            ldmatrix_trans(b, b0 + (uint32_t)(n * 8 * A_PITCH(size) + d * 8) * 2);
            UNROLL
            for (int m = 0; m < A_M; m++) {
                CAT(mma_, A_TYPE)(x + A_AT(size, m, d), a[m], b[0], b[1]);
                CAT(mma_, A_TYPE)(x + A_AT(size, m, d + 1), a[m], b[2], b[3]);
            }
        }
    }
}
#else
FN void AT(meet)(float s[A_M][A_N][4], const A_T *own, const A_T *other, int size)
{
    const A_T *a0 = own + AT(mine)(0, 0) * A_PITCH(size), *b0 = other + AT(theirs)(0, 0) * A_PITCH(size);
    AT(clear)(&s[0][0][0], A_M * A_N * 4);
    ROLLED
    for (int k = 0; k < A_D(size); k += 4) {
        ALIGNED_16 float a[A_M][2][4], b[4];
        UNROLL
        for (int i = 0; i < 2 * A_M; i++)
            copy_16(a[i / 2][i % 2], a0 + i * 8 * A_PITCH(size) + k);
        UNROLL
        for (int n = 0; n < 2 * A_N; n++) {
            copy_16(b, b0 + (n / 2 * 8 + n % 2) * A_PITCH(size) + k);
            UNROLL
            for (int i = 0; i < 8 * A_M; i++) {
                float *c = &s[i / 8][n / 2][i / 4 % 2 * 2 + n % 2];
                *c = fmaf(a[i / 8][i / 4 % 2][i % 4], b[i % 4], *c);
            }
        }
    }
}

/* x += s times A_OUT(size) columns of the other side.  Lanes 4 g to 4 g + 3 each have a part of a row of s,
 * and all of them need the whole row. */
FN void AT(gather)(float *x, float s[A_M][A_N][4], const A_T *other, int size)
{
    const A_T *b0 = other + A_LANE % 4 * 2;
    UNROLL
    for (int n = 0; n < 2 * A_N; n++) {
        ROLLED
        for (int j = 0; j < 4; j++) {
            const A_T *b = b0 + (n / 2 * 8 + 2 * j + n % 2) * A_PITCH(size);
            ALIGNED_16 float a[A_M][2], y[2];
            UNROLL
            for (int i = 0; i < 2 * A_M; i++)
                a[i / 2][i % 2] = __shfl_sync(A_ALL, s[i / 2][n / 2][i % 2 * 2 + n % 2], (A_LANE & 28) + j);
            UNROLL
            for (int d = 0; d < A_OUT(size) / 8; d++) {
                copy_8(y, b + d * 8);
                UNROLL
                for (int i = 0; i < 4 * A_M; i++) {
                    float *c = x + A_AT(size, i / 4, d) + i % 4;
                    *c = fmaf(a[i / 4][i % 4 / 2], y[i % 2], *c);
                }
            }
        }
    }
}
#endif
#if !A_WGMMA
FN void AT(finish)(float *x, int n) { (void)x, (void)n; }
#endif

/* ---- scores ------------------------------------------------------------------------------------- */

/* Row and column of x[0][0][0]; A_DOWN and A_ACROSS are the constant distances of x[m][n][i] from it. */
FN int AT(row)(AT(Place) at)
{
    return A_PART == A_KEYS ? at.other + AT(theirs)(0, 0) : at.own + AT(mine)(0, 0);
}
FN int AT(column)(AT(Place) at)
{
    return A_PART == A_KEYS ? at.own + AT(mine)(0, 0) : at.other + AT(theirs)(0, 0);
}
#define A_DOWN(m, n, i) (A_PART == A_KEYS ? 8 * (n) + ((i) & 1) : 16 * (m) + 8 * ((i) >> 1))
#define A_ACROSS(m, n, i) (A_PART == A_KEYS ? 16 * (m) + 8 * ((i) >> 1) : 8 * (n) + ((i) & 1))

/* Is a part of the tile beyond the limits, or behind the last column? */
FN int AT(edge)(AT(Place) at)
{
    const int r = A_PART == A_KEYS ? at.other : at.own, nr = A_PART == A_KEYS ? A_OTHER : A_OWN;
    const int c = A_PART == A_KEYS ? at.own : at.other, nc = A_PART == A_KEYS ? A_OWN : A_OTHER;
    return (A_LIMITED && (c + nc - 1 > r + A_RIGHT || c < r + nr - 1 - A_LEFT)) || c + nc > A_COLS;
}

/* Turns the products of q and k in s into scores (A_PLAIN: without their factor).  slope: the derivative of
 * the scores by scale times the products, if it is not 1.  Bit 4 n + i of hidden[m]: the score is masked. */
FN void AT(score)(float s[A_M][A_N][4], float slope[A_M][A_N][4], uint32_t hidden[A_M], void *const *op,
                  AT(Place) at)
{
    const int edge = AT(edge)(at), r0 = AT(row)(at), c0 = AT(column)(at);
    const uint8_t *mask = A_OP_MASK;
    const A_MEMORY(A_BIAS_TYPE) *bias = A_OP_BIAS;
    if (A_MASK)
        mask += at.b * A_MASK_BATCH + at.h * A_MASK_HEAD + r0 * A_MASK_ROW + c0 * A_MASK_COL;
    if (A_BIAS)
        bias += at.b * A_BIAS_BATCH + at.h * A_BIAS_HEAD + r0 * A_BIAS_ROW + c0 * A_BIAS_COL;
    UNROLL
    for (int m = 0; m < A_M; m++) {
        hidden[m] = 0;
        UNROLL
        for (int j = 0; j < 4 * A_N; j++) {
            const int n = j / 4, i = j % 4, down = A_DOWN(m, n, i), across = A_ACROSS(m, n, i);
            const int r = r0 + down, c = c0 + across;
            const int inside = r < A_ROWS && c < A_COLS;
            float x = A_PLAIN ? s[m][n][i] : s[m][n][i] * A_SCALE;
            int hide = A_LIMITED && edge && (c > r + A_RIGHT || c < r - A_LEFT);
#if A_CAPPED
            x = TANH(x / A_CAP);
            slope[m][n][i] = 1 - x * x;
            x *= A_CAP;
#endif
            if (A_MASK && inside)
                hide |= mask[down * A_MASK_ROW + across * A_MASK_COL];
            if (hide && A_HIDES == A_HIDES_SCORE)
                x = A_FILL;
            if (A_BIAS && inside)
                x += (float)CAT(LD_, A_BIAS_TYPE)(bias, down * A_BIAS_ROW + across * A_BIAS_COL);
            if (hide && A_HIDES != A_HIDES_SCORE)
                x = A_HIDES == A_HIDES_ADDED ? x + A_FILL : A_FILL;
            s[m][n][i] = edge && c >= A_COLS ? -INF_ : x;
            hidden[m] |= (uint32_t)(hide != 0) << j;
        }
    }
}

/* exp(score - base); base is the largest score of the row so far, or AT(base) in the backward phases. */
FN float AT(power)(float score, float base)
{
#if A_PLAIN
    return exp2_fast(fmaf(score, A_UNIT, -base));
#elif A_BYTES == 2
    return exp2_fast((score - base) * 1.4426950408889634f);
#else
    return exp_float(score - base);
#endif
}

/* The range of tiles of the other side that the own rows see, or that see them. */
FN void AT(range)(int own, int *begin, int *end)
{
    const int left = A_PART == A_KEYS ? A_RIGHT : A_LEFT, right = A_PART == A_KEYS ? A_LEFT : A_RIGHT;
    const int tiles = ((A_PART == A_KEYS ? A_ROWS : A_COLS) + A_OTHER - 1) / A_OTHER;
    const int first = own - left, last = own + A_OWN - 1 + right;
    *begin = 0;
    *end = tiles;
    if (!A_LIMITED || A_COUNTS)
        return;
    *end = last < 0 ? 0 : last / A_OTHER + 1 < tiles ? last / A_OTHER + 1 : tiles;
    *begin = first < 0 ? 0 : first / A_OTHER < *end ? first / A_OTHER : *end;
}

/* ---- dropout ------------------------------------------------------------------------------------ */

#if A_DROPOUT
/* Bit e: is element index + e, of four, kept?  index is a multiple of 4. */
FN uint32_t AT(draw)(const int64_t *rng, int64_t key, int64_t index)
{
    const PhiloxWords w = philox_draw(rng[0], key, rng[1], index >> 2);
    return (uint32_t)(w.w0 >> 8 >= A_DROPPED) | (uint32_t)(w.w1 >> 8 >= A_DROPPED) << 1 |
           (uint32_t)(w.w2 >> 8 >= A_DROPPED) << 2 | (uint32_t)(w.w3 >> 8 >= A_DROPPED) << 3;
}

/* Bit 4 n + i: is x[m][n][i] kept?  A draw serves four columns.  Of two lanes that share the four columns,
 * one draws for row g and one for row g + 8; with A_KEYS each of four lanes has one of the columns, and draws
 * for one i. */
FN uint32_t AT(kept_of)(const int64_t *rng, int64_t key, AT(Place) at, int m)
{
    uint32_t kept = 0;
#if A_COLS % 4 == 0
    const int g = A_LANE / 4, t = A_LANE % 4, e = A_PART == A_KEYS ? g & 3 : t & 1;
    const int64_t line = AT(line)(at);
    uint32_t drawn = 0;
    UNROLL
    for (int n = 0; n < A_N; n++) {
        const int r = AT(row)(at) + A_DOWN(m, n, A_PART == A_KEYS ? e : 2 * e);
        const int c = (AT(column)(at) + A_ACROSS(m, n, e)) & ~3;
        drawn |= AT(draw)(rng, key, (line + r) * A_COLS + c) << 4 * n;
    }
    if (A_PART == A_KEYS) {
        UNROLL
        for (int i = 0; i < 4; i++)
            kept |= (__shfl_sync(A_ALL, drawn, (A_LANE & 19) + 4 * i) >> e & 0x11111111u) << i;
    } else {
        const uint32_t other = __shfl_xor_sync(A_ALL, drawn, 1);
        kept = ((e ? other : drawn) >> 2 * e & 0x33333333u) |
               ((e ? drawn : other) >> 2 * e & 0x33333333u) << 2;
    }
#else
    UNROLL
    for (int j = 0; j < 4 * A_N; j++) {
        const int64_t index = (AT(line)(at) + AT(row)(at) + A_DOWN(m, j / 4, j % 4)) * A_COLS +
                              AT(column)(at) + A_ACROSS(m, j / 4, j % 4);
        kept |= (uint32_t)(philox_bits(rng[0], key, rng[1], index) >= A_DROPPED) << j;
    }
#endif
    return kept;
}
#endif

FN void AT(kept)(uint32_t kept[A_M], void *const *op, AT(Place) at)
{
    UNROLL
    for (int m = 0; m < A_M; m++)
#if A_DROPOUT
        kept[m] = AT(kept_of)(A_OP_RNG, A_KEY, at, m);
#else
        kept[m] = A_ALL;
#endif
}

/* ---- results ------------------------------------------------------------------------------------ */

/* Stores two neighbours of a row, of which the second one may be behind the row's end. */
FN void AT(put_f32)(float *x, int64_t at, int c, int size, float v0, float v1)
{
    ALIGNED_16 const float v[2] = {v0, v1};
    if (A_EVEN(size) && c < size)
        copy_8(x + at + c, v);
    if (!A_EVEN(size) && c < size)
        x[at + c] = v0;
    if (!A_EVEN(size) && c + 1 < size)
        x[at + c + 1] = v1;
}

#if A_BYTES == 2
FN void AT(put_half)(A_T *x, int64_t at, int c, int size, float v0, float v1)
{
    const uint32_t v = CAT(pack_, A_TYPE)(v0, v1);
    if (A_EVEN(size) && c < size)
        copy_4(x + at + c, &v);
    if (!A_EVEN(size) && c < size)
        x[at + c] = (uint16_t)v;
    if (!A_EVEN(size) && c + 1 < size)
        x[at + c + 1] = (uint16_t)(v >> 16);
}
#endif
#define A_PUT_f32 put_f32
#define A_PUT_bf16 put_half
#define A_PUT_f16 put_half
#define A_PUT_AT(name) AT(name)
#define A_PUT(type) A_PUT_AT(CAT(A_PUT_, type))

#if A_PART == A_QUERIES || A_PART == A_KEYS
/* Stores the columns from `column` on of the own rows, of `size` elements; rows from `rows` on do not
 * exist. */
FN void AT(put_rows)(A_G *x, int64_t stride, int column, float factor, const float *v, AT(Place) at, int rows,
                     int size)
{
    UNROLL
    for (int m = 0; m < A_M; m++)
        UNROLL
        for (int i = 0; i < 4; i += 2) {
            const int r = at.own + AT(mine)(m, i);
            UNROLL
            for (int d = 0; d < A_OUT(size) / 8; d++)
                if (r < rows) {
                    const float *y = v + A_AT(size, m, d) + i;
                    A_PUT(A_GRADIENT_TYPE)
                    (x, r * stride, column + AT(theirs)(d, 0), size, y[0] * factor, y[1] * factor);
                }
        }
}
#endif
