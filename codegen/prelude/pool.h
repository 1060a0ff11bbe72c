/* pool.h -- pooling where the last dimension is left alone (channels-last), and its gradients, for CUDA.
 *
 * Pasted once per kernel behind the parameters of its window (ir/ops/pool.c), which is one position along the
 * last dimension.  A thread makes POOL_WIDTH neighbouring elements of a place of the result. */

typedef struct __attribute__((aligned(sizeof(POOL_T) * POOL_WIDTH))) {
    POOL_T v[POOL_WIDTH];
} AT(Some);
#define POOL_CHUNKS ((int)(P2 / POOL_WIDTH))
#define POOL_EACH(e) UNROLL for (int e = 0; e < POOL_WIDTH; e++)

FN const AT(Some) * AT(at)(const POOL_T *x, POOL_INDEX plane, int z, int y, int depth, int height, int c)
{
    return (const AT(Some) *)(x + (((plane * depth + z) * height + y) * POOL_CHUNKS + c) * POOL_WIDTH);
}

/* The coordinate along dimension d of position k of window `at`. */
FN int AT(position)(int at, int d, int k)
{
    return d ? at * (int)P10 - (int)P13 + k * (int)P16 : at * (int)P9 - (int)P12 + k * (int)P15;
}

#if POOL_KIND > 1 /* averages */
/* The number of positions of a window along dimension d that count in the average. */
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

#if POOL_KIND < 2 /* max_pool, max_pool_bwd */
typedef struct __attribute__((aligned(sizeof(POOL_PLACE) * POOL_WIDTH))) {
    POOL_PLACE v[POOL_WIDTH];
} AT(Places);
#endif
#if POOL_KIND & 1
/* The window whose position k is at coordinate `at` along dimension d; -1: none. */
FN int AT(window)(int at, int d, int k)
{
    int from = d ? at + (int)P13 - k * (int)P16 : at + (int)P12 - k * (int)P15, s = (int)(d ? P10 : P9);
    return from >= 0 && from % s == 0 && from / s < (int)(d ? P4 : P3) ? from / s : -1;
}
#endif

#if POOL_KIND == 0
/* Finds, per channel, the largest value in a window, or the first NaN, and the first position that has it;
 * the position behind the last one if none is inside. */
FN void AT(make)(const POOL_T *x, POOL_INDEX plane, int od, int oh, int c, REAL *best, AT(Places) *place)
{
    int first = (int)(P6 * P7), tap[POOL_WIDTH];
    POOL_EACH(e)
    {
        best[e] = -INF_;
        tap[e] = -1;
    }
    for (int k = 0; k < (int)(P6 * P7); k++) {
        int z = AT(position)(od, 0, k / (int)P7), y = AT(position)(oh, 1, k % (int)P7);
        if (z < 0 || z >= (int)P0 || y < 0 || y >= (int)P1)
            continue;
        first = k < first ? k : first;
        AT(Some) s = *AT(at)(x, plane, z, y, (int)P0, (int)P1, c);
        POOL_EACH(e)
        {
            const REAL v = POOL_LOAD(s.v, e);
            const bool more = !(v <= best[e]) && best[e] == best[e];
            best[e] = more ? v : best[e];
            tap[e] = more ? k : tap[e];
        }
    }
    POOL_EACH(e) place->v[e] = (POOL_PLACE)(tap[e] < 0 ? first : tap[e]); /* first: all are -inf */
}
#elif POOL_KIND == 1
FN void AT(make)(const POOL_PLACE *place, const POOL_T *dy, POOL_INDEX plane, int z, int y, int c, REAL *out)
{
    for (int k = 0; k < (int)(P6 * P7); k++) {
        int od = AT(window)(z, 0, k / (int)P7), oh = AT(window)(y, 1, k % (int)P7);
        if (od < 0 || oh < 0)
            continue;
        const POOL_INDEX window = ((plane * (int)P3 + od) * (int)P4 + oh) * POOL_CHUNKS + c;
        const AT(Places) p = ((const AT(Places) *)place)[window];
        AT(Some) g = *AT(at)(dy, plane, od, oh, (int)P3, (int)P4, c);
        POOL_EACH(e) out[e] += p.v[e] == (POOL_PLACE)k ? POOL_LOAD(g.v, e) : 0;
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
