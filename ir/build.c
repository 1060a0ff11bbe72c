/* build.c -- building nodes: inference at construction, folding of constants, shorthands. */
#include "attrs.h"
#include <string.h>

/* Constants larger than this are not folded into new ones (a folded Expand of a scalar mask
 * would be stored instead of generated). */
enum { FOLD_MAX = 1 << 20 };

/* Does the operator expand many small integers, such as quantized weights?  Then it is not folded. */
static bool unpacks(const Graph *g, int nin, const Val *in, const Type *out)
{
    enum { MANY = 1 << 16 };
    int64_t bytes = 0;
    bool small = false;
    for (int i = 0; i < nin; i++)
        if (in[i].i) {
            const Type *t = val_type(g, in[i]);
            bytes += type_bytes(t);
            small |= (t->dt == DT_U8 || t->dt == DT_I8) && type_bytes(t) >= MANY;
        }
    return small && type_bytes(out) > bytes;
}

static bool all_const(const Graph *g, Op op, int nin, const Val *in)
{
    if (op_table[op]->traits & OPT_RANDOM)
        return false;
    for (int i = 0; i < nin; i++)
        if (in[i].i && !graph_is_const(g, in[i]))
            return false;
    return true;
}

/* A view of a constant is a constant with the same bytes. */
static void fold_view(Graph *g, const Node *n, Val out)
{
    Value *v = &g->vals[out.i];
    const Value *of = &g->vals[n->in[0].i];
    v->kind = VAL_CONST;
    v->data = of->data;
    v->file = of->file;
    v->offset = of->offset;
    v->def.i = 0;
    g->norder--;
}

static bool fold(Graph *g, Node *n, Val *out)
{
    if (node_def(n)->traits & OPT_VIEW) {
        fold_view(g, n, out[0]);
        return true;
    }
    Tensor in[64], res[MAX_OUT];
    Arena tmp = {0};
    Tensor *tin = n->nin > 64 ? NEW(&tmp, Tensor, n->nin) : in;
    for (int i = 0; i < n->nin; i++)
        tin[i] = n->in[i].i ? graph_tensor(g, n->in[i]) : (Tensor){0};
    for (int i = 0; i < n->nout; i++) {
        Value *v = &g->vals[out[i].i];
        res[i] = (Tensor){v->type, NEW(g->arena, char, type_bytes(&v->type) + 1)};
    }
    bool ok = node_eval(g, n, tin, res, g->diag);
    for (int i = 0; i < n->nout && ok; i++) {
        Value *v = &g->vals[out[i].i];
        v->kind = VAL_CONST;
        v->data = res[i].data;
        v->def.i = 0;
    }
    if (ok)
        g->norder--; /* the node was the last in order: leave it out */
    arena_free(&tmp);
    return ok;
}

/* ---- constants that repeat ---------------------------------------------------------------- */

/* If all slices of t along dimension d are equal, t becomes the first of them. */
static void drop_repeats(Tensor *t, int d)
{
    int64_t outer = 1, inner = dtype_size[t->type.dt], n = t->type.dim[d];
    char *data = t->data;
    for (int i = 0; i < d; i++)
        outer *= t->type.dim[i];
    for (int i = d + 1; i < t->type.rank; i++)
        inner *= t->type.dim[i];
    for (int64_t k = 0; k < outer * n; k++)
        if (memcmp(data + k * inner, data + k / n * n * inner, (size_t)inner) != 0)
            return;
    for (int64_t o = 0; o < outer; o++)
        memmove(data + o * inner, data + o * n * inner, (size_t)inner);
    t->type.dim[d] = 1;
}

/* The smallest constant that broadcasts to v, or {0}. */
static Val least_constant(Graph *g, Val v)
{
    const Node *n = graph_def(g, v);
    while (n && n->op == OP_expand) {
        v = n->in[0];
        n = graph_def(g, v);
    }
    if (!graph_is_const(g, v) || type_count(val_type(g, v)) == 0)
        return (Val){0};
    Arena tmp = {0};
    Tensor all = graph_tensor(g, v);
    Tensor t = {all.type, arena_alloc(&tmp, (size_t)type_bytes(&all.type), 1)};
    memcpy(t.data, all.data, (size_t)type_bytes(&all.type));
    for (int d = 0; d < t.type.rank; d++)
        if (t.type.dim[d] > 1)
            drop_repeats(&t, d);
    if (!type_equal(&t.type, &all.type))
        v = graph_const(g, "c", t.type, t.data);
    arena_free(&tmp);
    return v;
}

/* Folds a pointwise operator whose result is too large to store by folding a smaller constant that broadcasts
 * to it (masks of a batch); {0} if that is impossible. */
