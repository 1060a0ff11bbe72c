/* test_api.c -- the library (ckc.h): the same bits as the command with the same options, errors as values,
 * several sessions in one process, and the installed files. */
#include "tests.h"
#include "command.h"
#include "session.h"
#include "runtime/data.h"
#include <fcntl.h>
#include <locale.h>
#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- calls ----------------------------------------------------------------------------------------- */

/* The least budget, in bytes, of the step with these options. */
static int64_t least_budget(const char *words)
{
    ckc_error e;
    ck_assert_ptr_null(ckc_plan(MODEL, options(format("%s budget=20kB moves=10000", words)), &e));
    ck_assert_int_gt(e.least_bytes, 20000);
    return e.least_bytes;
}

static void refuses(const char *model, const char *words, int status, const char *says)
{
    ckc_error e;
    ck_assert_ptr_null(ckc_plan(model, options(words), &e));
    is_error(&e, status, says);
    ck_assert_ptr_null(ckc_plan(model, options(words), NULL));
}

/* ---- the same bits ---------------------------------------------------------------------------------- */

/* Checks that the first n steps in the file of --metrics have these losses; skipped steps do not count. */
static void same_losses(const double *loss, int n)
{
    FILE *f = fopen("m.jsonl", "r");
    char line[400];
    for (int i = 0; i < n; i++) {
        do
            ck_assert_ptr_nonnull(fgets(line, sizeof line, f));
        while (strstr(line, "\"skipped\""));
        json_t *o = json_loads(line, 0, NULL);
        ck_assert_double_eq(json_real_value(json_object_get(o, "loss")), loss[i]);
        json_decref(o);
    }
    fclose(f);
}

static const char *const ways[] = {"", "policy=recompute-all",
                                   "optimizer=momentum nesterov lr=0.05 schedule=cosine warmup=2 steps=5",
                                   "accumulate=2 clip-norm=1 seed=7", "precision=fp16 loss-scale=1e12"};

/* The library trains with the bits of the command, from a file or from arrays, in one call or in several. */
START_TEST(same_bits)
{
    const char *way = ways[_i];
    double loss[5];
    ckc_accepts(format(TRAIN "--steps 5 --data d.npz --metrics m.jsonl --save a.safetensors --save a.onnx %s",
                       command_line(way)));
    for (int file = 0; file < 2; file++) {
        ckc_session *s = plan(format("%s %s", way, file ? "data=d.npz" : ""));
        OK(ckc_train(s, 2, data, file ? 0 : 2, loss, &e_));
        OK(ckc_train(s, 0, NULL, 0, NULL, &e_));
        OK(ckc_train(s, 1, data, file ? 0 : 2, NULL, &e_));
        OK(ckc_train(s, 2, data, file ? 0 : 2, loss + 3, &e_));
        ck_assert_int_eq(ckc_steps(s), 5);
        OK(ckc_save(s, "b.safetensors", &e_));
        OK(ckc_save(s, "b.onnx", &e_));
        ckc_free(s);
        same_file("a.safetensors", "b.safetensors");
        same_file("a.onnx", "b.onnx");
        same_losses(loss, 2);
    }
    double all[5];
    ckc_session *s = plan(way);
    OK(ckc_train(s, 5, data, 2, all, &e_));
    same_losses(all, 5);
    ckc_free(s);
}
END_TEST

START_TEST(same_bits_of_random_data)
{
    ckc_accepts(TRAIN "--steps 3 --save a.safetensors");
    ckc_session *s = plan("");
    OK(ckc_train(s, 3, NULL, 0, NULL, &e_));
    OK(ckc_save(s, "b.safetensors", &e_));
    ckc_free(s);
    same_file("a.safetensors", "b.safetensors");
}
END_TEST

