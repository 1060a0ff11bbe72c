/* loss.c -- finds the loss in the graph, or appends one with its target input.
 *
 *   a float output with one element (or --loss-output naming one)      is the loss, unless the file leaves
 *                                                                      one of its dimensions open: of one row
 *   otherwise --loss on the output (--loss-output, or the only one):
 *     ce    softmax cross-entropy, integer targets; the classes are on the axis of the Softmax that ends
 *           the model, or on the last axis if channels were moved there, else, extents of 1 at the end
 *           dropped, on axis 1 (the last axis for 3-D); mean over targets that are not -100 (PyTorch's
 *           ignore_index)
 *     mse   mean squared error    l1  mean absolute error
 *     bce   binary cross-entropy with logits
 *   auto is bce if the model ends in a Sigmoid, mse if there is one class or one number a row, else ce
 * A Softmax, LogSoftmax or Sigmoid that ends the model, though its result be cast, reshaped or transposed, or
 * a Sigmoid's pair (1 - p, p), is part of ce and bce and is bypassed. */
#include "../ir/attrs.h"
#include "rewrite.h"
#include <string.h>

const char *const loss_name[] = {"auto", "ce", "mse", "bce", "l1", "none", NULL};

static bool is_scalar_float(const Graph *g, Val v)
{
    const Type *t = val_type(g, v);
    return dtype_is_float(t->dt) && type_count(t) == 1;
}

/* The name of output k in the file; its value's may be another, which the text form can print. */
static const char *output_name(const Graph *g, const PassCtx *cx, uint32_t k)
{
    return cx->opt->model ? onnx_output_name(cx->opt->model, k) : g->vals[g->out[k].i].name;
}

/* Has an output its size by --bind, and not by the file? */
static bool is_open(const Graph *g, const PassCtx *cx, Val out)
{
    bool open = false;
    for (uint32_t k = 0; k < g->nout && cx->opt->model; k++)
        open |= g->out[k].i == out.i && onnx_output_open(cx->opt->model, output_name(g, cx, k));
    return open;
}

/* Is an output the loss, whatever the number of rows? */
static bool is_loss(const Graph *g, const PassCtx *cx, Val out)
{
    return cx->opt->loss == LOSS_AUTO && is_scalar_float(g, out) && !is_open(g, cx, out);
}

/* Has an output one number for each row: a dimension that is open, or an input's first? */
static bool is_of_rows(const Graph *g, const PassCtx *cx, Val out)
{
    const Type *t = val_type(g, out);
    bool rows = is_open(g, cx, out);
    for (uint32_t v = 1; v < g->nvals; v++)
        rows |= g->vals[v].kind == VAL_INPUT && g->vals[v].type.rank && g->vals[v].type.dim[0] == t->dim[0];
    return t->rank == 1 && rows;
}

/* Chooses the output that is the loss, or that the loss is computed from. */
static bool choose_output(Graph *g, PassCtx *cx, uint32_t *out)
{
    const char *want = cx->opt->loss_output;
    uint32_t floats = 0;
    for (uint32_t i = 0; i < g->nout; i++) {
        Val v = g->out[i];
        bool found = want ? strcmp(output_name(g, cx, i), want) == 0 : is_loss(g, cx, v);
        bool first = dtype_is_float(val_type(g, v)->dt) && floats++ == 0;
        if (found || first)
            *out = i;
        if (found)
            return true;
    }
    if (want)
        return fail(cx->diag, "no output named '%s'", want);
    if (!floats)
        return fail(cx->diag, "the model has no float output to put a loss on");
    if (floats > 1 && cx->note)
        cx->note(cx->user, "several outputs: the loss is on the first (see --loss-output)");
    return true;
}

/* What ends a model: a Softmax, LogSoftmax or Sigmoid of x, whose result is only cast and moved since. */
typedef struct {
    Op op; /* OP_copy: it ends in none of them */
    Val x, move[8];
    int moves, axis; /* the output's that has the classes */
} Ending;

