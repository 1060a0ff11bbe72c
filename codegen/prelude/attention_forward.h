/* attention_forward.h -- computes o and, for each row, the largest score and the inverse of the sum of
 * exponentials, with a running maximum; pasted behind attention_tile.h. */
typedef struct {
    float out[A_M][A_OUT(A_V_SIZE) / 8][4], top[A_M][2], sum[A_M][2]; /* sum: over this lane's columns only */
} AT(Rows);

FN void AT(open)(AT(Rows) *w, void *const *op, AT(Place) at)
{
    AT(clear)(&w->out[0][0][0], A_M * A_OUT(A_V_SIZE) / 2);
    UNROLL
    for (int j = 0; j < 2 * A_M; j++) {
        w->top[j / 2][j % 2] = -INF_;
        w->sum[j / 2][j % 2] = 0;
#if A_SINK
        w->top[j / 2][j % 2] = (float)CAT(LD_, A_SINK_TYPE)((const A_MEMORY(A_SINK_TYPE) *)op[5], at.h);
        w->sum[j / 2][j % 2] = A_LANE % 4 == 0;
#endif
    }
}

FN float AT(largest)(float x)
{
    x = fmaxf(x, __shfl_xor_sync(A_ALL, x, 1));
    return fmaxf(x, __shfl_xor_sync(A_ALL, x, 2));
}

/* Replaces s by weights relative to the largest score so far, and rescales sums made with an earlier one. */
FN void AT(weigh)(AT(Rows) *w, float s[A_M][A_N][4])
{
    UNROLL
    for (int j = 0; j < 2 * A_M; j++) {
        const int m = j / 2, i = j % 2 * 2;
        float top = w->top[m][j % 2], sum = 0;
        UNROLL
        for (int n = 0; n < A_N; n++)
            top = fmaxf(top, fmaxf(s[m][n][i], s[m][n][i + 1]));
        top = AT(largest)(top);
        const float base = (top == -INF_ ? 0 : top) * (A_PLAIN ? A_UNIT : 1);
        const float shrink = AT(power)(w->top[m][j % 2], base);
        UNROLL
        for (int n = 0; n < 2 * A_N; n++) {
            s[m][n / 2][i + n % 2] = AT(power)(s[m][n / 2][i + n % 2], base);
            sum += s[m][n / 2][i + n % 2];
        }
        w->sum[m][j % 2] = fmaf(w->sum[m][j % 2], shrink, sum);
        w->top[m][j % 2] = top;
        UNROLL
        for (int d = 0; d < A_OUT(A_V_SIZE) / 4; d++)
            w->out[m][d / 2][i + d % 2] *= shrink;
    }
}

FN void AT(drop)(float s[A_M][A_N][4], void *const *op, AT(Place) at)
{
    uint32_t kept[A_M];
    AT(kept)(kept, op, at);
    UNROLL
    for (int m = 0; m < A_M; m++)
        UNROLL
        for (int j = 0; j < 4 * A_N; j++)
            s[m][j / 4][j % 4] = kept[m] >> j & 1 ? s[m][j / 4][j % 4] : 0;
}

/* Walks over tiles [begin, end).  v is copied while the products with k run, and the next k while those with
 * v do. */
FN void AT(walk)(AT(Rows) *w, void *const *op, AT(Place) at, const A_T *q, A_T *k, A_T *v, int begin, int end)
{
    const A_T *k0 = AT(k)(op, at), *v0 = AT(v)(op, at);
    if (begin >= end)
        return;
    AT(load)(k, k0, A_K_ROW, begin * A_OTHER, A_COLS, A_OTHER, A_SIZE);
    copy_commit();
    ROLLED
    for (int j = begin; j < end; j++) {
        float s[A_M][A_N][4];
        uint32_t hidden[A_M];
        at.other = j * A_OTHER;
        copy_wait(0);
        AT(publish)();
        __syncthreads();
        AT(load)(v, v0, A_V_ROW, at.other, A_COLS, A_OTHER, A_V_SIZE);
        copy_commit();
        AT(meet)(s, q, k, A_SIZE);
        AT(finish)(&s[0][0][0], A_N * 4);
        copy_wait(0);
        AT(publish)();
        __syncthreads();
        if (j + 1 < end) {
            AT(load)(k, k0, A_K_ROW, at.other + A_OTHER, A_COLS, A_OTHER, A_SIZE);
            copy_commit();
        }
        AT(score)(s, s, hidden, op, at);
        AT(weigh)(w, s);
        if (A_DROPOUT)
            AT(drop)(s, op, at);
        AT(gather)(&w->out[0][0][0], s, v, A_V_SIZE);
        AT(finish)(&w->out[0][0][0], A_OUT(A_V_SIZE) / 2);
    }
}

