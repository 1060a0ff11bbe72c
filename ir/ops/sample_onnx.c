/* sample_onnx.c -- grid_sample as ONNX's GridSample; its gradients, which ONNX does not have, tap by tap of
 * standard operators: what sample.c computes position by position. */
#include "sample.h"

typedef struct {
    OnnxNodes *o;
    const GridSampleAttrs *at;
    DType dt; /* type of arithmetic */
    int sp;   /* spatial dimensions */
    int64_t images, points, pixels, channels;
    const int64_t *extent;
    OnnxVal grid; /* [images, points, sp] */
} Sample;

/* A tap of every position; the values are [images, points, 1]. */
typedef struct {
    OnnxVal index;         /* inside the extent */
    OnnxVal weight, slope; /* slope: derivative of weight by the grid; both 0 where it is outside */
} Tap;

static Sample sample_of(OnnxNodes *o, const Node *n, const Type *x, const Type *grid)
{
    Sample s = {.o = o,
                .at = n->attr,
                .dt = DT_F32,
                .sp = x->rank - 2,
                .images = x->dim[0],
                .points = dims_product(grid, 1, grid->rank - 1),
                .pixels = dims_product(x, 1, x->rank - 1),
                .channels = x->dim[x->rank - 1],
                .extent = x->dim + 1};
    for (int i = 0; i < n->nin; i++)
        s.dt = onnx_type(o, onnx_in(o, i)) == DT_F64 ? DT_F64 : s.dt;
    s.grid = onnx_reshape(o, onnx_cast(o, onnx_in(o, 1), s.dt), 3, (int64_t[]){s.images, s.points, s.sp});
    return s;
}

static OnnxVal num(const Sample *s, double v) { return onnx_scalar(s->o, s->dt, v); }
static OnnxVal whole(const Sample *s, int64_t v) { return onnx_scalar(s->o, DT_I64, (double)v); }
static OnnxVal op1(const Sample *s, const char *op, OnnxVal a) { return onnx_op1(s->o, op, a); }
static OnnxVal op2(const Sample *s, const char *op, OnnxVal a, OnnxVal b) { return onnx_op2(s->o, op, a, b); }
static OnnxVal with(const Sample *s, const char *op, OnnxVal a, double v) { return op2(s, op, a, num(s, v)); }

static OnnxVal holds(const Sample *s, const char *op, OnnxVal a, OnnxVal b)
{
    return onnx_op(s->o, op, DT_BOOL, 2, (OnnxVal[]){a, b});
}

static OnnxVal pick(const Sample *s, OnnxVal which, OnnxVal a, OnnxVal b)
{
    return onnx_op(s->o, "Where", onnx_type(s->o, a), 3, (OnnxVal[]){which, a, b});
}

/* Coordinate x along extent n, and its slope by the grid, with reflection. */
static OnnxVal reflected(const Sample *s, int64_t n, OnnxVal x, OnnxVal *slope)
{
    double edge = s->at->corners ? 0 : -0.5, span = (double)n - 1 - 2 * edge;
    if (span == 0)
        return with(s, "Mul", x, 0);
    OnnxVal away = op1(s, "Abs", with(s, "Sub", x, edge));
    OnnxVal turns = op1(s, "Floor", with(s, "Div", away, span));
    OnnxVal odd = with(s, "Mod", turns, 2), rest;
    onnx_attr(s->o, "fmod", 1);
    odd = holds(s, "Equal", odd, num(s, 1));
    rest = with(s, "Mod", away, span);
    onnx_attr(s->o, "fmod", 1);
    OnnxVal back = onnx_op(s->o, "Xor", DT_BOOL, 2,
                           (OnnxVal[]){odd, holds(s, "Less", x, num(s, edge))});
    *slope = pick(s, back, op1(s, "Neg", *slope), *slope);
    return with(s, "Add", pick(s, odd, op2(s, "Sub", num(s, span), rest), rest), edge);
}

/* Taps of the cubic: weight at distance r, or its derivative. */
static OnnxVal cubic(const Sample *s, OnnxVal r, bool inner, bool derivative)
{
    static const double c[2][4] = {{3, -6, 3.75, -0.75}, {1, 0, -2.25, 1.25}};
    OnnxVal y = num(s, c[inner][3] * (derivative ? 3 : 1));
    for (int i = 3; i-- > derivative;)
        y = with(s, "Add", op2(s, "Mul", y, r), c[inner][i] * (derivative ? i : 1));
    return y;
}

static void weigh(const Sample *s, Tap *tap, int taps, int k, OnnxVal t, OnnxVal slope)
{
    OnnxVal r = k < taps - taps / 2 ? with(s, "Add", t, taps / 2 - 1 - k)
                                    : op2(s, "Sub", num(s, k - taps / 2 + 1), t);
    slope = k < taps - taps / 2 ? slope : op1(s, "Neg", slope);
    if (taps == 1) {
        tap->weight = with(s, "Add", with(s, "Mul", t, 0), 1);
        tap->slope = with(s, "Mul", t, 0);
    } else if (taps == 2) {
        tap->weight = op2(s, "Sub", num(s, 1), r);
        tap->slope = op1(s, "Neg", slope);
    } else {
        bool inner = k == 1 || k == 2;
        tap->weight = cubic(s, r, inner, false);
        tap->slope = op2(s, "Mul", slope, cubic(s, r, inner, true));
    }
}

