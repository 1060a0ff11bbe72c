/* attention_onnx.c -- attention and its gradients as products, exponentials and sums of the standard
 * operators: what attention.c computes row by row, with the scores stored. */
#include "attention.h"
#include <string.h>

typedef struct {
    OnnxNodes *o;
    const Graph *g;
    const Node *n;
    const AttentionAttrs *at;
    DType dt; /* type of arithmetic */
    int64_t batch, heads, groups, rows, cols, size, v_size;
    OnnxVal q, k, v; /* [batch, heads, rows or cols, size] */
    OnnxVal hidden;  /* bool, broadcasts to the scores: which ones are masked; 0: none */
    OnnxVal slope;   /* derivative of the cap, 1 - tanh^2; 0: there is no cap */
    OnnxVal keep;    /* factors of dropout; 0: there is none */
} Attention;

static const int *place_of(const AttentionAttrs *at, int operand)
{
    return attention_place[operand < at->layout.n ? at->layout.v[operand] : 0];
}

/* An operand as [batch, heads, rows, size]. */
static OnnxVal plain(const Attention *s, int operand, OnnxVal v)
{
    return onnx_transpose(s->o, v, 4, place_of(s->at, operand));
}

/* The inverse of plain(): v in the operand's layout. */
static OnnxVal laid_out(const Attention *s, int operand, OnnxVal v)
{
    int perm[4];
    for (int i = 0; i < 4; i++)
        perm[place_of(s->at, operand)[i]] = i;
    return onnx_transpose(s->o, v, 4, perm);
}

static OnnxVal mul(const Attention *s, OnnxVal a, OnnxVal b) { return onnx_op2(s->o, "Mul", a, b); }
static OnnxVal num(const Attention *s, double v) { return onnx_scalar(s->o, s->dt, v); }

/* The `count` heads of q, k or v (i: 0, 1, 2), which may be some of those of a packed value. */
static OnnxVal unpacked(const Attention *s, int i, OnnxVal v, int64_t count)
{
    const int64_t *part = &s->at->packed.v[2 * i];
    return s->at->packed.n ? onnx_slice(s->o, v, 1, part[0], part[0] + (count - 1) * part[1] + 1, part[1])
                           : v;
}

/* Repeats each head of k or v, which are of that size, for all query heads that it serves. */
static OnnxVal repeated(const Attention *s, OnnxVal v, int64_t size)
{
    int64_t share = s->heads / s->groups;
    if (share == 1)
        return v;
    v = onnx_reshape(s->o, v, 5, (int64_t[]){s->batch, s->groups, 1, s->cols, size});
    v = onnx_expand(s->o, v, 5, (int64_t[]){s->batch, s->groups, share, s->cols, size});
    return onnx_reshape(s->o, v, 4, (int64_t[]){s->batch, s->heads, s->cols, size});
}

/* Sums over the query heads that share a head of k or v. */
static OnnxVal shared(const Attention *s, OnnxVal v, int64_t size)
{
    int64_t share = s->heads / s->groups;
    if (share == 1)
        return v;
    v = onnx_reshape(s->o, v, 5, (int64_t[]){s->batch, s->groups, share, s->cols, size});
    return onnx_reduced(s->o, "ReduceSum", v, 1u << 2, false);
}

/* Which scores are hidden: those beyond the limits, as a table, and those of the mask. */
static OnnxVal hidden_of(const Attention *s, OnnxVal mask)
{
    const AttentionAttrs *at = s->at;
    if (!at->causal && at->window <= 0)
        return mask;
    Type t = type_make(DT_BOOL, 2, (int64_t[]){s->rows, s->cols});
    Tensor table = {t, arena_alloc(onnx_arena(s->o), (size_t)type_bytes(&t) + 1, 1)};
    for (int64_t r = 0; r < s->rows; r++)
        for (int64_t c = 0; c < s->cols; c++) {
            int64_t off = c - r - at->diagonal;
            tensor_set_i(&table, r * s->cols + c,
                         (at->causal && off > 0) || (at->window > 0 && off <= -at->window));
        }
    OnnxVal v = onnx_table(s->o, &table);
    return mask.i ? onnx_op2(s->o, "Or", v, mask) : v;
}

static OnnxVal where(const Attention *s, OnnxVal condition, OnnxVal a, OnnxVal b)
{
    return onnx_op(s->o, "Where", s->dt, 3, (OnnxVal[]){condition, a, b});
}

