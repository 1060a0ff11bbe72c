/* gather_sum.h -- the phases sum and join of gather.h, pasted once per kernel behind its parameters
 * (codegen/cuda_gather.c): chunks of GATHER_WIDTH elements GATHER_S are combined by GATHER_JOIN as GATHER_T,
 * from GATHER_FIRST on, and where GATHER_STARTS with the row that is there. */
#define GATHER_EACH(e) _Pragma("unroll") for (int e = 0; e < GATHER_WIDTH; e++)
#define GATHER_SIZE (GATHER_WIDTH * (int)sizeof(GATHER_T))

/* The address of a partial result. */
FN GATHER_T *AT(partial)(const Gather *g, GATHER_T *partial, const GatherPiece *x, int64_t piece, int tail)
{
    return partial + (((x->outer * x->pieces + piece) * 2 + tail) * g->chunks + x->v) * GATHER_WIDTH;
}

/* Stores the sum of a row. */
FN void AT(store)(const Gather *g, const GatherPiece *x, int row, GATHER_T *sum, const GATHER_T *start,
                  GATHER_T *to)
{
    const int64_t at = ((x->outer * g->rows + row) * g->chunks + x->v) * GATHER_WIDTH;
    if (GATHER_STARTS) {
        ALIGNED_16 GATHER_T u[GATHER_WIDTH];
        wide_copy(u, start + at, GATHER_SIZE);
        GATHER_EACH(e) sum[e] = GATHER_JOIN(u[e], sum[e]);
    }
    wide_copy(to + at, sum, GATHER_SIZE);
}

FN void AT(sum)(const Gather *g, const GATHER_S *from, const GATHER_T *start, GATHER_T *to, GATHER_T *partial)
{
    const GatherPiece x = gather_piece(g);
    if (x.from >= x.to)
        return;
    bool begins = gather_begins(g, x.from);
    ALIGNED_16 GATHER_T sum[GATHER_WIDTH];
    GATHER_EACH(e) sum[e] = GATHER_FIRST;
    for (int p = x.from; p < x.to; p += GATHER_FLIGHT) {
        ALIGNED_16 GATHER_S u[GATHER_FLIGHT][GATHER_WIDTH];
        _Pragma("unroll") for (int k = 0; k < GATHER_FLIGHT; k++) if (p + k < x.to)
            wide_copy(u[k], from + ((x.outer * g->count + g->from[p + k]) * g->chunks + x.v) * GATHER_WIDTH,
                      GATHER_WIDTH * (int)sizeof(GATHER_S));
        _Pragma("unroll") for (int k = 0; k < GATHER_FLIGHT; k++)
        {
            if (p + k >= x.to)
                continue;
            GATHER_EACH(e) sum[e] = GATHER_JOIN(sum[e], GATHER_LOAD(u[k], e));
            const bool ends = gather_ends(g, p + k + 1, x.all);
            if (!ends && p + k + 1 < x.to)
                continue;
            if (begins && ends)
                AT(store)(g, &x, g->row[p + k], sum, start, to);
            else
                wide_copy(AT(partial)(g, partial, &x, x.piece, begins), sum, GATHER_SIZE);
            begins = true;
            GATHER_EACH(e) sum[e] = GATHER_FIRST;
        }
    }
}

FN void AT(join)(const Gather *g, const GATHER_T *start, GATHER_T *to, GATHER_T *partial)
{
    const GatherPiece x = gather_piece(g);
    if (x.from >= x.to || gather_ends(g, x.to, x.all))
        return;
    const int row = g->row[x.to - 1];
    if (g->row[x.from] == row && !gather_begins(g, x.from))
        return;
    ALIGNED_16 GATHER_T sum[GATHER_WIDTH];
    wide_copy(sum, AT(partial)(g, partial, &x, x.piece, 1), GATHER_SIZE);
    for (int64_t d = x.piece + 1; d * GATHER_PIECE < x.all && g->row[d * GATHER_PIECE] == row; d++) {
        ALIGNED_16 GATHER_T u[GATHER_WIDTH];
        wide_copy(u, AT(partial)(g, partial, &x, d, 0), GATHER_SIZE);
        GATHER_EACH(e) sum[e] = GATHER_JOIN(sum[e], u[e]);
    }
    AT(store)(g, &x, row, sum, start, to);
}
