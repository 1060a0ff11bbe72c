/* split_head.c -- cross-entropy over a large vocabulary in blocks of rows (ir/split.c).
 *
 *   logits = x w   z = f(logits)   loss, .. = cross_entropy(z)    dz = cross_entropy_bwd(..)
 *   dlogits = df(.., dz)   dx = dlogits w'   dw = dlogits' x   sums of dz over rows, those that are wanted
 *
 * where f is a chain of pointwise operators, such as a bias, a scale, or a cap by tanh, and the loss may
 * be in single precision and the products in half.
 * Rows are independent, and the cotangent of the loss does not depend on the loss, so a block of rows
 * can do all of this before the next one begins: of logits and their gradient only one block exists at a
 * time, and nothing is computed twice.  Shapes and the device decide, so every budget computes the same.
 * Logits that something else reads, such as a requested output, stay whole. */
#include "../ir/attrs.h"
#include "../ir/integer.h"
#include "../ir/kernel.h"
#include "rewrite.h"

enum { DX, DW, SUMS, ENDS }; /* results of the head that are computed from the gradient of logits */
enum {
    ROW_UNIT = 16,    /* rows of a block are a multiple */
    COLUMN_UNIT = 16, /* bytes of a row are a multiple for fast products on a GPU's tensor cores */
    FEW_ROWS = 256,   /* fewer rows do not pay for padded copies of weights and their gradient */
    MAX_MEMBERS = 32, /* most operators between the products */
    MAX_BLOCKS = LOOP_LAUNCHES / (2 * MAX_MEMBERS) /* each is a launch per member, product and sum */
};

typedef struct {
    Graph *g;
    NodeId logits, loss;
    NodeId end[ENDS];  /* {0}: nothing before the head trains, or its weights do not, or there is no bias */
    bool weight_first; /* dw = x' dlogits, not dlogits' x */
    NodeId member[MAX_MEMBERS]; /* nodes between the products in order, with loss and its gradient */
    int n;
    bool *inside; /* per value: a member makes it, with a row for each row of the logits */
    bool *below;  /* per value: it depends on the logits */
    bool finite;  /* members make finite numbers of zeros, so that classes can be padded with zeros */
    int64_t rows, classes; /* extents of the logits */
    int64_t asked;  /* rows of a block that were asked for; 0: by the device's rule */
    const DeviceInfo *device; /* its rule: smaller logits stay whole, as blocks of fewer rows would read
                               * weights and their gradient too often */
} Head;

static const Node *at(const Head *h, NodeId id) { return &h->g->nodes[id.i]; }

static bool same(NodeId a, NodeId b) { return a.i == b.i; }

/* ---- finding it ----------------------------------------------------------------------------- */

/* Elements that the padded number of classes is a multiple of: on a GPU, a product whose rows are no
 * multiples of COLUMN_UNIT bytes takes several times as long. */
static int64_t unit(const Head *h)
{
    const Node *n = at(h, h->logits);
    DType dt = val_type(h->g, n->in[0])->dt;
    bool rounds = ((const MatmulAttrs *)n->attr)->tf32 || dtype_is_half(dt);
    return h->device->capability && rounds && h->rows >= FEW_ROWS ? COLUMN_UNIT / dtype_size[dt] : 1;
}

/* The number of classes padded with zeros. */
static int64_t columns(const Head *h) { return h->finite ? round_up(h->classes, unit(h)) : h->classes; }

/* Are the logits worth splitting: large, and larger than the weights' gradient, which accumulates whole? */
static bool worth(const Head *h)
{
    int64_t bytes = type_bytes(val_type(h->g, at(h, h->logits)->out[0]));
    int64_t gradient = h->end[DW].i ? type_bytes(val_type(h->g, at(h, h->end[DW])->out[0])) : 0;
    if (h->asked > 0)
        return h->rows > h->asked;
    return bytes >= h->device->head_bytes && h->rows >= 2 * h->device->head_rows && bytes > gradient;
}

