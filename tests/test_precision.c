/* test_precision.c -- mixed precision: gradients no further off than those of PyTorch's autocast, sums in
 * f32, values wider in registers than in memory, fp16's loss scale. */
#include "tests.h"
#include "command.h"
#include "on_cuda.h"
#include "oracle.h"
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static const PrecisionKind halves[] = {PRECISION_BF16, PRECISION_FP16};

/* ---- gradients ------------------------------------------------------------------------------ */

static const char *const network[] = {
    "fixtures/torch-oracle/conv_bn_pool", "fixtures/torch-oracle/gpt_tiny_tied",
    "fixtures/torch-oracle/llama_tiny_gqa", "fixtures/torch-oracle/lstm_bidi",
    "fixtures/torch-oracle/mlp_ln_gelu", "fixtures/torch-oracle/odds_broadcast",
    "fixtures/torch-oracle/tv_vit_tiny", "fixtures/torch-oracle/unet_tiny",
    "tests/data/zoo/autoencoder_1d_legacy", "tests/data/zoo/gru_legacy", "tests/data/zoo/sdpa_gpt_dynamo",
};
enum { NNETWORKS = sizeof network / sizeof *network };

/* Returns a network's gradient error under PyTorch's autocast, as tests/torch/autocast_golden.py found it. */
static double autocast_error(const char *name, PrecisionKind kind)
{
    json_t *all = json_load_file(CKC_SOURCE_DIR "/tests/data/autocast.json", 0, NULL);
    const json_t *error = json_object_get(json_object_get(all, name), precision_name[kind]);
    ck_assert_msg(json_is_number(error), "tests/data/autocast.json has no %s", name);
    double e = json_number_value(error);
    json_decref(all);
    return e;
}

static void check_as_autocast(int i, PrecisionKind kind, const DeviceOps *device)
{
    Oracle o;
    const char *path = network[i], *name = strrchr(path, '/') + 1;
    bool ours = strncmp(path, "tests/", 6) == 0;
    char here[4200];
    snprintf(here, sizeof here, "%s/%s", CKC_SOURCE_DIR, path);
    const char *dir = ours ? here : shared_path(path);
    if (!dir)
        return;
    oracle_open(&o, dir);
    double want = autocast_error(name, kind);
    double got = oracle_gradient_error(&o, ours ? "model.onnx" : "model_static.onnx", kind, device);
    printf("%-24s %s%s: gradient error %.3g, autocast %.3g\n", name, precision_name[kind],
           device ? " on cuda" : "", got, want);
    ck_assert_double_le(got, 1.2 * want + 1e-6);
    oracle_close(&o);
}

/* Gradients are at most 1.2 times as far from those in double precision as with PyTorch's autocast. */
START_TEST(gradients_as_autocast) { check_as_autocast(_i / 2, halves[_i % 2], NULL); }
END_TEST

/* The same on the CUDA device: in bf16 for a network with attention and one with convolutions; with
 * CKC_LONG=1 for all networks and both types. */
START_TEST(gradients_as_autocast_on_cuda)
{
    const char *path = network[_i / 2];
    bool some = strstr(path, "sdpa_gpt") || strstr(path, "autoencoder");
    if (getenv("CKC_LONG") || (some && _i % 2 == 0))
        check_as_autocast(_i / 2, halves[_i % 2], &cuda_device);
    else
        skipped("16 bits on the fake GPU, of two networks only: CKC_LONG=1");
}
END_TEST

/* ---- sums ------------------------------------------------------------------------------------- */

enum { ROWS = 257 }; /* which bf16 would round */

/* Gradients of 16-bit parameters, computed by one product or in blocks of rows, their accumulators over
 * micro-batches and the optimizer's state are in f32: all elements are ROWS. */
