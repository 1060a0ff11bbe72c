/* node.c -- what importers read from a node: attributes, compile-time operands;
 * shorthands. */
#include "onnx_int.h"
#include <stdlib.h>
#include <string.h>

/* ---- attributes --------------------------------------------------------- */

static const Onnx__AttributeProto *by_name(size_t n, Onnx__AttributeProto *const *a,
                                           const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(pb(a[i]->name), name) == 0)
            return a[i];
    return NULL;
}

const Onnx__AttributeProto *attr_find(const OnnxNode *n, const char *name)
{
    const Onnx__AttributeProto *a =
        by_name(n->proto->n_attribute, n->proto->attribute, name);
    if (!a || !*pb(a->ref_attr_name))
        return a;
    const Frame *f = n->frame;
    if (!f)
        return NULL;
    const Onnx__AttributeProto *given = attr_find(f->call, a->ref_attr_name);
    return given ? given : by_name(f->ndflt, f->dflt, a->ref_attr_name);
}

int64_t attr_int(const OnnxNode *n, const char *name, int64_t dflt)
{
    const Onnx__AttributeProto *a = attr_find(n, name);
    return a ? a->i : dflt;
}

/* The shortest decimal that rounds to f: an epsilon written as 1e-5 is 1e-5 in double
 * precision, too, not the float next to it. */
static double decimal(float f)
{
    char text[40];
    for (int digits = 6; digits < 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)f);
        if (strtof(text, NULL) == f)
            return strtod(text, NULL);
    }
    return (double)f;
}

double attr_float(const OnnxNode *n, const char *name, double dflt)
{
    const Onnx__AttributeProto *a = attr_find(n, name);
    return a ? decimal(a->f) : dflt;
}

const char *attr_str(const OnnxNode *n, const char *name, const char *dflt)
{
    const Onnx__AttributeProto *a = attr_find(n, name);
    return a && a->s.data ? arena_strndup(n->x->a, (const char *)a->s.data, a->s.len)
                          : dflt;
}

bool attr_is(const OnnxNode *n, const char *name, const char *dflt, const char *want)
{
    return strcmp(attr_str(n, name, dflt), want) == 0;
}

int attr_which(const OnnxNode *n, const char *name, const char *dflt, const char *const *value, int count)
{
    for (int i = 0; i < count; i++)
        if (attr_is(n, name, dflt, value[i]))
            return i;
    return -1;
}

bool attr_needed(OnnxNode *n, const char *name)
{
    return has_attr(n, name) || fail(n->x->d, "attribute '%s' is missing", name);
}

bool attr_int_in(OnnxNode *n, const char *name, int64_t dflt, int64_t min, int64_t max, int64_t *v)
{
    *v = attr_int(n, name, dflt);
    if (has_attr(n, name) && (*v < min || *v > max))
        return fail(n->x->d, "attribute '%s' is %lld, not %lld to %lld", name, (long long)*v, (long long)min,
                    (long long)max);
    return true;
}

bool attr_ints(OnnxNode *n, const char *name, Ints *v)
{
    const Onnx__AttributeProto *a = attr_find(n, name);
    *v = (Ints){0};
    if (!a)
        return true;
    if (a->n_ints > MAX_INTS)
        return fail(n->x->d, "attribute '%s' has %zu numbers, at most %d are supported", name, a->n_ints,
                    MAX_INTS);
    v->n = (int)a->n_ints;
    for (int i = 0; i < v->n; i++)
        v->v[i] = a->ints[i];
    return true;
}

bool attr_ints_in(OnnxNode *n, const char *name, int count, int64_t dflt, int64_t min, int64_t max, Ints *v)
{
    TRY(attr_ints(n, name, v));
    if (v->n && v->n != count)
        return fail(n->x->d, "attribute '%s' has %d numbers, not %d", name, v->n, count);
    for (int i = 0; i < v->n; i++)
        if (v->v[i] < min || v->v[i] > max)
            return fail(n->x->d, "attribute '%s' has %lld, not %lld to %lld", name, (long long)v->v[i],
                        (long long)min, (long long)max);
    for (; v->n < count; v->n++)
        v->v[v->n] = dflt;
    return true;
}