/* Has v a row of all classes for each row of the logits? */
static bool is_whole(const Head *h, Val v)
{
    const Type *t = val_type(h->g, v);
    return t->rank > 1 && t->dim[t->rank - 1] == h->classes && type_count(t) == h->rows * h->classes;
}

/* Is v one number, or one number per class? */
static bool is_of_row(const Head *h, Val v)
{
    const Type *t = val_type(h->g, v);
    return type_count(t) == 1 || (t->dim[t->rank - 1] == h->classes && type_count(t) == h->classes);
}

static bool is_elementwise(const Node *n)
{
    unsigned traits = node_def(n)->traits;
    return n->op == OP_reshape || ((traits & OPT_POINTWISE) && !(traits & OPT_RANDOM));
}

/* Does n make finite numbers for padded classes, whose operands are zeros? */
static bool stays_finite(const Graph *g, const Node *n)
{
    switch (n->op) {
    case OP_reshape: case OP_cast: case OP_add: case OP_sub: case OP_mul: case OP_tanh: case OP_tanh_bwd:
        return true;
    case OP_div:
        return type_count(val_type(g, n->in[1])) == 1;
    default:
        return false;
    }
}

static bool add_member(Head *h, NodeId id, Val out)
{
    TRY(h->n < MAX_MEMBERS);
    h->member[h->n++] = id;
    h->inside[out.i] = true;
    return true;
}

/* A reader of a value inside is one of these: a member of the chain, */
static bool joins(Head *h, NodeId id)
{
    const Node *n = at(h, id);
    for (int i = 0; i < n->nin; i++)
        TRY(h->inside[n->in[i].i] || (!h->below[n->in[i].i] && is_of_row(h, n->in[i])));
    h->finite &= stays_finite(h->g, n);
    return n->nout == 1 && is_whole(h, n->out[0]) && add_member(h, id, n->out[0]);
}

/* the loss or its gradient, */
static bool joins_loss(Head *h, NodeId id)
{
    const Node *n = at(h, id);
    bool bwd = n->op == OP_cross_entropy_bwd;
    TRY(bwd ? h->inside[n->in[1].i] && n->in[3].i == at(h, h->loss)->out[1].i : same(id, h->loss));
    for (int i = 0; i < n->nin; i++)
        TRY(!h->below[n->in[i].i] || i == (bwd ? 1 : 0) || (bwd && (i == 3 || i == 4)));
    if (!bwd)
        h->inside[n->out[2].i] = true;
    return add_member(h, id, n->out[bwd ? 0 : 1]);
}

/* a product dx = dlogits .. or dw = dlogits' x or x' dlogits, */
static bool ends_in_product(Head *h, NodeId id)
{
    const Node *n = at(h, id);
    const MatmulAttrs *m = n->attr;
    bool first = h->inside[n->in[0].i];
    Val other = n->in[first ? 1 : 0], x = at(h, h->logits)->in[0];
    if (h->below[other.i] || val_type(h->g, n->in[0])->rank != 2 || val_type(h->g, other)->rank != 2)
        return false;
    bool weights = m->ta && !m->tb && graph_root(h->g, other).i == graph_root(h->g, x).i;
    NodeId *end = &h->end[weights ? DW : DX];
    if (end->i || (!weights && (!first || m->ta)))
        return false;
    *end = id;
    h->weight_first |= weights && !first;
    return true;
}

/* or sums over all rows. */
static bool ends_in_sums(Head *h, NodeId id)
{
    const Node *n = at(h, id);
    int rank = val_type(h->g, n->in[0])->rank;
    if (h->end[SUMS].i || !is_whole(h, n->in[0]) ||
        axes_mask(&((const ReduceAttrs *)n->attr)->axes) != (1u << (rank - 1)) - 1)
        return false;
    h->end[SUMS] = id;
    return true;
}

