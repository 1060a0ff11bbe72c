/* test_emit_onnx.c -- --emit onnx without Python: the models that it writes, of every operator on random
 * operands and of whole steps, are read by ckc's importer and give the results of ckc. */
#include "tests.h"
#include "codegen/codegen.h"
#include "command.h"
#include "ir/onnx/onnx.h"
#include "op_samples.h"
#include "runtime/data.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- a model that was written, evaluated --------------------------------------------------------- */

typedef struct {
    Arena arena;
    Diag diag;
    Graph g;
    OnnxModel *model;
    void **data;
} Emitted;

static void emitted_open(Emitted *e, const char *path)
{
    OnnxOptions how = {.forward_only = true};
    *e = (Emitted){.model = NULL};
    graph_init(&e->g, &e->arena, &e->diag);
    e->model = onnx_open(path, &e->diag);
    ck_assert_msg(e->model && onnx_import(e->model, &how, &e->g, &e->diag), "%s", e->diag.msg);
    e->data = NEW(&e->arena, void *, e->g.nvals);
}

/* Sets the input of that name; an input that nothing reads may be missing. */
static void emitted_feed(Emitted *e, const char *name, const Tensor *t)
{
    for (uint32_t v = 1; v < e->g.nvals; v++)
        if (e->g.vals[v].kind != VAL_TEMP && strcmp(graph_model_name(&e->g, (Val){v}), name) == 0) {
            ck_assert(type_equal(val_type(&e->g, (Val){v}), &t->type));
            e->data[v] = t->data;
        }
}

static void emitted_run(Emitted *e)
{
    ck_assert_msg(graph_eval(&e->g, e->data, &e->arena, &e->diag), "%s", e->diag.msg);
}

static Tensor emitted_result(Emitted *e, uint32_t k)
{
    Val v = e->g.out[k];
    return (Tensor){*val_type(&e->g, v), e->data[v.i]};
}

static void emitted_close(Emitted *e)
{
    onnx_close(e->model);
    arena_free(&e->arena);
}

/* ---- every operator ------------------------------------------------------------------------------------ */

static bool sample_value(void *user, Val v, Tensor *t, Diag *d)
{
    const Sample *s = user;
    (void)d;
    const void *data = s->g.vals[v.i].data;
    for (int i = 0; i < s->nin && !data; i++)
        data = s->in[i].i == v.i ? s->data[i].data : NULL;
    if (data) /* NULL: an operand that the sampler left out in the end */
        memcpy(t->data, data, (size_t)type_bytes(&t->type));
    return true;
}

/* Writes the sample as an ONNX model; false: it has no translation, and s->diag says why. */
static bool sample_emit(Sample *s, const char *path)
{
    NewFile model, data;
    Plan p = {.g = &s->g};
    plan_cut(&p, &s->arena);
    p.offset = NEW(&s->arena, int64_t, s->g.nvals);
    ck_assert(file_create(&model, path, &s->diag) && file_create(&data, "s.onnx.data", &s->diag));
    const char **name = NEW(&s->arena, const char *, s->g.nout + 1);
    for (uint32_t k = 0; k < s->g.nout; k++)
        name[k] = s->g.vals[s->g.out[k].i].name;
    OnnxStep how = {name, s->g.nout, sample_value, s, &data, "s.onnx.data"};
    bool ok = codegen_onnx(model.f, &p, &how, &s->diag);
    ck_assert(file_commit(&data, &(Diag){.failed = false}));
    if (ok)
        ck_assert(file_commit(&model, &s->diag));
    else
        file_abandon(&model);
    return ok;
}

static void same_result(const Sample *s, int trial, const Tensor *got, const Tensor *want)
{
    ck_assert(type_equal(&got->type, &want->type));
    for (int64_t i = 0; i < type_count(&want->type); i++) {
        double x = tensor_f(got, i), y = tensor_f(want, i);
        bool same = x == y || (isnan(x) && isnan(y)) || fabs(x - y) <= 2e-5 * fmax(1, fabs(y));
        ck_assert_msg(same, "%s, trial %d, element %lld: %.9g, not %.9g", op_table[s->op]->name, trial,
                      (long long)i, x, y);
    }
}

