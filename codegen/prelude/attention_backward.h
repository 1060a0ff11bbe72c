/* attention_backward.h -- gradients of attention from o and the statistics of its rows, pasted behind
 * attention_tile.h.  The phase of queries stores what the phase of keys and values needs of each row of o and
 * do; the gradient of the bias is a phase of its own.  Scores are computed again in each. */
/* Replaces the products of q and k in s by the weights p of v, and do v in t by the derivative by the
 * products (A_BIASES: by the scores).  base, delta, inv: statistics of the row of x[m][n][i]. */
FN void AT(slopes)(float s[A_M][A_N][4], float t[A_M][A_N][4], const float *base, const float *delta,
                   const float *inv, void *const *op, AT(Place) at)
{
    uint32_t hidden[A_M], kept[A_M];
#if A_CAPPED
    float slope[A_M][A_N][4];
#else
    float (*slope)[A_N][4] = s;
#endif
    AT(score)(s, slope, hidden, op, at);
    AT(kept)(kept, op, at);
    UNROLL
    for (int m = 0; m < A_M; m++)
        UNROLL
        for (int j = 0; j < 4 * A_N; j++) {
            const int n = j / 4, i = j % 4, r = A_PART == A_KEYS ? 2 * n + i % 2 : 2 * m + i / 2;
            const float e = AT(power)(s[m][n][i], base[r]), p = A_PLAIN ? e : e * inv[r];
            const int keep = !A_DROPOUT || (kept[m] >> j & 1);
            float ds = p * ((keep ? A_DROPOUT ? t[m][n][i] * A_KEEP_FACTOR : t[m][n][i] : 0) - delta[r]);
            if (A_CAPPED && A_PART != A_BIASES)
                ds *= slope[m][n][i];
            if (A_FILLS && (A_PART == A_BIASES ? A_HIDES == A_HIDES_ALL : A_HIDES != A_HIDES_ADDED) &&
                (hidden[m] >> j & 1))
                ds = 0;
            s[m][n][i] = keep ? p : 0;
            t[m][n][i] = ds;
        }
}

/* Is a row so low that masked scores count in it? */
FN int AT(any_low)(const float *top, int begin, int end)
{
    int low = 0;
    for (int r = begin + (int)threadIdx.x; r < end; r += A_THREADS)
        low |= top[r] < A_FILL / 2;
    return __syncthreads_or(low);
}

#if A_PART == A_QUERIES || A_PART == A_BIASES
/* Statistics of the own rows of which a lane has elements. */
typedef struct {
    float base[2 * A_M], delta[2 * A_M], inv[2 * A_M];
} AT(Stats);

/* The number that AT(power) subtracts from a score: with A_PLAIN it includes the factor inv, and in a row
 * without weights it is infinite, so that all its weights are 0. */
FN float AT(base)(float top, float inv)
{
    if (inv == 0)
        return INF_;
    return A_PLAIN ? (top + log_float(1 / inv)) * 1.4426950408889634f : top;
}

/* The product do o of a row, of which each of four lanes sums a part. */
FN float AT(delta)(const A_T *o, const A_T *g)
{
    const int wide = A_WHOLE(A_V_SIZE) ? 16 / A_BYTES : 1;
    float sum = 0;
    for (int c = A_LANE % 4 * wide; c < A_V_SIZE; c += 4 * wide) {
        ALIGNED_16 A_T x[16 / A_BYTES], y[16 / A_BYTES];
        if (wide > 1) {
            copy_16(x, o + c);
            copy_16(y, g + c);
        } else {
            x[0] = o[c];
            y[0] = g[c];
        }
        UNROLL
        for (int i = 0; i < wide; i++)
            sum = fmaf(A_LD(x, i), A_LD(y, i), sum);
    }
    sum += __shfl_xor_sync(A_ALL, sum, 1);
    return sum + __shfl_xor_sync(A_ALL, sum, 2);
}

FN void AT(stats)(AT(Stats) *w, void *const *op, AT(Place) at)
{
    UNROLL
    for (int j = 0; j < 2 * A_M; j++) {
        const int r = at.own + AT(mine)(j / 2, j % 2 * 2), row = r < A_ROWS ? r : 0;
        const int64_t line = AT(line)(at) + row, from = AT(o)(at) + row * A_O_ROW;
        w->inv[j] = A_OP_INV[line];
        w->base[j] = AT(base)(A_OP_TOP[line], w->inv[j]);
        w->delta[j] = AT(delta)(A_OP_O + from, A_OP_DO + from);
    }
}
#endif

#if A_PART == A_KEYS
/* A tile of queries in shared memory, with do and the statistics of its rows. */
typedef struct {
    A_T *q, *g;
    float *base, *delta, *inv;
} AT(Stage);

