/* test_cuda_step.c -- whole training steps as generated CUDA C (--emit cuda), run on the CPU through the
 * fiber shim and compared with the executor, and compiled by nvcc where it is installed. */
#include "tests.h"
#include "command.h"
#include "codegen/codegen.h"
#include "random_kernel.h"
#include "shim_object.h"
#include "step.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- a whole step -------------------------------------------------------------------------------- */

static ShimState step_state;
static uint64_t launches;

static bool launch_fibers(const void *kernel, void **arg, unsigned grid, unsigned block, unsigned shared)
{
    void *operand[FIBER_ARGS];
    for (int i = 0; i < FIBER_ARGS; i++)
        operand[i] = *(void **)arg[i];
    return fiber_launch_kernel(&step_state, kernel, operand, grid, block, shared, ++launches);
}

static void make_inputs(TestStep *s)
{
    StepInputs own = step_inputs(&s->g);
    Feed *feed = feed_open(&s->g, &own, NULL, FEED_FILE, 5, &s->diag);
    ck_assert_msg(feed != NULL, "%s", s->diag.msg);
    ck_assert(feed_step(feed, s->exec, 1, &s->diag));
    feed_close(feed);
    Tensor lr = exec_tensor(s->exec, own.lr), step = exec_tensor(s->exec, own.step);
    Tensor rng = exec_tensor(s->exec, own.rng);
    if (lr.data)
        tensor_set_f(&lr, 0, 0.01);
    if (step.data)
        tensor_set_i(&step, 0, 1);
    for (int i = 0; rng.data && i < 2; i++)
        tensor_set_i(&rng, i, i ? 1 : 77);
}

/* The start of the executor's arena, which is the address of the value at offset 0. */
static char *executor_memory(const TestStep *s)
{
    const Plan *p = &s->info.plan;
    for (uint32_t v = 1; v < s->g.nvals; v++) {
        Tensor t = exec_tensor(s->exec, (Val){v});
        if (t.data && p->offset[v] == 0)
            return t.data;
    }
    ck_abort_msg("nothing at offset 0");
}

/* Checks that parameters, states and outputs in `arena` are the executor's. */
static void compare_memory(const TestStep *s, char *arena)
{
    char msg[256];
    for (uint32_t v = 1; v < s->g.nvals; v++) {
        ValKind kind = s->g.vals[v].kind;
        Tensor want = exec_tensor(s->exec, (Val){v});
        bool out = kind == VAL_PARAM || kind == VAL_STATE;
        for (uint32_t i = 0; i < s->g.nout; i++)
            out |= s->g.out[i].i == v;
        if (!out || !want.data)
            continue;
        Tensor got = {want.type, arena + s->info.plan.offset[graph_root(&s->g, (Val){v}).i]};
        ck_assert_msg(tensor_close(&want, &got, 2e-4, msg), "%s: %s", s->g.vals[v].name, msg);
    }
}

/* A cost function with the workspace of the generated kernels, and no times. */
static bool choose_text(void *user, const Command *c, uint32_t n, StepCost *out, Diag *d)
{
    (void)user, (void)d;
    for (uint32_t i = 0; i < n; i++) {
        Arena a = {0};
        Launches l = {.arena = &a};
        int64_t most = 0;
        command_launches(&c[i], &l);
        for (uint32_t k = 0; k < l.nkernel; k++) {
            int64_t bytes = kernel_cuda_launch(l.kernel[k]).workspace;
            most = bytes > most ? bytes : most;
        }
        most += align_up(command_workspace_bytes(&c[i]), CUDA_WORKSPACE_ALIGN);
        out[i] = (StepCost){.c = {{NULL, most, -1}}, .n = 1, .same = 1};
        arena_free(&a);
    }
    return true;
}

/* Compiles the model's step for the executor and writes it as CUDA C to path.  update: weight gradients from
 * so many bytes on are split by rows; 0: the device's default, and gradients are outputs.  factor: their
 * factors from so many bytes on are computed in blocks; 0: the device's default. */
