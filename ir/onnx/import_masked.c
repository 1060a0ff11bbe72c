/* import_masked.c -- writing to the positions of a mask, where data decides how many there are.
 *
 * PyTorch's exporters write x.masked_scatter(mask, source), by which vision-language models of transformers
 * put features of images among those of tokens, and x[mask] = row in operators whose results have sizes that
 * depend on data, though that of x does not:
 *
 *     at = Transpose(NonZero(mask)), ScatterND(x, at, Slice(source, 0, Shape(at)[0]))
 *     at = Transpose(NonZero(mask)), ScatterND(x, at, Reshape(Expand(row, [count] + trailing), -1))
 *
 * x[mask] = a[mask] * b[mask], as in the losses of boxes of torchvision, is computed everywhere and chosen by
 * the mask, of elements or rows: sums, differences and products, of 0 where it is not set, or of numbers
 * (x[mask] *= 2).  Programs write a mask as often as they use it: masks are one that are computed likewise.
 * Of a mask of one dimension torch.export's exporter makes numbers of the tuples, and tuples again:
 *
 *     i = Squeeze(at, 1), GatherND(x, Concat(Unsqueeze(Expand(i, Shape(Max(i))), 1))), of one operand each
 *
 * What is in between exists while importing only. Where anything else reads it, the node that made it is
 * refused. */
#include "onnx_int.h"
#include <math.h>
#include <string.h>

typedef enum {
    MASKED_AXES,    /* NonZero(v): [rank, count] */
    MASKED_TUPLES,  /* its transpose */
    MASKED_NUMBERS, /* those of one number as numbers: [count] */
    MASKED_SHAPE,   /* the shape of the tuples */
    MASKED_COUNT,   /* the first number of that */
    MASKED_FIRST,   /* the first `count` elements of v */
    MASKED_ROWS,    /* v, expanded to [count, ...] */
    MASKED_EACH,    /* MASKED_ROWS in one dimension */
    MASKED_PICKED,  /* the elements, or rows, of v where mask is set */
} MaskedKind;

struct Masked {
    MaskedKind kind;
    Val v, mask;
    int trailing;    /* number of dimensions of ROWS, EACH and PICKED behind the first */
    OnnxNode *maker; /* the node whose operand open_operand depends on data */
    int open_operand;
    bool *refused; /* has the maker been listed as refused? */
};

static bool masked_result(OnnxNode *n, const Masked *m)
{
    Masked *kept = NEW(n->x->a, Masked, 1);
    *kept = *m;
    n->out[0] = new_sequence(n->x, 0, NULL);
    n->x->sequence[n->out[0].i - FIRST_SEQUENCE].masked = kept;
    return true;
}

static bool first_masked(OnnxNode *n, int open_operand, Masked m)
{
    m.maker = NEW(n->x->a, OnnxNode, 1);
    *m.maker = *n;
    m.open_operand = open_operand;
    m.refused = NEW(n->x->a, bool, 1);
    return masked_result(n, &m);
}

bool nonzero_of_data(OnnxNode *n) { return first_masked(n, 0, (Masked){.kind = MASKED_AXES, .v = n->in[0]}); }

/* Imports an Expand whose operand 1 is [count] and then known numbers. */
bool expand_of_data(OnnxNode *n)
{
    const Node *shape = graph_def(n->g, n->in[1]);
    Tensor t;
    bool rows = shape && shape->op == OP_concat && type_count(val_type(n->g, shape->in[0])) == 1;
    for (int i = 1; rows && i < shape->nin; i++)
        rows = graph_is_const(n->g, shape->in[i]);
    if (!rows)
        return static_tensor(n, 1, &t);
    int trailing = (int)type_count(in_type(n, 1)) - 1;
    return first_masked(n, 1, (Masked){.kind = MASKED_ROWS, .v = n->in[0], .trailing = trailing});
}

