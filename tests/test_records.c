/* test_records.c -- what the records of torch.export's exporter tell of values: no gradient goes through
 * those that are detached or read a padding row, and losses and pools have operands that their nodes lack. */
#include "tests.h"
#include "command.h"
#include "imported.h"
#include "onnx_builder.h"
#include "runtime/data.h"
#include <math.h>

static float ones[] = {1, 1, 1, 1, 1, 1, 1, 1}, odd[] = {3, 1, 4, 1, 5, 9, 2, 6};

/* A model y = h + h.detach() with h = w x; kept: with the detach, which the exporter's optimizer removes. */
static Imported detached_model(Builder *b, Arena *a, bool kept, const char *path)
{
    start(b, 13);
    add_value(b, a, "x", FLOAT, "88", true);
    add_value(b, a, "y", FLOAT, "88", false);
    add_tensor(b, "w", 1, (int64_t[]){8}, odd);
    add_recorded(b, a, "Mul", "x w", "h",
                 "%h = call_function[target=torch.ops.aten.mul.Tensor](args = (%x, %p_w))", NULL);
    if (kept)
        add_recorded(b, a, "Identity", "h", "detach",
                     "%detach = call_function[target=torch.ops.aten.detach.default](args = (%h,))", NULL);
    add_recorded(b, a, "Add", kept ? "h detach" : "h h", "y",
                 "%y = call_function[target=torch.ops.aten.add.Tensor](args = (%h, %detach))", NULL);
    add_signature(b, a, "p_w: PARAMETER target='w'\n");
    return import_file(save(b, a, path));
}

/* No gradient flows through a detached value; if the exporter's optimizer has removed the detach, a note says
 * so. */
START_TEST(detached_values_stop_gradients)
{
    Arena a = {0};
    Builder b;
    Diag d = {0};
    for (int kept = 0; kept < 2; kept++) {
        Imported r = detached_model(&b, &a, kept, kept ? "kept.onnx" : "lost.onnx");
        ck_assert_int_eq(params_with(&r, false), 1);
        ck_assert(noted(r.m, ONNX_REMARK, "y", "optimize=False") == !kept);
        release(&r);
        ckc_accepts(format("%s --loss mse --optimizer sgd --quiet --steps 1 -o o --grads %s.npz",
                           kept ? "kept.onnx" : "lost.onnx", kept ? "kept" : "lost"));
    }
    DataFile *half = data_open("kept.npz", &d), *whole = data_open("lost.npz", &d);
    ck_assert(half && whole);
    Tensor h = array_of(half, "w"), w = array_of(whole, "w");
    for (int64_t i = 0; i < 8; i++)
        ck_assert_double_eq_tol(2 * tensor_f(&h, i), tensor_f(&w, i), 1e-5 * fabs(tensor_f(&w, i)));
    data_close(half);
    data_close(whole);
    arena_free(&a);
}
END_TEST

/* TorchScript's file of a straight-through estimator, h + (round(h) - h).detach(), lacks the detach: noted in
 * either order of the sum, but not of h + (h - round(h)). */
START_TEST(lost_straight_through_is_noted)
{
    static const char *const form[][2] = {{"r h", "h d"}, {"r h", "d h"}, {"h r", "h d"}};
    Arena a = {0};
    Builder b;
    for (int i = 0; i < 3; i++) {
        start(&b, 13);
        add_value(&b, &a, "x", FLOAT, "88", true);
        add_value(&b, &a, "y", FLOAT, "88", false);
        add_tensor(&b, "w", 1, (int64_t[]){8}, odd);
        add_node(&b, &a, "Mul", "x w", "h");
        add_node(&b, &a, "Round", "h", "r");
        add_node(&b, &a, "Sub", form[i][0], "d");
        add_node(&b, &a, "Add", form[i][1], "y");
        Imported r = import_file(save(&b, &a, "ste.onnx"));
        ck_assert(build_graph(&r, &(OnnxOptions){0}));
        ck_assert(noted(r.m, ONNX_REMARK, "y", "straight-through") == (i < 2));
        release(&r);
    }
    arena_free(&a);
}
END_TEST

