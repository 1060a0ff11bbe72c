/* split_head.c -- cross-entropy over a large vocabulary in blocks of rows (ir/split.c).
 *
 *   logits = x w   loss, lse = cross_entropy(logits)   dlogits = cross_entropy_bwd(..)
 *   dx = dlogits w'                                    dw = dlogits' x, those that are wanted
 *
 * where the loss may be in single precision and the products in half.
 * Rows do not see each other, and the cotangent of the loss does not depend on the loss, so a block of
 * rows can do all of this before the next one begins: logits and their gradient never exist beyond a
 * block, and nothing is computed twice.  A rule of shapes and the device: every budget computes the same.
 * Logits that someone else reads, such as a requested output, stay whole. */
#include "../ir/attrs.h"
#include "../ir/integer.h"
#include "rewrite.h"

enum {
    ROW_UNIT = 16,    /* blocks are multiples */
    COLUMN_UNIT = 16, /* bytes of a row, that products on a GPU's tensor cores read it together */
    FEW_ROWS = 256    /* of which such products are not worth the copies of weights and their gradient */
};

typedef struct {
    Graph *g;
    const uint32_t *uses;
    const Node *logits, *loss, *slope;
    const Node *dx, *dw; /* NULL: nothing before the head trains, or not its weights */
    bool weight_first; /* dw = x' dlogits, not dlogits' x */
    int64_t rows;   /* of the logits */
    int64_t asked;  /* for a block; 0: as the rule says */
    const DeviceInfo *device; /* the rule: smaller logits stay whole, and fewer rows in a block would
                               * read weights and their gradient too often */
} Head;

/* ---- finding it ----------------------------------------------------------------------------- */

/* A view, or a cast from or to half precision. */
static bool is_seen_through(const Head *h, const Node *n)
{
    return n && (n->op == OP_reshape || (n->op == OP_cast && (dtype_is_half(val_type(h->g, n->in[0])->dt) ||
                                                              dtype_is_half(val_type(h->g, n->out[0])->dt))));
}

/* The value behind those that nothing else reads. */
static Val behind_views(const Head *h, Val v)
{
    const Node *n = graph_def(h->g, v);
    while (is_seen_through(h, n) && h->uses[n->in[0].i] == 1) {
        v = n->in[0];
        n = graph_def(h->g, v);
    }
    return v;
}

static Val seen(const Head *h, Val v)
{
    for (const Node *n; is_seen_through(h, n = graph_def(h->g, v));)
        v = n->in[0];
    return v;
}

static bool views(const Head *h, Val v, Val of) { return seen(h, v).i == seen(h, of).i; }

/* Readers of the elements of v other than views of it: up to max of them; false: more, or an end. */
static bool readers(const Head *h, Val v, const Node **n, int *count, int max)
{
    const Graph *g = h->g;
    *count = 0;
    for (uint32_t i = 0; i < g->nout; i++)
        if (views(h, g->out[i], v))
            return false;
    for (uint32_t k = 0; k < g->norder; k++) {
        const Node *m = &g->nodes[g->order[k].i];
        bool reads = false;
        for (int i = 0; i < m->nin; i++)
            reads |= m->in[i].i && views(h, m->in[i], v);
        if (!reads || is_seen_through(h, m))
            continue;
        if (*count == max)
            return false;
        n[(*count)++] = m;
    }
    return true;
}

/* Columns of logits that there should be, those behind the classes being of zeros: on a GPU, where a product
 * with rows that are no multiples of COLUMN_UNIT takes several times as long. */
static int64_t columns(const Head *h)
{
    const Type *t = val_type(h->g, h->logits->out[0]);
    const MatmulAttrs *at = h->logits->attr;
    int64_t unit = COLUMN_UNIT / dtype_size[val_type(h->g, h->logits->in[0])->dt], n = t->dim[1];
    bool rounds = at->tf32 || dtype_is_half(t->dt);
    return h->device->capability && rounds && h->rows >= FEW_ROWS ? round_up(n, unit) : n;
}

/* Large, and larger than the gradient of the weights, which has to be whole where it accumulates. */
static bool worth(const Head *h)
{
    const Type *x = val_type(h->g, h->logits->in[0]);
    if (h->asked > 0)
        return h->rows > h->asked;
    return type_bytes(val_type(h->g, h->logits->out[0])) >= h->device->head_bytes &&
           h->rows >= 2 * h->device->head_rows && h->rows > x->dim[1];
}

