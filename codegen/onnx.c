/* onnx.c -- the step of a plan as an ONNX model of standard operators (--emit onnx).
 *
 * Inputs are the data, lr, the step's number, and all values that live across steps: parameters, optimizer
 * state, running statistics, each with its initial value as the default.  Outputs are those of the graph, the
 * loss first, and, as NAME.next, the updated value of each of those inputs: a caller feeds them back.  Nodes
 * are in the order of the schedule; a recomputation is a node of its own, a move to the host is an Identity.
 */
#include "ir/onnx/nodes.h"
#include "ir/uses.h"
#include "codegen.h"
#include <inttypes.h>
#include <string.h>

enum { INLINE_BYTES = 1024, DATA_ALIGN = 64 }; /* values of more than INLINE_BYTES lie in the data file */

static const char doc[] =
    "A training step as ckc planned it. Names of nodes begin with fwd/, bwd/ or opt/, and with re/ where a "
    "value is computed again. Feed every output NAME.next back as the input NAME. Recomputed nodes equal "
    "earlier "
    "ones on purpose: run it without common-subexpression elimination (onnxruntime: "
    "SessionOptions.graph_optimization_level = ORT_DISABLE_ALL), else they are merged and more is kept.";

typedef struct {
    const Plan *p;
    const Graph *g;
    Arena *a;
    OnnxNodes *o;
    const OnnxStep *how;
    Diag *d;
    const char **name; /* per source value: the name of its input in the model */
    PlanUses uses;
    Buf graph;
} Writer;

/* ---- nodes -------------------------------------------------------------------------------------------- */

static int64_t result_bytes(const Writer *w, const Node *n)
{
    int64_t bytes = 0;
    for (int i = 0; i < n->nout; i++)
        bytes += w->p->offset[n->out[i].i] >= 0 ? type_bytes(val_type(w->g, n->out[i])) : 0;
    return bytes;
}

static const char *why(const Writer *w, uint32_t k)
{
    const Node *n = &w->g->nodes[w->g->order[k].i];
    const PlanUses *u = &w->uses;
    uint32_t last = u->last[n->out[0].i];
    if (u->before[k] != NEVER)
        return arena_printf(w->a, "computed again: not kept since step %u", u->before[k]);
    if (n->op == OP_offload || n->op == OP_fetch)
        return "moved to the host's memory, or back";
    if (u->again[k] != NEVER)
        return arena_printf(w->a, "not kept: computed again in step %u", u->again[k]);
    return last != NEVER ? arena_printf(w->a, "kept until step %u", last) : "a result of the step";
}

/* The metadata of the k-th node: keys and values in turn, then NULL. */
static const char *const *metadata(const Writer *w, uint32_t k)
{
    const Node *n = &w->g->nodes[w->g->order[k].i];
    const Step *s = &w->p->step[w->uses.step[k]];
    double seconds = w->p->nstep && s->first == k ? (double)s->cost_ns * 1e-9 : 0;
    const char **m = NEW(w->a, const char *, 9);
    m[0] = "step", m[1] = arena_printf(w->a, "%u", w->uses.step[k]);
    m[2] = "bytes", m[3] = arena_printf(w->a, "%" PRId64, result_bytes(w, n));
    m[4] = "seconds", m[5] = arena_printf(w->a, "%.9f", seconds); /* the step's, at its first node */
    m[6] = "why", m[7] = why(w, k);
    return m;
}

static bool write_nodes(Writer *w)
{
    static const char *const prefix[] = {"", "fwd", "bwd", "opt"};
    const Graph *g = w->g;
    for (uint32_t k = 0; k < g->norder; k++) {
        const Node *n = &g->nodes[g->order[k].i];
        bool again = w->uses.before[k] != NEVER;
        const char *own = n->name && *n->name ? n->name : g->vals[n->out[0].i].name;
        const char *name = arena_printf(w->a, "%s/%s", again ? "re" : prefix[w->uses.phase[g->order[k].i]],
                                        own + strspn(own, "/"));
        TRY(onnx_translate(w->o, n, name, metadata(w, k)));
    }
    return true;
}

/* ---- inputs and outputs ------------------------------------------------------------------------------- */

static const char *wanted_name(const Graph *g, Val v)
{
    const ModelName *m = g->vals[v.i].in_model;
    return m && !m->transposed ? m->name : g->vals[v.i].name;
}

