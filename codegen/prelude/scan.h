/* scan.h -- cumulative sums for CUDA; pasted once per kernel behind its parameters (codegen/cuda_scan.c).
 *
 * A block has SCAN_THREADS threads, SCAN_SPAN of which have SCAN_LANES neighbouring lines: a tile of theirs
 * has SCAN_WIDTH consecutive elements for each thread, whose sums are joined over a warp by a tree, and over
 * warps in order.  The block takes the tiles of its part of the lines one after the other.  Where lines are
 * cut into parts, the first phase makes the sums of parts.  The order of all sums follows from the shape. */
#define SCAN_TILE (SCAN_SPAN / SCAN_LANES * SCAN_WIDTH)
#define SCAN_WARP (SCAN_SPAN < 32 ? SCAN_SPAN : 32)
#define SCAN_EACH(e) UNROLL for (int e = 0; e < SCAN_WIDTH; e++)

typedef struct {
    int64_t line, first; /* number of the thread's line; position of its first element */
    int64_t begin, end;  /* the block's part of it */
    int64_t has;         /* end, or begin: there is no such line */
    int part, row;       /* number of the part; of the thread among those of its line */
} AT(Own);

FN AT(Own) AT(own)(void)
{
    const int64_t columns = (P1 + SCAN_LANES - 1) / SCAN_LANES, i = (int64_t)blockIdx.x / SCAN_PARTS;
    const int64_t lines = i * (SCAN_THREADS / SCAN_SPAN) + threadIdx.x / SCAN_SPAN;
    const int64_t outer = lines / columns, column = lines % columns * SCAN_LANES + threadIdx.x % SCAN_LANES;
    AT(Own) own;
    own.part = (int)(blockIdx.x % SCAN_PARTS);
    own.row = (int)threadIdx.x % SCAN_SPAN / SCAN_LANES;
    own.line = outer * P1 + column;
    own.first = outer * P0 * P1 + column;
    own.begin = own.part * SCAN_PART;
    own.end = own.begin + SCAN_PART < P0 ? own.begin + SCAN_PART : P0;
    own.has = outer < SCAN_OUTER && column < P1 ? own.end : own.begin;
    return own;
}

/* Where element j of the line is. */
FN int64_t AT(place)(AT(Own) own, int64_t j) { return own.first + (P4 ? P0 - 1 - j : j) * P1; }

/* Elements j and following; zeros behind the part. */
FN void AT(load)(SCAN_T *v, const SCAN_ELEMENT *x, AT(Own) own, int64_t j)
{
    ALIGNED_16 SCAN_ELEMENT u[SCAN_WIDTH] = {0};
#if SCAN_WIDE
    if (j < own.has)
        wide_copy(u, x + AT(place)(own, P4 ? j + SCAN_WIDTH - 1 : j), SCAN_WIDTH * (int)sizeof *u);
#else
    SCAN_EACH(e) if (j + e < own.has) u[e] = x[AT(place)(own, j + e)];
#endif
    SCAN_EACH(e) v[e] = SCAN_LOAD(u, SCAN_WIDE && P4 ? SCAN_WIDTH - 1 - e : e);
}

FN void AT(store)(const SCAN_T *v, SCAN_ELEMENT *y, AT(Own) own, int64_t j)
{
    ALIGNED_16 SCAN_ELEMENT u[SCAN_WIDTH];
    SCAN_EACH(e) SCAN_STORE(u, SCAN_WIDE && P4 ? SCAN_WIDTH - 1 - e : e, v[e]);
#if SCAN_WIDE
    if (j < own.has)
        wide_copy(y + AT(place)(own, P4 ? j + SCAN_WIDTH - 1 : j), u, SCAN_WIDTH * (int)sizeof *u);
#else
    SCAN_EACH(e) if (j + e < own.has) y[AT(place)(own, j + e)] = u[e];
#endif
}

