/* import_rnn.c -- RNN, GRU and LSTM, unrolled over time.
 *
 * The product of the input with W is one matrix product for many steps; a step adds the product of
 * the state with R, one for all gates, and applies these.  The backward direction walks time from the end.
 * What steps have in common, forward and backward, lives until the last of them is done: segments of
 * time, few enough for products to stay large, let most of it go before.
 * Exporters put gates into ONNX's order by copies of the weights; here these are read as they lie.
 * With sequence lengths a step beyond a sequence's end keeps its state and gives zeros,
 * which is right in both directions. */
#include "onnx_int.h"
#include <math.h>
#include <string.h>

typedef struct {
    OnnxNode *n;
    Graph *g;
    int gates;
    int64_t steps, batch, hidden, dirs;
    int64_t segment; /* steps of one product with W */
    bool batch_first;
    Val x;       /* [steps, batch, input] */
    Val lengths; /* [batch, 1], or none */
    double clip; /* 0: none */
} Rnn;

enum {
    GATES = 4,
    SEGMENTS = 4,      /* most segments of time */
    SEGMENT_ROWS = 256 /* least rows of a segment, steps times batch */
};

/* One direction. */
typedef struct {
    int k;
    bool backward;
    int place[GATES];  /* place of each gate in W, R and their biases */
    Val xw[SEGMENTS];  /* [segment, batch, gates * hidden]: x W^T + biases */
    Val w, r, b[2];    /* [gates * hidden, ...] */
    Val rb;            /* [hidden]: recurrent bias of the last gate, kept apart (GRU), or none */
    Val hr;            /* the state's product, in this step, with the gates that read it */
    Val peep[3];       /* [hidden] */
    int f[3];          /* activation functions: positions in the attribute */
    Val h, c;          /* [batch, hidden] */
    Val *y;            /* per step */
} Direction;

/* ---- activations -------------------------------------------------------- */

static const Activation activations[] = {
    {"Sigmoid", OP_sigmoid, 0, 0, 0},
    {"Tanh", OP_tanh, 0, 0, 0},
    {"Relu", OP_relu, 0, 0, 0},
    {"Softsign", OP_softsign, 0, 0, 0},
    {"Softplus", OP_softplus, 0, 0, 0},
    {"LeakyRelu", OP_leaky_relu, 1, 0.01, 0},
    {"Elu", OP_elu, 1, 1, 0},
    {"ThresholdedRelu", OP_thresholded_relu, 1, 1, 0},
    {"HardSigmoid", OP_hardsigmoid, 2, 0.2, 0.5},
    {"Clip", OP_clip, 2, -INFINITY, INFINITY},
    {"ScaledTanh", OP_tanh, 2, 1, 1},
    {"Affine", OP_copy, 2, 1, 0},
};

const Activation *activation_find(const char *name)
{
    for (size_t i = 0; i < sizeof activations / sizeof activations[0]; i++)
        if (strcasecmp(activations[i].name, name) == 0)
            return &activations[i];
    return NULL;
}

Val activation_build(Graph *g, const Activation *a, Val x, double al, double be)
{
    if (strcmp(a->name, "ScaledTanh") == 0)
        return mul_scalar(g, one(g, OP_tanh, mul_scalar(g, x, be)), al);
    if (strcmp(a->name, "Affine") == 0)
        return add_scalar(g, mul_scalar(g, x, al), be);
    return with_consts(g, a->op, x, al, be);
}

static const char *activation_name(const OnnxNode *n, int k, const char *const *dflt)
{
    const Onnx__AttributeProto *a = attr_find(n, "activations");
    if (!a || (size_t)k >= a->n_strings)
        return dflt[k];
    return arena_strndup(n->x->a, (const char *)a->strings[k].data, a->strings[k].len);
}

/* Applies activation k to x; lists of constants are consumed in the order of the functions. */
static Val activate(const Rnn *r, int k, const char *const *dflt, Val x)
{
    const Onnx__AttributeProto *al = attr_find(r->n, "activation_alpha");
    const Onnx__AttributeProto *be = attr_find(r->n, "activation_beta");
    size_t ia = 0, ib = 0;
    for (int i = 0; i < k; i++) {
        int used = activation_find(activation_name(r->n, i, dflt))->constants;
        ia += used > 0;
        ib += used > 1;
    }
    const Activation *a = activation_find(activation_name(r->n, k, dflt));
    double alpha =
        al && a->constants > 0 && ia < al->n_floats ? (double)al->floats[ia] : a->al;
    double beta =
        be && a->constants > 1 && ib < be->n_floats ? (double)be->floats[ib] : a->be;
    if (r->clip > 0)
        x = with_consts(r->g, OP_clip, x, -r->clip, r->clip);
    return activation_build(r->g, a, x, alpha, beta);
}

