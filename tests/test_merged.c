/* test_merged.c -- initializers that PyTorch's exporters merged, transposed, computed or left out: what the
 * file's records tell apart, what is a tie, and under which names weights are saved. */
#include "tests.h"
#include "command.h"
#include "imported.h"
#include "ir/onnx/save.h"
#include "runtime/data.h"
#include "onnx_builder.h"
#include <math.h>
#include <string.h>

static float ones[] = {1, 1, 1, 1, 1, 1, 1, 1}, odd[] = {3, 1, 4, 1, 5, 9, 2, 6}, zeros[8],
             table[] = {1, 2, 3, 4, 5, 6}, turned[] = {1, 4, 2, 5, 3, 6};

/* A model with a gain that stands for two, a gain that is read twice, and a product without its bias. */
static Imported merged_model(Builder *b, Arena *a)
{
    start(b, 13);
    add_value(b, a, "x", FLOAT, "88", true);
    add_value(b, a, "y", FLOAT, "84", false);
    add_tensor(b, "a.weight", 1, (int64_t[]){8}, ones);
    add_tensor(b, "both.weight", 1, (int64_t[]){8}, odd);
    add_tensor(b, "fc.weight", 2, (int64_t[]){8, 4}, NEW(a, float, 32));
    add_recorded(b, a, "Mul", "x a.weight", "h0", "%mul = mul(args = (%x, %p_a_w))", NULL);
    add_recorded(b, a, "Mul", "a.weight h0", "h1", "%mul_1 = mul(args = (%p_b_w, %mul))", NULL);
    add_recorded(b, a, "Mul", "h1 both.weight", "h2", "%m2 = mul(args = (%mul_1, %p_both))", NULL);
    add_recorded(b, a, "Mul", "h2 both.weight", "h3", "%m3 = mul(args = (%m2, %p_both))", NULL);
    add_recorded(b, a, "Gemm", "h3 fc.weight", "y", "%y = addmm(args = (%p_fc_b, %m3, %p_fc_w))", NULL);
    add_signature(b, a,
                  "\n# inputs\np_a_w: PARAMETER target='a.weight'\np_b_w: PARAMETER "
                  "target='b.weight'\n"
                  "p_both: PARAMETER target='both.weight'\np_fc_w: PARAMETER target='fc.weight'\n"
                  "p_fc_b: PARAMETER target='fc.bias'\nx: USER_INPUT\n");
    return import_file(save(b, a, "merged.onnx"));
}

START_TEST(records_tell_parameters_apart)
{
    Arena a = {0};
    Builder b;
    Imported r = merged_model(&b, &a);
    ck_assert_int_eq(params_with(&r, false), 3);
    ck_assert(noted(r.m, ONNX_REMARK, "a.weight", "stands for 1 more parameter"));
    ck_assert(noted(r.m, ONNX_REMARK, "a.weight", "(b.weight)"));
    ck_assert(noted(r.m, ONNX_REMARK, "fc.bias", "1 bias of zeros left out"));
    ck_assert(!noted(r.m, ONNX_REMARK, "both.weight", ""));
    ck_assert_int_eq(params_with(&r, true), 5);
    Val bias = graph_find(&r.g, "fc.bias");
    ck_assert(bias.i && type_count(val_type(&r.g, bias)) == 4);
    ck_assert(graph_find(&r.g, "b.weight").i);
    ck_assert_int_eq(params_with(&r, false), 3); /* the next import is as the file has it */
    release(&r);
    arena_free(&a);
}
END_TEST

/* A branch that only hands a weight on, as in TorchScript's scatter_reduce, gets no parameter of its own, not
 * even with --untie. */
START_TEST(branch_hands_a_weight_on)
{
    Arena a = {0};
    Builder b, branch;
    static float data[6] = {1, 2, 3, 4, 5, 7};
    start(&b, 17);
    start(&branch, 17);
    add_value(&branch, &a, "z", FLOAT, "32", false);
    add_node(&branch, &a, "Identity", "w", "z");
    add_value(&b, &a, "x", FLOAT, "23", true);
    add_value(&b, &a, "y", FLOAT, "22", false);
    add_tensor(&b, "w", 2, (int64_t[]){3, 2}, data);
    add_bool(&b, "yes", true);
    Onnx__NodeProto *n = add_node(&b, &a, "If", "yes", "v");
    add_attr(&b, n, "then_branch")->g = &branch.graph;
    add_attr(&b, n, "else_branch")->g = &branch.graph;
    add_node(&b, &a, "MatMul", "x v", "y");
    Imported r = import_file(save(&b, &a, "branch.onnx"));
    ck_assert_msg(build_graph(&r, &(OnnxOptions){.untie = true}), "%s", r.d.msg);
    ck_assert_int_eq(r.g.vals[graph_find(&r.g, "w").i].kind, VAL_PARAM);
    ck_assert_int_eq(graph_find(&r.g, "z").i, 0);
    release(&r);
    arena_free(&a);
}
END_TEST

