/* test_folded.c -- what PyTorch's exporter has computed ahead, by default: which parameters are behind it,
 * under which names it trains and is saved, and what notes say of the others. */
#include "tests.h"
#include "command.h"
#include "imported.h"
#include "onnx_builder.h"
#include "runtime/data.h"
#include "runtime/weights.h"

static float ones[] = {1, 1, 1, 1, 1, 1, 1, 1}, odd[] = {3, 1, 4, 1, 5, 9, 2, 6};

/* A value that the exporter computed from a parameter, such as the exponential of a scale, trains in its
 * place; one that stands for the values of two modules is told apart by --untie. */
START_TEST(computed_in_place_of_parameters)
{
    static const char *const scope[] = {"['', 'a', 'mul']", "['', 'b', 'mul_1']"};
    Arena a = {0};
    Builder b;
    for (int modules = 1; modules <= 2; modules++) {
        start(&b, 13);
        add_value(&b, &a, "x", FLOAT, "88", true);
        add_value(&b, &a, "y", FLOAT, "88", false);
        add_tensor(&b, "exp", 1, (int64_t[]){8}, ones);
        for (int i = 0; i < modules; i++)
            add_recorded(&b, &a, "Mul", i ? "h exp" : "x exp", i + 1 < modules ? "h" : "y",
                         "%m = mul(args = (%x, %exp))", scope[i]);
        add_signature(&b, &a, "p_a: PARAMETER target='a.scale'\np_b: PARAMETER target='b.scale'\n");
        Imported r = import_file(save(&b, &a, "computed.onnx"));
        ck_assert_int_eq(params_with(&r, false), 1);
        ck_assert(noted(r.m, ONNX_REMARK, "exp",
                        "was computed by the exporter and trains in place of "
                        "parameters that no node reads (of a.scale, b.scale)"));
        ck_assert_int_eq(params_with(&r, true), modules);
        ck_assert(modules == 1
                      ? noted(r.m, ONNX_REMARK, "exp", "was computed by the exporter")
                      : noted(r.m, ONNX_REMARK, "a.exp", "and b.exp: were computed by the exporter"));
        release(&r);
    }
    arena_free(&a);
}
END_TEST

static bool has_name(const Graph *g, const char *name)
{
    for (uint32_t i = 1; i < g->nvals; i++)
        for (const ModelName *m = g->vals[i].in_model; m; m = m->next)
            if (strcmp(m->name, name) == 0)
                return true;
    return false;
}

/* Experts of which tokens take rows have their name, whatever the exporter calls its copy of them, and their
 * biases where the file says what was copied; not if the first axis is not what is indexed. */
START_TEST(indexed_weight)
{
    static const struct {
        const char *index, *name, *origins;
        bool named;
    } cases[] = {{"[%i]", "experts", NULL, true},
                 {"[None, %i]", "experts", NULL, false},
                 {"[%i]", "experts.bias", NULL, false},
                 {"[%i]", "experts.bias", "['experts.bias']", true}};
    Arena a = {0};
    Builder b;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        start(&b, 13);
        add_value(&b, &a, "x", FLOAT, "22", true);
        add_value(&b, &a, "y", FLOAT, "22", false);
        add_value(&b, &a, "i", INT64, "21", true);
        add_tensor(&b, "val_0", 2, (int64_t[]){2, 2}, odd);
        add_recorded(&b, &a, "GatherND", "val_0 i", "w",
                     arena_printf(&a, "[target=torch.ops.aten.index.Tensor](args = (%%p_e, %s))",
                                  cases[k].index),
                     "['', 'w']");
        add_node(&b, &a, "Mul", "x w", "y");
        add_signature(&b, &a, arena_printf(&a, "p_e: PARAMETER target='%s'\n", cases[k].name));
        if (cases[k].origins)
            add_origins(&b, &a, "val_0", cases[k].origins);
        Imported r = import_file(save(&b, &a, "indexed.onnx"));
        ck_assert_int_eq(params_with(&r, false), 1);
        ck_assert_int_eq(has_name(&r.g, cases[k].name), cases[k].named);
        release(&r);
    }
    arena_free(&a);
}
END_TEST

