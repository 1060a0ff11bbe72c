/* sample.c -- grid_sample: images read between their pixels at positions that are data, and its gradients.
 *
 * Data is channels-last: what there is to know of a position is computed once for a row of channels.  A value
 * is a weighted sum over taps, 1, 2 or 4 along each dimension.  No index and no weight is stored: the
 * gradients compute them again.
 *
 * grid_sample_bwd_data adds without atomics: an item owns some rows of an image and some of its channels, and
 * looks for them among all positions, in their order, so that the bits do not depend on who owns what. */
#include "sample.h"

/* p: 0.. extents, right-aligned in three dimensions, 3.. taps along them, 6 dimensions, 7 what is outside,
 * 8 corners, 9 channels, 10 channels of an item, 11 positions of an image, 12 items along the channels;
 * grid_sample_bwd_data: 13 parts of an image, 14 rows of a part.  q: pixel coordinates are
 * (grid + q[3]) * q[d] + q[4], as PyTorch rounds them: positions in the middle of pixels, which are many,
 * have its gradients.
 *
 * The texts are macros for their common parts, made strings before kernel_math.h says what they mean.
 *
 * SAMPLE_AXIS: coordinate x of position `point` along dimension d, its slope s by the grid, and the whole
 * coordinate below it, near, as far as it matters. */
/* clang-format off */
#define SAMPLE_AXIS                                                                                          \
    const int64_t n = p[d], taps = p[3 + d];                                                                 \
    const int there = d >= 3 - p[6];                                                                         \
    const REAL end = R(n - 1);                                                                               \
    REAL s = q[d];                                                                                           \
    REAL x = there ? (F(1, point * p[6] + 2 - d) + q[3]) * s + q[4] : R(0);                                  \
    if (p[7] == 2 && there) {                                                                                \
        const REAL edge = p[8] ? R(0) : R(-0.5), span = end - 2 * edge, away = FABS(x - edge);               \
        const int odd = FMOD(FLOOR(away / span), R(2)) == R(1), before = x < edge;                           \
        const REAL rest = FMOD(away, span);                                                                  \
        x = span > 0 ? edge + (odd ? span - rest : rest) : R(0);                                             \
        s = odd != before ? -s : s;                                                                          \
    }                                                                                                        \
    if (p[7] != 0 && p[5] != 4) {                                                                            \
        s = x > 0 && x < end ? s : R(0);                                                                     \
        x = x < 0 ? R(0) : x > end ? end : x;                                                                \
    }                                                                                                        \
    x = taps == 1 ? RINT(x) : x;                                                                             \
    const REAL base = FLOOR(x);                                                                              \
    const int64_t near = INT_OF(!(base >= -4) ? R(-4) : base > end + 4 ? end + 4 : base);

/* SAMPLE_POINT: taps of position `point` along each dimension: at, -1: outside; weight; slope, the weight's
 * derivative by the grid.  hits 0: no tap of the first dimension is in rows [low, high). */
#define SAMPLE_POINT                                                                                         \
    int64_t at[12];                                                                                          \
    REAL weight[12];                                                                                         \
    REAL slope[12];                                                                                          \
    int64_t hits = 1;                                                                                        \
    (void)slope;                                                                                             \
    for (int64_t d = 0; d < 3 && hits; d++) {                                                                \
        SAMPLE_AXIS                                                                                          \
        const REAL past = x - base;                                                                          \
        const int rows = d == 3 - p[6];                                                                      \
        hits = 0;                                                                                            \
        for (int64_t k = 0; k < taps; k++) {                                                                 \
            int64_t j = near - (taps == 4) + k;                                                              \
            if (p[7] == 1)                                                                                   \
                j = FMAX(0, FMIN(j, n - 1));                                                                 \
            if (p[7] == 2) {                                                                                 \
                const int64_t turn = FMAX(1, 2 * n - 2 * p[8]);                                              \
                j = MOD(j, turn);                                                                            \
                j = FMIN(j, turn - !p[8] - j);                                                               \
            }                                                                                                \
            const int mine = j >= (rows ? low : 0) && j < (rows ? high : n), inner = k == 1 || k == 2;       \
            const REAL r = FABS(past + 1 - k);                                                               \
            hits += mine;                                                                                    \
            at[4 * d + k] = mine ? j : -1;                                                                   \
            weight[4 * d + k] = taps == 1 ? R(1)                                                             \
                              : taps == 2 ? (k ? past : 1 - past)                                            \
                              : inner     ? (R(1.25) * r - R(2.25)) * r * r + 1                              \
                                          : ((R(3.75) - R(0.75) * r) * r - 6) * r + 3;                       \
            const REAL steep = taps == 1 ? R(0)                                                              \
                             : taps == 2 ? R(-1)                                                             \
                             : inner     ? (R(3.75) * r - R(4.5)) * r                                        \
                                         : (R(7.5) - R(2.25) * r) * r - 6;                                   \
            slope[4 * d + k] = k < taps - taps / 2 ? s * steep : -s * steep;                                 \
        }                                                                                                    \
    }