/* Weights with impossible dimensions are refused, though the size of a bias that is left out is computed from
 * them before they are checked. */
START_TEST(bias_of_impossible_weights)
{
    Arena a = {0};
    Builder b;
    start(&b, 17);
    add_value(&b, &a, "x", FLOAT, "1133", true);
    add_value(&b, &a, "y", FLOAT, "1133", false);
    add_tensor(&b, "up.weight", 4, (int64_t[]){1, INT64_MIN, 1, 1}, NULL);
    Onnx__NodeProto *n = add_recorded(&b, &a, "ConvTranspose", "x up.weight", "y",
                                      "%y = conv(args = (%x, %p_up_w, %p_up_b))", NULL);
    add_int(&b, n, "group", 2);
    add_signature(&b, &a,
                  "\n# inputs\np_up_w: PARAMETER target='up.weight'\np_up_b: PARAMETER target='up.bias'\n"
                  "x: USER_INPUT\n");
    Imported r = import_file(save(&b, &a, "merged.onnx"));
    ck_assert(!build_graph(&r, &(OnnxOptions){.untie = true}));
    ck_assert_msg(strstr(r.d.msg, "tensor 'up.weight' has impossible dimensions"), "%s", r.d.msg);
    release(&r);
    arena_free(&a);
}
END_TEST

/* Parameters that --untie tells apart are apart in the saved file, which needs no option. */
START_TEST(saved_apart)
{
    Arena a = {0};
    Builder b;
    Imported r = merged_model(&b, &a);
    ck_assert_int_eq(params_with(&r, true), 5);
    SaveValue v[8];
    int n = 0;
    for (uint32_t i = 1; i < r.g.nvals; i++)
        if (r.g.vals[i].kind == VAL_PARAM)
            v[n++] =
                (SaveValue){.name = graph_model_name(&r.g, (Val){i}), .tensor = graph_tensor(&r.g, (Val){i})};
    for (int i = 0; i < n; i++)
        if (strcmp(v[i].name, "b.weight") == 0)
            v[i].tensor.data = odd;
    const char *path = "saved.onnx";
    ck_assert_msg(onnx_save(r.m, path, n, v, false, &r.d), "%s", r.d.msg);
    release(&r);
    r = import_file(path);
    ck_assert_int_eq(params_with(&r, false), 5);
    Tensor gain = graph_tensor(&r.g, graph_find(&r.g, "b.weight"));
    ck_assert_double_eq(tensor_f(&gain, 5), 9);
    gain = graph_tensor(&r.g, graph_find(&r.g, "a.weight"));
    ck_assert_double_eq(tensor_f(&gain, 5), 1);
    release(&r);
    arena_free(&a);
}
END_TEST

/* If records or names of nodes tell only the modules, a weight that two of them read is taken for two merged
 * ones if all its elements are equal. */
START_TEST(scopes_tell_apart_what_is_uniform)
{
    static const char *const scope[] = {"['', 'a', 'mul']", "['', 'b', 'b@1', 'mul_1']"};
    static char *const path[] = {"/a/Mul", "/b/Mul"};
    Arena a = {0};
    Builder b;
    for (int form = 0; form < 4; form++) {
        bool named = form & 1, uniform = form & 2;
        start(&b, 13);
        add_value(&b, &a, "x", FLOAT, "88", true);
        add_value(&b, &a, "y", FLOAT, "88", false);
        add_tensor(&b, "a.weight", 1, (int64_t[]){8}, uniform ? ones : odd);
        for (int i = 0; i < 2; i++) {
            Onnx__NodeProto *n = add_recorded(&b, &a, "Mul", i ? "h a.weight" : "x a.weight", i ? "y" : "h",
                                              NULL, named ? NULL : scope[i]);
            if (named)
                n->name = path[i];
        }
        add_signature(&b, &a, NULL);
        Imported r = import_file(save(&b, &a, "scopes.onnx"));
        ck_assert_int_eq(params_with(&r, false), 1);
        ck_assert_int_eq(params_with(&r, true), uniform ? 2 : 1);
        ck_assert((graph_find(&r.g, "b.weight").i != 0) == uniform);
        release(&r);
    }
    arena_free(&a);
}
END_TEST

static int names_of(const Graph *g, const char *name)
{
    int n = 0;
    for (uint32_t i = 1; i < g->nvals; i++)
        for (const ModelName *m = g->vals[i].in_model; m; m = m->next)
            n += strcmp(m->name, name) == 0;
    return n;
}

