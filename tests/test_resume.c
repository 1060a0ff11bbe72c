/* test_resume.c -- checkpoints: a resumed run has the bits of one that was never interrupted, whatever
 * interrupted it; a damaged checkpoint gives way to an earlier one, those of another run or in use are
 * refused in a line. */
#include "tests.h"
#include "command.h"
#include "runtime/data.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MODEL "'" CKC_SOURCE_DIR "/examples/mlp/model.onnx' "
#define MLP MODEL "--bind batch=4 --threads 1 --quiet -o p "
#define KEPT "--checkpoint c "

static void same_weights(void) { same_file("a.safetensors", "b.safetensors"); }

/* ---- the same bits --------------------------------------------------------------------------------- */

static const char *const ways[] = {"", "--optimizer momentum --clip-norm 1",
                                   "--precision fp16 --loss-scale 1e12 --accumulate 2"};

START_TEST(goes_on_with_the_same_bits)
{
    const char *way = ways[_i];
    ckc_accepts(format(MLP "--steps 6 --save a.safetensors %s", way));
    ckc_accepts(format(MLP "--steps 2 --every 1 " KEPT "%s", way));
    ckc_accepts(format(MLP "--steps 5 --resume --every 2 " KEPT "%s", way));
    ck_assert_int_eq(files_in("c"), 2);
    ckc_accepts(format(MLP "--steps 6 --resume --save b.safetensors " KEPT "%s", way));
    same_weights();
    ck_assert_int_eq(access("c/step-6.safetensors", R_OK), 0);
    ck_assert_int_eq(access("c/step-5.safetensors", R_OK), 0);
}
END_TEST

/* A run is resumed with the same bits in another plan: from one at a budget to its written schedule, to a
 * plan without a budget. */
START_TEST(goes_on_in_another_plan)
{
    ckc_accepts(MLP "--steps 6 --save a.safetensors --json");
    ckc_accepts(MLP "--steps 2 --budget 64kB " KEPT);
    ckc_accepts("run p/step.ckp --quiet --steps 4 --resume " KEPT);
    ckc_accepts(MLP "--steps 6 --resume --json --save b.safetensors " KEPT);
    same_weights();
    ck_assert_int_eq(json_number("out", "resumed"), 4);
    unlink("b.safetensors");
    ckc_accepts(MLP "--steps 6 --resume --save b.safetensors " KEPT); /* nothing is left to do */
    same_weights();
}
END_TEST

START_TEST(nothing_is_measured_without_a_step)
{
    ckc_accepts(MLP "--steps 2 " KEPT);
    ckc_accepts(MLP "--steps 2 --resume --profile --json " KEPT);
    json_t *report = read_json("out");
    ck_assert(json_is_null(json_object_get(report, "measured_ms")));
    ck_assert_ptr_null(json_object_get(report, "profile"));
    json_decref(report);
}
END_TEST

/* A resumed run continues in the data, with the same running statistics; with other data, or rows in another
 * order, it is refused. */
START_TEST(goes_on_in_the_data)
{
    float x[11][16];
    for (int i = 0; i < 11 * 16; i++)
        x[i / 16][i % 16] = (float)(i * 37 % 23) / 23;
    int64_t target[11] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5}, rows = 11;
    NamedTensor v[] = {{"x", {type_make(DT_F32, 2, (int64_t[]){11, 16}), x}},
                       {"target", {type_make(DT_I64, 1, &rows), target}}};
    Diag d = {0};
    ck_assert_msg(npz_write("d.npz", 2, v, &d), "%s", d.msg);
    ckc_accepts(MLP "--data d.npz --steps 5 --save a.safetensors");
    ckc_accepts(MLP "--data d.npz --steps 2 " KEPT);
    ckc_accepts(MLP "--data d.npz --steps 5 --resume --save b.safetensors " KEPT);
    same_weights();
    x[10][0] = 7;
    ck_assert_msg(npz_write("d.npz", 2, v, &d), "%s", d.msg);
    ckc_refuses(MLP "--data d.npz --steps 7 --resume " KEPT, 1, "was made with data");
    ckc_refuses(MLP "--data d.npz --steps 7 --shuffle --resume " KEPT, 1,
                "was made with rows in order, this run has shuffled");
}
END_TEST

