/* import_static.c -- what is computed while importing: results whose size depends on values
 * (NonZero, Compress, Unique, NonMaxSuppression), and the bits of numbers (BitCast).
 *
 * A training step is planned for fixed sizes, so the operands must be known by then; where they
 * come from data the node is refused. */
#include "onnx_int.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool import_nonzero(OnnxNode *n)
{
    Tensor t;
    if (has_in(n, 0) && !is_static(n, 0))
        return !n->x->d->failed && nonzero_of_data(n);
    TRY(static_tensor(n, 0, &t));
    int64_t total = type_count(&t.type), found = 0, stride[MAX_RANK];
    for (int64_t i = 0; i < total; i++)
        found += tensor_f(&t, i) != 0;
    type_strides(&t.type, stride);
    int64_t *v = NEW(n->x->a, int64_t, found * t.type.rank + 1), k = 0;
    for (int64_t i = 0; i < total; i++) {
        if (tensor_f(&t, i) == 0)
            continue;
        for (int d = 0; d < t.type.rank; d++)
            v[d * found + k] = i / stride[d] % t.type.dim[d];
        k++;
    }
    Type out = type_make(DT_I64, 2, (int64_t[]){t.type.rank, found});
    n->out[0] = graph_const(n->g, "nonzero", out, v);
    return true;
}

static bool import_compress(OnnxNode *n)
{
    Graph *g = n->g;
    Tensor keep;
    TRY(static_tensor(n, 1, &keep));
    const Type t = *in_type(n, 0);
    int64_t axis = 0, count = type_count(&t), found = 0;
    bool flat = !attr_find(n, "axis");
    if (!flat)
        TRY(axis_in(n, attr_int(n, "axis", 0), t.rank, &axis));
    Val x = flat ? build_reshape(g, n->in[0], 1, &count) : n->in[0];
    int64_t entries = type_count(&keep.type), *v = NEW(n->x->a, int64_t, entries + 1);
    for (int64_t i = 0; i < entries; i++)
        if (tensor_i(&keep, i))
            v[found++] = i;
    Val index = graph_const(g, "kept", type_make(DT_I64, 1, &found), v);
    n->out[0] = build_gather(g, x, index, (int)axis);
    return n->out[0].i;
}

/* ---- Unique ------------------------------------------------------------- */

/* The n slices of t along an axis; slice k has the elements (o * n + k) * inner + i. */
typedef struct {
    Tensor t;
    int64_t outer, n, inner;
} Slices;

static int compare_numbers(double a, double b)
{
    if (isnan(a) || isnan(b))
        return (isnan(a) != 0) - (isnan(b) != 0);
    return (a > b) - (a < b);
}

static int compare_slices(const Slices *s, int64_t a, int64_t b)
{
    bool real = dtype_is_float(s->t.type.dt);
    int order = 0;
    for (int64_t o = 0; o < s->outer && !order; o++)
        for (int64_t i = 0; i < s->inner && !order; i++) {
            int64_t x = (o * s->n + a) * s->inner + i, y = (o * s->n + b) * s->inner + i;
            int64_t p = tensor_i(&s->t, x), q = tensor_i(&s->t, y);
            order = real ? compare_numbers(tensor_f(&s->t, x), tensor_f(&s->t, y)) : (p > q) - (p < q);
        }
    return order;
}

static int by_value(const void *a, const void *b, void *slices)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    int order = compare_slices(slices, x, y);
    return order ? order : (x > y) - (x < y); /* the first of equal ones leads */
}