/* A weight is also known by the name of the module that reads it, unless two weights would have that name. */
START_TEST(one_name_is_one_weight)
{
    static char *const path[] = {"/m.m/Mul", "/m.m/Mul_1"};
    Arena a = {0};
    Builder b;
    for (int two = 0; two < 2; two++) {
        start(&b, 13);
        add_value(&b, &a, "x", FLOAT, "88", true);
        add_value(&b, &a, "y", FLOAT, "88", false);
        add_tensor(&b, "m.q.weight", 1, (int64_t[]){8}, odd);
        add_tensor(&b, two ? "m.p.weight" : "m.p.gain", 1, (int64_t[]){8}, odd);
        for (int i = 0; i < 2; i++)
            add_recorded(&b, &a, "Mul",
                         !i    ? "x m.q.weight"
                         : two ? "h m.p.weight"
                               : "h m.p.gain",
                         i ? "y" : "h", NULL, NULL)
                ->name = path[i];
        add_signature(&b, &a, NULL);
        Imported r = import_file(save(&b, &a, "names.onnx"));
        ck_assert_int_eq(params_with(&r, false), 2);
        ck_assert_int_eq(names_of(&r.g, "m.m.weight"), !two);
        release(&r);
    }
    arena_free(&a);
}
END_TEST

/* Tensors that the exporter made are no parameters: a head that is the transposed table is tied to that, and
 * a mask of zeros is a constant. */
START_TEST(the_exporters_tensors_are_no_parameters)
{
    Arena a = {0};
    Builder b;
    start(&b, 13);
    add_value(&b, &a, "x", FLOAT, "42", true);
    add_value(&b, &a, "y", FLOAT, "42", false);
    add_tensor(&b, "head.weight", 2, (int64_t[]){2, 3}, table);
    add_tensor(&b, "val_1", 2, (int64_t[]){3, 2}, turned);
    add_tensor(&b, "val_2", 1, (int64_t[]){2}, zeros);
    add_recorded(&b, &a, "MatMul", "x head.weight", "h", "%h = matmul(args = (%x, %p_w))", NULL);
    add_recorded(&b, &a, "MatMul", "h val_1", "k", "%k = linear(args = (%h, %p_w))", NULL);
    add_recorded(&b, &a, "Add", "k val_2", "y", "%y = add(args = (%k, %zeros))", "['', 'm', 'add']");
    add_signature(&b, &a, "p_w: PARAMETER target='head.weight'\n");
    Imported r = import_file(save(&b, &a, "tied.onnx"));
    ck_assert_int_eq(params_with(&r, false), 1);
    ck_assert(noted(r.m, ONNX_REMARK, "val_1", "tied to 'head.weight'"));
    ck_assert(noted(r.m, ONNX_FROZEN, "val_2", "a constant of the exporter's"));
    ck_assert_int_eq(params_with(&r, true), 1);
    release(&r);
    arena_free(&a);
}
END_TEST

/* Scales of a Resize, which the exporter computes, are not said to train in place of a parameter that is
 * missing, nor to be made of one of their size. */
START_TEST(scales_of_a_resize_are_no_parameters)
{
    static float scales[] = {1, 1, 2, 2};
    Arena a = {0};
    Builder b;
    start(&b, 13);
    add_value(&b, &a, "x", FLOAT, "1122", true);
    add_value(&b, &a, "y", FLOAT, "1144", false);
    add_tensor(&b, "val_1", 1, (int64_t[]){4}, scales);
    add_tensor(&b, "w", 1, (int64_t[]){4}, odd);
    add_recorded(&b, &a, "Resize", "x _ val_1", "h", "%h = upsample(args = (%x, None, True, [2.0, 2.0]))",
                 "['', 'm', 'h']");
    add_recorded(&b, &a, "Mul", "h w", "y", "%y = mul(args = (%h, %p_w))", NULL);
    add_signature(&b, &a, "p_a: PARAMETER target='m.cls'\np_w: PARAMETER target='w'\n");
    Imported r = import_file(save(&b, &a, "resize.onnx"));
    ck_assert_int_eq(params_with(&r, false), 1);
    ck_assert(noted(r.m, ONNX_FROZEN, "val_1", "an operand of Resize"));
    ck_assert(!noted(r.m, ONNX_REMARK, "val_1", ""));
    release(&r);
    arena_free(&a);
}
END_TEST

/* What torch.export's exporter scales and shifts the groups of a group norm by does not train, though it may
 * be merged with parameters; the norm's own do, each for itself, as its module holds them. */
