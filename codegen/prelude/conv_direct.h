/* conv_direct.h -- convolutions of few channels a group (depthwise) for CUDA.
 *
 * Pasted behind conv.h.  A thread has CONV_COPY channels, or pairs of them, of CONV_STRIP consecutive places
 * along the last dimension: for CONV_ROW_TAPS taps of a row of the window it reads the columns that they meet
 * once.  CONV_LANES threads share a strip and have a slice of the channels; the other threads of a block have
 * other strips.  Weights: a block has a slice and a part of the strips; a second phase adds the parts. */

#define CONV_ALL ((int)(CONV_DATA ? P19 : P18)) /* channels of the tensor that is read */
#define CONV_MADE ((int)(CONV_DATA ? P18 : P19))
#define CONV_PAIRS ((int)(P19 * P20))
#define CONV_SLICE (CONV_LANES * CONV_COPY) /* channels, or pairs of them */
#define CONV_SLICES ((CONV_MADE + CONV_SLICE - 1) / CONV_SLICE)
#define CONV_SIDE_BY_SIDE (256 / CONV_LANES) /* strips of a block at a time */
/* Extent of the last dimension: of what is made, or of the result's gradient; of what is read. */
#define CONV_WIDTH ((int)(CONV_DATA ? P2 : P5))
#define CONV_FROM ((int)(CONV_DATA ? P5 : P2))
#define CONV_STRIPS ((CONV_WIDTH + CONV_STRIP - 1) / CONV_STRIP)
#define CONV_ALL_STRIPS ((int)P22 * (CONV_OUT_PLANE / CONV_WIDTH) * CONV_STRIPS)
#define CONV_ROW_CHUNKS (((int)P8 + CONV_ROW_TAPS - 1) / CONV_ROW_TAPS)
/* The columns that a strip meets, from the first one on; for data from the last: so taps are in order. */
#define CONV_BEFORE ((CONV_ROW_TAPS - 1) * (int)P17 - (int)P14)
#define CONV_LOWEST (CONV_DATA ? -((CONV_BEFORE + (int)P11 - 1) / (int)P11) : 0)
#define CONV_HIGHEST                                                                         \
    (CONV_DATA ? (CONV_STRIP - 1 + (int)P14) / (int)P11                                      \
               : (CONV_STRIP - 1) * (int)P11 + (CONV_ROW_TAPS - 1) * (int)P17)
#define CONV_COLUMNS (CONV_HIGHEST - CONV_LOWEST + 1)

typedef struct __attribute__((aligned(sizeof(CONV_T) * CONV_COPY))) {
    CONV_T v[CONV_COPY];
} AT(Channels);

typedef struct {
    int image, z, y, x; /* position of its first place */
} AT(Strip);

FN AT(Strip) AT(strip)(int i)
{
    int line = i / CONV_STRIPS, h = (int)(CONV_DATA ? P1 : P4), lines = CONV_OUT_PLANE / CONV_WIDTH;
    AT(Strip) s = {line / lines, line % lines / h, line % lines % h, i % CONV_STRIPS * CONV_STRIP};
    return s;
}

/* The position that tap k of place `at` reads along dimension d; negative: none. */
FN int AT(read)(int at, int d, int k)
{
    const ConvWindow w = CONV_WINDOW;
    if (!CONV_DATA) {
        at = at * w.stride[d] - w.pad[d] + k * w.dilation[d];
        return at < w.in[d] ? at : -1;
    }
    at += w.pad[d] - k * w.dilation[d];
    return at >= 0 && at % w.stride[d] == 0 && at / w.stride[d] < w.out[d] ? at / w.stride[d] : -1;
}

/* The line, counted over all images, that row k of the window reads for the strip; -1: none. */
FN int AT(line)(const AT(Strip) * s, int k)
{
    int z = AT(read)(s->z, 0, k / (int)P7), y = AT(read)(s->y, 1, k % (int)P7);
    int d = (int)(CONV_DATA ? P3 : P0), h = (int)(CONV_DATA ? P4 : P1);
    return z < 0 || y < 0 ? -1 : (s->image * d + z) * h + y;
}

