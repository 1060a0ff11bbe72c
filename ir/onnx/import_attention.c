/* import_attention.c -- Attention and RotaryEmbedding by their definition.
 *
 * The bias that is added to the scores is 0 where a key may be attended and minus infinity
 * elsewhere (plus a float mask, as it is).  What is known when compiling (causal frontier,
 * sliding window without a cache of unknown length) folds into one constant. */
#include "onnx_int.h"
#include <math.h>
#include <string.h>

typedef struct {
    OnnxNode *n;
    Graph *g;
    DType dt;
    Val q, k, v; /* [batch, heads, sequence, size] */
    int64_t batch, heads, rows, columns, past;
    int64_t left, right; /* keys before and behind its own that a query may attend; -1: all */
    DType precision;     /* of the softmax */
} Attention;

/* [batch, sequence, heads * size] to [batch, heads, sequence, size] */
static bool split_heads(OnnxNode *n, Val *v, int64_t heads)
{
    const Type *t = val_type(n->g, *v);
    if (t->rank == 4)
        return true;
    if (t->rank != 3 || heads < 1 || t->dim[2] % heads)
        return fail(n->x->d, "%lld heads do not fit the operands", (long long)heads);
    Val s = build_reshape(n->g, *v, 4, (int64_t[]){t->dim[0], t->dim[1], heads, t->dim[2] / heads});
    *v = build_transpose(n->g, s, (int[]){0, 2, 1, 3});
    return v->i;
}

static Val join_heads(Graph *g, Val v)
{
    Val y = build_transpose(g, v, (int[]){0, 2, 1, 3});
    if (!y.i)
        return y;
    const Type *t = val_type(g, y);
    return build_reshape(g, y, 3, (int64_t[]){t->dim[0], t->dim[1], t->dim[2] * t->dim[3]});
}

/* Valid keys before the query block: [batch,1,1,1], or one number. */
static Val frontier(const Attention *a)
{
    OnnxNode *n = a->n;
    if (a->past || !has_in(n, 6))
        return build_ints(a->g, &a->past, 1);
    Val len = build_reshape(a->g, build_cast(a->g, n->in[6], DT_I64), 4, (int64_t[]){a->batch, 1, 1, 1});
    return add_scalar(a->g, len, -(double)a->rows);
}

static Val both(Graph *g, Val a, Val b)
{
    return a.i && b.i ? build2(g, OP_and, a, b) : a.i ? a : b;
}

/* True where a query may attend a key as far as positions say; {0}: everywhere. */
static Val allowed_by_position(const Attention *a)
{
    Graph *g = a->g;
    OnnxNode *n = a->n;
    int64_t left = a->left, right = a->right;
    bool causal = attr_int(n, "is_causal", 0) != 0;
    Val row = along_axis(g, iota(g, a->rows), 2, 4), key = along_axis(g, iota(g, a->columns), 3, 4);
    Val at = build2(g, OP_add, row, frontier(a)), ok = {0};
    if (causal || right >= 0)
        ok = build2(g, OP_less_equal, key, add_scalar(g, at, causal ? 0 : (double)right));
    if (left >= 0)
        ok = both(g, ok, build2(g, OP_less_equal, add_scalar(g, at, -(double)left), key));
    if (has_in(n, 6)) {
        Val len = build_reshape(g, build_cast(g, n->in[6], DT_I64), 4, (int64_t[]){a->batch, 1, 1, 1});
        ok = both(g, ok, build2(g, OP_less, key, len));
    }
    return ok;
}

/* A mask shorter than the keys forbids the rest. */
static Val full_mask(const Attention *a)
{
    Graph *g = a->g;
    if (!has_in(a->n, 3))
        return (Val){0};
    Val mask = a->n->in[3];
    const Type t = *val_type(g, mask);
    bool boolean = t.dt == DT_BOOL;
    PadAttrs pad = {.before.n = t.rank, .after.n = t.rank, .value = boolean ? 0 : -INFINITY};
    if (t.rank < 1 || t.dim[t.rank - 1] >= a->columns || t.dim[t.rank - 1] == 1)
        return mask;
    pad.after.v[t.rank - 1] = a->columns - t.dim[t.rank - 1];
    return build(g, OP_pad, NULL, 1, &mask, &pad);
}

