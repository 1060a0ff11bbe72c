/* test_onnx.c -- reading and importing ONNX models, one behaviour at a time: hostile files, external data,
 * binding, what cannot be imported, functions.  The models are built here; test_onnx_models.c has whole
 * models, test_trains.c tests which tensors train. */
#include "tests.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command.h"
#include "imported.h"
#include "onnx_builder.h"

/* ---- hostile files ------------------------------------------------------ */

static void expect_one_line(const char *path, const char *part)
{
    Imported r = import_file(path);
    ck_assert_msg(!r.ok, "%s was accepted", path);
    ck_assert_msg(strstr(r.d.msg, part) && !strchr(r.d.msg, '\n'), "%s", r.d.msg);
    ck_assert_msg(strncmp(r.d.msg, path, strlen(path)) == 0, "%s", r.d.msg);
    ck_assert_int_eq(r.d.status, EXIT_BAD_INPUT);
    release(&r);
}

START_TEST(malformed_files_are_refused)
{
    Arena a = {0};
    static const char *const nested[] = {"nest_100", "nest_1000", "nest_3000"};
    for (int i = 0; i < 3; i++) {
        const char *path =
            shared(&a, arena_printf(&a, "fixtures/malformed/%s.onnx", nested[i]));
        if (path)
            expect_one_line(path, "nested too deep");
    }
    const char *cut = shared(&a, "fixtures/malformed/mnist_truncated_13000.onnx");
    if (cut)
        expect_one_line(cut, "not a complete ONNX model");
    expect_one_line("absent.onnx", "No such file");
    write_bytes("empty.onnx", "", 0);
    expect_one_line("empty.onnx", "empty");
    write_bytes("text.onnx", "not a model at all", 18);
    expect_one_line("text.onnx", "not");
    arena_free(&a);
}
END_TEST

/* A file of two megabytes of empty nodes, which would unpack to a hundred times as much, is refused. */
START_TEST(memory_is_capped)
{
    Arena a = {0};
    enum { NODES = 1 << 20 };
    uint8_t *bytes = NEW(&a, uint8_t, 2 * NODES + 16);
    size_t n = 0;
    bytes[n++] = 7 << 3 | 2; /* graph */
    for (uint32_t v = 2 * NODES; v; v >>= 7)
        bytes[n++] = (uint8_t)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
    for (int i = 0; i < NODES; i++) {
        bytes[n++] = 1 << 3 | 2; /* an empty node */
        bytes[n++] = 0;
    }
    write_bytes("nodes.onnx", bytes, n);
    expect_one_line("nodes.onnx", "cannot be decoded");
    arena_free(&a);
}
END_TEST

/* Prefixes of a model are refused, and none crashes: every seventh of less than 2000 bytes. */
START_TEST(prefixes_do_not_crash)
{
    Arena a = {0};
    const char *path = shared(&a, "fixtures/models/test_training_model.onnx");
    FileMap map;
    Diag d = {0};
    if (!path)
        return;
    ck_assert(file_map(&map, path, &d));
    for (size_t n = 1; n < map.size && n < 2000; n += 7) {
        write_bytes("prefix.onnx", map.data, n);
        Imported r = import_file("prefix.onnx");
        ck_assert(!r.ok);
        release(&r);
    }
    file_unmap(&map);
    arena_free(&a);
}
END_TEST

/* ---- external data ------------------------------------------------------ */

static Imported import_external(Builder *b, Arena *a, const char *location,
                                const char *offset, const char *length)
{
    start(b, 13);
    add_value(b, a, "x", FLOAT, "23", true);
    add_value(b, a, "y", FLOAT, "23", false);
    add_node(b, a, "Add", "x w", "y");
    add_external(b, a, "w", 3, location, offset, length);
    return import_file(save(b, a, "external.onnx"));
}

START_TEST(external_data_is_mapped)
{
    Arena a = {0};
    Builder b;
    float w[4] = {9, 1, 2, 3};
    write_bytes("w.bin", w, sizeof w);
    Imported r = import_external(&b, &a, "w.bin", "4", "12");
    ck_assert_msg(build_graph(&r, &(OnnxOptions){0}), "%s", r.d.msg);
    Val v = graph_find(&r.g, "w");
    Tensor t = graph_tensor(&r.g, v);
    ck_assert_int_eq(r.g.vals[v.i].kind, VAL_PARAM);
    ck_assert_int_eq(r.g.vals[v.i].offset, 4);
    ck_assert_double_eq(tensor_f(&t, 2), 3);
    release(&r);
    arena_free(&a);
}
END_TEST

