/* inline.c -- rematerialization inside fused kernels: a cheap pointwise value that backward reads is
 * recomputed in each reader instead of being saved.
 *
 * If its large operands are saved anyway (silu(gate): the gradient of silu keeps gate), a clone next to
 * each reader joins the reader's kernel, and the value has no memory at all.  If nothing else reads one
 * large operand (the product in front of a bias), saving that instead of the sum costs the same and
 * lets the sum fuse with its readers; this is done only for operators that call no function.
 * A slice of a value that is saved anyway, and rows of it (gather_nd), are recomputed for every reader.
 * The result of a norm is a pointwise function of values that its gradient keeps, the statistics included; so
 * the gradient of a ReLU behind it need not read the ReLU's result.
 * A reader may be the product of a weight's gradient: the value and what it is made of are then the prologue
 * of a split-K product (ir/split.c); pass split makes one loop of them.
 * A 16-bit value of backward is stored in 16 bits only: every reader that wants it wider widens it.
 * Values are visited from the last to the first, so that chains are cloned as a whole.  Linear in uses. */
#include "../ir/attrs.h"
#include "fuse.h"
#include <string.h>

enum { READERS_MAX = 3, SMALL_PART = 8, MADE_DEPTH = 3 };

typedef struct {
    uint32_t before; /* first of the clones to run in front of it, a list through `after` */
    uint32_t after;
    uint32_t at;     /* position in the order; a clone has its reader's */
    bool prologue;   /* it is a clone in the prologue of a product */
} Place;

typedef struct {
    Graph *g;
    Arena *tmp;
    uint32_t *forward;  /* per value: number of forward readers, also through views */
    uint32_t *head;     /* per value: first in the list of its backward readers */
    struct { NodeId node; uint32_t next; } *reader;
    uint32_t nreader, creader;
    bool *ends;         /* per value: it survives the step */
    uint32_t *gone;     /* per value: position in the order where an update overwrites it */
    bool *in_backward;  /* per node at the start */
    Place *place;       /* per node, clones included */
    uint32_t cplace;
    StepInfo *info;
    int64_t factor_bytes;
} Inline;

static void add_reader(Inline *x, Val v, NodeId node)
{
    x->reader = arena_grow(x->g->arena, x->reader, x->nreader, &x->creader, sizeof *x->reader);
    x->reader[x->nreader].node = node;
    x->reader[x->nreader].next = x->head[v.i];
    x->head[v.i] = x->nreader++;
}

/* Is n a backward view of a slice?  It counts as the slice's reader. */
static bool views_slice(const Inline *x, const Node *n)
{
    const Node *of = is_view(n) && x->in_backward[n - x->g->nodes] ? graph_def(x->g, n->in[0]) : NULL;
    return of && of->op == OP_slice;
}

/* The value that v is, or is a view of; {0}: it is a backward view of a slice. */
static Val read_value(const Inline *x, Val v)
{
    for (const Node *n; (n = graph_def(x->g, v)) && is_view(n); v = n->in[0])
        if (views_slice(x, n))
            return (Val){0};
    return v;
}

static void find_readers(Inline *x, uint32_t loss)
{
    Graph *g = x->g;
    x->nreader = 1; /* 0 ends a list */
    x->reader = arena_grow(g->arena, NULL, 0, &x->creader, sizeof *x->reader);
    for (uint32_t k = 0; k < g->norder; k++) {
        const Node *n = &g->nodes[g->order[k].i];
        x->place[g->order[k].i].at = k;
        x->in_backward[g->order[k].i] = k > loss;
        for (int i = 0; i < n->nin && (!is_view(n) || views_slice(x, n)); i++) {
            Val r = is_view(n) ? n->in[i] : read_value(x, n->in[i]);
            if (k <= loss) {
                x->forward[r.i]++;
            } else if (r.i) {
                add_reader(x, r, g->order[k]);
            }
        }
    }
    for (uint32_t i = 0; i < g->nvals; i++)
        x->gone[i] = g->norder;
    for (uint32_t i = 0; i < g->nupdate; i++) {
        Val v = graph_root(g, g->update[i].value);
        x->gone[g->update[i].state.i] = x->place[g->vals[v.i].def.i].at;
    }
}