static Val fold_repeated(Graph *g, Op op, int nin, const Val *in, const void *attr, const Type *type)
{
    Val least[3], out = {0};
    if (!(op_table[op]->traits & OPT_POINTWISE) || type_count(type) <= FOLD_MAX || nin > 3)
        return out;
    for (int i = 0; i < nin; i++)
        if (!in[i].i || !(least[i] = least_constant(g, in[i])).i)
            return out;
    Type t = *val_type(g, least[0]);
    for (int i = 1; i < nin; i++)
        type_broadcast(&t, val_type(g, least[i]));
    if (type_count(&t) <= FOLD_MAX)
        out = build(g, op, NULL, nin, least, attr);
    return out.i ? build_expand(g, out, type->rank, type->dim) : out;
}

/* ---- nodes ---------------------------------------------------------------------------------- */

static bool check_arity(const Graph *g, Op op, int nin, const Val *in)
{
    const OpDef *def = op_table[op];
    if (nin < def->min_in || (def->max_in >= 0 && nin > def->max_in))
        return fail(g->diag, "%s: %d operands given", def->name, nin);
    for (int i = 0; i < nin && (i < def->min_in || def->max_in < 0); i++)
        if (!in[i].i)
            return fail(g->diag, "%s: operand %d is missing", def->name, i);
    return true;
}

bool build_n(Graph *g, Op op, const char *name, int nin, const Val *in, const void *attr, int nout, Val *out)
{
    const OpDef *def = op_table[op];
    memset(out, 0, (size_t)nout * sizeof *out);
    if (g->diag->failed)
        return false;
    TRY(check_arity(g, op, nin, in));
    Val tmp[MAX_OUT] = {{0}};
    Node probe = {.op = op, .nin = nin, .nout = def->nout, .in = NEW(g->arena, Val, nin + 1),
                  .out = tmp, .name = name};
    memcpy(probe.in, in, (size_t)nin * sizeof *in);
    if (def->attr_size) {
        probe.attr = arena_alloc(g->arena, 1, def->attr_size);
        if (attr)
            memcpy(probe.attr, attr, def->attr_size);
        else
            op_attr_init(op, probe.attr);
    }
    Type t[MAX_OUT] = {{0}};
    if (!def->infer(g, &probe, t, g->diag))
        return false;
    for (int i = 0; i < def->nout; i++)
        if (!type_valid(&t[i]))
            return fail(g->diag, "%s: result is too large", def->name);
    if ((*out = fold_repeated(g, op, nin, in, attr, &t[0])).i)
        return true;
    for (int i = 0; i < def->nout; i++)
        tmp[i] = graph_value(g, name ? name : def->name, t[i], VAL_TEMP);
    Node *n = graph_node(g, op, nin, in, def->nout, tmp);
    n->attr = probe.attr;
    n->name = name ? arena_strndup(g->arena, name, strlen(name)) : NULL;
    memcpy(out, tmp, (size_t)(nout < def->nout ? nout : def->nout) * sizeof *out);
    if (all_const(g, op, nin, in) && type_count(&t[0]) <= FOLD_MAX && !unpacks(g, nin, in, &t[0]))
        return fold(g, n, tmp);
    return true;
}

Val build(Graph *g, Op op, const char *name, int nin, const Val *in, const void *attr)
{
    Val out = {0};
    build_n(g, op, name, nin, in, attr, 1, &out);
    return out;
}

Val build1(Graph *g, Op op, Val a) { return build(g, op, NULL, 1, &a, NULL); }
Val build2(Graph *g, Op op, Val a, Val b) { return build(g, op, NULL, 2, (Val[]){a, b}, NULL); }
Val build3(Graph *g, Op op, Val a, Val b, Val c) { return build(g, op, NULL, 3, (Val[]){a, b, c}, NULL); }

Val build_scalar(Graph *g, DType dt, double v)
{
    char bytes[8] = {0};
    Tensor t = {type_scalar(dt), bytes};
    tensor_set_f(&t, 0, v);
    return graph_const(g, "c", t.type, bytes);
}

Val build_filled(Graph *g, Val like, double v)
{
    const Type t = *val_type(g, like);
    return build_expand(g, build_scalar(g, t.dt, v), t.rank, t.dim);
}

Val build_ints(Graph *g, const int64_t *v, int n)
{
    int64_t dim = n;
    return graph_const(g, "ints", type_make(DT_I64, 1, &dim), v);
}

Val build_cast(Graph *g, Val a, DType dt)
{
    if (!a.i || val_type(g, a)->dt == dt)
        return a;
    return build(g, OP_cast, NULL, 1, &a, &(CastAttrs){dt});
}

