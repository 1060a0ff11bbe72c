/* test_hostile.c -- hostile files: impossible dimensions, huge expansions, repeated names, numbers out of
 * range.  Each is refused at once, with an error of one line. */
#include "tests.h"

#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "command.h"
#include "imported.h"
#include "ir/onnx/save_int.h"
#include "ir/plan.h"
#include "onnx_builder.h"
#include "runtime/data.h"
#include "runtime/cpu/onednn.h"

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void expect_one_line(const Diag *d, const char *part)
{
    ck_assert_msg(d->failed && strstr(d->msg, part) && !strchr(d->msg, '\n'), "%s", d->msg);
    ck_assert_int_eq(d->status, EXIT_BAD_INPUT);
}

static void refused(Builder *b, Arena *a, const char *part)
{
    Imported r = import_file(save(b, a, "hostile.onnx"));
    if (r.ok)
        build_graph(&r, &(OnnxOptions){0});
    ck_assert_msg(!r.ok, "accepted");
    expect_one_line(&r.d, part);
    release(&r);
}

/* Starts a model y = Relu(x) with x of 2 x 3 elements. */
static void start_relu(Builder *b, Arena *a)
{
    start(b, 17);
    add_value(b, a, "x", FLOAT, "23", true);
    add_value(b, a, "y", FLOAT, "23", false);
    add_node(b, a, "Relu", "x", "y");
}

static void operands(Builder *b, const char *first, const char *second)
{
    b->operand[0][0] = (char *)(uintptr_t)first;
    b->operand[0][1] = (char *)(uintptr_t)second;
    b->node[0].n_input = 2;
}

/* ---- sizes -------------------------------------------------------------- */

START_TEST(dimensions_beyond_any_machine)
{
    Arena a = {0};
    Builder b;
    start_relu(&b, &a);
    b.dim[0][0].dim_value = (int64_t)1 << 40;
    refused(&b, &a, "input 'x' has impossible dimensions");
    start_relu(&b, &a);
    b.dim[0][0].dim_value = b.dim[0][1].dim_value = INT64_MAX;
    refused(&b, &a, "input 'x' has impossible dimensions");
    start_relu(&b, &a);
    b.node[0].op_type = (char *)"MatMul"; /* a result of 2^60 elements */
    operands(&b, "x", "z");
    b.dim[0][0].dim_value = (int64_t)1 << 30;
    b.dim[0][1].dim_value = 1;
    add_value(&b, &a, "z", FLOAT, "11", true);
    b.dim[2][1].dim_value = (int64_t)1 << 30;
    refused(&b, &a, "result is too large");
    arena_free(&a);
}
END_TEST

/* oneDNN gets no product with an extent of 2^32: it counts in 32 bits, where that is 0, and divides by it. */
START_TEST(the_library_gets_no_large_dimension)
{
    Diag d = {0};
    for (int k = 0; k < 3; k++) {
        int64_t m = 4, n = 4, c = 4;
        *(k == 0 ? &m : k == 1 ? &n : &c) = (int64_t)1 << 32;
        DnnlDesc desc = {.of.op = LIB_MATMUL, .of.nin = 2, .choice = ONEDNN_PLAIN};
        desc.of.in[0] = type_make(DT_F32, 2, (int64_t[]){m, c});
        desc.of.in[1] = type_make(DT_F32, 2, (int64_t[]){c, n});
        desc.of.out = type_make(DT_F32, 2, (int64_t[]){m, n});
        ck_assert_ptr_null(onednn_make(&desc, &d));
        ck_assert(!d.failed);
    }
}
END_TEST

START_TEST(two_free_dimensions)
{
    Arena a = {0};
    Builder b;
    static int64_t shape[] = {-1, -1};
    start_relu(&b, &a);
    b.node[0].op_type = (char *)"Reshape";
    operands(&b, "x", "s");
    Onnx__TensorProto *t = add_tensor(&b, "s", 1, (int64_t[]){2}, NULL);
    t->data_type = ONNX__TENSOR_PROTO__DATA_TYPE__INT64;
    t->int64_data = shape;
    t->n_int64_data = 2;
    refused(&b, &a, "two dimensions of the new shape are -1");
    arena_free(&a);
}
END_TEST

