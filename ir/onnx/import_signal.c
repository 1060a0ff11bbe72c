/* import_signal.c -- discrete Fourier transforms as matrix products, windows, determinants. */
#include "onnx_int.h"
#include <math.h>
#include <string.h>

enum { MAX_LENGTH = 1 << 13 };

/* cos or sin of 2 pi i k / length, [rows, columns]. */
static Val wave(OnnxNode *n, DType dt, int64_t rows, int64_t columns, int64_t length, bool sine)
{
    Type t = type_make(dt, 2, (int64_t[]){rows, columns});
    Tensor v = {t, NEW(n->x->a, char, type_bytes(&t) + 1)};
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < columns; k++) {
            double angle = 6.283185307179586 * (double)(i * k % length) / (double)length;
            tensor_set_f(&v, i * columns + k, sine ? sin(angle) : cos(angle));
        }
    return graph_const(n->g, sine ? "sin" : "cos", t, v.data);
}

/* Transform the last dimension of re + i im (im: {0} for real signals). */
static bool transform(OnnxNode *n, Val re, Val im, int64_t length, int64_t results,
                      bool inverse, Val *out_re, Val *out_im)
{
    Graph *g = n->g;
    const Type t = *val_type(g, re);
    int64_t have = t.dim[t.rank - 1];
    if (length < 1 || length > MAX_LENGTH || t.rank < 2)
        return refuse(n, "a transform of %lld points", (long long)length);
    int64_t used = have < length ? have : length; /* zero padding adds nothing to the sums */
    Val c = wave(n, t.dt, used, results, length, false);
    Val s = wave(n, t.dt, used, results, length, true);
    re = build_slice(g, re, t.rank - 1, 0, used);
    Val rc = build_matmul(g, re, c, false, false), rs = build_matmul(g, re, s, false, false);
    double sign = inverse ? 1 : -1, scale = inverse ? 1 / (double)length : 1;
    *out_re = rc;
    *out_im = mul_scalar(g, rs, sign);
    if (im.i) {
        im = build_slice(g, im, t.rank - 1, 0, used);
        Val ic = build_matmul(g, im, c, false, false), is = build_matmul(g, im, s, false, false);
        *out_re = build2(g, OP_add, rc, mul_scalar(g, is, -sign));
        *out_im = build2(g, OP_add, *out_im, ic);
    }
    if (inverse) {
        *out_re = mul_scalar(g, *out_re, scale);
        *out_im = mul_scalar(g, *out_im, scale);
    }
    return out_re->i && out_im->i;
}

/* Splits the last dimension, of size 1 or 2, into real and imaginary part. */
static bool parts(OnnxNode *n, Val x, Val *re, Val *im)
{
    const Type t = *val_type(n->g, x);
    int last = t.rank - 1;
    if (t.rank < 2 || t.dim[last] < 1 || t.dim[last] > 2)
        return fail(n->x->d, "the last dimension must be 1 (real) or 2 (complex)");
    *re = drop_axis(n->g, build_slice(n->g, x, last, 0, 1), last);
    *im = t.dim[last] == 2 ? drop_axis(n->g, build_slice(n->g, x, last, 1, 1), last) : (Val){0};
    return re->i;
}

static Val join(Graph *g, Val re, Val im)
{
    int last = val_type(g, re)->rank;
    return build_concat(g, 2, (Val[]){insert_axis(g, re, last), insert_axis(g, im, last)}, last);
}

static Val axis_last(Graph *g, Val v, int axis)
{
    int perm[MAX_RANK], rank = val_type(g, v)->rank;
    for (int i = 0; i < rank; i++)
        perm[i] = i;
    perm[axis] = rank - 1; /* its own inverse */
    perm[rank - 1] = axis;
    return build_transpose(g, v, perm);
}

/* A real signal from the half of its spectrum: the other half is the mirrored conjugate, so
 * every term but the first (and the middle one) counts twice. */