/* The i-th column that a strip meets, if it begins at x and its taps at `first`; negative: none. */
FN int AT(column)(int x, int i, int first)
{
    int at = CONV_DATA ? x / (int)P11 + CONV_HIGHEST - i - first * (int)P17 / (int)P11
                       : x * (int)P11 - (int)P14 + i + first * (int)P17;
    return at < CONV_FROM ? at : -1;
}

/* Do all columns and places of a strip exist?  Then its loads need not wait for each other. */
FN bool AT(inside)(int x, int first)
{
    int a = AT(column)(x, 0, first), b = AT(column)(x, CONV_COLUMNS - 1, first);
    return a >= 0 && b >= 0 && x + CONV_STRIP <= CONV_WIDTH;
}

/* The tap, counted from the first, by which place j of the strip reads the i-th column; -1: none. */
FN int AT(met)(int i, int j)
{
    int n = CONV_DATA ? j + (int)P14 - (CONV_HIGHEST - i) * (int)P11 : i - j * (int)P11;
    return n >= 0 && n % (int)P17 == 0 && n / (int)P17 < CONV_ROW_TAPS ? n / (int)P17 : -1;
}
FN bool AT(meets)(int i)
{
    bool any = false;
    UNROLL
    for (int j = 0; j < CONV_STRIP; j++)
        any |= AT(met)(i, j) >= 0;
    return any;
}

#if CONV_KIND == 2
#define CONV_PAIR_SLICES ((CONV_PAIRS + CONV_SLICE - 1) / CONV_SLICE)

/* Adds what a strip contributes to the taps from `first` on of a row of the window. */
FN void AT(sum_strip)(const CONV_T *__restrict__ from, const CONV_T *__restrict__ made, int x, int first,
                      bool whole, float acc[CONV_ROW_TAPS][CONV_COPY])
{
    AT(Channels) g[CONV_STRIP];
    UNROLL
    for (int j = 0; j < CONV_STRIP; j++)
        if (whole || x + j < CONV_WIDTH)
            g[j] = *(const AT(Channels) *)(made + j * CONV_MADE);
    UNROLL
    for (int i = 0; i < CONV_COLUMNS; i++) {
        int column = AT(column)(x, i, first);
        if (!AT(meets)(i) || (!whole && column < 0))
            continue;
        AT(Channels) v = *(const AT(Channels) *)(from + (CONV_INDEX)column * CONV_ALL);
        UNROLL
        for (int j = 0; j < CONV_STRIP; j++) {
            int t = AT(met)(i, j);
            if (t < 0 || (!whole && x + j >= CONV_WIDTH))
                continue;
            UNROLL
            for (int e = 0; e < CONV_COPY; e++)
                acc[t][e] = fmaf(CONV_LOAD(g[j].v, e), CONV_LOAD(v.v, e), acc[t][e]);
        }
    }
}

/* Sums the taps from `first` on of row k, for CONV_COPY pairs of channels, over this thread's strips. */
FN void AT(sums)(const CONV_T *__restrict__ x, const CONV_T *__restrict__ dy, int pair, int at, int end,
                 int k, int first, float acc[CONV_ROW_TAPS][CONV_COPY])
{
    int m = pair / (int)P20, channel = m / (int)P21 * (int)P20 + pair % (int)P20;
    for (; at < end; at += CONV_SIDE_BY_SIDE) {
        AT(Strip) s = AT(strip)(at);
        int line = AT(line)(&s, k);
        if (line < 0)
            continue;
        const CONV_T *made = dy + ((CONV_INDEX)(at / CONV_STRIPS) * CONV_WIDTH + s.x) * CONV_MADE + m;
        const CONV_T *from = x + (CONV_INDEX)line * CONV_FROM * CONV_ALL + channel;
        if (AT(inside)(s.x, first))
            AT(sum_strip)(from, made, s.x, first, true, acc);
        else
            AT(sum_strip)(from, made, s.x, first, false, acc);
    }
}