START_TEST(ones_of_a_group_norm_are_no_parameters)
{
    Arena a = {0};
    enum { IMAGE, MERGED, VECTOR }; /* VECTOR: without positions, for which the exporter adds no axes */
    for (int kind = IMAGE; kind <= VECTOR; kind++) {
        bool merged = kind == MERGED;
        Builder b;
        start(&b, 17);
        add_value(&b, &a, "x", FLOAT, merged ? "124" : kind == VECTOR ? "112" : "114", true);
        add_value(&b, &a, "y", FLOAT, kind == VECTOR ? "112" : "124", false);
        int64_t groups = merged ? 2 : 1, channels[] = {2, 1};
        add_tensor(&b, merged ? "m.weight" : "val_1", 1, &groups, ones);
        add_tensor(&b, merged ? "m.bias" : "val_2", 1, &groups, zeros);
        add_tensor(&b, "val_3", kind == VECTOR ? 1 : 2, channels, odd);
        add_tensor(&b, "val_4", kind == VECTOR ? 1 : 2, channels, odd + 2);
        const char *call = "%h : [num_users=1] = call_function[target=torch.ops.aten.group_norm.default]"
                           "(args = (%x, 1, %p_w, %p_b, 1e-05, False), kwargs = {})";
        const char *operands = merged ? "x m.weight m.bias" : "x val_1 val_2";
        add_recorded(&b, &a, "InstanceNormalization", operands, "h", call, NULL);
        add_recorded(&b, &a, "Mul", "h val_3", "k", call, NULL);
        add_recorded(&b, &a, "Add", "k val_4", merged ? "l" : "y", call, NULL);
        if (merged)
            add_recorded(&b, &a, "InstanceNormalization", "l m.weight m.bias", "y",
                         "%y = instance_norm(args = (%l, %p_mw, %p_mb))", NULL);
        add_signature(&b, &a,
                      "p_w: PARAMETER target='n.weight'\np_b: PARAMETER target='n.bias'\n"
                      "p_mw: PARAMETER target='m.weight'\np_mb: PARAMETER target='m.bias'\n");
        Imported r = import_file(save(&b, &a, "groups.onnx"));
        ck_assert_int_eq(params_with(&r, true), merged ? 4 : 2);
        ck_assert_int_eq(params_with(&r, false), merged ? 4 : 2);
        ck_assert(noted(r.m, ONNX_FROZEN, "val_1", "a constant of the exporter's") != merged);
        ck_assert(!noted(r.m, ONNX_REMARK, "val_4", ""));
        const ModelName *held = graph_module_name(&r.g, graph_find(&r.g, "n.bias"));
        ck_assert(held && strcmp(held->name, "n.bias") == 0 && held->shape && held->shape->rank == 1);
        uint32_t scales = 0;
        for (uint32_t i = 0; i < r.g.norder; i++)
            scales += r.g.nodes[r.g.order[i].i].op == OP_mul;
        ck_assert_int_eq(scales, merged ? 2 : 1);
        release(&r);
    }
    arena_free(&a);
}
END_TEST

/* A layer that is applied twice, each time with its own transposed copy of the weight, has one parameter. */
START_TEST(copies_of_one_parameter_are_tied)
{
    Arena a = {0};
    Builder b;
    start(&b, 13);
    add_value(&b, &a, "x", FLOAT, "42", true);
    add_value(&b, &a, "y", FLOAT, "42", false);
    add_tensor(&b, "val_1", 2, (int64_t[]){2, 2}, odd);
    add_tensor(&b, "val_2", 2, (int64_t[]){2, 2}, odd);
    const char *call = "%h : [num_users=1] = call_function[target=torch.ops.aten.linear.default](args = (%x, "
                       "%p_w, %p_b))";
    add_recorded(&b, &a, "MatMul", "x val_1", "h", call, NULL);
    add_recorded(&b, &a, "MatMul", "h val_2", "y", call, NULL);
    add_signature(&b, &a, "p_w: PARAMETER target='fc.weight'\np_b: PARAMETER target='fc.bias'\n");
    Imported r = import_file(save(&b, &a, "twice.onnx"));
    ck_assert_int_eq(params_with(&r, false), 1);
    ck_assert(noted(r.m, ONNX_REMARK, "val_2", "tied to 'val_1'"));
    ckc_accepts("twice.onnx --loss mse -q -o o --save twice.safetensors");
    Diag d = {0};
    DataFile *f = data_open("twice.safetensors", &d);
    ck_assert(f && data_count(f) == 1 && data_find(f, "fc.weight") == 0); /* not the copies' names */
    data_close(f);
    release(&r);
    arena_free(&a);
}
END_TEST

/* Writes a Linear as PyTorch exports it: without optimization, or by default, with the weight transposed
 * under a name of the exporter's. */
static void linear_model(Builder *b, Arena *a, bool by_default)
{
    start(b, 13);
    add_value(b, a, "x", FLOAT, "42", true);
    add_value(b, a, "y", FLOAT, "43", false);
    add_tensor(b, by_default ? "val_1" : "fc.weight", 2,
               by_default ? (int64_t[]){2, 3} : (int64_t[]){3, 2}, by_default ? table : turned);
    if (!by_default)
        add_node(b, a, "Transpose", "fc.weight", "val_1");
    add_recorded(
        b, a, "MatMul", "x val_1", "y",
        "%y : [num_users=1] = call_function[target=torch.ops.aten.linear.default](args = (%x, %p_w))", NULL);
    add_signature(b, a, "p_w: PARAMETER target='fc.weight'\n");
    save(b, a, by_default ? "default.onnx" : "plain.onnx");
}

