/* test_onednn.c -- every choice of algorithm for products and convolutions agrees with plain loops in double
 * precision and gives the same bits on every run; parts, blocks, and choices that a plan may exchange for
 * each other do not change them. */
#include "lib_cases.h"
#include "lib_reference.h"
#include "op_samples_int.h"
#include "step.h"
#include "tests.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cpu/cpu.h"
#include "runtime/cpu/onednn.h"

/* ---- cases ------------------------------------------------------------------------ */

static const LibCase cases[] = {
    {.op = LIB_MATMUL, .dt = DT_F32, .ra = 2, .rb = 2, .a = {7, 13}, .b = {13, 5}},
    {.op = LIB_MATMUL, .dt = DT_F32, .tb = true, .ra = 2, .rb = 2, .a = {64, 48}, .b = {80, 48}},
    {.op = LIB_MATMUL, .dt = DT_F32, .ta = true, .ra = 2, .rb = 2, .a = {48, 64}, .b = {48, 33}},
    {.op = LIB_MATMUL, .dt = DT_F32, .ra = 3, .rb = 2, .a = {3, 7, 16}, .b = {16, 9}},
    {.op = LIB_MATMUL, .dt = DT_F32, .ta = true, .ra = 3, .rb = 2, .a = {3, 16, 7}, .b = {16, 9}},
    {.op = LIB_MATMUL, .dt = DT_F32, .ra = 2, .rb = 3, .a = {7, 16}, .b = {3, 16, 9}},
    {.op = LIB_MATMUL, .dt = DT_F32, .tb = true, .ra = 4, .rb = 4, .a = {2, 3, 16, 8}, .b = {2, 3, 16, 8}},
    {.op = LIB_MATMUL, .dt = DT_F32, .ta = true, .ra = 4, .rb = 4, .a = {2, 1, 16, 8}, .b = {1, 3, 16, 5}},
    {.op = LIB_MATMUL, .dt = DT_F32, .ra = 4, .rb = 3, .a = {2, 3, 16, 8}, .b = {3, 8, 5}},
    {.op = LIB_MATMUL, .dt = DT_F32, .ra = 2, .rb = 2, .a = {1, 40}, .b = {40, 1}},
    {.op = LIB_MATMUL, .dt = DT_BF16, .ra = 2, .rb = 2, .a = {32, 64}, .b = {64, 48}},
    {.op = LIB_MATMUL, .dt = DT_BF16, .ra = 2, .rb = 2, .a = {13, 700}, .b = {700, 70}},
    {.op = LIB_MATMUL, .dt = DT_BF16, .ta = true, .ra = 2, .rb = 2, .a = {75, 29}, .b = {75, 64}},
    {.op = LIB_MATMUL, .dt = DT_BF16, .ra = 3, .rb = 3, .a = {3, 7, 9}, .b = {3, 9, 33}},
    {.op = LIB_MATMUL,
     .dt = DT_BF16,
     .out_dt = DT_F32,
     .tb = true,
     .ra = 3,
     .rb = 3,
     .a = {2, 17, 40},
     .b = {2, 19, 40}},
    {CONV(DT_F32, 4), .a = {2, 3, 9, 8}, .b = {5, 3, 3, 3}, .pads = {1, 1, 1, 1}, .bias = true},
    {CONV(DT_F32, 4), .a = {2, 16, 14, 14}, .b = {32, 16, 3, 3}, .pads = {1, 1, 1, 1}},
    {CONV(DT_F32, 4), .a = {3, 13, 31, 22}, .b = {29, 13, 3, 3}, .pads = {0, 2, 2, 0},
     .bias = true}, /* Winograd: tiles cross all edges; more tiles than a block, more rows than a group */
    {CONV(DT_F32, 4), .a = {2, 4, 10, 11}, .b = {6, 2, 3, 2}, .group = 2, .strides = {2, 1},
     .pads = {0, 1, 2, 0}, .dilations = {1, 2}},
    {CONV(DT_F32, 4), .a = {2, 8, 10, 10}, .b = {8, 1, 3, 3}, .group = 8, .strides = {2, 2},
     .pads = {1, 1, 1, 1}},
    {CONV(DT_F32, 4), .a = {2, 4, 37, 21}, .b = {8, 1, 7, 5}, .group = 4, .pads = {3, 0, 2, 4},
     .dilations = {2, 3}}, /* two results per channel, more rows than a band */
    {CONV(DT_F32, 4), .a = {3, 5, 40, 38}, .b = {5, 1, 2, 3}, .group = 5, .strides = {1, 3},
     .pads = {0, 4, 0, 2}, .dilations = {1, 2}},
    {CONV(DT_F32, 3), .a = {3, 6, 50}, .b = {6, 1, 4}, .group = 6, .strides = {2}, .pads = {3, 1}},
    {CONV(DT_BF16, 4), .a = {2, 16, 9, 19}, .b = {16, 1, 3, 3}, .group = 16, .pads = {1, 1, 1, 1}},
    {CONV(DT_F32, 3), .a = {2, 4, 20}, .b = {6, 4, 5}, .strides = {3}, .pads = {2, 2}, .bias = true},
    {CONV(DT_F32, 4), .a = {1, 16, 6, 6}, .b = {16, 16, 1, 1}, .strides = {2, 2}},
    {CONV(DT_BF16, 4), .a = {2, 16, 9, 9}, .b = {16, 16, 3, 3}, .pads = {1, 1, 1, 1}, .bias = true},
    {CONV(DT_BF16, 4), .out_dt = DT_F32, .a = {2, 16, 9, 14}, .b = {32, 16, 3, 3}, .pads = {1, 1, 1, 1}},
    {CONV(DT_BF16, 4), .out_dt = DT_F32, .a = {2, 16, 7, 8}, .b = {40, 16, 1, 1}},
    /* images with so few positions that a panel has those of several images */
    {CONV(DT_F32, 4), .a = {5, 33, 7, 7}, .b = {30, 33, 3, 3}},
    {CONV(DT_BF16, 4), .a = {5, 70, 7, 7}, .b = {52, 70, 1, 1}},
    {CONV(DT_BF16, 4), .a = {3, 520, 5, 5}, .b = {20, 520, 1, 1}, .bias = true},
    {CONV(DT_BF16, 4), .a = {1, 2, 130, 330}, .b = {2, 1, 5, 3}, .group = 2, .strides = {2, 2},
     .pads = {2, 1, 2, 1}, .bias = true}, /* planes read, and planes made, in several bands */
    {CONV(DT_F32, 4), .a = {2, 3, 5, 6}, .b = {3, 1, 2, 2}, .group = 3, .strides = {3, 4},
     .pads = {3, 2, 3, 4}}, /* positions that no tap reads, results that read only padding */
    {CONV(DT_BF16, 3), .a = {3, 6, 50}, .b = {40, 6, 4}, .strides = {2}, .pads = {1, 1}},
    {CONV(DT_BF16, 3), .a = {4, 32, 10}, .b = {16, 32, 3}, .strides = {2}, .pads = {1, 0}},
    {CONV(DT_F32, 4), .a = {2, 5, 9, 9}, .b = {6, 5, 2, 2}, .pads = {0, 0, 1, 1}}, /* no padding in front */
    {CONV(DT_F32, 4), .a = {1, 3, 9, 9}, .b = {4, 3, 2, 2}, .strides = {4096, 1 << 22}}, /* many phases */
    /* few channels read or made: computed by lines of the image (few_rows.c) */
    {CONV(DT_F32, 4), .a = {2, 20, 9, 37}, .b = {3, 20, 3, 5}, .pads = {1, 2, 1, 0}, .bias = true},
    {CONV(DT_F32, 4), .a = {2, 17, 8, 50}, .b = {1, 17, 3, 3}, .pads = {0, 9, 2, 9}, .dilations = {1, 9}},
    {CONV(DT_F32, 4), .a = {2, 3, 13, 70}, .b = {20, 3, 3, 3}, .strides = {2, 2}, .pads = {1, 1, 1, 1}},
    {CONV(DT_F32, 4), .a = {1, 2, 9, 150}, .b = {5, 2, 2, 3}, .dilations = {1, 2}},
    {CONV(DT_F32, 4), .a = {2, 4, 7, 30}, .b = {4, 2, 3, 3}, .group = 2, .pads = {1, 1, 1, 1}, .bias = true},
    {CONV(DT_F32, 5), .a = {2, 3, 6, 7, 40}, .b = {16, 3, 3, 3, 3}, .strides = {2, 2, 2}, .pads = {1, 1, 1}},
    {CONV(DT_F32, 3), .a = {3, 2, 90}, .b = {9, 2, 4}, .strides = {3}, .pads = {2, 2}},
    {CONV(DT_F16, 4), .a = {2, 16, 9, 9}, .b = {16, 16, 3, 3}, .bias = true},
    {CONV(DT_F16, 4), .a = {2, 6, 9, 19}, .b = {6, 1, 3, 3}, .group = 6},
};
enum { NCASES = sizeof cases / sizeof *cases };

