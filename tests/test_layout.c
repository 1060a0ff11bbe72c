/* test_layout.c -- the layout of images (pass layout) depends on the processor's instruction set. */
#include "step.h"
#include "tests.h"

/* With AVX-512 convolutions are channels-last, and those with windows of one position are products; with AVX2
 * neither. */
START_TEST(layout_by_instructions)
{
    static const char text[] = "graph {\n"
                               "  input %x: f32[2,2,6,6]\n"
                               "  param %w: f32[16,2,3,3]\n  param %v: f32[4,16,1,1]\n"
                               "  %c: f32[2,16,6,6] = conv %x, %w {strides=[1,1], pads=[1,1,1,1], "
                               "dilations=[1,1]}\n"
                               "  %r: f32[2,16,6,6] = relu %c\n"
                               "  %d: f32[2,4,6,6] = conv %r, %v {strides=[1,1], pads=[0,0,0,0], "
                               "dilations=[1,1]}\n"
                               "  %q: f32[2,4,6,6] = square %d\n"
                               "  %l: f32[] = reduce_sum %q {axes=[0,1,2,3], keepdims=0}\n"
                               "  output %l\n}\n";
    int convolutions = 0, last = 0;
    TestStep s;
    if (!use_isa(1 + _i))
        return;
    step_init(&s);
    ck_assert_msg(step_compile_text(&s, text, &(Init){INIT_NORMAL, 0.2}), "%s", s.diag.msg);
    for (uint32_t k = 0; k < s.g.norder; k++) {
        const Node *n = &s.g.nodes[s.g.order[k].i];
        bool is = n->op == OP_conv || n->op == OP_conv_bwd_data || n->op == OP_conv_bwd_weights;
        convolutions += is;
        last += is && ((const ConvAttrs *)n->attr)->channels_last;
    }
    ck_assert_int_eq(convolutions, _i ? 2 : 5);
    ck_assert_int_eq(last, _i ? 2 : 0);
    step_free(&s);
}
END_TEST

Suite *suite_layout(void)
{
    Suite *s = suite_create("layout");
    TCase *t = tcase_create("layout");
    tcase_add_loop_test(t, layout_by_instructions, 0, 2); /* AVX2, AVX-512 */
    suite_add_tcase(s, t);
    return s;
}
