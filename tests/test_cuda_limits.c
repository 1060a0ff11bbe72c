/* test_cuda_limits.c -- limits of GPUs and of NVIDIA's libraries (shared memory, contexts, copies, old
 * versions, alignment of products), on those of fake_cuda/. */
#include "tests.h"
#include "codegen/codegen.h"
#include "command.h"
#include "conv_samples.h"
#include "ir/attrs.h"
#include "nvrtc.h"
#include "on_cuda.h"
#include "op_samples.h"
#include "runtime/cuda/profile.h"
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- shared memory ------------------------------------------------------------------------------ */

/* Attention of 24 rows and heads of 128 in f32, whose gradient takes 102,144 bytes of shared memory with the
 * larger tiles. */
static const char attention[] =
    "graph {\n  input %x: f32[1,1,24,128]\n  param %w: f32[128,128]\n  param %v: f32[128,128]\n"
    "  %q: f32[1,1,24,128] = matmul %x, %w\n  %k: f32[1,1,24,128] = matmul %x, %v\n"
    "  %t: f32[1,1,128,24] = transpose %k {perm=[0,1,3,2]}\n  %s: f32[1,1,24,24] = matmul %q, %t\n"
    "  %p: f32[1,1,24,24] = softmax %s {axis=3}\n  %y: f32[1,1,24,128] = matmul %p, %k\n"
    "  %d: f32[1,1,24,128] = mul %y, %y\n  %l: f32[] = reduce_sum %d {axes=[0,1,2,3], keepdims=0}\n"
    "  output %l\n}\n";

/* Checks that the GPU's loss of the graph is the processor's; returns how many steps of the GPU's plan have
 * small tiles. */
static int small_tiles_of(const char *graph)
{
    double loss[2];
    int small = 0;
    for (int i = 0; i < 2; i++) {
        TestStep s;
        step_init(&s);
        s.device = i ? &cuda_device : NULL;
        ck_assert_msg(step_compile_text(&s, graph, &(Init){INIT_NORMAL, 0.1}), "%s", s.diag.msg);
        step_run(&s, NULL, 1, &loss[i]);
        for (uint32_t k = 0; k < s.info.plan.nstep && i; k++)
            small += s.info.plan.step[k].choice && !strcmp(s.info.plan.step[k].choice, cuda_small_tiles);
        step_free(&s);
    }
    ck_assert_double_eq_tol(loss[0], loss[1], 1e-5 * loss[0]);
    return small;
}

/* On a GPU without that much shared memory the plan chooses small tiles for the gradient of attention. */
START_TEST(attention_fits_small_gpus)
{
    setenv("FAKE_CUDA_CAPABILITY", "89", 1);
    ck_assert_int_eq(small_tiles_of(attention), 1);
    unsetenv("FAKE_CUDA_CAPABILITY");
}
END_TEST

/* A GPU refuses a plan made on one with more shared memory, unless kernels may be chosen anew. */
START_TEST(attention_of_a_larger_gpu)
{
    const Init init = {INIT_NORMAL, 0.1};
    TestStep s;
    double loss[2];
    int64_t other = 0;
    ExecOptions o = {.device = &cuda_device, .init = &init, .seed = 1};
    setenv("FAKE_CUDA_CAPABILITY", "80", 1);
    step_init(&s);
    s.device = &cuda_device;
    ck_assert_msg(step_compile_text(&s, attention, &init), "%s", s.diag.msg);
    step_run(&s, NULL, 1, &loss[0]);
    exec_close(s.exec);
    setenv("FAKE_CUDA_CAPABILITY", "89", 1);
    ck_assert_ptr_null(s.exec = exec_open(&s.info.plan, &o, &s.diag));
    s.diag = (Diag){0};
    o.rechosen = &other;
    ck_assert_msg((s.exec = exec_open(&s.info.plan, &o, &s.diag)) != NULL, "%s", s.diag.msg);
    step_run(&s, NULL, 1, &loss[1]);
    ck_assert_double_eq_tol(loss[0], loss[1], 1e-5 * loss[0]);
    unsetenv("FAKE_CUDA_CAPABILITY");
    step_free(&s);
}
END_TEST

