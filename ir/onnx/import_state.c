/* import_state.c -- sequence operators that carry a state from call to call:
 * LinearAttention, CausalConvWithState, TensorScatter. */
#include "onnx_int.h"
#include <math.h>
#include <string.h>

/* ---- LinearAttention: unrolled over time -------------------------------- */

typedef struct {
    Graph *g;
    Val q, k, v, decay, beta; /* [batch, steps, heads, size] */
    int64_t batch, steps, heads;
} Linear;

/* Reshapes an operand [batch, steps, heads * size] to [batch, steps, heads, size]. */
static bool unpack(OnnxNode *n, int operand, int64_t heads, Val *v)
{
    *v = (Val){0};
    if (!has_in(n, operand))
        return true;
    const Type *t = in_type(n, operand);
    if (t->rank != 3 || heads < 1 || t->dim[2] % heads)
        return fail(n->x->d, "operand %d does not have %lld heads", operand, (long long)heads);
    bool small = t->dt == DT_F16 || t->dt == DT_BF16; /* sums over time are kept in f32 */
    *v = build_reshape(n->g, build_cast(n->g, n->in[operand], small ? DT_F32 : t->dt), 4,
                       (int64_t[]){t->dim[0], t->dim[1], heads, t->dim[2] / heads});
    return v->i;
}

/* Step t of v as [batch, heads, size, 1] (column) or [batch, heads, 1, size]. */
static Val at_step(const Linear *a, Val v, int64_t t, bool column)
{
    if (!v.i)
        return v;
    const Type *ty = val_type(a->g, v);
    int64_t heads = ty->dim[2], size = ty->dim[3];
    return build_reshape(
        a->g, build_slice(a->g, v, 1, t, 1), 4,
        (int64_t[]){a->batch, heads, column ? size : 1, column ? 1 : size});
}

/* S = exp(decay) S + beta k (v - S^T k [if delta])^T */
static Val next_state(const Linear *a, Val s, int64_t t, bool delta)
{
    Graph *g = a->g;
    Val k = at_step(a, a->k, t, true), v = at_step(a, a->v, t, false);
    if (a->decay.i)
        s = build2(g, OP_mul, s, one(g, OP_exp, at_step(a, a->decay, t, true)));
    if (delta)
        v = build2(g, OP_sub, v, build_matmul(g, k, s, true, false));
    if (delta && a->beta.i)
        v = build2(g, OP_mul, v, at_step(a, a->beta, t, false));
    return build2(g, OP_add, s, build2(g, OP_mul, k, v));
}

static bool import_linear_attention(OnnxNode *n)
{
    Graph *g = n->g;
    int64_t qh, kh;
    TRY(attr_needed(n, "q_num_heads") && attr_int_in(n, "q_num_heads", 0, 1, MAX_HEADS, &qh));
    TRY(attr_needed(n, "kv_num_heads") && attr_int_in(n, "kv_num_heads", 0, 1, MAX_HEADS, &kh));
    const char *rule = attr_str(n, "update_rule", "gated_delta");
    bool gated = strstr(rule, "gated") != NULL, delta = strstr(rule, "delta") != NULL;
    Linear a = {.g = g};
    if (qh % kh)
        return fail(n->x->d, "%lld query heads for %lld", (long long)qh, (long long)kh);
    TRY(unpack(n, 0, qh, &a.q) && unpack(n, 1, kh, &a.k) && unpack(n, 2, kh, &a.v));
    TRY(!gated || unpack(n, 4, kh, &a.decay));
    TRY(!delta || unpack(n, 5, has_in(n, 5) && in_type(n, 5)->dim[2] == 1 ? 1 : kh, &a.beta));
    const Type *tk = val_type(g, a.k), *tv = val_type(g, a.v);
    a.batch = tk->dim[0], a.steps = tk->dim[1], a.heads = kh;
    int64_t dk = tk->dim[3], dv = tv->dim[3];
    if (a.steps > MAX_TRIPS)
        return refuse(n, "%lld steps, at most %d are unrolled", (long long)a.steps, MAX_TRIPS);
    TRY(expand_more(n->x, (size_t)a.steps));
    double scale = attr_float(n, "scale", 0);
    Val q = mul_scalar(g, a.q, scale != 0 ? scale : 1 / sqrt((double)dk));
    Val s = has_in(n, 3) ? build_cast(g, n->in[3], val_type(g, q)->dt)
                         : build_expand(g, scalar_like(g, q, 0), 4, (int64_t[]){a.batch, kh, dk, dv});
    Val *out = NEW(n->x->a, Val, a.steps + 1);
    const Type step = type_make(val_type(g, q)->dt, 3, (int64_t[]){a.batch, 1, qh * dv});
    for (int64_t t = 0; t < a.steps; t++) {
        s = next_state(&a, s, t, delta);
        Val row = build_reshape(g, build_slice(g, q, 1, t, 1), 4, (int64_t[]){a.batch, kh, qh / kh, dk});
        out[t] = build_reshape(g, build_matmul(g, row, s, false, false), step.rank, step.dim);
        TRY(out[t].i);
    }
    n->out[0] = build_cast(g, join_steps(g, a.steps, out, 1, step), in_type(n, 0)->dt);
    n->out[1] = build_cast(g, s, in_type(n, has_in(n, 3) ? 3 : 0)->dt);
    return n->out[0].i;
}