FN AT(Stage) AT(stage)(unsigned char *shared, int j)
{
    AT(Stage) s;
    const int bytes = (A_TILES * A_BYTES + 3 * A_OTHER * 4 + A_ALIGN - 1) / A_ALIGN * A_ALIGN;
    shared += (A_OWN_TILE(A_SIZE) + A_OWN_TILE(A_V_SIZE)) * A_BYTES + j % 2 * bytes;
    s.q = (A_T *)shared;
    s.g = s.q + A_TILE(A_SIZE);
    s.base = (float *)(s.g + A_TILE(A_V_SIZE));
    s.delta = s.base + A_OTHER;
    s.inv = s.delta + A_OTHER;
    return s;
}

FN void AT(issue)(AT(Stage) s, void *const *op, AT(Place) at)
{
    const int64_t line = AT(line)(at);
    AT(load)(s.q, AT(q)(op, at), A_Q_ROW, at.other, A_ROWS, A_OTHER, A_SIZE);
    AT(load)(s.g, A_OP_DO + AT(o)(at), A_O_ROW, at.other, A_ROWS, A_OTHER, A_V_SIZE);
    for (int i = (int)threadIdx.x; i < A_OTHER; i += A_THREADS) {
        const int inside = at.other + i < A_ROWS;
        const int64_t from = line + (inside ? at.other + i : 0);
        copy_async_4(s.base + i, A_OP_BASE + from, inside ? 4 : 0);
        copy_async_4(s.delta + i, A_OP_DELTA + from, inside ? 4 : 0);
        if (!A_PLAIN)
            copy_async_4(s.inv + i, A_OP_INV + from, inside ? 4 : 0);
    }
    copy_commit();
}

typedef struct {
    float dk[A_M * A_OUT(A_SIZE) / 2], dv[A_M * A_OUT(A_V_SIZE) / 2];
} AT(Sums);

FN void AT(tile)(AT(Sums) *w, AT(Stage) x, const A_T *k, const A_T *v, int column, int v_column,
                 void *const *op, AT(Place) at)
{
    float s[A_M][A_N][4], t[A_M][A_N][4], base[2 * A_N], delta[2 * A_N], inv[2 * A_N];
    AT(meet)(s, k, x.q, A_SIZE);
    AT(meet)(t, v, x.g, A_V_SIZE);
    AT(finish)(&s[0][0][0], A_N * 4);
    AT(finish)(&t[0][0][0], A_N * 4);
    UNROLL
    for (int n = 0; n < A_N; n++) {
        copy_8(base + 2 * n, x.base + AT(theirs)(n, 0));
        copy_8(delta + 2 * n, x.delta + AT(theirs)(n, 0));
        if (!A_PLAIN)
            copy_8(inv + 2 * n, x.inv + AT(theirs)(n, 0));
    }
    AT(slopes)(s, t, base, delta, inv, op, at);
    AT(gather)(w->dv, s, x.g + v_column, A_V_SIZE);
    AT(gather)(w->dk, t, x.q + column, A_SIZE);
    AT(finish)(w->dv, A_OUT(A_V_SIZE) / 2);
    AT(finish)(w->dk, A_OUT(A_SIZE) / 2);
}

/* Goes to tile j of the queries, counted over the tiles begin to end of each head that shares the keys. */
FN void AT(go_to)(AT(Place) *at, int head, int begin, int end, int j)
{
    at->h = head + j / (end - begin);
    at->other = (begin + j % (end - begin)) * A_OTHER;
}

FN void AT(all_tiles)(AT(Sums) *w, void *const *op, AT(Place) at, unsigned char *shared, int column,
                      int v_column, int begin, int end)
{
    A_T *k = (A_T *)shared, *v = k + A_OWN_TILE(A_SIZE);
    const int share = (int)(A_HEADS / A_GROUPS), head = at.h, n = (end - begin) * share;
    if (n > 0) {
        AT(load)(k, AT(k)(op, at), A_K_ROW, at.own, A_COLS, A_OWN, A_SIZE);
        AT(load)(v, AT(v)(op, at), A_V_ROW, at.own, A_COLS, A_OWN, A_V_SIZE);
        AT(go_to)(&at, head, begin, end, 0);
        AT(issue)(AT(stage)(shared, 0), op, at);
    }
    ROLLED
    for (int j = 0; j < n; j++) {
        AT(Place) next = at;
        copy_wait(0);
        AT(publish)();
        __syncthreads();
        if (j + 1 < n) {
            AT(go_to)(&next, head, begin, end, j + 1);
            AT(issue)(AT(stage)(shared, j + 1), op, next);
        }
        AT(tile)(w, AT(stage)(shared, j), k, v, column, v_column, op, at);
        at = next;
    }
}

