/* inputs.c -- which inputs of a graph the runtime makes itself, and what integer operands select from. */
#include "runtime_int.h"
#include "ir/attrs.h"

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
    case OP_gather_bwd:
        if (operand == 1) {
            const GatherBwdAttrs *at = n->attr;
            return (IndexRange){.limit = at->shape.v[at->axis], .negative = true};
        }
        break;
    case OP_cross_entropy:
    case OP_cross_entropy_bwd:
        if (operand == (n->op == OP_cross_entropy ? 1 : 2)) {
            const CrossEntropyAttrs *at = n->attr;
            return (IndexRange){.limit = val_type(g, n->in[operand - 1])->dim[at->axis],
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

bool keeps_indices(const Graph *g, const Node *n)
{
    return (n->op == OP_reshape || n->op == OP_transpose || n->op == OP_expand || n->op == OP_slice ||
            n->op == OP_cast || n->op == OP_copy) &&
           !dtype_is_float(val_type(g, n->out[0])->dt);
}