bool attr_data_type(OnnxNode *n, const char *name, int32_t dflt, int32_t *v)
{
    int64_t type = attr_int(n, name, dflt);
    *v = type > 0 && type <= INT32_MAX ? (int32_t)type : 0;
    return type == dflt || onnx_dtype(*v) != DT_NONE ||
           refuse(n, "attribute '%s' is %lld: element type %s is not supported", name, (long long)type,
                  onnx_dtype_name(*v));
}

/* ---- compile-time operands ---------------------------------------------- */

static void unschedule(Graph *g, NodeId node)
{
    uint32_t k = g->norder;
    while (k > 0 && g->order[k - 1].i != node.i)
        k--;
    if (k == 0)
        return;
    memmove(&g->order[k - 1], &g->order[k], (g->norder - k) * sizeof *g->order);
    g->norder--;
}

static bool fold_value(Import *x, Val v, int depth);

/* Evaluate a node whose operands are all constants; its results become constants. */
static bool fold_node(Import *x, NodeId id, int depth)
{
    Graph *g = x->g;
    Node *n = &g->nodes[id.i];
    if (node_def(n)->traits & OPT_RANDOM || depth > MAX_FOLD_DEPTH)
        return false;
    for (int i = 0; i < n->nin; i++)
        TRY(!n->in[i].i || fold_value(x, n->in[i], depth + 1));
    for (int i = 0; i < n->nout; i++)
        TRY(type_bytes(val_type(g, n->out[i])) <= MAX_FOLDED);
    Tensor *in = NEW(x->a, Tensor, n->nin + 1), out[MAX_OUT];
    for (int i = 0; i < n->nin; i++)
        in[i] = n->in[i].i ? graph_tensor(g, n->in[i]) : (Tensor){0};
    for (int i = 0; i < n->nout; i++) {
        const Type *t = val_type(g, n->out[i]);
        out[i] = (Tensor){*t, arena_alloc(g->arena, (size_t)type_bytes(t) + 1, 1)};
    }
    TRY(node_eval(g, n, in, out, x->d));
    for (int i = 0; i < n->nout; i++) {
        Value *val = &g->vals[n->out[i].i];
        val->kind = VAL_CONST;
        val->data = out[i].data;
        val->def.i = 0;
    }
    unschedule(g, id);
    return true;
}

/* Make a value a constant if it depends on the file and known inputs only.  Initializers on
 * the way stop being parameters: what decides shapes cannot change between steps. */
static bool fold_value(Import *x, Val v, int depth)
{
    Value *val = &x->g->vals[v.i];
    if (val->kind == VAL_CONST)
        return val->data != NULL;
    if (val->kind == VAL_TEMP)
        return fold_node(x, val->def, depth);
    if ((val->kind != VAL_PARAM && val->kind != VAL_INPUT) || !val->data)
        return false;
    size_t bytes = (size_t)type_bytes(&val->type);
    void *copy = arena_alloc(x->g->arena, bytes + 1, 1);
    memcpy(copy, val->data, bytes);
    val->data = copy; /* aligned, as constants are */
    val->file = NULL;
    val->kind = VAL_CONST;
    note(x, ONNX_FROZEN, val->name, "shapes depend on it");
    return true;
}

/* Does v depend on data or on a draw, or is it too large, so that it cannot be known when compiling? */
static bool is_open(const Import *x, Val v)
{
    const Value *val = &x->g->vals[v.i];
    return val->kind == VAL_TEMP ? x->open[v.i] : !val->data;
}

/* Sets x->open of what the nodes since the last call compute. */
static void find_open(Import *x)
{
    const Graph *g = x->g;
    x->open = arena_grow(x->a, x->open, g->nvals, &x->copen, sizeof *x->open);
    for (; x->nopen < g->nnodes; x->nopen++) {
        const Node *n = &g->nodes[x->nopen];
        bool open = x->nopen > 0 && node_def(n)->traits & OPT_RANDOM;
        for (int i = 0; i < n->nin; i++)
            open |= n->in[i].i && is_open(x, n->in[i]);
        for (int i = 0; i < n->nout; i++)
            open |= type_bytes(val_type(g, n->out[i])) > MAX_FOLDED;
        for (int i = 0; i < n->nout; i++)
            x->open[n->out[i].i] = open;
    }
}

