/* conv_tiles.h -- convolutions for CUDA as products of tiles in shared memory (implicit GEMM).
 *
 * Pasted behind conv.h and the parameters of the tiles (codegen/cuda_conv.c).  A block makes CONV_TM
 * rows by CONV_TN columns, CONV_TK terms at a time:
 *
 *               rows               columns                   sum over
 *   forward     output channels    output places             taps of input channels
 *   data        input channels     input places              taps of output channels
 *   weights     output channels    taps of input channels    output places
 *
 * Columns are gathered: a thread has several channels at one place, so that a warp reads along a row,
 * and puts them side by side into shared memory.  Rows are copied: for forward and data a phase before
 * lays out the weights as tiles read them, with zeros where rows or terms are none; for weights in 16
 * bits CONV_COPY places of a plane at a time, or gathered where planes are odd, and in f32.
 *
 * Weights: blocks share the places; each adds what it has every CONV_FLUSH places to partial results
 * of its own in f32, which a second phase adds in order. */

/* Of a tile. */
#define CONV_TK (CONV_HALF ? 32 : 16)
#define CONV_PARTS_N (CONV_TN * CONV_TK / 256) /* elements of each thread */
#define CONV_PARTS_M (CONV_TM * CONV_TK / 256)
#define CONV_RUN (CONV_PARTS_N < CONV_UNIT ? CONV_PARTS_N : CONV_UNIT) /* of them in one unit */
#define CONV_ACC (CONV_TM * CONV_TN / 256)
#define CONV_LINE_M (CONV_TM + 4)
#define CONV_LINE_N (CONV_TN + 4)
#define CONV_BYTES_M (CONV_HALF ? CONV_TM * 64 : CONV_LINE_M * 64)
#define CONV_BYTES (CONV_BYTES_M + (CONV_HALF ? CONV_TN * 64 : CONV_LINE_N * 64))

/* CONV_RUN channels of a place as a tap sees it, those behind the last as zeros. */
FN void AT(gather)(const CONV_T *__restrict__ x, const AT(Place) *p, const AT(Place) *tap, int channel,
                   CONV_T *v)
{
    const ConvWindow w = CONV_WINDOW;
    bool inside = p->inside && tap->inside;
    UNROLL
    for (int d = 0; d < 3; d++)
        inside &= (unsigned)(p->at[d] + tap->at[d]) < (unsigned)(CONV_DATA ? w.out[d] : w.in[d]);
    const CONV_T *from = x + (p->offset + tap->offset + channel * CONV_PLANE);
    UNROLL
    for (int c = 0; c < CONV_RUN; c++) {
        bool is = inside && (CONV_CHANNELS % CONV_UNIT == 0 || channel + c < CONV_CHANNELS);
        v[c] = is ? from[c * CONV_PLANE] : 0;
    }
}

#ifdef __CUDACC__
#define CONV_UNROLL_2 _Pragma("unroll 2")
#else
#define CONV_UNROLL_2
#endif

/* ---- tiles in shared memory ------------------------------------------------------------------ */

/* Lines of 16-byte chunks, exchanged so that neither 8 lines' equal chunks nor a line's meet in a bank. */
FN int AT(chunk_at)(int line, int chunk, int chunks)
{
    int g = chunks < 8 ? chunks : 8;
    return (line * chunks + chunk / g * g + (chunk % g ^ line / (8 / g) % g)) * 16;
}

/* Accumulator e of a thread: its row and column in the tile.  CONV_SIDE of them are side by side. */
#define CONV_SIDE (CONV_HALF ? 2 : 4)
#define CONV_WARPS_M (CONV_TM < 64 ? 1 : 2)
#define CONV_WM (CONV_TM / CONV_WARPS_M) /* of a warp */
#define CONV_WN (CONV_TN * CONV_WARPS_M / 8)
#define CONV_RM (CONV_TM / 16) /* of a thread */
#define CONV_RN (CONV_TN / 16)
#define CONV_SIDE_M (CONV_RM < 4 ? CONV_RM : 4)
#define CONV_WARP ((int)threadIdx.x / 32)
#define CONV_LANE ((int)threadIdx.x % 32)

FN int AT(row)(int e)
{
    if (CONV_HALF)
        return CONV_WARP % CONV_WARPS_M * CONV_WM + e / 4 / (CONV_WN / 8) * 16 + e % 4 / 2 * 8 +
               CONV_LANE / 4;
    int i = e / CONV_RN;
    return i / CONV_SIDE_M * 16 * CONV_SIDE_M + (int)threadIdx.x / 16 * CONV_SIDE_M + i % CONV_SIDE_M;
}

