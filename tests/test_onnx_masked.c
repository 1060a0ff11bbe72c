/* test_onnx_masked.c -- the import of writes to the positions of a mask (ir/onnx/import_masked.c); what they
 * compute is tested with tests/data/ops. */
#include "tests.h"

#include <math.h>
#include <string.h>

#include "command.h"
#include "imported.h"
#include "onnx_builder.h"

/* y = x.masked_scatter(mask, source), where the mask selects five of six rows of 4 elements and the source
 * has only four rows: the fifth selected row is NaN. */
START_TEST(what_a_mask_finds_no_elements_for_is_nan)
{
    Arena a = {0};
    Imported r = import_file(CKC_SOURCE_DIR "/tests/data/ops/masked_scatter_rows.onnx");
    ck_assert_msg(build_graph(&r, &(OnnxOptions){0}), "%s", r.d.msg);
    float x[24], source[16];
    bool mask[6] = {true, true, false, true, true, true};
    for (int i = 0; i < 24; i++)
        x[i] = (float)i;
    for (int i = 0; i < 16; i++)
        source[i] = (float)(100 + i);
    const float *y = output_of(&r, &a, 3, (Fed[]){{"x", x}, {"mask", mask}, {"source", source}});
    for (int i = 0; i < 20; i++)
        ck_assert_float_eq(y[i], i < 8 ? 100 + (float)i : i < 12 ? (float)i : 96 + (float)i);
    for (int i = 20; i < 24; i++)
        ck_assert_float_nan(y[i]);
    release(&r);
    arena_free(&a);
}
END_TEST

static float two[] = {2};

static const Fed xyz[] = {{"x", (float[]){1, 5, -INFINITY, 4, 2, 3}},
                          {"y", (float[]){2, 3, 0, 2, 2, 1}},
                          {"z", (float[]){10, 11, 12, 13, 14, 15}}};

/* z[x > y] = x[x > y] * y[x > y], or two less that, as both exporters write it; another mask's elements have
 * other positions.
 */
static bool import_product(Arena *a, Imported *r, const char *positions, float *z)
{
    Builder b;
    start(&b, 17);
    for (int i = 0; i < 3; i++)
        add_value(&b, a, (const char *[]){"x", "y", "z"}[i], FLOAT, "23", true);
    add_value(&b, a, "out", FLOAT, "23", false);
    add_node(&b, a, "Greater", "x y", "more");
    add_node(&b, a, "Greater", "y x", "less");
    add_node(&b, a, "NonZero", "more", "axes");
    add_node(&b, a, "NonZero", "less", "other_axes");
    add_node(&b, a, "Transpose", "axes", "at");
    add_node(&b, a, "Transpose", "other_axes", "other");
    add_node(&b, a, "GatherND", "x at", "x_at");
    add_node(&b, a, "GatherND", "y at", "y_at");
    add_node(&b, a, "Mul", "x_at y_at", "product");
    add_tensor(&b, "two", 0, NULL, two);
    add_node(&b, a, "Sub", "two product", "from_two");
    for (int rank = 0; rank < 2; rank++) {
        Onnx__TensorProto *t = add_tensor(&b, rank ? "zeros" : "zero", rank, &(int64_t){1}, NULL);
        t->data_type = INT64;
        t->n_int64_data = 1;
        t->int64_data = NEW(a, int64_t, 1);
    }
    add_node(&b, a, "Shape", "at", "shape");
    add_node(&b, a, "Gather", "shape zero", "count");
    add_node(&b, a, "Unsqueeze", "count zeros", "end");
    add_node(&b, a, "Slice", "product zeros end zeros", "first");
    add_node(&b, a, "ScatterND", positions, "out");
    *r = import_file(save(&b, a, "product.onnx"));
    if (!build_graph(r, &(OnnxOptions){0}))
        return false;
    memcpy(z, output_of(r, a, 3, xyz), 6 * sizeof *z);
    return true;
}

START_TEST(what_a_mask_picks_is_combined_and_written_back)
{
    static const float want[][6] = {
        {10, 15, 12, 8, 14, 3}, {10, 15, 12, 8, 14, 3}, {10, -13, 12, -6, 14, -1}};
    Arena a = {0};
    Imported r;
    float z[6];
    for (int form = 0; form < 3; form++) {
        static const char *const positions[] = {"z at product", "z at first", "z at from_two"};
        bool read = import_product(&a, &r, positions[form], z);
        ck_assert_msg(read, "%s", r.d.msg);
        for (int i = 0; i < 6; i++)
            ck_assert_float_eq(z[i], want[form][i]);
        release(&r);
    }
    ck_assert(!import_product(&a, &r, "z other product", z));
    ck_assert_int_eq(r.d.status, EXIT_UNSUPPORTED);
    release(&r);
    arena_free(&a);
}
END_TEST

/* z[x > y] = x[x > y] of one dimension, as torch.export's exporter writes it without optimizing: the tuples
 * are numbers in between. */