static Val mirrored(OnnxNode *n, Val v, int64_t length)
{
    const Type *t = val_type(n->g, v);
    int64_t terms = t->dim[t->rank - 1];
    Type tw = type_make(t->dt, 1, &terms);
    Tensor w = {tw, NEW(n->x->a, char, type_bytes(&tw) + 1)};
    for (int64_t k = 0; k < terms; k++)
        tensor_set_f(&w, k, k == 0 || 2 * k == length ? 1 : 2 * k < length ? 2 : 0);
    return build2(n->g, OP_mul, v, graph_const(n->g, "weight", tw, w.data));
}

static bool import_dft(OnnxNode *n)
{
    Graph *g = n->g;
    const Type t = *in_type(n, 0);
    int64_t axis = n->opset < 20 ? attr_int(n, "axis", 1) : -2, length;
    bool inverse = attr_int(n, "inverse", 0) != 0, onesided = attr_int(n, "onesided", 0) != 0;
    if (n->opset >= 20 && has_in(n, 2))
        TRY(static_int(n, 2, &axis));
    TRY(axis_in(n, axis, t.rank, &axis));
    if (axis == t.rank - 1 || t.rank < 3)
        return refuse(n, "the axis of real and imaginary parts");
    bool half = inverse && onesided;
    length = half ? 2 * (t.dim[axis] - 1) : t.dim[axis];
    if (has_in(n, 1))
        TRY(static_int(n, 1, &length));
    Val re, im, yr, yi;
    TRY(parts(n, n->in[0], &re, &im));
    re = axis_last(g, re, (int)axis);
    im = im.i ? axis_last(g, im, (int)axis) : im;
    if (half && im.i) {
        re = mirrored(n, re, length);
        im = mirrored(n, im, length);
    }
    int64_t results = onesided && !inverse ? length / 2 + 1 : length;
    TRY(transform(n, re, im, length, results, inverse, &yr, &yi));
    if (half) {
        yr = axis_last(g, yr, (int)axis);
        n->out[0] = insert_axis(g, yr, val_type(g, yr)->rank);
        return n->out[0].i;
    }
    n->out[0] = join(g, axis_last(g, yr, (int)axis), axis_last(g, yi, (int)axis));
    return n->out[0].i;
}

/* Transforms frames of the signal, times the window. */
static bool import_stft(OnnxNode *n)
{
    Graph *g = n->g;
    Type t = *in_type(n, 0);
    if (t.rank == 2) { /* real, as other tools take it */
        t.dim[t.rank++] = 1;
        n->in[0] = build_reshape(g, n->in[0], t.rank, t.dim);
    }
    int64_t step, length = has_in(n, 2) ? type_count(in_type(n, 2)) : 0;
    TRY(static_int(n, 1, &step));
    if (has_in(n, 3))
        TRY(static_int(n, 3, &length));
    if (t.rank != 3 || step < 1 || length < 1 || length > t.dim[1])
        return fail(n->x->d, "frames of %lld by %lld of a signal of rank %d, %lld long", (long long)length,
                    (long long)step, t.rank, (long long)(t.rank > 1 ? t.dim[1] : 0));
    int64_t frames = (t.dim[1] - length) / step + 1;
    Type ti = type_make(DT_I64, 2, (int64_t[]){frames, length});
    TRY(small_enough(n, &ti));
    int64_t *index = NEW(n->x->a, int64_t, frames * length);
    for (int64_t i = 0; i < frames * length; i++)
        index[i] = i / length * step + i % length;
    Val at = graph_const(g, "frames", ti, index), part[2], y[2];
    TRY(parts(n, n->in[0], &part[0], &part[1]));
    for (int i = 0; i < 2 && part[i].i; i++) {
        part[i] = build_gather(g, part[i], at, 1);
        if (has_in(n, 2))
            part[i] = build2(g, OP_mul, part[i], n->in[2]);
    }
    int64_t results = attr_int(n, "onesided", 1) ? length / 2 + 1 : length;
    TRY(transform(n, part[0], part[1], length, results, false, &y[0], &y[1]));
    n->out[0] = join(g, y[0], y[1]);
    return n->out[0].i;
}

/* ---- windows and filters, known when compiling --------------------------- */

