/* test_cache.c -- the cache of compiled kernels and measured costs: nothing in it is
 * executed or believed unless this user alone can have written it, and it is whole. */
#include "tests.h"
#include "ir/file.h"
#include "runtime/kernel_cache.h"
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <stdarg.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define MLP                                                                                \
    CKC_SOURCE_DIR "/examples/mlp/model.onnx --bind batch=4 --output m.ckc --loss ce"

static char warm[64]; /* a home with a cache that has what MLP needs */
static char dir[64];  /* every test works in a folder of its own, with a copy of that */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static void make_folder(char path[64])
{
    strcpy(path, "/tmp/ckc-cache-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(path));
    ck_assert_int_eq(chdir(path), 0);
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", path, 1);
}

static void remove_folder(const char *path)
{
    ck_assert_int_eq(chdir("/"), 0);
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static int shell(const char *command)
{
    int status = system(command);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static const char *slurp(const char *path)
{
    static char text[1 << 16];
    FILE *f = fopen(path, "r");
    ck_assert_ptr_nonnull(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    return text;
}

/* The last losses of two steps; out and err are what was printed. */
static char *train(const char *environment, const char *options)
{
    char command[4096];
    snprintf(command, sizeof command, "%s '%s' " MLP " --steps 2 %s >out 2>err",
             environment, CKC_BINARY, options);
    int status = shell(command);
    ck_assert_msg(status == 0, "%s: %s", command, slurp("err"));
    const char *loss = strstr(slurp("out"), "\nloss ");
    ck_assert_ptr_nonnull(loss);
    return strndup(loss, strcspn(loss + 1, "\n") + 1);
}

/* Every test is about what happens before the first step: that has to give the same loss.
 */
static void trains_alike(const char *environment, const char *options, const char *loss,
                         const char *note)
{
    char *again = train(environment, options);
    ck_assert_str_eq(again, loss);
    free(again);
    const char *said = strstr(slurp("out"), note ? note : "not kept");
    ck_assert_msg(!said == !note, "%s", slurp("out"));
}

static int count(const char *pattern)
{
    glob_t g;
    int n = glob(pattern, 0, NULL, &g) == 0 ? (int)g.gl_pathc : 0;
    globfree(&g);
    return n;
}

static void make_warm(void)
{
    make_folder(warm);
    free(train("", ""));
}

static void remove_warm(void) { remove_folder(warm); }

static void enter(void)
{
    make_folder(dir);
    char command[200];
    snprintf(command, sizeof command, "cp -a %s/.cache .", warm);
    ck_assert_int_eq(shell(command), 0);
}

static void leave(void) { remove_folder(dir); }

/* ---- folders
 * -------------------------------------------------------------------------------- */

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
    opens("moved", NULL); /* somebody could put another folder in the place of ours */
    opens("moved/x", NULL);
    opens("", NULL);
    ck_assert_int_eq(chmod(own, 0777), 0);
    opens("shared", NULL);
    ck_assert_int_eq(rmdir(own) || symlink("../a/b", own), 0);
    opens("shared", NULL);
}
END_TEST

/* Without a home: a folder of the user's in the temporary one, unless somebody was there
 * before. */
START_TEST(homeless)
{
    char own[64];
    snprintf(own, sizeof own, "ckc-%lu", (unsigned long)geteuid());
    unsetenv("HOME");
    setenv("TMPDIR", dir, 1);
    ck_assert_int_eq(chmod(dir, 01777), 0);
    opens(NULL, own);
    ck_assert_int_eq(chmod(own, 0777), 0);
    opens(NULL, NULL);
    if (geteuid() == 0) {
        ck_assert_int_eq(chmod(own, 0700) || chown(own, 65534, 65534), 0);
        opens(NULL, NULL);
    }
}
END_TEST

/* ---- files
 * ----------------------------------------------------------------------------------- */

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
    ck_assert_int_eq(count("c/*"), 1);
    ck_assert_int_eq(shell("mkdir c/tmp-1.tmp; : >c/tmp-1.tmp/0.c; : >c/tmp-1.tmp/.ckc-temporary"), 0);
    ck_assert(cache_file_write(&c, "x", "some words\n", &d)); /* takes what a killed process left */
    ck_assert_int_eq(count("c/*"), 1);
    ck_assert_int_eq(
        shell("cp -p c/x c/cut; truncate -s -1 c/cut; sed s/words/bytes/ c/x >c/other;"
              "ln -s x c/link; mkfifo -m 600 c/fifo; cp c/x c/open; chmod 622 c/open;"
              ": >c/empty; cp -p c/x c/theirs"),
        0);
    static const char *const bad[] = {"cut", "other", "link", "fifo", "open", "empty", "."};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(cache_file_check(&c, bad[i], NULL) == CACHE_DAMAGED, "%s", bad[i]);
    if (geteuid() == 0) {
        ck_assert_int_eq(chown("c/theirs", 65534, 65534), 0);
        ck_assert_int_eq(cache_file_check(&c, "theirs", NULL), CACHE_DAMAGED);
    }
    cache_folder_close(&c);
}
END_TEST

/* ---- ckc
 * ----------------------------------------------------------------------------------------
 */

/* What is altered is made again: objects silently, measured costs with a note. */
START_TEST(damaged)
{
    char *loss = train("", "");
    ck_assert_int_eq(shell("for f in .cache/ckc/*.so; do truncate -s 5000 $f; done"), 0);
    trains_alike("", "", loss, NULL);
    ck_assert_int_eq(shell("for f in .cache/ckc/*.so; do printf x | "
                           "dd of=$f bs=1 seek=4096 conv=notrunc status=none; done"),
                     0);
    trains_alike("", "", loss, NULL);
    ck_assert_int_eq(shell("for f in .cache/ckc/profile*; do echo nonsense >$f; done"), 0);
    trains_alike("", "", loss, "damaged");
    trains_alike("", "", loss, NULL);
    free(loss);
}
END_TEST

/* An object of another user's, with code that runs when it is loaded. */
START_TEST(planted)
{
    if (geteuid() != 0) {
        printf("skipped: planting files of another user needs root\n");
        return;
    }
    char *loss = train("", "");
    ck_assert_int_eq(
        shell("echo '__attribute__((constructor)) static void f(void)"
              " { fopen(\"ran\", \"w\"); }' | sed '1i #include <stdio.h>' >evil.c;"
              "cc -shared -fPIC -o evil.so evil.c; for f in .cache/ckc/*.so; do "
              "cp --remove-destination evil.so $f; chown 65534 $f; done"),
        0);
    trains_alike("", "", loss, NULL);
    ck_assert_int_eq(
        shell("for f in .cache/ckc/*.so; do cp --remove-destination evil.so $f; done;"
              "chown -R 65534 .cache/ckc"),
        0);
    trains_alike("", "", loss, "not kept");
    ck_assert_int_eq(
        shell("for f in .cache/ckc/*.so; do cmp -s evil.so $f || exit 1; done"), 0);
    ck_assert_int_ne(access("ran", F_OK), 0);
    free(loss);
}
END_TEST

START_TEST(without_compiler)
{
    ck_assert_int_eq(shell("PATH=/nowhere '" CKC_BINARY "' " MLP " --cache cold 2>err"), 4);
    ck_assert_ptr_nonnull(strstr(slurp("err"), "compiler"));
    ck_assert_int_eq(shell("test $(wc -l <err) = 1"), 0);
    char *loss = train("", "");
    trains_alike("PATH=/nowhere", "", loss, NULL);
    free(loss);
}
END_TEST

/* Neither blanks nor quotes nor what looks like an option reaches a command line. */
START_TEST(odd_names)
{
    ck_assert_int_eq(mkdir("t 'x\" $y", 0700), 0);
    char *loss = train("TMPDIR=\"$PWD/t 'x\\\" \\$y\"", "--cache \"-o 'z\n@\"");
    ck_assert_int_gt(count("-o*/*.so"), 0);
    free(loss);
}
END_TEST

/* ---- schedules ------------------------------------------------------------------------------------ */

enum { SECRET = 48 * 4 }; /* bytes; as many as the first bias has */

static void write_file(const char *path, const char *format, ...)
{
    va_list ap;
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    va_start(ap, format);
    vfprintf(f, format, ap);
    va_end(ap);
    fclose(f);
}

/* A folder with a schedule, beside it a file that it should not read. */
static void make_schedule(void)
{
    ck_assert_int_eq(shell("'" CKC_BINARY "' " MLP " --steps 0 --quiet"), 0);
    write_file("secret", "%0*d", SECRET, 7);
}

/* step.ckp with the bias at the start of another file, and one more line in its header. */
static void refer_to(const char *file, const char *header)
{
    char command[1000];
    snprintf(command, sizeof command,
             "sed 's|\\(param %%0.bias.*@\\).*|\\1\"%s\" 0|; s|^plan 2 {|&\\n%s|' m.ckc/step.ckp "
             ">m.ckc/x.ckp", file, header);
    ck_assert_int_eq(shell(command), 0);
}

static int run(const char *options)
{
    char command[1000];
    snprintf(command, sizeof command, "'%s' run m.ckc/x.ckp --quiet %s 2>err", CKC_BINARY, options);
    return shell(command);
}

static void refused(const char *options, const char *says)
{
    int status = run(options);
    const char *err = slurp("err"), *newline = strchr(err, '\n');
    ck_assert_msg(status == 1 && newline && !newline[1] && strstr(err, says), "%d: %s", status, err);
}

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

/* The bytes would come out as trained weights. */
START_TEST(files_outside)
{
    char absolute[100];
    snprintf(absolute, sizeof absolute, "%s/secret", dir);
    make_schedule();
    ck_assert_int_eq(symlink("../secret", "m.ckc/link"), 0);
    const char *const name[] = {absolute, "../secret", "link", "../m.ckc/../secret"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        refer_to(name[i], "");
        refused("--lr 0 --save out.safetensors", "--allow-path");
        refused("--lr 0 --allow-path m.ckc", "--allow-path");
    }
    ck_assert_int_ne(access("out.safetensors", F_OK), 0);
    ck_assert_int_eq(run("--lr 0 --allow-path . --save out.safetensors"), 0);
    ck_assert_int_eq(shell("grep -q 0000000000000007 out.safetensors"), 0);
    refer_to("../secret", "file \"../secret\" 0123456789abcdef");
    refused("", "secret: is not the file");
    refused("--allow-path .", "secret: is not the file");
    refer_to("../secret", hash_line("secret")); /* who knows the hash knows the content */
    ck_assert_int_eq(run(""), 0);
    refer_to("/dev/null", "");
    refused("--allow-path /dev", "/dev/null");
}
END_TEST

START_TEST(files_inside)
{
    make_schedule();
    ck_assert_int_eq(shell("cp secret m.ckc/consts.bin"), 0);
    refer_to("consts.bin", "");
    ck_assert_int_eq(run(""), 0);
    refer_to("../m.ckc/consts.bin", hash_line("m.ckc/consts.bin"));
    ck_assert_int_eq(run(""), 0);
    ck_assert_int_eq(shell("echo >>m.ckc/consts.bin"), 0);
    refused("", "consts.bin: is not the file");
    ck_assert_int_eq(shell("sed '/file .*consts/d' -i m.ckc/x.ckp; echo >m.ckc/consts.bin"), 0);
    refused("", "too short");
    ck_assert_int_eq(shell("rm m.ckc/consts.bin; mkfifo m.ckc/consts.bin"), 0);
    refused("", "not a regular file");
}
END_TEST

/* The model is copied by --save, and data is read whatever it is. */
START_TEST(model_and_data)
{
    make_schedule();
    ck_assert_int_eq(shell("cp '" CKC_SOURCE_DIR "/examples/mlp/model.onnx' other.onnx; echo >>other.onnx;"
                           "sed 's|model .* |model \"../other.onnx\" |' m.ckc/step.ckp >m.ckc/x.ckp"), 0);
    refused("--save out.onnx", "other.onnx: is not the file");
    refused("--allow-path . --save out.onnx", "other.onnx: is not the file");
    refused("", "allow-path"); /* the weights are in a file that is not the model now */
    ck_assert_int_eq(shell("sed 's|^plan 2 {|&\\n  data \"../secret\"|' m.ckc/step.ckp >m.ckc/x.ckp"), 0);
    refused("", "--data");
    refused("--data missing.npz", "missing.npz");
}
END_TEST

/* Whoever made the schedule is not asked anything, wherever it lies. */
START_TEST(own_schedule)
{
    ck_assert_int_eq(shell("mkdir -p deep/folder far; cp '" CKC_SOURCE_DIR "/examples/mlp/model.onnx' m.onnx;"
                           "'" CKC_BINARY "' m.onnx --bind batch=4 -o deep/folder/s --steps 1 --quiet "
                           "--loss mse --grads g.npz && cd far && "
                           "'" CKC_BINARY "' run ../deep/folder/s/step.ckp --save o.onnx --quiet"), 0);
}
END_TEST

Suite *suite_cache(void)
{
    Suite *s = suite_create("cache");
    TCase *c = tcase_create("cache");
    tcase_add_unchecked_fixture(c, make_warm, remove_warm);
    tcase_add_checked_fixture(c, enter, leave);
    tcase_add_test(c, folders);
    tcase_add_test(c, homeless);
    tcase_add_test(c, files);
    tcase_add_test(c, damaged);
    tcase_add_test(c, planted);
    tcase_add_test(c, without_compiler);
    tcase_add_test(c, odd_names);
    tcase_add_test(c, files_outside);
    tcase_add_test(c, files_inside);
    tcase_add_test(c, model_and_data);
    tcase_add_test(c, own_schedule);
    suite_add_tcase(s, c);
    return s;
}
