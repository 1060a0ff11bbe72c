/* split.c -- which weight gradients are computed in blocks, with what is around them (ir/split.c).
 *
 * Shapes and the device decide, so that every budget computes the same:
 *
 *   sum    a factor of DeviceInfo.factor_bytes or more that pass inline recomputes (or that has a window's
 *          layouts to rearrange) is computed in blocks of rows, with its prologue.  A block has BLOCK_FACTORS
 *          times these bytes of both factors, or twice the product's result if that is more, as every block
 *          writes the result anew.  A single block that the cache does not hold is not used.  Pooling's
 *          gradient adds nothing up, and its blocks are as small as they may be, of images.
 *   rows   a gradient of DeviceInfo.update_bytes or more that goes into one update, directly or through
 *          pointwise operators, has them as its epilogue: only a block of it has memory, which is half
 *          that size, or a sixteenth of the gradient if that is more.  Gradients that something else reads,
 *          such as those the user wants to see, stay whole. */
#include "fuse.h"
#include "instance.h"
#include <string.h>

enum {
    BLOCK_FACTORS = 4,
    ROW_UNIT = 16,   /* rows of a block are a multiple, which keeps every operand aligned */
    MAX_BLOCKS = 16, /* about the most blocks of rows: threads meet twice for each */
    MAX_MEMBERS = 8, /* most members of a product's epilogue */
};

int64_t factor_bytes(const StepOptions *o)
{
    return o->factor_bytes ? o->factor_bytes : step_device(o)->factor_bytes;
}

typedef struct {
    Graph *g;
    const StepOptions *opt;
    StepInfo *info;
    Arena *tmp;
    bool *live; /* per value: false between calls */
} SplitPass;

static void set_live(const SplitPass *x, const NodeId *id, uint32_t n, bool results)
{
    const Graph *g = x->g;
    for (uint32_t i = 0; i < n; i++)
        for (int o = 0; o < g->nodes[id[i].i].nout; o++)
            x->live[g->nodes[id[i].i].out[o].i] = results;
    for (uint32_t i = 0; i < n; i++)
        for (int k = 0; k < g->nodes[id[i].i].nin && !is_view(&g->nodes[id[i].i]); k++)
            x->live[graph_root(g, g->nodes[id[i].i].in[k]).i] = false;
}

/* Bytes of the buffers of a loop of these nodes; < 0: they are no loop.  Results that none of them reads are
 * results of the loop. */
static int64_t loop_bytes(const SplitPass *x, const NodeId *id, uint32_t n)
{
    Arena a = {0};
    Command c;
    set_live(x, id, n, true);
    bool ok = lower(&c, &a, x->g, id, (int)n, x->live, NULL) && c.loop;
    int64_t bytes = ok ? command_workspace_bytes(&c) : -1;
    set_live(x, id, n, false);
    arena_free(&a);
    return bytes;
}

static void make_group(Graph *g, const NodeId *id, uint32_t n)
{
    g->ngroups++;
    for (uint32_t i = 0; i < n; i++)
        g->nodes[id[i].i].group = g->ngroups;
}

/* ---- sums: blocks of the factors' rows ---------------------------------------------------------------- */

/* Rows of a block; all rows if there is one block only. */
static int64_t factor_rows(const SplitPass *x, const Node *n, SplitBy by)
{
    const Graph *g = x->g;
    bool sum = by == SPLIT_SUM;
    int64_t bytes = 0, target = factor_bytes(x->opt) * (sum ? BLOCK_FACTORS : 1);
    int64_t out = sum ? 2 * type_bytes(val_type(g, n->out[0])) : 0;
    int64_t rows = val_type(g, n->in[0])->dim[0];
    for (int i = 0; i < 2; i++)
        bytes += type_bytes(val_type(g, n->in[i]));
    int64_t blocks = bytes / (out > target ? out : target);
    return blocks > 1 ? (rows + blocks - 1) / blocks : rows;
}

