/* eval.c -- the reference evaluator: kernel descriptions interpreted in double precision.
 *
 * Slow and obvious: folds constants, and is what generated C and CUDA are tested against. */
#include "program.h"
#include <math.h>
#include <string.h>

typedef struct {
    double f;
    int64_t i;
} Scalar;

typedef struct {
    const Kernel *k;
    Tensor *t;
    int *level;      /* per instruction: kernel_levels() */
    Scalar *val;     /* per instruction: current value */
    int64_t index[K_DIMS];
} Interp;

int kernel_levels(const Kernel *k, int *level)
{
    int top = 0;
    for (uint32_t i = 0; i < k->nins; i++) {
        const KInst *in = &k->ins[i];
        level[i] = 0;
        for (int a = 0; a < k_nargs(in); a++)
            if (level[in->arg[a]] > level[i])
                level[i] = level[in->arg[a]];
        level[i] += k_reduces(in);
        top = level[i] > top ? level[i] : top;
    }
    return top;
}

static int64_t address(const Interp *x, const KInst *in)
{
    int64_t at = in->offset;
    for (int d = 0; d < x->k->rank; d++)
        at += in->stride[d] * x->index[d];
    return at;
}

static Scalar convert(const KInst *in, KType from, Scalar v)
{
    if (in->type == from)
        return v;
    return in->type == KT_INT ? (Scalar){.i = int_of(v.f)} : (Scalar){.f = (double)v.i};
}

static Scalar expression(const Interp *x, const KInst *in)
{
    KType type = in->type; /* integer arithmetic only when every operand and the result are */
    for (int a = 0; a < in->expr->nin; a++)
        if (x->k->ins[in->arg[a]].type == KT_REAL)
            type = KT_REAL;
    double f[3] = {0};
    int64_t n[3] = {0};
    for (int a = 0; a < in->expr->nin; a++) {
        Scalar s = x->val[in->arg[a]];
        bool real = x->k->ins[in->arg[a]].type == KT_REAL;
        f[a] = real ? s.f : (double)s.i;
        n[a] = real ? 0 : s.i;
    }
    Scalar r = {0};
    if (type == KT_REAL)
        r.f = in->expr->f(f[0], f[1], f[2], in->al, in->be);
    else
        r.i = in->expr->i(n[0], n[1], n[2], int_of(in->al), int_of(in->be));
    return convert(in, type, r);
}

static Scalar reduce_start(const KInst *in)
{
    switch (in->kind) {
    case K_MAX: return (Scalar){-INFINITY, INT64_MIN};
    case K_MIN: return (Scalar){INFINITY, INT64_MAX};
    case K_PROD: return (Scalar){1, 1};
    default: return (Scalar){0, 0};
    }
}

/* A NaN wins a maximum or a minimum, as it would a sum. */
static Scalar reduce_step(const KInst *in, Scalar a, Scalar v)
{
    switch (in->kind) {
    case K_MAX: return (Scalar){v.f > a.f || isnan(v.f) ? v.f : a.f, v.i > a.i ? v.i : a.i};
    case K_MIN: return (Scalar){v.f < a.f || isnan(v.f) ? v.f : a.f, v.i < a.i ? v.i : a.i};
    case K_PROD: return (Scalar){a.f * v.f, (int64_t)((uint64_t)a.i * (uint64_t)v.i)};
    default: return (Scalar){a.f + v.f, (int64_t)((uint64_t)a.i + (uint64_t)v.i)};
    }
}

static void store(Interp *x, const KInst *in)
{
    if (x->k->ins[in->arg[0]].type == KT_REAL)
        tensor_set_f(&x->t[in->operand], address(x, in), x->val[in->arg[0]].f);
    else
        tensor_set_i(&x->t[in->operand], address(x, in), x->val[in->arg[0]].i);
}

static void run_point(Interp *x, int pass, int last)
{
    for (uint32_t i = 0; i < x->k->nins; i++) {
        const KInst *in = &x->k->ins[i];
        if (x->level[i] > pass + 1)
            continue;
        switch (in->kind) {
        case K_LOAD:
            if (in->type == KT_REAL)
                x->val[i].f = tensor_f(&x->t[in->operand], address(x, in));
            else
                x->val[i].i = tensor_i(&x->t[in->operand], address(x, in));
            break;
        case K_CONST: x->val[i] = (Scalar){in->imm, int_of(in->imm)}; break;
        case K_INDEX: x->val[i].i = address(x, in); break;
        case K_EXPR:
            if (x->level[i] <= pass)
                x->val[i] = expression(x, in);
            break;
        case K_STORE: break;
        default:
            if (x->level[i] == pass + 1)
                x->val[i] = reduce_step(in, x->val[i], x->val[in->arg[0]]);
            break;
        }
    }
    for (uint32_t i = 0; i < x->k->nins && pass == last; i++) /* behind every load: kernel_inplace */
        if (x->k->ins[i].kind == K_STORE)
            store(x, &x->k->ins[i]);
}