/* Bits stay the same on a GPU, where ckc_read() and ckc_write() copy from and to the device. */
START_TEST(same_bits_on_a_gpu)
{
    float bias[10], again[10];
    setenv("CKC_CUDA_PATH", CKC_FAKE_CUDA, 1);
    ck_assert_int_eq(ckc("train '" MODEL "' --bind batch=4 --device cuda --quiet -o p --steps 3 --data d.npz "
                         "--save a.safetensors"),
                     0);
    ckc_session *s = ckc_plan(MODEL, (const char *[]){"bind=batch=4", "device=cuda", NULL}, NULL);
    ck_assert_ptr_nonnull(s);
    OK(ckc_train(s, 2, data, 2, NULL, &e_));
    OK(ckc_read(s, "8.bias", bias, sizeof bias, &e_));
    OK(ckc_write(s, "8.bias", (float[10]){0}, sizeof bias, &e_));
    OK(ckc_read(s, "8.bias", again, sizeof again, &e_));
    ck_assert_float_eq(again[7], 0);
    OK(ckc_write(s, "8.bias", bias, sizeof bias, &e_));
    OK(ckc_train(s, 1, data, 2, NULL, &e_));
    OK(ckc_save(s, "b.safetensors", &e_));
    ckc_free(s);
    same_file("a.safetensors", "b.safetensors");
}
END_TEST

/* The library writes the schedule that the command writes, before and after steps; a session opened on it
 * trains with the same bits. */
START_TEST(schedules)
{
    ckc_error e;
    long long least = least_budget("");
    ckc_accepts(
        format(TRAIN "--steps 4 --budget %lldB --moves 10000 --data d.npz --save a.safetensors", least));
    ckc_session *s = plan(format("budget=%lldB moves=10000 data=d.npz", least));
    ck_assert_int_gt(ckc_get_info(s)->recomputed, 0);
    OK(ckc_write_schedule(s, "q", &e_));
    OK(ckc_train(s, 1, NULL, 0, NULL, &e_));
    OK(ckc_write_schedule(s, "r", &e_));
    ck_assert_int_eq(ckc_write_schedule(s, "", &e), CKC_BAD_INPUT);
    is_error(&e, CKC_BAD_INPUT, "folder is empty");
    ckc_free(s);
    same_file("q/step.ckp", "r/step.ckp");
    same_file("p/step.ckp", "q/step.ckp");
    s = ckc_open("q/step.ckp", NULL, &e);
    ck_assert_msg(s != NULL, "%s", e.message);
    ck_assert_int_le(ckc_get_info(s)->arena_bytes, least);
    ck_assert_int_gt(ckc_get_info(s)->recomputed, 0);
    OK(ckc_train(s, 4, NULL, 0, NULL, &e_));
    OK(ckc_save(s, "b.safetensors", &e_));
    same_file("a.safetensors", "b.safetensors");
    ck_assert_int_eq(ckc_write_schedule(s, "t", &e), CKC_UNSUPPORTED);
    is_error(&e, CKC_UNSUPPORTED, "schedule");
    ckc_free(s);
    ck_assert_ptr_null(ckc_open("q/none.ckp", NULL, &e));
    is_error(&e, CKC_BAD_INPUT, "q/none.ckp: No such file");
    ck_assert_ptr_null(ckc_open("q/step.ckp", (const char *[]){"budget=1MB", NULL}, &e));
    is_error(&e, CKC_BAD_INPUT, "ckc_open has no option 'budget'");
}
END_TEST

/* A schedule that names another model's file cannot make ckc_save() copy that file: its hash must match. */
START_TEST(schedule_of_another_model)
{
    ckc_error e;
    ckc_accepts(TRAIN "--save w.safetensors");
    ckc_accepts("plan '" MODEL "' --bind batch=4 --threads 1 --weights w.safetensors --quiet -o p");
    ck_assert_int_eq(shell("cp '" MODEL "' other.onnx; echo >>other.onnx; "
                           "sed -i 's|^  model \"[^\"]*|  model \"../other.onnx|' p/step.ckp"),
                     0);
    ckc_session *s = ckc_open("p/step.ckp", NULL, &e);
    ck_assert_msg(s != NULL, "%s", e.message);
    OK(ckc_save(s, "a.safetensors", &e_));
    ck_assert_int_eq(ckc_save(s, "a.onnx", &e), CKC_BAD_INPUT);
    is_error(&e, CKC_BAD_INPUT, "other.onnx: is not the file the schedule was made with");
    ckc_free(s);
}
END_TEST