static void emit_step(TestStep *s, const char *model, const char *path, int64_t update, int64_t factor,
                      PrecisionKind precision)
{
    const OnnxBind bind = {"batch", precision == PRECISION_F32 ? 6 : 96};
    step_init(s);
    s->choose = choose_text;
    ck_assert(device_find(&s->info_of, "h200", &s->arena, &s->diag));
    s->opt.device = &s->info_of;
    s->opt.import.bind = &bind;
    s->opt.import.nbind = strstr(model, "static") == NULL;
    s->opt.optim = OPTIM_MOMENTUM; /* Adam would magnify the noise of gradients near 0 */
    s->opt.keep_grads = update == 0;
    s->opt.update_bytes = update;
    s->opt.factor_bytes = factor;
    s->opt.precision = precision;
    ck_assert_msg(step_compile(s, model, NULL), "%s: %s", model, s->diag.msg);
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    ck_assert_msg(codegen_cuda_schedule(f, &s->info.plan, &s->diag), "%s", s->diag.msg);
    fclose(f);
}

static void run_emitted(void *dl, char *arena)
{
    void *(*new_step)(void), (*close_step)(void *);
    bool (*open_step)(void *, void *, void *, size_t, void *), (*run_step)(void *);
    *(void **)&new_step = dlsym(dl, "new_step");
    *(void **)&open_step = dlsym(dl, "ckc_open");
    *(void **)&run_step = dlsym(dl, "ckc_micro");
    *(void **)&close_step = dlsym(dl, "ckc_close");
    void *c = new_step();
    ck_assert(open_step(c, arena, NULL, 0, NULL));
    ck_assert(run_step(c));
    close_step(c);
    free(c);
}

/* The emitted step, run by fibers and a simulated cuBLASLt, gives the executor's results. */
START_TEST(whole_step_matches_executor)
{
    static const struct {
        const char *shared;
        int64_t update, factor;
        PrecisionKind precision;
    } step[] = {{NULL, 0, 0, PRECISION_F32},
                {"fixtures/torch-oracle/gpt_tiny_tied/model_static.onnx", 0, 0, PRECISION_F32},
                {"fixtures/torch-oracle/conv_bn_pool/model_static.onnx", 0, 0, PRECISION_F32},
                {NULL, 2048, 0, PRECISION_F32},
                {NULL, 0, 256, PRECISION_F32},
                {"fixtures/torch-oracle/gpt_tiny_tied/model_static.onnx", 0, 256, PRECISION_F32},
                {"fixtures/torch-oracle/conv_bn_pool/model_static.onnx", 0, 256, PRECISION_F32},
                {NULL, 0, 1, PRECISION_BF16}};
    const char *file = step[_i].shared ? shared_path(step[_i].shared)
                                       : CKC_SOURCE_DIR "/examples/mlp/model.onnx";
    TestStep s;
    if (!file)
        return;
    emit_step(&s, file, "k.c", step[_i].update, step[_i].factor, step[_i].precision);
    if (step[_i].precision == PRECISION_BF16) /* products of blocks are summed to weight gradients in f32 */
        ck_assert_int_eq(shell("grep -q '{\"bf16\", \"f32\", 0, 1, ' k.c"), 0);
    FILE *f = fopen("k.c", "a");
    fputs("ShimState *shim;\nCkc *new_step(void) { return calloc(1, sizeof(Ckc)); }\n", f);
    fclose(f);
    step_state.launch = launch_fibers;
    void *dl = shim_load(&step_state, false);
    size_t bytes = (size_t)*(const int64_t *)dlsym(dl, "ckc_arena_bytes");
    ck_assert_uint_eq(bytes, (size_t)s.info.plan.arena_bytes);
    make_inputs(&s);
    char *arena = aligned_alloc(256, (bytes + 255) / 256 * 256);
    memcpy(arena, executor_memory(&s), bytes);
    run_emitted(dl, arena);
    ck_assert_msg(exec_step(s.exec, NULL, &s.diag), "%s", s.diag.msg);
    compare_memory(&s, arena);
    free(arena);
    shim_unload(dl);
    step_free(&s);
}
END_TEST

