/* import_vendor.c -- operators that ONNX Runtime's optimizer leaves in exported files
 * (com.microsoft), by composition.  Contracts: onnxruntime/docs/ContribOperators.md. */
#include "onnx_int.h"
#include <math.h>
#include <string.h>

static Val plus(Graph *g, Val a, Val b) { return b.i ? build2(g, OP_add, a, b) : a; }

/* A factor whose rows are its first dimension, in front of the batches. */
static Val batches_first(Graph *g, Val a)
{
    int perm[MAX_RANK], rank = val_type(g, a)->rank;
    for (int i = 0; i < rank; i++)
        perm[i] = i < rank - 2 ? i + 1 : i == rank - 2 ? 0 : i;
    return build_transpose(g, a, perm);
}

static bool import_fused_matmul(OnnxNode *n)
{
    Graph *g = n->g;
    if (in_type(n, 0)->rank < 2 || in_type(n, 1)->rank < 2)
        return refuse(n, "vectors");
    Val a = attr_int(n, "transBatchA", 0) ? batches_first(g, n->in[0]) : n->in[0];
    Val b = attr_int(n, "transBatchB", 0) ? batches_first(g, n->in[1]) : n->in[1];
    Val y = build_matmul(g, a, b, attr_int(n, "transA", 0) != 0, attr_int(n, "transB", 0) != 0);
    double alpha = attr_float(n, "alpha", 1);
    n->out[0] = alpha == 1 ? y : mul_scalar(g, y, alpha);
    return n->out[0].i;
}

/* Applies the activation that an operator ends in; al, be NAN: its defaults. */
static bool activate(OnnxNode *n, double al, double be)
{
    const char *name = attr_str(n, "activation", "");
    if (!*name || !n->out[0].i)
        return n->out[0].i;
    const Activation *a = activation_find(name);
    if (!a)
        return refuse(n, "activation %s", name);
    n->out[0] = activation_build(n->g, a, n->out[0], isnan(al) ? a->al : al, isnan(be) ? a->be : be);
    return n->out[0].i;
}

/* A convolution to which the last operand is added, and an activation. */
static bool import_fused_conv(OnnxNode *n)
{
    const Onnx__AttributeProto *p = attr_find(n, "activation_params");
    size_t given = p ? p->n_floats : 0;
    TRY(import_conv(n));
    if (has_in(n, 3))
        n->out[0] = build2(n->g, OP_add, n->out[0], n->in[3]);
    return activate(n, given > 0 ? (double)p->floats[0] : NAN, given > 1 ? (double)p->floats[1] : NAN);
}

static bool import_fused_gemm(OnnxNode *n)
{
    return import_gemm(n) && activate(n, attr_float(n, "activation_alpha", NAN),
                                      attr_float(n, "activation_beta", NAN));
}

/* Gelu, FastGelu (tanh form) and BiasGelu, with an optional bias. */
static bool import_gelu(OnnxNode *n)
{
    Val x = plus(n->g, n->in[0], has_in(n, 1) ? n->in[1] : (Val){0});
    n->out[0] = one(n->g, n->row->native, x);
    return n->out[0].i;
}

static bool import_quick_gelu(OnnxNode *n)
{
    n->out[0] = with_consts(n->g, OP_silu, n->in[0], attr_float(n, "alpha", 1.702), 0);
    return n->out[0].i;
}

/* ---- normalization ------------------------------------------------------ */

static bool normalize(OnnxNode *n, Val x, Val scale, Val bias, bool rms, Val *y)
{
    NormAttrs at = {val_type(n->g, x)->rank - 1, attr_float(n, "epsilon", rms ? 1e-5 : 1e-12)};
    Val in[3] = {x, scale, bias}, out[3];
    if (rms)
        TRY(build_n(n->g, OP_rms_norm, NULL, 2, in, &at, 2, out));
    else
        TRY(build_n(n->g, OP_layer_norm, NULL, bias.i ? 3 : 2, in, &at, 3, out));
    *y = out[0];
    return true;
}

static bool import_simplified_layer_norm(OnnxNode *n)
{
    int64_t axis;
    TRY(axis_in(n, attr_int(n, "axis", -1), in_type(n, 0)->rank, &axis));
    if (axis != in_type(n, 0)->rank - 1)
        return refuse(n, "axis other than the last");
    return normalize(n, n->in[0], n->in[1], (Val){0}, true, &n->out[0]);
}