/* Writes the model and runs a step with these options; the gradient of its parameter w. */
static void gradient_of_step(Builder *b, Arena *a, const char *options, double *grad)
{
    Diag d = {0};
    add_signature(b, a, "p_w: PARAMETER target='w'\n");
    save(b, a, "m.onnx");
    ckc_accepts(format("m.onnx --optimizer none --quiet --grads g.npz %s", options));
    DataFile *grads = data_open("g.npz", &d);
    ck_assert(grads);
    Tensor w = array_of(grads, "w");
    for (int64_t k = 0; k < type_count(&w.type); k++)
        grad[k] = tensor_f(&w, k);
    data_close(grads);
}

/* The record of an embedding says which index gives no gradient; a row that is not there is ignored. */
START_TEST(padding_rows_receive_no_gradient)
{
    static const struct {
        const char *operands;
        bool trains;
    } cases[] = {{"(%p_w, %ids, 1)", false},
                 {"(%p_w, %ids)", true},
                 {"(%p_w, %ids, 2)", true},
                 {"(%p_w, %ids, -1, True)", true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Arena a = {0};
        Builder b;
        double grad[8];
        start(&b, 13);
        add_value(&b, &a, "ids", INT64, "8", true);
        add_value(&b, &a, "y", FLOAT, "84", false);
        add_tensor(&b, "w", 2, (int64_t[]){2, 4}, odd);
        add_recorded(
            &b, &a, "Gather", "w ids", "y",
            format("%%y = call_function[target=torch.ops.aten.embedding.default](args = %s, kwargs = {})",
                   cases[i].operands),
            NULL);
        gradient_of_step(&b, &a, "--loss mse", grad);
        for (int k = 0; k < 4; k++) {
            ck_assert_double_ne(grad[k], 0);
            ck_assert_int_eq(grad[4 + k] != 0, cases[i].trains);
        }
        arena_free(&a);
    }
}
END_TEST

/* m = x, but at 2 the mean of w[0], at 0 that of w[1] and w[2], each with x there or without. */
static void add_mean(Builder *b, Arena *a, bool include_self)
{
    const char *call = format("%%m = call_function[target=torch.ops.aten.scatter_reduce.two](args = "
                              "(%%x, 0, %%ids, %%p_w, mean), kwargs = {%s})",
                              include_self ? "" : "include_self: False");
    if (!include_self)
        add_recorded(b, a, "ScatterElements", "x ids zeros", "front", call, NULL);
    add_recorded(b, a, "ScatterElements", include_self ? "x ids w" : "front ids w", "m", call, NULL);
}

/* What PyTorch's exporter writes of scatter_reduce(..., "mean") is an assignment; its record says what it is.
 */
START_TEST(scattered_means)
{
    static float w[] = {3, 1, 4}, zeros[3], weights[] = {1, 10, 100, 1000};
    static int64_t ids[] = {2, 0, 0};
    static const double want[2][3] = {{100, 0.5, 0.5}, {50, 1 / 3., 1 / 3.}};
    for (int include_self = 0; include_self < 2; include_self++) {
        Arena a = {0};
        Builder b;
        double grad[3];
        start(&b, 16);
        add_value(&b, &a, "x", FLOAT, "4", true);
        add_value(&b, &a, "loss", FLOAT, "", false);
        add_tensor(&b, "w", 1, (int64_t[]){3}, w);
        add_tensor(&b, "zeros", 1, (int64_t[]){3}, zeros);
        add_tensor(&b, "c", 1, (int64_t[]){4}, weights);
        Onnx__TensorProto *t = add_tensor(&b, "ids", 1, (int64_t[]){3}, NULL);
        t->data_type = INT64, t->n_int64_data = 3, t->int64_data = ids;
        add_mean(&b, &a, include_self);
        add_node(&b, &a, "Mul", "m c", "mc");
        add_int(&b, add_node(&b, &a, "ReduceSum", "mc", "loss"), "keepdims", 0);
        gradient_of_step(&b, &a, "", grad);
        for (int k = 0; k < 3; k++)
            ck_assert_double_eq_tol(grad[k], want[include_self][k], 1e-5);
        arena_free(&a);
    }
}
END_TEST

static void gradient_of_smoothed(const char *share, double *grad)
{
    Arena a = {0};
    Builder b;
    start(&b, 13);
    add_value(&b, &a, "t", INT64, "2", true);
    add_value(&b, &a, "y", FLOAT, "", false);
    add_tensor(&b, "w", 2, (int64_t[]){2, 4}, odd);
    add_recorded(&b, &a, "SoftmaxCrossEntropyLoss", "w t", "y",
                 format("%%y = call_function[target=torch.ops.aten.cross_entropy_loss.default](args = "
                        "(%%w, %%t, None, 1, -100%s), kwargs = {})",
                        share),
                 NULL);
    gradient_of_step(&b, &a, "", grad);
    arena_free(&a);
}

/* Label smoothing is in the record of the loss alone: a share of the loss is that of all classes in the mean.
 */
START_TEST(smoothed_labels)
{
    double none[8], half[8], all[8];
    gradient_of_smoothed("", none);
    gradient_of_smoothed(", 0.5", half);
    gradient_of_smoothed(", 1.0", all);
    for (int k = 0; k < 8; k++) {
        const float *row = &odd[k / 4 * 4];
        double sum = exp(row[0]) + exp(row[1]) + exp(row[2]) + exp(row[3]);
        ck_assert_double_eq_tol(all[k], (exp(odd[k]) / sum - 0.25) / 2, 1e-6);
        ck_assert_double_eq_tol(half[k], (none[k] + all[k]) / 2, 1e-6);
    }
}
END_TEST

/* scale_grad_by_freq: each row's gradient is over how often the row is read; the operand behind it is
 * `sparse`. */
START_TEST(gradients_by_frequency)
{
    static float zeros[8];
    static const double want[2][2] = {{3, 1}, {1, 1}};
    for (int scaled = 0; scaled < 2; scaled++) {
        Arena a = {0};
        Builder b;
        double grad[8];
        start(&b, 13);
        add_value(&b, &a, "y", FLOAT, "", false);
        add_tensor(&b, "w", 2, (int64_t[]){2, 4}, zeros);
        Onnx__TensorProto *t = add_tensor(&b, "ids", 2, (int64_t[]){2, 2}, NULL);
        t->data_type = INT64, t->n_int64_data = 4, t->int64_data = (int64_t[]){0, 1, 0, 0};
        add_recorded(&b, &a, "Gather", "w ids", "h",
                     format("%%h = call_function[target=torch.ops.aten.embedding.default](args = "
                            "(%%p_w, %%ids, -1, %s, True), kwargs = {})",
                            scaled ? "True" : "False"),
                     NULL);
        add_int(&b, add_node(&b, &a, "ReduceSum", "h", "y"), "keepdims", 0);
        gradient_of_step(&b, &a, "", grad);
        for (int k = 0; k < 8; k++)
            ck_assert_double_eq_tol(grad[k], want[scaled][k / 4], 1e-6);
        arena_free(&a);
    }
}
END_TEST

/* A batch norm whose record has it in eval() stays as it is where another's is in training mode, and trains
 * in a program that is in eval() altogether. */
START_TEST(norms_of_either_mode)
{
    static float zeros[2], x[] = {1, 2, 5, 4};
    static const char *const call[] = {"no_training", "functional"};
    for (int mixed = 0; mixed < 2; mixed++) {
        Arena a = {0};
        Builder b;
        double grad[2];
        start(&b, 14);
        add_value(&b, &a, "y", FLOAT, "", false);
        add_tensor(&b, "w", 1, (int64_t[]){2}, ones);
        add_tensor(&b, "scale", 1, (int64_t[]){2}, ones);
        add_tensor(&b, "var0", 1, (int64_t[]){2}, ones);
        add_tensor(&b, "var1", 1, (int64_t[]){2}, ones);
        add_tensor(&b, "bias", 1, (int64_t[]){2}, zeros);
        add_tensor(&b, "mean0", 1, (int64_t[]){2}, zeros);
        add_tensor(&b, "mean1", 1, (int64_t[]){2}, zeros);
        add_tensor(&b, "x", 2, (int64_t[]){2, 2}, x);
        add_tensor(&b, "c", 2, (int64_t[]){2, 2}, x);
        for (int i = 0; i < 2; i++)
            add_recorded(
                &b, &a, "BatchNormalization", i ? "x scale bias mean1 var1" : "x w bias mean0 var0",
                i ? "n1" : "n0",
                format("%%n = call_function[target=torch.ops.aten._native_batch_norm_legit_%s.default]"
                       "(args = (%%x), kwargs = {})",
                       call[i && mixed]),
                NULL);
        add_node(&b, &a, "Mul", "n0 c", "m0");
        add_node(&b, &a, "Add", "m0 n1", "m");
        add_int(&b, add_node(&b, &a, "ReduceSum", "m", "y"), "keepdims", 0);
        gradient_of_step(&b, &a, "", grad);
        ck_assert_double_eq_tol(grad[0], mixed ? 1 * 1 + 5 * 5 : 5 - 1, 1e-3);
        ck_assert_double_eq_tol(grad[1], mixed ? 2 * 2 + 4 * 4 : 4 - 2, 1e-3);
        arena_free(&a);
    }
}
END_TEST

/* Scores of one sample have no dimension for a batch. */
START_TEST(loss_of_one_sample)
{
    static int64_t class = 2;
    Arena a = {0};
    Builder b;
    double grad[4], sum = exp(odd[0]) + exp(odd[1]) + exp(odd[2]) + exp(odd[3]);
    start(&b, 13);
    add_value(&b, &a, "y", FLOAT, "", false);
    add_tensor(&b, "w", 1, (int64_t[]){4}, odd);
    Onnx__TensorProto *t = add_tensor(&b, "t", 0, NULL, NULL);
    t->data_type = INT64, t->n_int64_data = 1, t->int64_data = &class;
    add_node(&b, &a, "SoftmaxCrossEntropyLoss", "w t", "y");
    gradient_of_step(&b, &a, "", grad);
    for (int k = 0; k < 4; k++)
        ck_assert_double_eq_tol(grad[k], exp(odd[k]) / sum - (k == 2), 1e-6);
    arena_free(&a);
}
END_TEST

/* So is what the sums of an average pool are divided by, behind operands that are lists. */
START_TEST(divisor_of_a_pool)
{
    Arena a = {0};
    Builder b;
    double grad[8];
    start(&b, 11);
    add_value(&b, &a, "y", FLOAT, "", false);
    add_tensor(&b, "w", 4, (int64_t[]){1, 1, 2, 4}, odd);
    Onnx__AttributeProto *kernel =
        add_attr(&b,
                 add_recorded(&b, &a, "AveragePool", "w", "h",
                              "%h = call_function[target=torch.ops.aten.avg_pool2d.default](args = "
                              "(%w, [2, 2], [2, 2], [0, 0], False, True, 16), kwargs = {})",
                              NULL),
                 "kernel_shape");
    kernel->has_type = true;
    kernel->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS;
    kernel->ints = (int64_t[]){2, 4}, kernel->n_ints = 2;
    add_int(&b, add_node(&b, &a, "ReduceSum", "h", "y"), "keepdims", 0);
    gradient_of_step(&b, &a, "", grad);
    for (int k = 0; k < 8; k++)
        ck_assert_double_eq(grad[k], 1 / 16.);
    arena_free(&a);
}
END_TEST

/* Targets of floats are probabilities of the classes. */
START_TEST(probable_classes)
{
    static float p[] = {0.25F, 0.25F, 0.5F, 0, 0, 1, 0, 0};
    Arena a = {0};
    Builder b;
    double grad[8];
    start(&b, 13);
    add_value(&b, &a, "y", FLOAT, "", false);
    add_tensor(&b, "w", 2, (int64_t[]){2, 4}, odd);
    add_tensor(&b, "p", 2, (int64_t[]){2, 4}, p);
    add_node(&b, &a, "SoftmaxCrossEntropyLoss", "w p", "y");
    gradient_of_step(&b, &a, "", grad);
    for (int k = 0; k < 8; k++) {
        const float *row = &odd[k / 4 * 4];
        double sum = exp(row[0]) + exp(row[1]) + exp(row[2]) + exp(row[3]);
        ck_assert_double_eq_tol(grad[k], (exp(odd[k]) / sum - p[k]) / 2, 1e-6);
    }
    arena_free(&a);
}
END_TEST

/* The zeros that a scan begins with do not train, nor do zeros that are computed of no parameter (a mask
 * that hides nothing), though a parameter of the module, of which the exporter has computed a tensor that
 * trains, is missing from the file; but where a call reads another, equal ones may be merged. */
START_TEST(what_the_program_creates_is_no_parameter)
{
    static float zeros[2];
    static const struct {
        const char *tensor, *origins, *read;
        bool created;
    } cases[] = {{"unsqueeze_1", NULL, "%z", false},
                 {"zeros_like_1", NULL, "%z", true},
                 {"where", "['ge', 'm.mask', 'val_1']", "%where", true},
                 {"where", "['ge', 'm.mask', 'val_1']", "%where_1", false},
                 {"val_2", "['fill', 'val_1']", "%fill", true},
                 {"val_2", "['fill', 'val_1']", "%fill_1", false},
                 {"where", "['ge', 'm.A_log', 'val_1']", "%where", false}};
    Arena a = {0};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const char *tensor = cases[k].tensor;
        bool created = cases[k].created;
        Builder b;
        start(&b, 13);
        add_value(&b, &a, "x", FLOAT, "2", true);
        add_value(&b, &a, "y", FLOAT, "2", false);
        add_tensor(&b, "neg", 1, (int64_t[]){2}, odd);
        add_tensor(&b, tensor, 1, (int64_t[]){2}, zeros);
        if (cases[k].origins)
            add_origins(&b, &a, tensor, cases[k].origins);
        const char *scope = "['', 'm', 'mul']";
        add_recorded(&b, &a, "Mul", "x neg", "h", "%h = mul(args = (%x, %neg))", scope);
        add_recorded(&b, &a, "Add", arena_printf(&a, "h %s", tensor), "y",
                     arena_printf(&a, "%%y = add(args = (%%h, %s))", cases[k].read), scope);
        add_signature(&b, &a,
                      "p_a: PARAMETER target='m.A_log'\nb_m: BUFFER target='m.mask' persistent=True\n");
        Imported r = import_file(save(&b, &a, "created.onnx"));
        ck_assert_int_eq(params_with(&r, false), created ? 1 : 2);
        ck_assert_int_eq(params_with(&r, true), created ? 1 : 2);
        ck_assert(noted(r.m, ONNX_FROZEN, tensor, "a constant of the exporter's") == created);
        release(&r);
    }
    arena_free(&a);
}
END_TEST

