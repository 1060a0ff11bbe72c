/* test_save.c -- onnx_save: what is replaced, what stays, external files, refusals. */
#include "tests.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "onnx_builder.h"
#include "ir/onnx/onnx_int.h"
#include "ir/onnx/protobuf.h"
#include "ir/onnx/save.h"

/* ---- a small model, written on the wire ------------------------------------------------ */

typedef struct {
    uint8_t b[4096];
    size_t n;
} Message;

static void put_varint(Message *m, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        m->b[m->n++] = (uint8_t)(v | 0x80);
    m->b[m->n++] = (uint8_t)v;
}

static void put_number(Message *m, unsigned field, uint64_t v)
{
    put_varint(m, field << 3);
    put_varint(m, v);
}

static void put_bytes(Message *m, unsigned field, const void *data, size_t size)
{
    put_varint(m, field << 3 | 2);
    put_varint(m, size);
    memcpy(m->b + m->n, data, size);
    m->n += size;
}

static void put_string(Message *m, unsigned field, const char *s)
{
    put_bytes(m, field, s, strlen(s));
}

static void put_node(Message *graph, const char *op, const char *a, const char *b, const char *y)
{
    Message node = {.n = 0};
    put_string(&node, 1, a);
    if (b)
        put_string(&node, 1, b);
    put_string(&node, 2, y);
    put_string(&node, 4, op);
    put_bytes(graph, 1, node.b, node.n);
}

static void put_info(Message *graph, unsigned field, const char *name, int64_t dim)
{
    Message d = {.n = 0}, shape = {.n = 0}, tensor = {.n = 0}, type = {.n = 0}, info = {.n = 0};
    put_number(&d, 1, (uint64_t)dim);
    put_bytes(&shape, 1, d.b, d.n);
    put_number(&tensor, 1, 1);
    put_bytes(&tensor, 2, shape.b, shape.n);
    put_bytes(&type, 1, tensor.b, tensor.n);
    put_string(&info, 1, name);
    put_bytes(&info, 2, type.b, type.n);
    put_bytes(graph, field, info.b, info.n);
}

/* Adds an initializer of one dimension: as float_data if elem is 1, else as raw_data; or, if offset is given,
 * as external data at that offset of w.bin. */
static void put_tensor(Message *graph, const char *name, int64_t dim, int elem, const void *raw,
                       size_t size, const char *offset)
{
    Message t = {.n = 0};
    put_number(&t, 1, (uint64_t)dim);
    put_number(&t, 2, (uint64_t)elem);
    if (raw)
        put_bytes(&t, elem == 1 ? 4 : 9, raw, size);
    put_string(&t, 8, name);
    put_string(&t, 12, "documentation stays");
    if (offset) {
        const char *entry[2][2] = {{"location", "w.bin"}, {"offset", offset}};
        for (int i = 0; i < 2; i++) {
            Message e = {.n = 0};
            put_string(&e, 1, entry[i][0]);
            put_string(&e, 2, entry[i][1]);
            put_bytes(&t, 13, e.b, e.n);
        }
        put_number(&t, 14, 1);
    }
    put_bytes(graph, 5, t.b, t.n);
}

/* Writes a model whose initializers are a (f32) and b (f16), in w.bin if external; x and c are inputs, d is a
 * ConstantOfShape, the output is x + a. */
static void write_model(const char *path, int ir_version, bool external)
{
    static const float a[2] = {1, 2};
    static const uint16_t b[2] = {0x3c00, 0x4000};
    static const int64_t shape[1] = {2};
    Message graph = {.n = 0}, opset = {.n = 0}, model = {.n = 0};
    put_node(&graph, "ConstantOfShape", "shape", NULL, "d");
    put_node(&graph, "Add", "x", "a", "t1");
    put_node(&graph, "Cast", "b", NULL, "bf");
    put_string(&graph, 2, "g");
    put_tensor(&graph, "a", 2, 1, external ? NULL : a, sizeof a, external ? "0" : NULL);
    put_tensor(&graph, "b", 2, 10, external ? NULL : b, sizeof b, external ? "8" : NULL);
    put_tensor(&graph, "shape", 1, 7, shape, sizeof shape, NULL);
    put_info(&graph, 11, "x", 2);
    put_info(&graph, 11, "c", 2);
    put_info(&graph, 12, "t1", 2);
    put_string(&graph, 99, "a field of the future");
    put_number(&opset, 2, 13);
    put_number(&model, 1, (uint64_t)ir_version);
    put_bytes(&model, 7, graph.b, graph.n);
    put_bytes(&model, 8, opset.b, opset.n);
    write_bytes(path, model.b, model.n);
}

