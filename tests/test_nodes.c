/* test_nodes.c -- import of single nodes.  A node that cannot be imported, or has a number out of range, is
 * refused by name, with the reason; others compute what the standard says, also at the limits of types. */
#include "tests.h"

#include <math.h>
#include <string.h>

#include "command.h"
#include "imported.h"
#include "onnx_builder.h"

#define LARGEST "9223372036854775807" /* INT64_MAX */

/* Starts a model with output y and the node y = op(in), which is returned.  The caller adds the operands, and
 * further results. */
static Onnx__NodeProto *start_op(Builder *b, Arena *a, int opset, const char *op, const char *in)
{
    start(b, opset);
    add_value(b, a, "y", FLOAT, "", false);
    return add_node(b, a, op, in, "y");
}

static void add_ints(Builder *b, Onnx__NodeProto *n, const char *name, size_t count, const int64_t *v)
{
    Onnx__AttributeProto *a = add_attr(b, n, name);
    a->n_ints = count;
    a->ints = (int64_t *)(uintptr_t)v;
}

/* Adds an initializer of 64-bit integers: a vector of `count`, or a scalar if rank is 0.  v stays in use. */
static Onnx__TensorProto *add_numbers(Builder *b, const char *name, int rank, size_t count, const int64_t *v)
{
    Onnx__TensorProto *t = add_tensor(b, name, rank, (int64_t[2]){(int64_t)count, 1}, NULL);
    t->data_type = INT64;
    t->int64_data = (int64_t *)(uintptr_t)v;
    t->n_int64_data = count;
    return t;
}

static void refused(Builder *b, Arena *a, const char *part)
{
    Imported r = import_file(save(b, a, "nodes.onnx"));
    ck_assert_msg(r.ok, "%s", r.d.msg);
    ck_assert_msg(!build_graph(&r, &(OnnxOptions){0}), "%s: accepted", part);
    ck_assert_msg(strstr(r.d.msg, "node 'node") && strstr(r.d.msg, part), "%s: %s", part, r.d.msg);
    release(&r);
}

/* Checks that the import computes the first output: a constant of these `count` integers. */
static void computed(Builder *b, Arena *a, int count, const int64_t *want)
{
    Imported r = import_file(save(b, a, "nodes.onnx"));
    ck_assert_msg(r.ok && build_graph(&r, &(OnnxOptions){0}), "%s", r.d.msg);
    Tensor t = graph_tensor(&r.g, r.g.out[0]);
    ck_assert_int_eq(type_count(&t.type), count);
    for (int i = 0; i < count; i++)
        ck_assert_int_eq(tensor_i(&t, i), want[i]);
    release(&r);
}

static void add_text(Builder *b, Onnx__NodeProto *n, const char *name, const char *text)
{
    Onnx__AttributeProto *a = add_attr(b, n, name);
    a->has_s = true;
    a->s = (ProtobufCBinaryData){strlen(text), (uint8_t *)(uintptr_t)text};
}

/* Checks that output k has these `count` floats, which may be NaN, if input x has this type and data. */
static void computed_of(Builder *b, Arena *a, Type x, const float *data, int k, int count, const double *want)
{
    OnnxFeed feed = {"x", {x, (void *)(uintptr_t)data}};
    Imported r = import_file(save(b, a, "nodes.onnx"));
    ck_assert_msg(r.ok && build_graph(&r, &(OnnxOptions){.forward_only = true, .feed = &feed, .nfeed = 1}),
                  "%s", r.d.msg);
    Val y = r.g.out[k];
    void **value = NEW(a, void *, r.g.nvals);
    ck_assert_msg(graph_eval(&r.g, value, a, &r.d), "%s", r.d.msg);
    Tensor t = {*val_type(&r.g, y), graph_is_const(&r.g, y) ? graph_tensor(&r.g, y).data : value[y.i]};
    ck_assert_int_eq(type_count(&t.type), count);
    for (int i = 0; i < count; i++)
        ck_assert_msg(isnan(want[i]) ? isnan(tensor_f(&t, i)) : tensor_f(&t, i) == want[i],
                      "element %d is %g, not %g", i, tensor_f(&t, i), want[i]);
    release(&r);
}

/* ---- results ------------------------------------------------------------ */

