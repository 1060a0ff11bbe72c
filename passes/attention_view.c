/* attention_view.c -- finds where the elements of a factor of attention lie.
 *
 * Exporters reshape, transpose, repeat and scale queries, keys and values in many orders.  A view
 * follows these operators to the value they start from; if that has one of the layouts of the attention
 * operator, nothing is copied. */
#include "attention_form.h"

static View dense(const Rewrite *rw, Val v)
{
    View w = {.root = v, .scale = 1, .shape = *val_type(rw->g, v)};
    int64_t stride[MAX_RANK];
    type_strides(&w.shape, stride);
    for (int i = 0; i < w.shape.rank; i++) {
        w.atom[i] = (Atom){w.shape.dim[i], stride[i]};
        w.first[i + 1] = i + 1;
    }
    return w;
}

static void add_atom(View *w, int *n, int from, Atom a)
{
    if (a.extent == 1)
        return;
    Atom *last = *n > from ? &w->atom[*n - 1] : NULL;
    if (last && last->stride == a.extent * a.stride) {
        last->extent *= a.extent;
        last->stride = a.stride;
    } else if (*n < VIEW_ATOMS) {
        w->atom[(*n)++] = a;
    } else {
        w->root.i = 0;
    }
}

View view_as(const View *w, const Type *shape)
{
    View flat = *w, y = {.root = w->root, .offset = w->offset, .scale = w->scale, .shape = *shape};
    int nflat = 0, n = 0, next = 0;
    for (int i = 0; i < w->first[w->shape.rank]; i++)
        add_atom(&flat, &nflat, 0, w->atom[i]);
    for (int i = 0; i < shape->rank; i++) {
        for (int64_t need = shape->dim[i]; need > 1 && y.root.i;) {
            Atom *a = &flat.atom[next];
            if (next < nflat && need % a->extent == 0) {
                add_atom(&y, &n, y.first[i], *a);
                need /= a->extent;
                next++;
            } else if (next < nflat && a->extent % need == 0) {
                a->extent /= need;
                add_atom(&y, &n, y.first[i], (Atom){need, a->extent * a->stride});
                need = 1;
            } else {
                y.root.i = 0;
            }
        }
        y.first[i + 1] = n;
    }
    return y;
}

View view_transposed(const View *w, const int *perm)
{
    View y = {.root = w->root, .offset = w->offset, .scale = w->scale, .shape = w->shape};
    int n = 0;
    for (int i = 0; i < w->shape.rank; i++) {
        y.shape.dim[i] = w->shape.dim[perm[i]];
        for (int k = w->first[perm[i]]; k < w->first[perm[i] + 1]; k++)
            y.atom[n++] = w->atom[k];
        y.first[i + 1] = n;
    }
    return y;
}

static View expanded(const View *w, const Type *shape)
{
    View y = {.root = w->root, .offset = w->offset, .scale = w->scale, .shape = *shape};
    int n = 0, more = shape->rank - w->shape.rank;
    for (int i = 0; i < shape->rank; i++) {
        if (i < more || w->shape.dim[i - more] != shape->dim[i])
            add_atom(&y, &n, n, (Atom){shape->dim[i], 0});
        else
            for (int k = w->first[i - more]; k < w->first[i - more + 1]; k++)
                add_atom(&y, &n, n, w->atom[k]);
        y.first[i + 1] = n;
    }
    return y;
}

/* A view of slice n of w; root {0}: a dimension that is cut has not exactly one atom. */
static View sliced(const View *w, const Node *n, const Type *shape)
{
    const SliceAttrs *at = n->attr;
    View y = *w;
    y.shape = *shape;
    for (int i = 0; i < shape->rank; i++) {
        Atom *a = &y.atom[y.first[i]];
        if (shape->dim[i] == w->shape.dim[i] && at->step.v[i] == 1)
            continue;
        if (y.first[i + 1] - y.first[i] != 1 || at->step.v[i] < 1)
            return (View){0};
        y.offset += at->start.v[i] * a->stride;
        *a = (Atom){shape->dim[i], at->step.v[i] * a->stride};
    }
    return y;
}

static View through(const Node *n, const View *w, const Type *shape)
{
    int perm[MAX_RANK];
    if (n->op == OP_slice)
        return sliced(w, n, shape);
    if (n->op == OP_expand)
        return expanded(w, shape);
    if (n->op != OP_transpose)
        return view_as(w, shape);
    for (int i = 0; i < shape->rank; i++)
        perm[i] = (int)((const TransposeAttrs *)n->attr)->perm.v[i];
    return view_transposed(w, perm);
}

static View followed(const Rewrite *rw, Val v, bool parts, int depth)
{
    const Node *n = graph_def(rw->g, v);
    double c = 1;
    Val x = n && depth < 2 * FORM_DEPTH ? form_scaled(rw, v, &c) : (Val){0};
    bool moves = n && (n->op == OP_transpose || n->op == OP_reshape || n->op == OP_expand ||
                       (parts && n->op == OP_slice) || node_widens(rw->g, n));
    if (!x.i && (!moves || depth >= 2 * FORM_DEPTH))
        return dense(rw, v);
    View w = followed(rw, x.i ? x : n->in[0], parts, depth + 1);
    View y = x.i ? w : through(n, &w, val_type(rw->g, v));
    y.scale *= x.i ? c : 1;
    return y.root.i ? y : dense(rw, v);
}

View view_of(const Rewrite *rw, Val v)
{
    return type_count(val_type(rw->g, v)) ? followed(rw, v, false, 0) : dense(rw, v);
}

View view_of_part(const Rewrite *rw, Val v)
{
    return type_count(val_type(rw->g, v)) ? followed(rw, v, true, 0) : dense(rw, v);
}

int view_layout(const View *w, int64_t dim[4], bool shared)
{
    Atom a[4];
    for (int i = 0; i < 4; i++) {
        int first = w->first[i], n = w->first[i + 1] - first;
        if (i == 1 && shared && n > 0 && w->atom[first + n - 1].stride == 0)
            dim[1] /= w->atom[first + --n].extent;
        a[i] = n ? w->atom[first] : (Atom){1, 0};
        if (n > 1)
            return -1;
    }
    for (int layout = 0; layout < ATTENTION_LAYOUTS; layout++) {
        Type t = type_make(w->shape.dt, 4, dim);
        int64_t own[MAX_RANK];
        bool fits = true;
        for (int i = 0; i < 4; i++)
            t.dim[attention_place[layout][i]] = dim[i];
        type_strides(&t, own);
        for (int i = 0; i < 4; i++)
            fits &= dim[i] == 1 || a[i].stride == own[attention_place[layout][i]];
        if (fits)
            return layout;
    }
    return -1;
}
