/* import.c -- the driver: hands each node to its importer (or inlines its function body).
 *
 * Nodes that cannot be imported are collected; their outputs are poison, and nodes that
 * read poison are skipped, so one run lists everything that is unsupported. */
#include "onnx_int.h"
#include <stdarg.h>
#include <string.h>

/* Operators with fixed operands have no more; importers may read as many, absent or not. */
enum { MAX_LISTED = 100, MOST_OPERANDS = 16 };

typedef struct Refusal {
    struct Refusal *next;
    const char *text;
} Refusal;

/* ---- nodes -------------------------------------------------------------- */

static const OnnxOp *const families[] = {
    onnx_pointwise, onnx_shape, onnx_reduce, onnx_linear,   onnx_conv,      onnx_norm,
    onnx_index,     onnx_loss,  onnx_random, onnx_constant, onnx_attention, onnx_rnn,
    onnx_control,   onnx_image, onnx_quant,  onnx_vendor,   onnx_resize,    onnx_sequence,
    onnx_training,  onnx_state, onnx_signal, onnx_static,   onnx_packed,
};

const OnnxOp *onnx_op_find(const char *domain, const char *name)
{
    for (size_t f = 0; f < sizeof families / sizeof families[0]; f++)
        for (const OnnxOp *op = families[f]; op->name; op++)
            if (strcmp(op->name, name) == 0 && strcmp(pb(op->domain), domain) == 0)
                return op;
    return NULL;
}

const char *canonical_domain(const char *domain) { return strcmp(domain, "ai.onnx") == 0 ? "" : domain; }

static int opset_in(size_t n, Onnx__OperatorSetIdProto *const *set, const char *domain)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(canonical_domain(pb(set[i]->domain)), domain) == 0)
            return (int)set[i]->version;
    return 0;
}

int opset_of(const OnnxModel *m, const Onnx__FunctionProto *f, const char *domain)
{
    int v = f ? opset_in(f->n_opset_import, f->opset_import, domain) : 0;
    if (!v)
        v = opset_in(m->proto->n_opset_import, m->proto->opset_import, domain);
    return v ? v : 1;
}

