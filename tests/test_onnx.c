/* test_onnx.c -- ONNX intake and import, one behaviour at a time: hostile files, external
 * data, binding, what cannot be imported, the trainable rule, batch normalization.  Models
 * are packed here; whole ones are test_onnx_models.c. */
#include "tests.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
    expect_one_line(in_folder(&a, "absent.onnx"), "No such file");
    write_bytes(in_folder(&a, "empty.onnx"), "", 0);
    expect_one_line(in_folder(&a, "empty.onnx"), "empty");
    write_bytes(in_folder(&a, "text.onnx"), "not a model at all", 18);
    expect_one_line(in_folder(&a, "text.onnx"), "not");
    arena_free(&a);
}
END_TEST

/* Two megabytes of empty nodes unpack to a hundred times as much: the cap holds. */
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
    write_bytes(in_folder(&a, "nodes.onnx"), bytes, n);
    expect_one_line(in_folder(&a, "nodes.onnx"), "cannot be decoded");
    arena_free(&a);
}
END_TEST

/* Every prefix of a model is refused or imports; nothing crashes. */
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
        write_bytes(in_folder(&a, "prefix.onnx"), map.data, n);
        Imported r = import_file(in_folder(&a, "prefix.onnx"));
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
    static Onnx__StringStringEntryProto entry[3], *entries[3];
    const char *key[] = {"location", "offset", "length"};
    const char *value[] = {location, offset, length};
    start(b, 13);
    add_value(b, a, "x", FLOAT, "23", true);
    add_value(b, a, "y", FLOAT, "23", false);
    add_node(b, a, "Add", "x w", "y");
    Onnx__TensorProto *t = add_tensor(b, "w", 1, (int64_t[]){3}, NULL);
    t->has_data_location = true;
    t->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
    t->external_data = entries;
    for (int i = 0; i < 3; i++) {
        onnx__string_string_entry_proto__init(&entry[i]);
        entry[i].key = (char *)(uintptr_t)key[i];
        entry[i].value = (char *)(uintptr_t)value[i];
        if (value[i])
            entries[t->n_external_data++] = &entry[i];
    }
    return import_file(save(b, a, in_folder(a, "external.onnx")));
}