const Masked *masked_in(const OnnxNode *n, int k)
{
    bool sequence = has_in(n, k) && val_is_sequence(n->in[k]);
    return sequence ? n->x->sequence[n->in[k].i - FIRST_SEQUENCE].masked : NULL;
}

bool refuse_masked(const Masked *m)
{
    Tensor t;
    if (!*m->refused)
        static_tensor(m->maker, m->open_operand, &t);
    *m->refused = !m->maker->x->optional;
    return false;
}

/* ---- the way from the mask to ScatterND ---------------------------------- */

enum { MOST_NODES = 8 }; /* in a chain that a mask is computed by, twice */

static Val without_reshapes(const Graph *g, Val v)
{
    for (const Node *n; (n = graph_def(g, v)) && n->op == OP_reshape;)
        v = n->in[0];
    return v;
}

/* Have a and b the same elements, in this order, as they are computed likewise: `x > 0` written twice? */
static bool same_value(const Graph *g, Val a, Val b, int depth)
{
    a = without_reshapes(g, a);
    b = without_reshapes(g, b);
    if (a.i == b.i)
        return true;
    if (!a.i || !b.i || !type_equal(val_type(g, a), val_type(g, b)))
        return false;
    if (graph_is_const(g, a) && graph_is_const(g, b)) {
        Tensor x = graph_tensor(g, a), y = graph_tensor(g, b);
        return memcmp(x.data, y.data, (size_t)type_bytes(&x.type)) == 0;
    }
    const Node *p = graph_def(g, a), *q = graph_def(g, b);
    bool same = depth > 0 && p && q && nodes_alike(p, q) && p->nout == 1 &&
                !(node_def(p)->traits & (OPT_RANDOM | OPT_ONCE));
    for (int i = 0; same && i < p->nin; i++)
        same = same_value(g, p->in[i], q->in[i], depth - 1);
    return same;
}

static bool is_tensor(const OnnxNode *n, int k) { return has_in(n, k) && !val_is_sequence(n->in[k]); }

static bool known_to_be(OnnxNode *n, int k, int64_t want)
{
    Tensor t;
    return is_tensor(n, k) && is_static(n, k) && static_tensor(n, k, &t) &&
           type_count(&t.type) == 1 && tensor_i(&t, 0) == want;
}

static bool transposes(OnnxNode *n)
{
    Ints perm;
    return attr_ints(n, "perm", &perm) && (!perm.n || (perm.n == 2 && perm.v[0] == 1 && perm.v[1] == 0));
}

static bool first_size_first(OnnxNode *n)
{
    return attr_int(n, "start", 0) == 0 && attr_int(n, "end", 1) != 0;
}

/* Is the second axis the node's? */
static bool at_second(OnnxNode *n) { return known_to_be(n, 1, 1) || known_to_be(n, 1, -1); }

static bool of_one_number(OnnxNode *n, const Masked *tuples)
{
    return val_type(n->g, tuples->v)->rank == 1 && at_second(n);
}

/* Is the node's result the same as its operand m, but for a dimension of 1 of a count? */
static bool stays_masked(OnnxNode *n, const Masked *m)
{
    const Masked *shape = masked_in(n, 1);
    if (m->kind == MASKED_COUNT)
        return strcmp(n->op, "Unsqueeze") == 0;
    if (m->kind == MASKED_TUPLES)
        return strcmp(n->op, "Concat") == 0 && n->nin == 1;
    bool expands =
        strcmp(n->op, "Expand") == 0 && shape && shape->kind == MASKED_COUNT && shape->v.i == m->v.i;
    return m->kind == MASKED_NUMBERS && (expands || (strcmp(n->op, "Max") == 0 && n->nin == 1));
}

/* The mask of v's rows, with dimensions of 1 for those of a row. */
static Val beside_rows(Graph *g, Val mask, Val v)
{
    Type t = *val_type(g, mask);
    while (t.rank < val_type(g, v)->rank)
        t.dim[t.rank++] = 1;
    return build_reshape(g, build_cast(g, mask, DT_BOOL), t.rank, t.dim);
}