static void check_sample(Sample *s, int trial)
{
    Emitted e;
    void **data = NEW(&s->arena, void *, s->g.nvals);
    for (int i = 0; i < s->nin; i++)
        data[s->in[i].i] = s->data[i].data;
    ck_assert(graph_eval(&s->g, data, &s->arena, &s->diag));
    if (!sample_emit(s, "s.onnx")) {
        ck_assert_int_eq(s->diag.status, EXIT_UNSUPPORTED);
        ck_assert_msg(strstr(s->diag.msg, "rounded") || s->op == OP_bitshl || s->op == OP_bitshr ||
                          s->op == OP_scatter_nd,
                      "%s", s->diag.msg);
        return;
    }
    emitted_open(&e, "s.onnx");
    for (int i = 0; i < s->nin; i++)
        if (s->in[i].i && s->g.vals[s->in[i].i].kind == VAL_INPUT)
            emitted_feed(&e, s->g.vals[s->in[i].i].name, &s->data[i]);
    emitted_run(&e);
    for (uint32_t k = 0; k < s->g.nout; k++) {
        Tensor want = {*val_type(&s->g, s->g.out[k]), data[s->g.out[k].i]}, got = emitted_result(&e, k);
        same_result(s, trial, &got, &want);
    }
    emitted_close(&e);
}

/* Whether the sample has a value without elements: many operators are refused then. */
static bool has_empty(const Sample *s)
{
    bool empty = false;
    for (uint32_t v = 1; v < s->g.nvals; v++)
        empty |= type_count(val_type(&s->g, (Val){v})) == 0;
    return empty;
}

START_TEST(operators_are_standard_ones)
{
    enum { TRIALS = 4 };
    for (int op = 1; op < OP_COUNT; op++)
        for (int trial = 0; trial < TRIALS; trial++) {
            Sample s;
            ck_assert(sample_make(&s, (Op)op, DT_F32, trial));
            if (!has_empty(&s))
                check_sample(&s, trial);
            sample_free(&s);
        }
}
END_TEST

/* The maximum of f32 numbers that are widened to f64 has a translation. */
START_TEST(numbers_are_compared_as_in_memory)
{
    static float x[] = {1, 4, 2, 3};
    Sample s = {.op = OP_reduce_max, .nin = 1};
    graph_init(&s.g, &s.arena, &s.diag);
    ck_assert_msg(graph_parse(&s.g,
                              "graph {\n"
                              "  input %x: f32[2,2]\n"
                              "  %d: f64[2,2] = cast %x {dtype=f64}\n"
                              "  %y: f64[2] = reduce_max %d {axes=[0], keepdims=0}\n"
                              "  output %y\n"
                              "}\n",
                              &s.diag),
                  "%s", s.diag.msg);
    s.in[0] = graph_find(&s.g, "x");
    s.data[0] = (Tensor){*val_type(&s.g, s.in[0]), x};
    check_sample(&s, 0);
    sample_free(&s);
}
END_TEST

/* ---- whole steps -------------------------------------------------------------------------------------- */

#define EXAMPLE CKC_SOURCE_DIR "/examples/mlp/model.onnx --bind batch=4 --device cpu --data d.npz "
#define MLP EXAMPLE "--lr 0.05 "

static void write_data(void)
{
    float x[4 * 16];
    int64_t target[4] = {3, 1, 4, 1};
    for (int i = 0; i < 4 * 16; i++)
        x[i] = (float)sin(i);
    NamedTensor v[] = {{"x", {type_make(DT_F32, 2, (int64_t[]){4, 16}), x}},
                       {"target", {type_make(DT_I64, 1, (int64_t[]){4}), target}}};
    ck_assert(npz_write("d.npz", 2, v, &(Diag){.failed = false}));
}