static void run_once(DnnlOp *op, const Tensor *t, Tensor *out)
{
    Diag diag = {0};
    size_t bytes = ((size_t)onednn_scratch_bytes(op) + 64) / 64 * 64;
    void *scratch = aligned_alloc(64, bytes);
    memset(scratch, 0xff, bytes); /* NaN: what is used must be written first */
    const void *in[3] = {t[0].data, t[1].data, t[2].data};
    ck_assert_msg(onednn_run(op, in, out->data, scratch, &diag), "%s", diag.msg);
    free(scratch);
}

static double largest(const double *v, int64_t n)
{
    double m = 0;
    for (int64_t i = 0; i < n; i++)
        m = fmax(m, fabs(v[i]));
    return m;
}

static void compare(const DnnlDesc *d, DnnlOp *op, const Tensor *t, const double *want)
{
    Tensor a = tensor_new(d->of.out), b = tensor_new(d->of.out);
    run_once(op, t, &a);
    run_once(op, t, &b);
    ck_assert_mem_eq(a.data, b.data, (size_t)type_bytes(&d->of.out));
    int64_t n = type_count(&d->of.out);
    DType dt = d->of.out.dt;
    double limit = largest(want, n) * (dt == DT_BF16 ? 1e-2 : dt == DT_F16 ? 1e-3 : 5e-6);
    for (int64_t i = 0; i < n; i++) /* no assertion per element: one that holds sends a message, too */
        if (!(fabs(tensor_f(&a, i) - want[i]) <= limit))
            ck_abort_msg("%s %s: [%lld] %g, not %g", onednn_choice_text(d), onednn_impl(op), (long long)i,
                         tensor_f(&a, i), want[i]);
    free(a.data);
    free(b.data);
}