START_TEST(checkpoints)
{
    ckc_error e;
    ckc_accepts(TRAIN "--steps 5 --data d.npz --save a.safetensors");
    ckc_session *s = plan("checkpoint=c");
    ck_assert_int_eq(ckc_checkpoint(s, &e), CKC_BAD_INPUT);
    is_error(&e, CKC_BAD_INPUT, "no step has been made");
    OK(ckc_train(s, 3, data, 2, NULL, &e_));
    OK(ckc_checkpoint(s, &e_));
    refuses(MODEL, "checkpoint=c resume", CKC_BAD_INPUT, "another run writes its checkpoints there");
    OK(ckc_train(s, 1, data, 2, NULL, &e_));
    ckc_free(s);
    refuses(MODEL, "checkpoint=c", CKC_BAD_INPUT, "has a checkpoint of step 3");
    s = plan("checkpoint=c resume");
    ck_assert_int_eq(ckc_steps(s), 3);
    OK(ckc_train(s, 2, data, 2, NULL, &e_));
    OK(ckc_save(s, "b.safetensors", &e_));
    ckc_free(s);
    same_file("a.safetensors", "b.safetensors");
    s = plan("");
    ck_assert_int_eq(ckc_checkpoint(s, &e), CKC_BAD_INPUT);
    ckc_free(s);
}
END_TEST

/* ---- what is planned ------------------------------------------------------------------------------- */

START_TEST(numbers)
{
    ckc_accepts("plan '" MODEL
                "' --bind batch=4 --threads 1 --budget 1MB --policy recompute-all --accumulate 2 "
                "-o p --json");
    ckc_session *s = plan("budget=1MB policy=recompute-all accumulate=2 steps=0");
    const ckc_info *i = ckc_get_info(s);
    ck_assert_int_eq(i->arena_bytes, json_number("out", "arena_bytes"));
    ck_assert_int_eq(i->keep_all_bytes, json_number("out", "keep_all_bytes"));
    ck_assert_int_eq(i->recomputed, json_number("out", "recomputed_steps"));
    ck_assert_int_gt(i->recomputed, 0);
    ck_assert_int_gt(i->kernels, i->recomputed);
    ck_assert_int_eq(i->budget_bytes, 1000000);
    ck_assert_int_eq(i->host_bytes, 0);
    ck_assert_int_eq(i->micro_batches, 2);
    ck_assert_int_eq(i->steps, 0);
    ck_assert(i->seconds > 0 && i->base_seconds > 0);
    ck_assert(i->bound_seconds > 0 && i->bound_seconds <= i->seconds);
    ckc_free(s);
    s = plan("data=d.npz epochs=4");
    ck_assert_int_eq(ckc_get_info(s)->steps, ROWS);
    ck_assert_str_eq(ckc_version(), CKC_VERSION);
    ckc_free(s);
}
END_TEST

START_TEST(tensors)
{
    ckc_tensor t = {.rank = -1};
    ckc_session *s = plan("steps=0");
    ck_assert_int_eq(ckc_input(s, 0, &t), 1);
    ck_assert_str_eq(t.name, "x");
    ck_assert(t.type == CKC_F32 && t.rank == 2 && t.dim[0] == 4 && t.dim[1] == WIDTH && !t.data);
    ck_assert_uint_eq(ckc_tensor_bytes(&t), 4 * WIDTH * sizeof(float));
    ck_assert_int_eq(ckc_input(s, 1, &t), 1);
    ck_assert_str_eq(t.name, "target");
    ck_assert(t.type == CKC_I64 && t.rank == 1 && t.dim[0] == 4);
    ck_assert_int_eq(ckc_input(s, 2, &t), 0);
    ck_assert_int_eq(ckc_input(s, -1, &t), 0);
    ck_assert_str_eq(t.name, "target");
    size_t bytes = 0;
    int n = 0;
    for (; ckc_weight(s, n, &t); n++)
        bytes += ckc_tensor_bytes(&t);
    ck_assert_int_eq(n, 10);
    ck_assert_uint_eq(bytes, 3850 * sizeof(float));
    ck_assert_int_eq(ckc_weight(s, -1, &t), 0);
    ck_assert_uint_eq(ckc_tensor_bytes(&(ckc_tensor){.type = 99}), 0);
    ck_assert_uint_eq(ckc_tensor_bytes(&(ckc_tensor){.type = CKC_F16, .rank = 9}), 0);
    ck_assert_uint_eq(ckc_tensor_bytes(&(ckc_tensor){.type = CKC_BF16, .rank = 1, .dim = {-1}}), 0);
    ck_assert_uint_eq(ckc_tensor_bytes(&(ckc_tensor){.type = CKC_F64}), 8);
    ckc_free(s);
}
END_TEST