static Val build_shape(Graph *g, Op op, Val a, int rank, const int64_t *dim)
{
    if (!a.i)
        return a;
    Type want = type_make(val_type(g, a)->dt, rank, dim);
    if (type_equal(&want, val_type(g, a)))
        return a;
    return build(g, op, NULL, 1, &a, &(ShapeAttrs){ints_make(rank, dim)});
}

Val build_reshape(Graph *g, Val a, int rank, const int64_t *dim)
{
    return build_shape(g, OP_reshape, a, rank, dim);
}

Val build_transpose(Graph *g, Val a, const int *perm)
{
    if (!a.i)
        return a;
    int rank = val_type(g, a)->rank;
    bool same = true;
    TransposeAttrs at = {.perm = {.n = rank}};
    for (int i = 0; i < rank; i++) {
        at.perm.v[i] = perm[i];
        same &= perm[i] == i;
    }
    return same ? a : build(g, OP_transpose, NULL, 1, &a, &at);
}

Val build_expand(Graph *g, Val a, int rank, const int64_t *dim)
{
    return build_shape(g, OP_expand, a, rank, dim);
}

Val build_reduce(Graph *g, Op op, Val a, uint32_t axes, bool keepdims)
{
    if (!axes || !a.i)
        return a;
    ReduceAttrs at = {.keepdims = keepdims};
    for (int i = 0; i < MAX_RANK; i++)
        if (axes >> i & 1)
            at.axes.v[at.axes.n++] = i;
    return build(g, op, NULL, 1, &a, &at);
}

Val build_sum_to(Graph *g, Val a, const Type *shape)
{
    if (!a.i || type_same_shape(val_type(g, a), shape))
        return a;
    const Type *t = val_type(g, a);
    uint32_t axes = 0;
    int lead = t->rank - shape->rank;
    for (int i = 0; i < t->rank; i++)
        if (i < lead || (shape->dim[i - lead] == 1 && t->dim[i] != 1))
            axes |= 1u << i;
    Val s = build_reduce(g, OP_reduce_sum, a, axes, true);
    return build_reshape(g, s, shape->rank, shape->dim);
}

Val build_slice(Graph *g, Val a, int axis, int64_t start, int64_t len)
{
    if (!a.i)
        return a;
    const Type *t = val_type(g, a);
    if (start == 0 && len == t->dim[axis])
        return a;
    SliceAttrs at = slice_all(t);
    at.start.v[axis] = start;
    at.size.v[axis] = len;
    return build(g, OP_slice, NULL, 1, &a, &at);
}

Val build_slice_like(Graph *g, Val w, const Type *whole, const SliceAttrs *at)
{
    if (!at)
        return w;
    const Type *t = val_type(g, w);
    SliceAttrs own = {.start.n = t->rank, .step.n = t->rank, .size.n = t->rank};
    bool all = true;
    for (int i = 0; i < t->rank; i++) {
        int d = i + whole->rank - t->rank;
        bool cut = t->dim[i] == whole->dim[d];
        own.start.v[i] = cut ? at->start.v[d] : 0;
        own.step.v[i] = cut ? at->step.v[d] : 1;
        own.size.v[i] = cut ? at->size.v[d] : t->dim[i];
        all &= own.size.v[i] == t->dim[i];
    }
    return all ? w : build(g, OP_slice, NULL, 1, &w, &own);
}

Val build_pad(Graph *g, Val a, int axis, int64_t size)
{
    const Type *t = val_type(g, a);
    PadAttrs at = {.before.n = t->rank, .after.n = t->rank};
    at.after.v[axis] = size - t->dim[axis];
    return at.after.v[axis] == 0 ? a : build(g, OP_pad, NULL, 1, &a, &at);
}

Val build_gather(Graph *g, Val a, Val index, int axis)
{
    return build(g, OP_gather, NULL, 2, (Val[]){a, index}, &(GatherAttrs){.axis = axis, .padding = -1});
}

Val build_concat(Graph *g, int n, const Val *v, int axis)
{
    return n == 1 ? v[0] : build(g, OP_concat, NULL, n, v, &(AxisAttrs){axis});
}

/* Concatenates in parts, because kernels take a limited number of operands. */
Val build_concat_many(Graph *g, int n, const Val *v, int axis)
{
    enum { PART = 32 };
    if (n <= PART)
        return build_concat(g, n, v, axis);
    int parts = (n + PART - 1) / PART;
    Val *part = NEW(g->arena, Val, parts);
    for (int i = 0; i < parts; i++)
        part[i] = build_concat(g, n - i * PART < PART ? n - i * PART : PART, v + i * PART, axis);
    return build_concat_many(g, parts, part, axis);
}

Val build_matmul(Graph *g, Val a, Val b, bool ta, bool tb)
{
    return build(g, OP_matmul, NULL, 2, (Val[]){a, b}, &(MatmulAttrs){.ta = ta, .tb = tb});
}