static bool output_type(OnnxNode *n, DType *dt)
{
    int32_t type;
    TRY(attr_data_type(n, "output_datatype", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, &type));
    *dt = onnx_dtype(type);
    return dtype_is_float(*dt) || refuse(n, "element type %s", onnx_dtype_name(type));
}

/* a0 - a1 cos(2 pi i / length) + a2 cos(4 pi i / length), with 1 in the middle */
static bool import_window(OnnxNode *n)
{
    int64_t size;
    Type t = {.rank = 1};
    TRY(static_int(n, 0, &size) && output_type(n, &t.dt));
    if (size < 0)
        return fail(n->x->d, "a window of %lld", (long long)size);
    t.dim[0] = size;
    TRY(small_enough(n, &t));
    double a0 = n->row->al0, a2 = n->row->be0, a1 = 1 - a0 - a2;
    double length = (double)(attr_int(n, "periodic", 1) ? size : size - 1);
    Tensor v = {t, NEW(n->x->a, char, type_bytes(&t) + 1)};
    for (int64_t i = 0; i < size; i++) {
        double angle = 6.283185307179586 * (double)i / length;
        tensor_set_f(&v, i, a0 - a1 * cos(angle) + a2 * cos(2 * angle));
    }
    n->out[0] = graph_const(n->g, "window", t, v.data);
    return true;
}

/* The transform's bin at edge i of count + 2 edges that are evenly spaced in mel. */
static double mel_bin(int64_t i, int64_t count, double low, double high, double length, double rate)
{
    double from = log1p(low / 700), to = log1p(high / 700);
    double mel = from + (to - from) * (double)i / (double)(count + 2);
    return floor((length + 1) * (700 * expm1(mel)) / rate);
}

/* Triangular filters: each rises from one edge to the next and falls to the one after. */
static bool import_mel_weights(OnnxNode *n)
{
    int64_t count, length;
    double rate, low, high;
    Type t = {.rank = 2};
    TRY(static_int(n, 0, &count) && static_int(n, 1, &length) && static_float(n, 2, &rate));
    TRY(static_float(n, 3, &low) && static_float(n, 4, &high) && output_type(n, &t.dt));
    if (count < 0 || length < 0 || count > MAX_LENGTH || length > MAX_LENGTH || rate <= 0)
        return fail(n->x->d, "%lld bands of %lld points", (long long)count, (long long)length);
    t.dim[0] = length / 2 + 1;
    t.dim[1] = count;
    TRY(small_enough(n, &t));
    Tensor v = {t, NEW(n->x->a, char, type_bytes(&t) + 1)};
    for (int64_t k = 0; k < count; k++) {
        double edge[3];
        for (int i = 0; i < 3; i++)
            edge[i] = mel_bin(k + i, count, low, high, (double)length, rate);
        for (int64_t j = 0; j < t.dim[0]; j++) {
            double at = (double)j, w = 0;
            if (at >= edge[0] && at <= edge[1])
                w = edge[1] > edge[0] ? (at - edge[0]) / (edge[1] - edge[0]) : 1;
            if (at >= edge[1] && at < edge[2])
                w = (edge[2] - at) / (edge[2] - edge[1]);
            tensor_set_f(&v, j * count + k, w);
        }
    }
    n->out[0] = graph_const(n->g, "mel", t, v.data);
    return true;
}

/* ---- Det ----------------------------------------------------------------
 * Small ones by Laplace expansion row by row: the minor of a set of columns is a sum over its last row.
 * Larger ones by Gaussian elimination with partial pivoting, a column after the other.
 */

enum { MAX_LAPLACE = 6, MAX_ORDER = 64 };

static Val entry(Graph *g, Val x, int64_t row, int64_t column)
{
    const Type t = *val_type(g, x);
    Val e = build_slice(g, build_slice(g, x, t.rank - 2, row, 1), t.rank - 1, column, 1);
    return build_reshape(g, e, t.rank - 2, t.dim);
}