/* ---- operands ----------------------------------------------------------- */

/* Direction k of v[dirs, a, b...] without that dimension. */
static Val of_direction(Graph *g, Val v, int k)
{
    if (!v.i)
        return v;
    const Type t = *val_type(g, v);
    return build_reshape(g, build_slice(g, v, 0, k, 1), t.rank - 1, t.dim + 1);
}

static Val state_of(const Rnn *r, int operand, int k)
{
    OnnxNode *n = r->n;
    if (has_in(n, operand)) {
        Val v = n->in[operand];
        if (r->batch_first)
            v = build_transpose(r->g, v, (int[]){1, 0, 2});
        return of_direction(r->g, v, k);
    }
    Val zero = scalar_like(r->g, r->x, 0);
    return build_expand(r->g, zero, 2, (int64_t[]){r->batch, r->hidden});
}

static Val rows(const Rnn *r, Val v, int first, int count)
{
    return build_slice(r->g, v, 0, first * r->hidden, count * r->hidden);
}

/* The operand of a concatenation of directions that n slices; {0}: n does no such thing. */
static Val one_direction(const Graph *g, const Node *n)
{
    const Node *all = n->op == OP_slice ? graph_def(g, n->in[0]) : NULL;
    const SliceAttrs *at = n->attr;
    if (!all || all->op != OP_concat || ((const AxisAttrs *)all->attr)->axis != 0 ||
        val_type(g, n->in[0])->dim[0] != all->nin || at->size.v[0] != 1)
        return (Val){0};
    Val part = all->in[at->start.v[0]];
    return type_count(val_type(g, part)) == type_count(val_type(g, n->out[0])) ? part : (Val){0};
}

/* The value that v's elements come from, behind views and slices of one direction. */
static Val behind_views(const Graph *g, Val v)
{
    for (const Node *n = graph_def(g, v); n; n = graph_def(g, v)) {
        Val of = n->op == OP_reshape ? n->in[0] : one_direction(g, n);
        if (!of.i)
            break;
        v = of;
    }
    return v;
}

/* If v is a copy of a value's rows, gate by gate in ONNX's order: that value, and each gate's place in it. */
static Val read_places(const Rnn *r, Val v, int *place)
{
    const Graph *g = r->g;
    const Node *n = graph_def(g, behind_views(g, v));
    Val from = {0};
    if (!n || n->op != OP_concat || n->nin > r->gates || ((const AxisAttrs *)n->attr)->axis != 0)
        return (Val){0};
    int gates = 0;
    for (int i = 0; i < n->nin; i++) {
        const Node *p = graph_def(g, n->in[i]);
        const SliceAttrs *at = p && p->op == OP_slice ? p->attr : NULL;
        if (!at || (i > 0 && p->in[0].i != from.i) || at->start.v[0] % r->hidden != 0 ||
            at->size.v[0] % r->hidden != 0 || !ints_are(&at->step, 1) ||
            type_count(val_type(g, n->in[i])) * r->gates * r->hidden !=
                at->size.v[0] * type_count(val_type(g, p->in[0])))
            return (Val){0};
        from = p->in[0];
        for (int k = 0; k < at->size.v[0] / r->hidden && gates < r->gates; k++)
            place[gates++] = (int)(at->start.v[0] / r->hidden) + k;
    }
    return type_equal(val_type(g, from), val_type(g, v)) ? from : (Val){0};
}

/* If the exporter put the gates of W, R and their biases into ONNX's order alike, they are read as they lay
 * before; a last gate that is kept apart must have been the last. */
static void undo_order(const Rnn *r, Direction *d, bool apart)
{
    Val *of[] = {&d->w, &d->r, &d->b[0], &d->b[1]}, from[4];
    int n = d->b[0].i ? 4 : 2, place[4][GATES];
    for (int i = 0; i < n; i++) {
        from[i] = read_places(r, *of[i], place[i]);
        if (!from[i].i || memcmp(place[i], place[0], (size_t)r->gates * sizeof **place) != 0)
            return;
    }
    if (apart && place[0][r->gates - 1] != r->gates - 1)
        return;
    for (int i = 0; i < n; i++)
        *of[i] = from[i];
    memcpy(d->place, place[0], sizeof d->place);
}

