/* test_training_form.c -- how batch normalization and dropout of an imported model are brought to training
 * form. */
#include "tests.h"

#include <math.h>
#include <string.h>

#include "command.h"
#include "imported.h"
#include "onnx_builder.h"

/* ---- batch normalization and dropout ------------------------------------ */

static Imported batch_norm_model(Builder *b, Arena *a, int opset, bool many)
{
    static float v[4][3] = {{2, 3, 4}, {5, 6, 7}, {1, 2, 3}, {4, 5, 6}};
    static const char *const names[] = {"scale", "bias", "mean", "var"};
    start(b, opset);
    add_value(b, a, "x", FLOAT, "43", true);
    add_value(b, a, "y", FLOAT, "43", false);
    for (int i = 0; i < 4; i++)
        add_tensor(b, names[i], 1, (int64_t[]){3}, v[i]);
    Onnx__NodeProto *n =
        add_node(b, a, "BatchNormalization", "x scale bias mean var", many ? "y m v" : "y");
    if (many && opset >= 14) {
        add_int(b, n, "training_mode", 1);
    }
    return import_file(save(b, a, "bn.onnx"));
}

START_TEST(batch_norm_is_brought_to_training_form)
{
    static const struct {
        int opset;
        bool many, forward_only, keep;
        uint32_t updates;
    } cases[] = {{13, false, false, false, 2}, {14, true, false, false, 2},
                 {9, true, false, true, 2},    {13, false, false, true, 0},
                 {14, true, true, false, 0},   {13, false, true, false, 0}};
    Arena a = {0};
    Builder b;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        OnnxOptions opt = {.forward_only = cases[i].forward_only,
                           .keep_batch_norm = cases[i].keep};
        Imported r = batch_norm_model(&b, &a, cases[i].opset, cases[i].many);
        ck_assert_msg(build_graph(&r, &opt), "%s", r.d.msg);
        ck_assert_msg(r.g.nupdate == cases[i].updates, "case %zu: %u", i, r.g.nupdate);
        if (r.g.nupdate)
            ck_assert_int_eq(kind_of(&r.g, "mean"), VAL_STATE);
        ck_assert_int_eq(noted(r.m, ONNX_REMARK, "node0", "trains"),
                         !cases[i].many && !cases[i].keep && !cases[i].forward_only);
        release(&r);
    }
    arena_free(&a);
}
END_TEST

/* A model without weights, trained or evaluated: they are parameters, and the variance starts at 1. */
START_TEST(weights_without_values)
{
    Arena a = {0};
    Builder b;
    const char *const data[] = {"x"};
    const OnnxOptions form[] = {{.init = false},
                                {.keep_batch_norm = true},
                                {.forward_only = true, .inference = true, .init = true},
                                {.forward_only = true, .inference = true, .weights = true}};
    for (size_t i = 0; i < sizeof form / sizeof *form; i++) {
        OnnxOptions opt = form[i];
        opt.data = data;
        opt.ndata = 1;
        start(&b, 15);
        add_value(&b, &a, "x", FLOAT, "43", true);
        add_value(&b, &a, "y", FLOAT, "43", false);
        for (const char *const *name = (const char *const[]){"scale", "bias", "mean", "var", NULL}; *name;
             name++)
            add_value(&b, &a, *name, FLOAT, "3", true);
        add_node(&b, &a, "BatchNormalization", "x scale bias mean var", "y");
        Imported r = import_file(save(&b, &a, "bn.onnx"));
        ck_assert_msg(build_graph(&r, &opt), "%s", r.d.msg);
        const float *var = r.g.vals[graph_find(&r.g, "var").i].data;
        ck_assert_int_eq(kind_of(&r.g, "scale"), VAL_PARAM);
        ck_assert(var && var[0] == 1 && var[2] == 1);
        release(&r);
    }
    arena_free(&a);
}
END_TEST