/* dx = dlogits .. and dw = dlogits' x or x' dlogits; no other reader */
static bool find_products(Head *h)
{
    const Node *n[2];
    int count;
    if (!readers(h, h->slope->out[0], n, &count, 2))
        return false;
    for (int i = 0; i < count; i++) {
        const Node *m = n[i];
        if (m->op != OP_matmul || val_type(h->g, m->in[0])->rank != 2 || val_type(h->g, m->in[1])->rank != 2)
            return false;
        const MatmulAttrs *at = m->attr;
        bool first = views(h, m->in[0], h->slope->out[0]);
        Val other = m->in[first ? 1 : 0];
        if (views(h, other, h->logits->in[0]) && at->ta && !at->tb) {
            h->dw = m;
            h->weight_first = !first;
        } else if (first && !at->ta && !views(h, other, h->slope->out[0])) {
            h->dx = m;
        }
    }
    return count > 0 && (h->dx != NULL) + (h->dw != NULL) == count;
}

static bool find(Head *h, const Node *loss)
{
    Graph *g = h->g;
    const CrossEntropyAttrs *at = loss->attr;
    const Type *t = val_type(g, loss->in[0]);
    const Node *n[2];
    int count;
    h->loss = loss;
    h->logits = graph_def(g, behind_views(h, loss->in[0]));
    h->dx = h->dw = NULL;
    if (!h->logits || h->logits->op != OP_matmul || at->axis != t->rank - 1 ||
        ((const MatmulAttrs *)h->logits->attr)->ta ||
        val_type(g, h->logits->in[0])->rank != 2 || val_type(g, h->logits->in[1])->rank != 2)
        return false;
    h->rows = val_type(g, h->logits->in[0])->dim[0];
    bool apart = columns(h) != val_type(g, h->logits->out[0])->dim[1];
    if (h->rows * t->dim[t->rank - 1] != type_count(t) || !(worth(h) || apart) ||
        !readers(h, h->logits->out[0], n, &count, 2) || count != 2)
        return false;
    h->slope = n[n[0] == loss];
    return h->slope->op == OP_cross_entropy_bwd && views(h, h->slope->in[1], h->logits->out[0]) &&
           h->slope->in[3].i == loss->out[1].i && h->uses[loss->out[1].i] == 1 && find_products(h);
}

/* ---- building it ---------------------------------------------------------------------------- */

typedef struct {
    Val loss, dx, dw;
} Parts;

static Val flat(Graph *g, Val v, int64_t rows) { return build_reshape(g, v, 1, &rows); }

/* Rows of a block; blocks are of about equal size. */
static int64_t block_rows(const Head *h)
{
    int64_t count = worth(h) ? h->rows / h->device->head_rows : 1;
    if (h->asked > 0)
        return h->asked;
    return round_up(ceil_div(h->rows, count), ROW_UNIT);
}

static void set_split(Graph *g, Val made, SplitBy by, int64_t block)
{
    Node *n = graph_def(g, made);
    n->group = g->ngroups;
    n->split = (Split){by, block};
}

/* The second factor of a product, with so many classes: columns of its result, or terms of its sums. */
static Val with_classes(Graph *g, const Node *product, int64_t count, bool as_columns)
{
    const MatmulAttrs *at = product->attr;
    return build_pad(g, product->in[1], as_columns != (at->tb != 0), count);
}