/* Reads both halves of the bias. */
static void read_biases(const Rnn *r, Direction *d)
{
    Val b = of_direction(r->g, r->n->in[3], d->k);
    const Node *halves = graph_def(r->g, behind_views(r->g, b));
    bool split = halves && halves->op == OP_concat && halves->nin == 2;
    for (int i = 0; i < 2; i++)
        d->b[i] = split ? halves->in[i] : rows(r, b, i * r->gates, r->gates);
}

/* The sum of W's bias and the recurrent one, which the last gate of a GRU keeps apart. */
static Val joined_bias(const Rnn *r, Direction *d, bool apart)
{
    Graph *g = r->g;
    if (!apart)
        return build2(g, OP_add, d->b[0], d->b[1]);
    int joined = r->gates - 1;
    Val sum = build2(g, OP_add, rows(r, d->b[0], 0, joined), rows(r, d->b[1], 0, joined));
    d->rb = rows(r, d->b[1], joined, 1);
    return build_concat(g, 2, (Val[]){sum, rows(r, d->b[0], joined, 1)}, 0);
}

/* Multiplies the input by W, a segment at a time. */
static void project(const Rnn *r, Direction *d, Val bias)
{
    for (int i = 0; i * r->segment < r->steps; i++) {
        int64_t first = i * r->segment, rest = r->steps - first;
        Val x = build_slice(r->g, r->x, 0, first, rest < r->segment ? rest : r->segment);
        d->xw[i] = build_matmul(r->g, x, d->w, false, true);
        d->xw[i] = bias.i ? build2(r->g, OP_add, d->xw[i], bias) : d->xw[i];
    }
}

static bool read_direction(const Rnn *r, Direction *d, bool apart)
{
    OnnxNode *n = r->n;
    Graph *g = r->g;
    for (int i = 0; i < r->gates; i++)
        d->place[i] = i;
    d->w = of_direction(g, n->in[1], d->k);
    d->r = of_direction(g, n->in[2], d->k);
    if (has_in(n, 3))
        read_biases(r, d);
    undo_order(r, d, apart);
    project(r, d, d->b[0].i ? joined_bias(r, d, apart) : (Val){0});
    d->h = state_of(r, 5, d->k);
    d->y = NEW(n->x->a, Val, r->steps + 1);
    return d->w.i && d->r.i && d->h.i && !g->diag->failed;
}

static int64_t segment_steps(const Rnn *r)
{
    int64_t n = r->steps * r->batch / SEGMENT_ROWS;
    n = n < 1 ? 1 : n > SEGMENTS ? SEGMENTS : n;
    return (r->steps + n - 1) / n;
}

static bool read_rnn(OnnxNode *n, int gates, int nact, const char *const *dflt, Rnn *r)
{
    Graph *g = n->g;
    for (int k = 0; k < 3; k++)
        if (!has_in(n, k) || in_type(n, k)->rank != 3)
            return fail(n->x->d, "operand %d must have 3 dimensions", k);
    *r = (Rnn){.n = n,
               .g = g,
               .gates = gates,
               .batch_first = attr_int(n, "layout", 0) != 0,
               .clip = attr_float(n, "clip", 0)};
    r->x = r->batch_first ? build_transpose(g, n->in[0], (int[]){1, 0, 2}) : n->in[0];
    const Type *t = val_type(g, r->x), *w = in_type(n, 1), *rec = in_type(n, 2);
    r->steps = t->dim[0];
    r->batch = t->dim[1];
    r->hidden = rec->dim[2];
    r->segment = segment_steps(r);
    r->dirs = w->dim[0];
    bool both = attr_is(n, "direction", "forward", "bidirectional");
    if (r->dirs != (both ? 2 : 1) || w->dim[1] != gates * r->hidden || rec->dim[0] != r->dirs ||
        rec->dim[1] != w->dim[1] || attr_int(n, "hidden_size", r->hidden) != r->hidden)
        return fail(n->x->d, "W, R, hidden_size and direction do not fit together");
    for (int k = 5; k < 7; k++)
        if (has_in(n, k) &&
            (in_type(n, k)->rank != 3 || type_count(in_type(n, k)) != r->dirs * r->batch * r->hidden))
            return fail(n->x->d, "operand %d is no state of %lld hidden units", k, (long long)r->hidden);
    if (r->steps > MAX_TRIPS)
        return refuse(n, "%lld time steps, at most %d are unrolled", (long long)r->steps, MAX_TRIPS);
    for (int i = 0; i < nact * (int)r->dirs; i++)
        if (!activation_find(activation_name(n, i, dflt)))
            return refuse(n, "activation %s", activation_name(n, i, dflt));
    if (has_in(n, 4))
        r->lengths = build_reshape(g, build_cast(g, n->in[4], DT_I64), 2, (int64_t[]){r->batch, 1});
    return true;
}