/* ---- weights --------------------------------------------------------------------------------------- */

/* Copies all weights of one session to another. */
static void hand_over(ckc_session *from, ckc_session *to)
{
    ckc_tensor t;
    for (int k = 0; ckc_weight(from, k, &t); k++) {
        size_t n = ckc_tensor_bytes(&t);
        char *room = malloc(n);
        OK(ckc_read(from, t.name, room, n, &e_));
        OK(ckc_write(to, t.name, room, n, &e_));
        free(room);
    }
}

/* A session without an optimizer gives the same loss with weights handed over from a training session as with
 * those of its file; also in bf16, where weights that do not train have no memory in single precision. */
START_TEST(weights_move)
{
    double loss, again;
    const char *half = _i ? " precision=bf16" : "";
    ckc_session *s = plan(half), *eval = plan(format("optimizer=none%s", half));
    OK(ckc_train(s, 5, data, 2, NULL, &e_));
    OK(ckc_save(s, "a.safetensors", &e_));
    hand_over(s, eval);
    OK(ckc_save(eval, "b.safetensors", &e_));
    same_file("a.safetensors", "b.safetensors");
    OK(ckc_train(eval, 1, batch, 2, &loss, &e_));
    OK(ckc_train(eval, 1, batch, 2, &again, &e_));
    ck_assert_double_eq(loss, again);
    ckc_free(eval);
    eval = plan(format("optimizer=none weights=a.safetensors%s", half));
    OK(ckc_train(eval, 1, batch, 2, &again, &e_));
    ck_assert_double_eq(loss, again);
    ckc_free(eval);
    ckc_free(s);
}
END_TEST