/* They as one group. */
static Parts build_head(const Head *h)
{
    Graph *g = h->g;
    CrossEntropyAttrs at = *(const CrossEntropyAttrs *)h->loss->attr;
    int64_t classes = val_type(g, h->logits->out[0])->dim[1], wide = columns(h);
    at.axis = 1;
    at.count = wide > classes ? classes : 0;
    Val x = h->logits->in[0], out[2] = {{0}};
    Val target = flat(g, h->loss->in[1], h->rows), given = flat(g, h->slope->in[0], h->rows);
    Val weight = h->loss->nin > 2 ? build_pad(g, h->loss->in[2], 0, wide) : (Val){0};
    Val w = with_classes(g, h->logits, wide, true), w_of_dx = w;
    if (h->dx && h->dx->in[1].i != h->logits->in[1].i)
        w_of_dx = with_classes(g, h->dx, wide, false);
    uint32_t first = g->nnodes;
    Val logits = build(g, OP_matmul, h->logits->name, 2, (Val[]){x, w}, h->logits->attr);
    Val scores = build_cast(g, logits, val_type(g, h->loss->in[0])->dt);
    build_n(g, OP_cross_entropy, h->loss->name, h->loss->nin, (Val[]){scores, target, weight}, &at, 2, out);
    Val slope = build(g, OP_cross_entropy_bwd, NULL, h->slope->nin,
                      (Val[]){given, scores, target, out[1], weight}, &at);
    slope = build_cast(g, slope, val_type(g, x)->dt);
    Val factor[] = {h->weight_first ? x : slope, h->weight_first ? slope : x};
    Parts p = {.loss = out[0]};
    if (h->dx)
        p.dx = build(g, OP_matmul, NULL, 2, (Val[]){slope, w_of_dx}, h->dx->attr);
    if (h->dw)
        p.dw = build(g, OP_matmul, NULL, 2, factor, h->dw->attr);
    if (g->diag->failed)
        return p;
    g->ngroups++;
    for (uint32_t i = first; i < g->nnodes; i++)
        g->nodes[i].group = g->ngroups;
    set_split(g, logits, SPLIT_ROWS, block_rows(h));
    if (h->dx)
        set_split(g, p.dx, SPLIT_ROWS, block_rows(h));
    if (h->dw)
        set_split(g, p.dw, SPLIT_SUM, block_rows(h));
    p.dw = build_slice(g, p.dw, h->weight_first, 0, classes);
    const Type *t = val_type(g, h->loss->out[0]);
    p.loss = build_reshape(g, p.loss, t->rank, t->dim);
    return p;
}

/* ---- putting it into the schedule ------------------------------------------------------------- */

typedef struct {
    Graph *g;
    uint32_t nodes; /* older than the head's */
    bool *done;     /* by node */
    Val *subst;     /* by value, as of rewrite_as() */
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

/* Does v depend on the loss? */
static bool depends(const Graph *g, Val v, const Node *loss, bool *seen)
{
    const Node *n = graph_def(g, v);
    if (!n || seen[v.i])
        return false;
    seen[v.i] = true;
    if (n == loss)
        return true;
    for (int i = 0; i < n->nin; i++)
        if (depends(g, n->in[i], loss, seen))
            return true;
    return false;
}

static NodeId id_of(const Graph *g, const Node *n) { return n ? g->vals[n->out[0].i].def : (NodeId){0}; }

/* They stand where the loss stood, behind what makes its cotangent. */
static void replace(Head *h, StepInfo *info, Arena *tmp)
{
    Graph *g = h->g;
    uint32_t n = g->norder, nnodes = g->nnodes, nvals = g->nvals;
    const NodeId *old = graph_take_order(g, tmp);
    /* building moves the tables of nodes */
    Node logits = *h->logits, loss = *h->loss, slope = *h->slope, none = {0};
    Node dx = h->dx ? *h->dx : none, dw = h->dw ? *h->dw : none;
    NodeId gone[] = {id_of(g, h->loss), id_of(g, h->slope), id_of(g, h->dx), id_of(g, h->dw)};
    *h = (Head){g, h->uses, &logits, &loss, &slope, h->dx ? &dx : NULL, h->dw ? &dw : NULL, h->weight_first,
                h->rows, h->asked, h->device};
    Move m = {g, nnodes, NEW(tmp, bool, nnodes + 1), NEW(tmp, Val, nvals + 1)};
    for (uint32_t k = 0; k < n; k++) {
        if (old[k].i == gone[0].i) {
            NodeId d = g->vals[slope.in[0].i].def;
            if (d.i)
                append(&m, d);
            Parts p = build_head(h);
            m.subst[loss.out[0].i] = p.loss;
            if (h->dx)
                m.subst[dx.out[0].i] = p.dx;
            if (h->dw)
                m.subst[dw.out[0].i] = p.dw;
        }
        bool replaced = false;
        for (int i = 0; i < 4; i++)
            replaced |= old[k].i == gone[i].i;
        if (!replaced)
            append(&m, old[k]);
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
        const Node *n = &g->nodes[g->order[k].i];
        Head h = {.g = g, .asked = cx->opt->head_rows, .device = step_device(cx->opt)};
        if (n->op != OP_cross_entropy)
            continue;
        h.uses = graph_uses(g, cx->tmp);
        if (!find(&h, n) || depends(g, h.slope->in[0], n, NEW(cx->tmp, bool, g->nvals)))
            continue;
        replace(&h, cx->info, cx->tmp);
        cx->changed = true;
        return !g->diag->failed; /* there is one loss */
    }
    return true;
}
