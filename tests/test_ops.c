/* test_ops.c -- every operator of the table, on random operands:
 *
 *   - inference, reference evaluation and verification run clean (sanitizers watch);
 *   - the text form prints what it parses;
 *   - the gradient agrees with central differences in f64;
 *   - generated C agrees with the reference in f64, f32 and the 16-bit types.
 *
 * Kernels of all operators are compiled together: one call of the compiler. */
#include "tests.h"
#include "ir/integer.h"
#include "op_samples.h"
#include "passes/passes.h"
#include "runtime/cpu/cpu.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TRIALS = 6 };
#define COUNT(a) (sizeof(a) / sizeof *(a))

static void make(Sample *s, Op op, DType dt, int trial)
{
    ck_assert_msg(sample_make(s, op, dt, trial), "%s has no sampler", op_table[op]->name);
    ck_assert_msg(!s->diag.failed && s->out[0].i, "%s, trial %d: %s", op_table[op]->name,
                  trial, s->diag.msg);
}

/* Returns the data of every value of the graph, as the reference computes it from the sample's operands. */
static void **evaluate(Sample *s)
{
    void **data = NEW(&s->arena, void *, s->g.nvals);
    for (int i = 0; i < s->nin; i++)
        data[s->in[i].i] = s->data[i].data;
    ck_assert_msg(graph_eval(&s->g, data, &s->arena, &s->diag), "%s: %s",
                  op_table[s->op]->name, s->diag.msg);
    return data;
}

/* ---- evaluation and text form -------------------------------------------------------- */

static void check_text(Sample *s)
{
    Graph copy;
    char *before = graph_text(&s->g);
    graph_init(&copy, &s->arena, &s->diag);
    ck_assert_msg(graph_parse(&copy, before, &s->diag) && graph_verify(&copy, &s->diag),
                  "%s\n%s", s->diag.msg, before);
    char *after = graph_text(&copy);
    ck_assert_str_eq(before, after);
    free(before);
    free(after);
}

START_TEST(evaluate_and_print)
{
    for (int op = 1; op < OP_COUNT; op++)
        for (int trial = 0; trial < 4 * TRIALS; trial++) {
            Sample s;
            make(&s, (Op)op, trial % 2 ? DT_F32 : DT_BF16, trial);
            ck_assert_msg(graph_verify(&s.g, &s.diag), "%s", s.diag.msg);
            evaluate(&s);
            check_text(&s);
            sample_free(&s);
        }
}
END_TEST

/* ---- gradients ----------------------------------------------------------------------- */

/* Builds sum(out[k] * weight) with random weights. */
static Val weighted_sum(Sample *s, int k)
{
    Type t = *val_type(&s->g, s->out[k]);
    Tensor w = {t, NEW(&s->arena, char, type_bytes(&t) + 1)};
    for (int64_t i = 0; i < type_count(&t); i++)
        tensor_set_f(&w, i, sample_real(s, -1, 1));
    Val weight = graph_const(&s->g, "weight", t, w.data);
    Val product = build2(&s->g, OP_mul, s->out[k], weight);
    return build_reduce(&s->g, OP_reduce_sum, product, (1u << t.rank) - 1, false);
}

/* Returns d of / d operand[j] by central differences, evaluating the first `norder` nodes. */
static double difference(Sample *s, Val of, uint32_t norder, Tensor *operand, int64_t j)
{
    const double h = 1e-5, x = tensor_f(operand, j);
    uint32_t whole = s->g.norder;
    double f[2];
    s->g.norder = norder;
    for (int side = 0; side < 2; side++) {
        tensor_set_f(operand, j, side ? x - h : x + h);
        Tensor t = {*val_type(&s->g, of), evaluate(s)[of.i]};
        f[side] = tensor_f(&t, 0);
    }
    tensor_set_f(operand, j, x);
    s->g.norder = whole;
    return (f[0] - f[1]) / (2 * h);
}

