/* precision.c -- mixed precision: casts by operator class, where torch.autocast has them.
 *
 * Products (OpDef.in) read 16 bits and add in f32, but for those that only add; operators that overflow or
 * lose digits compute in f32; all others follow their widest operand, where constants, single numbers and
 * parameters of one axis (biases, scales of channels) do not count.  A larger parameter does: a table of
 * positions makes f32 of the sum that runs through all layers of a vision transformer.  Only f32 values take
 * part.  Parameters stay f32 masters. A value has one copy in 16 bits, made in front of its first reader and
 * read by forward and backward, so that a parameter's is made once in a step.  The operand of a view or
 * transpose is narrowed, so that copies are made of parameters themselves, but its result is widened, so that
 * the cast has its readers' shape and joins their kernels.  Positions at which images are sampled are f32
 * back to the products that they come from: of pixel 37 and an offset, bf16 keeps a quarter of a pixel.
 *
 * Runs before autodiff: the gradient of a cast is a cast, and parameters' gradients arrive in f32 because
 * they are sums (grad_type).  Inside a kernel a cast costs nothing and rounds nothing. */
#include "passes.h"
#include <string.h>

const char *const precision_name[] = {"f32", "tf32", "bf16", "fp16", NULL};

/* What a value depends on: on inputs, on constants only, or on constants and parameters. */
typedef enum { ON_INPUTS, ON_CONSTANTS, ON_PARAMETERS } Source;

typedef struct {
    Graph *g;
    DType half;
    Val *as[2];     /* per value at the start: its cast to half, to f32; {0}: none yet */
    DType *was;     /* per value at the start: its type then */
    Source *source; /* per value at the start: what it depends on */
    bool *position; /* per value at the start: is a position computed from it without products? */
    uint32_t n;
} Precision;

DType precision_half(PrecisionKind kind)
{
    return kind == PRECISION_BF16 ? DT_BF16 : kind == PRECISION_FP16 ? DT_F16 : DT_NONE;
}

static bool is_moved(const Node *n) { return n->op == OP_reshape || n->op == OP_transpose; }

/* v in type dt. */
static Val as_type(Precision *x, Val v, DType dt)
{
    Graph *g = x->g;
    DType from = val_type(g, v)->dt;
    if (from == dt || (from != DT_F32 && from != x->half))
        return v;
    if (v.i >= x->n)
        return build_cast(g, v, dt);
    Val *known = &x->as[dt == DT_F32][v.i];
    const Node *n = graph_def(g, v);
    if (!known->i && n && is_moved(n) && dt == x->half) {
        Node moved = *n;
        Val of = as_type(x, moved.in[0], dt);
        *known = build(g, moved.op, moved.name, 1, &of, moved.attr);
    } else if (!known->i) {
        *known = build_cast(g, v, dt);
    }
    return *known;
}

/* Does v take the type of the operand that it is combined with? */
static bool follows(const Precision *x, Val v)
{
    const Type *t = val_type(x->g, v);
    int axes = 0;
    for (int i = 0; i < t->rank; i++)
        axes += t->dim[i] != 1;
    return axes == 0 || x->source[v.i] == ON_CONSTANTS || (x->source[v.i] == ON_PARAMETERS && axes == 1);
}

/* Does n, Col2Im, add what it reads by unit kernels?  PyTorch adds it in the type that it has. */
static bool only_adds(const Graph *g, const Node *n)
{
    if (n->op != OP_conv_bwd_data || !graph_is_const(g, n->in[1]))
        return false;
    Tensor t = graph_tensor(g, n->in[1]);
    for (int64_t i = 0; i < type_count(&t.type); i++)
        if (tensor_f(&t, i) != 0 && tensor_f(&t, i) != 1)
            return false;
    return true;
}

/* The type that n computes in; DT_NONE: the type of its operands. */
static DType computes_in(const Precision *x, const Node *n)
{
    const Graph *g = x->g;
    OpPrecision in = only_adds(g, n) ? IN_WIDEST : node_def(n)->in;
    DType found = DT_NONE;
    for (int i = 0; i < n->nin; i++) {
        const Type *t = val_type(g, n->in[i]);
        if (!n->in[i].i || node_def(n)->wide_in >> i & 1)
            continue;
        if (t->dt == x->half && found == DT_NONE)
            found = x->half;
        else if (t->dt == DT_F32 && (in != IN_WIDEST || !follows(x, n->in[i])))
            found = DT_F32;
    }
    if (found != DT_NONE && in == IN_WIDEST && x->position[n->out[0].i])
        return DT_F32;
    if (found == DT_NONE || in == IN_WIDEST)
        return found;
    return in == IN_HALF ? x->half : DT_F32;
}

static Source source_of(const Precision *x, const Node *n)
{
    Source s = n->nin && !(node_def(n)->traits & OPT_RANDOM) ? ON_CONSTANTS : ON_INPUTS;
    for (int i = 0; i < n->nin && s != ON_INPUTS; i++) {
        Source in = x->source[n->in[i].i];
        s = in == ON_CONSTANTS ? s : in;
    }
    return s;
}

