/* test_op_goldens.c -- single operators and their gradients against PyTorch's numbers.
 *
 * tests/data/ops holds ONNX models of one operator with inputs, outputs, cotangents and the
 * gradients that PyTorch computed in double precision (tests/torch/op_goldens.py).  Here each is
 * imported, differentiated and interpreted in double precision. */
#include "tests.h"
#include "passes/passes.h"
#include "runtime/data.h"
#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char folder[] = CKC_SOURCE_DIR "/tests/data/ops";

typedef struct {
    Arena arena, tmp;
    Diag diag;
    Graph g;
    OnnxModel *model;
    DataFile *data;
    int compared;
} Case;

static bool case_open(Case *c, const char *name)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s.npz", folder, name);
    c->data = data_open(path, &c->diag);
    snprintf(path, sizeof path, "%s/%s.onnx", folder, name);
    c->model = onnx_open(path, &c->diag);
    graph_init(&c->g, &c->arena, &c->diag);
    if (!c->data || !c->model)
        return false;
    StepOptions opt = {.model = c->model, .import.forward_only = true, .f64 = true};
    StepInfo info = {.loss = {0}};
    PassCtx cx = {.diag = &c->diag, .tmp = &c->tmp, .opt = &opt, .info = &info};
    return passes_run(&c->g, &cx, &(PassRun){.only = "bind"});
}

static void case_close(Case *c)
{
    data_close(c->data);
    onnx_close(c->model);
    arena_free(&c->arena);
    arena_free(&c->tmp);
}

/* Reads the entry KIND/NAME, converted to dt, into the case's arena; false: there is none. */
static bool entry(Case *c, const char *kind, const char *name, DType dt, Tensor *out)
{
    char key[600];
    Tensor t;
    snprintf(key, sizeof key, "%s/%s", kind, name);
    if (data_find(c->data, key) < 0 || !data_get(c->data, key, &t, &c->diag))
        return false;
    *out = (Tensor){type_with(t.type, dt), NULL};
    out->data = NEW(&c->arena, char, type_bytes(&out->type) + 8);
    for (int64_t i = 0; i < type_count(&t.type); i++)
        if (dtype_is_float(dt))
            tensor_set_f(out, i, tensor_f(&t, i));
        else
            tensor_set_i(out, i, tensor_i(&t, i));
    return true;
}

/* Builds the sum over all elements of output * cotangent; {0}: no output has a cotangent. */
static Val weighted_sum(Case *c)
{
    Val sum = {0};
    for (uint32_t k = 0; k < c->g.nout; k++) {
        Val v = c->g.out[k];
        const Type *t = val_type(&c->g, v);
        Tensor cot;
        if (!dtype_is_float(t->dt) ||
            !entry(c, "cotangent", onnx_output_name(c->model, k), t->dt, &cot))
            continue;
        Val w = graph_const(&c->g, "cotangent", *t, cot.data);
        Val s = build_cast(&c->g, build2(&c->g, OP_mul, v, w), DT_F64);
        s = build_reduce(&c->g, OP_reduce_sum, s, (1u << t->rank) - 1, false);
        sum = sum.i ? build2(&c->g, OP_add, sum, s) : s;
    }
    return sum;
}

/* Returns the largest difference, relative to the largest finite value wanted (at least 1); infinite if the
 * shapes differ. */
static double difference(const Tensor *got, const Tensor *want)
{
    double worst = 0, size = 1;
    if (!type_same_shape(&got->type, &want->type))
        return INFINITY;
    for (int64_t i = 0; i < type_count(&want->type); i++) {
        double g = tensor_f(got, i), w = tensor_f(want, i);
        if (isnan(g) && isnan(w))
            continue;
        if (g == w)
            continue;
        worst = fmax(worst, isnan(g - w) ? INFINITY : fabs(g - w));
        size = isfinite(w) ? fmax(size, fabs(w)) : size;
    }
    return worst / size;
}