static bool follow(Head *h, NodeId id)
{
    const Node *n = at(h, id);
    bool reads = false, below = false, ok = true;
    for (int i = 0; i < n->nin; i++) {
        reads |= h->inside[n->in[i].i];
        below |= h->below[n->in[i].i];
    }
    if (same(id, h->logits))
        h->inside[n->out[0].i] = below = true;
    else if (reads && (n->op == OP_cross_entropy || n->op == OP_cross_entropy_bwd))
        ok = joins_loss(h, id);
    else if (reads && n->op == OP_matmul)
        ok = ends_in_product(h, id);
    else if (reads && n->op == OP_reduce_sum)
        ok = ends_in_sums(h, id);
    else if (reads)
        ok = is_elementwise(n) && joins(h, id);
    for (int i = 0; i < n->nout; i++)
        h->below[n->out[i].i] = below;
    return ok;
}

/* The product that v is computed from by pointwise operators only; {0}: there is none. */
static NodeId product_behind(const Head *h, Val v)
{
    for (const Node *n; (n = graph_def(h->g, v)) && n->op != OP_matmul;) {
        int i = 0;
        while (is_elementwise(n) && i < n->nin && !is_whole(h, n->in[i]))
            i++;
        if (!is_elementwise(n) || i == n->nin)
            return (NodeId){0};
        v = n->in[i];
    }
    return h->g->vals[v.i].def;
}

static bool find(Head *h, Arena *tmp)
{
    const Graph *g = h->g;
    const Node *loss = at(h, h->loss), *logits;
    const Type *t = val_type(g, loss->in[0]);
    h->classes = t->dim[t->rank - 1];
    h->rows = type_count(t) / (h->classes ? h->classes : 1);
    if (((const CrossEntropyAttrs *)loss->attr)->axis != t->rank - 1 || !h->rows)
        return false;
    h->logits = product_behind(h, loss->in[0]);
    logits = at(h, h->logits);
    if (!h->logits.i || ((const MatmulAttrs *)logits->attr)->ta || val_type(g, logits->in[0])->rank != 2 ||
        val_type(g, logits->in[1])->rank != 2)
        return false;
    h->finite = true;
    h->inside = NEW(tmp, bool, g->nvals);
    h->below = NEW(tmp, bool, g->nvals);
    for (uint32_t k = 0; k < g->norder; k++)
        TRY(follow(h, g->order[k]));
    const bool *ends = graph_ends(g, tmp);
    for (uint32_t v = 0; v < g->nvals; v++)
        TRY(!(h->inside[v] && ends[v]));
    return (h->end[DX].i || h->end[DW].i) && (worth(h) || columns(h) != h->classes);
}

/* ---- building it ---------------------------------------------------------------------------- */

/* Rows of a block; blocks have about equal size. */
static int64_t block_rows(const Head *h)
{
    int64_t count = worth(h) ? h->rows / h->device->head_rows : 1;
    if (h->asked > 0)
        return h->asked;
    return round_up(ceil_div(h->rows, count < MAX_BLOCKS ? count : MAX_BLOCKS), ROW_UNIT);
}

static void set_split(const Head *h, Val made, SplitBy by)
{
    Node *n = graph_def(h->g, made);
    if (n)
        n->split = (Split){by, block_rows(h)};
}

/* The second factor of a product with its classes padded: columns of the result, or terms of its sums. */
static Val with_classes(const Head *h, NodeId product, bool as_columns)
{
    const Node *n = at(h, product);
    return build_pad(h->g, n->in[1], as_columns != (((const MatmulAttrs *)n->attr)->tb != 0), columns(h));
}

/* Operand i of a member, which comes from outside, in one dimension; padded if it is one number per class. */
static Val outside(const Head *h, const Node *n, int i)
{
    bool loss = n->op == OP_cross_entropy, bwd = n->op == OP_cross_entropy_bwd;
    bool of_rows = (loss && i == 1) || (bwd && (i == 0 || i == 2));
    int64_t count = type_count(val_type(h->g, n->in[i]));
    Val v = build_reshape(h->g, n->in[i], 1, &count);
    return of_rows || count != h->classes ? v : build_pad(h->g, v, 0, columns(h));
}

static void build_outside(const Head *h, Val *as)
{
    for (int m = 0; m < h->n; m++) {
        Node n = *at(h, h->member[m]);
        for (int i = 0; i < n.nin; i++)
            if (n.in[i].i && !h->inside[n.in[i].i])
                as[n.in[i].i] = outside(h, &n, i);
    }
}