/* The axis of `to`, a reshape of `from`, along which the same elements lie as along from's; -1: none. */
static int axis_in_reshape(const Type *from, const Type *to, int axis)
{
    int64_t before = 1, count = 1;
    for (int d = 0; d < axis; d++)
        before *= from->dim[d];
    for (int d = 0; d < to->rank; count *= to->dim[d++])
        if (count == before && to->dim[d] == from->dim[axis])
            return d;
    return -1;
}

static int axis_behind(const Graph *g, const Node *move, int axis)
{
    const Type *from = val_type(g, move->in[0]), *to = val_type(g, move->out[0]);
    if (move->op == OP_reshape)
        return axis_in_reshape(from, to, axis);
    for (int d = 0; d < to->rank && move->op == OP_transpose; d++)
        if (((const TransposeAttrs *)move->attr)->perm.v[d] == axis)
            return d;
    return axis;
}

static Ending ending_of(const Graph *g, Val v)
{
    Ending e = {.op = OP_copy};
    const Node *n = graph_def(g, v);
    for (; n && e.moves < 8; n = graph_def(g, n->in[0])) {
        bool cast = n->op == OP_cast && dtype_is_float(val_type(g, n->in[0])->dt);
        if (!cast && n->op != OP_reshape && n->op != OP_transpose)
            break;
        e.move[e.moves++] = n->out[0];
    }
    if (!n || (n->op != OP_softmax && n->op != OP_log_softmax && n->op != OP_sigmoid))
        return e;
    bool classes = n->op != OP_sigmoid;
    e.axis = classes ? (int)((const AxisAttrs *)n->attr)->axis : 0;
    for (int i = e.moves; classes && i-- > 0 && e.axis >= 0;)
        e.axis = axis_behind(g, graph_def(g, e.move[i]), e.axis);
    e.op = e.axis >= 0 ? n->op : OP_copy;
    e.x = n->in[0];
    return e;
}

/* The logits, moved as the output is. */
static Val logits_of(Graph *g, const Ending *e)
{
    Val x = e->x;
    for (int i = e->moves; i-- > 0;) {
        const Node *n = graph_def(g, e->move[i]);
        Type t = *val_type(g, e->move[i]);
        int perm[MAX_RANK];
        for (int d = 0; d < t.rank && n->op == OP_transpose; d++)
            perm[d] = (int)((const TransposeAttrs *)n->attr)->perm.v[d];
        x = n->op == OP_transpose ? build_transpose(g, x, perm)
            : n->op == OP_reshape ? build_reshape(g, x, t.rank, t.dim)
                                  : x;
    }
    return x;
}

static bool ends_in_softmax(const Ending *e) { return e->op == OP_softmax || e->op == OP_log_softmax; }

/* The logits of an output that is the pair (1 - p, p), p a Sigmoid's, along an axis, as scikit-learn's binary
 * classifiers end: 0 and the Sigmoid's operand, of which it is the Softmax.  {0}: it is none. */
static Val logits_of_pair(Graph *g, Val out, int axis)
{
    const Node *pair = graph_def(g, out);
    if (!pair || pair->op != OP_concat || pair->nin != 2 || ((const AxisAttrs *)pair->attr)->axis != axis)
        return none();
    const Node *rest = graph_def(g, pair->in[0]), *p = graph_def(g, pair->in[1]);
    double one = 0;
    bool is_pair = rest && rest->op == OP_sub && rest->in[1].i == pair->in[1].i && p && p->op == OP_sigmoid;
    if (!is_pair || !rewrite_scalar(&(Rewrite){.g = g}, rest->in[0], &one) || one != 1)
        return none();
    const Type *t = val_type(g, p->in[0]);
    Val z = p->in[0], zero = build_expand(g, build_scalar(g, t->dt, 0), t->rank, t->dim);
    return build_concat_many(g, 2, (Val[]){zero, z}, axis);
}