static void same_named(const char *one, const char *name, const char *other, const char *other_name)
{
    Diag d = {0};
    DataFile *f = data_open(one, &d), *g = data_open(other, &d);
    ck_assert(f && g);
    Tensor a = array_of(f, name), b = array_of(g, other_name);
    ck_assert(type_equal(&a.type, &b.type));
    for (int64_t i = 0; i < type_count(&a.type); i++)
        ck_assert_double_eq_tol(tensor_f(&a, i), tensor_f(&b, i), 1e-5);
    data_close(f);
    data_close(g);
}

static void same_array(const char *one, const char *other, const char *name)
{
    same_named(one, name, other, name);
}

static bool has_array(const char *path, const char *name)
{
    Diag d = {0};
    DataFile *f = data_open(path, &d);
    ck_assert(f);
    bool has = data_find(f, name) >= 0;
    data_close(f);
    return has;
}

/* A weight that lies transposed in the model has its module's name, and is saved and loaded as the module
 * holds it. */
START_TEST(transposed_weights_have_their_names)
{
    Arena a = {0};
    Builder b;
    linear_model(&b, &a, false);
    linear_model(&b, &a, true);
    const char *args = "--loss mse --optimizer sgd --quiet --train 'fc.*' --steps 3";
    ckc_accepts(format("plain.onnx -o p %s --save p.safetensors --grads p.npz", args));
    ckc_accepts(format("default.onnx -o d %s --save d.safetensors --save d.onnx --grads d.npz", args));
    same_array("p.safetensors", "d.safetensors", "fc.weight");
    same_array("p.npz", "d.npz", "fc.weight"); /* gradients are also there as the model holds the weight */
    ck_assert(has_array("d.npz", "val_1") && !has_array("d.safetensors", "val_1"));
    ckc_accepts("run d/step.ckp --steps 3 --quiet --save again.safetensors");
    same_file("again.safetensors", "d.safetensors");
    ckc_accepts(format("plain.onnx -o p %s --weights p.safetensors --save p6.safetensors", args));
    ckc_accepts(format("default.onnx -o d %s --weights p.safetensors --save d6.safetensors", args));
    ckc_accepts(format("d.onnx -o d %s --save saved6.safetensors", args));
    same_array("p6.safetensors", "d6.safetensors", "fc.weight");
    same_array("p6.safetensors", "saved6.safetensors", "fc.weight");
    arena_free(&a);
}
END_TEST

/* What the exporter has repeated for a batch (columns, not rows, of the second tensor) is one parameter,
 * saved and loaded under its module's name, or that of --tie if it is computed; a saved model repeats it. */
START_TEST(repeated_parameters)
{
    static float rows[] = {1, 2, 3, 1, 2, 3}, columns[] = {4, 4, 5, 5, 6, 6};
    Arena a = {0};
    Builder b;
    start(&b, 13);
    add_value(&b, &a, "x", FLOAT, "213", true);
    add_value(&b, &a, "y", FLOAT, "213", false);
    add_tensor(&b, "expand", 3, (int64_t[]){2, 1, 3}, rows);
    add_tensor(&b, "expand_1", 2, (int64_t[]){3, 2}, columns);
    add_origins(&b, &a, "expand", "['m.cls', 'unsqueeze_2', 'val_0', 'val_1']");
    add_origins(&b, &a, "expand_1", "['mul', 'n.e', 'val_2']");
    add_recorded(&b, &a, "Mul", "x expand", "h", "%h = mul(args = (%x, %expand))", "['', 'm', 'mul']");
    add_recorded(&b, &a, "MatMul", "h expand_1", "g", "%g = mm(args = (%h, %expand_1))", "['', 'n', 'mm']");
    add_node(&b, &a, "ReduceMean", "g", "m");
    add_node(&b, &a, "Add", "x m", "y");
    add_signature(&b, &a,
                  "p_c: PARAMETER target='m.cls'\np_d: PARAMETER target='n.d'\n"
                  "p_e: PARAMETER target='n.e'\n");
    save(&b, &a, "repeated.onnx");
    const char *args = "repeated.onnx --loss mse --optimizer sgd --quiet --tie expand_1=n.e";
    ckc_accepts(format("%s -o o --steps 2 --save two.safetensors --save two.onnx --grads g.npz", args));
    ck_assert(!has_array("two.safetensors", "expand") && !has_array("two.safetensors", "expand_1"));
    Diag d = {0};
    DataFile *f = data_open("two.safetensors", &d), *grads = data_open("g.npz", &d);
    Tensor cls = array_of(f, "m.cls"), e = array_of(f, "n.e"), slope = array_of(grads, "m.cls");
    ck_assert(cls.type.rank == 2 && cls.type.dim[1] == 3 && type_equal(&slope.type, &cls.type));
    ck_assert(e.type.dim[0] == 3 && e.type.dim[1] == 1 && tensor_f(&e, 0) != 4 && tensor_f(&cls, 1) != 2);
    data_close(f);
    data_close(grads);
    ckc_accepts("run o/step.ckp --steps 2 --quiet --save again.safetensors");
    same_file("again.safetensors", "two.safetensors");
    ckc_accepts(format("two.onnx%s -o o --lr 0 --steps 1 --save saved.safetensors", strchr(args, ' ')));
    same_file("saved.safetensors", "two.safetensors");
    ckc_accepts(format("%s -o o --lr 0 --steps 1 --weights two.safetensors --save given.safetensors",
                       args));
    same_file("given.safetensors", "two.safetensors");
    ckc_refuses("repeated.onnx --loss mse --tie expand=expand_1", 1, "what the file repeats");
    ckc_accepts("repeated.onnx --loss mse --optimizer sgd --quiet -o o --steps 1 --train '*cls' "
                "--save-trained --save one.safetensors");
    ck_assert(has_array("one.safetensors", "m.cls") && !has_array("one.safetensors", "expand_1"));
    arena_free(&a);
}
END_TEST