/* Is a row of the block so low that masked scores count in it? */
FN int AT(any_low)(const AT(Rows) *w)
{
    int low = 0;
    UNROLL
    for (int j = 0; j < 2 * A_M; j++)
        low |= w->top[j / 2][j % 2] < A_FILL / 2;
    return __syncthreads_or(low);
}

FN float AT(row_sum)(float x)
{
    x += __shfl_xor_sync(A_ALL, x, 1);
    return x + __shfl_xor_sync(A_ALL, x, 2);
}

FN void AT(close)(AT(Rows) *w, void *const *op, AT(Place) at)
{
    A_T *o = (A_T *)op[7] + AT(o)(at);
    UNROLL
    for (int j = 0; j < 2 * A_M; j++) {
        const int m = j / 2, i = j % 2 * 2, r = at.own + AT(mine)(m, i);
        const float sum = AT(row_sum)(w->sum[m][j % 2]), inv = 1 / sum;
        const float factor = A_DROPOUT ? A_KEEP_FACTOR * inv : inv;
        const int zero = A_GUARD == A_GUARD_UNSEEN ? sum == 0 : A_GUARD != A_GUARD_NONE && !(sum > 0);
        if (r < A_ROWS && A_LANE % 4 == 0) {
            ((float *)op[8])[AT(line)(at) + r] = A_PLAIN ? w->top[m][j % 2] * A_SCALE : w->top[m][j % 2];
            ((float *)op[9])[AT(line)(at) + r] = zero ? 0 : inv;
        }
        UNROLL
        for (int d = 0; d < A_OUT(A_V_SIZE) / 8; d++) {
            const float *x = w->out[m][d] + i;
            if (r < A_ROWS)
                A_PUT(A_TYPE)
                (o, r * A_O_ROW, AT(theirs)(d, 0), A_V_SIZE, zero ? 0 : x[0] * factor,
                 zero ? 0 : x[1] * factor);
        }
    }
}

FN void AT(run)(void *const *op, unsigned char *shared)
{
    const int blocks = (A_ROWS + A_OWN - 1) / A_OWN, block = (int)blockIdx.x;
    A_T *q = (A_T *)shared, *k = q + A_OWN_TILE(A_SIZE), *v = k + A_TILE(A_SIZE);
    AT(Place) at = {(int)(block / blocks / A_HEADS), (int)(block / blocks % A_HEADS),
                    (blocks - 1 - block % blocks) * A_OWN, 0}; /* blocks with the most tiles run first */
    AT(Rows) w;
    int begin, end;
    AT(open)(&w, op, at);
    AT(range)(at.own, &begin, &end);
    if (A_LOW || begin < end) /* else no tile is looked at, and nobody waits for q */
        AT(load)(q, AT(q)(op, at), A_Q_ROW, at.own, A_ROWS, A_OWN, A_SIZE);
    ROLLED
    for (int part = 0; part < 3; part++) {
        AT(walk)(&w, op, at, q, k, v, part == 0 ? begin : part == 1 ? 0 : end,
                 part == 0 ? end : part == 1 ? begin : (A_COLS + A_OTHER - 1) / A_OTHER);
        if (!A_LOW || (part == 0 && !AT(any_low)(&w)))
            break;
    }
    AT(close)(&w, op, at);
}
