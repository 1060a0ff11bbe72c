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
/* The largest value in a window, per channel, or the first NaN, and its first position; -1: it sees none. */
FN void AT(largest)(const POOL_T *x, POOL_INDEX plane, int od, int oh, int c, REAL *best, int *tap)
{
    int first = -1;
    POOL_EACH(e)
    {
        best[e] = -INF_;
        tap[e] = -1;
    }
    for (int k = 0; k < (int)(P6 * P7); k++) {
        int z = AT(position)(od, 0, k / (int)P7), y = AT(position)(oh, 1, k % (int)P7);
        if (z < 0 || z >= (int)P0 || y < 0 || y >= (int)P1)
            continue;
        first = first < 0 ? k : first;
        AT(Some) s = *AT(at)(x, plane, z, y, (int)P0, (int)P1, c);
        POOL_EACH(e)
        {
            const REAL v = POOL_LOAD(s.v, e);
            const bool more = !(v <= best[e]) && best[e] == best[e];
            best[e] = more ? v : best[e];
            tap[e] = more ? k : tap[e];
        }
    }
    POOL_EACH(e) tap[e] = tap[e] < 0 ? first : tap[e]; /* where all are -inf */
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
FN void AT(make)(const POOL_T *x, POOL_INDEX plane, int od, int oh, int c, REAL *out)
{
    int tap[POOL_WIDTH];
    AT(largest)(x, plane, od, oh, c, out, tap);
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

typedef struct __attribute__((aligned(2 * POOL_WIDTH))) {
    uint16_t v[POOL_WIDTH];
} AT(Taken);

/* A block has POOL_DOWN times POOL_ACROSS positions from (z0, y0) on, of POOL_GROUP chunks from c0 on.  The
 * windows that they are in are looked at once; which position each took is left in `taken`. */
#define POOL_PLACES(n) (int i = (int)threadIdx.x; i < (n) * POOL_GROUP; i += (int)blockDim.x)
FN void AT(make)(const POOL_T *x, const POOL_T *dy, POOL_T *dx, POOL_INDEX plane, int z0, int y0, int c0,
                 AT(Taken) *taken)
{
    const int od0 = AT(first_window)(z0, 0), oh0 = AT(first_window)(y0, 1);
    ROLLED for POOL_PLACES(POOL_WINDOWS_DOWN * POOL_WINDOWS_ACROSS)
    {
        const int od = od0 + i / (POOL_GROUP * POOL_WINDOWS_ACROSS), c = c0 + i % POOL_GROUP;
        const int oh = oh0 + i / POOL_GROUP % POOL_WINDOWS_ACROSS;
        if (od >= (int)P3 || oh >= (int)P4 || c >= POOL_CHUNKS)
            continue;
        int tap[POOL_WIDTH];
        REAL best[POOL_WIDTH];
        AT(largest)(x, plane, od, oh, c, best, tap);
        AT(Taken) t;
        POOL_EACH(e) t.v[e] = (uint16_t)tap[e];
        taken[i] = t;
    }
    __syncthreads();
    ROLLED for POOL_PLACES(POOL_DOWN * POOL_ACROSS)
    {
        const int z = z0 + i / (POOL_GROUP * POOL_ACROSS), c = c0 + i % POOL_GROUP;
        const int y = y0 + i / POOL_GROUP % POOL_ACROSS;
        if (z >= (int)P0 || y >= (int)P1 || c >= POOL_CHUNKS)
            continue;
        REAL v[POOL_WIDTH] = {0};
        for (int od = AT(first_window)(z, 0); od <= AT(last_window)(z, 0); od++) {
            for (int oh = AT(first_window)(y, 1); oh <= AT(last_window)(y, 1); oh++) {
                const int k0 = AT(tap)(z, od, 0), k1 = AT(tap)(y, oh, 1);
                if (k0 < 0 || k1 < 0)
                    continue;
                const int k = k0 * (int)P7 + k1;
                AT(Some) g = *AT(at)(dy, plane, od, oh, (int)P3, (int)P4, c);
                const int window = (od - od0) * POOL_WINDOWS_ACROSS + oh - oh0;
                const AT(Taken) t = taken[window * POOL_GROUP + c - c0];
                POOL_EACH(e) v[e] += t.v[e] == k ? POOL_LOAD(g.v, e) : 0;
            }
        }
        AT(Some) to;
        POOL_EACH(e) POOL_STORE(to.v, e, v[e]);
        *(AT(Some) *)AT(at)(dx, plane, z, y, (int)P0, (int)P1, c) = to;
    }
}
#elif POOL_KIND == 2
FN void AT(make)(const POOL_T *x, POOL_INDEX plane, int od, int oh, int c, REAL *out)
{
    const int n = AT(counted)(od, 0) * AT(counted)(oh, 1);
    for (int k = 0; k < (int)(P6 * P7); k++) {
        int z = AT(position)(od, 0, k / (int)P7), y = AT(position)(oh, 1, k % (int)P7);
        if (z < 0 || z >= (int)P0 || y < 0 || y >= (int)P1)
            continue;
        AT(Some) s = *AT(at)(x, plane, z, y, (int)P0, (int)P1, c);
        POOL_EACH(e) out[e] += POOL_LOAD(s.v, e);
    }
    POOL_EACH(e) out[e] = n > 0 ? out[e] / R(n) : R(0);
}
#else
/* The window whose position k is `at`, -1: none. */
FN int AT(window)(int at, int d, int k)
{
    int from = d ? at + (int)P13 - k * (int)P16 : at + (int)P12 - k * (int)P15, s = (int)(d ? P10 : P9);
    return from >= 0 && from % s == 0 && from / s < (int)(d ? P4 : P3) ? from / s : -1;
}

FN void AT(make)(const POOL_T *dy, POOL_INDEX plane, int z, int y, int c, REAL *out)
{
    for (int k = 0; k < (int)(P6 * P7); k++) {
        int od = AT(window)(z, 0, k / (int)P7), oh = AT(window)(y, 1, k % (int)P7);
        if (od < 0 || oh < 0)
            continue;
        const REAL n = R(AT(counted)(od, 0) * AT(counted)(oh, 1));
        AT(Some) g = *AT(at)(dy, plane, od, oh, (int)P3, (int)P4, c);
        POOL_EACH(e) out[e] += POOL_LOAD(g.v, e) / n;
    }
}
#endif
