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
 * Tensors are channels-last, so that CONV_COPY channels of a place (CONV_COPY_ROWS of the result's gradient)
 * are one asynchronous copy to shared memory, with zeros where a tap reads padding.  Tiles are copied
 * CONV_STAGES - 1 steps ahead.  Their lines are rows and columns with terms side by side; for weights they
 * are places with channels side by side.  For forward and data an earlier phase lays out the weights as tiles
 * read them, padded with zeros.  CONV_WGMMA: four warps multiply together (wgmma.h), each of the two
 * warpgroups 64 of 128 rows, or half of the columns if there are 64 rows, and tiles have the layout of its
 * factors.
 *
 * Weights: blocks share the places; each adds its sums every CONV_FLUSH places to partial results
 * of its own in f32, which a second phase adds in order. */

/* Sizes of a tile. */
#define CONV_SIZE ((int)sizeof(CONV_T))
#define CONV_CHUNK16 (16 / CONV_SIZE) /* elements in 16 bytes */
#define CONV_LINE_BYTES (CONV_WGMMA ? 128 : 64) /* bytes of a line of terms */
#define CONV_LINE_CHUNKS (CONV_LINE_BYTES / 16)
#define CONV_TK (CONV_LINE_BYTES / CONV_SIZE)
#define CONV_ACC (CONV_TM * CONV_TN / 256)
#define CONV_PADDED (CONV_KIND == 2 && !CONV_HALF ? 4 : 0) /* elements of padding behind a line */
#define CONV_LINE_M (CONV_TM + CONV_PADDED)
#define CONV_LINE_N (CONV_TN + CONV_PADDED)
#define CONV_BYTES_M (CONV_LINE_M * CONV_LINE_BYTES)
#define CONV_BYTES (CONV_BYTES_M + CONV_LINE_N * CONV_LINE_BYTES)

/* ---- tiles in shared memory ------------------------------------------------------------------ */

/* Copies n elements to shared memory if `is`, else zeros; some: any valid address. */
FN void AT(copy)(unsigned char *to, const CONV_T *from, bool is, const CONV_T *some, int n)
{
    int bytes = is ? n * CONV_SIZE : 0;
    from = is ? from : some;
    if (n * CONV_SIZE == 16)
        copy_async_16(to, from, bytes);
    else if (n * CONV_SIZE == 8)
        copy_async_8(to, from, bytes);
    else if (n * CONV_SIZE == 4)
        copy_async_4(to, from, bytes);
    else
        *(CONV_T *)to = is ? *from : 0;
}

/* Byte position of a 16-byte chunk of a line.  Chunks are permuted so that neither the equal chunks of 8
 * lines nor the chunks of a line share a bank.  For warpgroups: panels of 8 chunks of all lines. */
FN int AT(chunk_at)(int line, int chunk, int chunks)
{
    int g = chunks < 8 ? chunks : 8;
    if (CONV_WGMMA)
        return (chunk / 8 * CONV_TK * 8 + line * 8 + (chunk % 8 ^ line % 8)) * 16;
    return (line * chunks + chunk / g * g + (chunk % g ^ line / (8 / g) % g)) * 16;
}

/* Byte position of element e of a line of `length` terms or channels. */
FN int AT(element_at)(int line, int e, int length)
{
    if (CONV_PADDED)
        return (line * (length + CONV_PADDED) + e) * CONV_SIZE;
    return AT(chunk_at)(line, e / CONV_CHUNK16, length / CONV_CHUNK16) + e % CONV_CHUNK16 * CONV_SIZE;
}

/* AT(row) and AT(column): row and column in the tile of accumulator e of a thread. */
#define CONV_WARPS_M (CONV_WGMMA ? CONV_TM / 16 : CONV_TM < 64 ? 1 : 2)
#define CONV_WM (CONV_TM / CONV_WARPS_M) /* rows of a warp */
#define CONV_WN (CONV_TN * CONV_WARPS_M / 8)
#define CONV_RM (CONV_TM / 16) /* rows of a thread */
#define CONV_RN (CONV_TN / 16)
#define CONV_SIDE_M (CONV_RM < 4 ? CONV_RM : 4)
#define CONV_WARP ((int)threadIdx.x / 32)
#define CONV_LANE ((int)threadIdx.x % 32)

FN int AT(row)(int e, int thread)
{
    if (CONV_HALF)
        return thread / 32 % CONV_WARPS_M * CONV_WM + e / 4 / (CONV_WN / 8) * 16 + e % 4 / 2 * 8 +
               thread % 32 / 4;
    int i = e / CONV_RN;
    if (CONV_KIND != 2)
        return i * 16 + thread / 16;
    return i / CONV_SIDE_M * 16 * CONV_SIDE_M + thread / 16 * CONV_SIDE_M + i % CONV_SIDE_M;
}

FN int AT(column)(int e, int thread)
{
    if (CONV_HALF)
        return thread / 32 / CONV_WARPS_M * CONV_WN + e / 4 % (CONV_WN / 8) * 8 + thread % 4 * 2 + e % 2;
    int j = e % CONV_RN;
    return CONV_KIND != 2 ? j * 16 + thread % 16 : j / 4 * 64 + thread % 16 * 4 + j % 4;
}

#if CONV_WGMMA
/* In units of descriptors: distance of the next 16 terms, of the next 64 rows or columns. */
#define CONV_NEXT ((CONV_KIND == 2 ? 16 * 128 : 32) / 16)
#define CONV_PANEL (64 * 128 / 16)

FN void AT(multiply)(const unsigned char *tile, float *acc)
{
    const uint64_t group = (uint64_t)__shfl_sync(0xffffffffu, CONV_WARP / 4, 0);
    const uint64_t m = wgmma_matrix(tile, CONV_TK) + (CONV_TM == 128 ? group * CONV_PANEL : 0);
    const uint64_t n = wgmma_matrix(tile + CONV_BYTES_M, CONV_TK) + (CONV_TM == 64 ? group * CONV_PANEL : 0);
    wgmma_hold(acc, CONV_ACC);
    wgmma_fence();
    UNROLL
    for (uint64_t k = 0; k < 4; k++)
        CONV_MMA(acc, m + k * CONV_NEXT, n + k * CONV_NEXT, 1);
    wgmma_commit();
    wgmma_wait(0);
    wgmma_hold(acc, CONV_ACC);
}
#elif CONV_HALF
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
            if (CONV_KIND == 2)
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
#elif CONV_KIND == 2
/* Here the lines of tiles are places. */
FN void AT(multiply)(const unsigned char *tile, float *acc)
{
    const float *m = (const float *)tile + threadIdx.x / 16 * CONV_SIDE_M;
    const float *n = (const float *)(tile + CONV_BYTES_M) + threadIdx.x % 16 * 4;
    ROLLED
    for (int k = 0; k < CONV_TK; k++) { /* unrolled it would not fit the registers */
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
#else
/* Here a line of a tile has the terms of a row or column. */
FN void AT(multiply)(const unsigned char *tile, float *acc)
{
    int row = (int)threadIdx.x / 16, column = (int)threadIdx.x % 16;
    ROLLED
    for (int k = 0; k < 4; k++) { /* unrolled it would not fit the registers */
        ConvQuad b[CONV_RN];
        UNROLL
        for (int j = 0; j < CONV_RN; j++)
            b[j] = *(const ConvQuad *)(tile + CONV_BYTES_M + AT(chunk_at)(j * 16 + column, k, 4));
        UNROLL
        for (int i = 0; i < CONV_RM; i++) {
            ConvQuad a = *(const ConvQuad *)(tile + AT(chunk_at)(i * 16 + row, k, 4));
            UNROLL
            for (int e = 0; e < CONV_RN * 4; e++)
                acc[i * CONV_RN + e % CONV_RN] =
                    fmaf(a.v[e / CONV_RN], b[e % CONV_RN].v[e / CONV_RN], acc[i * CONV_RN + e % CONV_RN]);
        }
    }
}
#endif

/* Waits until the next step's copies are visible to all threads, and to products of warpgroups. */
FN void AT(arrive)(void)
{
    copy_wait(CONV_STAGES - 2);
#if CONV_WGMMA
    fence_async();
#endif
    __syncthreads();
}

#if CONV_KIND == 2
/* ---- gradient of the weights ----------------------------------------------------------------- */

#define CONV_COLUMNS (CONV_TAPS * CONV_CHANNELS)
#undef CONV_COLUMN_TILES
#define CONV_COLUMN_TILES ((CONV_COLUMNS + CONV_TN - 1) / CONV_TN)
/* Copies per line, and lines that are copied at a time. */
#define CONV_PARTS_M (CONV_TM / CONV_COPY_ROWS)
#define CONV_PARTS_N (CONV_TN / CONV_COPY)
#define CONV_STEP_M (256 / CONV_PARTS_M)
#define CONV_STEP_N (256 / CONV_PARTS_N)

/* Copies a tile of the result's gradient: places from `place` on, rows from `row` on. */
FN void AT(copy_rows)(unsigned char *tile, const CONV_T *dy, int place, int end, int row)
{
    int in = (int)threadIdx.x % CONV_PARTS_M * CONV_COPY_ROWS, line = (int)threadIdx.x / CONV_PARTS_M;
    bool is = CONV_ROWS % CONV_TM == 0 || row + in < CONV_ROWS;
    UNROLL
    for (int i = 0; i < CONV_TK; i += CONV_STEP_M) {
        int p = place + line + i;
        unsigned char *to = tile + AT(element_at)(line + i, in, CONV_TM);
        if (CONV_STEP_M <= CONV_TK || line < CONV_TK)
            AT(copy)(to, dy + ((CONV_INDEX)p * (int)P19 + row + in), is && p < end, dy, CONV_COPY_ROWS);
    }
}

/* Copies a tile of the data: what this thread's tap reads for places from `place` on. */
FN void AT(copy_columns)(unsigned char *tile, const CONV_T *x, int place, int end, const AT(Place) * tap)
{
    int in = (int)threadIdx.x % CONV_PARTS_N * CONV_COPY, line = (int)threadIdx.x / CONV_PARTS_N;
    UNROLL
    for (int i = 0; i < CONV_TK; i += CONV_STEP_N) {
        AT(Place) p = AT(place)(place + line + i, end);
        unsigned char *to = tile + CONV_BYTES_M + AT(element_at)(line + i, in, CONV_TN);
        AT(copy)(to, x + (p.offset + tap->offset), AT(sees)(&p, tap), x, CONV_COPY);
    }
}

/* Adds a thread's accumulators to its partial results, four at a time, and clears them; first: there are no
 * partial results yet. */
FN void AT(flush)(float *part, float *acc, bool first)
{
    UNROLL
    for (int e = 0; e < CONV_ACC; e += 4) {
        ConvQuad *to = (ConvQuad *)part + (e / 4 * 256 + (int)threadIdx.x), old = {{0, 0, 0, 0}}, v;
        if (!first)
            old = *to;
        UNROLL
        for (int i = 0; i < 4; i++) {
            v.v[i] = old.v[i] + acc[e + i];
            acc[e + i] = 0;
        }
        *to = v;
    }
}

FN void AT(partial)(const CONV_T *x, const CONV_T *dy, float *part, unsigned char *shared)
{
    int b = (int)blockIdx.x, row = b % CONV_ROW_TILES * CONV_TM;
    int column = b / CONV_ROW_TILES % CONV_COLUMN_TILES * CONV_TN;
    int group = b / (CONV_ROW_TILES * CONV_COLUMN_TILES) % CONV_GROUPS;
    int split = b / (CONV_ROW_TILES * CONV_COLUMN_TILES * CONV_GROUPS);
    int begin = split * CONV_CHUNK, all = AT(all_places)();
    int end = begin + CONV_CHUNK < all ? begin + CONV_CHUNK : all;
    int own = column + (int)threadIdx.x % CONV_PARTS_N * CONV_COPY, buffer = 0;
    ConvTaps taps = AT(taps)(0);
    AT(Place) tap = AT(tap)(&taps, own / CONV_CHANNELS);
    float acc[CONV_ACC];
    UNROLL
    for (int e = 0; e < CONV_ACC; e++)
        acc[e] = 0;
    x += group * CONV_CHANNELS + own % CONV_CHANNELS;
    dy += group * CONV_ROWS;
    part += (int64_t)b * CONV_TM * CONV_TN;
    for (int s = 0; s < CONV_STAGES - 1; s++) {
        AT(copy_rows)(shared + s * CONV_BYTES, dy, begin + s * CONV_TK, end, row);
        AT(copy_columns)(shared + s * CONV_BYTES, x, begin + s * CONV_TK, end, &tap);
        copy_commit();
    }
    for (int at = begin; at < end; at += CONV_TK) {
        int ahead = buffer == 0 ? CONV_STAGES - 1 : buffer - 1, next = at + (CONV_STAGES - 1) * CONV_TK;
        AT(arrive)();
        AT(copy_rows)(shared + ahead * CONV_BYTES, dy, next, end, row);
        AT(copy_columns)(shared + ahead * CONV_BYTES, x, next, end, &tap);
        copy_commit();
        AT(multiply)(shared + buffer * CONV_BYTES, acc);
        buffer = buffer == CONV_STAGES - 1 ? 0 : buffer + 1;
        if ((at + CONV_TK - begin) % CONV_FLUSH == 0 || at + CONV_TK >= end)
            AT(flush)(part, acc, at < begin + CONV_FLUSH);
    }
    copy_wait(0);
}

/* Adds the partial results in order, and stores the sums in the graph's layout of weights. */
FN void AT(sum)(const float *__restrict__ part, CONV_Y *dw)
{
    int tiles = CONV_ROW_TILES * CONV_COLUMN_TILES * CONV_GROUPS, n = tiles * (CONV_ACC / 4 * 256);
    for (int i = (int)(blockIdx.x * 256 + threadIdx.x); i < n; i += (int)gridDim.x * 256) {
        int thread = i % 256, e = i / 256 % (CONV_ACC / 4) * 4, b = i / (CONV_ACC / 4 * 256);
        int row = b % CONV_ROW_TILES * CONV_TM, column = b / CONV_ROW_TILES % CONV_COLUMN_TILES * CONV_TN;
        int group = b / (CONV_ROW_TILES * CONV_COLUMN_TILES);
        ConvQuad v = {{0, 0, 0, 0}};
        for (int s = 0; s < CONV_SPLITS; s++) {
            ConvQuad p = ((const ConvQuad *)part)[i + (int64_t)s * n];
            UNROLL
            for (int j = 0; j < 4; j++)
                v.v[j] += p.v[j];
        }
        UNROLL
        for (int j = 0; j < 4; j++) {
            int r = row + AT(row)(e + j, thread), c = column + AT(column)(e + j, thread);
            int64_t pair = (int64_t)(group * CONV_ROWS + r) * CONV_CHANNELS + c % CONV_CHANNELS;
            if (r < CONV_ROWS && c < CONV_COLUMNS)
                CONV_STORE(dw, pair * CONV_TAPS + c / CONV_CHANNELS, v.v[j]);
        }
    }
}
#else
/* ---- forward and gradient of the data -------------------------------------------------------- */

#undef CONV_COLUMN_TILES
#define CONV_COLUMN_TILES ((AT(all_places)() + CONV_TN - 1) / CONV_TN)

/* Index in the weights of a term of a row; -1: there is none. */
FN int64_t AT(weight_at)(const ConvTaps *t, int group, int row, int term)
{
    const ConvWindow win = CONV_WINDOW;
    const int jump[3] = {CONV_JUMP};
    int tap = term / CONV_CHANNELS, channel = term % CONV_CHANNELS;
    if (tap >= t->count || row >= CONV_ROWS)
        return -1;
    int k2 = t->first[2] + tap % t->n[2] * (CONV_DATA ? jump[2] : 1);
    int k1 = t->first[1] + tap / t->n[2] % t->n[1] * (CONV_DATA ? jump[1] : 1);
    int k0 = t->first[0] + tap / (t->n[2] * t->n[1]) * (CONV_DATA ? jump[0] : 1);
    int out = CONV_DATA ? channel : row, from = CONV_DATA ? row : channel; /* channels of y, of x */
    int64_t at = ((int64_t)group * P21 + out) * P20 + from;
    return ((at * win.kernel[0] + k0) * win.kernel[1] + k1) * win.kernel[2] + k2;
}

/* Lays out the weights as rows of terms, for each residue and group. */
FN void AT(pack)(const CONV_T *__restrict__ w, CONV_T *packed)
{
    int n = CONV_RESIDUES * CONV_GROUPS * CONV_ALL_ROWS * (CONV_DEPTH / CONV_CHUNK16);
    for (int i = (int)blockIdx.x * 256 + (int)threadIdx.x; i < n; i += (int)gridDim.x * 256) {
        int term = i % (CONV_DEPTH / CONV_CHUNK16) * CONV_CHUNK16, line = i / (CONV_DEPTH / CONV_CHUNK16);
        int of = line / CONV_ALL_ROWS;
        ConvTaps t = AT(taps)(of / CONV_GROUPS);
        ALIGNED_16 CONV_T v[CONV_CHUNK16];
        UNROLL
        for (int e = 0; e < CONV_CHUNK16; e++) {
            int64_t at = AT(weight_at)(&t, of % CONV_GROUPS, line % CONV_ALL_ROWS, term + e);
            v[e] = at >= 0 ? w[at] : 0;
        }
        copy_16(packed + (int64_t)i * CONV_CHUNK16, v);
    }
}

/* Copies per line, lines that are copied at a time, lines of a thread. */
#define CONV_PARTS (CONV_TK / CONV_COPY)
#define CONV_STEP (256 / CONV_PARTS)
#define CONV_LINES (CONV_TN / CONV_STEP)
#define CONV_KNOWN (CONV_LINES <= 4 ? CONV_LINES : 1) /* places that a thread keeps in registers */

FN void AT(copy_step)(unsigned char *tile, const CONV_T *x, const CONV_T *packed, const ConvTaps *t,
                      const AT(Place) * known, int column, int step)
{
    UNROLL
    for (int i = 0; i < CONV_TM * CONV_LINE_CHUNKS; i += 256) {
        int line = (i + (int)threadIdx.x) / CONV_LINE_CHUNKS, in = (int)threadIdx.x % CONV_LINE_CHUNKS;
        if (CONV_TM % 64 == 0 || line < CONV_TM)
            copy_async_16(tile + AT(chunk_at)(line, in, CONV_LINE_CHUNKS),
                          packed + line * CONV_DEPTH + step * CONV_TK + in * CONV_CHUNK16, 16);
    }
    int in = (int)threadIdx.x % CONV_PARTS * CONV_COPY, line = (int)threadIdx.x / CONV_PARTS;
    int term = step * CONV_TK + in, channel = term % CONV_CHANNELS;
    AT(Place) tap = AT(tap)(t, term / CONV_CHANNELS);
    UNROLL
    for (int i = 0; i < CONV_LINES; i++) {
        AT(Place)
        p = CONV_KNOWN == CONV_LINES ? known[i % CONV_KNOWN]
                                     : AT(place)(column + line + i * CONV_STEP, AT(all_places)());
        unsigned char *to = tile + CONV_BYTES_M + AT(element_at)(line + i * CONV_STEP, in, CONV_TK);
        AT(copy)(to, x + (p.offset + tap.offset + channel), AT(sees)(&p, &tap), x, CONV_COPY);
    }
}

/* Position in the image that is made of a place of a residue; -1: there is none. */
FN int AT(target)(int place, int residue)
{
    const ConvWindow w = CONV_WINDOW;
    int rest = place % AT(places)(), at = CONV_DATA ? 0 : rest, size = 1;
    bool inside = place < AT(all_places)();
    UNROLL
    for (int d = 2; CONV_DATA && d >= 0; d--) {
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
#define CONV_STAGE_LINE (CONV_STAGE_M + 4)

/* Stores a tile through shared memory, so that a place's channels are written CONV_WIDE at a time. */
FN void AT(store)(const float *acc, const CONV_T *bias, CONV_Y *y, int row, int place, int residue,
                  unsigned char *shared)
{
    float *stage = (float *)shared;
    for (int pass = 0; pass < CONV_TM; pass += CONV_STAGE_M) {
        __syncthreads();
        UNROLL
        for (int e = 0; e < CONV_ACC; e++) {
            int at = AT(row)(e, (int)threadIdx.x) - pass;
            if (at >= 0 && at < CONV_STAGE_M)
                stage[AT(column)(e, (int)threadIdx.x) * CONV_STAGE_LINE + at] = acc[e];
        }
        __syncthreads();
        for (int i = (int)threadIdx.x * CONV_WIDE; i < CONV_STAGE_M * CONV_TN; i += 256 * CONV_WIDE) {
            int r = pass + i % CONV_STAGE_M, p = place + i / CONV_STAGE_M, at = AT(target)(p, residue);
            const float *from = stage + i / CONV_STAGE_M * CONV_STAGE_LINE + i % CONV_STAGE_M;
            CONV_INDEX to = (CONV_INDEX)(p / AT(places)()) * CONV_OUT_PLANE + at;
            AT(Wide) v;
            if (at < 0 || row + r >= CONV_ROWS)
                continue;
            UNROLL
            for (int j = 0; j < CONV_WIDE; j++)
                CONV_STORE(v.v, j, from[j] + (CONV_BIAS ? CONV_LOAD(bias, row + r + j) : 0));
            *(AT(Wide) *)(y + (to * (CONV_GROUPS * CONV_ROWS) + row + r)) = v;
        }
    }
}

FN void AT(product)(const CONV_T *x, const CONV_T *packed, const CONV_T *bias, CONV_Y *y,
                    unsigned char *shared)
{
    int b = (int)blockIdx.x, residue = b / CONV_ROW_TILES % CONV_RESIDUES, row = b % CONV_ROW_TILES * CONV_TM;
    int column = b / (CONV_ROW_TILES * CONV_RESIDUES) % CONV_COLUMN_TILES * CONV_TN;
    int group = b / (CONV_ROW_TILES * CONV_RESIDUES) / CONV_COLUMN_TILES, buffer = 0;
    ConvTaps t = AT(taps)(residue);
    AT(Place) known[CONV_KNOWN];
    int steps = (t.count * CONV_CHANNELS + CONV_TK - 1) / CONV_TK;
    float acc[CONV_ACC];
    UNROLL
    for (int e = 0; e < CONV_ACC; e++)
        acc[e] = 0;
    UNROLL
    for (int i = 0; i < CONV_KNOWN; i++)
        known[i] = AT(place)(column + (int)threadIdx.x / CONV_PARTS + i * CONV_STEP, AT(all_places)());
    x += group * CONV_CHANNELS;
    packed += ((int64_t)(residue * CONV_GROUPS + group) * CONV_ALL_ROWS + row) * CONV_DEPTH;
    for (int s = 0; s < CONV_STAGES - 1; s++) {
        if (s < steps)
            AT(copy_step)(shared + s * CONV_BYTES, x, packed, &t, known, column, s);
        copy_commit();
    }
    for (int s = 0; s < steps; s++) {
        int ahead = buffer == 0 ? CONV_STAGES - 1 : buffer - 1;
        AT(arrive)();
        if (s + CONV_STAGES - 1 < steps)
            AT(copy_step)(shared + ahead * CONV_BYTES, x, packed, &t, known, column, s + CONV_STAGES - 1);
        copy_commit();
        AT(multiply)(shared + buffer * CONV_BYTES, acc);
        buffer = buffer == CONV_STAGES - 1 ? 0 : buffer + 1;
    }
    bias += CONV_BIAS ? group * CONV_ROWS : 0;
    AT(store)(acc, bias, y + group * CONV_ROWS, row, column, residue, shared);
}
#endif