/* Fresh norms' running statistics are merged with each other, and with weights and biases: they are apart in
 * any case, and the weights train. */
START_TEST(merged_statistics)
{
    static const char call[] = "[target=torch.ops.aten._native_batch_norm_legit_functional.default](args = "
                               "(%%h, %%p_%d_w, %%p_%d_b, %%b_%d_m, %%b_%d_v, True, 0.1, 1e-05))";
    static float zeros[2];
    Arena a = {0};
    Builder b;
    start(&b, 15);
    add_value(&b, &a, "x", FLOAT, "42", true);
    add_value(&b, &a, "y", FLOAT, "42", false);
    add_tensor(&b, "n0.weight", 1, (int64_t[]){2}, ones);
    add_tensor(&b, "n0.bias", 1, (int64_t[]){2}, zeros);
    const char *lines = "";
    for (int i = 0; i < 2; i++) {
        const char *in = i ? "h" : "x";
        add_recorded(&b, &a, "BatchNormalization",
                     arena_printf(&a, "%s n0.weight n0.bias n0.bias n0.weight", in), i ? "y" : "h",
                     arena_printf(&a, call, i, i, i, i), arena_printf(&a, "['', 'n%d', 'norm']", i));
        lines = arena_printf(&a,
                             "%sp_%d_w: PARAMETER target='n%d.weight'\np_%d_b: PARAMETER target='n%d.bias'\n"
                             "b_%d_m: BUFFER target='n%d.mean'\nb_%d_v: BUFFER target='n%d.var'\n",
                             lines, i, i, i, i, i, i, i, i);
    }
    add_signature(&b, &a, lines);
    Imported r = import_file(save(&b, &a, "statistics.onnx"));
    for (int apart = 0; apart < 2; apart++) {
        ck_assert_int_eq(params_with(&r, apart), apart ? 4 : 2);
        ck_assert_int_eq(r.g.nupdate, 4);
        ck_assert(graph_find(&r.g, "n0.mean").i && graph_find(&r.g, "n1.var").i);
    }
    release(&r);
    arena_free(&a);
}
END_TEST

Suite *suite_records(void)
{
    Suite *s = suite_create("records");
    TCase *t = tcase_create("records");
    tcase_add_checked_fixture(t, make_folder, remove_folder);
    tcase_add_test(t, detached_values_stop_gradients);
    tcase_add_test(t, lost_straight_through_is_noted);
    tcase_add_test(t, padding_rows_receive_no_gradient);
    tcase_add_test(t, scattered_means);
    tcase_add_test(t, smoothed_labels);
    tcase_add_test(t, gradients_by_frequency);
    tcase_add_test(t, norms_of_either_mode);
    tcase_add_test(t, loss_of_one_sample);
    tcase_add_test(t, divisor_of_a_pool);
    tcase_add_test(t, probable_classes);
    tcase_add_test(t, what_the_program_creates_is_no_parameter);
    tcase_add_test(t, merged_statistics);
    suite_add_tcase(s, t);
    return s;
}