/* A class token that the exporter has repeated for each image of a batch is one parameter, of which the first
 * row has the values and under whose name it is saved.  Not so if the rows differ, if something else has been
 * computed of it, or one of equal values may be another parameter's, too; nor does it train if it is
 * detached, or a buffer. */
START_TEST(repeated_for_a_batch)
{
    static float row[] = {1, 2, 1, 2, 1, 2, 1, 3}, same[] = {5, 5, 5, 5, 5, 5};
    static const struct {
        float *data;
        const char *origins, *name; /* NULL: does not train */
        int rows;
    } cases[] = {{row, "['cls', 'val_0']", "cls", 1},
                 {row, "['cls', 'detach', 'val_0']", NULL, 3},
                 {row, "['cls', 'mul_1', 'val_0']", "expand", 1},
                 {row, "['table', 'val_0']", NULL, 3},
                 {row + 2, "['cls', 'val_0']", "expand", 3},
                 {same, "['cls', 'val_0']", "expand", 1}};
    Arena a = {0};
    Builder b;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        start(&b, 13);
        add_value(&b, &a, "x", FLOAT, "312", true);
        add_value(&b, &a, "y", FLOAT, "312", false);
        add_tensor(&b, "expand", 3, (int64_t[]){3, 1, 2}, cases[k].data);
        add_origins(&b, &a, "expand", cases[k].origins);
        add_recorded(&b, &a, "Mul", "x expand", "y", "%m = mul(args = (%x, %expand))", "['', 'n', 'm']");
        add_signature(&b, &a,
                      "p_c: PARAMETER target='cls'\np_d: PARAMETER target='other'\n"
                      "b_t: BUFFER target='table' persistent=True\n");
        Imported r = import_file(save(&b, &a, "repeated.onnx"));
        ck_assert_int_eq(params_with(&r, false), cases[k].name ? 1 : 0);
        const Value *v = &r.g.vals[graph_find(&r.g, cases[k].name ? cases[k].name : "expand").i];
        ck_assert(v->data && v->type.dim[0] == cases[k].rows);
        ck_assert_int_eq(noted(r.m, ONNX_REMARK, "expand", "the exporter repeats cls in it"), k == 0);
        bool computed = cases[k].name && k > 0;
        ck_assert_int_eq(noted(r.m, ONNX_REMARK, "expand", "in place of parameters that no node reads"),
                         computed);
        release(&r);
    }
    arena_free(&a);
}
END_TEST

/* What expand() has put in front of a parameter is not told but by the tensor that --weights has; nor is what
 * else it repeats if all values are equal. */
START_TEST(repeated_in_unknown_shape)
{
    static float row[] = {1, 2, 1, 2, 1, 2}, same[] = {5, 5, 5, 5, 5, 5};
    Arena a = {0};
    Builder b;
    Diag d = {0};
    NamedTensor vector = {"cls", {type_make(DT_F32, 1, (int64_t[]){2}), row}};
    ck_assert(safetensors_write("vector.safetensors", NULL, 1, &vector, &d));
    for (int equal = 0; equal < 2; equal++) {
        start(&b, 13);
        add_value(&b, &a, "x", FLOAT, "312", true);
        add_value(&b, &a, "y", FLOAT, "312", false);
        add_tensor(&b, "expand", 3, (int64_t[]){3, 1, 2}, equal ? same : row);
        add_origins(&b, &a, "expand", "['cls', 'val_0']");
        add_recorded(&b, &a, "Mul", "x expand", "y", "%m = mul(args = (%x, %expand))", NULL);
        add_signature(&b, &a, "p_c: PARAMETER target='cls'\n");
        Imported r = import_file(save(&b, &a, "shape.onnx"));
        ck_assert_int_eq(params_with(&r, false), 1);
        ck_assert(noted(r.m, ONNX_REMARK, "expand", "saved as f32[1,1,2] unless --weights has another"));
        ck_assert(noted(r.m, ONNX_REMARK, "expand", "the rows of a batch are taken to be one") == equal);
        release(&r);
        ckc_accepts("shape.onnx --loss mse -q -o o --weights vector.safetensors --save out.safetensors");
        DataFile *f = data_open("out.safetensors", &d);
        ck_assert_int_eq(array_of(f, "cls").type.rank, 1);
        data_close(f);
    }
    arena_free(&a);
}
END_TEST

