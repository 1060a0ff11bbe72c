/* import_linear.c -- matrix products: MatMul, Gemm, Einsum. */
#include "onnx_int.h"
#include <ctype.h>
#include <string.h>

/* Integers are multiplied in double precision, exact up to 2^53. */
static Val real(Graph *g, Val v)
{
    return v.i && !dtype_is_float(val_type(g, v)->dt) ? build_cast(g, v, DT_F64) : v;
}

static Val back(Graph *g, Val y, DType dt)
{
    return dtype_is_float(dt) ? y : build_cast(g, build_cast(g, y, DT_I64), dt);
}

/* numpy's matmul: operands of rank 1 get a dimension that is dropped again. */
static bool import_matmul(OnnxNode *n)
{
    Graph *g = n->g;
    Type ta = *in_type(n, 0), tb = *in_type(n, 1);
    if (!ta.rank || !tb.rank)
        return fail(n->x->d, "operands must have dimensions");
    Val a =
        ta.rank > 1 ? n->in[0] : build_reshape(g, n->in[0], 2, (int64_t[]){1, ta.dim[0]});
    Val b =
        tb.rank > 1 ? n->in[1] : build_reshape(g, n->in[1], 2, (int64_t[]){tb.dim[0], 1});
    Val y = back(g, build_matmul(g, real(g, a), real(g, b), false, false), ta.dt);
    TRY(y.i);
    Ints dim = ints_of(val_type(g, y)), out = {0};
    for (int i = 0; i < dim.n; i++)
        if (!(ta.rank == 1 && i == dim.n - 2) && !(tb.rank == 1 && i == dim.n - 1))
            out.v[out.n++] = dim.v[i];
    n->out[0] = reshape_ints(g, y, &out);
    return wrapped(n);
}

static Val scaled(Graph *g, Val a, double by) { return by == 1 ? a : mul_scalar(g, a, by); }

bool import_gemm(OnnxNode *n)
{
    Graph *g = n->g;
    if (in_type(n, 0)->rank != 2 || in_type(n, 1)->rank != 2)
        return fail(n->x->d, "operands must be matrices");
    Val y = build_matmul(g, real(g, n->in[0]), real(g, n->in[1]), attr_int(n, "transA", 0) != 0,
                         attr_int(n, "transB", 0) != 0);
    y = scaled(g, y, attr_float(n, "alpha", 1));
    if (has_in(n, 2))
        y = build2(g, OP_add, y, scaled(g, real(g, n->in[2]), attr_float(n, "beta", 1)));
    n->out[0] = back(g, y, in_type(n, 0)->dt);
    return wrapped(n);
}

/* ---- Einsum -------------------------------------------------------------
 *
 * Labels are letters; the ellipsis becomes labels of its own.  Each operand is brought to
 * one dimension per label; operands are then multiplied two at a time, as a matrix product
 * whose batch labels are in both and wanted later, and whose inner labels are in both and
 * not. */

enum { MAX_LABELS = 64 };

typedef struct {
    Val v;
    int rank;
    int label[MAX_RANK];
} Term;

static int label_of(char c) { return isupper((unsigned char)c) ? c - 'A' : c - 'a' + 26; }

static bool read_labels(OnnxNode *n, const char *s, size_t len, int rank, int *label, int *count)
{
    int letters = 0;
    bool dots = false;
    for (size_t i = 0; i < len; i++) {
        letters += isalpha((unsigned char)s[i]) != 0;
        dots |= s[i] == '.';
    }
    int spread = dots ? rank - letters : 0, k = 0;
    if (spread < 0 || (rank >= 0 && letters + spread != rank && dots))
        return fail(n->x->d, "equation does not fit the operands");
    for (size_t i = 0; i < len; i++) {
        if (s[i] == '.') {
            for (int j = 0; j < spread && k < MAX_RANK; j++)
                label[k++] = 52 + (MAX_RANK - spread) + j; /* right aligned */
            i += 2;
        } else if (isalpha((unsigned char)s[i])) {
            if (k == MAX_RANK)
                return refuse(n, "more than %d dimensions", MAX_RANK);
            label[k++] = label_of(s[i]);
        } else if (s[i] != ' ') {
            return fail(n->x->d, "equation has a '%c'", s[i]);
        }
    }
    *count = k;
    return true;
}