/* Each element type has one field for its elements; a tensor with elements in another field is refused. */
START_TEST(elements_in_another_field)
{
    Arena a = {0};
    Builder b;
    static int64_t one[] = {1};
    static uint64_t many[] = {1, 2, 3};
    static int32_t small[] = {1, 2, 3};
    static float real[] = {1, 2, 3};
    for (int k = 0; k < 3; k++) {
        start_relu(&b, &a);
        Onnx__TensorProto *t = add_tensor(&b, "w", 1, (int64_t[]){3}, k == 2 ? real : NULL);
        t->data_type = ONNX__TENSOR_PROTO__DATA_TYPE__INT64;
        if (k == 0) {
            t->int64_data = one, t->n_int64_data = 1;
            t->uint64_data = many, t->n_uint64_data = 3;
        } else if (k == 1) {
            t->int32_data = small, t->n_int32_data = 3;
        }
        static const char *const field[] = {"uint64_data", "int32_data", "float_data"};
        refused(&b, &a, format("tensor 'w': elements of type int64 in %s, they must be in raw_data or "
                               "int64_data", field[k]));
    }
    start_relu(&b, &a);
    Onnx__TensorProto *t = add_tensor(&b, "w", 1, (int64_t[]){3}, NULL);
    t->data_type = ONNX__TENSOR_PROTO__DATA_TYPE__INT64;
    t->int64_data = one, t->n_int64_data = 1;
    refused(&b, &a, "tensor 'w' of 3 int64 has 8 bytes of data, not 24");
    arena_free(&a);
}
END_TEST

/* Elements in int32_data and uint64_data are read with the width and sign of their own type. */
START_TEST(elements_that_are_not_raw)
{
    static const struct {
        int type;
        int64_t want[3];
    } all[] = {{2, {1, 255, 0}}, {3, {1, -1, 0}},  {4, {1, 65535, 256}}, {5, {1, -1, 256}},
               {6, {1, -1, 256}}, {9, {1, 1, 0}}};
    static int32_t small[] = {1, -1, 256};
    static uint64_t large[] = {1, UINT32_MAX, 256};
    Arena a = {0};
    Builder b;
    for (size_t k = 0; k <= sizeof all / sizeof *all; k++) {
        bool wide = k == sizeof all / sizeof *all;
        start_relu(&b, &a);
        Onnx__TensorProto *t = add_tensor(&b, "w", 1, (int64_t[]){3}, NULL);
        t->data_type = wide ? ONNX__TENSOR_PROTO__DATA_TYPE__UINT32 : all[k].type;
        if (wide)
            t->uint64_data = large, t->n_uint64_data = 3;
        else
            t->int32_data = small, t->n_int32_data = 3;
        Imported r = import_file(save(&b, &a, "typed.onnx"));
        ck_assert_msg(build_graph(&r, &(OnnxOptions){0}), "%s", r.d.msg);
        Tensor got = graph_tensor(&r.g, graph_find(&r.g, "w"));
        for (int i = 0; i < 3; i++)
            ck_assert_int_eq(tensor_i(&got, i), wide ? (int64_t)large[i] : all[k].want[i]);
        release(&r);
    }
    arena_free(&a);
}
END_TEST

/* Saving a field of more than 4 GiB, which a sparse file may have, ends the process with EXIT_DEVICE. */
START_TEST(field_beyond_any_saved_model)
{
    Save s = {.n = 0};
    Buf b = {.n = 0};
    put_bytes(&s.a, &b, "", (size_t)UINT32_MAX + 2);
}
END_TEST

/* ---- names -------------------------------------------------------------- */

START_TEST(names_are_unique)
{
    Arena a = {0};
    Builder b;
    static float w[3] = {1, 2, 3};
    start_relu(&b, &a);
    add_tensor(&b, "w", 1, (int64_t[]){3}, w);
    add_tensor(&b, "w", 1, (int64_t[]){3}, w);
    refused(&b, &a, "two initializers are named 'w'");
    start_relu(&b, &a);
    add_value(&b, &a, "x", FLOAT, "24", true);
    refused(&b, &a, "two inputs are named 'x'");
    start_relu(&b, &a);
    add_node(&b, &a, "Exp", "x", "y");
    refused(&b, &a, "two values are named 'y'");
    start_relu(&b, &a);
    add_node(&b, &a, "Exp", "y", "x");
    refused(&b, &a, "two values are named 'x'");
    arena_free(&a);
}
END_TEST

