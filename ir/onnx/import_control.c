/* import_control.c -- If, Loop, Scan and SequenceMap: conditions and trip counts known when compiling.
 *
 * A branch is inlined; a loop is unrolled.  Initializers of a body are imported once and
 * shared by its iterations, so that a weight in a loop is one parameter. */
#include "onnx_int.h"
#include <string.h>

static const Onnx__GraphProto *body_of(OnnxNode *n, const char *attr)
{
    const Onnx__AttributeProto *a = attr_find(n, attr);
    if (!a || !a->g)
        diag_set(n->x->d, "attribute '%s' is missing", attr);
    return a ? a->g : NULL;
}

/* Imports the nodes of a body for operands `in`; the results are found by name. */
static bool run_body(OnnxNode *n, const Onnx__GraphProto *body, int nin, const Val *in, Val *out)
{
    Import *x = n->x;
    Scope *outer = x->scope;
    if (nin != (int)body->n_input)
        return fail(x->d, "the body takes %zu operands, %d are given", body->n_input, nin);
    scope_push(x);
    for (int i = 0; i < nin; i++)
        scope_set(x, pb(body->input[i]->name), in[i]);
    TRY(import_nodes(x, body->n_node, body->node));
    for (size_t i = 0; i < body->n_output; i++)
        if (!scope_find(x, pb(body->output[i]->name), &out[i]) || !out[i].i)
            return fail(x->d, "result '%s' is not computed", pb(body->output[i]->name));
    x->scope = outer;
    return true;
}

/* Enters the scope of a body; the driver leaves it again when the node is done. */
static bool enter(OnnxNode *n, const Onnx__GraphProto *body)
{
    if (!body)
        return false;
    if (n->x->depth >= MAX_NESTING)
        return fail(n->x->d, "graphs are nested deeper than %d", MAX_NESTING);
    n->x->depth++;
    scope_push(n->x);
    return import_initializers(n->x, body);
}

/* Has no refused node, which has been listed, made one of the values unusable? */
static bool usable(int n, const Val *v)
{
    for (int i = 0; i < n; i++)
        if (val_is_poison(v[i]))
            return false;
    return true;
}

static bool import_if(OnnxNode *n)
{
    int64_t condition;
    TRY(static_int(n, 0, &condition));
    const Onnx__GraphProto *body = body_of(n, condition ? "then_branch" : "else_branch");
    TRY(enter(n, body));
    Val *out = NEW(n->x->a, Val, body->n_output + 1);
    TRY(run_body(n, body, 0, NULL, out));
    for (int i = 0; i < n->nout && i < (int)body->n_output; i++)
        n->out[i] = out[i];
    return usable(n->nout, n->out);
}

/* ---- Loop --------------------------------------------------------------- */

/* Stacks iterations on a new first dimension; without any the result is an empty tensor of
 * the declared type. */
static bool stack(OnnxNode *n, const Onnx__ValueInfoProto *declared, int64_t trips, Val *part, Val *out)
{
    if (trips > 0) {
        const Val first = part[0];
        for (int64_t t = 0; t < trips; t++) {
            part[t] = insert_axis(n->g, part[t], 0);
            if (!part[t].i)
                return refuse(n, "results that cannot be stacked");
        }
        *out = with_data_type(n, build_concat_many(n->g, (int)trips, part, 0), first);
        return out->i;
    }
    Type each, all;
    if (!declared_type(declared, &each) || each.rank == MAX_RANK)
        return refuse(n, "the loop body never runs and its result has no declared shape");
    all = (Type){.dt = each.dt, .rank = each.rank + 1};
    memcpy(all.dim + 1, each.dim, (size_t)each.rank * sizeof *each.dim);
    *out = graph_const(n->g, "empty", all, NULL);
    return true;
}

static bool known(OnnxNode *n, Val v, bool *value)
{
    OnnxNode probe = *n;
    int64_t number;
    probe.in = &v;
    probe.nin = 1;
    TRY(static_int(&probe, 0, &number));
    *value = number != 0;
    return true;
}