static bool compare(Case *c, const char *kind, const char *name, Val v, void **data, double tol)
{
    Tensor want, got = {*val_type(&c->g, v), data[v.i]};
    if (!entry(c, kind, name, DT_F64, &want))
        return true;
    c->compared++;
    double d = got.data ? difference(&got, &want) : INFINITY;
    return d <= tol || fail(&c->diag, "%s/%s differs by %.2g", kind, name, d);
}

static bool case_check(Case *c)
{
    Graph *g = &c->g;
    Val inputs[64], grad[64];
    uint32_t n = 0;
    for (uint32_t v = 1; v < g->nvals && n < 64; v++)
        if (g->vals[v].kind == VAL_INPUT && dtype_is_float(g->vals[v].type.dt))
            inputs[n++].i = v;
    bool low = false; /* a 16-bit float anywhere: its rounding decides the tolerance */
    for (uint32_t v = 1; v < g->nvals; v++)
        low |= g->vals[v].type.dt == DT_F16 || g->vals[v].type.dt == DT_BF16;
    Val loss = weighted_sum(c);
    TRY(!c->diag.failed);
    if (loss.i)
        TRY(autodiff(g, loss, inputs, n, grad));
    void **data = NEW(&c->arena, void *, g->nvals);
    for (uint32_t v = 1; v < g->nvals; v++) {
        Tensor t;
        if (g->vals[v].kind == VAL_INPUT &&
            entry(c, "input", g->vals[v].name, g->vals[v].type.dt, &t))
            data[v] = t.data;
    }
    TRY(graph_eval(g, data, &c->arena, &c->diag));
    double tol = low ? 2e-2 : 1e-5;
    for (uint32_t k = 0; k < g->nout; k++)
        TRY(compare(c, "output", onnx_output_name(c->model, k), g->out[k], data, tol));
    for (uint32_t i = 0; i < n && loss.i; i++) {
        Tensor want;
        const char *name = g->vals[inputs[i].i].name;
        if (!entry(c, "grad", name, DT_F64, &want))
            continue;
        if (!grad[i].i) { /* no path to the input: PyTorch's gradient must be zero */
            Tensor zero = {want.type, NEW(&c->arena, char, type_bytes(&want.type) + 8)};
            if (difference(&zero, &want) > 0)
                return fail(&c->diag, "grad/%s: no gradient", name);
            continue;
        }
        TRY(compare(c, "grad", name, grad[i], data, tol));
    }
    return c->compared > 0 || fail(&c->diag, "nothing to compare with");
}

START_TEST(operators)
{
    DIR *d = opendir(folder);
    int passed = 0, refused = 0, failed = 0;
    ck_assert_ptr_nonnull(d);
    for (struct dirent *e; (e = readdir(d));) {
        char name[256];
        size_t len = strlen(e->d_name);
        if (len < 6 || strcmp(e->d_name + len - 5, ".onnx") != 0 || len % 4 != (size_t)_i)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)(len - 5), e->d_name);
        Case c = {.model = NULL};
        bool ok = case_open(&c, name) && case_check(&c);
        passed += ok;
        refused += !ok && c.diag.status == EXIT_UNSUPPORTED;
        failed += !ok && c.diag.status != EXIT_UNSUPPORTED;
        if (!ok)
            printf("%s %s: %.200s\n", c.diag.status == EXIT_UNSUPPORTED ? "refused" : "FAILED", name,
                   c.diag.msg);
        case_close(&c);
    }
    closedir(d);
    fflush(stdout);
    printf("operators against PyTorch: %d passed, %d refused, %d failed\n", passed, refused, failed);
    ck_assert_int_eq(failed + refused, 0);
    ck_assert_int_gt(passed, 0);
}
END_TEST

Suite *suite_op_goldens(void)
{
    Suite *s = suite_create("op_goldens");
    TCase *c = tcase_create("op_goldens");
    tcase_add_loop_test(c, operators, 0, 4);
    suite_add_tcase(s, c);
    return s;
}
