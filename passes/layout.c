/* layout.c -- channels-last: for devices whose convolutions read and write [N, s..., C].
 *
 * The pass sweeps over the forward graph.  Convolutions are rewritten to take and make channels-last values,
 * and operators between them follow: pointwise operators, norms, pools, concatenations, and all others that
 * have a form with renumbered axes.  A value in the other order is made once, when something reads it:
 * transposes remain where images come in and where the channels' order matters (a flatten before the
 * classifier), and those that meet one of the model's own cancel (passes/simplify.c).  If too many would
 * remain, and the device has convolutions of either order, the graph stays as it is.
 *
 * Runs before autodiff: the gradient of a transpose is a transpose, so the backward graph has the same order.
 * Parameters stay in the order of the file; a convolution's kernel reads them, and makes their gradients, in
 * that order.  A 1x1 convolution is a plain product, [N s..., C] by [C, M], of any number of images. */
#include "../ir/attrs.h"
#include "../ir/integer.h"
#include "rewrite.h"
#include <string.h>

typedef struct {
    Graph *g;
    int unit;   /* bytes: a position's channels are padded to a multiple */
    Val *last;  /* per value at the start: its channels-last form, {0}: not made */
    Val *plain; /* per value at the start: its form in the graph's order, {0}: not made, `last` is */
    uint32_t n;
} Layout;

/* ---- orders of dimensions ------------------------------------------------------------------------ */

/* The place in [N, s..., C] of dimension d of [N, C, s...]. */
static int place(int d, int rank) { return d == 0 ? 0 : d == 1 ? rank - 1 : d - 1; }

static void moved_ints(int64_t *v, int rank)
{
    int64_t old[MAX_RANK];
    memcpy(old, v, (size_t)rank * sizeof *v);
    for (int d = 0; d < rank; d++)
        v[place(d, rank)] = old[d];
}

/* Transposes v to channels-last, or back.  It is a view if only extents of 1 move. */
static Val move_channels(Graph *g, Val v, bool back)
{
    Type t = *val_type(g, v);
    int perm[MAX_RANK];
    int64_t spatial = 1, channels = t.dim[back ? t.rank - 1 : 1];
    for (int d = 0; d < t.rank; d++) {
        perm[back ? d : place(d, t.rank)] = back ? place(d, t.rank) : d;
        spatial *= d > 0 ? t.dim[d] : 1;
    }
    if (channels != 1 && spatial != channels)
        return build_transpose(g, v, perm);
    Type old = t;
    for (int d = 0; d < t.rank; d++)
        t.dim[d] = old.dim[perm[d]];
    return build_reshape(g, v, t.rank, t.dim);
}

static Val as_plain(Layout *x, Val v)
{
    if (!x->plain[v.i].i && x->last[v.i].i)
        x->plain[v.i] = move_channels(x->g, x->last[v.i], true);
    return x->plain[v.i];
}

/* The channels-last form of v, whose rank is at most `rank`, to which it broadcasts. */
static Val as_last(Layout *x, Val v, int rank)
{
    Graph *g = x->g;
    const Type *t = val_type(g, v);
    if (type_count(t) == 1 && t->rank < rank)
        return as_plain(x, v);
    if (t->rank == rank && x->last[v.i].i)
        return x->last[v.i];
    Type full = {.dt = t->dt, .rank = rank};
    for (int d = 0; d < rank; d++)
        full.dim[d] = d < rank - t->rank ? 1 : t->dim[d - (rank - t->rank)];
    Val moved = move_channels(g, build_reshape(g, as_plain(x, v), rank, full.dim), false);
    if (val_type(g, v)->rank == rank)
        x->last[v.i] = moved;
    return moved;
}

/* ---- convolutions -------------------------------------------------------------------------------- */

static bool all_are(const int64_t *v, int n, int64_t value)
{
    bool same = true;
    for (int i = 0; i < n; i++)
        same &= v[i] == value;
    return same;
}

/* Is n a convolution with a window of one position on every place, which is rows of channels by a matrix? */
static bool is_product(const Node *n, const Type *w)
{
    const ConvAttrs *at = n->attr;
    return n->op == OP_conv && at->group == 1 && all_are(w->dim + 2, w->rank - 2, 1) &&
           all_are(at->strides.v, at->strides.n, 1) && all_are(at->pads.v, at->pads.n, 0);
}