/* running' = 0.9 running + 0.1 batch, with the population variance or the unbiased one. */
START_TEST(running_statistics)
{
    Arena a = {0};
    Builder b;
    float x[12] = {1, 0, 0, 2, 0, 0, 3, 0, 0, 6, 0, 0};
    OnnxFeed feed = {"x", {type_make(DT_F32, 2, (int64_t[]){4, 3}), x}};
    for (int unbiased = 0; unbiased < 2; unbiased++) {
        OnnxOptions opt = {.feed = &feed, .nfeed = 1, .unbiased_var = unbiased};
        Imported r = batch_norm_model(&b, &a, 15, false);
        ck_assert_msg(build_graph(&r, &opt), "%s", r.d.msg);
        void **data = NEW(&a, void *, r.g.nvals);
        ck_assert_msg(graph_eval(&r.g, data, &a, &r.d), "%s", r.d.msg);
        double var = unbiased ? 14.0 / 3 : 3.5;
        for (int k = 0; k < 2; k++) {
            Val v = r.g.update[k].value;
            Tensor t = {*val_type(&r.g, v), data[v.i]};
            double want = k ? 0.9 * 4 + 0.1 * var : 0.9 * 1 + 0.1 * 3;
            ck_assert_double_eq_tol(tensor_f(&t, 0), want, 1e-6);
        }
        release(&r);
    }
    arena_free(&a);
}
END_TEST

/* Adds a batch norm for inference in elementary operators, channels last.  form: 0: with a reciprocal; 1:
 * divided by the root; 2: likewise, with scale and bias as first operands; 3: the mean scaled by itself. */
static void add_written_norm(Builder *b, Arena *a, int form)
{
    add_node(b, a, "Add", "var eps", "v");
    add_node(b, a, "Sqrt", "v", "d");
    if (form == 3) {
        add_node(b, a, "Div", "one d", "r");
        add_node(b, a, "Mul", "r scale", "k");
        add_node(b, a, "Neg", "mean", "m");
        add_node(b, a, "Mul", "m k", "c");
        add_node(b, a, "Add", "c bias", "s");
        add_node(b, a, "Mul", "x k", "z");
        add_node(b, a, "Add", "z s", "y");
        return;
    }
    add_node(b, a, "Sub", "x mean", "c");
    if (form == 0) {
        add_node(b, a, "Reciprocal", "d", "r");
        add_node(b, a, "Mul", "r scale", "k");
        add_node(b, a, "Mul", "c k", "z");
    } else {
        add_node(b, a, "Div", "c d", "r");
        add_node(b, a, "Mul", form == 1 ? "r scale" : "scale r", "z");
    }
    add_node(b, a, "Add", form == 2 ? "bias z" : "z bias", "y");
}

/* Imports and evaluates a batch norm for training: *y is its output, *var the updated running variance. */
static void trained_norm(Imported *r, Arena *a, const OnnxOptions *opt, Tensor *y, Tensor *var)
{
    ck_assert_msg(build_graph(r, opt), "%s", r->d.msg);
    ck_assert_int_eq(r->g.nupdate, 2);
    void **data = NEW(a, void *, r->g.nvals);
    ck_assert_msg(graph_eval(&r->g, data, a, &r->d), "%s", r->d.msg);
    *y = (Tensor){*val_type(&r->g, r->g.out[0]), data[r->g.out[0].i]};
    Val v = r->g.update[1].value;
    *var = (Tensor){*val_type(&r->g, v), data[v.i]};
}

/* A norm that is not read counts as folded if its neighbour is read; that of a module that does not run (u)
 * does not count. */
START_TEST(folded_norms_are_counted)
{
    static const char signature[] =
        "p_a: PARAMETER target='m.a.0.weight'\nb_a: BUFFER target='m.a.1.running_mean'\n"
        "p_b: PARAMETER target='m.a.1.weight'\np_u: PARAMETER target='m.u.0.weight'\n"
        "b_u: BUFFER target='m.u.1.running_mean'\np_c: PARAMETER target='m.u.1.weight'\n";
    static float w[6] = {1, 2, 3, 4, 5, 7};
    Arena a = {0};
    Builder b;
    start(&b, 17);
    add_value(&b, &a, "x", FLOAT, "23", true);
    add_value(&b, &a, "y", FLOAT, "22", false);
    add_tensor(&b, "m.a.0.weight", 2, (int64_t[]){3, 2}, w);
    add_node(&b, &a, "MatMul", "x m.a.0.weight", "y");
    add_metadata(&b, &a, "pkg.torch.export.ExportedProgram.graph_signature", signature);
    Imported r = import_file(save(&b, &a, "folded.onnx"));
    ck_assert_msg(build_graph(&r, &(OnnxOptions){0}), "%s", r.d.msg);
    ck_assert(noted(r.m, ONNX_REMARK, "Conv", "1 BatchNormalizations are folded away"));
    release(&r);
    arena_free(&a);
}
END_TEST

