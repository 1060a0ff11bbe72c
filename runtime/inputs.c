/* inputs.c -- finds the inputs of a graph that the runtime sets itself, the valid range of an integer
 * operand, and the elements of an input that a value has. */
#include "runtime_int.h"
#include "ir/attrs.h"
#include <string.h>

static bool is_input(const Graph *g, Val v, Type want)
{
    return v.i && g->vals[v.i].kind == VAL_INPUT && type_equal(val_type(g, v), &want);
}

StepInputs step_inputs(const Graph *g)
{
    StepInputs s = {graph_find(g, "lr"), graph_find(g, "step"), graph_find(g, "rng"),
                    graph_find(g, "micro_batch"), graph_find(g, "loss_scale")};
    Type scalar = type_scalar(DT_F32);
    if (!is_input(g, s.lr, type_scalar(DT_F64)))
        s.lr.i = 0;
    if (!is_input(g, s.step, type_scalar(DT_I64)))
        s.step.i = 0;
    if (!is_input(g, s.rng, type_make(DT_I64, 1, (int64_t[]){2})))
        s.rng.i = 0;
    if (!is_input(g, s.micro, type_scalar(DT_I64)))
        s.micro.i = 0;
    if (s.scale.i && (g->vals[s.scale.i].kind != VAL_STATE || !type_equal(val_type(g, s.scale), &scalar)))
        s.scale.i = 0;
    return s;
}

IndexRange index_range(const Graph *g, const Node *n, int operand)
{
    switch (n->op) {
    case OP_gather:
        if (operand == 1)
            return (IndexRange){.limit = val_type(g, n->in[0])->dim[((const GatherAttrs *)n->attr)->axis],
                                .negative = true};
        break;
    case OP_gather_elements:
    case OP_scatter_elements:
        if (operand == 1)
            return (IndexRange){.limit = val_type(g, n->in[0])->dim[((const AxisAttrs *)n->attr)->axis],
                                .negative = true};
        break;
    case OP_gather_nd:
    case OP_scatter_nd: {
        const Type *x = val_type(g, n->in[0]), *ix = val_type(g, n->in[1]);
        int64_t batch = n->op == OP_gather_nd ? ((const AxisAttrs *)n->attr)->axis
                                              : ((const ScatterAttrs *)n->attr)->axis;
        if (operand == 1 && ix->dim[ix->rank - 1] == 1)
            return (IndexRange){.limit = x->dim[batch], .negative = true};
        break;
    }
    case OP_gather_bwd:
        if (operand == 1) {
            const GatherBwdAttrs *at = n->attr;
            return (IndexRange){.limit = at->shape.v[at->axis], .negative = true};
        }
        break;
    case OP_gather_elements_bwd:
        if (operand == 1) {
            const ElementsBwdAttrs *at = n->attr;
            return (IndexRange){.limit = at->shape.v[at->axis], .negative = true};
        }
        break;
    case OP_cross_entropy:
    case OP_cross_entropy_bwd:
        if (operand == (n->op == OP_cross_entropy ? 1 : 2)) {
            const CrossEntropyAttrs *at = n->attr;
            return (IndexRange){.limit = class_count(at, val_type(g, n->in[operand - 1])),
                                .ignore = at->ignore,
                                .negative = at->negative != 0,
                                .has_ignore = at->has_ignore != 0,
                                .target = true};
        }
        break;
    default:
        break;
    }
    return (IndexRange){0};
}

IndexRange range_of_both(IndexRange a, IndexRange b)
{
    if (a.limit == 0 || b.limit == 0)
        return a.limit ? a : b;
    bool ignore = a.has_ignore && b.has_ignore && a.ignore == b.ignore;
    return (IndexRange){.limit = a.limit < b.limit ? a.limit : b.limit,
                        .ignore = ignore ? a.ignore : 0,
                        .negative = a.negative && b.negative,
                        .has_ignore = ignore,
                        .target = a.target && b.target};
}