/* Does the operator call a function? */
static bool calls(const Node *n) { return node_def(n)->expr.cost > EXPR_ARITH; }

static bool is_norm(const Node *n)
{
    return n->op == OP_batch_norm || n->op == OP_layer_norm || n->op == OP_rms_norm;
}

static bool is_part(const Node *n) { return n->op == OP_slice || n->op == OP_gather_nd; }

/* Is n a gradient that reads its operands by rows, element by element? */
static bool reads_rows(const Node *n)
{
    static const Op op[] = {OP_rms_norm_bwd, OP_layer_norm_bwd, OP_batch_norm_bwd, OP_softmax_bwd,
                            OP_log_softmax_bwd, OP_cross_entropy_bwd};
    bool reads = false;
    for (size_t i = 0; i < sizeof op / sizeof *op; i++)
        reads |= n->op == op[i];
    return reads;
}

static bool is_pointwise(const Node *n) { return node_def(n)->traits & OPT_POINTWISE; }

/* Is v stored for the backward phase anyway, small, or cheaply made of such values? */
static bool is_there(const Inline *x, Val v, int64_t count, int depth)
{
    Val r = graph_root(x->g, v);
    const Node *n = graph_def(x->g, r);
    if (!n || x->head[r.i] || type_count(val_type(x->g, r)) * SMALL_PART <= count)
        return true;
    bool made = is_norm(n) ? r.i == n->out[0].i
                           : is_pointwise(n) && !calls(n) && !(node_def(n)->traits & OPT_RANDOM);
    for (int i = 0; i < n->nin && made; i++)
        made = depth > 0 && is_there(x, n->in[i], count, depth - 1);
    return made;
}

/* Does storing n's operands take no more bytes than its result?  gain: it must take fewer. */
static bool worth_inlining(const Inline *x, const Node *n, bool gain)
{
    Graph *g = x->g;
    int64_t count = type_count(val_type(g, n->out[0])), bytes = type_bytes(val_type(g, n->out[0]));
    int64_t more = 0;
    bool rows = n->op == OP_gather_nd;
    for (int i = 0; i < n->nin; i++) {
        Val r = graph_root(g, n->in[i]);
        if (is_there(x, r, count, calls(n) || rows ? 0 : MADE_DEPTH))
            continue;
        if (calls(n) || (x->forward[r.i] > 1 && !node_widens(g, n) && !rows))
            return false;
        more += type_bytes(val_type(g, r));
    }
    return more <= bytes - gain;
}

/* The number of r's operands that are v, or views of it. */
static int operands_of(const Inline *x, const Node *r, Val v, bool views)
{
    int n = 0;
    for (int i = 0; i < r->nin; i++)
        n += (views ? graph_root(x->g, r->in[i]) : r->in[i]).i == v.i;
    return n;
}

static bool sees_views(const Inline *x, const Node *r, Val v)
{
    return operands_of(x, r, v, false) < operands_of(x, r, v, true);
}

static bool joins(const Inline *x, const Node *r, Val v)
{
    const Node *n = graph_def(x->g, v);
    const Type *in = val_type(x->g, v), *out = val_type(x->g, r->out[0]);
    if (is_pointwise(r) && sees_views(x, r, v))
        return type_count(in) == type_count(out);
    return (is_pointwise(r) || (reads_rows(r) && node_widens(x->g, n))) && !sees_views(x, r, v) &&
           type_same_shape(out, in);
}

/* Is r the product of a weight's gradient that can take v in blocks, and has no more bytes than v? */
static bool takes_blocks(const Inline *x, const Node *r, Val v)
{
    int64_t bytes = type_bytes(val_type(x->g, v));
    return node_split_rows(x->g, r) != SPLIT_NONE &&
           graph_root(x->g, r->in[0]).i != graph_root(x->g, r->in[1]).i && operands_of(x, r, v, true) == 1 &&
           bytes >= x->factor_bytes && bytes >= type_bytes(val_type(x->g, r->out[0]));
}

/* Can n, a part of a value, be recomputed in front of r?  Not for a product of a weight's gradient if the
 * value is large and can be recomputed: the part is stored then, and the value need not be. */