/* SAMPLE_TAP, in a loop over all taps k: continues if tap k is outside; else sets a, b, c, its indices in at,
 * and its pixel. */
#define SAMPLE_TAP                                                                                           \
    const int64_t a = k / (p[4] * p[5]), b = 4 + k / p[5] % p[4], c = 8 + k % p[5];                          \
    if (at[a] < 0 || at[b] < 0 || at[c] < 0)                                                                 \
        continue;                                                                                            \
    const int64_t pixel = (at[a] * p[1] + at[b]) * p[2] + at[c];

#define SAMPLE_SIZES                                                                                         \
    const int64_t size = p[0] * p[1] * p[2], every = p[3] * p[4] * p[5], rows_all = p[3 - p[6]];             \
    const int64_t channels = p[9], first = i % p[12] * p[10], count = FMIN(p[10], channels - first);         \
    (void)count;

#define SAMPLE                                                                                               \
    SAMPLE_SIZES                                                                                             \
    const int64_t point = i / p[12], image = point / p[11] * size, low = 0, high = rows_all;                 \
    REAL sum[32];                                                                                            \
    for (int64_t e = 0; e < count; e++)                                                                      \
        sum[e] = 0;                                                                                          \
    SAMPLE_POINT                                                                                             \
    UNROLLED for (int64_t k = 0; k < every && hits; k++) {                                                   \
        SAMPLE_TAP                                                                                           \
        const REAL w = weight[a] * weight[b] * weight[c];                                                    \
        for (int64_t e = 0; e < count; e++)                                                                  \
            sum[e] += w * F(0, (image + pixel) * channels + first + e);                                      \
    }                                                                                                        \
    for (int64_t e = 0; e < count; e++)                                                                      \
        SETF(2, point * channels + first + e, sum[e]);

/* Takes 32 positions at a time, and first finds those that may have taps in the item's rows. */
#define SAMPLE_BWD_DATA                                                                                      \
    SAMPLE_SIZES                                                                                             \
    const int64_t low = i / p[12] % p[13] * p[14], high = FMIN(rows_all, low + p[14]);                       \
    const int64_t image = i / p[12] / p[13], row = size / rows_all, points = image * p[11];                  \
    for (int64_t j = low * row; j < high * row; j++)                                                         \
        for (int64_t e = 0; e < count; e++)                                                                  \
            SETF(2, (image * size + j) * channels + first + e, 0);                                           \
    for (int64_t from = 0; from < p[11]; from += 32) {                                                       \
        uint32_t found = 0;                                                                                  \
        EACH_LANE(l) {                                                                                       \
            const int64_t d = 3 - p[6], point = points + FMIN(from + l, p[11] - 1);                          \
            SAMPLE_AXIS                                                                                      \
            const int64_t inside = p[7] ? FMAX(0, FMIN(near, n - 1)) : near, before = taps == 4 ? 2 : 0;     \
            const int mine = inside + (taps == 4 ? 3 : taps - 1) >= low && inside - before < high;           \
            found |= (uint32_t)((mine || p[13] == 1) && from + l < p[11]) << l;                              \
            (void)s;                                                                                         \
        }                                                                                                    \
        found = JOIN_LANES(found);                                                                           \
        for (int64_t l = 0; l < 32 && found >> l; l++) {                                                     \
            if (!(found >> l & 1))                                                                           \
                continue;                                                                                    \
            const int64_t point = points + from + l;                                                         \
            SAMPLE_POINT                                                                                     \
            UNROLLED for (int64_t k = 0; k < every && hits; k++) {                                           \
                SAMPLE_TAP                                                                                   \
                const REAL w = weight[a] * weight[b] * weight[c];                                            \
                const int64_t to = (image * size + pixel) * channels + first;                                \
                for (int64_t e = 0; e < count; e++)                                                          \
                    SETF(2, to + e, F(2, to + e) + w * F(0, point * channels + first + e));                  \
            }                                                                                                \
        }                                                                                                    \
    }