static int find_label(const Term *t, int label)
{
    for (int i = 0; i < t->rank; i++)
        if (t->label[i] == label)
            return i;
    return -1;
}

/* Diagonals: for a repeated label keep the elements where both indices agree. */
static bool take_diagonals(Graph *g, Term *t)
{
    for (int i = 0; i < t->rank; i++)
        for (int j = i + 1; j < t->rank; j++) {
            if (t->label[i] != t->label[j])
                continue;
            Type ty = *val_type(g, t->v);
            Val a = along_axis(g, iota(g, ty.dim[i]), i, ty.rank);
            Val b = along_axis(g, iota(g, ty.dim[j]), j, ty.rank);
            Val masked = build3(g, OP_where, build2(g, OP_equal, a, b), t->v, scalar_like(g, t->v, 0));
            t->v = build_reduce(g, OP_reduce_sum, masked, 1u << j, false);
            TRY(t->v.i);
            memmove(&t->label[j], &t->label[j + 1], (size_t)(t->rank - j - 1) * sizeof(int));
            t->rank--;
            j = i;
        }
    return true;
}

/* Sum over labels that nobody else wants. */
static bool drop_labels(Graph *g, Term *t, const bool *wanted)
{
    uint32_t axes = 0;
    int rank = 0;
    for (int i = 0; i < t->rank; i++) {
        if (wanted[t->label[i]])
            t->label[rank++] = t->label[i];
        else
            axes |= 1u << i;
    }
    t->rank = rank;
    t->v = build_reduce(g, OP_reduce_sum, t->v, axes, false);
    return t->v.i;
}

/* Transpose to the given labels and merge them into dimensions of the given group sizes. */
static Val arrange(Graph *g, const Term *t, const int *order, const int64_t *dim)
{
    int perm[MAX_RANK];
    for (int i = 0; i < t->rank; i++)
        perm[i] = find_label(t, order[i]);
    return build_reshape(g, build_transpose(g, t->v, perm), 3, dim);
}

typedef struct {
    int n;
    int label[2 * MAX_RANK];
    int64_t count;
} Group;

static void push(Group *gr, int label, int64_t extent)
{
    gr->label[gr->n++] = label;
    gr->count *= extent;
}

static int concat_labels(int *out, const Group *a, const Group *b, const Group *c)
{
    int n = 0;
    const Group *all[] = {a, b, c};
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < all[k]->n; i++)
            out[n++] = all[k]->label[i];
    return n;
}

static bool multiply(OnnxNode *n, Term *a, const Term *b, const bool *wanted)
{
    Graph *g = n->g;
    Group batch = {.count = 1}, inner = batch, rows = batch, columns = batch;
    int64_t extent[MAX_LABELS];
    const Type ta = *val_type(g, a->v), tb = *val_type(g, b->v);
    for (int i = 0; i < a->rank; i++) {
        int l = a->label[i];
        extent[l] = ta.dim[i];
        int k = find_label(b, l);
        if (k >= 0 && tb.dim[k] != ta.dim[i])
            return refuse(n, "labels of different extents");
        push(k < 0 ? &rows : wanted[l] ? &batch : &inner, l, ta.dim[i]);
    }
    for (int i = 0; i < b->rank; i++) {
        extent[b->label[i]] = tb.dim[i];
        if (find_label(a, b->label[i]) < 0)
            push(&columns, b->label[i], tb.dim[i]);
    }
    if (batch.n + rows.n + columns.n > MAX_RANK)
        return refuse(n, "more than %d dimensions", MAX_RANK);
    int order[3 * MAX_RANK];
    concat_labels(order, &batch, &rows, &inner);
    Val va = arrange(g, a, order, (int64_t[]){batch.count, rows.count, inner.count});
    concat_labels(order, &batch, &inner, &columns);
    Val vb = arrange(g, b, order, (int64_t[]){batch.count, inner.count, columns.count});
    Val y = build_matmul(g, va, vb, false, false);
    int64_t dim[MAX_RANK];
    a->rank = concat_labels(order, &batch, &rows, &columns);
    for (int i = 0; i < a->rank; i++) {
        a->label[i] = order[i];
        dim[i] = extent[order[i]];
    }
    a->v = build_reshape(g, y, a->rank, dim);
    return a->v.i;
}