static Val product(Graph *g, const Node *n, Val data, Val weights)
{
    const ConvAttrs *at = n->attr;
    Type x = *val_type(g, data);
    const Type w = *val_type(g, weights);
    int64_t rows = x.dim[x.rank - 1] ? type_count(&x) / x.dim[x.rank - 1] : 0;
    Val in[] = {build_reshape(g, data, 2, (int64_t[]){rows, w.dim[1]}),
                build_reshape(g, weights, 2, (int64_t[]){w.dim[0], w.dim[1]})};
    Val y = build(g, OP_matmul, n->name, 2, in, &(MatmulAttrs){.tb = 1, .out = at->out, .tf32 = at->tf32});
    x.dim[x.rank - 1] = w.dim[0];
    y = build_reshape(g, y, x.rank, x.dim);
    return n->nin > 2 && n->in[2].i ? build2(g, OP_add, y, n->in[2]) : y;
}

/* Pads the channels of data and weights with zeros to a multiple of `bytes`; a single channel stays. */
static void pad_channels(Graph *g, const Node *n, int bytes, Val *data, Val *weights)
{
    const Type *x = val_type(g, *data);
    int64_t size = dtype_size[x->dt], unit = bytes > size ? bytes / size : 1, c = x->dim[x->rank - 1];
    if (n->op != OP_conv || ((const ConvAttrs *)n->attr)->group > 1 || c == 1)
        return;
    c = round_up(c, unit);
    *data = build_pad(g, *data, x->rank - 1, c);
    *weights = build_pad(g, *weights, 1, c);
}

static Val convolution(Layout *x, const Node *n, Val *in)
{
    Graph *g = x->g;
    ConvAttrs at = *(const ConvAttrs *)n->attr;
    in[0] = as_last(x, n->in[0], val_type(g, n->in[0])->rank);
    if (is_product(n, val_type(g, in[1])))
        return product(g, &(Node){.name = n->name, .attr = n->attr, .nin = n->nin, .in = in}, in[0], in[1]);
    pad_channels(g, n, x->unit, &in[0], &in[1]);
    at.channels_last = 1;
    if (at.shape.n)
        moved_ints(at.shape.v, at.shape.n);
    return build(g, n->op, n->name, n->nin, in, &at);
}

/* ---- what follows -------------------------------------------------------------------------------- */

static void append(Ints *v, int at, int64_t value)
{
    memmove(v->v + at + 1, v->v + at, (size_t)(v->n - at) * sizeof *v->v);
    v->v[at] = value;
    v->n++;
}

/* Pools a channels-last value as [N, 1, s..., C]: the window has extent 1 in the channels. */
static Val pool(Layout *x, const Node *n)
{
    Graph *g = x->g;
    PoolAttrs at = *(const PoolAttrs *)n->attr;
    Val v = as_last(x, n->in[0], val_type(g, n->in[0])->rank);
    Type t = *val_type(g, v);
    int spatial = t.rank - 2;
    int64_t dim[MAX_RANK] = {t.dim[0], 1};
    memcpy(dim + 2, t.dim + 1, (size_t)(spatial + 1) * sizeof *dim);
    append(&at.kernel, spatial, 1);
    append(&at.strides, spatial, 1);
    append(&at.dilations, spatial, 1);
    append(&at.pads, 2 * spatial, 0);
    append(&at.pads, spatial, 0);
    append(&at.out, spatial, dim[spatial + 2]);
    v = build_reshape(g, v, t.rank + 1, dim);
    v = build(g, n->op, n->name, 1, &v, &at);
    memcpy(t.dim + 1, at.out.v, (size_t)(spatial + 1) * sizeof *dim);
    return build_reshape(g, v, t.rank, t.dim);
}

/* A channels-last form of a reshape that leaves images and channels as they are. */
static Val merged(Layout *x, const Node *n)
{
    Type t = *val_type(x->g, n->out[0]);
    Val v = as_last(x, n->in[0], val_type(x->g, n->in[0])->rank);
    moved_ints(t.dim, t.rank);
    return build_reshape(x->g, v, t.rank, t.dim);
}

/* Is n the transpose to channels-last that the sweep makes, or (back) its inverse? */
static bool moves_channels(const Node *n, bool back)
{
    const Ints *perm = &((const TransposeAttrs *)n->attr)->perm;
    bool same = n->op == OP_transpose && perm->n > 2;
    for (int d = 0; d < perm->n && same; d++)
        same = perm->v[back ? d : place(d, perm->n)] == (back ? place(d, perm->n) : d);
    return same;
}

/* Renumbers the attributes of n that name dimensions. */
static void renumber(const Node *n, int rank, void *attr)
{
    SliceAttrs *slice = attr;
    PadAttrs *pad = attr;
    ReduceAttrs *reduce = attr;
    int64_t *axis = node_whole(&(Node){.op = n->op, .attr = attr}, "axis");
    if (axis)
        *axis = place((int)*axis, rank);
    if (n->op == OP_slice) {
        moved_ints(slice->start.v, rank);
        moved_ints(slice->step.v, rank);
        moved_ints(slice->size.v, rank);
    } else if (n->op == OP_pad) {
        moved_ints(pad->before.v, rank);
        moved_ints(pad->after.v, rank);
    } else if (node_def(n)->attrs && n->op >= OP_reduce_sum && n->op <= OP_reduce_log_sum_exp) {
        uint32_t axes = 0;
        for (int i = 0; i < reduce->axes.n; i++)
            axes |= 1u << place((int)reduce->axes.v[i], rank);
        reduce->axes.n = 0;
        for (int d = 0; d < rank; d++)
            if (axes >> d & 1)
                reduce->axes.v[reduce->axes.n++] = d;
    }
}