/* Is operand 1 the shape of what is picked: a count and the dimensions of a row? */
static bool keeps_rows(OnnxNode *n, const Masked *m)
{
    if (!is_tensor(n, 1) || type_count(in_type(n, 1)) != 1 + m->trailing)
        return false;
    const Node *shape = graph_def(n->g, n->in[1]);
    const Type *t = val_type(n->g, m->v);
    bool same = m->trailing == 0 || (shape && shape->op == OP_concat);
    for (int i = 1, at = t->rank - m->trailing; same && m->trailing && i < shape->nin; i++) {
        same = graph_is_const(n->g, shape->in[i]);
        Tensor part = same ? graph_tensor(n->g, shape->in[i]) : (Tensor){0};
        for (int64_t k = 0; same && k < type_count(&part.type); k++)
            same = tensor_i(&part, k) == t->dim[at++];
    }
    return same;
}

static bool keeps_axes(OnnxNode *n, const Masked *m)
{
    Ints perm;
    bool same = attr_ints(n, "perm", &perm) && (perm.n || m->trailing == 0);
    for (int i = 0; same && i < perm.n; i++)
        same = perm.v[i] == i;
    return same;
}

/* Expand to [count, ...], Reshape to one dimension, the first `count` elements. */
static bool stays_picked(OnnxNode *n, Masked *m)
{
    const Masked *end = masked_in(n, 2);
    if (strcmp(n->op, "Slice") == 0)
        return end && end->kind == MASKED_COUNT && same_value(n->g, end->v, m->mask, MOST_NODES) &&
               known_to_be(n, 1, 0) && (!has_in(n, 3) || known_to_be(n, 3, 0)) &&
               (!has_in(n, 4) || known_to_be(n, 4, 1));
    if (strcmp(n->op, "Reshape") == 0 && m->trailing > 0) {
        const Type t = *val_type(n->g, m->v);
        m->mask = build_expand(n->g, beside_rows(n->g, m->mask, m->v), t.rank, t.dim);
        m->trailing = 0;
    }
    return (strcmp(n->op, "Expand") == 0 && keeps_rows(n, m)) ||
           (strcmp(n->op, "Transpose") == 0 && keeps_axes(n, m)) ||
           (strcmp(n->op, "Reshape") == 0 && known_to_be(n, 1, -1));
}

/* Sets what the node makes of its operand m; false: something unknown. */
static bool next_masked(OnnxNode *n, const Masked *m, Masked *next)
{
    *next = *m;
    if (m->kind == MASKED_AXES && strcmp(n->op, "Transpose") == 0 && transposes(n))
        next->kind = MASKED_TUPLES;
    else if (m->kind == MASKED_TUPLES && strcmp(n->op, "Shape") == 0 && first_size_first(n))
        next->kind = MASKED_SHAPE;
    else if (m->kind == MASKED_TUPLES && strcmp(n->op, "Squeeze") == 0 && of_one_number(n, m))
        next->kind = MASKED_NUMBERS;
    else if (m->kind == MASKED_NUMBERS && strcmp(n->op, "Shape") == 0 && first_size_first(n))
        next->kind = MASKED_COUNT;
    else if (m->kind == MASKED_NUMBERS && strcmp(n->op, "Unsqueeze") == 0 && at_second(n))
        next->kind = MASKED_TUPLES;
    else if (m->kind == MASKED_SHAPE && strcmp(n->op, "Gather") == 0 && known_to_be(n, 1, 0))
        next->kind = MASKED_COUNT;
    else if (m->kind == MASKED_ROWS && strcmp(n->op, "Reshape") == 0 && known_to_be(n, 1, -1))
        next->kind = MASKED_EACH;
    else if (m->kind == MASKED_PICKED)
        return stays_picked(n, next);
    else
        return stays_masked(n, m);
    return true;
}