static const char sums[] = "graph {\n"
                           "  input %x: bf16[257,16]\n"
                           "  param %w: bf16[16,16]\n"
                           "  param %b: bf16[16]\n"
                           "  %h: bf16[257,16] = relu %x\n"
                           "  %p: bf16[257,16] = matmul %h, %w\n"
                           "  %y: bf16[257,16] = add %p, %b\n"
                           "  %z: f32[257,16] = cast %y {dtype=f32}\n"
                           "  %l: f32[] = reduce_sum %z {axes=[0,1], keepdims=0}\n"
                           "  output %l\n"
                           "}\n";

static void fill(TestStep *s, const char *name, double v)
{
    Tensor t = exec_tensor(s->exec, graph_find(&s->g, name));
    ck_assert_msg(t.data != NULL, "%s", name);
    for (int64_t i = 0; i < type_count(&t.type); i++)
        dtype_is_float(t.type.dt) ? tensor_set_f(&t, i, v) : tensor_set_i(&t, i, (int64_t)v);
}

static void all_are(const TestStep *s, Val v, double want)
{
    Tensor t = exec_tensor(s->exec, v);
    ck_assert_int_eq(t.type.dt, DT_F32);
    for (int64_t i = 0; i < type_count(&t.type); i++)
        ck_assert_double_eq_tol(tensor_f(&t, i), want, 1e-5 * want);
}

START_TEST(sums_in_single)
{
    enum { MICRO = 4 }; /* bf16 holds a quarter exactly */
    int64_t n = _i & 1 ? MICRO : 1;
    TestStep s;
    Diag *d = &s.diag;
    step_init(&s);
    s.opt.keep_grads = true;
    s.opt.optim = OPTIM_MOMENTUM;
    s.opt.accumulate = n;
    s.opt.factor_bytes = _i & 2 ? 512 : 0;
    ck_assert_msg(step_compile_text(&s, sums, &(Init){INIT_NORMAL, 0.1}), "%s", d->msg);
    bool split = false;
    for (uint32_t k = 0; k < s.g.norder; k++)
        split |= s.g.nodes[s.g.order[k].i].split.by == SPLIT_SUM;
    ck_assert_int_eq(split, (_i & 2) != 0);
    for (int64_t i = 0; i < n; i++) {
        fill(&s, "x", 1);
        fill(&s, "lr", 0);
        fill(&s, "step", 1);
        if (n > 1)
            fill(&s, "micro_batch", (double)i);
        ck_assert_msg(exec_micro(s.exec, NULL, d), "%s", d->msg);
    }
    ck_assert_msg(exec_rest(s.exec, NULL, d), "%s", d->msg);
    for (uint32_t i = 0; i < s.info.ntrained; i++) {
        all_are(&s, graph_root(&s.g, s.g.out[1 + i]), ROWS);
        all_are(&s, s.info.trained[i].state[0], ROWS);
    }
    step_free(&s);
}
END_TEST

/* The statistics of a norm of 16-bit elements, which its gradient reads, are in f32. */
START_TEST(statistics_in_single)
{
    Arena a = {0};
    Diag d = {0};
    Graph g;
    graph_init(&g, &a, &d);
    ck_assert(graph_parse(&g,
                          "graph {\n  const %x: bf16[1,2] = {256, 258}\n"
                          "  %y: bf16[1,2], %m: f32[1,1], %r: f32[1,1] = layer_norm %x {axis=1}\n"
                          "  output %m\n}\n",
                          &d));
    void **data = NEW(&a, void *, g.nvals);
    ck_assert_msg(graph_eval(&g, data, &a, &d), "%s", d.msg);
    ck_assert_double_eq(((float *)data[g.out[0].i])[0], 257);
    arena_free(&a);
}
END_TEST

/* ---- registers wider than memory ----------------------------------------------------------------- */

/* The gradient of a maximum compares elements with the maximum.  Both must be as rounded as in memory, though
 * registers hold more bits: those of f32 for a 16-bit type, those of f64 where only the readers are in f64.
 * Otherwise no element may be equal, and the gradient is not finite. */
