/* conv.h -- the window of a convolution and the positions that its places and taps read, for CUDA.
 *
 * Pasted once per kernel behind the parameters of its window (ir/ops/conv.c) and CONV_KIND: 0 forward, 1
 * gradient of the data, 2 of the weights.  Data are channels-last: a place has its channels side by side, and
 * the places of all images follow one another.  For gradients of data with stride s, places of one residue
 * modulo s meet the same taps, so they are made residue by residue, as if the stride was 1.  Terms are pairs
 * of a tap and a channel: first the channels of a tap, then those of the next tap. */

#ifndef CONV_TYPES
#define CONV_TYPES
typedef struct {
    int in[3], out[3], kernel[3], stride[3], pad[3], dilation[3];
} ConvWindow;
/* The taps that places of a residue meet: per dimension their number, the first one, and the position that it
 * reads; count: their number in all. */
typedef struct {
    int n[3], first[3], at[3], count;
} ConvTaps;
typedef struct __attribute__((aligned(16))) {
    float v[4];
} ConvQuad;
#endif

#define CONV_WINDOW                                                                          \
    {{P0, P1, P2}, {P3, P4, P5}, {P6, P7, P8}, {P9, P10, P11}, {P12, P13, P14}, {P15, P16, P17}}
#define CONV_DATA (CONV_KIND == 1)
#define CONV_TAPS ((int)(P6 * P7 * P8))
#define CONV_GROUPS ((int)(P18 / P20))
/* The tensor that is gathered: places of an image, channels of a group, channels of all groups. */
#define CONV_PLANE ((int)(CONV_DATA ? P3 * P4 * P5 : P0 * P1 * P2))
#define CONV_CHANNELS ((int)(CONV_DATA ? P21 : P20))
#define CONV_LINE (CONV_GROUPS * CONV_CHANNELS)
/* The tensor that is made: places of an image, residues, tiles of rows, rows of all tiles. */
#define CONV_OUT_PLANE ((int)(CONV_DATA ? P0 * P1 * P2 : P3 * P4 * P5))
#define CONV_RESIDUES ((int)(CONV_DATA ? P9 * P10 * P11 : 1))
#define CONV_ROW_TILES ((CONV_ROWS + CONV_TM - 1) / CONV_TM)
#define CONV_ALL_ROWS (CONV_ROW_TILES * CONV_TM)

/* The position that a place reads, or the distance from it of a tap: by dimension, and in elements. */
typedef struct {
    int at[3];
    CONV_INDEX offset;
    bool inside;
} AT(Place);

/* ---- the window ------------------------------------------------------------------------- */

FN ConvTaps AT(taps)(int residue)
{
    const ConvWindow w = CONV_WINDOW;
    const int jump[3] = {CONV_JUMP};
    ConvTaps t = {{w.kernel[0], w.kernel[1], w.kernel[2]}, {0, 0, 0}, {0, 0, 0}, CONV_TAPS};
    if (!CONV_DATA)
        return t;
    t.count = 1;
    UNROLL
    for (int d = 2; d >= 0; d--) {
        int r = residue % w.stride[d] + w.pad[d], first = w.kernel[d];
        residue /= w.stride[d];
        for (int k = jump[d] - 1; k >= 0; k--)
            first = (r - k * w.dilation[d]) % w.stride[d] == 0 ? k : first;
        t.n[d] = first < w.kernel[d] ? (w.kernel[d] - first + jump[d] - 1) / jump[d] : 0;
        t.first[d] = first;
        t.at[d] = (r - first * w.dilation[d]) / w.stride[d];
        t.count *= t.n[d];
    }
    return t;
}

/* Along dimension d, the distance in places from the position of one tap to that of the next. */
FN int AT(advance)(int d)
{
    const ConvWindow w = CONV_WINDOW;
    const int jump[3] = {CONV_JUMP};
    return CONV_DATA ? -(jump[d] * w.dilation[d] / w.stride[d]) : w.dilation[d];
}

FN int AT(offset)(const int *at)
{
    const ConvWindow w = CONV_WINDOW;
    int h = CONV_DATA ? w.out[1] : w.in[1], x = CONV_DATA ? w.out[2] : w.in[2];
    return (at[0] * h + at[1]) * x + at[2];
}

/* Distance of one of the taps that places meet; not inside: there is no such tap. */
FN AT(Place) AT(tap)(const ConvTaps *t, int tap)
{
    AT(Place) p;
    p.inside = tap < t->count;
    p.at[2] = t->at[2] + tap % t->n[2] * AT(advance)(2);
    p.at[1] = t->at[1] + tap / t->n[2] % t->n[1] * AT(advance)(1);
    p.at[0] = t->at[0] + (P6 > 1 ? tap / (t->n[2] * t->n[1]) * AT(advance)(0) : 0);
    p.offset = AT(offset)(p.at) * CONV_LINE;
    return p;
}

/* The number of places of a residue: along a dimension, in one image, in all images. */
FN int AT(extent)(int d)
{
    const ConvWindow w = CONV_WINDOW;
    return CONV_DATA ? (w.in[d] + w.stride[d] - 1) / w.stride[d] : w.out[d];
}
FN int AT(places)(void) { return AT(extent)(0) * AT(extent)(1) * AT(extent)(2); }
FN int AT(all_places)(void) { return AT(places)() * (int)P22; }

/* The position from which the taps of place i are counted; not inside: i is not before `end`. */
FN AT(Place) AT(place)(int i, int end)
{
    const ConvWindow w = CONV_WINDOW;
    AT(Place) p;
    p.inside = i < end;
    int rest = i % AT(places)();
    UNROLL
    for (int d = 2; d >= 0; d--) {
        int at = rest % AT(extent)(d);
        p.at[d] = CONV_DATA ? at : at * w.stride[d] - w.pad[d];
        rest /= AT(extent)(d);
    }
    p.offset = ((CONV_INDEX)(i / AT(places)()) * CONV_PLANE + AT(offset)(p.at)) * CONV_LINE;
    return p;
}

/* Does the tap read inside the data at this place, rather than padding? */
FN bool AT(sees)(const AT(Place) * p, const AT(Place) * tap)
{
    const ConvWindow w = CONV_WINDOW;
    bool inside = p->inside && tap->inside;
    UNROLL
    for (int d = 0; d < 3; d++)
        inside &= (unsigned)(p->at[d] + tap->at[d]) < (unsigned)(CONV_DATA ? w.out[d] : w.in[d]);
    return inside;
}
