/* initial.c -- values before the first step: bytes of the model or a cast of them, zeros, or random values of
 * --init. */
#include "runtime_int.h"
#include "ir/attrs.h"
#include "ir/file.h"
#include "ir/mem.h"
#include <stdlib.h>
#include <string.h>

/* Copies the value's bytes from its file, which is mapped only during the call. */
static bool from_file(const Value *v, Tensor *out, Diag *d)
{
    FileMap m;
    int64_t bytes = type_bytes(&v->type);
    TRY(file_map(&m, v->file, d));
    bool ok = v->offset >= 0 && v->offset <= (int64_t)m.size &&
              bytes <= (int64_t)m.size - v->offset;
    if (ok && bytes)
        memcpy(out->data, m.data + v->offset, (size_t)bytes);
    file_unmap(&m);
    return ok || fail(d, "%s: too short for the bytes of %s", v->file, v->name);
}

static bool matmul_input_first(const MatmulAttrs *at, int operand)
{
    return operand == 0 ? at->ta : !at->tb;
}

/* Is dimension 0 of a parameter the input side, as in the right operand of a product?  The first product that
 * reads the parameter, directly or transposed, reshaped or cast, decides. */
static bool input_first(const Graph *g, Val param)
{
    Val v = graph_loaded(g, param);
    bool swapped = false, by_rows = false; /* panels of a matrix that is read by rows (passes/panels.c) */
    for (uint32_t i = 0; i < g->norder; i++) {
        const Node *n = &g->nodes[g->order[i].i];
        int k = 0;
        while (k < n->nin && n->in[k].i != v.i)
            k++;
        if (k == n->nin)
            continue;
        if (n->op == OP_transpose) {
            swapped ^= val_type(g, v)->rank == 2;
            by_rows = ((const TransposeAttrs *)n->attr)->perm.v[0] == 1;
        }
        if (n->op == OP_transpose || n->op == OP_reshape || n->op == OP_cast)
            v = n->out[0];
        else if (n->op == OP_matmul)
            return matmul_input_first(n->attr, k) != swapped;
        else if (n->op == OP_matmul_panels)
            return k == 1 && by_rows != swapped;
        else if (n->op == OP_conv_bwd_data)
            return k == 1;
        else
            return false;
    }
    return false;
}

static bool cast_value(const Graph *g, Val of, const ExecOptions *opt, Tensor *out, Diag *d)
{
    Tensor from = graph_tensor(g, of);
    void *room = from.data ? NULL : mem_new((size_t)type_bytes(&from.type) + 1, 1);
    from.data = room ? room : from.data;
    bool ok = !room || initial_value(g, of, opt, &from, d);
    if (ok)
        tensor_cast(&from, out);
    free(room);
    return ok;
}

bool initial_value(const Graph *g, Val v, const ExecOptions *opt, Tensor *out, Diag *d)
{
    const Value *val = &g->vals[v.i];
    size_t bytes = (size_t)type_bytes(&val->type);
    if (val->cast_of.i)
        return cast_value(g, val->cast_of, opt, out, d);
    if (val->data) {
        if (bytes)
            memcpy(out->data, val->data, bytes);
        return true;
    }
    if (val->file)
        return from_file(val, out, d);
    if (val->kind == VAL_STATE) {
        memset(out->data, 0, bytes);
        return true;
    }
    if (val->kind != VAL_PARAM || !dtype_is_float(val->type.dt))
        return fail(d, "%s has no value", val->name);
    if (!opt->init)
        return fail(d, "parameter %s has no value in the model: give --init", val->name);
    init_fill(out, opt->init, val->name, input_first(g, v), opt->seed);
    return true;
}
