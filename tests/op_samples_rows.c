/* op_samples_rows.c -- samplers of the operators that move elements, work on rows, draw random numbers or
 * update parameters. */
#include "op_samples_int.h"
#include <math.h>

static Type kept_shape(Type t, uint32_t ones)
{
    for (int i = 0; i < t.rank; i++)
        if (ones >> i & 1)
            t.dim[i] = 1;
    return t;
}

/* ---- moving elements ----------------------------------------------------------------- */

static void reshape(Sample *s)
{
    Type t = sample_shape(s, 0, 4), back = {.rank = t.rank};
    for (int i = 0; i < t.rank; i++)
        back.dim[i] = t.dim[t.rank - 1 - i];
    sample_reals(s, t, -2, 2);
    Ints flat = {1, {type_count(&t)}};
    sample_build(s, &(ShapeAttrs){sample_chance(s, 50) ? flat : sample_all_dims(&back)});
}

static void whole(Sample *s)
{
    sample_reals(s, sample_shape(s, 0, 4), -2, 2);
    sample_build(s, NULL);
}

static void transpose(Sample *s)
{
    Type t = sample_shape(s, 0, 5);
    Ints perm = {.n = t.rank};
    for (int i = 0; i < t.rank; i++) {
        int j = sample_int(s, 0, i);
        perm.v[i] = perm.v[j];
        perm.v[j] = i;
    }
    sample_reals(s, t, -2, 2);
    sample_build(s, &(TransposeAttrs){perm});
}

static void expand(Sample *s)
{
    Type t = sample_shape(s, 0, 4);
    sample_reals(s, sample_narrower(s, t), -2, 2);
    sample_build(s, &(ShapeAttrs){sample_all_dims(&t)});
}

/* The attributes of a random slice of *whole; *part: the slice's type. */
static SliceAttrs window_of(Sample *s, const Type *whole, Type *part)
{
    SliceAttrs at = {.start.n = whole->rank, .step.n = whole->rank, .size.n = whole->rank};
    *part = *whole;
    for (int i = 0; i < whole->rank; i++) {
        int n = (int)whole->dim[i], step = sample_int(s, 1, 2);
        int start = n ? sample_int(s, 0, n - 1) : 0;
        bool back = sample_chance(s, 30);
        int room = n ? (back ? start : n - 1 - start) / step + 1 : 0;
        at.start.v[i] = start;
        at.step.v[i] = back ? -step : step;
        at.size.v[i] = part->dim[i] = room ? sample_int(s, 1, room) : 0;
    }
    return at;
}

static void slice(Sample *s)
{
    Type t = sample_shape(s, 0, 4), part;
    SliceAttrs at = window_of(s, &t, &part);
    sample_reals(s, t, -2, 2);
    sample_build(s, &at);
}

static void slice_bwd(Sample *s)
{
    Type t = sample_shape(s, 1, 4), part;
    SliceAttrs at = window_of(s, &t, &part);
    at.size = sample_all_dims(&t);
    sample_reals(s, part, -2, 2);
    sample_build(s, &at);
}

/* Offloads an operand and fetches it: nothing but fetch reads what is offloaded. */
static void move(Sample *s)
{
    sample_table(s, sample_shape(s, 0, 3));
    s->out[0] = build1(&s->g, OP_fetch, build1(&s->g, OP_offload, s->in[0]));
}

static void concat(Sample *s)
{
    Type t = sample_shape(s, 1, 4);
    int axis = sample_int(s, 0, t.rank - 1), n = sample_int(s, 1, 4);
    for (int i = 0; i < n; i++) {
        t.dim[axis] = sample_extent(s);
        sample_reals(s, t, -2, 2);
    }
    sample_build(s, &(AxisAttrs){axis});
}

static void pad(Sample *s)
{
    s->empty = false;
    Type t = sample_shape(s, 0, 4);
    PadAttrs at = {
        .before.n = t.rank, .after.n = t.rank, .mode = sample_int(s, 0, 3), .value = 3};
    for (int i = 0; i < t.rank; i++) {
        at.before.v[i] = sample_int(s, 0, 3);
        at.after.v[i] = sample_int(s, 0, 3);
    }
    sample_table(s, t);
    sample_build(s, &at);
}

/* ---- rows ---------------------------------------------------------------------------- */

static void reduce(Sample *s)
{
    s->empty = s->empty && s->op == OP_reduce_sum;
    Type t = sample_shape(s, 0, 4);
    ReduceAttrs at = {.keepdims = sample_chance(s, 50)};
    for (int i = 0; i < t.rank; i++)
        if (sample_chance(s, 50))
            at.axes.v[at.axes.n++] = i;
    sample_reals(s, t, -2, 2);
    sample_build(s, &at);
}