/* A softmax of rows of 102,400 bytes, read three times, leaves room for its block's partial results in the
 * shared memory of the smallest GPU. */
START_TEST(rows_fit_small_gpus)
{
    enum { PARTS = 256 };
    Arena a = {0};
    DType bf16[] = {DT_BF16, DT_BF16};
    Type x = type_make(DT_BF16, 2, (int64_t[]){1024, 51200});
    Kernel k = {.arena = &a, .noperands = 2, .operand = bf16};
    k_space(&k, &x, 2);
    int v = k_load(&k, 0, &x), top = k_reduce(&k, K_MAX, v);
    int e = k_op(&k, OP_exp, k_op(&k, OP_sub, v, top, 0), 0, 0);
    k_store(&k, 1, k_op(&k, OP_div, e, k_reduce(&k, K_SUM, e), 0));
    ck_assert_uint_le(kernel_cuda_launch(&k).phase[0].shared, CUDA_SHARED_LEAST - PARTS);
    arena_free(&a);
}
END_TEST

START_TEST(convolutions_fit_small_gpus)
{
    static const Op op[] = {OP_conv, OP_conv_bwd_data, OP_conv_bwd_weights};
    for (int i = 0; i < 3 * conv_samples(); i++) {
        Arena a = {0};
        Sample s;
        Kernel k;
        conv_sample(&s, op[i % 3], DT_BF16, i / 3);
        const Node *n = graph_def(&s.g, s.out[0]);
        k_init(&k, &a, &s.g, n);
        ck_assert(op_table[s.op]->lower(&k, &s.g, n));
        k.wgmma = kernel_cuda_has_wgmma(&k);
        CudaLaunch l = kernel_cuda_launch(&k);
        for (int p = 0; p < l.n; p++)
            ck_assert_uint_le(l.phase[p].shared, CUDA_SHARED_LEAST);
        sample_free(&s);
        arena_free(&a);
    }
}
END_TEST

/* The gradient of a bias in wide heads of f32 has enough registers on an A100. */
START_TEST(bias_gradients_do_not_spill)
{
    Sample s;
    Arena a = {0};
    Kernel k;
    const Kernel *kernels[] = {&k};
    int func;
    char *source = NULL;
    size_t size = 0;
    sample_make_attention(&s, OP_attention_bias_grad, DT_F32, 0, 160, 160);
    k_init(&k, &a, &s.g, graph_def(&s.g, s.out[0]));
    ck_assert(op_table[s.op]->lower(&k, &s.g, graph_def(&s.g, s.out[0])));
    FILE *f = open_memstream(&source, &size);
    codegen_cuda(f, kernels, 1, &func);
    fclose(f);
    char *log = nvrtc_report(source, "sm_80", NVRTC_VERBOSE);
    ck_assert_msg(!log || strstr(log, " 0 bytes spill stores"), "%.2000s", log);
    free(log);
    free(source);
    sample_free(&s);
    arena_free(&a);
}
END_TEST

/* Neighbouring elements have a thread each, also where a chunk, a row or a plane of them is a processor's
 * item. */