static double emitted_loss[8];

static void keep_loss(int64_t step, double loss) { emitted_loss[step] = loss; }

/* The program that --emit cuda writes, with its weights and data, has the CPU's losses, with and without
 * micro-batches, and refuses files that are short or missing. */
START_TEST(emitted_program_trains)
{
    bool (*train)(const char *, const char *, void (*)(int64_t, double));
    char args[512];
    snprintf(args, sizeof args,
             CKC_SOURCE_DIR "/examples/mlp/model.onnx --bind batch=8 --lr 0.05 --steps 5 %s",
             _i ? "--accumulate 3 --clip-norm 1" : "");
    ckc_accepts(format("%s --json --output c", args));
    json_t *report = read_json("out"), *losses = json_object_get(report, "losses");
    ckc_accepts(format("%s --device h200 --emit cuda --quiet --output g", args));
    ck_assert_int_eq(shell("(echo '#define CKC_LIBRARY'; cat g/kernels.cu; echo 'ShimState *shim;') >k.c"),
                     0);
    step_state.launch = launch_fibers;
    void *dl = shim_load(&step_state, false);
    *(void **)&train = dlsym(dl, "ckc_train");
    ck_assert(train("g/weights.bin", "g/data.bin", keep_loss));
    for (int i = 0; i < 5; i++)
        ck_assert_double_eq_tol(emitted_loss[i + 1], json_number_value(json_array_get(losses, (size_t)i)),
                                1e-5);
    ck_assert_double_lt(emitted_loss[5], emitted_loss[1]);
    ck_assert_int_eq(shell("head -c 100 g/weights.bin >short.bin"), 0);
    ck_assert(!train("short.bin", "g/data.bin", keep_loss));
    ck_assert(!train("g/weights.bin", "g/none.bin", keep_loss));
    shim_unload(dl);
    json_decref(report);
}
END_TEST

static int count_of(const char *text, const char *what)
{
    int n = 0;
    for (const char *s = text; (s = strstr(s, what)) != NULL; s += strlen(what))
        n++;
    return n;
}

/* One kernel copies weights and biases of all sizes to 16 bits, small ones in one launch, and one updates
 * them: there are few kernels, and hardly more launches than steps. */
START_TEST(few_kernels_and_launches)
{
    ckc_accepts(CKC_SOURCE_DIR "/examples/decoder/model.onnx --bind batch=32,seq=256 --precision bf16 "
                               "--device h200 --steps 0 --emit cuda --quiet --output g");
    char *text = read_text("g/kernels.cu");
    int n = count_of(text, "ok = ok && ckc_"), steps = (int)json_number("g/report.json", "steps");
    ck_assert_int_gt(steps, 100);
    ck_assert_int_le(n, steps + steps / 20);
    ck_assert_int_le(count_of(text, "\n/* kernel ck_"), 40);
    ck_assert_int_gt(count_of(text, "ckc_launch_table(c, "), 0);
    free(text);
}
END_TEST

/* The updates of all running means and variances are one launch; with micro-batches they are not. */
START_TEST(running_statistics_are_one_launch)
{
    for (int micro = 1; micro <= 2; micro++) {
        char line[512];
        snprintf(line, sizeof line,
                 CKC_SOURCE_DIR "/examples/resnet18/model.onnx --bind batch=2 --init kaiming --accumulate %d "
                                "--device h200 --steps 0 --emit cuda --quiet --output g",
                 micro);
        ckc_accepts(line);
        char *text = read_text("g/kernels.cu");
        ck_assert_int_eq(count_of(text, "{ /* 40 calls"), micro == 1 ? 1 : 0);
        free(text);
    }
}
END_TEST

/* The CUDA text of a kernel that adds one row of 384 elements to each of `rows` rows, as rotary embeddings do
 * for heads of queries and keys; the caller frees it. */