static bool import_numbers(Arena *a, Imported *r, const char *shape)
{
    Builder b;
    start(&b, 18);
    for (int i = 0; i < 3; i++)
        add_value(&b, a, (const char *[]){"x", "y", "z"}[i], FLOAT, "6", true);
    add_value(&b, a, "out", FLOAT, "6", false);
    Onnx__TensorProto *t = add_tensor(&b, "one", 1, &(int64_t){1}, NULL);
    t->data_type = INT64;
    t->n_int64_data = 1;
    t->int64_data = NEW(a, int64_t, 1);
    t->int64_data[0] = 1;
    add_node(&b, a, "Greater", "x y", "more");
    add_node(&b, a, "NonZero", "more", "axes");
    add_node(&b, a, "Transpose", "axes", "at");
    add_node(&b, a, "Squeeze", "at one", "numbers");
    add_node(&b, a, "Max", "numbers", "most");
    add_node(&b, a, "Shape", shape, "shape");
    add_node(&b, a, "Expand", "numbers shape", "expanded");
    add_node(&b, a, "Unsqueeze", "expanded one", "tuples");
    add_int(&b, add_node(&b, a, "Concat", "tuples", "all"), "axis", -1);
    add_node(&b, a, "GatherND", "x all", "picked");
    add_node(&b, a, "Transpose", "picked", "transposed");
    add_node(&b, a, "ScatterND", "z at transposed", "out");
    *r = import_file(save(&b, a, "numbers.onnx"));
    return build_graph(r, &(OnnxOptions){0});
}

START_TEST(tuples_of_a_mask_are_numbers_in_between)
{
    static const float want[] = {10, 5, 12, 4, 14, 3};
    Arena a = {0};
    Imported r;
    ck_assert_msg(import_numbers(&a, &r, "most"), "%s", r.d.msg);
    const float *z = output_of(&r, &a, 3, xyz);
    for (int i = 0; i < 6; i++)
        ck_assert_float_eq(z[i], want[i]);
    release(&r);
    ck_assert(!import_numbers(&a, &r, "at")); /* [count, 1]: a table of count x count */
    ck_assert_int_eq(r.d.status, EXIT_UNSUPPORTED);
    release(&r);
    arena_free(&a);
}
END_TEST

static void add_numbers(Builder *b, Arena *a, const char *name, int64_t n, const int64_t *v)
{
    Onnx__TensorProto *t = add_tensor(b, name, 1, &n, NULL);
    t->data_type = INT64;
    t->n_int64_data = (size_t)n;
    t->int64_data = NEW(a, int64_t, n);
    memcpy(t->int64_data, v, (size_t)n * sizeof *v);
}

/* z[x > y] = a[x > y] + a[x > y], where masks of rows are computed anew for each of the three.  elements: the
 * rows are expanded to their own shape, of `width` elements each, and written one by one. */
static bool import_rows(Arena *a, Imported *r, const char *second, bool elements, int64_t width)
{
    static const char *const name[] = {"x", "y", "a", "z"};
    Builder b;
    start(&b, 17);
    for (int i = 0; i < 4; i++)
        add_value(&b, a, name[i], FLOAT, i < 2 ? "3" : "32", true);
    add_value(&b, a, "out", FLOAT, "32", false);
    add_numbers(&b, a, "last", 1, (int64_t[]){-1});
    add_numbers(&b, a, "width", 1, &width);
    add_numbers(&b, a, "shape", 2, (int64_t[]){3, 2});
    for (int i = 0; i < 3; i++) {
        const char *mask = arena_printf(a, "mask%d", i), *axes = arena_printf(a, "axes%d", i);
        add_node(&b, a, "Greater", i == 1 ? second : "x y", mask);
        if (i == 2 && elements) {
            add_node(&b, a, "Unsqueeze", "mask2 last", "column");
            add_node(&b, a, "Expand", "column shape", mask = "mask");
        }
        add_node(&b, a, "NonZero", mask, axes);
        add_node(&b, a, "Transpose", axes, arena_printf(a, "at%d", i));
    }
    add_node(&b, a, "GatherND", "a at0", "first");
    add_node(&b, a, "GatherND", "a at1", "second");
    add_node(&b, a, "Add", "first second", "sum");
    add_int(&b, add_node(&b, a, "Cast", "mask0", "ones"), "to", INT64);
    add_node(&b, a, "ReduceSum", "ones", "count");
    add_int(&b, add_node(&b, a, "Concat", "count width", "rows"), "axis", 0);
    add_node(&b, a, "Expand", "sum rows", "expanded");
    add_node(&b, a, "Reshape", "expanded last", "each");
    add_node(&b, a, "ScatterND", elements ? "z at2 each" : "z at2 sum", "out");
    *r = import_file(save(&b, a, "rows.onnx"));
    return build_graph(r, &(OnnxOptions){.forward_only = true});
}