/* A model and its data may be links into one folder, as in a cache of downloads; or its data lies only there.
 * A link to data outside that folder is refused unless the caller allows the folder it lies in. */
START_TEST(external_data_through_links)
{
    static const char *const data[] = {"w.bin", "x.bin", "x.bin", "2"};
    Arena a = {0};
    Builder b;
    write_bytes("elsewhere.bin", (float[]){1, 2, 3, 4}, 16);
    ck_assert_int_eq(mkdir("blobs", 0777) || mkdir("names", 0777), 0);
    write_bytes("blobs/2", (float[]){1, 2, 3, 4}, 16);
    ck_assert_int_eq(symlink("../blobs/1", "names/m.onnx") || symlink("../blobs/2", "names/w.bin") ||
                         symlink("../elsewhere.bin", "names/x.bin"),
                     0);
    for (int i = 0; i < 4; i++) {
        Imported r = import_external(&b, &a, data[i], "0", "12");
        release(&r);
        ck_assert_int_eq(rename("external.onnx", "blobs/1"), 0);
        r = import_file("names/m.onnx");
        onnx_allow(r.m, &(const char *){"."}, i == 2);
        ck_assert_msg(build_graph(&r, &(OnnxOptions){0}) == (i != 1), "%d: %s", i, r.d.msg);
        release(&r);
    }
    arena_free(&a);
}
END_TEST

START_TEST(external_data_stays_in_the_folder)
{
    static const struct {
        const char *location, *offset, *length, *part;
    } bad[] = {
        {"/etc/passwd", "0", "12", "outside the model's folder"},
        {"../../etc/passwd", "0", "12", "outside the model's folder"},
        {"sub/../../../etc/passwd", "0", "12", "outside the model's folder"},
        {"link.bin", "0", "12", "outside the model's folder"},
        {"..", "0", "12", "outside the model's folder"},
        {"sub", "0", "12", "not a regular file"},
        {"missing.bin", "0", "12", "No such file"},
        {"w.bin", "8", "12", "outside the file"},
        {"w.bin", "99999999999", "12", "outside"},
        {"w.bin", "0", "8", "has 8 bytes"},
        {"w.bin", "-4", "12", "outside"},
        {NULL, "0", "12", "without a location"},
    };
    Arena a = {0};
    Builder b;
    write_bytes("w.bin", (float[]){1, 2, 3, 4}, 16);
    ck_assert_int_eq(symlink("/etc/passwd", "link.bin"), 0);
    ck_assert_int_eq(mkdir("sub", 0777), 0);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        Imported r = import_external(&b, &a, bad[i].location, bad[i].offset, bad[i].length);
        ck_assert(!build_graph(&r, &(OnnxOptions){0}));
        ck_assert_msg(strstr(r.d.msg, bad[i].part) && !strchr(r.d.msg, '\n'), "%zu: %s", i,
                      r.d.msg);
        release(&r);
    }
    arena_free(&a);
}
END_TEST

/* ---- binding ------------------------------------------------------------ */

static Imported symbolic_model(Builder *b, Arena *a)
{
    start(b, 13);
    add_value(b, a, "x", FLOAT, "NS", true);
    add_value(b, a, "z", FLOAT, "N3", true);
    add_value(b, a, "y", FLOAT, "N3", false);
    add_node(b, a, "ReduceSum", "x", "s");
    add_node(b, a, "Add", "z s", "y");
    return import_file(save(b, a, "symbolic.onnx"));
}

START_TEST(unbound_symbols_are_listed_together)
{
    Arena a = {0};
    Builder b;
    Imported r = symbolic_model(&b, &a);
    ck_assert(!build_graph(&r, &(OnnxOptions){0}));
    ck_assert_ptr_nonnull(strstr(r.d.msg, "N (of x, z), S (of x); give --bind N=N,..."));
    ck_assert_int_eq(r.d.status, EXIT_BAD_INPUT);
    release(&r);
    arena_free(&a);
}
END_TEST