/* Appends the gradient of `of`, checks its types, and returns the data of every value of the graph. */
static void **differentiate(Sample *s, Val of, Val *grad)
{
    const char *name = op_table[s->op]->name;
    Val params[SAMPLE_IN] = {{0}}; /* masks are not learnt */
    for (int i = 0; i < s->nin; i++)
        if (s->g.vals[s->in[i].i].kind == VAL_PARAM)
            params[i] = s->in[i];
    ck_assert_msg(autodiff(&s->g, of, params, (uint32_t)s->nin, grad), "%s: %s", name,
                  s->diag.msg);
    ck_assert_msg(graph_verify(&s->g, &s->diag), "%s: %s", name, s->diag.msg);
    for (int i = 0; i < s->nin; i++) {
        Type want = type_with(s->data[i].type, dtype_sum(s->data[i].type.dt));
        ck_assert_msg(!grad[i].i || type_equal(val_type(&s->g, grad[i]), &want),
                      "%s: the gradient of operand %d has another type", name, i);
    }
    return evaluate(s);
}

static void check_gradient(Sample *s, int trial)
{
    int nout = op_table[s->op]->nout;
    Val of = weighted_sum(s, trial % nout), grad[SAMPLE_IN];
    uint32_t norder = s->g.norder;
    void **data = differentiate(s, of, grad);
    for (int i = 0; i < s->nin; i++) {
        if (s->g.vals[s->in[i].i].kind != VAL_PARAM)
            continue;
        int64_t n = type_count(&s->data[i].type), step = n / 6 + 1;
        for (int64_t j = 0; j < n; j += step) {
            Tensor t = {s->data[i].type, grad[i].i ? data[grad[i].i] : NULL};
            double got = grad[i].i ? tensor_f(&t, j) : 0;
            double want = difference(s, of, norder, &s->data[i], j);
            ck_assert_msg(
                fabs(got - want) <= 1e-6 * (1 + fabs(want)),
                "%s, trial %d: gradient of operand %d [%d] is %.9g, differences give "
                "%.9g",
                op_table[s->op]->name, trial, i, (int)j, got, want);
        }
    }
}

/* Has the operator a gradient that differences of its result confirm?  Not if it stands for a derivative
 * already, draws random numbers or updates a parameter; detach computes x, but its gradient is zero. */
static bool has_gradient(Op op)
{
    const OpDef *def = op_table[op];
    return (def->grad || (def->traits & OPT_ZEROGRAD)) && op != OP_detach && !(def->traits & OPT_ONCE);
}

static bool differentiable(const Sample *s)
{
    return has_gradient(s->op) && s->data[0].type.dt != DT_I64 && s->data[0].type.dt != DT_I32 &&
           val_type(&s->g, s->out[0])->dt == s->dt;
}

/* Does autodiff refuse the sample, with a message?  It refuses scatters by maximum, minimum and product, and
 * outputs that an operator has beside its result to keep them for its own gradient. */
static bool refused(const Sample *s, int trial)
{
    const ScatterAttrs *at = graph_def(&s->g, s->out[0])->attr;
    if (s->op == OP_scatter_elements || s->op == OP_scatter_nd)
        return at->reduction > SCATTER_ADD;
    return (s->op == OP_batch_norm || s->op == OP_cross_entropy || s->op == OP_attention) &&
           trial % op_table[s->op]->nout > 0;
}

START_TEST(gradients)
{
    for (int op = 1; op < OP_COUNT; op++) {
        int checked = 0;
        bool real = false; /* the operator has a gradient and a float result */
        for (int trial = 0; trial < TRIALS; trial++) {
            Sample s;
            make(&s, (Op)op, DT_F64, trial);
            bool check = differentiable(&s) && !refused(&s, trial);
            if (check)
                check_gradient(&s, trial);
            checked += check;
            real |= op_table[op]->grad && has_gradient((Op)op) &&
                    dtype_is_float(val_type(&s.g, s.out[0])->dt);
            sample_free(&s);
        }
        ck_assert_msg(checked > 0 || !real, "%s: no gradient was checked", op_table[op]->name);
    }
}
END_TEST

/* The gradient of a 16-bit parameter has the type in which its elements are summed, f32. */
START_TEST(gradients_of_halves)
{
    for (int op = 1; op < OP_COUNT; op++)
        for (int trial = 0; trial < TRIALS; trial++) {
            Sample s;
            Val grad[SAMPLE_IN];
            make(&s, (Op)op, trial % 2 ? DT_BF16 : DT_F16, trial);
            if (differentiable(&s) && !refused(&s, 0))
                differentiate(&s, weighted_sum(&s, 0), grad);
            sample_free(&s);
        }
}
END_TEST