/* Is n a gradient of a convolution's weights with a window of several positions, which rearranges layouts? */
static bool has_window(const Node *n, const Type *w)
{
    bool window = false;
    for (int i = 2; n->op == OP_conv_bwd_weights && i < w->rank; i++)
        window |= w->dim[i] > 1;
    return window;
}

/* Do the buffers of a single block fit the cache?  Otherwise it is as slow to make as the whole factor, which
 * remat can make again if there is no room for it. */
static bool stays_in_cache(const SplitPass *x, int64_t bytes)
{
    int64_t cache = step_device(x->opt)->cache;
    return cache <= 0 || bytes <= cache;
}

/* Splits the product, the last of made + 1 nodes, into blocks with the nodes in front of it, if they are a
 * loop; false: it stays whole. */
static bool split_factors(const SplitPass *x, const NodeId *id, uint32_t made)
{
    Node *n = &x->g->nodes[id[made].i];
    SplitBy by = node_split_rows(x->g, n);
    int64_t rows = factor_rows(x, n, by);
    bool several = rows < val_type(x->g, n->in[0])->dim[0];
    if (!made && !(several && has_window(n, val_type(x->g, n->out[0]))))
        return false;
    n->split = (Split){by, rows};
    int64_t buffers = made < MAX_UNIT ? loop_bytes(x, id, made + 1) : -1;
    if (buffers >= 0 && (several || stays_in_cache(x, buffers)))
        return true;
    n->split = (Split){0};
    return false;
}

/* The number of nodes at the end of the order that pass inline made for n. */
static uint32_t made_for(const Graph *g, const Node *n, uint32_t first)
{
    uint32_t made = 0;
    bool any = false;
    for (int i = 0; i < n->nin; i++)
        any |= g->vals[n->in[i].i].def.i >= first;
    while (any && made < g->norder && g->order[g->norder - 1 - made].i >= first)
        made++;
    return made;
}

/* Makes the product read its stored factors. */
static void store_factors(Graph *g, StepInfo *info, NodeId product)
{
    for (uint32_t i = info->nfactor; i-- > 0;) {
        PrologueFactor f = info->factor[i];
        if (f.product.i != product.i)
            continue;
        g->nodes[product.i].in[f.operand] = f.stored;
        info->factor[i] = info->factor[--info->nfactor];
    }
}

static bool *has_factor(const SplitPass *x)
{
    bool *has = NEW(x->tmp, bool, x->g->nnodes);
    for (uint32_t i = 0; i < x->info->nfactor; i++)
        has[x->info->factor[i].product.i] = true;
    return has;
}

static void split_sums(const SplitPass *x)
{
    Graph *g = x->g;
    uint32_t n = g->norder;
    const NodeId *order = graph_take_order(g, x->tmp);
    const bool *factor = has_factor(x);
    for (uint32_t k = 0; k < n; k++) {
        const Node *node = &g->nodes[order[k].i];
        uint32_t made = factor[order[k].i] ? made_for(g, node, x->info->first_inlined) : 0;
        graph_schedule(g, order[k]);
        if (node_split_rows(g, node) == SPLIT_NONE || node_is_split(node))
            continue;
        const NodeId *id = &g->order[g->norder - 1 - made];
        if (!split_factors(x, id, made)) {
            store_factors(g, x->info, order[k]);
            g->norder -= made;
            g->order[g->norder - 1] = order[k];
        } else if (made > 0) {
            make_group(g, id, made + 1);
        }
    }
}

/* ---- rows: blocks of the result, and the update ------------------------------------------------------- */

typedef struct {
    const SplitPass *x;
    const uint32_t *uses;
    int64_t min_bytes;
    const Node *update;
    NodeId product, member[MAX_MEMBERS]; /* members: the pointwise ones and the update */
    int n;
    bool full;        /* there are more members than fit */
    NodeId *in_front; /* per node id: the node to move right in front of it, {0}: none */
    bool *moves;      /* per node id: it moves in front of another */
} Epilogue;