START_TEST(external_data_is_mapped)
{
    Arena a = {0};
    Builder b;
    float w[4] = {9, 1, 2, 3};
    write_bytes(in_folder(&a, "w.bin"), w, sizeof w);
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

START_TEST(external_data_stays_in_the_folder)
{
    static const struct {
        const char *location, *offset, *length, *part;
    } bad[] = {
        {"/etc/passwd", "0", "12", "relative path"},
        {"../w.bin", "0", "12", "leaves the model's folder"},
        {"sub/../../w.bin", "0", "12", "leaves the model's folder"},
        {"link.bin", "0", "12", "symbolic links"},
        {"missing.bin", "0", "12", "No such file"},
        {"w.bin", "8", "12", "outside the file"},
        {"w.bin", "99999999999", "12", "outside"},
        {"w.bin", "0", "8", "has 8 bytes"},
        {"w.bin", "-4", "12", "outside"},
        {NULL, "0", "12", "without a location"},
    };
    Arena a = {0};
    Builder b;
    write_bytes(in_folder(&a, "w.bin"), (float[]){1, 2, 3, 4}, 16);
    ck_assert_int_eq(symlink("w.bin", in_folder(&a, "link.bin")), 0);
    ck_assert_int_eq(mkdir(in_folder(&a, "sub"), 0777), 0);
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
    return import_file(save(b, a, in_folder(a, "symbolic.onnx")));
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
    add_node(&b, &a, "Relu", "a", "b");
    add_node(&b, &a, "NonZero", "x", "c");
    add_node(&b, &a, "TfIdfVectorizer", "b", "y");
    Imported r = import_file(save(&b, &a, in_folder(&a, "three.onnx")));
    ck_assert(!build_graph(&r, &(OnnxOptions){0}));
    ck_assert_int_eq(r.d.status, EXIT_UNSUPPORTED);
    static const char *const parts[] = {
        "3 unsupported nodes", "node 'node0' (StringNormalizer, opset 13): no importer",
        "node 'node2' (NonZero, opset 13): operand 0 ('x') depends",
        "node 'node3' (TfIdfVectorizer, opset 13): no importer"};
    for (int i = 0; i < 4; i++)
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
    Imported r = import_file(save(&b, &a, in_folder(&a, "bad.onnx")));
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
    Imported r = import_file(save(&b, &a, in_folder(&a, "order.onnx")));
    ck_assert_msg(build_graph(&r, &(OnnxOptions){0}), "%s", r.d.msg);
    ck_assert_int_eq(r.g.nodes[r.g.order[0].i].op, OP_tanh);
    ck_assert_str_eq(r.g.nodes[r.g.order[1].i].name, "node0");
    release(&r);
    start(&b, 13);
    add_value(&b, &a, "y", FLOAT, "23", false);
    add_node(&b, &a, "Exp", "h", "y");
    add_node(&b, &a, "Tanh", "y", "h");
    r = import_file(save(&b, &a, in_folder(&a, "cycle.onnx")));
    ck_assert(!build_graph(&r, &(OnnxOptions){0}));
    ck_assert_msg(strstr(r.d.msg, "depends on its own result"), "%s", r.d.msg);
    release(&r);
    arena_free(&a);
}
END_TEST

/* ---- roles -------------------------------------------------------------- */

static ValKind kind_of(const Graph *g, const char *name)
{
    Val v = graph_find(g, name);
    ck_assert_msg(v.i, "no value %s", name);
    return g->vals[v.i].kind;
}

static bool noted(const OnnxModel *m, OnnxNoteKind kind, const char *name, const char *part)
{
    uint32_t n;
    const OnnxNote *note = onnx_notes(m, &n);
    for (uint32_t i = 0; i < n; i++)
        if (note[i].kind == kind && strcmp(note[i].name, name) == 0 &&
            strstr(note[i].text, part))
            return true;
    return false;
}

START_TEST(values_decide_what_trains)
{
    static float mask[64], wave[64], ladder[8], frequency[8], ones[8], zeros[8],
        one[1] = {2};
    Arena a = {0};
    Builder b;
    for (int i = 0; i < 64; i++) {
        mask[i] = i % 8 > i / 8 ? -INFINITY : 0;
        wave[i] = cosf((float)(i / 8) / (float)(1 + i % 8));
    }
    for (int i = 0; i < 8; i++) {
        ladder[i] = (float)i;
        frequency[i] = powf(1e4f, -(float)i / 8);
        ones[i] = 1;
    }
    start(&b, 13);
    add_value(&b, &a, "x", FLOAT, "88", true);
    add_value(&b, &a, "y", FLOAT, "88", false);
    static const char *const names[] = {"mask",      "wave", "ladder",
                                        "frequency", "ones", "zeros"};
    float *data[] = {mask, wave, ladder, frequency, ones, zeros};
    const char *before = "x";
    for (int i = 0; i < 6; i++) {
        add_tensor(&b, names[i], i < 2 ? 2 : 1, (int64_t[]){8, 8}, data[i]);
        const char *next = i == 5 ? "h" : arena_printf(&a, "h%d", i);
        add_node(&b, &a, "Add", arena_printf(&a, "%s %s", before, names[i]), next);
        before = next;
    }
    add_tensor(&b, "scalar", 1, (int64_t[]){1}, one);
    add_node(&b, &a, "Mul", "h scalar", "y");
    Imported r = import_file(save(&b, &a, in_folder(&a, "roles.onnx")));
    const char *train[] = {"mas?"};
    ck_assert_msg(build_graph(&r, &(OnnxOptions){0}), "%s", r.d.msg);
    static const ValKind want[] = {VAL_CONST, VAL_CONST, VAL_CONST,
                                   VAL_CONST, VAL_PARAM, VAL_PARAM};
    for (int i = 0; i < 6; i++)
        ck_assert_msg(kind_of(&r.g, names[i]) == want[i], "%s", names[i]);
    ck_assert_int_eq(kind_of(&r.g, "scalar"), VAL_CONST);
    ck_assert(noted(r.m, ONNX_FROZEN, "mask", "mask") &&
              noted(r.m, ONNX_FROZEN, "wave", "sinusoid"));
    arena_free(&r.arena);
    ck_assert(build_graph(&r, &(OnnxOptions){.train = train, .ntrain = 1}));
    ck_assert_int_eq(kind_of(&r.g, "mask"), VAL_PARAM);
    release(&r);
    arena_free(&a);
}
END_TEST

/* Of a ramp, a table, and two scalars, one named as PyTorch's exporter names its own. */
START_TEST(exporters_say_what_trains)
{
    static const char *const names[] = {"m.ramp", "m.table", "m.gain", "onnx::Mul_3"};
    static float ramp[8] = {1, 2, 3, 4, 5, 6, 7, 8}, table[8] = {3, 1, 4, 1, 5, 9, 2, 6}, one = 2;
    static const struct {
        const char *producer, *signature;
        ValKind want[4];
    } cases[] = {
        {"tf2onnx", NULL, {VAL_CONST, VAL_PARAM, VAL_CONST, VAL_CONST}},
        {"pytorch", NULL, {VAL_CONST, VAL_PARAM, VAL_PARAM, VAL_CONST}},
        {"pytorch",
         "\n# inputs\np_m_ramp: PARAMETER target='m.ramp'\n"
         "b_m_table: BUFFER target='m.table' persistent=True\n"
         "p_m_gain: PARAMETER target='m.gain'\n"
         "b_bn_mean: BUFFER target='bn.running_mean'\nx: USER_INPUT\n"
         "getitem: BUFFER_MUTATION target='bn.running_mean'\n",
         {VAL_PARAM, VAL_CONST, VAL_PARAM, VAL_CONST}},
    };
    Arena a = {0};
    Builder b;
    start(&b, 13);
    add_value(&b, &a, "x", FLOAT, "8", true);
    add_value(&b, &a, "y", FLOAT, "8", false);
    float *data[] = {ramp, table, &one, &one};
    for (int i = 0; i < 4; i++) {
        add_tensor(&b, names[i], i < 2, (int64_t[]){8}, data[i]);
        const char *before = i ? arena_printf(&a, "h%d", i - 1) : "x";
        const char *in = arena_printf(&a, "%s %s", before, names[i]);
        add_node(&b, &a, i < 2 ? "Add" : "Mul", in, i == 3 ? "y" : arena_printf(&a, "h%d", i));
    }
    b.model.producer_name = (char *)(uintptr_t)cases[_i].producer;
    if (cases[_i].signature)
        add_metadata(&b, &a, "pkg.torch.export.ExportedProgram.graph_signature",
                     cases[_i].signature);
    Imported r = import_file(save(&b, &a, in_folder(&a, "declared.onnx")));
    ck_assert_msg(build_graph(&r, &(OnnxOptions){0}), "%s", r.d.msg);
    for (int i = 0; i < 4; i++)
        ck_assert_msg(kind_of(&r.g, names[i]) == cases[_i].want[i], "%s", names[i]);
    bool said = cases[_i].signature != NULL;
    ck_assert(noted(r.m, ONNX_FROZEN, "m.table", "buffer") == said);
    ck_assert(noted(r.m, ONNX_REMARK, "Conv", "1 BatchNormalizations are folded") == said);
    release(&r);
    arena_free(&a);
}
END_TEST

/* A bias in a model stripped of its weights; in PyTorch's, zeros of its own. */
START_TEST(fills_stand_for_stripped_weights)
{
    static float shape[] = {1}, w[] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3};
    static int64_t eight = 8;
    static const char fill[] = "/m/ConstantOfShape_output_0";
    Arena a = {0};
    Builder b;
    start(&b, 13);
    add_value(&b, &a, "x", FLOAT, "82", true);
    add_value(&b, &a, "y", FLOAT, "88", false);
    add_tensor(&b, "w", 2, (int64_t[]){2, 8}, w);
    Onnx__TensorProto *t = add_tensor(&b, "shape", 1, (int64_t[]){1}, shape);
    t->data_type = ONNX__TENSOR_PROTO__DATA_TYPE__INT64;
    t->n_float_data = 0;
    t->int64_data = &eight;
    t->n_int64_data = 1;
    add_node(&b, &a, "ConstantOfShape", "shape", fill);
    add_node(&b, &a, "MatMul", "x w", "h");
    add_node(&b, &a, "Add", arena_printf(&a, "h %s", fill), "y");
    b.model.producer_name = (char *)(uintptr_t)(_i ? "pytorch" : "backend-test");
    Imported r = import_file(save(&b, &a, in_folder(&a, "fill.onnx")));
    ck_assert_msg(build_graph(&r, &(OnnxOptions){0}), "%s", r.d.msg);
    bool trains = graph_find(&r.g, fill).i && kind_of(&r.g, fill) == VAL_PARAM;
    ck_assert(trains == (_i == 0));
    release(&r);
    arena_free(&a);
}
END_TEST