/* ---- checks -------------------------------------------------------------------------------- */

static const float new_values[4][2] = {{10, 20}, {30, 40}, {50, 60}, {70, 80}};

static int save_values(SaveValue v[4], const char *names)
{
    int n = 0;
    for (; names[n]; n++) {
        static const char *const name[] = {"a", "b", "c", "d"};
        v[n] = (SaveValue){.name = name[names[n] - 'a']};
        v[n].tensor = (Tensor){type_make(DT_F32, 1, (int64_t[]){2}),
                               (void *)(uintptr_t)new_values[names[n] - 'a']};
    }
    return n;
}

static const Onnx__TensorProto *find_tensor(const OnnxModel *m, const char *name)
{
    const Onnx__GraphProto *g = m->proto->graph;
    for (size_t i = 0; i < g->n_initializer; i++)
        if (strcmp(g->initializer[i]->name, name) == 0)
            return g->initializer[i];
    return NULL;
}

static bool has_input(const OnnxModel *m, const char *name)
{
    const Onnx__GraphProto *g = m->proto->graph;
    for (size_t i = 0; i < g->n_input; i++)
        if (strcmp(g->input[i]->name, name) == 0)
            return true;
    return false;
}

static void expect_values(OnnxModel *m, const char *name, double first, double second)
{
    Diag d = {0};
    OnnxTensor t;
    const Onnx__TensorProto *p = find_tensor(m, name);
    ck_assert_msg(p && tensor_load(m, p, &t, &d), "%s: %s", name, d.msg);
    Tensor copy = {t.t.type, (double[2]){0}}; /* the mapping need not be aligned */
    memcpy(copy.data, t.t.data, (size_t)type_bytes(&copy.type));
    ck_assert_int_eq(type_count(&copy.type), 2);
    ck_assert_double_eq(tensor_f(&copy, 0), first);
    ck_assert_double_eq(tensor_f(&copy, 1), second);
}

static OnnxModel *save_and_open(const char *names)
{
    Diag d = {0};
    SaveValue v[4];
    OnnxModel *m = onnx_open("in.onnx", &d);
    ck_assert_msg(m != NULL, "%s", d.msg);
    int n = save_values(v, names);
    ck_assert_msg(onnx_save(m, "out.onnx", n, v, false, &d), "%s", d.msg);
    onnx_close(m);
    m = onnx_open("out.onnx", &d);
    ck_assert_msg(m != NULL, "%s", d.msg);
    return m;
}

static size_t count_of(const OnnxModel *m, const char *text)
{
    size_t n = 0;
    for (const uint8_t *p = m->map.data; (p = memmem(p, m->map.size - (size_t)(p - m->map.data),
                                                     text, strlen(text))) != NULL;
         p++)
        n++;
    return n;
}

START_TEST(replaces_and_keeps)
{
    int version = _i;
    write_model("in.onnx", version, false);
    OnnxModel *m = save_and_open("abcd");
    expect_values(m, "a", 10, 20);
    expect_values(m, "b", 30, 40);
    expect_values(m, "c", 50, 60);
    expect_values(m, "d", 70, 80);
    ck_assert_int_eq(find_tensor(m, "b")->data_type, 10);
    ck_assert_uint_eq(m->proto->graph->n_node, 2);
    ck_assert(has_input(m, "x"));
    ck_assert_int_eq(has_input(m, "c"), version < 4);
    ck_assert_int_eq(has_input(m, "d"), version < 4);
    ck_assert_uint_eq(count_of(m, "documentation stays"), 3);
    ck_assert_uint_eq(count_of(m, "a field of the future"), 1);
    onnx_close(m);
}
END_TEST

/* Two Constants of one name, of which the last counts, become one initializer. */
START_TEST(constants_of_one_name)
{
    Message graph = {.n = 0}, model = {.n = 0};
    put_node(&graph, "Constant", "", NULL, "d");
    put_node(&graph, "Constant", "", NULL, "d");
    put_bytes(&model, 7, graph.b, graph.n);
    write_bytes("in.onnx", model.b, model.n);
    OnnxModel *m = save_and_open("d");
    ck_assert_uint_eq(m->proto->graph->n_node, 0);
    expect_values(m, "d", 70, 80);
    onnx_close(m);
}
END_TEST