/* input + skip (+ bias), normalised; the sum is the last result.  Mean and deviation, which onnxscript's
 * fusions name without a reader, are not computed; onnxruntime's kernel does not, either. */
static bool skip_norm(OnnxNode *n, Val scale, Val beta, int bias, bool rms)
{
    Val sum = plus(n->g, build2(n->g, OP_add, n->in[0], n->in[1]), has_in(n, bias) ? n->in[bias] : (Val){0});
    TRY(sum.i);
    if (n->nout > 3)
        n->out[3] = sum;
    return normalize(n, sum, scale, beta, rms, &n->out[0]);
}

static bool import_skip_layer_norm(OnnxNode *n)
{
    return skip_norm(n, n->in[2], has_in(n, 3) ? n->in[3] : (Val){0}, 4, false);
}

static bool import_skip_simplified_layer_norm(OnnxNode *n)
{
    return skip_norm(n, n->in[2], (Val){0}, 3, true);
}

/* Word + position (+ segment) embeddings, normalised; the number of keys that a mask of 0 and 1 leaves. */
static bool import_embed_layer_norm(OnnxNode *n)
{
    Graph *g = n->g;
    const Type *ids = in_type(n, 0);
    if (ids->rank != 2)
        return refuse(n, "rank %d", ids->rank);
    if (has_out(n, 1))
        n->out[1] = has_in(n, 7)
                        ? build_cast(g, build_reduce(g, OP_reduce_sum, n->in[7], 1 << 1, false), DT_I32)
                        : build_expand(g, build_scalar(g, DT_I32, 0), 1, ids->dim);
    TRY(!has_in(n, 8) || indices_inside(n, 8, in_type(n, 3)->dim, 1));
    Val sum = build_gather(g, n->in[2], n->in[0], 0);
    Val position =
        has_in(n, 8) ? build_gather(g, n->in[3], n->in[8], 0) : build_slice(g, n->in[3], 0, 0, ids->dim[1]);
    sum = plus(g, sum, position);
    if (has_in(n, 1) && has_in(n, 4))
        sum = plus(g, sum, build_gather(g, n->in[4], n->in[1], 0));
    TRY(sum.i);
    if (n->nout > 2)
        n->out[2] = sum;
    return normalize(n, sum, n->in[5], n->in[6], false, &n->out[0]);
}

/* ---- attention ---------------------------------------------------------- */

/* [batch, sequence, heads * size] to [batch, heads, sequence, size] */
static Val heads_first(Graph *g, Val v, int64_t heads)
{
    const Type *t = val_type(g, v);
    Val s = build_reshape(g, v, 4, (int64_t[]){t->dim[0], t->dim[1], heads, t->dim[2] / heads});
    return build_transpose(g, s, (int[]){0, 2, 1, 3});
}

typedef struct {
    Val q, k, v; /* [batch, heads, sequence, size] */
    Val bias;    /* {0}: none */
    bool causal;
    int64_t window; /* keys that a query attends up to its own position; -1: all */
} Heads;

/* True for the keys that a query may not attend: those behind its position, or before its window. */
static Val hidden(Graph *g, int64_t rows, int64_t columns, int64_t window)
{
    Val at = add_scalar(g, along_axis(g, iota(g, rows), 0, 2), (double)(columns - rows));
    Val key = along_axis(g, iota(g, columns), 1, 2), ahead = build2(g, OP_less, at, key);
    if (window < 0)
        return ahead;
    Val before = build2(g, OP_less_equal, key, add_scalar(g, at, -(double)window));
    return build2(g, OP_or, ahead, before);
}

static bool attend_heads(OnnxNode *n, const Heads *h)
{
    Graph *g = n->g;
    TRY(h->q.i && h->k.i && h->v.i);
    const Type q = *val_type(g, h->q), v = *val_type(g, h->v);
    double scale = attr_float(n, "scale", 0), cap = attr_float(n, "softcap", 0);
    scale = scale != 0 ? scale : 1 / sqrt((double)q.dim[3]);
    Val s = build_matmul(g, mul_scalar(g, h->q, scale), h->k, false, true);
    if (cap != 0)
        s = mul_scalar(g, one(g, OP_tanh, mul_scalar(g, s, 1 / cap)), cap);
    s = plus(g, s, h->bias);
    if (h->causal)
        s = build3(g, OP_where, hidden(g, q.dim[2], v.dim[2], h->window), scalar_like(g, s, -INFINITY), s);
    Val p = build(g, OP_softmax, NULL, 1, &s, &(AxisAttrs){3});
    Val y = build_matmul(g, p, h->v, false, false);
    y = build_transpose(g, y, (int[]){0, 2, 1, 3});
    n->out[0] = build_reshape(g, y, 3, (int64_t[]){q.dim[0], q.dim[2], q.dim[1] * v.dim[3]});
    return n->out[0].i;
}