static bool reads(const Node *n, Val v)
{
    for (int i = 0; i < n->nin; i++)
        if (n->in[i].i == v.i)
            return true;
    return false;
}

/* Can the node run as late as the update?  It may read no states; own: only those that the update reads. */
static bool may_wait(const Epilogue *e, const Node *n, bool own)
{
    const Graph *g = e->x->g;
    for (int i = 0; i < n->nin; i++) {
        Val r = graph_root(g, n->in[i]);
        bool state = g->vals[r.i].kind == VAL_PARAM || g->vals[r.i].kind == VAL_STATE;
        if (state && !(own && reads(e->update, r)))
            return false;
    }
    return true;
}

static bool is_product(const Epilogue *e, const Node *n)
{
    SplitAxis axis;
    const Graph *g = e->x->g;
    int64_t bytes = type_bytes(val_type(g, n->out[0])), read = 0;
    if ((n->op != OP_matmul && n->op != OP_conv_bwd_weights) || node_is_split(n) || n->group ||
        bytes < e->min_bytes || !node_axis(g, n, SPLIT_ROWS, &axis) || !may_wait(e, n, false))
        return false;
    for (int i = 0; i < 2; i++)
        read += type_bytes(val_type(g, n->in[i]));
    return n->op == OP_matmul || 4 * read <= bytes; /* a convolution's block rearranges its operands */
}

static bool is_elementwise(const Epilogue *e, const Node *n)
{
    unsigned traits = node_def(n)->traits;
    return (traits & (OPT_POINTWISE | OPT_VIEW)) && !(traits & OPT_RANDOM) && !n->group &&
           may_wait(e, n, true);
}

/* Collects the product and the pointwise operators that v is computed from, as far as nothing else reads
 * their results, in order. */
static void collect(Epilogue *e, Val v)
{
    const Graph *g = e->x->g;
    NodeId id = g->vals[v.i].def;
    const Node *n = &g->nodes[id.i];
    if (!id.i || e->uses[v.i] != 1)
        return;
    if (is_product(e, n) && !e->product.i) {
        e->product = id;
    } else if (is_elementwise(e, n)) {
        for (int i = 0; i < n->nin; i++)
            collect(e, n->in[i]);
        e->full |= e->n == MAX_MEMBERS - 1;
        if (!e->full)
            e->member[e->n++] = id;
    }
}

static int64_t rows_of_block(const Epilogue *e, const Type *y)
{
    int64_t bytes = type_bytes(y) / MAX_BLOCKS;
    bytes = bytes > e->min_bytes / 2 ? bytes : e->min_bytes / 2;
    int64_t rows = bytes / (type_bytes(y) / y->dim[0]) / ROW_UNIT * ROW_UNIT;
    return rows > ROW_UNIT ? rows : ROW_UNIT;
}

/* Has the product and the pointwise operators moved right in front of the update, by reorder(). */
static void gather(Epilogue *e)
{
    NodeId last = e->product;
    for (int i = 0; i < e->n; i++) {
        e->moves[last.i] = true;
        e->in_front[e->member[i].i] = last;
        last = e->member[i];
    }
}

static void reorder(const Epilogue *e, Arena *tmp)
{
    Graph *g = e->x->g;
    NodeId *order = NEW(tmp, NodeId, g->norder + 1);
    uint32_t n = 0;
    for (uint32_t k = 0; k < g->norder; k++) {
        NodeId chain[MAX_MEMBERS + 1], id = g->order[k];
        int m = 0;
        if (e->moves[id.i])
            continue;
        for (; id.i; id = e->in_front[id.i])
            chain[m++] = id;
        while (m > 0)
            order[n++] = chain[--m];
    }
    memcpy(g->order, order, n * sizeof *order);
}