/* An output that is listed twice, as PyTorch's exporters write `return y, y`, is one output. */
START_TEST(an_output_twice_is_one)
{
    Arena a = {0};
    Builder b;
    start_relu(&b, &a);
    add_value(&b, &a, "y", FLOAT, "23", false);
    Imported r = import_file(save(&b, &a, "twice.onnx"));
    ck_assert_msg(build_graph(&r, &(OnnxOptions){0}), "%s", r.d.msg);
    ck_assert_int_eq(r.g.nout, 1);
    release(&r);
    arena_free(&a);
}
END_TEST

/* A renamed value leaves its entry in the table of names to others, so that renaming stays fast. */
START_TEST(renaming_takes_no_longer_each_time)
{
    Arena a = {0};
    Diag d = {0};
    Graph g;
    graph_init(&g, &a, &d);
    double start = seconds();
    for (int i = 0; i < 60000; i++) {
        Val v = graph_value(&g, "relu", type_scalar(DT_F32), VAL_INPUT);
        graph_rename(&g, v, arena_printf(&a, "layer%d", i));
    }
    ck_assert_double_lt(seconds() - start, 5);
    for (int i = 0; i < 60000; i += 7)
        ck_assert_uint_eq(graph_find(&g, arena_printf(&a, "layer%d", i)).i, (uint32_t)i + 1);
    ck_assert_uint_eq(graph_find(&g, "relu").i, 0);
    arena_free(&a);
}
END_TEST

/* An absent operand does not read an initializer without a name. */
START_TEST(initializer_without_a_name)
{
    Arena a = {0};
    Builder b;
    static float w[3] = {1, 2, 3};
    start_relu(&b, &a);
    b.node[0].op_type = (char *)"Clip";
    operands(&b, "x", "");
    add_tensor(&b, "", 1, (int64_t[]){3}, w)->name = NULL;
    add_metadata(&b, &a, "pkg.torch.export.ExportedProgram.graph_signature",
                 "p_w: PARAMETER target='w'\n");
    Imported r = import_file(save(&b, &a, "unnamed.onnx"));
    ck_assert_msg(build_graph(&r, &(OnnxOptions){0}), "%s", r.d.msg);
    release(&r);
    arena_free(&a);
}
END_TEST

/* x * ((uniform < p) / p) is a dropout if p is known; here two casts compute p from itself: it is none. */
START_TEST(conversions_in_a_cycle)
{
    Arena a = {0};
    Builder b;
    start_relu(&b, &a);
    add_node(&b, &a, "RandomUniformLike", "x", "u");
    add_node(&b, &a, "Less", "u p", "less");
    add_node(&b, &a, "Cast", "q", "p");
    add_node(&b, &a, "Cast", "p", "q");
    add_node(&b, &a, "Div", "less p", "d");
    Onnx__NodeProto *mul = add_node(&b, &a, "Mul", "x d", "z");
    Imported r = import_file(save(&b, &a, "cycle.onnx"));
    ck_assert_int_eq(dropped_operand(r.m, mul), -1);
    release(&r);
    arena_free(&a);
}
END_TEST

/* ---- what a small file makes large -------------------------------------- */

/* Functions that expand to too many nodes are refused: each of 16 calls the one before four times. */
START_TEST(functions_expand_within_bounds)
{
    enum { LEVELS = 16, CALLS = 4 };
    Arena a = {0};
    Builder b;
    static Onnx__FunctionProto f[LEVELS], *fs[LEVELS];
    static Onnx__NodeProto node[LEVELS][CALLS], *nodes[LEVELS][CALLS];
    static char *value[] = {(char *)"a", (char *)"b", (char *)"c", (char *)"d", (char *)"e"};
    static Onnx__OperatorSetIdProto set[2], *sets[] = {&set[0], &set[1]};
    onnx__operator_set_id_proto__init(&set[0]);
    set[0].has_version = true, set[0].version = 17;
    onnx__operator_set_id_proto__init(&set[1]);
    set[1].domain = (char *)"f", set[1].has_version = true, set[1].version = 1;
    for (int k = 0; k < LEVELS; k++) {
        onnx__function_proto__init(fs[k] = &f[k]);
        f[k].name = arena_printf(&a, "F%d", k);
        f[k].domain = (char *)"f";
        f[k].n_input = f[k].n_output = 1;
        f[k].input = &value[0];
        f[k].output = &value[CALLS];
        f[k].n_opset_import = 2;
        f[k].opset_import = sets;
        f[k].n_node = CALLS;
        f[k].node = nodes[k];
        for (int i = 0; i < CALLS; i++) {
            Onnx__NodeProto *n = nodes[k][i] = &node[k][i];
            onnx__node_proto__init(n);
            n->op_type = k ? f[k - 1].name : (char *)"Relu";
            n->domain = k ? (char *)"f" : NULL;
            n->n_input = n->n_output = 1;
            n->input = &value[i];
            n->output = &value[i + 1];
        }
    }
    start_relu(&b, &a);
    b.node[0].op_type = f[LEVELS - 1].name;
    b.node[0].domain = (char *)"f";
    b.model.n_functions = LEVELS;
    b.model.functions = fs;
    b.model.opset_import = sets;
    b.model.n_opset_import = 2;
    refused(&b, &a, "functions and loops expand to more than");
    arena_free(&a);
}
END_TEST