static bool read_heads(OnnxNode *n, const Val part[3], Val bias, Heads *h)
{
    Graph *g = n->g;
    int64_t heads;
    TRY(attr_needed(n, "num_heads") && attr_int_in(n, "num_heads", 0, 1, MAX_HEADS, &heads));
    const Type *tq = val_type(g, part[0]), *tv = val_type(g, part[2]);
    if (tq->rank != 3 || tv->rank != 3 || tq->dim[2] % heads || tv->dim[2] % heads)
        return refuse(n, "%lld heads of this packing", (long long)heads);
    *h = (Heads){heads_first(g, part[0], heads),
                 heads_first(g, part[1], heads),
                 heads_first(g, part[2], heads),
                 bias,
                 attr_int(n, "unidirectional", 0) != 0,
                 -1};
    return h->q.i && h->k.i && h->v.i;
}

/* Is operand k a past of at least one position?  axis: its dimension of positions. */
static bool has_past(const OnnxNode *n, int k, int axis)
{
    return has_in(n, k) && (in_type(n, k)->rank <= axis || in_type(n, k)->dim[axis] > 0);
}

/* A key padding mask [batch, keys] of 0 and 1, or [batch] of how many keys come before the padding, becomes a
 * bias; {0} without one.  Keys are operand `keys`. */
static bool key_mask(OnnxNode *n, int k, int keys, Val *bias)
{
    Graph *g = n->g;
    *bias = (Val){0};
    if (!has_in(n, k))
        return true;
    const Type *t = in_type(n, k), *x = in_type(n, keys);
    bool counts = t->rank == 1 && x->rank == 3 && t->dim[0] == x->dim[0];
    if (t->rank != 2 && !counts)
        return refuse(n, "a mask of rank %d", t->rank);
    Val mask = build_reshape(g, n->in[k], 4, (int64_t[]){t->dim[0], 1, 1, counts ? 1 : t->dim[1]});
    if (counts) {
        Val position = build_reshape(g, iota(g, x->dim[1]), 4, (int64_t[]){1, 1, 1, x->dim[1]});
        mask = build2(g, OP_less, position, build_cast(g, mask, DT_I64));
    }
    Val zero = build_scalar(g, in_type(n, 0)->dt, 0);
    Val low = build_scalar(g, in_type(n, 0)->dt, attr_float(n, "mask_filter_value", -10000));
    *bias = build3(g, OP_where, build_cast(g, mask, DT_BOOL), zero, low);
    return true;
}

/* Projection to packed query, key and value, then attention. */
static bool import_attention(OnnxNode *n)
{
    Graph *g = n->g;
    Ints sizes;
    Heads h;
    Val bias;
    if (has_past(n, 4, 3) || has_in(n, 6))
        return refuse(n, "past state");
    if (attr_int(n, "do_rotary", 0))
        return refuse(n, "rotary embedding");
    TRY(key_mask(n, 3, 0, &bias));
    if (has_in(n, 5))
        bias = plus(g, n->in[5], bias);
    Val all = build_matmul(g, n->in[0], n->in[1], false, false), part[3];
    all = plus(g, all, has_in(n, 2) ? n->in[2] : (Val){0});
    TRY(all.i);
    const Type *t = val_type(g, all);
    bool given = has_attr(n, "qkv_hidden_sizes");
    if (t->rank != 3 || (!given && t->dim[2] % 3))
        return refuse(n, "this packing of query, key and value");
    TRY(attr_ints_in(n, "qkv_hidden_sizes", 3, t->dim[2] / 3, 0, t->dim[2], &sizes));
    int64_t start = 0;
    for (int i = 0; i < 3; i++) {
        part[i] = build_slice(g, all, 2, start, sizes.v[i]);
        TRY(part[i].i);
        start += sizes.v[i];
    }
    TRY(read_heads(n, part, bias, &h));
    if (has_out(n, 1))
        n->out[1] = build_concat(g, 2, (Val[]){insert_axis(g, h.k, 0), insert_axis(g, h.v, 0)}, 0);
    return attend_heads(n, &h);
}