START_TEST(neighbours_have_threads)
{
    enum { COLUMNS = 2 * 3 * 8 * 64 };
    static const char text[] =
        "graph {\n  input %x: f32[2,3,8,500,64]\n  input %u: f32[2,3,8,4,64]\n  input %i: i64[2,3,8,4,64]\n"
        "  %a: f32[2,3,8,500,64] = cumsum %x {axis=3}\n"
        "  %b: f32[2,3,8,500,64] = scatter_elements %x, %i, %u {axis=3, reduction=3}\n"
        "  %p: f32[2,3,4,250,32], %q: u8[2,3,4,250,32] = max_pool %b {kernel=[2,2,2], strides=[2,2,2], "
        "pads=[0,0,0,0,0,0], dilations=[1,1,1], out=[4,250,32]}\n"
        "  %d: f32[2,3,8,500,64] = max_pool_bwd %q, %p {kernel=[2,2,2], strides=[2,2,2], "
        "pads=[0,0,0,0,0,0], dilations=[1,1,1], out=[4,250,32], shape=[2,3,8,500,64]}\n"
        "  input %l: f32[1,64]\n  input %j: i64[3072,2]\n  input %w: f32[3072,2]\n"
        "  %r: f32[1,3072] = resample %l, %j, %w {axis=1}\n"
        "  output %a\n  output %d\n  output %r\n}\n";
    Arena a = {0};
    Diag d = {0};
    Graph g;
    graph_init(&g, &a, &d);
    ck_assert_msg(graph_parse(&g, text, &d), "%s", d.msg);
    for (uint32_t i = 0; i < g.nnodes; i++) {
        const Node *n = &g.nodes[i];
        Kernel k;
        if (n->op == OP_NONE)
            continue;
        k_init(&k, &a, &g, n);
        ck_assert(node_def(n)->lower(&k, &g, n));
        CudaPhase l = kernel_cuda_launch(&k).phase[0];
        ck_assert_uint_ge(l.grid * l.block, COLUMNS);
    }
    arena_free(&a);
}
END_TEST

/* Rows that several blocks or warps have: their sums, their largest elements, and what is written to them,
 * also backward, give the processor's losses. */
START_TEST(long_rows_have_the_processors_losses)
{
    static const char graph[] =
        "graph {\n  param %w: f32[2,9000]\n  input %x: f32[2,9000]\n"
        "  %m: f32[2,9000] = mul %x, %w\n  %c: f32[2,9000] = cumsum %m {axis=1}\n"
        "  %h: f32[2,700] = slice %m {start=[0,0], step=[1,1], size=[2,700]}\n"
        "  %i: i64[2,600] = topk %h {axis=1, k=600, largest=1}\n"
        "  %v: f32[2,600] = gather_elements %c, %i {axis=1}\n"
        "  %s: f32[2,9000] = scatter_elements %m, %i, %v {axis=1, reduction=1}\n"
        "  %t: i64[2,600,1] = reshape %i {shape=[2,600,1]}\n"
        "  %n: f32[2,9000] = scatter_nd %s, %t, %v {axis=1, reduction=1}\n"
        "  %d: f32[2,9000] = mul %n, %n\n  %l: f32[] = reduce_sum %d {axes=[0,1], keepdims=0}\n"
        "  output %l\n}\n";
    enum { STEPS = 2 };
    double loss[2][STEPS];
    for (int i = 0; i < 2; i++) {
        TestStep s;
        step_init(&s);
        s.device = i ? &cuda_device : NULL;
        ck_assert_msg(step_compile_text(&s, graph, &(Init){INIT_NORMAL, 0.1}), "%s", s.diag.msg);
        step_run(&s, NULL, STEPS, loss[i]);
        step_free(&s);
    }
    for (int i = 0; i < STEPS; i++)
        ck_assert_double_eq_tol(loss[0][i], loss[1][i], 1e-5 * loss[0][i]);
}
END_TEST

/* A sum of more transposed matrices than shared memory holds at once gives the processor's loss. */
START_TEST(transposed_operands_fit)
{
    enum { MATRICES = 12 };
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    fprintf(f, "graph {\n  input %%x: f32[40,40]\n");
    for (int i = 0; i < MATRICES; i++)
        fprintf(f, "  param %%w%d: f32[40,40]\n", i);
    fprintf(f, "  %%y0: f32[40,40] = mul %%x, %%x\n");
    for (int i = 0; i < MATRICES; i++)
        fprintf(f, "  %%t%d: f32[40,40] = transpose %%w%d {perm=[1,0]}\n"
                "  %%y%d: f32[40,40] = add %%y%d, %%t%d\n", i, i, i + 1, i, i);
    fprintf(f, "  %%d: f32[40,40] = mul %%y12, %%y12\n"
               "  %%l: f32[] = reduce_sum %%d {axes=[0,1], keepdims=0}\n  output %%l\n}\n");
    fclose(f);
    ck_assert_int_eq(small_tiles_of(text), 0);
    free(text);
}
END_TEST

