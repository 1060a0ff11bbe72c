/* panels.c -- packs a matrix that many small products read once, in the form in which the device multiplies.
 *
 * A recurrent weight is read in every time step, by a product of as many rows as there are sequences: packing
 * it each time takes about as long as multiplying.  Here the packed matrix is a value, [n / p, k, p], which
 * the planner keeps or makes again like any other; forward and backward, which read the weight and its
 * transpose, have one each. */
#include "../ir/attrs.h"
#include "rewrite.h"
#include <string.h>

enum {
    MOST_ROWS = 64,
    LEAST = 4 /* fewest products that are worth packing for */
};

/* Per value: the numbers of products that read it as it lies and transposed, and its panels for them. */
typedef struct {
    uint32_t products[2];
    Val panels[2];
} Factor;

/* Is n a times b or b's transpose, in f32, with few rows and b whole panels wide? */
static bool is_small_product(const Graph *g, const Node *n, int64_t columns)
{
    const MatmulAttrs *at = n->attr;
    if (n->op != OP_matmul || n->group || at->ta || at->out || node_split_rows(g, n) != SPLIT_NONE)
        return false;
    const Type *a = val_type(g, n->in[0]), *b = val_type(g, n->in[1]), *y = val_type(g, n->out[0]);
    return a->rank == 2 && b->rank == 2 && y->dt == DT_F32 && y->dim[0] <= MOST_ROWS &&
           y->dim[1] % columns == 0 && type_count(b) > 0;
}

static Val packed(Graph *g, Val b, bool transposed, int64_t columns)
{
    const Type t = *val_type(g, b);
    if (transposed) { /* [n, k] */
        Val v = build_reshape(g, b, 3, (int64_t[]){t.dim[0] / columns, columns, t.dim[1]});
        return build_transpose(g, v, (int[]){0, 2, 1});
    }
    Val v = build_reshape(g, b, 3, (int64_t[]){t.dim[0], t.dim[1] / columns, columns});
    return build_transpose(g, v, (int[]){1, 0, 2});
}

bool pass_panels(Graph *g, PassCtx *cx)
{
    int64_t columns = step_device(cx->opt)->panel_columns;
    if (columns <= 0)
        return true;
    uint32_t n = g->norder;
    const NodeId *old = graph_take_order(g, cx->tmp);
    Factor *factor = NEW(cx->tmp, Factor, g->nvals);
    for (uint32_t k = 0; k < n; k++) {
        const Node *node = &g->nodes[old[k].i];
        if (is_small_product(g, node, columns))
            factor[node->in[1].i].products[((const MatmulAttrs *)node->attr)->tb != 0]++;
    }
    for (uint32_t k = 0; k < n && !g->diag->failed; k++) {
        const Node node = g->nodes[old[k].i];
        bool transposed = node.op == OP_matmul && ((const MatmulAttrs *)node.attr)->tb;
        Factor *f = node.op == OP_matmul ? &factor[node.in[1].i] : NULL;
        if (f && f->products[transposed] >= LEAST && is_small_product(g, &node, columns)) {
            if (!f->panels[transposed].i)
                f->panels[transposed] = packed(g, node.in[1], transposed, columns);
            g->nodes[old[k].i].op = OP_matmul_panels;
            g->nodes[old[k].i].attr = NULL;
            g->nodes[old[k].i].in[1] = f->panels[transposed];
            cx->changed = true;
        }
        graph_schedule(g, old[k]);
    }
    return !g->diag->failed;
}