/* Sets the index of a tap from coordinate j along extent n, and what it is where j is outside. */
static void place(const Sample *s, Tap *tap, int64_t n, OnnxVal j)
{
    OnnxVal inside = op2(s, "Max", op2(s, "Min", j, whole(s, n - 1)), whole(s, 0));
    if (s->at->outside == OUTSIDE_REFLECTED) {
        int64_t turn = 2 * n - (s->at->corners ? 2 : 0);
        inside = op2(s, "Mod", j, whole(s, turn > 0 ? turn : 1));
        inside = op2(s, "Min", inside, op2(s, "Sub", whole(s, turn - !s->at->corners), inside));
        inside = turn > 0 ? inside : op2(s, "Mul", j, whole(s, 0));
    } else if (s->at->outside == OUTSIDE_ZERO) {
        OnnxVal hit = holds(s, "Equal", inside, j);
        tap->weight = pick(s, hit, tap->weight, num(s, 0));
        tap->slope = pick(s, hit, tap->slope, num(s, 0));
    }
    tap->index = inside;
}

static void find_taps(const Sample *s, int d, Tap *tap)
{
    int64_t n = s->extent[d];
    double scale = sample_scale(s->at, n), end = (double)n - 1;
    int taps = sample_taps(s->at);
    OnnxVal x = onnx_slice(s->o, s->grid, 2, s->sp - 1 - d, s->sp - d, 1), slope = num(s, scale);
    x = with(s, "Mul", with(s, "Add", x, sample_shift(s->at)), scale);
    x = with(s, "Add", x, sample_offset(s->at));
    if (s->at->outside == OUTSIDE_REFLECTED)
        x = reflected(s, n, x, &slope);
    if (s->at->outside != OUTSIDE_ZERO && taps != SAMPLE_TAPS) {
        OnnxVal in[] = {holds(s, "Greater", x, num(s, 0)), holds(s, "Less", x, num(s, end))};
        slope = pick(s, onnx_op(s->o, "And", DT_BOOL, 2, in), slope, num(s, 0));
        x = with(s, "Min", with(s, "Max", x, 0), end);
    }
    x = taps == 1 ? op1(s, "Round", x) : x;
    OnnxVal base = op1(s, "Floor", x), t = op2(s, "Sub", x, base);
    base = pick(s, holds(s, "GreaterOrEqual", base, num(s, -4)), base, num(s, -4)); /* NaN, too */
    OnnxVal from = onnx_cast(s->o, with(s, "Min", base, end + 4), DT_I64);
    for (int k = 0; k < taps; k++) {
        weigh(s, &tap[k], taps, k, t, slope);
        place(s, &tap[k], n, op2(s, "Add", from, whole(s, k - (taps == SAMPLE_TAPS))));
    }
}

/* The pixel's index of tap k of all; weight_of() is the product of its weights, along dimension `by` of its
 * slope. */
static OnnxVal pixel_of(const Sample *s, Tap tap[][SAMPLE_TAPS], int k)
{
    OnnxVal index = {0};
    for (int d = 0; d < s->sp; d++, k /= sample_taps(s->at)) {
        OnnxVal i = tap[d][k % sample_taps(s->at)].index;
        index = d ? op2(s, "Add", op2(s, "Mul", index, whole(s, s->extent[d])), i) : i;
    }
    return index;
}

static OnnxVal weight_of(const Sample *s, Tap tap[][SAMPLE_TAPS], int k, int by)
{
    OnnxVal w = {0};
    for (int d = 0; d < s->sp; d++, k /= sample_taps(s->at)) {
        const Tap *of = &tap[d][k % sample_taps(s->at)];
        w = d ? op2(s, "Mul", w, d == by ? of->slope : of->weight) : d == by ? of->slope : of->weight;
    }
    return w;
}

static int all_taps(const Sample *s, Tap tap[][SAMPLE_TAPS])
{
    int all = 1;
    for (int d = 0; d < s->sp; d++, all *= sample_taps(s->at))
        find_taps(s, d, tap[d]);
    return all;
}

/* ---- the operators ---------------------------------------------------------------------- */

/* Moves channels in front of the spatial dimensions, or (last) behind them again. */
static OnnxVal moved(OnnxNodes *o, OnnxVal v, int rank, bool last)
{
    int perm[MAX_RANK] = {0};
    for (int i = 1; i < rank; i++)
        perm[i] = last ? i % (rank - 1) + 1 : i == 1 ? rank - 1 : i - 1;
    return onnx_transpose(o, v, rank, perm);
}

/* Do -1 and 1 mean centres of pixels?  For pixel coordinates only if positions are reflected at these: then
 * an extent of 1 has only one position. */
static bool has_corners(const GridSampleAttrs *at)
{
    return at->corners && (!at->pixels || at->outside == OUTSIDE_REFLECTED);
}

