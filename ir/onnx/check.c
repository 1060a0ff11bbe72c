/* check.c -- compares a folder of ONNX's test layout with the reference evaluator. */
#include "onnx_int.h"
#include <math.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    const char *folder;
    int set;
    double rtol, atol;
    Arena arena;
    Diag *d;
} Check;

static const char *path_of(Check *c, const char *kind, int k)
{
    return arena_printf(&c->arena, "%s/test_data_set_%d/%s_%d.pb", c->folder, c->set, kind, k);
}

static bool exists(const char *path) { return access(path, F_OK) == 0; }

/* Reads one file per input, in their order; inputs with a default value have one, too, or
 * are left out. */
static bool read_feeds(Check *c, const OnnxModel *m, OnnxOptions *opt)
{
    const Onnx__GraphProto *gp = m->proto->graph;
    OnnxFeed *feed = NEW(&c->arena, OnnxFeed, gp->n_input + 1);
    bool all = gp->n_input && exists(path_of(c, "input", (int)gp->n_input - 1));
    for (size_t i = 0; i < gp->n_input; i++) {
        const char *name = pb(gp->input[i]->name), *path = path_of(c, "input", opt->nfeed);
        if ((!all && model_initializer(m, name)) || !exists(path))
            continue;
        if (!gp->input[i]->type || gp->input[i]->type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE)
            return fail_status(c->d, EXIT_UNSUPPORTED, "input '%s' is not a tensor", name);
        feed[opt->nfeed].name = name;
        TRY(onnx_read_tensor(path, &c->arena, &feed[opt->nfeed].t, c->d));
        opt->nfeed++;
    }
    opt->feed = feed;
    return true;
}

/* The relative tolerance: at least two units of spacing for 16-bit numbers. */
static double tolerance(DType dt, double rtol)
{
    double spacing = dt == DT_BF16 ? 0x1p-7 : dt == DT_F16 ? 0x1p-10 : 0;
    return fmax(rtol, 2 * spacing);
}

static bool close_enough(double got, double want, double rtol, double atol)
{
    if (isnan(want) || isinf(want))
        return isnan(want) ? isnan(got) : got == want;
    return fabs(got - want) <= atol + rtol * fabs(want);
}

bool onnx_compare(const char *name, const Tensor *got, const Tensor *want, double rtol, double atol, Diag *d)
{
    char a[160], b[160];
    if (!type_same_shape(&got->type, &want->type))
        return fail(d, "output '%s' is %s, expected %s", name, type_str(&got->type, a),
                    type_str(&want->type, b));
    int64_t count = type_count(&got->type), wrong = 0, first = 0;
    bool real = dtype_is_float(got->type.dt) || dtype_is_float(want->type.dt);
    for (int64_t i = count; i-- > 0;) {
        bool same = real ? close_enough(tensor_f(got, i), tensor_f(want, i), rtol, atol)
                         : tensor_i(got, i) == tensor_i(want, i);
        if (!same) {
            wrong++;
            first = i;
        }
    }
    return !wrong || fail(d, "output '%s': %lld of %lld elements differ, [%lld] is %.9g, expected %.9g", name,
                          (long long)wrong, (long long)count, (long long)first, tensor_f(got, first),
                          tensor_f(want, first));
}

static bool compare(Check *c, const char *name, const Tensor *got, const Tensor *want)
{
    char a[160], b[160];
    if (got->type.dt != want->type.dt)
        return fail(c->d, "output '%s' is %s, expected %s", name, type_str(&got->type, a),
                    type_str(&want->type, b));
    return onnx_compare(name, got, want, tolerance(got->type.dt, c->rtol), c->atol, c->d);
}

/* The result of random operators is not defined by the standard. */
static bool is_random(const Graph *g)
{
    for (uint32_t i = 0; i < g->norder; i++)
        if (node_def(&g->nodes[g->order[i].i])->traits & OPT_RANDOM)
            return true;
    return false;
}

static bool run(Check *c, OnnxModel *m, const OnnxOptions *opt)
{
    Graph g;
    int64_t seed[2] = {0, 1};
    graph_init(&g, &c->arena, c->d);
    TRY(onnx_import(m, opt, &g, c->d));
    if (is_random(&g))
        return fail_status(c->d, EXIT_UNSUPPORTED, "random numbers cannot be compared");
    void **data = NEW(&c->arena, void *, g.nvals);
    data[graph_find(&g, "rng").i] = seed;
    data[0] = NULL;
    TRY(graph_eval(&g, data, &c->arena, c->d));
    for (uint32_t k = 0; k < g.nout; k++) {
        Tensor want, got = {*val_type(&g, g.out[k]), data[g.out[k].i]};
        TRY(onnx_read_tensor(path_of(c, "output", (int)onnx_output_index(m, k)), &c->arena, &want, c->d));
        TRY(compare(c, onnx_output_name(m, k), &got, &want));
    }
    return true;
}

static bool check_set(Check *c, OnnxModel *m)
{
    OnnxOptions opt = {.forward_only = true};
    return read_feeds(c, m, &opt) && run(c, m, &opt);
}

OnnxVerdict onnx_check_folder(const char *folder, double rtol, double atol, Diag *why)
{
    Check c = {.folder = folder, .rtol = rtol, .atol = atol, .d = why};
    OnnxModel *m = onnx_open(arena_printf(&c.arena, "%s/model.onnx", folder), why);
    bool ok = m != NULL;
    while (ok && (c.set == 0 || exists(path_of(&c, "output", 0)))) {
        ok = check_set(&c, m);
        c.set++;
    }
    onnx_close(m);
    arena_free(&c.arena);
    return ok ? ONNX_PASSED : why->status == EXIT_UNSUPPORTED ? ONNX_REFUSED : ONNX_FAILED;
}