/* Asks before folding: a parameter on the way to what stays open anyway goes on training. */
static bool fold_operand(Import *x, Val v)
{
    find_open(x);
    return !is_open(x, v) && fold_value(x, v, 0);
}

static const char *input_name(const OnnxNode *n, int k)
{
    return k < n->nin ? pb(n->proto->input[k]) : "";
}

/* Does v depend on inputs that --bind makes known, and on no others?  Sets *input to one of them. */
static bool open_integer(const Graph *g, Val v, int *steps, const char **input)
{
    const Value *val = &g->vals[v.i];
    const Node *def = val->kind == VAL_TEMP ? graph_def(g, v) : NULL;
    if (val->kind == VAL_INPUT && type_is_integer(&val->type))
        *input = val->name;
    else if (val->kind == VAL_INPUT || --*steps < 0)
        return false;
    for (int i = 0; def && i < def->nin; i++)
        TRY(!def->in[i].i || open_integer(g, def->in[i], steps, input));
    return true;
}

/* Refuses a node because operand k, which has to be known, depends on data. */
static bool refuse_data(OnnxNode *n, int k)
{
    enum { STEPS = 1000 };
    int steps = STEPS;
    const char *input = NULL;
    bool open = open_integer(n->g, n->in[k], &steps, &input) && input;
    return refuse(n,
                  "operand %d ('%s') depends on data; shapes, indices and conditions that decide what is "
                  "computed must be known when compiling: %s%s%s",
                  k, input_name(n, k), open ? "--bind " : "",
                  open ? input : "pad to a fixed size and mask, or compute both ways and choose by Where",
                  open ? "=N gives the input its value" : " (docs/export.md, Masks)");
}

bool is_static(OnnxNode *n, int k) { return fold_operand(n->x, n->in[k]); }

bool static_tensor(OnnxNode *n, int k, Tensor *t)
{
    if (!has_in(n, k))
        return refuse(n, "operand %d is missing", k);
    if (val_is_sequence(n->in[k]))
        return refuse(n, "operand %d is a sequence", k);
    if (!fold_operand(n->x, n->in[k]))
        return !n->x->d->failed && refuse_data(n, k);
    *t = graph_tensor(n->g, n->in[k]);
    return true;
}

bool static_ints(OnnxNode *n, int k, Ints *v)
{
    Tensor t;
    TRY(static_tensor(n, k, &t));
    int64_t count = type_count(&t.type);
    if (count > MAX_INTS)
        return refuse(n, "operand %d has %lld elements, at most %d are supported", k,
                      (long long)count, MAX_INTS);
    *v = (Ints){.n = (int)count};
    for (int i = 0; i < v->n; i++)
        v->v[i] = tensor_i(&t, i);
    return true;
}

static bool static_number(OnnxNode *n, int k, Tensor *t)
{
    TRY(static_tensor(n, k, t));
    return type_count(&t->type) == 1 || refuse(n, "operand %d must be one number", k);
}

bool static_int(OnnxNode *n, int k, int64_t *v)
{
    Tensor t;
    TRY(static_number(n, k, &t));
    *v = tensor_i(&t, 0);
    return true;
}

bool static_float(OnnxNode *n, int k, double *v)
{
    Tensor t;
    TRY(static_number(n, k, &t));
    *v = tensor_f(&t, 0);
    return true;
}

bool axis_in(OnnxNode *n, int64_t axis, int rank, int64_t *out)
{
    if (axis < -rank || axis >= rank)
        return fail(n->x->d, "axis %lld is outside rank %d", (long long)axis, rank);
    *out = axis < 0 ? axis + rank : axis;
    return true;
}

bool node_axes(OnnxNode *n, int since, int k, int rank, Ints *axes, bool *given)
{
    *axes = (Ints){0};
    if (n->opset < since) {
        *given = has_attr(n, "axes");
        TRY(attr_ints(n, "axes", axes));
    } else if ((*given = has_in(n, k))) {
        TRY(static_ints(n, k, axes));
    }
    for (int i = 0; i < axes->n; i++)
        TRY(axis_in(n, axes->v[i], rank, &axes->v[i]));
    return true;
}

