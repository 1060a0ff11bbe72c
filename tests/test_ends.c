/* test_ends.c -- how the command ends when something ends it: signals, full disks, losses that are not
 * finite.  What was there before stays good. */
#include "tests.h"
#include "cli/cli.h"
#include "runtime/runtime.h"
#include <ftw.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MLP "'" CKC_SOURCE_DIR "/examples/mlp/model.onnx' --bind batch=4 --threads 1 "
#define ENDLESS "--budget 70% --moves 1000000000000 "

static char dir[64], cache[64];

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static void make_cache(void)
{
    strcpy(cache, "/tmp/ckc-ends-cache-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(cache));
    setenv("XDG_CACHE_HOME", cache, 1);
}

static void remove_cache(void) { nftw(cache, remove_one, 16, FTW_DEPTH | FTW_PHYS); }

static void enter(void)
{
    strcpy(dir, "/tmp/ckc-ends-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    ck_assert_int_eq(chdir(dir), 0);
}

static void leave(void)
{
    ck_assert_int_eq(chdir("/"), 0);
    nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- running ckc ------------------------------------------------------------------------------ */

static pid_t start(const char *before, const char *args)
{
    char command[4096];
    snprintf(command, sizeof command, "%s exec '%s' %s 2>err", before, CKC_BINARY, args);
    pid_t pid = fork();
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    return pid;
}

static int end_of(pid_t pid)
{
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFEXITED(status), "killed by signal %d", WTERMSIG(status));
    return WEXITSTATUS(status);
}

static void read_text(const char *path, char text[4096])
{
    FILE *f = fopen(path, "r");
    ck_assert_msg(f != NULL, "%s", path);
    text[fread(text, 1, 4095, f)] = 0;
    fclose(f);
}

/* That status, and one line with these words. */
static void ended(pid_t pid, int status, const char *says)
{
    char err[4096];
    int got = end_of(pid);
    read_text("err", err);
    const char *newline = strchr(err, '\n');
    ck_assert_msg(got == status, "exit status %d, wanted %d: %s", got, status, err);
    ck_assert_msg(newline && !newline[1], "not one line: '%s'", err);
    ck_assert_msg(strstr(err, says) != NULL, "'%s' does not say '%s'", err, says);
}

static void fails(const char *before, const char *args, int status, const char *says)
{
    ended(start(before, args), status, says);
}

static int files_here(void)
{
    int n = 0;
    FILE *f = popen("ls -A | grep -cv '^err$\\|^out$'; true", "r");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(fscanf(f, "%d", &n), 1);
    pclose(f);
    return n;
}

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

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    ck_assert_int_eq(fclose(f), 0);
}

static void holds(const char *path, const char *text)
{
    char now[4096];
    read_text(path, now);
    ck_assert_str_eq(now, text);
}

/* ---- signals ----------------------------------------------------------------------------------- */

START_TEST(interrupted_run)
{
    static const int sig[] = {SIGINT, SIGTERM};
    for (int i = 0; i < 2; i++) {
        Diag d = {0};
        unlink("out");
        pid_t pid = start("", MLP "-o p --steps 100000000 --save w.safetensors --grads g.npz >out");
        wait_until(has_run_steps, pid);
        kill(pid, sig[i]);
        ended(pid, 128 + sig[i], "of 100000000");
        ck_assert_int_eq(files_here(), 3);
        ck_assert_int_eq(access("p/step.ckp", R_OK), 0);
        DataFile *grads = data_open("g.npz", &d);
        ck_assert_msg(grads != NULL, "%s", d.msg);
        data_close(grads);
        ck_assert_int_eq(unlink("w.safetensors"), 0);
    }
    unlink("out");
    pid_t pid = start("", "run p/step.ckp --steps 100000000 --save w.safetensors >out");
    wait_until(has_run_steps, pid);
    kill(pid, SIGTERM);
    ended(pid, 143, "of 100000000");
    ck_assert_int_eq(access("w.safetensors", R_OK), 0);
    ck_assert_int_eq(files_here(), 3);
}
END_TEST

/* Both signals are there when it goes on. */
START_TEST(a_signal_after_the_last_step_cuts_nothing_short)
{
    Options o = {0};
    Job j = {.o = &o, .steps = 2, .result.steps = 2};
    signal_caught = SIGTERM;
    ck_assert_int_eq(job_status(&j, true), EXIT_OK);
    j.result.steps = 1;
    ck_assert_int_eq(job_status(&j, true), 128 + SIGTERM);
}
END_TEST

START_TEST(interrupted_twice)
{
    pid_t pid = start("", MLP "-o p --steps 100000000 --save w.safetensors >out");
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

START_TEST(interrupted_planning)
{
    pid_t pid = start("", MLP ENDLESS "-o p --save w.safetensors");
    wait_until(catches_signals, pid);
    usleep(300000);
    kill(pid, SIGINT);
    ended(pid, 130, "SIGINT");
    ck_assert_int_eq(files_here(), 0);
}
END_TEST

/* ---- what cannot be written ------------------------------------------------------------------------ */

/* Before planning, which would not end. */
START_TEST(paths_are_tried)
{
    fails("", MLP ENDLESS "-o /proc/p", 1, "/proc/p");
    fails("", MLP ENDLESS "-o err", 1, "err");
    fails("", MLP ENDLESS "--save /proc/w.safetensors", 1, "/proc/w.safetensors");
    fails("", MLP ENDLESS "--grads /proc/g.npz", 1, "/proc/g.npz");
    fails("", MLP ENDLESS "--instance /proc/i.dag", 1, "/proc/i.dag");
    fails("", "run none.ckp --save /proc/w.safetensors", 1, "/proc/w.safetensors");
    fails("", "solve none.dag --budget 50% -o /proc/s", 1, "/proc/s");
    fails("", "pack none.csv -o /proc/b.csv", 1, "/proc/b.csv");
    ck_assert_int_eq(files_here(), 0);
}
END_TEST

START_TEST(full)
{
    ck_assert_int_eq(end_of(start("", MLP "-o p --quiet --instance i.dag")), 0);
    ck_assert_int_eq(files_here(), 2);
    put("b.csv", "lower,upper,size\n0,2,8\n1,3,8\n");
    fails("", MLP "-o p --json >/dev/full", 4, "standard output: No space left");
    fails("", MLP "-o p >/dev/full", 4, "standard output: No space left");
    fails("", "run p/step.ckp >/dev/full", 4, "standard output: No space left");
    fails("", "eval " MLP ">/dev/full", 4, "standard output: No space left");
    fails("", "--help >/dev/full", 4, "standard output: No space left");
    fails("", "opt --list >/dev/full", 4, "standard output: No space left");
    fails("", "pack b.csv >/dev/full", 4, "standard output: No space left");
    fails("", "pack b.csv -o /dev/full >out", 4, "/dev/full: No space left");
    fails("", "solve i.dag --budget 90% --moves 100 >/dev/full", 4, "standard output: No space");
    fails("", "solve i.dag --budget 100% --moves 100 -o /dev/full >out", 4, "/dev/full: No space");
    put("w.safetensors", "old");
    fails("ulimit -f 8;", "run p/step.ckp --quiet --save w.safetensors", 4, "w.safetensors: File too large");
    holds("w.safetensors", "old");
    ck_assert_int_eq(system("cp -r p q"), 0);
    fails("ulimit -f 60;", MLP "-o q --quiet --steps 0 --seed 7", 4, "q/");
    ck_assert_int_eq(system("diff -r p q"), 0);
    ck_assert_int_eq(files_here(), 5);
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
    put("w.safetensors", "old");
    put("w.onnx", "old");
    ck_assert_int_eq(end_of(start("", MLP "-o p --quiet")), 0);
    int before = files_here() + 3;
    write_data("inf.npz", INFINITY, 3);
    write_data("large.npz", 1e300, 3);
    write_data("ignored.npz", 1, -100);
    static const char *const file[] = {"inf.npz", "large.npz", "ignored.npz"};
    for (int i = 0; i < 3; i++) {
        char args[500];
        snprintf(args, sizeof args, "%s --save w.safetensors --save w.onnx --data %s", MLP "-o q", file[i]);
        fails("", args, 4, "loss of step 1");
        snprintf(args, sizeof args, "run p/step.ckp --save w.safetensors --data %s", file[i]);
        fails("", args, 4, "loss of step 1");
    }
    fails("", MLP "-o q --quiet --data ignored.npz --optimizer none", 4, "loss of step 1");
    fails("", MLP "-o q --quiet --steps 100 --lr 1e9 --optimizer sgd --weight-decay 1e9 --save w.onnx", 4,
          "--clip-norm");
    holds("w.safetensors", "old");
    holds("w.onnx", "old");
    ck_assert_int_eq(files_here(), before);
}
END_TEST

/* The bias that is trained alone grows by 1e9 with every step. */
START_TEST(weights_not_finite)
{
    put("w.safetensors", "old");
    fails("", MLP "-o q --quiet --steps 5 --freeze '*weight,0.*,1.*,4.*,5.*' --optimizer momentum --lr 1e9 "
              "--momentum 1e9 --save w.safetensors", 4, "is not finite after step 5");
    holds("w.safetensors", "old");
    ck_assert_int_eq(files_here(), 1);
}
END_TEST

Suite *suite_ends(void)
{
    Suite *s = suite_create("ends");
    TCase *c = tcase_create("ends");
    tcase_add_unchecked_fixture(c, make_cache, remove_cache);
    tcase_add_checked_fixture(c, enter, leave);
    tcase_set_timeout(c, 120);
    tcase_add_test(c, interrupted_run);
    tcase_add_test(c, a_signal_after_the_last_step_cuts_nothing_short);
    tcase_add_test(c, interrupted_twice);
    tcase_add_test(c, interrupted_planning);
    tcase_add_test(c, paths_are_tried);
    tcase_add_test(c, full);
    tcase_add_test(c, loss_not_finite);
    tcase_add_test(c, weights_not_finite);
    suite_add_tcase(s, c);
    return s;
}