/* Advance index over the dimensions in mask; false after the last point. */
static bool next(Interp *x, uint32_t mask)
{
    for (int d = x->k->rank; d-- > 0;)
        if (mask >> d & 1) {
            if (++x->index[d] < x->k->extent[d])
                return true;
            x->index[d] = 0;
        }
    return false;
}

static bool empty(const Kernel *k, uint32_t mask)
{
    for (int d = 0; d < k->rank; d++)
        if ((mask >> d & 1) && k->extent[d] == 0)
            return true;
    return false;
}

/* Stores that do not depend on the reduced index, for an empty reduction. */
static void store_uniform(Interp *x, int last)
{
    for (uint32_t i = 0; i < x->k->nins; i++)
        if (x->k->ins[i].kind == K_EXPR)
            x->val[i] = expression(x, &x->k->ins[i]);
        else if (x->k->ins[i].kind == K_CONST)
            x->val[i] = (Scalar){x->k->ins[i].imm, int_of(x->k->ins[i].imm)};
    for (uint32_t i = 0; i < x->k->nins; i++) {
        const KInst *in = &x->k->ins[i];
        bool uniform = in->kind == K_STORE && last > 0;
        for (int d = 0; d < x->k->rank; d++)
            uniform &= !(x->k->red >> d & 1) || in->stride[d] == 0;
        if (uniform)
            store(x, in);
    }
}

static void run_dag(const Kernel *k, Tensor *t)
{
    Arena a = {0};
    Interp x = {k, t, NEW(&a, int, k->nins + 1), NEW(&a, Scalar, k->nins + 1), {0}};
    int last = kernel_levels(k, x.level);
    uint32_t all = (1u << k->rank) - 1;
    bool nothing = empty(k, all & ~k->red), no_rows = empty(k, k->red);
    while (!nothing) {
        for (uint32_t i = 0; i < k->nins; i++)
            if (k_reduces(&k->ins[i]))
                x.val[i] = reduce_start(&k->ins[i]);
        if (no_rows)
            store_uniform(&x, last);
        for (int pass = 0; pass <= last && !no_rows; pass++)
            do
                run_point(&x, pass, last);
            while (next(&x, k->red));
        if (!next(&x, all & ~k->red))
            break;
    }
    arena_free(&a);
}

static void run_kernel(const Kernel *k, Tensor *t)
{
    Arena a = {0};
    Kernel part[KERNEL_PARTS];
    if (k->body)
        for (int64_t i = 0; i < k->items; i++)
            k->body->ref(i, k->p, k->q, t);
    int n = k->body ? 0 : kernel_split_columns(kernel_without_deviations(k, &a), part, &a);
    for (int i = 0; i < n; i++)
        run_dag(&part[i], t);
    arena_free(&a);
}

void launch_run_ref(const Launch *l, const Kernel *k, Tensor *op)
{
    if (!l->copy)
        run_kernel(k, op);
    for (int i = 0; i < l->ncopy; i++) {
        const CopyRows *c = &l->copy[i];
        const char *from = op[c->operand].data;
        char *to = (char *)op[l->nop - 1].data + c->at;
        for (int64_t row = 0; row < c->rows && c->bytes > 0; row++)
            memcpy(to + row * c->stride, from + row * c->bytes, (size_t)c->bytes);
    }
}

bool node_eval(const Graph *g, const Node *n, const Tensor *in, Tensor *out, Diag *d)
{
    Arena a = {0};
    Kernel k;
    Tensor *t = NEW(&a, Tensor, n->nin + n->nout + 1);
    k_init(&k, &a, g, n);
    for (int i = 0; i < n->nin; i++)
        t[i] = in[i];
    for (int i = 0; i < n->nout; i++)
        t[n->nin + i] = out[i];
    bool ok = node_def(n)->lower && node_def(n)->lower(&k, g, n);
    if (ok)
        run_kernel(&k, t);
    arena_free(&a);
    return ok || fail(d, "%s cannot be evaluated", node_def(n)->name);
}

bool graph_eval(const Graph *g, void **data, Arena *a, Diag *d)
{
    for (uint32_t i = 1; i < g->nvals; i++)
        if (!data[i] && g->vals[i].data)
            data[i] = graph_tensor(g, (Val){i}).data;
    for (uint32_t s = 0; s < g->norder; s++) {
        const Node *n = &g->nodes[g->order[s].i];
        Tensor in[256], out[MAX_OUT];
        if (n->nin > 256)
            return fail(d, "%s: more than 256 operands", node_def(n)->name);
        for (int i = 0; i < n->nin; i++) {
            in[i] = (Tensor){g->vals[n->in[i].i].type, data[n->in[i].i]};
            if (n->in[i].i && !in[i].data)
                return fail(d, "%%%s has no data", g->vals[n->in[i].i].name);
        }
        for (int i = 0; i < n->nout; i++) {
            out[i].type = g->vals[n->out[i].i].type;
            out[i].data = data[n->out[i].i] = NEW(a, char, type_bytes(&out[i].type) + 1);
        }
        TRY(node_eval(g, n, in, out, d));
    }
    return true;
}