START_TEST(inputs_are_found_by_name)
{
    enum { N = 2500 };
    Arena a = {0};
    Onnx__ModelProto model = ONNX__MODEL_PROTO__INIT;
    Onnx__GraphProto graph = ONNX__GRAPH_PROTO__INIT;
    graph.input = NEW(&a, Onnx__ValueInfoProto *, N);
    graph.initializer = NEW(&a, Onnx__TensorProto *, N);
    for (int i = 0; i < N; i++) {
        Onnx__ValueInfoProto *in = graph.input[i] = NEW(&a, Onnx__ValueInfoProto, 1);
        onnx__value_info_proto__init(in);
        in->name = arena_printf(&a, "input_of_a_rather_long_name_%d", i);
        Onnx__TensorProto *t = graph.initializer[i] = NEW(&a, Onnx__TensorProto, 1);
        onnx__tensor_proto__init(t);
        t->name = arena_printf(&a, "initializer_of_a_long_name_%d", i);
    }
    graph.n_input = graph.n_initializer = N;
    model.graph = &graph;
    size_t n = onnx__model_proto__get_packed_size(&model);
    uint8_t *bytes = NEW(&a, uint8_t, n + 1);
    onnx__model_proto__pack(&model, bytes);
    write_bytes("inputs.onnx", bytes, n);
    Imported r = import_file("inputs.onnx");
    ck_assert_msg(r.ok, "%s", r.d.msg);
    double start = seconds();
    uint32_t k = 0;
    while (onnx_input_name(r.m, k))
        k++;
    ck_assert_uint_eq(k, N);
    ck_assert_double_lt(seconds() - start, 1);
    release(&r);
    arena_free(&a);
}
END_TEST

/* ---- pipes and folders -------------------------------------------------- */

START_TEST(pipes_and_folders_are_no_data)
{
    Arena a = {0};
    Builder b;
    ck_assert_int_eq(mkfifo("fifo.bin", 0600), 0);
    ck_assert_int_eq(mkdir("folder.bin", 0700), 0);
    static const char *const names[] = {"fifo.bin", "folder.bin"};
    for (int i = 0; i < 2; i++) {
        Diag d = {0};
        start_relu(&b, &a);
        add_external(&b, &a, "w", 3, names[i], NULL, NULL);
        refused(&b, &a, "not a regular file");
        ck_assert_ptr_null(onnx_open(names[i], &d));
        ck_assert(d.failed);
    }
    Diag d = {0};
    ck_assert_ptr_null(data_open("fifo.bin", &d));
    expect_one_line(&d, "not a regular file");
    arena_free(&a);
}
END_TEST

/* ---- schedules ---------------------------------------------------------- */

static void schedule_refused(const char *header, const char *steps, const char *part)
{
    Arena a = {0};
    Diag d = {0};
    Graph g;
    Plan p = {.g = &g};
    graph_init(&g, &a, &d);
    const char *text = arena_printf(
        &a, "plan 6 {\n  arena 128\n  %s\n}\ngraph {\n  input %%x: f32[2]\n"
            "  %%y: f32[2] = relu %%x\n  output %%y\n}\nsteps {\n  place %%x@0+8\n%s}\n",
        header, steps);
    ck_assert_msg(plan_parse(&p, text, &d) == !part, "%s: %s", header, d.msg);
    if (part)
        expect_one_line(&d, part);
    arena_free(&a);
}