/* Builds a member on rows of all columns, whatever its shape was. */
static void build_member(const Head *h, NodeId id, Val *as)
{
    enum { MAX_IN = 5 };
    Node n = *at(h, id);
    Val in[MAX_IN] = {{0}}, out[MAX_OUT] = {{0}};
    CrossEntropyAttrs of;
    bool bwd = as[at(h, h->loss)->out[1].i].i != 0; /* results have their node's name only up to the loss */
    for (int i = 0; i < n.nin; i++)
        in[i] = as[n.in[i].i];
    if (n.op == OP_cross_entropy || n.op == OP_cross_entropy_bwd) {
        of = *(const CrossEntropyAttrs *)n.attr;
        of.axis = 1;
        of.count = columns(h) > h->classes ? h->classes : 0;
        n.attr = &of;
    }
    if (n.op == OP_reshape)
        out[0] = in[0];
    else if (build_n(h->g, n.op, bwd ? NULL : n.name, n.nin, in, n.attr, n.nout, out))
        graph_def(h->g, out[0])->name = n.name;
    for (int i = 0; i < n.nout; i++)
        as[n.out[i].i] = out[i];
}

/* The value that is summed over rows; if it is a cast from 16 bits, the cast's operand. */
static Val summed(const Head *h)
{
    Val v = at(h, h->end[SUMS])->in[0];
    const Node *n = graph_def(h->g, v);
    bool widened = n->op == OP_cast && dtype_is_half(val_type(h->g, n->in[0])->dt);
    return widened ? n->in[0] : v;
}

/* v in the type and shape of old, which it replaces. */
static Val as_was(Graph *g, Val old, Val v)
{
    Type t = *val_type(g, old);
    return build_reshape(g, build_cast(g, v, t.dt), t.rank, t.dim);
}

/* Builds dx, dw or the sums (i) from rows of all columns. */
static Val build_end(const Head *h, int i, const Val *as, Val x, Val w, Val ones)
{
    Node n = *at(h, h->end[i]);
    Val v = as[n.in[0].i];
    MatmulAttrs sums = {.ta = 1};
    if (i == DX)
        return build(h->g, OP_matmul, NULL, 2, (Val[]){v, w}, n.attr);
    if (i == DW)
        return build(h->g, OP_matmul, NULL, 2,
                     h->weight_first ? (Val[]){x, as[n.in[1].i]} : (Val[]){v, x}, n.attr);
    v = as[summed(h).i];
    sums.out = dtype_is_half(val_type(h->g, v)->dt) ? DT_F32 : DT_NONE;
    return build(h->g, OP_matmul, NULL, 2, (Val[]){ones, v}, &sums);
}

/* Builds the head as one group, behind the values it reads; sets subst for the values that it replaces. */
static void build_head(const Head *h, Val *subst, Arena *tmp)
{
    Graph *g = h->g;
    Val *as = NEW(tmp, Val, g->nvals), made[ENDS] = {{0}};
    Node logits = *at(h, h->logits), loss = *at(h, h->loss);
    Val x = logits.in[0], w = with_classes(h, h->logits, true), w_of_dx = w, ones = {0};
    build_outside(h, as);
    if (h->end[DX].i && at(h, h->end[DX])->in[1].i != logits.in[1].i)
        w_of_dx = with_classes(h, h->end[DX], false);
    if (h->end[SUMS].i)
        ones = build_expand(g, build_scalar(g, val_type(g, summed(h))->dt, 1), 2,
                            (int64_t[]){h->rows, unit(h)});
    uint32_t first = g->nnodes;
    Val z = as[logits.out[0].i] = build(g, OP_matmul, logits.name, 2, (Val[]){x, w}, logits.attr);
    for (int i = 0; i < h->n; i++)
        build_member(h, h->member[i], as);
    for (int i = 0; i < ENDS; i++)
        if (h->end[i].i)
            made[i] = build_end(h, i, as, x, w_of_dx, ones);
    if (g->diag->failed)
        return;
    g->ngroups++;
    for (uint32_t i = first; i < g->nnodes; i++)
        g->nodes[i].group = g->ngroups;
    set_split(h, z, SPLIT_ROWS);
    for (int i = 0; i < ENDS; i++)
        set_split(h, made[i], i == DX ? SPLIT_ROWS : SPLIT_SUM);
    made[DW] = build_slice(g, made[DW], h->weight_first, 0, h->classes);
    made[SUMS] = build_slice(g, build_slice(g, made[SUMS], 0, 0, 1), 1, 0, h->classes);
    subst[loss.out[0].i] = as_was(g, loss.out[0], as[loss.out[0].i]);
    for (int i = 0; i < ENDS; i++)
        if (h->end[i].i)
            subst[at(h, h->end[i])->out[0].i] = as_was(g, at(h, h->end[i])->out[0], made[i]);
}