static const char maxima[] = "graph {\n"
                             "  input %%x: f32[64,48]\n"
                             "  param %%q: f32[64,48]\n"
                             "  const %%c: %s[] = {0.37}\n"
                             "  %%p: f32[64,48] = add %%x, %%q\n"
                             "  %%b: %s[64,48] = cast %%p {dtype=%s}\n"
                             "  %%u: %s[64,48] = mul %%b, %%c\n"
                             "  %%v: %s[64,48] = silu %%u {al=1}\n"
                             "  %%m: %s[64,1] = reduce_max %%v {axes=[1]}\n"
                             "  %%vw: %s[64,48] = cast %%v {dtype=%s}\n"
                             "  %%mw: %s[64,1] = cast %%m {dtype=%s}\n"
                             "  %%y: %s[64,48] = mul %%vw, %%mw\n"
                             "  %%s: %s[64,48] = sin %%y\n"
                             "  %%z: f32[64,48] = cast %%s {dtype=f32}\n"
                             "  %%l: f32[] = reduce_sum %%z {axes=[0,1], keepdims=0}\n"
                             "  output %%l\n"
                             "}\n";

START_TEST(extrema_of_what_memory_holds)
{
    static const char *const type[][2] = {{"bf16", "bf16"}, {"f16", "f32"}, {"f32", "f64"}};
    const char *t = type[_i][0], *w = type[_i][1];
    TestStep s;
    Diag *d = &s.diag;
    step_init(&s);
    s.opt.keep_grads = true;
    ck_assert_msg(step_compile_text(&s, format(maxima, t, t, t, t, t, t, w, w, w, w, w, w),
                                    &(Init){INIT_NORMAL, 1}), "%s", d->msg);
    double loss;
    step_run(&s, NULL, 1, &loss);
    Tensor grad = exec_tensor(s.exec, graph_root(&s.g, s.g.out[1]));
    for (int64_t i = 0; i < type_count(&grad.type); i++)
        ck_assert_msg(isfinite(tensor_f(&grad, i)), "%s in %s: %lld", t, w, (long long)i);
    step_free(&s);
}
END_TEST

/* A value in f64 that is only held in registers has the precision of f64. */
START_TEST(f64_between_f32)
{
    TestStep s;
    Diag *d = &s.diag;
    step_init(&s);
    ck_assert_msg(step_compile_text(&s,
                                    "graph {\n"
                                    "  input %x: f32[4]\n"
                                    "  param %q: f32[4]\n"
                                    "  %d: f64[4] = cast %x {dtype=f64}\n"
                                    "  %e: f64[4] = square %d\n"
                                    "  %s: f64[4] = sin %e\n"
                                    "  %z: f32[4] = cast %s {dtype=f32}\n"
                                    "  %y: f32[4] = mul %z, %q\n"
                                    "  %l: f32[] = reduce_sum %y {axes=[0], keepdims=0}\n"
                                    "  output %l\n"
                                    "}\n",
                                    &(Init){INIT_NORMAL, 1}), "%s", d->msg);
    fill(&s, "x", 1234.5677490234375);
    fill(&s, "q", 1);
    fill(&s, "lr", 0);
    fill(&s, "step", 1);
    ck_assert_msg(exec_step(s.exec, NULL, d), "%s", d->msg);
    Tensor loss = exec_tensor(s.exec, s.g.out[0]);
    ck_assert_double_eq_tol(tensor_f(&loss, 0), 4 * sin(1234.5677490234375 * 1234.5677490234375), 1e-6);
    step_free(&s);
}
END_TEST

/* Positions at which an image is sampled are in f32, though the product in front of them is in 16 bits: of
 * pixel 2 and an offset these would leave the pixel. */
