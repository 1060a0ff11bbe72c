/* test_ends.c -- how the command ends on signals, on full disks and when a loss is not finite.  Files that
 * were there before stay good. */
#include "tests.h"
#include "cli/cli.h"
#include "command.h"
#include "runtime/runtime.h"
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MODEL CKC_SOURCE_DIR "/examples/mlp/model.onnx"
#define MLP "'" MODEL "' --bind batch=4 --threads 1 "
#define ENDLESS "--budget 70% --moves 1000000000000 "

static bool catches_signals(pid_t pid)
{
    char path[64], line[256];
    unsigned long long mask = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "SigCgt: %llx", &mask) == 1)
            break;
    if (f)
        fclose(f);
    return mask >> (SIGTERM - 1) & 1;
}

static bool has_run_steps(pid_t pid)
{
    struct stat st;
    (void)pid;
    return stat("out", &st) == 0 && st.st_size > 0;
}

static void wait_until(bool (*condition)(pid_t), pid_t pid)
{
    for (int i = 0; i < 6000 && !condition(pid); i++)
        usleep(10000);
    ck_assert(condition(pid));
}

static void holds(const char *path, const char *text)
{
    char *now = read_text(path);
    ck_assert_str_eq(now, text);
    free(now);
}

/* ---- signals ----------------------------------------------------------------------------------- */

START_TEST(interrupted_run)
{
    static const int sig[] = {SIGINT, SIGTERM};
    for (int i = 0; i < 2; i++) {
        Diag d = {0};
        pid_t pid = ckc_start("", MLP "-o p --steps 1000000000000 --save w.safetensors --grads g.npz");
        wait_until(has_run_steps, pid);
        kill(pid, sig[i]);
        ckc_ends(pid, 128 + sig[i], "of 1000000000000");
        ck_assert_int_eq(files_here(), 3);
        ck_assert_int_eq(access("p/step.ckp", R_OK), 0);
        DataFile *grads = data_open("g.npz", &d);
        ck_assert_msg(grads != NULL, "%s", d.msg);
        data_close(grads);
        ck_assert_int_eq(unlink("w.safetensors"), 0);
    }
    pid_t pid = ckc_start("", "run p/step.ckp --steps 100000000 --save w.safetensors");
    wait_until(has_run_steps, pid);
    kill(pid, SIGTERM);
    ckc_ends(pid, 143, "of 100000000");
    ck_assert_int_eq(access("w.safetensors", R_OK), 0);
    ck_assert_int_eq(files_here(), 3);
}
END_TEST

static void write_validation(int64_t rows)
{
    int64_t *target = calloc((size_t)rows, sizeof *target);
    float *x = calloc((size_t)rows, 16 * sizeof *x);
    NamedTensor v[] = {{"x", {type_make(DT_F32, 2, (int64_t[]){rows, 16}), x}},
                       {"target", {type_make(DT_I64, 1, &rows), target}}};
    Diag d = {0};
    ck_assert_msg(npz_write("v.npz", 2, v, &d), "%s", d.msg);
    free(x);
    free(target);
}

/* A signal ends a run without waiting for the validation that runs, and without another at the end. */
START_TEST(a_signal_waits_for_no_validation)
{
    write_validation(400000);
    pid_t pid = ckc_start("", MLP "-o p --steps 100000000 --val v.npz --val-every 1 --checkpoint c");
    wait_until(has_run_steps, pid);
    kill(pid, SIGTERM);
    ckc_ends(pid, 143, "of 100000000, without its validation; what was asked for is written; --resume");
    ck_assert_int_eq(files_like("c/step-*.safetensors"), 1);
    ck_assert_int_eq(shell("! grep 'val loss' out"), 0);
}
END_TEST

static bool logs_metrics(pid_t pid)
{
    (void)pid;
    return access("m.jsonl", R_OK) == 0;
}

/* A signal during the validation that a resumed run begins with runs no step: the next run makes it up. */
START_TEST(a_signal_leaves_a_validation_due)
{
    write_validation(400000);
    ckc_accepts(MLP "-o p --steps 1 --checkpoint c");
    pid_t pid = ckc_start("", MLP "-o p --steps 100000000 --val v.npz --val-every 1 --checkpoint c --resume "
                                  "--metrics m.jsonl");
    wait_until(logs_metrics, pid);
    usleep(100000);
    kill(pid, SIGTERM);
    ckc_ends(pid, 143, "ended by SIGTERM: nothing was written");
    ck_assert_int_eq(access("c/step-1.safetensors", R_OK), 0);
    ck_assert_int_eq(files_like("c/step-*.safetensors"), 1);
}
END_TEST

