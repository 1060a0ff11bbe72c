/* test_cache.c -- the cache of compiled kernels and measured costs: nothing in it is executed or believed
 * unless it is complete and only this user can have written it; and schedules, which read no file that the
 * user did not allow. */
#include "tests.h"
#include "command.h"
#include "ir/file.h"
#include "runtime/cpu/cpu.h"
#include "runtime/kernel_cache.h"
#include "runtime/times.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MLP                                                                                \
    CKC_SOURCE_DIR "/examples/mlp/model.onnx --bind batch=4 --output m.ckc --loss ce"

static char warm[64]; /* a home folder whose cache has all that MLP needs; every test works on a copy of it */

static void make_home(void)
{
    make_folder();
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", folder_path(), 1);
}

/* Trains for two steps, with `before` run in the shell first, and returns the line of losses that ckc prints;
 * the caller frees it. */
static char *train(const char *before, const char *options)
{
    char args[1000];
    snprintf(args, sizeof args, MLP " --steps 2 %s", options);
    int status = ckc_end(ckc_start(before, args));
    char *err = read_text("err"), *out = read_text("out");
    ck_assert_msg(status == 0, "%s: %s", args, err);
    const char *loss = strstr(out, "\nloss ");
    ck_assert_ptr_nonnull(loss);
    char *losses = strndup(loss, strcspn(loss + 1, "\n") + 1);
    free(err);
    free(out);
    return losses;
}

/* Checks that training gives the same losses, as whatever the cache holds must, and that the output has
 * `note`; NULL: that nothing is said not to be kept. */
static void trains_alike(const char *before, const char *loss, const char *note)
{
    char *again = train(before, ""), *out = read_text("out");
    ck_assert_str_eq(again, loss);
    const char *said = strstr(out, note ? note : "not kept");
    ck_assert_msg(!said == !note, "%s", out);
    free(again);
    free(out);
}

static void make_warm(void)
{
    make_home();
    strcpy(warm, folder_path());
    free(train("", ""));
}

static void enter(void)
{
    make_home();
    ck_assert_int_eq(shell(format("cp -a %s/.cache .", warm)), 0);
}

/* Whether the test can make files of another user, which takes root; if not, a skip is reported. */
static bool may_chown(void)
{
    if (geteuid() == 0)
        return true;
    skipped("files of another user are made by root alone");
    return false;
}

/* ---- folders ------------------------------------------------------------------------------ */

/* Checks that a cache at path lies in the folder `in`, or with a reason in a temporary one if that is NULL,
 * and that no other user can write there. */
static void opens(const char *path, const char *in)
{
    CacheFolder c;
    Diag d = {0};
    char why[PATH_MAX + 128];
    ck_assert_msg(cache_folder_open(&c, path, why, &d), "%s", d.msg);
    if (in) {
        char *real = realpath(in, NULL);
        ck_assert_msg(real && strcmp(c.path, real) == 0 && !*why, "%s: %s, %s", path,
                      c.path, why);
        free(real);
    } else {
        ck_assert_msg(c.temporary && *why, "%s: in %s", path, c.path);
    }
    struct stat st;
    ck_assert_int_eq(stat(c.path, &st), 0);
    ck_assert(st.st_uid == geteuid() && (st.st_mode & 022) == 0);
    char used[PATH_MAX];
    strcpy(used, c.path);
    cache_folder_close(&c);
    ck_assert_int_eq(access(used, F_OK), in ? 0 : -1);
}