bool shape_valid(OnnxNode *n, const Ints *dim)
{
    if (dim->n > MAX_RANK)
        return refuse(n, "more than %d dimensions", MAX_RANK);
    Type t = type_make(DT_F64, dim->n, dim->v);
    return type_valid(&t) || fail(n->x->d, "a tensor of impossible size");
}

bool small_enough(OnnxNode *n, const Type *t)
{
    return (type_valid(t) && type_bytes(t) <= MAX_FOLDED) ||
           refuse(n, "a constant of more than %d MiB", MAX_FOLDED >> 20);
}

/* ---- shorthands --------------------------------------------------------- */

Val with_consts(Graph *g, Op op, Val a, double al, double be)
{
    return build(g, op, NULL, 1, &a, &(PointwiseAttrs){al, be});
}

Val scalar_like(Graph *g, Val like, double v)
{
    return like.i ? build_scalar(g, val_type(g, like)->dt, v) : like;
}

Val add_scalar(Graph *g, Val a, double v)
{
    return build2(g, OP_add, a, scalar_like(g, a, v));
}
Val mul_scalar(Graph *g, Val a, double v)
{
    return build2(g, OP_mul, a, scalar_like(g, a, v));
}

Val mean_over(Graph *g, Val a, uint32_t axes, bool keepdims)
{
    if (!a.i || !axes)
        return a;
    const Type *t = val_type(g, a);
    double count = 1;
    for (int i = 0; i < t->rank; i++)
        if (axes >> i & 1)
            count *= (double)t->dim[i];
    Val sum = build_reduce(g, OP_reduce_sum, a, axes, keepdims);
    if (!sum.i)
        return sum;
    return dtype_is_float(val_type(g, sum)->dt)
               ? mul_scalar(g, sum, 1 / count)
               : build2(g, OP_div, sum, scalar_like(g, sum, count));
}

Val random_input(Import *x)
{
    Val v = graph_find(x->g, "rng");
    int64_t two = 2;
    x->g->importing = false;
    v = v.i ? v : graph_value(x->g, "rng", type_make(DT_I64, 1, &two), VAL_INPUT);
    x->g->importing = true;
    return v;
}

Val reshape_ints(Graph *g, Val a, const Ints *dim)
{
    return build_reshape(g, a, dim->n, dim->v);
}

Val drop_axis(Graph *g, Val a, int axis)
{
    const Type *t = val_type(g, a);
    Ints dim = {0};
    for (int i = 0; i < t->rank; i++)
        if (i != axis)
            dim.v[dim.n++] = t->dim[i];
    return reshape_ints(g, a, &dim);
}

Val insert_axis(Graph *g, Val a, int axis)
{
    if (val_is_sequence(a) || val_type(g, a)->rank == MAX_RANK)
        return (Val){0};
    const Type *t = val_type(g, a);
    Ints dim = {.n = t->rank + 1};
    for (int i = 0, k = 0; i < dim.n; i++)
        dim.v[i] = i == axis ? 1 : t->dim[k++];
    return reshape_ints(g, a, &dim);
}

Val move_axis(Graph *g, Val a, int from, int to)
{
    int perm[MAX_RANK], rank = a.i ? val_type(g, a)->rank : 0;
    for (int i = 0, j = 0; i < rank; i++) {
        j += j == from;
        perm[i] = i == to ? from : j++;
    }
    return a.i ? build_transpose(g, a, perm) : a;
}

Val join_steps(Graph *g, int64_t n, const Val *v, int axis, Type t)
{
    if (n > 0)
        return build_concat_many(g, (int)n, v, axis);
    t.dim[axis] = 0;
    return graph_const(g, "empty", t, NULL);
}

Val along_axis(Graph *g, Val a, int axis, int rank)
{
    int64_t dim[MAX_RANK];
    if (!a.i)
        return a;
    for (int i = 0; i < rank; i++)
        dim[i] = i == axis ? type_count(val_type(g, a)) : 1;
    return build_reshape(g, a, rank, dim);
}