FN int AT(column)(int e)
{
    if (CONV_HALF)
        return CONV_WARP / CONV_WARPS_M * CONV_WN + e / 4 % (CONV_WN / 8) * 8 + CONV_LANE % 4 * 2 + e % 2;
    int j = e % CONV_RN;
    return j / 4 * 64 + (int)threadIdx.x % 16 * 4 + j % 4;
}

#if CONV_HALF
/* n elements of a line from `first` on. */
FN void AT(put)(unsigned char *tile, int line, int first, int length, const CONV_T *v, int n)
{
    if (n % 8 == 0) {
        UNROLL
        for (int i = 0; i < n; i += 8) {
            ConvChunk c;
            UNROLL
            for (int j = 0; j < 4; j++)
                c.v[j] = v[i + 2 * j] | (uint32_t)v[i + 2 * j + 1] << 16;
            *(ConvChunk *)(tile + AT(chunk_at)(line, (first + i) / 8, length / 8)) = c;
        }
        return;
    }
    UNROLL
    for (int i = 0; i < n; i += 2) {
        int at = AT(chunk_at)(line, (first + i) / 8, length / 8) + (first + i) % 8 * 2;
        *(uint32_t *)(tile + at) = v[i] | (uint32_t)v[i + 1] << 16;
    }
}

/* Lines are rows and columns, or places. */
FN void AT(multiply)(const unsigned char *tile, float *acc)
{
    uint32_t m = shared_at(tile), n = m + CONV_BYTES_M;
    int low = CONV_LANE % 8, pair = CONV_LANE / 8 % 2, half = CONV_LANE / 16;
    UNROLL
    for (int k = 0; k < 2; k++) {
        uint32_t a[4], b[CONV_WN / 16][4];
        UNROLL
        for (int j = 0; j < CONV_WN / 16; j++) {
            int column = CONV_WARP / CONV_WARPS_M * CONV_WN + j * 16;
            if (CONV_KIND == 2)
                ldmatrix_trans(b[j], n + (uint32_t)AT(chunk_at)(k * 16 + pair * 8 + low, column / 8 + half,
                                                                CONV_TN / 8));
            else
                ldmatrix(b[j], n + (uint32_t)AT(chunk_at)(column + half * 8 + low, 2 * k + pair, 4));
        }
        UNROLL
        for (int i = 0; i < CONV_WM / 16; i++) {
            int row = CONV_WARP % CONV_WARPS_M * CONV_WM + i * 16;
            if (CONV_KIND == 2 && CONV_COPY == 0)
                ldmatrix_trans(a, m + (uint32_t)AT(chunk_at)(k * 16 + half * 8 + low, row / 8 + pair,
                                                             CONV_TM / 8));
            else
                ldmatrix(a, m + (uint32_t)AT(chunk_at)(row + pair * 8 + low, 2 * k + half, 4));
            UNROLL
            for (int j = 0; j < CONV_WN / 16; j++) {
                float *c = acc + (i * (CONV_WN / 8) + 2 * j) * 4;
                CONV_MMA(c, a, b[j][0], b[j][1]);
                CONV_MMA(c + 4, a, b[j][2], b[j][3]);
            }
        }
    }
}
#else
FN void AT(put)(unsigned char *tile, int line, int first, int length, const CONV_T *v, int n)
{
    float *to = (float *)tile + line * (length + 4) + first;
    UNROLL
    for (int i = 0; i < n && n % 4 == 0; i += 4) {
        ConvQuad q = {{v[i], v[i + 1], v[i + 2], v[i + 3]}};
        *(ConvQuad *)(to + i) = q;
    }
    UNROLL
    for (int i = 0; i < n && n % 4 != 0; i++)
        to[i] = v[i];
}