FN void AT(run)(void *const *op, unsigned char *shared)
{
    const int blocks = (A_COLS + A_OWN - 1) / A_OWN, share = (int)(A_HEADS / A_GROUPS);
    const int part = (int)blockIdx.x % A_SPLIT, block = (int)blockIdx.x / A_SPLIT;
    AT(Place) at = {(int)(block / blocks / A_GROUPS), (int)(block / blocks % A_GROUPS) * share,
                    block % blocks * A_OWN, 0};
    AT(Sums) w;
    int begin, end;
    AT(range)(at.own, &begin, &end);
    if (A_LOW && AT(any_low)(A_OP_TOP + AT(line)(at), 0, share * A_ROWS)) {
        begin = 0;
        end = (A_ROWS + A_OTHER - 1) / A_OTHER;
    }
    AT(clear)(w.dk, A_M * A_OUT(A_SIZE) / 2);
    AT(clear)(w.dv, A_M * A_OUT(A_V_SIZE) / 2);
    const int column = part * A_OUT(A_SIZE), v_column = part * A_OUT(A_V_SIZE);
    AT(all_tiles)(&w, op, at, shared, column, v_column, begin, end);
    const int64_t g = at.h / share;
    AT(put_rows)(A_OP_DK + at.b * A_K_BATCH + g * A_K_HEAD, A_K_ROW, column, A_SCALE, w.dk, at, A_COLS,
                 A_SIZE);
    AT(put_rows)(A_OP_DV + at.b * A_V_BATCH + g * A_V_HEAD, A_V_ROW, v_column, A_DROPOUT ? A_KEEP_FACTOR : 1,
                 w.dv, at, A_COLS, A_V_SIZE);
}
#endif

#if A_PART == A_QUERIES
/* Stores delta and base of the own rows for the next phase. */
FN void AT(leave)(const AT(Stats) * w, void *const *op, AT(Place) at)
{
    UNROLL
    for (int j = 0; j < 2 * A_M; j++) {
        const int r = at.own + AT(mine)(j / 2, j % 2 * 2);
        if (r < A_ROWS && A_LANE % 4 == 0) {
            A_OP_DELTA[AT(line)(at) + r] = w->delta[j];
            A_OP_BASE[AT(line)(at) + r] = w->base[j];
        }
    }
}

FN void AT(tile)(float *dq, const AT(Stats) *w, const A_T *q, const A_T *g, const A_T *k, int column,
                 void *const *op, AT(Place) at)
{
    float s[A_M][A_N][4], t[A_M][A_N][4];
    AT(meet)(s, q, k, A_SIZE);
    AT(meet)(t, g, k + A_TILE(A_SIZE), A_V_SIZE);
    AT(finish)(&s[0][0][0], A_N * 4);
    AT(finish)(&t[0][0][0], A_N * 4);
    AT(slopes)(s, t, w->base, w->delta, w->inv, op, at);
    AT(gather)(dq, t, k + column, A_SIZE);
    AT(finish)(dq, A_OUT(A_SIZE) / 2);
}

/* Begins to copy a tile of k and, behind it, of v. */
FN void AT(issue)(A_T *k, void *const *op, AT(Place) at, int tile)
{
    AT(load)(k, AT(k)(op, at), A_K_ROW, tile * A_OTHER, A_COLS, A_OTHER, A_SIZE);
    AT(load)(k + A_TILE(A_SIZE), AT(v)(op, at), A_V_ROW, tile * A_OTHER, A_COLS, A_OTHER, A_V_SIZE);
    copy_commit();
}