/* ---- putting it into the schedule ------------------------------------------------------------- */

typedef struct {
    Graph *g;
    uint32_t nodes; /* nodes below this id are older than the head's */
    bool *done;     /* per node: it is in the order, or left out */
    Val *subst;     /* per value, as of rewrite_as() */
} Move;

static void append(Move *m, NodeId id)
{
    Graph *g = m->g;
    Node *n = &g->nodes[id.i];
    if (m->done[id.i])
        return;
    m->done[id.i] = true;
    for (int i = 0; i < n->nin; i++) {
        n->in[i] = rewrite_as(m->subst, n->in[i]);
        NodeId d = g->vals[n->in[i].i].def;
        if (d.i && d.i < m->nodes)
            append(m, d);
    }
    graph_schedule(g, id);
}

/* Appends to the order the nodes that node id needs and the head does not make. */
static void append_read(Move *m, const Head *h, NodeId id)
{
    const Node *n = at(h, id);
    for (int i = 0; i < n->nin; i++) {
        NodeId d = h->g->vals[n->in[i].i].def;
        if (d.i && !h->below[n->in[i].i])
            append(m, d);
    }
}

/* Replaces the nodes by the head, at the loss's place in the order, behind the nodes that it needs. */
static void replace(const Head *h, StepInfo *info, Arena *tmp)
{
    Graph *g = h->g;
    uint32_t n = g->norder;
    const NodeId *old = graph_take_order(g, tmp);
    Move m = {g, g->nnodes, NEW(tmp, bool, g->nnodes + 1), NEW(tmp, Val, g->nvals + 1)};
    for (int i = 0; i < h->n; i++)
        m.done[h->member[i].i] = true;
    for (int i = 0; i < ENDS; i++)
        m.done[h->end[i].i] = true;
    for (uint32_t k = 0; k < n; k++) {
        if (same(old[k], h->loss)) {
            append_read(&m, h, h->logits);
            for (int i = 0; i < h->n; i++)
                append_read(&m, h, h->member[i]);
            for (int i = 0; i < ENDS; i++)
                append_read(&m, h, h->end[i]);
            build_head(h, m.subst, tmp);
        } else {
            append(&m, old[k]);
        }
    }
    for (uint32_t i = 0; i < g->nout; i++)
        if (m.subst[g->out[i].i].i)
            rewrite_name(g, g->out[i], m.subst[g->out[i].i]);
    rewrite_ends(g, m.subst);
    for (uint32_t i = 0; i < info->ntrained; i++)
        info->trained[i].grad = rewrite_as(m.subst, info->trained[i].grad);
    graph_dce(g, tmp);
}

bool pass_head(Graph *g, PassCtx *cx)
{
    for (uint32_t k = 0; k < g->norder; k++) {
        Head h = {.g = g, .loss = g->order[k], .asked = cx->opt->head_rows, .device = step_device(cx->opt)};
        if (at(&h, h.loss)->op != OP_cross_entropy || !find(&h, cx->tmp))
            continue;
        replace(&h, cx->info, cx->tmp);
        cx->changed = true;
        return !g->diag->failed; /* there is one loss */
    }
    return true;
}