/* ---- time --------------------------------------------------------------- */

/* The state's product with the weights of the first `gates` gates. */
static Val recurrent(const Rnn *r, const Direction *d, int gates, Val h)
{
    return build_matmul(r->g, h, gates < r->gates ? rows(r, d->r, 0, gates) : d->r, false, true);
}

static Val part(const Rnn *r, const Direction *d, Val v, int gate)
{
    return build_slice(r->g, v, 1, d->place[gate] * r->hidden, r->hidden);
}

static Val input_part(const Rnn *r, const Direction *d, int gate, int64_t t)
{
    Val v = build_slice(r->g, d->xw[t / r->segment], 0, t % r->segment, 1);
    return part(r, d, build_reshape(r->g, v, 2, (int64_t[]){r->batch, r->gates * r->hidden}), gate);
}

/* x W^T + h R^T of one gate. */
static Val gate(const Rnn *r, const Direction *d, int i, int64_t t)
{
    return build2(r->g, OP_add, input_part(r, d, i, t), part(r, d, d->hr, i));
}

typedef void Step(const Rnn *r, Direction *d, int64_t t, Val *h, Val *c);

static bool run_direction(const Rnn *r, Direction *d, Step *step)
{
    Graph *g = r->g;
    for (int64_t k = 0; k < r->steps; k++) {
        int64_t t = d->backward ? r->steps - 1 - k : k;
        Val h = d->h, c = d->c;
        step(r, d, t, &h, &c);
        d->y[t] = h;
        if (r->lengths.i) {
            Val inside = build2(g, OP_less, build_ints(g, &t, 1), r->lengths);
            d->y[t] = build3(g, OP_where, inside, h, scalar_like(g, h, 0));
            h = build3(g, OP_where, inside, h, d->h);
            c = c.i ? build3(g, OP_where, inside, c, d->c) : c;
        }
        d->h = h;
        d->c = c;
        TRY(h.i);
    }
    return true;
}

/* Final states [dirs, batch, hidden], or [batch, dirs, hidden]. */
static Val final_state(const Rnn *r, const Direction *d, bool cell)
{
    Val v[2];
    for (int k = 0; k < r->dirs; k++)
        v[k] = build_reshape(r->g, cell ? d[k].c : d[k].h, 3, (int64_t[]){1, r->batch, r->hidden});
    Val all = build_concat(r->g, (int)r->dirs, v, 0);
    return r->batch_first ? build_transpose(r->g, all, (int[]){1, 0, 2}) : all;
}

/* Y [steps, dirs, batch, hidden], or [batch, steps, dirs, hidden]. */
static Val all_steps(const Rnn *r, const Direction *d)
{
    Val *y = NEW(r->n->x->a, Val, r->steps * r->dirs + 1);
    const Type step = type_make(val_type(r->g, r->x)->dt, 3, (int64_t[]){1, r->batch, r->hidden});
    for (int64_t t = 0; t < r->steps; t++)
        for (int k = 0; k < r->dirs; k++)
            y[t * r->dirs + k] = build_reshape(r->g, d[k].y[t], step.rank, step.dim);
    Val all = join_steps(r->g, r->steps * r->dirs, y, 0, step);
    all = build_reshape(r->g, all, 4, (int64_t[]){r->steps, r->dirs, r->batch, r->hidden});
    return r->batch_first ? build_transpose(r->g, all, (int[]){2, 0, 1, 3}) : all;
}

static bool unroll(Rnn *r, bool apart, int nact, Step *step)
{
    OnnxNode *n = r->n;
    Direction d[2] = {{0}};
    TRY(expand_more(n->x, (size_t)(r->steps * r->dirs)));
    for (int k = 0; k < r->dirs; k++) {
        d[k].k = k;
        d[k].backward = k == 1 || attr_is(n, "direction", "forward", "reverse");
        for (int i = 0; i < nact; i++)
            d[k].f[i] = k * nact + i;
        TRY(read_direction(r, &d[k], apart));
        if (r->gates == 4) {
            d[k].c = state_of(r, 6, k);
            Val p = has_in(n, 7) ? of_direction(r->g, n->in[7], k) : (Val){0};
            for (int i = 0; i < 3 && p.i; i++)
                d[k].peep[i] = rows(r, p, i, 1);
        }
        TRY(run_direction(r, &d[k], step));
    }
    if (has_out(n, 0))
        n->out[0] = all_steps(r, d);
    if (has_out(n, 1))
        n->out[1] = final_state(r, d, false);
    if (has_out(n, 2))
        n->out[2] = final_state(r, d, true);
    return true;
}