/* Transposed weights that are equal, as adapters of several layers that start at zero, are one tensor of the
 * model: the first one's name selects it, it is saved under all names, and --untie tells them apart. */
START_TEST(merged_transposes_have_all_names)
{
    Arena a = {0};
    Builder b;
    start(&b, 13);
    add_value(&b, &a, "x", FLOAT, "42", true);
    add_value(&b, &a, "y", FLOAT, "42", false);
    add_tensor(&b, "val_1", 2, (int64_t[]){2, 2}, zeros);
    add_tensor(&b, "w", 1, (int64_t[]){2}, odd);
    for (int i = 0; i < 2; i++) {
        add_recorded(&b, &a, "MatMul", i ? "h1 val_1" : "x val_1", i ? "l1" : "l0",
                     i ? "%l1 = call_function[target=torch.ops.aten.linear.default](args = (%h1, %p_b1))"
                       : "%l0 = call_function[target=torch.ops.aten.linear.default](args = (%x, %p_b0))",
                     NULL);
        add_recorded(&b, &a, "Add", i ? "h1 l1" : "x l0", i ? "h2" : "h1", "%h = add(args = (%x, %l))", NULL);
    }
    add_recorded(&b, &a, "Mul", "h2 w", "y", "%y = mul(args = (%h2, %p_w))", NULL);
    add_signature(&b, &a,
                  "p_b0: PARAMETER target='a.lora_B.weight'\np_b1: PARAMETER target='b.lora_B.weight'\n"
                  "p_w: PARAMETER target='w'\n");
    save(&b, &a, "zeros.onnx");
    const char *args = "zeros.onnx --loss mse --optimizer sgd --quiet --steps 2 --save-trained "
                       "--train '*lora_*'";
    ckc_accepts(format("%s -o o --save one.safetensors", args));
    same_named("one.safetensors", "a.lora_B.weight", "one.safetensors", "b.lora_B.weight");
    ck_assert(!has_array("one.safetensors", "val_1") && !has_array("one.safetensors", "w"));
    ckc_accepts(format("%s -o o --untie --save two.safetensors --save two.onnx", args));
    Imported r = import_file("zeros.onnx");
    ck_assert_int_eq(params_with(&r, false), 2);
    ck_assert(noted(r.m, ONNX_REMARK, "val_1", "(a.lora_B.weight, b.lora_B.weight)"));
    release(&r);
    Diag d = {0};
    DataFile *f = data_open("two.safetensors", &d);
    ck_assert(f && data_count(f) == 2);
    Tensor p = array_of(f, "a.lora_B.weight"), q = array_of(f, "b.lora_B.weight");
    ck_assert(tensor_f(&p, 0) != 0 && tensor_f(&p, 0) != tensor_f(&q, 0));
    data_close(f);
    ckc_accepts(format("%s -o o --untie --weights two.safetensors --save four.safetensors", args));
    ckc_accepts("two.onnx --loss mse --optimizer sgd --quiet --steps 2 --save-trained --train '*lora_*' -o o "
                "--save more.safetensors");
    same_named("four.safetensors", "b.lora_B.weight", "more.safetensors", "b.lora_B.weight");
    arena_free(&a);
}
END_TEST

/* A head that is a transposed copy of the table, under a name of the exporter's, is tied to the table by its
 * module's name and saved under that. */
