/* test_onnx_index.c -- the import of indices that PyTorch expands to all elements: they are kept as small as
 * they were before (ir/onnx/import_index.c).  Sparse tensors; sequences. */
#include "tests.h"

#include <math.h>

#include "command.h"
#include "imported.h"
#include "onnx_builder.h"

/* Adds nodes that gather elements of x by `index` and add each one to x where it came from, which gives y. */
static void gather_and_add(Builder *b, Arena *a, int64_t axis)
{
    add_int(b, add_node(b, a, "GatherElements", "x index", "g"), "axis", axis);
    Onnx__NodeProto *n = add_node(b, a, "ScatterElements", "x index g", "y");
    add_int(b, n, "axis", axis);
    Onnx__AttributeProto *how = add_attr(b, n, "reduction");
    how->has_type = how->has_s = true;
    how->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING;
    how->s = (ProtobufCBinaryData){3, (uint8_t *)"add"};
}

/* An index of rows that PyTorch expands to all of their elements, 8 bytes each, stays one of rows, whether it
 * is an expanded input, an expanded constant or an input repeated by Tile. */
START_TEST(an_index_of_rows_stays_one)
{
    enum { I64 = ONNX__TENSOR_PROTO__DATA_TYPE__INT64 };
    static int64_t row[4] = {2, -3, 1, 1}, times[3] = {1, 1, 2};
    float x[12];
    Arena a = {0};
    Builder b;
    for (int i = 0; i < 12; i++)
        x[i] = (float)(i * i);
    start(&b, 18);
    add_value(&b, &a, "x", FLOAT, "232", true);
    if (_i != 1)
        add_value(&b, &a, "row", I64, "221", true);
    Onnx__TensorProto *k = _i == 1 ? add_tensor(&b, "row", 3, (int64_t[]){2, 2, 1}, NULL)
                                   : add_tensor(&b, "times", 1, (int64_t[]){3}, NULL);
    k->data_type = I64;
    k->int64_data = _i == 1 ? row : times;
    k->n_int64_data = _i == 1 ? 4 : 3;
    add_value(&b, &a, "like", FLOAT, "222", true);
    add_value(&b, &a, "y", FLOAT, "232", false);
    add_node(&b, &a, "Shape", "like", "shape");
    add_node(&b, &a, _i < 2 ? "Expand" : "Tile", _i < 2 ? "row shape" : "row times", "index");
    gather_and_add(&b, &a, 1);
    OnnxFeed feed[] = {{"x", {type_make(DT_F32, 3, (int64_t[]){2, 3, 2}), x}},
                       {"row", {type_make(DT_I64, 3, (int64_t[]){2, 2, 1}), row}}};
    Imported r = import_file(save(&b, &a, "rows.onnx"));
    ck_assert_msg(build_graph(&r, &(OnnxOptions){.feed = feed, .nfeed = _i == 1 ? 1 : 2}), "%s", r.d.msg);
    const Node *scatter = graph_def(&r.g, r.g.out[0]), *gather = graph_def(&r.g, scatter->in[2]);
    ck_assert_int_eq(scatter->op, OP_scatter_nd);
    ck_assert_int_eq(gather->op, OP_gather_nd);
    ck_assert_int_eq(type_count(val_type(&r.g, gather->in[1])), 4);
    void **data = NEW(&a, void *, r.g.nvals);
    ck_assert_msg(graph_eval(&r.g, data, &a, &r.d), "%s", r.d.msg);
    Tensor y = {*val_type(&r.g, r.g.out[0]), data[r.g.out[0].i]};
    static const int found[] = {2, 1, 2, 1, 3, 1}; /* 1 + how often a row is in the index */
    for (int i = 0; i < 12; i++)
        ck_assert_double_eq(tensor_f(&y, i), (double)found[i / 2] * x[i]);
    release(&r);
    arena_free(&a);
}
END_TEST