START_TEST(folders)
{
    char own[64];
    snprintf(own, sizeof own, "shared/ckc-%lu", (unsigned long)geteuid());
    opens("a/b", "a/b");
    ck_assert_int_eq(
        shell("mkdir -m 755 theirs shared moved; chmod 1777 shared; chmod 777 moved;"
              "ln -s a/b link; touch file; umask 0; ls >/dev/null"),
        0);
    opens("theirs", "theirs");
    opens("shared", own);
    opens("link", "a/b");
    opens("file", NULL);
    opens("/proc/self", NULL); /* this user owns it, but no file can be made there */
    opens("moved", NULL);      /* another user could put a different folder in its place */
    opens("moved/x", NULL);
    opens("", NULL);
    ck_assert_int_eq(chmod(own, 0777), 0);
    opens("shared", NULL);
    ck_assert_int_eq(rmdir(own) || symlink("../a/b", own), 0);
    opens("shared", NULL);
}
END_TEST

/* Without a home folder the cache is the user's own folder below TMPDIR, unless others can write to that
 * folder or own it. */
START_TEST(homeless)
{
    char own[64];
    snprintf(own, sizeof own, "ckc-%lu", (unsigned long)geteuid());
    unsetenv("HOME");
    setenv("TMPDIR", folder_path(), 1);
    ck_assert_int_eq(chmod(".", 01777), 0);
    opens(NULL, own);
    ck_assert_int_eq(chmod(own, 0777), 0);
    opens(NULL, NULL);
    if (may_chown()) {
        ck_assert_int_eq(chmod(own, 0700) || chown(own, 65534, 65534), 0);
        opens(NULL, NULL);
    }
}
END_TEST

/* ---- files -------------------------------------------------------------------------------- */

START_TEST(files)
{
    CacheFolder c;
    Diag d = {0};
    char why[PATH_MAX + 128], *text = NULL;
    ck_assert(cache_folder_open(&c, "c", why, &d) &&
              cache_file_write(&c, "x", "some words\n", &d));
    ck_assert_int_eq(cache_file_check(&c, "x", &text), CACHE_FOUND);
    ck_assert_str_eq(text, "some words\n");
    free(text);
    ck_assert_int_eq(cache_file_check(&c, "y", NULL), CACHE_ABSENT);
    ck_assert_int_eq(files_like("c/*"), 1);
    ck_assert_int_eq(shell("mkdir c/tmp-1.tmp; : >c/tmp-1.tmp/0.c; : >c/tmp-1.tmp/.ckc-temporary"), 0);
    ck_assert(cache_file_write(&c, "x", "some words\n", &d)); /* removes what a killed process left */
    ck_assert_int_eq(files_like("c/*"), 1);
    ck_assert_int_eq(
        shell("cp -p c/x c/cut; truncate -s -1 c/cut; sed s/words/bytes/ c/x >c/other;"
              "ln -s x c/link; mkfifo -m 600 c/fifo; cp c/x c/open; chmod 622 c/open;"
              ": >c/empty; cp -p c/x c/theirs"),
        0);
    static const char *const bad[] = {"cut", "other", "link", "fifo", "open", "empty", "."};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(cache_file_check(&c, bad[i], NULL) == CACHE_DAMAGED, "%s", bad[i]);
    if (may_chown()) {
        ck_assert_int_eq(chown("c/theirs", 65534, 65534), 0);
        ck_assert_int_eq(cache_file_check(&c, "theirs", NULL), CACHE_DAMAGED);
    }
    cache_folder_close(&c);
}
END_TEST

/* A file that cannot be written completely, as on a full disk, is an error and leaves nothing behind. */
START_TEST(files_too_large)
{
    static char text[100000];
    CacheFolder c;
    Diag d = {0};
    char why[PATH_MAX + 128];
    memset(text, 'x', sizeof text - 1);
    ck_assert(cache_folder_open(&c, "c", why, &d));
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &(struct rlimit){50000, 50000}), 0);
    ck_assert(!cache_file_write(&c, "x", text, &d));
    ck_assert_int_eq(d.status, EXIT_DEVICE);
    ck_assert_msg(strstr(d.msg, "File too large") != NULL, "%s", d.msg);
    ck_assert_int_eq(files_like("c/*"), 0);
    cache_folder_close(&c);
}
END_TEST