/* Builds n with its first `moved` operands channels-last and its dimensions renumbered. */
static Val renumbered(Layout *x, const Node *n, int rank, int moved, Val *in, Val *out)
{
    Graph *g = x->g;
    void *attr = node_def(n)->attr_size ? arena_alloc(g->arena, 1, node_def(n)->attr_size) : NULL;
    if (attr)
        memcpy(attr, n->attr, node_def(n)->attr_size);
    for (int i = 0; i < moved; i++)
        in[i] = as_last(x, n->in[i], rank);
    renumber(n, rank, attr);
    build_n(g, n->op, n->name, n->nin, in, attr, node_def(n)->nout, out);
    return out[0];
}

/* Does a reduction keep the order of the dimensions left, as it is to [N, C] or reduces the channels? */
static bool keeps_order(const Node *n, int rank)
{
    uint32_t axes = axes_mask(&((const ReduceAttrs *)n->attr)->axes), spatial = ((1u << rank) - 1) & ~3u;
    return axes & 2 || (axes & spatial) == spatial;
}

/* ---- the sweep ----------------------------------------------------------------------------------- */

static bool is_convolution(const Node *n) { return n->op == OP_conv || n->op == OP_conv_bwd_data; }

typedef enum { STAYS, FOLLOWS, ORDERLESS } Kind; /* ORDERLESS: its results are the same in either order */

/* Does n read a channels-last value, and can it take that form? */
static Kind kind_of(const Layout *x, const Node *n)
{
    const Graph *g = x->g;
    const Type *t = n->nin && n->in[0].i ? val_type(g, n->in[0]) : NULL, *y = val_type(g, n->out[0]);
    bool any = false;
    for (int i = 0; i < n->nin; i++)
        any |= x->last[n->in[i].i].i && val_type(g, n->in[i])->rank == y->rank;
    if (is_convolution(n))
        return FOLLOWS;
    if (node_def(n)->traits & OPT_POINTWISE)
        return any ? FOLLOWS : STAYS;
    if (n->op == OP_transpose && y->rank > 3 && moves_channels(n, true))
        return FOLLOWS;
    if (!t || !x->last[n->in[0].i].i)
        return n->op == OP_concat && any ? FOLLOWS : STAYS;
    switch (n->op) {
    case OP_batch_norm:
    case OP_concat:
    case OP_slice:
    case OP_pad:
    case OP_resample:
    case OP_softmax:
    case OP_log_softmax:
        return FOLLOWS;
    case OP_max_pool:
    case OP_avg_pool:
        return t->rank < 5 ? FOLLOWS : STAYS;
    case OP_transpose:
        return moves_channels(n, false) ? ORDERLESS : STAYS;
    case OP_reshape:
        return y->rank > 2 && y->dim[0] == t->dim[0] && y->dim[1] == t->dim[1] ? FOLLOWS : STAYS;
    case OP_reduce_sum:
    case OP_reduce_max:
    case OP_reduce_min:
    case OP_reduce_prod:
    case OP_reduce_log_sum_exp:
        return ((const ReduceAttrs *)n->attr)->keepdims ? FOLLOWS
               : keeps_order(n, t->rank)                ? ORDERLESS
                                                        : STAYS;
    case OP_cross_entropy:
        return ((const AxisAttrs *)n->attr)->axis == 1 ? ORDERLESS : STAYS;
    default:
        return STAYS;
    }
}

static bool takes_all(const Node *n) { return node_def(n)->traits & OPT_POINTWISE || n->op == OP_concat; }

/* How many of its first operands n takes channels-last; the model's own transpose takes none. */
static int operands_last(const Node *n, Kind kind)
{
    bool none = kind == STAYS || (n->op == OP_transpose && kind == FOLLOWS);
    return none ? 0 : takes_all(n) ? n->nin : 1;
}

/* The table that result i is kept in. */
static Val *kept_in(const Layout *x, Kind kind, int i)
{
    return i == 0 && kind == FOLLOWS ? x->last : x->plain;
}

