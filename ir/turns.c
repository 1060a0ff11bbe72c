/* turns.c -- what a kernel of a product and pointwise operators runs in each of its turns. */
#include "kernel.h"
#include "plan.h"
#include <string.h>

enum { MADE, SUM }; /* own memory: handed over between the parts; a later turn's product */

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

/* Does it hand over anything?  In pieces only what a factor is made of. */
static bool makes(const Kernel *k) { return k->product && (!k->terms || k->nins > 0); }

static void add_call(KernelTurns *t, const TurnCall *c, unsigned when)
{
    t->call[t->ncalls] = *c;
    t->call[t->ncalls++].when = when;
}

/* All operands in order, own memory behind them. */
static const int *same_operands(const Kernel *k, Arena *a)
{
    int *at = NEW(a, int, k->noperands + 1);
    for (int i = 0; i < k->noperands; i++)
        at[i] = i;
    return at;
}

static const int *three(Arena *a, int x, int y, int z)
{
    int *at = NEW(a, int, 3);
    at[0] = x, at[1] = y, at[2] = z;
    return at;
}

/* ---- tiles: rows of the product, then what reads them --------------------------------------------- */

static void tile_calls(const Kernel *k, KernelTurns *t, int64_t rows, unsigned when, Arena *a)
{
    TurnCall product = {*k->product, NULL, three(a, 0, 1, t->noperands), 0};
    TurnCall rest = {kernel_some_rows(k, k->rows, rows), NULL, same_operands(k, a), 0};
    product.k.items = k->product->items / k->rows * rows;
    product.k.flops *= (double)rows / (double)k->rows;
    product.lib = kernel_describe(&product.k, k->graph, k->node, a);
    add_call(t, &product, when | TURN_FIRST | TURN_LATER);
    add_call(t, &rest, when | TURN_FIRST | TURN_LATER);
}

/* ---- terms: a factor made, their product, and the sum ----------------------------------------------- */

/* The product as it is for this many rows of its factors. */
static TurnCall smaller_product(const Kernel *k, int64_t rows, Arena *a)
{
    Graph *g = NEW(a, Graph, 1);
    Node *n = NEW(a, Node, 1);
    Val *v = NEW(a, Val, 3);
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
    TurnCall c = {.at = NULL};
    k_init(&c.k, a, g, n);
    (void)node_def(n)->lower(&c.k, g, n); /* the whole was lowered */
    c.lib = kernel_describe(&c.k, g, n, a);
    return c;
}

static TurnCall sum_of(const Kernel *k, int sum, int term, Arena *a)
{
    TurnCall c = {.at = three(a, term, sum, sum)};
    const Type *t = val_type(k->graph, k->node->out[0]);
    Type flat = type_make(t->dt, 1, (int64_t[]){type_count(t)});
    c.k = (Kernel){.arena = a, .noperands = 3, .operand = NEW(a, DType, 3)};
    for (int i = 0; i < 3; i++)
        c.k.operand[i] = t->dt;
    k_space(&c.k, &flat, 0);
    k_store(&c.k, 2, k_op(&c.k, OP_add, k_load(&c.k, 1, &flat), k_load(&c.k, 0, &flat), 0));
    return c;
}

static void piece_calls(const Kernel *k, KernelTurns *t, int64_t rows, unsigned when, Arena *a)
{
    int result = t->noperands - 1, sum = t->noperands + SUM;
    TurnCall product = smaller_product(k, rows, a);
    if (makes(k)) {
        TurnCall rest = {kernel_some_rows(k, k->rows, rows), NULL, same_operands(k, a), 0};
        add_call(t, &rest, when | TURN_FIRST | TURN_LATER);
    }
    product.at = three(a, k->factor[0], k->factor[1], result);
    add_call(t, &product, when | TURN_FIRST | (t->own[SUM] ? 0 : TURN_LATER));
    if (t->turns == 1 || !t->own[SUM])
        return;
    product.at = three(a, k->factor[0], k->factor[1], sum);
    add_call(t, &product, when | TURN_LATER);
}

static int64_t made_bytes(const Kernel *k)
{
    int64_t turn = k->turn < k->rows ? k->turn : k->rows;
    return makes(k) ? plan_align(turn * k->row_bytes[k->noperands - 1]) : 0;
}

static int64_t sum_bytes(const Kernel *k)
{
    bool several = k->product && k->terms && node_adds_pieces(k->node) && k->turn < k->rows;
    return several ? plan_align(type_bytes(val_type(k->graph, k->node->out[0]))) : 0;
}

int64_t kernel_own_bytes(const Kernel *k) { return made_bytes(k) + sum_bytes(k); }

void kernel_turns(const Kernel *k, KernelTurns *t, Arena *a)
{
    *t = (KernelTurns){.turns = (k->rows + k->turn - 1) / k->turn,
                       .noperands = k->noperands - makes(k),
                       .own = {made_bytes(k), sum_bytes(k)}};
    t->step = NEW(a, int64_t, t->noperands + 1);
    for (int i = 0; i < t->noperands; i++)
        t->step[i] = k->turn * k->row_bytes[i];
    for (int last = t->turns == 1; last < 2; last++) {
        int64_t rows = last ? k->rows - (t->turns - 1) * k->turn : k->turn;
        (k->terms ? piece_calls : tile_calls)(k, t, rows, last ? TURN_LAST : TURN_FULL, a);
    }
    if (t->own[SUM]) {
        TurnCall sum = sum_of(k, t->noperands - 1, t->noperands + SUM, a);
        add_call(t, &sum, TURN_LATER | TURN_FULL | TURN_LAST);
    }
}