/* Checks the results of all choices for d against want; returns how many choices have a routine. */
static int check_choices(DnnlDesc *d, const Tensor *t, const double *want)
{
    int made = 0;
    for (int choice = 0; choice < ONEDNN_CHOICES; choice++) {
        Diag diag = {0};
        d->choice = (DnnlChoice)choice;
        DnnlOp *op = onednn_make(d, &diag);
        ck_assert_msg(!diag.failed, "%s", diag.msg);
        if (op)
            compare(d, op, t, want);
        made += op != NULL;
        onednn_free(op);
    }
    return made;
}

/* Returns the place in [N, s..., C] of element i of a tensor of type t, [N, C, s...]. */
static int64_t place_last(const Type *t, int64_t i)
{
    int64_t places = type_count(t) / (t->dim[0] * t->dim[1]), image = i / (t->dim[1] * places);
    return (image * places + i % places) * t->dim[1] + i / places % t->dim[1];
}

static Tensor tensor_last(const Tensor *t)
{
    Tensor last = tensor_new(sample_channels_last(t->type));
    for (int64_t i = 0; i < type_count(&t->type); i++)
        tensor_set_f(&last, place_last(&t->type, i), tensor_f(t, i));
    return last;
}

/* Returns the same convolution, of channels-last images. */
static DnnlDesc on_last(DnnlDesc d)
{
    bool of_weights = d.of.op == LIB_CONV_BWD_WEIGHTS;
    Type *result = of_weights ? &d.of.in[1] : &d.of.out;
    d.of.conv.channels_last = 1;
    d.of.in[0] = sample_channels_last(d.of.in[0]);
    *result = sample_channels_last(*result);
    return d;
}