/* A token that two modules hold is saved under both names, as `load_state_dict` wants it, though the exporter
 * has repeated it; a name that the program reads itself is another's. */
START_TEST(repeated_for_two_modules)
{
    static float row[] = {1, 2, 1, 2, 1, 2};
    Arena a = {0};
    Builder b;
    for (int read = 0; read < 2; read++) {
        start(&b, 13);
        add_value(&b, &a, "x", FLOAT, "312", true);
        add_value(&b, &a, "y", FLOAT, "312", false);
        add_tensor(&b, "expand", 3, (int64_t[]){3, 1, 2}, row);
        add_origins(&b, &a, "expand", "['b.cls', 'val_0']");
        add_recorded(&b, &a, "Mul", "x expand", "h", "%h = mul(args = (%x, %expand))", "['', 'a', 'mul']");
        add_recorded(&b, &a, "Mul", "h expand", "u", "%u = mul(args = (%h, %expand))", "['', 'b', 'mul_1']");
        add_recorded(&b, &a, "Relu", "u", "y", read ? "%y = relu(args = (%u, %p_a))" : NULL, NULL);
        add_signature(&b, &a, "p_a: PARAMETER target='a.cls'\np_b: PARAMETER target='b.cls'\n");
        Imported r = import_file(save(&b, &a, read ? "one.onnx" : "two.onnx"));
        ck_assert_int_eq(params_with(&r, false), 1);
        ck_assert(has_name(&r.g, "b.cls") && has_name(&r.g, "a.cls") == !read);
        release(&r);
    }
    ckc_accepts("two.onnx --loss mse -q -o o --tie b.cls=a.cls --save both.safetensors");
    arena_free(&a);
}
END_TEST

/* What is only a parameter in the file again, in another shape or repeated, is that parameter; what has been
 * computed of it does not train, as a note says, whatever its size, and what a buffer has become is no
 * parameter's. */
START_TEST(moved_beside_its_parameter)
{
    static float twice[] = {3, 1, 3, 1, 3, 1}, pair[] = {3, 1}, other[] = {-2, 0};
    static const struct {
        float *data;
        int64_t rows;
        const char *origins;
        bool tied, noted;
    } cases[] = {{pair, 1, "['p', 'unsqueeze', 'val_0']", true, false},
                 {twice, 3, "['p', 'val_0']", true, false},
                 {other, 1, "['p', 'sub', 'val_0']", false, true},
                 {twice, 3, "['p', 'mul', 'val_0']", false, true},
                 {other, 1, "['table', 'mul']", false, false}};
    Arena a = {0};
    Builder b;
    Diag d = {0};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        start(&b, 13);
        add_value(&b, &a, "x", FLOAT, "32", true);
        add_value(&b, &a, "y", FLOAT, "132", false);
        add_tensor(&b, "p", 1, (int64_t[]){2}, pair);
        add_tensor(&b, "expand", 3, (int64_t[]){1, cases[k].rows, 2}, cases[k].data);
        add_origins(&b, &a, "expand", cases[k].origins);
        add_recorded(&b, &a, "Mul", "x p", "h", "%h = mul(args = (%x, %p_p))", NULL);
        add_recorded(&b, &a, "Mul", "h expand", "y", "%y = mul(args = (%h, %expand))", NULL);
        add_signature(&b, &a, "p_p: PARAMETER target='p'\nb_t: BUFFER target='table' persistent=True\n");
        Imported r = import_file(save(&b, &a, "moved.onnx"));
        ck_assert_int_eq(params_with(&r, false), 1);
        ck_assert(noted(r.m, ONNX_REMARK, "expand", "tied to 'p'") == cases[k].tied);
        ck_assert(noted(r.m, ONNX_REMARK, "expand", "computed by the exporter from parameters (p)") ==
                  cases[k].noted);
        ck_assert(!noted(r.m, ONNX_REMARK, "expand", "if parameters are behind"));
        release(&r);
        if (!cases[k].tied)
            continue;
        ckc_accepts("moved.onnx --loss mse -q -o o --save again.onnx --save again.safetensors");
        OnnxModel *m = onnx_open("again.onnx", &d);
        ck_assert(m && model_initializer(m, "expand")->dims[1] == cases[k].rows);
        onnx_close(m);
        DataFile *f = data_open("again.safetensors", &d);
        ck_assert_int_eq(data_count(f), 1);
        data_close(f);
    }
    arena_free(&a);
}
END_TEST

