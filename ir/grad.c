/* grad.c -- the interface between operators' gradient hooks and the autodiff driver.
 *
 * Contributions to one cotangent are added in the order in which they arrive, so the additions
 * have a fixed order and recomputation keeps every bit. */
#include "ir.h"
#include <string.h>

Val grad_out(const Grad *gr, const Node *n, int k)
{
    return n->out[k].i < gr->nadj ? gr->adj[n->out[k].i] : (Val){0};
}

bool grad_wants(const Grad *gr, const Node *n, int k)
{
    return k < n->nin && n->in[k].i && n->in[k].i < gr->nadj && gr->wanted[n->in[k].i];
}

void grad_add(Grad *gr, Val input, Val cotangent)
{
    Graph *g = gr->g;
    if (!input.i || input.i >= gr->nadj || !gr->wanted[input.i] || !cotangent.i)
        return;
    const Type *t = val_type(g, input);
    Val c = build_cast(g, build_sum_to(g, cotangent, t), t->dt);
    if (c.i && !type_same_shape(val_type(g, c), t))
        c = build_expand(g, c, t->rank, t->dim);
    Val *adj = &gr->adj[input.i];
    *adj = adj->i ? build2(g, OP_add, *adj, c) : c;
}
