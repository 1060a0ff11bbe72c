/* attention_packed.c -- queries, keys and values that are parts of one value.
 *
 * A layer computes all three with one product, and exporters slice its result.  If the slices are heads of
 * that value, at equal steps, and together all of its heads, attention reads them where they lie, and its
 * gradient is one value: no slices, and no concatenation of gradients. */
#include "attention_form.h"

/* A view of operand i as batch, heads, rows and size. */
static View operand(const Rewrite *rw, const Node *n, int i)
{
    const AttentionAttrs *at = n->attr;
    View w = view_of_part(rw, n->in[i]);
    return view_transposed(&w, attention_place[at->layout.n ? at->layout.v[i] : 0]);
}

/* Has dimension i of the view this stride?  A dimension of extent 1 has any. */
static bool has_stride(const View *w, int i, int64_t stride)
{
    const Atom *a = &w->atom[w->first[i]];
    int n = w->first[i + 1] - w->first[i];
    return n == 0 || (n == 1 && a->stride == stride);
}

/* Are w's rows those of some heads of a value of `heads` heads in that layout?  part: the first, the step. */
static bool place_heads(const View *w, int64_t heads, int layout, int64_t part[2])
{
    const int *place = attention_place[layout];
    Type t = {.dt = w->shape.dt, .rank = 4};
    int64_t stride[MAX_RANK], step;
    for (int i = 0; i < 4; i++)
        t.dim[place[i]] = i == 1 ? heads : w->shape.dim[i];
    type_strides(&t, stride);
    step = w->first[2] > w->first[1] ? w->atom[w->first[1]].stride : stride[place[1]];
    part[0] = w->offset / stride[place[1]];
    part[1] = step / stride[place[1]];
    return w->scale == 1 && w->offset % stride[place[1]] == 0 && step % stride[place[1]] == 0 &&
           has_stride(w, 0, stride[place[0]]) && has_stride(w, 1, step) &&
           has_stride(w, 2, stride[place[2]]) && has_stride(w, 3, stride[place[3]]);
}

static bool find_parts(const Rewrite *rw, const View w[3], AttentionAttrs *at, int64_t *heads, int *layout)
{
    const Type *q = &w[0].shape;
    int64_t all = type_count(val_type(rw->g, w[0].root)), head = q->dim[0] * q->dim[2] * q->dim[3];
    *heads = all / head;
    at->groups = w[1].shape.dim[1];
    at->packed.n = 6;
    for (*layout = 0; *layout < ATTENTION_LAYOUTS && all % head == 0; ++*layout) {
        bool fits = true;
        for (int i = 0; i < 3; i++)
            fits &= place_heads(&w[i], *heads, *layout, &at->packed.v[2 * i]);
        if (fits)
            return attention_packs(at, *heads);
    }
    return false;
}

Val rule_attention_packed(Rewrite *rw, const Node *n)
{
    Graph *g = rw->g;
    AttentionAttrs at;
    View w[3];
    Val in[7], out[3];
    int64_t heads, dim[4];
    int layout;
    if (n->op != OP_attention || ((const AttentionAttrs *)n->attr)->packed.n > 0 ||
        rewrite_uses(rw, n->out[1]) || rewrite_uses(rw, n->out[2]))
        return none();
    for (int i = 0; i < 3; i++) {
        w[i] = operand(rw, n, i);
        if (w[i].root.i != w[0].root.i || w[i].shape.dim[2] != w[0].shape.dim[2] ||
            type_count(val_type(g, n->in[i])) == 0)
            return none();
    }
    at = *(const AttentionAttrs *)n->attr;
    if (!find_parts(rw, w, &at, &heads, &layout))
        return none();
    for (int i = 0; i < 4; i++)
        dim[attention_place[layout][i]] = i == 1 ? heads : w[0].shape.dim[i];
    for (int i = 0; i < n->nin; i++)
        in[i] = n->in[i];
    in[0] = in[1] = in[2] = build_reshape(g, build_cast(g, w[0].root, val_type(g, n->in[0])->dt), 4, dim);
    at.layout.v[3] = at.layout.n ? at.layout.v[3] : 0;
    for (int i = 0; i < 3; i++)
        at.layout.v[i] = layout;
    at.layout.n = 4;
    build_n(g, OP_attention, n->name, n->nin, in, &at, 3, out);
    return out[0];
}
