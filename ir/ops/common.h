/* common.h -- helpers shared by the operator definitions. */
#ifndef CKC_OPS_COMMON_H
#define CKC_OPS_COMMON_H
#include "../attrs.h"
#include "../kernel.h"
#include "../onnx/nodes.h"

#define OP(name) extern const OpDef op_##name;
#include "../ops.def"

#define COUNT(a) (sizeof(a) / sizeof *(a))
/* The fields of an OpDef for its attributes: `list`, an array of ATTR(S, ...). */
#define ATTRS(list, S) .attrs = list, .nattrs = COUNT(list), .attr_size = sizeof(S)
#define ATTR(S, field, kind, dflt) {#field, kind, offsetof(S, field), dflt}

static inline const Type *in_type(const Graph *g, const Node *n, int i)
{
    return &g->vals[n->in[i].i].type;
}
static inline const Type *out_type(const Graph *g, const Node *n, int i)
{
    return &g->vals[n->out[i].i].type;
}
static inline bool has_in(const Node *n, int i) { return i < n->nin && n->in[i].i; }

static inline bool axis_valid(const Node *n, int64_t axis, int rank, Diag *d)
{
    return (axis >= 0 && axis < rank) ||
           fail(d, "%s: axis %lld of a tensor of rank %d", node_def(n)->name, (long long)axis,
                rank);
}

/* Is operand i of this type? */
static inline bool operand_is(const Graph *g, const Node *n, int i, const Type *want, Diag *d)
{
    char a[160], b[160];
    return type_equal(in_type(g, n, i), want) ||
           fail(d, "%s: operand %d is %s, expected %s", node_def(n)->name, i,
                type_str(in_type(g, n, i), a), type_str(want, b));
}

/* Is operand i of type dt, or that of its sums? */
static inline bool has_type(const Graph *g, const Node *n, int i, DType dt)
{
    return in_type(g, n, i)->dt == dt || in_type(g, n, i)->dt == dtype_sum(dt);
}

/* The result's type where an attribute `out` may say that it is the type of the operands' sums. */
static inline bool sum_infer(const Node *n, int64_t to, Type *out, Diag *d)
{
    bool ok = to == DT_NONE || to == (int64_t)out->dt || to == (int64_t)dtype_sum(out->dt);
    out->dt = to == DT_NONE ? out->dt : (DType)to;
    return ok || fail(d, "%s: the result cannot be %s", node_def(n)->name, dtype_name[to]);
}

/* The type whose shape is the attribute `shape`; false if there is no such type. */
static inline bool shape_type(const Node *n, DType dt, const Ints *shape, Type *out, Diag *d)
{
    if (shape->n < 0 || shape->n > MAX_RANK)
        return fail(d, "%s: shape of rank %d", node_def(n)->name, shape->n);
    *out = type_make(dt, shape->n, shape->v);
    return type_valid(out) || fail(d, "%s: impossible shape", node_def(n)->name);
}

/* For operators whose gradient follows output 0 alone: refuse cotangents of the others. */
static inline bool only_first_output(const Grad *gr, const Node *n)
{
    for (int k = 1; k < n->nout; k++)
        if (grad_out(gr, n, k).i)
            return fail_status(gr->g->diag, EXIT_UNSUPPORTED,
                               "%s: no gradient through output %d", node_def(n)->name, k);
    return true;
}

/* The result has the type of operand 0, which all operands must have. */
bool infer_same(const Graph *g, const Node *n, Type *out, Diag *d);
bool infer_broadcast(const Graph *g, const Node *n, Type *out, Diag *d);
extern const AttrDef pointwise_attrs[2];
#endif