/* Lines are terms. */
FN void AT(multiply)(const unsigned char *tile, float *acc)
{
    const float *m = (const float *)tile + threadIdx.x / 16 * CONV_SIDE_M;
    const float *n = (const float *)(tile + CONV_BYTES_M) + threadIdx.x % 16 * 4;
    CONV_UNROLL_2 /* more would not fit the registers */
    for (int k = 0; k < CONV_TK; k++) {
        float a[CONV_RM];
        ConvQuad b[CONV_RN / 4];
        UNROLL
        for (int i = 0; i < CONV_RM; i++)
            a[i] = m[k * CONV_LINE_M + i / CONV_SIDE_M * 16 * CONV_SIDE_M + i % CONV_SIDE_M];
        UNROLL
        for (int j = 0; j < CONV_RN / 4; j++)
            b[j] = *(const ConvQuad *)(n + k * CONV_LINE_N + j * 64);
        UNROLL
        for (int e = 0; e < CONV_ACC; e++)
            acc[e] = fmaf(a[e / CONV_RN], b[e % CONV_RN / 4].v[e % 4], acc[e]);
    }
}
#endif

#if CONV_KIND == 2
/* ---- gradient of the weights ----------------------------------------------------------------- */

#define CONV_COLUMNS (CONV_BLOCKS * CONV_TAPS * CONV_UNIT)
#define CONV_COLUMN_TILES ((CONV_COLUMNS + CONV_TN - 1) / CONV_TN)
#define CONV_ALL_COLUMNS (CONV_COLUMN_TILES * CONV_TN)

/* What is gathered of one step. */
typedef struct {
    CONV_T m[CONV_PARTS_M], n[CONV_PARTS_N];
} AT(Step);

#if CONV_COPY
#define CONV_PIECES (32 / CONV_COPY) /* of a line */

/* A tile of the result's gradient: lines are rows. */
FN void AT(copy_rows)(unsigned char *tile, const CONV_T *dy, int place, int end, int row)
{
    UNROLL
    for (int i = 0; i < CONV_TM * CONV_PIECES; i += 256) {
        int c = i + (int)threadIdx.x, line = c / CONV_PIECES, in = c % CONV_PIECES * CONV_COPY;
        int p = place + in;
        bool is = p < end && (CONV_ROWS % CONV_TM == 0 || row + line < CONV_ROWS);
        const CONV_T *from = dy + (CONV_INDEX)(p / CONV_OUT_PLANE) * (int)P19 * CONV_OUT_PLANE +
                             ((row + line) * CONV_OUT_PLANE + p % CONV_OUT_PLANE);
        if (c < CONV_TM * CONV_PIECES)
            CONV_ASYNC(tile + AT(chunk_at)(line, in / 8, 4) + in % 8 * 2, is ? from : dy,
                       is ? CONV_COPY * 2 : 0);
    }
    copy_commit();
}
#endif

/* Channels of the result's gradient from `row` on at a place. */
FN void AT(gather_rows)(const CONV_T *__restrict__ dy, int place, int end, int row, CONV_T *v)
{
    const CONV_T *from = dy + (CONV_INDEX)(place / CONV_OUT_PLANE) * (int)P19 * CONV_OUT_PLANE +
                         (row * CONV_OUT_PLANE + place % CONV_OUT_PLANE);
    UNROLL
    for (int i = 0; i < CONV_PARTS_M; i++) {
        bool is = place < end && (CONV_ROWS % CONV_TM == 0 || row + i < CONV_ROWS);
        v[i] = is ? from[i * CONV_OUT_PLANE] : 0;
    }
}

FN void AT(fetch)(AT(Step) *s, const CONV_T *x, const CONV_T *dy, int place, int end, int row, int column)
{
    ConvTaps taps = AT(taps)(0);
    AT(Place) p = AT(place)(place, end);
    if (CONV_COPY == 0)
        AT(gather_rows)(dy, place, end, row, s->m);
    UNROLL
    for (int i = 0; i < CONV_PARTS_N; i += CONV_RUN) {
        int block;
        AT(Place) tap = AT(tap)(&taps, (column + i) / CONV_UNIT, &block);
        AT(gather)(x, &p, &tap, block * CONV_UNIT + (column + i) % CONV_UNIT, s->n + i);
    }
}

/* To this thread's own places of the partial results; the first time nothing is there. */
FN void AT(flush)(float *part, float *acc, bool first)
{
    UNROLL
    for (int e = 0; e < CONV_ACC; e += CONV_SIDE) {
        float *to = part + AT(row)(e) * CONV_ALL_COLUMNS + AT(column)(e);
#if CONV_HALF
        ConvPair v = {{acc[e], acc[e + 1]}}, old = {{0, 0}};
        ConvPair *at = (ConvPair *)to;
#else
        ConvQuad v = {{acc[e], acc[e + 1], acc[e + 2], acc[e + 3]}}, old = {{0, 0, 0, 0}};
        ConvQuad *at = (ConvQuad *)to;
#endif
        if (!first)
            old = *at;
        UNROLL
        for (int i = 0; i < CONV_SIDE; i++) {
            v.v[i] = old.v[i] + v.v[i];
            acc[e + i] = 0;
        }
        *at = v;
    }
}