FN void AT(partial)(const CONV_T *__restrict__ x, const CONV_T *__restrict__ dy, float *part,
                    unsigned char *shared)
{
    int lane = (int)threadIdx.x % CONV_LANES, split = (int)blockIdx.x / CONV_PAIR_SLICES;
    int pair = (int)blockIdx.x % CONV_PAIR_SLICES * CONV_SLICE + lane * CONV_COPY;
    int begin = split * CONV_CHUNK;
    int end = begin + CONV_CHUNK < CONV_ALL_STRIPS ? begin + CONV_CHUNK : CONV_ALL_STRIPS;
    ROLLED
    for (int chunk = 0; chunk < (int)(P6 * P7) * CONV_ROW_CHUNKS; chunk++) {
        int k = chunk / CONV_ROW_CHUNKS, first = chunk % CONV_ROW_CHUNKS * CONV_ROW_TAPS;
        ALIGNED_16 float acc[CONV_ROW_TAPS][CONV_COPY];
        UNROLL
        for (int i = 0; i < CONV_ROW_TAPS * CONV_COPY; i++)
            acc[i / CONV_COPY][i % CONV_COPY] = 0;
        if (pair < CONV_PAIRS)
            AT(sums)(x, dy, pair, begin + (int)threadIdx.x / CONV_LANES, end, k, first, acc);
        UNROLL
        for (int i = 0; i < CONV_ROW_TAPS; i++) {
            column_sum_float(acc[i], (float *)shared, CONV_COPY, CONV_LANES);
            if ((int)threadIdx.x >= CONV_LANES || pair >= CONV_PAIRS || first + i >= (int)P8)
                continue;
            float *to = part + (((int64_t)split * CONV_TAPS + k * (int)P8 + first + i) * CONV_PAIRS + pair);
            wide_copy(to, acc[i], CONV_COPY * (int)sizeof(float));
        }
    }
}

#define CONV_SIDE (CONV_PAIRS % 4 == 0 ? 4 : 1)

FN void AT(sum)(const float *__restrict__ part, CONV_Y *dw)
{
    int n = CONV_PAIRS * CONV_TAPS;
    for (int i = (int)(blockIdx.x * 256 + threadIdx.x) * CONV_SIDE; i < n;
         i += (int)gridDim.x * 256 * CONV_SIDE) {
        ALIGNED_16 float v[CONV_SIDE] = {0}, p[CONV_SIDE];
        for (int s = 0; s < CONV_SPLITS; s++) {
            wide_copy(p, part + ((int64_t)s * n + i), CONV_SIDE * (int)sizeof(float));
            UNROLL
            for (int e = 0; e < CONV_SIDE; e++)
                v[e] += p[e];
        }
        UNROLL
        for (int e = 0; e < CONV_SIDE; e++)
            CONV_STORE(dw, (i + e) % CONV_PAIRS * CONV_TAPS + i / CONV_PAIRS, v[e]);
    }
}
#else
/* Loads a slice's weights to shared memory, ordered by tap, channel of the group and channel that is made. */
FN void AT(weights)(float *to, const CONV_T *__restrict__ w, int first)
{
    for (int i = (int)threadIdx.x; i < CONV_TAPS * CONV_CHANNELS * CONV_SLICE; i += 256) {
        int made = first + i % CONV_SLICE, c = i / CONV_SLICE % CONV_CHANNELS;
        int tap = i / (CONV_SLICE * CONV_CHANNELS), channel = made / CONV_ROWS * CONV_CHANNELS + c;
        int pair = CONV_DATA ? channel * (int)P20 + made % CONV_ROWS : made * (int)P20 + c;
        to[i] = made < CONV_MADE ? CONV_LOAD(w, pair * CONV_TAPS + tap) : 0;
    }
    __syncthreads();
}