/* If a run has ended between the checkpoint of its last step and the step's validation, resuming it makes the
 * validation up, and however often it is resumed the metrics have that once. */
START_TEST(goes_on_with_the_validation)
{
    const char *again = MLP "--steps 2 --resume --val v.npz --metrics m.jsonl --json " KEPT;
    float x[4 * 16] = {1};
    int64_t target[4] = {3, 1, 4, 1}, rows = 4;
    NamedTensor v[] = {{"x", {type_make(DT_F32, 2, (int64_t[]){4, 16}), x}},
                       {"target", {type_make(DT_I64, 1, &rows), target}}};
    Diag d = {0};
    ck_assert_msg(npz_write("v.npz", 2, v, &d), "%s", d.msg);
    ckc_accepts(MLP "--steps 2 --metrics m.jsonl " KEPT);
    for (int i = 0; i < 2; i++) {
        ckc_accepts(again);
        json_t *report = read_json("out"), *losses = json_object_get(report, "val_losses");
        ck_assert_uint_eq(json_array_size(losses), 1);
        ck_assert(real_of(json_array_get(losses, 0), "step") == 2);
        json_decref(report);
        ck_assert_int_eq(shell("test $(grep -c val_loss m.jsonl) = 1 && test $(wc -l <m.jsonl) = 3"), 0);
    }
}
END_TEST

/* ---- interruptions ---------------------------------------------------------------------------------- */

static bool has_checkpoint(void) { return files_like("c/step-*.safetensors") > 0; }

static void wait_for_checkpoint(void)
{
    for (int i = 0; i < 6000 && !has_checkpoint(); i++)
        usleep(10000);
    ck_assert(has_checkpoint());
}

START_TEST(a_signal_leaves_a_checkpoint)
{
    pid_t pid = ckc_start("", MLP "--steps 100000000 --every 5 " KEPT);
    wait_for_checkpoint();
    kill(pid, SIGINT);
    ckc_ends(pid, 130, "--resume goes on");
    int64_t at = 0;
    for (int64_t s = 1; s < 1000000 && !at; s++)
        at = access(format("c/step-%lld.safetensors", (long long)s), R_OK) == 0 && s % 5 ? s : 0;
    ckc_accepts(format(MLP "--steps %lld --resume --save b.safetensors " KEPT, (long long)at + 2000));
    ckc_accepts(format(MLP "--steps %lld --save a.safetensors", (long long)at + 2000));
    same_weights();
}
END_TEST

/* Checks that the metrics have one line for each of so many steps, in order. */
static void check_metrics(const char *path, int64_t steps)
{
    char *line = NULL;
    size_t room = 0;
    int64_t n = 0;
    FILE *f = fopen(path, "r");
    ck_assert_ptr_nonnull(f);
    while (getline(&line, &room, f) > 0) {
        json_t *o = json_loads(line, 0, NULL);
        ck_assert_int_eq(json_integer_value(json_object_get(o, "step")), ++n);
        ck_assert(json_is_real(json_object_get(o, "loss")) && json_is_real(json_object_get(o, "lr")));
        json_decref(o);
    }
    ck_assert_int_eq(n, steps);
    free(line);
    fclose(f);
}

/* A run that is killed at several moments and resumed ends with the weights and metrics of an undisturbed
 * one; tests/kills.sh tries more moments. */