static bool takes_part(const Inline *x, const Node *r, const Node *n)
{
    Val of = graph_root(x->g, n->in[0]);
    const Node *made = graph_def(x->g, of);
    return is_part(n) && !sees_views(x, r, n->out[0]) &&
           !(node_split_rows(x->g, r) != SPLIT_NONE && made && (is_pointwise(made) || is_norm(made)) &&
             type_bytes(val_type(x->g, of)) >= x->factor_bytes);
}

/* How a reader in backward gets a value that is not stored. */
typedef enum {
    READ_STORED,   /* it cannot: the value has to be saved */
    READ_FUSED,    /* a clone joins its kernel */
    READ_PART,     /* a clone takes the part of a saved value */
    READ_PROLOGUE, /* a clone joins the prologue that the reader is in */
    READ_FACTOR    /* a clone becomes the prologue of a product that is split by rows */
} HowRead;

static HowRead how_read(const Inline *x, const Node *n, NodeId reader)
{
    const Node *r = &x->g->nodes[reader.i];
    Val v = n->out[0];
    bool whole = r->op == OP_concat || r->op == OP_slice; /* a kernel of its own, which no clone joins */
    if (r->op == OP_equal && dtype_is_float(val_type(x->g, v)->dt))
        return READ_STORED; /* a value in wider registers would not equal values made of the stored one */
    if (n->op == OP_gather_nd && (x->place[reader.i].prologue || takes_blocks(x, r, v)))
        return READ_STORED;
    if (takes_blocks(x, r, v))
        return READ_FACTOR;
    if (x->place[reader.i].prologue && whole && n->op != OP_concat)
        return READ_PROLOGUE;
    if (takes_part(x, r, n))
        return READ_PART;
    return n->op != OP_concat && joins(x, r, v) ? READ_FUSED : READ_STORED;
}

/* Are n's operands still there when the reader runs? */
static bool operands_stay(const Inline *x, const Node *n, NodeId reader)
{
    bool stay = true;
    for (int i = 0; i < n->nin; i++)
        stay &= x->place[reader.i].at < x->gone[graph_root(x->g, n->in[i]).i];
    return stay;
}

static bool can_inline(const Inline *x, const Node *n)
{
    Val v = n->out[0];
    int readers = 0;
    bool gain = is_norm(n) || n->op == OP_gather_nd;
    if (!(is_pointwise(n) || is_norm(n) || is_part(n) || n->op == OP_concat) ||
        (node_def(n)->traits & OPT_RANDOM) || x->ends[v.i])
        return false;
    for (uint32_t e = x->head[v.i]; e; e = x->reader[e].next, readers++) {
        HowRead how = how_read(x, n, x->reader[e].node);
        if (how == READ_STORED || readers == READERS_MAX || !operands_stay(x, n, x->reader[e].node))
            return false;
        gain |= how >= READ_PROLOGUE;
    }
    return readers > 0 && worth_inlining(x, n, gain);
}

/* ---- clones ------------------------------------------------------------------------------------ */

/* A parameter or a statistic per channel, reshaped to broadcast to the data. */
static Val per_channel(Graph *g, Val v, int rank, int axis)
{
    Type t = {.rank = rank - axis};
    for (int i = 0; i < t.rank; i++)
        t.dim[i] = i ? 1 : type_count(val_type(g, v));
    return build_reshape(g, v, t.rank, t.dim);
}

/* Builds the result of a norm from its statistics, by the same operations in the same order as its kernel. */
static Val recompute_norm(Graph *g, NodeId id, const SliceAttrs *at)
{
    const Node n = g->nodes[id.i];
    const Type whole = *val_type(g, n.in[0]);
    bool batch = n.op == OP_batch_norm;
    int rstd = batch ? 3 : n.op == OP_layer_norm ? 2 : 1;
    Val with[] = {n.op == OP_rms_norm ? (Val){0} : n.out[1], n.out[rstd],
                  n.nin > 1 ? n.in[1] : (Val){0}, n.nin > 2 ? n.in[2] : (Val){0}};
    static const Op op[] = {OP_sub, OP_mul, OP_mul, OP_add};
    DType sum = dtype_sum(whole.dt);
    Val y = build_cast(g, build_slice_like(g, n.in[0], &whole, at), sum);
    for (int i = 0; i < 4; i++) {
        if (!with[i].i)
            continue;
        Val w = batch ? per_channel(g, with[i], whole.rank, (int)((const NormAttrs *)n.attr)->axis) : with[i];
        y = build2(g, op[i], y, build_cast(g, build_slice_like(g, w, &whole, at), sum));
    }
    return build_cast(g, y, whole.dt);
}