static Val bias_of(const Attention *a)
{
    Graph *g = a->g;
    Val allowed = allowed_by_position(a), mask = full_mask(a);
    if (mask.i && val_type(g, mask)->dt == DT_BOOL) {
        allowed = both(g, allowed, mask);
        mask.i = 0;
    }
    Val zero = build_scalar(g, a->dt, 0), never = build_scalar(g, a->dt, -INFINITY);
    Val bias = allowed.i ? build3(g, OP_where, allowed, zero, never) : (Val){0};
    return bias.i && mask.i ? build2(g, OP_add, bias, mask) : bias.i ? bias : mask;
}

/* A query that may attend no key has zeros as scores, of which softmax and its gradient are finite, and as
 * probabilities. */
static Val guard_rows(const Attention *a, Val rows, Val bias)
{
    Graph *g = a->g;
    if (!has_in(a->n, 3) && !has_in(a->n, 6) && a->left < 0)
        return rows; /* every query attends at least its own position */
    Val top = build_reduce(g, OP_reduce_max, bias, 1u << (val_type(g, bias)->rank - 1), true);
    Val none = with_consts(g, OP_isinf, top, 0, 1);
    return build3(g, OP_where, none, scalar_like(g, rows, 0), rows);
}

static bool with_cache(OnnxNode *n, Val *kv, int past, int present)
{
    if (has_in(n, past))
        *kv = build_concat(n->g, 2, (Val[]){n->in[past], *kv}, 2);
    if (has_out(n, present))
        n->out[present] = *kv;
    return kv->i;
}

static Val probabilities(Attention *a, Val scores, Val bias)
{
    Graph *g = a->g;
    Val x = build_cast(g, scores, a->precision);
    x = bias.i ? guard_rows(a, x, bias) : x;
    Val p = build_cast(g, build(g, OP_softmax, NULL, 1, &x, &(AxisAttrs){3}), a->dt);
    return bias.i ? guard_rows(a, p, bias) : p;
}

static bool read_attention(OnnxNode *n, Attention *a)
{
    Graph *g = n->g;
    int64_t heads, shared;
    int32_t precision;
    *a = (Attention){.n = n, .g = g, .dt = in_type(n, 0)->dt, .q = n->in[0], .k = n->in[1], .v = n->in[2]};
    TRY(attr_int_in(n, "q_num_heads", 0, 1, MAX_HEADS, &heads));
    TRY(attr_int_in(n, "kv_num_heads", 0, 1, MAX_HEADS, &shared));
    TRY(attr_int_in(n, "left_window_size", -1, -1, MAX_ELEMENTS, &a->left));
    TRY(attr_int_in(n, "right_window_size", -1, -1, MAX_ELEMENTS, &a->right));
    TRY(attr_data_type(n, "softmax_precision", 0, &precision));
    a->precision = precision ? onnx_dtype(precision) : a->dt;
    TRY(split_heads(n, &a->q, heads) && split_heads(n, &a->k, shared) && split_heads(n, &a->v, shared));
    a->past = has_in(n, 4) ? in_type(n, 4)->dim[2] : 0;
    TRY(with_cache(n, &a->k, 4, 1) && with_cache(n, &a->v, 5, 2));
    const Type *q = val_type(g, a->q), *k = val_type(g, a->k);
    a->batch = q->dim[0];
    a->heads = q->dim[1];
    a->rows = q->dim[2];
    a->columns = k->dim[2];
    if (q->rank != 4 || k->rank != 4 || k->dim[1] < 1 || a->heads % k->dim[1])
        return fail(n->x->d, "heads of query and key do not fit together");
    int64_t times = a->heads / k->dim[1]; /* grouped queries share keys */
    a->k = repeat_each(g, a->k, 1, times);
    a->v = repeat_each(g, a->v, 1, times);
    return true;
}

static bool import_attention(OnnxNode *n)
{
    enum { RAW, CAPPED, BIASED, SOFTMAX };
    Graph *g = n->g;
    Attention a;
    TRY(read_attention(n, &a));
    double size = (double)val_type(g, a.q)->dim[3], cap = attr_float(n, "softcap", 0);
    double scale = attr_float(n, "scale", 1 / sqrt(size));
    int64_t mode = attr_int(n, "qk_matmul_output_mode", RAW);
    Val s = build_matmul(g, mul_scalar(g, a.q, scale), a.k, false, true), shown = s;
    if (cap != 0)
        s = mul_scalar(g, one(g, OP_tanh, mul_scalar(g, s, 1 / cap)), cap);
    shown = mode == CAPPED ? s : shown;
    Val bias = bias_of(&a);
    if (bias.i)
        s = build2(g, OP_add, s, bias);
    shown = mode == BIASED ? s : shown;
    Val p = probabilities(&a, s, bias);
    if (has_out(n, 3))
        n->out[3] = mode == SOFTMAX ? p : shown;
    Val y = build_matmul(g, p, a.v, false, false);
    n->out[0] = in_type(n, 0)->rank == 3 ? join_heads(g, y) : y;
    return n->out[0].i;
}

