/* test_routine.c -- which routine choose_routine() picks for an operation, and how much workspace it has. */
#include "lib_cases.h"
#include "op_samples_int.h"
#include "tests.h"

#include "runtime/cpu/cpu.h"

static int64_t scratch_bytes(DnnlDesc *d, int64_t images)
{
    Diag diag = {0};
    d->images = images;
    d->choice = ONEDNN_BLOCKED;
    DnnlOp *op = onednn_make(d, &diag);
    ck_assert_ptr_nonnull(op);
    int64_t bytes = onednn_scratch_bytes(op);
    onednn_free(op);
    return bytes;
}

/* A convolution that reorders images by the rule has the workspace of one that reorders this many. */
START_TEST(test_rule)
{
    if (!use_isa(1))
        return;
    static const struct {
        LibCase c;
        int64_t images;
    } t[] = {
        {{.a = {8, 32, 256, 256}, .b = {32, 32, 3, 3}}, 1},  /* large images: one at a time */
        {{.a = {32, 64, 56, 56}, .b = {64, 64, 3, 3}}, 4},   /* not 3: they would not divide 32 */
        {{.a = {31, 64, 56, 56}, .b = {64, 64, 3, 3}}, 4},   /* one image is made twice */
        {{.a = {7, 64, 56, 56}, .b = {64, 64, 3, 3}}, 7},    /* making one of seven twice is too much */
        {{.a = {32, 512, 7, 7}, .b = {512, 512, 3, 3}}, 32}, /* large weights: all at once */
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++)
        for (LibOp op = LIB_CONV; op <= LIB_CONV_BWD_DATA; op++) {
            LibCase c = t[i].c;
            DnnlDesc d = {.of.op = op};
            c.dt = DT_F32;
            c.ra = c.rb = 4;
            lib_case_conv(&d, &c, op);
            ck_assert_int_eq(scratch_bytes(&d, 0), scratch_bytes(&d, t[i].images));
        }
}
END_TEST

/* Returns the choice of choose_routine() for a case; op: as for lib_case_conv(). */
static DnnlChoice chosen(const LibCase *of, LibOp op)
{
    LibCase c = *of;
    Diag d = {0};
    DnnlDesc desc = {.of.op = op};
    c.ra = c.rb = op == LIB_MATMUL ? 2 : 4;
    if (op == LIB_MATMUL)
        lib_case_matmul(&desc, &c);
    else
        lib_case_conv(&desc, &c, op);
    DnnlOp *made = choose_routine(&desc, &d);
    ck_assert_ptr_nonnull(made);
    onednn_free(made);
    return desc.choice;
}

/* Products are the library's, unless rows of the second factor are whole pages apart, but no power of two,
 * and the result has rows enough for packing it. */
START_TEST(products_that_are_ours)
{
    static const LibCase c[] = {{.dt = DT_F32, .a = {32, 64}, .b = {64, 768}},
                                {.dt = DT_F32, .a = {32, 64}, .b = {64, 4096}},
                                {.dt = DT_F32, .a = {32, 64}, .b = {3072, 64}, .tb = true},
                                {.dt = DT_F32, .a = {32, 64}, .b = {64, 3072}},
                                {.dt = DT_F32, .a = {64, 32}, .b = {64, 5120}, .ta = true},
                                {.dt = DT_F32, .a = {8, 64}, .b = {64, 3072}}};
    static const DnnlChoice want[] = {ONEDNN_PLAIN, ONEDNN_PLAIN, ONEDNN_PLAIN,
                                      ONEDNN_OWN,   ONEDNN_OWN,   ONEDNN_PLAIN};
    if (!use_isa(2))
        return;
    for (size_t i = 0; i < sizeof c / sizeof *c; i++)
        ck_assert_int_eq(chosen(&c[i], LIB_MATMUL), want[i]);
}
END_TEST

/* Without AVX-512, depthwise convolutions are ours, and all of 16 bits, which the library would reorder one
 * element at a time. */
START_TEST(convolutions_that_are_ours)
{
    static const struct {
        LibCase c;
        DnnlChoice want;
    } t[] = {
        {{.dt = DT_F32, .a = {2, 32, 28, 28}, .b = {32, 32, 3, 3}}, ONEDNN_BLOCKED},
        {{.dt = DT_BF16, .a = {2, 16, 9, 9}, .b = {16, 16, 3, 3}}, ONEDNN_OWN},
        {{.dt = DT_F32, .a = {2, 16, 9, 9}, .b = {16, 1, 3, 3}, .group = 16, .strides = {2, 2}}, ONEDNN_OWN},
    };
    if (!use_isa(1))
        return;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++)
        for (LibOp op = LIB_CONV; op <= LIB_CONV_BWD_DATA; op++)
            ck_assert_int_eq(chosen(&t[i].c, op), t[i].want);
}
END_TEST