/* The sum of v over the threads of a line in front of this one; *all: over all of them.  part: an element for
 * each thread.  The first barrier protects threads that still read the last sums. */
FN SCAN_T AT(before)(SCAN_T v, SCAN_T *part, SCAN_T *all)
{
    const int lane = (int)threadIdx.x % 32, own = lane % SCAN_WARP, column = lane % SCAN_LANES;
    SCAN_T sum = v;
    UNROLL for (int d = SCAN_LANES; d < SCAN_WARP; d *= 2)
    {
        const SCAN_T u = __shfl_sync(0xffffffffu, sum, (lane - d) & 31);
        sum = own >= d ? SCAN_ADD(u, sum) : sum;
    }
    SCAN_T before = __shfl_sync(0xffffffffu, sum, (lane - SCAN_LANES) & 31);
    before = own >= SCAN_LANES ? before : 0;
    *all = __shfl_sync(0xffffffffu, sum, lane - own + SCAN_WARP - SCAN_LANES + column);
#if SCAN_SPAN > 32
    const int warp = (int)threadIdx.x / 32, from = (int)threadIdx.x / SCAN_SPAN * (SCAN_SPAN / 32);
    __syncthreads();
    if (lane < SCAN_LANES)
        part[warp * 32 + lane] = *all;
    __syncthreads();
    SCAN_T ahead = 0, sums = 0;
    UNROLL for (int w = from; w < from + SCAN_SPAN / 32; w++)
    {
        ahead = w == warp ? sums : ahead;
        sums = SCAN_ADD(sums, part[w * 32 + column]);
    }
    *all = sums;
    before = SCAN_ADD(ahead, before);
#else
    (void)part;
#endif
    return before;
}

/* The sums of all parts but the last. */
FN void AT(parts)(const SCAN_ELEMENT *x, SCAN_T *sums, SCAN_T *part)
{
    const AT(Own) own = AT(own)();
    SCAN_T sum = 0, all;
    if (own.part == SCAN_PARTS - 1)
        return;
    _Pragma("unroll 4") for (int64_t at = own.begin; at < own.end; at += SCAN_TILE)
    {
        SCAN_T v[SCAN_WIDTH];
        AT(load)(v, x, own, at + own.row * SCAN_WIDTH);
        UNROLL for (int e = 1; e < SCAN_WIDTH; e++) v[0] = SCAN_ADD(v[0], v[e]);
        sum = SCAN_ADD(sum, v[0]);
    }
    AT(before)(sum, part, &all);
    if (own.row == 0 && own.has > own.begin)
        sums[own.part * SCAN_LINES + own.line] = all;
}

FN void AT(scan)(const SCAN_ELEMENT *x, SCAN_ELEMENT *y, const SCAN_T *sums, SCAN_T *part)
{
    const AT(Own) own = AT(own)();
    SCAN_T carry = 0, all;
    if (SCAN_PARTS > 1) {
        for (int p = own.row; p < own.part && own.has > own.begin; p += SCAN_SPAN / SCAN_LANES)
            carry = SCAN_ADD(carry, sums[p * SCAN_LINES + own.line]);
        AT(before)(carry, part, &all);
        carry = all;
    }
    for (int64_t at = own.begin; at < own.end; at += SCAN_TILE) {
        const int64_t j = at + own.row * SCAN_WIDTH;
        SCAN_T v[SCAN_WIDTH];
        AT(load)(v, x, own, j);
        UNROLL for (int e = 1; e < SCAN_WIDTH; e++) v[e] = SCAN_ADD(v[e - 1], v[e]);
        const SCAN_T base = SCAN_ADD(carry, AT(before)(v[SCAN_WIDTH - 1], part, &all));
        carry = SCAN_ADD(carry, all);
        UNROLL for (int e = SCAN_WIDTH - 1; e >= P3; e--) v[e] = SCAN_ADD(base, v[e - P3]);
        if (P3)
            v[0] = base;
        AT(store)(v, y, own, j);
    }
}