START_TEST(written_out_batch_norm)
{
    static float x[24], scale[3] = {1, 2, 3}, bias[3] = {0.5f, 0, 1}, mean[3] = {1, 1, 1}, var[3] = {4, 4, 4},
                        eps = 1e-5f, one = 1;
    static const char signature[] = "b_var: BUFFER target='var'\np_mean: PARAMETER target='mean'\n"
                                    "p_scale: PARAMETER target='scale'\np_bias: PARAMETER target='bias'\n";
    static const char *const last[] = {"node6", "node5", "node5", "node8"};
    int form = _i == 6 ? 3 : _i % 3, rank = _i == 4 ? 4 : 1;
    bool given = _i == 3, buffer = _i == 5;
    Arena a = {0};
    Builder b;
    Tensor y, v;
    for (int i = 0; i < 24; i++)
        x[i] = (float)(i * i % 7);
    OnnxFeed feed = {"x", {type_make(DT_F32, 4, (int64_t[]){2, 2, 2, 3}), x}};
    OnnxOptions opt = {.feed = &feed, .nfeed = 1, .keep_batch_norm = given};
    start(&b, 15);
    add_value(&b, &a, "x", FLOAT, "2223", true);
    add_value(&b, &a, "y", FLOAT, "2223", false);
    float *data[] = {scale, bias, mean, var, &eps, &one};
    static const char *const names[] = {"scale", "bias", "mean", "var", "eps", "one"};
    for (int i = 0; i < 6; i++)
        add_tensor(&b, names[i], i < 4 ? rank : 0, (int64_t[]){rank == 1 ? 3 : 1, 1, 1, 3}, data[i]);
    add_written_norm(&b, &a, form);
    if (buffer)
        add_metadata(&b, &a, "pkg.torch.export.ExportedProgram.graph_signature", signature);
    Imported r = import_file(save(&b, &a, "written.onnx"));
    if (given || buffer) {
        ck_assert_msg(build_graph(&r, &opt), "%s", r.d.msg);
        ck_assert_int_eq(r.g.nupdate, 0);
    } else {
        trained_norm(&r, &a, &opt, &y, &v);
        ck_assert_int_eq(kind_of(&r.g, "mean"), VAL_STATE);
        ck_assert(noted(r.m, ONNX_REMARK, last[form], "trains"));
        for (int c = 0; c < 3; c++) {
            double sum = 0, squares = 0;
            for (int i = c; i < 24; i += 3) {
                sum += x[i] / 8;
                squares += x[i] * x[i] / 8;
            }
            double batch = squares - sum * sum;
            for (int i = c; i < 24; i += 3)
                ck_assert_double_eq_tol(tensor_f(&y, i),
                                        (x[i] - sum) / sqrt(batch + eps) * scale[c] + bias[c], 1e-5);
            ck_assert_double_eq_tol(tensor_f(&v, c), 0.99 * 4 + 0.01 * batch, 1e-5);
        }
    }
    release(&r);
    arena_free(&a);
}
END_TEST

START_TEST(folded_batch_norm_is_noted)
{
    static float w[9] = {1}, v[3] = {1};
    static const char *const names[][2] = {{"onnx::Conv_%d", "onnx::Conv_b%d"},
                                           {"c%d.weight", "c%d.weight_bias"},
                                           {"c%d.weight", "c%d.bias"}};
    Arena a = {0};
    Builder b;
    for (int form = 0; form < 3; form++) {
        start(&b, 13);
        add_value(&b, &a, "h0", FLOAT, "1355", true);
        add_value(&b, &a, "h4", FLOAT, "1355", false);
        for (int i = 0; i < 4; i++) {
            char weight[32], bias[32];
            snprintf(weight, sizeof weight, names[form][0], i);
            snprintf(bias, sizeof bias, names[form][1], i);
            add_tensor(&b, arena_printf(&a, "%s", weight), 4, (int64_t[]){3, 3, 1, 1}, w);
            add_tensor(&b, arena_printf(&a, "%s", bias), 1, (int64_t[]){3}, v);
            add_node(&b, &a, "Conv", arena_printf(&a, "h%d %s %s", i, weight, bias),
                     arena_printf(&a, "h%d", i + 1));
        }
        Imported r = import_file(save(&b, &a, "folded.onnx"));
        ck_assert_msg(build_graph(&r, &(OnnxOptions){0}), "%s", r.d.msg);
        ck_assert_int_eq(noted(r.m, ONNX_REMARK, "Conv", "folded"), form < 2);
        release(&r);
    }
    arena_free(&a);
}
END_TEST

/* The ratio of a Dropout is an attribute or an operand, by default 0.5.  Whether it drops is decided by the
 * operand training_mode or, where that is absent, by whether the model is imported for training. */