/* With AMX, gradients of weights in bf16 are ours, except with few channels or with strides. */
START_TEST(gradients_that_are_ours)
{
    static const struct {
        LibCase c;
        bool ours;
    } t[] = {
        {{.dt = DT_BF16, .a = {4, 32, 28, 28}, .b = {32, 32, 3, 3}, .pads = {1, 1, 1, 1}}, true},
        {{.dt = DT_BF16, .a = {4, 64, 28, 28}, .b = {16, 64, 5, 5}}, true},
        {{.dt = DT_BF16, .a = {4, 16, 28, 28}, .b = {16, 16, 3, 3}}, false},
        {{.dt = DT_BF16, .a = {16, 64, 56, 56}, .b = {64, 64, 3, 3}, .strides = {2, 2}}, false},
        {{.dt = DT_F32, .a = {4, 64, 28, 28}, .b = {64, 64, 3, 3}}, false},
    };
    if (!use_isa(TEST_AMX))
        return;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++)
        ck_assert_int_eq(chosen(&t[i].c, LIB_CONV_BWD_WEIGHTS) == ONEDNN_OWN, t[i].ours);
}
END_TEST

/* The library has a routine for gradients of weights in f32 of 16-bit factors. */
START_TEST(weight_gradients_in_f32)
{
    static const LibCase c = {.dt = DT_BF16,
                              .out_dt = DT_F32,
                              .ra = 4,
                              .rb = 4,
                              .a = {2, 16, 9, 14},
                              .b = {32, 16, 3, 3},
                              .pads = {1, 1, 1, 1}};
    DnnlDesc desc = {.choice = ONEDNN_BLOCKED};
    Diag d = {0};
    if (!onednn_wide_bf16())
        return skipped("no routines for 16-bit types on this processor: generated kernels run");
    desc.of.op = LIB_CONV_BWD_WEIGHTS;
    lib_case_conv(&desc, &c, LIB_CONV_BWD_WEIGHTS);
    ck_assert_int_eq(desc.of.out.dt, DT_F32);
    DnnlOp *op = onednn_make(&desc, &d);
    ck_assert_ptr_nonnull(op);
    onednn_free(op);
}
END_TEST

START_TEST(test_unsupported)
{
    static const LibCase refused[] = {
        {.op = LIB_MATMUL, .dt = DT_F64, .ra = 2, .rb = 2, .a = {2, 3}, .b = {3, 2}},
        {.op = LIB_MATMUL, .dt = DT_F32, .ra = 2, .rb = 2, .a = {2, 0}, .b = {0, 2}},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        DnnlDesc d = {.of.op = LIB_MATMUL};
        Diag diag = {0};
        lib_case_matmul(&d, &refused[i]);
        ck_assert_ptr_null(onednn_make(&d, &diag));
        ck_assert(!diag.failed);
    }
}
END_TEST

/* A choice is read back from its text, as schedules have it; other texts are refused. */
START_TEST(choices_are_text)
{
    for (int choice = 0; choice < ONEDNN_CHOICES; choice++)
        for (int64_t parts = 1; parts <= ONEDNN_MAX_PARTS; parts *= 2) {
            DnnlDesc d = {.parts = parts > 1 ? parts : 0, .choice = (DnnlChoice)choice}, again = {0};
            ck_assert(onednn_choice_parse(&again, onednn_choice_text(&d)));
            ck_assert_int_eq(again.choice, d.choice);
            ck_assert_int_eq(again.parts, d.parts);
        }
    ck_assert_str_eq(onednn_choice_text(&(DnnlDesc){.parts = 4, .choice = ONEDNN_OWN}), "own/4");
    static const char *const none[] = {"", "wave", "own/", "own/3", "own/32", "OWN", "own/4 ", "/4"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        ck_assert(!onednn_choice_parse(&(DnnlDesc){0}, none[i]));
}
END_TEST

Suite *suite_routine(void)
{
    Suite *s = suite_create("routine");
    TCase *tc = tcase_create("routine");
    tcase_add_test(tc, test_rule);
    tcase_add_test(tc, products_that_are_ours);
    tcase_add_test(tc, convolutions_that_are_ours);
    tcase_add_test(tc, gradients_that_are_ours);
    tcase_add_test(tc, weight_gradients_in_f32);
    tcase_add_test(tc, test_unsupported);
    tcase_add_test(tc, choices_are_text);
    suite_add_tcase(s, tc);
    return s;
}