static void matmul(Sample *s)
{
    Type batch = sample_shape(s, 0, 2), a = batch, b = sample_narrower(s, batch);
    MatmulAttrs at = {.ta = sample_chance(s, 50), .tb = sample_chance(s, 50)};
    int64_t m = sample_extent(s), n = sample_extent(s), k = sample_extent(s);
    a.dim[a.rank++] = at.ta ? k : m;
    a.dim[a.rank++] = at.ta ? m : k;
    b.dim[b.rank++] = at.tb ? n : k;
    b.dim[b.rank++] = at.tb ? k : n;
    sample_reals(s, a, -1, 1);
    sample_reals(s, b, -1, 1);
    Type y = batch;
    y.dim[y.rank++] = m;
    y.dim[y.rank++] = n;
    if (s->op == OP_matmul_add || s->op == OP_matmul_gelu_bwd ||
        (s->op == OP_matmul_bias && sample_chance(s, 50)))
        sample_reals(s, y, -1, 1);
    else if (s->op == OP_matmul_bias || s->op == OP_matmul_gelu)
        s->in[s->nin++] = (Val){0};
    if (s->op == OP_matmul_bias || s->op == OP_matmul_gelu)
        sample_reals(s, type_make(s->dt, 1, &n), -1, 1);
    sample_build(s, &at);
}

static void matmul_panels(Sample *s)
{
    int64_t k = sample_extent(s);
    sample_reals(s, type_make(s->dt, 2, (int64_t[]){sample_extent(s), k}), -1, 1);
    sample_reals(s, type_make(s->dt, 3, (int64_t[]){sample_extent(s), k, sample_extent(s)}), -1, 1);
    sample_build(s, NULL);
}

static void rows(Sample *s)
{
    Type t = sample_shape(s, 1, 4);
    for (int i = 0; i < op_table[s->op]->min_in; i++)
        sample_reals(s, t, -2, 2);
    sample_build(s, &(AxisAttrs){sample_int(s, 0, t.rank - 1)});
}

static void norm(Sample *s)
{
    s->empty = false;
    Type t = sample_shape(s, 1, 4);
    NormAttrs at = {sample_int(s, 0, t.rank - 1), 1e-5};
    uint32_t axes = (1u << t.rank) - (1u << at.axis);
    Type stat = type_with(kept_shape(t, axes), dtype_sum(s->dt)), scale = sample_narrower(s, t);
    bool rms = s->op == OP_rms_norm || s->op == OP_rms_norm_bwd,
         scaled = sample_chance(s, 70);
    bool forward = s->op == OP_rms_norm || s->op == OP_layer_norm;
    if (!forward)
        sample_reals(s, t, -1, 1);
    sample_reals(s, t, -2, 2);
    for (int i = rms; i < 2 && !forward; i++)
        sample_reals(s, stat, 0.5, 1.5);
    for (int i = rms && forward; scaled && i < (forward ? 2 : 1); i++)
        sample_reals(s, scale, 0.5, 2);
    sample_build(s, &at);
}

static void batch_norm(Sample *s)
{
    s->empty = false;
    Type t = sample_shape(s, 2, 4);
    t.dim[0] = sample_int(s, 2, 4);
    int64_t axis = sample_chance(s, 60) ? 1 : t.rank - 1;
    Type c = type_make(s->dt, 1, &t.dim[axis]);
    if (s->op == OP_batch_norm_bwd)
        sample_reals(s, t, -1, 1);
    sample_reals(s, t, -2, 2);
    for (int i = 0; i < (s->op == OP_batch_norm_bwd ? 3 : 2); i++)
        sample_reals(s, i ? type_with(c, dtype_sum(s->dt)) : c, 0.5, 1.5);
    sample_build(s, &(NormAttrs){axis, 1e-5});
}

static void rng(Sample *s)
{
    sample_ints(s, type_make(DT_I64, 1, (int64_t[]){2}), 1, 1000);
}

/* Appends, with that chance, an operand of type dt that broadcasts to the scores, else an absent one. */
static void to_scores(Sample *s, Type scores, DType dt, int percent)
{
    if (sample_chance(s, percent))
        sample_numbers(s, type_with(sample_narrower(s, scores), dt), -1, 1);
    else
        s->in[s->nin++] = (Val){0};
}

/* Appends the last operand once more. */
static void again(Sample *s)
{
    s->in[s->nin] = s->in[s->nin - 1];
    s->data[s->nin] = s->data[s->nin - 1];
    s->nin++;
}

static void attention_operands(Sample *s, const Type t[4], bool packed)
{
    bool forward = s->op == OP_attention;
    if (!forward)
        sample_reals(s, t[3], -1, 1);
    for (int i = 0; i < 3; i++) {
        if (packed && i > 0)
            again(s);
        else
            sample_reals(s, t[i], -1, 1);
    }
    if (!forward)
        sample_reals(s, t[3], -1, 1);
}