/* Checks that one step of g/step.onnx gives the loss of ckc's report and the weights that ckc saved. */
static void check_step(void)
{
    Emitted e;
    Diag d = {.failed = false};
    DataFile *batch = data_open("d.npz", &d), *saved = data_open("w.safetensors", &d);
    json_t *report = read_json("out");
    double lr = 0.05;
    int64_t step = 1, rng[] = {1, 1}; /* seed, batch */
    int weights = 0, loss = 0;
    emitted_open(&e, "g/step.onnx");
    for (int k = 0; k < data_count(batch); k++) {
        Tensor t;
        ck_assert(data_tensor(batch, k, &t, &d));
        emitted_feed(&e, data_name(batch, k), &t);
    }
    emitted_feed(&e, "lr", &(Tensor){type_scalar(DT_F64), &lr});
    emitted_feed(&e, "step", &(Tensor){type_scalar(DT_I64), &step});
    emitted_feed(&e, "rng", &(Tensor){type_make(DT_I64, 1, (int64_t[]){2}), rng});
    emitted_run(&e);
    for (uint32_t k = 0; k < e.g.nout; k++) {
        Tensor got = emitted_result(&e, k), want;
        const char *name = onnx_output_name(e.model, k), *next = strstr(name, ".next");
        int at = next ? data_find(saved, format("%.*s", (int)(next - name), name)) : -1;
        loss += strcmp(name, "loss") == 0;
        if (strcmp(name, "loss") == 0)
            ck_assert_double_eq_tol(tensor_f(&got, 0),
                                    json_number_value(json_array_get(json_object_get(report, "losses"), 0)),
                                    1e-5);
        if (at < 0)
            continue;
        weights++;
        ck_assert(data_tensor(saved, at, &want, &d));
        for (int64_t i = 0; i < type_count(&want.type); i++)
            ck_assert_double_eq_tol(tensor_f(&got, i), tensor_f(&want, i), 1e-5);
    }
    ck_assert_int_ge(weights, 4);
    ck_assert_int_eq(loss, 1);
    json_decref(report);
    data_close(batch);
    data_close(saved);
    emitted_close(&e);
}

START_TEST(steps_are_models)
{
    static const char *const how[] = {"--optimizer momentum", "--optimizer adamw --eps 1e-3 --clip-norm 1",
                                      "--optimizer sgd --budget 99%", "--optimizer lion",
                                      "--optimizer adafactor --clip-norm 1"};
    write_data();
    ckc_accepts(format(MLP "%s --emit onnx --json -o g --save w.safetensors", how[_i]));
    check_step();
}
END_TEST

/* Outputs of a step have the names of the model's, and gradients those of their parameters. */
START_TEST(outputs_have_their_names)
{
    static const char *const how[][3] = {{"--grads g.npz", "loss", "logits"},
                                         {"--optimizer none --loss none", "logits", NULL}};
    Emitted e;
    write_data();
    ckc_accepts(format(EXAMPLE "%s --emit onnx --quiet -o g", how[_i][0]));
    emitted_open(&e, "g/step.onnx");
    ck_assert_str_eq(onnx_output_name(e.model, 0), how[_i][1]);
    if (how[_i][2]) {
        bool gradient = false;
        ck_assert_str_eq(onnx_output_name(e.model, 1), how[_i][2]);
        for (uint32_t k = 2; k < e.g.nout; k++)
            gradient |= strcmp(onnx_output_name(e.model, k), "4.weight.grad") == 0;
        ck_assert(gradient);
    }
    emitted_close(&e);
}
END_TEST

START_TEST(what_is_no_model)
{
    write_data();
    ckc_refuses(MLP "--emit onnx --accumulate 2", 2, "micro-batches");
    ckc_refuses(MLP "--emit onnx --accumulate auto", 2, "micro-batches");
}
END_TEST

Suite *suite_emit_onnx(void)
{
    Suite *s = suite_create("emit_onnx");
    TCase *t = command_case(s, "emit_onnx");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, operators_are_standard_ones);
    tcase_add_test(t, numbers_are_compared_as_in_memory);
    tcase_add_loop_test(t, steps_are_models, 0, 5);
    tcase_add_loop_test(t, outputs_have_their_names, 0, 2);
    tcase_add_test(t, what_is_no_model);
    return s;
}
