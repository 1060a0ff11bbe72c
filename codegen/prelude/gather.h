/* gather.h -- sums of rows by index, the gradient of a gather, and other ways to combine rows (ScatterND),
 * without atomics; pasted in front of kernels that need it.  Result row r is the sum of all rows j whose
 * index, or tuple of indices, names r:
 *
 *   count   blocks own ranges of result rows: each counts the indices that fall in its range
 *   order   each lists them by row, in ascending order; rows without an index are cleared, or
 *           those that the sums are added to
 *   sum     threads have GATHER_PIECE places of that list: a row whose places are all in the piece is stored,
 *           else the sum is a partial result: of a row that began before (head), or that goes on (tail)
 *   join    the thread that has a row's tail adds the heads behind it
 *
 * sum and join are in gather_sum.h, and are pasted for each kernel.
 *
 * The order of all sums follows from the indices alone. */
enum {
    GATHER_WARPS = 8,
    GATHER_PIECE = 32,
    GATHER_FLIGHT = 8,
    GATHER_OWN = 4096,
    GATHER_DIGITS = 16,
    GATHER_TUPLE = 8,
    GATHER_COPIES = 4
};

typedef struct {
    const void *index;
    int bytes, count;             /* bytes of an index; number of tuples */
    int batch, tuple;             /* tuples of a batch, which has rows of its own; indices of a tuple */
    int64_t extent[GATHER_TUPLE]; /* that they count to */
    int rows, own;       /* rows of the result; rows that a block owns, at most GATHER_OWN */
    int digits;          /* digits to base 16 of a number below `own` */
    int blocks, outer;   /* blocks that own rows; results */
    int64_t chunks;      /* chunks along a row */
    int *found;          /* indices in the range: per block and warp, then in all */
    int *listed, *placed;/* per place of the list: result row, and the row that is added to it */
    int *row, *from;     /* the same; sorted by row in the end */
} Gather;

/* The row of tuple j; -1: it is out of range. */
FN int gather_row(const Gather *g, int j)
{
    int64_t row = g->batch < g->count ? j / g->batch : 0;
    bool inside = true;
    _Pragma("unroll") for (int k = 0; k < GATHER_TUPLE; k++)
    {
        if (k >= g->tuple)
            break;
        const int64_t at = (int64_t)j * g->tuple + k;
        int64_t i = g->bytes == 8   ? ((const int64_t *)g->index)[at]
                    : g->bytes == 4 ? ((const int32_t *)g->index)[at]
                                    : ((const uint8_t *)g->index)[at];
        i += i < 0 ? g->extent[k] : 0;
        inside = inside && i >= 0 && i < g->extent[k];
        row = row * g->extent[k] + i;
    }
    return inside ? (int)row : -1;
}

/* The lanes whose index j falls on one of the block's rows, as bits; *row: this lane's row. */
FN uint32_t gather_mine(const Gather *g, int j, int end, int *row)
{
    const int first = (int)blockIdx.x * g->own;
    *row = j < end ? gather_row(g, j) : -1;
    return __ballot_sync(0xffffffffu, *row >= first && *row < first + g->own);
}

FN int gather_part(const Gather *g) { return (g->count + 32 * GATHER_WARPS - 1) / (32 * GATHER_WARPS) * 32; }

FN void gather_count(const Gather *g)
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, part = gather_part(g);
    const int end = (warp + 1) * part < g->count ? (warp + 1) * part : g->count;
    int n = 0, row;
#pragma unroll 4
    for (int j = warp * part; j < end; j += 32)
        n += __popc(gather_mine(g, j + lane, end, &row));
    if (lane == 0)
        g->found[(int)blockIdx.x * GATHER_WARPS + warp] = n;
}