/* A weight in a Constant node of a branch trains, as one of the main graph does. */
START_TEST(weights_in_a_branch_train)
{
    Arena a = {0};
    Builder b, branch;
    static float data[6] = {1, 2, 3, 4, 5, 7};
    start(&b, 17);
    start(&branch, 17);
    add_value(&branch, &a, "z", FLOAT, "22", false);
    Onnx__AttributeProto *value = add_attr(&branch, add_node(&branch, &a, "Constant", "", "w"), "value");
    value->t = add_tensor(&b, "t", 2, (int64_t[]){3, 2}, data);
    add_node(&branch, &a, "MatMul", "x w", "z");
    add_value(&b, &a, "x", FLOAT, "23", true);
    add_value(&b, &a, "y", FLOAT, "22", false);
    add_bool(&b, "yes", true);
    Onnx__NodeProto *n = add_node(&b, &a, "If", "yes", "y");
    add_attr(&b, n, "then_branch")->g = &branch.graph;
    add_attr(&b, n, "else_branch")->g = &branch.graph;
    Imported r = import_file(save(&b, &a, "branch.onnx"));
    ck_assert_msg(build_graph(&r, &(OnnxOptions){0}), "%s", r.d.msg);
    ck_assert_int_eq(r.g.vals[graph_find(&r.g, "w").i].kind, VAL_PARAM);
    release(&r);
    arena_free(&a);
}
END_TEST

/* An integer input that a shape depends on (y is x, repeated `times` times) needs a value by --bind, which
 * may be 0 and must be the one in the data. */
START_TEST(integers_bind)
{
    Arena a = {0};
    Builder b;
    OnnxBind bind[] = {{"times", 3}, {"times", 0}, {"times", 5}};
    OnnxFeed feed = {"times", {type_make(DT_I64, 1, (int64_t[]){1}), &(int64_t){3}}};
    for (int i = 0; i < 4; i++) {
        start(&b, 17);
        add_value(&b, &a, "x", FLOAT, "2", true);
        add_value(&b, &a, "times", ONNX__TENSOR_PROTO__DATA_TYPE__INT64, "1", true);
        add_value(&b, &a, "y", FLOAT, "N", false);
        add_node(&b, &a, "Identity", "times", "t");
        add_node(&b, &a, "Tile", "x t", "y");
        Imported r = import_file(save(&b, &a, "times.onnx"));
        const char *why = i ? "is 3 in the data, and --bind says 5"
                            : "compiling: --bind times=N gives the input its value";
        bool ok = build_graph(&r, &(OnnxOptions){.bind = i ? bind + i - 1 : NULL, .nbind = i > 0,
                                                 .feed = &feed, .nfeed = i == 3});
        if (i % 3 == 0)
            ck_assert_msg(!ok && strstr(r.d.msg, why), "%s", r.d.msg);
        else
            ck_assert_msg(ok && val_type(&r.g, r.g.out[0])->dim[0] == 2 * bind[i - 1].value, "%s", r.d.msg);
        release(&r);
    }
    arena_free(&a);
}
END_TEST

START_TEST(symbols_and_places_bind)
{
    Arena a = {0};
    Builder b;
    OnnxBind bind[] = {{"N", 4}, {"x.1", 7}, {"M", 2}};
    Imported r = symbolic_model(&b, &a);
    ck_assert_msg(build_graph(&r, &(OnnxOptions){.bind = bind, .nbind = 2}), "%s", r.d.msg);
    ck_assert_int_eq(val_type(&r.g, graph_find(&r.g, "x"))->dim[1], 7);
    release(&r);
    r = symbolic_model(&b, &a);
    ck_assert(!build_graph(&r, &(OnnxOptions){.bind = bind, .nbind = 3}));
    ck_assert_ptr_nonnull(strstr(r.d.msg, "--bind M: no input has such a dimension"));
    release(&r);
    bind[0].value = 0;
    r = symbolic_model(&b, &a);
    ck_assert(!build_graph(&r, &(OnnxOptions){.bind = bind, .nbind = 2}));
    ck_assert_ptr_nonnull(strstr(r.d.msg, "--bind N=0: a dimension has a size from 1 on"));
    release(&r);
    OnnxBind batch[] = {{"batch", 5}, {"S", 7}}; /* no symbol is "batch": the first dimension is */
    r = symbolic_model(&b, &a);
    ck_assert_msg(build_graph(&r, &(OnnxOptions){.bind = batch, .nbind = 2}), "%s", r.d.msg);
    ck_assert_int_eq(val_type(&r.g, graph_find(&r.g, "x"))->dim[0], 5);
    release(&r);
    arena_free(&a);
}
END_TEST

/* ---- what cannot be imported -------------------------------------------- */