START_TEST(nothing_replaced_is_a_copy)
{
    Diag d = {0};
    write_model("in.onnx", 8, false);
    OnnxModel *m = save_and_open(""), *in = onnx_open("in.onnx", &d);
    ck_assert_uint_eq(m->map.size, in->map.size);
    ck_assert_mem_eq(m->map.data, in->map.data, in->map.size);
    onnx_close(in);
    onnx_close(m);
}
END_TEST

static void write_external(void)
{
    static const struct {
        float f[2];
        uint16_t h[2];
    } w = {{1, 2}, {0x3c00, 0x4000}};
    write_bytes("w.bin", &w, sizeof w);
    write_model("in.onnx", 8, true);
}

START_TEST(external_stays_external)
{
    write_external();
    OnnxModel *m = save_and_open("ac");
    expect_values(m, "a", 10, 20);
    expect_values(m, "b", 1, 2);
    expect_values(m, "c", 50, 60);
    ck_assert_int_eq(find_tensor(m, "a")->data_location, 1);
    ck_assert_int_eq(find_tensor(m, "b")->data_location, 1);
    ck_assert_str_eq(find_tensor(m, "b")->external_data[0]->value, "out.onnx.data");
    ck_assert_int_eq(find_tensor(m, "c")->data_location, 0);
    onnx_close(m);
}
END_TEST

static int renames_left;
static int fail_rename(const char *call) { return strcmp(call, "rename") || renames_left-- ? 0 : ENOSPC; }

/* A model and its external data change together, though they are two files: if saving fails between them, the
 * model saved before is still whole. */
START_TEST(external_changes_with_the_model)
{
    Diag d = {0};
    SaveValue v[4];
    write_external();
    onnx_close(save_and_open("ab"));
    OnnxModel *m = onnx_open("in.onnx", &d);
    int n = save_values(v, "a");
    renames_left = 1;
    file_fault = fail_rename;
    ck_assert(!onnx_save(m, "out.onnx", n, v, false, &d));
    file_fault = NULL;
    onnx_close(m);
    d = (Diag){0};
    m = onnx_open("out.onnx", &d);
    expect_values(m, "b", 30, 40);
    onnx_close(m);
    m = save_and_open("a");
    expect_values(m, "b", 1, 2);
    ck_assert_int_ne(access("out.onnx.data", F_OK), 0);
    onnx_close(m);
    m = save_and_open("ab");
    expect_values(m, "b", 30, 40);
    ck_assert_int_ne(access("out.onnx.2.data", F_OK), 0);
    onnx_close(m);
}
END_TEST

static void save_as(const char *path)
{
    Diag d = {0};
    SaveValue v[4];
    OnnxModel *m = onnx_open("in.onnx", &d);
    ck_assert_msg(m && onnx_save(m, path, save_values(v, "a"), v, false, &d), "%s", d.msg);
    onnx_close(m);
}

/* Saving leaves the external data of the model it reads alone, even if it has the name that the saved model's
 * data would have, as after the model was renamed or copied. */
START_TEST(external_data_of_the_model_stays)
{
    Diag d = {0};
    write_external();
    save_as("model.onnx");
    ck_assert_int_eq(rename("model.onnx", "in.onnx"), 0);
    for (int i = 0; i < 3; i++)
        save_as("model.onnx");
    ck_assert_int_eq(files_like("model.onnx*.data"), 2);
    OnnxModel *m = onnx_open("in.onnx", &d);
    expect_values(m, "b", 1, 2);
    onnx_close(m);
    ck_assert_int_eq(shell("cp in.onnx model.onnx"), 0);
    save_as("model.onnx");
    m = onnx_open("in.onnx", &d);
    expect_values(m, "b", 1, 2);
    onnx_close(m);
    m = onnx_open("model.onnx", &d);
    expect_values(m, "b", 1, 2);
    onnx_close(m);
}
END_TEST

