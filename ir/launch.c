/* launch.c -- the launches of a command: one, or those of a loop over blocks of rows, unrolled.
 *
 * Workspace of a loop: the block that one part hands over to the other, then a later block's product,
 * which is added to the sum of those before it. */
#include "program.h"
#include <string.h>

int64_t *kernel_rows(const Kernel *k, int64_t rows, int noperands)
{
    int64_t *bytes = NEW(k->arena, int64_t, noperands + 1);
    bool *seen = NEW(k->arena, bool, noperands + 1);
    if (k->body || k->lib || k->product || k->rank == 0 || rows == 0 || k->extent[0] % rows)
        return NULL;
    for (uint32_t i = 0; i < k->nins; i++) {
        const KInst *in = &k->ins[i];
        if (in->kind == K_CONST || in->kind == K_EXPR)
            continue;
        if (in->kind != K_LOAD && in->kind != K_STORE)
            return NULL;
        int64_t step = k->extent[0] / rows * in->stride[0] * dtype_size[k->operand[in->operand]];
        if (seen[in->operand] && bytes[in->operand] != step)
            return NULL;
        seen[in->operand] = true;
        bytes[in->operand] = step;
    }
    return bytes;
}

Kernel kernel_some_rows(const Kernel *k, int64_t of, int64_t rows)
{
    Kernel part = *k;
    part.product = NULL;
    part.extent[0] = k->extent[0] / of * rows;
    part.flops = (k->flops - (k->product ? k->product->flops : 0)) / (double)of * (double)rows;
    return part;
}

/* ---- what the launches of a block have in common ---------------------------------------------------- */

/* Does it hand over anything?  In pieces only what a factor is made of. */
static bool makes(const Kernel *k) { return k->product && (!k->terms || k->nins > 0); }

static int64_t block_rows(const Kernel *k) { return k->block < k->rows ? k->block : k->rows; }

static int64_t made_bytes(const Kernel *k)
{
    return makes(k) ? plan_align(block_rows(k) * k->row_bytes[k->noperands - 1]) : 0;
}

static int64_t sum_bytes(const Kernel *k)
{
    bool several = k->product && k->terms && node_adds_pieces(k->node) && k->block < k->rows;
    return several ? plan_align(type_bytes(val_type(k->graph, k->node->out[0]))) : 0;
}

int64_t kernel_workspace_bytes(const Kernel *k) { return made_bytes(k) + sum_bytes(k); }

int64_t command_blocks(const Command *c)
{
    const Kernel *k = &c->k;
    return k->product ? (k->rows + k->block - 1) / k->block : 1;
}

/* Kernels of blocks of that many rows. */
typedef struct {
    int64_t rows;
    uint32_t product, rest; /* in Launches; rest: the pointwise part */
    const LibDesc *lib;
} Block;

typedef struct {
    const Command *c;
    Launches *l;
    int outside, made, sum; /* operands with memory of their own; numbers of the workspace's parts */
    int64_t sum_at;
    const Block *block;
    int64_t first; /* row */
} Loop;

static uint32_t add_kernel(Launches *l, const Kernel *k)
{
    l->kernel = arena_grow(l->arena, l->kernel, l->nkernel, &l->ckernel, sizeof *l->kernel);
    l->kernel[l->nkernel] = k;
    return l->nkernel++;
}

static Kernel *new_kernel(Launches *l, const Kernel *k)
{
    Kernel *made = NEW(l->arena, Kernel, 1);
    *made = *k;
    return made;
}

static Launch *add_launch(Launches *l, uint32_t kernel, Slice *op, int nop)
{
    l->launch = arena_grow(l->arena, l->launch, l->n, &l->cap, sizeof *l->launch);
    l->launch[l->n] = (Launch){.kernel = kernel, .nop = nop, .op = op};
    return &l->launch[l->n++];
}

/* ---- a command that is no loop ------------------------------------------------------------------------ */

static Slice whole_operand(const Command *c, int i)
{
    if (!c->vals[i].i)
        return (Slice){.base = -1};
    return (Slice){i, i >= c->nread, 0, type_bytes(val_type(c->g, c->vals[i]))};
}

static void single_launch(const Command *c, Launches *l)
{
    int n = c->nread + c->nwrite;
    Slice *op = NEW(l->arena, Slice, n + 1);
    for (int i = 0; i < n; i++)
        op[i] = whole_operand(c, i);
    Launch *launch = add_launch(l, c->copy ? 0 : add_kernel(l, &c->k), op, n);
    launch->lib = c->lib;
    launch->copy = c->copy;
    launch->ncopy = c->copy ? c->nread : 0;
    launch->workspace = (Slice){.base = n, .write = true};
}

/* ---- loops ----------------------------------------------------------------------------------- */

/* The block's part of operand i of the whole kernel. */
static Slice block_operand(const Loop *x, int i, bool write)
{
    const Kernel *k = &x->c->k;
    int64_t rows = x->block->rows;
    if (i == x->sum)
        return (Slice){x->outside, write, x->sum_at, type_bytes(val_type(k->graph, k->node->out[0]))};
    if (i == x->made)
        return (Slice){x->outside, write, 0, rows * k->row_bytes[k->noperands - 1]};
    Slice s = whole_operand(x->c, i);
    s.write = write;
    s.at = x->first * k->row_bytes[i];
    bool factor = !k->terms && i < 2; /* its rows may be interleaved */
    s.bytes = k->row_bytes[i] == 0 || factor ? s.bytes - s.at : rows * k->row_bytes[i];
    return s;
}