START_TEST(shapes_and_dead_ends_freeze)
{
    static float scales[] = {1, 1, 2.5f, 3}, w[] = {3, 1, 4, 1, 5, 9};
    Arena a = {0};
    Builder b;
    start(&b, 13);
    add_value(&b, &a, "x", FLOAT, "1122", true);
    add_value(&b, &a, "y", FLOAT, "1156", false);
    add_tensor(&b, "scales", 1, (int64_t[]){4}, scales);
    add_tensor(&b, "w", 1, (int64_t[]){6}, w);
    add_node(&b, &a, "Resize", "x _ scales", "r");
    add_node(&b, &a, "Floor", "w", "f");
    add_node(&b, &a, "Add", "r f", "y");
    Imported r = import_file(save(&b, &a, in_folder(&a, "freeze.onnx")));
    ck_assert_msg(build_graph(&r, &(OnnxOptions){0}), "%s", r.d.msg);
    ck_assert(noted(r.m, ONNX_FROZEN, "scales", "shapes depend on it"));
    ck_assert(noted(r.m, ONNX_FROZEN, "w", "no gradient"));
    ck_assert_int_eq(kind_of(&r.g, "w"), VAL_CONST);
    release(&r);
    arena_free(&a);
}
END_TEST

/* ---- ties --------------------------------------------------------------- */