static int check_last(const DnnlDesc *d, const Tensor *t, const double *want)
{
    int64_t n = type_count(&d->of.out);
    double *moved = malloc((size_t)n * sizeof *moved);
    bool of_weights = d->of.op == LIB_CONV_BWD_WEIGHTS;
    Tensor in[3] = {tensor_last(&t[0]), of_weights ? tensor_last(&t[1]) : t[1], t[2]};
    DnnlDesc last = on_last(*d);
    for (int64_t i = 0; i < n; i++)
        moved[of_weights ? i : place_last(&d->of.out, i)] = want[i];
    int made = check_choices(&last, in, moved);
    for (int i = 0; i <= of_weights; i++)
        free(in[i].data);
    free(moved);
    return made;
}

/* Checks all choices for one operation, of a convolution in both layouts of images.  Returns how many have a
 * routine, of a convolution the smaller number of the two layouts. */
static int check_desc(DnnlDesc *d)
{
    Tensor t[3] = {{.data = NULL}};
    bool product = d->of.op == LIB_MATMUL;
    for (int i = 0; i < d->of.nin; i++)
        t[i] = tensor_random(d->of.in[i], 17u + (uint32_t)i);
    double *want = calloc((size_t)type_count(&d->of.out), sizeof *want);
    (product ? reference_matmul : reference_conv)(&d->of, t, want);
    int made = check_choices(d, t, want), last = product ? made : check_last(d, t, want);
    free(want);
    for (int i = 0; i < d->of.nin; i++)
        free(t[i].data);
    return last < made ? last : made;
}

static void check_case(const LibCase *c)
{
    LibOp last = c->op == LIB_MATMUL ? LIB_MATMUL : LIB_CONV_BWD_WEIGHTS;
    for (LibOp op = c->op; op <= last; op++) {
        DnnlDesc d = {.of.op = op};
        if (op == LIB_MATMUL)
            lib_case_matmul(&d, c);
        else
            lib_case_conv(&d, c, op);
        int made = check_desc(&d);
        if (made == 0 && c->dt == DT_BF16 && !onednn_wide_bf16())
            skipped("no routines for 16-bit types on this processor: generated kernels run");
        else
            ck_assert_int_gt(made, 0);
    }
}

START_TEST(test_against_loops)
{
    for (int i = 0; i < NCASES && use_isa(_i); i++)
        check_case(&cases[i]);
}
END_TEST

/* Operations that tiles of bf16 (AMX) compute, with whole panels and with partial ones; those of f32 in three
 * parts, of rows in two blocks, in batches, with terms or lanes that are adjacent or apart. */
static const LibCase in_tiles[] = {
    {.op = LIB_MATMUL, .dt = DT_F32, .ra = 2, .rb = 2, .a = {130, 633}, .b = {633, 70}},
    {.op = LIB_MATMUL,
     .dt = DT_F32,
     .ta = true,
     .tb = true,
     .ra = 3,
     .rb = 3,
     .a = {3, 801, 70},
     .b = {3, 75, 801}},
    {.op = LIB_MATMUL, .dt = DT_F32, .ta = true, .ra = 2, .rb = 2, .a = {95, 128}, .b = {95, 600}},
    {.op = LIB_MATMUL, .dt = DT_F32, .tb = true, .ra = 3, .rb = 2, .a = {2, 512, 128}, .b = {80, 128}},
    {CONV(DT_F32, 4), .a = {3, 70, 31, 31}, .b = {66, 70, 1, 1}, .bias = true},
    {CONV(DT_F32, 4), .a = {2, 34, 19, 17}, .b = {65, 34, 3, 3}, .strides = {2, 1}, .pads = {1, 1, 1, 1}},
    {.op = LIB_MATMUL, .dt = DT_BF16, .ta = true, .ra = 2, .rb = 2, .a = {1030, 96}, .b = {1030, 128}},
    {.op = LIB_MATMUL,
     .dt = DT_BF16,
     .out_dt = DT_F32,
     .tb = true,
     .ra = 2,
     .rb = 2,
     .a = {80, 1026},
     .b = {47, 1026}},
    {.op = LIB_MATMUL, .dt = DT_BF16, .ra = 2, .rb = 2, .a = {33, 31}, .b = {31, 32}},
    /* gradients of weights: the batch in one block, in blocks of images, in blocks of rows of an image; one
     * to three adjacent taps in a product */
    {CONV(DT_BF16, 4), .a = {2, 40, 9, 7}, .b = {50, 40, 3, 3}, .pads = {1, 1, 1, 1}},
    {CONV(DT_BF16, 4), .out_dt = DT_F32, .a = {3, 16, 40, 49}, .b = {33, 16, 3, 3}, .pads = {0, 2, 2, 0}},
    {CONV(DT_BF16, 4), .a = {1, 17, 65, 70}, .b = {20, 17, 2, 5}, .pads = {1, 3, 0, 2}, .dilations = {3, 1}},
    {CONV(DT_BF16, 3), .out_dt = DT_F32, .a = {2, 32, 301}, .b = {16, 32, 7}, .pads = {3, 3}},
};