static void launch_rest(const Loop *x)
{
    const Kernel *k = x->l->kernel[x->block->rest];
    Slice *op = NEW(x->l->arena, Slice, k->noperands + 1);
    for (int i = 0; i < k->noperands; i++) {
        bool write = false;
        for (uint32_t j = 0; j < k->nins; j++)
            write |= k->ins[j].kind == K_STORE && k->ins[j].operand == i;
        op[i] = block_operand(x, i, write);
    }
    add_launch(x->l, x->block->rest, op, k->noperands);
}

static void launch_three(const Loop *x, uint32_t kernel, const LibDesc *lib, int a, int b, int to)
{
    Slice *op = NEW(x->l->arena, Slice, 3);
    op[0] = block_operand(x, a, false);
    op[1] = block_operand(x, b, false);
    op[2] = block_operand(x, to, true);
    Launch *launch = add_launch(x->l, kernel, op, 3);
    launch->lib = lib;
    launch->workspace = (Slice){.base = x->outside, .write = true, .at = kernel_workspace_bytes(&x->c->k)};
}

/* Rows of the product's result, then what reads them. */
static Block tile_block(const Kernel *k, int64_t rows, Launches *l)
{
    Kernel *product = new_kernel(l, k->product), rest = kernel_some_rows(k, k->rows, rows);
    product->items = k->product->items / k->rows * rows;
    product->flops *= (double)rows / (double)k->rows;
    return (Block){rows, add_kernel(l, product), add_kernel(l, new_kernel(l, &rest)),
                   kernel_describe(product, k->graph, k->node, l->arena)};
}

static void tile_launches(Loop *x)
{
    launch_three(x, x->block->product, x->block->lib, 0, 1, x->made);
    launch_rest(x);
}

/* The product as it is for this many rows of its factors. */
static Block term_block(const Kernel *k, int64_t rows, Launches *l)
{
    Arena *a = l->arena;
    Graph *g = NEW(a, Graph, 1);
    Node *n = NEW(a, Node, 1);
    Val *v = NEW(a, Val, 3);
    Kernel *product = NEW(a, Kernel, 1);
    g->arena = a;
    g->vals = NEW(a, Value, 4);
    g->nvals = 4;
    for (uint32_t i = 0; i < 3; i++) {
        v[i].i = i + 1;
        g->vals[i + 1].type = *val_type(k->graph, i < 2 ? k->node->in[i] : k->node->out[0]);
        if (i < 2 || !node_adds_pieces(k->node))
            g->vals[i + 1].type.dim[0] = g->vals[i + 1].type.dim[0] / k->rows * rows;
    }
    *n = *k->node;
    n->in = v;
    n->out = v + 2;
    k_init(product, a, g, n);
    (void)node_def(n)->lower(product, g, n); /* the whole was lowered */
    Block b = {.rows = rows, .lib = kernel_describe(product, g, n, a)};
    b.product = add_kernel(l, product);
    if (makes(k)) {
        Kernel rest = kernel_some_rows(k, k->rows, rows);
        b.rest = add_kernel(l, new_kernel(l, &rest));
    }
    return b;
}

static uint32_t sum_kernel(const Kernel *k, Launches *l)
{
    const Type *t = val_type(k->graph, k->node->out[0]);
    Type flat = type_make(t->dt, 1, (int64_t[]){type_count(t)});
    Kernel sum = {.arena = l->arena, .noperands = 3, .operand = NEW(l->arena, DType, 3)};
    for (int i = 0; i < 3; i++)
        sum.operand[i] = t->dt;
    k_space(&sum, &flat, 0);
    k_store(&sum, 2, k_op(&sum, OP_add, k_load(&sum, 1, &flat), k_load(&sum, 0, &flat), 0));
    return add_kernel(l, new_kernel(l, &sum));
}

/* A factor made, their product, and the sum of those so far. */
static void term_launches(Loop *x, bool first, uint32_t sum)
{
    const Kernel *k = &x->c->k;
    int result = x->outside - 1;
    bool adds = !first && sum_bytes(k) > 0;
    if (makes(k))
        launch_rest(x);
    launch_three(x, x->block->product, x->block->lib, k->factor[0], k->factor[1], adds ? x->sum : result);
    if (adds)
        launch_three(x, sum, NULL, x->sum, result, result);
}

static void loop_launches(const Command *c, Launches *l)
{
    const Kernel *k = &c->k;
    int64_t blocks = command_blocks(c), full = block_rows(k), last = k->rows - (blocks - 1) * full;
    Loop x = {.c = c, .l = l, .outside = k->noperands - makes(k), .sum = k->noperands,
              .made = makes(k) ? k->noperands - 1 : -1, .sum_at = made_bytes(k)};
    Block (*make)(const Kernel *, int64_t, Launches *) = k->terms ? term_block : tile_block;
    Block block[2] = {make(k, full, l)};
    block[1] = last == full ? block[0] : make(k, last, l);
    uint32_t sum = sum_bytes(k) ? sum_kernel(k, l) : 0;
    for (int64_t b = 0; b < blocks; b++) {
        x.block = &block[b == blocks - 1];
        x.first = b * full;
        if (k->terms)
            term_launches(&x, b == 0, sum);
        else
            tile_launches(&x);
    }
}

void command_launches(const Command *c, Launches *l)
{
    (c->k.product ? loop_launches : single_launch)(c, l);
}