static Val clone(Graph *g, NodeId id, Val from, Val to)
{
    NodeId c = graph_clone_node(g, id, NULL);
    Node *n = &g->nodes[c.i];
    n->remat = NULL; /* the clone is part of the step, whatever the budget */
    for (int i = 0; i < n->nin; i++)
        if (n->in[i].i == from.i)
            n->in[i] = to;
    graph_rename(g, n->out[0], arena_printf(g->arena, "%s.inlined", g->vals[g->nodes[id.i].out[0].i].name));
    return n->out[0];
}

/* Clones the view v of `of` as a view of `again`. */
static Val recompute_view(Graph *g, Val v, Val of, Val again)
{
    if (v.i == of.i)
        return again;
    const Node *n = graph_def(g, v);
    Val under = recompute_view(g, n->in[0], of, again);
    return clone(g, g->vals[v.i].def, g->nodes[g->vals[v.i].def.i].in[0], under);
}

/* Places the nodes from `first` on in front of their reader, and enters them as readers of their operands. */
static void place_clones(Inline *x, uint32_t first, NodeId reader, bool prologue)
{
    Graph *g = x->g;
    x->place = arena_grow(x->tmp, x->place, g->nnodes, &x->cplace, sizeof *x->place);
    for (uint32_t c = g->nnodes; c-- > first;) {
        const Node *n = &g->nodes[c];
        if (g->vals[n->out[0].i].def.i != c)
            continue; /* it was folded to a constant */
        for (int i = 0; i < n->nin; i++) {
            Val w = graph_root(g, n->in[i]);
            if (w.i && g->vals[w.i].def.i < first)
                add_reader(x, w, (NodeId){c});
        }
        const Place *of = &x->place[reader.i];
        x->place[c] = (Place){.after = of->before, .at = of->at, .prologue = prologue};
        x->place[reader.i].before = c;
    }
}

static void add_factor(Inline *x, NodeId product, Val v)
{
    StepInfo *info = x->info;
    const Val *in = x->g->nodes[product.i].in;
    int operand = graph_root(x->g, in[1]).i == v.i;
    info->factor = arena_grow(x->g->arena, info->factor, info->nfactor, &info->cfactor, sizeof *info->factor);
    info->factor[info->nfactor++] = (PrologueFactor){product, operand, in[operand]};
}

/* Turns the reader, a slice of the node's result, into a copy of the node's result for sliced operands. */
static void recompute_slice(Graph *g, NodeId id, NodeId reader)
{
    const Node n = g->nodes[id.i];
    const SliceAttrs *at = g->nodes[reader.i].attr;
    Val again, in[3]; /* a pointwise operator has at most 3 operands */
    for (int i = 0; i < n.nin && !is_norm(&n); i++)
        in[i] = build_slice_like(g, n.in[i], val_type(g, n.out[0]), at);
    again = is_norm(&n) ? recompute_norm(g, id, at) : build(g, n.op, NULL, n.nin, in, n.attr);
    Node *r = &g->nodes[reader.i];
    r->op = OP_copy;
    r->attr = NEW(g->arena, PointwiseAttrs, 1);
    op_attr_init(OP_copy, r->attr);
    r->in[0] = again;
}

/* Makes the reader read the clone instead of v, also through views. */
static void read_clone(Inline *x, NodeId reader, Val v, Val again)
{
    Val *in = x->g->nodes[reader.i].in;
    for (int i = 0; i < x->g->nodes[reader.i].nin; i++)
        if (graph_root(x->g, in[i]).i == v.i)
            in[i] = recompute_view(x->g, in[i], v, again);
}

