/* tile.c -- a product in tiles of rows, with what is done with its elements as the epilogue of each.
 *
 * The gradient of a large weight is needed once, element by element, by the update of the weight.
 * Made a few rows at a time and used at once it takes the memory of these rows and stays in the
 * caches.  The rest of the group is merged as ever (lower); here its operands are put behind
 * the product's, and its space is flattened, so that rows are a range of it. */
#include "attrs.h"
#include "kernel.h"
#include <string.h>

/* Over the whole space, every access steps through its operand element by element, or stays. */
static bool flatten(Kernel *k, int64_t count)
{
    int64_t space = 1;
    for (int d = 0; d < k->rank; d++)
        space *= k->extent[d];
    if (k->body || k->lib || k->product || k->red || space != count)
        return false;
    for (uint32_t i = 0; i < k->nins; i++) {
        KInst *in = &k->ins[i];
        bool plain = true, still = true;
        if (in->kind == K_CONST || in->kind == K_EXPR)
            continue;
        int64_t step = 1;
        for (int d = k->rank; d-- > 0; step *= k->extent[d]) {
            plain &= in->stride[d] == step || k->extent[d] == 1;
            still &= in->stride[d] == 0 || k->extent[d] == 1;
        }
        if (in->offset || !(plain || (still && in->kind == K_LOAD)) ||
            (in->kind != K_LOAD && in->kind != K_STORE))
            return false;
        memset(in->stride, 0, sizeof in->stride);
        in->stride[0] = plain;
    }
    memset(k->extent, 0, sizeof k->extent);
    k->rank = 1;
    k->extent[0] = count;
    return true;
}

/* Number the operands anew: the factors, other reads, writes, the product. */
static bool renumber(Command *c, const Node *product, const Graph *g)
{
    Kernel *k = &c->k;
    int n = c->nread + c->nwrite, *map = NEW(k->arena, int, n + 1), at = 2;
    DType *dt = NEW(k->arena, DType, n + 3);
    Val *vals = NEW(k->arena, Val, n + 3), factor[2];
    const Val *old = c->vals;
    for (int i = 0; i < 2; i++) {
        factor[i] = vals[i] = graph_root(g, product->in[i]);
        dt[i] = val_type(g, vals[i])->dt;
    }
    bool reads = false;
    for (int i = 0; i < n; i++) {
        bool made = old[i].i == product->out[0].i;
        if (old[i].i == factor[0].i || old[i].i == factor[1].i || (made && i >= c->nread))
            return false; /* overwritten too early, or needed afterwards */
        reads |= made;
        map[i] = made ? n + 1 : at;
        if (!made) {
            dt[at] = k->operand[i];
            vals[at++] = old[i];
        }
    }
    dt[n + 1] = val_type(g, product->out[0])->dt;
    for (uint32_t i = 0; i < k->nins; i++)
        if (k->ins[i].kind == K_LOAD || k->ins[i].kind == K_STORE)
            k->ins[i].operand = map[k->ins[i].operand];
    k->operand = dt;
    k->noperands = n + 2;
    c->vals = vals;
    c->nread += 1; /* two factors, but the product has no memory */
    return reads;
}

int64_t *node_tile(const Node *n)
{
    return n->op == OP_matmul             ? &((MatmulAttrs *)n->attr)->tile
           : n->op == OP_conv_bwd_weights ? &((ConvAttrs *)n->attr)->tile
                                          : NULL;
}

/* Which operand of the product is indexed by rows of the result, and its row stride in bytes. */
static bool find_rows(Kernel *k, const Graph *g, const Node *n, const Kernel *product)
{
    const Type *y = val_type(g, n->out[0]), *b = val_type(g, n->in[1]);
    int64_t *bytes, size = dtype_size[y->dt];
    if (type_count(y) == 0 || type_count(b) == 0)
        return false;
    k->rows = y->dim[0];
    k->row_bytes = bytes = kernel_rows(k, k->rows, k->noperands);
    if (!bytes)
        return false;
    if (n->op == OP_matmul) {
        bytes[0] = product->p[3] * size;
        return y->rank == 2;
    }
    /* weights of an output channel are rows, see conv.c */
    bytes[1] = type_count(b) / b->dim[0] / b->dim[1] * size;
    return ((const ConvAttrs *)n->attr)->group == 1;
}

bool lower_in_tiles(Command *c, Arena *a, const Graph *g, const NodeId *nodes, int n,
                    const bool *live_out, Diag *d)
{
    Kernel *k = &c->k;
    const Node *first = &g->nodes[nodes[0].i];
    const Type *y = val_type(g, first->out[0]);
    Kernel *product = NEW(a, Kernel, 1);
    k_init(product, a, g, first);
    TRY(lower(c, a, g, nodes + 1, n - 1, live_out, d));
    c->nodes = nodes;
    c->n = n;
    bool ok = c->nread + c->nwrite + 3 <= LOOP_OPERANDS &&
              node_def(first)->lower(product, g, first) && !live_out[first->out[0].i] &&
              flatten(k, type_count(y)) && renumber(c, first, g) &&
              find_rows(k, g, first, product);
    if (!ok)
        return d ? fail(d, "%s does not fit its kernel group", node_def(first)->name) : false;
    int64_t tile = *node_tile(first);
    k->product = product;
    k->graph = g;
    k->node = first;
    k->factor[1] = 1;
    k->block = tile > 0 && tile < k->rows ? tile : k->rows;
    k->flops += product->flops;
    return true;
}