Val iota(Graph *g, int64_t n)
{
    if (n > MAX_FOLDED / 8) {
        diag_set(g->diag, "an index of %lld elements", (long long)n);
        return (Val){0};
    }
    Type t = type_make(DT_I64, 1, &n);
    int64_t *v = NEW(g->arena, int64_t, n + 1);
    for (int64_t i = 0; i < n; i++)
        v[i] = i;
    return graph_const(g, "iota", t, v);
}

Val negative_wraps(Graph *g, Val index, int64_t n)
{
    if (!index.i)
        return index;
    Val below = build2(g, OP_less, index, scalar_like(g, index, 0));
    Val wrapped = build2(g, OP_add, index, scalar_like(g, index, (double)n));
    return build3(g, OP_where, below, wrapped, index);
}

static int32_t widened_type(const Import *x, Val v) { return v.i < x->ntypes ? x->data_type[v.i] : 0; }

int32_t data_type_of(const OnnxNode *n, int k) { return has_in(n, k) ? widened_type(n->x, n->in[k]) : 0; }

Val with_data_type(const OnnxNode *n, Val y, Val from)
{
    if (y.i && y.i < n->g->nvals)
        set_data_type(n->x, y, widened_type(n->x, from));
    return y;
}

int32_t element_type(const OnnxNode *n, int k)
{
    int32_t t = data_type_of(n, k);
    return t ? t : onnx_data_type(in_type(n, k)->dt);
}

/* Integer types without a native counterpart live in a wider one, and wrap around as they
 * would.  A value that is of no such type any more becomes another value. */
Val narrow(OnnxNode *n, Val v, int32_t data_type)
{
    DType dt = onnx_dtype(data_type);
    Graph *g = n->g;
    int bits = data_type_bits(data_type);
    bool narrower = bits > 0 && bits < 8 * dtype_size[dt];
    int64_t span = narrower ? INT64_C(1) << bits : 0, low = data_type_is_signed(data_type) ? -span / 2 : 0;
    if (!span && widened_type(n->x, v) && val_type(g, v)->dt == dt)
        return one(g, OP_copy, v);
    if (!span || !v.i)
        return real_cast(n, v, dt);
    Val wide = build_cast(g, build_cast(g, v, DT_I64), dt);
    if (low)
        wide = build2(g, OP_sub, wide, scalar_like(g, wide, (double)low));
    wide = build2(g, OP_bitand, wide, scalar_like(g, wide, (double)(span - 1)));
    if (low)
        wide = build2(g, OP_add, wide, scalar_like(g, wide, (double)low));
    if (wide.i)
        set_data_type(n->x, wide, data_type);
    return wide;
}

bool wrapped(OnnxNode *n)
{
    int32_t type = data_type_of(n, 0);
    if (n->out[0].i && type && val_type(n->g, n->out[0])->dt == in_type(n, 0)->dt)
        n->out[0] = narrow(n, n->out[0], type);
    return n->out[0].i;
}

/* Repeats by a new dimension in front of (or behind) the axis, expanded and merged with it. */
static Val repeat(Graph *g, Val a, int axis, int64_t times, bool behind)
{
    if (times == 1 || !a.i)
        return a;
    Type t = *val_type(g, a);
    if (t.dim[axis] == 1) {
        t.dim[axis] = times;
        return build_expand(g, a, t.rank, t.dim);
    }
    int64_t dim[3] = {1, 1, 1};
    for (int i = 0; i < t.rank; i++)
        dim[i < axis + behind ? 0 : 2] *= t.dim[i];
    Val split = build_reshape(g, a, 3, dim);
    dim[1] = times;
    split = build_expand(g, split, 3, dim);
    t.dim[axis] *= times;
    return build_reshape(g, split, t.rank, t.dim);
}

Val repeat_whole(Graph *g, Val a, int axis, int64_t times)
{
    return repeat(g, a, axis, times, false);
}

Val repeat_each(Graph *g, Val a, int axis, int64_t times)
{
    return repeat(g, a, axis, times, true);
}