/* A GPU that fails while data is trained on is not blamed on the data. */
START_TEST(failures_are_not_the_datas)
{
    enum { ROWS = 8, COLUMNS = 16 };
    static int64_t target[ROWS];
    const Type rows = type_make(DT_I64, 1, (int64_t[]){ROWS});
    write_equal_rows("rows.npz", ROWS, COLUMNS, 1, (Tensor){rows, target});
    ckc_fails("export FAKE_CUDA=lost;",
              CKC_SOURCE_DIR "/examples/mlp/model.onnx --bind batch=8 -q --device cuda --data rows.npz", 4,
              "model.onnx: cuda: cuStreamSynchronize");
}
END_TEST

/* ---- threads ------------------------------------------------------------------------------------ */

static void *use_step(void *step)
{
    double loss[3];
    step_run(step, NULL, 3, loss);
    step_free(step);
    return NULL;
}

static const char one[] = "graph {\n  input %x: f32[4]\n  param %w: f32[]\n  %y: f32[4] = mul %x, %w\n"
                          "  %l: f32[] = reduce_sum %y {axes=[0], keepdims=0}\n  output %l\n}\n";

/* A step may run in another thread than the one that opened it; opening leaves no context current there. */
START_TEST(any_thread_may_run_a_step)
{
    TestStep s;
    pthread_t other;
    int (*current)(void);
    step_init(&s);
    s.device = &cuda_device;
    ck_assert_msg(step_compile_text(&s, one, &(Init){INIT_NORMAL, 0.1}), "%s", s.diag.msg);
    *(void **)&current = dlsym(dlopen(CKC_FAKE_CUDA "/libcuda.so.1", RTLD_NOW | RTLD_NOLOAD),
                               "fake_cuda_current");
    ck_assert_int_eq(current(), 0);
    ck_assert_int_eq(pthread_create(&other, NULL, use_step, &s), 0);
    pthread_join(other, NULL);
}
END_TEST

/* ---- copies ------------------------------------------------------------------------------------- */

/* A concatenation whose rows are further apart than one copy call allows gives the same loss. */
START_TEST(far_rows_are_copied)
{
    static const char joined[] =
        "graph {\n  input %x: f32[4,8]\n  param %w: f32[4,24]\n  %a: f32[4,8] = exp %x\n"
        "  %b: f32[4,24] = tanh %w\n  %c: f32[4,32] = concat %a, %b {axis=1}\n"
        "  %s: f32[4,32] = softmax %c {axis=1}\n  %d: f32[4,32] = mul %s, %c\n"
        "  %l: f32[] = reduce_sum %d {axes=[0,1], keepdims=0}\n  output %l\n}\n";
    double loss[2];
    for (int i = 0; i < 2; i++) {
        TestStep s;
        step_init(&s);
        s.device = &cuda_device;
        setenv("FAKE_CUDA_PITCH", i ? "64" : "", 1);
        ck_assert_msg(step_compile_text(&s, joined, &(Init){INIT_NORMAL, 0.1}), "%s", s.diag.msg);
        step_run(&s, NULL, 1, &loss[i]);
        step_free(&s);
    }
    unsetenv("FAKE_CUDA_PITCH");
    ck_assert_double_eq(loss[0], loss[1]);
}
END_TEST

/* ---- CUDA 11 ------------------------------------------------------------------------------------ */