/* Chooses where the h heads of q, g of k and g of v lie in one value: those of each together, or by turns. */
static void pack_heads(Sample *s, AttentionAttrs *at, int64_t h, int64_t g)
{
    const int first = sample_int(s, 0, 2), next = sample_int(s, 1, 2);
    const int64_t n[] = {h, g, g};
    const bool turns = h == g && sample_chance(s, 50);
    int64_t from = 0;
    at->groups = g;
    at->packed.n = 6;
    for (int k = 0; k < 3; k++) {
        int i = (first + k * next) % 3;
        at->packed.v[2 * i] = from;
        at->packed.v[2 * i + 1] = turns ? 3 : 1;
        from += turns ? 1 : n[i];
    }
}

/* At times there are more rows than one block has, heads that share keys, or heads of v of a size of their
 * own. */
static void attention(Sample *s)
{
    s->empty = false;
    const bool large = sample_chance(s, 15) || s->size, forward = s->op == OP_attention;
    int64_t b = s->size ? 1 : sample_int(s, 1, 2), g = s->size ? 1 : sample_int(s, 1, 2);
    int64_t h = g * sample_int(s, 1, 2);
    int64_t rows = large ? 70 : sample_extent(s), cols = large ? 67 : sample_extent(s);
    int64_t size = s->size ? s->size : sample_extent(s);
    AttentionAttrs at = {.scale = sample_real(s, 0.2, 1) / (s->size > 32 ? 4 : 1),
                         .hides = sample_int(s, HIDES_ALL, HIDES_SCORE),
                         .p = 0.3,
                         .key = sample_int(s, 1, 99),
                         .causal = sample_chance(s, 40),
                         .diagonal = sample_int(s, 0, 3),
                         .cap = sample_chance(s, 30) ? 0.8 : 0,
                         .guard = sample_int(s, GUARD_NONE, GUARD_UNSEEN),
                         .window = sample_chance(s, 30) ? large ? 9 : 2 : 0,
                         .fill = -2};
    Type t[4];
    if (s->size)
        cols += sample_int(s, 0, 1); /* 68 is a multiple of 4: dropout draws four at a time */
    if (s->size && sample_chance(s, 50))
        at.fill = -INFINITY;
    else if (at.hides == HIDES_ALL && sample_chance(s, 50))
        at.fill = -1e30; /* elsewhere it would swallow differences */
    const bool packed =
        s->op == OP_attention_packed_grad || (s->op != OP_attention_grad && sample_chance(s, 30));
    if (packed) {
        rows = cols;
        pack_heads(s, &at, h, g);
    }
    if (!forward && sample_chance(s, 50))
        at.out = s->dt;
    const int64_t other = s->v_size ? s->v_size : s->size || sample_chance(s, 60) ? size : sample_extent(s);
    at.layout.n = 4;
    for (int i = 0; i < 4; i++) {
        at.layout.v[i] = packed && i > 0 && i < 3 ? at.layout.v[0] : sample_int(s, 0, 2);
        const int *p = attention_place[at.layout.v[i]];
        int64_t dim[4] = {[3] = i < 2 || packed ? size : other};
        dim[p[0]] = b;
        dim[p[1]] = i == 3 ? h : packed ? h + 2 * g : i ? g : h;
        dim[p[2]] = i == 1 || i == 2 ? cols : rows;
        t[i] = type_make(s->dt, 4, dim);
    }
    attention_operands(s, t, packed);
    Type scores = type_make(s->dt, 4, (int64_t[]){b, h, rows, cols});
    if (!forward) {
        Type row = type_make(s->dt == DT_F64 ? DT_F64 : DT_F32, 3, scores.dim);
        sample_reals(s, row, 1, 2);
        sample_reals(s, row, 0.1, 0.5);
    }
    to_scores(s, scores, DT_BOOL, 40);
    to_scores(s, scores, s->dt, s->op == OP_attention_bias_grad ? 100 : 40);
    if (forward && sample_chance(s, 30))
        sample_reals(s, type_make(s->dt, 1, &h), -1, 1);
    else if (forward)
        s->in[s->nin++] = (Val){0};
    if (sample_chance(s, 40))
        rng(s);
    else
        s->in[s->nin++] = (Val){0};
    sample_build(s, &at);
}