START_TEST(a_signal_after_the_last_step_cuts_nothing_short)
{
    Options o = {0};
    Job j = {.o = &o, .steps = 2, .result.steps = 2};
    signal_caught = SIGTERM;
    ck_assert_int_eq(job_status(&j, true), EXIT_OK);
}
END_TEST

/* Two signals, both pending when the process continues, end it at once without any file. */
START_TEST(interrupted_twice)
{
    pid_t pid = ckc_start("", MLP "-o p --steps 100000000 --save w.safetensors");
    wait_until(has_run_steps, pid);
    kill(pid, SIGSTOP);
    kill(pid, SIGINT);
    kill(pid, SIGTERM);
    kill(pid, SIGCONT);
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) > 128);
    ck_assert_int_eq(files_here(), 0);
}
END_TEST

/* A signal ends planning.  The model's best plan is never proven to be the best, whatever times its kernels
 * take, so that the search would not end by itself. */
START_TEST(interrupted_planning)
{
    pid_t pid = ckc_start("", "'" CKC_SOURCE_DIR "/examples/decoder/model.onnx' --bind batch=2,seq=32 "
                              "--init normal:0.02 --threads 1 " ENDLESS "-o p --save w.safetensors");
    wait_until(catches_signals, pid);
    usleep(300000);
    kill(pid, SIGINT);
    ckc_ends(pid, 130, "SIGINT");
    ck_assert_int_eq(files_here(), 0);
}
END_TEST

/* ---- what cannot be written ------------------------------------------------------------------------ */

/* Paths that cannot be written are refused before planning, which here would not end. */
START_TEST(paths_are_tried)
{
    ckc_fails("", MLP ENDLESS "-o /proc/p", 1, "/proc/p");
    ckc_fails("", MLP ENDLESS "-o err", 1, "err");
    ckc_fails("", MLP ENDLESS "--save /proc/w.safetensors", 1, "/proc/w.safetensors");
    ckc_fails("", MLP ENDLESS "--grads /proc/g.npz", 1, "/proc/g.npz");
    ckc_fails("", MLP ENDLESS "--instance /proc/i.dag", 1, "/proc/i.dag");
    ckc_fails("", "run none.ckp --save /proc/w.safetensors", 1, "/proc/w.safetensors");
    ckc_fails("", "solve none.dag --budget 50% -o /proc/s", 1, "/proc/s");
    ckc_fails("", "pack none.csv -o /proc/b.csv", 1, "/proc/b.csv");
    ck_assert_int_eq(files_here(), 0);
}
END_TEST

static bool cannot_learn(void *profile, const NodeId *first, const double *seconds, uint32_t n, Diag *d)
{
    (void)profile, (void)first, (void)seconds, (void)n;
    return fail_status(d, EXIT_DEVICE, "no room");
}

START_TEST(a_run_that_teaches_nothing_is_no_failure)
{
    Graph g = {0};
    DeviceOps device = {.learn = cannot_learn};
    Plan p = {.g = &g, .predicted_ns = 1000};
    Options o = {0};
    Job j = {.o = &o, .planner = &device, .profile = &g, .plan = &p, .result = {.steps = 9, .median = 1}};
    job_learn(&j);
    ck_assert_int_eq(o.diag.status, EXIT_OK);
    ck_assert_uint_eq(j.nremark, 1);
    ck_assert_ptr_nonnull(strstr(j.remark[0], "cannot be kept: no room"));
    arena_free(&j.arena);
}
END_TEST