/* ---- attributes and operands from a hostile file ------------------------------------- */

/* Replaces one number of one attribute by one that is likely not to fit. */
static void spoil(Sample *s, const OpDef *def, void *attr)
{
    static const int64_t nasty[] = {-1,        0,         1,         2,         3,
                                    7,         -3,        1000,      INT32_MAX, INT32_MIN,
                                    INT64_MAX, INT64_MIN, 1LL << 40, 1LL << 62};
    const AttrDef *a = &def->attrs[sample_int(s, 0, (int)def->nattrs - 1)];
    char *at = (char *)attr + a->off;
    int64_t v = nasty[sample_int(s, 0, (int)(sizeof nasty / sizeof *nasty) - 1)];
    Ints *list = (Ints *)(void *)at;
    if (a->type == AT_F64)
        *(double *)(void *)at = (double)v;
    else if (a->type == AT_DTYPE)
        *(int64_t *)(void *)at = sample_int(s, DT_F32, DT_COUNT - 1);
    else if (a->type == AT_I64)
        *(int64_t *)(void *)at = v;
    else if (sample_int(s, 0, 3) == 0)
        list->n = sample_int(s, 0, MAX_INTS);
    else if (list->n)
        list->v[sample_int(s, 0, list->n - 1)] = v;
}

/* Replaces one operand by one with random integers, perhaps of another type, extent or rank. */
static void swap_operand(Sample *s)
{
    int i = sample_int(s, 0, s->nin - 1);
    Type t = s->data[i].type;
    if (sample_int(s, 0, 2) == 0)
        t.dt = (DType)sample_int(s, DT_F32, DT_COUNT - 1);
    if (t.rank && sample_int(s, 0, 1))
        t.dim[sample_int(s, 0, t.rank - 1)] = sample_int(s, 0, 9);
    else if (t.rank < MAX_RANK && sample_int(s, 0, 1))
        t.dim[t.rank++] = sample_int(s, 0, 3);
    else if (t.rank && sample_int(s, 0, 1))
        t.dim[--t.rank] = 0;
    s->data[i] = (Tensor){t, NEW(&s->arena, char, type_bytes(&t) + 1)};
    for (int64_t j = 0; j < type_count(&t); j++)
        tensor_set_i(&s->data[i], j, sample_int(s, -20, 20));
    s->in[i] = graph_value(&s->g, "swapped", t, VAL_INPUT);
}

/* Checks that an operator with one attribute or operand spoiled is refused with a message, or reads and
 * writes only inside its operands (sanitizers watch). */
static void try_hostile(Op op, int trial)
{
    Sample s;
    Val out[MAX_OUT];
    make(&s, op, DT_F32, trial);
    void *attr = arena_alloc(&s.arena, 1, op_table[op]->attr_size + 1);
    if (op_table[op]->attr_size)
        memcpy(attr, graph_def(&s.g, s.out[0])->attr, op_table[op]->attr_size);
    s.g.norder = 0;
    if (trial % 2 && op_table[op]->nattrs)
        spoil(&s, op_table[op], attr);
    else
        swap_operand(&s);
    bool small = build_n(&s.g, s.op, NULL, s.nin, s.in, attr, MAX_OUT, out);
    for (int i = 0; i < op_table[op]->nout && small; i++)
        small = type_bytes(val_type(&s.g, out[i])) < 1 << 20;
    if (small)
        evaluate(&s);
    ck_assert(!s.diag.failed || s.diag.msg[0]);
    sample_free(&s);
}

START_TEST(hostile)
{
    for (int op = 1; op < OP_COUNT; op++)
        for (int trial = 0; trial < 200; trial++)
            try_hostile((Op)op, trial);
}
END_TEST

/* ---- generated C --------------------------------------------------------------------- */

typedef struct {
    Sample s;
    int trial;
    Command of;
} Compiled;