/* A matrix of indices that is repeated for each member of a batch, as in DeBERTa's attention, stays one
 * matrix, whether it is an expanded input or a constant. */
START_TEST(an_index_of_a_batch_stays_one)
{
    enum { I64 = ONNX__TENSOR_PROTO__DATA_TYPE__INT64 };
    static int64_t index[6] = {2, -3, 1, 0, 0, 2}, known[12] = {2, -3, 1, 0, 0, 2, 2, -3, 1, 0, 0, 2};
    float x[12];
    Arena a = {0};
    Builder b;
    for (int i = 0; i < 12; i++)
        x[i] = (float)(i * i);
    start(&b, 18);
    add_value(&b, &a, "x", FLOAT, "223", true);
    add_value(&b, &a, "y", FLOAT, "223", false);
    if (_i) {
        Onnx__TensorProto *k = add_tensor(&b, "index", 3, (int64_t[]){2, 2, 3}, NULL);
        k->data_type = I64;
        k->int64_data = known;
        k->n_int64_data = 12;
    } else {
        add_value(&b, &a, "matrix", I64, "23", true);
        add_node(&b, &a, "Shape", "x", "shape");
        add_node(&b, &a, "Expand", "matrix shape", "index");
    }
    gather_and_add(&b, &a, 2);
    OnnxFeed feed[] = {{"x", {type_make(DT_F32, 3, (int64_t[]){2, 2, 3}), x}},
                       {"matrix", {type_make(DT_I64, 2, (int64_t[]){2, 3}), index}}};
    Imported r = import_file(save(&b, &a, "batch.onnx"));
    ck_assert_msg(build_graph(&r, &(OnnxOptions){.feed = feed, .nfeed = _i ? 1 : 2}), "%s", r.d.msg);
    const Node *scatter = graph_def(&r.g, r.g.out[0]), *gather = graph_def(&r.g, scatter->in[2]);
    ck_assert_int_eq(type_count(val_type(&r.g, scatter->in[1])), 6);
    ck_assert_int_eq(type_count(val_type(&r.g, gather->in[1])), 6);
    void **data = NEW(&a, void *, r.g.nvals);
    ck_assert_msg(graph_eval(&r.g, data, &a, &r.d), "%s", r.d.msg);
    Tensor y = {*val_type(&r.g, r.g.out[0]), data[r.g.out[0].i]};
    static const int found[] = {2, 2, 2, 3, 1, 2}; /* 1 + how often an element is in the index */
    for (int i = 0; i < 12; i++)
        ck_assert_double_eq(tensor_f(&y, i), (double)found[i % 6] * x[i]);
    release(&r);
    arena_free(&a);
}
END_TEST

/* Sparse tensors are read as dense ones, in initializers and constants, whether they are indexed by element
 * or by coordinates; they do not train.  Indices lie inside. */