START_TEST(transposed_copies_are_tied_by_name)
{
    Arena a = {0};
    Builder b;
    start(&b, 13);
    add_value(&b, &a, "x", FLOAT, "43", true);
    add_value(&b, &a, "y", FLOAT, "43", false);
    add_tensor(&b, "emb.weight", 2, (int64_t[]){3, 2}, turned);
    add_tensor(&b, "val_1", 2, (int64_t[]){2, 3}, table);
    add_recorded(&b, &a, "MatMul", "x emb.weight", "h", "%h = matmul(args = (%x, %p_e))", NULL);
    add_recorded(&b, &a, "MatMul", "h val_1", "y",
                 "%y = call_function[target=torch.ops.aten.linear.default](args = (%h, %p_h))", NULL);
    add_signature(&b, &a, "p_e: PARAMETER target='emb.weight'\np_h: PARAMETER target='head.weight'\n");
    Imported r = import_file(save(&b, &a, "head.onnx"));
    ck_assert_int_eq(params_with(&r, false), 2);
    ck_assert(noted(r.m, ONNX_REMARK, "head.weight", "--tie emb.weight=head.weight"));
    release(&r);
    ckc_accepts("head.onnx --loss mse --optimizer sgd --quiet --steps 2 -o o --tie emb.weight=head.weight "
                "--save t.safetensors --save t.onnx");
    same_named("t.safetensors", "emb.weight", "t.safetensors", "head.weight");
    ckc_accepts("t.onnx --loss mse --optimizer sgd --quiet --steps 1 -o o --tie emb.weight=head.weight");
    arena_free(&a);
}
END_TEST

/* A table that the program transposes for its head is one weight, as the exporter says from what it made the
 * copy. */
START_TEST(transposed_by_the_program)
{
    Arena a = {0};
    Builder b;
    start(&b, 13);
    add_value(&b, &a, "x", FLOAT, "43", true);
    add_value(&b, &a, "y", FLOAT, "43", false);
    add_tensor(&b, "emb.weight", 2, (int64_t[]){3, 2}, turned);
    add_tensor(&b, "transpose_3", 2, (int64_t[]){2, 3}, table);
    add_origins(&b, &a, "transpose_3", "['emb.weight']");
    add_recorded(&b, &a, "MatMul", "x emb.weight", "h", "%h = matmul(args = (%x, %p_e))", NULL);
    add_recorded(&b, &a, "MatMul", "h transpose_3", "y", "%y = matmul(args = (%h, %transpose_3))", NULL);
    add_signature(&b, &a, "p_e: PARAMETER target='emb.weight'\n");
    Imported r = import_file(save(&b, &a, "head.onnx"));
    ck_assert_int_eq(params_with(&r, false), 1);
    ck_assert(noted(r.m, ONNX_REMARK, "transpose_3", "tied to 'emb.weight'"));
    release(&r);
    arena_free(&a);
}
END_TEST

/* A convolution into which the exporter has folded a norm has the norm's record, but its weight does not
 * stand for the norm's. */
START_TEST(folded_norms_are_not_merged)
{
    Arena a = {0};
    Builder b;
    start(&b, 13);
    add_value(&b, &a, "x", FLOAT, "1244", true);
    add_value(&b, &a, "y", FLOAT, "1244", false);
    add_tensor(&b, "conv.weight", 4, (int64_t[]){2, 2, 1, 2}, odd);
    Onnx__NodeProto *n =
        add_recorded(&b, &a, "Conv", "x conv.weight", "y", "%y = batch_norm(args = (%c, %p_w, %mean))", NULL);
    Onnx__AttributeProto *pads = add_attr(&b, n, "auto_pad");
    pads->has_type = pads->has_s = true;
    pads->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING;
    pads->s = (ProtobufCBinaryData){10, (uint8_t *)(uintptr_t)"SAME_UPPER"};
    add_signature(&b, &a, "p_c: PARAMETER target='conv.weight'\np_w: PARAMETER target='bn.weight'\n");
    Imported r = import_file(save(&b, &a, "folded.onnx"));
    ck_assert_int_eq(params_with(&r, true), 1);
    ck_assert_int_eq(graph_find(&r.g, "bn.weight").i, 0);
    ck_assert(!noted(r.m, ONNX_REMARK, "conv.weight", ""));
    release(&r);
    arena_free(&a);
}
END_TEST