START_TEST(positions_in_single)
{
    TestStep s;
    Diag *d = &s.diag;
    step_init(&s);
    s.opt.precision = PRECISION_BF16;
    ck_assert_msg(step_compile_text(&s,
                                    "graph {\n"
                                    "  input %x: f32[1,1]\n"
                                    "  param %q: f32[1,1]\n"
                                    "  const %second: f32[1,1,1] = {1}\n"
                                    "  const %third: f32[1,1,1] = {2}\n"
                                    "  const %ramp: f32[1,4,1] = {0, 1, 2, 3}\n"
                                    "  %p: f32[1,1] = matmul %x, %q\n"
                                    "  %o: f32[1,1,1] = reshape %p {shape=[1,1,1]}\n"
                                    "  %b: f32[1,1,1] = add %second, %o\n"
                                    "  %c: f32[1,1,1] = add %third, %o\n"
                                    "  %at: f32[1,2,1] = concat %b, %c {axis=1}\n"
                                    "  %y: f32[1,2,1] = grid_sample %ramp, %at {pixels=1}\n"
                                    "  %l: f32[] = reduce_sum %y {axes=[0,1,2], keepdims=0}\n"
                                    "  output %l\n"
                                    "}\n",
                                    &(Init){INIT_NORMAL, 1}), "%s", d->msg);
    fill(&s, "x", 1);
    fill(&s, "q", 0x1p-12);
    fill(&s, "lr", 0);
    fill(&s, "step", 1);
    ck_assert_msg(exec_step(s.exec, NULL, d), "%s", d->msg);
    Tensor loss = exec_tensor(s.exec, s.g.out[0]);
    ck_assert_double_eq(tensor_f(&loss, 0), 3 + 0x1p-11);
    step_free(&s);
}
END_TEST

/* ---- the loss scale ----------------------------------------------------------------------------- */

static const OnnxBind batch[] = {{"batch", 16}};

/* Returns a digest of the parameters and the optimizer's state, without that of the loss scale. */
static uint64_t weights_digest(TestStep *s)
{
    uint64_t h = 0;
    for (uint32_t i = 0; i < s->info.ntrained; i++) {
        const Trained *t = &s->info.trained[i];
        const Val v[] = {t->param, t->state[0], t->state[1]};
        for (int k = 0; k < 3 && v[k].i; k++) {
            Tensor x = exec_tensor(s->exec, v[k]);
            ck_assert(exec_read(s->exec, v[k], &s->diag));
            ck_assert_int_eq(x.type.dt, DT_F32);
            h = XXH64(x.data, (size_t)type_bytes(&x.type), h);
        }
    }
    return h;
}

static double scale_of(TestStep *s)
{
    ck_assert(exec_read(s->exec, s->info.scale, &s->diag));
    Tensor t = exec_tensor(s->exec, s->info.scale);
    return tensor_f(&t, 0);
}

/* Checks that from a far too large loss scale on, steps that overflow change no weights and halve the scale,
 * and that it doubles after three steps without overflow.  variant: an optimizer, from 6 on with clipping. */
static void check_overflow(int variant, const DeviceOps *device)
{
    static const OptimKind kinds[] = {OPTIM_ADAMW,     OPTIM_ADAM, OPTIM_LION,
                                      OPTIM_ADAFACTOR, OPTIM_SGD,  OPTIM_MOMENTUM};
    const double first = 0x1p27;
    TestStep s;
    double loss, scale = first;
    int skipped = 0, made = 0, grown = 0;
    step_init(&s);
    s.device = device;
    s.opt.import.bind = batch;
    s.opt.import.nbind = 1;
    s.opt.optim = kinds[variant % 6];
    s.opt.number.weight_decay = 0.1;
    s.opt.clip_norm = variant / 6 ? 1 : 0;
    s.opt.precision = PRECISION_FP16;
    s.opt.loss_scale = first;
    s.opt.scale_steps = 3;
    ck_assert_msg(step_compile(&s, CKC_SOURCE_DIR "/examples/mlp/model.onnx", NULL), "%s", s.diag.msg);
    for (int i = 0; i < 40; i++) {
        uint64_t before = weights_digest(&s);
        step_run(&s, NULL, 1, &loss);
        bool skip = scale_of(&s) == scale / 2;
        ck_assert(isfinite(loss));
        ck_assert_int_eq(weights_digest(&s) == before, skip);
        ck_assert(skip || scale_of(&s) == scale || (scale_of(&s) == 2 * scale && made % 3 == 2));
        grown += scale_of(&s) > scale;
        made = skip ? 0 : made + 1;
        skipped += skip;
        scale = scale_of(&s);
    }
    ck_assert_int_gt(skipped, 3);
    ck_assert_int_lt(skipped, 25);
    ck_assert_int_gt(grown, 2);
    step_free(&s);
}