static bool slices_first(OnnxNode *n, const Masked *end)
{
    return end && end->kind == MASKED_COUNT && is_tensor(n, 0) && in_type(n, 0)->rank == 1 &&
           known_to_be(n, 1, 0) && (!has_in(n, 3) || known_to_be(n, 3, 0)) &&
           (!has_in(n, 4) || known_to_be(n, 4, 1));
}

/* The mask without the last dimensions along which it is the same everywhere. */
static Val mask_of_rows(Graph *g, Val mask)
{
    int rank = val_type(g, mask)->rank;
    for (int axis = 0; axis < rank - 1; axis++) {
        Val rows = index_of_rows(g, mask, axis);
        if (rows.i)
            return rows;
    }
    return mask;
}

/* x with the elements of source, in their order, where the mask is set.  If source has too few, which PyTorch
 * refuses when running, the others are NaN, and integers 0. */
static Val scatter_masked(Graph *g, Val x, Val mask, Val source)
{
    const Type t = *val_type(g, x);
    int64_t all = type_count(&t), given = type_count(val_type(g, source));
    if (!all)
        return x;
    Val rows = mask_of_rows(g, mask);
    int64_t count = type_count(val_type(g, rows)), width = all / count, parts = given / width;
    if (given % width) {
        rows = mask;
        count = all;
        width = 1;
        parts = given;
    }
    Val set = build_cast(g, build_reshape(g, rows, 1, &count), DT_I64);
    Val row = add_scalar(g, build(g, OP_cumsum, NULL, 1, &set, &(CumsumAttrs){0}), -1);
    Val table = build_reshape(g, source, 2, (int64_t[]){parts, width});
    Val taken = build_gather(g, table, row, 0);
    if (dtype_is_float(t.dt)) {
        Val there = build2(g, OP_less, row, scalar_like(g, row, (double)parts));
        there = build_reshape(g, there, 2, (int64_t[]){count, 1});
        taken = build3(g, OP_where, there, taken, scalar_like(g, taken, (double)NAN));
    }
    return build3(g, OP_where, mask, build_reshape(g, taken, t.rank, t.dim), x);
}

/* x with v in every row where the mask is set; {0}: elements of a row have masks of their own. */
static Val set_masked_rows(Graph *g, Val x, Val mask, const Masked *m)
{
    const Type t = *val_type(g, x), each = *val_type(g, m->v);
    int axis = t.rank - m->trailing - 1;
    bool leads = each.rank > m->trailing; /* by a dimension of 1 */
    if (axis < 0 || each.rank > m->trailing + 1 || (leads && each.dim[0] != 1))
        return (Val){0};
    Type row = type_make(t.dt, m->trailing, t.dim + axis + 1), both = row;
    Val v = build_reshape(g, m->v, each.rank - leads, each.dim + leads);
    bool fits = type_broadcast(&both, val_type(g, v)) && type_same_shape(&both, &row);
    if (!fits || (type_count(&row) > 1 && !index_of_rows(g, mask, axis).i))
        return (Val){0};
    return build3(g, OP_where, mask, v, x);
}

/* Is operand 0 a tensor of the mask's shape, with further dimensions perhaps? */
static bool has_rows(OnnxNode *n, Val mask)
{
    const Type *rows = val_type(n->g, mask), *t = is_tensor(n, 0) ? in_type(n, 0) : NULL;
    if (!t || t->rank < rows->rank)
        return false;
    const Type leading = type_make(t->dt, rows->rank, t->dim);
    return type_same_shape(&leading, rows);
}

/* GatherND(x, at). */
static bool picks(OnnxNode *n, const Masked *at, Masked *next)
{
    if (!at || at->kind != MASKED_TUPLES || !has_rows(n, at->v) || !dtype_is_float(in_type(n, 0)->dt) ||
        attr_int(n, "batch_dims", 0) != 0)
        return false;
    *next = *at;
    next->kind = MASKED_PICKED;
    next->mask = at->v;
    next->trailing = in_type(n, 0)->rank - val_type(n->g, at->v)->rank;
    Val set = beside_rows(n->g, at->v, n->in[0]);
    next->v = build3(n->g, OP_where, set, n->in[0], scalar_like(n->g, n->in[0], 0));
    return true;
}