/* ---- CausalConvWithState ------------------------------------------------ */

static bool import_causal_conv(OnnxNode *n)
{
    Graph *g = n->g;
    const Type x = *in_type(n, 0), w = *in_type(n, 1);
    if (x.rank != 3 || w.rank != 3 || w.dim[2] < 1)
        return fail(n->x->d, "data and weights must have 3 dimensions");
    int64_t k = w.dim[2];
    PadAttrs pad = {.before = {3, {0, 0, k - 1}}, .after.n = 3};
    Val all = has_in(n, 3) ? build_concat(g, 2, (Val[]){n->in[3], n->in[0]}, 2)
                           : build(g, OP_pad, NULL, 1, n->in, &pad);
    ConvAttrs at = {.strides = {1, {1}}, .pads = {2, {0}}, .dilations = {1, {1}}, .group = x.dim[1]};
    Val in[3] = {all, n->in[1], has_in(n, 2) ? n->in[2] : (Val){0}};
    Val y = build(g, OP_conv, NULL, in[2].i ? 3 : 2, in, &at);
    bool plain = attr_is(n, "activation", "none", "none");
    n->out[0] = plain ? y : with_consts(g, OP_silu, y, 1, 0);
    n->out[1] = build_slice(g, all, 2, x.dim[2], k - 1);
    return n->out[0].i && n->out[1].i;
}

/* ---- TensorScatter ------------------------------------------------------ */

static bool import_tensor_scatter(OnnxNode *n)
{
    Graph *g = n->g;
    const Type t = *in_type(n, 0), u = *in_type(n, 1);
    int64_t axis;
    TRY(axis_in(n, attr_int(n, "axis", -2), t.rank, &axis));
    if (axis == 0 || u.rank != t.rank)
        return fail(n->x->d, "axis 0, or an update of another rank");
    Val index = along_axis(g, iota(g, u.dim[axis]), (int)axis, t.rank);
    if (has_in(n, 2))
        index = build2(g, OP_add, index, along_axis(g, build_cast(g, n->in[2], DT_I64), 0, t.rank));
    if (attr_is(n, "mode", "linear", "circular"))
        index = build2(g, OP_mod, index, build_scalar(g, DT_I64, (double)t.dim[axis]));
    index = build_expand(g, index, u.rank, u.dim);
    n->out[0] = build(g, OP_scatter_elements, NULL, 3, (Val[]){n->in[0], index, n->in[1]},
                      &(ScatterAttrs){.axis = axis});
    return n->out[0].i;
}

const OnnxOp onnx_state[] = {
    {"CausalConvWithState", 27, .import = import_causal_conv, .weights = 6},
    {"LinearAttention", 27, .import = import_linear_attention},
    {"TensorScatter", 24, .import = import_tensor_scatter},
    {0},
};