FN void AT(run)(void *const *op, unsigned char *shared)
{
    const int blocks = (A_ROWS + A_OWN - 1) / A_OWN;
    const int part = (int)blockIdx.x % A_SPLIT, block = (int)blockIdx.x / A_SPLIT;
    A_T *q = (A_T *)shared, *g = q + A_OWN_TILE(A_SIZE), *k = g + A_OWN_TILE(A_V_SIZE);
    AT(Place) at = {(int)(block / blocks / A_HEADS), (int)(block / blocks % A_HEADS),
                    (blocks - 1 - block % blocks) * A_OWN, 0};
    AT(Stats) w;
    float dq[A_M * A_OUT(A_SIZE) / 2];
    const int last = at.own + A_OWN < A_ROWS ? at.own + A_OWN : A_ROWS;
    int begin, end;
    AT(range)(at.own, &begin, &end);
    if (A_LOW && AT(any_low)(A_OP_TOP + AT(line)(at), at.own, last)) {
        begin = 0;
        end = (A_COLS + A_OTHER - 1) / A_OTHER;
    }
    if (begin < end) {
        AT(load)(q, AT(q)(op, at), A_Q_ROW, at.own, A_ROWS, A_OWN, A_SIZE);
        AT(load)(g, A_OP_DO + AT(o)(at), A_O_ROW, at.own, A_ROWS, A_OWN, A_V_SIZE);
        AT(issue)(k, op, at, begin);
    }
    AT(stats)(&w, op, at);
    if (part == 0)
        AT(leave)(&w, op, at);
    AT(clear)(dq, A_M * A_OUT(A_SIZE) / 2);
    ROLLED
    for (int j = begin; j < end; j++) {
        at.other = j * A_OTHER;
        copy_wait(0);
        AT(publish)();
        __syncthreads();
        if (j + 1 < end)
            AT(issue)(k + (j + 1 - begin) % 2 * A_TILES, op, at, j + 1);
        AT(tile)(dq, &w, q, g, k + (j - begin) % 2 * A_TILES, part * A_OUT(A_SIZE), op, at);
    }
    AT(put_rows)(A_OP_DQ + at.b * A_Q_BATCH + at.h * A_Q_HEAD, A_Q_ROW, part * A_OUT(A_SIZE), A_SCALE, dq, at,
                 A_ROWS, A_SIZE);
}
#endif

#if A_PART == A_BIASES
/* Adds to db what one batch and head contribute. */
FN void AT(add)(float db[A_M][A_N][4], void *const *op, unsigned char *shared, AT(Place) at)
{
    A_T *q = (A_T *)shared, *g = q + A_OWN_TILE(A_SIZE), *k = g + A_OWN_TILE(A_V_SIZE);
    A_T *v = k + A_TILE(A_SIZE);
    float s[A_M][A_N][4], t[A_M][A_N][4];
    AT(Stats) w;
    __syncthreads();
    AT(load)(q, AT(q)(op, at), A_Q_ROW, at.own, A_ROWS, A_OWN, A_SIZE);
    AT(load)(g, A_OP_DO + AT(o)(at), A_O_ROW, at.own, A_ROWS, A_OWN, A_V_SIZE);
    AT(load)(k, AT(k)(op, at), A_K_ROW, at.other, A_COLS, A_OTHER, A_SIZE);
    AT(load)(v, AT(v)(op, at), A_V_ROW, at.other, A_COLS, A_OTHER, A_V_SIZE);
    copy_commit();
    AT(stats)(&w, op, at);
    copy_wait(0);
    __syncthreads();
    AT(meet)(s, q, k, A_SIZE);
    AT(meet)(t, g, v, A_V_SIZE);
    AT(slopes)(s, t, w.base, w.delta, w.inv, op, at);
    UNROLL
    for (int j = 0; j < A_M * A_N * 4; j++)
        db[j / 4 / A_N][j / 4 % A_N][j % 4] += t[j / 4 / A_N][j / 4 % A_N][j % 4];
}

/* Computes the gradient of a tile of the bias, over the batches and heads that share it. */
FN void AT(run)(void *const *op, unsigned char *shared)
{
    const int down = (A_ROWS + A_OWN - 1) / A_OWN, across = (A_COLS + A_OTHER - 1) / A_OTHER;
    const int part = (int)blockIdx.x / across / down, heads = (int)A_BIAS_EXTENT_HEAD;
    const int b0 = part / heads, h0 = part % heads;
    AT(Place) at = {b0, h0, (int)blockIdx.x / across % down * A_OWN, (int)blockIdx.x % across * A_OTHER};
    float db[A_M][A_N][4];
    AT(clear)(&db[0][0][0], A_M * A_N * 4);
    ROLLED
    for (at.b = b0; at.b < (A_BIAS_EXTENT_BATCH > 1 ? b0 + 1 : (int)A_BATCH); at.b++) {
        ROLLED
        for (at.h = h0; at.h < (A_BIAS_EXTENT_HEAD > 1 ? h0 + 1 : (int)A_HEADS); at.h++)
            AT(add)(db, op, shared, at);
    }
    UNROLL
    for (int m = 0; m < A_M; m++)
        UNROLL
        for (int j = 0; j < 4 * A_N; j++) {
            const int r = at.own + AT(mine)(m, j % 4), c = at.other + AT(theirs)(j / 4, j % 4);
            if (r < A_ROWS && c < A_COLS)
                ((float *)op[10])[b0 * A_BIAS_BATCH + h0 * A_BIAS_HEAD + r * A_BIAS_ROW + c * A_BIAS_COL] =
                    db[m][j / 4][j % 4];
        }
}
#endif