FN void AT(partial)(const CONV_T *x, const CONV_T *dy, float *part, unsigned char *shared)
{
    int b = (int)blockIdx.x, tid = (int)threadIdx.x;
    int row = b % CONV_ROW_TILES * CONV_TM, column = b / CONV_ROW_TILES % CONV_COLUMN_TILES * CONV_TN;
    int group = b / (CONV_ROW_TILES * CONV_COLUMN_TILES) % CONV_GROUPS;
    int split = b / (CONV_ROW_TILES * CONV_COLUMN_TILES * CONV_GROUPS);
    int begin = split * CONV_CHUNK, all = AT(all_places)();
    int end = begin + CONV_CHUNK < all ? begin + CONV_CHUNK : all;
    int line = tid % CONV_TK, m = tid / CONV_TK * CONV_PARTS_M, n = tid / CONV_TK * CONV_PARTS_N;
    float acc[CONV_ACC];
    AT(Step) s;
    UNROLL
    for (int e = 0; e < CONV_ACC; e++)
        acc[e] = 0;
    x += (int64_t)group * CONV_CHANNELS * CONV_PLANE;
    dy += (int64_t)group * CONV_ROWS * CONV_OUT_PLANE;
    part += ((int64_t)(split * CONV_GROUPS + group) * CONV_ALL_ROWS + row) * CONV_ALL_COLUMNS + column;
#if CONV_COPY
    AT(copy_rows)(shared, dy, begin, end, row);
#endif
    AT(fetch)(&s, x, dy, begin + line, end, row + m, column + n);
    for (int at = begin, buffer = 0; at < end; at += CONV_TK, buffer ^= 1) {
        unsigned char *tile = shared + buffer * CONV_BYTES;
        if (CONV_COPY == 0)
            AT(put)(tile, line, m, CONV_TM, s.m, CONV_PARTS_M);
        AT(put)(tile + CONV_BYTES_M, line, n, CONV_TN, s.n, CONV_PARTS_N);
#if CONV_COPY
        copy_wait(0);
#endif
        __syncthreads();
#if CONV_COPY
        AT(copy_rows)(shared + (buffer ^ 1) * CONV_BYTES, dy, at + CONV_TK, end, row);
#endif
        AT(fetch)(&s, x, dy, at + CONV_TK + line, end, row + m, column + n);
        AT(multiply)(tile, acc);
        if ((at + CONV_TK - begin) % CONV_FLUSH == 0 || at + CONV_TK >= end)
            AT(flush)(part, acc, at < begin + CONV_FLUSH);
    }
}

/* Partial results added in order, to where the graph has them. */
FN void AT(sum)(const float *__restrict__ part, CONV_Y *dw)
{
    int n = CONV_GROUPS * CONV_ROWS * CONV_COLUMNS;
    for (int i = (int)(blockIdx.x * 256 + threadIdx.x); i < n; i += (int)gridDim.x * 256) {
        int column = i % CONV_COLUMNS, row = i / CONV_COLUMNS % CONV_ROWS;
        int group = i / (CONV_COLUMNS * CONV_ROWS), unit = column / CONV_UNIT;
        int channel = unit / CONV_TAPS * CONV_UNIT + column % CONV_UNIT;
        int64_t at = ((int64_t)group * CONV_ALL_ROWS + row) * CONV_ALL_COLUMNS + column;
        float v = 0;
        if (channel >= CONV_CHANNELS)
            continue;
        for (int s = 0; s < CONV_SPLITS; s++)
            v += part[at + (int64_t)s * CONV_GROUPS * CONV_ALL_ROWS * CONV_ALL_COLUMNS];
        at = ((int64_t)(group * CONV_ROWS + row) * CONV_CHANNELS + channel) * CONV_TAPS + unit % CONV_TAPS;
        CONV_STORE(dw, at, v);
    }
}
#else
/* ---- forward and gradient of the data -------------------------------------------------------- */

#define CONV_COLUMN_TILES ((AT(all_places)() + CONV_TN - 1) / CONV_TN)
#define CONV_CHUNKS (CONV_TM * CONV_TK * (int)sizeof(CONV_T) / 16)  /* of a tile of weights */