/* Sets the labels that the operands from k on and the result still need. */
static void wanted_labels(const Term *term, int k, int n, const Term *out, bool *wanted)
{
    memset(wanted, 0, MAX_LABELS * sizeof *wanted);
    for (int i = 0; i < out->rank; i++)
        wanted[out->label[i]] = true;
    for (; k < n; k++)
        for (int i = 0; i < term[k].rank; i++)
            wanted[term[k].label[i]] = true;
}

static bool read_equation(OnnxNode *n, const char *equation, Term *term, Term *out)
{
    const char *arrow = strstr(equation, "->"), *p = equation;
    const char *end = arrow ? arrow : equation + strlen(equation);
    int uses[MAX_LABELS] = {0}, widest = 0;
    for (int k = 0; k < n->nin; k++) {
        size_t len = 0;
        while (p + len < end && p[len] != ',')
            len++;
        term[k].v = real(n->g, n->in[k]);
        TRY(read_labels(n, p, len, in_type(n, k)->rank, term[k].label, &term[k].rank));
        if (term[k].rank != in_type(n, k)->rank)
            return fail(n->x->d, "equation does not fit operand %d", k);
        int dots = 0;
        for (int i = 0; i < term[k].rank; i++) {
            uses[term[k].label[i]]++;
            dots += term[k].label[i] >= 52;
        }
        widest = dots > widest ? dots : widest;
        p += len + (p + len < end);
    }
    if (p < end)
        return fail(n->x->d, "equation has more terms than operands");
    if (arrow) {
        int letters = 0;
        for (const char *c = arrow + 2; *c; c++)
            letters += isalpha((unsigned char)*c) != 0;
        bool dots = strchr(arrow + 2, '.') != NULL;
        return read_labels(n, arrow + 2, strlen(arrow + 2), letters + (dots ? widest : 0),
                           out->label, &out->rank);
    }
    for (int l = 52; l < MAX_LABELS; l++) /* implicit: the ellipsis, then labels used once */
        if (uses[l] && out->rank < MAX_RANK)
            out->label[out->rank++] = l;
    for (int c = 0; c < 52; c++)
        if (uses[c] == 1 && out->rank < MAX_RANK)
            out->label[out->rank++] = c;
    return true;
}

static bool import_einsum(OnnxNode *n)
{
    Graph *g = n->g;
    Term *term = NEW(n->x->a, Term, n->nin + 1), out = {0};
    bool wanted[MAX_LABELS], broadcast[MAX_LABELS] = {false};
    TRY(read_equation(n, attr_str(n, "equation", ""), term, &out));
    for (int k = 0; k < n->nin; k++) {
        TRY(take_diagonals(g, &term[k]));
        for (int i = 0; i < term[k].rank; i++)
            broadcast[term[k].label[i]] |= val_type(g, term[k].v)->dim[i] != 1;
    }
    for (int k = 0; k < n->nin; k++) {
        wanted_labels(term, 0, n->nin, &out, wanted);
        /* labels of this operand only, and those it broadcasts along */
        for (int i = 0; i < term[k].rank; i++) {
            int label = term[k].label[i];
            bool elsewhere = find_label(&out, label) >= 0;
            for (int j = 0; j < n->nin; j++)
                elsewhere |= j != k && find_label(&term[j], label) >= 0;
            wanted[label] = elsewhere && (val_type(g, term[k].v)->dim[i] != 1 || !broadcast[label]);
        }
        TRY(drop_labels(g, &term[k], wanted));
    }
    for (int k = 1; k < n->nin; k++) {
        wanted_labels(term, k + 1, n->nin, &out, wanted);
        TRY(multiply(n, &term[0], &term[k], wanted));
    }
    int perm[MAX_RANK];
    for (int i = 0; i < out.rank; i++) {
        perm[i] = find_label(&term[0], out.label[i]);
        if (perm[i] < 0 || out.rank != term[0].rank)
            return fail(n->x->d, "the result has labels that no operand has");
    }
    n->out[0] = back(g, build_transpose(g, term[0].v, perm), in_type(n, 0)->dt);
    return wrapped(n);
}

const OnnxOp onnx_linear[] = {
    {"Einsum", 1, .import = import_einsum, .weights = 1 << 1},
    {"Gemm", 1, .import = import_gemm, .weights = 1 << 1 | 1 << 2},
    {"MatMul", 1, .import = import_matmul, .weights = 1 << 1},
    {0},
};
