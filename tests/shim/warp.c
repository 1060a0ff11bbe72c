/* warp.c -- what the lanes of a warp do together.
 *
 * mma.sync as tensor cores do it, to the bit: exact products and the sum so far are aligned to the largest
 * exponent among them and cut to F bits behind it, added exactly, and the result is cut to f32.  An A100
 * adds 8 products at a time with F = 24, an H100 16 with F = 25 (Fasi et al., "Numerical behavior of NVIDIA
 * tensor cores", 2021, and others after them, on such devices). */
#include "warp.h"
#include <math.h>

enum { LANES = 32, NONE = -100000 /* exponent of 0 */ };

/* The number m * 2^(e - fraction bits): a factor of a product, or the sum so far. */
typedef struct {
    int32_t m;
    int e;
} Term;

static void shuffle(Lane *lane)
{
    for (int l = 0; l < LANES; l++)
        lane[l].out.value = lane[lane[l].in.shuffle.from].in.shuffle.value;
}

static void ldmatrix(Lane *lane, bool transposed, const unsigned char *shared, unsigned bytes)
{
    uint16_t m[4][8][8];
    for (int l = 0; l < LANES; l++) {
        uint32_t at = lane[l].in.address;
        if (at % 16 || at > bytes || at + 16 > bytes) {
            fiber_fault("ldmatrix of address %u of %u", at, bytes);
            return;
        }
        memcpy(m[l / 8][l % 8], shared + at, 16);
    }
    for (int l = 0; l < LANES; l++)
        for (int i = 0; i < 4; i++) {
            const int g = l / 4, t = l % 4 * 2;
            uint32_t low = transposed ? m[i][t][g] : m[i][g][t];
            uint32_t high = transposed ? m[i][t + 1][g] : m[i][g][t + 1];
            lane[l].out.r[i] = low | high << 16;
        }
}

/* ---- mma ---------------------------------------------------------------------------------------- */

typedef struct {
    int bits, bias; /* bits of the fraction, bias of the exponent */
} Format;
static const Format bf16 = {7, 127}, f16 = {10, 15}, f32 = {23, 127};

static Term decode(uint32_t x, Format f, int width, bool *special)
{
    int32_t m = (int32_t)(x & ((1u << f.bits) - 1)), top = 2 * f.bias + 1;
    int e = (int)(x >> f.bits) & top;
    *special |= e == top;
    if (e == 0 && m == 0)
        return (Term){0, NONE};
    m |= e ? 1 << f.bits : 0;
    return (Term){x >> (width - 1) ? -m : m, (e ? e : 1) - f.bias};
}

static float value_of(uint16_t x, Format f)
{
    bool special = false;
    Term t = decode(x, f, 16, &special);
    if (special)
        return x & ((1u << f.bits) - 1) ? NAN : t.m < 0 ? -INFINITY : INFINITY;
    return t.m ? ldexpf((float)t.m, t.e - f.bits) : 0;
}

/* p * 2^shift, without its fraction */
static int64_t cut(int64_t p, int shift)
{
    if (shift >= 0)
        return p * (INT64_C(1) << shift);
    if (shift < -62)
        return 0;
    return p < 0 ? -(-p >> -shift) : p >> -shift;
}

/* s * 2^e cut to f32 */
static float cut_to_f32(int64_t s, int e)
{
    uint64_t m = (uint64_t)(s < 0 ? -s : s);
    if (m == 0)
        return 0;
    int top = 63 - __builtin_clzll(m), drop = top - 23;
    if (e + top < -126)
        drop += -126 - (e + top);
    if (drop > 0)
        m = drop > 63 ? 0 : m >> drop << drop;
    double v = ldexp((double)m, e);
    return s < 0 ? -(float)v : (float)v;
}

static float add_products(float c, const Term *a, const Term *b, int n, Format f, int fraction)
{
    uint32_t bits;
    bool special = false;
    memcpy(&bits, &c, sizeof bits);
    Term sum = decode(bits, f32, 32, &special);
    int most = sum.e;
    if (special)
        return c;
    for (int i = 0; i < n; i++)
        if (a[i].m && b[i].m && a[i].e + b[i].e > most)
            most = a[i].e + b[i].e;
    if (most == NONE)
        return c;
    int64_t s = cut(sum.m, sum.e - most + fraction - f32.bits);
    for (int i = 0; i < n; i++)
        if (a[i].m && b[i].m)
            s += cut((int64_t)a[i].m * b[i].m, a[i].e + b[i].e - most + fraction - 2 * f.bits);
    return cut_to_f32(s, most - fraction);
}

static struct {
    Term a[16][16], b[256][16];
    const uint16_t (*raw_a)[16], (*raw_b)[16];
    Format f;
    bool special; /* a factor is infinite or NaN */
} tile;

void tile_set(const uint16_t (*a)[16], const uint16_t (*b)[16], int columns, bool half)
{
    tile.raw_a = a;
    tile.raw_b = b;
    tile.f = half ? f16 : bf16;
    tile.special = false;
    for (int k = 0; k < 16; k++) {
        for (int r = 0; r < 16; r++)
            tile.a[r][k] = decode(a[r][k], tile.f, 16, &tile.special);
        for (int c = 0; c < columns; c++)
            tile.b[c][k] = decode(b[c][k], tile.f, 16, &tile.special);
    }
}

static float special_sum(int row, int column, float c)
{
    double sum = c;
    for (int k = 0; k < 16; k++)
        sum += (double)value_of(tile.raw_a[row][k], tile.f) * value_of(tile.raw_b[column][k], tile.f);
    return (float)sum;
}

float tile_add(float c, int row, int column, int capability)
{
    const int step = capability >= 90 ? 16 : 8, fraction = capability >= 90 ? 25 : 24;
    if (tile.special)
        return special_sum(row, column, c);
    for (int k = 0; k < 16; k += step)
        c = add_products(c, tile.a[row] + k, tile.b[column] + k, step, tile.f, fraction);
    return c;
}

static void mma(Lane *lane, bool half, int capability)
{
    uint16_t a[16][16], b[8][16];
    for (int l = 0; l < LANES; l++) {
        const int g = l / 4, t = l % 4 * 2;
        for (int i = 0; i < 8; i++)
            a[g + 8 * (i >> 1 & 1)][t + (i & 1) + 8 * (i >> 2)] =
                (uint16_t)(lane[l].in.mma.a[i / 2] >> 16 * (i & 1));
        for (int i = 0; i < 4; i++)
            b[g][t + (i & 1) + 8 * (i >> 1)] = (uint16_t)(lane[l].in.mma.b[i / 2] >> 16 * (i & 1));
    }
    tile_set(a, b, 8, half);
    for (int l = 0; l < LANES; l++)
        for (int i = 0; i < 4; i++)
            lane[l].out.c[i] =
                tile_add(lane[l].in.mma.c[i], l / 4 + 8 * (i >> 1), l % 4 * 2 + (i & 1), capability);
}

void warp_run(Lane lane[32], const unsigned char *shared, unsigned shared_bytes, int capability)
{
    WarpOp op = lane->op;
    if (op == WARP_SHUFFLE)
        shuffle(lane);
    else if (op == WARP_LDMATRIX || op == WARP_LDMATRIX_TRANS)
        ldmatrix(lane, op == WARP_LDMATRIX_TRANS, shared, shared_bytes);
    else if (op != WARP_SYNC)
        mma(lane, op == WARP_MMA_F16, capability);
}