static void cross_entropy(Sample *s)
{
    s->empty = false;
    Type t = sample_shape(s, 1, 3);
    int axis = sample_int(s, 0, t.rank - 1), all = (int)t.dim[axis];
    int classes = sample_chance(s, 70) ? all : sample_int(s, 1, all);
    Type rest = {.dt = s->dt};
    for (int i = 0; i < t.rank; i++)
        if (i != axis)
            rest.dim[rest.rank++] = t.dim[i];
    if (s->op == OP_cross_entropy_bwd)
        sample_reals(s, rest, -1, 1);
    sample_reals(s, t, -2, 2);
    bool negative = sample_chance(s, 50);
    sample_ints(s, type_with(rest, sample_some_int(s)), negative ? -classes : 0, classes - 1);
    for (int i = 0; i < 2 && s->op == OP_cross_entropy_bwd; i++)
        sample_reals(s, type_with(rest, dtype_sum(s->dt)), i ? 0 : 1, 2);
    int64_t count = classes < all ? classes : 0;
    sample_build(s, &(CrossEntropyAttrs){axis, 0, sample_chance(s, 50), negative, count});
}

/* ---- random, optimizers -------------------------------------------------------------- */

static void dropout(Sample *s)
{
    sample_reals(s, sample_shape(s, 1, 3), -2, 2);
    rng(s);
    sample_build(s, &(DropoutAttrs){0.4, sample_int(s, 1, 99)});
}

static void noise(Sample *s)
{
    Type t = sample_shape(s, 0, 3);
    rng(s);
    sample_build(s,
                 &(RandomAttrs){sample_all_dims(&t), s->dt, sample_int(s, 1, 99), -0.5, 2});
}

static void optimizer(Sample *s)
{
    Type t = sample_shape(s, 0, 3);
    int nout = op_table[s->op]->nout;
    for (int i = 0; i < nout + 1; i++)
        sample_reals(s, t, i == 3 ? 0.1 : -1, 1);
    while (s->nin < op_table[s->op]->min_in)
        sample_scalar(s, s->dt,
                      s->op == OP_momentum && s->nin == 4 ? sample_chance(s, 50) : 0.125);
    SgdAttrs sgd = {0.9, 0.1, 0.01, sample_chance(s, 50)};
    AdamAttrs adam = {0.9, 0.999, 1e-8, 0.01};
    LionAttrs lion = {0.9, 0.99, 0.01};
    sample_build(s, s->op == OP_adamw  ? (const void *)&adam
                    : s->op == OP_lion ? (const void *)&lion
                                       : (const void *)&sgd);
}

static void adafactor(Sample *s)
{
    Type t = sample_shape(s, 0, 3), mean = t;
    bool columns = t.rank > 1;
    for (int i = 0; i < 2; i++)
        sample_reals(s, t, -1, 1);
    if (columns)
        mean.dim[t.rank - 1] = 1;
    sample_reals(s, mean, 0.1, 1);
    for (int i = 0; i < 2; i++)
        sample_scalar(s, s->dt, 0.125);
    if (columns) {
        mean = t;
        mean.dim[t.rank - 2] = 1;
        sample_reals(s, mean, 0.1, 1);
    }
    sample_build(s, &(AdafactorAttrs){1e-3, 0.01});
}

SampleFn *const sample_rows[OP_COUNT] = {
    [OP_accumulated] = whole,
    [OP_detach] = whole,
    [OP_reshape] = reshape,
    [OP_transpose] = transpose,
    [OP_expand] = expand,
    [OP_slice] = slice,
    [OP_slice_bwd] = slice_bwd,
    [OP_concat] = concat,
    [OP_offload] = move,
    [OP_fetch] = move,
    [OP_pad] = pad,
    [OP_reduce_sum] = reduce,
    [OP_reduce_max] = reduce,
    [OP_reduce_min] = reduce,
    [OP_reduce_prod] = reduce,
    [OP_reduce_log_sum_exp] = reduce,
    [OP_matmul] = matmul,
    [OP_matmul_add] = matmul,
    [OP_matmul_bias] = matmul,
    [OP_matmul_gelu] = matmul,
    [OP_matmul_panels] = matmul_panels,
    [OP_matmul_gelu_bwd] = matmul,
    [OP_attention] = attention,
    [OP_attention_grad] = attention,
    [OP_attention_packed_grad] = attention,
    [OP_attention_bias_grad] = attention,
    [OP_softmax] = rows,
    [OP_softmax_bwd] = rows,
    [OP_log_softmax] = rows,
    [OP_log_softmax_bwd] = rows,
    [OP_layer_norm] = norm,
    [OP_layer_norm_bwd] = norm,
    [OP_rms_norm] = norm,
    [OP_rms_norm_bwd] = norm,
    [OP_batch_norm] = batch_norm,
    [OP_batch_norm_bwd] = batch_norm,
    [OP_cross_entropy] = cross_entropy,
    [OP_cross_entropy_bwd] = cross_entropy,
    [OP_dropout] = dropout,
    [OP_uniform] = noise,
    [OP_normal] = noise,
    [OP_sgd] = optimizer,
    [OP_momentum] = optimizer,
    [OP_adamw] = optimizer,
    [OP_lion] = optimizer,
    [OP_adafactor] = adafactor,
};