/* ---- cells -------------------------------------------------------------- */

static const char *const rnn_act[] = {"Tanh", "Tanh"};
static const char *const gru_act[] = {"Sigmoid", "Tanh", "Sigmoid", "Tanh"};
static const char *const lstm_act[] = {"Sigmoid", "Tanh", "Tanh", "Sigmoid", "Tanh", "Tanh"};

static void rnn_step(const Rnn *r, Direction *d, int64_t t, Val *h, Val *c)
{
    (void)c;
    d->hr = recurrent(r, d, 1, *h);
    *h = activate(r, d->f[0], rnn_act, gate(r, d, 0, t));
}

/* Gates z, r, h. */
static void gru_step(const Rnn *r, Direction *d, int64_t t, Val *h, Val *c)
{
    (void)c;
    Graph *g = r->g;
    bool linear = attr_int(r->n, "linear_before_reset", 0) != 0;
    d->hr = recurrent(r, d, linear ? 3 : 2, *h);
    Val z = activate(r, d->f[0], gru_act, gate(r, d, 0, t));
    Val reset = activate(r, d->f[0], gru_act, gate(r, d, 1, t)), in;
    if (linear)
        in = part(r, d, d->hr, 2);
    else
        in = build_matmul(g, build2(g, OP_mul, reset, *h), rows(r, d->r, 2, 1), false, true);
    in = d->rb.i ? build2(g, OP_add, in, d->rb) : in;
    in = linear ? build2(g, OP_mul, reset, in) : in;
    Val fresh = activate(r, d->f[1], gru_act, build2(g, OP_add, input_part(r, d, 2, t), in));
    /* (1-z) fresh + z h = fresh + z (h - fresh) */
    *h = build2(g, OP_add, fresh, build2(g, OP_mul, z, build2(g, OP_sub, *h, fresh)));
}

static Val peeped(const Rnn *r, Val x, Val peep, Val c)
{
    return peep.i ? build2(r->g, OP_add, x, build2(r->g, OP_mul, peep, c)) : x;
}

/* Gates i, o, f, c; peepholes i, o, f. */
static void lstm_step(const Rnn *r, Direction *d, int64_t t, Val *h, Val *c)
{
    Graph *g = r->g;
    d->hr = recurrent(r, d, 4, *h);
    Val in = activate(r, d->f[0], lstm_act, peeped(r, gate(r, d, 0, t), d->peep[0], *c));
    Val forget = attr_int(r->n, "input_forget", 0)
                     ? build2(g, OP_sub, scalar_like(g, in, 1), in)
                     : activate(r, d->f[0], lstm_act, peeped(r, gate(r, d, 2, t), d->peep[2], *c));
    Val fresh = activate(r, d->f[1], lstm_act, gate(r, d, 3, t));
    *c = build2(g, OP_add, build2(g, OP_mul, forget, *c), build2(g, OP_mul, in, fresh));
    Val out = activate(r, d->f[0], lstm_act, peeped(r, gate(r, d, 1, t), d->peep[1], *c));
    Rnn unclipped = *r;
    unclipped.clip = 0;
    *h = build2(g, OP_mul, out, activate(&unclipped, d->f[2], lstm_act, *c));
}

static bool import_rnn(OnnxNode *n)
{
    Rnn r;
    return read_rnn(n, 1, 1, rnn_act, &r) && unroll(&r, false, 1, rnn_step);
}

static bool import_gru(OnnxNode *n)
{
    Rnn r;
    return read_rnn(n, 3, 2, gru_act, &r) && unroll(&r, true, 2, gru_step);
}

static bool import_lstm(OnnxNode *n)
{
    Rnn r;
    return read_rnn(n, 4, 3, lstm_act, &r) && unroll(&r, false, 3, lstm_step);
}

const OnnxOp onnx_rnn[] = {
    {"GRU", 3, .import = import_gru, .weights = 0xe},
    {"LSTM", 1, .import = import_lstm, .weights = 0x8e},
    {"RNN", 1, .import = import_rnn, .weights = 0xe},
    {0},
};