START_TEST(dropout_by_attribute_or_operand)
{
    static float quarter[1] = {0.25f};
    static const struct {
        int opset;
        bool attribute, forward_only;
        const char *operands;
        double ratio; /* 0: nothing drops */
    } cases[] = {{7, true, false, "x", 0.25},      {7, false, false, "x", 0.5},
                 {7, true, true, "x", 0},          {13, false, false, "x quarter", 0.25},
                 {13, false, false, "x", 0.5},     {13, false, false, "x quarter yes", 0.25},
                 {13, false, true, "x quarter yes", 0.25}, {13, false, false, "x quarter no", 0}};
    Arena a = {0};
    Builder b;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        start(&b, cases[i].opset);
        add_value(&b, &a, "x", FLOAT, "88", true);
        add_value(&b, &a, "y", FLOAT, "88", false);
        add_tensor(&b, "quarter", 0, NULL, quarter);
        add_bool(&b, "yes", true);
        add_bool(&b, "no", false);
        Onnx__NodeProto *n = add_node(&b, &a, "Dropout", cases[i].operands, "y");
        if (cases[i].attribute) {
            Onnx__AttributeProto *t = add_attr(&b, n, "ratio");
            t->has_type = t->has_f = true;
            t->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT;
            t->f = 0.25f;
        }
        Imported r = import_file(save(&b, &a, "dropout.onnx"));
        OnnxOptions opt = {.forward_only = cases[i].forward_only};
        ck_assert_msg(build_graph(&r, &opt), "%s", r.d.msg);
        ck_assert_uint_eq(r.g.norder, 1);
        const Node *d = &r.g.nodes[r.g.order[0].i]; /* y is a copy of x where nothing drops */
        ck_assert_msg(d->op == (cases[i].ratio > 0 ? OP_dropout : OP_copy), "case %zu", i);
        if (d->op == OP_dropout)
            ck_assert_double_eq(((const DropoutAttrs *)d->attr)->p, cases[i].ratio);
        release(&r);
    }
    arena_free(&a);
}
END_TEST

/* The mask says what the dropout kept, and no constant of its size is made. */
START_TEST(dropout_mask_is_the_draw)
{
    Arena a = {0};
    Builder b;
    start(&b, 7);
    add_value(&b, &a, "x", FLOAT, "88", true);
    add_value(&b, &a, "y", FLOAT, "88", false);
    add_value(&b, &a, "m", FLOAT, "88", false);
    add_node(&b, &a, "Dropout", "x", "y m");
    Imported r = import_file(save(&b, &a, "mask.onnx"));
    OnnxOptions opt = {0};
    ck_assert_msg(build_graph(&r, &opt), "%s", r.d.msg);
    void **data = NEW(&a, void *, r.g.nvals);
    float x[64];
    int64_t rng[2] = {7, 1};
    for (int i = 0; i < 64; i++)
        x[i] = 1;
    data[graph_find(&r.g, "x").i] = x;
    for (uint32_t v = 1; v < r.g.nvals; v++) {
        ck_assert(!graph_is_const(&r.g, (Val){v}) || type_count(val_type(&r.g, (Val){v})) < 64);
        if (r.g.vals[v].kind == VAL_INPUT && r.g.vals[v].type.dt == DT_I64)
            data[v] = rng;
    }
    ck_assert_msg(graph_eval(&r.g, data, &a, &r.d), "%s", r.d.msg);
    const float *y = data[graph_find(&r.g, "y").i], *m = data[graph_find(&r.g, "m").i];
    int kept = 0;
    for (int i = 0; i < 64; i++) {
        ck_assert_double_eq(y[i], 2 * m[i]);
        kept += m[i] == 1;
    }
    ck_assert_int_gt(kept, 16);
    ck_assert_int_lt(kept, 48);
    release(&r);
    arena_free(&a);
}
END_TEST

Suite *suite_training_form(void)
{
    Suite *s = suite_create("training_form");
    TCase *t = tcase_create("import");
    tcase_add_checked_fixture(t, make_folder, remove_folder);
    tcase_add_test(t, batch_norm_is_brought_to_training_form);
    tcase_add_test(t, weights_without_values);
    tcase_add_test(t, running_statistics);
    tcase_add_loop_test(t, written_out_batch_norm, 0, 7);
    tcase_add_test(t, folded_norms_are_counted);
    tcase_add_test(t, folded_batch_norm_is_noted);
    tcase_add_test(t, dropout_by_attribute_or_operand);
    tcase_add_test(t, dropout_mask_is_the_draw);
    suite_add_tcase(s, t);
    return s;
}