START_TEST(numbers_of_a_schedule_have_bounds)
{
    static const char step[] = "  step choice=- scratch=0 scratch_at=0 ns=0 : %x@0+8 -> %y@64+8\n";
    schedule_refused("threads 1024", step, NULL);
    schedule_refused("threads 100000", step, "line 3: expected an integer in range");
    schedule_refused("accumulate 1000000000000", step, "line 3: expected an integer in range");
    schedule_refused("align 64", step, NULL);
    schedule_refused("align 128", step, "%y is misaligned");
    schedule_refused("align 96", step, "align is no power of 2");
    schedule_refused("align 0", step, "line 3: expected an integer in range");
    schedule_refused("align 4194304", step, "line 3: expected an integer in range");
    schedule_refused("peak_step 7", step, "peak_step 7 of 1 steps");
    schedule_refused("lr nan", step, "line 3: expected a number");
    schedule_refused("threads 1", "  step choice=\x01", "expected a choice, or - for none");
    schedule_refused("threads 1", "  step choice=\xff", "expected a choice, or - for none");
    schedule_refused("threads 1", format("  step choice=%0*d", PLAN_CHOICE + 1, 7), "expected a choice");
    schedule_refused("threads 1", format("  step choice=%0*d ", PLAN_CHOICE, 7), "expected scratch");
    schedule_refused("threads 1",
                     "  step choice=- scratch=0 scratch_at=0 ns=9000000000000000000 : %x@0+8 -> "
                     "%y@64+8\n", "expected an integer in range");
}
END_TEST

static void graph_refused(const char *statement, const char *part)
{
    Arena a = {0};
    Diag d = {0};
    Graph g;
    graph_init(&g, &a, &d);
    ck_assert(!graph_parse(&g, arena_printf(&a, "graph {\n  %s\n}\n", statement), &d));
    expect_one_line(&d, part);
    arena_free(&a);
}

START_TEST(numbers_of_a_graph_have_bounds)
{
    graph_refused("input %x: f32[1099511627776,2]", "a shape of at most 2^40 elements");
    graph_refused("input %x: f32[-1]", "a shape of at most 2^40 elements");
    graph_refused("input %x: f32[2] %y: f32[2] = relu %x #2000000000", "a group number");
}
END_TEST

/* Attention of scalars is refused; they have no last dimension to read. */
START_TEST(attention_of_scalars)
{
    Arena a = {0};
    Builder b;
    start(&b, 1);
    add_value(&b, &a, "x", FLOAT, "", true);
    add_value(&b, &a, "y", FLOAT, "", false);
    add_node(&b, &a, "MultiHeadAttention", "x x x x", "y")->domain = (char *)"com.microsoft";
    Imported r = import_file(save(&b, &a, "scalars.onnx"));
    ck_assert(r.ok && !build_graph(&r, &(OnnxOptions){0}));
    ck_assert_msg(strstr(r.d.msg, "operand 0 of rank 0"), "%s", r.d.msg);
    release(&r);
    arena_free(&a);
}
END_TEST

Suite *suite_hostile(void)
{
    Suite *s = suite_create("hostile");
    TCase *t = tcase_create("hostile");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, make_folder, remove_folder);
    tcase_add_test(t, dimensions_beyond_any_machine);
    tcase_add_test(t, the_library_gets_no_large_dimension);
    tcase_add_test(t, two_free_dimensions);
    tcase_add_test(t, elements_in_another_field);
    tcase_add_test(t, elements_that_are_not_raw);
    tcase_add_exit_test(t, field_beyond_any_saved_model, EXIT_DEVICE);
    tcase_add_test(t, names_are_unique);
    tcase_add_test(t, an_output_twice_is_one);
    tcase_add_test(t, attention_of_scalars);
    tcase_add_test(t, initializer_without_a_name);
    tcase_add_test(t, conversions_in_a_cycle);
    tcase_add_test(t, renaming_takes_no_longer_each_time);
    tcase_add_test(t, functions_expand_within_bounds);
    tcase_add_test(t, inputs_are_found_by_name);
    tcase_add_test(t, pipes_and_folders_are_no_data);
    tcase_add_test(t, numbers_of_a_schedule_have_bounds);
    tcase_add_test(t, numbers_of_a_graph_have_bounds);
    suite_add_tcase(s, t);
    return s;
}
