/* attrs.h -- attribute structs of the native operators, with each operator's contract.
 * Axes are normalised (0 <= axis < rank); Ints fields have one entry per dimension named. */
#ifndef CKC_ATTRS_H
#define CKC_ATTRS_H
#include "ir.h"

static inline Ints ints_make(int n, const int64_t *v)
{
    Ints r = {.n = n};
    for (int i = 0; i < n; i++)
        r.v[i] = v[i];
    return r;
}

static inline Ints ints_of(const Type *t) { return ints_make(t->rank, t->dim); }

static inline uint32_t axes_mask(const Ints *axes) /* bit d: d is one of them */
{
    uint32_t m = 0;
    for (int i = 0; i < axes->n; i++)
        m |= 1u << axes->v[i];
    return m;
}

static inline bool ints_are(const Ints *l, int64_t v)
{
    bool same = true;
    for (int i = 0; i < l->n; i++)
        same &= l->v[i] == v;
    return same;
}

/* Pointwise rows (ops/unary.def, binary.def): the constants al and be of the expression. */
typedef struct { double al, be; } PointwiseAttrs;

typedef struct { int64_t dtype; } CastAttrs;             /* cast x */
typedef struct { Ints shape; } ShapeAttrs;               /* reshape x (a view); expand x */
typedef struct { Ints perm; } TransposeAttrs;            /* transpose x: out.dim[i] = x.dim[perm[i]] */
typedef struct { Ints start, step, size; } SliceAttrs;   /* slice x: every dimension; step may be < 0 */
static inline SliceAttrs slice_all(const Type *t) /* the slice that is all of t */
{
    SliceAttrs s = {.start.n = t->rank, .step.n = t->rank, .size = ints_of(t)};
    for (int i = 0; i < t->rank; i++)
        s.step.v[i] = 1;
    return s;
}

/* The slice of w, which broadcasts to the whole, that belongs to a slice of the whole; at NULL: all of w. */
Val build_slice_like(Graph *g, Val w, const Type *whole, const SliceAttrs *at);

typedef struct { int64_t axis; } AxisAttrs; /* concat x...; softmax, log_softmax x; gather_nd x, i */
/* gather x, i.  padding: indices equal to it give no gradient (PyTorch's padding_idx); -1: all do. */
typedef struct { int64_t axis, padding; } GatherAttrs;
typedef struct { Ints before, after; int64_t mode; double value; } PadAttrs; /* pad x; counts >= 0 */
enum { PAD_CONSTANT, PAD_REFLECT, PAD_EDGE, PAD_WRAP };
typedef struct { Ints axes; int64_t keepdims; } ReduceAttrs; /* reduce_sum|max|min|prod x */
/* matmul a, b: last two dims, rest broadcast; rank >= 2.  out: the result's type, that of the operands (none)
 * or of their sums (dtype_sum).  tf32: a device may round f32 operands to 10 bits of fraction. */
typedef struct { int64_t ta, tb, out, tf32; } MatmulAttrs;

/* matmul_add a, b, c: c + the product of a and b, in place of c where it is last read.
 * matmul_bias a, b, [c], bias: the same, and `bias`, of the result's type, is added to each of its rows.
 * matmul_gelu a, b, _, bias -> y, x: x as matmul_bias has it, y = gelu_tanh(x) before x is rounded.
 * matmul_gelu_bwd a, b, x: the product, before it is rounded, times the derivative of gelu_tanh at x.
 * matmul_panels a, b: a [m,k] times the matrix whose columns lie in panels, b [n / p, k, p]: column j is
 * b[j / p, :, j % p]. */