/* Two products with w[2,3] and v[3,2], which is w transposed; u is w by an Identity. */
static Imported tied_model(Builder *b, Arena *a)
{
    static float w[] = {1, 2, 3, 4, 5, 6}, v[] = {1, 4, 2, 5, 3, 6};
    start(b, 13);
    add_value(b, a, "x", FLOAT, "42", true);
    add_value(b, a, "y", FLOAT, "43", false);
    add_tensor(b, "w", 2, (int64_t[]){2, 3}, w);
    add_tensor(b, "v", 2, (int64_t[]){3, 2}, v);
    add_node(b, a, "MatMul", "x w", "h");
    add_node(b, a, "MatMul", "h v", "k");
    add_node(b, a, "Identity", "w", "u");
    add_node(b, a, "MatMul", "k u", "y");
    return import_file(save(b, a, in_folder(a, "tied.onnx")));
}

static int params_of(const Graph *g)
{
    int n = 0;
    for (uint32_t i = 1; i < g->nvals; i++)
        n += g->vals[i].kind == VAL_PARAM;
    return n;
}

START_TEST(ties_are_reported_restored_and_cut)
{
    Arena a = {0};
    Builder b;
    OnnxTie tie = {"w", "v"}, wrong = {"w", "nothing"};
    Imported r = tied_model(&b, &a);
    ck_assert_msg(build_graph(&r, &(OnnxOptions){0}), "%s", r.d.msg);
    ck_assert_int_eq(params_of(&r.g), 2);
    ck_assert(noted(r.m, ONNX_REMARK, "v", "has the transposed values of 'w'"));
    ck_assert(noted(r.m, ONNX_REMARK, "w", "'u' is tied to it by an Identity"));
    arena_free(&r.arena);
    ck_assert_msg(build_graph(&r, &(OnnxOptions){.tie = &tie, .nties = 1}), "%s", r.d.msg);
    ck_assert_int_eq(params_of(&r.g), 1);
    arena_free(&r.arena);
    ck_assert_msg(build_graph(&r, &(OnnxOptions){.untie = true}), "%s", r.d.msg);
    ck_assert_int_eq(params_of(&r.g), 3);
    arena_free(&r.arena);
    ck_assert(!build_graph(&r, &(OnnxOptions){.tie = &wrong, .nties = 1}));
    ck_assert_ptr_nonnull(strstr(r.d.msg, "--tie w=nothing: no such weights"));
    release(&r);
    arena_free(&a);
}
END_TEST

