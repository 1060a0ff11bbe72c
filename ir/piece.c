/* piece.c -- split-K weight gradients: dW = X^T dY summed over blocks of rows, where what makes X is a
 * prologue that is recomputed for each block; and pooling's gradient, which goes along the rows.
 *
 * The gradient of a weight multiplies a layer's input by its result's gradient and sums over rows
 * or images.  Where that input is a pointwise function of what is stored anyway (a norm, an
 * activation), a piece of it is made, used, and gone: it has no memory but for the piece, and
 * stays in the caches.  Pieces are added in order, so their number, a rule of shapes, is part of
 * the result's bits. */
#include "attrs.h"
#include "kernel.h"
#include <string.h>

int64_t *node_piece(const Node *n)
{
    MatmulAttrs *at = n->attr;
    if (n->op == OP_max_pool_bwd)
        return &((PoolAttrs *)n->attr)->piece;
    return n->op == OP_conv_bwd_weights                ? &((ConvAttrs *)n->attr)->piece
           : n->op == OP_matmul && at->ta && !at->tb ? &at->piece
                                                     : NULL;
}

bool node_in_pieces(const Node *n)
{
    const int64_t *piece = node_piece(n);
    return piece && *piece;
}

bool node_has_rows(const Graph *g, const Node *n)
{
    return node_piece(n) && (n->op != OP_matmul || val_type(g, n->out[0])->rank == 2);
}

bool node_adds_pieces(const Node *n) { return n->op != OP_max_pool_bwd; }

/* Rows in units of what one step along the space's first dimension covers.  0: no such rows. */
static int64_t unit_rows(const Kernel *k, int64_t rows)
{
    if (k->nins == 0 || (k->rank > 0 && rows > 0 && k->extent[0] % rows == 0))
        return 1;
    return k->rank > 0 && k->extent[0] > 0 && rows % k->extent[0] == 0 ? rows / k->extent[0] : 0;
}

/* What makes the factor: k's operands are its reads, then the factor itself; the others follow. */
static bool number_operands(Command *c, const Node *n, const Graph *g)
{
    Kernel *k = &c->k;
    Val factor[2] = {graph_root(g, n->in[0]), graph_root(g, n->in[1])};
    bool makes = k->nins > 0;
    int reads = c->nread, made = -1;
    DType *dt = NEW(k->arena, DType, reads + 4);
    Val *vals = NEW(k->arena, Val, reads + 3);
    for (int i = 0; i < reads; i++) {
        dt[i] = k->operand[i];
        vals[i] = c->vals[i];
    }
    for (int i = 0; i < 2 && makes; i++)
        made = c->vals[reads].i == factor[i].i ? i : made;
    if (makes && (made < 0 || factor[0].i == factor[1].i))
        return false;
    for (int i = 0; i < 2; i++) {
        if (i == made)
            continue;
        k->factor[i] = 0;
        while (k->factor[i] < reads && vals[k->factor[i]].i != factor[i].i)
            k->factor[i]++;
        if (k->factor[i] < reads)
            return false; /* its rows are another's */
        dt[reads] = val_type(g, factor[i])->dt;
        vals[reads++] = factor[i];
    }
    vals[reads] = n->out[0];
    dt[reads] = val_type(g, n->out[0])->dt;
    if (makes) {
        k->factor[made] = reads + 1;
        dt[reads + 1] = k->operand[c->nread];
        for (uint32_t i = 0; i < k->nins; i++)
            if (k->ins[i].kind == K_STORE)
                k->ins[i].operand = reads + 1;
    }
    c->vals = vals;
    c->nread = reads;
    c->nwrite = 1;
    k->operand = dt;
    k->noperands = reads + 1 + makes;
    return true;
}

static bool find_pieces(Kernel *k, const Graph *g, const Node *n)
{
    const Type *x[] = {val_type(g, n->in[0]), val_type(g, n->in[1])};
    int64_t rows = x[0]->dim[0], unit = unit_rows(k, rows), piece = *node_piece(n);
    if (unit == 0 || rows == 0 || type_count(x[0]) == 0 || type_count(x[1]) == 0)
        return false;
    k->rows = rows / unit;
    k->block = piece > 0 && piece < rows ? (piece + unit - 1) / unit : k->rows;
    int64_t *bytes = k->nins ? kernel_rows(k, k->rows, k->noperands)
                             : NEW(k->arena, int64_t, k->noperands + 1);
    for (int i = 0; i < 2 && bytes; i++)
        bytes[k->factor[i]] = type_bytes(x[i]) / rows * unit;
    if (bytes && !node_adds_pieces(n))
        bytes[k->noperands - 1 - (k->nins > 0)] = type_bytes(val_type(g, n->out[0])) / rows * unit;
    k->row_bytes = bytes;
    return bytes != NULL;
}

/* What makes the factor. */
static bool lower_factor(Command *c, Arena *a, const Graph *g, const NodeId *nodes, int n, Diag *d)
{
    Arena tmp = {0};
    const Node *last = &g->nodes[nodes[n - 1].i];
    bool *live = NEW(&tmp, bool, g->nvals + 1);
    for (int i = 0; i < 2; i++)
        live[graph_root(g, last->in[i]).i] = true;
    bool ok = lower(c, a, g, nodes, n - 1, live, d);
    arena_free(&tmp);
    return ok;
}

bool lower_in_pieces(Command *c, Arena *a, const Graph *g, const NodeId *nodes, int n, Diag *d)
{
    Kernel *k = &c->k;
    const Node *last = &g->nodes[nodes[n - 1].i];
    Kernel *product = NEW(a, Kernel, 1);
    bool ok = node_has_rows(g, last);
    *c = (Command){.k = {.arena = a}, .g = g, .nodes = nodes, .n = n};
    if (n > 1)
        TRY(lower_factor(c, a, g, nodes, n, d));
    c->nodes = nodes;
    c->n = n;
    k_init(product, a, g, last);
    ok = ok && !k->red && (k->nins > 0) == (n > 1) && c->nwrite == (n > 1) && c->nread + 3 <= LOOP_OPERANDS &&
         node_def(last)->lower(product, g, last) && number_operands(c, last, g) &&
         find_pieces(k, g, last);
    if (!ok)
        return d ? fail(d, "%s does not fit its kernel group", node_def(last)->name) : false;
    k->product = product;
    k->graph = g;
    k->node = last;
    k->terms = true;
    k->flops += product->flops;
    return true;
}