/* Returns what outputs may differ by, relative to their largest element (at least 1). */
static double tolerance(const Compiled *c)
{
    bool half = false, f64 = true;
    for (int i = 0; i < c->of.k.noperands; i++) {
        half |= c->of.k.operand[i] == DT_BF16 || c->of.k.operand[i] == DT_F16;
        f64 &= c->of.k.operand[i] != DT_F32;
    }
    return half ? 0x1p-6 : f64 ? 1e-12 : 2e-5;
}

static void lower_sample(Compiled *c)
{
    Graph *g = &c->s.g;
    bool *live = NEW(&c->s.arena, bool, g->nvals);
    memset(live, true, g->nvals);
    ck_assert_msg(lower(&c->of, &c->s.arena, g, g->order, 1, live, &c->s.diag),
                  "%s: %s", op_table[c->s.op]->name, c->s.diag.msg);
}

static void compare(const Compiled *c, const Tensor *got, const Tensor *want)
{
    double scale = 1, tol = tolerance(c);
    for (int64_t j = 0; j < type_count(&want->type); j++) {
        double w = fabs(tensor_f(want, j));
        scale = isfinite(w) && w > scale ? w : scale;
    }
    for (int64_t j = 0; j < type_count(&want->type); j++) {
        double a = tensor_f(got, j), b = tensor_f(want, j);
        bool same = a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= tol * scale;
        if (!same)
            ck_abort_msg("%s %s, trial %d: element %d is %.9g in C, %.9g in the reference",
                         op_table[c->s.op]->name, dtype_name[c->s.dt], c->trial, (int)j, a, b);
    }
}

/* Checks that the items of a kernel's body, run in reverse order, write all elements with want's bits. */
static void check_items(Compiled *c, void *const *op, const Tensor *want)
{
    Tensor t[2 * SAMPLE_IN + MAX_OUT];
    for (int i = 0; i < c->of.nread + c->of.nwrite; i++)
        t[i] = (Tensor){*val_type(&c->s.g, c->of.vals[i]), op[i]};
    for (int i = 0; i < c->of.nwrite; i++)
        memset(op[c->of.nread + i], 0xa5, (size_t)type_bytes(&want[i].type));
    for (int64_t i = c->of.k.items; i-- > 0;)
        c->of.k.body->ref(i, c->of.k.p, c->of.k.q, t);
    for (int i = 0; i < c->of.nwrite; i++)
        ck_assert_msg(
            memcmp(op[c->of.nread + i], want[i].data, (size_t)type_bytes(&want[i].type)) == 0,
            "%s, trial %d: the order of items matters", op_table[c->s.op]->name, c->trial);
}

static void run_and_compare(Compiled *c, KernelFn *fn)
{
    void *op[2 * SAMPLE_IN + MAX_OUT], **data = evaluate(&c->s);
    Tensor want[MAX_OUT], got[MAX_OUT];
    for (int i = 0; i < c->of.nread; i++)
        op[i] = data[c->of.vals[i].i];
    for (int i = 0; i < c->of.nwrite; i++) {
        Val v = c->of.vals[c->of.nread + i];
        Type t = *val_type(&c->s.g, v);
        want[i] = (Tensor){t, data[v.i]};
        got[i] = (Tensor){t, NEW(&c->s.arena, char, type_bytes(&t) + 1)};
        op[c->of.nread + i] = got[i].data;
    }
    fn(op);
    for (int i = 0; i < c->of.nwrite; i++)
        compare(c, &got[i], &want[i]);
    if (c->of.k.body)
        check_items(c, op, want);
}

/* Is the operator a copy, which every device makes without kernel text? */
static bool is_copied(Op op) { return op == OP_concat || op == OP_offload || op == OP_fetch; }

START_TEST(generated_c)
{
    static const DType types[] = {DT_F32, DT_F64, DT_BF16, DT_F32, DT_F16, DT_F32};
    int n = 0;
    KernelFn **fn = calloc(OP_COUNT * TRIALS, sizeof *fn);
    Compiled *all = calloc(OP_COUNT * TRIALS, sizeof *all);
    const Kernel **k = calloc(OP_COUNT * TRIALS, sizeof *k);
    for (int op = 1; op < OP_COUNT; op++)
        for (int trial = 0; trial < TRIALS && !is_copied((Op)op); trial++, n++) {
            all[n].trial = trial;
            make(&all[n].s, (Op)op, types[trial], trial);
            lower_sample(&all[n]);
            k[n] = &all[n].of.k;
        }
    KernelObjects objects;
    Diag d = {0};
    ck_assert_msg(kernels_load(k, n, NULL, fn, &objects, &d), "%s", d.msg);
    for (int i = 0; i < n; i++) {
        run_and_compare(&all[i], fn[i]);
        sample_free(&all[i].s);
    }
    kernels_unload(&objects);
    free(all);
    free(fn);
    free(k);
}
END_TEST

