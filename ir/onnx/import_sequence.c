/* import_sequence.c -- sequences of tensors, which exist while importing only.
 *
 * PyTorch's exporters split into a sequence and pick its elements by constant position.  A
 * sequence is a list of values of the graph; operators on it build nothing or slices and
 * concatenations. */
#include "onnx_int.h"

Val new_sequence(Import *x, int n, const Val *v)
{
    x->sequence = arena_grow(x->a, x->sequence, x->nsequence, &x->csequence, sizeof *x->sequence);
    Sequence *s = &x->sequence[x->nsequence];
    *s = (Sequence){.n = n, .v = NEW(x->a, Val, n + 1)};
    for (int i = 0; i < n; i++)
        s->v[i] = v[i];
    return (Val){FIRST_SEQUENCE + x->nsequence++};
}

static bool sequence_of(OnnxNode *n, int k, Sequence *s)
{
    if (!has_in(n, k) || !val_is_sequence(n->in[k]))
        return fail(n->x->d, "operand %d is not a sequence", k);
    *s = n->x->sequence[n->in[k].i - FIRST_SEQUENCE];
    return true;
}

/* A position in [0, last], counted from the end of `count` elements if negative. */
static bool position(OnnxNode *n, int k, int64_t dflt, int count, int64_t last, int64_t *at)
{
    *at = dflt;
    if (has_in(n, k))
        TRY(static_int(n, k, at));
    *at += *at < 0 ? count : 0;
    return (*at >= 0 && *at <= last) || fail(n->x->d, "position %lld", (long long)*at);
}

static bool split_to_sequence(OnnxNode *n)
{
    const Type t = *in_type(n, 0);
    int64_t axis, start = 0;
    Tensor sizes = {.type = {.rank = 0}};
    TRY(axis_in(n, attr_int(n, "axis", 0), t.rank, &axis));
    bool given = has_in(n, 1), drop = !given && !attr_int(n, "keepdims", 1);
    if (given)
        TRY(static_tensor(n, 1, &sizes));
    bool list = sizes.type.rank == 1;
    int64_t extent = t.dim[axis], part = given && !list ? tensor_i(&sizes, 0) : 1;
    if (!list && part < 1)
        return fail(n->x->d, "parts of %lld elements", (long long)part);
    int64_t count = list ? type_count(&sizes.type) : extent / part + (extent % part != 0);
    if (count > 65536)
        return refuse(n, "%lld parts", (long long)count);
    Val *v = NEW(n->x->a, Val, count + 1);
    for (int64_t i = 0; i < count; i++) {
        int64_t size = list ? tensor_i(&sizes, i) : part;
        size = !list && size > extent - start ? extent - start : size;
        if (size < 0 || size > extent - start)
            return fail(n->x->d, "parts do not fit %lld elements", (long long)extent);
        v[i] = build_slice(n->g, n->in[0], (int)axis, start, size);
        v[i] = drop ? drop_axis(n->g, v[i], (int)axis) : v[i];
        v[i] = with_data_type(n, v[i], n->in[0]);
        TRY(v[i].i);
        start += size;
    }
    n->out[0] = new_sequence(n->x, (int)count, v);
    return true;
}

static bool sequence_construct(OnnxNode *n)
{
    n->out[0] = new_sequence(n->x, n->nin, n->in);
    return true;
}

static bool sequence_at(OnnxNode *n)
{
    Sequence s;
    int64_t at;
    TRY(sequence_of(n, 0, &s) && position(n, 1, 0, s.n, s.n - 1, &at));
    n->out[0] = s.v[at];
    return true;
}

static bool sequence_insert(OnnxNode *n)
{
    Sequence s;
    int64_t at;
    TRY(sequence_of(n, 0, &s) && position(n, 2, s.n, s.n, s.n, &at));
    Val *v = NEW(n->x->a, Val, s.n + 1);
    for (int i = 0; i <= s.n; i++)
        v[i] = i < at ? s.v[i] : i == at ? n->in[1] : s.v[i - 1];
    n->out[0] = new_sequence(n->x, s.n + 1, v);
    return true;
}

static bool sequence_erase(OnnxNode *n)
{
    Sequence s;
    int64_t at;
    TRY(sequence_of(n, 0, &s) && position(n, 1, s.n - 1, s.n, s.n - 1, &at));
    Val *v = NEW(n->x->a, Val, s.n + 1);
    for (int i = 0; i < s.n - 1; i++)
        v[i] = s.v[i < at ? i : i + 1];
    n->out[0] = new_sequence(n->x, s.n - 1, v);
    return true;
}

static bool sequence_length(OnnxNode *n)
{
    Sequence s;
    TRY(sequence_of(n, 0, &s));
    int64_t count = s.n;
    n->out[0] = graph_const(n->g, "length", type_scalar(DT_I64), &count);
    return true;
}

static bool concat_from_sequence(OnnxNode *n)
{
    Sequence s;
    int64_t axis;
    TRY(sequence_of(n, 0, &s));
    bool fresh = attr_int(n, "new_axis", 0) != 0;
    if (s.n == 0)
        return refuse(n, "an empty sequence");
    const Val element = s.v[0];
    const Type *first = val_type(n->g, element);
    TRY(axis_in(n, attr_int(n, "axis", 0), first->rank + fresh, &axis));
    if (first->rank + fresh > MAX_RANK)
        return refuse(n, "more than %d dimensions", MAX_RANK);
    for (int i = 0; i < s.n && fresh; i++)
        s.v[i] = insert_axis(n->g, s.v[i], (int)axis);
    n->out[0] = with_data_type(n, build_concat_many(n->g, s.n, s.v, (int)axis), element);
    return n->out[0].i;
}

/* An optional is its element, or absent. */
static bool optional_element(OnnxNode *n)
{
    n->out[0] = n->nin ? n->in[0] : (Val){0};
    return n->out[0].i || refuse(n, "an optional without an element");
}

static bool optional_has_element(OnnxNode *n)
{
    uint8_t has = n->nin > 0 && n->in[0].i;
    n->out[0] = graph_const(n->g, "has", type_scalar(DT_BOOL), &has);
    return true;
}

const OnnxOp onnx_sequence[] = {
    {"ConcatFromSequence", 11, .import = concat_from_sequence, .sequences = true},
    {"Optional", 15, .import = optional_element, .sequences = true},
    {"OptionalGetElement", 15, .import = optional_element, .sequences = true},
    {"OptionalHasElement", 15, .import = optional_has_element, .sequences = true},
    {"SequenceAt", 11, .import = sequence_at, .sequences = true},
    {"SequenceConstruct", 11, .import = sequence_construct},
    {"SequenceEmpty", 11, .import = sequence_construct},
    {"SequenceErase", 11, .import = sequence_erase, .sequences = true},
    {"SequenceInsert", 11, .import = sequence_insert, .sequences = true},
    {"SequenceLength", 11, .import = sequence_length, .sequences = true},
    {"SplitToSequence", 11, .import = split_to_sequence},
    {0},
};
