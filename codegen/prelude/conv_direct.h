/* conv_direct.h -- convolutions of few channels a group (depthwise) for CUDA: a thread per element.
 *
 * Pasted behind conv.h.  Weights: a block has one pair of channels and a part of the places, and sums
 * CONV_SUMS taps at a time; a second phase adds the parts in order. */

#define CONV_ALL ((int)(CONV_DATA ? P19 : P18)) /* channels of what is read */
#define CONV_MADE ((int)(CONV_DATA ? P18 : P19))
#define CONV_PAIRS ((int)(P19 * P20))
#define CONV_SUMS (CONV_TAPS < 32 ? CONV_TAPS : 32)

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

#if CONV_KIND == 2
FN void AT(partial)(const CONV_T *__restrict__ x, const CONV_T *__restrict__ dy, float *part,
                    unsigned char *shared)
{
    const ConvWindow w = CONV_WINDOW;
    int pair = (int)blockIdx.x % CONV_PAIRS, split = (int)blockIdx.x / CONV_PAIRS;
    int m = pair / (int)P20, channel = m / (int)P21 * (int)P20 + pair % (int)P20;
    int all = AT(all_places)(), begin = split * CONV_CHUNK;
    int end = begin + CONV_CHUNK < all ? begin + CONV_CHUNK : all;
    for (int first = 0; first < CONV_TAPS; first += CONV_SUMS) {
        float acc[CONV_SUMS];
        UNROLL
        for (int i = 0; i < CONV_SUMS; i++)
            acc[i] = 0;
        for (int at = begin + (int)threadIdx.x; at < end; at += 256) {
            int image = at / CONV_OUT_PLANE, place = at % CONV_OUT_PLANE;
            int oz = place / (w.out[1] * w.out[2]), oy = place / w.out[2] % w.out[1], ox = place % w.out[2];
            float g = CONV_LOAD(dy, (int64_t)(image * CONV_MADE + m) * CONV_OUT_PLANE + place);
            const CONV_T *plane = x + (int64_t)(image * CONV_ALL + channel) * CONV_PLANE;
            UNROLL
            for (int i = 0; i < CONV_SUMS; i++) {
                int tap = first + i;
                int z = AT(read)(oz, 0, tap / (w.kernel[1] * w.kernel[2]));
                int y = AT(read)(oy, 1, tap / w.kernel[2] % w.kernel[1]);
                int c = AT(read)(ox, 2, tap % w.kernel[2]);
                if (tap < CONV_TAPS && z >= 0 && y >= 0 && c >= 0)
                    acc[i] = fmaf(g, CONV_LOAD(plane, (z * w.in[1] + y) * w.in[2] + c), acc[i]);
            }
        }
        UNROLL
        for (int i = 0; i < CONV_SUMS; i++) {
            float v = row_sum_float(acc[i], (float *)shared, 256);
            if (threadIdx.x == 0 && first + i < CONV_TAPS)
                part[(int64_t)(split * CONV_PAIRS + pair) * CONV_TAPS + first + i] = v;
        }
    }
}

FN void AT(sum)(const float *__restrict__ part, CONV_Y *dw)
{
    int n = CONV_PAIRS * CONV_TAPS;
    for (int i = (int)(blockIdx.x * 256 + threadIdx.x); i < n; i += (int)gridDim.x * 256) {
        float v = 0;
        for (int s = 0; s < CONV_SPLITS; s++)
            v += part[(int64_t)s * n + i];
        CONV_STORE(dw, i, v);
    }
}
#else
FN void AT(direct)(const CONV_T *__restrict__ x, const CONV_T *__restrict__ w, const CONV_T *bias, CONV_Y *y)
{
    const ConvWindow win = CONV_WINDOW;
    int64_t n = P22 * CONV_MADE * CONV_OUT_PLANE;
    for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < n; i += (int64_t)gridDim.x * 256) {
        int place = (int)(i % CONV_OUT_PLANE), made = (int)(i / CONV_OUT_PLANE) % CONV_MADE;
        int h = (int)(CONV_DATA ? P1 : P4), r = (int)(CONV_DATA ? P2 : P5), group = made / CONV_ROWS;
        float acc = CONV_BIAS ? CONV_LOAD(bias, made) : 0;
        UNROLL
        for (int c = 0; c < CONV_CHANNELS; c++) {
            int channel = group * CONV_CHANNELS + c, out = CONV_DATA ? channel : made;
            const CONV_T *plane = x + (i / CONV_OUT_PLANE / CONV_MADE * CONV_ALL + channel) * CONV_PLANE;
            const CONV_T *taps = w + (out * (int)P20 + (CONV_DATA ? made % CONV_ROWS : c)) * CONV_TAPS;
            UNROLL
            for (int tap = 0; tap < CONV_TAPS; tap++) {
                int kx = tap % win.kernel[2], ky = tap / win.kernel[2] % win.kernel[1];
                int at_z = AT(read)(place / (h * r), 0, tap / (win.kernel[1] * win.kernel[2]));
                int at_y = AT(read)(place / r % h, 1, ky), at_x = AT(read)(place % r, 2, kx);
                int at = (at_z * (int)(CONV_DATA ? P4 : P1) + at_y) * (int)(CONV_DATA ? P5 : P2) + at_x;
                if (at_z >= 0 && at_y >= 0 && at_x >= 0)
                    acc = fmaf(CONV_LOAD(taps, tap), CONV_LOAD(plane, at), acc);
            }
        }
        CONV_STORE(y, i, acc);
    }
}
#endif