START_TEST(unsupported_nodes_are_listed_together)
{
    Arena a = {0};
    Builder b;
    start(&b, 13);
    add_value(&b, &a, "x", FLOAT, "23", true);
    add_value(&b, &a, "y", FLOAT, "23", false);
    add_node(&b, &a, "StringNormalizer", "x", "a");
    add_node(&b, &a, "Add", "a c", "b");
    add_node(&b, &a, "NonZero", "x", "c");
    add_node(&b, &a, "TfIdfVectorizer", "b", "d");
    add_node(&b, &a, "Conv", "d d", "e")->domain = (char *)"com.microsoft.nchwc";
    add_node(&b, &a, "DynamicQuantizeMatMul", "e e", "y")->domain = (char *)"com.microsoft";
    Imported r = import_file(save(&b, &a, "four.onnx"));
    ck_assert(!build_graph(&r, &(OnnxOptions){0}));
    ck_assert_int_eq(r.d.status, EXIT_UNSUPPORTED);
    static const char *const parts[] = {
        "5 unsupported nodes", "node 'node0' (StringNormalizer, opset 13): no importer",
        "node 'node2' (NonZero, opset 13): operand 0 ('x') depends",
        "node 'node3' (TfIdfVectorizer, opset 13): no importer",
        "Conv, opset 1): ONNX Runtime's optimizer has", "MatMul, opset 1): a product or the like of 8"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        ck_assert_msg(strstr(r.d.msg, parts[i]), "%s", r.d.msg);
    release(&r);
    arena_free(&a);
}
END_TEST

START_TEST(errors_name_their_node)
{
    Arena a = {0};
    Builder b;
    start(&b, 13);
    add_value(&b, &a, "x", FLOAT, "23", true);
    add_value(&b, &a, "y", FLOAT, "23", false);
    add_node(&b, &a, "MatMul", "x x", "y");
    Imported r = import_file(save(&b, &a, "bad.onnx"));
    ck_assert(!build_graph(&r, &(OnnxOptions){0}));
    ck_assert_msg(strstr(r.d.msg, "node 'node0' (MatMul): "), "%s", r.d.msg);
    release(&r);
    arena_free(&a);
}
END_TEST

START_TEST(nodes_may_come_in_any_order)
{
    Arena a = {0};
    Builder b;
    start(&b, 13);
    add_value(&b, &a, "x", FLOAT, "23", true);
    add_value(&b, &a, "y", FLOAT, "23", false);
    add_node(&b, &a, "Exp", "h", "y");
    add_node(&b, &a, "Tanh", "x", "h");
    Imported r = import_file(save(&b, &a, "order.onnx"));
    ck_assert_msg(build_graph(&r, &(OnnxOptions){0}), "%s", r.d.msg);
    ck_assert_int_eq(r.g.nodes[r.g.order[0].i].op, OP_tanh);
    ck_assert_str_eq(r.g.nodes[r.g.order[1].i].name, "node0");
    release(&r);
    start(&b, 13);
    add_node(&b, &a, "Exp", "h", "y");
    add_node(&b, &a, "Tanh", "y", "h")->name = (char *)"";
    r = import_file(save(&b, &a, "cycle.onnx"));
    ck_assert(!build_graph(&r, &(OnnxOptions){0}));
    ck_assert_msg(strstr(r.d.msg, "node 'h' depends on its own result"), "%s", r.d.msg);
    release(&r);
    arena_free(&a);
}
END_TEST

/* ---- what optimizers write ---------------------------------------------- */

/* A bias of zeros is dropped, even in a shape that no bias may have: PyTorch's exporter writes such zeros for
 * a convolution without bias. */
START_TEST(zeros_are_no_bias)
{
    static float w[24] = {1, 2}, zero;
    Arena a = {0};
    Builder b;
    start(&b, 18);
    add_value(&b, &a, "x", FLOAT, "1244", true);
    add_value(&b, &a, "like", FLOAT, "32", true);
    add_value(&b, &a, "y", FLOAT, "1333", false);
    add_tensor(&b, "w", 4, (int64_t[]){3, 2, 2, 2}, w);
    add_tensor(&b, "zero", 0, NULL, &zero);
    add_node(&b, &a, "Shape", "like", "shape");
    add_node(&b, &a, "Expand", "zero shape", "zeros");
    add_node(&b, &a, "Conv", "x w zeros", "y");
    Imported r = import_file(save(&b, &a, "bias.onnx"));
    ck_assert_msg(build_graph(&r, &(OnnxOptions){0}), "%s", r.d.msg);
    ck_assert_int_eq(graph_def(&r.g, r.g.out[0])->op, OP_conv);
    ck_assert_int_eq(graph_def(&r.g, r.g.out[0])->nin, 2);
    NodeForm saved = inference_form(r.m, b.nodes[2], 18, true); /* as onnxruntime reads it */
    ck_assert(saved.changes && saved.ninput == 2);
    release(&r);
    arena_free(&a);
}
END_TEST

/* A signal of STFT that lacks the last dimension the standard demands is taken as real, as in onnxruntime. */
START_TEST(stft_of_a_matrix)
{
    static float step = 2, length = 4, x[12] = {1, 1, 1, 1, 2, 2, 3, 3, 3, 3, 3, 3};
    Arena a = {0};
    Builder b;
    start(&b, 17);
    add_value(&b, &a, "x", FLOAT, "26", true);
    add_value(&b, &a, "y", FLOAT, "2232", false);
    add_tensor(&b, "step", 0, NULL, &step);
    add_tensor(&b, "length", 0, NULL, &length);
    for (int i = 0; i < 2; i++) {
        Onnx__NodeProto *cast = add_node(&b, &a, "Cast", i ? "step" : "length", i ? "s" : "l");
        add_int(&b, cast, "to", ONNX__TENSOR_PROTO__DATA_TYPE__INT64);
    }
    add_node(&b, &a, "STFT", "x s _ l", "y");
    OnnxFeed feed = {"x", {type_make(DT_F32, 2, (int64_t[]){2, 6}), x}};
    Imported r = import_file(save(&b, &a, "stft.onnx"));
    ck_assert_msg(build_graph(&r, &(OnnxOptions){.feed = &feed, .nfeed = 1}), "%s", r.d.msg);
    void **data = NEW(&a, void *, r.g.nvals);
    ck_assert_msg(graph_eval(&r.g, data, &a, &r.d), "%s", r.d.msg);
    Tensor y = {*val_type(&r.g, r.g.out[0]), data[r.g.out[0].i]};
    static const double sums[] = {4, 6, 12, 12}; /* of each frame: the real part of frequency 0 */
    for (int i = 0; i < 4; i++)
        ck_assert_double_eq_tol(tensor_f(&y, i * 6), sums[i], 1e-5);
    release(&r);
    arena_free(&a);
}
END_TEST

/* GridSample becomes one operator between transposes, so that no positions of pixels are stored. */
START_TEST(a_sampled_image_is_one_operator)
{
    float x[12], grid[] = {-1, 0, 1, 1, INFINITY, 0};
    Arena a = {0};
    Builder b;
    for (int i = 0; i < 12; i++)
        x[i] = (float)i;
    start(&b, 16);
    add_value(&b, &a, "x", FLOAT, "1322", true);
    add_value(&b, &a, "grid", FLOAT, "1132", true);
    add_value(&b, &a, "y", FLOAT, "1313", false);
    add_int(&b, add_node(&b, &a, "GridSample", "x grid", "y"), "align_corners", 1);
    OnnxFeed feed[] = {{"x", {type_make(DT_F32, 4, (int64_t[]){1, 3, 2, 2}), x}},
                       {"grid", {type_make(DT_F32, 4, (int64_t[]){1, 1, 3, 2}), grid}}};
    Imported r = import_file(save(&b, &a, "sample.onnx"));
    ck_assert_msg(build_graph(&r, &(OnnxOptions){.feed = feed, .nfeed = 2}), "%s", r.d.msg);
    for (uint32_t i = 0; i < r.g.norder; i++)
        ck_assert(r.g.nodes[r.g.order[i].i].op == (i == 1 ? OP_grid_sample : OP_transpose));
    void **data = NEW(&a, void *, r.g.nvals);
    ck_assert_msg(graph_eval(&r.g, data, &a, &r.d), "%s", r.d.msg);
    Tensor y = {*val_type(&r.g, r.g.out[0]), data[r.g.out[0].i]};
    for (int c = 0; c < 3; c++) { /* left edge, half-way between the rows; the last pixel; outside */
        ck_assert_double_eq_tol(tensor_f(&y, 3 * c), 4 * c + 1, 1e-6);
        ck_assert_double_eq_tol(tensor_f(&y, 3 * c + 1), 4 * c + 3, 1e-6);
        ck_assert_double_eq(tensor_f(&y, 3 * c + 2), 0);
    }
    release(&r);
    arena_free(&a);
}
END_TEST

/* LayerNormalization is imported in any opset: onnxruntime, when it fuses, writes it into models of opsets
 * that do not have it yet. */
START_TEST(layer_norm_in_an_old_opset)
{
    Arena a = {0};
    Builder b;
    static float data[3] = {1, 2, 3};
    start(&b, 13);
    add_value(&b, &a, "x", FLOAT, "23", true);
    add_value(&b, &a, "y", FLOAT, "23", false);
    add_tensor(&b, "w", 1, (int64_t[]){3}, data);
    add_node(&b, &a, "LayerNormalization", "x w", "y");
    Imported r = import_file(save(&b, &a, "old_norm.onnx"));
    ck_assert_msg(build_graph(&r, &(OnnxOptions){0}), "%s", r.d.msg);
    ck_assert_int_eq(graph_def(&r.g, r.g.out[0])->op, OP_layer_norm);
    release(&r);
    arena_free(&a);
}
END_TEST

/* Operators newer than the model's opset are imported: PyTorch's exporter, asked for opset 26, writes them
 * and declares opset 18. */
START_TEST(new_operators_in_an_old_opset)
{
    Arena a = {0};
    Builder b;
    static float data[3] = {1, 2, 3};
    start(&b, 18);
    add_value(&b, &a, "x", FLOAT, "2223", true);
    add_value(&b, &a, "y", FLOAT, "2223", false);
    add_tensor(&b, "w", 1, (int64_t[]){3}, data);
    add_node(&b, &a, "RMSNormalization", "x w", "n");
    add_node(&b, &a, "Attention", "n n n", "y");
    Imported r = import_file(save(&b, &a, "opset.onnx"));
    ck_assert_msg(build_graph(&r, &(OnnxOptions){0}), "%s", r.d.msg);
    ck_assert_int_eq(graph_def(&r.g, r.g.out[0])->op, OP_matmul);
    release(&r);
    arena_free(&a);
}
END_TEST

/* ---- quantized weights ------------------------------------------------------ */

/* A large weight of 4-bit elements stays packed when it is dequantized and multiplied; neither it nor its
 * scales train. */
START_TEST(packed_weights_stay_packed)
{
    enum { ROWS = 256, COLUMNS = 1024, BYTES = ROWS * COLUMNS / 2 };
    static uint8_t packed[BYTES];
    static float scale[ROWS];
    Arena a = {0};
    Builder b;
    for (int i = 0; i < BYTES; i++)
        packed[i] = (uint8_t)(i * 37 >> 2);
    for (int i = 0; i < ROWS; i++)
        scale[i] = 1 + (float)(i * 7 % 13);
    start(&b, 21);
    Onnx__TensorProto *w = add_tensor(&b, "w", 2, (int64_t[]){ROWS, COLUMNS}, NULL);
    w->data_type = 22; /* int4 */
    w->has_raw_data = true;
    w->raw_data = (ProtobufCBinaryData){BYTES, packed};
    add_tensor(&b, "s", 1, (int64_t[]){ROWS}, scale)->n_float_data = ROWS;
    add_value(&b, &a, "x", FLOAT, "2N", true);
    add_value(&b, &a, "y", FLOAT, "2M", false);
    add_int(&b, add_node(&b, &a, "DequantizeLinear", "w s", "f"), "axis", 0);
    add_node(&b, &a, "MatMul", "x f", "y");
    Imported r = import_file(save(&b, &a, "packed.onnx"));
    OnnxBind bind = {"N", ROWS};
    ck_assert_msg(build_graph(&r, &(OnnxOptions){.bind = &bind, .nbind = 1}), "%s", r.d.msg);
    int64_t bytes = 0;
    const void *seen = NULL;
    for (uint32_t i = 1; i < r.g.nvals; i++) {
        const Value *v = &r.g.vals[i];
        ck_assert_int_ne(v->kind, VAL_PARAM);
        bytes += v->kind == VAL_CONST && v->data != seen ? type_bytes(&v->type) : 0;
        seen = v->data; /* a view has the data of the constant before it */
    }
    ck_assert_int_lt(bytes, BYTES + 2 * (int64_t)sizeof scale + 100);
    release(&r);
    arena_free(&a);
}
END_TEST

/* Differences of 64-bit integers do not wrap around at 32 bits where they come from an unsigned 32-bit
 * tensor: its elements cast to 64 bits, its shape, indices of its elements.  Those of its own elements do. */
START_TEST(casts_end_a_narrow_type)
{
    enum { U32 = ONNX__TENSOR_PROTO__DATA_TYPE__UINT32, I64 = ONNX__TENSOR_PROTO__DATA_TYPE__INT64 };
    Arena a = {0};
    Builder b;
    int64_t one[] = {1};
    start(&b, 17);
    add_value(&b, &a, "x", U32, "3", true);
    Onnx__TensorProto *k = add_tensor(&b, "k", 1, one, NULL);
    k->data_type = I64;
    k->int64_data = one;
    k->n_int64_data = 1;
    add_int(&b, add_node(&b, &a, "Cast", "x", "cast"), "to", I64);
    add_node(&b, &a, "CastLike", "x k", "like");
    add_node(&b, &a, "Shape", "x", "shape");
    add_node(&b, &a, "TopK", "x k", "top index");
    static const char *const of[] = {"cast", "like", "shape", "index", "top"};
    for (int i = 0; i < 5; i++) {
        const char *y = arena_printf(&a, "y%d", i);
        add_node(&b, &a, "Sub", arena_printf(&a, "%s %s", of[i], i < 4 ? "cast" : "x"), y);
        add_value(&b, &a, y, i < 4 ? I64 : U32, "3", false);
    }
    Imported r = import_file(save(&b, &a, "narrow.onnx"));
    ck_assert_msg(build_graph(&r, &(OnnxOptions){0}), "%s", r.d.msg);
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(graph_def(&r.g, r.g.out[i])->op, i < 4 ? OP_sub : OP_bitand);
    release(&r);
    arena_free(&a);
}
END_TEST

/* ---- functions in the model --------------------------------------------- */

/* A call of a function that the model defines in a domain of its own, scaled(a) = LeakyRelu(a) with alpha
 * from the call, becomes the node of its body. */
START_TEST(model_functions_are_inlined)
{
    Arena a = {0};
    Builder b;
    Onnx__FunctionProto f, *functions[] = {&f};
    Onnx__OperatorSetIdProto own, *opsets[] = {&b.opset, &own}, *inner[] = {&b.opset};
    Onnx__NodeProto body, *nodes[] = {&body};
    Onnx__AttributeProto ref, *refs[] = {&ref};
    char *in[] = {(char *)"a"}, *out[] = {(char *)"b"}, *names[] = {(char *)"slope"};
    start(&b, 17);
    add_value(&b, &a, "x", FLOAT, "2", true);
    add_value(&b, &a, "y", FLOAT, "2", false);
    Onnx__NodeProto *call = add_node(&b, &a, "scaled", "x", "y");
    call->domain = (char *)"custom";
    Onnx__AttributeProto *slope = add_attr(&b, call, "slope");
    slope->has_type = slope->has_f = true;
    slope->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT;
    slope->f = 0.25f;
    onnx__operator_set_id_proto__init(&own);
    own.domain = (char *)"custom";
    own.has_version = true;
    own.version = 1;
    b.model.opset_import = opsets;
    b.model.n_opset_import = 2;
    onnx__node_proto__init(&body);
    body.op_type = (char *)"LeakyRelu";
    body.input = in, body.output = out, body.n_input = body.n_output = 1;
    body.attribute = refs, body.n_attribute = 1;
    onnx__attribute_proto__init(&ref);
    ref.name = (char *)"alpha";
    ref.ref_attr_name = (char *)"slope";
    ref.has_type = true;
    ref.type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT;
    onnx__function_proto__init(&f);
    f.name = (char *)"scaled", f.domain = (char *)"custom";
    f.input = in, f.output = out, f.n_input = f.n_output = 1;
    f.attribute = names, f.n_attribute = 1;
    f.node = nodes, f.n_node = 1;
    f.opset_import = inner, f.n_opset_import = 1;
    b.model.functions = functions;
    b.model.n_functions = 1;
    Imported r = import_file(save(&b, &a, "function.onnx"));
    ck_assert_msg(build_graph(&r, &(OnnxOptions){0}), "%s", r.d.msg);
    ck_assert_uint_eq(r.g.norder, 1);
    const Node *n = &r.g.nodes[r.g.order[0].i];
    ck_assert_int_eq(n->op, OP_leaky_relu);
    ck_assert_double_eq(((const PointwiseAttrs *)n->attr)->al, 0.25);
    ck_assert_str_eq(r.g.vals[r.g.out[0].i].name, "y");
    release(&r);
    arena_free(&a);
}
END_TEST

/* A call means the function with the same overload; two functions of one name and overload are refused. */
START_TEST(functions_are_told_apart_by_overload)
{
    uint8_t text[] = "\006second"; /* its length in front */
    ProtobufCMessageUnknownField of_function = {13, PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED, 7, text};
    ProtobufCMessageUnknownField of_call = {8, PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED, 7, text};
    Arena a = {0};
    Builder b;
    Onnx__FunctionProto f[2], *functions[] = {&f[0], &f[1]};
    Onnx__NodeProto body[2], *nodes[] = {&body[0], &body[1]};
    char *in[] = {(char *)"a"}, *out[] = {(char *)"b"};
    start(&b, 17);
    add_value(&b, &a, "x", FLOAT, "2", true);
    add_value(&b, &a, "y", FLOAT, "2", false);
    Onnx__NodeProto *call = add_node(&b, &a, "f", "x", "y");
    call->domain = (char *)"custom";
    call->base.n_unknown_fields = 1;
    call->base.unknown_fields = &of_call;
    for (int i = 0; i < 2; i++) {
        onnx__node_proto__init(&body[i]);
        body[i].op_type = (char *)(uintptr_t)(i ? "Neg" : "Abs");
        body[i].input = in, body[i].output = out, body[i].n_input = body[i].n_output = 1;
        onnx__function_proto__init(&f[i]);
        f[i].name = (char *)"f", f[i].domain = (char *)"custom";
        f[i].input = in, f[i].output = out, f[i].n_input = f[i].n_output = 1;
        f[i].node = &nodes[i], f[i].n_node = 1;
        f[i].opset_import = b.opsets, f[i].n_opset_import = 1;
    }
    f[1].base.n_unknown_fields = 1;
    f[1].base.unknown_fields = &of_function;
    b.model.functions = functions;
    b.model.n_functions = 2;
    Imported r = import_file(save(&b, &a, "function.onnx"));
    ck_assert_msg(build_graph(&r, &(OnnxOptions){0}), "%s", r.d.msg);
    ck_assert_int_eq(r.g.nodes[r.g.order[0].i].op, OP_neg);
    release(&r);
    f[1].base.n_unknown_fields = 0;
    r = import_file(save(&b, &a, "function.onnx"));
    ck_assert(!r.ok && strstr(r.d.msg, "two functions are named 'custom:f:'"));
    release(&r);
    arena_free(&a);
}
END_TEST

Suite *suite_onnx(void)
{
    Suite *s = suite_create("onnx");
    TCase *t = tcase_create("files");
    tcase_add_checked_fixture(t, make_folder, remove_folder);
    tcase_add_test(t, malformed_files_are_refused);
    tcase_add_test(t, memory_is_capped);
    tcase_add_test(t, prefixes_do_not_crash);
    tcase_add_test(t, external_data_is_mapped);
    tcase_add_test(t, external_data_through_links);
    tcase_add_test(t, external_data_stays_in_the_folder);
    suite_add_tcase(s, t);
    t = tcase_create("import");
    tcase_add_checked_fixture(t, make_folder, remove_folder);
    tcase_add_test(t, unbound_symbols_are_listed_together);
    tcase_add_test(t, symbols_and_places_bind);
    tcase_add_test(t, integers_bind);
    tcase_add_test(t, weights_in_a_branch_train);
    tcase_add_test(t, unsupported_nodes_are_listed_together);
    tcase_add_test(t, errors_name_their_node);
    tcase_add_test(t, nodes_may_come_in_any_order);
    tcase_add_test(t, zeros_are_no_bias);
    tcase_add_test(t, stft_of_a_matrix);
    tcase_add_test(t, a_sampled_image_is_one_operator);
    tcase_add_test(t, layer_norm_in_an_old_opset);
    tcase_add_test(t, new_operators_in_an_old_opset);
    tcase_add_test(t, packed_weights_stay_packed);
    tcase_add_test(t, casts_end_a_narrow_type);
    tcase_add_test(t, model_functions_are_inlined);
    tcase_add_test(t, functions_are_told_apart_by_overload);
    suite_add_tcase(s, t);
    return s;
}