START_TEST(weights_are_read)
{
    ckc_error e;
    Diag d = {0};
    Tensor t;
    float bias[10];
    ckc_session *s = plan("");
    OK(ckc_read(s, "8.bias", bias, sizeof bias, &e_)); /* works before the first step */
    OK(ckc_train(s, 2, data, 2, NULL, &e_));
    OK(ckc_read(s, "8.bias", bias, sizeof bias, &e_));
    OK(ckc_save(s, "a.safetensors", &e_));
    DataFile *f = data_open("a.safetensors", &d);
    ck_assert(f && data_get(f, "8.bias", &t, &d));
    ck_assert_mem_eq(bias, t.data, sizeof bias);
    data_close(f);
    ck_assert_int_eq(ckc_read(s, "8.bias", bias, sizeof bias - 4, &e), CKC_BAD_INPUT);
    is_error(&e, CKC_BAD_INPUT, "8.bias has 40 bytes");
    ck_assert_int_eq(ckc_write(s, "8.biass", bias, sizeof bias, &e), CKC_BAD_INPUT);
    is_error(&e, CKC_BAD_INPUT, "no weight '8.biass'; did you mean '8.bias'?");
    bias[3] = NAN;
    OK(ckc_write(s, "8.bias", bias, sizeof bias, &e_));
    ck_assert_int_eq(ckc_save(s, "b.onnx", &e), CKC_DEVICE);
    is_error(&e, CKC_DEVICE, "'8.bias' is not finite");
    ck_assert_int_ne(access("b.onnx", F_OK), 0);
    double loss = 5;
    ck_assert_int_eq(ckc_train(s, 1, data, 2, &loss, &e), CKC_DEVICE);
    is_error(&e, CKC_DEVICE, "the loss of step 3 is NaN");
    ck_assert(isnan(loss));
    ck_assert_int_eq(ckc_save(s, "b.onnx", &e), CKC_DEVICE);
    is_error(&e, CKC_DEVICE, "is not finite after step 3:");
    ck_assert_int_eq(ckc_save(s, "b.bin", &e), CKC_BAD_INPUT);
    is_error(&e, CKC_BAD_INPUT, "b.bin");
    ckc_free(s);
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------------- */

/* From here to is_silent() nothing may be printed. */
static void begin_silence(void)
{
    int fd = open("printed", O_CREAT | O_RDWR | O_TRUNC, 0600);
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    close(fd);
}

static void is_silent(void)
{
    fflush(stdout);
    char *text = read_text("printed");
    ck_assert_str_eq(text, "");
    free(text);
}

START_TEST(options_that_are_wrong)
{
    begin_silence();
    refuses("none.onnx", "", CKC_BAD_INPUT, "none.onnx: No such file");
    refuses("no\033[1mne.onnx", "", CKC_BAD_INPUT, "no\\x1b[1mne.onnx");
    refuses(NULL, "", CKC_BAD_INPUT, "no file is named");
    refuses(MODEL, "bugdet=50%", CKC_BAD_INPUT, "ckc_plan has no option 'bugdet'; did you mean 'budget'?");
    refuses(MODEL, "quiet", CKC_BAD_INPUT, "ckc_plan has no option 'quiet'");
    refuses(MODEL, "save=a.onnx", CKC_BAD_INPUT, "ckc_plan has no option 'save'; ckc train has it");
    refuses(MODEL, "grads=a.npz", CKC_BAD_INPUT, "grads takes no value here: ckc_read_gradient()");
    refuses(MODEL, "=3", CKC_BAD_INPUT, "ckc_plan has no option ''");
    refuses(MODEL, "budget", CKC_BAD_INPUT, "--budget: its value is missing");
    refuses(MODEL, "nesterov=1", CKC_BAD_INPUT, "--nesterov takes no value");
    refuses(MODEL, "budget=50", CKC_BAD_INPUT, "--budget: '50' has no unit");
    refuses(MODEL, "budget=101%", CKC_BAD_INPUT, "--budget: 101% is more than everything stored takes");
    refuses(MODEL, "optimizer=adma", CKC_BAD_INPUT, "did you mean 'adam'?");
    refuses(MODEL, "optimizer=sgd beta1=0.5", CKC_BAD_INPUT, "--beta1");
    refuses(MODEL, "schedule=cosine", CKC_BAD_INPUT, "--schedule cosine needs --steps or --epochs");
    refuses(MODEL, "device=h200", CKC_BAD_INPUT, "--device h200 is not this machine");
    refuses(MODEL, "data=none.npz", CKC_BAD_INPUT, "none.npz");
    refuses(CKC_SOURCE_DIR "/README.md", "", CKC_BAD_INPUT, "README.md");
    ck_assert_int_eq(shell("LC_ALL=C sed s/Dropout/Droppot/g '" MODEL "' >m.onnx"), 0);
    refuses("m.onnx", "", CKC_UNSUPPORTED, "Droppot");
    is_silent();
}
END_TEST

/* The least budget that a refusal names can be met. */
START_TEST(budget_that_cannot_be_met)
{
    ckc_error e;
    begin_silence();
    ck_assert_ptr_null(ckc_plan(MODEL, options("budget=20kB moves=10000"), &e));
    is_error(&e, CKC_INFEASIBLE, "budget of 20000 bytes cannot be met");
    ck_assert_int_gt(e.least_bytes, 20000);
    ck_assert_ptr_nonnull(strstr(e.message, format("%lld bytes", (long long)e.least_bytes)));
    ckc_session *s = plan(format("steps=0 moves=10000 budget=%lldB", (long long)e.least_bytes));
    ck_assert_int_le(ckc_get_info(s)->arena_bytes, e.least_bytes);
    ck_assert_int_eq(ckc_train(s, 1, NULL, 0, NULL, &e), CKC_BAD_INPUT);
    is_error(&e, CKC_BAD_INPUT, "--steps 0");
    ck_assert_int_eq(e.least_bytes, 0);
    ckc_free(s);
    ckc_free(NULL);
    is_silent();
}
END_TEST

static void refuses_arrays(ckc_session *s, const ckc_tensor *a, int n, const char *says)
{
    ckc_error e;
    double loss = 5;
    ck_assert_int_eq(ckc_train(s, 1, a, n, &loss, &e), CKC_BAD_INPUT);
    is_error(&e, CKC_BAD_INPUT, says);
    ck_assert_double_eq(loss, 5);
    ck_assert_int_eq(ckc_train(s, 1, a, n, &loss, NULL), CKC_BAD_INPUT);
}

/* Invalid arrays are refused without a change to the session, which trains on with the same bits. */
START_TEST(arrays_that_are_wrong)
{
    ckc_tensor a[2];
    ckc_accepts(TRAIN "--steps 2 --data d.npz --save a.safetensors");
    begin_silence();
    ckc_session *s = plan("");
    OK(ckc_train(s, 1, data, 2, NULL, &e_));
#define WITH(k, change) (memcpy(a, data, sizeof a), a[k].change, a)
    refuses_arrays(s, data, 1, "no array 'target'; there are: x");
    refuses_arrays(s, WITH(0, name = "y"), 2, "no array 'x'; there are: y, target");
    refuses_arrays(s, WITH(0, dim[1] = 8), 2, "x: the data is f32[11,8], the model wants f32[4,16]");
    refuses_arrays(s, WITH(0, type = CKC_I32), 2, "x: the data is i32[11,16], the model wants f32[4,16]");
    refuses_arrays(s, WITH(0, type = 77), 2, "x: the array has no type");
    refuses_arrays(s, WITH(0, rank = 100), 2, "x: the array has no type");
    refuses_arrays(s, WITH(0, dim[0] = INT64_MAX), 2, "x: the array has no type");
    refuses_arrays(s, WITH(1, dim[0] = 10), 2, "rows");
    refuses_arrays(s, WITH(0, data = NULL), 2, "x: the array has no data");
    refuses_arrays(s, WITH(0, name = NULL), 2, "array 0 has no name");
    refuses_arrays(s, NULL, 2, "ckc_train");
    target[5] = 10;
    refuses_arrays(s, data, 2, "target: element 5 is 10, outside [0, 10)");
    target[5] = 35 % 10;
    x[1][2] = NAN;
    refuses_arrays(s, data, 2, "x: element 18 is NaN");
    x[1][2] = (float)(18 * 37 % 23) / 23 - 0.5F;
    OK(ckc_train(s, 1, data, 2, NULL, &e_));
    OK(ckc_save(s, "b.safetensors", &e_));
    ckc_free(s);
    same_file("a.safetensors", "b.safetensors");
    is_silent();
}
END_TEST

/* ---- in the caller's process ----------------------------------------------------------------------- */

static void train_steps(ckc_session *s, int n)
{
    for (int i = 0; i < n; i++)
        OK(ckc_train(s, 1, data, 2, NULL, &e_));
}

START_TEST(two_sessions)
{
    ckc_accepts(TRAIN "--steps 4 --data d.npz --save a.safetensors");
    ckc_session *one = plan(""), *two = plan("policy=recompute-all seed=2");
    for (int i = 0; i < 4; i++) {
        train_steps(one, 1);
        train_steps(two, 1);
    }
    OK(ckc_save(one, "b.safetensors", &e_));
    ckc_free(one);
    same_file("a.safetensors", "b.safetensors");
    ckc_accepts(TRAIN "--steps 5 --seed 2 --data d.npz --save a.safetensors");
    train_steps(two, 1);
    OK(ckc_save(two, "b.safetensors", &e_));
    ckc_free(two);
    same_file("a.safetensors", "b.safetensors");
}
END_TEST

static void *whole_life(void *path)
{
    static const char *const two[] = {"bind=batch=4", "threads=2", NULL};
    ckc_error e;
    ckc_session *s = ckc_plan(MODEL, two, &e);
    if (!s || ckc_train(s, 20, data, 2, NULL, &e) != CKC_OK || ckc_save(s, path, &e) != CKC_OK)
        return strdup(e.message);
    ckc_free(s);
    return NULL;
}

START_TEST(sessions_on_threads)
{
    static char path[4][20] = {"0.safetensors", "1.safetensors", "2.safetensors", "3.safetensors"};
    pthread_t thread[4];
    ckc_accepts("train '" MODEL "' --bind batch=4 --threads 2 --quiet -o p --steps 20 --data d.npz "
                "--save a.safetensors");
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, whole_life, path[i]), 0);
    for (int i = 0; i < 4; i++) {
        void *says;
        pthread_join(thread[i], &says);
        ck_assert_msg(!says, "%s", (char *)says);
        same_file("a.safetensors", path[i]);
    }
}
END_TEST

