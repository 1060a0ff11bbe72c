/* layers.c -- finds the layer of the model that each forward step belongs to, for policies by layers.
 *
 * A layer is a module with a number, and all within it: "h.3" of "/h/h.3/attn/MatMul".  Steps in front of,
 * between and behind layers are in none.  If nodes have no such names, those of parameters are used. */
#include "instance.h"
#include <string.h>

typedef struct {
    const char *scope;
    size_t n; /* bytes of scope up to and with its first number; 0: it has none */
} Module;

static Module module_of(const Graph *g, Val v, Arena *tmp)
{
    Module m = {value_scope(g, v, tmp), 0};
    for (const char *part = m.scope; *part && !m.n;) {
        size_t n = strcspn(part, ".");
        if (n && strspn(part, "0123456789") == n)
            m.n = (size_t)(part - m.scope) + n;
        part += n + (part[n] == '.');
    }
    return m;
}

static bool same(Module a, Module b) { return a.n == b.n && strncmp(a.scope, b.scope, a.n) == 0; }

/* Finds a step's module, by the name of its first node with one, or by the first parameter that it reads;
 * false: there is none. */
static bool step_module(const Graph *g, const Step *s, bool by_names, Arena *tmp, Module *m)
{
    for (uint32_t k = 0; k < s->count; k++) {
        const Node *n = &g->nodes[g->order[s->first + k].i];
        bool path = n->name && strpbrk(n->name, "/.");
        if (by_names && n->nout && path) {
            *m = module_of(g, n->out[0], tmp);
            return true;
        }
        for (int i = 0; i < n->nin && !by_names; i++) {
            Val root = graph_root(g, n->in[i]);
            if (root.i && g->vals[root.i].kind == VAL_PARAM) {
                *m = module_of(g, root, tmp);
                return true;
            }
        }
    }
    return false;
}

/* Was layer m left before?  A weight that an exporter merged with an earlier one has that one's name: a layer
 * that was left is not entered again. */
static bool was_left(const Module *left, uint32_t n, Module m)
{
    while (n > 0 && !same(left[n - 1], m))
        n--;
    return m.n && n > 0;
}

/* Sets the layers of the forward steps; returns how many have a number.  A step without a known module
 * belongs to the layer before. */
static uint32_t label(const Graph *g, Instance *in, bool by_names, Arena *tmp)
{
    Module now = {0}, next, *left = NEW(tmp, Module, in->inst.loss + 1);
    uint32_t nleft = 0, named = 0;
    int32_t layer = 0;
    for (int32_t s = 0; s <= in->inst.loss; s++) {
        bool known = step_module(g, &in->cut.step[s], by_names, tmp, &next);
        if (known && (!layer || !same(now, next)) && !was_left(left, nleft, next)) {
            if (layer)
                left[nleft++] = now;
            now = next;
            layer++;
            named += now.n > 0;
        }
        in->inst.ops[s].layer = now.n ? layer : 0;
    }
    return named;
}

void instance_layers(const Graph *g, Instance *in, Arena *tmp)
{
    if (label(g, in, true, tmp) >= 2 || label(g, in, false, tmp) >= 2)
        return;
    for (int32_t s = 0; s <= in->inst.loss; s++)
        in->inst.ops[s].layer = 0;
}