static const LibCase wide = {
    .op = LIB_MATMUL, .dt = DT_F32, .ra = 2, .rb = 2, .a = {96, 700}, .b = {700, 64}};

START_TEST(tiles_against_loops)
{
    const int n = sizeof in_tiles / sizeof *in_tiles;
    if (!use_isa(TEST_AMX))
        return;
    for (int i = 0; i < n + NCASES; i++)
        if (i < n || cases[i - n].dt == DT_BF16)
            check_case(i < n ? &in_tiles[i] : &cases[i - n]);
}
END_TEST

/* Runs a product of 96 x 700 x 64 with the library's routine and with ours, in *plain and *own. */
static void run_both(const Tensor *t, Tensor *plain, Tensor *own)
{
    for (int i = 0; i < 2; i++) {
        Diag diag = {0};
        DnnlDesc d = {.of.op = LIB_MATMUL, .choice = i ? ONEDNN_OWN : ONEDNN_PLAIN};
        lib_case_matmul(&d, &wide);
        DnnlOp *op = onednn_make(&d, &diag);
        ck_assert_ptr_nonnull(op);
        Tensor *out = i ? own : plain;
        *out = tensor_new(d.of.out);
        run_once(op, t, out);
        onednn_free(op);
    }
}

/* Returns the root of the sum of squares of x - want. */
static double distance(const Tensor *x, const double *want)
{
    double sum = 0;
    for (int64_t i = 0; i < type_count(&x->type); i++)
        sum += (tensor_f(x, i) - want[i]) * (tensor_f(x, i) - want[i]);
    return sqrt(sum);
}

/* Products of f32 in parts of bf16 are no less exact than those in f32. */
START_TEST(parts_are_exact)
{
    if (!use_isa(TEST_AMX))
        return;
    DnnlDesc d = {.of.op = LIB_MATMUL};
    lib_case_matmul(&d, &wide);
    Tensor t[3] = {tensor_random(d.of.in[0], 3), tensor_random(d.of.in[1], 4)}, plain, own;
    double *want = calloc((size_t)type_count(&d.of.out), sizeof *want);
    reference_matmul(&d.of, t, want);
    run_both(t, &plain, &own);
    ck_assert_double_le(distance(&own, want), distance(&plain, want));
    ck_assert_double_gt(distance(&plain, want), 0);
    free(want);
    free(t[0].data);
    free(t[1].data);
    free(plain.data);
    free(own.data);
}
END_TEST

/* Factors with elements that have no parts, infinite ones, others that are not numbers or too large, give
 * what they give in f32. */
START_TEST(infinite_factors)
{
    if (!use_isa(TEST_AMX))
        return;
    DnnlDesc d = {.of.op = LIB_MATMUL};
    lib_case_matmul(&d, &wide);
    Tensor t[3] = {tensor_random(d.of.in[0], 3), tensor_random(d.of.in[1], 4)}, plain, own;
    tensor_set_f(&t[0], 5 * 700 + 690, INFINITY);
    tensor_set_f(&t[0], 50 * 700 + 3, -INFINITY);
    tensor_set_f(&t[0], 70 * 700 + 200, NAN);
    tensor_set_f(&t[0], 80 * 700 + 600, 3.4e38);
    tensor_set_f(&t[1], 100 * 64 + 9, INFINITY);
    run_both(t, &plain, &own);
    int finite = 0, infinite = 0;
    for (int64_t i = 0; i < type_count(&d.of.out); i++) {
        double a = tensor_f(&plain, i), b = tensor_f(&own, i);
        ck_assert(isnan(a) ? isnan(b) : isinf(a) ? a == b : fabs(a - b) <= 1e-6 * fmax(fabs(a), 100));
        finite += isfinite(a) != 0;
        infinite += isinf(a) != 0;
    }
    ck_assert_int_eq(finite, 93 * 63);
    ck_assert_int_gt(infinite, 100);
    for (int i = 0; i < 2; i++)
        free(t[i].data);
    free(plain.data);
    free(own.data);
}
END_TEST

