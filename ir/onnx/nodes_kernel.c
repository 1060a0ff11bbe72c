/* nodes_kernel.c -- a kernel of instructions (kernel.h) as nodes of standard operators.
 *
 * Every instruction is a tensor of the space's rank, whose extents are the space's or 1.  Loads are
 * reshaped (and transposed) operands, reductions keep their axes, stores are expanded to all that they
 * write.  What a load or store does beyond that is not known here: such operators have a hook. */
#include "nodes_int.h"
#include <string.h>

typedef struct {
    ExprValue x;
    uint32_t full; /* dimensions that have the space's extent; the others have 1 */
} Inst;

typedef struct {
    OnnxNodes *o;
    const Kernel *k;
    DType real;
    Inst *at;
} Walk;

static const Type *operand_type(const Walk *s, int operand)
{
    const Node *n = s->o->n;
    return val_type(s->o->g, operand < n->nin ? n->in[operand] : n->out[operand - n->nin]);
}

/* Dimensions along which an access moves. */
static uint32_t moving(const Kernel *k, const KInst *in)
{
    uint32_t m = 0;
    for (int d = 0; d < k->rank; d++)
        m |= (uint32_t)(in->stride[d] != 0 && k->extent[d] != 1) << d;
    return m;
}

static void space_dims(const Kernel *k, uint32_t full, int64_t *dim)
{
    for (int d = 0; d < k->rank; d++)
        dim[d] = full >> d & 1 ? k->extent[d] : 1;
}

/* Sorts the moving dimensions from the largest stride to the least; false: the access does not cover all of
 * the operand, each element once. */
static bool whole_operand(const Kernel *k, const KInst *in, int64_t count, int *order, int *n)
{
    uint32_t m = moving(k, in);
    int64_t next = 1;
    *n = 0;
    for (int d = 0; d < k->rank; d++) {
        int e = *n;
        if (!(m >> d & 1))
            continue;
        for (; e > 0 && in->stride[order[e - 1]] < in->stride[d]; e--)
            order[e] = order[e - 1];
        order[e] = d;
        ++*n;
    }
    for (int e = *n; e-- > 0; next *= k->extent[order[e]])
        if (in->stride[order[e]] != next)
            return false;
    return in->offset == 0 && next == count;
}

static bool same_dims(const Type *t, int rank, const int64_t *dim)
{
    return t->rank == rank && memcmp(t->dim, dim, (size_t)rank * sizeof *dim) == 0;
}

/* v, an operand of type t, as a tensor of the space. */
static bool load_tensor(Walk *s, const KInst *in, const Type *t, OnnxVal *v)
{
    int64_t dim[MAX_RANK], sorted[MAX_RANK];
    int order[MAX_RANK], perm[MAX_RANK] = {0}, n;
    OnnxNodes *o = s->o;
    bool moves = false;
    space_dims(s->k, moving(s->k, in), dim);
    if (moving(s->k, in) == 0 && type_count(t) != 1) { /* one element */
        *v = onnx_reshape(o, *v, 1, (int64_t[]){-1});
        *v = onnx_slice(o, *v, 0, in->offset, in->offset + 1, 1);
        *v = onnx_reshape(o, *v, s->k->rank, dim);
        return true;
    }
    TRY(whole_operand(s->k, in, type_count(t), order, &n));
    for (int i = 0; i < n; i++) {
        int place = 0;
        for (int j = 0; j < n; j++)
            place += order[j] < order[i];
        perm[place] = i;
        moves |= place != i;
        sorted[i] = s->k->extent[order[i]];
    }
    if (moves) {
        if (!same_dims(t, n, sorted))
            *v = onnx_reshape(o, *v, n, sorted);
        *v = onnx_transpose(o, *v, n, perm);
        for (int i = 0; i < n; i++)
            sorted[i] = s->k->extent[order[perm[i]]];
    }
    if (moves ? n != s->k->rank : !same_dims(t, s->k->rank, dim))
        *v = onnx_reshape(o, *v, s->k->rank, dim);
    return true;
}

static bool load(Walk *s, const KInst *in, Inst *out)
{
    OnnxVal v = onnx_in(s->o, in->operand);
    const Type *t = operand_type(s, in->operand);
    TRY(v.i && load_tensor(s, in, t, &v));
    ExprClass class = t->dt == DT_BOOL ? X_BOOL : dtype_is_float(t->dt) ? X_REAL : X_INT;
    out->x = (ExprValue){.v = class == X_BOOL ? v : onnx_cast(s->o, v, class == X_INT ? DT_I64 : s->real),
                         .class = class};
    out->full = moving(s->k, in);
    return true;
}