/* What a linear has made of zeros, in the first step of an nn.RNN, is its bias, if the values are that. */
START_TEST(bias_of_a_linear_of_zeros)
{
    static float rows[] = {3, 1, 3, 1}, others[] = {3, 1, 3, 2};
    Arena a = {0};
    Builder b;
    for (int same = 0; same < 2; same++) {
        start(&b, 13);
        add_value(&b, &a, "x", FLOAT, "22", true);
        add_value(&b, &a, "y", FLOAT, "122", false);
        add_tensor(&b, "m.bias_hh_l0", 1, (int64_t[]){2}, odd);
        add_tensor(&b, "linear_1", 3, (int64_t[]){1, 2, 2}, same ? rows : others);
        add_origins(&b, &a, "linear_1", "['getitem', 'm.bias_hh_l0', 'm.weight_hh_l0', 'zeros']");
        add_recorded(&b, &a, "Add", "x m.bias_hh_l0", "h", "%h = linear(args = (%x, %p_w, %p_b))", NULL);
        add_recorded(&b, &a, "Add", "h linear_1", "y", "%y = add(args = (%h, %linear_1))", NULL);
        add_signature(&b, &a,
                      "p_b: PARAMETER target='m.bias_hh_l0'\np_w: PARAMETER target='m.weight_hh_l0'\n");
        Imported r = import_file(save(&b, &a, "zeros.onnx"));
        ck_assert_int_eq(params_with(&r, false), 1);
        ck_assert(noted(r.m, ONNX_REMARK, "linear_1", "tied to 'm.bias_hh_l0'") == same);
        ck_assert(noted(r.m, ONNX_REMARK, "linear_1", "does not train with them") == !same);
        release(&r);
    }
    arena_free(&a);
}
END_TEST

/* A vector that the file has in several dimensions does not decay where vectors do not. */
START_TEST(decay_of_a_reshaped_vector)
{
    Arena a = {0};
    Builder b;
    start(&b, 13);
    add_value(&b, &a, "x", FLOAT, "312", true);
    add_value(&b, &a, "y", FLOAT, "312", false);
    add_tensor(&b, "unsqueeze_1", 3, (int64_t[]){1, 1, 2}, odd);
    add_origins(&b, &a, "unsqueeze_1", "['d', 'unsqueeze', 'val_0', 'val_1']");
    add_recorded(&b, &a, "Mul", "x unsqueeze_1", "y", "%m = mul(args = (%x, %unsqueeze_1))", NULL);
    add_signature(&b, &a, "p_d: PARAMETER target='d'\n");
    save(&b, &a, "vector.onnx");
    const char *step = "vector.onnx --loss mse -q -o o --optimizer adamw --lr 0.1";
    ckc_accepts(format("%s --weight-decay 0.5 --no-decay auto --save auto.safetensors", step));
    ckc_accepts(format("%s --weight-decay 0.5 --no-decay d --save named.safetensors", step));
    ckc_accepts(format("%s --weight-decay 0 --save none.safetensors", step));
    same_file("auto.safetensors", "none.safetensors");
    same_file("named.safetensors", "none.safetensors");
    arena_free(&a);
}
END_TEST

/* So does a masked weight, beside a bias that the call does read; not if --train names the parameter alone,
 * or if --tie says that it is the parameter. */