/* External data of tensors in a node, in the body of an If and in a function is saved with the model. */
START_TEST(external_tensors_of_nodes)
{
    Diag d = {0};
    Message value = {.n = 0}, constant = {.n = 0}, body = {.n = 0}, branch = {.n = 0}, test = {.n = 0},
            graph = {.n = 0}, function = {.n = 0}, model = {.n = 0};
    float w[2] = {1, 2};
    write_bytes("w.bin", w, sizeof w);
    put_tensor(&body, "a", 2, 1, NULL, 0, "0");
    put_string(&value, 1, "value");
    put_bytes(&value, 5, body.b + 2, body.n - 2); /* the tensor without its header */
    put_string(&constant, 2, "k");
    put_string(&constant, 4, "Constant");
    put_bytes(&constant, 5, value.b, value.n);
    put_bytes(&body, 1, constant.b, constant.n);
    put_string(&branch, 1, "then_branch");
    put_bytes(&branch, 6, body.b, body.n);
    put_string(&test, 1, "c");
    put_string(&test, 2, "y");
    put_string(&test, 4, "If");
    put_bytes(&test, 5, branch.b, branch.n);
    put_bytes(&graph, 1, test.b, test.n);
    put_bytes(&graph, 1, constant.b, constant.n);
    put_string(&function, 1, "F");
    put_bytes(&function, 7, constant.b, constant.n);
    put_bytes(&model, 7, graph.b, graph.n);
    put_bytes(&model, 25, function.b, function.n);
    write_bytes("in.onnx", model.b, model.n);
    OnnxModel *m = save_and_open("");
    ck_assert_int_eq(unlink("w.bin"), 0);
    Onnx__NodeProto *const *node = m->proto->graph->node;
    const Onnx__GraphProto *then = node[0]->attribute[0]->g;
    const Onnx__TensorProto *t[] = {node[1]->attribute[0]->t, then->initializer[0],
                                    then->node[0]->attribute[0]->t,
                                    m->proto->functions[0]->node[0]->attribute[0]->t};
    for (int i = 0; i < 4; i++) {
        OnnxTensor made;
        ck_assert_msg(tensor_load(m, t[i], &made, &d), "%s", d.msg);
        ck_assert_mem_eq(made.t.data, w, sizeof w);
    }
    onnx_close(m);
}
END_TEST

/* Writes a model with the body of an If and two functions, each with a Dropout in training mode, and with
 * fields of the future. */
static void write_bodies(const char *path)
{
    Message drop = {.n = 0}, body = {.n = 0}, branch = {.n = 0}, test = {.n = 0},
            graph = {.n = 0}, function = {.n = 0}, opset = {.n = 0}, model = {.n = 0};
    put_string(&drop, 1, "x");
    put_string(&drop, 1, "ratio");
    put_string(&drop, 1, "train");
    put_string(&drop, 2, "o");
    put_string(&drop, 4, "Dropout");
    put_string(&drop, 99, "a field of the future");
    put_bytes(&body, 1, drop.b, drop.n);
    put_info(&body, 12, "o", 2);
    put_string(&body, 99, "a field of the future");
    put_string(&branch, 1, "then_branch");
    put_bytes(&branch, 6, body.b, body.n);
    put_string(&test, 1, "c");
    put_string(&test, 2, "y");
    put_string(&test, 4, "If");
    put_bytes(&test, 5, branch.b, branch.n);
    put_bytes(&graph, 1, test.b, test.n);
    put_string(&graph, 2, "g");
    put_string(&function, 1, "F");
    put_bytes(&function, 7, drop.b, drop.n);
    put_number(&opset, 2, 13);
    put_bytes(&model, 7, graph.b, graph.n);
    put_bytes(&model, 25, function.b, function.n);
    put_bytes(&model, 8, opset.b, opset.n);
    put_string(&function, 1, "G");
    put_bytes(&model, 25, function.b, function.n);
    write_bytes(path, model.b, model.n);
}

/* Saves in.onnx, which is left open in *in, as out.onnx and opens that. */
static OnnxModel *saved_again(OnnxModel **in, bool inference)
{
    Diag d = {0};
    *in = onnx_open("in.onnx", &d);
    ck_assert_msg(*in && onnx_save(*in, "out.onnx", 0, NULL, inference, &d), "%s", d.msg);
    OnnxModel *m = onnx_open("out.onnx", &d);
    ck_assert_msg(m != NULL, "%s", d.msg);
    return m;
}

