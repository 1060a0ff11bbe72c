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
    InputView v = {0};
    for (int i = 0; i < t->rank; i++) {
        v.axis[i] = i;
        v.step[i] = 1;
        v.size[i] = t->dim[i];
    }
    return v;
}

static bool follow_slice(InputView *v, const SliceAttrs *at, const Type *x)
{
    for (int i = 0; i < x->rank; i++) {
        int a = v->axis[i];
        if (at->size.v[i] == x->dim[i] && at->step.v[i] == 1)
            continue;
        if (a < 0)
            return false;
        v->first[a] += v->step[a] * at->start.v[i];
        v->step[a] *= at->size.v[i] > 1 ? at->step.v[i] : 1;
        v->size[a] = at->size.v[i];
    }
    return true;
}

/* Maps the leading axes of y to those of x, as long as they are equal apart from extents of 1; the others
 * become -1. */
static void follow_reshape(InputView *v, const Type *x, const Type *y)
{
    int from[MAX_RANK], i = 0, j = 0;
    memcpy(from, v->axis, sizeof from);
    while (j < y->rank) {
        if (i < x->rank && x->dim[i] == y->dim[j])
            v->axis[j++] = from[i++];
        else if (y->dim[j] == 1)
            v->axis[j++] = -1;
        else if (i < x->rank && x->dim[i] == 1)
            i++;
        else
            break;
    }
    while (j < y->rank)
        v->axis[j++] = -1;
}

bool view_follow(InputView *v, const Graph *g, const Node *n)
{
    const Type *x = val_type(g, n->in[0]), *y = val_type(g, n->out[0]);
    InputView was = *v;
    switch (n->op) {
    case OP_slice:
        return follow_slice(v, n->attr, x);
    case OP_reshape:
        follow_reshape(v, x, y);
        return true;
    case OP_transpose:
        for (int i = 0; i < y->rank; i++)
            v->axis[i] = was.axis[((const TransposeAttrs *)n->attr)->perm.v[i]];
        return true;
    case OP_expand:
        for (int i = y->rank - 1, k = x->rank - 1; i >= 0; i--, k--)
            v->axis[i] = k >= 0 && x->dim[k] == y->dim[i] ? was.axis[k] : -1;
        return true;
    default:
        return true;
    }
}

bool view_has(const InputView *v, const int64_t *at, int first, int rank)
{
    for (int a = first; a < rank; a++) {
        int64_t d = at[a] - v->first[a];
        if (d % v->step[a] != 0 || d / v->step[a] < 0 || d / v->step[a] >= v->size[a])
            return false;
    }
    return true;
}