/* Factors of dropout.  An element's number is the sum of a table for the rows and one for the columns. */
static OnnxVal dropout_of(const Attention *s, OnnxVal rng)
{
    int64_t lines = s->batch * s->heads * s->rows, *at = NEW(onnx_arena(s->o), int64_t, lines + s->cols);
    for (int64_t i = 0; i < lines; i++)
        at[i] = i * s->cols;
    Type t = type_make(DT_I64, 4, (int64_t[]){s->batch, s->heads, s->rows, 1});
    OnnxVal line = onnx_table(s->o, &(Tensor){t, at});
    for (int64_t i = 0; i < s->cols; i++)
        at[i] = i;
    OnnxVal column = onnx_table(s->o, &(Tensor){type_make(DT_I64, 1, &s->cols), at});
    OnnxVal u = onnx_uniform(s->o, onnx_slice(s->o, rng, 0, 0, 1, 1), s->at->key,
                             onnx_slice(s->o, rng, 0, 1, 2, 1), onnx_op2(s->o, "Add", line, column), s->dt);
    OnnxVal kept = onnx_op(s->o, "GreaterOrEqual", DT_BOOL, 2, (OnnxVal[]){u, num(s, s->at->p)});
    return where(s, kept, num(s, s->at->p < 1 ? 1 / (1 - s->at->p) : 0), num(s, 0));
}

static void setup(Attention *s, OnnxNodes *o, const Graph *g, const Node *n, int first, int mask)
{
    const AttentionAttrs *at = n->attr;
    const int *pq = place_of(at, 0), *pk = place_of(at, 1);
    const Type *q = in_type(g, n, first), *k = in_type(g, n, first + 1);
    *s = (Attention){.o = o,
                     .g = g,
                     .n = n,
                     .at = at,
                     .dt = dtype_sum(q->dt),
                     .batch = q->dim[pq[0]],
                     .heads = q->dim[pq[1]],
                     .groups = k->dim[pk[1]],
                     .rows = q->dim[pq[2]],
                     .cols = k->dim[pk[2]],
                     .size = q->dim[3],
                     .v_size = in_type(g, n, first + 2)->dim[3]};
    if (at->packed.n) {
        s->heads -= 2 * at->groups;
        s->groups = at->groups;
    }
    s->q = unpacked(s, 0, plain(s, 0, onnx_in(o, first)), s->heads);
    s->k = repeated(s, unpacked(s, 1, plain(s, 1, onnx_in(o, first + 1)), s->groups), s->size);
    s->v = repeated(s, unpacked(s, 2, plain(s, 2, onnx_in(o, first + 2)), s->groups), s->v_size);
    s->hidden = hidden_of(s, onnx_in(o, mask));
    if (has_in(n, n->nin - 1))
        s->keep = dropout_of(s, onnx_in(o, n->nin - 1));
}

static OnnxVal product(const Attention *s, OnnxVal a, OnnxVal b, bool ta, bool tb)
{
    static const int turn[] = {0, 1, 3, 2};
    a = ta ? onnx_transpose(s->o, a, 4, turn) : a;
    return onnx_op2(s->o, "MatMul", a, tb ? onnx_transpose(s->o, b, 4, turn) : b);
}

static OnnxVal scores(Attention *s, OnnxVal bias)
{
    const AttentionAttrs *at = s->at;
    OnnxVal x = product(s, mul(s, s->q, num(s, at->scale)), s->k, false, true);
    if (at->cap > 0) {
        OnnxVal t = onnx_op1(s->o, "Tanh", onnx_op2(s->o, "Div", x, num(s, at->cap)));
        s->slope = onnx_op2(s->o, "Sub", num(s, 1), mul(s, t, t));
        x = mul(s, t, num(s, at->cap));
    }
    if (s->hidden.i && at->hides == HIDES_SCORE)
        x = where(s, s->hidden, num(s, at->fill), x);
    if (bias.i)
        x = onnx_op2(s->o, "Add", x, bias);
    if (s->hidden.i && at->hides == HIDES_ADDED)
        x = where(s, s->hidden, onnx_op2(s->o, "Add", x, num(s, at->fill)), x);
    if (s->hidden.i && at->hides == HIDES_ALL)
        x = where(s, s->hidden, num(s, at->fill), x);
    return x;
}

/* exp(scores - top); where all scores of a row are -inf there is nothing to subtract. */
static OnnxVal exponentials(const Attention *s, OnnxVal x, OnnxVal top)
{
    OnnxVal none = onnx_op(s->o, "IsInf", DT_BOOL, 1, &top);
    return onnx_op1(s->o, "Exp", onnx_op2(s->o, "Sub", x, where(s, none, num(s, 0), top)));
}