bool keeps_indices(const Graph *g, const Node *n)
{
    return (n->op == OP_reshape || n->op == OP_transpose || n->op == OP_expand || n->op == OP_slice ||
            n->op == OP_cast || n->op == OP_copy) &&
           !dtype_is_float(val_type(g, n->out[0])->dt);
}

/* ---- views ------------------------------------------------------------- */

InputView view_whole(const Type *t)
{
    InputView v = {.rank = t->rank};
    type_strides(t, v.step);
    memcpy(v.size, t->dim, sizeof v.size);
    return v;
}

static bool follow_slice(InputView *v, const SliceAttrs *at, const Type *x)
{
    for (int i = 0; i < x->rank; i++) {
        if (at->size.v[i] == x->dim[i] && at->step.v[i] == 1)
            continue;
        if (v->regrouped)
            return false;
        v->first += v->step[i] * at->start.v[i];
        v->step[i] *= at->step.v[i];
        v->size[i] = at->size.v[i];
    }
    return true;
}

/* Makes v's axes those of y, from the last: axes whose elements follow each other at one distance are one,
 * and are cut as y's are. */
static void follow_reshape(InputView *v, const Type *y)
{
    InputView to = {.rank = y->rank, .first = v->first};
    int j = y->rank;
    int64_t have = 1, taken = 1, step = 1;
    memcpy(to.size, y->dim, sizeof to.size);
    for (int i = v->rank; i-- > 0;) {
        step = have == 1 && v->size[i] != 1 ? v->step[i] : step;
        have *= v->size[i];
        if (i > 0 && (v->size[i - 1] == 1 || have == 1 || v->step[i - 1] == have * step))
            continue;
        for (; j > 0 && (taken < have || y->dim[j - 1] == 1); taken *= y->dim[j])
            to.step[--j] = taken * step;
        v->regrouped |= taken != have;
        have = taken = 1;
    }
    v->regrouped |= j > 0;
    if (!v->regrouped)
        *v = to;
}

/* Moves axis perm[i] to i. */
static void follow_transpose(InputView *v, const Ints *perm)
{
    const InputView was = *v;
    for (int i = 0; i < perm->n; i++) {
        v->step[i] = was.step[perm->v[i]];
        v->size[i] = was.size[perm->v[i]];
    }
}

/* The elements along an axis that is expanded are one. */
static void follow_expand(InputView *v, const Type *x, const Type *y)
{
    const InputView was = *v;
    v->rank = y->rank;
    for (int i = y->rank - 1, k = x->rank - 1; i >= 0; i--, k--) {
        v->step[i] = k >= 0 && x->dim[k] == y->dim[i] ? was.step[k] : 0;
        v->size[i] = y->dim[i];
    }
}

bool view_follow(InputView *v, const Graph *g, const Node *n)
{
    const Type *x = val_type(g, n->in[0]), *y = val_type(g, n->out[0]);
    if (n->op == OP_slice)
        return follow_slice(v, n->attr, x);
    if (n->op == OP_reshape && !v->regrouped)
        follow_reshape(v, y);
    else if (n->op == OP_transpose && !v->regrouped)
        follow_transpose(v, &((const TransposeAttrs *)n->attr)->perm);
    else if (n->op == OP_expand && !v->regrouped)
        follow_expand(v, x, y);
    return true;
}

void view_mark(const InputView *v, int64_t row, bool *has)
{
    int64_t count = 1;
    for (int i = 0; i < v->rank; i++)
        count *= v->step[i] ? v->size[i] : v->size[i] > 0;
    for (int64_t k = 0; k < count; k++) {
        int64_t at = v->first, rest = k;
        for (int i = v->rank; i-- > 0;) {
            if (!v->step[i])
                continue;
            at += rest % v->size[i] * v->step[i];
            rest /= v->size[i];
        }
        has[at % row] = true;
    }
}