/* ---- what optimizers write ---------------------------------------------- */

/* onnxruntime fuses layer normalization in models of any opset, under the standard's name. */
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
    Imported r = import_file(save(&b, &a, in_folder(&a, "old_norm.onnx")));
    ck_assert_msg(build_graph(&r, &(OnnxOptions){0}), "%s", r.d.msg);
    ck_assert_int_eq(graph_def(&r.g, r.g.out[0])->op, OP_layer_norm);
    release(&r);
    arena_free(&a);
}
END_TEST

/* ---- functions in the model --------------------------------------------- */

/* scaled(a) = LeakyRelu(a) with alpha taken from the call, inside a function of another
 * domain. */
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
    Imported r = import_file(save(&b, &a, in_folder(&a, "function.onnx")));
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
        Onnx__AttributeProto *t = add_attr(b, n, "training_mode");
        t->has_type = t->has_i = true;
        t->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT;
        t->i = 1;
    }
    return import_file(save(b, a, in_folder(a, "bn.onnx")));
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
        Imported r = import_file(save(&b, &a, in_folder(&a, "folded.onnx")));
        ck_assert_msg(build_graph(&r, &(OnnxOptions){0}), "%s", r.d.msg);
        ck_assert_int_eq(noted(r.m, ONNX_REMARK, "Conv", "folded"), form < 2);
        release(&r);
    }
    arena_free(&a);
}
END_TEST

/* Ratio as an attribute or an operand; whether it drops: decided by the runtime (before opset 12
 * and where the operand is absent), or by the operand. */
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
        Imported r = import_file(save(&b, &a, in_folder(&a, "dropout.onnx")));
        OnnxOptions opt = {.forward_only = cases[i].forward_only};
        ck_assert_msg(build_graph(&r, &opt), "%s", r.d.msg);
        ck_assert_msg(r.g.norder == (cases[i].ratio > 0), "case %zu", i);
        if (r.g.norder) {
            const Node *d = &r.g.nodes[r.g.order[0].i];
            ck_assert_int_eq(d->op, OP_dropout);
            ck_assert_double_eq(((const DropoutAttrs *)d->attr)->p, cases[i].ratio);
        }
        release(&r);
    }
    arena_free(&a);
}
END_TEST

Suite *suite_onnx(void)
{
    Suite *s = suite_create("onnx");
    TCase *t = tcase_create("files");
    tcase_add_checked_fixture(t, make_folder, remove_folder);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, malformed_files_are_refused);
    tcase_add_test(t, memory_is_capped);
    tcase_add_test(t, prefixes_do_not_crash);
    tcase_add_test(t, external_data_is_mapped);
    tcase_add_test(t, external_data_stays_in_the_folder);
    suite_add_tcase(s, t);
    t = tcase_create("import");
    tcase_add_checked_fixture(t, make_folder, remove_folder);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, unbound_symbols_are_listed_together);
    tcase_add_test(t, symbols_and_places_bind);
    tcase_add_test(t, unsupported_nodes_are_listed_together);
    tcase_add_test(t, errors_name_their_node);
    tcase_add_test(t, nodes_may_come_in_any_order);
    tcase_add_test(t, values_decide_what_trains);
    tcase_add_loop_test(t, exporters_say_what_trains, 0, 3);
    tcase_add_loop_test(t, fills_stand_for_stripped_weights, 0, 2);
    tcase_add_test(t, shapes_and_dead_ends_freeze);
    tcase_add_test(t, ties_are_reported_restored_and_cut);
    tcase_add_test(t, layer_norm_in_an_old_opset);
    tcase_add_test(t, model_functions_are_inlined);
    tcase_add_test(t, batch_norm_is_brought_to_training_form);
    tcase_add_test(t, running_statistics);
    tcase_add_test(t, folded_batch_norm_is_noted);
    tcase_add_test(t, dropout_by_attribute_or_operand);
    suite_add_tcase(s, t);
    return s;
}