/* The gradient of a sampled image has the same bits however many rows of it an item owns: positions are added
 * in their order. */
START_TEST(shares_of_an_image_add_alike)
{
    for (int trial = 0; trial < 60; trial++) {
        Compiled c = {.trial = trial};
        Tensor t[3];
        make(&c.s, OP_grid_sample_bwd_data, DT_F32, trial);
        lower_sample(&c);
        Kernel k = c.of.k;
        int64_t rows = k.p[3 - k.p[6]], whole = k.items / k.p[13];
        void **data = evaluate(&c.s);
        for (int i = 0; i < 3; i++)
            t[i] = (Tensor){*val_type(&c.s.g, c.of.vals[i]), data[c.of.vals[i].i]};
        Tensor want = t[2];
        t[2].data = NEW(&c.s.arena, char, type_bytes(&want.type) + 1);
        for (int64_t own = 1; own <= rows; own++) {
            k.p[14] = own;
            k.p[13] = ceil_div(rows, own);
            for (int64_t i = 0; i < whole * k.p[13]; i++)
                k.body->ref(i, k.p, k.q, t);
            ck_assert_mem_eq(t[2].data, want.data, (size_t)type_bytes(&want.type));
        }
        sample_free(&c.s);
    }
}
END_TEST

/* A conversion to integers is defined for every real, in kernels as in the reference. */
START_TEST(reals_become_integers)
{
    static const double x[] = {1.9, -1.9, 3e38, -3e38, INFINITY, -INFINITY, NAN};
    static const int64_t want[] = {1,         -1,        INT64_MAX, INT64_MIN,
                                   INT64_MAX, INT64_MIN, INT64_MIN};
    for (int i = 0; i < 4; i++) {
        Compiled c = {.s = {.op = OP_cast, .dt = i % 2 ? DT_F64 : DT_F32, .nin = 1}};
        Graph *g = &c.s.g;
        Type t = {.dt = c.s.dt, .rank = 1, .dim = {COUNT(x)}};
        graph_init(g, &c.s.arena, &c.s.diag);
        c.s.in[0] = graph_value(g, "x", t, VAL_INPUT);
        c.s.data[0] = (Tensor){t, NEW(&c.s.arena, double, COUNT(x))};
        for (int j = 0; j < (int)COUNT(x); j++)
            tensor_set_f(&c.s.data[0], j, x[j]);
        c.s.out[0] = build_cast(g, c.s.in[0], i < 2 ? DT_I64 : DT_I32);
        graph_add_out(g, c.s.out[0]);
        lower_sample(&c);
        KernelObjects objects;
        KernelFn *fn;
        const Kernel *k = &c.of.k;
        ck_assert_msg(kernels_load(&k, 1, NULL, &fn, &objects, &c.s.diag), "%s", c.s.diag.msg);
        int64_t got[COUNT(x)];
        fn((void *[]){c.s.data[0].data, got});
        void *ref = evaluate(&c.s)[c.s.out[0].i];
        Type to = *val_type(g, c.s.out[0]);
        for (int j = 0; j < (int)COUNT(x); j++) {
            int64_t w = i < 2 ? want[j] : (int32_t)(uint64_t)want[j];
            ck_assert_int_eq(tensor_i(&(Tensor){to, ref}, j), w);
            ck_assert_int_eq(tensor_i(&(Tensor){to, got}, j), w);
        }
        kernels_unload(&objects);
        sample_free(&c.s);
    }
}
END_TEST