#define SAMPLE_BWD_GRID                                                                                      \
    SAMPLE_SIZES                                                                                             \
    const int64_t point = i, low = 0, high = rows_all, image = point / p[11] * size;                         \
    REAL sum[3];                                                                                             \
    for (int64_t d = 0; d < 3; d++)                                                                          \
        sum[d] = 0;                                                                                          \
    SAMPLE_POINT                                                                                             \
    for (int64_t k = 0; k < every && hits; k++) {                                                            \
        SAMPLE_TAP                                                                                           \
        const int64_t of = point * channels, at_pixel = (image + pixel) * channels;                          \
        REAL lane[16];                                                                                       \
        for (int64_t e = 0; e < 16; e++)                                                                     \
            lane[e] = 0;                                                                                     \
        for (int64_t from = 0; from < channels; from += 16)                                                  \
            for (int64_t e = 0; e < FMIN(16, channels - from); e++)                                          \
                lane[e] += F(0, of + from + e) * F(2, at_pixel + from + e);                                  \
        for (int64_t half = 8; half > 0; half /= 2)                                                          \
            for (int64_t e = 0; e < half; e++)                                                               \
                lane[e] += lane[e + half];                                                                   \
        sum[0] += lane[0] * (slope[a] * weight[b] * weight[c]);                                              \
        sum[1] += lane[0] * (weight[a] * slope[b] * weight[c]);                                              \
        sum[2] += lane[0] * (weight[a] * weight[b] * slope[c]);                                              \
    }                                                                                                        \
    for (int64_t d = 3 - p[6]; d < 3; d++)                                                                   \
        SETF(3, point * p[6] + 2 - d, sum[d]);

static const char sample_text[] = KERNEL_HEAD_TEXT({ SAMPLE });
static const char sample_bwd_data_text[] = KERNEL_HEAD_TEXT({ SAMPLE_BWD_DATA });
static const char sample_bwd_grid_text[] = KERNEL_HEAD_TEXT({ SAMPLE_BWD_GRID });

#include "../kernel_math.h"

static void sample_ref(int64_t i, const int64_t *p, const double *q, Tensor *t) { SAMPLE }
static void sample_bwd_data_ref(int64_t i, const int64_t *p, const double *q, Tensor *t) { SAMPLE_BWD_DATA }
static void sample_bwd_grid_ref(int64_t i, const int64_t *p, const double *q, Tensor *t) { SAMPLE_BWD_GRID }
/* clang-format on */

static const Body sample_body = {"grid_sample", sample_text, sample_ref};
static const Body sample_bwd_data_body = {"grid_sample_bwd_data", sample_bwd_data_text, sample_bwd_data_ref};
static const Body sample_bwd_grid_body = {"grid_sample_bwd_grid", sample_bwd_grid_text, sample_bwd_grid_ref};

/* ---- types ------------------------------------------------------------------------------ */

static const AttrDef sample_attrs[] = {
    ATTR(GridSampleAttrs, mode, AT_I64, SAMPLE_LINEAR), ATTR(GridSampleAttrs, outside, AT_I64, OUTSIDE_ZERO),
    ATTR(GridSampleAttrs, corners, AT_I64, 0), ATTR(GridSampleAttrs, pixels, AT_I64, 0),
    ATTR(GridSampleAttrs, shape, AT_INTS, 0)};

/* The type of a result for x. */
static bool result_type(const Graph *g, const Node *n, const Type *x, Type *y, Diag *d)
{
    const GridSampleAttrs *at = n->attr;
    const Type *grid = in_type(g, n, 1);
    int sp = x->rank - 2;
    if (at->mode < SAMPLE_LINEAR || at->mode > SAMPLE_CUBIC || at->outside < OUTSIDE_ZERO ||
        at->outside > OUTSIDE_REFLECTED)
        return fail(d, "%s: unknown mode", node_def(n)->name);
    if (sp < 1 || sp > SAMPLE_DIMS)
        return fail(d, "%s: %d spatial dimensions, 1 to 3 are known", node_def(n)->name, sp);
    if (!dtype_is_float(x->dt) || !dtype_is_float(grid->dt) || grid->rank < 2 || grid->dim[0] != x->dim[0] ||
        grid->dim[grid->rank - 1] != sp)
        return fail(d, "%s: the grid does not fit the data", node_def(n)->name);
    *y = type_with(*grid, x->dt);
    y->dim[y->rank - 1] = x->dim[x->rank - 1];
    bool pixels = dims_product(x, 1, x->rank - 1) > 0;
    return pixels || type_count(y) == 0 || fail(d, "%s: the images have no pixels", node_def(n)->name);
}

static bool sample_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    return result_type(g, n, in_type(g, n, 0), out, d);
}