bool attention_onnx(OnnxNodes *o, const Graph *g, const Node *n)
{
    Attention s;
    setup(&s, o, g, n, Q, MASK);
    const Type *row = out_type(g, n, 1);
    OnnxVal x = scores(&s, onnx_in(o, BIAS)), sink = onnx_in(o, SINK);
    OnnxVal top = onnx_reduced(o, "ReduceMax", x, 1u << 3, true), e, sum;
    if (sink.i) {
        sink = onnx_reshape(o, sink, 4, (int64_t[]){1, s.heads, 1, 1});
        top = onnx_op2(o, "Max", top, sink);
    }
    e = exponentials(&s, x, top);
    sum = onnx_reduced(o, "ReduceSum", e, 1u << 3, true);
    if (sink.i)
        sum = onnx_op2(o, "Add", sum, onnx_op1(o, "Exp", onnx_op2(o, "Sub", sink, top)));
    e = s.keep.i ? mul(&s, e, s.keep) : e;
    OnnxVal inv = onnx_op2(o, "Div", num(&s, 1), sum), y = mul(&s, product(&s, e, s.v, false, false), inv);
    if (s.at->guard) {
        bool unseen = s.at->guard == GUARD_UNSEEN; /* a row of NaN stays one */
        OnnxVal some = onnx_op(o, unseen ? "Equal" : "Greater", DT_BOOL, 2, (OnnxVal[]){sum, num(&s, 0)});
        some = unseen ? onnx_op(o, "Not", DT_BOOL, 1, &some) : some;
        inv = where(&s, some, inv, num(&s, 0));
        y = where(&s, some, y, num(&s, 0));
    }
    onnx_out(o, 0, laid_out(&s, 3, y));
    onnx_out(o, 1, onnx_reshape(o, top, row->rank, row->dim));
    onnx_out(o, 2, onnx_reshape(o, inv, row->rank, row->dim));
    return true;
}

/* ---- gradients ------------------------------------------------------------------------------ */

/* Stores dbias: ds summed over the dimensions along which the bias is broadcast. */
static void bias_gradient(const Attention *s, OnnxVal ds)
{
    const Type *t = out_type(s->g, s->n, 0);
    int64_t dim[4] = {s->batch, s->heads, s->rows, s->cols};
    uint32_t axes = 0;
    for (int i = 0; i < 4; i++) {
        int own = i - (4 - t->rank);
        axes |= (uint32_t)(dim[i] != 1 && (own < 0 || t->dim[own] == 1)) << i;
    }
    OnnxVal r = onnx_reduced(s->o, "ReduceSum", ds, axes, true);
    onnx_out(s->o, 0, onnx_reshape(s->o, r, t->rank, t->dim));
}

/* The packed gradient, with the heads of dq, dk and dv at their places. */
static OnnxVal packed(const Attention *s, const OnnxVal d[3])
{
    const Type *t = in_type(s->g, s->n, B_Q);
    int64_t all = t->dim[place_of(s->at, 0)[1]], *from = NEW(onnx_arena(s->o), int64_t, all + 1);
    int64_t n[] = {s->heads, s->groups, s->groups}, at = 0;
    for (int i = 0; i < 3; i++)
        for (int64_t h = 0; h < n[i]; h++)
            from[s->at->packed.v[2 * i] + h * s->at->packed.v[2 * i + 1]] = at++;
    OnnxVal heads = onnx_op3(s->o, "Concat", d[0], d[1], d[2]);
    onnx_attr(s->o, "axis", 1);
    OnnxVal index = onnx_table(s->o, &(Tensor){type_make(DT_I64, 1, &all), from});
    OnnxVal r = onnx_op2(s->o, "Gather", heads, index);
    onnx_attr(s->o, "axis", 1);
    return laid_out(s, 0, r);
}

bool attention_grad_onnx(OnnxNodes *o, const Graph *g, const Node *n)
{
    Attention s;
    setup(&s, o, g, n, B_Q, B_MASK);
    int64_t row[] = {s.batch, s.heads, s.rows, 1};
    OnnxVal x = scores(&s, onnx_in(o, B_BIAS)), inv = onnx_reshape(o, onnx_in(o, B_INV), 4, row);
    OnnxVal top = onnx_reshape(o, onnx_in(o, B_TOP), 4, row), p = mul(&s, exponentials(&s, x, top), inv);
    OnnxVal dy = plain(&s, 3, onnx_in(o, B_DO)), y = plain(&s, 3, onnx_in(o, B_O));
    OnnxVal delta = onnx_reduced(o, "ReduceSum", mul(&s, dy, y), 1u << 3, true);
    OnnxVal dp = product(&s, dy, s.v, false, true);
    OnnxVal ds = mul(&s, p, onnx_op2(o, "Sub", s.keep.i ? mul(&s, dp, s.keep) : dp, delta));
    p = s.keep.i ? mul(&s, p, s.keep) : p;
    bool stops = s.hidden.i && s.at->hides != HIDES_ADDED, bias = n->op == OP_attention_bias_grad;
    if (stops && !(bias && s.at->hides == HIDES_SCORE))
        ds = where(&s, s.hidden, num(&s, 0), ds);
    if (bias) {
        bias_gradient(&s, ds);
        return true;
    }
    ds = mul(&s, s.slope.i ? mul(&s, ds, s.slope) : ds, num(&s, s.at->scale));
    OnnxVal d[] = {product(&s, ds, s.k, false, false), shared(&s, product(&s, ds, s.q, true, false), s.size),
                   shared(&s, product(&s, p, dy, true, false), s.v_size)};
    if (s.at->packed.n) {
        onnx_out(o, 0, packed(&s, d));
        return true;
    }
    for (int i = 0; i < 3; i++)
        onnx_out(o, i, laid_out(&s, i, d[i]));
    return true;
}