/* ---- rotary embedding --------------------------------------------------- */

/* cos or sin for every position, [batch, sequence, half]. */
static Val table(OnnxNode *n, int k, int64_t half)
{
    Graph *g = n->g;
    Val t = n->in[k];
    if (has_in(n, 3) && !indices_inside(n, 3, in_type(n, k)->dim, 1))
        return (Val){0};
    if (has_in(n, 3))
        t = build_gather(g, t, n->in[3], 0);
    if (t.i && val_type(g, t)->rank != 3) {
        diag_set(n->x->d, "the tables must have one row per position");
        return (Val){0};
    }
    return t.i ? build_slice(g, t, 2, 0, half) : t;
}

static Val every_other(Graph *g, Val x, int64_t first)
{
    SliceAttrs at = slice_all(val_type(g, x));
    at.start.v[3] = first;
    at.step.v[3] = 2;
    at.size.v[3] /= 2;
    return build(g, OP_slice, NULL, 1, &x, &at);
}

/* The table [batch, sequence, half] with a dimension for heads. */
static Val for_heads(Graph *g, Val table, bool heads_first)
{
    const Type *t = val_type(g, table);
    int64_t before[] = {t->dim[0], 1, t->dim[1], t->dim[2]}, behind[] = {t->dim[0], t->dim[1], 1, t->dim[2]};
    return build_reshape(g, table, 4, heads_first ? before : behind);
}

Val build_rotary(Graph *g, Val x, bool heads_first, Val cosine, Val sine, bool interleaved)
{
    int64_t size = val_type(g, x)->dim[3], half = val_type(g, cosine)->dim[2];
    cosine = for_heads(g, cosine, heads_first);
    sine = for_heads(g, sine, heads_first);
    Val turned = build_slice(g, x, 3, 0, 2 * half);
    if (!turned.i || !cosine.i || !sine.i)
        return (Val){0};
    Val a = interleaved ? every_other(g, turned, 0) : build_slice(g, turned, 3, 0, half);
    Val b = interleaved ? every_other(g, turned, 1) : build_slice(g, turned, 3, half, half);
    Val re = build2(g, OP_sub, build2(g, OP_mul, a, cosine), build2(g, OP_mul, b, sine));
    Val im = build2(g, OP_add, build2(g, OP_mul, a, sine), build2(g, OP_mul, b, cosine));
    if (!re.i || !im.i)
        return (Val){0};
    Val y = build_concat(g, 2, (Val[]){re, im}, 3);
    if (interleaved) {
        Ints whole = ints_of(val_type(g, y));
        y = build_concat(g, 2, (Val[]){insert_axis(g, re, 4), insert_axis(g, im, 4)}, 4);
        y = reshape_ints(g, y, &whole);
    }
    if (2 * half < size)
        y = build_concat(g, 2, (Val[]){y, build_slice(g, x, 3, 2 * half, size - 2 * half)}, 3);
    return y;
}

static bool import_rotary_embedding(OnnxNode *n)
{
    Graph *g = n->g;
    Type t = *in_type(n, 0);
    int64_t heads, dim;
    TRY(attr_int_in(n, "num_heads", 0, 0, MAX_HEADS, &heads));
    bool four = t.rank == 4;
    if (!four && (t.rank != 3 || heads < 1 || t.dim[2] % heads))
        return fail(n->x->d, "num_heads %lld does not fit the input", (long long)heads);
    Val x = four ? n->in[0]
                 : build_reshape(g, n->in[0], 4, (int64_t[]){t.dim[0], t.dim[1], heads, t.dim[2] / heads});
    TRY(x.i);
    int64_t size = val_type(g, x)->dim[3];
    TRY(attr_int_in(n, "rotary_embedding_dim", 0, 0, size, &dim));
    int64_t half = (dim ? dim : size) / 2;
    Val cosine = table(n, 1, half), sine = table(n, 2, half);
    TRY(cosine.i && sine.i);
    Val y = build_rotary(g, x, four, cosine, sine, attr_int(n, "interleaved", 0) != 0);
    n->out[0] = build_reshape(g, y, t.rank, t.dim);
    return n->out[0].i;
}

const OnnxOp onnx_attention[] = {
    {"Attention", 1, .import = import_attention},
    {"RotaryEmbedding", 1, .import = import_rotary_embedding},
    {0},
};