static bool sample_bwd_data_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    Type y;
    TRY(shape_type(n, in_type(g, n, 0)->dt, &((const GridSampleAttrs *)n->attr)->shape, out, d));
    TRY(result_type(g, n, out, &y, d) && operand_is(g, n, 0, &y, d));
    out->dt = dtype_sum(out->dt);
    return true;
}

static bool sample_bwd_grid_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    Type y;
    TRY(result_type(g, n, in_type(g, n, 2), &y, d) && operand_is(g, n, 0, &y, d));
    *out = type_with(*in_type(g, n, 1), dtype_sum(in_type(g, n, 1)->dt));
    return true;
}

/* ---- lowering --------------------------------------------------------------------------- */

/* Sets the parameters for images x. */
static void setup(Kernel *k, const Graph *g, const Node *n, const Type *x)
{
    const GridSampleAttrs *at = n->attr;
    const Type *grid = in_type(g, n, 1);
    int sp = x->rank - 2, taps = sample_taps(at);
    double points = (double)dims_product(grid, 0, grid->rank - 1), every = 1;
    for (int d = 0; d < 3; d++) {
        int of = d - (3 - sp) + 1;
        k->p[d] = of > 0 ? x->dim[of] : 1;
        k->p[3 + d] = of > 0 ? taps : 1;
        every *= (double)k->p[3 + d];
        if (of > 0)
            k->q[d] = sample_scale(at, k->p[d]);
    }
    k->q[3] = sample_shift(at);
    k->q[4] = sample_offset(at);
    int64_t channels = x->dim[x->rank - 1];
    int64_t rest[] = {sp, at->outside, at->corners != 0, channels, CHUNK,
                      dims_product(grid, 1, grid->rank - 1), channels ? chunks_of(channels) : 1};
    memcpy(k->p + 6, rest, sizeof rest);
    k->np = 13;
    k->flops = points * every * (double)channels * 2;
}

static bool sample_lower(Kernel *k, const Graph *g, const Node *n)
{
    const Type *y = out_type(g, n, 0);
    setup(k, g, n, in_type(g, n, 0));
    k_body(k, &sample_body, dims_product(y, 0, y->rank - 1) * chunks_of(y->dim[y->rank - 1]));
    return true;
}

static bool sample_bwd_data_lower(Kernel *k, const Graph *g, const Node *n)
{
    enum { ITEMS = 64, PARTS = 8 }; /* enough items for all threads; most parts, which see all positions */
    const Type *x = out_type(g, n, 0);
    int64_t rows = x->dim[1], parts = 1;
    int64_t planes = type_count(x) ? x->dim[0] * chunks_of(x->dim[x->rank - 1]) : 0;
    setup(k, g, n, x);
    while (parts < PARTS && planes * parts < ITEMS && rows >= 4 * parts)
        parts *= 2;
    k_param(k, parts);
    k_param(k, ceil_div(rows, parts));
    k_body(k, &sample_bwd_data_body, planes * parts);
    return true;
}

static bool sample_bwd_grid_lower(Kernel *k, const Graph *g, const Node *n)
{
    const Type *grid = in_type(g, n, 1);
    setup(k, g, n, in_type(g, n, 2));
    k_body(k, &sample_bwd_grid_body, dims_product(grid, 0, grid->rank - 1));
    return true;
}

static bool sample_grad(Grad *gr, const Node *n)
{
    GridSampleAttrs at = *(const GridSampleAttrs *)n->attr;
    Val in[] = {grad_out(gr, n, 0), n->in[1], n->in[0]};
    at.shape = ints_of(val_type(gr->g, n->in[0]));
    if (grad_wants(gr, n, 0))
        grad_add(gr, n->in[0], build(gr->g, OP_grid_sample_bwd_data, NULL, 2, in, &at));
    if (grad_wants(gr, n, 1) && at.mode != SAMPLE_NEAREST)
        grad_add(gr, n->in[1], build(gr->g, OP_grid_sample_bwd_grid, NULL, 3, in, &at));
    return true;
}

#define SAMPLE_OP(suffix, n, grad_fn)                                                                        \
    const OpDef op_grid_##suffix = {.name = "grid_" #suffix, .min_in = n, .max_in = n, .nout = 1,            \
                                    .in = IN_SINGLE, ATTRS(sample_attrs, GridSampleAttrs),                   \
                                    .infer = suffix##_infer, .grad = grad_fn, .lower = suffix##_lower,       \
                                    .onnx = suffix##_onnx}
SAMPLE_OP(sample, 2, sample_grad);
SAMPLE_OP(sample_bwd_data, 2, NULL);
SAMPLE_OP(sample_bwd_grid, 3, NULL);