/* Returns the cost of the most expensive function in an operator's text. */
static ExprCost cost_of(const char *text)
{
    static const char *const plain[] = {"FLOOR", "CEIL", "RINT", "TRUNC", "FABS", "FMAX", "FMIN", "ISNAN",
                                        "ISINF", "DIV", "BITOP", "PICK", "R"};
    ExprCost cost = EXPR_ARITH;
    for (const char *p = text; *p; p++) {
        char word[32];
        int n = 0;
        if (sscanf(p, "%31[A-Z0-9_]%n", word, &n) != 1 || p[n] != '(')
            continue;
        bool cheap = false;
        for (size_t i = 0; i < COUNT(plain); i++)
            cheap |= strcmp(word, plain[i]) == 0;
        ExprCost of = cheap ? EXPR_ARITH : strcmp(word, "SQRT") == 0 ? EXPR_SQRT : EXPR_CALL;
        cost = of > cost ? of : cost;
        p += n;
    }
    return cost;
}

START_TEST(costs_are_of_the_text)
{
    for (int op = 1; op < OP_COUNT; op++) {
        const Expr *e = &op_table[op]->expr;
        ck_assert_msg(!e->text || e->cost == cost_of(e->text), "%s has another cost", e->name);
    }
}
END_TEST

/* No unary function that has a derivative makes a number of NaN, so that a step that went wrong is seen. */
START_TEST(nan_passes)
{
    for (int op = 1; op < OP_COUNT; op++) {
        const OpDef *d = op_table[op];
        if (d->expr.f && d->max_in == 1 && d->grad && !(d->traits & OPT_ZEROGRAD))
            ck_assert_msg(isnan(d->expr.f(NAN, 0, 0, 0.5, 0.5)), "%s of NaN is a number", d->name);
    }
}
END_TEST

/* Where one logit stands out, loss and gradient are small and still exact to their own size. */
START_TEST(small_losses_are_exact)
{
    static const char text[] =
        "graph {\n  input %x: f32[2,4]\n  input %t: i64[2]\n  input %d: f32[2]\n"
        "  %l: f32[2], %top: f32[2], %s: f32[2] = cross_entropy %x, %t {axis=1}\n"
        "  %g: f32[2,4] = cross_entropy_bwd %d, %x, %t, %top, %s {axis=1}\n  output %l\n  output %g\n}\n";
    float x[2][4] = {{20.3f, 12.1f, 11.7f, 9.9f}, {-31.4f, -33.3f, -24.1f, -40.2f}}, one[2] = {1, 1};
    int64_t t[2] = {0, 2};
    Sample s = {.op = OP_cross_entropy, .nin = 3};
    graph_init(&s.g, &s.arena, &s.diag);
    ck_assert_msg(graph_parse(&s.g, text, &s.diag), "%s", s.diag.msg);
    void *data[] = {x, t, one};
    for (uint32_t v = 1, i = 0; i < 3; v++)
        if (s.g.vals[v].kind == VAL_INPUT) {
            s.in[i] = (Val){v};
            s.data[i] = (Tensor){s.g.vals[v].type, data[i]};
            i++;
        }
    void **got = evaluate(&s);
    const float *loss = got[s.g.out[0].i], *grad = got[s.g.out[1].i];
    for (int i = 0; i < 2; i++) {
        double others = 0;
        for (int j = 0; j < 4; j++)
            others += j == t[i] ? 0 : exp((double)x[i][j] - (double)x[i][t[i]]);
        ck_assert_double_eq_tol(loss[i], log1p(others), 1e-3 * others);
        ck_assert_double_eq_tol(grad[4 * i + t[i]], -others / (1 + others), 1e-4 * others);
    }
    sample_free(&s);
}
END_TEST

Suite *suite_ops(void)
{
    Suite *s = suite_create("ops");
    TCase *c = tcase_create("ops");
    tcase_add_test(c, evaluate_and_print);
    tcase_add_test(c, gradients);
    tcase_add_test(c, gradients_of_halves);
    tcase_add_test(c, costs_are_of_the_text);
    tcase_add_test(c, nan_passes);
    tcase_add_test(c, small_losses_are_exact);
    tcase_add_test(c, generated_c);
    tcase_add_test(c, reals_become_integers);
    tcase_add_test(c, shares_of_an_image_add_alike);
    suite_add_tcase(s, c);
    c = tcase_create("hostile");
    tcase_set_timeout(c, 120); /* no loop is as long as an attribute says */
    tcase_add_test(c, hostile);
    suite_add_tcase(s, c);
    return s;
}