/* Adds to a strip what the taps from `first` on of row k of the window contribute. */
FN void AT(row)(const CONV_T *__restrict__ from, const float *taps, int made, int x, int k, int first,
                bool whole, float acc[CONV_STRIP][CONV_COPY])
{
    float w[CONV_ROW_TAPS][CONV_CHANNELS][CONV_COPY];
    UNROLL
    for (int t = 0; t < CONV_ROW_TAPS * CONV_CHANNELS; t++)
        UNROLL
        for (int e = 0; e < CONV_COPY; e++)
            if (first + t / CONV_CHANNELS < (int)P8)
                w[t / CONV_CHANNELS][t % CONV_CHANNELS][e] =
                    taps[((k * (int)P8 + first) * CONV_CHANNELS + t) * CONV_SLICE + e];
    UNROLL
    for (int i = 0; i < CONV_COLUMNS; i++) {
        int column = AT(column)(x, i, first);
        if (!AT(meets)(i) || (!whole && column < 0))
            continue;
        UNROLL
        for (int c = 0; c < CONV_CHANNELS; c++) {
            int channel = made / CONV_ROWS * CONV_CHANNELS + c;
            AT(Channels) v = *(const AT(Channels) *)(from + ((CONV_INDEX)column * CONV_ALL + channel));
            UNROLL
            for (int j = 0; j < CONV_STRIP; j++) {
                int t = AT(met)(i, j);
                if (t < 0 || first + t >= (int)P8)
                    continue;
                UNROLL
                for (int e = 0; e < CONV_COPY; e++)
                    acc[j][e] = fmaf(w[t][c][e], CONV_LOAD(v.v, e), acc[j][e]);
            }
        }
    }
}

FN void AT(direct)(const CONV_T *__restrict__ x, const CONV_T *__restrict__ w, const CONV_T *bias, CONV_Y *y,
                   unsigned char *shared)
{
    int lane = (int)threadIdx.x % CONV_LANES * CONV_COPY, slice = (int)blockIdx.x % CONV_SLICES * CONV_SLICE;
    int made = slice + lane, step = (int)gridDim.x / CONV_SLICES * CONV_SIDE_BY_SIDE;
    AT(weights)((float *)shared, w, slice);
    if (made >= CONV_MADE)
        return;
    ROLLED
    for (int at = (int)blockIdx.x / CONV_SLICES * CONV_SIDE_BY_SIDE + (int)threadIdx.x / CONV_LANES;
         at < CONV_ALL_STRIPS; at += step) {
        AT(Strip) s = AT(strip)(at);
        float acc[CONV_STRIP][CONV_COPY];
        UNROLL
        for (int i = 0; i < CONV_STRIP * CONV_COPY; i++)
            acc[i / CONV_COPY][i % CONV_COPY] = CONV_BIAS ? CONV_LOAD(bias, made + i % CONV_COPY) : 0;
        ROLLED
        for (int chunk = 0; chunk < (int)(P6 * P7) * CONV_ROW_CHUNKS; chunk++) {
            int k = chunk / CONV_ROW_CHUNKS, first = chunk % CONV_ROW_CHUNKS * CONV_ROW_TAPS;
            int line = AT(line)(&s, k);
            const CONV_T *from = x + (CONV_INDEX)line * CONV_FROM * CONV_ALL;
            const float *taps = (const float *)shared + lane;
            if (line >= 0 && AT(inside)(s.x, first))
                AT(row)(from, taps, made, s.x, k, first, true, acc);
            else if (line >= 0)
                AT(row)(from, taps, made, s.x, k, first, false, acc);
        }
        CONV_Y *to = y + ((CONV_INDEX)(at / CONV_STRIPS) * CONV_WIDTH + s.x) * CONV_MADE + made;
        UNROLL
        for (int j = 0; j < CONV_STRIP; j++) {
            struct __attribute__((aligned(sizeof(CONV_Y) * CONV_COPY))) {
                CONV_Y v[CONV_COPY];
            } out;
            UNROLL
            for (int e = 0; e < CONV_COPY; e++)
                CONV_STORE(out.v, e, acc[j][e]);
            if (s.x + j < CONV_WIDTH)
                wide_copy(to + j * CONV_MADE, &out, (int)sizeof out);
        }
    }
}
#endif