START_TEST(an_old_compiler_is_told_more)
{
    TestStep s;
    double loss;
    setenv("FAKE_NVRTC", "11", 1);
    setenv("FAKE_CUDA", "old_driver", 1);
    setenv("FAKE_CUDA_CAPABILITY", "90", 1);
    step_init(&s);
    s.device = &cuda_device;
    ck_assert_msg(step_compile_text(&s, one, &(Init){INIT_NORMAL, 0.1}), "%s", s.diag.msg);
    step_run(&s, NULL, 1, &loss);
    step_free(&s);
}
END_TEST

/* ---- a GPU that does not say how fast it is ------------------------------------------------------- */

START_TEST(rates_without_clocks)
{
    Arena a = {0};
    Diag d = {0};
    DeviceInfo info;
    setenv("FAKE_CUDA", "no_clocks", 1);
    ck_assert_msg(cuda_device.info(0, &info, &a, &d), "%s", d.msg);
    ck_assert_double_gt(info.memory_bandwidth, 1);
    ck_assert_double_gt(info.flops[UNIT_VECTOR][DT_F32], 1);
    arena_free(&a);
}
END_TEST

/* ---- products -------------------------------------------------------------------------------- */

/* On a GPU in 16 bits ten classes are padded to sixteen, of which the last six have no effect: losses are the
 * processor's for plain logits, for logits with a bias and for capped ones. */
START_TEST(odd_classes)
{
    static const char form[] =
        "graph {\n  input %%x: f32[256,8]\n  input %%t: i64[256] as \"target\"\n  param %%v: f32[8,8]\n"
        "  param %%w: f32[8,10]\n  param %%b: f32[10]\n  const %%cap: f32[] = {3}\n"
        "  %%a: f32[256,8] = matmul %%x, %%v\n  %%p: f32[256,10] = matmul %%a, %%w\n"
        "  %%q: f32[256,10] = add %%p, %%b\n  %%u: f32[256,10] = div %%q, %%cap\n"
        "  %%z: f32[256,10] = tanh %%u\n  %%y: f32[256,10] = mul %%z, %%cap\n"
        "  %%l: f32[256], %%top: f32[256], %%e: f32[256] = cross_entropy %%%c, %%t {axis=1}\n"
        "  %%s: f32[] = reduce_sum %%l {axes=[0], keepdims=0}\n  output %%s\n}\n";
    enum { STEPS = 3 };
    double loss[2][STEPS];
    char text[2 * sizeof form];
    snprintf(text, sizeof text, form, "pqy"[_i]);
    for (int i = 0; i < 2; i++) {
        TestStep s;
        int padded = 0;
        step_init(&s);
        s.device = i ? &cuda_device : NULL;
        s.opt.precision = PRECISION_BF16;
        ck_assert_msg(step_compile_text(&s, text, &(Init){INIT_NORMAL, 0.5}), "%s", s.diag.msg);
        for (uint32_t k = 0; k < s.g.norder; k++) {
            const Node *n = &s.g.nodes[s.g.order[k].i];
            padded += n->op == OP_cross_entropy && ((const CrossEntropyAttrs *)n->attr)->count == 10;
        }
        ck_assert_int_eq(padded, i);
        step_run(&s, NULL, STEPS, loss[i]);
        step_free(&s);
    }
    for (int i = 0; i < STEPS; i++)
        ck_assert_double_eq_tol(loss[0][i], loss[1][i], 1e-4 * fabs(loss[0][i]));
}
END_TEST

/* A profile of the GPU, opened with its context current, as each process that plans has one. */
static CudaProfile *open_profile(KernelCache *c)
{
    static DeviceInfo info;
    static Arena a;
    Diag d = {0};
    ck_assert_msg(cuda_device.info(0, &info, &a, &d), "%s", d.msg);
    CudaProfile *p = cuda_profile_open(&(ProfileOptions){.device = &info, .here = true, .cache = c}, &d);
    ck_assert_msg(p && cuda_context_enter(&p->on, &d), "%s", d.msg);
    return p;
}

