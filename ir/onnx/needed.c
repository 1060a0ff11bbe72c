/* needed.c -- what of the main graph the outputs need that a loss may be on.
 *
 * A classifier returns labels beside its probabilities, which may be texts, or be made by operators that
 * nothing differentiates.  What only such outputs need is left out, with them, where it is not supported. */
#include "onnx_int.h"
#include <string.h>

/* Values that are needed and whose producers were not looked at yet. */
typedef struct {
    Import *x;
    const char **name;
    uint32_t n, cap;
} Open;

static void need(Open *o, const char *name)
{
    if (!*name || !name_add(&o->x->needed, name, 0))
        return;
    o->name = arena_grow(o->x->a, o->name, o->n, &o->cap, sizeof *o->name);
    o->name[o->n++] = name;
}

/* What a node reads, its bodies included. */
static void need_operands(Open *o, const Onnx__NodeProto *p, int depth)
{
    for (size_t k = 0; k < p->n_input; k++)
        need(o, pb(p->input[k]));
    for (size_t k = 0; k < p->n_attribute && depth < MAX_NESTING; k++) {
        const Onnx__GraphProto *body = p->attribute[k]->g;
        for (size_t i = 0; body && i < body->n_node; i++)
            need_operands(o, body->node[i], depth + 1);
        for (size_t i = 0; body && i < body->n_output; i++)
            need(o, pb(body->output[i]->name));
    }
}

/* Is the output declared to be a tensor without real numbers? */
static bool has_no_loss(const Onnx__ValueInfoProto *v)
{
    const Onnx__TypeProto *t = v->type;
    bool tensor = t && t->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE && t->tensor_type;
    return tensor && t->tensor_type->elem_type && !dtype_is_float(onnx_dtype(t->tensor_type->elem_type));
}

void needed_find(Import *x)
{
    const Onnx__GraphProto *gp = x->m->proto->graph;
    Open o = {.x = x};
    x->needed = name_map(x->a);
    for (size_t i = 0; i < gp->n_output; i++)
        if (!has_no_loss(gp->output[i]))
            need(&o, pb(gp->output[i]->name));
    bool none = !o.n;
    for (size_t i = 0; i < gp->n_output && none; i++) /* all are alike */
        need(&o, pb(gp->output[i]->name));
    while (o.n) {
        const Onnx__NodeProto *p = model_producer(x->m, o.name[--o.n]);
        if (p)
            need_operands(&o, p, 0);
    }
}

bool is_needed(const Import *x, const char *name) { return name_get(&x->needed, name); }

bool node_is_needed(const Import *x, const Onnx__NodeProto *p)
{
    bool needed = !p->n_output;
    for (size_t i = 0; i < p->n_output; i++)
        needed |= is_needed(x, pb(p->output[i]));
    return needed;
}

bool leave_out(Import *x)
{
    if (!x->d->failed || x->d->status != EXIT_UNSUPPORTED)
        return false;
    x->left_out = arena_strndup(x->a, x->d->msg, strlen(x->d->msg));
    *x->d = (Diag){0};
    return true;
}