/* Converts pixel coordinates to ones from -1 to 1. */
static OnnxVal normalized(const Sample *s, OnnxVal grid)
{
    GridSampleAttrs at = {.corners = has_corners(s->at)};
    double factor[SAMPLE_DIMS], shift[SAMPLE_DIMS];
    for (int d = 0; d < s->sp; d++) {
        double scale = sample_scale(&at, s->extent[d]);
        factor[s->sp - 1 - d] = scale != 0 ? 1 / scale : 0;
        shift[s->sp - 1 - d] = (scale != 0 ? -sample_offset(&at) / scale : 0) - sample_shift(&at);
    }
    Type t = type_make(DT_F64, 1, (int64_t[]){s->sp});
    OnnxVal by = onnx_cast(s->o, onnx_table(s->o, &(Tensor){t, factor}), s->dt);
    OnnxVal from = onnx_cast(s->o, onnx_table(s->o, &(Tensor){t, shift}), s->dt);
    return op2(s, "Add", op2(s, "Mul", grid, by), from);
}

bool sample_onnx(OnnxNodes *o, const Graph *g, const Node *n)
{
    static const char *const mode[] = {"linear", "nearest", "cubic"};
    static const char *const outside[] = {"zeros", "border", "reflection"};
    const Type *x = in_type(g, n, 0), *y = out_type(g, n, 0);
    Sample s = sample_of(o, n, x, in_type(g, n, 1));
    int64_t dim[MAX_RANK] = {s.images};
    for (int d = 0; d < s.sp; d++)
        dim[1 + d] = d < s.sp - 1 ? 1 : s.points;
    dim[s.sp + 1] = s.sp;
    OnnxVal grid = onnx_reshape(o, s.at->pixels ? normalized(&s, s.grid) : s.grid, x->rank, dim);
    OnnxVal v = onnx_cast(o, onnx_in(o, 0), s.dt);
    v = onnx_op2(o, "GridSample", moved(o, v, x->rank, false), grid);
    onnx_attr_text(o, "mode", mode[s.at->mode]);
    onnx_attr_text(o, "padding_mode", outside[s.at->outside]);
    onnx_attr(o, "align_corners", has_corners(s.at));
    onnx_out(o, 0, onnx_reshape(o, moved(o, v, x->rank, true), y->rank, y->dim));
    return true;
}

static OnnxVal cotangent(const Sample *s)
{
    OnnxVal dy = onnx_cast(s->o, onnx_in(s->o, 0), s->dt);
    return onnx_reshape(s->o, dy, 3, (int64_t[]){s->images, s->points, s->channels});
}

bool sample_bwd_data_onnx(OnnxNodes *o, const Graph *g, const Node *n)
{
    const Type *x = out_type(g, n, 0);
    Sample s = sample_of(o, n, x, in_type(g, n, 1));
    Tap tap[SAMPLE_DIMS][SAMPLE_TAPS];
    OnnxVal dy = cotangent(&s), dx = onnx_zeros(o, s.dt, 3, (int64_t[]){s.images, s.pixels, s.channels});
    int all = all_taps(&s, tap);
    for (int k = 0; k < all; k++) {
        OnnxVal index = onnx_expand(o, pixel_of(&s, tap, k), 3, (int64_t[]){s.images, s.points, s.channels});
        dx = onnx_op3(o, "ScatterElements", dx, index, op2(&s, "Mul", dy, weight_of(&s, tap, k, -1)));
        onnx_attr(o, "axis", 1);
        onnx_attr_text(o, "reduction", "add");
    }
    onnx_out(o, 0, onnx_reshape(o, dx, x->rank, x->dim));
    return true;
}

bool sample_bwd_grid_onnx(OnnxNodes *o, const Graph *g, const Node *n)
{
    const Type *x = in_type(g, n, 2), *y = out_type(g, n, 0);
    Sample s = sample_of(o, n, x, in_type(g, n, 1));
    Tap tap[SAMPLE_DIMS][SAMPLE_TAPS];
    OnnxVal dy = cotangent(&s), d[SAMPLE_DIMS] = {{0}};
    OnnxVal image = onnx_reshape(o, onnx_cast(o, onnx_in(o, 2), s.dt), 3,
                                 (int64_t[]){s.images, s.pixels, s.channels});
    int all = all_taps(&s, tap);
    for (int k = 0; k < all; k++) {
        OnnxVal v = onnx_op2(o, "GatherND", image, pixel_of(&s, tap, k));
        onnx_attr(o, "batch_dims", 1);
        v = onnx_reduced(o, "ReduceSum", op2(&s, "Mul", v, dy), 1u << 2, true);
        for (int i = 0; i < s.sp; i++) { /* the last dimension's first */
            OnnxVal part = op2(&s, "Mul", v, weight_of(&s, tap, k, s.sp - 1 - i));
            d[i] = k ? op2(&s, "Add", d[i], part) : part;
        }
    }
    OnnxVal all_of = d[0];
    if (s.sp > 1) {
        all_of = onnx_op(o, "Concat", s.dt, s.sp, d);
        onnx_attr(o, "axis", 2);
    }
    onnx_out(o, 0, onnx_reshape(o, all_of, y->rank, y->dim));
    return true;
}