static char *add_rows(int64_t rows)
{
    Arena a = {0};
    DType f32[] = {DT_F32, DT_F32, DT_F32};
    Kernel k = {.arena = &a, .noperands = 3, .operand = f32};
    Type x = type_make(DT_F32, 2, (int64_t[]){rows, 384}), row = type_make(DT_F32, 1, &x.dim[1]);
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    k_space(&k, &x, 0);
    k_store(&k, 2, k_op(&k, OP_add, k_load(&k, 0, &x), k_load(&k, 1, &row), 0));
    kernel_print_cuda(&k, "k", f);
    fclose(f);
    arena_free(&a);
    return text;
}

/* Kernels with different numbers of rows have different texts: calls of one text may share a launch, which
 * has as many blocks for each as the largest needs, and a smaller one would leave its operands. */
START_TEST(calls_stay_in_their_operands)
{
    char *few = add_rows(2), *many = add_rows(4);
    ck_assert_str_ne(few, many);
    free(few);
    free(many);
}
END_TEST

/* The emitted program copies rows that are 2 GiB apart, as a concatenation of large volumes has them, and a
 * single such row. */
START_TEST(far_rows_are_copied)
{
    enum { BYTES = 64 };
    const int64_t pitch = (int64_t)INT32_MAX + 1;
    char *arena = mmap(NULL, (size_t)pitch + 3 * BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    bool (*copy)(char *, int64_t, int64_t, int64_t, int64_t, int64_t);
    FILE *f = fopen("k.c", "w");
    for (int i = 0; prelude_host[i]; i++)
        fputs(prelude_host[i], f);
    fputs("bool copy(char *arena, int64_t to, int64_t pitch, int64_t from, int64_t bytes, int64_t rows)\n"
          "{\n    Ckc c = {.arena = arena};\n    return ckc_copy(&c, to, pitch, from, bytes, rows);\n}\n"
          "ShimState *shim;\n", f);
    fclose(f);
    void *dl = shim_load(&step_state, false);
    *(void **)&copy = dlsym(dl, "copy");
    ck_assert(arena != MAP_FAILED);
    memset(arena, 1, BYTES);
    memset(arena + BYTES, 2, BYTES);
    ck_assert(copy(arena, 2 * BYTES, pitch, BYTES, BYTES, 1) && arena[2 * BYTES] == 2);
    ck_assert(copy(arena, 2 * BYTES, pitch, 0, BYTES, 2));
    ck_assert(arena[2 * BYTES] == 1 && arena[2 * BYTES + pitch] == 2);
    munmap(arena, (size_t)pitch + 3 * BYTES);
    shim_unload(dl);
}
END_TEST

/* The emitted step, with an instruction of sm_90a alone, compiles with nvcc and the real headers as main.h
 * says, where they are installed. */
START_TEST(whole_step_compiles_with_nvcc)
{
    TestStep s;
    if (shell("nvcc --version >/dev/null 2>&1") != 0) {
        skipped("nvcc is not there");
        return;
    }
    emit_step(&s, CKC_SOURCE_DIR "/examples/mlp/model.onnx", "k.c", 0, 0, PRECISION_F32);
    FILE *f = fopen("k.c", "a");
    fputs("__global__ void fence(void) { asm volatile(\"wgmma.fence.sync.aligned;\"); }\n", f);
    fclose(f);
    ck_assert_int_eq(
        shell("nvcc -x cu -gencode arch=compute_90a,code=sm_90a --fmad=false k.c -lcublasLt -o k"), 0);
    step_free(&s);
}
END_TEST

Suite *suite_cuda_step(void)
{
    Suite *s = suite_create("cuda_step");
    TCase *t = tcase_create("step");
    tcase_add_checked_fixture(t, make_folder, remove_folder);
    tcase_add_loop_test(t, whole_step_matches_executor, 0, 8);
    tcase_add_loop_test(t, emitted_program_trains, 0, 2);
    tcase_add_test(t, few_kernels_and_launches);
    tcase_add_test(t, running_statistics_are_one_launch);
    tcase_add_test(t, calls_stay_in_their_operands);
    tcase_add_test(t, far_rows_are_copied);
    tcase_add_test(t, whole_step_compiles_with_nvcc);
    suite_add_tcase(s, t);
    return s;
}
