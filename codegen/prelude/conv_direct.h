/* conv_direct.h -- convolutions of few channels a group (depthwise) for CUDA.
 *
 * Pasted behind conv.h.  A thread has CONV_COPY channels of a place, or of depthwise weights: CONV_LANES
 * threads have a slice of the channels, and the others of a block other places.  Weights: a block has a slice
 * and a part of the places, and sums CONV_SUMS taps at a time; a second phase adds the parts in order. */

#define CONV_ALL ((int)(CONV_DATA ? P19 : P18)) /* channels of what is read */
#define CONV_MADE ((int)(CONV_DATA ? P18 : P19))
#define CONV_PAIRS ((int)(P19 * P20))
#define CONV_SUMS (CONV_TAPS < 9 ? CONV_TAPS : 9)
#define CONV_SLICE (CONV_LANES * CONV_COPY) /* channels, or pairs of them */
#define CONV_SLICES ((CONV_MADE + CONV_SLICE - 1) / CONV_SLICE)
#define CONV_SIDE_BY_SIDE (256 / CONV_LANES) /* places of a block at a time */

typedef struct __attribute__((aligned(sizeof(CONV_T) * CONV_COPY))) {
    CONV_T v[CONV_COPY];
} AT(Channels);

/* Where a tap of place `at` reads along dimension d; -1: nothing. */
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

/* Of a place of what is made, the place in its image that a tap reads; -1: none. */
FN int AT(seen)(int place, int tap)
{
    const ConvWindow w = CONV_WINDOW;
    int h = (int)(CONV_DATA ? P1 : P4), r = (int)(CONV_DATA ? P2 : P5);
    int z = AT(read)(place / (h * r), 0, tap / (w.kernel[1] * w.kernel[2]));
    int y = AT(read)(place / r % h, 1, tap / w.kernel[2] % w.kernel[1]);
    int x = AT(read)(place % r, 2, tap % w.kernel[2]);
    int at = (z * (int)(CONV_DATA ? P4 : P1) + y) * (int)(CONV_DATA ? P5 : P2) + x;
    return z >= 0 && y >= 0 && x >= 0 ? at : -1;
}

#if CONV_KIND == 2
#define CONV_PAIR_SLICES ((CONV_PAIRS + CONV_SLICE - 1) / CONV_SLICE)

/* The sums of CONV_SUMS taps from `first` on of one pair, or CONV_COPY of them, over the places that are this
 * thread's. */
FN void AT(sums)(const CONV_T *__restrict__ x, const CONV_T *__restrict__ dy, int pair, int at, int end,
                 int first, float acc[CONV_SUMS][CONV_COPY])
{
    int m = pair / (int)P20, channel = m / (int)P21 * (int)P20 + pair % (int)P20;
    for (; at < end; at += CONV_SIDE_BY_SIDE) {
        int image = at / CONV_OUT_PLANE, place = at % CONV_OUT_PLANE;
        AT(Channels) g = *(const AT(Channels) *)(dy + ((CONV_INDEX)at * CONV_MADE + m));
        UNROLL
        for (int i = 0; i < CONV_SUMS; i++) {
            int from = first + i < CONV_TAPS ? AT(seen)(place, first + i) : -1;
            if (from < 0)
                continue;
            CONV_INDEX row = (CONV_INDEX)image * CONV_PLANE + from;
            AT(Channels) v = *(const AT(Channels) *)(x + (row * CONV_ALL + channel));
            UNROLL
            for (int e = 0; e < CONV_COPY; e++)
                acc[i][e] = fmaf(CONV_LOAD(g.v, e), CONV_LOAD(v.v, e), acc[i][e]);
        }
    }
}

FN void AT(partial)(const CONV_T *__restrict__ x, const CONV_T *__restrict__ dy, float *part,
                    unsigned char *shared)
{
    int lane = (int)threadIdx.x % CONV_LANES, split = (int)blockIdx.x / CONV_PAIR_SLICES;
    int pair = (int)blockIdx.x % CONV_PAIR_SLICES * CONV_SLICE + lane * CONV_COPY;
    int begin = split * CONV_CHUNK, all = AT(all_places)();
    int end = begin + CONV_CHUNK < all ? begin + CONV_CHUNK : all;
    for (int first = 0; first < CONV_TAPS; first += CONV_SUMS) {
        ALIGNED_16 float acc[CONV_SUMS][CONV_COPY];
        UNROLL
        for (int i = 0; i < CONV_SUMS * CONV_COPY; i++)
            acc[i / CONV_COPY][i % CONV_COPY] = 0;
        if (pair < CONV_PAIRS)
            AT(sums)(x, dy, pair, begin + (int)threadIdx.x / CONV_LANES, end, first, acc);
        UNROLL
        for (int i = 0; i < CONV_SUMS; i++) {
            column_sum_float(acc[i], (float *)shared, CONV_COPY, CONV_LANES);
            if ((int)threadIdx.x >= CONV_LANES || pair >= CONV_PAIRS || first + i >= CONV_TAPS)
                continue;
            float *to = part + (((int64_t)split * CONV_TAPS + first + i) * CONV_PAIRS + pair);
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
/* This slice's weights: by tap, channel of the group and channel that is made. */
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

FN void AT(direct)(const CONV_T *__restrict__ x, const CONV_T *__restrict__ w, const CONV_T *bias, CONV_Y *y,
                   unsigned char *shared)
{
    const float *taps = (const float *)shared;
    int lane = (int)threadIdx.x % CONV_LANES * CONV_COPY, first = (int)blockIdx.x % CONV_SLICES * CONV_SLICE;
    int made = first + lane, step = (int)gridDim.x / CONV_SLICES * CONV_SIDE_BY_SIDE;
    AT(weights)((float *)shared, w, first);
    if (made >= CONV_MADE)
        return;
    for (int at = (int)blockIdx.x / CONV_SLICES * CONV_SIDE_BY_SIDE + (int)threadIdx.x / CONV_LANES;
         at < (int)P22 * CONV_OUT_PLANE; at += step) {
        float acc[CONV_COPY];
        struct __attribute__((aligned(sizeof(CONV_Y) * CONV_COPY))) {
            CONV_Y v[CONV_COPY];
        } out;
        UNROLL
        for (int e = 0; e < CONV_COPY; e++)
            acc[e] = CONV_BIAS ? CONV_LOAD(bias, made + e) : 0;
        for (int tap = 0; tap < CONV_TAPS; tap++) {
            int from = AT(seen)(at % CONV_OUT_PLANE, tap);
            CONV_INDEX row = (CONV_INDEX)(at / CONV_OUT_PLANE) * CONV_PLANE + from;
            UNROLL
            for (int c = 0; c < CONV_CHANNELS && from >= 0; c++) {
                int channel = made / CONV_ROWS * CONV_CHANNELS + c;
                AT(Channels) v = *(const AT(Channels) *)(x + (row * CONV_ALL + channel));
                UNROLL
                for (int e = 0; e < CONV_COPY; e++)
                    acc[e] = fmaf(taps[(tap * CONV_CHANNELS + c) * CONV_SLICE + lane + e], CONV_LOAD(v.v, e),
                                  acc[e]);
            }
        }
        UNROLL
        for (int e = 0; e < CONV_COPY; e++)
            CONV_STORE(out.v, e, acc[e]);
        wide_copy(y + ((CONV_INDEX)at * CONV_MADE + made), &out, (int)sizeof out);
    }
}
#endif