/* What lies transposed is named by its module, for --train and for the note on what it stands for. */
START_TEST(chosen_by_the_name_of_its_module)
{
    static const char *const globs[] = {"a.weight", "c.weight"};
    Arena a = {0};
    Builder b;
    start(&b, 13);
    add_value(&b, &a, "x", FLOAT, "22", true);
    add_value(&b, &a, "y", FLOAT, "22", false);
    add_tensor(&b, "val_1", 2, (int64_t[]){2, 2}, table);
    add_tensor(&b, "c.weight", 1, (int64_t[]){2}, odd);
    for (int i = 0; i < 2; i++)
        add_recorded(&b, &a, "MatMul", i ? "h val_1" : "x val_1", i ? "g" : "h",
                     i ? "[target=torch.ops.aten.linear.default](args = (%h, %p_b))"
                       : "[target=torch.ops.aten.linear.default](args = (%x, %p_a))",
                     NULL);
    add_node(&b, &a, "Mul", "g c.weight", "y");
    add_signature(&b, &a,
                  "p_a: PARAMETER target='a.weight'\np_b: PARAMETER target='b.weight'\n"
                  "p_c: PARAMETER target='c.weight'\n");
    Imported r = import_file(save(&b, &a, "chosen.onnx"));
    for (int i = 0; i < 2; i++) {
        ck_assert_msg(build_graph(&r, &(OnnxOptions){.train = &globs[i], .ntrain = 1}), "%s", r.d.msg);
        ck_assert_int_eq(noted(r.m, ONNX_REMARK, "val_1", "stands for 2 more parameters"), !i);
    }
    release(&r);
    arena_free(&a);
}
END_TEST

/* TorchScript's exporter writes an Identity in place of a weight that it merged; --untie undoes that. */
START_TEST(identities_of_merged_weights)
{
    Arena a = {0};
    Builder b;
    start(&b, 13);
    add_value(&b, &a, "x", FLOAT, "88", true);
    add_value(&b, &a, "y", FLOAT, "88", false);
    add_tensor(&b, "a.weight", 1, (int64_t[]){8}, ones);
    add_node(&b, &a, "Identity", "a.weight", "b.weight");
    add_node(&b, &a, "Mul", "x a.weight", "h");
    add_node(&b, &a, "Mul", "h b.weight", "y");
    Imported r = import_file(save(&b, &a, "identity.onnx"));
    ck_assert_int_eq(params_with(&r, false), 1);
    ck_assert(noted(r.m, ONNX_REMARK, "a.weight", "stands for 1 more parameter"));
    ck_assert_int_eq(params_with(&r, true), 2);
    ck_assert_str_eq(graph_model_name(&r.g, graph_find(&r.g, "b.weight")), "b.weight");
    release(&r);
    arena_free(&a);
}
END_TEST

/* clone() in the program is an Identity, too, but no weight of its own. */
START_TEST(clones_are_no_weights)
{
    Arena a = {0};
    Builder b;
    for (int uniform = 0; uniform < 2; uniform++) {
        start(&b, 13);
        add_value(&b, &a, "x", FLOAT, "88", true);
        add_value(&b, &a, "y", FLOAT, "88", false);
        add_tensor(&b, "weight", 1, (int64_t[]){8}, uniform ? ones : odd);
        add_recorded(&b, &a, "Identity", "weight", "clone",
                     "%clone = call_function[target=torch.ops.aten.clone.default](args = (%p_weight,))",
                     NULL);
        add_node(&b, &a, "Mul", "x weight", "h");
        add_node(&b, &a, "Mul", "h clone", "y");
        Imported r = import_file(save(&b, &a, "clone.onnx"));
        ck_assert_int_eq(params_with(&r, false), 1);
        ck_assert_int_eq(params_with(&r, true), 1);
        release(&r);
    }
    arena_free(&a);
}
END_TEST

Suite *suite_merged(void)
{
    Suite *s = suite_create("merged");
    TCase *t = tcase_create("import");
    tcase_add_checked_fixture(t, make_folder, remove_folder);
    tcase_add_test(t, records_tell_parameters_apart);
    tcase_add_test(t, branch_hands_a_weight_on);
    tcase_add_test(t, bias_of_impossible_weights);
    tcase_add_test(t, saved_apart);
    tcase_add_test(t, scopes_tell_apart_what_is_uniform);
    tcase_add_test(t, one_name_is_one_weight);
    tcase_add_test(t, the_exporters_tensors_are_no_parameters);
    tcase_add_test(t, scales_of_a_resize_are_no_parameters);
    tcase_add_test(t, ones_of_a_group_norm_are_no_parameters);
    tcase_add_test(t, copies_of_one_parameter_are_tied);
    tcase_add_test(t, transposed_weights_have_their_names);
    tcase_add_test(t, repeated_parameters);
    tcase_add_test(t, merged_transposes_have_all_names);
    tcase_add_test(t, transposed_copies_are_tied_by_name);
    tcase_add_test(t, transposed_by_the_program);
    tcase_add_test(t, folded_norms_are_not_merged);
    tcase_add_test(t, chosen_by_the_name_of_its_module);
    tcase_add_test(t, identities_of_merged_weights);
    tcase_add_test(t, clones_are_no_weights);
    suite_add_tcase(s, t);
    return s;
}