START_TEST(nothing_is_overwritten)
{
    static const char *const same[] = {"--metrics m.onnx", "--grads ./m.onnx", "--save w.onnx --save w.onnx",
                                       "--trace a --metrics ./a", "--data d.npz --instance d.npz"};
    ck_assert_int_eq(shell("cp '" MODEL "' m.onnx"), 0);
    write_text("d.npz", "x");
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        ckc_refuses(format("m.onnx --bind batch=4 %s", same[i]), 1, "one would overwrite the other");
    ckc_refuses("explain m.onnx --bind batch=4 --instance m.onnx", 1, "one would overwrite the other");
    static const char *const in_folder[] = {"o/step.onnx -o o", "m.onnx -o o --save o/step.onnx",
                                            "m.onnx -o ./o --metrics o/report.json",
                                            "m.onnx -o o --trace o/step.ckp"};
    ck_assert_int_eq(shell("mkdir o; cp m.onnx o/step.onnx"), 0);
    for (size_t i = 0; i < sizeof in_folder / sizeof *in_folder; i++)
        ckc_refuses(format("%s --bind batch=4", in_folder[i]), 1, "one would overwrite the other");
    same_file("m.onnx", "o/step.onnx");
    write_text("i.dag", "x");
    write_text("b.csv", "x");
    ckc_refuses("pack b.csv -o b.csv", 1, "one would overwrite the other");
    ckc_refuses("solve i.dag --budget 50% -o ./i.dag", 1, "one would overwrite the other");
    ckc_refuses("m.onnx --bind batch=4 --output ''", 1, "--output: its value is empty");
    same_file("m.onnx", "'" MODEL "'");
}
END_TEST

/* If the reader of standard output is gone, a run writes all its files and then ends with status 141. */
START_TEST(reader_is_gone)
{
    shell(format("{ '%s' " MLP "-o p --steps 3 --save w.safetensors 2>err; echo $? >status; } | true",
                 ckc_binary));
    char *status = read_text("status"), *err = read_text("err");
    ck_assert_str_eq(status, "141\n");
    ck_assert_str_eq(err, "");
    ck_assert_int_eq(access("w.safetensors", R_OK), 0);
    ck_assert_int_eq(access("p/step.ckp", R_OK), 0);
    free(status);
    free(err);
}
END_TEST

START_TEST(full)
{
    ck_assert_int_eq(ckc(MLP "-o p --quiet --instance i.dag"), 0);
    ck_assert_int_eq(files_here(), 2);
    write_text("b.csv", "lower,upper,size\n0,2,8\n1,3,8\n");
    ckc_fails("", MLP "-o p --json >/dev/full", 4, "standard output: No space left");
    ckc_fails("", MLP "-o p >/dev/full", 4, "standard output: No space left");
    ckc_fails("", "run p/step.ckp >/dev/full", 4, "standard output: No space left");
    ckc_fails("", "eval " MLP ">/dev/full", 4, "standard output: No space left");
    ckc_fails("", "--help >/dev/full", 4, "standard output: No space left");
    ckc_fails("", "opt --list >/dev/full", 4, "standard output: No space left");
    ckc_fails("", "pack b.csv >/dev/full", 4, "standard output: No space left");
    ckc_fails("", "pack b.csv -o /dev/full", 4, "/dev/full: No space left");
    ckc_fails("", "solve i.dag --budget 90% --moves 100 >/dev/full", 4, "standard output: No space");
    ckc_fails("", "solve i.dag --budget 100% --moves 100 -o /dev/full", 4, "/dev/full: No space");
    write_text("w.safetensors", "old");
    ckc_fails("ulimit -f 8;", "run p/step.ckp --quiet --save w.safetensors", 4,
              "w.safetensors: File too large");
    holds("w.safetensors", "old");
    ck_assert_int_eq(shell("cp -r p q"), 0);
    ckc_fails("ulimit -f 60;", MLP "-o q --quiet --steps 0 --seed 7", 4, "q/");
    ck_assert_int_eq(shell("diff -r p q"), 0);
    ckc_fails("ulimit -f 8;", "'" MODEL "' --bind batch=4 -o r --quiet --steps 5 --emit cuda", 4,
              "r/weights.bin: File too large");
    ck_assert_int_eq(files_here(), 5);
}
END_TEST

/* Checks that a failing command with --json prints one JSON text, the error, to standard output. */
static void one_json_text(const char *args, int status)
{
    ckc_fails("", args, status, "");
    json_t *o = read_json("out");
    ck_assert_msg(json_is_string(json_object_get(o, "error")), "%s", args);
    json_decref(o);
}

START_TEST(percentages_do_not_overflow)
{
    write_text("w.dag", "0 1 4\nwhole 9000000000000000000\n");
    ckc_prints("solve w.dag --budget 1000000%", "budget 4611686018427387904 (51.24 %): cost 1 ");
    ckc_prints("solve w.dag --budget 9223372036854775807", "cost 1 ");
    ckc_refuses("solve w.dag --budget nan%", 1, "'nan%' is no number");
}
END_TEST