START_TEST(overflow_recovers) { check_overflow(_i, NULL); }
END_TEST

START_TEST(overflow_recovers_on_cuda) { check_overflow(_i, &cuda_device); }
END_TEST

/* An overflow in a step is printed and the run goes on; weights are saved in the model's f32. */
START_TEST(overflow_is_said)
{
    char *out;
    ck_assert_int_eq(ckc(CKC_SOURCE_DIR "/examples/mlp/model.onnx --bind batch=16 --precision fp16 "
                         "--loss-scale 1e8 --steps 12 --save w.safetensors --output o"), 0);
    out = read_text("out");
    ck_assert_ptr_nonnull(strstr(out, "step 1      skipped: its gradients overflow in fp16; the loss "
                                      "scale is now 5e+07"));
    ck_assert_ptr_nonnull(strstr(out, "f16 (weights f32)"));
    free(out);
    int64_t skipped = json_number("o/report.json", "skipped_steps");
    ck_assert_int_gt(skipped, 0);
    ck_assert_int_lt(skipped, 12);
    ck_assert_int_eq(shell("grep -aqF '\"0.weight\":{\"dtype\":\"F32\"' w.safetensors"), 0);
    ck_assert_int_ne(shell("grep -aqE 'F16\"|loss_scale' w.safetensors"), 0);
}
END_TEST

/* --precision tf32 on a processor computes in f32 and says so; products planned for a GPU, which need not be
 * here, are in tf32. */
START_TEST(tf32_where_there_is)
{
    static const char mlp[] =
        CKC_SOURCE_DIR "/examples/mlp/model.onnx --bind batch=512 --steps 0 --output m.ckc";
    ckc_prints(format("%s --precision tf32", mlp), "this machine has no tf32: products are in f32");
    ck_assert_int_ne(shell("grep -q tf32=1 m.ckc/step.ckp"), 0);
    ckc_prints(format("%s --precision tf32 --device h200", mlp), "h200, tf32; times estimated");
    ck_assert_int_eq(shell("grep -q 'matmul.*tb=1, tf32=1' m.ckc/step.ckp"), 0);
    ck_assert_int_eq(shell("grep -q 'matmul.*ta=1, tf32=1' m.ckc/step.ckp"), 0); /* gradients as well */
}
END_TEST

Suite *suite_precision(void)
{
    Suite *s = suite_create("precision");
    TCase *c = tcase_create("autocast");
    tcase_add_loop_test(c, gradients_as_autocast, 0, 2 * NNETWORKS);
    suite_add_tcase(s, c);
    c = tcase_create("sums");
    tcase_add_loop_test(c, sums_in_single, 0, 4);
    tcase_add_test(c, statistics_in_single);
    suite_add_tcase(s, c);
    c = tcase_create("registers");
    tcase_add_loop_test(c, extrema_of_what_memory_holds, 0, 3);
    tcase_add_test(c, f64_between_f32);
    tcase_add_test(c, positions_in_single);
    suite_add_tcase(s, c);
    c = tcase_create("scale");
    tcase_add_loop_test(c, overflow_recovers, 0, 12);
    suite_add_tcase(s, c);
    c = tcase_create("cuda");
    tcase_add_unchecked_fixture(c, use_cuda, leave_cuda);
    tcase_add_loop_test(c, gradients_as_autocast_on_cuda, 0, 2 * NNETWORKS);
    tcase_add_loop_test(c, overflow_recovers_on_cuda, 6, getenv("CKC_LONG") ? 12 : 7);
    suite_add_tcase(s, c);
    c = command_case(s, "command");
    tcase_add_test(c, overflow_is_said);
    tcase_add_test(c, tf32_where_there_is);
    return s;
}
