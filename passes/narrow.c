/* narrow.c -- holds a frozen weight in 16 bits if the step reads it in 16 bits only.
 *
 * If a cast is a kernel of its own and the only reader of a weight that no update changes, its result
 * becomes a source instead: the weight, rounded when it is loaded to the same bits that the kernel
 * gives.  The weight stays in the graph, with its names and its place in a file, and has no memory.
 *
 * Runs behind fuse: a cast inside a kernel of several nodes rounds nothing. */
#include "passes.h"

static bool narrows(const Graph *g, const Node *n)
{
    if (n->op != OP_cast || n->group)
        return false;
    const Value *from = &g->vals[n->in[0].i];
    return (from->kind == VAL_PARAM || from->kind == VAL_CONST) && from->type.dt == DT_F32 &&
           dtype_is_half(val_type(g, n->out[0])->dt);
}

bool pass_narrow(Graph *g, PassCtx *cx)
{
    const uint32_t *uses = graph_uses(g, cx->tmp);
    const bool *updated = graph_updated(g, cx->tmp), *end = graph_ends(g, cx->tmp);
    uint32_t n = g->norder;
    g->norder = 0;
    for (uint32_t k = 0; k < n; k++) {
        const Node *node = &g->nodes[g->order[k].i];
        if (!narrows(g, node) || uses[node->in[0].i] > 1 || updated[node->in[0].i] || end[node->out[0].i]) {
            g->order[g->norder++] = g->order[k];
            continue;
        }
        Val of = node->in[0], v = node->out[0];
        const char *type = dtype_name[val_type(g, v)->dt];
        graph_rename(g, v, arena_printf(g->arena, "%s.%s", g->vals[of.i].name, type));
        g->vals[v.i].kind = g->vals[of.i].kind;
        g->vals[v.i].def.i = 0;
        g->vals[v.i].cast_of = of;
        cx->changed = true;
    }
    return true;
}