/* Element of the weights: as they are, forward of this row, term and residue. */
FN void AT(pack)(const CONV_T *__restrict__ w, CONV_T *packed)
{
    int64_t n = (int64_t)CONV_RESIDUES * CONV_GROUPS * CONV_ALL_ROWS * CONV_DEPTH;
    const ConvWindow win = CONV_WINDOW;
    const int jump[3] = {CONV_JUMP};
    for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < n; i += (int64_t)gridDim.x * 256) {
        int in = (int)(i % (CONV_ALL_ROWS * CONV_DEPTH)), of = (int)(i / (CONV_ALL_ROWS * CONV_DEPTH));
        int row = CONV_HALF ? in / CONV_DEPTH : in % CONV_ALL_ROWS;
        int term = CONV_HALF ? in % CONV_DEPTH : in / CONV_ALL_ROWS, group = of % CONV_GROUPS;
        ConvTaps t = AT(taps)(of / CONV_GROUPS);
        int unit = term / CONV_UNIT, channel = CONV_CHANNELS, k[3] = {0, 0, 0};
        if (t.count > 0) {
            int tap = unit % t.count;
            channel = unit / t.count * CONV_UNIT + term % CONV_UNIT;
            k[2] = t.first[2] + tap % t.n[2] * (CONV_DATA ? jump[2] : 1);
            k[1] = t.first[1] + tap / t.n[2] % t.n[1] * (CONV_DATA ? jump[1] : 1);
            k[0] = t.first[0] + tap / (t.n[2] * t.n[1]) * (CONV_DATA ? jump[0] : 1);
        }
        int out = CONV_DATA ? channel : row, from = CONV_DATA ? row : channel; /* channels of y, of x */
        int64_t at = ((int64_t)group * P21 + out) * P20 + from;
        at = ((at * win.kernel[0] + k[0]) * win.kernel[1] + k[1]) * win.kernel[2] + k[2];
        packed[i] = row < CONV_ROWS && channel < CONV_CHANNELS ? w[at] : 0;
    }
}

/* The packed weights of a step; a tile has lines of chunks. */
#define CONV_IN_LINE (CONV_HALF ? 4 : CONV_TM / 4)

FN void AT(copy_weights)(unsigned char *tile, const CONV_T *packed, int step)
{
    UNROLL
    for (int i = 0; i < CONV_CHUNKS; i += 256) {
        int c = i + (int)threadIdx.x, line = c / CONV_IN_LINE, in = c % CONV_IN_LINE;
        int at = CONV_HALF ? AT(chunk_at)(line, in, 4) : line * CONV_LINE_M * 4 + in * 16;
        const CONV_T *from = CONV_HALF ? packed + line * CONV_DEPTH + step * CONV_TK + in * 8
                                       : packed + (step * CONV_TK + line) * CONV_ALL_ROWS + in * 4;
        if (CONV_CHUNKS % 256 == 0 || c < CONV_CHUNKS)
            copy_async_16(tile + at, from, 16);
    }
    copy_commit();
}

FN void AT(fetch)(const CONV_T *x, const AT(Place) *p, const ConvTaps *t, int step, CONV_T *v)
{
    int column = (int)threadIdx.x / CONV_TN * CONV_PARTS_N;
    UNROLL
    for (int i = 0; i < CONV_PARTS_N; i += CONV_RUN) {
        int block;
        AT(Place) tap = AT(tap)(t, (step * CONV_TK + column + i) / CONV_UNIT, &block);
        AT(gather)(x, p, &tap, block * CONV_UNIT + (column + i) % CONV_UNIT, v + i);
    }
}

FN void AT(put_columns)(unsigned char *tile, const CONV_T *v)
{
    int column = (int)threadIdx.x / CONV_TN * CONV_PARTS_N, place = (int)threadIdx.x % CONV_TN;
    if (CONV_HALF) {
        AT(put)(tile + CONV_BYTES_M, place, column, 32, v, CONV_PARTS_N);
        return;
    }
    UNROLL
    for (int i = 0; i < CONV_PARTS_N; i++)
        AT(put)(tile + CONV_BYTES_M, column + i, place, CONV_TN, v + i, 1);
}