bool refuse(OnnxNode *n, const char *fmt, ...)
{
    char why[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    n->x->nrefused += !n->x->optional;
    if (n->x->nrefused > MAX_LISTED)
        return false;
    const char *text = arena_printf(n->x->a, "node '%s' (%s%s%s, opset %d): %s", n->name, n->domain,
                                    *n->domain ? "." : "", n->op, n->opset, why);
    if (n->x->optional) {
        n->x->left_out = n->x->left_out ? n->x->left_out : text;
        return false;
    }
    Refusal *r = NEW(n->x->a, Refusal, 1);
    r->text = text;
    Refusal **end = &n->x->refusals;
    while (*end)
        end = &(*end)->next;
    *end = r;
    return false;
}

static bool resolve_inputs(OnnxNode *n, bool *poisoned)
{
    for (int i = 0; i < n->nin; i++) {
        const char *name = pb(n->proto->input[i]);
        if (*name && !scope_find(n->x, name, &n->in[i]))
            return fail(n->x->d, "input '%s' is not computed before it is used", name);
        *poisoned |= val_is_poison(n->in[i]);
    }
    return true;
}

static bool import_call(OnnxNode *n, const Onnx__FunctionProto *f);

/* Why an operator that nothing here knows is refused, and what to do. */
static const char *unknown(const OnnxNode *n)
{
    if (strcmp(n->domain, "com.microsoft.nchwc") == 0)
        return "ONNX Runtime's optimizer has laid it out for one machine (level all): use its level "
               "extended, or the model as it was";
    if (strcmp(n->domain, "com.microsoft") == 0 &&
        (*n->op == 'Q' || strstr(n->op, "Quantize") || strstr(n->op, "Integer")))
        return "a product or the like of 8-bit integers: use the model as it was before it was quantized";
    return "no importer; rewrite it with standard operators or define it as a function in the model";
}

static bool import_one(OnnxNode *n, bool poisoned)
{
    if (!n->nout)
        return refuse(n, "it has no results");
    const OnnxOp *op = onnx_op_find(n->domain, n->op);
    const Onnx__FunctionProto *f = op ? NULL : model_function(n->x->m, n->proto, n->x->a);
    if (!op && !f)
        return refuse(n, "%s", unknown(n));
    if (op && n->opset < op->since)
        return refuse(n, "read from opset %d on; convert the model to a newer opset", op->since);
    for (int i = 0; i < n->nin && op; i++)
        if (masked_in(n, i))
            return import_masked(n, poisoned);
    if (poisoned && !n->x->nrefused)
        return refuse(n, "an operand is a result that its operator's importer does not compute");
    if (poisoned)
        return false;
    for (int i = 0; i < n->nin && op && !op->sequences; i++)
        if (val_is_sequence(n->in[i]))
            return refuse(n, "operand %d is a sequence", i);
    bool in_main = n->x->depth == 1;
    int operand = n->x->opt->inference && in_main ? dropped_operand(n->x->m, n->proto) : -1;
    if (operand >= 0) {
        n->out[0] = n->in[operand];
        return true;
    }
    n->row = op;
    return f ? import_call(n, f) : op->import(n);
}

/* Elements of a narrow type that are held in a wider one stay so when moved: results have the element type of
 * the first operand in the same native type, unless they have their own. */
static void pass_on_data_type(OnnxNode *n)
{
    for (int i = 0; i < n->nout && n->row; i++) {
        Val y = n->out[i];
        if (n->row->typed >> i & 1 || !y.i || y.i >= n->g->nvals)
            continue;
        int k = 0;
        while (k < n->nin && (!has_in(n, k) || val_is_sequence(n->in[k]) ||
                              in_type(n, k)->dt != val_type(n->g, y)->dt))
            k++;
        if (k < n->nin && (y.i >= n->x->ntypes || !n->x->data_type[y.i]))
            set_data_type(n->x, y, data_type_of(n, k));
    }
}

/* Gives the nodes that an importer built the ONNX node's name, with the module's path in front of a name
 * without one, and its results the file's value names. */
static void name_results(OnnxNode *n, const char *module, uint32_t first_node, uint32_t first_value)
{
    const char *name = n->name;
    if (module && *name != '/' && n->g->nnodes > first_node)
        name = arena_printf(n->x->a, "%s/%s", module, name);
    for (uint32_t i = first_node; i < n->g->nnodes; i++)
        if (!n->g->nodes[i].name)
            n->g->nodes[i].name = name;
    for (int i = 0; i < n->nout; i++)
        if (has_out(n, i) && n->out[i].i >= first_value && n->out[i].i < n->g->nvals)
            graph_rename(n->g, n->out[i], n->proto->output[i]);
}

/* A node without a name goes by its first result's. */
static const char *node_name(const Onnx__NodeProto *p)
{
    return *pb(p->name) ? p->name : p->n_output ? pb(p->output[0]) : "";
}

/* record: what the exporter wrote down of the node; NULL: nothing. */
static bool import_node(Import *x, const Onnx__NodeProto *p, const Record *record)
{
    OnnxNode n = {.x = x,
                  .g = x->g,
                  .proto = p,
                  .name = node_name(p),
                  .record = record,
                  .frame = x->frame,
                  .op = pb(p->op_type),
                  .domain = canonical_domain(pb(p->domain)),
                  .nin = (int)p->n_input,
                  .nout = (int)p->n_output,
                  .in = NEW(x->a, Val, p->n_input + MOST_OPERANDS),
                  .out = NEW(x->a, Val, p->n_output + MOST_OPERANDS)};
    n.opset = opset_of(x->m, x->frame ? x->frame->function : NULL, n.domain);
    while (n.nin && !*pb(p->input[n.nin - 1]))
        n.nin--; /* trailing absent operands */
    uint32_t nodes = x->g->nnodes, values = x->g->nvals;
    Scope *scope = x->scope;
    const Frame *frame = x->frame;
    int depth = x->depth;
    bool poisoned = false, ok = resolve_inputs(&n, &poisoned) && import_one(&n, poisoned);
    x->scope = scope; /* bodies and functions leave these as they were at a refusal */
    x->frame = frame;
    x->depth = depth;
    if (!ok && !x->nrefused && !x->optional)
        diag_set(x->d, "an operand is missing");
    if (x->d->failed && !(x->optional && leave_out(x))) {
        if (!x->located) {
            char msg[sizeof x->d->msg];
            memcpy(msg, x->d->msg, sizeof msg);
            snprintf(x->d->msg, sizeof x->d->msg, "node '%.300s' (%.100s): %.3000s", n.name, n.op, msg);
        }
        x->located = true;
        return false;
    }
    if (ok) {
        pass_on_data_type(&n);
        move_reals(x, nodes);
        name_results(&n, record ? record->scope : NULL, nodes, values);
    }
    for (int i = 0; i < n.nout; i++)
        if (has_out(&n, i))
            scope_set(x, p->output[i], ok && n.out[i].i ? n.out[i] : (Val){UINT32_MAX});
    return true;
}

/* Nodes should come in topological order, but some tools leave them in another: what a node
 * reads is imported first.  Depth first with an explicit stack; a sorted list keeps its
 * order. */
typedef struct {
    Import *x;
    Onnx__NodeProto *const *node;
    NameMap producer; /* value name to node number */
    uint8_t *state;
    uint32_t *stack, top;
    size_t *seen; /* per node: number of first operands that are imported */
} Sorter;
enum { NOT_SEEN, ON_STACK, DONE };

/* An optimizer that folded gpt2_past of ONNX's model zoo put new constants at the end, under the names
 * of old ones: the last one counts. */
static bool is_constant(const Onnx__NodeProto *n) { return strcmp(pb(n->op_type), "Constant") == 0; }

/* Is the name of node i's result that of another value, too? */
static bool is_taken(Sorter *s, const char *name, uint32_t i)
{
    const uint32_t *other = name_get(&s->producer, name);
    if (!*name)
        return false;
    if (name_get(&s->x->scope->names, name) ||
        (other && !(is_constant(s->node[*other]) && is_constant(s->node[i]))))
        return true;
    name_put(&s->producer, name, i);
    return false;
}

static bool index_producers(Sorter *s, size_t count)
{
    s->producer = name_map(s->x->a);
    for (uint32_t i = 0; i < count; i++)
        for (size_t k = 0; k < s->node[i]->n_output; k++) {
            const char *name = pb(s->node[i]->output[k]);
            if (is_taken(s, name, i))
                return fail(s->x->d,
                            "two values are named '%s': rename one (PyTorch's exporter calls results by "
                            "their operators, so give a parameter called so another name) and export again",
                            name);
        }
    return true;
}

/* A node that must come before node i, or i itself. */
static uint32_t first_needed(Sorter *s, uint32_t i)
{
    const Onnx__NodeProto *p = s->node[i];
    for (; s->seen[i] < p->n_input; s->seen[i]++) {
        const uint32_t *needed = name_get(&s->producer, pb(p->input[s->seen[i]]));
        if (needed && s->state[*needed] != DONE)
            return *needed;
    }
    return i;
}

static bool import_with_needs(Sorter *s, uint32_t i)
{
    s->top = 0;
    s->stack[s->top++] = i;
    while (s->top) {
        i = s->stack[s->top - 1];
        s->state[i] = ON_STACK;
        uint32_t need = first_needed(s, i);
        if (need != i && s->state[need] == ON_STACK)
            return fail(s->x->d, "node '%s' depends on its own result", node_name(s->node[i]));
        if (need != i) {
            s->stack[s->top++] = need;
            continue;
        }
        const OnnxModel *m = s->x->m;
        s->x->optional = s->x->depth == 1 ? !node_is_needed(s->x, s->node[i]) : s->x->optional;
        bool recorded = s->node == m->proto->graph->node && m->record;
        TRY(import_node(s->x, s->node[i], recorded ? &m->record[i] : NULL));
        s->state[i] = DONE;
        s->top--;
    }
    return true;
}

bool expand_more(Import *x, size_t nodes)
{
    if (nodes >= MAX_EXPANDED - x->expanded)
        return fail(x->d, "functions and loops expand to more than %d nodes", MAX_EXPANDED);
    x->expanded += (uint32_t)nodes + 1;
    return true;
}

bool import_nodes(Import *x, size_t count, Onnx__NodeProto *const *node)
{
    Sorter s = {.x = x,
                .node = node,
                .state = NEW(x->a, uint8_t, count + 1),
                .stack = NEW(x->a, uint32_t, count + 1),
                .seen = NEW(x->a, size_t, count + 1)};
    TRY(x->depth == 1 || expand_more(x, count));
    TRY(index_producers(&s, count));
    for (uint32_t i = 0; i < count; i++)
        TRY(s.state[i] == DONE || import_with_needs(&s, i));
    return true;
}

/* ---- functions ---------------------------------------------------------- */

/* Defaults of function attributes: field 11 of FunctionProto. */
static void declared_defaults(Import *x, const Onnx__FunctionProto *f, Frame *frame)
{
    frame->dflt = NEW(x->a, Onnx__AttributeProto *, f->base.n_unknown_fields + 1);
    for (unsigned i = 0; i < f->base.n_unknown_fields; i++) {
        size_t len;
        const uint8_t *body = newer_field(&f->base, i, 11, &len);
        Onnx__AttributeProto *a =
            body ? onnx__attribute_proto__unpack(model_allocator(x->m), len, body) : NULL;
        if (a)
            frame->dflt[frame->ndflt++] = a;
    }
}

static bool import_call(OnnxNode *n, const Onnx__FunctionProto *f)
{
    Import *x = n->x;
    if (x->depth >= MAX_NESTING)
        return fail(x->d, "functions call each other deeper than %d", MAX_NESTING);
    Frame frame = {.call = n, .function = f};
    declared_defaults(x, f, &frame);
    x->scope = NULL; /* a function sees its parameters only */
    scope_push(x);
    for (size_t i = 0; i < f->n_input; i++)
        scope_set(x, pb(f->input[i]), i < (size_t)n->nin ? n->in[i] : (Val){0});
    x->frame = &frame;
    x->depth++;
    TRY(import_nodes(x, f->n_node, f->node));
    for (int i = 0; i < n->nout && i < (int)f->n_output; i++)
        if (!scope_find(x, pb(f->output[i]), &n->out[i]))
            return fail(x->d, "function result '%s' is not computed", pb(f->output[i]));
    for (int i = 0; i < n->nout; i++)
        if (val_is_poison(n->out[i]))
            return false; /* listed already */
    return true;
}

/* ---- the whole model ---------------------------------------------------- */

static bool report_refusals(Import *x)
{
    if (!x->nrefused)
        return true;
    char text[3600];
    size_t n = 0;
    uint32_t shown = 0;
    for (const Refusal *r = x->refusals; r && n + strlen(r->text) + 60 < sizeof text; r = r->next, shown++)
        n += (size_t)snprintf(text + n, sizeof text - n, "\n  %s", r->text);
    if (shown < x->nrefused)
        snprintf(text + n, sizeof text - n, "\n  and %u more", x->nrefused - shown);
    return fail_status(x->d, EXIT_UNSUPPORTED, "%u unsupported node%s:%s", x->nrefused,
                       x->nrefused == 1 ? "" : "s", text);
}

/* Adds the outputs under their names in the file; one that is also an input, a weight or another output is a
 * copy.  PyTorch's exporters name what a program returns twice (y, y) twice: it is one output. */
static bool import_outputs(Import *x, const Onnx__GraphProto *gp)
{
    Graph *g = x->g;
    x->m->output = NEW(x->a, uint32_t, gp->n_output + 1);
    for (size_t i = 0; i < gp->n_output; i++) {
        const char *name = pb(gp->output[i]->name);
        Val v;
        if (!scope_find(x, name, &v) || !v.i)
            return fail(x->d, "output '%s' is not computed", name);
        OnnxNode reader = {.x = x, .in = &v, .nin = 1};
        if (!is_needed(x, name) && (masked_in(&reader, 0) || val_is_poison(v))) {
            note(x, ONNX_REMARK, name, "this output is left out: %s",
                 x->left_out ? x->left_out : "its size depends on data");
            continue;
        }
        if (masked_in(&reader, 0)) {
            refuse_masked(masked_in(&reader, 0));
            continue;
        }
        if (val_is_sequence(v))
            return fail_status(x->d, EXIT_UNSUPPORTED, "output '%s' is a sequence", name);
        const Onnx__NodeProto *p = val_is_poison(v) && !x->nrefused ? model_producer(x->m, name) : NULL;
        if (p)
            return fail_status(x->d, EXIT_UNSUPPORTED,
                               "output '%s' is a result of node '%s' (%s) that its importer does not compute",
                               name, node_name(p), pb(p->op_type));
        if (val_is_poison(v))
            continue;
        bool named = strcmp(g->vals[v.i].name, name) == 0, out = graph_is_out(g, v);
        if (named && out)
            continue;
        if (!named && (out || g->vals[v.i].kind != VAL_TEMP))
            v = build1(g, OP_copy, v);
        graph_rename(g, v, name);
        x->m->output[g->nout] = (uint32_t)i;
        graph_add_out(g, v);
    }
    return true;
}

static bool import_model(Import *x)
{
    const Onnx__GraphProto *gp = x->m->proto->graph;
    scope_push(x);
    merged_prepare(x);
    needed_find(x);
    x->roles = roles_find(x);
    TRY(import_initializers(x, gp));
    TRY(import_inputs(x, gp));
    x->depth = 1;
    TRY(restore_ties(x));
    TRY(merged_report(x));
    read_records(x->m);
    TRY(import_nodes(x, gp->n_node, gp->node));
    x->optional = false;
    TRY(import_outputs(x, gp));
    TRY(report_refusals(x));
    roles_finish(x);
    report_ties(x);
    report_folded_norms(x);
    report_detached(x);
    report_adapters(x);
    return true;
}

bool onnx_import(OnnxModel *m, const OnnxOptions *opt, Graph *g, Diag *d)
{
    Import x = {.m = m, .opt = opt, .g = g, .d = d, .a = &m->arena, .feeds = name_map(&m->arena)};
    for (int i = 0; i < opt->nfeed; i++)
        name_add(&x.feeds, opt->feed[i].name, (uint32_t)i);
    Diag *outer = g->diag;
    g->diag = d; /* builders report to the caller's diagnostic */
    m->nnotes = 0;
    g->importing = true;
    bool ok = import_model(&x);
    g->importing = false;
    g->diag = outer;
    if (!ok)
        diag_prefix(d, m->path);
    return ok;
}