/* What makes v the probabilities of classes, only moved and cut since; NULL: nothing is known to. */
static const Node *probabilities_of(const Graph *g, Val v)
{
    const Node *n = graph_def(g, v);
    while (n && (n->op == OP_reshape || n->op == OP_transpose || n->op == OP_slice || n->op == OP_cast ||
                 n->op == OP_concat))
        n = graph_def(g, n->in[n->nin - 1]);
    return n && (n->op == OP_softmax || n->op == OP_sigmoid) ? n : NULL;
}

/* Is the one channel moved from dimension 1 to the end? */
static bool moves_one_channel(const Type *from, const Type *to)
{
    bool moved = from->rank == to->rank && from->dim[1] == 1 && to->dim[to->rank - 1] == 1;
    for (int d = 1; moved && d < to->rank - 1; d++)
        moved = to->dim[d] == from->dim[d + 1];
    return moved;
}

/* Has a transpose moved v's channels to the end, as in Keras's exports, with only pointwise operators behind
 * it? */
static bool channels_last(const Graph *g, Val v)
{
    const Type t = *val_type(g, v);
    for (const Node *n; (n = graph_def(g, v));) {
        if (n->op == OP_transpose)
            return ((const TransposeAttrs *)n->attr)->perm.v[t.rank - 1] == 1;
        if (n->op == OP_reshape)
            return moves_one_channel(val_type(g, n->in[0]), &t);
        if (!(node_def(n)->traits & OPT_POINTWISE))
            return false;
        int i = 0;
        while (i < n->nin && !type_equal(val_type(g, n->in[i]), &t))
            i++;
        if (i == n->nin)
            return false;
        v = n->in[i];
    }
    return false;
}

/* The output's type; *axis: which of its dimensions are the classes.  Extents of 1 at its end are dropped
 * unless something shows that they are the classes: [N,C,1,1] is a classification. */
static Type classes_of(const Graph *g, Val out, int *axis)
{
    Ending e = ending_of(g, out);
    bool softmax = ends_in_softmax(&e);
    Type t = *val_type(g, out);
    bool last = !softmax && t.rank > 2 && channels_last(g, out);
    *axis = softmax ? e.axis : last ? t.rank - 1 : 1;
    while (t.rank > 2 && t.rank - 1 > *axis && t.dim[t.rank - 1] == 1)
        t.dim[--t.rank] = 0;
    if (!softmax && !last)
        *axis = t.rank == 3 ? 2 : t.rank > 1;
    return t;
}

/* v in the type of its sums, f32 for half precision: no loss is computed in half precision. */
static Val in_single(Graph *g, Val v) { return build_cast(g, v, dtype_sum(val_type(g, v)->dt)); }

static Val mean_all(Graph *g, Val v)
{
    const Type *t = val_type(g, v);
    int64_t count = type_count(t);
    uint32_t axes = (1u << t->rank) - 1;
    Val s = build_reduce(g, OP_reduce_sum, v, axes, false);
    return build2(g, OP_mul, s, build_scalar(g, t->dt, 1.0 / (double)(count ? count : 1)));
}

static Val cross_entropy(Graph *g, PassCtx *cx, Val out)
{
    Ending e = ending_of(g, out);
    bool softmax = ends_in_softmax(&e);
    int axis;
    Type t = classes_of(g, out, &axis), target = {.dt = DT_I64};
    Val pair = softmax ? none() : logits_of_pair(g, out, axis);
    const Node *made = softmax || pair.i ? NULL : probabilities_of(g, out);
    if (made && cx->note)
        cx->note(cx->user,
                 arena_printf(g->arena,
                              "output '%s' is made of the probabilities of '%s', which --loss ce takes as "
                              "logits; --loss-output names another",
                              g->vals[out.i].name, made->name ? made->name : node_def(made)->name));
    Val x = in_single(g, softmax ? logits_of(g, &e) : pair.i ? pair : out);
    t.dt = val_type(g, x)->dt;
    x = build_reshape(g, x, t.rank, t.dim);
    for (int i = 0; i < t.rank; i++)
        if (i != axis)
            target.dim[target.rank++] = t.dim[i];
    cx->info->target = graph_value(g, "target", target, VAL_INPUT);
    Val in[] = {x, cx->info->target};
    Val each = build(g, OP_cross_entropy, "loss_each", 2, in, &(CrossEntropyAttrs){axis, -100, 1, 0, 0});
    Val ignored = build2(g, OP_equal, cx->info->target, build_scalar(g, DT_I64, -100));
    Val valid = build_cast(g, build1(g, OP_not, ignored), t.dt);
    uint32_t axes = (1u << target.rank) - 1;
    Val total = build_reduce(g, OP_reduce_sum, each, axes, false);
    return build2(g, OP_div, total, build_reduce(g, OP_reduce_sum, valid, axes, false));
}