START_TEST(nodes_have_results)
{
    Arena a = {0};
    Builder b;
    static const int64_t shape[] = {2};
    static float w[] = {1, 2};
    static const char *const op[] = {"Split", "Identity", "ConstantOfShape"};
    for (int k = 0; k < 3; k++) {
        start_op(&b, &a, 17, "Relu", "x");
        add_value(&b, &a, "x", FLOAT, "2", true);
        add_numbers(&b, "s", 1, 1, shape);
        add_tensor(&b, "w", 1, shape, w);
        Onnx__NodeProto *n = add_node(&b, &a, op[k], k == 2 ? "s" : "w", "z");
        n->n_output = 0;
        refused(&b, &a, "it has no results");
    }
    arena_free(&a);
}
END_TEST

/* Starts a model whose Loop runs no iteration, so that its stacked result has the element type and the
 * dimensions that the body declares for z: these. */
static void start_empty_loop(Builder *b, Arena *a, Builder *body, int type, const char *dims)
{
    static const int64_t none[] = {0};
    start(body, 17);
    add_value(body, a, "i", INT64, "", true);
    add_value(body, a, "go", 9, "", true);
    add_value(body, a, "go", 9, "", false);
    add_value(body, a, "z", type, dims, false);
    add_node(body, a, "Identity", "x", "z");
    Onnx__NodeProto *n = start_op(b, a, 17, "Loop", "trips _");
    add_value(b, a, "x", FLOAT, "2", true);
    add_numbers(b, "trips", 0, 1, none);
    add_attr(b, n, "body")->g = &body->graph;
}

START_TEST(loops_that_never_run)
{
    Arena a = {0};
    Builder b, body;
    start_empty_loop(&b, &a, &body, INT64, "2");
    computed(&b, &a, 0, NULL);
    static const char why[] = "its result has no declared shape";
    start_empty_loop(&b, &a, &body, FLOAT, "N");
    refused(&b, &a, why);
    start_empty_loop(&b, &a, &body, FLOAT, "2");
    body.dim[3][0].dim_value = -5;
    refused(&b, &a, why);
    start_empty_loop(&b, &a, &body, FLOAT, "22");
    body.dim[3][0].dim_value = body.dim[3][1].dim_value = (int64_t)1 << 39;
    refused(&b, &a, why);
    start_empty_loop(&b, &a, &body, 8, "2");
    refused(&b, &a, why);
    arena_free(&a);
}
END_TEST

/* ---- attributes --------------------------------------------------------- */

/* A node that is refused.  in: its operands, of x, w and o, which are floats of these dimensions (one digit
 * each; w of MaxUnpool: integers), and of the constants s = [3 3] and t = [2 2].  Attribute attr is a list of
 * the n numbers v, a single number if n is 1, absent if n is 0; attribute `one` is 1, or absent if NULL. */
typedef struct {
    int opset;
    const char *op, *in, *x, *w, *o, *one, *attr;
    int n;
    int64_t v[18];
    const char *part; /* text in the message */
} Case;

static void attribute_refused(const Case *c)
{
    Arena a = {0};
    Builder b;
    static const int64_t three[] = {3, 3}, two[] = {2, 2};
    bool unpool = strcmp(c->op, "MaxUnpool") == 0;
    Onnx__NodeProto *n = start_op(&b, &a, c->opset, c->op, c->in);
    add_value(&b, &a, "x", FLOAT, c->x, true);
    if (c->w)
        add_value(&b, &a, "w", unpool ? INT64 : FLOAT, c->w, true);
    if (c->o)
        add_value(&b, &a, "o", FLOAT, c->o, true);
    add_numbers(&b, "s", 1, 2, three);
    add_numbers(&b, "t", 1, 2, two);
    if (unpool)
        add_ints(&b, n, "kernel_shape", 2, two);
    if (c->one)
        add_int(&b, n, c->one, 1);
    if (c->n > 1)
        add_ints(&b, n, c->attr, (size_t)c->n, c->v);
    else if (c->n == 1)
        add_int(&b, n, c->attr, c->v[0]);
    refused(&b, &a, c->part);
    arena_free(&a);
}