START_TEST(computed_beside_a_parameter)
{
    Arena a = {0};
    Builder b;
    start(&b, 13);
    add_value(&b, &a, "x", FLOAT, "22", true);
    add_value(&b, &a, "y", FLOAT, "22", false);
    add_tensor(&b, "mul", 2, (int64_t[]){2, 2}, odd);
    add_tensor(&b, "a.bias", 1, (int64_t[]){2}, odd);
    add_recorded(&b, &a, "Gemm", "x mul a.bias", "y", "%m = linear(args = (%x, %mul, %p_b))",
                 "['', 'a', 'linear']");
    add_signature(&b, &a, "p_a: PARAMETER target='a.weight'\np_b: PARAMETER target='a.bias'\n");
    Imported r = import_file(save(&b, &a, "masked_weight.onnx"));
    ck_assert_int_eq(params_with(&r, false), 2);
    ck_assert(noted(r.m, ONNX_REMARK, "mul",
                    "was computed by the exporter and trains in place of "
                    "parameters that no node reads (of a.weight)"));
    const char *glob = "a.*";
    ck_assert_msg(build_graph(&r, &(OnnxOptions){.train = &glob, .ntrain = 1}), "%s", r.d.msg);
    ck_assert(!noted(r.m, ONNX_REMARK, "mul", "was computed by the exporter"));
    ck_assert(noted(r.m, ONNX_REMARK, "a.weight", "no node reads a.weight, which --train names"));
    OnnxTie tie = {"mul", "a.weight"};
    ck_assert_msg(build_graph(&r, &(OnnxOptions){.tie = &tie, .nties = 1}), "%s", r.d.msg);
    ck_assert(!noted(r.m, ONNX_REMARK, "mul", "was computed by the exporter"));
    glob = "*.weight";
    ck_assert(!build_graph(&r, &(OnnxOptions){.train = &glob, .ntrain = 1}));
    ck_assert_ptr_nonnull(strstr(r.d.msg, "--train *.weight: no node reads a.weight: the exporter has"));
    release(&r);
    arena_free(&a);
}
END_TEST

/* A name that no node reads since it is a second one of a weight is not what the exporter may have computed a
 * constant from. */
START_TEST(constant_beside_a_tie)
{
    Arena a = {0};
    Builder b;
    start(&b, 13);
    add_value(&b, &a, "x", FLOAT, "88", true);
    add_value(&b, &a, "y", FLOAT, "88", false);
    add_tensor(&b, "h.weight", 1, (int64_t[]){8}, odd);
    add_tensor(&b, "sub_1", 1, (int64_t[]){8}, odd);
    add_recorded(&b, &a, "Mul", "x h.weight", "u", "%u = mul(args = (%x, %p_h))", "['', 'e', 'mul']");
    add_recorded(&b, &a, "Mul", "u sub_1", "v", "%v = mul(args = (%u, %sub_1))", NULL);
    add_recorded(&b, &a, "Mul", "v h.weight", "y", "%y = mul(args = (%v, %p_h))", "['', 'h', 'mul_1']");
    add_signature(&b, &a, "p_e: PARAMETER target='e.weight'\np_h: PARAMETER target='h.weight'\n");
    Imported r = import_file(save(&b, &a, "beside_a_tie.onnx"));
    ck_assert_int_eq(params_with(&r, false), 1);
    ck_assert(noted(r.m, ONNX_REMARK, "sub_1", "does not train"));
    release(&r);
    arena_free(&a);
}
END_TEST

/* So do weights that stand for several of a call, as an LSTM's gates in ONNX's order. */
START_TEST(made_of_several_parameters)
{
    Arena a = {0};
    Builder b;
    start(&b, 13);
    add_value(&b, &a, "x", FLOAT, "22", true);
    add_value(&b, &a, "y", FLOAT, "22", false);
    add_tensor(&b, "val", 2, (int64_t[]){2, 2}, odd);
    add_recorded(&b, &a, "MatMul", "x val", "y", "%y = lstm(args = (%x, [%p_i, %p_h, %p_b]))", NULL);
    add_signature(&b, &a,
                  "p_i: PARAMETER target='r.weight_ih'\np_h: PARAMETER target='r.weight_hh'\n"
                  "p_b: PARAMETER target='r.bias'\n");
    Imported r = import_file(save(&b, &a, "gates.onnx"));
    ck_assert_int_eq(params_with(&r, false), 1);
    ck_assert(noted(r.m, ONNX_REMARK, "val", "no node reads (of r.weight_ih, r.weight_hh, r.bias)"));
    release(&r);
    arena_free(&a);
}
END_TEST

/* The parameters of an nn.LSTM are blocks of what the exporter made of them, gates in another order, and have
 * their names: they are saved, and loaded, as PyTorch has them.  Of what may be two modules' nothing is told.
 */