static bool import_multi_head_attention(OnnxNode *n)
{
    Graph *g = n->g;
    Heads h;
    Val bias, part[3];
    if (!has_in(n, 1) || !has_in(n, 2) || has_past(n, 6, 2) || has_past(n, 7, 2))
        return refuse(n, "packed operands or past state");
    TRY(key_mask(n, 4, 1, &bias));
    if (has_in(n, 5))
        bias = plus(g, n->in[5], bias);
    int64_t start = 0;
    for (int i = 0; i < 3; i++) {
        part[i] = n->in[i];
        if (in_type(n, i)->rank != 3)
            return refuse(n, "operand %d of rank %d", i, in_type(n, i)->rank);
        int64_t size = in_type(n, i)->dim[2];
        if (has_in(n, 3))
            part[i] = plus(g, part[i], build_slice(g, n->in[3], 0, start, size));
        TRY(part[i].i);
        start += size;
    }
    TRY(read_heads(n, part, bias, &h));
    if (n->nout > 1)
        n->out[1] = h.k;
    if (n->nout > 2)
        n->out[2] = h.v;
    return attend_heads(n, &h);
}

/* ---- rotary embedding and grouped queries ---------------------------------- */

/* Rows of a table of cosines or sines, [batch or 1, sequence, half]: at positions[batch, sequence],
 * or consecutive ones from the only position on, or from 0 on if there is none. */
static Val rows_at(Graph *g, Val table, Val positions, int64_t sequence)
{
    if (!positions.i || type_count(val_type(g, positions)) == 1) {
        Val first = positions.i ? build_reshape(g, positions, 1, (int64_t[]){1}) : (Val){0};
        Val at = plus(g, iota(g, sequence), first.i ? build_cast(g, first, DT_I64) : first);
        positions = build_reshape(g, at, 2, (int64_t[]){1, sequence});
    }
    return build_gather(g, table, positions, 0);
}

static bool import_ms_rotary_embedding(OnnxNode *n)
{
    Graph *g = n->g;
    const Type t = *in_type(n, 0), *c = in_type(n, 2);
    if (attr_int(n, "is_packed_batching", 0) || attr_float(n, "scale", 1) != 1 || c->rank != 2)
        return refuse(n, "packed batches or a scale");
    TRY(indices_inside(n, 1, c->dim, 1));
    int64_t heads;
    TRY(attr_int_in(n, "num_heads", 0, 0, MAX_HEADS, &heads));
    bool four = t.rank == 4;
    if (!four && heads == 0 && t.rank == 3 && c->dim[1] > 0)
        heads = t.dim[2] / (2 * c->dim[1]);
    if (!four && (t.rank != 3 || heads < 1 || t.dim[2] % heads))
        return refuse(n, "%lld heads of this packing", (long long)heads);
    Val x = n->in[0];
    if (!four)
        x = build_reshape(g, x, 4, (int64_t[]){t.dim[0], t.dim[1], heads, t.dim[2] / heads});
    int64_t sequence = t.dim[four ? 2 : 1];
    Val cosine = rows_at(g, n->in[2], n->in[1], sequence), sine = rows_at(g, n->in[3], n->in[1], sequence);
    TRY(cosine.i && sine.i);
    Val y = build_rotary(g, x, four, cosine, sine, attr_int(n, "interleaved", 0) != 0);
    n->out[0] = build_reshape(g, y, t.rank, t.dim);
    return n->out[0].i;
}

/* Queries, keys and values as they are, or packed into the first operand. */
static bool grouped_operands(OnnxNode *n, int64_t heads, int64_t shared, Heads *h)
{
    Graph *g = n->g;
    const Type *t = in_type(n, 0);
    Val part[3] = {n->in[0], n->in[1], n->in[2]};
    if (heads % shared || t->rank != 3)
        return refuse(n, "%lld heads over %lld", (long long)heads, (long long)shared);
    if (!has_in(n, 1)) {
        int64_t all = heads + 2 * shared, size = t->dim[2] / all;
        if (t->dim[2] % all)
            return refuse(n, "this packing of query, key and value");
        part[0] = build_slice(g, n->in[0], 2, 0, heads * size);
        part[1] = build_slice(g, n->in[0], 2, heads * size, shared * size);
        part[2] = build_slice(g, n->in[0], 2, (heads + shared) * size, shared * size);
    }
    TRY(part[0].i && part[1].i && part[2].i);
    for (int i = 0; i < 3; i++)
        if (val_type(g, part[i])->dim[2] % (i ? shared : heads))
            return refuse(n, "this packing of query, key and value");
    h->q = heads_first(g, part[0], heads);
    h->k = heads_first(g, part[1], shared);
    h->v = heads_first(g, part[2], shared);
    return h->q.i && h->k.i && h->v.i;
}