static bool import_loop(OnnxNode *n)
{
    Graph *g = n->g;
    const Onnx__GraphProto *body = body_of(n, "body");
    int64_t trips = INT64_MAX, t = 0;
    bool go = true;
    if (has_in(n, 0))
        TRY(static_int(n, 0, &trips));
    if (has_in(n, 1))
        TRY(known(n, n->in[1], &go));
    TRY(enter(n, body));
    int states = n->nin > 2 ? n->nin - 2 : 0, nout = (int)body->n_output;
    if (nout < 1 + states)
        return fail(n->x->d, "the body has too few results");
    int scans = nout - 1 - states;
    Val *in = NEW(n->x->a, Val, states + 2), *out = NEW(n->x->a, Val, nout);
    int64_t most = trips < 0 ? 0 : trips < MAX_TRIPS ? trips : MAX_TRIPS;
    Val *part = NEW(n->x->a, Val, (size_t)(scans + 1) * (size_t)(most + 1));
    in[1] = build_cast(g, build_scalar(g, DT_I64, 1), DT_BOOL);
    for (int i = 0; i < states; i++)
        in[2 + i] = n->in[2 + i];
    for (; t < trips && go; t++) {
        if (t == MAX_TRIPS)
            return refuse(n, "more than %d iterations", MAX_TRIPS);
        in[0] = graph_const(g, "trip", type_scalar(DT_I64), &t);
        TRY(run_body(n, body, 2 + states, in, out));
        TRY(usable(nout, out));
        TRY(known(n, out[0], &go));
        memcpy(in + 1, out, (size_t)(1 + states) * sizeof *in);
        for (int k = 0; k < scans; k++)
            part[k * most + t] = out[1 + states + k];
    }
    for (int i = 0; i < n->nout && i < states; i++)
        n->out[i] = in[2 + i];
    for (int k = 0; k < scans && states + k < n->nout; k++)
        TRY(stack(n, body->output[1 + states + k], t, part + k * most, &n->out[states + k]));
    return true;
}

/* ---- Scan --------------------------------------------------------------- */

typedef struct {
    const Onnx__GraphProto *body;
    int states, scans, results; /* operands carried, operands scanned, results stacked */
    Ints in_axis, in_back, out_axis, out_back;
} Scan;

static bool read_scan(OnnxNode *n, int nin, Scan *s)
{
    int64_t scans;
    TRY(attr_needed(n, "num_scan_inputs") && attr_int_in(n, "num_scan_inputs", 0, 1, MAX_INTS, &scans));
    s->scans = (int)scans;
    s->states = nin - s->scans;
    s->results = (int)s->body->n_output - s->states;
    if (s->states < 0 || s->results < 0 || s->results > MAX_INTS)
        return fail(n->x->d, "num_scan_inputs does not fit the operands");
    const char *backwards = n->opset < 9 ? "directions" : "scan_input_directions";
    TRY(attr_ints_in(n, "scan_input_axes", s->scans, 0, -MAX_RANK, MAX_RANK - 1, &s->in_axis));
    TRY(attr_ints_in(n, backwards, s->scans, 0, 0, 1, &s->in_back));
    TRY(attr_ints_in(n, "scan_output_axes", s->results, 0, -MAX_RANK, MAX_RANK - 1, &s->out_axis));
    return attr_ints_in(n, "scan_output_directions", s->results, 0, 0, 1, &s->out_back);
}

/* Element t of v along the axis, without that dimension. */
static Val element(OnnxNode *n, Val v, int axis, int64_t t)
{
    return with_data_type(n, drop_axis(n->g, build_slice(n->g, v, axis, t, 1), axis), v);
}

static bool first_to(OnnxNode *n, Val *v, int64_t axis)
{
    TRY(axis_in(n, axis, val_type(n->g, *v)->rank, &axis));
    *v = with_data_type(n, move_axis(n->g, *v, 0, (int)axis), *v);
    return v->i;
}

static bool scan_once(OnnxNode *n, const Scan *s, const Val *operand, Val *result)
{
    Graph *g = n->g;
    int nout = (int)s->body->n_output;
    Val *in = NEW(n->x->a, Val, s->states + s->scans + 1), *out = NEW(n->x->a, Val, nout + 1);
    memcpy(in, operand, (size_t)s->states * sizeof *in);
    const Val *x = operand + s->states;
    int64_t axis[MAX_INTS], trips = 0;
    for (int k = 0; k < s->scans; k++) {
        const Type *t = val_type(g, x[k]);
        TRY(axis_in(n, s->in_axis.v[k], t->rank, &axis[k]));
        if (k > 0 && t->dim[axis[k]] != trips)
            return fail(n->x->d, "scanned operands have different lengths");
        trips = t->dim[axis[k]];
    }
    if (trips > MAX_TRIPS)
        return refuse(n, "more than %d iterations", MAX_TRIPS);
    Val *part = NEW(n->x->a, Val, (size_t)(s->results + 1) * (size_t)(trips + 1));
    for (int64_t t = 0; t < trips; t++) {
        for (int k = 0; k < s->scans; k++)
            in[s->states + k] = element(n, x[k], (int)axis[k], s->in_back.v[k] ? trips - 1 - t : t);
        TRY(run_body(n, s->body, s->states + s->scans, in, out));
        TRY(usable(nout, out));
        memcpy(in, out, (size_t)s->states * sizeof *in);
        for (int k = 0; k < s->results; k++)
            part[k * trips + (s->out_back.v[k] ? trips - 1 - t : t)] = out[s->states + k];
    }
    memcpy(result, in, (size_t)s->states * sizeof *in);
    for (int k = 0; k < s->results; k++) {
        Val *y = &result[s->states + k];
        TRY(stack(n, s->body->output[s->states + k], trips, part + k * trips, y));
        TRY(first_to(n, y, s->out_axis.v[k]));
    }
    return true;
}

