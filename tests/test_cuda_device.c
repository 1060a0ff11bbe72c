/* test_cuda_device.c -- runtime/cuda/ without a GPU: on the libraries of fake_cuda/, which run enqueued work
 * on this processor and end the test if a program does what it must not. */
#include "tests.h"
#include "command.h"
#include "networks.h"
#include "on_cuda.h"
#include "random_kernel.h"
#include "runtime/cuda/driver.h"
#include "runtime/data.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char mlp[] = CKC_SOURCE_DIR "/examples/mlp/model.onnx --bind batch=8 --quiet --output m.ckc";

/* ---- declarations ------------------------------------------------------------------------------- */

/* Writes a C file that does not compile if the toolkit's headers declare something else than symbols.def. */
static void write_comparison(const char *path)
{
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fputs(
        "#define __CUDA_API_VERSION_INTERNAL\n#include <cuda.h>\n#include <cublasLt.h>\n"
        "#include <nvrtc.h>\n#include <stddef.h>\n"
        "#define SAME(name, result, ...) _Static_assert(__builtin_types_compatible_p(__typeof__(&name), \\\n"
        "    result (*)(__VA_ARGS__)), #name);\n",
        f);
#define CU(name, ...) fprintf(f, "SAME(%s, CUresult, %s)\n", #name, #__VA_ARGS__);
#define RTC(name, ...) fprintf(f, "SAME(%s, nvrtcResult, %s)\n", #name, #__VA_ARGS__);
#define LT(name, ...) fprintf(f, "SAME(%s, cublasStatus_t, %s)\n", #name, #__VA_ARGS__);
#define CONSTANT(name, value) fprintf(f, "_Static_assert(%s == %d, \"%s\");\n", #name, value, #name);
#include "runtime/cuda/symbols.def"
#define FIELD(name)                                                                                          \
    fprintf(f, "_Static_assert(offsetof(CUDA_MEMCPY2D, %s) == %zu, \"%s\");\n", #name,                       \
            offsetof(CUDA_MEMCPY2D, name), #name);
    FIELD(srcXInBytes)
    FIELD(srcY)
    FIELD(srcMemoryType)
    FIELD(srcHost)
    FIELD(srcDevice) FIELD(srcArray) FIELD(srcPitch) FIELD(dstXInBytes) FIELD(dstY) FIELD(dstMemoryType)
        FIELD(dstHost) FIELD(dstDevice) FIELD(dstArray) FIELD(dstPitch) FIELD(WidthInBytes) FIELD(Height)
            fprintf(f, "_Static_assert(sizeof(CUDA_MEMCPY2D) == %zu, \"CUDA_MEMCPY2D\");\n",
                    sizeof(CUDA_MEMCPY2D));
    fclose(f);
}

START_TEST(declarations_are_the_toolkits)
{
    if (access("/usr/local/cuda/include/cuda.h", R_OK) != 0) {
        skipped("the headers of a CUDA toolkit are not there");
        return;
    }
    write_comparison("same.c");
    ck_assert_int_eq(shell("cc -std=gnu11 -fsyntax-only -I/usr/local/cuda/include same.c"), 0);
    ck_assert_int_eq(shell("sed -i 's/SAME(cuMemFree_v2, CUresult, CUdeviceptr)/"
                           "SAME(cuMemFree_v2, CUresult, void *)/' same.c"),
                     0);
    ck_assert_int_ne(shell("cc -std=gnu11 -fsyntax-only -I/usr/local/cuda/include same.c 2>/dev/null"), 0);
}
END_TEST

/* ---- what is found ------------------------------------------------------------------------------ */

static void device_is(const char *name, const char *title, double f32)
{
    setenv("FAKE_CUDA_NAME", name, 1);
    ck_assert_int_eq(ckc("devices --json"), 0);
    json_t *all = read_json("out");
    const char *found = NULL;
    for (size_t i = 0; i < json_array_size(all); i++) {
        json_t *one = json_array_get(all, i);
        if (strcmp(json_string_value(json_object_get(one, "name")), "cuda") != 0)
            continue;
        found = json_string_value(json_object_get(one, "title"));
        ck_assert_str_eq(found, title);
        ck_assert_double_eq(json_number_value(json_object_get(json_object_get(one, "vector"), "f32")), f32);
        ck_assert_int_eq(json_integer_value(json_object_get(one, "processors")), 4);
        ck_assert_int_eq(json_integer_value(json_object_get(one, "memory_bytes")), 4294967296);
    }
    ck_assert_ptr_nonnull(found);
    json_decref(all);
}

/* Rates come from the device file of the GPU's name, else from its clocks; its memory from the GPU itself. */
START_TEST(devices)
{
    unsetenv("FAKE_CUDA_SHADOW"); /* it brings an NVRTC of its own */
    setenv("FAKE_CUDA_MEMORY", "4294967296", 1);
    device_is("NVIDIA H200", "NVIDIA H200", 67000);
    device_is("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090", 82600);
    device_is("NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB", 19500);
    device_is("NVIDIA L40S", "NVIDIA L40S (estimated)", 512);
    device_is("", "Fake GPU (estimated)", 512);
    ckc_prints("devices", "cuda:0: 4294967296 bytes free, driver for CUDA 13.0, NVRTC 13.0, cuBLASLt 13.0.0");
}
END_TEST

/* ---- failures and times ------------------------------------------------------------------------- */

START_TEST(what_fails_says_why)
{
    unsetenv("FAKE_CUDA_SHADOW");
    static const struct {
        const char *mode, *args, *says;
    } bad[] = {
        {"CKC_CUDA_PATH=/nowhere", "", "no NVIDIA driver (libcuda.so.1) in CKC_CUDA_PATH=/nowhere: "},
        {"FAKE_CUDA=no_device", "", "no CUDA-capable device is detected"},
        {"FAKE_CUDA=old_driver", "",
         "the driver is for CUDA 11, and NVRTC is 13.0: a newer driver is needed"},
        {"FAKE_CUDA=lost", "", "cuStreamSynchronize: unspecified launch failure (error 719)"},
        {"FAKE_CUDA_MEMORY=30000", "", "a step holds at least"},
        {"FAKE_CUDA_OTHERS=268400000", "",
         "bytes cannot be had: of the device's 268435456 bytes 35456 are free"},
        {"FAKE_NVRTC=error", "--cache fresh", "NVRTC failed on generated kernels, in ck_"},
        {"FAKE_CUDA=", "--device cuda:1", "there is no device 1: 1 here, counted from 0"},
        {"FAKE_CUDA=", "--threads 2", "--threads belongs to this machine"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *before = format("export %s;", bad[i].mode);
        char *copy = strdup(before);
        bool usage = strstr(bad[i].args, "--threads") != NULL;
        ckc_fails(copy, format("%s --device cuda --steps 2 --save w.onnx %s", mlp, bad[i].args),
                  usage ? 1 : 4, bad[i].says);
        ck_assert_int_ne(access("w.onnx", F_OK), 0);
        free(copy);
    }
    ck_assert_int_eq(shell("mkdir only && cp " CKC_FAKE_CUDA "/libcuda.so.1 only"), 0);
    ckc_fails("export CKC_CUDA_PATH=$PWD/only;", format("%s --device cuda", mlp), 4,
              "no NVRTC (libnvrtc.so.13) in CKC_CUDA_PATH=");
    ck_assert_int_eq(ckc_end(ckc_start("export CKC_CUDA_PATH=$PWD/only;",
                                       CKC_SOURCE_DIR "/examples/mlp/model.onnx --bind batch=8 -o m.ckc")),
                     0);
    ck_assert_int_eq(shell("grep -q 'is here and not used: .*no NVRTC' out && "
                           "grep -q '^  device \"cpu\"' m.ckc/step.ckp"),
                     0);
}
END_TEST

/* The times of a step do not include a kernel's first launch, which loads it. */
START_TEST(times_are_those_of_warm_runs)
{
    TestStep s;
    step_init(&s);
    s.device = &cuda_device;
    ck_assert_msg(step_compile(&s, CKC_SOURCE_DIR "/tests/data/oom/conv.onnx", NULL), "%s", s.diag.msg);
    double *seconds = calloc(s.info.plan.nstep, sizeof *seconds), sum = 0;
    setenv("FAKE_CUDA_LATE", "1", 1);
    for (int i = 0; i < 3; i++)
        ck_assert_msg(exec_step(s.exec, seconds, &s.diag), "%s", s.diag.msg);
    unsetenv("FAKE_CUDA_LATE");
    for (uint32_t i = 0; i < s.info.plan.nstep; i++)
        sum += seconds[i];
    ck_assert_msg(sum > 0 && sum < 1, "%g s", sum);
    free(seconds);
    step_free(&s);
}
END_TEST

/* ---- the example, as users run it --------------------------------------------------------------- */

/* Checks the status only: standard error may have warnings of the address sanitizer about fibers. */
static void succeeds(const char *args)
{
    int status = ckc(args);
    char *err = read_text("err");
    ck_assert_msg(status == 0, "%s", err);
    free(err);
}

static void train(const char *more) { succeeds(format("%s --device cuda --steps 3 %s", mlp, more)); }

/* Training gives the same weights in another order of streams, from the schedule that was written, in another
 * process and from a checkpoint. */
START_TEST(example_trains)
{
    succeeds(mlp); /* the GPU is the default device */
    ck_assert_int_eq(shell("grep -q '^  device \"cuda\"' m.ckc/step.ckp"), 0);
    succeeds(format("%s --host-memory 1GB", mlp));
    succeeds(format("%s --device cpu", mlp));
    ck_assert_int_eq(shell("grep -q '^  device \"cpu\"' m.ckc/step.ckp"), 0);
    train("--save a.safetensors");
    setenv("FAKE_CUDA_SEED", "7", 1);
    train("--save b.safetensors --check");
    same_file("a.safetensors", "b.safetensors");
    succeeds("run m.ckc/step.ckp --device cuda:0 --steps 3 --quiet --save c.safetensors");
    same_file("a.safetensors", "c.safetensors");
    ckc_fails("", "run m.ckc/step.ckp --device cuda:1", 4, "there is no device 1");
    ckc_fails("", "run m.ckc/step.ckp --device cpu", 1, "is a schedule for the device 'cuda': --device cpu");
    train("--accumulate 2 --profile --save d.safetensors");
    succeeds("run m.ckc/step.ckp --steps 3 --quiet --cache other --save e.safetensors");
    same_file("d.safetensors", "e.safetensors");
    succeeds("run m.ckc/step.ckp --steps 2 --quiet --checkpoint c");
    succeeds("run m.ckc/step.ckp --steps 3 --quiet --checkpoint c --resume --save f.safetensors");
    same_file("d.safetensors", "f.safetensors");
}
END_TEST

/* Writes data for seven batches of eight rows. */
static void write_batches(const char *path)
{
    enum { ROWS = 56, COLUMNS = 16, CLASSES = 10 };
    static float x[ROWS * COLUMNS];
    static int64_t y[ROWS];
    Diag d = {0};
    uint32_t random = 1;
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        random = random * 1664525 + 1013904223;
        x[i] = (float)(random >> 8) * 0x1p-24f - 0.5f;
        y[i / COLUMNS] = random >> 8 & 1;
    }
    NamedTensor v[] = {{"x", {type_make(DT_F32, 2, (int64_t[]){ROWS, COLUMNS}), x}},
                       {"target", {type_make(DT_I64, 1, (int64_t[]){ROWS}), y}}};
    ck_assert_msg(npz_write(path, 2, v, &d), "%s", d.msg);
}

/* Every step has its own loss, though inputs are prepared while the GPU runs and losses are read later. */
START_TEST(batches_follow_each_other)
{
    enum { STEPS = 9 };
    write_batches("rows.npz");
    for (int accumulate = 1; accumulate <= 2; accumulate++) {
        char args[512];
        snprintf(args, sizeof args, "%s --data rows.npz --lr 0.05 --steps %d --accumulate %d", mlp, STEPS,
                 accumulate);
        succeeds(format("%s --device cpu", args));
        json_t *cpu = read_json("m.ckc/report.json");
        succeeds(format("%s --device cuda", args));
        json_t *gpu = read_json("m.ckc/report.json"), *want = json_object_get(cpu, "losses");
        ck_assert_uint_eq(json_array_size(want), STEPS);
        for (size_t i = 0; i < STEPS; i++) {
            double loss = json_real_value(json_array_get(want, i));
            ck_assert_double_eq_tol(json_real_value(json_array_get(json_object_get(gpu, "losses"), i)), loss,
                                    1e-5 * loss);
            ck_assert(i == 0 || loss != json_real_value(json_array_get(want, i - 1)));
        }
        json_decref(cpu);
        json_decref(gpu);
    }
}
END_TEST

static double last_validation(void)
{
    json_t *report = read_json("m.ckc/report.json"), *val = json_object_get(report, "val_losses");
    double loss = json_real_value(json_object_get(json_array_get(val, json_array_size(val) - 1), "loss"));
    json_decref(report);
    return loss;
}

/* Validation, a second step on the GPU between those of training, does not change the trained weights. */
START_TEST(validation_beside_training)
{
    write_batches("rows.npz");
    const char *args = "--data rows.npz --epochs 2 --shuffle";
    succeeds(format("%s --device cuda %s --save a.safetensors", mlp, args));
    succeeds(format("%s --device cuda %s --val rows.npz --val-every 3 --save b.safetensors", mlp, args));
    same_file("a.safetensors", "b.safetensors");
    double gpu = last_validation();
    succeeds(format("%s --device cpu %s --val rows.npz", mlp, args));
    ck_assert_double_eq_tol(gpu, last_validation(), 1e-4 * gpu);
}
END_TEST

/* ---- products ----------------------------------------------------------------------------------- */

static int count_lines(const char *file, const char *pattern)
{
    shell(format("grep -c '%s' %s >count", pattern, file));
    char *text = read_text("count");
    int n = atoi(text);
    free(text);
    return n;
}

/* A plan pins the algorithm of every product.  With a library of another version, which has others, a run is
 * refused, or with --rechoose takes those and says so. */
START_TEST(algorithms_are_pinned)
{
    static const char run[] = "run m.ckc/step.ckp --steps 3 --quiet";
    setenv("FAKE_CUBLASLT_SLOW", "02", 1);
    train("--cache pinned --save a.safetensors");
    unsetenv("FAKE_CUBLASLT_SLOW");
    ck_assert_int_eq(count_lines("m.ckc/step.ckp", " choice=cublaslt:130000.80.4:"), 8);
    ck_assert_int_eq(count_lines("m.ckc/step.ckp", " choice=cublaslt:[^ ]*+[1-9]"), 8); /* with workspace */
    setenv("FAKE_CUBLASLT_MORE", "0123", 1); /* they ask for more workspace than announced, as real ones do */
    train("--cache more");
    succeeds(run);
    unsetenv("FAKE_CUBLASLT_MORE");
    train("--cache pinned");
    setenv("FAKE_CUBLASLT", "13.1.0", 1);
    ckc_fails("", run, 4, "is pinned to 'cublaslt:130000.80.4:");
    ckc_fails("", run, 4,
              "this GPU's library is 'cublaslt:130100.80.4': plan the model again, or --rechoose");
    succeeds("run m.ckc/step.ckp --steps 3 --rechoose");
    ck_assert_int_eq(count_lines("out", "algorithms or kernels are others than the schedule"), 1);
    unsetenv("FAKE_CUBLASLT");
    succeeds(format("%s --save b.safetensors", run));
    same_file("a.safetensors", "b.safetensors");
}
END_TEST

/* Algorithms are timed once: the next plan has the same ones, even if the library would now name others. */
START_TEST(the_fastest_is_taken)
{
    setenv("FAKE_CUBLASLT_SLOW", "0", 1);
    train("--cache timed");
    ck_assert_int_eq(count_lines("m.ckc/step.ckp", " choice=cublaslt:"), 8);
    ck_assert_int_eq(count_lines("m.ckc/step.ckp", " choice=cublaslt:130000.80.4:0"), 0);
    ck_assert_int_eq(shell("grep ' choice=cublaslt' m.ckc/step.ckp | sed 's/scratch.*//' >a"), 0);
    setenv("FAKE_CUBLASLT_SLOW", "2", 1);
    setenv("FAKE_CUBLASLT_WORD", "7", 1);
    train("--cache timed");
    ck_assert_int_eq(shell("grep ' choice=cublaslt' m.ckc/step.ckp | sed 's/scratch.*//' >b"), 0);
    same_file("a", "b");
    unsetenv("FAKE_CUBLASLT_SLOW");
    unsetenv("FAKE_CUBLASLT_WORD");
    ck_assert_int_eq(shell("for f in timed/algos-*.txt; do echo 0 >>$f; done"), 0);
    train("--cache timed");
    ck_assert_int_eq(count_lines("m.ckc/report.json", "algorithms are chosen anew"), 1);
    ck_assert_int_eq(shell("for f in timed/profile-*.txt; do echo 0 >>$f; done"), 0);
    train("--cache timed");
    ck_assert_int_eq(count_lines("m.ckc/report.json", "damaged or not ours"), 1);
}
END_TEST

/* Products have no epilogues if the library has no algorithms for them. */
START_TEST(without_epilogues)
{
    train("");
    ck_assert_int_gt(count_lines("m.ckc/step.ckp", "= matmul_bias "), 0);
    setenv("FAKE_CUBLASLT_PLAIN", "1", 1);
    train("");
    ck_assert_int_eq(count_lines("m.ckc/step.ckp", "= matmul_bias "), 0);
    ck_assert_int_gt(count_lines("m.ckc/step.ckp", " choice=cublaslt:"), 0);
    unsetenv("FAKE_CUBLASLT_PLAIN");
}
END_TEST

/* A plan pins attention with warpgroup products, also if recomputed; a GPU without them refuses the plan. */
START_TEST(warpgroups_are_pinned)
{
    const char *args = CKC_SOURCE_DIR "/examples/decoder/model.onnx --bind batch=1 --bind seq=40 --quiet "
                                      "--init normal:0.02 --precision bf16 --optimizer sgd --device cuda "
                                      "--steps 1 -o w.ckc";
    setenv("FAKE_CUDA_CAPABILITY", "90", 1);
    succeeds(format("%s --save a.safetensors", args));
    ck_assert_int_eq(count_lines("w.ckc/step.ckp", " choice=wgmma "), 12);
    succeeds(format("%s --policy recompute-all --save b.safetensors", args));
    ck_assert_int_eq(count_lines("w.ckc/step.ckp", " choice=wgmma .* recompute of "), 6);
    same_file("a.safetensors", "b.safetensors");
    setenv("FAKE_CUDA_CAPABILITY", "80", 1);
    ck_assert_int_eq(shell("sed 's/choice=cublaslt[^ ]*/choice=-/' w.ckc/step.ckp >w.ckc/text.ckp"), 0);
    ckc_fails("", "run w.ckc/text.ckp --steps 1 --quiet", 4, "is pinned to 'wgmma', which this GPU");
    unsetenv("FAKE_CUDA_CAPABILITY");
}
END_TEST

/* Without cuBLASLt products are generated kernels, and the device's name says so; plans made with it fail. */
START_TEST(without_cublaslt)
{
    train("--save a.safetensors");
    ck_assert_int_eq(shell("mkdir only && cp " CKC_FAKE_CUDA "/libcuda.so.1 " CKC_FAKE_CUDA
                           "/libnvrtc.so.13 only"), 0);
    const char *before = "export CKC_CUDA_PATH=$PWD/only;";
    ckc_fails(before, "run m.ckc/step.ckp --quiet", 4,
              "cuda: no cuBLASLt (libcublasLt.so.13) in CKC_CUDA_PATH=");
    ck_assert_int_eq(ckc_end(ckc_start(before, "devices")), 0);
    ck_assert_int_eq(
        count_lines("out", "no cuBLASLt (libcublasLt.so.13) in .*products run as generated kernels"), 1);
    ck_assert_int_eq(count_lines("out", "Fake GPU (estimated), without cuBLASLt"), 1);
    ck_assert_int_eq(ckc_end(ckc_start(before, format("%s --device cuda", mlp))), 0);
    ck_assert_int_eq(count_lines("m.ckc/step.ckp", "choice=cublaslt"), 0);
}
END_TEST

/* NVIDIA's own compiler accepts ckc's text and options; the fake driver cannot load its machine code. */
START_TEST(nvrtc_makes_machine_code)
{
    enum { MACHINE = 18, CUDA = 190 }; /* offset and value of e_machine in an ELF header */
    if (access("/usr/local/cuda/lib64/libnvrtc.so.13", R_OK) != 0) {
        skipped("NVRTC is not there");
        return;
    }
    ck_assert_int_eq(shell("mkdir real && cp " CKC_FAKE_CUDA "/libcuda.so.1 real && "
                           "ln -s /usr/local/cuda/lib64/libnvrtc.so.13 real"),
                     0);
    ck_assert_int_eq(
        ckc_end(ckc_start("export CKC_CUDA_PATH=$PWD/real;", format("%s --device cuda --cache kept", mlp))),
        4);
    char *err = read_text("err");
    ck_assert_msg(strstr(err, "cannot load generated kernels: invalid argument") != NULL, "%s", err);
    free(err);
    ck_assert_int_eq(
        shell(format("for f in kept/*.cubin; do [ $(od -An -tu1 -j%d -N1 $f) = %d ] || exit 1; done", MACHINE,
                     CUDA)),
        0);
}
END_TEST

/* ---- networks ----------------------------------------------------------------------------------- */

/* Mobilenet's tolerance is larger: 52 batch norms of two rows, with ReLUs, amplify another order of sums in
 * f32.  Compared with f64, elements of the processor's gradients are off by up to 8.7e-5, the fake GPU's by
 * 3.7e-5 (4.2e-6 in norm, both), and by up to 1e-2 with other data, where a ReLU6 may change sides.  The
 * last network also runs in both types of 16 bits, where adding to a product in place gives other bits. */
START_TEST(networks_give_the_same_bits)
{
    const Network *m = &networks[_i < NETWORKS ? _i : NETWORKS - 1];
    char path[4200];
    TestStep s;
    if (m->slow && !getenv("CKC_LONG")) {
        skipped("it takes a quarter of a minute to plan and compile under sanitizers: CKC_LONG=1");
        return;
    }
    if (!network_path(m, path))
        return;
    unsetenv("CKC_LONG"); /* it makes batches larger, and gradients too chaotic to compare */
    network_options(&s, m, 0);
    s.opt.precision = _i < NETWORKS ? PRECISION_F32 : _i == NETWORKS ? PRECISION_BF16 : PRECISION_FP16;
    check_on_cuda(path, &s.opt, m->shared ? NULL : &network_init, NULL,
                  _i >= NETWORKS ? 5e-2 : strstr(path, "mobilenet") ? 1e-4 : 1e-5);
}
END_TEST

/* TF32 products round factors to 10 bits of fraction: outputs are near those of f32, but not within 1e-5. */
START_TEST(tf32_products)
{
    TestStep s[2];
    char path[4200], msg[256];
    bool same = true;
    ck_assert(network_path(&networks[0], path));
    for (int i = 0; i < 2; i++) {
        network_options(&s[i], &networks[0], 0);
        s[i].device = i ? &cuda_device : NULL;
        s[i].opt.precision = i ? PRECISION_TF32 : PRECISION_F32;
        s[i].opt.keep_grads = true;
        ck_assert_msg(step_plan(&s[i], path, NULL), "%s", s[i].diag.msg);
    }
    for (int i = 0; i < 2; i++) {
        double loss;
        ck_assert_msg(step_open(&s[i], NULL), "%s", s[i].diag.msg);
        step_run(&s[i], NULL, 1, &loss);
    }
    for (uint32_t i = 0; i < s[0].g.nout; i++) {
        Tensor t[2];
        for (int k = 0; k < 2; k++) {
            t[k] = exec_tensor(s[k].exec, s[k].g.out[i]);
            ck_assert(exec_read(s[k].exec, s[k].g.out[i], &s[k].diag));
        }
        ck_assert_msg(tensor_close(&t[0], &t[1], 2e-3, msg), "%s", msg);
        same = same && tensor_close(&t[0], &t[1], 1e-5, msg);
    }
    ck_assert(!same);
    for (int i = 0; i < 2; i++)
        step_free(&s[i]);
}
END_TEST

/* Weight gradients computed in blocks of rows with their updates, or in blocks of terms, give the processor's
 * losses; their products have their own algorithms and share a workspace after the loop's. */
START_TEST(products_in_blocks)
{
    enum { STEPS = 3 };
    static const OnnxBind bind = {"batch", 96};
    double loss[2][STEPS];
    int loops = 0;
    char path[4200];
    ck_assert(network_path(&networks[0], path));
    for (int i = 0; i < 2; i++) {
        TestStep s;
        step_init(&s);
        s.opt.import = (OnnxOptions){.bind = &bind, .nbind = 1};
        s.device = i ? &cuda_device : NULL;
        s.opt.precision = _i ? PRECISION_BF16 : PRECISION_F32;
        s.opt.update_bytes = 2048;
        s.opt.factor_bytes = 1;
        ck_assert_msg(step_compile(&s, path, NULL), "%s", s.diag.msg);
        step_run(&s, NULL, STEPS, loss[i]);
        const Command *c = plan_commands(&s.info.plan, &s.arena, &s.diag);
        for (uint32_t k = 0; k < s.info.plan.nstep && i; k++)
            loops += c[k].loop && s.info.plan.step[k].choice;
        step_free(&s);
    }
    ck_assert_int_ge(loops, 2);
    for (int k = 0; k < STEPS; k++)
        ck_assert_double_eq_tol(loss[0][k], loss[1][k], _i ? 2e-3 : 1e-5);
}
END_TEST

/* GELU and its gradient are epilogues of products, whose operands lie as the library requires; gradients
 * agree with this processor's, which rounds a product before it multiplies it. */
START_TEST(activations_are_epilogues)
{
    static const char text[] =
        "graph {\n  input %x: f32[8,24]\n  param %v: f32[24,40]\n  param %r: f32[40]\n"
        "  param %w: f32[40,8]\n  %a: f32[8,40] = matmul %x, %v\n  %b: f32[8,40] = add %a, %r\n"
        "  %g: f32[8,40] = gelu_tanh %b\n  %c: f32[8,8] = matmul %g, %w\n  %d: f32[8,8] = mul %c, %c\n"
        "  %l: f32[] = reduce_sum %d {axes=[0,1], keepdims=0}\n  output %l\n}\n";
    double loss[2], gradient[2][24 * 40];
    setenv("FAKE_CUDA_SHADOW", "1", 1);
    for (int i = 0; i < 2; i++) {
        TestStep s;
        int found[OP_COUNT] = {0};
        step_init(&s);
        s.device = i ? &cuda_device : NULL;
        s.opt.precision = PRECISION_BF16;
        s.opt.keep_grads = true;
        ck_assert_msg(step_compile_text(&s, text, &(Init){INIT_NORMAL, 0.5}), "%s", s.diag.msg);
        step_run(&s, NULL, 1, &loss[i]);
        for (uint32_t k = 0; k < s.g.norder; k++)
            found[s.g.nodes[s.g.order[k].i].op]++;
        ck_assert_int_eq(found[OP_matmul_gelu], i);
        ck_assert_int_eq(found[OP_matmul_gelu_bwd], i);
        for (uint32_t o = 1; o < s.g.nout; o++) {
            Tensor t = exec_tensor(s.exec, s.g.out[o]);
            ck_assert(exec_read(s.exec, s.g.out[o], &s.diag));
            for (int64_t e = 0; t.data && type_count(&t.type) == 24 * 40 && e < 24 * 40; e++)
                gradient[i][e] = tensor_f(&t, e);
        }
        step_free(&s);
    }
    double most = 0, off = 0;
    ck_assert_double_eq_tol(loss[0], loss[1], 5e-3 * fabs(loss[0]));
    for (int e = 0; e < 24 * 40; e++) {
        most = fmax(most, fabs(gradient[0][e]));
        off = fmax(off, fabs(gradient[0][e] - gradient[1][e]));
    }
    ck_assert_double_gt(most, 0.1);
    ck_assert_double_le(off, 0.02 * most);
}
END_TEST

/* A scalar weight that one thread updates in place is not read by other threads of its block meanwhile. */
START_TEST(one_weight)
{
    static const char one[] = "graph {\n  input %x: f32[4]\n  param %w: f32[]\n  %y: f32[4] = mul %x, %w\n"
                              "  %l: f32[] = reduce_sum %y {axes=[0], keepdims=0}\n  output %l\n}\n";
    TestStep s;
    double loss[2];
    setenv("FAKE_CUDA_SHADOW", "1", 1);
    step_init(&s);
    s.device = &cuda_device;
    ck_assert_msg(step_compile_text(&s, one, &(Init){INIT_NORMAL, 0.1}), "%s", s.diag.msg);
    step_run(&s, NULL, 2, loss);
    step_free(&s);
}
END_TEST

static bool plan_wide(TestStep *s, int64_t arena)
{
    static const char wide[] =
        "graph {\n  input %x: f32[8,192]\n  param %v: f32[192,192]\n  param %w: f32[192,192]\n"
        "  %a: f32[8,192] = matmul %x, %v\n  %b: f32[8,192] = gelu %a\n  %c: f32[8,192] = matmul %b, %w\n"
        "  %d: f32[8,192] = mul %c, %c\n  %l: f32[] = reduce_sum %d {axes=[0,1], keepdims=0}\n  output "
        "%l\n}\n";
    step_init(s);
    s->device = &cuda_device;
    ck_assert_msg(cuda_device.info(0, &s->info_of, &s->arena, &s->diag), "%s", s->diag.msg);
    s->opt.budget = arena ? arena + s->info_of.reserved : 0;
    return step_compile_text(s, wide, &(Init){INIT_NORMAL, 0.1});
}

/* At the least budget optimizer states lie in the host's memory, and bits stay the same in three orders. */
START_TEST(states_in_host_memory)
{
    TestStep s;
    double want[3], loss[3];
    int states = 0;
    ck_assert_msg(plan_wide(&s, 0), "%s", s.diag.msg);
    step_run(&s, NULL, 3, want);
    uint64_t digest = step_digest(&s);
    int64_t keep = s.info.plan.arena_bytes;
    step_free(&s);
    ck_assert(!plan_wide(&s, 1)); /* the refusal names the least budget */
    int64_t least = s.info.plan.min_feasible_bytes;
    step_free(&s);
    if (getenv("CKC_GPU") && least >= keep - 2 * 192 * 192 * 4) {
        skipped("workspace of the library is larger than the states of so small a network");
        return;
    }
    ck_assert_int_lt(least, keep - 2 * 192 * 192 * 4);
    for (int seed = 1; seed < 4; seed++) {
        setenv("FAKE_CUDA_SEED", (const char *[]){"3", "5", "7"}[seed - 1], 1);
        ck_assert_msg(plan_wide(&s, least), "%s", s.diag.msg);
        for (uint32_t v = 1; v < s.g.nvals; v++)
            states += s.g.vals[v].kind == VAL_STATE && s.g.vals[v].space == SPACE_HOST;
        step_run(&s, NULL, 3, loss);
        ck_assert(step_digest(&s) == digest);
        ck_assert(memcmp(loss, want, sizeof want) == 0);
        step_free(&s);
    }
    unsetenv("FAKE_CUDA_SEED");
    ck_assert_int_gt(states, 0);
}
END_TEST

/* The exit status of a run whose i-th wait between streams is left out. */
static int run_without_wait(int i)
{
    return shell(format("FAKE_CUDA_DROP=%d '%s' run p/step.ckp --quiet --steps 3 >out 2>err", i, ckc_binary));
}

static int number_in(const char *file, const char *after)
{
    char *text = read_text(file);
    const char *at = strstr(text, after);
    ck_assert_msg(at != NULL, "%s", text);
    int n = atoi(at + strlen(after));
    free(text);
    return n;
}

/* Leaving out a wait of a stream for another is noticed, in a step that is enqueued and in one that is
 * captured.  The first and last two of each are not tried: they are for whole streams, and may be implied. */
START_TEST(missing_waits_are_seen)
{
    enum { WHOLE = 2, MANY = 1000 };
    const char *plan =
        CKC_SOURCE_DIR "/tests/data/zoo/sdpa_gpt_dynamo/model.onnx --bind batch=32 --device cuda "
                       "--offload only --steps 0 --quiet --output p --budget %lldB";
    int seen = 0, tried = 0;
    ck_assert_int_eq(ckc(format(plan, 4200000LL)), 3); /* 4 MiB are reserved */
    ck_assert_int_eq(ckc(format(plan, (long long)number_in("err", "feasible is "))), 0);
    setenv("FAKE_CUDA_SHADOW", "1", 1);
    ck_assert_int_eq(run_without_wait(MANY), 0);
    int waits = number_in("err", "fake cuda: "), half = waits / 2, step = getenv("CKC_LONG") ? 1 : waits / 5;
    ck_assert_int_ge(half, 4 * WHOLE);
    for (int i = 1; i <= waits; i += step) {
        int at = (i - 1) % half;
        if (at < WHOLE || at >= half - WHOLE)
            continue;
        tried++;
        seen += run_without_wait(i) != 0;
        ck_assert_msg(seen == tried, "nobody misses wait %d of %d", i, waits);
        ck_assert_int_eq(shell("grep -q 'fake cuda: .*of another stream' err"), 0);
    }
    printf("%d of %d waits between streams left out in turn: all missed\n", seen, waits);
    ck_assert_int_ge(seen, 3);
}
END_TEST

/* Fixture for tests of what a plan pins and says; only the other tests look for races between streams. */
static void use_fast_cuda(void)
{
    use_cuda();
    setenv("FAKE_CUDA_FAST", "1", 1);
}

static void leave_fast_cuda(void)
{
    unsetenv("FAKE_CUDA_FAST");
    leave_cuda();
}

Suite *suite_cuda_device(void)
{
    Suite *s = suite_create("cuda_device");
    TCase *t = tcase_create("declarations");
    tcase_add_checked_fixture(t, make_folder, remove_folder);
    tcase_add_test(t, declarations_are_the_toolkits);
    suite_add_tcase(s, t);
    if (!getenv("CKC_GPU")) {
        t = tcase_create("choices");
        tcase_add_unchecked_fixture(t, use_fast_cuda, leave_fast_cuda);
        tcase_add_checked_fixture(t, make_folder, remove_folder);
        tcase_add_test(t, devices);
        tcase_add_test(t, what_fails_says_why);
        tcase_add_test(t, times_are_those_of_warm_runs);
        tcase_add_test(t, nvrtc_makes_machine_code);
        tcase_add_test(t, algorithms_are_pinned);
        tcase_add_test(t, warpgroups_are_pinned);
        tcase_add_test(t, the_fastest_is_taken);
        tcase_add_test(t, without_epilogues);
        tcase_add_test(t, without_cublaslt);
        suite_add_tcase(s, t);
    }
    t = tcase_create("fake");
    tcase_add_unchecked_fixture(t, use_cuda, leave_cuda);
    tcase_add_checked_fixture(t, make_folder, remove_folder);
    tcase_add_test(t, example_trains);
    tcase_add_test(t, batches_follow_each_other);
    tcase_add_test(t, validation_beside_training);
    tcase_add_test(t, activations_are_epilogues);
    tcase_add_test(t, one_weight);
    tcase_add_test(t, states_in_host_memory);
    tcase_add_test(t, tf32_products);
    tcase_add_loop_test(t, products_in_blocks, 0, 2);
    tcase_add_loop_test(t, networks_give_the_same_bits, 0, NETWORKS + 2);
    suite_add_tcase(s, t);
    if (!getenv("CKC_GPU")) {
        t = tcase_create("waits");
        tcase_add_unchecked_fixture(t, use_cuda, leave_cuda);
        tcase_add_checked_fixture(t, make_folder, remove_folder);
        tcase_add_test(t, missing_waits_are_seen);
        suite_add_tcase(s, t);
    }
    return s;
}