/* ---- ckc ---------------------------------------------------------------------------------- */

/* Damaged files are made again: objects silently, measured costs with a note. */
START_TEST(damaged)
{
    char *loss = train("", "");
    ck_assert_int_eq(shell("for f in .cache/ckc/*.so; do truncate -s 5000 $f; done"), 0);
    trains_alike("", loss, NULL);
    ck_assert_int_eq(shell("for f in .cache/ckc/*.so; do printf x | "
                           "dd of=$f bs=1 seek=4096 conv=notrunc status=none; done"),
                     0);
    trains_alike("", loss, NULL);
    ck_assert_int_eq(shell("for f in .cache/ckc/profile*; do echo nonsense >$f; done"), 0);
    trains_alike("", loss, "damaged");
    trains_alike("", loss, NULL);
    free(loss);
}
END_TEST

/* Objects of another user, or in another user's folder, are not loaded: their code would run. */
START_TEST(planted)
{
    if (!may_chown())
        return;
    char *loss = train("", "");
    ck_assert_int_eq(
        shell("echo '__attribute__((constructor)) static void f(void)"
              " { fopen(\"ran\", \"w\"); }' | sed '1i #include <stdio.h>' >evil.c;"
              "cc -shared -fPIC -o evil.so evil.c; for f in .cache/ckc/*.so; do "
              "cp --remove-destination evil.so $f; chown 65534 $f; done"),
        0);
    trains_alike("", loss, NULL);
    ck_assert_int_eq(
        shell("for f in .cache/ckc/*.so; do cp --remove-destination evil.so $f; done;"
              "chown -R 65534 .cache/ckc"),
        0);
    trains_alike("", loss, "not kept");
    ck_assert_int_eq(
        shell("for f in .cache/ckc/*.so; do cmp -s evil.so $f || exit 1; done"), 0);
    ck_assert_int_ne(access("ran", F_OK), 0);
    free(loss);
}
END_TEST

START_TEST(without_compiler)
{
    ckc_fails("PATH=/nowhere;", MLP " --cache cold", 4, "compiler");
    char *loss = train("", "");
    trains_alike("PATH=/nowhere;", loss, NULL);
    free(loss);
}
END_TEST

/* A compiler that prints no version of itself is waited for as well: no child process is left. */
START_TEST(silent_compiler)
{
    KernelCache c;
    Diag d = {0};
    ck_assert_int_eq(shell("mkdir bin && echo '#!/bin/sh' >bin/cc && chmod 755 bin/cc"), 0);
    ck_assert_msg(kernel_cache_open(&c, "c", &d), "%s", d.msg);
    setenv("PATH", format("%s/bin", folder_path()), 1);
    compiler_identity(&c);
    ck_assert_int_eq(waitpid(-1, NULL, 0), -1);
    kernel_cache_close(&c);
}
END_TEST

/* Objects and times belong to one instruction set: a run with another one makes its own. */
START_TEST(instructions_are_in_the_keys)
{
    if (!use_isa(1))
        return;
    free(train("", "--cache both"));
    int objects = files_like("both/*.so");
    free(train("export ONEDNN_MAX_CPU_ISA=SSE41;", "--cache both"));
    ck_assert_int_gt(files_like("both/*.so"), objects);
    ck_assert_int_eq(files_like("both/profile-*"), 2);
}
END_TEST

/* Of two processes that measure at the same time, neither removes the times that the other has written, nor
 * restores old ones that it read earlier. */
