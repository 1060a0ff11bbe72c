/* gates.c -- weights of nn.LSTM and nn.GRU as PyTorch's exporter has computed them, by default: the gates in
 * ONNX's order, both directions and both biases in one tensor.  Each parameter is blocks of it. */
#include "onnx_int.h"
#include <string.h>

typedef struct {
    const char *op;
    int n;
    int place[4]; /* of each gate, in PyTorch's order, in ONNX's */
} Gates;

static const Gates *gates_of(const Onnx__NodeProto *p)
{
    static const Gates gates[] = {
        {"LSTM", 4, {0, 2, 3, 1}}, /* i f g o; i o f c */
        {"GRU", 3, {1, 0, 2}},     /* r z n; z r h */
        {"RNN", 1, {0}},
    };
    for (size_t i = 0; i < sizeof gates / sizeof *gates && p; i++)
        if (strcmp(pb(p->op_type), gates[i].op) == 0 && !*canonical_domain(pb(p->domain)))
            return &gates[i];
    return NULL;
}

enum { W = 1, R, B }; /* operands of the node */

static bool is_kind(const Declared *d, const char *kind)
{
    const char *dot = strrchr(d->name, '.');
    return d->parameter && strncmp(dot ? dot + 1 : d->name, kind, strlen(kind)) == 0;
}

/* Is there a parameter of that kind of which the file does not say what became?  What is equal, the exporter
 * merges, with the origin of one of them. */
static bool may_be_merged(OnnxModel *m, const char *kind)
{
    const Signature *s = model_signature(m);
    for (uint32_t i = 0; i < s->n; i++)
        if (is_kind(&s->by_name[i], kind) && !s->by_name[i].folded &&
            !model_initializer(m, s->by_name[i].name))
            return true;
    return false;
}

/* Adds the parameters of a kind among the origins, as nn.LSTM calls them, of[k] of direction k. */
static int find_kind(const Folded *from, const char *kind, const char **of)
{
    int n = 0;
    for (uint32_t i = 0; i < from->n; i++) {
        const char *name = from->of[i]->name, *dot = strrchr(name, '.');
        if (!is_kind(from->of[i], kind))
            continue;
        of[strstr(dot ? dot : name, "_reverse") ? 1 : 0] = name;
        n++;
    }
    return n;
}

/* The parameters that the tensor's blocks are, direction by direction; returns their number, 0: not known.
 * Others may have told the batch's extent alone. */
static int find_parameters(Import *x, const char *name, const Gates *gates, int slot, const Type *t,
                           const char **of)
{
    static const char *const kinds[] = {"weight_ih_l", "weight_hh_l", "bias_ih_l", "bias_hh_l"};
    const Folded *from = folded(x->m, name);
    int halves = slot == B ? 2 : 1, dirs = t->rank > 1 && t->dim[0] <= 2 ? (int)t->dim[0] : 0;
    if (!from || from->calls & (FOLDED_OTHER | FOLDED_DETACHES) || t->rank != (slot == B ? 2 : 3) ||
        t->dim[1] == 0 || t->dim[1] % (halves * gates->n) != 0)
        return 0;
    for (int half = 0; half < halves; half++) {
        const char *found[2] = {NULL};
        const char *kind = kinds[slot - W + half];
        if (find_kind(from, kind, found) != dirs || (role_readers(x, name) > 1 && may_be_merged(x->m, kind)))
            return 0;
        for (int k = 0; k < dirs; k++)
            if (!(of[k * halves + half] = found[k]))
                return 0;
    }
    return dirs * halves;
}

static void name_blocks(Import *x, Val v, const char *parameter, const Type *shape, const Gates *gates,
                        int first)
{
    Ints *blocks = NEW(x->g->arena, Ints, 1);
    for (int i = 0; i < gates->n; i++)
        blocks->v[blocks->n++] = first + gates->place[i];
    graph_name_in_model(x->g, v,
                        (ModelName){.name = arena_strndup(x->g->arena, parameter, strlen(parameter)),
                                    .of = NAME_OF_MODULE,
                                    .shape = shape,
                                    .blocks = blocks});
}

bool import_gates(Import *x, const char *name, const OnnxTensor *t, Val *v)
{
    int slot = 0;
    const char *of[4];
    const Type *type = &t->t.type;
    const Gates *gates = x->depth == 0 ? gates_of(role_reader(x, name, &slot)) : NULL;
    bool may_be = gates && slot >= W && slot <= B && t->t.data;
    int n = may_be ? find_parameters(x, name, gates, slot, type, of) : 0;
    if (!n)
        return false;
    *v = same_parameter(x->g, of[0], &t->t);
    if (!v->i) {
        Type *shape = NEW(x->g->arena, Type, 1);
        *shape =
            type_make(type->dt, type->rank - 1, (int64_t[]){type->dim[1] * type->dim[0] / n, type->dim[2]});
        *v = graph_value(x->g, of[0], *type, VAL_PARAM);
        x->g->vals[v->i].data = t->t.data;
        x->g->vals[v->i].file = t->file;
        x->g->vals[v->i].offset = t->offset;
        for (int k = 0; k < n; k++)
            name_blocks(x, *v, of[k], shape, gates, k * gates->n);
    }
    name_value_of(x, *v, name, NAME_OF_FILE, false);
    return true;
}