START_TEST(threads_are_left_as_they_were)
{
    omp_set_num_threads(3);
    ck_assert(has_denormals());
    ckc_session *s = ckc_plan(MODEL, (const char *[]){"bind=batch=4", "threads=2", NULL}, NULL);
    ck_assert(has_denormals());
    train_steps(s, 2);
    ck_assert(has_denormals());
    ck_assert_int_eq(omp_get_max_threads(), 3);
    ckc_free(s);
}
END_TEST

/* A locale in which numbers have a decimal comma changes neither results nor the schedule's text. */
START_TEST(locale_with_a_comma)
{
    write_text("comma", "LC_NUMERIC\ndecimal_point \",\"\nthousands_sep \"\"\ngrouping -1\nEND LC_NUMERIC\n");
    if (shell("localedef -c -i comma ./here >localedef 2>&1; test -e here/LC_NUMERIC") != 0) {
        skipped("there is no localedef");
        return;
    }
    ckc_accepts(TRAIN "--steps 2 --lr 0.25 --data d.npz --save a.safetensors");
    setenv("LOCPATH", folder_path(), 1);
    ck_assert_ptr_nonnull(setlocale(LC_ALL, "here"));
    ckc_session *s = plan("lr=0.25 data=d.npz cache=empty");
    OK(ckc_train(s, 2, NULL, 0, NULL, &e_));
    OK(ckc_save(s, "b.safetensors", &e_));
    OK(ckc_write_schedule(s, "q", &e_));
    ckc_free(s);
    char half[10];
    snprintf(half, sizeof half, "%g", 0.5);
    ck_assert_str_eq(half, "0,5");
    same_file("a.safetensors", "b.safetensors");
    ck_assert_int_eq(shell("grep -q 'lr 0.25$' q/step.ckp"), 0);
}
END_TEST