/* Marks the operands of grid_sample that are positions, and what they are computed from without products. */
static void mark_positions(Precision *x, const NodeId *order, uint32_t n)
{
    for (uint32_t k = n; k-- > 0;) {
        const Node *node = &x->g->nodes[order[k].i];
        bool position = false;
        for (int i = 0; i < node->nout; i++)
            position |= x->position[node->out[i].i];
        if (node->op == OP_grid_sample)
            x->position[node->in[1].i] = true;
        for (int i = 0; i < node->nin && position && node_def(node)->in == IN_WIDEST; i++)
            x->position[node->in[i].i] |= node->in[i].i != 0;
    }
}

static bool convert(Precision *x, NodeId id)
{
    Graph *g = x->g;
    Node n = g->nodes[id.i]; /* a copy; the array of operands is the node's own */
    DType dt = computes_in(x, &n);
    Type out[MAX_OUT] = {{0}};
    Source source = source_of(x, &n);
    for (int i = 0; i < n.nin && dt != DT_NONE; i++)
        if (n.in[i].i && !(node_def(&n)->wide_in >> i & 1))
            n.in[i] = as_type(x, n.in[i], dt);
    if (g->diag->failed || (dt != DT_NONE && !node_def(&n)->infer(g, &n, out, g->diag)))
        return false;
    for (int i = 0; i < n.nout; i++) {
        x->source[n.out[i].i] = source;
        if (dt != DT_NONE)
            g->vals[n.out[i].i].type = out[i];
    }
    graph_schedule(g, id);
    return true;
}

/* v cast to the type it had at the start, under its name. */
static Val as_it_was(Precision *x, Val v)
{
    Graph *g = x->g;
    if (v.i >= x->n || val_type(g, v)->dt == x->was[v.i])
        return v;
    Val now = as_type(x, v, x->was[v.i]);
    const char *name = g->vals[v.i].name;
    graph_rename(g, v, arena_printf(g->arena, "%s.%s", name, dtype_name[x->half]));
    graph_rename(g, now, name);
    return now;
}

/* Gives outputs, updates and the loss the types they had. */
static void restore_ends(Precision *x, StepInfo *info)
{
    Graph *g = x->g;
    for (uint32_t i = 0; i < g->nout; i++) {
        Val v = g->out[i];
        g->out[i] = as_it_was(x, v);
        info->loss = v.i == info->loss.i ? g->out[i] : info->loss;
    }
    for (uint32_t i = 0; i < g->nupdate; i++)
        g->update[i].value = as_type(x, g->update[i].value, val_type(g, g->update[i].state)->dt);
}

static void open(Precision *x, Arena *tmp)
{
    const Graph *g = x->g;
    x->n = g->nvals;
    x->was = NEW(tmp, DType, x->n);
    x->source = NEW(tmp, Source, x->n);
    x->position = NEW(tmp, bool, x->n);
    for (int i = 0; i < 2; i++)
        x->as[i] = NEW(tmp, Val, x->n);
    x->source[0] = ON_CONSTANTS; /* for absent operands */
    for (uint32_t i = 1; i < x->n; i++) {
        ValKind kind = g->vals[i].kind;
        x->was[i] = g->vals[i].type.dt;
        x->source[i] = kind == VAL_PARAM                         ? ON_PARAMETERS
                       : kind == VAL_CONST || kind == VAL_STATE ? ON_CONSTANTS
                                                                : ON_INPUTS;
    }
}

/* Marks products for tf32; types stay, as the device rounds the factors. */
static bool mark_tf32(Graph *g, PassCtx *cx)
{
    const DeviceInfo *d = step_device(cx->opt);
    if (d->tf32 <= 0 && cx->note)
        cx->note(cx->user, arena_printf(cx->tmp, "%s has no tf32: products are in f32", d->title));
    for (uint32_t k = 0; k < g->norder && d->tf32 > 0; k++) {
        const Node *n = &g->nodes[g->order[k].i];
        int64_t *tf32 = node_whole(n, "tf32");
        if (tf32 && val_type(g, n->in[0])->dt == DT_F32 && !only_adds(g, n))
            *tf32 = cx->changed = true;
    }
    return true;
}

bool pass_precision(Graph *g, PassCtx *cx)
{
    Precision x = {.g = g, .half = precision_half(cx->opt->precision)};
    uint32_t n = g->norder;
    if (x.half == DT_NONE)
        return cx->opt->precision != PRECISION_TF32 || mark_tf32(g, cx);
    open(&x, cx->tmp);
    const NodeId *order = graph_take_order(g, cx->tmp);
    mark_positions(&x, order, n);
    for (uint32_t k = 0; k < n; k++)
        TRY(convert(&x, order[k]));
    restore_ends(&x, cx->info);
    cx->changed = true;
    return !g->diag->failed;
}