/* max(x, 0) - x * y + log(1 + exp(-|x|)) */
static Val bce_each(Graph *g, Val x, Val y)
{
    return build2(g, OP_sub, build1(g, OP_softplus, x), build2(g, OP_mul, x, y));
}

static LossKind usual_loss(const Graph *g, const PassCtx *cx, Val out)
{
    if (ending_of(g, out).op == OP_sigmoid)
        return LOSS_BCE;
    if (is_of_rows(g, cx, out))
        return LOSS_MSE;
    int axis;
    Type t = classes_of(g, out, &axis);
    return t.rank && t.dim[axis] == 1 ? LOSS_MSE : LOSS_CE;
}

static Val append_loss(Graph *g, PassCtx *cx, Val out)
{
    LossKind kind = cx->opt->loss == LOSS_AUTO ? usual_loss(g, cx, out) : cx->opt->loss;
    cx->info->appended = kind;
    if (kind == LOSS_CE && is_of_rows(g, cx, out))
        diag_set(cx->diag, "--loss ce: output '%s' has one number a row, and no classes: mse, bce or l1",
                 g->vals[out.i].name);
    if (kind == LOSS_CE)
        return cross_entropy(g, cx, out);
    Ending e = ending_of(g, out);
    Val x = in_single(g, kind == LOSS_BCE && e.op == OP_sigmoid ? logits_of(g, &e) : out);
    cx->info->target = graph_value(g, "target", *val_type(g, x), VAL_INPUT);
    if (kind == LOSS_BCE)
        return mean_all(g, bce_each(g, x, cx->info->target));
    Val diff = build2(g, OP_sub, x, cx->info->target);
    return mean_all(g, build1(g, kind == LOSS_MSE ? OP_square : OP_abs, diff));
}

/* A copy of v if it is a weight, a state or a view of one, as the update would change the output; else v. */
static Val before_update(Graph *g, Val v)
{
    ValKind root = g->vals[graph_root(g, v).i].kind;
    if (root != VAL_PARAM && root != VAL_STATE)
        return v;
    Val copy = build1(g, OP_copy, v);
    if (g->vals[v.i].kind == VAL_TEMP)
        rewrite_name(g, v, copy);
    return copy;
}

bool pass_loss(Graph *g, PassCtx *cx)
{
    if (cx->opt->loss == LOSS_NONE)
        return true;
    uint32_t at = 0;
    TRY(choose_output(g, cx, &at));
    Val out = g->out[at];
    bool given = is_loss(g, cx, out);
    if (given && val_type(g, out)->rank && cx->note)
        cx->note(cx->user, arena_printf(g->arena,
                                        "output '%s' has one element: it is the loss (--loss KIND puts "
                                        "one on it)",
                                        g->vals[out.i].name));
    Val loss = given ? before_update(g, build_reshape(g, out, 0, NULL)) : append_loss(g, cx, out);
    if (g->diag->failed)
        return false;
    /* out[0] is the loss; the model's outputs follow only if asked for. */
    uint32_t nout = g->nout;
    Val *old = g->out;
    g->out = NULL;
    g->nout = g->cout = 0;
    graph_add_out(g, loss);
    for (uint32_t i = 0; i < nout && cx->opt->keep_grads; i++)
        if (!given || i != at)
            graph_add_out(g, before_update(g, old[i]));
    cx->info->loss = loss;
    cx->info->given = given ? at + 1 : 0;
    cx->changed = true;
    return true;
}