START_TEST(sparse_tensors)
{
    static int64_t element[] = {1, 5}, coordinates[] = {0, 1, 1, 2}, outside[] = {0, 1, 2, 0};
    static float v[2] = {7, -8};
    const int64_t dims[] = {2, 3}, shape[] = {2, 2}, want[] = {0, 7, 0, 0, 0, -8};
    Arena a = {0};
    Builder b;
    Onnx__TensorProto values = ONNX__TENSOR_PROTO__INIT, index = ONNX__TENSOR_PROTO__INIT;
    Onnx__SparseTensorProto sparse = ONNX__SPARSE_TENSOR_PROTO__INIT, *all[] = {&sparse};
    values.name = (char *)"w";
    values.has_data_type = index.has_data_type = true;
    values.data_type = FLOAT;
    values.float_data = v;
    index.data_type = INT64;
    index.int64_data = _i == 0 ? element : _i == 3 ? outside : coordinates;
    values.n_float_data = sparse.n_dims = 2;
    values.n_dims = 1;
    index.n_dims = _i ? 2 : 1;
    index.n_int64_data = _i ? 4 : 2;
    values.dims = index.dims = (int64_t *)(uintptr_t)shape;
    sparse.dims = (int64_t *)(uintptr_t)dims;
    sparse.values = &values;
    sparse.indices = &index;
    start(&b, 18);
    add_value(&b, &a, "y", FLOAT, "23", false);
    if (_i == 2) {
        Onnx__AttributeProto *value = add_attr(&b, add_node(&b, &a, "Constant", "", "w"), "sparse_value");
        value->has_type = true;
        value->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__SPARSE_TENSOR;
        value->sparse_tensor = &sparse;
    } else {
        b.graph.n_sparse_initializer = 1;
        b.graph.sparse_initializer = all;
    }
    add_node(&b, &a, "Identity", "w", "y");
    Imported r = import_file(save(&b, &a, "sparse.onnx"));
    ck_assert_msg(build_graph(&r, &(OnnxOptions){0}) == (_i < 3), "%s", r.d.msg);
    if (_i == 3)
        ck_assert_ptr_nonnull(strstr(r.d.msg, "sparse tensor 'w': index 1 is outside of it"));
    Tensor y = _i < 3 ? graph_tensor(&r.g, r.g.out[0]) : (Tensor){0};
    ck_assert_int_eq(_i < 3 ? params_of(&r.g) : 0, 0);
    for (int i = 0; i < 6 && _i < 3; i++)
        ck_assert_int_eq(tensor_i(&y, i), want[i]);
    release(&r);
    arena_free(&a);
}
END_TEST

/* SequenceMap adds w, which all elements share, to every part of x; only sequences are mapped. */
START_TEST(elements_of_a_sequence)
{
    Arena a = {0};
    Builder b, body;
    start(&body, 17);
    add_value(&body, &a, "part", FLOAT, "3", true);
    add_value(&body, &a, "other", FLOAT, "3", true);
    add_value(&body, &a, "sum", FLOAT, "3", false);
    add_node(&body, &a, "Add", "part other", "sum");
    start(&b, 17);
    add_value(&b, &a, "x", FLOAT, "23", true);
    add_value(&b, &a, "w", FLOAT, "3", true);
    add_value(&b, &a, "y", FLOAT, "23", false);
    add_int(&b, add_node(&b, &a, "SplitToSequence", "x", "parts"), "keepdims", 0);
    add_attr(&b, add_node(&b, &a, "SequenceMap", _i ? "x w" : "parts w", "sums"), "body")->g = &body.graph;
    add_int(&b, add_node(&b, &a, "ConcatFromSequence", "sums", "y"), "new_axis", 1);
    Imported r = import_file(save(&b, &a, "mapped.onnx"));
    ck_assert_msg(build_graph(&r, &(OnnxOptions){.forward_only = true}) == !_i, "%s", r.d.msg);
    if (_i) {
        ck_assert_ptr_nonnull(strstr(r.d.msg, "operand 0 is not a sequence"));
    } else {
        const float *y = output_of(
            &r, &a, 2, (Fed[]){{"x", (float[]){1, 2, 3, 4, 5, 6}}, {"w", (float[]){10, 20, 30}}});
        for (int i = 0; i < 6; i++)
            ck_assert_float_eq(y[i], (float)(i + 1 + 10 * (i % 3 + 1)));
    }
    release(&r);
    arena_free(&a);
}
END_TEST

Suite *suite_onnx_index(void)
{
    Suite *s = suite_create("onnx_index");
    TCase *c = tcase_create("onnx_index");
    tcase_add_checked_fixture(c, make_folder, remove_folder);
    tcase_add_loop_test(c, an_index_of_rows_stays_one, 0, 3);
    tcase_add_loop_test(c, an_index_of_a_batch_stays_one, 0, 2);
    tcase_add_loop_test(c, sparse_tensors, 0, 4);
    tcase_add_loop_test(c, elements_of_a_sequence, 0, 2);
    suite_add_tcase(s, c);
    return s;
}