/* The number of indices in the ranges before the block's; *n: in its own.  part: an element per warp. */
FN int gather_before(const Gather *g, int64_t *part, int *n)
{
    const int own = (int)blockIdx.x * GATHER_WARPS;
    int64_t before = 0;
    for (int i = (int)threadIdx.x; i < own; i += 32 * GATHER_WARPS)
        before += g->found[i];
    *n = 0;
    for (int w = 0; w < GATHER_WARPS; w++)
        *n += g->found[own + w];
    return (int)row_sum_int64_t(before, part, 32 * GATHER_WARPS);
}

/* Lists the rows of the block's range, and the positions of their indices, in the order of the indices. */
FN void gather_list(const Gather *g, int at)
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, part = gather_part(g);
    const int end = (warp + 1) * part < g->count ? (warp + 1) * part : g->count;
    int *rows = g->digits % 2 ? g->listed : g->row, *places = g->digits % 2 ? g->placed : g->from, row;
    for (int w = 0; w < warp; w++)
        at += g->found[(int)blockIdx.x * GATHER_WARPS + w];
    for (int j = warp * part; j < end; j += 32) {
        const uint32_t mine = gather_mine(g, j + lane, end, &row);
        if (mine >> lane & 1u) {
            const int to = at + __popc(mine & ((1u << lane) - 1u));
            rows[to] = row;
            places[to] = j + lane;
        }
        at += __popc(mine);
    }
    __syncthreads();
}

/* Sorts the block's range by one digit of the row, stably: threads have consecutive parts, and count how
 * often each digit occurs in theirs. */
FN void gather_sort(const Gather *g, int base, int n, int shift, const int *row, const int *from, int *to_row,
                    int *to_from, int *count, int *sums)
{
    const int t = (int)threadIdx.x, threads = 32 * GATHER_WARPS, first = (int)blockIdx.x * g->own;
    const int each = (n + threads - 1) / threads, begin = base + (t * each < n ? t * each : n);
    const int end = begin + each < base + n ? begin + each : base + n;
    int all = 0, before = 0;
    for (int d = 0; d < GATHER_DIGITS; d++)
        count[d * threads + t] = 0;
    for (int p = begin; p < end; p++)
        count[((row[p] - first) >> shift & (GATHER_DIGITS - 1)) * threads + t]++;
    __syncthreads();
    for (int i = 0; i < GATHER_DIGITS; i++)
        all += count[t * GATHER_DIGITS + i];
    sums[t] = all;
    __syncthreads();
    for (int i = 0; i < t; i++)
        before += sums[i];
    for (int i = 0; i < GATHER_DIGITS; i++) {
        const int own = count[t * GATHER_DIGITS + i];
        count[t * GATHER_DIGITS + i] = before;
        before += own;
    }
    __syncthreads();
    for (int p = begin; p < end; p++) {
        const int to = base + count[((row[p] - first) >> shift & (GATHER_DIGITS - 1)) * threads + t]++;
        to_row[to] = row[p];
        to_from[to] = from[p];
    }
    __syncthreads();
}

/* Sorts the list by row, digit by digit, alternating between two arrays so that it ends in row and from. */
FN void gather_order(const Gather *g, int base, int n, int *count, int *sums)
{
    bool there = g->digits % 2 == 0;
    for (int d = 0; d < g->digits; d++, there = !there)
        gather_sort(g, base, n, 4 * d, there ? g->row : g->listed, there ? g->from : g->placed,
                    there ? g->listed : g->row, there ? g->placed : g->from, count, sums);
}

/* A piece of the list, of whose rows a thread adds chunk v. */
typedef struct {
    int from, to, all; /* places of the piece; places of the whole list */
    int64_t outer, piece, pieces, v;
} GatherPiece;

FN GatherPiece gather_piece(const Gather *g)
{
    const int64_t pieces = (g->count + GATHER_PIECE - 1) / GATHER_PIECE;
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    GatherPiece x;
    x.v = i % g->chunks;
    x.piece = i / g->chunks % pieces;
    x.pieces = pieces;
    x.outer = i / g->chunks / pieces;
    x.all = g->found[g->blocks * GATHER_WARPS];
    x.from = (int)x.piece * GATHER_PIECE;
    x.to = x.from + GATHER_PIECE < x.all ? x.from + GATHER_PIECE : x.all;
    if (x.outer >= g->outer)
        x.to = x.from;
    return x;
}

