/* test_narrow.c -- frozen weights that pass narrow holds in 16 bits: results have the bits that a cast in
 * every step gives, the weights take less memory, and the values saved are the file's own. */
#include "tests.h"
#include "command.h"
#include "on_cuda.h"
#include "session.h"
#include "step.h"
#include "runtime/weights.h"
#include <string.h>

static const PrecisionKind halves[] = {PRECISION_BF16, PRECISION_FP16};

static void trains_last(int half, const char *args)
{
    ckc_accepts(format("'" CKC_SOURCE_DIR "/examples/mlp/model.onnx' --bind batch=4 --quiet --output p "
                       "--train '8.*' --precision %s %s", precision_name[halves[half]], args));
}

/* With frozen weights held in 16 bits, `ckc train`, `ckc run`, a run resumed from a checkpoint that was
 * written with --disable narrow, and validation give the same bits as with a cast in every step. */
START_TEST(frozen_in_half)
{
    make_data();
    trains_last(_i, "--disable narrow --steps 3 --data d.npz --val d.npz --metrics a.jsonl --checkpoint c "
                    "--every 2 --save a.safetensors");
    ck_assert_int_eq(shell("rm c/step-3.safetensors; grep -q ' = cast %0.weight ' p/step.ckp"), 0);
    trains_last(_i, "--steps 3 --data d.npz --val d.npz --metrics b.jsonl --save b.safetensors");
    same_file("a.safetensors", "b.safetensors");
    ck_assert_int_eq(shell("grep -qE '^  param %0.weight.*16: .*cast %0.weight$' p/step.ckp"), 0);
    ck_assert_int_ne(shell("grep -qE 'place %0.weight@|= cast %0' p/step.ckp"), 0);
    ck_assert_int_eq(shell("for m in a b; do grep -o 'val_loss.*' $m.jsonl >$m; done; cmp a b && test -s a"),
                     0);
    ckc_accepts("run p/step.ckp --quiet --steps 3 --save c.safetensors");
    same_file("a.safetensors", "c.safetensors");
    trains_last(_i, "--steps 3 --data d.npz --checkpoint c --resume --save d.safetensors");
    same_file("a.safetensors", "d.safetensors");
    ckc_accepts("run p/step.ckp --quiet --weights a.safetensors --steps 1 --save e.safetensors");
    trains_last(_i, "--disable narrow --steps 1 --data d.npz --weights a.safetensors --save f.safetensors");
    same_file("e.safetensors", "f.safetensors");
}
END_TEST

/* Checks that what is held for parameter w is all[] rounded to 16 bits, and that w itself has no memory. */
static void is_held(TestStep *s, const float *all)
{
    Val w = graph_find(&s->g, "w"), held = graph_loaded(&s->g, w);
    Tensor t = exec_tensor(s->exec, held);
    ck_assert_int_ne(held.i, w.i);
    ck_assert_int_lt(s->info.plan.offset[w.i], 0);
    ck_assert_int_eq(t.type.dt, precision_half(s->opt.precision));
    ck_assert(exec_read(s->exec, held, &s->diag));
    for (int64_t i = 0; i < type_count(&t.type); i++) {
        uint16_t want = t.type.dt == DT_F16 ? f32_to_f16(all[i]) : f32_to_bf16(all[i]);
        ck_assert_int_eq(((uint16_t *)t.data)[i], want);
    }
}

/* A frozen weight without a value is drawn in single precision, as without pass narrow, and then rounded to
 * 16 bits; so are values that replace it, and reading w itself returns these unrounded. */
static void check_drawn(int half, const DeviceOps *device)
{
    static const char text[] = "graph {\n"
                               "  input %x: f32[4,16]\n"
                               "  param %w: f32[16,64]\n"
                               "  param %v: f32[64,2]\n"
                               "  %h: f32[4,64] = matmul %x, %w\n"
                               "  %y: f32[4,2] = matmul %h, %v\n"
                               "  %l: f32[] = reduce_sum %y {axes=[0,1], keepdims=0}\n"
                               "  output %l\n"
                               "}\n";
    static const char *const train[] = {"v"};
    const Init init = {INIT_KAIMING, 0};
    float all[16 * 64];
    TestStep s;
    step_init(&s);
    s.opt.train = train;
    s.opt.ntrain = 1;
    s.opt.precision = halves[half];
    s.device = device;
    ck_assert_msg(step_compile_text(&s, text, &init), "%s", s.diag.msg);
    Tensor w = {type_make(DT_F32, 2, (int64_t[]){16, 64}), all};
    init_fill(&w, &init, "w", true, 1);
    is_held(&s, all);
    init_fill(&w, &init, "w", true, 2);
    ck_assert(exec_replace(s.exec, graph_find(&s.g, "w"), all, &s.diag));
    is_held(&s, all);
    ck_assert_mem_eq(exec_tensor(s.exec, graph_find(&s.g, "w")).data, all, sizeof all);
    step_free(&s);
}

START_TEST(drawn_in_half) { check_drawn(_i, NULL); }
END_TEST

START_TEST(drawn_in_half_on_cuda) { check_drawn(_i, &cuda_device); }
END_TEST

Suite *suite_narrow(void)
{
    Suite *s = suite_create("narrow");
    TCase *c = command_case(s, "command");
    tcase_add_loop_test(c, frozen_in_half, 0, 2);
    c = tcase_create("init");
    tcase_add_loop_test(c, drawn_in_half, 0, 2);
    suite_add_tcase(s, c);
    c = tcase_create("cuda");
    tcase_add_unchecked_fixture(c, use_cuda, leave_cuda);
    tcase_add_loop_test(c, drawn_in_half_on_cuda, 0, 2);
    suite_add_tcase(s, c);
    return s;
}
