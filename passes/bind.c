/* bind.c -- the first pass: the ONNX model becomes a graph with every size known.
 *
 * ir/onnx does the work.  With StepOptions.f64 every f32 value becomes f64: the same training
 * step in double precision, for checking gradients and loss curves. */
#include "../ir/attrs.h"
#include "passes.h"

static void widen_data(Graph *g, Value *v)
{
    Tensor from = {v->type, (void *)(uintptr_t)v->data}, to = {type_with(v->type, DT_F64), NULL};
    to.data = NEW(g->arena, double, type_count(&v->type) + 1);
    tensor_cast(&from, &to);
    v->data = to.data;
    v->file = NULL;
}

static void widen(Graph *g)
{
    for (uint32_t i = 1; i < g->nvals; i++) {
        Value *v = &g->vals[i];
        if (v->type.dt != DT_F32)
            continue;
        if (v->data)
            widen_data(g, v);
        v->type.dt = DT_F64;
    }
    for (uint32_t k = 0; k < g->norder; k++) {
        const Node *n = &g->nodes[g->order[k].i];
        if (n->op == OP_cast && ((CastAttrs *)n->attr)->dtype == DT_F32)
            ((CastAttrs *)n->attr)->dtype = DT_F64;
        if ((n->op == OP_uniform || n->op == OP_normal) && ((RandomAttrs *)n->attr)->dtype == DT_F32)
            ((RandomAttrs *)n->attr)->dtype = DT_F64;
    }
}

bool pass_bind(Graph *g, PassCtx *cx)
{
    if (!cx->opt->model)
        return true;
    cx->changed = true;
    TRY(onnx_import(cx->opt->model, &cx->opt->import, g, cx->diag));
    if (cx->opt->f64)
        widen(g);
    return true;
}