static void inline_value(Inline *x, NodeId id)
{
    Graph *g = x->g;
    Val v = g->nodes[id.i].out[0];
    for (uint32_t e = x->head[v.i]; e; e = x->reader[e].next) {
        NodeId reader = x->reader[e].node;
        uint32_t first = g->nnodes;
        Node *r = &g->nodes[reader.i];
        bool in_prologue = x->place[reader.i].prologue, factor = takes_blocks(x, r, v);
        if (factor)
            add_factor(x, reader, v);
        if (in_prologue && r->op == OP_slice && g->nodes[id.i].op != OP_slice)
            recompute_slice(g, id, reader);
        else
            read_clone(x, reader, v,
                       is_norm(&g->nodes[id.i]) ? recompute_norm(g, id, NULL) : clone(g, id, v, v));
        place_clones(x, first, reader, factor || in_prologue);
    }
    x->head[v.i] = 0;
}

/* Clones a cast of the backward phase in front of each reader whose kernel it can join. */
static void repeat_cast(Inline *x, NodeId id)
{
    Graph *g = x->g;
    Val v = g->nodes[id.i].out[0];
    for (uint32_t e = x->ends[v.i] ? 0 : x->head[v.i]; e; e = x->reader[e].next) {
        const Node *r = &g->nodes[x->reader[e].node.i];
        uint32_t first = g->nnodes;
        if (!operands_stay(x, &g->nodes[id.i], x->reader[e].node) ||
            (!joins(x, r, v) && (r->op != OP_reduce_sum || sees_views(x, r, v))))
            continue;
        read_clone(x, x->reader[e].node, v, clone(g, id, v, v));
        place_clones(x, first, x->reader[e].node, false);
    }
}

/* Makes gradients of ReLUs behind norms read the ReLU's operand, which is positive where its result is. */
static void read_below_relus(Graph *g, uint32_t loss)
{
    for (uint32_t k = loss + 1; k < g->norder; k++) {
        Node *n = &g->nodes[g->order[k].i];
        const Node *relu = n->op == OP_relu_bwd ? graph_def(g, n->in[1]) : NULL;
        const Node *norm = relu && relu->op == OP_relu ? graph_def(g, relu->in[0]) : NULL;
        if (norm && is_norm(norm) && norm->out[0].i == relu->in[0].i)
            n->in[1] = relu->in[0];
    }
}

/* Appends a node to the order behind the clones that belong in front of it, these behind theirs in turn.
 * open: room for all nodes. */
static void emit(const Inline *x, uint32_t node, uint32_t *open)
{
    const Place *place = x->place;
    uint32_t n = 0;
    for (;;) {
        for (; place[node].before; node = place[node].before)
            open[n++] = node;
        graph_schedule(x->g, (NodeId){node});
        for (; n > 0 && !place[node].after; graph_schedule(x->g, (NodeId){node}))
            node = open[--n];
        if (n == 0)
            return;
        node = place[node].after;
    }
}

bool pass_inline(Graph *g, PassCtx *cx)
{
    Arena *tmp = cx->tmp;
    uint32_t n = g->norder, loss = loss_position(g, cx->info);
    cx->info->first_inlined = g->nnodes;
    if (loss == n)
        return true;
    Inline x = {.g = g, .tmp = tmp, .forward = NEW(tmp, uint32_t, g->nvals),
                .head = NEW(tmp, uint32_t, g->nvals), .ends = graph_ends(g, tmp),
                .gone = NEW(tmp, uint32_t, g->nvals), .in_backward = NEW(tmp, bool, g->nnodes),
                .info = cx->info, .factor_bytes = factor_bytes(cx->opt)};
    x.place = arena_grow(tmp, NULL, g->nnodes, &x.cplace, sizeof *x.place);
    read_below_relus(g, loss);
    find_readers(&x, loss);
    for (uint32_t k = loss; k-- > 0;)
        if (can_inline(&x, &g->nodes[g->order[k].i]))
            inline_value(&x, g->order[k]);
    for (uint32_t k = loss + 1; k < n; k++)
        if (node_widens(g, &g->nodes[g->order[k].i]) && !g->nodes[g->order[k].i].group)
            repeat_cast(&x, g->order[k]);
    const NodeId *order = graph_take_order(g, tmp);
    uint32_t *open = NEW(tmp, uint32_t, g->nnodes);
    for (uint32_t k = 0; k < n; k++)
        emit(&x, order[k].i, open);
    graph_dce(g, tmp);
    cx->changed = true;
    return true;
}