START_TEST(gates_of_a_recurrent_network)
{
    static float w[] = {3, 1, 4, 1}, r[] = {2, 7, 1, 8}, bias[] = {3, 1, 4, 1, 5, 9, 2, 6};
    static const double order[] = {5, 2, 6, 9};
    static const char lines[] =
        "p_a: PARAMETER target='m.weight_ih_l0'\np_b: PARAMETER target='m.weight_hh_l0'\n"
        "p_c: PARAMETER target='m.bias_ih_l0'\np_d: PARAMETER target='m.bias_hh_l0'\n";
    Arena a = {0};
    Builder b;
    Diag d = {0};
    for (int merged = 0; merged < 2; merged++) {
        start(&b, 14);
        add_value(&b, &a, "x", FLOAT, "311", true);
        add_value(&b, &a, "y", FLOAT, "3111", false);
        add_tensor(&b, "val_1", 3, (int64_t[]){1, 4, 1}, w);
        add_tensor(&b, "val_2", 3, (int64_t[]){1, 4, 1}, r);
        add_tensor(&b, "val_3", 2, (int64_t[]){1, 8}, bias);
        add_origins(&b, &a, "val_1", "['m.weight_ih_l0', 'val_0', 'zeros']");
        add_origins(&b, &a, "val_2", "['m.weight_hh_l0', 'val_0', 'zeros']");
        add_origins(&b, &a, "val_3", "['m.bias_hh_l0', 'm.bias_ih_l0', 'val_0', 'zeros']");
        if (merged)
            add_recorded(&b, &a, "LSTM", "x val_1 val_2 val_3", "h",
                         "%h = lstm(args = (%x, [%p_a, %p_b, %p_c, %p_d]))", NULL);
        add_recorded(&b, &a, "LSTM", "x val_1 val_2 val_3", "y",
                     "%y = lstm(args = (%x, [%p_a, %p_b, %p_c, %p_d]))", NULL);
        add_signature(&b, &a, merged ? format("%sp_e: PARAMETER target='n.weight_ih_l0'\n", lines) : lines);
        Imported m = import_file(save(&b, &a, "gates.onnx"));
        ck_assert_int_eq(params_with(&m, false), 3);
        ck_assert_int_eq(has_name(&m.g, "m.weight_ih_l0"), !merged);
        ck_assert_int_eq(has_name(&m.g, "m.bias_hh_l0"), true);
        release(&m);
        if (merged)
            continue;
        ckc_accepts("gates.onnx --loss mse -q -o o --optimizer sgd --lr 0 --save torch.safetensors");
        DataFile *f = data_open("torch.safetensors", &d);
        Tensor hidden = array_of(f, "m.bias_hh_l0");
        ck_assert(data_count(f) == 4 && hidden.type.rank == 1);
        for (int i = 0; i < 4; i++)
            ck_assert_double_eq(tensor_f(&hidden, i), order[i]);
        data_close(f);
        ckc_accepts("run o/step.ckp -q --weights torch.safetensors --save again.safetensors");
        same_file("torch.safetensors", "again.safetensors");
        ckc_accepts("gates.onnx --loss mse -q -o o --optimizer sgd --lr 0 --save out.onnx");
        ckc_accepts("out.onnx --loss mse -q -o o --optimizer sgd --lr 0 --save third.safetensors");
        NamedTensor less = {"m.weight_ih_l0", {type_make(DT_F32, 2, (int64_t[]){4, 1}), w}};
        ck_assert(safetensors_write("less.safetensors", NULL, 1, &less, &d));
        ckc_refuses("gates.onnx --loss mse -q -o o --weights less.safetensors", 1, "has no 'm.weight_hh_l0'");
    }
    arena_free(&a);
}
END_TEST

/* What it computed from a parameter that is read elsewhere, too, may be a constant: a note says so of one as
 * large as a parameter. */
