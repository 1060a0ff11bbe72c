/* pool.h -- pooling where the last dimension is left alone (channels-last), and its gradients, for CUDA.
 *
 * Pasted once per kernel behind the parameters of its window (ir/ops/pool.c), the last dimension of which is
 * one position everywhere.  A thread has POOL_WIDTH elements side by side of a place that is made. */

typedef struct __attribute__((aligned(sizeof(POOL_T) * POOL_WIDTH))) {
    POOL_T v[POOL_WIDTH];
} AT(Some);
#define POOL_CHUNKS ((int)(P2 / POOL_WIDTH))
#define POOL_EACH(e) UNROLL for (int e = 0; e < POOL_WIDTH; e++)

FN const AT(Some) * AT(at)(const POOL_T *x, POOL_INDEX plane, int z, int y, int depth, int height, int c)
{
    return (const AT(Some) *)(x + (((plane * depth + z) * height + y) * POOL_CHUNKS + c) * POOL_WIDTH);
}

/* Position k of the window `at` along dimension d. */
FN int AT(position)(int at, int d, int k)
{
    return d ? at * (int)P10 - (int)P13 + k * (int)P16 : at * (int)P9 - (int)P12 + k * (int)P15;
}

#if POOL_KIND < 2 /* max_pool_bwd, max_pool */
/* The first position of the largest value in a window, per channel, and that value; -1: it sees nothing. */
FN void AT(largest)(const POOL_T *x, POOL_INDEX plane, int od, int oh, int c, REAL *best, int *tap)
{
    POOL_EACH(e)
    {
        best[e] = 0;
        tap[e] = -1;
    }
    for (int k = 0; k < (int)(P6 * P7); k++) {
        int z = AT(position)(od, 0, k / (int)P7), y = AT(position)(oh, 1, k % (int)P7);
        if (z < 0 || z >= (int)P0 || y < 0 || y >= (int)P1)
            continue;
        AT(Some) s = *AT(at)(x, plane, z, y, (int)P0, (int)P1, c);
        POOL_EACH(e)
        {
            const REAL v = POOL_LOAD(s.v, e);
            const bool more = tap[e] < 0 || (!(v <= best[e]) && best[e] == best[e]);
            best[e] = more ? v : best[e];
            tap[e] = more ? k : tap[e];
        }
    }
}
#else
/* Positions of a window that count along dimension d. */
FN int AT(counted)(int at, int d)
{
    int n = 0;
    for (int k = 0; k < (int)(d ? P7 : P6); k++) {
        int p = AT(position)(at, d, k);
        n += p >= (int)(d ? P19 : P18) && p < (int)(d ? P22 : P21);
    }
    return n;
}
#endif

#if POOL_KIND == 0
FN void AT(make)(const POOL_T *x, POOL_INDEX plane, int od, int oh, int c, REAL out[1][POOL_WIDTH])
{
    int tap[POOL_WIDTH];
    AT(largest)(x, plane, od, oh, c, *out, tap);
    POOL_EACH(e) (*out)[e] = tap[e] < 0 ? -INF_ : (*out)[e];
}
#elif POOL_KIND == 1
/* First and last window that a row of positions can be in, along dimension d. */
FN int AT(first_window)(int at, int d)
{
    const int reach = at + (int)(d ? P13 : P12) - (int)(d ? (P7 - 1) * P16 : (P6 - 1) * P15);
    const int s = (int)(d ? P10 : P9);
    return reach <= 0 ? 0 : (reach + s - 1) / s;
}
FN int AT(last_window)(int at, int d)
{
    const int last = (at + (int)(d ? P13 : P12)) / (int)(d ? P10 : P9), all = (int)(d ? P4 : P3);
    return last < all ? last : all - 1;
}

/* The position of the window that `at` is, along dimension d; -1: none. */
FN int AT(tap)(int at, int window, int d)
{
    const int far = at - AT(position)(window, d, 0), step = (int)(d ? P16 : P15);
    return far >= 0 && far % step == 0 && far / step < (int)(d ? P7 : P6) ? far / step : -1;
}

/* POOL_DOWN times POOL_ACROSS positions from (z, y) on: each window that they share is looked at once. */
FN void AT(make)(const POOL_T *x, const POOL_T *dy, POOL_INDEX plane, int z, int y, int c,
                 REAL out[POOL_DOWN * POOL_ACROSS][POOL_WIDTH])
{
    ROLLED
    for (int od = AT(first_window)(z, 0); od <= AT(last_window)(z + POOL_DOWN - 1, 0); od++) {
        ROLLED
        for (int oh = AT(first_window)(y, 1); oh <= AT(last_window)(y + POOL_ACROSS - 1, 1); oh++) {
            int tap[POOL_WIDTH];
            REAL best[POOL_WIDTH];
            AT(largest)(x, plane, od, oh, c, best, tap);
            AT(Some) g = *AT(at)(dy, plane, od, oh, (int)P3, (int)P4, c);
            UNROLL
            for (int n = 0; n < POOL_DOWN * POOL_ACROSS; n++) {
                const int k0 = AT(tap)(z + n / POOL_ACROSS, od, 0), k1 = AT(tap)(y + n % POOL_ACROSS, oh, 1);
                const int k = k0 < 0 || k1 < 0 ? -2 : k0 * (int)P7 + k1;
                POOL_EACH(e) out[n][e] += tap[e] == k ? POOL_LOAD(g.v, e) : 0;
            }
        }
    }
}
#elif POOL_KIND == 2
FN void AT(make)(const POOL_T *x, POOL_INDEX plane, int od, int oh, int c, REAL out[1][POOL_WIDTH])
{
    const int n = AT(counted)(od, 0) * AT(counted)(oh, 1);
    for (int k = 0; k < (int)(P6 * P7); k++) {
        int z = AT(position)(od, 0, k / (int)P7), y = AT(position)(oh, 1, k % (int)P7);
        if (z < 0 || z >= (int)P0 || y < 0 || y >= (int)P1)
            continue;
        AT(Some) s = *AT(at)(x, plane, z, y, (int)P0, (int)P1, c);
        POOL_EACH(e) (*out)[e] += POOL_LOAD(s.v, e);
    }
    POOL_EACH(e) (*out)[e] = n > 0 ? (*out)[e] / R(n) : R(0);
}
#else
/* The window whose position k is `at`, -1: none. */
FN int AT(window)(int at, int d, int k)
{
    int from = d ? at + (int)P13 - k * (int)P16 : at + (int)P12 - k * (int)P15, s = (int)(d ? P10 : P9);
    return from >= 0 && from % s == 0 && from / s < (int)(d ? P4 : P3) ? from / s : -1;
}

FN void AT(make)(const POOL_T *dy, POOL_INDEX plane, int z, int y, int c, REAL out[1][POOL_WIDTH])
{
    for (int k = 0; k < (int)(P6 * P7); k++) {
        int od = AT(window)(z, 0, k / (int)P7), oh = AT(window)(y, 1, k % (int)P7);
        if (od < 0 || oh < 0)
            continue;
        const REAL n = R(AT(counted)(od, 0) * AT(counted)(oh, 1));
        AT(Some) g = *AT(at)(dy, plane, od, oh, (int)P3, (int)P4, c);
        POOL_EACH(e) (*out)[e] += POOL_LOAD(g.v, e) / n;
    }
}
#endif