static bool split_update(Epilogue *e, NodeId update)
{
    Graph *g = e->x->g;
    NodeId id[MAX_MEMBERS + 1];
    e->update = &g->nodes[update.i];
    e->product.i = 0;
    e->n = 0;
    e->full = false;
    collect(e, e->update->in[1]); /* the gradient */
    e->member[e->n++] = update;
    if (!e->product.i || e->full)
        return false;
    Node *product = &g->nodes[e->product.i];
    id[0] = e->product;
    memcpy(id + 1, e->member, (size_t)e->n * sizeof *id);
    product->split = (Split){SPLIT_ROWS, rows_of_block(e, val_type(g, product->out[0]))};
    if (loop_bytes(e->x, id, (uint32_t)e->n + 1) < 0) {
        product->split = (Split){0};
        return false;
    }
    make_group(g, id, (uint32_t)e->n + 1);
    gather(e);
    return true;
}

static void split_updates(const SplitPass *x)
{
    Graph *g = x->g;
    const StepOptions *o = x->opt;
    Epilogue e = {.x = x, .uses = graph_uses(g, x->tmp),
                  .min_bytes = o->update_bytes ? o->update_bytes : step_device(o)->update_bytes,
                  .in_front = NEW(x->tmp, NodeId, g->nnodes), .moves = NEW(x->tmp, bool, g->nnodes)};
    bool any = false;
    for (uint32_t i = 0; i < g->nupdate; i++) {
        NodeId id = g->vals[g->update[i].value.i].def;
        bool once = id.i && (node_def(&g->nodes[id.i])->traits & OPT_ONCE);
        if (once && g->vals[g->update[i].state.i].kind == VAL_PARAM)
            any |= split_update(&e, id);
    }
    if (any)
        reorder(&e, x->tmp);
}

bool pass_split(Graph *g, PassCtx *cx)
{
    SplitPass x = {g, cx->opt, cx->info, cx->tmp, NEW(cx->tmp, bool, g->nvals)};
    split_sums(&x);
    split_updates(&x);
    cx->changed = true;
    return true;
}

/* ---- the step that keeps everything ------------------------------------------------------------------- */

/* Makes the product whole and a step of its own.  Its array of operands may be shared with the graph that
 * this one was copied from. */
static void make_whole(Graph *g, const StepInfo *info, NodeId product)
{
    Node *n = &g->nodes[product.i];
    Val *in = NEW(g->arena, Val, n->nin);
    n->in = memcpy(in, n->in, (size_t)n->nin * sizeof *in);
    n->group = 0;
    n->split = (Split){0};
    for (uint32_t i = 0; i < info->nfactor; i++)
        if (info->factor[i].product.i == product.i)
            n->in[info->factor[i].operand] = info->factor[i].stored;
}

static bool in_group(const Graph *g, uint32_t k, uint32_t end, uint32_t group)
{
    return k < end && group && g->nodes[g->order[k].i].group == group;
}

bool graph_join_blocks(Graph *g, const StepInfo *info, StepCost *cost, Arena *tmp)
{
    SplitPass x = {.g = g, .info = (StepInfo *)info, .tmp = tmp, .live = NEW(tmp, bool, g->nvals)};
    const bool *factor = has_factor(&x);
    uint32_t n = 0, before = g->norder;
    bool any = false;
    for (uint32_t k = 0, members; k < before; k += members) {
        NodeId *id = &g->order[k], product = {0};
        uint32_t group = g->nodes[id->i].group, split = 0;
        for (members = 0; members == 0 || in_group(g, k + members, before, group); members++)
            if (node_is_split(&g->nodes[id[members].i])) {
                product = id[members];
                split++;
            }
        bool prologue = split == 1 && factor[product.i];
        bool epilogue = split == 1 && product.i == id->i && members > 1;
        bool joined = prologue || epilogue; /* the loss's head, which has several splits, stays */
        if (joined && cost) {
            cost[product.i] = cost[id->i];
            cost[product.i].c[0].scratch -= loop_bytes(&x, id, members);
        }
        if (joined)
            make_whole(g, info, product);
        for (uint32_t i = 0; i < members; i++)
            if (!prologue || id[i].i == product.i)
                g->order[n++] = id[i];
        any |= joined;
    }
    g->norder = n;
    return any;
}