/* The algorithms that the profile knows for a product with so many columns, asked of the library, which names
 * ones with that word, if there are none; their times are then set to 10 ns and more. */
static Known *time_product(CudaProfile *p, int columns, const char *word)
{
    AlignedGemm of;
    Diag d = {0};
    memset(&of, 0, sizeof of);
    of.g = (Gemm){DT_F32, DT_F32, .m = 8, .n = columns, .k = 8, .lda = 8, .ldb = columns, .ldy = columns,
                  .batch = 1};
    for (int o = 0; o < GEMM_OPERANDS; o++)
        of.align[o] = 256;
    setenv("FAKE_CUBLASLT_WORD", word, 1);
    Known *k = (Known *)algos_of(p, &of, &d);
    unsetenv("FAKE_CUBLASLT_WORD");
    ck_assert_msg(k != NULL, "%s", d.msg);
    for (int i = 0; i < k->n; i++)
        k->ns[i] = 10 + i;
    return k;
}

/* If two processes choose algorithms for a product at the same time, those of the first to write count for
 * both; algorithms that only one of them chose are all kept. */
START_TEST(algorithms_of_two_runs)
{
    KernelCache c;
    CudaProfile *p[3];
    Diag d = {0};
    ck_assert_msg(kernel_cache_open(&c, "c", &d), "%s", d.msg);
    for (int i = 0; i < 2; i++) {
        p[i] = open_profile(&c);
        time_product(p[i], 8, i ? "7" : "6");
        time_product(p[i], i ? 24 : 16, "5");
    }
    ck_assert_mem_ne(&p[0]->known[0].algo[0], &p[1]->known[0].algo[0], sizeof(ProductAlgo));
    ck_assert_msg(algos_keep(p[0], &d) && algos_keep(p[1], &d), "%s", d.msg);
    p[2] = open_profile(&c);
    ck_assert_uint_eq(p[2]->nknown, 3);
    for (int i = 1; i < 3; i++) {
        const Known *k = time_product(p[i], 8, "4");
        ck_assert(k->kept);
        ck_assert_int_eq(k->n, p[0]->known[0].n);
        ck_assert_mem_eq(k->algo, p[0]->known[0].algo, (size_t)k->n * sizeof *k->algo);
    }
    for (int i = 0; i < 3; i++) {
        cuda_context_leave(&p[i]->on, true);
        cuda_profile_close(p[i]);
    }
    kernel_cache_close(&c);
}
END_TEST

Suite *suite_cuda_limits(void)
{
    Suite *s = suite_create("cuda_limits");
    TCase *t = tcase_create("limits");
    if (!getenv("CKC_GPU")) {
        tcase_add_unchecked_fixture(t, use_cuda, leave_cuda);
        tcase_add_checked_fixture(t, make_folder, remove_folder);
        tcase_add_test(t, attention_fits_small_gpus);
        tcase_add_test(t, attention_of_a_larger_gpu);
        tcase_add_test(t, rows_fit_small_gpus);
        tcase_add_test(t, convolutions_fit_small_gpus);
        tcase_add_test(t, bias_gradients_do_not_spill);
        tcase_add_test(t, neighbours_have_threads);
        tcase_add_test(t, long_rows_have_the_processors_losses);
        tcase_add_test(t, transposed_operands_fit);
        tcase_add_test(t, failures_are_not_the_datas);
        tcase_add_test(t, far_rows_are_copied);
        tcase_add_test(t, any_thread_may_run_a_step);
        tcase_add_test(t, an_old_compiler_is_told_more);
        tcase_add_test(t, rates_without_clocks);
        tcase_add_loop_test(t, odd_classes, 0, 3);
        tcase_add_test(t, algorithms_of_two_runs);
    }
    suite_add_tcase(s, t);
    return s;
}