START_TEST(times_of_two_runs)
{
    const XXH128_hash_t both = {1, 1}, first = {2, 2}, second = {3, 3};
    KernelCache c;
    Table t[3];
    Diag d = {0};
    ck_assert_msg(kernel_cache_open(&c, "c", &d), "%s", d.msg);
    table_open(&t[0], &c, 7);
    uint32_t at = table_find(&t[0], both);
    t[0].entry[at].ns = 10;
    ck_assert_msg(table_write(&t[0], &d), "%s", d.msg);
    table_open(&t[1], &c, 7);
    at = table_find(&t[0], first);
    t[0].entry[at].ns = 20;
    at = table_find(&t[0], both);
    t[0].entry[at].ns = 11;
    at = table_find(&t[1], second);
    t[1].entry[at].ns = 30;
    ck_assert_msg(table_write(&t[0], &d) && table_write(&t[1], &d), "%s", d.msg);
    table_open(&t[2], &c, 7);
    ck_assert_uint_eq(t[2].n, 3);
    ck_assert_double_eq(t[2].entry[table_find(&t[2], both)].ns, 11);
    ck_assert_double_eq(t[2].entry[table_find(&t[2], first)].ns, 20);
    ck_assert_double_eq(t[2].entry[table_find(&t[2], second)].ns, 30);
    for (int i = 0; i < 3; i++)
        table_close(&t[i]);
    kernel_cache_close(&c);
}
END_TEST

/* Folders whose names have blanks, quotes or a leading '-' work: no such name is parsed by a shell or taken
 * for an option. */
START_TEST(odd_names)
{
    ck_assert_int_eq(mkdir("t 'x\" $y", 0700), 0);
    char *loss = train("export TMPDIR=\"$PWD/t 'x\\\" \\$y\";", "--cache \"-o 'z\n@\"");
    ck_assert_int_gt(files_like("-o*/*.so"), 0);
    free(loss);
}
END_TEST

/* ---- schedules ------------------------------------------------------------------------------------ */

enum { SECRET = 48 * 4 }; /* bytes of the first bias, and of the file that it may be made to refer to */

/* Makes a folder with a schedule, and outside it the file "secret", which the schedule must not read. */
static void make_schedule(void)
{
    ckc_accepts(MLP " --steps 0 --quiet");
    write_text("secret", format("%0*d", SECRET, 7));
}

/* Writes x.ckp: step.ckp with the bias stored at the start of `file`, and one more line in its header. */
static void refer_to(const char *file, const char *header)
{
    ck_assert_int_eq(shell(format("sed 's|\\(param %%0.bias.*@\\).*|\\1\"%s\" 0|; s|^plan 6 {|&\\n%s|' "
                                  "m.ckc/step.ckp >m.ckc/x.ckp", file, header)), 0);
}

static void accepted(const char *options) { ckc_accepts(format("run m.ckc/x.ckp --quiet %s", options)); }

static void refused(const char *options, const char *says)
{
    ckc_refuses(format("run m.ckc/x.ckp --quiet %s", options), 1, says);
}

/* The header line that gives the hash of a file; valid until the next call. */
static const char *hash_line(const char *path)
{
    static char line[200];
    FileMap m;
    Diag d = {0};
    ck_assert_msg(file_map(&m, path, &d), "%s", d.msg);
    snprintf(line, sizeof line, "file \"../%s\" %016llx", path,
             (unsigned long long)XXH64(m.data, m.size, 0));
    file_unmap(&m);
    return line;
}

/* A schedule reads weights from files outside its folder only below --allow-path, or if it has their hash:
 * otherwise any file's bytes could be saved as trained weights. */
START_TEST(files_outside)
{
    char absolute[100];
    snprintf(absolute, sizeof absolute, "%s/secret", folder_path());
    make_schedule();
    ck_assert_int_eq(symlink("../secret", "m.ckc/link"), 0);
    const char *const name[] = {absolute, "../secret", "link", "../m.ckc/../secret"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        refer_to(name[i], "");
        refused("--lr 0 --save out.safetensors", "--allow-path");
        refused("--lr 0 --allow-path m.ckc", "--allow-path");
    }
    ck_assert_int_ne(access("out.safetensors", F_OK), 0);
    accepted("--lr 0 --allow-path . --save out.safetensors");
    ck_assert_int_eq(shell("grep -q 0000000000000007 out.safetensors"), 0);
    refer_to("../secret", "file \"../secret\" 0123456789abcdef");
    refused("", "secret: is not the file");
    refused("--allow-path .", "secret: is not the file");
    refer_to("../secret", hash_line("secret")); /* whoever knows the hash knows the contents */
    accepted("");
    refer_to("/dev/null", "");
    refused("--allow-path /dev", "/dev/null");
}
END_TEST