/* Bodies and functions are saved whole; in the inference form (_i = 1) Dropouts lose their training_mode. */
START_TEST(bodies_and_functions)
{
    write_bodies("in.onnx");
    OnnxModel *in, *m = saved_again(&in, _i);
    const Onnx__ModelProto *p = m->proto;
    size_t left = _i ? 2 : 3; /* without training_mode */
    ck_assert_uint_eq(p->graph->node[0]->attribute[0]->g->node[0]->n_input, left);
    ck_assert_uint_eq(p->n_functions, 2);
    ck_assert_uint_eq(p->functions[0]->node[0]->n_input, left);
    ck_assert_uint_eq(p->functions[1]->node[0]->n_input, left);
    ck_assert_uint_eq(count_of(m, "a field of the future"), 4);
    ck_assert_int_eq(m->map.size == in->map.size, !_i);
    onnx_close(in);
    onnx_close(m);
}
END_TEST

/* In the inference form (_i = 1) nodes and initializers go that only a Dropout's training_mode is made of;
 * what nothing has read before stays. */
START_TEST(nodes_of_a_training_mode)
{
    float w[2] = {1, 2};
    Arena a = {0};
    Builder b;
    start(&b, 13);
    add_value(&b, &a, "x", FLOAT, "2", true);
    add_value(&b, &a, "y", FLOAT, "2", false);
    add_tensor(&b, "w", 1, (int64_t[]){2}, w);
    add_tensor(&b, "spare", 1, (int64_t[]){2}, w);
    add_bool(&b, "no", false);
    add_node(&b, &a, "Not", "no", "mode");
    add_node(&b, &a, "Dropout", "x _ mode", "h");
    add_node(&b, &a, "Neg", "h", "unread");
    add_node(&b, &a, "Add", "h w", "y");
    save(&b, &a, "in.onnx");
    OnnxModel *in, *m = saved_again(&in, _i);
    ck_assert_uint_eq(m->proto->graph->n_node, _i ? 3 : 4);
    ck_assert_str_eq(m->proto->graph->node[0]->op_type, _i ? "Dropout" : "Not");
    ck_assert(find_tensor(m, "w") && find_tensor(m, "spare") && (find_tensor(m, "no") == NULL) == _i);
    onnx_close(in);
    onnx_close(m);
    arena_free(&a);
}
END_TEST

/* A BatchNormalization gets its inference form even if the call of its function decides whether it trains. */
START_TEST(batch_norm_of_a_function)
{
    Message mode = {.n = 0}, norm = {.n = 0}, graph = {.n = 0}, function = {.n = 0}, opset = {.n = 0},
            model = {.n = 0};
    put_string(&mode, 1, "training_mode");
    put_number(&mode, 20, 2);
    put_string(&mode, 21, "training");
    for (int i = 0; i < 5; i++)
        put_string(&norm, 1, (const char *[]){"x", "scale", "bias", "mean", "var"}[i]);
    for (int i = 0; i < 3; i++)
        put_string(&norm, 2, (const char *[]){"y", "m", "v"}[i]);
    put_string(&norm, 4, "BatchNormalization");
    put_bytes(&norm, 5, mode.b, mode.n);
    put_string(&graph, 2, "g");
    put_string(&function, 1, "F");
    put_bytes(&function, 7, norm.b, norm.n);
    put_number(&opset, 2, 15);
    put_bytes(&model, 7, graph.b, graph.n);
    put_bytes(&model, 8, opset.b, opset.n);
    put_bytes(&model, 25, function.b, function.n);
    write_bytes("in.onnx", model.b, model.n);
    OnnxModel *in, *m = saved_again(&in, true);
    const Onnx__FunctionProto *f = m->proto->functions[0];
    ck_assert_uint_eq(f->n_node, 3); /* two Identity make the statistics */
    ck_assert_uint_eq(f->node[0]->n_output, 1);
    ck_assert_uint_eq(f->node[0]->n_attribute, 0);
    onnx_close(in);
    onnx_close(m);
}
END_TEST

static void expect_refusal(OnnxModel *m, const SaveValue *v, const char *part)
{
    Diag d = {0};
    ck_assert(!onnx_save(m, "out.onnx", 1, v, false, &d));
    ck_assert_msg(strstr(d.msg, part) != NULL, "%s", d.msg);
    ck_assert_int_ne(access("out.onnx", F_OK), 0);
}