/* Convolutions of five images that reorder two at a time, so that the fourth is computed twice, agree with
 * the loops. */
START_TEST(test_pieces)
{
    for (int i = 0; i < NCASES && use_isa(_i); i++) {
        LibCase c = cases[i];
        c.a[0] = 5;
        for (LibOp op = LIB_CONV; op <= LIB_CONV_BWD_DATA && c.op == LIB_CONV; op++) {
            DnnlDesc d = {.of.op = op, .images = 2};
            lib_case_conv(&d, &c, op);
            check_desc(&d);
        }
    }
}
END_TEST

/* ---- candidates with the same bits ---------------------------------------------------------------- */

/* Runs d in so many parts on random operands; the caller frees out->data.  False: there is no routine. */
static bool result_of(DnnlDesc *d, int64_t parts, Tensor *out)
{
    Diag diag = {0};
    d->parts = parts;
    DnnlOp *op = onednn_make(d, &diag);
    ck_assert_msg(!diag.failed, "%s", diag.msg);
    if (!op)
        return false;
    Tensor t[3] = {{.data = NULL}};
    for (int i = 0; i < d->of.nin; i++)
        t[i] = tensor_random(d->of.in[i], 17u + (uint32_t)i);
    *out = tensor_new(d->of.out);
    run_once(op, t, out);
    for (int i = 0; i < d->of.nin; i++)
        free(t[i].data);
    onednn_free(op);
    return true;
}

/* Checks that the result in 2, 4, 8... parts has the bits of the whole; returns for how many of these numbers
 * of parts there are routines. */
static int compare_parts(DnnlDesc *d)
{
    Tensor whole, out;
    int made = 0;
    if (!result_of(d, 0, &whole))
        return 0;
    for (int64_t parts = 2; parts <= ONEDNN_MAX_PARTS; parts *= 2) {
        if (!result_of(d, parts, &out))
            continue;
        ck_assert_msg(memcmp(whole.data, out.data, (size_t)type_bytes(&d->of.out)) == 0,
                      "%s: other bits in %lld parts", onednn_choice_text(d), (long long)parts);
        free(out.data);
        made++;
    }
    free(whole.data);
    return made;
}

static const LibCase shapes[] = {
    {.a = {3, 64, 14, 14}, .b = {64, 64, 3, 3}, .pads = {1, 1, 1, 1}},
    {.a = {4, 32, 9, 9}, .b = {96, 32, 3, 3}, .pads = {1, 1, 1, 1}, .strides = {2, 2}, .bias = true},
    {.a = {2, 128, 7, 7}, .b = {256, 128, 3, 3}, .pads = {1, 1, 1, 1}},
    {.a = {3, 64, 12, 12}, .b = {32, 64, 5, 5}, .pads = {2, 2, 2, 2}, .dilations = {2, 1}},
    {.a = {2, 128, 8, 8}, .b = {128, 128, 1, 1}, .strides = {2, 2}},
    {.a = {2, 64, 10, 10}, .b = {64, 1, 3, 3}, .group = 64, .pads = {1, 1, 1, 1}},
    {.a = {2, 128, 6, 6}, .b = {128, 16, 3, 3}, .group = 8, .pads = {1, 1, 1, 1}},
    {.a = {6, 3, 20, 20}, .b = {64, 3, 7, 7}, .strides = {2, 2}, .pads = {3, 3, 3, 3}},
};
enum { NSHAPES = sizeof shapes / sizeof *shapes };

/* A convolution whose result is made in parts of its channels has the bits of the whole, whether it reorders
 * two images at a time or as many as the rule says. */
static void check_shape(LibCase c, int isa)
{
    int made = 0;
    c.dt = DT_F32;
    c.ra = c.rb = 4;
    for (LibOp op = LIB_CONV; op <= LIB_CONV_BWD_DATA; op++)
        for (int64_t images = 0; images <= 2; images += 2) {
            DnnlDesc d = {.of.op = op, .images = images, .choice = ONEDNN_BLOCKED}, last;
            lib_case_conv(&d, &c, op);
            made += compare_parts(&d);
            last = on_last(d);
            last.choice = ONEDNN_PLAIN;
            made += compare_parts(&last);
        }
    ck_assert(made > 0 || isa == 0);
}