START_TEST(json_of_a_failure)
{
    one_json_text(MLP "-o p --steps 2 --json --metrics /dev/full", 4);
    one_json_text("run p/step.ckp --steps 2 --json --metrics /dev/full", 4);
    one_json_text("sweep '" CKC_SOURCE_DIR "/examples/mlp/model.onnx' --batch 4..4 --threads 1 --budget 1kB "
                  "--json --plot x.svg", 3);
    one_json_text("solve '" CKC_SOURCE_DIR "/tests/fuzz/seeds/fuzz_solve/small.dag' --moves 100 --json "
                  "--budget 100% -o /dev/full", 4);
    one_json_text("run none.ckp --js", 1);
}
END_TEST

/* ---- not finite -------------------------------------------------------------------------------------- */

static void write_data(const char *path, double x, int64_t target)
{
    double v[64];
    int64_t t[4], rows = 4;
    Diag d = {0};
    for (int i = 0; i < 64; i++)
        v[i] = x;
    for (int i = 0; i < 4; i++)
        t[i] = target;
    NamedTensor n[] = {{"x", {type_make(DT_F64, 2, (int64_t[]){4, 16}), v}},
                       {"target", {type_make(DT_I64, 1, &rows), t}}};
    ck_assert_msg(npz_write(path, 2, n, &d), "%s", d.msg);
}

START_TEST(loss_not_finite)
{
    write_text("w.safetensors", "old");
    write_text("w.onnx", "old");
    ck_assert_int_eq(ckc(MLP "-o p --quiet"), 0);
    int before = files_here() + 3;
    write_data("inf.npz", INFINITY, 3);
    write_data("large.npz", 1e300, 3);
    write_data("ignored.npz", 1, -100);
    static const char *const file[] = {"inf.npz", "large.npz", "ignored.npz"};
    for (int i = 0; i < 3; i++) {
        ckc_fails("", format(MLP "-o q --save w.safetensors --save w.onnx --data %s", file[i]), 4,
                  "loss of step 1");
        ckc_fails("", format("run p/step.ckp --save w.safetensors --data %s", file[i]), 4, "loss of step 1");
    }
    ckc_fails("", MLP "-o q --quiet --data ignored.npz --optimizer none", 4, "loss of step 1");
    ckc_fails("", MLP "-o q --steps 2 --data ignored.npz", 4, "loss of step 1");
    ck_assert_int_eq(shell("grep -q 'loss nan ' out"), 0); /* whatever its sign */
    ck_assert_int_eq(ckc(MLP "-o p --steps 2 --val ignored.npz"), 0);
    ck_assert_int_eq(shell("grep -q 'val loss nan' out && ! grep -- -nan out"), 0);
    ckc_fails("", MLP "-o q --quiet --steps 100 --lr 1e9 --optimizer sgd --weight-decay 1e9 --save w.onnx", 4,
          "--clip-norm");
    holds("w.safetensors", "old");
    holds("w.onnx", "old");
    ck_assert_int_eq(files_here(), before);
}
END_TEST

/* Weights that are not finite are not saved.  Here only a bias is trained, which grows by 1e9 every step. */
START_TEST(weights_not_finite)
{
    write_text("w.safetensors", "old");
    ckc_fails("",
              MLP "-o q --quiet --steps 5 --freeze '*weight,0.*,1.*,4.*,5.*' --optimizer momentum --lr 1e9 "
                  "--momentum 1e9 --save w.safetensors",
              4, "is not finite after step 5");
    holds("w.safetensors", "old");
    ck_assert_int_eq(files_here(), 1);
}
END_TEST

Suite *suite_ends(void)
{
    Suite *s = suite_create("ends");
    TCase *c = command_case(s, "ends");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, interrupted_run);
    tcase_add_test(c, a_signal_waits_for_no_validation);
    tcase_add_test(c, a_signal_leaves_a_validation_due);
    tcase_add_test(c, a_signal_after_the_last_step_cuts_nothing_short);
    tcase_add_test(c, interrupted_twice);
    tcase_add_test(c, interrupted_planning);
    tcase_add_test(c, paths_are_tried);
    tcase_add_test(c, a_run_that_teaches_nothing_is_no_failure);
    tcase_add_test(c, reader_is_gone);
    tcase_add_test(c, nothing_is_overwritten);
    tcase_add_test(c, full);
    tcase_add_test(c, percentages_do_not_overflow);
    tcase_add_test(c, json_of_a_failure);
    tcase_add_test(c, loss_not_finite);
    tcase_add_test(c, weights_not_finite);
    return s;
}