START_TEST(refusals)
{
    Diag d = {0};
    int64_t ints[2] = {0};
    write_model("in.onnx", 8, false);
    OnnxModel *m = onnx_open("in.onnx", &d);
    SaveValue v = {.name = "none", .tensor = {type_make(DT_F32, 1, (int64_t[]){2}), (void *)ints}};
    expect_refusal(m, &v, "in.onnx: there is no 'none' to replace");
    v.name = "a";
    v.tensor.type.dim[0] = 3;
    expect_refusal(m, &v, "in.onnx: 'a' has another shape in the model than f32[3]");
    v.tensor.type = type_make(DT_I64, 1, (int64_t[]){2});
    expect_refusal(m, &v, "in.onnx: 'a' is float in the model and cannot be replaced by i64");
    ck_assert(!onnx_save(m, "/no/such/x.onnx", 0, NULL, false, &d));
    ck_assert_str_eq(d.msg, "/no/such/x.onnx: the folder it would lie in is not there");
    onnx_close(m);
}
END_TEST

/* A copy of the model has no place for a weight of a branch that trains, or has other values: that is said
 * before the run, also of a schedule.  One that is frozen stays as it is. */
START_TEST(a_branch_is_not_saved)
{
    float w[6] = {1, 2, 3, 4, 5, 7}, bias[2] = {1, 2};
    Arena a = {0};
    Builder b, branch;
    start(&b, 17);
    start(&branch, 17);
    add_value(&branch, &a, "z", FLOAT, "22", false);
    Onnx__TensorProto *t = add_tensor(&branch, "bias", 1, (int64_t[]){2}, bias);
    t->n_float_data = 0;
    t->has_raw_data = true;
    t->raw_data = (ProtobufCBinaryData){sizeof bias, (uint8_t *)bias};
    add_node(&branch, &a, "Add", "h bias", "z");
    add_value(&b, &a, "x", FLOAT, "23", true);
    add_value(&b, &a, "y", FLOAT, "22", false);
    add_tensor(&b, "w", 2, (int64_t[]){3, 2}, w);
    add_bool(&b, "yes", true);
    add_node(&b, &a, "MatMul", "x w", "h");
    Onnx__NodeProto *n = add_node(&b, &a, "If", "yes", "y");
    add_attr(&b, n, "then_branch")->g = &branch.graph;
    add_attr(&b, n, "else_branch")->g = &branch.graph;
    save(&b, &a, "branch.onnx");
    ckc_refuses("branch.onnx -o p --metrics m --save s.onnx", 1, "no 'bias' to replace in the main graph");
    ckc_accepts("branch.onnx -o f -q --save s.onnx --freeze bias");
    ckc_accepts("run f/step.ckp -q --save r.onnx");
    same_file("s.onnx", "r.onnx");
    ckc_accepts("s.onnx -o p -q --save s.safetensors");
    ckc_refuses("run f/step.ckp -q --save r.onnx --weights s.safetensors", 1, "no 'bias' to replace");
    ckc_refuses("branch.onnx -o p -q --save s.onnx --freeze bias --weights s.safetensors", 1,
                "no 'bias' to replace");
    ckc_accepts("branch.onnx -o p -q --save s.safetensors");
    ckc_refuses("run p/step.ckp --metrics m --save s.onnx", 1, "no 'bias' to replace in the main graph");
    arena_free(&a);
}
END_TEST

Suite *suite_save(void)
{
    Suite *s = suite_create("save");
    TCase *tc = tcase_create("onnx");
    tcase_add_checked_fixture(tc, make_folder, remove_clean_folder);
    tcase_add_loop_test(tc, replaces_and_keeps, 3, 5);
    tcase_add_test(tc, constants_of_one_name);
    tcase_add_test(tc, nothing_replaced_is_a_copy);
    tcase_add_test(tc, external_stays_external);
    tcase_add_test(tc, external_changes_with_the_model);
    tcase_add_test(tc, external_data_of_the_model_stays);
    tcase_add_test(tc, external_tensors_of_nodes);
    tcase_add_loop_test(tc, bodies_and_functions, 0, 2);
    tcase_add_loop_test(tc, nodes_of_a_training_mode, 0, 2);
    tcase_add_test(tc, batch_norm_of_a_function);
    tcase_add_test(tc, refusals);
    suite_add_tcase(s, tc);
    tc = command_case(s, "runs");
    tcase_add_test(tc, a_branch_is_not_saved);
    return s;
}