static Val laplace(Graph *g, Val x, int order)
{
    Val minor[1 << MAX_LAPLACE] = {{0}};
    for (int set = 1; set < 1 << order; set++) {
        int rows = __builtin_popcount((unsigned)set), place = 0;
        for (int c = 0; c < order; c++) {
            if (!(set >> c & 1))
                continue;
            Val term = entry(g, x, rows - 1, c), rest = minor[set & ~(1 << c)];
            term = rest.i ? build2(g, OP_mul, term, rest) : term;
            bool minus = (rows - 1 + place++) % 2 != 0;
            minor[set] = !minor[set].i
                             ? (minus ? one(g, OP_neg, term) : term)
                             : build2(g, minus ? OP_sub : OP_add, minor[set], term);
        }
    }
    return minor[(1 << order) - 1];
}

/* Exchanges the first row and the one whose first entry is largest; *first: which matrices are as they were.
 */
static Val pivot_row(Graph *g, Val x, Val *first)
{
    const Type t = *val_type(g, x);
    int axis = t.rank - 2;
    Val size = one(g, OP_abs, build_slice(g, x, axis + 1, 0, 1)), zero = build_scalar(g, DT_I64, 0);
    Val best = build(g, OP_argmax, NULL, 1, &size, &(ArgAttrs){.axis = axis, .keepdims = 1});
    Val row = along_axis(g, iota(g, t.dim[axis]), axis, t.rank);
    Val from = build3(g, OP_where, build2(g, OP_equal, row, best), zero, row);
    from = build3(g, OP_where, build2(g, OP_equal, row, zero), best, from);
    *first = build2(g, OP_equal, best, zero);
    return build(g, OP_gather_elements, NULL, 2, (Val[]){x, build_expand(g, from, t.rank, t.dim)},
                 &(ElementsAttrs){.axis = axis});
}

/* A column of zeros has a pivot of 0, and so has the determinant: nothing is divided by it. */
static Val elimination(Graph *g, Val x, int order)
{
    const Type t = *val_type(g, x);
    int row = t.rank - 2, column = t.rank - 1;
    Val det = {0}, zero = build_scalar(g, t.dt, 0), unit = build_scalar(g, t.dt, 1);
    for (int rest = order - 1; rest; rest--) {
        Val first, a = pivot_row(g, x, &first);
        Val top = build_slice(g, a, row, 0, 1), below = build_slice(g, a, row, 1, rest);
        Val pivot = build_slice(g, top, column, 0, 1);
        Val divisor = build3(g, OP_where, build2(g, OP_equal, pivot, zero), unit, pivot);
        Val factor = build2(g, OP_div, build_slice(g, below, column, 0, 1), divisor);
        Val taken = build2(g, OP_mul, factor, build_slice(g, top, column, 1, rest));
        x = build2(g, OP_sub, build_slice(g, below, column, 1, rest), taken);
        det = det.i ? build2(g, OP_mul, det, pivot) : pivot;
        det = build3(g, OP_where, first, det, one(g, OP_neg, det));
    }
    return build_reshape(g, build2(g, OP_mul, det, x), row, t.dim);
}

static bool import_det(OnnxNode *n)
{
    const Type t = *in_type(n, 0);
    int64_t order = t.rank < 2 ? 0 : t.dim[t.rank - 1];
    if (t.rank < 2 || order != t.dim[t.rank - 2] || order < 1 || order > MAX_ORDER)
        return refuse(n, "matrices of order 1 to %d are supported", MAX_ORDER);
    n->out[0] = (order > MAX_LAPLACE ? elimination : laplace)(n->g, n->in[0], (int)order);
    return n->out[0].i;
}

const OnnxOp onnx_signal[] = {
    {"BlackmanWindow", 17, .import = import_window, .al0 = 0.42, .be0 = 0.08},
    {"DFT", 17, .import = import_dft},
    {"Det", 11, .import = import_det},
    {"HammingWindow", 17, .import = import_window, .al0 = 25.0 / 46},
    {"HannWindow", 17, .import = import_window, .al0 = 0.5},
    {"MelWeightMatrix", 17, .import = import_mel_weights},
    {"STFT", 17, .import = import_stft},
    {0},
};