static bool write_value(Writer *w, Val v)
{
    Tensor t = {*val_type(w->g, v), NULL};
    size_t bytes = (size_t)type_bytes(&t.type);
    NewFile *data = w->how->data;
    Buf b = {0};
    Arena large = {0};
    t.data = arena_alloc(bytes <= INLINE_BYTES ? w->a : &large, bytes + 1, 1);
    bool ok = w->how->value(w->how->user, v, &t, w->d);
    for (int i = 0; i < t.type.rank; i++)
        put_number(w->a, &b, TENSOR_DIMS, (uint64_t)t.type.dim[i]);
    put_number(w->a, &b, TENSOR_TYPE, (uint64_t)onnx_data_type(t.type.dt));
    put_string(w->a, &b, TENSOR_NAME, w->name[v.i]);
    if (bytes <= INLINE_BYTES) {
        put_header(w->a, &b, TENSOR_RAW, bytes);
        put_bytes(w->a, &b, t.data, bytes);
    } else {
        file_pad(data, DATA_ALIGN);
        put_external(w->a, &b, w->how->data_name, data->size, bytes);
        file_write(data, t.data, bytes);
    }
    arena_free(&large);
    put_message(w->a, &w->graph, GRAPH_INITIALIZER, &b);
    return ok;
}

/* Writes the values that no node makes.  Frozen weights and constants are initializers but not inputs. */
static bool write_sources(Writer *w)
{
    const Graph *g = w->g;
    const bool *source = graph_sources(g, w->a);
    const bool *changes = graph_updated(g, w->a);
    const uint32_t *uses = graph_uses(g, w->a);
    w->name = NEW(w->a, const char *, g->nvals + 1);
    for (uint32_t i = 1; i < g->nvals; i++) {
        const Value *v = &g->vals[i];
        if (!source[i] || !(uses[i] || changes[i] || v->kind == VAL_INPUT))
            continue;
        w->name[i] = onnx_source(w->o, (Val){i}, wanted_name(g, (Val){i}));
        if (v->kind == VAL_INPUT || changes[i])
            put_value_info(w->a, &w->graph, GRAPH_INPUT, w->name[i], onnx_data_type(v->type.dt), &v->type);
        TRY(v->kind == VAL_INPUT || !w->how->value || write_value(w, (Val){i}));
    }
    return true;
}

static void write_output(Writer *w, Val v, const char *want)
{
    const Type *t = val_type(w->g, v);
    const char *name = onnx_result(w->o, v, want);
    put_value_info(w->a, &w->graph, GRAPH_OUTPUT, name, onnx_data_type(t->dt), t);
}

static void write_outputs(Writer *w)
{
    const Graph *g = w->g;
    for (uint32_t i = 0; i < g->nout; i++)
        write_output(w, g->out[i], w->how->output[i]);
    for (uint32_t i = 0; i < g->nupdate; i++)
        write_output(w, g->update[i].value, arena_printf(w->a, "%s.next", w->name[g->update[i].state.i]));
}

/* ---- the model ---------------------------------------------------------------------------------------- */

static void write_model(Writer *w, FILE *f)
{
    Buf m = {0}, set = {0};
    put_number(w->a, &m, MODEL_IR_VERSION, ONNX_IR);
    put_string(w->a, &m, MODEL_PRODUCER, "ckc");
    put_string(w->a, &m, MODEL_VERSION, CKC_VERSION);
    put_string(w->a, &m, MODEL_DOC, doc);
    put_string(w->a, &set, OPSET_DOMAIN, "");
    put_number(w->a, &set, OPSET_VERSION, ONNX_OPSET);
    put_message(w->a, &m, MODEL_OPSET, &set);
    put_header(w->a, &m, MODEL_GRAPH, w->graph.n);
    fwrite(m.p, 1, m.n, f);
    fwrite(w->graph.p, 1, w->graph.n, f);
}

bool codegen_onnx(FILE *f, const Plan *p, const OnnxStep *how, Diag *d)
{
    Arena a = {0};
    Writer w = {.p = p, .g = p->g, .a = &a, .how = how, .d = d};
    w.o = onnx_nodes(&a, p->g, d);
    w.uses = plan_uses(p, how->noutputs, &a);
    put_string(&a, &w.graph, GRAPH_NAME, "training_step");
    if (p->g->nout)
        onnx_reserve(w.o, how->output[0]); /* "loss": the model may have a value of that name */
    bool ok = write_sources(&w);
    for (uint32_t i = 1; i < p->g->nout; i++)
        onnx_reserve(w.o, how->output[i]);
    ok = ok && write_nodes(&w);
    if (ok && f) {
        write_outputs(&w);
        onnx_put(w.o, &w.graph);
        write_model(&w, f);
    }
    arena_free(&a);
    return ok;
}