/* Causal attention whose heads share keys.  Sequence lengths are not read: they say how many rows are
 * valid, and these attend no key behind them anyway. */
static bool import_group_query_attention(OnnxNode *n)
{
    Graph *g = n->g;
    int64_t heads, shared;
    Heads h = {.bias = has_in(n, 10) ? n->in[10] : (Val){0}, .causal = true};
    TRY(attr_needed(n, "num_heads") && attr_int_in(n, "num_heads", 0, 1, MAX_HEADS, &heads));
    TRY(attr_needed(n, "kv_num_heads") && attr_int_in(n, "kv_num_heads", 0, 1, MAX_HEADS, &shared));
    TRY(attr_int_in(n, "local_window_size", -1, -1, MAX_ELEMENTS, &h.window));
    if (has_past(n, 3, 2) || has_past(n, 4, 2))
        return refuse(n, "past state");
    if (has_in(n, 11) || attr_int(n, "smooth_softmax", 0) > 0)
        return refuse(n, "a sink in the softmax");
    TRY(grouped_operands(n, heads, shared, &h));
    if (attr_int(n, "do_rotary", 0)) {
        bool pairs = attr_int(n, "rotary_interleaved", 0) != 0;
        int64_t sequence = in_type(n, 0)->dim[1];
        Val at = has_in(n, 9) ? n->in[9] : (Val){0};
        Val cosine = rows_at(g, n->in[7], at, sequence), sine = rows_at(g, n->in[8], at, sequence);
        TRY(cosine.i && sine.i);
        h.q = build_rotary(g, h.q, true, cosine, sine, pairs);
        h.k = build_rotary(g, h.k, true, cosine, sine, pairs);
        TRY(h.q.i && h.k.i);
    }
    if (n->nout > 1)
        n->out[1] = h.k;
    if (n->nout > 2)
        n->out[2] = h.v;
    h.k = repeat_each(g, h.k, 1, heads / shared);
    h.v = repeat_each(g, h.v, 1, heads / shared);
    return attend_heads(n, &h);
}

#define MS .domain = "com.microsoft"
const OnnxOp onnx_vendor[] = {
    {"Attention", 1, .import = import_attention, .weights = 6, MS},
    {"BiasGelu", 1, .import = import_gelu, .weights = 2, MS, .native = OP_gelu},
    {"EmbedLayerNormalization", 1, .import = import_embed_layer_norm, .weights = 0x7c, MS},
    {"FastGelu", 1, .import = import_gelu, .weights = 2, MS, .native = OP_gelu_tanh},
    {"FusedConv", 1, .import = import_fused_conv, .weights = 6, MS},
    {"FusedGemm", 1, .import = import_fused_gemm, .weights = 6, MS},
    {"FusedMatMul", 1, .import = import_fused_matmul, .weights = 2, MS},
    {"Gelu", 1, .import = import_gelu, MS, .native = OP_gelu},
    {"GroupQueryAttention", 1, .import = import_group_query_attention, MS},
    {"MultiHeadAttention", 1, .import = import_multi_head_attention, .weights = 8, MS},
    {"QuickGelu", 1, .import = import_quick_gelu, MS},
    {"RotaryEmbedding", 1, .import = import_ms_rotary_embedding, MS},
    {"SimplifiedLayerNormalization", 1, .import = import_simplified_layer_norm, .weights = 2},
    {"SkipLayerNormalization", 1, .import = import_skip_layer_norm, .weights = 0x1c, MS},
    {"SkipSimplifiedLayerNormalization", 1, .import = import_skip_simplified_layer_norm, .weights = 0xc, MS},
    {"TransposeMatMul", 1, .import = import_fused_matmul, .weights = 2, MS}, /* FusedMatMul's old name */
    {0},
};