/* A place of a residue in the image that is made; -1: there is none. */
FN int AT(target)(int place, int residue)
{
    const ConvWindow w = CONV_WINDOW;
    int rest = place % AT(places)(), at = 0, size = 1;
    bool inside = place < AT(all_places)();
    if (!CONV_DATA)
        return inside ? rest : -1;
    UNROLL
    for (int d = 2; d >= 0; d--) {
        int x = rest % AT(extent)(d) * w.stride[d] + residue % w.stride[d];
        inside &= x < w.in[d];
        at += x * size;
        size *= w.in[d];
        rest /= AT(extent)(d);
        residue /= w.stride[d];
    }
    return inside ? at : -1;
}

typedef struct __attribute__((aligned(sizeof(CONV_Y) * CONV_WIDE))) {
    CONV_Y v[CONV_WIDE];
} AT(Wide);

#define CONV_STAGE_M (CONV_TM < 64 ? CONV_TM : 64)

/* Through shared memory, so that a warp writes along rows: CONV_WIDE places at a time. */
FN void AT(store)(const float *acc, const CONV_T *bias, CONV_Y *y, int row, int place, int residue,
                  unsigned char *shared)
{
    float *stage = (float *)shared;
    for (int pass = 0; pass < CONV_TM; pass += CONV_STAGE_M) {
        __syncthreads();
        UNROLL
        for (int e = 0; e < CONV_ACC; e++) {
            int at = AT(row)(e) - pass;
            if (at >= 0 && at < CONV_STAGE_M)
                stage[at * CONV_LINE_N + AT(column)(e)] = acc[e];
        }
        __syncthreads();
        for (int i = (int)threadIdx.x * CONV_WIDE; i < CONV_STAGE_M * CONV_TN; i += 256 * CONV_WIDE) {
            int r = row + pass + i / CONV_TN, p = place + i % CONV_TN, at = AT(target)(p, residue);
            const float *from = stage + i / CONV_TN * CONV_LINE_N + i % CONV_TN;
            if (at < 0 || r >= CONV_ROWS)
                continue;
            float add = CONV_BIAS ? CONV_LOAD(bias, r) : 0;
            CONV_Y *to = y + (int64_t)(p / AT(places)()) * CONV_GROUPS * CONV_ROWS * CONV_OUT_PLANE +
                         ((int64_t)r * CONV_OUT_PLANE + at);
            AT(Wide) v;
            UNROLL
            for (int j = 0; j < CONV_WIDE; j++)
                CONV_STORE(v.v, j, from[j] + add);
            *(AT(Wide) *)to = v;
        }
    }
}

FN void AT(product)(const CONV_T *x, const CONV_T *packed, const CONV_T *bias, CONV_Y *y,
                    unsigned char *shared)
{
    int b = (int)blockIdx.x, residue = b / CONV_ROW_TILES % CONV_RESIDUES, row = b % CONV_ROW_TILES * CONV_TM;
    int column = b / (CONV_ROW_TILES * CONV_RESIDUES) % CONV_COLUMN_TILES * CONV_TN;
    int group = b / (CONV_ROW_TILES * CONV_RESIDUES) / CONV_COLUMN_TILES;
    ConvTaps t = AT(taps)(residue);
    AT(Place) p = AT(place)(column + (int)threadIdx.x % CONV_TN, AT(all_places)());
    int steps = (CONV_BLOCKS * t.count * CONV_UNIT + CONV_TK - 1) / CONV_TK;
    float acc[CONV_ACC];
    CONV_T v[CONV_PARTS_N];
    UNROLL
    for (int e = 0; e < CONV_ACC; e++)
        acc[e] = 0;
    x += (int64_t)group * CONV_CHANNELS * CONV_PLANE;
    packed += (int64_t)(residue * CONV_GROUPS + group) * CONV_ALL_ROWS * CONV_DEPTH +
              row * (CONV_HALF ? CONV_DEPTH : 1);
    if (steps > 0) {
        AT(copy_weights)(shared, packed, 0);
        AT(fetch)(x, &p, &t, 0, v);
    }
    for (int i = 0; i < steps; i++) {
        unsigned char *tile = shared + i % 2 * CONV_BYTES;
        AT(put_columns)(tile, v);
        copy_wait(0);
        __syncthreads();
        if (i + 1 < steps) {
            AT(copy_weights)(shared + (i + 1) % 2 * CONV_BYTES, packed, i + 1);
            AT(fetch)(x, &p, &t, i + 1, v);
        }
        AT(multiply)(tile, acc);
    }
    AT(store)(acc, bias + (CONV_BIAS ? group * CONV_ROWS : 0),
              y + (int64_t)group * CONV_ROWS * CONV_OUT_PLANE, row, column, residue, shared);
}
#endif