START_TEST(files_inside)
{
    make_schedule();
    ck_assert_int_eq(shell("cp secret m.ckc/consts.bin"), 0);
    refer_to("consts.bin", "");
    accepted("");
    refer_to("../m.ckc/consts.bin", hash_line("m.ckc/consts.bin"));
    accepted("");
    ck_assert_int_eq(shell("echo >>m.ckc/consts.bin"), 0);
    refused("", "consts.bin: is not the file");
    ck_assert_int_eq(shell("sed '/file .*consts/d' -i m.ckc/x.ckp; echo >m.ckc/consts.bin"), 0);
    refused("", "too short");
    ck_assert_int_eq(shell("rm m.ckc/consts.bin; mkfifo m.ckc/consts.bin"), 0);
    refused("", "not a regular file");
}
END_TEST

/* The model that --save copies must have the hash in the schedule, and training data that the schedule names
 * without a hash is used only if --data names a file. */
START_TEST(model_and_data)
{
    make_schedule();
    ck_assert_int_eq(shell("cp '" CKC_SOURCE_DIR "/examples/mlp/model.onnx' other.onnx; echo >>other.onnx;"
                           "sed 's|model .* |model \"../other.onnx\" |' m.ckc/step.ckp >m.ckc/x.ckp"), 0);
    refused("--save out.onnx", "other.onnx: is not the file");
    refused("--allow-path . --save out.onnx", "other.onnx: is not the file");
    refused("", "allow-path"); /* the weights are in a file that is not the named model */
    ck_assert_int_eq(shell("sed 's|^plan 6 {|&\\n  data \"../secret\"|' m.ckc/step.ckp >m.ckc/x.ckp"), 0);
    refused("", "--data");
    refused("--data missing.npz", "missing.npz");
}
END_TEST

/* A schedule as ckc wrote it runs and saves without --allow-path, wherever it and the model lie. */
START_TEST(own_schedule)
{
    ck_assert_int_eq(
        shell("mkdir -p deep/folder far; cp '" CKC_SOURCE_DIR "/examples/mlp/model.onnx' m.onnx"), 0);
    ckc_accepts("m.onnx --bind batch=4 -o deep/folder/s --steps 1 --quiet --loss mse --grads g.npz");
    ck_assert_int_eq(chdir("far"), 0);
    ckc_accepts("run ../deep/folder/s/step.ckp --save o.onnx --quiet");
}
END_TEST

Suite *suite_cache(void)
{
    Suite *s = suite_create("cache");
    TCase *c = tcase_create("cache");
    tcase_add_unchecked_fixture(c, make_warm, remove_folder);
    tcase_add_checked_fixture(c, enter, remove_folder);
    tcase_add_test(c, folders);
    tcase_add_test(c, homeless);
    tcase_add_test(c, files);
    tcase_add_test(c, files_too_large);
    tcase_add_test(c, damaged);
    tcase_add_test(c, planted);
    tcase_add_test(c, without_compiler);
    tcase_add_test(c, silent_compiler);
    tcase_add_test(c, instructions_are_in_the_keys);
    tcase_add_test(c, odd_names);
    tcase_add_test(c, times_of_two_runs);
    tcase_add_test(c, files_outside);
    tcase_add_test(c, files_inside);
    tcase_add_test(c, model_and_data);
    tcase_add_test(c, own_schedule);
    suite_add_tcase(s, c);
    return s;
}