/* attention q, k, v, [mask], [bias], [sink], [rng] -> o, top, inv: softmax(scores) v per batch and
 * head, the score matrix never stored.  Scores are scale * q k^T, where cap > 0 cap * tanh(that /
 * cap), plus the bias (like the sink of q's type, or that of its sums).  Where the mask (bool) is set or
 * the position is beyond the limits they are masked: `fill` replaces score and bias, is added, or replaces
 * the score to which the bias is added (hides).  Both broadcast to [batch, heads, rows, columns].
 * top and inv: the largest score of each row and 1 / sum(exp(score - top)), [batch, heads, rows],
 * of the type of sums.  sink: one more score of each head's rows, whose value is 0.
 * k and v may have fewer heads: each serves a run of query heads.
 * causal: row r sees columns <= r + diagonal; window > 0: and > r + diagonal - window.
 * guard: a row gives 0 instead of NaN if all its scores are -inf (GUARD_UNSEEN), or for any reason
 * (GUARD_NAN).
 * rng: dropout of probability p on the softmax, element (batch, head, row, column) of key `key`.
 * layout of q, k, v, o (none: all 0): 0 [batch, heads, rows, size], 1 [batch, rows, heads, size],
 * 2 [rows, batch, heads, size].  Heads of q and k are of one size, those of v and o of another or the same.
 * packed (none: they are three): q, k and v are one value, each of whose heads belongs to one of them: its
 * first head and the step from one to the next, of q, k and v; groups: heads of k and of v.
 * attention_grad do, q, k, v, o, top, inv, [mask], [bias], [rng] -> dq, dk, dv.
 * attention_packed_grad: the same operands, where they are packed -> the gradient of that value.
 * attention_bias_grad: the same operands -> dbias.
 * Gradients have the type of sums, or the type `out` of q, k and v (not dbias).
 * Operand numbers are fixed: a missing mask is an absent operand. */
typedef struct {
    double scale, fill, cap, p;
    int64_t hides, causal, diagonal, window, guard, key, groups, out;
    Ints layout, packed;
} AttentionAttrs;
/* Macros: the texts of kernels have their values, too (attention_kernel.h). */
#define ATTENTION_HIDES HIDES_ALL, HIDES_ADDED, HIDES_SCORE
#define ATTENTION_GUARDS GUARD_NONE, GUARD_NAN, GUARD_UNSEEN
#define ATTENTION_SIZE 256 /* most elements of a head, of q and k as of v and o */
enum { ATTENTION_HIDES };
enum { ATTENTION_GUARDS };
enum { ATTENTION_LAYOUTS = 3 };
/* Per layout: the dimensions of batch, head, row and size. */
extern const int attention_place[ATTENTION_LAYOUTS][4];
/* Does each of the `heads` heads of a packed value belong to exactly one of q, k and v? */
bool attention_packs(const AttentionAttrs *at, int64_t heads);

/* conv x[N,C,s...], w[M,C/group,k...] [, bias[M]]; pads: begins then ends.
 * conv_bwd_data g, w -> x's shape (also the forward of a transposed convolution);
 * conv_bwd_weights x, g -> w's shape.  shape: full shape of the result of the two latter.  out, tf32: as in
 * MatmulAttrs.  channels_last: x and the result are [N,s...,C]; weights stay. */
typedef struct {
    Ints strides, pads, dilations;
    int64_t group;
    Ints shape;
    int64_t out, tf32, channels_last;
} ConvAttrs;

/* max_pool x -> y, places (in windows, counted along the last dimension first: u8, i32 of large windows);
 * max_pool_bwd places, g; avg_pool x, avg_pool_bwd g.  out: spatial extents of the pooled
 * side, decided at import (ceil_mode, auto_pad); shape: x's full shape (of the gradients). */
typedef struct {
    Ints kernel, strides, pads, dilations, out;
    int64_t include_pad;
    Ints shape;
} PoolAttrs;

/* layer_norm x [, scale, bias] -> y, mean, rstd: over dimensions axis..rank-1.
 * rms_norm x [, scale] -> y, rstd.  batch_norm x, scale, bias -> y, mean, var, rstd (of this batch,
 * population variance; channels are dimension axis).  Statistics have the type of x's sums, scale and bias
 * that or x's. */
typedef struct { int64_t axis; double eps; } NormAttrs;

/* cross_entropy logits, target(int) -> loss, top, log_sum: classes on `axis`, which the results lack; loss is
 * 0 where target == ignore.  top is the largest logit, log_sum the logarithm of the sum of exp(logit - top):
 * their sum, rounded, would spoil the gradient where the loss is small.  negative: negative targets count
 * from the end.  count > 0: the number of classes; logits behind them, of any value, are not read. */