static Val rewritten(Layout *x, const Node *n, Val *in, Val *out)
{
    int rank = val_type(x->g, n->nin ? n->in[0] : n->out[0])->rank;
    if (is_convolution(n))
        return convolution(x, n, in);
    if (n->op == OP_max_pool || n->op == OP_avg_pool)
        return pool(x, n);
    if (n->op == OP_reshape)
        return merged(x, n);
    if (n->op == OP_transpose)
        return moves_channels(n, false) ? x->last[n->in[0].i] : in[0];
    rank = takes_all(n) ? val_type(x->g, n->out[0])->rank : rank;
    return renumbered(x, n, rank, takes_all(n) ? n->nin : 1, in, out);
}

static void visit(Layout *x, NodeId id)
{
    Graph *g = x->g;
    const Node n = g->nodes[id.i];
    Kind kind = kind_of(x, &n);
    Val *in = NEW(g->arena, Val, n.nin + 1), out[MAX_OUT] = {{0}};
    for (int i = operands_last(&n, kind); i < n.nin; i++)
        in[i] = n.in[i].i ? as_plain(x, n.in[i]) : n.in[i];
    if (kind == STAYS) {
        memcpy(g->nodes[id.i].in, in, (size_t)n.nin * sizeof *in);
        for (int i = 0; i < n.nout; i++)
            x->plain[n.out[i].i] = n.out[i];
        graph_schedule(g, id);
        return;
    }
    out[0] = rewritten(x, &n, in, out);
    for (int i = 0; i < n.nout; i++)
        kept_in(x, kind, i)[n.out[i].i] = out[i];
}

/* ---- is it worth it? ----------------------------------------------------------------------------- */

/* If a device has convolutions of either order, at most 1 / TRANSPOSED_PART of their images' bytes may be
 * transposed. */
enum { TRANSPOSED_PART = 8 };

static int64_t bytes_of(const Graph *g, Val v) { return type_bytes(val_type(g, v)); }

/* Bytes that the sweep transposes for v in the order of `made`, 0 if it has been made; marks it as made. */
static int64_t bytes_moved(const Graph *g, Val *made, Val v)
{
    int64_t bytes = made[v.i].i || !v.i ? 0 : bytes_of(g, v);
    made[v.i] = v;
    return bytes;
}

/* Bytes of node n's operands that the sweep would transpose; makes no changes but in the tables. */
static int64_t transposed_by(Layout *x, const Node *n)
{
    Kind kind = kind_of(x, n);
    int64_t bytes = 0;
    for (int i = 0; i < n->nin; i++)
        bytes += bytes_moved(x->g, i < operands_last(n, kind) ? x->last : x->plain, n->in[i]);
    for (int i = 0; i < n->nout; i++)
        kept_in(x, kind, i)[n->out[i].i] = n->out[i];
    return bytes;
}

static void start(Layout *x, Arena *tmp)
{
    x->last = NEW(tmp, Val, x->n);
    x->plain = NEW(tmp, Val, x->n);
    for (uint32_t i = 1; i < x->n; i++)
        x->plain[i].i = x->g->vals[i].kind == VAL_TEMP ? 0 : i;
}

static bool is_worth_it(const Graph *g, const PassCtx *cx, Layout x)
{
    int64_t transposed = 0, images = 0;
    start(&x, cx->tmp);
    for (uint32_t k = 0; k < g->norder; k++) {
        const Node *n = &g->nodes[g->order[k].i];
        transposed += transposed_by(&x, n);
        images += is_convolution(n) ? bytes_of(g, n->in[0]) + bytes_of(g, n->out[0]) : 0;
    }
    return images > 0 && (!cx->opt->either_order || transposed <= images / TRANSPOSED_PART);
}

/* ---- the pass ------------------------------------------------------------------------------------ */

/* The form in the graph's order of v, which survives the step, under v's name. */
static Val at_end(Layout *x, Val v)
{
    if (v.i >= x->n)
        return v;
    Val now = as_plain(x, v);
    if (now.i != v.i)
        rewrite_name(x->g, v, now);
    return now;
}

bool pass_layout(Graph *g, PassCtx *cx)
{
    Layout x = {.g = g, .unit = cx->opt->channels_last, .n = g->nvals};
    uint32_t n = g->norder;
    if (!cx->opt->channels_last || !is_worth_it(g, cx, x))
        return true;
    start(&x, cx->tmp);
    const NodeId *order = graph_take_order(g, cx->tmp);
    for (uint32_t k = 0; k < n && !g->diag->failed; k++)
        visit(&x, order[k]);
    for (uint32_t i = 0; i < g->nout && !g->diag->failed; i++) {
        Val v = g->out[i];
        g->out[i] = at_end(&x, v);
        cx->info->loss = v.i == cx->info->loss.i ? g->out[i] : cx->info->loss;
    }
    for (uint32_t i = 0; i < g->nupdate && !g->diag->failed; i++)
        g->update[i].value = at_end(&x, g->update[i].value);
    cx->changed = true;
    return !g->diag->failed;
}