START_TEST(rows_are_picked_by_masks_that_are_computed_alike)
{
    static const float want[] = {10, 11, 6, 8, 14, 15};
    Arena a = {0};
    Imported r;
    for (int elements = 0; elements < 2; elements++) {
        ck_assert_msg(import_rows(&a, &r, "x y", elements, 2), "%s", r.d.msg);
        const float *z = output_of(&r, &a, 4,
                                   (Fed[]){{"x", (float[]){1, 5, 2}},
                                           {"y", (float[]){2, 3, 2}},
                                           {"a", (float[]){1, 2, 3, 4, 5, 6}},
                                           {"z", (float[]){10, 11, 12, 13, 14, 15}}});
        for (int i = 0; i < 6; i++)
            ck_assert_float_eq(z[i], want[i]);
        release(&r);
    }
    for (int wrong = 0; wrong < 2; wrong++) {
        ck_assert(!import_rows(&a, &r, wrong ? "x y" : "y x", true, wrong ? 1 : 2));
        ck_assert_int_eq(r.d.status, EXIT_UNSUPPORTED);
        release(&r);
    }
    arena_free(&a);
}
END_TEST

/* z[w * x < y] = (w * x)[w * x < y]: the mask depends on data, though w, which it reads first, does not. */
START_TEST(a_mask_freezes_no_parameter)
{
    Arena a = {0};
    Imported r;
    Builder b;
    start(&b, 17);
    for (int i = 0; i < 3; i++)
        add_value(&b, &a, (const char *[]){"x", "y", "z"}[i], FLOAT, "3", true);
    add_value(&b, &a, "out", FLOAT, "3", false);
    add_tensor(&b, "w", 1, &(int64_t){3}, (float[]){1, 5, 3});
    add_node(&b, &a, "Mul", "w x", "wx");
    add_node(&b, &a, "Less", "wx y", "less");
    add_node(&b, &a, "NonZero", "less", "axes");
    add_node(&b, &a, "Transpose", "axes", "at");
    add_node(&b, &a, "GatherND", "wx at", "picked");
    add_node(&b, &a, "ScatterND", "z at picked", "out");
    r = import_file(save(&b, &a, "scaled.onnx"));
    ck_assert_msg(build_graph(&r, &(OnnxOptions){0}), "%s", r.d.msg);
    ck_assert_int_eq(r.g.vals[graph_find(&r.g, "w").i].kind, VAL_PARAM);
    release(&r);
    arena_free(&a);
}
END_TEST

/* If the positions of a mask are an output beside y = x[mask], the NonZero that makes them is refused, and
 * listed once. */
START_TEST(positions_of_a_mask_that_are_read_otherwise_are_refused_once)
{
    Arena a = {0};
    Builder b;
    start(&b, 17);
    add_value(&b, &a, "x", FLOAT, "23", true);
    add_value(&b, &a, "y", FLOAT, "N", false);
    add_value(&b, &a, "at", 7, "N2", false);
    add_node(&b, &a, "NonZero", "x", "axes");
    add_node(&b, &a, "Transpose", "axes", "at");
    add_node(&b, &a, "GatherND", "x at", "y");
    Imported r = import_file(save(&b, &a, "masked.onnx"));
    ck_assert(!build_graph(&r, &(OnnxOptions){0}));
    ck_assert_int_eq(r.d.status, EXIT_UNSUPPORTED);
    ck_assert_msg(strstr(r.d.msg, "1 unsupported node:\n  node 'node0' (NonZero, opset 17): operand 0 ('x')"),
                  "%s", r.d.msg);
    release(&r);
    arena_free(&a);
}
END_TEST

/* Where a bag ends is data, as with EmbeddingBag's offsets: the message says what to do instead. */
START_TEST(sizes_of_data_are_refused_with_advice)
{
    Arena a = {0};
    Builder b;
    start(&b, 17);
    add_value(&b, &a, "x", FLOAT, "23", true);
    add_value(&b, &a, "offsets", 7, "2", true);
    add_value(&b, &a, "y", FLOAT, "N3", false);
    add_node(&b, &a, "ReduceMin", "offsets", "start");
    add_node(&b, &a, "ReduceMax", "offsets", "end");
    add_node(&b, &a, "Slice", "x start end", "y");
    Imported r = import_file(save(&b, &a, "bag.onnx"));
    ck_assert(!build_graph(&r, &(OnnxOptions){0}));
    ck_assert_int_eq(r.d.status, EXIT_UNSUPPORTED);
    ck_assert_msg(strstr(r.d.msg, "when compiling: pad to a fixed size and mask") != NULL, "%s", r.d.msg);
    release(&r);
    arena_free(&a);
}
END_TEST

Suite *suite_onnx_masked(void)
{
    Suite *s = suite_create("onnx_masked");
    TCase *c = tcase_create("onnx_masked");
    tcase_add_checked_fixture(c, make_folder, remove_folder);
    tcase_add_test(c, what_a_mask_picks_is_combined_and_written_back);
    tcase_add_test(c, tuples_of_a_mask_are_numbers_in_between);
    tcase_add_test(c, rows_are_picked_by_masks_that_are_computed_alike);
    tcase_add_test(c, a_mask_freezes_no_parameter);
    tcase_add_test(c, what_a_mask_finds_no_elements_for_is_nan);
    tcase_add_test(c, positions_of_a_mask_that_are_read_otherwise_are_refused_once);
    tcase_add_test(c, sizes_of_data_are_refused_with_advice);
    suite_add_tcase(s, c);
    return s;
}
