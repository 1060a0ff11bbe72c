/* topk.h -- the indices of a row's first elements in order, for CUDA; pasted once per kernel behind its
 * parameters (codegen/cuda_topk.c).
 *
 * Few are found one by one (rows): TOPK_SPAN threads have a row, and each knows the first of its own elements
 * that is not taken yet.  In a round the first of these is found, and its thread looks for its next one.
 *
 * Many are read off the sorted row (sorted): a block merges sorted runs of it, bitonically; what is missing
 * to a power of two counts as last.  TOPK_HELD elements at a time are in shared memory, where all steps
 * between less distant ones are done; a longer row is in the workspace meanwhile. */
#define TOPK_WARP (TOPK_SPAN < 32 ? TOPK_SPAN : 32)
#define TOPK_WARPS (TOPK_SPAN / TOPK_WARP)

/* An element and its index; -1: none. */
typedef struct {
    TOPK_T v;
    int at;
} AT(Item);

/* Does a come before b?  NaN before numbers, equal ones in the order of their indices. */
FN bool AT(precedes)(AT(Item) a, AT(Item) b)
{
    const bool first = (P3 ? a.v > b.v : a.v < b.v) || (a.v != a.v && b.v == b.v);
    const bool second = (P3 ? b.v > a.v : b.v < a.v) || (b.v != b.v && a.v == a.v);
    return first || (!second && a.at < b.at);
}

FN AT(Item) AT(first)(AT(Item) a, AT(Item) b)
{
    return a.at < 0 || (b.at >= 0 && AT(precedes)(b, a)) ? b : a;
}

/* The first item of `lanes` neighbouring threads. */
FN AT(Item) AT(join)(AT(Item) a, int lanes)
{
    for (int m = lanes / 2; m > 0; m /= 2) {
        AT(Item) b;
        b.v = __shfl_xor_sync(0xffffffffu, a.v, m);
        b.at = (int)__shfl_xor_sync(0xffffffffu, (uint32_t)a.at, m);
        a = AT(first)(a, b);
    }
    return a;
}

/* The first of the thread's items of a row that comes behind `last`, if there is a last one. */
FN AT(Item) AT(next)(const TOPK_ELEMENT *row, AT(Item) last)
{
    AT(Item) best = {0, -1};
    _Pragma("unroll 8") for (int j = (int)threadIdx.x % TOPK_SPAN; j < (int)P0; j += TOPK_SPAN)
    {
        const AT(Item) item = {TOPK_LOAD(row, j * P1), j};
        if (last.at < 0 || AT(precedes)(last, item))
            best = AT(first)(best, item);
    }
    return best;
}

/* value, place: two elements for each warp of the block, for even and for odd rounds. */
FN void AT(rows)(const TOPK_ELEMENT *x, int64_t *to, TOPK_T *value, int *place)
{
    const int64_t row = (int64_t)blockIdx.x * (TOPK_THREADS / TOPK_SPAN) + threadIdx.x / TOPK_SPAN;
    const bool has = row < TOPK_ROWS;
    AT(Item) own = {0, -1};
    x += row / P1 * P0 * P1 + row % P1;
    to += row / P1 * P2 * P1 + row % P1;
    if (has)
        own = AT(next)(x, own);
    for (int k = 0; k < (int)P2; k++) {
        AT(Item) best = AT(join)(own, TOPK_WARP);
        if (TOPK_WARPS > 1) {
            const int part = (k & 1) * (TOPK_THREADS / 32), from = (int)threadIdx.x / TOPK_SPAN * TOPK_WARPS;
            if (threadIdx.x % 32 == 0) {
                value[part + threadIdx.x / 32] = best.v;
                place[part + threadIdx.x / 32] = best.at;
            }
            __syncthreads();
            best.v = value[part + from + threadIdx.x % TOPK_WARPS];
            best.at = place[part + from + threadIdx.x % TOPK_WARPS];
            best = AT(join)(best, TOPK_WARPS);
        }
        if (has && threadIdx.x % TOPK_SPAN == 0)
            to[k * P1] = best.at;
        if (has && best.at == own.at)
            own = AT(next)(x, best);
    }
}

/* Puts pairs of the n elements in order: those `half` apart or, mirrored, as far from where two runs of
 * `half` meet. */
FN void AT(exchange)(TOPK_T *value, int *place, int n, int half, bool mirrored)
{
    _Pragma("unroll 4") for (int t = (int)threadIdx.x; 2 * (t & -half) < n; t += TOPK_THREADS)
    {
        const int i = t & (half - 1), a = 2 * t - i, b = mirrored ? a + 2 * (half - i) - 1 : a + half;
        if (b >= n)
            continue;
        const AT(Item) x = {value[a], place[a]}, y = {value[b], place[b]};
        if (AT(precedes)(y, x)) {
            value[a] = y.v, place[a] = y.at;
            value[b] = x.v, place[b] = x.at;
        }
    }
    __syncthreads();
}

/* Merges sorted runs of `half` elements, but for the steps between elements nearer than `least`. */
FN void AT(merge)(TOPK_T *value, int *place, int n, int half, int least)
{
    AT(exchange)(value, place, n, half, true);
    for (int d = half / 2; d >= least; d /= 2)
        AT(exchange)(value, place, n, d, false);
}

FN void AT(copy)(TOPK_T *value, int *place, const TOPK_T *from, const int *from_place, int n)
{
    for (int j = (int)threadIdx.x; j < n; j += TOPK_THREADS) {
        value[j] = from[j];
        place[j] = from_place[j];
    }
}

FN int AT(held)(int first) { return (int)P0 - first < TOPK_HELD ? (int)P0 - first : TOPK_HELD; }

/* value, place: TOPK_HELD elements; all, places: a row, the same if it is no longer. */
FN void AT(sorted)(const TOPK_ELEMENT *x, int64_t *to, TOPK_T *value, int *place, TOPK_T *all, int *places)
{
    for (int64_t row = blockIdx.x; row < TOPK_ROWS; row += gridDim.x) {
        const TOPK_ELEMENT *from = x + row / P1 * P0 * P1 + row % P1;
        for (int first = 0; first < (int)P0; first += TOPK_HELD) {
            const int n = AT(held)(first);
            for (int j = (int)threadIdx.x; j < n; j += TOPK_THREADS) {
                value[j] = TOPK_LOAD(from, (first + j) * P1);
                place[j] = first + j;
            }
            __syncthreads();
            for (int half = 1; half < n; half *= 2)
                AT(merge)(value, place, n, half, 1);
            if (P0 > TOPK_HELD)
                AT(copy)(all + first, places + first, value, place, n);
        }
        for (int half = TOPK_HELD; half < (int)P0; half *= 2) {
            __syncthreads();
            AT(merge)(all, places, (int)P0, half, TOPK_HELD);
            for (int first = 0; first < (int)P0; first += TOPK_HELD) {
                const int n = AT(held)(first);
                AT(copy)(value, place, all + first, places + first, n);
                __syncthreads();
                for (int d = TOPK_HELD / 2; d > 0; d /= 2)
                    AT(exchange)(value, place, n, d, false);
                AT(copy)(all + first, places + first, value, place, n);
            }
        }
        for (int k = (int)threadIdx.x; k < (int)P2; k += TOPK_THREADS)
            to[row / P1 * P2 * P1 + row % P1 + k * P1] = places[k];
    }
}