/* Training works where SIGCHLD is ignored, so that the exit status of the C compiler is lost. */
START_TEST(children_that_others_reap)
{
    signal(SIGCHLD, SIG_IGN);
    ckc_session *s = plan("cache=empty");
    OK(ckc_train(s, 1, data, 2, NULL, &e_));
    ckc_free(s);
    ck_assert_int_gt(files_like("empty/*.so"), 0);
    signal(SIGCHLD, SIG_DFL);
}
END_TEST

/* ---- what is installed ----------------------------------------------------------------------------- */

/* An installation that has been moved works from outside the source tree (tests/install.sh). */
START_TEST(installed)
{
    int status = shell("CC='" CKC_C_COMPILER "' CFLAGS='" CKC_SANITIZE_FLAGS "' sh '" CKC_SOURCE_DIR
                       "/tests/install.sh' '" CKC_BUILD_DIR "' >said 2>&1");
    char *said = read_text("said");
    if (status == 77)
        skipped("%s", said);
    else
        ck_assert_msg(status == 0, "%s", said);
    free(said);
}
END_TEST

Suite *suite_api(void)
{
    Suite *s = suite_create("api");
    TCase *c = command_case(s, "api");
    tcase_add_checked_fixture(c, make_data, NULL);
    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, same_bits, 0, sizeof ways / sizeof *ways);
    tcase_add_test(c, same_bits_of_random_data);
    tcase_add_test(c, same_bits_on_a_gpu);
    tcase_add_test(c, schedules);
    tcase_add_test(c, schedule_of_another_model);
    tcase_add_test(c, checkpoints);
    tcase_add_test(c, numbers);
    tcase_add_test(c, tensors);
    tcase_add_loop_test(c, weights_move, 0, 2);
    tcase_add_test(c, weights_are_read);
    tcase_add_test(c, options_that_are_wrong);
    tcase_add_test(c, budget_that_cannot_be_met);
    tcase_add_test(c, arrays_that_are_wrong);
    tcase_add_test(c, two_sessions);
    tcase_add_test(c, sessions_on_threads);
    tcase_add_test(c, threads_are_left_as_they_were);
    tcase_add_test(c, locale_with_a_comma);
    tcase_add_test(c, children_that_others_reap);
    tcase_add_test(c, installed);
    return s;
}