/* Does the row at place p begin there?  Does the row before place p end before it? */
FN bool gather_begins(const Gather *g, int p) { return p == 0 || g->row[p - 1] != g->row[p]; }
FN bool gather_ends(const Gather *g, int p, int all) { return p == all || g->row[p] != g->row[p - 1]; }

/* Clears the rows of the block that have no index, or copies them if there is a `start`.  empty: one element
 * per row. */
FN void gather_clear(const Gather *g, int base, int n, uint16_t *empty, const void *start, void *to,
                     int bytes)
{
    const int64_t first = (int64_t)blockIdx.x * g->own, left = g->rows - first;
    const int64_t own = left < g->own ? left : g->own;
    const int t = (int)threadIdx.x, threads = 32 * GATHER_WARPS;
    for (int r = t; r < g->own; r += threads)
        empty[r] = 1;
    __syncthreads();
    for (int p = base + t; p < base + n; p += threads)
        if (p == base || g->row[p - 1] != g->row[p])
            empty[g->row[p] - (int)first] = 0;
    __syncthreads();
    for (int64_t o = 0; o < g->outer; o++)
        for (int64_t i = t; i < own * g->chunks; i += threads * GATHER_COPIES) {
            const int64_t at = ((o * g->rows + first) * g->chunks + i) * bytes;
            ALIGNED_16 int64_t u[GATHER_COPIES][2] = {{0}};
            bool has[GATHER_COPIES];
            _Pragma("unroll") for (int c = 0; c < GATHER_COPIES; c++)
            {
                const int64_t j = i + c * threads;
                has[c] = j < own * g->chunks && empty[j / g->chunks];
                if (has[c] && start)
                    wide_copy(u[c], (const unsigned char *)start + at + c * threads * bytes, bytes);
            }
            _Pragma("unroll") for (int c = 0; c < GATHER_COPIES; c++) if (has[c])
                wide_copy((unsigned char *)to + at + c * threads * bytes, u[c], bytes);
        }
}

FN void gather_lists(const Gather *g, const void *start, void *to, int bytes)
{
    __shared__ int64_t part[GATHER_WARPS];
    __shared__ int count[GATHER_DIGITS * 32 * GATHER_WARPS], sums[32 * GATHER_WARPS];
    __shared__ uint16_t empty[GATHER_OWN];
    int n, base = gather_before(g, part, &n);
    gather_list(g, base);
    gather_order(g, base, n, count, sums);
    gather_clear(g, base, n, empty, start, to, bytes);
    if ((int)blockIdx.x == g->blocks - 1 && threadIdx.x == 0)
        g->found[g->blocks * GATHER_WARPS] = base + n;
}

/* Combines, in their order, v and sum[to] for the warp's lanes whose `to` is not negative: the first of the
 * lanes with the same `to` does it for all of them. */
#define SCATTER_LANES(name, T, JOIN)                                                                         \
    FN void name##_scatter(T *sum, int to, T v)                                                              \
    {                                                                                                        \
        const int lane = (int)threadIdx.x % 32;                                                              \
        const uint32_t same = __match_any_sync(0xffffffffu, to);                                             \
        const bool first = to >= 0 && lane == __ffs((int)same) - 1;                                          \
        uint32_t rest = first ? same : 0;                                                                    \
        T all = first ? sum[to] : 0;                                                                         \
        while (__ballot_sync(0xffffffffu, rest != 0)) {                                                      \
            const T x = __shfl_sync(0xffffffffu, v, rest ? __ffs((int)rest) - 1 : lane);                     \
            all = rest ? JOIN(all, x) : all;                                                                 \
            rest &= rest - 1;                                                                                \
        }                                                                                                    \
        if (first)                                                                                           \
            sum[to] = all;                                                                                   \
    }