/* Opset 8 scanned every sample of a batch on its own. */
static bool scan_batch(OnnxNode *n, const Scan *s, const Val *operand, Val *result)
{
    Graph *g = n->g;
    int nin = s->states + s->scans, nout = s->states + s->results;
    int64_t batch = val_type(g, operand[0])->dim[0];
    Val *in = NEW(n->x->a, Val, nin), *out = NEW(n->x->a, Val, nout);
    Val *part = NEW(n->x->a, Val, (size_t)nout * (size_t)batch + 1);
    for (int64_t b = 0; b < batch; b++) {
        for (int i = 0; i < nin; i++)
            in[i] = element(n, operand[i], 0, b);
        TRY(scan_once(n, s, in, out));
        for (int i = 0; i < nout; i++)
            part[i * batch + b] = out[i];
    }
    for (int i = 0; i < nout; i++)
        TRY(stack(n, s->body->output[i], batch, part + i * batch, &result[i]));
    return true;
}

static bool import_scan(OnnxNode *n)
{
    Scan s = {.body = body_of(n, "body")};
    bool batched = n->opset < 9;
    if (batched && has_in(n, 0))
        return refuse(n, "sequence lengths");
    int first = batched ? 1 : 0;
    TRY(enter(n, s.body));
    TRY(read_scan(n, n->nin - first, &s));
    Val *result = NEW(n->x->a, Val, s.states + s.results + 1);
    TRY(batched ? scan_batch(n, &s, n->in + first, result) : scan_once(n, &s, n->in, result));
    for (int i = 0; i < n->nout && i < s.states + s.results; i++)
        n->out[i] = result[i];
    return true;
}

/* ---- SequenceMap -------------------------------------------------------- */

/* Operands that are tensors are the same for all elements. */
static bool import_sequence_map(OnnxNode *n)
{
    Import *x = n->x;
    const Onnx__GraphProto *body = body_of(n, "body");
    TRY(enter(n, body));
    Sequence *s = NEW(x->a, Sequence, n->nin + 1);
    for (int i = 0; i < n->nin; i++)
        if (val_is_sequence(n->in[i]))
            s[i] = x->sequence[n->in[i].i - FIRST_SEQUENCE];
    int count = s[0].n, nout = (int)body->n_output;
    for (int i = 0; i < n->nin; i++)
        if (i == 0 ? !s[i].v : s[i].v && s[i].n != count)
            return fail(x->d, i ? "sequences have different lengths" : "operand 0 is not a sequence");
    Val *in = NEW(x->a, Val, n->nin + 1), *out = NEW(x->a, Val, nout + 1);
    Val *part = NEW(x->a, Val, (size_t)nout * (size_t)count + 1);
    for (int t = 0; t < count; t++) {
        for (int i = 0; i < n->nin; i++)
            in[i] = s[i].v ? s[i].v[t] : n->in[i];
        TRY(run_body(n, body, n->nin, in, out) && usable(nout, out));
        for (int k = 0; k < nout; k++)
            part[k * count + t] = out[k];
    }
    for (int k = 0; k < n->nout && k < nout; k++)
        n->out[k] = new_sequence(x, count, part + (size_t)k * (size_t)count);
    return true;
}

const OnnxOp onnx_control[] = {
    {"If", 1, .import = import_if, .sequences = true, .typed = ~0u},
    {"Loop", 1, .import = import_loop, .sequences = true, .typed = ~0u},
    {"Scan", 8, .import = import_scan, .typed = ~0u},
    {"SequenceMap", 17, .import = import_sequence_map, .sequences = true, .typed = ~0u},
    {0},
};