START_TEST(parts_have_the_same_bits)
{
    for (int i = 0; i < NSHAPES && use_isa(_i); i++)
        check_shape(shapes[i], _i);
}
END_TEST

/* The candidates that a plan may exchange for each other give the same bits, even if sums are so long that
 * the library cuts them. */
START_TEST(candidates_have_the_same_bits)
{
    LibCase c = {CONV(DT_F32, 4), .a = {4, 512, 3, 3}, .b = {256, 512, 3, 3}, .pads = {1, 1, 1, 1}};
    c.dt = _i % 2 ? DT_BF16 : DT_F32;
    if (!use_isa(_i / 2))
        return;
    for (LibOp op = LIB_CONV; op <= LIB_CONV_BWD_DATA; op++) {
        DnnlDesc rows = {.of.op = op, .choice = ONEDNN_PLAIN};
        Diag diag = {0};
        StepCost cost;
        lib_case_conv(&rows, &c, op);
        DnnlDesc d = on_last(rows);
        DnnlOp *whole = onednn_make(&d, &diag);
        if (!whole)
            continue;
        find_candidates(&d, whole, &cost, &diag);
        onednn_free(whole);
        Tensor want, got;
        ck_assert(result_of(&d, 0, &want));
        for (int i = 1; i < cost.same; i++) {
            ck_assert(onednn_choice_parse(&d, cost.c[i].choice));
            ck_assert(result_of(&d, d.parts, &got));
            ck_assert_msg(memcmp(want.data, got.data, (size_t)type_bytes(&d.of.out)) == 0, "%s: other bits",
                          cost.c[i].choice);
            free(got.data);
        }
        free(want.data);
    }
}
END_TEST

/* Checks that the first half of the rows of a gradient of weights, computed alone, has the bits of *whole. */
static void check_rows(DnnlDesc *d, const Tensor *whole)
{
    Tensor t[2], out;
    Diag diag = {0};
    for (int i = 0; i < 2; i++)
        t[i] = tensor_random(d->of.in[i], 17u + (uint32_t)i);
    d->of.rows = (d->of.out.dim[0] + 1) / 2;
    out = tensor_new(d->of.out);
    DnnlOp *op = onednn_make(d, &diag);
    ck_assert_ptr_nonnull(op);
    run_once(op, t, &out);
    ck_assert_mem_eq(whole->data, out.data, (size_t)(type_bytes(&d->of.out) / d->of.out.dim[0] * d->of.rows));
    onednn_free(op);
    free(out.data);
    for (int i = 0; i < 2; i++)
        free(t[i].data);
}

/* Checks that our own product gives the same bits with blocks of any size and with two or three threads. */
static void check_blocks(const LibCase *c, LibOp op)
{
    DnnlDesc d = {.of.op = op, .choice = ONEDNN_OWN};
    Tensor two, three;
    if (op == LIB_MATMUL)
        lib_case_matmul(&d, c);
    else
        lib_case_conv(&d, c, op);
    ck_assert_int_eq(compare_parts(&d), 4);
    omp_set_num_threads(2);
    ck_assert(result_of(&d, 0, &two));
    omp_set_num_threads(3);
    ck_assert(result_of(&d, 0, &three));
    ck_assert_mem_eq(two.data, three.data, (size_t)type_bytes(&d.of.out));
    if (op == LIB_CONV_BWD_WEIGHTS && d.of.conv.group == 1)
        check_rows(&d, &two);
    free(two.data);
    free(three.data);
}

START_TEST(blocks_and_threads_have_the_same_bits)
{
    for (const LibCase *c = cases; c < cases + NCASES && use_isa(_i); c++)
        for (LibOp op = c->op; op <= LIB_CONV_BWD_WEIGHTS; op++)
            if (op == c->op || c->op == LIB_CONV)
                check_blocks(c, op);
}
END_TEST