START_TEST(attributes_have_ranges)
{
    static const Case all[] = {
        {17, "ConvTranspose", "x w", "1133", "1922", 0, 0, "group", 1, {INT64_MAX},
         "attribute 'group' is " LARGEST ", not 1 to 1"},
        {17, "ConvTranspose", "x w", "1133", "1122", 0, 0, "strides", 2, {INT64_MAX, 1},
         "attribute 'strides' has " LARGEST ", not 1 to 4194304"},
        {17, "ConvTranspose", "x w", "1133", "1122", 0, 0, "output_padding", 2, {1, INT64_MAX},
         "attribute 'output_padding' has " LARGEST ", not 0 to"},
        {17, "ConvTranspose", "x w", "1133", "1122", 0, 0, "output_padding", 3, {1, 1, 1},
         "attribute 'output_padding' has 3 numbers, not 2"},
        {17, "ConvTranspose", "x w", "1133", "1122", 0, 0, "output_shape", 2, {INT64_MIN, 1},
         "attribute 'output_shape' has -9223372036854775808, not 0 to"},
        {17, "Conv", "x w", "1133", "1122", 0, 0, "dilations", 2, {INT64_MAX, 1},
         "attribute 'dilations' has " LARGEST ", not 1 to"},
        {19, "DeformConv", "x w o", "1133", "1122", "1822", 0, "strides", 2, {INT64_MAX, 1},
         "attribute 'strides' has " LARGEST ", not 1 to"},
        {19, "DeformConv", "x w o", "1133", "1122", "1822", 0, "pads", 4, {INT64_MIN, 0, 0, 0},
         "attribute 'pads' has -9223372036854775808, not"},
        {19, "DeformConv", "x w o", "1133", "1922", "1822", 0, "group", 1, {INT64_MAX},
         "attribute 'group' is " LARGEST ", not 1 to 1"},
        {18, "Col2Im", "x s t", "144", 0, 0, 0, "dilations", 2, {INT64_MAX, 1},
         "attribute 'dilations' has " LARGEST ", not 1 to"},
        {18, "Col2Im", "x s t", "144", 0, 0, 0, "pads", 4, {INT64_MAX, 0, 1, 0},
         "attribute 'pads' has " LARGEST ", not 0 to"},
        {18, "Col2Im", "x s t", "144", 0, 0, 0, "pads", 2, {0, 0},
         "attribute 'pads' has 2 numbers, not 4"},
        {17, "MaxUnpool", "x w", "1122", "1122", 0, 0, "strides", 2, {INT64_MAX, 1},
         "attribute 'strides' has " LARGEST ", not 1 to"},
        {17, "MaxUnpool", "x w", "1122", "1122", 0, 0, "pads", 4, {INT64_MAX, 0, 1, 0},
         "attribute 'pads' has " LARGEST ", not"},
        {6, "Add", "x w", "23", "3", 0, "broadcast", "axis", 1, {(int64_t)1 << 31},
         "attribute 'axis' is 2147483648, not -8 to 2"},
        {21, "GroupNormalization", "x w w", "303", "0", 0, 0, "num_groups", 1, {INT64_MAX},
         "attribute 'num_groups' is " LARGEST ", not 1 to"},
        {24, "RotaryEmbedding", "x w w", "2332", "231", 0, 0, "rotary_embedding_dim", 1, {-2},
         "attribute 'rotary_embedding_dim' is -2, not 0 to 2"},
        {21, "DequantizeLinear", "x w", "22", "22", 0, 0, "block_size", 1, {INT64_MAX},
         "attribute 'block_size' is " LARGEST ", not 0 to"},
        {17, "Multinomial", "x", "22", 0, 0, 0, "sample_size", 1, {INT64_MIN},
         "attribute 'sample_size' is -9223372036854775808, not 1 to"},
        {13, "Cast", "x", "2", 0, 0, 0, "to", 1, {((int64_t)1 << 32) + 1},
         "attribute 'to' is 4294967297: element type unknown is not supported"},
        {17, "Bernoulli", "x", "2", 0, 0, 0, "dtype", 1, {99},
         "attribute 'dtype' is 99: element type unknown is not supported"},
        {17, "EyeLike", "x", "22", 0, 0, 0, "dtype", 1, {8}, "attribute 'dtype' is 8: element type string"},
        {17, "Flatten", "x", "23", 0, 0, 0, "axis", 1, {3}, "axis 3 is outside rank 2"},
        {17, "Flatten", "x", "23", 0, 0, 0, "axis", 1, {-3}, "axis -3 is outside rank 2"},
        {17, "Transpose", "x", "23", 0, 0, 0, "perm", 17, {1, 0},
         "attribute 'perm' has 17 numbers, at most 16 are supported"},
        {11, "ReduceSum", "x", "23", 0, 0, 0, "axes", 17, {0},
         "attribute 'axes' has 17 numbers, at most 16 are supported"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        attribute_refused(&all[i]);
}
END_TEST

START_TEST(attributes_that_are_needed)
{
    static const Case all[] = {
        {10, "Pad", "x", "23", 0, 0, 0, 0, 0, {0}, "attribute 'pads' is missing"},
        {1, "Pad", "x", "23", 0, 0, 0, 0, 0, {0}, "attribute 'paddings' is missing"},
        {4, "Reshape", "x", "23", 0, 0, 0, 0, 0, {0}, "attribute 'shape' is missing"},
        {11, "Unsqueeze", "x", "23", 0, 0, 0, 0, 0, {0}, "attribute 'axes' is missing"},
        {9, "Slice", "x", "23", 0, 0, 0, 0, 0, {0}, "attribute 'starts' is missing"},
        {9, "TopK", "x", "23", 0, 0, 0, 0, 0, {0}, "attribute 'k' is missing"},
        {7, "Upsample", "x", "1133", 0, 0, 0, 0, 0, {0}, "attribute 'scales' is missing"},
        {17, "Concat", "x x", "23", 0, 0, 0, 0, 0, {0}, "attribute 'axis' is missing"},
        {17, "Cast", "x", "23", 0, 0, 0, 0, 0, {0}, "attribute 'to' is missing"},
        {17, "MaxPool", "x", "1133", 0, 0, 0, 0, 0, {0}, "attribute 'kernel_shape' is missing"},
        {17, "MaxRoiPool", "x w", "1133", "15", 0, 0, 0, 0, {0}, "attribute 'pooled_shape' is missing"},
        {17, "LRN", "x", "1133", 0, 0, 0, 0, 0, {0}, "attribute 'size' is missing"},
        {17, "RandomNormal", "", "2", 0, 0, 0, 0, 0, {0}, "attribute 'shape' is missing"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        attribute_refused(&all[i]);
}
END_TEST

/* ---- operands ----------------------------------------------------------- */

START_TEST(ranges_across_all_integers)
{
    static const int64_t start[] = {INT64_MIN}, limit[] = {INT64_MAX}, step[] = {(int64_t)1 << 62};
    Arena a = {0};
    Builder b;
    start_op(&b, &a, 17, "Range", "from to by");
    add_numbers(&b, "from", 0, 1, start);
    add_numbers(&b, "to", 0, 1, limit);
    add_numbers(&b, "by", 0, 1, step);
    computed(&b, &a, 4, (int64_t[]){INT64_MIN, -step[0], 0, step[0]});
    arena_free(&a);
}
END_TEST

/* Of one element a slice may have any step. */
START_TEST(a_step_beyond_the_end)
{
    static const int64_t x[] = {4, 5, 6}, from[] = {1}, to[] = {3}, by[] = {INT64_MAX};
    Arena a = {0};
    Builder b;
    start_op(&b, &a, 17, "Slice", "x from to axis by");
    add_numbers(&b, "x", 1, 3, x);
    add_numbers(&b, "from", 1, 1, from);
    add_numbers(&b, "to", 1, 1, to);
    add_numbers(&b, "axis", 1, 1, (int64_t[]){0});
    add_numbers(&b, "by", 1, 1, by);
    computed(&b, &a, 1, (int64_t[]){5});
    arena_free(&a);
}
END_TEST

/* An index that is known has to be one into its own dimension. */
START_TEST(indices_outside)
{
    static const struct {
        const char *op, *in;
        int64_t index[2];
        bool inside;
    } of[] = {
        {"GatherND", "x i", {1, 2}, true},
        {"GatherND", "x i", {-2, -3}, true},
        {"GatherND", "x i", {2, 1}, false},
        {"ScatterND", "x i u", {1, 3}, false},
        {"GatherElements", "x row", {2, 0}, true},
        {"GatherElements", "x row", {0, -4}, false},
        {"ScatterElements", "x row row", {3, 0}, false},
    };
    static const int64_t x[6] = {0};
    Arena a = {0};
    Builder b;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        Onnx__NodeProto *n = start_op(&b, &a, 18, of[i].op, of[i].in);
        if (strstr(of[i].op, "Elements"))
            add_int(&b, n, "axis", 1);
        add_numbers(&b, "x", 2, 6, x)->dims = (int64_t[]){2, 3};
        add_numbers(&b, "i", 1, 2, of[i].index);
        add_numbers(&b, "u", 0, 1, x);
        add_numbers(&b, "row", 2, 2, of[i].index)->dims = (int64_t[]){1, 2};
        if (!of[i].inside)
            refused(&b, &a, " is outside ");
        else
            computed(&b, &a, of[i].in[2] == 'r' ? 2 : 1, x);
    }
    static float table[4];
    start_op(&b, &a, 23, "RotaryEmbedding", "q c c i");
    add_value(&b, &a, "q", FLOAT, "1124", true);
    add_tensor(&b, "c", 2, (int64_t[]){2, 2}, table);
    add_numbers(&b, "i", 2, 2, (int64_t[]){1, 2})->dims = (int64_t[]){1, 2};
    refused(&b, &a, "index 2 is outside 2");
    arena_free(&a);
}
END_TEST

START_TEST(ratios_of_dropout)
{
    static float ratio[] = {-0.5f, 2, NAN};
    Arena a = {0};
    Builder b;
    for (size_t i = 0; i < sizeof ratio / sizeof *ratio; i++) {
        start_op(&b, &a, 13, "Dropout", "x r");
        add_value(&b, &a, "x", FLOAT, "2", true);
        add_tensor(&b, "r", 0, NULL, &ratio[i]);
        refused(&b, &a, " is not 0 to 1");
    }
    arena_free(&a);
}
END_TEST

enum { UINT32 = 12 };

static void add_unsigned(Builder *b, const char *name, int rank, size_t count, const int64_t *v)
{
    Onnx__TensorProto *t = add_tensor(b, name, rank, (int64_t[]){(int64_t)count}, NULL);
    t->data_type = UINT32;
    t->uint64_data = (uint64_t *)(uintptr_t)v;
    t->n_uint64_data = count;
}

/* Unsigned 32-bit integers wrap around at 32 bits; powers of 64-bit integers are exact modulo 2^64. */
START_TEST(integers_wrap_around)
{
    static const int64_t x[] = {UINT32_MAX, 65536, 3}, i[] = {0, 0, 0};
    static const int64_t two[] = {2}, large[] = {-39}, few[] = {39};
    static const struct {
        const char *op, *in;
        int count;
        int64_t want[3];
    } of[] = {
        {"Pow", "x two", 3, {1, 0, 9}},
        {"Pow", "large few", 1, {8795647696940200745}}, /* -39^39 modulo 2^64 */
        {"Pow", "large large", 1, {0}},
        {"ReduceSum", "x", 1, {65538}},
        {"ReduceL1", "x", 1, {65538}},
        {"ReduceSumSquare", "x", 1, {10}},
        {"ReduceProd", "x", 1, {UINT32_MAX - 3 * 65536 + 1}},
        {"CumSum", "x zero", 3, {UINT32_MAX, 65535, 65538}},
        {"ScatterElements", "x i x", 3, {65537, 65536, 3}},
        {"MatMul", "tail tail", 1, {9}},
    };
    Arena a = {0};
    Builder b;
    for (size_t k = 0; k < sizeof of / sizeof *of; k++) {
        add_text(&b, start_op(&b, &a, 18, of[k].op, of[k].in), "reduction", "add");
        add_unsigned(&b, "x", 1, 3, x);
        add_unsigned(&b, "tail", 1, 2, x + 1);
        add_unsigned(&b, "two", 0, 1, two);
        add_numbers(&b, "i", 1, 3, i);
        add_numbers(&b, "zero", 0, 1, i);
        add_numbers(&b, "large", 1, 1, large);
        add_numbers(&b, "few", 1, 1, few);
        computed(&b, &a, of[k].count, of[k].want);
    }
    arena_free(&a);
}
END_TEST

/* Results of OneHot and EyeLike, whose type another operand or an attribute decides, do not wrap around as
 * the first operand's unsigned type does: -1 stays -1. */
START_TEST(types_of_their_own)
{
    static const int64_t x[] = {1}, ends[] = {0, 1}, depth[] = {2}, shape[] = {1, 1};
    Arena a = {0};
    Builder b;
    start_op(&b, &a, 18, "Neg", "hot");
    add_node(&b, &a, "OneHot", "x depth ends", "hot");
    add_unsigned(&b, "x", 1, 1, x);
    add_numbers(&b, "depth", 0, 1, depth);
    add_numbers(&b, "ends", 1, 2, ends);
    computed(&b, &a, 2, (int64_t[]){0, -1});
    start_op(&b, &a, 18, "Neg", "eye");
    add_int(&b, add_node(&b, &a, "EyeLike", "square", "eye"), "dtype", INT64);
    add_node(&b, &a, "Reshape", "x shape", "square");
    add_unsigned(&b, "x", 1, 1, x);
    add_numbers(&b, "shape", 1, 2, shape);
    computed(&b, &a, 1, (int64_t[]){-1});
    arena_free(&a);
}
END_TEST

/* Results that are filled with, split from, joined from or scanned from unsigned 32-bit elements have that
 * type as well: they wrap around at 32 bits. */
START_TEST(narrow_types_of_results)
{
    static const int64_t x[] = {0x80000001, 0x40000001}, two[] = {2}, zero[] = {0};
    Arena a = {0};
    Builder b, body;
    start_op(&b, &a, 18, "Mul", "filled x");
    Onnx__TensorProto fill;
    onnx__tensor_proto__init(&fill);
    fill.has_data_type = true;
    fill.data_type = UINT32;
    fill.n_uint64_data = fill.n_dims = 1;
    fill.uint64_data = (uint64_t[]){4};
    fill.dims = (int64_t[]){1};
    add_attr(&b, add_node(&b, &a, "ConstantOfShape", "shape", "filled"), "value")->t = &fill;
    add_numbers(&b, "shape", 1, 1, two);
    add_unsigned(&b, "x", 1, 2, x);
    computed(&b, &a, 2, (int64_t[]){4, 4});
    start_op(&b, &a, 18, "Add", "part part");
    add_node(&b, &a, "SequenceAt", "parts at", "part");
    add_node(&b, &a, "SplitToSequence", "x", "parts");
    add_numbers(&b, "at", 0, 1, zero);
    add_unsigned(&b, "x", 1, 2, x);
    computed(&b, &a, 1, (int64_t[]){2});
    start_op(&b, &a, 18, "Add", "all all");
    add_node(&b, &a, "ConcatFromSequence", "parts", "all");
    add_node(&b, &a, "SplitToSequence", "x", "parts");
    add_unsigned(&b, "x", 1, 2, x);
    computed(&b, &a, 2, (int64_t[]){2, 0x80000002});
    start(&body, 18);
    add_value(&body, &a, "e", UINT32, "", true);
    add_value(&body, &a, "sum", UINT32, "", false);
    add_node(&body, &a, "Add", "e e", "sum");
    start_op(&b, &a, 18, "Add", "sums sums");
    Onnx__NodeProto *scan = add_node(&b, &a, "Scan", "x", "sums");
    add_int(&b, scan, "num_scan_inputs", 1);
    add_attr(&b, scan, "body")->g = &body.graph;
    add_unsigned(&b, "x", 1, 2, x);
    computed(&b, &a, 2, (int64_t[]){4, 4});
    arena_free(&a);
}
END_TEST

/* QuantizeLinear takes a vector in blocks, and a scalar with a vector of one scale; DequantizeLinear gives
 * the type output_dtype, even if it is not the scale's. */
START_TEST(scales_of_quantization)
{
    static float x[] = {1, 2, 3, 4}, s[] = {0.5f, 0.25f};
    Arena a = {0};
    Builder b;
    for (int i = 0; i < 2; i++) {
        Onnx__NodeProto *n = start_op(&b, &a, 21, "QuantizeLinear", "x s");
        add_int(&b, n, "axis", 0);
        add_int(&b, n, "block_size", i ? 0 : 2);
        add_tensor(&b, "x", i ? 0 : 1, (int64_t[]){4}, x);
        add_tensor(&b, "s", 1, (int64_t[]){i ? 1 : 2}, s);
        Imported r = import_file(save(&b, &a, "nodes.onnx"));
        ck_assert_msg(r.ok && build_graph(&r, &(OnnxOptions){.forward_only = true}), "%s", r.d.msg);
        ck_assert_int_eq(val_type(&r.g, r.g.out[0])->rank, i ? 0 : 1);
        release(&r);
    }
    Onnx__NodeProto *n = start_op(&b, &a, 23, "DequantizeLinear", "x s");
    add_int(&b, n, "output_dtype", 10);
    add_value(&b, &a, "x", 2, "4", true);
    add_tensor(&b, "s", 0, NULL, s);
    Imported r = import_file(save(&b, &a, "nodes.onnx"));
    ck_assert_msg(r.ok && build_graph(&r, &(OnnxOptions){.forward_only = true}), "%s", r.d.msg);
    ck_assert_int_eq(val_type(&r.g, r.g.out[0])->dt, DT_F16);
    release(&r);
    arena_free(&a);
}
END_TEST

/* Clip with infinite or NaN bounds computes what the standard's text says: Min(max, Max(x, min)). */
START_TEST(bounds_that_are_not_finite)
{
    static const float x[] = {-2, 2};
    static const struct {
        float bound[2];
        double y[2];
    } of[] = {
        {{INFINITY, INFINITY}, {INFINITY, INFINITY}},
        {{-INFINITY, -INFINITY}, {-INFINITY, -INFINITY}},
        {{-INFINITY, INFINITY}, {-2, 2}},
        {{NAN, INFINITY}, {NAN, NAN}},
    };
    Arena a = {0};
    Builder b;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        start_op(&b, &a, 13, "Clip", "x low high");
        add_value(&b, &a, "x", FLOAT, "2", true);
        add_tensor(&b, "low", 0, NULL, (float *)(uintptr_t)&of[i].bound[0]);
        add_tensor(&b, "high", 0, NULL, (float *)(uintptr_t)&of[i].bound[1]);
        computed_of(&b, &a, type_make(DT_F32, 1, (int64_t[]){2}), x, 0, 2, of[i].y);
    }
    arena_free(&a);
}
END_TEST

/* A recurrence over a sequence of length 0 returns its initial state and an empty stacked result. */
START_TEST(recurrence_over_no_time)
{
    static float w[4 * 2] = {1}, r[4] = {1}, h[] = {3};
    Arena a = {0};
    Builder b;
    for (int i = 0; i < 3; i++) {
        start_op(&b, &a, 14, (const char *[]){"RNN", "GRU", "LSTM"}[i], "x w r _ _ h");
        b.result[0][1] = (char *)"state";
        b.node[0].n_output = 2;
        add_value(&b, &a, "state", FLOAT, "", false);
        add_value(&b, &a, "x", FLOAT, "012", true);
        int64_t gates = (int64_t[]){1, 3, 4}[i];
        add_tensor(&b, "w", 3, (int64_t[]){1, gates, 2}, w);
        add_tensor(&b, "r", 3, (int64_t[]){1, gates, 1}, r);
        add_tensor(&b, "h", 3, (int64_t[]){1, 1, 1}, h);
        const Type none = type_make(DT_F32, 3, (int64_t[]){0, 1, 2});
        computed_of(&b, &a, none, w, 0, 0, NULL);
        computed_of(&b, &a, none, w, 1, 1, (double[]){3});
    }
    arena_free(&a);
}
END_TEST

/* Resize divides positions by a scale in single precision, as onnxruntime and PyTorch do, so that 3 / 0.6f is
 * 5.  A scale may leave an empty dimension. */
START_TEST(scales_of_an_image)
{
    static const float x[10] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    static float scale[][2] = {{1, 0.6f}, {1, 0.05f}};
    Arena a = {0};
    Builder b;
    for (int i = 0; i < 2; i++) {
        Onnx__NodeProto *n = start_op(&b, &a, 18, "Resize", "x _ s");
        add_value(&b, &a, "x", FLOAT, "AB", true);
        add_tensor(&b, "s", 1, (int64_t[]){2}, scale[i]);
        add_text(&b, n, "mode", "nearest");
        add_text(&b, n, "nearest_mode", "floor");
        add_text(&b, n, "coordinate_transformation_mode", "asymmetric");
        computed_of(&b, &a, type_make(DT_F32, 2, (int64_t[]){1, 10}), x, 0, i ? 0 : 6,
                    (double[]){0, 1, 3, 5, 6, 8});
    }
    arena_free(&a);
}
END_TEST

/* With half_pixel_symmetric positions are computed in double precision, as in examples of the standard: the
 * second of three is at 4.5, or just below. */
START_TEST(symmetric_half_pixels)
{
    static const float x[10] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    static float scale[2] = {1, 0.3f};
    Arena a = {0};
    Builder b;
    Onnx__NodeProto *n = start_op(&b, &a, 19, "Resize", "x _ s");
    add_value(&b, &a, "x", FLOAT, "AB", true);
    add_tensor(&b, "s", 1, (int64_t[]){2}, scale);
    add_text(&b, n, "mode", "nearest");
    add_text(&b, n, "nearest_mode", "round_prefer_floor");
    add_text(&b, n, "coordinate_transformation_mode", "half_pixel_symmetric");
    computed_of(&b, &a, type_make(DT_F32, 2, (int64_t[]){1, 10}), x, 0, 3, (double[]){1, 4, 8});
    arena_free(&a);
}
END_TEST

START_TEST(attention_with_rotary_embedding)
{
    static float w[3] = {1};
    Arena a = {0};
    Builder b;
    Onnx__NodeProto *n = start_op(&b, &a, 17, "Attention", "x w");
    n->domain = (char *)"com.microsoft";
    add_int(&b, n, "num_heads", 1);
    add_int(&b, n, "do_rotary", 1);
    add_value(&b, &a, "x", FLOAT, "121", true);
    add_tensor(&b, "w", 2, (int64_t[]){1, 3}, w);
    refused(&b, &a, "rotary embedding");
    arena_free(&a);
}
END_TEST

/* Statistics of SkipLayerNormalization, which nothing computes, may be named, but are no outputs. */
START_TEST(statistics_of_a_skip_norm)
{
    static float one[2] = {1, 1}, x[2] = {1, 3};
    Arena a = {0};
    Builder b;
    start(&b, 17);
    add_value(&b, &a, "x", FLOAT, "112", true);
    add_tensor(&b, "scale", 1, (int64_t[]){2}, one)->n_float_data = 2;
    Onnx__NodeProto *n = add_node(&b, &a, "SkipLayerNormalization", "x x scale", "h mean scales sum");
    n->domain = (char *)"com.microsoft";
    add_value(&b, &a, _i ? "scales" : "sum", FLOAT, "", false);
    if (_i)
        refused(&b, &a, "(SkipLayerNormalization) that its importer does not compute");
    else
        computed_of(&b, &a, type_make(DT_F32, 3, (int64_t[]){1, 1, 2}), x, 0, 2, (double[]){2, 6});
    arena_free(&a);
}
END_TEST

/* Resize with sizes and a kept aspect ratio refuses an image with an empty dimension, which has no scale. */
START_TEST(extents_of_an_empty_image)
{
    static const int64_t sizes[] = {0, 1, 3, 3};
    Arena a = {0};
    Builder b;
    Onnx__NodeProto *n = start_op(&b, &a, 18, "Resize", "x _ _ sizes");
    add_value(&b, &a, "x", FLOAT, "0133", true);
    add_numbers(&b, "sizes", 1, 4, sizes);
    add_text(&b, n, "keep_aspect_ratio_policy", "not_larger");
    refused(&b, &a, "dimension 0 is empty");
    arena_free(&a);
}
END_TEST

/* SplitToSequence with a part size above the number of elements makes one part; part sizes that together are
 * more than the elements are refused. */
START_TEST(parts_of_a_sequence)
{
    static const int64_t one[] = {INT64_MAX}, two[] = {1, INT64_MAX};
    Arena a = {0};
    Builder b;
    start_op(&b, &a, 17, "SequenceLength", "parts");
    add_node(&b, &a, "SplitToSequence", "x size", "parts");
    add_value(&b, &a, "x", FLOAT, "4", true);
    add_numbers(&b, "size", 0, 1, one);
    computed(&b, &a, 1, (int64_t[]){1});
    start_op(&b, &a, 17, "SequenceLength", "parts");
    add_node(&b, &a, "SplitToSequence", "x size", "parts");
    add_value(&b, &a, "x", FLOAT, "4", true);
    add_numbers(&b, "size", 1, 2, two);
    refused(&b, &a, "parts do not fit 4 elements");
    arena_free(&a);
}
END_TEST

Suite *suite_nodes(void)
{
    Suite *s = suite_create("nodes");
    TCase *t = tcase_create("nodes");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, make_folder, remove_folder);
    tcase_add_test(t, nodes_have_results);
    tcase_add_test(t, loops_that_never_run);
    tcase_add_test(t, attributes_have_ranges);
    tcase_add_test(t, attributes_that_are_needed);
    tcase_add_test(t, ranges_across_all_integers);
    tcase_add_test(t, a_step_beyond_the_end);
    tcase_add_test(t, indices_outside);
    tcase_add_test(t, ratios_of_dropout);
    tcase_add_test(t, integers_wrap_around);
    tcase_add_test(t, types_of_their_own);
    tcase_add_test(t, narrow_types_of_results);
    tcase_add_test(t, scales_of_quantization);
    tcase_add_test(t, bounds_that_are_not_finite);
    tcase_add_test(t, recurrence_over_no_time);
    tcase_add_test(t, scales_of_an_image);
    tcase_add_test(t, symmetric_half_pixels);
    tcase_add_test(t, attention_with_rotary_embedding);
    tcase_add_loop_test(t, statistics_of_a_skip_norm, 0, 2);
    tcase_add_test(t, extents_of_an_empty_image);
    tcase_add_test(t, parts_of_a_sequence);
    suite_add_tcase(s, t);
    return s;
}