static int by_number(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static Val indices(OnnxNode *n, const char *name, const int64_t *v, int64_t count)
{
    return graph_const(n->g, name, type_make(DT_I64, 1, &count), v);
}

/* Groups equal slices, and returns the number of groups.  first[j]: the first slice of group j; size[j]: its
 * number of slices; group[k]: the group of slice k.  Groups are sorted by value, or by their first slices. */
static int64_t group_slices(Slices *s, bool sorted, Arena *a, int64_t *first, int64_t *group, int64_t *size)
{
    int64_t groups = 0, *order = NEW(a, int64_t, s->n + 1), *leader = NEW(a, int64_t, s->n + 1);
    for (int64_t k = 0; k < s->n; k++)
        order[k] = k;
    qsort_r(order, (size_t)s->n, sizeof *order, by_value, s);
    for (int64_t k = 0; k < s->n; k++) {
        bool new = k == 0 || compare_slices(s, order[k - 1], order[k]) != 0;
        if (new)
            first[groups++] = order[k];
        leader[order[k]] = first[groups - 1];
    }
    if (!sorted)
        qsort(first, (size_t)groups, sizeof *first, by_number);
    for (int64_t j = 0; j < groups; j++)
        order[first[j]] = j;
    for (int64_t k = 0; k < s->n; k++)
        size[group[k] = order[leader[k]]]++;
    return groups;
}

static bool import_unique(OnnxNode *n)
{
    Slices s = {.outer = 1, .inner = 1};
    int64_t axis = 0;
    TRY(static_tensor(n, 0, &s.t));
    bool flat = !attr_find(n, "axis");
    Val x = n->in[0];
    s.n = type_count(&s.t.type);
    if (flat) {
        x = build_reshape(n->g, x, 1, &s.n);
    } else {
        TRY(axis_in(n, attr_int(n, "axis", 0), s.t.type.rank, &axis));
        s.n = s.t.type.dim[axis];
        for (int d = 0; d < s.t.type.rank; d++)
            *(d < axis ? &s.outer : &s.inner) *= d == axis ? 1 : s.t.type.dim[d];
    }
    Arena *a = n->x->a;
    int64_t *first = NEW(a, int64_t, s.n + 1), *group = NEW(a, int64_t, s.n + 1);
    int64_t *size = NEW(a, int64_t, s.n + 1);
    int64_t groups = group_slices(&s, attr_int(n, "sorted", 1) != 0, a, first, group, size);
    Val lead = indices(n, "first", first, groups);
    n->out[0] = build_gather(n->g, x, lead, (int)axis);
    if (has_out(n, 1))
        n->out[1] = lead;
    if (has_out(n, 2))
        n->out[2] = indices(n, "inverse", group, s.n);
    if (has_out(n, 3))
        n->out[3] = indices(n, "counts", size, groups);
    return n->out[0].i;
}

/* ---- NonMaxSuppression -------------------------------------------------- */

typedef struct {
    double low[2], high[2];
} Box;

static Box box_at(const Tensor *boxes, int64_t at, bool center)
{
    Box b;
    double v[4];
    for (int i = 0; i < 4; i++)
        v[i] = tensor_f(boxes, at * 4 + i);
    for (int i = 0; i < 2; i++) {
        double p = center ? v[i] - v[2 + i] / 2 : v[i], q = center ? v[i] + v[2 + i] / 2 : v[2 + i];
        b.low[i] = fmin(p, q);
        b.high[i] = fmax(p, q);
    }
    return b;
}

static double area(const Box *b) { return fmax(0, b->high[0] - b->low[0]) * fmax(0, b->high[1] - b->low[1]); }

/* Area of the intersection over that of the union. */
static double overlap(const Box *a, const Box *b)
{
    Box both;
    for (int i = 0; i < 2; i++) {
        both.low[i] = fmax(a->low[i], b->low[i]);
        both.high[i] = fmin(a->high[i], b->high[i]);
    }
    double common = area(&both), all = area(a) + area(b) - common;
    return all > 0 ? common / all : 0;
}

typedef struct {
    const Tensor *boxes, *scores;
    int64_t most;
    double most_overlap, least_score;
    bool scored, center;
    int64_t *found, nfound; /* triples of batch, class, box; their number */
} Suppression;

typedef struct {
    double score;
    int64_t box;
} Candidate;

static int by_score(const void *a, const void *b)
{
    const Candidate *x = a, *y = b;
    return x->score != y->score ? (x->score < y->score) - (x->score > y->score)
                                : (x->box > y->box) - (x->box < y->box);
}

/* Greedy: the best box left is kept unless it overlaps a kept one too much. */
static void suppress(Suppression *s, int64_t batch, int64_t class, Candidate *c, Box *kept)
{
    int64_t n = s->boxes->type.dim[1], classes = s->scores->type.dim[1], nkept = 0;
    for (int64_t i = 0; i < n; i++)
        c[i] = (Candidate){tensor_f(s->scores, (batch * classes + class) * n + i), i};
    qsort(c, (size_t)n, sizeof *c, by_score);
    for (int64_t i = 0; i < n && nkept < s->most; i++) {
        Box b = box_at(s->boxes, batch * n + c[i].box, s->center);
        bool keep = !s->scored || c[i].score > s->least_score;
        for (int64_t k = 0; k < nkept && keep; k++)
            keep = overlap(&b, &kept[k]) <= s->most_overlap;
        if (!keep)
            continue;
        kept[nkept++] = b;
        memcpy(s->found + 3 * s->nfound++, (int64_t[]){batch, class, c[i].box}, 24);
    }
}

static bool import_non_max_suppression(OnnxNode *n)
{
    Tensor boxes, scores;
    Suppression s = {.boxes = &boxes, .scores = &scores, .scored = has_in(n, 4)};
    TRY(static_tensor(n, 0, &boxes) && static_tensor(n, 1, &scores));
    TRY(!has_in(n, 2) || static_int(n, 2, &s.most));
    TRY(!has_in(n, 3) || static_float(n, 3, &s.most_overlap));
    TRY(!s.scored || static_float(n, 4, &s.least_score));
    s.center = attr_int(n, "center_point_box", 0) != 0;
    const Type *b = &boxes.type, *c = &scores.type;
    if (b->rank != 3 || c->rank != 3 || b->dim[2] != 4 || b->dim[0] != c->dim[0] || b->dim[1] != c->dim[2])
        return fail(n->x->d, "boxes and scores do not fit");
    Type pairs = type_make(DT_I64, 2, (int64_t[]){type_count(c), b->dim[1] + 3});
    TRY(small_enough(n, &pairs)); /* bounds the time, and the result's size */
    s.found = NEW(n->x->a, int64_t, 3 * type_count(c) + 1);
    Candidate *candidate = NEW(n->x->a, Candidate, b->dim[1] + 1);
    Box *kept = NEW(n->x->a, Box, b->dim[1] + 1);
    for (int64_t i = 0; i < c->dim[0]; i++)
        for (int64_t k = 0; k < c->dim[1]; k++)
            suppress(&s, i, k, candidate, kept);
    n->out[0] = graph_const(n->g, "selected", type_make(DT_I64, 2, (int64_t[]){s.nfound, 3}), s.found);
    return true;
}

/* ---- BitCast ------------------------------------------------------------ */

static uint64_t bits_of(const Tensor *t, int64_t i)
{
    uint64_t bits = 0;
    size_t size = (size_t)dtype_size[t->type.dt];
    if (!dtype_is_float(t->type.dt))
        return (uint64_t)tensor_i(t, i);
    memcpy(&bits, (const char *)t->data + (size_t)i * size, size);
    return bits;
}

static void set_bits(Tensor *t, int64_t i, uint64_t bits, int32_t data_type)
{
    size_t size = (size_t)dtype_size[t->type.dt];
    int shift = 64 - data_type_bits(data_type);
    if (dtype_is_float(t->type.dt))
        memcpy((char *)t->data + (size_t)i * size, &bits, size);
    else
        tensor_set_i(t, i, data_type_is_signed(data_type) ? (int64_t)(bits << shift) >> shift
                                                          : (int64_t)(bits << shift >> shift));
}

/* Integers of one size are converted by wrapping around; operands with other bits must be known. */
static bool import_bit_cast(OnnxNode *n)
{
    DType dt = in_type(n, 0)->dt;
    int32_t to, from = element_type(n, 0);
    TRY(attr_needed(n, "to") && attr_data_type(n, "to", 0, &to));
    if (data_type_bits(from) != data_type_bits(to))
        return refuse(n, "%s as %s", onnx_dtype_name(from), onnx_dtype_name(to));
    if (!dtype_is_float(dt) && !dtype_is_float(onnx_dtype(to)) && onnx_dtype(to) != DT_BOOL) {
        n->out[0] = narrow(n, n->in[0], to);
        return n->out[0].i;
    }
    Tensor t;
    TRY(static_tensor(n, 0, &t));
    Tensor r = {type_with(t.type, onnx_dtype(to)), NULL};
    r.data = NEW(n->x->a, char, type_bytes(&r.type) + 1);
    for (int64_t i = 0; i < type_count(&t.type); i++)
        set_bits(&r, i, bits_of(&t, i), to);
    n->out[0] = graph_const(n->g, "bits", r.type, r.data);
    set_data_type(n->x, n->out[0], to);
    return true;
}

const OnnxOp onnx_static[] = {
    {"BitCast", 26, .import = import_bit_cast},
    {"Compress", 9, .import = import_compress},
    {"NonMaxSuppression", 10, .import = import_non_max_suppression},
    {"NonZero", 9, .import = import_nonzero, .typed = 1},
    {"Unique", 11, .import = import_unique, .typed = 7 << 1},
    {0},
};