START_TEST(killed)
{
    enum { KILLS = 4 };
    ckc_accepts(MLP "--steps 300 --save a.safetensors");
    for (int i = 0; i < KILLS; i++) {
        pid_t pid = ckc_start("", MLP "--steps 300 --every 3 --resume --metrics m.jsonl " KEPT);
        if (i % 2 == 0)
            wait_for_checkpoint();
        usleep((useconds_t)(20000 * i + 7000));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    ckc_accepts(MLP "--steps 300 --every 3 --resume --metrics m.jsonl --save b.safetensors " KEPT);
    same_weights();
    check_metrics("m.jsonl", 300);
    ck_assert_int_eq(files_in("c"), 2);
}
END_TEST

/* A folder of checkpoints and a file of metrics are locked as long as their run lives. */
START_TEST(two_runs)
{
    pid_t pid = ckc_start("", MLP "--steps 100000000 --every 5 --metrics m.jsonl " KEPT);
    wait_for_checkpoint();
    ckc_fails("", MLP "--steps 1 --metrics m.jsonl", 1, "m.jsonl: another run writes it");
    ck_assert_int_eq(shell("grep -q '\"step\":5,' m.jsonl"), 0);
    ck_assert_int_eq(shell("mkdir second"), 0);
    ckc_fails("", "run none.ckp --resume " KEPT, 1, "another run");
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    ckc_fails("", "run none.ckp --resume " KEPT, 1, "none.ckp");
}
END_TEST

/* ---- what is refused --------------------------------------------------------------------------------- */

START_TEST(options)
{
    ckc_refuses(MLP "--resume", 1, "--checkpoint DIR");
    ckc_refuses(MLP "--every 3", 1, "--checkpoint DIR");
    ckc_refuses(MLP KEPT "--every 0", 1, "--every");
    ckc_refuses(MLP KEPT "--steps 0", 1, "--checkpoint");
    ckc_refuses(MLP KEPT "--optimizer none", 1, "trains nothing");
    ckc_refuses(MLP "--checkpoint /proc/c", 1, "/proc/c");
    ckc_refuses(MLP "--checkpoint none/c", 1, "none/c");
}
END_TEST

START_TEST(other_runs)
{
    ckc_accepts(MLP "--steps 2 " KEPT);
    int before = files_here();
    ckc_fails("", MLP "--steps 4 " KEPT, 1, "step 2: --resume");
    ckc_fails("", MLP "--steps 1 --resume " KEPT, 1, "--steps 1 is less");
    ckc_fails("", MLP "--steps 2 --resume --grads g.npz " KEPT, 1, "--grads");
    ckc_fails("", MLP "--steps 4 --resume --seed 2 " KEPT, 1, "with seed 1, this run has 2");
    ckc_fails("", MLP "--steps 4 --resume --optimizer sgd " KEPT, 1, "it has '0.weight.m'");
    ckc_fails("", MLP "--steps 4 --resume --precision bf16 " KEPT, 1, "with precision f32");
    ckc_prints(MODEL "--bind batch=4 --threads 1 -o p --steps 2 --resume --beta1 0.8 --lr 0.01 " KEPT,
               "the checkpoint was made with lr 0.001 (now 0.01), beta1 0.9 (now 0.8)\n");
    for (int i = 0; i < 2; i++) { /* the others decay as before, whichever is updated first */
        ckc_accepts(format(MODEL "--bind batch=4 --threads 1 -o p --steps 2 --resume --no-decay '*.%s' " KEPT,
                           i ? "bias" : "weight"));
        char *out = read_text("out");
        ck_assert_msg(!strstr(out, "was made with"), "%s", out);
        free(out);
    }
    ckc_fails("", MODEL "--bind batch=8 --threads 1 --quiet -o p --steps 4 --resume " KEPT, 1, "[8,16]");
    ck_assert_int_eq(files_here(), before);
    ck_assert_int_eq(files_in("c"), 1);
}
END_TEST

/* A resumed run reads weights that train from the checkpoint, and frozen ones from where they came before; it
 * is refused if these have changed. */
START_TEST(other_frozen_weights)
{
    ckc_accepts(MLP "--steps 2 --save w.safetensors");
    ckc_accepts(MLP "--steps 2 --freeze '0.*' " KEPT);
    ckc_fails("", MLP "--steps 4 --freeze '0.*' --weights w.safetensors --resume " KEPT, 1,
              "was made with frozen weights ");
    ckc_accepts(MLP "--steps 4 --freeze '0.*' --budget 64kB --resume " KEPT);
    ckc_accepts(MLP "--steps 2 --checkpoint d");
    ckc_accepts(MLP "--steps 4 --weights w.safetensors --resume --checkpoint d");
}
END_TEST

START_TEST(damaged)
{
    ckc_accepts(MLP "--steps 4 --every 2 --save a.safetensors " KEPT);
    ck_assert_int_eq(shell("head -c 20000 c/step-4.safetensors >x && mv x c/step-4.safetensors"), 0);
    ckc_prints(MODEL "--bind batch=4 --threads 1 -o p --steps 4 --resume --save b.safetensors " KEPT,
               "step-4.safetensors is damaged: the run goes on from step 2");
    same_weights();
    ckc_accepts(MLP "--steps 4 --resume --save b.safetensors " KEPT); /* the damaged one was replaced */
    same_weights();
    ck_assert_int_eq(shell("printf @ | dd of=c/step-4.safetensors bs=1 seek=9000 conv=notrunc 2>/dev/null"),
                     0);
    ckc_prints(MODEL "--bind batch=4 --threads 1 -o p --steps 4 --resume --save b.safetensors " KEPT,
               "step-4.safetensors is damaged: the run goes on from step 2");
    same_weights();
    ck_assert_int_eq(shell("for f in c/*; do head -c 100 $f >x; mv x $f; done"), 0);
    ckc_fails("", MLP "--steps 4 --resume " KEPT, 1,
              "step-4.safetensors: not a safetensors file, or truncated");
}
END_TEST

/* A damaged checkpoint does not count as one of the two that are kept. */
START_TEST(damaged_are_not_kept)
{
    ckc_accepts(MLP "--steps 8 --save a.safetensors");
    ckc_accepts(MLP "--steps 6 --every 2 " KEPT);
    ck_assert_int_eq(truncate("c/step-6.safetensors", 100), 0);
    ckc_accepts(MLP "--steps 8 --resume " KEPT);
    ck_assert_int_eq(access("c/step-4.safetensors", R_OK), 0);
    ck_assert_int_eq(access("c/step-6.safetensors", R_OK), -1);
    ck_assert_int_eq(truncate("c/step-8.safetensors", 100), 0);
    ckc_accepts(MLP "--steps 8 --every 2 --resume --save b.safetensors " KEPT);
    same_weights();
    ck_assert_int_eq(access("c/step-6.safetensors", R_OK), 0);
    ck_assert_int_eq(files_in("c"), 2);
}
END_TEST

START_TEST(full_disk)
{
    ckc_accepts(MLP "--steps 2 " KEPT);
    ckc_fails(
        "ulimit -f 40;", "run p/step.ckp --quiet --steps 4 --resume --save kept.safetensors " KEPT, 4,
        "c/new.safetensors: File too large: the run ends behind step 4; make room, and --resume goes on "
        "from step 2; the weights are written as --save says");
    ck_assert_int_eq(files_in("c"), 1);
    ckc_fails("ulimit -f 4;", "run p/step.ckp --quiet --steps 4 --resume --save w.safetensors " KEPT, 4,
              "nor can the weights be saved: w.safetensors: File too large");
    ck_assert_int_eq(files_in("c") + files_like("w*"), 1);
    ckc_fails("ulimit -f 40;", "run p/step.ckp --quiet --steps 4 --checkpoint n", 4,
              "there is no earlier checkpoint");
    ckc_accepts("run p/step.ckp --quiet --steps 4 --resume --save w.safetensors " KEPT);
    same_file("kept.safetensors", "w.safetensors");
}
END_TEST

START_TEST(weights_not_finite)
{
    ckc_fails("",
              MLP "--steps 9 --every 1 --freeze '*weight,0.*,1.*,4.*,5.*' --optimizer momentum --lr 1e9 "
                  "--momentum 1e9 " KEPT,
              4, "is not finite after step 5");
    ck_assert_int_eq(access("c/step-4.safetensors", R_OK), 0);
}
END_TEST

Suite *suite_resume(void)
{
    Suite *s = suite_create("resume");
    TCase *c = command_case(s, "resume");
    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, goes_on_with_the_same_bits, 0, sizeof ways / sizeof *ways);
    tcase_add_test(c, goes_on_in_another_plan);
    tcase_add_test(c, nothing_is_measured_without_a_step);
    tcase_add_test(c, goes_on_in_the_data);
    tcase_add_test(c, goes_on_with_the_validation);
    tcase_add_test(c, a_signal_leaves_a_checkpoint);
    tcase_add_test(c, killed);
    tcase_add_test(c, two_runs);
    tcase_add_test(c, options);
    tcase_add_test(c, other_runs);
    tcase_add_test(c, other_frozen_weights);
    tcase_add_test(c, damaged);
    tcase_add_test(c, damaged_are_not_kept);
    tcase_add_test(c, full_disk);
    tcase_add_test(c, weights_not_finite);
    return s;
}