typedef struct { int64_t axis, ignore, has_ignore, negative, count; } CrossEntropyAttrs;
static inline int64_t class_count(const CrossEntropyAttrs *at, const Type *logits)
{
    return at->count ? at->count : logits->dim[at->axis];
}

/* resample x, index[n,t], weight[n,t] {axis: AxisAttrs}: n elements along axis, each the sum over t
 * of weight * x[index]; an index < 0 adds nothing.  Tables are constants where x needs a gradient.
 * Interpolation of any kind, one axis at a time. */

/* grid_sample x [N,s...,C], grid [N,p...,k] -> [N,p...,C]: images of k dimensions read at positions, whose
 * coordinates are the last dimension's first: of pixels, or from -1 to 1 between the edges of the outermost
 * pixels (corners: their centres, at which reflection is then, too).  Cubic: a = -0.75.
 * grid_sample_bwd_data g, grid -> x's gradient, whose full shape is `shape`; grid_sample_bwd_grid g, grid, x.
 * Both have the type of sums. */
typedef enum { SAMPLE_LINEAR, SAMPLE_NEAREST, SAMPLE_CUBIC } SampleMode;
typedef enum { OUTSIDE_ZERO, OUTSIDE_BORDER, OUTSIDE_REFLECTED } SampleOutside;
typedef struct {
    int64_t mode, outside, corners, pixels;
    Ints shape;
} GridSampleAttrs;

/* gather_bwd g, i -> zeros of `shape` with g added at i along axis, in the type of sums, dtype_sum(). */
typedef struct { int64_t axis; Ints shape; } GatherBwdAttrs;

/* dropout x, rng: x * keep / (1-p), keep drawn from (seed, key, step, element); its own gradient.
 * uniform rng -> shape in [lo, hi);  normal rng -> mean lo, deviation hi. */
typedef struct { double p; int64_t key; } DropoutAttrs;
typedef struct { Ints shape; int64_t dtype, key; double lo, hi; } RandomAttrs;

/* gather_elements x, i.  batch: how many of i's first dimensions are 1 and broadcast along x's. */
typedef struct { int64_t axis, batch; } ElementsAttrs;
/* gather_elements_bwd g, i -> zeros of `shape` with g added where gather_elements reads.  out: the result's
 * type, DT_NONE: that of sums, dtype_sum(). */
typedef struct { int64_t axis, batch, out; Ints shape; } ElementsBwdAttrs;
/* scatter_elements x, i, u (batch: as in ElementsAttrs); scatter_nd x, i, u; gather_nd x, i (axis: number of
 * batch dimensions). */
typedef struct { int64_t axis, reduction, batch; } ScatterAttrs;
enum { SCATTER_SET, SCATTER_ADD, SCATTER_MUL, SCATTER_MAX, SCATTER_MIN };

typedef struct { int64_t axis, exclusive, reverse; } CumsumAttrs;         /* cumsum x */
typedef struct { int64_t axis, keepdims, last; } ArgAttrs;                /* argmax, argmin x -> i64 */
typedef struct { int64_t axis, k, largest; } TopkAttrs;                   /* topk x -> i64: indices of
                                                                             the k first, in order */
typedef struct { int64_t k, upper; } TriluAttrs;                          /* trilu x */
/* unit_lower_inverse x: (I - L)^-1 of matrices in the last two dimensions, L strictly below x's diagonal. */

/* Optimizer updates (PyTorch's form), in place on parameter and state:
 * sgd p, g, lr -> p'; momentum p, g, buf, lr, first -> p', buf';
 * adamw p, g, m, v, lr, bias1, bias2 -> p', m', v' with bias_k = 1 - beta_k^step (scalars);
 * lion p, g, m, lr -> p', m';
 * adafactor p, g, r, rate, lr, [c] -> p', where r * c, or r, is the mean of the squares of g; least: the
 * lower bound of that.  All may end in [scale, [apply]]: the gradient is multiplied by scale; where apply
 * is false, nothing changes. */
typedef struct { double momentum, dampening, weight_decay; int64_t nesterov; } SgdAttrs;
typedef struct { double beta1, beta2, eps, weight_decay; } AdamAttrs;
typedef struct { double beta1, beta2, weight_decay; } LionAttrs;
typedef struct { double least, weight_decay; } AdafactorAttrs;

#endif
