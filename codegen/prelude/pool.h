/* pool.h -- pooling and its gradients for CUDA.
 *
 * Pasted once per kernel behind the parameters of its window (ir/ops/pool.c).  A thread makes POOL_WIDTH
 * neighbouring elements of the result: one, or a chunk where the window leaves the last dimension alone, as
 * that of channels-last data does.  Coordinates along the last dimension count chunks. */

typedef struct __attribute__((aligned(sizeof(POOL_T) * POOL_WIDTH))) {
    POOL_T v[POOL_WIDTH];
} AT(Some);
#define POOL_TAPS ((int)(P6 * P7 * P8))
#define POOL_EACH(e) UNROLL for (int e = 0; e < POOL_WIDTH; e++)

/* A place of the data, or of the pooled side. */
typedef struct {
    int z, y, x;
} AT(Place);

/* The chunk of a place, counted over all planes of the data, or of the pooled side. */
FN POOL_INDEX AT(in_data)(POOL_INDEX plane, AT(Place) a)
{
    return ((plane * (int)P0 + a.z) * (int)P1 + a.y) * (int)(P2 / POOL_WIDTH) + a.x;
}
FN POOL_INDEX AT(in_pooled)(POOL_INDEX plane, AT(Place) a)
{
    return ((plane * (int)P3 + a.z) * (int)P4 + a.y) * (int)(P5 / POOL_WIDTH) + a.x;
}

/* The place of position k of a window. */
FN AT(Place) AT(position)(AT(Place) window, int k)
{
    const AT(Place) at = {window.z * (int)P9 - (int)P12 + k / (int)(P7 * P8) * (int)P15,
                          window.y * (int)P10 - (int)P13 + k / (int)P8 % (int)P7 * (int)P16,
                          window.x * (int)P11 - (int)P14 + k % (int)P8 * (int)P17};
    return at;
}

FN bool AT(inside)(AT(Place) a)
{
    return a.z >= 0 && a.z < (int)P0 && a.y >= 0 && a.y < (int)P1 && a.x >= 0 && a.x < (int)(P2 / POOL_WIDTH);
}

#if POOL_KIND > 1 /* averages */
/* The number of positions from `first` on, `step` apart, that lie in [begin, end). */
FN int AT(counted)(int first, int step, int n, int begin, int end)
{
    int sum = 0;
    for (int k = 0; k < n; k++)
        sum += first + k * step >= begin && first + k * step < end;
    return sum;
}

/* The number of positions of a window that count in the average. */
FN int AT(count)(AT(Place) window)
{
    const AT(Place) at = AT(position)(window, 0);
    return AT(counted)(at.z, (int)P15, (int)P6, (int)P18, (int)P21) *
           AT(counted)(at.y, (int)P16, (int)P7, (int)P19, (int)P22) *
           AT(counted)(at.x, (int)P17, (int)P8, (int)P20, (int)P23);
}
#endif

#if POOL_KIND < 2 /* max_pool, max_pool_bwd */
typedef struct __attribute__((aligned(sizeof(POOL_PLACE) * POOL_WIDTH))) {
    POOL_PLACE v[POOL_WIDTH];
} AT(Places);
#endif
#if POOL_KIND & 1
/* The window of n, a step apart, that begins at `from`; -1: none does. */
FN int AT(step_of)(int from, int step, int n)
{
    return from >= 0 && from % step == 0 && from / step < n ? from / step : -1;
}

/* The window whose position k is at a place of the data; a coordinate is negative: there is none. */
FN AT(Place) AT(window)(AT(Place) a, int k)
{
    const AT(Place) origin = {0, 0, 0}, first = AT(position)(origin, k);
    const AT(Place)
        window = {AT(step_of)(a.z - first.z, (int)P9, (int)P3), AT(step_of)(a.y - first.y, (int)P10, (int)P4),
                  AT(step_of)(a.x - first.x, (int)P11, (int)(P5 / POOL_WIDTH))};
    return window;
}
#endif

#if POOL_KIND == 0
/* Finds, per element, the largest value in a window, or the first NaN, and the first position that has it;
 * the position behind the last one if none is inside. */
FN void AT(make)(const POOL_T *x, POOL_INDEX plane, AT(Place) window, REAL *best, AT(Places) * place)
{
    int first = POOL_TAPS, tap[POOL_WIDTH];
    POOL_EACH(e)
    {
        best[e] = -INF_;
        tap[e] = -1;
    }
    for (int k = 0; k < POOL_TAPS; k++) {
        const AT(Place) a = AT(position)(window, k);
        if (!AT(inside)(a))
            continue;
        first = k < first ? k : first;
        AT(Some) s = ((const AT(Some) *)x)[AT(in_data)(plane, a)];
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
FN void AT(make)(const POOL_PLACE *place, const POOL_T *dy, POOL_INDEX plane, AT(Place) a, REAL *out)
{
    for (int k = 0; k < POOL_TAPS; k++) {
        const AT(Place) window = AT(window)(a, k);
        if (window.z < 0 || window.y < 0 || window.x < 0)
            continue;
        const POOL_INDEX at = AT(in_pooled)(plane, window);
        const AT(Places) p = ((const AT(Places) *)place)[at];
        AT(Some) g = ((const AT(Some) *)dy)[at];
        POOL_EACH(e) out[e] += p.v[e] == (POOL_PLACE)k ? POOL_LOAD(g.v, e) : 0;
    }
}
#elif POOL_KIND == 2
FN void AT(make)(const POOL_T *x, POOL_INDEX plane, AT(Place) window, REAL *out)
{
    const int n = AT(count)(window);
    for (int k = 0; k < POOL_TAPS; k++) {
        const AT(Place) a = AT(position)(window, k);
        if (!AT(inside)(a))
            continue;
        AT(Some) s = ((const AT(Some) *)x)[AT(in_data)(plane, a)];
        POOL_EACH(e) out[e] += POOL_LOAD(s.v, e);
    }
    POOL_EACH(e) out[e] = n > 0 ? out[e] / R(n) : R(0);
}
#else
FN void AT(make)(const POOL_T *dy, POOL_INDEX plane, AT(Place) a, REAL *out)
{
    for (int k = 0; k < POOL_TAPS; k++) {
        const AT(Place) window = AT(window)(a, k);
        if (window.z < 0 || window.y < 0 || window.x < 0)
            continue;
        const REAL n = R(AT(count)(window));
        AT(Some) g = ((const AT(Some) *)dy)[AT(in_pooled)(plane, window)];
        POOL_EACH(e) out[e] += POOL_LOAD(g.v, e) / n;
    }
}
#endif