/* Makes offset + sum of stride * index from a table for each dimension. */
static void index_tensor(Walk *s, const KInst *in, Inst *out)
{
    out->x = (ExprValue){.class = X_INT, .constant = true, .c = (double)in->offset};
    out->full = moving(s->k, in);
    int64_t first = in->offset;
    for (int d = 0; d < s->k->rank; d++) {
        if (!(out->full >> d & 1))
            continue;
        int64_t dim[MAX_RANK], n = s->k->extent[d];
        Tensor t = {type_make(DT_I64, 1, &n), arena_alloc(s->o->a, (size_t)n + 1, sizeof(int64_t))};
        for (int64_t j = 0; j < n; j++)
            ((int64_t *)t.data)[j] = first + j * in->stride[d];
        space_dims(s->k, 1u << d, dim);
        t.type = type_make(DT_I64, s->k->rank, dim);
        OnnxVal v = onnx_table(s->o, &t);
        out->x = (ExprValue){.v = out->x.constant ? v : onnx_op2(s->o, "Add", out->x.v, v), .class = X_INT};
        first = 0;
    }
}

static bool expression(Walk *s, const KInst *in, Inst *out)
{
    ExprValue arg[3] = {{{0}, X_INT, false, 0}};
    ExprClass class = in->type == KT_REAL ? X_REAL : X_INT;
    for (int a = 0; a < in->expr->nin; a++) {
        arg[a] = s->at[in->arg[a]].x;
        out->full |= s->at[in->arg[a]].full;
        class = arg[a].class == X_REAL ? X_REAL : class;
    }
    bool draws = in->expr->cost >= EXPR_UNIFORM;
    for (int a = 0; a < in->expr->nin && class == X_REAL && !draws; a++) /* integers meet reals as reals */
        if (arg[a].class == X_INT)
            arg[a] = (ExprValue){.v = expr_tensor(s->o, arg[a], X_REAL, s->real), .class = X_REAL};
    TRY(expr_translate(s->o, in->expr, arg, in->al, in->be, s->real, &out->x));
    if (in->type == KT_INT && out->x.class == X_REAL)
        out->x = (ExprValue){.v = expr_tensor(s->o, out->x, X_INT, s->real), .class = X_INT};
    return true;
}

/* i as a tensor in which the dimensions `full` have the space's extents. */
static OnnxVal widened(Walk *s, const Inst *i, ExprClass class, uint32_t full)
{
    OnnxVal v = expr_tensor(s->o, i->x, class, s->real);
    int64_t dim[MAX_RANK];
    bool scalar = i->x.constant && s->k->rank > 0; /* v has rank 0 */
    uint32_t all = 0;
    for (int d = 0; d < s->k->rank; d++)
        all |= (uint32_t)(s->k->extent[d] != 1) << d;
    if (!scalar && !(full & all & ~i->full))
        return v;
    space_dims(s->k, full | i->full, dim);
    return onnx_expand(s->o, v, s->k->rank, dim);
}

static void reduction(Walk *s, const KInst *in, Inst *out)
{
    static const char *const op[] = {
        [K_SUM] = "ReduceSum", [K_MAX] = "ReduceMax", [K_MIN] = "ReduceMin", [K_PROD] = "ReduceProd"};
    const Inst *a = &s->at[in->arg[0]];
    ExprClass class = a->x.class == X_BOOL ? X_INT : a->x.class;
    OnnxVal v = widened(s, a, class, s->k->red);
    out->x = (ExprValue){.v = onnx_reduced(s->o, op[in->kind], v, s->k->red, true), .class = class};
    out->full = a->full & ~s->k->red;
}

static bool store(Walk *s, const KInst *in)
{
    const Inst *a = &s->at[in->arg[0]];
    const Type *t = operand_type(s, in->operand);
    uint32_t full = moving(s->k, in);
    int order[MAX_RANK], n;
    int64_t dim[MAX_RANK];
    TRY(whole_operand(s->k, in, type_count(t), order, &n) && !(a->full & ~full));
    for (int i = 1; i < n; i++)
        TRY(order[i - 1] < order[i]);
    ExprClass class = t->dt == DT_BOOL ? X_BOOL : dtype_is_float(t->dt) ? X_REAL : X_INT;
    OnnxVal v = widened(s, a, class, full);
    space_dims(s->k, full, dim);
    if (!same_dims(t, s->k->rank, dim))
        v = onnx_reshape(s->o, v, t->rank, t->dim);
    onnx_out(s->o, in->operand - s->o->n->nin, v);
    return true;
}

static bool instruction(Walk *s, const KInst *in, Inst *out)
{
    switch (in->kind) {
    case K_LOAD:
        return load(s, in, out);
    case K_CONST:
        out->x = (ExprValue){.class = in->type == KT_REAL ? X_REAL : X_INT, .constant = true, .c = in->imm};
        return true;
    case K_INDEX:
        index_tensor(s, in, out);
        return true;
    case K_EXPR:
        return expression(s, in, out);
    case K_STORE:
        return store(s, in);
    default:
        reduction(s, in, out);
        return true;
    }
}

bool kernel_translate(OnnxNodes *o, const Kernel *k)
{
    k = kernel_without_deviations(k, o->a);
    Walk s = {o, k, DT_F32, NEW(o->a, Inst, k->nins + 1)};
    for (int i = 0; i < k->noperands; i++)
        s.real = k->operand[i] == DT_F64 ? DT_F64 : s.real;
    for (uint32_t i = 0; i < k->nins; i++)
        TRY(instruction(&s, &k->ins[i], &s.at[i]));
    return true;
}