/* Operand k: what is picked, or else a number; {0}: neither. */
static Val picked_or_number(OnnxNode *n, int k)
{
    const Masked *m = masked_in(n, k);
    if (m)
        return m->kind == MASKED_PICKED ? m->v : (Val){0};
    bool number = is_tensor(n, k) && type_count(in_type(n, k)) == 1 && in_type(n, k)->rank <= 1;
    return number ? build_reshape(n->g, n->in[k], 0, NULL) : (Val){0};
}

/* A sum, difference or product of what one mask picks, or of that and a number: what it is everywhere. */
static bool combines(OnnxNode *n, Masked *next)
{
    static const struct {
        const char *onnx;
        Op op;
    } known[] = {{"Add", OP_add}, {"Sub", OP_sub}, {"Mul", OP_mul}};
    const Masked *a = masked_in(n, 0), *b = masked_in(n, 1);
    if (a && b && (a->kind != MASKED_PICKED || b->kind != MASKED_PICKED || a->trailing != b->trailing ||
                   !same_value(n->g, a->mask, b->mask, MOST_NODES)))
        return false;
    for (int i = 0; (a || b) && n->nin == 2 && i < 3; i++) {
        if (strcmp(n->op, known[i].onnx) != 0)
            continue;
        Val x = picked_or_number(n, 0), y = picked_or_number(n, 1);
        if (!x.i || !y.i || (a && b && !type_same_shape(val_type(n->g, x), val_type(n->g, y))))
            return false;
        *next = a ? *a : *b;
        next->v = build2(n->g, known[i].op, x, y);
        return true;
    }
    return false;
}

static bool scatters(OnnxNode *n, const Masked *at, const Masked *from)
{
    Graph *g = n->g;
    if (!at || !from || at->kind != MASKED_TUPLES || !has_rows(n, at->v) ||
        !attr_is(n, "reduction", "none", "none"))
        return false;
    Val mask = beside_rows(g, at->v, n->in[0]);
    bool each = type_same_shape(in_type(n, 0), val_type(g, at->v));
    if (each && from->kind == MASKED_FIRST)
        n->out[0] = scatter_masked(g, n->in[0], mask, from->v);
    else if (each && from->kind == MASKED_EACH)
        n->out[0] = set_masked_rows(g, n->in[0], mask, from);
    else if (from->kind == MASKED_PICKED && same_value(g, from->mask, at->v, MOST_NODES) &&
             type_same_shape(val_type(g, from->v), in_type(n, 0)))
        n->out[0] = build3(g, OP_where, mask, from->v, n->in[0]);
    return n->out[0].i && wrapped(n);
}

bool import_masked(OnnxNode *n, bool poisoned)
{
    const Masked *first = NULL;
    Masked next;
    for (int i = 0; i < n->nin; i++) {
        const Masked *m = masked_in(n, i);
        first = first ? first : m;
        if (m && poisoned)
            refuse_masked(m);
    }
    if (poisoned)
        return false;
    if (strcmp(n->op, "GatherND") == 0 && picks(n, masked_in(n, 1), &next))
        return masked_result(n, &next);
    if (combines(n, &next))
        return masked_result(n, &next);
    if (first == masked_in(n, 0) && next_masked(n, first, &next))
        return masked_result(n, &next);
    if (strcmp(n->op, "Slice") == 0 && slices_first(n, masked_in(n, 2))) {
        next = *first;
        next.kind = MASKED_FIRST;
        next.v = n->in[0];
        return masked_result(n, &next);
    }
    if (strcmp(n->op, "ScatterND") == 0 && scatters(n, masked_in(n, 1), masked_in(n, 2)))
        return true;
    for (int i = 0; i < n->nin; i++)
        if (masked_in(n, i) && !n->x->d->failed)
            refuse_masked(masked_in(n, i));
    return false;
}