START_TEST(blocks_of_tiles_have_the_same_bits)
{
    if (!use_isa(TEST_AMX))
        return;
    for (size_t i = 0; i < sizeof in_tiles / sizeof *in_tiles; i++)
        check_blocks(&in_tiles[i], in_tiles[i].op == LIB_CONV ? LIB_CONV_BWD_WEIGHTS : LIB_MATMUL);
}
END_TEST

/* Has our own Winograd algorithm a routine for d with this processor's vectors? */
static bool has_tiles(const DnnlDesc *d)
{
    bool turned = d->of.op == LIB_CONV_BWD_WEIGHTS && d->of.conv.channels_last;
    return onednn_vector_bytes() == 64 || (onednn_vector_bytes() == 32 && !turned);
}

/* Checks that Winograd's algorithm, if it has a routine, gives the same bits with one, two and three threads
 * and numbers of images at a time. */
static void check_tiles(DnnlDesc *d)
{
    Tensor want, got;
    d->choice = ONEDNN_WINOGRAD;
    omp_set_num_threads(1);
    bool made = result_of(d, 0, &want);
    ck_assert_int_eq(made, has_tiles(d));
    if (!made)
        return;
    for (int threads = 2; threads <= 3; threads++) {
        omp_set_num_threads(threads);
        d->images = threads;
        ck_assert(result_of(d, 0, &got));
        ck_assert_mem_eq(want.data, got.data, (size_t)type_bytes(&d->of.out));
        free(got.data);
    }
    free(want.data);
}

/* Winograd's bits depend neither on threads nor on images at a time, with fewer tiles than channels as with
 * more tiles, which gradients of weights sum in two blocks. */
START_TEST(tiles_have_the_same_bits)
{
    LibCase c = shapes[0];
    if (!use_isa(_i))
        return;
    int64_t few = 3, many = onednn_vector_bytes() == 64 ? 18 : 9;
    c.dt = DT_F32;
    c.ra = c.rb = 4;
    for (LibOp op = LIB_CONV; op <= LIB_CONV_BWD_WEIGHTS; op++)
        for (c.a[0] = few; c.a[0] <= many; c.a[0] += many - few) {
            DnnlDesc d = {.of.op = op}, last;
            lib_case_conv(&d, &c, op);
            if (op == LIB_CONV_BWD_WEIGHTS && c.a[0] == many)
                check_desc(&d);
            last = on_last(d);
            if (onednn_vector_bytes() < 64) /* otherwise it is the library's, which adds in other orders */
                check_tiles(&d);
            check_tiles(&last);
        }
}
END_TEST

/* Winograd's algorithm is right with fewer tiles than channels, but more tiles than are located, or summed in
 * registers, at a time. */
START_TEST(tiles_in_chunks)
{
    LibCase c = {CONV(DT_F32, 4), .a = {1, 8, 41, 35}, .b = {120, 8, 3, 3}, .pads = {1, 1, 1, 1},
                 .bias = true};
    static const LibOp ops[] = {LIB_CONV, LIB_CONV_BWD_WEIGHTS};
    for (int i = 0; i < 2 && use_isa(_i); i++) {
        DnnlDesc d = {.of.op = ops[i]};
        lib_case_conv(&d, &c, ops[i]);
        ck_assert_int_gt(check_desc(&d), 0);
    }
}
END_TEST

Suite *suite_onednn(void)
{
    Suite *s = suite_create("onednn");
    TCase *tc = tcase_create("choices");
    tcase_add_loop_test(tc, test_against_loops, 0, TEST_ISAS);
    tcase_add_test(tc, tiles_against_loops);
    tcase_add_test(tc, parts_are_exact);
    tcase_add_test(tc, infinite_factors);
    tcase_add_loop_test(tc, test_pieces, 0, TEST_ISAS);
    tcase_add_loop_test(tc, parts_have_the_same_bits, 0, TEST_ISAS);
    tcase_add_loop_test(tc, candidates_have_the_same_bits, 0, 2 * TEST_ISAS);
    tcase_add_loop_test(tc, blocks_and_threads_have_the_same_bits, 0, TEST_ISAS);
    tcase_add_test(tc, blocks_of_tiles_have_the_same_bits);
    tcase_add_loop_test(tc, tiles_have_the_same_bits, 0, TEST_ISAS);
    tcase_add_loop_test(tc, tiles_in_chunks, 0, TEST_ISAS);
    suite_add_tcase(s, tc);
    return s;
}