START_TEST(computed_beside_its_parameter)
{
    Arena a = {0};
    Builder b;
    for (int large = 0; large < 2; large++) {
        start(&b, 13);
        add_value(&b, &a, "x", FLOAT, large ? "8" : "1", true);
        add_value(&b, &a, "y", FLOAT, "8", false);
        add_tensor(&b, "w", 1, (int64_t[]){8}, odd);
        add_tensor(&b, "scaled", 1, (int64_t[]){large ? 8 : 4}, odd);
        add_recorded(&b, &a, "Mul", "x w", "h", "%h = mul(args = (%x, %p_w))", NULL);
        Onnx__NodeProto *n = add_recorded(&b, &a, large ? "Mul" : "Concat", "h scaled", "y",
                                          "%y = mul(args = (%h, %mul))", NULL);
        if (!large)
            add_int(&b, n, "axis", 0);
        add_signature(&b, &a, "p_w: PARAMETER target='w'\n");
        Imported r = import_file(save(&b, &a, "scaled.onnx"));
        ck_assert_int_eq(params_with(&r, false), 1);
        ck_assert(noted(r.m, ONNX_REMARK, "scaled", "does not train; if parameters are behind it") == large);
        release(&r);
    }
    arena_free(&a);
}
END_TEST

/* A module that is never called holds a weight of another one (T5's shared.weight): the file has no more than
 * its name.  That is noted, --tie has it saved, and --weights may have it. */
START_TEST(parameter_that_nothing_reads)
{
    Arena a = {0};
    Builder b;
    start(&b, 13);
    add_value(&b, &a, "x", FLOAT, "88", true);
    add_value(&b, &a, "y", FLOAT, "88", false);
    add_tensor(&b, "a.weight", 1, (int64_t[]){8}, ones);
    add_recorded(&b, &a, "Mul", "x a.weight", "y", "%m = mul(args = (%x, %p_a))", "['', 'a', 'mul']");
    add_signature(&b, &a, "p_a: PARAMETER target='a.weight'\np_b: PARAMETER target='b.weight'\n");
    OnnxTie tie = {"a.weight", "b.weight"};
    for (int ties = 0; ties < 2; ties++) {
        Imported r = import_file(save(&b, &a, "unread.onnx"));
        ck_assert_msg(build_graph(&r, &(OnnxOptions){.tie = &tie, .nties = ties}), "%s", r.d.msg);
        const ModelName *name = r.g.vals[graph_find(&r.g, "a.weight").i].in_model;
        ck_assert(noted(r.m, ONNX_REMARK, "b.weight", "no node reads b.weight") == !ties);
        ck_assert_str_eq(name->name, "a.weight");
        ck_assert(ties ? strcmp(name->next->name, "b.weight") == 0 : !name->next);
        release(&r);
    }
    ckc_accepts("unread.onnx --loss mse -q -o o --tie a.weight=b.weight --save both.safetensors");
    ckc_accepts("unread.onnx --loss mse -q -o o --weights both.safetensors");
    ckc_refuses("unread.onnx --loss mse -q -o o --tie a.weight=c.weight", 1, "no such weights");
    ckc_accepts("unread.onnx --loss mse -q -o o --tie a.weight=b.weight --train b.weight");
    ckc_refuses("unread.onnx --loss mse -q -o o --tie a.weight=b.weight --freeze b.weight", 1,
                "--train and --freeze leave");
    arena_free(&a);
}
END_TEST

Suite *suite_folded(void)
{
    Suite *s = suite_create("folded");
    TCase *t = tcase_create("folded");
    tcase_add_checked_fixture(t, make_folder, remove_folder);
    tcase_add_test(t, computed_in_place_of_parameters);
    tcase_add_test(t, indexed_weight);
    tcase_add_test(t, repeated_for_a_batch);
    tcase_add_test(t, repeated_in_unknown_shape);
    tcase_add_test(t, repeated_for_two_modules);
    tcase_add_test(t, moved_beside_its_parameter);
    tcase_add_test(t, bias_of_a_linear_of_zeros);
    tcase_add_test(t, decay_of_a_reshaped_vector);
    tcase_add_test(t, computed_beside_a_parameter);
    tcase_add_test(t, constant_beside_a_tie);
    tcase_add_test(t, made_of_several_parameters);
    tcase_add_test(t, gates_of_a_recurrent_network);
    tcase_add_test(t, computed_beside_its_parameter);
    tcase_add_test(t, parameter_that_nothing_reads);
    suite_add_tcase(s, t);
    return s;
}
